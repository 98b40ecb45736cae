"""One factorisation for every class, every K and every clustering of one data set (MATH 4).

The within-class scatter of any partition is the total scatter less a term of rank K + 1. Rows are
whitened once by the ridged total scatter, ``T + eps I``; each partition then needs the means of its
groups and systems of size K + 1 only:
``A = A_T + A_T M' (diag(1/n) - M A_T M')^-1 M A_T``, and A_T is the identity for whitened rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from . import dual, linalg
from .dual import DualSubspace, Solution
from .linalg import Array, SingularMatrixError
from .loo import inflation
from .scatter import group_means

# Share of the total scatter that must remain within groups, in every direction, for the update to
# keep half the digits. Below it a partition has to be factorised on its own.
SMALLEST_REMAINDER = 1e-8


@dataclass(frozen=True)
class White:
    """Rows whitened by the ridged total scatter.

    Attributes
    ----------
    rows : array of shape (N, D)
        ``B' (x - c)``, c the grand mean.
    back : array of shape (D, D)
        B, with ``B B' = (T + eps I)^-1``.
    norms : array of shape (N,)
        Squared lengths of the rows.
    """

    rows: Array
    back: Array
    norms: Array

    def grown(self, centred: Array) -> White:
        """Add rows, centred at the same point: an update of their rank, ``4 N D`` each."""
        fresh = centred @ self.back
        _, lengths, axes = np.linalg.svd(fresh, full_matrices=False)
        return self._stretched(np.vstack([self.rows, fresh]), 1 + lengths**2, axes)

    def shrunk(self, kept: NDArray[np.bool_]) -> White:
        """Take rows away; the reverse of :meth:`grown`.

        Raises
        ------
        SingularMatrixError
            When the rows are nearly all of the scatter in some direction.
        """
        _, lengths, axes = np.linalg.svd(self.rows[~kept], full_matrices=False)
        remaining = 1 - lengths**2
        if remaining.min() < SMALLEST_REMAINDER:
            raise SingularMatrixError("the rows left keep too little of the total scatter")
        return self._stretched(self.rows[kept], remaining, axes)

    def _stretched(self, rows: Array, scatter: Array, axes: Array) -> White:
        """Whiten by what the total scatter became: `scatter` on `axes`, as it was elsewhere."""
        change = 1 / np.sqrt(scatter) - 1
        rows = rows + ((rows @ axes.T) * change) @ axes
        back = self.back + ((self.back @ axes.T) * change) @ axes
        return White(rows, back, np.einsum("ij,ij->i", rows, rows))


@dataclass(frozen=True)
class SharedSolution(Solution):
    """One partition solved on whitened rows.

    Attributes
    ----------
    directions : array of shape (D, K)
        ``A Delta'`` in the space of the rows before whitening.
    apart : pair of arrays of shape (N,)
        Leverages and gaps, as in MATH 8.
    """

    directions: Array
    apart: tuple[Array, Array]


def centre(X: NDArray[np.floating], weights: Array | None) -> tuple[Array, Array, float]:
    """Centred rows, the grand mean, and the mean squared distance from it."""
    total = len(X) if weights is None else weights.sum()
    share = np.full(len(X), 1 / total) if weights is None else weights / total
    exact = X.astype(np.float64, copy=False)
    # Two steps: the mean of what is left takes off what rounding put into the first.
    origin: Array = exact[0] + share @ (exact - exact[0])
    centred = exact - origin
    return centred, origin, float(share @ np.einsum("ij,ij->i", centred, centred))


def whiten(centred: Array, ridge: float, weights: Array | None = None) -> White:
    """Whiten centred rows by one Cholesky factor, ``N D^2 + D^3/3``."""
    scaled = centred if weights is None else centred * np.sqrt(weights)[:, None]
    factor = linalg.cholesky(scaled.T @ scaled, ridge)
    back = linalg.triangular_inverse(factor).T
    rows = centred @ back
    return White(rows, back, np.einsum("ij,ij->i", rows, rows))


def whiten_path(
    centred: Array, ridges: list[float], weights: Array | None = None
) -> Iterator[White]:
    """Whiten centred rows at each ridge from one eigendecomposition of the total scatter.

    About ``9 D^3`` and ``2 N D^2`` once, then ``N D`` a ridge: cheaper than a factor for each
    of several ridges when N is well above D.
    """
    scaled = centred if weights is None else centred * np.sqrt(weights)[:, None]
    values, vectors = linalg.eigh_descending(scaled.T @ scaled)
    turned = centred @ vectors
    for ridge in ridges:
        if values[-1] + ridge < SMALLEST_REMAINDER * values[0]:
            # Small eigenvalues are rounding beside large ones; pivots need not be.
            yield whiten(centred, ridge, weights)
            continue
        shrunk = 1 / np.sqrt(np.maximum(values, 0.0) + ridge)
        rows = turned * shrunk
        yield White(rows, vectors * shrunk, np.einsum("ij,ij->i", rows, rows))


def solve(
    white: White,
    means: Array,
    groups: NDArray[np.intp],
    counts: Array,
    weights: Array | None = None,
) -> SharedSolution:
    """Solve one partition, given the group means of the whitened rows: ``2 N D K + O(N K^2)``.

    Raises
    ------
    SingularMatrixError
        When the groups take nearly all of the scatter in some direction, so that the remainder is
        rounding.
    """
    root = np.sqrt(counts)
    overlap = means @ means.T  # H = M A_T M'
    remainder = np.eye(len(counts)) - overlap * np.outer(root, root)
    if np.linalg.eigvalsh(remainder)[0] < SMALLEST_REMAINDER:
        raise SingularMatrixError("the groups leave too little of the total scatter")
    factor = linalg.cholesky(remainder)
    contrast = np.vstack([np.full(len(counts) - 1, -1.0), np.eye(len(counts) - 1)])
    half = linalg.lower_solve(factor, contrast / root[:, None])
    mix = root[:, None] * linalg.lower_solve(factor, half, transposed=True)
    gram = contrast.T @ overlap @ mix
    projected = white.rows @ means.T  # F = M A_T (x - c)
    own = projected[np.arange(len(groups)), groups]
    residuals = projected - overlap[groups]
    within = linalg.lower_solve(factor, (residuals * root).T)
    leverage = white.norms - 2 * own + np.diag(overlap)[groups]
    leverage += np.einsum("ji,ji->i", within, within)
    gap = 1 - inflation(counts[groups], weights) * leverage
    return SharedSolution(
        gram=(gram + gram.T) / 2,
        coordinates=(projected - overlap[0]) @ mix,
        residuals=residuals @ mix,
        origin=overlap[0] @ mix,
        directions=white.back @ (means.T @ mix),
        apart=(leverage, gap),
    )


@dataclass(frozen=True)
class Cells:
    """The non-empty (class, cluster) cells of a data set.

    The groups of every class are unions of cells, so whatever is linear in the rows is summed once
    over the cells and then added up for each class.
    """

    of_class: NDArray[np.intp]
    of_cluster: NDArray[np.intp]
    counts: Array
    rows: NDArray[np.intp]

    @classmethod
    def of(cls, labels: NDArray[np.intp], clusters: NDArray[np.intp]) -> Cells:
        """Number the cells of rows with class `labels` and `clusters`."""
        pairs = np.stack([labels, clusters], axis=1)
        found, rows, counts = np.unique(pairs, axis=0, return_inverse=True, return_counts=True)
        return cls(found[:, 0], found[:, 1], counts.astype(np.float64), rows.ravel())

    def partition(self, label: int) -> tuple[NDArray[np.intp], Array]:
        """Groups of the rows and their counts for one class.

        Group 0 is the class itself; clusters that are empty without it are dropped.
        """
        own = self.of_class == label
        remaining = np.unique(self.of_cluster[~own])
        group = np.where(own, 0, np.searchsorted(remaining, self.of_cluster) + 1)
        counts = np.bincount(group, self.counts).astype(np.float64)
        return group[self.rows], counts

    def sums(self, values: Array) -> Array:
        """Sum of the rows of `values` over each cell."""
        return group_means(values, self.rows, np.ones(len(self.counts)), None)

    def totals(self, sums: Array) -> Array:
        """Sums over whole clusters, from those over cells."""
        clusters = np.ones(self.of_cluster.max() + 1)
        return group_means(sums, self.of_cluster, clusters, None)

    def group_sums(self, label: int, sums: Array, totals: Array) -> Array:
        """Sums over the groups of one class: clusters less its own cells, by subtraction."""
        own = np.flatnonzero(self.of_class == label)
        rest = totals.copy()
        rest[self.of_cluster[own]] -= sums[own]
        others = np.unique(self.of_cluster[self.of_class != label])
        return np.vstack([sums[own].sum(axis=0), rest[others]])


class PrimalShared:
    """Solves any partition of rows that were whitened once; D at most N."""

    def __init__(self, white: White, ridge: float, weights: Array | None = None) -> None:
        self.white = white
        self.ridge = ridge
        self.weights = weights

    def grown(self, centred: Array) -> PrimalShared:
        """Return the same with further rows of weight one."""
        return PrimalShared(self.white.grown(centred), self.ridge)

    def shrunk(self, kept: NDArray[np.bool_]) -> PrimalShared:
        """Return the same without some rows; see :meth:`White.shrunk`."""
        return PrimalShared(self.white.shrunk(kept), self.ridge)

    def solve(
        self, groups: NDArray[np.intp], n_components: int | None, leave_one_out: bool
    ) -> DualSubspace:
        """Solve one partition; the coefficients are the components as columns."""
        counts = np.bincount(groups, self.weights).astype(np.float64)
        means = group_means(self.white.rows, groups, counts, self.weights)
        return self._subspace(means, groups, counts, n_components, leave_one_out)

    def use(self, cells: Cells) -> None:
        """Sum the rows over cells, for :meth:`solve_class`."""
        self.cells = cells
        self.sums = cells.sums(self.white.rows)
        self.totals = cells.totals(self.sums)

    def solve_class(
        self, label: int, n_components: int | None, leave_one_out: bool
    ) -> tuple[DualSubspace, NDArray[np.intp]]:
        """Solve one class of the cells without going through the rows again."""
        groups, counts = self.cells.partition(label)
        means = self.cells.group_sums(label, self.sums, self.totals) / counts[:, None]
        return self._subspace(means, groups, counts, n_components, leave_one_out), groups

    def _subspace(
        self,
        means: Array,
        groups: NDArray[np.intp],
        counts: Array,
        n_components: int | None,
        leave_one_out: bool,
    ) -> DualSubspace:
        solved = solve(self.white, means, groups, counts, self.weights)
        apart = solved.apart if leave_one_out else None
        rest = (groups, counts, self.weights, n_components)
        return dual.assemble(solved, solved.directions, apart, *rest)


class DualShared:
    """Solves any partition from one Cholesky factor of the Gram or kernel matrix.

    `factor` is that of ``Kx + eps I`` (weighted by the roots of the weights); it is kept.
    `diagonal` is that of the inverse of the same matrix, where it is known already.
    """

    def __init__(
        self,
        factor: Array,
        ridge: float,
        leave_one_out: bool,
        weights: Array | None = None,
        diagonal: Array | None = None,
    ) -> None:
        self.factor = factor
        self.ridge = ridge
        self.weights = weights
        if leave_one_out and diagonal is None:
            # The inverse takes the place of a copy, so that the factor stays.
            diagonal = dual.inverse_diagonal(factor.copy(order="F"))
        self.diagonal = diagonal

    def grown(self, cross: Array, own: Array) -> DualShared:
        """Return the same with n further rows of weight one: ``2 N^2 n`` and a copy of the factor.

        `cross` (n x N) holds their kernel values with the rows so far, `own` (n x n) those among
        themselves.
        """
        size, more = len(self.factor), len(own)
        half = linalg.lower_solve(self.factor, cross.T)
        corner = linalg.cholesky(own - half.T @ half, self.ridge)
        factor = np.zeros((size + more, size + more), order="F")
        factor[:size, :size] = self.factor
        factor[size:, :size] = half.T
        factor[size:, size:] = corner
        diagonal = None
        if self.diagonal is not None:
            solved = linalg.lower_solve(self.factor, half, transposed=True)
            spread = linalg.lower_solve(corner, solved.T)
            inverse = linalg.triangular_inverse(corner)
            head = self.diagonal + np.einsum("ji,ji->i", spread, spread)
            diagonal = np.append(head, np.einsum("ji,ji->i", inverse, inverse))
        return DualShared(factor, self.ridge, diagonal is not None, None, diagonal)

    def shrunk(self, kept: NDArray[np.bool_]) -> DualShared:
        """Return the same without some rows: all that follows the first of them is factorised anew.

        Rows that were added last are taken away for the price of a copy.
        """
        removed = np.flatnonzero(~kept)
        first = int(removed[0])
        stays = np.flatnonzero(kept)
        after = stays[stays > first]
        factor = np.zeros((len(stays), len(stays)), order="F")
        factor[:first, :first] = self.factor[:first, :first]
        factor[first:, :first] = self.factor[after, :first]
        if len(after):
            trailing = np.tril(self.factor)[after, first:]
            factor[first:, first:] = linalg.cholesky(trailing @ trailing.T)
        diagonal = None
        if self.diagonal is not None:
            marks = np.zeros((len(kept), len(removed)))
            marks[removed, np.arange(len(removed))] = 1.0
            half = linalg.lower_solve(self.factor, marks)
            solved = linalg.lower_solve(self.factor, half, transposed=True)
            gone = linalg.lower_solve(linalg.cholesky(half.T @ half), solved[stays].T)
            diagonal = self.diagonal[stays] - np.einsum("ji,ji->i", gone, gone)
        return DualShared(factor, self.ridge, diagonal is not None, None, diagonal)

    def solve(
        self, groups: NDArray[np.intp], n_components: int | None, leave_one_out: bool
    ) -> DualSubspace:
        """Solve one partition; the coefficients are on kernel values with the rows."""
        counts = np.bincount(groups, self.weights).astype(np.float64)
        solved = dual.solve(self.factor, groups, counts, self.ridge, self.weights)
        return self._subspace(solved, groups, counts, n_components, leave_one_out)

    def use(self, cells: Cells) -> None:
        """Solve for the indicators of the cells, for :meth:`solve_class`."""
        self.cells = cells
        indicators = np.zeros((len(cells.rows), len(cells.counts)))
        indicators[np.arange(len(cells.rows)), cells.rows] = 1.0
        half = linalg.lower_solve(self.factor, indicators)
        self.solved = linalg.lower_solve(self.factor, half, transposed=True).T
        self.solved_totals = cells.totals(self.solved)
        self.overlaps = half.T @ half
        self.overlap_totals = cells.totals(self.overlaps)

    def solve_class(
        self, label: int, n_components: int | None, leave_one_out: bool
    ) -> tuple[DualSubspace, NDArray[np.intp]]:
        """Solve one class of the cells from the solutions for the cells."""
        cells = self.cells
        groups, counts = cells.partition(label)
        root = np.sqrt(counts)
        columns = cells.group_sums(label, self.solved, self.solved_totals).T / root
        half = cells.group_sums(label, self.overlaps, self.overlap_totals).T
        overlap = cells.group_sums(label, half, cells.totals(half)) / np.outer(root, root)
        solved = dual.combine(columns, overlap, groups, counts, self.ridge)
        return self._subspace(solved, groups, counts, n_components, leave_one_out), groups

    def _subspace(
        self,
        solved: dual.DualSolution,
        groups: NDArray[np.intp],
        counts: Array,
        n_components: int | None,
        leave_one_out: bool,
    ) -> DualSubspace:
        apart = None
        if leave_one_out and self.diagonal is not None:
            apart = dual.leverages(solved, self.diagonal, groups, counts, self.ridge, self.weights)
        root = np.ones(len(groups)) if self.weights is None else np.sqrt(self.weights)
        directions = root[:, None] * solved.alpha
        return dual.assemble(solved, directions, apart, groups, counts, self.weights, n_components)
