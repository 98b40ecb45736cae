"""K-means of dense rows: k-means++ and Lloyd steps, as matrix products.

It draws and stops like scikit-learn's ``KMeans`` and finds the same clusters. Without the checks
and loops over rows, a small problem takes half the time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .linalg import Array, Ints

# Lloyd stops if the squared shift of the centres is below this share of the mean variance.
TOLERANCE = 1e-4
MOST_STEPS = 300


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
    """Divide centred rows by one run of k-means; None if a cluster loses all its rows."""
    norms = np.einsum("ij,ij->i", rows, rows)
    return lloyd(rows, rows[seeds(rows, norms, count, rng, weights)], weights)


def seeds(
    rows: Array, norms: Array, count: int, rng: np.random.RandomState, weights: Array | None
) -> list[int]:
    """Draw the rows that start as centres, by greedy k-means++.

    `norms` are the squared lengths of the rows, of which at least `count` must differ.
    """
    n_rows, trials = len(rows), 2 + int(np.log(count))
    mass = np.ones(n_rows) if weights is None else weights
    chosen = [int(rng.choice(n_rows, p=mass / mass.sum()))]
    closest = _distances(rows, norms, np.array(chosen))[0]
    potential = closest @ mass
    for _ in range(1, count):
        draws = rng.uniform(size=trials) * potential
        tried = np.searchsorted(np.cumsum(mass * closest), draws)
        np.minimum(tried, n_rows - 1, out=tried)  # rounding may go past the last row
        distance = np.minimum(_distances(rows, norms, tried), closest)
        potentials = distance @ mass
        best = int(potentials.argmin())
        potential, closest = potentials[best], distance[best]
        chosen.append(int(tried[best]))
    return chosen


def _distances(rows: Array, norms: Array, places: Ints) -> Array:
    """Squared distances of all rows to the rows at `places`."""
    found: Array = rows[places] @ rows.T
    found *= -2
    found += norms
    found += norms[places, None]
    np.maximum(found, 0, out=found)
    return found


def lloyd(
    rows: Array, centres: Array, weights: Array | None = None, steps: int = MOST_STEPS
) -> Clusters | None:
    """Take Lloyd steps from given centres; None if a cluster loses all its rows.

    Rows should be centred, or near zero, to keep digits. Cluster sums are updated by the rows that
    moved, which soon are few.
    """
    count = len(centres)
    enough = TOLERANCE * _mean_variance(rows)
    labels = nearest_centre(rows, centres)
    sums = _sums(rows, labels, count, weights)
    for _ in range(steps):
        sizes = np.bincount(labels, weights, count)
        if not sizes.all():
            return None
        before, centres = centres, sums / sizes[:, None]
        found = nearest_centre(rows, centres)
        moved = np.flatnonzero(found != labels)
        if len(moved) == 0 or np.sum((centres - before) ** 2) <= enough:
            return Clusters(found, centres)
        weight = None if weights is None else weights[moved]
        sums += _sums(rows[moved], found[moved], count, weight, labels[moved])
        labels = found
    return Clusters(labels, centres)


def nearest_centre(rows: Array, centres: Array) -> Ints:
    """Index of the nearest centre of each row."""
    closeness: Array = rows @ centres.T
    closeness -= 0.5 * np.einsum("ij,ij->i", centres, centres)
    nearest: Ints = closeness.argmax(axis=1)
    return nearest


def _sums(
    rows: Array, labels: Ints, count: int, weights: Array | None, left: Ints | None = None
) -> Array:
    """Sums of the rows of each cluster, minus those of rows that `left` it.

    A matrix product is faster than any loop.
    """
    members, each = np.zeros((count, len(rows))), np.arange(len(rows))
    weight = 1.0 if weights is None else weights
    members[labels, each] = weight
    if left is not None:
        members[left, each] = -weight
    total: Array = members @ rows
    return total


def _mean_variance(rows: Array) -> float:
    mean = rows.mean(axis=0)
    flat = rows.ravel()
    return float(flat @ flat / flat.size - mean @ mean / len(mean))
