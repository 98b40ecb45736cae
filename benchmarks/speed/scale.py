"""Jobs on files too large for memory; they run only if named.

Each generates its file in a temporary folder and deletes it afterwards.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from pcsda import PCSDA, distributed, fit_blocks

from . import memory
from .banks import BANK_JOBS
from .data import N_SUBCLASSES, SEPARATION
from .measure import Bound, Contestant, Cost, Job
from .setup import Setup

WIDTH = 128
# Rows for 8 GB of float32, and for the smaller Dask job.
FILE_ROWS, DASK_ROWS = 16_000_000, 2_000_000
RATE_ROWS, RATE_WIDTH = 200_000, 512
GROWTH_ROWS, GROWTH_WIDTH = (100_000, 1_000_000, 10_000_000), 32
# Size of a block in float64, as in fit_blocks.
BLOCK_BYTES = 64 << 20
MOST_MEMORY = 10**9
# A pass must have at least this share of the throughput of the bare loop.
THROUGHPUT = 0.6
ONE_PASS = Cost("N D^2", lambda N, D, **_: N * D**2)
FIT = Cost("N D^2", lambda N, D, **_: N * D**2, 1.05)
QUICK = 1000


@dataclass(frozen=True)
class Source:
    """A file of rows with labels and groups."""

    X: Path
    y: Path
    groups: Path
    n_rows: int
    width: int

    @property
    def case(self) -> dict[str, int]:
        return {"N": self.n_rows, "D": self.width}

    @property
    def block_rows(self) -> int:
        return BLOCK_BYTES // (8 * self.width)

    def fit(self, model: PCSDA) -> PCSDA:
        """Fit with the subclasses given."""
        return fit_blocks(model, self.X, y=self.y, subclass_labels=self.groups)


@contextmanager
def generated(folder: Path | None, n_rows: int, width: int) -> Iterator[Source]:
    """Write a file of float32 rows in equal groups, block by block, and delete it afterwards."""
    with TemporaryDirectory(prefix="pcsda-scale-", dir=folder) as name:
        source = Source(*(Path(name) / f"{part}.npy" for part in "Xyg"), n_rows, width)
        needed, free = 5 * n_rows * width, shutil.disk_usage(name).free
        if needed > free:
            raise OSError(
                f"the file needs {needed / 1e9:.1f} GB and {free / 1e9:.1f} GB are free in "
                f"{folder or Path(name).parent}; name another folder with --scratch"
            )
        rng = np.random.default_rng(0)
        centres = rng.standard_normal((N_SUBCLASSES + 1, width))
        centres *= SEPARATION / np.linalg.norm(centres, axis=1, keepdims=True)
        groups = rng.integers(0, N_SUBCLASSES + 1, n_rows, dtype=np.int8)
        np.save(source.groups, groups)
        np.save(source.y, groups == 0)
        with open(source.X, "wb") as file:
            header = {"descr": "<f4", "fortran_order": False, "shape": (n_rows, width)}
            np.lib.format.write_array_header_1_0(file, header)
            for start in range(0, n_rows, source.block_rows):
                own = groups[start : start + source.block_rows]
                rows = rng.standard_normal((len(own), width), dtype=np.float32)
                rows += centres.astype(np.float32)[own]
                rows.tofile(file)
        yield source


def bare_loop(source: Source) -> np.ndarray:
    """Read the same blocks and form X'X in float64: what every pass has to do."""
    total = np.zeros((source.width, source.width))
    with open(source.X, "rb") as file:
        np.lib.format.read_magic(file)
        np.lib.format.read_array_header_1_0(file)
        for start in range(0, source.n_rows, source.block_rows):
            count = min(source.block_rows, source.n_rows - start)
            rows = np.fromfile(file, np.float32, count * source.width)
            rows = rows.reshape(count, source.width).astype(np.float64)
            total += rows.T @ rows
    return total


def sized(setup: Setup, n_rows: int) -> int:
    return n_rows // QUICK if setup.quick else n_rows


def scale_file(setup: Setup) -> Iterator[Job]:
    """Fit from an 8 GB file, per pass, and its peak memory; limit: read it and form X'X."""
    with generated(setup.scratch, sized(setup, FILE_ROWS), WIDTH) as source:
        yield passes_job("scale-file", source)
        if memory.available():
            yield memory_job("scale-file", source, setup.threads)


def scale_rates(setup: Setup) -> Iterator[Job]:
    """Fit from a file of 200000 rows at D = 512, to extrapolate from; limit: as in scale-file."""
    with generated(setup.scratch, sized(setup, RATE_ROWS), RATE_WIDTH) as source:
        yield passes_job("scale-rates", source)


def passes_job(name: str, source: Source) -> Job:
    """Compare fits of one pass, with and without a sample to leave out, with the bare loop."""
    limit, slack = "read + X'X, one pass", math.floor(100 / THROUGHPUT) / 100
    return Job(
        name,
        source.case,
        (
            Contestant(limit, "limit", partial(bare_loop, source)),
            Contestant(
                "PCSDA.published()",
                "pcsda",
                lambda: source.fit(PCSDA.published()),
                (Bound(limit, at_most=slack),),
            ),
            Contestant(
                "PCSDA()",
                "pcsda",
                lambda: source.fit(PCSDA(random_state=0)),
                (Bound(limit, at_most=slack),),
            ),
        ),
    )


def memory_job(name: str, source: Source, threads: int) -> Job:
    """Measure the peak resident memory of a whole process that fits."""
    limit = "1 GB"
    return Job(
        f"{name}-memory",
        source.case,
        (
            Contestant(limit, "limit", lambda: MOST_MEMORY),
            Contestant(
                "PCSDA(), whole process",
                "pcsda",
                partial(peak_of_process, source, threads),
                (Bound(limit, at_most=1),),
            ),
        ),
        "bytes",
    )


def peak_of_process(source: Source, threads: int) -> int:
    """Return the peak resident memory of a fresh process that does nothing but fit."""
    case = json.dumps([str(source.X), str(source.y), str(source.groups), threads])
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.speed.scale", case],
        cwd=memory.ROOT,
        env=os.environ,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return int(done.stdout)


def scale_growth(setup: Setup) -> Iterator[Job]:
    """Time and memory of a fit from files of 10^5, 10^6 and 10^7 rows; limit: read it and X'X."""
    for full in GROWTH_ROWS:
        with generated(setup.scratch, sized(setup, full), GROWTH_WIDTH) as source:
            yield Job(
                "scale-growth",
                source.case,
                (
                    Contestant(
                        "read + X'X, one pass", "limit", partial(bare_loop, source), cost=ONE_PASS
                    ),
                    Contestant(
                        "PCSDA()",
                        "pcsda",
                        partial(source.fit, PCSDA(random_state=0)),
                        cost=FIT,
                    ),
                ),
                grows="N",
            )
            if memory.available():
                yield replace(memory_job("scale-growth", source, setup.threads), grows="N")


def scale_dask(setup: Setup) -> Iterator[Job]:
    """Fit from a file on a Dask cluster of two processes; yardstick: one process, two threads."""
    from distributed import Client, LocalCluster

    one = "fit_blocks, one process"
    local = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
    with (
        generated(setup.scratch, sized(setup, DASK_ROWS), WIDTH) as source,
        LocalCluster(n_workers=2, threads_per_worker=1, processes=True, **local) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):

        def on_cluster() -> PCSDA:
            return distributed.fit(
                PCSDA(random_state=0),
                source.X,
                source.y,
                subclass_labels=source.groups,
                client=client,
            )

        yield Job(
            "scale-dask",
            source.case,
            (
                Contestant(one, "pcsda", partial(source.fit, PCSDA(random_state=0))),
                Contestant("distributed.fit, two workers", "pcsda", on_cluster),
            ),
        )
        spent = client.run_on_scheduler(time_spent)
        print(f"scale-dask, seconds on the workers over all fits: {spent}", file=sys.stderr)


def time_spent(dask_scheduler: Any) -> dict[str, dict[str, float]]:
    """Return the workers' seconds on each kind of task, and on moving its data."""
    return {
        prefix.name: {what: round(float(took), 2) for what, took in prefix.all_durations.items()}
        for prefix in dask_scheduler.task_prefixes.values()
    }


SCALE_JOBS: dict[str, Callable[[Setup], Iterator[Job]]] = {
    "scale-file": scale_file,
    "scale-rates": scale_rates,
    "scale-growth": scale_growth,
    "scale-dask": scale_dask,
    **BANK_JOBS,
}


def _fit_here(X: str, y: str, groups: str, threads: int) -> int:
    with threadpool_limits(threads):
        fit_blocks(PCSDA(random_state=0), X, y=y, subclass_labels=groups)
    return memory.status("VmHWM")


if __name__ == "__main__":
    print(_fit_here(*json.loads(sys.argv[1])))
