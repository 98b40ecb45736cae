"""Divisions solved separately: resampled negatives, sparse rows, statistics alone."""

import numpy as np
import pytest
from factor_factories import TALL_AND_WIDE, WEIGHTED, assert_same_subspace, close
from factories import largest_angle, make_rows
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from pcsda.core.direct import DirectFactor, IterativeFactor, keep_leading, scatter_subspace
from pcsda.core.gram import wide
from pcsda.core.leaver import Leaver
from pcsda.core.scatter import GroupScatter
from pcsda.core.solvers import Projection


@pytest.mark.each_value
@TALL_AND_WIDE
@WEIGHTED
@pytest.mark.parametrize("form", ["csr", "csc"])
def test_sparse_rows_give_the_subspace_of_dense_rows(width, weighted, form):
    X, groups, weights = make_rows([14, 9, 12, 7], width, weighted=weighted)
    X[np.abs(X) < 1] = 0
    given = sparse.csr_array(X).asformat(form)
    expected = DirectFactor(X, 0.01, weights).solve(groups, leave_out=None)
    found = IterativeFactor(given, 0.01, weights).solve(groups)
    assert found.left is None
    assert_same_subspace(found, expected, rtol=1e-6)
    close(found.project(given), expected.project(X), 1e-6)
    close(found.project(X), expected.project(X), 1e-6)
    two = IterativeFactor(given, 0.01, weights).solve(groups, 2)
    assert two.rank == 3
    assert_same_subspace(two, found.leading(2), rtol=1e-8)


def test_duplicate_entries_of_a_sparse_array_are_summed():
    X, groups, _ = make_rows([14, 9, 12, 7], 70)
    X[np.abs(X) < 1] = 0
    whole = sparse.csr_array(X)
    parts = np.repeat(whole.data / 2, 2), np.repeat(whole.indices, 2), 2 * whole.indptr
    twice = sparse.csr_array(parts, shape=X.shape)
    assert not twice.has_canonical_format
    found, expected = (IterativeFactor(rows, 0.01).solve(groups) for rows in (twice, whole))
    assert_same_subspace(found, expected, rtol=1e-6)


def test_without_a_ridge_rows_must_differ_within_a_group():
    X, groups, _ = make_rows([1, 1, 1], 5)
    with pytest.raises(ValueError, match="is singular at regularization=0; raise regularization"):
        IterativeFactor(X, 0.0).solve(groups)


@pytest.mark.parametrize("solver", ["cholesky", "eigen", "spectral"])
def test_statistics_alone_give_the_same_subspace(solver):
    X, groups, weights = make_rows([14, 9, 12, 7], 6, weighted=True)
    scatter = GroupScatter.from_samples(X, groups, weights=weights)
    expected = DirectFactor(X, 0.01, weights, solver).solve(groups, 2)
    found, projection, ridge = scatter_subspace(scatter, solver, 0.01, 2)
    assert_allclose(ridge, 0.01 * scatter.total_variance)
    close(found.coefficients, expected.coefficients)
    assert (found.rank, found.left) == (3, None)
    left = Leaver.of(scatter, projection, ridge).leave_out(X, groups, weights)
    left = left.leading(len(found.eigenvalues))
    close(left.coordinates, expected.left.coordinates)


def test_an_absolute_ridge_takes_precedence():
    X, groups, _ = make_rows([14, 9, 12, 7], 6)
    variance = GroupScatter.from_samples(X, groups).total_variance
    found = DirectFactor(X, 0.5, ridge=0.01 * variance).solve(groups)
    assert_same_subspace(found, DirectFactor(X, 0.01).solve(groups))


@pytest.mark.parametrize("solver", ["cholesky", "eigen", "spectral"])
def test_wide_axes_stay_in_the_span_of_the_rows(solver):
    X, groups, _ = make_rows([14, 9, 12, 7], 70)
    components = DirectFactor(X, 0.01, solver=solver).solve(groups).coefficients.T
    centred = X - X.mean(axis=0)
    basis = np.linalg.svd(centred, full_matrices=False)[2][:-1]
    assert_allclose(components @ basis.T @ basis, components, atol=1e-9)
    assert np.all(components.max(axis=1) >= -components.min(axis=1))


@WEIGHTED
@pytest.mark.parametrize("solver", ["cholesky", "eigen", "spectral"])
def test_wide_rows_without_a_ridge_give_the_small_ridge_limit(weighted, solver):
    X, groups, weights = make_rows([8, 5, 6, 4], 60, weighted=weighted)
    found = DirectFactor(X, 0.0, weights, solver).solve(groups)
    assert (found.rank, found.left) == (3, None)
    W = found.coefficients
    close(W.T @ W, np.eye(3), 1e-10)
    z = found.project(X)
    assert_allclose(z, found.projected.means[groups], atol=1e-9 * np.abs(z).max())  # points
    delta = found.means[1:] - found.means[0]
    close(np.diag(found.eigenvalues), (delta @ W).T @ (delta @ W), 1e-9)
    angles = [
        largest_angle(W.T, DirectFactor(X, value, weights).solve(groups).coefficients.T)
        for value in (1e-2, 1e-4, 1e-6)
    ]
    assert angles[0] > angles[1] > angles[2]
    assert angles[2] < 1e-4
    # And they are the span of the paper's regression on targets known from the labels.
    literal = np.linalg.pinv(X - found.means[0], rcond=1e-10) @ np.eye(4)[groups][:, 1:]
    assert largest_angle(W.T, literal.T) < 1e-7
    two = DirectFactor(X, 0.0, weights, solver).solve(groups, 2)
    close(two.coefficients, W[:, :2])


def test_wide_rows_without_a_ridge_and_equal_means_are_refused():
    half, _, _ = make_rows([4, 6], 60)
    X = np.vstack([half, -half]) + 0.3
    with pytest.raises(ValueError, match="every subclass mean equals the positive mean"):
        DirectFactor(X, 0.0).solve(np.tile([0] * 4 + [1] * 6, 2))


@WEIGHTED
def test_an_inaccurate_leverage_gap_comes_from_the_gram_matrix(weighted):
    """With almost as many features as rows, removing a row leaves hardly any scatter."""
    X, groups, weights = make_rows([12, 9, 9], 28, weighted=weighted)
    found = DirectFactor(X, 1e-10, weights).solve(groups)
    expected = next(wide(X, [1e-10], weights)).solve(groups)
    assert found.left.gap < 1e-3
    assert_same_subspace(found, expected, rtol=1e-9)


@TALL_AND_WIDE
@pytest.mark.parametrize("solver", ["cholesky", "eigen"])
def test_resampled_negatives_have_subclasses_of_equal_size(width, solver):
    X, groups, _ = make_rows([14, 40, 5, 12], width)

    def found(seed):
        rng = np.random.default_rng(seed)
        return DirectFactor(X, 0.01, None, solver, rng).solve(groups)

    assert_array_equal(found(0).projected.counts, [14, 19, 19, 19])
    assert found(0).left is None
    assert_array_equal(found(0).project(X), found(0).project(X))
    assert np.any(found(0).project(X) != found(1).project(X))


@pytest.mark.more  # many draws
def test_many_draws_return_to_the_subclasses_they_came_from():
    """Weights multiply the draws; subclasses of equal size get equal weight in the covariances."""
    X, groups, weights = make_rows([50, 300, 100], 3, weighted=True)
    factor = DirectFactor(X, 0.01, 400 * weights, resample=np.random.default_rng(0))
    found = factor.solve(groups)
    s = GroupScatter.from_samples(X, groups, weights=weights)
    means = found.means
    assert_allclose(means[0], s.means[0])
    assert_allclose(means, s.means, atol=0.05)
    share = s.n_negative / 2
    within = []
    for group in (1, 2):
        rows, w = X[groups == group] - s.means[group], weights[groups == group]
        within.append(share * (rows * w[:, None]).T @ rows / w.sum())
    equal = GroupScatter(np.array([s.counts[0], share, share]), s.means, s.positive, sum(within))
    expected, _, _ = scatter_subspace(equal, "cholesky", 0.01, None)
    assert_allclose(found.projected.counts, 400 * equal.counts)
    # The scatter that scales the axes is 400 times that of weight one; the ridge is small.
    assert largest_angle(found.coefficients.T, expected.coefficients.T) < 0.05
    assert_allclose(found.eigenvalues * 400, expected.eigenvalues, rtol=0.05)


def test_the_leading_axes_are_kept_within_their_bound():
    projection = Projection(np.eye(4), np.array([4.0, 3.0, 2.0, 1.0]), 4)
    for wanted, most, kept, rank in [(None, 9, 4, 4), (2, 9, 2, 4), (9, 3, 3, 3), (None, 2, 2, 2)]:
        found = keep_leading(projection, wanted, most)
        assert (len(found.components), len(found.eigenvalues), found.rank) == (kept, kept, rank)
    with pytest.raises(ValueError, match="every subclass mean equals the positive mean"):
        keep_leading(Projection(np.empty((0, 4)), np.empty(0), 0), None, 3)
