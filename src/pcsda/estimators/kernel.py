"""CSDA and PCSDA in a kernel's feature space, solved exactly in dual form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Self

from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from ..core.csda import KernelCSDAFactor
from ..core.csda_solvers import TARGETS
from ..core.linalg import Array, Floats, Ints
from ..core.subspace import Factor
from ..kernels import Kernel
from ..validation import MatrixLike, Seed
from .callbacks import calls_back
from .dual import (
    check_kernel_rows,
    divide_features,
    fit_kernel,
    kernel_coordinates,
    kernel_factory,
    kernel_map,
    like_nothing,
)
from .naming import name_by_labels
from .parameters import is_contaminated
from .steps import PUBLISHED, PUBLISHED_CSDA, by_cholesky, refuse_unchecked
from .training import criterion_of
from .verifier import Verifier


class _OfKernel:
    """The fitted attributes and the projection of rows that all kernel estimators share."""

    kernel_: Kernel
    support_: Ints
    X_fit_: Floats | None
    dual_coef_: Array
    origin_: Array
    _sparse = False
    _coordinates = kernel_coordinates
    _map = kernel_map
    _unseen = like_nothing


class KernelPCSDA(_OfKernel, Verifier):
    """PCSDA in a kernel's feature space.

    The dual form is exact. It needs one Cholesky factorisation of the N x N kernel matrix and no
    eigendecomposition. Training takes about N^3/3 operations, or 2N^3/3 with leave-one-out, and
    memory for N^2 numbers. Prediction takes N kernel values per row. For larger data, use
    ``make_pipeline(NystroemMap(), PCSDA())``.

    Parameters
    ----------
    kernel : str or callable, default="rbf"
        "linear", "rbf", "laplacian", "polynomial", "sigmoid", "cosine" or "chi2", as in
        scikit-learn's `pairwise_kernels`; a function of two rows; or "precomputed". With
        "precomputed", X is the square kernel matrix in `fit`, and elsewhere the kernel values of
        new rows with the training rows.
    gamma : {"positive", "all", "scale"} or float, default="positive"
        Bandwidth. "positive" and "all" mean ``1/(2 s^2)``, where s is the mean pairwise distance
        between the positives (the paper's rule) or between all rows. "scale" is scikit-learn's
        rule.
    degree, coef0
        Further kernel parameters, as in scikit-learn.
    kernel_params : dict or None, default=None
        Further arguments of a function given as `kernel`.
    n_subclasses, n_components
        As in :class:`PCSDA`.
    subclasses : {"kmeans", "input", "samples"} or clusterer, default="kmeans"
        "kmeans" is k-means in feature space (kernel k-means), started from k-means in input space.
        "input" and clusterers divide the negatives in input space. "samples" makes each negative a
        subclass.
    balance
        As in :class:`PCSDA`.
    solver : {"auto", "cholesky", "eigen", "spectral", "lsqr"}, default="auto"
        "auto" means "cholesky", the dual form. The others apply the solvers of :class:`PCSDA` to
        exact kernel features.
    regularization : float or "auto", default="auto"
        Ridge, relative to the mean squared distance from the grand mean in feature space; above 0.
        With n positives, "auto" means 1/n, limited to between 0.1 and 0.3, but at least 2.5 / n^2.
        From 20 positives on, it is a tenth or ten times that value if the left-out scores of a
        sample are clearly better with it. With `contamination`, it is 10/n, but at least 0.2. For a
        linear kernel, it is the same as in :class:`PCSDA`. `regularization_` holds the value that
        was used.
    negatives, tails, covariance, shrinkage, calibrate, calibration_rows, contamination, priors, \
pos_label, random_state, verbose
        As in :class:`PCSDA`.

    Attributes
    ----------
    kernel_ : Kernel
        The kernel with its bandwidth.
    support_ : array of shape (n_support,)
        Numbers of the training rows that prediction needs.
    X_fit_ : array of shape (n_support, n_features) or None
        The training rows that prediction needs; None for a precomputed kernel.
    dual_coef_ : array of shape (n_support, n_components)
    origin_ : array of shape (n_components,)
        Projection of the positive mean.
    eigenvalues_, positive_count_, subclass_counts_, classes_, class_prior_, n_components_, \
partition_, loo_scores_, density_, calibration_, contamination_, contamination_interval_, \
responsibilities_
        As in :class:`PCSDA`.

    Examples
    --------
    >>> from pcsda import KernelPCSDA
    >>> from pcsda.datasets import make_class_specific
    >>> data = make_class_specific(500, random_state=0)
    >>> model = KernelPCSDA(n_subclasses=3, random_state=0).fit(data.data, data.target)
    >>> model.transform(data.data[:2]).shape
    (2, 3)
    """

    def __init__(
        self,
        kernel: str | Callable[..., float] = "rbf",
        gamma: str | float = "positive",
        degree: float = 3,
        coef0: float = 1,
        kernel_params: dict[str, Any] | None = None,
        n_subclasses: int | str = "auto",
        n_components: int | None = None,
        *,
        subclasses: str | BaseEstimator = "kmeans",
        balance: str = "pooled",
        solver: str = "auto",
        regularization: float | str = "auto",
        negatives: str = "blend",
        tails: str = "fitted",
        covariance: str = "leave-one-out",
        shrinkage: float | str = "auto",
        calibrate: bool = True,
        calibration_rows: int | None = 5000,
        contamination: float | str = 0.0,
        priors: str | Sequence[float] | None = "empirical",
        pos_label: object = None,
        random_state: Seed = None,
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
        self.contamination = contamination
        self.priors = priors
        self.pos_label = pos_label
        self.random_state = random_state
        self.verbose = verbose

    @classmethod
    def published(
        cls, n_subclasses: int | str = 1, n_components: int | None = None, **params: Any
    ) -> Self:
        """Make an estimator that follows the paper; see :meth:`PCSDA.published`.

        Parameters
        ----------
        n_subclasses, n_components
            As in the constructor.
        **params
            Further constructor parameters, which override the paper's settings.

        Returns
        -------
        KernelPCSDA

        Notes
        -----
        The ridge of 0.01 is our reading of the paper's "regularized version". Without a ridge, the
        problem has no solution, because the scatter in feature space is singular. A linear model
        from :meth:`PCSDA.published` needs no ridge if there are fewer features than samples.
        """
        given = {"n_subclasses": n_subclasses, "n_components": n_components}
        return cls(**(PUBLISHED | given | params))

    @calls_back
    def fit(
        self,
        X: MatrixLike,
        y: ArrayLike,
        *,
        subclass_labels: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        unchecked: ArrayLike | None = None,
    ) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or square kernel matrix
        y : array-like of shape (n_samples,)
            Two labels, or more if `pos_label` is set.
        subclass_labels, sample_weight, groups, unchecked
            As in :meth:`PCSDA.fit`.

        Returns
        -------
        self : KernelPCSDA
        """
        held = 1.5 if by_cholesky(self) else 8.0  # explicit features need scatter matrices
        if is_contaminated(self):
            held = 3.5  # the kernel matrix, the factor of most steps and that of one step
        data, labels = check_kernel_rows(
            self, X, y, sample_weight, subclass_labels, groups, unchecked
        )
        divide = partial(divide_features, self, labels=labels)
        fit_kernel(self, data, divide, kernel_factory(self, data.seed), held)
        name_by_labels(self, y, subclass_labels)
        return self


class KernelCSDA(_OfKernel, Verifier):
    """CSDA in a kernel's feature space, solved exactly in dual form.

    With N_p positives, N_n negatives and few axes, training takes N_p^3/3 + N_p^2 N_n operations
    and about twenty products of the kernel matrix with a few vectors. With all axes, it solves an
    eigenproblem of size N_n. For N rows, the solver "trace_ratio" takes N^3/3 operations and about
    twenty such products. The solvers that regress on targets use exact kernel features and their
    scatter matrices.

    Parameters
    ----------
    kernel, gamma, degree, coef0, kernel_params
        As in :class:`KernelPCSDA`.
    n_components, solver, reference
        As in :class:`CSDA`.
    regularization : float, default=0.01
        Ridge, relative to the mean squared distance from the grand mean in feature space; above 0.
    shrinkage, calibrate, priors, pos_label, random_state, verbose
        As in :class:`CSDA`.

    Attributes
    ----------
    kernel_, support_, X_fit_, dual_coef_, origin_
        As in :class:`KernelPCSDA`.
    eigenvalues_, positive_count_, subclass_counts_, classes_, class_prior_, n_components_, \
partition_, reference_, reference_step_, density_, calibration_
        As in :class:`CSDA`.

    Examples
    --------
    >>> from pcsda import KernelCSDA
    >>> from pcsda.datasets import make_class_specific
    >>> data = make_class_specific(200, random_state=0)
    >>> model = KernelCSDA(n_components=2, random_state=0).fit(data.data, data.target)
    >>> model.transform(data.data[:2]).shape
    (2, 2)
    """

    def __init__(
        self,
        kernel: str | Callable[..., float] = "rbf",
        gamma: str | float = "positive",
        degree: float = 3,
        coef0: float = 1,
        kernel_params: dict[str, Any] | None = None,
        n_components: int | str | None = "auto",
        *,
        solver: str = "auto",
        reference: str = "mean",
        regularization: float = 1e-2,
        shrinkage: float | str = "auto",
        calibrate: bool = True,
        priors: str | Sequence[float] | None = "empirical",
        pos_label: object = None,
        random_state: Seed = None,
        verbose: bool = False,
    ) -> None:
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.n_components = n_components
        self.solver = solver
        self.reference = reference
        self.regularization = regularization
        self.shrinkage = shrinkage
        self.calibrate = calibrate
        self.priors = priors
        self.pos_label = pos_label
        self.random_state = random_state
        self.verbose = verbose

    @classmethod
    def published(cls, n_components: int | None = None, **params: Any) -> Self:
        """Make an estimator that follows the paper: no shrinkage, no calibration.

        The ridge of 0.01 is our reading of "a regularized version" (see :meth:`PCSDA.published`).

        Parameters
        ----------
        n_components
            As in the constructor.
        **params
            Further constructor parameters, which override the paper's settings.

        Returns
        -------
        KernelCSDA
        """
        return cls(n_components=n_components, **(PUBLISHED_CSDA | params))

    @calls_back
    def fit(
        self,
        X: MatrixLike,
        y: ArrayLike,
        *,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        unchecked: ArrayLike | None = None,
    ) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or square kernel matrix
        y : array-like of shape (n_samples,)
            Two labels, or more if `pos_label` is set.
        sample_weight : array-like of shape (n_samples,), optional
            As in :meth:`PCSDA.fit`.
        groups, unchecked
            As in :meth:`CSDA.fit`.

        Returns
        -------
        self : KernelCSDA
        """
        refuse_unchecked(self, unchecked)
        data, _ = check_kernel_rows(self, X, y, sample_weight, groups=groups)

        def factorise(matrix: Array, weights: Array | None) -> Factor:
            criterion, definite = criterion_of(self, data.seed), self.kernel_.is_definite
            return KernelCSDAFactor(matrix, criterion, weights, definite)

        # Each fold needs a further matrix, and explicit features need scatter matrices.
        held = 8.0 if self.solver in TARGETS else 4.0
        fit_kernel(self, data, lambda rows, _: rows.groups, factorise, held)
        return self
