"""One division of a kernel matrix, with the left-out rows last in the factor.

Leaving rows out needs the diagonal of ``R = (Kx + eps I)^-1``. Entry i needs column i of the
inverse factor, from row i down. So for the last m rows the inverse of the last m x m block is
enough: ``m^3/3`` operations instead of ``N^3/3``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from . import linalg
from .gram import GramFactor, of_kernel
from .linalg import Array, Ints
from .loo import Leave, leave_of
from .subspace import Subspace

# Up to this share of the rows, the inverse of the last block is worth its memory.
MOST_LAST = 0.7


@dataclass(frozen=True)
class KernelOnce:
    """Solves one division of a kernel matrix, which is overwritten.

    Attributes
    ----------
    matrix : array of shape (N, N)
    regularization : float
    weights : array of shape (N,) or None
    """

    matrix: Array
    regularization: float
    weights: Array | None = None

    def solve(
        self, groups: Ints, n_components: int | None = None, *, leave_out: Leave | bool = True
    ) -> Subspace:
        """Solve one division: ``N^3/3 + 2 N^2 (K + 1)``, and ``m^3/3`` for m rows left out."""
        leave = leave_of(leave_out)
        if leave is None or leave.rows is None or leave.together is not None:
            return self._factor(self.weights).solve(groups, n_components, leave_out=leave_out)
        size, last = len(groups), len(leave.rows)
        if last > MOST_LAST * size:
            return self._factor(self.weights).solve(groups, n_components, leave_out=leave)
        order = np.concatenate([np.setdiff1d(np.arange(size), leave.rows), leave.rows])
        reorder(self.matrix, order)
        weights = None if self.weights is None else self.weights[order]
        moved = replace(leave, rows=np.arange(size - last, size))
        factor = replace(self._factor(weights), n_last=last)
        found = factor.solve(groups[order], n_components, leave_out=moved)
        coefficients = np.empty_like(found.coefficients)
        coefficients[order] = found.coefficients
        left = None if found.left is None else replace(found.left, rows=leave.rows)
        return replace(found, coefficients=coefficients, left=left)

    def _factor(self, weights: Array | None) -> GramFactor:
        made = next(of_kernel(self.matrix, [self.regularization], weights))
        return replace(made, spend=True)


def reorder(matrix: Array, order: Ints) -> None:
    """Turn a square matrix into ``matrix[order][:, order]`` in place, row by row."""
    step = min(linalg.cache_rows(len(matrix)), len(matrix))
    buffer = np.empty((step, len(matrix)))
    for start in range(0, len(matrix), step):
        block = matrix[start : start + step]
        # "clip" avoids a copy; the order is in range.
        block[:] = np.take(block, order, axis=1, out=buffer[: len(block)], mode="clip")
    waiting = order != np.arange(len(order))
    for first in np.flatnonzero(waiting).tolist():
        if not waiting[first]:  # moved with an earlier cycle
            continue
        held, place = matrix[first].copy(), first
        while (source := int(order[place])) != first:
            matrix[place] = matrix[source]
            waiting[place], place = False, source
        matrix[place], waiting[place] = held, False
