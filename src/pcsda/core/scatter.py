"""Group statistics: all that the dense solvers need to know about the data.

Group 0 is the positive class, groups 1..K are the subclasses of the negative class. Two scatter
matrices are kept whatever K is, so statistics of chunks, workers and batches have one small form
and merge exactly (Chan, Golub and LeVeque, 1983).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from . import linalg
from .linalg import Array


@dataclass(frozen=True)
class GroupScatter:
    """Counts, means and scatter of the positive class and the negative subclasses.

    Attributes
    ----------
    counts : array of shape (K + 1,)
        Number of samples of each group, or their total weight.
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
        X: NDArray[np.floating],
        groups: NDArray[np.intp],
        n_groups: int | None = None,
        weights: Array | None = None,
        dtype: type[np.floating] = np.float64,
    ) -> GroupScatter:
        """Collect the statistics of rows `X` with group numbers `groups`, in one pass.

        Every block of rows is centred at its own mean before it is squared, and the blocks of a
        group are joined through the scatter of their means, so neither an offset of the data nor
        the distance between groups costs digits. Cost: N D^2, BLAS-3; memory: one block.

        With `dtype` float32 the products within a block are float32, at half the cost: an entry
        of a scatter matrix is then known to about 1e-7 of the roots of its two variances. Sums
        over blocks are float64 always.
        """
        size = int(groups.max()) + 1 if n_groups is None else n_groups
        order = group_order(groups)

        def collect(start: int, stop: int) -> GroupScatter:
            return _collect(X, order[start:stop], groups, size, weights, dtype)

        return reduce(cls.merge, linalg.over_rows(collect, len(groups), X.shape[1]))

    @np.errstate(over="ignore", invalid="ignore")
    def merge(self, other: GroupScatter) -> GroupScatter:
        """Return the statistics of both sets of samples together.

        Groups are matched by number; the side with fewer groups has none of the further ones.
        """
        size = max(len(self.counts), len(other.counts))
        left, right = self._padded(size), other._padded(size)
        counts = left.counts + right.counts
        safe = np.where(counts > 0, counts, 1.0)
        shift = right.means - left.means  # the mean of an unseen group is stored as zero
        means = left.means + shift * (right.counts / safe)[:, None]
        spread = shift * np.sqrt(left.counts * right.counts / safe)[:, None]
        positive = left.positive + right.positive + np.outer(spread[0], spread[0])
        within = left.within + right.within + spread[1:].T @ spread[1:]
        return GroupScatter(counts, means, positive, within)

    def _padded(self, n_groups: int) -> GroupScatter:
        missing = n_groups - len(self.counts)
        return replace(
            self,
            counts=np.pad(self.counts, (0, missing)),
            means=np.pad(self.means, ((0, missing), (0, 0))),
        )

    @property
    def n_positive(self) -> float:
        """N_p, the number (total weight) of positives."""
        return float(self.counts[0])

    @property
    def n_negative(self) -> float:
        """N_n, the number (total weight) of negatives."""
        return float(self.counts[1:].sum())

    @property
    def n_subclasses(self) -> int:
        """K, the number of negative subclasses."""
        return len(self.counts) - 1

    @property
    def delta(self) -> Array:
        """Subclass means minus the positive mean, one row each."""
        shifted: Array = self.means[1:] - self.means[0]
        return shifted

    @property
    @np.errstate(over="ignore", invalid="ignore")
    def total_variance(self) -> float:
        """trace(S_T) / N, the mean squared distance from the grand mean; 0 if it is rounding."""
        shares = self.counts / self.counts.sum()
        spread = self.means - self.means[0]
        spread = spread - shares @ spread
        within = np.trace(self.positive) + np.trace(self.within)
        variance = within / self.counts.sum() + shares @ np.einsum("ij,ij->i", spread, spread)
        rounding = linalg.SAME_NUMBER * np.abs(self.means).max()
        return 0.0 if np.sqrt(variance / spread.shape[1]) <= rounding else float(variance)

    @property
    def intra(self) -> Array:
        """S_I = S_p + S_w, the denominator of eq. (PnPi_eigproblem)."""
        return self.positive + self.within

    @property
    def between(self) -> Array:
        """S_n of PCSDA: scatter of the subclass means about the positive mean."""
        return self.delta.T @ self.delta

    @property
    def out_of_class(self) -> Array:
        """S_n of CSDA, eq. (S_n_matrix): scatter of all negatives about the positive mean."""
        weighted = self.delta * self.counts[1:, None]
        return self.within + weighted.T @ self.delta

    @property
    def phi_p(self) -> Array:
        """Covariance of eq. (Phi_p)."""
        return self.positive / self.n_positive

    @property
    def phi_w(self) -> Array:
        """Covariance of eq. (Phi_w); zero by definition when all subclasses are single samples."""
        freedom = self.within_freedom
        return self.within / freedom if freedom > 0 else np.zeros_like(self.within)

    @property
    def within_freedom(self) -> float:
        """N_n - K, the divisor of eq. (Phi_w)."""
        return max(self.n_negative - self.n_subclasses, 0.0)

    @property
    def phi_n(self) -> Array:
        """Covariance of eq. (Phi_n2), with the mean subclass size for M; may be indefinite."""
        return self.phi_o - self.phi_w

    @property
    def phi_o(self) -> Array:
        """Covariance of eq. (Phi_o)."""
        return self.between / self.n_subclasses + self.within / self.n_negative

    def leading(self, d: int) -> GroupScatter:
        """Return the statistics of the first `d` coordinates."""
        return replace(
            self,
            means=self.means[:, :d],
            positive=self.positive[:d, :d],
            within=self.within[:d, :d],
        )

    def project(self, components: Array) -> GroupScatter:
        """Return the statistics of ``components @ (x - m)``, m the positive mean."""
        return GroupScatter(
            self.counts,
            (self.means - self.means[0]) @ components.T,
            components @ self.positive @ components.T,
            components @ self.within @ components.T,
        )


# Squares that overflow are no surprise here: the total variance shows them, and is looked at.
@np.errstate(over="ignore", invalid="ignore")
def _collect(
    X: NDArray[np.floating],
    order: NDArray[np.intp],
    groups: NDArray[np.intp],
    n_groups: int,
    weights: Array | None,
    dtype: type[np.floating],
) -> GroupScatter:
    """Collect the statistics of the rows `order`, which is sorted by group."""
    width = X.shape[1]
    numbers = groups[order]
    weight = None if weights is None else weights[order]
    counts = np.bincount(numbers, weight, minlength=n_groups).astype(np.float64)
    edges = np.searchsorted(numbers, np.arange(n_groups + 1))
    means = np.zeros((n_groups, width))
    positive, within = np.zeros((width, width)), np.zeros((width, width))
    longest = int(np.diff(edges).max(initial=0))
    buffer = np.empty((min(linalg.block_rows(width), longest), width), dtype)
    for group in map(int, np.flatnonzero(counts)):
        members = order[edges[group] : edges[group + 1]]
        if len(members) == 1:
            means[group] = X[members[0]]
            continue
        means[group] = _add_group(X, members, weights, buffer, within if group else positive)
    return GroupScatter(counts, means, positive, within)


def _add_group(
    X: NDArray[np.floating],
    members: NDArray[np.intp],
    weights: Array | None,
    buffer: NDArray[np.floating],
    out: Array,
) -> Array:
    """Add the scatter of one group to `out` and return its mean."""
    counts: list[float] = []
    means: list[Array] = []
    for start in range(0, len(members), len(buffer)):
        chosen = members[start : start + len(buffer)]
        rows = gather(X, chosen, buffer)
        weight = np.ones(len(chosen), rows.dtype) if weights is None else weights[chosen]
        total = float(weight.sum())
        if total == 0:
            continue
        block_mean = weight @ rows / total
        rows -= block_mean
        if rows.dtype != np.float64:  # a rounded mean leaves some of an offset
            rest = (weight @ rows).astype(np.float64) / total
            block_mean = block_mean + rest
            out -= np.outer(total * rest, rest)
        if weights is not None:
            rows *= np.sqrt(weight)[:, None]
        out += rows.T @ rows  # symmetric, and NumPy knows: half the work of a general product
        counts.append(total)
        means.append(block_mean)
    if len(counts) == 1:
        return means[0]
    share = np.array(counts)
    stacked = np.array(means)
    mean: Array = stacked[0] + share @ (stacked - stacked[0]) / share.sum()
    stacked -= mean
    stacked *= np.sqrt(share)[:, None]
    out += stacked.T @ stacked
    return mean


def group_order(groups: NDArray[np.intp]) -> NDArray[np.intp]:
    """Order that sorts rows by group; short integers are sorted by radix, many times faster."""
    short = groups.astype(np.int16) if groups.max(initial=0) < 2**15 else groups
    return np.argsort(short, kind="stable")


def gather(
    X: NDArray[np.floating], chosen: NDArray[np.intp], buffer: NDArray[np.floating]
) -> NDArray[np.floating]:
    """Copy the chosen rows of `X` into the head of `buffer`, in its type."""
    rows = buffer[: len(chosen)]
    if X.dtype == rows.dtype:
        # "clip" spares the copy that NumPy makes to undo a failed take; indices are in range.
        np.take(X, chosen, axis=0, out=rows, mode="clip")
    else:
        rows[:] = X[chosen]
    return rows


def group_means(X: Any, groups: NDArray[np.intp], counts: Array, weights: Array | None) -> Array:
    """Weighted mean of every group by one sparse product; X may be sparse."""
    weight = np.ones(len(groups)) if weights is None else weights
    rows = (weight / counts[groups], (groups, np.arange(len(groups))))
    averages = sparse.csr_array(rows, shape=(len(counts), len(groups))) @ X
    dense: Array = np.asarray(averages.todense() if sparse.issparse(averages) else averages)
    return dense
