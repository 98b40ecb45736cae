"""The speed jobs of large banks: every contestant runs, on tiny sizes."""

import pytest
from benchmarks.speed.jobs import JOBS, ON_REQUEST
from benchmarks.speed.setup import Setup

NAMES = ("bank-scale", "bank-changes")


@pytest.mark.more  # runs every contestant of a benchmark
@pytest.mark.parametrize("name", NAMES)
def test_every_contestant_runs(name):
    assert name in ON_REQUEST
    seen = set()
    for job in JOBS[name](Setup(quick=True, threads=1)):
        seen.add((job.name, *job.case.items()))
        labels = [contestant.label for contestant in job.contestants]
        for contestant in job.contestants:
            result = contestant.run()
            assert job.unit == "seconds" or result > 0
            assert all(bound.against in (None, *labels) for bound in contestant.bounds)
    assert len(seen) == (5 if name == "bank-scale" else 1)
