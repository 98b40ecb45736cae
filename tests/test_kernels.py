"""Kernel functions, bandwidth rules, kernel matrices and the memory they need."""

import re

import numpy as np
import pytest
from factories import refuses
from kernel_factories import EVERY_KERNEL, SETTINGS, kernel_problem, labelled, rational, rbf
from numpy.testing import assert_allclose, assert_array_equal
from scipy.spatial.distance import pdist
from sklearn.metrics.pairwise import pairwise_kernels
from sklearn.svm import SVC

from pcsda import ExactKernelMap, FourierMap, KernelCSDA, KernelPCSDA, NystroemMap, kernels
from pcsda.kernels import (
    FEW_ROWS,
    Kernel,
    bandwidth,
    check_matrix,
    check_memory,
    kernel_matrix,
    squared_distances,
    training_matrix,
)

MAPS = [ExactKernelMap, NystroemMap, FourierMap]
MODELS = [KernelPCSDA, KernelCSDA]


def settled(name):
    given = dict(SETTINGS[name])
    return Kernel(given.pop("kernel"), params=given.pop("kernel_params", {}), **given)


@EVERY_KERNEL
def test_values_equal_scikit_learns(name):
    X, new, _, _, matrix, cross = kernel_problem(name)
    kernel = settled(name)
    assert_allclose(kernel(new, X), cross, rtol=1e-12, atol=1e-14)
    assert_allclose(kernel_matrix(kernel, X), matrix, rtol=1e-12, atol=1e-14)


def test_sigmoid_and_the_default_degree_and_coef0_equal_scikit_learns():
    X, new = labelled()[0], labelled(seed=1)[0]
    for metric in ("sigmoid", "poly", "polynomial"):
        expected = pairwise_kernels(new, X, metric=metric, gamma=0.01)
        assert_allclose(Kernel(metric, 0.01)(new, X), expected, rtol=1e-12)


@EVERY_KERNEL
@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_values_of_other_types_are_exact_doubles(name, dtype):
    X, new, *_ = kernel_problem(name)
    X, new = (5 * X).astype(dtype), (5 * new).astype(dtype)
    found = settled(name)(new, X)
    assert found.dtype == np.float64
    assert_array_equal(found, settled(name)(new.astype(np.float64), X.astype(np.float64)))


def count_values(monkeypatch):
    """Return a list that records the number of values in each block of a matrix."""
    counts, before = [], kernels.values_before

    def counted(kernel, X):
        values = before(kernel, X)
        return lambda start, stop: counts.append((stop - start) * stop) or values(start, stop)

    monkeypatch.setattr(kernels, "values_before", counted)
    return counts


@pytest.mark.each_value
@pytest.mark.parametrize("step", [1, 8 * 200 * 70])
@EVERY_KERNEL
def test_a_matrix_built_in_blocks_equals_the_whole(monkeypatch, name, step):
    X = np.abs(labelled(sizes=[50, 50, 50, 51])[0])
    expected = pairwise_kernels(X, metric="linear") if name == "precomputed" else None
    calls = count_values(monkeypatch)
    monkeypatch.setattr(kernels, "BLOCK_BYTES", step)
    if name == "precomputed":
        found = kernel_matrix(settled(name), expected)
        assert found is not expected
    else:
        found = kernel_matrix(settled(name), X)
        assert len(calls) >= 3
        expected = settled(name)(X, X)
    assert_allclose(found, expected, rtol=1e-12, atol=1e-13)
    assert_allclose(found, found.T, rtol=1e-12, atol=1e-13)


def test_a_matrix_computes_little_more_than_half_of_its_values(monkeypatch):
    monkeypatch.setattr(kernels, "BLOCK_BYTES", 1)
    seen = count_values(monkeypatch)
    kernel_matrix(Kernel("rbf", 1.0), np.zeros((640, 1)))
    assert len(seen) == 10
    assert 100 * sum(seen) == 55 * 640**2


@pytest.mark.parametrize("offset", [1e4, 1e8])
def test_a_common_offset_costs_the_rbf_kernel_no_digits(offset):
    X = np.round(labelled()[0], 2)
    new = np.round(labelled(seed=1)[0], 2)
    kernel = Kernel("rbf", 0.05)
    expected = rbf(X, X, 0.05)
    # The offset itself rounds the rows to about 1e-8.
    assert_allclose(kernel_matrix(kernel, X + offset), expected, atol=1e-7)
    assert_allclose(kernel(new + offset, X + offset), rbf(new, X, 0.05), atol=1e-7)


@pytest.mark.parametrize("scale", [1e-200, 1e-30, 1e30, 1e200])
def test_the_cosine_does_not_depend_on_the_scale(scale):
    X, new = labelled()[0], labelled(seed=1)[0]
    new[3] = 0
    kernel = Kernel("cosine")
    expected = pairwise_kernels(new, X, metric="cosine")
    assert_allclose(kernel(scale * new, scale * X), expected, rtol=1e-9, atol=1e-12)
    assert_array_equal(kernel(new, X)[3], 0)


def test_rbf_never_exceeds_one_and_is_one_on_equal_rows():
    X = 1e3 * labelled()[0]
    values = Kernel("rbf", 0.05)(X, X)
    assert values.max() <= 1
    assert_allclose(values.diagonal(), 1, atol=1e-8)


@pytest.mark.parametrize("n_rows", [1, FEW_ROWS, FEW_ROWS + 1])
def test_far_rows_have_no_similarity_and_raise_no_warning(n_rows):
    X = labelled()[0]
    far = np.full((n_rows, 5), 1e200)
    assert_array_equal(Kernel("rbf", 1.0)(far, X), np.zeros((n_rows, len(X))))


@pytest.mark.parametrize("n_rows", [0, 1, FEW_ROWS, FEW_ROWS + 1])
def test_few_and_many_rows_get_the_same_rbf_values(n_rows):
    X, new = labelled()[0], labelled(seed=1)[0].astype(np.float32)
    kernel = Kernel("rbf", 0.05)
    values = kernel(new[:n_rows], X)
    assert values.dtype == np.float64
    assert_allclose(values, rbf(new, X, 0.05)[:n_rows], rtol=1e-12)
    assert_allclose(kernel.against(X)(new[:n_rows]), values, rtol=1e-12)


# Bandwidth rules


@pytest.mark.parametrize("offset", [0.0, 1e8])
def test_positive_is_the_mean_pairwise_distance_of_the_positives(offset):
    X, y, _ = labelled()
    sigma = pdist(X[y == 1]).mean()
    assert_allclose(bandwidth("positive", X + offset, y == 1), 1 / (2 * sigma**2), rtol=1e-6)


def test_all_is_the_mean_pairwise_distance_of_all_rows():
    X, y, _ = labelled()
    sigma = pdist(X).mean()
    assert_allclose(bandwidth("all", X, None), 1 / (2 * sigma**2), rtol=1e-12)
    assert bandwidth("all", X, None) == bandwidth("all", X, y == 1)


def test_laplacian_and_chi2_use_their_own_distances():
    X, y, _ = labelled()
    manhattan = pdist(X, "cityblock").mean()
    assert_allclose(bandwidth("all", X, None, "laplacian"), 1 / manhattan, rtol=1e-12)
    X = np.abs(X)
    pairs = [np.sum((a - b) ** 2 / (a + b)) for i, a in enumerate(X) for b in X[:i]]
    assert_allclose(bandwidth("all", X, None, "chi2"), 1 / np.mean(pairs), rtol=1e-12)
    own = pdist(X[y == 1], "cityblock").mean()
    assert_allclose(bandwidth("positive", X, y == 1, "laplacian"), 1 / own, rtol=1e-12)


def test_scale_equals_svcs_rule():
    X, y, _ = labelled()
    gamma = bandwidth("scale", X, None)
    theirs, ours = (SVC(gamma=rule).fit(X, y).decision_function(X) for rule in ("scale", gamma))
    assert_allclose(ours, theirs, rtol=1e-9)
    assert KernelPCSDA(gamma="scale", random_state=0).fit(X, y).kernel_.gamma == gamma


@pytest.mark.parametrize("number", [3, 0.25, np.float32(0.5)])
def test_a_number_is_used_unchanged(number):
    assert bandwidth(number, np.zeros((3, 2)), None) == number


@pytest.mark.parametrize("rule", ["positive", "all"])
@pytest.mark.more
def test_the_bandwidth_of_many_rows_is_seeded_and_close(rule):
    X = np.random.default_rng(0).standard_normal((3000, 3))
    positive = np.arange(3000) < 2500
    chosen = X[positive] if rule == "positive" else X
    exact = 1 / (2 * pdist(chosen).mean() ** 2)
    first, again, other = (bandwidth(rule, X, positive, random_state=seed) for seed in (0, 0, 1))
    assert first == again != other
    assert_allclose([first, other], exact, rtol=0.03)
    assert first != exact


def test_up_to_two_thousand_rows_are_all_used():
    X = np.random.default_rng(0).standard_normal((2000, 2))
    gammas = {bandwidth("all", X, None, random_state=seed) for seed in range(3)}
    assert_allclose(list(gammas), 1 / (2 * pdist(X).mean() ** 2), rtol=1e-12)
    assert len(gammas) == 1


def test_the_sample_keeps_memory_bounded(monkeypatch):
    seen = []

    def distances(rows):
        seen.append(len(rows))
        return np.ones((len(rows), len(rows)))

    monkeypatch.setattr(kernels.pairwise, "euclidean_distances", distances)
    bandwidth("all", np.random.default_rng(0).standard_normal((100_000, 2)), None)
    assert seen == [2000]


@pytest.mark.parametrize("n_positive", [1, 4])
@pytest.mark.parametrize("metric", ["rbf", "laplacian", "chi2", "polynomial"])
def test_positives_without_a_distance_fall_back_to_all_rows(n_positive, metric):
    X = np.abs(labelled()[0])
    positive = np.arange(len(X)) < n_positive
    X[positive] = X[0]
    few = {1: "1 positive", 4: "4 positives, all equal"}[n_positive]
    message = f"gamma='positive' is undefined ({few}); using gamma='all'"
    with pytest.warns(UserWarning, match=re.escape(message)):
        gamma = bandwidth("positive", X, positive, metric)
    assert gamma == bandwidth("all", X, None, metric)


@pytest.mark.parametrize("offset", [0.1, 1e8])
@pytest.mark.parametrize("metric", ["rbf", "laplacian"])
def test_equal_rows_far_from_zero_are_recognised(offset, metric):
    X = np.tile(np.array([[0.3, 0.7, 0.1]]) + offset, (7, 1))
    message = "gamma='all' needs rows that differ, got 7 rows that are all equal; set gamma to"
    with refuses(message):
        bandwidth("all", X, None, metric)


@pytest.mark.parametrize("make", MODELS)
@pytest.mark.parametrize("gamma", ["all", "scale", "positive"])
def test_models_refuse_equal_rows(make, gamma):
    with refuses("all rows of X are equal (total variance 0); at least two different rows are ne"):
        make(gamma=gamma).fit(np.full((6, 3), 0.3), [0, 1] * 3)


@pytest.mark.parametrize("make", MAPS)
def test_equal_rows_have_no_bandwidth(make):
    X, y = np.full((6, 3), 0.3), [0, 1] * 3
    message = "gamma='all' needs rows that differ, got 6 rows that are all equal; set gamma to"
    with refuses(message):
        make(gamma="all").fit(X, y)
    with refuses("gamma='scale' needs X to vary, but its variance is 0; give a number"):
        make(gamma="scale").fit(X, y)


@pytest.mark.parametrize("make", MAPS)
def test_one_row_has_no_bandwidth(make):
    with refuses("gamma='all' needs rows that differ, got n_samples = 1; set gamma to a number"):
        make().fit([[1.0, 2.0]])
    assert make(gamma=1.0).fit([[1.0, 2.0]]).transform([[1.0, 2.0]]).shape[0] == 1


@pytest.mark.parametrize("make", MAPS)
def test_positive_without_labels_is_refused(make):
    message = "gamma='positive' needs y to know the positives; give y or use 'all'"
    with refuses(message):
        make(gamma="positive").fit(labelled()[0])


@pytest.mark.parametrize("make", MAPS)
def test_maps_take_the_positives_from_y(make):
    X, y, _ = labelled()
    expected = bandwidth("positive", X, y == 1)
    fitted = make(gamma="positive", random_state=0).fit(X, y)
    other = make(gamma="positive", pos_label=0, random_state=0).fit(X, y)
    default = make(random_state=0).fit(X)
    if make is FourierMap:
        found = [
            np.linalg.norm(m.frequencies_) ** 2 / np.linalg.norm(default.frequencies_) ** 2
            for m in (fitted, other)
        ]
        scale = bandwidth("all", X, None)
        assert_allclose(found, [expected / scale, bandwidth("positive", X, y == 0) / scale])
    else:
        assert fitted.kernel_.gamma == expected
        assert other.kernel_.gamma == bandwidth("positive", X, y == 0)
        assert default.kernel_.gamma == bandwidth("all", X, None)
    with refuses(f"X has {len(X)} rows but y has 3 labels"):
        make(gamma="positive").fit(X, [0, 1, 1])


@pytest.mark.parametrize("make", MODELS)
def test_models_use_the_positives_of_the_class_of_interest(make):
    X, y, _ = labelled()
    assert make().fit(X, y).kernel_.gamma == bandwidth("positive", X, y == 1)
    assert make(pos_label=0).fit(X, y).kernel_.gamma == bandwidth("positive", X, y == 0)


@pytest.mark.parametrize("rule", ["positive", "all", "scale"])
@pytest.mark.parametrize("make", [*MODELS, *MAPS])
def test_squares_that_overflow_are_refused(make, rule):
    X, y, _ = labelled()
    message = (
        "the squares of X overflow because its spread is above 1e150; divide X by its scale first"
    )
    with refuses(message):
        make(gamma=rule).fit(1e200 * X, y)


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_the_bandwidth_follows_the_scale_of_the_rows(scale):
    X, y, _ = labelled()
    for rule in ("positive", "all", "scale"):
        found = bandwidth(rule, scale * X, y == 1)
        assert_allclose(found * scale**2, bandwidth(rule, X, y == 1), rtol=1e-10)


# Bad kernels, bandwidths and matrices


@pytest.mark.parametrize("make", [*MODELS, *MAPS])
def test_unknown_kernels_and_bandwidths_are_refused(make):
    X, y, _ = labelled()
    with refuses("kernel='gauss' must be one of "):
        make(kernel="gauss").fit(X, y)
    with refuses("kernel=3 must be one of "):
        make(kernel=3).fit(X, y)
    with refuses("gamma='median' must be one of 'positive', 'all', 'scale'"):
        make(gamma="median").fit(X, y)


@pytest.mark.parametrize("gamma", [0, -1.5, np.nan, np.inf, True, None, [0.1]])
@pytest.mark.parametrize("make", [*MODELS, *MAPS])
def test_a_bandwidth_must_be_a_number_above_zero(make, gamma):
    X, y, _ = labelled()
    message = f"gamma={gamma!r} must be a number above 0, or one of 'positive', 'all', 'scale'"
    with refuses(message):
        make(gamma=gamma).fit(X, y)


@pytest.mark.parametrize("make", [KernelPCSDA, KernelCSDA, ExactKernelMap, NystroemMap])
@pytest.mark.parametrize("gamma", ["all", 1.0])
def test_chi2_refuses_negative_entries(make, gamma):
    X, y, _ = labelled()
    message = (
        f"kernel='chi2' needs non-negative X; its smallest entry is {X.min():.3g}. Use another "
        "kernel, such as 'rbf'"
    )
    with refuses(message):
        make(kernel="chi2", gamma=gamma).fit(X, y)
    fitted = make(kernel="chi2", gamma=gamma).fit(np.abs(X), y)
    with refuses(message):
        fitted.transform(X)


def fitting(make, matrix, y):
    return make(kernel="precomputed").fit(matrix, y)


PRECOMPUTED = pytest.mark.parametrize("make", [KernelPCSDA, KernelCSDA, ExactKernelMap])


@PRECOMPUTED
@pytest.mark.parametrize("shape", [(52, 40), (52, 60)])
def test_a_precomputed_matrix_must_be_square(make, shape):
    y = labelled()[1]
    message = (
        f"a precomputed kernel matrix must be square in fit, got shape {shape}; pass the kernel "
        "values between all training rows"
    )
    with refuses(message):
        fitting(make, np.ones(shape), y)


@PRECOMPUTED
def test_an_asymmetric_matrix_is_refused(make):
    X, y, _ = labelled()
    matrix = rbf(X, X, 0.05)
    matrix[3, 7] += 1e-3
    message = (
        "the kernel matrix is not symmetric: entries differ by up to 0.001 from their mirror "
        "images, with a diagonal of up to 1; pass (K + K.T) / 2 if that is intended"
    )
    with refuses(message):
        fitting(make, matrix, y)
    matrix = (matrix + matrix.T) / 2
    matrix[3, 7] += 1e-10
    fitting(make, matrix, y)


@PRECOMPUTED
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_matrix_with_nan_or_infinity_is_refused(make, bad):
    X, y, _ = labelled()
    matrix = rbf(X, X, 0.05)
    matrix[3, 7] = matrix[7, 3] = bad
    with pytest.raises(ValueError, match=r"Input X contains (NaN|infinity)"):
        fitting(make, matrix, y)


@PRECOMPUTED
def test_a_different_number_of_columns_at_prediction_is_refused(make):
    X, y, _ = labelled()
    matrix = rbf(X, X, 0.05)
    fitted = fitting(make, matrix, y)
    message = f"X has 51 features, but {make.__name__} is expecting 52 features as input"
    with refuses(message):
        fitted.transform(matrix[:, 1:])


def test_an_asymmetric_kernel_function_is_refused():
    X, y, _ = labelled()
    with pytest.raises(ValueError, match="the kernel matrix is not symmetric: entries differ by"):
        KernelPCSDA(lambda a, b: np.exp(a[0] - b[1])).fit(X, y)


@pytest.mark.parametrize("make", [KernelPCSDA, KernelCSDA, ExactKernelMap, NystroemMap])
def test_a_non_finite_kernel_function_is_refused(make):
    X, y, _ = labelled()
    message = "the kernel matrix contains NaN or infinity; check the kernel's parameters and X"
    with refuses(message):
        make(kernel=lambda a, b: np.nan).fit(X, y)
    with refuses(message):
        make(kernel="linear").fit(1e200 * X, y)
    with refuses(message):
        make(kernel="rbf", gamma=1.0).fit(1e200 * X, y)


@pytest.mark.parametrize("size", [100, pytest.param(4200, marks=pytest.mark.more)])
def test_asymmetry_is_detected_in_matrices_of_every_size(size):
    matrix = np.zeros((size, size))
    np.fill_diagonal(matrix, 2.0)
    check_matrix(matrix, "the matrix")
    for column in (0, size - 2):
        matrix[size - 1, column] = 1e-3
        with refuses("the matrix is not symmetric: entries differ by up to 0.001"):
            check_matrix(matrix, "the matrix")
        matrix[size - 1, column] = 0
    matrix[size - 1, 0] = np.nan
    with refuses("the matrix contains NaN or infinity"):
        check_matrix(matrix, "the matrix")


def test_a_given_matrix_is_copied():
    X = labelled()[0]
    matrix = rbf(X, X, 0.05)
    found = training_matrix(Kernel("precomputed"), matrix)
    assert_array_equal(found, matrix)
    assert not np.shares_memory(found, matrix)


def test_parameters_of_a_function_are_passed_on():
    X = labelled()[0]
    found = Kernel(rational, params={"width": 3.0})(X[:2], X[:3])
    assert_allclose(found[1, 2], rational(X[1], X[2], 3.0), rtol=1e-12)


# Memory


MEMORY = [
    (KernelPCSDA(), 1.5),
    (KernelPCSDA(solver="eigen"), 8.0),
    (KernelPCSDA(balance="resampled"), 8.0),
    (KernelCSDA(), 4.0),
    (KernelCSDA(solver="labels"), 8.0),
    (ExactKernelMap(), 3.0),
    (NystroemMap(), 3.0),
]


class TakenError(Exception):
    """The memory was allocated."""


def taken(*args, **kwargs):
    raise TakenError


@pytest.mark.parametrize(("model", "matrices"), MEMORY, ids=str)
def test_a_fit_that_exceeds_memory_is_refused_before_allocation(monkeypatch, model, matrices):
    X = np.random.default_rng(0).standard_normal((1000, 2))
    y = np.arange(1000) % 2
    needed = matrices * 8e6
    monkeypatch.setattr(kernels, "available_memory", lambda: int(needed))
    monkeypatch.setattr(kernels, "kernel_matrix", taken)
    with pytest.raises(TakenError):  # as much as there is may be taken
        model.fit(X, y)
    monkeypatch.setattr(kernels, "available_memory", lambda: int(needed) - 1)
    message = (
        f"an exact kernel fit on 1000 rows needs {needed / 2**30:.1f} GiB, but only "
        f"{needed / 2**30:.1f} GiB are available; use make_pipeline(NystroemMap("
        "n_components=1000), PCSDA()) instead, or fewer rows"
    )
    with refuses(message, MemoryError):
        model.fit(X, y)


def test_the_message_names_sizes_and_the_remedy(monkeypatch):
    monkeypatch.setattr(kernels, "available_memory", lambda: 3 * 2**30)
    message = (
        "an exact kernel fit on 100000 rows needs 111.8 GiB, but only 3.0 GiB are available; use "
        "make_pipeline(NystroemMap(n_components=1000), PCSDA()) instead, or fewer rows"
    )
    with refuses(message, MemoryError):
        check_memory(100_000, 1.5)
    check_memory(10_000, 1.5)


def test_zero_weight_rows_need_no_memory(monkeypatch):
    X, y, groups = labelled()
    weights = np.where(np.arange(len(X)) < 30, 1.0, 0.0)
    monkeypatch.setattr(kernels, "available_memory", lambda: int(1.5 * 8 * 30**2))
    KernelPCSDA().fit(X, y, subclass_labels=groups, sample_weight=weights)
    with refuses("an exact kernel fit on 52 rows needs", MemoryError):
        KernelPCSDA().fit(X, y)


def test_partial_fit_checks_the_memory_for_its_rows(monkeypatch):
    X = labelled()[0]
    model = ExactKernelMap(gamma=0.1).fit(X)
    monkeypatch.setattr(kernels, "available_memory", lambda: 3 * 8 * 20**2)
    model.partial_fit(X[:20])
    with refuses("an exact kernel fit on 21 rows needs", MemoryError):
        model.partial_fit(X[:21])


@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_an_rbf_kernel_from_squared_distances_equals_the_kernel(offset):
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((30, 5)) + offset, rng.standard_normal((12, 5)) + offset
    kernel = Kernel("rbf", gamma=0.3)
    own = squared_distances(X)
    assert_array_equal(own, own.T)
    assert_allclose(kernel.of_squares(own), kernel(X, X), atol=1e-12)
    assert_allclose(kernel.of_squares(squared_distances(X, Y)), kernel(X, Y), atol=1e-9)
