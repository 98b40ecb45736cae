"""Blocks of rows left out together against refits without the block."""

from dataclasses import replace

import numpy as np
import pytest
from factor_factories import (
    ON_KERNEL_VALUES,
    SHARED,
    WEIGHTED,
    assert_same_left,
    close_to_refits,
    make_factor,
)
from factories import (
    cloud_without,
    log_density,
    make_rows,
    moves_of_centres,
    paper_statistics,
    positives_without,
    refit_without_each_row,
    with_heavy_tails,
)
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import logsumexp

from pcsda.core.cells import Cells
from pcsda.core.density import Blend, Marginal
from pcsda.core.direct import DirectFactor
from pcsda.core.factor import factor_once
from pcsda.core.fit import Rule, fit
from pcsda.core.loo import Leave
from pcsda.core.together import stacks_of
from pcsda.core.white import whiten

SIZES = [14, 9, 2, 12, 7]


def make_blocks(groups, seed=0):
    """Make blocks of up to four rows, some across groups; one contains all of group 2."""
    blocks = np.random.default_rng(seed).integers(0, len(groups) // 3, len(groups)) + 1
    blocks[groups == 2] = 0
    return blocks


@pytest.mark.each_value
@SHARED
@WEIGHTED
@pytest.mark.parametrize("width", [6, 70], ids=["D<N", "D>N"])
def test_blocks_left_out_equal_refits(name, weighted, width):
    X, groups, weights = make_rows(SIZES, width, weighted=weighted)
    blocks = make_blocks(groups)
    found = make_factor(name, X, 0.01, weights).solve(groups, leave_out=Leave(together=blocks))
    ridge = 0.01 * paper_statistics(X, groups, weights).total_variance
    components = found.coefficients.T @ X if name in ON_KERNEL_VALUES else found.coefficients.T
    refits = refit_without_each_row(X, groups, weights, ridge, components, blocks)
    close_to_refits(found.left, *refits, found.projected.delta, 1e-7)
    assert_array_equal(found.left.alone, groups == 2)
    assert_array_equal(found.left.known, groups != 2)
    assert_array_equal(found.left.together, blocks)


@SHARED
@WEIGHTED
def test_blocks_of_one_row_act_like_rows(name, weighted):
    X, groups, weights = make_rows([14, 9, 1, 12, 7], 6, weighted=weighted)
    factor = make_factor(name, X, 0.01, weights)
    own = np.random.default_rng(0).permutation(len(X))
    found = factor.solve(groups, leave_out=Leave(together=own))
    assert_same_left(found.left, factor.solve(groups).left)


@SHARED
def test_cell_classes_leave_blocks_out_like_their_own_divisions(name):
    X, clusters, _ = make_rows([14, 16, 18], 6)
    labels = np.random.default_rng(0).integers(0, 3, len(X))
    leave = Leave(together=make_blocks(labels))
    factor, cells = make_factor(name, X, 0.01), Cells.of(labels, clusters)
    over = factor.over(cells)
    for label in range(3):
        expected = factor.solve(cells.division(label)[0], leave_out=leave)
        assert_same_left(over.solve(label, leave_out=leave).left, expected.left, rtol=1e-7)


@SHARED
@pytest.mark.parametrize("gone", ["positives", "negatives"])
def test_a_block_holding_a_whole_class_cannot_be_left_out(name, gone):
    X, groups, _ = make_rows([5, 9, 12], 6)
    whole = groups == 0 if gone == "positives" else groups > 0
    blocks = np.where(whole, 0, np.arange(1, len(X) + 1))
    left = make_factor(name, X, 0.01).solve(groups, leave_out=Leave(together=blocks)).left
    assert_array_equal(left.alone, whole)
    assert_array_equal(left.known, ~whole)
    assert_array_equal(np.isnan(left.coordinates).all(axis=1), whole)


def test_a_block_that_keeps_the_scatter_regular_cannot_be_left_out():
    X, groups, _ = make_rows([14, 9, 12, 7], 5)
    rows = np.flatnonzero(groups == 1)[:2]
    X = np.column_stack([X, np.where(np.isin(np.arange(len(X)), rows), [3.0] * len(X), 0.0)])
    X[rows[0], -1] = -2.0
    blocks = np.arange(len(X))
    blocks[rows] = rows[0]
    left = next(whiten(X, [0.0])).solve(groups, leave_out=Leave(together=blocks)).left
    assert_array_equal(left.known, ~np.isin(np.arange(len(X)), rows))
    assert_array_equal(np.isnan(left.coordinates).all(axis=1), ~left.known)


@SHARED
def test_a_subset_of_blocks_may_be_left_out(name):
    X, groups, weights = make_rows(SIZES, 6, weighted=True)
    blocks = make_blocks(groups)
    factor = make_factor(name, X, 0.01, weights)
    whole = factor.solve(groups, leave_out=Leave(together=blocks)).left
    rows = np.flatnonzero(np.isin(blocks, [2, 5, 7]))
    some = Leave(rows, np.full(len(rows), 3.0), blocks)
    left = factor.solve(groups, leave_out=some).left
    assert_same_left(left, whole.take(rows))
    assert_array_equal(left.mass, 3 * weights[rows])
    assert_array_equal(left.together, blocks[rows])
    spread = left.spread(np.arange(len(rows)) * 1.0, len(X))
    assert_array_equal(spread[rows], np.arange(len(rows)))
    assert np.isnan(np.delete(spread, rows)).all()


def test_only_some_factors_can_leave_blocks_out():
    """A direct factor leaves no row out rather than leaving them out one by one."""
    for width, regularization in ((5, 0.1), (5, 0.0), (70, 0.1)):
        X, groups, _ = make_rows(SIZES, width)
        leave = Leave(together=make_blocks(groups))
        factor = factor_once(X, regularization, together=True)
        found = factor.solve(groups, leave_out=leave)
        assert found.left.together is not None
        alone = DirectFactor(X, max(regularization, 0.01)).solve(groups, leave_out=leave)
        assert alone.left is None


def test_groups_that_explain_all_scatter_leave_no_block_out():
    rng = np.random.default_rng(0)
    groups = rng.permutation(np.repeat(np.arange(4), [12, 10, 9, 11]))
    X = rng.standard_normal((4, 5))[groups] + 1e-6 * rng.standard_normal((len(groups), 5))
    leave = Leave(together=make_blocks(groups))
    assert next(whiten(X, [1e-12])).solve(groups, leave_out=leave).left is None


def test_blocks_of_one_size_are_stacked_in_id_order():
    found = stacks_of(np.array([7, 2, 7, 2, 9]))
    assert [places.tolist() for places in found] == [[[4]], [[1, 3], [0, 2]]]


def test_stacks_are_bounded_and_contain_each_row_once():
    ids = np.random.default_rng(0).integers(0, 300, 2000)
    found = list(stacks_of(ids))
    assert max(places.size for places in found) <= 256
    assert sorted(np.concatenate([places.ravel() for places in found])) == list(range(2000))
    assert all(np.all(ids[places] == ids[places[:, :1]]) for places in found)


def rebuilt_views(density, left, counts):
    """View each row through a density rebuilt without its block."""
    base, views = density.base, np.zeros((density.n_views, len(left.groups)))
    marginal, moves = isinstance(base, Marginal), moves_of_centres(left, base.subclasses)
    for i, block in enumerate(left.together):
        members = left.together == block
        positive, move = positives_without(base, left, members)
        out = members & left.known & (left.groups > 0)
        rows, mass, strength = left.residuals[out], left.mass[out], base.negative_strength
        negative = strength * base.negative - (rows * mass[:, None]).T @ rows
        negative /= strength - (0.0 if marginal else mass.sum())
        z, rho, group = left.coordinates[i], left.residuals[i], left.groups[i]
        centres, shares = base.centres.copy(), np.exp(base.log_weights)
        if not marginal:
            centres += move + moves[i]
            if isinstance(density, Blend):
                views[1, i] = cloud_without(density, positive, centres, counts, z)
            if group > 0:
                centres[group - 1] = z - rho
            gone = np.bincount(left.groups[members], left.weight[members], len(counts))
            remaining = np.where(counts - gone > 1e-9, counts - gone, 0.0)[1:]
            shares = remaining / remaining.sum()
        parts = [log_density(z, c, negative, base.tail) for c in centres]
        outside = logsumexp(parts, b=shares)
        views[0, i] = log_density(z, 0 * z, positive, base.tail) - outside
    return views


@pytest.mark.each_value
@WEIGHTED
@pytest.mark.parametrize("negatives", ["blend", "mixture", "marginal"])
@pytest.mark.parametrize("tails", ["fitted", "gaussian"])
def test_views_of_blocks_equal_densities_rebuilt_without_them(weighted, negatives, tails):
    X, groups, weights = make_rows([30, 19, 2, 28, 17], 5, weighted=weighted)
    X = with_heavy_tails(X, np.minimum(groups, 1))
    rule, leave = Rule(negatives, 1.5, tails), Leave(together=make_blocks(groups))
    factor = next(whiten(X, [0.01], weights))
    fitted = fit(factor, groups, rule, 3, leave=leave)
    left, counts = fitted.subspace.left, fitted.subspace.projected.counts
    assert np.isfinite(fitted.density.base.tail) == (tails == "fitted" and negatives != "marginal")
    views = fitted.density.left_out_views(left, counts)
    assert_allclose(views, rebuilt_views(fitted.density, left, counts), rtol=1e-8, atol=1e-8)
    assert_allclose(fitted.left_out, fitted.calibration(views))


@pytest.mark.parametrize("negatives", ["blend", "mixture", "marginal"])
def test_views_of_one_row_blocks_equal_those_of_rows(negatives):
    X, groups, weights = make_rows([30, 19, 1, 28, 17], 5, weighted=True)
    X = with_heavy_tails(X, np.minimum(groups, 1))
    fitted = fit(next(whiten(X, [0.01], weights)), groups, Rule(negatives, 1.5), 3)
    left, counts = fitted.subspace.left, fitted.subspace.projected.counts
    single = replace(left, together=np.arange(len(X))[::-1])
    found = fitted.density.left_out_views(single, counts)
    assert_allclose(found, fitted.density.left_out_views(left, counts), rtol=1e-9, atol=1e-9)
