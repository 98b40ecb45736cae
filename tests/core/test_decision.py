"""The Bayes threshold against a grid of thresholds."""

import re

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import norm

from pcsda.core.decision import bayes_threshold


@pytest.mark.parametrize(
    ("prior", "cost_miss", "cost_false_alarm"),
    [(0.5, 1.0, 1.0), (0.01, 1.0, 10.0), (0.3, 7.0, 2.0), (0.9, 1.0, 1.0)],
)
def test_bayes_threshold_minimises_the_expected_cost(prior, cost_miss, cost_false_alarm):
    # Scores that are log-likelihood ratios of two unit Gaussians at distance 2: N(2, 4), N(-2, 4).
    grid = np.linspace(-12, 12, 24001)
    miss, false_alarm = norm.cdf(grid, 2, 2), norm.sf(grid, -2, 2)
    cost = prior * cost_miss * miss + (1 - prior) * cost_false_alarm * false_alarm
    threshold = bayes_threshold(prior, cost_miss=cost_miss, cost_false_alarm=cost_false_alarm)
    assert_allclose(threshold, grid[cost.argmin()], atol=2e-3)


@pytest.mark.parametrize("prior", [0.0, 1.0, -0.1, 2, np.nan])
def test_a_prior_outside_its_range_is_refused(prior):
    message = f"prior={prior} must lie between 0 and 1, both excluded"
    with pytest.raises(ValueError, match=re.escape(message)):
        bayes_threshold(prior)


@pytest.mark.parametrize("name", ["cost_miss", "cost_false_alarm"])
@pytest.mark.parametrize("cost", [0.0, -1.0, np.inf, np.nan])
def test_a_cost_that_is_not_positive_is_refused(name, cost):
    with pytest.raises(ValueError, match=re.escape(f"{name}={cost} must be a positive number")):
        bayes_threshold(0.5, **{name: cost})
