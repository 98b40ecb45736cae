"""Estimate the share of positives hidden among the negatives, and allow for them (MATH 16).

The fit proceeds in steps. The first step treats all negatives as one subclass. Each later step sets
more rows apart, starting with the rows most like positives, and fits its model without them. The
model then scores these rows as unseen. So hidden positives come to light even if they form a
cluster: as a subclass, they would look like negatives.

Each step estimates the share. The first estimate is too low, because the first step treats hidden
positives as negatives. The last estimate is too high, because the last model lacks the negatives
most like positives, which it needs most. With ten positives or more, a comparison decides between
the two estimates. A model treats the suspects, which are the rows most like positives, as a
subclass of negatives, and scores both suspects and positives. If the model cannot tell them apart,
the suspects are positives; members of a similar class would score lower. With fewer positives,
such a comparison would be too noisy, so the final model sets apart a share between the two
estimates. Rows set apart do not join the positives, because a similar class would pull the positive
mean toward itself.

If the rows set apart are negatives after all, the final model lacks those that it needs most. So it
is joined with a plain model, which trusts all labels. Its weight grows with the share.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from .density import Density
from .fit import Fitted, Rule, estimate
from .linalg import Array, Ints, Mask, TooFewRowsError
from .loo import Leave
from .pair import weighted_mean
from .predictive import with_pseudo_positives
from .shares import (
    INTERVAL_DROP,
    LARGEST_SHARE,
    SHARES,
    SLOPE_SPREAD,
    Scores,
    Shares,
    expected_share,
    fit_shares,
    hidden_probability,
)
from .subspace import Factor, Subspace

# Standard deviation of the prior on the logarithm of a slope that is not fitted.
FIXED_SPREAD = 1e-3
# Expected slope of the views: with few positives, models are overconfident on unseen rows.
MODEL_SLOPE = 0.5
# With fewer positives than this, MODEL_SLOPE is also used to estimate the share, and suspects are
# not compared with the positives.
ENOUGH = 10
# Shares among which one is chosen by the comparison of suspects with positives.
FINE_SHARES = np.linspace(0.0, LARGEST_SHARE, 500)
# Shares of the unchecked rows that are set apart, step by step.
STEPS = (0.0, 0.04, 0.1, 0.22)
# Shares of the unchecked rows that are compared with the positives as suspects.
SUSPECTS = (0.01, 0.02, 0.035, 0.05, 0.075, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4)
# Added to shares before taking their geometric mean, so that a share near zero does not dominate.
SMALL_SHARE = 0.005
# If a step sets n rows apart, subclasses are formed without this many times n rows.
LOOSE = 2.0
# How far the profile log likelihood may drop at the lower end of the interval, twice as far as at
# the upper end. With the same drop, in planted data without hidden positives, the interval covered
# 0 in 73 to 77% of the problems with ten positives.
LOW_DROP = 2 * INTERVAL_DROP
# Weight of the model without the rows set apart: this many times the share, up to one half.
WEIGHT_PER_SHARE, MOST_WEIGHT = 10.0, 0.5
# Fraction of its weight that a row set apart keeps, so that weights stay above zero.
LEAST_REST = 1e-6


@dataclass(frozen=True)
class Contaminated:
    """A model that allows for hidden positives.

    Attributes
    ----------
    fitted : Fitted
    shares : Shares
    responsibilities : array of shape (N,)
        Probability that each row is a hidden positive; zero for checked rows.
    groups : array of shape (N,)
        Group of each row: 0 for positives, then the subclasses of the negatives.
    ratio : array of shape (N,)
        Log-likelihood ratio of each row, computed without the row if possible. Rows that were not
        left out have their ordinary score if unchecked, and NaN otherwise.
    """

    fitted: Fitted
    shares: Shares
    responsibilities: Array
    groups: Ints
    ratio: Array


@dataclass(frozen=True)
class Problem:
    """Inputs that all steps of the fit share.

    Attributes
    ----------
    factorise : function of weights
        Returns the factor of the rows with these weights; None means equal weights.
    rule : Rule
    n_components : int or None
    positive, unchecked : boolean arrays of shape (N,)
    weights : array of shape (N,) or None
    share : float or None
        The share of hidden positives; None if it must be estimated.
    leave : function of groups
        Returns which rows to leave out.
    score : function of a model and row numbers
        Returns the scores of rows that were not left out.
    regroup : function of a mask
        Returns the groups of all rows; the masked rows do not shape the subclasses.
    trust : function of the rows to leave out
        Returns a model that takes all labels as correct.
    """

    factorise: Callable[[Array | None], Factor]
    rule: Rule
    n_components: int | None
    positive: Mask
    unchecked: Mask
    weights: Array | None
    share: float | None
    leave: Callable[[Ints], Leave]
    score: Callable[[Fitted, Ints], Array]
    regroup: Callable[[Mask], Ints]
    trust: Callable[[Leave], Fitted]

    @property
    def weight(self) -> Array:
        """Weights of the rows; all ones if no weights were given."""
        return np.ones(len(self.positive)) if self.weights is None else self.weights


def fit_contaminated(problem: Problem) -> Contaminated:
    """Fit a model in steps, and join it with a model that takes all labels as correct.

    A share of zero gives the latter model alone. The share, its interval and the responsibilities
    come from the steps.
    """
    careful = _in_steps(problem)
    plain = problem.trust(problem.leave(careful.groups))
    left, others = plain.subspace.left, careful.fitted.subspace.left
    if left is None or others is None or plain.left_out is None:
        raise _nothing_left_out(problem, careful.groups)
    if not all(np.any(part.scored & (part.groups > 0)) for part in (left, others)):
        raise _nothing_left_out(problem, careful.groups)
    # Thresholds and counts weight left-out rows by their probability of being negative.
    left = replace(left, weights=others.weights)
    plain = replace(plain, subspace=replace(plain.subspace, left=left))
    fitted, share = plain, careful.shares.share
    if share > 0:
        weight = min(WEIGHT_PER_SHARE * share, MOST_WEIGHT)
        fitted = _recalibrated(problem, weighted_mean(plain, careful.fitted, weight), share)
    everyone = np.zeros(len(problem.positive), dtype=bool)
    return replace(careful, fitted=fitted, groups=problem.regroup(everyone))


def _recalibrated(problem: Problem, fitted: Fitted, share: float) -> Fitted:
    """Fit slope and offset of a joined model to its left-out scores, with the share held fixed.

    The plain model takes hidden positives for negatives, so its ratios are too low. With few
    positives, only the offset is fitted. Only the evidence for the class is limited: a limit of the
    evidence against it would raise the low ratios of many unchecked rows, which counts add up.
    """
    ratio, left = fitted.left_out, fitted.subspace.left_rows
    assert ratio is not None
    rows = np.arange(len(problem.positive)) if left.rows is None else left.rows
    mass = replace(left, weights=problem.weight[rows]).mass
    seen = left.scored & np.isfinite(ratio)
    kinds = problem.positive[rows[seen]], problem.unchecked[rows[seen]]
    few = np.sum(problem.positive) < ENOUGH
    scores = Scores(
        ratio[None, seen],
        *kinds,
        mass[seen],
        offset_spread=_offset_spread(fitted.subspace),
        slope_spread=FIXED_SPREAD if few else SLOPE_SPREAD,
    )
    found = fit_shares(scores, share).calibration
    calibration = fitted.calibration.then(found.slope, found.offset)
    calibration = calibration.limited(np.inf, float(mass[seen][~kinds[0]].sum()))
    left_out = calibration.since(fitted.calibration)(ratio[None])
    return replace(fitted, calibration=calibration, left_out=left_out)


def _offset_spread(subspace: Subspace) -> float:
    """Return the spread of the prior on the offset.

    A single positive lies at its own mean, and the offset has to compensate for that.
    """
    return 1 + 1 / max(float(subspace.projected.counts[0]), 1.0)


def _in_steps(problem: Problem) -> Contaminated:
    """Fit in steps; each sets rows apart, solves, and fits ratio and share to left-out scores.

    Each step but the first guesses which rows to set apart. Its profile likelihood ignores the
    uncertainty of that guess. So the interval of the share spans the intervals of the first step,
    the last step and the final model. The densities may describe the classes badly, and then the
    steps count positives that are not there, so the lower end is lower still.
    """
    factorise, weights = problem.factorise, problem.weights
    usual = factorise(weights)  # most steps use these weights
    problem = replace(problem, factorise=lambda own: usual if own is weights else factorise(own))
    way = [_one_crowd(problem)]
    for step in STEPS[1:]:
        way.append(_set_apart(problem, way[-1], step))
    first, last, share = way[0], way[-1], problem.share
    if share is None:
        suspicion = None
        if np.sum(problem.positive) >= ENOUGH:
            suspicion = _suspicion(problem, first.ratio)
        share = _between(first.shares, last.shares, suspicion)
    before = way[int(np.searchsorted(STEPS, share, side="right")) - 1]
    found = _set_apart(problem, before, share)
    least, most = sorted((first.shares.share, last.shares.share))
    held = min(max(found.shares.share, least), most)
    if problem.share is None and held != found.shares.share:
        # The first step underestimates the share and the last one overestimates it, so a share
        # outside this range is due to chance.
        found = _set_apart(replace(problem, share=held), before, share)
    steps = [one.shares for one in (first, last, found)]
    low = min(min(shares.interval[0], shares.lowest(LOW_DROP)) for shares in steps)
    high = max(shares.interval[1] for shares in steps)
    return replace(found, shares=replace(found.shares, interval=(low, high)))


def _one_crowd(problem: Problem) -> Contaminated:
    """Take the first step, in which all negatives are one subclass.

    Hidden positives move the mean of this subclass straight toward the positives, so they do not
    turn the axis. If hidden positives formed a subclass, it would lie next to the few known
    positives, and the axes would separate the two.
    """
    nobody = np.zeros(len(problem.positive), dtype=bool)
    crowd = (~problem.positive).astype(np.intp)
    return _step(replace(problem, regroup=lambda _: crowd, n_components=None), nobody, nobody)


def _set_apart(problem: Problem, before: Contaminated, share: float) -> Contaminated:
    """Take a step that sets apart the unchecked rows with the highest scores in the step `before`.

    `share` is the share of the unchecked rows to set apart.
    """
    apart = _most_alike(problem, before.ratio, share)
    # Remaining hidden positives must not form a subclass, where they would look like negatives.
    loose = _most_alike(problem, before.ratio, min(LOOSE * share, STEPS[-1]))
    return _step(problem, apart, apart | loose)


def _between(found: Shares, last: Shares, suspicion: Suspicion | None) -> float:
    """Choose the share to set apart, between the estimates of the first and of the last step.

    The first step, `found`, finds too few hidden positives, because some of its negatives are
    hidden positives and mask others. The last step finds too many, because it lacks the negatives
    most like positives and counts such rows as positives. The comparison of suspects with positives
    decides between the estimates. Without a comparison, the result is a geometric mean of the two.
    But if the last step's interval lies entirely above that of the first step, hidden positives
    form a subclass, and the last step is right.
    """
    if suspicion is not None:
        middle = 0.5 * np.interp(FINE_SHARES, SHARES, found.losses + last.losses)
        losses = middle + suspicion.losses(FINE_SHARES)
        return float(np.average(FINE_SHARES, weights=np.exp(losses.min() - losses)))
    if last.interval[0] > found.interval[1]:
        return last.share
    product = (expected_share(found.losses) + SMALL_SHARE) * (
        expected_share(last.losses) + SMALL_SHARE
    )
    return float(np.sqrt(product) - SMALL_SHARE)


@dataclass(frozen=True)
class Suspicion:
    """How often a positive outscores a suspect, for growing shares of suspects.

    Suspects are the unchecked rows most like positives. A model that treats them as a subclass of
    negatives scores left-out suspects and left-out positives. If suspects are positives, neither
    kind of row scores higher.

    Attributes
    ----------
    shares : array of shape (n,)
        Shares of the unchecked rows that are suspects, from 0 to `LARGEST_SHARE`.
    wins : array of shape (n,)
        Share of the (positive, suspect) pairs in which the positive scores higher, from 0 to 1.
    errors : array of shape (n,)
        Standard errors of `wins`.
    """

    shares: Array
    wins: Array
    errors: Array

    def losses(self, shares: Array) -> Array:
        """Return, for each share, minus the log likelihood that all suspects are positives."""
        wins, errors = (np.interp(shares, self.shares, of) for of in (self.wins, self.errors))
        # Below the smallest share that was tried, no suspects were compared.
        wins = np.where(shares < self.shares[1], np.minimum(wins, 0.5), wins)
        return 0.5 * ((wins - 0.5) / errors) ** 2


def _suspicion(problem: Problem, ratio: Array) -> Suspicion | None:
    """Compare positives with suspects, for each share in `SUSPECTS`.

    Returns None if there is nothing to compare, for example because no positive can be left out.
    """
    found = [(0.0, 0.0, 0.0)]
    for share in SUSPECTS:
        suspects = _most_alike(problem, ratio, share)
        if not suspects.any() or np.all(problem.positive | suspects):
            continue
        pair = _outscored(problem, suspects)
        if pair is None:
            return None
        found.append((share, max(pair[0], found[-1][1]), pair[1]))
    if len(found) == 1:
        return None
    shares, wins, errors = np.transpose([*found, (LARGEST_SHARE, 1.0, found[-1][2])])
    errors[0] = errors[1]
    return Suspicion(shares, wins, errors)


def _outscored(problem: Problem, suspects: Mask) -> tuple[float, float] | None:
    """Return the share of pairs in which a left-out positive outscores a left-out suspect.

    Also returns the standard error of this share. Returns None if either kind of row has no scores.
    """
    groups = np.where(problem.positive, 0, np.where(suspects, 1, 2))
    held = replace(problem, regroup=lambda _: groups, n_components=None, share=0.0)
    nobody = np.zeros(len(groups), dtype=bool)
    ratio = _step(held, nobody, nobody).ratio
    own, others = (np.flatnonzero(of & np.isfinite(ratio)) for of in (problem.positive, suspects))
    n, m = len(own), len(others)
    if n == 0 or m == 0:
        return None
    gap = ratio[own][:, None] - ratio[others]
    weight = np.outer(problem.weight[own], problem.weight[others])
    wins = np.sum(weight * ((gap > 0) + 0.5 * (gap == 0))) / weight.sum()
    return float(wins), float(np.sqrt((n + m + 1) / (12 * n * m)))


def _most_alike(problem: Problem, ratio: Array, share: float) -> Mask:
    """Return a mask of the unchecked rows most like positives, which have the highest `ratio`.

    `share` is the share of the unchecked rows to mark, by weight.
    """
    rows = np.flatnonzero(problem.unchecked)
    rows = rows[np.argsort(-ratio[rows], kind="stable")]
    weight = problem.weight[rows]
    apart = np.zeros(len(ratio), dtype=bool)
    apart[rows[np.cumsum(weight) - weight / 2 < share * weight.sum()]] = True
    return apart


def _nothing_left_out(problem: Problem, groups: Ints) -> TooFewRowsError:
    """Create the error for a fit that can leave out no rows.

    The cause may be blocks of rows left out together, subclasses of one row each, or few rows.
    """
    positive, leave = problem.positive, problem.leave(groups)
    sizes = f"{int(positive.sum())} positives", f"{int(np.sum(~positive))} negatives"
    cause, remedy = " and ".join(sizes) + " are too few", "give more rows, raise regularization"
    blocks = np.arange(len(groups)) if leave.together is None else leave.together
    parts = set(zip(groups[~positive].tolist(), blocks[~positive].tolist(), strict=True))
    if 1 < len(parts) == groups.max():
        cause = "no subclass has two rows, or rows of two groups"
        remedy = "lower n_subclasses or give fewer subclass labels"
    if leave.together is not None:
        classes = zip(sizes, (positive, ~positive), strict=True)
        whole = [f"all {size}" for size, rows in classes if np.ptp(leave.together[rows]) == 0]
        if whole:
            cause = f"groups puts {' and '.join(whole)} into one group"
            remedy = "give each recording, person or day its own group"
    return TooFewRowsError(
        f"contamination is estimated from left-out rows, but none can be left out: {cause}; "
        f"{remedy} or set contamination=0"
    )


def _step(problem: Problem, apart: Mask, loose: Mask) -> Contaminated:
    """Fit a model without the rows marked `apart`, and fit ratio and share to left-out scores.

    Rows marked `loose` do not shape the subclasses.
    """
    weights, groups = problem.weights, problem.regroup(loose)
    if apart.any():
        weights = np.where(apart, LEAST_REST, 1.0) * problem.weight
    leave = problem.leave(groups)
    rows = leave.of(len(groups))
    factor = problem.factorise(weights)
    subspace = factor.solve(groups, problem.n_components, leave_out=leave)
    # Without the rows set apart, the axis of the ridged scatter may overlook a class similar to the
    # positive class. The share is estimated from log ratios, which the distance is not.
    rule = replace(problem.rule, ridged_axis=False, with_distance=False)
    density, views = estimate(subspace, rule)
    if views is None:
        raise _nothing_left_out(problem, groups)
    scores = _scores(problem, subspace, density, views, rows)
    # If hidden positives are far from the negatives, all slopes fit equally well, and a low slope
    # would attribute their high scores to chance. So the share is estimated with an expected slope
    # of one. With few positives, this slope would set apart rows that merely resemble positives,
    # and would harm the ranking.
    few = np.sum(problem.positive) < ENOUGH
    shares = fit_shares(scores if few else replace(scores, slope=1.0), problem.share)
    held = fit_shares(scores, shares.share)
    shares = replace(shares, calibration=held.calibration)
    fitted = Fitted(subspace, density, shares.calibration)
    return _with_responsibilities(problem, fitted, shares, views, rows, groups)


def _with_responsibilities(
    problem: Problem, fitted: Fitted, shares: Shares, views: Array, rows: Ints, groups: Ints
) -> Contaminated:
    """Compute each unchecked row's probability of being positive, and assemble the result.

    The probabilities come from left-out scores where available, otherwise from ordinary scores.
    """
    left = fitted.subspace.left_rows
    ratio = np.full(len(groups), np.nan)
    ratio[rows] = shares.calibration(views)
    # Without its only row, the positive class has no mean to score with.
    ratio[rows[(left.groups == 0) & left.alone]] = np.nan
    known = ratio.copy()
    rest = np.flatnonzero(problem.unchecked & np.isnan(ratio))
    if len(rest):
        known[rest] = problem.score(fitted, rest)
    hidden = np.zeros(len(groups))
    hidden[problem.unchecked] = hidden_probability(known[problem.unchecked], shares.share)
    # Thresholds and counts weight left-out rows by their probability of being negative.
    weight = problem.weight * np.maximum(1 - hidden, LEAST_REST)
    left = replace(left, weights=weight[rows])
    subspace = replace(fitted.subspace, left=left)
    fitted = replace(fitted, subspace=subspace, left_out=ratio[rows])
    return Contaminated(fitted, shares, hidden, groups, known)


def _scores(
    problem: Problem, subspace: Subspace, density: Density, views: Array, rows: Ints
) -> Scores:
    """Return the views of left-out rows that have scores.

    If positives are few, rows that resemble new positives are added; see `core.predictive`.
    """
    left = subspace.left_rows
    mass = replace(left, weights=problem.weight[rows]).mass
    used = np.flatnonzero(left.scored)
    positive, unchecked = problem.positive[rows[used]], problem.unchecked[rows[used]]
    scored = views[:, used], positive, mass[used]
    found, positive, mass = with_pseudo_positives(subspace, density, *scored, problem.rule.columns)
    unchecked = np.append(unchecked, np.zeros(len(positive) - len(unchecked), dtype=bool))
    return Scores(found, positive, unchecked, mass, MODEL_SLOPE, _offset_spread(subspace))
