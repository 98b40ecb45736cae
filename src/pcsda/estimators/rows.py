"""Training rows with groups, weights and a kernel: the input of every step of a fit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..core.gram import WideRows
from ..core.linalg import Array, Ints, Mask
from ..kernels import Kernel, training_matrix
from ..validation import MatrixLike

Kept = Ints | slice
Entry = TypeVar("Entry", bound=np.generic)


def some(values: NDArray[Entry] | None, rows: Kept | Mask) -> NDArray[Entry] | None:
    """Return the values for a subset of rows; None stays None."""
    return None if values is None else values[rows]


@dataclass(frozen=True)
class Hidden:
    """Which negatives are unchecked, and whether their subclasses come from clustering."""

    unchecked: Mask
    clusters: bool


@dataclass(frozen=True)
class TrainingRows:
    """Training rows, with groups, weights and an optional kernel.

    Attributes
    ----------
    X : array or sparse matrix of shape (N, D)
        Kernel values between the rows if the kernel is precomputed.
    groups : array of shape (N,)
        0 for positives, the subclass number for negatives.
    weights : array of shape (N,) or None
    seed : int
    together : array of shape (N,) or None
        A number for each row; rows with the same number are left out together.
    kernel : Kernel or None
    hidden : Hidden or None
        The unchecked negatives, if positives may be hidden among the negatives.
    wide : WideRows or None
        The rows with their inner products, if there are more columns than rows and the products
        are known.
    """

    X: Any
    groups: Ints
    weights: Array | None
    seed: int
    together: Ints | None = None
    kernel: Kernel | None = None
    hidden: Hidden | None = None
    wide: WideRows | None = None

    @property
    def positive(self) -> Mask:
        """Mask of the rows that belong to the class of interest."""
        mask: Mask = self.groups == 0
        return mask

    def take(self, rows: Ints) -> TrainingRows:
        """Return a subset of the rows, with renumbered groups."""
        hidden = self.hidden
        return replace(
            self,
            X=self.rows(rows, rows),
            groups=np.unique(self.groups[rows], return_inverse=True)[1],
            weights=some(self.weights, rows),
            together=some(self.together, rows),
            hidden=hidden and replace(hidden, unchecked=hidden.unchecked[rows]),
            wide=None,
        )

    def rows(self, chosen: Kept, among: Kept) -> Any:
        """Return the chosen rows of X.

        With a precomputed kernel, return only their kernel values with the rows `among`.
        """
        pairwise = self.kernel is not None and self.kernel.metric == "precomputed"
        if not pairwise or isinstance(chosen, slice) or isinstance(among, slice):
            return self.X[chosen]
        return self.X[np.ix_(chosen, among)]

    def matrix(self, rows: Ints) -> Any:
        """Return the matrix to factorise: the given rows or, with a kernel, their kernel matrix."""
        own = self.rows(rows, rows)
        return own if self.kernel is None else training_matrix(self.kernel, own)

    def values(self, chosen: Kept, among: Kept = slice(None)) -> Any:
        """Return the chosen rows in the form that a model fitted on the rows `among` can score.

        With a kernel, these are the kernel values of the chosen rows with the rows `among`.
        """
        rows = self.rows(chosen, among)
        return rows if self.kernel is None else self.kernel(rows, self.X[among])


def rows_of(
    X: MatrixLike, positive: Mask, weights: Array | None, seed: int, **along: Any
) -> TrainingRows:
    """Make training rows whose negatives all belong to one group."""
    return TrainingRows(X, (~positive).astype(np.intp), weights, seed, **along)
