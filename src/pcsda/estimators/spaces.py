"""Spaces in which a bank's rows are factorised: input space, span of rows, feature space."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from ..core import linalg
from ..core.kernel_matrix import FEATURE_TOLERANCE, features_of
from ..core.linalg import Array, Floats, Ints, Mask
from ..core.spread import centred
from ..kernels import Kernel, training_matrix

# Squared distances from a span count as zero below this share of the largest squared row length.
SPAN_TOLERANCE = 1e-24


class Space(Protocol):
    """Features of the training rows, and a map from axes over features to axes over new rows."""

    @property
    def features(self) -> Floats:
        """Features of the training rows, shape (N, r)."""

    @property
    def kernel(self) -> Kernel | None:
        """The kernel of a feature space; None in input space."""

    def axes(self, coefficients: Array) -> Array:
        """Turn coefficients of features into axes that project rows or kernel values.

        The axes have shape (d, D) for rows of X, and (d, N) for kernel values.
        """

    def mean(self, mean: Array) -> Array:
        """Map a mean of features to a point in input space."""


@dataclass(frozen=True)
class PlainSpace:
    """The rows themselves, if there are no more columns than rows."""

    features: Floats
    kernel: Kernel | None = None

    def axes(self, coefficients: Array) -> Array:
        """Return the coefficients themselves, as rows."""
        return coefficients.T

    def mean(self, mean: Array) -> Array:
        """Return the mean unchanged."""
        return mean


@dataclass(frozen=True)
class SpanSpace:
    """The span of the rows in an orthonormal basis, if there are more columns than rows."""

    features: Array
    origin: Array
    basis: Array
    kernel: Kernel | None = None

    @classmethod
    def of(cls, X: Floats) -> SpanSpace:
        """Find a basis of the rows' span, at a cost of ``2 N^2 D``."""
        middle, origin, _ = centred(X, None)
        basis, _, _ = linalg.row_basis(middle, linalg.row_floor(middle, SPAN_TOLERANCE))
        return cls(middle @ basis, origin, basis)

    def axes(self, coefficients: Array) -> Array:
        """Return directions in input space."""
        return (self.basis @ coefficients).T

    def mean(self, mean: Array) -> Array:
        """Return the mean in input space."""
        return self.origin + mean @ self.basis.T


@dataclass(frozen=True)
class DualSpace:
    """The feature space of a kernel, with exact features of the training rows.

    Attributes
    ----------
    kernel : Kernel
    features : array of shape (N, r)
    pivots : array of shape (r,)
        The rows that define the features, as positions among the rows of the kernel values.
    triangle : array of shape (r, r)
        Features of the pivots, lower triangular.
    n_support : int
        Number of rows with which kernel values are computed. These are the training rows, and rows
        that were removed since.
    """

    kernel: Kernel
    features: Array
    pivots: Ints
    triangle: Array
    n_support: int

    @classmethod
    def of(cls, kernel: Kernel, X: Floats, regularization: float, verbose: bool) -> DualSpace:
        """Compute the kernel matrix and factorise it, which costs ``N^3/3``."""
        matrix = training_matrix(kernel, X, verbose)
        return cls(kernel, *features_of(matrix, None, regularization), len(X))

    def within(self, index: Ints, n_support: int) -> DualSpace:
        """Let the axes refer to `n_support` rows, of which `index` gives the training rows."""
        return replace(self, pivots=index[self.pivots], n_support=n_support)

    def appended(self, support: Floats, count: int) -> DualSpace:
        """Add the last `count` of the rows `support`, in ``r^2`` operations per row.

        Old rows keep their features. What these features lack of the new rows adds new ones.
        """
        fresh = support[-count:]
        known = linalg.lower_solve(self.triangle, self.kernel(support[self.pivots], fresh)).T
        products = self.kernel(fresh, fresh)
        largest = float(products.diagonal().max())
        floor = linalg.pivot_floor(FEATURE_TOLERANCE, len(support), largest)
        factor, order, pivots = linalg.pivoted_cholesky(products - known @ known.T, floor, largest)
        own = factor[np.argsort(order)]
        return replace(
            self,
            features=_bordered(self.features, known, own),
            pivots=np.append(self.pivots, len(support) - count + pivots),
            triangle=_bordered(self.triangle, known[pivots], own[pivots]),
            n_support=len(support),
        )

    def kept(self, rows: Mask) -> DualSpace:
        """Return the features of the rows that the mask selects; axes may refer to the others."""
        return replace(self, features=self.features[rows])

    def axes(self, coefficients: Array) -> Array:
        """Return coefficients of the kernel values with all training rows."""
        dual = np.zeros((coefficients.shape[1], self.n_support))
        solved = linalg.lower_solve(self.triangle, coefficients, transposed=True)
        dual[:, self.pivots] = solved.T
        return dual

    def mean(self, mean: Array) -> Array:
        """Return the mean of features unchanged, because input space has no such point."""
        return mean


def _bordered(corner: Array, left: Array, right: Array) -> Array:
    """Return the matrix ``[[corner, 0], [left, right]]``."""
    rows, columns = corner.shape
    found = np.zeros((rows + len(left), columns + right.shape[1]))
    found[:rows, :columns] = corner
    found[rows:, :columns], found[rows:, columns:] = left, right
    return found
