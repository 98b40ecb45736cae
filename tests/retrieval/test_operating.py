"""Thresholds on a gallery whose unanswered rows are of unknown kind."""

import numpy as np
import pytest
from scipy.special import expit, logit

from pcsda.core.threshold import choose_threshold
from pcsda.retrieval import Remaining
from pcsda.retrieval.estimates import fit_shape
from pcsda.retrieval.operating import chances, choose_on_gallery


@pytest.fixture
def gallery():
    """Scores of 2000 negatives and 300 members, of which the 100 highest have been found."""
    rng = np.random.default_rng(0)
    members = np.sort(rng.normal(1.0, 2.0, 300))
    negatives = rng.normal(-7.0, 2.0, 2000)
    return members[200:], rng.normal(-3.0, 1.0, 10), np.append(members[:200], negatives)


def remaining(count, low, high):
    return Remaining(count, low, high, 2200, "model")


def test_without_unanswered_rows_only_the_answers_count(gallery):
    yes, _, no = gallery
    found = choose_on_gallery(
        yes, no, np.zeros(0), Remaining(0.0, 0, 0, 0, "model"), max_false_alarms=0.02
    )
    positive = np.arange(len(yes) + len(no)) < len(yes)
    known = choose_threshold(np.append(yes, no), positive, max_false_alarms=0.02)
    rates = "value", "false_alarms", "misses", "n_positives", "n_negatives"
    for name in rates:
        assert getattr(found, name) == pytest.approx(getattr(known, name))
    assert found.false_alarms_interval == pytest.approx(known.false_alarms_interval)


def test_rates_hold_for_a_class_that_is_mostly_hidden(gallery):
    yes, no, pool = gallery
    found = choose_on_gallery(yes, no, pool, remaining(200.0, 190, 210), max_false_alarms=0.01)
    assert 0.005 < np.mean(np.append(pool[200:], no) >= found.value) < 0.02
    missed = np.mean(np.append(yes, pool[:200]) < found.value)
    assert found.misses == pytest.approx(missed, abs=0.05)
    assert found.n_positives == 300
    assert found.n_negatives == 2010


def test_an_audit_can_show_that_most_rows_belong_to_the_class():
    """Half of the unanswered rows counted as negatives, so the threshold missed most members."""
    rng = np.random.default_rng(0)
    members, negatives = np.sort(rng.normal(3.0, 2.0, 800)), rng.normal(-3.0, 2.0, 300)
    pool = np.append(members[:-50], negatives)
    left = Remaining(750.0, 700, 790, len(pool), "audit")
    found = choose_on_gallery(members[-50:], np.zeros(0), pool, left, max_false_alarms=0.05)
    assert 0.025 < np.mean(negatives >= found.value) < 0.1
    assert np.mean(members < found.value) < 0.05


def test_numbers_of_rows_are_at_least_zero_if_an_audit_counts_rows_that_are_far_off():
    rng = np.random.default_rng(0)
    yes, pool = rng.normal(3.0, 1.0, 20), rng.normal(2.0, 1.0, 100)
    found = choose_on_gallery(
        yes, np.zeros(0), pool, Remaining(150.0, 120, 160, 160, "audit"), prior=0.5
    )
    assert found.n_negatives == 0
    assert found.n_positives == 170


def test_more_members_left_mean_more_misses_and_fewer_false_alarms(gallery):
    yes, no, pool = gallery
    rates = [
        choose_on_gallery(yes, no, pool, remaining(count, count, count), prior=0.9)
        for count in (100, 200, 300)
    ]
    assert rates[0].misses < rates[1].misses < rates[2].misses
    assert rates[0].false_alarms > rates[1].false_alarms > rates[2].false_alarms


def test_intervals_contain_those_of_every_count_in_the_interval(gallery):
    yes, no, pool = gallery
    wide = choose_on_gallery(yes, no, pool, remaining(200.0, 100, 400), max_false_alarms=0.01)
    prior = float(expit(-wide.value))  # gives the same threshold
    for count in (100, 200, 400):
        sure = choose_on_gallery(yes, no, pool, remaining(count, count, count), prior=prior)
        assert sure.value == pytest.approx(wide.value)
        for kind in ("false_alarms_interval", "misses_interval"):
            low, high = getattr(wide, kind)
            assert low - 1e-9 <= getattr(sure, kind)[0] < getattr(sure, kind)[1] <= high + 1e-9


def test_words_say_what_the_rates_rest_on(gallery):
    yes, no, pool = gallery
    sure = choose_on_gallery(yes, no, pool, remaining(200.0, 190, 210), max_false_alarms=0.01)
    assert sure.rule == (
        "at most 1% false alarms, on the whole gallery; about 200 members left according to "
        "the model, if the rest resembles what was found"
    )
    vague = choose_on_gallery(yes, no, pool, remaining(200.0, 20, 900), max_false_alarms=0.01)
    assert vague.rule == f"{sure.rule}; the answers hardly tell how many it misses"


def test_chances_sum_to_the_count_and_grow_with_the_score(gallery):
    yes, no, pool = gallery
    pool = np.sort(pool)
    counts = 0.3, 40.0, 200.0
    for count, chance in zip(counts, chances(yes, no, pool, counts), strict=True):
        assert chance.sum() == pytest.approx(count, rel=0.02)
        assert (np.diff(chance) >= 0).all()


def test_log_odds_of_known_gaussians():
    """In the middle, they are those of the two densities; they never fall on either side."""
    rng = np.random.default_rng(0)
    members, negatives = np.sort(rng.normal(2.0, 2.0, 4000)), rng.normal(-4.0, 1.0, 16000)
    shape = fit_shape(members[2000:], np.zeros(0), np.append(members[:2000], negatives), 1)
    scores = np.linspace(-12, 10, 200)
    odds = shape.log_odds(scores)
    assert (np.diff(odds) >= 0).all()
    exact = -0.5 * ((scores - 2) / 2) ** 2 + 0.5 * (scores + 4) ** 2 - np.log(2) + logit(0.2)
    middle = (scores > -3) & (scores < 3)
    np.testing.assert_allclose(odds[middle], exact[middle], atol=0.5)
