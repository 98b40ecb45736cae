"""The density of a single positive: the mean of a log ratio and the distance from it (MATH 16)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from .density import Blend, Mixture, fitted_fields
from .linalg import Array, Floats, Ints
from .student import sum_by


@dataclass(frozen=True)
class Near:
    """A density of a single positive, averaged with the distance from it.

    The log ratio of a single positive is lower where negatives are many, so it ranks low what lies
    among hidden positives, and it knows little of the spread of the class. The distance, by which
    the paper ranks, knows neither and is often the better order; the mean of both is better still.
    Each view is the mean of a log ratio and of a function of the distance, scaled to vary as much
    among negatives.

    Attributes
    ----------
    inner : Mixture or Blend
    scales : array of shape (n_views,)
        A view is half of the other density's view, minus ``scale ln(1 + |z|^2 / reach)``.
    reach : float
        Mean squared distance at which new positives are expected.
    """

    inner: Mixture | Blend
    scales: Array
    reach: float

    @classmethod
    def fit(cls, inner: Mixture | Blend, views: Array, z: Array, expected: Array) -> Near:
        """Fit to left-out negatives.

        Parameters
        ----------
        inner : Mixture or Blend
        views : array of shape (n_views, n)
            Views of left-out negatives.
        z : array of shape (n, d)
            Their coordinates.
        expected : array of shape (m, d)
            Coordinates where new positives are expected.
        """
        near = cls(inner, np.zeros(len(views)), float(np.square(expected).sum(axis=1).mean()))
        spread = near._falling(np.square(z).sum(axis=1)).std()
        scales = 0.5 * views.std(axis=1) / spread if spread > 0 else near.scales
        return replace(near, scales=scales)

    def __getstate__(self) -> dict[str, Any]:
        return fitted_fields(self)

    def _falling(self, squares: Array) -> Array:
        return np.log1p(squares / self.reach)

    def mean_of(self, views: Array, squares: Array) -> Array:
        """Return the views, given those of the other density and the squared distances."""
        scales = self.scales.astype(views.dtype).reshape(-1, *[1] * np.ndim(squares))
        return 0.5 * views - scales * self._falling(squares)

    @property
    def base(self) -> Mixture:
        """The model of both classes."""
        return self.inner.base

    @property
    def bases(self) -> tuple[Mixture, ...]:
        """The model of both classes, which covers all axes."""
        return self.inner.bases

    @property
    def n_views(self) -> int:
        """Number of views of the other density."""
        return self.inner.n_views

    @cached_property
    def products(self) -> Array:
        """Matrix by which rows are multiplied: the other density's columns, then each axis."""
        return np.hstack([self.inner.products, np.eye(len(self.base.positive))])

    def views_of_products(self, products: Array) -> Array:
        """Return the views (n_views, n) of rows, or (n_views,) of a single row."""
        width = self.inner.products.shape[1]
        inner, z = self.inner.views_of_products(products[..., :width]), products[..., width:]
        return self.mean_of(inner, np.einsum("...j,...j->...", z, z))

    def views(self, z: Floats) -> Array:
        """Return the views of rows, shape (n_views, n), with the rows' dtype."""
        return self.mean_of(self.inner.views(z), np.einsum("ij,ij->i", z, z))

    def path(self, z: Array) -> Array:
        """Return the views based on the first 1, 2, ..., d axes, shape (n_views, n, d)."""
        return self.mean_of(self.inner.path(z), np.cumsum(np.square(z), axis=1))

    def views_of_sets(self, z: Array, sets: Ints, n_sets: int) -> Array:
        """Return the views of sets of rows, shape (n_views, n_sets); a set is where its mean is."""
        middle = sum_by(z, sets, n_sets) / np.bincount(sets, minlength=n_sets)[:, None]
        inner = self.inner.views_of_sets(z, sets, n_sets)
        return self.mean_of(inner, np.square(middle).sum(axis=1))

    def margin(self, axes: Sequence[int]) -> Near:
        """Return the density on a subset of the axes."""
        return replace(self, inner=self.inner.margin(axes))
