"""How many are left, and whether it is time to stop: from the model, or from a random audit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.polynomial.hermite_e import hermegauss
from scipy.special import expit, ndtr, softmax
from scipy.stats import hypergeom

from ..core.linalg import Array, Mask
from ..core.logistic import fit_logistic

# Of the two-sided intervals; one end of them is a bound with a confidence of 95 %.
LEVEL = 0.9
# Quantile of the normal distribution that leaves 5 % on one side.
TAIL = 1.645
# Spread of the logarithm of the error that a shape which is not Gaussian causes, as seen on ISOLET
# and USPS, and what is added to it, over the root of the number of examples.
SHAPE_ERROR, FEW_ERROR = 0.4, 2.0
# Steps of EM, and the number of rows answered with no at which both views count alike.
STEPS, REFUSED = 150, 20
# Scores of larger pools are put into bins of this width.
MANY, WIDTH = 1000, 0.05
# Nodes of the quadrature over slope and offset.
NODES = 7
# Information in the priors on the logarithm of the slope and on the offset.
PRIOR_SLOPE, PRIOR_OFFSET = 1.0, 0.01


@dataclass(frozen=True)
class Remaining:
    """How many rows without an answer belong to the class, with a 90 % interval.

    Attributes
    ----------
    count : float
    count_low, count_high : int
        Ends of the interval.
    n_rows : int
        Number of rows without a "yes" or "no".
    basis : {"audit", "model"}
        Whether the interval rests on a random sample that was answered, or on the model.
    note : str
        What the numbers cannot tell, in words; empty where there is nothing to say.

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
        What the bound rests on: a random audit, the model, or nothing yet.
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
    scores: Array, positive: Mask, answered: Mask, pool: Array
) -> tuple[float, int, int]:
    """Expected number of positives in a pool, and the ends of an interval.

    Two views of the same scores are joined. Answers tell how likely a "yes" is at each score; that
    says much once many rows were answered with no. The shape of all scores tells how large the
    cloud of positives is, of which the answers may show the near end alone. The more rows were
    answered with no, the more the first view counts. The interval has those of both.

    Parameters
    ----------
    scores : array of shape (n,)
        Left-out scores of rows with an answer, and of random rows.
    positive, answered : boolean arrays of shape (n,)
    pool : array of shape (m,)
        Scores of all rows without an answer.
    """
    first = count_by_answers(scores, positive, pool)
    second = count_by_shape(scores[positive], scores[answered & ~positive], pool)
    refused = int((answered & ~positive).sum())
    weight = refused / (refused + REFUSED)
    count = (first[0] + 0.5) ** weight * (second[0] + 0.5) ** (1 - weight) - 0.5
    low, high = min(first[1], second[1]), max(first[2], second[2])
    count = float(min(max(count, 0.0), len(pool)))
    return count, int(min(low, np.floor(count))), int(max(high, np.ceil(count)))


def count_by_shape(yes: Array, no: Array, pool: Array) -> tuple[float, int, int]:
    """Count by a mixture: the scores of positives are one Gaussian, those of the rest two.

    Rows were answered because of their scores alone, so that answers are missing at random and the
    likelihood of all scores, known or not, is that of the mixture. EM maximises it. The interval
    allows for chance and, with a factor, for a shape that is not Gaussian.
    """
    values, counts = _binned(pool)
    scores = np.concatenate([yes, no, values])
    mass = np.concatenate([np.ones(len(yes) + len(no)), counts])
    known = len(yes) + len(no)
    rest = np.concatenate([no, pool])
    share = 1.5 * len(yes) / mass.sum()
    means = np.array([yes.mean(), *np.quantile(rest, [0.3, 0.8])])
    variances = np.array([max(yes.var(), 0.5), *[rest.var() / 4 + 0.1] * 2])
    shares = np.array([share, (1 - share) / 2, (1 - share) / 2])
    more = np.array([2.0, 0, 0])
    for _ in range(STEPS):
        logs = -0.5 * ((scores - means[:, None]) ** 2 / variances[:, None])
        logs += np.log(np.maximum(shares, 1e-300) / np.sqrt(variances))[:, None]
        logs[1:, : len(yes)], logs[0, len(yes) : known] = -np.inf, -np.inf
        parts = softmax(logs, axis=0) * mass
        sizes = np.maximum(parts.sum(axis=1), 1e-9)
        means, shares = parts @ scores / sizes, sizes / sizes.sum()
        squares = np.einsum("ij,ij->i", parts, (scores - means[:, None]) ** 2)
        # As if two more positives had been seen, at a distance of one from their mean.
        variances = np.maximum((squares + more) / (sizes + more), 0.02)
    count = float(parts[0, known:].sum())
    error = SHAPE_ERROR + FEW_ERROR / np.sqrt(len(yes))
    factor, chance = np.exp(TAIL * error), TAIL * np.sqrt(count + 0.5)
    low = int(np.floor(max(count / factor - chance, 0)))
    return count, low, int(min(np.ceil(count * factor + chance), len(pool)))


def count_by_answers(scores: Array, positive: Mask, pool: Array) -> tuple[float, int, int]:
    """Expected number of positives in a pool of scores, and the ends of its interval.

    The probability of a "yes" is a logistic function of the score, fitted to left-out scores of
    rows with an answer. That these were chosen by their scores does not matter to it, because given
    the score the choice says nothing more about the answer. Slope and offset vary by the
    information that the rows have of them.
    """
    slopes, offset = fit_logistic(scores[None], positive)
    level = offset + np.log(positive.sum() / (~positive).sum())
    slope = float(slopes[0])
    chance = expit(slope * scores + level)
    curve = chance * (1 - chance)
    total = max(float(curve.sum()), np.finfo(float).tiny)
    centre = float(curve @ scores / total)
    precision = slope**2 * (curve @ (scores - centre) ** 2) + PRIOR_SLOPE
    nodes, share = hermegauss(NODES)
    steeper, higher = np.meshgrid(nodes / np.sqrt(precision), nodes / np.sqrt(total + PRIOR_OFFSET))
    weights = np.outer(share, share).ravel() / share.sum() ** 2
    middle = slope * centre + level
    values, counts = _binned(pool)
    odds = (
        slope * np.exp(steeper.ravel())[:, None] * (values - centre)
        + middle
        + higher.ravel()[:, None]
    )
    chances = expit(odds)
    means, spreads = chances @ counts, np.sqrt((chances * (1 - chances)) @ counts)

    def below(count: float) -> float:
        return float(weights @ ndtr((count - means) / np.maximum(spreads, 1e-6)))

    count = float(expit(slope * values + level) @ counts)
    low, high = (_quantile(below, len(pool), tail) for tail in ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    return count, int(min(np.floor(low + 0.5), count)), int(max(np.ceil(high - 0.5), count))


def _binned(scores: Array) -> tuple[Array, Array]:
    """Scores, or the means of narrow bins where there are many, and the rows in each."""
    if len(scores) <= MANY:
        return scores, np.ones(len(scores))
    bins = np.unique(np.round(scores / WIDTH), return_inverse=True)[1]
    counts = np.bincount(bins).astype(np.float64)
    return np.bincount(bins, scores) / counts, counts


def _quantile(below: Callable[[float], float], most: int, level: float) -> float:
    low, high = 0.0, float(most)
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if below(middle) < level else (low, middle)
    return (low + high) / 2


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
