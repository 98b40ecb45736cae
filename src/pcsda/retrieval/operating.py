"""The threshold of a session, chosen on all rows of its gallery, most of which have no answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit

from ..core.calibration import Scored
from ..core.linalg import Array
from ..core.threshold import Interval, Threshold, choose_threshold, error_rates
from .estimates import CLOUDS, Remaining, binned, fit_shape, rests_on

# At most this share of the unanswered rows counts as members of the class, unless an audit counted
# them. Then at least FEWEST rows count as negatives.
MOST, FEWEST = 0.5, 0.5
# Rows that hardly belong to a kind do not count for it at all.
LEAST = 1e-9
# The mean of a distribution from its quantiles 5, 50 and 95% (Pearson and Tukey).
MEAN = 0.185, 0.63, 0.185
# If the interval of the misses is wider than this, the answers hardly tell how many there are.
WIDE = 0.3


def choose_on_gallery(
    yes: Array, no: Array, pool: Array, left: Remaining, **criterion: Any
) -> Threshold:
    """Choose a threshold for a whole gallery, whose unanswered rows are of unknown kind.

    Each unanswered row counts as a member of the class with its probability, and as a negative with
    the rest. To count them all as negatives would put the threshold among the hidden members of a
    common class. To measure misses on the finds alone would miss most of the misses, because finds
    were chosen for their high scores.

    Parameters
    ----------
    yes, no : arrays of scores
        Scores of the rows with that answer, each from a model fitted without the row.
    pool : array of scores
        Scores of the rows without an answer, each from a model that did not learn from the row.
    left : Remaining
        Estimated number of members in the pool. The intervals of the error rates include its
        interval.
    **criterion
        As in `core.threshold.choose_threshold`.
    """
    pool = np.sort(pool)  # sorting it again for each tail is much faster then
    most = len(pool) - FEWEST if left.basis == "audit" else MOST * len(pool)
    counts = [min(count, most) for count in (left.count_low, left.count, left.count_high)]
    low, middle, high = (
        _weighted(yes, no, pool, chance) for chance in chances(yes, no, pool, counts)
    )
    source = f"the whole gallery; about {left.count:.0f} members left"
    if left.n_rows:
        source += f" according to {rests_on(left)}"
    found = choose_threshold(*middle.without_rows, **criterion, source=source)
    rates = [error_rates(found.value, *rows.without_rows) for rows in (low, middle, high)]
    _, alarms, missed, misses = zip(*rates, strict=True)
    stated = replace(
        found,
        misses=float(np.dot(MEAN, missed)),
        false_alarms_interval=_around(alarms),
        misses_interval=_around(misses),
        n_negatives=len(no) + max(len(pool) - round(left.count), 0),
        n_positives=len(yes) + round(left.count),
    )
    if hardly_known(stated):
        return replace(stated, rule=f"{stated.rule}; the answers hardly tell how many it misses")
    return stated


def _around(intervals: Sequence[Interval]) -> Interval:
    """Return the shortest interval that contains all the given ones."""
    lows, highs = zip(*intervals, strict=True)
    return min(lows), max(highs)


def _weighted(yes: Array, no: Array, pool: Array, chance: Array) -> Scored:
    """Return all rows for a threshold; unanswered rows occur twice, once as each kind."""
    scores = np.concatenate([yes, pool, no, pool])
    weights = np.concatenate([np.ones(len(yes)), chance, np.ones(len(no)), 1 - chance])
    positive = np.arange(len(scores)) < len(yes) + len(pool)
    use = weights > LEAST
    return Scored(scores[use], positive[use], weights[use])


def chances(yes: Array, no: Array, pool: Array, counts: Sequence[float]) -> list[Array]:
    """Return each pool row's probability of being a member, for each expected number of members.

    `pool` must be in ascending order, and have more rows than each number. The probabilities come
    from the mixtures that `remaining` counts with, and are averaged over them. A constant is added
    to the log odds so that the probabilities sum to the given number.
    """
    if len(pool) == 0:
        return [pool for _ in counts]
    scores, mass = binned(pool)
    odds = [fit_shape(yes, no, pool, clouds).log_odds(scores) for clouds in CLOUDS]
    found = []
    for count in counts:
        parts = [expit(part + _shift(part, mass, max(count, LEAST))) for part in odds]
        found.append(np.interp(pool, scores, np.mean(parts, axis=0)))
    return found


def _shift(odds: Array, mass: Array, count: float) -> float:
    """Return the number to add to log odds so that `count` members are expected."""
    ends = -odds.max() - 50, -odds.min() + 50
    return float(brentq(lambda shift: mass @ expit(odds + shift) - count, *ends))


def hardly_known(threshold: Threshold) -> bool:
    """Return whether the answers hardly tell how many members a threshold misses."""
    low, high = threshold.misses_interval
    return high - low > WIDE
