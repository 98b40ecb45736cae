"""The speed benchmark's jobs on large files: what they generate, and that they clean up."""

import sys
from pathlib import Path

import numpy as np
import pytest
from benchmarks.speed import __main__ as command
from benchmarks.speed import scale
from benchmarks.speed.setup import Setup

import pcsda


def test_scale_jobs_run_only_when_named():
    assert not set(command.parse_arguments([]).jobs) & set(scale.SCALE_JOBS)
    args = command.parse_arguments(["--jobs", "scale-file", "--scratch", "x"])
    assert args.jobs == ["scale-file"]
    assert args.scratch == Path("x")


def test_a_generated_file_has_its_rows_and_goes_away(tmp_path, monkeypatch):
    monkeypatch.setattr(scale, "BLOCK_BYTES", 8 * 5 * 64)  # blocks of 64 rows
    with scale.generated(tmp_path, 1000, 5) as source:
        X, y, groups = (np.load(path) for path in (source.X, source.y, source.groups))
        assert X.shape == (1000, 5)
        assert X.dtype == np.float32
        assert ((groups == 0) == y).all()
        np.testing.assert_allclose(scale.bare_loop(source), X.T.astype(float) @ X.astype(float))
        model = source.fit(pcsda.PCSDA(random_state=0))
        expected = pcsda.PCSDA(random_state=0).fit(X, y, subclass_labels=groups)
        np.testing.assert_allclose(model.components_, expected.components_, rtol=1e-4, atol=1e-7)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_reported_before_anything_is_written(tmp_path):
    with (
        pytest.raises(
            OSError, match=r"^the file needs 5000000.0 GB and .* GB are free in .*; name"
        ),
        scale.generated(tmp_path, 10**12, 1000),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.more
@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read on Linux only")
def test_a_scale_job_measures_time_and_process_memory(tmp_path):
    timed, stored = [
        {one.label: one.run() for one in job.contestants}
        for job in scale.scale_file(Setup(quick=True, scratch=tmp_path))
    ]
    assert len(timed) == 3
    assert stored["1 GB"] == 10**9
    assert 5e7 < stored["PCSDA(), whole process"] < 10**9
    assert list(tmp_path.iterdir()) == []


def test_growth_has_three_sizes_of_time_and_of_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(scale.memory, "available", lambda: True)
    found = list(scale.scale_growth(Setup(quick=True, scratch=tmp_path)))
    assert [(job.name, job.case["N"]) for job in found] == [
        (name, size)
        for size in (100, 1000, 10000)
        for name in ("scale-growth", "scale-growth-memory")
    ]
    assert all(job.grows == "N" for job in found)
    assert found[0].contestants[1].cost.steepest == 1.05
