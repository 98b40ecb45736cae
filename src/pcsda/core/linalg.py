"""Dense linear algebra, with all of the library's tolerances and sign conventions."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from itertools import pairwise
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from scipy.linalg.blas import dtrmm, dtrmv
from scipy.linalg.lapack import dpotrf, dpstrf, dtrtri, dtrtrs
from threadpoolctl import ThreadpoolController

Array = NDArray[np.float64]
Floats = NDArray[np.floating]
Ints = NDArray[np.intp]
Mask = NDArray[np.bool_]
Result = TypeVar("Result")
Item = TypeVar("Item")

# Eigenvalues below this share of the largest, times the number of rows, are rounding errors.
RANK_TOLERANCE = 8 * float(np.finfo(np.float64).eps)
# Cholesky pivots below this share of the diagonal entry, times the number of rows, are rounding
# errors.
PIVOT_TOLERANCE = 8 * float(np.finfo(np.float64).eps)
# Means whose distance is below this share of the root mean square spread differ only by rounding.
SAME_POINT = 1e-13
# Numbers with a smaller relative difference count as equal: rounding changes their mean by as much.
SAME_NUMBER = 1e-14
# Size of the blocks of rows: large enough for fast products, small enough for the cache.
BLOCK_BYTES = 4 << 20
# Rows of up to this many columns are divided among the library's own threads; see `over_rows`. For
# wider rows, each thread would need a large matrix for its sum of products.
NARROW = 512
# BLAS starts no threads for matrices of up to TINY rows; up to SMALL rows, they do not pay off.
TINY, SMALL = 64, 1024
# With up to this many multiplications, threads wait for each other longer than they work.
LIGHT_WORK = 2e8


class SingularMatrixError(ValueError):
    """Error raised if a matrix should be positive definite but is not, to working precision."""


class NotDefinite(ValueError):
    """Error raised if a kernel matrix is not positive definite, or too rough to tell."""


class TooFewRowsError(ValueError):
    """Error raised if the rows so far do not determine a model, although more rows may."""


def block_rows(width: int) -> int:
    """Return the number of float64 rows of `width` columns in one block.

    A block has at least four rows per column, so that adding up one matrix of products per block,
    of shape (width, width), stays cheap.
    """
    return max(BLOCK_BYTES // (8 * max(width, 1)), 4 * width)


def cache_rows(width: int) -> int:
    """Return the number of float64 rows of `width` columns that fit in the cache.

    Use it where no matrix of products is added up per block; otherwise see :func:`block_rows`.
    """
    return max(BLOCK_BYTES // (8 * max(width, 1)), 64)


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="blas")


# Number of threads among which narrow rows are divided while BLAS is limited to one.
_row_threads: ContextVar[int | None] = ContextVar("row_threads", default=None)
# Whether BLAS is already limited to one thread; limiting it again takes as long as a small product.
_held: ContextVar[bool] = ContextVar("held", default=False)


def _threads() -> int:
    """Return the number of threads among which rows are divided: as many as BLAS would use."""
    known = _row_threads.get()
    return known or max((library["num_threads"] for library in _blas().info()), default=1)


@cache
def _pool() -> ThreadPoolExecutor:
    """Return a reusable thread pool, because starting threads takes as long as a small product."""
    return ThreadPoolExecutor(thread_name_prefix="pcsda")


if hasattr(os, "register_at_fork"):  # no thread survives in a forked child
    os.register_at_fork(after_in_child=_pool.cache_clear)


@contextmanager
def narrow_fit(width: int) -> Iterator[None]:
    """Limit BLAS to one thread while rows of at most NARROW columns are fitted.

    `over_rows` divides such rows among its own threads. Without the limit, small products would
    wake BLAS threads, which then spin and take cores away from the threads of `over_rows`.
    """
    if width > NARROW:
        yield
        return
    token = _row_threads.set(_threads())
    try:
        with one_thread():
            yield
    finally:
        _row_threads.reset(token)


def is_light(n_rows: int, width: int) -> bool:
    """Return whether factorising the rows is too little work to use several threads."""
    return n_rows * width * min(n_rows, width) <= LIGHT_WORK


@contextmanager
def one_thread(alone: bool = True) -> Iterator[None]:
    """Limit BLAS to one thread, unless `alone` is False.

    Idle BLAS threads spin, which makes small products many times slower on a busy machine.
    """
    if not alone or _held.get():
        yield
        return
    token = _held.set(True)
    try:
        with _blas().limit(limits=1):
            yield
    finally:
        _held.reset(token)


def over_rows(work: Callable[[int, int], Result], n_rows: int, width: int) -> list[Result]:
    """Call ``work(start, stop)`` on ranges that together cover all rows, and return the results.

    Rows wider than NARROW form one range, and BLAS uses its own threads. Narrow rows are divided
    among as many threads as BLAS would use, each with single-threaded BLAS, so that gathering and
    centring also run in parallel. NumPy releases the interpreter lock during products.
    """
    threads = 2 * n_rows // block_rows(width) if width <= NARROW else 1
    if threads > 1:
        threads = min(threads, _threads())
    if threads <= 1:
        return [work(0, n_rows)]
    edges = [n_rows * part // threads for part in range(threads + 1)]
    with one_thread():
        others = [_pool().submit(work, *ends) for ends in pairwise(edges[1:])]
        try:
            return [work(0, edges[1]), *(other.result() for other in others)]
        finally:
            wait(others)


def in_threads(work: Callable[[Item], object], items: Iterable[Item]) -> None:
    """Call a function on each item, in as many threads as BLAS would use.

    Each thread has single-threaded BLAS, so that the work between products also runs in parallel.
    """
    threads = _threads()
    if threads == 1:
        for item in items:
            work(item)
        return
    with one_thread(), ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(work, items):
            pass


def cholesky(matrix: Array, ridge: float = 0.0) -> Array:
    """Return the lower Cholesky factor of ``matrix + ridge * I`` without changing `matrix`.

    Raises
    ------
    SingularMatrixError
        If a pivot is no larger than rounding error, so that the factor would be meaningless.
    """
    shifted = np.array(matrix, dtype=np.float64, order="C")
    if len(matrix) <= TINY:
        return cholesky_in_place(shifted, ridge)
    with one_thread(len(matrix) <= SMALL):
        return cholesky_in_place(shifted, ridge)


def cholesky_in_place(matrix: Array, ridge: float) -> Array:
    """Overwrite a symmetric matrix with the lower Cholesky factor of ``matrix + ridge * I``.

    Raises SingularMatrixError as :func:`cholesky` does.
    """
    if ridge:
        matrix.flat[:: len(matrix) + 1] += ridge
    least = PIVOT_TOLERANCE * len(matrix) * matrix.diagonal()
    # The transpose of a symmetric matrix is the same matrix in LAPACK's memory order. NumPy would
    # copy the matrix twice, which takes as long as the factorisation.
    factor: Array
    factor, failed = dpotrf(matrix.T, lower=1, overwrite_a=1)
    if failed:
        raise SingularMatrixError("the matrix is not positive definite")
    pivots = factor.diagonal()
    if (pivots * pivots <= least).any():
        raise SingularMatrixError("the matrix is singular to working precision")
    return factor


def triangular_inverse(factor: Array) -> Array:
    """Return the inverse of a lower triangular matrix by ``D^3/3`` operations, mostly products."""
    size = len(factor)
    if size == 0:  # LAPACK takes no empty matrix
        return np.zeros((0, 0))
    if size <= TINY:
        # LAPACK reads rows in C order as the transpose.
        return np.asarray(dtrtri(factor.T, lower=0)[0].T)
    half = size // 2
    inverse = np.zeros((size, size), order="F")
    with one_thread(size <= SMALL):
        top = inverse[:half, :half] = triangular_inverse(factor[:half, :half])
        bottom = inverse[half:, half:] = triangular_inverse(factor[half:, half:])
        # Products with triangles take half the time of full products.
        corner = dtrmm(-1.0, top, factor[half:, :half], side=1, lower=1)
        inverse[half:, :half] = dtrmm(1.0, bottom, corner, lower=1, overwrite_b=1)
    return inverse


def whitened_square_norms(
    rows: Floats, inverse_factor: Floats, columns: Floats
) -> tuple[Array, Floats]:
    """Return ``r' (L L')^-1 r`` for each row r, and the products ``rows @ columns``.

    `inverse_factor` is ``L^-1``. A product with ``L^-1`` is two to three times as fast as a
    triangular solve with many right-hand sides, and accurate enough for norms.
    """
    norms = np.zeros(len(rows))
    width = max(72, len(inverse_factor) // 8)
    size = len(inverse_factor)
    panels = np.empty((width + columns.shape[1], len(rows)), rows.dtype)  # allocated once
    for start in range(0, size, width):  # panels skip most of the zero triangle
        stop = min(start + width, size)
        factor = inverse_factor[start:stop, :stop]
        if stop == size:  # the last panel includes the columns
            factor = np.vstack([factor, columns.T])
        panel = np.matmul(factor, rows[:, :stop].T, out=panels[: len(factor)])
        white = panel[: stop - start]
        norms += np.einsum("ji,ji->i", white, white)
    return norms, panel[stop - start :].T


def lower_solve(factor: Array, right: Array, *, transposed: bool = False) -> Array:
    """Solve ``factor @ x = right`` for a lower triangular factor.

    If `transposed`, solve ``factor.T @ x = right`` instead.
    """
    if right.size == 0:
        return np.zeros_like(right)
    # LAPACK reads rows in C order as the transpose. SciPy's wrapper is slower than a small solve.
    lower = factor.flags.f_contiguous
    turned = transposed if lower else not transposed
    # SciPy may have its own BLAS library, whose idle threads would compete with those of NumPy.
    with one_thread():
        found, failed = dtrtrs(
            factor if lower else factor.T, right, lower=int(lower), trans=int(turned)
        )
    if failed:
        raise linalg.LinAlgError(f"the factor is singular at diagonal entry {failed}")
    solution: Array = found.reshape(right.shape)
    return solution


def eigh_descending(matrix: Array) -> tuple[Array, Array]:
    """Return a symmetric matrix's eigenvalues in descending order, and eigenvectors as columns."""
    values, vectors = np.linalg.eigh(matrix)
    return values[::-1], vectors[:, ::-1]


def top_generalized(numerator: Array, denominator: Array, count: int) -> tuple[Array, Array]:
    """Return the `count` leading eigenpairs of ``numerator w = lambda denominator w``.

    Eigenvectors are columns, scaled so that ``w' denominator w = 1``.
    """
    size = len(numerator)
    cholesky(denominator)  # LAPACK would accept pivots that are only rounding error
    values, vectors = linalg.eigh(
        numerator, denominator, subset_by_index=[size - count, size - 1], check_finite=False
    )
    return values[::-1], vectors[:, ::-1]


def top_eigenvectors(matrix: Array, count: int) -> Array:
    """Return the `count` leading eigenvectors of a symmetric matrix as columns, best first."""
    window = [len(matrix) - count, len(matrix) - 1]
    vectors: Array = linalg.eigh(matrix, subset_by_index=window, check_finite=False)[1]
    return vectors[:, ::-1]


def numerical_rank(eigenvalues: Array, size: int) -> int:
    """Count the eigenvalues that exceed the rounding error of a matrix with `size` rows.

    Eigenvalues must be in descending order.
    """
    if len(eigenvalues) == 0 or eigenvalues[0] <= 0:
        return 0
    return int(np.sum(eigenvalues > RANK_TOLERANCE * size * eigenvalues[0]))


def row_signs(components: Array) -> Array:
    """Return the sign, 1 or -1, of each row's largest entry by magnitude."""
    peak = np.abs(components).argmax(axis=1)
    return np.where(components[np.arange(len(components)), peak] < 0, -1.0, 1.0)


def fix_signs(components: Array) -> Array:
    """Flip rows so that each row's largest entry by magnitude is positive."""
    return components * row_signs(components)[:, None]


def unit_rows(X: Floats) -> Floats:
    """Divide each row by its Euclidean length; rows of zeros stay zero."""
    # Rows are first divided by their largest entry, so that lengths neither overflow nor underflow.
    largest = np.abs(X).max(axis=1, keepdims=True)
    near = X / np.where(largest > 0, largest, 1)
    length = np.linalg.norm(near, axis=1, keepdims=True)
    unit: Floats = near / np.maximum(length, 1)
    return unit


def row_span(centred: Array) -> tuple[Array, Array]:
    """Return wide rows (N x D, D > N) as coordinates in an orthonormal basis of their span.

    Returns ``(coordinates, basis)`` with ``coordinates @ basis == centred``. Distances and inner
    products stay the same, so any solver can use the N x N coordinates instead of the rows.
    """
    basis, upper = np.linalg.qr(centred.T)
    return np.ascontiguousarray(upper.T), np.ascontiguousarray(basis.T)


def row_floor(X: Floats, tol: float) -> float:
    """Return the squared distance from a span below which a row counts as part of the span.

    `tol` is relative to the largest squared length of a row.
    """
    rounding = float(np.finfo(np.float64).eps) * max(X.shape)
    lengths: Array = np.einsum("ij,ij->i", X, X, dtype=np.float64)
    share: float = max(tol, rounding**2)
    return share * float(lengths.max())


def row_basis(X: Floats, floor: float) -> tuple[Array, Ints, Array]:
    """Build an orthonormal basis of the span of the rows.

    Each step adds the row that is farthest from the span so far, until the squared distances of all
    rows from the span are at most `floor`. A pivoted Cholesky factorisation of ``X X'`` has the
    same pivots, but inner products keep only half of the digits. Cost: ``2 N D min(N, D)``.

    Returns
    -------
    basis : array of shape (D, rank)
        ``X @ basis`` has the inner products of X.
    pivots : array of shape (rank,)
        Numbers of the added rows, in the order of the steps.
    factor : array of shape (rank, rank)
        ``X[pivots] @ basis``, lower triangular.
    """
    columns, turn = np.asarray(X, dtype=np.float64).T, None
    if columns.shape[0] > columns.shape[1]:  # LAPACK is slow at pivoting wide rows
        turn, columns = np.linalg.qr(columns)
    basis, upper, order = linalg.qr(columns, mode="economic", pivoting=True, check_finite=False)
    lengths = upper.diagonal()
    rank = int(np.sum(lengths**2 > floor))
    signs = np.where(lengths[:rank] < 0, -1.0, 1.0)
    basis = basis[:, :rank] * signs
    factor = np.ascontiguousarray(upper[:rank, :rank].T * signs)
    return basis if turn is None else turn @ basis, order[:rank].astype(np.intp), factor


def pivoted_cholesky(matrix: Array, floor: float, largest: float) -> tuple[Array, Ints, Ints]:
    """Factorise a positive semi-definite matrix, pivoting on the largest remaining diagonal entry.

    Stops when all remaining diagonal entries are at most `floor`. Overwrites `matrix`. Rounding
    errors are judged relative to `largest`.

    Returns
    -------
    factor : array of shape (N, rank)
        ``matrix[order][:, order]`` is ``factor @ factor.T`` up to the remainder.
    order : array of shape (N,)
        Row numbers, pivots first.
    pivots : array of shape (rank,)
        The first `rank` entries of `order`.
    """
    size, diagonal = len(matrix), matrix.diagonal().copy()
    if diagonal.max(initial=0.0) <= floor:
        return np.zeros((size, 0)), np.arange(size), np.arange(0)
    # The transpose of a symmetric matrix is the matrix in LAPACK's order, so this copies nothing.
    packed, order, rank, _ = dpstrf(matrix.T, lower=1, tol=floor, overwrite_a=1)
    order = order.astype(np.intp) - 1
    factor = np.tril(packed[:, :rank])
    if _is_indefinite(packed, diagonal, factor, order, 1e-6 * largest):
        raise NotDefinite(
            "the kernel matrix is not positive semi-definite; use a positive definite kernel such "
            "as 'rbf', or other kernel parameters"
        )
    return factor, order, order[:rank]


def _is_indefinite(
    packed: Array, diagonal: Array, factor: Array, order: Ints, slack: float
) -> bool:
    """Return whether the remainder of a factorisation shows that the matrix is indefinite.

    The remainder of a semi-definite matrix has no negative diagonal entry, and its product with a
    vector of signs satisfies the Cauchy-Schwarz inequality. LAPACK leaves the matrix intact above
    the diagonal of `packed`, so the matrix is read from there. `slack` is the allowed rounding
    error.
    """
    left = diagonal[order] - np.einsum("ij,ij->i", factor, factor)
    signs = np.random.default_rng(0).choice([-1.0, 1.0], len(diagonal))
    np.fill_diagonal(packed, diagonal / 2)
    product = dtrmv(packed, signs) + dtrmv(packed, signs, trans=1)
    remains = product[order] - factor @ (factor.T @ signs[order])
    size = np.sqrt(np.maximum(left, 0.0))
    allowed = size * size.sum() + slack
    return bool(left.min() < -slack or np.any(np.abs(remains) > allowed))


def pivot_floor(tol: float, size: int, largest: float) -> float:
    """Return the size up to which pivots are dropped.

    It is ``tol * largest``, or the rounding error of a matrix with `size` rows if that is larger.
    """
    return max(tol, float(np.finfo(np.float64).eps) * size) * largest


def feature_factor(matrix: Array, tol: float) -> tuple[Array, Ints, Array, float]:
    """Compute feature vectors whose inner products are the entries of a kernel matrix.

    The kernel matrix is overwritten.

    Returns
    -------
    features : array of shape (N, rank)
    pivots : array of shape (rank,)
        Indices of the pivot rows.
    factor : array of shape (rank, rank)
        Features of the pivot rows, lower triangular.
    floor : float
        Pivots up to this size are dropped; see :func:`pivot_floor`.
    """
    largest = float(matrix.diagonal().max())
    if not largest > 0:
        raise ValueError(
            f"the kernel matrix has no positive diagonal entry (largest {largest:.3g}); a kernel "
            "must give k(x, x) > 0"
        )
    floor = pivot_floor(tol, len(matrix), largest)
    factor, order, pivots = pivoted_cholesky(matrix, floor, largest)
    features = np.empty_like(factor)
    features[order] = factor
    return features, pivots, np.ascontiguousarray(factor[: len(pivots)]), floor
