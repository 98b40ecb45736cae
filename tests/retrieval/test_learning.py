"""Learning from the answers of a session: how documents and late finds are ranked."""

from itertools import product

import numpy as np
import pytest
from benchmarks.planted_text import planted
from sklearn.datasets import load_digits

from pcsda import SearchSession
from pcsda.retrieval import learning
from pcsda.retrieval.gallery import Clusters, Gallery
from pcsda.retrieval.learning import (
    RIDGES,
    Answers,
    by_neighbours,
    learn,
    least_squares,
    order_of,
)


@pytest.fixture(scope="module")
def documents():
    return planted(10, 0.05, "three kinds with a common topic")


def test_least_squares_agree_with_their_dual_form(documents):
    X, truth = documents
    yes, no, drawn = np.flatnonzero(truth)[:7], np.flatnonzero(~truth)[:9], np.arange(40, 300)
    answers = Answers(yes, no, drawn)
    gram = (X @ X.T).toarray() + 1
    rows = answers.rows
    ridge = np.repeat(RIDGES, [7, 9, len(rows) - 16])
    targets = np.where(np.arange(len(rows)) < 7, 1.0, -1.0)
    expected = gram[:, rows] @ np.linalg.solve(gram[np.ix_(rows, rows)] + np.diag(ridge), targets)
    found = least_squares(Gallery(X), answers)
    np.testing.assert_allclose(found - found.mean(), expected - expected.mean(), atol=1e-4)


def test_a_searcher_of_documents_finds_more_with_least_squares():
    """With the order of the verifier alone, 83% of these documents were found."""
    shares = []
    for seed, kind in ((10, "one kind"), (12, "three kinds with a common topic")):
        X, truth = planted(seed, 0.05, kind)
        session = SearchSession(X)
        session.label(np.flatnonzero(truth)[:1], True)
        session.label(np.flatnonzero(~truth)[:1], False)
        for _ in range(20):
            rows = session.suggest(10)
            session.label(rows, truth[rows])
        found = sum(value is True for value in session.labels().values())
        shares.append(found / truth.sum())
    assert np.mean(shares) > 0.86


def test_documents_rank_the_same_in_every_container(documents):
    X, truth = documents
    orders = []
    for gallery in (X, X.toarray(), [X[:300], X[300:].toarray()]):
        session = SearchSession(gallery)
        session.label(np.flatnonzero(truth)[:5], True)
        orders.append(session.ranking()[:50])
    assert orders[0] == orders[1] == orders[2]


def test_only_rows_of_words_are_ranked_by_least_squares(documents):
    digits = load_digits(return_X_y=True)[0]
    assert Clusters(Gallery(documents[0]), 0).of_words
    assert not Clusters(Gallery(digits), 0).of_words


def test_least_squares_count_as_much_as_the_other_scores():
    similar, linear = np.array([3.0, 1.0, -np.inf, 2.0]), np.array([10.0, 30.0, -np.inf, 20.0])
    scores = order_of(None, similar, linear, 1)
    assert np.isneginf(scores[2])
    np.testing.assert_allclose(scores[[0, 1, 3]], 0, atol=1e-12)
    assert order_of(None, similar, None, 1) is similar


def test_members_far_from_the_middle_are_found_through_their_neighbours():
    """A small group of the class, of which two are known, came after most of the rest."""
    found = {0.0: 0, learning.NEAREST: 0}
    for weight, seed in product(found, range(6)):
        rng = np.random.default_rng(seed)
        rows, kinds = rng.normal(size=(1500, 10)), np.repeat([1, 2, 0], [60, 12, 1428])
        rows[:60, :3] += 4
        rows[60:72] = 0.5 * rows[60:72]
        rows[60:72, 3:6] += 2.2
        session = SearchSession(rows, random_state=seed)
        session.label(range(62), True)
        session.label(range(72, 132), False)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(learning, "NEAREST", weight)
            found[weight] += np.sum(kinds[session.suggest(20)] == 2)
    assert found[0.0] <= 6
    assert found[learning.NEAREST] >= found[0.0] + 8


def test_neighbours_only_reorder_unanswered_rows_and_only_once_many_answers_are_no():
    rows, digits = load_digits(return_X_y=True)
    session = SearchSession(rows)
    session.label(np.flatnonzero(digits == 3)[:20], True)
    before = session.suggest(10), learned_by(session)
    assert by_neighbours(session.gallery, before[1], before[1].ratios) is before[1].ratios
    session.label(np.flatnonzero(digits == 8)[:20], False)
    learned = learned_by(session)
    scores = by_neighbours(session.gallery, learned, learned.ratios)
    assert (scores != learned.ratios).sum() > 1000
    np.testing.assert_array_equal(np.sort(scores), np.sort(learned.ratios))
    known = learned.answers.rows[learned.answered]
    np.testing.assert_array_equal(scores[known], learned.ratios[known])


def learned_by(session):
    yes, no = (
        np.array([row for row, value in session.labels().items() if value is answer], dtype=int)
        for answer in (True, False)
    )
    answers = Answers(yes, no, session.gallery.sample(np.random.default_rng(0), 300))
    return learn(session.gallery, Clusters(session.gallery, 0), answers, None)
