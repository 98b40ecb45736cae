"""Fair measurement: contestants take turns in one run, and a run that was disturbed is discarded.

Other work on the machine slows all contestants of a round alike, so ratios taken within one run
mean something where single times do not.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

# A run in which the slowest round of the yardstick took this much longer than its fastest one says
# more about the machine than about the contestants.
TOLERANCE = 1.2
# Runs that are tried before a disturbed one is kept, and marked as noisy.
ATTEMPTS = 4
# Share of the machine that others may take before a steady run is marked as noisy all the same: a
# constant load slows every round of the yardstick alike, and threads that wait for each other most.
OTHERS = 0.1
# A contestant goes on for this long in its turn, so that short calls are not at the mercy of one
# interruption; its time in the round is that of its best call.
TURN_SECONDS = 0.1
# Idle BLAS threads spin for about 30 ms before they sleep. NumPy and SciPy may each bring a BLAS of
# their own, and whoever comes next would share the cores with the threads of the one before.
PAUSE_SECONDS = 0.05


@dataclass(frozen=True)
class Bound:
    """What the ratio of a contestant to the contestant `against` has to keep to."""

    against: str
    at_most: float | None = None
    at_least: float | None = None

    def holds(self, ratio: float) -> bool:
        """Say whether a ratio keeps to the bound."""
        below = self.at_most is None or ratio <= self.at_most
        above = self.at_least is None or ratio >= self.at_least
        return below and above


@dataclass(frozen=True)
class Contestant:
    """Somebody who does the job.

    Attributes
    ----------
    label : str
    role : {"limit", "peer", "pcsda"}
        The calls that nobody can do without, what a user would pick instead, or the library.
    run : callable without arguments
        Does the job once. Where memory is measured, returns the bytes it took.
    bounds : tuple of Bound
    """

    label: str
    role: str
    run: Callable[[], object]
    bounds: tuple[Bound, ...] = ()


@dataclass(frozen=True)
class Job:
    """One job on one set of data.

    Attributes
    ----------
    name : str
    case : dict
        Sizes, such as ``{"N": 5000, "D": 64}``: numbers, so that growth can be fitted to them.
    contestants : tuple of Contestant
        The first is the yardstick that ratios are taken to, and whose steadiness is watched.
    unit : {"seconds", "bytes"}
    """

    name: str
    case: dict[str, int]
    contestants: tuple[Contestant, ...]
    unit: str = "seconds"


@dataclass(frozen=True)
class Measurement:
    """What came out of the run that counts.

    Attributes
    ----------
    rounds : dict
        One value a round for every contestant, by label.
    variation : float
        Slowest round of the yardstick over its fastest.
    others : float
        Share of the machine's processors that other programs took meanwhile.
    discarded : int
        Runs that were given up before.
    """

    rounds: dict[str, list[float]]
    variation: float = 1.0
    others: float = 0.0
    discarded: int = 0

    @property
    def noisy(self) -> bool:
        """Whether even the last run tried was disturbed."""
        return self.variation > TOLERANCE or self.others > OTHERS


@dataclass(frozen=True)
class Clock:
    """Where time comes from.

    Attributes
    ----------
    now, sleep : callables
    foreign : callable
        Processor seconds that other programs have taken so far.
    """

    now: Callable[[], float]
    sleep: Callable[[float], None]
    foreign: Callable[[], float]


def foreign_seconds() -> float:
    """Processor seconds that all programs but this one have taken; zero where nobody tells."""
    try:
        first = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0]
    except OSError:
        return 0.0
    user, nice, system, _, _, *rest = map(int, first.split()[1:9])
    ticks = user + nice + system + sum(rest)
    return ticks / os.sysconf("SC_CLK_TCK") - time.process_time()


REAL = Clock(time.perf_counter, time.sleep, foreign_seconds)


def measure(job: Job, repeats: int, clock: Clock = REAL) -> Measurement:
    """Measure a job; memory is taken once, for it hardly varies."""
    if job.unit == "bytes":
        return Measurement({one.label: [float(one.run())] for one in job.contestants})
    for one in job.contestants:  # first calls pay for late imports and for memory never touched
        one.run()
    for attempt in range(ATTEMPTS):
        last = attempt == ATTEMPTS - 1
        began, foreign = clock.now(), clock.foreign()
        rounds = take_turns(job, repeats, clock, give_up=not last)
        elapsed = (clock.now() - began) * (os.cpu_count() or 1)
        others = (clock.foreign() - foreign) / elapsed
        steadiness = variation(rounds[job.contestants[0].label])
        if steadiness <= TOLERANCE:
            break
    return Measurement(rounds, steadiness, max(others, 0.0), attempt)


def variation(values: list[float]) -> float:
    """Largest value over smallest."""
    return max(values) / min(values)


def take_turns(job: Job, repeats: int, clock: Clock, *, give_up: bool) -> dict[str, list[float]]:
    """Run every contestant once a round, in an order that rotates from round to round.

    With `give_up` the run ends after the round in which the yardstick shows it to be disturbed.
    """
    rounds: dict[str, list[float]] = {one.label: [] for one in job.contestants}
    yardstick = job.contestants[0].label
    for number in range(repeats):
        first = number % len(job.contestants)
        for one in job.contestants[first:] + job.contestants[:first]:
            clock.sleep(PAUSE_SECONDS)
            rounds[one.label].append(best_call(one.run, clock.now))
        if give_up and variation(rounds[yardstick]) > TOLERANCE:
            break
    return rounds


def best_call(run: Callable[[], object], now: Callable[[], float]) -> float:
    """Seconds of the fastest call within one turn."""
    best, spent = math.inf, 0.0
    while spent < TURN_SECONDS:
        start = now()
        run()
        took = now() - start
        best, spent = min(best, took), spent + took
    return best
