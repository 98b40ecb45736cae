"""Explicit feature maps of kernels: exact (NPT), Nystroem (ANPT) and random Fourier features.

The exact and the Nystroem map share one form. With pivots p and the Cholesky factor
``L L' = K[p, p]`` the features of x are ``L^-1 k(p, x)``: exact where the pivots span all rows, and
the Nystroem approximation where they are landmarks.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.cluster import KMeans
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from . import validation
from .core import linalg
from .core.gram import require_fine
from .core.linalg import feature_factor, pivoted_cholesky
from .kernels import (
    BLOCK_BYTES,
    SCALED_KERNELS,
    Kernel,
    bandwidth,
    check_memory,
    training_matrix,
)
from .partition import count_distinct, fit_kmeans
from .progress import progress

Array = NDArray[np.float64]
# Rows among which landmarks are sought, for each landmark: by pivoting and by k-means.
PIVOT_CANDIDATES = 4
KMEANS_CANDIDATES = 20
# Columns of a product with a triangle that are made at a time.
PANEL = 256


class _KernelMap(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """What the maps share: settling the kernel and transforming in row blocks."""

    kernel: Any
    gamma: Any
    pos_label: Any
    random_state: Any
    verbose: bool
    n_components_: int

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = isinstance(self.kernel, str) and self.kernel == "precomputed"
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    def _check(self, X: Any, *, reset: bool) -> Any:
        validation.refuse_dask(X, predicts=not reset)
        return validate_data(self, X, reset=reset, dtype=[np.float64, np.float32])

    def _settled(self, X: Any, y: Any, kernels: tuple[str, ...]) -> Kernel:
        """Kernel with its bandwidth; `y` is looked at only where the rule needs it."""
        validation.check_kernel(self.kernel, self.gamma, kernels)
        positive = None
        if y is not None and isinstance(self.gamma, str) and self.gamma == "positive":
            positive = validation.check_labels(y, self.pos_label)[2]
            if len(positive) != len(X):
                raise ValueError(f"X has {len(X)} rows but y has {len(positive)} labels")
        gamma = None
        if self.kernel in SCALED_KERNELS:
            gamma = bandwidth(self.gamma, X, positive, self.kernel, self.random_state)
        return Kernel(
            self.kernel,
            gamma,
            getattr(self, "degree", 3),
            getattr(self, "coef0", 1),
            dict(getattr(self, "kernel_params", None) or {}),
        )

    def _in_blocks(self, X: Any, width: int, write: Any) -> Any:
        """Call ``write(rows, features)`` on row blocks, so that what is between stays bounded."""
        result = np.empty((len(X), self.n_components_), dtype=X.dtype)
        step = max(64, BLOCK_BYTES // (8 * max(width, 1)))
        for start in progress(range(0, len(X), step), "features", enabled=self.verbose):
            block = result[start : start + step]
            with np.errstate(over="ignore", invalid="ignore"):
                write(X[start : start + step], block)
            finite = np.isfinite(block).all(axis=1)
            if not finite.all():
                row = start + int(np.flatnonzero(~finite)[0])
                raise ValueError(f"row {row} of X is too large to map; bring X to the fitted scale")
        return result


class _PivotMap(_KernelMap):
    """Features ``L^-1 k(p, x)`` on pivots p."""

    kernel_: Kernel
    pivots_: Any
    pivot_indices_: NDArray[np.intp]
    factor_: Array
    whitening_: Array

    def _start(self, matrix: Array, rows: Any, tol: float, limit: int | None) -> Array:
        """Take the pivots of the kernel matrix of `rows`; returns the features of all of them."""
        self.trace_ = float(np.trace(matrix))
        features, pivots, factor, self.floor_ = feature_factor(matrix, tol)
        rank = len(pivots) if limit is None else min(limit, len(pivots))
        self.pivot_indices_ = pivots[:rank]
        self.pivots_ = rows[self.pivot_indices_]
        self.factor_ = np.ascontiguousarray(factor[:rank, :rank])
        return features[:, :rank]

    def _finish(self, turn: Array | None = None) -> None:
        whitening = linalg.triangular_inverse(self.factor_).T
        self.whitening_ = whitening if turn is None else whitening @ turn
        self.n_components_ = self.whitening_.shape[1]

    def _against_pivots(self, X: Any) -> Array:
        if self.kernel_.metric == "precomputed":
            return np.asarray(X[:, self.pivot_indices_], dtype=np.float64)
        return self.kernel_(X, self.pivots_)

    def transform(self, X: Any) -> NDArray[np.floating]:
        """Map rows to features whose inner products are (or approximate) the kernel.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            With kernel="precomputed", kernel values with the training rows.

        Returns
        -------
        array of shape (n_samples, n_components)
        """
        check_is_fitted(self)
        X = self._check(X, reset=False)
        panels = _panels(self.whitening_)

        def write(rows: Any, features: Any) -> None:
            values = self._against_pivots(rows)
            for columns, panel in panels:
                np.matmul(values[:, : len(panel)], panel, out=features[:, columns])

        return self._in_blocks(X, len(self.factor_), write)


class ExactKernelMap(_PivotMap):
    """Exact map of the training rows to the kernel's feature space (NPT).

    Parameters
    ----------
    kernel : str or callable, default="rbf"
        As in scikit-learn's `pairwise_kernels`, or "precomputed".
    gamma : {"all", "positive", "scale"} or float, default="all"
        Bandwidth: from the mean pairwise distance of all rows or of the positives (then `fit` needs
        y), scikit-learn's "scale", or a number.
    method : {"cholesky", "eigen"}, default="cholesky"
        Features on a pivoted Cholesky factor, or on the eigenvectors of the kernel matrix as
        published; the same map up to a rotation, and the first is many times cheaper.
    n_components : int or None, default=None
        Largest number of features; None keeps all that `tol` lets through.
    tol : float, default=1e-14
        Pivots, or eigenvalues, of at most this share of the largest diagonal entry, or eigenvalue,
        are left out.
    degree, coef0, kernel_params
        Parameters of the kernel, as in scikit-learn.
    pos_label, random_state, verbose
        Class of interest for ``gamma="positive"``, seed of its row sample, progress on a terminal.

    Attributes
    ----------
    n_components_ : int
    pivots_ : array of shape (n_pivots, n_features)
        The rows that new samples are compared with.
    missing_trace_ : float
        Trace of the kernel matrix that the features leave out.
    eigenvalues_ : array of shape (n_components,)
        Eigenvalues of the kernel matrix, with ``method="eigen"``.
    """

    def __init__(
        self,
        kernel: Any = "rbf",
        gamma: Any = "all",
        method: str = "cholesky",
        n_components: int | None = None,
        tol: float = 1e-14,
        *,
        degree: float = 3,
        coef0: float = 1,
        kernel_params: dict[str, Any] | None = None,
        pos_label: Any = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.kernel = kernel
        self.gamma = gamma
        self.method = method
        self.n_components = n_components
        self.tol = tol
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.pos_label = pos_label
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None) -> Self:
        """Factorise the kernel matrix of the rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or kernel matrix
        y : array-like of shape (n_samples,), optional
            Binary labels, for ``gamma="positive"`` only.
        """
        validation.check_option("method", self.method, ("cholesky", "eigen"))
        validation.check_count("n_components", self.n_components, None)
        validation.check_number("tol", self.tol)
        X = self._check(X, reset=True)
        self.kernel_ = self._settled(X, y, (*validation.KERNELS, "precomputed"))
        check_memory(len(X), 3)
        matrix = training_matrix(self.kernel_, X, self.verbose)
        require_fine(matrix, X.dtype)
        features = self._start(matrix, X, self.tol, self._limit)
        self.gram_ = features.T @ features
        return self._finished()

    @property
    def _limit(self) -> int | None:
        return self.n_components if self.method == "cholesky" else None

    def _finished(self) -> Self:
        turn = None
        kept = float(np.trace(self.gram_))
        if self.method == "eigen":
            values, vectors = linalg.eigh_descending(self.gram_)
            count = int(np.sum(values > self.tol * values[0]))
            count = min(count, self.n_components or count)
            self.eigenvalues_, turn = values[:count], vectors[:, :count]
            kept = float(self.eigenvalues_.sum())
        self._finish(turn)
        self.missing_trace_ = max(self.trace_ - kept, 0.0)
        return self

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Add rows exactly (incremental NPT); the features of earlier rows only gain zeros.

        With ``method="eigen"`` they are also turned. The bandwidth stays that of the first call.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : ignored after the first call
        """
        if not hasattr(self, "factor_"):
            return self.fit(X, y)
        if self.kernel_.metric == "precomputed":
            raise ValueError(
                "partial_fit cannot add rows to a precomputed kernel; pass the rows and a kernel"
            )
        X = self._check(X, reset=False)
        check_memory(len(X), 3)
        old = self._against_pivots(X) @ linalg.triangular_inverse(self.factor_).T
        matrix = training_matrix(self.kernel_, X, self.verbose)
        self.trace_ += float(np.trace(matrix))
        largest = float(matrix.diagonal().max())
        self.floor_ = max(self.floor_, linalg.pivot_floor(self.tol, len(matrix), largest))
        matrix -= old @ old.T
        factor, order, pivots = pivoted_cholesky(matrix, self.floor_, largest)
        if self._limit is not None:
            pivots = pivots[: max(self._limit - len(self.factor_), 0)]
        new = np.zeros((len(X), len(pivots)))
        new[order] = factor[:, : len(pivots)]
        added = factor[: len(pivots), : len(pivots)]
        corner = np.zeros((len(self.factor_), len(pivots)))
        self.factor_ = np.block([[self.factor_, corner], [old[pivots], added]])
        self.pivots_ = np.concatenate([self.pivots_, X[pivots]])
        features = np.hstack([old, new])
        self.gram_ = np.pad(self.gram_, (0, len(pivots))) + features.T @ features
        return self._finished()


class NystroemMap(_PivotMap):
    """Approximate map of a kernel's feature space on landmarks (ANPT).

    Parameters
    ----------
    n_components : int, default=1000
        Largest number of landmarks; all rows where there are fewer.
    landmarks : {"random", "kmeans", "pivoted"} or array, default="random"
        Random rows, k-means centroids, rows found by pivoted Cholesky among a random sample, or
        the landmarks themselves, of shape (n_landmarks, n_features).
    kernel, gamma, degree, coef0, kernel_params, tol, pos_label, verbose
        As in :class:`ExactKernelMap`; the kernel cannot be precomputed.
    random_state : int, RandomState instance or None, default=None
        Draws the landmarks.

    Attributes
    ----------
    n_components_ : int
    pivots_ : array of shape (n_components, n_features)
        The landmarks in use.

    Notes
    -----
    The features are those of the kernel matrix of the landmarks, in pivoted Cholesky form, which is
    scikit-learn's `Nystroem` up to a rotation. No N x N matrix is formed.
    """

    def __init__(
        self,
        n_components: int = 1000,
        landmarks: Any = "random",
        *,
        kernel: Any = "rbf",
        gamma: Any = "all",
        degree: float = 3,
        coef0: float = 1,
        kernel_params: dict[str, Any] | None = None,
        tol: float = 1e-14,
        pos_label: Any = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.n_components = n_components
        self.landmarks = landmarks
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.tol = tol
        self.pos_label = pos_label
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None) -> Self:
        """Choose the landmarks and factorise their kernel matrix.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,), optional
            Binary labels, for ``gamma="positive"`` only.
        """
        validation.check_count("n_components", self.n_components, None)
        validation.check_number("tol", self.tol)
        X = self._check(X, reset=True)
        self.kernel_ = self._settled(X, y, validation.KERNELS)
        rows = self._landmarks(X)
        check_memory(len(rows), 3)
        matrix = training_matrix(self.kernel_, rows, self.verbose)
        self._start(matrix, rows, self.tol, self.n_components)
        self._finish()
        return self

    def _landmarks(self, X: Any) -> Any:
        """Rows among which the pivots are taken."""
        if not isinstance(self.landmarks, str):
            rows = check_array(self.landmarks, dtype=X.dtype, input_name="landmarks")
            if rows.shape[1] != X.shape[1]:
                raise ValueError(
                    f"landmarks have {rows.shape[1]} features but X has {X.shape[1]}; they must be "
                    "points of the same space"
                )
            return rows
        validation.check_option("landmarks", self.landmarks, ("random", "kmeans", "pivoted"))
        rng = check_random_state(self.random_state)
        count = self.n_components or len(X)
        if len(X) <= count:
            return X
        if self.landmarks == "random":
            return X[rng.choice(len(X), count, replace=False)]
        wanted = count * (PIVOT_CANDIDATES if self.landmarks == "pivoted" else KMEANS_CANDIDATES)
        sample = X[rng.choice(len(X), min(len(X), wanted), replace=False)]
        if self.landmarks == "pivoted":
            return sample
        # Landmarks need to be spread, not optimal: a few Lloyd steps do.
        count = count_distinct(sample, count)
        means = fit_kmeans(KMeans(count, n_init=1, max_iter=20, random_state=rng), sample)
        return means.cluster_centers_.astype(X.dtype, copy=False)


class FourierMap(_KernelMap):
    """Random Fourier features of a shift-invariant kernel.

    Parameters
    ----------
    n_components : int, default=1000
        Number of features; the error of the kernel falls with its square root.
    kernel : {"rbf", "laplacian"}, default="rbf"
    gamma : {"all", "positive", "scale"} or float, default="all"
        As in :class:`ExactKernelMap`.
    orthogonal : bool, default=False
        Draw the frequencies of "rbf" along orthogonal directions, which lowers the error.
    random_state : int, RandomState instance or None, default=None
        Draws the frequencies.
    pos_label, verbose
        As in :class:`ExactKernelMap`.

    Attributes
    ----------
    n_components_ : int
    frequencies_ : array of shape (n_features, ceil(n_components / 2))

    References
    ----------
    A. Rahimi and B. Recht, Random features for large-scale kernel machines, 2007. F. X. Yu and
    others, Orthogonal random features, 2016.
    """

    def __init__(
        self,
        n_components: int = 1000,
        *,
        kernel: str = "rbf",
        gamma: Any = "all",
        orthogonal: bool = False,
        pos_label: Any = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.gamma = gamma
        self.orthogonal = orthogonal
        self.pos_label = pos_label
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None) -> Self:
        """Draw the frequencies.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,), optional
            Binary labels, for ``gamma="positive"`` only.
        """
        if self.n_components is None:
            raise ValueError("n_components=None must be a whole number of at least 1")
        validation.check_count("n_components", self.n_components, None)
        validation.check_option("kernel", self.kernel, ("rbf", "laplacian"))
        if self.orthogonal and self.kernel != "rbf":
            raise ValueError(
                f"orthogonal=True is for kernel='rbf', got kernel={self.kernel!r}; set "
                "orthogonal=False"
            )
        X = self._check(X, reset=True)
        gamma = self._settled(X, y, ("rbf", "laplacian")).gamma or 1.0
        rng = check_random_state(self.random_state)
        self.n_components_ = self.n_components
        count = -(-self.n_components // 2)
        if self.kernel == "laplacian":
            frequencies = gamma * rng.standard_cauchy((X.shape[1], count))
        elif self.orthogonal:
            frequencies = np.sqrt(2 * gamma) * _orthogonal(X.shape[1], count, rng)
        else:
            frequencies = np.sqrt(2 * gamma) * rng.standard_normal((X.shape[1], count))
        self.frequencies_ = frequencies.astype(X.dtype, copy=False)
        # A cosine of differences is what the features add up to, so any origin may be taken.
        self.origin_ = X.mean(axis=0)
        return self

    def transform(self, X: Any) -> NDArray[np.floating]:
        """Map rows to cosines and sines of their random frequencies.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        array of shape (n_samples, n_components)
        """
        check_is_fitted(self)
        X = self._check(X, reset=False)

        def write(rows: Any, features: Any) -> None:
            angle = (rows - self.origin_.astype(X.dtype)) @ self.frequencies_.astype(X.dtype)
            both = np.concatenate([np.cos(angle), np.sin(angle)], axis=1)
            both *= np.sqrt(1 / angle.shape[1]).astype(X.dtype)
            features[:] = both[:, : self.n_components_]

        return self._in_blocks(X, 2 * self.n_components_, write)


def _panels(matrix: Array) -> list[tuple[slice, Array]]:
    """Columns of a matrix, some at a time, without the rows of zeros below: half of a triangle."""
    found = []
    for start in range(0, matrix.shape[1], PANEL):
        columns = slice(start, start + PANEL)
        filled = np.flatnonzero(matrix[:, columns].any(axis=1))
        found.append((columns, matrix[: filled[-1] + 1, columns]))
    return found


def _orthogonal(width: int, count: int, rng: np.random.RandomState) -> Array:
    """Gaussian frequencies whose directions are orthogonal within blocks of `width`."""
    blocks = [
        np.linalg.qr(rng.standard_normal((width, width)))[0] for _ in range(-(-count // width))
    ]
    directions = np.hstack(blocks)[:, :count]
    lengths = np.sqrt(rng.chisquare(width, size=count))
    return directions * lengths
