"""Passes over blocks: what is taken from a piece of rows, and how two results become one.

Every result is a small frozen dataclass whose merge is associative, so that blocks may be merged
one after the other, from a checkpoint on, or in a tree on a cluster.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.linalg import Array, narrow_fit
from ..validation import different_labels
from .addresses import Block
from .intake import Head, Intake, Piece, check_shape, check_y

# What a draw is for: no two of them may depend on each other.
FOR_SAMPLE, FOR_CALIBRATION, FOR_FOLDS = range(3)


class Pass(ABC):
    """One pass: a result for each piece, merged."""

    name: str
    intake: Intake
    # Whether X is needed; otherwise blocks come without it, where they can.
    needs_rows = True

    def of_piece(self, piece: Piece) -> Any:
        """Result of one piece. Passes that look at whole blocks have `of_block` instead."""
        raise NotImplementedError

    @abstractmethod
    def merge(self, left: Any, right: Any) -> Any:
        """Result of both together."""

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
            return Look(different_labels(labels), block.subclass_labels is not None)

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
class Draw:
    """How many rows a sample has, and the key below which a row may be among them.

    The sample are the rows with the smallest keys, so it does not depend on `chance`; that only
    spares rows that have none from being kept and moved.
    """

    size: int
    chance: float = 1.0

    @classmethod
    def of_total(cls, size: int, total: int) -> Draw:
        """Draw from a known number of rows; all but once in 10^9 times enough keys are below."""
        return cls(size, min(1.0, (size + 6 * np.sqrt(size) + 20) / max(total, 1)))


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
    def of(
        cls, keys: Array, weight: Array, take: Callable[[Any], NDArray[Any]], draw: Draw
    ) -> Reservoir:
        """Sample of rows in memory; `take` makes the table of the rows that are kept."""
        kept = np.flatnonzero(keys < draw.chance)
        if len(kept) > draw.size:
            kept = np.sort(kept[np.argpartition(keys[kept], draw.size)[: draw.size]])
        return cls(keys[kept], take(kept), float(weight.sum()), len(keys))

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
    """A seeded sample of rows, on which maps and k-means are fitted."""

    intake: Intake
    seed: int
    draw: Draw
    name: str = "sample"

    def of_piece(self, piece: Piece) -> Sample:
        """Sample of one piece."""
        keys = piece.rng(self.seed, FOR_SAMPLE).random(len(piece.X))
        marks = np.column_stack([piece.positive, piece.weight])
        return Sample(
            piece.head,
            Reservoir.of(keys, piece.weight, lambda kept: piece.X[kept], self.draw),
            Reservoir.of(keys, piece.weight, lambda kept: marks[kept], self.draw),
            int(np.sum(~piece.positive)),
        )

    def merge(self, left: Sample, right: Sample) -> Sample:
        """Sample of both."""
        return Sample(
            left.head.join(right.head),
            left.rows.merge(right.rows, self.draw.size),
            left.marks.merge(right.marks, self.draw.size),
            left.n_negative + right.n_negative,
        )
