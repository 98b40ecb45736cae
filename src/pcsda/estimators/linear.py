"""CSDA and PCSDA as scikit-learn estimators: they check, wire the core and keep the result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.utils import assert_all_finite, check_random_state
from sklearn.utils.metaestimators import available_if

from .. import validation
from ..core.csda import CSDAFactor
from ..core.factor import factor_once
from ..core.fit import HeldOut, fit
from ..core.linalg import TooFewRowsError, narrow_fit
from ..core.scatter import GroupScatter
from ..core.spread import OverflowingSquares, no_spread
from ..core.subspace import Factor, is_far, project_rows
from ..folds import count_folds, fold_scores
from ..partition import count_distinct, given_labels, make_groups, merge_equal, nearest
from .stream import StreamMixin, check_rows, keep_linear
from .verifier import Verifier, check_rank, leave_sample, rule_of, say, variances_of

Array = NDArray[np.float64]
Factorise = Callable[[Any, Any], Factor]


def linear_coordinates(model: Any, X: Any) -> NDArray[np.floating]:
    """Project checked rows with the fitted axes, in the type of X."""
    components, mean = model.components_, model.positive_mean_
    if sparse.issparse(X):
        z: NDArray[np.floating] = X @ components.astype(X.dtype, copy=False).T
        z -= (components @ mean).astype(X.dtype, copy=False)
        return z
    far = is_far(components, mean, variances_of(model), X.dtype)
    return project_rows(X, components, np.zeros(len(components)), mean, far=far)


def linear_map(model: Any) -> tuple[Callable[..., Any], Array, Array]:
    """Rows about the positive mean, with the matrix and the origin that project them."""
    mean = model.positive_mean_.astype(np.float64)
    matrix = np.ascontiguousarray(model.components_.T, dtype=np.float64)
    return lambda rows: rows - mean, matrix, np.zeros(model.n_components_)


def fit_rows(
    model: Any,
    factorise: Factorise,
    X: Any,
    groups: Any,
    weights: Any,
    seed: int,
    together: NDArray[np.intp] | None = None,
) -> Any:
    """Fit a linear model on rows with known groups; rows of weight zero take no part.

    `factorise(rows, weights)` makes the factor that solves the groups. Rows of one number in
    `together` are left out together.
    """
    kept = np.ones(len(groups), dtype=bool) if weights is None else weights > 0
    rows, labels, weight = X, groups, weights
    if not kept.all():
        labels = np.unique(groups[kept], return_inverse=True)[1]
        rows, weight = X[kept], weights[kept]
    if count_distinct(rows, 2) < 2:
        raise no_spread()
    most = labels.max() if hasattr(model, "n_subclasses") else int(np.sum(labels > 0))
    check_rank(model, min(int(most), X.shape[1]))
    say(model, f"learning from {len(labels)} rows in {labels.max() + 1} groups")
    with narrow_fit(X.shape[1]):
        try:
            blocks = None if together is None else together[kept]
            held_out = held_out_scores(model, factorise, rows, labels, weight, seed, blocks)
            factor = factorise(rows, weight)
            leave = leave_sample(model, labels, weight, seed, blocks)
            fitted = fit(factor, labels, rule_of(model), model.n_components, held_out, leave)
        except OverflowingSquares:
            # says so where it is NaN or infinity
            assert_all_finite(X, estimator_name=type(model).__name__, input_name="X")
            raise
    keep_linear(model, fitted, X.dtype)
    model.groups_ = np.full(len(groups), -1, dtype=np.intp)
    model.groups_[kept] = labels
    left_out = fitted.left_out_of(len(labels))
    if left_out is not None:
        model.loo_scores_ = np.empty(len(groups))
        model.loo_scores_[kept] = left_out
        if not kept.all():
            model.loo_scores_[~kept] = fitted.score(X[~kept])
    return model


def held_out_scores(
    model: Any,
    factorise: Factorise,
    rows: Any,
    groups: Any,
    weights: Any,
    seed: int,
    together: NDArray[np.intp] | None = None,
) -> HeldOut:
    """Scores of folds, for a model that cannot leave out rows one by one."""

    def held_out() -> tuple[Array, NDArray[np.bool_], Array | None]:
        if count_folds(groups == 0, together):
            say(model, "calibrating on folds")
        plain = replace(rule_of(model), calibrate=False)

        def learn(train: NDArray[np.intp], labels: NDArray[np.intp]) -> Any:
            weight = None if weights is None else weights[train]
            part = fit(factorise(rows[train], weight), labels, plain, model.n_components)
            return lambda test: part.score(rows[test])

        return fold_scores(learn, groups, seed, together), groups == 0, weights

    return held_out


def pcsda_factory(model: Any, seed: int, *, together: bool = False) -> Factorise:
    """How PCSDA factorises rows, which may leave `together`."""

    def factorise(rows: Any, weights: Array | None) -> Factor:
        solver = model.solver
        if solver == "auto":
            solver = "lsqr" if sparse.issparse(rows) else "cholesky"
        resample = np.random.default_rng(seed) if model.balance == "resampled" else None
        return factor_once(rows, model.regularization, weights, solver, resample, together=together)

    return factorise


def divide(
    model: Any, X: Any, positive: Any, subclass_labels: Any, weights: Any, seed: int
) -> tuple[NDArray[np.intp], NDArray[Any]]:
    """Groups of the rows as a linear estimator asks for, and the names of the subclasses."""
    say(model, f"dividing {np.sum(~positive)} negatives into subclasses")
    counted: Any = slice(None)
    if subclass_labels is None and weights is not None and not weights.all():
        counted = np.flatnonzero(weights)  # rows of weight zero do not shape subclasses
        weights = weights[counted]
    groups = np.zeros(len(positive), dtype=np.intp)
    groups[counted], names = make_groups(
        X[counted],
        positive[counted],
        n_subclasses=model.n_subclasses,
        subclasses=model.subclasses,
        subclass_labels=subclass_labels,
        weights=weights,
        random_state=seed,
    )
    return groups, names


class PCSDA(StreamMixin, Verifier):
    """Probabilistic class-specific discriminant analysis.

    Learns a subspace in which one class stands apart from a mixed crowd whose hidden subclasses are
    taken into account, and a calibrated log-likelihood ratio in it.

    Parameters
    ----------
    n_subclasses : int or "auto", default="auto"
        Number K of subclasses of the negatives for k-means. "auto" is about one for 50 negatives,
        between 1 and 20. A number above that of different negatives is an error.
    n_components : int or None, default=None
        Dimension d of the subspace, at most ``min(n_subclasses, n_features, rank)``, which is what
        None stands for.
    subclasses : {"kmeans", "samples"} or clusterer, default="kmeans"
        How negatives are divided: k-means, one subclass for each sample, or any scikit-learn
        clusterer.
    balance : {"pooled", "resampled"}, default="pooled"
        The paper's two ways with subclasses of unequal size: pool their scatter, or draw as many
        Gaussian samples for each. Leave-one-out is not defined for draws; resubstitution is used.
    solver : {"auto", "cholesky", "eigen", "spectral", "lsqr"}, default="auto"
        "cholesky" is exact and fastest, "eigen" the literal generalised eigenproblem, "spectral"
        the paper's spectral regression, "lsqr" its iterative form that never makes sparse data
        dense (with resubstituted covariances). "auto" takes "lsqr" for sparse X, else "cholesky".
    regularization : float, default=0.1
        Ridge on the denominator, relative to the mean squared distance from the grand mean.
    negatives : {"blend", "mixture", "marginal"}, default="blend"
        How the negatives are modelled in the subspace: a "mixture" has a density at each subclass
        mean, the published "marginal" is one Gaussian about the positive mean. A "blend" adds the
        log ratio of the mixture and that of all negatives as one cloud along Fisher's axis of the
        subspace, each with the weight that left-out samples give it; where covariances are
        resubstituted nothing tells these weights, and a "blend" is a "mixture".
    tails : {"fitted", "gaussian"}, default="fitted"
        Tails of both classes: those of Student's t with as many degrees of freedom as left-out
        negatives ask for, or a Gaussian's, as published. A "marginal" density is Gaussian, and so
        are densities with resubstituted covariances.
    covariance : {"leave-one-out", "resubstitution"}, default="leave-one-out"
        Whether covariances come from projections of samples that are left out, in closed form, or
        from the training projections as published.
    shrinkage : float or "auto", default="auto"
        Prior strength, in samples, with which the covariances are shrunk toward the pooled within
        covariance; "auto" is d/2, 0 is published.
    calibrate : bool, default=True
        Whether scores are calibrated, on left-out scores or, where there are none, on scores of 5
        folds: by slope and offset or, in a blend, by the weights of its two ratios and an offset.
        With one positive or one negative there is nothing to calibrate on.
    calibration_rows : int or None, default=5000
        Largest number of rows of each class that are left out and scored, drawn with a seed. Means,
        scatter and axes come from all rows; what left-out rows determine (covariances, tails,
        calibration) is a few dozen numbers, for which a sample will do. None leaves out all rows.
    priors : {"empirical", "equal"} or pair of floats, default="empirical"
        Prior probabilities in the order of `classes_`, used by the decision and the probabilities
        but not by the log-likelihood ratio.
    pos_label : label or None, default=None
        Class of interest; None stands for ``classes_[1]``.
    random_state : int, RandomState instance or None, default=None
        Seeds k-means, the draws of ``balance="resampled"`` and the folds of the calibration.
    verbose : bool, default=False
        Print the stages of fitting.

    Attributes
    ----------
    components_ : array of shape (n_components, n_features)
        Directions, scaled so that the ridged within-class scatter becomes the identity.
    eigenvalues_ : array of shape (n_components,)
        Value of the criterion on each direction.
    positive_mean_ : array of shape (n_features,)
    subclass_means_ : array of shape (n_subclasses, n_features)
    subclass_counts_ : array of shape (n_subclasses,)
        Number of samples, or total weight, of each subclass.
    positive_count_ : float
        Number of samples, or total weight, of the class of interest.
    classes_ : array of shape (2,)
    class_prior_ : array of shape (2,)
        In the order of `classes_`.
    n_components_ : int
    groups_ : array of shape (n_samples,)
        Group of each training row: 0 positive, 1..K subclass, -1 for a row of weight zero.
    loo_scores_ : array of shape (n_samples,)
        Left-out log-likelihood ratios of the training rows, when computed; NaN outside the sample
        of `calibration_rows`.
    density_ : Density
        The two densities in the subspace.
    calibration_ : Calibration
        Slope and offset from their log ratio to the log-likelihood ratio.
    scatter_ : GroupScatter
        Merged statistics, after `partial_fit` only.

    Notes
    -----
    Deviations from the paper, all of which :meth:`published` undoes: left-out covariances, the
    mixture density, shrinkage and calibration. The ridge is on the denominator of the criterion.

    Many float32 rows are multiplied in float32. Log-likelihood ratios then differ by less than
    5e-4, and angles of the subspace by less than 1e-4, from those of the same numbers in float64;
    where they would differ by more, because features depend on each other or have extreme scales,
    the products are float64.

    References
    ----------
    A. Iosifidis, Probabilistic Class-Specific Discriminant Analysis.

    Examples
    --------
    >>> from pcsda import PCSDA
    >>> from pcsda.datasets import make_class_specific
    >>> data = make_class_specific(500, random_state=0)
    >>> model = PCSDA(n_subclasses=6, random_state=0).fit(data.data, data.target)
    >>> model.transform(data.data).shape
    (500, 6)
    """

    def __init__(
        self,
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

    @classmethod
    def published(
        cls, n_subclasses: int | str = 1, n_components: int | None = None, **params: Any
    ) -> Self:
        """Make an estimator with the paper's rule: eq. (classifier).

        Marginal density of the negatives, resubstituted covariances without shrinkage, no
        calibration. Any parameter may be given to change that.

        Notes
        -----
        The criterion has a ridge of 0.01. The paper solves "a regularized version" of a singular
        problem and states neither its form nor its size: a ridge on the denominator, relative to
        the mean squared distance from the grand mean, is our reading. ``regularization=0`` gives
        the paper's literal problem, which must not be singular then.
        """
        rule: dict[str, Any] = {
            "negatives": "marginal",
            "tails": "gaussian",
            "regularization": 0.01,
            "covariance": "resubstitution",
            "shrinkage": 0,
            "calibrate": False,
        }
        return cls(n_subclasses, n_components, **(rule | params))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self.solver in ("auto", "lsqr") and self.balance == "pooled"
        return tags

    def fit(
        self,
        X: Any,
        y: ArrayLike,
        *,
        subclass_labels: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            Binary labels.
        subclass_labels : array-like of shape (n_samples,), optional
            Subclass of each negative, for instance the original multi-class labels; entries of
            positive rows are ignored. Without it negatives are clustered.
        sample_weight : array-like of shape (n_samples,), optional
            Weights, at least 0; whole weights count as repetitions.
        groups : array-like of shape (n_samples,), optional
            Rows of one group, such as the frames of one recording, are left out together: while its
            twins stay, a left-out row is no new sample to the model.
        """
        validation.check_verifier(self)
        # Where nothing else looks at tall X first, its statistics tell of NaN and infinity.
        told = (
            subclass_labels is not None
            and sample_weight is None
            and isinstance(X, np.ndarray)
            and len(X) > X[:1].size
        )
        X, y = check_rows(self, X, y, finite=not told)
        if self.solver not in ("auto", "lsqr"):
            validation.refuse_sparse(X, f"solver={self.solver!r}", "use solver='lsqr'")
        if self.balance == "resampled":
            validation.refuse_sparse(X, "balance='resampled'", "use balance='pooled'")
        self.classes_, _, positive = validation.check_labels(y, self.pos_label)
        weights = validation.check_weights(sample_weight, positive)
        seed = check_random_state(self.random_state).randint(2**31 - 1)
        self._forget_stream()
        together = validation.check_groups(groups, len(positive))
        partition = divide(self, X, positive, subclass_labels, weights, seed)[0]
        factorise = pcsda_factory(self, seed, together=together is not None)
        fitted: Self = fit_rows(self, factorise, X, partition, weights, seed, together)
        return fitted

    def _coordinates(self, X: Any) -> NDArray[np.floating]:
        return linear_coordinates(self, X)

    def _map(self) -> tuple[Callable[..., Any], Array, Array]:
        return linear_map(self)

    # Different negatives of a stream, with their weights, that are too few for k-means.
    _waiting: tuple[NDArray[np.floating], NDArray[np.float64]]

    def _streams(self) -> bool:
        if self.balance == "resampled":
            raise AttributeError(
                "partial_fit does not go with balance='resampled', which draws from each subclass "
                "as a whole; use balance='pooled'"
            )
        return True

    @available_if(_streams)
    def partial_fit(
        self,
        X: Any,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        subclass_labels: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Merge a batch into the statistics and refit from them.

        With `subclass_labels` the result is that of `fit` on all rows together with resubstituted
        covariances. Without, the subclasses are the k-means centroids of the first batch that has
        negatives, which settles their number if that is "auto", and later negatives join the
        nearest. Covariances are resubstituted and scores are not calibrated; :meth:`recalibrate`
        does so on rows held back.

        Batches are only collected while they make no model: one class has not come, all rows are
        equal, the positives are too few for their covariance, or there are fewer axes than
        `n_components`. `predict` and its like raise NotFittedError then, which says what is
        missing. Without shrinkage a model may be lost again when further axes come before enough
        positives do; a warning tells of it. With fewer different negatives than `n_subclasses`,
        k-means waits for more: these few rows are kept until it runs, and no row is kept later.

        Parameters
        ----------
        X, y, subclass_labels, sample_weight
            A batch, as in `fit`.
        classes : array-like of shape (2,), optional
            Both labels; needed in the first call unless the batch has both.

        Raises
        ------
        ValueError
            If the batch cannot be used (NaN, another width, unknown labels), if `n_components`
            is beyond any batch, or after `fit`, which keeps no statistics that a batch could be
            merged into: begin with ``sklearn.base.clone(model)``, or call `fit` on all rows
            together. What was collected and the model stay as they were.
        """
        X, positive, weights = self._start_stream(X, y, classes, sample_weight)
        dtype = X.dtype
        with self._all_or_nothing():
            self._settle_labelled(subclass_labels is not None, positive)
            if subclass_labels is None and not self._subclasses:
                X, positive, weights = self._until_enough(X, positive, weights)
            groups = self._stream_groups(X, positive, subclass_labels, weights)
            self._merge(X, groups, weights, len(self._subclasses) + 1)
            self._refit(dtype)
        return self

    def _most_axes(self) -> int:
        bound = self.n_features_in_
        if hasattr(self, "_waiting"):
            bound = min(bound, self._wanted)
        elif self._subclasses and not self._labelled:
            bound = min(bound, len(self._subclasses))
        return bound  # with labels, every batch may bring a further subclass

    @property
    def _wanted(self) -> int:
        """How many different negatives it takes to divide them."""
        clusters = isinstance(self.subclasses, str) and self.subclasses == "kmeans"
        return int(self.n_subclasses) if clusters and self.n_subclasses != "auto" else 1

    def _require_classes(self) -> None:
        if hasattr(self, "_waiting"):
            raise TooFewRowsError(
                f"n_subclasses={self.n_subclasses} needs as many different negatives, and "
                f"{len(self._waiting[0])} came"
            )
        super()._require_classes()

    def _settle_labelled(self, given: bool, positive: NDArray[np.bool_]) -> None:
        """Hold all batches that have negatives to the way of the first of them."""
        if not hasattr(self, "_subclasses"):
            self._subclasses: list[Any] = []
        if positive.all():
            return
        if given != getattr(self, "_labelled", given):
            raise ValueError(
                "subclass_labels must be given in every call of partial_fit or in none of them"
            )
        self._labelled = given

    def _until_enough(
        self, X: Any, positive: NDArray[np.bool_], weights: NDArray[np.float64] | None
    ) -> tuple[Any, NDArray[np.bool_], NDArray[np.float64] | None]:
        """Put the negatives that wait before a batch; with too few to divide, all go on waiting.

        Those that wait are different from each other, so they stay fewer than `n_subclasses`.
        """
        weight = np.ones(len(X)) if weights is None else weights
        if hasattr(self, "_waiting"):
            rows, mass = self._waiting
            X, weight = np.vstack([rows, X]), np.append(mass, weight)
            positive = np.append(np.zeros(len(rows), dtype=bool), positive)
            del self._waiting
        counted = ~positive & (weight > 0)
        if counted.any() and count_distinct(X[counted], self._wanted) < self._wanted:
            self._waiting = merge_equal(X[counted], weight[counted])
            weight = np.where(positive, weight, 0.0)  # they are not part of the statistics yet
        return X, positive, None if np.all(weight == 1) else weight

    def _stream_groups(
        self, X: Any, positive: Any, subclass_labels: Any, weights: Any
    ) -> NDArray[np.intp]:
        """Groups of a batch: known labels keep their number, new ones get the next."""
        groups = np.zeros(len(positive), dtype=np.intp)
        counted = ~positive if weights is None else ~positive & (weights > 0)
        if subclass_labels is not None and not positive.all():
            labels = given_labels(subclass_labels, positive)[counted[~positive]].tolist()
            known = dict.fromkeys([*self._subclasses, *labels])
            self._subclasses = list(known)
            number = {label: index + 1 for index, label in enumerate(known)}
            groups[counted] = [number[label] for label in labels]
        elif not counted.any():
            return groups
        elif self._subclasses:
            centroids = np.asarray(self._subclasses, dtype=np.float64)
            groups[counted] = 1 + nearest(X[counted], centroids)
        else:
            seed = check_random_state(self.random_state).randint(2**31 - 1)
            groups, names = divide(self, X, positive, None, weights, seed)
            first = GroupScatter.from_samples(X, groups, len(names) + 1, weights)
            self._subclasses = list(first.means[1:].astype(X.dtype))
        return groups


class CSDA(StreamMixin, Verifier):
    """Class-specific discriminant analysis, as a probabilistic classifier.

    The criterion of PCSDA with every negative as a subclass of its own: it spreads all negatives
    about the positive mean and keeps the positives together. The density of the negatives is one
    Gaussian about the positive mean; covariances are resubstituted and scores are calibrated on
    five folds.

    Parameters
    ----------
    n_components : int or None, default=None
        Dimension of the subspace, at most ``min(n_negatives, n_features, rank)``, which is what
        None stands for.
    solver : {"auto", "eigen", "labels", "lowrank", "trace_ratio"}, default="auto"
        "eigen" is the literal generalised eigenproblem and what "auto" takes, "lowrank" the
        low-rank regression form with the same subspace, "labels" the fast approximation by targets
        known from the labels, "trace_ratio" maximises the trace ratio itself over orthonormal
        directions.
    regularization : float, default=0.01
        Ridge on the denominator, relative to the mean squared distance from the grand mean.
    shrinkage : float or "auto", default="auto"
        Prior strength, in samples, with which the covariance of the positives is shrunk toward its
        ridged form; "auto" is d/2, 0 is published.
    calibrate, priors, pos_label, random_state, verbose
        As in :class:`PCSDA`; `random_state` seeds the folds and the targets of "labels".

    Attributes
    ----------
    components_, eigenvalues_, positive_mean_, positive_count_, classes_, class_prior_,
    n_components_, density_, calibration_, scatter_
        As in :class:`PCSDA`.
    subclass_means_, subclass_counts_
        Mean and number of all negatives, as one row.
    groups_ : array of shape (n_samples,)
        0 positive, 1 negative, -1 for a row of weight zero.
    """

    def __init__(
        self,
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
        self.n_components = n_components
        self.solver = solver
        self.regularization = regularization
        self.shrinkage = shrinkage
        self.calibrate = calibrate
        self.priors = priors
        self.pos_label = pos_label
        self.random_state = random_state
        self.verbose = verbose

    @classmethod
    def published(cls, n_components: int | None = None, **params: Any) -> Self:
        """Make an estimator with the paper's rule: no shrinkage, no calibration.

        The ridge of 0.01 is our reading of "a regularized version", see :meth:`PCSDA.published`;
        ``regularization=0`` gives the literal problem.
        """
        rule: dict[str, Any] = {"shrinkage": 0, "calibrate": False}
        return cls(n_components, **(rule | params))

    def fit(self, X: Any, y: ArrayLike, *, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the model; the parameters are those of :meth:`PCSDA.fit`."""
        validation.check_verifier(self)
        X, y = check_rows(self, X, y)
        validation.refuse_sparse(X, "CSDA", "use PCSDA with solver='lsqr'")
        self.classes_, _, positive = validation.check_labels(y, self.pos_label)
        weights = validation.check_weights(sample_weight, positive)
        seed = check_random_state(self.random_state).randint(2**31 - 1)
        self._forget_stream()

        def factorise(rows: Any, weights: Any) -> Factor:
            rng = np.random.default_rng(seed)
            return CSDAFactor(rows, self.regularization, weights, self.solver, rng)

        groups = (~positive).astype(np.intp)
        fitted: Self = fit_rows(self, factorise, X, groups, weights, seed)
        return fitted

    def _coordinates(self, X: Any) -> NDArray[np.floating]:
        return linear_coordinates(self, X)

    def _map(self) -> tuple[Callable[..., Any], Array, Array]:
        return linear_map(self)

    def _streams(self) -> bool:
        if self.solver == "labels":
            raise AttributeError(
                "partial_fit does not go with solver='labels', whose targets need all samples; use "
                "solver='eigen' or 'lowrank'"
            )
        return True

    @available_if(_streams)
    def partial_fit(
        self,
        X: Any,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Merge a batch into the statistics and refit from them, without calibration.

        The parameters and errors are those of :meth:`PCSDA.partial_fit`; solver "labels" is not
        available.
        """
        X, positive, weights = self._start_stream(X, y, classes, sample_weight)
        with self._all_or_nothing():
            self._merge(X, (~positive).astype(np.intp), weights, 2)
            self._refit(X.dtype)
        return self
