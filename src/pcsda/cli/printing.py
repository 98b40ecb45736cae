"""Output: tables for people, JSON for programs, and files of columns."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..tables.table import harmless, is_number
from ..writing import whole_file
from .problems import Problem, needs, visible

NOTHING = "-"  # a cell without a value
PARQUET = (".parquet", ".pq")


def plain(value: object) -> Any:
    """Convert a value to JSON types; non-finite numbers become null."""
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return str(value)


def show_json(value: Mapping[str, Any]) -> None:
    """Print one JSON object."""
    json.dump(plain(value), sys.stdout, indent=1, allow_nan=False, ensure_ascii=False)
    print()


def show_table(rows: Sequence[Sequence[Any]], header: Sequence[str]) -> None:
    """Print a table, on a terminal with rich if that is installed, otherwise as aligned text."""
    cells = [[shown(value) for value in row] for row in rows]
    header = [visible(name) for name in header]
    right = [all(map(_is_figure, column)) for column in zip(*cells, strict=True)]
    right = right or [False] * len(header)  # a table without rows
    if sys.stdout.isatty():
        try:
            from rich.console import Console
            from rich.table import Table
            from rich.text import Text
        except ImportError:
            pass
        else:
            table = Table(header_style="bold")
            for name, is_right in zip(header, right, strict=True):
                table.add_column(name, justify="right" if is_right else "left")
            for row in cells:
                table.add_row(*map(Text, row))
            Console().print(table)
            return
    widths = [max(map(len, column)) for column in zip(header, *cells, strict=True)]
    for row in (list(header), *cells):
        aligned = (
            cell.rjust(width) if is_right else cell.ljust(width)
            for cell, width, is_right in zip(row, widths, right, strict=True)
        )
        print("  ".join(aligned).rstrip())


def _is_figure(cell: str) -> bool:
    return cell == NOTHING or is_number(cell.removesuffix("%").replace(",", ""))


def shown(value: object) -> str:
    """Format a value for a table."""
    if value is None:
        return NOTHING
    if isinstance(value, float | np.floating):
        return f"{value:.4g}"
    if isinstance(value, list):
        value = ", ".join(map(str, value))
    return visible(str(value).replace("\n", " "))


def check_format(path: str | None) -> None:
    """Reject a results file whose extension is not a known format."""
    if path is None:
        return
    if not path.lower().endswith((".csv", ".tsv", *PARQUET)):
        raise Problem(f"{path}: results are written as .csv, .tsv or .parquet; use one of these")
    if path.lower().endswith(PARQUET):
        needs("pyarrow", "parquet", "to write Parquet files")


@contextmanager
def column_writer(
    path: str | None, formulas: bool
) -> Iterator[Callable[[Mapping[str, NDArray[Any]]], None]]:
    """Yield a function that writes columns piece by piece.

    The function writes CSV or Parquet, depending on the extension of `path`, or CSV to standard
    output if `path` is None. In CSV, a ' is put before text that a spreadsheet would run as a
    formula, unless `formulas` is set.
    """
    import pandas as pd

    name = (path or "").lower()
    with ExitStack() as stack:
        file = sys.stdout if path is None else stack.enter_context(whole_file(path))
        parquet: Any = None
        begun = False

        def write(columns: Mapping[str, NDArray[Any]]) -> None:
            nonlocal begun, parquet
            frame = pd.DataFrame(dict(columns))
            if name.endswith(PARQUET):
                import pyarrow as pa
                from pyarrow.parquet import ParquetWriter

                table = pa.Table.from_pandas(frame, preserve_index=False)
                if not begun:
                    parquet = stack.enter_context(ParquetWriter(file, table.schema))
                parquet.write_table(table)
            else:
                sep = "\t" if name.endswith(".tsv") else ","
                for column in frame.columns[frame.dtypes.map(pd.api.types.is_string_dtype)]:
                    values = frame[column].map(str)
                    values = values if formulas else values.map(harmless)
                    on_screen = path is None and sys.stdout.isatty()
                    frame[column] = values.map(visible) if on_screen else values
                frame.to_csv(file, index=False, sep=sep, header=not begun, lineterminator="\n")
            begun = True

        yield write


def as_records(columns: Mapping[str, NDArray[Any]]) -> list[dict[str, Any]]:
    """Convert columns to a list of rows for JSON."""
    lists = [np.asarray(values).tolist() for values in columns.values()]
    return [dict(zip(columns, row, strict=True)) for row in zip(*lists, strict=True)]
