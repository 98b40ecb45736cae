"""Metrics for log-likelihood ratios: Cllr, its minimum, and the Bayes error at many priors."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, rel_entr

from ..core.linalg import Array
from .trials import Trials, check_trials, sort_trials


def cllr(
    y_true: ArrayLike,
    llr: ArrayLike,
    *,
    pos_label: object = None,
    sample_weight: ArrayLike | None = None,
) -> float:
    r"""Compute the log-likelihood-ratio cost in bits.

    .. math::

        C_{llr} = \frac{1}{2} \operatorname{mean}_{positives} \log_2(1 + e^{-s})
                + \frac{1}{2} \operatorname{mean}_{negatives} \log_2(1 + e^{s})

    This is a proper scoring rule for natural log-likelihood ratios `s`: 0 for perfect ratios, 1 for
    a system that always returns `s = 0`, and more than 1 for a misleading system [1]_.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        True labels. All labels except `pos_label` count as negative.
    llr : array-like of shape (n_samples,)
        Natural log-likelihood ratios in favour of the class of interest, without class priors. An
        infinite value costs nothing if it is right, and an infinite amount if it is wrong.
    pos_label : int, float, bool or str, default=None
        The class of interest. None means 1 for labels in {0, 1} or {-1, 1}.
    sample_weight : array-like of shape (n_samples,), default=None
        Non-negative sample weights.

    Returns
    -------
    float
        The cost in bits, not negative.

    See Also
    --------
    min_cllr : Cllr after the best monotonic calibration.
    sklearn.metrics.log_loss : The same idea for probabilities, using the priors in the data.

    References
    ----------
    .. [1] N. Brümmer and J. du Preez, "Application-independent evaluation of speaker detection",
       Computer Speech & Language 20 (2006) 230-275.

    Examples
    --------
    >>> from pcsda.metrics import cllr
    >>> cllr([0, 1, 1], [0.0, 0.0, 0.0])
    1.0
    """
    positive, scores, weights = check_trials(y_true, llr, "llr", pos_label, sample_weight)
    cost = _softplus(np.where(positive, -scores, scores))
    means = [
        np.average(cost[group], weights=None if weights is None else weights[group])
        for group in (positive, ~positive)
    ]
    return float(np.mean(means) / np.log(2.0))


def _softplus(values: Array) -> Array:
    """Compute ``log(1 + exp(values))``, faster than ``np.logaddexp(0, values)``."""
    return np.asarray(np.log1p(np.exp(-np.abs(values))) + np.maximum(values, 0.0))


def _cllr_of(trials: Trials) -> float:
    sides = ((trials.positives, -trials.levels), (trials.negatives, trials.levels))
    # A level without samples costs nothing, even if a sample there would cost infinity.
    means = [count[count > 0] @ _softplus(wrong[count > 0]) / count.sum() for count, wrong in sides]
    return float(np.mean(means) / np.log(2.0))


def min_cllr(
    y_true: ArrayLike,
    y_score: ArrayLike,
    *,
    pos_label: object = None,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Compute Cllr after the best monotonic mapping of the scores, in bits.

    The minimum measures how well the scores separate the classes, whatever the scale of the scores;
    ``cllr - min_cllr`` is the calibration loss.

    Parameters
    ----------
    y_true
        As in :func:`cllr`.
    y_score : array-like of shape (n_samples,)
        Scores, higher for the class of interest. Only their order matters.
    pos_label, sample_weight
        As in :func:`cllr`.

    Returns
    -------
    float
        Between 0, for perfectly separated classes, and 1, for worthless scores.

    Notes
    -----
    The best mapping is found by pool adjacent violators: all scores in a pool are mapped to the log
    ratio of the two class proportions [1]_. Equal scores are always in the same pool. There is no
    smoothing, so a pool that contains only one class has an infinite ratio and costs nothing.

    References
    ----------
    .. [1] N. Brümmer and E. de Villiers, "The BOSARIS Toolkit: Theory, algorithms and code for
       surviving the new DCF", arXiv:1304.2865 (2013).

    Examples
    --------
    >>> from pcsda.metrics import min_cllr
    >>> min_cllr([0, 0, 1, 1], [-40, -30, -20, -10])
    0.0
    """
    trials = sort_trials(*check_trials(y_true, y_score, "y_score", pos_label, sample_weight))
    return _min_cllr_of(trials)


def _min_cllr_of(trials: Trials) -> float:
    pools = trials.pooled()
    inside = pools.positives / pools.positives.sum()
    outside = pools.negatives / pools.negatives.sum()
    # With ratio r = inside / outside, a pool costs ln(1 + 1/r) per positive, ln(1 + r) per
    # negative.
    both = inside + outside
    gain = rel_entr(inside, both).sum() + rel_entr(outside, both).sum()
    return float(max(0.0, -0.5 * gain / np.log(2.0)))


def bayes_error_curve(
    y_true: ArrayLike,
    llr: ArrayLike,
    *,
    prior_log_odds: ArrayLike | None = None,
    pos_label: object = None,
    sample_weight: ArrayLike | None = None,
) -> tuple[Array, Array, Array]:
    """Compute the normalised Bayes error rate, as actual and minimum cost, at many priors.

    Each prior, with unit costs, represents one application; other costs only shift the prior [1]_.

    Parameters
    ----------
    y_true, llr
        As in :func:`cllr`.
    prior_log_odds : array-like of shape (n_priors,), default=None
        Natural log odds ``ln(prior / (1 - prior))`` at which to evaluate. None means 141 values
        from -7 to 7.
    pos_label, sample_weight
        As in :func:`cllr`.

    Returns
    -------
    prior_log_odds : array of shape (n_priors,)
    actual, minimum : arrays of shape (n_priors,)
        Normalised cost at the Bayes threshold, ``-prior_log_odds``, and at the best threshold.

    References
    ----------
    .. [1] N. Brümmer and E. de Villiers, "The BOSARIS Toolkit: Theory, algorithms and code for
       surviving the new DCF", arXiv:1304.2865 (2013).

    Examples
    --------
    >>> from pcsda.metrics import bayes_error_curve
    >>> y, llr = [0, 0, 1, 1], [-4.0, 1.0, 2.0, 6.0]
    >>> odds, actual, minimum = bayes_error_curve(y, llr, prior_log_odds=[-2.0, 0.0, 2.0])
    >>> actual.tolist(), minimum.tolist()
    ([0.0, 0.5, 0.5], [0.0, 0.0, 0.0])
    """
    odds = np.linspace(-7.0, 7.0, 141) if prior_log_odds is None else prior_log_odds
    odds = np.atleast_1d(np.asarray(odds, dtype=np.float64))
    if odds.ndim != 1 or not np.isfinite(odds).all():
        raise ValueError("prior_log_odds must be finite numbers in one dimension")
    trials = sort_trials(*check_trials(y_true, llr, "llr", pos_label, sample_weight))
    match, non_match = trials.rates
    at = np.searchsorted(trials.levels, -odds)
    actual = _normalized(odds, match[at], non_match[at])
    # The best threshold for any prior is a vertex of the hull, which has only a few vertices.
    match, non_match = trials.pooled().rates
    minimum = _normalized(odds[:, None], match, non_match).min(axis=1)
    return odds, actual, minimum


def _normalized(odds: Array, match: Array, non_match: Array) -> Array:
    """Divide the error cost by the cost of accepting or rejecting all, whichever is lower."""
    of_miss, of_match = expit(odds), expit(-odds)
    return np.asarray((of_miss * non_match + of_match * match) / np.minimum(of_miss, of_match))


# The same metrics as functions of sorted trials.
OF_TRIALS: dict[Any, Any] = {cllr: _cllr_of, min_cllr: _min_cllr_of}
