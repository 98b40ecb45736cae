"""One factorisation for many partitions: each solution equals the one fitted on its own."""

import numpy as np
import pytest
from factories import make_rows, paper_statistics
from numpy.testing import assert_allclose, assert_array_equal

from pcsda.core import dual, linalg, shared
from pcsda.core import model as models
from pcsda.core.density import Rule
from pcsda.core.linalg import SingularMatrixError

WEIGHTED = pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])


def close(found, expected, rtol=1e-8):
    assert_allclose(found, expected, rtol=rtol, atol=rtol * np.abs(expected).max())


def assert_same_subspace(found, expected, rtol=1e-8):
    assert found.rank == expected.rank
    close(found.eigenvalues, expected.eigenvalues, rtol)
    close(found.coefficients, expected.coefficients, rtol)
    close(found.origin, expected.origin, rtol)
    close(found.projected.means, expected.projected.means, rtol)
    close(found.projected.within, expected.projected.within, rtol)
    close(found.left.coordinates, expected.left.coordinates, rtol)
    close(found.left.residuals, expected.left.residuals, rtol)
    assert_array_equal(found.left.alone, expected.left.alone)


def random_partition(rng, n_rows, n_groups):
    """Groups 0..n_groups-1, each of at least two rows."""
    groups = np.concatenate(
        [np.repeat(np.arange(n_groups), 2), rng.integers(n_groups, size=n_rows)]
    )
    return rng.permutation(groups[:n_rows])


@WEIGHTED
def test_centred_rows_have_mean_zero_and_the_variance_of_the_definition(weighted):
    X, groups, weights = make_rows([14, 9, 12], 5, weighted=weighted)
    centred, origin, variance = shared.centre(X + 1e6, weights)
    expected = np.average(X + 1e6, axis=0, weights=weights)
    assert_allclose(origin, expected, rtol=1e-14)
    assert_allclose(np.average(centred, axis=0, weights=weights), 0, atol=1e-9)
    s = paper_statistics(X, groups, weights)
    assert_allclose(variance, s.total_variance, rtol=1e-8)


@WEIGHTED
@pytest.mark.parametrize("ridge", [0.0, 1e-3, 10.0])
def test_rows_are_white_under_the_ridged_total_scatter(weighted, ridge):
    X, _, weights = make_rows([14, 9, 12], 5, weighted=weighted)
    centred = shared.centre(X, weights)[0]
    w = np.ones(len(X)) if weights is None else weights
    inverse = np.linalg.inv((centred * w[:, None]).T @ centred + ridge * np.eye(5))
    both = [shared.whiten(centred, ridge, weights)]
    both += shared.whiten_path(centred, [ridge, 7.0], weights)
    for white in both[:2]:
        close(white.back @ white.back.T, inverse)
        close(white.rows, centred @ white.back)
        close(white.norms, np.einsum("ij,jk,ik->i", centred, inverse, centred))
    assert len(both) == 3


@WEIGHTED
@pytest.mark.parametrize("seed", range(3))
def test_cholesky_and_eigendecomposition_whiten_to_the_same_solution(weighted, seed):
    X, groups, weights = make_rows([14, 9, 12, 7], 6, seed=seed, weighted=weighted)
    centred = shared.centre(X, weights)[0]
    ridges = [1e-6, 0.3, 20.0]
    for ridge, white in zip(ridges, shared.whiten_path(centred, ridges, weights), strict=True):
        by_eigen = shared.PrimalShared(white, ridge, weights).solve(groups, None, True)
        factor = shared.whiten(centred, ridge, weights)
        by_factor = shared.PrimalShared(factor, ridge, weights).solve(groups, None, True)
        assert_same_subspace(by_eigen, by_factor)


def test_features_of_very_different_size_keep_their_digits_on_the_path():
    X, groups, _ = make_rows([14, 9, 12, 7], 4)
    X = X * [1e7, 1.0, 1e-4, 1e4]
    centred = shared.centre(X, None)[0]
    (white,) = shared.whiten_path(centred, [0.0])
    found = shared.PrimalShared(white, 0.0).solve(groups, None, True)
    assert_same_subspace(found, models.direct(centred, groups, None, 0.0, None))


def test_a_singular_scatter_is_refused_by_both_ways_of_whitening():
    X, _, _ = make_rows([14, 9], 3)
    centred = shared.centre(np.column_stack([X, X[:, 0]]), None)[0]
    with pytest.raises(SingularMatrixError):
        shared.whiten(centred, 0.0)
    with pytest.raises(SingularMatrixError):
        list(shared.whiten_path(centred, [0.0]))


@WEIGHTED
@pytest.mark.parametrize("seed", range(6))
def test_random_partitions_solve_to_the_direct_fit(weighted, seed):
    rng = np.random.default_rng(seed)
    X, _, weights = make_rows([20, 25, 35], 7, seed=seed, weighted=weighted)
    centred, _, variance = shared.centre(X, weights)
    ridge = 10.0 ** rng.integers(-6, 1) * variance
    engine = shared.PrimalShared(shared.whiten(centred, ridge, weights), ridge, weights)
    for n_groups in (2, 4, 9):
        groups = random_partition(rng, len(X), n_groups)
        direct = models.direct(centred, groups, weights, ridge, None)
        assert_same_subspace(engine.solve(groups, None, True), direct)
        one = engine.solve(groups, 1, False)
        assert one.left is None
        close(one.coefficients, direct.coefficients[:, :1])


@WEIGHTED
@pytest.mark.parametrize("seed", range(4))
def test_wide_rows_solve_to_the_direct_fit(weighted, seed):
    rng = np.random.default_rng(seed)
    X, _, weights = make_rows([8, 9, 13], 45, seed=seed, weighted=weighted)
    centred, _, variance = shared.centre(X, weights)
    ridge = 0.05 * variance
    root = 1.0 if weights is None else np.sqrt(weights)[:, None]
    gram, trace = models.lifted_gram(centred * root, weights)
    assert_allclose(trace, variance * (len(X) if weights is None else weights.sum()), rtol=1e-12)
    engine = shared.DualShared(models.gram_factor(gram, trace, ridge), ridge, True, weights)
    for n_groups in (2, 4, 7):
        groups = random_partition(rng, len(X), n_groups)
        found = engine.solve(groups, None, True)
        direct = models.direct(centred, groups, weights, ridge, None)
        components = centred.T @ found.coefficients
        signs = np.sign(np.sum(components * direct.coefficients, axis=0))
        close(found.eigenvalues, direct.eigenvalues)
        close(components * signs, direct.coefficients)
        close(found.left.coordinates * signs, direct.left.coordinates)
        close(found.left.residuals * signs, direct.left.residuals)


def test_a_gram_matrix_without_ridge_is_refused():
    X, _, _ = make_rows([8, 9], 45)
    gram, trace = models.lifted_gram(shared.centre(X, None)[0], None)
    with pytest.raises(SingularMatrixError, match="rounding beside the scatter"):
        models.gram_factor(gram, trace, 0.0)


def random_cells(seed):
    """Labels and clusters of 60 rows; cluster 3 is of class 1 alone, cluster 2 has no class 0."""
    rng = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(4), rng.integers(4, size=56)])
    clusters = np.concatenate([np.zeros(4, dtype=int), rng.integers(3, size=56)])
    clusters[(clusters == 2) & (labels == 0)] = 1
    clusters[np.flatnonzero(labels == 1)[1:4]] = 3
    order = rng.permutation(60)
    return labels[order], clusters[order]


def brute_groups(labels, clusters, label):
    groups = np.zeros(len(labels), dtype=int)
    left = sorted({c for own, c in zip(labels, clusters, strict=True) if own != label})
    for row, (own, cluster) in enumerate(zip(labels, clusters, strict=True)):
        groups[row] = 0 if own == label else 1 + left.index(cluster)
    return groups


@pytest.mark.parametrize("seed", range(4))
def test_cells_give_groups_counts_and_sums_of_every_class(seed):
    labels, clusters = random_cells(seed)
    values = np.random.default_rng(seed).standard_normal((60, 3))
    cells = shared.Cells.of(labels, clusters)
    assert cells.counts.sum() == 60
    assert len(cells.counts) == len({*zip(labels.tolist(), clusters.tolist(), strict=True)})
    sums = cells.sums(values)
    totals = cells.totals(sums)
    for cluster in range(4):
        assert_allclose(totals[cluster], values[clusters == cluster].sum(axis=0), atol=1e-12)
    for label in range(4):
        expected = brute_groups(labels, clusters, label)
        groups, counts = cells.partition(label)
        assert_array_equal(groups, expected)
        assert_array_equal(counts, np.bincount(expected))
        by_group = [values[expected == g].sum(axis=0) for g in range(expected.max() + 1)]
        assert_allclose(cells.group_sums(label, sums, totals), by_group, atol=1e-12)


def test_a_cluster_that_is_empty_without_a_class_is_dropped_for_it_alone():
    labels, clusters = random_cells(0)
    cells = shared.Cells.of(labels, clusters)
    assert [len(cells.partition(label)[1]) - 1 for label in range(4)] == [4, 3, 4, 4]
    assert np.all(cells.partition(1)[1] > 0)


def test_clusters_with_gaps_in_their_numbers_change_nothing():
    labels, clusters = random_cells(1)
    plain, gaps = shared.Cells.of(labels, clusters), shared.Cells.of(labels, 3 * clusters + 2)
    values = np.random.default_rng(0).standard_normal((60, 2))
    for label in range(4):
        assert_array_equal(plain.partition(label)[0], gaps.partition(label)[0])
        assert_allclose(
            plain.group_sums(label, plain.sums(values), plain.totals(plain.sums(values))),
            gaps.group_sums(label, gaps.sums(values), gaps.totals(gaps.sums(values))),
        )


@pytest.mark.parametrize("seed", range(3))
def test_a_class_of_the_cells_solves_as_its_partition_does(seed):
    labels, clusters = random_cells(seed)
    X = make_rows([20, 20, 20], 5, seed=seed)[0] + labels[:, None]
    centred, _, variance = shared.centre(X, None)
    ridge = 0.01 * variance
    engine = shared.PrimalShared(shared.whiten(centred, ridge), ridge)
    engine.use(shared.Cells.of(labels, clusters))
    for label in range(4):
        found, groups = engine.solve_class(label, None, True)
        assert_array_equal(groups, brute_groups(labels, clusters, label))
        assert_same_subspace(found, models.direct(centred, groups, None, ridge, None))


@pytest.mark.parametrize("leave_one_out", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_a_class_of_a_kernel_solves_as_the_dual_fit_does(seed, leave_one_out):
    labels, clusters = random_cells(seed)
    X = make_rows([20, 20, 20], 5, seed=seed)[0] + labels[:, None]
    matrix = np.exp(-0.05 * ((X[:, None] - X[None]) ** 2).sum(axis=2))
    ridge = 0.01 * dual.total_variance(matrix, None)
    engine = shared.DualShared(linalg.cholesky_in_place(matrix.copy(), ridge), ridge, leave_one_out)
    kept = engine.factor.copy()
    engine.use(shared.Cells.of(labels, clusters))
    for label in range(4):
        found, groups = engine.solve_class(label, 3, leave_one_out)
        assert_array_equal(groups, brute_groups(labels, clusters, label))
        factor = linalg.cholesky_in_place(matrix.copy(), ridge)
        expected = dual.fit(factor, groups, ridge, None, 3, leave_one_out)
        if leave_one_out:
            assert_same_subspace(found, expected)
        else:
            assert found.left is None
            assert expected.left is None
            close(found.coefficients, expected.coefficients)
    assert_array_equal(engine.factor, kept)


def near_separable():
    """Groups whose rows hardly differ, so that the means take all of the scatter."""
    rng = np.random.default_rng(0)
    groups = rng.permutation(np.repeat(np.arange(4), [12, 10, 9, 11]))
    centres = rng.standard_normal((4, 5))
    return centres[groups] + 1e-6 * rng.standard_normal((len(groups), 5)), groups


def test_groups_that_leave_no_scatter_are_refused_and_the_fallback_is_the_direct_fit():
    X, groups = near_separable()
    centred, _, variance = shared.centre(X, None)
    ridge = 1e-12 * variance
    engine = shared.PrimalShared(shared.whiten(centred, ridge), ridge)
    with pytest.raises(SingularMatrixError, match="too little of the total scatter"):
        engine.solve(groups, None, True)
    found = models.direct(centred, groups, None, ridge, None)
    fitted = models.fit_pcsda(
        X,
        groups,
        weights=None,
        solver="cholesky",
        regularization=1e-12,
        n_components=None,
        rule=Rule(),
        leave_one_out=True,
    )
    close(found.coefficients.T, fitted.projection.components)
    close(found.eigenvalues, fitted.projection.eigenvalues)
    _, scores = models.estimate(
        found.projected, np.eye(found.rank), found.left, groups, None, Rule()
    )
    close(scores, fitted.left_out, 1e-7)


def test_at_an_ample_ridge_the_same_groups_are_solved():
    X, groups = near_separable()
    centred, _, variance = shared.centre(X, None)
    engine = shared.PrimalShared(shared.whiten(centred, 0.1 * variance), 0.1 * variance)
    direct = models.direct(centred, groups, None, 0.1 * variance, None)
    assert_same_subspace(engine.solve(groups, None, True), direct)


def test_white_rows_grow_and_shrink_as_if_whitened_anew():
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(40, 7)) * np.arange(1, 8) + 0.3
    for ridge in (1e-6, 1.0):
        for n in (1, 5, 12):  # fewer and more than there are columns
            white = shared.whiten(rows[:-n], ridge).grown(rows[-n:])
            expected = shared.whiten(rows, ridge)
            close(white.back @ white.back.T, expected.back @ expected.back.T, 1e-10)
            close(white.rows @ white.rows.T, expected.rows @ expected.rows.T, 1e-10)
            close(white.norms, expected.norms, 1e-10)
            kept = rng.permutation(np.arange(40) >= n)
            less, expected = white.shrunk(kept), shared.whiten(rows[kept], ridge)
            close(less.back @ less.back.T, expected.back @ expected.back.T)
            close(less.rows, rows[kept] @ less.back)
            close(less.norms, expected.norms)


def test_white_rows_do_not_shrink_to_rounding():
    rows = np.random.default_rng(4).normal(size=(30, 3))
    rows[1:, 0] *= 1e-8
    kept = np.arange(30) > 0
    with pytest.raises(SingularMatrixError, match="too little of the total scatter"):
        shared.whiten(rows, 1e-12).shrunk(kept)


@pytest.mark.parametrize("leave_one_out", [True, False])
def test_a_kernel_factor_grows_and_shrinks_as_if_made_anew(leave_one_out):
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(30, 4))
    matrix = np.exp(-((rows[:, None] - rows) ** 2).sum(axis=2))

    def fresh(chosen):
        factor = linalg.cholesky_in_place(matrix[np.ix_(chosen, chosen)].copy(), 0.1)
        return shared.DualShared(factor, 0.1, leave_one_out)

    def assert_same(found, chosen):
        expected = fresh(chosen)
        close(np.tril(found.factor), np.tril(expected.factor), 1e-10)
        if leave_one_out:
            close(found.diagonal, expected.diagonal, 1e-10)
        else:
            assert found.diagonal is None

    every = np.arange(30)
    grown = fresh(every[:23]).grown(matrix[23:, :23], matrix[23:, 23:])
    assert_same(grown, every)
    for removed in (every[23:], every[:1], rng.choice(every, 9, replace=False)):
        kept = ~np.isin(every, removed)
        assert_same(grown.shrunk(kept), every[kept])
