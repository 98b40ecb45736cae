"""Leaving rows out of an exact solution, from the rows themselves (MATH 8).

The factor of the scatter gives the leverages, and :func:`left_out` the rest. The products with all
rows take most of the time of a fit, so they are computed by several threads and, where that is
accurate enough, in float32.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

import numpy as np

from . import float32, linalg
from .linalg import Array, Floats, Ints
from .loo import LeftOut, Shifts, inflation, left_out
from .scatter import Grouping, GroupScatter
from .solvers import Projection

# Smallest gap, one minus the leverage, for which float32 products have enough digits.
WIDE_GAP = 0.05


@dataclass(frozen=True)
class Leaver:
    """Results of a fit that are needed to project training rows with models fitted without them.

    Attributes
    ----------
    counts : array of shape (K + 1,)
    means : array of shape (K + 1, D)
    inverse : array of shape (D, D)
        Inverse of the Cholesky factor of ``S_I + eps I``.
    solved : array of shape (D, K)
        ``A Delta'``.
    gram : array of shape (K, K)
        ``G = Delta A Delta'``.
    rotation : array of shape (K, d)
        ``Q Lambda^(-1/2)``, where Q and Lambda are the eigenvectors and eigenvalues of G.
    variances : array of shape (D,)
        The diagonal of ``S_I + eps I``.
    """

    counts: Array
    means: Array
    inverse: Array
    solved: Array
    gram: Array
    rotation: Array
    variances: Array

    @classmethod
    def of(cls, scatter: GroupScatter, projection: Projection, ridge: float) -> Leaver:
        """Prepare to leave rows out of an exact PCSDA solution, in ``D^3/3`` operations."""
        factor = projection.factor
        if factor is None:
            factor = linalg.cholesky(scatter.intra, ridge)
        delta = scatter.delta
        half = linalg.lower_solve(factor, delta.T)
        solved = linalg.lower_solve(factor, half, transposed=True)
        # W = A Delta' R for every exact solution, and Delta W = G R = Q Lambda^(1/2). A solver may
        # mix some of a strong axis into a weak one; orthogonalising by strength undoes this.
        _, roots, basis = np.linalg.svd(half, full_matrices=False)
        rank = len(projection.components)
        roots, basis = roots[:rank, None], basis[:rank]
        found = basis @ (delta @ projection.components.T) / roots
        turn, lengths = np.linalg.qr(found)
        rotation = (basis / roots).T @ (turn * np.sign(lengths.diagonal()))
        inverse = linalg.triangular_inverse(factor)
        variances = scatter.positive.diagonal() + scatter.within.diagonal() + ridge
        return cls(
            scatter.counts, scatter.means, inverse, solved, half.T @ half, rotation, variances
        )

    def leave_out(
        self,
        X: Floats,
        groups: Ints,
        weights: Array | None = None,
        dtype: type[np.floating] = np.float64,
    ) -> LeftOut:
        """Project training rows, each with the model fitted without that row.

        Cost: ``N D^2`` for the leverages and ``2 N D K`` for ``Delta A r``. With `dtype` float32,
        these products are computed in float32 where that is accurate enough.
        """
        result = LeftOut.blank(groups, weights, self.counts, self.rotation.shape[1])
        ways: list[Any] = [((self.means,), self.inverse, self.solved, None)]
        few = len(self.gram) <= X.shape[1]
        total = self.counts.sum()
        if dtype == np.float32 and few and float32.whitens(self.inverse, self.variances, total):
            ways.insert(0, self._in_single())
        gaps = [1.0]
        shifts: list[tuple[int, Shifts]] = []
        # The steps below are short: without a lock, threads would compete for the interpreter.
        one_at_a_time = Lock()

        def leave_out(start: int, stop: int) -> None:
            for part, a, leverage, gap in self._whitened(X, result, slice(start, stop), ways):
                with one_at_a_time:
                    out = result.coordinates[part], result.residuals[part]
                    weight = None if weights is None else weights[part]
                    own = Grouping(groups[part], self.counts, weight)
                    found = left_out(a, leverage, gap, self.gram, self.rotation, own, out)
                    result.known[part] = found.known
                    gaps.append(found.gap)
                    if found.shifts is not None:
                        shifts.append((part.start, found.shifts))
                    if result.plain is not None and result.height is not None:
                        result.plain[part], result.height[part] = found.plain, found.height

        linalg.over_rows(leave_out, len(X), X.shape[1])
        moved = Shifts.joined(shifts) if shifts else None
        return replace(result, gap=min(gaps), shifts=moved)

    def _whitened(
        self, X: Floats, rows: LeftOut, among: slice, ways: list[Any]
    ) -> Iterator[tuple[slice, Array, Array, Array]]:
        """Yield ``Delta A r``, leverages and gaps for one slice of rows at a time.

        Each entry of `ways` holds arguments of :func:`_whiten`. The fastest entry, which is the
        least precise, comes first. The entries are tried in turn until the gaps are wide enough.
        """
        # No D x D sums are formed, so blocks can be small enough for the cache. They reuse memory,
        # because new pages would take as long as the product.
        step = linalg.cache_rows(X.shape[1] + len(self.gram))
        step = min(max(step, 512), among.stop - among.start)
        buffers = [np.empty((step, X.shape[1]), inverse.dtype) for _, inverse, *_ in ways]
        for first in range(among.start, among.stop, step):
            part = slice(first, min(first + step, among.stop))
            own = rows.groups[part]
            weight = None if rows.weights is None else rows.weights[part]
            factor = inflation(self.counts[own], weight)
            for buffer, way in zip(buffers, ways, strict=True):
                leverage, a = _whiten(X[part], own, buffer[: len(own)], *way)
                gap = 1 - factor * leverage
                if np.all(gap > WIDE_GAP):  # otherwise the next way, if any, has more digits
                    break
            yield part, a, leverage, gap

    def _in_single(self) -> tuple[Any, ...]:
        """Return the arguments of :func:`_whiten` in float32: means, inverse, columns and turn.

        The columns are rotated to unit variance; otherwise the rounding error of strong directions
        would swamp the weak directions.
        """
        values, vectors = linalg.eigh_descending(self.gram)
        roots = np.sqrt(values[: linalg.numerical_rank(values, len(values))])
        vectors = vectors[:, : len(roots)]
        columns = (self.solved @ (vectors / roots)).astype(np.float32)
        means = float32.in_parts(self.means, self.variances / self.counts.sum())
        return means, self.inverse.astype(np.float32), columns, (vectors * roots).T


def _whiten(
    rows: Floats,
    groups: Ints,
    buffer: Floats,
    means: tuple[Floats, ...],
    inverse: Floats,
    columns: Floats,
    turn: Array | None,
) -> tuple[Array, Array]:
    """Subtract the group means from rows; return the leverages of the rows and ``Delta A r``.

    The rows minus their means are stored in `buffer`. `means` consists of arrays that are
    subtracted one after the other. `columns` is ``A Delta'`` or a rotation of it. `turn`, if given,
    maps the products with the columns to ``Delta A r``.
    """
    # There are few means, so they stay in cache. "clip" avoids a copy; group numbers are in range.
    np.take(means[0], groups, axis=0, out=buffer, mode="clip")
    np.subtract(rows, buffer, out=buffer)
    for part in means[1:]:
        buffer -= part[groups]
    leverage, products = linalg.whitened_square_norms(buffer, inverse, columns)
    solved: Array = products.astype(np.float64, copy=False) if turn is None else products @ turn
    return leverage, solved
