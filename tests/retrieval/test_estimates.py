"""How many members remain: estimates from the model and from an audit, and when to stop."""

import re
from functools import cache
from itertools import product
from math import comb

import numpy as np
import pytest
from benchmarks.planted_text import planted
from scipy.special import softmax
from scipy.stats import poisson
from sklearn.datasets import load_digits

from pcsda import SearchSession
from pcsda.retrieval.estimates import (
    SLOPE_ERROR,
    count_by_audit,
    count_by_model,
    counts_by_answers,
    counts_by_odds,
    falling,
    fit_shape,
    log_likelihood,
)
from pcsda.retrieval.stopping import rows_to_rule_out


def chance(pool, positives, drawn, hits):
    """Compute the hypergeometric probability from its definition."""
    return comb(positives, hits) * comb(pool - positives, drawn - hits) / comb(pool, drawn)


@pytest.mark.parametrize(
    ("pool", "drawn", "hits"), [(40, 10, 0), (40, 10, 3), (25, 25, 4), (9, 1, 1)]
)
def test_the_audit_interval_contains_every_plausible_count(pool, drawn, hits):
    count, low, high = count_by_audit(pool, drawn, hits)
    assert count == pool * hits / drawn
    for positives in range(hits, pool - drawn + hits + 1):
        fewer = sum(chance(pool, positives, drawn, k) for k in range(hits + 1))
        more = sum(chance(pool, positives, drawn, k) for k in range(hits, drawn + 1))
        assert (low <= positives <= high) == (fewer > 0.05 and more > 0.05)


def test_the_audit_bound_has_its_stated_coverage():
    rng = np.random.default_rng(0)
    pool = np.arange(500) < 30
    bound = cache(lambda hits: count_by_audit(500, 60, hits)[2])
    held = [bound(int(rng.choice(pool, 60, replace=False).sum())) >= 30 for _ in range(1000)]
    assert np.mean(held) > 0.93


@pytest.mark.parametrize(("pool", "members"), [(40, 1), (40, 7), (300, 12), (25, 25), (25, 30)])
def test_an_audit_of_the_size_offered_is_just_large_enough(pool, members):
    rows = rows_to_rule_out(pool, members)
    assert count_by_audit(pool, rows, 0)[2] < members
    assert rows == 1 or count_by_audit(pool, rows - 1, 0)[2] >= members


@pytest.mark.parametrize("by_rank", [False, True])
def test_the_shape_of_the_scores_reveals_the_class_size(by_rank):
    """This also holds when the answers so far cover only the near end of the class."""
    rng = np.random.default_rng(0)
    positive = np.arange(3000) < 300
    scores = np.where(positive, rng.normal(4, 2, 3000), rng.normal(-6, 2.5, 3000))
    order = np.argsort(-scores) if by_rank else rng.permutation(3000)
    seen, pool = order[:200], order[200:]
    yes, no = scores[seen[positive[seen]]], scores[seen[~positive[seen]]]
    true = positive[pool].sum()
    assert 0.8 * true < fit_shape(yes, no, scores[pool], 2).count < 1.25 * true
    assert fit_shape(yes, no, scores[pool], 1).count == pytest.approx(true, rel=0.1)
    _, low, high = count_by_model(yes, no, scores[pool], positive[seen] if by_rank else [])
    assert low <= true <= high


@pytest.mark.more  # hundreds of draws
def test_the_model_interval_has_its_stated_coverage():
    inside = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        size, apart = int(rng.integers(20, 400)), rng.uniform(5, 10)
        positive = np.arange(3000) < size
        spread = rng.uniform(1, 3)
        scores = np.where(positive, rng.normal(0, spread, 3000), rng.normal(-apart, 2, 3000))
        order = np.argsort(-scores)
        seen, pool = order[:100], order[100:]
        yes, no = scores[seen[positive[seen]]], scores[seen[~positive[seen]]]
        count, low, high = count_by_model(yes, no, scores[pool], positive[seen])
        assert low <= count <= high
        inside.append(low <= positive[pool].sum() <= high)
    assert np.mean(inside) >= 0.9


def test_an_exhausted_search_stops():
    """With all found and 113 other rows answered, the interval once reached almost all rows."""
    rng = np.random.default_rng(0)
    truth = np.arange(3000) < 40
    X = rng.normal(size=(3000, 16)) + 8 * truth[:, None] * np.eye(16)[0]
    session = SearchSession(X)
    session.label([0, 1, 2], True)
    for _ in range(6):
        rows = session.suggest(25)
        session.label(rows, truth[rows])
    assert sum(value is True for value in session.labels().values()) == 40
    assert session.remaining().count_high < 5
    assert session.stop(recall=0.95)


def planted_class(size, seed):
    """A class beside one of twelve clusters of 5000 rows, and three of its members."""
    rng = np.random.default_rng([seed, size])
    scale = 1 / np.sqrt(1 + np.arange(32) / 8)
    centres = 2 * rng.normal(size=(12, 32)) * scale
    truth = rng.permutation(5000) < size
    X = centres[rng.integers(12, size=5000)] + rng.normal(size=(5000, 32)) * scale
    X[truth] = centres[0] + scale * rng.normal(size=32) + 0.9 * rng.normal(size=(size, 32)) * scale
    return X.astype(np.float32), truth, rng.choice(np.flatnonzero(truth), 3, replace=False)


@pytest.mark.parametrize(
    ("size", "n_searches"),
    [(20, 3), *(pytest.param(size, 10, marks=pytest.mark.more) for size in (5, 20, 100, 500))],
)
def test_a_search_stops_soon_after_the_last_find_and_not_before(size, n_searches):
    """A class of 20 was all found after 63 answers, and `stop` did not come within 800."""
    recalls, waits = [], []
    for seed in range(n_searches):
        X, truth, examples = planted_class(size, seed)
        session, found, wait = SearchSession(X), 3, 0
        session.label(examples, True)
        while not session.stop(recall=0.95):
            assert wait < 300
            wait = wait + 25 if found >= 0.95 * size else 0
            rows = session.suggest(25)
            session.label(rows, truth[rows])
            found += int(truth[rows].sum())
        assert session.stop().basis == "model"
        recalls.append(found / size)
        waits.append(wait)
    assert np.median(waits) <= (125 if size < 20 else 50)
    assert np.mean(np.array(recalls) >= 0.95) >= 0.9


def test_binning_hardly_changes_the_estimate(monkeypatch):
    rng = np.random.default_rng(0)
    positive = np.arange(3000) < 500
    scores = np.where(positive, rng.normal(2, 2, 3000), rng.normal(-6, 2, 3000))
    seen = np.argsort(-scores)[:250]
    pool = np.setdiff1d(np.arange(3000), seen)
    known = scores[seen[positive[seen]]], scores[seen[~positive[seen]]]
    binned = count_by_model(*known, scores[pool], positive[seen])
    monkeypatch.setattr("pcsda.retrieval.estimates.MANY", 5000)
    exact = count_by_model(*known, scores[pool], positive[seen])
    np.testing.assert_allclose(binned, exact, rtol=0.02)


def test_dwindling_finds_outweigh_the_shape_of_the_scores():
    """For a rare class in a long-tailed gallery, the shape alone predicted hundreds more."""
    rng = np.random.default_rng(0)
    yes, no = rng.normal(6, 5, 35), rng.normal(2, 3, 65)
    pool = np.concatenate([rng.normal(-7, 3, 7000), 4 - rng.exponential(2, 1000)])
    finds = [bool(value) for value in np.arange(100) < 35]
    shape = fit_shape(yes, no, pool, 2).count
    count, _, high = count_by_model(yes, no, pool, finds)
    early = count_by_model(yes, no, pool, [])
    assert count < early[0] / 2
    assert high < early[2] / 2
    assert shape > 10


def test_true_ratios_reveal_how_many_are_left():
    """The share comes from maximum likelihood and from the answers to the top rows."""
    rng, errors = np.random.default_rng(0), []
    for _ in range(20):
        positive = np.arange(5000) < 80
        ratios = np.where(positive, rng.normal(4.5, 3, 5000), rng.normal(-4.5, 3, 5000))
        order = np.argsort(-ratios)
        seen, pool = order[:100], order[100:]
        known = ratios[seen[positive[seen]]], ratios[seen[~positive[seen]]]
        left = positive[pool].sum()
        errors.append(np.log(np.array(counts_by_odds(*known, ratios[pool])) / left))
    assert np.abs(np.mean(errors, axis=0)).max() < 0.25


def drawn_by_rank(slope, seed):
    """Answers to the best 150 of 4000 rows, whose log odds are a line in their scores."""
    rng = np.random.default_rng(seed)
    scores = np.sort(rng.normal(-4, 3, 4000))[::-1]
    members = rng.random(4000) < 1 / (1 + np.exp(-slope * (scores - 2)))
    return members[:150].tolist(), scores[:150], scores[150:], int(members[150:].sum())


def quantiles(counts, chances, parts):
    order = np.argsort(counts)
    return np.interp(parts, np.cumsum(chances[order]), counts[order])


def test_with_slopes_from_the_prior_the_answers_reveal_how_many_are_left():
    rng, errors, held = np.random.default_rng(0), [], []
    for seed in range(60):
        slope = np.exp(SLOPE_ERROR * rng.normal())
        answers, scores, pool, left = drawn_by_rank(slope, seed)
        counts, chances = counts_by_answers(answers, scores, pool)
        assert chances.sum() == pytest.approx(1)
        low, middle, high = quantiles(counts, chances, [0.05, 0.5, 0.95])
        low, high = poisson.ppf([0.05, 0.95], [low, high])
        held.append(low <= left <= high)
        errors.append(np.log(middle + 0.5) - np.log(left + 0.5))
    assert np.mean(held) >= 0.9
    assert abs(np.median(errors)) < 0.2


def test_odds_that_fall_more_slowly_than_ratios_do_not_hide_members():
    """The mean of both counts from ratios taken as they are was a twentieth of the truth."""
    shares = []
    for seed in range(20):
        answers, scores, pool, left = drawn_by_rank(0.5, seed)
        found = np.array(answers)
        plain = counts_by_odds(scores[found], scores[~found], pool)
        fitted = quantiles(*counts_by_answers(answers, scores, pool), [0.5])
        shares.append(np.array([np.sqrt(np.prod(plain)), *fitted]) / left)
    before, fitted = np.median(shares, axis=0)
    assert before < 0.1
    assert 0.3 < fitted < 1.5


@pytest.mark.parametrize("answer", [True, False])
def test_equal_answers_and_scores_far_apart_give_finite_counts(answer):
    pool = np.linspace(-3, 0, 50)
    counts, chances = counts_by_answers([answer] * 5, np.linspace(0, 1, 5), pool)
    assert np.isfinite(counts).all()
    assert chances @ counts > 10 if answer else chances @ counts < 10
    counts, chances = counts_by_answers([True, False], np.array([1e6, -1e6]), pool)
    assert np.isfinite(counts).all()
    assert np.isfinite(chances).all()
    assert counts_by_answers([answer] * 5, np.full(5, np.nan), pool) is None


@pytest.mark.more
@pytest.mark.parametrize("n_seeds", [1, 6])
def test_documents_still_hidden_are_counted(n_seeds):
    """After 100 answers a tenth to a quarter were counted; intervals held in half of searches."""
    logs, held = [], []
    for seed, kind in product(range(n_seeds), ("one kind", "three kinds with a common topic")):
        X, truth = planted(seed, 0.1, kind)
        session = SearchSession(X.astype(np.float32))
        for value in (True, False):
            session.label(int(np.flatnonzero(truth == value)[0]), value)
        for _ in range(10):
            rows = session.suggest(10)
            session.label(rows, truth[rows])
        left = truth.sum() - sum(value is True for value in session.labels().values())
        guess = session.remaining()
        logs.append(np.log((guess.count + 0.5) / (left + 0.5)))
        held.append(guess.count_low <= left <= guess.count_high)
    assert np.exp(np.median(np.abs(logs))) < 3
    assert np.mean(held) >= 0.85


def test_finds_with_lawfully_falling_odds_reveal_how_many_are_left():
    """With answers drawn from the law itself, the most likely count is right on average."""
    counts, errors = np.geomspace(0.1, 1000, 200), []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        odds = 3 - 0.02 * np.arange(2000)
        finds = rng.random(2000) < 1 / (1 + np.exp(-odds))
        logs = log_likelihood(counts, falling(finds[:200].tolist()))
        errors.append(np.log(counts[logs.argmax()] + 0.5) - np.log(finds[200:].sum() + 0.5))
    assert abs(np.mean(errors)) < 0.25


def test_a_few_hard_members_are_not_forgotten():
    """Most of the class is found quickly; eight members come slowly and some are left."""
    counts, held = np.geomspace(0.02, 500, 300), []
    for seed in range(40):
        rng, hard, finds = np.random.default_rng(seed), 8, []
        for odds in 4 - 0.08 * np.arange(200):
            easy = bool(rng.random() < 1 / (1 + np.exp(-odds)))
            late = not easy and bool(rng.random() < 0.006 * hard)
            hard -= late
            finds.append(easy or late)
        shares = np.cumsum(softmax(log_likelihood(counts, falling(finds))))
        low, high = np.interp([0.05, 0.95], shares, counts)
        around = 1.645 * np.sqrt(np.array([low, high]) + 0.5)
        held.append(low - around[0] <= hard <= np.ceil(high + around[1]))
    assert np.mean(held) > 0.85


def test_only_a_fall_in_finds_counts():
    found, shown = falling([False] * 15 + [True] * 25 + [False] * 20)
    assert found.tolist() == [20, 0]
    assert shown.tolist() == [20, 20]
    assert len(falling([])[0]) == 0


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
    # Later finds are subtracted.
    answer(session, truth, session.suggest(10))
    session.suggest(10, how="random")
    assert [len(audit.ids) for audit in session.store.audits()] == [150, 10]


def test_a_skipped_audit_row_counts_as_a_member(session):
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
    assert (
        "The model assumes that the rest resembles what was found; answers to random rows would "
        "give a safer bound" in stop.reason
    )
    assert session.stop(recall=0.01)
    assert "according to the model" in str(session.stop(recall=0.01))


@pytest.mark.more
def test_a_search_that_still_finds_many_does_not_stop():
    """The model estimated 2 left, at most 8, while the last screen was full and 26 were left."""
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


def two_clouds(seed):
    """A session that has seen one of two distant clouds of 80 members each, until it stops."""
    rng = np.random.default_rng(seed)
    kind = np.zeros(3000, dtype=int)
    kind[rng.permutation(3000)[:160]] = np.repeat([1, 2], 80)
    X = rng.normal(size=(3000, 16)) + 7 * np.vstack([np.zeros(16), np.eye(16)[:2]])[kind]
    session = SearchSession(X.astype(np.float32), random_state=seed)
    session.label(np.flatnonzero(kind == 1)[:3], True)
    while not session.stop(recall=0.95):
        rows = session.suggest(25)
        session.label(rows, kind[rows] > 0)
    return session, kind > 0


def test_a_bound_from_the_model_says_what_it_rests_on():
    """With half of the class in an unseen cloud it claimed 98.8%, and said no more."""
    session, _ = two_clouds(0)
    stop = session.stop()
    assert stop.basis == "model"
    assert "left according to the model, so at least" in stop.reason
    assert (
        "The model assumes that the rest resembles what was found and cannot know of members of "
        "another kind. To check, answer random rows: 106 without a find" in stop.reason
    )
    assert f"and {stop.audit_rows} reach the goal without the model" in stop.reason
    assert "based on the model, if the rest resembles what was found" in str(session.remaining())


@pytest.mark.parametrize("n_searches", [1, pytest.param(10, marks=pytest.mark.more)])
def test_after_the_audit_offered_half_a_class_does_not_pass_for_95_percent(n_searches):
    """The smaller audit shows the other cloud, and the larger one finds most of what it takes."""
    shown, covered = [], []
    for seed in range(n_searches):
        session, truth = two_clouds(seed)
        enough = session.stop().audit_rows
        found = sum(value is True for value in session.labels().values())
        twice = rows_to_rule_out(session.remaining().n_rows, found)
        for n in (twice, enough - twice):
            rows = session.suggest(n, how="random")
            answer(session, truth, rows)
            left = truth.sum() - sum(value is True for value in session.labels().values())
            assert session.remaining().basis == "audit"
            covered.append(session.remaining().count_high >= left)
            assert not session.stop(recall=0.95)
            shown.append(bool(truth[rows].any()))
    assert np.mean(covered) >= 0.85  # the upper ends of 90% intervals
    assert np.mean(shown[::2]) >= 0.8
    assert all(shown[1::2])


def test_answers_to_an_unfinished_audit_count_if_they_contradict_the_model():
    """The model kept its bound of 1 until the last of 300 random rows had an answer."""
    session, truth = two_clouds(0)
    rows = session.suggest(300, how="random")
    finds = [row for row in rows if truth[row]]
    session.label(finds[:4], True)
    assert session.remaining().basis == "audit"
    assert not session.stop(recall=0.95)


def test_a_clean_but_small_audit_says_how_many_rows_are_wanted(session):
    session, truth = session
    for _ in range(6):
        answer(session, truth, session.suggest(20))
    rows = [row for row in session.suggest(60, how="random") if not truth[row]]
    answer(session, truth, rows)
    stop = session.stop(recall=0.95)
    assert (bool(stop), stop.basis) == (False, "audit")
    assert f"{stop.audit_rows} further random rows without a find would reach" in stop.reason
    assert re.search(
        r"The model says at most \d+ left, if the rest resembles what was found\.", stop.reason
    )
    rows = session.suggest(stop.audit_rows, how="random")
    session.label(rows, False)
    assert session.stop(recall=0.95)


def test_skipped_rows_count_as_unanswered():
    X, y = load_digits(return_X_y=True)
    X, truth = X[:400], y[:400] == 3
    session = SearchSession(X)
    session.label(np.flatnonzero(truth)[:3], True)
    while not session.stop(recall=0.95):
        rows = session.suggest(40)
        session.label(rows, [None if truth[row] and row % 2 else bool(truth[row]) for row in rows])
    values = list(session.labels().values())
    assert session.remaining().n_rows == values.count(None) + 400 - len(values)
    assert session.remaining().count_high >= values.count(None) // 2
    assert session.stop().recall_low < values.count(True) / truth.sum() + 0.1
    assert f"{values.count(None)} skipped rows count as unanswered" in session.stop().reason


@pytest.mark.parametrize(
    ("answer", "reason", "low"),
    [
        (False, "no row was answered yes, and every row has an answer", 1.0),
        (None, "no row was answered yes, and 60 were skipped", 0.0),
    ],
)
def test_a_session_stops_if_no_row_is_left_to_show(answer, reason, low):
    session = SearchSession(load_digits(return_X_y=True)[0][:60])
    for _ in range(3):
        assert not session.stop()
        session.label(session.suggest(20), answer)
    assert session.stop()
    assert session.suggest(20) == []
    assert reason in session.stop().reason
    assert session.stop().recall_low == low


def test_skipped_rows_of_an_audit_remain_when_every_row_was_shown(session):
    session, truth = session
    drawn = session.suggest(50, how="random")
    answer(session, truth, drawn)
    rest = [row for row in range(len(truth)) if row not in session.labels()]
    session.label(rest, None)
    assert session.remaining().n_rows == len(rest)
    assert session.remaining().count_high > 0
