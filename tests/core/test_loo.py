"""Closed-form leave-one-out against refits of everything it claims to leave out."""

from dataclasses import replace

import numpy as np
import pytest
from factories import cloud_of, log_density, make_rows, refit_without_each_row
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize, minimize_scalar
from scipy.special import logsumexp
from threadpoolctl import threadpool_limits

from pcsda.core import dual, linalg, loo, solvers
from pcsda.core.density import HEAVIEST, LIGHTEST, Moments, Rule, fit_density
from pcsda.core.scatter import GroupScatter

WEIGHTED = pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
NEGATIVES = pytest.mark.parametrize("negatives", ["blend", "mixture", "marginal"])
TAILS = pytest.mark.parametrize("tails", [(np.inf, np.inf), (3.0, 8.0)], ids=["gaussian", "heavy"])
# Groups 2 and 4 have a single member.
SIZES = [9, 7, 1, 6, 1, 5]


def primal(X, groups, weights, ridge, solver=solvers.cholesky, d=None):
    scatter = GroupScatter.from_samples(X, groups, weights=weights)
    projection = solver(scatter, ridge)
    projection = projection.leading(d or projection.rank)
    left = loo.primal(X, groups, scatter, projection, ridge, weights)
    return projection, scatter, left


def through_dual(X, groups, weights, ridge):
    root = np.ones(len(X)) if weights is None else np.sqrt(weights)
    factor = linalg.cholesky(root[:, None] * (X @ X.T) * root, ridge)
    counts = np.bincount(groups, weights).astype(float)
    solution = dual.solve(factor, groups, counts, ridge, weights)
    _, rotation = dual.rotation(solution.gram, len(X))
    diagonal = dual.inverse_diagonal(factor)
    leverage, gap = dual.leverages(solution, diagonal, groups, counts, ridge, weights)
    alone = loo.alone_rows(groups, counts, weights)
    left = loo.left_out(
        solution.residuals, leverage, gap, solution.gram, rotation, groups, counts, alone, weights
    )
    components = rotation.T @ solution.alpha.T @ (root[:, None] * X)
    return components, loo.LeftOut(*left, alone)


def assert_left_out(left, expected, rtol=1e-8):
    for found, wanted in zip((left.coordinates, left.residuals), expected, strict=True):
        assert_allclose(found, wanted, rtol=rtol, atol=rtol * np.abs(wanted).max())


@WEIGHTED
@pytest.mark.parametrize("width", [4, 9, 40], ids=["D<K", "D<N", "D>N"])
@pytest.mark.parametrize("ridge", [0.5, 20.0])
def test_left_out_rows_equal_refits_of_the_statistics(weighted, width, ridge):
    X, groups, weights = make_rows(SIZES, width, weighted=weighted)
    projection, _, left = primal(X, groups, weights, ridge)
    expected = refit_without_each_row(X, groups, weights, ridge, projection.components)
    assert_left_out(left, expected)
    assert_array_equal(left.alone, np.isin(groups, [2, 4]))


@WEIGHTED
@pytest.mark.parametrize("width", [9, 40], ids=["D<N", "D>N"])
@pytest.mark.parametrize("ridge", [0.5, 20.0])
def test_left_out_rows_of_the_dual_equal_refits_of_the_statistics(weighted, width, ridge):
    X, groups, weights = make_rows(SIZES, width, weighted=weighted)
    components, left = through_dual(X, groups, weights, ridge)
    assert_left_out(left, refit_without_each_row(X, groups, weights, ridge, components))


@pytest.mark.parametrize("solver", [solvers.eigen, solvers.spectral])
def test_left_out_rows_do_not_depend_on_the_exact_solver(solver):
    X, groups, weights = make_rows(SIZES, 9, weighted=True)
    _, _, expected = primal(X, groups, weights, 0.5)
    _, _, left = primal(X, groups, weights, 0.5, solver)
    assert_left_out(left, (expected.coordinates, expected.residuals))


def test_fewer_components_are_the_leading_columns():
    X, groups, _ = make_rows(SIZES, 9)
    _, _, every = primal(X, groups, None, 0.5)
    _, _, two = primal(X, groups, None, 0.5, d=2)
    assert_allclose(two.coordinates, every.coordinates[:, :2], rtol=1e-10)
    assert_allclose(two.residuals, every.residuals[:, :2], rtol=1e-10)


def test_left_out_rows_equal_refits_where_subclass_means_coincide():
    X, groups, _ = make_rows([9, 7, 6, 8], 5)
    means = np.array([X[groups == g].mean(axis=0) for g in range(4)])
    X += (means[1] - means[3]) * (groups == 3)[:, None]
    projection, _, left = primal(X, groups, None, 0.5)
    assert projection.rank == 2
    assert_left_out(left, refit_without_each_row(X, groups, None, 0.5, projection.components))


@WEIGHTED
def test_left_out_rows_equal_refits_when_every_negative_is_alone(weighted):
    X, groups, weights = make_rows([9, 1, 1, 1], 5, weighted=weighted)
    projection, _, left = primal(X, groups, weights, 0.5)
    assert_left_out(left, refit_without_each_row(X, groups, weights, 0.5, projection.components))


@pytest.mark.parametrize("tiny", [1e-14, 1e-20, 1e-300])
@pytest.mark.parametrize("width", [5, 40], ids=["D<N", "D>N"])
def test_rows_beside_which_nothing_weighs_count_as_alone(tiny, width):
    X, groups, _ = make_rows([9, 7, 6], width)
    heavy = np.flatnonzero(groups == 2)[0]
    weights = np.where(groups == 2, tiny, 1.0)
    weights[heavy] = 1.0
    counts = np.bincount(groups, weights)
    assert_array_equal(np.flatnonzero(loo.alone_rows(groups, counts, weights)), heavy)
    kept = (groups < 2) | (weights == 1)
    for find in (lambda *rows: primal(*rows)[2], lambda *rows: through_dual(*rows)[1]):
        left = find(X, groups, weights, 0.5)
        without = find(X[kept], groups[kept], None, 0.5)
        assert np.all(np.isfinite(left.coordinates))
        signs = np.sign(np.sum(left.coordinates[kept] * without.coordinates, axis=0))
        assert_allclose(left.coordinates[kept], signs * without.coordinates, atol=1e-7)


@pytest.mark.parametrize("block", [1, 4, 1000])
@pytest.mark.parametrize("threads", [1, 2])
def test_blocks_and_threads_do_not_matter(monkeypatch, block, threads):
    X, groups, weights = make_rows([90, 50, 1, 60, *[2] * 40], 5, weighted=True)
    _, scatter, expected = primal(X, groups, weights, 0.5)
    projection = solvers.cholesky(scatter, 0.5)
    monkeypatch.setattr(linalg, "block_rows", lambda width: block)
    with threadpool_limits(threads, user_api="blas"):
        left = loo.primal(X, groups, scatter, projection, 0.5, weights)
    assert_left_out(left, (expected.coordinates, expected.residuals), rtol=1e-12)


@pytest.mark.parametrize("form", ["float32", "fortran", "read-only"])
def test_rows_are_read_in_any_form_and_never_written(form):
    X, groups, _ = make_rows(SIZES, 6)
    X = X.astype(np.float32).astype(np.float64)
    _, scatter, expected = primal(X, groups, None, 0.5)
    given = X.astype(np.float32) if form == "float32" else np.array(X, order="F")
    given.flags.writeable = form != "read-only"
    before = given.copy()
    projection = solvers.cholesky(scatter, 0.5)
    left = loo.primal(given, groups, scatter, projection, 0.5)
    assert_left_out(left, (expected.coordinates, expected.residuals), rtol=1e-12)
    assert_array_equal(given, before)


def test_left_out_scatter_sums_the_residuals_of_rows_that_are_not_alone():
    X, groups, weights = make_rows(SIZES, 9, weighted=True)
    projection, scatter, left = primal(X, groups, weights, 0.5)
    projected = scatter.project(projection.components)
    seen, n_positive, n_within = left.scatter(projected, groups, weights)
    negative = np.isin(groups, [1, 3, 5])
    weighted = left.residuals * weights[:, None]
    assert_allclose(seen.positive, left.coordinates[groups == 0].T @ weighted[groups == 0])
    assert_allclose(seen.within, left.residuals[negative].T @ weighted[negative])
    assert_allclose(n_positive, weights[groups == 0].sum())
    assert_allclose(n_within, weights[negative].sum())
    assert_array_equal(seen.means, projected.means)
    assert_array_equal(seen.counts, projected.counts)


@WEIGHTED
@NEGATIVES
def test_the_order_of_the_rows_does_not_matter(weighted, negatives):
    X, groups, weights = make_rows([14, 9, 1, 8], 5, weighted=weighted)
    shuffled = np.random.default_rng(0).permutation(len(groups))
    found = []
    for order in (np.arange(len(groups)), shuffled):
        mine = None if weights is None else weights[order]
        projection, scatter, left = primal(X[order], groups[order], mine, 0.5)
        projected = scatter.project(projection.components)
        seen, *numbers = left.scatter(projected, groups[order], mine)
        moments = Moments(seen, seen.intra, *numbers)
        density = fit_density(moments, negatives=negatives, shrinkage=1.0)
        rest = (left, groups[order], scatter.counts, mine)
        whole, scores = loo.complete(density, *rest, Rule())
        found.append((seen, numbers, loo.scores(density, *rest), whole, scores))
    (seen, numbers, plain, whole, scores), (others, counted, moved, density, final) = found
    assert_allclose(others.intra, seen.intra, rtol=1e-10)
    assert_allclose(others.within, seen.within, rtol=1e-10)
    assert_allclose(counted, numbers)
    assert_allclose(moved, plain[shuffled], rtol=1e-10)
    assert_allclose(final, scores[shuffled], rtol=1e-8)
    assert_allclose([*density.tails, *density.shares], [*whole.tails, *whole.shares], rtol=1e-8)


def brute_force_cloud(density, left, groups, counts, weights):
    """Every row scored on Fisher's axis; positives are left out of their variance."""
    w = np.ones(len(groups)) if weights is None else weights
    variance, outside, centre = cloud_of(density)
    strength, tail, scores = density.positive_strength, density.tails[1], []
    for u, group, weight in zip(left.coordinates @ density.axis, groups, w, strict=True):
        inside = variance
        if group == 0:
            inside = (strength * variance - weight * u**2) / (strength - weight)
        scores.append(log_density(u, 0.0, inside, tail) - log_density(u, centre, outside, tail))
    return np.array(scores)


def brute_force_scores(density, left, groups, counts, weights):
    """Every row scored by densities rebuilt without it, one at a time."""
    scores = brute_force_mixture(density, left, groups, counts, weights)
    if density.axis is None:
        return scores
    cloud = brute_force_cloud(density, left, groups, counts, weights)
    both = density.shares[0] * scores + density.shares[1] * cloud
    return both + (density.offset or 0.0)


def brute_force_mixture(density, left, groups, counts, weights):
    w = np.ones(len(groups)) if weights is None else weights
    scores = []
    for z, rho, group, alone, weight in zip(
        left.coordinates, left.residuals, groups, left.alone, w, strict=True
    ):
        positive, negative = density.positive, density.negative
        centres, shares = density.centres.copy(), np.exp(density.log_weights)
        if group == 0 and not alone:
            strength = density.positive_strength
            positive = (strength * positive - weight * np.outer(z, z)) / (strength - weight)
        if group > 0 and density.is_mixture:
            strength = density.negative_strength
            if not alone:
                removed = strength * negative - weight * np.outer(rho, rho)
                negative = removed / (strength - weight)
            centres[group - 1] = z - rho
            remaining = counts[1:].copy()
            remaining[group - 1] = 0 if alone else remaining[group - 1] - weight
            shares = remaining / (counts[1:].sum() - weight)
        elif group > 0:
            negative = negative - weight * np.outer(rho, rho) / density.negative_strength
        inside = log_density(z, np.zeros(len(z)), positive, density.tails[0])
        outside = [
            np.log(share) + log_density(z, centre, negative, density.tails[0])
            for share, centre in zip(shares, centres, strict=True)
            if share > 0
        ]
        scores.append(inside - logsumexp(outside))
    return np.array(scores)


@WEIGHTED
@NEGATIVES
@TAILS
@pytest.mark.parametrize("shrinkage", [0.0, 1.7])
def test_left_out_scores_equal_densities_rebuilt_without_the_row(
    weighted, negatives, tails, shrinkage
):
    X, groups, weights = make_rows([14, 9, 1, 8, 7, 10], 5, weighted=weighted)
    projection, scatter, left = primal(X, groups, weights, 0.5, d=3)
    seen, n_positive, n_within = left.scatter(
        scatter.project(projection.components), groups, weights
    )
    target = seen.intra / (n_positive + n_within)
    moments = Moments(seen, target, n_positive, n_within)
    density = fit_density(moments, negatives=negatives, shrinkage=shrinkage)
    if negatives != "marginal":
        density = replace(density, tails=tails)
    if negatives == "blend":
        density = replace(density, shares=(0.8, 0.3))
    scores = loo.scores(density, left, groups, scatter.counts, weights)
    expected = brute_force_scores(density, left, groups, scatter.counts, weights)
    assert_allclose(scores, expected, rtol=1e-9, atol=1e-9)
    resubstituted = density.log_ratio(left.coordinates)
    assert np.all(scores[groups == 0] < resubstituted[groups == 0])  # leaving out costs


def left_out_blend(weighted=False, seed=0):
    """Heavy rows, two of them alone, with the density that their left-out scatter gives."""
    X, groups, weights = make_rows([30, 19, 1, 28, 17, 1, 25], 5, weighted=weighted, seed=seed)
    X *= np.random.default_rng(seed).chisquare(4, (len(X), 1)) ** -0.5
    projection, scatter, left = primal(X, groups, weights, 0.5, d=3)
    projected = scatter.project(projection.components)
    seen, n_positive, n_within = left.scatter(projected, groups, weights)
    moments = Moments(seen, seen.intra / (n_positive + n_within), n_positive, n_within)
    density = fit_density(moments, negatives="blend", shrinkage=1.5)
    return density, left, groups, scatter.counts, weights


def left_out_densities(density, left, groups, counts, weights):
    """Own log densities of the negatives that are not alone, in both views, given the tails.

    Each row is left out of the covariance of the mixture.
    """
    w = np.ones(len(groups)) if weights is None else weights
    _, variance, centre = cloud_of(density)
    rows = np.flatnonzero((groups > 0) & ~left.alone)

    def total(tails):
        found = np.zeros(2)
        for i in rows:
            rho, off = left.residuals[i], left.coordinates[i] @ density.axis - centre
            strength = density.negative_strength
            negative = strength * density.negative - w[i] * np.outer(rho, rho)
            found[0] += w[i] * log_density(rho, 0 * rho, negative / (strength - w[i]), tails[0])
            found[1] += w[i] * log_density(off, 0.0, variance, tails[1])
        return found

    return total


@WEIGHTED
def test_tails_are_those_of_the_left_out_negatives(weighted):
    case = left_out_blend(weighted)
    density, _ = loo.complete(*case, Rule())
    total = left_out_densities(*case)
    for view in (0, 1):

        def loss(inverse, view=view):
            return -total([1 / inverse, 1 / inverse])[view]

        bounds = 1 / LIGHTEST, 1 / HEAVIEST
        best = minimize_scalar(loss, bounds=bounds, options={"xatol": 1e-9})
        assert HEAVIEST < density.tails[view] < LIGHTEST
        assert_allclose(1 / density.tails[view], best.x, rtol=1e-5)


@WEIGHTED
@pytest.mark.parametrize("tails", ["fitted", "gaussian"])
def test_shares_are_slopes_of_a_logistic_regression_on_left_out_ratios(weighted, tails):
    case = left_out_blend(weighted)
    density, scores = loo.complete(*case, Rule(tails=tails))
    assert (density.tails == (np.inf, np.inf)) == (tails == "gaussian")
    _, left, groups, _, weights = case
    assert_allclose(scores, brute_force_scores(density, *case[1:]), rtol=1e-9, atol=1e-9)
    assert_allclose(loo.scores(density, *case[1:]), scores, rtol=1e-12)
    views = np.array([f(density, *case[1:]) for f in (brute_force_mixture, brute_force_cloud)])
    assert np.all(np.isfinite(views))  # also of rows that are alone, which say nothing here
    known = ~left.alone
    w = (np.ones(len(groups)) if weights is None else weights)[known]
    sign = np.where(groups[known] == 0, -1.0, 1.0)
    prior_odds = np.log(w[sign < 0].sum() / w[sign > 0].sum())

    def loss(point):
        slopes, offset = np.exp(point[:2]), point[2]
        wrong = sign * (slopes @ views[:, known] + offset + prior_odds)
        prior = 2 * slopes.sum() - point[:2].sum() + offset**2 / 200
        return w @ np.logaddexp(0, wrong) + prior

    best = minimize(loss, np.zeros(3), method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 0})
    assert_allclose(np.log(density.shares), best.x[:2], atol=1e-5)
    assert_allclose(density.offset, best.x[2], atol=1e-5)


def test_views_that_are_not_weighed_count_alike():
    case = left_out_blend(False)
    density, scores = loo.complete(*case, Rule(weighed=False))
    assert (density.shares, density.offset) == ((0.5, 0.5), None)
    views = [f(density, *case[1:]) for f in (brute_force_mixture, brute_force_cloud)]
    assert_allclose(scores, np.mean(views, axis=0), rtol=1e-9, atol=1e-9)


def test_a_density_that_is_near_changes_nothing_but_the_steps():
    case = left_out_blend(False)
    expected, scores = loo.complete(*case, Rule())
    for shares, offset in (((1e-9, 3.0), -5.0), ((0.2, 0.1), 0.0), (expected.shares, 1.0)):
        near = replace(expected, shares=shares, offset=offset)
        found, again = loo.complete(*case, Rule(), near=near)
        assert_allclose(found.shares, expected.shares, rtol=1e-7)
        assert_allclose(again, scores, rtol=1e-7, atol=1e-7)


def test_a_sample_that_stands_for_all_rows_gives_their_shares():
    case = left_out_blend()
    density, left, groups, counts, _ = case
    expected, _ = loo.complete(*case, Rule())
    # Twice the positives, each of half the weight: tails do not look at them.
    twice = np.concatenate([np.arange(len(groups)), np.flatnonzero(groups == 0)])
    more = loo.LeftOut(left.coordinates[twice], left.residuals[twice], left.alone[twice])
    stands_for = np.where(groups[twice] == 0, 0.5, 1.0)
    rest = (groups[twice], counts, np.ones(len(twice)), Rule(), stands_for)
    found, _ = loo.complete(density, more, *rest)
    assert_allclose(found.tails, expected.tails, rtol=1e-12)
    assert_allclose(found.shares, expected.shares, rtol=1e-9)


def test_where_every_negative_is_alone_views_count_alike_and_scores_are_finite():
    X, groups, _ = make_rows([12, *[1] * 9], 5)
    projection, scatter, left = primal(X, groups, None, 0.5, d=3)
    seen, n_positive, n_within = left.scatter(scatter.project(projection.components), groups, None)
    assert n_within == 0
    density = fit_density(
        Moments(seen, seen.intra / n_positive, n_positive, 0.0), negatives="blend", shrinkage=1.5
    )
    found, scores = loo.complete(density, left, groups, scatter.counts, None, Rule())
    assert found.tails == (np.inf, np.inf)
    assert found.shares == (0.5, 0.5)
    expected = brute_force_scores(density, left, groups, scatter.counts, None)
    assert_allclose(scores, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("block", [1, 5])
@pytest.mark.parametrize("threads", [1, 2])
@NEGATIVES
def test_blocks_and_threads_do_not_matter_to_scores(monkeypatch, block, threads, negatives):
    X, groups, weights = make_rows([14, 9, 1, 8, 7, 10], 5, weighted=True)
    projection, scatter, left = primal(X, groups, weights, 0.5, d=3)
    projected = scatter.project(projection.components)
    moments = Moments(*left.scatter(projected, groups, weights)[:1], np.eye(3), 10.0, 20.0)
    density = fit_density(moments, negatives=negatives, shrinkage=1.0)
    expected = loo.scores(density, left, groups, scatter.counts, weights)
    monkeypatch.setattr(linalg, "block_rows", lambda width: block)
    monkeypatch.setattr(linalg, "cache_rows", lambda width: block)
    with threadpool_limits(threads, user_api="blas"):
        scores = loo.scores(density, left, groups, scatter.counts, weights)
    assert_allclose(scores, expected, rtol=1e-12)


def test_a_row_that_is_the_whole_of_its_covariance_has_a_finite_score():
    scatter = GroupScatter(
        np.array([1.0, 1.0]), np.array([[0.0], [3.0]]), np.array([[4.0]]), np.array([[4.0]])
    )
    density = fit_density(Moments(scatter, np.eye(1), 1.5, 1.5), negatives="mixture", shrinkage=0.0)
    z = np.array([[2.0], [5.0]])
    left = loo.LeftOut(z, np.array([[2.0], [2.0]]), np.array([False, False]))
    scores = loo.scores(density, left, np.array([0, 1]), np.array([2.0, 2.0]))
    assert np.all(np.isfinite(scores))
