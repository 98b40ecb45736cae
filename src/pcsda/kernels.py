"""Kernel functions, bandwidth rules and the matrices made of them."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from sklearn.metrics.pairwise import (
    additive_chi2_kernel,
    euclidean_distances,
    manhattan_distances,
    pairwise_kernels,
)
from sklearn.utils import check_random_state

from .progress import progress

# Kernels that gamma enters.
SCALED_KERNELS = ("rbf", "laplacian", "poly", "polynomial", "sigmoid", "chi2")
# Mean distances are taken over at most this many rows, drawn with a seed.
BANDWIDTH_ROWS = 2000
# Kernel values are computed in row blocks of about this size.
BLOCK_BYTES = 8 << 20
# Up to as many rows, distances one by one cost less than what a product needs beside it.
FEW_ROWS = 4


@dataclass(frozen=True)
class Kernel:
    """A kernel function with its parameters settled.

    A linear kernel may be taken about an `origin`: the statistics know none, and an offset of the
    rows would cost the digits of their inner products.
    """

    metric: str | Callable[..., float] = "rbf"
    gamma: float | None = None
    degree: float = 3
    coef0: float = 1
    params: dict[str, Any] = field(default_factory=dict)
    origin: NDArray[np.float64] | None = None

    def __call__(self, X: Any, Y: Any) -> NDArray[np.float64]:
        """Kernel values between the rows of X and of Y as float64; precomputed values pass."""
        if self.metric == "precomputed":
            return np.asarray(X, dtype=np.float64)
        X = np.asarray(X, dtype=np.float64)
        Y = np.asarray(Y, dtype=np.float64)
        with np.errstate(over="ignore", invalid="ignore"):  # whoever reads the values looks at them
            return np.asarray(self._values(X, Y), dtype=np.float64)

    def against(self, Y: Any) -> Callable[[Any], NDArray[np.float64]]:
        """Return the kernel with the rows of Y as a function of one row or several, unchecked."""
        Y = np.asarray(Y, dtype=np.float64)
        if self.metric == "rbf":
            return _rbf_with(Y, self.gamma)
        if self.metric == "linear" and self.origin is not None:
            origin, columns = self.origin, (Y - self.origin).T
            return lambda X: (X - origin) @ columns

        def values(X: Any) -> NDArray[np.float64]:
            found = self(np.atleast_2d(X), Y)
            return found if np.ndim(X) > 1 else found[0]

        return values

    def _values(self, X: NDArray[np.float64], Y: NDArray[np.float64]) -> Any:
        if callable(self.metric):
            return pairwise_kernels(X, Y, metric=self.metric, **self.params)
        if self.metric == "rbf":
            return _rbf(X, Y, self.gamma)
        if self.metric == "linear" and self.origin is not None:
            return (X - self.origin) @ (Y - self.origin).T
        if self.metric == "chi2":
            _require_non_negative(X)
        if self.metric == "cosine":
            X, Y = _of_unit_size(X), _of_unit_size(Y)
        given = {"gamma": self.gamma, "degree": self.degree, "coef0": self.coef0}
        return pairwise_kernels(X, Y, metric=self.metric, filter_params=True, **given)


def _rbf(X: NDArray[np.float64], Y: NDArray[np.float64], gamma: Any) -> NDArray[np.float64]:
    """exp(-gamma ||x - y||^2)."""
    if len(X) <= FEW_ROWS:
        distances: NDArray[np.float64] = cdist(X, Y, "sqeuclidean")
        return np.exp(-gamma * distances)
    return _rbf_with(Y, gamma)(X)


def _rbf_with(Y: NDArray[np.float64], gamma: Any) -> Callable[[Any], NDArray[np.float64]]:
    """exp(-gamma ||x - y||^2) with one product and no copy of the result.

    Rows are centred first: distances do not change, and a common offset would cost their digits.
    """
    origin = Y.mean(axis=0)
    centred = Y - origin
    squares = gamma * np.einsum("ij,ij->i", centred, centred)

    def values(X: Any) -> NDArray[np.float64]:
        X = X - origin
        own = gamma * np.einsum("...j,...j->...", X, X)[..., None]
        X *= 2 * gamma
        found: NDArray[np.float64] = X @ centred.T
        found -= own
        found -= squares
        np.minimum(found, 0, out=found)
        return np.exp(found, out=found)

    return values


def _of_unit_size(X: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rows of largest entry one: their lengths then neither overflow nor count as zero."""
    size = np.abs(X).max(axis=1, keepdims=True)
    return X / np.where(size > 0, size, 1.0)


def _require_non_negative(X: NDArray[np.float64]) -> None:
    smallest = X.min(initial=0.0)
    if smallest < 0:
        raise ValueError(
            f"kernel='chi2' is for X of at least 0, its smallest entry is {smallest:.3g}; use "
            "another kernel, such as 'rbf'"
        )


def settled_kernel(model: Any, X: Any, positive: NDArray[np.bool_] | None, seed: int) -> Kernel:
    """Kernel of an estimator with its bandwidth; `positive` is needed by the paper's rule."""
    gamma = origin = None
    if model.kernel in SCALED_KERNELS:
        gamma = bandwidth(model.gamma, X, positive, model.kernel, seed)
    if isinstance(model.kernel, str) and model.kernel == "linear":
        origin = np.asarray(X).mean(axis=0, dtype=np.float64)
    params = dict(model.kernel_params or {})
    return Kernel(model.kernel, gamma, model.degree, model.coef0, params, origin)


def bandwidth(
    rule: str | float,
    X: Any,
    positive: NDArray[np.bool_] | None,
    metric: Any = "rbf",
    random_state: Any = None,
) -> float:
    """Turn a bandwidth rule into gamma.

    Parameters
    ----------
    rule : {"positive", "all", "scale"} or float
        The mean pairwise distance s of the positives (the paper's rule) or of all rows, as
        ``gamma = 1/(2 s^2)``; 1 / (n_features * X.var()) as in scikit-learn; or gamma itself. For
        the Laplacian and the chi-squared kernel s is the mean of their own distance and gamma 1/s.
    X : array of shape (N, D)
    positive : boolean array of shape (N,) or None
        Needed by "positive". One positive, or positives that are all equal, have no distance: then
        all rows are used, with a warning.
    metric : str or callable
    random_state : int, RandomState instance or None
        Draws the rows where there are more than 2000.
    """
    if not isinstance(rule, str):
        return float(rule)
    if rule == "scale":
        with np.errstate(over="ignore", invalid="ignore"):
            spread = float(np.var(X, dtype=np.float64))
        if spread <= 0:
            raise ValueError("gamma='scale' needs X to vary, its variance is 0; give a number")
        return 1 / _finite(X.shape[1] * spread)
    if rule == "positive":
        if positive is None:
            raise ValueError("gamma='positive' needs y to know the positives; give y or use 'all'")
        value = _mean_distance(X[positive], metric, random_state)
        if value > 0:
            return 1 / _finite(value)
        warnings.warn(
            f"gamma='positive' has no distance to go by ({positive.sum()} positives, all equal); "
            "using gamma='all'",
            stacklevel=2,
        )
    value = _mean_distance(X, metric, random_state)
    if value <= 0:
        found = "n_samples = 1" if len(X) == 1 else f"{len(X)} rows that are all equal"
        raise ValueError(f"gamma='all' needs rows that differ, got {found}; give gamma a number")
    return 1 / _finite(value)


def _finite(spread: float) -> float:
    if not np.isfinite(spread):
        raise ValueError(
            "the squares of X overflow, its spread is beyond 1e150; divide X by its scale first"
        )
    return spread


@np.errstate(over="ignore", invalid="ignore")
def _mean_distance(X: Any, metric: Any, random_state: Any) -> float:
    """What gamma is one over: twice the squared mean distance, or the kernel's own distance."""
    rng = check_random_state(random_state)
    if len(X) > BANDWIDTH_ROWS:
        X = X[rng.choice(len(X), BANDWIDTH_ROWS, replace=False)]
    if len(X) < 2:
        return 0.0
    rows = np.asarray(X, dtype=np.float64)
    rows = rows - (0 if metric == "chi2" else rows.mean(axis=0))
    pairs = np.triu_indices(len(rows), 1)
    if metric == "laplacian":
        return float(manhattan_distances(rows)[pairs].mean())
    if metric == "chi2":
        _require_non_negative(rows)
        return float(-additive_chi2_kernel(rows)[pairs].mean())
    distances = euclidean_distances(rows)[pairs]
    if not np.isfinite(distances).all():
        return np.inf
    # Equal rows come out as the square root of rounding; that is no bandwidth.
    if distances.max() <= 1e-7 * np.sqrt(np.einsum("ij,ij->i", rows, rows).max()):
        return 0.0
    return float(2 * distances.mean() ** 2)


def kernel_matrix(kernel: Kernel, X: Any, *, verbose: bool = False) -> NDArray[np.float64]:
    """Kernel matrix of the rows of X, in place and by symmetry: half the values are computed."""
    if kernel.metric == "precomputed":
        return np.array(X, dtype=np.float64)
    size = len(X)
    matrix = np.empty((size, size))
    step = max(64, BLOCK_BYTES // (8 * size))
    starts = range(0, size, step)
    for start in progress(starts, "kernel matrix", enabled=verbose):
        stop = min(start + step, size)
        block = kernel(X[start:stop], X[:stop])
        matrix[start:stop, :stop] = block
        matrix[:start, start:stop] = block[:, :start].T
    return matrix


def training_matrix(kernel: Kernel, X: Any, verbose: bool = False) -> NDArray[np.float64]:
    """Kernel matrix of training rows, or the one given, checked."""
    if kernel.metric == "precomputed":
        check_square(X)
    matrix = kernel_matrix(kernel, X, verbose=verbose)
    if not np.isfinite(matrix.diagonal()).all():  # where values overflow, these do first
        raise _not_finite("the kernel matrix")
    if kernel.metric not in ("linear", "rbf", "laplacian", "cosine"):
        check_matrix(matrix, "the kernel matrix")
    return matrix


def check_square(X: Any) -> None:
    """Refuse a precomputed kernel matrix that is not between the training rows."""
    if X.shape[0] != X.shape[1]:
        raise ValueError(
            f"a precomputed kernel matrix must be square at fit, got shape {X.shape}; pass the "
            "kernel values between all training rows"
        )


def check_matrix(matrix: NDArray[np.float64], what: str) -> None:
    """Refuse a kernel matrix that is not finite or not symmetric."""
    if not np.isfinite(matrix).all():
        raise _not_finite(what)
    scale = float(np.abs(matrix.diagonal()).max())
    worst = float(np.abs(matrix - matrix.T).max()) if len(matrix) <= 4096 else _asymmetry(matrix)
    if worst > 1e-8 * max(scale, 1e-300):
        raise ValueError(
            f"{what} is not symmetric: entries differ by up to {worst:.3g} from their mirror "
            f"image, on a diagonal of up to {scale:.3g}; pass (K + K.T) / 2 if that is meant"
        )


def _not_finite(what: str) -> ValueError:
    return ValueError(f"{what} contains NaN or infinity; check the kernel's parameters and X")


def _asymmetry(matrix: NDArray[np.float64]) -> float:
    """Largest difference from the transpose, by row blocks."""
    step = 1024
    return max(
        float(np.abs(matrix[start : start + step] - matrix[:, start : start + step].T).max())
        for start in range(0, len(matrix), step)
    )


def available_memory() -> int:
    """Bytes of memory that can be taken now, as far as the system tells."""
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            table = dict(line.split(":", 1) for line in lines)
        return int(table["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        pass
    try:
        return int(os.sysconf("SC_PHYS_PAGES")) * int(os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, OSError, ValueError):  # a system that does not tell
        return sys.maxsize


def check_memory(n_rows: int, matrices: float) -> None:
    """Refuse an exact kernel fit that would need more memory than there is."""
    needed, available = int(matrices * 8 * n_rows**2), available_memory()
    if needed > available:
        raise MemoryError(
            f"an exact kernel fit on {n_rows} rows needs {needed / 2**30:.1f} GiB and "
            f"{available / 2**30:.1f} GiB are available; use make_pipeline(NystroemMap("
            "n_components=1000), PCSDA()) instead, or fewer rows"
        )
