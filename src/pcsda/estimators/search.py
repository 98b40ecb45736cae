"""PCSDACV: the choice of K, d, ridge and bandwidth by left-out scores, at little cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    ClassNamePrefixFeaturesOutMixin,
    MetaEstimatorMixin,
    TransformerMixin,
)

from .. import validation
from ..core.linalg import Array, Floats, one_thread
from ..documented import documented
from ..targets import check_groups, check_labels, check_weights
from ..validation import MatrixLike, validated
from .callbacks import CallbackSupportMixin, calls_back
from .candidates import template_of
from .grid import Data, fit_last, with_setting
from .ratios import accuracy
from .selection import Choice, check_search, choose_setting, is_light_last
from .steps import is_precomputed, refuse_unchecked
from .verifier import Verifier
from .wrapping import VerifierMethods


@documented
class PCSDACV(
    CallbackSupportMixin,
    VerifierMethods,
    MetaEstimatorMixin,
    ClassNamePrefixFeaturesOutMixin,
    ClassifierMixin,
    TransformerMixin,
    BaseEstimator,
):
    """PCSDA with K, d, ridge and bandwidth chosen by left-out scores.

    Rows are left out in closed form: each row is scored by the model without that row, without
    another fit. One fit serves all values of d, one factorisation all values of K, and one
    eigendecomposition all ridges of a linear model; a kernel model takes one Cholesky factorisation
    per ridge.

    If you give no values for K, d, ridge or bandwidth, the search takes two steps. The first tries
    ridges and bandwidths with the estimator's own K and d; the second tries K and d with the best
    ridge and bandwidth. With ``cv="auto"`` and without `groups`, both steps use a sample of at most
    1000 positives and 2000 negatives (half as many with a kernel, 150 and 450 in folds). The chosen
    setting is fitted on all rows. If you give any values, every combination is scored on all rows.

    Parameters
    ----------
    estimator : PCSDA, KernelPCSDA or Pipeline that ends in PCSDA, default=None
        The estimator to tune, with leave-one-out covariances; None means ``PCSDA()``.
    n_subclasses : int or list of int, default=None
        Values of K to try; None means 1, 5, the value of "auto" and the estimator's own value.
        Values above the number of distinct negatives are skipped.
    n_components : int or list of int, default=None
        Values of d to try; None means 2, 5, 10, all axes and the estimator's own value. Values
        above the largest dimension at a given K are skipped.
    regularization : float or list of float, default=None
        Ridges to try; None means 0.01, 0.1, 1, for linear models 3, and the estimator's own ridge.
    gamma : value or list of values, default=None
        Bandwidths to try, of a kernel estimator or of the map in a pipeline. None means the
        estimator's own, "positive", and 0.3, 1 and 3 times "scale"; for a pipeline, it means only
        the map's own.
    cv : {"auto", "leave-one-out"}, int, splitter or list of splits, default="auto"
        "leave-one-out" keeps the clustering and the map fixed. "auto" means "leave-one-out" if this
        is unbiased: with at least 30 positives (200 if the pipeline has a NystroemMap) and at least
        50 negatives per subclass at the largest K. Otherwise, "auto" means 5 folds, each with its
        own clustering and map. Folds cost five times as much, and even more in a bank, because
        labels then share no factorisation. There are at most as many folds as rows of the rarer
        class.
    scoring : {"neg_log_loss", "average_precision", "f1", "eer"} or callable, default="neg_log_loss"
        The score to maximise. A callable takes labels (1 for the class of interest) and decision
        values; :func:`pcsda.metrics.make_detection_scorer` makes one from a metric.
    stay : float, default=2.0
        A setting must beat the estimator's own setting by more than this many standard errors of
        the mean paired difference. Among such settings, the one with the largest margin is chosen.
        If there are none, the estimator's own setting is kept, because the best of many settings
        owes something to luck. 0 turns this rule off, and so does a grid without the estimator's
        own setting.
    slack : float, default=0.5
        If the rule of `stay` is off, settings whose score is within this many standard errors of
        the best count as equal. Of the equal settings with the largest ridge, the one with the best
        score is chosen. 0 always takes the best score.
    n_jobs : int or None, default=None
        Number of parallel jobs, as in joblib. It does not affect the result.
    verbose : bool, default=False
        Whether to draw a progress bar on a terminal.

    Attributes
    ----------
    best_estimator_ : estimator
        The estimator with the chosen setting, fitted on all rows. It makes all predictions.
    best_params_ : dict
    best_index_ : int
    best_score_ : float
    cv_results_ : dict of arrays
        As in scikit-learn's searches. `std_test_score` is the standard deviation over rows for
        log-loss, otherwise over folds or, with leave-one-out, over parts of the rows.
    cv_scores_ : array of shape (n_settings, n_samples)
        Left-out decision value of each training row for each setting; NaN for rows that are not in
        the sample.
    cv_method_ : {"leave-one-out", "k-fold"}

    Examples
    --------
    >>> from pcsda import PCSDACV
    >>> from pcsda.datasets import make_class_specific
    >>> data = make_class_specific(600, random_state=0)
    >>> model = PCSDACV(n_subclasses=[1, 3], regularization=[0.01, 0.1])
    >>> model = model.fit(data.data, data.target)
    >>> sorted(model.best_params_)
    ['n_components', 'n_subclasses', 'regularization']
    """

    def __init__(
        self,
        estimator: BaseEstimator | None = None,
        *,
        n_subclasses: int | str | Sequence[int | str] | None = None,
        n_components: int | Sequence[int] | None = None,
        regularization: float | str | Sequence[float | str] | None = None,
        gamma: Any = None,
        cv: object = "auto",
        scoring: str | Callable[..., float] = "neg_log_loss",
        stay: float = 2.0,
        slack: float = 0.5,
        n_jobs: int | None = None,
        verbose: bool = False,
    ) -> None:
        self.estimator = estimator
        self.n_subclasses = n_subclasses
        self.n_components = n_components
        self.regularization = regularization
        self.gamma = gamma
        self.cv = cv
        self.scoring = scoring
        self.stay = stay
        self.slack = slack
        self.n_jobs = n_jobs
        self.verbose = verbose

    @calls_back
    def fit(
        self,
        X: Any,
        y: ArrayLike,
        *,
        subclass_labels: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        unchecked: ArrayLike | None = None,
    ) -> Self:
        """Choose the setting and fit the model on all rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            Two labels, or more if the estimator has a `pos_label`.
        subclass_labels : array-like of shape (n_samples,), optional
            Subclass of each negative, as in :meth:`PCSDA.fit`; K is then not searched.
        sample_weight : array-like of shape (n_samples,), optional
        groups : array-like of shape (n_samples,), optional
            Rows of one group, such as frames of one recording, are left out together.
        unchecked : None
            Only for calls that suit every verifier: a search trusts its negatives.

        Returns
        -------
        self : PCSDACV
        """
        refuse_unchecked(self, unchecked)
        template = template_of(self)
        final = check_search(self)
        validation.refuse_dask(X, y)
        as_given = X
        X, y = validated(self, X, y, dtype=[np.float64, np.float32])
        self.classes_, index, positive = check_labels(y, final.pos_label)
        weights = check_weights(sample_weight, positive)
        by_splitter = hasattr(self.cv, "split") and not isinstance(self.cv, str)
        together = check_groups(groups, len(positive), keep_single=by_splitter)
        pairwise = is_precomputed(template)
        data = Data(X, y, positive, weights, subclass_labels, index, pairwise, together)
        choice = choose_setting(self, data)
        keep_choice(self, choice)
        given = {
            "subclass_labels": subclass_labels,
            "sample_weight": sample_weight,
            "groups": groups,
        }
        best = with_setting(template, choice.cell)
        given = {name: value for name, value in given.items() if value is not None}
        # The rows are passed as given, so that the model learns the names of their columns.
        with one_thread(is_light_last(X)):
            self.best_estimator_ = fit_last(best, as_given, y, given)
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.pairwise = is_precomputed(template_of(self))
        return tags

    @property
    def class_prior_(self) -> Array:
        """Prior probabilities of the chosen model, in the order of `classes_`."""
        prior: Array = self._unwrapped().model.class_prior_
        return prior

    @property
    def _n_features_out(self) -> int:
        return int(self._unwrapped().model.n_components_)

    def transform(self, X: MatrixLike) -> Floats:
        """Project rows with the chosen model.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        array of shape (n_samples, n_components)
        """
        z: Floats = self._ask("transform", X)
        return z

    def decision_function(self, X: MatrixLike) -> Floats:
        """Return the chosen model's log posterior ratios.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        array of shape (n_samples,)
        """
        odds: Floats = self._ask("decision_function", X)
        return odds

    # These methods need only the log posterior ratio.
    predict = Verifier.predict
    predict_proba = Verifier.predict_proba
    predict_log_proba = Verifier.predict_log_proba

    def score(self, X: MatrixLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return the chosen model's accuracy; see :meth:`PCSDA.score`.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        sample_weight : array-like of shape (n_samples,), optional

        Returns
        -------
        float
        """
        return accuracy(self.predict(X), y, self._unwrapped().model.pos_label, sample_weight)


def keep_choice(search: PCSDACV, choice: Choice) -> None:
    """Store the outcome of a search as fitted attributes."""
    search.cv_method_ = "k-fold" if choice.in_folds else "leave-one-out"
    search.cv_scores_, search.cv_results_ = choice.scores, choice.results
    search.best_index_ = choice.index
    search.best_params_ = choice.results["params"][choice.index]
    search.best_score_ = float(choice.results["mean_test_score"][choice.index])
