"""Fit a model: a factor finds the axes, and left-out rows determine densities and calibration.

    factor.solve -> Subspace -> densities -> views of left-out rows -> calibration

A division assigns each row to a group, and a left-out row is scored by a model without that row.
All callers follow these steps. A fit uses one factor and one division; a bank uses one factor and a
division for each label; a search uses a few factors and a grid of divisions. Fits in blocks compute
the subspace and a sample of left-out rows in passes over the data, then call :func:`complete`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from .calibration import Calibration, Scored, fit_calibration
from .covariance import Moments
from .density import Blend, Density, Estimate, Marginal, NoDensity, fit_density
from .linalg import Array, Ints, SingularMatrixError
from .loo import EVERY, Leave
from .near import Near
from .predictive import pseudo_positives, with_pseudo_positives, with_strays
from .subspace import Factor, Subspace

# This many rows of each class per axis are enough for a density.
ENOUGH = 10
# The spread of fewer negatives says too little about how the views vary.
ENOUGH_TO_SCALE = 20
# Smallest covariance of left-out rows, as a share of the ridged scatter.
RESIDUAL_FLOOR = 1e-8
# Function that returns scores of training rows from models that have not seen them. Rows without
# such a score have NaN.
HeldOut = Callable[[], Scored]


@dataclass(frozen=True)
class Rule:
    """Settings that determine how statistics become a density and its calibration.

    Attributes
    ----------
    negatives : {"blend", "mixture", "marginal"}
    shrinkage : float or None
        Strength of the prior toward the pooled covariance; None means half the number of axes.
    tails : {"fitted", "gaussian"}
    leave_one_out : bool
        Whether covariances are estimated from left-out rows.
    calibrate : bool
        Whether the weights of the views are fitted to left-out rows; otherwise they are equal.
    bent : bool
        Whether to compress large CSDA ratios, as in :func:`uncalibrated`, and to spread the
        negatives at least as widely as the positives.
    columns : float
        Number of columns of X; infinite for kernels. With few columns, k-means cells are narrow,
        and the calibration allows for that.
    ridged_axis : bool
        Whether Fisher's axis of a blend is computed from the ridged scatter if no positive can be
        left out.
    with_distance : bool
        Whether the views of a blend are averaged with the distance if no positive can be left out.
    """

    negatives: str = "blend"
    shrinkage: float | None = None
    tails: str = "fitted"
    leave_one_out: bool = True
    calibrate: bool = True
    bent: bool = False
    columns: float = field(default=np.inf, compare=False)
    ridged_axis: bool = field(default=True, compare=False)
    with_distance: bool = field(default=True, compare=False)


@dataclass(frozen=True)
class Fitted:
    """A fitted class-specific model.

    Attributes
    ----------
    subspace : Subspace
    density : Density
    calibration : Calibration
    left_out : array of shape (n,) or None
        Left-out log-likelihood ratios of the training rows, or of a sample of them.
    held_out : Scored or None
        Log-likelihood ratios of rows that were held out in folds, or whose row numbers are unknown.
    """

    subspace: Subspace
    density: Density
    calibration: Calibration
    left_out: Array | None = None
    held_out: Scored | None = None

    def left_out_of(self, n_rows: int) -> Array | None:
        """Return left-out log-likelihood ratios of all training rows; NaN for rows not left out."""
        left = self.subspace.left
        if self.left_out is None or left is None:
            return None
        return left.spread(self.left_out, n_rows)

    def without_numbers(self) -> Fitted:
        """Return the model with its left-out scores moved to `held_out`, without row numbers."""
        left = self.subspace.left
        if self.left_out is None or left is None:
            return self
        mass, together = left.unequal_mass, left.together
        rows = np.arange(len(left.groups)) if left.rows is None else left.rows
        known = Scored(self.left_out, left.groups == 0, mass, together, rows).finite()
        return replace(self, left_out=None, held_out=known)

    def score(self, rows: Any) -> Array:
        """Return the log-likelihood ratio of float64 rows, or of rows of kernel values."""
        return self.calibration(self.density.views(self.subspace.project(rows)))


def fit(
    factor: Factor,
    groups: Ints,
    rule: Rule,
    n_components: int | None = None,
    held_out: HeldOut | None = None,
    leave: Leave = EVERY,
) -> Fitted:
    """Fit a model for one division of the rows into groups.

    If no row can be left out, `held_out` provides the scores for the calibration.
    """
    leave_out = leave if rule.leave_one_out else None
    subspace = factor.solve(groups, n_components, leave_out=leave_out)
    return complete(subspace, rule, held_out=held_out)


def complete(
    subspace: Subspace, rule: Rule, near: Fitted | None = None, held_out: HeldOut | None = None
) -> Fitted:
    """Turn a subspace into a model by adding densities and calibration.

    If a similar model `near` is given, the fit of the calibration starts from the calibration of
    that model, which saves steps. If no row can be left out, `held_out` provides the scores for the
    calibration.
    """
    density, views = estimate(subspace, rule)
    if isinstance(density, NoDensity):
        return Fitted(subspace, density, Calibration.none(density.n_views))
    calibration, known = uncalibrated(subspace, density, rule), None
    if rule.calibrate:
        start = None if near is None else near.calibration
        found = None if views is None else _calibrate(subspace, density, views, rule, start)
        if found is not None:
            calibration = found
        elif held_out is not None:
            calibration, known = calibrated_on(calibration, held_out())
        else:
            calibration = Calibration.none(density.n_views)
        calibration = within_limits(calibration, subspace)
    scores = None if views is None else calibration(views)
    if scores is not None and subspace.left is not None:
        # Without its only row, the positive class has no mean to score with.
        scores[(subspace.left.groups == 0) & subspace.left.alone] = np.nan
    return Fitted(subspace, density, calibration, scores, known)


def within_limits(calibration: Calibration, subspace: Subspace) -> Calibration:
    """Limit ratios by the numbers of rows, unless they are limited already.

    Few rows are no strong evidence, also where there is nothing to calibrate on.
    """
    positives, *negatives = subspace.projected.counts
    return calibration.limited(max(float(positives), 1.0), max(float(sum(negatives)), 1.0))


def uncalibrated(subspace: Subspace, density: Density, rule: Rule) -> Calibration:
    """Return equal weights for the views; with `rule.bent`, also compress the CSDA ratio.

    CSDA finds axes on which the training positives coincide, so new positives lie many standard
    deviations from the mean, and a Gaussian ratio grows with the square of that distance. The
    compressed ratio preserves the order of scores, and grows like the ratio of a Student t
    distribution with d degrees of freedom.
    """
    none = Calibration.none(density.n_views)
    if not (rule.bent and subspace.single_negatives):
        return none
    width = len(subspace.eigenvalues)
    return replace(none, bend=width / 2, top=float(density.views(np.zeros((1, width)))[0, 0]))


def _calibrate(
    subspace: Subspace, density: Density, views: Array, rule: Rule, start: Calibration | None
) -> Calibration | None:
    """Calibrate the views on left-out rows.

    If positives are few, rows that resemble new positives are added; see `core.predictive`.
    Returns None unless both classes have scored rows.
    """
    left = subspace.left
    assert left is not None
    used = np.flatnonzero(left.scored)
    positive, weight = left.groups[used] == 0, left.evidence[used]
    # A single positive cannot be left out, and has no score.
    counts = [max(float(weight[own].sum()), 1.0) for own in (positive, ~positive)]
    scored = views[:, used], positive, weight
    views, positive, weight = with_pseudo_positives(subspace, density, *scored, rule.columns)
    if positive.all() or not positive.any():
        return None
    return fit_calibration(views, positive, weight, start).limited(*counts)


def calibrated_on(calibration: Calibration, unseen: Scored) -> tuple[Calibration, Scored | None]:
    """Fit slope and offset to scores of rows that the model has not seen.

    `calibration` is the one that gave these scores. Returns two values. The first is a calibration
    that applies `calibration`, then the fitted slope and offset. The second holds the calibrated
    scores. If a class has no scores, the returned calibration weights the views equally, and the
    returned scores are None.
    """
    unseen = unseen.finite()
    if not unseen.has_both:
        return Calibration.none(len(calibration.weights)), None
    scores, positive, weight = unseen.scores, unseen.positive, unseen.evidence
    found = fit_calibration(*with_strays(scores[None], positive, weight))
    counts = [float(weight[own].sum()) for own in (positive, ~positive)]
    then = calibration.then(found.slope, found.offset).limited(*counts)
    return then, unseen.with_scores(then.since(calibration)(scores[None]))


def estimate(subspace: Subspace, rule: Rule) -> tuple[Estimate | Near, Array | None]:
    """Return the densities in a subspace, and the views of left-out rows or None.

    The criterion's denominator on the axes, ``W'(S_I + eps I)W``, is the shrinkage target of
    covariances estimated from the training rows themselves, and a floor for covariances estimated
    from left-out rows. Without left-out rows, there are no views. The weights of a blend cannot be
    estimated then, so only the mixture is used.
    """
    projected, left = subspace.projected, subspace.left
    if left is None:
        return _resubstituted(subspace, rule), None
    moments = left_moments(subspace)
    if not rule.ridged_axis:
        moments = replace(moments, ridged=None)
    density = _fit_density(subspace, moments, rule)
    some_within = moments.n_within > 0
    seen_positive = moments.n_positive > 0 or (left.plain is not None and some_within)
    both = seen_positive and (projected.n_subclasses > 1 or some_within)
    if not both or len(left.groups) == 0 or isinstance(density, NoDensity):
        return density, None
    if rule.tails == "fitted":
        density = density.with_tails(left)
    views = density.left_out_views(left, projected.counts)
    none_out = not (left.groups[left.scored] == 0).any()
    if none_out and rule.with_distance and rule.calibrate and isinstance(density, Blend):
        return _nearer(density, views, subspace, rule)
    return density, views


def _nearer(
    density: Blend, views: Array, subspace: Subspace, rule: Rule
) -> tuple[Blend | Near, Array]:
    """Average the views with the distance, as no positive can be left out."""
    left, expected = subspace.left, pseudo_positives(subspace, rule.columns)
    assert left is not None
    negative = left.scored & (left.groups > 0)
    if expected is None or negative.sum() < ENOUGH_TO_SCALE:
        return density, views
    near = Near.fit(density, views[:, negative], left.coordinates[negative], expected[0])
    return near, near.mean_of(views, np.square(left.coordinates).sum(axis=1))


def left_moments(subspace: Subspace) -> Moments:
    """Return the statistics of left-out rows from which the densities are estimated."""
    assert subspace.left is not None
    (positive, n_positive), (within, n_within) = subspace.left.moments()
    # If every row is alone in its group, only the ridged scatter shows how rows vary.
    total = n_positive + n_within
    seen = replace(subspace.projected, positive=positive, within=within)
    pooled = seen.intra + RESIDUAL_FLOOR * subspace.ridged if total > 0 else subspace.ridged
    target = pooled / max(total, 1.0)
    return Moments(seen, target, n_positive, n_within, subspace.ridged)


def _resubstituted(subspace: Subspace, rule: Rule) -> Estimate:
    """Estimate densities from the projected training rows themselves, as in the paper."""
    projected = subspace.projected
    if subspace.single_negatives:
        target = subspace.ridged / projected.n_positive
        moments = Moments(projected, target, projected.n_positive, 0.0)
        density = _fit_density(subspace, moments, rule)
        if not isinstance(density, Marginal):
            return density
        density = replace(density, within=None)
        if subspace.reference is not None:
            density = density.about(subspace.reference)
        return density.widened() if rule.bent else density
    target = subspace.ridged / projected.counts.sum()
    moments = Moments(projected, target, projected.n_positive, projected.within_freedom)
    alone = replace(rule, negatives="mixture") if rule.negatives == "blend" else rule
    return _fit_density(subspace, moments, alone)


def _fit_density(subspace: Subspace, moments: Moments, rule: Rule) -> Estimate:
    """Fit the density; if a covariance is singular, return a placeholder that states the reason."""
    projected = subspace.projected
    width = len(subspace.eigenvalues)
    nu = width / 2 if rule.shrinkage is None else rule.shrinkage
    try:
        return fit_density(moments, negatives=rule.negatives, shrinkage=nu)
    except SingularMatrixError as error:
        # The spread of the prior comes from the ridge; without a ridge, there is none.
        remedy = "raise regularization" if nu > 0 else "set shrinkage='auto'"
        counts = f"{projected.n_positive:g} positives and {projected.n_negative:g} negatives "
        cause = f"are too few for n_components={width} axes; lower n_components or {remedy}"
        if nu > 0 and min(projected.n_positive, projected.n_negative) > ENOUGH * width:
            cause = (
                "do not differ next to the spread of all rows, so a few rows of X are far from all "
                "others, or regularization is 0; correct or leave out such rows, or raise it"
            )
        return NoDensity(
            f"{error}: {counts}{cause}. The subspace and the ranking by distance need no density"
        )
