"""Group statistics, which are all that the dense solvers need from the data.

Group 0 is the positive class; groups 1..K are the subclasses of the negative class. There are two
scatter matrices whatever K is, so the statistics of chunks, workers and batches stay small, and
they merge exactly (Chan, Golub and LeVeque, 1983).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from . import linalg
from .linalg import Array, Floats, Ints
from .spread import known_variance

# Below this share of the variances, the rounding error of the means is negligible.
NEGLIGIBLE = 1e-9
# If at most this share of a group's weight remains, the remainder is rounding error.
ROUNDING = 1e-10


@dataclass(frozen=True)
class GroupScatter:
    """Counts, means and scatter of the positive class and the negative subclasses.

    Attributes
    ----------
    counts : array of shape (K + 1,)
        Number of samples in each group, or their total weight.
    means : array of shape (K + 1, D)
    positive : array of shape (D, D)
        S_p, scatter of the positives about their mean.
    within : array of shape (D, D)
        S_w, pooled scatter of the negatives about their subclass means.
    """

    counts: Array
    means: Array
    positive: Array
    within: Array

    @classmethod
    def from_samples(
        cls,
        X: Floats,
        groups: Ints,
        n_groups: int | None = None,
        weights: Array | None = None,
        dtype: type[np.floating] = np.float64,
    ) -> GroupScatter:
        """Collect the group statistics of the rows of `X` in one pass.

        Rows are processed in blocks. The rows of a group within one block are centred at their own
        mean before they are squared, and the scatter of these means is added afterwards. So neither
        an offset of the data nor the distance between groups costs digits. Cost: ``N D^2`` for
        matrix products, and memory for one block.

        With `dtype` float32, the products within a block are float32 and take half the time. An
        entry of a scatter matrix is then accurate to about 1e-7 of the product of its two standard
        deviations. Sums over blocks are always float64.
        """
        size = int(groups.max()) + 1 if n_groups is None else n_groups
        # Short integers get a fast radix sort.
        short = groups.astype(np.int16) if groups.max(initial=0) < 2**15 else groups
        order = np.argsort(short, kind="stable")

        def collect(start: int, stop: int) -> GroupScatter:
            return _collect(X, order[start:stop], groups, size, weights, dtype)

        return reduce(cls.merge, linalg.over_rows(collect, len(groups), X.shape[1]))

    @np.errstate(over="ignore", invalid="ignore")
    def merge(self, other: GroupScatter) -> GroupScatter:
        """Return the statistics of both sets of samples together.

        Groups are matched by number. A group that is missing from one of the sets counts as empty
        there.
        """
        size = max(len(self.counts), len(other.counts))
        left, right = self._padded(size), other._padded(size)
        counts = left.counts + right.counts
        safe = np.where(counts > 0, counts, 1.0)
        shift = right.means - left.means  # an unseen group has mean zero
        means = left.means + shift * (right.counts / safe)[:, None]
        spread = shift * np.sqrt(left.counts * right.counts / safe)[:, None]
        positive = left.positive + right.positive + np.outer(spread[0], spread[0])
        within = left.within + right.within + spread[1:].T @ spread[1:]
        return GroupScatter(counts, means, positive, within)

    def without(self, other: GroupScatter) -> GroupScatter:
        """Return the statistics without the samples in `other`: the inverse of `merge`.

        Subclasses that become empty are dropped.
        """
        rest = self.counts - other.counts
        rest[rest <= ROUNDING * self.counts] = 0.0
        safe = np.where(rest > 0, rest, 1.0)
        means = self.means + (self.means - other.means) * (other.counts / safe)[:, None]
        whole = np.where(self.counts > 0, self.counts, 1.0)
        spread = (other.means - means) * np.sqrt(rest * other.counts / whole)[:, None]
        positive = self.positive - other.positive - np.outer(spread[0], spread[0])
        within = self.within - other.within - spread[1:].T @ spread[1:]
        kept = np.append(True, rest[1:] > 0)
        return GroupScatter(rest[kept], means[kept], positive, within)

    def _padded(self, n_groups: int) -> GroupScatter:
        missing = n_groups - len(self.counts)
        return replace(
            self,
            counts=np.pad(self.counts, (0, missing)),
            means=np.pad(self.means, ((0, missing), (0, 0))),
        )

    def renumbered(self, places: Ints, n_groups: int) -> GroupScatter:
        """Return the statistics of `n_groups` groups, with group g renumbered ``places[g]``."""
        counts, means = np.zeros(n_groups), np.zeros((n_groups, self.means.shape[1]))
        counts[places], means[places] = self.counts, self.means
        return replace(self, counts=counts, means=means)

    @property
    def n_positive(self) -> float:
        """N_p, the number or total weight of the positives."""
        return float(self.counts[0])

    @property
    def n_negative(self) -> float:
        """N_n, the number or total weight of the negatives."""
        return float(self.counts[1:].sum())

    @property
    def n_subclasses(self) -> int:
        """K, the number of negative subclasses."""
        return len(self.counts) - 1

    @property
    def delta(self) -> Array:
        """Subclass means minus the positive mean, one row per subclass."""
        shifted: Array = self.means[1:] - self.means[0]
        return shifted

    @property
    @np.errstate(over="ignore", invalid="ignore")
    def total_variance(self) -> float:
        """trace(S_T) / N, the mean squared distance of the rows from the grand mean.

        It is 0 if rounding alone could cause the computed value.
        """
        shares = self.counts / self.counts.sum()
        spread = self.means - self.means[0]
        spread = spread - shares @ spread
        within = np.trace(self.positive) + np.trace(self.within)
        variance = within / self.counts.sum() + shares @ np.einsum("ij,ij->i", spread, spread)
        return known_variance(float(variance), self.means)

    @property
    def intra(self) -> Array:
        """S_I = S_p + S_w, the denominator of eq. (PnPi_eigproblem)."""
        return self.positive + self.within

    @property
    def between(self) -> Array:
        """S_n of PCSDA: the scatter of the subclass means about the positive mean."""
        return self.delta.T @ self.delta

    @property
    def out_of_class(self) -> Array:
        """S_n of CSDA, eq. (S_n_matrix): the scatter of all negatives about the positive mean."""
        weighted = self.delta * self.counts[1:, None]
        return self.within + weighted.T @ self.delta

    @property
    def within_freedom(self) -> float:
        """The divisor in eq. (Phi_w): the number of negatives minus the number of subclasses."""
        return max(self.n_negative - self.n_subclasses, 0.0)

    @property
    def phi_o(self) -> Array:
        """Covariance of eq. (Phi_o), which is the sum of eq. (Phi_n2) and eq. (Phi_w)."""
        return self.between / self.n_subclasses + self.within / self.n_negative

    def leading(self, d: int) -> GroupScatter:
        """Return the statistics of only the first `d` coordinates."""
        return replace(
            self,
            means=self.means[:, :d],
            positive=self.positive[:d, :d],
            within=self.within[:d, :d],
        )

    def project(self, components: Array) -> GroupScatter:
        """Return the statistics of ``components @ (x - m)``, where m is the positive mean."""
        return GroupScatter(
            self.counts,
            (self.means - self.means[0]) @ components.T,
            components @ self.positive @ components.T,
            components @ self.within @ components.T,
        )


# Overflow needs no warning here, because the check of the total variance finds it.
@np.errstate(over="ignore", invalid="ignore")
def _collect(
    X: Floats,
    order: Ints,
    groups: Ints,
    n_groups: int,
    weights: Array | None,
    dtype: type[np.floating],
) -> GroupScatter:
    """Collect the statistics of the rows whose numbers are in `order`.

    The rows must be sorted by group.
    """
    numbers = groups[order]
    weight = None if weights is None else weights[order]
    counts = np.bincount(numbers, weight, minlength=n_groups).astype(np.float64)
    means = np.zeros((n_groups, X.shape[1]))
    # Groups of one row have no scatter.
    alone = np.bincount(numbers, minlength=n_groups)[numbers] == 1
    means[numbers[alone]] = X[order[alone]]
    means[counts == 0] = 0
    order, numbers = order[~alone], numbers[~alone]
    edges = (0, int(np.searchsorted(numbers, 1)), len(numbers))
    longest = max(edges[1], edges[2] - edges[1], 1)
    buffer = np.empty((min(linalg.block_rows(X.shape[1]), longest), X.shape[1]), dtype)
    positive, within = (
        _scatter_about(means, X, order[first:last], numbers[first:last], weights, buffer)
        for first, last in pairwise(edges)
    )
    return GroupScatter(counts, means, positive, within)


def _scatter_about(
    means: Array, X: Floats, members: Ints, numbers: Ints, weights: Array | None, buffer: Floats
) -> Array:
    """Store the mean of each group in `means`, and return the scatter of rows about their means.

    `members` holds row numbers sorted by group, and `numbers` the group of each. A block may hold
    many groups, each centred at its own mean, so that D x D products are summed once per block
    rather than once per group.
    """
    result = np.zeros((X.shape[1], X.shape[1]))
    sizes = np.bincount(numbers)
    pieces: list[_Piece] = []  # parts of groups that extend beyond one block
    losses: list[Array] = []
    for start in range(0, len(members), len(buffer)):
        block = slice(start, start + len(buffer))
        chosen, own = members[block], numbers[block]
        rows = gather(X, chosen, buffer)
        weight = None if weights is None else weights[chosen]
        for part in _runs(own):
            piece = _centre(rows[part], None if weight is None else weight[part], int(own[part][0]))
            if piece.loss is not None:
                losses.append(piece.loss)
            if part.stop - part.start == sizes[piece.group]:
                means[piece.group] = piece.mean
            elif piece.weight > 0:
                pieces.append(piece)
        result += rows.T @ rows  # NumPy uses the symmetry, which halves the work
    if losses:
        lost = np.array(losses)
        if np.any(np.einsum("ij,ij->j", lost, lost) > NEGLIGIBLE * result.diagonal()):
            result -= lost.T @ lost
    spreads = []
    for part in _runs(np.array([piece.group for piece in pieces])):
        shares = np.array([piece.weight for piece in pieces[part]])
        centres = np.array([piece.mean for piece in pieces[part]])
        mean = centres[0] + shares @ (centres - centres[0]) / shares.sum()
        spreads.append((centres - mean) * np.sqrt(shares)[:, None])
        means[pieces[part.start].group] = mean
    if spreads:
        spread = np.concatenate(spreads)
        result += spread.T @ spread
    return result


def _runs(numbers: Ints) -> Iterator[slice]:
    """Yield a slice for each run of equal numbers."""
    if len(numbers):
        edges = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
        yield from map(slice, edges[:-1], edges[1:])


@dataclass(frozen=True)
class _Piece:
    """The mean and weight of one group's rows within a block.

    `loss` is the rounding error of the mean in float32, scaled so that its outer product is the
    error of the scatter. It is None in float64.
    """

    group: int
    weight: float
    mean: Array
    loss: Array | None = None


def _centre(rows: Floats, weight: Array | None, group: int) -> _Piece:
    """Centre the rows of a group in place, then scale them by the square roots of their weights."""
    share = np.ones(len(rows), rows.dtype) if weight is None else weight
    total = float(share.sum())
    if total == 0:
        rows[:] = 0
        return _Piece(group, total, np.zeros(rows.shape[1]))
    mean = share @ rows / total
    rows -= mean
    loss = None
    if rows.dtype != np.float64:  # after subtraction of a rounded mean, part of an offset remains
        rest = (share @ rows).astype(np.float64) / total
        mean, loss = mean + rest, np.sqrt(total) * rest
    if weight is not None:
        rows *= np.sqrt(weight)[:, None]
    return _Piece(group, total, mean, loss)


def gather(X: Floats, chosen: Ints, buffer: Floats) -> Floats:
    """Copy the chosen rows of `X` to the start of `buffer`, converted to the buffer's type."""
    rows = buffer[: len(chosen)]
    if X.dtype == rows.dtype:
        # With mode="raise", NumPy would fill a copy first, in case an index is out of range.
        np.take(X, chosen, axis=0, out=rows, mode="clip")
    else:
        rows[:] = X[chosen]
    return rows


class Grouping(NamedTuple):
    """One division of rows into groups.

    Attributes
    ----------
    groups : array of shape (n,)
        Group number of each row.
    counts : array of shape (K + 1,)
        Total weight of each group.
    weights : array of shape (n,) or None
        Weights of the rows; None means that all are one.
    """

    groups: Ints
    counts: Array
    weights: Array | None = None

    @classmethod
    def of(cls, groups: Ints, weights: Array | None = None) -> Grouping:
        """Count the rows of each group."""
        return cls(groups, np.bincount(groups, weights).astype(np.float64), weights)

    @property
    def weight(self) -> Array:
        """Weight of each row; one if there are no weights."""
        return np.ones(len(self.groups)) if self.weights is None else self.weights

    def means(self, X: Any) -> Array:
        """Compute the weighted mean of each group by one sparse product; X may be sparse."""
        # One entry per column, so these are the arrays of a CSC matrix.
        size = len(self.groups)
        columns = self.weight / self.counts[self.groups], self.groups, np.arange(size + 1)
        averages = sparse.csc_array(columns, shape=(len(self.counts), size)) @ X
        return np.asarray(averages.todense() if sparse.issparse(averages) else averages)
