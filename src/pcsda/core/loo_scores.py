"""Scores of left-out rows: what a density says of each row that it was fitted without (MATH 8).

These are the numbers that calibration and the search for settings rest on, and that the tails and
the shares of a blend are fitted to.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from . import linalg
from .density import Density, Rule, energy, fit_tail, log_sum_exp, log_volume
from .linalg import Array
from .logistic import fit_logistic
from .loo import LeftOut

# A point that is the whole of its covariance leaves nothing behind; keep the logarithm finite.
_SMALLEST_GAP = 1e-12


def scores(
    density: Density,
    left: LeftOut,
    groups: NDArray[np.intp],
    counts: Array,
    weights: Array | None = None,
) -> Array:
    """Left-out log-likelihood ratios: each row is also left out of the covariance of its class.

    The row's own residual is taken out of its covariance by a rank-one downdate (first leak of
    MATH 8; the shrinkage target is held). A negative meets its own subclass at its left-out mean
    and with the left-out mixture weight, the other subclasses at the centres of the full fit. For
    the marginal density the divisor of the covariance is held, and for a blend Fisher's axis, the
    moments of the negatives on it and the shares are.
    """
    return _summed(density, _views(density, left, groups, counts, weights))


def _summed(density: Density, seen: Array) -> Array:
    """Log ratios of the views of a density, added up."""
    total: Array = np.array(density.shares[: len(seen)]) @ seen + (density.offset or 0.0)
    return total


def complete(
    density: Density,
    left: LeftOut,
    groups: NDArray[np.intp],
    counts: Array,
    weights: Array | None,
    rule: Rule,
    stands_for: Array | None = None,
    near: Density | None = None,
) -> tuple[Density, Array]:
    """Fit what left-out rows tell of a density, the tails and the shares of a blend, and score.

    Shares come from a logistic regression of the class on the two left-out log ratios. Where the
    rows are a sample, `stands_for` says for how many each of them stands. The shares of a density
    that is `near` save steps.
    """
    if rule.tails == "fitted" and density.is_mixture:
        density = replace(density, tails=_tails(density, left, groups, weights))
    seen = _views(density, left, groups, counts, weights)
    known = np.flatnonzero(~left.alone)
    positive = groups[known] == 0
    if density.axis is not None and rule.weighed and positive.any() and not positive.all():
        weight = np.ones(len(groups)) if weights is None else weights
        weight = weight if stands_for is None else weight * stands_for
        start = None
        if near is not None and near.offset is not None:
            start = near.shares, near.offset
        shares, offset = fit_logistic(seen[:, known], positive, weight[known], start)
        density = replace(density, shares=(float(shares[0]), float(shares[1])), offset=offset)
    return density, _summed(density, seen)


def _views(
    density: Density,
    left: LeftOut,
    groups: NDArray[np.intp],
    counts: Array,
    weights: Array | None,
) -> Array:
    """Left-out log ratios of the mixture and, in a blend, of the cloud: one row each."""
    mixture = _mixture_scores(density, left, groups, counts, weights)
    if density.axis is None:
        return mixture[None]
    cloud = _cloud_scores(density.cloud, density.axis, left, groups, density.tails[1], weights)
    return np.stack([mixture, cloud])


def _tails(
    density: Density, left: LeftOut, groups: NDArray[np.intp], weights: Array | None
) -> tuple[float, float]:
    """Degrees of freedom from the negatives, each left out of its covariance and its mean."""
    known = np.flatnonzero((groups > 0) & ~left.alone)
    weight = np.ones(len(known)) if weights is None else weights[known]
    white = density.white[1]
    own = white @ left.residuals.T
    square = np.einsum("ji,ji->i", own, own)[known]
    gap = np.maximum(1 - weight * square / density.negative_strength, _SMALLEST_GAP)
    square *= (1 - weight / density.negative_strength) / gap
    mixture = fit_tail(square, len(white), weight)
    if density.axis is None:
        return mixture, np.inf
    cloud = density.cloud
    offset = (left.coordinates @ density.axis)[known] - cloud.centres[0]
    return mixture, fit_tail(offset**2 / cloud.negative[0], 1, weight)


def _cloud_scores(
    cloud: Density,
    axis: Array,
    left: LeftOut,
    groups: NDArray[np.intp],
    tail: float,
    weights: Array | None,
) -> Array:
    """Left-out log ratios of the cloud on its axis.

    In it no negative is alone. All of them stand behind its variance, which is held: a row that is
    far out under the model without it would be more than the whole of it.
    """
    on_axis = (left.coordinates @ axis)[None]
    weight = np.ones(len(groups)) if weights is None else weights
    result = _inside(cloud, tail, on_axis, on_axis, groups, left.alone, weight)
    white = cloud.white[1]
    square = (white[0] * (on_axis[0] - cloud.centres[0])) ** 2
    result -= log_volume(white) - energy(square, 1, tail)
    return result


def _mixture_scores(
    density: Density,
    left: LeftOut,
    groups: NDArray[np.intp],
    counts: Array,
    weights: Array | None,
) -> Array:
    """Left-out log ratios of the mixture, or of the marginal density."""
    result = np.empty(len(groups))
    width, tail = 4 * len(density.centres), density.tails[0]
    step = linalg.cache_rows(width)

    def score(start: int, stop: int) -> None:
        for first in range(start, stop, step):
            part = slice(first, min(first + step, stop))
            own = groups[part]
            weight = np.ones(len(own)) if weights is None else weights[part]
            # One row for each axis, so that factors of the samples run along memory.
            z, residuals = left.coordinates[part].T, left.residuals[part].T
            rows = (z, residuals, own, left.alone[part], weight)
            result[part] = _inside(density, tail, *rows) - _outside(density, tail, *rows, counts)

    linalg.over_rows(score, len(groups), width)
    return result


def _inside(
    density: Density,
    tail: float,
    z: Array,
    residuals: Array,
    groups: NDArray[np.intp],
    alone: NDArray[np.bool_],
    weight: Array,
) -> Array:
    """Log density under the positive class, but for what both classes have in common.

    Positives are left out of its covariance.
    """
    white = density.white[0]
    whitened = white @ z
    square = np.einsum("ji,ji->i", whitened, whitened)
    known = np.flatnonzero((groups == 0) & ~alone)
    share = weight[known] / density.positive_strength
    gap = np.maximum(1 - share * square[known], _SMALLEST_GAP)
    square[known] *= (1 - share) / gap
    result: Array = log_volume(white) - energy(square, len(white), tail)
    result[known] -= 0.5 * (np.log(gap) - len(white) * np.log(1 - share))
    return result


def _outside(
    density: Density,
    tail: float,
    z: Array,
    residuals: Array,
    groups: NDArray[np.intp],
    alone: NDArray[np.bool_],
    weight: Array,
    counts: Array,
) -> Array:
    """Log density under the negative class, but for what both classes have in common.

    Negatives are left out of its covariance.
    """
    white = density.white[1]
    width = len(white)
    at_rows, own, at_centres = white @ z, white @ residuals, density.centres @ white.T
    weight = np.where(groups > 0, weight, 0.0)
    norm, square = np.einsum("ji,ji->i", at_rows, at_rows), np.einsum("ji,ji->i", own, own)
    # Squared distances from the centres, less `norm`.
    distance = (-2 * at_centres) @ at_rows
    distance += np.einsum("ij,ij->i", at_centres, at_centres)[:, None]
    overlap = -at_centres @ own
    overlap += np.einsum("ji,ji->i", at_rows, own)
    rest = np.ones(len(groups))
    if density.is_mixture:
        negative = np.flatnonzero(groups)
        mine = (groups[negative] - 1) * len(groups) + negative  # its own subclass, counted flat
        distance.ravel()[mine] = square[negative] - norm[negative]
        overlap.ravel()[mine] = square[negative]
        rest -= np.where(alone, 0.0, weight) / density.negative_strength
    share = weight / density.negative_strength
    gap = np.maximum(1 - share * square, _SMALLEST_GAP)
    overlap *= overlap
    overlap *= share / gap
    distance += overlap
    volume: Array = log_volume(white) - 0.5 * (np.log(gap) - width * np.log(rest))
    if np.isinf(tail):  # what all centres have in common stays out of the exponents
        distance *= -0.5 * rest
        volume -= 0.5 * rest * norm
    else:
        distance += norm
        distance *= rest
        distance = -energy(distance, width, tail)
    distance += density.log_weights[:, None]
    if density.is_mixture:
        # Mixture weights without the row itself: a row that is alone leaves its subclass empty.
        total, size = counts[1:].sum(), counts[groups[negative]]
        left = np.where(alone[negative], 0.0, size - weight[negative])
        with np.errstate(divide="ignore"):
            distance.ravel()[mine] += np.log(left / size)
        volume -= np.log((total - weight) / total)
    return volume + log_sum_exp(distance, axis=0)
