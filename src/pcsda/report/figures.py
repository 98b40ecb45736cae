"""Compute figures of merit with their intervals and meanings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score, roc_auc_score

from .. import metrics
from ..core.linalg import Array, Ints, Mask
from ..core.threshold import interval as binomial_interval
from ..scoring import Scorer

# How to compute a figure: its key, name and meaning, a flag for rates, and the metric.
Spec = tuple[str, str, str, bool, Callable[..., Any]]
# Arguments of a metric: truth, scores and identities.
Trials = tuple[NDArray[Any], Array, NDArray[Any] | None]

# Number of best scores whose precision is reported.
BEST = 10
# False-alarm rate at which misses are reported; it needs at least 1 / FMR negatives.
FMR = 0.01
# Maximum number of scores in all resamples together; more would take too long.
AFFORDABLE = 50_000_000
LEAST_RESAMPLES = 50
# Figures at the decision threshold, and figures whose metric returns its own threshold.
AT_THRESHOLD, WITH_THRESHOLD = ("misses", "false_alarms", "cost"), ("eer", "fnmr", "min_cost")
# Figures that are proportions of rows, with the rows that they count: True for positives, False for
# negatives, None for all rows.
COUNTED = {"misses": True, "false_alarms": False, "rank_1": None, "rank_5": None}
# Rates at a threshold or rank that itself depends on the rows. Their intervals are bootstrapped
# unless the rate is 0 or 1.
RESAMPLED = ("eer", "fnmr", "precision_at_k")


@dataclass(frozen=True)
class Figure:
    """One figure of merit with its interval.

    Attributes
    ----------
    key, name, meaning : str
    value, low, high : float
    is_rate : bool
        Whether the value is a proportion, shown in percent.
    threshold : float or None
        Log-likelihood ratio used as the threshold for this figure, or None if there was none.
    """

    key: str
    name: str
    value: float
    low: float
    high: float
    is_rate: bool
    meaning: str
    threshold: float | None = None


def percent(share: float) -> str:
    """Format a proportion in percent, with more digits if the proportion is small."""
    digits = 0 if share in (0, 1) else 1 if share >= 0.01 else 2
    return f"{100 * share:.{digits}f}%"


def written(name: str, value: Any) -> Any:
    """Format a figure for one label in a bank, as shown in the report and by the commands."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, int):
        return f"{value:,}"
    return percent(value) if name == "eer" else f"{value:.3f}"


def value_of(figure: Figure) -> tuple[str, str]:
    """Format a figure and its interval as two strings."""
    show = percent if figure.is_rate else "{:.3f}".format
    return show(figure.value), f"{show(figure.low)} to {show(figure.high)}"


@dataclass(frozen=True)
class Settings:
    """Settings of an evaluation: the application, the intervals and the seed."""

    prior: float
    cost_miss: float
    cost_false_alarm: float
    threshold: float
    level: float
    n_resamples: int
    seed: int
    verbose: bool

    @property
    def application(self) -> dict[str, Any]:
        """Prior and costs, as keyword arguments for the metrics."""
        return {name: getattr(self, name) for name in ("prior", "cost_miss", "cost_false_alarm")}

    def resamples(self, n_scores: int) -> int:
        """Return how many resamples are affordable for this number of scores."""
        return min(self.n_resamples, max(LEAST_RESAMPLES, AFFORDABLE // n_scores))


def settle_threshold(
    scorer: Scorer,
    prior: float | None,
    cost_miss: float,
    cost_false_alarm: float,
    threshold: float | None,
) -> tuple[float, float]:
    """Return the prior and the threshold of an evaluation.

    The model's own threshold is used only if neither threshold, prior nor costs are given.
    Otherwise, unless a threshold is given, the threshold follows from the prior and the costs.
    """
    chosen = scorer.threshold
    if threshold is None and prior is None and chosen and cost_miss == cost_false_alarm == 1:
        threshold = chosen.value
    if prior is None:
        prior = 0.5 if scorer.is_bank else scorer.prior()
    # Check prior and costs, whichever threshold is used.
    usual = metrics.bayes_threshold(prior, cost_miss=cost_miss, cost_false_alarm=cost_false_alarm)
    threshold = usual if threshold is None else float(threshold)
    if not np.isfinite(threshold):
        raise ValueError(f"threshold={threshold} must be a finite number")
    return prior, threshold


def figures(
    positive: Mask, llr: Array, groups: NDArray[Any] | None, settings: Settings
) -> list[Figure]:
    """Return the figures of merit for scored trials: errors, then ranking, then calibration."""
    s = settings
    # Each resample sorts the scores, which is fastest if they are almost sorted.
    order = np.argsort(-llr, kind="stable")
    positive, llr = positive[order], llr[order]
    groups = None if groups is None else groups[order]
    misses, alarms = (partial(_rate, threshold=s.threshold, miss=miss) for miss in (True, False))
    n_best = min(BEST, int(positive.sum()))
    best = partial(metrics.precision_at_k, k=n_best)
    precision = average_precision_score
    cost = partial(metrics.detection_cost, threshold=s.threshold, **s.application)
    least = partial(metrics.min_detection_cost, **s.application)
    eer, cllr, min_cllr = metrics.equal_error_rate, metrics.cllr, metrics.min_cllr
    area = "chance that a positive outscores a negative"
    loss = "loss of the log-likelihood ratios; 1 is useless"
    specs: list[Spec] = [
        ("eer", "Equal error rate", "misses and false alarms are equally frequent", True, eer),
        ("misses", "Misses", "positives rejected at the threshold", True, misses),
        ("false_alarms", "False alarms", "negatives accepted at the threshold", True, alarms),
        ("precision_at_k", f"Precision at {n_best}", "positives among the best", True, best),
        ("average_precision", "Average precision", "precision over the ranking", False, precision),
        ("roc_auc", "Area under the ROC curve", area, False, roc_auc_score),
        ("cost", "Detection cost", "1 is no better than ignoring the scores", False, cost),
        ("min_cost", "Minimum detection cost", "at the best threshold", False, least),
        ("cllr", "Cllr (bits)", loss, False, cllr),
        ("min_cllr", "Minimum Cllr (bits)", "the same with perfect calibration", False, min_cllr),
    ]
    if (~positive).sum() >= 1 / FMR:
        at, name = partial(metrics.fnmr_at_fmr, fmr=FMR), f"Misses at {FMR:.0%} false alarms"
        kind = "stricter" if at(positive, llr)[1] > s.threshold else "laxer"
        specs.insert(3, ("fnmr", name, f"at a {kind} threshold", True, at))
    return [_figure(spec, (positive, llr, groups), s) for spec in specs]


def identification(
    truth: Ints, ratios: Array, groups: NDArray[Any] | None, settings: Settings
) -> list[Figure]:
    """Measure how often a bank ranks the correct label first, and among the top five."""
    columns = np.arange(ratios.shape[1])
    found = []
    for k, words in ((1, "the best"), (5, "among the best five")):
        if k < len(columns):
            metric = partial(metrics.rank_k_rate, k=k, labels=columns)
            name, meaning = f"Identification at rank {k}", f"the right label is {words}"
            spec = (f"rank_{k}", name, meaning, True, metric)
            found.append(_figure(spec, (truth, ratios, groups), settings))
    return found


def _rate(
    y_true: Mask,
    y_score: Array,
    sample_weight: Array | None = None,
    *,
    threshold: float,
    miss: bool,
) -> float:
    """Return the proportion of positives rejected if `miss`, else of negatives accepted."""
    of_kind = y_true == miss
    wrong = (y_score < threshold) == miss
    weights = None if sample_weight is None else sample_weight[of_kind]
    return float(np.average(wrong[of_kind], weights=weights))


def _bounds(key: str, found: metrics.Interval, trials: Trials) -> tuple[float, float]:
    """Return the interval of a figure.

    A proportion of rows has an exact binomial interval, unless there are identities to resample.
    All other intervals are bootstrapped. A rate of 0 or 1 always has a binomial interval: all its
    resamples would have the same rate, and a bootstrap interval would have no width, however few
    rows there are. So does a rate of rows that all have the same identity, which counts as one row.
    """
    truth, _, groups = trials
    whole = found.value in (0, 1)
    units = np.arange(len(truth)) if groups is None else groups
    chosen = {None: np.ones(len(truth), dtype=bool), True: truth == 1, False: truth == 0}
    count = {kind: len(np.unique(units[rows])) for kind, rows in chosen.items()}
    n_units = count[COUNTED[key]] if key in COUNTED else min(count[True], count[False])
    exact = key in COUNTED and (whole or groups is None or n_units == 1)
    if not (exact or (whole and key in RESAMPLED)):
        return found.low, found.high
    if key == "precision_at_k":
        n_units = min(BEST, n_units)
    return binomial_interval(found.value, n_units, found.level)


def _figure(spec: Spec, trials: Trials, s: Settings) -> Figure:
    key, name, meaning, is_rate, metric = spec
    truth, scores, groups = trials
    options: dict[str, Any] = {"groups": groups, "n_resamples": s.resamples(scores.size)}
    options |= {"level": s.level, "random_state": s.seed, "verbose": s.verbose}
    interval = metrics.bootstrap_interval(metric, truth, scores, **options)
    threshold = s.threshold if key in AT_THRESHOLD else None
    if key in WITH_THRESHOLD:
        threshold = float(metric(truth, scores)[1])
    value, low, high = interval.value, *_bounds(key, interval, trials)
    return Figure(key, name, value, low, high, is_rate, meaning, threshold)
