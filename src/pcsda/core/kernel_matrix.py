"""Kernel matrices: their ridge and origin, whether they are precise enough, and exact features."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from . import linalg
from .linalg import PIVOT_TOLERANCE, Array, Floats, Ints, NotDefinite, TooFewRowsError
from .loo import EVERY, Leave
from .spread import centred, ridge_of
from .subspace import Factor, Subspace

EPSILON = float(np.finfo(np.float64).eps)
# Kernel values are too coarse if their rounding error exceeds these shares of the ridge or of the
# variance in feature space.
COARSE_RIDGE, COARSE_VARIANCE = 1e-3, 1e-4
# Pivots of the exact features below this share of the largest diagonal entry are rounding errors.
FEATURE_TOLERANCE = 1e-12


def total_variance(matrix: Array, weights: Array | None) -> float:
    """Return trace(S_T) / N in feature space: the mean diagonal entry minus the mean entry."""
    if weights is None:
        return float(matrix.diagonal().mean() - matrix.mean())
    share = weights / weights.sum()
    return float(share @ matrix.diagonal() - share @ matrix @ share)


def kernel_ridge(matrix: Array, weights: Array | None, regularization: float) -> float:
    """Return the absolute ridge in feature space.

    Raises an error if the kernel values do not vary, or are too coarse for the ridge.
    """
    variance = total_variance(matrix, weights)
    largest = float(np.abs(matrix.diagonal()).max())
    if variance < -1e-8 * largest:
        raise not_definite(regularization)
    if variance <= PIVOT_TOLERANCE * largest:
        raise TooFewRowsError(
            f"the kernel sees all rows of X as equal: its values of up to {largest:.3g} do not "
            "vary; centre X first, change the kernel's parameters or give rows that differ"
        )
    ridge = ridge_of(variance, regularization)
    if _rounding(matrix) > min(COARSE_RIDGE * ridge, COARSE_VARIANCE * variance):
        raise _rounded(largest, variance, regularization)
    return ridge


def _rounding(matrix: Array) -> float:
    """Return the size of the rounding error of a kernel matrix; the error acts as a feature."""
    return float(EPSILON * np.sqrt(len(matrix)) * np.abs(matrix.diagonal()).max())


def require_fine(matrix: Array, dtype: type[np.floating]) -> None:
    """Raise an error if rounding in `dtype` would hide the variance of a kernel's feature space."""
    variance, largest = total_variance(matrix, None), float(matrix.diagonal().max())
    _require_fine(variance, largest, _rounding(matrix), dtype)


def require_fine_rows(X: Floats) -> None:
    """Raise an error if rounding would hide the variance of rows when the rows are rotated."""
    _, _, variance = centred(X, None)
    largest = float(np.einsum("ij,ij->i", X, X, dtype=np.float64).max())
    _require_fine(variance, largest, 0.0, X.dtype.type)


def _require_fine(
    variance: float, largest: float, rounding: float, dtype: type[np.floating]
) -> None:
    if variance <= PIVOT_TOLERANCE**2 * largest:  # kernel maps accept rows that are all equal
        return
    of_features = float(np.finfo(dtype).eps) * np.sqrt(largest / variance)
    if rounding > COARSE_VARIANCE * variance or of_features > COARSE_VARIANCE:
        raise _rounded(largest, variance)


def _rounded(largest: float, variance: float, regularization: float | None = None) -> ValueError:
    which, remedy = "to tell rows apart", "centre X first or change the kernel's parameters"
    if regularization is not None:
        which = f"for regularization={regularization:g}"
        remedy = "centre X first, change the kernel's parameters or raise regularization"
    return ValueError(
        f"kernel values of up to {largest:.3g} with a variance of {variance:.3g} in feature space "
        f"are too coarse {which}; {remedy}"
    )


def not_definite(regularization: float) -> NotDefinite:
    """Create the error for a kernel matrix that has no Cholesky factor."""
    return NotDefinite(
        f"the kernel matrix is not positive definite at regularization={regularization:g}; use a "
        "positive definite kernel such as 'rbf', other kernel parameters, or a larger "
        "regularization"
    )


def move_origin(matrix: Array, weights: Array | None, variance: float) -> Array | None:
    """Move the origin of feature space close to the mean of the rows, by changing the matrix.

    The statistics do not depend on the origin, but a large part common to all kernel values would
    reduce precision. A small constant feature remains, so that the matrix is regular. The matrix
    changes only if `variance`, trace(S_T) / N, is small compared with the kernel values.

    Returns
    -------
    means : array of shape (N,) or None
        For each row, the number subtracted from all its kernel values. The coefficients of each
        axis sum to zero, so the move only shifts the origin of a subspace, by
        ``coefficients' means``.
    """
    share = np.full(len(matrix), 1 / len(matrix)) if weights is None else weights / weights.sum()
    if share @ matrix.diagonal() <= 10 * variance:
        return None
    means: Array = matrix @ share
    shift = share @ means + variance / len(matrix)
    step = max(1, linalg.BLOCK_BYTES // (8 * len(matrix)))
    for start in range(0, len(matrix), step):
        block = matrix[start : start + step]
        block -= means
        block += (shift - means[start : start + step])[:, None]
    return means


@dataclass(frozen=True)
class FeatureFactor:
    """A factor that applies any solver to exact features of a kernel matrix.

    Attributes
    ----------
    inner : Factor
        Factor of the features.
    pivots : array of shape (rank,)
        Training rows that define the features.
    triangle : array of shape (rank, rank)
        Features of the pivots, lower triangular.
    """

    inner: Factor
    pivots: Ints
    triangle: Array

    def solve(
        self, groups: Ints, n_components: int | None = None, *, leave_out: Leave | None = EVERY
    ) -> Subspace:
        """Find the axes on the features; return them as coefficients of the training rows."""
        found = self.inner.solve(groups, n_components, leave_out=leave_out)
        coefficients = np.zeros((len(groups), len(found.eigenvalues)))
        coefficients[self.pivots] = linalg.triangular_inverse(self.triangle).T @ found.coefficients
        return replace(found, coefficients=coefficients, means=None)


def features_of(
    matrix: Array, weights: Array | None, regularization: float
) -> tuple[Array, Ints, Array]:
    """Return exact features of a kernel matrix, with the pivots and triangle that define them.

    See :class:`FeatureFactor`. The kernel matrix is overwritten.
    """
    ridge = kernel_ridge(matrix, weights, regularization)
    diagonal = matrix.diagonal().copy()
    features, pivots, triangle, _ = linalg.feature_factor(matrix, FEATURE_TOLERANCE)
    # The features dropped as rounding errors must be negligible compared with the ridge.
    left = np.maximum(diagonal - np.einsum("ij,ij->i", features, features), 0.0)
    if left.sum() > 0.1 * ridge:
        raise _rounded(diagonal.max(), ridge / regularization, regularization)
    return features, pivots, triangle
