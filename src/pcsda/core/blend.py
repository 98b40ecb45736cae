"""A mixture, with a second model of the negatives: one cloud along Fisher's axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from . import left_density
from .covariance import Moments
from .fisher import cloud_ratio_without, fisher_axis, scaled
from .linalg import Array, Floats, Ints
from .loo import LeftOut
from .mixture import Mixture, fitted_fields, times
from .student import fit_tail


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
        return self.views_of_products(times(z, self.products))

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
        found.__dict__["cloud"] = self.cloud.with_tail(tail)
        return found

    def cloud_squares(self, left: LeftOut) -> Array:
        """Return the squared Mahalanobis distances of left-out rows from the cloud's centre."""
        offset = left.coordinates @ self.axis - self.cloud.centres[0]
        squares: Array = offset**2 / self.cloud.negative[0]
        return squares

    def margin(self, axes: Sequence[int]) -> Blend:
        """Return the marginal density on a subset of the axes."""
        return replace(self, base=self.base.margin(axes), axis=scaled(self.axis[list(axes)]))
