"""A progress bar for long work: on a terminal only, and never in the way of output."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")


def progress(
    items: Iterable[Item],
    label: str,
    *,
    enabled: bool,
    total: int | None = None,
    size: Callable[[Item], int] | None = None,
) -> Iterator[Item]:
    """Yield the items, drawing on standard error how far along they are and what time is left.

    Nothing is drawn where `enabled` is false or standard error is not a terminal. `total` is the
    number of items where they do not know it themselves. Where nobody knows it, give `size`: then
    the sizes of the items so far are added up and drawn instead of a bar.
    """
    if not (enabled and sys.stderr.isatty()):
        yield from items
        return
    begin, done = time.monotonic(), 0
    total = len(items) if total is None and size is None else total  # type: ignore[arg-type]
    for item in items:
        yield item
        done += 1 if size is None else size(item)
        text = f"{done:,} {label}" if total is None else _bar(label, done, total, begin)
        print(f"\r{text} ", end="", file=sys.stderr)
    print(file=sys.stderr)


def _bar(label: str, done: int, total: int, begin: float) -> str:
    left = (time.monotonic() - begin) / done * (total - done)
    filled = 24 * done // total
    bar = "#" * filled + "." * (24 - filled)
    return f"{label} [{bar}] {done}/{total}, {left:.0f} s left"
