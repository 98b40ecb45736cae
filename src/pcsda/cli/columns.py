"""Choosing a table's feature columns and matching them to a model's columns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..core.warning import number_of
from ..tables import Table, listed
from ..tables.table import bases, example, is_number, no_column, odd_value
from .problems import Problem, note

# Number of values used to recognise text, and number of rows needed to recognise ids.
LOOKED_AT, ENOUGH_ROWS = 1000, 20
WITH_COMMA = "numbers with a decimal comma"
# 2024-05-31, 31.5.2024 or 5/31/2024, with or without a time.
DATE = re.compile(r"\s*(\d{4}[-/.]\d\d?[-/.]\d\d?|\d\d?[-/.]\d\d?[-/.]\d{4})([T ]\d\d?:.*)?\s*$")

if TYPE_CHECKING:
    import pandas as pd

    # A DataFrame if the columns have names.
    Features: TypeAlias = pd.DataFrame | NDArray[Any]


def chosen(
    table: Table, used: Sequence[str | None], wanted: Sequence[str], ignored: Sequence[str]
) -> list[str]:
    """Choose the feature columns: the wanted ones or, by default, all that have no other use.

    `used` names the columns with another use, such as labels. `wanted` and `ignored` are names or
    shell patterns, each of which must match a column.
    """
    known = table.names
    every = list(dict.fromkeys([*table.columns, *known]))  # beside a matrix, labels have names
    for option, patterns, names in (("--features", wanted, known), ("--ignore", ignored, every)):
        for pattern in patterns:
            if not filter_names(names, [pattern]):
                raise Problem(no_column(table.source, pattern, names, option))
    left_out = {*used, *filter_names(known, ignored)}
    candidates = filter_names(known, wanted) if wanted else known
    names = [name for name in candidates if name not in left_out]
    if not names:
        raise Problem(
            f"no columns of {table.source} are left as features; it has {listed(table.names)}. "
            "Change --features or --ignore"
        )
    return names


def suitable(
    table: Table, names: Sequence[str], wanted: Sequence[str], decimal: str = "."
) -> list[str]:
    """Return `names` without columns of text, dates or ids, and print which were left out.

    If `wanted` is not empty, the user chose the features, and no column is left out. A text column
    is kept if at least half of its values are numbers: the other values are probably typing errors,
    which :func:`numbers` reports. Numbers with a decimal separator other than `decimal` are
    rejected, not left out.
    """
    if wanted or table.matrix is not None:
        return list(names)
    found = {name: table.column(name) for name in names}
    why = {name: kind for name, values in found.items() if (kind := _unsuited(values, decimal))}
    commas = [name for name, kind in why.items() if kind == WITH_COMMA]
    if commas:
        raise Problem(
            f"{table.source} has {WITH_COMMA} in {listed(commas)}; read them with '--decimal ,' "
            "or leave the columns out with --ignore"
        )
    ids = [n for n, values in found.items() if n not in why and _is_like_ids(values)]
    if 2 * len(ids) > len(found) - len(why):  # many such columns are measurements
        ids = []
    why |= dict.fromkeys(ids, "all different whole numbers, like ids")
    if len(why) == len(found):
        raise Problem(
            f"{table.source} has no numeric columns: {_shown(why)}; name features with "
            "--features, or turn text into numbers"
        )
    why = {name: why[name] for name in names if name in why}
    if why:
        how = f"; to use {listed(ids)}, list all features in --features" if ids else ""
        note(f"columns are left out: {_shown(why)}{how}")
    return [name for name in names if name not in why]


def _shown(why: dict[str, str]) -> str:
    return listed([f"{name} ({kind})" for name, kind in why.items()])


def _unsuited(values: NDArray[Any], decimal: str) -> str | None:
    """Return what a column contains instead of numbers, such as "dates", or None for numbers."""
    if values.dtype.kind in "mM":
        return "dates"
    if values.dtype.kind not in "OU":
        return None
    some = [v for v in values[:LOOKED_AT].tolist() if v is not None and v == v]
    texts = [v for v in some if isinstance(v, str)]
    if len(texts) < len(some):
        kinds = {type(v).__name__ for v in some if not isinstance(v, str)}
        return "dates" if kinds <= {"date", "datetime", "Timestamp"} else None
    if _mostly_numbers(texts):
        return None
    if 2 * sum(bool(DATE.match(text)) for text in texts) >= len(texts) > 0:
        return "dates"
    if _mostly_numbers([text.replace(",", ".") for text in texts]):
        return WITH_COMMA if decimal == "." else None
    return "text"


def _mostly_numbers(texts: Sequence[str]) -> bool:
    return 2 * sum(map(is_number, texts)) >= len(texts) > 0


def _is_like_ids(values: NDArray[Any]) -> bool:
    """Return whether a column has at least ENOUGH_ROWS whole numbers, all distinct, like ids."""
    if values.ndim > 1 or len(values) < ENOUGH_ROWS or values.dtype.kind not in "iuf":
        return False
    if values.dtype.kind == "f" and not np.all(values == np.round(values)):
        return False
    return len(np.unique(values)) == len(values)


def filter_names(names: Sequence[str], patterns: Sequence[str]) -> list[str]:
    """Return the names that match any of the shell patterns."""
    plain = set(patterns)
    shapes = [pattern for pattern in patterns if any(mark in pattern for mark in "*?[")]
    return [n for n in names if n in plain or any(fnmatchcase(n, shape) for shape in shapes)]


def matched(
    table: Table,
    names: Sequence[str],
    expected: NDArray[Any] | None,
    count: int,
    gaps: bool,
    decimal: str,
) -> Features:
    """Return a table's features in the order that a model expects.

    Parameters
    ----------
    table : Table
    names : columns of the table that can be features
    expected : names of the model's columns, or None if it was fitted without names
    count : number of columns that the model was fitted on
    gaps : whether the model fills in missing values
    decimal : separator with which the table was read
    """
    if expected is None or table.matrix is not None:
        rows = numbers(table, names, gaps, decimal)
        if rows.shape[1] != count:
            raise Problem(
                f"{table.source} has {rows.shape[1]} feature columns but the model was fitted on "
                f"{count}; leave columns out with --ignore, or choose them with --features"
            )
        if expected is None:
            return rows
        import pandas as pd

        note(f"{table.source} has no column names; columns are assumed to be in the model's order")
        return pd.DataFrame(rows, columns=list(expected))
    wanted = dict.fromkeys(map(str, expected))
    present = {*table.names, *table.feature_names(table.names)}
    missing = [name for name in wanted if name not in present]
    needed = bases(list(wanted), table.names)
    taken = set(needed)
    extra = [name for name in names if name not in taken]
    if missing:
        instead = f"; columns that the model does not know: {listed(extra)}" if extra else ""
        some = f"lacks {len(missing)}" if len(missing) < len(wanted) else "has none"
        raise Problem(
            f"{table.source} {some} of the model's {count} columns: {listed(missing)}{instead}"
        )
    if extra:
        note(f"columns that the model does not know are left out: {listed(extra)}")
    if [name for name in table.names if name in taken] != needed:
        note("columns are in a different order from the training table; they are matched by name")
    return numbers(table, list(wanted), gaps, decimal)


def numbers(table: Table, names: Sequence[str], gaps: bool = False, decimal: str = ".") -> Features:
    """Return features after checking that all values are finite; `gaps` allows missing values."""
    wanted = bases(names, table.names)
    columns = [table.matrix] if table.matrix is not None else map(table.column, wanted)
    found = zip(wanted, columns, strict=False)
    bad = {name: values for name, values in found if values.dtype.kind not in "buif"}
    if bad:
        odd = odd_value(next(iter(bad.values())), decimal)
        instead = odd.decimal if odd and odd.row == 0 else ""
        how = f"read it with '--decimal {instead}', " if instead else ""
        shown = listed([f"{name}{example(values, decimal)}" for name, values in bad.items()])
        raise Problem(
            f"{table.source} has columns that are not numeric: {shown}; {how}leave them out with "
            "--ignore, or turn them into numbers (an empty cell is a missing value)"
        )
    features = table.feature_names(names)
    rows = table.chosen(features)
    rows = _with_gaps(rows) if gaps else rows
    _refuse_gaps(table, features, rows, gaps)
    if table.matrix is not None:
        return rows
    import pandas as pd

    return pd.DataFrame(rows, columns=features)


def _with_gaps(rows: NDArray[Any]) -> NDArray[Any]:
    """Return the rows with infinite values replaced by missing ones."""
    infinite = np.isinf(rows)
    return np.where(infinite, np.nan, rows) if infinite.any() else rows


def _refuse_gaps(table: Table, names: Sequence[str], values: NDArray[Any], allow: bool) -> None:
    """Reject infinite values and, unless `allow` is set, missing values, and say where they are."""
    if values.dtype.kind in "biu":
        return
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(values.sum(dtype=np.float64)):
            return
    gaps = np.isinf(values) if allow else ~np.isfinite(values)
    counts = gaps.sum(axis=0)
    if not counts.any():  # the sum overflowed
        return
    places = [f"{names[j]} ({counts[j]})" for j in np.flatnonzero(counts).tolist()]
    count = number_of(int(counts.sum()), "missing or infinite value")
    first = table.numbers[np.flatnonzero(gaps.any(axis=1))[0]]
    raise Problem(
        f"{table.source} has {count}, in columns {listed(places)}, first in row "
        f"{first}; --missing drop leaves those rows out, and a model fitted with --missing impute "
        "fills the values in"
    )
