"""Detection error trade-off with the points at which one works."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import norm
from sklearn.metrics import DetCurveDisplay, det_curve
from sklearn.utils.validation import check_is_fitted

from ..metrics import bayes_threshold, detection_cost, equal_error_rate, min_detection_cost
from ..metrics.scorers import scores_of
from ..metrics.trials import check_trials
from ..unwrap import unwrap
from .style import LINE_COLOR, MUTED_COLOR, POSITIVE_COLOR, SECOND_COLOR, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FloatArray = NDArray[np.float64]
_TICKS = (1e-5, 1e-4, 1e-3, 0.01, 0.05, 0.2, 0.5, 0.8, 0.95, 0.99)
# Points nearer than this on the scale of the axes look the same.
_RESOLUTION = 2e-3


class DetDisplay:
    """DET curve with the equal error rate and the points of least and of actual cost.

    Use :meth:`from_estimator` or :meth:`from_predictions` to make one. The curve and its axes are
    those of scikit-learn's `DetCurveDisplay`; both axes have the scale of the normal deviate, on
    which Gaussian scores give a straight line.

    Parameters
    ----------
    false_match_rate, false_non_match_rate : ndarrays of shape (n_points,)
        The curve.
    eer : float
        Equal error rate.
    minimum : tuple of float
        False-match and false-non-match rate at the threshold of least cost.
    actual : tuple of float, default=None
        The same at the Bayes threshold; None where scores are no log-likelihood ratios.
    costs : tuple of float, default=None
        Normalised minimum and actual cost, for the legend.
    prior : float, default=0.5
        Prior of the costs, for the legend.
    name : str, default=None
        Name of the curve in the legend.
    finest : float, default=1e-3
        Smallest error rate that the samples can show; the axes begin there.

    Attributes
    ----------
    ax_, figure_ : matplotlib axes and figure
    line_ : Line2D
        The curve.
    eer_, minimum_, actual_ : Line2D
        Markers of the three points, moved to the edge where they lie beyond it; `actual_` is None
        where it is not known.
    legend_ : Legend
    """

    def __init__(
        self,
        *,
        false_match_rate: FloatArray,
        false_non_match_rate: FloatArray,
        eer: float,
        minimum: tuple[float, float],
        actual: tuple[float, float] | None = None,
        costs: tuple[float, float | None] | None = None,
        prior: float = 0.5,
        name: str | None = None,
        finest: float = 1e-3,
    ) -> None:
        self.false_match_rate = false_match_rate
        self.false_non_match_rate = false_non_match_rate
        self.eer = eer
        self.minimum = minimum
        self.actual = actual
        self.costs = costs
        self.prior = prior
        self.name = name
        self.finest = finest

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: ArrayLike,
        *,
        prior: float = 0.5,
        cost_miss: float = 1.0,
        cost_false_alarm: float = 1.0,
        name: str | None = None,
        ax: Axes | None = None,
    ) -> DetDisplay:
        """Draw the trade-off of a fitted binary classifier.

        Parameters
        ----------
        estimator : fitted binary classifier
            The actual cost is drawn for those of this library, which give log-likelihood ratios.
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        prior, cost_miss, cost_false_alarm : float
            As in :func:`pcsda.metrics.detection_cost`.
        name : str, default=None
            None means the name of the estimator's class.
        ax : matplotlib axes, optional

        Returns
        -------
        DetDisplay
        """
        check_is_fitted(estimator)
        label = unwrap(estimator).label
        scores, are_ratios = scores_of(estimator, X, label)
        return cls.from_predictions(
            np.asarray(y) == label,
            scores,
            prior=prior,
            cost_miss=cost_miss,
            cost_false_alarm=cost_false_alarm,
            actual=are_ratios,
            name=type(estimator).__name__ if name is None else name,
            ax=ax,
        )

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        y_score: ArrayLike,
        *,
        prior: float = 0.5,
        cost_miss: float = 1.0,
        cost_false_alarm: float = 1.0,
        actual: bool = True,
        pos_label: Any = None,
        name: str | None = None,
        ax: Axes | None = None,
    ) -> DetDisplay:
        """Draw the trade-off of scores that are known.

        Parameters
        ----------
        y_true : array-like of shape (n_samples,)
            All labels but `pos_label` count as negative.
        y_score : array-like of shape (n_samples,)
            Scores; log-likelihood ratios if `actual` is to mean anything.
        prior, cost_miss, cost_false_alarm : float
            As in :func:`pcsda.metrics.detection_cost`.
        actual : bool, default=True
            Whether to draw the point of the Bayes threshold.
        pos_label : int, float, bool or str, default=None
            The class of interest. None means 1 for labels in {0, 1} or {-1, 1}.
        name : str, default=None
        ax : matplotlib axes, optional

        Returns
        -------
        DetDisplay
        """
        positive, scores, _ = check_trials(y_true, y_score, "y_score", pos_label, None)
        costs: dict[str, Any] = {"cost_miss": cost_miss, "cost_false_alarm": cost_false_alarm}
        least, best = min_detection_cost(positive, scores, prior=prior, **costs)
        at, paid = None, None
        if actual:
            at = _rates(positive, scores, bayes_threshold(prior, **costs))
            paid = detection_cost(positive, scores, prior=prior, **costs)
        match, non_match, _ = det_curve(positive, scores)
        n_positive = int(positive.sum())
        return cls(
            false_match_rate=match,
            false_non_match_rate=non_match,
            eer=equal_error_rate(positive, scores)[0],
            minimum=_rates(positive, scores, best),
            actual=at,
            costs=(least, paid),
            prior=prior,
            name=name,
            finest=0.5 / max(n_positive, len(positive) - n_positive),
        ).plot(ax=ax)

    def plot(self, ax: Axes | None = None) -> DetDisplay:
        """Draw, on new axes unless some are given."""
        self.ax_ = new_axes() if ax is None else ax
        self.figure_ = self.ax_.get_figure()
        low = float(np.clip(self.finest, _TICKS[0], 1e-3))
        match, non_match = _thinned(self.false_match_rate, self.false_non_match_rate, low)
        # A curve without a name would be called by scikit-learn's name for none.
        drawn = DetCurveDisplay(fpr=match, fnr=non_match, estimator_name=self.name or "scores")
        drawn.plot(ax=self.ax_, color=LINE_COLOR, linewidth=2)
        self.line_ = drawn.line_
        reach = norm.ppf([low, 0.995])
        self.ax_.plot(reach, reach, color=MUTED_COLOR, linewidth=0.8, linestyle=":", zorder=1)
        self.eer_ = self._mark(
            (self.eer, self.eer), low, f"equal error rate {self.eer:.2%}", "o", POSITIVE_COLOR
        )
        least, paid = (None, None) if self.costs is None else self.costs
        self.minimum_ = self._mark(
            self.minimum, low, f"least cost{_told(least)}, prior {self.prior:g}", "s", SECOND_COLOR
        )
        self.actual_ = None
        if self.actual is not None:
            self.actual_ = self._mark(
                self.actual, low, f"actual cost{_told(paid)}, prior {self.prior:g}", "X", "#CC79A7"
            )
        self._frame(low)
        # Beside the axes: a poor curve passes through every corner.
        self.legend_ = self.ax_.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
        return self

    def _mark(
        self, rates: tuple[float, float], low: float, label: str, marker: str, color: str
    ) -> Any:
        places = norm.ppf(np.clip(rates, low, 0.995))
        (point,) = self.ax_.plot(
            *places[:, None],
            linestyle="none",
            marker=marker,
            markersize=9,
            color=color,
            markeredgecolor="white",
            label=label,
            clip_on=False,
            zorder=4,
        )
        return point

    def _frame(self, low: float) -> None:
        """Show the curve up to a half, or to the last of the points."""
        farthest = max(self.eer, *self.minimum, *(self.actual or ()))
        high = float(np.clip(1.2 * farthest, 0.5, 0.995))
        ends = norm.ppf([low, high])
        ticks = [tick for tick in _TICKS if low <= tick <= high]
        names = [f"{100 * tick:g}" for tick in ticks]
        self.ax_.set_xticks(norm.ppf(ticks), names)
        self.ax_.set_yticks(norm.ppf(ticks), names)
        self.ax_.set(xlim=ends, ylim=ends)
        self.ax_.set_xlabel("false match rate (%)")
        self.ax_.set_ylabel("false non-match rate (%)")
        self.ax_.grid(visible=True, color="#DDDDDD", linewidth=0.6)
        self.ax_.set_axisbelow(True)
        self.ax_.set_aspect("equal", adjustable="box")


def _rates(positive: NDArray[np.bool_], scores: FloatArray, at: float) -> tuple[float, float]:
    accepted = scores >= at
    return float(np.mean(accepted[~positive])), float(np.mean(~accepted[positive]))


def _thinned(match: FloatArray, non_match: FloatArray, low: float) -> tuple[FloatArray, FloatArray]:
    """Points of the curve that can be told apart: a million trials need no million points."""
    match, non_match = (np.clip(rate, 0.1 * low, 1 - 0.1 * low) for rate in (match, non_match))
    cells = np.floor(np.stack([norm.ppf(match), norm.ppf(non_match)]) / _RESOLUTION)
    kept = np.append(True, np.any(np.diff(cells, axis=1) != 0, axis=0))
    kept[-1] = True
    return match[kept], non_match[kept]


def _told(cost: float | None) -> str:
    return "" if cost is None else f" {cost:.3g}"
