"""Table readers for CSV, Parquet, Arrow, NPY and NPZ files, folders, and data frames.

Commands, and fits in blocks, use these readers to read a table whole or in parts that fit in
memory.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from ..memory import available_memory
from ..progress import progress
from .arrays import of_npy, of_npz
from .arrow import is_frame, of_frame, of_ipc, of_parquet, parquet_cells, partition_values
from .table import Chunk, Table, as_text, did_you_mean, joined, labels, listed, missing, no_column
from .text import PACKED, STDIN, Wording, of_csv, read_text

__all__ = ["STDIN", "Table", "Wording", "as_text", "did_you_mean", "is_frame", "joined", "labels"]
__all__ += ["is_large", "list_files", "listed", "missing", "of_frame", "one_kind", "open_chunks"]
__all__ += ["pieces", "read", "refuse_overwrite"]

KINDS = {".npy": "npy", ".npz": "npz", ".parquet": "parquet", ".pq": "parquet"}
KINDS |= dict.fromkeys((".arrow", ".feather", ".ipc"), "arrow")
KINDS |= dict.fromkeys((".csv", ".tsv", ".txt"), "csv")
# Estimated bytes of parsed numbers per byte of a compressed CSV file.
PACKED_SIZE = 5


def kind_of(path: Path) -> str | None:
    """Return the format that a file name implies, or None if the name implies no known format."""
    name = path.with_suffix("") if path.suffix.lower() in PACKED else path
    kind = KINDS.get(name.suffix.lower())
    return kind if name == path or kind == "csv" else None


def list_files(path: Path) -> list[Path]:
    """List `path` itself if it is a file, or all tables in a folder and its subfolders.

    All files must have the same format. In a folder, names that begin with a dot or an underscore
    are skipped, as in other readers.
    """
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist")
    known = ", ".join(KINDS)
    if not path.is_dir():
        if kind_of(path) is None:
            raise ValueError(f"{path} must end in one of {known}")
        return [path]
    found = _members(path)
    if not found:
        raise ValueError(f"{path} has no file whose name ends in one of {known}")
    one_kind(found, path)
    return found


def _members(folder: Path) -> list[Path]:
    """List the tables in a folder and its partitions, in the order of their names."""
    return sorted(
        Path(inner, name)
        for inner, _, names in os.walk(folder)
        for name in names
        if kind_of(Path(name)) and not name.startswith((".", "_"))
    )


def refuse_overwrite(output: str | os.PathLike[str] | None, *sources: Any) -> None:
    """Raise an error if writing `output` would replace one of the files that are read.

    Parameters
    ----------
    output : path or None
        File to write. None, or a file that does not exist yet, replaces nothing.
    *sources : object
        Data to read: paths of files or folders, arrays that may be memory-mapped or sparse, or
        lists of these. Other objects are ignored. Links and relative paths are followed.
    """
    if output is None or not os.path.exists(output):
        return
    for source in sources:
        for file in _files_behind(source):
            if file.exists() and file.samefile(output):
                raise ValueError(f"{output} would overwrite {file}; give another name")


def _files_behind(source: Any) -> Iterator[Path]:
    """Yield the files that hold the data of `source`."""
    if isinstance(source, (str, os.PathLike)):
        path = Path(source)
        yield from _members(path) if path.is_dir() else [path]
    elif isinstance(source, (list, tuple)):
        for part in source:
            yield from _files_behind(part)
    elif isinstance(source, np.ndarray):
        # A slice or a copy-free conversion of a mapped array has the mapped array as its base.
        array: Any = source
        while isinstance(array, np.ndarray):
            if isinstance(array, np.memmap) and array.filename:
                yield Path(array.filename)
                return
            array = array.base
    elif sparse.issparse(source):
        for name in ("data", "indices", "indptr", "row", "col"):
            yield from _files_behind(getattr(source, name, None))


def one_kind(files: Sequence[Path], path: Path) -> str:
    """Return the format that all files from `path` share, or raise a ValueError if they differ."""
    kind, *others = sorted({str(kind_of(file)) for file in files})
    if others:
        raise ValueError(
            f"{path} mixes {' and '.join([kind, *others])} files; keep one kind in a folder, or "
            "pass a list of the files to read"
        )
    return kind


def open_chunks(
    path: Path, labels: Sequence[str] = (), block_rows: int | None = None
) -> list[Chunk]:
    """Split a file or folder into chunks that can be read independently, in any order.

    `labels` names the columns in which "NA" is a label rather than a missing number.
    """
    chunks: list[Chunk] = []
    for file in list_files(path):
        kind = kind_of(file)
        values = partition_values(path, file) if path.is_dir() else {}
        if kind == "parquet":
            chunks += of_parquet(file, values, block_rows)
        elif kind == "arrow":
            chunks += of_ipc(file, values, block_rows)
        elif kind == "npy":
            chunks += of_npy(file, block_rows)
        elif kind == "npz":
            chunks += of_npz(file)
        else:
            chunks += of_csv(file, labels, block_rows)
    return chunks


def read(path: str, wording: Wording | None = None) -> Table:
    """Read a whole table; ``-`` means CSV from standard input."""
    parts = list(_parts(path, wording or Wording(), 0))
    if not parts:  # a Parquet or Arrow file without rows may also lack row groups or batches
        raise ValueError(f"{path} has no rows")
    table = joined(parts)
    if len(table) == 0:
        raise ValueError(f"{table.source} has no rows, only columns: {listed(table.names)}")
    return replace(table, source="standard input" if path == STDIN else path)


def pieces(
    path: str, wording: Wording | None = None, block_rows: int | None = None
) -> Iterator[Table]:
    """Yield a table in pieces of `block_rows` rows; an NPZ file is read whole and then split."""
    start = 0
    parts = _parts(path, wording or Wording(), block_rows)
    if block_rows is not None:
        parts = _recut(parts, block_rows)
    for part in progress(parts, "rows", enabled=True, size=len):
        if len(part):
            yield replace(part, source="standard input" if path == STDIN else path, start=start)
            start += len(part)
    if not start:
        raise ValueError(f"{path} has no rows")


def _recut(parts: Iterator[Table], n_rows: int) -> Iterator[Table]:
    """Split the parts of a table again so that all but the last have `n_rows` rows."""
    held: list[Table] = []
    for part in parts:
        whole = joined([*held, part])
        last = len(whole) - len(whole) % n_rows
        yield from (whole.part(slice(a, a + n_rows)) for a in range(0, last, n_rows))
        held = [whole.part(slice(last, None))]
    yield from held


def _parts(path: str, wording: Wording, block_rows: int | None) -> Iterator[Table]:
    """Yield a table in parts of about `block_rows` rows; None means parts of a suitable size.

    Text is read as a stream, since it may be compressed or a pipe. If `block_rows` is 0, each text
    file is read in one part.
    """
    files = [Path(path)] if path == STDIN else list_files(Path(path))
    kind = "csv" if path == STDIN else kind_of(files[0])
    if kind == "csv":
        for file in files:
            yield from read_text(str(file), wording, block_rows)
        return
    for chunk in open_chunks(Path(path), block_rows=block_rows):
        # An archive may unpack to far more than its size, so missing columns are reported first.
        for name in wording.text if kind == "npz" else ():
            if name not in chunk.columns and not name.isdigit():
                raise ValueError(no_column(path, name, chunk.columns))
        yield chunk.read(None)


def is_large(path: str) -> bool:
    """Return whether a table is estimated to need more than half of the free memory.

    The answer is False for standard input and for a file that does not exist.
    """
    if path == STDIN or not Path(path).exists():
        return False
    size = 0
    for file in list_files(Path(path)):
        size += file.stat().st_size * (PACKED_SIZE if file.suffix.lower() in PACKED else 1)
        if kind_of(file) == "parquet":
            size += 8 * parquet_cells(file)
    return size > available_memory() / 2
