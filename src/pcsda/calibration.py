"""From scores to calibrated log-likelihood ratios, and from costs to thresholds."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.model_selection import StratifiedKFold

Array = NDArray[np.float64]

# Slope, for a standard deviation of the scores, where they hold no evidence: the order is kept.
SMALLEST_SLOPE = 1e-6
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

    Targets are Platt's: ``(N_p + 1)/(N_p + 2)`` for positives and ``1/(N_n + 2)`` for negatives, so
    that separable scores keep a finite slope. The prior log odds ``ln(N_p/N_n)`` of the sample are
    taken off, which leaves a log-likelihood ratio (MATH 9).

    Parameters
    ----------
    scores : array of shape (n,)
        Scores of samples that the model has not seen: left out, cross-validated or held back.
    positive : boolean array of shape (n,)
    weights : array of shape (n,), optional
    """
    weight = np.ones(len(scores)) if weights is None else weights
    n_positive, n_negative = weight[positive].sum(), weight[~positive].sum()
    high, low = (n_positive + 1) / (n_positive + 2), 1 / (n_negative + 2)
    targets = np.where(positive, high, low)
    # Centred and scaled scores keep the Newton steps well conditioned.
    centre = float(np.average(scores, weights=weight))
    scale = float(np.sqrt(np.average((scores - centre) ** 2, weights=weight))) or 1.0
    slope, offset = _newton((scores - centre) / scale, targets, weight, scale)
    slope /= scale
    offset -= slope * centre
    return Calibration(float(slope), float(offset - np.log(n_positive / n_negative)))


def _newton(
    scores: Array, targets: Array, weight: Array, guess: float, max_iter: int = 100
) -> Array:
    """Minimise the cross-entropy over slope and offset; convex, by damped Newton steps.

    `guess` is the slope of scores that are calibrated already, which is where many start.
    """
    share = float(np.average(targets, weights=weight))
    flat = np.array([SMALLEST_SLOPE, np.log(share / (1 - share))])
    # The gradient says whether any larger slope would help.
    if _gradient(flat, scores, targets, weight)[0][0] >= 0:
        return flat
    starts = (flat, np.array([guess, flat[1]]))
    loss, _, point = min((_loss(x, scores, targets, weight), i, x) for i, x in enumerate(starts))
    for _ in range(max_iter):
        gradient, hessian = _gradient(point, scores, targets, weight)
        hessian.flat[::3] += 1e-12 * np.trace(hessian) + 1e-300
        step = np.linalg.solve(hessian, gradient)
        gain = gradient @ step
        if gain <= 1e-12 * loss:
            # Convergence is quadratic: this step ends at the precision of the numbers.
            return point - step
        size = 1.0
        while (trial := _loss(point - size * step, scores, targets, weight)) > (
            loss - 1e-4 * size * gain
        ) and size > 1e-10:
            size /= 2
        point, loss = point - size * step, trial
    return point


def _loss(point: Array, scores: Array, targets: Array, weight: Array) -> float:
    odds = point[0] * scores + point[1]
    return float(weight @ (np.logaddexp(0, odds) - targets * odds))


def _gradient(point: Array, scores: Array, targets: Array, weight: Array) -> tuple[Array, Array]:
    chance = expit(point[0] * scores + point[1])
    error = weight * (chance - targets)
    curve = weight * chance * (1 - chance)
    mixed = curve @ scores
    hessian = np.array([[(curve * scores) @ scores, mixed], [mixed, curve.sum()]])
    return np.array([error @ scores, error.sum()]), hessian


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


def bayes_threshold(
    prior: float = 0.5, *, cost_miss: float = 1.0, cost_false_alarm: float = 1.0
) -> float:
    """Threshold on a log-likelihood ratio that minimises the expected cost.

    Parameters
    ----------
    prior : float
        Probability of the class of interest, between 0 and 1.
    cost_miss, cost_false_alarm : float
        Costs of rejecting a positive and of accepting a negative.

    Returns
    -------
    float
        Accept where the log-likelihood ratio is at least this.

    Examples
    --------
    >>> round(bayes_threshold(0.01, cost_false_alarm=10), 2)
    6.9
    """
    if not 0 < prior < 1:
        raise ValueError(f"prior={prior} must lie between 0 and 1, both excluded")
    for name, cost in (("cost_miss", cost_miss), ("cost_false_alarm", cost_false_alarm)):
        if not (cost > 0 and np.isfinite(cost)):
            raise ValueError(f"{name}={cost} must be a positive number")
    return float(np.log(cost_false_alarm / cost_miss) - np.log(prior / (1 - prior)))
