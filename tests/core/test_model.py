"""From rows to a scored model: the paper's equations, the routes to a projection, the refusals."""

import re

import numpy as np
import pytest
from factories import (
    assert_same_blend,
    cloud_of,
    generalized_eigen,
    largest_angle,
    log_density,
    make_rows,
    paper_statistics,
    refit_without_each_row,
    with_heavy_tails,
)
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from pcsda import CSDA, PCSDA
from pcsda.core import model
from pcsda.core.density import Rule
from pcsda.core.scatter import GroupScatter

WEIGHTED = pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
GAUSSIANS = [Rule(negatives, None, "gaussian") for negatives in ("mixture", "marginal")]
RULES = pytest.mark.parametrize(
    "rule",
    [*GAUSSIANS, Rule("mixture"), Rule("blend", None, "gaussian"), Rule()],
    ids=lambda rule: f"{rule.negatives}-{rule.tails}",
)
TALL_AND_WIDE = pytest.mark.parametrize("width", [6, 70], ids=["D<N", "D>N"])


def fit(X, groups, weights=None, **changes):
    settings = {
        "solver": "cholesky",
        "regularization": 0.01,
        "n_components": None,
        "rule": Rule(),
        "leave_one_out": True,
    }
    return model.fit_pcsda(X, groups, weights=weights, **(settings | changes))


def fit_csda(X, groups, weights=None, **changes):
    settings = {
        "solver": "eigen",
        "regularization": 0.01,
        "n_components": None,
        "shrinkage": None,
        "rng": np.random.default_rng(0),
    }
    return model.fit_csda(X, groups, weights=weights, **(settings | changes))


def gaussian(z, covariance, mean=None):
    return multivariate_normal.logpdf(z, mean, covariance)


def assert_same_model(found, expected, rtol=1e-7):
    assert found.projection.rank == expected.projection.rank
    assert_allclose(found.projection.eigenvalues, expected.projection.eigenvalues, rtol=rtol)
    rows = expected.projection.components
    error = np.abs(found.projection.components - rows)
    assert np.all(error <= rtol * np.abs(rows).max(axis=1, keepdims=True)), error.max()
    assert_allclose(found.means, expected.means, rtol=rtol, atol=rtol)
    for name in ("positive", "negative", "centres"):
        a, b = getattr(found.density, name), getattr(expected.density, name)
        assert_allclose(a, b, rtol=rtol, atol=rtol * np.abs(b).max())
    assert_same_blend(found.density, expected.density, rtol)
    if expected.left_out is not None:
        assert_allclose(found.left_out, expected.left_out, rtol=rtol, atol=rtol)


def published_rule(X, groups, d, regularization, priors):
    """Algorithms 1 and 2 of the paper, dense: returns a function from rows to (z, g, distance)."""
    s = paper_statistics(X, groups)
    phi_p = s.S_p / s.n_p  # eq. (Phi_p)
    phi_o = s.S_n / s.n_k + s.S_w / s.n_n  # eq. (Phi_o)
    ridge = regularization * s.total_variance
    W = generalized_eigen(s.S_n, s.S_I + ridge * np.eye(X.shape[1]), d)[1].T
    tilde_p, tilde_o = W.T @ phi_p @ W, W.T @ phi_o @ W  # eq. (tilde_Phi_matrices)
    if priors == "equal":
        p_p = p_n = 0.5
    else:
        p_p, p_n = s.n_p / len(X), s.n_n / len(X)

    def score(rows):
        z = (rows - s.m) @ W
        inside = np.einsum("ij,ij->i", z, np.linalg.solve(tilde_p, z.T).T)
        outside = np.einsum("ij,ij->i", z, np.linalg.solve(tilde_o, z.T).T)
        g = np.log(p_p) - np.log(p_n)
        g += 0.5 * np.linalg.slogdet(tilde_o)[1] - 0.5 * np.linalg.slogdet(tilde_p)[1]
        return z, g - 0.5 * inside + 0.5 * outside, np.linalg.norm(z, axis=1)

    return score


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("priors", ["empirical", "equal"])
@pytest.mark.parametrize(
    ("width", "d", "regularization"),
    [(6, 4, 0.0), (6, 2, 0.01), (70, 4, 0.01), (300, 3, 0.1)],
    ids=["D<N no ridge", "D<N", "D>N", "D>>N"],
)
def test_published_rule_is_the_paper_written_out(seed, priors, width, d, regularization):
    X, groups, _ = make_rows([14, 9, 12, 7, 11], width, seed=seed, spread=1.0)
    # Fresh rows at all distances from the positive mean, so that both answers occur.
    rng = np.random.default_rng(seed + 10)
    reach = np.geomspace(1e-3, 3, 40)[:, None]
    fresh = X[groups == 0].mean(axis=0) + reach * rng.standard_normal((40, width))
    estimator = PCSDA.published(4, d, regularization=regularization, priors=priors)
    estimator.fit(X, groups == 0, subclass_labels=groups)
    rule = published_rule(X, groups, d, regularization, priors)
    for rows in (X, fresh):
        z, g, distance = rule(rows)
        assert_allclose(estimator.transform(rows), z, rtol=1e-8, atol=1e-8 * np.abs(z).max())
        assert_allclose(estimator.decision_function(rows), g, rtol=1e-8, atol=1e-8 * abs(g).max())
        # eq. (Lambda): the ratio of the posteriors
        log_proba = estimator.predict_log_proba(rows)
        assert_allclose(log_proba[:, 1] - log_proba[:, 0], g, rtol=1e-8, atol=1e-8 * abs(g).max())
        assert_array_equal(estimator.predict(rows), g >= 0)
        assert_allclose(estimator.score_samples(rows), -distance, rtol=1e-8)
        assert_array_equal(estimator.rank(rows), np.argsort(distance, kind="stable"))
        assert_array_equal(estimator.rank(rows, by="likelihood"), np.argsort(-g, kind="stable"))
    near = np.abs(g) < 30
    proba = estimator.predict_proba(fresh)[near]
    assert {*estimator.predict(fresh)} == {False, True}
    assert_allclose(proba[:, 1] / proba[:, 0], np.exp(g[near]), rtol=1e-6)


@TALL_AND_WIDE
@WEIGHTED
@pytest.mark.parametrize("solver", ["eigen", "spectral", "lsqr"])
def test_all_solvers_give_the_same_model(width, weighted, solver):
    X, groups, weights = make_rows([14, 9, 12, 7], width, weighted=weighted)
    expected = fit(X, groups, weights, leave_one_out=False)
    found = fit(X, groups, weights, solver=solver, leave_one_out=False)
    assert_same_model(found, expected)
    assert_allclose(found.score(X), expected.score(X), rtol=1e-6, atol=1e-6)


@TALL_AND_WIDE
@WEIGHTED
@RULES
@pytest.mark.parametrize("solver", ["eigen", "spectral"])
def test_dense_solvers_give_the_same_left_out_model(width, weighted, rule, solver):
    X, groups, weights = make_rows([14, 9, 1, 12, 7], width, weighted=weighted)
    X = with_heavy_tails(X, groups)
    expected = fit(X, groups, weights, rule=rule, n_components=3)
    found = fit(X, groups, weights, rule=rule, n_components=3, solver=solver)
    assert np.all(np.isfinite(expected.left_out))
    assert (expected.density.axis is not None) == (rule.negatives == "blend")
    assert_same_model(found, expected)


@pytest.mark.parametrize("form", ["csr", "csc"])
@WEIGHTED
def test_sparse_rows_give_the_model_of_dense_rows(form, weighted):
    X, groups, weights = make_rows([14, 9, 12, 7], 70, weighted=weighted)
    X[np.abs(X) < 1] = 0
    expected = fit(X, groups, weights, leave_one_out=False)
    given = sparse.csr_array(X).asformat(form)
    found = fit(given, groups, weights, solver="lsqr", leave_one_out=False)
    assert_same_model(found, expected, rtol=1e-6)
    assert_allclose(found.score(given), expected.score(X), rtol=1e-6, atol=1e-6)


def test_entries_of_a_sparse_array_that_are_stored_in_parts_count_once():
    X, groups, _ = make_rows([14, 9, 12, 7], 70)
    X[np.abs(X) < 1] = 0
    whole = sparse.csr_array(X)
    twice = sparse.csr_array(
        (
            np.repeat(whole.data / 2, 2),
            np.repeat(whole.indices, 2),
            2 * whole.indptr,
        ),
        shape=X.shape,
    )
    assert not twice.has_canonical_format
    settings = {"solver": "lsqr", "leave_one_out": False}
    found, expected = fit(twice, groups, **settings), fit(whole, groups, **settings)
    assert_same_model(found, expected, rtol=1e-6)


@TALL_AND_WIDE
def test_group_numbers_and_row_order_do_not_matter(width):
    X, groups, weights = make_rows([14, 9, 12, 7], width, weighted=True)
    X = with_heavy_tails(X, groups)
    order = np.random.default_rng(0).permutation(len(X))
    renamed = np.array([0, 3, 1, 2])[groups]
    expected = fit(X, groups, weights)
    found = fit(X[order], renamed[order], weights[order])
    assert_allclose(found.projection.components, expected.projection.components, atol=1e-9)
    assert_allclose(found.left_out, expected.left_out[order], rtol=1e-8, atol=1e-8)
    assert_allclose(found.score(X), expected.score(X), rtol=1e-8, atol=1e-8)


@RULES
def test_scores_do_not_change_under_invertible_affine_maps_without_ridge(rule):
    X, groups, weights = make_rows([24, 15, 18, 17], 5, weighted=True)
    X = with_heavy_tails(X, groups)
    rng = np.random.default_rng(0)
    moved = X @ (rng.standard_normal((5, 5)) + 2 * np.eye(5)) * 7 + rng.standard_normal(5) * 100
    first = fit(X, groups, weights, regularization=0.0, rule=rule)
    second = fit(moved, groups, weights, regularization=0.0, rule=rule)
    assert_allclose(second.score(moved), first.score(X), rtol=1e-7, atol=1e-7)
    assert_allclose(second.left_out, first.left_out, rtol=1e-7, atol=1e-7)


@TALL_AND_WIDE
@pytest.mark.parametrize("scale", [1e-30, 1e-3, 1e30])
def test_scores_do_not_depend_on_the_unit_of_measurement(width, scale):
    X, groups, _ = make_rows([14, 9, 12, 7], width)
    X = with_heavy_tails(X, groups)
    first, second = fit(X, groups), fit(X * scale, groups)
    assert_allclose(second.score(X * scale), first.score(X), rtol=1e-7, atol=1e-7)
    assert_allclose(second.left_out, first.left_out, rtol=1e-7, atol=1e-7)
    assert_same_blend(second.density, first.density)
    assert np.isfinite(first.density.tails[0]) or width > len(X)


@TALL_AND_WIDE
@pytest.mark.parametrize("solver", ["cholesky", "eigen", "spectral", "lsqr"])
def test_an_offset_of_1e8_costs_no_more_than_the_digits_of_the_rows(width, solver):
    X, groups, _ = make_rows([14, 9, 12, 7], width)
    far = X + 1e8
    first, second = (fit(rows, groups, solver=solver) for rows in (far - 1e8, far))
    scale = np.abs(first.projection.components).max()
    assert_allclose(second.projection.components, first.projection.components, atol=1e-6 * scale)
    assert_allclose(second.density.positive, first.density.positive, rtol=1e-5, atol=1e-6)
    assert np.all(np.diag(second.density.positive) > 0)
    if solver != "lsqr":
        assert_allclose(second.left_out, first.left_out, rtol=1e-5, atol=1e-5)


@TALL_AND_WIDE
@pytest.mark.parametrize("leave_one_out", [False, True])
@pytest.mark.parametrize("negatives", ["mixture", "marginal"])
def test_path_over_d_equals_a_fit_at_each_d(width, leave_one_out, negatives):
    X, groups, _ = make_rows([14, 9, 12, 7], width)
    settings = {"leave_one_out": leave_one_out, "rule": Rule(negatives, 1.5, "gaussian")}
    every = fit(X, groups, **settings)
    path = every.density.log_ratio_path(every.project(X))
    for d in (1, 2, 3):
        fitted = fit(X, groups, n_components=d, **settings)
        assert fitted.projection.components.shape == (d, width)
        assert_allclose(path[:, d - 1], fitted.score(X), rtol=1e-7, atol=1e-7)


@TALL_AND_WIDE
@RULES
def test_path_over_d_equals_the_margins(width, rule):
    X, groups, _ = make_rows([14, 9, 12, 7], width, seed=3)
    fitted = fit(X, groups, rule=rule)
    z = fitted.project(X)
    path = fitted.density.log_ratio_path(z) + (fitted.density.offset or 0.0)
    for d in (1, 2, 3):
        margin = fitted.density.margin(range(d))
        assert_allclose(path[:, d - 1], margin.log_ratio(z[:, :d]), rtol=1e-9, atol=1e-9)
    assert_allclose(path[:, -1], fitted.score(X), rtol=1e-9, atol=1e-9)


def brute_force_left_out(X, groups, weights, fitted, rule):
    """Left-out scores by refits of the statistics, then of the covariances (MATH 8 and 9).

    Of the full fit, tails, shares, Fisher's axis and the moments of negatives on it are held.
    """
    negatives, density = rule.negatives, fitted.density
    w = np.ones(len(X)) if weights is None else weights
    s = paper_statistics(X, groups, w)
    ridge = 0.01 * s.total_variance
    W = fitted.projection.components
    d = len(W)
    z, rho = refit_without_each_row(X, groups, w, ridge, W)
    alone = np.bincount(groups)[groups] == 1
    rows = {"positive": groups == 0, "negative": (groups > 0) & ~alone}
    sums = {name: (rho[r] * w[r, None]).T @ rho[r] for name, r in rows.items()}
    n = {name: w[r].sum() for name, r in rows.items()}
    target = (
        sums["positive"] + sums["negative"] + 1e-8 * W @ (s.S_I + ridge * np.eye(len(W.T))) @ W.T
    )
    target /= n["positive"] + n["negative"]
    nu = d / 2
    phi = {name: (sums[name] + nu * target) / (n[name] + nu) for name in rows}
    marginal = W @ s.S_n @ W.T / s.n_k + sums["negative"] / s.n_n
    centres = s.delta @ W.T
    scores = []
    for i, group in enumerate(groups):
        phi_p, phi_n = phi["positive"], marginal if negatives == "marginal" else phi["negative"]
        shares, own = s.counts[1:].copy(), centres.copy()
        if group == 0:
            phi_p = ((n["positive"] + nu) * phi_p - w[i] * np.outer(z[i], z[i])) / (
                n["positive"] + nu - w[i]
            )
        else:
            shares[group - 1] = 0 if alone[i] else shares[group - 1] - w[i]
            own[group - 1] = z[i] - rho[i]
            if negatives == "marginal":
                phi_n = phi_n - w[i] * np.outer(rho[i], rho[i]) / s.n_n
            elif not alone[i]:
                strength = n["negative"] + nu
                phi_n = (strength * phi_n - w[i] * np.outer(rho[i], rho[i])) / (strength - w[i])
        if negatives == "marginal":
            outside = gaussian(z[i], phi_n)
        else:
            parts = [log_density(z[i], c, phi_n, density.tails[0]) for c in own]
            outside = logsumexp(parts, b=shares / shares.sum())
        scores.append(log_density(z[i], np.zeros(d), phi_p, density.tails[0]) - outside)
    if density.axis is None:
        return np.array(scores)
    inside, outside, centre = cloud_of(density)
    u, strength = z @ density.axis, n["positive"] + nu
    left = (strength * inside - w * u**2) / (strength - w)
    variances = np.where(groups == 0, left, inside)
    of_cloud = [
        log_density(at, 0.0, variance, density.tails[1])
        - log_density(at, centre, outside, density.tails[1])
        for at, variance in zip(u, variances, strict=True)
    ]
    both = density.shares[0] * np.array(scores) + density.shares[1] * np.array(of_cloud)
    return both + density.offset


@TALL_AND_WIDE
@WEIGHTED
@RULES
def test_left_out_scores_equal_refits_from_the_rows_on(width, weighted, rule):
    X, groups, weights = make_rows([14, 9, 1, 12, 7], width, weighted=weighted)
    X = with_heavy_tails(X, np.minimum(groups, 1))
    fitted = fit(X, groups, weights, rule=rule, n_components=3)
    assert np.all(np.isfinite(fitted.density.tails)) == (rule == Rule())
    expected = brute_force_left_out(X, groups, weights, fitted, rule)
    assert_allclose(fitted.left_out, expected, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("sizes", [(1, 9, 8), (9, 1)], ids=["one positive", "one negative"])
@TALL_AND_WIDE
def test_a_class_of_one_row_has_a_model_but_no_left_out_scores(sizes, width):
    X, groups, _ = make_rows(sizes, width)
    fitted = fit(X, groups)
    assert fitted.left_out is None
    assert np.all(np.isfinite(fitted.score(X)))
    assert fitted.density.tails == (np.inf, np.inf)
    blend = fitted.density.axis is not None
    assert blend == (len(sizes) > 2)  # one subclass is a cloud already
    assert fitted.density.shares == ((0.5, 0.5) if blend else (1, 0))


@TALL_AND_WIDE
def test_one_positive_and_lone_negatives_have_a_model(width):
    X, groups, _ = make_rows([1, 1, 1], width)
    assert np.all(np.isfinite(fit(X, groups).score(X)))


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e6])
@TALL_AND_WIDE
def test_of_one_row_a_class_the_ridge_alone_tells_the_spread(width, scale):
    """Both variances are eps = r d^2 / 4 for rows d apart, so the log ratio is d^2 / (2 eps)."""
    X, groups, _ = make_rows([1, 1], width)
    fitted = fit(scale * X, groups, regularization=0.25)
    assert_allclose(fitted.score(scale * X), [8.0, -8.0])


def test_statistics_alone_give_the_resubstituted_model():
    X, groups, weights = make_rows([14, 9, 12, 7], 6, weighted=True)
    expected = fit(X, groups, weights, leave_one_out=False)
    found = model.fit_pcsda_scatter(
        GroupScatter.from_samples(X, groups, weights=weights),
        solver="cholesky",
        regularization=0.01,
        n_components=None,
        rule=Rule(),
    )
    assert_same_model(found, expected)


@TALL_AND_WIDE
@RULES
def test_integer_weights_equal_repeated_rows_with_resubstitution(width, rule):
    X, groups, _ = make_rows([14, 9, 12, 7], width)
    weights = np.random.default_rng(2).integers(1, 4, len(X))
    settings = {"leave_one_out": False, "rule": rule}
    weighted = fit(X, groups, weights.astype(float), **settings)
    repeated = fit(np.repeat(X, weights, axis=0), np.repeat(groups, weights), **settings)
    assert_same_model(weighted, repeated)


@TALL_AND_WIDE
@pytest.mark.parametrize("solver", ["cholesky", "eigen"])
def test_resampled_negatives_have_equal_subclasses_of_the_right_moments(width, solver):
    X, groups, _ = make_rows([14, 40, 5, 12], width)
    fitted = fit(X, groups, solver=solver, resample=np.random.default_rng(0))
    assert_array_equal(fitted.counts, [14, 19, 19, 19])
    assert fitted.left_out is None
    again = fit(X, groups, solver=solver, resample=np.random.default_rng(0))
    assert_array_equal(fitted.score(X), again.score(X))


def test_many_draws_return_to_the_subclasses_they_came_from():
    X, groups, weights = make_rows([5, 300, 100], 3, weighted=True)
    scatter = GroupScatter.from_samples(X, groups, weights=weights)
    heavy = GroupScatter.from_samples(X, groups, weights=weights * 400)
    drawn = model.resampled(X, groups, heavy, weights * 400, np.random.default_rng(0))
    assert_allclose(drawn.means[0], scatter.means[0])
    assert_allclose(drawn.positive, heavy.positive)
    assert_allclose(drawn.means, scatter.means, atol=0.05)
    one = [outer_of(X, groups, weights, scatter.means, k) for k in (1, 2)]
    expected = sum(drawn.counts[k] * one[k - 1] for k in (1, 2)) / drawn.n_negative
    assert_allclose(drawn.within / drawn.n_negative, expected, atol=0.05)


def outer_of(X, groups, weights, means, group):
    rows = X[groups == group] - means[group]
    return (rows * weights[groups == group, None]).T @ rows / weights[groups == group].sum()


@TALL_AND_WIDE
@WEIGHTED
@pytest.mark.parametrize("solver", ["eigen", "lowrank"])
def test_csda_is_the_paper_written_out(width, weighted, solver):
    X, groups, weights = make_rows([20, 30], width, weighted=weighted)
    s = paper_statistics(X, groups, weights)
    ridge = 0.01 * s.total_variance
    values, W = generalized_eigen(s.out_of_class, s.S_p + ridge * np.eye(width), 4)
    fitted = fit_csda(X, groups, weights, solver=solver, n_components=4, shrinkage=0.0)
    assert_allclose(fitted.projection.eigenvalues, values, rtol=1e-7)
    assert_allclose(fitted.projection.components, W, atol=1e-7 * np.abs(W).max())
    z = (X - s.m) @ W.T
    phi_p, phi_o = W @ s.S_p @ W.T / s.n_p, W @ s.out_of_class @ W.T / s.n_n
    expected = gaussian(z, phi_p) - gaussian(z, phi_o)
    assert_allclose(fitted.score(X), expected, rtol=1e-7, atol=1e-7)


@TALL_AND_WIDE
def test_csda_equals_pcsda_with_one_subclass_for_each_sample(width):
    X, groups, _ = make_rows([20, 25], width)
    settings = {"n_components": 4, "regularization": 0.02}
    csda = CSDA.published(**settings).fit(X, groups == 0)
    pcsda = PCSDA.published(subclasses="samples", **settings).fit(X, groups == 0)
    assert_allclose(pcsda.components_, csda.components_, atol=1e-7 * np.abs(csda.components_).max())
    assert_allclose(pcsda.eigenvalues_, csda.eigenvalues_, rtol=1e-8)
    assert_allclose(pcsda.density_.negative, csda.density_.negative, rtol=1e-7, atol=1e-9)
    assert_allclose(pcsda.decision_function(X), csda.decision_function(X), rtol=1e-7, atol=1e-7)
    trials = np.arange(len(X)) % 7
    assert_allclose(
        pcsda.log_likelihood_ratio(X, trials), csda.log_likelihood_ratio(X, trials), rtol=1e-6
    )


@TALL_AND_WIDE
@pytest.mark.parametrize("solver", ["labels", "trace_ratio"])
def test_other_csda_solvers_become_classifiers(width, solver):
    X, groups, _ = make_rows([20, 30], width)
    fitted = fit_csda(X, groups, solver=solver, n_components=3)
    assert fitted.projection.components.shape == (3, width)
    assert np.mean((fitted.score(X) > 0) == (groups == 0)) > 0.8
    means = np.array([X[groups == g].mean(axis=0) for g in (0, 1)])
    assert_allclose(fitted.means, means, atol=1e-12)


def test_csda_from_statistics_equals_csda_from_rows():
    X, groups, weights = make_rows([20, 30], 6, weighted=True)
    scatter = GroupScatter.from_samples(X, groups, weights=weights)
    settings = {"regularization": 0.01, "n_components": 3, "shrinkage": None}
    found = model.fit_csda_scatter(scatter, solver="eigen", **settings)
    assert_same_model(found, fit_csda(X, groups, weights, n_components=3))
    with pytest.raises(ValueError, match="solver='labels' needs the samples"):
        model.fit_csda_scatter(scatter, solver="labels", **settings)


@pytest.mark.parametrize(
    ("sizes", "width", "bound"), [([9, 3], 6, 3), ([9, 3], 40, 3), ([9, 20], 6, 6)]
)
def test_csda_has_at_most_as_many_components_as_negatives_and_features(sizes, width, bound):
    X, groups, _ = make_rows(sizes, width)
    fitted = fit_csda(X, groups)
    assert fitted.projection.rank == len(fitted.projection.components) == bound


@TALL_AND_WIDE
def test_wide_components_stay_in_the_span_of_the_rows(width):
    X, groups, _ = make_rows([14, 9, 12, 7], width)
    fitted = fit(X, groups, solver="eigen")
    if width > len(X):
        centred = X - X.mean(axis=0)
        both = np.vstack([np.linalg.svd(centred, full_matrices=False)[2][:-1]])
        inside = fitted.projection.components @ both.T @ both
        assert_allclose(inside, fitted.projection.components, atol=1e-9)
    angle = largest_angle(fitted.projection.components, fit(X, groups).projection.components)
    assert angle < 1e-7


@TALL_AND_WIDE
@pytest.mark.parametrize("form", ["float32", "fortran", "read-only", "strided"])
def test_rows_are_read_in_any_form_and_never_written(width, form):
    X, groups, _ = make_rows([14, 9, 12, 7], width)
    X = X.astype(np.float32).astype(np.float64)
    given = {
        "float32": X.astype(np.float32),
        "fortran": np.asfortranarray(X),
        "read-only": X.copy(),
        "strided": np.repeat(X, 2, axis=0)[::2],
    }[form]
    given.flags.writeable = form != "read-only"
    before = given.copy()
    assert_same_model(fit(given, groups), fit(X, groups), rtol=1e-6)
    assert_array_equal(given, before)


@pytest.mark.parametrize("solver", ["cholesky", "eigen"])
def test_a_singular_scatter_names_the_ridge(solver):
    X, groups, _ = make_rows([5, 4, 4], 30)
    message = (
        "the within-class scatter of .* dimensions is singular at regularization=0; raise "
        "regularization, to 0.1 for instance"
    )
    with pytest.raises(ValueError, match=message):
        fit(X, groups, solver=solver, regularization=0.0)


def test_lsqr_without_ridge_needs_rows_that_differ_within_a_group():
    X, groups, _ = make_rows([1, 1, 1], 5)
    with pytest.raises(ValueError, match="is singular at regularization=0; raise regularization"):
        fit(X, groups, solver="lsqr", regularization=0.0)


@pytest.mark.parametrize("solver", ["eigen", "lowrank", "labels", "trace_ratio"])
@pytest.mark.parametrize("d", [1, 2])
def test_csda_names_the_ridge_where_the_positives_do_not_spread(solver, d):
    X, groups, _ = make_rows([3, 20], 6)
    X[groups == 0] = X[groups == 0][0]  # their mean, and so their scatter, is rounded
    assert GroupScatter.from_samples(X, groups).positive.any()
    with pytest.raises(ValueError, match="is singular at regularization=0; raise regularization"):
        fit_csda(X, groups, solver=solver, regularization=0.0, n_components=d)


@pytest.mark.parametrize("width", [2, 9])
@pytest.mark.parametrize("solver", ["cholesky", "eigen", "spectral", "lsqr"])
def test_rows_without_spread_are_refused(width, solver):
    message = "all rows of X are equal (total variance 0); at least two different rows are needed"
    with pytest.raises(ValueError, match=re.escape(message)):
        fit(np.full((6, width), 0.5), np.array([0, 0, 0, 1, 1, 2]), solver=solver)


@TALL_AND_WIDE
def test_rows_whose_squares_overflow_are_refused(width):
    X, groups, _ = make_rows([14, 9, 12, 7], width)
    message = "the squares of X overflow, its spread is beyond 1e150; divide X by its scale first"
    with np.errstate(all="ignore"), pytest.raises(ValueError, match=message):
        fit(X * 1e160, groups)


@TALL_AND_WIDE
def test_rows_whose_squares_vanish_are_refused(width):
    X, groups, _ = make_rows([14, 9, 12, 7], width)
    message = r"the squares of X vanish, its spread is .*e-15\d and must be at least 1e-140"
    with pytest.raises(ValueError, match=message):
        fit(X * 1e-152, groups)


@TALL_AND_WIDE
@pytest.mark.parametrize("solver", ["cholesky", "eigen", "spectral", "lsqr"])
@pytest.mark.parametrize("regularization", [0.01, 0.0])
def test_subclass_means_at_the_positive_mean_are_refused(width, solver, regularization):
    half, _, _ = make_rows([4, 6], width)
    X = np.vstack([half, -half]) + 0.3  # both classes are symmetric about one point
    groups = np.tile([0, 0, 0, 0, 1, 1, 1, 1, 1, 1], 2)
    message = (
        "every subclass mean equals the positive mean, so no direction tells them apart; raise "
        "n_subclasses or give subclass_labels"
    )
    with pytest.raises(ValueError, match=message):
        fit(X, groups, solver=solver, regularization=regularization)


def test_a_singular_covariance_names_the_remedy():
    X, groups, _ = make_rows([2, 9, 8, 7], 6)
    message = (
        "the covariance of the positive class is singular in the subspace: 2 positives and 24 "
        "negatives do not fill n_components=3 axes; lower n_components or set shrinkage='auto'"
    )
    with pytest.raises(ValueError, match=message):
        fit(X, groups, leave_one_out=False, rule=Rule(shrinkage=0.0))
