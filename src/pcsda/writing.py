"""Atomic writes: a file is written under a temporary name and then renamed.

A lock is held on the unfinished file while it is written. The lock disappears when a process is
killed, so the next writer can recognise abandoned files and remove them.
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
except ImportError:  # this system has no such locks, so abandoned files stay
    fcntl = None  # type: ignore[assignment]


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a binary file for writing that gets its name only once it is complete on disk.

    Until then, any earlier file at `path` stays unchanged. If writing fails (a full disk, a missing
    permission, an interruption), no partial file remains. Links are followed.

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
    refuse_device(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(f"{path}: there is no folder {target.parent}; create it first")
    remove_leftovers(target)
    try:
        part, file = _begin(target)
    except OSError as error:
        error.filename = os.fspath(path)  # not the unfinished file, which the user does not know
        raise
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if fcntl is not None:  # under the lock, so that no other process removes it
                os.replace(part, target)
        if fcntl is None:  # some systems cannot rename open files
            os.replace(part, target)
    except BaseException as error:
        with suppress(OSError):
            part.unlink()
        if isinstance(error, OSError) and error.filename is None and error.errno is not None:
            error.filename = os.fspath(path)  # the error for a full disk does not name the file
        raise


def refuse_device(path: str | os.PathLike[str]) -> None:
    """Reject a device or a pipe, such as /dev/null, which would be replaced by a file."""
    if os.path.exists(path) and not os.path.isfile(path):
        raise OSError(f"{path} is a device or a pipe; give the name of a file")


def remove_leftovers(path: str | os.PathLike[str]) -> None:
    """Remove unfinished files for `path` left behind by killed writers."""
    target = Path(os.path.realpath(path))
    unfinished = re.compile(rf"\.{re.escape(target.name[:100])}\.[0-9a-f]{{32}}\.part")
    if fcntl is None or not target.parent.is_dir():
        return
    for part in target.parent.iterdir():
        if unfinished.fullmatch(part.name):
            with suppress(OSError), open(part, "rb") as file:  # locked: still being written
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                part.unlink()


def _begin(target: Path) -> tuple[Path, BinaryIO]:
    """Open a new file next to the target, and lock it."""
    while True:
        # tempfile is not used, because its files are readable only by their owner, whatever the
        # user's umask.
        part = target.with_name(f".{target.name[:100]}.{uuid4().hex}.part")
        file = open(part, "xb")  # noqa: SIM115 - closed by the caller
        if fcntl is None:
            return part, file
        with suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_EX)
        if part.exists():
            return part, file
        file.close()  # another process removed it before it was locked
