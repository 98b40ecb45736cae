"""Partition negatives into subclasses, the groups that all statistics are based on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.random import RandomState
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, clone
from sklearn.cluster import KMeans
from threadpoolctl import ThreadpoolController

from .core.kmeans import Clusters, Coarse, closest, kmeans, kmeans_of_products, lloyd
from .core.linalg import Array, Floats, Ints, Mask, cache_rows, one_thread, over_rows
from .core.scatter import Grouping
from .core.warning import warn
from .targets import check_length, distinct, is_missing
from .validation import Seed, random_source

# With n_subclasses="auto", there is one subclass per this many negatives, up to MOST_AUTO.
NEGATIVES_PER_SUBCLASS = 15
MOST_AUTO = 20
# "auto" makes at most one subclass per this many distinct negatives. If subclasses consist of equal
# rows, the density of the rest is a set of spikes. A positive of the same value is on a spike, but
# beside it once it is left out, so calibration would have nothing to go by.
DISTINCT_PER_SUBCLASS = 2
# With fewer positives than this, the number of columns limits the number of subclasses.
FEW_POSITIVES = 10
# K-means runs on a sample of SAMPLE_PER_CLUSTER rows per cluster, but at least SAMPLE rows. More
# rows would cost time and change a fit less than another seed does. In a large sample, k-means
# first runs on one row in START, and then takes STEPS steps on the whole sample.
SAMPLE = 3000
SAMPLE_PER_CLUSTER = 150
START, STEPS = 3, 3
# Number of random starts of kernel k-means if only kernel values are known, not the rows.
KERNEL_RESTARTS = 3
# Up to this many multiplications per step of k-means, a single thread is faster.
LIGHT = 5e7
# Rows closer to zero than this many times the spread of the centres need no centring.
NEAR = 100.0
# Rows are copied if at most this share of them is needed.
MOST_AMONG = 0.5

Rows: TypeAlias = Floats | sparse.csr_array


def make_groups(
    X: Rows,
    positive: Mask,
    *,
    n_subclasses: int | str = "auto",
    subclasses: str | BaseEstimator = "kmeans",
    subclass_labels: ArrayLike | None = None,
    weights: Array | None = None,
    random_state: Seed = None,
    products: Array | None = None,
    least: int = 1,
) -> tuple[Ints, NDArray[Any]]:
    """Assign each row a group number: 0 for positives, 1..K for subclasses of negatives.

    Parameters
    ----------
    X : array or sparse matrix of shape (N, D)
    positive : boolean array of shape (N,)
    n_subclasses : int or "auto"
        Number of subclasses K for k-means. "auto" means about one per 15 negatives, between 1 and
        20, but at most one per 2 distinct negatives. With fewer than 10 positives in D
        columns it is at most the larger of 2^D and the number of positives.
    subclasses : "kmeans", "samples" or a scikit-learn clusterer
        How to divide the negatives; "samples" makes each negative a subclass. A clusterer is cloned
        and fitted to the negatives; its noise label (-1), if any, forms a separate subclass.
    subclass_labels : array-like of shape (N,), optional
        Known subclasses, which take precedence. Entries for positive rows are ignored.
    weights : array of shape (N,), optional
        Row weights for k-means.
    random_state : int, RandomState instance or None
    products : array of shape (N, N), optional
        Inner products of all rows, relative to any origin close to the data. They save time if they
        are already known.
    least : int
        The fewest subclasses that "auto" may choose.

    Returns
    -------
    groups : array of shape (N,)
    names : array of shape (K,)
        The name of each subclass: a given label, or the label assigned by clustering.
    """
    groups = np.zeros(len(positive), dtype=np.intp)
    rows = np.flatnonzero(~positive)
    if subclass_labels is not None:
        labels = given_labels(subclass_labels, positive)
    elif not isinstance(subclasses, str):
        labels = np.asarray(clone(subclasses).fit_predict(X[rows]))
    elif subclasses == "samples":
        labels = np.arange(len(rows))
    else:
        weight = None if weights is None else weights[rows]
        wanted = settle_count(
            X, n_subclasses, among=rows, n_positive=float(positive.sum()), least=least
        )
        labels = np.zeros(len(rows), dtype=np.intp)
        if wanted > 1:
            labels = run_kmeans(X, wanted, weight, random_state, among=rows, products=products)
            warn_of_empty(wanted, int(np.count_nonzero(np.bincount(labels))))
    names, codes = different_subclasses(labels)
    groups[rows] = codes + 1
    return groups, names


def different_subclasses(labels: NDArray[Any]) -> tuple[NDArray[Any], Ints]:
    """Return the sorted subclass names and, for each entry, the index of its name."""
    return distinct(
        labels,
        "subclass_labels mixes {joined}, which have no common order; make all of them text or all "
        "of them numbers",
    )


def given_labels(subclass_labels: ArrayLike, positive: Mask) -> NDArray[Any]:
    """Check subclass labels given by the caller and return the labels of the negatives."""
    labels = np.asarray(subclass_labels)
    ignored = "; entries of positive rows are ignored"
    check_length("subclass_labels", labels, len(positive), note=ignored)
    labels = labels[~positive]
    if labels.dtype.kind in "fO":  # no other type can hold a missing value
        missing = sum(map(is_missing, labels.tolist()))
        if missing:
            raise ValueError(
                f"subclass_labels is missing (NaN or None) for {missing} negative rows; give each "
                "negative a label, or leave subclass_labels out to cluster them"
            )
    return labels


def settle_count(
    negatives: Rows,
    n_subclasses: int | str,
    total: int | None = None,
    *,
    sampled: bool = False,
    among: Ints | None = None,
    n_positive: float = np.inf,
    least: int = 1,
) -> int:
    """Turn `n_subclasses` into a number, and check that there are enough distinct negatives.

    `among` holds the positions of the negatives; if it is None, all rows are negatives. If the rows
    are only a sample, `sampled` is true and `total` is the number of all negatives.

    Each of K subclasses in D columns is about ``K^(-1/D)`` times as wide as all negatives together.
    If there are few positives, they are expected to be about as spread out as one subclass. In this
    case, "auto" makes subclasses that are at least half as wide as all negatives together. But
    "auto" never makes fewer than `least` subclasses, because there cannot be more axes than
    subclasses.
    """
    if n_subclasses == "auto":
        total = (negatives.shape[0] if among is None else len(among)) if total is None else total
        wanted = min(max(round(total / NEGATIVES_PER_SUBCLASS), 1), MOST_AUTO)
        if n_positive < FEW_POSITIVES:
            wanted = min(wanted, max(2 ** min(negatives.shape[1], MOST_AUTO), int(n_positive)))
        enough = DISTINCT_PER_SUBCLASS * max(wanted, least)
        distinct = count_distinct(negatives, enough, among)
        return max(min(wanted, distinct // DISTINCT_PER_SUBCLASS), min(least, distinct), 1)
    wanted = int(n_subclasses)
    distinct = count_distinct(negatives, wanted, among)
    if wanted > distinct:
        where, remedy = "negative samples", "use n_subclasses='auto'"
        if sampled:
            where, remedy = "negatives in the sample", "raise sample_rows"
        raise ValueError(
            f"n_subclasses={wanted} must be at most {distinct} (= number of different {where}); "
            f"lower it or {remedy}"
        )
    return wanted


def warn_of_empty(wanted: int, found: int) -> None:
    """Warn if k-means found fewer subclasses than requested."""
    if found < wanted:
        warn(f"k-means left {wanted - found} of {wanted} subclasses empty; they are dropped")


def run_kmeans(
    rows: Rows,
    count: int,
    weights: Array | None,
    random_state: Seed,
    *,
    among: Ints | None = None,
    starts: int = 1,
    products: Array | None = None,
) -> Ints:
    """Cluster all rows, or only those in `among`, with k-means; return the cluster of each row.

    If there are many rows, the centroids come from a seeded sample, and each row joins the nearest
    centroid. More steps on all rows would change the inertia by less than another seed does. The
    best result of `starts` random starts is kept. `weights` are the row weights. `products` are the
    inner products of all rows; if there are few rows, they are used instead of the rows.
    """
    if products is not None and among is not None and len(among) <= SAMPLE // START:
        rng = random_source(random_state)
        labels = kmeans_of_products(products, among, count, rows.shape[1], rng, weights)
        if labels is not None:
            return labels
    found, size = _fit_on_sample(rows, count, weights, random_state, among, starts)
    if len(found.labels) == (rows.shape[0] if among is None else len(among)):
        return found.labels
    if size != 1.0:
        rows = rows / rows.dtype.type(size)
    return nearest(rows, found.centres, among)


def find_centroids(rows: Floats, count: int, weights: Array | None, random_state: Seed) -> Array:
    """Return the centroids that :func:`run_kmeans` would find.

    With these centroids, rows that are not in memory can be assigned later.
    """
    found, size = _fit_on_sample(rows, count, weights, random_state)
    return np.asarray(size * found.centres)


def _fit_on_sample(
    rows: Rows,
    count: int,
    weights: Array | None,
    random_state: Seed,
    among: Ints | None = None,
    starts: int = 1,
) -> tuple[Clusters, float]:
    """Run k-means on all rows, or on a sample if there are many rows.

    Return the clusters, and the number by which the rows were divided to avoid overflow.
    """
    enough = max(SAMPLE, SAMPLE_PER_CLUSTER * count)
    total = rows.shape[0] if among is None else len(among)
    rng = random_source(random_state)
    if total > enough:
        chosen = np.sort(rng.choice(total, enough, replace=False))
        weights = None if weights is None else weights[chosen]
        among = chosen if among is None else among[chosen]
    few, size = _safe(rows if among is None else rows[among])
    first = None
    if few.shape[0] > enough // START:
        first = np.sort(rng.choice(few.shape[0], enough // START, replace=False))
    found = None
    if starts == 1 and not sparse.issparse(few):
        drawn = rng.get_state()
        found = _by_products(few, count, weights, rng, first, own=among is not None)
        if found is None:  # scikit-learn handles clusters that become empty
            rng.set_state(drawn)
            few, size = _safe(rows if among is None else rows[among])
    if found is None:
        means = KMeans(count, n_init=starts, random_state=rng)
        found = _by_scikit_learn(means, few, weights, first)
    return found, size


def _by_products(
    rows: Floats, count: int, weights: Array | None, rng: RandomState, first: Ints | None, own: bool
) -> Clusters | None:
    """Run k-means on dense rows; return None if a cluster becomes empty.

    If `first` is given, k-means runs on the rows at these positions and then takes a few steps on
    all rows. If `own`, the rows are a copy and are overwritten, because allocating memory takes as
    long as a matrix product.
    """
    with one_thread(rows.size * count <= LIGHT):
        origin = rows.mean(axis=0, dtype=np.float64)
        room = rows if own and rows.dtype == np.float64 else None
        centred: Array = np.subtract(rows, origin, out=room)
        if first is None:
            found = kmeans(centred, count, rng, weights)
        else:
            weight = None if weights is None else weights[first]
            found = kmeans(centred[first], count, rng, weight)
            found = found and lloyd(centred, found.centres, weights, STEPS)
    return found and Clusters(found.labels, found.centres + origin)


def _by_scikit_learn(
    means: KMeans, rows: Rows, weights: Array | None, first: Ints | None
) -> Clusters:
    """Run k-means with scikit-learn, on dense or sparse rows; `first` is as in `_by_products`."""
    if first is not None:
        weight = None if weights is None else weights[first]
        begun = fit_kmeans(means, rows[first], weight).cluster_centers_
        means = KMeans(means.n_clusters, init=begun, n_init=1, max_iter=STEPS)
    means = fit_kmeans(means, rows, weights)
    return Clusters(means.labels_.astype(np.intp), means.cluster_centers_.astype(np.float64))


def refine_kmeans(rows: Rows, start: Ints) -> Ints:
    """Run k-means from the means of the clusters in `start`; return the cluster of each row."""
    rows, _ = _safe(rows)
    centroids = Grouping.of(start).means(rows).astype(rows.dtype)
    means = fit_kmeans(KMeans(len(centroids), init=centroids, n_init=1), rows)
    return np.asarray(means.labels_, dtype=np.intp)


def fit_kmeans(means: KMeans, rows: Rows, weights: Array | None = None) -> KMeans:
    """Fit k-means, using a single thread if each step is little work."""
    n_rows, width = rows.shape
    light = n_rows * width * means.n_clusters <= LIGHT
    with _pools().limit(limits=1 if light else None):
        return means.fit(rows, sample_weight=weights)


@cache
def _pools() -> ThreadpoolController:
    return ThreadpoolController()


def kernel_start(matrix: Array, rows: Ints, n_clusters: int, rng: RandomState) -> Ints:
    """Draw initial clusters of the given rows for kernel k-means, by k-means++ in feature space."""
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


def _safe(rows: Rows) -> tuple[Rows, float]:
    """Scale rows so that their squares neither overflow nor underflow.

    Also return the number by which the rows were divided, usually 1.
    """
    size = float(max(rows.max(), -rows.min()))
    safe = float(np.finfo(rows.dtype).max) ** 0.25
    if 1 / safe <= size <= safe:
        return rows, 1.0
    return rows / rows.dtype.type(size), size


def merge_equal(rows: Floats, weights: Array) -> tuple[Ints, Array]:
    """Return the first position of each distinct row, and the total weight of its copies."""
    _, first, codes = np.unique(rows + 0.0, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)
    total: Array = np.bincount(codes.ravel(), weights).astype(np.float64)
    return first[order], total[order]


def count_distinct(rows: Rows, enough: int, among: Ints | None = None) -> int:
    """Count the distinct rows, or those at the positions `among`; stop counting at `enough`."""
    seen: set[bytes] = set()
    step = min(max(2 * enough, 16), 256)
    for start in range(0, rows.shape[0] if among is None else len(among), step):
        part = slice(start, start + step)
        block: Any = rows[part if among is None else among[part]]
        dense = block.toarray() if sparse.issparse(block) else np.asarray(block)
        if start == 0 and len(np.unique(dense[:, 0])) >= enough:  # usually one column is enough
            return enough
        # Adding zero turns -0.0 into 0.0, which is equal but has different bytes.
        seen.update(row.tobytes() for row in np.ascontiguousarray(dense + 0.0))
        if len(seen) >= enough:
            return enough
    return len(seen)


def nearest(X: Rows, centres: Array, among: Ints | None = None) -> Ints:
    """Find the nearest centre of each row, or of each row in `among`, with one matrix product.

    Squared distances are differences of squares, which lose digits far from zero, so dense rows far
    from zero are centred first. If most rows are needed, processing all of them is faster than
    copying a subset.
    """
    if among is not None and len(among) > MOST_AMONG * X.shape[0]:
        return nearest(X, centres)[among]
    origin = centres.mean(axis=0)
    shifted = centres - origin
    squares = np.einsum("ij,ij->i", shifted, shifted)
    far = not sparse.issparse(X) and origin @ origin > NEAR**2 * squares.max()
    half = 0.5 * squares
    if not far:
        half += shifted @ origin
    labels = np.empty(X.shape[0] if among is None else len(among), dtype=np.intp)

    def assign(start: int, stop: int) -> None:
        for first in range(start, stop, cache_rows(len(origin))):
            part = slice(first, min(first + cache_rows(len(origin)), stop))
            rows: Any = X[part if among is None else among[part]]
            rows = rows - origin if far else rows
            fine = isinstance(rows, np.ndarray) and rows.dtype == np.float64
            labels[part] = closest(rows, shifted, half, Coarse.of(rows) if fine else None)

    over_rows(assign, len(labels), X.shape[1])
    return labels


# Suffix of a subclass name if no label has a majority in the subclass.
MIXED = "among others"
EMPTY = "empty"


def counted(names: Sequence[str]) -> list[str]:
    """List each name once, most frequent first, with its count if it occurs more than once."""
    return [name if n == 1 else f"{n} {name}" for name, n in Counter(names).most_common()]


def mostly(groups: NDArray[np.int64], labels: NDArray[Any]) -> list[str]:
    """Name each of the groups 1..K after the labels of its rows.

    A group is "8" if all its rows have that label, "mostly 8" if more than half have it, and
    otherwise "8 and 3 among others". Groups without rows are "empty".
    """
    return mostly_of(groups, *np.unique(labels, return_inverse=True))


def mostly_of(groups: NDArray[np.int64], kinds: NDArray[Any], codes: NDArray[np.intp]) -> list[str]:
    """Do the same as :func:`mostly` if row i has the label ``kinds[codes[i]]``."""
    inside = groups > 0
    found, counts = np.unique(groups[inside] * len(kinds) + codes[inside], return_counts=True)
    group, code = np.divmod(found, len(kinds))
    order = np.lexsort((code, -counts, group))
    group, code, counts = group[order], code[order], counts[order]
    edges = np.searchsorted(group, np.arange(1, int(groups.max(initial=0)) + 2))
    return _words(edges.tolist(), kinds[code], counts)


def _words(edges: list[int], labels: NDArray[Any], counts: NDArray[np.intp]) -> list[str]:
    """Name groups after their labels, which are listed group by group, most frequent first."""
    found = []
    for start, stop in pairwise(edges):
        names, sizes = labels[start:stop], counts[start:stop]
        if len(names) < 2:
            found.append(str(names[0]) if len(names) else EMPTY)
        elif 2 * sizes[0] > sizes.sum():
            found.append(f"mostly {names[0]}")
        else:
            found.append(f"{names[0]} and {names[1]} {MIXED}")
    return found
