"""A table in memory: named columns, some of which may be embeddings, or an unnamed matrix."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from difflib import get_close_matches
from itertools import pairwise
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..core.linalg import Ints, Mask
from ..core.warning import number_of, warn

# Number of names that a message lists.
SHOWN = 20
# Rows copied at a time when there are many columns.
STRIP_ROWS = 1024
# Names of columns in which pandas stores an unnamed index.
INDEX = re.compile(r"__index_level_\d+__")
# Exchanges decimal points and commas.
SWAPPED = str.maketrans(",.", ".,")
# Names of the columns to read; None means all.
Names: TypeAlias = Sequence[str] | None


@dataclass(frozen=True)
class Table:
    """Named columns and, optionally, a matrix whose columns are numbered.

    Attributes
    ----------
    source : str
        Where the table came from, for use in messages.
    columns : mapping of str to array
        One-dimensional arrays, or two-dimensional ones for embeddings (a list of numbers per row).
    n_rows : int
    matrix : array of shape (n_rows, n_columns), optional
        Unnamed columns, from a plain NPY file or the two-dimensional array in an NPZ file.
    start : int
        Number of the first row if this is part of a larger table.
    kept : array of shape (n_rows,), optional
        Positions of the remaining rows, counted from `start`, if other rows were dropped.
    """

    source: str
    columns: Mapping[str, NDArray[Any]]
    n_rows: int
    matrix: NDArray[Any] | None = None
    start: int = 0
    kept: Ints | None = None

    @property
    def numbers(self) -> Ints:
        """The row numbers within the whole table."""
        return self.start + (np.arange(self.n_rows) if self.kept is None else self.kept)

    def __len__(self) -> int:
        return self.n_rows

    @property
    def names(self) -> list[str]:
        """Names of the columns that can be features: the matrix columns, or all named columns."""
        if self.matrix is None:
            return list(self.columns)
        return [str(number) for number in range(self.matrix.shape[1])]

    def column(self, name: str, option: str = "") -> NDArray[Any]:
        """Return the column called `name`; errors mention the command `option` that named it."""
        if name in self.columns:
            return self.columns[name]
        if self.matrix is not None and name in self.names:
            return self.matrix[:, int(name)]
        known = list(dict.fromkeys([*self.columns, *self.names]))
        raise ValueError(no_column(self.source, name, known, option))

    def part(self, rows: slice | Ints) -> Table:
        """Return a subset of the rows; they keep their row numbers."""
        columns = {name: values[rows] for name, values in self.columns.items()}
        matrix = None if self.matrix is None else self.matrix[rows]
        if isinstance(rows, slice):
            n_rows = len(range(self.n_rows)[rows])
            return Table(self.source, columns, n_rows, matrix, self.start + (rows.start or 0))
        return Table(self.source, columns, len(rows), matrix, self.start, rows)

    def feature_names(self, names: Sequence[str]) -> list[str]:
        """Return one name per feature; those of an embedding are "name[0]", "name[1]" and so on."""
        found: list[str] = []
        for name in names:
            width = self.columns[name].shape[1:] if name in self.columns else ()
            found += [f"{name}[{place}]" for place in range(*width)] if width else [name]
        return found

    def chosen(self, features: Sequence[str]) -> NDArray[Any]:
        """Return features as a matrix, in the given order.

        Each feature is a column or one entry of an embedding.
        """
        names = bases(features, self.names)
        for name in names:
            self.column(name)
        rows, found = self.features(names), self.feature_names(names)
        if found == list(features):
            return rows
        place = {name: number for number, name in enumerate(found)}
        if lost := [name for name in features if name not in place]:
            raise ValueError(no_column(self.source, lost[0], found))
        return rows[:, [place[name] for name in features]]

    def features(self, names: Sequence[str]) -> NDArray[Any]:
        """Return numeric columns and embeddings as a matrix, in the order of `names`."""
        if self.matrix is not None:
            whole = list(names) == self.names  # not copied
            return self.matrix if whole else self.matrix[:, [int(name) for name in names]]
        found = [np.atleast_2d(self.columns[name].T).T for name in names]
        if len(found) == 1:
            return found[0]
        edges = np.cumsum([0, *(values.shape[1] for values in found)]).tolist()
        rows = np.empty((self.n_rows, edges[-1]), np.result_type(*found) if found else np.float64)
        for begin in range(0, self.n_rows, STRIP_ROWS):  # columns of a strip stay in the cache
            strip = slice(begin, begin + STRIP_ROWS)
            for values, (edge, end) in zip(found, pairwise(edges), strict=True):
                rows[strip, edge:end] = values[strip]
        return rows


def bases(features: Sequence[str], known: Sequence[str]) -> list[str]:
    """Return the columns that contain the features: "face" for "face[0]" and "face[1]"."""
    names = set(known)
    return list(dict.fromkeys(f if f in names else f.rpartition("[")[0] or f for f in features))


@dataclass(frozen=True)
class Chunk:
    """A part of a file that is read on demand.

    A chunk holds no rows, so it is small enough to send to another process.

    Attributes
    ----------
    file, part : str
        Name of the file, and which part of it the chunk is, such as "rows 0 to 9"; empty if all.
    columns : tuple of str
        Names of all columns in the chunk.
    stamp : list
        Values that identify the content, found without reading it.
    read : callable
        Takes column names, or None for all columns, and returns a Table.
    """

    file: str
    part: str
    columns: tuple[str, ...]
    stamp: list[Any]
    read: Callable[[Names], Table]

    @property
    def name(self) -> str:
        """Name of the chunk in messages."""
        return f"{self.file}, {self.part}" if self.part else self.file


def file_stamp(path: Path) -> list[Any]:
    """Return the name, size and modification time of a file."""
    state = path.stat()
    return [path.name, state.st_size, state.st_mtime_ns]


def joined(parts: Sequence[Table]) -> Table:
    """Join the parts of a table into one table."""
    first = parts[0]
    if len(parts) == 1:
        return first
    for part in parts[1:]:
        if list(part.columns) != list(first.columns) or part.names != first.names:
            raise ValueError(
                f"the columns of {part.source} are {listed(part.names)} but those of "
                f"{first.source} are {listed(first.names)}; all files need the same columns in the "
                "same order"
            )
    columns = {n: np.concatenate([part.columns[n] for part in parts]) for n in first.columns}
    matrix = None
    if first.matrix is not None:
        matrix = np.concatenate([np.asarray(part.matrix) for part in parts])
    return replace(first, columns=columns, n_rows=sum(map(len, parts)), matrix=matrix)


def check_names(source: str, names: Sequence[str]) -> None:
    """Reject columns without a name and duplicate names."""
    twice = sorted(name for name, count in Counter(names).items() if count > 1 and name)
    if twice:
        raise ValueError(f"{source} has several columns named {listed(twice)}; rename them")
    unnamed = [str(place) for place, name in enumerate(names, start=1) if not name]
    if unnamed:
        raise ValueError(
            f"{source} has columns without a name, at position {listed(unnamed)}; the first "
            "line must name every column"
        )


def stacked(name: str, values: NDArray[Any]) -> NDArray[Any]:
    """Stack a column of lists or arrays into an embedding; return other columns unchanged.

    A missing list becomes a row of NaN.
    """
    first: Any = next((value for value in values if value is not None), None)
    if not isinstance(first, (list, tuple, np.ndarray)):
        return values
    width, dtype = len(first), np.asarray(first).dtype
    if dtype.kind not in "buif" or np.ndim(first) != 1:
        raise ValueError(no_numbers(name, f"lists of {dtype}"))
    if width == 0 and not any(np.size(value) for value in values if value is not None):
        raise ValueError(no_numbers(name, "empty lists"))
    rows = np.full((len(values), width), np.nan, np.result_type(dtype, np.float32))
    for number, value in enumerate(values):
        if value is not None:
            if np.shape(value) != (width,):
                raise ValueError(uneven(name, number, np.size(value), width))
            rows[number] = value
    return rows


def no_numbers(name: str, what: str) -> str:
    """Make the error message for a column of lists that are no embedding."""
    return f"column {name!r} holds {what}; an embedding is a list of numbers in each row"


def uneven(name: str, row: int, found: int, width: int) -> str:
    """Make the error message for lists of different lengths."""
    return (
        f"column {name!r} has a list of {found} numbers in row {row}, but lists of {width} "
        "before it; all lists in an embedding must have the same length"
    )


def labels(table: Table, name: str, option: str = "--label") -> NDArray[np.str_]:
    """Return a column as text, writing whole numbers without a decimal point (3.0 becomes 3)."""
    values = table.column(name, option)
    if values.ndim > 1:
        raise ValueError(f"{option} {name}: this column of {table.source} holds lists, not labels")
    empty = np.flatnonzero(missing(values))
    if len(empty):
        raise ValueError(
            f"{option} {name}: {number_of(len(empty), 'row')} of {table.source} "
            f"{'has' if len(empty) == 1 else 'have'} no value, first row "
            f"{table.numbers[empty[0]]}; fill it in or leave those rows out"
        )
    if values.dtype.kind == "O":
        seen: dict[Any, int] = {}
        try:
            codes = [seen.setdefault(value, len(seen)) for value in values.tolist()]
        except TypeError:
            raise ValueError(
                f"{option} {name}: this column of {table.source} holds records, not labels"
            ) from None
        where = f"{option} {name}: {table.source}"
        texts = [value for value in seen if isinstance(value, str)]
        numbers = [text for text in texts if is_number(text)]
        _warn_of_alike(numbers, _exactly, where, "the same number written in two ways", "values")
        if option == "--label":
            how = "which differ only in case or in spaces"
            _warn_of_alike(texts, lambda text: text.strip().casefold(), where, how, "labels")
        return np.array([as_text(value) for value in seen], dtype=str)[codes]
    found, places = np.unique(values, return_inverse=True)
    return np.asarray(np.array([as_text(value) for value in found], dtype=str)[places])


def _warn_of_alike(
    texts: Sequence[str], meaning: Callable[[str], Any], where: str, how: str, what: str
) -> None:
    """Warn if two texts have the same meaning; `how` says in what way, and `what` names them."""
    seen: dict[Any, str] = {}
    for text in texts:
        other = seen.setdefault(meaning(text), text)
        if other != text:
            warn(
                f"{where} has {other!r} and {text!r}, {how}; they count as different {what}, so "
                "write them alike if they are not"
            )
            return


def missing(values: NDArray[Any]) -> Mask:
    """Return a mask of the rows with a missing value: None, NaN or NaT.

    A row of an embedding is marked if any entry is missing.
    """
    if values.dtype.kind == "O":
        # Apart from None, only missing values differ from themselves.
        with np.errstate(invalid="ignore"):
            found = np.array([v is None or bool(v != v) for v in values.tolist()], dtype=bool)
        return found
    gaps = np.isnan(values) if values.dtype.kind in "fcmM" else np.zeros(values.shape, dtype=bool)
    return np.asarray(gaps.reshape(len(gaps), -1).any(axis=1))


class Odd(NamedTuple):
    """A text in a column of numbers, its row, and its decimal separator if that is at fault."""

    text: str
    row: int
    decimal: str = ""


def odd_value(values: NDArray[Any], decimal: str = ".") -> Odd | None:
    """Return the first value of a column that is text but not a number; None if there is none."""
    if values.dtype.kind not in "OU" or values.ndim > 1:
        return None
    other = "," if decimal == "." else "."
    for row, value in enumerate(values.tolist()):
        if isinstance(value, str) and not _is_plain(value, decimal):
            swapped = other in value and _is_plain(value.translate(SWAPPED), decimal)
            return Odd(value, row, other if swapped else "")
    return None


def example(values: NDArray[Any], decimal: str = ".") -> str:
    """Return text for a message: the first value that is not a number, and its row."""
    odd = odd_value(values, decimal)
    if odd is None:
        return f" ({values.dtype})"
    mark = {",": " with a decimal comma", ".": " with a decimal point"}.get(odd.decimal, "")
    return f" ({odd.text[:30]!r} in row {odd.row}{mark})"


def is_number(text: str) -> bool:
    """Return whether a text is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def _is_plain(text: str, decimal: str = ".") -> bool:
    """Return whether pandas reads a text as a number; it does not read 1_000, 1e400 or ١٢."""
    if decimal != ".":
        text = text.translate(SWAPPED)
    if not is_number(text) or not text.isascii() or "_" in text:
        return False
    return isfinite(float(text)) or text.strip(" +-").isalpha()


def harmless(text: str) -> str:
    """Return the text, with a ' before it if a spreadsheet would run it as a formula."""
    if not text.lstrip().startswith(("=", "+", "-", "@", "\t", "\r")) or is_number(text):
        return text
    return f"'{text}"


def as_text(label: object) -> str:
    """Write a label as one would type it on the command line."""
    if isinstance(label, bytes):
        return label.decode("utf-8", "replace")
    if isinstance(label, (float, np.floating)) and float(label).is_integer():
        return str(int(label))
    return str(label)


def no_column(source: str, name: str, known: Sequence[str], option: str = "") -> str:
    """Make the error message for an unknown column, with the closest match and known columns."""
    before = f"{option} {name}: " if option else ""
    return f"{before}{source} has no column {name!r}{did_you_mean(name, known, 'it has')}"


def _is_same_number(one: str, other: str) -> bool:
    return is_number(one) and is_number(other) and _exactly(one) == _exactly(other)


def _exactly(number: str) -> Decimal | float:
    """Return the value of a number, of which a float keeps only 16 digits."""
    try:
        return Decimal(number)
    except InvalidOperation:
        return float(number)


def did_you_mean(name: str, known: Sequence[str], they: str) -> str:
    """Make the ending of a message about an unknown name: the closest match and the known names."""
    lower = {one.lower(): one for one in known}
    equal = [one for one in known if _is_same_number(name, one)]
    near = equal or [lower[one] for one in get_close_matches(name.lower(), lower, n=1, cutoff=0.7)]
    guess = f", did you mean {near[0]!r}? {they[:1].upper()}{they[1:]}" if near else f"; {they}"
    return f"{guess} {listed(known)}"


def listed(names: Sequence[Any], limit: int = SHOWN) -> str:
    """Join names with commas, showing only the first `limit`."""
    shown = ", ".join(str(name) for name in names[:limit])
    return shown if len(names) <= limit else f"{shown}, ... ({len(names)} in all)"


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
