"""The interface of a method, and functions that several of them share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.svm import LinearSVC

from ..grids import Setting
from ..spaces import Array, Space

KINDS = ("ranking", "classification")
Scores = dict[str, Array]


@dataclass(frozen=True)
class Method:
    """A method of the study.

    `choose` is None if nothing is chosen on folds. In that case, `report` may add to its setting
    what the method itself chose, and from how many settings (`n_settings`). `group` is the method's
    part of the tables. If `of_pictures`, rows must be pictures.
    """

    name: str
    group: str
    about: str
    report: Callable[[Space, Setting], Scores]
    choose: Callable[[Space, list[Setting]], Scores] | None = None
    grid: list[Setting] = field(default_factory=lambda: [{}])
    kinds: tuple[str, ...] = KINDS
    of_pictures: bool = False


def both(scores: Array) -> Scores:
    """Return the same scores for ranking and for classification."""
    return dict.fromkeys(KINDS, scores)


def published(model: Any, others: Array) -> Scores:
    """Score as published: by distance for ranking, by the rule g for classification.

    The distance needs no density, so a setting may rank well even if it has no rule.
    """
    try:
        decided = model.decision_function(others)
    except ValueError:  # too few positives for the covariance of so many axes
        decided = np.full(len(others), np.nan)
    return {"ranking": model.score_samples(others), "classification": decided}


def linear_svm(C: float) -> LinearSVC:
    """Make LIBLINEAR's support vector machine, in the primal, which converges at every C."""
    return LinearSVC(C=C, dual=False)


def one_by_one(report: Callable[[Space, Setting], Scores]) -> Callable[..., Scores]:
    """Make a function that scores all settings by fitting each in turn."""

    def choose(space: Space, grid: list[Setting]) -> Scores:
        found = [report(space, setting) for setting in grid]
        return {kind: np.stack([scores[kind] for scores in found]) for kind in found[0]}

    return choose
