"""The feature maps: exact, incremental, Nystroem and random Fourier features."""

import tracemalloc

import numpy as np
import pytest
from factories import in_turn, refuses
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_factories import (
    EVERY_KERNEL,
    SETTINGS,
    kernel_problem,
    labelled,
    rbf,
)
from numpy.testing import assert_allclose, assert_array_equal
from scipy.linalg import eigh
from scipy.spatial.distance import pdist
from sklearn.kernel_approximation import Nystroem
from sklearn.metrics.pairwise import pairwise_kernels

from pcsda import ExactKernelMap, FourierMap, NystroemMap
from pcsda.core.linalg import pivoted_cholesky
from pcsda.maps import base, pivots

METHOD = pytest.mark.parametrize("method", ["cholesky", "eigen"])
LANDMARKS = in_turn("landmarks", ["random", "kmeans", "pivoted"])
GAMMA = 0.05


def clusters(n_rows=400, n_clusters=8, width=4, seed=0):
    """Draw rows of clusters that differ a hundredfold in size."""
    rng = np.random.default_rng(seed)
    share = np.geomspace(1, 100, n_clusters)
    label = rng.choice(n_clusters, n_rows, p=share / share.sum())
    return 6 * rng.standard_normal((n_clusters, width))[label] + rng.standard_normal(
        (n_rows, width)
    )


# The exact map


@METHOD
@EVERY_KERNEL
@pytest.mark.parametrize("duplicates", [False, True], ids=["distinct", "repeated"])
def test_inner_products_of_exact_features_equal_the_kernel(name, method, duplicates):
    X, new, _, _, matrix, cross = kernel_problem(name, duplicates=duplicates)
    model = ExactKernelMap(method=method, tol=1e-12, **SETTINGS[name])
    features = model.fit_transform(X)
    scale = np.abs(matrix).max()
    assert_allclose(features @ features.T, matrix, atol=1e-9 * scale)
    # Features cover only the span of the training rows, not what is orthogonal to it.
    assert_allclose(model.transform(new) @ features.T, cross, atol=1e-8 * scale)
    assert model.n_components_ == features.shape[1] <= np.linalg.matrix_rank(matrix, tol=1e-13)


@METHOD
def test_new_rows_in_the_training_span_keep_their_inner_products(method):
    X, new = labelled()[0], labelled(seed=1)[0]
    model = ExactKernelMap("linear", method=method).fit(X)
    features = model.transform(new)
    assert features.shape == (len(new), 5)
    assert_allclose(features @ features.T, new @ new.T, rtol=1e-9, atol=1e-9)


def test_cholesky_features_of_the_pivots_are_triangular():
    X = labelled()[0]
    model = ExactKernelMap(gamma=GAMMA).fit(X)
    at_pivots = model.transform(model.pivots_)
    assert_allclose(np.triu(at_pivots, 1), 0, atol=1e-7)
    assert np.all(at_pivots.diagonal() > 0)


@EVERY_KERNEL
def test_eigenvalues_equal_the_kernel_matrixs(name):
    X, _, _, _, matrix, _ = kernel_problem(name)
    model = ExactKernelMap(method="eigen", **SETTINGS[name]).fit(X)
    expected = eigh(matrix, eigvals_only=True)[::-1]
    kept = model.n_components_
    assert_allclose(model.eigenvalues_, expected[:kept], rtol=1e-6, atol=1e-9 * expected[0])
    assert np.all(model.eigenvalues_ > 1e-14 * expected[0])
    assert np.all(expected[kept:] < 2e-14 * len(X) * matrix.diagonal().max())
    features = model.transform(X)
    assert_allclose(features.T @ features, np.diag(model.eigenvalues_), atol=1e-8 * expected[0])


@METHOD
@pytest.mark.parametrize("n_components", [1, 7, 20])
def test_a_limit_keeps_the_leading_features_and_reports_the_rest(method, n_components):
    X = labelled()[0]
    matrix = rbf(X, X, GAMMA)
    whole = ExactKernelMap(gamma=GAMMA, method=method).fit(X)
    model = ExactKernelMap(gamma=GAMMA, method=method, n_components=n_components).fit(X)
    features = model.transform(X)
    assert features.shape == (len(X), n_components)
    assert_allclose(features, whole.transform(X)[:, :n_components], atol=1e-8)
    missing = np.trace(matrix) - np.sum(features**2)
    assert_allclose(model.missing_trace_, missing, atol=1e-9)
    assert missing > 1e-3
    if method == "eigen":
        assert_allclose(missing, eigh(matrix, eigvals_only=True)[:-n_components].sum(), rtol=1e-9)


def test_eigenvectors_lose_less_than_the_same_number_of_pivots():
    X = labelled()[0]
    missing = [
        ExactKernelMap(gamma=GAMMA, method=method, n_components=6).fit(X).missing_trace_
        for method in ("eigen", "cholesky")
    ]
    assert missing[0] < 0.9 * missing[1]


@METHOD
def test_nothing_is_missing_without_a_limit(method):
    X = labelled()[0]
    model = ExactKernelMap(gamma=GAMMA, method=method, n_components=10_000).fit(X)
    assert 0 <= model.missing_trace_ < 1e-8
    assert model.n_components_ <= len(X)


@pytest.mark.parametrize("tol", [0.3, 1e-2, 1e-4])
def test_pivoting_stops_at_the_tolerance(tol):
    X = labelled()[0]
    matrix = rbf(X, X, GAMMA)
    model = ExactKernelMap(gamma=GAMMA, tol=tol).fit(X)
    features = model.transform(X)
    left = matrix.diagonal() - np.sum(features**2, axis=1)
    assert left.max() <= tol
    fewer = ExactKernelMap(gamma=GAMMA, n_components=model.n_components_ - 1).fit(X)
    assert (1 - np.sum(fewer.transform(X) ** 2, axis=1)).max() > tol
    assert_allclose(model.missing_trace_, left.sum(), atol=1e-10)
    eigen = ExactKernelMap(gamma=GAMMA, tol=tol, method="eigen").fit(X)
    assert np.all(eigen.eigenvalues_ > tol * eigen.eigenvalues_[0])


def test_a_tolerance_of_zero_keeps_the_kernel():
    X = labelled()[0]
    model = ExactKernelMap("linear", tol=0).fit(np.vstack([X, X]))
    features = model.transform(X)
    assert_allclose(features @ features.T, X @ X.T, atol=1e-9)


def test_the_map_has_as_many_features_as_the_kernels_rank():
    X = labelled()[0]
    assert ExactKernelMap("linear").fit(X).n_components_ == 5
    assert ExactKernelMap("linear", method="eigen").fit(X).n_components_ == 5
    repeated = np.vstack([X[:9]] * 4)
    assert ExactKernelMap(gamma=1.0).fit(repeated).n_components_ == 9


def test_wide_rows_have_at_most_as_many_features_as_rows():
    X = labelled(2000)[0]
    features = ExactKernelMap("linear").fit_transform(X)
    assert features.shape == (52, 52)
    assert_allclose(features @ features.T, X @ X.T, rtol=1e-9)


@pytest.mark.each_value
@METHOD
@pytest.mark.parametrize("scale", [1e-100, 1e-30, 1e30])
@pytest.mark.parametrize("kernel", ["linear", "rbf", "cosine", "laplacian"])
def test_the_scale_of_the_rows_does_not_matter(kernel, scale, method):
    X = labelled()[0]
    here, there = ExactKernelMap(kernel, method=method), ExactKernelMap(kernel, method=method)
    features, scaled = here.fit_transform(X), there.fit_transform(scale * X)
    scaled /= scale if kernel == "linear" else 1.0
    assert_allclose(scaled @ scaled.T, features @ features.T, rtol=1e-7, atol=1e-7)
    assert here.n_components_ == there.n_components_


@METHOD
def test_offsets_do_not_break_the_rbf_map(method):
    X = labelled()[0] + 1e8
    features = ExactKernelMap(method=method, gamma=GAMMA, tol=1e-6).fit_transform(X)
    assert_allclose(features @ features.T, rbf(X, X, GAMMA), atol=1e-4)


# Adding rows


def added(batches, **params):
    model = ExactKernelMap(**params)
    for batch in batches:
        model.partial_fit(batch)
    return model


@pytest.mark.each_value
@METHOD
@pytest.mark.parametrize("name", ["linear", "rbf", "laplacian", "polynomial", "cosine", "callable"])
@pytest.mark.parametrize("sizes", [[1, 1, 50], [26, 26], [51, 1], [10] * 5 + [2]], ids=str)
def test_rows_added_in_batches_give_the_batch_map(name, method, sizes):
    X, new, _, _, matrix, cross = kernel_problem(name)
    model = added(np.split(X, np.cumsum(sizes)[:-1]), method=method, **SETTINGS[name])
    features = model.transform(X)
    scale = np.abs(matrix).max()
    assert_allclose(features @ features.T, matrix, atol=1e-8 * scale)
    assert_allclose(model.transform(new) @ features.T, cross, atol=1e-6 * scale)
    assert model.missing_trace_ <= 1e-8 * np.trace(matrix)
    whole = ExactKernelMap(method=method, **SETTINGS[name]).fit(X)
    at_new, expected = model.transform(new), whole.transform(new)
    assert_allclose(at_new @ at_new.T, expected @ expected.T, atol=1e-6 * scale)
    if method == "eigen":
        assert_allclose(model.eigenvalues_[:5], whole.eigenvalues_[:5], rtol=1e-8)
        assert_allclose(features.T @ features, np.diag(model.eigenvalues_), atol=1e-8 * scale * 52)


@settings(max_examples=30)
@given(
    cuts=st.lists(st.integers(1, 39), max_size=6, unique=True),
    rows=st.permutations(range(40)),
    repeats=st.booleans(),
    method=st.sampled_from(["cholesky", "eigen"]),
)
def test_any_batching_in_any_order_gives_the_kernel(cuts, rows, repeats, method):
    X = labelled()[0][: 20 if repeats else 40]
    X = np.vstack([X, X]) if repeats else X
    X = X[list(rows)]
    model = added(np.split(X, sorted(cuts)), method=method, gamma=GAMMA)
    features = model.transform(X)
    assert_allclose(features @ features.T, rbf(X, X, GAMMA), atol=1e-8)
    assert model.n_components_ <= (20 if repeats else 40)
    assert_allclose(model.missing_trace_, 0, atol=1e-7)


def test_earlier_cholesky_features_only_gain_zeros():
    X = labelled()[0]
    model = ExactKernelMap(gamma=GAMMA).fit(X[:20])
    before = model.transform(X[:20])
    after = model.partial_fit(X[20:40]).transform(X[:20])
    assert after.shape[1] > before.shape[1] + 10
    assert_allclose(after[:, : before.shape[1]], before, atol=1e-12)
    assert_allclose(after[:, before.shape[1] :], 0, atol=1e-7)


def test_repeated_rows_add_nothing():
    X = labelled()[0]
    model = ExactKernelMap(gamma=GAMMA).fit(X)
    before = model.transform(X)
    model.partial_fit(X[::2])
    assert_allclose(model.transform(X), before, atol=1e-12)
    assert_allclose(model.trace_, len(X) + len(X[::2]), rtol=1e-12)
    assert model.missing_trace_ < 1e-8


@METHOD
@pytest.mark.parametrize(
    ("n_rows", "step"), [(150, 5e-5), pytest.param(300, 2e-4, marks=pytest.mark.more)]
)
def test_near_duplicates_are_not_blamed_on_the_kernel(method, n_rows, step):
    X = np.random.default_rng(0).standard_normal((n_rows, 3))
    close = X + step * np.random.default_rng(1).standard_normal(X.shape)
    model = added([X, close], gamma=0.2, method=method)
    both = np.vstack([X, close])
    features = model.transform(both)
    assert_allclose(features @ features.T, rbf(both, both, 0.2), atol=1e-8)


def test_later_rows_of_another_scale_add_no_features_of_rounding():
    X = labelled()[0]
    model = added([X, 1e5 * X], kernel="linear")
    assert model.n_components_ == 5


@METHOD
def test_a_limit_holds_for_all_batches_together(method):
    X = labelled()[0]
    model = added([X[:8], X[8:30], X[30:]], gamma=GAMMA, method=method, n_components=12)
    features = model.transform(X)
    assert features.shape[1] == 12
    matrix = rbf(X, X, GAMMA)
    assert_allclose(model.missing_trace_, len(X) - np.sum(features**2), atol=1e-8)
    if method == "eigen":
        assert_allclose(model.eigenvalues_, eigh(matrix, eigvals_only=True)[::-1][:12], rtol=1e-8)
    else:  # the features of twelve pivots, whichever they are
        at_pivots = rbf(X, model.pivots_, GAMMA)
        nystroem = at_pivots @ np.linalg.solve(
            rbf(model.pivots_, model.pivots_, GAMMA), at_pivots.T
        )
        assert_allclose(features @ features.T, nystroem, atol=1e-8)


def test_the_first_batch_fixes_the_bandwidth():
    X = labelled()[0]
    model = ExactKernelMap().partial_fit(X[:20])
    gamma = model.kernel_.gamma
    assert gamma == ExactKernelMap().fit(X[:20]).kernel_.gamma
    assert model.partial_fit(10 * X).kernel_.gamma == gamma


def test_fit_starts_anew_after_partial_fit():
    X = labelled()[0]
    model = added([X[:20], X[20:]], gamma=GAMMA).fit(X[:10])
    assert_array_equal(model.transform(X), ExactKernelMap(gamma=GAMMA).fit(X[:10]).transform(X))
    assert model.missing_trace_ < 1e-9


def test_rows_cannot_be_added_to_a_precomputed_kernel():
    X = labelled()[0]
    matrix = rbf(X, X, GAMMA)
    model = ExactKernelMap("precomputed").partial_fit(matrix)
    message = "partial_fit cannot add rows to a precomputed kernel; pass the rows and a kernel"
    with refuses(message):
        model.partial_fit(matrix)


def test_added_rows_need_the_same_columns():
    X = labelled()[0]
    model = ExactKernelMap(gamma=GAMMA).fit(X)
    with refuses("X has 4 features, but ExactKernelMap is expecting 5 features as input"):
        model.partial_fit(X[:, 1:])


# Bad matrices and parameters


@pytest.mark.parametrize(
    "matrix",
    [
        [[1.0, 2.0], [2.0, 1.0]],
        [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 1.0, 0.0]],
        [[1.0, 0.9, 0.0], [0.9, 1.0, 0.9], [0.0, 0.9, 1.0]],
        [[4.0, 0.0, 0.0], [0.0, -1.0, 1.0], [0.0, 1.0, -1.0]],
        [[4.0, 0.0, 0.0], [0.0, -1.0, -1.0], [0.0, -1.0, -1.0]],
    ],
    ids=["large entry", "zero diagonal", "not transitive", "negative", "negative block"],
)
@METHOD
def test_an_indefinite_matrix_is_refused(matrix, method):
    message = (
        "the kernel matrix is not positive semi-definite; use a positive definite kernel such as "
        "'rbf', or other kernel parameters"
    )
    with refuses(message):
        ExactKernelMap("precomputed", method=method).fit(matrix)


@pytest.mark.parametrize("coef0", [-1.0, 0.0, 1.0])
@pytest.mark.parametrize("make", [ExactKernelMap, NystroemMap])
def test_an_indefinite_sigmoid_is_refused(make, coef0):
    X = labelled()[0]
    matrix = np.tanh(0.1 * X @ X.T + coef0)
    assert eigh(matrix, eigvals_only=True)[0] < -0.1
    with refuses("the kernel matrix is not positive semi-definite"):
        make(kernel="sigmoid", gamma=0.1, coef0=coef0).fit(X)


@pytest.mark.parametrize("seed", range(20))
def test_indefinite_matrices_of_any_kind_are_detected(seed):
    """One eigenvalue of a kernel matrix is made negative, down to a share of 1e-3."""
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.standard_normal((30, 30)))[0]
    rank = rng.integers(3, 29)
    spectrum = np.concatenate([rng.uniform(0.1, 1, rank), [-(10.0 ** -rng.uniform(0, 3))]])
    matrix = (basis[:, : rank + 1] * spectrum) @ basis[:, : rank + 1].T
    with refuses("the kernel matrix is not positive semi-definite"):
        ExactKernelMap("precomputed").fit((matrix + matrix.T) / 2)
    spectrum[-1] = 0
    matrix = (basis[:, : rank + 1] * spectrum) @ basis[:, : rank + 1].T
    assert ExactKernelMap("precomputed").fit((matrix + matrix.T) / 2).n_components_ == rank


@pytest.mark.parametrize("largest", [0.0, -2.0])
def test_a_matrix_without_a_positive_diagonal_is_refused(largest):
    message = (
        f"the kernel matrix has no positive diagonal entry (largest {largest:.3g}); a kernel must "
        "give k(x, x) > 0"
    )
    with refuses(message):
        ExactKernelMap("precomputed").fit(np.diag([largest, -2.0]))


@pytest.mark.parametrize("floor", [0.0, 1e-3, 0.2])
def test_the_remainder_of_pivoted_cholesky_is_below_the_floor(floor):
    X = labelled()[0]
    matrix = rbf(X, X, GAMMA)
    factor, order, pivots = pivoted_cholesky(matrix.copy(), floor, 1.0)
    assert_array_equal(np.sort(order), np.arange(len(X)))
    assert_array_equal(order[: len(pivots)], pivots)
    left = matrix[np.ix_(order, order)] - factor @ factor.T
    assert left.diagonal().max() <= max(floor, 1e-12)
    assert_allclose(left[: len(pivots)], 0, atol=1e-12)
    steps = factor.diagonal()
    assert np.all(np.diff(steps) <= 1e-12)


def test_a_matrix_below_the_floor_has_no_pivots():
    factor, order, pivots = pivoted_cholesky(1e-3 * np.eye(4), 0.1, 1.0)
    assert factor.shape == (4, 0)
    assert len(pivots) == 0
    assert_array_equal(order, np.arange(4))


@pytest.mark.parametrize("make", [ExactKernelMap, NystroemMap, FourierMap])
@pytest.mark.parametrize("n_components", [0, -3, 2.5, "many", True])
def test_a_number_of_features_must_be_a_whole_number(make, n_components):
    message = f"n_components={n_components!r} must be a whole number of at least 1"
    with refuses(message):
        make(n_components=n_components).fit(labelled()[0])


@pytest.mark.parametrize("make", [ExactKernelMap, NystroemMap])
@pytest.mark.parametrize("tol", [-1e-9, np.nan, np.inf, "small"])
def test_a_tolerance_must_be_a_number_of_at_least_zero(make, tol):
    with refuses(f"tol={tol!r} must be a number of at least 0"):
        make(tol=tol).fit(labelled()[0])


def test_an_unknown_method_is_refused():
    with refuses("method='svd' must be one of 'cholesky', 'eigen'"):
        ExactKernelMap(method="svd").fit(labelled()[0])


@pytest.mark.parametrize(
    "model",
    [
        NystroemMap(10, kernel="polynomial", gamma=1.0),
        ExactKernelMap("polynomial", gamma=1.0),
    ],
    ids=str,
)
def test_rows_that_overflow_are_refused_and_named(model):
    X = labelled()[0]
    model.fit(X)
    rows = X.copy()
    rows[7] = 1e308
    with refuses("row 7 of X is too large to map; bring X to the fitted scale"):
        model.transform(rows)


def far_and_thin(offset=1e6):
    """Return rows so far from zero that their inner products lose all distinguishing digits."""
    rng = np.random.default_rng(3)
    return rng.standard_normal((40, 5)) * [1, 0.1, 0.01, 0.1, 1] + offset


@METHOD
@pytest.mark.parametrize("make", [ExactKernelMap, lambda **given: NystroemMap(40, **given)])
def test_the_linear_kernel_keeps_the_digits_of_the_rows(make, method):
    X = far_and_thin()
    model = make(kernel="linear", **({"method": method} if make is ExactKernelMap else {}))
    features = model.fit_transform(X)
    assert features.shape == X.shape
    assert_allclose(pdist(features), pdist(X), rtol=1e-6)
    assert_allclose(features @ features.T, X @ X.T, rtol=1e-12)


def test_the_linear_kernel_maps_the_largest_possible_rows():
    model = ExactKernelMap("linear").fit(labelled()[0])
    row = np.full((1, model.n_features_in_), 1e200)
    assert_allclose(np.linalg.norm(model.transform(row) / 1e200), np.sqrt(row.shape[1]))


def test_rows_added_to_the_linear_kernel_keep_their_digits():
    X = far_and_thin()
    model = ExactKernelMap("linear").fit(X[:3])
    model.partial_fit(X[3:4]).partial_fit(X[4:])
    assert model.n_components_ == 5
    assert_allclose(pdist(model.transform(X)), pdist(X), rtol=1e-6)
    at_pivots = model.transform(model.pivots_)
    assert_allclose(at_pivots, model.factor_, atol=1e-8)


@pytest.mark.parametrize("make", [ExactKernelMap, NystroemMap])
def test_the_linear_kernel_of_zeros_is_refused(make):
    with refuses("all rows of X are equal (total variance 0); at least two different rows are"):
        make(kernel="linear").fit(np.zeros((5, 3)))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize(
    "model", [ExactKernelMap(), NystroemMap(10), FourierMap(10)], ids=lambda m: type(m).__name__
)
def test_nan_and_infinity_are_refused(model, bad):
    X = labelled()[0]
    rows = X.copy()
    rows[3, 1] = bad
    with pytest.raises(ValueError, match=r"Input X contains (NaN|infinity)"):
        model.fit(rows)
    model.fit(X)
    with pytest.raises(ValueError, match=r"Input X contains (NaN|infinity)"):
        model.transform(rows)


# Nystroem


@pytest.mark.parametrize("name", [name for name in SETTINGS if name != "precomputed"])
@LANDMARKS
def test_nystroem_with_all_landmarks_equals_the_exact_map(name, landmarks):
    X, new, _, _, matrix, cross = kernel_problem(name)
    model = NystroemMap(len(X), landmarks, tol=1e-12, **SETTINGS[name])
    features = model.fit_transform(X)
    scale = np.abs(matrix).max()
    assert_allclose(features @ features.T, matrix, atol=1e-9 * scale)
    assert_allclose(model.transform(new) @ features.T, cross, atol=1e-8 * scale)


@LANDMARKS
@pytest.mark.parametrize("n_components", [1, 5, 30])
def test_there_are_never_more_features_than_requested(landmarks, n_components):
    X = clusters()
    model = NystroemMap(n_components, landmarks, gamma=GAMMA, random_state=0)
    assert model.fit_transform(X).shape == (len(X), n_components)
    assert model.pivots_.shape == (n_components, 4)
    given = NystroemMap(n_components, X[:100], gamma=GAMMA).fit(X)
    assert given.n_components_ == n_components


@LANDMARKS
def test_features_reproduce_the_kernel_on_the_landmarks(landmarks):
    X = clusters()
    model = NystroemMap(20, landmarks, gamma=GAMMA, random_state=0)
    features = model.fit_transform(X)
    at = rbf(X, model.pivots_, GAMMA)
    expected = at @ np.linalg.solve(rbf(model.pivots_, model.pivots_, GAMMA), at.T)
    assert_allclose(features @ features.T, expected, atol=1e-8)
    on_rows = np.array([np.any(np.all(pivot == X, axis=1)) for pivot in model.pivots_])
    assert on_rows.all() == (landmarks != "kmeans")


@pytest.mark.parametrize("kernel", ["rbf", "laplacian", "polynomial"])
def test_the_same_landmarks_give_scikit_learns_map(kernel):
    X = clusters()
    given = {"kernel": kernel, "gamma": GAMMA, "degree": 2, "coef0": 1}
    theirs = Nystroem(n_components=25, random_state=0, **given).fit(X)
    ours = NystroemMap(25, X[theirs.component_indices_], **given).fit(X)
    a, b = ours.transform(X), theirs.transform(X)
    assert_allclose(a @ a.T, b @ b.T, atol=1e-6 * np.abs(b @ b.T).max())


def test_given_landmarks_are_used_and_repeated_ones_count_once():
    X = clusters()
    landmarks = np.vstack([X[:6], X[:6]])
    model = NystroemMap(50, landmarks, gamma=GAMMA).fit(X)
    assert model.n_components_ == 6
    assert_array_equal(np.sort(model.pivots_, axis=0), np.sort(X[:6], axis=0))
    at_landmarks = model.transform(landmarks)
    assert_allclose(at_landmarks @ at_landmarks.T, rbf(landmarks, landmarks, GAMMA), atol=1e-9)


def test_pivots_are_better_landmarks_than_random_rows_of_clusters():
    """Over eight sets, the mean trace error is at most three quarters of random rows'."""
    errors = {"random": [], "pivoted": []}
    for seed in range(8):
        X = clusters(seed=seed)
        for landmarks, error in errors.items():
            model = NystroemMap(16, landmarks, gamma=0.02, random_state=seed)
            features = model.fit_transform(X)
            error.append(len(X) - np.sum(features**2))
    assert np.mean(errors["pivoted"]) < 0.75 * np.mean(errors["random"])


def test_more_landmarks_approximate_better():
    X = clusters()
    errors = [
        len(X) - np.sum(NystroemMap(L, gamma=GAMMA, random_state=0).fit_transform(X) ** 2)
        for L in (5, 20, 80, 320)
    ]
    assert np.all(np.diff(errors) < 0)
    assert errors[-1] < 0.05 * errors[0]


@LANDMARKS
def test_landmarks_are_seeded(landmarks):
    X = clusters(2000)
    first, again, other = (
        NystroemMap(10, landmarks, random_state=seed).fit(X).pivots_ for seed in (0, 0, 1)
    )
    assert_array_equal(first, again)
    assert not np.array_equal(first, other)


@LANDMARKS
def test_fewer_distinct_rows_than_landmarks_are_accepted(landmarks):
    X = np.vstack([labelled()[0][:10]] * 20)
    model = NystroemMap(40, landmarks, gamma=1.0, random_state=0).fit(X)
    features = model.transform(X)
    assert features.shape == (200, 10)
    assert_allclose(features @ features.T, rbf(X, X, 1.0), atol=1e-8)


def test_landmarks_of_another_width_are_refused():
    X = labelled()[0]
    message = "landmarks have 3 features but X has 5; they must be points in the same space"
    with refuses(message):
        NystroemMap(landmarks=X[:10, :3]).fit(X)


@pytest.mark.parametrize("landmarks", [np.nan, np.inf])
def test_landmarks_must_be_finite(landmarks):
    with pytest.raises(ValueError, match=r"Input landmarks contains (NaN|infinity)"):
        NystroemMap(landmarks=np.full((3, 5), landmarks)).fit(labelled()[0])


def test_unknown_landmarks_and_precomputed_kernels_are_refused():
    X = labelled()[0]
    with refuses("landmarks='grid' must be one of 'random', 'kmeans', 'pivoted'"):
        NystroemMap(landmarks="grid").fit(X)
    with refuses("kernel='precomputed' must be one of 'linear', 'rbf'"):
        NystroemMap(kernel="precomputed").fit(X @ X.T)


@pytest.mark.more
def test_nystroem_never_holds_a_kernel_matrix_of_all_rows():
    X = np.random.default_rng(0).standard_normal((20_000, 5))
    for landmarks in ("random", "kmeans", "pivoted"):
        model = NystroemMap(100, landmarks, random_state=0)
        tracemalloc.start()
        features = model.fit_transform(X)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert features.shape == (20_000, 100)
        assert peak < 8 * 20_000**2 / 15  # the features are 16 MB, the bandwidth takes 2000 rows


def test_landmarks_are_chosen_from_a_bounded_number_of_rows(monkeypatch):
    seen = []
    matrix = pivots.training_matrix
    monkeypatch.setattr(
        pivots, "training_matrix", lambda k, rows, _: seen.append(len(rows)) or matrix(k, rows)
    )
    X = clusters(3000)
    for landmarks in ("random", "kmeans", "pivoted"):
        NystroemMap(50, landmarks, gamma=GAMMA, random_state=0).fit(X)
    assert seen == [50, 50, 200]


# Random Fourier features


def fourier_error(n_components, seed, **params):
    """Return the root mean square error of the kernel on fixed rows."""
    X = labelled(6)[0]
    features = FourierMap(n_components, random_state=seed, **params).fit_transform(X)
    exact = pairwise_kernels(X, metric=params["kernel"], gamma=params["gamma"])
    return np.sqrt(np.mean((features @ features.T - exact) ** 2))


@pytest.mark.parametrize(("kernel", "gamma"), [("rbf", 0.02), ("laplacian", 0.05)])
@pytest.mark.more
def test_the_error_falls_with_the_square_root_of_the_number_of_features(kernel, gamma):
    sizes = np.array([32, 128, 512, 2048, 8192])
    errors = [
        np.mean([fourier_error(L, seed, kernel=kernel, gamma=gamma) for seed in range(12)])
        for L in sizes
    ]
    slope = np.polyfit(np.log(sizes), np.log(errors), 1)[0]
    assert -0.55 < slope < -0.45


def test_orthogonal_frequencies_lower_the_error():
    given = {"kernel": "rbf", "gamma": 0.02}
    for L in (12, 48):
        plain, orthogonal = (
            np.mean([fourier_error(L, seed, orthogonal=flag, **given) for seed in range(40)])
            for flag in (False, True)
        )
        assert orthogonal < 0.85 * plain


@pytest.mark.parametrize("width", [1, 3, 8])
def test_orthogonal_frequencies_are_orthogonal_in_blocks_of_the_width(width):
    X = np.random.default_rng(0).standard_normal((20, width))
    frequencies = FourierMap(48, gamma=0.5, orthogonal=True, random_state=0).fit(X).frequencies_
    assert frequencies.shape == (width, 24)
    for start in range(0, 24, width):
        block = frequencies[:, start : start + width]
        gram = block.T @ block
        assert_allclose(gram, np.diag(gram.diagonal()), atol=1e-10)
    directions = frequencies / np.linalg.norm(frequencies, axis=0)
    parallel = np.abs(directions[:, :width].T @ directions[:, width : 2 * width])
    assert width == 1 or np.all(parallel < 1 - 1e-6)  # blocks do not repeat each other


@pytest.mark.each_value
@pytest.mark.parametrize(
    ("kernel", "orthogonal"), [("rbf", False), ("rbf", True), ("laplacian", False)]
)
@pytest.mark.parametrize("offset", [0.0, 1e8])
def test_many_features_reproduce_the_kernel_of_new_rows(kernel, orthogonal, offset):
    X, new = labelled(2)[0] + offset, labelled(2, seed=1)[0] + offset
    model = FourierMap(20_000, kernel=kernel, gamma=0.5, orthogonal=orthogonal, random_state=0).fit(
        X
    )
    exact = pairwise_kernels(new - offset, X - offset, metric=kernel, gamma=0.5)
    assert_allclose(model.transform(new) @ model.transform(X).T, exact, atol=0.04)


def test_a_common_offset_costs_fourier_features_no_digits_in_single_precision():
    X = np.round(64 * labelled()[0]) / 64  # exact in single precision also at the offset
    far = (X + 2.0**17).astype(np.float32)
    assert_array_equal(far - np.float32(2**17), X)
    model = FourierMap(200, gamma=GAMMA, random_state=0)
    exact = model.fit(X).transform(X)
    features = model.fit(far).transform(far)
    assert_allclose(features @ features.T, exact @ exact.T, atol=1e-4)


def test_features_have_unit_length():
    X = labelled()[0]
    features = FourierMap(100, random_state=0).fit_transform(X)
    assert_allclose(np.sum(features**2, axis=1), 1, rtol=1e-12)


@pytest.mark.parametrize("n_components", [1, 2, 7, 100])
def test_there_are_as_many_features_as_requested(n_components):
    X = labelled()[0]
    model = FourierMap(n_components, random_state=0)
    assert model.fit_transform(X).shape == (len(X), n_components)
    assert model.n_components_ == n_components


@pytest.mark.parametrize("params", [{}, {"kernel": "laplacian"}, {"orthogonal": True}], ids=str)
def test_frequencies_are_seeded(params):
    X = labelled()[0]
    first, again, other = (
        FourierMap(20, random_state=seed, **params).fit_transform(X) for seed in (0, 0, 1)
    )
    assert_array_equal(first, again)
    assert np.abs(first - other).max() > 0.01


def test_orthogonal_frequencies_need_the_rbf_kernel():
    message = "orthogonal=True needs kernel='rbf', got kernel='laplacian'; set orthogonal=False"
    with refuses(message):
        FourierMap(kernel="laplacian", orthogonal=True).fit(labelled()[0])


@pytest.mark.parametrize("kernel", ["polynomial", "precomputed", np.dot], ids=str)
def test_kernels_without_frequencies_are_refused(kernel):
    with refuses(f"kernel={kernel!r} must be one of 'rbf', 'laplacian'"):
        FourierMap(kernel=kernel).fit(labelled()[0])


def test_fourier_needs_a_number_of_features():
    with refuses("n_components=None must be a whole number of at least 1"):
        FourierMap(None).fit(labelled()[0])


# All maps

EVERY_MAP = pytest.mark.parametrize(
    "model",
    [
        ExactKernelMap(gamma=GAMMA),
        ExactKernelMap(gamma=GAMMA, method="eigen", n_components=20),
        NystroemMap(30, gamma=GAMMA, random_state=0),
        NystroemMap(30, "kmeans", gamma=GAMMA, random_state=0),
        NystroemMap(30, "pivoted", gamma=GAMMA, random_state=0),
        FourierMap(30, gamma=GAMMA, random_state=0),
        FourierMap(30, gamma=GAMMA, kernel="laplacian", random_state=0),
    ],
    ids=lambda model: " ".join(str(model).split()),
)


@EVERY_MAP
def test_single_precision_is_kept_and_close(model):
    X = clusters()
    wide = model.fit(X).transform(X)
    narrow = model.fit(X.astype(np.float32)).transform(X.astype(np.float32))
    assert wide.dtype == np.float64
    assert narrow.dtype == np.float32
    assert_allclose(narrow @ narrow.T, wide @ wide.T, atol=2e-4)
    assert model.transform(X).dtype == np.float64


@METHOD
@pytest.mark.parametrize("panel", [1, 7, 30, 1000])
def test_features_are_made_in_panels_with_the_same_result(monkeypatch, method, panel):
    X = labelled()[0]
    mapped = ExactKernelMap(gamma=GAMMA, method=method).fit(X)
    assert mapped.n_components_ > 30
    new = labelled(seed=1)[0]
    expected = mapped.kernel_(new, mapped.pivots_) @ mapped.whitening_
    monkeypatch.setattr(pivots, "PANEL", panel)
    assert_allclose(mapped.transform(new), expected, rtol=1e-9, atol=1e-9)
    single = mapped.transform(new.astype(np.float32))
    assert single.dtype == np.float32
    assert_allclose(single, expected, atol=2e-3)


@EVERY_MAP
def test_rows_are_mapped_in_blocks_with_the_same_result(monkeypatch, model):
    X = clusters(300)
    model.fit(X)
    expected = model.transform(X)
    monkeypatch.setattr(base, "BLOCK_BYTES", 1)
    monkeypatch.setattr("pcsda.kernels.BLOCK_BYTES", 1)
    seen = []
    progress = base.progress
    monkeypatch.setattr(
        base, "progress", lambda items, *a, **k: seen.extend(items) or progress(items, *a, **k)
    )
    assert_allclose(model.transform(X), expected, atol=1e-9)
    assert seen == [0, 64, 128, 192, 256]
    again = model.fit(X).transform(X)
    assert_allclose(again @ again.T, expected @ expected.T, atol=1e-8)


@EVERY_MAP
def test_inputs_are_not_written_to(model):
    X = clusters()
    kept = X.copy()
    X.setflags(write=False)
    model.fit(X).transform(X)
    assert_array_equal(X, kept)


@pytest.mark.parametrize("method", ["cholesky", "eigen"])
def test_a_precomputed_matrix_is_not_written_to(method):
    X = labelled()[0]
    matrix = rbf(X, X, GAMMA)
    kept = matrix.copy()
    ExactKernelMap("precomputed", method=method).fit(matrix).transform(matrix)
    assert_array_equal(matrix, kept)


@pytest.mark.each_value
@EVERY_MAP
@pytest.mark.parametrize(
    "form", [np.asfortranarray, lambda X: np.repeat(X, 2, axis=1)[:, ::2]], ids=["F", "strided"]
)
def test_the_layout_of_the_rows_does_not_matter(model, form):
    X = clusters()
    expected = model.fit(X).transform(X)
    found = model.fit(form(X)).transform(form(X))
    assert_allclose(found @ found.T, expected @ expected.T, atol=1e-9)
