"""Left-out rows: blocks, threads, samples and moments; test_factor compares with refits."""

from dataclasses import replace

import numpy as np
import pytest
from factor_factories import WEIGHTED, assert_same_left, close_to_refits, make_factor
from factories import leave_rows_out, make_rows, refit_without_each_row
from numpy.testing import assert_allclose, assert_array_equal
from threadpoolctl import threadpool_limits

from pcsda.core import linalg, loo, solvers
from pcsda.core.leaver import Leaver

# Groups 2 and 4 have a single member.
SIZES = [9, 7, 1, 6, 1, 5]


@pytest.mark.parametrize("solver", [solvers.eigen, solvers.spectral])
def test_left_out_rows_do_not_depend_on_the_exact_solver(solver):
    X, groups, weights = make_rows(SIZES, 9, weighted=True)
    _, _, expected = leave_rows_out(X, groups, weights, 0.5)
    assert_same_left(leave_rows_out(X, groups, weights, 0.5, solver)[2], expected)


def test_left_out_rows_equal_refits_where_subclass_means_coincide():
    X, groups, _ = make_rows([9, 7, 6, 8], 5)
    means = np.array([X[groups == g].mean(axis=0) for g in range(4)])
    X += (means[1] - means[3]) * (groups == 3)[:, None]
    projection, scatter, left = leave_rows_out(X, groups, None, 0.5)
    assert projection.rank == 2
    refits = refit_without_each_row(X, groups, None, 0.5, projection.components)
    close_to_refits(left, *refits, scatter.project(projection.components).delta)


@WEIGHTED
@pytest.mark.parametrize("width", [2, 4])
@pytest.mark.parametrize("ridge", [0.5, 1e-4])
@pytest.mark.parametrize("lone", [0, 12], ids=["positive", "negative"])
def test_left_out_rows_equal_refits_where_one_row_alone_varies_in_a_column(
    lone, ridge, width, weighted
):
    X, groups, weights = make_rows([9, 7, 6, 8, 5], width - 1, weighted=weighted)
    X = np.column_stack([X, np.arange(len(X)) == lone])
    projection, scatter, left = leave_rows_out(X, groups, weights, ridge)
    assert projection.rank == width
    refits = refit_without_each_row(X, groups, weights, ridge, projection.components)
    close_to_refits(left, *refits, scatter.project(projection.components).delta, 1e-7)


@WEIGHTED
def test_left_out_rows_equal_refits_with_singleton_negatives(weighted):
    X, groups, weights = make_rows([9, 1, 1, 1], 5, weighted=weighted)
    projection, scatter, left = leave_rows_out(X, groups, weights, 0.5)
    refits = refit_without_each_row(X, groups, weights, 0.5, projection.components)
    close_to_refits(left, *refits, scatter.project(projection.components).delta)
    assert not left.known[groups > 0].any()


@pytest.mark.parametrize("block", [1, 4, 1000])
@pytest.mark.parametrize("threads", [1, 2])
def test_blocks_and_threads_do_not_matter(monkeypatch, block, threads):
    X, groups, weights = make_rows([90, 50, 1, 60, *[2] * 40], 5, weighted=True)
    projection, scatter, expected = leave_rows_out(X, groups, weights, 0.5)
    monkeypatch.setattr(linalg, "block_rows", lambda width: block)
    monkeypatch.setattr(linalg, "BLOCK_BYTES", 1)
    with threadpool_limits(threads, user_api="blas"):
        left = Leaver.of(scatter, projection, 0.5).leave_out(X, groups, weights)
    assert_same_left(left, expected, rtol=1e-12)


@WEIGHTED
def test_leaving_out_in_parts_equals_leaving_out_at_once(weighted):
    X, groups, weights = make_rows(SIZES, 9, weighted=weighted)
    projection, scatter, whole = leave_rows_out(X, groups, weights, 0.5)
    leaver = Leaver.of(scatter, projection, 0.5)
    for part in (slice(0, 5), slice(5, 6), slice(6, None)):
        weight = None if weights is None else weights[part]
        left = leaver.leave_out(X[part], groups[part], weight)
        assert_same_left(left, whole.take(part), rtol=1e-12)


def test_moments_sum_the_residuals_of_rows_that_can_be_left_out():
    X, groups, weights = make_rows(SIZES, 9, weighted=True)
    left = leave_rows_out(X, groups, weights, 0.5)[2]
    unknown = np.flatnonzero(groups == 1)[:2]
    known = left.known.copy()
    known[unknown] = False
    (inside, n_inside), (outside, n_outside) = replace(left, known=known).moments()
    positive = groups == 0
    negative = np.isin(groups, [1, 3, 5])
    negative[unknown] = False
    weighted = left.residuals * weights[:, None]
    assert_allclose(inside, left.coordinates[positive].T @ weighted[positive])
    assert_allclose(outside, left.residuals[negative].T @ weighted[negative])
    assert_allclose(n_inside, weights[positive].sum())
    assert_allclose(n_outside, weights[negative].sum())


def test_flipping_axes_changes_only_signs():
    X, groups, _ = make_rows(SIZES, 9)
    left = leave_rows_out(X, groups, None, 0.5)[2]
    signs = np.array([1.0, -1.0, 1.0, -1.0, 1.0])
    assert_same_left(left.turned(signs), left, signs)
    assert_array_equal(left.weight, np.ones(len(X)))


@pytest.mark.parametrize("form", ["float32", "fortran", "read-only"])
def test_any_array_layout_is_read_and_never_written(form):
    X, groups, _ = make_rows(SIZES, 6)
    X = X.astype(np.float32).astype(np.float64)
    projection, scatter, expected = leave_rows_out(X, groups, None, 0.5)
    given = X.astype(np.float32) if form == "float32" else np.array(X, order="F")
    given.flags.writeable = form != "read-only"
    before = given.copy()
    left = Leaver.of(scatter, projection, 0.5).leave_out(given, groups)
    assert_same_left(left, expected, rtol=1e-12)
    assert_array_equal(given, before)


@WEIGHTED
def test_a_sample_covers_every_group_and_represents_all_rows(weighted):
    _, groups, weights = make_rows([300, 200, 1, 90, 40], 2, weighted=weighted)
    leave = loo.sample_rows(groups, 50, np.random.default_rng(0), weights)
    rows, w = leave.rows, np.ones(len(groups)) if weights is None else weights
    assert np.all(np.diff(rows) > 0)
    assert_array_equal(np.unique(groups[rows]), np.arange(5))
    assert np.sum(groups[rows] == 0) == 50
    assert 45 <= np.sum(groups[rows] > 0) <= 52
    totals = np.bincount(groups[rows], w[rows] * leave.stands_for)
    assert_allclose(totals, np.bincount(groups, w))
    again, other = (loo.sample_rows(groups, 50, np.random.default_rng(s), weights) for s in (0, 1))
    assert_array_equal(again.rows, rows)
    assert not np.array_equal(other.rows, rows)


def test_a_small_class_is_left_out_entirely():
    _, groups, _ = make_rows([30, 20, 9], 2)
    assert loo.sample_rows(groups, 30, np.random.default_rng(0)) == loo.EVERY
    blocks = np.arange(59) // 2
    leave = loo.sample_rows(groups, 30, np.random.default_rng(0), together=blocks)
    assert leave.rows is None
    assert leave.together is blocks


def test_a_small_class_is_left_out_entirely_beside_a_sampled_one():
    _, groups, _ = make_rows([7, 500, 300], 2)
    leave = loo.sample_rows(groups, 100, np.random.default_rng(0))
    own = groups[leave.rows]
    assert np.sum(own == 0) == 7
    assert_array_equal(leave.stands_for[own == 0], np.ones(7))


def test_sampling_draws_whole_blocks():
    _, groups, _ = make_rows([300, 200, 90], 2)
    blocks = np.random.default_rng(1).integers(0, 80, len(groups))
    leave = loo.sample_rows(groups, 50, np.random.default_rng(0), together=blocks)
    chosen = np.unique(blocks[leave.rows])
    assert_array_equal(leave.rows, np.flatnonzero(np.isin(blocks, chosen)))
    assert np.sum(groups[leave.rows] == 0) >= 50
    assert np.sum(groups[leave.rows] > 0) >= 50
    assert len(leave.rows) < len(groups) / 2
    totals = np.bincount(groups[leave.rows], leave.stands_for)
    assert_allclose(totals, np.bincount(groups))


@pytest.mark.parametrize("name", ["direct", "white", "gram", "kernel"])
@WEIGHTED
def test_sampled_rows_get_the_same_left_out_values_as_in_full(name, weighted):
    X, groups, weights = make_rows([40, 30, 20], 6, weighted=weighted)
    factor = make_factor(name, X, 0.01, weights)
    whole = factor.solve(groups).left
    leave = loo.sample_rows(groups, 15, np.random.default_rng(0), weights)
    found = factor.solve(groups, leave_out=leave).left
    assert_same_left(found, whole.take(leave.rows))
    assert_array_equal(found.rows, leave.rows)
    assert_allclose(found.mass, whole.weight[leave.rows] * leave.stands_for)
    full = found.spread(found.mass, len(X))
    assert_array_equal(np.flatnonzero(np.isfinite(full)), leave.rows)
    assert_array_equal(whole.spread(whole.mass, len(X)), whole.weight)
    for (_, total), (_, expected) in zip(found.moments(), whole.moments(), strict=True):
        assert_allclose(total, expected)


def test_without_row_numbers_every_row_is_left_out():
    some = loo.Leave(np.array([1, 4]))
    assert_array_equal(some.of(9), [1, 4])
    assert_array_equal(loo.EVERY.of(3), [0, 1, 2])
    assert_array_equal(some.take(np.arange(9) * 2), [2, 8])
