"""The base class of class-specific models: fitted models project, score, rank and explain rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any

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
from sklearn.utils.validation import check_is_fitted

from .. import validation
from ..core.calibration import Calibration
from ..core.copies import Fingerprints
from ..core.density import Density
from ..core.explanation import Explanation, explain
from ..core.linalg import Array, Floats, Ints, Mask
from ..core.scatter import GroupScatter
from ..core.threshold import Threshold
from ..core.warning import warn
from ..documented import documented
from ..validation import MatrixLike, validated
from . import naming, operating
from .attribution import attributed
from .callbacks import CallbackSupportMixin
from .ratios import accuracy, bounded, narrowed, ranking_of, scores_of, sets_of, too_large
from .sample import RowSample
from .steps import is_precomputed, sign_of
from .threads import reads

# Features of rows, and the matrix and origin that project them.
FeatureMap = tuple[Callable[[Floats], Any], Array, Array]


@documented
class Verifier(
    CallbackSupportMixin,
    ClassNamePrefixFeaturesOutMixin,
    ClassifierMixin,
    TransformerMixin,
    BaseEstimator,
    ABC,
):
    """Base class of all class-specific estimators; subclasses define `_coordinates` and `_map`."""

    # Parameters that all estimators have.
    n_components: int | str | None
    solver: str
    regularization: float | str
    shrinkage: float | str
    calibrate: bool
    priors: Any
    pos_label: Any
    random_state: Any
    verbose: bool
    # Fitted attributes of all models.
    density_: Density
    calibration_: Calibration
    classes_: NDArray[Any]
    class_prior_: Array
    eigenvalues_: Array
    positive_count_: float
    regularization_: float
    subclass_counts_: Array
    n_components_: int
    subclass_names_: list[str]
    subclass_examples_: list[list[str]]
    row_ids_: list[str]
    n_features_in_: int
    partition_: Ints
    loo_scores_: Array
    # Weights of the left-out rows, unless all are equal.
    loo_weights_: Array
    # Groups of the left-out or held-out rows, if the rows of a group were left out together.
    loo_groups_: Ints
    # Scores, labels and weights of held-out rows, for models without `loo_scores_`.
    held_out_: tuple[Array, Mask, Array | None]
    # Only for a label of a bank: the ratios compare with strangers, not with the other labels.
    against_strangers_: bool
    # Only CSDA.
    reference_: Array
    reference_step_: float
    # Only if rows were left out.
    fingerprints_: Fingerprints
    # Only after `choose_threshold`.
    threshold_: Threshold
    # Only with `contamination`.
    contamination_: float
    contamination_interval_: tuple[float, float]
    responsibilities_: Array
    # Only linear models. Attributes from `scatter_` on exist only after `partial_fit`.
    components_: Floats
    positive_mean_: Array
    subclass_means_: Floats
    scatter_: GroupScatter
    sample_: RowSample
    n_samples_seen_: int
    seed_: int
    # What partial_fit still needs before it can fit a model; deleted afterwards.
    _lacks: str
    # Sparse formats that prediction accepts; False for none.
    _sparse: Any = ("csr", "csc")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.pairwise = is_precomputed(self)
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Pickles of version 0.1 have the old name of this attribute.
        renamed = {"partition_" if name == "groups_" else name: state[name] for name in state}
        super().__setstate__(renamed)

    @property
    def groups_(self) -> Ints:
        """Deprecated name for `partition_`."""
        partition = self.partition_
        warn(
            "groups_ was renamed partition_ in pcsda 0.2, because the groups of fit(groups=) are "
            "something else; the old name will be removed in 0.3",
            FutureWarning,
        )
        return partition

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "density_")

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    @abstractmethod
    def _coordinates(self, X: Any) -> Floats:
        """Project checked rows; the result has the floating-point type of X."""

    @abstractmethod
    def _map(self) -> FeatureMap:
        """Return a function from rows to features, which makes no checks.

        Also return the matrix and the origin that project the features.
        """

    def _require_model(self) -> None:
        """Raise NotFittedError if there is no model; after `partial_fit`, say what is missing."""
        if hasattr(self, "_lacks"):
            raise NotFittedError(
                f"This {type(self).__name__} instance is not fitted yet. The batches that "
                f"partial_fit has collected do not make a model: {self._lacks}"
            )
        check_is_fitted(self)

    def _project(self, X: Any) -> Floats:
        self._require_model()
        validation.refuse_dask(X, predicts=True)
        # NaN and infinity in a row show up in its coordinates, which are much quicker to check.
        X = validated(
            self,
            X,
            reset=False,
            accept_sparse=self._sparse,
            dtype=[np.float64, np.float32],
            ensure_all_finite=False,
        )
        with np.errstate(over="ignore", invalid="ignore"):  # checked below
            z = self._coordinates(X)
        if not np.isfinite(z).all():
            data = X.data if hasattr(X, "tocsr") else X
            assert_all_finite(data, estimator_name=type(self).__name__, input_name="X")
            raise too_large(z)
        return z

    def _views(self, X: MatrixLike) -> Array:
        """Return the log ratios that the calibration combines, shape (n_views, n)."""
        return self.density_.views(bounded(self._project(X)))

    @reads
    def transform(self, X: MatrixLike) -> Floats:
        """Project rows onto the discriminant subspace; the positive mean is the origin.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        array of shape (n_samples, n_components)
        """
        return self._project(X)

    @reads
    def log_likelihood_ratio(self, X: MatrixLike, trials: ArrayLike | None = None) -> Floats:
        """Return ln p(x given the class of interest) - ln p(x given the rest), without priors.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        trials : array-like of shape (n_samples,), optional
            Trial of each row. A trial is a set of samples of one object. The result then has one
            value per trial, in the order of ``np.unique(trials)``.

        Returns
        -------
        array of shape (n_samples,) or (n_trials,)
        """
        z = self._project(X)
        sets = None if trials is None else sets_of(trials, len(z))
        return narrowed(scores_of(self, z, sets), z.dtype)

    @reads
    def decision_function(self, X: MatrixLike) -> Floats:
        """Return log posterior ratios at the fitted prior; 0 or more means ``classes_[1]``.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        array of shape (n_samples,)
        """
        odds = self.log_likelihood_ratio(X) * sign_of(self)
        odds += np.log(self.class_prior_[1] / self.class_prior_[0])
        return odds

    @reads
    def predict(self, X: MatrixLike) -> NDArray[Any]:
        """Return the more probable class of each row.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        array of shape (n_samples,)
        """
        chosen = (self.decision_function(X) >= 0).astype(int)
        labels: NDArray[Any] = self.classes_[chosen]
        return labels

    @reads
    def score(self, X: MatrixLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return the accuracy of :meth:`predict`; with `pos_label`, all other labels are one class.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        sample_weight : array-like of shape (n_samples,), optional

        Returns
        -------
        float
        """
        return accuracy(self.predict(X), y, self.pos_label, sample_weight)

    @reads
    def predict_proba(self, X: MatrixLike) -> Floats:
        """Return posterior probabilities; the columns are in the order of ``classes_``.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        array of shape (n_samples, 2)
        """
        odds = self.decision_function(X)
        both: Floats = np.column_stack([expit(-odds), expit(odds)])
        # Probabilities are kept above the smallest normal number, so that logarithms stay finite.
        return np.maximum(both, np.finfo(both.dtype).tiny)

    @reads
    def predict_log_proba(self, X: MatrixLike) -> Floats:
        """Return log posterior probabilities, accurate even if the probabilities underflow.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        array of shape (n_samples, 2)
        """
        odds = self.decision_function(X)
        odds = np.column_stack([-odds, odds])
        # Above one half, take the logarithm of the rounded probability; below, the exact tail.
        top = np.log(np.maximum(expit(odds), 0.5))
        logs: Floats = np.where(odds > 0, top, -np.logaddexp(0, -odds))
        return logs

    @reads
    def score_samples(self, X: MatrixLike) -> Floats:
        """Return minus the distance to the positive mean in the subspace (the paper's ranking).

        CSDA with ``reference="optimal"`` takes the distance to the learned reference instead.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        array of shape (n_samples,)
        """
        z = self._project(X)
        if getattr(self, "reference", "mean") == "optimal":
            z = z - self.reference_.astype(z.dtype)
        # Coordinates are scaled, because squares could overflow even if distances do not.
        far = np.maximum(np.abs(z).max(axis=1, keepdims=True), np.finfo(z.dtype).tiny)
        z = z / far
        with np.errstate(over="ignore"):
            distance: Floats = far[:, 0] * np.sqrt(np.einsum("ij,ij->i", z, z))
        return -np.minimum(distance, np.finfo(z.dtype).max)

    @reads
    def rank(self, X: MatrixLike, by: str | None = None) -> Ints:
        """Order rows by how well they fit the class of interest, best first.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        by : {"likelihood", "distance"} or None, default=None
            "likelihood" ranks by the log-likelihood ratio. "distance" ranks by the paper's distance
            to the positive mean (in a mixture, to the nearest mode's mean). None means "distance"
            if the model follows the published rule or has no density, otherwise "likelihood".

        Returns
        -------
        array of shape (n_samples,)
            Row numbers.

        Examples
        --------
        >>> from pcsda import PCSDA
        >>> from pcsda.datasets import make_class_specific
        >>> data = make_class_specific(500, random_state=0)
        >>> model = PCSDA(n_subclasses=6, random_state=0).fit(data.data, data.target)
        >>> data.target[model.rank(data.data)[:5]]
        array([1, 1, 1, 1, 1])
        """
        self._require_model()
        by = ranking_of(self) if by is None else by
        validation.check_option("by", by, ("distance", "likelihood"))
        score = self.score_samples(X) if by == "distance" else self.log_likelihood_ratio(X)
        return np.argsort(-score, kind="stable")

    @reads
    def fast_scorer(self) -> Callable[[Floats], Any]:
        """Return a plain function that scores rows without any checks, for single requests.

        Everything that does not depend on the rows is computed in advance, so a later `fit` does
        not change the function. The function does not check for NaN, infinity, a wrong number of
        columns or extreme values.

        Returns
        -------
        function
            Takes a float array with one row, shape (n_features,), or with several, and returns the
            :meth:`log_likelihood_ratio` as float64: a single number for one row.

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

        def score(rows: Floats) -> Any:
            return calibration(density.views_of_products(features(rows) @ columns - shift))

        return score

    @reads
    def explain(self, X: MatrixLike) -> Explanation:
        """Explain the log-likelihood ratio of each row.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        Explanation
            It holds the arrays `score`, `contributions` of the axes (which sum to the score,
            together with `offset`), `positive_distance`, the nearest `subclass` with
            `subclass_size` and `subclass_distance`, `typicality` and `outside`. It prints as one
            sentence per row, with the subclass names from :meth:`name_rows` or `fit`. For up to 200
            rows, it also holds the evidence of each column of X for or against the class
            (`columns`, linear models) or the nearest training rows of both classes (kernels).

        Notes
        -----
        The explanation covers the subspace only. Neither the explanation nor the score shows
        whether a row is unusual in a direction outside the subspace.

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
        z = bounded(self._project(X))
        found = explain(
            z,
            self.density_,
            self.calibration_,
            sizes=np.asarray(self.subclass_counts_, dtype=np.float64),
            unseen=self._unseen(z),
        )
        found = replace(
            found,
            subclass_names=getattr(self, "subclass_names_", None),
            subclass_examples=getattr(self, "subclass_examples_", None),
        )
        return attributed(self, X, z, found, self._coordinates)

    def _unseen(self, z: Array) -> Mask:
        """Return a mask of the rows whose coordinates carry no information; here, of no row.

        Kernel models override this method.
        """
        return np.zeros(len(z), dtype=bool)

    # Methods for names, thresholds, counts and calibration are in other modules.
    name_rows = naming.name_rows
    choose_threshold = operating.choose_threshold
    accepts = operating.accepts
    count = operating.count
    recalibrate = operating.recalibrate
