"""How many are left, and whether it is time to stop: from the model, or from a random audit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp, softmax
from scipy.stats import hypergeom

from ..core.linalg import Array

# Of the two-sided intervals; one end of them is a bound with a confidence of 95 %.
LEVEL = 0.9
# Quantile of the normal distribution that leaves 5 % on one side.
TAIL = 1.645
# Spread of the logarithm of the count by shape, and what is added where all answers are "no", as
# seen on ISOLET and USPS, also with classes thinned out, and on planted classes.
SHAPE_ERROR, NO_ERROR = 0.5, 1.5
# Numbers of Gaussians that the rest may have, and steps of EM.
CLOUDS, STEPS = (1, 2, 3), 150
# "No" answers have a Gaussian of their own if there are enough of them, and if their mean is above
# this quantile of the rest: else they are a sample of it.
ENOUGH, STANDS_OUT = 5, 0.8
# More scores than this are put into bins, at most this many, and no narrower than WIDTH.
MANY, WIDTH = 600, 0.05
# Answers in a stretch of a search, and limits of the fall of log odds with each row.
STRETCH, DECAYS = 20, (1e-4, 1.0)
# Weight of an answer: finds come in clusters, so each tells less than an independent draw.
EACH = 0.5
# So many answers later one tells half as much: those that are left are not like those found first.
HALF_LIFE = 75
# Number of candidate counts, and the smallest of them.
GRID, LEAST = 120, 0.02


@dataclass(frozen=True)
class Remaining:
    """Estimated number of unanswered rows that belong to the class, with a 90 % interval.

    Attributes
    ----------
    count : float
    count_low, count_high : int
        Ends of the interval.
    n_rows : int
        Number of rows without a "yes" or "no".
    basis : {"audit", "model"}
        Whether the interval comes from an answered random sample or from the model.
    note : str
        A caveat in words; empty if there is none.

    Examples
    --------
    >>> from pcsda.retrieval import Remaining
    >>> print(Remaining(3.0, 0, 9, 400, "audit"))
    3 of 400 rows (90 % interval 0 to 9), by the audit
    """

    count: float
    count_low: int
    count_high: int
    n_rows: int
    basis: str
    note: str = ""

    def __str__(self) -> str:
        text = (
            f"{self.count:.4g} of {self.n_rows} rows (90 % interval {self.count_low} to "
            f"{self.count_high}), by the {self.basis}"
        )
        return f"{text}. {self.note}" if self.note else text


@dataclass(frozen=True)
class Stop:
    """Whether a session may stop; true in a condition if it may.

    Attributes
    ----------
    stop : bool
    reason : str
        Why, in words.
    basis : {"audit", "model", "none"}
        Where the bound comes from: a random audit, the model, or nowhere yet.
    recall_low : float
        Share of the class that has been found, at least, with a confidence of 95 %.

    Examples
    --------
    >>> import numpy as np
    >>> from pcsda import SearchSession
    >>> session = SearchSession(np.eye(30))
    >>> bool(session.stop())
    False
    """

    stop: bool
    reason: str
    basis: str
    recall_low: float

    def __bool__(self) -> bool:
        return self.stop

    def __str__(self) -> str:
        return self.reason


def count_by_model(
    yes: Array, no: Array, pool: Array, answers: Sequence[bool]
) -> tuple[float, int, int]:
    """Expected number of positives in a pool, and the ends of an interval.

    The shape of all scores tells how large the cloud of positives is. How many clouds the rest has
    is not known, and the count depends on it: its logarithm is the mean of those with one, two and
    three. It may be far off where a class is rare, because the far end of the rest looks like more
    of it; then many answers are "no", and how fast finds became rarer tells more. So the count by
    shape is a prior, the wider the less its clouds agree and the more answers are "no", and the
    finds are the data. The count is the median of what follows.

    Parameters
    ----------
    yes, no : arrays of scores
        Left-out scores of rows with that answer. Random rows that nobody looked at are none of
        them: taken for negatives, the positives among them would hide all others that score alike.
    pool : array of scores
        All rows without an answer.
    answers : sequence of bool
        Answers to rows that were chosen by their rank, in the order they were given.
    """
    logs = np.log(0.5 + np.array([count_by_shape(yes, no, pool, clouds) for clouds in CLOUDS]))
    refused = len(no) / (len(yes) + len(no))
    spread = np.hypot(SHAPE_ERROR + NO_ERROR * refused, logs.std(ddof=1))
    counts = np.geomspace(LEAST, max(len(pool), 2 * LEAST), GRID)
    logs = -0.5 * ((np.log(counts + 0.5) - logs.mean()) / spread) ** 2
    shares = np.cumsum(softmax(logs + log_likelihood(counts, falling(answers))))
    low, count, high = np.interp([(1 - LEVEL) / 2, 0.5, (1 + LEVEL) / 2], shares, counts)
    low, high = low - TAIL * np.sqrt(low + 0.5), high + TAIL * np.sqrt(high + 0.5)
    return float(count), int(max(low, 0)), int(min(np.ceil(high), len(pool)))


def falling(answers: Sequence[bool]) -> tuple[Array, Array]:
    """Finds and answers in stretches of the search, from the last of those with most finds on.

    While a model learns, finds become more frequent; from then on they become rarer.
    """
    if len(answers) == 0:
        return np.zeros(0), np.zeros(0)
    parts = np.array_split(np.asarray(answers), max(len(answers) // STRETCH, 1))
    found, shown = (np.array([float(f(part)) for part in parts]) for f in (np.sum, len))
    rates = found / shown
    best = int(np.flatnonzero(rates == rates.max())[-1])
    return found[best:], shown[best:]


def log_likelihood(counts: Array, falls: tuple[Array, Array]) -> Array:
    """Log likelihood of numbers that are left, from finds in stretches of a search.

    The log odds of a find fall by `b` with each row that is shown, so that ``ln(1 + odds)/b`` are
    left beyond the last one. All b are alike on a logarithmic scale. Late answers count more: the
    members that are hard to find come last, and more slowly than the fall of the others says.
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


def count_by_shape(yes: Array, no: Array, pool: Array, clouds: int) -> float:
    """Count by a mixture: the scores of positives are one Gaussian, those of the rest some more.

    Rows were answered because of their scores, so that answers are taken as missing at random; the
    likelihood of all scores, known or not, is that of the mixture. EM climbs it, from positives
    like those found, half as many again. Rows that were answered with no have a cloud of their own,
    with others that look like the class. EM ends before the rest takes the far end of the class.
    """
    parts = [_binned(part) for part in (yes, no, pool)]
    scores, mass = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    first, known = len(parts[0][0]), len(parts[0][0]) + len(parts[1][0])
    means, variances, shares = _start(yes, no, pool, clouds)
    # As if two more positives had been seen, at a distance of one from their mean.
    more = np.append(2.0, np.zeros(len(means) - 1))
    for _ in range(STEPS):
        logs = -0.5 * ((scores - means[:, None]) ** 2 / variances[:, None])
        logs += np.log(np.maximum(shares, 1e-300) / np.sqrt(variances))[:, None]
        logs[1:, :first], logs[0, first:known] = -np.inf, -np.inf
        weights = softmax(logs, axis=0) * mass
        sizes = np.maximum(weights.sum(axis=1), 1e-9)
        means, shares = weights @ scores / sizes, sizes / sizes.sum()
        squares = np.einsum("ij,ij->i", weights, (scores - means[:, None]) ** 2)
        variances = np.maximum((squares + more) / (sizes + more), 0.02)
    return float(weights[0, known:].sum())


def _start(yes: Array, no: Array, pool: Array, clouds: int) -> tuple[Array, Array, Array]:
    """Means, variances and shares of the positives, of those like "no" answers, and of the rest."""
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


def _binned(scores: Array) -> tuple[Array, Array]:
    """Scores, or the means of narrow bins where there are many, and the rows in each."""
    if len(scores) <= MANY:
        return scores, np.ones(len(scores))
    width = max(WIDTH, float(np.ptp(scores)) / MANY)
    bins = np.round((scores - scores.min()) / width).astype(np.intp)
    counts, sums = np.bincount(bins).astype(np.float64), np.bincount(bins, scores)
    filled = counts > 0
    return sums[filled] / counts[filled], counts[filled]


def count_by_audit(pool: int, drawn: int, positive: int) -> tuple[float, int, int]:
    """Number of positives among `pool` rows of which `drawn` were drawn at random.

    The interval has all numbers under which so few, or so many, positives in the sample are not
    rarer than 5 %: hypergeometric, without any approximation.
    """
    tail = (1 - LEVEL) / 2
    counts = np.arange(positive, pool - drawn + positive + 1)
    at_most = hypergeom.cdf(positive, pool, counts, drawn)
    at_least = hypergeom.sf(positive - 1, pool, counts, drawn)
    allowed = counts[(at_most > tail) & (at_least > tail)]
    return pool * positive / drawn, int(allowed[0]), int(allowed[-1])
