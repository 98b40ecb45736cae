"""Plot histograms of the scores in both classes, and a threshold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from ..core.linalg import Array
from ..metrics import bayes_threshold, equal_error_rate
from ..metrics.trials import check_trials
from ..unwrap import unwrap
from ..validation import MatrixLike
from .style import DECISION_STYLE, POSITIVE_COLOR, REST_COLOR, Display, draw_histogram, score_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Scores beyond these quantiles of a class are drawn in the outermost bars.
_TAILS = (0.002, 0.998)


@dataclass(kw_only=True, eq=False, repr=False)
class ScoreDisplay(Display):
    """Score histograms for both classes, each with area one, and a threshold.

    Use :meth:`from_estimator` or :meth:`from_predictions` to make one. The legend shows the error
    rates at the threshold. The outermost bars include all scores beyond them.

    Parameters
    ----------
    positive, negative : ndarrays
        Scores for the class of interest and for the rest.
    threshold : float
        Scores at or above this value are accepted.
    threshold_name : str, default="threshold"
        Name of the threshold in the legend.
    score_name : str, default="score"
        What the horizontal axis shows.
    bins : int, default=None
        Number of bars; None chooses it from the number of scores.

    Attributes
    ----------
    ax_, figure_ : matplotlib axes and figure
        Where the plot was drawn.
    bars_ : list of two StepPatch
        Histograms for the class of interest and for the rest.
    line_ : Line2D
        The threshold.
    legend_ : Legend
        The legend.

    Examples
    --------
    >>> import numpy as np
    >>> from pcsda.plots import ScoreDisplay
    >>> labels = np.repeat([0, 1], 500)
    >>> llr = np.random.default_rng(0).normal(4 * labels - 2, 2)
    >>> display = ScoreDisplay.from_predictions(labels, llr, threshold=0)
    >>> print(display.bars_[0].get_label())
    class of interest (n = 500), 16.40% missed
    """

    positive: Array
    negative: Array
    threshold: float
    threshold_name: str = "threshold"
    score_name: str = "score"
    bins: int | None = None

    @classmethod
    def from_estimator(
        cls,
        estimator: BaseEstimator,
        X: MatrixLike,
        y: ArrayLike,
        *,
        threshold: float | None = None,
        bins: int | None = None,
        ax: Axes | None = None,
    ) -> Self:
        """Plot histograms of the log-likelihood ratios from a fitted estimator.

        Parameters
        ----------
        estimator : fitted binary classifier
            For classifiers from other libraries, the decision values are plotted instead.
        X : array-like of shape (n_samples, n_features)
            Rows to score.
        y : array-like of shape (n_samples,)
            True labels; all except the class of interest count as the rest.
        threshold : float, default=None
            None means the estimator's own threshold, at its fitted prior.
        bins : int, default=None
            Number of bars; None chooses it from the number of scores.
        ax : matplotlib axes, optional
            Where to draw; by default, a new figure.

        Returns
        -------
        ScoreDisplay
        """
        positive, scores, are_ratios = score_rows(estimator, X, y)
        name = "threshold"
        if threshold is None:
            name, threshold = "decision", 0.0
            if are_ratios:
                threshold = bayes_threshold(unwrap(estimator).prior)
        return cls.from_predictions(
            positive,
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
        pos_label: object = None,
        bins: int | None = None,
        ax: Axes | None = None,
    ) -> Self:
        """Plot histograms of given scores.

        Parameters
        ----------
        y_true : array-like of shape (n_samples,)
            All labels except `pos_label` count as the rest.
        y_score : array-like of shape (n_samples,)
            Scores, higher for the class of interest.
        threshold : float, default=None
            None means the threshold at the equal error rate.
        threshold_name, score_name : str
            Names of the threshold, for the legend, and of the score, for the horizontal axis.
        pos_label : int, float, bool or str, default=None
            The class of interest. None means 1 for labels in {0, 1} or {-1, 1}.
        bins : int, default=None
            Number of bars; None chooses it from the number of scores.
        ax : matplotlib axes, optional
            Where to draw; by default, a new figure.

        Returns
        -------
        ScoreDisplay
        """
        positive, scores, _ = check_trials(y_true, y_score, "y_score", pos_label, None)
        if threshold is None:
            threshold_name = "equal error rate"
            threshold = equal_error_rate(positive, scores)[1]
        return cls(
            positive=scores[positive],
            negative=scores[~positive],
            threshold=threshold,
            threshold_name=threshold_name,
            score_name=score_name,
            bins=bins,
        ).plot(ax=ax)

    def _draw(self) -> None:
        edges = self._edges()
        low, high = edges[0], edges[-1]
        missed = f"{np.mean(self.positive < self.threshold):.2%} missed"
        accepted = f"{np.mean(self.negative >= self.threshold):.2%} accepted"
        self.bars_ = []
        for scores, color, name, errors in (
            (self.positive, POSITIVE_COLOR, "class of interest", missed),
            (self.negative, REST_COLOR, "rest", accepted),
        ):
            label = f"{name} (n = {len(scores)}), {errors}"
            shown = np.clip(scores, low, high)
            front = scores is self.positive
            self.bars_.append(draw_histogram(self.ax_, shown, edges, color, label, in_front=front))
        at = f"{self.threshold_name} at {self.threshold:.3g}"
        place = float(np.clip(self.threshold, low, high))
        self.line_ = self.ax_.axvline(place, zorder=4, label=at, **DECISION_STYLE)
        self.ax_.set(xlabel=self.score_name, ylabel="density within class", ylim=(0, None))
        self.legend_ = self.ax_.legend(loc="lower left", bbox_to_anchor=(0, 1.0), frameon=False)

    def _edges(self) -> Array:
        finite = [part[np.isfinite(part)] for part in (self.positive, self.negative)]
        ends = [end for part in finite if len(part) for end in np.quantile(part, _TAILS)]
        if np.isfinite(self.threshold):
            ends.append(self.threshold)
        low, high = float(min(ends, default=0.0)), float(max(ends, default=0.0))
        if not high > low:
            low, high = low - 0.5, high + 0.5
        fewest = min(len(self.positive), len(self.negative))
        count = int(np.clip(3 * np.sqrt(fewest), 20, 80)) if self.bins is None else self.bins
        return np.linspace(low, high, count + 1)
