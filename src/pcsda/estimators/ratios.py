"""From coordinates in the subspace to log-likelihood ratios, ranks and accuracy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike
from sklearn.metrics import accuracy_score

from ..core.density import NoDensity
from ..core.fit import Rule
from ..core.linalg import Array, Floats, Ints, cache_rows
from ..targets import MIXED_NAMES, check_length, distinct
from ..unwrap import unwrap
from .steps import rule_of

if TYPE_CHECKING:
    from .verifier import Verifier


# Coordinates beyond this are scaled down, because their squares would overflow.
FARTHEST = 1e100
# Largest squared length of whitened centres for which float32 scores are accurate to about 0.001.
SINGLE_SQUARES = 1e4


def scores_of(model: Verifier, z: Floats, sets: tuple[Ints, int] | None = None) -> Array:
    """Compute log-likelihood ratios of rows, or of sets of rows, from their coordinates."""
    density, calibration = model.density_, model.calibration_
    if sets is not None:
        return calibration(density.views_of_sets(bounded(z), *sets))
    scores = np.empty(len(z))
    step = cache_rows(3 * z.shape[1] + 2 * max(len(base.centres) for base in density.bases))
    for start in range(0, len(z), step):
        part = slice(start, start + step)
        scores[part] = calibration(density.views(bounded(z[part])))
    return scores


def quick_scores_of(model: Verifier, z: Floats) -> Array:
    """Score rows like `scores_of`, but three times as fast if float32 is accurate enough.

    Use this function to rank many float32 rows, where an error of 0.001 in a ratio does not matter.
    """
    density, calibration = model.density_, model.calibration_
    lengths = [base.terms[1].max() for base in density.bases]
    if z.dtype != np.float32 or max(lengths) > SINGLE_SQUARES:
        return scores_of(model, z)
    with np.errstate(over="ignore", invalid="ignore"):  # checked below
        scores = calibration(density.views(z)).astype(np.float64)
    far = np.flatnonzero(~np.isfinite(scores))
    if len(far):
        scores[far] = scores_of(model, z[far])
    return scores


def variances_of(model: Verifier) -> Array:
    """Return the variance of the class of interest along each axis.

    If the samples do not determine a covariance, the variance is computed from the within-group
    scatter plus the ridge. This sum is the identity along the axes.
    """
    if isinstance(model.density_, NoDensity):
        total = model.positive_count_ + model.subclass_counts_.sum()
        return np.full(model.n_components_, 1 / total)
    return np.concatenate([base.positive.diagonal() for base in model.density_.bases])


def sets_of(trials: ArrayLike, n_rows: int) -> tuple[Ints, int]:
    """Return the index of each row's trial in ``np.unique(trials)``, and the number of trials."""
    ids = np.asarray(trials)
    check_length("trials", ids, n_rows)
    if ids.dtype.kind == "f" and np.isnan(ids).any():
        raise ValueError(
            f"trials is NaN for {np.isnan(ids).sum()} rows, which would form one trial; give each "
            "row a trial"
        )
    names, sets = distinct(ids, "trials " + MIXED_NAMES)
    return sets, len(names)


def bounded(z: Floats) -> Array:
    """Convert coordinates to float64, scaled down if their squares would overflow."""
    exact: Array = z.astype(np.float64, copy=False)
    if max(exact.max(initial=0.0), -exact.min(initial=0.0)) <= FARTHEST:
        return exact
    far = np.abs(exact).max(axis=1, keepdims=True)
    shortened: Array = exact * np.minimum(1.0, FARTHEST / np.maximum(far, 1.0))
    return shortened


def narrowed(values: Floats, dtype: np.dtype[np.floating]) -> Floats:
    """Convert values to a floating-point type, clipped to its range."""
    if values.dtype == dtype == np.float32:
        return values
    limit = np.finfo(dtype).max
    return np.clip(values, -limit, limit).astype(dtype, copy=False)


def too_large(z: Floats, start: int = 0) -> ValueError:
    """Return the error for coordinates that overflow; row 0 of `z` is row `start` of X."""
    row = start + int(np.flatnonzero(~np.isfinite(z).all(axis=1))[0])
    return ValueError(f"row {row} of X is too large to project; bring X to the fitted scale")


def ranking_of(model: Verifier) -> str:
    """Return a fitted model's default ranking: "likelihood", or the paper's "distance"."""
    for one in getattr(model, "models_", [model]):  # a mixture has one for each mode
        inside = unwrap(one).model
        published = rule_of(inside) == Rule("marginal", 0.0, "gaussian", False, False)
        if published or isinstance(inside.density_, NoDensity):
            return "distance"
    return "likelihood"


def accuracy(
    found: ArrayLike, y: ArrayLike, pos_label: object, sample_weight: ArrayLike | None
) -> float:
    """Return the accuracy of predictions; with `pos_label`, all other labels are one class."""
    if pos_label is not None:
        found, y = np.asarray(found) == pos_label, np.asarray(y) == pos_label
    return float(accuracy_score(y, found, sample_weight=sample_weight))
