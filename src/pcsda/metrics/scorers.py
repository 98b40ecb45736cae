"""Turn metrics into scorers for scikit-learn's searches and for PCSDACV."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from ..core.linalg import Array
from ..unwrap import unwrap
from ..validation import MatrixLike
from .detection import detection_cost
from .ratios import cllr

# These metrics depend on the values of the scores; the other metrics depend only on their order.
_OF_RATIOS: tuple[Callable[..., Any], ...] = (cllr, detection_cost)


@dataclass(frozen=True)
class DetectionScorer:
    """A scorer ``scorer(estimator, X, y)`` that `make_detection_scorer` made from a metric.

    Larger values are better.
    """

    metric: Callable[..., Any]
    sign: int
    on_ratios: bool
    pos_label: Any = None
    options: dict[str, Any] = field(default_factory=dict)

    def __call__(self, *arguments: Any, sample_weight: ArrayLike | None = None) -> float:
        """Compute the score from ``(estimator, X, y)``, or from ``(y, scores)`` for PCSDACV."""
        if len(arguments) == 2:
            if self.on_ratios:
                raise ValueError(
                    f"{_plain(self.metric).__name__} evaluates log-likelihood ratios, but PCSDACV "
                    "scores log posterior ratios; use scoring='neg_log_loss'"
                )
            return self._value(*arguments, sample_weight)
        estimator, X, y = arguments
        label = unwrap(estimator).label if self.pos_label is None else self.pos_label
        scores, are_ratios = scores_of(estimator, X, label)
        if self.on_ratios and not are_ratios:
            raise TypeError(
                f"{_plain(self.metric).__name__} evaluates log-likelihood ratios, which "
                f"{type(estimator).__name__} does not give; use sklearn's 'neg_log_loss', or a "
                "scorer that uses only the order of scores, such as min_cllr"
            )
        return self._value(np.asarray(y) == label, scores, sample_weight)

    def _value(self, y: ArrayLike, scores: Any, sample_weight: ArrayLike | None) -> float:
        weights = {} if sample_weight is None else {"sample_weight": sample_weight}
        found = self.metric(y, scores, **self.options, **weights)
        return self.sign * float(found[0] if isinstance(found, tuple) else found)


def make_detection_scorer(
    metric: Callable[..., Any],
    *,
    greater_is_better: bool = False,
    pos_label: object = None,
    **options: Any,
) -> DetectionScorer:
    """Make a scorer from a metric, for the ``scoring`` parameter of searches.

    The scorer works in :class:`pcsda.PCSDACV`, and in scikit-learn's `GridSearchCV` and
    `cross_val_score` with any binary classifier that has a `decision_function`. scikit-learn's own
    `make_scorer` cannot get an estimator's log-likelihood ratio, needs metrics that return a single
    number, and ignores the estimator's `pos_label`.

    Parameters
    ----------
    metric : callable
        ``metric(y_true, y_score)`` with labels in {0, 1}; if it returns a tuple, the first entry is
        used. :func:`cllr` and :func:`detection_cost` need an estimator with log-likelihood ratios.
        They cannot be used in PCSDACV, whose scores include the prior.
    greater_is_better : bool, default=False
        Whether larger values of the metric are better. If not, they are negated.
    pos_label : int, float, bool or str, default=None
        The class of interest. None means the estimator's class of interest or, if it has none, the
        last of its classes.
    **options
        Passed to the metric, such as ``prior=0.01``.

    Returns
    -------
    callable

    Examples
    --------
    >>> from sklearn.model_selection import cross_val_score
    >>> from pcsda import PCSDA
    >>> from pcsda.datasets import make_class_specific
    >>> from pcsda.metrics import make_detection_scorer, min_detection_cost
    >>> data = make_class_specific(500, random_state=0)
    >>> scorer = make_detection_scorer(min_detection_cost, prior=0.01)
    >>> scores = cross_val_score(PCSDA(random_state=0), data.data, data.target, scoring=scorer)
    >>> len(scores)
    5
    """
    on_ratios = _plain(metric) in _OF_RATIOS
    return DetectionScorer(metric, 1 if greater_is_better else -1, on_ratios, pos_label, options)


def scores_of(estimator: BaseEstimator, X: MatrixLike, label: object) -> tuple[Array, bool]:
    """Return scores in favour of `label`, and whether they are log-likelihood ratios."""
    inside = unwrap(estimator)
    are_ratios = hasattr(inside.model, "log_likelihood_ratio")
    if are_ratios:
        scores, own = inside.model.log_likelihood_ratio(inside.rows(X)), inside.label
    else:
        scores, own = estimator.decision_function(X), estimator.classes_[-1]
    scores = np.asarray(scores, dtype=np.float64)
    return (scores if label == own else -scores), are_ratios


def _plain(metric: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function inside a :func:`functools.partial`."""
    return _plain(metric.func) if isinstance(metric, partial) else metric
