"""PCSDACV inside a bank: a setting for each label, with shared factorisations and clusters."""

import numpy as np
import pytest
from bank_factories import animals as problem
from factories import close
from numpy.testing import assert_array_equal
from sklearn.base import clone

from pcsda import PCSDA, PCSDACV, KernelPCSDA, VerifierBank
from pcsda.estimators.shared import cluster_rows, sharing_of

GRID = {"n_subclasses": [1, 3], "n_components": [1, 2], "regularization": [0.01, 1.0]}
CASES = pytest.mark.parametrize(
    ("estimator", "gamma", "width"),
    [
        (PCSDA(random_state=0), None, 6),
        (PCSDA(negatives="marginal", calibrate=False, random_state=0), None, 130),
        (KernelPCSDA(random_state=0), [0.02, "scale"], 6),
        pytest.param(
            KernelPCSDA("linear", priors="equal", random_state=0), None, 6, marks=pytest.mark.more
        ),
    ],
    ids=["tall", "wide", "rbf", "linear kernel"],
)


@pytest.mark.in_turn
@CASES
@pytest.mark.more
def test_settings_score_like_separate_fits_on_the_banks_clusters(estimator, gamma, width):
    X, y = problem(width)
    search = PCSDACV(estimator, gamma=gamma, cv="leave-one-out", **GRID)
    bank = VerifierBank(search).fit(X, y)
    assert bank._labels_.sharing == "search"
    for label, found in bank.models_.items():
        assert found.cv_method_ == "leave-one-out"
        settings = found.cv_results_["params"]
        # One axis at K = 1, both at K = 3.
        assert len(settings) == 3 * 2 * (1 if gamma is None else len(gamma))
        for scores, setting in zip(found.cv_scores_, settings, strict=True):
            clusters = cluster_rows(search, X, setting["n_subclasses"], bank._seed)
            alone = clone(estimator).set_params(**setting)
            alone.fit(X, y == label, subclass_labels=clusters)
            prior = alone.class_prior_
            close(scores, alone.loo_scores_ + np.log(prior[1] / prior[0]), 1e-7)
        clusters = cluster_rows(search, X, found.best_params_["n_subclasses"], bank._seed)
        best = clone(estimator).set_params(**found.best_params_)
        best.fit(X, y == label, subclass_labels=clusters)
        close(found.log_likelihood_ratio(X), best.log_likelihood_ratio(X), 1e-7)
        close(found.transform(X), best.transform(X), 1e-7)


@pytest.mark.in_turn
@CASES
def test_a_bank_answers_as_its_searches_do(estimator, gamma, width):
    X, y = problem(width)
    bank = VerifierBank(PCSDACV(estimator, gamma=gamma, cv="leave-one-out", **GRID)).fit(X, y)
    ratios = bank.log_likelihood_ratio(X)
    for column, model in zip(ratios.T, bank.models_.values(), strict=True):
        close(column, model.log_likelihood_ratio(X), 1e-9)
    bank.enroll(X[:12] + 0.5, "cow")
    assert_array_equal(bank.classes_, ["ant", "bee", "cat", "cow", "dog"])
    close(bank.log_likelihood_ratio(X)[:, [0, 1, 2, 4]], ratios, 1e-12)


@pytest.mark.parametrize(
    ("estimator", "gamma"),
    [
        (PCSDA(random_state=0), None),
        pytest.param(KernelPCSDA(random_state=0), [0.02], marks=pytest.mark.more),
    ],
)
def test_small_subclasses_are_searched_in_folds_like_a_separate_search(estimator, gamma):
    X, y = problem()
    grid = {"n_subclasses": [1, 5], "n_components": [1, 2], "regularization": [0.1]}
    search = PCSDACV(estimator, gamma=gamma, **grid)
    bank = VerifierBank(search).fit(X, y)
    for label, found in bank.models_.items():
        alone = clone(search).fit(X, y == label)
        assert found.cv_method_ == alone.cv_method_ == "k-fold"
        assert found.best_params_ == alone.best_params_
        close(found.cv_scores_, alone.cv_scores_, 1e-7)
        close(found.log_likelihood_ratio(X), alone.log_likelihood_ratio(X), 1e-7)


@pytest.mark.more
def test_bandwidths_of_the_positives_are_searched_label_by_label():
    X, y = problem()
    for gamma in (None, ["positive", 0.02]):
        search = PCSDACV(KernelPCSDA(random_state=0), gamma=gamma, cv="leave-one-out", **GRID)
        assert sharing_of(search, X.shape) is None
    bank = VerifierBank(search)
    alone = clone(search).fit(X, y == "bee")
    found = bank.fit(X, y).models_["bee"]
    assert found.best_params_ == alone.best_params_
    close(found.log_likelihood_ratio(X), alone.log_likelihood_ratio(X), 1e-7)


@pytest.mark.in_turn(("estimator", "gamma", "width"))
@pytest.mark.each_value
@CASES
@pytest.mark.parametrize("cv", ["leave-one-out", pytest.param("auto", marks=pytest.mark.more)])
def test_given_subclasses_are_not_searched(estimator, gamma, width, cv):
    X, y = problem(width)
    given = np.arange(len(X)) % 7
    search = PCSDACV(estimator, gamma=gamma, cv=cv, **GRID)
    bank = VerifierBank(search).fit(X, y, subclass_labels=given)
    for label, found in bank.models_.items():
        alone = clone(search).fit(X, y == label, subclass_labels=given)
        assert found.cv_method_ == alone.cv_method_
        assert found.best_params_ == alone.best_params_
        close(found.cv_scores_, alone.cv_scores_, 1e-7)
        close(found.log_likelihood_ratio(X), alone.log_likelihood_ratio(X), 1e-7)
