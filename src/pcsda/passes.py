"""Passes over blocks: what is taken from a piece of rows, and how two results become one.

Every result is a small frozen dataclass whose merge is associative, so that blocks may be merged
one after the other, from a checkpoint on, or in a tree on a cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.model_selection import StratifiedKFold

from .addresses import Block
from .calibration import FOLDS
from .core.linalg import Array, narrow_fit, over_rows
from .core.loo import Leaver
from .core.model import Model
from .core.scatter import GroupScatter
from .intake import Division, Head, Intake, Piece, Ruler, check_shape, check_y

# What a draw is for: no two of them may depend on each other.
FOR_SAMPLE, FOR_CALIBRATION, FOR_FOLDS = range(3)
# More rows than this are not divided into folds as a whole, which takes a byte for each of them.
MOST_FOLDED = 2_000_000


class Pass:
    """One pass: a result for each piece, merged."""

    name: str
    intake: Intake
    # Whether X is needed; otherwise blocks come without it, where they can.
    needs_rows = True

    def of_piece(self, piece: Piece) -> Any:
        """Result of one piece."""
        raise NotImplementedError

    def merge(self, left: Any, right: Any) -> Any:
        """Result of both together."""
        raise NotImplementedError

    def of_block(self, number: int, name: str, block: Block) -> Any:
        """Result of a block; errors say which block it was. None where no row counts."""
        title = f"block {number} ({name})"
        width = (*getattr(block.X, "shape", ()), 0, 0)[1]
        with narrow_fit(width), naming(title):
            parts = [self.of_piece(piece) for piece in self._pieces(number, title, block)]
            return reduce(self.merge, parts) if parts else None

    def _pieces(self, number: int, title: str, block: Block) -> Iterator[Piece]:
        return self.intake.pieces(number, title, block)

    def join(self, left: Any, right: Any) -> Any:
        """Merge, where a side may be None."""
        if left is None or right is None:
            return right if left is None else left
        return self.merge(left, right)


@contextmanager
def naming(title: str) -> Iterator[None]:
    """Put the name of the block before what goes wrong in it; the type of the error stays."""
    try:
        yield
    except Exception as error:
        if title in str(error) or any(title in note for note in getattr(error, "__notes__", ())):
            raise
        if type(error) in (ValueError, TypeError):
            raise type(error)(f"{title}: {error}") from error
        error.add_note(f"in {title}")
        raise


@dataclass(frozen=True)
class Look:
    """The labels seen so far, and what comes with the blocks."""

    labels: NDArray[Any]
    given: bool

    @property
    def settled(self) -> bool:
        """Whether both classes are known; truth values have no third."""
        return len(self.labels) > 1 or self.labels.dtype.kind == "b"


@dataclass(frozen=True)
class LookPass(Pass):
    """Which labels there are; nothing but labels is looked at."""

    name: str = "labels"
    needs_rows = False

    def of_block(self, number: int, name: str, block: Block) -> Look:
        """Labels of a block."""
        with naming(f"block {number} ({name})"):
            n_rows = None if block.X is None else check_shape(block)[0].shape[0]
            labels = check_y(block.y, n_rows)
            try:
                found = np.unique(labels)
            except TypeError as error:
                kinds = sorted({type(label).__name__ for label in labels.tolist()})
                raise ValueError(
                    f"y mixes labels of the types {kinds}, which have no order; use labels of one "
                    "type and leave out rows without a label"
                ) from error
            return Look(found, block.subclass_labels is not None)

    def merge(self, left: Look, right: Look) -> Look:
        """All labels of both."""
        return Look(union(left.labels, right.labels, "y"), left.given and right.given)


def union(left: NDArray[Any], right: NDArray[Any], what: str) -> NDArray[Any]:
    """Sorted labels of both sides; numbers and text do not mix, or 1 would become "1"."""
    kinds = {"text" if side.dtype.kind in "US" else "numbers" for side in (left, right)}
    if len(left) and len(right) and len(kinds) > 1:
        raise ValueError(
            f"{what} is text in some blocks ({_text(left, right).tolist()[0]!r}) and numbers in "
            "others; make it one or the other"
        )
    return np.union1d(left, right) if len(left) and len(right) else (left if len(left) else right)


def _text(left: NDArray[Any], right: NDArray[Any]) -> NDArray[Any]:
    return left if left.dtype.kind in "US" else right


@dataclass(frozen=True)
class Reservoir:
    """The rows with the smallest of random keys: a uniform sample that merges.

    Attributes
    ----------
    keys : array of shape (n,)
    table : array of shape (n, m)
        What is kept of each row.
    offered : float
        Total weight of the rows that it was drawn from.
    n_offered : int
        Their number.
    """

    keys: Array
    table: NDArray[Any]
    offered: float
    n_offered: int

    @classmethod
    def of(cls, keys: Array, table: NDArray[Any], weight: Array, size: int) -> Reservoir:
        """Sample of rows in memory."""
        return cls(keys, table, float(weight.sum()), len(keys))._smallest(size)

    def merge(self, other: Reservoir, size: int) -> Reservoir:
        """Sample of both."""
        keys, table = other.keys, other.table
        if 0 < size <= len(self.keys):  # full: most of what comes later has no chance
            chance = keys < self.keys.max()
            keys, table = keys[chance], table[chance]
        return Reservoir(
            np.concatenate([self.keys, keys]),
            np.concatenate([self.table, table]),
            self.offered + other.offered,
            self.n_offered + other.n_offered,
        )._smallest(size)

    def _smallest(self, size: int) -> Reservoir:
        if len(self.keys) <= size:
            return self
        # Kept in the order they came in: a whole sample is the data themselves.
        kept = np.sort(np.argpartition(self.keys, size)[:size])
        return replace(self, keys=self.keys[kept], table=self.table[kept])


@dataclass(frozen=True)
class Sample:
    """A seeded sample of rows as they were read, and how many there are.

    Attributes
    ----------
    head : Head
    rows : Reservoir
        The rows themselves.
    marks : array of shape (n, 2)
        Whether the row is positive, and its weight.
    n_negative : int
    """

    head: Head
    rows: Reservoir
    marks: Reservoir
    n_negative: int

    @property
    def complete(self) -> bool:
        """Whether it is all rows."""
        return len(self.rows.keys) == self.rows.n_offered


@dataclass(frozen=True)
class SamplePass(Pass):
    """A seeded sample of rows, on which maps and k-means are started."""

    intake: Intake
    seed: int
    size: int
    name: str = "sample"

    def of_piece(self, piece: Piece) -> Sample:
        """Sample of one piece."""
        keys = piece.rng(self.seed, FOR_SAMPLE).random(len(piece.X))
        marks = np.column_stack([piece.positive, piece.weight])
        return Sample(
            piece.head,
            Reservoir.of(keys, piece.X, piece.weight, self.size),
            Reservoir.of(keys, marks, piece.weight, self.size),
            int(np.sum(~piece.positive)),
        )

    def merge(self, left: Sample, right: Sample) -> Sample:
        """Sample of both."""
        return Sample(
            left.head.join(right.head),
            left.rows.merge(right.rows, self.size),
            left.marks.merge(right.marks, self.size),
            left.n_negative + right.n_negative,
        )


@dataclass(frozen=True)
class Lloyd:
    """What one step of k-means needs.

    Attributes
    ----------
    head : Head
    sums : array of shape (K, D)
        Weighted sums of the members of each cluster about the mean of the old centres.
    weights : array of shape (K,)
    inertia : float
        Weighted sum of squared distances to the old centres.
    count, first, second : int, array of shape (D,), float
        Number, sum and sum of squares of the negatives about the same origin, for their variance.
    """

    head: Head
    sums: Array
    weights: Array
    inertia: float
    count: int
    first: Array
    second: float

    @property
    def variance(self) -> float:
        """Mean variance of a feature, each negative counted once."""
        mean = self.first / self.count
        return float((self.second / self.count - mean @ mean) / len(mean))


@dataclass(frozen=True)
class LloydPass(Pass):
    """One Lloyd step over the negatives."""

    intake: Intake
    centres: Array
    name: str

    def of_piece(self, piece: Piece) -> Lloyd:
        """Sums of one piece."""
        negative = np.flatnonzero(~piece.positive)
        if len(negative) == 0:
            size, width = self.centres.shape
            nothing = np.zeros((size, width))
            return Lloyd(piece.head, nothing, np.zeros(size), 0.0, 0, np.zeros(width), 0.0)
        ruler = Ruler.of(self.centres)
        weight = piece.weight

        def collect(start: int, stop: int) -> Lloyd:
            parts = []
            for part in ruler.parts(start, stop):
                chosen = negative[part]
                rows, labels, distances = ruler.assign(piece.X[chosen])
                own = weight[chosen]
                members = sparse.csr_array(
                    (own, (labels, np.arange(len(rows)))), (len(self.centres), len(rows))
                )
                parts.append(
                    Lloyd(
                        piece.head,
                        members @ rows,
                        np.bincount(labels, own, len(self.centres)).astype(np.float64),
                        float(own @ distances),
                        len(rows),
                        rows.sum(axis=0),
                        float(np.einsum("ij,ij->", rows, rows)),
                    )
                )
            return reduce(self.merge, parts)

        return reduce(self.merge, over_rows(collect, len(negative), piece.X.shape[1]))

    def merge(self, left: Lloyd, right: Lloyd) -> Lloyd:
        """Sums of both."""
        return Lloyd(
            left.head.join(right.head),
            left.sums + right.sums,
            left.weights + right.weights,
            left.inertia + right.inertia,
            left.count + right.count,
            left.first + right.first,
            left.second + right.second,
        )

    def moved(self, found: Lloyd) -> Array:
        """New centres; one that has lost all rows stays where it is."""
        filled = found.weights > 0
        centres = self.centres.copy()
        shift = found.sums[filled] / found.weights[filled, None]
        centres[filled] = self.centres.mean(axis=0) + shift
        return centres


@dataclass(frozen=True)
class Counts:
    """Rows of each class in every block, in the order of the blocks.

    Attributes
    ----------
    counts : array of shape (n_blocks, 2)
        Positives and negatives that weigh anything.
    leads : boolean array of shape (n_blocks,)
        Whether the first of them is positive.
    """

    counts: NDArray[np.intp]
    leads: NDArray[np.bool_]


@dataclass(frozen=True)
class CountPass(Pass):
    """How many rows each class has in each block; nothing but labels is looked at."""

    intake: Intake
    name: str = "counts"
    needs_rows = False

    def of_block(self, number: int, name: str, block: Block) -> Counts:
        """Count the rows of a block."""
        with naming(f"block {number} ({name})"):
            positive, weights = self.intake.classified(block, None)
            if weights is not None:
                positive = positive[weights > 0]
            inside = int(positive.sum())
            counts = np.array([[inside, len(positive) - inside]])
            return Counts(counts, positive[:1] if len(positive) else np.zeros(1, dtype=bool))

    def merge(self, left: Counts, right: Counts) -> Counts:
        """Put the counts of later blocks behind those of earlier ones."""
        return Counts(
            np.concatenate([left.counts, right.counts]), np.concatenate([left.leads, right.leads])
        )


@dataclass(frozen=True)
class Folds:
    """In which fold of the calibration a row is.

    Attributes
    ----------
    count : int
    seed : int
    starts : array of shape (n_blocks, 2) or None
        Positives and negatives in earlier blocks.
    of_class : pair of arrays, or None
        Folds of the positives and of the negatives, in the order of the rows.
    """

    count: int
    seed: int
    starts: NDArray[np.intp] | None = None
    of_class: tuple[NDArray[np.int8], NDArray[np.int8]] | None = None

    @classmethod
    def of_counts(cls, found: Counts, seed: int) -> Folds | None:
        """Folds as a fit in memory has them; drawn block by block where they would be too many.

        None where a class has too few rows for two folds.
        """
        positive, negative = map(int, found.counts.sum(axis=0))
        count = min(FOLDS, positive, negative)
        if count < 2:
            return None
        if positive + negative > MOST_FOLDED:
            return cls(FOLDS, seed)
        # The class of the first row comes first: in that order folds are shuffled.
        first = int(not found.leads[np.flatnonzero(found.counts.sum(axis=1))[0]])
        sizes = (positive, negative) if first == 0 else (negative, positive)
        labels = np.repeat([0, 1], sizes)
        folds = np.empty(len(labels), dtype=np.int8)
        split = StratifiedKFold(count, shuffle=True, random_state=seed).split(labels, labels)
        for fold, (_, test) in enumerate(split):
            folds[test] = fold
        parts = folds[: sizes[0]], folds[sizes[0] :]
        starts = np.cumsum(found.counts, axis=0) - found.counts
        return cls(count, seed, starts, parts if first == 0 else parts[::-1])

    def of(self, piece: Piece) -> NDArray[np.intp]:
        """Fold of every row of a piece."""
        folds = np.empty(len(piece.X), dtype=np.intp)
        rng = piece.rng(self.seed, FOR_FOLDS)
        both = np.flatnonzero(piece.positive), np.flatnonzero(~piece.positive)
        for side, members in enumerate(both):
            if self.starts is None or self.of_class is None:
                # Blocks begin with another fold each: a class of one row a block has all folds.
                folds[members] = (piece.number + rng.permutation(len(members))) % self.count
                continue
            start = self.starts[piece.number, side] + piece.before[side]
            part = self.of_class[side][start : start + len(members)]
            if len(part) < len(members):
                raise ValueError(
                    "there are more rows than when labels were counted; blocks must be the same in "
                    "every pass"
                )
            folds[members] = part
        return folds


@dataclass(frozen=True)
class Statistics:
    """Group statistics of each fold of the rows, with the names of the subclasses.

    Attributes
    ----------
    head : Head
    names : array of shape (K,)
    scatters : tuple of GroupScatter
        One for each fold; with one fold, of all rows.
    """

    head: Head
    names: NDArray[Any]
    scatters: tuple[GroupScatter, ...]

    def whole(self, without: int | None = None) -> GroupScatter:
        """Statistics of all folds together, or of all but one."""
        kept = [scatter for fold, scatter in enumerate(self.scatters) if fold != without]
        return reduce(GroupScatter.merge, kept)


@dataclass(frozen=True)
class StatisticsPass(Pass):
    """Counts, means and scatter of the groups."""

    intake: Intake
    division: Division
    folds: Folds | None = None
    name: str = "statistics"

    def of_piece(self, piece: Piece) -> Statistics:
        """Statistics of one piece."""
        names, groups = self.division.groups(piece)
        folds = None if self.folds is None else self.folds.of(piece)
        scatters = []
        for fold in range(1 if self.folds is None else self.folds.count):
            rows: Any = slice(None) if folds is None else np.flatnonzero(folds == fold)
            weights = None if piece.weights is None else piece.weights[rows]
            scatters.append(
                GroupScatter.from_samples(piece.X[rows], groups[rows], len(names) + 1, weights)
            )
        return Statistics(piece.head, names, tuple(scatters))

    def merge(self, left: Statistics, right: Statistics) -> Statistics:
        """Statistics of both; subclasses are matched by name."""
        head = left.head.join(right.head)
        names = left.names
        if not np.array_equal(left.names, right.names):
            names = union(left.names, right.names, "subclass_labels")
            left, right = _renamed(left, names), _renamed(right, names)
        pairs = zip(left.scatters, right.scatters, strict=True)
        return Statistics(head, names, tuple(one.merge(other) for one, other in pairs))


def _renamed(statistics: Statistics, names: NDArray[Any]) -> Statistics:
    """Statistics with more subclasses, of which those that are new are empty."""
    place = np.append(0, 1 + np.searchsorted(names, statistics.names))
    scatters = []
    for old in statistics.scatters:
        counts = np.zeros(len(names) + 1)
        means = np.zeros((len(names) + 1, old.means.shape[1]))
        counts[place], means[place] = old.counts, old.means
        scatters.append(replace(old, counts=counts, means=means))
    return Statistics(statistics.head, names, tuple(scatters))


@dataclass(frozen=True)
class Scored:
    """Rows of both classes from which scores are calibrated: the positives, the negatives."""

    positive: Reservoir
    negative: Reservoir

    @classmethod
    def of(cls, keys: Array, table: Array, positive: Any, seen: Any, size: int) -> Scored:
        """Sample the rows that are `seen`, each class on its own, so that a rare one is kept.

        The last column of the table is the weight of the row.
        """
        parts = []
        for members in (seen & positive, seen & ~positive):
            rows = table[members]
            parts.append(Reservoir.of(keys[members], rows, rows[:, -1], size))
        return cls(*parts)

    def merge(self, other: Scored, size: int) -> Scored:
        """Sample of both."""
        return Scored(
            self.positive.merge(other.positive, size), self.negative.merge(other.negative, size)
        )


@dataclass(frozen=True)
class LeftOutSums:
    """Scatter of the left-out residuals, the weight behind it, and rows to calibrate on.

    `total` is the weight of all rows, also of those that are alone in their group.
    """

    positive: Array
    within: Array
    n_positive: float
    n_within: float
    total: float
    scored: Scored


@dataclass(frozen=True)
class LeftOutPass(Pass):
    """Every row is left out of the fit and projected (MATH 8)."""

    intake: Intake
    division: Division
    names: NDArray[Any]
    leaver: Leaver
    seed: int
    size: int
    name: str = "left-out"

    def of_piece(self, piece: Piece) -> LeftOutSums:
        """Sums and sample of one piece."""
        found, groups = self.division.groups(piece)
        unknown = found[~np.isin(found, self.names)]
        if len(unknown):
            raise ValueError(
                f"subclass {unknown.tolist()[0]!r} was not there in the pass before; blocks must "
                "be the same in every pass"
            )
        groups = np.append(0, 1 + np.searchsorted(self.names, found))[groups]
        left = self.leaver.leave_out(piece.X, groups, piece.weights)
        width = self.leaver.rotation.shape[1]
        nothing = GroupScatter(self.leaver.counts, self.leaver.means, *np.zeros((2, width, width)))
        sums, n_positive, n_within = left.scatter(nothing, groups, piece.weights)
        groups, weight = left.arranged(groups, piece.weight)
        columns: list[Any] = [left.coordinates, left.residuals, groups, weight]
        table: Array = np.column_stack(columns)
        keys = piece.rng(self.seed, FOR_CALIBRATION).random(len(table))
        scored = Scored.of(keys, table, groups == 0, ~left.alone, self.size)
        total = float(piece.weight.sum())
        return LeftOutSums(sums.positive, sums.within, n_positive, n_within, total, scored)

    def merge(self, left: LeftOutSums, right: LeftOutSums) -> LeftOutSums:
        """Sums and sample of both."""
        return LeftOutSums(
            left.positive + right.positive,
            left.within + right.within,
            left.n_positive + right.n_positive,
            left.n_within + right.n_within,
            left.total + right.total,
            left.scored.merge(right.scored, self.size),
        )


@dataclass(frozen=True)
class FoldScorePass(Pass):
    """Every row is scored by the model that was fitted without its fold."""

    intake: Intake
    models: tuple[Model | None, ...]
    folds: Folds
    seed: int
    size: int
    name: str = "fold scores"

    def of_piece(self, piece: Piece) -> Scored:
        """Sample of one piece."""
        folds = self.folds.of(piece)
        scores = np.full(len(piece.X), np.nan)
        for fold, model in enumerate(self.models):
            if model is not None:
                rows = np.flatnonzero(folds == fold)
                scores[rows] = model.score(piece.X[rows])
        table = np.column_stack([scores, piece.weight])
        keys = piece.rng(self.seed, FOR_CALIBRATION).random(len(table))
        return Scored.of(keys, table, piece.positive, np.isfinite(scores), self.size)

    def merge(self, left: Scored, right: Scored) -> Scored:
        """Sample of both."""
        return left.merge(right, self.size)
