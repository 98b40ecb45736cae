"""Scores of left-out rows against densities rebuilt without the row."""

from dataclasses import replace

import numpy as np
import pytest
from factories import cloud_of, leave_rows_out, log_density, make_rows
from numpy.testing import assert_allclose
from scipy.optimize import minimize, minimize_scalar
from scipy.special import logsumexp
from threadpoolctl import threadpool_limits

from pcsda.core import linalg, loo_scores
from pcsda.core.density import HEAVIEST, LIGHTEST, Moments, Rule, fit_density
from pcsda.core.loo import LeftOut
from pcsda.core.scatter import GroupScatter

WEIGHTED = pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
NEGATIVES = pytest.mark.parametrize("negatives", ["blend", "mixture", "marginal"])
TAILS = pytest.mark.parametrize("tails", [(np.inf, np.inf), (3.0, 8.0)], ids=["gaussian", "heavy"])


@WEIGHTED
@NEGATIVES
def test_the_order_of_the_rows_does_not_matter(weighted, negatives):
    X, groups, weights = make_rows([14, 9, 1, 8], 5, weighted=weighted)
    shuffled = np.random.default_rng(0).permutation(len(groups))
    found = []
    for order in (np.arange(len(groups)), shuffled):
        mine = None if weights is None else weights[order]
        projection, scatter, left = leave_rows_out(X[order], groups[order], mine, 0.5)
        projected = scatter.project(projection.components)
        seen, *numbers = left.scatter(projected, groups[order], mine)
        moments = Moments(seen, seen.intra, *numbers)
        density = fit_density(moments, negatives=negatives, shrinkage=1.0)
        rest = (left, groups[order], scatter.counts, mine)
        whole, scores = loo_scores.complete(density, *rest, Rule())
        found.append((seen, numbers, loo_scores.scores(density, *rest), whole, scores))
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
    projection, scatter, left = leave_rows_out(X, groups, weights, 0.5, d=3)
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
    scores = loo_scores.scores(density, left, groups, scatter.counts, weights)
    expected = brute_force_scores(density, left, groups, scatter.counts, weights)
    assert_allclose(scores, expected, rtol=1e-9, atol=1e-9)
    resubstituted = density.log_ratio(left.coordinates)
    assert np.all(scores[groups == 0] < resubstituted[groups == 0])  # leaving out costs


def left_out_blend(weighted=False, seed=0):
    """Heavy rows, two of them alone, with the density that their left-out scatter gives."""
    X, groups, weights = make_rows([30, 19, 1, 28, 17, 1, 25], 5, weighted=weighted, seed=seed)
    X *= np.random.default_rng(seed).chisquare(4, (len(X), 1)) ** -0.5
    projection, scatter, left = leave_rows_out(X, groups, weights, 0.5, d=3)
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
    density, _ = loo_scores.complete(*case, Rule())
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
    density, scores = loo_scores.complete(*case, Rule(tails=tails))
    assert (density.tails == (np.inf, np.inf)) == (tails == "gaussian")
    _, left, groups, _, weights = case
    assert_allclose(scores, brute_force_scores(density, *case[1:]), rtol=1e-9, atol=1e-9)
    assert_allclose(loo_scores.scores(density, *case[1:]), scores, rtol=1e-12)
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
    density, scores = loo_scores.complete(*case, Rule(weighed=False))
    assert (density.shares, density.offset) == ((0.5, 0.5), None)
    views = [f(density, *case[1:]) for f in (brute_force_mixture, brute_force_cloud)]
    assert_allclose(scores, np.mean(views, axis=0), rtol=1e-9, atol=1e-9)


def test_a_density_that_is_near_changes_nothing_but_the_steps():
    case = left_out_blend(False)
    expected, scores = loo_scores.complete(*case, Rule())
    for shares, offset in (((1e-9, 3.0), -5.0), ((0.2, 0.1), 0.0), (expected.shares, 1.0)):
        near = replace(expected, shares=shares, offset=offset)
        found, again = loo_scores.complete(*case, Rule(), near=near)
        assert_allclose(found.shares, expected.shares, rtol=1e-7)
        assert_allclose(again, scores, rtol=1e-7, atol=1e-7)


def test_a_sample_that_stands_for_all_rows_gives_their_shares():
    case = left_out_blend()
    density, left, groups, counts, _ = case
    expected, _ = loo_scores.complete(*case, Rule())
    # Twice the positives, each of half the weight: tails do not look at them.
    twice = np.concatenate([np.arange(len(groups)), np.flatnonzero(groups == 0)])
    more = LeftOut(left.coordinates[twice], left.residuals[twice], left.alone[twice])
    stands_for = np.where(groups[twice] == 0, 0.5, 1.0)
    rest = (groups[twice], counts, np.ones(len(twice)), Rule(), stands_for)
    found, _ = loo_scores.complete(density, more, *rest)
    assert_allclose(found.tails, expected.tails, rtol=1e-12)
    assert_allclose(found.shares, expected.shares, rtol=1e-9)


def test_where_every_negative_is_alone_views_count_alike_and_scores_are_finite():
    X, groups, _ = make_rows([12, *[1] * 9], 5)
    projection, scatter, left = leave_rows_out(X, groups, None, 0.5, d=3)
    seen, n_positive, n_within = left.scatter(scatter.project(projection.components), groups, None)
    assert n_within == 0
    density = fit_density(
        Moments(seen, seen.intra / n_positive, n_positive, 0.0), negatives="blend", shrinkage=1.5
    )
    found, scores = loo_scores.complete(density, left, groups, scatter.counts, None, Rule())
    assert found.tails == (np.inf, np.inf)
    assert found.shares == (0.5, 0.5)
    expected = brute_force_scores(density, left, groups, scatter.counts, None)
    assert_allclose(scores, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("block", [1, 5])
@pytest.mark.parametrize("threads", [1, 2])
@NEGATIVES
def test_blocks_and_threads_do_not_matter_to_scores(monkeypatch, block, threads, negatives):
    X, groups, weights = make_rows([14, 9, 1, 8, 7, 10], 5, weighted=True)
    projection, scatter, left = leave_rows_out(X, groups, weights, 0.5, d=3)
    projected = scatter.project(projection.components)
    moments = Moments(*left.scatter(projected, groups, weights)[:1], np.eye(3), 10.0, 20.0)
    density = fit_density(moments, negatives=negatives, shrinkage=1.0)
    expected = loo_scores.scores(density, left, groups, scatter.counts, weights)
    monkeypatch.setattr(linalg, "block_rows", lambda width: block)
    monkeypatch.setattr(linalg, "cache_rows", lambda width: block)
    with threadpool_limits(threads, user_api="blas"):
        scores = loo_scores.scores(density, left, groups, scatter.counts, weights)
    assert_allclose(scores, expected, rtol=1e-12)


def test_a_row_that_is_the_whole_of_its_covariance_has_a_finite_score():
    scatter = GroupScatter(
        np.array([1.0, 1.0]), np.array([[0.0], [3.0]]), np.array([[4.0]]), np.array([[4.0]])
    )
    density = fit_density(Moments(scatter, np.eye(1), 1.5, 1.5), negatives="mixture", shrinkage=0.0)
    z = np.array([[2.0], [5.0]])
    left = LeftOut(z, np.array([[2.0], [2.0]]), np.array([False, False]))
    scores = loo_scores.scores(density, left, np.array([0, 1]), np.array([2.0, 2.0]))
    assert np.all(np.isfinite(scores))
