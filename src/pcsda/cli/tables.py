"""Tables: which columns are features, and which of a model's columns they are, by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .problems import Problem, note

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
    start : int
        Number of its first row, where it is a piece of a larger table.
    """

    source: str
    frame: Any
    matrix: NDArray[Any] | None = None
    start: int = 0

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
    _refuse_gaps(table, names, np.asarray(selected))
    return selected


def _example(column: Any) -> str:
    import pandas as pd

    if not isinstance(column, pd.Series):
        return str(column.dtype)
    odd = column[pd.to_numeric(column, errors="coerce").isna() & column.notna()]
    if not len(odd):
        return str(column.dtype)
    return f"{str(odd.iloc[0])[:30]!r} in row {odd.index[0]}"


def _refuse_gaps(table: Table, names: Sequence[str], values: NDArray[Any]) -> None:
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
    first = table.start + int(np.flatnonzero(gaps.any(axis=1))[0])
    raise Problem(
        f"{table.source} has {int(counts.sum())} missing or infinite values, in columns "
        f"{listed(places)}, first in row {first}; fill them in or leave those rows out"
    )


def labels(table: Table, name: str, option: str = "--label") -> NDArray[np.str_]:
    """One column as text: whole numbers without a decimal point, so that 3.0 is 3."""
    import pandas as pd

    codes, values = pd.factorize(table.column(name, option))
    empty = np.flatnonzero(codes < 0)
    if len(empty):
        raise Problem(
            f"{option} {name}: {len(empty)} rows of {table.source} have no value, first row "
            f"{table.start + empty[0]}; fill it in or leave those rows out"
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
