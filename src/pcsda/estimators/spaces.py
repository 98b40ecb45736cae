"""Spaces in which a bank's rows are factorised: input space, span of rows, feature space."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ..core import linalg
from ..core.gram import features_of
from ..core.linalg import Array, Floats, Ints
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
        directions: Array = (self.basis @ coefficients).T
        return directions

    def mean(self, mean: Array) -> Array:
        """Return the mean in input space."""
        return self.origin + mean @ self.basis.T


@dataclass(frozen=True)
class DualSpace:
    """The feature space of a kernel, with exact features of the training rows."""

    kernel: Kernel
    features: Array
    pivots: Ints
    triangle: Array

    @classmethod
    def of(cls, kernel: Kernel, X: Floats, regularization: float, verbose: bool) -> DualSpace:
        """Compute the kernel matrix and factorise it, which costs ``N^3/3``."""
        matrix = training_matrix(kernel, X, verbose)
        return cls(kernel, *features_of(matrix, None, regularization))

    def axes(self, coefficients: Array) -> Array:
        """Return coefficients of the kernel values with all training rows."""
        dual = np.zeros((coefficients.shape[1], len(self.features)))
        solved = linalg.lower_solve(self.triangle, coefficients, transposed=True)
        dual[:, self.pivots] = solved.T
        return dual

    def mean(self, mean: Array) -> Array:
        """Return the mean of features unchanged, because input space has no such point."""
        return mean
