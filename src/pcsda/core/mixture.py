"""Densities with positives about zero, and negatives about one centre or several.

`Mixture` has the subclass means as centres. `Marginal` and `Posterior` have one centre.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import cached_property
from math import isinf
from typing import Any, ClassVar, Self

import numpy as np

from . import left_density, linalg
from .covariance import Moments, require_regular
from .left_density import Spread
from .linalg import Array, Floats, Ints, SingularMatrixError
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
        return self.views_of_products(times(z, self.products))

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

    def left_out_views(self, left: LeftOut, counts: Array | None) -> Array:
        """Return log ratios (1, n) of left-out rows, under densities estimated without them.

        `counts` holds the sizes of the groups; None means that the centres stay fixed.
        """
        centres = self.centres, self.log_weights
        return left_density.log_ratio(*self.spreads, *centres, left, counts)[None]

    def with_tails(self, left: LeftOut) -> Self:
        """Return the density with its degrees of freedom fitted to left-out negatives.

        Each negative is left out of the covariance and of its subclass mean.
        """
        scored, squares = left_density.left_out_squares(self.spreads[1], self.centres, left)
        return self.with_tail(fit_tail(squares, len(self.positive), left.mass[scored]))

    def with_tail(self, tail: float) -> Self:
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

    def left_out_views(self, left: LeftOut, counts: Array | None) -> Array:
        """Return log ratios (1, n) of left-out rows; the centre of the negatives stays fixed."""
        return super().left_out_views(left, None)

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

    def left_out_views(self, left: LeftOut, counts: Array | None) -> Array:
        """Return log ratios (1, n) of left-out rows; the covariances of all labels stay fixed."""
        return self.views(left.coordinates)


def times(z: Floats, columns: Array) -> Array:
    """Return the product of the rows `z` and a matrix, in the dtype of the rows."""
    if z.dtype == np.float64:
        return z @ columns
    # Transposed, each column is contiguous in memory, which speeds up later sums over samples.
    return (columns.astype(z.dtype).T @ z.T).T


def fitted_fields(density: Any) -> dict[str, Any]:
    """Return the fields of a density without cached values, for copying and pickling."""
    return {field.name: getattr(density, field.name) for field in fields(density)}
