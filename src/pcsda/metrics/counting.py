"""Estimate the number and proportion of positives in a pool from log-likelihood ratios."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, ndtr
from sklearn.utils import column_or_1d

from ..core.linalg import Array, Mask
from ..core.threshold import AS_ONE, n_independent
from ..targets import check_groups
from .trials import check_trials

LEVEL = 0.9
# A log-likelihood ratio beyond this value is practically certain; the exponential of much larger
# values would overflow.
FARTHEST = 300.0
# In a pool of more than MANY rows, the ratios are put into bins of width WIDTH.
MANY, WIDTH = 500, 0.05
# Number of nodes of the quadrature over slope and offset, in each direction, and number of
# quantiles of the proportion at each node.
NODES, QUANTILES = 9, 9
# Values are implausible if the logarithm of their weight is lower by FALL, which is three standard
# deviations. Nodes with a smaller share of the largest weight than LEAST are left out.
FALL, LEAST = 4.5, 1e-2
# The information at slope one and offset zero says next to nothing about rows that are far apart:
# with 40 positives and no doubtful row, intervals were "0 to 1000 of 1000". But the likelihood
# alone is too sure with few positives, as two numbers do not describe the tails of a class: with
# ten, 90% intervals covered 72% of the counts. Divided by CAUTION, it covers as much as the
# information, and the interval above is 97 to 102.
CAUTION = 4.0
# Offsets, and logarithms of slopes, that are tried in search of the plausible ones.
OFFSETS = np.geomspace(1e-3, 40.0, 100)
OFFSETS = np.concatenate([-OFFSETS[::-1], [0.0], OFFSETS])
SLOPES = OFFSETS / 10
# Information in the priors on the slope and the offset; the calibration uses the same priors.
PRIOR_SLOPE, PRIOR_OFFSET = 1.0, 0.01
# Number of bisections of an interval of log odds, which gives about ten digits.
STEPS = 40
# A wider interval for the proportion is uninformative.
VAGUE = 0.8


@dataclass(frozen=True)
class PriorEstimate:
    """Proportion and number of positives in a pool of rows, with 90% intervals.

    Attributes
    ----------
    prior : float
        Proportion of the class of interest in the population from which the pool was drawn.
    low, high : float
        Interval for the proportion.
    count : float
        Expected number of positives in the pool.
    count_low, count_high : int
        Interval for the number of positives.
    n_rows : int
        Number of rows in the pool.
    note : str
        A warning in words if the ratios cannot determine the proportion; otherwise empty.

    Examples
    --------
    >>> from pcsda.metrics import estimate_prior
    >>> print(estimate_prior([-20.0] * 70 + [20.0] * 30))
    30 of 100 rows (90% interval 30 to 30), a share of 0.3 (0.229 to 0.378)
    """

    prior: float
    low: float
    high: float
    count: float
    count_low: int
    count_high: int
    n_rows: int
    note: str = ""

    def __str__(self) -> str:
        text = (
            f"{self.count:.4g} of {self.n_rows} rows (90% interval {self.count_low} to "
            f"{self.count_high}), a share of {self.prior:.3g} ({self.low:.3g} to {self.high:.3g})"
        )
        return f"{text}. {self.note}" if self.note else text


def estimate_prior(
    llr: ArrayLike, *, calibrated_on: tuple[Any, ...] | None = None
) -> PriorEstimate:
    """Estimate the proportion and number of positives in a pool of unlabelled rows.

    Parameters
    ----------
    llr : array-like of shape (n_samples,)
        Natural log-likelihood ratios for the rows, calibrated and without a prior.
    calibrated_on : tuple (y_true, llr[, sample_weight[, groups]]), optional
        Labels and ratios of the held-out rows used for calibration; y_true is 1 or True for the
        class of interest. They show how uncertain slope and offset are, which widens the
        intervals; the rows of a group count as one row. `sample_weight` and `groups` may be None.
        Without `calibrated_on`, the ratios are taken as exact.

    Returns
    -------
    PriorEstimate

    Notes
    -----
    The proportion maximises ``sum ln(1 - share + share e^llr)``, to which EM converges [1]_. Its
    90% interval comes from the likelihood ratio. With `calibrated_on`, the interval comes from
    a mixture: slope and offset vary over all values that the held-out rows leave plausible, and
    each pair has its own likelihood.

    The interval for the number of positives is narrower than the interval for the proportion: a row
    with a clear ratio is counted with near certainty, whatever the proportion in the population.

    The negatives in the pool must resemble the negatives on which the ratios were fitted.

    References
    ----------
    .. [1] M. Saerens, P. Latinne and C. Decaestecker, "Adjusting the outputs of a classifier to new
       a priori probabilities", Neural Computation 14 (2002) 21-41.

    Examples
    --------
    >>> import numpy as np
    >>> from pcsda.metrics import estimate_prior
    >>> rng = np.random.default_rng(0)
    >>> positive = np.arange(1000) < 50
    >>> llr = rng.normal(np.where(positive, 4.5, -4.5), 3)  # exact ratios of two Gaussians
    >>> found = estimate_prior(llr)
    >>> round(found.count), found.count_low, found.count_high
    (49, 42, 57)
    """
    ratios = _check_ratios(llr)
    pool = _binned(ratios)
    prior = float(pool.best[0])
    if calibrated_on is not None:
        pool = pool.recalibrated(*_calibrations(*calibrated_on))
    tails = np.array([(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    low, high = pool.quantiles(tails)
    count_low, count_high = pool.count_quantiles(tails)
    count = round(prior * len(ratios), 6)
    span = float(min(low, prior)), float(max(high, prior))
    fewest = int(min(np.floor(count_low + 0.5), np.floor(count)))
    most = int(max(np.ceil(count_high - 0.5), np.ceil(count)))
    note = _note(ratios, float(low), float(high))
    return PriorEstimate(prior, *span, count, fewest, most, len(ratios), note)


@dataclass(frozen=True)
class _Pool:
    """Log-likelihood ratios in a pool under one or more calibrations.

    Attributes
    ----------
    ratios : array of shape (n_calibrations, n_bins)
    counts : array of shape (n_bins,)
        Number of rows in each bin.
    weights : array of shape (n_calibrations,)
        Weight of each calibration; the weights sum to 1.
    """

    ratios: Array
    counts: Array
    weights: Array

    def recalibrated(self, centre: float, slopes: Array, offsets: Array, weights: Array) -> _Pool:
        """Return a pool with ratios stretched about a centre by slopes and shifted by offsets."""
        moved = centre + slopes[:, None] * (self.ratios - centre) + offsets[:, None]
        return _Pool(np.clip(moved, -FARTHEST, FARTHEST), self.counts, weights)

    @cached_property
    def gain(self) -> Array:
        """Likelihood ratio of each row minus one, of shape (n_calibrations, 1, n_bins)."""
        return np.asarray(np.expm1(self.ratios)[:, None])

    @cached_property
    def best(self) -> Array:
        """Most likely proportion under each calibration."""
        gain = self.gain

        def rising(odds: Array) -> Mask:
            slope = (gain / (1 + expit(odds)[..., None] * gain)) @ self.counts
            return np.asarray(slope > 0)

        share = self._bisect(rising, 1)[:, 0]
        share[gain[:, 0] @ self.counts <= 0] = 0.0
        share[-np.expm1(-self.ratios) @ self.counts >= 0] = 1.0
        return share

    def likelihood(self, share: Array) -> Array:
        """Return the log-likelihood of proportions in an array of shape (n_calibrations, any)."""
        with np.errstate(divide="ignore"):  # a share of one, if a row is surely negative
            return np.asarray(np.log1p(share[..., None] * self.gain) @ self.counts)

    @cached_property
    def _top(self) -> Array:
        return self.likelihood(self.best[:, None])

    def confidence(self, odds: Array) -> Array:
        """Return the confidence that the proportion is below given log odds.

        The confidence comes from the signed root of the log-likelihood ratio, which is
        approximately normal.
        """
        share = expit(odds)
        fall = np.maximum(self._top - self.likelihood(share), 0.0)
        return np.asarray(ndtr(np.sign(share - self.best[:, None]) * np.sqrt(2 * fall)))

    def quantiles(self, levels: Array) -> Array:
        """Return the proportion not exceeded at each confidence level, over all calibrations."""
        found = self._bisect(
            lambda odds: self.weights @ self.confidence(odds) < levels, len(levels)
        )
        return np.asarray(found[0])

    def count_quantiles(self, levels: Array) -> Array:
        """Return the number of positives that is not exceeded at each confidence level.

        Under each calibration, the proportion has its own quantiles. Given calibration and
        proportion, the number is approximately normal, because rows with intermediate probability
        may or may not be positive.
        """
        inner = (np.arange(QUANTILES) + 0.5) / QUANTILES
        share = self._bisect(lambda odds: self.confidence(odds) < inner, QUANTILES)[..., None]
        chance = share * (1 + self.gain) / (1 + share * self.gain)
        mean, variance = chance @ self.counts, (chance * (1 - chance)) @ self.counts
        spread = np.sqrt(np.maximum(variance, 1e-12))
        weight = np.repeat(self.weights / QUANTILES, QUANTILES)
        low, high = np.zeros(len(levels)), np.full(len(levels), self.counts.sum())
        for _ in range(STEPS):
            middle = (low + high) / 2
            below = weight @ ndtr((middle - mean.reshape(-1, 1)) / spread.reshape(-1, 1)) < levels
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return np.asarray((low + high) / 2)

    def _bisect(self, below: Callable[[Array], Mask], width: int) -> Array:
        """Find `width` proportions per calibration: the largest whose log odds satisfy `below`."""
        # Beyond these log odds, the number of positives or negatives is far below one row.
        limit = np.log(self.counts.sum()) + 12
        low = np.full((len(self.ratios), width), -limit)
        high = -low
        for _ in range(STEPS):
            middle = (low + high) / 2
            up = below(middle)
            low, high = np.where(up, middle, low), np.where(up, high, middle)
        share = expit((low + high) / 2)
        share = np.where(low == -limit, 0.0, share)
        return np.asarray(np.where(high == limit, 1.0, share))


def _check_ratios(llr: ArrayLike) -> Array:
    """Check that ratios are finite, one-dimensional and not empty; return them clipped."""
    ratios = np.asarray(column_or_1d(llr), dtype=np.float64)
    if len(ratios) == 0:
        raise ValueError("llr has 0 rows, but at least 1 is needed")
    wrong = np.flatnonzero(~np.isfinite(ratios))
    if len(wrong):
        raise ValueError(
            f"llr has {len(wrong)} values that are not finite, the first {ratios[wrong[0]]} in row "
            f"{wrong[0]}; leave these rows out, or replace infinity by a large number"
        )
    return np.clip(ratios, -FARTHEST, FARTHEST)


def _binned(ratios: Array) -> _Pool:
    """Return a pool of all ratios or, if there are many, of the mean ratios in narrow bins."""
    counts = np.ones(len(ratios))
    if len(ratios) > MANY:
        bins = np.unique(np.round(ratios / WIDTH), return_inverse=True)[1]
        counts = np.bincount(bins).astype(np.float64)
        ratios = np.bincount(bins, ratios) / counts
    return _Pool(ratios[None], counts, np.ones(1))


def _calibrations(
    y_true: ArrayLike,
    llr: ArrayLike,
    sample_weight: ArrayLike | None = None,
    groups: ArrayLike | None = None,
) -> tuple[float, Array, Array, Array]:
    """Return a centre, and the slopes and offsets that held-out rows make plausible, with weights.

    The logarithm of a weight falls with the square of the distance from slope one and offset zero,
    by the information that the rows give in a logistic regression there, or with the log-likelihood
    of the rows, if that falls much faster. The priors come on top. Slope and offset hardly depend
    on each other if ratios are measured from the centre.
    """
    scores, side, mass = _held_out(y_true, llr, sample_weight, groups)
    odds = np.log(mass[side > 0].sum() / mass[side < 0].sum())
    chance = expit(scores + odds)
    curve = mass * chance * (1 - chance)
    centre = float(curve @ scores / max(float(curve.sum()), np.finfo(float).tiny))
    known, total = float(curve @ (scores - centre) ** 2), float(curve.sum())
    start = float(np.logaddexp(0, -side * (scores + odds)) @ mass)

    def support(log_slope: Array, offset: Array) -> Array:
        moved = centre + np.exp(log_slope)[:, None] * (scores - centre) + offset[:, None] + odds
        fall = np.logaddexp(0, -side * moved) @ mass - start
        fall = np.maximum(fall / CAUTION, (known * log_slope**2 + total * offset**2) / 2)
        prior = PRIOR_SLOPE * log_slope**2 + PRIOR_OFFSET * offset**2
        return np.asarray(-fall - prior / 2)

    slopes = _plausible(SLOPES, support(SLOPES, np.zeros_like(SLOPES)))
    offsets = _plausible(OFFSETS, support(np.zeros_like(OFFSETS), OFFSETS))
    log_slope, offset = (part.ravel() for part in np.meshgrid(slopes, offsets))
    weights = np.exp(support(log_slope, offset))
    kept = weights > LEAST * weights.max()
    return centre, np.exp(log_slope[kept]), offset[kept], weights[kept] / weights[kept].sum()


def _held_out(
    y_true: ArrayLike, llr: ArrayLike, sample_weight: ArrayLike | None, groups: ArrayLike | None
) -> tuple[Array, Array, Array]:
    """Return the mean ratios of held-out rows in narrow bins, their classes (1 or -1) and weights.

    The weights sum to the effective number of independent rows.
    """
    positive, scores, given = check_trials(y_true, llr, "llr", None, sample_weight)
    weight = np.ones(len(scores)) if given is None else given
    weight = weight * (weight.sum() / (weight @ weight))
    together = check_groups(groups, len(positive))
    if together is not None:
        for own in (positive, ~positive):
            rows = weight[own]
            weight[own] *= n_independent(rows, together[own], AS_ONE) / n_independent(rows)
    used = weight > 0
    keys = 2 * np.round(scores[used] / WIDTH) + positive[used]
    names, bins = np.unique(keys, return_inverse=True)
    mass = np.bincount(bins, weight[used])
    means = np.bincount(bins, weight[used] * scores[used]) / mass
    return means, np.where(names % 2, 1.0, -1.0), np.asarray(mass, dtype=np.float64)


def _plausible(values: Array, support: Array) -> Array:
    """Return nodes over the range of values whose log support is within `FALL` of the best."""
    near = np.flatnonzero(support >= support.max() - FALL)
    first, last = max(near[0] - 1, 0), min(near[-1] + 1, len(values) - 1)
    return np.linspace(values[first], values[last], NODES)


def _note(ratios: Array, low: float, high: float) -> str:
    """Return a warning if the ratios cannot determine the proportion, else an empty string."""
    if len(ratios) == 1:
        return "One row says nothing about a share; give all rows of the pool in one call."
    if np.ptp(ratios) == 0:
        return f"All rows have the same ratio, {ratios[0]:.4g}: no row stands out from the others."
    if high - low > VAGUE:
        return (
            f"The scores cannot tell: shares from {low:.3g} to {high:.3g} agree with them. Label "
            "some rows of the pool, or give the model more positives."
        )
    return ""
