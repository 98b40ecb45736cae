"""Blocks of unchecked rows, and the checked pieces of blocks that each pass works on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise, starmap
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.utils import check_array, column_or_1d

from ..core.linalg import Array, Floats, Ints, Mask
from ..core.warning import number_of
from ..partition import different_subclasses, given_labels, nearest
from ..targets import weight_values

# Rows are made dense, transformed and grouped in pieces of at most this many bytes in float64.
PIECE_BYTES = 64 << 20
# Names of the features, if there are any.
Columns: TypeAlias = tuple[str, ...] | None


@dataclass(frozen=True)
class Block:
    """Rows with their labels and weights; `columns` holds the feature names, if there are any.

    `X` is None if only the labels were requested.
    """

    X: Any
    y: Any = None
    subclass_labels: Any = None
    sample_weight: Any = None
    columns: Columns = None


# Number, name and content of a block.
Numbered: TypeAlias = tuple[int, str, Block]


@dataclass(frozen=True)
class Address:
    """Location of a block, small enough to send to another process; the block is read on demand.

    Attributes
    ----------
    name : str
        Name used for the block in messages.
    stamp : list
        Values that identify the block's content without reading it.
    read : callable
        Function that reads the block; ``read(True)`` leaves out X.
    """

    name: str
    stamp: list[Any]
    read: Callable[..., Block]


@dataclass(frozen=True)
class Blocks:
    """All blocks of a data set, given by their addresses or by an iterator.

    Attributes
    ----------
    addresses : list of Address, or None
        Locations of the blocks; None if an iterator yields the blocks.
    start : callable or None
        Function that returns the iterator.
    once : bool
        Whether the iterator can be read only once.
    """

    addresses: list[Address] | None = None
    start: Callable[[], Iterator[Any]] | None = None
    once: bool = False

    def __len__(self) -> int:
        return 0 if self.addresses is None else len(self.addresses)

    def read(self, skip: int = 0, *, labels_only: bool = False) -> Iterator[Numbered]:
        """Yield the number, name and content of each block, skipping the first `skip` blocks."""
        for number, (name, read) in enumerate(self._readers(labels_only)):
            if number >= skip:
                with naming(f"block {number} ({name})"):
                    block = read()
                yield number, name, block

    def ahead(self, skip: int = 0, *, labels_only: bool = False) -> Iterator[Numbered]:
        """Yield the same as `read`, but read each block while the previous one is in use."""
        items = self.read(skip, labels_only=labels_only)
        if self.addresses is None:  # a generator may have to run in the user's thread
            yield from items
            return
        with ThreadPoolExecutor(1) as pool:
            coming = pool.submit(next, items, None)
            while (item := coming.result()) is not None:
                coming = pool.submit(next, items, None)
                yield item

    def _readers(self, labels_only: bool) -> Iterator[tuple[str, Callable[[], Block]]]:
        if self.start is None:
            yield from ((one.name, partial(one.read, labels_only)) for one in self.addresses or ())
            return
        number = 0
        try:
            for item in self.start():
                yield f"item {number} of the iterator", partial(_as_block, item)
                number += 1
        except Exception as error:
            error.add_note(f"while the iterator made block {number}")
            raise


def _as_block(item: object) -> Block:
    if isinstance(item, Block):
        return item
    parts = item if isinstance(item, tuple) else (item,)
    if 1 <= len(parts) <= 4:
        return Block(*parts)
    raise ValueError(
        "a block must be X, (X, y), (X, y, subclass_labels) or (X, y, subclass_labels, "
        f"sample_weight), got a tuple of {len(parts)}"
    )


@contextmanager
def naming(title: str) -> Iterator[None]:
    """Prefix errors with the name of the block they come from, keeping the error type."""
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
class Head:
    """Properties of the columns: their number, their names, and whether all rows are float32.

    `name` is the name of a block with these columns, for error messages.
    """

    name: str
    width: int
    columns: Columns
    single: bool

    def join(self, other: Head) -> Head:
        """Combine the properties of two blocks; raise ValueError if their columns differ."""
        if self.width != other.width:
            raise ValueError(
                f"{other.name} has {other.width} columns but {self.name} has {self.width}; all "
                "blocks need the same columns"
            )
        if self.columns != other.columns:
            raise ValueError(
                f"the columns of {other.name} are {_shown(other.columns)} but those of {self.name} "
                f"are {_shown(self.columns)}; all blocks need the same columns in the same order"
            )
        return Head(self.name, self.width, self.columns, self.single and other.single)


def _shown(columns: Columns) -> str:
    return "without names" if columns is None else ", ".join(map(repr, columns[:8]))


@dataclass(frozen=True)
class Piece:
    """Some rows of one block, checked and transformed.

    Attributes
    ----------
    head : Head
    number, part : int
        Number of the block, and of the piece within the block. Both are part of the seed of all
        random draws.
    before : pair of int
        Numbers of positives and negatives in earlier pieces of the block.
    X : array of shape (n, D)
        Dense rows, after the transformers.
    positive : boolean array of shape (n,)
    weights : array of shape (n,) or None
    labels : array or None
        Subclass labels of the negatives, if the blocks have subclass labels.
    """

    head: Head
    number: int
    part: int
    before: tuple[int, int]
    X: Floats
    positive: Mask
    weights: Array | None
    labels: NDArray[Any] | None

    def rng(self, seed: int, purpose: int) -> np.random.Generator:
        """Return a random generator for this piece only, so that a pass can resume at any block."""
        return np.random.default_rng([seed, purpose, self.number, self.part])

    @property
    def weight(self) -> Array:
        """Weight of each row; 1 if the piece has no weights."""
        return np.ones(len(self.X)) if self.weights is None else self.weights


@dataclass(frozen=True)
class Intake:
    """Settings for checking and transforming blocks; each worker gets a copy.

    Attributes
    ----------
    classes : array of shape (2,)
    index : int
        Index of the class of interest.
    given : bool
        Whether blocks have subclass labels.
    chain : tuple of fitted transformers
    rest : bool
        Whether every label other than the class of interest counts as negative.
    """

    classes: NDArray[Any]
    index: int
    given: bool
    chain: tuple[Any, ...] = ()
    rest: bool = False

    def pieces(self, number: int, name: str, block: Block) -> Iterator[Piece]:
        """Yield the rows of a block in pieces of bounded size, skipping rows with zero weight."""
        X, columns = check_shape(block)
        positive, weights = self.classified(block, X.shape[0])
        if (block.subclass_labels is not None) != self.given:
            raise ValueError("subclass_labels must come with every block or with none")
        if self.given:
            given_labels(block.subclass_labels, positive)
        labels = np.asarray(block.subclass_labels)
        before = (0, 0)
        for part, rows in enumerate(row_slices(X.shape, self.chain)):
            kept: Any = rows
            if weights is not None:
                kept = rows.start + np.flatnonzero(weights[rows])
                if len(kept) == 0:
                    continue
            dense, inside = self.map(check_rows(X[kept], rows.start)), positive[kept]
            head = Head(name, X.shape[1], columns, bool(dense.dtype == np.float32))
            weight = None if weights is None else weights[kept]
            given = typed_labels(labels[kept][~inside]) if self.given else None
            yield Piece(head, number, part, before, dense, inside, weight, given)
            before = (before[0] + int(inside.sum()), before[1] + int((~inside).sum()))

    def classified(self, block: Block, n_rows: int | None) -> tuple[Mask, Array | None]:
        """Return which rows belong to the class of interest, and the row weights or None."""
        labels = check_y(block.y, n_rows)
        positive = np.asarray(labels == self.classes[self.index], dtype=bool)
        known = positive | (labels == self.classes[1 - self.index])
        if not self.rest and not np.all(known):
            unseen = sorted(set(labels[~known].tolist()), key=str)
            raise ValueError(
                f"y has labels {unseen[:5]} that are not among classes {self.classes.tolist()}; "
                "leave those rows out, name all labels in classes=[...] if pos_label is one of "
                "many, or use y == label for one class"
            )
        if block.sample_weight is None:
            return positive, None
        return positive, weight_values(block.sample_weight, len(positive))

    def map(self, X: Floats) -> Floats:
        """Apply the fitted transformers to rows."""
        for step in self.chain:
            X = np.asarray(step.transform(X))
        return X


def typed_labels(values: NDArray[Any]) -> NDArray[Any]:
    """Convert labels of a single type to an array of that type, which is easy to sort and store."""
    if values.dtype.kind == "O":
        kinds = {type(value) for value in values.tolist()}
        if len(kinds) == 1 and kinds <= {str, int, float, bool}:
            return np.array(values.tolist())
    return values


def check_y(y: ArrayLike, n_rows: int | None) -> NDArray[Any]:
    """Return the labels as an array, after checking that there is one for each row."""
    if y is None:
        raise ValueError("the block has no labels; give y, or let the iterator yield (X, y)")
    labels = typed_labels(column_or_1d(np.asarray(y)))
    if n_rows is not None and len(labels) != n_rows:
        raise ValueError(f"X has {n_rows} rows but y has {len(labels)} labels")
    return labels


def check_shape(block: Block) -> tuple[Any, Columns]:
    """Return rows as an array or CSR matrix, and the column names if there are any."""
    X, columns = block.X, block.columns
    if columns is None and hasattr(X, "columns"):
        names = list(X.columns)
        columns = tuple(names) if all(isinstance(name, str) for name in names) else None
    if not isinstance(X, np.ndarray) or X.dtype.kind not in "fiub" or X.ndim != 2:
        dtype = None if sparse.issparse(X) else [np.float64, np.float32]
        later: dict[str, Any] = {"ensure_all_finite": False, "ensure_min_samples": 0}
        X = check_array(X, accept_sparse="csr", dtype=dtype, input_name="X", **later)
    if X.shape[0] == 0:
        raise ValueError(
            "the block has no rows; leave it out, or divide the data differently (repartition in "
            "Dask)"
        )
    return X, columns


def row_slices(shape: tuple[int, ...], chain: tuple[Any, ...]) -> Iterator[slice]:
    """Split rows into ranges that fit in PIECE_BYTES, both before and after the transformers."""
    widths = [shape[1], *(getattr(step, "n_components_", 0) for step in chain)]
    step = max(1, PIECE_BYTES // (8 * max(widths)))
    return starmap(slice, pairwise([*range(0, shape[0], step), shape[0]]))


def check_rows(X: Any, start: int) -> Floats:
    """Convert rows to dense float32 or float64, and check that all numbers are finite.

    `start` is the number of the first row in its block, for the error message.
    """
    rows: Floats = X.toarray() if sparse.issparse(X) else X
    if rows.dtype not in (np.float32, np.float64):
        rows = rows.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(rows.sum()):  # usually the sum alone shows that all are finite
            return rows
    bad = np.flatnonzero(~np.isfinite(rows).all(axis=1))
    if len(bad):
        raise ValueError(
            f"X has NaN or infinity in {number_of(len(bad), 'row')}, the first is row "
            f"{start + bad[0]}; leave those rows out or fill them in"
        )
    return rows


@dataclass(frozen=True)
class Division:
    """How to divide negatives: by given labels, nearest centre, a clusterer, or not at all.

    Attributes
    ----------
    given : bool
        Whether to use the subclass labels in the blocks.
    centres : array of shape (K, D) or None
        Means found by k-means; a negative belongs to the nearest one.
    clusterer : fitted clusterer with `predict`, or None
    """

    given: bool = False
    centres: Array | None = None
    clusterer: Any = None

    def groups(self, piece: Piece) -> tuple[NDArray[Any], Ints]:
        """Return the subclass names in a piece, and the group of each row.

        Positives are in group 0. A negative is in the group numbered one more than the index of its
        subclass name.
        """
        groups = np.zeros(len(piece.X), dtype=np.intp)
        negative = np.flatnonzero(~piece.positive)
        labels: NDArray[Any] = np.zeros(len(negative), dtype=np.intp)
        if self.given and piece.labels is not None:
            labels = piece.labels
        elif len(negative) and self.centres is not None:
            labels = nearest(piece.X, self.centres)[negative]
        elif len(negative) and self.clusterer is not None:
            labels = np.asarray(self.clusterer.predict(piece.X[negative]))
        names, codes = different_subclasses(labels)
        groups[negative] = codes + 1
        return names, groups
