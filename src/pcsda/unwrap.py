"""Find the model inside pipelines and searches, and the label that the model verifies.

Only this module opens wrappers: scikit-learn's Pipeline, and searches, which have a
`best_estimator_`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline

from .targets import positive_index
from .validation import MatrixLike


@dataclass(frozen=True)
class Unwrapped:
    """A fitted model without its wrappers.

    Attributes
    ----------
    before : tuple of transformers
        Steps that rows pass through before the model, in order.
    model : estimator
        A verifier, a bank, or any other final estimator.
    """

    before: tuple[Any, ...]
    model: Any

    @property
    def first(self) -> Any:
        """The first step, which receives untransformed rows and knows the column names."""
        return (*self.before, self.model)[0]

    def rows(self, X: MatrixLike) -> Any:
        """Transform rows into the form that the model receives."""
        for step in self.before:
            X = step.transform(X)
        return X

    @property
    def index(self) -> int:
        """Index in `classes_` of the class of interest: `pos_label` or, if None, the last class."""
        named = getattr(self.model, "pos_label", None)
        classes = self.model.classes_
        return len(classes) - 1 if named is None else positive_index(classes, named)

    @property
    def label(self) -> Any:
        """The class of interest."""
        return self.model.classes_.tolist()[self.index]

    @property
    def prior(self) -> float:
        """Fitted prior probability of the class of interest."""
        return float(self.model.class_prior_[self.index])


def unwrap(model: BaseEstimator) -> Unwrapped:
    """Return the model inside pipelines and searches, nested to any depth.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from pcsda import PCSDA
    >>> from pcsda.datasets import make_class_specific
    >>> data = make_class_specific(500, random_state=0)
    >>> model = make_pipeline(StandardScaler(), PCSDA()).fit(data.data, data.target)
    >>> inside = unwrap(model)
    >>> inside.label
    1
    >>> inside.model.log_likelihood_ratio(inside.rows(data.data)).shape
    (500,)
    """
    *before, final = _leaves(model)
    # The samplers of imbalanced-learn act only during the fit.
    return Unwrapped(tuple(step for step in before if hasattr(step, "transform")), final)


def asked(model: BaseEstimator, method: str, X: MatrixLike, *args: Any) -> Any:
    """Call a method of the model inside pipelines and searches, after transforming the rows X."""
    inside = unwrap(model)
    return getattr(inside.model, method)(inside.rows(X), *args)


def steps(model: BaseEstimator) -> tuple[Any, ...]:
    """List the non-empty steps of a pipeline; any other model is its own only step."""
    if not isinstance(model, Pipeline):
        return (model,)
    return tuple(step for _, step in model.steps if step not in (None, "passthrough")) or (model,)


def parts(model: BaseEstimator) -> tuple[Any, ...]:
    """Return a pipeline's steps or a fitted search's best estimator; empty for other models."""
    found = (model.best_estimator_,) if hasattr(model, "best_estimator_") else steps(model)
    return () if found[0] is model else found


def _leaves(model: BaseEstimator) -> list[Any]:
    return [leaf for part in parts(model) for leaf in _leaves(part)] or [model]
