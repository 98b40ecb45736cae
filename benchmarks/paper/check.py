"""Recompute some rows of the study and compare them with the stored ones.

    python -m benchmarks.paper.check                         four problems, one split, some minutes
    python -m benchmarks.paper.check --methods paper         methods or groups of methods

Methods with the library's defaults (group "ours") are left out: their stored rows come from one
commit of the library, and later changes of defaults may change them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable

from . import rows
from .__main__ import COMMITTED, chosen_methods
from .datasets import AbsentError, load
from .methods import METHODS
from .protocol import FULL, Unit, run_unit
from .rows import Row

SAMPLE = {"OptDigits": ("0", "1"), "YALE": ("yaleB01", "yaleB03")}
# Machines round differently; a test row that changes sides changes the value by 1e-4 or more.
CLOSE = 1e-9
# Where LIBLINEAR stops depends on the last digits of the features: changes of 1e-15 moved the F1 of
# the SVM with C=100 on OptDigits, class 1, between 0.980 and 0.986.
BY_LIBLINEAR, CLOSE_ENOUGH = ("SVM", "SVR", "PCA+SVM", "CSDA+SVM"), 0.01


def apart(found: Iterable[Row], kept: Iterable[Row]) -> list[str]:
    """List rows that differ from the stored ones in value or in the chosen setting."""
    known = {rows.key(row): row for row in kept}
    lines = []
    for row in found:
        where = ", ".join(str(part) for part in rows.key(row)[1:])
        own = known.get(rows.key(row))
        most = CLOSE_ENOUGH if row["method"] in BY_LIBLINEAR else CLOSE
        if own is None:
            lines.append(f"{where}: no row is kept")
        elif abs(row["value"] - own["value"]) > most or row["params"] != own["params"]:
            lines.append(
                f"{where}: {row['value']} with {row['params']}, kept {own['value']} with "
                f"{own['params']}"
            )
    return lines


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.paper.check", description=__doc__)
    parser.add_argument("--methods", nargs="+", metavar="NAME", help="methods or groups of them")
    methods = chosen_methods(parser.parse_args(arguments).methods)
    methods = [name for name in methods if METHODS[name].group != "ours"]
    kept, failed, checked = rows.read(COMMITTED), [], 0
    for name, labels in SAMPLE.items():
        try:
            dataset = load(name, openml=False)
        except AbsentError as error:
            print(error, file=sys.stderr)
            return 1
        for label in labels:
            unit = Unit(name, label, 0, tuple(methods))
            outcome = run_unit(dataset, unit, FULL)
            lines = apart(outcome.rows, kept)
            lines += [f"{unit.name}, {method} failed" for method in outcome.failures]
            print(f"{unit.name}: {len(outcome.rows)} rows, {len(lines)} differ", flush=True)
            for line in lines:
                print(f"  {line}", flush=True)
            checked, failed = checked + len(outcome.rows), failed + lines
    print(f"{checked} rows computed anew, {len(failed)} differ from those that are kept")
    return len(failed) > 0


if __name__ == "__main__":
    sys.exit(main())
