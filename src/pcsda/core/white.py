"""Whitening rows once, so that any division of the rows into groups is solved quickly (MATH 4).

The within-class scatter of any division is the total scatter T minus a term of rank K + 1. Rows are
whitened with the ridged total scatter, ``T + eps I``. Each division then needs only its group means
M and systems of size K + 1: ``A = A_T + A_T M' (diag(1/n) - M A_T M')^-1 M A_T``, where
``A_T = (T + eps I)^-1`` is the identity for whitened rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from . import linalg
from .cells import Cells, CellSums
from .direct import DirectFactor, is_close
from .linalg import Array, Floats, Ints, Mask, SingularMatrixError
from .loo import EVERY, Leave, inflation
from .scatter import Grouping
from .solvers import require_apart
from .spread import centred, naming_the_ridge, ridges_of
from .subspace import Solution, Subspace
from .together import Block

# Share of the total scatter that must remain within groups, in every direction, so that the update
# keeps half of the digits. If less remains, the division needs its own factorisation.
SMALLEST_REMAINDER = 1e-8


@dataclass(frozen=True)
class WhiteFactor:
    """Whitened rows, from which any division of the rows into groups is solved quickly.

    D must be at most N.

    Attributes
    ----------
    X : array of shape (N, D)
        The original rows, not copied.
    origin : array of shape (D,)
        c, the mean of the rows that were whitened first.
    variance : float
        Mean squared distance of those rows from c.
    ridge : float
        eps, the absolute ridge.
    rows : array of shape (N, D)
        Whitened rows, ``B' (x - c)``.
    back : array of shape (D, D)
        B, with ``B B' = (T + eps I)^-1``.
    weights : array of shape (N,) or None
    """

    X: Floats
    origin: Array
    variance: float
    ridge: float
    rows: Array
    back: Array
    weights: Array | None = None

    @cached_property
    def norms(self) -> Array:
        """Squared lengths of the whitened rows."""
        lengths: Array = np.einsum("ij,ij->i", self.rows, self.rows)
        return lengths

    def solve(
        self, groups: Ints, n_components: int | None = None, *, leave_out: Leave | None = EVERY
    ) -> Subspace:
        """Find the axes for one division of the rows into groups.

        Cost: ``2 N D K + O(N K^2)`` operations.
        """
        division = Grouping.of(groups, self.weights)
        white, means = division.means(self.rows), division.means(self.X - self.origin)
        return self.solve_means(white, means, division, n_components, leave_out)

    def over(self, cells: Cells) -> WhiteCells:
        """Sum the rows over the cells once, so that the problems of all classes can share the sums.

        A cell holds the rows of one class in one cluster.
        """
        return WhiteCells(self, cells, cells.sums(self.rows), cells.sums(self.X - self.origin))

    def solve_means(
        self,
        white: Array,
        means: Array,
        division: Grouping,
        n_components: int | None,
        leave_out: Leave | None,
    ) -> Subspace:
        """Find the axes for one division of the rows into groups, given the group means.

        `white` holds the means of the whitened rows, and `means` the means of the rows minus the
        origin. If the group means, or a left-out row, account for nearly all of the scatter in some
        direction, what remains of the scatter is rounding error. Then the scatter within these
        groups is factorised separately.
        """
        means = means + self.origin
        require_apart(means, self.variance)
        with suppress(SingularMatrixError):
            solved = self._solution(white, division)
            found = solved.subspace(division, n_components, leave_out, means)
            if not is_close(found.left, self.X.shape):
                return found
        alone = DirectFactor(self.X, self.ridge / self.variance, self.weights, ridge=self.ridge)
        return alone.solve(division.groups, n_components, leave_out=leave_out)

    def _solution(self, means: Array, division: Grouping) -> Solution:
        projected = self.rows @ means.T  # F = M A_T (x - c)

        def block(members: Ints) -> tuple[Array, Array]:
            rows = self.rows[members]
            return rows @ rows.swapaxes(-1, -2), projected[members]

        def norms() -> Array:
            return self.norms

        return solution_of(means, projected, norms, division, self.back, block)

    def appended(self, X: Floats, values: Array | None = None) -> WhiteFactor:
        """Add the last rows of X, with weight one, by an update of ``4 N D`` operations per row.

        X holds the old rows, followed by the new ones. The ridge and the origin stay the same.
        `values` is ignored, because only a kernel matrix needs kernel values.
        """
        fresh = (X[len(self.X) :] - self.origin) @ self.back
        return self._updated(X, np.arange(len(self.rows)), fresh, 1.0)

    def without(self, kept: Mask, X: Floats) -> WhiteFactor:
        """Remove rows, by the inverse of the update in :meth:`appended`.

        `kept` is a mask of the rows that remain, and X holds these rows.

        Raises
        ------
        SingularMatrixError
            If the removed rows account for nearly all of the scatter in some direction.
        """
        return self._updated(X, np.flatnonzero(kept), self.rows[~kept], -1.0)

    def _updated(self, X: Floats, kept: Ints, moved: Array, sign: float) -> WhiteFactor:
        """Whiten the rows again after rows were added or removed.

        `kept` lists the rows that stay. `moved` holds the added or removed rows, whitened as before
        the change. `sign` is 1 if they were added, and -1 if they were removed.
        """
        back, axes, change = updated_back(self.back, moved, sign)
        rows = np.empty((len(X), len(back)))
        step = linalg.cache_rows(len(back))
        for start in range(0, len(kept), step):  # each part stays in the cache
            part = rows[start : min(start + step, len(kept))]
            np.take(self.rows, kept[start : start + step], axis=0, out=part, mode="clip")
            part += ((part @ axes.T) * change) @ axes
        if sign > 0:
            rows[len(kept) :] = moved + ((moved @ axes.T) * change) @ axes
        return replace(self, X=X, rows=rows, back=back)


def updated_back(back: Array, moved: Array, sign: float) -> tuple[Array, Array, Array]:
    """Update B, with ``B B' = (T + eps I)^-1``, after rows were added or removed.

    `moved` holds the whitened rows. `sign` is 1 if they were added, and -1 if they were removed.
    Returns the new B, the axes along which whitened coordinates change, as rows, and the relative
    change along each axis.

    Raises
    ------
    SingularMatrixError
        If the removed rows account for nearly all of the scatter in some direction.
    """
    _, lengths, axes = np.linalg.svd(moved, full_matrices=False)
    scatter = 1 + sign * lengths**2
    if scatter.min() < SMALLEST_REMAINDER:
        raise SingularMatrixError("the remaining rows keep too little of the total scatter")
    change = 1 / np.sqrt(scatter) - 1
    found = ((back @ axes.T) * change) @ axes
    found += back
    return found, axes, change


def solution_of(
    means: Array,
    projected: Array,
    norms: Callable[[], Array],
    division: Grouping,
    back: Array,
    block: Block,
) -> Solution:
    """Solve one division of whitened rows into groups; for such rows, A_T is the identity.

    Parameters
    ----------
    means : array of shape (K + 1, D)
        Whitened group means.
    projected : array of shape (n, K + 1)
        Inner products of n whitened rows with the means.
    norms : function
        Returns the squared lengths of the whitened rows.
    division : Grouping
        The groups of the n rows.
    back : array of shape (D, D)
        Maps whitened directions to directions in input space; see :class:`WhiteFactor`.
    block : function of row numbers
        See :class:`Solution`.
    """
    groups, counts, weights = division
    root = np.sqrt(counts)
    overlap = means @ means.T  # H = M A_T M'
    remainder = np.eye(len(counts)) - overlap * np.outer(root, root)
    if np.linalg.eigvalsh(remainder)[0] < SMALLEST_REMAINDER:
        raise SingularMatrixError("the groups leave too little of the total scatter")
    factor = linalg.cholesky(remainder)
    contrast = np.vstack([np.full(len(counts) - 1, -1.0), np.eye(len(counts) - 1)])
    half = linalg.lower_solve(factor, contrast / root[:, None])
    mix = root[:, None] * linalg.lower_solve(factor, half, transposed=True)
    gram = (overlap[1:] - overlap[0]) @ mix
    residuals = projected - overlap[groups]

    def leverages() -> tuple[Array, Array]:
        own = projected[np.arange(len(groups)), groups]
        within = linalg.lower_solve(factor, (residuals * root).T)
        leverage = norms() - 2 * own + np.diag(overlap)[groups]
        leverage += np.einsum("ji,ji->i", within, within)
        return leverage, 1 - inflation(counts[groups], weights) * leverage

    return Solution(
        gram=(gram + gram.T) / 2,
        residuals=residuals @ mix,
        directions=back @ (means.T @ mix),
        origin=overlap[0] @ mix,
        noise=0.0,
        overlap=overlap,
        block=block,
        leverages=leverages,
    )


@dataclass(frozen=True)
class WhiteCells:
    """Whitened rows, with sums over cells that the problems of all classes share.

    `white` holds the sums of the whitened rows, and `plain` the sums of the rows minus the origin.
    """

    factor: WhiteFactor
    cells: Cells
    white: CellSums
    plain: CellSums

    def solve(
        self, label: int, n_components: int | None = None, *, leave_out: Leave | None = EVERY
    ) -> Subspace:
        """Find the axes that separate one class from all others."""
        division = Grouping(*self.cells.division(label))
        sizes = division.counts[:, None]
        white, plain = (part.over_groups(label) / sizes for part in (self.white, self.plain))
        return self.factor.solve_means(white, plain, division, n_components, leave_out)


def whiten(
    X: Floats,
    regularizations: list[float],
    weights: Array | None = None,
    ridges: list[float] | None = None,
) -> Iterator[WhiteFactor]:
    """Whiten the rows with each ridge, and yield one :class:`WhiteFactor` per ridge.

    If `ridges` is given, its values are used as they are, not scaled to the data. Each ridge takes
    ``N D^2 + D^3/3`` operations for its own Cholesky factor. More than two ridges share one
    eigendecomposition of the total scatter instead, which takes about ``9 D^3 + 2 N D^2``
    operations once and ``N D`` per ridge.
    """
    middle, origin, variance = centred(X, weights)
    absolute = ridges_of(variance, regularizations, ridges)
    scaled = middle if weights is None else middle * np.sqrt(weights)[:, None]
    total = scaled.T @ scaled
    spectrum = None
    if len(absolute) > 2:
        values, vectors = linalg.eigh_descending(total)
        spectrum = values, vectors, middle @ vectors
        smallest, largest = values[-1], values[0]
    for regularization, ridge in zip(regularizations, absolute, strict=True):
        # Eigenvalues small compared with the largest are rounding errors; pivots need not be.
        if spectrum is not None and smallest + ridge >= SMALLEST_REMAINDER * largest:
            values, vectors, turned = spectrum
            shrunk = 1 / np.sqrt(np.maximum(values, 0.0) + ridge)
            rows, back = turned * shrunk, vectors * shrunk
        else:
            with naming_the_ridge(X.shape[1], regularization):
                back = linalg.triangular_inverse(linalg.cholesky(total, ridge)).T
            rows = middle @ back
        yield WhiteFactor(X, origin, variance, ridge, rows, back, weights)
