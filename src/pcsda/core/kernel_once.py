"""Solve PCSDA once for a kernel matrix, with the rows to leave out moved to its end.

Leaving rows out needs the diagonal of ``(Kx + eps I)^-1``. Entry i of the diagonal needs column i
of the inverse Cholesky factor, from row i down. So for the last m rows it is enough to invert the
last m x m block, which takes ``m^3/3`` operations instead of ``N^3/3``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from . import linalg
from .gram import GramFactor, of_kernel
from .linalg import Array, Ints
from .loo import EVERY, Leave
from .subspace import Subspace

# If more than this share of the rows is left out, moving them takes more time than it saves.
MOST_LAST = 0.9


@dataclass(frozen=True)
class KernelOnce:
    """A factor for a kernel matrix that can solve only once, because it overwrites the matrix.

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
        self, groups: Ints, n_components: int | None = None, *, leave_out: Leave | None = EVERY
    ) -> Subspace:
        """Find the axes and leave m rows out in ``N^3/3 + 2 N^2 (K + 1) + m^3/3`` operations.

        If no rows are left out, the last term is absent. If more than the share `MOST_LAST` of the
        rows is left out, m is N.
        """
        rows = None if leave_out is None or leave_out.together is not None else leave_out.rows
        if leave_out is None or rows is None or len(rows) > MOST_LAST * len(groups):
            return self._factor(self.weights).solve(groups, n_components, leave_out=leave_out)
        places = exchange(rows, len(groups))
        apply_exchange(self.matrix, places)
        weights = None if self.weights is None else self.weights[places]
        factor = replace(self._factor(weights), n_last=len(rows))
        moved = replace(leave_out, rows=places[rows])
        found = factor.solve(groups[places], n_components, leave_out=moved)
        left = None if found.left is None else replace(found.left, rows=rows)
        return replace(found, coefficients=found.coefficients[places], left=left)

    def _factor(self, weights: Array | None) -> GramFactor:
        return replace(next(of_kernel(self.matrix, [self.regularization], weights)), spend=True)


def exchange(rows: Ints, size: int) -> Ints:
    """Return an order of `size` rows in which `rows` come last, made by swapping pairs of rows."""
    places = np.arange(size)
    edge = size - len(rows)
    early = rows[rows < edge]
    late = np.setdiff1d(places[edge:], rows)
    places[early], places[late] = late, early
    return places


def apply_exchange(matrix: Array, places: Ints) -> None:
    """Overwrite a square matrix with ``matrix[places][:, places]``; `places` must swap pairs."""
    moved = np.flatnonzero(places != np.arange(len(places)))
    step = min(linalg.cache_rows(len(matrix)), len(matrix))
    for start in range(0, len(matrix), step):
        block = matrix[start : start + step]
        block[:, moved] = block[:, places[moved]]
    one = moved[moved < places[moved]]
    for start in range(0, len(one), step):
        here, there = one[start : start + step], places[one[start : start + step]]
        held = matrix[here]
        matrix[here] = matrix[there]
        matrix[there] = held
