"""Time scikit-learn-intelex in a separate Python, because it replaces parts of scikit-learn.

This file runs in both: here it sends the request; there it runs as a program that fits and times.
It needs nothing else there: ``pip install scikit-learn-intelex``.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from threadpoolctl import threadpool_limits

from .data import make_verification

if TYPE_CHECKING:
    from .setup import Setup

ROOT = Path(__file__).parents[2]
# Number of fits, after a warm-up; the best counts.
FITS = 3


def fit_seconds(
    python: str, estimator: str, size: tuple[int, int, int | None], setup: Setup
) -> float:
    """Return the seconds of a fit in the other Python."""
    case = json.dumps([estimator, size, setup.threads, setup.clock.elsewhere])
    done = subprocess.run(
        [python, "-W", "ignore", "-m", "benchmarks.speed.intelex", case],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"{python} could not fit {estimator}:\n{done.stderr.strip()}")
    return float(done.stdout)


def measure_here(estimator: str, size: list[int], threads: int, clock: str) -> float:
    """Fit in this process and return the seconds of the best fit."""
    from sklearnex import linear_model, svm  # only in the other Python

    kind = svm.SVC if estimator == "SVC" else getattr(linear_model, estimator)
    X, y = make_verification(*size)
    now, seconds = getattr(time, clock), []
    with threadpool_limits(threads):
        for _ in range(1 + FITS):
            model = kind(n_jobs=threads)
            start = now()
            model.fit(X, y)
            seconds.append(now() - start)
    return min(seconds[1:])


if __name__ == "__main__":
    print(measure_here(*json.loads(sys.argv[1])))
