"""Find the memory available to this process within the limits of machine, container and process."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")
CGROUPS = Path("/sys/fs/cgroup")


class Allowance(NamedTuple):
    """A memory limit in bytes: the total, and how much of it is left now."""

    limit: int
    left: int


class Files(NamedTuple):
    """Names under which one version of control groups reports memory.

    `limit` and `used` are the names of files. `cache` is an entry in the file memory.stat.
    """

    limit: str
    used: str
    cache: str


V1 = Files("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
V2 = Files("memory.max", "memory.current", "inactive_file")


def available_memory() -> int:
    """Return how many bytes can be allocated now, as far as the system reports it.

    This is the minimum of what is left on the machine, in the control groups of the process
    (versions 1 and 2, as containers use them), and within the resource limits of the process.
    """
    return min((bound.left for bound in _bounds()), default=sys.maxsize)


def memory_limit() -> int:
    """Return the constant upper limit, in bytes, on the memory this process can ever use."""
    return min((bound.limit for bound in _bounds()), default=sys.maxsize)


def _bounds() -> Iterator[Allowance]:
    for bounds in (_of_machine, _of_control_groups, _of_process):
        try:
            yield from bounds()
        except (OSError, KeyError, ValueError, IndexError, AttributeError, ImportError):
            continue  # not reported by this system


def _of_machine() -> Iterator[Allowance]:
    try:
        table = _table(PROC / "meminfo", ":")
        yield Allowance(table["MemTotal"] * 1024, table["MemAvailable"] * 1024)
    except (OSError, KeyError, ValueError):
        whole = int(os.sysconf("SC_PHYS_PAGES")) * int(os.sysconf("SC_PAGE_SIZE"))
        yield Allowance(whole, whole)


def _table(path: Path, separator: str | None) -> dict[str, int]:
    """Return the numbers in a file whose lines each hold a name and a number, by name."""
    lines = path.read_text(encoding="ascii").splitlines()
    rows = [line.split(separator, 1) for line in lines]
    return {name: int(rest.split()[0]) for name, rest in rows}


def _of_control_groups() -> Iterator[Allowance]:
    """Yield the memory limits of the process's control groups and their parents."""
    for line in (PROC / "self" / "cgroup").read_text(encoding="utf-8").splitlines():
        number, controllers, place = line.split(":", 2)
        if number == "0" and not controllers:
            yield from _of_tree(CGROUPS, place, V2)
        elif "memory" in controllers.split(","):
            yield from _of_tree(CGROUPS / "memory", place, V1)


def _of_tree(root: Path, place: str, files: Files) -> Iterator[Allowance]:
    # Inside a container, the container's own group may appear as the root.
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
            # Cached files that are no longer in use can be reclaimed.
            cache = _table(group / "memory.stat", None).get(files.cache, 0)
            used = int((group / files.used).read_text(encoding="ascii"))
            left = max(limit - max(used - cache, 0), 0)
        except (OSError, ValueError):
            pass
        yield Allowance(limit, left)


def _of_process() -> Iterator[Allowance]:
    """Yield the process limits on address space and data (``ulimit -v`` and ``-d``)."""
    import resource

    pages = (PROC / "self" / "statm").read_text(encoding="ascii").split()
    size = os.sysconf("SC_PAGE_SIZE")
    for kind, place in ((resource.RLIMIT_AS, 0), (resource.RLIMIT_DATA, 5)):
        limit = resource.getrlimit(kind)[0]
        if limit != resource.RLIM_INFINITY:
            yield Allowance(limit, max(limit - int(pages[place]) * size, 0))
