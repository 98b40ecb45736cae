"""The rows that `partial_fit` keeps in order to leave them out."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..core.linalg import Array, Floats, Ints
from ..core.loo import sample_rows


@dataclass(frozen=True)
class RowSample:
    """All rows of a stream or, once there are too many, a uniform sample of each group.

    Every row has a random key. A group that drops rows keeps those with the smallest keys, so the
    chance that a row stays does not depend on when it arrives. Rows are in order of arrival.

    Attributes
    ----------
    X : array of shape (n, n_features)
    groups : array of shape (n,)
        0 for a positive, 1..K for the subclass of a negative.
    weights : array of shape (n,)
    numbers : array of shape (n,)
        Position of each row among all rows so far, counted from 0.
    keys : array of shape (n,)
    limits : array of shape (K + 1,)
        Smallest key dropped from each group; 1 if none was dropped.
    n_rows : array of shape (K + 1,)
        Number of rows seen so far in each group.

    Examples
    --------
    >>> from pcsda import PCSDA
    >>> from pcsda.datasets import make_class_specific
    >>> X, y = make_class_specific(500, random_state=0, return_X_y=True)
    >>> model = PCSDA(3, calibration_rows=20, random_state=0).partial_fit(X, y)
    >>> sample = model.sample_
    >>> sample.whole, int(sample.n_rows.sum()), bool((sample.X == X[sample.numbers]).all())
    (False, 500, True)
    """

    X: Floats
    groups: Ints
    weights: Array
    numbers: Ints
    keys: Array
    limits: Array
    n_rows: Ints

    @classmethod
    def of_batch(
        cls,
        X: Floats,
        groups: Ints,
        weights: Array | None,
        numbers: Ints,
        n_groups: int,
        rng: np.random.Generator,
    ) -> RowSample:
        """Make a sample of all rows in a batch that have positive weight."""
        weight = np.ones(len(X)) if weights is None else weights.astype(np.float64)
        rows = np.flatnonzero(weight)
        limits, n_rows = np.ones(n_groups), np.bincount(groups[rows], minlength=n_groups)
        batch = cls(X, groups, weight, numbers, rng.random(len(X)), limits, n_rows)
        return batch._take(rows)

    @property
    def whole(self) -> bool:
        """Whether all rows were kept."""
        return len(self.groups) == int(self.n_rows.sum())

    @property
    def given_weights(self) -> Array | None:
        """The weights, or None if all equal one."""
        return None if np.all(self.weights == 1) else self.weights

    def stands_for(self, counts: Array) -> Array:
        """Return how many rows each kept row represents; `counts` has each group's total weight."""
        kept = np.bincount(self.groups, self.weights, minlength=len(counts))
        return (counts / np.where(kept > 0, kept, 1.0))[self.groups]

    def merge(self, other: RowSample) -> RowSample:
        """Return a sample of both streams combined."""
        size = max(len(self.limits), len(other.limits))
        left, right = self._padded(size), other._padded(size)
        limits = np.minimum(left.limits, right.limits)
        numbers, keys, groups = (
            np.concatenate([getattr(left, name), getattr(right, name)])
            for name in ("numbers", "keys", "groups")
        )
        kept = np.flatnonzero(keys < limits[groups])
        kept = kept[np.argsort(numbers[kept], kind="stable")]
        X = np.concatenate([left.X, right.X])[kept]
        weights = np.concatenate([left.weights, right.weights])[kept]
        n_rows = left.n_rows + right.n_rows
        return RowSample(X, groups[kept], weights, numbers[kept], keys[kept], limits, n_rows)

    def _padded(self, n_groups: int) -> RowSample:
        missing = n_groups - len(self.limits)
        limits = np.pad(self.limits, (0, missing), constant_values=1.0)
        return replace(self, limits=limits, n_rows=np.pad(self.n_rows, (0, missing)))

    def renumbered(self, places: Ints, n_groups: int) -> RowSample:
        """Return the same rows with new group numbers: group g becomes ``places[g]``."""
        limits, n_rows = np.ones(n_groups), np.zeros(n_groups, dtype=np.intp)
        limits[places], n_rows[places] = self.limits, self.n_rows
        return replace(self, groups=places[self.groups], limits=limits, n_rows=n_rows)

    def first_draw(self, most: int, seed: int) -> Ints | None:
        """Return the numbers of the rows that `fit` would leave out; None means all rows.

        The sample must not have dropped any row yet.
        """
        rng = np.random.default_rng(seed)
        return sample_rows(self.groups, most, rng, self.given_weights).rows

    def drawn(self, rows: Ints, rng: np.random.Generator) -> RowSample:
        """Return a sample of only `rows`, which were drawn at random from each group.

        This sample must not have dropped any row yet. The rows get new keys, as if their keys had
        selected them: the m smallest of n uniform numbers are uniform below the next smallest,
        which has the distribution Beta(m + 1, n - m).
        """
        kept = np.bincount(self.groups[rows], minlength=len(self.limits))
        fewer = kept < self.n_rows
        limits = self.limits.copy()
        limits[fewer] = rng.beta(kept[fewer] + 1, (self.n_rows - kept)[fewer])
        sample = self._take(rows)
        keys = np.where(fewer, limits, 1.0)[sample.groups] * rng.random(len(rows))
        return replace(sample, keys=keys, limits=limits)

    def thinned(self, most: int) -> RowSample:
        """Return a sample of about `most` positives and `most` negatives.

        The subclasses keep their proportions.
        """
        limits = self.limits.copy()
        for part in (slice(0, 1), slice(1, None)):
            share = min(1.0, most / max(int(self.n_rows[part].sum()), 1))
            for group in range(len(limits))[part]:
                keys = np.sort(self.keys[self.groups == group])
                room = max(int(share * self.n_rows[group]), 1)
                if len(keys) > room:
                    limits[group] = keys[room]
        kept = np.flatnonzero(self.keys < limits[self.groups])
        return replace(self._take(kept), limits=limits)

    def _take(self, rows: Ints) -> RowSample:
        names = ("X", "groups", "weights", "numbers", "keys")
        return replace(self, **{name: getattr(self, name)[rows] for name in names})
