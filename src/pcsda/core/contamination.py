"""Positives hidden among the negatives (MATH 16): their share, and a model that knows of them.

Negatives that nobody has looked at hold some positives. A ratio against such a crowd sees no excess
of positives in that same crowd, so its share cannot be read off the ratio afterwards: both are
estimated together, on left-out scores. Each round divides the unchecked rows. A part of each, the
probability that it is a positive, joins the positives; the rest stays in its subclass. The two
parts leave together, and the total scatter does not change, so one factorisation serves all rounds.
Where guesses would outweigh the examples, what is too much takes no part at all: among the
negatives it would be what the axes are turned against. Then each round has its own factorisation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from scipy.optimize import brentq, minimize_scalar
from scipy.special import expit

from .calibration import Calibration
from .density import Density
from .fit import Fitted, Rule, estimate
from .linalg import Array, Ints, Mask, TooFewRowsError
from .loo import Leave
from .predictive import with_pseudo_positives
from .subspace import Factor, Subspace

# Spread of the priors on the logarithm of the slope and on the offset.
SLOPE_SPREAD, OFFSET_SPREAD = 0.5, 1.0
# The search for the best share begins from these, and ends below a half.
LARGEST_SHARE = 0.499
SHARES = np.append(0.0, np.geomspace(2e-3, LARGEST_SHARE, 11))
# Half the 90 % quantile of chi-square with one degree of freedom: how far the profile of the log
# likelihood may fall inside a 90 % interval.
INTERVAL_DROP = 1.3528
# A row is divided if it is a positive with at least this probability.
LEAST_PART = 1e-3
# The least part of a row that stays in its subclass, so that weights stay above zero.
LEAST_REST = 1e-6
# Rows that are positives with more than this probability do not shape subclasses.
HIGH = 0.1
# Guesses weigh at most this share of the examples.
MOST_GUESSES = 0.99
# Rounds with the negatives in one group, and with subclasses.
FIRST_ROUNDS, ROUNDS = 10, 6
# Probabilities move by this share of their change, because full steps may swing between two
# states; a change of less than SETTLED ends the rounds.
DAMPING, SETTLED = 0.5, 0.01


class SplitFactor(Factor, Protocol):
    """A factor whose rows may be divided into parts."""

    @property
    def weights(self) -> Array | None:
        """Weights of the rows."""

    def split(self, rows: Ints, weights: Array) -> Factor:
        """Divide rows into parts, given by row number and weight; weights sum to the rows'."""


@dataclass(frozen=True)
class Scores:
    """Views of rows that a model has not seen, and what is known of each row.

    Attributes
    ----------
    views : array of shape (V, n)
    positive, unchecked : boolean arrays of shape (n,)
        Labelled positives, and rows nobody looked at; all others are checked negatives.
    weight : array of shape (n,)
    """

    views: Array
    positive: Mask
    unchecked: Mask
    weight: Array

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
    loss : float
        Minus the log posterior.
    """

    calibration: Calibration
    share: float
    interval: tuple[float, float]
    loss: float


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
    priors are ``ln(V a) ~ N(0, 0.5^2)``, ``b ~ N(0, 1)`` and ``pi < 1/2``.
    """
    profile = _Profile(scores)
    if share is not None:
        return Shares(profile.calibration(share), share, (share, share), profile(share))
    losses = np.array([profile(value) for value in SHARES])
    at = int(losses.argmin())
    bounds = SHARES[max(at - 1, 0)], SHARES[min(at + 1, len(SHARES) - 1)]
    found = minimize_scalar(profile, bounds=bounds, method="bounded", options={"xatol": 1e-4})
    share = float(found.x if found.fun < losses[at] else SHARES[at])
    interval = _interval(profile, share, losses)
    return Shares(profile.calibration(share), share, interval, profile(share))


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
        self._precision = np.append(np.full(n_views, SLOPE_SPREAD), OFFSET_SPREAD) ** -2.0
        self._found: dict[float, tuple[float, Array]] = {}

    def __call__(self, share: float) -> float:
        if share not in self._found:
            near = np.zeros(len(self._precision))
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
        loss = weight @ (total - own) + 0.5 * self._precision @ point**2
        prior = self._precision * point
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
    """

    fitted: Fitted
    shares: Shares
    responsibilities: Array
    groups: Ints


@dataclass(frozen=True)
class Problem:
    """What the rounds need.

    Attributes
    ----------
    factor : SplitFactor
    rule : Rule
    n_components : int or None
    unchecked : boolean array of shape (N,)
    positive : boolean array of shape (N,)
    share : float or None
        The share of hidden positives; None estimates it.
    leave : function of groups
        Which rows are left out.
    score : function of a model and row numbers
        Scores of rows that are not among those left out.
    regroup : function of a mask
        Groups of the rows, where the masked ones do not shape the subclasses.
    refactor : function of weights
        The factor of the rows with other weights.
    drops : bool
        Whether guesses that outweigh the examples take no part, or stay among the negatives.
    """

    factor: SplitFactor
    rule: Rule
    n_components: int | None
    positive: Mask
    unchecked: Mask
    share: float | None
    leave: Callable[[Ints], Leave]
    score: Callable[[Fitted, Ints], Array]
    regroup: Callable[[Mask], Ints]
    refactor: Callable[[Array], SplitFactor]
    drops: bool = False

    @property
    def weight(self) -> Array:
        """Weights of the rows."""
        weights = self.factor.weights
        return np.ones(len(self.positive)) if weights is None else weights


def fit_contaminated(problem: Problem) -> Contaminated:
    """Fit in rounds: divide rows, solve, fit ratio and share to left-out scores.

    The first rounds have the negatives in one group, because hidden positives that are many make a
    subclass of their own, in which they look like negatives. Subclasses are found without the rows
    that may be positives. The model of the last round rests on guesses, of which its profile
    likelihood knows nothing; that of the first round rests on none, so the interval spans both.

    Guesses that outweigh the examples are right where the positives are many, and a class that is
    like them where they are not. So the rounds go both ways, and left-out scores choose.
    """
    one = (~problem.positive).astype(np.intp)
    start = _round(problem, one, np.zeros(len(one)))
    found, most = _later_rounds(problem, start), _most_guesses(problem)
    if float(problem.weight @ found.responsibilities) > most:
        other = _later_rounds(replace(problem, drops=True), start)
        found = min(found, other, key=lambda one: one.shares.loss)
    (low, high), (lowest, highest) = found.shares.interval, start.shares.interval
    interval = min(low, lowest), max(high, highest)
    return replace(found, shares=replace(found.shares, interval=interval))


def _later_rounds(problem: Problem, start: Contaminated) -> Contaminated:
    """All rounds after the first."""
    found = _rounds(problem, start.groups, DAMPING * start.responsibilities, FIRST_ROUNDS)
    groups = problem.regroup(found.responsibilities > HIGH)
    return _rounds(problem, groups, found.responsibilities, ROUNDS)


def _most_guesses(problem: Problem) -> float:
    """Largest weight of the parts that join the positives."""
    return MOST_GUESSES * float(problem.weight[problem.positive].sum())


def _rounds(problem: Problem, groups: Ints, part: Array, count: int) -> Contaminated:
    """Repeat with the same groups until the probabilities settle."""
    found = _round(problem, groups, part)
    for _ in range(count - 1):
        change = found.responsibilities - part
        if float(np.abs(change).max()) < SETTLED:
            break
        part = part + DAMPING * change
        found = _round(problem, groups, part)
    return found


def _round(problem: Problem, groups: Ints, part: Array) -> Contaminated:
    """Solve with a part of each row among the positives, and find the parts anew."""
    subspace, rows = _solve(problem, groups, part)
    density, views = estimate(subspace, problem.rule)
    if views is None:
        raise TooFewRowsError(
            "contamination is estimated on left-out rows, and none can be left out: "
            f"{int(problem.positive.sum())} positives and {int(np.sum(~problem.positive))} "
            "negatives are too few; give more rows, raise regularization or set contamination=0"
        )
    shares = fit_shares(_scores(problem, subspace, density, views, rows), problem.share)
    fitted = Fitted(subspace, density, shares.calibration)
    left, size = subspace.left, len(rows)
    assert left is not None
    ratio = np.full(len(groups), np.nan)
    ratio[rows] = shares.calibration(views[:, :size])
    # A class without its only row has no mean to be scored by.
    ratio[rows[(left.groups[:size] == 0) & left.alone[:size]]] = np.nan
    known = ratio.copy()
    rest = np.flatnonzero(problem.unchecked & np.isnan(ratio))
    if len(rest):
        known[rest] = problem.score(fitted, rest)
    found = np.zeros(len(groups))
    hidden = hidden_probability(known[problem.unchecked], shares.share)
    found[problem.unchecked] = np.minimum(hidden, 1 - LEAST_REST)
    own = replace(left.take(slice(size)), rows=None if size == len(groups) else rows)
    fitted = replace(fitted, subspace=replace(subspace, left=own), left_out=ratio[rows])
    return Contaminated(fitted, shares, found, groups)


def _solve(problem: Problem, groups: Ints, part: Array) -> tuple[Subspace, Ints]:
    """Solve a division of parts; the first left-out ones are those of the rows returned."""
    weight, factor = problem.weight, problem.factor
    # Guesses must not outweigh examples, or a class that is like the positives is taken for them.
    guessed, most, rest = float(weight @ part), _most_guesses(problem), 1 - part
    if guessed > most:
        part = part * (most / guessed)
    if guessed > most and problem.drops:
        weight = weight * (rest + part)
        factor, part = problem.refactor(weight), part / (rest + part)
    divided = np.flatnonzero(part >= LEAST_PART)
    leave = problem.leave(groups)
    rows = leave.of(len(groups))
    if len(divided) == 0:
        return factor.solve(groups, problem.n_components, leave_out=leave), rows
    every = np.append(np.arange(len(groups)), divided)
    moved = weight[divided] * part[divided]
    weight = np.append(weight, moved)
    weight[divided] -= moved
    labels = np.append(groups, np.zeros(len(divided), dtype=np.intp))
    together = every if leave.together is None else leave.together[every]
    twins = len(groups) + np.flatnonzero(np.isin(divided, rows))
    stands_for = leave.stands_for
    if stands_for is not None:
        stands_for = np.append(stands_for, stands_for[np.searchsorted(rows, every[twins])])
    parts = Leave(np.append(rows, twins), stands_for, together)
    found = factor.split(every, weight).solve(labels, problem.n_components, leave_out=parts)
    left = found.left
    if left is not None and problem.positive.sum() == 1:
        # Without the only example nothing but guesses is left, which must not judge it.
        only = problem.positive[every[np.append(rows, twins)]]
        left = replace(left, known=left.known & ~only, alone=left.alone | only)
    return replace(found, left=left), rows


def _scores(
    problem: Problem, subspace: Subspace, density: Density, views: Array, rows: Ints
) -> Scores:
    """Views of rows that can be left out; where positives are few, pseudo-positives too."""
    left = subspace.left
    assert left is not None
    mass = problem.weight[rows]
    if left.stands_for is not None:
        mass = mass * left.stands_for[: len(rows)]
    used = np.flatnonzero(left.known[: len(rows)])
    positive, unchecked = problem.positive[rows[used]], problem.unchecked[rows[used]]
    scored = views[:, used], positive, mass[used]
    found, positive, mass = with_pseudo_positives(subspace, density, *scored)
    unchecked = np.append(unchecked, np.zeros(len(positive) - len(unchecked), dtype=bool))
    return Scores(found, positive, unchecked, mass)
