"""Histograms of scores with the threshold between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from ..metrics import equal_error_rate
from ..metrics.scorers import scores_of
from ..metrics.trials import check_trials
from ..unwrap import unwrap
from .style import POSITIVE_COLOR, REST_COLOR, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Scores beyond these shares of a class are drawn in the outermost bars.
_TAILS = (0.002, 0.998)


class ScoreDisplay:
    """Histogram of the scores of both classes, each with area one, and a threshold.

    Use :meth:`from_estimator` or :meth:`from_predictions` to make one. The legend gives the errors
    at the threshold. The outermost bars hold all scores beyond.

    Parameters
    ----------
    positive, negative : ndarrays
        Scores of the class of interest and of the rest.
    threshold : float
        Scores of at least this are accepted.
    threshold_name : str, default="threshold"
    score_name : str, default="score"
        What the horizontal axis shows.
    bins : int, default=None
        Number of bars; None chooses by the number of scores.

    Attributes
    ----------
    ax_, figure_ : matplotlib axes and figure
    bars_ : list of two StepPatch
        Histograms of the class of interest and of the rest.
    line_ : Line2D
        The threshold.
    legend_ : Legend
    """

    def __init__(
        self,
        *,
        positive: NDArray[np.float64],
        negative: NDArray[np.float64],
        threshold: float,
        threshold_name: str = "threshold",
        score_name: str = "score",
        bins: int | None = None,
    ) -> None:
        self.positive = positive
        self.negative = negative
        self.threshold = threshold
        self.threshold_name = threshold_name
        self.score_name = score_name
        self.bins = bins

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: ArrayLike,
        *,
        threshold: float | None = None,
        bins: int | None = None,
        ax: Axes | None = None,
    ) -> ScoreDisplay:
        """Draw the log-likelihood ratios of a fitted estimator.

        Parameters
        ----------
        estimator : fitted binary classifier
            Of other classifiers than those of this library the decision values are drawn.
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        threshold : float, default=None
            None means where the estimator itself decides, at its fitted prior.
        bins : int, default=None
        ax : matplotlib axes, optional

        Returns
        -------
        ScoreDisplay
        """
        check_is_fitted(estimator)
        inside = unwrap(estimator)
        label = inside.label
        scores, are_ratios = scores_of(estimator, X, label)
        name = "threshold"
        if threshold is None:
            name, threshold = "decision", 0.0
            if are_ratios:
                threshold = float(np.log1p(-inside.prior) - np.log(inside.prior))
        return cls.from_predictions(
            np.asarray(y) == label,
            scores,
            threshold=threshold,
            threshold_name=name,
            score_name="log-likelihood ratio" if are_ratios else "decision value",
            bins=bins,
            ax=ax,
        )

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        y_score: ArrayLike,
        *,
        threshold: float | None = None,
        threshold_name: str = "threshold",
        score_name: str = "score",
        pos_label: Any = None,
        bins: int | None = None,
        ax: Axes | None = None,
    ) -> ScoreDisplay:
        """Draw scores that are known.

        Parameters
        ----------
        y_true : array-like of shape (n_samples,)
            All labels but `pos_label` count as the rest.
        y_score : array-like of shape (n_samples,)
        threshold : float, default=None
            None means that of the equal error rate.
        threshold_name, score_name : str
            What the legend and the horizontal axis say.
        pos_label : int, float, bool or str, default=None
            The class of interest. None means 1 for labels in {0, 1} or {-1, 1}.
        bins : int, default=None
        ax : matplotlib axes, optional

        Returns
        -------
        ScoreDisplay
        """
        positive, scores, _ = check_trials(y_true, y_score, "y_score", pos_label, None)
        if threshold is None:
            threshold_name = "equal error rate"
            threshold = equal_error_rate(positive, scores)[1]
        display = cls(
            positive=scores[positive],
            negative=scores[~positive],
            threshold=threshold,
            threshold_name=threshold_name,
            score_name=score_name,
            bins=bins,
        )
        return display.plot(ax=ax)

    def plot(self, ax: Axes | None = None) -> ScoreDisplay:
        """Draw, on new axes unless some are given."""
        self.ax_ = new_axes() if ax is None else ax
        self.figure_ = self.ax_.get_figure()
        edges = self._edges()
        self.bars_ = []
        for scores, color, name in (
            (self.positive, POSITIVE_COLOR, "class of interest"),
            (self.negative, REST_COLOR, "rest"),
        ):
            heights, _ = np.histogram(np.clip(scores, edges[0], edges[-1]), edges, density=True)
            bars = self.ax_.stairs(
                heights,
                edges,
                fill=True,
                facecolor=(color, 0.25),
                edgecolor=color,
                linewidth=1.8 if name != "rest" else 1.2,
                zorder=3 if name != "rest" else 2,
                label=f"{name} (n = {len(scores)}), {self._errors(name)}",
            )
            self.bars_.append(bars)
        self.line_ = self.ax_.axvline(
            float(np.clip(self.threshold, edges[0], edges[-1])),
            color=POSITIVE_COLOR,
            linestyle="--",
            linewidth=1.6,
            zorder=4,
            label=f"{self.threshold_name} at {self.threshold:.3g}",
        )
        self.ax_.set_xlabel(self.score_name)
        self.ax_.set_ylabel("density within class")
        self.ax_.set_ylim(bottom=0)
        self.legend_ = self.ax_.legend(loc="lower left", bbox_to_anchor=(0, 1.0), frameon=False)
        return self

    def _edges(self) -> NDArray[np.float64]:
        finite = [part[np.isfinite(part)] for part in (self.positive, self.negative)]
        ends = [np.quantile(part, _TAILS) for part in finite if len(part)]
        low, high = float(np.min(ends, initial=np.inf)), float(np.max(ends, initial=-np.inf))
        if np.isfinite(self.threshold):
            low, high = min(low, self.threshold), max(high, self.threshold)
        if not np.isfinite(low):
            low = high = 0.0
        if not high > low:
            low, high = low - 0.5, high + 0.5
        count = self.bins
        if count is None:
            fewest = min(len(self.positive), len(self.negative))
            count = int(np.clip(3 * np.sqrt(fewest), 20, 80))
        return np.linspace(low, high, count + 1)

    def _errors(self, name: str) -> str:
        if name == "rest":
            return f"{np.mean(self.negative >= self.threshold):.2%} accepted"
        return f"{np.mean(self.positive < self.threshold):.2%} missed"
