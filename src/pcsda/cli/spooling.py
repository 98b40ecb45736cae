"""A table written once as plain numbers, so that a fit can read it many times."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..tables.arrays import read_npy
from .problems import Problem

if TYPE_CHECKING:
    from .columns import Features

    # Features, labels, and a dict that may hold `subclass_labels` and `sample_weight`.
    Part: TypeAlias = tuple[Features, NDArray[np.str_], dict[str, NDArray[Any]]]
    # Features, labels, subclass labels and weights.
    Block: TypeAlias = tuple[Features, NDArray[Any], NDArray[Any] | None, NDArray[Any] | None]
    Coded: TypeAlias = tuple[NDArray[Any], NDArray[np.int32]]


@contextmanager
def spooled(parts: Iterable[Part], beside: Path) -> Iterator[Callable[[], Iterator[Block]]]:
    """Write a table's features to a temporary file, and yield a function that reads its blocks.

    Parameters
    ----------
    parts : iterable of X, y and a dict that may hold `subclass_labels` and `sample_weight`
        Each part becomes a block. Labels and weights stay in memory.
    beside : path
        The temporary file is written next to this one; the disk must have room for it.
    """
    names: list[str] | None = None
    dtype: type[np.floating] = np.float64
    width = 0
    kept: list[tuple[Coded, Coded | None, NDArray[Any] | None]] = []
    with TemporaryDirectory(prefix=".pcsda-", dir=beside.resolve().parent) as folder:
        path = Path(folder) / "rows"
        with full_disk_named(path.parent), open(path, "wb") as file:
            for X, y, given in parts:
                if not kept:
                    names = [str(name) for name in X.columns] if hasattr(X, "columns") else None
                    width = X.shape[1]
                    dtype = np.float32 if np.asarray(X[:1]).dtype == np.float32 else np.float64
                file.write(np.ascontiguousarray(X, dtype=dtype).data)
                subclasses = given.get("subclass_labels")
                coded = None if subclasses is None else _coded(subclasses)
                kept.append((_coded(y), coded, given.get("sample_weight")))

        def blocks() -> Iterator[Block]:
            end = 0
            for (values, codes), coded, weights in kept:
                start, end = end, end + len(codes)
                X: Features = read_npy(path, np.dtype(dtype), (width,), 0, start, end)
                if names is not None:
                    import pandas as pd

                    X = pd.DataFrame(X, columns=names)
                yield X, values[codes], None if coded is None else coded[0][coded[1]], weights

        yield blocks


@contextmanager
def full_disk_named(path: Path) -> Iterator[None]:
    """Turn the error of a full disk into a Problem that says why a temporary file is needed."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        raise Problem(
            f"there is no room for the rows of the table in {path} ({error.strerror}); a fit "
            "in blocks needs up to eight bytes of disk space next to its output for each "
            "number in the table: free some space, or put the output on another disk"
        ) from error


def _coded(labels: NDArray[Any]) -> Coded:
    """Return the distinct labels and the index of each row's label among them."""
    values, codes = np.unique(labels, return_inverse=True)
    return values, codes.astype(np.int32)
