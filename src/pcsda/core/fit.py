"""The fit: a factor solves a division, left-out rows shape the densities, calibration follows.

    factor.solve -> Subspace -> densities -> views of left-out rows -> calibration

Every caller tells this story: one fit is one factor and one division, a bank one factor and a
division for each label, a search a few factors and a grid of divisions. Blocks bring the subspace
and a sample of left-out rows from passes over the data, and join at :func:`complete`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .calibration import Calibration, fit_calibration
from .density import RESIDUAL_FLOOR, Density, Marginal, Moments, NoDensity, Rule, fit_density
from .linalg import Array, SingularMatrixError
from .loo import EVERY, Leave
from .subspace import Factor, Subspace

# Scores of the training rows by models that have not seen them, NaN where there is no such model.
HeldOut = Callable[[], tuple[Array, NDArray[np.bool_], Array | None]]


@dataclass(frozen=True)
class Fitted:
    """A fitted class-specific model.

    Attributes
    ----------
    subspace : Subspace
    density : Density
    calibration : Calibration
    left_out : array of shape (n,) or None
        Left-out log-likelihood ratios of the training rows, or of the sample of them.
    """

    subspace: Subspace
    density: Density
    calibration: Calibration
    left_out: Array | None = None

    def left_out_of(self, n_rows: int) -> Array | None:
        """Left-out log-likelihood ratios of all training rows, NaN outside the sample."""
        left = self.subspace.left
        if self.left_out is None or left is None:
            return None
        return left.spread(self.left_out, n_rows)

    def score(self, rows: Any) -> Array:
        """Log-likelihood ratio of float64 rows, or of rows of kernel values."""
        return self.calibration(self.density.views(self.subspace.project(rows)))


def fit(
    factor: Factor,
    groups: NDArray[np.intp],
    rule: Rule,
    n_components: int | None = None,
    held_out: HeldOut | None = None,
    leave: Leave = EVERY,
) -> Fitted:
    """Fit one division; `held_out` is asked for scores where no row can be left out."""
    leave_out = leave if rule.leave_one_out else False
    subspace = factor.solve(groups, n_components, leave_out=leave_out)
    return complete(subspace, rule, held_out=held_out)


def complete(
    subspace: Subspace,
    rule: Rule,
    near: Fitted | None = None,
    held_out: HeldOut | None = None,
) -> Fitted:
    """Complete a subspace to a model.

    The calibration of a model that is `near` saves steps.
    """
    density, views = estimate(subspace, rule)
    calibration = Calibration.none(density.n_views)
    if isinstance(density, NoDensity):
        return Fitted(subspace, density, calibration)
    left = subspace.left
    if rule.calibrate:
        used = None if left is None or views is None else np.flatnonzero(left.known)
        if left is not None and views is not None and used is not None and left.has_both:
            weight = left.mass[used]
            start = None if near is None else near.calibration
            positive = left.groups[used] == 0
            calibration = fit_calibration(views[:, used], positive, weight, start)
        elif held_out is not None:
            calibration = calibrated_on(calibration, *held_out())
    scores = None if views is None else calibration(views)
    return Fitted(subspace, density, calibration, scores)


def calibrated_on(
    calibration: Calibration,
    scores: Array,
    positive: NDArray[np.bool_],
    weights: Array | None,
) -> Calibration:
    """Fit slope and offset to scores of rows that the model has not seen.

    Without scores of both classes the calibration is taken as it is.
    """
    seen = np.isfinite(scores)
    if positive[seen].all() or not positive[seen].any():
        return calibration
    weight = None if weights is None else weights[seen]
    found = fit_calibration(scores[seen][None], positive[seen], weight)
    return calibration.then(found.slope, found.offset)


def estimate(subspace: Subspace, rule: Rule) -> tuple[Density, Array | None]:
    """Estimate the densities of a subspace, and the views of its left-out rows.

    The denominator on the axes, ``W'(S_I + eps I)W``, is the pooled scatter that resubstituted
    covariances are shrunk toward, and a floor for left-out ones. Without left-out rows nothing
    tells the weights of a blend, which is its mixture then.
    """
    projected, left = subspace.projected, subspace.left
    if left is None:
        return _resubstituted(subspace, rule), None
    found = left.moments()
    # Where rows are alone in every group nothing was seen: the ridge alone says how they spread.
    total = found.n_positive + found.n_within
    seen = replace(projected, positive=found.positive, within=found.within)
    pooled = seen.intra + RESIDUAL_FLOOR * subspace.ridged if total > 0 else subspace.ridged
    target = pooled / max(total, 1.0)
    density = _fit_density(subspace, Moments(seen, target, found.n_positive, found.n_within), rule)
    both = found.n_positive > 0 and (projected.n_subclasses > 1 or found.n_within > 0)
    if not both or len(left.groups) == 0 or isinstance(density, NoDensity):
        return density, None
    if rule.tails == "fitted":
        density = density.with_tails(left)
    return density, density.left_out_views(left, projected.counts)


def _resubstituted(subspace: Subspace, rule: Rule) -> Density:
    """Densities from the training projections themselves, as published."""
    projected = subspace.projected
    if subspace.single_negatives:
        target = subspace.ridged / projected.n_positive
        moments = Moments(projected, target, projected.n_positive, 0.0)
        density = _fit_density(subspace, moments, rule)
        return replace(density, within=None) if isinstance(density, Marginal) else density
    target = subspace.ridged / projected.counts.sum()
    moments = Moments(projected, target, projected.n_positive, projected.within_freedom)
    alone = replace(rule, negatives="mixture") if rule.negatives == "blend" else rule
    return _fit_density(subspace, moments, alone)


def _fit_density(subspace: Subspace, moments: Moments, rule: Rule) -> Density:
    """Fit the density; where the samples do not determine it, the projection does without."""
    projected = subspace.projected
    width = len(subspace.eigenvalues)
    nu = width / 2 if rule.shrinkage is None else rule.shrinkage
    try:
        return fit_density(moments, negatives=rule.negatives, shrinkage=nu)
    except SingularMatrixError as error:
        return NoDensity(
            f"{error}: {projected.n_positive:g} positives and {projected.n_negative:g} negatives "
            f"do not fill n_components={width} axes; lower n_components or set shrinkage='auto'. "
            "The subspace and the ranking by distance need no density"
        )
