"""Figures of merit for detection scores: higher scores speak for the class of interest."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics import roc_curve
from sklearn.utils import check_consistent_length, column_or_1d

__all__ = ["cllr", "equal_error_rate"]

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


def equal_error_rate(
    y_true: ArrayLike,
    y_score: ArrayLike,
    *,
    pos_label: Any = None,
    sample_weight: ArrayLike | None = None,
) -> tuple[float, float]:
    """Error rate at the point where misses and false alarms are equally frequent.

    A sample is accepted when its score is at least the threshold. The miss rate is the share of
    positives that are rejected, the false-alarm rate the share of negatives that are accepted.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        True labels. All labels but `pos_label` count as negative.
    y_score : array-like of shape (n_samples,)
        Scores, higher for the class of interest. Only their order matters; infinite values are
        allowed.
    pos_label : int, float, bool or str, default=None
        The class of interest. None means 1 for labels in {0, 1} or {-1, 1}.
    sample_weight : array-like of shape (n_samples,), default=None
        Non-negative sample weights.

    Returns
    -------
    eer : float
        Equal error rate, between 0 and 1.
    threshold : float
        The score at which the two error rates of `y_score` differ least.

    See Also
    --------
    sklearn.metrics.det_curve : Both error rates at every threshold.

    Notes
    -----
    The rates of a finite sample are seldom exactly equal. The value given is where the
    ROC curve, its points joined by straight lines, meets the line of equal rates [1]_. Equal
    scores are one point of that curve, so their order in the input has no influence. The cost is
    one sort.

    References
    ----------
    .. [1] N. Brümmer and J. du Preez, "Application-independent evaluation of speaker detection",
       Computer Speech & Language 20 (2006) 230-275.

    Examples
    --------
    >>> from pcsda.metrics import equal_error_rate
    >>> equal_error_rate([0, 0, 0, 0, 1, 1, 1, 1], [-3, -2, -1, 1, 0, 2, 3, 4])
    (0.25, 1.0)
    """
    positive, scores, weights = _check_scores(y_true, y_score, "y_score", pos_label, sample_weight)
    levels = None
    if not np.isfinite(scores).all():
        # The ROC depends on the order only, and roc_curve takes finite scores only.
        levels, ranks = np.unique(scores, return_inverse=True)
        scores = ranks.astype(np.float64)
    false_alarm, hit, thresholds = roc_curve(
        positive, scores, sample_weight=weights, drop_intermediate=False
    )
    # From -1 (all rejected) to 1 (all accepted), never falling.
    gap = false_alarm + hit - 1.0
    right = int(np.argmax(gap >= 0.0))
    left = right - 1
    share = gap[left] / (gap[left] - gap[right])
    eer = false_alarm[left] + share * (false_alarm[right] - false_alarm[left])
    nearest = left if -gap[left] < gap[right] else right
    threshold = thresholds[nearest]
    if levels is not None:
        threshold = levels[int(threshold)]
    return float(eer), float(threshold)


def cllr(
    y_true: ArrayLike,
    llr: ArrayLike,
    *,
    pos_label: Any = None,
    sample_weight: ArrayLike | None = None,
) -> float:
    r"""Log-likelihood-ratio cost in bits.

    .. math::

        C_{llr} = \frac{1}{2} \operatorname{mean}_{positives} \log_2(1 + e^{-s})
                + \frac{1}{2} \operatorname{mean}_{negatives} \log_2(1 + e^{s})

    A proper scoring rule for natural log-likelihood ratios `s`: 0 for perfect ones, 1 for a
    system that always says `s = 0`, more than 1 for one that misleads [1]_.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        True labels. All labels but `pos_label` count as negative.
    llr : array-like of shape (n_samples,)
        Natural logarithms of likelihood ratios in favour of the class of interest, without class
        priors. An infinite value costs nothing when it is right and is infinitely bad when wrong.
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
    sklearn.metrics.log_loss : The same idea for probabilities, at the priors of the data.

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
    positive, scores, weights = _check_scores(y_true, llr, "llr", pos_label, sample_weight)
    cost = np.logaddexp(0.0, np.where(positive, -scores, scores))
    means = [
        np.average(cost[group], weights=None if weights is None else weights[group])
        for group in (positive, ~positive)
    ]
    return float(np.mean(means) / np.log(2.0))


def _check_scores(
    y_true: ArrayLike,
    y_score: ArrayLike,
    score_name: str,
    pos_label: Any,
    sample_weight: ArrayLike | None,
) -> tuple[BoolArray, FloatArray, FloatArray | None]:
    """Return which samples are positive, their scores and weights, without zero weights."""
    labels = column_or_1d(y_true)
    scores = column_or_1d(y_score, dtype=np.float64)
    check_consistent_length(labels, scores, sample_weight)
    n_missing = int(np.isnan(scores).sum())
    if n_missing:
        raise ValueError(
            f"{score_name} has {n_missing} NaN among {len(scores)} values; remove or replace them"
        )
    positive = _is_positive(labels, pos_label)
    weights = None
    if sample_weight is not None:
        weights = _check_weights(sample_weight)
        # A weight of zero means an absent sample, also when its cost is infinite.
        kept = weights > 0
        positive, scores, weights = positive[kept], scores[kept], weights[kept]
    for name, count in (("positive", positive.sum()), ("negative", (~positive).sum())):
        if count == 0:
            raise ValueError(
                f"y_true has 0 {name} samples (of weight above 0), at least 1 is needed; give"
                " samples of both classes"
            )
    return positive, scores, weights


def _is_positive(labels: NDArray[Any], pos_label: Any) -> BoolArray:
    if labels.dtype.kind in "fc" and np.isnan(labels).any():
        raise ValueError(f"y_true has {np.isnan(labels).sum()} NaN; remove those samples")
    present = np.unique(labels).tolist()
    if pos_label is None:
        if not (set(present) <= {0, 1} or set(present) <= {-1, 1}):
            raise ValueError(
                f"pos_label=None needs labels in {{0, 1}} or {{-1, 1}}, y_true has"
                f" {_shorten(present)}; name the class of interest with pos_label"
            )
        pos_label = 1
    elif pos_label not in present:
        raise ValueError(
            f"pos_label={pos_label!r} must be one of the labels in y_true, {_shorten(present)};"
            " name one of them"
        )
    return np.asarray(labels == pos_label)


def _shorten(labels: list[Any], limit: int = 10) -> str:
    shown = ", ".join(repr(label) for label in labels[:limit])
    return f"[{shown}, ... {len(labels)} in all]" if len(labels) > limit else f"[{shown}]"


def _check_weights(sample_weight: ArrayLike) -> FloatArray:
    weights: FloatArray = column_or_1d(sample_weight, dtype=np.float64)
    bad = weights[~(np.isfinite(weights) & (weights >= 0))]
    if len(bad):
        raise ValueError(
            f"sample_weight has {len(bad)} values that are negative or not finite, such as"
            f" {bad[0]}; all must be at least 0"
        )
    return weights
