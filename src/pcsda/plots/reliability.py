"""Plot the calibration of log-likelihood ratios: reliability, and Bayes error at all priors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, logit
from scipy.stats import beta
from sklearn.base import BaseEstimator

from ..core.linalg import Array, Mask
from ..metrics import bayes_error_curve, cllr, min_cllr
from ..metrics.trials import check_trials, sort_trials
from ..validation import MatrixLike
from .style import LINE_COLOR, REFERENCE_STYLE, SECOND_COLOR, Display, score_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D


def _ratios(estimator: BaseEstimator, X: MatrixLike, y: ArrayLike) -> tuple[Mask, Array]:
    """Return which rows belong to the class of interest, and all log-likelihood ratios."""
    positive, scores, are_ratios = score_rows(estimator, X, y)
    if not are_ratios:
        raise TypeError(
            f"{type(estimator).__name__} gives no log-likelihood ratios; use from_predictions, or "
            "sklearn.calibration.CalibrationDisplay for probabilities"
        )
    return positive, scores


@dataclass(kw_only=True, eq=False, repr=False)
class ReliabilityDisplay(Display):
    """Observed proportion of the class of interest against its predicted probability.

    Use :meth:`from_estimator` or :meth:`from_predictions` to make one. Probabilities are
    computed from log-likelihood ratios and a prior. The line is the best monotonic map (pool
    adjacent violators). The points are bins with equal numbers of samples, with intervals. Both lie
    on the diagonal if the ratios are calibrated.

    Parameters
    ----------
    predicted, observed : ndarrays of shape (n_bins,)
        Mean predicted probability and observed proportion in each bin.
    intervals : ndarray of shape (2, n_bins)
        Lower and upper ends of the 95% intervals for the observed proportions.
    curve : ndarray of shape (2, n_points)
        Predicted and observed probabilities along the monotonic map.
    prior : float
        Prior of the class of interest.

    Attributes
    ----------
    ax_, figure_ : matplotlib axes and figure
        Where the plot was drawn.
    points_ : ErrorbarContainer
        The bins with their intervals.
    curve_, diagonal_ : Line2D
        The monotonic map, and the line of perfect calibration.
    legend_ : Legend
        The legend.

    Examples
    --------
    >>> import numpy as np
    >>> from pcsda.plots import ReliabilityDisplay
    >>> labels = np.repeat([0, 1], 500)
    >>> llr = np.random.default_rng(0).normal(4 * labels - 2, 2)
    >>> display = ReliabilityDisplay.from_predictions(labels, llr, n_bins=4)
    >>> print(display.predicted.round(2), display.observed.round(2))
    [0.04 0.28 0.71 0.95] [0.03 0.3  0.72 0.95]
    """

    predicted: Array
    observed: Array
    intervals: Array
    curve: Array
    prior: float

    @classmethod
    def from_estimator(
        cls,
        estimator: BaseEstimator,
        X: MatrixLike,
        y: ArrayLike,
        *,
        prior: float | None = None,
        n_bins: int = 10,
        ax: Axes | None = None,
    ) -> Self:
        """Plot the reliability of a fitted estimator from this library.

        Parameters
        ----------
        estimator : fitted estimator with log-likelihood ratios
            A model of this library, or a pipeline or search that contains one.
        X : array-like of shape (n_samples, n_features)
            Rows that were not used for fitting.
        y : array-like of shape (n_samples,)
            True labels; all except the class of interest count as negative.
        prior, n_bins
            As in :meth:`from_predictions`.
        ax : matplotlib axes, optional
            Where to draw; by default, a new figure.

        Returns
        -------
        ReliabilityDisplay
        """
        return cls.from_predictions(*_ratios(estimator, X, y), prior=prior, n_bins=n_bins, ax=ax)

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        llr: ArrayLike,
        *,
        prior: float | None = None,
        n_bins: int = 10,
        pos_label: object = None,
        ax: Axes | None = None,
    ) -> Self:
        """Plot the reliability of given log-likelihood ratios.

        Parameters
        ----------
        y_true : array-like of shape (n_samples,)
            All labels except `pos_label` count as negative.
        llr : array-like of shape (n_samples,)
            Natural log-likelihood ratios.
        prior : float, default=None
            Prior for the probabilities; the classes are weighted to match it. None means the
            proportion of samples in the class of interest.
        n_bins : int, default=10
            Maximum number of points; equal ratios always share a bin.
        pos_label : int, float, bool or str, default=None
            The class of interest. None means 1 for labels in {0, 1} or {-1, 1}.
        ax : matplotlib axes, optional
            Where to draw; by default, a new figure.

        Returns
        -------
        ReliabilityDisplay
        """
        positive, ratios, _ = check_trials(y_true, llr, "llr", pos_label, None)
        share = float(positive.mean())
        prior = share if prior is None else prior
        if not 0 < prior < 1:
            raise ValueError(f"prior={prior} must lie between 0 and 1, both excluded")
        if n_bins < 1:
            raise ValueError(f"n_bins={n_bins} must be at least 1")
        chance = expit(ratios + logit(prior))
        weights = np.where(positive, prior / share, (1 - prior) / (1 - share))
        bins = _bins(positive, chance, weights, n_bins)
        return cls(**bins, curve=_monotonic(positive, chance, weights), prior=prior).plot(ax=ax)

    def _draw(self) -> None:
        (self.diagonal_,) = self.ax_.plot([0, 1], [0, 1], label="calibrated", **REFERENCE_STYLE)
        style: dict[str, Any] = {"color": SECOND_COLOR, "linewidth": 1.6, "zorder": 2}
        (self.curve_,) = self.ax_.plot(*self.curve, label="best monotonic map", **style)
        reach = np.abs(self.intervals - self.observed)
        style = {"color": LINE_COLOR, "markeredgecolor": "white", "markersize": 7, "zorder": 3}
        style |= {"fmt": "o", "capsize": 3, "label": "bins, 95% intervals"}
        self.points_ = self.ax_.errorbar(self.predicted, self.observed, reach, **style)
        self.ax_.set(xlabel=f"predicted probability at prior {self.prior:.3g}", xlim=(-0.02, 1.02))
        self.ax_.set(ylabel="observed share of the class of interest", ylim=(-0.02, 1.02))
        self.ax_.set_aspect("equal", adjustable="box")
        self.legend_ = self.ax_.legend(loc="upper left", frameon=False)


def _bins(positive: Mask, chance: Array, weights: Array, n_bins: int) -> dict[str, Array]:
    """Return mean prediction, observed proportion and its interval for bins of similar size."""
    order = np.argsort(chance, kind="stable")
    ends = np.linspace(0, len(order), min(n_bins, len(order)) + 1).astype(int)[1:-1]
    # A bin starts with its first value, so that equal values share a bin.
    starts = np.unique(np.searchsorted(chance[order], chance[order][ends]))
    starts = np.append(0, starts[starts > 0])
    mass, predicted, hits, squares = (
        np.add.reduceat(values[order], starts)
        for values in (weights, weights * chance, weights * positive, weights**2)
    )
    observed = hits / mass
    # Jeffreys' interval for the effective number of samples.
    worth = mass**2 / squares
    tails = np.array([[0.025], [0.975]])
    intervals = beta.ppf(tails, observed * worth + 0.5, (1 - observed) * worth + 0.5)
    intervals[0, observed <= 0], intervals[1, observed >= 1] = 0.0, 1.0
    intervals = np.stack([np.minimum(intervals[0], observed), np.maximum(intervals[1], observed)])
    return {"predicted": predicted / mass, "observed": observed, "intervals": intervals}


def _monotonic(positive: Mask, chance: Array, weights: Array) -> Array:
    """Return the predicted and observed probabilities at both ends of each step of the map.

    The map is the best monotonic one, and each step is a pool of adjacent violators.
    """
    trials = sort_trials(positive, chance, weights)
    pools = trials.pooled()
    share = pools.positives / (pools.positives + pools.negatives)
    first = np.searchsorted(trials.levels, pools.levels)
    last = np.append(first[1:], len(trials.levels)) - 1
    ends = np.stack([trials.levels[first], trials.levels[last]], axis=1).ravel()
    return np.stack([ends, np.repeat(share, 2)])


@dataclass(kw_only=True, eq=False, repr=False)
class BayesErrorDisplay(Display):
    """Normalised Bayes error rate against the prior, as actual and minimum cost.

    Use :meth:`from_estimator` or :meth:`from_predictions` to make one. The gap between the lines is
    the calibration loss. If the cost is above 1, it is better to ignore the scores.

    Parameters
    ----------
    prior_log_odds : ndarray of shape (n_priors,)
        Natural log odds of the class of interest.
    actual, minimum : ndarrays of shape (n_priors,)
        Normalised detection cost at the Bayes threshold and at the best threshold.
    cllr, min_cllr : float, default=None
        Shown in the legend.

    Attributes
    ----------
    ax_, figure_ : matplotlib axes and figure
        Where the plot was drawn.
    actual_, minimum_, default_ : Line2D
        The two costs, and the cost of ignoring the scores.
    priors_ : matplotlib axes
        The upper axis, which shows priors in per cent.
    legend_ : Legend
        The legend.

    Examples
    --------
    >>> import numpy as np
    >>> from pcsda.plots import BayesErrorDisplay
    >>> labels = np.repeat([0, 1], 500)
    >>> llr = np.random.default_rng(0).normal(4 * labels - 2, 2)
    >>> display = BayesErrorDisplay.from_predictions(labels, llr)
    >>> print(f"{display.cllr:.3f} {display.min_cllr:.3f}")
    0.508 0.486
    """

    prior_log_odds: Array
    actual: Array
    minimum: Array
    cllr: float | None = None
    min_cllr: float | None = None

    @classmethod
    def from_estimator(
        cls,
        estimator: BaseEstimator,
        X: MatrixLike,
        y: ArrayLike,
        *,
        prior_log_odds: ArrayLike | None = None,
        ax: Axes | None = None,
    ) -> Self:
        """Plot the Bayes error of a fitted estimator from this library.

        Parameters
        ----------
        estimator : fitted estimator with log-likelihood ratios
            A model of this library, or a pipeline or search that contains one.
        X : array-like of shape (n_samples, n_features)
            Rows that were not used for fitting.
        y : array-like of shape (n_samples,)
            True labels; all except the class of interest count as negative.
        prior_log_odds
            As in :func:`pcsda.metrics.bayes_error_curve`.
        ax : matplotlib axes, optional
            Where to draw; by default, a new figure.

        Returns
        -------
        BayesErrorDisplay
        """
        positive, ratios = _ratios(estimator, X, y)
        return cls.from_predictions(positive, ratios, prior_log_odds=prior_log_odds, ax=ax)

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        llr: ArrayLike,
        *,
        prior_log_odds: ArrayLike | None = None,
        pos_label: object = None,
        ax: Axes | None = None,
    ) -> Self:
        """Plot the Bayes error of given log-likelihood ratios.

        Parameters
        ----------
        y_true, llr, prior_log_odds, pos_label
            As in :func:`pcsda.metrics.bayes_error_curve`.
        ax : matplotlib axes, optional
            Where to draw; by default, a new figure.

        Returns
        -------
        BayesErrorDisplay
        """
        positive, ratios, _ = check_trials(y_true, llr, "llr", pos_label, None)
        odds, actual, minimum = bayes_error_curve(positive, ratios, prior_log_odds=prior_log_odds)
        return cls(
            prior_log_odds=odds,
            actual=actual,
            minimum=minimum,
            cllr=cllr(positive, ratios),
            min_cllr=min_cllr(positive, ratios),
        ).plot(ax=ax)

    def _draw(self) -> None:
        self.default_ = self.ax_.axhline(1.0, label="ignoring the scores", **REFERENCE_STYLE)
        self.actual_ = self._line(self.actual, "actual", "Cllr", self.cllr, SECOND_COLOR, "-")
        self.minimum_ = self._line(
            self.minimum, "minimum", "minCllr", self.min_cllr, LINE_COLOR, "--"
        )
        ends = self.prior_log_odds[[0, -1]]
        self.ax_.set(xlabel="prior log odds of the class of interest", xlim=ends)
        # The cost of misleading ratios is unbounded; it only matters that it is above 1.
        top = float(np.clip(1.1 * self.actual.max(), 1.15, 2.0))
        self.ax_.set(ylabel="normalised Bayes error rate", ylim=(0, top))
        self.priors_ = self.ax_.secondary_xaxis("top")
        chances = np.array([0.001, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999])
        self.priors_.set_xticks(logit(chances), [f"{100 * chance:g}%" for chance in chances])
        self.priors_.set_xlabel("prior")
        self.legend_ = self.ax_.legend(loc="best", frameon=False)

    def _line(
        self, costs: Array, name: str, total: str, value: float | None, color: str, style: str
    ) -> Line2D:
        label = name if value is None else f"{name} ({total} {value:.3g})"
        look: dict[str, Any] = {"color": color, "linewidth": 2, "linestyle": style, "label": label}
        return self.ax_.plot(self.prior_log_odds, costs, **look)[0]
