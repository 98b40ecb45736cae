"""Summaries of the rows: means, ranks and paired differences. Pure functions of rows."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from scipy.stats import rankdata

from .rows import Row

OURS = "PCSDACV"
Cells = dict[tuple[str, int], float]


@dataclass(frozen=True)
class Summary:
    """Mean and standard deviation over class-specific problems, each the mean of its splits.

    `n_missing` counts the (class, split) pairs of other methods that this one lacks.
    """

    mean: float
    deviation: float
    n_problems: int
    n_missing: int


@dataclass(frozen=True)
class Lag:
    """Our method compared with the best other one on a set, paired by problem."""

    rival: str
    rival_mean: float
    our_mean: float
    difference: float
    error: float

    @property
    def holds(self) -> bool:
        """Whether ours is behind by at most one standard error."""
        return self.difference >= 0 or -self.difference <= self.error


def cells(rows: list[Row], kind: str) -> dict[str, dict[str, Cells]]:
    """Return the values by data set, method, and class with split."""
    found: dict[str, dict[str, Cells]] = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        if row["kind"] == kind:
            place = found[row["dataset"]][row["method"]]
            place[row["class"], row["split"]] = row["value"]
    return {dataset: dict(methods) for dataset, methods in found.items()}


def by_problem(values: Cells) -> dict[str, float]:
    """Return the mean over the splits of each class."""
    of_class = defaultdict(list)
    for (label, _), value in values.items():
        of_class[label].append(value)
    return {label: float(np.mean(part)) for label, part in of_class.items()}


def summarise(methods: dict[str, Cells]) -> dict[str, Summary]:
    """Summarise all methods on one set."""
    everything = set().union(*methods.values())
    found = {}
    for name, values in methods.items():
        means = list(by_problem(values).values())
        deviation = float(np.std(means, ddof=1)) if len(means) > 1 else float("nan")
        missing = len(everything - set(values))
        found[name] = Summary(float(np.mean(means)), deviation, len(means), missing)
    return found


def mean_ranks(summaries: dict[str, dict[str, Summary]]) -> dict[str, float]:
    """Return mean ranks over sets (1 is best), for methods complete on all of them."""
    complete = [
        {name for name, one in methods.items() if one.n_missing == 0}
        for methods in summaries.values()
    ]
    names = sorted(set.intersection(*complete)) if complete else []
    if not names:
        return {}
    ranks = [rankdata([-methods[n].mean for n in names]) for methods in summaries.values()]
    return dict(zip(names, np.mean(ranks, axis=0).tolist(), strict=True))


def lag(methods: dict[str, Cells], ours: str = OURS) -> Lag | None:
    """Compare our method with the best of the others; None if either is incomplete."""
    summaries = summarise(methods)
    complete = {name: one.mean for name, one in summaries.items() if one.n_missing == 0}
    if ours not in complete or len(complete) < 2:
        return None
    rival = max((name for name in complete if name != ours), key=lambda name: complete[name])
    own, other = by_problem(methods[ours]), by_problem(methods[rival])
    gaps = np.array([own[label] - other[label] for label in own])
    error = float(gaps.std(ddof=1) / np.sqrt(len(gaps))) if len(gaps) > 1 else float("nan")
    return Lag(rival, complete[rival], complete[ours], float(gaps.mean()), error)
