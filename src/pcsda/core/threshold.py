"""Thresholds for log-likelihood ratios, chosen on held-out rows, and their error rates.

A :class:`Tail` is fitted to the scores of each class. The tails of both classes give the error
rates of a :class:`Threshold`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape

import numpy as np
from scipy.special import betaincinv

from .decision import bayes_threshold
from .linalg import Array, Ints, Mask
from .warning import number_of, warn

Interval = tuple[float, float]
# Confidence level of the intervals.
LEVEL = 0.9
# The tail holds this share of the rows, but at least TAIL_ROWS and at most half of them. If
# identities are known, it holds at most a quarter: nearer to the median, excesses are less
# exponential.
TAIL_SHARE, TAIL_ROWS = 0.05, 20
# Correlation between scores of the same identity; 0.3 to 0.6 on ORL, ISOLET and synthetic data.
ALIKE = 0.5
# The rows of a group that the user names count as one row, as in the calibration. With `ALIKE`
# instead, intervals of 90% held the rate of false alarms in 78% of trials with nearly equal rows.
AS_ONE = 1.0
# Smaller rates are not printed exactly, because no realistic number of rows could confirm them.
NEGLIGIBLE = 1e-4
# A threshold below zero may rise until it is expected to miss this share of the positives.
SPARED = 0.001
# What stands for a rate if there are no rows of its class.
UNKNOWN = "an unknown share of"
# Larger ratios are clipped, so that their mean cannot overflow.
FARTHEST = 1e100


@dataclass(frozen=True)
class Threshold:
    """Threshold on the log-likelihood ratio, with its expected error rates.

    Attributes
    ----------
    value : float
        Accept a row if its log-likelihood ratio is at least this.
    false_alarms, misses : float
        Expected share of negatives accepted, and expected share of positives rejected. A share is
        NaN if there are no rows of its class.
    false_alarms_interval, misses_interval : tuple of two floats
        90% Clopper-Pearson intervals for these rates.
    n_negatives, n_positives : int
        Number of rows used to estimate the rates.
    rule : str
        How the threshold was chosen, in words.
    independent_negatives, independent_positives : float or None
        If rows of a group were left out together, the number of independent rows on which the
        intervals rest: the number of groups if all have the same weight, fewer otherwise.

    Examples
    --------
    >>> from pcsda import PCSDA
    >>> from pcsda.datasets import make_class_specific
    >>> data = make_class_specific(2000, random_state=0)
    >>> model = PCSDA(random_state=0).fit(data.data, data.target)
    >>> threshold = model.choose_threshold(max_false_alarms=0.01)
    >>> threshold.n_negatives, threshold.rule
    (1800, 'at most 1% false alarms, on left-out rows')
    """

    value: float
    false_alarms: float
    false_alarms_interval: tuple[float, float]
    misses: float
    misses_interval: tuple[float, float]
    n_negatives: int
    n_positives: int
    rule: str
    # Absent from older files, which have the defaults of the class.
    independent_negatives: float | None = None
    independent_positives: float | None = None

    def __str__(self) -> str:
        negatives = number_of(self.n_negatives, "negative")
        negatives += _worth(self.n_negatives, self.independent_negatives)
        positives = number_of(self.n_positives, "positive")
        positives += _worth(self.n_positives, self.independent_positives)
        alarms = _expected("false alarms", self.false_alarms, self.false_alarms_interval, negatives)
        misses = _expected("misses", self.misses, self.misses_interval, positives)
        return (
            f"accept a log-likelihood ratio of at least {self.value:.4g}. Expect {alarms} and "
            f"{misses}. Rule: {self.rule}"
        )

    def __repr__(self) -> str:
        return f"<Threshold: {self}>"

    def _repr_html_(self) -> str:
        """Return an HTML table of the expected error rates, for notebooks."""
        negatives = self.n_negatives, self.independent_negatives
        positives = self.n_positives, self.independent_positives
        rows = [
            ("false alarms", self.false_alarms, self.false_alarms_interval, *negatives),
            ("misses", self.misses, self.misses_interval, *positives),
        ]
        cells = "".join(
            f"<tr><td>{what}</td><td>{_percent(rate, interval)}</td>"
            f"<td>{count:,}{_worth(count, worth)}</td></tr>"
            for what, rate, interval, count, worth in rows
        )
        return (
            f"<table><caption>Accept a log-likelihood ratio of at least {self.value:.4g} "
            f"({escape(self.rule)})</caption><tr><th></th><th>expected</th><th>rows</th></tr>"
            f"{cells}</table>"
        )


Threshold.__module__ = "pcsda"  # model files use this name


def _expected(errors: str, rate: float, interval: Interval, rows: str) -> str:
    if math.isnan(rate):
        return f"{UNKNOWN} {errors} ({rows})"
    value, ends = _shares(rate, interval)
    return f"{value} {errors} ({ends}; {rows})"


def _percent(rate: float, interval: Interval) -> str:
    return UNKNOWN if math.isnan(rate) else "{} ({})".format(*_shares(rate, interval))


def _shares(rate: float, interval: Interval) -> tuple[str, str]:
    """Return a rate and its interval, both in percent."""
    value, low, high = (0.0 if end < NEGLIGIBLE else end for end in (rate, *interval))
    shown = "under 0.01" if value < rate else _written(value)
    return f"{shown}%", f"{_written(low)} to {_written(high)}%"


def _worth(count: int, independent: float | None) -> str:
    """Say how many independent rows the rows of groups are worth, if fewer than there are."""
    if independent is None or independent >= count - 0.5:
        return ""
    return f" in groups, worth {independent:.3g} independent ones"


def _written(rate: float) -> str:
    """Format a rate in percent with two digits, or as 100 if it rounds to 100%."""
    return f"{100 * rate:.2g}" if rate < 0.995 else "100"


@dataclass(frozen=True)
class Tail:
    """Scores of one class, with the sign chosen so that high scores are errors.

    The rate of a value is the share of rows whose scores reach the value. It is found by counting,
    except among the highest scores, called the tail. There, the excesses of the scores over the
    start of the tail are described by an exponential distribution. The tails of a log-likelihood
    ratio decay at least as fast as an exponential, and an order statistic of few rows would be
    noisy. If identities are known, the rate also allows for the uncertainty of the mean excess:
    averaged over the posterior of the mean, the exponential distribution becomes a Pareto
    distribution. Without this allowance, a threshold chosen for a small rate would, on average, be
    exceeded by new rows more often than at that rate.

    Attributes
    ----------
    scores : array of shape (n,)
        Scores in descending order.
    shares : array of shape (n,)
        For each score, the share of rows with at least this score.
    start, mean_excess, share : float
        Score at which the tail begins, mean excess over this score, and share of rows in the tail.
    n_effective : float
        Number of independent rows of equal weight that would carry the same information.
    n_tail : float
        Number of independent rows that would carry the same information as the tail; infinite if
        identities are unknown.
    """

    scores: Array
    shares: Array
    start: float
    mean_excess: float
    share: float
    n_effective: float
    n_tail: float = math.inf

    @classmethod
    def of(
        cls,
        scores: Array,
        weights: Array | None = None,
        identity: Ints | None = None,
        together: Ints | None = None,
    ) -> Tail:
        """Sort the scores and fit their tail.

        `identity`, if given, holds the identity of each row. `together`, if given instead, holds
        its group, which changes only `n_effective`.
        """
        order = np.argsort(-scores, kind="stable")
        scores = np.clip(scores[order], -FARTHEST, FARTHEST)
        weight = np.ones(len(scores)) if weights is None else weights[order]
        owner = None if identity is None else identity[order]
        shares = np.cumsum(weight) / weight.sum()
        worth = n_independent(weight, owner)
        if together is not None:
            worth = n_independent(weight, together[order], AS_ONE)
        count = int(np.searchsorted(shares, TAIL_SHARE, side="right"))
        count = min(max(count, TAIL_ROWS), len(scores) // (2 if identity is None else 4))
        start = float(scores[count])
        beyond = int(np.searchsorted(-scores, -start))  # strictly above, without ties
        share = float(shares[beyond - 1]) if beyond else 0.0
        excess = (
            float(np.average(scores[:beyond] - start, weights=weight[:beyond])) if beyond else 0.0
        )
        n_tail = math.inf
        if owner is not None and beyond:
            n_tail = n_independent(weight[:beyond], owner[:beyond])
        return cls(scores, shares, start, excess, share, worth, n_tail)

    def rate(self, value: float) -> float:
        """Return the expected share of rows with a score of at least `value`."""
        if value > self.start:
            if self.mean_excess == 0:
                return 0.0
            beyond = (value - self.start) / self.mean_excess
            if math.isfinite(self.n_tail):
                beyond = self.n_tail * math.log1p(beyond / self.n_tail)
            return self.share * math.exp(-beyond)
        count = int(np.searchsorted(-self.scores, -value, side="right"))
        return float(self.shares[count - 1]) if count else 0.0

    def value(self, rate: float) -> float:
        """Return the smallest value whose rate does not exceed the given rate.

        Where rates are found by counting, all values between two scores have the same rate, and the
        midpoint is returned.
        """
        if rate < self.share:
            beyond = math.log(self.share / rate)
            if math.isfinite(self.n_tail):
                beyond = self.n_tail * math.expm1(beyond / self.n_tail)
            return self.start + self.mean_excess * beyond
        count = int(np.searchsorted(self.shares, rate * (1 + 1e-12), side="right"))
        if count == len(self.scores):
            return float(self.scores[-1])
        above = int(np.searchsorted(-self.scores, -self.scores[count]))  # without ties
        if above == 0:
            return float(np.nextafter(self.scores[0], np.inf))
        return float((self.scores[above - 1] + self.scores[count]) / 2)


def n_independent(weights: Array, identity: Ints | None = None, alike: float = ALIKE) -> float:
    """Return how many independent rows of equal weight carry as much information as the given rows.

    Scores of the same identity correlate by `alike`.
    """
    alone = float(weights @ weights)
    members = None if identity is None else np.unique(identity, return_inverse=True)[1]
    if members is None or members.max(initial=-1) + 1 == len(weights):
        return float(weights.sum()) ** 2 / alone
    masses = np.bincount(members, weights)
    return float(weights.sum()) ** 2 / float(alike * masses @ masses + (1 - alike) * alone)


def choose_threshold(
    scores: Array,
    positive: Mask,
    weights: Array | None = None,
    together: Ints | None = None,
    *,
    max_false_alarms: float | None = None,
    max_misses: float | None = None,
    prior: float | None = None,
    cost_miss: float = 1.0,
    cost_false_alarm: float = 1.0,
    source: str = "held-out rows",
    identity: Ints | None = None,
    up_to_zero: bool = False,
) -> Threshold:
    """Choose a threshold by one criterion, and estimate both of its error rates.

    Parameters
    ----------
    scores : array of shape (n,)
        Log-likelihood ratios of rows that the model has not seen.
    positive : boolean array of shape (n,)
    weights : array of shape (n,), optional
        How many rows each row represents; must be positive.
    together : array of integers, optional
        Group of each row, if rows of a group resemble each other. The intervals become wider, but
        neither the threshold nor the rates change.
    max_false_alarms, max_misses, prior, cost_miss, cost_false_alarm : float
        The criterion, which :func:`check_criterion` has checked.
    source : str
        Description of the rows, as it appears in `rule`.
    identity : array of integers, optional
        Identity of each negative, if several rows share one; see :class:`Tail`.
    up_to_zero : bool
        Whether to raise a threshold for `max_false_alarms` that is below zero; see :func:`raised`.

    Examples
    --------
    >>> import numpy as np
    >>> from pcsda.core.threshold import choose_threshold
    >>> scores, positive = np.arange(-500.0, 500) / 100, np.arange(1000) >= 500
    >>> choose_threshold(scores, positive, max_misses=0.1).value
    0.495
    """
    if together is not None and len(np.unique(together)) == len(together):
        together = None  # groups of single rows say nothing
    negatives, positives = _tails(scores, positive, weights, together, identity)
    apart = "" if together is None else "independent "
    if max_false_alarms is not None:
        assert negatives is not None
        _warn_if_fine("max_false_alarms", max_false_alarms, negatives, f"{apart}negative")
        value = negatives.value(max_false_alarms)
        if up_to_zero and positives is not None:
            value = raised(value, positives)
        rule = f"at most {100 * max_false_alarms:.4g}% false alarms"
    elif max_misses is not None:
        assert positives is not None
        _warn_if_fine("max_misses", max_misses, positives, f"{apart}positive")
        value = -positives.value(max_misses)
        rule = f"at most {100 * max_misses:.4g}% misses"
    else:
        assert prior is not None
        value = bayes_threshold(prior, cost_miss=cost_miss, cost_false_alarm=cost_false_alarm)
        rule = (
            f"prior {prior:.4g}, a miss costs {cost_miss:.4g}, a false alarm {cost_false_alarm:.4g}"
        )
    counts = int(np.sum(~positive)), int(np.sum(positive))
    rates = _estimated(negatives, positives, value)
    worth = []
    if together is not None:
        worth = [None if tail is None else tail.n_effective for tail in (negatives, positives)]
    return Threshold(value, *rates, *counts, f"{rule}, on {source}", *worth)


def error_rates(
    value: float,
    scores: Array,
    positive: Mask,
    weights: Array | None = None,
    together: Ints | None = None,
) -> tuple[float, Interval, float, Interval]:
    """Return the false alarms and the misses of a threshold, each followed by its interval.

    The arrays are as in :func:`choose_threshold`.
    """
    return _estimated(*_tails(scores, positive, weights, together), value)


def raised(value: float, positives: Tail) -> float:
    """Raise a threshold below zero to zero, or as far as hardly any positive is lost.

    `positives` holds the scores with their signs reversed. If the classes lie far apart, the
    threshold for a rate of false alarms is far below zero, in a gap where no row of either class
    lies. It would accept rows that resemble neither class, such as noise.
    """
    return max(value, min(0.0, -positives.value(SPARED)))


def check_criterion(
    max_false_alarms: float | None,
    max_misses: float | None,
    prior: float | None,
    cost_miss: float,
    cost_false_alarm: float,
) -> None:
    """Raise ValueError unless exactly one valid criterion is given.

    The criterion is a rate of false alarms, a rate of misses, or a prior with costs.
    """
    criteria = {"max_false_alarms": max_false_alarms, "max_misses": max_misses, "prior": prior}
    given = [name for name, asked in criteria.items() if asked is not None]
    if len(given) != 1:
        raise ValueError(
            f"{' and '.join(given) or 'no criterion'} given; choose_threshold takes exactly one of "
            "max_false_alarms, max_misses and prior"
        )
    name, rate = given[0], criteria[given[0]]
    number = not isinstance(rate, bool) and isinstance(rate, (int, float, np.number))
    if not number or not 0 < float(rate or 0) < 1:
        raise ValueError(f"{name}={rate!r} must be a number between 0 and 1, both excluded")
    if prior is None and (cost_miss, cost_false_alarm) != (1, 1):
        raise ValueError(
            f"cost_miss={cost_miss} and cost_false_alarm={cost_false_alarm} have no effect without "
            "a prior; give prior= too, or leave out the costs"
        )
    if prior is not None:  # refuses costs that are not above zero
        bayes_threshold(prior, cost_miss=cost_miss, cost_false_alarm=cost_false_alarm)


def interval(rate: float, n_rows: float, level: float = LEVEL) -> Interval:
    """Return the Clopper-Pearson interval for an error rate; `n_rows` may be fractional."""
    errors, tail = rate * n_rows, (1 - level) / 2
    low = betaincinv(errors, n_rows - errors + 1, tail) if errors > 0 else 0.0
    high = betaincinv(errors + 1, n_rows - errors, 1 - tail) if errors < n_rows else 1.0
    return float(low), float(high)


def _tails(
    scores: Array,
    positive: Mask,
    weights: Array | None,
    together: Ints | None,
    identity: Ints | None = None,
) -> tuple[Tail | None, Tail | None]:
    """Return the tails of the negatives and of the positives; None for a class without rows."""
    tails: list[Tail | None] = []
    for members, sign in ((~positive, 1.0), (positive, -1.0)):
        weight = None if weights is None else weights[members]
        owner = identity if sign > 0 else None
        group = None if together is None else together[members]
        known = sign * scores[members], weight, owner, group
        tails.append(Tail.of(*known) if members.any() else None)
    negatives, positives = tails
    return negatives, positives


def _estimated(
    negatives: Tail | None, positives: Tail | None, value: float
) -> tuple[float, Interval, float, Interval]:
    return (*_rate(negatives, value), *_rate(positives, float(np.nextafter(-value, np.inf))))


def _rate(tail: Tail | None, value: float) -> tuple[float, Interval]:
    if tail is None:
        return math.nan, (0.0, 1.0)
    rate = tail.rate(value)
    return rate, interval(rate, tail.n_effective)


def _warn_if_fine(name: str, rate: float, tail: Tail, kind: str) -> None:
    """Warn if there are fewer than ``1 / rate`` rows, too few to show the rate."""
    if tail.n_effective * rate >= 1 - 1e-9:
        return
    seen = number_of(tail.n_effective, kind, digits=4)
    warn(
        f"{name}={rate:g} is below {1 / tail.n_effective:.2g}, the smallest rate that {seen} can "
        "show; the threshold extrapolates their tail. Ask for a higher rate, or give at least "
        f"{number_of(math.ceil(1 / rate - 1e-9), kind)}",
    )
