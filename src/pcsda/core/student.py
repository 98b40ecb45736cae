"""Gaussian and Student t densities for whitened coordinates, and fitting heavy tails."""

from __future__ import annotations

from collections.abc import Callable
from math import isinf
from typing import Any

import numpy as np
from scipy.special import gammaln, psi, zeta

from . import linalg
from .linalg import Array, Ints

LOG_2PI = float(np.log(2 * np.pi))
# Range of fitted degrees of freedom; lighter tails count as Gaussian.
HEAVIEST, LIGHTEST = 2.5, 200.0
# More than TAIL_ROWS distances are binned, with BINS bins per unit of their logarithm.
TAIL_ROWS, BINS = 5000, 200
# Squared distances are clipped at this value; larger ones add no information about the tails.
FARTHEST_SQUARE = 1e30
# Largest number of steps in the search for the tails, and the relative step at which it stops.
MOST_STEPS, CLOSE = 100, 1e-9


def whitening(covariance: Array) -> Array:
    """Return the inverse of the lower Cholesky factor of a covariance.

    Rows are whitened by a product with the transpose of this inverse.
    """
    return linalg.triangular_inverse(linalg.cholesky(covariance))


def log_volume(white: Array) -> float:
    """Return minus half the log determinant of the covariance that `white` whitens."""
    return float(np.log(white.diagonal()).sum())


def log_sum_exp(values: Array, axis: int = -1) -> Array:
    """Return the logarithm of the sum of exponentials along an axis.

    At least one of the values in each sum must be finite.
    """
    top: Array = values.max(axis=axis, keepdims=True)
    result = top.squeeze(axis)
    if values.shape[axis] > 1:
        shares = values - top
        result += np.log(np.exp(shares, out=shares).sum(axis=axis))
    return result


def energy(square: Array, width: Any, tail: float, out: Array | None = None) -> Array:
    """Return the negative log density at a squared Mahalanobis distance, up to a constant.

    For a Gaussian, the energy is half the square. For a Student t distribution with `tail` degrees
    of freedom and the same covariance, it grows like the logarithm of the square. The constant
    depends only on `tail` and on `width`, the number of axes, so it cancels between the two
    classes. If `out` is given, the result is stored in that array, which may be `square` itself.
    """
    if isinf(tail):
        return np.multiply(0.5, square, out=out)
    scaled = np.maximum(square, 0, out=out)  # rounding may make a distance negative
    scaled /= tail - 2
    # log1p is slow. It saves digits only for tails lighter than any that are fitted.
    if tail <= LIGHTEST or scaled.dtype == np.float32:
        scaled += 1
        heavy: Array = np.log(scaled, out=out)
    else:
        heavy = np.log1p(scaled, out=out)
    heavy *= 0.5 * (tail + width)
    return heavy


def log_density(whitened: Array, white: Array, tail: float = np.inf) -> Array:
    """Return the log density at whitened offsets; the last axis holds coordinates."""
    square, width = np.einsum("...j,...j->...", whitened, whitened), white.shape[0]
    return log_volume(white) + _log_normaliser(width, tail) - energy(square, width, tail)


def _log_normaliser(width: int, tail: float) -> float:
    """Return the log density at the centre, for a covariance of unit volume."""
    if np.isinf(tail):
        return -0.5 * width * LOG_2PI
    half = 0.5 * (tail + width)
    return float(gammaln(half) - gammaln(0.5 * tail) - 0.5 * width * np.log(np.pi * (tail - 2)))


def fit_tail(squares: Array, width: int, weights: Array) -> float:
    """Return the degrees of freedom under which squared Mahalanobis distances are most likely.

    The result is infinite if no heavier tail is more likely than the Gaussian. It is found as a
    root of the likelihood's derivative, so it is as accurate as the distances. Cost: half a dozen
    passes over a few thousand bins.
    """
    squares = np.minimum(squares, FARTHEST_SQUARE)
    if len(squares) > TAIL_ROWS:
        squares, weights = _binned(squares, weights)
    total = weights.sum()

    def loss(tail: float) -> float:
        return float(weights @ energy(squares, width, tail) - total * _log_normaliser(width, tail))

    def slope(inverse: float) -> tuple[float, float]:
        return _tail_slope(1 / inverse, squares, width, weights, total)

    lightest, heaviest = 1 / LIGHTEST, 1 / HEAVIEST
    if len(squares) == 0 or slope(lightest)[0] >= 0:
        return np.inf
    beyond = slope(heaviest)[0] <= 0
    tail = HEAVIEST if beyond else 1 / _root(slope, lightest, heaviest)
    return tail if loss(tail) < loss(np.inf) else np.inf


def _tail_slope(
    tail: float, squares: Array, width: int, weights: Array, total: float
) -> tuple[float, float]:
    """Return the derivative of the log likelihood with respect to `tail`, and its rate of change.

    The rate of change is the derivative of the first result with respect to ``1/tail``.
    """
    half, spread = 0.5 * (tail + width), tail - 2
    ratio = squares / spread
    ratio += 1
    inside = 1 / ratio
    near = float(weights @ inside)
    far, lever = total - near, half / spread
    of_rows = 0.5 * float(weights @ np.log(ratio)) - lever * far
    of_centre = psi(half) - psi(0.5 * tail) - width / spread
    # 1 - 1/ratio falls with the tail at a rate of (1 - 1/ratio) / (ratio * spread).
    bent = (near - float(inside @ (weights * inside))) / spread
    rows_bend = -0.5 * far / spread - (0.5 - lever) / spread * far + lever * bent
    # zeta(2, x) is the derivative of psi.
    centre_bend = 0.5 * (zeta(2, half) - zeta(2, 0.5 * tail)) + width / spread**2
    bend = 0.5 * total * centre_bend - rows_bend
    return float(0.5 * total * of_centre - of_rows), float(-(tail**2) * bend)


def _root(rising: Callable[[float], tuple[float, float]], low: float, high: float) -> float:
    """Return a root of a function that is negative at `low` and positive at `high`.

    `rising` returns the value and the derivative of the function. Newton steps that would leave the
    bracket are replaced by bisections.
    """
    at = float(np.sqrt(low * high))
    for _ in range(MOST_STEPS):
        value, rate = rising(at)
        low, high = (at, high) if value < 0 else (low, at)
        step = value / rate if rate > 0 else np.inf
        if abs(step) <= CLOSE * at:  # convergence is quadratic: only rounding error remains
            return float(at - step)
        at = at - step if low < at - step < high else 0.5 * (low + high)
    return at


def _binned(squares: Array, weights: Array) -> tuple[Array, Array]:
    """Sort squares into narrow bins; return the mean and total weight of each non-empty bin."""
    bins = (BINS * np.log1p(squares)).astype(np.intp)
    totals = np.bincount(bins, weights).astype(np.float64)
    filled = totals > 0
    return np.bincount(bins, weights * squares)[filled] / totals[filled], totals[filled]


def sum_by(values: Array, sets: Ints, n_sets: int) -> Array:
    """Return the sum of the values in each set; `sets` holds the set number of each value."""
    total = np.zeros((n_sets, *values.shape[1:]))
    np.add.at(total, sets, values)
    return total


def shared_mean_log_likelihood(
    z: Array, sets: Ints, n_sets: int, between: Array, within: Array
) -> Array:
    """Return the log likelihood of each set of samples that share an unknown mean, eq. (P_Sk_Prod).

    `sets` holds the set number of each sample. The mean of a set is drawn from N(0, `between`), and
    its samples from N(mean, `within`). `between` is clipped to be positive semi-definite. One
    eigendecomposition serves all set sizes.
    """
    sizes = np.bincount(sets, minlength=n_sets).astype(np.float64)
    white = whitening(within)
    spread, rotation = linalg.eigh_descending(white @ between @ white.T)
    coordinates = z @ (rotation.T @ white).T
    means = sum_by(coordinates, sets, n_sets) / np.maximum(sizes, 1)[:, None]
    inner = sum_by(np.einsum("ij,ij->i", coordinates, coordinates), sets, n_sets)
    inner -= sizes * np.einsum("ij,ij->i", means, means)
    variance = np.maximum(spread, 0.0) + 1 / sizes[:, None]
    of_means = -0.5 * (np.log(variance) + means**2 / variance).sum(axis=1)
    width = means.shape[1]
    of_sizes = 0.5 * width * np.log(sizes) + sizes * (0.5 * width * LOG_2PI - log_volume(white))
    result: Array = of_means - 0.5 * inner - of_sizes
    return result
