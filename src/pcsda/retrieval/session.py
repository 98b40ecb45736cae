"""A search session, which finds the rest of a class from a few examples and fits a verifier."""

from __future__ import annotations

import os
from collections.abc import Hashable, Sequence
from dataclasses import replace
from numbers import Integral, Real
from threading import RLock
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline

from .. import validation
from ..core.linalg import Array, Ints
from ..core.threshold import Threshold, check_criterion
from ..estimators.verifier import Verifier
from .audits import audited_remaining, draw_audit, unfinished_audit
from .book import NO_EXAMPLE, LabelBook
from .estimates import Remaining, count_by_model
from .gallery import Clusters, Gallery
from .learning import (
    ALONE,
    WEAK_ROWS,
    Answers,
    Learned,
    by_neighbours,
    learn,
    least_squares,
    order_of,
    similarity,
)
from .operating import choose_on_gallery
from .stopping import Stop, decide, without_finds
from .store import Entry, Store, StoreError
from .strategies import STRATEGIES, diverse, likely, mixed, uncertain

# The upper bound on the number left is at least the number found among the last LATELY answers.
LATELY = 20


class SearchSession:
    """Interactive search: label some gallery rows, and a verifier finds the rest of the class.

    Give one or more examples with :meth:`label`, look at the rows that :meth:`suggest` returns,
    label them, and repeat. After each round, :meth:`ranking` orders the gallery, :meth:`remaining`
    estimates how many members of the class are still unlabelled, :meth:`stop` says whether enough
    have been found, and `model_` is the fitted verifier.

    Parameters
    ----------
    gallery : array, memory map, sparse matrix, data frame or list of arrays
        Rows to search: anything two-dimensional that can be sliced by rows, or a list of such
        blocks. Rows that are not finite are never suggested and come last in the ranking; a warning
        gives their number. Nothing is learned from rows whose entries are 10,000 times as large as
        in the median row.
    ids : sequence of str or int, optional
        A distinct name for each row; the row number by default.
    estimator : estimator, optional
        Verifier to fit after each round, with `fit` and `log_likelihood_ratio`; if None, a
        `PCSDA` with a ridge suited to few examples.
    store : path, optional
        SQLite file for the labels. Every label is stored before :meth:`label` returns. If the file
        comes from an earlier session, that session resumes. If None, labels are kept in memory.
    carry_over : bool, default=False
        Whether to accept a store made for another gallery; labels then count for the ids that
        both galleries have. By default such a store is rejected.
    random_state : int, default=0
        Seed for the clusters, the random negatives and the audits.

    Attributes
    ----------
    model_ : estimator
        The verifier fitted on the labels so far. Its threshold accepts about 1% of the gallery's
        negatives; :meth:`choose_threshold` chooses another. With a single example the model has no
        threshold, because examples must be left out of the fit to choose one.
    gallery : Gallery
        The rows, with their ids.
    store : Store
        The labels, in a file or in memory.

    See Also
    --------
    PCSDA : The verifier.

    Notes
    -----
    Negatives are the "no" answers and 300 random rows from the gallery, which have a fifth of the
    weight because they are unchecked. Rows that were chosen by rank are not a random sample, so
    the ratios are calibrated on left-out examples and random rows, and thresholds are chosen on the
    whole gallery. With few examples, the ranking blends the verifier with the cosine similarity to
    the examples. Once many answers are "no", the best rows are reordered by their nearest answers.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from pcsda import SearchSession
    >>> X, y = load_digits(return_X_y=True)
    >>> session = SearchSession(X)
    >>> session.label([3, 13, 23], True)
    >>> for _ in range(10):
    ...     rows = session.suggest(20)
    ...     session.label(rows, y[rows] == 3)
    >>> found = [row for row, value in session.labels().items() if value]
    >>> len(found) > 150
    True
    """

    def __init__(
        self,
        gallery: Any,
        ids: Sequence[Hashable] | None = None,
        *,
        estimator: BaseEstimator | None = None,
        store: str | os.PathLike[str] | None = None,
        carry_over: bool = False,
        random_state: int = 0,
    ) -> None:
        _check_arguments(gallery, ids, estimator, random_state)
        validation.check_flag("carry_over", carry_over)
        self.gallery = gallery if isinstance(gallery, Gallery) else Gallery(gallery, ids)
        self.estimator = estimator
        self.gallery.refuse_file(store)
        self.store = Store(store)
        self._lock = RLock()
        self._book = LabelBook(self.gallery, self.store, carry_over)
        if self.store.fact("seed") is None:
            self.store.keep("seed", str(int(random_state)))
        self._seed = int(self.store.fact("seed") or 0)
        self._rng = np.random.default_rng([self._seed, *self.store.state()])
        self._clusters = Clusters(self.gallery, self._seed)
        self._drawn = self.gallery.sample(np.random.default_rng(self._seed), WEAK_ROWS)
        self._learned_at: tuple[int, int] | None = None
        self._learned: Learned | None = None
        self._problem = NO_EXAMPLE

    def __repr__(self) -> str:
        rows, columns = self.gallery.shape
        try:
            values = self.labels()
        except StoreError:  # closed, for example
            progress = "its store cannot be read"
        else:
            found = sum(value is True for value in values.values())
            progress = f"{len(values)} answered, {found} found"
        return f"<SearchSession: {rows} rows, {columns} columns; {progress}>"

    def __getstate__(self) -> None:
        """Refuse a copy: two sessions with one open store would not be independent."""
        raise TypeError(
            "a session cannot be copied or pickled; save(path) writes its labels to a file that "
            "SearchSession.open reads, and model_ can be saved on its own"
        )

    # Labels

    def label(self, ids: Any, values: ArrayLike, *, who: str | None = None) -> None:
        """Label rows; the labels are stored before this method returns.

        Parameters
        ----------
        ids : id or sequence of ids
            A mask is refused; ``np.flatnonzero(mask)`` gives the row numbers.
        values : bool, None, "yes", "no", "skip", or a sequence of them
            One answer for all ids, or one per id. None skips a row: it is not shown again, and
            nothing is learned from it. Only the latest answer for a row counts, even within one
            call; earlier answers stay in the store.
        who : str, optional
            Who is answering; defaults to the user's name.

        Raises
        ------
        ValueError
            If some ids are not in the gallery, values are not answers or `who` is not text. If
            only ids are unknown, the other labels from this call are stored.
        """
        with self._lock:
            model = 0 if self._learned_at is None else self._learned_at[0]
            self._book.add(ids, values, who, model, self._scores_before)

    def _scores_before(self, places: Ints) -> Array:
        """Return each row's ratio from a model that did not learn from its answer, or NaN.

        The ratio is NaN if there is no such model, and for rows that are far off.
        """
        learned = self._learned
        if learned is None:
            return np.full(len(places), np.nan)
        seen = np.isin(places, learned.answers.rows[learned.answered])
        return np.where(seen | ~self.gallery.ordinary[places], np.nan, learned.unseen(places))

    def undo(self, who: str | None = None) -> list[Any]:
        """Undo the last call to :meth:`label`, so that earlier answers count again.

        Parameters
        ----------
        who : str, optional
            Undo the last call by this person only.

        Returns
        -------
        list of ids
            The ids whose answers were undone; empty if there is nothing to undo.
        """
        return self.store.undo(who)

    def labels(self) -> dict[Any, bool | None]:
        """Return the current answer for each id, in answer order: True, False, or None if skipped.

        Returns
        -------
        dict
        """
        with self._lock:
            return self._book.values()

    def history(self) -> list[Entry]:
        """Return all labels that have not been undone, for ids in the gallery.

        Returns
        -------
        list of Entry
            Each has id, value, who, at (the time), model (number of the last label that the model
            had seen) and score (the row's ratio from that model, or None).
        """
        with self._lock:
            return self._book.history()

    # What was learned

    def refit(self) -> None:
        """Refit the verifier if there are new labels.

        All methods that need the model call this method. A program may call it earlier to choose
        when to wait.
        """
        with self._lock:
            state = self.store.state()
            if state == self._learned_at:
                return
            yes, no = self._book.rows(True), self._book.rows(False)
            ordinary = self.gallery.ordinary
            if ordinary[yes].any():
                yes, no = yes[ordinary[yes]], no[ordinary[no]]
            answers = Answers(yes, no, self._drawn)
            self._learned, self._problem = None, self._book.no_example()
            if len(yes):
                self._try_to_learn(answers)
            similar = None
            if self._learned is None or len(yes) < ALONE:
                similar = similarity(self.gallery, self._clusters, answers)
            linear = None
            if len(yes) and self._clusters.of_words:
                linear = least_squares(self.gallery, answers)
            self._scores = order_of(self._learned, similar, linear, len(yes))
            if self._learned is not None and linear is None:
                self._scores = by_neighbours(self.gallery, self._learned, self._scores)
            self._learned_at = state

    def _try_to_learn(self, answers: Answers) -> None:
        """Try to fit the verifier; if the rows do not allow it yet, rank by similarity only."""
        try:
            self._learned = learn(self.gallery, self._clusters, answers, self.estimator)
        except (ValueError, np.linalg.LinAlgError) as error:
            self._problem = f"there is no verifier yet: {error}"

    def _verified(self) -> Learned:
        with self._lock:
            self.refit()
            if self._learned is None:
                raise ValueError(self._problem)
            return self._learned

    @property
    def model_(self) -> Any:
        """The verifier fitted on the labels so far, with a threshold for 1% false alarms.

        With one example there is no threshold yet.
        """
        learned = self._verified()
        verifier = learned.verifier
        fresh = isinstance(verifier, Verifier) and not hasattr(verifier, "threshold_")
        if fresh and len(learned.scores_by_answer(self._pool())[0]):
            self.choose_threshold(max_false_alarms=0.01)
        return learned.model

    def choose_threshold(
        self,
        max_false_alarms: float | None = None,
        max_misses: float | None = None,
        prior: float | None = None,
        cost_miss: float = 1.0,
        cost_false_alarm: float = 1.0,
    ) -> Threshold:
        """Choose the threshold of `model_` on the whole gallery.

        Answered rows count with their left-out ratios. An unanswered row counts as a member of the
        class with its probability and as a negative with the rest, so that :meth:`remaining`
        members are expected among these rows. While most of the class is hidden, the answers hardly
        tell how many members a threshold misses; then the interval of the misses is wide, and the
        rule says so.

        Parameters
        ----------
        max_false_alarms, max_misses, prior, cost_miss, cost_false_alarm
            As in :meth:`PCSDA.choose_threshold`.

        Returns
        -------
        Threshold
            The model keeps it as `threshold_` until more labels are given.
        """
        check_criterion(max_false_alarms, max_misses, prior, cost_miss, cost_false_alarm)
        with self._lock:
            learned, left = self._verified(), self.remaining()
            rows = learned.scores_by_answer(self._pool())
        if len(rows[0]) == 0:
            remedy = f"; {learned.without()[1]}"
            raise ValueError(f"there are no left-out examples to choose a threshold from{remedy}")
        threshold = choose_on_gallery(
            *rows,
            left,
            max_false_alarms=max_false_alarms,
            max_misses=max_misses,
            prior=prior,
            cost_miss=cost_miss,
            cost_false_alarm=cost_false_alarm,
        )
        learned.verifier.threshold_ = threshold
        return threshold

    def ranking(self) -> list[Any]:
        """Return all ids, best first: rows answered "yes", then unanswered rows, then "no" rows.

        Unanswered and skipped rows are ordered by the model. Rows that are not finite come last.

        Returns
        -------
        list of ids
        """
        with self._lock:
            self.refit()
            scores = self._scores.copy()
            values = self.labels()
        group = np.zeros(len(scores))
        for name, value in values.items():
            if value is not None:
                group[self.gallery.place(name)] = 1 if value else -1
        group[~self.gallery.usable] = -2
        order = np.lexsort((-np.nan_to_num(scores, neginf=-1e300), -group))
        return [self.gallery.ids[place] for place in order]

    def scores(self) -> Array:
        """Return the log-likelihood ratio of each gallery row; -inf if the row is not finite.

        Returns
        -------
        array of shape (n_rows,)
        """
        return self._verified().ratios.copy()

    def suggest(self, n: int = 20, how: str = "likely") -> list[Any]:
        """Return the ids of unanswered rows to look at next.

        Parameters
        ----------
        n : int, default=20
            Number of rows.
        how : {"likely", "uncertain", "diverse", "mixed", "random"}, default="likely"
            The most likely rows; rows with even odds; likely rows that differ from each other; a
            mixture of these; or random rows. Random rows form an audit: once all are answered,
            :meth:`stop` and :meth:`remaining` rely on them.

        Returns
        -------
        list of ids
            Fewer than `n` if fewer are left.
        """
        validation.check_option("how", how, STRATEGIES)
        # The remainder of an infinite number or NaN is NaN, which counts as true.
        if isinstance(n, bool) or not isinstance(n, Real) or n < 1 or n % 1:
            raise ValueError(f"n={n!r} must be a whole number of at least 1")
        with self._lock:
            self.refit()
            pool = self._book.free()
            n = min(int(n), len(pool))
            if how == "random":
                free = [self.gallery.ids[place] for place in pool]
                return draw_audit(self.store, free, n, self.history(), self._rng)
            return [self.gallery.ids[place] for place in self._choose(pool, n, how)]

    def _choose(self, pool: Ints, n: int, how: str) -> Ints:
        scores = self._scores
        if not len(self.labels()):  # nothing is known yet, so show a variety
            scores = np.random.default_rng(self._seed).permutation(len(scores)).astype(float)
        ways = {
            "likely": lambda left, m: likely(scores, left, m),
            "uncertain": lambda left, m: uncertain(self._odds(len(pool)), left, m),
            "diverse": lambda left, m: diverse(scores, left, m, self.gallery.take),
        }
        if how == "mixed":
            shares = zip((0.5, 0.25, 1.0), ways.values(), strict=True)
            return mixed(list(shares), pool, n)
        return ways[how](pool, n)

    def _odds(self, pool: int) -> Array:
        """Return each row's log odds, given the class's share among unanswered rows."""
        if self._learned is None:
            return self._scores
        share = min(max(self._by_model().count, 0.5) / pool, 0.5)
        odds: Array = self._learned.ratios + np.log(share / (1 - share))
        return odds

    # How many are left

    def remaining(self) -> Remaining:
        """Estimate how many unanswered rows belong to the class, with a 90% interval.

        Returns
        -------
        Remaining
            The estimate comes from the largest fully answered audit, or from the model if there is
            none. If the last audit is not yet fully answered but its answers contradict this
            estimate, they replace it. A skipped row is still unanswered, and in an audit it counts
            as a member of the class. Rows that are not finite are not counted; if some have no
            answer, the note says how many.
        """
        known = self.store.audits(), self.history(), self._book.finite_values()
        left = audited_remaining(*known) or self._by_model()
        begun = unfinished_audit(*known)
        if begun is not None and begun.count_low > left.count_high:
            left = begun
        return replace(left, note=f"{left.note} {self._book.uncovered()}".strip())

    def _by_model(self) -> Remaining:
        pool = self._book.undecided()
        if len(pool) == 0:
            return Remaining(0.0, 0, 0, 0, "model", "No row is left to show.")
        learned = self._verified()
        yes, no, unknown = learned.scores_by_answer(self._pool())
        if len(yes) == 0:
            why, remedy = learned.without()
            note = f"{why}, so there is no estimate of how many are left; {remedy}."
            return Remaining(float(len(pool)) / 2, 0, len(pool), len(pool), "model", note)
        ranked = self._book.ranked({name for audit in self.store.audits() for name in audit.ids})
        places = self.gallery.places(entry.id for entry in ranked)
        then = np.array([np.nan if entry.score is None else entry.score for entry in ranked])
        found = [entry.value is True for entry in ranked]
        count, low, high = count_by_model(yes, no, unknown, found, learned.scores_of(places, then))
        # If the last answers were mostly finds, more are left, whatever the model says.
        lately = [value for value in self.labels().values() if value is not None][-LATELY:]
        high = min(max(high, sum(lately)), len(pool))
        note = "Answer random rows for a safer bound."
        return Remaining(count, low, high, len(pool), "model", note)

    def _pool(self) -> Ints:
        """Return the numbers of the finite rows without a yes or no.

        Rows that are far off would distort the distribution of scores, so they are left out unless
        all rows are.
        """
        pool = self._book.undecided()
        near = pool[self.gallery.ordinary[pool]]
        return near if len(near) else pool

    def recall(self) -> float:
        """Estimate the share of the class that has been found, from :meth:`remaining`.

        Returns
        -------
        float
        """
        found = len(self._book.rows(True))
        left = self.remaining().count
        return found / (found + left) if found + left > 0 else 0.0

    def stop(self, recall: float = 0.95) -> Stop:
        """Decide whether enough of the class has been found.

        Parameters
        ----------
        recall : float, default=0.95
            Share of the class to find.

        Returns
        -------
        Stop
            Truthy if the lower bound on the share found, at 95% confidence, reaches `recall`, or
            if no row is left to show. Skipped rows count as unanswered. `basis` says whether the
            bound comes from a random audit, which does not depend on the model, or from the model,
            which cannot know of members unlike those found. `audit_rows` is the size of a random
            audit that would confirm the goal without the model if the audit finds no member. The
            reason says how many rows the bound does not cover because they are not finite.
        """
        if not isinstance(recall, Real) or not 0 < recall <= 1:
            raise ValueError(f"recall={recall!r} must be above 0 and at most 1")
        found = len(self._book.rows(True))
        if found == 0:
            return without_finds(self._book)
        try:
            left = self.remaining()
        except ValueError as error:
            return Stop(False, f"Go on: {error}.", "none", 0.0)
        return decide(self._book, found, left, recall, self._by_model)

    # Files

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all labels to a store that :meth:`open` can read.

        Parameters
        ----------
        path : path
            If writing fails, no partial file remains. The store of this session already holds all
            labels and is left as it is; a file that the gallery is mapped from is refused.
        """
        self.gallery.refuse_file(path)
        self.store.copy_to(path)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        gallery: object,
        ids: Sequence[Hashable] | None = None,
        *,
        estimator: BaseEstimator | None = None,
        carry_over: bool = False,
    ) -> Self:
        """Resume a session from its store.

        Parameters
        ----------
        path : path
            The store of the session.
        gallery, ids, estimator, carry_over
            As in the constructor; the gallery must be the same unless `carry_over` is set.

        Returns
        -------
        SearchSession
        """
        if not os.path.exists(path):
            raise FileNotFoundError(
                f"{path} does not exist; SearchSession(..., store=) creates a store"
            )
        return cls(gallery, ids, estimator=estimator, store=path, carry_over=carry_over)

    def close(self) -> None:
        """Close the store. Without this call, it is closed when the program ends."""
        self.store.close()


def _check_arguments(gallery: Any, ids: Any, estimator: Any, random_state: Any) -> None:
    """Reject arguments before the store is opened, which would keep a wrong seed for good."""
    if isinstance(gallery, Gallery) and ids is not None:
        raise ValueError("this gallery already has ids; leave ids out")
    last = estimator[-1] if isinstance(estimator, Pipeline) else estimator
    # Pipelines of scikit-learn have no ratios, whatever their last step is.
    able = all(hasattr(part, "log_likelihood_ratio") for part in (estimator, last))
    able = able and not hasattr(last, "enroll")  # a bank verifies many labels
    if estimator is not None and (isinstance(last, type) or not able):
        raise TypeError(
            f"estimator={estimator!r} must be a verifier, such as PCSDA(), or a pipeline "
            "of pcsda.make_pipeline that ends in one"
        )
    whole = isinstance(random_state, Integral) and not isinstance(random_state, bool)
    if not whole or random_state < 0:
        raise ValueError(
            f"random_state={random_state!r} must be a whole number of at least 0, which the store "
            "keeps so that the session can be resumed"
        )
