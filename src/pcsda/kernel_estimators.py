"""CSDA and PCSDA in the feature space of a kernel, exact in dual form."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data

from . import validation
from .calibration import Calibration, calibrate
from .core import dual
from .core import model as models
from .core.density import Density
from .core.linalg import (
    PIVOT_TOLERANCE,
    SingularMatrixError,
    cholesky_in_place,
    triangular_inverse,
)
from .kernels import (
    BANDWIDTHS,
    BLOCK_BYTES,
    KERNELS,
    SCALED_KERNELS,
    Kernel,
    bandwidth,
    check_memory,
    check_square,
    training_matrix,
)
from .maps import feature_factor
from .partition import (
    RESTARTS,
    given_labels,
    kernel_kmeans,
    kernel_start,
    make_groups,
    settle_count,
)
from .progress import progress
from .verifier import Verifier

Array = NDArray[np.float64]


# Kernels that fall to zero with distance, and values that count as zero beside one.
VANISHING = ("rbf", "laplacian", "chi2")
UNSEEN = 1e-6


@dataclass(frozen=True)
class KernelModel:
    """A fitted model on kernel values with its training rows."""

    counts: Array
    coefficients: Array
    origin: Array
    eigenvalues: Array
    rank: int
    density: Density
    left_out: Array | None = None

    def score(self, values: Array) -> Array:
        """Log-likelihood ratio of rows given by their kernel values, not calibrated."""
        return self.density.log_ratio(values @ self.coefficients - self.origin)


class _KernelBased(Verifier):
    """Fitting that the kernel estimators share; they differ in how a model is learned."""

    kernel: Any
    gamma: Any
    degree: float
    coef0: float
    kernel_params: dict[str, Any] | None
    regularization: float
    calibrate: bool
    random_state: Any

    _sparse = False

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self._is_precomputed
        return tags

    @property
    def _is_precomputed(self) -> bool:
        return isinstance(self.kernel, str) and self.kernel == "precomputed"

    def _check_parameters(self) -> None:
        validation.check_kernel(self.kernel, self.gamma, (*KERNELS, "precomputed"), BANDWIDTHS)
        validation.check_count("n_components", self.n_components, None)
        validation.check_number("regularization", self.regularization)
        validation.check_number("shrinkage", self.shrinkage, "auto")
        if not self.regularization > 0:
            raise ValueError(
                "regularization=0 leaves the scatter in feature space singular; it must be above 0"
            )

    @property
    def _n_matrices(self) -> float:
        """N x N matrices held at once while fitting: explicit features bring scatter matrices."""
        return 8.0

    @abstractmethod
    def _learn(self, matrix: Array, groups: Any, weights: Any, seed: int) -> KernelModel:
        """Fit on a kernel matrix, which may be spent, with known groups."""

    @abstractmethod
    def _divide(
        self, X: Any, matrix: Array, positive: Any, labels: Any, weights: Any, seed: int
    ) -> NDArray[np.intp]:
        """Groups of the rows."""

    def _fit(self, X: Any, y: Any, subclass_labels: Any, sample_weight: Any) -> Self:
        self._check_parameters()
        validation.refuse_dask(X, y)
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32])
        if self._is_precomputed:
            check_square(X)
        self.classes_, _, positive = validation.check_labels(y, self.pos_label)
        weights = validation.check_weights(sample_weight, positive)
        seed = check_random_state(self.random_state).randint(2**31 - 1)
        if subclass_labels is not None:
            given_labels(subclass_labels, positive)  # refuses what rows left out would hide
        kept = np.arange(len(X)) if weights is None else np.flatnonzero(weights)
        check_memory(len(kept), self._n_matrices)
        rows = self._rows(X, kept, kept)
        self.kernel_ = self._settled_kernel(rows, positive[kept], seed)
        weight = None if weights is None else weights[kept]
        self._say(f"kernel matrix of {len(kept)} rows")
        matrix = training_matrix(self.kernel_, rows, self.verbose)
        labels = None if subclass_labels is None else np.asarray(subclass_labels)[kept]
        groups = self._divide(rows, matrix, positive[kept], labels, weight, seed)
        self._say("factorising")
        learned = self._learn(matrix, groups, weight, seed)
        del matrix
        calibration = Calibration()
        if self.calibrate:
            calibration = self._calibrated(learned, rows, groups, weight, seed)
        return self._keep(learned, calibration, X, kept, groups)

    def _settled_kernel(self, X: Any, positive: Any, seed: int) -> Kernel:
        gamma = None
        if self.kernel in SCALED_KERNELS:
            gamma = bandwidth(self.gamma, X, positive, self.kernel, seed)
        params = dict(self.kernel_params or {})
        return Kernel(self.kernel, gamma, self.degree, self.coef0, params)

    def _rows(self, X: Any, chosen: Any, columns: Any) -> Any:
        """Rows of X; of a precomputed kernel, their values with the rows `columns`."""
        return X[np.ix_(chosen, columns)] if self._is_precomputed else X[chosen]

    def _calibrated(
        self, learned: KernelModel, X: Any, groups: Any, weights: Any, seed: int
    ) -> Calibration:
        if learned.density.offset is not None:
            return Calibration()

        def learn(train: Any, labels: Any, weight: Any) -> Any:
            rows = self._rows(X, train, train)
            matrix = training_matrix(self.kernel_, rows, False)
            return _Fold(self._learn(matrix, labels, weight, seed), self, X, train)

        scores = learned.left_out
        return calibrate(learn, np.arange(len(X)), groups, weights, seed, scores)

    def _keep(
        self, learned: KernelModel, calibration: Calibration, X: Any, kept: Any, groups: Any
    ) -> Self:
        """Store the fitted attributes: the one place that does."""
        self._keep_decision(
            learned.counts, learned.density, calibration, learned.eigenvalues, learned.rank
        )
        used = np.flatnonzero(np.any(learned.coefficients, axis=1))
        self.support_ = kept[used]
        # All rows are needed as a rule; then they are shared, not copied.
        rows = X if len(used) == len(X) else X[self.support_]
        self.X_fit_ = None if self._is_precomputed else rows
        self.dual_coef_ = learned.coefficients[used]
        self.origin_ = learned.origin
        self.groups_ = np.full(len(X), -1, dtype=np.intp)
        self.groups_[kept] = groups
        if learned.left_out is not None:
            self.loo_scores_ = np.empty(len(X))
            self.loo_scores_[kept] = calibration(learned.left_out)
            rest = np.flatnonzero(self.groups_ < 0)
            if len(rest):
                scores = self._log_ratio(self._coordinates(X[rest]))
                self.loo_scores_[rest] = calibration(scores)
        return self

    def _coordinates(self, X: Any) -> NDArray[np.floating]:
        return self._against(X, self.dual_coef_, self.origin_)

    def _map(self) -> tuple[Callable[..., Any], NDArray[np.float64], NDArray[np.float64]]:
        if self._is_precomputed:
            support = self.support_
            return lambda rows: rows[..., support], self.dual_coef_, self.origin_
        return self.kernel_.against(self.X_fit_), self.dual_coef_, self.origin_

    def _unseen(self, z: Array) -> NDArray[np.bool_]:
        """Which rows the kernel finds like no training row: all its values are about zero.

        Far away, kernels of a distance vanish, and all rows there have the same coordinates; these
        may look usual.
        """
        if self.kernel_.metric not in VANISHING:
            return super()._unseen(z)
        most = UNSEEN * np.abs(self.dual_coef_).sum(axis=0)
        blank: NDArray[np.bool_] = np.all(np.abs(z + self.origin_) <= most, axis=1)
        return blank

    def _against(self, X: Any, coefficients: Array, origin: Array) -> NDArray[np.floating]:
        """Multiply kernel values of the rows with coefficients, in blocks of bounded memory."""
        z = np.empty((len(X), len(origin)), dtype=X.dtype)
        step = max(64, BLOCK_BYTES // (8 * len(self.support_)))
        for start in progress(range(0, len(X), step), "kernel rows", enabled=self.verbose):
            rows = X[start : start + step]
            if self._is_precomputed:
                values = rows[:, self.support_].astype(np.float64, copy=False)
            else:
                values = self.kernel_(rows, self.X_fit_)
            z[start : start + step] = values @ coefficients - origin
        return z


@dataclass(frozen=True)
class _Fold:
    """A model of some training rows that scores others by their numbers."""

    learned: KernelModel
    owner: _KernelBased
    X: Any
    train: NDArray[np.intp]

    def score(self, test: NDArray[np.intp]) -> Array:
        rows = self.owner._rows(self.X, test, self.train)
        fitted = None if self.owner._is_precomputed else self.X[self.train]
        return self.learned.score(self.owner.kernel_(rows, fitted))


# Pivots of the exact features below this share of the largest diagonal entry are rounding.
FEATURE_TOLERANCE = 1e-12


def _on_features(learned: models.Model, pivots: Any, factor: Array, n_rows: int) -> KernelModel:
    """Express a model on exact features by kernel values with the training rows."""
    projection = learned.projection
    coefficients = np.zeros((n_rows, len(projection.components)))
    coefficients[pivots] = triangular_inverse(factor).T @ projection.components.T
    return KernelModel(
        learned.counts,
        coefficients,
        projection.components @ learned.means[0],
        projection.eigenvalues,
        projection.rank,
        learned.density,
        learned.left_out,
    )


def feature_ridge(matrix: Array, weights: Any, regularization: float) -> float:
    """Ridge in feature space, refusing kernel values that do not tell rows apart."""
    variance = dual.total_variance(matrix, weights)
    largest = float(np.abs(matrix.diagonal()).max())
    if variance < -1e-8 * largest:
        raise not_definite(regularization)
    if variance <= PIVOT_TOLERANCE * largest:
        raise ValueError(
            f"all rows of X are equal to the kernel: its values of up to {largest:.3g} do not "
            "vary; take the mean off X first, change the kernel's parameters or give rows that "
            "differ"
        )
    ridge = models.ridge_of(variance, regularization)
    if ridge <= PIVOT_TOLERANCE * len(matrix) * largest:
        raise _rounded(largest, variance, regularization)
    return ridge


def _rounded(largest: float, variance: float, regularization: float) -> ValueError:
    return ValueError(
        f"kernel values of up to {largest:.3g} with a variance of {variance:.3g} in feature space "
        f"are too coarse for regularization={regularization:g}; take the mean off X first, change "
        "the kernel's parameters or raise regularization"
    )


def _exact_features(
    matrix: Array, weights: Any, regularization: float
) -> tuple[Array, NDArray[np.intp], Array]:
    """Features of the rows of a kernel matrix, which is spent; their pivots and factor."""
    ridge = feature_ridge(matrix, weights, regularization)
    diagonal = matrix.diagonal().copy()
    features, pivots, factor, _ = feature_factor(matrix, FEATURE_TOLERANCE)
    # What was left out as rounding must not show beside the ridge.
    left = np.maximum(diagonal - np.einsum("ij,ij->i", features, features), 0.0)
    if left.sum() > 0.1 * ridge:
        raise _rounded(diagonal.max(), ridge / regularization, regularization)
    return features, pivots, factor


def not_definite(regularization: float) -> ValueError:
    """Make the error for a kernel matrix that has no Cholesky factor."""
    return ValueError(
        f"the kernel matrix is not positive definite at regularization={regularization:g}; use a "
        "positive definite kernel such as 'rbf', other kernel parameters, or a larger "
        "regularization"
    )


class KernelPCSDA(_KernelBased):
    """PCSDA in the feature space of a kernel.

    Exact in dual form: one Cholesky factor of the N x N kernel matrix, no eigendecomposition.
    Training takes about N^3/3 operations and N^2 numbers of memory, twice and as much with
    leave-one-out; prediction takes N kernel values a row. For more rows than that allows use
    ``make_pipeline(NystroemMap(), PCSDA())``.

    Parameters
    ----------
    kernel : str or callable, default="rbf"
        "linear", "rbf", "laplacian", "polynomial", "sigmoid", "cosine", "chi2" as in scikit-learn's
        `pairwise_kernels`, a function of two rows, or "precomputed": X is then the square kernel
        matrix at `fit` and kernel values with the training rows afterwards.
    gamma : {"positive", "all", "scale"} or float, default="positive"
        Bandwidth: ``1/(2 s^2)`` with s the mean pairwise distance of the positives, the paper's
        rule, or of all rows; scikit-learn's "scale"; or a number.
    n_subclasses, n_components, balance, negatives, tails, covariance, shrinkage, calibrate, \
priors, pos_label, random_state, verbose
        As in :class:`PCSDA`.
    subclasses : {"kmeans", "input", "samples"} or clusterer, default="kmeans"
        "kmeans" is k-means in feature space, that is kernel k-means, started from k-means in input
        space; "input" and clusterers divide the negatives in input space.
    solver : {"auto", "cholesky", "eigen", "spectral", "lsqr"}, default="auto"
        "cholesky" is the dual form and what "auto" takes; the others are the solvers of
        :class:`PCSDA` on exact features of the kernel.
    regularization : float, default=0.1
        Ridge, relative to the mean squared distance from the grand mean in feature space; above 0.
    degree, coef0, kernel_params
        Further parameters of the kernel, as in scikit-learn.

    Attributes
    ----------
    kernel_ : Kernel
        The kernel with its bandwidth settled.
    support_ : array of shape (n_support,)
        Training rows that prediction needs.
    X_fit_ : array of shape (n_support, n_features) or None
        Those rows; None for a precomputed kernel.
    dual_coef_ : array of shape (n_support, n_components)
    origin_ : array of shape (n_components,)
        What the positive mean is projected to.
    eigenvalues_, positive_count_, subclass_counts_, classes_, class_prior_, n_components_, \
groups_, loo_scores_, density_, calibration_
        As in :class:`PCSDA`.
    """

    def __init__(
        self,
        kernel: Any = "rbf",
        gamma: Any = "positive",
        degree: float = 3,
        coef0: float = 1,
        kernel_params: dict[str, Any] | None = None,
        n_subclasses: int | str = "auto",
        n_components: int | None = None,
        *,
        subclasses: Any = "kmeans",
        balance: str = "pooled",
        solver: str = "auto",
        regularization: float = 0.1,
        negatives: str = "blend",
        tails: str = "fitted",
        covariance: str = "leave-one-out",
        shrinkage: float | str = "auto",
        calibrate: bool = True,
        priors: Any = "empirical",
        pos_label: Any = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.n_subclasses = n_subclasses
        self.n_components = n_components
        self.subclasses = subclasses
        self.balance = balance
        self.solver = solver
        self.regularization = regularization
        self.negatives = negatives
        self.tails = tails
        self.covariance = covariance
        self.shrinkage = shrinkage
        self.calibrate = calibrate
        self.priors = priors
        self.pos_label = pos_label
        self.random_state = random_state
        self.verbose = verbose

    _bound = "min(n_subclasses, n_features, rank)); lower it or raise n_subclasses"

    @classmethod
    def published(
        cls, n_subclasses: int | str = 1, n_components: int | None = None, **params: Any
    ) -> Self:
        """Make an estimator with the paper's rule, see :meth:`PCSDA.published`.

        Notes
        -----
        The ridge of 0.01 is our reading of the paper's "regularized version". Its literal problem,
        ``regularization=0``, cannot be had here: the scatter in feature space is singular, and
        `regularization` must be above 0. :meth:`PCSDA.published` solves it on features that are
        fewer than the samples.
        """
        rule: dict[str, Any] = {
            "negatives": "marginal",
            "tails": "gaussian",
            "regularization": 0.01,
            "covariance": "resubstitution",
            "shrinkage": 0,
            "calibrate": False,
        }
        return cls(n_subclasses=n_subclasses, n_components=n_components, **(rule | params))

    def _check_parameters(self) -> None:
        super()._check_parameters()
        validation.check_pcsda(self, ("kmeans", "input", "samples"))

    @property
    def _is_dual(self) -> bool:
        return self.solver in ("auto", "cholesky") and self.balance == "pooled"

    @property
    def _n_matrices(self) -> float:
        return 1.5 if self._is_dual else super()._n_matrices

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        subclass_labels: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Fit the model; the parameters are those of :meth:`PCSDA.fit`."""
        return self._fit(X, y, subclass_labels, sample_weight)

    def _divide(
        self, X: Any, matrix: Array, positive: Any, labels: Any, weights: Any, seed: int
    ) -> NDArray[np.intp]:
        self._say(f"dividing {np.sum(~positive)} negatives into subclasses")
        in_features = isinstance(self.subclasses, str) and self.subclasses == "kmeans"
        if (
            self._is_precomputed
            and labels is None
            and not in_features
            and (self.subclasses != "samples")
        ):
            raise ValueError(
                "a precomputed kernel has no input space to cluster in; use subclasses='kmeans', "
                "'samples' or give subclass_labels"
            )
        groups, _ = make_groups(
            X,
            positive,
            n_subclasses=1 if self._is_precomputed and in_features else self.n_subclasses,
            subclasses="kmeans" if self.subclasses == "input" else self.subclasses,
            subclass_labels=labels,
            weights=weights,
            random_state=seed,
        )
        if labels is None and in_features:
            self._refine(groups, X, matrix, weights, seed)
        return groups

    def _refine(
        self, groups: NDArray[np.intp], X: Any, matrix: Array, weights: Any, seed: int
    ) -> None:
        """Move the groups of the negatives, in place, to k-means in feature space."""
        rows = np.flatnonzero(groups)
        weight = None if weights is None else weights[rows]
        starts = [groups[rows] - 1]
        if self._is_precomputed:
            count = settle_count(X[rows], self.n_subclasses)
            rng = check_random_state(seed)
            starts = [kernel_start(matrix, rows, count, rng) for _ in range(RESTARTS)]
        found = [kernel_kmeans(matrix, rows, start, weight) for start in starts]
        labels = min(found, key=lambda pair: pair[1])[0]
        groups[rows] = np.unique(labels, return_inverse=True)[1] + 1

    def _learn(self, matrix: Array, groups: Any, weights: Any, seed: int) -> KernelModel:
        leave_one_out = self.covariance == "leave-one-out"
        if not self._is_dual:
            features, pivots, factor = _exact_features(matrix, weights, self.regularization)
            learned = models.fit_pcsda(
                features,
                groups,
                weights=weights,
                solver="cholesky" if self.solver == "auto" else self.solver,
                regularization=self.regularization,
                n_components=self.n_components,
                rule=self._rule,
                leave_one_out=leave_one_out,
                resample=np.random.default_rng(seed) if self.balance == "resampled" else None,
            )
            return _on_features(learned, pivots, factor, len(groups))
        ridge = feature_ridge(matrix, weights, self.regularization)
        means = dual.move_origin(matrix, weights, ridge / self.regularization)
        if weights is not None:
            matrix *= np.sqrt(weights)[:, None]
            matrix *= np.sqrt(weights)
        try:
            factor = cholesky_in_place(matrix, ridge)
        except SingularMatrixError as error:
            raise not_definite(self.regularization) from error
        found = dual.fit(factor, groups, ridge, weights, self.n_components, leave_one_out)
        found = replace(found, origin=found.origin + means @ found.coefficients)
        return self._model_of(found, groups, weights)

    def _model_of(self, found: dual.DualSubspace, groups: Any, weights: Any) -> KernelModel:
        density, left_out = models.estimate(
            found.projected,
            np.eye(len(found.eigenvalues)),
            found.left,
            groups,
            weights,
            self._rule,
        )
        return KernelModel(
            found.projected.counts,
            found.coefficients,
            found.origin,
            found.eigenvalues,
            found.rank,
            density,
            left_out,
        )


class KernelCSDA(_KernelBased):
    """CSDA in the feature space of a kernel, on exact features of it.

    Parameters
    ----------
    kernel, gamma, degree, coef0, kernel_params
        As in :class:`KernelPCSDA`.
    n_components, solver, shrinkage, calibrate, priors, pos_label, random_state, verbose
        As in :class:`CSDA`.
    regularization : float, default=0.01
        Ridge, relative to the mean squared distance from the grand mean in feature space; above 0.

    Attributes
    ----------
    kernel_, support_, X_fit_, dual_coef_, origin_
        As in :class:`KernelPCSDA`.
    eigenvalues_, positive_count_, subclass_counts_, classes_, class_prior_, n_components_, \
groups_, density_, calibration_
        As in :class:`CSDA`.
    """

    def __init__(
        self,
        kernel: Any = "rbf",
        gamma: Any = "positive",
        degree: float = 3,
        coef0: float = 1,
        kernel_params: dict[str, Any] | None = None,
        n_components: int | None = None,
        *,
        solver: str = "auto",
        regularization: float = 1e-2,
        shrinkage: float | str = "auto",
        calibrate: bool = True,
        priors: Any = "empirical",
        pos_label: Any = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.n_components = n_components
        self.solver = solver
        self.regularization = regularization
        self.shrinkage = shrinkage
        self.calibrate = calibrate
        self.priors = priors
        self.pos_label = pos_label
        self.random_state = random_state
        self.verbose = verbose

    _bound = "min(n_negatives, n_features, rank)); lower it"

    @classmethod
    def published(cls, n_components: int | None = None, **params: Any) -> Self:
        """Make an estimator with the paper's rule: no shrinkage, no calibration.

        The ridge of 0.01 is our reading of "a regularized version", see :meth:`PCSDA.published`.
        """
        rule: dict[str, Any] = {"shrinkage": 0, "calibrate": False}
        return cls(n_components=n_components, **(rule | params))

    def _check_parameters(self) -> None:
        super()._check_parameters()
        validation.check_option("solver", self.solver, ("auto", *models.CSDA_SOLVERS))

    def fit(self, X: Any, y: Any, *, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the model; the parameters are those of :meth:`PCSDA.fit`."""
        return self._fit(X, y, None, sample_weight)

    def _divide(
        self, X: Any, matrix: Array, positive: Any, labels: Any, weights: Any, seed: int
    ) -> NDArray[np.intp]:
        return (~positive).astype(np.intp)

    def _learn(self, matrix: Array, groups: Any, weights: Any, seed: int) -> KernelModel:
        features, pivots, factor = _exact_features(matrix, weights, self.regularization)
        learned = models.fit_csda(
            features,
            groups,
            weights=weights,
            solver=self.solver,
            regularization=self.regularization,
            n_components=self.n_components,
            shrinkage=self._strength,
            rng=np.random.default_rng(seed),
        )
        return _on_features(learned, pivots, factor, len(groups))
