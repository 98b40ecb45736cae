"""Ranking metrics: precision at the top, and the rank of the correct label in a bank."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_array, check_consistent_length, column_or_1d

from ..core.linalg import Array, Ints
from ..targets import shorten
from .trials import check_scores, is_positive


def precision_at_k(
    y_true: ArrayLike, y_score: ArrayLike, k: int = 10, *, pos_label: object = None
) -> float:
    """Return the proportion of positives among the k best scores.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        True labels. All labels except `pos_label` count as negative.
    y_score : array-like of shape (n_samples,)
        Scores, higher for the class of interest. Only their order matters.
    k : int, default=10
        Number of best scores, at most n_samples.
    pos_label : int, float, bool or str, default=None
        The class of interest. None means 1 for labels in {0, 1} or {-1, 1}.

    Returns
    -------
    float
        Between 0 and 1.

    See Also
    --------
    sklearn.metrics.average_precision_score : Mean of the precision at the rank of each positive.

    Notes
    -----
    If equal scores straddle rank k, the value is the mean over all their orders [1]_. The running
    time is linear, as the best k are found without sorting.

    References
    ----------
    .. [1] F. McSherry and M. Najork, "Computing information retrieval performance measures
       efficiently in the presence of tied scores", ECIR 2008.

    Examples
    --------
    >>> from pcsda.metrics import precision_at_k
    >>> precision_at_k([0, 1, 0, 1], [0.1, 0.9, 0.8, 0.8], k=2)
    0.75
    """
    labels, scores = column_or_1d(y_true), check_scores(y_score, "y_score")
    check_consistent_length(labels, scores)
    positive = is_positive(labels, pos_label)
    _check_rank(k, len(scores), "n_samples")
    last = np.partition(scores, len(scores) - k)[len(scores) - k]
    above, tied = scores > last, scores == last
    places = k - np.count_nonzero(above)
    hits = np.count_nonzero(positive & above) + positive[tied].mean() * places
    return float(hits / k)


def cmc_curve(y_true: ArrayLike, scores: ArrayLike, *, labels: ArrayLike | None = None) -> Array:
    """Compute the cumulative match characteristic: how often the top k contain the correct label.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        True label of each row, among `labels`.
    scores : array-like of shape (n_samples, n_labels)
        Score of each row for each label, such as ``bank.log_likelihood_ratio(X)``.
    labels : array-like of shape (n_labels,), default=None
        Label of each column, such as ``bank.classes_``. None means the labels in `y_true`, sorted.

    Returns
    -------
    array of shape (n_labels,)
        Entry ``k - 1`` is the identification rate at rank k; the last is 1.

    See Also
    --------
    rank_k_rate : A single entry of this curve.

    Notes
    -----
    If other labels tie with the right one, the mean over all orders of the tied labels is taken, so
    a bank that gives equal scores to all labels does no better than guessing. The running time is
    linear in the number of scores.

    Examples
    --------
    >>> from pcsda.metrics import cmc_curve
    >>> cmc_curve(["a", "b"], [[2.0, 1.0], [3.0, 0.0]])
    array([0.5, 1. ])
    """
    table: Array = check_array(
        scores, dtype=np.float64, ensure_all_finite=False, input_name="scores"
    )
    if np.isnan(table).any():
        raise ValueError(f"scores has {np.isnan(table).sum()} NaN; remove or replace them")
    columns = _columns_of(column_or_1d(y_true), table, labels)
    own = table[np.arange(len(table)), columns][:, None]
    better = (table > own).sum(axis=1)
    tied = (table == own).sum(axis=1)
    # Each row spreads one match evenly over the ranks better + 1 ... better + tied.
    steps = np.zeros(table.shape[1] + 1)
    np.add.at(steps, better, 1 / tied)
    np.subtract.at(steps, better + tied, 1 / tied)
    curve = np.cumsum(np.cumsum(steps[:-1])) / len(table)
    return np.clip(curve, 0.0, 1.0)


def rank_k_rate(
    y_true: ArrayLike, scores: ArrayLike, k: int = 1, *, labels: ArrayLike | None = None
) -> float:
    """Compute the identification rate at rank k: how often the top k contain the correct label.

    Parameters
    ----------
    y_true, scores
        As in :func:`cmc_curve`.
    k : int, default=1
        How many of the best labels to consider, at most all of them.
    labels
        As in :func:`cmc_curve`.

    Returns
    -------
    float
        Between 0 and 1.

    See Also
    --------
    sklearn.metrics.top_k_accuracy_score : The same, but ties are broken by label order.

    Examples
    --------
    >>> from pcsda.metrics import rank_k_rate
    >>> rank_k_rate(["a", "b", "c"], [[2.0, 1.0, 0.0], [3.0, 0.0, 1.0], [0.0, 2.0, 1.0]], k=2)
    0.6666666666666666
    """
    curve = cmc_curve(y_true, scores, labels=labels)
    _check_rank(k, len(curve), "n_labels")
    return float(curve[k - 1])


def _check_rank(k: int, most: int, name: str) -> None:
    if isinstance(k, bool) or not isinstance(k, Integral) or not 1 <= k <= most:
        raise ValueError(f"k={k!r} must be a whole number between 1 and {most} (= {name})")


def _columns_of(y_true: NDArray[Any], table: Array, labels: ArrayLike | None) -> Ints:
    """Return the column of each row's true label."""
    check_consistent_length(y_true, table)
    names = np.unique(y_true) if labels is None else column_or_1d(labels)
    if len(names) != table.shape[1]:
        whose = "y_true" if labels is None else "labels"
        raise ValueError(
            f"scores has {table.shape[1]} columns but {whose} has {len(names)} labels; give the "
            "label of each column with labels"
        )
    place = {name: column for column, name in enumerate(names.tolist())}
    if len(place) < len(names):
        raise ValueError(f"labels names some columns twice: {shorten(names.tolist())}")
    unknown = sorted({*y_true.tolist()} - place.keys())
    if unknown:
        raise ValueError(
            f"y_true has labels without a column, {shorten(unknown)}; ranks require a closed set: "
            "leave those rows out"
        )
    return np.array([place[name] for name in y_true.tolist()], dtype=np.intp)
