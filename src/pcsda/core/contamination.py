"""Positives hidden among the negatives (MATH 16): their share, and a model that knows of them.

Negatives that nobody has looked at hold some positives. A ratio against such a crowd sees no excess
of positives in that same crowd, so its share cannot be read off the ratio afterwards: both are
estimated together, on scores of rows that the model has not seen.

The first step takes all negatives for one crowd. Then rows are set apart step by step, those first
that look most like positives. They take no part in the model of a step, which scores them as rows
it has not seen; so hidden positives that lie together, and make a subclass of their own in which
they look like negatives, come out in the end. Each step has its estimate of the share. The first
finds too few, because positives are among its negatives, and the last too many, because negatives
that are like positives were set apart, of which a model has most to learn. The model that is kept
sets a share apart that lies between the two. Rows set apart do not join the positives: a class that
is like them would draw their mean to itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.integrate import trapezoid
from scipy.optimize import brentq, minimize_scalar
from scipy.special import expit

from .calibration import Calibration
from .density import Density
from .fit import Fitted, Rule, estimate
from .linalg import Array, Ints, Mask, TooFewRowsError
from .loo import Leave
from .predictive import with_pseudo_positives
from .subspace import Factor, Subspace

# Spread of the prior on the logarithm of the slope.
SLOPE_SPREAD = 0.5
# Slope expected of the views of a model: few positives leave it surer of itself than rows show that
# it has not seen.
MODEL_SLOPE = 0.5
# With fewer positives than this, the share is found with that slope too.
ENOUGH = 10
# Mean of an exponential prior on the share, by which the expected share is found.
SHARE_SCALE = 0.15
# The search for the best share begins from these, and ends below a half.
LARGEST_SHARE = 0.499
SHARES = np.append(0.0, np.geomspace(2e-3, LARGEST_SHARE, 11))
# Half the 90 % quantile of chi-square with one degree of freedom: how far the profile of the log
# likelihood may fall inside a 90 % interval.
INTERVAL_DROP = 1.3528
# Shares of the unchecked rows that are set apart, step by step.
STEPS = (0.0, 0.04, 0.1, 0.22)
# Shares below this are alike.
SMALL_SHARE = 0.005
# So many times as many rows as are set apart do not shape subclasses.
LOOSE = 2.0
# The part of its weight that a row set apart keeps, so that weights stay above zero.
LEAST_REST = 1e-6


@dataclass(frozen=True)
class Expectation:
    """What is expected of views before rows are seen: by default, log-likelihood ratios.

    Attributes
    ----------
    slope : float
        Middle of the prior on the slope.
    offset_spread : float
    """

    slope: float = 1.0
    offset_spread: float = 1.0


@dataclass(frozen=True)
class Scores:
    """Views of rows that a model has not seen, and what is known of each row.

    Attributes
    ----------
    views : array of shape (V, n)
    positive, unchecked : boolean arrays of shape (n,)
        Labelled positives, and rows nobody looked at; all others are checked negatives.
    weight : array of shape (n,)
    expected : Expectation
    """

    views: Array
    positive: Mask
    unchecked: Mask
    weight: Array
    expected: Expectation = Expectation()

    @property
    def log_masses(self) -> Array:
        """Log total weights of positives, unchecked rows and checked negatives."""
        checked = ~self.positive & ~self.unchecked
        masses = [self.weight[part].sum() for part in (self.positive, self.unchecked, checked)]
        with np.errstate(divide="ignore"):
            logs: Array = np.log(masses)
        return logs


@dataclass(frozen=True)
class Shares:
    """A calibration and the share of hidden positives that goes with it.

    Attributes
    ----------
    calibration : Calibration
    share : float
    interval : pair of float
        90 % interval of the share by profile likelihood; the share twice where it was given.
    expected : float
        Mean of the share over its profile and an exponential prior; the share itself where it was
        given. Beside few positives nearly every share is possible, and the most probable one may be
        0 or the largest.
    """

    calibration: Calibration
    share: float
    interval: tuple[float, float]
    expected: float


def hidden_probability(ratio: Array, share: float) -> Array:
    """Probability of a positive among rows of which a `share` are positives."""
    if share == 0:
        return np.zeros_like(ratio)
    probability: Array = expit(ratio + np.log(share / (1 - share)))
    return probability


def fit_shares(scores: Scores, share: float | None = None) -> Shares:
    """Fit slopes, offset and the share of hidden positives together; a given `share` is held.

    A row of log-likelihood ratio r is a labelled positive, unchecked, or a checked negative with
    odds ``N_p e^r : N_u (1 - pi + pi e^r) : N_c``. With V views ``r = a @ views + b``, and the
    priors are ``ln(V a) ~ N(ln a_0, 0.5^2)``, ``b ~ N(0, s^2)`` and ``pi < 1/2``, with the slope
    a_0 and the spread s that the scores are expected to have.
    """
    profile = _Profile(scores)
    if share is not None:
        return Shares(profile.calibration(share), share, (share, share), share)
    losses = np.array([profile(value) for value in SHARES])
    at = int(losses.argmin())
    bounds = SHARES[max(at - 1, 0)], SHARES[min(at + 1, len(SHARES) - 1)]
    found = minimize_scalar(profile, bounds=bounds, method="bounded", options={"xatol": 1e-4})
    share = float(found.x if found.fun < losses[at] else SHARES[at])
    interval = _interval(profile, share, losses)
    return Shares(profile.calibration(share), share, interval, _expected(losses))


def _expected(losses: Array) -> float:
    """Mean share under its prior by the trapezoidal rule, given the losses at `SHARES`."""
    total = losses + SHARES / SHARE_SCALE
    likely = np.exp(total.min() - total)
    return float(trapezoid(SHARES * likely, SHARES) / trapezoid(likely, SHARES))


def _interval(profile: _Profile, share: float, losses: Array) -> tuple[float, float]:
    """Shares around the best one whose loss is little above the least."""
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
    """Least loss over slopes and offset as a function of the share; each search starts near.

    The loss is minus the log posterior. A point has logarithms of slopes, and the offset.
    """

    def __init__(self, scores: Scores) -> None:
        self._scores = scores
        self._masses = scores.log_masses[:, None]
        n_views = len(scores.views)
        self._precision = (
            np.append(np.full(n_views, SLOPE_SPREAD), scores.expected.offset_spread) ** -2.0
        )
        self._middle = np.append(np.full(n_views, np.log(scores.expected.slope)), 0.0)
        self._found: dict[float, tuple[float, Array]] = {}

    def __call__(self, share: float) -> float:
        if share not in self._found:
            near = self._middle
            if self._found:
                near = self._found[min(self._found, key=lambda known: abs(known - share))][1]
            self._found[share] = self._minimise(near, share)
        return self._found[share][0]

    def calibration(self, share: float) -> Calibration:
        """Slopes and offset that go best with a share."""
        self(share)
        point = self._found[share][1]
        return Calibration(tuple(map(float, self._slopes(point))), float(point[-1]))

    def _slopes(self, point: Array) -> Array:
        slopes: Array = np.exp(np.clip(point[:-1], -10, 10)) / len(self._scores.views)
        return slopes

    def _minimise(self, point: Array, share: float) -> tuple[float, Array]:
        """Damped Newton steps; the loss is not convex, so curvatures are taken as positive."""
        loss, gradient, hessian = self._loss(point, share)
        for _ in range(100):
            values, vectors = np.linalg.eigh(hessian)
            step = vectors @ ((vectors.T @ gradient) / np.maximum(np.abs(values), 1e-3))
            gain, size = float(gradient @ step), 1.0
            if gain < 1e-10 * max(1.0, abs(loss)):
                break
            while (found := self._loss(point - size * step, share))[0] > loss - 1e-4 * size * gain:
                size /= 2
                if size < 1e-8:
                    return loss, point
            point, (loss, gradient, hessian) = point - size * step, found
        return loss, point

    def _loss(self, point: Array, share: float) -> tuple[float, Array, Array]:
        """Loss at a point with gradient and Hessian."""
        scores = self._scores
        positive, unchecked, weight = scores.positive, scores.unchecked, scores.weight
        slopes = self._slopes(point)
        ratio = slopes @ scores.views + point[-1]
        hidden = hidden_probability(ratio, share)
        crowd = np.logaddexp(np.log1p(-share), ratio + np.log(max(share, 1e-300)))
        logs = np.stack([ratio, crowd, np.zeros_like(ratio)]) + self._masses
        total = np.logaddexp.reduce(logs, axis=0)
        own = np.where(positive, logs[0], np.where(unchecked, logs[1], logs[2]))
        toward = np.where(positive, 1.0, np.where(unchecked, hidden, 0.0))
        labelled, open_ = np.exp(logs[:2] - total)
        mean = labelled + open_ * hidden
        pull = weight * (mean - toward)
        turn = hidden * (1 - hidden)
        curve = labelled + open_ * (hidden**2 + turn) - mean**2 - np.where(unchecked, turn, 0.0)
        change = np.vstack([slopes[:, None] * scores.views, np.ones_like(ratio)])
        gradient = change @ pull
        hessian = (change * (weight * curve)) @ change.T
        hessian[np.diag_indices(len(slopes))] += gradient[:-1]
        off = point - self._middle
        loss = weight @ (total - own) + 0.5 * self._precision @ off**2
        prior = self._precision * off
        return float(loss), gradient + prior, hessian + np.diag(self._precision)


@dataclass(frozen=True)
class Contaminated:
    """A model fitted with hidden positives in mind.

    Attributes
    ----------
    fitted : Fitted
    shares : Shares
    responsibilities : array of shape (N,)
        Probability of each row to be a hidden positive; zero for rows that were checked.
    groups : array of shape (N,)
    ratio : array of shape (N,)
        Left-out log-likelihood ratios, or new ones of rows that were not left out.
    """

    fitted: Fitted
    shares: Shares
    responsibilities: Array
    groups: Ints
    ratio: Array


@dataclass(frozen=True)
class Problem:
    """What the steps need.

    Attributes
    ----------
    factorise : function of weights
        The factor of the rows with given weights; None where all weigh the same.
    rule : Rule
    n_components : int or None
    positive, unchecked : boolean arrays of shape (N,)
    weights : array of shape (N,) or None
    share : float or None
        The share of hidden positives; None estimates it.
    leave : function of groups
        Which rows are left out.
    score : function of a model and row numbers
        Scores of rows that are not among those left out.
    regroup : function of a mask
        Groups of the rows, where the masked ones do not shape the subclasses.
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
        """Weights of the rows."""
        return np.ones(len(self.positive)) if self.weights is None else self.weights


def fit_contaminated(problem: Problem) -> Contaminated:
    """Fit in steps: set rows apart, solve, fit ratio and share to left-out scores.

    The model of a later step rests on guesses, of which its profile likelihood knows nothing; that
    of the first rests on none. So the interval spans those of the first, the last and the model.
    """
    way = [_one_crowd(problem)]
    for step in STEPS[1:]:
        way.append(_set_apart(problem, way[-1], step))
    first, last, share = way[0], way[-1], problem.share
    if share is None:
        share = _between(first.shares, last.shares)
    before = way[int(np.searchsorted(STEPS, share, side="right")) - 1]
    found = _set_apart(problem, before, share)
    least, most = sorted((first.shares.share, last.shares.share))
    held = min(max(found.shares.share, least), most)
    if problem.share is None and held != found.shares.share:
        # The first finds too few and the last too many: what lies outside is chance.
        found = _set_apart(replace(problem, share=held), before, share)
    lows, highs = zip(*(one.shares.interval for one in (first, last, found)), strict=True)
    return replace(found, shares=replace(found.shares, interval=(min(lows), max(highs))))


def _one_crowd(problem: Problem) -> Contaminated:
    """First step: all negatives are one subclass.

    Hidden positives move the mean of the crowd straight toward the positives, which turns no axis.
    A subclass that they make up lies beside the few examples, and axes would point away from it.
    """
    nobody = np.zeros(len(problem.positive), dtype=bool)
    crowd = (~problem.positive).astype(np.intp)
    return _step(replace(problem, regroup=lambda _: crowd, n_components=None), nobody, nobody)


def _set_apart(problem: Problem, before: Contaminated, share: float) -> Contaminated:
    """Set the rows apart that an earlier step found most like positives."""
    apart = _most_alike(problem, before.ratio, share)
    # Hidden positives that are left must not make a subclass, in which they look like negatives.
    loose = _most_alike(problem, before.ratio, min(LOOSE * share, STEPS[-1]))
    return _step(problem, apart, apart | loose)


def _between(found: Shares, last: Shares) -> float:
    """Share to set apart, between that of a step and that of the last.

    An early step has positives among its negatives, which hide others: it finds too few. The last
    has lost negatives that are like positives, and takes them for some: it finds too many. Where
    the two contradict each other, hidden positives are a subclass, and the last is right.
    """
    if last.interval[0] > found.interval[1]:
        return last.share
    middle = np.sqrt((found.expected + SMALL_SHARE) * (last.expected + SMALL_SHARE))
    return float(middle - SMALL_SHARE)


def _most_alike(problem: Problem, ratio: Array, share: float) -> Mask:
    """A share of the unchecked rows: those that are most like positives."""
    rows = np.flatnonzero(problem.unchecked)
    rows = rows[np.argsort(-ratio[rows], kind="stable")]
    weight = problem.weight[rows]
    apart = np.zeros(len(ratio), dtype=bool)
    apart[rows[np.cumsum(weight) - weight / 2 < share * weight.sum()]] = True
    return apart


def _step(problem: Problem, apart: Mask, loose: Mask) -> Contaminated:
    """Solve without rows that are set apart, and fit ratio and share to left-out scores.

    Rows that are loose do not shape subclasses.
    """
    weights, groups = problem.weights, problem.regroup(loose)
    if apart.any():
        weights = np.where(apart, LEAST_REST, 1.0) * problem.weight
    leave = problem.leave(groups)
    rows = leave.of(len(groups))
    factor = problem.factorise(weights)
    subspace = factor.solve(groups, problem.n_components, leave_out=leave)
    density, views = estimate(subspace, problem.rule)
    if views is None:
        raise TooFewRowsError(
            "contamination is estimated on left-out rows, and none can be left out: "
            f"{int(problem.positive.sum())} positives and {int(np.sum(~problem.positive))} "
            "negatives are too few; give more rows, raise regularization or set contamination=0"
        )
    scores = _scores(problem, subspace, density, views, rows)
    few = np.sum(problem.positive) < ENOUGH
    shares = fit_shares(scores if few else _taken_as_ratios(scores), problem.share)
    held = fit_shares(scores, shares.share)
    shares = replace(shares, calibration=held.calibration)
    fitted = Fitted(subspace, density, shares.calibration)
    return _with_responsibilities(problem, fitted, shares, views, rows, groups)


def _taken_as_ratios(scores: Scores) -> Scores:
    """The same scores, of which slope one is expected.

    Where hidden positives lie clear of the negatives, all slopes fit alike, and a low one would
    take them for chance. So the share is found this way, unless positives are few: then rows that
    are only like positives would be set apart, and ranking would suffer.
    """
    return replace(scores, expected=replace(scores.expected, slope=1.0))


def _with_responsibilities(
    problem: Problem, fitted: Fitted, shares: Shares, views: Array, rows: Ints, groups: Ints
) -> Contaminated:
    """Find what each row may be, from left-out scores where there are any."""
    left = fitted.subspace.left
    assert left is not None
    ratio = np.full(len(groups), np.nan)
    ratio[rows] = shares.calibration(views)
    # A class without its only row has no mean to be scored by.
    ratio[rows[(left.groups == 0) & left.alone]] = np.nan
    known = ratio.copy()
    rest = np.flatnonzero(problem.unchecked & np.isnan(ratio))
    if len(rest):
        known[rest] = problem.score(fitted, rest)
    hidden = np.zeros(len(groups))
    hidden[problem.unchecked] = hidden_probability(known[problem.unchecked], shares.share)
    # Thresholds and counts take left-out rows for negatives as far as they are.
    weight = problem.weight * np.maximum(1 - hidden, LEAST_REST)
    left = replace(left, weights=weight[rows])
    subspace = replace(fitted.subspace, left=left)
    fitted = replace(fitted, subspace=subspace, left_out=ratio[rows])
    return Contaminated(fitted, shares, hidden, groups, known)


def _scores(
    problem: Problem, subspace: Subspace, density: Density, views: Array, rows: Ints
) -> Scores:
    """Views of rows that can be left out; where positives are few, pseudo-positives too."""
    left = subspace.left
    assert left is not None
    mass = problem.weight[rows]
    if left.stands_for is not None:
        mass = mass * left.stands_for
    used = np.flatnonzero(left.known)
    positive, unchecked = problem.positive[rows[used]], problem.unchecked[rows[used]]
    scored = views[:, used], positive, mass[used]
    found, positive, mass = with_pseudo_positives(subspace, density, *scored)
    unchecked = np.append(unchecked, np.zeros(len(positive) - len(unchecked), dtype=bool))
    # One positive sits at its own mean, and the offset has to make up for it.
    spread = 1 + 1 / max(float(subspace.projected.counts[0]), 1.0)
    return Scores(found, positive, unchecked, mass, Expectation(MODEL_SLOPE, spread))
