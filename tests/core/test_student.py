"""Gaussian and Student t densities against SciPy, and fitted tails against planted ones."""

import numpy as np
import pytest
from factories import log_density
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import brentq, minimize_scalar
from scipy.special import logsumexp
from scipy.stats import multivariate_t

from pcsda.core import student


def covariance_of(width, seed=0):
    rows = np.random.default_rng(seed).standard_normal((width, 20))
    return np.cov(rows).reshape(width, width)


def points(n, width, seed=1):
    return 3 * np.random.default_rng(seed).standard_normal((n, width))


@pytest.mark.parametrize("width", [1, 2, 7])
@pytest.mark.parametrize("tail", [2.5, 4.0, 200.0, np.inf])
def test_the_log_density_equals_scipys(width, tail):
    covariance = covariance_of(width)
    z, white = points(30, width), student.whitening(covariance)
    found = student.log_density(z @ white.T, white, tail)
    assert_allclose(found, log_density(z, np.zeros(width), covariance, tail), rtol=1e-10)


def test_whitening_makes_the_covariance_the_identity():
    covariance = covariance_of(3)
    white = student.whitening(covariance)
    assert_allclose(white @ covariance @ white.T, np.eye(3), atol=1e-12)
    assert_array_equal(np.triu(white, 1), 0)
    assert_allclose(student.log_volume(white), -np.linalg.slogdet(covariance)[1] / 2)


def test_the_energy_of_light_tails_is_gaussian():
    square = np.array([0.0, 1.0, 30.0])
    light = student.energy(square, 3, 1e12)
    assert_allclose(light, student.energy(square, 3, np.inf), rtol=1e-9)
    # Rounding may leave a distance below zero.
    assert student.energy(np.array([-1e-20]), 3, 4.0) == 0.0


def test_log_sum_exp_handles_missing_entries_and_large_values():
    values = np.array([[0.0, -np.inf], [1e4, 1e4], [-1e4, -1e4 + np.log(3)]])
    before = values.copy()
    assert_allclose(student.log_sum_exp(values), logsumexp(values, axis=1))
    assert_allclose(student.log_sum_exp(values, axis=0), logsumexp(values, axis=0))
    assert_array_equal(values, before)
    assert_array_equal(student.log_sum_exp(np.array([[2.0], [-np.inf]])), [2.0, -np.inf])


def squares_of(tail, d, n, seed=0):
    """Draw squared Mahalanobis distances of samples with unit covariance."""
    if np.isinf(tail):
        z = np.random.default_rng(seed).standard_normal((n, d))
    else:
        z = multivariate_t.rvs(np.zeros(d), np.eye(d) * (tail - 2) / tail, tail, n, seed)
    return np.sum(np.reshape(z, (n, d)) ** 2, axis=1)


def t_loss(tail, squares, d, weights):
    """Return SciPy's negative log likelihood at points on one axis."""
    z = np.sqrt(squares)[:, None] * np.eye(d)[0]
    return -weights @ np.atleast_1d(log_density(z, np.zeros(d), np.eye(d), tail))


@pytest.mark.parametrize("d", [1, 4])
@pytest.mark.parametrize("planted", [4.0, 10.0])
def test_planted_tails_are_recovered(planted, d):
    n = 4000
    squares = squares_of(planted, d, n)
    found = student.fit_tail(squares, d, np.ones(n))
    best = minimize_scalar(
        lambda inverse: t_loss(1 / inverse, squares, d, np.ones(n)), bounds=(0.005, 0.4)
    )
    assert_allclose(found, 1 / best.x, rtol=1e-3)
    assert t_loss(found, squares, d, np.ones(n)) <= best.fun * (1 + 1e-12)
    # Four standard errors, from the curvature of the likelihood.
    step = 1e-2 * found
    losses = [t_loss(found + k * step, squares, d, np.ones(n)) for k in (-1, 0, 1)]
    error = step / np.sqrt(losses[0] - 2 * losses[1] + losses[2])
    assert error < 0.2 * planted
    assert abs(found - planted) < 4 * error


@pytest.mark.parametrize(("n", "least"), [(1000, 10), (40_000, 20)], ids=["exact", "binned"])
def test_gaussian_data_have_gaussian_tails(n, least):
    found = [student.fit_tail(squares_of(np.inf, 3, n, s), 3, np.ones(n)) for s in range(20)]
    # A few samples may spread more by chance; their tails are hardly heavier.
    assert np.isinf(found).sum() >= least
    assert min(found) > 30


def test_lighter_than_gaussian_tails_are_fitted_as_gaussian():
    assert student.fit_tail(np.full(300, 3.0), 3, np.ones(300)) == np.inf


@pytest.mark.parametrize("n", [50, 4000], ids=["exact", "binned"])
def test_whole_weights_of_distances_equal_repetition(n):
    squares = squares_of(5.0, 2, n)
    weights = np.random.default_rng(1).integers(0, 5, n)
    repeated = np.repeat(squares, weights)
    found = student.fit_tail(squares, 2, weights.astype(float))
    expected = student.fit_tail(repeated, 2, np.ones(len(repeated)))
    assert np.isfinite(expected)
    # If only one of them is binned, the bins make the difference.
    assert_allclose(found, expected, rtol=1e-10 if n == 50 else 1e-4)


def test_the_tail_does_not_depend_on_the_order_of_many_distances():
    squares = squares_of(5.0, 2, 20_000)
    weights = np.random.default_rng(1).uniform(0.2, 2, 20_000)
    order = np.random.default_rng(2).permutation(20_000)
    found = student.fit_tail(squares, 2, weights)
    assert_allclose(student.fit_tail(squares[order], 2, weights[order]), found, rtol=1e-10)
    exact = minimize_scalar(
        lambda inverse: t_loss(1 / inverse, squares, 2, weights), bounds=(0.05, 0.4)
    )
    assert_allclose(found, 1 / exact.x, rtol=1e-3)


def test_no_distances_or_weights_give_gaussian_tails():
    assert student.fit_tail(np.zeros(0), 3, np.zeros(0)) == np.inf
    assert student.fit_tail(np.array([1.0, 1e9]), 3, np.zeros(2)) == np.inf


def test_the_heaviest_tail_is_bounded():
    squares = np.append(np.full(50, 1e-3), 1e6)
    assert student.fit_tail(squares, 2, np.ones(51)) == student.HEAVIEST
    squares[-1] = np.inf  # cut, so that its logarithm is finite
    assert student.fit_tail(squares, 2, np.ones(51)) == student.HEAVIEST


@pytest.mark.parametrize("width", [1, 20])
@pytest.mark.parametrize("tail", [2.6, 5.0, 40.0])
def test_newton_steps_find_the_root_that_bisection_finds(width, tail):
    squares, weights = squares_of(tail, width, 300), np.linspace(0.5, 2, 300)

    def slope(inverse):
        return student._tail_slope(1 / inverse, squares, width, weights, weights.sum())

    root = student._root(slope, 1 / 200, 1 / 2.01)
    expected = brentq(lambda inverse: slope(inverse)[0], 1 / 200, 1 / 2.01, xtol=1e-15)
    assert_allclose(root, expected, rtol=1e-9)
    step = 1e-6 * root
    rate = (slope(root + step)[0] - slope(root - step)[0]) / (2 * step)
    assert_allclose(slope(root)[1], rate, rtol=1e-5)
