"""Inner products and kernels against the primal definitions and exact rational arithmetic."""

from fractions import Fraction

import numpy as np
import pytest
from factor_factories import WEIGHTED, assert_same_subspace, close
from factories import make_rows, paper_statistics
from numpy.testing import assert_allclose, assert_array_equal

from pcsda.core import gram, kernel_matrix, linalg
from pcsda.core.direct import DirectFactor

SIZES = [8, 5, 6, 2]


def rbf_matrix(X, gamma=0.05):
    return np.exp(-gamma * ((X[:, None] - X[None]) ** 2).sum(axis=2))


def eigen_features(matrix):
    """Return rows whose inner products equal the matrix."""
    values, vectors = np.linalg.eigh(matrix)
    return vectors * np.sqrt(np.maximum(values, 0))


@WEIGHTED
@pytest.mark.parametrize("regularization", [1e-1, 1e-3])
def test_solving_a_kernel_equals_solving_its_features(weighted, regularization):
    X, groups, weights = make_rows([16, 12, 15, 9], 5, weighted=weighted)
    matrix = rbf_matrix(X)
    (factor,) = gram.of_kernel(matrix.copy(), [regularization], weights)
    features = eigen_features(matrix)
    expected = DirectFactor(features, regularization, weights).solve(groups)
    assert_same_subspace(factor.solve(groups), expected, (matrix, features), 1e-7)
    exact, pivots, triangle = kernel_matrix.features_of(matrix.copy(), weights, regularization)
    assert_allclose(exact @ exact.T, matrix, atol=1e-9)
    assert_allclose(exact[pivots], triangle, atol=1e-12)
    inner = DirectFactor(exact, regularization, weights)
    found = kernel_matrix.FeatureFactor(inner, pivots, triangle).solve(groups)
    assert found.means is None
    assert_same_subspace(found, expected, (matrix, features), 1e-6)


@WEIGHTED
def test_a_kernel_matrix_has_the_total_variance_of_its_rows(weighted):
    X, groups, weights = make_rows(SIZES, 4, weighted=weighted)
    expected = paper_statistics(X, groups, weights).total_variance
    assert_allclose(kernel_matrix.total_variance(X @ X.T, weights), expected, rtol=1e-11)
    assert_allclose(kernel_matrix.kernel_ridge(X @ X.T, weights, 0.3), 0.3 * expected, rtol=1e-11)


@WEIGHTED
@pytest.mark.parametrize("block", [1, 2**20])
def test_moving_the_origin_centres_rows_up_to_a_constant_feature(monkeypatch, weighted, block):
    monkeypatch.setattr(linalg, "BLOCK_BYTES", block)
    X, groups, weights = make_rows(SIZES, 4, weighted=weighted)
    far = X + 50
    s = paper_statistics(X, groups, weights)
    matrix = far @ far.T
    means = kernel_matrix.move_origin(matrix, weights, s.total_variance)
    mean = np.average(far, axis=0, weights=weights)
    assert_allclose(means, far @ mean, rtol=1e-12)
    centred = far - mean
    assert_allclose(matrix, centred @ centred.T + s.total_variance / len(X), atol=1e-8)
    near = X @ X.T
    assert kernel_matrix.move_origin(near, weights, s.total_variance) is None
    assert_array_equal(near, X @ X.T)


def test_solving_preserves_the_factor_unless_it_may_be_overwritten():
    X, groups, _ = make_rows([8, 5, 6], 40)
    for factor in (next(gram.wide(X, [0.1])), next(gram.of_kernel(rbf_matrix(X, 1e-3), [0.1]))):
        before = factor.factor.copy()
        first = factor.solve(groups)
        assert_array_equal(factor.factor, before)
        assert_same_subspace(factor.solve(groups), first, rtol=1e-12)


def exact_gaps(X, groups, regularization, weights):
    """Compute gaps 1 - f h, ridge and ``Delta A`` of integer rows in rational arithmetic."""
    rows = [[Fraction(int(value)) for value in row] for row in X]
    w = [Fraction(weight) for weight in weights]
    members = [[i for i in range(len(rows)) if groups[i] == g] for g in range(max(groups) + 1)]
    columns = range(len(rows[0]))

    def mean(chosen):
        total = sum(w[i] for i in chosen)
        return [sum(w[i] * rows[i][j] for i in chosen) / total for j in columns]

    grand, means = mean(range(len(rows))), [mean(chosen) for chosen in members]
    counts = [sum(w[i] for i in chosen) for chosen in members]
    spread = sum(w[i] * (rows[i][j] - grand[j]) ** 2 for i in range(len(rows)) for j in columns)
    ridge = Fraction(regularization) * spread / sum(w)
    residuals = [[rows[i][j] - means[groups[i]][j] for j in columns] for i in range(len(rows))]
    deltas = [[mean[j] - means[0][j] for j in columns] for mean in means[1:]]
    # Gauss-Jordan elimination on [S_I + eps I | residuals | deltas].
    system = [
        [sum(x * r[a] * r[b] for x, r in zip(w, residuals, strict=True)) for b in columns]
        + [r[a] for r in residuals]
        + [delta[a] for delta in deltas]
        for a in columns
    ]
    for c in columns:
        system[c][c] += ridge
    for c in columns:
        system[c] = [value / system[c][c] for value in system[c]]
        for r in columns:
            if r != c:
                share = system[r][c]
                system[r] = [x - share * y for x, y in zip(system[r], system[c], strict=True)]
    gaps = []
    for i, own in enumerate(residuals):
        h = sum(own[a] * system[a][len(columns) + i] for a in columns)
        total = counts[groups[i]]
        gaps.append(float(1 - w[i] * total / (total - w[i]) * h))
    solved = [[float(v) for v in system[a][len(columns) + len(rows) :]] for a in columns]
    return np.array(gaps), float(ridge), np.array(solved).T


@WEIGHTED
@pytest.mark.parametrize("regularization", [1e-4, 1e-10, 1e-13])
def test_left_out_gaps_are_accurate_at_a_tiny_ridge(monkeypatch, weighted, regularization):
    rng = np.random.default_rng(0)
    groups = np.array([0, 0, 0, 0, 1, 1, 1, 2, 2])
    X = rng.integers(-9, 10, (len(groups), 12)).astype(float)
    weights = rng.integers(1, 5, len(groups)) / 2 if weighted else np.ones(len(groups))
    gaps, ridge, delta_a = exact_gaps(X, groups, regularization, weights)
    assert gaps.max() < 100 * regularization  # computed as 1 - h they would be pure rounding
    seen = []
    leverages = gram.GramFactor._leverages

    def spy(*args):
        seen.append(leverages(*args)[1])
        return leverages(*args)

    monkeypatch.setattr(gram.GramFactor, "_leverages", spy)
    (factor,) = gram.wide(X, [regularization], weights if weighted else None)
    assert_allclose(factor.ridge, ridge, rtol=1e-12)
    components = factor.solve(groups).coefficients.T
    assert_allclose(seen[0], gaps, rtol=1e-9)
    # Components lie in the rows of Delta A, exactly.
    coefficients = np.linalg.lstsq(delta_a.T, components.T)[0]
    assert_allclose(coefficients.T @ delta_a, components, rtol=1e-8, atol=1e-12)


def test_rounding_of_the_factor_adds_no_axis():
    """Without a ridge, rounding errors of inner products look like a feature."""
    X, groups, _ = make_rows([30, 20, 25, 18], 1)
    (factor,) = gram.of_kernel(X @ X.T, [1e-8])
    found = factor.solve(groups)
    assert found.rank == 1
    close(found.eigenvalues, DirectFactor(X, 1e-8).solve(groups).eigenvalues, 1e-5)


@pytest.mark.parametrize("make", [kernel_matrix.kernel_ridge, kernel_matrix.features_of])
def test_non_kernel_values_are_refused(make):
    def call(matrix, regularization=0.1):
        return make(matrix, None, regularization)

    message = "the kernel matrix is not positive definite at regularization=0.1; use a positive"
    with pytest.raises(ValueError, match=message):
        call(-np.eye(4))
    message = "the kernel sees all rows of X as equal: its values of up to 3 do not vary; centre"
    with pytest.raises(ValueError, match=message):
        call(np.full((4, 4), 3.0))
    far = np.full((4, 4), 1e9) + np.eye(4)
    message = (
        r"kernel values of up to 1e\+09 with a variance of 0\.75 in feature space are too coarse "
        r"for regularization=0\.0001; centre X first, change the kernel's parameters or "
    )
    with pytest.raises(ValueError, match=message):
        call(far, 1e-4)


def test_an_indefinite_matrix_has_no_factor():
    matrix = np.diag([1.0, 1.0, -0.5, 1.0])
    message = "the kernel matrix is not positive definite at regularization=0.1; use a positive"
    with pytest.raises(ValueError, match=message):
        next(gram.of_kernel(matrix, [0.1]))


def test_features_that_lose_more_than_the_ridge_are_refused(monkeypatch):
    matrix = rbf_matrix(make_rows([16, 12, 15], 5)[0])
    monkeypatch.setattr(kernel_matrix, "FEATURE_TOLERANCE", 0.3)
    with pytest.raises(ValueError, match=r"are too coarse for regularization=0\.001"):
        kernel_matrix.features_of(matrix, None, 1e-3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_values_too_coarse_for_features_are_refused_in_their_type(dtype):
    near, far = rbf_matrix(make_rows([8, 5], 4)[0]), np.full((4, 4), 1e12) + np.eye(4)
    kernel_matrix.require_fine(near, dtype)
    # Kernel maps accept rows that are all equal.
    kernel_matrix.require_fine(np.full((4, 4), 3.0), dtype)
    message = "are too coarse to tell rows apart; centre X first or change the kernel's"
    with pytest.raises(ValueError, match=message):
        kernel_matrix.require_fine(far, dtype)
    middle = np.full((4, 4), 1e7) + np.eye(4)
    if dtype == np.float32:
        with pytest.raises(ValueError, match=message):
            kernel_matrix.require_fine(middle, dtype)
    else:
        kernel_matrix.require_fine(middle, dtype)
