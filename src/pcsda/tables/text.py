"""Readers for CSV files and streams: read the header, split between rows, and parse."""

from __future__ import annotations

import bz2
import codecs
import csv
import gzip
import lzma
import os
import re
import sys
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from io import BytesIO, StringIO
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ..core.warning import number_of, warn
from ..validation import import_extra
from .arrays import faults
from .table import Chunk, Names, Table, check_names, file_stamp, first_line, is_number, listed

STDIN = "-"
PACKED: dict[str, Callable[..., Any]]
PACKED = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
# Size of one piece of text in bytes.
TEXT_BYTES = 16 << 20
# Longest quoted field. Without a bound, one stray quote would swallow the rest of the file.
QUOTED_BYTES = 1 << 20
# Cells that mean a missing number. In a label column, only an empty cell is a missing value.
MISSING = ("", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "-nan", "NULL", "null", "None", "<NA>")
# Name for an unnamed first column, in which many programs write row numbers.
ROW_NUMBER = "(row number)"
QUOTED = re.compile(rb'"[^"]*"')
WIDE = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


@dataclass(frozen=True)
class Wording:
    """How text is encoded, and which columns stay text.

    Attributes
    ----------
    encoding : str
    decimal : str
        The decimal separator.
    labels : tuple of str
        Columns in which only empty cells are missing values, so that "NA" is a label.
    text : tuple of str
        Columns kept as text exactly as written, even if all values are numbers.
    """

    encoding: str = "utf-8"
    decimal: str = "."
    labels: tuple[str, ...] = ()
    text: tuple[str, ...] = ()


@dataclass(frozen=True)
class Header:
    """The column names and separator from the first line of a CSV file."""

    names: tuple[str, ...]
    separator: str

    @property
    def known(self) -> tuple[str, ...]:
        """The column names, except for a column of row numbers."""
        return tuple(name for name in self.names if name != ROW_NUMBER)


def read_header(source: str, line: bytes, wording: Wording) -> Header:
    """Find the separator and the column names in the first line, and check the names."""
    known = line.removeprefix(codecs.BOM_UTF8)
    if not known.strip():
        what = "begins with an empty line" if known else "is empty"
        raise ValueError(f"{source} {what}; the first line must name the columns")
    _refuse_nul(source, line)
    if b"\r" in QUOTED.sub(b"", line).rstrip(b"\r\n"):
        raise ValueError(
            f"{source} ends its lines with carriage returns alone; save it with line feeds"
        )
    try:
        text = known.decode(wording.encoding)
    except UnicodeDecodeError as error:
        raise ValueError(f"{source}{not_decoded(wording.encoding, error)}") from error
    found = [(s, _fields(source, text, s)) for s in ",;\t"]
    separator, names = max(found, key=lambda one: len(one[1]))
    unnamed = not names[0] and len(names) > 1
    check_names(source, names[unnamed:])
    # Whole numbers may be names; other numbers are measured values.
    if all(is_number(name) and not name.isdigit() for name in names[unnamed:]):
        raise ValueError(
            f"{source} starts with a line of numbers, {listed(names[unnamed:], 3)}; the first line "
            "must name the columns"
        )
    if unnamed:
        warn(f"the first column of {source} has no name and is left out; it looks like row numbers")
        names[0] = ROW_NUMBER
    return Header(tuple(names), separator)


def _refuse_nul(source: str, lines: bytes) -> None:
    if b"\0" in lines:
        raise ValueError(
            f"{source} has NUL bytes, so it is damaged, or not text in the expected encoding; name "
            "its encoding if you know it (for commands: --encoding utf-16-le)"
        )


def _fields(source: str, line: str, separator: str) -> list[str]:
    with faults(source, "CSV", (csv.Error,)):
        fields = next(csv.reader(StringIO(line, newline=""), delimiter=separator))
    return [field.strip() for field in fields]


def not_decoded(encoding: str, error: UnicodeError) -> str:
    """Make the error message for text in another encoding, without the file name."""
    reason = getattr(error, "reason", str(error))
    return (
        f" is not text in {encoding.upper()} ({reason}); save it as UTF-8, or name its encoding "
        "(for commands: --encoding cp1252)"
    )


def parse(
    source: str, lines: bytes, header: Header, wording: Wording, names: Names = None
) -> Table:
    """Parse whole rows of a CSV file; `names` selects columns."""
    pandas = import_extra("pandas", "CSV files need", "cli")
    _refuse_nul(source, lines)
    wanted = [name for name in header.known if names is None or name in set(names)]
    labels = {*wording.labels, *wording.text}
    missing = {name: ("",) if name in labels else MISSING for name in header.names}
    try:
        # pandas would cut rows longer than the header, with a warning.
        with warnings.catch_warnings(action="error", category=pandas.errors.ParserWarning):
            frame = pandas.read_csv(
                BytesIO(lines),
                sep=header.separator,
                header=None,
                names=header.names,
                # If columns are selected, pandas accepts rows that are too long.
                usecols=None if len(wanted) == len(header.names) else wanted,
                index_col=False,
                dtype=dict.fromkeys(set(wording.text) & set(wanted), str),
                na_values=missing,
                keep_default_na=False,
                decimal=wording.decimal,
                encoding=wording.encoding,
                low_memory=False,
                skipinitialspace=True,
            )
    except UnicodeDecodeError as error:
        raise ValueError(f"{source}{not_decoded(wording.encoding, error)}") from error
    except pandas.errors.EmptyDataError:
        frame = pandas.DataFrame({name: np.empty(0) for name in wanted})
    except (ValueError, pandas.errors.ParserWarning) as error:
        fault = _uneven_row(lines, header, wording) or first_line(error)
        raise ValueError(f"{source} could not be read as CSV: {fault}") from error
    columns = {name: frame[name].to_numpy() for name in wanted}
    # A truncated row looks as if its last value were missing.
    last = header.names[-1]
    cut = last in columns and frame[last].hasnans
    if cut and (found := _uneven_row(lines, header, wording)):
        raise ValueError(f"{source} could not be read as CSV: {found}")
    return Table(source, columns, len(frame))


def _uneven_row(lines: bytes, header: Header, wording: Wording) -> str | None:
    """Describe the first row with more or fewer fields than the header; None if there is none."""
    text = StringIO(lines.decode(wording.encoding, "replace"), newline="")
    width = len(header.names)
    try:
        rows = csv.reader(text, delimiter=header.separator, skipinitialspace=True)
        for number, row in enumerate(row for row in rows if row):
            if len(row) != width and not (len(row) == 1 and not row[0].strip()):
                return (
                    f"row {number} has {number_of(len(row), 'field')} but the header names "
                    f"{number_of(width, 'column')}; was the file cut off, or is a separator "
                    "missing?"
                )
    except csv.Error:
        pass
    return None


def of_csv(path: Path, labels: Sequence[str], block_rows: int | None) -> list[Chunk]:
    """Split a CSV file into chunks; the first chunk decides whether label columns are text.

    Otherwise the label 1 could be a number in some chunks and the text "1" in others. A compressed
    file is a single chunk.
    """
    wording, stamp = Wording(labels=tuple(labels)), file_stamp(path)
    if path.suffix.lower() in PACKED:
        return [
            Chunk(path.name, "", _packed_names(path), stamp, partial(_read_packed, path, wording))
        ]
    header, edges = _cut(path, wording, block_rows)
    cuts = list(pairwise(edges))
    if labels and cuts:
        seen = _read_range(path, header, wording, *cuts[0], labels)
        text = [name for name in labels if seen.column(name).dtype.kind not in "buif"]
        wording = replace(wording, text=tuple(text))
    read, known = partial(_read_range, path, header, wording), header.known
    return [
        Chunk(path.name, f"bytes {a} to {b - 1}", known, [a, b, *stamp], partial(read, a, b))
        for a, b in cuts
    ]


def _cut(path: Path, wording: Wording, block_rows: int | None) -> tuple[Header, list[int]]:
    """Return the header of a CSV file, and the byte positions, between rows, at which to split it.

    The parts have about `block_rows` rows.
    """
    with open(path, "rb") as file:
        line, _ = _whole_row(file, 0)
        step = TEXT_BYTES
        if block_rows:
            file.seek(len(line))
            sizes = [len(file.readline()) for _ in range(100)]
            step = max(1, int(block_rows * np.mean([n for n in sizes if n] or [1])))
        return read_header(path.name, line, wording), _row_edges(file, len(line), step)


def _read_range(
    path: Path, header: Header, wording: Wording, start: int, stop: int, names: Names = None
) -> Table:
    """Parse a byte range that contains only whole rows."""
    with open(path, "rb") as file:
        file.seek(start)
        return parse(path.name, file.read(stop - start), header, wording, names)


def _packed_names(path: Path) -> tuple[str, ...]:
    with _opened(str(path), Wording()) as (file, wording):
        return read_header(path.name, _whole_row(file, 0)[0], wording).known


def _read_packed(path: Path, wording: Wording, names: Names = None) -> Table:
    (table,) = read_text(str(path), wording, 0)
    return table if names is None else replace(table, columns={n: table.column(n) for n in names})


def read_text(path: str, wording: Wording, n_rows: int | None = None) -> Iterator[Table]:
    """Read a CSV file or standard input in parts of about `n_rows` rows.

    If `n_rows` is 0, there is one part. If it is None, a part has about `TEXT_BYTES` bytes.
    """
    source = "standard input" if path == STDIN else path
    step = sys.maxsize if n_rows == 0 else TEXT_BYTES
    damaged = (OSError, EOFError, zlib.error, lzma.LZMAError)
    with _opened(path, wording) as (file, wording), faults(source, "CSV", damaged):
        line, rest = _whole_row(file, 0)
        header = read_header(source, line, wording)
        if n_rows:
            rest += file.readline()
            step = n_rows * max(1, len(rest))
        lines = None
        for lines in _cut_stream(file, rest, step):
            yield parse(source, lines, header, wording)
        if lines is None:
            yield parse(source, b"", header, wording)


@contextmanager
def _opened(path: str, wording: Wording) -> Iterator[tuple[BinaryIO, Wording]]:
    """Open a file, compressed file or standard input as bytes, and yield it with its wording.

    UTF-16 and UTF-32 are converted to UTF-8, so the encoding in the wording may change.
    """
    piped, packed = path == STDIN, PACKED.get(Path(path).suffix.lower())
    name = codecs.lookup(wording.encoding).name  # the same for all names of an encoding
    wide = name.startswith(("utf-16", "utf-32"))
    with nullcontext(sys.stdin.buffer) if piped else (packed or open)(path, "rb") as file:
        if not (wide or piped or packed):
            wide, name = file.read(2) in WIDE, "utf-16"
            file.seek(0)
        if not wide:
            yield file, wording
            return
        try:
            text = file.read().decode(name)
        except UnicodeError as error:
            source = "standard input" if piped else path
            raise ValueError(f"{source}{not_decoded(name, error)}") from error
        yield BytesIO(text.encode()), replace(wording, encoding="utf-8")


def _cut_stream(file: BinaryIO, rest: bytes, step: int) -> Iterator[bytes]:
    """Yield whole rows, about `step` bytes at a time, beginning with the bytes in `rest`."""
    while True:
        lines = rest + file.read(-1 if step == sys.maxsize else max(1, step - len(rest)))
        if not lines:
            return
        row, rest = _whole_row(file, lines.count(b'"'))
        yield lines + row


def _row_edges(file: BinaryIO, begin: int, step: int) -> list[int]:
    """Find where to split text: at the first row end after each `step` bytes.

    A line may end within quotes, so quotes are counted from the last split. Counting reads all
    bytes, so it is done only if the beginning of the file contains a quote.
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
        row, _ = _whole_row(file, quotes)
        edges.append(near + len(row))
    return edges


def _whole_row(file: BinaryIO, quotes: int) -> tuple[bytes, bytes]:
    """Read to the end of a row, given the number of quotes so far.

    Return the bytes of the row, and the bytes that were read beyond it. A quote may also be
    literal, such as the mark for inches. So if no closing quote follows, the row ends with its
    first line.
    """
    first = row = line = file.readline()
    quotes += line.count(b'"')
    while quotes % 2 and line and len(row) < QUOTED_BYTES:
        line = file.readline()
        row += line
        quotes += line.count(b'"')
    return (first, row[len(first) :]) if quotes % 2 else (row, b"")
