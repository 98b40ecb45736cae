"""From a block as it was read to checked pieces of rows with their groups, ready for statistics."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import check_array, column_or_1d

from .. import validation
from ..core.linalg import Array
from ..partition import different_subclasses, given_labels, nearest
from .addresses import Block, plain_labels

# Float64 bytes of the rows that are dense, mapped and grouped at once.
PIECE_BYTES = 64 << 20


@dataclass(frozen=True)
class Head:
    """What all blocks must have in common, and the name of a block that has it."""

    name: str
    width: int
    columns: tuple[str, ...] | None
    single: bool

    def join(self, other: Head) -> Head:
        """Check that two blocks go together; one of float64 makes the whole float64."""
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


def _shown(columns: tuple[str, ...] | None) -> str:
    return "without names" if columns is None else ", ".join(map(repr, columns[:8]))


@dataclass(frozen=True)
class Piece:
    """Checked rows of one block.

    Attributes
    ----------
    head : Head
    number, part : int
        Which block this is from, and which piece of it: they seed whatever is drawn.
    before : pair of int
        Positives and negatives in earlier pieces of the block.
    X : array of shape (n, D)
        Dense rows, after the maps.
    positive : boolean array of shape (n,)
    weights : array of shape (n,) or None
    labels : array or None
        Given subclass labels of the negatives.
    """

    head: Head
    number: int
    part: int
    before: tuple[int, int]
    X: NDArray[np.floating]
    positive: NDArray[np.bool_]
    weights: Array | None
    labels: NDArray[Any] | None

    def rng(self, seed: int, purpose: int) -> np.random.Generator:
        """Draws that belong to this piece alone, so that a pass may be taken up anywhere."""
        return np.random.default_rng([seed, purpose, self.number, self.part])

    @property
    def weight(self) -> Array:
        """Weight of every row."""
        return np.ones(len(self.X)) if self.weights is None else self.weights


@dataclass(frozen=True)
class Intake:
    """How blocks are checked and mapped; goes to every worker.

    Attributes
    ----------
    classes : array of shape (2,)
    index : int
        Which of them is the class of interest.
    given : bool
        Whether blocks bring subclass labels.
    chain : tuple of fitted transformers
    """

    classes: NDArray[Any]
    index: int
    given: bool
    chain: tuple[Any, ...] = ()

    def pieces(self, number: int, name: str, block: Block) -> Iterator[Piece]:
        """Yield rows of a block, a bounded number at a time; those of weight zero are left out."""
        X, columns = check_shape(block)
        positive, weights = self.classified(block, X.shape[0])
        labels = self._labels(block.subclass_labels, positive)
        before = (0, 0)
        for part, rows in enumerate(row_slices(X.shape, self.chain)):
            kept: Any = rows
            if weights is not None:
                kept = rows.start + np.flatnonzero(weights[rows])
                if len(kept) == 0:
                    continue
            dense = self.map(check_rows(X[kept], rows.start))
            yield Piece(
                Head(name, X.shape[1], columns, bool(dense.dtype == np.float32)),
                number,
                part,
                before,
                dense,
                positive[kept],
                None if weights is None else weights[kept],
                None if labels is None else plain_labels(labels[kept][~positive[kept]]),
            )
            inside = int(positive[kept].sum())
            before = (before[0] + inside, before[1] + len(dense) - inside)

    def classified(
        self, block: Block, n_rows: int | None
    ) -> tuple[NDArray[np.bool_], Array | None]:
        """Which rows are of the class of interest, and their weights if there are any."""
        positive = self._positive(block.y, n_rows)
        if block.sample_weight is None:
            return positive, None
        return positive, validation.weight_values(block.sample_weight, len(positive))

    def map(self, X: NDArray[np.floating]) -> NDArray[np.floating]:
        """Send rows through the fitted transformers."""
        for step in self.chain:
            X = np.asarray(step.transform(X))
        return X

    def _positive(self, y: Any, n_rows: int | None) -> NDArray[np.bool_]:
        labels = check_y(y, n_rows)
        positive = labels == self.classes[self.index]
        known = positive | (labels == self.classes[1 - self.index])
        if not np.all(known):
            unseen = sorted(set(labels[~known].tolist()), key=str)
            raise ValueError(
                f"y has labels {unseen[:5]} that are not among classes {self.classes.tolist()}; "
                "leave those rows out, or use y == label for one class"
            )
        return np.asarray(positive, dtype=bool)

    def _labels(self, subclass_labels: Any, positive: NDArray[np.bool_]) -> NDArray[Any] | None:
        if (subclass_labels is not None) != self.given:
            raise ValueError("subclass_labels must come with every block or with none of them")
        if subclass_labels is None:
            return None
        given_labels(subclass_labels, positive)
        return np.asarray(subclass_labels)


def check_y(y: Any, n_rows: int | None) -> NDArray[Any]:
    """One label for each row, as an array."""
    if y is None:
        raise ValueError("the block has no labels; give y, or let the iterator yield (X, y)")
    labels = plain_labels(column_or_1d(np.asarray(y)))
    if n_rows is not None and len(labels) != n_rows:
        raise ValueError(f"X has {n_rows} rows but y has {len(labels)} labels")
    return labels


def check_shape(block: Block) -> tuple[Any, tuple[str, ...] | None]:
    """Rows as an array or a CSR matrix, and the names of the columns if they have any."""
    X, columns = block.X, block.columns
    if columns is None and hasattr(X, "columns"):
        names = list(X.columns)
        columns = tuple(names) if all(isinstance(name, str) for name in names) else None
    if not isinstance(X, np.ndarray) or X.dtype.kind not in "fiub" or X.ndim != 2:
        X = check_array(
            X,
            accept_sparse="csr",
            dtype=None if sparse.issparse(X) else [np.float64, np.float32],
            ensure_all_finite=False,
            ensure_min_samples=0,
            input_name="X",
        )
    if X.shape[0] == 0:
        raise ValueError(
            "the block has no rows; leave it out, or cut the data anew (repartition in Dask)"
        )
    return X, columns


def row_slices(shape: tuple[int, ...], chain: tuple[Any, ...]) -> Iterator[slice]:
    """Ranges of rows that stay within PIECE_BYTES before and after the maps."""
    widths = [shape[1], *(getattr(step, "n_components_", 0) for step in chain)]
    step = max(1, PIECE_BYTES // (8 * max(widths)))
    for start in range(0, shape[0], step):
        yield slice(start, min(start + step, shape[0]))


def check_rows(X: Any, start: int) -> NDArray[np.floating]:
    """Make rows dense float32 or float64; all numbers must be finite."""
    rows = X.toarray() if sparse.issparse(X) else X
    if rows.dtype not in (np.float32, np.float64):
        rows = rows.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        finite = np.isfinite(rows.sum())  # one number to look at, where all is well
    if not finite:
        bad = np.flatnonzero(~np.isfinite(rows).all(axis=1))
        if len(bad):
            raise ValueError(
                f"X has NaN or infinity in {len(bad)} rows, the first is row {start + bad[0]}; "
                "leave those rows out or fill them in"
            )
    result: NDArray[np.floating] = rows
    return result


@dataclass(frozen=True)
class Division:
    """How the negatives are divided: given labels, the nearest centre, a clusterer, or not at all.

    Attributes
    ----------
    given : bool
    centres : array of shape (K, D) or None
    clusterer : fitted clusterer with `predict`, or None
    """

    given: bool = False
    centres: Array | None = None
    clusterer: Any = None

    def groups(self, piece: Piece) -> tuple[NDArray[Any], NDArray[np.intp]]:
        """Names of the subclasses in a piece, and groups of the rows: 0, or 1 + place of a name."""
        groups = np.zeros(len(piece.X), dtype=np.intp)
        negative = np.flatnonzero(~piece.positive)
        labels = self._labels(piece, negative)
        names, codes = different_subclasses(labels)
        groups[negative] = codes + 1
        return names, groups

    def _labels(self, piece: Piece, negative: NDArray[np.intp]) -> NDArray[Any]:
        if self.given and piece.labels is not None:
            return piece.labels
        if len(negative) and self.centres is not None:
            return nearest(piece.X, self.centres)[negative]
        if len(negative) and self.clusterer is not None:
            return np.asarray(self.clusterer.predict(piece.X[negative]))
        return np.zeros(len(negative), dtype=np.intp)
