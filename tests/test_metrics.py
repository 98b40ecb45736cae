"""Metrics against closed forms, brute force and laws."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.integrate import quad
from scipy.stats import norm
from sklearn.metrics import log_loss

from pcsda.metrics import cllr, equal_error_rate

METRICS = pytest.mark.parametrize("metric", [equal_error_rate, cllr])


@st.composite
def tied_scores(draw, elements=None):
    """Labels with both classes and scores from few values, so that ties are common."""
    if elements is None:
        elements = st.integers(-3, 3)
    labels = [0, 1, *draw(st.lists(st.integers(0, 1), max_size=20))]
    scores = draw(st.lists(elements, min_size=len(labels), max_size=len(labels)))
    return np.array(labels), np.array(scores, dtype=float)


def error_rates(y, scores, threshold):
    accepted = scores >= threshold
    return np.mean(accepted[y == 0]), np.mean(~accepted[y == 1])


def brute_force_eer(y, scores):
    """Walk over all thresholds and intersect the chords with the line of equal rates."""
    points = [(0.0, 1.0), *(error_rates(y, scores, t) for t in sorted(set(scores))[::-1])]
    for (f0, m0), (f1, m1) in pairwise(points):
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
def test_eer_takes_infinite_scores_as_extreme_ranks(data):
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
    rng = np.random.default_rng(0)
    scores = np.concatenate([rng.standard_normal(n), distance + rng.standard_normal(n)])
    eer, threshold = equal_error_rate(np.repeat([0, 1], n), scores)
    expected = norm.cdf(-distance / 2)
    assert abs(eer - expected) < 4 * np.sqrt(expected * (1 - expected) / n)
    assert abs(threshold - distance / 2) < 0.05


@pytest.mark.parametrize("distance", [1.0, 3.0])
def test_cllr_of_exact_gaussian_ratios_is_its_integral(distance):
    # The exact log-likelihood ratio of N(d, 1) against N(0, 1) is N(d^2/2, d^2) for positives,
    # and its cost is the same for negatives by symmetry.
    expected, _ = quad(
        lambda s: np.logaddexp(0, -s) * norm.pdf(s, distance**2 / 2, distance), -40, 60
    )
    n = 100_000
    rng = np.random.default_rng(1)
    x = np.concatenate([rng.standard_normal(n), distance + rng.standard_normal(n)])
    llr = distance * x - distance**2 / 2
    assert_allclose(cllr(np.repeat([0, 1], n), llr), expected / np.log(2), rtol=0.02)


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
        (([1, 1], [0.0, 1.0]), r"^y_true has 0 negative samples \(of weight above 0\), at least 1"),
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
