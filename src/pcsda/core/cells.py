"""Cells: the rows of one class in one cluster. Sums over cells are reused for all classes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .linalg import Array, Floats, Ints
from .scatter import group_means


@dataclass(frozen=True)
class Cells:
    """The non-empty (class, cluster) cells of a data set.

    When one class is solved against all others, its groups are unions of cells. So anything linear
    in the rows is summed over the cells once, and these sums are added up for each class.

    Attributes
    ----------
    of_class, of_cluster : arrays of shape (C,)
        Class and cluster of each cell.
    counts : array of shape (C,)
        Number of rows in each cell.
    rows : array of shape (N,)
        Cell of each row.
    """

    of_class: Ints
    of_cluster: Ints
    counts: Array
    rows: Ints

    @classmethod
    def of(cls, labels: Ints, clusters: Ints) -> Cells:
        """Number the cells of rows with the given class `labels` and `clusters`."""
        pairs = np.stack([labels, clusters], axis=1)
        found, rows, counts = np.unique(pairs, axis=0, return_inverse=True, return_counts=True)
        return cls(found[:, 0], found[:, 1], counts.astype(np.float64), rows.ravel())

    def division(self, label: int) -> tuple[Ints, Array]:
        """Return the group of each row, for one class against all others, and the group sizes.

        Group 0 is the class itself. Clusters without rows of other classes are dropped.
        """
        own = self.of_class == label
        remaining = np.unique(self.of_cluster[~own])
        group = np.where(own, 0, np.searchsorted(remaining, self.of_cluster) + 1)
        counts = np.bincount(group, self.counts).astype(np.float64)
        return group[self.rows], counts

    def sums(self, values: Floats) -> CellSums:
        """Sum the rows of `values` over each cell."""
        return CellSums(self, group_means(values, self.rows, np.ones(len(self.counts)), None))


@dataclass(frozen=True)
class CellSums:
    """Sums of the rows in each cell, one row per cell."""

    cells: Cells
    values: Array

    @cached_property
    def totals(self) -> Array:
        """Sums over whole clusters."""
        clusters = self.cells.of_cluster
        return group_means(self.values, clusters, np.ones(clusters.max() + 1), None)

    def over_groups(self, label: int) -> Array:
        """Return sums over the groups of one class: its own rows, then other rows by cluster."""
        cells = self.cells
        own = np.flatnonzero(cells.of_class == label)
        rest = self.totals.copy()
        rest[cells.of_cluster[own]] -= self.values[own]
        others = np.unique(cells.of_cluster[cells.of_class != label])
        return np.vstack([self.values[own].sum(axis=0), rest[others]])
