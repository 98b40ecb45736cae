"""Bootstrap intervals: theory for means, laws for groups, and draws that never lack a class."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from metric_factories import gaussian_scores
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm
from sklearn.metrics import roc_auc_score

from pcsda.metrics import (
    bootstrap_interval,
    cllr,
    cmc_curve,
    detection_cost,
    equal_error_rate,
    fnmr_at_fmr,
    min_cllr,
    min_detection_cost,
    precision_at_k,
    rank_k_rate,
)


def mean_positive(y, scores, sample_weight=None):
    return np.average(
        scores[y == 1], weights=None if sample_weight is None else sample_weight[y == 1]
    )


@pytest.mark.more
def test_the_interval_of_a_mean_matches_theory():
    y, scores = gaussian_scores(1.0, 400)
    found = bootstrap_interval(mean_positive, y, scores, n_resamples=4000, random_state=0)
    error = scores[y == 1].std() / 20
    assert found.value == scores[y == 1].mean()
    assert_allclose(
        [found.low, found.high], found.value + norm.ppf([0.025, 0.975]) * error, atol=0.012
    )
    narrow = bootstrap_interval(
        mean_positive, y, scores, level=0.5, n_resamples=4000, random_state=0
    )
    assert_allclose(narrow.resamples, found.resamples)
    assert_allclose(narrow.high - narrow.low, 2 * norm.ppf(0.75) * error, rtol=0.06)


def test_copies_of_one_identity_add_no_evidence():
    y, scores = gaussian_scores(1.0, 50)
    once = bootstrap_interval(cllr, y, scores, n_resamples=50, random_state=3)
    copies = np.repeat(np.arange(100), 20)
    grouped = bootstrap_interval(
        cllr, y[copies], scores[copies], groups=copies, n_resamples=50, random_state=3
    )
    assert_allclose(grouped.resamples, once.resamples)
    fooled = bootstrap_interval(cllr, y[copies], scores[copies], n_resamples=50, random_state=3)
    assert fooled.high - fooled.low < 0.5 * (grouped.high - grouped.low)


@pytest.mark.parametrize(
    "metric",
    [
        equal_error_rate,
        partial(equal_error_rate, convex_hull=True),
        cllr,
        min_cllr,
        partial(min_detection_cost, prior=0.1, cost_miss=3.0, normalize=False),
        partial(fnmr_at_fmr, fmr=0.2),
        partial(detection_cost, prior=0.2),
        partial(detection_cost, threshold=0.9),
        roc_auc_score,
    ],
)
def test_sorting_once_weighting_and_repeating_rows_agree(metric):
    y, scores = gaussian_scores(1.0, 30)
    scores = scores.round(1)
    groups = np.array([f"person {i}" for i in np.arange(60) // 3])
    found = [
        bootstrap_interval(m, y, scores, groups=groups, n_resamples=15, random_state=1)
        for m in (
            metric,
            lambda y, s, sample_weight=None: metric(y, s, sample_weight=sample_weight),
            lambda y, s: metric(y, s),
        )
    ]
    value = metric(y, scores)
    for one in found:
        assert_allclose(one.resamples, found[0].resamples, atol=1e-12)
        assert one.value == (value[0] if isinstance(value, tuple) else value)


def test_options_of_a_partial_reach_the_metric():
    y, scores = gaussian_scores(1.0, 30)
    names = np.where(y, "a", "b")
    options = {"n_resamples": 10, "random_state": 0}
    named = bootstrap_interval(partial(cllr, pos_label="a"), names, scores, **options)
    assert_allclose(named.resamples, bootstrap_interval(cllr, y, scores, **options).resamples)
    with pytest.raises(ValueError, match=r"^metric already has a sample_weight, which resampling"):
        bootstrap_interval(partial(cllr, sample_weight=np.ones(60)), y, scores, **options)


def test_correct_infinite_ratios_cost_nothing_in_any_resample():
    y, scores = gaussian_scores(1.0, 30)
    scores[y == 1] = np.where(scores[y == 1] > 1.5, np.inf, scores[y == 1])
    found = bootstrap_interval(cllr, y, scores, n_resamples=10, random_state=0)
    assert np.isfinite(found.resamples).all()


@given(st.integers(0, 2**32 - 1))
def test_no_resample_lacks_a_class(seed):
    rng = np.random.default_rng(seed)
    y = np.array([0, 1, *rng.integers(0, 2, 6)])
    groups = rng.integers(0, 3, 8)
    found = bootstrap_interval(
        roc_auc_score, y, rng.standard_normal(8), groups=groups, n_resamples=5, random_state=seed
    )
    assert np.all((found.resamples >= 0) & (found.resamples <= 1))


def test_the_seed_decides_and_labels_may_be_strings():
    y, scores = gaussian_scores(1.0, 20)
    options = {"n_resamples": 10, "random_state": 5}
    first = bootstrap_interval(cllr, y, scores, **options)
    named = bootstrap_interval(cllr, np.where(y, "b", "a"), scores, pos_label="b", **options)
    assert_array_equal(first.resamples, named.resamples)
    other = bootstrap_interval(cllr, y, scores, n_resamples=10, random_state=6)
    assert np.any(first.resamples != other.resamples)


def test_bank_metrics_take_score_tables():
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    scores = rng.standard_normal((60, 3)) + np.eye(3)[y]
    found = bootstrap_interval(
        lambda y, s: rank_k_rate(y, s, labels=[0, 1, 2]), y, scores, n_resamples=200, random_state=0
    )
    assert found.value == cmc_curve(y, scores)[0]
    assert 0 < found.low < found.value < found.high < 1
    error = np.sqrt(found.value * (1 - found.value) / 60)
    assert_allclose(found.high - found.low, 2 * 1.96 * error, rtol=0.2)


@pytest.mark.more  # many draws
def test_the_interval_has_its_stated_coverage():
    # Five samples of each person, and persons differ more than their samples do.
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(100):
        persons = np.repeat(np.arange(80), 5)
        y = (persons >= 40).astype(int)
        scores = rng.standard_normal(80)[persons] + 0.3 * rng.standard_normal(400) + 2 * y
        found = bootstrap_interval(
            equal_error_rate, y, scores, groups=persons, level=0.9, n_resamples=60, random_state=0
        )
        hits += found.low <= norm.cdf(-1 / np.sqrt(1.09)) <= found.high
    assert 0.8 <= hits / 100 <= 0.97


def test_an_interval_reads_well():
    found = bootstrap_interval(precision_at_k, [0, 1] * 10, np.arange(20), n_resamples=3)
    assert str(found).startswith("0.5 (95% interval ")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"level": 95}, r"^level=95 must lie between 0 and 1, both excluded; 0.95 is usual$"),
        ({"n_resamples": 0}, r"^n_resamples=0 must be a whole number of at least 1$"),
        ({"groups": [1, 2]}, r"inconsistent numbers of samples"),
    ],
)
def test_bad_settings_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        bootstrap_interval(cllr, [0, 1, 1], [0.0, 1.0, 2.0], **options)


def test_an_empty_sample_is_refused():
    with pytest.raises(ValueError, match=r"^y_true has 0 samples, but at least 1 is needed$"):
        bootstrap_interval(cllr, [], [])
