"""Peak memory of a fit, measured in a fresh process that does nothing else.

Linux only: the high-water mark of the process is reset right before the fit. `ru_maxrss` does not
work, because a child process inherits the mark of its parent.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import scipy.linalg
from threadpoolctl import threadpool_limits

import pcsda

from .data import make_sample

ROOT = Path(__file__).parents[2]
RESET_PEAK = "5"


def available() -> bool:
    """Return whether this system reports the peak memory of a process."""
    return Path("/proc/self/clear_refs").exists()


def peak_of_fit(estimator: str, params: dict, n_rows: int, width: int, threads: int) -> int:
    """Return the peak memory of ``fit`` in bytes, beyond what was used before (X included).

    Arrays of 64 KiB and more return to the system when they are freed; otherwise the result would
    depend on how much memory the allocator keeps for later use.
    """
    case = json.dumps([estimator, params, n_rows, width, threads])
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.speed.memory", case],
        cwd=ROOT,
        env=os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return int(done.stdout)


def measure_here(estimator: str, params: dict, n_rows: int, width: int, threads: int) -> int:
    """Fit once in this process and return the bytes used."""
    make = getattr(pcsda, estimator)
    with threadpool_limits(threads):
        sample = make_sample(n_rows, width)
        _settle(make(**params))
        Path("/proc/self/clear_refs").write_text(RESET_PEAK)
        before = status("VmRSS")
        make(**params).fit(sample.X, sample.y, subclass_labels=sample.groups)
        return status("VmHWM") - before


def _settle(estimator: object) -> None:
    """Trigger late imports and allocate the workspace of BLAS, which are not part of the fit."""
    sample = make_sample(200, 10)
    estimator.fit(sample.X, sample.y, subclass_labels=sample.groups)
    square = np.eye(1500)
    np.linalg.cholesky(square @ square.T)
    scipy.linalg.cholesky(scipy.linalg.blas.dgemm(1.0, square, square))


def status(name: str) -> int:
    """Return an entry of this process's status, such as VmHWM, in bytes."""
    with open("/proc/self/status", encoding="ascii") as lines:
        table = dict(line.split(":", 1) for line in lines)
    return int(table[name].split()[0]) * 1024


if __name__ == "__main__":
    print(measure_here(*json.loads(sys.argv[1])))
