"""Leave-one-out projections in closed form (MATH 8).

Sample i is left out of the means and the scatter while the ridge, the groups and the rotation of
the full fit are held. A left-out positive or negative is then a new sample to the model that
projects it, which is what covariances and calibration have to see.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import linalg, single
from .density import Density, Rule, energy, fit_tail, log_sum_exp, log_volume
from .linalg import Array
from .logistic import fit_logistic
from .scatter import GroupScatter
from .solvers import Projection

# A row is alone where the others of its group weigh less than this share of the group.
ALONE = 1e-10
# A gap, one minus the leverage, from which on float32 products leave it enough digits.
WIDE_GAP = 0.05


@dataclass(frozen=True)
class LeftOut:
    """Coordinates of every training row under the model fitted without it.

    Attributes
    ----------
    coordinates : array of shape (N, d)
        z of the row, relative to the left-out positive mean.
    residuals : array of shape (N, d)
        z minus the left-out mean of the row's own group; zero for a row alone in its group. For a
        positive this is z itself.
    alone : boolean array of shape (N,)
        Rows whose group has no other member: their residual says nothing.
    """

    coordinates: Array
    residuals: Array
    alone: NDArray[np.bool_]

    def leading(self, d: int) -> LeftOut:
        """Return the first `d` coordinates."""
        return replace(self, coordinates=self.coordinates[:, :d], residuals=self.residuals[:, :d])

    def scatter(
        self, projected: GroupScatter, groups: NDArray[np.intp], weights: Array | None
    ) -> tuple[GroupScatter, float, float]:
        """Replace the scatter matrices of `projected` by those of the left-out residuals.

        Also returns how many positives and how many negatives (total weight) contributed.
        """
        weight = np.where(self.alone, 0.0, 1.0 if weights is None else weights)
        scatters: list[Array] = []
        totals: list[float] = []
        for members in (groups == 0, groups > 0):
            share = np.where(members, weight, 0.0)  # zeros are cheaper than a copy of the others
            part = self.residuals * np.sqrt(share)[:, None]
            scatters.append(part.T @ part)
            totals.append(float(share.sum()))
        left_out = replace(projected, positive=scatters[0], within=scatters[1])
        return left_out, totals[0], totals[1]


def alone_rows(groups: NDArray[np.intp], counts: Array, weights: Array | None) -> NDArray[np.bool_]:
    """Mark rows whose group has no other member, or none that weighs anything beside them."""
    total = counts[groups]
    rest: Array = total - (1.0 if weights is None else weights)
    return rest <= ALONE * total


def left_out(
    residuals: NDArray[np.floating],
    leverage: Array,
    gap: Array,
    gram: Array,
    rotation: Array,
    groups: NDArray[np.intp],
    counts: Array,
    alone: NDArray[np.bool_],
    weights: Array | None = None,
    out: tuple[Array, Array] | None = None,
) -> tuple[Array, Array]:
    """Left-out coordinates and residuals of rows, rotated to the components, in `out` if given.

    Parameters
    ----------
    residuals : array of shape (n, K)
        ``a_i = Delta A r_i``.
    leverage, gap : arrays of shape (n,)
        ``h_i = r_i' A r_i`` and ``1 - f_i h_i``.
    gram : array of shape (K, K)
        ``G = Delta A Delta'``.
    rotation : array of shape (K, d)
        ``Q Lambda^(-1/2)``.
    groups, alone, weights : arrays of shape (n,)
    counts : array of shape (K + 1,)
    out : two arrays of shape (n, d), optional
        Fastest in Fortran order.
    """
    total = counts[groups]
    weight = 1.0 if weights is None else weights
    rest = np.where(alone, 1.0, total - weight)  # any number will do for rows that are alone
    gap = np.where(alone, 1.0, gap)
    scale, pull = total / rest, weight / rest  # W_g/(W_g - w) and c
    negative = groups > 0
    own = np.where(negative, residuals[np.arange(len(groups)), np.maximum(groups, 1) - 1], 0.0)
    stretch = scale / gap
    shift = stretch * pull * leverage
    reach = pull * (leverage + own) / gap  # c s / gap, s = h + a_k
    lift = np.where(negative, 1 + total * reach, stretch)
    reach = np.where(negative, reach, shift)
    # One row for each axis, so that factors of the samples run along memory.
    turn = rotation.T
    if out is None:
        out = np.empty((len(turn), len(groups))).T, np.empty((len(turn), len(groups))).T
    coordinate, residual = out[0].T, out[1].T
    # Everything is turned first. A negative of group k needs G_k and e_k, a positive 0 and -1.
    np.matmul(turn, residuals.T, out=coordinate)
    centres = np.column_stack([np.zeros(len(turn)), turn @ gram]).take(groups, axis=1)
    axes = np.column_stack([-turn.sum(axis=1), turn]).take(groups, axis=1)
    lonely = np.flatnonzero(alone)
    itself = np.diag(gram)[np.maximum(groups[lonely], 1) - 1] * negative[lonely]
    without = centres[:, lonely] - itself * axes[:, lonely]
    np.multiply(coordinate, stretch, out=residual)
    residual -= shift * axes
    coordinate *= lift
    axes *= reach
    coordinate -= axes
    coordinate += centres
    residual[:, lonely], coordinate[:, lonely] = 0.0, without
    return out


@dataclass(frozen=True)
class Leaver:
    """What leaving rows out takes from a fit; the rows may come in any blocks.

    Attributes
    ----------
    counts : array of shape (K + 1,)
    means : array of shape (K + 1, D)
    inverse : array of shape (D, D)
        Inverse of the Cholesky factor of ``S_I + eps I``.
    solved : array of shape (D, K)
        ``A Delta'``.
    gram : array of shape (K, K)
        ``G = Delta A Delta'``.
    rotation : array of shape (K, d)
        ``Q Lambda^(-1/2)``.
    variances : array of shape (D,)
        The diagonal of ``S_I + eps I``.
    """

    counts: Array
    means: Array
    inverse: Array
    solved: Array
    gram: Array
    rotation: Array
    variances: Array

    @classmethod
    def of(cls, scatter: GroupScatter, projection: Projection, ridge: float) -> Leaver:
        """Prepare for any exact PCSDA solution; ``D^3/3`` where it brings its factor."""
        factor = projection.factor
        if factor is None:
            factor = linalg.cholesky(scatter.intra, ridge)
        delta = scatter.delta
        half = linalg.lower_solve(factor, delta.T)
        solved = linalg.lower_solve(factor, half, transposed=True)
        # W = A Delta' R for every exact solution, and Delta W = G R = Q Lambda^(1/2).
        rotation = (delta @ projection.components.T) / projection.eigenvalues
        inverse = linalg.triangular_inverse(factor)
        variances = scatter.positive.diagonal() + scatter.within.diagonal() + ridge
        return cls(
            scatter.counts, scatter.means, inverse, solved, half.T @ half, rotation, variances
        )

    def leave_out(
        self,
        X: NDArray[np.floating],
        groups: NDArray[np.intp],
        weights: Array | None = None,
        dtype: type[np.floating] = np.float64,
    ) -> LeftOut:
        """Left-out projections of rows that the fit has seen.

        Cost: ``N D^2`` for the leverages, ``2 N D K`` for the rest. With `dtype` float32 these
        products are float32 where their rounding does not matter.
        """
        alone = alone_rows(groups, self.counts, weights)
        shape = (len(X), self.rotation.shape[1])
        coordinates, residuals = np.empty(shape, order="F"), np.empty(shape, order="F")
        ways: list[Any] = [((self.means,), self.inverse, self.solved, None)]
        few = len(self.gram) <= X.shape[1]
        total = self.counts.sum()
        if dtype == np.float32 and few and single.whitens(self.inverse, self.variances, total):
            ways.insert(0, self._in_single())
        # In many short steps, threads would wait for each other at each of them.
        one_at_a_time = Lock()

        def leave_out(start: int, stop: int) -> None:
            # No D x D sums here, so blocks may be as small as the cache likes.
            width = X.shape[1] + len(self.gram)
            step = min(max(2 * linalg.BLOCK_BYTES // (8 * width), 512), stop - start)
            buffers = [np.empty((step, X.shape[1]), inverse.dtype) for _, inverse, *_ in ways]
            for first in range(start, stop, step):
                part = slice(first, min(first + step, stop))
                own = groups[part]
                weight = None if weights is None else weights[part]
                factor = inflation(self.counts[own], weight)
                for buffer, way in zip(buffers, ways, strict=True):
                    leverage, a = _whiten(X[part], own, buffer[: len(own)], *way)
                    gap = 1 - factor * leverage
                    if np.all(gap > WIDE_GAP):  # else the next way, if any, has more digits
                        break
                with one_at_a_time:
                    left_out(
                        a,
                        leverage,
                        gap,
                        self.gram,
                        self.rotation,
                        own,
                        self.counts,
                        alone[part],
                        weight,
                        (coordinates[part], residuals[part]),
                    )

        linalg.over_rows(leave_out, len(X), X.shape[1])
        return LeftOut(coordinates, residuals, alone)

    def _in_single(self) -> tuple[Any, ...]:
        """Means, whitening, columns and turn of :func:`_whiten` for float32 rows.

        The columns are turned so that each sees unit spread: the rounding of strong directions
        would drown weak ones.
        """
        values, vectors = linalg.eigh_descending(self.gram)
        roots = np.sqrt(values[: linalg.numerical_rank(values, len(values))])
        vectors = vectors[:, : len(roots)]
        columns = (self.solved @ (vectors / roots)).astype(np.float32)
        means = single.in_parts(self.means, self.variances / self.counts.sum())
        return means, self.inverse.astype(np.float32), columns, (vectors * roots).T


def _whiten(
    rows: NDArray[np.floating],
    groups: NDArray[np.intp],
    buffer: NDArray[np.floating],
    means: tuple[NDArray[np.floating], ...],
    inverse: NDArray[np.floating],
    columns: NDArray[np.floating],
    turn: Array | None,
) -> tuple[Array, Array]:
    """Leverages of rows, which are centred in the buffer, and ``Delta A r`` by way of `columns`.

    Means come in parts; `turn`, if any, leads from the products with the columns to the result.
    """
    # The few means stay in cache. "clip" spares a copy; group numbers are in range.
    np.take(means[0], groups, axis=0, out=buffer, mode="clip")
    np.subtract(rows, buffer, out=buffer)
    for part in means[1:]:
        buffer -= part[groups]
    leverage, products = linalg.whitened_square_norms(buffer, inverse, columns)
    solved: Array = products.astype(np.float64, copy=False) if turn is None else products @ turn
    return leverage, solved


def primal(
    X: NDArray[np.floating],
    groups: NDArray[np.intp],
    scatter: GroupScatter,
    projection: Projection,
    ridge: float,
    weights: Array | None = None,
    dtype: type[np.floating] = np.float64,
) -> LeftOut:
    """Left-out projections of the rows of `X` for any exact PCSDA solution: one more pass."""
    return Leaver.of(scatter, projection, ridge).leave_out(X, groups, weights, dtype)


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


# A point that is the whole of its covariance leaves nothing behind; keep the logarithm finite.
_SMALLEST_GAP = 1e-12


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


def inflation(total: Array, weight: Array | None) -> Array:
    """Return f = w W_g / (W_g - w); zero for a row that is alone, which nobody reads."""
    own = np.ones(len(total)) if weight is None else weight
    rest = total - own
    return np.divide(own * total, rest, out=np.zeros(len(total)), where=rest > 0)
