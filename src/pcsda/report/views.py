"""Data for the plots: error counts at many thresholds, histograms and the worst errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit, ndtri
from scipy.stats import binomtest

from .. import metrics
from ..core.linalg import Array, Ints, Mask
from .figures import FMR, Settings

# Limits that keep a page small: points of a curve, listed trials, bins.
CURVE_POINTS = 800
LISTED = 100
BINS = 60
# Calibration: at most this many groups of similar probability, each with at least this many rows.
CALIBRATION_GROUPS, LEAST_IN_GROUP = 10, 10


@dataclass(frozen=True)
class View:
    """Plot data for the trials of one label, or of all labels in a bank together.

    Attributes
    ----------
    name : str
    n_positive, n_negative : int
    marks : dict of str to float
        Named thresholds: "decision", "equal errors", "least cost", "1% false alarms".
    eer : float
    thresholds, misses, false_alarms : arrays of shape (n_points,)
        Exact error counts at thresholds that are spread evenly along the curve and include all
        marks. A trial is accepted if its score is at least the threshold.
    listed : dict of arrays
        The lowest-scoring positives and highest-scoring negatives: `place`, `llr`, `positive`.
    histogram : dict of arrays
        Bin `edges`, and the counts `positive` and `negative`.
    calibration : dict of arrays
        For groups of rows with similar probability: the mean `expected` proportion of positives,
        the `observed` proportion, the ends `low` and `high` of its interval, and the row `count`.
    """

    name: str
    n_positive: int
    n_negative: int
    marks: dict[str, float]
    eer: float
    thresholds: Array
    misses: Ints
    false_alarms: Ints
    listed: dict[str, NDArray[Any]]
    histogram: dict[str, NDArray[Any]]
    calibration: dict[str, NDArray[Any]]

    def counts(self, mark: str = "decision") -> tuple[int, int]:
        """Return the numbers of misses and false alarms at a named threshold."""
        place = int(np.searchsorted(self.thresholds, self.marks[mark]))
        return int(self.misses[place]), int(self.false_alarms[place])


def make_view(name: str, positive: Mask, llr: Array, settings: Settings, share: int = 1) -> View:
    """Make the plot data for trials with scores `llr`.

    The curve has `share` times fewer points than usual, and the list `share` times fewer trials, so
    that the views of many labels fit in one page.
    """
    eer, at_equal = metrics.equal_error_rate(positive, llr)
    marks = {
        "decision": settings.threshold,
        "equal errors": at_equal,
        "least cost": metrics.min_detection_cost(positive, llr, **settings.application)[1],
    }
    if (~positive).sum() >= 1 / FMR:
        marks[f"{FMR:.0%} false alarms"] = metrics.fnmr_at_fmr(positive, llr, FMR)[1]
    ordered = np.sort(llr[positive]), np.sort(llr[~positive])
    # Just above the highest score everything is rejected.
    top = max(ordered[0][-1], ordered[1][-1])
    end = top + max(1e-3, 0.01 * (top - min(ordered[0][0], ordered[1][0])))
    marks = {mark: float(min(at, end)) for mark, at in marks.items()}
    thresholds = _thinned(*ordered, CURVE_POINTS // share)
    thresholds = np.unique(np.concatenate([thresholds, list(marks.values()), [end]]))
    return View(
        name=name,
        n_positive=len(ordered[0]),
        n_negative=len(ordered[1]),
        marks=marks,
        eer=eer,
        thresholds=thresholds,
        misses=np.searchsorted(ordered[0], thresholds, side="left"),
        false_alarms=len(ordered[1]) - np.searchsorted(ordered[1], thresholds, side="left"),
        listed=_worst(positive, llr, LISTED // share),
        histogram=_histogram(*ordered),
        calibration=_calibration(positive, llr, settings.level),
    )


def _thinned(positives: Array, negatives: Array, limit: int) -> Array:
    """Return all scores as thresholds or, if there are too many, a subset.

    The subset is spread evenly along the DET curve.
    """
    candidates = np.unique(np.concatenate([positives, negatives]))
    if len(candidates) <= limit:
        return candidates
    miss = (np.searchsorted(positives, candidates) + 0.5) / (len(positives) + 1)
    alarm = len(negatives) - np.searchsorted(negatives, candidates)
    along = ndtri(miss) - ndtri((alarm + 0.5) / (len(negatives) + 1))
    wanted = np.linspace(along[0], along[-1], limit)
    places = np.searchsorted(along, wanted).clip(max=len(along) - 1)
    return np.asarray(candidates[np.unique(places)])


def _worst(positive: Mask, llr: Array, limit: int) -> dict[str, NDArray[Any]]:
    """Find the lowest-scoring positives and highest-scoring negatives, up to the limit for each."""
    order = np.argsort(np.where(positive, llr, -llr), kind="stable")
    places = np.concatenate([order[positive[order]][:limit], order[~positive[order]][:limit]])
    return {"place": places, "llr": llr[places], "positive": positive[places]}


def _histogram(positives: Array, negatives: Array) -> dict[str, NDArray[Any]]:
    """Count the scores of both classes in the same bins.

    The bins span the scores of each class, except for the lowest and highest half percent.
    """
    ends = np.concatenate([np.quantile(s, [0.005, 0.995]) for s in (positives, negatives)])
    low, high = float(ends.min()), float(ends.max())
    if high <= low:
        low, high = low - 0.5, high + 0.5
    edges = np.linspace(low, high, BINS + 1)
    # The first and last bins include the scores beyond them.
    counts = [np.histogram(s.clip(low, high), edges)[0] for s in (positives, negatives)]
    return {"edges": edges, "positive": counts[0], "negative": counts[1]}


def _calibration(positive: Mask, llr: Array, level: float) -> dict[str, NDArray[Any]]:
    """Compare predicted probabilities with observed proportions of positives.

    The prior is the proportion of positives in the test data. The rows are sorted and cut into
    groups of equal size. The intervals are Wilson intervals.
    """
    order = np.argsort(llr, kind="stable")
    chance = expit(llr[order] + logit(positive.mean()))
    n_groups = int(np.clip(len(llr) // LEAST_IN_GROUP, 1, CALIBRATION_GROUPS))
    truth = np.array_split(positive[order], n_groups)
    count = np.array([len(part) for part in truth])
    share = np.array([part.mean() for part in truth])
    expected = np.array([part.mean() for part in np.array_split(chance, n_groups)])
    tests = (binomtest(int(part.sum()), len(part)) for part in truth)
    low, high = np.array([test.proportion_ci(level, "wilson") for test in tests]).T
    return {"expected": expected, "observed": share, "low": low, "high": high, "count": count}


def take_rows(X: Any, rows: Ints) -> Any:
    """Return the rows of an array or DataFrame with the given row numbers."""
    return X.iloc[rows] if hasattr(X, "iloc") else X[rows]


def join_rows(parts: Sequence[Any]) -> Any:
    """Join arrays or DataFrames of rows."""
    if hasattr(parts[0], "iloc"):
        import pandas as pd

        return pd.concat(parts)
    return np.concatenate(parts)
