"""From negatives to subclasses: the groups that every statistic is taken over."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.utils import check_random_state
from threadpoolctl import ThreadpoolController

from .validation import distinct

# One subclass for this many negatives, at most MOST_AUTO of them, under n_subclasses="auto".
NEGATIVES_PER_SUBCLASS = 50
MOST_AUTO = 20
# Restarts of k-means; the best of them is kept. They are tried out on a sample of this many rows
# for each cluster, and no fewer than SAMPLE: more rows cost time and hardly change the outcome.
RESTARTS = 3
SAMPLE = 3000
SAMPLE_PER_CLUSTER = 150
# Steps on all rows after that. More of them move few rows, and change the inertia by less than
# another seed does.
STEPS = 20
# Up to this many multiplications a step, threads wait for each other longer than they work.
LIGHT = 5e7
# A step of kernel k-means goes on from the sums of the last one where at most this share of the
# rows changed cluster; the copy of their kernel values stays small.
MOST_MOVED = 1 / 8


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
        K for k-means. "auto" is about one for 50 negatives, between 1 and 20, and never more than
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
    names, codes = different_subclasses(labels)
    groups[rows] = codes + 1
    return groups, names


def different_subclasses(labels: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """Names of the subclasses in order, and the place of each entry's name among them."""
    try:
        return distinct(labels)
    except TypeError as error:
        kinds = sorted({type(label).__name__ for label in labels.tolist()})
        raise ValueError(
            f"subclass_labels mixes {' and '.join(kinds)}, which have no common order; make all of "
            "them text or all of them numbers"
        ) from error


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
        missing = sum(map(_is_missing, labels.tolist()))
        if missing:
            raise ValueError(
                f"subclass_labels is missing (NaN or None) for {missing} negative rows; give each "
                "negative a label, or leave subclass_labels out to cluster them"
            )
    return labels


def _is_missing(label: Any) -> bool:
    try:
        return label is None or bool(label != label)
    except TypeError:  # the NA of pandas is neither equal nor unequal to itself
        return True


def settle_count(negatives: Any, n_subclasses: int | str, total: int | None = None) -> int:
    """Turn `n_subclasses` into a number that the negatives, a sample of `total`, can fill."""
    if n_subclasses == "auto":
        total = negatives.shape[0] if total is None else total
        wanted = min(max(round(total / NEGATIVES_PER_SUBCLASS), 1), MOST_AUTO)
        return count_distinct(negatives, wanted)
    wanted = int(n_subclasses)
    distinct = count_distinct(negatives, wanted)
    if wanted > distinct:
        raise ValueError(
            f"n_subclasses={wanted} must be at most {distinct} (= number of different negative "
            "samples); lower it or use n_subclasses='auto'"
        )
    return wanted


def _cluster(
    negatives: Any, n_subclasses: int | str, subclasses: Any, weights: Any, random_state: Any
) -> NDArray[Any]:
    if not isinstance(subclasses, str):
        labels: NDArray[Any] = clone(subclasses).fit_predict(negatives)
        return labels
    wanted = settle_count(negatives, n_subclasses)
    if wanted == 1:
        return np.zeros(negatives.shape[0], dtype=np.intp)
    labels = run_kmeans(_of_safe_size(negatives), wanted, weights, random_state, overwrite=True)
    found = len(np.unique(labels))
    if found < wanted:
        warnings.warn(
            f"k-means left {wanted - found} of {wanted} subclasses empty; they are dropped",
            stacklevel=2,
        )
    return labels


def run_kmeans(
    rows: Any, count: int, weights: Any, random_state: Any, *, overwrite: bool = False
) -> NDArray[np.intp]:
    """Cluster rows by scikit-learn's k-means, the best of several starts.

    Where there are many rows the starts are tried out on a seeded sample, and the best of them
    goes on with all rows for some steps. With `overwrite` the rows may be written to, which saves
    a copy.
    """
    start: Any = "k-means++"
    restarts, steps = RESTARTS, 300
    enough = max(SAMPLE, SAMPLE_PER_CLUSTER * count)
    if rows.shape[0] > enough:
        rng = check_random_state(random_state)
        chosen = np.sort(rng.choice(rows.shape[0], enough, replace=False))
        tried = KMeans(count, n_init=RESTARTS, random_state=rng, copy_x=False)
        part = None if weights is None else weights[chosen]
        start = fit_kmeans(tried, rows[chosen], part).cluster_centers_
        restarts, steps = 1, STEPS
    means = KMeans(
        count,
        init=start,
        n_init=restarts,
        max_iter=steps,
        random_state=random_state,
        copy_x=not overwrite,
    )
    labels: NDArray[np.intp] = fit_kmeans(means, rows, weights).labels_
    return labels


def fit_kmeans(means: KMeans, rows: Any, weights: Any = None) -> KMeans:
    """Fit k-means, with a single thread where a step is little work."""
    n_rows, width = rows.shape
    light = n_rows * width * means.n_clusters <= LIGHT
    with _openmp().limit(limits=1 if light else None):
        return means.fit(rows, sample_weight=weights)


@cache
def _openmp() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="openmp")


def kernel_kmeans(
    matrix: NDArray[np.float64],
    rows: NDArray[np.intp],
    start: NDArray[np.intp],
    weights: NDArray[np.float64] | None = None,
    max_iter: int = 300,
) -> tuple[NDArray[np.intp], float]:
    """Run k-means in the feature space of a kernel, by Lloyd steps from given labels.

    Parameters
    ----------
    matrix : array of shape (N, N)
        Kernel matrix; it is read in place.
    rows : array of shape (n,)
        The rows to divide.
    start : array of shape (n,)
        Labels 0..K-1 to start from.
    weights : array of shape (n,), optional

    Returns
    -------
    labels : array of shape (n,)
        A cluster that loses all rows is left out of the further steps.
    inertia : float
        Weighted sum of squared distances to the means, up to that of the diagonal.
    """
    labels, each = start, np.arange(len(rows))
    weight = np.ones(len(rows)) if weights is None else weights
    count = int(start.max()) + 1
    sums = None
    for _ in range(max_iter):
        if sums is None:
            members = np.zeros((len(matrix), count))
            members[rows, labels] = weight
            sums = (matrix @ members)[rows]
        sizes = np.bincount(labels, weight, count)
        share = 1 / np.where(sizes > 0, sizes, 1.0)
        similar = sums * share
        # ||phi - mean||^2 without the diagonal, which is the same for every cluster.
        lengths = share * np.bincount(labels, weight * similar[each, labels], count)
        distance = lengths - 2 * similar
        distance[:, sizes == 0] = np.inf
        nearest = distance.argmin(axis=1)
        inertia = float(weight @ distance[each, nearest])
        moved = np.flatnonzero(nearest != labels)
        if len(moved) == 0:
            break
        if len(moved) <= MOST_MOVED * len(rows):
            change = np.zeros((len(moved), count))
            change[each[: len(moved)], nearest[moved]] = weight[moved]
            change[each[: len(moved)], labels[moved]] = -weight[moved]
            sums += (matrix[rows[moved]].T @ change)[rows]
        else:
            sums = None
        labels = nearest
    return labels, inertia


def kernel_start(
    matrix: NDArray[np.float64],
    rows: NDArray[np.intp],
    n_clusters: int,
    rng: np.random.RandomState,
) -> NDArray[np.intp]:
    """Draw labels for :func:`kernel_kmeans` by k-means++ in feature space."""
    diagonal = matrix.diagonal()[rows]
    seeds = [int(rng.randint(len(rows)))]
    distance = None
    while True:
        own = matrix[rows, rows[seeds[-1]]]
        to_seed = np.maximum(diagonal - 2 * own + diagonal[seeds[-1]], 0)
        if distance is None:
            distance, labels = to_seed, np.zeros(len(rows), dtype=np.intp)
        else:
            labels[to_seed < distance] = len(seeds) - 1
            distance = np.minimum(distance, to_seed)
        if len(seeds) == n_clusters or not distance.sum() > 0:
            return labels
        seeds.append(int(rng.choice(len(rows), p=distance / distance.sum())))


def _of_safe_size(rows: Any) -> Any:
    """Rows whose squares neither overflow nor vanish in their own type; mostly as they are."""
    size = float(max(rows.max(), -rows.min()))
    safe = float(np.finfo(rows.dtype).max) ** 0.25
    return rows if 1 / safe <= size <= safe else rows / rows.dtype.type(size)


def merge_equal(
    rows: NDArray[np.floating], weights: NDArray[np.float64]
) -> tuple[NDArray[np.floating], NDArray[np.float64]]:
    """Different rows in the order they come, each with the weight of all that equal it."""
    _, first, codes = np.unique(rows + 0.0, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)
    total: NDArray[np.float64] = np.bincount(codes.ravel(), weights).astype(np.float64)
    return rows[first[order]], total[order]


def count_distinct(rows: Any, enough: int, among: NDArray[np.intp] | None = None) -> int:
    """Count different rows, of all or `among` some, stopping as soon as there are `enough`."""
    seen: set[bytes] = set()
    for start in range(0, rows.shape[0] if among is None else len(among), 256):
        part = slice(start, start + 256)
        block = rows[part if among is None else among[part]]
        dense = block.toarray() if sparse.issparse(block) else np.asarray(block)
        # Adding zero turns -0.0 into 0.0, which has other bytes but is the same number.
        seen.update(row.tobytes() for row in np.ascontiguousarray(dense + 0.0))
        if len(seen) >= enough:
            return enough
    return len(seen)
