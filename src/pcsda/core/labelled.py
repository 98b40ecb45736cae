"""Counts, means and scatter of labelled rows, with updates for added and removed rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from . import linalg
from .linalg import Array, Floats, Ints, SingularMatrixError
from .scatter import Grouping

# If at least this many labels have two rows or more, the spread within labels is estimated.
ENOUGH_REPEATED = 10
# If a label leaves less than this share of the scatter behind, the rest is rounding error.
ROUNDING = 1e-12


def spread_unknown(counts: Array | Ints) -> bool:
    """Return whether too few labels have two rows or more to estimate the spread within labels.

    `ENOUGH_REPEATED` such labels are enough, or fewer if most labels have two rows. All labels then
    share the spread estimated from these labels.
    """
    return bool(np.median(counts) < 2 and np.sum(counts > 1) < ENOUGH_REPEATED)


@dataclass(frozen=True)
class LabelSums:
    """Statistics of labelled rows, with closed-form updates for added and removed rows.

    Attributes
    ----------
    counts : array of shape (C,)
        Number of rows of each label.
    means : array of shape (C, r)
    scatter : array of shape (r, r)
        Scatter of the rows about their label means.
    others : array of shape (B, r)
        Background rows: each counts as a separate label with one row.
    """

    counts: Array
    means: Array
    scatter: Array
    others: Array

    @classmethod
    def of(cls, rows: Floats, owner: Ints) -> LabelSums:
        """Compute the statistics of rows.

        `owner` holds the label number of each row, or -1 for a background row.
        """
        known = LabelledRows.of(rows, owner)
        apart = known.residuals(np.arange(len(known.rows)))
        return cls(known.counts, known.means, apart.T @ apart, known.others)

    @property
    def free(self) -> float:
        """Degrees of freedom: the number of rows minus the number of labels."""
        return float(self.counts.sum()) - len(self.counts)

    @property
    def single(self) -> bool:
        """Whether the spread within labels cannot be estimated; see :func:`spread_unknown`."""
        return spread_unknown(self.counts)

    @property
    def everybody(self) -> Array:
        """The label means, followed by the background rows."""
        return np.concatenate([self.means, self.others]) if len(self.others) else self.means

    @property
    def noise(self) -> float:
        """Variance of a label's mean relative to the variance of one row, averaged over labels.

        It is the mean of 1/n, where n is the number of rows of a label. A background row counts as
        a label with one row.
        """
        count = len(self.counts) + len(self.others)
        return (float((1 / self.counts).sum()) + len(self.others)) / count

    def placed(self, places: Sequence[int | None]) -> LabelSums:
        """Reorder the labels and add new labels without rows.

        `places` holds the old position of each label, or None for a new label.
        """
        if places == list(range(len(self.counts))):
            return self
        old = np.array([-1 if place is None else place for place in places])
        counts, means = self.counts[old], self.means[old]
        counts[old < 0], means[old < 0] = 0.0, 0.0
        return replace(self, counts=counts, means=means)

    def with_rows(self, place: int, rows: Floats) -> LabelSums:
        """Add rows to the label at position `place`."""
        counts, means = self.counts.copy(), self.means.copy()
        exact, count = rows.astype(np.float64), self.counts[place]
        mean = exact.mean(axis=0)
        moved = mean - means[place]
        counts[place] += len(rows)
        means[place] += moved * (len(rows) / counts[place])
        between = moved * np.sqrt(count * len(rows) / counts[place])
        apart = np.vstack([exact - mean, between])
        return replace(self, counts=counts, means=means, scatter=self.scatter + apart.T @ apart)

    def without(self, place: int, rows: Floats) -> LabelSums:
        """Remove the label at position `place`; `rows` holds all rows of the label."""
        apart = rows - self.means[place]
        left = np.arange(len(self.counts)) != place
        scatter = self.scatter - apart.T @ apart
        if scatter.trace() <= ROUNDING * self.scatter.trace():
            scatter = np.zeros_like(scatter)
        return replace(self, counts=self.counts[left], means=self.means[left], scatter=scatter)

    def some(self, labels: Ints) -> LabelSums:
        """Keep only the counts and means of the given labels.

        The scatter is not changed, so it must already cover only the rows of these labels.
        """
        return replace(self, counts=self.counts[labels], means=self.means[labels])

    def with_others(self, rows: Floats) -> LabelSums:
        """Add background rows."""
        return replace(self, others=np.concatenate([self.others, rows.astype(np.float64)]))

    def require_spread(self) -> None:
        """Check that rows differ within labels.

        Raises
        ------
        SingularMatrixError
            If no label has two rows, if there are fewer than three labels, or if all rows are equal
            within each label.
        """
        if self.free <= 0 or len(self.counts) < 3:
            raise SingularMatrixError(
                "no label has two rows, so the spread within labels is unknown"
            )
        apart = self.means - self.means.mean(axis=0)
        level = float(self.scatter.trace()) / len(self.scatter)
        if level <= linalg.SAME_POINT**2 * float(np.einsum("ij,ij->", apart, apart)):
            raise SingularMatrixError("the rows of each label are equal")


@dataclass(frozen=True)
class LabelledRows:
    """Labelled rows and the mean of each label.

    Attributes
    ----------
    rows : array of shape (N, r)
    owner : array of shape (N,)
        Label of each row.
    counts : array of shape (C,)
        Number of rows of each label.
    means : array of shape (C, r)
    others : array of shape (B, r)
        Background rows, which belong to no label.
    """

    rows: Floats
    owner: Ints
    counts: Array
    means: Array
    others: Array

    @classmethod
    def of(cls, rows: Floats, owner: Ints) -> LabelledRows:
        """Group rows by label and compute the mean of each label.

        `owner` holds the label number of each row, or -1 for a background row.
        """
        others = np.zeros((0, rows.shape[1]))
        if np.any(owner < 0):
            others = rows[owner < 0].astype(np.float64)
            rows, owner = rows[owner >= 0], owner[owner >= 0]
        labels = Grouping.of(owner)
        return cls(rows, owner, labels.counts, labels.means(rows), others)

    def residuals(self, chosen: Ints) -> Array:
        """Return the chosen rows minus their label means."""
        return self.rows[chosen] - self.means[self.owner[chosen]]

    def without(self, chosen: Ints, scatter: Array) -> LabelSums:
        """Return the statistics without the chosen rows.

        At most one row of each label may be chosen. `scatter` is the scatter within labels of all
        rows, including the chosen ones.
        """
        apart, of_own = self.residuals(chosen), self.owner[chosen]
        size = self.counts[of_own][:, None]
        means, counts = self.means.copy(), self.counts.copy()
        means[of_own] -= apart / (size - 1)
        counts[of_own] -= 1
        weighted = apart * np.sqrt(size / (size - 1))
        return LabelSums(counts, means, scatter - weighted.T @ weighted, self.others)

    def some(self, labels: Ints, turn: int) -> Ints:
        """Return the number of one row for each given label that has at least two rows.

        The chosen row is at position `turn` within the label, modulo the label's number of rows.
        """
        order = np.argsort(self.owner, kind="stable")
        sizes = self.counts.astype(np.intp)
        starts = np.cumsum(sizes) - sizes
        labels = labels[sizes[labels] > 1]
        found: Ints = order[starts[labels] + turn % sizes[labels]]
        return found
