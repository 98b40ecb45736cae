"""A progress bar for long-running work, shown only if standard error is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from threading import Timer
from typing import Any, TypeVar

Item = TypeVar("Item")

# No bar is shown for work that takes less than this many seconds.
DELAY = 1.0
# Not empty while a bar is shown; nested work then shows no bar.
_busy: list[str] = []
# Whether bars are shown even without `verbose`, as on the command line.
_everywhere: list[bool] = []


@contextmanager
def bars_everywhere() -> Iterator[None]:
    """Show progress bars for all long work, whatever the value of `verbose`."""
    _everywhere.append(True)
    try:
        yield
    finally:
        _everywhere.pop()


def progress(
    items: Iterable[Item],
    label: str,
    *,
    enabled: bool,
    total: int | None = None,
    size: Callable[[Item], int] | None = None,
) -> Iterator[Item]:
    """Yield the items, showing on standard error how many are done and the time left.

    The bar is drawn by rich. Nothing is drawn if `enabled` is false, rich is not installed,
    standard error is not a terminal or the work takes less than a second. Pass `total` if the items
    have no length. If the total is unknown, pass `size`, a function that returns the size of an
    item: the sum of the sizes is then shown instead of a bar.

    Examples
    --------
    >>> from pcsda.progress import progress
    >>> sum(progress(range(4), "numbers", enabled=True))
    6
    """
    wanted = (enabled or _everywhere) and not _busy and sys.stderr.isatty()
    bar = _bar(total is None and size is not None) if wanted else None
    if bar is None:
        yield from items
        return
    total = len(items) if total is None and size is None else total  # type: ignore[arg-type]
    task = bar.add_task(label, total=total)
    clock = Timer(DELAY, bar.start)
    clock.daemon = True
    _busy.append(label)
    clock.start()
    if not DELAY:
        clock.join()
    try:
        for item in items:
            yield item
            bar.advance(task, 1 if size is None else size(item))
    finally:
        _busy.pop()
        clock.cancel()
        clock.join()  # the bar may already be visible
        bar.stop()


def _bar(counting: bool) -> Any:
    """Make a progress bar, or a counter if `counting`; return None if rich is not installed."""
    try:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
    except ImportError:
        return None
    label, done = TextColumn("{task.description}"), TextColumn("{task.completed:,.0f}")
    if counting:
        columns: list[Any] = [done, label]
    else:
        left = TimeRemainingColumn()
        columns = [label, BarColumn(24), TextColumn("{task.completed}/{task.total}"), left]
    screen = Console(file=sys.stderr)
    return Progress(*columns, console=screen, redirect_stdout=False, redirect_stderr=False)
