"""Plot the detection error trade-off (DET) and mark its operating points."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import norm
from sklearn.base import BaseEstimator
from sklearn.metrics import DetCurveDisplay, det_curve

from ..core.linalg import Array, Mask
from ..metrics import bayes_threshold, detection_cost, equal_error_rate, min_detection_cost
from ..metrics.trials import check_trials
from ..validation import MatrixLike
from . import style
from .style import Display, score_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

_TICKS = (1e-5, 1e-4, 1e-3, 0.01, 0.05, 0.2, 0.5, 0.8, 0.95, 0.99)
# Points closer than this on the scale of the axes look the same.
_RESOLUTION = 2e-3
_MARK: dict[str, Any] = {"markersize": 9, "markeredgecolor": "white", "clip_on": False, "zorder": 4}


@dataclass(kw_only=True, eq=False, repr=False)
class DetDisplay(Display):
    """DET curve with marked points: equal error rate, minimum cost and actual cost.

    Use :meth:`from_estimator` or :meth:`from_predictions` to create one. The curve and its axes are
    the same as in scikit-learn's `DetCurveDisplay`. Both axes are scaled in normal deviates, so
    Gaussian scores give a straight line.

    Parameters
    ----------
    false_match_rate, false_non_match_rate : ndarrays of shape (n_points,)
        The curve.
    eer : float
        Equal error rate.
    minimum : tuple of float
        False-match and false-non-match rates at the threshold with the lowest cost.
    actual : tuple of float, default=None
        The same rates at the Bayes threshold; None if scores are not log-likelihood ratios.
    costs : tuple of float, default=None
        Normalised minimum and actual cost, for the legend.
    prior : float, default=0.5
        Prior used for the costs, for the legend.
    name : str, default=None
        Name of the curve in the legend.
    finest : float, default=1e-3
        Smallest error rate that the samples can show; the axes start there.

    Attributes
    ----------
    ax_, figure_ : matplotlib axes and figure
        Where the plot was drawn.
    line_ : Line2D
        The curve.
    eer_, minimum_, actual_ : Line2D
        Markers for the three points, moved to the edge of the plot if they lie beyond it.
        `actual_` is None if there is no actual cost.
    legend_ : Legend
        The legend.

    Examples
    --------
    >>> import numpy as np
    >>> from pcsda.plots import DetDisplay
    >>> labels = np.repeat([0, 1], 500)
    >>> llr = np.random.default_rng(0).normal(4 * labels - 2, 2)
    >>> display = DetDisplay.from_predictions(labels, llr, prior=0.01)
    >>> print(display.eer_.get_label())
    equal error rate 16.60%
    """

    false_match_rate: Array
    false_non_match_rate: Array
    eer: float
    minimum: tuple[float, float]
    actual: tuple[float, float] | None = None
    costs: tuple[float, float | None] | None = None
    prior: float = 0.5
    name: str | None = None
    finest: float = 1e-3

    @classmethod
    def from_estimator(
        cls,
        estimator: BaseEstimator,
        X: MatrixLike,
        y: ArrayLike,
        *,
        prior: float = 0.5,
        cost_miss: float = 1.0,
        cost_false_alarm: float = 1.0,
        name: str | None = None,
        ax: Axes | None = None,
    ) -> Self:
        """Plot the error trade-off for a fitted binary classifier.

        Parameters
        ----------
        estimator : fitted binary classifier
            For this library's estimators, which provide log-likelihood ratios, the actual cost is
            drawn as well.
        X : array-like of shape (n_samples, n_features)
            Rows to score.
        y : array-like of shape (n_samples,)
            True labels; all except the class of interest count as negative.
        prior, cost_miss, cost_false_alarm : float
            As in :func:`pcsda.metrics.detection_cost`.
        name : str, default=None
            Name of the curve in the legend. None means the name of the estimator's class.
        ax : matplotlib axes, optional
            Where to draw; by default, a new figure.

        Returns
        -------
        DetDisplay
        """
        positive, scores, are_ratios = score_rows(estimator, X, y)
        options: dict[str, Any] = {"prior": prior, "actual": are_ratios, "ax": ax}
        options |= {"cost_miss": cost_miss, "cost_false_alarm": cost_false_alarm}
        name = type(estimator).__name__ if name is None else name
        return cls.from_predictions(positive, scores, name=name, **options)

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
        pos_label: object = None,
        name: str | None = None,
        ax: Axes | None = None,
    ) -> Self:
        """Plot the error trade-off for given scores.

        Parameters
        ----------
        y_true : array-like of shape (n_samples,)
            All labels except `pos_label` count as negative.
        y_score : array-like of shape (n_samples,)
            Scores; they must be log-likelihood ratios for `actual` to be meaningful.
        prior, cost_miss, cost_false_alarm : float
            As in :func:`pcsda.metrics.detection_cost`.
        actual : bool, default=True
            Whether to mark the point at the Bayes threshold.
        pos_label : int, float, bool or str, default=None
            The class of interest. None means 1 for labels in {0, 1} or {-1, 1}.
        name : str, default=None
            Name of the curve in the legend.
        ax : matplotlib axes, optional
            Where to draw; by default, a new figure.

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

    def _draw(self) -> None:
        low = float(np.clip(self.finest, _TICKS[0], 1e-3))
        match, non_match = _thinned(self.false_match_rate, self.false_non_match_rate, low)
        # scikit-learn would name an unnamed curve itself.
        drawn = DetCurveDisplay(fpr=match, fnr=non_match, estimator_name=self.name or "scores")
        drawn.plot(ax=self.ax_, color=style.LINE_COLOR, linewidth=2)
        self.line_ = drawn.line_
        reach = norm.ppf([low, 0.995])
        self.ax_.plot(reach, reach, linewidth=0.8, **style.REFERENCE_STYLE)
        least, paid = (
            ("" if cost is None else f" {cost:.3g}") + f", prior {self.prior:g}"
            for cost in self.costs or (None, None)
        )
        named = f"equal error rate {self.eer:.2%}"
        self.eer_ = self._mark((self.eer, self.eer), low, named, "o", style.POSITIVE_COLOR)
        self.minimum_ = self._mark(self.minimum, low, f"least cost{least}", "s", style.SECOND_COLOR)
        self.actual_ = None
        if self.actual is not None:
            self.actual_ = self._mark(self.actual, low, f"actual cost{paid}", "X", style.PALETTE[3])
        self._frame(low)
        self.legend_ = self.ax_.legend(**style.BESIDE)

    def _mark(
        self, rates: tuple[float, float], low: float, label: str, marker: str, color: str
    ) -> Line2D:
        places = norm.ppf(np.clip(rates, low, 0.995))
        return self.ax_.plot(*places[:, None], marker, color=color, label=label, **_MARK)[0]

    def _frame(self, low: float) -> None:
        """Limit the axes to rates up to one half, or up to the largest rate at a marked point."""
        farthest = max(self.eer, *self.minimum, *(self.actual or ()))
        high = float(np.clip(1.2 * farthest, 0.5, 0.995))
        ends = norm.ppf([low, high])
        ticks = [tick for tick in _TICKS if low <= tick <= high]
        names = [f"{100 * tick:g}" for tick in ticks]
        self.ax_.set_xticks(norm.ppf(ticks), names)
        self.ax_.set_yticks(norm.ppf(ticks), names)
        labels = {"xlabel": "false match rate (%)", "ylabel": "false non-match rate (%)"}
        self.ax_.set(xlim=ends, ylim=ends, axisbelow=True, **labels)
        self.ax_.grid(visible=True, color="#DDDDDD", linewidth=0.6)
        self.ax_.set_aspect("equal", adjustable="box")


def _rates(positive: Mask, scores: Array, at: float) -> tuple[float, float]:
    accepted = scores >= at
    return float(np.mean(accepted[~positive])), float(np.mean(~accepted[positive]))


def _thinned(match: Array, non_match: Array, low: float) -> tuple[Array, Array]:
    """Keep only points that look different; a million trials would give far too many points."""
    match, non_match = (np.clip(rate, 0.1 * low, 1 - 0.1 * low) for rate in (match, non_match))
    cells = np.floor(np.stack([norm.ppf(match), norm.ppf(non_match)]) / _RESOLUTION)
    kept = np.append(True, np.any(np.diff(cells, axis=1) != 0, axis=0))
    kept[-1] = True
    return match[kept], non_match[kept]
