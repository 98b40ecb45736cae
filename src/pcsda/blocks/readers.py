"""What users have becomes blocks: arrays, files and folders a list of addresses, iterators a run.

Nothing here looks at values; that is for those who read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from scipy import sparse

from .addresses import (
    Address,
    ArrayRows,
    Block,
    FileRows,
    NpzFile,
    RowGroup,
    Rows,
    TextRows,
    import_pandas,
    import_parquet,
    not_utf8,
)

# Float64 bytes of the rows of one block: enough to make its overhead small, few enough for two
# blocks at once to be no burden.
BLOCK_BYTES = 64 << 20
# Bytes of text in one block of a CSV file.
TEXT_BYTES = 16 << 20
# No field in quotes is longer; without a bound, one quote too many would swallow the file.
QUOTED_BYTES = 1 << 20
KINDS = {".npy": "npy", ".npz": "npz", ".parquet": "parquet", ".pq": "parquet", ".csv": "csv"}


@dataclass(frozen=True)
class Blocks:
    """All blocks of a data set: addresses, or a function that starts a run over them.

    Attributes
    ----------
    addresses : list of addresses, or None
    start : callable or None
        Returns an iterator of blocks.
    once : bool
        Whether only one run is possible.
    """

    addresses: list[Address] | None = None
    start: Callable[[], Iterator[Any]] | None = None
    once: bool = False

    def __len__(self) -> int:
        return 0 if self.addresses is None else len(self.addresses)

    def readers(self, labels_only: bool = False) -> Iterator[tuple[str, Callable[[], Block]]]:
        """Yield name and reading function of every block."""
        if self.addresses is not None:
            for address in self.addresses:
                yield address.name, partial(address.read, labels_only)
            return
        assert self.start is not None
        items = self.start()
        number = 0
        end = object()
        while True:
            try:
                item = next(items, end)
            except Exception as error:
                error.add_note(f"while the iterator made block {number}")
                raise
            if item is end:
                return
            yield f"item {number} of the iterator", partial(_as_block, item)
            number += 1


def _as_block(item: Any) -> Block:
    if isinstance(item, Block):
        return item
    if isinstance(item, tuple):
        if 1 <= len(item) <= 4:
            return Block(*item)
        raise ValueError(
            f"a block must be X, (X, y), (X, y, subclass_labels) or (X, y, subclass_labels, "
            f"sample_weight), got a tuple of {len(item)}"
        )
    return Block(item)


def open_blocks(
    data: Any,
    *,
    y: Any = None,
    subclass_labels: Any = None,
    sample_weight: Any = None,
    columns: list[str] | None = None,
    block_rows: int | None = None,
) -> Blocks:
    """Find the blocks of a data set; the parameters are those of :func:`pcsda.fit_blocks`."""
    companions = {"y": y, "subclass_labels": subclass_labels, "sample_weight": sample_weight}
    if isinstance(data, Blocks):
        return data
    if isinstance(data, (str, os.PathLike)):
        return Blocks(_of_files([Path(data)], companions, columns, block_rows))
    if isinstance(data, np.ndarray) or sparse.issparse(data):
        return Blocks(_of_array(data, companions, block_rows))
    if (
        isinstance(data, (list, tuple))
        and data
        and all(isinstance(item, (str, os.PathLike)) for item in data)
    ):
        return Blocks(_of_files([Path(item) for item in data], companions, columns, block_rows))
    given = [name for name, value in companions.items() if value is not None]
    if given:
        raise ValueError(
            f"{given[0]} goes with files and arrays; an iterator has to yield it, as in (X, y, "
            "subclass_labels, sample_weight)"
        )
    if callable(data):
        return Blocks(start=lambda: iter(data()))
    if hasattr(data, "__next__"):
        return Blocks(start=lambda: data, once=True)
    if isinstance(data, Iterable):
        return Blocks(start=lambda: iter(data))
    raise TypeError(
        f"blocks of type {type(data).__name__} are not known; pass a file, a folder, an array, an "
        "iterator of (X, y), or a function that returns one"
    )


def _npy_rows(path: Path) -> FileRows:
    """All rows of a .npy file, from its header."""
    try:
        mapped = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise FileNotFoundError(f"{path} does not exist") from None
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path} is not a whole .npy file of plain numbers: {error}") from error
    if not isinstance(mapped, np.memmap):
        raise ValueError(f"{path} is not a .npy file of one array")
    return _mapped_rows(mapped, path)


def _mapped_rows(mapped: np.memmap[Any, Any], path: Path) -> FileRows:
    if mapped.ndim == 0:
        raise ValueError(f"{path} holds a single number; rows are needed")
    by_rows = bool(mapped.flags.c_contiguous)
    return FileRows(path, 0, len(mapped), mapped.shape, mapped.dtype, mapped.offset, by_rows)


def _cut(rows: ArrayRows | FileRows, start: int, stop: int) -> ArrayRows | FileRows:
    if isinstance(rows, ArrayRows):
        return ArrayRows(rows.array[start:stop], start)
    return FileRows(rows.path, start, stop, rows.shape, rows.dtype, rows.offset, rows.by_rows)


def _rows_of(value: Any) -> ArrayRows | FileRows:
    """Rows of something that is cut by row numbers: an array, or the path of a .npy file."""
    if isinstance(value, (str, os.PathLike)):
        return _npy_rows(Path(value))
    # A slice of a mapped array keeps the file name and offset of the whole: only that one is safe.
    if isinstance(value, np.memmap) and not isinstance(value.base, np.ndarray) and value.filename:
        return _mapped_rows(value, Path(value.filename))
    return ArrayRows(value.tocsr() if sparse.issparse(value) else np.asarray(value), 0)


def _of_array(array: Any, companions: dict[str, Any], block_rows: int | None) -> list[Address]:
    whole = _rows_of(array)
    given = {k: (_rows_of(v), 0) for k, v in companions.items() if v is not None}
    for name, (rows, _) in given.items():
        _check_length(name, rows, _shape(whole)[0])
    return list(_row_blocks(whole, given, block_rows))


def _shape(rows: ArrayRows | FileRows) -> tuple[int, ...]:
    return rows.array.shape if isinstance(rows, ArrayRows) else rows.shape


def _check_length(name: str, rows: ArrayRows | FileRows, wanted: int) -> None:
    found = _shape(rows)[0]
    if found != wanted:
        raise ValueError(f"{name} has {found} entries but the data have {wanted} rows")


def _row_blocks(
    whole: ArrayRows | FileRows,
    companions: dict[str, tuple[ArrayRows | FileRows, int]],
    block_rows: int | None,
) -> Iterator[Address]:
    """Cut rows into blocks, and with them the companions, each from an entry of its own on."""
    count, *width = _shape(whole)
    step = block_rows or max(1, BLOCK_BYTES // (8 * max(int(np.prod(width)), 1)))
    for start in range(0, count, step):
        stop = min(start + step, count)
        cut = {k: _cut(rows, at + start, at + stop) for k, (rows, at) in companions.items()}
        yield Rows(_cut(whole, start, stop), cut)


def _of_npy(
    files: list[Path], companions: dict[str, Any], block_rows: int | None
) -> Iterator[Address]:
    """Cut .npy files; a companion is as long as all of them, or a folder with the same names."""
    parts = [_npy_rows(file) for file in files]
    total = sum(part.shape[0] for part in parts)
    given = {k: v for k, v in companions.items() if v is not None}
    folders = {k: Path(v) for k, v in given.items() if _is_path(v) and Path(v).is_dir()}
    long = {k: _rows_of(v) for k, v in given.items() if k not in folders}
    for name, rows in long.items():
        _check_length(name, rows, total)
    offset = 0
    for file, part in zip(files, parts, strict=True):
        own: dict[str, tuple[ArrayRows | FileRows, int]]
        own = {k: (rows, offset) for k, rows in long.items()}
        for name, folder in folders.items():
            rows = _npy_rows(folder / file.name)
            _check_length(f"{name} in {folder / file.name}", rows, part.shape[0])
            own[name] = (rows, 0)
        yield from _row_blocks(part, own, block_rows)
        offset += part.shape[0]


def _is_path(value: Any) -> bool:
    return isinstance(value, (str, os.PathLike))


def _of_files(
    paths: list[Path],
    companions: dict[str, Any],
    columns: list[str] | None,
    block_rows: int | None,
) -> list[Address]:
    files = [file for path in paths for file in _listed(path)]
    kinds = sorted({KINDS[file.suffix.lower()] for file in files})
    if len(kinds) > 1:
        raise ValueError(
            f"{paths[0]} mixes {' and '.join(kinds)} files; keep one kind in a folder, or pass a "
            "list of the files to read"
        )
    if kinds == ["npy"]:
        return list(_of_npy(files, companions, block_rows))
    given = {name: value for name, value in companions.items() if value is not None}
    for name, value in given.items():
        if not isinstance(value, str):
            raise ValueError(
                f"{name} must be the name under which {files[0].name} has it, got "
                f"{type(value).__name__}"
            )
    if kinds == ["npz"]:
        return [NpzFile(file, given) for file in files]
    table = _of_parquet if kinds == ["parquet"] else _of_csv
    return [block for file in files for block in table(file, given, columns, block_rows)]


def _listed(path: Path) -> list[Path]:
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist")
    known = ", ".join(KINDS)
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix.lower() in KINDS)
        if not files:
            raise ValueError(f"{path} has no file that ends in one of {known}")
        return files
    if path.suffix.lower() not in KINDS:
        raise ValueError(f"{path} must end in one of {known}")
    return [path]


def _features(
    path: Path, found: list[str], companions: dict[str, str], columns: list[str] | None
) -> tuple[str, ...]:
    """Names of the feature columns: those asked for, or all that have no other part."""
    wanted = [*companions.values(), *(columns or ())]
    missing = [name for name in wanted if name not in found]
    if missing:
        raise ValueError(f"{path.name} has no column {missing[0]!r}; it has {found}")
    return tuple(columns or (name for name in found if name not in companions.values()))


def _of_parquet(
    path: Path, companions: dict[str, str], columns: list[str] | None, _: int | None
) -> list[Address]:
    with import_parquet().ParquetFile(path) as file:
        found, groups = list(file.schema_arrow.names), file.metadata.num_row_groups
    features = _features(path, found, companions, columns)
    return [RowGroup(path, group, companions, features) for group in range(groups)]


def _row_edges(file: BinaryIO, begin: int, step: int) -> list[int]:
    """Where to cut lines of text, at the first end of a row that is `step` bytes on.

    Quotes must be counted from the last cut, for a line may end within them. That takes all of the
    bytes, so it is done only where the first of them have any quotes.
    """
    size = file.seek(0, os.SEEK_END)
    file.seek(begin)
    quoted = b'"' in file.read(TEXT_BYTES)
    edges = [begin]
    while edges[-1] < size:
        near = min(edges[-1] + step, size) - 1
        file.seek(edges[-1])
        quotes = file.read(near - edges[-1]).count(b'"') if quoted else 0
        file.seek(near)
        _whole_row(file, quotes)
        edges.append(file.tell())
    return edges


def _whole_row(file: BinaryIO, quotes: int) -> bytes:
    """Read on to the end of a row, after so many quotes of the rows before it and of its own.

    A quote may also stand for itself, as for inches. So where none follows that would close it, the
    row ends with its first line.
    """
    first = row = line = file.readline()
    end = file.tell()
    quotes += line.count(b'"')
    while quotes % 2 and line and len(row) < QUOTED_BYTES:
        line = file.readline()
        row += line
        quotes += line.count(b'"')
    if quotes % 2:
        file.seek(end)
        return first
    return row


def _of_csv(
    path: Path, companions: dict[str, str], columns: list[str] | None, block_rows: int | None
) -> list[Address]:
    """Cut a CSV file between rows."""
    with open(path, "rb") as file:
        first = _whole_row(file, 0)
        begin = file.tell()
        step = TEXT_BYTES
        if block_rows:
            lines = [len(file.readline()) for _ in range(100)]
            step = max(1, int(block_rows * np.mean([n for n in lines if n] or [1])))
        edges = _row_edges(file, begin, step)
    try:
        header = tuple(import_pandas().read_csv(BytesIO(first), nrows=0).columns)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path.name}: {not_utf8(error)}") from error
    features = _features(path, list(header), companions, columns)
    blocks = [
        TextRows(path, start, stop, header, companions, features) for start, stop in pairwise(edges)
    ]
    if not blocks:
        return []
    seen = blocks[0].read()
    text = tuple(
        name for part, name in companions.items() if getattr(seen, part).dtype.kind not in "buif"
    )
    return [replace(block, text=text) for block in blocks]
