"""Solvers against each other, SciPy, scikit-learn and the literal formulas."""

import tracemalloc
from functools import partial

import numpy as np
import pytest
from factories import generalized_eigen, largest_angle, make_rows, paper_statistics
from numpy.testing import assert_allclose, assert_array_equal
from scipy import linalg as scipy_linalg
from scipy import sparse
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from pcsda.core import csda_solvers, solvers
from pcsda.core.linalg import SingularMatrixError
from pcsda.core.scatter import GroupScatter

WEIGHTED = pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
RIDGE = pytest.mark.parametrize("ridge", [0.0, 0.3, 25.0])


def lsqr(X, groups, weights, scatter, ridge):
    return solvers.lsqr(X, groups, scatter.counts, scatter.means, ridge, weights)


def from_scatter(solver):
    return lambda X, groups, weights, scatter, ridge: solver(scatter, ridge)


def by_labels(X, groups, scatter, ridge, d, rng, weights=None):
    targets = csda_solvers.label_targets(groups, d, rng, weights)
    return csda_solvers.by_targets("labels", X, groups, scatter, ridge, targets, weights)


EXACT = {
    "cholesky": from_scatter(solvers.cholesky),
    "eigen": from_scatter(solvers.eigen),
    "spectral": from_scatter(solvers.spectral),
    "lsqr": lsqr,
}
PCSDA = pytest.mark.parametrize("solver", EXACT.values(), ids=EXACT.keys())
CSDA = {
    "eigen": lambda scatter, X, groups, ridge, d: csda_solvers.eigen(scatter, ridge, d),
    "lowrank": lambda scatter, X, groups, ridge, d: csda_solvers.lowrank(scatter, ridge, d),
    "labels": lambda scatter, X, groups, ridge, d: by_labels(
        X, groups, scatter, ridge, d, np.random.default_rng(0)
    ),
    "trace_ratio": lambda scatter, X, groups, ridge, d: csda_solvers.trace_ratio(scatter, ridge, d),
}


def problem(sizes, width, *, seed=0, weighted=False):
    X, groups, weights = make_rows(sizes, width, seed=seed, weighted=weighted)
    return X, groups, weights, GroupScatter.from_samples(X, groups, weights=weights)


def assert_same_components(projection, values, rows, rtol=1e-7):
    assert projection.rank >= len(rows)
    assert_allclose(projection.eigenvalues[: len(rows)], values, rtol=rtol)
    error = np.abs(projection.components[: len(rows)] - rows)
    assert np.all(error <= rtol * np.abs(rows).max(axis=1, keepdims=True)), error.max()


@pytest.mark.each_pair
@PCSDA
@RIDGE
@WEIGHTED
@pytest.mark.parametrize(("sizes", "width"), [([30, 20, 25, 9], 6), ([20, 9, 8, 9, 10], 3)])
def test_exact_solvers_give_the_generalised_eigenvectors(solver, ridge, weighted, sizes, width):
    X, groups, weights, scatter = problem(sizes, width, weighted=weighted)
    s = paper_statistics(X, groups, weights)
    count = min(len(sizes) - 1, width)
    expected = generalized_eigen(s.S_n, s.S_I + ridge * np.eye(width), count)
    projection = solver(X, groups, weights, scatter, ridge)
    assert projection.rank == len(projection.components) == count
    assert_same_components(projection, *expected)


@PCSDA
@RIDGE
@WEIGHTED
def test_components_whiten_the_ridged_denominator(solver, ridge, weighted):
    X, groups, weights, scatter = problem([30, 20, 25, 9], 6, weighted=weighted)
    W = solver(X, groups, weights, scatter, ridge).components
    denominator = scatter.intra + ridge * np.eye(6)
    assert_allclose(W @ denominator @ W.T, np.eye(3), atol=1e-8)


@PCSDA
def test_components_diagonalise_the_numerator_in_descending_order(solver):
    X, groups, weights, scatter = problem([30, 20, 25, 9], 6)
    projection = solver(X, groups, weights, scatter, 0.1)
    W, values = projection.components, projection.eigenvalues
    assert_allclose(W @ scatter.between @ W.T, np.diag(values), atol=1e-7 * values[0])
    assert np.all(np.diff(values) < 0)


@PCSDA
def test_largest_entry_of_each_component_is_positive(solver):
    for seed in range(5):
        X, groups, weights, scatter = problem([30, 20, 25, 9], 6, seed=seed)
        W = solver(X, groups, weights, scatter, 0.1).components
        assert np.all(W.max(axis=1) >= -W.min(axis=1))


@pytest.mark.parametrize("solver", CSDA.values(), ids=CSDA.keys())
def test_largest_entry_of_each_csda_component_is_positive(solver):
    for seed in range(5):
        X, groups, _, scatter = problem([30, 40], 6, seed=seed)
        W = solver(scatter, X, groups, 0.1, 4).components
        assert np.all(W.max(axis=1) >= -W.min(axis=1))


@PCSDA
@pytest.mark.parametrize("lda_solver", ["svd", "lsqr"])
def test_one_subclass_gives_the_lda_direction(solver, lda_solver):
    X, groups, weights, scatter = problem([40, 70], 5)
    # Empirical priors make LDA pool the class covariances to S_I / N.
    lda = LinearDiscriminantAnalysis(solver=lda_solver).fit(X, groups == 0)
    direction = solver(X, groups, weights, scatter, 0.0).components
    assert direction.shape == (1, 5)
    cosine = direction @ lda.coef_[0] / np.linalg.norm(direction) / np.linalg.norm(lda.coef_)
    assert_allclose(abs(cosine), 1, rtol=1e-12)


@PCSDA
def test_equal_subclass_means_lower_the_rank(solver):
    X, groups, weights, _ = problem([30, 12, 14, 16], 6)
    means = np.array([X[groups == g].mean(axis=0) for g in range(4)])
    X += (means[1] - means[3]) * (groups == 3)[:, None]
    scatter = GroupScatter.from_samples(X, groups)
    s = paper_statistics(X, groups)
    projection = solver(X, groups, weights, scatter, 0.2)
    assert projection.rank == len(projection.components) == 2
    assert_same_components(projection, *generalized_eigen(s.S_n, s.S_I + 0.2 * np.eye(6), 2))


@PCSDA
def test_a_subclass_at_the_positive_mean_lowers_the_rank(solver):
    X, groups, weights, _ = problem([30, 12, 14], 6)
    means = np.array([X[groups == g].mean(axis=0) for g in range(3)])
    X += (means[0] - means[2]) * (groups == 2)[:, None]
    scatter = GroupScatter.from_samples(X, groups)
    assert solver(X, groups, weights, scatter, 0.2).rank == 1


@pytest.mark.parametrize(
    ("values", "noise", "count"),
    [
        ([3.0, 2.0, 1.0], 0.0, 3),
        ([3.0, 2.0, 1e-16], 0.0, 2),  # rounding, relative to the largest
        ([3.0, 2.0, 1.0], 1.5, 2),
        ([3.0, 2.0, 1.0], [0.0, 5.0, 0.0], 1),  # what follows noise is noise
        ([3.0, 2.0, 1.0], 3.0, 0),
        ([0.0, 0.0], 0.0, 0),
        ([], 0.0, 0),
    ],
)
def test_axes_count_while_they_exceed_noise(values, noise, count):
    noise = noise if isinstance(noise, float) else np.array(noise)
    assert solvers.count_axes(np.array(values), noise, 10) == count


@pytest.mark.parametrize("offset", [1.0, 1e3, 1e6])
def test_the_noise_level_bounds_rounding_in_mean_distances(offset):
    rng = np.random.default_rng(0)
    means, directions = rng.standard_normal((4, 7)) + offset, rng.standard_normal((7, 3))
    noise = solvers.means_noise(directions, means)
    unit = np.finfo(np.float64).eps * np.abs(means).max(axis=0)
    for _ in range(50):
        moved = unit * rng.uniform(-0.5, 0.5, 7) @ directions
        assert np.all(moved**2 < noise)
    # It scales with directions and means, and is not larger than necessary.
    assert_allclose(solvers.means_noise(3 * directions, 5 * means), 225 * noise)
    assert np.all(noise < 1e3 * (unit @ np.abs(directions)) ** 2)


def test_directions_count_while_the_means_differ_along_them():
    means = np.array([[0.0, 0.0, 1.0], [2.0, 0.0, 1.0], [1.0, 1e-3, 1.0]])
    assert solvers.count_apart(np.eye(3), means) == 2
    assert solvers.count_apart(np.eye(3)[:, [0, 2, 1]], means) == 1
    assert solvers.count_apart(np.eye(3), means + 1e14) == 1  # a thousandth is rounding here
    assert solvers.count_apart(np.eye(3), means + 1e16) == 0


@pytest.mark.parametrize("solver", [solvers.cholesky, solvers.eigen])
def test_a_singular_denominator_without_ridge_is_refused(solver):
    _, _, _, scatter = problem([4, 3, 3], 20)
    with pytest.raises(SingularMatrixError):
        solver(scatter, 0.0)


def test_collinear_features_without_ridge_are_refused():
    X, groups, _ = make_rows([40, 30, 30], 4)
    X = np.column_stack([X, X @ [1.0, 2.0, -1.0, 0.5]])
    with pytest.raises(SingularMatrixError):
        solvers.cholesky(GroupScatter.from_samples(X, groups), 0.0)


def test_leading_components_are_the_first_rows():
    _, _, _, scatter = problem([30, 20, 25, 9], 6)
    projection = solvers.cholesky(scatter, 0.1)
    first = projection.leading(2)
    assert_array_equal(first.components, projection.components[:2])
    assert_array_equal(first.eigenvalues, projection.eigenvalues[:2])
    assert first.rank == 2  # the whole of a smaller problem


def dense_laplacians(groups):
    """Build the N x N matrices L_n of eq. (L_n_eq) and L_I of eq. (L_I_eq)."""
    one = [(groups == g).astype(float) for g in range(groups.max() + 1)]
    n = [o.sum() for o in one]
    L_n = sum(
        np.outer(one[k], one[k]) / n[k] ** 2
        - (np.outer(one[k], one[0]) + np.outer(one[0], one[k])) / (n[k] * n[0])
        + np.outer(one[0], one[0]) / n[0] ** 2
        for k in range(1, len(one))
    )
    L_I = sum(np.diag(o) - np.outer(o, o) / o.sum() for o in one)
    return L_n, L_I


@pytest.mark.parametrize("shift", [1e-3, 1.0])
def test_label_targets_are_the_top_eigenvectors_of_the_label_problem(shift):
    _, groups, _ = make_rows([9, 5, 7, 4], 2)
    L_n, L_I = dense_laplacians(groups)
    targets = solvers.label_targets(np.bincount(groups).astype(float))[groups]
    matrix = np.linalg.solve(L_I + shift * np.eye(len(groups)), L_n)
    values = np.diag(targets.T @ matrix @ targets)
    assert_allclose(targets.T @ targets, np.eye(3), atol=1e-12)
    assert_allclose(matrix @ targets, targets * values, atol=1e-9 / shift)
    top = np.sort(np.linalg.eigvals(matrix).real)[::-1]
    assert_allclose(values, top[:3], rtol=1e-9)
    assert abs(top[3]) < 1e-9 / shift


def test_laplacians_give_the_scatter_matrices():
    X, groups, _ = make_rows([9, 5, 7, 4], 3)
    L_n, L_I = dense_laplacians(groups)
    s = paper_statistics(X, groups)
    assert_allclose(X.T @ L_n @ X, s.S_n, atol=1e-10)
    assert_allclose(X.T @ L_I @ X, s.S_I, atol=1e-10)


@pytest.mark.parametrize("width", [6, 60], ids=["D<N", "D>N"])
def test_spectral_without_ridge_is_the_pseudo_inverse_of_the_paper(width):
    X, groups, _, scatter = problem([15, 10, 12], width)
    L_n, L_I = dense_laplacians(groups)
    V = np.linalg.eigh(L_n)[1][:, -2:]  # L_I vanishes on the range of L_n, so any shift does
    assert_allclose(L_I @ V, 0, atol=1e-12)
    literal = np.linalg.pinv(X - scatter.means[0], rcond=1e-10) @ V
    projection = solvers.spectral(scatter, 0.0)
    assert largest_angle(projection.components, literal.T) < 1e-7


def test_spectral_gives_infinite_eigenvalues_to_a_perfect_fit():
    X, groups, _, scatter = problem([8, 6, 5], 40)
    projection = solvers.spectral(scatter, 0.0)
    assert projection.rank == 2
    assert np.all(np.isinf(projection.eigenvalues))
    z = (X - scatter.means[0]) @ projection.components.T
    expected = scatter.delta @ projection.components.T
    assert_allclose(z[groups > 0], expected[groups[groups > 0] - 1], atol=1e-9)
    assert_allclose(z[groups == 0], 0, atol=1e-9)


@pytest.mark.parametrize("solver", ["spectral", "lsqr"])
def test_partly_exact_targets_are_refused_without_a_ridge(solver):
    # Rank of the rows: 29 - 28 = 1 direction of the targets is left unfitted, the other is not.
    for seed in range(6):
        X, groups, weights, scatter = problem([12, 10, 8], 28, seed=seed)
        with pytest.raises(SingularMatrixError):
            EXACT[solver](X, groups, weights, scatter, 0.0)


class Stubborn(sparse.csr_array):
    """Sparse array that refuses to become dense."""

    def toarray(self, *args, **kwargs):
        raise AssertionError("the sparse array was made dense")

    todense = toarray
    __array__ = toarray


def sparse_problem(n_rows=150, width=20000, seed=0):
    rng = np.random.default_rng(seed)
    groups = rng.permutation(np.arange(n_rows) % 4)
    X = sparse.random_array((n_rows, width), density=0.01, rng=rng, format="csr")
    # Every group has 200 columns that the others use less.
    bump = sparse.random_array((n_rows, 200), density=0.5, rng=rng, format="csr")
    blocks = [bump.multiply((groups == g)[:, None]) for g in range(4)]
    return sparse.csr_array(sparse.hstack([X[:, 800:], *blocks])), groups


@pytest.mark.more  # an array that is not tiny
def test_lsqr_never_densifies_a_wide_sparse_array():
    X, groups = sparse_problem()
    dense = X.toarray()
    scatter_means = np.array([dense[groups == g].mean(axis=0) for g in range(4)])
    counts = np.bincount(groups).astype(float)
    tracemalloc.start()
    projection = solvers.lsqr(Stubborn(X), groups, counts, scatter_means, 0.5)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < dense.nbytes / 4
    # The same problem in coordinates of the row span, where a dense solver can follow.
    basis = scipy_linalg.orth(dense.T)
    scatter = GroupScatter.from_samples(dense @ basis, groups)
    exact = solvers.cholesky(scatter, 0.5)
    assert_allclose(projection.eigenvalues, exact.eigenvalues, rtol=1e-8)
    turned = exact.components @ basis.T
    signs = np.sign(np.einsum("ij,ij->i", turned, projection.components))[:, None]
    assert_allclose(projection.components, turned * signs, atol=1e-7 * np.abs(turned).max())


@pytest.mark.parametrize("form", ["csr", "csc", "dense"])
@WEIGHTED
def test_lsqr_accepts_every_form_of_x(form, weighted):
    X, groups, weights, scatter = problem([20, 15, 18], 30, weighted=weighted)
    X[np.abs(X) < 1] = 0
    scatter = GroupScatter.from_samples(X, groups, weights=weights)
    given = X if form == "dense" else sparse.csr_array(X).asformat(form)
    projection = lsqr(given, groups, weights, scatter, 0.7)
    exact = solvers.eigen(scatter, 0.7)
    assert_same_components(projection, exact.eigenvalues, exact.components)


def test_lsqr_without_ridge_needs_residuals():
    X, groups, _ = make_rows([1, 1, 1], 5)
    scatter = GroupScatter.from_samples(X, groups)
    with pytest.raises(SingularMatrixError):
        lsqr(X, groups, None, scatter, 0.0)


@WEIGHTED
@pytest.mark.parametrize("solver", [csda_solvers.eigen, csda_solvers.lowrank])
@pytest.mark.parametrize("count", [None, 3])
@pytest.mark.parametrize("ridge", [0.0, 0.4])
def test_csda_gives_the_generalised_eigenvectors(solver, count, ridge, weighted):
    X, groups, weights, scatter = problem([40, 60], 7, weighted=weighted)
    s = paper_statistics(X, groups, weights)
    expected = generalized_eigen(s.out_of_class, s.S_p + ridge * np.eye(7), count or 7)
    projection = solver(scatter, ridge, count)
    assert len(projection.components) == (count or 7)
    assert_same_components(projection, *expected)
    W = projection.components
    denominator = W @ (s.S_p + ridge * np.eye(7)) @ W.T
    assert_allclose(denominator, np.eye(count or 7), atol=1e-8)


@pytest.mark.parametrize("solver", [csda_solvers.eigen, csda_solvers.lowrank])
def test_csda_without_ridge_needs_more_positives_than_features(solver):
    _, _, _, scatter = problem([5, 60], 9)
    with pytest.raises(SingularMatrixError):
        solver(scatter, 0.0)


@pytest.mark.parametrize("width", [7, 30], ids=["D<N_n", "D>N_n"])
def test_csda_lowrank_equals_the_literal_regression_on_all_negatives(width):
    X, groups, _, scatter = problem([12, 20], width)
    n_p, negative = np.sum(groups == 0), np.flatnonzero(groups)
    ridge, d = 0.6, 4
    targets = np.zeros((len(X), len(negative)))
    targets[negative, np.arange(len(negative))] = 1  # e_i
    targets[groups == 0] = -1 / n_p  # - 1_p / N_p
    X_m = X - X[groups == 0].mean(axis=0)
    B = np.linalg.solve(X_m.T @ X_m + ridge * np.eye(width), X_m.T @ targets)
    E = np.linalg.eigh(targets.T @ X_m @ B)[1][:, ::-1][:, :d]
    literal = (B @ E).T
    projection = csda_solvers.lowrank(scatter, ridge, d)
    assert largest_angle(projection.components, literal) < 1e-7
    assert largest_angle(csda_solvers.eigen(scatter, ridge, d).components, literal) < 1e-7
    cosines = np.sum(projection.components * literal, axis=1) / np.linalg.norm(literal, axis=1)
    assert_allclose(np.abs(cosines) / np.linalg.norm(projection.components, axis=1), 1)


@WEIGHTED
@pytest.mark.parametrize(("n_n", "width"), [(20, 7), (8, 14)], ids=["D<N_n", "D>N_n"])
def test_csda_labels_with_all_targets_spans_the_subspace_of_csda(n_n, width, weighted):
    X, groups, weights, scatter = problem([25, n_n], width, weighted=weighted)
    rng = np.random.default_rng(5)
    projection = by_labels(X, groups, scatter, 0.3, n_n, rng, weights)
    exact = csda_solvers.eigen(scatter, 0.3, min(n_n, width))
    assert projection.rank == exact.rank == min(n_n, width)
    assert_same_components(projection, exact.eigenvalues, exact.components, rtol=1e-6)


def test_csda_labels_with_one_target_regresses_the_labels():
    X, groups, _, scatter = problem([25, 40], 6)
    n_p, n_n = scatter.counts
    target = np.where(groups > 0, 1.0, -n_n / n_p)
    X_m = X - scatter.means[0]
    slope = np.linalg.solve(X_m.T @ X_m + 0.3 * np.eye(6), X_m.T @ target)
    projection = by_labels(X, groups, scatter, 0.3, 1, np.random.default_rng(0))
    assert largest_angle(projection.components, slope[None]) < 1e-9


@pytest.mark.parametrize("n_positive", [1, 3])
def test_csda_labels_without_ridge_needs_positives_spread_over_the_span(n_positive):
    X, groups, _, scatter = problem([n_positive, 40], 6)
    with pytest.raises(SingularMatrixError):
        by_labels(X, groups, scatter, 0.0, 4, np.random.default_rng(0))


def test_csda_labels_with_whole_weights_equals_repeated_rows():
    X, groups, _ = make_rows([25, 40], 6)
    weights = np.random.default_rng(0).integers(1, 4, len(X))
    many = np.repeat(X, weights, axis=0), np.repeat(groups, weights)
    found = [
        by_labels(
            rows,
            labels,
            GroupScatter.from_samples(rows, labels, weights=w),
            0.3,
            1,
            np.random.default_rng(0),
            w,
        )
        for rows, labels, w in [(X, groups, weights.astype(float)), (*many, None)]
    ]
    assert_allclose(found[0].components, found[1].components, rtol=1e-9)


def test_csda_labels_is_seeded_and_differs_between_seeds():
    X, groups, _, scatter = problem([25, 40], 8)
    solve = partial(by_labels, X, groups, scatter, 0.3, 3)
    first, again, other = (solve(np.random.default_rng(seed)) for seed in (7, 7, 8))
    assert_array_equal(first.components, again.components)
    assert largest_angle(first.components, other.components) > 0.1


def trace_ratio(W, numerator, denominator):
    W = np.linalg.qr(W.T)[0].T
    return np.trace(W @ numerator @ W.T) / np.trace(W @ denominator @ W.T)


@pytest.mark.parametrize("d", [1, 3, 5])
def test_trace_ratio_rises_with_every_step_and_beats_the_ratio_trace(d):
    _, _, _, scatter = problem([40, 60], 7, seed=2)
    parts = scatter.out_of_class, scatter.positive + 0.5 * np.eye(7)
    steps = [
        trace_ratio(csda_solvers.trace_ratio(scatter, 0.5, d, max_iter=n).components, *parts)
        for n in range(1, 8)
    ]
    assert np.all(np.diff(steps) >= -1e-12 * steps[-1])
    assert steps[1] > steps[0] * 1.001  # the first step is not yet the answer
    ratio_trace = trace_ratio(csda_solvers.eigen(scatter, 0.5, d).components, *parts)
    assert steps[-1] >= ratio_trace * (1 - 1e-12)
    if d > 1:
        assert steps[-1] > ratio_trace * 1.001


@pytest.mark.parametrize("d", [1, 3, 5])
def test_trace_ratio_ends_at_a_fixed_point_with_orthonormal_rows(d):
    _, _, _, scatter = problem([40, 60], 7, seed=2)
    projection = csda_solvers.trace_ratio(scatter, 0.5, d)
    numerator, denominator = scatter.out_of_class, scatter.positive + 0.5 * np.eye(7)
    W = projection.components
    assert_allclose(W @ W.T, np.eye(d), atol=1e-12)
    ratio = trace_ratio(W, numerator, denominator)
    top = np.linalg.eigh(numerator - ratio * denominator)[0][::-1][:d]
    # At the optimum the best attainable tr(W'(S_n - rho S_p)W) is zero.
    assert abs(top.sum()) < 1e-9 * np.trace(numerator)
    vectors = np.linalg.eigh(numerator - ratio * denominator)[1][:, ::-1][:, :d]
    assert largest_angle(W, vectors.T) < 1e-6
    quotients = [w @ numerator @ w / (w @ denominator @ w) for w in W]
    assert_allclose(projection.eigenvalues, quotients)
    assert np.all(np.diff(quotients) <= 0)


@pytest.mark.parametrize("d", [1, 4])
def test_no_other_orthonormal_directions_have_a_higher_trace_ratio(d):
    _, _, _, scatter = problem([40, 60], 7, seed=2)
    parts = scatter.out_of_class, scatter.positive + 0.5 * np.eye(7)
    best = trace_ratio(csda_solvers.trace_ratio(scatter, 0.5, d).components, *parts)
    rng = np.random.default_rng(0)
    others = [trace_ratio(rng.standard_normal((d, 7)), *parts) for _ in range(200)]
    assert best >= max(others)


def test_trace_ratio_counts_only_directions_where_negatives_vary():
    _, _, _, scatter = problem([40, 2], 7)
    assert csda_solvers.trace_ratio(scatter, 0.5, 4).rank == 2
    assert csda_solvers.trace_ratio(scatter, 0.5, 2).rank >= 2


@pytest.mark.parametrize("d", [1, 2])
def test_trace_ratio_without_ridge_needs_positives_with_full_spread(d):
    for seed in range(30):  # what is left of equal positives is rounding, of either sign
        X, groups, _ = make_rows([3, 20], 6, seed=seed)
        X[groups == 0] = X[groups == 0][0]
        scatter = GroupScatter.from_samples(X, groups)
        with pytest.raises(SingularMatrixError):
            csda_solvers.trace_ratio(scatter, 0.0, d)


@WEIGHTED
@pytest.mark.parametrize("ridge", [0.0, 0.4])
def test_csda_is_pcsda_with_singleton_subclasses(ridge, weighted):
    X, groups, _, one = problem([40, 60], 7, weighted=weighted)
    weights = None
    if weighted:  # each subclass counts once in S_n, so weights of negatives must be one
        weights = np.where(groups == 0, np.random.default_rng(0).uniform(0.5, 2, len(X)), 1.0)
        one = GroupScatter.from_samples(X, groups, weights=weights)
    singles = groups.copy()
    singles[groups > 0] = np.arange(1, 61)
    many = GroupScatter.from_samples(X, singles, weights=weights)
    csda = csda_solvers.eigen(one, ridge)
    assert_allclose(many.between, one.out_of_class, rtol=1e-11, atol=1e-10)
    assert_allclose(many.phi_o, one.out_of_class / 60, rtol=1e-11, atol=1e-11)
    assert_allclose(many.phi_o, one.phi_o, rtol=1e-11, atol=1e-11)
    for solver in (solvers.cholesky, solvers.eigen, solvers.spectral):
        assert_same_components(solver(many, ridge), csda.eigenvalues, csda.components)
