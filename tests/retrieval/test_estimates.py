"""How many are left: counts by the model, counts by an audit, and when to stop."""

from functools import cache
from math import comb

import numpy as np
import pytest
from scipy.special import expit
from sklearn.datasets import load_digits

from pcsda import SearchSession
from pcsda.retrieval.estimates import count_by_answers, count_by_audit, count_by_shape


def chance(pool, positives, drawn, hits):
    """Hypergeometric probability, from its definition."""
    return comb(positives, hits) * comb(pool - positives, drawn - hits) / comb(pool, drawn)


@pytest.mark.parametrize(
    ("pool", "drawn", "hits"), [(40, 10, 0), (40, 10, 3), (25, 25, 4), (9, 1, 1)]
)
def test_the_interval_of_an_audit_has_all_numbers_that_are_not_too_unlikely(pool, drawn, hits):
    count, low, high = count_by_audit(pool, drawn, hits)
    assert count == pool * hits / drawn
    for positives in range(hits, pool - drawn + hits + 1):
        fewer = sum(chance(pool, positives, drawn, k) for k in range(hits + 1))
        more = sum(chance(pool, positives, drawn, k) for k in range(hits, drawn + 1))
        assert (low <= positives <= high) == (fewer > 0.05 and more > 0.05)


def test_the_bound_of_audits_holds_as_often_as_it_says():
    rng = np.random.default_rng(0)
    pool = np.arange(500) < 30
    bound = cache(lambda hits: count_by_audit(500, 60, hits)[2])
    held = [bound(int(rng.choice(pool, 60, replace=False).sum())) >= 30 for _ in range(1000)]
    assert np.mean(held) > 0.93


@pytest.mark.parametrize("by_rank", [False, True])
def test_the_count_of_a_pool_whose_answers_depend_on_the_score_alone(by_rank):
    """Which rows were answered does not matter, as long as they were chosen by score."""
    inside = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        scores = rng.normal(-4, 3, 2000)
        positive = rng.random(2000) < expit(1.3 * scores + 0.5)
        order = np.argsort(-scores) if by_rank else rng.permutation(2000)
        seen, pool = order[:400], order[400:]
        count, low, high = count_by_answers(scores[seen], positive[seen], scores[pool])
        assert low <= count <= high
        inside.append(low <= positive[pool].sum() <= high)
    assert np.mean(inside) > 0.75


@pytest.mark.parametrize("by_rank", [False, True])
def test_the_shape_of_the_scores_tells_how_many_there_are(by_rank):
    """Also where the answers so far show the near end of the class alone."""
    rng = np.random.default_rng(0)
    positive = np.arange(3000) < 300
    scores = np.where(positive, rng.normal(4, 2, 3000), rng.normal(-6, 2.5, 3000))
    order = np.argsort(-scores) if by_rank else rng.permutation(3000)
    seen, pool = order[:200], order[200:]
    yes, no = scores[seen[positive[seen]]], scores[seen[~positive[seen]]]
    count, low, high = count_by_shape(yes, no, scores[pool])
    true = positive[pool].sum()
    assert low <= true <= high
    assert 0.8 * true < count < 1.25 * true


def test_bins_change_nothing_to_speak_of(monkeypatch):
    rng = np.random.default_rng(0)
    scores = rng.normal(-3, 3, 3000)
    positive = rng.random(3000) < expit(scores)
    binned = count_by_answers(scores[:500], positive[:500], scores[500:])
    monkeypatch.setattr("pcsda.retrieval.estimates.MANY", 5000)
    exact = count_by_answers(scores[:500], positive[:500], scores[500:])
    np.testing.assert_allclose(binned, exact, rtol=0.01)


@pytest.fixture
def session():
    X, y = load_digits(return_X_y=True)
    session = SearchSession(X[:500])
    session.label(np.flatnonzero(y[:500] == 3)[:3], True)
    return session, y[:500] == 3


def answer(session, truth, rows):
    session.label(rows, [bool(truth[row]) for row in rows])


def test_an_audit_is_used_once_it_is_answered(session):
    session, truth = session
    for _ in range(4):
        answer(session, truth, session.suggest(20))
    assert session.remaining().basis == "model"
    drawn = session.suggest(100, how="random")
    assert session.suggest(100, how="random") == drawn  # it waits for answers
    answer(session, truth, drawn[:60])
    assert session.remaining().basis == "model"
    answer(session, truth, drawn[60:])
    left = session.remaining()
    assert left.basis == "audit"
    pool = 500 - 83
    hits = int(truth[drawn].sum())
    expected = count_by_audit(pool, 100, hits)
    assert (left.count_low, left.count_high) == (expected[1] - hits, expected[2] - hits)
    true = truth.sum() - sum(value is True for value in session.labels().values())
    assert left.count_low <= true <= left.count_high
    stop = session.stop(recall=0.5)
    assert stop
    assert stop.basis == "audit"
    assert "a random audit" in str(stop)
    # Without other labels in between, more random rows join the audit.
    more = session.suggest(50, how="random")
    answer(session, truth, more)
    assert len(session.store.audits()) == 1
    assert session.remaining().count_high <= left.count_high
    # What is found afterwards is taken off.
    answer(session, truth, session.suggest(10))
    session.suggest(10, how="random")
    assert [len(audit.ids) for audit in session.store.audits()] == [150, 10]


def test_a_row_of_an_audit_that_is_skipped_counts_as_one_of_the_class(session):
    session, truth = session
    drawn = session.suggest(50, how="random")
    answer(session, truth, drawn)
    before = session.remaining().count_high
    wrong = next(row for row in drawn if not truth[row])
    session.label(wrong, None)
    assert session.remaining().count_high > before


def test_an_audit_survives_the_session(session, tmp_path):
    session, truth = session
    answer(session, truth, session.suggest(50, how="random"))
    session.save(tmp_path / "labels.db")
    again = SearchSession.open(tmp_path / "labels.db", load_digits(return_X_y=True)[0][:500])
    assert again.remaining() == session.remaining()


def test_recall_and_stop_agree_with_what_remains(session):
    session, truth = session
    for _ in range(1):
        answer(session, truth, session.suggest(20))
    found = sum(value is True for value in session.labels().values())
    left, stop = session.remaining(), session.stop(recall=0.999)
    assert session.recall() == pytest.approx(found / (found + left.count))
    assert stop.recall_low == pytest.approx(found / (found + left.count_high))
    assert not stop
    assert "answers to random rows would give a surer bound" in stop.reason
    assert session.stop(recall=0.01)
    assert "by the model" in str(session.stop(recall=0.01))


def test_a_search_that_still_finds_many_does_not_stop():
    """The model saw 2 left, at most 8, where the last screen was full and 26 were left."""
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))
    session, truth = SearchSession(X), y == 3
    session.label(order[truth[order]][:3], True)
    while len(session.labels()) < 163:
        rows = session.suggest(20)
        session.label(rows, truth[rows])
        lately = list(session.labels().values())[-20:]
        assert session.remaining().count_high >= sum(lately)
    assert sum(lately) >= 10
    assert not session.stop(recall=0.95)
