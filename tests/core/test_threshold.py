"""Thresholds from scores: they meet their criteria, smooth the tails, and their intervals cover."""

import numpy as np
import pytest
from scipy.stats import beta, norm

from pcsda import Threshold
from pcsda.core.threshold import SPARED, Tail, check_criterion, choose_threshold, interval
from pcsda.metrics import bayes_threshold


def gaussian_trials(n_negatives, n_positives, seed, distance=3.0):
    """Draw exact log-likelihood ratios of two unit Gaussians, negatives first."""
    rng = np.random.default_rng(seed)
    positive = np.arange(n_negatives + n_positives) >= n_negatives
    x = rng.normal(np.where(positive, distance, 0.0))
    return distance * x - distance**2 / 2, positive


def true_rates(value, distance=3.0):
    """Return the true rates of false alarms and misses at a threshold."""
    x = value / distance + distance / 2
    return norm.sf(x), norm.cdf(x - distance)


@pytest.mark.parametrize("rate", [0.06, 0.1, 0.37, 0.5, 0.99])
def test_a_counted_threshold_is_the_lowest_that_keeps_the_rate(rate):
    scores = np.round(np.random.default_rng(0).normal(size=1000), 1)  # ties are common
    tail = Tail.of(scores)
    value = tail.value(rate)
    assert np.mean(scores >= value) <= rate
    lower = scores[scores < value].max()
    assert np.mean(scores >= lower) > rate
    assert tail.rate(value) == pytest.approx(np.mean(scores >= value))


@pytest.mark.parametrize("rate", [1e-6, 1e-3, 0.01, 0.04])
def test_in_the_tail_rate_and_threshold_are_inverse_functions(rate):
    tail = Tail.of(np.random.default_rng(1).normal(size=1000))
    assert tail.rate(tail.value(rate)) == pytest.approx(rate)


def test_rates_never_rise_with_the_threshold():
    tail = Tail.of(np.random.default_rng(2).normal(size=200))
    rates = [tail.rate(value) for value in np.linspace(-4, 6, 500)]
    assert np.all(np.diff(rates) <= 1e-12)
    assert rates[0] == 1.0
    assert 0 < rates[-1] < 1e-3


@pytest.mark.each_value
@pytest.mark.parametrize("n_rows", [1, 5])
@pytest.mark.parametrize("n_people", [20, 30, 100])
def test_few_identities_keep_a_small_rate_on_average(n_people, n_rows):
    # Scores are exponential, and those of one person correlate by a half: with this probability,
    # two of them are the same.
    person = np.repeat(np.arange(n_people), n_rows)
    let_in = []
    for seed in range(400):
        rng = np.random.default_rng(seed)
        common, alone = rng.exponential(size=n_people)[person], rng.exponential(size=len(person))
        scores = np.where(rng.random(len(person)) < np.sqrt(0.5), common, alone)
        tails = Tail.of(scores), Tail.of(scores, identity=person)
        let_in.append([np.exp(-tail.value(0.01)) for tail in tails])
        assert tails[1].rate(tails[1].value(0.01)) == pytest.approx(0.01)
    independent, of_people = np.mean(let_in, axis=0)
    assert 0.008 < of_people < 0.014
    assert of_people < independent


def test_identities_of_one_row_each_approach_an_exponential_tail():
    scores = np.random.default_rng(0).exponential(size=100_000)
    rows, people = Tail.of(scores), Tail.of(scores, identity=np.arange(len(scores)))
    assert people.n_tail == pytest.approx(0.05 * len(scores), rel=0.01)
    assert people.value(0.01) == pytest.approx(rows.value(0.01), rel=1e-3)


def test_the_tail_is_exponential():
    # The quantile of an exponential is known; over many draws the smoothed one is closer than the
    # order statistic, and neither high nor low.
    truth, errors = -np.log(0.01), []
    for seed in range(300):
        scores = np.random.default_rng(seed).exponential(size=200)
        counted = np.sort(scores)[-2]
        errors.append([Tail.of(scores).value(0.01) - truth, counted - truth])
    smoothed, counted = np.array(errors).T
    assert abs(smoothed.mean()) < 0.1
    assert smoothed.std() < 0.75 * counted.std()


def test_integer_weights_equal_repeated_rows():
    rng = np.random.default_rng(3)
    scores, weights = rng.normal(size=300), rng.integers(1, 4, 300).astype(float)
    one, other = Tail.of(scores, weights), Tail.of(np.repeat(scores, weights.astype(int)))
    for rate in (0.07, 0.2, 0.6):
        assert one.value(rate) == other.value(rate)
    for value in (-1.0, 0.0, 1.0):
        assert one.rate(value) == pytest.approx(other.rate(value))
    assert 200 < one.n_effective < 300  # but they add no evidence beyond the actual rows


def test_realised_false_alarms_are_near_the_target_with_few_negatives():
    realised = [
        true_rates(choose_threshold(*gaussian_trials(300, 10, seed), max_false_alarms=0.01).value)[
            0
        ]
        for seed in range(100)
    ]
    assert 0.008 < np.median(realised) < 0.0125
    assert np.std(np.log(realised)) < 0.5


def test_realised_misses_are_near_the_target():
    realised = [
        true_rates(choose_threshold(*gaussian_trials(300, 100, seed), max_misses=0.1).value)[1]
        for seed in range(100)
    ]
    assert 0.08 < np.median(realised) < 0.12


@pytest.mark.parametrize("centre", [-80.0, -70.0, -30.0, 50.0])
def test_a_threshold_in_a_gap_below_zero_rises_as_far_as_the_positives_allow(centre):
    rng = np.random.default_rng(0)
    scores = np.append(rng.normal(-80, 3, 2000), rng.normal(centre, 3, 2000))
    positive = np.arange(4000) >= 2000
    plain = choose_threshold(scores, positive, max_false_alarms=0.01)
    found = choose_threshold(scores, positive, max_false_alarms=0.01, up_to_zero=True)
    assert plain.value < -70
    if centre > 0:
        assert found.value == 0
    elif plain.misses > SPARED:
        assert found == plain
    else:
        assert plain.value < found.value < 0
        assert plain.misses < found.misses == pytest.approx(SPARED)
    assert found.false_alarms <= plain.false_alarms


def test_a_threshold_above_zero_stays():
    scores, positive = gaussian_trials(2000, 2000, 0)
    plain = choose_threshold(scores, positive, max_false_alarms=0.01)
    assert plain.value > 0
    assert choose_threshold(scores, positive, max_false_alarms=0.01, up_to_zero=True) == plain


def test_misses_mirror_false_alarms():
    scores, positive = gaussian_trials(200, 200, 0)
    one = choose_threshold(scores, positive, max_misses=0.03)
    other = choose_threshold(-scores, ~positive, max_false_alarms=0.03)
    assert one.value == pytest.approx(-other.value)
    assert one.misses == pytest.approx(other.false_alarms)
    assert one.misses_interval == pytest.approx(other.false_alarms_interval)
    assert one.false_alarms == pytest.approx(other.misses)


def test_a_prior_gives_the_bayes_threshold_and_its_errors():
    scores, positive = gaussian_trials(20000, 20000, 0)
    found = choose_threshold(scores, positive, prior=0.1, cost_miss=5, cost_false_alarm=2)
    assert found.value == bayes_threshold(0.1, cost_miss=5, cost_false_alarm=2)
    assert found.value == pytest.approx(np.log(0.9 * 2 / (0.1 * 5)))
    np.testing.assert_allclose(
        [found.false_alarms, found.misses], true_rates(found.value), atol=0.005
    )
    assert found.rule == "prior 0.1, a miss costs 5, a false alarm 2, on held-out rows"
    plain = choose_threshold(scores, positive, prior=0.1)
    assert plain.value == pytest.approx(np.log(9))


def test_intervals_are_clopper_pearson():
    for errors, n_rows in ((3, 300), (0, 20), (20, 20), (7, 10)):
        low = beta.ppf(0.05, errors, n_rows - errors + 1) if errors else 0.0
        high = beta.ppf(0.95, errors + 1, n_rows - errors) if errors < n_rows else 1.0
        assert interval(errors / n_rows, n_rows) == pytest.approx((low, high))


def test_intervals_of_a_bayes_threshold_cover_the_truth():
    covered = []
    for seed in range(200):
        found = choose_threshold(*gaussian_trials(100, 30, seed), prior=0.3)
        for truth, ends in zip(
            true_rates(found.value),
            (found.false_alarms_interval, found.misses_interval),
            strict=True,
        ):
            covered.append(ends[0] <= truth <= ends[1])
    assert np.mean(covered) > 0.88


def test_a_threshold_describes_its_evidence():
    scores, positive = gaussian_trials(400, 20, 0)
    found = choose_threshold(scores, positive, max_false_alarms=0.01, source="left-out rows")
    assert (found.n_negatives, found.n_positives) == (400, 20)
    assert found.rule == "at most 1% false alarms, on left-out rows"
    assert found.false_alarms == pytest.approx(0.01)
    assert found.false_alarms_interval[0] < 0.01 < found.false_alarms_interval[1]
    for part in (
        "at most 1% false alarms",
        "1% false alarms (",
        "%; 400 negatives)",
        "%; 20 positives)",
    ):
        assert part in repr(found)
    with pytest.raises(AttributeError):
        found.value = 0.0
    assert found == Threshold(**vars(found))


def test_without_rows_of_a_class_its_rate_is_unknown():
    scores, positive = gaussian_trials(400, 0, 0)
    found = choose_threshold(scores, positive, max_false_alarms=0.05)
    assert np.isnan(found.misses)
    assert found.misses_interval == (0.0, 1.0)
    assert "an unknown share of misses (0 positives)" in str(found)


def test_equal_scores_are_all_accepted_or_all_rejected():
    found = choose_threshold(np.full(50, -2.0), np.arange(50) >= 40, max_false_alarms=0.1)
    assert found.value > -2
    assert (found.false_alarms, found.misses) == (0.0, 1.0)


def test_extreme_scores_do_not_overflow():
    scores = np.linspace(-1, 1, 100) * np.finfo(float).max
    found = choose_threshold(scores, np.arange(100) >= 50, max_false_alarms=0.02)
    assert np.isfinite(found.value)


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_a_few_rows_give_a_threshold_and_a_warning(count):
    scores, positive = gaussian_trials(count, 20, 0)
    with pytest.warns(UserWarning, match=rf"smallest rate that {count} negatives? can"):
        found = choose_threshold(scores, positive, max_false_alarms=0.01)
    assert found.value >= scores[~positive].max()


def test_a_rate_too_fine_for_the_rows_warns_how_many_are_needed():
    scores, positive = gaussian_trials(300, 10, 0)
    choose_threshold(scores, positive, max_false_alarms=1 / 300)  # just enough
    with pytest.warns(
        UserWarning,
        match=r"^max_false_alarms=0.001 is below 0.0033, the smallest rate that 300 negatives .*"
        r"give at least 1000 negatives$",
    ):
        choose_threshold(scores, positive, max_false_alarms=0.001)
    with pytest.warns(UserWarning, match=r"^max_misses=0.05 is below 0.1, the smallest"):
        choose_threshold(scores, positive, max_misses=0.05)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "^no criterion given; choose_threshold takes exactly one of max_false_alarms, "),
        (
            {"max_false_alarms": 0.1, "max_misses": 0.1},
            "^max_false_alarms and max_misses given; choose_threshold takes exactly one",
        ),
        ({"max_false_alarms": 0}, "^max_false_alarms=0 must be a number between 0 and 1, both"),
        ({"max_false_alarms": 1.0}, "^max_false_alarms=1.0 must be a number between 0 and 1"),
        ({"max_misses": float("nan")}, "^max_misses=nan must be a number between 0 and 1"),
        ({"max_misses": "few"}, "^max_misses='few' must be a number between 0 and 1"),
        ({"max_misses": True}, "^max_misses=True must be a number between 0 and 1"),
        ({"prior": 1.5}, "^prior=1.5 must be a number between 0 and 1"),
        ({"prior": 0.5, "cost_miss": -1}, "^cost_miss=-1 must be a positive number"),
        (
            {"max_misses": 0.1, "cost_miss": 2},
            "^cost_miss=2 and cost_false_alarm=1 have no effect without a prior; give prior= too",
        ),
    ],
)
def test_nonsensical_criteria_are_refused(given, message):
    none = {"max_false_alarms": None, "max_misses": None, "prior": None}
    with pytest.raises(ValueError, match=message):
        check_criterion(**(none | {"cost_miss": 1, "cost_false_alarm": 1} | given))


def test_all_or_nothing_is_written_without_an_exponent():
    found = choose_threshold(np.arange(40.0), np.arange(40) < 20, max_false_alarms=0.3)
    assert "e+02" not in str(found)
    assert "100% misses (" in str(found)


def test_one_row_is_singular():
    scores, positive = np.array([0.0, 1.0, 2.0, 3.0]), np.array([True, False, False, False])
    with pytest.warns(UserWarning, match="the smallest rate that 3 negatives can show"):
        found = choose_threshold(scores, positive, max_false_alarms=0.1)
    assert "%; 3 negatives)" in str(found)
    assert "%; 1 positive)" in str(found)
    with pytest.warns(UserWarning, match=r"rate that 1 positive can show; .* least 10 positives"):
        choose_threshold(scores, positive, max_misses=0.1)
    with pytest.warns(UserWarning, match="rate that 1 negative can show; the"):
        found = choose_threshold(scores, ~positive, max_false_alarms=0.1)
    assert "%; 1 negative)" in str(found)
