"""Learning from a session's answers: fitting a verifier and ranking the gallery."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import lsqr
from sklearn.base import BaseEstimator, clone
from sklearn.metrics import pairwise_distances_argmin_min
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import normalize

from ..core.calibration import fit_calibration
from ..core.copies import silent_on_copies
from ..core.linalg import Array, Floats, Ints, Mask
from ..core.spread import auto_regularization
from ..estimators import PCSDA
from ..estimators.grid import fit_last
from ..estimators.ratios import quick_scores_of
from ..estimators.verifier import Verifier
from ..unwrap import unwrap
from .gallery import Clusters, Gallery
from .strategies import likely

# Number of random gallery rows that serve as unchecked negatives, and the weight of each relative
# to a row with an answer.
WEAK_ROWS = 300
WEAK_WEIGHT = 0.2
# With n examples, similarity has the weight SIMILAR/(SIMILAR + n) in the ranking. From ALONE
# examples on, only the verifier ranks.
SIMILAR, ALONE = 5.0, 100
# Weight of the nearest answers in the order: NEAREST if the share of "no" answers is at least the
# second number of RARE, and zero up to the first. NEAR_NO is the weight of the nearest "no",
# relative to the nearest example. Only the CANDIDATES rows that score highest are compared with the
# answers.
NEAREST, NEAR_NO, RARE, CANDIDATES = 0.25, 0.5, (0.15, 0.35), 2000
# Ridges of least squares on rows of words, for an example, a "no" answer and a random row.
RIDGES = 0.2, 5.0, 50.0
# Share of the mean "no" answer to subtract from the mean example, as in the Rocchio method.
AWAY = 0.25


@dataclass(frozen=True)
class Answers:
    """Row numbers grouped by answer.

    Attributes
    ----------
    yes, no : arrays of row numbers
    drawn : array of row numbers
        Random rows from the gallery, with or without an answer.
    """

    yes: Ints
    no: Ints
    drawn: Ints

    @property
    def weak(self) -> Ints:
        """Numbers of the random rows not answered yes or no, which serve as unchecked negatives."""
        return np.setdiff1d(self.drawn, np.concatenate([self.yes, self.no]))

    @property
    def rows(self) -> Ints:
        """Numbers of all rows: examples, then "no" answers, then unchecked random rows."""
        return np.concatenate([self.yes, self.no, self.weak])


@dataclass(frozen=True)
class Learned:
    """A fitted verifier and its scores for the gallery.

    Attributes
    ----------
    model : estimator
    answers : Answers
    left_out : array of shape (n_answers,)
        Left-out log-likelihood ratio of each row in `answers`: the ratio from a model fitted
        without that row. NaN if there is none.
    ratios : array of shape (n_rows,)
        Log-likelihood ratio of each row in the gallery.
    """

    model: Any
    answers: Answers
    left_out: Array
    ratios: Array

    @property
    def verifier(self) -> Any:
        """The verifier inside `model`, which may be a pipeline or a search."""
        return unwrap(self.model).model

    @property
    def positive(self) -> Mask:
        """Mask of the rows in `answers` that are examples."""
        return np.arange(len(self.left_out)) < len(self.answers.yes)

    @property
    def random(self) -> Mask:
        """Mask of the rows in `answers` used for calibration: examples and random rows.

        Only rows with a left-out ratio are used. Random rows answered "no" are included: without
        these hardest negatives, negatives would look easier to reject than they are.
        """
        drawn = np.isin(self.answers.rows, self.answers.drawn)
        return (self.positive | drawn) & ~np.isnan(self.left_out)

    @property
    def answered(self) -> Mask:
        """Mask of the rows in `answers` that have an answer."""
        return np.arange(len(self.left_out)) < len(self.answers.yes) + len(self.answers.no)

    def scores_by_answer(self, pool: Ints) -> tuple[Array, Array, Array]:
        """Return left-out ratios of the rows answered yes and no, and ratios of the rows in `pool`.

        No ratio comes from a model that learned from its row. Rows with an answer but without a
        left-out ratio are omitted.
        """
        known = self.answered & ~np.isnan(self.left_out)
        yes, no = known & self.positive, known & ~self.positive
        return self.left_out[yes], self.left_out[no], self.unseen(pool)

    def without(self) -> tuple[str, str]:
        """Return why no example has a left-out ratio, and the remedy."""
        if len(self.answers.yes) == 1:
            return "A single example cannot be left out", "label at least two examples"
        if len(self.answers.rows) == len(self.answers.yes) + 1:
            return "The only row that is no example cannot be left out", "add rows to the gallery"
        return (
            f"{type(self.verifier).__name__} keeps no left-out ratio for each row",
            "use an estimator that does, such as PCSDA() or KernelPCSDA()",
        )

    def unseen(self, places: Ints) -> Array:
        """Return the ratio of each row in `places` from a model that did not learn from the row.

        With many columns, a model recognises the rows it learned from. Members of the class among
        the unchecked random rows served as negatives, so that model would score them far lower than
        other members.
        """
        rows, known = self.answers.rows, ~np.isnan(self.left_out)
        ratios = self.ratios.copy()
        ratios[rows[known]] = self.left_out[known]
        return ratios[places]

    def scores_of(self, places: Ints, then: Array) -> tuple[Array, Array]:
        """Return each answered row's score from before its answer, and its left-out score now.

        `then` holds the scores from before the answers, or NaN. If a row has only one of these
        scores, it is returned as both; if it has neither, both are NaN.
        """
        left_out = dict(zip(self.answers.rows.tolist(), self.left_out, strict=True))
        now = np.array([left_out.get(place, np.nan) for place in places.tolist()])
        return np.where(np.isnan(then), now, then), np.where(np.isnan(now), then, now)


def learn(
    gallery: Gallery, clusters: Clusters, answers: Answers, estimator: BaseEstimator
) -> Learned:
    """Fit a verifier to the answers and random rows, and score the gallery.

    The rows answered "no" are those most like the class, not a random sample of the negatives, so
    the ratios are calibrated only on left-out examples and random rows.
    """
    rows = gallery.take(answers.rows)
    positive = np.arange(len(rows)) < len(answers.yes)
    weights = np.ones(len(rows))
    weights[len(rows) - len(answers.weak) :] = WEAK_WEIGHT
    model = default_verifier(len(answers.yes)) if estimator is None else clone(estimator)
    extra: dict[str, Any] = {"sample_weight": weights}
    last = model[-1] if isinstance(model, Pipeline) else model
    if last is model:  # the rows of a pipeline's last step have cells of their own
        extra["subclass_labels"] = clusters.of(rows)
    known = inspect.signature(last.fit).parameters
    with warnings.catch_warnings(), silent_on_copies():
        # The page shows the number of examples; repeating a warning on every screen would not help.
        warnings.filterwarnings("ignore", "a single positive shows no spread", UserWarning)
        # The weights are the session's own, and a tiny gallery has few random rows.
        warnings.filterwarnings("ignore", "the weights of the negatives sum to", UserWarning)
        fit_last(model, rows, positive, {key: extra[key] for key in extra if key in known})
    learned = Learned(model, answers, np.full(len(rows), np.nan), np.empty(0))
    if hasattr(learned.verifier, "loo_scores_"):
        left_out = np.array(learned.verifier.loo_scores_, dtype=np.float64)
        learned = replace(learned, left_out=left_out)
    learned = _recalibrated(learned)
    ratios = gallery.score(_quick_ratio(learned.model))
    return Learned(learned.model, answers, learned.left_out, ratios)


def _quick_ratio(model: BaseEstimator) -> Callable[[Any], Floats]:
    """Return a function that computes ratios, in float32 where a verifier of pcsda allows it."""
    if isinstance(model, Verifier):
        return lambda rows: quick_scores_of(model, model.transform(rows))
    return cast(Callable[[Any], Floats], model.log_likelihood_ratio)


def default_verifier(n_examples: int) -> PCSDA:
    """Make the default verifier for a session, with a ridge suited to unchecked negatives."""
    ridge = auto_regularization(n_examples, kernel=False, contaminated=True)
    return PCSDA(regularization=ridge, random_state=0)


def _recalibrated(learned: Learned) -> Learned:
    """Recalibrate the ratios of a model on left-out examples and random rows.

    Unlike the model's own calibration, this one does not raise very low ratios. Among many
    thousands of rows, even a small probability that each row is an unusual member would add up to
    more than the actual number of members.
    """
    model, use = learned.verifier, learned.random
    both = use & learned.positive, use & ~learned.positive
    if not hasattr(model, "calibration_") or not all(part.any() for part in both):
        return learned
    before = model.calibration_
    straight = before.straightened(learned.left_out)
    found = fit_calibration(straight[use][None], learned.positive[use])
    model.calibration_ = before.straight().then(found.slope, found.offset)
    left_out = found.slope * straight + found.offset
    model.loo_scores_ = left_out
    return replace(learned, left_out=left_out)


def similarity(gallery: Gallery, clusters: Clusters, answers: Answers) -> Array:
    """Score how similar each row is to the examples and how dissimilar to the "no" answers.

    The score is the cosine similarity of centred rows. Without examples, the rows least like the
    "no" answers come first.
    """
    aim = np.zeros(gallery.shape[1])
    for places, sign in ((answers.yes, 1.0), (answers.no, -AWAY)):
        if len(places):
            aim += sign * (gallery.take(places).mean(axis=0, dtype=np.float64) - clusters.mean)
    size = float(np.abs(aim).max())
    direction: Floats = (aim / size if size > 0 else aim).astype(np.float64)

    def product(rows: Any) -> Floats:
        found: Floats = rows @ direction.astype(rows.dtype)
        return found

    with np.errstate(over="ignore", invalid="ignore"):
        inner = gallery.score(product) - clusters.mean @ direction
        return np.nan_to_num(inner / clusters.lengths, nan=-np.inf, posinf=-np.inf)


def least_squares(gallery: Gallery, answers: Answers) -> Array:
    """Score rows of unit length by a linear function fitted to the answers.

    A document tells its kind by single words. Least squares with a heavy weight on the examples
    finds these words, whereas a subspace follows the directions in which whole rows differ.
    """
    sizes = len(answers.yes), len(answers.no), len(answers.weak)
    weights = np.sqrt(1 / np.repeat(RIDGES, sizes))
    rows = sparse.csr_matrix(normalize(gallery.take(answers.rows)))
    rows = sparse.hstack([rows, np.ones((len(weights), 1))])
    targets = np.repeat([1.0, -1.0, -1.0], sizes)
    found = lsqr(sparse.diags(weights) @ rows, weights * targets, damp=1.0)[0][:-1]

    def product(rows: Any) -> Floats:
        return np.asarray(normalize(rows) @ found)

    return gallery.score(product)


def order_of(
    learned: Learned | None, similar: Array | None, linear: Array | None, n_examples: int
) -> Array:
    """Return the scores that rank the gallery, combining similarity, verifier and least squares.

    Least squares, if given, count as much as the other two together: their standardised scores are
    added.
    """
    scores = _without_squares(learned, similar, n_examples)
    if linear is None:
        return scores
    finite = np.isfinite(scores)
    total = np.full(len(scores), -np.inf)
    total[finite] = _standardized(scores[finite]) + _standardized(linear[finite])
    return total


def by_neighbours(gallery: Gallery, learned: Learned, scores: Array) -> Array:
    """Reorder the rows with the highest scores by their nearest answers in the subspace.

    The ratio describes the class by one Gaussian. Members that are left at the end of a search lie
    apart from its middle, often in small groups, and other rows lie between. A row next to a find
    then is a better guess than its ratio says. This counts only once many answers are "no".
    """
    answers = learned.answers
    share = len(answers.no) / (len(answers.yes) + len(answers.no))
    weight = NEAREST * float(np.clip((share - RARE[0]) / (RARE[1] - RARE[0]), 0, 1))
    if weight == 0 or not hasattr(learned.model, "transform"):
        return scores
    unanswered = gallery.ordinary & np.isfinite(scores)
    unanswered[np.concatenate([answers.yes, answers.no])] = False
    rows = likely(scores, np.flatnonzero(unanswered), CANDIDATES)
    if len(rows) == 0:
        return scores
    here, yes, no = (
        learned.model.transform(gallery.take(places)) for places in (rows, answers.yes, answers.no)
    )
    near = NEAR_NO * _distance(here, no) - _distance(here, yes)
    mixed = weight * _rank_logit(near) + (1 - weight) * _rank_logit(scores[rows])
    changed = scores.copy()
    changed[rows[np.argsort(-mixed, kind="stable")]] = scores[rows]
    return changed


def _distance(points: Floats, others: Floats) -> Array:
    """Return the distance from each point to the nearest of the others."""
    found: Array = pairwise_distances_argmin_min(points, others)[1]
    return found


def _standardized(scores: Array) -> Array:
    """Return scores with mean 0 and standard deviation 1."""
    return np.asarray((scores - scores.mean()) / max(float(scores.std()), 1e-300))


def _without_squares(learned: Learned | None, similar: Array | None, n_examples: int) -> Array:
    """Combine similarity and the verifier.

    Similarity counts most while there are few examples, and the verifier later. The two scores are
    combined through the logits of their ranks, which do not depend on the scale of the scores.
    """
    if learned is None:
        assert similar is not None
        return similar
    if similar is None:
        return learned.ratios
    weight = SIMILAR / (SIMILAR + n_examples)
    scores: Array = weight * _rank_logit(similar) + (1 - weight) * _rank_logit(learned.ratios)
    scores[np.isneginf(learned.ratios)] = -np.inf
    return scores


def _rank_logit(scores: Array) -> Array:
    """Return the logit of each score's relative rank."""
    rank = np.empty(len(scores))
    rank[np.argsort(scores, kind="stable")] = np.arange(1, len(scores) + 1)
    share = rank / (len(scores) + 1)
    return np.log(share / (1 - share))
