"""Folds of rows that come in blocks: the models without a fold score the rows in it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedKFold

from ..folds import FOLDS
from .addresses import Block
from .intake import Intake, Piece
from .passes import FOR_FOLDS, Pass, naming

# More rows than this are not divided into folds as a whole, which takes a byte for each of them.
MOST_FOLDED = 2_000_000


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
