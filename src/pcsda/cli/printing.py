"""Results on paper: tables for people, JSON for programs, files that are whole or not there."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from ..writing import whole_file
from .problems import Problem, needs


def plain(value: Any) -> Any:
    """A value as JSON has it; what is not finite becomes null."""
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


def show_json(value: Any) -> None:
    """Print one JSON object."""
    json.dump(plain(value), sys.stdout, indent=1, allow_nan=False, ensure_ascii=False)
    print()


def show_table(rows: Sequence[Sequence[Any]], header: Sequence[str]) -> None:
    """Print a table: with lines on a terminal where rich is installed, aligned text elsewhere."""
    cells = [[shown(value) for value in row] for row in rows]
    right = [all(not isinstance(row[place], str) for row in rows) for place in range(len(header))]
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


def shown(value: Any) -> str:
    """A value in a table for people."""
    if value is None:
        return "-"
    if isinstance(value, float | np.floating):
        return f"{value:.4g}"
    return str(value)


def check_format(path: str | None) -> None:
    """Refuse a file of results whose extension names no format."""
    if path is not None and not path.lower().endswith((".csv", ".tsv", ".parquet", ".pq")):
        raise Problem(f"{path}: results are written as .csv, .tsv or .parquet; use one of these")
    if path is not None and path.lower().endswith((".parquet", ".pq")):
        needs("pyarrow", "parquet", "to write Parquet files")


@contextmanager
def column_writer(path: str | None) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """Yield a function that writes columns, piece after piece.

    They go to a CSV or Parquet file by its extension, or as CSV to standard output.
    """
    import pandas as pd

    if path is None:
        yield _csv_writer(sys.stdout, ",")
    elif path.lower().endswith((".csv", ".tsv")):
        with whole_file(path) as file:
            yield _csv_writer(file, "\t" if path.lower().endswith(".tsv") else ",")
    else:
        import pyarrow as pa
        from pyarrow.parquet import ParquetWriter

        with whole_file(path) as file, ExitStack() as stack:
            opened: list[Any] = []

            def write(columns: Mapping[str, Any]) -> None:
                table = pa.Table.from_pandas(pd.DataFrame(dict(columns)), preserve_index=False)
                if not opened:
                    opened.append(stack.enter_context(ParquetWriter(file, table.schema)))
                opened[0].write_table(table)

            yield write


def _csv_writer(file: Any, separator: str) -> Callable[[Mapping[str, Any]], None]:
    import pandas as pd

    headed = False

    def write(columns: Mapping[str, Any]) -> None:
        nonlocal headed
        frame = pd.DataFrame(dict(columns))
        frame.to_csv(file, index=False, sep=separator, header=not headed, lineterminator="\n")
        headed = True

    return write


def as_records(columns: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Columns as a list of rows, for JSON."""
    lists = [np.asarray(values).tolist() for values in columns.values()]
    return [dict(zip(columns, row, strict=True)) for row in zip(*lists, strict=True)]
