"""A table read once into a file of plain numbers, which passes of a fit go over many times."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Spool:
    """Rows on disk, and what belongs to them in memory.

    Attributes
    ----------
    rows : memory-mapped array of shape (n_rows, n_columns)
    names : list of str or None
        Names of the columns.
    labels : tuple of codes and values
        Label of each row, as a place in the values.
    subclasses : tuple of codes and values, or None
    weights : array of shape (n_rows,) or None
    ends : list of int
        Where the blocks end.
    """

    rows: NDArray[np.floating]
    names: list[str] | None
    labels: tuple[NDArray[np.int32], NDArray[Any]]
    subclasses: tuple[NDArray[np.int32], NDArray[Any]] | None
    weights: NDArray[np.float64] | None
    ends: list[int]

    def blocks(self) -> Iterator[tuple[Any, ...]]:
        """Yield X, labels, subclass labels and weights of one block after the other."""
        start = 0
        for end in self.ends:
            part = slice(start, end)
            X: Any = np.array(self.rows[part])
            if self.names is not None:
                import pandas as pd

                X = pd.DataFrame(X, columns=self.names)
            yield (
                X,
                _decoded(self.labels, part),
                None if self.subclasses is None else _decoded(self.subclasses, part),
                None if self.weights is None else self.weights[part],
            )
            start = end


@contextmanager
def spooled(parts: Iterable[tuple[Any, Any, dict[str, Any]]], beside: Path) -> Iterator[Spool]:
    """Write parts of a table to a temporary file in the folder of `beside`, gone afterwards.

    Parameters
    ----------
    parts : iterable of X, y and a dict that may have `subclass_labels` and `sample_weight`
    beside : path
        A file on the disk that has the room.
    """
    with TemporaryDirectory(prefix=".pcsda-", dir=beside.resolve().parent) as folder:
        yield _written(parts, Path(folder) / "rows")


def _written(parts: Iterable[tuple[Any, Any, dict[str, Any]]], path: Path) -> Spool:
    labels, subclasses = _Codes(), _Codes()
    weights: list[Any] = []
    ends = [0]
    names: list[str] | None = None
    dtype: Any = None
    width = 0
    with open(path, "wb") as file:
        for X, y, given in parts:
            if dtype is None:
                names = [str(name) for name in X.columns] if hasattr(X, "columns") else None
                width = X.shape[1]
                dtype = np.float32 if np.asarray(X[:1]).dtype == np.float32 else np.float64
            np.ascontiguousarray(X, dtype=dtype).tofile(file)
            labels.add(y)
            if "subclass_labels" in given:
                subclasses.add(given["subclass_labels"])
            if "sample_weight" in given:
                weights.append(given["sample_weight"])
            ends.append(ends[-1] + len(y))
    return Spool(
        np.memmap(path, dtype=dtype, mode="r", shape=(ends[-1], width)),
        names,
        labels.joined(),
        subclasses.joined() if subclasses.parts else None,
        np.concatenate(weights) if weights else None,
        ends[1:],
    )


class _Codes:
    """Labels that come in parts, each kept as the number of a value."""

    def __init__(self) -> None:
        self.parts: list[NDArray[np.int32]] = []
        self.numbers: dict[Any, int] = {}

    def add(self, labels: NDArray[Any]) -> None:
        values, codes = np.unique(labels, return_inverse=True)
        known = [self.numbers.setdefault(value, len(self.numbers)) for value in values.tolist()]
        self.parts.append(np.array(known, dtype=np.int32)[codes])

    def joined(self) -> tuple[NDArray[np.int32], NDArray[Any]]:
        return np.concatenate(self.parts), np.array(list(self.numbers))


def _decoded(coded: tuple[NDArray[np.int32], NDArray[Any]], part: slice) -> NDArray[Any]:
    codes, values = coded
    return values[codes[part]]
