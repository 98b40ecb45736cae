"""CSDA against the paper's formulas, against PCSDA with singleton subclasses, and its refusals."""

import numpy as np
import pytest
from factor_factories import TALL_AND_WIDE, WEIGHTED, assert_same_subspace, close
from factories import generalized_eigen, log_density, make_rows, paper_statistics
from numpy.testing import assert_allclose

from pcsda import CSDA, PCSDA
from pcsda.core.csda import Criterion, CSDAFactor, csda_subspace
from pcsda.core.density import Marginal
from pcsda.core.fit import Rule, fit
from pcsda.core.scatter import GroupScatter

SOLVERS = ("eigen", "labels", "lowrank", "raw_labels", "spectral", "trace_ratio")
EVERY = pytest.mark.parametrize("solver", SOLVERS)


def factor_of(X, weights=None, *, solver="eigen", regularization=0.01):
    return CSDAFactor(X, Criterion(solver, regularization), weights)


def fit_csda(X, groups, weights=None, n_components=None, shrinkage=None, **changes):
    rule = Rule("marginal", shrinkage, leave_one_out=False, calibrate=False)
    return fit(factor_of(X, weights, **changes), groups, rule, n_components)


@TALL_AND_WIDE
@WEIGHTED
@pytest.mark.parametrize("solver", ["eigen", "lowrank"])
def test_csda_equals_the_papers_formulas(width, weighted, solver):
    X, groups, weights = make_rows([20, 30], width, weighted=weighted)
    s = paper_statistics(X, groups, weights)
    ridge = 0.01 * s.total_variance
    values, W = generalized_eigen(s.out_of_class, s.S_p + ridge * np.eye(width), 4)
    fitted = fit_csda(X, groups, weights, 4, 0.0, solver=solver)
    found = fitted.subspace
    assert_allclose(found.eigenvalues, values, rtol=1e-7)
    close(found.coefficients.T, W, 1e-7)
    close(found.means, s.means, 1e-12)
    close(found.ridged, np.eye(4), 1e-7)  # the denominator has no part of the negatives
    assert (found.single_negatives, found.left) == (True, None)
    z = (X - s.m) @ W.T
    phi_p, phi_o = W @ s.S_p @ W.T / s.n_p, W @ s.out_of_class @ W.T / s.n_n
    expected = log_density(z, np.zeros(4), phi_p) - log_density(z, np.zeros(4), phi_o)
    assert isinstance(fitted.density, Marginal)
    assert fitted.density.within is None
    assert_allclose(fitted.score(X), expected, rtol=1e-7, atol=1e-7)


def test_shrinkage_goes_toward_the_ridged_scatter_of_the_positives():
    X, groups, _ = make_rows([6, 30], 9)
    fitted = fit_csda(X, groups, shrinkage=2.0, n_components=4)
    found = fitted.subspace
    expected = (found.projected.positive + 2.0 * found.ridged / 6) / 8
    assert_allclose(fitted.density.positive, expected, rtol=1e-10)


@TALL_AND_WIDE
def test_csda_equals_pcsda_with_one_subclass_for_each_sample(width):
    X, groups, _ = make_rows([20, 25], width)
    settings = {"n_components": 4, "regularization": 0.02}
    csda = CSDA.published(**settings).fit(X, groups == 0)
    pcsda = PCSDA.published(subclasses="samples", **settings).fit(X, groups == 0)
    close(pcsda.components_, csda.components_, 1e-7)
    assert_allclose(pcsda.eigenvalues_, csda.eigenvalues_, rtol=1e-8)
    close(pcsda.density_.base.negative, csda.density_.base.negative, 1e-7)
    assert_allclose(pcsda.decision_function(X), csda.decision_function(X), rtol=1e-7, atol=1e-7)
    trials = np.arange(len(X)) % 7
    assert_allclose(
        pcsda.log_likelihood_ratio(X, trials), csda.log_likelihood_ratio(X, trials), rtol=1e-6
    )


@TALL_AND_WIDE
@pytest.mark.parametrize("solver", ["labels", "raw_labels", "spectral", "trace_ratio"])
def test_other_solvers_become_classifiers(width, solver):
    X, groups, _ = make_rows([20, 30], width)
    fitted = fit_csda(X, groups, n_components=3, solver=solver)
    assert fitted.subspace.coefficients.shape == (width, 3)
    assert np.mean((fitted.score(X) > 0) == (groups == 0)) > 0.8
    means = np.array([X[groups == g].mean(axis=0) for g in (0, 1)])
    assert_allclose(fitted.subspace.means, means, atol=1e-12)


@pytest.mark.parametrize("solver", ["eigen", "lowrank", "trace_ratio"])
def test_statistics_alone_give_the_same_subspace(solver):
    X, groups, weights = make_rows([20, 30], 6, weighted=True)
    scatter = GroupScatter.from_samples(X, groups, weights=weights)
    expected = factor_of(X, weights, solver=solver).solve(groups, 3)
    assert_same_subspace(csda_subspace(scatter, Criterion(solver, 0.01), 3), expected)


def test_the_target_solver_needs_rows():
    X, groups, _ = make_rows([20, 30], 6)
    with pytest.raises(ValueError, match="solver='labels' needs the samples; use 'eigen' or"):
        csda_subspace(GroupScatter.from_samples(X, groups), Criterion("labels", 0.01), 3)


@EVERY
@pytest.mark.parametrize(
    ("sizes", "width", "bound"), [([9, 3], 6, 3), ([9, 3], 40, 3), ([9, 20], 6, 6)]
)
def test_axes_never_outnumber_negatives_or_features(solver, sizes, width, bound):
    X, groups, _ = make_rows(sizes, width)
    for wanted in (None, 50):
        found = factor_of(X, solver=solver).solve(groups, wanted)
        assert found.rank == found.coefficients.shape[1] == bound


@EVERY
@pytest.mark.parametrize("d", [1, 2])
def test_positives_without_spread_need_a_ridge(solver, d):
    X, groups, _ = make_rows([3, 20], 6)
    X[groups == 0] = X[groups == 0][0]  # their mean, and so their scatter, is rounded
    assert GroupScatter.from_samples(X, groups).positive.any()
    with pytest.raises(ValueError, match="is singular at regularization=0; raise regularization"):
        factor_of(X, solver=solver, regularization=0.0).solve(groups, d)
