"""Files that are either whole or not there: written under another name, then renamed.

Whoever writes holds a lock on the unfinished file. The lock of a process that was killed is gone,
so the next one to write can tell what nobody will finish, and removes it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

try:
    import fcntl
except ImportError:  # this system has no such locks, and unfinished files stay
    fcntl = None  # type: ignore[assignment]


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file for writing bytes that takes its name only once all of it is on disk.

    An earlier file at `path` stays as it was until then, and for good if writing fails: a full
    disk, a missing permission or an interruption leaves no half file. A link is followed.

    Examples
    --------
    >>> from pathlib import Path
    >>> from pcsda.writing import whole_file
    >>> with whole_file("numbers.txt") as file:
    ...     written = file.write(b"1 2 3")
    >>> Path("numbers.txt").read_text()
    '1 2 3'
    """
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(f"{path} is a folder; give the name of a file")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"{path}: there is no folder {target.parent}; make it first")
    remove_leftovers(target)
    part, file = _begin(target)
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if fcntl is not None:  # under the lock, so that nobody takes it for a leftover
                os.replace(part, target)
        if fcntl is None:  # a system on which open files cannot be renamed
            os.replace(part, target)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise


def remove_leftovers(path: str | os.PathLike[str]) -> None:
    """Remove what is left of files at `path` whose writers were killed; others stay."""
    target = Path(os.path.realpath(path))
    unfinished = re.compile(rf"\.{re.escape(target.name[:100])}\.[0-9a-f]{{32}}\.part")
    if fcntl is None or not target.parent.is_dir():
        return
    for part in target.parent.iterdir():
        if unfinished.fullmatch(part.name):
            with suppress(OSError), open(part, "rb") as file:  # locked: somebody writes
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                part.unlink()


def _begin(target: Path) -> tuple[Path, BinaryIO]:
    """Open a new file beside the target, and lock it."""
    while True:
        # Not tempfile: its files are readable by their owner alone, whatever the user's umask says.
        part = target.with_name(f".{target.name[:100]}.{uuid4().hex}.part")
        file = open(part, "xb")  # noqa: SIM115 - closed by the caller
        if fcntl is None:
            return part, file
        with suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_EX)
        if part.exists():
            return part, file
        file.close()  # somebody took it for a leftover before it was locked
