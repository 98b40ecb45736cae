"""What a method is, and what several of them use."""

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

    `choose` is None where nothing is chosen in folds; then `report` may put what the method chose
    by itself, and among how many settings (`n_settings`), into its setting. `group` is the part of
    the tables that the method stands in.
    """

    name: str
    group: str
    about: str
    report: Callable[[Space, Setting], Scores]
    choose: Callable[[Space, list[Setting]], Scores] | None = None
    grid: list[Setting] = field(default_factory=lambda: [{}])
    kinds: tuple[str, ...] = KINDS


def both(scores: Array) -> Scores:
    """The same scores for ranking and for classification."""
    return dict.fromkeys(KINDS, scores)


def published(model: Any, others: Array) -> Scores:
    """Scores of a class-specific model as published: distance for ranking, else the rule g.

    The distance needs no density, so a setting may rank well and have no rule.
    """
    try:
        decided = model.decision_function(others)
    except ValueError:  # too few positives for the covariance of so many axes
        decided = np.full(len(others), np.nan)
    return {"ranking": model.score_samples(others), "classification": decided}


def linear_svm(C: float) -> LinearSVC:
    """LIBLINEAR's support vector machine, in the primal, which converges at every C."""
    return LinearSVC(C=C, dual=False)


def one_by_one(report: Callable[[Space, Setting], Scores]) -> Callable[..., Scores]:
    """Choose by fitting every setting in turn."""

    def choose(space: Space, grid: list[Setting]) -> Scores:
        found = [report(space, setting) for setting in grid]
        return {kind: np.stack([scores[kind] for scores in found]) for kind in found[0]}

    return choose
