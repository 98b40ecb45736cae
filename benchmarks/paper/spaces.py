"""Training rows and rows to score, with all factorisations that methods share.

One `Space` belongs to one fold, or to the whole training part and the test part. Costly results
are computed on first use, and then kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import linalg
from scipy.spatial.distance import pdist
from sklearn.cluster import KMeans
from sklearn.metrics.pairwise import euclidean_distances

from pcsda import ExactKernelMap, NystroemMap

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class Basis:
    """Features in the eigenbasis of their total scatter, about their grand mean.

    `scatter` holds the eigenvalues, in descending order; `rows` and `others` hold the coordinates
    of the training rows and of the rows to score. `unit` is the mean squared distance from the
    grand mean, the unit of relative ridges.
    """

    scatter: Array
    rows: Array
    others: Array

    @property
    def unit(self) -> float:
        return float(self.scatter.sum() / len(self.rows))


@dataclass(frozen=True, eq=False)
class Space:
    """Training rows and rows to score.

    Attributes
    ----------
    X, y : training rows and their labels, True for the class of interest
    others : rows to score
    seed : seed for landmarks, clusterings and random targets
    exact_up_to : largest number of training rows for an exact kernel map; otherwise Nystroem's
    n_landmarks : number of landmarks of the Nystroem map
    n_rows : training rows of the whole problem, which decide the kind of map for its folds too
    shape : shape of the pictures in X, or None if rows are not pictures
    """

    X: Array
    y: Array
    others: Array
    seed: int
    exact_up_to: int
    n_landmarks: int
    n_rows: int
    shape: tuple[int, int] | None = None

    @cached_property
    def targets(self) -> Array:
        return np.where(self.y, 1.0, -1.0)

    @cached_property
    def log_odds(self) -> float:
        return float(np.log(self.y.sum() / (~self.y).sum()))

    def gamma(self, rule: str | float) -> float:
        """Return the bandwidth: the paper's for "positive", else a multiple of "scale"."""
        if rule == "positive":
            return 1 / (2 * pdist(self.X[self.y]).mean() ** 2)
        return float(rule) / (self.X.shape[1] * self.X.var())

    def features(self, rule: str | float) -> tuple[Array, Array]:
        """Return features of the training rows and the others: exact (NPT) or Nystroem (ANPT)."""
        gamma = self.gamma(rule)
        kernel_map = ExactKernelMap(gamma=gamma)
        if self.n_rows > self.exact_up_to:
            kernel_map = NystroemMap(self.n_landmarks, gamma=gamma, random_state=self.seed)
        kernel_map.fit(self.X)
        return kernel_map.transform(self.X), kernel_map.transform(self.others)

    @cached_property
    def mapped(self) -> tuple[Array, Array]:
        """Return features at the paper's bandwidth, which most methods use."""
        return self.features("positive")

    @cached_property
    def basis(self) -> Basis:
        rows, others = self.mapped
        mean = rows.mean(axis=0)
        centred = rows - mean
        values, vectors = linalg.eigh(centred.T @ centred, check_finite=False)
        # Directions in which the rows do not vary contain only rounding errors.
        kept = values > 1e-12 * values[-1]
        values, vectors = values[kept][::-1], vectors[:, kept][:, ::-1]
        return Basis(values, centred @ vectors, (others - mean) @ vectors)

    @cached_property
    def _partitions(self) -> dict[int, Array]:
        return {}

    def subclasses(self, count: int) -> Array:
        """Return groups: 0 for positives, 1..K for k-means clusters of the negatives' features."""
        if count not in self._partitions:
            groups = np.where(self.y, 0, 1)
            if count > 1:
                clusters = KMeans(count, random_state=self.seed)
                groups[~self.y] += clusters.fit_predict(self.mapped[0][~self.y])
            self._partitions[count] = groups
        return self._partitions[count]

    @cached_property
    def distances(self) -> tuple[Array, Array]:
        """Return squared distances between training rows, and from the other rows to them."""
        return (
            euclidean_distances(self.X, squared=True),
            euclidean_distances(self.others, self.X, squared=True),
        )
