"""Rows from measurements, and files of rows; each row contains all that is needed to read it."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy
import scipy
import sklearn
from threadpoolctl import threadpool_info

import pcsda

from .measure import Bound, Contestant, Job, Measurement

Row = dict[str, Any]


def make_rows(job: Job, found: Measurement, context: dict[str, Any], *, judge: bool) -> list[Row]:
    """Make a row for every contestant; bounds are judged only with `judge`."""
    return [_row(job, one, found, judge) | context for one in job.contestants]


def add_where(rows: list[Row], shares: dict[str, dict[str, float]]) -> None:
    """Add to the rows of a case where the profiled contestants spend their time."""
    for row in rows:
        if row["contestant"] in shares:
            row["where"] = shares[row["contestant"]]


def _row(job: Job, one: Contestant, found: Measurement, judge: bool) -> Row:
    own, yardstick = found.rounds[one.label], found.rounds[job.contestants[0].label]
    in_rounds = [value / other for value, other in zip(own, yardstick, strict=True)]
    row: Row = {
        "job": job.name,
        "case": job.case,
        "contestant": one.label,
        "role": one.role,
        job.unit: min(own),
        "rounds": own,
        "ratio": min(own) / min(yardstick),
        "ratio_spread": [min(in_rounds), max(in_rounds)],
        "variation": found.variation,
        "others": found.others,
        "discarded": found.discarded,
        "noisy": found.noisy,
        "bounds": [_judged(bound, own, found, judge) for bound in one.bounds],
    }
    if job.grows:
        row["grows"] = job.grows
        if one.cost:
            row["formula"] = one.cost.formula
            row["operations"] = float(one.cost.operations(**job.case))
            row["steepest"] = one.cost.steepest
    return row


def _judged(bound: Bound, own: list[float], found: Measurement, judge: bool) -> Row:
    ratio = min(own)
    if bound.against is not None:
        ratio /= min(found.rounds[bound.against])
    return asdict(bound) | {"ratio": ratio, "holds": bound.holds(ratio) if judge else None}


def environment(threads: int) -> dict[str, Any]:
    """Describe what the numbers depend on besides the code."""
    libraries = (lib for lib in threadpool_info() if lib["user_api"] == "blas")
    blas = {f"{lib['internal_api']} {lib['version']}" for lib in libraries}
    return {
        "threads": threads,
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "versions": {
            module.__name__: module.__version__ for module in (pcsda, numpy, scipy, sklearn)
        },
        "blas": sorted(blas),
    }


def cpu_model() -> str:
    """Return the name of the processor, if the system reports it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def read(path: Path) -> list[Row]:
    """Read the rows of an earlier run; none if there is no file."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines()
    try:
        return [json.loads(line) for line in lines]
    except json.JSONDecodeError as error:
        message = f"{path} is not a file of rows ({error}); remove it or give --output"
        raise SystemExit(message) from error


def comparable(rows: list[Row], context: dict[str, Any]) -> list[Row]:
    """Return the rows measured under the same conditions, which may share a table."""
    same = json.loads(json.dumps(context))
    return [row for row in rows if all(row.get(name) == value for name, value in same.items())]


def in_order(rows: list[Row], jobs: list[str]) -> list[Row]:
    """Return rows in the order of the requested jobs, without those of removed jobs."""
    known = (row for row in rows if row["asked"] in jobs)
    return sorted(known, key=lambda row: jobs.index(row["asked"]))


def to_json_lines(rows: list[Row]) -> str:
    """Write one row per line."""
    return "".join(json.dumps(row) + "\n" for row in rows)


def write(path: Path, text: str) -> None:
    """Replace a file atomically, so that neither a reader nor a stopped run sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
