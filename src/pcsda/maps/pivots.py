"""Kernel maps on pivots: the exact map and the Nystroem map.

Both have the same form. With pivots p and the Cholesky factor ``L L' = K[p, p]``, the features of x
are ``L^-1 k(p, x)``. They are exact if the pivots span all rows (the nonlinear projection trick,
NPT), and the Nystroem approximation if the pivots are landmarks (approximate NPT, ANPT).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.cluster import KMeans
from sklearn.utils import check_array

from .. import validation
from ..core import linalg
from ..core.kernel_matrix import require_fine, require_fine_rows
from ..core.linalg import Array, Floats, Ints
from ..core.spread import no_spread
from ..kernels import Kernel, check_memory, not_finite, training_matrix
from ..partition import count_distinct, fit_kmeans
from ..validation import Seed, random_source
from .base import KernelMap, Writer

# Pivots up to this share of the largest kernel value are rounding errors.
KERNEL_TOLERANCE = 1e-14
# Number of candidate rows per landmark, for pivoting and for k-means.
PIVOT_CANDIDATES = 4
KMEANS_CANDIDATES = 20
# Number of columns computed at a time in a product with a triangular matrix.
PANEL = 256


class _OnPivots:
    """Base class of maps with features ``L^-1 k(p, x)``, where p are the pivots.

    For the linear kernel, the features are the rows' coordinates in an orthonormal basis of the
    pivots. They are computed from the rows themselves, because inner products would keep only half
    of the digits.
    """

    kernel_: Kernel
    pivots_: Floats
    basis_: Array
    pivot_indices_: Ints
    factor_: Array
    whitening_: Array

    def _matrix(self, rows: Floats, verbose: bool) -> Array | None:
        """Return the kernel matrix of rows, or None for the linear kernel, which needs none."""
        if self.kernel_.metric == "linear":
            if not np.isfinite(_sum_squares(rows)):
                raise not_finite()
            return None
        check_memory(len(rows), 3)
        return training_matrix(self.kernel_, rows, verbose)

    def _start(
        self, matrix: Array | None, rows: Floats, tol: float | None, limit: int | None
    ) -> Array:
        """Choose the pivots among `rows` and return the features of all rows."""
        if matrix is None:
            self.trace_ = _sum_squares(rows)
            self.floor_ = linalg.row_floor(rows, tol or 0.0)
            basis, pivots, factor = linalg.row_basis(rows, self.floor_)
            if len(pivots) == 0:
                raise no_spread()
            self.basis_ = basis[:, :limit]
            features: Array = rows @ basis
        else:
            self.trace_ = float(np.trace(matrix))
            features, pivots, factor, self.floor_ = linalg.feature_factor(matrix, _tolerance(tol))
        self.pivot_indices_ = pivots[:limit]
        self.pivots_ = rows[self.pivot_indices_]
        self.factor_ = np.ascontiguousarray(factor[:limit, :limit])
        return features[:, :limit]

    def _finish(self, turn: Array | None = None) -> None:
        whitening = self._whitening()
        self.whitening_ = whitening if turn is None else whitening @ turn
        self.n_components_ = self.whitening_.shape[1]

    def _whitening(self) -> Array:
        """Return the matrix that maps the output of `_values` to features, before any rotation."""
        return self.basis_ if self._of_rows else linalg.triangular_inverse(self.factor_).T

    @property
    def _of_rows(self) -> bool:
        return hasattr(self, "basis_")  # absent in files of version 0.1.0

    def _values(self, X: Floats) -> Array:
        """Return the kernel values between rows and pivots.

        If the features are computed from the rows themselves, return the rows.
        """
        if self._of_rows:
            return np.asarray(X, dtype=np.float64)
        if self.kernel_.metric == "precomputed":
            return np.asarray(X[:, self.pivot_indices_], dtype=np.float64)
        return self.kernel_(X, self.pivots_)

    def _writer(self, dtype: np.dtype[np.floating]) -> tuple[int, Writer]:
        panels = list(_panels(self.whitening_))

        def write(rows: Floats, features: Floats) -> None:
            values = self._values(rows)
            for columns, panel in panels:
                np.matmul(values[:, : len(panel)], panel, out=features[:, columns])

        return len(self.whitening_), write


class ExactKernelMap(_OnPivots, KernelMap):
    """Map rows to the kernel's feature space, exactly for the training rows.

    This is the nonlinear projection trick (NPT).

    Parameters
    ----------
    kernel : str or callable, default="rbf"
        As in scikit-learn's `pairwise_kernels`, or "precomputed".
    gamma : {"all", "positive", "scale"} or float, default="all"
        Bandwidth: based on the mean pairwise distance between all rows or between positives (then
        `fit` needs y), scikit-learn's "scale", or a number.
    method : {"cholesky", "eigen"}, default="cholesky"
        Compute features from a pivoted Cholesky factor or, as published, from the eigenvectors of
        the kernel matrix. Both give the same map up to a rotation, and the first is many times
        cheaper.
    n_components : int or None, default=None
        Maximum number of features; None keeps all that exceed `tol`.
    tol : float or None, default=None
        Drop pivots up to this fraction of the kernel matrix's largest diagonal entry, or
        eigenvalues up to this fraction of the largest one. None means 1e-14, the rounding error of
        kernel values; for the linear kernel, it means the rounding error of the rows themselves.
    degree, coef0
        Parameters of the kernel, as in scikit-learn.
    kernel_params : dict or None, default=None
        Arguments of a function given as `kernel`.
    pos_label, random_state, verbose
        Class of interest for ``gamma="positive"``, seed for sampling rows to find the bandwidth,
        and whether to show progress on a terminal.

    Attributes
    ----------
    n_components_ : int
        Number of features.
    pivots_ : array of shape (n_pivots, n_features)
        The rows that new samples are compared with.
    missing_trace_ : float
        Part of the kernel matrix's trace that the features do not represent.
    eigenvalues_ : array of shape (n_components,)
        Eigenvalues of the kernel matrix, with ``method="eigen"``.

    Notes
    -----
    Kernel values are accurate to about 16 digits, but features only to about 8, because they behave
    like square roots of kernel values. Directions weaker than that are missing from the map. So at
    a relative ridge below 1e-7, PCSDA fitted to the features and :class:`KernelPCSDA` may differ
    for rows unlike the training rows; the latter is then more accurate. The linear kernel has no
    such limit.

    Examples
    --------
    >>> import numpy as np
    >>> from pcsda import ExactKernelMap
    >>> X = np.random.default_rng(0).standard_normal((50, 3))
    >>> features = ExactKernelMap("rbf", gamma=0.5).fit_transform(X)
    >>> squares = ((X[:, None] - X) ** 2).sum(axis=-1)
    >>> bool(np.allclose(features @ features.T, np.exp(-0.5 * squares)))
    True
    """

    def __init__(
        self,
        kernel: str | Callable[..., float] = "rbf",
        gamma: str | float = "all",
        method: str = "cholesky",
        n_components: int | None = None,
        tol: float | None = None,
        *,
        degree: float = 3,
        coef0: float = 1,
        kernel_params: dict[str, Any] | None = None,
        pos_label: object = None,
        random_state: Seed = None,
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

    def fit(self, X: Any, y: ArrayLike | None = None) -> Self:
        """Factorise the kernel matrix of the rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or kernel matrix
            Training rows or, with kernel="precomputed", the kernel values between them.
        y : array-like of shape (n_samples,), optional
            Binary labels, for ``gamma="positive"`` only.

        Returns
        -------
        self : ExactKernelMap
        """
        validation.check_option("method", self.method, ("cholesky", "eigen"))
        validation.check_count("n_components", self.n_components, None)
        if self.tol is not None:
            validation.check_number("tol", self.tol)
        X = self._check(X, reset=True)
        self.kernel_ = self._settled(X, y, (*validation.KERNELS, "precomputed"))
        matrix = self._matrix(X, self.verbose)
        if matrix is None:
            require_fine_rows(X)
        else:
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
            # Features of the linear kernel have full precision; their squares have half of it.
            count = int(np.sum(values > _tolerance(self.tol) * values[0]))
            if self._of_rows and self.tol is None:
                count = len(values)
            count = min(count, self.n_components or count)
            self.eigenvalues_, turn = np.maximum(values[:count], 0.0), vectors[:, :count]
            kept = float(self.eigenvalues_.sum())
        self._finish(turn)
        self.missing_trace_ = max(self.trace_ - kept, 0.0)
        return self

    def partial_fit(self, X: Any, y: ArrayLike | None = None) -> Self:
        """Add rows exactly (incremental NPT); earlier features are only padded with zeros.

        With ``method="eigen"`` earlier features are also rotated. The bandwidth from the first call
        is kept.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows to add.
        y : ignored after the first call

        Returns
        -------
        self : ExactKernelMap
        """
        if not hasattr(self, "factor_"):
            return self.fit(X, y)
        if self.kernel_.metric == "precomputed":
            raise ValueError(
                "partial_fit cannot add rows to a precomputed kernel; pass the rows and a kernel"
            )
        X = self._check(X, reset=False)
        old = self._values(X) @ self._whitening()
        new, pivots, added = self._beyond(X, old)
        corner = np.zeros((len(self.factor_), len(pivots)))
        self.factor_ = np.block([[self.factor_, corner], [old[pivots], added]])
        self.pivots_ = np.concatenate([self.pivots_, X[pivots]])
        features = np.hstack([old, new])
        self.gram_ = np.pad(self.gram_, (0, len(pivots))) + features.T @ features
        return self._finished()

    def _beyond(self, X: Floats, old: Array) -> tuple[Array, Ints, Array]:
        """Extend the map by what the features `old` of new rows do not represent.

        Return the additional features of these rows, the positions of the new pivots among the
        rows, and the additional features of the new pivots.
        """
        matrix = self._matrix(X, self.verbose)
        room = None if self._limit is None else max(self._limit - len(self.factor_), 0)
        if matrix is None:
            self.trace_ += _sum_squares(X)
            self.floor_ = max(self.floor_, linalg.row_floor(X, self.tol or 0.0))
            rest = X - old @ self.basis_.T
            rest -= (rest @ self.basis_) @ self.basis_.T  # repeated, to remove rounding
            basis, pivots, added = linalg.row_basis(rest, self.floor_)
            basis, pivots, added = basis[:, :room], pivots[:room], added[:room, :room]
            self.basis_ = np.hstack([self.basis_, basis])
            return rest @ basis, pivots, added
        self.trace_ += float(np.trace(matrix))
        largest = float(matrix.diagonal().max())
        tol = _tolerance(self.tol)
        self.floor_ = max(self.floor_, linalg.pivot_floor(tol, len(matrix), largest))
        matrix -= old @ old.T
        factor, order, pivots = linalg.pivoted_cholesky(matrix, self.floor_, largest)
        pivots = pivots[:room]
        new = np.zeros((len(X), len(pivots)))
        new[order] = factor[:, : len(pivots)]
        return new, pivots, factor[: len(pivots), : len(pivots)]


class NystroemMap(_OnPivots, KernelMap):
    """Map rows approximately to a kernel's feature space, using landmarks.

    This is the approximate nonlinear projection trick (ANPT).

    Parameters
    ----------
    n_components : int, default=1000
        Maximum number of landmarks; if there are fewer rows, all of them are used.
    landmarks : {"random", "kmeans", "pivoted"} or array, default="random"
        Random rows, k-means centroids, rows found by pivoted Cholesky among a random sample, or
        the landmarks themselves, of shape (n_landmarks, n_features).
    kernel, gamma, degree, coef0, kernel_params, tol, pos_label
        As in :class:`ExactKernelMap`; the kernel cannot be precomputed.
    random_state : int, RandomState instance or None, default=None
        Seed for choosing the landmarks.
    verbose
        As in :class:`ExactKernelMap`.

    Attributes
    ----------
    n_components_ : int
        Number of features.
    pivots_ : array of shape (n_components, n_features)
        The landmarks in use.

    Notes
    -----
    The features come from a pivoted Cholesky factor of the landmarks' kernel matrix. Up to a
    rotation, they equal the features from scikit-learn's `Nystroem`. No N x N matrix is formed.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from pcsda import NystroemMap, PCSDA
    >>> from pcsda.datasets import make_class_specific
    >>> data = make_class_specific(500, random_state=0)
    >>> model = make_pipeline(NystroemMap(50, random_state=0), PCSDA(random_state=0))
    >>> model.fit(data.data, data.target)[:-1].transform(data.data).shape
    (500, 50)
    """

    def __init__(
        self,
        n_components: int = 1000,
        landmarks: str | ArrayLike = "random",
        *,
        kernel: str | Callable[..., float] = "rbf",
        gamma: str | float = "all",
        degree: float = 3,
        coef0: float = 1,
        kernel_params: dict[str, Any] | None = None,
        tol: float | None = None,
        pos_label: object = None,
        random_state: Seed = None,
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

    def fit(self, X: Any, y: ArrayLike | None = None) -> Self:
        """Choose the landmarks and factorise their kernel matrix.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,), optional
            Binary labels, for ``gamma="positive"`` only.

        Returns
        -------
        self : NystroemMap
        """
        validation.check_count("n_components", self.n_components, None)
        if self.tol is not None:
            validation.check_number("tol", self.tol)
        X = self._check(X, reset=True)
        self.kernel_ = self._settled(X, y, validation.KERNELS)
        rows = self._landmarks(X)
        self._start(self._matrix(rows, self.verbose), rows, self.tol, self.n_components)
        self._finish()
        return self

    def _landmarks(self, X: Floats) -> Floats:
        """Return the rows from which the pivots are chosen."""
        if not isinstance(self.landmarks, str):
            rows: Floats = check_array(self.landmarks, dtype=X.dtype, input_name="landmarks")
            if rows.shape[1] != X.shape[1]:
                raise ValueError(
                    f"landmarks have {rows.shape[1]} features but X has {X.shape[1]}; they must "
                    "be points in the same space"
                )
            return rows
        validation.check_option("landmarks", self.landmarks, ("random", "kmeans", "pivoted"))
        rng = random_source(self.random_state)
        count = self.n_components or len(X)
        if len(X) <= count:
            return X
        candidates = {"random": 1, "pivoted": PIVOT_CANDIDATES, "kmeans": KMEANS_CANDIDATES}
        wanted = min(len(X), count * candidates[self.landmarks])
        sample: Floats = X[rng.choice(len(X), wanted, replace=False)]
        if self.landmarks != "kmeans":
            return sample
        # Landmarks only need to be spread out: a few Lloyd steps suffice.
        count = count_distinct(sample, count)
        means = fit_kmeans(KMeans(count, n_init=1, max_iter=20, random_state=rng), sample)
        return np.asarray(means.cluster_centers_, dtype=X.dtype)


def _tolerance(tol: float | None) -> float:
    return KERNEL_TOLERANCE if tol is None else tol


def _sum_squares(X: Floats) -> float:
    with np.errstate(over="ignore"):
        return float(np.einsum("ij,ij->", X, X, dtype=np.float64))


def _panels(matrix: Array) -> Iterator[tuple[slice, Array]]:
    """Yield the column blocks of an upper triangular matrix, without their rows of zeros."""
    for start in range(0, matrix.shape[1], PANEL):
        columns = slice(start, start + PANEL)
        filled = np.flatnonzero(matrix[:, columns].any(axis=1))
        yield columns, matrix[: filled[-1] + 1, columns]
