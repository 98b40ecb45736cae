"""From negatives to subclasses: the groups that every statistic is taken over."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.utils import check_random_state
from threadpoolctl import ThreadpoolController

from .core.linalg import BLOCK_BYTES, Array, over_rows
from .core.scatter import group_means
from .validation import distinct

# One subclass for this many negatives, at most MOST_AUTO of them, under n_subclasses="auto".
NEGATIVES_PER_SUBCLASS = 50
MOST_AUTO = 20
# Restarts of k-means; the best of them is kept. They run on a sample of this many rows for each
# cluster, and no fewer than SAMPLE: more rows cost time and hardly change the outcome.
RESTARTS = 3
SAMPLE = 3000
SAMPLE_PER_CLUSTER = 150
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
    labels = run_kmeans(negatives, wanted, weights, random_state, overwrite=True)
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

    Where there are many rows, a seeded sample of them gives the centroids, and each row goes to the
    nearest: more steps on all rows would change the inertia by less than another seed does. With
    `overwrite` the rows may be written to, which saves a copy.
    """
    size = _safe_size(rows)
    rows = rows if size == 1 else rows / rows.dtype.type(size)
    means = _fit_on_sample(rows, count, weights, random_state, overwrite)
    if len(means.labels_) == rows.shape[0]:
        labels: NDArray[np.intp] = means.labels_
        return labels
    if sparse.issparse(rows):
        return np.asarray(means.predict(rows), dtype=np.intp)
    return nearest(rows, means.cluster_centers_.astype(np.float64))


def find_centroids(
    rows: NDArray[np.floating], count: int, weights: Any, random_state: Any
) -> Array:
    """Centroids of the clusters of :func:`run_kmeans`, for rows that are not in memory."""
    size = _safe_size(rows)
    rows = rows if size == 1 else rows / rows.dtype.type(size)
    means = _fit_on_sample(rows, count, weights, random_state, overwrite=False)
    centroids: Array = size * means.cluster_centers_.astype(np.float64)
    return centroids


def _fit_on_sample(
    rows: Any, count: int, weights: Any, random_state: Any, overwrite: bool
) -> KMeans:
    """K-means on all rows where they are few, else on a sample of them."""
    enough = max(SAMPLE, SAMPLE_PER_CLUSTER * count)
    if rows.shape[0] > enough:
        random_state = check_random_state(random_state)
        chosen = np.sort(random_state.choice(rows.shape[0], enough, replace=False))
        rows, overwrite = rows[chosen], True
        weights = None if weights is None else weights[chosen]
    means = KMeans(count, n_init=RESTARTS, random_state=random_state, copy_x=not overwrite)
    return fit_kmeans(means, rows, weights)


def refine_kmeans(rows: Any, start: NDArray[np.intp]) -> NDArray[np.intp]:
    """Cluster rows by k-means that starts from the means of given clusters."""
    size = _safe_size(rows)
    rows = rows if size == 1 else rows / rows.dtype.type(size)
    sizes = np.bincount(start).astype(np.float64)
    centroids = group_means(rows, start, sizes, None).astype(rows.dtype)
    labels: NDArray[np.intp] = fit_kmeans(
        KMeans(len(sizes), init=centroids, n_init=1), rows
    ).labels_
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


def _safe_size(rows: Any) -> float:
    """Divisor of rows, mostly 1: their squares must neither overflow nor vanish in their type."""
    size = float(max(rows.max(), -rows.min()))
    safe = float(np.finfo(rows.dtype).max) ** 0.25
    return 1.0 if 1 / safe <= size <= safe else size


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


@dataclass(frozen=True)
class Ruler:
    """Squared distances to centres, by one product.

    They are differences of squares, which far from zero need an origin nearby.
    """

    origin: Array
    shifted: Array
    half: Array

    @classmethod
    def of(cls, centres: Array) -> Ruler:
        """Prepare for the rows of `centres`."""
        origin = centres.mean(axis=0)
        shifted = centres - origin
        return cls(origin, shifted, 0.5 * np.einsum("ij,ij->i", shifted, shifted))

    def parts(self, start: int, stop: int) -> Iterator[slice]:
        """Ranges of rows that stay in cache."""
        step = max(BLOCK_BYTES // (8 * len(self.origin)), 64)
        for first in range(start, stop, step):
            yield slice(first, min(first + step, stop))

    def assign(self, X: NDArray[np.floating]) -> tuple[Array, NDArray[np.intp], Array]:
        """Rows about the origin, the nearest centre of each, and the squared distance to it."""
        rows: Array = X - self.origin
        closeness = rows @ self.shifted.T
        closeness -= self.half
        labels = closeness.argmax(axis=1)
        best = closeness[np.arange(len(rows)), labels]
        return rows, labels, np.maximum(np.einsum("ij,ij->i", rows, rows) - 2 * best, 0.0)


def nearest(X: NDArray[np.floating], centres: Array) -> NDArray[np.intp]:
    """Nearest centre of every row."""
    ruler = Ruler.of(centres)
    labels = np.empty(len(X), dtype=np.intp)

    def assign(start: int, stop: int) -> None:
        for part in ruler.parts(start, stop):
            labels[part] = ruler.assign(X[part])[1]

    over_rows(assign, len(X), X.shape[1])
    return labels
