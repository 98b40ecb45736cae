"""Strategies for choosing which rows to show next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..core.linalg import Array, Floats, Ints

STRATEGIES = ("likely", "uncertain", "diverse", "mixed", "random")
# "diverse" chooses n rows among the CANDIDATES * n most likely ones.
CANDIDATES = 5


def likely(scores: Array, pool: Ints, n: int) -> Ints:
    """Return the `n` pool rows with the highest scores, best first; ties keep row order."""
    values = scores[pool]
    if n < len(pool):
        least = np.partition(values, len(pool) - n)[len(pool) - n]
        pool, values = pool[values >= least], values[values >= least]
    return np.asarray(pool[np.argsort(-values, kind="stable")][:n])


def uncertain(odds: Array, pool: Ints, n: int) -> Ints:
    """Return the `n` pool rows whose log odds are closest to zero."""
    return likely(-np.abs(odds), pool, n)


def diverse(scores: Array, pool: Ints, n: int, take: Callable[[Ints], Floats]) -> Ints:
    """Return `n` likely rows that differ from each other.

    The first is the most likely row. Each later one is, among the most likely rows, the farthest
    from those chosen before it.
    """
    candidates = likely(scores, pool, CANDIDATES * n)
    if len(candidates) <= n:
        return candidates
    rows = take(candidates).astype(np.float64)
    rows -= rows.mean(axis=0)
    rows /= max(float(np.abs(rows).max()), np.finfo(float).tiny)
    chosen, distance = [0], np.full(len(rows), np.inf)
    while len(chosen) < n:
        distance = np.minimum(distance, ((rows - rows[chosen[-1]]) ** 2).sum(axis=1))
        distance[chosen] = -1.0
        chosen.append(int(distance.argmax()))
    return np.asarray(candidates[chosen])


def mixed(parts: list[tuple[float, Any]], pool: Ints, n: int) -> Ints:
    """Let several strategies choose `n` rows together, without repetition.

    `parts` holds pairs of a share and a function. The function chooses that share of the rows.
    """
    chosen: list[int] = []
    left = pool
    for share, choose in parts:
        wanted = min(n - len(chosen), max(1, round(share * n))) if share < 1 else n - len(chosen)
        if wanted <= 0 or len(left) == 0:
            continue
        found = choose(left, wanted)
        chosen += found.tolist()
        left = np.setdiff1d(left, found, assume_unique=True)
    return np.asarray(chosen, dtype=np.intp)
