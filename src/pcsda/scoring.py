"""A verifier, a search, a pipeline or a bank, asked for scores in one way."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from . import validation
from .bank import VerifierBank

FloatArray = NDArray[np.float64]


class Scorer:
    """One face for every fitted model: what it verifies, and how it scores rows.

    Parameters
    ----------
    model : fitted estimator, PCSDACV, VerifierBank, or Pipeline that ends in one of these

    Attributes
    ----------
    is_bank : bool
    labels : list
        The labels that can be verified: all of a bank, the class of interest of a single model.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self._before: Any = None
        final = model
        if isinstance(model, Pipeline):
            self._before, final = model[:-1], model[-1]
        check_is_fitted(final)
        if not hasattr(final, "log_likelihood_ratio"):
            raise ValueError(
                f"{type(final).__name__} gives no log-likelihood ratio; use a model of pcsda, or a "
                "pipeline that ends in one"
            )
        self.final = final
        self.is_bank = isinstance(final, VerifierBank)
        if self.is_bank:
            self.labels = final.classes_.tolist()
        else:
            proper = self.verifier()
            index = validation.positive_index(proper.classes_, proper.pos_label)
            self.labels = [proper.classes_.tolist()[index]]

    @property
    def feature_names(self) -> NDArray[Any] | None:
        """Names of the columns the model was fitted on, None where they had none."""
        return getattr(self.model, "feature_names_in_", None)

    @property
    def n_features(self) -> int:
        """Number of columns the model was fitted on."""
        return int(self.model.n_features_in_)

    def verifier(self, label: Any = None) -> Any:
        """Fitted model of one label, without what comes before it in a pipeline or a search."""
        found = self.final.models_[label] if self.is_bank else self.final
        found = getattr(found, "best_estimator_", found)
        return found[-1] if isinstance(found, Pipeline) else found

    def prior(self, label: Any = None) -> float:
        """Fitted prior probability of the class of interest."""
        model = self.verifier(label)
        index = validation.positive_index(model.classes_, model.pos_label)
        return float(model.class_prior_[index])

    def _rows(self, X: Any) -> Any:
        return X if self._before is None else self._before.transform(X)

    def _one(self, label: Any) -> Any:
        return self.final.models_[label] if self.is_bank else self.final

    def log_likelihood_ratios(self, X: Any, trials: ArrayLike | None = None) -> FloatArray:
        """Log-likelihood ratio of every row, or trial, for every label: shape (n, n_labels).

        Trials come in the order of ``np.unique(trials)``.
        """
        scores = self.final.log_likelihood_ratio(self._rows(X), trials)
        return np.asarray(scores if self.is_bank else scores[:, None], dtype=np.float64)

    def coordinates(self, X: Any, label: Any = None) -> FloatArray:
        """Position of every row in the subspace of one label, shape (n, n_components)."""
        rows = self._rows(X)
        z = self._one(label).transform(np.asarray(rows) if self.is_bank else rows)
        return np.asarray(z, dtype=np.float64)

    def closeness(self, X: Any, label: Any = None) -> FloatArray:
        """Minus the distance to the positive mean in the subspace of one label."""
        rows = self._rows(X)
        score = self._one(label).score_samples(np.asarray(rows) if self.is_bank else rows)
        return np.asarray(score, dtype=np.float64)
