"""Are the log-likelihood ratios to be trusted: reliability, and Bayes error over all priors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logit
from scipy.stats import beta
from sklearn.utils.validation import check_is_fitted

from ..metrics import bayes_error_curve, cllr, min_cllr
from ..metrics.scorers import scores_of
from ..metrics.trials import check_trials, sort_trials
from ..unwrap import unwrap
from .style import LINE_COLOR, MUTED_COLOR, SECOND_COLOR, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FloatArray = NDArray[np.float64]


def _ratios(estimator: Any, X: Any, y: ArrayLike) -> tuple[NDArray[np.bool_], FloatArray]:
    """Which rows are of the class of interest, and their log-likelihood ratios."""
    check_is_fitted(estimator)
    label = unwrap(estimator).label
    scores, are_ratios = scores_of(estimator, X, label)
    if not are_ratios:
        raise TypeError(
            f"{type(estimator).__name__} gives no log-likelihood ratios; use from_predictions, or "
            "sklearn.calibration.CalibrationDisplay for probabilities"
        )
    return np.asarray(y) == label, scores


class ReliabilityDisplay:
    """Observed share of the class of interest over its predicted probability.

    Use :meth:`from_estimator` or :meth:`from_predictions` to make one. Probabilities follow from
    log-likelihood ratios at a prior. The line is the best monotonic map (pool adjacent violators),
    the points are bins of equally many samples with intervals; both lie on the diagonal where the
    ratios are calibrated.

    Parameters
    ----------
    predicted, observed : ndarrays of shape (n_bins,)
        Mean predicted probability and observed share in every bin.
    intervals : ndarray of shape (2, n_bins)
        Lower and upper ends of the 95 % intervals of the observed shares.
    curve : ndarray of shape (2, n_points)
        Predicted and observed probability along the monotonic map.
    prior : float
        Prior of the class of interest.

    Attributes
    ----------
    ax_, figure_ : matplotlib axes and figure
    points_ : ErrorbarContainer
    curve_, diagonal_ : Line2D
    legend_ : Legend
    """

    def __init__(
        self,
        *,
        predicted: FloatArray,
        observed: FloatArray,
        intervals: FloatArray,
        curve: FloatArray,
        prior: float,
    ) -> None:
        self.predicted = predicted
        self.observed = observed
        self.intervals = intervals
        self.curve = curve
        self.prior = prior

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: ArrayLike,
        *,
        prior: float | None = None,
        n_bins: int = 10,
        ax: Axes | None = None,
    ) -> ReliabilityDisplay:
        """Draw the reliability of a fitted estimator of this library.

        Parameters
        ----------
        estimator : fitted estimator with log-likelihood ratios
        X : array-like of shape (n_samples, n_features)
            Rows that had no part in fitting.
        y : array-like of shape (n_samples,)
        prior, n_bins
            As in :meth:`from_predictions`.
        ax : matplotlib axes, optional

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
        pos_label: Any = None,
        ax: Axes | None = None,
    ) -> ReliabilityDisplay:
        """Draw the reliability of log-likelihood ratios that are known.

        Parameters
        ----------
        y_true : array-like of shape (n_samples,)
            All labels but `pos_label` count as negative.
        llr : array-like of shape (n_samples,)
            Natural log-likelihood ratios.
        prior : float, default=None
            Prior at which probabilities are made, to which the classes are weighted. None means
            the share of the class of interest among the samples.
        n_bins : int, default=10
            Number of points, at most; equal ratios stay together.
        pos_label : int, float, bool or str, default=None
            The class of interest. None means 1 for labels in {0, 1} or {-1, 1}.
        ax : matplotlib axes, optional

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
        predicted, observed, intervals = _bins(positive, chance, weights, n_bins)
        display = cls(
            predicted=predicted,
            observed=observed,
            intervals=intervals,
            curve=_monotonic(positive, chance, weights),
            prior=prior,
        )
        return display.plot(ax=ax)

    def plot(self, ax: Axes | None = None) -> ReliabilityDisplay:
        """Draw, on new axes unless some are given."""
        self.ax_ = new_axes() if ax is None else ax
        self.figure_ = self.ax_.get_figure()
        (self.diagonal_,) = self.ax_.plot(
            [0, 1], [0, 1], color=MUTED_COLOR, linestyle=":", label="calibrated", zorder=1
        )
        (self.curve_,) = self.ax_.plot(
            *self.curve, color=SECOND_COLOR, linewidth=1.6, label="best monotonic map", zorder=2
        )
        reach = np.abs(self.intervals - self.observed)
        self.points_ = self.ax_.errorbar(
            self.predicted,
            self.observed,
            yerr=reach,
            fmt="o",
            color=LINE_COLOR,
            markeredgecolor="white",
            markersize=7,
            capsize=3,
            label="bins, 95 % intervals",
            zorder=3,
        )
        self.ax_.set_xlabel(f"predicted probability at prior {self.prior:.3g}")
        self.ax_.set_ylabel("observed share of the class of interest")
        self.ax_.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
        self.ax_.set_aspect("equal", adjustable="box")
        self.legend_ = self.ax_.legend(loc="upper left", frameon=False)
        return self


def _bins(
    positive: NDArray[np.bool_], chance: FloatArray, weights: FloatArray, n_bins: int
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Mean prediction, observed share and its interval in bins of about equally many samples."""
    order = np.argsort(chance, kind="stable")
    ends = np.linspace(0, len(order), min(n_bins, len(order)) + 1).astype(int)[1:-1]
    # A bin begins where its first value does, so that equal values share one.
    starts = np.unique(np.searchsorted(chance[order], chance[order][ends]))
    starts = np.append(0, starts[starts > 0])
    sums = [
        np.add.reduceat(values[order], starts)
        for values in (weights, weights * chance, weights * positive, weights**2)
    ]
    mass, predicted, hits, squares = sums
    observed = hits / mass
    # As many samples as the weighted ones are worth, in Jeffreys' interval.
    worth = mass**2 / squares
    tails = np.array([[0.025], [0.975]])
    intervals = beta.ppf(tails, observed * worth + 0.5, (1 - observed) * worth + 0.5)
    intervals[0, observed <= 0], intervals[1, observed >= 1] = 0.0, 1.0
    intervals = np.stack([np.minimum(intervals[0], observed), np.maximum(intervals[1], observed)])
    return predicted / mass, observed, intervals


def _monotonic(positive: NDArray[np.bool_], chance: FloatArray, weights: FloatArray) -> FloatArray:
    """Predicted and observed probability at both ends of every pool."""
    trials = sort_trials(positive, chance, weights)
    pools = trials.pooled()
    share = pools.positives / (pools.positives + pools.negatives)
    first = np.searchsorted(trials.levels, pools.levels)
    last = np.append(first[1:], len(trials.levels)) - 1
    ends = np.stack([trials.levels[first], trials.levels[last]], axis=1).ravel()
    return np.stack([ends, np.repeat(share, 2)])


class BayesErrorDisplay:
    """Normalised Bayes error rate over the prior: what decisions cost, and what they had to.

    Use :meth:`from_estimator` or :meth:`from_predictions` to make one. The gap between the lines is
    lost by calibration. Above 1 it is better not to look at the scores.

    Parameters
    ----------
    prior_log_odds : ndarray of shape (n_priors,)
    actual, minimum : ndarrays of shape (n_priors,)
        Normalised detection cost at the Bayes and at the best threshold.
    cllr, min_cllr : float, default=None
        Shown in the legend.

    Attributes
    ----------
    ax_, figure_ : matplotlib axes and figure
    actual_, minimum_, default_ : Line2D
        The two costs, and that of not looking.
    priors_ : matplotlib axes
        The upper axis, which gives priors in per cent.
    legend_ : Legend
    """

    def __init__(
        self,
        *,
        prior_log_odds: FloatArray,
        actual: FloatArray,
        minimum: FloatArray,
        cllr: float | None = None,
        min_cllr: float | None = None,
    ) -> None:
        self.prior_log_odds = prior_log_odds
        self.actual = actual
        self.minimum = minimum
        self.cllr = cllr
        self.min_cllr = min_cllr

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: ArrayLike,
        *,
        prior_log_odds: ArrayLike | None = None,
        ax: Axes | None = None,
    ) -> BayesErrorDisplay:
        """Draw the Bayes error of a fitted estimator of this library.

        Parameters
        ----------
        estimator : fitted estimator with log-likelihood ratios
        X : array-like of shape (n_samples, n_features)
            Rows that had no part in fitting.
        y : array-like of shape (n_samples,)
        prior_log_odds
            As in :func:`pcsda.metrics.bayes_error_curve`.
        ax : matplotlib axes, optional

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
        pos_label: Any = None,
        ax: Axes | None = None,
    ) -> BayesErrorDisplay:
        """Draw the Bayes error of log-likelihood ratios that are known.

        Parameters
        ----------
        y_true, llr, prior_log_odds, pos_label
            As in :func:`pcsda.metrics.bayes_error_curve`.
        ax : matplotlib axes, optional

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

    def plot(self, ax: Axes | None = None) -> BayesErrorDisplay:
        """Draw, on new axes unless some are given."""
        self.ax_ = new_axes() if ax is None else ax
        self.figure_ = self.ax_.get_figure()
        self.default_ = self.ax_.axhline(
            1.0, color=MUTED_COLOR, linestyle=":", label="without looking", zorder=1
        )
        named = "" if self.cllr is None else f" (Cllr {self.cllr:.3g})"
        (self.actual_,) = self.ax_.plot(
            self.prior_log_odds,
            self.actual,
            color=SECOND_COLOR,
            linewidth=2,
            label=f"actual{named}",
        )
        named = "" if self.min_cllr is None else f" (minCllr {self.min_cllr:.3g})"
        (self.minimum_,) = self.ax_.plot(
            self.prior_log_odds,
            self.minimum,
            color=LINE_COLOR,
            linewidth=2,
            linestyle="--",
            label=f"minimum{named}",
        )
        self.ax_.set_xlim(self.prior_log_odds[0], self.prior_log_odds[-1])
        # Where ratios mislead the cost has no bound; what matters is that it is above 1.
        self.ax_.set_ylim(0, float(np.clip(1.1 * self.actual.max(), 1.15, 2.0)))
        self.ax_.set_xlabel("prior log odds of the class of interest")
        self.ax_.set_ylabel("normalised Bayes error rate")
        self.priors_ = self.ax_.secondary_xaxis("top")
        chances = np.array([0.001, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999])
        self.priors_.set_xticks(logit(chances), [f"{100 * chance:g} %" for chance in chances])
        self.priors_.set_xlabel("prior")
        self.legend_ = self.ax_.legend(loc="best", frameon=False)
        return self
