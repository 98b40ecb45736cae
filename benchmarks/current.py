"""Compute some stored rows of ours anew: are the studies those of this version?

    python -m benchmarks.current                      five rows of each study, data set and method
    python -m benchmarks.current --studies few_shot --rows 20
    python -m benchmarks.current --renew              all stored rows of ours, some hours; resumes

Rows of other methods do not depend on the library. Rows on speed cannot repeat, and are left out.
The command fails if any figure differs from the stored one, or if no data are at hand. With
`--renew` it replaces the rows of ours by those of this version, study by study.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
import warnings
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np

from . import few_shot, open_set, search
from .markdown import table
from .paper import protocol
from .paper import rows as paper_rows
from .paper.__main__ import COMMITTED
from .paper.datasets import AbsentError, load
from .paper.rows import Row, RowFile, read

OURS = ("PCSDA", "KernelPCSDA", "PCSDACV", "VerifierBank", "pcsda")
# Machines round differently; figures are stored with six digits.
CLOSE = 2e-6
# Where `--renew` keeps rows until a study is complete.
RENEWED = Path(__file__).parent / "results"
data_of = cache(load)


class Study(NamedTuple):
    """Where the rows of a study are, what identifies a row, and how to compute it anew."""

    path: Path
    key: tuple[str, ...]
    again: Callable[[Row], Row]


def few_shot_again(row: Row) -> Row:
    data = data_of(row["dataset"])
    facts = [row[name] for name in ("class", "draw", "n_positive", "n_negative", "how")]
    return few_shot.measured(row["method"], few_shot.draw(data.X, data.y, *facts))


def open_set_again(row: Row) -> Row:
    name = row["dataset"]
    data = None if name in open_set.PLANTED else data_of(name)
    problem = open_set.problem_of(name, data, row["n_rows"], row["draw"])
    return open_set.measured(row["method"], problem)


def search_again(row: Row) -> Row:
    name = row["dataset"]
    if name in search.REVIEWS:
        start = search.of_review(name, row["draw"])
    else:
        start = search.of_class(data_of(name), row["class"], row["start"], row["draw"])
    return search.measured(row["method"], start)


def paper_again(row: Row) -> Row:
    unit = protocol.Unit(row["dataset"], row["class"], row["split"], (row["method"],))
    return next(one for one in run_unit(unit) if one["kind"] == row["kind"])


@cache
def run_unit(unit: protocol.Unit) -> list[Row]:
    """Return the rows of both kinds, ranking and classification."""
    return protocol.run_unit(data_of(unit.dataset), unit, protocol.FULL).rows


STUDIES = {
    "few_shot": Study(few_shot.ROWS, few_shot.KEY, few_shot_again),
    "open_set": Study(open_set.ROWS, open_set.KEY, open_set_again),
    "search": Study(search.ROWS, search.KEY, search_again),
    "paper": Study(COMMITTED, paper_rows.KEY, paper_again),
}
# Facts about a run rather than results.
RUN = ("seconds", "versions", "warnings", "seed", "profile")


def ours(row: Row) -> bool:
    return row["method"].partition(" ")[0].rstrip(",") in OURS


def sample(rows: list[Row], count: int) -> Iterator[tuple[tuple[str, str], list[Row]]]:
    """Yield, for each data set and method of ours, a seeded sample of its rows."""
    group = lambda row: (row["dataset"], row["method"])  # noqa: E731
    own = sorted(filter(ours, rows), key=group)
    for name, found in groupby(own, key=group):
        members = list(found)
        rng = np.random.default_rng(zlib.crc32("/".join(name).encode()))
        chosen = rng.permutation(len(members))[:count]
        yield name, [members[place] for place in np.sort(chosen)]


def change(stored: Row, found: Row, key: tuple[str, ...]) -> float:
    """Return the largest difference between the figures of two rows; infinite for other facts."""
    largest = 0.0
    for name in set(stored) - set(key) - set(RUN):
        old, new = stored[name], found.get(name)
        if isinstance(old, float) and isinstance(new, float):
            gap = abs(old - new)
            largest = max(largest, np.inf if np.isnan(gap) else gap)
        elif old != new:
            return np.inf
    return largest


def compare(name: str, count: int) -> Iterator[tuple[str, str, int, int, float]]:
    """Yield data set, method, number of rows, how many differ, and the largest difference."""
    study = STUDIES[name]
    for (dataset, method), chosen in sample(read(study.path), count):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                changes = np.array([change(row, study.again(row), study.key) for row in chosen])
        except (AbsentError, FileNotFoundError) as error:
            print(f"{dataset} is absent: {error}", file=sys.stderr)
            continue
        yield dataset, method, len(chosen), int(np.sum(changes > CLOSE)), float(changes.max())


def renew(name: str) -> None:
    """Replace the stored rows of ours by rows of this version. An interrupted run resumes."""
    study, kept = STUDIES[name], RowFile(RENEWED / f"renewed_{name}.jsonl")
    key = lambda row: tuple(row.get(part) for part in study.key)  # noqa: E731
    stored, done = read(study.path), {key(row): row for row in kept.rows}
    missing = [row for row in stored if ours(row) and key(row) not in done]
    for number, row in enumerate(missing, start=1):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = {part: row[part] for part in study.key if part in row} | study.again(row)
        kept.append([found])
        done[key(row)] = found
        if number % 100 == 0:
            print(f"{name}: {number} of {len(missing)} rows", flush=True)
    lines = [json.dumps(done.get(key(row), row) if ours(row) else row) for row in stored]
    study.path.write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode(), mtime=0))
    kept.close()
    kept.path.unlink()
    print(f"{name}: {len(missing)} rows renewed", flush=True)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.current", description=__doc__)
    parser.add_argument("--studies", nargs="+", choices=STUDIES, default=list(STUDIES))
    parser.add_argument("--rows", type=int, default=5, help="of each data set and method")
    parser.add_argument("--renew", action="store_true", help="replace the rows of ours")
    options = parser.parse_args(arguments)
    if options.renew:
        for name in options.studies:
            renew(name)
        return 0
    head, lines, differ = ["study", "data set", "method", "rows", "differ", "by at most"], [], 0
    for name in options.studies:
        for dataset, method, count, changed, largest in compare(name, options.rows):
            lines.append([name, dataset, method, str(count), str(changed), f"{largest:.2g}"])
            differ += changed
            print(f"{name}, {dataset}, {method}: {changed} of {count} differ", flush=True)
    print(table(head, lines))
    return int(differ > 0 or not lines)


if __name__ == "__main__":
    sys.exit(main())
