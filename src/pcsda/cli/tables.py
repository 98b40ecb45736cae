"""Tables from files: read by extension, matched to a model's columns by name."""

from __future__ import annotations

import io
import sys
import warnings
import zipfile
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .problems import Problem, needs, note

CSV_ENDINGS = (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".csv.xz", ".csv.bz2", ".csv.zst")
PARQUET_ENDINGS = (".parquet", ".pq")
# What stands for a missing number; in a column of labels only an empty cell is missing.
MISSING = ("", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "-nan", "NULL", "null", "None", "<NA>")
SHOWN = 10


@dataclass(frozen=True)
class Table:
    """Columns with names, and perhaps a matrix whose columns have numbers instead.

    Attributes
    ----------
    source : str
        Where it came from, for messages.
    frame : pandas DataFrame
        Named columns.
    matrix : array of shape (n_rows, n_columns), optional
        Columns without names: those of a plain NPY file, or the two-dimensional array of an NPZ.
    """

    source: str
    frame: Any
    matrix: NDArray[Any] | None = None

    def __len__(self) -> int:
        return len(self.frame) if self.matrix is None else len(self.matrix)

    @property
    def names(self) -> list[str]:
        """Columns that can be features: the numbers of the matrix, or the names of the frame."""
        if self.matrix is None:
            return [str(name) for name in self.frame.columns]
        return [str(number) for number in range(self.matrix.shape[1])]

    def column(self, name: str, option: str) -> Any:
        """One column by name, as the option that asked for it."""
        import pandas as pd

        if name in self.frame.columns:
            return self.frame[name]
        if self.matrix is not None and name in self.names:
            return pd.Series(self.matrix[:, int(name)])
        known = [*map(str, self.frame.columns), *(self.names if self.matrix is not None else ())]
        raise Problem(f"{option} {name}: {self.source} has no such column; it has {listed(known)}")

    def select(self, names: Sequence[str]) -> Any:
        """Columns in the order of the names: a DataFrame, or an array where they have none."""
        if self.matrix is None:
            return self.frame[list(names)]
        if list(names) == self.names:
            return self.matrix
        return self.matrix[:, [int(name) for name in names]]


def read(path: str, text: Iterable[str] = ()) -> Table:
    """Read a table; the format follows from the extension, ``-`` is CSV on standard input.

    Parameters
    ----------
    path : str
    text : names of columns
        Columns of a CSV file that stay text as it is written there, such as labels.
    """
    needs("pandas", "cli", "to read tables")
    if path == "-":
        return _read_csv("standard input", sys.stdin.buffer.read(), set(text))
    file = Path(path)
    if file.is_dir():
        raise Problem(f"{path} is a folder; name a CSV, Parquet, NPY or NPZ file")
    if not file.exists():
        raise Problem(f"{path} does not exist")
    name = file.name.lower()
    if name.endswith(CSV_ENDINGS):
        return _read_csv(path, file, set(text))
    if name.endswith(PARQUET_ENDINGS):
        return _read_parquet(path)
    if name.endswith((".npy", ".npz")):
        return _read_numpy(path)
    raise Problem(
        f"{path}: the format is not known by this extension; use .csv, .tsv, .parquet, .npy or "
        ".npz, or - for CSV on standard input"
    )


def _read_csv(source: str, content: Path | bytes, text: set[str]) -> Table:
    import pandas as pd

    def lines() -> Any:
        return io.BytesIO(content) if isinstance(content, bytes) else content

    def header(separator: str) -> list[str]:
        first = pd.read_csv(
            lines(),
            sep=separator,
            header=None,
            nrows=1,
            dtype=str,
            keep_default_na=False,
            encoding="utf-8-sig",
        )
        return [name.strip() for name in first.iloc[0]]

    try:
        separator, names = max(((s, header(s)) for s in ",;\t"), key=lambda found: len(found[1]))
        _refuse_names(source, names)
        numeric = [name for name in names if name not in text]
        with warnings.catch_warnings():
            # Rows longer than the header would be cut with a warning.
            warnings.simplefilter("error", pd.errors.ParserWarning)
            frame = pd.read_csv(
                lines(),
                sep=separator,
                header=0,
                names=names,
                index_col=False,
                dtype=dict.fromkeys(text & set(names), str),
                keep_default_na=False,
                na_values={**dict.fromkeys(numeric, MISSING), **dict.fromkeys(text, ("",))},
                encoding="utf-8-sig",
                low_memory=False,
                skipinitialspace=True,
            )
    except pd.errors.EmptyDataError:
        raise Problem(f"{source} is empty; the first line must name the columns") from None
    except UnicodeDecodeError as error:
        raise Problem(f"{source} is not text in UTF-8 ({error.reason}); save it as UTF-8") from None
    except (ValueError, EOFError, OSError, zlib.error, pd.errors.ParserWarning) as error:
        raise Problem(f"{source} could not be read as CSV: {first_line(error)}") from error
    return _with_rows(Table(source, frame))


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
    if all(_is_number(name) for name in names):
        raise Problem(
            f"{source} starts with a line of numbers, {listed(names[:3])}; the first line must "
            "name the columns"
        )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    # Columns named 0, 1, 2 are names; measured values have a decimal point or an exponent.
    return not text.isdigit()


def _read_parquet(path: str) -> Table:
    import pandas as pd

    needs("pyarrow", "parquet", "to read Parquet files")
    try:
        frame = pd.read_parquet(path, engine="pyarrow")
    except (ValueError, OSError) as error:
        raise Problem(f"{path} could not be read as Parquet: {first_line(error)}") from error
    frame.columns = [str(name) for name in frame.columns]
    _refuse_names(path, list(frame.columns))
    return _with_rows(Table(path, frame))


def _read_numpy(path: str) -> Table:
    import pandas as pd

    try:
        loaded = np.load(path, mmap_mode="r", allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            arrays = {"": loaded}
        else:
            with loaded:
                arrays = {name: loaded[name] for name in loaded.files}
    except (ValueError, EOFError, OSError, zipfile.BadZipFile) as error:
        if "allow_pickle" in str(error) or "Object arrays" in str(error):
            raise Problem(
                f"{path} holds Python objects, which are not loaded because loading them can run "
                "code; save labels as text instead: y.astype(str)"
            ) from error
        raise Problem(f"{path} could not be read: {first_line(error)}") from error
    if list(arrays) == [""]:
        array = arrays[""]
        if array.dtype.names:
            return _with_rows(Table(path, pd.DataFrame(np.asarray(array))))
        if array.ndim != 2:
            raise Problem(
                f"{path} has an array of shape {array.shape}; it must have two dimensions, rows "
                "and columns"
            )
        return _with_rows(Table(path, pd.DataFrame(index=range(len(array))), array))
    return _with_rows(_from_arrays(path, arrays))


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


def chosen(
    table: Table, used: Sequence[str | None], wanted: Sequence[str], ignored: Sequence[str]
) -> list[str]:
    """Columns to take as features: all that serve no other purpose, or those that are wanted.

    `wanted` and `ignored` are names or shell patterns, each of which must match a column.
    """
    taken = {name for name in used if name is not None}
    names = [name for name in table.names if name not in taken]
    for option, patterns in (("--features", wanted), ("--ignore", ignored)):
        lost = [p for p in patterns if not any(fnmatchcase(name, p) for name in table.names)]
        if lost:
            raise Problem(
                f"{option} {listed(lost)}: {table.source} has no such column; it has "
                f"{listed(table.names)}"
            )
    if wanted:
        names = [name for name in names if any(fnmatchcase(name, p) for p in wanted)]
    names = [name for name in names if not any(fnmatchcase(name, p) for p in ignored)]
    if not names:
        raise Problem(f"{table.source} has no feature columns left of {listed(table.names)}")
    return names


def matched(table: Table, names: Sequence[str], expected: Any, count: int) -> Any:
    """Feature columns as the model knows them.

    Parameters
    ----------
    table : Table
    names : columns of the table that can be features
    expected : names of the model's columns, or None if it was fitted without names
    count : their number
    """
    if expected is None or table.matrix is not None:
        if len(names) != count:
            raise Problem(
                f"{table.source} has {len(names)} feature columns but the model was fitted on "
                f"{count}; leave columns out with --ignore, or choose them with --features"
            )
        if expected is None:
            return numbers(table, names)
        import pandas as pd

        note(f"{table.source} has no column names; its columns are taken in the model's order")
        return pd.DataFrame(numbers(table, names), columns=list(expected))
    expected = [str(name) for name in expected]
    present = set(table.names)
    missing = [name for name in expected if name not in present]
    known = set(expected)
    extra = [name for name in names if name not in known]
    if missing:
        instead = f"; columns that the model does not know: {listed(extra)}" if extra else ""
        raise Problem(
            f"{table.source} lacks {len(missing)} of the model's {count} columns: "
            f"{listed(missing)}{instead}"
        )
    if extra:
        note(f"columns that the model does not know are left out: {listed(extra)}")
    if [name for name in table.names if name in known] != expected:
        note("columns are in another order than at the fit; they are matched by name")
    return numbers(table, expected)


def numbers(table: Table, names: Sequence[str]) -> Any:
    """Feature columns, all numbers and all finite; a DataFrame where they have names."""
    import pandas as pd

    selected = table.select(names)
    columns = dict(selected.items()) if table.matrix is None else {names[0]: selected}
    bad = {
        name: column
        for name, column in columns.items()
        if not pd.api.types.is_numeric_dtype(column.dtype) or column.dtype.kind == "c"
    }
    if bad:
        raise Problem(
            f"{table.source} has columns that are not numeric: "
            f"{listed([f'{name} ({_example(column)})' for name, column in bad.items()])}; leave "
            f"them out with --ignore, or turn them into numbers"
        )
    if table.matrix is None and any(column.hasnans for column in columns.values()):
        selected = selected.astype(np.float64)  # nullable columns have no NaN of their own
    _refuse_gaps(table.source, names, np.asarray(selected))
    return selected


def _example(column: Any) -> str:
    import pandas as pd

    if not isinstance(column, pd.Series):
        return str(column.dtype)
    odd = column[pd.to_numeric(column, errors="coerce").isna() & column.notna()]
    if not len(odd):
        return str(column.dtype)
    return f"{str(odd.iloc[0])[:30]!r} in row {odd.index[0]}"


def _refuse_gaps(source: str, names: Sequence[str], values: NDArray[Any]) -> None:
    """Refuse missing and infinite values; says where they are."""
    if values.dtype.kind in "biu":
        return
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(values.sum(dtype=np.float64)):
            return
    gaps = ~np.isfinite(values)
    counts = gaps.sum(axis=0)
    if not counts.any():  # a sum that overflowed
        return
    places = [f"{names[j]} ({counts[j]})" for j in np.flatnonzero(counts).tolist()]
    first = int(np.flatnonzero(gaps.any(axis=1))[0])
    raise Problem(
        f"{source} has {int(counts.sum())} missing or infinite values, in columns "
        f"{listed(places)}, first in row {first}; fill them in or leave those rows out"
    )


def labels(table: Table, name: str, option: str = "--label") -> NDArray[np.str_]:
    """One column as text: whole numbers without a decimal point, so that 3.0 is 3."""
    import pandas as pd

    codes, values = pd.factorize(table.column(name, option))
    if (codes < 0).any():
        raise Problem(
            f"{option} {name}: {int((codes < 0).sum())} rows of {table.source} have no value, "
            f"first row {int(np.flatnonzero(codes < 0)[0])}; fill it in or leave those rows out"
        )
    return np.array([as_text(value) for value in values], dtype=str)[codes]


def as_text(label: Any) -> str:
    """A label as it is written on a command line."""
    if isinstance(label, bytes):
        return label.decode("utf-8", "replace")
    if isinstance(label, (float, np.floating)) and float(label).is_integer():
        return str(int(label))
    return str(label)


def listed(names: Sequence[Any], limit: int = SHOWN) -> str:
    """Names in a row, the first of them where they are many."""
    shown = ", ".join(str(name) for name in names[:limit])
    return shown if len(names) <= limit else f"{shown}, ... ({len(names)} in all)"


def first_line(error: BaseException) -> str:
    """What an error says, in one line."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
