"""Locate the blocks of a data set in arrays, files and folders, or take them from an iterator.

Values are read and checked later, one block at a time.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..tables import Table, is_frame, list_files, of_frame, one_kind, open_chunks
from ..tables.arrays import load_npz, map_npy, npy_rows, npz_names, rows_at_once
from ..tables.table import Chunk, bases, example, file_stamp, no_column
from ..validation import MatrixLike, is_dask
from .data import Address, Block, Blocks, Columns, typed_labels

Reader: TypeAlias = Callable[[], Any]


def open_blocks(
    data: Any, *, columns: list[str] | None = None, block_rows: int | None = None, **companions: Any
) -> Blocks:
    """Find the blocks of a data set.

    The parameters are as in :func:`pcsda.fit_blocks`; `companions` are the labels and weights.
    """
    given = {name: value for name, value in companions.items() if value is not None}
    if isinstance(data, Blocks):
        return data
    if isinstance(data, np.ndarray) or sparse.issparse(data):
        return Blocks(list(_of_rows([_rows_of(data)], given, block_rows)))
    if is_frame(data) and not is_dask(data):
        return Blocks(list(_of_frame(data, given, columns, block_rows)))
    paths = data if isinstance(data, (list, tuple)) else [data]
    if paths and all(isinstance(path, (str, os.PathLike)) for path in paths):
        return Blocks(_of_files([Path(path) for path in paths], given, columns, block_rows))
    if not (callable(data) or isinstance(data, Iterable)):
        raise TypeError(
            f"blocks of type {type(data).__name__} are not supported; pass a file, a folder, an "
            "array, a data frame (a lazy one has to be collected first), an iterator of (X, y), or "
            "a function that returns one"
        )
    if given:
        raise ValueError(
            f"{next(iter(given))} applies only to files and arrays; an iterator must yield it, as "
            "in (X, y, subclass_labels, sample_weight)"
        )
    if callable(data):
        return Blocks(start=lambda: iter(data()))
    return Blocks(start=lambda: iter(data), once=hasattr(data, "__next__"))


class Rows(NamedTuple):
    """Rows of an array or .npy file, which can be sliced by row number.

    ``cut(start, stop)`` returns a function that reads the rows from `start` up to `stop`. Only that
    function is sent to other processes, so it must not keep other rows in memory.
    """

    file: str
    shape: tuple[int, ...]
    stamp: list[Any]
    cut: Callable[[int, int], Reader]


def _rows_of(value: Any) -> Rows:
    """Return the rows of an array, or of the .npy file at a path."""
    if isinstance(value, (str, os.PathLike)):
        path, value = Path(value), map_npy(Path(value))
    # A slice of a mapped array reports the file name and offset of the whole array. So only a
    # whole array may be opened again by its name.
    elif isinstance(value, np.memmap) and not isinstance(value.base, np.ndarray) and value.filename:
        path = Path(value.filename)
    else:
        array = value.tocsr() if sparse.issparse(value) else np.asarray(value)
        stamp = [*array.shape, str(array.dtype)]
        return Rows("", array.shape, stamp, lambda start, stop: partial(_same, array[start:stop]))
    if value.ndim == 0:
        raise ValueError(f"{path} holds a single number; rows are needed")
    return Rows(path.name, value.shape, file_stamp(path), partial(partial, npy_rows(path, value)))


def _same(rows: MatrixLike) -> Any:
    return rows


def _of_rows(
    wholes: list[Rows], companions: dict[str, Any], block_rows: int | None, columns: Columns = None
) -> Iterator[Address]:
    """Cut arrays or .npy files into blocks, together with their labels and weights.

    Labels and weights come as one array for all rows, or as a folder of files that have the same
    names as the data files.
    """
    folders = {name: Path(value) for name, value in companions.items() if _is_folder(value)}
    long = {name: _rows_of(value) for name, value in companions.items() if name not in folders}
    for name, rows in long.items():
        _check_length(name, rows.shape[0], sum(whole.shape[0] for whole in wholes))
    offset = 0
    for whole in wholes:
        # Labels and weights, each with the position where the rows of this file or array start.
        own = {name: (rows, offset) for name, rows in long.items()}
        for name, folder in folders.items():
            own[name] = (_rows_of(folder / whole.file), 0)
            _check_length(f"{name} in {folder / whole.file}", own[name][0].shape[0], whole.shape[0])
        stamp = [whole.stamp, *([name, rows.stamp, at] for name, (rows, at) in own.items())]
        count, *width = whole.shape
        step = rows_at_once(math.prod(width), block_rows)
        for start, stop in pairwise([*range(0, count, step), count]):
            parts = {name: rows.cut(at + start, at + stop) for name, (rows, at) in own.items()}
            name = f"{whole.file}{', ' if whole.file else ''}rows {start} to {stop - 1}"
            read = partial(_read_rows, whole.cut(start, stop), parts, columns)
            yield Address(name, [start, stop, stamp], read)
        offset += count


def _is_folder(value: object) -> bool:
    return isinstance(value, (str, os.PathLike)) and Path(value).is_dir()


def _check_length(name: str, entries: int, wanted: int) -> None:
    if entries != wanted:
        raise ValueError(f"{name} has {entries} entries but the data have {wanted} rows")


def _read_rows(
    X: Reader, companions: dict[str, Reader], columns: Columns, labels_only: bool = False
) -> Block:
    parts = {name: read() for name, read in companions.items()}
    return Block(None if labels_only else X(), columns=columns, **parts)


def _of_files(
    paths: list[Path], companions: dict[str, Any], columns: list[str] | None, block_rows: int | None
) -> list[Address]:
    files = [file for path in paths for file in list_files(path)]
    kind = one_kind(files, paths[0])
    if kind == "npy":
        return list(_of_rows([_rows_of(file) for file in files], companions, block_rows))
    for name, value in companions.items():
        if not isinstance(value, str):
            raise ValueError(
                f"{name} must be the name of a column or array in {files[0].name}, got "
                f"{type(value).__name__}"
            )
    if kind == "npz":
        return [
            Address(file.name, file_stamp(file), partial(_read_npz, file, companions))
            for file in files
        ]
    labels = [name for part, name in companions.items() if part != "sample_weight"]
    addresses = []
    for chunk in [chunk for path in paths for chunk in open_chunks(path, labels, block_rows)]:
        features = feature_columns(chunk.file, chunk.columns, companions, columns)
        read = partial(_read_chunk, chunk, companions, features)
        addresses.append(Address(chunk.name, chunk.stamp, read))
    return addresses


def feature_columns(
    where: str, found: Sequence[str], companions: dict[str, str], columns: list[str] | None
) -> tuple[str, ...]:
    """Return the requested feature columns, or all columns other than labels and weights."""
    for name in (*companions.values(), *bases(columns or (), found)):
        if name not in found:
            raise ValueError(no_column(where, name, found))
    return tuple(columns or (name for name in found if name not in companions.values()))


def _read_chunk(
    chunk: Chunk, companions: dict[str, str], features: tuple[str, ...], labels_only: bool = False
) -> Block:
    wanted = () if labels_only else bases(features, chunk.columns)
    table = chunk.read([*companions.values(), *wanted])
    parts = {part: typed_labels(table.column(name)) for part, name in companions.items()}
    X, names = (None, None) if labels_only else _numeric(table, features)
    return Block(X, columns=names, **parts)


def _numeric(table: Table, features: tuple[str, ...]) -> tuple[NDArray[Any], tuple[str, ...]]:
    """Return the feature columns as one array, with their names; reject non-numeric columns."""
    for name in bases(features, table.names):
        values = table.column(name)
        if values.dtype.kind not in "buif":
            raise ValueError(
                f"column {name!r} is not numeric{example(values)}; leave it out of columns=, or "
                "encode it"
            )
    found = table.feature_names(features)
    return table.chosen(found), tuple(found)


def _of_frame(
    frame: object, companions: dict[str, Any], columns: list[str] | None, block_rows: int | None
) -> Iterator[Address]:
    """Cut a data frame into blocks; labels and weights are columns of it, or separate arrays."""
    table = of_frame(frame)
    inside = {part: name for part, name in companions.items() if isinstance(name, str)}
    features = feature_columns(table.source, table.names, inside, columns)
    own = {part: typed_labels(table.column(name)) for part, name in inside.items()}
    X, names = _numeric(table, features)
    return _of_rows([_rows_of(X)], companions | own, block_rows, names)


def _read_npz(path: Path, names: dict[str, str], labels_only: bool = False) -> Block:
    """Read a block from a .npz file; `names` maps `y` and other parts to the names of arrays."""
    parts = {part: part for part in ("y", "subclass_labels", "sample_weight")} | names
    known = npz_names(path)
    for part, name in names.items():
        if name not in known:
            raise ValueError(f"{path} has no array {name!r} for {part}, only {sorted(known)}")
    if "X" not in known:
        raise ValueError(f"{path} has no array 'X', only {sorted(known)}")
    arrays = load_npz(path, [*parts.values(), *(() if labels_only else ("X",))])
    found: dict[str, Any] = {part: arrays[name] for part, name in parts.items() if name in arrays}
    return Block(arrays.get("X"), **found)
