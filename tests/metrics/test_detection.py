"""Error rates, costs and log-likelihood-ratio costs against closed forms, brute force and laws."""

from functools import partial
from itertools import combinations, pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from metric_factories import error_rates, gaussian_scores, operating_points, tied_scores
from numpy.testing import assert_allclose, assert_array_equal
from scipy.integrate import quad
from scipy.stats import norm
from sklearn.metrics import log_loss

from pcsda.metrics import (
    bayes_error_curve,
    bayes_threshold,
    cllr,
    detection_cost,
    equal_error_rate,
    fnmr_at_fmr,
    min_cllr,
    min_detection_cost,
    roc_convex_hull,
)

METRICS = pytest.mark.parametrize(
    "metric",
    [
        equal_error_rate,
        pytest.param(partial(equal_error_rate, convex_hull=True), id="hull_eer"),
        cllr,
        min_cllr,
        detection_cost,
        min_detection_cost,
        pytest.param(partial(fnmr_at_fmr, fmr=0.3), id="fnmr_at_fmr"),
    ],
)
OPERATING = st.tuples(st.floats(0.01, 0.99), st.floats(0.1, 10), st.floats(0.1, 10))


def brute_force_eer(y, scores):
    """Visit all thresholds and intersect the chords with the line of equal rates."""
    for (f0, m0), (f1, m1) in pairwise(operating_points(y, scores)):
        if f1 >= m1:
            share = (m0 - f0) / ((m0 - f0) + (f1 - m1))
            return f0 + share * (f1 - f0)
    raise AssertionError("the curve must cross the line of equal rates")


@given(tied_scores())
def test_eer_equals_brute_force_with_ties(data):
    y, scores = data
    eer, threshold = equal_error_rate(y, scores)
    assert_allclose(eer, brute_force_eer(y, scores), atol=1e-12)
    gaps = [abs(np.subtract(*error_rates(y, scores, t))) for t in scores]
    assert threshold in scores
    assert_allclose(abs(np.subtract(*error_rates(y, scores, threshold))), min(gaps), atol=1e-12)


@given(tied_scores(st.sampled_from([-np.inf, -1.0, 0.0, 2.0, np.inf])))
def test_eer_treats_infinite_scores_as_extreme_ranks(data):
    y, scores = data
    finite = np.clip(scores, -9.0, 9.0)
    eer, threshold = equal_error_rate(y, scores)
    expected_eer, expected_threshold = equal_error_rate(y, finite)
    assert_allclose(eer, expected_eer, atol=1e-12)
    assert np.clip(threshold, -9.0, 9.0) == expected_threshold


@given(tied_scores(), st.randoms(use_true_random=False))
def test_row_order_and_increasing_maps_do_not_matter(data, random):
    y, scores = data
    order = list(range(len(y)))
    random.shuffle(order)
    eer, threshold = equal_error_rate(y, scores)
    mapped_eer, mapped_threshold = equal_error_rate(y[order], np.exp(scores[order]))
    assert_allclose(mapped_eer, eer, atol=1e-12)
    assert_allclose(mapped_threshold, np.exp(threshold))
    assert_allclose(cllr(y[order], scores[order]), cllr(y, scores))


@METRICS
@given(data=tied_scores(), weights=st.lists(st.integers(0, 3), min_size=20, max_size=20))
def test_integer_weights_equal_repeated_rows(metric, data, weights):
    y, scores = data
    counts = np.array([1, 1, *weights])[: len(y)]
    assert_allclose(
        metric(y, scores, sample_weight=counts),
        metric(np.repeat(y, counts), np.repeat(scores, counts)),
        atol=1e-12,
    )


@METRICS
def test_labels_may_be_of_any_kind(metric):
    y = np.array([0, 1, 1, 0, 1])
    scores = np.array([0.3, 1.0, -0.2, -2.0, 3.0])
    expected = metric(y, scores)
    assert_allclose(metric(y == 1, scores), expected)
    assert_allclose(metric(2 * y - 1, scores), expected)
    assert_allclose(metric(np.where(y, "weld", "none"), scores, pos_label="weld"), expected)
    assert_allclose(metric(np.array([0, 1, 1, 2, 1]), scores, pos_label=1), expected)
    assert_allclose(metric(list(y), list(scores)), expected)


def test_eer_of_separated_reversed_and_constant_scores():
    y = [0, 0, 1, 1]
    assert equal_error_rate(y, [1, 2, 3, 4]) == (0.0, 3.0)
    assert equal_error_rate(y, [4, 3, 2, 1])[0] == 1.0
    assert equal_error_rate(y, [5, 5, 5, 5]) == (0.5, 5.0)


@pytest.mark.parametrize("distance", [0.5, 2.0, 4.0])
def test_eer_of_two_unit_gaussians(distance):
    n = 100_000
    y, scores = gaussian_scores(distance, n)
    expected = norm.cdf(-distance / 2)
    for hull in (False, True):
        eer, threshold = equal_error_rate(y, scores, convex_hull=hull)
        assert abs(eer - expected) < 4 * np.sqrt(expected * (1 - expected) / n)
        assert abs(threshold - distance / 2) < 0.05


def brute_force_hull_eer(y, scores):
    """Return the lowest rate where a chord between two thresholds meets the line of equal rates."""
    points = operating_points(y, scores)
    rates = [f for f, m in points if f == m]
    for (f0, m0), (f1, m1) in combinations(points, 2):
        if (f0 - m0) * (f1 - m1) < 0:
            share = (m0 - f0) / ((m0 - f0) + (f1 - m1))
            rates.append(f0 + share * (f1 - f0))
    return min(rates)


@given(tied_scores())
def test_hull_eer_is_the_least_over_all_chords(data):
    y, scores = data
    eer, threshold = equal_error_rate(y, scores, convex_hull=True)
    assert_allclose(eer, brute_force_hull_eer(y, scores), atol=1e-12)
    assert eer <= equal_error_rate(y, scores)[0] + 1e-12
    assert threshold in scores


@given(tied_scores())
def test_the_hull_lies_below_all_points_and_turns_one_way(data):
    y, scores = data
    match, non_match, thresholds = roc_convex_hull(y, scores)
    assert (match[0], non_match[0], match[-1], non_match[-1]) == (1, 0, 0, 1)
    assert thresholds[-1] == np.inf
    for f, m, t in zip(match, non_match, thresholds, strict=True):
        assert_allclose((f, m), error_rates(y, scores, t))
    for f, m in operating_points(y, scores):
        assert m >= np.interp(f, match[::-1], non_match[::-1]) - 1e-12
    steps = np.diff([match, non_match])
    turns = steps[0, :-1] * steps[1, 1:] - steps[1, :-1] * steps[0, 1:]
    assert np.all(turns <= 1e-12)


@given(tied_scores(), OPERATING, st.booleans())
def test_minimum_cost_equals_brute_force_over_thresholds(data, operating, normalize):
    y, scores = data
    prior, miss, false_alarm = operating
    costs = [
        miss * prior * m + false_alarm * (1 - prior) * f for f, m in operating_points(y, scores)
    ]
    scale = min(miss * prior, false_alarm * (1 - prior)) if normalize else 1
    options = {"prior": prior, "cost_miss": miss, "cost_false_alarm": false_alarm}
    cost, threshold = min_detection_cost(y, scores, **options, normalize=normalize)
    assert_allclose(cost, min(costs) / scale, atol=1e-12)
    at = detection_cost(y, scores, **options, threshold=threshold, normalize=normalize)
    assert_allclose(at, cost, atol=1e-12)


@given(tied_scores(), OPERATING)
def test_actual_cost_counts_the_errors_at_the_bayes_threshold(data, operating):
    y, llr = data
    prior, miss, false_alarm = operating
    options = {"prior": prior, "cost_miss": miss, "cost_false_alarm": false_alarm}
    threshold = bayes_threshold(prior, cost_miss=miss, cost_false_alarm=false_alarm)
    f, m = error_rates(y, llr, threshold)
    cost = detection_cost(y, llr, **options, normalize=False)
    assert_allclose(cost, miss * prior * m + false_alarm * (1 - prior) * f, atol=1e-12)
    assert cost >= min_detection_cost(y, llr, **options, normalize=False)[0] - 1e-12


@pytest.mark.parametrize("prior", [0.01, 0.2, 0.5])
def test_cost_of_gaussian_log_likelihood_ratios(prior):
    # The ratio of N(d, 1) to N(0, 1) is d x - d^2/2: its Bayes threshold in x is known.
    distance, n = 2.0, 200_000
    y, x = gaussian_scores(distance, n, seed=3)
    llr = distance * x - distance**2 / 2
    at = bayes_threshold(prior) / distance + distance / 2
    expected = prior * norm.cdf(at - distance) + (1 - prior) * norm.sf(at)
    actual = detection_cost(y, llr, prior=prior, normalize=False)
    least, threshold = min_detection_cost(y, llr, prior=prior, normalize=False)
    assert_allclose([actual, least], expected, rtol=0.03)
    assert_allclose(threshold, bayes_threshold(prior), atol=0.35)
    assert_allclose(detection_cost(y, llr, prior=prior), actual / min(prior, 1 - prior), rtol=1e-12)


def test_rejecting_everything_counts_as_a_threshold():
    y, scores = [0, 1, 0], [3.0, 1.0, 2.0]
    assert min_detection_cost(y, scores, prior=0.1) == (1.0, np.inf)
    assert min_detection_cost(y, scores, prior=0.9) == (1.0, 1.0)
    assert fnmr_at_fmr(y, scores, 0.0) == (1.0, np.inf)


@given(tied_scores(), st.sampled_from([0.0, 0.1, 0.25, 1 / 3, 0.5, 0.75, 1.0]))
def test_fnmr_at_fmr_equals_brute_force_over_thresholds(data, limit):
    y, scores = data
    kept = [(m, f) for f, m in operating_points(y, scores) if f <= limit]
    rate, threshold = fnmr_at_fmr(y, scores, limit)
    assert rate == min(kept)[0]
    assert error_rates(y, scores, threshold) == (max(f for m, f in kept if m == rate), rate)
    lower = [s for s in scores if s < threshold]
    assert all(error_rates(y, scores, s)[0] > limit for s in lower)


def test_fnmr_at_fmr_of_gaussians():
    n, distance, limit = 200_000, 3.0, 0.01
    rate, threshold = fnmr_at_fmr(*gaussian_scores(distance, n), limit)
    assert_allclose(threshold, norm.isf(limit), atol=0.03)
    assert_allclose(rate, norm.cdf(norm.isf(limit) - distance), rtol=0.04)


def brute_force_min_cllr(y, scores):
    """Return the lowest Cllr over all monotonic poolings of neighbouring levels."""
    levels = sorted(set(scores))
    best = np.inf
    for cuts in product([False, True], repeat=len(levels) - 1):
        pool = dict(zip(levels, np.cumsum([0, *cuts]), strict=True))
        pools = np.array([pool[score] for score in scores])
        with np.errstate(divide="ignore"):
            ratios = np.log(
                [
                    np.mean(pools[y == 1] == i) / np.mean(pools[y == 0] == i)
                    if np.any(pools[y == 0] == i)
                    else np.inf
                    for i in range(max(pools) + 1)
                ]
            )
        if all(a <= b for a, b in pairwise(ratios)):
            best = min(best, cllr(y, ratios[pools]))
    return best


@given(tied_scores(max_size=12))
def test_min_cllr_is_the_least_over_all_monotonic_pools(data):
    y, scores = data
    found = min_cllr(y, scores)
    assert_allclose(found, brute_force_min_cllr(y, scores), atol=1e-12)
    assert 0 <= found <= min(1, cllr(y, scores)) + 1e-12


def test_min_cllr_of_true_ratios_is_their_cllr():
    distance = 2.0
    y, x = gaussian_scores(distance, 100_000)
    llr = distance * x - distance**2 / 2
    assert_allclose(min_cllr(y, llr), cllr(y, llr), rtol=2e-3)
    assert min_cllr(y, llr) < cllr(y, llr) < cllr(y, 3 * llr + 1)
    assert_allclose(min_cllr(y, 3 * llr + 1), min_cllr(y, llr))


@given(tied_scores(), st.lists(st.floats(-6, 6), min_size=1, max_size=5))
def test_the_bayes_error_curve_consists_of_costs(data, odds):
    y, llr = data
    got, actual, minimum = bayes_error_curve(y, llr, prior_log_odds=odds)
    assert_array_equal(got, odds)
    for o, a, m in zip(odds, actual, minimum, strict=True):
        prior = 1 / (1 + np.exp(-o))
        at = detection_cost(y, llr, prior=prior, threshold=-o)
        assert_allclose([a, m], [at, min_detection_cost(y, llr, prior=prior)[0]], atol=1e-9)


def test_the_bayes_error_curve_has_default_priors():
    odds, actual, minimum = bayes_error_curve([0, 1], [-1.03, 1.03])
    assert (odds[0], odds[-1], len(odds)) == (-7, 7, 141)
    assert_array_equal(minimum, 0)
    assert_array_equal(actual, np.where(np.abs(odds) <= 1, 0, 1))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda *d: fnmr_at_fmr(*d, 1.5), r"^fmr=1.5 must lie between 0 and 1; 0.01 is one false"),
        (lambda *d: fnmr_at_fmr(*d, np.nan), r"^fmr=nan must lie between 0 and 1"),
        (lambda *d: detection_cost(*d, threshold=np.nan), r"^threshold=nan must be a number"),
        (lambda *d: detection_cost(*d, prior=1), r"^prior=1 must lie between 0 and 1, both"),
        (lambda *d: min_detection_cost(*d, cost_miss=0), r"^cost_miss=0 must be a positive"),
        (
            lambda *d: bayes_error_curve(*d, prior_log_odds=[np.inf]),
            r"^prior_log_odds must be finite numbers in one dimension$",
        ),
    ],
)
def test_bad_settings_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call([0, 1], [0.0, 1.0])


def test_labels_without_an_order_are_refused():
    with pytest.raises(
        ValueError, match=r"^y_true mixes labels of the types \['NoneType', 'str'\]"
    ):
        cllr(np.array(["a", None], dtype=object), [0.0, 1.0], pos_label="a")


@pytest.mark.parametrize("distance", [1.0, 3.0])
def test_cllr_of_exact_gaussian_ratios_is_its_integral(distance):
    # The exact log-likelihood ratio of N(d, 1) against N(0, 1) is N(d^2/2, d^2) for positives,
    # and its cost is the same for negatives by symmetry.
    expected, _ = quad(
        lambda s: np.logaddexp(0, -s) * norm.pdf(s, distance**2 / 2, distance), -40, 60
    )
    y, x = gaussian_scores(distance, 100_000, seed=1)
    llr = distance * x - distance**2 / 2
    assert_allclose(cllr(y, llr), expected / np.log(2), rtol=0.02)


def test_cllr_is_the_log_loss_of_the_balanced_posterior():
    rng = np.random.default_rng(2)
    y, llr = np.repeat([0, 1], 50), rng.standard_normal(100)
    assert_allclose(cllr(y, llr), log_loss(y, 1 / (1 + np.exp(-llr))) / np.log(2))


def test_cllr_of_no_information_is_one_bit_whatever_the_class_sizes():
    assert cllr([0, 1, 1, 1], np.zeros(4)) == 1.0


def test_cllr_of_extreme_ratios():
    assert cllr([0, 1], [-np.inf, np.inf]) == 0.0
    assert cllr([0, 1], [-1e4, 1e4]) == 0.0
    assert cllr([0, 1, 1], [-1.0, 1.0, -np.inf]) == np.inf
    assert_allclose(cllr([0, 1], [1e6, -1e6]), 1e6 / np.log(2))
    without = cllr([0, 1, 1], [-1.0, 1.0, -np.inf], sample_weight=[1, 1, 0])
    assert_allclose(without, cllr([0, 1], [-1.0, 1.0]))


@METRICS
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ([1, 1], [0.0, 1.0]),
            r"^y_true has 0 negative samples \(of weight above 0\), but at least 1",
        ),
        (([0, 0], [0.0, 1.0]), r"^y_true has 0 positive samples"),
        (([], []), r"^y_true has 0 positive samples"),
        (([0, 1], [0.0, np.nan]), r" has 1 NaN among 2 values; remove or replace them$"),
        (([0.0, np.nan], [0.0, 1.0]), r"^y_true has 1 NaN; remove those samples$"),
        (([0, 1], [0.0, 1.0, 2.0]), r"inconsistent numbers of samples: \[2, 3\]$"),
        (([0, 1], [[0.0, 1.0], [1.0, 0.0]]), r"^y should be a 1d array, got an array of shape"),
        (
            (["a", "b"], [0.0, 1.0]),
            r"^pos_label=None needs labels in \{0, 1\} or \{-1, 1\}, y_true has \['a', 'b'\]; name"
            r" the class of interest with pos_label$",
        ),
        ((list(range(12)), np.zeros(12)), r"y_true has \[0, 1, .*, 9, \.\.\. 12 in all\]; name"),
    ],
)
def test_bad_input_is_refused(metric, arguments, message):
    with pytest.raises(ValueError, match=message):
        metric(*arguments)


@METRICS
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"pos_label": "x"},
            r"^pos_label='x' must be one of the labels in y_true, \[0, 1\]; name one of them$",
        ),
        (
            {"sample_weight": [1, -2]},
            r"^sample_weight has 1 values that are negative or not finite, such as -2.0; all must"
            r" be at least 0$",
        ),
        ({"sample_weight": [1, np.nan]}, r"such as nan; all must be at least 0$"),
        ({"sample_weight": [1]}, r"inconsistent numbers of samples: \[2, 2, 1\]$"),
        ({"sample_weight": [1, 0]}, r"^y_true has 0 positive samples \(of weight above 0\)"),
    ],
)
def test_bad_options_are_refused(metric, options, message):
    with pytest.raises(ValueError, match=message):
        metric([0, 1], [0.0, 1.0], **options)


@METRICS
def test_inputs_are_not_written_to(metric):
    y, scores, weights = np.array([0, 1, 1]), np.array([0.0, np.inf, 2.0]), np.ones(3)
    for array in (y, scores, weights):
        array.flags.writeable = False
    metric(y, scores, sample_weight=weights)
