"""A progress bar for long work: on a terminal only, and never in the way of output."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")


def progress(
    items: Iterable[Item], label: str, *, enabled: bool, total: int | None = None
) -> Iterator[Item]:
    """Yield the items, drawing on standard error how far along they are and what time is left.

    Nothing is drawn where `enabled` is false or standard error is not a terminal. `total` is the
    number of items where they do not know it themselves.
    """
    if not (enabled and sys.stderr.isatty()):
        yield from items
        return
    begin = time.monotonic()
    total = len(items) if total is None else total  # type: ignore[arg-type]
    for done, item in enumerate(items, start=1):
        yield item
        left = (time.monotonic() - begin) / done * (total - done)
        filled = 24 * done // total
        bar = "#" * filled + "." * (24 - filled)
        print(f"\r{label} [{bar}] {done}/{total}, {left:.0f} s left ", end="", file=sys.stderr)
    print(file=sys.stderr)
