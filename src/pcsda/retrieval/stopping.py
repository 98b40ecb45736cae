"""The decision whether enough of the class has been found."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass

from scipy.stats import hypergeom

from .book import LabelBook
from .estimates import CONDITION, LEVEL, SOURCE, Remaining


@dataclass(frozen=True)
class Stop:
    """The decision whether a session may stop; ``bool(stop)`` is true if it may.

    Attributes
    ----------
    stop : bool
        Whether the session may stop.
    reason : str
        The reason in words.
    basis : {"audit", "model", "none"}
        Where the bound comes from: a random audit, the model, or "none" if there is none yet. A
        bound from the model holds if the rest of the class resembles what was found.
    recall_low : float
        Lower bound, at 95% confidence, on the share of the class that has been found.
    audit_rows : int
        Size of a random audit that would confirm the goal without the model if the audit finds no
        member; 0 if the size is unknown or no audit is needed.

    Examples
    --------
    >>> import numpy as np
    >>> from pcsda import SearchSession
    >>> session = SearchSession(np.eye(30))
    >>> bool(session.stop())
    False
    """

    stop: bool
    reason: str
    basis: str
    recall_low: float
    audit_rows: int = 0

    def __bool__(self) -> bool:
        return self.stop

    def __str__(self) -> str:
        return self.reason


def rows_to_rule_out(pool: int, members: int) -> int:
    """Return the size of a random audit that could rule out that `members` members are left.

    An audit of this size rules it out, at 95% confidence, if it finds no member.
    """
    members = min(max(members, 1), pool)
    rows = range(1, pool - members + 2)
    tail = (1 - LEVEL) / 2
    return rows[
        bisect_left(rows, True, key=lambda drawn: hypergeom.pmf(0, pool, members, drawn) <= tail)
    ]


def audit_offer(found: int, pool: int, recall: float) -> tuple[int, int]:
    """Return the sizes of two random audits that show how few members are missing.

    The first, if it finds no member, rules out that as many members are missing as were found. The
    second, if it finds no member, confirms that the share found is at least `recall`.
    """
    allowed = int(found * (1 - recall) / recall + 1e-9)
    return rows_to_rule_out(pool, found), rows_to_rule_out(pool, allowed + 1)


def without_finds(book: LabelBook) -> Stop:
    """Decide for a session without finds: go on until every row has been shown."""
    if len(book.free()):
        return Stop(False, f"Go on: {book.no_example()}.", "none", 0.0)
    skipped = len(book.rows(None))
    which = "row" if book.gallery.usable.all() else "finite row"
    rest = f"{skipped} were skipped" if skipped else f"every {which} has an answer"
    reason = f"Stop: no {which} was answered yes, and {rest}. {book.uncovered()}".strip()
    return Stop(True, reason, "none", float(skipped == 0))


def decide(
    book: LabelBook,
    found: int,
    left: Remaining,
    recall: float,
    by_model: Callable[[], Remaining],
) -> Stop:
    """Compare the bound with the goal; explain the basis of the bound and how to improve it.

    `found` and `left` are the numbers of members found and left, `recall` is the goal, and
    `by_model` returns the number left by the model.
    """
    free, skipped = len(book.free()), len(book.rows(None))
    low = found / (found + left.count_high)
    uncovered = book.uncovered()
    stop = low >= recall or not free
    reason = (
        f"{'Stop' if stop else 'Go on'}: {found} found, at most {left.count_high} left according "
        f"to {SOURCE[left.basis]}, so at least {100 * low:.3g}% found (goal: {100 * recall:.4g}%)"
        if left.n_rows
        else f"Stop: {found} found, and every {'finite ' if uncovered else ''}row has an answer"
    )
    enough = 0
    if left.n_rows and left.basis == "model":
        twice, enough = audit_offer(found, left.n_rows, recall)
        reason += f". The model assumes that {CONDITION}"
        if low >= recall:
            reason += (
                " and cannot know of members of another kind. To check, answer random rows: "
                f"{twice} without a find rule out that as many again are missing, and {enough} "
                "reach the goal without the model"
            )
        elif free:
            reason += "; answers to random rows would give a safer bound"
    elif low < recall and left.count == 0:
        enough = audit_offer(found, left.n_rows, recall)[1]
        reason += (
            f". {enough} further random rows without a find would reach the goal. The model says "
            f"at most {by_model().count_high} left, if {CONDITION}"
        )
    if skipped and low < recall:
        shown = "" if free else "No other row is left to show: "
        rows = "row counts" if skipped == 1 else "rows count"
        reason += f". {shown}{skipped} skipped {rows} as unanswered"
    reason = f"{reason}. {uncovered}".strip()
    return Stop(stop, reason, left.basis, low, enough)
