"""Closed-form leave-one-out against refits of everything it claims to leave out."""

import numpy as np
import pytest
from factories import leave_rows_out, make_rows, refit_without_each_row
from numpy.testing import assert_allclose, assert_array_equal
from threadpoolctl import threadpool_limits

from pcsda.core import dual, linalg, loo, solvers

WEIGHTED = pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
# Groups 2 and 4 have a single member.
SIZES = [9, 7, 1, 6, 1, 5]


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
    projection, _, left = leave_rows_out(X, groups, weights, ridge)
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
    _, _, expected = leave_rows_out(X, groups, weights, 0.5)
    _, _, left = leave_rows_out(X, groups, weights, 0.5, solver)
    assert_left_out(left, (expected.coordinates, expected.residuals))


def test_fewer_components_are_the_leading_columns():
    X, groups, _ = make_rows(SIZES, 9)
    _, _, every = leave_rows_out(X, groups, None, 0.5)
    _, _, two = leave_rows_out(X, groups, None, 0.5, d=2)
    assert_allclose(two.coordinates, every.coordinates[:, :2], rtol=1e-10)
    assert_allclose(two.residuals, every.residuals[:, :2], rtol=1e-10)


def test_left_out_rows_equal_refits_where_subclass_means_coincide():
    X, groups, _ = make_rows([9, 7, 6, 8], 5)
    means = np.array([X[groups == g].mean(axis=0) for g in range(4)])
    X += (means[1] - means[3]) * (groups == 3)[:, None]
    projection, _, left = leave_rows_out(X, groups, None, 0.5)
    assert projection.rank == 2
    assert_left_out(left, refit_without_each_row(X, groups, None, 0.5, projection.components))


@WEIGHTED
def test_left_out_rows_equal_refits_when_every_negative_is_alone(weighted):
    X, groups, weights = make_rows([9, 1, 1, 1], 5, weighted=weighted)
    projection, _, left = leave_rows_out(X, groups, weights, 0.5)
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
    for find in (lambda *rows: leave_rows_out(*rows)[2], lambda *rows: through_dual(*rows)[1]):
        left = find(X, groups, weights, 0.5)
        without = find(X[kept], groups[kept], None, 0.5)
        assert np.all(np.isfinite(left.coordinates))
        signs = np.sign(np.sum(left.coordinates[kept] * without.coordinates, axis=0))
        assert_allclose(left.coordinates[kept], signs * without.coordinates, atol=1e-7)


@pytest.mark.parametrize("block", [1, 4, 1000])
@pytest.mark.parametrize("threads", [1, 2])
def test_blocks_and_threads_do_not_matter(monkeypatch, block, threads):
    X, groups, weights = make_rows([90, 50, 1, 60, *[2] * 40], 5, weighted=True)
    _, scatter, expected = leave_rows_out(X, groups, weights, 0.5)
    projection = solvers.cholesky(scatter, 0.5)
    monkeypatch.setattr(linalg, "block_rows", lambda width: block)
    with threadpool_limits(threads, user_api="blas"):
        left = loo.primal(X, groups, scatter, projection, 0.5, weights)
    assert_left_out(left, (expected.coordinates, expected.residuals), rtol=1e-12)


@pytest.mark.parametrize("form", ["float32", "fortran", "read-only"])
def test_rows_are_read_in_any_form_and_never_written(form):
    X, groups, _ = make_rows(SIZES, 6)
    X = X.astype(np.float32).astype(np.float64)
    _, scatter, expected = leave_rows_out(X, groups, None, 0.5)
    given = X.astype(np.float32) if form == "float32" else np.array(X, order="F")
    given.flags.writeable = form != "read-only"
    before = given.copy()
    projection = solvers.cholesky(scatter, 0.5)
    left = loo.primal(given, groups, scatter, projection, 0.5)
    assert_left_out(left, (expected.coordinates, expected.residuals), rtol=1e-12)
    assert_array_equal(given, before)


def test_left_out_scatter_sums_the_residuals_of_rows_that_are_not_alone():
    X, groups, weights = make_rows(SIZES, 9, weighted=True)
    projection, scatter, left = leave_rows_out(X, groups, weights, 0.5)
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
