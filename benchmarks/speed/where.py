"""Where the time of a contestant goes, from samples of the stack while it runs.

A timer interrupts the run every millisecond. The time since the last interruption is attributed to
the innermost running function of the library, or module of scikit-learn. A long BLAS call, which
cannot be interrupted, is attributed to the function that made it.
"""

from __future__ import annotations

import dis
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

from .measure import Job

INTERVAL = 0.001
# Number of places listed for a contestant; the others are small.
NAMED = 6
# The instruction at which a function begins.
RESUME = dis.opmap["RESUME"]
# Packages that are resolved; time in others is attributed to their caller among these.
OURS, THEIRS = "pcsda", "sklearn"


def available() -> bool:
    """Return whether this system has timers, and this thread may set one."""
    in_main = threading.current_thread() is threading.main_thread()
    return in_main and hasattr(signal, "setitimer")


def of_job(job: Job, seconds: float) -> dict[str, dict[str, float]]:
    """Profile our contestants that run in this process, by label."""
    if job.unit != "seconds" or not available():
        return {}
    ours = (one for one in job.contestants if one.role == "pcsda" and not one.reports)
    return {one.label: shares(one.run, seconds) for one in ours}


def shares(run: Callable[[], Any], seconds: float) -> dict[str, float]:
    """Return the largest shares of time by place, over as many calls as fit in `seconds`."""
    spent: Counter[str] = Counter()
    last, watching = time.perf_counter(), True

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal last
        now = time.perf_counter()
        spent[place(frame)] += now - last
        if watching:  # set again each time, so that interruptions do not overlap
            signal.setitimer(signal.ITIMER_REAL, INTERVAL)
        last = time.perf_counter()

    before = signal.signal(signal.SIGALRM, note)
    signal.setitimer(signal.ITIMER_REAL, INTERVAL)
    try:
        end = last + seconds
        while True:
            run()
            if time.perf_counter() >= end:
                break
    finally:
        watching = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    total = sum(spent.values())
    return {name: amount / total for name, amount in spent.most_common(NAMED)}


def place(frame: FrameType | None) -> str:
    """Name the innermost function of ours, or module of scikit-learn, on a stack."""
    while frame is not None:
        if _just_entered(frame):  # the time belongs to its caller
            frame = frame.f_back
            continue
        package, _, module = frame.f_globals.get("__name__", "").partition(".")
        if package == OURS:
            # Nested functions, such as the work of a thread, include the outer function's name.
            inside = frame.f_code.co_qualname.replace(".<locals>", "")
            return f"{module}.{inside}"
        if package == THEIRS:
            return f"{package}.{module}"
        frame = frame.f_back
    return "the benchmark itself"


def _just_entered(frame: FrameType) -> bool:
    """Return whether a function has done nothing yet.

    Python checks for signals when a function begins, but not after every operation. So an
    interruption during the time before a call is often noticed only there.
    """
    return frame.f_lasti <= 2 * frame.f_code.co_code[::2].find(RESUME)
