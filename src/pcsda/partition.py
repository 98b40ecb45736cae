"""From negatives to subclasses: the groups that every statistic is taken over."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import clone
from sklearn.cluster import KMeans

# One subclass for this many negatives, at most MOST_AUTO of them, under n_subclasses="auto".
NEGATIVES_PER_SUBCLASS = 50
MOST_AUTO = 10
# Restarts of k-means; the best of them is kept.
RESTARTS = 3


def make_groups(
    X: Any,
    positive: NDArray[np.bool_],
    *,
    n_subclasses: int | str = "auto",
    subclasses: Any = "kmeans",
    subclass_labels: ArrayLike | None = None,
    weights: NDArray[np.float64] | None = None,
    random_state: Any = None,
) -> tuple[NDArray[np.intp], NDArray[Any]]:
    """Number the groups of the rows: 0 for positives, 1..K for subclasses of the negatives.

    Parameters
    ----------
    X : array or sparse matrix of shape (N, D)
    positive : boolean array of shape (N,)
    n_subclasses : int or "auto"
        K for k-means. "auto" is about one for 50 negatives, between 1 and 10, and never more than
        there are different negatives.
    subclasses : "kmeans", "samples" or a scikit-learn clusterer
        The clusterer is cloned and fitted on the negatives; its noise label (-1), if any, makes a
        subclass of its own.
    subclass_labels : array-like of shape (N,), optional
        Given subclasses, which win over all else. Entries of positive rows are ignored.
    weights : array of shape (N,), optional
        Weights of the rows in k-means.
    random_state : int, RandomState instance or None

    Returns
    -------
    groups : array of shape (N,)
    names : array of shape (K,)
        The given or found label of each subclass.
    """
    groups = np.zeros(len(positive), dtype=np.intp)
    rows = np.flatnonzero(~positive)
    if subclass_labels is not None:
        labels = given_labels(subclass_labels, positive)
    elif isinstance(subclasses, str) and subclasses == "samples":
        labels = np.arange(len(rows))
    else:
        weight = None if weights is None else weights[rows]
        labels = _cluster(X[rows], n_subclasses, subclasses, weight, random_state)
    names, codes = np.unique(labels, return_inverse=True)
    groups[rows] = codes.ravel() + 1
    return groups, names


def given_labels(subclass_labels: ArrayLike, positive: NDArray[np.bool_]) -> NDArray[Any]:
    """Check subclass labels given by the caller and return those of the negatives."""
    labels = np.asarray(subclass_labels)
    if labels.shape != positive.shape:
        raise ValueError(
            f"subclass_labels has shape {labels.shape} but must have one entry for each of the "
            f"{len(positive)} rows of X; entries of positive rows are ignored"
        )
    labels = labels[~positive]
    if labels.dtype.kind in "fO":  # no other type can hold a missing value
        missing = sum(label is None or label != label for label in labels.tolist())
        if missing:
            raise ValueError(
                f"subclass_labels is missing (NaN or None) for {missing} negative rows; give each "
                "negative a label, or leave subclass_labels out to cluster them"
            )
    return labels


def _cluster(
    negatives: Any, n_subclasses: int | str, subclasses: Any, weights: Any, random_state: Any
) -> NDArray[Any]:
    if not isinstance(subclasses, str):
        labels: NDArray[Any] = clone(subclasses).fit_predict(negatives)
        return labels
    n_rows = negatives.shape[0]
    if n_subclasses == "auto":
        wanted = min(max(round(n_rows / NEGATIVES_PER_SUBCLASS), 1), MOST_AUTO)
        wanted = count_distinct(negatives, wanted)
    else:
        wanted = int(n_subclasses)
        distinct = count_distinct(negatives, wanted)
        if wanted > distinct:
            raise ValueError(
                f"n_subclasses={wanted} must be at most {distinct} (= number of different "
                "negative samples); lower it or use n_subclasses='auto'"
            )
    if wanted == 1:
        return np.zeros(n_rows, dtype=np.intp)
    means = KMeans(n_clusters=wanted, n_init=RESTARTS, random_state=random_state)
    labels = means.fit(negatives, sample_weight=weights).labels_
    found = len(np.unique(labels))
    if found < wanted:
        warnings.warn(
            f"k-means left {wanted - found} of {wanted} subclasses empty; they are dropped",
            stacklevel=2,
        )
    return labels


def count_distinct(rows: Any, enough: int) -> int:
    """Count different rows, stopping as soon as there are `enough`."""
    seen: set[bytes] = set()
    for start in range(0, rows.shape[0], 256):
        block = rows[start : start + 256]
        dense = block.toarray() if sparse.issparse(block) else np.asarray(block)
        # Adding zero turns -0.0 into 0.0, which has other bytes but is the same number.
        seen.update(row.tobytes() for row in np.ascontiguousarray(dense + 0.0))
        if len(seen) >= enough:
            return enough
    return len(seen)
