"""Fit the log-likelihood ratio and the share of hidden positives together (MATH 16).

Negatives that nobody has checked may include positives. A log ratio fitted to such a contaminated
sample shows no excess of positives in it, so the share cannot be estimated from the ratio
afterwards. Share and ratio are estimated together, from scores of rows that the model has not seen.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.integrate import trapezoid
from scipy.optimize import brentq, minimize_scalar
from scipy.special import expit, xlogy

from .calibration import Calibration
from .linalg import Array, Mask
from .logistic import softplus

# Standard deviation of the prior on the logarithm of the slope.
SLOPE_SPREAD = 0.5
# Mean of the exponential prior on the share, used for the expected share.
SHARE_SCALE = 0.15
# Grid on which the search for the best share starts; the share stays below one half.
LARGEST_SHARE = 0.499
SHARES = np.append(0.0, np.geomspace(2e-3, LARGEST_SHARE, 20))
# How far the profile log likelihood may drop within a 90% interval: half the 90% quantile of
# chi-square with one degree of freedom.
INTERVAL_DROP = 1.3528
# Smallest weight of rows that are positive, or negative, so that its logarithm is finite.
LEAST_MASS = 1e-300


@dataclass(frozen=True)
class Scores:
    """Views of rows that a model has not seen, with the rows' labels and weights.

    Attributes
    ----------
    views : array of shape (V, n)
    positive, unchecked : boolean arrays of shape (n,)
        Labelled positives and unchecked rows; all other rows are checked negatives.
    weight : array of shape (n,)
    slope : float
        Centre of the prior on the slope; 1 means that the views are expected to be log-likelihood
        ratios already.
    offset_spread : float
        Standard deviation of the prior on the offset.
    slope_spread : float
        Standard deviation of the prior on the logarithm of the slope.
    """

    views: Array
    positive: Mask
    unchecked: Mask
    weight: Array
    slope: float = 1.0
    offset_spread: float = 1.0
    slope_spread: float = SLOPE_SPREAD


@dataclass(frozen=True)
class Shares:
    """A calibration and the share of hidden positives.

    Attributes
    ----------
    calibration : Calibration
    share : float
        The share of positives among the unchecked rows, estimated or given.
    interval : pair of float
        90% profile-likelihood interval for the share. If the share was given, both ends equal it.
    losses : array of shape (n,)
        Minus the profile log likelihood at each share in `SHARES`; empty if the share was given.
    """

    calibration: Calibration
    share: float
    interval: tuple[float, float]
    losses: Array

    def lowest(self, drop: float) -> float:
        """Return the smallest share whose loss exceeds the minimum by at most `drop`.

        The loss is linear between `SHARES`. A given share is returned as it is.
        """
        if len(self.losses) == 0:
            return self.share
        excess = self.losses - self.losses.min() - drop
        at = int(np.argmax(excess <= 0))
        if at == 0:
            return 0.0
        before, after = excess[at - 1], excess[at]
        step = SHARES[at] - SHARES[at - 1]
        return float(SHARES[at - 1] + step * before / (before - after))


def hidden_probability(ratio: Array, share: float) -> Array:
    """Return the probability that each unchecked row is positive.

    `ratio` holds the log-likelihood ratios of the rows, and `share` is the prior probability.
    """
    if share == 0:
        return np.zeros_like(ratio)
    probability: Array = expit(ratio + np.log(share / (1 - share)))
    return probability


def fit_shares(scores: Scores, share: float | None = None) -> Shares:
    """Fit slopes, offset and the share of hidden positives jointly; a given `share` is held fixed.

    A row with log-likelihood ratio r is a labelled positive, an unchecked row or a checked negative
    with odds ``N_p e^r : N_u (1 - pi + pi e^r) : N_c``. Here pi is the share, and N_p, N_u and N_c
    are the total weights of the three kinds of rows. With V views, ``r = a @ views + b``. The
    priors are ``ln(V a) ~ N(ln a_0, t^2)``, ``b ~ N(0, s^2)`` and ``pi < 1/2``, where a_0 is
    `scores.slope`, t is `scores.slope_spread` and s is `scores.offset_spread`.
    """
    profile = _Profile(scores)
    if share is not None:
        return Shares(profile.calibration(share), share, (share, share), np.empty(0))
    losses = np.array([profile(value) for value in SHARES])
    at = int(losses.argmin())
    bounds = SHARES[max(at - 1, 0)], SHARES[min(at + 1, len(SHARES) - 1)]
    found = minimize_scalar(profile, bounds=bounds, method="bounded", options={"xatol": 1e-4})
    share = float(found.x if found.fun < losses[at] else SHARES[at])
    interval = _interval(profile, share, losses)
    return Shares(profile.calibration(share), share, interval, losses)


def expected_share(losses: Array) -> float:
    """Return the posterior mean of the share of hidden positives, given the losses at `SHARES`.

    The mean is used because, with few positives, nearly every share is possible, and the most
    likely share may be 0 or the largest of `SHARES`.
    """
    total = losses + SHARES / SHARE_SCALE
    likely = np.exp(total.min() - total)
    return float(trapezoid(SHARES * likely, SHARES) / trapezoid(likely, SHARES))


def _interval(profile: _Profile, share: float, losses: Array) -> tuple[float, float]:
    """Return the ends of the interval around the best share where the loss is near its minimum.

    `losses` are the losses at `SHARES`. The loss may exceed its minimum by `INTERVAL_DROP`.
    """
    bound = profile(share) + INTERVAL_DROP

    def excess(value: float) -> float:
        return profile(value) - bound

    below = SHARES[(losses > bound) & (share > SHARES)]
    above = SHARES[(losses > bound) & (share < SHARES)]
    low, high = 0.0, LARGEST_SHARE
    if len(below):
        low = float(brentq(excess, below[-1], share, xtol=1e-5))
    if len(above):
        high = float(brentq(excess, share, above[0], xtol=1e-5))
    return low, high


class _Profile:
    """The smallest loss over slopes and offset, as a function of the share.

    The loss is minus the log posterior. A point is a vector of the log slopes and the offset. Each
    search starts from the solution for the nearest share that has already been solved.
    """

    def __init__(self, scores: Scores) -> None:
        weight = scores.weight
        self._columns = np.vstack([scores.views, np.ones_like(weight)])
        self._weight = weight
        self._positive = np.where(scores.positive, weight, 0.0)
        self._unchecked = np.where(scores.unchecked, weight, 0.0)
        kinds = scores.positive, scores.unchecked, ~scores.positive & ~scores.unchecked
        self._masses = np.array([weight[kind].sum() for kind in kinds])
        n_views = len(scores.views)
        spreads = np.append(np.full(n_views, scores.slope_spread), scores.offset_spread)
        self._precision = spreads**-2.0
        self._middle = np.append(np.full(n_views, np.log(scores.slope)), 0.0)
        self._found: dict[float, tuple[float, Array]] = {}

    def __call__(self, share: float) -> float:
        if share not in self._found:
            near = self._middle
            if self._found:
                near = self._found[min(self._found, key=lambda known: abs(known - share))][1]
            self._found[share] = self._minimise(near, share)
        return self._found[share][0]

    def calibration(self, share: float) -> Calibration:
        """Return the best slopes and offset for a given share of hidden positives."""
        self(share)
        point = self._found[share][1]
        return Calibration(tuple(map(float, self._slopes(point))), float(point[-1]))

    def _slopes(self, point: Array) -> Array:
        return np.exp(np.clip(point[:-1], -10, 10)) / (len(point) - 1)

    def _minimise(self, point: Array, share: float) -> tuple[float, Array]:
        """Minimise the loss for a given share by damped Newton steps that start from `point`.

        The loss is not convex, so the steps use the absolute eigenvalues of the Hessian. Returns
        the smallest loss and its point.
        """
        mixed = _Mixed.of(share, self._masses)
        loss, gradient, hessian = self._loss(point, mixed)
        for _ in range(100):
            values, vectors = np.linalg.eigh(hessian)
            step = vectors @ ((vectors.T @ gradient) / np.maximum(np.abs(values), 1e-3))
            gain, size = float(gradient @ step), 1.0
            if gain < 1e-10 * max(1.0, abs(loss)):
                break
            while (found := self._loss(point - size * step, mixed))[0] > loss - 1e-4 * size * gain:
                size /= 2
                if size < 1e-8:
                    return loss, point
            point, (loss, gradient, hessian) = point - size * step, found
        return loss, point

    def _loss(self, point: Array, mixed: _Mixed) -> tuple[float, Array, Array]:
        """Return the loss at a point for a given share, with its gradient and Hessian.

        In the notation of :func:`fit_shares`, and without the prior, the loss is a difference of
        two logistic losses ``s(t) = ln(1 + e^t)``. A row with log-likelihood ratio r is positive
        with odds ``e^r (N_p + pi N_u) / (N_c + (1 - pi) N_u)``. Each row adds s of the logarithm of
        these odds, and a labelled positive subtracts r. An unchecked row is positive with odds
        ``e^r pi / (1 - pi)``, and subtracts s of their logarithm.
        """
        slopes, columns = self._slopes(point), self._columns
        ratio = slopes @ columns[:-1]
        ratio += point[-1]
        total, chance, bend = softplus(ratio + mixed.all_rows)
        crowd, hidden, turn = softplus(ratio + mixed.unchecked)
        loss = self._weight @ total - self._unchecked @ crowd - self._positive @ ratio
        pull = self._weight * chance - self._unchecked * hidden - self._positive
        curve = self._weight * bend - self._unchecked * turn
        gradient, hessian = columns @ pull, (columns * curve) @ columns.T
        gradient[:-1] *= slopes  # a point holds the logarithms of the slopes
        hessian[:-1] *= slopes[:, None]
        hessian[:, :-1] *= slopes
        off = point - self._middle
        prior = self._precision * off
        change = self._precision.copy()
        change[:-1] += gradient[:-1]
        hessian.flat[:: len(point) + 1] += change
        return float(loss + mixed.constant + 0.5 * prior @ off), gradient + prior, hessian


@dataclass(frozen=True)
class _Mixed:
    """What a share of hidden positives adds to the loss.

    Attributes
    ----------
    all_rows, unchecked : float
        Log odds that a row, or an unchecked row, of log-likelihood ratio 0 is positive.
    constant : float
        The part of the loss that depends on no score.
    """

    all_rows: float
    unchecked: float
    constant: float

    @classmethod
    def of(cls, share: float, masses: Array) -> _Mixed:
        """Mix with a share; `masses` holds ``N_p``, ``N_u`` and ``N_c``."""
        own, open_, other = masses
        # Scores may be those of positives alone, or of checked negatives alone.
        inside = np.log(max(own + share * open_, LEAST_MASS))
        outside = np.log(max(other + (1 - share) * open_, LEAST_MASS))
        constant = masses.sum() * outside - open_ * np.log1p(-share)
        constant -= xlogy(masses, masses).sum()
        hidden = np.log(max(share, 1e-300) / (1 - share))
        return cls(float(inside - outside), float(hidden), float(constant))
