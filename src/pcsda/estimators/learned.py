"""Pipelines whose earlier steps learn so much from the rows that leaving out a row tests little.

A model leaves rows out of itself only. If a step before it has chosen columns by the labels, or has
turned its axes toward single rows, then the left-out rows still look better than new rows. Such
pipelines are scored in folds of the whole pipeline instead.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn import pipeline
from sklearn.base import TransformerMixin, clone
from sklearn.feature_selection import SelectorMixin, VarianceThreshold
from sklearn.model_selection import cross_val_predict
from sklearn.utils import get_tags

from ..core.calibration import Scored
from ..core.fit import calibrated_on
from ..core.linalg import Array, Ints, Mask
from ..core.warning import warn
from ..folds import count_folds, stratified
from ..targets import check_groups, check_labels, check_weights, plain_labels
from ..unwrap import unwrap
from ..validation import as_rows
from .parameters import is_contaminated
from .steps import forget, keep_fingerprints, keep_held_out
from .verifier import Verifier

# A decomposition learns much if its columns exceed the first share of the rows, and its axes the
# second. With fewer columns or axes, thresholds and counts held in trials.
WIDE, MANY_AXES = 0.5, 0.02


def keeps_scores(model: pipeline.Pipeline) -> bool:
    """Return whether the last step may have scores of rows left out of it, as banks have inside."""
    last = unwrap(model).model
    return (
        not isinstance(last, Verifier) or hasattr(last, "loo_scores_") or hasattr(last, "held_out_")
    )


def learned_much(model: pipeline.Pipeline, n_rows: int) -> str | None:
    """Describe the first step before the model that learned much from the rows, if any."""
    for step in unwrap(model).before:
        name = type(step).__name__
        if _is_supervised(step):
            return f"{name} learned from the labels of the {n_rows} rows"
        if not _is_from(step, "sklearn.decomposition"):
            continue
        columns, axes = step.n_features_in_, len(step.get_feature_names_out())
        if columns > WIDE * n_rows and axes > MANY_AXES * n_rows:
            return f"{name} learned {axes} axes of {columns} columns from {n_rows} rows"
    return None


def _is_supervised(step: Any) -> bool:
    """Return whether a step learns from y; encoders of scikit-learn guard against this."""
    if _is_from(step, "sklearn.preprocessing"):
        return False
    selects = isinstance(step, SelectorMixin) and not isinstance(step, VarianceThreshold)
    return selects or bool(get_tags(step).target_tags.required)


def _is_from(step: Any, package: str) -> bool:
    return any(kind.__module__.startswith(package) for kind in type(step).__mro__)


def score_in_folds(model: pipeline.Pipeline, X: Any, y: ArrayLike, params: dict[str, Any]) -> bool:
    """Calibrate a fitted pipeline on scores from folds of the whole pipeline.

    `params` are the other arguments of its fit. Returns False, and changes nothing, if the last
    step is no single calibrated model or if the folds cannot be fitted.
    """
    last = model.steps[-1][1]
    if not isinstance(last, Verifier) or is_contaminated(last) or not last.calibrate:
        return False
    positive = check_labels(plain_labels(y), last.pos_label)[2]
    together = check_groups(_named(params, "groups"), len(positive))
    scores = _fold_scores(model, X, positive, together, params)
    if scores is None:
        return False
    weights = check_weights(_named(params, "sample_weight"), positive)
    unseen = Scored(scores, positive, weights, together, np.arange(len(scores)))
    calibration, known = calibrated_on(last.calibration_, unseen)
    if known is None or known.rows is None:
        return False
    forget(last, "loo_scores_", "loo_weights_", "loo_groups_", "held_out_", "fingerprints_")
    last.calibration_ = calibration
    keep_held_out(last, known)
    keep_fingerprints(last, as_rows(unwrap(model).rows(X)), known.rows)
    return True


def follow_transform(model: pipeline.Pipeline, X: Any) -> None:
    """Take the fingerprints of the left-out rows X anew, after the earlier steps of a fitted model.

    Some steps return other rows from `fit_transform` than from `transform`, as PCA does with its
    randomised solver, and rows that are scored later come from `transform`.
    """
    inside = unwrap(model)
    last, usual = inside.model, TransformerMixin.fit_transform
    differs = any(
        getattr(type(step), "fit_transform", usual) is not usual for step in inside.before
    )
    if differs and hasattr(last, "fingerprints_") and hasattr(last, "loo_scores_"):
        scored = (last.partition_ >= 0) & ~np.isnan(last.loo_scores_)
        keep_fingerprints(last, as_rows(inside.rows(X)), np.flatnonzero(scored))


def _fold_scores(
    model: pipeline.Pipeline,
    X: Any,
    positive: Mask,
    together: Ints | None,
    params: dict[str, Any],
) -> Array | None:
    """Score each row by a pipeline fitted without its fold; None if a fold cannot be fitted."""
    n_folds = count_folds(positive, together)
    if n_folds == 0:
        return None
    plain = pipeline.Pipeline(clone(model).steps)
    # With equal priors, the decision function is the log-likelihood ratio.
    plain.steps[-1][1].set_params(priors="equal", pos_label=None, verbose=False)
    folds = stratified(n_folds, together, 0)
    splits = list(folds.split(np.empty(len(positive)), positive, together))
    with warnings.catch_warnings(action="ignore"):  # the fit to all rows has said it
        try:
            scores: Array = cross_val_predict(
                plain, X, positive, cv=splits, method="decision_function", params=params
            )
        except ValueError:
            return None
    return scores.astype(np.float64)


def _named(params: dict[str, Any], name: str) -> Any:
    """Return the argument of the last step with this name: with metadata routing, the plain one."""
    found = (value for key, value in params.items() if key.rpartition("__")[2] == name)
    return next(found, None)


def warn_of_learned(model: pipeline.Pipeline, learned: str) -> None:
    """Warn that left-out rows were not left out of an earlier step."""
    remedy = "fit that step on other rows"
    if hasattr(model, "recalibrate"):
        remedy = (
            "give recalibrate(X_new, y_new) and choose_threshold(X=X_new, y=y_new) rows that were "
            "not used for fitting"
        )
    warn(
        f"{learned}, and leaving rows out of the last step does not leave them out of that one, so "
        f"thresholds and counts may be wrong: {remedy}, or use more rows or fewer components"
    )
