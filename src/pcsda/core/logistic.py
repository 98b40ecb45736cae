"""Logistic regression on scores that are nearly log-likelihood ratios."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.linalg.lapack import dposv

from .linalg import Array, Mask

# Standard deviation of the prior on the offset.
OFFSET_SPREAD = 10.0
# Scores with a smaller standard deviation count as equal; squares of their slopes would overflow.
LEAST_SPREAD = 1e-100
# With more scores than this, the fit starts on a sample: a tenth of each class, but at least about
# MANY / 10 scores if the class has as many.
MANY = 2000


def fit_logistic(
    scores: Array,
    positive: Mask,
    weights: Array | None = None,
    start: tuple[Sequence[float], float] | None = None,
) -> tuple[Array, float]:
    """Fit positive slopes and an offset to the M scores of each sample.

    The log odds are ``slopes @ scores + offset + ln(N_p/N_n)``. A weak prior assumes that the mean
    score is already a log-likelihood ratio: slopes have the distribution Gamma(2, M), with mode
    1/M, and the offset N(0, 10^2). The prior keeps slopes finite if the scores separate the
    classes, and positive if the scores are uninformative.

    Parameters
    ----------
    scores : array of shape (M, n)
    positive : boolean array of shape (n,)
    weights : array of shape (n,), optional
    start : slopes and offset, optional
        Starting point, fitted to similar scores. It saves steps and changes nothing else.
    """
    weight = np.ones(len(positive)) if weights is None else weights
    prior_odds = np.log(weight[positive].sum() / weight[~positive].sum())
    # Centred and scaled scores keep the Newton steps well conditioned.
    centre = scores @ weight / weight.sum()
    standard = scores - centre[:, None]
    scale = np.sqrt(np.einsum("ij,ij,j->i", standard, standard, weight) / weight.sum())
    scale[scale < LEAST_SPREAD] = 1.0
    standard /= scale[:, None]
    sign = np.where(positive, -1.0, 1.0)
    standard *= sign
    problem = _Problem(standard, sign, weight, float(prior_odds), centre / scale, scale)
    near = None
    if start is not None:
        slopes = np.maximum(start[0] * scale, 1e-3)  # Newton steps from near zero are short
        near = np.append(slopes, start[1] + slopes @ problem.centre)
    point = _newton(problem, near)
    slopes, level = point[:-1], point[-1]
    return slopes / scale, float(level - slopes @ problem.centre)


def softplus(values: Array) -> tuple[Array, Array, Array]:
    """Return ``ln(1 + e^x)`` of each value x, with its first and second derivative."""
    small = np.abs(values)
    np.exp(np.negative(small, out=small), out=small)
    share = 1 / (1 + small)
    total = np.maximum(values, 0)
    total -= np.log(share)  # log1p and logaddexp would take several times as long
    small *= share
    rise = np.where(values > 0, share, small)
    small *= share
    return total, rise, small


@dataclass(frozen=True)
class _Problem:
    """Penalised cross-entropy as a function of slopes and level, on standardised scores.

    The level is the offset for standardised scores. `sign` is -1 for positives and 1 for negatives.
    `scores` holds the standardised scores times `sign`, so that larger values mean larger errors.
    `centre` and `scale` are the mean and standard deviation of the original scores; `centre` is in
    units of `scale`.
    """

    scores: Array
    sign: Array
    weight: Array
    prior_odds: float
    centre: Array
    scale: Array

    @cached_property
    def columns(self) -> Array:
        """Coefficients (M + 1, n) of the slopes and the level in each sample's signed log odds."""
        return np.vstack([self.scores, self.sign])

    @cached_property
    def turn(self) -> Array:
        """The vector whose dot product with (slopes, level) is offset / OFFSET_SPREAD."""
        return np.append(-self.centre, 1.0) / OFFSET_SPREAD

    def thinned(self) -> _Problem:
        """Return the problem on a sample of each class, weighted to represent the whole class."""
        chosen, counting = [], []
        for sign in (-1, 1):
            own = np.flatnonzero(self.sign == sign)
            step = min(max(10 * len(own) // MANY, 1), 10)
            chosen.append(own[::step])
            counting.append(step * self.weight[chosen[-1]])
        few = np.concatenate(chosen)
        return replace(
            self, scores=self.scores[:, few], sign=self.sign[few], weight=np.concatenate(counting)
        )

    def at(self, point: Array) -> tuple[float, Array, Array]:
        """Return the loss, its gradient and its Hessian at a point.

        A point holds the slopes, followed by the level.
        """
        slopes, size = point[:-1], len(point)
        if slopes.min() <= 0:
            return np.inf, np.zeros(size), np.eye(size)
        wrong = point @ self.columns
        wrong += self.prior_odds * self.sign
        loss, error, curve = softplus(wrong)
        error *= self.weight
        curve *= self.weight
        hessian, gradient = (self.columns * curve) @ self.columns.T, self.columns @ error
        rate = len(slopes) / self.scale
        gradient[:-1] += rate - 1 / slopes
        hessian.flat[: -1 : size + 1] += 1 / slopes**2
        turn, lean = self.turn, float(self.turn @ point)
        prior = rate @ slopes - np.log(slopes).sum() + lean**2 / 2
        fit = self.weight @ loss
        return float(fit + prior), gradient + lean * turn, hessian + turn[:, None] * turn


def _newton(problem: _Problem, near: Array | None = None) -> Array:
    """Minimise the convex loss over slopes and level by damped Newton steps.

    The steps start at `near`, or at a rough estimate by default.
    """
    if near is not None:
        starts = [near]
    elif len(problem.sign) > MANY:  # steps on a sample of the scores are cheap and come close
        starts = [_newton(problem.thinned())]
    else:
        as_it_is = problem.scale / len(problem.scale)
        flat = np.append(np.full(len(problem.scale), 0.1), 0.0)
        starts = [np.append(as_it_is, as_it_is @ problem.centre), flat]
    tried = [(problem.at(start), start) for start in starts]
    (loss, gradient, hessian), point = min(tried, key=lambda pair: pair[0][0])
    for _ in range(100):
        step: Array
        _, step, failed = dposv(hessian, gradient)
        if failed:  # scores so far apart that only the prior matters
            return point
        gain = gradient @ step
        if gain <= 1e-12 * abs(loss) and np.all(step[:-1] < point[:-1]):
            # Convergence is quadratic: after this step, only rounding error remains.
            return point - step
        size = 1.0
        while (found := problem.at(point - size * step))[0] > loss - 1e-4 * size * gain:
            size /= 2
            if size < 1e-10:
                return point
        point, (loss, gradient, hessian) = point - size * step, found
    return point
