"""Random audits: samples of unlabelled rows that bound the number of members left to find.

A bound from an audit does not depend on the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .estimates import Remaining, count_by_audit
from .store import Audit, Entry, Store


def draw_audit(
    store: Store, free: Sequence[Any], n: int, history: Sequence[Entry], rng: np.random.Generator
) -> list[Any]:
    """Draw random rows for an audit, record them in the store, and return their ids.

    If only rows of the last audit have been answered since it was drawn, its unanswered rows come
    first, and new rows extend it because they come from the same pool. Otherwise a new audit
    begins.
    """
    audits = store.audits()
    last = audits[-1] if audits else Audit([], 0, 0)
    since = {entry.id for entry in history if entry.number > last.after}
    joins = bool(audits) and since <= set(last.ids)
    open_ids = set(free)
    waiting = [name for name in last.ids if name in open_ids] if joins else []
    drawn = set(waiting)
    others = [name for name in free if name not in drawn]
    fresh = min(max(n - len(waiting), 0), len(others))
    chosen = [others[place] for place in rng.choice(len(others), fresh, replace=False)]
    if chosen and joins:
        store.draw(chosen, last.pool, last.after, extend=True)
    elif chosen:
        store.draw(chosen, len(free), store.state()[0], extend=False)
    return [*waiting, *chosen][:n]


def audited_remaining(
    audits: Sequence[Audit], history: Sequence[Entry], values: Mapping[Any, bool | None]
) -> Remaining | None:
    """Estimate how many members are left, from the largest fully answered audit.

    Return None if no audit is fully answered. A skipped row counts as a member of the class, so
    that skipping cannot hide members.
    """
    whole = [audit for audit in audits if all(name in values for name in audit.ids)]
    if not whole:
        return None
    # Chosen by size, not by outcome: the lowest of several bounds would lose its confidence level.
    best = max(reversed(whole), key=lambda audit: len(audit.ids))
    return _bound(best, best.ids, history, values)


def unfinished_audit(
    audits: Sequence[Audit], history: Sequence[Entry], values: Mapping[Any, bool | None]
) -> Remaining | None:
    """Estimate how many members are left, from the answers so far in the last audit.

    Return None if the last audit has no answers or is fully answered. The rows answered first may
    not be a random sample, so this estimate may refute another one but cannot confirm it.
    """
    answered = [name for name in audits[-1].ids if name in values] if audits else []
    if not answered or len(answered) == len(audits[-1].ids):
        return None
    return _bound(audits[-1], answered, history, values)


def _bound(
    audit: Audit, drawn: Sequence[Any], history: Sequence[Entry], values: Mapping[Any, bool | None]
) -> Remaining:
    """Bound the number of members left, given the answers to the `drawn` rows of an audit."""
    hits = sum(values[name] is not False for name in drawn)
    count, low, high = count_by_audit(audit.pool, len(drawn), hits)
    earlier = {entry.id for entry in history if entry.number <= audit.after}
    since = [value for name, value in values.items() if name not in earlier and value is not None]
    found, left = sum(since), max(audit.pool - len(since), 0)
    low, high = (min(max(end - found, 0), left) for end in (low, high))
    note = f"Of {audit.pool} rows, {len(drawn)} were drawn at random and answered, {hits} yes."
    return Remaining(float(min(max(count - found, low), high)), low, high, left, "audit", note)
