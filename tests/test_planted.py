"""Planted data: the subspace is recovered, and the ratio is nearly as good as the exact one."""

from functools import cache

import numpy as np
import pytest
from factories import largest_angle, tails_of, with_heavy_tails
from sklearn.datasets import load_breast_cancer

from pcsda import CSDA, PCSDA
from pcsda.datasets import make_class_specific
from pcsda.metrics import cllr

N = 20_000
SEEDS = pytest.mark.parametrize("seed", range(3))


@cache
def planted(seed):
    """Draw training and fresh rows of one population; another seed gives another population."""
    data = make_class_specific(
        2 * N, n_features=50, n_informative=4, n_subclasses=6, random_state=seed
    )
    data["bayes"] = cllr(data.target[N:], data.log_likelihood_ratio(data.data[N:]))
    return data


def cost(model, data):
    """Return the Cllr on fresh rows."""
    return cllr(data.target[N:], model.log_likelihood_ratio(data.data[N:]))


@cache
def fitted(seed):
    data = planted(seed)
    model = PCSDA(n_subclasses=6, n_components=4, random_state=seed)
    return model.fit(data.data[:N], data.target[:N])


@SEEDS
@pytest.mark.more
def test_the_problem_is_neither_easy_nor_hopeless(seed):
    data = planted(seed)
    assert data.target.mean() == 0.1
    assert 0.1 < data.bayes < 0.3


@SEEDS
def test_the_planted_subspace_is_found(seed):
    assert largest_angle(fitted(seed).components_, planted(seed).subspace.T) < 0.1


@SEEDS
def test_the_ratio_on_fresh_rows_costs_at_most_a_tenth_more_than_the_exact_one(seed):
    data = planted(seed)
    assert cost(fitted(seed), data) < 1.1 * data.bayes


@SEEDS
def test_probabilities_at_the_true_prior_are_calibrated(seed):
    data = planted(seed)
    probability = fitted(seed).predict_proba(data.data[N:])[:, 1]
    truth = data.target[N:]
    for low, high in ((0.05, 0.3), (0.3, 0.7), (0.7, 0.95)):
        chosen = (probability > low) & (probability < high)
        spread = np.sqrt(chosen.sum()) / 2
        assert abs(truth[chosen].sum() - probability[chosen].sum()) < 4 * spread


@SEEDS
def test_the_blend_becomes_the_mixture_where_that_is_the_truth(seed):
    model = fitted(seed)
    assert np.isinf(tails_of(model.density_)).all()
    of_mixture, of_cloud = model.calibration_.weights
    assert abs(of_mixture - 1) < 0.1
    assert 0 < of_cloud < 0.1


@pytest.mark.each_value
@pytest.mark.parametrize("negatives", ["blend", "mixture"])
@pytest.mark.parametrize("seed", range(2))
def test_fitted_tails_pay_where_tails_are_heavy(seed, negatives):
    data = make_class_specific(
        8000, n_features=20, n_informative=4, n_subclasses=6, random_state=seed
    )
    X = with_heavy_tails(data.data, data.subclass_labels + 1, seed)
    costs = {}
    for tails in ("fitted", "gaussian"):
        model = PCSDA(6, 4, negatives=negatives, tails=tails, random_state=0)
        model.fit(X[:4000], data.target[:4000])
        costs[tails] = cllr(data.target[4000:], model.log_likelihood_ratio(X[4000:]))
        if tails == "fitted":  # three degrees were planted
            assert 2.5 < tails_of(model.density_)[0] < 4.5
    assert costs["fitted"] < costs["gaussian"] - 0.05


@SEEDS
def test_one_subclass_misses_a_class_in_the_middle_and_six_find_it(seed):
    data = planted(seed)
    one = PCSDA(n_subclasses=1, random_state=0).fit(data.data[:N], data.target[:N])
    # The mean of all others lies where the class of interest does.
    assert cost(one, data) > 0.95
    assert largest_angle(one.components_, data.subspace.T) > 0.5
    assert cost(fitted(seed), data) < 0.3


@pytest.mark.parametrize(
    "estimator",
    [
        # Other tests compare means over draws with the pooled ones, on fewer features.
        pytest.param(PCSDA(6, 4, balance="resampled", random_state=0), marks=pytest.mark.more),
        PCSDA(6, 4, covariance="resubstitution", calibrate=False, random_state=0),
        PCSDA(random_state=0),
        # Other tests compare the solvers, on smaller data.
        pytest.param(PCSDA(6, 4, solver="eigen", random_state=0), marks=pytest.mark.more),
        pytest.param(PCSDA(6, 4, solver="spectral", random_state=0), marks=pytest.mark.more),
        pytest.param(PCSDA(6, random_state=0), marks=pytest.mark.more),
    ],
    ids=str,
)
def test_other_ways_of_fitting_cost_little_more(estimator):
    data = planted(0)
    estimator.fit(data.data[:N], data.target[:N])
    assert cost(estimator, data) < 1.15 * data.bayes


def test_the_published_rule_finds_the_subspace_but_not_the_ratio():
    data = planted(0)
    model = PCSDA.published(6, 4, random_state=0).fit(data.data[:N], data.target[:N])
    assert largest_angle(model.components_, data.subspace.T) < 0.1
    assert cost(model, data) > 1.25 * data.bayes


def test_csda_finds_the_middle_by_its_smaller_spread():
    data = planted(0)
    model = CSDA(4, random_state=0).fit(data.data[:N], data.target[:N])
    assert largest_angle(model.components_, data.subspace.T) < 0.3
    assert cost(model, data) < 2 * data.bayes


@pytest.mark.more
def test_batches_find_the_planted_subspace_too():
    data = planted(0)
    model = PCSDA(6, 4, random_state=0)
    for part in np.array_split(np.arange(N), 10):
        model.partial_fit(data.data[part], data.target[part])
    assert largest_angle(model.components_, data.subspace.T) < 0.15
    assert cost(model, data) < 1.15 * data.bayes


@pytest.mark.parametrize("columns", [slice(0, 10), slice(10, 20), slice(None)])
def test_left_out_scores_stay_unbiased_with_columns_in_different_units(columns):
    data = load_breast_cancer()
    X, y = data.data[:, columns], data.target == 0
    left_out, fresh = [], []
    for seed in range(4):
        train = np.random.default_rng(seed).permutation(len(X)) < 340
        model = PCSDA(random_state=0).fit(X[train], y[train])
        left_out.append(cllr(y[train], model.loo_scores_))
        fresh.append(cllr(y[~train], model.log_likelihood_ratio(X[~train])))
    assert 0.7 < np.mean(left_out) / np.mean(fresh) < 1.4
