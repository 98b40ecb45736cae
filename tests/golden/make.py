"""Write the golden numbers: what the code of today gives on the problems of `problems.py`.

    cd tests; python -m golden.make            write the numbers of new problems
    cd tests; python -m golden.make NAME ...   write those of the named ones anew

Numbers that are there already stay as they are: they are what later code is held against. Only
those of problems that `CHANGED_ON_PURPOSE` lists, with a reason, can be written anew, and of these
only the arrays that have changed.

A problem whose numbers move with rounding is no use as a witness, so it is refused: each is solved
again with the rows in another order and with rows that differ in the last digits, and the results
must agree to a fifth of the tolerance.
"""

import argparse
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
from golden.problems import CHANGED_ON_PURPOSE, PROBLEMS

FILE = Path(__file__).with_name("numbers.npz")
# Results that follow the order of the training rows.
PER_ROW = ("loo", "cv_scores")


def read():
    """Read all stored numbers: a dictionary of arrays for each problem."""
    kept = {}
    with np.load(FILE) as file:
        for key in file.files:
            name, _, array = key.partition("/")
            kept.setdefault(name, {})[array] = file[key]
    return kept


def deviation(found, expected):
    """Return the largest difference, relative to the largest number of the array."""
    worst = 0.0
    for name, value in expected.items():
        if found[name].shape != value.shape:
            return np.inf
        worst = max(worst, np.abs(found[name] - value).max() / max(np.abs(value).max(), 1e-300))
    return worst


def shaken(rows, seed=0):
    """Return the same rows with their last digits changed."""
    rng = np.random.default_rng(seed)
    last = 4 * np.finfo(rows.X.dtype).eps

    def noisy(values):
        return (values * (1 + last * rng.standard_normal(values.shape))).astype(values.dtype)

    return replace(rows, X=noisy(rows.X), new=noisy(rows.new))


def reordered(rows, seed=0):
    order = np.random.default_rng(seed).permutation(len(rows.X))
    weights = None if rows.weights is None else rows.weights[order]
    return replace(
        rows,
        X=rows.X[order],
        y=rows.y[order],
        labels=rows.labels[order],
        subclasses=rows.subclasses[order],
        weights=weights,
    )


def solve(problem):
    """Return a problem's numbers, after checking that they are well defined."""
    rows = problem.make()
    expected = problem.run(rows)
    found = {"other digits": deviation(problem.run(shaken(rows)), expected)}
    if not problem.ordered:
        turned = {k: v for k, v in problem.run(reordered(rows)).items() if k not in PER_ROW}
        kept = {k: v for k, v in expected.items() if k not in PER_ROW}
        found["another order"] = deviation(turned, kept)
    for what, value in found.items():
        if not value < problem.tolerance / 5:
            sys.exit(f"{problem.name!r} moves by {value:.1e} with {what}; make it more regular")
    print(f"{problem.name:30s}", *(f"{what} {value:.0e}" for what, value in found.items()))
    return expected | {"fingerprint": rows.fingerprint()}


def unchanged(found, before, problem):
    """Return a problem's arrays, keeping the stored ones where they still hold."""

    def holds(name):
        there = name in before
        return there and deviation({name: found[name]}, {name: before[name]}) < problem.tolerance

    return {name: before[name] if holds(name) else value for name, value in found.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    known = {problem.name for problem in PROBLEMS}
    if unknown := {*options.names} - known:
        sys.exit(f"no such problem: {sorted(unknown)}")
    kept = read() if FILE.exists() else {}
    if silent := {*options.names} & {*kept} - {*CHANGED_ON_PURPOSE}:
        sys.exit(f"give a reason in CHANGED_ON_PURPOSE for {sorted(silent)} first")
    kept = {name: value for name, value in kept.items() if name in known}
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", "a single positive shows no spread")
    for problem in PROBLEMS:
        if problem.name not in kept or problem.name in options.names:
            kept[problem.name] = unchanged(solve(problem), kept.get(problem.name, {}), problem)
    arrays = {
        f"{problem.name}/{name}": value
        for problem in PROBLEMS
        for name, value in kept[problem.name].items()
    }
    np.savez_compressed(FILE, **arrays)
    print(f"{len(kept)} problems, {FILE.stat().st_size / 1024:.0f} KB")


if __name__ == "__main__":
    main()
