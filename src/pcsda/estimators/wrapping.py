"""The methods of a verifier for estimators that contain one: pipelines and searches."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from inspect import signature
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.decomposition import PCA
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted

from ..core.explanation import Explanation
from ..core.linalg import Floats, Ints, Mask
from ..core.threshold import Threshold
from ..unwrap import Unwrapped, unwrap
from ..validation import MatrixLike
from .stream import available_where

# Arguments of `choose_threshold` that are rows, and so pass through the earlier steps.
ROWS_BY_NAME = ("X", "strangers")


def _last_has(name: str, in_search: bool = True) -> Callable[[VerifierMethods], bool]:
    """Return a function that checks whether the last model has the method `name`.

    If the model does not have it, the function raises an AttributeError that says why. `in_search`
    says whether the model of a search that is not fitted yet will have the method.
    """

    def has(self: VerifierMethods) -> bool:
        model = unwrap(self).model
        # A search has no model before it is fitted, but will have one.
        return in_search if model is self else getattr(model, name) is not None

    return has


class VerifierMethods:
    """Methods of the verifier at the end of a pipeline or inside a search.

    Rows pass through all steps before the model. Only the methods that the model has are available.
    """

    def _unwrapped(self) -> Unwrapped:
        """Return the last model and the steps before it.

        Raise a NotFittedError for a search that is not fitted.
        """
        inside = unwrap(self)
        if inside.model is self:
            check_is_fitted(self, "best_estimator_")
        return inside

    def _ask(self, name: str, X: MatrixLike, *args: Any, **params: Any) -> Any:
        """Call a method of the last model, passing rows through the earlier steps first."""
        inside = self._unwrapped()
        return getattr(inside.model, name)(inside.rows(X), *args, **params)

    @available_where(_last_has("log_likelihood_ratio"))
    def log_likelihood_ratio(self, X: MatrixLike, trials: ArrayLike | None = None) -> Floats:
        """Return the last step's log-likelihood ratios; see :meth:`PCSDA.log_likelihood_ratio`.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        trials : array-like of shape (n_samples,), optional
            Trial of each row.

        Returns
        -------
        array of shape (n_samples,) or (n_trials,)
            For a bank, one column for each label.
        """
        ratios: Floats = self._ask("log_likelihood_ratio", X, trials)
        return ratios

    @available_where(_last_has("rank"))
    def rank(self, X: MatrixLike, *args: Any, **params: Any) -> Ints:
        """Order rows by how well they fit the class of interest, best first.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        *args, **params
            Arguments for the last step: `by`, preceded by the label for a bank.

        Returns
        -------
        array of shape (n_samples,)
            Row numbers.
        """
        order: Ints = self._ask("rank", X, *args, **params)
        return order

    @available_where(_last_has("explain"))
    def explain(self, X: MatrixLike, *args: Any, **params: Any) -> Explanation:
        """Explain the log-likelihood ratio of each row in the last step's subspace.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        *args, **params
            Arguments for the last step: for a bank, the label.

        Returns
        -------
        Explanation
        """
        explanation: Explanation = self._ask("explain", X, *args, **params)
        return replace(explanation, names=explanation.names or self._names_before(explanation))

    def _names_before(self, explanation: Explanation) -> tuple[str, ...] | None:
        """Return the names of the columns that reach the last step; None if they are unknown."""
        names: Any = None
        try:
            for step in self._unwrapped().before:
                names = step.get_feature_names_out(names)
        except (AttributeError, TypeError, ValueError):
            return None
        if names is None or explanation.columns is None:
            return None
        return tuple(map(str, names)) if len(names) == explanation.columns.shape[1] else None

    @available_where(_last_has("score_samples"))
    def score_samples(self, X: MatrixLike) -> Floats:
        """Return minus the distance to the positive mean in the last step's subspace.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        array of shape (n_samples,)
        """
        scores: Floats = self._ask("score_samples", X)
        return scores

    @available_where(_last_has("recalibrate"))
    def recalibrate(
        self, X: MatrixLike, y: ArrayLike, *, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Refit the calibration of the last step on held-out rows; see :meth:`PCSDA.recalibrate`.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        sample_weight : array-like of shape (n_samples,), optional

        Returns
        -------
        self : the pipeline or search
        """
        self._ask("recalibrate", X, y, sample_weight=sample_weight)
        return self

    @available_where(_last_has("name_rows"))
    def name_rows(
        self,
        labels: ArrayLike | None = None,
        *,
        X: MatrixLike | None = None,
        ids: ArrayLike | None = None,
    ) -> Self:
        """Name the subclasses and training rows of the last step; see :meth:`PCSDA.name_rows`.

        Parameters
        ----------
        labels : array-like of shape (n_samples,), default=None
        X : array-like of shape (n_samples, n_features), default=None
            The training rows, as given to the pipeline.
        ids : array-like of shape (n_samples,), default=None

        Returns
        -------
        self : the pipeline or search
        """
        inside = self._unwrapped()
        rows = None if X is None else inside.rows(X)
        inside.model.name_rows(labels, X=rows, ids=ids)
        return self

    @available_where(_last_has("choose_threshold"))
    def choose_threshold(self, *args: Any, **params: Any) -> Any:
        """Choose the threshold of the last step; see :meth:`PCSDA.choose_threshold`.

        Parameters
        ----------
        *args, **params
            Arguments for the last step. The rows `X` and `strangers` pass through the earlier steps
            first.

        Returns
        -------
        object
            What the last step returns.
        """
        inside = self._unwrapped()
        choose = inside.model.choose_threshold
        given = signature(choose).bind(*args, **params).arguments
        for name in ROWS_BY_NAME:
            if given.get(name) is not None:
                given[name] = inside.rows(given[name])
        return choose(**given)

    @property
    def threshold_(self) -> Threshold:
        """The last step's threshold, available after :meth:`choose_threshold`.

        A bank has one from its fit on.
        """
        threshold: Threshold = self._unwrapped().model.threshold_
        return threshold

    @available_where(_last_has("identify", in_search=False))
    def identify(self, X: MatrixLike, *args: Any, **params: Any) -> NDArray[Any]:
        """Return the label of each row in the bank at the end; see :meth:`VerifierBank.identify`.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        *args, **params
            Arguments for the bank: `threshold`, `unknown` and `trials`.

        Returns
        -------
        array of shape (n_samples,) or (n_trials,)
        """
        labels: NDArray[Any] = self._ask("identify", X, *args, **params)
        return labels

    @available_where(_last_has("verify", in_search=False))
    def verify(self, X: MatrixLike, claimed: ArrayLike, **params: Any) -> Floats:
        """Return the log-likelihood ratios for claimed labels; see :meth:`VerifierBank.verify`.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        claimed : label or array-like of shape (n_samples,)
        **params
            Arguments for the bank: `trials`.

        Returns
        -------
        array of shape (n_samples,) or (n_trials,)
        """
        ratios: Floats = self._ask("verify", X, claimed, **params)
        return ratios

    @available_where(_last_has("accepts"))
    def accepts(self, X: MatrixLike) -> Mask:
        """Return whether the log-likelihood ratio of each row reaches the last step's threshold.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        boolean array of shape (n_samples,)
        """
        accepted: Mask = self._ask("accepts", X)
        return accepted

    @available_where(_last_has("count"))
    def count(self, X: MatrixLike, **params: Any) -> Any:
        """Estimate how many rows belong to the class of interest.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        **params
            Arguments of the last step.

        Returns
        -------
        object
            What the last step returns.
        """
        return self._ask("count", X, **params)

    @available_where(_last_has("fast_scorer"))
    def fast_scorer(self) -> Callable[[Floats], Any]:
        """Return a plain function that scores rows; see :meth:`PCSDA.fast_scorer`.

        StandardScaler and PCA are applied without checks. Other steps are copied and called as they
        are, which takes longer.

        Returns
        -------
        function
            Takes a float array that holds one row, shape (n_features,), or several rows.
        """
        return scorer_of(self._unwrapped())


def scorer_of(inside: Unwrapped) -> Callable[[Floats], Any]:
    """Return a plain function that passes rows through the steps and scores them by the model."""
    chain, score = [_plain(step) for step in inside.before], inside.model.fast_scorer()

    def score_rows(rows: Floats) -> Any:
        many = np.atleast_2d(rows)
        for step in chain:
            many = step(many)
        return score(many if np.ndim(rows) > 1 else many[0])

    return score_rows if chain else score


def _plain(step: BaseEstimator) -> Callable[[Floats], Floats]:
    """Return a function that applies a fitted step with as few checks as possible."""
    step = deepcopy(step)
    if type(step) is StandardScaler:
        mean = step.mean_ if step.with_mean else 0.0
        scale = step.scale_ if step.with_std else 1.0
        return lambda rows: (rows - mean) / scale
    if type(step) is PCA:
        axes = step.components_.T
        if step.whiten:
            axes = axes / np.sqrt(step.explained_variance_)
        return lambda rows: (rows - step.mean_) @ axes
    # Plain arrays have no names, and the next step expects none.
    step.__dict__.pop("feature_names_in_", None)
    if hasattr(step, "set_output"):
        step.set_output(transform="default")
    return lambda rows: np.asarray(step.transform(rows))
