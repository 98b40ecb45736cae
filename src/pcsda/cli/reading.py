"""Tables from files, by their extension: whole, or piece by piece where memory is too small."""

from __future__ import annotations

import io
import sys
import warnings
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernels import available_memory
from ..progress import progress
from .problems import Problem, needs, note
from .tables import Table, first_line, listed

STDIN = "-"
CSV_ENDINGS = (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".csv.bz2", ".csv.xz")
PARQUET_ENDINGS = (".parquet", ".pq")
# What stands for a missing number; in a column of labels only an empty cell is missing.
MISSING = ("", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "-nan", "NULL", "null", "None", "<NA>")
# What readers raise on a file that is cut, altered or of another format.
UNREADABLE: tuple[type[Exception], ...] = (
    ValueError,
    EOFError,
    OSError,
    zlib.error,
    zipfile.BadZipFile,
)
# Bytes of numbers in one piece.
PIECE_BYTES = 64 << 20
# Bytes of numbers that a compressed byte of a CSV file may stand for.
PACKED = 5
# Programs that write tables put it first, without a name.
ROW_NUMBER = "(row number)"


def read(path: str, text: Iterable[str] = ()) -> Table:
    """Read a whole table; ``-`` is CSV on standard input.

    Parameters
    ----------
    path : str
    text : names of columns
        Columns of a CSV file that stay text as it is written there, such as labels.
    """
    kind = _kind(path)
    if kind == "csv":
        source = "standard input" if path == STDIN else path
        content = sys.stdin.buffer.read() if path == STDIN else Path(path)
        with _csv_faults(source), _open_csv(source, content, set(text)) as reader:
            frame = _without_row_number(reader.read())
        return _with_rows(Table(source, frame))
    if kind == "parquet":
        with _faults(path, "Parquet"), _parquet(path) as file:
            frame = _named(path, file.read().to_pandas())
        return _with_rows(Table(path, frame))
    return _with_rows(_read_numpy(path))


def pieces(path: str, text: Iterable[str] = (), n_rows: int | None = None) -> Iterator[Table]:
    """Read a table piece by piece, `n_rows` at a time; an NPZ file has no pieces but itself."""
    kind = _kind(path)
    found = {"csv": _csv_pieces, "parquet": _parquet_pieces, "numpy": _numpy_pieces}[kind](
        path, set(text), n_rows
    )
    start = 0
    for piece in progress(found, "rows", enabled=True, size=len):
        yield piece
        start += len(piece)
    if start == 0:
        raise Problem(f"{path} has no rows")


def is_large(path: str) -> bool:
    """Whether a table takes more than half of the memory that is free; standard input never is."""
    if path == STDIN or not Path(path).is_file():
        return False
    size = Path(path).stat().st_size
    if _kind(path) == "parquet":
        with _faults(path, "Parquet"), _parquet(path) as file:
            size = 8 * file.metadata.num_rows * file.metadata.num_columns
    elif path.lower().endswith((".gz", ".bz2", ".xz")):
        size *= PACKED
    return size > available_memory() / 2


def _kind(path: str) -> str:
    """Format of a file that exists."""
    needs("pandas", "cli", "to read tables")
    if path == STDIN:
        return "csv"
    file = Path(path)
    if file.is_dir():
        raise Problem(f"{path} is a folder; name a CSV, Parquet, NPY or NPZ file")
    if not file.exists():
        raise Problem(f"{path} does not exist")
    name = file.name.lower()
    if name.endswith(CSV_ENDINGS):
        return "csv"
    if name.endswith(PARQUET_ENDINGS):
        needs("pyarrow", "parquet", "to read Parquet files")
        return "parquet"
    if name.endswith((".npy", ".npz")):
        return "numpy"
    raise Problem(
        f"{path}: the format is not known by this extension; use .csv, .tsv, .parquet, .npy or "
        ".npz, or - for CSV on standard input"
    )


@contextmanager
def _faults(source: str, format: str, *more: type[Exception]) -> Iterator[None]:
    """Tell what a reader could not read."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise Problem(f"{source} is not text in UTF-8 ({error.reason}); save it as UTF-8") from None
    except UNREADABLE + more as error:
        raise Problem(f"{source} could not be read as {format}: {first_line(error)}") from error


@contextmanager
def _csv_faults(source: str) -> Iterator[None]:
    from pandas.errors import EmptyDataError, ParserWarning

    with warnings.catch_warnings(), _faults(source, "CSV", ParserWarning):
        # Rows longer than the header would be cut with a warning.
        warnings.simplefilter("error", ParserWarning)
        try:
            yield
        except EmptyDataError:
            raise Problem(f"{source} is empty; the first line must name the columns") from None


def _open_csv(source: str, content: Any, text: set[str], n_rows: int | None = None) -> Any:
    """Reader of a CSV file, of bytes or of a stream, whose columns have been looked at."""
    import pandas as pd

    # A stream is read once, and its first line by itself.
    head = content.readline() if hasattr(content, "readline") else None

    def header(separator: str) -> list[str]:
        first = pd.read_csv(
            _again(content if head is None else head),
            sep=separator,
            header=None,
            nrows=1,
            dtype=str,
            keep_default_na=False,
            encoding="utf-8-sig",
        )
        return [name.strip() for name in first.iloc[0]]

    separator, names = max(((s, header(s)) for s in ",;\t"), key=lambda found: len(found[1]))
    unnamed = not names[0] and len(names) > 1
    _refuse_names(source, names[unnamed:])
    if unnamed:
        note(f"the first column of {source} has no name and is left out, as the number of the row")
        names[0] = ROW_NUMBER
    if n_rows is None:
        n_rows = max(1, PIECE_BYTES // (8 * len(names)))
    numeric = [name for name in names if name not in text]
    return pd.read_csv(
        _again(content),
        sep=separator,
        header=0 if head is None else None,
        names=names,
        index_col=False,
        dtype=dict.fromkeys(text & set(names), str),
        keep_default_na=False,
        na_values={**dict.fromkeys(numeric, MISSING), **dict.fromkeys(text, ("",))},
        encoding="utf-8-sig",
        low_memory=False,
        skipinitialspace=True,
        chunksize=n_rows,
    )


def _again(content: Any) -> Any:
    return io.BytesIO(content) if isinstance(content, bytes) else content


def _without_row_number(frame: Any) -> Any:
    return frame.drop(columns=ROW_NUMBER, errors="ignore")


def _csv_pieces(path: str, text: set[str], n_rows: int | None) -> Iterator[Table]:
    source = "standard input" if path == STDIN else path
    content = sys.stdin.buffer if path == STDIN else Path(path)
    start = 0
    with _csv_faults(source):
        chunks = _open_csv(source, content, text, n_rows)
    with chunks:
        while True:
            with _csv_faults(source):
                chunk = next(chunks, None)
            if chunk is None:
                return
            frame = _without_row_number(chunk)
            yield Table(source, frame, start=start)
            start += len(frame)


def _refuse_names(source: str, names: Sequence[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1 and name})
    if twice:
        raise Problem(f"{source} has columns of the same name: {listed(twice)}; rename them")
    unnamed = [str(place) for place, name in enumerate(names, start=1) if not name]
    if unnamed:
        raise Problem(
            f"{source} has columns without a name, at place {listed(unnamed)}; the first line must "
            "name every column"
        )
    if all(_is_measured(name) for name in names):
        raise Problem(
            f"{source} starts with a line of numbers, {listed(names, 3)}; the first line must "
            "name the columns"
        )


def _is_measured(text: str) -> bool:
    """Whether a name looks like a measured value; whole numbers may well be names."""
    try:
        float(text)
    except ValueError:
        return False
    return not text.isdigit()


@contextmanager
def _parquet(path: str) -> Iterator[Any]:
    from pyarrow.parquet import ParquetFile

    with ParquetFile(path) as file:
        yield file


def _named(path: str, frame: Any) -> Any:
    frame = frame.reset_index(drop=True)
    frame.columns = [str(name) for name in frame.columns]
    _refuse_names(path, list(frame.columns))
    return frame


def _parquet_pieces(path: str, _: set[str], n_rows: int | None) -> Iterator[Table]:
    start = 0
    with _faults(path, "Parquet"), _parquet(path) as file:
        rows = n_rows or max(1, PIECE_BYTES // (8 * max(1, file.metadata.num_columns)))
        batches = file.iter_batches(batch_size=rows)
        while (batch := next(batches, None)) is not None:
            frame = _named(path, batch.to_pandas())
            frame.index += start
            yield Table(path, frame, start=start)
            start += len(frame)


def _numpy_pieces(path: str, _: set[str], n_rows: int | None) -> Iterator[Table]:
    whole = _read_numpy(path)
    rows = n_rows or max(1, PIECE_BYTES // (8 * max(1, len(whole.names))))
    for start in range(0, len(whole), rows):
        part = slice(start, start + rows)
        matrix = None if whole.matrix is None else whole.matrix[part]
        yield Table(path, whole.frame.iloc[part], matrix, start)


def _read_numpy(path: str) -> Table:
    import pandas as pd

    try:
        if path.lower().endswith(".npz"):
            with open(path, "rb") as file, np.load(file, allow_pickle=False) as loaded:
                return _from_arrays(path, {name: loaded[name] for name in loaded.files})
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except UNREADABLE as error:
        if "allow_pickle" in str(error):
            raise Problem(
                f"{path} holds Python objects, which are not loaded because loading them can run "
                "code; save labels as text instead: y.astype(str)"
            ) from error
        raise Problem(f"{path} could not be read as NPY or NPZ: {first_line(error)}") from error
    if array.dtype.names:
        return Table(path, pd.DataFrame(np.asarray(array)))
    if array.ndim != 2:
        raise Problem(
            f"{path} has an array of shape {array.shape}; it must have two dimensions, rows and "
            "columns"
        )
    return Table(path, pd.DataFrame(index=range(len(array))), array)


def _from_arrays(path: str, arrays: dict[str, NDArray[Any]]) -> Table:
    """Columns from the one-dimensional arrays of an NPZ file, features from the other one."""
    import pandas as pd

    shapes = ", ".join(f"{name} {array.shape}" for name, array in arrays.items()) or "none"
    matrices = [name for name, array in arrays.items() if array.ndim == 2]
    chosen = "X" if "X" in matrices else matrices[0] if len(matrices) == 1 else None
    if (chosen is None and matrices) or any(array.ndim > 2 for array in arrays.values()):
        raise Problem(
            f"{path} must have one array of two dimensions, or one called X; it has {shapes}"
        )
    kept = {name: array for name, array in arrays.items() if array.ndim == 1 or name == chosen}
    if not kept or len({len(array) for array in kept.values()}) > 1:
        raise Problem(f"{path} must have arrays with as many entries as rows; it has {shapes}")
    matrix = kept.pop(chosen) if chosen else None
    n_rows = len(next(iter(kept.values()))) if matrix is None else len(matrix)
    return Table(path, pd.DataFrame(kept, index=range(n_rows)), matrix)


def _with_rows(table: Table) -> Table:
    if len(table) == 0:
        raise Problem(f"{table.source} has no rows, only columns: {listed(table.names)}")
    return table
