"""A verifier for a class of interest that has several modes: one model per mode, one ratio."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from .. import validation
from ..core.calibration import Calibration
from ..core.copies import warn_of_copies
from ..core.linalg import Array, Floats, Ints, Mask
from ..core.threshold import Threshold
from ..documented import documented
from ..targets import check_groups, check_labels, check_unchecked, check_weights
from ..unwrap import asked, unwrap
from ..validation import MatrixLike, validated
from . import operating
from .callbacks import CallbackSupportMixin, calls_back
from .candidates import template_of
from .grid import final_of
from .modes import Modes, Rows, join
from .parameters import check_priors
from .ratios import narrowed
from .search import PCSDACV
from .steps import OF_ONE_FIT, draw_seed, forget, is_precomputed, keep_fingerprints
from .verifier import Verifier
from .wrapping import scorer_of

# Numbers of modes that "auto" tries, and how many positives each mode must then have.
N_MODES = (1, 2, 3, 5)
MODE_POSITIVES = 10


@documented
class MixtureVerifier(CallbackSupportMixin, MetaEstimatorMixin, ClassifierMixin, BaseEstimator):
    """A verifier for a class of interest that consists of several clusters.

    K-means divides the positives into modes. One verifier per mode is fitted on the positives of
    that mode and all negatives. The ratios of the verifiers are combined as in a mixture:
    ``log(sum_j share_j exp(ratio_j))``, where share_j is the share of positives in mode j. The
    combined ratio is calibrated by a slope and an offset, fitted to left-out scores. With one mode,
    the model is equivalent to the estimator itself.

    Parameters
    ----------
    estimator : PCSDA, CSDA, their kernel forms, PCSDACV or a pipeline that ends in one, \
default=None
        The verifier for each mode; None means ``PCSDA()``. Its `pos_label` and `priors` apply to
        the whole model, and its `random_state` seeds k-means.
    n_modes : int or "auto", default="auto"
        Number of modes. "auto" tries 1, 2, 3 and 5, as long as every mode has at least ten
        positives. It takes the smallest number whose log-loss exceeds the best by at most half a
        standard error of the paired difference; the losses are cross-validated.

    Attributes
    ----------
    models_ : list of estimators
        The fitted verifier for each mode.
    n_modes_ : int
    mode_counts_ : array of shape (n_modes,)
        Number, or total weight, of the positives in each mode.
    modes_ : array of shape (n_samples,)
        Mode of each training row; -1 for negatives and for rows of weight zero.
    losses_ : dict of int to float
        Cross-validated log-loss, in nats, for each number of modes that "auto" tried.
    calibration_ : Calibration
        Slope and offset that turn the combined ratio into the log-likelihood ratio.
    loo_scores_ : array of shape (n_samples,)
        Log-likelihood ratio of each training row under a model without that row. Set only if rows
        were left out.
    held_out_ : tuple of arrays
        Scores, labels and weights of rows held out in folds, instead of `loo_scores_`, if there is
        one mode and its verifier is calibrated in folds.
    partition_ : array of shape (n_samples,)
        0 for a positive, 1 for a negative, -1 for a row of weight zero.
    classes_ : array of shape (2,)
    class_prior_ : array of shape (2,)
        Prior probabilities in the order of `classes_`.

    Notes
    -----
    To score a positive as a left-out row, it is removed from the verifier of its own mode, in
    closed form; the other verifiers have not seen it. If the estimator cannot do this, the scores
    come from five folds. With more than one mode, the estimator's `calibration_rows` is set to
    None, so that all modes have left-out scores for the same rows.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from pcsda import PCSDA, MixtureVerifier
    >>> X, y = load_digits(return_X_y=True)
    >>> model = MixtureVerifier(PCSDA(random_state=0), n_modes=2).fit(X, (y == 0) | (y == 7))
    >>> model.mode_counts_
    array([179., 178.])
    >>> sorted(set(y[model.rank(X)[:300]].tolist()))
    [0, 7]
    """

    models_: list[Any]
    n_modes_: int
    mode_counts_: Array
    modes_: Ints
    losses_: dict[int, float]
    calibration_: Calibration
    loo_scores_: Array
    loo_weights_: Array
    loo_groups_: Ints
    held_out_: tuple[Array, Mask, Array | None]
    partition_: Ints
    threshold_: Threshold
    classes_: NDArray[Any]
    class_prior_: Array

    def __init__(
        self, estimator: BaseEstimator | None = None, *, n_modes: int | str = "auto"
    ) -> None:
        self.estimator = estimator
        self.n_modes = n_modes

    @property
    def pos_label(self) -> Any:
        """The class of interest: the estimator's `pos_label`."""
        return _verifier_of(template_of(self)).pos_label

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.sparse = get_tags(template_of(self)).input_tags.sparse
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "models_")

    @calls_back
    def fit(
        self,
        X: Any,
        y: Any,
        *,
        subclass_labels: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        unchecked: ArrayLike | None = None,
    ) -> Self:
        """Find the modes and fit a verifier for each.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            Two labels, or more if the estimator's `pos_label` is set.
        subclass_labels, sample_weight, groups, unchecked : array-like of shape (n_samples,), \
optional
            As in :meth:`PCSDA.fit`, if the estimator accepts them. Positives of one group belong to
            the same mode.

        Returns
        -------
        self : MixtureVerifier
        """
        template = template_of(self)
        final = _check_template(template)
        validation.check_count("n_modes", self.n_modes, "auto")
        validation.refuse_dask(X, y)
        sparse = "csr" if get_tags(template).input_tags.sparse else False
        X, y = validated(self, X, y, accept_sparse=sparse, dtype=[np.float64, np.float32])
        self.classes_, index, positive = check_labels(y, final.pos_label)
        weights = check_weights(sample_weight, positive)
        together = check_groups(groups, len(positive))
        weights = np.ones(len(y)) if weights is None else weights
        given: dict[str, Any] = {"subclass_labels": subclass_labels, "groups": groups}
        given["sample_weight"] = None if sample_weight is None else weights
        given["unchecked"] = check_unchecked(unchecked, positive)
        given = {name: np.asarray(value) for name, value in given.items() if value is not None}
        seed = draw_seed(final.random_state)
        rows = Rows(template, X, y, positive, weights, together, given, seed)
        counted = np.flatnonzero(weights)
        modes, left_out, losses = self._chosen(rows.take(counted))
        modes.repeat_warnings()
        self._keep(rows, counted, modes, left_out, losses)
        share = weights[positive].sum() / weights.sum()
        shares = np.array([1 - share, share])[:: 2 * index - 1]
        self.class_prior_ = check_priors(final.priors, shares)
        if together is None:
            warn_of_copies(X, positive)
        return self

    def _chosen(self, rows: Rows) -> tuple[Modes, Array | None, dict[int, float]]:
        """Return the modes, their combined left-out scores, and the loss of each number of modes.

        The scores are None if there is one mode. There are losses only if "auto" tried several
        numbers.
        """
        if self.n_modes != "auto":
            modes = rows.fit(rows.divide(int(self.n_modes)))
            return modes, rows.left_out(modes) if len(modes.models) > 1 else None, {}
        tried = {1: rows.fit(rows.divide(1))}
        for count in N_MODES[1:]:
            if np.sum(rows.positive) >= count * MODE_POSITIVES:
                sizes = np.bincount((division := rows.divide(count))[rows.positive])
                if len(sizes) == count and sizes.min() >= MODE_POSITIVES:
                    tried[count] = rows.fit(division)
        if len(tried) == 1:
            return tried[1], None, {}
        best, losses = rows.compare({count: rows.anew(count) for count in tried})
        modes = tried[best]
        return modes, rows.left_out(modes) if best > 1 else None, losses

    def _keep(
        self,
        rows: Rows,
        counted: Ints,
        chosen: Modes,
        left_out: Array | None,
        losses: dict[int, float],
    ) -> None:
        """Store the fitted attributes, and delete any left by an earlier fit.

        The modes were found among the `counted` rows, which have positive weight.
        """
        forget(self, *OF_ONE_FIT, "losses_")
        self.partition_ = np.where(rows.weights > 0, (~rows.positive).astype(np.intp), -1)
        self.modes_ = np.full(len(rows.y), -1)
        self.modes_[counted] = chosen.modes
        self.models_, self.mode_counts_ = chosen.models, chosen.counts
        self.n_modes_, self.calibration_ = len(chosen.models), Calibration()
        if self.n_modes_ == 1:
            only = unwrap(self.models_[0]).model
            left_out = getattr(only, "loo_scores_", None)
            for name in ("held_out_", "loo_groups_"):  # of a model that is calibrated in folds
                if hasattr(only, name):
                    setattr(self, name, getattr(only, name))
        elif left_out is not None and _verifier_of(rows.template).calibrate:
            self.calibration_ = rows.take(counted).calibration(left_out)
        if left_out is not None and not np.isnan(left_out).all():
            scores = np.empty(len(rows.y))
            scores[counted] = left_out
            if (rest := np.flatnonzero(rows.weights == 0)).size:  # unseen by every verifier
                scores[rest] = join(chosen.scores(rows.X[rest]), chosen.counts)
            self.loo_scores_ = self.calibration_(scores[None])
            used = ~np.isnan(scores) & (rows.weights > 0)
            keep_fingerprints(self, rows.X, np.flatnonzero(used))
            if np.ptp(rows.weights[counted]) > 0:
                self.loo_weights_ = rows.weights[used]
            if rows.together is not None:
                self.loo_groups_ = rows.together[used]
        if losses:
            self.losses_ = losses

    def log_likelihood_ratio(self, X: MatrixLike, trials: ArrayLike | None = None) -> Floats:
        """Return ln p(x given the class of interest) - ln p(x given the rest), without priors.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        trials : array-like of shape (n_samples,), optional
            Trial of each row, as in :meth:`PCSDA.log_likelihood_ratio`. All samples of a trial
            should come from one mode.

        Returns
        -------
        array of shape (n_samples,) or (n_trials,)
        """
        ratios = self._asked("log_likelihood_ratio", X, trials)
        joined = self.calibration_(join(ratios, self.mode_counts_)[None])
        return narrowed(joined, ratios.dtype)

    def _views(self, X: MatrixLike) -> Array:
        """Return the combined ratio before calibration, shape (1, n)."""
        return join(self._asked("log_likelihood_ratio", X), self.mode_counts_)[None]

    def _require_model(self) -> None:
        """Raise NotFittedError if there is no model."""
        check_is_fitted(self)

    def fast_scorer(self) -> Callable[[Floats], Any]:
        """Return a plain function that scores rows; see :meth:`PCSDA.fast_scorer`.

        Returns
        -------
        function
            Takes a float array that holds one row, shape (n_features,), or several rows.
        """
        check_is_fitted(self)
        scorers = [scorer_of(unwrap(model)) for model in self.models_]
        counts, calibration = self.mode_counts_, self.calibration_

        def score(rows: Floats) -> Any:
            ratios = np.stack([np.atleast_1d(scorer(rows)) for scorer in scorers])
            joined = calibration(join(ratios, counts)[None])
            return joined if np.ndim(rows) > 1 else joined[0]

        return score

    def _asked(self, method: str, X: MatrixLike, *args: Any) -> Floats:
        """Call a method of each mode's verifier and stack the results, shape (n_modes, n)."""
        check_is_fitted(self)
        validation.refuse_dask(X, predicts=True)
        sparse = "csr" if get_tags(self).input_tags.sparse else False
        dtype = [np.float64, np.float32]
        X = validated(self, X, reset=False, accept_sparse=sparse, dtype=dtype)
        return np.stack([asked(model, method, X, *args) for model in self.models_])

    # These methods need only a ratio and a prior, or a distance.
    decision_function = Verifier.decision_function
    predict = Verifier.predict
    predict_proba = Verifier.predict_proba
    predict_log_proba = Verifier.predict_log_proba
    score = Verifier.score
    rank = Verifier.rank
    choose_threshold = operating.choose_threshold
    accepts = operating.accepts
    count = operating.count
    recalibrate = operating.recalibrate

    def score_samples(self, X: MatrixLike) -> Floats:
        """Return minus the distance to the nearest mode's mean, in the subspace of that mode.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        array of shape (n_samples,)
        """
        closest: Floats = self._asked("score_samples", X).max(axis=0)
        return closest


def _verifier_of(template: BaseEstimator) -> Any:
    """Return the estimator inside an unfitted pipeline or search."""
    final = final_of(template)
    return _verifier_of(template_of(final)) if isinstance(final, PCSDACV) else final


def _check_template(template: BaseEstimator) -> Any:
    """Return the verifier, unwrapped from a pipeline or search; reject any other estimator."""
    final = _verifier_of(template)
    if not isinstance(final, Verifier):
        raise TypeError(
            "MixtureVerifier takes PCSDA, CSDA, their kernel forms, PCSDACV or a pipeline that "
            f"ends in one, got {type(final).__name__}"
        )
    if is_precomputed(final):
        raise ValueError("kernel='precomputed' has no rows to find modes in; use a kernel by name")
    return final
