"""Readers for NPY files, which are read by rows, and NPZ files, which are read by arrays."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..archive import UNREADABLE, array_shape, check_array
from ..memory import memory_limit
from .table import Chunk, Names, Table, file_stamp, first_line

# Size of one part in float64 bytes: large enough to keep overhead low, small enough to hold two
# parts in memory. On a machine with little memory it is a share of total memory, not of free
# memory, because a resumed fit must get the same blocks.
BLOCK_BYTES, BLOCK_SHARE = 64 << 20, 1 / 32
# Reads the rows from the first number up to, but not including, the second.
Reader: TypeAlias = Callable[[int, int], NDArray[Any]]


def rows_at_once(width: int, block_rows: int | None) -> int:
    """Return how many rows of `width` numbers to read at a time; `block_rows` takes precedence."""
    most = int(min(BLOCK_BYTES, BLOCK_SHARE * memory_limit()))
    return block_rows or max(1, most // (8 * max(width, 1)))


def map_npy(path: Path) -> np.memmap[Any, Any]:
    """Memory-map the array in a .npy file."""
    with faults(path, "NPY"):
        with open(path, "rb") as file:
            begin = file.read(6)
        if begin[:4] == b"PK\x03\x04":
            raise ValueError("it is an archive of several arrays; name it .npz")
        if begin != b"\x93NUMPY":
            size = path.stat().st_size
            raise ValueError(f"it has {size} bytes and begins with {begin!r}")
        return np.load(path, mmap_mode="r", allow_pickle=False)  # type: ignore[no-any-return]


@contextmanager
def faults(
    path: Path | str, kind: str, errors: tuple[type[Exception], ...] = UNREADABLE
) -> Iterator[None]:
    """Turn a reader's errors into a ValueError that names the file and the expected format."""
    try:
        yield
    except FileNotFoundError:
        raise FileNotFoundError(f"{path} does not exist") from None
    except errors as error:
        fault = first_line(error)
        if "allow_pickle" in str(error) or "Python objects" in str(error):
            fault = (
                "it holds Python objects, which are not loaded because loading them can run code; "
                "save labels as text instead: y.astype(str)"
            )
        raise ValueError(f"{path} could not be read as {kind}: {fault}") from error


def read_npy(
    path: Path,
    dtype: np.dtype[Any],
    width: tuple[int, ...],
    offset: int | None,
    start: int,
    stop: int,
) -> NDArray[Any]:
    """Read the rows from `start` up to, but not including, `stop` from a .npy file.

    If `offset` gives the position of the data, the file is read rather than mapped, because mapped
    pages count as process memory until the system reclaims them.
    """
    if offset is None:
        return np.array(np.load(path, mmap_mode="r", allow_pickle=False)[start:stop])
    size = math.prod(width)
    wanted = (stop - start) * size
    flat = np.fromfile(path, dtype, wanted, offset=offset + start * size * dtype.itemsize)
    if len(flat) < wanted:
        raise ValueError(
            f"{path} ends early: only {len(flat)} of {wanted} numbers could be read; it was "
            "truncated after it was opened"
        )
    return flat.reshape(stop - start, *width)


def npy_rows(path: Path, mapped: np.memmap[Any, Any]) -> Reader:
    """Return a function that reads a range of rows from the file of a mapped array."""
    # A file in Fortran order can only be mapped.
    offset = mapped.offset if mapped.flags.c_contiguous else None
    return partial(read_npy, path, mapped.dtype, mapped.shape[1:], offset)


def of_npy(path: Path, block_rows: int | None) -> list[Chunk]:
    """Split a .npy file into chunks of matrix rows or of records with named fields."""
    mapped = map_npy(path)
    if mapped.ndim != (1 if mapped.dtype.names else 2):
        raise ValueError(
            f"{path} has an array of shape {mapped.shape}; it must have two dimensions, rows and "
            "columns"
        )
    read = partial(_npy_table, str(path), npy_rows(path, mapped))
    step = rows_at_once(math.prod(mapped.shape[1:]), block_rows)
    stamp, count = file_stamp(path), len(mapped)
    names = mapped.dtype.names or tuple(map(str, range(*mapped.shape[1:])))
    return [
        Chunk(path.name, f"rows {a} to {b - 1}", names, [a, b, *stamp], partial(read, a, b))
        for a, b in pairwise([*range(0, count, step), count])
    ]


def _npy_table(source: str, read: Reader, start: int, stop: int, names: Names = None) -> Table:
    rows = read(start, stop)
    if rows.dtype.names is None:
        return Table(source, {}, len(rows), rows)
    wanted = rows.dtype.names if names is None else names
    return Table(source, {name: rows[name] for name in wanted}, len(rows))


def npz_names(path: Path) -> list[str]:
    """Return the names of the arrays in an archive."""
    with _archive(path) as arrays:
        return list(arrays.files)


def load_npz(path: Path, names: Names = None) -> dict[str, NDArray[Any]]:
    """Load arrays from an archive after checking that they fit in memory."""
    with _archive(path) as arrays:
        wanted = [name for name in arrays.files if names is None or name in names]
        for name in wanted:
            check_array(arrays.zip, name)
        return {name: arrays[name] for name in wanted}


@contextmanager
def _archive(path: Path) -> Iterator[Any]:
    with faults(path, "NPZ"), open(path, "rb") as file:
        if file.read(6) == b"\x93NUMPY":
            raise ValueError("it holds one array; name it .npy")
        file.seek(0)
        with np.load(file, allow_pickle=False) as arrays:
            yield arrays


def of_npz(path: Path) -> list[Chunk]:
    """Return a .npz archive as a single chunk."""
    names, stamp = tuple(npz_names(path)), file_stamp(path)
    return [Chunk(path.name, "", names, stamp, partial(read_npz, path))]


def read_npz(path: Path, names: Names = None) -> Table:
    """Read an archive: 1-D arrays become columns, and a 2-D array becomes the features.

    If several arrays are two-dimensional and none is called X, each becomes an embedding with its
    own name. `names` selects the arrays to read.
    """
    with _archive(path) as archive:
        wanted = [name for name in archive.files if names is None or name in names]
        shapes = {name: array_shape(archive.zip, name) for name in wanted}
    # The headers show the shapes before anything large is decompressed.
    shown = ", ".join(f"{name} {shape}" for name, shape in shapes.items()) or "none"
    if not shapes or any(len(shape) not in (1, 2) for shape in shapes.values()):
        raise ValueError(f"{path} must have arrays of one or two dimensions; it has {shown}")
    matrices = [name for name, shape in shapes.items() if len(shape) == 2]
    chosen = "X" if "X" in matrices else matrices[0] if len(matrices) == 1 else None
    if chosen is not None:
        wanted = [name for name in wanted if len(shapes[name]) == 1 or name == chosen]
    if len({shapes[name][0] for name in wanted}) > 1:
        raise ValueError(f"{path} must have arrays with one entry per row; it has {shown}")
    arrays = load_npz(path, wanted)
    matrix = arrays.pop(chosen) if chosen else None
    n_rows = len(next(iter(arrays.values()))) if matrix is None else len(matrix)
    return Table(str(path), arrays, n_rows, matrix)
