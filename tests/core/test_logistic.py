"""Logistic regression on scores against a general optimiser, and its invariances."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.optimize import minimize
from scipy.special import expit

from pcsda.core import logistic
from pcsda.core.logistic import OFFSET_SPREAD, fit_logistic, softplus


def make_scores(m, n=150, seed=0, distance=1.5):
    """Return the scores of M views; later views are weaker and correlated with the first."""
    rng = np.random.default_rng(seed)
    positive = rng.permutation(np.arange(n) < n // 3)
    common = rng.standard_normal(n)
    views = [common + k * rng.standard_normal(n) + distance * positive for k in range(m)]
    return np.array(views), positive


def log_odds(positive, weights):
    return np.log(weights[positive].sum() / weights[~positive].sum())


def penalised_loss(slopes, offset, scores, positive, weights):
    """Return the cross-entropy with priors Gamma(2, M) on slopes and N(0, 10^2) on the offset."""
    odds = slopes @ scores + offset + log_odds(positive, weights)
    fit = weights @ np.logaddexp(0, np.where(positive, -odds, odds))
    prior = len(slopes) * slopes.sum() - np.log(slopes).sum()
    return fit + prior + (offset / OFFSET_SPREAD) ** 2 / 2


def brute_force(scores, positive, weights):
    best = minimize(
        lambda p: penalised_loss(np.exp(p[:-1]), p[-1], scores, positive, weights),
        np.zeros(len(scores) + 1),
        method="Nelder-Mead",
        options={"xatol": 1e-9, "fatol": 1e-13, "maxiter": 20_000, "maxfev": 20_000},
    )
    assert best.success
    return np.exp(best.x[:-1]), best.x[-1]


@pytest.mark.each_pair
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("m", [1, 2, 3])
@pytest.mark.parametrize("distance", [0.0, 1.5, 4.0])
def test_slopes_and_offset_minimise_the_penalised_cross_entropy(weighted, m, distance):
    scores, positive = make_scores(m, distance=distance)
    weights = np.random.default_rng(1).uniform(0.2, 3, len(positive)) if weighted else None
    slopes, offset = fit_logistic(scores, positive, weights)
    expected = brute_force(scores, positive, np.ones(len(positive)) if weights is None else weights)
    assert np.all(slopes > 0)
    assert_allclose(slopes, expected[0], rtol=1e-5, atol=1e-7)
    assert_allclose(offset, expected[1], rtol=1e-5, atol=1e-6)


def assert_at_the_minimum(scores, positive, tolerance=1e-5):
    """Check that the gradient vanishes along the log slopes and the offset."""
    slopes, offset = fit_logistic(scores, positive)
    assert np.isfinite([*slopes, offset]).all()
    assert np.all(slopes > 0)
    error = expit(slopes @ scores + offset + log_odds(positive, np.ones(len(positive)))) - positive
    pull = offset / OFFSET_SPREAD**2
    assert abs(error.sum() + pull) < tolerance
    centre = scores.mean(axis=1)
    along = (scores - centre[:, None]) @ error + len(slopes) - 1 / slopes - pull * centre
    assert np.all(np.abs(along) * slopes < tolerance)


@given(
    st.lists(
        st.tuples(st.floats(-30, 30) | st.floats(-1e4, 1e4), st.floats(-30, 30)),
        min_size=2,
        max_size=25,
    ),
    st.data(),
)
def test_the_gradient_vanishes(scores, data):
    scores = np.array(scores).T
    size = scores.shape[1]
    positive = np.array(data.draw(st.lists(st.booleans(), min_size=size, max_size=size)))
    assume(positive.any() and not positive.all())
    assert_at_the_minimum(scores, positive)


def test_equal_views_share_their_slope():
    scores, positive = make_scores(1)
    slopes, _ = fit_logistic(np.vstack([scores, scores]), positive)
    assert_allclose(slopes[0], slopes[1], rtol=1e-9)
    # Two equal views share the weight of one, up to the prior.
    assert_allclose(slopes.sum(), fit_logistic(scores, positive)[0][0], rtol=0.02)


@pytest.mark.parametrize("second", ["copy", "scaled", "shifted", "constant", "zero"])
def test_redundant_views_still_leave_a_minimum(second):
    scores, positive = make_scores(1, 6000)
    other = {
        "copy": scores,
        "scaled": 1e3 * scores,
        "shifted": scores + 50,
        "constant": np.full_like(scores, 7.0),
        "zero": np.zeros_like(scores),
    }[second]
    both = np.vstack([scores, other])
    assert_at_the_minimum(both, positive)
    slopes, offset = fit_logistic(both, positive)
    alone, level = fit_logistic(scores, positive)
    # With many samples it equals a single view, because the prior hardly matters.
    found, expected = slopes @ both + offset, alone @ scores + level
    assert np.abs(found - expected).max() < 0.02


def test_an_uninformative_view_gets_little_weight():
    scores, positive = make_scores(1, 6000)
    noise = 5 * np.random.default_rng(3).standard_normal(6000)
    slopes, _ = fit_logistic(np.vstack([scores, noise]), positive)
    assert_allclose(slopes[0], 1.5, rtol=0.1)
    assert slopes[1] < 0.02


def test_separable_views_keep_finite_slopes():
    positive = np.arange(30) < 10
    scores = np.where(positive, 1.0, -1.0) * np.array([[1.0], [1e6]])
    slopes, offset = fit_logistic(scores, positive)
    assert np.isfinite([*slopes, offset]).all()
    assert np.all(slopes > 0)
    assert np.all((slopes @ scores + offset > 0) == positive)


def test_whole_weights_equal_repetition():
    scores, positive = make_scores(2)
    weights = np.random.default_rng(1).integers(0, 4, len(positive))
    slopes, offset = fit_logistic(scores, positive, weights.astype(float))
    expected = fit_logistic(np.repeat(scores, weights, axis=1), np.repeat(positive, weights))
    assert_allclose(slopes, expected[0], rtol=1e-9)
    assert_allclose(offset, expected[1], rtol=1e-9)


@pytest.mark.parametrize("rare", ["mixed", "sorted", "one positive"])
def test_starting_from_a_subsample_reaches_the_full_minimum(monkeypatch, rare):
    scores, positive = make_scores(2, 3000)
    if rare == "sorted":
        order = np.argsort(positive, kind="stable")
        scores, positive = scores[:, order], positive[order]
    if rare == "one positive":
        positive = np.arange(3000) == 1234
    monkeypatch.setattr(logistic, "MANY", 3000)
    expected = fit_logistic(scores, positive)
    monkeypatch.setattr(logistic, "MANY", 100)  # a tenth of a tenth
    found = fit_logistic(scores, positive)
    assert_allclose(found[0], expected[0], rtol=1e-7)
    assert_allclose(found[1], expected[1], rtol=1e-7)


@pytest.mark.parametrize("start", [((1e-9, 3.0), -5.0), ((50.0, 1e-3), 40.0), ((0.5, 0.5), 0.0)])
@pytest.mark.parametrize("distance", [0.0, 1.5, 4.0])
def test_the_minimum_does_not_depend_on_the_start(start, distance):
    scores, positive = make_scores(2, 600, distance=distance)
    expected = fit_logistic(scores, positive)
    found = fit_logistic(scores, positive, start=start)
    assert_allclose(found[0], expected[0], rtol=1e-7)
    assert_allclose(found[1], expected[1], rtol=1e-7)


@pytest.mark.parametrize("spread", [1e-300, 1.2e-160, 1e-110])
def test_nearly_equal_scores_act_like_equal_scores(spread):
    scores = np.array([[0.0, 0.0, 1.0], [0.0, spread, 0.0]])
    positive = np.array([False, True, True])
    slopes, offset = fit_logistic(scores, positive)
    expected, level = fit_logistic(scores * [[1.0], [0.0]], positive)
    assert_allclose([*slopes, offset], [*expected, level], rtol=1e-9)


def test_softplus_and_its_derivatives_hold_far_from_zero():
    values = np.array([-1e3, -40.0, -1.0, 0.0, 2.0, 40.0, 1e3])
    total, rise, bend = softplus(values)
    assert_allclose(total, np.logaddexp(0, values), rtol=1e-14, atol=1e-16)
    assert_allclose(rise, expit(values), rtol=1e-14)
    assert_allclose(bend, expit(values) * expit(-values), rtol=1e-14)
