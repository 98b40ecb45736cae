"""Figures of merit with intervals, and what each of them says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score, roc_auc_score

from .. import metrics

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

# False-alarm rate at which misses are told; with fewer negatives than its inverse it says nothing.
FMR = 0.01
# More resamples than this many scores altogether would keep people waiting.
AFFORDABLE = 50_000_000
LEAST_RESAMPLES = 50


@dataclass(frozen=True)
class Figure:
    """One figure of merit with its interval.

    Attributes
    ----------
    key, name, meaning : str
    value, low, high : float
    is_rate : bool
        Whether it is a share, told in percent.
    """

    key: str
    name: str
    value: float
    low: float
    high: float
    is_rate: bool
    meaning: str


@dataclass(frozen=True)
class Settings:
    """What an evaluation is to look at: the application, the intervals, the randomness."""

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
        """Prior and costs, as the metrics take them."""
        return {
            "prior": self.prior,
            "cost_miss": self.cost_miss,
            "cost_false_alarm": self.cost_false_alarm,
        }

    def resamples(self, n_scores: int) -> int:
        """How many resamples of that many scores are affordable."""
        return min(self.n_resamples, max(LEAST_RESAMPLES, AFFORDABLE // n_scores))


def figures(
    positive: BoolArray, llr: FloatArray, groups: NDArray[Any] | None, settings: Settings
) -> list[Figure]:
    """Measure trials: errors first, then order, then the worth of the numbers."""
    s = settings
    # Every resample sorts the scores; those in order are sorted fastest.
    order = np.argsort(-llr, kind="stable")
    positive, llr = positive[order], llr[order]
    groups = None if groups is None else groups[order]
    found = [
        _figure(key, name, True, meaning, metric, positive, llr, groups, s)
        for key, name, meaning, metric in _error_rates(positive, s)
    ]
    cost = partial(metrics.detection_cost, threshold=s.threshold, **s.application)
    least = partial(metrics.min_detection_cost, **s.application)
    for key, name, meaning, metric in (
        ("average_precision", "Average precision", "precision over the ranking", precision),
        ("roc_auc", "Area under the ROC curve", "a positive outscores a negative", _area),
        ("cost", "Detection cost", "1 is as good as not looking; at the threshold", cost),
        ("min_cost", "Least detection cost", "the same at the best threshold", least),
        ("cllr", "Cllr (bits)", "loss of the log-likelihood ratios, 1 is no use", metrics.cllr),
        ("min_cllr", "Least Cllr (bits)", "the same if calibration were perfect", metrics.min_cllr),
    ):
        found.append(_figure(key, name, False, meaning, metric, positive, llr, groups, s))
    return found


def identification(
    truth: NDArray[Any],
    ratios: FloatArray,
    columns: list[Any],
    groups: NDArray[Any] | None,
    settings: Settings,
) -> list[Figure]:
    """How often the right label of a bank is the best, and among the best five."""
    found = []
    for k, words in ((1, "the best"), (5, "among the best five")):
        if k < len(columns):
            metric = partial(metrics.rank_k_rate, k=k, labels=np.asarray(columns))
            meaning = f"the right label is {words}"
            name = f"Identification at rank {k}"
            found.append(
                _figure(f"rank_{k}", name, True, meaning, metric, truth, ratios, groups, settings)
            )
    return found


def _error_rates(positive: BoolArray, settings: Settings) -> list[Any]:
    threshold = settings.threshold
    rates: list[tuple[str, str, str, Callable[..., Any]]] = [
        ("eer", "Equal error rate", "misses and false alarms alike", metrics.equal_error_rate),
        ("misses", "Misses", "positives rejected at the threshold", _rate(threshold, missed=True)),
        (
            "false_alarms",
            "False alarms",
            "negatives accepted at the threshold",
            _rate(threshold, missed=False),
        ),
    ]
    if (~positive).sum() >= 1 / FMR:
        at = partial(metrics.fnmr_at_fmr, fmr=FMR)
        rates.append(("fnmr", f"Misses at {FMR:.0%} false alarms", "at a stricter threshold", at))
    n_best = min(10, int(positive.sum()))
    best = partial(metrics.precision_at_k, k=n_best)
    rates.append(("precision_at_k", f"Precision at {n_best}", f"of the {n_best} best scores", best))
    return rates


def _rate(threshold: float, *, missed: bool) -> Callable[..., float]:
    """Make the metric of one kind of error at a threshold."""

    def rate(y_true: Any, y_score: Any, sample_weight: Any = None) -> float:
        of_kind = y_true if missed else ~y_true
        wrong = (y_score < threshold) if missed else (y_score >= threshold)
        weights = None if sample_weight is None else sample_weight[of_kind]
        return float(np.average(wrong[of_kind], weights=weights))

    return rate


def precision(y_true: Any, y_score: Any, sample_weight: Any = None) -> float:
    """Average precision."""
    return float(average_precision_score(y_true, y_score, sample_weight=sample_weight))


def _area(y_true: Any, y_score: Any, sample_weight: Any = None) -> float:
    return float(roc_auc_score(y_true, y_score, sample_weight=sample_weight))


def _figure(
    key: str,
    name: str,
    is_rate: bool,
    meaning: str,
    metric: Callable[..., Any],
    truth: NDArray[Any],
    scores: FloatArray,
    groups: NDArray[Any] | None,
    settings: Settings,
) -> Figure:
    interval = metrics.bootstrap_interval(
        metric,
        truth,
        scores,
        groups=groups,
        level=settings.level,
        n_resamples=settings.resamples(scores.size),
        random_state=settings.seed,
        verbose=settings.verbose,
    )
    return Figure(key, name, interval.value, interval.low, interval.high, is_rate, meaning)
