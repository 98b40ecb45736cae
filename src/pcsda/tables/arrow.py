"""Readers for Parquet and Arrow files, in parts, and for data frames."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from functools import partial
from itertools import islice, pairwise
from pathlib import Path
from threading import local
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..validation import import_extra
from .arrays import faults, rows_at_once
from .table import INDEX, Chunk, Names, Table, check_names, file_stamp, no_numbers, stacked, uneven

# A folder name that sets a column, as in kind=weld/part-0.parquet.
PARTITION = re.compile(r"([^=]+)=(.*)")


def _pyarrow(module: str = "pyarrow", what: str = "Parquet and Arrow files need") -> Any:
    return import_extra(module, what, "parquet")


def _faults(path: Path, format: str) -> AbstractContextManager[None]:
    return faults(path, format, (_pyarrow().ArrowException, OSError, EOFError))


def partition_values(folder: Path, path: Path) -> dict[str, Any]:
    """Return the columns that folder names define, as in kind=weld/0.parquet, and their values."""
    found: dict[str, Any] = {}
    for part in path.relative_to(folder).parent.parts:
        if match := PARTITION.fullmatch(part):
            name, value = match.groups()
            found[name] = int(value) if re.fullmatch(r"-?(0|[1-9]\d{0,17})", value) else value
    return found


def of_parquet(path: Path, values: Mapping[str, Any], block_rows: int | None) -> list[Chunk]:
    """Split a Parquet file into chunks, one for each row group or more if the group is large.

    `values` are additional columns, each with one value for the whole file.
    """
    with _faults(path, "Parquet"), _parquet_file(path) as file:
        names = _known(path, file.schema_arrow, values)
        groups = [file.metadata.row_group(g) for g in range(file.metadata.num_row_groups)]
        sizes = [(group.num_rows, group.total_byte_size) for group in groups]
    chunks, stamp = [], file_stamp(path)
    for group, (count, size) in enumerate(sizes):
        # Uncompressed bytes, counted as eight-byte numbers.
        step = rows_at_once(int(size / max(count, 1) / 8), block_rows)
        step = max(count, 1) if count * 2 <= step * 3 and not block_rows else step
        for start, stop in pairwise([*range(0, count, step), count]):
            rows = "" if stop - start == count else f", rows {start} to {stop - 1}"
            part = _Part(path, group, start, step, count)
            read, place = partial(_read_parquet, part, dict(values)), [group, start, stop, *stamp]
            chunks.append(Chunk(path.name, f"row group {group}{rows}", names, place, read))
    return chunks


def parquet_cells(path: Path) -> int:
    """Return the number of rows of a Parquet file, times its number of columns."""
    with _faults(path, "Parquet"), _parquet_file(path) as file:
        return int(file.metadata.num_rows * file.metadata.num_columns)


def _known(path: Path, schema: Any, values: Mapping[str, Any]) -> tuple[str, ...]:
    """Check the column names, and return all except those of a pandas index."""
    check_names(path.name, [*schema.names, *values])
    return tuple(name for name in (*schema.names, *values) if not INDEX.fullmatch(name))


def _parquet_file(path: Path) -> Any:
    parquet = _pyarrow("pyarrow.parquet", "Parquet files need")
    # Buffered, so that a large row group is read page by page.
    return parquet.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20)


class _Part(NamedTuple):
    """Part of a row group: `step` of its `n_rows` rows, beginning at `start`."""

    path: Path
    group: int
    start: int
    step: int
    n_rows: int


class _Cursor(local):
    """The open row-group reader of a thread, kept because parts are mostly read in order."""

    place: tuple[Any, ...] = ()
    batches: Iterator[Any] = iter(())


_cursor = _Cursor()


def _read_parquet(part: _Part, values: dict[str, Any], names: Names = None) -> Table:
    wanted = None if names is None else [name for name in names if name not in values]
    with _faults(part.path, "Parquet"):
        if part.step >= part.n_rows:
            with _parquet_file(part.path) as file:
                table = file.read_row_group(part.group, columns=wanted)
        else:
            table = _part_of_group(part, wanted)
        return with_values(of_arrow(str(part.path), table), values, names)


def _part_of_group(part: _Part, names: list[str] | None) -> Any:
    """Read part of a row group, continuing from the previous part if this one follows it."""
    key = (*file_stamp(part.path), part[:2], part.step, names)
    if _cursor.place != (key, part.start):
        _cursor.batches = _parquet_file(part.path).iter_batches(
            batch_size=part.step, row_groups=[part.group], columns=names
        )
        for _ in range(part.start // part.step):
            next(_cursor.batches)
    batch = next(_cursor.batches)
    stop = part.start + part.step
    _cursor.place = (key, stop) if stop < part.n_rows else ()
    if not _cursor.place:
        _cursor.batches = iter(())  # closes the file
    return _pyarrow().Table.from_batches([batch])


def with_values(table: Table, values: Mapping[str, Any], names: Names) -> Table:
    """Add constant columns, such as those that folder names define; `names` selects columns."""
    extra = {
        name: np.full(len(table), value, dtype=None if isinstance(value, int) else object)
        for name, value in values.items()
        if names is None or name in names
    }
    return Table(table.source, {**table.columns, **extra}, len(table))


def of_ipc(path: Path, values: Mapping[str, Any], block_rows: int | None) -> list[Chunk]:
    """Split an Arrow or Feather file into chunks, one or more for each record batch.

    `values` are additional columns, each with one value for the whole file.
    """
    with _faults(path, "Arrow"):
        sizes = []
        for batch in _batches(path):
            names = _known(path, batch.schema, values)
            sizes.append((batch.num_rows, batch.nbytes))
    chunks, stamp = [], file_stamp(path)
    for number, (count, size) in enumerate(sizes):
        step = rows_at_once(int(size / max(count, 1) / 8), block_rows)
        for start, stop in pairwise([*range(0, count, step), count]):
            read = partial(_read_ipc, path, dict(values), number, start, stop)
            part = f"batch {number}, rows {start} to {stop - 1}"
            chunks.append(Chunk(path.name, part, names, [number, start, stop, *stamp], read))
    return chunks


def _batches(path: Path) -> Iterator[Any]:
    """Yield the record batches from a memory-mapped Arrow file or stream."""
    pa, ipc = _pyarrow(), _pyarrow("pyarrow.ipc")
    with pa.memory_map(str(path)) as file:
        try:
            reader = ipc.open_file(file)
        except pa.ArrowInvalid:
            file.seek(0)
            yield from ipc.open_stream(file)
            return
        for number in range(reader.num_record_batches):
            yield reader.get_batch(number)


def _read_ipc(
    path: Path, values: dict[str, Any], number: int, start: int, stop: int, names: Names = None
) -> Table:
    with _faults(path, "Arrow"):
        batch = next(islice(_batches(path), number, None))
        part = _pyarrow().Table.from_batches([batch.slice(start, stop - start)])
        if names is not None:
            part = part.select([name for name in names if name not in values])
        found = of_arrow(str(path), part)
    # Copied, because mapped pages count as process memory.
    copied = {name: np.array(column) for name, column in found.columns.items()}
    return with_values(Table(found.source, copied, len(found)), values, names)


def of_arrow(source: str, table: Any) -> Table:
    """Convert an Arrow table to a Table."""
    names = [name for name in table.column_names if not INDEX.fullmatch(name)]
    check_names(source, names)
    columns = {name: _column(name, table.column(name)) for name in names}
    return Table(source, columns, table.num_rows)


def _column(name: str, column: Any) -> NDArray[Any]:
    """Convert an Arrow column to an array; lists of equal length become an embedding."""
    types = _pyarrow("pyarrow.types")
    if isinstance(column.type, _pyarrow().BaseExtensionType):
        column = column.cast(column.type.storage_type)
    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    if any(f(kind) for f in (types.is_list, types.is_large_list, types.is_fixed_size_list)):
        return _embedding(name, column)
    if types.is_decimal(kind) or types.is_null(kind):
        column = column.cast("float64")
    return np.asarray(column.to_numpy())


def _embedding(name: str, column: Any) -> NDArray[Any]:
    pa, compute = _pyarrow(), _pyarrow("pyarrow.compute")
    types = _pyarrow("pyarrow.types")
    if not (types.is_integer(column.type.value_type) or types.is_floating(column.type.value_type)):
        raise ValueError(no_numbers(name, f"lists of {column.type.value_type}"))
    given = column.drop_null()
    if not len(given):
        return np.full((len(column), 1), np.nan)
    lengths = compute.list_value_length(given).to_numpy()
    width = int(lengths[0])
    if (lengths != width).any():
        place = int(np.flatnonzero(lengths != width)[0])
        row = int(np.flatnonzero(column.is_valid().to_numpy())[place])
        raise ValueError(uneven(name, row, int(lengths[place]), width))
    if width == 0:
        raise ValueError(no_numbers(name, "empty lists"))
    parts = [chunk.flatten() for chunk in given.chunks]
    flat = pa.chunked_array(parts).to_numpy().reshape(len(given), width)
    if not column.null_count:
        return np.asarray(flat)
    rows = np.full((len(column), width), np.nan, np.result_type(flat, np.float32))
    rows[column.is_valid().to_numpy()] = flat
    return rows


def is_frame(data: object) -> bool:
    """Return whether an object is a data frame, from pandas or with an exchange interface."""
    if hasattr(data, "iloc"):  # a series of pandas has an Arrow interface too
        return hasattr(data, "columns")
    return hasattr(data, "__arrow_c_stream__") or hasattr(data, "__dataframe__")


def of_frame(data: Any) -> Table:
    """Convert a data frame, from pandas or with the Arrow interface, to a Table."""
    source = "the data frame"
    if hasattr(data, "iloc"):
        names = [str(name) for name in data.columns]
        check_names(source, names)
        columns = {name: _series(name, data.iloc[:, i]) for i, name in enumerate(names)}
        return Table(source, columns, len(data))
    if hasattr(data, "__arrow_c_stream__"):
        return of_arrow(source, _pyarrow("pyarrow", "data frames need").table(data))
    interchange = _pyarrow("pyarrow.interchange", "data frames need")
    return of_arrow(source, interchange.from_dataframe(data))


def _series(name: str, series: Any) -> NDArray[Any]:
    """Convert a pandas column to an array; its missing values become NaN or None."""
    types = import_extra("pandas", "data frames need", "cli").api.types
    dtype = series.dtype
    if types.is_extension_array_dtype(dtype) and types.is_numeric_dtype(dtype) and series.hasnans:
        return np.asarray(series.to_numpy(dtype=np.float64, na_value=np.nan))
    values: NDArray[Any] = series.to_numpy()
    if values.dtype.kind != "O":
        return values
    values = values.copy()
    values[series.isna().to_numpy()] = None
    return stacked(name, values)
