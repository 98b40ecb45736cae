"""Check archives before any memory is allocated for them.

Archives and model files may come from untrusted sources. A few bytes can claim terabytes through
compression, overlapping entries, an array header, or nodes that refer to each other. These checks
read only the archive directory, the headers, and a schema no longer than the file.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator
from tokenize import TokenError
from typing import Any, BinaryIO
from zipfile import ZIP_STORED, BadZipFile, ZipFile

import numpy as np
from numpy.lib import format as npy

from .memory import available_memory

# Errors from NumPy and the standard library for truncated, damaged or forged archives and arrays.
# zipfile, for instance, raises NotImplementedError for an archive version that it does not know.
UNREADABLE = (
    *(ValueError, KeyError, TypeError, EOFError, OSError, OverflowError, MemoryError),
    *(RecursionError, NotImplementedError, SyntaxError, TokenError, BadZipFile, zlib.error),
)
# Maximum depth of a model tree; ours have about twenty levels.
MOST_LEVELS = 100
# All arrays together may take this many times the size of the file, or one GiB if that is more:
# arrays that several parts of a model share are read several times.
MOST_TIMES, ALWAYS = 100, 1 << 30
_END: Any = object()
_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


def check_entries(archive: ZipFile, n_bytes: int) -> None:
    """Reject an archive whose entries add up to more than its `n_bytes`.

    pcsda does not compress archives, so the entries of a genuine archive are never larger.
    """
    size = sum(entry.file_size for entry in archive.infolist())
    if size > n_bytes:
        raise ValueError(f"its entries would take {size} bytes, more than the {n_bytes} it has")


def check_arrays(file: BinaryIO) -> None:
    """Reject a .npz file with compressed entries or false array headers; pcsda writes neither."""
    n_bytes = file.seek(0, io.SEEK_END)
    file.seek(0)
    with ZipFile(file) as archive:
        check_entries(archive, n_bytes)
        for entry in archive.infolist():
            if entry.compress_type != ZIP_STORED:
                raise ValueError(f"its entry {entry.filename!r} is compressed")
            with archive.open(entry) as part:
                _check_header(part, entry.filename, entry.file_size)
    file.seek(0)


def claimed_bytes(file: BinaryIO) -> int:
    """Return the size in bytes that the header at the start of a file claims for its array."""
    shape, dtype = _header(file)
    return int(np.prod([*shape, dtype.itemsize], dtype=object))


def array_shape(archive: ZipFile, name: str) -> tuple[int, ...]:
    """Return the shape of an array in a .npz file, reading only the header of the array."""
    with archive.open(f"{name}.npy") as part:
        return _header(part)[0]


def _header(file: Any) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return the shape and type of an array, read from the header at the start of its file."""
    version = npy.read_magic(file)
    if version not in _HEADERS:
        raise ValueError(f"it holds an array in version {version} of the format")
    shape, _, dtype = _HEADERS[version](file)
    if dtype.hasobject:
        raise ValueError("Object arrays cannot be read (allow_pickle=False): they could run code")
    return shape, dtype


def _check_header(part: Any, name: str, n_bytes: int) -> None:
    """Reject an array unless its header claims exactly the bytes that the archive holds."""
    claimed = claimed_bytes(part)
    if claimed + part.tell() != n_bytes:
        raise ValueError(f"its array {name!r} claims {claimed} bytes but has {n_bytes}")


def check_array(archive: ZipFile, name: str) -> None:
    """Reject an array in a .npz file if it does not fit in memory or has a false header."""
    entry = archive.getinfo(f"{name}.npy")
    check_room(entry.file_size, f"array {name!r}")
    with archive.open(entry) as part:
        _check_header(part, name, entry.file_size)


def check_room(needed: int, what: str) -> None:
    """Raise ValueError if `needed` bytes do not fit in memory; `what` names the data."""
    if needed > (available := available_memory()):
        raise ValueError(
            f"{what} claims {needed} bytes, but only {available} bytes of memory are available; "
            "free memory, or use a larger machine"
        )


def check_schema(schema: object, archive: ZipFile, n_bytes: int) -> None:
    """Reject a model schema that would take too long, or too much memory, to traverse.

    skops writes a repeated node out in full each time, so a traversal is no longer than the schema.
    In a forged schema, nodes may refer to each other, so that a traversal never ends.
    """
    sizes = {entry.filename: entry.file_size for entry in archive.infolist()}
    for name in sizes:
        if name.endswith(".npy"):
            with archive.open(name) as part:
                _check_header(part, name, sizes[name])
    below: dict[str, int] = {}
    claimed = 0
    for node, count in _walk(schema):
        claimed += sizes.get(str(node.get("file")), 0)
        if "__id__" in node and below.setdefault(str(node["__id__"]), count) != count:
            raise ValueError(f"its node {node['__id__']!r:.40} occurs with two different contents")
    most = max(MOST_TIMES * n_bytes, ALWAYS)
    if claimed > most:
        raise ValueError(f"its arrays would take {claimed} bytes when read, more than {most}")
    check_room(claimed, "it")


def _walk(schema: object) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield each dict of the schema with the number of dicts below it, without recursion."""
    # Each entry holds a dict, its parts still to be visited, and the number of dicts found below it
    # so far.
    path: list[tuple[Any, Iterator[Any], list[int]]] = [(None, iter([schema]), [0])]
    while path:
        table, parts, count = path[-1]
        if (part := next(parts, _END)) is _END:
            path.pop()
            if isinstance(table, dict):
                yield table, count[0]
            if path:
                path[-1][2][0] += count[0] + isinstance(table, dict)
        elif isinstance(part, dict | list):
            if len(path) > MOST_LEVELS:
                raise ValueError(f"it has more than {MOST_LEVELS} levels")
            inner = part.values() if isinstance(part, dict) else part
            path.append((part, iter(inner), [0]))
