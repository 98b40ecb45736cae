"""CSDA and PCSDA in the feature space of a kernel, exact in dual form."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data

from .. import validation
from ..core.csda import CSDAFactor
from ..core.factor import factor_once
from ..core.fit import Fitted, HeldOut, fit
from ..core.gram import FeatureFactor, features_of, of_kernel
from ..core.linalg import Array
from ..core.spread import no_spread
from ..core.subspace import Factor
from ..folds import count_folds, fold_scores
from ..kernels import (
    BLOCK_BYTES,
    check_memory,
    check_square,
    settled_kernel,
    training_matrix,
)
from ..partition import (
    RESTARTS,
    count_distinct,
    given_labels,
    kernel_kmeans,
    kernel_start,
    make_groups,
    settle_count,
)
from ..progress import progress
from .verifier import Verifier, check_rank, keep_decision, leave_sample, rule_of, say

Factorise = Callable[[Array, Array | None], Factor]
Divide = Callable[[Any, Array, Any, Any, Any, int], NDArray[np.intp]]
# Kernels that fall to zero with distance, and values that count as zero beside one.
VANISHING = ("rbf", "laplacian", "chi2")
UNSEEN = 1e-6


def is_precomputed(model: Any) -> bool:
    """Whether X is a kernel matrix."""
    return isinstance(model.kernel, str) and model.kernel == "precomputed"


def fit_kernel(
    model: Any,
    X: Any,
    y: Any,
    subclass_labels: Any,
    sample_weight: Any,
    divide: Divide,
    factorise: Callable[[int], Factorise],
    n_matrices: float,
    groups: Any = None,
) -> Any:
    """Fit a kernel estimator, which says how to divide rows and how to factorise a matrix.

    `n_matrices` of N x N numbers are held at once.
    """
    validation.check_verifier(model)
    validation.refuse_dask(X, y)
    X, y = validate_data(model, X, y, dtype=[np.float64, np.float32])
    if is_precomputed(model):
        check_square(X)
    model.classes_, _, positive = validation.check_labels(y, model.pos_label)
    weights = validation.check_weights(sample_weight, positive)
    seed = check_random_state(model.random_state).randint(2**31 - 1)
    if subclass_labels is not None:
        given_labels(subclass_labels, positive)  # refuses what rows left out would hide
    together = validation.check_groups(groups, len(X))
    kept = np.arange(len(X)) if weights is None else np.flatnonzero(weights)
    together = None if together is None else together[kept]
    check_memory(len(kept), n_matrices)
    rows = _rows(model, X, kept, kept)
    if count_distinct(rows, 2) < 2:
        raise no_spread()
    model.kernel_ = settled_kernel(model, rows, positive[kept], seed)
    weight = None if weights is None else weights[kept]
    say(model, f"kernel matrix of {len(kept)} rows")
    matrix = training_matrix(model.kernel_, rows, model.verbose)
    labels = None if subclass_labels is None else np.asarray(subclass_labels)[kept]
    partition = divide(rows, matrix, positive[kept], labels, weight, seed)
    most = partition.max() if hasattr(model, "n_subclasses") else np.sum(partition > 0)
    check_rank(model, int(most))
    say(model, "factorising")
    make = factorise(seed)
    held_out = kernel_held_out(model, make, rows, partition, weight, seed, together)
    leave = leave_sample(model, partition, weight, seed, together)
    factor, rule = make(matrix, weight), rule_of(model)
    fitted = fit(factor, partition, rule, model.n_components, held_out, leave)
    del matrix
    used = np.flatnonzero(np.any(fitted.subspace.coefficients, axis=1))
    keep_kernel(model, fitted, None if is_precomputed(model) else X[kept[used]], used)
    model.support_ = kept[used]
    model.groups_ = np.full(len(X), -1, dtype=np.intp)
    model.groups_[kept] = partition
    left_out = fitted.left_out_of(len(kept))
    if left_out is not None:
        model.loo_scores_ = np.empty(len(X))
        model.loo_scores_[kept] = left_out
        rest = np.flatnonzero(model.groups_ < 0)
        if len(rest):
            values = model.kernel_(_rows(model, X, rest, kept), rows)
            model.loo_scores_[rest] = fitted.score(values)
    return model


def _rows(model: Any, X: Any, chosen: Any, columns: Any) -> Any:
    """Rows of X; of a precomputed kernel, their values with the rows `columns`."""
    return X[np.ix_(chosen, columns)] if is_precomputed(model) else X[chosen]


def kernel_held_out(
    model: Any,
    factorise: Factorise,
    X: Any,
    groups: NDArray[np.intp],
    weights: Array | None,
    seed: int,
    together: NDArray[np.intp] | None = None,
) -> HeldOut:
    """Scores of folds, for a model that cannot leave out rows one by one."""

    def held_out() -> tuple[Array, NDArray[np.bool_], Array | None]:
        if count_folds(groups == 0, together):
            say(model, "calibrating on folds")
        plain = replace(rule_of(model), calibrate=False)

        def learn(train: NDArray[np.intp], labels: NDArray[np.intp]) -> Any:
            rows = _rows(model, X, train, train)
            weight = None if weights is None else weights[train]
            factor = factorise(training_matrix(model.kernel_, rows, False), weight)
            part = fit(factor, labels, plain, model.n_components)

            def score(test: NDArray[np.intp]) -> Array:
                return part.score(model.kernel_(_rows(model, X, test, train), rows))

            return score

        return fold_scores(learn, groups, seed, together), groups == 0, weights

    return held_out


def kernel_factory(model: Any, seed: int) -> Factorise:
    """How KernelPCSDA factorises a kernel matrix, which is spent."""

    def factorise(matrix: Array, weights: Array | None) -> Factor:
        if is_dual(model):
            made = next(of_kernel(matrix, [model.regularization], weights))
            return replace(made, spend=True)
        features, pivots, triangle = features_of(matrix, weights, model.regularization)
        solver = "cholesky" if model.solver == "auto" else model.solver
        resample = np.random.default_rng(seed) if model.balance == "resampled" else None
        inner = factor_once(features, model.regularization, weights, solver, resample)
        return FeatureFactor(inner, pivots, triangle)

    return factorise


def keep_kernel(model: Any, fitted: Fitted, rows: Any, used: NDArray[np.intp]) -> None:
    """Store the fitted attributes of a kernel model: the one place that does.

    `rows` are the training rows that prediction needs, the `used` ones; None if precomputed.
    """
    keep_decision(model, fitted)
    model.X_fit_ = rows
    model.dual_coef_ = fitted.subspace.coefficients[used]
    model.origin_ = fitted.subspace.origin


def kernel_coordinates(
    model: Any, X: Any, coefficients: Array, origin: Array
) -> NDArray[np.floating]:
    """Multiply kernel values of the rows with coefficients, in blocks of bounded memory.

    The coefficients may be those of many models that share kernel and training rows.
    """
    z = np.empty((len(X), len(origin)), dtype=X.dtype)
    step = max(64, BLOCK_BYTES // (8 * len(model.support_)))
    for start in progress(range(0, len(X), step), "kernel rows", enabled=model.verbose):
        rows = X[start : start + step]
        if is_precomputed(model):
            values = rows[:, model.support_].astype(np.float64, copy=False)
        else:
            values = model.kernel_(rows, model.X_fit_)
        z[start : start + step] = values @ coefficients - origin
    return z


def kernel_map(model: Any) -> tuple[Callable[..., Any], Array, Array]:
    """Kernel values of rows, with the matrix and the origin that project them."""
    if is_precomputed(model):
        support = model.support_
        return lambda rows: rows[..., support], model.dual_coef_, model.origin_
    return model.kernel_.against(model.X_fit_), model.dual_coef_, model.origin_


def like_nothing(model: Any, z: Array) -> NDArray[np.bool_]:
    """Which rows the kernel finds like no training row: all its values are about zero.

    Far away, kernels of a distance vanish, and all rows there have the same coordinates; these
    may look usual.
    """
    if model.kernel_.metric not in VANISHING:
        return np.zeros(len(z), dtype=bool)
    most = UNSEEN * np.abs(model.dual_coef_).sum(axis=0)
    blank: NDArray[np.bool_] = np.all(np.abs(z + model.origin_) <= most, axis=1)
    return blank


def is_dual(model: Any) -> bool:
    """Whether the dual form serves, which needs no explicit features."""
    return model.solver in ("auto", "cholesky") and model.balance == "pooled"


def divide_features(
    model: Any,
    X: Any,
    matrix: Array,
    positive: Any,
    labels: Any,
    weights: Any,
    seed: int,
) -> NDArray[np.intp]:
    """Groups of the rows as a kernel estimator asks for."""
    say(model, f"dividing {np.sum(~positive)} negatives into subclasses")
    in_features = isinstance(model.subclasses, str) and model.subclasses == "kmeans"
    known = labels is not None or in_features or model.subclasses == "samples"
    if is_precomputed(model) and not known:
        raise ValueError(
            "a precomputed kernel has no input space to cluster in; use subclasses='kmeans', "
            "'samples' or give subclass_labels"
        )
    groups, _ = make_groups(
        X,
        positive,
        n_subclasses=1 if is_precomputed(model) and in_features else model.n_subclasses,
        subclasses="kmeans" if model.subclasses == "input" else model.subclasses,
        subclass_labels=labels,
        weights=weights,
        random_state=seed,
    )
    if labels is None and in_features:
        _refine(model, groups, X, matrix, weights, seed)
    return groups


def _refine(
    model: Any, groups: NDArray[np.intp], X: Any, matrix: Array, weights: Any, seed: int
) -> None:
    """Move the groups of the negatives, in place, to k-means in feature space."""
    rows = np.flatnonzero(groups)
    weight = None if weights is None else weights[rows]
    starts = [groups[rows] - 1]
    if is_precomputed(model):
        count = settle_count(X[rows], model.n_subclasses)
        rng = check_random_state(seed)
        starts = [kernel_start(matrix, rows, count, rng) for _ in range(RESTARTS)]
    found = [kernel_kmeans(matrix, rows, start, weight) for start in starts]
    labels = min(found, key=lambda pair: pair[1])[0]
    groups[rows] = np.unique(labels, return_inverse=True)[1] + 1


class KernelPCSDA(Verifier):
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
calibration_rows, priors, pos_label, random_state, verbose
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
        calibration_rows: int | None = 5000,
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
        self.calibration_rows = calibration_rows
        self.priors = priors
        self.pos_label = pos_label
        self.random_state = random_state
        self.verbose = verbose

    _sparse = False

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = is_precomputed(self)
        return tags

    def _coordinates(self, X: Any) -> NDArray[np.floating]:
        return kernel_coordinates(self, X, self.dual_coef_, self.origin_)

    def _map(self) -> tuple[Callable[..., Any], Array, Array]:
        return kernel_map(self)

    def _unseen(self, z: Array) -> NDArray[np.bool_]:
        return like_nothing(self, z)

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

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        subclass_labels: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Fit the model; the parameters are those of :meth:`PCSDA.fit`."""

        def factorise(seed: int) -> Factorise:
            return kernel_factory(self, seed)

        def divide(*rows: Any) -> NDArray[np.intp]:
            return divide_features(self, *rows)

        held = 1.5 if is_dual(self) else 8.0  # explicit features bring scatter matrices
        fitted: Self = fit_kernel(
            self, X, y, subclass_labels, sample_weight, divide, factorise, held, groups
        )
        return fitted


class KernelCSDA(Verifier):
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

    _sparse = False

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = is_precomputed(self)
        return tags

    def _coordinates(self, X: Any) -> NDArray[np.floating]:
        return kernel_coordinates(self, X, self.dual_coef_, self.origin_)

    def _map(self) -> tuple[Callable[..., Any], Array, Array]:
        return kernel_map(self)

    def _unseen(self, z: Array) -> NDArray[np.bool_]:
        return like_nothing(self, z)

    @classmethod
    def published(cls, n_components: int | None = None, **params: Any) -> Self:
        """Make an estimator with the paper's rule: no shrinkage, no calibration.

        The ridge of 0.01 is our reading of "a regularized version", see :meth:`PCSDA.published`.
        """
        rule: dict[str, Any] = {"shrinkage": 0, "calibrate": False}
        return cls(n_components=n_components, **(rule | params))

    def fit(self, X: Any, y: Any, *, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the model; the parameters are those of :meth:`PCSDA.fit`."""

        def factorise(seed: int) -> Factorise:
            def factor(matrix: Array, weights: Array | None) -> Factor:
                features, pivots, triangle = features_of(matrix, weights, self.regularization)
                rng = np.random.default_rng(seed)
                inner = CSDAFactor(features, self.regularization, weights, self.solver, rng)
                return FeatureFactor(inner, pivots, triangle)

            return factor

        def divide(_: Any, __: Any, positive: Any, *___: Any) -> NDArray[np.intp]:
            return (~positive).astype(np.intp)

        fitted: Self = fit_kernel(self, X, y, None, sample_weight, divide, factorise, 8.0)
        return fitted
