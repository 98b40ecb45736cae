"""Where blocks of rows are: an address is small, goes to other processes, and reads when asked."""

from __future__ import annotations

from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Block:
    """Rows with what belongs to them; `columns` are the names of the features where there are any.

    `X` is None where only the labels were asked for.
    """

    X: Any
    y: Any = None
    subclass_labels: Any = None
    sample_weight: Any = None
    columns: tuple[str, ...] | None = None


class Address(Protocol):
    """Where a block is."""

    @property
    def name(self) -> str:
        """What messages call the block."""

    def read(self, labels_only: bool = False) -> Block:
        """Read the block, or all of it but X."""

    def stamp(self) -> list[Any]:
        """What tells this block from that of other data, as far as one sees without reading it."""


@dataclass(frozen=True)
class ArrayRows:
    """Rows of an array in memory."""

    array: Any
    start: int

    @property
    def name(self) -> str:
        """Which rows these are."""
        return f"rows {self.start} to {self.start + self.array.shape[0] - 1}"

    def read(self) -> Any:
        """Return the rows themselves."""
        return self.array

    def stamp(self) -> list[Any]:
        """Shape and type."""
        return [self.start, *self.array.shape, str(self.array.dtype)]


@dataclass(frozen=True)
class FileRows:
    """Rows of a .npy file.

    They are read, not mapped: mapped pages that were touched count as memory of the process until
    the system wants them back.
    """

    path: Path
    start: int
    stop: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offset: int
    by_rows: bool

    @property
    def name(self) -> str:
        """Which rows these are."""
        return f"{self.path.name}, rows {self.start} to {self.stop - 1}"

    def read(self) -> Any:
        """Read the rows."""
        if not self.by_rows:
            mapped = np.load(self.path, mmap_mode="r", allow_pickle=False)
            return np.array(mapped[self.start : self.stop])
        width = int(np.prod(self.shape[1:], dtype=np.int64))
        skipped = self.offset + self.start * width * self.dtype.itemsize
        wanted = (self.stop - self.start) * width
        flat = np.fromfile(self.path, self.dtype, wanted, offset=skipped)
        if len(flat) < wanted:
            raise ValueError(
                f"{self.path} ends early: {len(flat)} of {wanted} numbers are left; it was cut "
                "since it was opened"
            )
        return flat.reshape(self.stop - self.start, *self.shape[1:])

    def stamp(self) -> list[Any]:
        """Rows, and size and time of the file."""
        return [self.start, self.stop, *file_stamp(self.path)]


@dataclass(frozen=True)
class Rows:
    """A range of rows of an array or a .npy file, with the same range of what belongs to them."""

    X: ArrayRows | FileRows
    companions: dict[str, ArrayRows | FileRows] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Which rows these are."""
        return self.X.name

    def read(self, labels_only: bool = False) -> Block:
        """Read rows and companions."""
        parts = {name: rows.read() for name, rows in self.companions.items()}
        return Block(None if labels_only else self.X.read(), **parts)

    def stamp(self) -> list[Any]:
        """Stamp of the rows and of all that belongs to them."""
        return [self.X.stamp(), *([k, v.stamp()] for k, v in self.companions.items())]


@dataclass(frozen=True)
class NpzFile:
    """A .npz file with the arrays X and y, and subclass_labels and sample_weight if wanted."""

    path: Path
    names: dict[str, str]

    @property
    def name(self) -> str:
        """Name of the file."""
        return self.path.name

    def read(self, labels_only: bool = False) -> Block:
        """Read the arrays."""
        parts = {part: part for part in ("y", "subclass_labels", "sample_weight")} | self.names
        with np.load(self.path, allow_pickle=False) as archive:
            for part, name in self.names.items():
                if name not in archive:
                    raise ValueError(f"{self.path} has no array {name!r} for {part}")
            if "X" not in archive:
                raise ValueError(f"{self.path} has no array 'X', only {sorted(archive)}")
            found = {k: archive[name] for k, name in parts.items() if name in archive}
            return Block(None if labels_only else archive["X"], **found)

    def stamp(self) -> list[Any]:
        """Size and time of the file."""
        return file_stamp(self.path)


@dataclass(frozen=True)
class RowGroup:
    """A row group of a Parquet file."""

    path: Path
    group: int
    companions: dict[str, str]
    columns: tuple[str, ...]

    @property
    def name(self) -> str:
        """Name of the file, and which of its row groups."""
        return f"{self.path.name}, row group {self.group}"

    def read(self, labels_only: bool = False) -> Block:
        """Read the columns that are needed."""
        names = [*self.companions.values(), *(() if labels_only else self.columns)]
        with import_parquet().ParquetFile(self.path) as file:
            table = file.read_row_group(self.group, columns=names)
        parts: dict[str, Any] = {
            k: plain_labels(table.column(v).to_numpy()) for k, v in self.companions.items()
        }
        if labels_only:
            return Block(None, **parts)
        series = [table.column(name).to_numpy() for name in self.columns]
        for name, values in zip(self.columns, series, strict=True):
            if values.dtype.kind not in "buif":
                raise ValueError(
                    f"column {name!r} is not numeric; leave it out of columns=, or encode it"
                )
        rows = np.empty((table.num_rows, len(series)), np.result_type(*series))
        for number, values in enumerate(series):
            rows[:, number] = values
        return Block(rows, columns=self.columns, **parts)

    def stamp(self) -> list[Any]:
        """Row group, and size and time of the file."""
        return [self.group, *file_stamp(self.path)]


def plain_labels(values: NDArray[Any]) -> NDArray[Any]:
    """Labels of one type as an array of that type, which can be sorted, sent and stored."""
    if values.dtype.kind == "O":
        kinds = {type(value) for value in values.tolist()}
        if len(kinds) == 1 and kinds <= {str, int, float, bool}:
            return np.array(values.tolist())
    return values


def import_parquet() -> Any:
    """Parquet part of pyarrow, or a message that names the extra."""
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise ImportError(
            'Parquet files need pyarrow; install it with pip install "pcsda[parquet]"'
        ) from error
    return parquet


@dataclass(frozen=True)
class TextRows:
    """Whole lines of a CSV file, by the bytes at which they begin and end."""

    path: Path
    start: int
    stop: int
    header: tuple[str, ...]
    companions: dict[str, str]
    columns: tuple[str, ...]
    # Companions that are text: decided by the first block, so that 1 does not become "1" later.
    text: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Name of the file, and where in it."""
        return f"{self.path.name}, bytes {self.start} to {self.stop - 1}"

    def read(self, labels_only: bool = False) -> Block:
        """Parse the lines."""
        columns = () if labels_only else self.columns
        types = {name: str for name in self.text} | {name: np.float64 for name in columns}
        with open(self.path, "rb") as file:
            file.seek(self.start)
            lines = file.read(self.stop - self.start)
        try:
            frame = self._parse(lines, columns, types)
        except ValueError as error:
            raise ValueError(f"{self.name}: {self._fault(error, lines, columns)}") from error
        parts: dict[str, Any] = {
            k: plain_labels(frame[v].to_numpy()) for k, v in self.companions.items()
        }
        if labels_only:
            return Block(None, **parts)
        return Block(frame[list(columns)].to_numpy(np.float64), columns=self.columns, **parts)

    def _parse(self, lines: bytes, columns: tuple[str, ...], types: Any) -> Any:
        wanted = [*self.companions.values(), *columns]
        return import_pandas().read_csv(
            BytesIO(lines),
            header=None,
            names=self.header,
            # With a choice of columns pandas lets rows pass that are too long.
            usecols=None if set(wanted) == set(self.header) else wanted,
            dtype=types,
            index_col=False,
        )

    def _fault(self, error: ValueError, lines: bytes, columns: tuple[str, ...]) -> str:
        """What an error of the parser is about: the encoding, a value, or else what it says."""
        if isinstance(error, UnicodeDecodeError):
            return not_utf8(error)
        try:
            frame = self._parse(lines, columns, str)
        except ValueError:
            return str(error).strip()
        for name in columns:
            numbers = import_pandas().to_numeric(frame[name], errors="coerce")
            wrong = np.flatnonzero(frame[name].notna() & numbers.isna())
            if len(wrong):
                return (
                    f"column {name!r} is not numeric ({frame[name][wrong[0]]!r} in row {wrong[0]} "
                    "of the block); leave it out of columns=, or encode it"
                )
        return str(error).strip()

    def stamp(self) -> list[Any]:
        """Range, and size and time of the file."""
        return [self.start, self.stop, *file_stamp(self.path)]


def not_utf8(error: UnicodeDecodeError) -> str:
    """What to do about text in another encoding."""
    return f"not text in UTF-8 ({error.reason}); save the file as UTF-8"


def import_pandas() -> Any:
    """Import pandas, or say which extra has it."""
    try:
        import pandas
    except ImportError as error:
        raise ImportError(
            'CSV files need pandas; install it with pip install "pcsda[cli]"'
        ) from error
    return pandas


def file_stamp(path: Path) -> list[Any]:
    """Name, size and time of a file."""
    state = path.stat()
    return [path.name, state.st_size, state.st_mtime_ns]
