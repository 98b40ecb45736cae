"""K-means++ and Lloyd steps, for dense rows or for rows given only by their inner products.

Both variants use the random draws and the stopping rule of scikit-learn's ``KMeans`` and find the
same clusters. They omit its checks and its loops over rows, so that a small problem takes half the
time. For wide rows and for kernels, the inner products are already known, and distances need no
further products.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from .linalg import Array, Ints, over_rows

# Lloyd steps end if the squared shift of the centres is at most this share of the mean variance.
TOLERANCE = 1e-4
MOST_STEPS = 300
# If at most this share of the rows changed cluster, a step on inner products updates the previous
# sums, which reads only the products of these rows.
MOST_MOVED = 1 / 8
SINGLE = np.finfo(np.float32)


@dataclass(frozen=True)
class Clusters:
    """Clusters of rows.

    Attributes
    ----------
    labels : array of shape (n,)
    centres : array of shape (K, D)
    """

    labels: Ints
    centres: Array


def kmeans(
    rows: Array, count: int, rng: np.random.RandomState, weights: Array | None = None
) -> Clusters | None:
    """Cluster centred rows by one run of k-means; return None if a cluster loses all its rows."""
    norms = np.einsum("ij,ij->i", rows, rows)
    mass = np.ones(len(rows)) if weights is None else weights

    def products(places: Ints) -> Array:
        # BLAS copies all rows for a product with a few rows, but not for a product with one row.
        return np.stack([rows @ row for row in rows[places]])

    chosen = seeds(products, norms, count, rng, mass)
    return lloyd(rows, rows[chosen], weights)


def seeds(
    products: Callable[[Ints], Array],
    norms: Array,
    count: int,
    rng: np.random.RandomState,
    mass: Array,
) -> list[int]:
    """Draw rows as initial centres by greedy k-means++.

    `products` is a function that returns the inner products of given rows with all rows, in a new
    array. `norms` holds the squared lengths of all rows, and `mass` their weights. At least `count`
    rows must be distinct.
    """
    trials = 2 + int(np.log(count))
    draws = rng.uniform(size=1 + (count - 1) * trials)

    def drawn(shares: Array, weight: Array) -> Ints:
        """Return the rows at the given shares of the total weight."""
        below = np.cumsum(weight)
        found: Ints = below.searchsorted(shares * below[-1])
        return found

    def distances(places: Ints) -> Array:
        found = products(places)
        found *= -2
        found += norms
        found += norms[places, None]
        return np.maximum(found, 0, out=found)

    first = drawn(draws[:1], mass)
    chosen, closest = [int(first[0])], distances(first)[0]
    for shares in draws[1:].reshape(-1, trials):
        tried = drawn(shares, mass * closest)
        distance = distances(tried)
        np.minimum(distance, closest, out=distance)
        best = int((distance @ mass).argmin())
        closest = distance[best]
        chosen.append(int(tried[best]))
    return chosen


def lloyd(
    rows: Array, centres: Array, weights: Array | None = None, steps: int = MOST_STEPS
) -> Clusters | None:
    """Take Lloyd steps from given centres; return None if a cluster loses all its rows.

    Rows should be centred, or near zero, to keep digits. Each step updates the cluster sums using
    only the rows that changed cluster; after a few steps, these rows are few.
    """
    count, mean = len(centres), rows.mean(axis=0)
    enough = TOLERANCE * float(np.vdot(rows, rows) / rows.size - mean @ mean / len(mean))
    coarse = Coarse.of(rows)
    labels = nearest_centre(rows, centres, coarse)
    sums = _sums(rows, labels, count, weights)
    for _ in range(steps):
        sizes = np.bincount(labels, weights, count)
        if not sizes.all():
            return None
        before, centres = centres, sums / sizes[:, None]
        found = nearest_centre(rows, centres, coarse)
        moved = np.flatnonzero(found != labels)
        if len(moved) == 0 or np.sum((centres - before) ** 2) <= enough:
            return Clusters(found, centres)
        weight = None if weights is None else weights[moved]
        sums += _sums(rows[moved], found[moved], count, weight, labels[moved])
        labels = found
    return Clusters(labels, centres)


def nearest_centre(rows: Array, centres: Array, coarse: Coarse | None = None) -> Ints:
    """Return the index of each row's nearest centre.

    If `coarse`, the same rows in float32, is given, the result is the same but takes half the time.
    """
    half = 0.5 * np.einsum("ij,ij->i", centres, centres)
    nearest = np.empty(len(rows), dtype=np.intp)

    def assign(start: int, stop: int) -> None:
        part = slice(start, stop)
        nearest[part] = closest(rows[part], centres, half, coarse and coarse.take(part))

    over_rows(assign, *rows.shape)
    return nearest


@dataclass(frozen=True)
class Coarse:
    """Rows in float32, with their lengths, which bound the rounding error of inner products."""

    rows: NDArray[np.float32]
    lengths: Array

    @classmethod
    def of(cls, rows: Array) -> Coarse:
        """Convert rows to float32."""
        with np.errstate(over="ignore", invalid="ignore"):  # infinite products count as doubtful
            single = rows.astype(np.float32)
            return cls(single, np.sqrt(np.einsum("ij,ij->i", single, single)))

    def take(self, part: slice) -> Coarse:
        """Return a slice of the rows."""
        return Coarse(self.rows[part], self.lengths[part])


def closest(rows: Array, centres: Array, half: Array, coarse: Coarse | None = None) -> Ints:
    """Return the index of the centre c with the largest ``x'c - half`` for each row x.

    `half` holds half the squared length of each centre. With `coarse` rows, the products are
    float32. Rows for which rounding leaves more than one possible centre are multiplied again in
    float64, so that `coarse` does not change the result.
    """
    if coarse is None:
        closeness: Array = rows @ centres.T
        closeness -= half
        nearest: Ints = closeness.argmax(axis=1)
        return nearest
    with np.errstate(over="ignore", invalid="ignore"):
        # One row per centre, so that comparisons run over vectors of rows. BLAS multiplies faster
        # the other way round.
        near = np.ascontiguousarray((coarse.rows @ centres.astype(np.float32).T).T)
        near -= half.astype(np.float32)[:, None]
        reach = np.sqrt(np.einsum("ij,ij->i", centres, centres).max())
        largest = coarse.lengths * reach + np.abs(half).max()
        slack = largest * (2 * (rows.shape[1] + 8) * SINGLE.eps)
        possible = near >= (near.max(axis=0) - slack - SINGLE.tiny).astype(np.float32)
    # For each row, the number of possible centres and the sum of their indices. If there is only
    # one, the sum is its index.
    numbers = np.stack([np.ones(len(centres)), np.arange(len(centres))]).astype(np.float32)
    rivals, only = numbers @ possible.astype(np.float32)
    labels: Ints = only.astype(np.intp)
    # An overflow hides the other centres.
    doubtful = np.flatnonzero((rivals != 1) | ~(largest < 0.5 * SINGLE.max))
    if len(doubtful):
        labels[doubtful] = closest(rows[doubtful], centres, half)
    return labels


def _sums(
    rows: Array, labels: Ints, count: int, weights: Array | None, left: Ints | None = None
) -> Array:
    """Return the weighted sum of the rows of each cluster.

    If `left` is given, it holds the cluster that each row has left, and the row is subtracted from
    the sum of that cluster. A sparse product reads each row once; a dense product would multiply
    each row with every cluster.
    """
    weight = np.ones(len(rows)) if weights is None else weights
    each = 1 if left is None else 2
    if left is not None:
        labels, weight = np.column_stack([labels, left]), np.column_stack([weight, -weight])
    # One column per row, so these are the arrays of a CSC matrix.
    columns = weight.ravel(), labels.ravel(), np.arange(0, each * len(rows) + 1, each)
    total: Array = sparse.csc_array(columns, shape=(count, len(rows))) @ rows
    return total


def kmeans_of_products(
    matrix: Array,
    rows: Ints,
    count: int,
    width: int,
    rng: np.random.RandomState,
    weights: Array | None = None,
) -> Ints | None:
    """Cluster a subset of rows by one run of k-means, given the inner products of all rows.

    Returns the labels that :func:`kmeans` would find on the rows themselves, or None if a cluster
    loses all its rows. `width` is the number of columns of the rows.
    """
    norms, mass, share = matrix.diagonal(), np.zeros(len(matrix)), np.zeros(len(matrix))
    mass[rows], share[rows] = 1.0 if weights is None else weights, 1 / len(rows)
    # Rows outside the subset have no mass and are never drawn, so the subset need not be copied.
    chosen = seeds(lambda places: matrix[places], norms, count, rng, mass)
    start = (matrix[chosen] - 0.5 * norms[chosen, None])[:, rows].argmax(axis=0)
    enough = float(TOLERANCE * (share @ norms - share @ matrix @ share) / width)
    labels, _ = kernel_kmeans(matrix, rows, start, weights, enough=enough)
    return labels if np.bincount(labels, minlength=count).all() else None


def kernel_kmeans(
    matrix: Array,
    rows: Ints,
    start: Ints,
    weights: Array | None = None,
    max_iter: int = MOST_STEPS,
    enough: float = 0.0,
) -> tuple[Ints, float]:
    """Run k-means in the feature space of a kernel, taking Lloyd steps from given labels.

    Parameters
    ----------
    matrix : array of shape (N, N)
        Kernel matrix of all rows; it is not copied.
    rows : array of shape (n,)
        Numbers of the rows to cluster.
    start : array of shape (n,)
        Labels 0..K-1 to start from.
    weights : array of shape (n,), optional
    max_iter : int
    enough : float
        Stop if the squared shift of the means is at most this.

    Returns
    -------
    labels : array of shape (n,)
        A cluster that loses all its rows is dropped from later steps.
    inertia : float
        Weighted sum of the squared distances of the rows from their cluster means, minus the
        weighted sum of the kernel's diagonal, which is the same for all clusterings.
    """
    labels, each = start, np.arange(len(rows))
    weight = np.ones(len(rows)) if weights is None else weights
    count = int(start.max()) + 1
    of_each, mass = np.zeros(len(matrix), dtype=np.intp), np.zeros(len(matrix))
    mass[rows] = weight  # other rows count as rows of the first cluster without weight
    sums = before = None
    for _ in range(max_iter):
        if sums is None:
            of_each[rows] = labels
            sums = _sums(matrix, of_each, count, mass)[:, rows].T.copy()
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
        if enough > 0:
            if before is not None:
                across = share * np.bincount(labels, weight * before[1][each, labels], count)
                if np.sum(lengths + before[0] - 2 * across) <= enough:
                    return nearest, inertia
            before = lengths, similar
        if len(moved) <= MOST_MOVED * len(rows):
            part = matrix[rows[moved]], nearest[moved], count, weight[moved], labels[moved]
            sums += _sums(*part)[:, rows].T
        else:
            sums = None
        labels = nearest
    return labels, inertia
