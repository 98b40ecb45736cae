"""Group rows into (class, cluster) cells, whose sums are reused for all classes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .linalg import Array, Floats, Ints
from .scatter import Grouping


@dataclass(frozen=True)
class Cells:
    """The non-empty (class, cluster) cells of a data set.

    When one class is separated from all others, each group of rows is a union of cells. So linear
    statistics of the rows are summed once per cell, and the group sums of every class follow from
    the cell sums.

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
        """Find and number the cells, given the class and the cluster of each row."""
        size, least = int(clusters.max()) + 1, int(labels.min())
        pairs = (labels - least) * size + clusters
        found, rows, counts = np.unique(pairs, return_inverse=True, return_counts=True)
        of_class, of_cluster = np.divmod(found, size)
        return cls(of_class + least, of_cluster, counts.astype(np.float64), rows)

    def division(self, label: int) -> tuple[Ints, Array]:
        """Divide the rows for one class; return the group of each row and the group sizes.

        Group 0 is the class itself. The rows of all other classes are grouped by cluster. Clusters
        without such rows are dropped.
        """
        own = self.of_class == label
        remaining = np.unique(self.of_cluster[~own])
        group = np.where(own, 0, np.searchsorted(remaining, self.of_cluster) + 1)
        counts = np.bincount(group, self.counts).astype(np.float64)
        return group[self.rows], counts

    def sums(self, values: Floats) -> CellSums:
        """Sum the rows of `values` over each cell."""
        return CellSums(self, Grouping(self.rows, np.ones(len(self.counts))).means(values))


@dataclass(frozen=True)
class CellSums:
    """Sums over the rows of each cell; `values` has one row per cell."""

    cells: Cells
    values: Array

    @cached_property
    def totals(self) -> Array:
        """Sums over all rows of each cluster, one row per cluster."""
        clusters = self.cells.of_cluster
        return Grouping(clusters, np.ones(clusters.max() + 1)).means(self.values)

    def over_groups(self, label: int) -> Array:
        """Return the sum over the rows of one class, then sums over all other rows by cluster."""
        cells = self.cells
        own = np.flatnonzero(cells.of_class == label)
        rest = self.totals.copy()
        rest[cells.of_cluster[own]] -= self.values[own]
        others = np.unique(cells.of_cluster[cells.of_class != label])
        return np.vstack([self.values[own].sum(axis=0), rest[others]])
