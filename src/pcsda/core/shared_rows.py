"""Rows that many labels share: factorised once, and updated when rows are added or removed.

The means and the total scatter need one pass over all rows. After that, the cost of a label depends
only on the label's own rows and on a fixed sample of all rows. The rows are divided into clusters
that all labels share; `core.many` solves each label against them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy import sparse

from . import linalg
from .linalg import Array, Floats, Ints, Mask
from .scatter import Grouping
from .spread import centred, naming_the_ridge, ridge_of
from .white import updated_back

# Label numbers of unlabelled rows and of removed rows.
BACKGROUND, GONE = -1, -2
# Results for the sample are copied once more than about this share of them is out of date.
MOST_STALE = 1 / 8


@dataclass(frozen=True)
class HeldSample:
    """Results for the sample that are kept when rows are added or removed.

    The sample consists of the rows that are left out for every label. Computing the results again
    would take long for wide rows, and so would copying them. So rows that leave the sample stay
    here until there are many.

    Attributes
    ----------
    numbers : array of shape (M,)
        Row numbers, ascending.
    places : array of shape (M,)
        Position of each of these rows in `rows` and `norms`.
    rows : array of shape (H, r)
        The rows minus the origin.
    norms : array of shape (H,)
        Squared lengths of the whitened rows.
    """

    numbers: Ints
    places: Ints
    rows: Array
    norms: Array

    def find(self, sample: Ints) -> tuple[Ints, Mask]:
        """Look up the rows of a new sample among the held rows.

        Returns the position of each row in `rows`, and a mask of the rows that were found.
        """
        near = np.minimum(np.searchsorted(self.numbers, sample), len(self.numbers) - 1)
        return self.places[near], self.numbers[near] == sample

    def kept(self, rows: Mask) -> HeldSample | None:
        """Return the results after rows were removed; `rows` is a mask of those that stay."""
        stay = rows[self.numbers]
        if not stay.any():
            return None
        numbers = (np.cumsum(rows) - 1)[self.numbers[stay]]
        return replace(self, numbers=numbers, places=self.places[stay])


@dataclass(frozen=True)
class SharedRows:
    """Rows with their factorised total scatter and clusters, which all labels share.

    Attributes
    ----------
    rows : array of shape (N, r)
        Rows, or their exact features.
    origin : array of shape (r,)
        c, the mean of the rows that were factorised first.
    back : array of shape (r, r)
        B, with ``B B' = (T + eps I)^-1``, where T is the scatter about c.
    variance : float
        Mean squared distance of the rows from c.
    ridge : float
        eps, the absolute ridge.
    owner : array of shape (N,)
        Label number of each row, or `BACKGROUND` or `GONE`.
    clusters : array of shape (N,)
        Cluster of each row.
    counts : array of shape (K,)
        Sizes of the clusters.
    totals : array of shape (K, r)
        Sum of each cluster's rows minus c.
    keys : array of shape (N,)
        Random numbers; the sample takes the rows with the smallest keys in each cluster.
    most : int
        Approximate number of rows in the sample.
    together : array of shape (N,) or None
        Rows with the same number are left out together.
    held : HeldSample or None
        Results for a sample drawn before rows were added or removed.
    """

    rows: Floats
    origin: Array
    back: Array
    variance: float
    ridge: float
    owner: Ints
    clusters: Ints
    counts: Array
    totals: Array
    keys: Array
    most: int
    together: Ints | None = None
    held: HeldSample | None = None

    @classmethod
    def of(
        cls,
        rows: Floats,
        owner: Ints,
        clusters: Ints,
        keys: Array,
        most: int,
        regularization: float,
        ridge: float | None = None,
        together: Ints | None = None,
    ) -> SharedRows:
        """Factorise rows in ``N r^2 + r^3/3`` operations.

        If `ridge` is given, it is used as it is. Otherwise the ridge is `regularization` times the
        variance of the rows.
        """
        middle, origin, variance = centred(rows, None)
        absolute = ridge_of(variance, regularization) if ridge is None else ridge
        with naming_the_ridge(rows.shape[1], regularization):
            factor = linalg.cholesky(middle.T @ middle, absolute)
        counts = np.bincount(clusters).astype(np.float64)
        totals = Grouping(clusters, np.ones(len(counts))).means(middle)
        back = linalg.triangular_inverse(factor).T
        fixed = (rows, origin, back, variance, absolute, owner, clusters, counts, totals)
        return cls(*fixed, keys, most, together)

    @property
    def live(self) -> Ints:
        """Numbers of the rows that have not been removed."""
        return np.flatnonzero(self.owner != GONE)

    def about(self, chosen: Ints) -> Array:
        """Return the chosen rows minus the origin."""
        return self.rows[chosen].astype(np.float64) - self.origin

    @cached_property
    def sample(self) -> Ints:
        """Numbers of the rows that are left out for every label, in ascending order.

        If rows are left out in blocks, the sample consists of whole blocks.
        """
        live = self.live
        if len(live) <= self.most:
            return live
        keys = self.keys
        if self.together is not None:
            least = np.full(int(self.together.max()) + 1, np.inf)
            np.minimum.at(least, self.together[live], keys[live])
            keys = least[self.together]
        # Keys are below 1, so one sort orders by cluster and then by key.
        order = live[np.argsort(self.clusters[live] + keys[live])]
        place = np.arange(len(order)) - np.repeat(
            np.cumsum(self.counts) - self.counts, self.counts.astype(np.intp)
        )
        quota = np.ceil(self.counts * (self.most / len(live)))
        chosen = order[place < quota[self.clusters[order]]]
        if self.together is not None:
            return live[np.isin(self.together[live], self.together[chosen])]
        return np.sort(chosen)

    @cached_property
    def _stock(self) -> HeldSample:
        """Results for all rows of the sample, or for all but a few that were added later."""
        sample, held = self.sample, self.held
        if held is None:
            rows = self.about(sample)
            return HeldSample(sample, np.arange(len(sample)), rows, self._lengths(rows))
        places, known = held.find(sample)
        if known.sum() * (1 + MOST_STALE) >= max(len(sample), len(held.rows)):
            return held
        more = self.rows.shape[1] - held.rows.shape[1]
        rows, norms = np.pad(held.rows[places], ((0, 0), (0, more))), held.norms[places]
        rows[~known] = self.about(sample[~known])
        norms[~known] = self._lengths(rows[~known])
        return HeldSample(sample, np.arange(len(sample)), rows, norms)

    @cached_property
    def _later(self) -> tuple[Ints, Mask, Array]:
        """Where `_stock` has each row of the sample, whether it does, and the rows it lacks."""
        places, known = self._stock.find(self.sample)
        return places, known, self.about(self.sample[~known])

    def _lengths(self, rows: Array) -> Array:
        """Return the squared lengths of rows after whitening; `rows` are minus the origin."""
        white = rows @ self.back
        lengths: Array = np.einsum("ij,ij->i", white, white)
        return lengths

    def sample_products(self, directions: Array) -> Array:
        """Return the inner products of the sample's rows, minus the origin, with columns."""
        places, known, later = self._later
        # Columns that were added later are zero for the rows in stock.
        held = self._stock.rows
        products: Array = (held @ directions[: held.shape[1]])[places]
        products[~known] = later @ directions
        return products

    @cached_property
    def norms(self) -> Array:
        """Squared lengths of the sample's whitened rows."""
        places, known, later = self._later
        norms = self._stock.norms[places]
        norms[~known] = self._lengths(later)
        return norms

    def _ready(self) -> HeldSample | None:
        """Return the results for the current sample if computed, or else those held earlier."""
        return self._stock if "_stock" in self.__dict__ else self.held

    @cached_property
    def white_rows(self) -> Array:
        """All rows, whitened in ``N r^2`` operations."""
        return (self.rows.astype(np.float64, copy=False) - self.origin) @ self.back

    @cached_property
    def white_totals(self) -> Array:
        """Sum of the whitened rows in each cluster."""
        return self.totals @ self.back

    @cached_property
    def _by_owner(self) -> tuple[Ints, Ints]:
        order = np.argsort(self.owner, kind="stable")
        return order, self.owner[order]

    def own(self, label: int) -> Ints:
        """Return the numbers of a label's rows."""
        if "_by_owner" not in self.__dict__:
            return np.flatnonzero(self.owner == label)
        order, sorted_owner = self._by_owner
        start, stop = np.searchsorted(sorted_owner, [label, label + 1])
        return order[start:stop]

    def index(self) -> None:
        """Sort the rows by label once, which speeds up :meth:`own` for many labels."""
        _ = self._by_owner

    def owned(self, owner: Ints) -> SharedRows:
        """Return the same rows with new label numbers."""
        return replace(self, owner=owner, held=self._ready())

    def holding(
        self,
        rows: Floats,
        owner: Ints,
        clusters: Ints,
        keys: Array,
        together: Ints | None,
        kept: Mask | None = None,
    ) -> SharedRows:
        """Replace the arrays that hold one entry per row, and keep the statistics unchanged.

        The new arrays either have more rows at the end, or hold only the rows that the mask `kept`
        selects. With more rows, there may also be more columns, which are zero for the old rows.
        """
        held = self._ready()
        if held is not None and kept is not None:
            held = held.kept(kept)
        found = self._widened(rows.shape[1] - len(self.origin))
        return replace(
            found,
            rows=rows,
            owner=owner,
            clusters=clusters,
            keys=keys,
            together=together,
            held=held,
        )

    def _widened(self, more: int) -> SharedRows:
        """Add columns that are zero for all rows so far."""
        if more == 0:
            return self
        size = len(self.origin)
        back = np.zeros((size + more, size + more))
        back[:size, :size] = self.back
        back[range(size, size + more), range(size, size + more)] = 1 / np.sqrt(self.ridge)
        totals = np.pad(self.totals, ((0, 0), (0, more)))
        return replace(self, origin=np.pad(self.origin, (0, more)), back=back, totals=totals)

    def with_last(self, count: int) -> SharedRows:
        """Add the last `count` rows to the statistics; the ridge and the origin stay the same."""
        return self._moved(np.arange(len(self.rows) - count, len(self.rows)), 1.0)

    def without(self, gone: Ints) -> SharedRows:
        """Remove rows from the statistics; the row arrays, the ridge and the origin stay the same.

        Raises
        ------
        SingularMatrixError
            If the removed rows account for nearly all of the scatter in some direction.
        """
        owner = self.owner.copy()
        owner[gone] = GONE
        return self.owned(owner)._moved(gone, -1.0)

    def _moved(self, chosen: Ints, sign: float) -> SharedRows:
        """Update the statistics and the factorisation after rows were added or removed.

        `sign` is 1 if the chosen rows were added, and -1 if they were removed.
        """
        middle = self.about(chosen)
        back, axes, change = updated_back(self.back, middle @ self.back, sign)
        clusters = self.clusters[chosen]
        # The last clusters may have been empty when the rows were factorised.
        more = max(int(clusters.max(initial=0)) + 1 - len(self.counts), 0)
        counts, totals = np.pad(self.counts, (0, more)), np.pad(self.totals, ((0, more), (0, 0)))
        np.add.at(counts, clusters, sign)
        np.add.at(totals, clusters, sign * middle)
        held = self._ready()
        if held is not None:
            # A whitened row changes by a factor along each of the axes.
            along = held.rows @ (self.back @ axes.T)[: held.rows.shape[1]]
            norms = held.norms + along**2 @ ((1 + change) ** 2 - 1)
            held = replace(held, norms=norms)
        return replace(self, back=back, counts=counts, totals=totals, held=held)

    def groups(self, label: int, chosen: Ints, kept: Ints) -> Ints:
        """Return the group number of each chosen row when a label is solved against all others.

        The label's own rows are group 0. `kept` lists the clusters that contain negatives, which
        are groups 1, 2 and so on.
        """
        # A label that was fitted earlier may have negatives in clusters that are empty now.
        number = np.zeros(max(len(self.counts), kept[-1] + 1), dtype=np.intp)
        number[kept] = np.arange(1, len(kept) + 1)
        return np.where(self.owner[chosen] == label, 0, number[self.clusters[chosen]])

    def division(self, own: Ints) -> tuple[Ints, Array, Array]:
        """Divide the rows into a label's `own` rows and the clusters of all other rows.

        Returns the clusters that contain other rows, the group sizes, and the group means minus the
        origin.
        """
        middle, clusters = self.about(own), self.clusters[own]
        sums, sizes = np.zeros_like(self.totals), np.zeros(len(self.counts))
        np.add.at(sums, clusters, middle)
        np.add.at(sizes, clusters, 1.0)
        rest = self.counts - sizes
        kept = np.flatnonzero(rest > 0)
        counts = np.append(float(len(own)), rest[kept])
        means = np.vstack([middle.sum(axis=0), (self.totals - sums)[kept]]) / counts[:, None]
        return kept, counts, means

    def own_sums(self, labels: Ints) -> tuple[Array, Array]:
        """Sum the whitened rows of each label in each cluster.

        Returns the sums (L, K, r) and the numbers of rows (L, K).
        """
        own = [self.own(int(label)) for label in labels]
        chosen, size = np.concatenate(own), len(self.counts)
        cell = np.repeat(np.arange(len(labels)), [len(rows) for rows in own]) * size
        cell += self.clusters[chosen]
        shape = (len(labels) * size, len(chosen))
        marks = sparse.csr_array((np.ones(len(chosen)), (cell, np.arange(len(chosen)))), shape)
        sums = marks @ self.white_rows[chosen]
        counts = np.bincount(cell, minlength=shape[0]).astype(np.float64)
        return sums.reshape(len(labels), size, -1), counts.reshape(len(labels), size)
