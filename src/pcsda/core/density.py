"""Density models of the two classes in the subspace, and their log ratio (MATH 9).

The positive class is a distribution about zero. The densities differ in their model of the
negatives:

- `Marginal`: one Gaussian about zero, the published model with the subclass means integrated out;
- `Mixture`: a distribution about each subclass mean;
- `Posterior`: one Gaussian or t distribution about the centre of all labels in a bank;
- `Blend`: the mixture, and a second model that treats all negatives as one cloud along Fisher's
  discriminant axis of the subspace (the model for K = 1). The mixture resolves more detail; the
  cloud has fewer parameters.

A log ratio is ln p(z | positive) - ln p(z | negative). Each density provides one or more log
ratios, called *views* and stacked along the first axis. The calibration weights the views and adds
an offset. To add a density, write a class here and enter it in `DENSITIES`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import cached_property
from math import isinf
from typing import Any, ClassVar, NoReturn, Protocol, Self

import numpy as np

from . import left_density, linalg
from .covariance import Moments, require_regular
from .fisher import cloud_ratio_without, fisher_axis, scaled
from .left_density import Spread
from .linalg import Array, Floats, Ints, SingularMatrixError, TooFewRowsError
from .loo import LeftOut
from .student import (
    energy,
    fit_tail,
    log_density,
    log_sum_exp,
    log_volume,
    shared_mean_log_likelihood,
    sum_by,
)


class Density(Protocol):
    """The interface of all densities."""

    @property
    def base(self) -> Mixture:
        """The model of both classes: covariances, centres and their weights.

        It covers all axes; if densities have axes of their own, only the leading ones.
        """

    @property
    def bases(self) -> tuple[Mixture, ...]:
        """Models of both classes which together cover all axes, in the order of the axes."""

    @property
    def n_views(self) -> int:
        """Number of views, that is, log ratios."""

    @property
    def products(self) -> Array:
        """Matrix by which rows are multiplied to score them; this product is most of the work."""

    def views_of_products(self, products: Array) -> Array:
        """Return views (n_views, n) of rows, or (n_views,) of one row.

        The argument holds the rows times the matrix :attr:`products`.
        """

    def views(self, z: Floats) -> Array:
        """Return views of rows, shape (n_views, n)."""

    def path(self, z: Array) -> Array:
        """Return views based on the first 1, 2, ..., d axes, shape (n_views, n, d)."""

    def views_of_sets(self, z: Array, sets: Ints, n_sets: int) -> Array:
        """Return views (n_views, n_sets) of sets of rows.

        `sets` holds the number of each row's set. All rows of a set come from the same source, such
        as one person.
        """

    def margin(self, axes: Sequence[int]) -> Density:
        """Return the marginal density on a subset of the axes."""


@dataclass(frozen=True)
class Mixture:
    """A density with positives about zero and negatives about each subclass mean.

    Attributes
    ----------
    positive : array of shape (d, d)
        Covariance of the positive class.
    negative : array of shape (d, d)
        Covariance of the negative class about its centres.
    centres : array of shape (C, d)
        The subclass means.
    log_weights : array of shape (C,)
        Logarithms of the subclass weights.
    within : array of shape (d, d) or None
        Covariance of samples within one subclass, for trials with several samples. None if each
        negative is its own subclass, so that the samples in a trial are independent.
    positive_strength, negative_strength : float
        Number of samples behind each covariance, including the strength of the prior.
    subclasses : array of shape (K, d)
        The subclass means, even if the density has other centres.
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

    @classmethod
    def fit(cls, moments: Moments, nu: float) -> Self:
        """Fit covariances, shrunk with prior strength `nu`.

        With ``nu = 0``, the covariances are those of eq. (Phi_p) and (Phi_w).
        """
        scatter = moments.scatter
        positive, within = moments.positive_covariance(nu), moments.within_covariance(nu)
        return cls(
            positive,
            within,
            scatter.delta,
            np.log(scatter.counts[1:] / scatter.n_negative),
            within,
            moments.n_positive + nu,
            moments.n_within + nu,
            scatter.delta,
        )

    def __getstate__(self) -> dict[str, Any]:
        return fitted_fields(self)

    @property
    def base(self) -> Mixture:
        """The density itself."""
        return self

    @property
    def bases(self) -> tuple[Mixture, ...]:
        """The density itself, which covers all axes."""
        return (self,)

    @cached_property
    def factors(self) -> tuple[Array, Array]:
        """Lower Cholesky factors of the positive and negative covariances."""
        return linalg.cholesky(self.positive), linalg.cholesky(self.negative)

    @cached_property
    def white(self) -> tuple[Array, Array]:
        """Whitening matrices of the positive and negative covariances."""
        positive, negative = self.factors
        return linalg.triangular_inverse(positive), linalg.triangular_inverse(negative)

    @cached_property
    def middle(self) -> tuple[Array, Array]:
        """Weighted mean of the centres, and the weighted deviations of the centres from that mean.

        The deviations are multiplied by the square roots of the weights.
        """
        shares = np.exp(self.log_weights)
        mean = shares @ self.centres
        return mean, np.sqrt(shares)[:, None] * (self.centres - mean)

    @cached_property
    def terms(self) -> tuple[Array, Array, float]:
        """Whitened centres, their squared lengths, and the log ratio of the normalising constants.

        The ratio is that of the positive to the negative class.
        """
        positive, negative = self.white
        at_centres: Array = self.centres @ negative.T
        sizes = np.einsum("ij,ij->i", at_centres, at_centres)
        return at_centres, sizes, log_volume(positive) - log_volume(negative)

    @cached_property
    def products(self) -> Array:
        """Matrix by which rows are multiplied: both whitening matrices, then the centres."""
        positive, negative = self.white
        return np.hstack([positive.T, negative.T, (self.terms[0] @ negative).T])

    def views_of_products(self, products: Array) -> Array:
        """Return the log ratio (1, n) of rows, or (1,) of a single row.

        The argument holds the rows times the matrix :attr:`products`.
        """
        size = len(self.positive)
        inside, outside = products[..., :size], products[..., size : 2 * size]
        near = products[..., 2 * size :]
        volume = self.terms[2]
        sizes, weights = (part.astype(near.dtype) for part in (self.terms[1], self.log_weights))
        square = np.einsum("...j,...j->...", outside, outside)
        ratio: Array = np.einsum("...j,...j->...", inside, inside)
        if isinf(self.tail):
            ratio -= square
            ratio *= -0.5
            ratio -= log_sum_exp(near + (weights - 0.5 * sizes))
        else:
            distance = square[..., None] - 2 * near
            distance += sizes
            ratio = -energy(ratio, size, self.tail)
            ratio -= log_sum_exp(weights - energy(distance, size, self.tail))
        ratio += volume
        return np.asarray(ratio)[None]

    def views(self, z: Floats) -> Array:
        """Return the log ratio of rows, shape (1, n), with the rows' dtype."""
        return self.views_of_products(_products(z, self.products))

    def path(self, z: Array) -> Array:
        """Return the log ratio based on the first 1, 2, ..., d axes, shape (1, n, d).

        The Cholesky factor of a leading block is the leading block of the factor, so quadratic
        forms and log determinants for all d are running sums.
        """
        positive, negative = self.white
        offsets = (z @ negative.T)[:, None, :] - self.terms[0][None, :, :]
        inside, outside = np.cumsum((z @ positive.T) ** 2, axis=-1), np.cumsum(offsets**2, axis=-1)
        widths = np.arange(1, len(positive) + 1)
        outside = self.log_weights[None, :, None] - energy(outside, widths, self.tail)
        path: Array = -energy(inside, widths, self.tail) - log_sum_exp(outside, axis=1)
        path += np.cumsum(np.log(positive.diagonal()) - np.log(negative.diagonal()))
        return path[None]

    def views_of_sets(self, z: Array, sets: Ints, n_sets: int) -> Array:
        """Return the log ratio of each set of rows, such as a trial with several samples.

        `sets` holds the number of each row's set. The positives in a set are independent. All
        negatives in a set have the same centre.
        """
        return (self._inside_of_sets(z, sets, n_sets) - self._at_centres(z, sets, n_sets))[None]

    def _with_singles(self, ratio: Array, z: Array, sets: Ints) -> Array:
        """Replace the log ratio of each one-row set with the log ratio of its row."""
        rows = np.bincount(sets)[sets] == 1
        ratio[sets[rows]] = self.views(z[rows])[0]
        return ratio[None]

    def _inside_of_sets(self, z: Array, sets: Ints, n_sets: int) -> Array:
        positive = self.white[0]
        return sum_by(log_density(z @ positive.T, positive, self.tail), sets, n_sets)

    def _at_centres(self, z: Array, sets: Ints, n_sets: int) -> Array:
        negative, centres = self.white[1], self.terms[0]
        rows = z @ negative.T
        of_centres = np.zeros((n_sets, len(centres)))
        step = max(1, linalg.BLOCK_BYTES // (8 * centres.size))
        for start in range(0, len(z), step):
            offsets = rows[start : start + step, None, :] - centres
            part = log_density(offsets, negative, self.tail)
            np.add.at(of_centres, sets[start : start + step], part)
        return log_sum_exp(of_centres + self.log_weights)

    @property
    def spreads(self) -> tuple[Spread, Spread]:
        """The :class:`Spread` of the positive class and that of the negative class."""
        positive, negative = self.white
        return (
            Spread(positive, self.positive_strength, self.tail),
            Spread(negative, self.negative_strength, self.tail),
        )

    def left_out_views(self, left: LeftOut, counts: Array) -> Array:
        """Return log ratios (1, n) of left-out rows, under densities estimated without them."""
        centres = self.centres, self.log_weights
        return left_density.log_ratio(*self.spreads, *centres, left, counts)[None]

    def with_tails(self, left: LeftOut) -> Self:
        """Return the density with its degrees of freedom fitted to left-out negatives.

        Each negative is left out of the covariance and of its subclass mean.
        """
        scored, squares = left_density.left_out_squares(self.spreads[1], self.centres, left)
        return self._with_tail(fit_tail(squares, len(self.positive), left.mass[scored]))

    def _with_tail(self, tail: float) -> Self:
        """Return the density with another tail and the same cached values, which need no tail."""
        found = replace(self, tail=tail)
        found.__dict__.update(vars(self) | vars(found))
        return found

    def margin(self, axes: Sequence[int]) -> Self:
        """Return the marginal density on a subset of the axes."""
        chosen, block = list(axes), np.ix_(axes, axes)
        return replace(
            self,
            positive=self.positive[block],
            negative=self.negative[block],
            centres=self.centres[:, chosen],
            within=None if self.within is None else self.within[block],
            subclasses=self.subclasses[:, chosen],
        )


@dataclass(frozen=True)
class Marginal(Mixture):
    """A density with both classes Gaussian about zero: the published model, eq. (classifier).

    If CSDA learned a reference vector, the negatives are centred at this vector instead.
    """

    @classmethod
    def fit(cls, moments: Moments, nu: float) -> Self:
        """Fit the positive covariance with prior strength `nu`, the negative one by eq. (Phi_o)."""
        scatter, positive = moments.scatter, moments.positive_covariance(nu)
        negative = scatter.phi_o
        require_regular(negative, "negative")
        within: Array | None = None
        with suppress(SingularMatrixError):  # too few samples to estimate it
            within = moments.within_covariance(nu, "subclass")
        return cls(
            positive,
            negative,
            np.zeros((1, len(negative))),
            np.zeros(1),
            within,
            moments.n_positive + nu,
            scatter.n_negative,
            scatter.delta,
        )

    def about(self, reference: Array) -> Self:
        """Return the same density with negatives about a vector other than the positive mean."""
        delta = self.subclasses[0]
        moved = np.outer(delta - reference, delta - reference) - np.outer(delta, delta)
        return replace(self, negative=self.negative + moved, centres=reference[None])

    def widened(self) -> Self:
        """Return the density with negatives spread at least as widely as positives everywhere.

        The positive covariance includes a ridge; the negative covariance does not. Along a
        direction in which hardly any row varies, such as a pixel at the border of an image, the
        negatives would therefore be the narrower class, and an unusual negative would look like a
        positive. After widening, the log ratio is largest at the positive mean.
        """
        factor = linalg.cholesky(self.positive)
        inner = linalg.lower_solve(factor, linalg.lower_solve(factor, self.negative).T)
        shares, axes = np.linalg.eigh((inner + inner.T) / 2)
        narrow = shares < 1
        if not narrow.any():
            return self
        added = factor @ axes[:, narrow] * np.sqrt(1 - shares[narrow])
        return replace(self, negative=self.negative + added @ added.T)

    def views_of_sets(self, z: Array, sets: Ints, n_sets: int) -> Array:
        """Return the log ratio (1, n_sets) of sets of rows by eq. (P_Sk_Prod).

        The negatives of a set share a subclass mean, which is integrated out.
        """
        if self.within is None:
            return super().views_of_sets(z, sets, n_sets)
        ratio = self._inside_of_sets(z, sets, n_sets)
        ratio -= shared_mean_log_likelihood(
            z, sets, n_sets, self.negative - self.within, self.within
        )
        return self._with_singles(ratio, z, sets)

    def left_out_views(self, left: LeftOut, counts: Array) -> Array:
        """Return log ratios (1, n) of left-out rows; the centre of the negatives stays fixed."""
        centres = self.centres, self.log_weights
        return left_density.log_ratio(*self.spreads, *centres, left, None)[None]

    def with_tails(self, left: LeftOut) -> Self:
        """Return the density itself, because the published model is Gaussian."""
        return self


@dataclass(frozen=True)
class Posterior(Mixture):
    """The density of one label in a bank, whose other labels are the negatives.

    The rows of the label lie about the posterior mean of the label. All other rows lie about a
    centre that is the same for every label. Both covariances are those of predictive distributions;
    see `core.kindred`.
    """

    def views_of_sets(self, z: Array, sets: Ints, n_sets: int) -> Array:
        """Return log ratios (1, n_sets) of sets of rows.

        In either class, the rows of a set share an unknown mean.
        """
        assert self.within is not None
        inside = shared_mean_log_likelihood(
            z, sets, n_sets, self.positive - self.within, self.within
        )
        outside = shared_mean_log_likelihood(
            z - self.centres[0], sets, n_sets, self.negative - self.within, self.within
        )
        return self._with_singles(inside - outside, z, sets)

    def left_out_views(self, left: LeftOut, counts: Array) -> Array:
        """Return log ratios (1, n) of left-out rows; the covariances of all labels stay fixed."""
        return self.views(left.coordinates)


@dataclass(frozen=True)
class Blend:
    """A mixture, and a model that treats all negatives as one cloud along Fisher's axis.

    Each of the two models gives one view.

    Attributes
    ----------
    base : Mixture
    axis : array of shape (d,)
        Fisher's axis. If it is zero, as it may be on a subset of the axes, the mixture's view is
        repeated.
    tail : float
        Degrees of freedom of the cloud.
    """

    base: Mixture
    axis: Array
    tail: float = np.inf

    n_views: ClassVar[int] = 2

    @classmethod
    def fit(cls, moments: Moments, nu: float) -> Mixture | Blend:
        """Fit the mixture and find Fisher's axis; return only the mixture if there is no axis."""
        mixture = Mixture.fit(moments, nu)
        if len(mixture.centres) == 1:  # a single subclass is one cloud already
            return mixture
        centre, spread = mixture.middle
        cloud = mixture.negative + spread.T @ spread
        axis = fisher_axis(mixture.positive, cloud, centre, moments)
        return mixture if axis is None else cls(mixture, axis)

    def __getstate__(self) -> dict[str, Any]:
        return fitted_fields(self)

    @property
    def bases(self) -> tuple[Mixture, ...]:
        """The mixture, which covers all axes."""
        return (self.base,)

    @cached_property
    def has_axis(self) -> bool:
        """Whether Fisher's axis is not zero."""
        return bool(self.axis.any())

    @cached_property
    def cloud(self) -> Mixture:
        """The model of both classes along Fisher's axis, with the negatives as one cloud."""
        base, axis = self.base, self.axis[:, None]
        centre, spread = base.middle
        along = spread @ axis
        negative = axis.T @ base.negative @ axis + along.T @ along
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
        """Matrix by which rows are multiplied: the mixture's columns, then the cloud's."""
        if not self.has_axis:
            return self.base.products
        return np.hstack([self.base.products, self.axis[:, None] @ self.cloud.products])

    def views_of_products(self, products: Array) -> Array:
        """Return the log ratios of mixture and cloud, shape (2, n), or (2,) of a single row.

        The argument holds the rows times the matrix :attr:`products`.
        """
        width = self.base.products.shape[1]
        mixture = self.base.views_of_products(products[..., :width])
        if not self.has_axis:
            return np.concatenate([mixture, mixture])
        return np.concatenate([mixture, self.cloud.views_of_products(products[..., width:])])

    def views(self, z: Floats) -> Array:
        """Return log ratios of the mixture and the cloud, shape (2, n), with the rows' dtype."""
        return self.views_of_products(_products(z, self.products))

    def path(self, z: Array) -> Array:
        """Return log ratios based on the first 1, 2, ..., d axes, shape (2, n, d)."""
        mixture = self.base.path(z)
        cloud = [self.margin(range(d)).views(z[:, :d])[1] for d in range(1, z.shape[1] + 1)]
        return np.concatenate([mixture, np.stack(cloud, axis=-1)[None]])

    def views_of_sets(self, z: Array, sets: Ints, n_sets: int) -> Array:
        """Return log ratios of sets of rows, such as trials, shape (2, n_sets)."""
        mixture = self.base.views_of_sets(z, sets, n_sets)
        if not self.has_axis:
            return np.concatenate([mixture, mixture])
        cloud = self.cloud.views_of_sets(z @ self.axis[:, None], sets, n_sets)
        return np.concatenate([mixture, cloud])

    def left_out_views(self, left: LeftOut, counts: Array) -> Array:
        """Return log ratios (2, n) of left-out rows, for the mixture and for the cloud.

        The cloud's centre and variance come from all negatives and stay fixed when a negative is
        left out: removing the squared deviation of a distant row could make the variance negative.
        """
        base, cloud, on_axis = self.base, self.cloud, (left.coordinates @ self.axis)[:, None]
        positive, negative = cloud.spreads
        shares = np.exp(base.log_weights)
        rest = left_density.remaining_positives(base.spreads[0], left)
        if rest is not None and self.has_axis:
            ratio = positive.log_density(on_axis) - negative.log_density(on_axis - cloud.centres)
            ratio[rest.rows] = cloud_ratio_without(
                base.factors, base.middle, shares, self.tail, rest, left, counts
            )
        else:
            moved = replace(left, coordinates=on_axis, residuals=on_axis)
            about = left_density.about_all(moved).coordinates - cloud.centres
            if left.moving is not None:
                about[left.moving.rows] -= left.moving.of_mean(shares) @ self.axis[:, None]
            ratio = left_density.log_inside(positive, moved)
            ratio -= negative.log_density(about)
        centres = base.centres, base.log_weights
        mixture = left_density.log_ratio(*base.spreads, *centres, left, counts, rest)
        return np.stack([mixture, ratio])

    def with_tails(self, left: LeftOut) -> Blend:
        """Return the density with the tails of mixture and cloud fitted to left-out negatives."""
        negative = np.flatnonzero((left.groups > 0) & left.scored)
        tail = fit_tail(self.cloud_squares(left)[negative], 1, left.mass[negative])
        found = replace(self, base=self.base.with_tails(left), tail=tail)
        found.__dict__["cloud"] = self.cloud._with_tail(tail)
        return found

    def cloud_squares(self, left: LeftOut) -> Array:
        """Return the squared Mahalanobis distances of left-out rows from the cloud's centre."""
        offset = left.coordinates @ self.axis - self.cloud.centres[0]
        squares: Array = offset**2 / self.cloud.negative[0]
        return squares

    def margin(self, axes: Sequence[int]) -> Blend:
        """Return the marginal density on a subset of the axes."""
        return replace(self, base=self.base.margin(axes), axis=scaled(self.axis[list(axes)]))


@dataclass(frozen=True)
class NoDensity:
    """Placeholder used when there are too few samples to determine a density (MATH 12).

    The axes and the ranking need no density. Any use of a density raises a `TooFewRowsError` with
    the reason `why`.
    """

    why: str

    n_views: ClassVar[int] = 1

    def _refuse(self, *_: Any) -> NoReturn:
        raise TooFewRowsError(self.why)

    @property
    def base(self) -> Mixture:
        """Raise a `TooFewRowsError`, because there is no density."""
        self._refuse()

    @property
    def bases(self) -> tuple[Mixture, ...]:
        """Raise a `TooFewRowsError`, because there is no density."""
        self._refuse()

    @property
    def products(self) -> Array:
        """Raise a `TooFewRowsError`, because there is no density."""
        self._refuse()

    views = views_of_products = path = views_of_sets = _refuse
    left_out_views = with_tails = margin = _refuse


# Densities that can be estimated; `left_out_views` and `with_tails` belong to the estimation.
Estimate = Mixture | Blend | NoDensity
DENSITIES: dict[str, type[Mixture] | type[Blend]] = {
    "blend": Blend,
    "mixture": Mixture,
    "marginal": Marginal,
}


def fit_density(moments: Moments, *, negatives: str, shrinkage: float) -> Mixture | Blend:
    """Estimate the densities of both classes, with Gaussian tails.

    `negatives` is a key of `DENSITIES`, and `shrinkage` is the prior strength nu. The covariances
    of the positives and of the subclasses are both ``(S + nu target) / (n + nu)``.

    Raises
    ------
    SingularMatrixError
        If a covariance is singular; the message names the class.
    """
    return DENSITIES[negatives].fit(moments, shrinkage)


def _products(z: Floats, columns: Array) -> Array:
    """Return the product of the rows `z` and a matrix, in the dtype of the rows."""
    if z.dtype == np.float64:
        return z @ columns
    # Transposed, each column is contiguous in memory, which speeds up later sums over samples.
    return (columns.astype(z.dtype).T @ z.T).T


def fitted_fields(density: Any) -> dict[str, Any]:
    """Return the fields of a density without cached values, for copying and pickling."""
    return {field.name: getattr(density, field.name) for field in fields(density)}
