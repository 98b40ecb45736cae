"""Solve from inner products of rows, using one Cholesky factor of an N x N matrix (MATH 7).

Wide rows (D > N) are solved this way because their Gram matrix is smaller than their scatter
matrix, and kernels because a kernel matrix is a Gram matrix in feature space. With sample weights,
the matrix is ``sqrt(w_i) k_ij sqrt(w_j)`` throughout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
from scipy.linalg.lapack import dtrtri

from . import linalg
from .cells import Cells, CellSums
from .kernel_matrix import EPSILON, kernel_ridge, move_origin, not_definite
from .linalg import PIVOT_TOLERANCE, Array, Floats, Ints, Mask, SingularMatrixError
from .loo import EVERY, Leave
from .scatter import Grouping
from .solvers import require_apart
from .spread import centred, ridges_of, singular_scatter
from .subspace import Solution, Subspace


@dataclass(frozen=True)
class Rows:
    """The rows behind a Gram matrix minus their mean `origin`, with their variance.

    `lift` is the constant that was added to all inner products; see :func:`wide`.
    """

    middle: Array
    origin: Array
    variance: float
    lift: float


@dataclass(frozen=True)
class WideRows:
    """Wide rows with their inner products, computed once for k-means and for the factor.

    Attributes
    ----------
    middle : array of shape (N, D)
        The rows about their grand mean.
    origin : array of shape (D,)
        The grand mean.
    variance : float
        Mean squared distance of the rows from `origin`.
    products : array of shape (N, N)
        Inner products of the rows about the grand mean.
    """

    middle: Array
    origin: Array
    variance: float
    products: Array

    @classmethod
    def of(cls, X: Floats, weights: Array | None = None) -> WideRows:
        """Compute the inner products of wide rows in ``N^2 D`` operations.

        `weights` affect the grand mean and the variance, but do not scale the products.
        """
        middle, origin, variance = centred(X, weights)
        with np.errstate(over="ignore", invalid="ignore"):  # an overflow shows in the variance
            return cls(middle, origin, variance, middle @ middle.T)


@dataclass(frozen=True)
class GramFactor:
    """A factor that solves any division of rows from one Cholesky factor of their Gram matrix.

    Attributes
    ----------
    factor : array of shape (N, N)
        Lower Cholesky factor of ``Kx + eps I``.
    ridge : float
    trace : float
        Trace of ``Kx + eps I``.
    weights : array of shape (N,) or None
    moved : array of shape (N,) or None
        For each row, the number that was subtracted from all its kernel values; see
        :func:`move_origin`.
    rows : Rows or None
        The wide rows themselves. The axes are then directions in the space of these rows. None for
        kernels.
    spend : bool
        Whether the first solution that leaves rows out may overwrite the factor.
    n_last : int or None
        If a number m, only the last m rows of the matrix may be left out. If None, any row may be.
    """

    factor: Array
    ridge: float
    trace: float
    weights: Array | None = None
    moved: Array | None = None
    rows: Rows | None = None
    spend: bool = False
    n_last: int | None = None

    @cached_property
    def inverse(self) -> Array:
        """Inverse of the Cholesky factor, computed once in ``N^3/3`` operations."""
        return np.tril(self._inverted())

    @cached_property
    def diagonal(self) -> Array:
        """Diagonal of ``(Kx + eps I)^-1``, computed once in ``N^3/3`` operations for all divisions.

        With `n_last`, only the entries of the last rows are computed; all other entries are NaN.
        """
        inverse = self._inverted()
        diagonal = np.full(len(self.factor), np.nan)
        diagonal[len(diagonal) - len(inverse) :] = np.einsum("ji,ji->i", inverse, inverse)
        return diagonal

    def _inverted(self) -> Array:
        if self.n_last is None and len(self.factor) <= linalg.SMALL:
            return linalg.triangular_inverse(self.factor)
        factor = self.factor if self.spend else self.factor.copy(order="F")
        if self.n_last is not None:
            factor = last_block(factor, self.n_last)
        inverse: Array = dtrtri(factor, lower=1, overwrite_c=1)[0]
        return inverse

    def solve(
        self, groups: Ints, n_components: int | None = None, *, leave_out: Leave | None = EVERY
    ) -> Subspace:
        """Find the axes by triangular solves, in ``2 N^2 (K + 1)`` operations.

        No other step takes N^2 operations. The Gram matrix itself is not needed, because its
        product with the solution Y is known: ``(Kx + eps I) Y = E``, where E holds the group
        indicators.
        """
        division = Grouping.of(groups, self.weights)
        half = linalg.lower_solve(self.factor, _indicators(division))
        solved = linalg.lower_solve(self.factor, half, transposed=True)
        inner = half.T @ half
        means = None if self.rows is None else division.means(self.rows.middle)
        return self.solve_targets(solved, inner, means, division, n_components, leave_out)

    def over(self, cells: Cells) -> GramCells:
        """Solve for the indicators of the cells once, so that all classes can share the result."""
        indicators = np.zeros((len(cells.rows), len(cells.counts)))
        indicators[np.arange(len(cells.rows)), cells.rows] = 1.0
        half = linalg.lower_solve(self.factor, indicators)
        solved = linalg.lower_solve(self.factor, half, transposed=True).T
        plain = None
        if self.rows is not None:
            plain = cells.sums(self.rows.middle)
        overlaps = CellSums(cells, half.T @ half)
        return GramCells(self, cells, CellSums(cells, solved), overlaps, plain)

    def solve_targets(
        self,
        solved: Array,
        inner: Array,
        means: Array | None,
        division: Grouping,
        n_components: int | None,
        leave_out: Leave | None,
    ) -> Subspace:
        """Find the axes from ``Y = (Kx + eps I)^-1 E`` and ``E'Y``, in O(N K^2) operations.

        E holds the group indicators, `solved` is Y, and `inner` is ``E'Y``. `means` are the group
        means relative to the grand mean; None for kernels.
        """
        if means is not None and self.rows is not None:
            means = means + self.rows.origin
            require_apart(means, self.rows.variance)
        solution = self._solution(solved, inner, division)
        found = solution.subspace(division, n_components, leave_out, means)
        if self.moved is None:
            return found
        return replace(found, origin=found.origin + self.moved @ found.coefficients)

    def _solution(self, solved: Array, inner: Array, division: Grouping) -> Solution:
        unit, counts = _indicators(division), division.counts
        scale, root = np.sqrt(counts), np.sqrt(division.weight)
        contrast = np.vstack([np.full(len(counts) - 1, -1 / scale[0]), np.diag(1 / scale[1:])])
        inner_factor = linalg.cholesky(inner)
        half = linalg.lower_solve(inner_factor, contrast)
        weighted = linalg.lower_solve(inner_factor, half, transposed=True)  # (E'Y)^-1 C
        alpha = solved @ weighted / self.ridge
        # Kx alpha = E (E'Y)^-1 C / eps - eps alpha; outside the group means it is -eps P alpha.
        residuals = -self.ridge * (alpha - unit @ (unit.T @ alpha)) / root[:, None]
        means = (weighted / self.ridge - contrast) / scale[:, None]
        gram = means[1:] - means[0]
        # The factor's rounding error acts as an extra feature; only the ridge keeps it small.
        noise = EPSILON * self.trace / self.ridge * (1 / counts[1:] + 1 / counts[0]).max()

        def block(members: Ints) -> tuple[Array, Array]:
            # About the origin of feature space, V A_T V' = (I - eps R) on weighted rows, where
            # R = (Kx + eps I)^-1; the weights are divided out.
            with_means = (unit[members] - self.ridge * solved[members]) / scale
            return self._among(members, root), with_means / root[members][..., None]

        directions = root[:, None] * alpha  # coefficients of the rows
        if self.rows is not None:
            directions = (directions.T @ self.rows.middle).T  # faster than middle.T @ directions
        return Solution(
            gram=(gram + gram.T) / 2,
            residuals=residuals,
            directions=directions,
            origin=means[0],
            noise=float(noise),
            overlap=(np.eye(len(counts)) - self.ridge * inner) / np.outer(scale, scale),
            block=block,
            leverages=lambda: self._leverages(linalg.lower_solve(inner_factor, solved.T), division),
        )

    def _among(self, members: Ints, root: Array) -> Array:
        """Return the inner products ``V A_T V'`` among the rows of each block (MATH 17).

        `members` holds the row numbers of each block, and `root` the square roots of the weights.
        """
        columns, weight = self.inverse.T[members], root[members]
        inner = self.ridge * (columns @ columns.swapaxes(-1, -2))
        among: Array = np.eye(members.shape[-1]) - inner
        return among / (weight[..., None] * weight[..., None, :])

    def _leverages(self, half: Array, division: Grouping) -> tuple[Array, Array]:
        """Return ``h_i = r_i' A r_i`` and the gap ``1 - f_i h_i`` of each row (MATH 8).

        The gap comes directly from the factor. Computed as a difference, it would lose all digits
        for rows with many dimensions and a small ridge. For a row that is alone in its group, the
        gap has no meaning.
        """
        unfitted = self.ridge * (self.diagonal - np.einsum("ji,ji->i", half, half))  # eps q_i
        weight = division.weight
        share = weight / division.counts[division.groups]
        with np.errstate(divide="ignore", invalid="ignore"):
            return (1 - share - unfitted) / weight, unfitted / (1 - share)

    def appended(self, X: Floats, values: Array | None = None) -> GramFactor:
        """Return a factor with n more rows of weight one, in ``2 N^2 n`` operations and a copy.

        X holds all rows, with the new ones last. `values` (n x (N + n)) holds the kernel values of
        the new rows with all rows. For wide rows, `values` is not needed: inner products are
        computed from X.
        """
        size, rows = len(self.factor), None
        if self.rows is not None:
            rows = replace(self.rows, middle=X - self.rows.origin)
            values = rows.middle[size:] @ rows.middle.T + rows.lift
        assert values is not None
        cross, own = values[:, :size], values[:, size:]
        more = len(own)
        half = linalg.lower_solve(self.factor, cross.T)
        corner = linalg.cholesky(own - half.T @ half, self.ridge)
        factor = np.zeros((size + more, size + more), order="F")
        factor[:size, :size] = self.factor
        factor[size:, :size] = half.T
        factor[size:, size:] = corner
        trace = self.trace + float(np.trace(own)) + more * self.ridge
        grown = GramFactor(factor, self.ridge, trace, rows=rows)
        if "diagonal" in self.__dict__:  # already computed, and an update is cheaper
            solved = linalg.lower_solve(self.factor, half, transposed=True)
            spread = linalg.lower_solve(corner, solved.T)
            inverse = linalg.triangular_inverse(corner)
            head = self.diagonal + np.einsum("ji,ji->i", spread, spread)
            tail = np.einsum("ji,ji->i", inverse, inverse)
            grown.__dict__["diagonal"] = np.append(head, tail)
        return grown

    def without(self, kept: Mask, X: Floats) -> GramFactor:
        """Return a factor for the rows marked `kept`; X holds these rows.

        The part of the matrix after the first removed row is factorised again. Removing the last
        rows takes only a copy.
        """
        removed, stays = np.flatnonzero(~kept), np.flatnonzero(kept)
        first = int(removed[0])
        after = stays[stays > first]
        factor = np.zeros((len(stays), len(stays)), order="F")
        factor[:first, :first] = self.factor[:first, :first]
        factor[first:, :first] = self.factor[after, :first]
        if len(after):
            trailing = np.tril(self.factor)[after, first:]
            factor[first:, first:] = linalg.cholesky(trailing @ trailing.T)
        rows = None if self.rows is None else replace(self.rows, middle=X - self.rows.origin)
        trace = float(np.einsum("ij,ij->", factor, factor))
        shrunk = GramFactor(factor, self.ridge, trace, rows=rows)
        if "diagonal" in self.__dict__:
            marks = np.zeros((len(kept), len(removed)))
            marks[removed, np.arange(len(removed))] = 1.0
            half = linalg.lower_solve(self.factor, marks)
            solved = linalg.lower_solve(self.factor, half, transposed=True)
            gone = linalg.lower_solve(linalg.cholesky(half.T @ half), solved[stays].T)
            shrunk.__dict__["diagonal"] = self.diagonal[stays] - np.einsum("ji,ji->i", gone, gone)
        return shrunk


def last_block(factor: Array, size: int) -> Array:
    """Copy the last `size` rows and columns of a Fortran-order matrix to the start of its memory.

    Returns the contiguous copy, which overwrites other entries of the matrix. LAPACK needs
    contiguous memory, and allocating new memory would take as long as the copy.
    """
    skipped = len(factor) - size
    columns = factor.T  # one column of the factor in each row
    packed: Array = columns.reshape(-1)[: size * size].reshape(size, size)
    step = linalg.cache_rows(len(factor))
    for start in range(0, size, step):  # columns are read before they are overwritten
        stop = min(start + step, size)
        packed[start:stop] = columns[skipped + start : skipped + stop, skipped:]
    return packed.T


@dataclass(frozen=True)
class GramCells:
    """The solution of a Gram factor for the indicators of all cells, to be shared by all classes.

    Attributes
    ----------
    factor : GramFactor
    cells : Cells
    solved : CellSums
        The solution for the indicator of each cell.
    overlaps : CellSums
        Inner products of the indicators with the solutions.
    plain : CellSums or None
        Sums of the wide rows about their grand mean; None for kernels.
    """

    factor: GramFactor
    cells: Cells
    solved: CellSums
    overlaps: CellSums
    plain: CellSums | None

    def solve(
        self, label: int, n_components: int | None = None, *, leave_out: Leave | None = EVERY
    ) -> Subspace:
        """Find the axes that separate the class `label` from the clusters of all other rows."""
        division = Grouping(*self.cells.division(label))
        root = np.sqrt(division.counts)
        solved = self.solved.over_groups(label).T / root
        half = CellSums(self.cells, self.overlaps.over_groups(label).T)
        inner = half.over_groups(label) / np.outer(root, root)
        means = None
        if self.plain is not None:
            means = self.plain.over_groups(label) / division.counts[:, None]
        return self.factor.solve_targets(solved, inner, means, division, n_components, leave_out)


def _indicators(division: Grouping) -> Array:
    """Return the weighted indicators (N, K + 1) of the groups, as orthonormal columns."""
    groups, counts, _ = division
    columns = np.zeros((len(groups), len(counts)))
    columns[np.arange(len(groups)), groups] = np.sqrt(division.weight) / np.sqrt(counts)[groups]
    return columns


def wide(
    X: Floats | WideRows,
    regularizations: list[float],
    weights: Array | None = None,
    ridges: list[float] | None = None,
) -> Iterator[GramFactor]:
    """Factorise the Gram matrix of wide rows once per ridge.

    If `ridges` is given, its values are used as they are, not scaled to the data. The matrix takes
    ``N^2 D`` operations, and each ridge ``N^3/3`` more. Centring the rows gives the matrix a null
    vector, which reduces precision at a small ridge. An added constant feature removes the null
    vector and changes nothing else, because the statistics do not depend on the origin.
    """
    known = X if isinstance(X, WideRows) else WideRows.of(X, weights)
    absolute = ridges_of(known.variance, regularizations, ridges)
    size, width = known.middle.shape
    weight = np.ones(size) if weights is None else weights
    trace = float(weight @ known.products.diagonal())
    lift = trace / size / weight.sum()
    gram = known.products + lift
    if weights is not None:
        gram *= np.sqrt(np.outer(weights, weights))
    rows = Rows(known.middle, known.origin, known.variance, lift)

    refuse = partial(singular_scatter, width)
    # For D > N, S_I has null vectors, and only the ridge keeps it regular.
    least = PIVOT_TOLERANCE * trace
    for ridge, factor in _factors(gram, regularizations, absolute, refuse, least):
        yield GramFactor(factor, ridge, 2 * trace + size * ridge, weights, rows=rows)


def _factors(
    matrix: Array,
    regularizations: list[float],
    ridges: list[float],
    refuse: Callable[[float], ValueError],
    least: float = -1.0,
) -> Iterator[tuple[float, Array]]:
    """Yield each ridge with the Cholesky factor of ``matrix + ridge I``.

    Each ridge must exceed `least`. If a ridge fails, `refuse` is called with its relative value,
    and the error that it returns is raised. The last factor overwrites the matrix.
    """
    for number, (regularization, ridge) in enumerate(zip(regularizations, ridges, strict=True), 1):
        if ridge <= least:
            raise refuse(regularization)
        try:
            factor = linalg.cholesky_in_place(
                matrix if number == len(ridges) else matrix.copy(), ridge
            )
        except SingularMatrixError as error:
            raise refuse(regularization) from error
        yield ridge, factor


def of_kernel(
    matrix: Array,
    regularizations: list[float],
    weights: Array | None = None,
    ridges: list[float] | None = None,
) -> Iterator[GramFactor]:
    """Factorise a kernel matrix once per ridge, in ``N^3/3`` operations each.

    If `ridges` is given, its values are used as they are, not scaled to the data. The kernel matrix
    is overwritten.
    """
    found = [kernel_ridge(matrix, weights, value) for value in regularizations]
    absolute = found if ridges is None else ridges
    # Kernel values keep a rounding error relative to this trace, even after the origin has moved.
    trace = float(matrix.diagonal() @ (np.ones(len(matrix)) if weights is None else weights))
    moved = move_origin(matrix, weights, found[0] / regularizations[0])
    if weights is not None:
        matrix *= np.sqrt(weights)[:, None]
        matrix *= np.sqrt(weights)
    for ridge, factor in _factors(matrix, regularizations, absolute, not_definite):
        yield GramFactor(factor, ridge, trace + len(matrix) * ridge, weights, moved)
