"""Metrics for accept/reject errors: equal error rate, detection cost, and rates at a limit."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..core.decision import bayes_threshold, weighted_costs
from ..core.linalg import Array
from .trials import Trials, check_trials, sort_trials


def equal_error_rate(
    y_true: ArrayLike,
    y_score: ArrayLike,
    *,
    convex_hull: bool = False,
    pos_label: object = None,
    sample_weight: ArrayLike | None = None,
) -> tuple[float, float]:
    """Return the error rate at which misses and false alarms are equally frequent.

    A sample is accepted when its score is at least the threshold. The miss rate is the
    proportion of positives that are rejected; the false-alarm rate is the proportion of negatives
    that are accepted.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        True labels. All labels except `pos_label` count as negative.
    y_score : array-like of shape (n_samples,)
        Scores, higher for the class of interest. Only their order matters; infinite values are
        allowed.
    convex_hull : bool, default=False
        Whether to use the ROC convex hull (ROCCH-EER). This rate is never larger: the best random
        mixture of two thresholds achieves it, and no calibration changes it [2]_.
    pos_label : int, float, bool or str, default=None
        The class of interest. None means 1 for labels in {0, 1} or {-1, 1}.
    sample_weight : array-like of shape (n_samples,), default=None
        Non-negative sample weights.

    Returns
    -------
    eer : float
        Equal error rate, between 0 and 1.
    threshold : float
        The score at which the two error rates differ least; with `convex_hull`, the best among the
        hull's vertices.

    See Also
    --------
    sklearn.metrics.det_curve : Both error rates at each threshold.
    roc_convex_hull : The vertices of this hull.

    Notes
    -----
    In a finite sample, the two rates are seldom exactly equal. The result is the rate at which the
    ROC curve, its points joined by straight lines, crosses the line of equal rates [1]_. Equal
    scores form a single point on that curve, so their order in the input does not matter. The
    computation takes one sort.

    References
    ----------
    .. [1] N. Brümmer and J. du Preez, "Application-independent evaluation of speaker detection",
       Computer Speech & Language 20 (2006) 230-275.
    .. [2] N. Brümmer and E. de Villiers, "The BOSARIS Toolkit: Theory, algorithms and code for
       surviving the new DCF", arXiv:1304.2865 (2013).

    Examples
    --------
    >>> from pcsda.metrics import equal_error_rate
    >>> equal_error_rate([0, 0, 0, 0, 1, 1, 1, 1], [-3, -2, -1, 1, 0, 2, 3, 4])
    (0.25, 1.0)
    """
    trials = sort_trials(*check_trials(y_true, y_score, "y_score", pos_label, sample_weight))
    return _equal_rate(trials, convex_hull)


def _equal_rate(trials: Trials, convex_hull: bool = False) -> tuple[float, float]:
    """Interpolate the rate where both error rates are equal; also return the nearest threshold."""
    trials = trials.pooled() if convex_hull else trials
    match, non_match = trials.rates
    # The gap between the two rates falls from 1 (all accepted) to -1 (all rejected) and never
    # rises.
    gap = match - non_match
    low = int(np.searchsorted(-gap, 0.0, side="right")) - 1
    high = low + 1
    share = gap[low] / (gap[low] - gap[high])
    rate = match[low] + share * (match[high] - match[low])
    nearest = high if -gap[high] < gap[low] else low
    return float(rate), float(trials.thresholds[nearest])


def roc_convex_hull(
    y_true: ArrayLike,
    y_score: ArrayLike,
    *,
    pos_label: object = None,
    sample_weight: ArrayLike | None = None,
) -> tuple[Array, Array, Array]:
    """Return the vertices of the ROC convex hull, found by pool adjacent violators.

    Parameters
    ----------
    y_true, y_score, pos_label, sample_weight
        As in :func:`equal_error_rate`.

    Returns
    -------
    false_match_rate, false_non_match_rate : arrays of shape (n_vertices,)
        Error rates at the vertices, from (1, 0), where everything is accepted, to (0, 1), where
        everything is rejected.
    thresholds : array of shape (n_vertices,)
        The lowest score that is accepted at each vertex; infinity at the last.

    References
    ----------
    .. [1] N. Brümmer and E. de Villiers, "The BOSARIS Toolkit: Theory, algorithms and code for
       surviving the new DCF", arXiv:1304.2865 (2013).

    Examples
    --------
    >>> from pcsda.metrics import roc_convex_hull
    >>> false_match, false_non_match, thresholds = roc_convex_hull([0, 1, 0, 1], [1, 2, 3, 4])
    >>> false_match.tolist(), false_non_match.tolist()
    ([1.0, 0.5, 0.0, 0.0], [0.0, 0.0, 0.5, 1.0])
    """
    hull = sort_trials(*check_trials(y_true, y_score, "y_score", pos_label, sample_weight)).pooled()
    return *hull.rates, hull.thresholds


def detection_cost(
    y_true: ArrayLike,
    llr: ArrayLike,
    *,
    prior: float = 0.5,
    cost_miss: float = 1.0,
    cost_false_alarm: float = 1.0,
    threshold: float | None = None,
    normalize: bool = True,
    pos_label: object = None,
    sample_weight: ArrayLike | None = None,
) -> float:
    r"""Return the expected cost of decisions at one threshold (actual DCF).

    .. math::

        C = C_{miss} \, \pi \, P_{miss} + C_{fa} \, (1 - \pi) \, P_{fa}

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        True labels. All labels except `pos_label` count as negative.
    llr : array-like of shape (n_samples,)
        Natural log-likelihood ratios in favour of the class of interest; any scores if `threshold`
        is given. Samples at or above the threshold are accepted.
    prior : float, default=0.5
        Probability of the class of interest in the application, between 0 and 1; not its
        proportion among the samples.
    cost_miss, cost_false_alarm : float, default=1
        Costs of rejecting a positive and of accepting a negative.
    threshold : float, default=None
        None means the :func:`bayes_threshold` for the prior and costs, which is the best threshold
        for true log-likelihood ratios.
    normalize : bool, default=True
        Whether to divide by the cost of accepting everything or of rejecting everything, whichever
        is lower, as NIST does [1]_. A normalised cost above 1 is worse than ignoring the scores.
    pos_label : int, float, bool or str, default=None
        The class of interest. None means 1 for labels in {0, 1} or {-1, 1}.
    sample_weight : array-like of shape (n_samples,), default=None
        Non-negative sample weights.

    Returns
    -------
    float
        The cost, not negative.

    See Also
    --------
    min_detection_cost : The cost at the best threshold.

    References
    ----------
    .. [1] National Institute of Standards and Technology, "NIST 2016 Speaker Recognition
       Evaluation Plan", section 3.1.

    Examples
    --------
    >>> from pcsda.metrics import detection_cost
    >>> detection_cost([0, 0, 1, 1], [-4.0, 1.0, 2.0, 6.0])
    0.5
    """
    positive, scores, weights = check_trials(y_true, llr, "llr", pos_label, sample_weight)
    use = {"prior": prior, "cost_miss": cost_miss, "cost_false_alarm": cost_false_alarm}
    # Two levels are enough: rejected and accepted.
    cut = _settled(threshold, **use)
    trials = sort_trials(positive, (scores >= cut).astype(np.float64), weights)
    return _cost_at(trials, 1.0, normalize, **use)


def _settled(threshold: float | None, **use: float) -> float:
    if threshold is None:
        return bayes_threshold(**use)
    if np.isnan(threshold):
        raise ValueError("threshold=nan must be a number; scores at or above it are accepted")
    return threshold


def _cost_at(
    trials: Trials, threshold: float | None = None, normalize: bool = True, **use: float
) -> float:
    cut = _settled(threshold, **use)
    costs, scale = _costs(trials, **use)
    cost = costs[np.searchsorted(trials.levels, cut)]
    return float(cost / scale if normalize else cost)


def _costs(
    trials: Trials, prior: float = 0.5, cost_miss: float = 1.0, cost_false_alarm: float = 1.0
) -> tuple[Array, float]:
    """Return the cost at each threshold, and the cost of the better constant decision.

    A constant decision accepts everything or rejects everything.
    """
    miss, false_alarm = weighted_costs(prior, cost_miss, cost_false_alarm)
    match, non_match = trials.rates
    return miss * non_match + false_alarm * match, min(miss, false_alarm)


def min_detection_cost(
    y_true: ArrayLike,
    y_score: ArrayLike,
    *,
    prior: float = 0.5,
    cost_miss: float = 1.0,
    cost_false_alarm: float = 1.0,
    normalize: bool = True,
    pos_label: object = None,
    sample_weight: ArrayLike | None = None,
) -> tuple[float, float]:
    """Return the expected cost at the best threshold (minimum DCF), and that threshold.

    Parameters
    ----------
    y_true
        As in :func:`detection_cost`.
    y_score : array-like of shape (n_samples,)
        Scores, higher for the class of interest. Only their order matters.
    prior, cost_miss, cost_false_alarm, normalize, pos_label, sample_weight
        As in :func:`detection_cost`.

    Returns
    -------
    cost : float
        The cost; at most 1 if normalised. The difference between :func:`detection_cost` and this
        cost is the calibration loss.
    threshold : float
        The lowest of the best thresholds; infinity if it is best to reject everything. It was
        chosen on these samples, so expect a higher cost on others.

    Examples
    --------
    >>> from pcsda.metrics import min_detection_cost
    >>> min_detection_cost([0, 0, 1, 1], [-4.0, 1.0, 2.0, 6.0], prior=0.01)
    (0.0, 2.0)
    """
    weighted_costs(prior, cost_miss, cost_false_alarm)  # checks before the sort
    trials = sort_trials(*check_trials(y_true, y_score, "y_score", pos_label, sample_weight))
    use = {"prior": prior, "cost_miss": cost_miss, "cost_false_alarm": cost_false_alarm}
    return _least_cost(trials, normalize, **use)


def _least_cost(trials: Trials, normalize: bool = True, **use: float) -> tuple[float, float]:
    costs, scale = _costs(trials, **use)
    best = int(costs.argmin())
    cost = costs[best] / scale if normalize else costs[best]
    return float(cost), float(trials.thresholds[best])


def fnmr_at_fmr(
    y_true: ArrayLike,
    y_score: ArrayLike,
    fmr: float = 0.01,
    *,
    pos_label: object = None,
    sample_weight: ArrayLike | None = None,
) -> tuple[float, float]:
    """Return the false non-match rate when the false match rate is at most a given limit.

    Parameters
    ----------
    y_true, y_score
        As in :func:`equal_error_rate`.
    fmr : float, default=0.01
        Largest proportion of negatives that may be accepted, between 0 and 1. With fewer than 1/fmr
        negatives, no false match is allowed; in that case, consider the confidence interval.
    pos_label, sample_weight
        As in :func:`equal_error_rate`.

    Returns
    -------
    fnmr : float
        Proportion of positives that are rejected at the threshold.
    threshold : float
        The lowest threshold that meets the limit: one of the given scores, without interpolation
        [1]_, or infinity if every sample must be rejected.

    References
    ----------
    .. [1] ISO/IEC 19795-1:2021, "Biometric performance testing and reporting".

    Examples
    --------
    >>> from pcsda.metrics import fnmr_at_fmr
    >>> fnmr_at_fmr([0, 0, 0, 0, 1, 1, 1, 1], [-3, -2, -1, 1, 0, 2, 3, 4], fmr=0.25)
    (0.0, 0.0)
    """
    trials = sort_trials(*check_trials(y_true, y_score, "y_score", pos_label, sample_weight))
    return _rate_at(trials, fmr)


def _rate_at(trials: Trials, fmr: float = 0.01) -> tuple[float, float]:
    if not 0 <= fmr <= 1:
        raise ValueError(f"fmr={fmr} must lie between 0 and 1; 0.01 is one false match in 100")
    match, non_match = trials.rates
    # The last rate is 0, so some threshold stays within the limit.
    first = int(np.argmax(match <= fmr))
    return float(non_match[first]), float(trials.thresholds[first])


# The same metrics as functions of sorted trials.
OF_TRIALS: dict[Any, Any] = {
    equal_error_rate: _equal_rate,
    detection_cost: _cost_at,
    min_detection_cost: _least_cost,
    fnmr_at_fmr: _rate_at,
}
