"""Fair measurement: contestants take turns within a run, and noisy runs are discarded.

Other work on the machine slows all contestants of a round alike, so ratios within one run are
reliable even if single times are not.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

# A run in which the slowest round of the yardstick took this much longer than its fastest one says
# more about the machine than about the contestants.
TOLERANCE = 1.2
# If other programs use more than this share of the machine, even a steady run is marked as noisy: a
# constant load slows every round of the yardstick alike, but threads that wait for each other most.
OTHERS = 0.1


@dataclass(frozen=True)
class Bound:
    """A bound on the ratio of a contestant to the contestant `against`.

    If `against` is None, it bounds the amount itself (seconds or bytes).
    """

    against: str | None
    at_most: float | None = None
    at_least: float | None = None

    def holds(self, ratio: float) -> bool:
        """Return whether a ratio is within the bound."""
        below = self.at_most is None or ratio <= self.at_most
        above = self.at_least is None or ratio >= self.at_least
        return below and above


@dataclass(frozen=True)
class Cost:
    """The theoretical cost of a contestant, up to a factor.

    Attributes
    ----------
    formula : str
        Operations, in the letters of the case.
    operations : callable
        The same as a function of the case's sizes, by keyword.
    steepest : float or None
        Upper bound on the exponent of growth, if the library sets one.
    """

    formula: str
    operations: Callable[..., float]
    steepest: float | None = None


@dataclass(frozen=True)
class Contestant:
    """One implementation of the job.

    Attributes
    ----------
    label : str
    role : {"limit", "peer", "pcsda"}
        Calls that no implementation can avoid, what a user would choose instead, or the library.
    run : callable without arguments
        Does the job once. If memory is measured, returns the bytes used.
    bounds : tuple of Bound
    reports : bool
        Whether `run` returns the seconds that count, as work in another process does.
    cost : Cost or None
        For jobs that measure growth.
    """

    label: str
    role: str
    run: Callable[[], Any]
    bounds: tuple[Bound, ...] = ()
    reports: bool = False
    cost: Cost | None = None


@dataclass(frozen=True)
class Job:
    """One job on one set of data.

    Attributes
    ----------
    name : str
    case : dict
        Sizes, such as ``{"N": 5000, "D": 64}``: numbers, so that growth can be fitted to them.
        No two cases of a job are the same.
    contestants : tuple of Contestant
        The first is the yardstick: ratios are relative to it, and its variation shows noise.
    unit : {"seconds", "bytes"}
    grows : str or None
        The size that varies between cases, in jobs that measure growth.
    """

    name: str
    case: Mapping[str, float]
    contestants: tuple[Contestant, ...]
    unit: str = "seconds"
    grows: str | None = None

    @property
    def title(self) -> str:
        """Name and sizes in words."""
        return f"{self.name}, " + ", ".join(f"{name} = {size}" for name, size in self.case.items())


@dataclass(frozen=True)
class Measurement:
    """The result of the run that counts.

    Attributes
    ----------
    rounds : dict
        One value per round for every contestant, by label.
    variation : float
        Slowest round of the yardstick over its fastest.
    others : float
        Share of the machine's processors that other programs used meanwhile.
    discarded : int
        Number of discarded runs.
    """

    rounds: dict[str, list[float]]
    variation: float = 1.0
    others: float = 0.0
    discarded: int = 0

    @property
    def noisy(self) -> bool:
        """Whether even the last run was noisy."""
        return self.variation > TOLERANCE or self.others > OTHERS


@dataclass(frozen=True)
class Clock:
    """Functions that tell the time used by this and other programs.
    Attributes
    ----------
    now, sleep : callables
    foreign : callable
        Processor seconds that other programs have used so far.
    name : str
        What `now` counts.
    wall : callable or None
        A wall clock, if `now` is not one.
    elsewhere : str
        Name of the function of the module `time` that replaces `now` in another process.
    """

    now: Callable[[], float]
    sleep: Callable[[float], None]
    foreign: Callable[[], float]
    name: str = "wall"
    wall: Callable[[], float] | None = None
    elsewhere: str = "perf_counter"


@dataclass(frozen=True)
class Effort:
    """How much work goes into a measurement.

    Attributes
    ----------
    repeats : int
        Rounds of a run.
    attempts : int
        Number of runs before a noisy one is kept and marked as such.
    turn : float
        A contestant repeats its work for this many seconds in its turn, and its best call counts:
        neither a single interruption nor a cold cache then decides.
    pause : float
        Seconds before each turn. Idle BLAS threads spin for about 30 ms before they sleep. NumPy
        and SciPy may each ship their own BLAS, and the next contestant would share the cores with
        spinning threads of the last.
    look : float
        Seconds for which our contestants are profiled afterwards.
    """

    repeats: int = 5
    attempts: int = 4
    turn: float = 0.3
    pause: float = 0.05
    look: float = 1.0


# For a quick check that everything runs: nothing is judged, so nothing is repeated.
LOOK = Effort(repeats=2, attempts=1, turn=0.02, pause=0.0, look=0.02)


def foreign_seconds() -> float:
    """Return the processor seconds used by all programs but this one and its children.

    They are zero if the system does not report them.
    """
    try:
        first = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0]
    except OSError:
        return 0.0
    user, nice, system, _, _, *rest = map(int, first.split()[1:9])
    ticks = user + nice + system + sum(rest)
    return ticks / os.sysconf("SC_CLK_TCK") - sum(os.times()[:4])


def processor_seconds() -> float:
    """Return the processor seconds of this program and of those it has waited for."""
    import resource  # absent on Windows

    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


REAL = Clock(time.perf_counter, time.sleep, foreign_seconds)
# With one thread, the processor time of a job hardly depends on other programs.
PROCESSOR = Clock(
    processor_seconds, time.sleep, foreign_seconds, "processor", time.perf_counter, "process_time"
)


def ignore(round_number: int, attempt: int) -> None:
    """Ignore the progress of a measurement."""


def measure(
    job: Job,
    effort: Effort,
    clock: Clock = REAL,
    watch: Callable[[int, int], None] = ignore,
) -> Measurement:
    """Measure a job; memory is measured once, because it hardly varies.

    `watch` is called with round and attempt before each round; round 0 is the warm-up.
    """
    watch(0, 0)
    if job.unit == "bytes":
        return Measurement({one.label: [float(one.run())] for one in job.contestants})
    for one in job.contestants:  # first calls include late imports and fresh memory
        one.run()
    wall = clock.wall or clock.now
    for attempt in range(effort.attempts):
        last = attempt == effort.attempts - 1
        began, foreign = wall(), clock.foreign()
        rounds = take_turns(job, effort, clock, partial(watch, attempt=attempt), give_up=not last)
        elapsed = (wall() - began) * (os.cpu_count() or 1)
        others = (clock.foreign() - foreign) / elapsed
        steadiness = variation(rounds[job.contestants[0].label])
        if steadiness <= TOLERANCE:
            break
    return Measurement(rounds, steadiness, max(others, 0.0), attempt)


def variation(values: list[float]) -> float:
    """Return the largest value divided by the smallest."""
    return max(values) / min(values)


def take_turns(
    job: Job, effort: Effort, clock: Clock, watch: Callable[[int], None], *, give_up: bool
) -> dict[str, list[float]]:
    """Run every contestant once per round, in an order that rotates between rounds.

    With `give_up` the run ends after the first round in which the yardstick is noisy.
    """
    rounds: dict[str, list[float]] = {one.label: [] for one in job.contestants}
    yardstick = job.contestants[0].label
    for number in range(effort.repeats):
        watch(number + 1)
        first = number % len(job.contestants)
        for one in job.contestants[first:] + job.contestants[:first]:
            clock.sleep(effort.pause)
            rounds[one.label].append(best_call(one, clock, effort.turn))
        if give_up and variation(rounds[yardstick]) > TOLERANCE:
            break
    return rounds


def best_call(one: Contestant, clock: Clock, turn: float) -> float:
    """Return the seconds of the fastest call within one turn."""
    best, spent = math.inf, 0.0
    while spent < turn:
        start = clock.now()
        reported = one.run()
        took = clock.now() - start
        best, spent = min(best, float(reported) if one.reports else took), spent + took
    return best
