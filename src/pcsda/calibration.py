"""From scores to calibrated log-likelihood ratios, and from costs to thresholds."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedKFold

from .core.decision import bayes_threshold
from .core.logistic import fit_logistic

__all__ = ["Calibration", "bayes_threshold", "calibrate", "fit_calibration", "fold_scores"]

Array = NDArray[np.float64]

# Folds of the calibration where no leave-one-out scores exist.
FOLDS = 5


@dataclass(frozen=True)
class Calibration:
    """The affine map ``slope * score + offset`` from a score to a log-likelihood ratio."""

    slope: float = 1.0
    offset: float = 0.0

    def __call__(self, scores: Array) -> Array:
        """Map scores to log-likelihood ratios."""
        return self.slope * scores + self.offset


def fit_calibration(
    scores: Array, positive: NDArray[np.bool_], weights: Array | None = None
) -> Calibration:
    """Fit a logistic regression of the label on the score, with a slope above zero.

    The log odds are ``slope * score + offset + ln(N_p/N_n)``, so that slope and offset lead to a
    log-likelihood ratio. A weak prior says that the scores are log-likelihood ratios already: slope
    Gamma(2, 1), with its mode at one, and offset N(0, 10^2). It keeps the slope of separable scores
    finite, and that of worthless scores above zero, so that their order is kept.

    Parameters
    ----------
    scores : array of shape (n,)
        Scores of samples that the model has not seen: left out, cross-validated or held back.
    positive : boolean array of shape (n,)
    weights : array of shape (n,), optional

    Notes
    -----
    Platt's smoothed targets would keep the slope finite as well, but what they add is one positive
    among the negatives. Far out on the scale of a log-likelihood ratio that one outweighs all
    others and flattens the slope.
    """
    slopes, offset = fit_logistic(scores[None], positive, weights)
    return Calibration(float(slopes[0]), offset)


def fold_scores(
    learn: Callable[..., Any],
    X: Any,
    groups: NDArray[np.intp],
    weights: Array | None,
    seed: int,
) -> Array:
    """Score every row by a model that was fitted without the row's fold; the groups are held.

    `learn(X, groups, weights)` returns a model with a method `score`. The result is NaN where no
    such model exists: with one positive or one negative, or in a fold that cannot be fitted.
    """
    scores = np.full(len(groups), np.nan)
    positive = groups == 0
    n_folds = int(min(FOLDS, positive.sum(), (~positive).sum()))
    if n_folds < 2:
        return scores
    folds = StratifiedKFold(n_folds, shuffle=True, random_state=seed)
    for train, test in folds.split(np.empty(len(groups)), positive):
        labels = np.unique(groups[train], return_inverse=True)[1]
        weight = None if weights is None else weights[train]
        try:
            scores[test] = learn(X[train], labels, weight).score(X[test])
        except ValueError as error:
            warnings.warn(f"a calibration fold could not be fitted: {error}", stacklevel=2)
    return scores


def calibrate(
    learn: Callable[..., Any],
    X: Any,
    groups: NDArray[np.intp],
    weights: Array | None,
    seed: int,
    left_out: Array | None,
) -> Calibration:
    """Calibrate a model on its left-out scores, or on those of folds where it has none.

    A row that is alone in its group takes the group with it when it is left out; the axes that are
    held then mean nothing to it, and its score is not used. Without scores of both classes, the
    log ratio is taken as it is.
    """
    scores = np.full(len(groups), np.nan) if left_out is None else left_out.copy()
    scores[np.bincount(groups)[groups] == 1] = np.nan
    if not np.isfinite(scores[groups > 0]).any():
        scores = fold_scores(learn, X, groups, weights, seed)
    seen = np.isfinite(scores)
    positive = groups[seen] == 0
    if positive.all() or not positive.any():
        return Calibration()
    return fit_calibration(scores[seen], positive, None if weights is None else weights[seen])
