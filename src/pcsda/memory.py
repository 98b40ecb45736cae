"""How much memory this process may take: of the machine, of its container, of its own limits."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")
CGROUPS = Path("/sys/fs/cgroup")


class Allowance(NamedTuple):
    """A bound on memory: all that may be taken, and what is left of it now, in bytes."""

    limit: int
    left: int


class Files(NamedTuple):
    """Names of the files in which a version of control groups tells its limits."""

    limit: str
    used: str
    cache: str


V1 = Files("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
V2 = Files("memory.max", "memory.current", "inactive_file")


def available_memory() -> int:
    """Bytes of memory that can be taken now, as far as the system tells.

    The least of what the machine has left, what the control groups of the process leave it
    (versions 1 and 2, as containers use them) and what its resource limits do.
    """
    return min((bound.left for bound in _bounds()), default=sys.maxsize)


def memory_limit() -> int:
    """Bytes of memory that the process could ever have; unlike what is available, this stays."""
    return min((bound.limit for bound in _bounds()), default=sys.maxsize)


def _bounds() -> Iterator[Allowance]:
    for bounds in (_of_machine, _of_control_groups, _of_process):
        try:
            yield from bounds()
        except (OSError, KeyError, ValueError, IndexError, AttributeError, ImportError):
            continue  # a system that does not tell


def _of_machine() -> Iterator[Allowance]:
    try:
        table = _table(PROC / "meminfo", ":")
        yield Allowance(table["MemTotal"] * 1024, table["MemAvailable"] * 1024)
    except (OSError, KeyError, ValueError):
        whole = int(os.sysconf("SC_PHYS_PAGES")) * int(os.sysconf("SC_PAGE_SIZE"))
        yield Allowance(whole, whole)


def _table(path: Path, separator: str | None) -> dict[str, int]:
    """Names and numbers of the lines of a file."""
    lines = path.read_text(encoding="ascii").splitlines()
    rows = [line.split(separator, 1) for line in lines]
    return {name: int(rest.split()[0]) for name, rest in rows}


def _of_control_groups() -> Iterator[Allowance]:
    """Each group that the process is in, and all groups that these are in."""
    for line in (PROC / "self" / "cgroup").read_text(encoding="utf-8").splitlines():
        number, controllers, place = line.split(":", 2)
        if number == "0" and not controllers:
            yield from _of_tree(CGROUPS, place, V2)
        elif "memory" in controllers.split(","):
            yield from _of_tree(CGROUPS / "memory", place, V1)


def _of_tree(root: Path, place: str, files: Files) -> Iterator[Allowance]:
    # A container may see its own group as the root, by another name than outside.
    folder = root / place.lstrip("/")
    for group in (folder, *folder.parents):
        if group == root.parent:
            return
        try:
            limit = int((group / files.limit).read_text(encoding="ascii"))
        except (OSError, ValueError):  # no such group, or "max"
            continue
        left = limit
        try:
            # Files that were read and are no longer in use are given back when memory is wanted.
            cache = _table(group / "memory.stat", None).get(files.cache, 0)
            used = int((group / files.used).read_text(encoding="ascii"))
            left = max(limit - max(used - cache, 0), 0)
        except (OSError, ValueError):
            pass
        yield Allowance(limit, left)


def _of_process() -> Iterator[Allowance]:
    """Limits of the address space and of the data of a process (``ulimit -v`` and ``-d``)."""
    import resource

    pages = (PROC / "self" / "statm").read_text(encoding="ascii").split()
    size = os.sysconf("SC_PAGE_SIZE")
    for kind, place in ((resource.RLIMIT_AS, 0), (resource.RLIMIT_DATA, 5)):
        limit = resource.getrlimit(kind)[0]
        if limit != resource.RLIM_INFINITY:
            yield Allowance(limit, max(limit - int(pages[place]) * size, 0))
