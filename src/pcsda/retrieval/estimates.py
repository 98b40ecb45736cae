"""Estimates of the number of class members left to find."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, logsumexp, softmax
from scipy.stats import hypergeom, poisson

from ..core.linalg import Array, Mask

# Level of the two-sided intervals; each end is a bound at 95% confidence.
LEVEL = 0.9
# Error of the logarithm of the count of `fit_shape`. SHAPE_ERROR is its standard deviation, and up
# to NO_ERROR is added to that, in proportion to the share of "no" answers. SHAPE_LOW is how much
# the logarithm is too low on average, because classes have longer tails than a Gaussian. Measured
# on ISOLET and USPS, including thinned classes, and on planted classes.
SHAPE_ERROR, NO_ERROR, SHAPE_LOW = 0.65, 0.5, 0.25
# If the share of "no" answers is above SOME_NO, the odds of the unanswered rows are used together
# with the count of `fit_shape`; if it is above MANY_NO, they are used alone.
SOME_NO, MANY_NO = 0.15, 0.35
# Numbers of Gaussians that are tried for the rows outside the class, and number of EM steps.
CLOUDS, STEPS = (1, 2, 3), 150
# "No" answers are modelled by a separate Gaussian if there are at least ENOUGH and their mean score
# is above the quantile STANDS_OUT of all rows not answered "yes". Otherwise they count as a sample
# of the rows outside the class.
ENOUGH, STANDS_OUT = 5, 0.8
# More than MANY scores are averaged in bins: at most about MANY bins, none narrower than WIDTH.
MANY, WIDTH = 600, 0.05
# Log odds are modelled as a linear function of the ratios, with a slope and a height. SLOPE_ERROR
# is the standard deviation of the log slope. SLOPES and HEIGHTS are the grids of the log slope and
# the height, in standard deviations. VAGUE is the largest standard deviation of the height, a limit
# that matters if the scores separate the answers.
SLOPE_ERROR, SLOPES, HEIGHTS, VAGUE = 0.4, np.linspace(-2, 2, 9), np.linspace(-3, 3, 13), 4.0
# Answers per segment of a search, and the lowest and highest decline of the log odds per row.
STRETCH, DECAYS = 20, (1e-4, 1.0)
# Weight of an answer: finds come in clusters, so each is worth less than an independent draw.
EACH = 0.5
# The likelihood from the declining rate of finds has a weight between LIVELY and 1. Each find among
# the last DRY answers halves the excess of this weight over LIVELY.
LIVELY, DRY = 0.4, 50
# An answer's weight halves after this many later answers: the members still missing resemble the
# last finds most.
HALF_LIFE = 75
# Counts are compared as log(count + HALF), where HALF allows for members that the model misses when
# it expects none. HALF itself is halved after every HALVING answers without a find. With these
# numbers, few searches on ISOLET, USPS and planted classes stopped too early, and searches for
# small classes did not go on for long.
HALF, HALVING = 0.5, 20
# Number of candidate counts, and the smallest of them.
GRID, LEAST = 120, 0.002
# What a bound from each source is based on. A model learns from what was found, so it cannot know
# of members of another kind.
CONDITION = "the rest resembles what was found"
SOURCE = {"model": "the model", "audit": "a random audit"}


@dataclass(frozen=True)
class Remaining:
    """Estimated number of unanswered members of the class, with a 90% interval.

    Attributes
    ----------
    count : float
        The estimate.
    count_low, count_high : int
        Ends of the interval.
    n_rows : int
        Number of rows not answered "yes" or "no".
    basis : {"audit", "model"}
        Whether the interval comes from an answered random sample or from the model.
    note : str
        A caveat in words, or an empty string.

    Examples
    --------
    >>> from pcsda.retrieval import Remaining
    >>> print(Remaining(3.0, 0, 9, 400, "audit"))
    3 of 400 rows (90% interval 0 to 9), based on a random audit
    """

    count: float
    count_low: int
    count_high: int
    n_rows: int
    basis: str
    note: str = ""

    def __str__(self) -> str:
        text = (
            f"{_rounded(self.count)} of {self.n_rows} rows (90% interval {self.count_low} to "
            f"{self.count_high}), based on {rests_on(self)}"
        )
        return f"{text}. {self.note}" if self.note else text


def rests_on(left: Remaining) -> str:
    """Say in words what an interval is based on."""
    if not left.n_rows:
        return "an answer to every row"
    return SOURCE[left.basis] + (f", if {CONDITION}" if left.basis == "model" else "")


def _rounded(count: float) -> str:
    return f"{count:.0f}" if count >= 10 else f"{count:.2g}"


def count_by_model(
    yes: Array, no: Array, pool: Array, answers: Sequence[bool], scores: Sequence[Array] = ()
) -> tuple[float, int, int]:
    """Estimate the number of positives in a pool; return it and the ends of its 90% interval.

    The prior comes from the scores, see `prior_of_scores`. The likelihood comes from the rate at
    which finds decline, and the estimate is the posterior median.

    Parameters
    ----------
    yes, no : arrays of scores
        Scores of the rows with that answer, each from a model fitted without the row. Do not
        include unanswered random rows: if they counted as negatives, the positives among them would
        hide other positives with similar scores.
    pool : array of scores
        All rows without an answer, each scored by a model that did not learn from it.
    answers : sequence of bool
        Answers for rows that were chosen by rank, in the order they were given.
    scores : sequence of arrays, optional
        One or more sets of scores for the rows in `answers`; NaN for a row without a score.
    """
    half = HALF * _since(answers)
    middles, chances, spread = prior_of_scores(yes, no, pool, answers, scores)
    weight = LIVELY + (1 - LIVELY) * 0.5 ** sum(answers[-DRY:])
    counts = np.geomspace(LEAST, max(len(pool), 2 * LEAST), GRID)
    off = (np.log(counts + half)[:, None] - middles) / spread
    logs = logsumexp(np.log(np.maximum(chances, 1e-300)) - 0.5 * off**2, axis=1)
    shares = np.cumsum(softmax(logs + weight * log_likelihood(counts, falling(answers))))
    parts = (1 - LEVEL) / 2, (1 + LEVEL) / 2
    low, count, high = np.interp([parts[0], 0.5, parts[1]], shares, counts)
    # The count is an expectation, and the number left varies about it.
    low, high = poisson.ppf(parts, [low, high])
    return float(min(max(count, low), high)), int(low), int(min(high, len(pool)))


def prior_of_scores(
    yes: Array, no: Array, pool: Array, answers: Sequence[bool], scores: Sequence[Array]
) -> tuple[Array, Array, float]:
    """Return a prior for the log of the number of positives in a pool: Gaussians of equal width.

    While nearly all answers are finds, the prior comes from the shape of the score distribution:
    one Gaussian for the positives and a few for the rest. It is unknown how many the rest needs, so
    the log count is averaged over one, two and three. For a rare class, this count is far too high,
    because the upper tail of the rest looks like more positives. But then many answers are "no",
    and the odds of the unanswered rows, estimated from the answers, give a better prior. The share
    of "no" answers sets the weights of these two priors.

    The longer no member has been found, the closer the prior moves to zero, and the more it relies
    on `counts_by_odds`, which does not fit the slope of the log odds to the answers. Otherwise, a
    small class would never count as exhausted, because answers cannot rule out members among rows
    with much lower scores. The prior is wider if the estimates in it disagree, and if more answers
    are "no".

    Returns
    -------
    middles, chances : arrays
        Mean and weight of each Gaussian.
    spread : float
        Standard deviation of every Gaussian.
    """
    fresh = _since(answers)
    half = HALF * fresh
    refused = len(no) / (len(yes) + len(no))
    trust = float(np.clip((refused - SOME_NO) / (MANY_NO - SOME_NO), 0, 1))
    middles, chances, apart = np.zeros(1), np.ones(1), 0.0
    if trust < 1:
        shapes = np.log(half + np.array([fit_shape(yes, no, pool, n).count for n in CLOUDS]))
        middles = (1 - trust) * (shapes.mean(keepdims=True) + SHAPE_LOW)
        apart = (1 - trust) * shapes.std(ddof=1)
    if trust > 0:
        odds = np.log(half + np.array(counts_by_odds(yes, no, pool)))
        fits = [fit for part in scores if (fit := counts_by_answers(answers, part, pool))]
        fresh = fresh if fits else 0.0
        if fits:
            counts, chances = (np.concatenate(parts) for parts in zip(*fits, strict=True))
            middles = middles + trust * fresh * np.log(half + counts)
        middles = middles + trust * (1 - fresh) * odds.mean()
        apart += trust * (1 - fresh) * odds.std()
    spread = float(np.hypot(SHAPE_ERROR + NO_ERROR * trust * refused, apart))
    return middles, chances / chances.sum(), spread


def _since(answers: Sequence[bool]) -> float:
    """Return a weight that is 1 after a find and halves with every HALVING answers since then."""
    return float(0.5 ** (since_find(answers) / HALVING))


def since_find(answers: Sequence[bool]) -> int:
    """Return how many answers have been given since the last find."""
    found = np.flatnonzero(answers)
    return len(answers) - (int(found[-1]) + 1 if len(found) else 0)


def counts_by_answers(
    answers: Sequence[bool], scores: Array, pool: Array
) -> tuple[Array, Array] | None:
    """Return possible numbers of positives in a pool, and their probabilities given the answers.

    The log odds of a row are a linear function of its score. If the scores were perfect ratios, the
    slope would be 1. But the scores were calibrated on finds, which score higher than the members
    that are still hidden, because finds were chosen by rank. On documents, for example, the slope
    is below 1. A line fitted to the answers allows for this, because rows were chosen by their
    scores and not by their answers. The prior for the log slope is Gaussian, and the prior for the
    height is flat.

    The answered rows have two kinds of scores. The scores from before the answers decided which
    rows were shown, but come from earlier models, which knew less than the current one. Left-out
    scores come from the current model, which scores the pool too, but it has since learned from
    similar rows. Either kind may be better, so this function is called with both.

    Returns
    -------
    counts, chances : arrays, or None if no answer has a score
    """
    known = ~np.isnan(scores)
    if not known.any():
        return None
    ages = np.arange(len(scores))[::-1][known]
    given, scores = np.array(answers)[known], scores[known]
    weights = EACH * 0.5 ** (ages / HALF_LIFE)
    rows, mass = binned(pool)
    logs, counts = [], []
    for place in SLOPES:
        slope = np.exp(SLOPE_ERROR * place)
        middle = _offset(slope * scores, given, weights)
        chance = expit(slope * scores + middle)
        error = max(float(weights @ (chance * (1 - chance))), VAGUE**-2) ** -0.5
        heights = middle + error * HEIGHTS[:, None]
        odds = slope * scores + heights
        logs.append((given * odds - np.logaddexp(0, odds)) @ weights + np.log(error))
        logs[-1] -= 0.5 * place**2
        counts.append(expit(slope * rows + heights) @ mass)
    return np.concatenate(counts), softmax(np.concatenate(logs))


def _offset(scores: Array, answers: Mask, weights: Array) -> float:
    """Return the number to add to the log odds so that they predict the actual number of finds.

    If all answers are the same, half of one answer counts as its opposite.
    """
    total = float(weights.sum())
    found = float(
        np.clip(weights @ answers, total / (2 * len(answers)), total * (1 - 0.5 / len(answers)))
    )
    ends = -scores.max() - 20, -scores.min() + 20
    return float(brentq(lambda shift: weights @ expit(scores + shift) - found, *ends))


def counts_by_odds(yes: Array, no: Array, pool: Array) -> tuple[float, float]:
    """Estimate the number of positives in a pool in two ways, both by summing probabilities.

    Both take the slope of the log odds in the log-likelihood ratios to be 1. The first estimate
    adds an offset to the ratios, chosen so that the expected number of positives among the answered
    rows equals the observed number. This estimate is too high if the answered rows were more likely
    to be positive than other rows with the same scores. The second estimate uses the share of
    positives that maximises the likelihood of all ratios. It is too low if the missing members have
    lower scores than left-out finds.
    """
    answered = np.concatenate([yes, no])
    offset = _offset(answered, np.arange(len(answered)) < len(yes), np.ones(len(answered)))
    scores, mass = binned(pool)
    share = 0.05
    for _ in range(STEPS):
        logit = np.log(share / (1 - share))
        left = float(mass @ expit(scores + logit))
        share = (left + float(expit(answered + logit).sum())) / (len(answered) + len(pool))
        share = min(max(share, 1e-9), 0.9)
    return float(mass @ expit(scores + offset)), left


def falling(answers: Sequence[bool]) -> tuple[Array, Array]:
    """Count the finds and the answers in each segment of a search, from the best segment on.

    A segment consists of about STRETCH consecutive answers. The best one has the highest rate of
    finds, and is the last if several have that rate. Finds become more frequent while the model
    learns, and rarer after that.
    """
    if len(answers) == 0:
        return np.zeros(0), np.zeros(0)
    parts = np.array_split(np.asarray(answers), max(len(answers) // STRETCH, 1))
    found, shown = (np.array([float(f(part)) for part in parts]) for f in (np.sum, len))
    rates = found / shown
    best = int(np.flatnonzero(rates == rates.max())[-1])
    return found[best:], shown[best:]


def log_likelihood(counts: Array, falls: tuple[Array, Array]) -> Array:
    """Return the log likelihood of each number of members left, given the finds per segment.

    The log odds of a find decline by `b` with each row shown, so ``ln(1 + odds)/b`` members are
    left after the last row. The prior for `b` is flat on a log scale. Late answers weigh more,
    because the members that are hard to find come last, and they come more slowly than the earlier
    decline suggests.
    """
    found, shown = falls
    if len(found) == 0:
        return np.zeros_like(counts)
    before = shown.sum() - np.cumsum(shown) + shown / 2
    decay = np.geomspace(*DECAYS, GRID // 2)
    product = np.minimum(decay * counts[:, None], 600.0)
    last = product + np.log(-np.expm1(-product))
    odds = last[..., None] + decay[:, None] * before
    weights = EACH * 0.5 ** (before / HALF_LIFE)
    logs = (weights * (found * odds - shown * np.logaddexp(0, odds))).sum(axis=2)
    return np.asarray(logsumexp(logs, axis=1))


@dataclass(frozen=True)
class Shape:
    """A mixture of Gaussians for scores: the first for the positives, the others for the rest.

    Attributes
    ----------
    means, variances, shares : arrays
        One value per Gaussian.
    count : float
        Expected number of positives in the pool.
    """

    means: Array
    variances: Array
    shares: Array
    count: float = 0.0

    def logs(self, scores: Array) -> Array:
        """Return the log density of each Gaussian, up to a common constant, at each score."""
        logs = -0.5 * ((scores - self.means[:, None]) ** 2 / self.variances[:, None])
        heights = np.maximum(self.shares, 1e-300) / np.sqrt(self.variances)
        return np.asarray(logs + np.log(heights)[:, None])

    def log_odds(self, scores: Array) -> Array:
        """Return the log odds of being positive at ascending scores; they never fall.

        The odds of two Gaussians rise again far to the left if the left one is narrower. That says
        nothing about the class, so the lowest odds also hold for all scores below.
        """
        logs = self.logs(scores)
        odds = logs[0] - logsumexp(logs[1:], axis=0)
        odds[: odds.argmin()] = odds.min()
        return np.asarray(np.maximum.accumulate(odds))


def fit_shape(yes: Array, no: Array, pool: Array, clouds: int) -> Shape:
    """Fit a mixture of Gaussians to the scores of answered and unanswered rows.

    One Gaussian models the positives, and `clouds` Gaussians model the rest. If the "no" answers
    stand out from the rest, they get another Gaussian, which they share with unanswered rows that
    resemble the class.

    Rows were shown because of their scores, so missing answers are missing at random, and EM
    maximises the likelihood of all scores, with or without an answer. EM starts with 1.5 times the
    number of positives found. It stops before the Gaussians of the rest absorb the tail of the
    class.
    """
    parts = [binned(part) for part in (yes, no, pool)]
    scores, mass = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    first, known = len(parts[0][0]), len(parts[0][0]) + len(parts[1][0])
    shape = Shape(*_start(yes, no, pool, clouds))
    # A prior worth two positives at distance one from the mean.
    more = np.append(2.0, np.zeros(len(shape.means) - 1))
    for _ in range(STEPS):
        logs = shape.logs(scores)
        logs[1:, :first], logs[0, first:known] = -np.inf, -np.inf
        weights = softmax(logs, axis=0) * mass
        sizes = np.maximum(weights.sum(axis=1), 1e-9)
        means = weights @ scores / sizes
        squares = np.einsum("ij,ij->i", weights, (scores - means[:, None]) ** 2)
        variances = np.maximum((squares + more) / (sizes + more), 0.02)
        count = float(weights[0, known:].sum())
        shape = Shape(means, variances, sizes / sizes.sum(), count)
    return shape


def _start(yes: Array, no: Array, pool: Array, clouds: int) -> tuple[Array, Array, Array]:
    """Return initial means, variances and shares of the Gaussians in `fit_shape`."""
    rest, total = np.concatenate([no, pool]), len(yes) + len(no) + len(pool)
    means, variances = [yes.mean()], [max(yes.var(), 0.5)]
    shares = [min(1.5 * len(yes) / total, 0.5)]
    if len(no) >= ENOUGH and no.mean() > np.quantile(rest, STANDS_OUT):
        means.append(no.mean())
        variances.append(max(no.var(), 0.5))
        shares.append(min(2 * len(no) / total, 0.3))
    middles = np.quantile(rest, np.linspace(0.3, 0.8, clouds) if clouds > 1 else [0.5])
    variances += [rest.var() / clouds**2 + 0.1] * clouds
    shares += [(1 - sum(shares)) / clouds] * clouds
    return np.append(means, middles), np.array(variances), np.array(shares)


def binned(scores: Array) -> tuple[Array, Array]:
    """Return scores and the number of rows with each. Many scores are averaged in bins.

    The bins are in ascending order; a few scores keep theirs.
    """
    if len(scores) <= MANY:
        return scores, np.ones(len(scores))
    width = max(WIDTH, float(np.ptp(scores)) / MANY)
    bins = np.round((scores - scores.min()) / width).astype(np.intp)
    counts, sums = np.bincount(bins).astype(np.float64), np.bincount(bins, scores)
    filled = counts > 0
    return sums[filled] / counts[filled], counts[filled]


def count_by_audit(pool: int, drawn: int, positive: int) -> tuple[float, int, int]:
    """Estimate how many of `pool` rows are positive if `positive` of `drawn` random rows are.

    Return the estimate and the ends of its 90% interval. The interval is exact, from the
    hypergeometric distribution: it contains all counts for which a sample at least this extreme has
    a probability above 5% on either side.
    """
    tail = (1 - LEVEL) / 2
    counts = range(positive, pool - drawn + positive + 1)
    # Both tails are monotone in the count, so bisection finds the ends of the interval.
    low = bisect_left(
        counts, True, key=lambda count: hypergeom.sf(positive - 1, pool, count, drawn) > tail
    )
    high = bisect_left(
        counts, True, key=lambda count: hypergeom.cdf(positive, pool, count, drawn) <= tail
    )
    return pool * positive / drawn, counts[low], counts[high - 1]
