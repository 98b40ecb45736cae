"""Explanations of scores by the columns of X or by the nearest training rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator

from ..core.explanation import Explanation, column_parts
from ..core.linalg import Array, Floats, Ints
from ..validation import MatrixLike
from .ratios import variances_of

if TYPE_CHECKING:
    from .verifier import Verifier

# Beyond this many rows, scores are explained by axes only, because the contributions of columns
# take hundreds of score evaluations per row.
MOST_ROWS = 200
NEAREST = 3


def attributed(
    model: Verifier,
    X: Any,
    z: Array,
    found: Explanation,
    project: Callable[[Floats], Floats],
) -> Explanation:
    """Add the contributions of columns (linear models) or the nearest training rows (kernels).

    The explanation `found` is returned unchanged if there are too many rows or if the model offers
    neither kind. `project` maps the training rows of a kernel model to coordinates in the subspace.
    """
    if not 0 < len(z) <= MOST_ROWS:
        return found
    rows = getattr(model, "X_fit_", None)
    if rows is not None and hasattr(model, "partition_"):
        return _with_neighbours(model, z, found, project(rows))
    shape = (model.n_components_, model.n_features_in_)
    means: Any = getattr(model, "subclass_means_", np.empty(0))
    linear = getattr(model, "components_", np.empty(0)).shape == shape and means.ndim == 2
    if (
        not linear
        or sparse.issparse(X)
        or np.ndim(X) != 2
        or len(means) <= found.subclass.max() - 1
    ):
        return found
    return _with_columns(model, X, z, found)


def _with_columns(model: Verifier, X: MatrixLike, z: Array, found: Explanation) -> Explanation:
    rows = np.asarray(X, dtype=np.float64)
    positive = np.asarray(model.positive_mean_, dtype=np.float64)
    halfway = (positive + np.asarray(model.subclass_means_, np.float64)[found.subclass - 1]) / 2

    calibration = model.calibration_
    straight = calibration.straight()

    def score(points: Array) -> Array:
        return straight(model.density_.views(points))

    spread = np.sqrt(variances_of(model))
    components = np.asarray(model.components_, dtype=np.float64)
    places = z.astype(np.float64)
    parts = column_parts(rows, halfway, components, places, score, spread)
    if calibration.is_bent:  # a row's contributions are all reduced by the same factor
        start = model.density_.views(places - (rows - halfway) @ components.T)
        apart = score(places) - straight(start)
        bent = found.score - calibration(start)
        parts *= np.divide(bent, apart, out=np.ones(len(rows)), where=apart != 0)[:, None]
    names = getattr(model, "feature_names_in_", None)
    return replace(
        found,
        columns=parts,
        baseline=found.score - parts.sum(axis=1),
        names=None if names is None else tuple(map(str, names)),
    )


def _with_neighbours(
    model: BaseEstimator, z: Array, found: Explanation, known: Floats
) -> Explanation:
    support = np.asarray(model.support_)
    there = support >= 0  # a bank's kernel may still need rows that were removed
    positive = np.asarray(model.partition_)[support] == 0
    known = known.astype(np.float64)
    kinds = there & positive, there & ~positive
    near = [nearest_rows(z, known[kind], support[kind]) for kind in kinds]
    ids = getattr(model, "row_ids_", None)
    return replace(found, nearest_positive=near[0], nearest_negative=near[1], row_ids=ids)


def nearest_rows(z: Array, known: Array, numbers: Ints) -> Ints:
    """Return, for each row of `z`, the numbers of the rows of `known` that are nearest to it.

    ``numbers[i]`` is the number of row i of `known`.
    """
    apart = np.stack([np.linalg.norm(known - row, axis=1) for row in z])
    return numbers[np.argsort(apart, axis=1, kind="stable")[:, :NEAREST]]
