"""Time metric-learn in a separate Python, because it requires an older scikit-learn.

This file runs in both: here it sends the request; there it runs as a program that fits and times.
It needs only NumPy, scikit-learn, threadpoolctl and metric-learn there, for instance from
``pip install metric-learn "scikit-learn<1.8"``: metric-learn 0.7 does not work with a newer one.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from threadpoolctl import threadpool_limits

from .data import make_sample

ROOT = Path(__file__).parents[2]
ALGORITHMS = ("LFDA", "RCA_Supervised")


def fit_seconds(python: str, algorithm: str, n_rows: int, width: int, threads: int) -> float:
    """Return the seconds of one fit in the other Python, after a warm-up."""
    case = json.dumps([algorithm, n_rows, width, threads])
    done = subprocess.run(
        [python, "-W", "ignore", "-m", "benchmarks.speed.elsewhere", case],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"{python} could not fit {algorithm}:\n{done.stderr.strip()}")
    return float(done.stdout)


def measure_here(algorithm: str, n_rows: int, width: int, threads: int) -> float:
    """Fit twice in this process and return the seconds of the second fit."""
    import metric_learn

    sample = make_sample(n_rows, width)
    with threadpool_limits(threads):
        for _ in range(2):
            model = getattr(metric_learn, algorithm)()
            start = time.perf_counter()
            model.fit(sample.X, sample.groups)
            took = time.perf_counter() - start
    return took


if __name__ == "__main__":
    print(measure_here(*json.loads(sys.argv[1])))
