"""Draw random samples and folds from rows that arrive in blocks.

Each draw is seeded with the position of its rows, so a resumed pass repeats the same draws.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedKFold

from ..core.linalg import Array, Ints, Mask
from ..folds import FOLDS
from .data import Piece

# Purposes of random draws, each with its own stream of random numbers.
FOR_SAMPLE, FOR_CALIBRATION, FOR_FOLDS = range(3)
# Beyond this many rows, folds are drawn block by block, because a single draw for all rows takes
# one byte of memory per row.
MOST_FOLDED = 2_000_000


@dataclass(frozen=True)
class Draw:
    """Size of a sample, and an upper bound on the random keys of its rows.

    The sample consists of the rows with the smallest keys. The bound `chance` does not change
    the sample; it only avoids storing and sending rows that cannot be part of it.
    """

    size: int
    chance: float = 1.0

    @classmethod
    def of_total(cls, size: int, total: int) -> Draw:
        """Return a draw of `size` rows from a known total, with a bound on the keys.

        The bound is too low, so that the sample has too few rows, only once in 10^9 draws.
        """
        return cls(size, min(1.0, (size + 6 * np.sqrt(size) + 20) / max(total, 1)))


@dataclass(frozen=True)
class Reservoir:
    """A uniform sample that can be merged: the rows with the smallest random keys.

    Attributes
    ----------
    keys : array of shape (n,)
    columns : tuple of arrays with n rows
        Stored values of each row; the last column is its weight.
    offered : float
        Total weight of all rows that the sample was drawn from.
    n_offered : int
        Number of rows that the sample was drawn from.
    """

    keys: Array
    columns: tuple[NDArray[Any], ...]
    offered: float
    n_offered: int

    @classmethod
    def of(
        cls, keys: Array, columns: tuple[NDArray[Any], ...], draw: Draw, among: Mask
    ) -> Reservoir:
        """Draw a sample from the rows in memory for which `among` is true."""
        members = np.flatnonzero(among)
        kept = members[keys[members] < draw.chance]
        kept = kept[_smallest(keys[kept], draw.size)]
        offered = float(columns[-1][members].sum())
        return cls(keys[kept], tuple(part[kept] for part in columns), offered, len(members))

    def merge(self, other: Reservoir, size: int) -> Reservoir:
        """Merge with another sample, keeping the `size` rows with the smallest keys."""
        chance = np.ones(len(other.keys), dtype=bool)
        if 0 < size <= len(self.keys):  # once a sample is full, few later rows have smaller keys
            chance = other.keys < self.keys.max()
        keys = np.concatenate([self.keys, other.keys[chance]])
        kept = _smallest(keys, size)
        columns = tuple(
            np.concatenate([own, more[chance]])[kept]
            for own, more in zip(self.columns, other.columns, strict=True)
        )
        offered, n_offered = self.offered + other.offered, self.n_offered + other.n_offered
        return Reservoir(keys[kept], columns, offered, n_offered)


def _smallest(keys: Array, size: int) -> Ints | slice:
    """Return the positions of the `size` smallest keys, in row order."""
    return slice(None) if len(keys) <= size else np.sort(np.argpartition(keys, size)[:size])


# Samples of the positives and of the negatives, and how to draw each of them. Separate samples
# ensure that a rare class is kept.
Samples = tuple[Reservoir, Reservoir]
Draws = tuple[Draw, Draw]


def sample_classes(
    piece: Piece, seed: int, columns: tuple[NDArray[Any], ...], seen: Mask, draws: Draws
) -> Samples:
    """Sample each class in a piece, from the rows for which `seen` is true."""
    keys = piece.rng(seed, FOR_CALIBRATION).random(len(piece.X))
    columns = (*columns, piece.weight)
    return (
        Reservoir.of(keys, columns, draws[0], seen & piece.positive),
        Reservoir.of(keys, columns, draws[1], seen & ~piece.positive),
    )


def merge_samples(left: Samples, right: Samples, draws: Draws) -> Samples:
    """Merge two pairs of samples, class by class."""
    return left[0].merge(right[0], draws[0].size), left[1].merge(right[1], draws[1].size)


@dataclass(frozen=True)
class Counts:
    """Number of rows per class in each block, in block order.

    Attributes
    ----------
    counts : array of shape (n_blocks, 2)
        Positives and negatives with weight above zero.
    leads : boolean array of shape (n_blocks,)
        Whether the first row of each block with weight above zero belongs to the class of interest.
    """

    counts: Ints
    leads: Mask


@dataclass(frozen=True)
class Folds:
    """Assignment of rows to calibration folds.

    Attributes
    ----------
    count : int
    seed : int
    starts : array of shape (n_blocks, 2) or None
        Numbers of positives and negatives before each block; None if each block draws its own
        folds.
    of_class : pair of arrays, or None
        Folds of the positives and of the negatives, in row order; None if each block draws its own
        folds.
    """

    count: int
    seed: int
    starts: Ints | None = None
    of_class: tuple[NDArray[np.int8], NDArray[np.int8]] | None = None

    @classmethod
    def of_counts(cls, found: Counts, seed: int) -> Folds | None:
        """Draw folds as an in-memory fit does or, with very many rows, block by block.

        Returns None if a class has too few rows for two folds.
        """
        positive, negative = map(int, found.counts.sum(axis=0))
        count = min(FOLDS, positive, negative)
        if count < 2:
            return None
        if positive + negative > MOST_FOLDED:
            return cls(FOLDS, seed)
        # Rows of the class that the first row belongs to come first, because an in-memory fit
        # shuffles the folds in this order.
        leads = found.leads[np.flatnonzero(found.counts.sum(axis=1))[0]]
        counts = [positive, negative] if leads else [negative, positive]
        labels = np.repeat([leads, not leads], counts)
        folds = np.empty(len(labels), dtype=np.int8)
        split = StratifiedKFold(count, shuffle=True, random_state=seed).split(labels, labels)
        for fold, (_, test) in enumerate(split):
            folds[test] = fold
        starts = np.cumsum(found.counts, axis=0) - found.counts
        return cls(count, seed, starts, (folds[labels], folds[~labels]))

    def of(self, piece: Piece) -> Ints:
        """Return the fold of each row in a piece."""
        folds = np.empty(len(piece.X), dtype=np.intp)
        rng = piece.rng(self.seed, FOR_FOLDS)
        both = np.flatnonzero(piece.positive), np.flatnonzero(~piece.positive)
        for side, members in enumerate(both):
            if self.starts is None or self.of_class is None:
                # Each block starts with a different fold, so that all folds get rows.
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
