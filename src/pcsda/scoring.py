"""A common interface to the scores of verifiers, searches, pipelines and banks."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from .core.linalg import Array
from .core.threshold import Threshold
from .estimators import Verifier, VerifierBank
from .estimators.operating import fair_ratios
from .estimators.ratios import ranking_of
from .unwrap import Unwrapped, unwrap
from .validation import MatrixLike


class Scorer:
    """A common interface to all fitted models: the labels they verify, and their scores.

    Parameters
    ----------
    model : fitted estimator or VerifierBank, or a pipeline or search that holds one

    Attributes
    ----------
    is_bank : bool
    labels : list
        The labels that can be verified: all labels of a bank, or the class of interest of a single
        model.

    Examples
    --------
    >>> from pcsda import PCSDA
    >>> from pcsda.datasets import make_class_specific
    >>> from pcsda.scoring import Scorer
    >>> data = make_class_specific(500, random_state=0)
    >>> scorer = Scorer(PCSDA(random_state=0).fit(data.data, data.target))
    >>> scorer.labels
    [1]
    >>> scorer.log_likelihood_ratios(data.data).shape
    (500, 1)
    """

    def __init__(self, model: BaseEstimator) -> None:
        self.model = model
        self._inside = unwrap(model)
        final = self._inside.model
        check_is_fitted(final)
        if not hasattr(final, "log_likelihood_ratio"):
            raise ValueError(
                f"{type(final).__name__} gives no log-likelihood ratio; use a model of pcsda, or a "
                "pipeline or search that holds one"
            )
        self.final = final
        self.is_bank = isinstance(final, VerifierBank)
        self.labels = final.classes_.tolist() if self.is_bank else [self._inside.label]

    @property
    def feature_names(self) -> NDArray[Any] | None:
        """Names of the columns the model was fitted to; None if they had no names."""
        return getattr(self._inside.first, "feature_names_in_", None)

    @property
    def n_features(self) -> int:
        """Number of columns the model was fitted to."""
        return int(self._inside.first.n_features_in_)

    @property
    def threshold(self) -> Threshold | None:
        """Threshold stored in a single model; None for a bank, or if no threshold was chosen."""
        return None if self.is_bank else getattr(self.verifier(), "threshold_", None)

    def verifier(self, label: object = None) -> Any:
        """Return the fitted model for a label, without any pipeline or search around it."""
        return self._one(label).model

    def prior(self, label: object = None) -> float:
        """Return the fitted prior probability of the class of interest."""
        return self._one(label).prior

    def ranking(self, label: object = None) -> str:
        """Return how a label's model ranks rows by default: by "likelihood" or "distance"."""
        model = self.verifier(label)
        return ranking_of(model) if isinstance(model, Verifier) else "likelihood"

    def _one(self, label: object) -> Unwrapped:
        return unwrap(self.final.models_[label]) if self.is_bank else self._inside

    def log_likelihood_ratios(self, X: MatrixLike, trials: ArrayLike | None = None) -> Array:
        """Return log-likelihood ratios of rows, or trials, for all labels, shape (n, n_labels).

        Rows with the same value in `trials` are scored together. Trials are in the order of
        ``np.unique(trials)``.
        """
        scores = self.final.log_likelihood_ratio(self._inside.rows(X), trials)
        return np.asarray(scores if self.is_bank else scores[:, None], dtype=np.float64)

    def fair_ratios(self, X: MatrixLike, label: object) -> Array:
        """Return a label's ratios of rows; copies of training rows have their left-out scores."""
        ratios = self.log_likelihood_ratios(X)[:, self.labels.index(label)]
        rows = self._one(label).rows(self._inside.rows(X)) if self.is_bank else self._inside.rows(X)
        return fair_ratios(self.verifier(label), rows, ratios)

    def coordinates(self, X: MatrixLike, label: object = None) -> Array:
        """Return the coordinates of rows in a label's subspace, shape (n, n_components)."""
        return self._asked("transform", X, label)

    def closeness(self, X: MatrixLike, label: object = None) -> Array:
        """Return minus the distance of each row to the positive mean in a label's subspace."""
        return self._asked("score_samples", X, label)

    def _asked(self, method: str, X: MatrixLike, label: object) -> Array:
        """Call a method of a label's model on rows, and return the result as an array."""
        one = self._one(label)
        # The models of a bank were fitted on plain arrays.
        rows = np.asarray(self._inside.rows(X)) if self.is_bank else X
        return np.asarray(getattr(one.model, method)(one.rows(rows)), dtype=np.float64)
