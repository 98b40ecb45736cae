"""Kernel functions, bandwidth rules and kernel matrices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial.distance import cdist
from sklearn.base import BaseEstimator
from sklearn.metrics import pairwise

from .core.linalg import Array, Floats, Mask, NotDefinite, in_threads
from .core.spread import OverflowingSquares, ScaleError
from .core.warning import warn
from .memory import available_memory
from .progress import progress
from .validation import Seed, random_source

# Kernels with a bandwidth gamma.
SCALED_KERNELS = ("rbf", "laplacian", "poly", "polynomial", "sigmoid", "chi2")
# Kernels whose matrices are positive semi-definite for any rows and parameters.
DEFINITE_KERNELS = ("linear", "rbf", "laplacian", "cosine", "chi2")
# A row is far if it is this many times as far away as half of all rows.
FAR = 1000
# Mean distances are computed on at most this many rows, drawn with a seed.
BANDWIDTH_ROWS = 2000
# Kernel values are computed in row blocks of about this many bytes.
BLOCK_BYTES = 8 << 20
# Number of columns of a block that are transposed at once.
TILE = 512
# Up to this many rows, computing each distance is faster than a matrix product.
FEW_ROWS = 4

Metric: TypeAlias = str | Callable[..., float]


@dataclass(frozen=True)
class Kernel:
    """A kernel function with fixed parameters.

    A linear kernel may be computed relative to an `origin`. Fitted models do not depend on the
    origin, but without it a large offset common to all rows would cost precision.
    """

    metric: Metric = "rbf"
    gamma: float | None = None
    degree: float = 3
    coef0: float = 1
    params: dict[str, Any] = field(default_factory=dict)
    origin: Array | None = None

    @property
    def is_definite(self) -> bool:
        """Whether all matrices of this kernel are positive semi-definite."""
        return self.metric in DEFINITE_KERNELS

    def __call__(self, X: ArrayLike, Y: ArrayLike) -> Array:
        """Return the kernel values between the rows of X and Y.

        If the kernel is precomputed, X already holds the values and is returned.
        """
        rows: Array = np.asarray(X, dtype=np.float64)
        if self.metric == "precomputed":
            return rows
        others: Array = np.asarray(Y, dtype=np.float64)
        with np.errstate(over="ignore", invalid="ignore"):  # checked where the values are used
            if self.metric == "rbf" and self.gamma is not None and len(rows) <= FEW_ROWS:
                return np.exp(-self.gamma * np.asarray(cdist(rows, others, "sqeuclidean")))
            return self.against(others)(rows)

    def of_squares(self, squares: Array) -> Array:
        """Convert squared distances to values of an RBF kernel."""
        assert self.metric == "rbf"
        assert self.gamma is not None
        values = squares * -self.gamma
        return np.exp(values, out=values)

    def against(self, Y: Floats) -> Callable[[Floats], Array]:
        """Return a function of X that computes kernel values between the rows of X and Y.

        The function does not check that the values are finite.
        """
        others: Array = np.asarray(Y, dtype=np.float64)
        if self.metric == "rbf" and self.gamma is not None:
            return _rbf_with(others, self.gamma)
        if self.metric == "linear" and self.origin is not None:
            origin, columns = self.origin, (others - self.origin).T
            return lambda X: (X - origin) @ columns

        def values(X: Floats) -> Array:
            found = np.asarray(self._pairwise(np.atleast_2d(X), others), dtype=np.float64)
            return found if np.ndim(X) > 1 else found[0]

        return values

    def _pairwise(self, X: Floats, Y: Floats) -> Any:
        """Compute kernel values with scikit-learn."""
        if callable(self.metric):
            return pairwise.pairwise_kernels(X, Y, metric=self.metric, **self.params)
        if self.metric == "chi2":
            _require_non_negative(X)
        if self.metric == "cosine":
            X, Y = _of_unit_size(X), _of_unit_size(Y)
        given = {"gamma": self.gamma, "degree": self.degree, "coef0": self.coef0}
        return pairwise.pairwise_kernels(X, Y, metric=self.metric, filter_params=True, **given)


@contextmanager
def naming_far_rows(kernel: Kernel, X: Floats) -> Iterator[None]:
    """Replace NotDefinite by an error that names the rounding, for kernels that are definite."""
    try:
        yield
    except NotDefinite as error:
        if not kernel.is_definite:
            raise
        away = np.abs(X - np.median(X, axis=0)).max(axis=1)
        if away.max() <= FAR * np.median(away):
            raise NotDefinite(
                "rounding spoils the kernel matrix; raise regularization, or give X one scale"
            ) from error
        raise NotDefinite(
            f"row {away.argmax()} of X is {away.max():.3g} away from the median row, and half of "
            f"all rows at most {np.median(away):.3g}, so rounding spoils the kernel matrix; "
            "correct or leave out such rows, or raise regularization"
        ) from error


def _rbf_with(Y: Array, gamma: float) -> Callable[..., Array]:
    """Return a function that computes exp(-gamma ||x - y||^2) in place, with one matrix product.

    The function takes rows and, optionally, the number of leading rows of Y to use.
    Rows are centred first, because a common offset would reduce precision.
    """
    origin = Y.mean(axis=0)
    centred = Y - origin
    squares = gamma * np.einsum("ij,ij->i", centred, centred)

    def values(X: Floats, first: int | None = None) -> Array:
        middle: Array = X - origin
        own = gamma * np.einsum("...j,...j->...", middle, middle)[..., None]
        middle *= 2 * gamma
        found: Array = middle @ centred[:first].T
        found -= own
        found -= squares[:first]
        np.minimum(found, 0, out=found)
        return np.exp(found, out=found)

    return values


def _of_unit_size(X: Floats) -> Floats:
    """Divide each row by its largest absolute entry, so that no length overflows or underflows."""
    size = np.abs(X).max(axis=1, keepdims=True)
    return X / np.where(size > 0, size, 1.0)


def _require_non_negative(X: Floats) -> None:
    smallest = X.min(initial=0.0)
    if smallest < 0:
        raise ValueError(
            f"kernel='chi2' needs non-negative X; its smallest entry is {smallest:.3g}. Use "
            "another kernel, such as 'rbf'"
        )


def settled_kernel(model: BaseEstimator, X: Floats, positive: Mask | None, seed: Seed) -> Kernel:
    """Return an estimator's kernel, with the bandwidth computed from the rows X.

    `positive` marks the positives. Only the rule gamma="positive" needs it.
    """
    gamma = origin = None
    if model.kernel in SCALED_KERNELS:
        gamma = bandwidth(model.gamma, X, positive, model.kernel, seed)
    if isinstance(model.kernel, str) and model.kernel == "linear":
        origin = np.asarray(X).mean(axis=0, dtype=np.float64)
    params = dict(model.kernel_params or {})
    return Kernel(model.kernel, gamma, model.degree, model.coef0, params, origin)


def bandwidth(
    rule: str | float,
    X: Floats,
    positive: Mask | None,
    metric: Metric = "rbf",
    random_state: Seed = None,
) -> float:
    """Turn a bandwidth rule into gamma.

    Parameters
    ----------
    rule : {"positive", "all", "scale"} or float
        "positive" (the paper's rule) and "all" use the mean pairwise distance s between positives
        or between all rows: ``gamma = 1/(2 s^2)``. "scale" is 1 / (n_features * X.var()), as in
        scikit-learn; a float is gamma itself. For the Laplacian and chi-squared kernels, s is the
        mean of the kernel's own distance and gamma is 1/s.
    X : array of shape (N, D)
    positive : boolean array of shape (N,) or None
        Which rows are positive; needed for the rule "positive". If there is only one positive, or
        all positives are equal, all rows are used instead, with a warning.
    metric : str or callable
        The kernel.
    random_state : int, RandomState instance or None
        Seed for drawing a sample of rows if there are more than 2000.
    """
    if not isinstance(rule, str):
        return float(rule)
    if rule == "scale":
        with np.errstate(over="ignore", invalid="ignore"):
            spread = float(np.var(X, dtype=np.float64))
        if spread <= 0:
            raise ValueError("gamma='scale' needs X to vary, but its variance is 0; give a number")
        return 1 / _finite(X.shape[1] * spread)
    if rule == "positive":
        if positive is None:
            raise ValueError("gamma='positive' needs y to know the positives; give y or use 'all'")
        value = _mean_distance(X[positive], metric, random_state)
        if value > 0:
            return 1 / _finite(value)
        n = int(positive.sum())
        few = "1 positive" if n == 1 else f"{n} positives, all equal"
        warn(f"gamma='positive' is undefined ({few}); using gamma='all'")
    value = _mean_distance(X, metric, random_state)
    if value <= 0:
        found = "n_samples = 1" if len(X) == 1 else f"{len(X)} rows that are all equal"
        raise ScaleError(f"gamma='all' needs rows that differ, got {found}; set gamma to a number")
    return 1 / _finite(value)


def _finite(spread: float) -> float:
    if not np.isfinite(spread):
        raise OverflowingSquares
    return spread


@np.errstate(over="ignore", invalid="ignore")
def _mean_distance(X: Floats, metric: Metric, random_state: Seed) -> float:
    """Return 1/gamma, computed from the mean distance between rows.

    This is twice the square of the mean Euclidean distance. For the Laplacian and chi-squared
    kernels, it is the mean of the kernel's own distance. The result is 0 if all rows are equal.
    """
    rng = random_source(random_state)
    if len(X) > BANDWIDTH_ROWS:
        X = X[rng.choice(len(X), BANDWIDTH_ROWS, replace=False)]
    if len(X) < 2:
        return 0.0
    rows = np.asarray(X, dtype=np.float64)
    rows = rows - (0 if metric == "chi2" else rows.mean(axis=0))
    pairs = np.triu_indices(len(rows), 1)
    if metric == "laplacian":
        return float(pairwise.manhattan_distances(rows)[pairs].mean())
    if metric == "chi2":
        _require_non_negative(rows)
        return float(-pairwise.additive_chi2_kernel(rows)[pairs].mean())
    distances = pairwise.euclidean_distances(rows)[pairs]
    if not np.isfinite(distances).all():
        return np.inf
    # The computed distance of equal rows is the square root of a rounding error, not a bandwidth.
    if distances.max() <= 1e-7 * np.sqrt(np.einsum("ij,ij->i", rows, rows).max()):
        return 0.0
    return float(2 * distances.mean() ** 2)


def kernel_matrix(kernel: Kernel, X: Floats, *, verbose: bool = False) -> Array:
    """Compute the kernel matrix of the rows of X, using symmetry to halve the work."""
    if kernel.metric == "precomputed":
        return np.array(X, dtype=np.float64)
    size = len(X)
    matrix = np.empty((size, size))
    step = max(64, BLOCK_BYTES // (8 * size))
    values = values_before(kernel, X)

    def fill(start: int) -> None:
        stop = min(start + step, size)
        block = values(start, stop)
        matrix[start:stop, :stop] = block
        for first in range(0, start, TILE):  # a transpose of long rows would miss the cache
            last = min(first + TILE, start)
            matrix[first:last, start:stop] = block[:, first:last].T

    blocks = progress(range(0, size, step), "kernel matrix", enabled=verbose)
    if kernel.metric == "rbf":
        in_threads(fill, blocks)
    else:  # scikit-learn's kernels use threads, and a user's function may not be thread-safe
        for start in blocks:
            fill(start)
    return matrix


def values_before(kernel: Kernel, X: Floats) -> Callable[[int, int], Array]:
    """Return a function that computes kernel values between X[start:stop] and X[:stop].

    The arguments of the function are `start` and `stop`.
    """
    if kernel.metric != "rbf" or kernel.gamma is None:
        return lambda start, stop: kernel(X[start:stop], X[:stop])
    rows: Array = np.asarray(X, dtype=np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        of_rows = _rbf_with(rows, kernel.gamma)

    def values(start: int, stop: int) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):  # checked where the values are used
            return of_rows(rows[start:stop], stop)

    return values


def squared_distances(X: Floats, Y: Floats | None = None) -> Array:
    """Return squared Euclidean distances between the rows of X and Y (by default X itself).

    The result is symmetric if Y is X. Rows are centred first, as in :func:`_rbf_with`.
    """
    rows: Array = np.asarray(X, dtype=np.float64)
    origin = rows.mean(axis=0)
    rows = rows - origin
    others = rows if Y is None else np.asarray(Y, dtype=np.float64) - origin
    lengths = (np.einsum("ij,ij->i", part, part) for part in (rows, others))
    with np.errstate(over="ignore", invalid="ignore"):  # the caller checks the values
        found: Array = np.add.outer(*lengths)
        found -= 2 * (rows @ others.T)
        return np.maximum(found, 0, out=found)


def training_matrix(kernel: Kernel, X: Floats, verbose: bool = False) -> Array:
    """Return the kernel matrix of training rows, after checking it.

    If the kernel is precomputed, X is the matrix.
    """
    if kernel.metric == "precomputed":
        check_square(X)
    matrix = finite_diagonal(kernel_matrix(kernel, X, verbose=verbose))
    if kernel.metric not in ("linear", "rbf", "laplacian", "cosine"):
        check_matrix(matrix, "the kernel matrix")
    return matrix


def finite_diagonal(matrix: Array) -> Array:
    """Return a kernel matrix, or raise ScaleError if its diagonal is not finite."""
    if not np.isfinite(matrix.diagonal()).all():  # the diagonal overflows first
        raise not_finite()
    return matrix


def check_square(X: Floats) -> None:
    """Reject a precomputed kernel matrix of training rows that is not square."""
    if X.shape[0] != X.shape[1]:
        raise ValueError(
            f"a precomputed kernel matrix must be square in fit, got shape {X.shape}; pass the "
            "kernel values between all training rows"
        )


def check_matrix(matrix: Array, what: str) -> None:
    """Reject a kernel matrix that is not finite or not symmetric; `what` names the matrix."""
    if not np.isfinite(matrix).all():
        raise not_finite(what)
    scale = float(np.abs(matrix.diagonal()).max())
    parts = [slice(start, start + 1024) for start in range(0, len(matrix), 1024)]
    worst = max(float(np.abs(matrix[part] - matrix[:, part].T).max()) for part in parts)
    if worst > 1e-8 * max(scale, 1e-300):
        raise ValueError(
            f"{what} is not symmetric: entries differ by up to {worst:.3g} from their mirror "
            f"images, with a diagonal of up to {scale:.3g}; pass (K + K.T) / 2 if that is intended"
        )


def not_finite(what: str = "the kernel matrix") -> ValueError:
    """Return the error to raise if kernel values are not finite."""
    return ScaleError(f"{what} contains NaN or infinity; check the kernel's parameters and X")


def check_memory(n_rows: int, matrices: float) -> None:
    """Raise MemoryError if `matrices` kernel matrices of `n_rows` rows do not fit in memory."""
    needed, available = int(matrices * 8 * n_rows**2), available_memory()
    if needed > available:
        raise MemoryError(
            f"an exact kernel fit on {n_rows} rows needs {needed / 2**30:.1f} GiB, but only "
            f"{available / 2**30:.1f} GiB are available; use "
            "make_pipeline(NystroemMap(n_components=1000), PCSDA()) instead, or fewer rows"
        )
