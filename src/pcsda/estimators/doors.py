"""The threshold above which a bank names a row, so that strangers stay unnamed (MATH 17, 18)."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..core.linalg import Array, Ints
from ..core.threshold import (
    Threshold,
    check_criterion,
    choose_threshold,
    interval,
    n_independent,
)
from ..core.warning import number_of, warn

# If labels reject this share of their own left-out rows, the bank names hardly any row.
MANY_MISSES = 0.9


@dataclass(frozen=True)
class Door:
    """Scores from which a bank's threshold is chosen.

    Rows of the bank serve as strangers when all rows of their label are left out.

    Attributes
    ----------
    best : array of shape (n,)
        Best score of each stranger's row among the other labels.
    identity : array of shape (n,)
        The label, or the block of background rows, that each stranger's row belongs to.
    own : array of shape (m,)
        Scores of left-out rows for their own labels.
    n_met : float
        Number of labels that each stranger was scored against.
    """

    best: Array
    identity: Ints
    own: Array
    n_met: float

    @classmethod
    def empty(cls) -> Door:
        """Return a door without scores."""
        none = np.zeros(0)
        return cls(none, none.astype(np.intp), none, 0.0)

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Door:
        """Restore a door from a stored state that contains the door's attributes."""
        return cls(state["best"], state["identity"], state["own"], float(state["n_met"]))

    def choose(
        self, rate: float, n_labels: int, *, quiet: bool = False, up_to_zero: bool = False
    ) -> Threshold:
        """Choose the threshold at which a share `rate` of strangers is accepted by some label.

        With `up_to_zero`, a threshold below zero is raised as far as known rows allow.

        With more labels, it is more likely that one of them accepts a stranger. If the bank has
        `n_labels` labels but strangers were scored against fewer, the threshold allows for that.
        """
        check_criterion(rate, None, None, 1.0, 1.0)
        people = len(np.unique(self.identity))
        if not quiet:
            seen = f"the bank's own {people} labels with {len(self.best)} rows"
            # Rows of one label are alike, so ten labels of a hundred rows show no rate of 1%.
            n_rows = n_independent(np.ones(len(self.best)), self.identity)
            _warn_of_low_rate(rate, n_rows, seen, "rows of strangers as strangers=")
        power = self.n_met / n_labels
        among_met = -math.expm1(power * math.log1p(-rate))
        found = _of_scores(self.best, self.own, among_met, self.identity, up_to_zero)
        expected = -math.expm1(math.log1p(-min(found.false_alarms, 1 - 1e-12)) / power)
        return replace(
            found,
            false_alarms=expected,
            false_alarms_interval=interval(expected, people),
            rule=f"at most {100 * rate:.4g}% of strangers accepted, on {people} identities of the "
            f"bank left out as strangers, for {n_labels} labels",
        )

    def of_strangers(self, best: Array, rate: float) -> Threshold:
        """Choose the threshold at which a share `rate` of given strangers is accepted.

        `best` holds the best score of each stranger among all labels.
        """
        check_criterion(rate, None, None, 1.0, 1.0)
        _warn_of_low_rate(rate, len(best), number_of(len(best), "stranger"), "strangers")
        found = _of_scores(best, self.own, rate)
        rule = f"at most {100 * rate:.4g}% of strangers accepted, on the {len(best)} given"
        return replace(found, rule=rule)


def _warn_of_low_rate(rate: float, n_rows: float, seen: str, needed: str) -> None:
    """Warn if `n_rows` independent rows of strangers are too few to show a rate of false alarms.

    In the message, `seen` describes these rows, and `needed` the rows that the user should give.
    """
    if n_rows * rate < 1 - 1e-9:
        warn(
            f"max_false_alarms={rate:g} is below {1 / n_rows:.2g}, the smallest rate that {seen} "
            "can show; the threshold extrapolates their tail. Ask for a higher rate, or give at "
            f"least {math.ceil(1 / rate - 1e-9)} {needed}",
        )


def warn_of_misses(threshold: Threshold) -> None:
    """Warn if labels reject most of their own rows at this threshold, so few rows are named."""
    if threshold.misses >= MANY_MISSES:
        warn(
            f"at the threshold of {threshold.value:.3g}, labels reject "
            f"{threshold.misses:.0%} of their own left-out rows, so hardly any row is named: the "
            "labels differ too little for this rate, or are too few to show a threshold for it "
            f"({threshold.rule}). Ask for a higher rate (choose_threshold, or pcsda identify "
            "--max-false-alarms), give choose_threshold rows of strangers, or add rows and labels",
        )


def _of_scores(
    best: Array,
    own: Array,
    rate: float,
    identity: Ints | None = None,
    up_to_zero: bool = False,
) -> Threshold:
    scores = np.append(best, own)
    positive = np.arange(len(scores)) >= len(best)
    known: Any = {"identity": identity, "up_to_zero": up_to_zero}
    # This module has its own message.
    with warnings.catch_warnings(action="ignore", category=UserWarning):
        return choose_threshold(scores, positive, max_false_alarms=rate, **known)
