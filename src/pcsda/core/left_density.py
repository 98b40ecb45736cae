"""Log densities of left-out rows under classes estimated without them (MATH 8).

A left-out row has already been projected by a subspace fitted without it. Here the row's residual
is also removed from the covariance of its class, by a rank-one downdate, or a rank-s downdate for a
block of s rows; the shrinkage target stays fixed. If positives are few, their covariance is instead
re-estimated without the row, because the other positives' residuals depend on the row. Constants
common to both classes are omitted.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from . import linalg
from .linalg import Array, Ints
from .loo import ALONE, SMALLEST_GAP, LeftOut, Shifts
from .student import energy, log_sum_exp, log_volume
from .together import stacks_of

# Up to this many positives, a left-out positive changes the others' residuals noticeably.
FEW_POSITIVE_ROWS = 64


@dataclass(frozen=True)
class Spread:
    """Covariance and tail of one class.

    Attributes
    ----------
    white : array of shape (d, d)
        Lower triangular matrix that whitens the covariance.
    strength : float
        Number of samples from which the covariance is estimated, plus the strength of the prior.
    tail : float
        Degrees of freedom; infinite for a Gaussian.
    """

    white: Array
    strength: float
    tail: float

    def log_density(self, offsets: Array) -> Array:
        """Return the log density at offsets from the centre; the last axis holds coordinates."""
        whitened = offsets @ self.white.T
        square = np.einsum("...j,...j->...", whitened, whitened)
        return log_volume(self.white) - energy(square, len(self.white), self.tail)

    def log_density_without(
        self, offsets: Array, rows: Array, mass: Array, divisor: float | None = None
    ) -> Array:
        """Return the log density at `offsets`, with each block of rows removed from the covariance.

        `rows` has shape (n, s, d) and holds the residuals of the s rows in each of n blocks.
        `offsets` has shape (n, s, C, d) and holds the offsets of the same rows from C centres.
        `mass` is the weight of each row, or zero for a row of the other class, which is not
        removed. `divisor` is the strength after removal. By default, it is the strength minus the
        weight of the block.
        """
        scaled = (rows @ self.white.T) * np.sqrt(mass / self.strength)[..., None]
        values, vectors = np.linalg.eigh(np.eye(rows.shape[1]) - scaled @ scaled.swapaxes(1, 2))
        values = np.maximum(values, SMALLEST_GAP)
        left = self.strength - mass.sum(axis=1) if divisor is None else np.full(len(rows), divisor)
        rest = np.maximum(left / self.strength, SMALLEST_GAP)
        whitened = offsets @ self.white.T
        # (I - S'S)^-1 = I + S'(I - SS')^-1 S, where S holds the removed rows.
        inside = np.einsum("bscd,btd,btu->bscu", whitened, scaled, vectors, optimize=True)
        square = np.einsum("bscd,bscd->bsc", whitened, whitened)
        square += np.einsum("bscu,bscu,bu->bsc", inside, inside, 1 / values, optimize=True)
        width = len(self.white)
        volume = log_volume(self.white) + 0.5 * (width * np.log(rest) - np.log(values).sum(axis=1))
        square *= rest[:, None, None]
        result: Array = volume[:, None, None] - energy(square, width, self.tail)
        return result


def log_ratio(
    positive: Spread,
    negative: Spread,
    centres: Array,
    log_weights: Array,
    left: LeftOut,
    counts: Array | None,
    rest: Remaining | None = None,
) -> Array:
    """Return the log of the positive density over the negative density at each left-out row.

    For a negative, the mean and weight of its own subclass are computed without the row. All other
    subclasses keep the means and weights of the full fit. For a positive, the means of all
    subclasses are those on the axes without the row.

    Parameters
    ----------
    positive, negative : Spread
    centres : array of shape (C, d)
    log_weights : array of shape (C,)
    left : LeftOut
    counts : array of shape (K + 1,) or None
        Group sizes. None means that the centres are not the subclass means. Then no centre depends
        on the left-out row, and the divisor of the negative covariance is fixed.
    rest : Remaining, optional
        The result of :func:`remaining_positives`, if it is known.
    """
    inside = log_inside(positive, left, rest)
    if counts is not None:
        left = about_all(left)
    if left.together is not None:

        def of_blocks(places: Ints) -> Array:
            return _blocks_outside(negative, centres, log_weights, left, places, counts)

        return inside - _by_block(of_blocks, left)
    shifts = None if counts is None else left.moving
    positives = None if shifts is None else inside[shifts.rows]
    left, width = replace(left, shifts=None), 4 * len(centres)
    step = linalg.cache_rows(width)

    def score(start: int, stop: int) -> None:
        for first in range(start, stop, step):
            part = slice(first, min(first + step, stop))
            inside[part] -= _outside(negative, centres, log_weights, left.take(part), counts)

    linalg.over_rows(score, len(inside), width)
    if shifts is not None and positives is not None:
        coordinates = left.coordinates[shifts.rows]
        outside = _outside_moved(negative, centres, log_weights, coordinates, shifts)
        inside[shifts.rows] = positives - outside
    return inside


def _outside_moved(
    negative: Spread, centres: Array, log_weights: Array, coordinates: Array, shifts: Shifts
) -> Array:
    """Return log densities of left-out positives under the negative class, on their own axes."""
    white, steps = negative.white, shifts.steps
    at_rows, at_centres = coordinates @ white.T, centres @ white.T
    count, rank, width = shifts.plane.shape
    plane = (shifts.plane.reshape(-1, width) @ white.T).reshape(count, rank, width)
    # |x - c - steps' plane|^2 for all pairs of a row x and a centre c, term by term.
    square = np.einsum("pj,pj->p", at_rows, at_rows)[:, None] - 2 * at_rows @ at_centres.T
    square += np.einsum("kj,kj->k", at_centres, at_centres)
    for r in range(rank):
        own = plane[:, r]
        across = np.einsum("pj,pj->p", at_rows, own)[:, None] - own @ at_centres.T
        for s in range(r):
            across -= np.einsum("pj,pj->p", own, plane[:, s])[:, None] * steps[:, s]
        across *= -2
        across += np.einsum("pj,pj->p", own, own)[:, None] * steps[:, r]
        square += across * steps[:, r]
    held = log_volume(white) - energy(np.maximum(square, 0.0), len(white), negative.tail)
    return log_sum_exp(held + log_weights)


def log_inside(positive: Spread, left: LeftOut, rest: Remaining | None = None) -> Array:
    """Return the log density of left-out rows under the positive class estimated without them."""
    rest = rest or remaining_positives(positive, left)
    if rest is not None:
        return _inside_few(positive, left, rest)
    if left.together is None:
        return _inside(positive, left)
    return _by_block(lambda places: _blocks_inside(positive, left, places), left)


def about_all(left: LeftOut) -> LeftOut:
    """Move the origin of left-out coordinates to the mean of all positives.

    The coordinates of a block are relative to the positive mean without that block, but the centres
    are relative to the mean of all positives. The two means differ by the weighted sum of the
    block's positive residuals, divided by the total weight. Without this shift, left-out positives
    would seem farther from the centres than they are.
    """
    own = np.flatnonzero((left.groups == 0) & left.known)
    if len(own) == 0:
        return left
    rows, block, codes = _blocks_of(left, own)
    moves = np.zeros((int(codes.max()) + 1, left.coordinates.shape[1]))
    np.add.at(moves, codes, left.weight[own, None] * left.coordinates[own] / left.mass[own].sum())
    coordinates = left.coordinates.copy(order="K")
    coordinates[rows] -= moves[block]
    return replace(left, coordinates=coordinates)


def left_out_squares(negative: Spread, centres: Array, left: LeftOut) -> tuple[Ints, Array]:
    """Return the row numbers of the scored negatives, and their squared Mahalanobis distances.

    Each distance is from the mean of the negative's subclass, computed without the negative itself.
    For a negative that is alone in its subclass, the distance is from the nearest other centre.
    """
    known = np.flatnonzero((left.groups > 0) & left.known)
    share = left.mass[known] / negative.strength
    own = negative.white @ left.residuals.T
    square = np.einsum("ji,ji->i", own, own)[known]
    square *= (1 - share) / np.maximum(1 - share * square, SMALLEST_GAP)
    lonely = np.flatnonzero((left.groups > 0) & left.scored & ~left.known)
    if len(lonely) == 0:
        return known, square
    rows, places = left.coordinates[lonely] @ negative.white.T, centres @ negative.white.T
    apart = np.einsum("ij,ij->i", rows, rows)[:, None] + np.einsum("ij,ij->i", places, places)
    apart -= 2 * rows @ places.T
    if len(centres) > 1:
        apart[np.arange(len(lonely)), left.groups[lonely] - 1] = np.inf
    return np.append(known, lonely), np.append(square, np.maximum(apart.min(axis=1), 0.0))


@dataclass(frozen=True)
class Remaining:
    """The positive class without each of B blocks of rows, in coordinates that whiten the class.

    Attributes
    ----------
    rows : array of shape (n,)
        Numbers of the left-out rows in these blocks.
    block : array of shape (n,)
        Number of each row's block, 0..B-1.
    covariances : array of shape (B, d, d)
    moves : array of shape (B, d)
        The mean of all positives minus the mean without the block.
    """

    rows: Ints
    block: Ints
    covariances: Array
    moves: Array


def remaining_positives(positive: Spread, left: LeftOut) -> Remaining | None:
    """Estimate the positive class without each block of rows, or return None if positives are many.

    The left-out residual of a positive is its offset from the mean of the other positives, so it
    depends on all of them. With few positives, the other residuals nearly reveal the one left out:
    of three residuals, each is minus the sum of the other two. So leaving out a positive must also
    change the other residuals, and the shrinkage target, which is the covariance of all left-out
    rows. If rows are left out one by one, each positive is a block.
    """
    own = np.flatnonzero((left.groups == 0) & left.known)
    if not 0 < len(own) <= FEW_POSITIVE_ROWS:
        return None
    rows, block, codes = _blocks_of(left, own)
    residuals, mass = left.coordinates[own] @ positive.white.T, left.mass[own]
    others, counted, moves = _residuals_without(residuals, codes, left.weight[own], mass)
    scatter = (residuals.T * mass) @ residuals
    without = (others * counted[:, :, None]).swapaxes(1, 2) @ others
    prior = positive.strength - mass.sum()
    share = 1 + prior / left.mass[left.known].sum()
    # In these coordinates, scatter and prior together are the strength times the identity.
    spread = positive.strength * np.eye(len(positive.white)) - share * (scatter - without)
    strength = np.maximum(prior + counted.sum(axis=1), SMALLEST_GAP)
    return Remaining(rows, block, spread / strength[:, None, None], moves)


def _blocks_of(left: LeftOut, own: Ints) -> tuple[Ints, Ints, Ints]:
    """Find the blocks that contain the rows `own`.

    Returns the numbers of all rows in these blocks, the block of each of these rows, and the block
    of each row in `own`. If rows are left out one by one, each row is a block.
    """
    if left.together is None:
        each = np.arange(len(own))
        return own, each, each
    blocks, codes = np.unique(left.together[own], return_inverse=True)
    rows = np.flatnonzero(np.isin(left.together, blocks))
    return rows, np.searchsorted(blocks, left.together[rows]), codes


def _inside_few(positive: Spread, left: LeftOut, rest: Remaining) -> Array:
    """Return log densities of left-out rows under the positive class, if positives are few.

    A row in one of the blocks of `rest` is evaluated under the class without that block. All other
    rows are evaluated under the full class.
    """
    white, width = positive.white, len(positive.white)
    result = positive.log_density(left.coordinates)
    whites, volumes = _whitening(rest.covariances)
    volume = log_volume(white) + volumes
    step = max(1, linalg.BLOCK_BYTES // (8 * width**2))
    for start in range(0, len(rest.rows), step):
        rows, block = rest.rows[start : start + step], rest.block[start : start + step]
        whitened = left.coordinates[rows] @ white.T
        turned = (whites[block] @ whitened[:, :, None])[:, :, 0]
        square = np.einsum("ij,ij->i", turned, turned)
        result[rows] = volume[block] - energy(square, width, positive.tail)
    return result


def _whitening(covariances: Array) -> tuple[Array, Array]:
    """Return matrices (B, d, d) that whiten covariances, and the logarithms of their determinants.

    Eigenvalues below SMALLEST_GAP are raised to it. Most covariances have none, and then their
    Cholesky factors suffice, which take a fraction of the time.
    """
    with suppress(np.linalg.LinAlgError):
        factors = np.linalg.cholesky(covariances)
        whites: Array = np.linalg.inv(factors)
        # One over the smallest eigenvalue is at most the sum of these squares.
        if np.einsum("bij,bij->b", whites, whites).max() < 1 / SMALLEST_GAP:
            return whites, -np.log(np.einsum("bii->bi", factors)).sum(axis=1)
    values, vectors = np.linalg.eigh(covariances)
    values = np.maximum(values, SMALLEST_GAP)
    whites = vectors.swapaxes(1, 2) / np.sqrt(values)[:, :, None]
    return whites, -0.5 * np.log(values).sum(axis=1)


def _residuals_without(
    rows: Array, codes: Ints, weight: Array, mass: Array
) -> tuple[Array, Array, Array]:
    """Return the left-out residuals that the positives have in the model without each block.

    Row j of block b has the residual ``z_j = x_j - m_b``, where m_b is the mean without block b. In
    the model without block B, the residual is ``x_j - m_Bb``, where m_Bb is the mean without both
    blocks: ``z_j + ((1 - w_B / W) u_B + (w_B / W) u_b) / (W - w_B - w_b)``. Here w_b is the weight
    of a block, W the total weight, and u_b the weighted sum of a block's residuals. Rows of B get
    zero mass, and so do rows without any positive outside the two blocks.

    Parameters
    ----------
    rows : array of shape (n, d)
        Left-out residuals of the positives.
    codes : array of shape (n,)
        Block of each row, 0..B-1.
    weight, mass : arrays of shape (n,)
        Weight of each row, and total weight of the rows that it represents.

    Returns
    -------
    residuals : array of shape (B, n, d)
    mass : array of shape (B, n)
    moves : array of shape (B, d)
        The mean of all positives minus the mean without the block, ``u_B / W``.
    """
    each = np.bincount(codes, weight)
    sums = np.zeros((len(each), rows.shape[1]))
    np.add.at(sums, codes, weight[:, None] * rows)
    total = mass.sum()
    rest = total - each
    both = rest[:, None] - each[codes]
    stays = (np.arange(len(each))[:, None] != codes) & (both > ALONE * rest[:, None])
    share = (each / total)[:, None, None]
    shift = (1 - share) * sums[:, None] + share * sums[codes]
    residuals = rows + shift / np.where(stays, both, 1.0)[:, :, None]
    return residuals, np.where(stays, mass, 0.0), sums / total


def _by_block(score: Callable[[Ints], Array], left: LeftOut) -> Array:
    """Apply `score` to the positions of all left-out rows, in stacks of equally large blocks."""
    assert left.together is not None
    result = np.empty(len(left.groups))
    for places in stacks_of(left.together):
        result[places] = score(places)
    return result


def _blocks_inside(positive: Spread, left: LeftOut, places: Ints) -> Array:
    """Return log densities of the rows at `places` under the positive class without their block."""
    own = (left.groups[places] == 0) & left.known[places]
    rows = left.coordinates[places]
    leaving = np.where(own[:, :, None], rows, 0.0), np.where(own, left.mass[places], 0.0)
    return positive.log_density_without(rows[:, :, None], *leaving)[:, :, 0]


def _blocks_outside(
    negative: Spread,
    centres: Array,
    log_weights: Array,
    left: LeftOut,
    places: Ints,
    counts: Array | None,
) -> Array:
    """Return log densities of the rows at `places` under the negative class without their block."""
    groups, residuals = left.groups[places], left.residuals[places]
    own = (groups > 0) & left.known[places]
    leaving = np.where(own[:, :, None], residuals, 0.0), np.where(own, left.mass[places], 0.0)
    offsets = left.coordinates[places][:, :, None, :] - centres
    if counts is None:
        held = negative.log_density_without(offsets, *leaving, negative.strength)
        return log_sum_exp(held + log_weights)
    block, row = np.nonzero(groups)
    if left.moving is not None:
        shifts = left.moving.take(places.ravel())
        offsets.reshape(-1, *centres.shape)[shifts.rows] -= shifts.of(slice(None))
    offsets[block, row, groups[block, row] - 1] = residuals[block, row]
    remaining = np.tile(counts[1:], (len(places), 1))
    np.subtract.at(remaining, (block, groups[block, row] - 1), left.weight[places][block, row])
    remaining = np.where(remaining > ALONE * counts[1:], remaining, 0.0)
    # If no negative remains, the score is unused.
    remaining = np.where(remaining.any(axis=1, keepdims=True), remaining, counts[1:])
    with np.errstate(divide="ignore"):
        log_shares = np.log(remaining / remaining.sum(axis=1, keepdims=True))
    return log_sum_exp(negative.log_density_without(offsets, *leaving) + log_shares[:, None])


def _inside(positive: Spread, left: LeftOut) -> Array:
    """Return log densities of left-out rows under the positive class.

    For a positive, the row itself is removed from the covariance.
    """
    white = positive.white
    # One row per axis, so that operations on all samples run over contiguous memory.
    whitened = white @ left.coordinates.T
    square = np.einsum("ji,ji->i", whitened, whitened)
    own = np.flatnonzero((left.groups == 0) & ~left.alone)
    share = left.mass[own] / positive.strength
    gap = np.maximum(1 - share * square[own], SMALLEST_GAP)
    square[own] *= (1 - share) / gap
    result: Array = log_volume(white) - energy(square, len(white), positive.tail)
    result[own] -= 0.5 * (np.log(gap) - len(white) * np.log(1 - share))
    return result


def _outside(
    negative: Spread, centres: Array, log_weights: Array, left: LeftOut, counts: Array | None
) -> Array:
    """Return log densities of left-out rows under the negative class.

    For a negative, the row itself is removed from the covariance.
    """
    white, width, groups = negative.white, len(negative.white), left.groups
    at_centres, at_rows = centres @ white.T, white @ left.coordinates.T
    own = white @ left.residuals.T
    norm, square = np.einsum("ji,ji->i", at_rows, at_rows), np.einsum("ji,ji->i", own, own)
    # Squared distances from the centres, minus `norm`.
    distance = (-2 * at_centres) @ at_rows
    distance += np.einsum("ij,ij->i", at_centres, at_centres)[:, None]
    overlap = -at_centres @ own
    overlap += np.einsum("ji,ji->i", at_rows, own)
    share = np.where(groups > 0, left.mass, 0.0) / negative.strength
    rest = np.ones(len(groups))
    rows = np.flatnonzero(groups)
    mine = (groups[rows] - 1) * len(groups) + rows  # own subclass, in a flat (K, n) array
    if counts is not None:
        distance.ravel()[mine] = (square - norm)[rows]
        overlap.ravel()[mine] = square[rows]
        rest -= np.where(left.alone, 0.0, share)
    gap = np.maximum(1 - share * square, SMALLEST_GAP)
    overlap *= overlap
    overlap *= share / gap
    distance += overlap
    volume: Array = log_volume(white) - 0.5 * (np.log(gap) - width * np.log(rest))
    if np.isinf(negative.tail):  # factor out the part common to all centres
        distance *= -0.5 * rest
        volume -= 0.5 * rest * norm
    else:
        distance += norm
        distance *= rest
        distance = -energy(distance, width, negative.tail)
    distance += log_weights[:, None]
    if counts is not None:  # without a row that is alone, its subclass is empty
        weight, size = np.where(groups > 0, left.weight, 0.0), counts[groups[rows]]
        remaining = np.where(left.alone[rows], 0.0, size - weight[rows])
        with np.errstate(divide="ignore"):
            distance.ravel()[mine] += np.log(remaining / size)
        volume -= np.log((counts[1:].sum() - weight) / counts[1:].sum())
    return volume + log_sum_exp(distance, axis=0)
