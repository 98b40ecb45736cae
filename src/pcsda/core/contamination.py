"""Estimate the share of positives hidden among the negatives, and allow for them (MATH 16).

Negatives that nobody has checked may include positives. A log ratio fitted to such a contaminated
sample shows no excess of positives in it, so the share cannot be estimated from the ratio
afterwards. Share and ratio are estimated together, from scores of rows that the model has not seen.

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
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.integrate import trapezoid
from scipy.optimize import brentq, minimize_scalar
from scipy.special import expit, xlogy

from .calibration import Calibration
from .density import Density
from .fit import Fitted, Rule, estimate
from .linalg import Array, Ints, Mask, TooFewRowsError
from .logistic import softplus
from .loo import Leave
from .predictive import with_pseudo_positives
from .subspace import Factor, Subspace

# Standard deviation of the prior on the logarithm of the slope.
SLOPE_SPREAD = 0.5
# Expected slope of the views: with few positives, models are overconfident on unseen rows.
MODEL_SLOPE = 0.5
# With fewer positives than this, MODEL_SLOPE is also used to estimate the share, and suspects are
# not compared with the positives.
ENOUGH = 10
# Mean of the exponential prior on the share, used for the expected share.
SHARE_SCALE = 0.15
# Grid on which the search for the best share starts; the share stays below one half.
LARGEST_SHARE = 0.499
SHARES = np.append(0.0, np.geomspace(2e-3, LARGEST_SHARE, 20))
FINE_SHARES = np.linspace(0.0, LARGEST_SHARE, 500)
# How far the profile log likelihood may drop within a 90 % interval: half the 90 % quantile of
# chi-square with one degree of freedom.
INTERVAL_DROP = 1.3528
# Shares of the unchecked rows that are set apart, step by step.
STEPS = (0.0, 0.04, 0.1, 0.22)
# Shares of the unchecked rows that are compared with the positives as suspects.
SUSPECTS = (0.01, 0.02, 0.035, 0.05, 0.075, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4)
# Added to shares before taking their geometric mean, so that a share near zero does not dominate.
SMALL_SHARE = 0.005
# If a step sets n rows apart, subclasses are formed without this many times n rows.
LOOSE = 2.0
# Fraction of its weight that a row set apart keeps, so that weights stay above zero.
LEAST_REST = 1e-6


@dataclass(frozen=True)
class Scores:
    """Views of rows that a model has not seen, with the rows' labels and weights.

    Attributes
    ----------
    views : array of shape (V, n)
    positive, unchecked : boolean arrays of shape (n,)
        Labelled positives and unchecked rows; all other rows are checked negatives.
    weight : array of shape (n,)
    slope : float
        Centre of the prior on the slope; 1 means that the views are expected to be log-likelihood
        ratios already.
    offset_spread : float
        Standard deviation of the prior on the offset.
    """

    views: Array
    positive: Mask
    unchecked: Mask
    weight: Array
    slope: float = 1.0
    offset_spread: float = 1.0


@dataclass(frozen=True)
class Shares:
    """A calibration and the share of hidden positives.

    Attributes
    ----------
    calibration : Calibration
    share : float
        The share of positives among the unchecked rows, estimated or given.
    interval : pair of float
        90 % profile-likelihood interval for the share. If the share was given, both ends equal it.
    losses : array of shape (n,)
        Minus the profile log likelihood at each share in `SHARES`; empty if the share was given.
    """

    calibration: Calibration
    share: float
    interval: tuple[float, float]
    losses: Array


def hidden_probability(ratio: Array, share: float) -> Array:
    """Return the probability that each unchecked row is positive.

    `ratio` holds the log-likelihood ratios of the rows, and `share` is the prior probability.
    """
    if share == 0:
        return np.zeros_like(ratio)
    probability: Array = expit(ratio + np.log(share / (1 - share)))
    return probability


def fit_shares(scores: Scores, share: float | None = None) -> Shares:
    """Fit slopes, offset and the share of hidden positives jointly; a given `share` is held fixed.

    A row with log-likelihood ratio r is a labelled positive, an unchecked row or a checked negative
    with odds ``N_p e^r : N_u (1 - pi + pi e^r) : N_c``. Here pi is the share, and N_p, N_u and N_c
    are the total weights of the three kinds of rows. With V views, ``r = a @ views + b``. The
    priors are ``ln(V a) ~ N(ln a_0, 0.5^2)``, ``b ~ N(0, s^2)`` and ``pi < 1/2``, where a_0 is
    `scores.slope` and s is `scores.offset_spread`.
    """
    profile = _Profile(scores)
    if share is not None:
        return Shares(profile.calibration(share), share, (share, share), np.empty(0))
    losses = np.array([profile(value) for value in SHARES])
    at = int(losses.argmin())
    bounds = SHARES[max(at - 1, 0)], SHARES[min(at + 1, len(SHARES) - 1)]
    found = minimize_scalar(profile, bounds=bounds, method="bounded", options={"xatol": 1e-4})
    share = float(found.x if found.fun < losses[at] else SHARES[at])
    interval = _interval(profile, share, losses)
    return Shares(profile.calibration(share), share, interval, losses)


def _expected(losses: Array) -> float:
    """Return the posterior mean of the share of hidden positives, given the losses at `SHARES`.

    The mean is used because, with few positives, nearly every share is possible, and the most
    likely share may be 0 or the largest of `SHARES`.
    """
    total = losses + SHARES / SHARE_SCALE
    likely = np.exp(total.min() - total)
    return float(trapezoid(SHARES * likely, SHARES) / trapezoid(likely, SHARES))


def _interval(profile: _Profile, share: float, losses: Array) -> tuple[float, float]:
    """Return the ends of the interval around the best share where the loss is near its minimum.

    `losses` are the losses at `SHARES`. The loss may exceed its minimum by `INTERVAL_DROP`.
    """
    bound = profile(share) + INTERVAL_DROP

    def excess(value: float) -> float:
        return profile(value) - bound

    below = SHARES[(losses > bound) & (share > SHARES)]
    above = SHARES[(losses > bound) & (share < SHARES)]
    low, high = 0.0, LARGEST_SHARE
    if len(below):
        low = float(brentq(excess, below[-1], share, xtol=1e-5))
    if len(above):
        high = float(brentq(excess, share, above[0], xtol=1e-5))
    return low, high


class _Profile:
    """The smallest loss over slopes and offset, as a function of the share.

    The loss is minus the log posterior. A point is a vector of the log slopes and the offset. Each
    search starts from the solution for the nearest share that has already been solved.
    """

    def __init__(self, scores: Scores) -> None:
        weight = scores.weight
        self._columns = np.vstack([scores.views, np.ones_like(weight)])
        self._weight = weight
        self._positive = np.where(scores.positive, weight, 0.0)
        self._unchecked = np.where(scores.unchecked, weight, 0.0)
        kinds = scores.positive, scores.unchecked, ~scores.positive & ~scores.unchecked
        self._masses = np.array([weight[kind].sum() for kind in kinds])
        n_views = len(scores.views)
        spreads = np.append(np.full(n_views, SLOPE_SPREAD), scores.offset_spread)
        self._precision = spreads**-2.0
        self._middle = np.append(np.full(n_views, np.log(scores.slope)), 0.0)
        self._found: dict[float, tuple[float, Array]] = {}

    def __call__(self, share: float) -> float:
        if share not in self._found:
            near = self._middle
            if self._found:
                near = self._found[min(self._found, key=lambda known: abs(known - share))][1]
            self._found[share] = self._minimise(near, share)
        return self._found[share][0]

    def calibration(self, share: float) -> Calibration:
        """Return the best slopes and offset for a given share of hidden positives."""
        self(share)
        point = self._found[share][1]
        return Calibration(tuple(map(float, self._slopes(point))), float(point[-1]))

    def _slopes(self, point: Array) -> Array:
        slopes: Array = np.exp(np.clip(point[:-1], -10, 10)) / (len(point) - 1)
        return slopes

    def _minimise(self, point: Array, share: float) -> tuple[float, Array]:
        """Minimise the loss for a given share by damped Newton steps that start from `point`.

        The loss is not convex, so the steps use the absolute eigenvalues of the Hessian. Returns
        the smallest loss and its point.
        """
        mixed = _Mixed.of(share, self._masses)
        loss, gradient, hessian = self._loss(point, mixed)
        for _ in range(100):
            values, vectors = np.linalg.eigh(hessian)
            step = vectors @ ((vectors.T @ gradient) / np.maximum(np.abs(values), 1e-3))
            gain, size = float(gradient @ step), 1.0
            if gain < 1e-10 * max(1.0, abs(loss)):
                break
            while (found := self._loss(point - size * step, mixed))[0] > loss - 1e-4 * size * gain:
                size /= 2
                if size < 1e-8:
                    return loss, point
            point, (loss, gradient, hessian) = point - size * step, found
        return loss, point

    def _loss(self, point: Array, mixed: _Mixed) -> tuple[float, Array, Array]:
        """Return the loss at a point for a given share, with its gradient and Hessian.

        In the notation of :func:`fit_shares`, and without the prior, the loss is a difference of
        two logistic losses ``s(t) = ln(1 + e^t)``. A row with log-likelihood ratio r is positive
        with odds ``e^r (N_p + pi N_u) / (N_c + (1 - pi) N_u)``. Each row adds s of the logarithm of
        these odds, and a labelled positive subtracts r. An unchecked row is positive with odds
        ``e^r pi / (1 - pi)``, and subtracts s of their logarithm.
        """
        slopes, columns = self._slopes(point), self._columns
        ratio = slopes @ columns[:-1]
        ratio += point[-1]
        total, chance, bend = softplus(ratio + mixed.all_rows)
        crowd, hidden, turn = softplus(ratio + mixed.unchecked)
        loss = self._weight @ total - self._unchecked @ crowd - self._positive @ ratio
        pull = self._weight * chance - self._unchecked * hidden - self._positive
        curve = self._weight * bend - self._unchecked * turn
        gradient, hessian = columns @ pull, (columns * curve) @ columns.T
        gradient[:-1] *= slopes  # a point holds the logarithms of the slopes
        hessian[:-1] *= slopes[:, None]
        hessian[:, :-1] *= slopes
        off = point - self._middle
        prior = self._precision * off
        change = self._precision.copy()
        change[:-1] += gradient[:-1]
        hessian.flat[:: len(point) + 1] += change
        return float(loss + mixed.constant + 0.5 * prior @ off), gradient + prior, hessian


@dataclass(frozen=True)
class _Mixed:
    """What a share of hidden positives adds to the loss.

    Attributes
    ----------
    all_rows, unchecked : float
        Log odds that a row, or an unchecked row, of log-likelihood ratio 0 is positive.
    constant : float
        The part of the loss that depends on no score.
    """

    all_rows: float
    unchecked: float
    constant: float

    @classmethod
    def of(cls, share: float, masses: Array) -> _Mixed:
        """Mix with a share; `masses` holds ``N_p``, ``N_u`` and ``N_c``."""
        own, open_, other = masses
        inside, outside = own + share * open_, other + (1 - share) * open_
        constant = masses.sum() * np.log(outside) - open_ * np.log1p(-share)
        constant -= xlogy(masses, masses).sum()
        hidden = np.log(max(share, 1e-300) / (1 - share))
        return cls(float(np.log(inside / outside)), float(hidden), float(constant))


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

    @property
    def weight(self) -> Array:
        """Weights of the rows; all ones if no weights were given."""
        return np.ones(len(self.positive)) if self.weights is None else self.weights


def fit_contaminated(problem: Problem) -> Contaminated:
    """Fit in steps; each sets rows apart, solves, and fits ratio and share to left-out scores.

    Each step but the first guesses which rows to set apart. Its profile likelihood ignores the
    uncertainty of that guess. So the interval of the share spans the intervals of the first step,
    the last step and the final model.
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
    lows, highs = zip(*(one.shares.interval for one in (first, last, found)), strict=True)
    return replace(found, shares=replace(found.shares, interval=(min(lows), max(highs))))


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
    product = (_expected(found.losses) + SMALL_SHARE) * (_expected(last.losses) + SMALL_SHARE)
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


def _nothing_left_out(problem: Problem, leave: Leave) -> TooFewRowsError:
    """Create the error for a fit that can leave out no rows, because of groups or of few rows."""
    positive = problem.positive
    sizes = f"{int(positive.sum())} positives", f"{int(np.sum(~positive))} negatives"
    cause, remedy = " and ".join(sizes) + " are too few", "give more rows, raise regularization"
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
    # positive class.
    density, views = estimate(subspace, replace(problem.rule, ridged_axis=False))
    if views is None:
        raise _nothing_left_out(problem, leave)
    scores = _scores(problem, subspace, density, views, rows)
    # If hidden positives are far from the negatives, all slopes fit equally well, and a low slope
    # would attribute their high scores to chance. So the share is estimated with an expected slope
    # of one. With few positives, this slope would set apart rows that merely resemble positives,
    # and would harm the ranking.
    own = problem.share is not None or np.sum(problem.positive) < ENOUGH
    shares = fit_shares(scores if own else replace(scores, slope=1.0), problem.share)
    if problem.share is None:
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
    left = fitted.subspace.left
    assert left is not None
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
    left = subspace.left
    assert left is not None
    mass = replace(left, weights=problem.weight[rows]).mass
    used = np.flatnonzero(left.scored)
    positive, unchecked = problem.positive[rows[used]], problem.unchecked[rows[used]]
    scored = views[:, used], positive, mass[used]
    found, positive, mass = with_pseudo_positives(subspace, density, *scored, problem.rule.columns)
    unchecked = np.append(unchecked, np.zeros(len(positive) - len(unchecked), dtype=bool))
    # A single positive lies at its own mean, and the offset has to compensate for that.
    spread = 1 + 1 / max(float(subspace.projected.counts[0]), 1.0)
    return Scores(found, positive, unchecked, mass, MODEL_SLOPE, spread)
