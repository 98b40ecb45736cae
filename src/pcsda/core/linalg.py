"""Dense linear algebra in one place: every tolerance and sign convention of the library."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from scipy.linalg.blas import dsyrk, dtrmm
from scipy.linalg.lapack import dtrtri

Array = NDArray[np.float64]

# Eigenvalues below this share of the largest, per row of the matrix, are rounding.
RANK_TOLERANCE = 8 * float(np.finfo(np.float64).eps)
# A Cholesky pivot below this share of its diagonal entry, per row, is rounding.
PIVOT_TOLERANCE = 8 * float(np.finfo(np.float64).eps)
# Rows handled at once: enough for BLAS-3, few enough to stay in cache.
BLOCK_BYTES = 4 << 20


class SingularMatrixError(ValueError):
    """A matrix that has to be positive definite is not, to working precision."""


def block_rows(width: int) -> int:
    """Return how many float64 rows of `width` columns make one block."""
    return max(256, BLOCK_BYTES // (8 * max(width, 1)))


def add_gram(rows: Array, out: Array) -> Array:
    """Add ``rows.T @ rows`` to the lower triangle of the Fortran-ordered `out`, in place."""
    result: Array = dsyrk(1.0, rows.T, beta=1.0, c=out, lower=1, overwrite_c=1)
    return result


def symmetrize(lower: Array) -> Array:
    """Mirror the lower triangle of `lower` onto the upper one, in place."""
    size = 256  # square tiles: index arrays of a triangle would weigh as much as the matrix
    for start in range(0, len(lower), size):
        stop = start + size
        lower[start:stop, stop:] = lower[stop:, start:stop].T
        tile = lower[start:stop, start:stop]
        tile[:] = np.tril(tile) + np.tril(tile, -1).T
    return lower


def cholesky(matrix: Array, ridge: float = 0.0) -> Array:
    """Return the lower Cholesky factor of ``matrix + ridge * I``; `matrix` is not changed.

    Raises
    ------
    SingularMatrixError
        When a pivot is not above rounding, so that the factor would be noise.
    """
    shifted = np.array(matrix, order="F")
    shifted.flat[:: len(matrix) + 1] += ridge
    diagonal = shifted.diagonal().copy()
    try:
        factor: Array = linalg.cholesky(shifted, lower=True, overwrite_a=True, check_finite=False)
    except linalg.LinAlgError as error:
        raise SingularMatrixError("the matrix is not positive definite") from error
    pivots = factor.diagonal() ** 2
    if np.any(pivots <= PIVOT_TOLERANCE * len(matrix) * diagonal):
        raise SingularMatrixError("the matrix is singular to working precision")
    return factor


def triangular_inverse(factor: Array) -> Array:
    """Return the inverse of a lower triangular matrix, D^3/3 operations."""
    inverse: Array = dtrtri(factor, lower=1)[0]
    return inverse


def whitened_square_norms(rows: Array, inverse_factor: Array) -> Array:
    """Return ``r' (L L')^-1 r`` for every row r, given ``L^-1``; overwrites `rows`.

    A product with the inverted triangle runs at two to three times the speed of a triangular
    solve with many right-hand sides, and the norms need no more accuracy than it has.
    """
    white = dtrmm(1.0, inverse_factor, rows.T, lower=1, overwrite_b=1)
    norms: Array = np.einsum("ji,ji->i", white, white)
    return norms


def lower_solve(factor: Array, right: Array, *, transposed: bool = False) -> Array:
    """Solve with a lower triangular factor, or with its transpose."""
    solution: Array = linalg.solve_triangular(
        factor, right, lower=True, trans=int(transposed), check_finite=False
    )
    return solution


def eigh_descending(matrix: Array) -> tuple[Array, Array]:
    """Eigenvalues of a symmetric matrix from large to small, with eigenvectors as columns."""
    values, vectors = linalg.eigh(matrix, check_finite=False)
    return values[::-1], vectors[:, ::-1]


def top_generalized(numerator: Array, denominator: Array, count: int) -> tuple[Array, Array]:
    """Leading `count` eigenpairs of ``numerator w = lambda denominator w``, ``w'Dw = 1``."""
    size = len(numerator)
    try:
        values, vectors = linalg.eigh(
            numerator, denominator, subset_by_index=[size - count, size - 1], check_finite=False
        )
    except linalg.LinAlgError as error:
        raise SingularMatrixError("the denominator is not positive definite") from error
    return values[::-1], vectors[:, ::-1]


def numerical_rank(eigenvalues: Array, size: int) -> int:
    """Count the leading eigenvalues (descending) that stand above rounding."""
    if len(eigenvalues) == 0 or eigenvalues[0] <= 0:
        return 0
    return int(np.sum(eigenvalues > RANK_TOLERANCE * size * eigenvalues[0]))


def fix_signs(components: Array) -> Array:
    """Flip rows so that the entry of largest magnitude in each is positive."""
    peak = np.abs(components).argmax(axis=1)
    signs = np.where(components[np.arange(len(components)), peak] < 0, -1.0, 1.0)
    return components * signs[:, None]


def row_span(centred: Array) -> tuple[Array, Array]:
    """Coordinates of wide rows (N x D, D > N) in an orthonormal basis of their span.

    Returns ``(coordinates, basis)`` with ``coordinates @ basis == centred``: distances and
    inner products are kept, so any solver may work on the N x N coordinates without loss.
    """
    basis, upper = linalg.qr(centred.T, mode="economic", check_finite=False)
    return np.ascontiguousarray(upper.T), np.ascontiguousarray(basis.T)
