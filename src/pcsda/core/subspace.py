"""Solved subspaces, and the projection of rows into them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from scipy import sparse

from . import linalg
from .linalg import Array, Floats, Ints
from .loo import EVERY, Leave, LeftOut, left_out
from .scatter import Grouping, GroupScatter
from .solvers import count_axes, means_noise, no_direction
from .together import Block, leave_together

# If the mean is this many standard deviations from zero in the subspace, rows lose digits: two of
# seven in float32, six of sixteen in float64.
FAR = {np.dtype(np.float32): 1e2, np.dtype(np.float64): 1e6}


@dataclass(frozen=True)
class Subspace:
    """Axes that separate positives from negatives: ``z(x) = coefficients' f(x) - origin``.

    In a linear subspace, f(x) is the row x itself; otherwise f(x) holds the kernel values of x with
    the training rows.

    Attributes
    ----------
    coefficients : array of shape (D, d), or (N, d) for kernel values
        One column for each axis, in the order of the eigenvalues.
    origin : array of shape (d,)
        Projection of the positive mean.
    eigenvalues : array of shape (d,)
    rank : int
        Number of axes of the problem, at least d. If two subspaces are joined, the smaller number.
    projected : GroupScatter
        Statistics of the training rows in the subspace, relative to the positive mean.
    ridged : array of shape (d, d)
        The criterion's denominator on the axes: the identity for an exact PCSDA solution.
    means : array of shape (K + 1, D) or None
        Group means in input space; None for kernel values.
    left : LeftOut or None
        The training rows, each projected by a model fitted without it.
    single_negatives : bool
        Whether each negative is its own subclass, as in CSDA, although all are in one group.
    reference : array of shape (d,) or None
        Vector about which the scatter of the negatives is taken; None for the positive mean.
    """

    coefficients: Array
    origin: Array
    eigenvalues: Array
    rank: int
    projected: GroupScatter
    ridged: Array
    means: Array | None = None
    left: LeftOut | None = None
    single_negatives: bool = False
    reference: Array | None = None

    @property
    def left_rows(self) -> LeftOut:
        """The left-out rows, for code that runs only if rows were left out."""
        assert self.left is not None
        return self.left

    def leading(self, d: int) -> Subspace:
        """Return the subspace with only the first `d` axes."""
        return replace(
            self,
            coefficients=self.coefficients[:, :d],
            origin=self.origin[:d],
            eigenvalues=self.eigenvalues[:d],
            projected=self.projected.leading(d),
            ridged=self.ridged[:d, :d],
            left=None if self.left is None else self.left.leading(d),
            reference=None if self.reference is None else self.reference[:d],
        )

    def signed(self) -> Subspace:
        """Flip axes so that each axis's largest coefficient by magnitude is positive."""
        return self.flipped(linalg.row_signs(self.coefficients.T))

    def flipped(self, signs: Array) -> Subspace:
        """Multiply each axis by its sign, 1 or -1."""
        return replace(
            self,
            coefficients=self.coefficients * signs,
            origin=self.origin * signs,
            projected=self.projected.project(np.diag(signs)),
            ridged=self.ridged * np.outer(signs, signs),
            left=None if self.left is None else self.left.turned(signs),
            reference=None if self.reference is None else self.reference * signs,
        )

    def project(self, rows: Any) -> Array:
        """Project rows onto the axes: float64 rows, sparse or dense, or rows of kernel values."""
        if self.means is None or sparse.issparse(rows):
            z: Array = rows @ self.coefficients - self.origin
            return z
        z = (rows - self.means[0]) @ self.coefficients
        return z


class Factor(Protocol):
    """An object that holds rows and can find the axes for any division of the rows into groups."""

    def solve(
        self, groups: Ints, n_components: int | None = None, *, leave_out: Leave | None = EVERY
    ) -> Subspace:
        """Find the axes that separate group 0 from groups 1..K.

        `leave_out` says which rows to leave out; None means that no row is left out.
        """


@dataclass(frozen=True)
class Solution:
    """The solution for one division of the rows into groups, before axes are rotated and chosen.

    Delta holds the subclass means minus the positive mean, and A is the inverse of the criterion's
    denominator.

    Attributes
    ----------
    gram : array of shape (K, K)
        ``G = Delta A Delta'``. Its rows are the subclass means seen from the positive mean m, in
        the coordinates ``Delta A (x - m)``.
    residuals : array of shape (N, K)
        ``a_i = Delta A r_i``, where r_i is the row minus its group mean.
    directions : array of shape (D, K), or (N, K) for kernel values
        ``A Delta'``, as directions in input space, or as coefficients of kernel values.
    origin : array of shape (K,)
        ``Delta A m``.
    noise : float
        The largest eigenvalue of G that rounding alone could cause.
    overlap : array of shape (K + 1, K + 1)
        Inner products ``m_k' A_T m_l`` of the group means, where A_T is the inverse of the ridged
        total scatter.
    block : function of row numbers
        Returns the inner products of the given rows with each other and with the group means.
    leverages : function
        Returns the leverages ``h_i`` and gaps ``1 - f_i h_i`` of all rows; see
        :mod:`pcsda.core.loo`.
    """

    gram: Array
    residuals: Array
    directions: Array
    origin: Array
    noise: float
    overlap: Array
    block: Block
    leverages: Callable[[], tuple[Array, Array]]

    def subspace(
        self,
        division: Grouping,
        n_components: int | None,
        leave: Leave | None,
        means: Array | None = None,
    ) -> Subspace:
        """Rotate the solution to its axes, keep `n_components` of them, and leave rows out."""
        groups, counts, weights = division
        axes = self.axes(len(groups), n_components, means, float(counts.sum()))
        turn = axes.turn
        left = None if leave is None else self.left_out(axes, division, leave)
        coefficients = self.directions @ turn
        origin = self.origin @ turn if means is None else means[0] @ coefficients
        rows = self.residuals @ turn
        if weights is not None:
            rows *= np.sqrt(weights)[:, None]
        scatters = (part.T @ part for part in (rows[groups == 0], rows[groups > 0]))
        projected = GroupScatter(counts, self.means_on(turn), *scatters)
        ridged = np.eye(turn.shape[1])
        return Subspace(
            coefficients, origin, axes.values, axes.rank, projected, ridged, means, left
        )

    def axes(
        self, size: int, n_components: int | None, means: Array | None, weight: float = 1.0
    ) -> Axes:
        """Find the rotation to the axes, and count the axes of the problem.

        `size` is the number of rows, and `weight` their total weight. If the group means in input
        space are given as `means`, axes along which they differ only by rounding are dropped.
        """
        values, vectors = linalg.eigh_descending(self.gram)
        rank = count_axes(values, self.noise, size)
        turn = vectors[:, :rank] / np.sqrt(values[:rank])
        columns = self.directions @ turn
        if means is not None:
            rank = count_axes(values[:rank], means_noise(columns, means), size)
        if rank == 0:
            raise no_direction(weight)
        d = min(n_components or rank, rank)
        every = turn[:, :rank] * linalg.row_signs(columns[:, :rank].T)
        return Axes(every[:, :d], values[:d], rank, every)

    def means_on(self, turn: Array) -> Array:
        """Return the group means on the axes, seen from the positive mean."""
        return np.vstack([np.zeros(turn.shape[1]), self.gram @ turn])

    def left_out(self, axes: Axes, division: Grouping, leave: Leave) -> LeftOut:
        """Leave rows out, one by one or in blocks, and project them onto the axes.

        All axes of the problem are aligned together, so that the leading axes do not depend on how
        many axes are kept.
        """
        if leave.together is not None:
            fixed = self.overlap, self.gram, axes.every
            left = leave_together(self.block, *fixed, division, leave)
        else:
            rows, leverage, gap = map(leave.take, (self.residuals, *self.leverages()))
            own = leave.of_groups(division)
            left = left_out(rows, leverage, gap, self.gram, axes.every, own)
            left = replace(left, stands_for=leave.stands_for, rows=leave.rows)
        return left.leading(len(axes.values))


@dataclass(frozen=True)
class Axes:
    """Rotation of a solution to its axes.

    `turn` is the rotation, of shape (K, d), to the axes that are kept, and `values` holds the
    eigenvalues of these axes. `rank` is the number of all axes of the problem, and `every` is the
    rotation, of shape (K, rank), to all of them.
    """

    turn: Array
    values: Array
    rank: int
    every: Array


def project_rows(
    X: Floats, components: Floats, origins: Array, centre: Array, *, far: bool
) -> Floats:
    """Compute ``(x - centre) components' - origins`` in the floating-point type of the rows.

    `components` may hold the axes of many models, with their `origins` relative to the centre. A
    centre near zero is projected once, which saves a pass over X. A centre that is `far` from zero
    is subtracted from the rows first; otherwise the projected rows would lose digits.
    """
    matrix = components.astype(X.dtype, copy=False).T
    if not far:
        z: Floats = X @ matrix
        z -= (origins + components.astype(np.float64, copy=False) @ centre).astype(X.dtype)
        return z
    middle = centre.astype(X.dtype)
    rest = origins + components.astype(np.float64, copy=False) @ (centre - middle)
    z = np.empty((len(X), matrix.shape[1]), X.dtype)
    step = min(linalg.cache_rows(X.shape[1]), len(X))
    buffer = np.empty((step, X.shape[1]), X.dtype)
    for start in range(0, len(X), step):
        part = slice(start, min(start + step, len(X)))
        rows = np.subtract(X[part], middle, out=buffer[: part.stop - start])
        np.matmul(rows, matrix, out=z[part])
    z -= rest.astype(X.dtype)
    return z


def is_far(
    components: Floats, centre: Array, variances: Array, dtype: np.dtype[np.floating]
) -> bool:
    """Return whether the centre is so far from zero along an axis that projected rows lose digits.

    `variances` holds the variance of the positives along each axis.
    """
    step = linalg.cache_rows(components.shape[1])
    for start in range(0, len(components), step):  # without temporary copies of all axes
        part = slice(start, start + step)
        offset = (components[part].astype(np.float64, copy=False) * centre) ** 2
        if np.any(offset.sum(axis=1) > FAR[dtype] ** 2 * variances[part]):
            return True
    return False
