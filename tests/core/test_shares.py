"""Laws of fitting the ratio and the share of hidden positives together."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize
from scipy.special import log_softmax

from pcsda.core.shares import SHARES, SLOPE_SPREAD, Scores, fit_shares, hidden_probability


def make_scores(share, n_positive, seed, *, checked=0, gap=3.0):
    """Return ideal scores: the log-likelihood ratios of two unit Gaussians."""
    rng = np.random.default_rng(seed)
    hidden = round(share * 300)
    means = np.repeat([gap, gap, 0.0], [n_positive, hidden, 300 - hidden + checked])
    ratio = gap * (rng.standard_normal(len(means)) + means) - gap**2 / 2
    place = np.arange(len(means))
    positive, unchecked = place < n_positive, (place >= n_positive) & (place < n_positive + 300)
    return Scores(ratio[None], positive, unchecked, np.ones(len(means)))


@pytest.mark.parametrize(
    ("share", "n_draws"),
    [
        *((share, 15) for share in (0.0, 0.05)),
        *(pytest.param(share, 40, marks=pytest.mark.more) for share in (0.0, 0.05, 0.2)),
    ],
)
def test_the_interval_covers_the_share_of_ideal_scores(share, n_draws):
    found = [fit_shares(make_scores(share, 10, seed)) for seed in range(n_draws)]
    covered = [low - 1e-9 <= share <= high + 1e-9 for low, high in (s.interval for s in found)]
    assert np.mean(covered) >= 0.85
    # The priors pull toward fewer hidden positives, by a factor of up to 1.3 (MATH 16).
    assert share / 1.3 <= np.median([one.share for one in found]) <= 1.3 * share
    assert all(one.interval[0] <= one.share <= one.interval[1] for one in found)


@pytest.mark.parametrize("n_draws", [4, pytest.param(9, marks=pytest.mark.more)])
def test_checked_negatives_make_the_share_more_certain(n_draws):
    def width(checked):
        scores = [make_scores(0.1, 5, seed, checked=checked, gap=2) for seed in range(n_draws)]
        found = [fit_shares(one) for one in scores]
        return np.mean([one.interval[1] - one.interval[0] for one in found])

    assert width(1000) < width(0)


def test_a_given_share_is_kept():
    scores = make_scores(0.1, 10, 0)
    found = fit_shares(scores, 0.25)
    assert found.share == 0.25
    assert found.interval == (0.25, 0.25)
    # The more positives are hidden, the further apart the true classes are.
    assert found.calibration(np.array([[4.0]])) > fit_shares(scores, 0.0).calibration(
        np.array([[4.0]])
    )


def test_without_hidden_positives_the_fit_is_a_logistic_regression():
    scores = make_scores(0.0, 200, 3)
    found = fit_shares(scores, 0.0).calibration
    assert_allclose(found.slope, 1, atol=0.2)
    assert_allclose(found.offset, 0, atol=0.5)


def test_weights_count_as_repetitions():
    scores = make_scores(0.1, 5, 2)
    twice = np.tile(np.arange(len(scores.positive)), 2)
    repeated = Scores(
        scores.views[:, twice], scores.positive[twice], scores.unchecked[twice], np.ones(len(twice))
    )
    heavy = Scores(scores.views, scores.positive, scores.unchecked, 2 * scores.weight)
    found, expected = fit_shares(heavy), fit_shares(repeated)
    assert_allclose(found.share, expected.share, atol=1e-4)
    assert_allclose(found.interval, expected.interval, atol=1e-3)


@pytest.mark.parametrize("checked", [0, 40])
def test_the_losses_are_those_of_the_odds_as_documented(checked):
    scores, rng = make_scores(0.1, 10, 1, checked=checked, gap=2.0), np.random.default_rng(1)
    views = scores.views + rng.standard_normal((2, len(scores.positive)))
    weight = rng.uniform(0.5, 2.0, views.shape[1])
    scores = Scores(views, scores.positive, scores.unchecked, weight, 0.5, 2.0)
    kinds = np.array([scores.positive, scores.unchecked, ~(scores.positive | scores.unchecked)])
    masses = np.maximum(kinds @ weight, 1e-300)

    def loss(point, share):
        ratio = np.exp(point[:2]) / 2 @ views + point[2]
        odds = np.array([np.exp(ratio), 1 - share + share * np.exp(ratio), np.ones_like(ratio)])
        likely = np.where(kinds, log_softmax(np.log(odds) + np.log(masses)[:, None], axis=0), 0.0)
        prior = np.sum((point[:2] - np.log(0.5)) ** 2) / SLOPE_SPREAD**2 + (point[2] / 2.0) ** 2
        return prior / 2 - likely.sum(axis=0) @ weight

    found = fit_shares(scores).losses
    for place in (0, 8, 20):
        direct = minimize(loss, np.zeros(3), args=(SHARES[place],), tol=1e-9)
        assert_allclose(found[place], direct.fun, rtol=1e-7)


@pytest.mark.parametrize("share", [None, 0.0, 0.1])
@pytest.mark.parametrize("kind", ["positive", "unchecked", "checked"])
def test_rows_of_one_kind_alone_leave_the_prior(kind, share):
    ratio = np.linspace(-40, 40, 9)
    kinds = [np.full(9, kind == name) for name in ("positive", "unchecked")]
    found = fit_shares(Scores(ratio[None], *kinds, np.full(9, 1e60), 0.5), share)
    assert_allclose(found.calibration.weights, 0.5, rtol=1e-9)
    assert found.calibration.offset == pytest.approx(0, abs=1e-9)


def test_hidden_positive_probabilities_follow_from_odds():
    assert_allclose(hidden_probability(np.array([0.0, np.log(9.0)]), 0.1), [0.1, 0.5])
    assert_allclose(hidden_probability(np.array([1000.0, -1000.0]), 0.1), [1.0, 0.0])
    assert not hidden_probability(np.array([1000.0]), 0.0).any()
