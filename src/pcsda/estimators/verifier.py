"""What every class-specific model can do once it is fitted: project, score, decide, rank."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
)
from sklearn.exceptions import NotFittedError
from sklearn.utils import assert_all_finite
from sklearn.utils.validation import check_is_fitted, validate_data

from .. import validation
from ..core.calibration import Calibration, fit_calibration
from ..core.density import Density, NoDensity, Rule
from ..core.explanation import Explanation, explain
from ..core.fit import Fitted
from ..core.linalg import TooFewRowsError, cache_rows
from ..core.loo import Leave, sample_rows

# Coordinates beyond this are scaled back: their squares would overflow, their sign would not.
FARTHEST = 1e100


class Verifier(
    ClassNamePrefixFeaturesOutMixin, ClassifierMixin, TransformerMixin, BaseEstimator, ABC
):
    """Prediction half of the estimators; a subclass fits and gives :meth:`_coordinates`.

    A fitted model has `density_`, `calibration_`, `classes_`, `class_prior_` and `n_components_`.
    """

    density_: Density
    calibration_: Calibration
    classes_: NDArray[Any]
    class_prior_: NDArray[np.float64]
    subclass_counts_: NDArray[np.float64]
    n_components_: int
    n_components: int | None
    shrinkage: float | str
    calibrate: bool
    priors: Any
    pos_label: Any
    verbose: bool
    # Sparse formats that prediction takes; False for none.
    _sparse: Any = ("csr", "csc")
    # What a stream without a model waits for; only there.
    _lacks: str

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "density_")

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    @abstractmethod
    def _coordinates(self, X: Any) -> NDArray[np.floating]:
        """Project checked rows; the type of the result is that of X."""

    @abstractmethod
    def _map(self) -> tuple[Callable[..., Any], NDArray[np.float64], NDArray[np.float64]]:
        """Features of rows, which checks nothing, with the matrix and origin that project them."""

    def _require_model(self) -> None:
        """Refuse to go on without a model; a stream says what it waits for."""
        if hasattr(self, "_lacks"):
            raise NotFittedError(
                f"This {type(self).__name__} instance is not fitted yet. The batches that "
                f"partial_fit has collected make no model: {self._lacks}"
            )
        check_is_fitted(self)

    def _project(self, X: Any) -> NDArray[np.floating]:
        self._require_model()
        validation.refuse_dask(X, predicts=True)
        # Whatever is not finite in X is not finite in z either, and z is much smaller to look at.
        X = validate_data(
            self,
            X,
            reset=False,
            accept_sparse=self._sparse,
            dtype=[np.float64, np.float32],
            ensure_all_finite=False,
        )
        with np.errstate(over="ignore", invalid="ignore"):  # what comes of it is looked at below
            z = self._coordinates(X)
        if not np.isfinite(z).all():
            assert_all_finite(
                X.data if hasattr(X, "tocsr") else X,
                estimator_name=type(self).__name__,
                input_name="X",
            )
            row = int(np.flatnonzero(~np.isfinite(z).all(axis=1))[0])
            raise ValueError(f"row {row} of X is too large to project; bring X to the fitted scale")
        return z

    def transform(self, X: Any) -> NDArray[np.floating]:
        """Project onto the discriminant subspace, relative to the positive mean.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        array of shape (n_samples, n_components)
        """
        return self._project(X)

    def log_likelihood_ratio(self, X: Any, trials: ArrayLike | None = None) -> NDArray[np.floating]:
        """Log ratio ln p(x given the class of interest) - ln p(x given the rest), without prior.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        trials : array-like of shape (n_samples,), optional
            Trial of each row. The samples of a trial come from one origin, and the result has one
            value for each trial, in the order of ``np.unique(trials)``.

        Returns
        -------
        array of shape (n_samples,) or (n_trials,)
        """
        z = self._project(X)
        sets = None if trials is None else sets_of(trials, len(z))
        return narrowed(scores_of(self, z, sets), z.dtype)

    def decision_function(self, X: Any) -> NDArray[np.floating]:
        """Log posterior ratio at the fitted prior: at least zero means ``classes_[1]``."""
        odds = self.log_likelihood_ratio(X) * sign_of(self)
        odds += np.log(self.class_prior_[1] / self.class_prior_[0])
        return odds

    def predict(self, X: Any) -> NDArray[Any]:
        """Label of each row, decided by the posterior ratio."""
        odds = self.decision_function(X)
        return self.classes_[(odds >= 0).astype(int)]

    def predict_proba(self, X: Any) -> NDArray[np.floating]:
        """Posterior probabilities, one column for each of ``classes_``."""
        odds = self.decision_function(X)
        both = np.column_stack([expit(-odds), expit(odds)])
        # The smallest number there is stands for less: its logarithm is finite.
        return np.maximum(both, np.finfo(both.dtype).tiny)

    def predict_log_proba(self, X: Any) -> NDArray[np.floating]:
        """Logarithm of the posterior probabilities; does not underflow where those do."""
        odds = self.decision_function(X)
        odds = np.column_stack([-odds, odds])
        # Near one the logarithm of the rounded probability; below it the exact tail.
        return np.where(odds > 0, np.log(np.maximum(expit(odds), 0.5)), -np.logaddexp(0, -odds))

    def score_samples(self, X: Any) -> NDArray[np.floating]:
        """Minus the distance to the positive mean in the subspace: the paper's ranking score."""
        z = self._project(X)
        # Squares could overflow where distances do not.
        far = np.maximum(np.abs(z).max(axis=1, keepdims=True), np.finfo(z.dtype).tiny)
        z = z / far
        with np.errstate(over="ignore"):
            distance = far[:, 0] * np.sqrt(np.einsum("ij,ij->i", z, z))
        return -np.minimum(distance, np.finfo(z.dtype).max)

    def rank(self, X: Any, by: str = "distance") -> NDArray[np.intp]:
        """Order rows by how well they fit the class of interest, best first.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        by : {"distance", "likelihood"}
            The paper's distance to the positive mean, or the log-likelihood ratio.

        Returns
        -------
        array of row indices
        """
        validation.check_option("by", by, ("distance", "likelihood"))
        score = self.score_samples(X) if by == "distance" else self.log_likelihood_ratio(X)
        return np.argsort(-score, kind="stable")

    def fast_scorer(self) -> Callable[[NDArray[np.floating]], Any]:
        """Return a plain function that scores rows without any check, for single requests.

        It takes a float array of one row, shape (n_features,), or of several, and gives the value
        of :meth:`log_likelihood_ratio` as float64, one number for one row. Everything that does
        not depend on the rows is multiplied out beforehand. Rows that are not finite, of another
        width or absurdly far away are the caller's business, and a later `fit` does not change it.

        Examples
        --------
        >>> from pcsda import PCSDA
        >>> from pcsda.datasets import make_class_specific
        >>> data = make_class_specific(2000, random_state=0)
        >>> model = PCSDA().fit(data.data, data.target)
        >>> score = model.fast_scorer()
        >>> bool(abs(score(data.data[0]) - model.log_likelihood_ratio(data.data[:1])[0]) < 1e-9)
        True
        """
        self._require_model()
        density, calibration = self.density_, self.calibration_
        features, matrix, origin = self._map()
        columns = density.products
        columns, shift = matrix @ columns, origin @ columns

        def score(rows: NDArray[np.floating]) -> Any:
            return calibration(density.views_of_products(features(rows) @ columns - shift))

        return score

    def explain(self, X: Any) -> Explanation:
        """Say why rows have their log-likelihood ratio.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        Explanation
            With arrays `score`, `contributions` of the axes (they and `offset` sum up to the
            score), `positive_distance`, the nearest `subclass` with `subclass_size` and
            `subclass_distance`, `typicality` and `outside`; printed, a sentence for each row.

        Notes
        -----
        All is judged in the subspace: what is unusual in a direction that no axis has does not
        show, in the score as little as here.

        Examples
        --------
        >>> from pcsda import PCSDA
        >>> from pcsda.datasets import make_class_specific
        >>> data = make_class_specific(500, random_state=0)
        >>> model = PCSDA(n_subclasses=6, random_state=0).fit(data.data, data.target)
        >>> why = model.explain(data.data[:3])
        >>> why.contributions.shape, why.outside.tolist()
        ((3, 6), [False, False, False])
        """
        z = _bounded(self._project(X))
        return explain(
            z,
            self.density_,
            self.calibration_,
            sizes=np.asarray(self.subclass_counts_, dtype=np.float64),
            unseen=self._unseen(z),
        )

    def _unseen(self, z: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Rows whose coordinates say nothing; a linear projection has none."""
        return np.zeros(len(z), dtype=bool)

    def recalibrate(self, X: Any, y: ArrayLike, *, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the calibration anew on rows that took no part in fitting.

        Slope and offset change, and with them the ratios; the order of rows stays.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            Labels among ``classes_``, both present.
        sample_weight : array-like of shape (n_samples,), optional
        """
        views = self.density_.views(_bounded(self._project(X)))
        _, index, positive = validation.check_labels(y, self.pos_label, self.classes_)
        if len(positive) != views.shape[1]:
            raise ValueError(f"X has {views.shape[1]} rows but y has {len(positive)} labels")
        if positive.all() or not positive.any():
            raise ValueError(
                f"recalibrate needs both classes, y has {'only' if positive.all() else 'no'} "
                f"{self.classes_.tolist()[index]!r}; hold back rows of both"
            )
        weights = validation.check_weights(sample_weight, positive)
        mean = self.calibration_.of_unit_slope()
        found = fit_calibration(mean(views)[None], positive, weights)
        self.calibration_ = mean.then(found.slope, found.offset)
        return self


def rule_of(model: Any) -> Rule:
    """How densities and calibration of an estimator are made of statistics."""
    return Rule(
        getattr(model, "negatives", "marginal"),
        None if model.shrinkage == "auto" else float(model.shrinkage),
        getattr(model, "tails", "gaussian"),
        getattr(model, "covariance", "resubstitution") == "leave-one-out",
        bool(model.calibrate),
    )


def leave_sample(
    model: Any,
    groups: NDArray[np.intp],
    weights: NDArray[np.float64] | None,
    seed: int,
    together: NDArray[np.intp] | None = None,
) -> Leave:
    """Rows that an estimator leaves out: all of them, or a sample of `calibration_rows`."""
    most = getattr(model, "calibration_rows", None) or len(groups)
    return sample_rows(groups, most, np.random.default_rng(seed), weights, together)


def say(model: Any, text: str) -> None:
    """Print a stage of fitting where the estimator is verbose."""
    if model.verbose:
        print(f"[{type(model).__name__}] {text}")


def keep_decision(model: Verifier, fitted: Fitted) -> None:
    """Store in an estimator what deciding needs; what may be stale of an earlier fit goes."""
    subspace = fitted.subspace
    check_rank(model, subspace.rank)
    for name in ("groups_", "loo_scores_"):
        model.__dict__.pop(name, None)
    counts = subspace.projected.counts
    shares = np.array([counts[1:].sum(), counts[0]]) / counts.sum()
    model.class_prior_ = validation.check_priors(model.priors, shares[:: sign_of(model)])
    model.eigenvalues_ = subspace.eigenvalues
    model.n_components_ = len(subspace.eigenvalues)
    model.positive_count_ = float(counts[0])
    model.subclass_counts_ = counts[1:]
    model.density_ = fitted.density
    model.calibration_ = fitted.calibration


def check_rank(model: Any, most: int) -> None:
    """Refuse more components than there can be."""
    if model.n_components is not None and model.n_components > most:
        bound = "min(n_negatives, n_features, rank)); lower it"
        if hasattr(model, "n_subclasses"):
            bound = "min(n_subclasses, n_features, rank)); lower it or raise n_subclasses"
        raise TooFewRowsError(
            f"n_components={model.n_components} must be at most {most} (= {bound}"
        )


def sign_of(model: Any) -> int:
    """1 where the class of interest of a model is ``classes_[1]``, else -1."""
    return 2 * validation.positive_index(model.classes_, model.pos_label) - 1


def variances_of(model: Any) -> NDArray[np.float64]:
    """Variance of the class of interest along each axis.

    Axes are scaled so that the ridged scatter within groups is the identity; that serves where the
    samples determine no covariance.
    """
    if isinstance(model.density_, NoDensity):
        total = model.positive_count_ + model.subclass_counts_.sum()
        return np.full(model.n_components_, 1 / total)
    variances: NDArray[np.float64] = model.density_.base.positive.diagonal()
    return variances


def scores_of(
    model: Verifier, z: NDArray[np.floating], sets: tuple[NDArray[np.intp], int] | None = None
) -> NDArray[np.float64]:
    """Log-likelihood ratios of rows, or of sets of rows, from their coordinates."""
    density, calibration = model.density_, model.calibration_
    if sets is not None:
        return calibration(density.views_of_sets(_bounded(z), *sets))
    scores = np.empty(len(z))
    step = cache_rows(3 * z.shape[1] + 2 * len(density.base.centres))
    for start in range(0, len(z), step):
        part = slice(start, start + step)
        scores[part] = calibration(density.views(_bounded(z[part])))
    return scores


def sets_of(trials: ArrayLike, n_rows: int) -> tuple[NDArray[np.intp], int]:
    """Number of each row's trial in the order of ``np.unique(trials)``, and how many there are."""
    ids = np.asarray(trials)
    if ids.shape != (n_rows,):
        raise ValueError(
            f"trials has shape {ids.shape} but must have one entry for each of the {n_rows} rows "
            "of X"
        )
    try:
        names, sets = np.unique(ids, return_inverse=True)
    except TypeError as error:
        kinds = sorted({type(name).__name__ for name in ids.tolist()})
        raise ValueError(
            f"trials mixes names of the types {kinds}, which have no order; use names of one type"
        ) from error
    return sets, len(names)


def narrowed(values: NDArray[np.float64], dtype: Any) -> NDArray[np.floating]:
    """Values in the type of the rows they belong to; the largest number it has stands for more."""
    limit = np.finfo(dtype).max
    return np.clip(values, -limit, limit).astype(dtype, copy=False)


def _bounded(z: NDArray[np.floating]) -> NDArray[np.float64]:
    """Coordinates as float64, shortened where their squares would overflow."""
    exact: NDArray[np.float64] = z.astype(np.float64, copy=False)
    if max(exact.max(initial=0.0), -exact.min(initial=0.0)) <= FARTHEST:
        return exact
    far = np.abs(exact).max(axis=1, keepdims=True)
    return exact * np.minimum(1.0, FARTHEST / np.maximum(far, 1.0))
