"""The cells of many classes in shared clusters: sums over them serve every class."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .linalg import Array
from .scatter import group_means


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

    def division(self, label: int) -> tuple[NDArray[np.intp], Array]:
        """Groups of the rows and their counts for one class.

        Group 0 is the class itself; clusters that are empty without it are dropped.
        """
        own = self.of_class == label
        remaining = np.unique(self.of_cluster[~own])
        group = np.where(own, 0, np.searchsorted(remaining, self.of_cluster) + 1)
        counts = np.bincount(group, self.counts).astype(np.float64)
        return group[self.rows], counts

    def sums(self, values: NDArray[np.floating]) -> Array:
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
