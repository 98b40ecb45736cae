"""Counting positives in a pool: maximum likelihood, its interval, and uninformative data."""

from itertools import product

import numpy as np
import pytest
from scipy.optimize import brentq, minimize_scalar
from scipy.special import expit, log_expit
from scipy.stats import chi2, norm

from pcsda.metrics import PriorEstimate, estimate_prior


def gaussian_ratios(positive, seed=0, distance=3.0):
    """Draw exact log-likelihood ratios of unit Gaussians."""
    x = np.random.default_rng(seed).normal(np.where(positive, distance, 0.0))
    return distance * x - distance**2 / 2


def log_likelihood(share, llr):
    return np.log(1 - share + share * np.exp(llr)).sum()


@pytest.mark.parametrize("share", [0.02, 0.3, 0.9])
def test_share_and_interval_follow_from_the_likelihood(share):
    llr = gaussian_ratios(np.arange(400) < 400 * share)
    found = estimate_prior(llr)
    best = minimize_scalar(
        lambda s: -log_likelihood(s, llr),
        bounds=(1e-9, 1 - 1e-9),
        method="bounded",
        options={"xatol": 1e-9},
    )
    assert found.prior == pytest.approx(best.x, abs=1e-6)

    def excess(s):
        return log_likelihood(s, llr) + best.fun + chi2.ppf(0.9, 1) / 2

    assert found.low == pytest.approx(brentq(excess, 1e-12, best.x), abs=1e-6)
    assert found.high == pytest.approx(brentq(excess, best.x, 1 - 1e-12), abs=1e-6)


def test_the_share_is_a_fixed_point_of_em():
    llr = gaussian_ratios(np.arange(300) < 60)
    share = 0.5
    for _ in range(2000):
        odds = share * np.exp(llr)
        share = np.mean(odds / (1 - share + odds))
    assert estimate_prior(llr).prior == pytest.approx(share, abs=1e-6)


def test_binning_a_large_pool_changes_nothing_that_matters(monkeypatch):
    llr = gaussian_ratios(np.arange(5000) < 250)
    found = estimate_prior(llr)
    monkeypatch.setattr("pcsda.metrics.counting.MANY", len(llr))
    exact = estimate_prior(llr)
    assert found.prior == pytest.approx(exact.prior, rel=1e-3)
    assert found.low == pytest.approx(exact.low, rel=1e-3)
    assert abs(found.count_high - exact.count_high) <= 1


def test_row_order_does_not_matter():
    llr = gaussian_ratios(np.arange(300) < 30)
    one, other = estimate_prior(llr), estimate_prior(llr[::-1])
    assert one.prior == pytest.approx(other.prior)
    assert (one.count_low, one.count_high) == (other.count_low, other.count_high)


def test_swapping_the_classes_swaps_the_share():
    llr = gaussian_ratios(np.arange(300) < 90)
    one, other = estimate_prior(llr), estimate_prior(-llr)
    assert one.prior == pytest.approx(1 - other.prior)
    assert one.low == pytest.approx(1 - other.high)
    assert one.count_low == 300 - other.count_high


def test_certain_rows_are_counted_exactly():
    found = estimate_prior([-50.0] * 70 + [50.0] * 30)
    assert (found.count, found.count_low, found.count_high) == (30.0, 30, 30)
    assert found.low < 0.25 < 0.35 < found.high  # but the next pool may have a different number


def test_a_pool_without_positives_has_none_and_an_interval():
    found = estimate_prior(gaussian_ratios(np.zeros(500, dtype=bool), distance=5))
    assert found.prior < 0.002
    assert found.low == 0.0
    assert found.count_low == 0
    assert 0.0005 < found.high < 0.01
    clear = estimate_prior(np.linspace(-30, -20, 100))
    assert (clear.count, clear.count_low, clear.count_high) == (0.0, 0, 0)
    assert clear.high == pytest.approx(1 - np.exp(-chi2.ppf(0.9, 1) / 200), rel=1e-3)


def test_a_pool_of_positives_is_counted_whole():
    found = estimate_prior(np.linspace(20, 30, 100))
    assert (found.prior, found.count, found.count_low, found.count_high) == (1.0, 100, 100, 100)
    assert found.low < 1.0 == found.high


def test_uninformative_scores_say_so():
    rng = np.random.default_rng(0)
    vague = estimate_prior(0.01 * rng.normal(size=50))
    assert vague.high - vague.low > 0.8
    assert vague.note.startswith("The scores cannot tell: shares from ")
    assert "Label some rows of the pool" in vague.note
    assert vague.note in str(vague)
    flat = estimate_prior(np.zeros(20))
    assert (flat.low, flat.high, flat.count_low, flat.count_high) == (0.0, 1.0, 0, 20)
    assert flat.note == "All rows have the same ratio, 0: no row stands out from the others."


def test_a_pool_may_have_a_single_row():
    found = estimate_prior([3.0])
    assert found.n_rows == 1
    assert found.low < found.prior <= found.high


def test_the_estimate_reads_well():
    found = PriorEstimate(0.05, 0.03, 0.08, 50.0, 44, 57, 1000)
    assert str(found) == "50 of 1000 rows (90% interval 44 to 57), a share of 0.05 (0.03 to 0.08)"


@pytest.mark.parametrize(
    ("llr", "message"),
    [
        ([], "^llr has 0 rows, but at least 1 is needed$"),
        (
            [0.0, np.nan, 1.0],
            "^llr has 1 values that are not finite, the first nan in row 1; leave",
        ),
        ([0.0, 1.0, -np.inf, np.inf], "^llr has 2 values that are not finite, the first -inf in"),
        ([[0.0, 1.0]], "should be a 1d array"),
    ],
)
def test_invalid_ratios_are_refused(llr, message):
    with pytest.raises(ValueError, match=message):
        estimate_prior(llr)


def test_huge_ratios_do_not_overflow():
    found = estimate_prior([-1e308] * 5 + [1e308] * 5)
    assert (found.count, found.count_low, found.count_high) == (5.0, 5, 5)


def labelled(n_positives, n_negatives, seed, distance=3.0):
    y = np.arange(n_positives + n_negatives) < n_positives
    return y, gaussian_ratios(y, seed, distance)


def test_the_interval_narrows_to_the_plain_one_as_labelled_rows_grow():
    llr = gaussian_ratios(np.arange(500) < 50)
    plain = estimate_prior(llr)
    widths = []
    for n_positives in (5, 50, 5000):
        found = estimate_prior(llr, calibrated_on=labelled(n_positives, 10 * n_positives, 0))
        assert found.prior == plain.prior
        widths.append(found.high - found.low)
    assert widths[0] > widths[1] > widths[2] > plain.high - plain.low
    assert widths[2] == pytest.approx(plain.high - plain.low, rel=0.1)


@pytest.mark.parametrize("distance", [3.0, 6.0])
def test_the_interval_averages_over_plausible_calibrations(distance):
    """They vary by the information in a logistic regression on the labelled rows, and priors.

    A quarter of the fall in likelihood bounds them, where it is larger.
    """
    llr, (y, scores) = gaussian_ratios(np.arange(400) < 60), labelled(10, 100, 2, distance)
    found = estimate_prior(llr, calibrated_on=(y, scores))
    chance = expit(scores + np.log(10 / 100))
    curve = chance * (1 - chance)
    centre = np.average(scores, weights=curve)

    def fall(log_slope, offset):
        odds = centre + np.exp(log_slope) * (scores - centre) + offset + np.log(10 / 100)
        return -log_expit(np.where(y, odds, -odds)).sum()

    confidence, total = np.zeros(2), 0.0
    for log_slope, offset in product(np.linspace(-4, 4, 41), np.linspace(-20, 20, 201)):
        known = curve @ (scores - centre) ** 2 * log_slope**2 + curve.sum() * offset**2
        lost = max(known / 2, (fall(log_slope, offset) - fall(0, 0)) / 4)
        weight = np.exp(-lost - log_slope**2 / 2 - 0.01 * offset**2 / 2)
        if weight < 1e-4:
            continue
        moved = centre + np.exp(log_slope) * (llr - centre) + offset
        best = minimize_scalar(
            lambda s, moved=moved: -log_likelihood(s, moved), bounds=(0, 1), method="bounded"
        )
        total += weight
        for end, share in enumerate((found.low, found.high)):
            less = max(-best.fun - log_likelihood(share, moved), 0.0)
            confidence[end] += weight * norm.cdf(np.sign(share - best.x) * np.sqrt(2 * less))
    assert confidence / total == pytest.approx([0.05, 0.95], abs=0.015)


@pytest.mark.parametrize("n_positives", [5, 40])
def test_labelled_rows_far_apart_leave_little_doubt(n_positives):
    """No row near the border tells where it lies, but it must lie between the classes."""
    llr = gaussian_ratios(np.arange(1000) < 100, distance=8.0)
    y, scores = labelled(n_positives, 360, 0, distance=8.0)
    found = estimate_prior(llr, calibrated_on=(y, scores))
    assert 90 <= found.count_low <= 100 <= found.count_high <= 110
    assert not found.note


def test_the_scale_of_labelled_weights_adds_no_evidence():
    llr = gaussian_ratios(np.arange(300) < 30)
    y, scores = labelled(20, 200, 1)
    one = estimate_prior(llr, calibrated_on=(y, scores))
    other = estimate_prior(llr, calibrated_on=(y, scores, np.full(220, 7.0)))
    assert one == other
    with pytest.raises(ValueError, match="negative"):
        estimate_prior(llr, calibrated_on=(y, scores, np.full(220, -1.0)))


@pytest.mark.more  # many draws
def test_exact_ratios_give_the_stated_coverage():
    covered = []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        positive = rng.random(200) < 0.15
        found = estimate_prior(gaussian_ratios(positive, seed + 1000))
        covered.append(
            [found.low <= 0.15 <= found.high, found.count_low <= positive.sum() <= found.count_high]
        )
    of_share, of_count = np.mean(covered, axis=0)
    assert of_share > 0.85
    assert of_count > 0.85


def test_a_single_row_says_nothing_about_a_share():
    said = "One row says nothing about a share; give all rows of the pool in one call."
    assert estimate_prior([3.0]).note == said
