"""Files of result rows, one per line, that survive an interrupted run."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO

Row = dict[str, Any]
KEY = ("profile", "dataset", "class", "split", "method", "kind")


def key(row: Row) -> tuple[Any, ...]:
    """Return the key of a row, which is unique within a file."""
    return tuple(row[name] for name in KEY)


def read(path: Path) -> list[Row]:
    """Read the rows of a file, plain or compressed (.gz); none if there is no file.

    An incomplete last line, cut off when the run was stopped, is ignored.
    """
    if not path.exists():
        return []
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rb") as file:
        whole, _, _ = file.read().rpartition(b"\n")
    rows = []
    for number, line in enumerate(whole.splitlines(), start=1):
        try:
            rows.append(json.loads(line))
        except ValueError as error:
            raise ValueError(f"{path}, line {number} is no row: {error}; remove it") from error
    return rows


class RowFile:
    """A locked file to which rows are appended, one whole line at a time."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.file: BinaryIO = open(path, "ab+")  # noqa: SIM115 - closed by `close`
        self._lock()
        self._drop_cut_line()
        self.rows = read(path)

    def _lock(self) -> None:
        try:
            import fcntl
        except ImportError:  # this system has no such locks
            return
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.file.close()
            raise RuntimeError(
                f"{self.path} is being written by another run; wait for it, or give another --rows"
            ) from error

    def _drop_cut_line(self) -> None:
        self.file.seek(0)
        content = self.file.read()
        end = content.rfind(b"\n") + 1
        if end < len(content):
            self.file.truncate(end)

    def append(self, rows: Iterable[Row]) -> None:
        """Write rows, each line in one piece."""
        for row in rows:
            self.file.write(json.dumps(row).encode() + b"\n")
            self.file.flush()
            self.rows.append(row)
        os.fsync(self.file.fileno())

    def close(self) -> None:
        self.file.close()


def write(path: Path, text: str) -> None:
    """Replace a file atomically, so that no reader sees part of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
