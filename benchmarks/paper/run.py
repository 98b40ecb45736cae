"""Plan the remaining units of work and run them in parallel."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator

from joblib import Parallel, delayed

from .datasets import Dataset
from .methods import METHODS
from .protocol import Outcome, Protocol, Unit, chosen_classes, run_unit
from .rows import RowFile, key


def plan(
    datasets: Iterable[Dataset],
    methods: Iterable[str],
    classes: list[str] | None,
    n_splits: int,
    profile: str,
    done: set[tuple],
) -> list[Unit]:
    """List units with the methods that lack a row, ordered by split and then by data set.

    Methods for pictures are skipped on other sets.
    """
    units = []
    for split in range(n_splits):
        for dataset in datasets:
            for label in classes or chosen_classes(dataset):
                missing = tuple(
                    name
                    for name in methods
                    if (dataset.shape or not METHODS[name].of_pictures)
                    and any(
                        (profile, dataset.name, label, split, name, kind) not in done
                        for kind in METHODS[name].kinds
                    )
                )
                if missing:
                    units.append(Unit(dataset.name, label, split, missing))
    return units


def run(
    units: list[Unit], datasets: dict[str, Dataset], protocol: Protocol, file: RowFile, n_jobs: int
) -> dict[str, str]:
    """Run the units, append their rows, and return what failed."""
    done, failures = {key(row) for row in file.rows}, {}
    jobs = (delayed(run_unit)(datasets[unit.dataset], unit, protocol) for unit in units)
    with Parallel(n_jobs=n_jobs, return_as="generator_unordered") as parallel:
        for outcome in announced(parallel(jobs), len(units)):
            fresh = [row for row in outcome.rows if key(row) not in done]
            file.append(fresh)
            done |= {key(row) for row in fresh}
            unit = outcome.unit
            for name, error in outcome.failures.items():
                failures[f"{name} on {unit.dataset}, class {unit.label}, split {unit.split}"] = (
                    error
                )
    return failures


def announced(outcomes: Iterable[Outcome], total: int) -> Iterator[Outcome]:
    """Print progress and the remaining time on standard error."""
    begin, on_terminal = time.monotonic(), sys.stderr.isatty()
    for number, outcome in enumerate(outcomes, start=1):
        yield outcome
        left = (time.monotonic() - begin) / number * (total - number)
        filled = 24 * number // total
        bar = f"[{'#' * filled}{'.' * (24 - filled)}] {number}/{total}, {duration(left)} left"
        if on_terminal:
            print(f"\r\x1b[K{bar}, after {outcome.unit.name}", end="", file=sys.stderr, flush=True)
        else:
            print(f"{bar}, after {outcome.unit.name}", file=sys.stderr, flush=True)
    if on_terminal:
        print(file=sys.stderr)


def duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
