"""The two classes as densities in the subspace, and the log ratio of them (MATH 9).

The positive class is a distribution about zero. What differs is how the negatives are seen:

- `Marginal`: one Gaussian about zero, the published model with the subclass means integrated out;
- `Mixture`: a distribution about each subclass mean;
- `Blend`: the mixture, and all negatives as one cloud along Fisher's axis of the subspace (the view
  of K = 1). Many subclasses see more, one cloud errs less.

Every density gives one or more *views*: log ratios ln p(z | positive) - ln p(z | negative), one row
each. The calibration weighs the views and adds an offset. A new density is one more class here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from math import isinf
from typing import Any, ClassVar, NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from . import linalg
from .linalg import Array, SingularMatrixError, TooFewRowsError
from .loo import ALONE, LeftOut
from .scatter import GroupScatter
from .student import (
    LOG_2PI,
    energy,
    fit_tail,
    log_density,
    log_sum_exp,
    log_volume,
    whitening,
)
from .together import blocks_of

# Where no residual at all was seen, the spread that remains, as a share of the ridged scatter.
RESIDUAL_FLOOR = 1e-8
# Below this share of the variance of the negatives, that of the positives is rounding.
COLLAPSED = 1e-14
# A covariance is a sum of squares, so that pivots below this share of its diagonal are rounding.
COVARIANCE_TOLERANCE = 1e-13
# A point that is the whole of its covariance leaves nothing behind; keep the logarithm finite.
SMALLEST_GAP = 1e-12


@dataclass(frozen=True)
class Rule:
    """How a density and its calibration are made from statistics.

    Attributes
    ----------
    negatives : {"blend", "mixture", "marginal"}
    shrinkage : float or None
        Prior strength of the pooled covariance; None means half the number of axes.
    tails : {"fitted", "gaussian"}
    leave_one_out : bool
        Whether covariances come from left-out rows.
    calibrate : bool
        Whether the views are weighed by left-out rows; else they count alike.
    """

    negatives: str = "blend"
    shrinkage: float | None = None
    tails: str = "fitted"
    leave_one_out: bool = True
    calibrate: bool = True

    @property
    def scores_rows(self) -> bool:
        """Whether left-out rows have to be scored, for the density or for the calibration."""
        return self.calibrate or (self.negatives != "marginal" and self.tails == "fitted")


@dataclass(frozen=True)
class Moments:
    """What the densities are estimated from.

    Attributes
    ----------
    scatter : GroupScatter
        Statistics in the subspace: resubstituted, or with left-out scatter matrices.
    target : array of shape (d, d)
        Pooled within covariance that small samples are shrunk toward.
    n_positive, n_within : float
        How many positives and negatives (total weight, less the means spent) stand behind the
        scatter matrices.
    """

    scatter: GroupScatter
    target: Array
    n_positive: float
    n_within: float


class Density(Protocol):
    """What every density can do; `base` describes the classes on all axes."""

    @property
    def base(self) -> Mixture:
        """The classes on all axes: covariances, centres and their weights."""

    @property
    def n_views(self) -> int:
        """Number of log ratios."""

    @property
    def products(self) -> Array:
        """Columns that rows are multiplied with, the only work that grows with the axes."""

    def views_of_products(self, products: Array) -> Array:
        """Views of rows, shape (n_views, n), or of a single row, from their `products`."""

    def views(self, z: Array) -> Array:
        """Views of rows, shape (n_views, n)."""

    def path(self, z: Array) -> Array:
        """Views of the first 1, 2, ..., d axes, shape (n_views, n, d)."""

    def views_of_sets(self, z: Array, sets: NDArray[np.intp], n_sets: int) -> Array:
        """Views of sets of rows that have one origin, shape (n_views, n_sets)."""

    def left_out_views(self, left: LeftOut, counts: Array) -> Array:
        """Views of left-out rows, each left out of its covariance too, shape (n_views, n)."""

    def with_tails(self, left: LeftOut) -> Density:
        """The density with tails fitted to left-out negatives."""

    def margin(self, axes: Sequence[int]) -> Density:
        """The density of some of the axes."""


@dataclass(frozen=True)
class Mixture:
    """Positives about zero, negatives about each subclass mean.

    Attributes
    ----------
    positive : array of shape (d, d)
        Covariance of the positive class.
    negative : array of shape (d, d)
        Covariance of the negative class about its centres.
    centres : array of shape (C, d)
        The subclass means.
    log_weights : array of shape (C,)
    within : array of shape (d, d) or None
        Covariance of samples of one subclass, for trials of several samples. None where every
        negative is a subclass of its own, so that the samples of a trial are independent.
    positive_strength, negative_strength : float
        Number of samples behind each covariance, prior strength included.
    subclasses : array of shape (K, d)
        The subclass means, also where the density itself does not use them.
    tail : float
        Degrees of freedom of both classes; infinite for Gaussians.
    """

    positive: Array
    negative: Array
    centres: Array
    log_weights: Array
    within: Array | None
    positive_strength: float
    negative_strength: float
    subclasses: Array
    tail: float = np.inf

    n_views: ClassVar[int] = 1

    def __getstate__(self) -> dict[str, Any]:
        # Copies and files hold what was fitted, not what was computed from it.
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def base(self) -> Mixture:
        """The density itself."""
        return self

    @cached_property
    def white(self) -> tuple[Array, Array]:
        """Whitening matrices of the positive and of the negative covariance."""
        return whitening(self.positive), whitening(self.negative)

    @cached_property
    def terms(self) -> tuple[Array, Array, float]:
        """Whitened centres, their squared lengths and the log ratio of the volumes."""
        positive, negative = self.white
        at_centres: Array = self.centres @ negative.T
        sizes = np.einsum("ij,ij->i", at_centres, at_centres)
        return at_centres, sizes, log_volume(positive) - log_volume(negative)

    @cached_property
    def products(self) -> Array:
        """Columns that rows are multiplied with; computed once."""
        positive, negative = self.white
        return np.hstack([positive.T, negative.T, (self.terms[0] @ negative).T])

    def views_of_products(self, products: Array) -> Array:
        """Log ratio of rows, shape (1, n), or of a single row, from their `products`."""
        size = len(self.positive)
        inside, outside = products[..., :size], products[..., size : 2 * size]
        near = products[..., 2 * size :]
        _, sizes, volume = self.terms
        square = np.einsum("...j,...j->...", outside, outside)
        ratio: Array = np.einsum("...j,...j->...", inside, inside)
        if isinf(self.tail):
            ratio -= square
            ratio *= -0.5
            ratio -= log_sum_exp(near + (self.log_weights - 0.5 * sizes))
        else:
            distance = square[..., None] - 2 * near + sizes
            ratio = -energy(ratio, size, self.tail)
            ratio -= log_sum_exp(self.log_weights - energy(distance, size, self.tail))
        ratio += volume
        return np.asarray(ratio)[None]

    def views(self, z: Array) -> Array:
        """Log ratio of rows, shape (1, n)."""
        return self.views_of_products(z @ self.products)

    def path(self, z: Array) -> Array:
        """Log ratio of the first 1, 2, ..., d axes, shape (1, n, d).

        A leading block of a covariance has the leading block of its Cholesky factor, so quadratic
        forms and log determinants of all d are running sums.
        """
        positive, negative = self.white
        offsets = (z @ negative.T)[:, None, :] - self.terms[0][None, :, :]
        inside, outside = np.cumsum((z @ positive.T) ** 2, axis=-1), np.cumsum(offsets**2, axis=-1)
        widths = np.arange(1, len(positive) + 1)
        outside = self.log_weights[None, :, None] - energy(outside, widths, self.tail)
        path: Array = -energy(inside, widths, self.tail) - log_sum_exp(outside, axis=1)
        path += np.cumsum(np.log(positive.diagonal()) - np.log(negative.diagonal()))
        return path[None]

    def views_of_sets(self, z: Array, sets: NDArray[np.intp], n_sets: int) -> Array:
        """Log ratio of each set of rows seen as samples of one origin, numbered by `sets`.

        Positives are independent given the class; negatives of a set share one of the centres.
        """
        return (self._inside_of_sets(z, sets, n_sets) - self._at_centres(z, sets, n_sets))[None]

    def _inside_of_sets(self, z: Array, sets: NDArray[np.intp], n_sets: int) -> Array:
        positive = self.white[0]
        return _sum_by(log_density(z @ positive.T, positive, self.tail), sets, n_sets)

    def _at_centres(self, z: Array, sets: NDArray[np.intp], n_sets: int) -> Array:
        negative, centres = self.white[1], self.terms[0]
        rows = z @ negative.T
        of_centres = np.zeros((n_sets, len(centres)))
        step = max(1, linalg.BLOCK_BYTES // (8 * centres.size))
        for start in range(0, len(z), step):
            offsets = rows[start : start + step, None, :] - centres
            part = log_density(offsets, negative, self.tail)
            np.add.at(of_centres, sets[start : start + step], part)
        return log_sum_exp(of_centres + self.log_weights)

    def left_out_views(self, left: LeftOut, counts: Array) -> Array:
        """Left-out log ratios, shape (1, n).

        The row's own residual is taken out of its covariance by a rank-one downdate (first leak of
        MATH 8; the shrinkage target is held). A negative meets its own subclass at
        the left-out mean and with the left-out weight, the other subclasses where the full fit has
        them.
        """
        result = np.empty(len(left.groups))
        if left.together is not None:
            for places in blocks_of(left.together):
                block = left.take(places)
                result[places] = self.block_inside(block) - self._block_outside(block, counts)
            return result[None]
        width = 4 * len(self.centres)
        step = linalg.cache_rows(width)

        def score(start: int, stop: int) -> None:
            for first in range(start, stop, step):
                part = slice(first, min(first + step, stop))
                rows = left.take(part)
                result[part] = self._left_inside(rows) - self._left_outside(rows, counts)

        linalg.over_rows(score, len(result), width)
        return result[None]

    def block_inside(self, block: LeftOut) -> Array:
        """Log density under the positive class without the rows of a block that left together."""
        own = (block.groups == 0) & block.known
        white = _white_without(
            self.positive, self.positive_strength, block.coordinates[own], block.mass[own]
        )
        return log_density(block.coordinates @ white.T, white, self.tail)

    def _block_outside(self, block: LeftOut, counts: Array) -> Array:
        """Log density under the negative class without the rows of a block.

        A row meets its own subclass at the left-out mean, the others where the full fit has them.
        """
        own = (block.groups > 0) & block.known
        white = _white_without(
            self.negative, self.negative_strength, block.residuals[own], block.mass[own]
        )
        offsets = block.coordinates[:, None, :] - self.centres
        negative = np.flatnonzero(block.groups)
        offsets[negative, block.groups[negative] - 1] = block.residuals[negative]
        remaining = counts[1:] - np.bincount(block.groups, block.weight, len(counts))[1:]
        remaining = np.where(remaining > ALONE * counts[1:], remaining, 0.0)
        if not remaining.any():  # nothing is left to be told from; nobody reads the score
            remaining = counts[1:]
        with np.errstate(divide="ignore"):
            log_weights = np.log(remaining / remaining.sum())
        return log_sum_exp(log_density(offsets @ white.T, white, self.tail) + log_weights)

    def _left_inside(self, left: LeftOut) -> Array:
        """Log density under the positive class, but for what both classes have in common.

        Positives are left out of its covariance.
        """
        white = self.white[0]
        # One row for each axis, so that factors of the samples run along memory.
        whitened = white @ left.coordinates.T
        square = np.einsum("ji,ji->i", whitened, whitened)
        own = np.flatnonzero((left.groups == 0) & ~left.alone)
        share = left.mass[own] / self.positive_strength
        gap = np.maximum(1 - share * square[own], SMALLEST_GAP)
        square[own] *= (1 - share) / gap
        result: Array = log_volume(white) - energy(square, len(white), self.tail)
        result[own] -= 0.5 * (np.log(gap) - len(white) * np.log(1 - share))
        return result

    def _left_outside(self, left: LeftOut, counts: Array) -> Array:
        """Log density under the negative class, but for what both classes have in common.

        Negatives are left out of its covariance.
        """
        white, groups = self.white[1], left.groups
        width = len(white)
        at_centres, at_rows, own = (
            self.centres @ white.T,
            white @ left.coordinates.T,
            white @ left.residuals.T,
        )
        part = np.where(groups > 0, left.mass, 0.0)
        norm, square = np.einsum("ji,ji->i", at_rows, at_rows), np.einsum("ji,ji->i", own, own)
        # Squared distances from the centres, less `norm`.
        distance = (-2 * at_centres) @ at_rows
        distance += np.einsum("ij,ij->i", at_centres, at_centres)[:, None]
        overlap = -at_centres @ own
        overlap += np.einsum("ji,ji->i", at_rows, own)
        rest = self._own_subclass(left, distance, overlap, square - norm, square)
        share = part / self.negative_strength
        gap = np.maximum(1 - share * square, SMALLEST_GAP)
        overlap *= overlap
        overlap *= share / gap
        distance += overlap
        volume: Array = log_volume(white) - 0.5 * (np.log(gap) - width * np.log(rest))
        if np.isinf(self.tail):  # what all centres have in common stays out of the exponents
            distance *= -0.5 * rest
            volume -= 0.5 * rest * norm
        else:
            distance += norm
            distance *= rest
            distance = -energy(distance, width, self.tail)
        distance += self.log_weights[:, None]
        volume -= self._without_own_weight(left, distance, counts)
        return volume + log_sum_exp(distance, axis=0)

    def _own_subclass(
        self, left: LeftOut, distance: Array, overlap: Array, to_own: Array, square: Array
    ) -> Array:
        """Put the left-out mean of each row's subclass in its place; returns the divisors left."""
        negative, mine = _own_places(left.groups)
        distance.ravel()[mine] = to_own[negative]
        overlap.ravel()[mine] = square[negative]
        part = np.where((left.groups > 0) & ~left.alone, left.mass, 0.0)
        rest: Array = 1 - part / self.negative_strength
        return rest

    def _without_own_weight(self, left: LeftOut, exponent: Array, counts: Array) -> Array:
        """Take the row out of the weight of its subclass; returns the log of the total left.

        A row that is alone leaves its subclass empty.
        """
        negative, mine = _own_places(left.groups)
        weight = np.where(left.groups > 0, left.weight, 0.0)
        total, size = counts[1:].sum(), counts[left.groups[negative]]
        remaining = np.where(left.alone[negative], 0.0, size - weight[negative])
        with np.errstate(divide="ignore"):
            exponent.ravel()[mine] += np.log(remaining / size)
        log_total: Array = np.log((total - weight) / total)
        return log_total

    def with_tails(self, left: LeftOut) -> Mixture:
        """Fit the degrees of freedom to negatives that are left out of covariance and mean."""
        known = np.flatnonzero((left.groups > 0) & left.known)
        share = left.mass[known] / self.negative_strength
        own = self.white[1] @ left.residuals.T
        square = np.einsum("ji,ji->i", own, own)[known]
        gap = np.maximum(1 - share * square, SMALLEST_GAP)
        square *= (1 - share) / gap
        return replace(self, tail=fit_tail(square, len(self.positive), left.mass[known]))

    def margin(self, axes: Sequence[int]) -> Mixture:
        """The density of some of the axes."""
        chosen, block = list(axes), np.ix_(axes, axes)
        return replace(
            self,
            positive=self.positive[block],
            negative=self.negative[block],
            centres=self.centres[:, chosen],
            within=None if self.within is None else self.within[block],
            subclasses=self.subclasses[:, chosen],
        )


def _white_without(
    covariance: Array,
    strength: float,
    rows: Array,
    mass: Array,
    divisor: float | None = None,
) -> Array:
    """Whitening of a covariance without some of the rows behind it; the shrinkage target is held.

    `divisor` is what is left of the strength, where it is not held.
    """
    white = whitening(covariance)
    scaled = (rows @ white.T) * np.sqrt(mass / strength)[:, None]
    values, vectors = np.linalg.eigh(np.eye(len(white)) - scaled.T @ scaled)
    left = strength - mass.sum() if divisor is None else divisor
    values = np.maximum(values, SMALLEST_GAP) * (strength / max(left, SMALLEST_GAP * strength))
    # The product of a rotation and a triangle: turned back to a triangle, whose diagonal is read.
    turned = (vectors / np.sqrt(values)).T @ white
    lower = np.linalg.qr(turned[::-1, ::-1])[1][::-1, ::-1]
    result: Array = lower * np.sign(lower.diagonal())[:, None]
    return result


def _own_places(groups: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Negatives, and the entry of each one's own subclass in a flat (K, n) array."""
    negative = np.flatnonzero(groups)
    return negative, (groups[negative] - 1) * len(groups) + negative


@dataclass(frozen=True)
class Marginal(Mixture):
    """Both classes as Gaussians about zero: the published model, eq. (classifier).

    It has one centre, at zero, and Gaussian tails.
    """

    def views_of_sets(self, z: Array, sets: NDArray[np.intp], n_sets: int) -> Array:
        """Log ratio of sets; the unknown subclass mean is integrated out, eq. (P_Sk_Prod)."""
        if self.within is None:
            return super().views_of_sets(z, sets, n_sets)
        inside = self._inside_of_sets(z, sets, n_sets)
        outside = _marginal_log_likelihood(
            z, sets, n_sets, self.negative - self.within, self.within
        )
        # One sample alone is scored by the density itself, whatever was clipped from it.
        single = np.bincount(sets, minlength=n_sets) == 1
        rows = single[sets]
        outside[sets[rows]] = inside[sets[rows]] - self.views(z[rows])[0]
        return (inside - outside)[None]

    def _own_subclass(
        self, left: LeftOut, distance: Array, overlap: Array, to_own: Array, square: Array
    ) -> Array:
        return np.ones(len(left.groups))  # no centre is a row's own, and the divisor is held

    def _without_own_weight(self, left: LeftOut, exponent: Array, counts: Array) -> Array:
        return np.zeros(len(left.groups))

    def _block_outside(self, block: LeftOut, counts: Array) -> Array:
        own = (block.groups > 0) & block.known
        held = self.negative_strength  # the divisor, as for single rows
        white = _white_without(self.negative, held, block.residuals[own], block.mass[own], held)
        return log_density(block.coordinates @ white.T, white)

    def with_tails(self, left: LeftOut) -> Marginal:
        """The density itself: published tails are Gaussian."""
        return self


@dataclass(frozen=True)
class Blend:
    """A mixture, and the negatives as one cloud along Fisher's axis.

    Attributes
    ----------
    base : Mixture
    axis : array of shape (d,)
        Fisher's axis; zero where none of the axes at hand has a part in it, and then the mixture
        speaks for the cloud too.
    tail : float
        Degrees of freedom of the cloud.
    """

    base: Mixture
    axis: Array
    tail: float = np.inf

    n_views: ClassVar[int] = 2

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @cached_property
    def has_axis(self) -> bool:
        """Whether any of the axes at hand has a part in Fisher's axis."""
        return bool(self.axis.any())

    @cached_property
    def cloud(self) -> Mixture:
        """The classes on Fisher's axis alone, with the negatives as one cloud."""
        base, axis, shares = self.base, self.axis[:, None], np.exp(self.base.log_weights)
        centre = shares @ base.centres
        spread = (base.centres - centre) @ axis
        negative = axis.T @ base.negative @ axis + (shares * spread.T) @ spread
        return Mixture(
            axis.T @ base.positive @ axis,
            negative,
            (centre @ axis)[None],
            np.zeros(1),
            negative,
            base.positive_strength,
            base.negative_strength,
            (centre @ axis)[None],
            self.tail,
        )

    @cached_property
    def products(self) -> Array:
        """Columns of the mixture, then those of the cloud."""
        if not self.has_axis:
            return self.base.products
        return np.hstack([self.base.products, self.axis[:, None] @ self.cloud.products])

    def views_of_products(self, products: Array) -> Array:
        """Log ratios of mixture and cloud, shape (2, n)."""
        width = self.base.products.shape[1]
        mixture = self.base.views_of_products(products[..., :width])
        if not self.has_axis:
            return np.concatenate([mixture, mixture])
        return np.concatenate([mixture, self.cloud.views_of_products(products[..., width:])])

    def views(self, z: Array) -> Array:
        """Log ratios of mixture and cloud, shape (2, n)."""
        return self.views_of_products(z @ self.products)

    def path(self, z: Array) -> Array:
        """Log ratios of the first 1, 2, ..., d axes, shape (2, n, d)."""
        mixture = self.base.path(z)
        cloud = [self.margin(range(d)).views(z[:, :d])[1] for d in range(1, z.shape[1] + 1)]
        return np.concatenate([mixture, np.stack(cloud, axis=-1)[None]])

    def views_of_sets(self, z: Array, sets: NDArray[np.intp], n_sets: int) -> Array:
        """Log ratios of sets of rows that have one origin, shape (2, n_sets)."""
        mixture = self.base.views_of_sets(z, sets, n_sets)
        if not self.has_axis:
            return np.concatenate([mixture, mixture])
        cloud = self.cloud.views_of_sets(z @ self.axis[:, None], sets, n_sets)
        return np.concatenate([mixture, cloud])

    def left_out_views(self, left: LeftOut, counts: Array) -> Array:
        """Left-out log ratios of mixture and cloud, shape (2, n).

        In the cloud no negative is alone. Its centre and variance come from all negatives and are
        held: a row that is far out under the model without it would be more than the whole of it.
        """
        cloud, on_axis = self.cloud, (left.coordinates @ self.axis)[:, None]
        white = cloud.white[1]
        square = (white[0] * (on_axis[:, 0] - cloud.centres[0])) ** 2
        outside = log_volume(white) - energy(square, 1, cloud.tail)
        moved = replace(left, coordinates=on_axis, residuals=on_axis)
        if left.together is None:
            inside = cloud._left_inside(moved)
        else:
            outside += log_density(np.zeros(1), np.eye(1), cloud.tail)
            inside = np.empty(len(outside))
            for places in blocks_of(left.together):
                inside[places] = cloud.block_inside(moved.take(places))
        return np.concatenate([self.base.left_out_views(left, counts), (inside - outside)[None]])

    def with_tails(self, left: LeftOut) -> Blend:
        """Fit the degrees of freedom of the mixture and of the cloud."""
        known = np.flatnonzero((left.groups > 0) & left.known)
        cloud = self.cloud
        offset = (left.coordinates @ self.axis)[known] - cloud.centres[0]
        tail = fit_tail(offset**2 / cloud.negative[0], 1, left.mass[known])
        return replace(self, base=self.base.with_tails(left), tail=tail)

    def margin(self, axes: Sequence[int]) -> Blend:
        """The density of some of the axes."""
        return replace(self, base=self.base.margin(axes), axis=_of_unit_size(self.axis[list(axes)]))


@dataclass(frozen=True)
class NoDensity:
    """The place of a density that the samples do not determine (MATH 12).

    Axes and ranking need none; whatever else is asked for says why it is missing.
    """

    why: str

    n_views: ClassVar[int] = 1

    def _refuse(self) -> NoReturn:
        raise TooFewRowsError(self.why)

    @property
    def base(self) -> Mixture:
        """There is none."""
        self._refuse()

    @property
    def products(self) -> Array:
        """There are none."""
        self._refuse()

    def views_of_products(self, products: Array) -> Array:
        """Refuse."""
        self._refuse()

    def views(self, z: Array) -> Array:
        """Refuse."""
        self._refuse()

    def path(self, z: Array) -> Array:
        """Refuse."""
        self._refuse()

    def views_of_sets(self, z: Array, sets: NDArray[np.intp], n_sets: int) -> Array:
        """Refuse."""
        self._refuse()

    def left_out_views(self, left: LeftOut, counts: Array) -> Array:
        """Refuse."""
        self._refuse()

    def with_tails(self, left: LeftOut) -> NoDensity:
        """Refuse."""
        self._refuse()

    def margin(self, axes: Sequence[int]) -> NoDensity:
        """Refuse."""
        self._refuse()


def fit_density(moments: Moments, *, negatives: str, shrinkage: float) -> Density:
    """Estimate both densities as Gaussians.

    `shrinkage` is the prior strength nu: ``(S + nu target) / (n + nu)`` for the covariance of the
    positives and for that of the subclasses. With nu = 0 these are eq. (Phi_p) and eq. (Phi_w).

    Raises
    ------
    SingularMatrixError
        When a covariance is singular, which names the class.
    """
    scatter, target = moments.scatter, moments.target
    positive_strength = moments.n_positive + shrinkage
    within_strength = moments.n_within + shrinkage
    rounding = COLLAPSED * scatter.phi_o.diagonal()
    positive = _shrunk(scatter.positive, target, shrinkage, positive_strength, "positive", rounding)
    centres = scatter.means[1:] - scatter.means[0]
    if negatives == "marginal":
        marginal = scatter.phi_o
        _require_regular(marginal, "negative")
        return Marginal(
            positive,
            marginal,
            np.zeros((1, len(marginal))),
            np.zeros(1),
            _regular_within(scatter.within, target, shrinkage, within_strength),
            positive_strength,
            scatter.n_negative,
            centres,
        )
    within = _shrunk(scatter.within, target, shrinkage, within_strength, "negative")
    mixture = Mixture(
        positive,
        within,
        centres,
        np.log(scatter.counts[1:] / scatter.n_negative),
        within,
        positive_strength,
        within_strength,
        centres,
    )
    if negatives == "mixture" or len(centres) == 1:  # a single subclass is a cloud already
        return mixture
    axis = _fisher_axis(mixture, scatter.n_positive, scatter.n_negative)
    return mixture if axis is None else Blend(mixture, axis)


def _shrunk(
    scatter: Array,
    target: Array,
    nu: float,
    strength: float,
    which: str,
    rounding: Array | float = 0.0,
) -> Array:
    """Covariance of a class, refused where it is singular or all of a variance is `rounding`."""
    if strength <= 0:
        raise SingularMatrixError(f"no sample shows the spread of the {which} class")
    covariance = (scatter + nu * target) / strength
    variances = covariance.diagonal()
    if np.any((variances != 0) & (variances <= rounding)):  # rounding may be below zero, too
        raise SingularMatrixError(
            f"the {which} class is a point in the subspace, as without regularization it may be"
        )
    _require_regular(covariance, which)
    return covariance


def _regular_within(scatter: Array, target: Array, nu: float, strength: float) -> Array | None:
    """Covariance of one subclass; None where the samples are too few to tell."""
    try:
        return _shrunk(scatter, target, nu, strength, "subclass")
    except SingularMatrixError:
        return None


def _require_regular(covariance: Array, which: str) -> None:
    """Refuse a covariance whose Cholesky pivots are rounding, in any units of the axes."""
    try:
        if not np.all(covariance.diagonal() > 0):
            raise SingularMatrixError("an axis has no variance")
        scale = np.sqrt(covariance.diagonal())
        pivots = linalg.cholesky(covariance / np.outer(scale, scale)).diagonal() ** 2
        if np.any(pivots <= COVARIANCE_TOLERANCE * len(covariance)):
            raise SingularMatrixError("the covariance is singular to working precision")
    except SingularMatrixError as error:
        raise SingularMatrixError(
            f"the covariance of the {which} class is singular in the subspace"
        ) from error


def _fisher_axis(mixture: Mixture, n_positive: float, n_negative: float) -> Array | None:
    """Axis that tells the positives best from the negatives as one cloud, None if there is none.

    With all K axes of a subspace this is the solution of K = 1, which lies in it.
    """
    shares = np.exp(mixture.log_weights)
    centre = shares @ mixture.centres
    spread = mixture.centres - centre
    cloud = mixture.negative + (spread.T * shares) @ spread
    pooled = (n_positive * mixture.positive + n_negative * cloud) / (n_positive + n_negative)
    axis = np.asarray(np.linalg.solve(pooled, centre), dtype=np.float64)
    if centre @ axis <= linalg.SAME_POINT**2:  # the means differ by rounding
        return None
    axis = _of_unit_size(axis)
    return axis if axis.any() else None


def _of_unit_size(axis: Array) -> Array:
    """Scale an axis, of which only the direction counts; zero if it has no direction."""
    largest = float(np.abs(axis).max())
    return axis / largest if np.isfinite(largest) and largest > 0 else np.zeros_like(axis)


def _sum_by(values: Array, sets: NDArray[np.intp], n_sets: int) -> Array:
    total = np.zeros((n_sets, *values.shape[1:]))
    np.add.at(total, sets, values)
    return total


def _marginal_log_likelihood(
    z: Array, sets: NDArray[np.intp], n_sets: int, between: Array, within: Array
) -> Array:
    """Log likelihood of sets of samples that share an unknown mean, eq. (P_Sk_Prod).

    The mean of a set is drawn from N(0, `between`), its samples from N(mean, `within`); `between`
    is clipped to be positive semi-definite relative to `within`. One eigendecomposition serves
    sets of every size.
    """
    sizes = np.bincount(sets, minlength=n_sets).astype(np.float64)
    white = whitening(within)
    spread, rotation = linalg.eigh_descending(white @ between @ white.T)
    coordinates = z @ (rotation.T @ white).T
    means = _sum_by(coordinates, sets, n_sets) / np.maximum(sizes, 1)[:, None]
    inner = _sum_by(np.einsum("ij,ij->i", coordinates, coordinates), sets, n_sets)
    inner -= sizes * np.einsum("ij,ij->i", means, means)
    variance = np.maximum(spread, 0.0) + 1 / sizes[:, None]
    of_means = -0.5 * (np.log(variance) + means**2 / variance).sum(axis=1)
    width = means.shape[1]
    of_sizes = 0.5 * width * np.log(sizes) + sizes * (0.5 * width * LOG_2PI - log_volume(white))
    result: Array = of_means - 0.5 * inner - of_sizes
    return result
