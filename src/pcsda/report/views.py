"""What a page draws: error counts along thresholds, histograms, worst errors, subspaces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from .. import metrics
from .figures import FMR, BoolArray, FloatArray, Settings

# Limits that keep a page small: points of a curve, listed trials, points in a subspace, bins.
CURVE_POINTS = 800
LISTED = 100
SUBSPACE_POINTS = 1200
BINS = 60


@dataclass(frozen=True)
class View:
    """Trials of one label, or of all labels of a bank together.

    Attributes
    ----------
    name : str
    n_positive, n_negative : int
    marks : dict of str to float
        Thresholds with a name: "decision", "equal errors", "least cost", "1% false alarms".
    eer : float
    thresholds, misses, false_alarms : arrays of shape (n_points,)
        Exact counts at thresholds that trace the curve evenly and hold all marks. A trial is
        accepted where its score is at least the threshold.
    listed : dict of arrays
        The lowest positives and the highest negatives: `place`, `llr`, `positive`.
    histogram : dict of arrays
        `edges`, and counts `positive` and `negative`.
    """

    name: str
    n_positive: int
    n_negative: int
    marks: dict[str, float]
    eer: float
    thresholds: FloatArray
    misses: NDArray[np.intp]
    false_alarms: NDArray[np.intp]
    listed: dict[str, NDArray[Any]]
    histogram: dict[str, NDArray[Any]]

    def counts(self, mark: str = "decision") -> tuple[int, int]:
        """Misses and false alarms at a threshold with a name."""
        place = int(np.searchsorted(self.thresholds, self.marks[mark]))
        return int(self.misses[place]), int(self.false_alarms[place])


def make_view(
    name: str, positive: BoolArray, llr: FloatArray, settings: Settings, share: int = 1
) -> View:
    """Make the view of trials; `share` is how many views divide the room for one."""
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
    )


def _thinned(positives: FloatArray, negatives: FloatArray, limit: int) -> FloatArray:
    """Scores as thresholds, as many as there are or, evenly along the DET curve, the limit."""
    candidates = np.unique(np.concatenate([positives, negatives]))
    if len(candidates) <= limit:
        return candidates
    miss = (np.searchsorted(positives, candidates) + 0.5) / (len(positives) + 1)
    alarm = len(negatives) - np.searchsorted(negatives, candidates)
    along = ndtri(miss) - ndtri((alarm + 0.5) / (len(negatives) + 1))
    wanted = np.linspace(along[0], along[-1], limit)
    return candidates[np.unique(np.searchsorted(along, wanted).clip(max=len(along) - 1))]


def _worst(positive: BoolArray, llr: FloatArray, limit: int) -> dict[str, NDArray[Any]]:
    """The lowest positives and the highest negatives, half the limit of each at least."""
    low, high = np.flatnonzero(positive), np.flatnonzero(~positive)
    low = low[np.argsort(llr[low], kind="stable")[:limit]]
    high = high[np.argsort(-llr[high], kind="stable")[:limit]]
    places = np.concatenate([low, high])
    return {"place": places, "llr": llr[places], "positive": positive[places]}


def _histogram(positives: FloatArray, negatives: FloatArray) -> dict[str, NDArray[Any]]:
    """Counts in common bins over all scores but the outermost half percent of each class."""
    ends = np.concatenate([np.quantile(s, [0.005, 0.995]) for s in (positives, negatives)])
    low, high = float(ends.min()), float(ends.max())
    if high <= low:
        low, high = low - 0.5, high + 0.5
    edges = np.linspace(low, high, BINS + 1)
    # The first and the last bin take what lies beyond.
    counts = [np.histogram(s.clip(low, high), edges)[0] for s in (positives, negatives)]
    return {"edges": edges, "positive": counts[0], "negative": counts[1]}


def subspace_sample(positive: BoolArray, seed: int, share: int = 1) -> NDArray[np.intp]:
    """Rows to draw: all, or a sample with at most as many of one class as of the other."""
    limit = SUBSPACE_POINTS // share
    if len(positive) <= limit:
        return np.arange(len(positive))
    rng = np.random.default_rng(seed)
    few = rng.permutation(np.flatnonzero(positive))[: limit // 2]
    rest = rng.permutation(np.flatnonzero(~positive))[: limit - len(few)]
    return np.sort(np.concatenate([few, rest]))
