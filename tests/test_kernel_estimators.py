"""KernelPCSDA and KernelCSDA against the linear estimators on explicit kernel features."""

import dataclasses
import pickle
import re
import tracemalloc

import numpy as np
import pytest
from factories import assert_same_calibration, refit_without_each_row, refuses
from kernel_factories import (
    EVERY_KERNEL,
    SETTINGS,
    WEIGHTED,
    assert_same_axes,
    kernel_problem,
    labelled,
    rbf,
)
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.linalg import eigh
from sklearn.base import clone
from sklearn.cluster import AgglomerativeClustering, KMeans
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError

from pcsda import CSDA, PCSDA, ExactKernelMap, KernelCSDA, KernelPCSDA, NystroemMap
from pcsda.core.kmeans import kernel_kmeans
from pcsda.core.loo import LeftOut, Shifts
from pcsda.metrics import cllr
from pcsda.partition import KERNEL_RESTARTS, kernel_start, make_groups

GAMMA = 0.05
PLAIN = {"covariance": "resubstitution", "calibrate": False}
METHOD = pytest.mark.parametrize("method", ["cholesky", "eigen"])
DENSITY = pytest.mark.parametrize("negatives", ["blend", "mixture", "marginal"])
COVARIANCE = pytest.mark.parametrize("covariance", ["leave-one-out", "resubstitution"])
BOTH = pytest.mark.parametrize("make", [KernelPCSDA, KernelCSDA])


def weights_of(n_rows, weighted=True):
    return np.random.default_rng(5).uniform(0.2, 3, n_rows) if weighted else None


def assert_same_model(found, expected, rows, other_rows, rtol=1e-6):
    """Check that two fitted models agree on the same points, each in its own coordinates."""
    assert_allclose(found.eigenvalues_, expected.eigenvalues_, rtol=rtol)
    assert_allclose(found.subclass_counts_, expected.subclass_counts_, rtol=1e-12)
    assert_allclose(found.class_prior_, expected.class_prior_, rtol=1e-12)
    assert_array_equal(found.partition_, expected.partition_)
    z, w = found.transform(rows), expected.transform(other_rows)
    assert_same_axes(z, w, atol=rtol * np.abs(w).max())
    for method in ("log_likelihood_ratio", "decision_function", "score_samples"):
        a, b = getattr(found, method)(rows), getattr(expected, method)(other_rows)
        assert_allclose(a, b, rtol=rtol, atol=rtol * np.abs(b).max())
    assert hasattr(found, "loo_scores_") == hasattr(expected, "loo_scores_")
    if hasattr(found, "loo_scores_"):
        scale = np.abs(expected.loo_scores_).max()
        assert_allclose(found.loo_scores_, expected.loo_scores_, atol=rtol * scale)


# KernelPCSDA is PCSDA on exact features


@pytest.mark.filterwarnings("ignore:.* rows of X occur more than once")  # on purpose
@pytest.mark.each_value
@EVERY_KERNEL
@METHOD
@DENSITY
@COVARIANCE
@WEIGHTED
@pytest.mark.parametrize("duplicates", [False, True], ids=["distinct", "repeated"])
def test_kernel_pcsda_equals_pcsda_on_exact_features(
    name, method, negatives, covariance, weighted, duplicates
):
    X, new, y, groups, *_ = kernel_problem(name, duplicates=duplicates)
    mapped = ExactKernelMap(method=method, tol=1e-13, **SETTINGS[name]).fit(X)
    given = {"negatives": negatives, "covariance": covariance, "calibrate": False}
    given["regularization"] = 0.1
    fitting = {"subclass_labels": groups, "sample_weight": weights_of(len(X), weighted)}
    found = KernelPCSDA(**SETTINGS[name], **given).fit(X, y, **fitting)
    expected = PCSDA(**given).fit(mapped.transform(X), y, **fitting)
    rows = np.concatenate([X, new])
    assert_same_model(found, expected, rows, mapped.transform(rows), rtol=1e-5)
    assert hasattr(found, "loo_scores_") == (covariance == "leave-one-out")


@pytest.mark.each_value
@EVERY_KERNEL
@METHOD
def test_the_published_rule_equals_pcsdas_on_exact_features(name, method):
    X, new, y, groups, *_ = kernel_problem(name)
    mapped = ExactKernelMap(method=method, tol=1e-13, **SETTINGS[name]).fit(X)
    found = KernelPCSDA.published(3, **SETTINGS[name]).fit(X, y, subclass_labels=groups)
    expected = PCSDA.published(3).fit(mapped.transform(X), y, subclass_labels=groups)
    rows = np.concatenate([X, new])
    assert_same_model(found, expected, rows, mapped.transform(rows), rtol=1e-5)
    assert found.calibration_.slope == 1
    assert found.density_.base.centres.shape == (1, 3)


def test_the_published_rule_takes_overrides():
    model = KernelPCSDA.published(4, 2, gamma=0.3, calibrate=True)
    params = model.get_params()
    chosen = ("n_subclasses", "n_components", "gamma", "calibrate", "negatives", "shrinkage")
    assert [params[name] for name in chosen] == [4, 2, 0.3, True, "marginal", 0]
    assert KernelCSDA.published(2, gamma=0.3).get_params()["shrinkage"] == 0


@pytest.mark.each_pair
@COVARIANCE
@pytest.mark.parametrize("name", ["rbf", "linear", "precomputed"])
@WEIGHTED
@pytest.mark.parametrize("negatives", ["blend", "mixture"])
def test_calibration_equals_that_of_pcsda_on_exact_features(name, covariance, weighted, negatives):
    X, new, y, groups, *_ = kernel_problem(name, spread=0.3)
    mapped = ExactKernelMap(tol=1e-13, **SETTINGS[name]).fit(X)
    fitting = {"subclass_labels": groups, "sample_weight": weights_of(len(X), weighted)}
    # A small ridge, so that there is something to calibrate.
    given = {"covariance": covariance, "negatives": negatives, "random_state": 3}
    given["regularization"] = 0.01
    found = KernelPCSDA(**SETTINGS[name], **given).fit(X, y, **fitting)
    expected = PCSDA(**given).fit(mapped.transform(X), y, **fitting)
    assert_same_calibration(found.calibration_, expected.calibration_, 1e-5)
    assert abs(found.calibration_.slope - 1) > 1e-3
    assert_same_model(found, expected, new, mapped.transform(new), rtol=1e-5)


@pytest.mark.each_pair
@pytest.mark.parametrize("width", [5, 300], ids=["D<N", "D>N"])
@DENSITY
@COVARIANCE
@WEIGHTED
def test_the_linear_kernel_equals_linear_pcsda(width, negatives, covariance, weighted):
    X, y, groups = labelled(width)
    new = labelled(width, seed=1)[0]
    given = {"negatives": negatives, "covariance": covariance, "random_state": 0}
    fitting = {"subclass_labels": groups, "sample_weight": weights_of(len(X), weighted)}
    found = KernelPCSDA("linear", **given).fit(X, y, **fitting)
    expected = PCSDA(**given).fit(X, y, **fitting)
    assert_same_model(found, expected, X, X, rtol=1e-8)
    assert_same_model(found, expected, new, new, rtol=1e-8)


@pytest.mark.parametrize("regularization", [1e-2, 1e-4, 1e-6])
@pytest.mark.parametrize(("width", "n_subclasses"), [(1, 3), (2, 8), (3, 5)])
def test_more_subclasses_than_dimensions_add_no_axes_of_rounding(
    width, n_subclasses, regularization
):
    X, y, groups = labelled(width, sizes=[20] + [12] * n_subclasses)
    given = {"regularization": regularization, "calibrate": False}
    found = KernelPCSDA("linear", **given).fit(X, y, subclass_labels=groups)
    expected = PCSDA(**given).fit(X, y, subclass_labels=groups)
    assert found.n_components_ == expected.n_components_ == width
    assert_same_model(found, expected, X, X, rtol=1e-4)


@pytest.mark.each_value
@pytest.mark.parametrize("solver", ["cholesky", "eigen", "spectral"])
@pytest.mark.parametrize("offset", [1e2, 1e4, 1e8])
def test_a_common_offset_hardly_affects_the_linear_kernel(solver, offset):
    X, y, groups = labelled()
    fitting = {"subclass_labels": groups}
    expected = PCSDA(calibrate=False).fit(X, y, **fitting)
    found = KernelPCSDA("linear", solver=solver, calibrate=False).fit(X + offset, y, **fitting)
    assert_same_model(found, expected, X + offset, X, rtol=1e-11 + 1e-13 * offset)
    weighted = {"sample_weight": weights_of(len(X)), **fitting}
    expected = PCSDA(calibrate=False).fit(X, y, **weighted)
    found = KernelPCSDA("linear", solver=solver, calibrate=False).fit(X + offset, y, **weighted)
    assert_same_model(found, expected, X + offset, X, rtol=1e-11 + 1e-13 * offset)


# Inner products as they are; those of kernel="linear" are taken about the mean of the rows.
INNER = {"kernel": "poly", "gamma": 1.0, "degree": 1, "coef0": 0}


@pytest.mark.parametrize(
    "model",
    [
        KernelPCSDA(**INNER),
        KernelPCSDA(solver="eigen", **INNER),
        KernelPCSDA(solver="lsqr", **INNER),
        KernelCSDA(**INNER),
    ],
    ids=lambda model: " ".join(str(model).split()),
)
def test_values_too_coarse_for_the_ridge_are_refused(model):
    X, y, groups = labelled()
    model = clone(model).set_params(regularization=0.01)
    fitting = {"subclass_labels": groups} if isinstance(model, KernelPCSDA) else {}
    message = "in feature space are too coarse for regularization=0.01; centre X first"
    with refuses(message):
        model.fit(X + 1e7, y, **fitting)
    with refuses("the kernel sees all rows of X as equal: its values of up to 5e+22 do not vary"):
        model.fit(X + 1e11, y, **fitting)


@pytest.mark.parametrize("model", [KernelCSDA(**INNER), KernelPCSDA(solver="eigen", **INNER)])
def test_features_hidden_by_rounding_are_refused_not_dropped(model):
    X, y, _ = labelled(sizes=[400, 300, 300])
    # Directions whose pivots are below 1e-12 of the values at the offset, but not below the ridge.
    X[:, 3:] = 0.004 * np.sign(X[:, 3:])
    model = clone(model).set_params(regularization=0.01).fit(X, y)
    KernelPCSDA(regularization=0.01, **INNER).fit(X + 4e3, y)
    message = "in feature space are too coarse for regularization=0.01; centre X first"
    with refuses(message):
        model.fit(X + 4e3, y)


@pytest.mark.parametrize("kernel", ["rbf", "laplacian"])
@BOTH
def test_offsets_do_not_break_kernels_of_differences(make, kernel):
    X, y, _ = labelled()
    given = {"kernel": kernel, "random_state": 0}
    here, there = make(**given).fit(X, y), make(**given).fit(X + 1e8, y)
    scores = here.log_likelihood_ratio(X)
    scale = np.abs(scores).max()
    assert_allclose(there.log_likelihood_ratio(X + 1e8), scores, atol=1e-5 * scale)


@pytest.mark.each_value
@pytest.mark.parametrize("scale", [1e-30, 1e30])
@BOTH
def test_the_scale_of_the_rows_does_not_matter(make, scale):
    X, y, _ = labelled()
    for kernel in ("rbf", "laplacian", "linear", "cosine"):
        here = make(kernel, random_state=0).fit(X, y)
        there = make(kernel, random_state=0).fit(scale * X, y)
        expected = here.log_likelihood_ratio(X)
        assert_allclose(there.log_likelihood_ratio(scale * X), expected, rtol=1e-6, atol=1e-7)


# Solvers


@pytest.mark.filterwarnings("ignore:.* rows of X occur more than once")  # on purpose
@pytest.mark.each_value
@pytest.mark.parametrize("name", ["rbf", "linear", "polynomial", "precomputed"])
@COVARIANCE
@DENSITY
@WEIGHTED
@pytest.mark.parametrize("duplicates", [False, True], ids=["distinct", "repeated"])
def test_all_exact_solvers_agree(name, covariance, negatives, weighted, duplicates):
    X, new, y, groups, *_ = kernel_problem(name, duplicates=duplicates)
    fitting = {"subclass_labels": groups, "sample_weight": weights_of(len(X), weighted)}
    given = {"covariance": covariance, "negatives": negatives, "calibrate": False}
    fitted = {
        solver: KernelPCSDA(solver=solver, **SETTINGS[name], **given).fit(X, y, **fitting)
        for solver in ("auto", "cholesky", "eigen", "spectral")
    }
    for solver in ("auto", "eigen", "spectral"):
        assert_same_model(fitted[solver], fitted["cholesky"], X, X, rtol=1e-6)
        assert_same_model(fitted[solver], fitted["cholesky"], new, new, rtol=1e-5)


@pytest.mark.parametrize("name", ["rbf", "linear", "precomputed"])
@WEIGHTED
def test_iterative_least_squares_agrees_to_its_tolerance(name, weighted):
    X, new, y, groups, *_ = kernel_problem(name)
    fitting = {"subclass_labels": groups, "sample_weight": weights_of(len(X), weighted)}
    found = KernelPCSDA(solver="lsqr", **SETTINGS[name], **PLAIN).fit(X, y, **fitting)
    expected = KernelPCSDA(**SETTINGS[name], **PLAIN).fit(X, y, **fitting)
    assert_same_model(found, expected, new, new, rtol=1e-4)


def test_iterative_least_squares_leaves_nothing_out():
    X, y, groups = labelled(spread=0.3)
    model = KernelPCSDA(gamma=GAMMA, solver="lsqr").fit(X, y, subclass_labels=groups)
    assert not hasattr(model, "loo_scores_")
    assert abs(model.calibration_.slope - 1) > 0.01  # from folds


def test_resampled_draws_are_seeded_and_made_in_feature_space():
    X, y, groups = labelled()
    given = {"balance": "resampled", "calibrate": False, "regularization": 0.1}
    first, again, other = (
        KernelPCSDA(gamma=GAMMA, random_state=seed, **given).fit(X, y, subclass_labels=groups)
        for seed in (0, 0, 1)
    )
    assert_array_equal(first.eigenvalues_, again.eigenvalues_)
    assert np.abs(first.eigenvalues_ / other.eigenvalues_ - 1).max() > 1e-3
    features = ExactKernelMap(gamma=GAMMA, tol=1e-12).fit_transform(X)
    expected = PCSDA(random_state=0, **given).fit(features, y, subclass_labels=groups)
    assert_same_model(first, expected, X, features, rtol=1e-6)


def test_resampled_draws_are_refused_with_least_squares():
    X, y, _ = labelled()
    message = (
        "solver='lsqr' does not take the dense draws of balance='resampled'; use solver='auto' or "
        "balance='pooled'"
    )
    with refuses(message):
        KernelPCSDA(solver="lsqr", balance="resampled").fit(X, y)


# Leave-one-out


@pytest.mark.each_pair
@pytest.mark.parametrize("name", ["linear", "rbf", "laplacian"])
@DENSITY
@WEIGHTED
def test_left_out_scores_equal_refits_without_each_row(name, negatives, weighted):
    X, y, groups = labelled(sizes=[8, 6, 7, 1])
    weights = weights_of(len(X), weighted)
    fitting = {"subclass_labels": groups, "sample_weight": weights}
    model = KernelPCSDA(negatives=negatives, calibrate=False, regularization=0.1, **SETTINGS[name])
    model.fit(X, y, **fitting)
    features = ExactKernelMap(tol=1e-13, **SETTINGS[name]).fit_transform(X)
    w = np.ones(len(X)) if weights is None else weights
    centred = features - w @ features / w.sum()
    ridge = 0.1 * (w @ np.sum(centred**2, axis=1)) / w.sum()
    components = model.dual_coef_.T @ features[model.support_]
    refits = refit_without_each_row(features, groups, weights, ridge, components)
    coordinates, residuals, centres = refits
    alone, own = groups == 3, np.flatnonzero(groups == 0)
    moves = centres[own] - model.density_.base.subclasses
    shifts = Shifts(own, np.tile(np.eye(3), (len(own), 1, 1)), moves)
    left = LeftOut(coordinates, residuals, groups, alone, ~alone, weights, shifts=shifts)
    expected = model.calibration_(model.density_.left_out_views(left, np.bincount(groups, w)))
    finite = ~alone
    assert_allclose(model.loo_scores_[finite], expected[finite], rtol=1e-5, atol=1e-5)
    # The covariance of the positives is the mean of z z' over them, shrunk by d/2 rows.
    own = coordinates[y == 1]
    scatter = (w[y == 1, None] * own).T @ own
    total = w[y == 1].sum()
    nu = model.n_components_ / 2
    target = ((total + nu) * model.density_.base.positive - scatter) / nu
    assert np.all(np.linalg.eigvalsh(target) > 0)
    seen = w[~alone & (y == 0)] @ np.einsum("ij,ij->i", *2 * [residuals[~alone & (y == 0)]])
    pooled = (np.trace(scatter) + seen) / w[~alone].sum()
    assert_allclose(np.trace(target), pooled, rtol=1e-4)


def test_left_out_scores_are_honest_where_training_scores_flatter():
    """With random labels, training rows are separated, but new and left-out rows are not."""
    rng = np.random.default_rng(0)
    X, new = rng.standard_normal((2, 150, 30))
    y, labels = rng.integers(0, 2, (2, 150))
    model = KernelPCSDA(gamma="scale", n_subclasses=2, calibrate=False, random_state=0).fit(X, y)

    def gap(scores, y):
        return scores[y == 1].mean() - scores[y == 0].mean()

    trained = gap(model.log_likelihood_ratio(X), y)
    left_out = gap(model.loo_scores_, y)
    assert trained > 1
    assert abs(left_out) < 0.2 * trained
    assert abs(left_out - gap(model.log_likelihood_ratio(new), labels)) < 0.2 * trained


# Subclasses


@pytest.mark.each_value
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", ["rbf", "linear", "polynomial"])
@WEIGHTED
def test_kernel_kmeans_equals_kmeans_on_exact_features(name, seed, weighted):
    X, _, y, _, matrix, _ = kernel_problem(name, seed=10 * seed)
    rows = np.flatnonzero(y == 0)
    weights = weights_of(len(rows), weighted)
    w = np.ones(len(rows)) if weights is None else weights
    features = ExactKernelMap(tol=1e-13, **SETTINGS[name]).fit_transform(X)[rows]
    start = np.random.default_rng(seed).integers(0, 4, len(rows))
    means = np.array(
        [np.average(features[start == k], axis=0, weights=w[start == k]) for k in range(4)]
    )
    labels, inertia = kernel_kmeans(matrix, rows, start, weights)
    theirs = KMeans(4, init=means, n_init=1, tol=0).fit(features, sample_weight=weights)
    assert_array_equal(labels, theirs.labels_)
    assert_allclose(inertia + w @ matrix.diagonal()[rows], theirs.inertia_, rtol=1e-9)
    assert not np.array_equal(labels, start)


def test_kernel_kmeans_keeps_its_arguments_and_a_converged_solution():
    X, y, _ = labelled()
    matrix, rows = rbf(X, X, GAMMA), np.flatnonzero(y == 0)
    start = np.arange(len(rows)) % 3
    kept = matrix.copy(), start.copy()
    labels, inertia = kernel_kmeans(matrix, rows, start)
    assert_array_equal(matrix, kept[0])
    assert_array_equal(start, kept[1])
    again, same = kernel_kmeans(matrix, rows, labels)
    assert_array_equal(again, labels)
    assert_allclose(same, inertia, rtol=1e-12)


def test_a_cluster_without_rows_stays_empty():
    X, y, _ = labelled()
    rows = np.flatnonzero(y == 0)
    start = 2 * (np.arange(len(rows)) % 2)
    labels, _ = kernel_kmeans(rbf(X, X, GAMMA), rows, start)
    assert set(labels) <= {0, 2}


def test_kernel_kmeans_stops_at_its_limit_of_steps():
    X, y, _ = labelled()
    matrix, rows = rbf(X, X, GAMMA), np.flatnonzero(y == 0)
    start = np.random.default_rng(0).integers(0, 4, len(rows))
    costs = [kernel_kmeans(matrix, rows, start, max_iter=steps)[1] for steps in range(1, 8)]
    assert np.all(np.diff(costs) <= 1e-12)
    assert costs[-1] < costs[0] - 1e-3


def test_a_drawn_start_is_seeded_and_reaches_every_cluster():
    X, y, _ = labelled()
    matrix, rows = rbf(X, X, GAMMA), np.flatnonzero(y == 0)
    first, again, other = (
        kernel_start(matrix, rows, 5, np.random.RandomState(seed)) for seed in (0, 0, 1)
    )
    assert_array_equal(first, again)
    assert np.any(first != other)
    assert set(first) == set(range(5))
    repeated = np.vstack([X[:2]] * 10)
    labels = kernel_start(rbf(repeated, repeated, 1.0), np.arange(20), 5, np.random.RandomState(0))
    assert set(labels) == {0, 1}
    assert len(set(labels[::2])) == len(set(labels[1::2])) == 1


@pytest.mark.parametrize("name", ["rbf", "precomputed"])
def test_subclasses_are_clusters_of_the_features(name):
    """In feature space, each negative is nearest to the mean of its own subclass."""
    X, _, y, _, matrix, _ = kernel_problem(name)
    model = KernelPCSDA(n_subclasses=4, random_state=0, **SETTINGS[name]).fit(X, y)
    features = ExactKernelMap("precomputed", tol=1e-13).fit_transform(matrix)
    means = np.array([features[model.partition_ == k].mean(axis=0) for k in range(1, 5)])
    rows = y == 0
    distance = np.linalg.norm(features[rows][:, None] - means, axis=2)
    assert_array_equal(distance.argmin(axis=1) + 1, model.partition_[rows])
    assert_array_equal(np.bincount(model.partition_)[1:], model.subclass_counts_)


def test_subclasses_start_from_kmeans_of_the_rows():
    X, y, _ = labelled()
    rows = np.flatnonzero(y == 0)
    model = KernelPCSDA(gamma=GAMMA, n_subclasses=4, random_state=7).fit(X, y)
    seed = np.random.RandomState(7).randint(2**31 - 1)
    start = make_groups(X, y == 1, n_subclasses=4, random_state=seed)[0][rows] - 1
    labels, _ = kernel_kmeans(rbf(X, X, GAMMA), rows, start)
    assert_array_equal(model.partition_[rows], labels + 1)
    inside = KernelPCSDA(gamma=GAMMA, n_subclasses=4, subclasses="input", random_state=7).fit(X, y)
    assert_array_equal(inside.partition_[rows], start + 1)


def test_the_best_of_several_starts_divides_a_precomputed_kernel():
    X, y, _ = labelled(sizes=[20, 80], spread=0.0)
    matrix, rows = rbf(X, X, GAMMA), np.flatnonzero(y == 0)
    spreads = []
    for random_state in range(5):
        model = KernelPCSDA("precomputed", n_subclasses=5, random_state=random_state)
        groups = model.fit(matrix, y).partition_[rows]
        rng = np.random.RandomState(np.random.RandomState(random_state).randint(2**31 - 1))
        starts = [kernel_start(matrix, rows, 5, rng) for _ in range(KERNEL_RESTARTS)]
        costs = [kernel_kmeans(matrix, rows, start)[1] for start in starts]
        assert_allclose(kernel_kmeans(matrix, rows, groups - 1)[1], min(costs), rtol=1e-12)
        spreads.append(max(costs) - min(costs))
    assert max(spreads) > 0.1


def test_kernel_subclasses_follow_the_kernel_not_the_rows():
    """Two concentric rings: k-means on the rows cuts them in halves."""
    rng = np.random.default_rng(0)
    angle = rng.uniform(0, 2 * np.pi, 80)
    radius = np.repeat([1.0, 6.0], 40)
    rings = np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])
    X = np.vstack([rings, rng.standard_normal((20, 2)) + 20])
    y = np.repeat([0, 1], [80, 20])

    def radial(a, b):
        return np.exp(-((np.linalg.norm(a) - np.linalg.norm(b)) ** 2))

    model = KernelPCSDA(radial, n_subclasses=2, random_state=0).fit(X, y)
    inner, outer = model.partition_[:40], model.partition_[40:80]
    assert len(set(inner)) == len(set(outer)) == 1
    assert inner[0] != outer[0]
    plain = KernelPCSDA(radial, n_subclasses=2, subclasses="input", random_state=0).fit(X, y)
    assert len(set(plain.partition_[40:80])) == 2


def test_subclasses_may_be_singletons_any_clusters_or_given():
    X, y, groups = labelled()
    each = KernelPCSDA(gamma=GAMMA, subclasses="samples", n_components=2).fit(X, y)
    assert len(each.subclass_counts_) == np.sum(y == 0)
    clusterer = AgglomerativeClustering(3)
    found = KernelPCSDA(gamma=GAMMA, subclasses=clusterer).fit(X, y)
    expected = clone(clusterer).fit_predict(X[y == 0]) + 1
    assert_array_equal(found.partition_[y == 0], expected)
    assert not hasattr(clusterer, "labels_")
    names = np.array(["-", "a", "b", "c"])[groups]
    given = KernelPCSDA(gamma=GAMMA, subclasses=clusterer).fit(X, y, subclass_labels=names)
    assert_array_equal(given.partition_, groups)


def test_a_precomputed_kernel_is_clustered_in_feature_space_only():
    X, y, groups = labelled()
    matrix = rbf(X, X, GAMMA)
    message = (
        "a precomputed kernel has no input space to cluster in; use subclasses='kmeans', "
        "'samples' or give subclass_labels"
    )
    for subclasses in (AgglomerativeClustering(3), "input"):
        model = KernelPCSDA("precomputed", subclasses=subclasses)
        with refuses(message):
            model.fit(matrix, y)
        model.fit(matrix, y, subclass_labels=groups)
        assert_array_equal(model.partition_, groups)
    each = KernelPCSDA("precomputed", subclasses="samples").fit(matrix, y)
    assert len(each.subclass_counts_) == np.sum(y == 0)


def test_more_subclasses_than_different_negatives_are_refused():
    X, y, _ = labelled()
    X[y == 0] = np.repeat(X[y == 0][:3], 12, axis=0)
    message = "n_subclasses=4 must be at most 3 (= number of different negative samples)"
    with refuses(message):
        KernelPCSDA(gamma=GAMMA, n_subclasses=4).fit(X, y)
    with refuses(message):
        KernelPCSDA("precomputed", n_subclasses=4).fit(np.round(rbf(X, X, GAMMA), 12), y)
    assert len(KernelPCSDA(gamma=GAMMA, n_subclasses=3).fit(X, y).subclass_counts_) == 3


@pytest.mark.parametrize("labels", [np.zeros(51), np.zeros(60), np.zeros((52, 1))])
def test_a_wrong_number_of_subclass_labels_is_refused(labels):
    X, y, _ = labelled()
    message = (
        f"subclass_labels has shape {labels.shape} but must have one entry for each of the 52 rows "
        "of X; entries of positive rows are ignored"
    )
    with refuses(message):
        KernelPCSDA(gamma=GAMMA).fit(X, y, subclass_labels=labels)
    with refuses(message):
        KernelPCSDA(gamma=GAMMA).fit(
            X, y, subclass_labels=labels, sample_weight=np.arange(len(X)) % 2
        )


# KernelCSDA


@pytest.mark.each_value
@pytest.mark.parametrize(
    "solver", ["auto", "eigen", "lowrank", "labels", "raw_labels", "spectral", "trace_ratio"]
)
@pytest.mark.parametrize("width", [5, 120], ids=["D<N", "D>N"])
@pytest.mark.parametrize("n_components", [2, None])
@WEIGHTED
def test_the_linear_kernel_equals_linear_csda(solver, width, n_components, weighted):
    X, y, _ = labelled(width)
    new = labelled(width, seed=1)[0]
    given = {"solver": solver, "n_components": n_components, "calibrate": False}
    fitting = {"sample_weight": weights_of(len(X), weighted)}
    found = KernelCSDA("linear", random_state=1, **given).fit(X, y, **fitting)
    expected = CSDA(random_state=1, **given).fit(X, y, **fitting)
    assert found.n_components_ == expected.n_components_
    assert_allclose(found.eigenvalues_, expected.eigenvalues_, rtol=1e-6)
    for rows in (X, new):
        scores = expected.log_likelihood_ratio(rows)
        scale = np.abs(scores).max()
        assert_allclose(found.log_likelihood_ratio(rows), scores, atol=1e-6 * scale)
        assert_allclose(found.score_samples(rows), expected.score_samples(rows), rtol=1e-6)


@pytest.mark.each_value
@EVERY_KERNEL
@METHOD
@WEIGHTED
def test_kernel_csda_equals_csda_on_exact_features(name, method, weighted):
    X, new, y, _, *_ = kernel_problem(name, spread=0.3)
    mapped = ExactKernelMap(method=method, tol=1e-13, **SETTINGS[name]).fit(X)
    fitting = {"sample_weight": weights_of(len(X), weighted)}
    given = {"n_components": 3, "random_state": 2}
    found = KernelCSDA(**SETTINGS[name], **given).fit(X, y, **fitting)
    expected = CSDA(**given).fit(mapped.transform(X), y, **fitting)
    rows = np.concatenate([X, new])
    assert_same_model(found, expected, rows, mapped.transform(rows), rtol=1e-4)
    assert abs(found.calibration_.slope - 1) > 0.01


@pytest.mark.parametrize("n_components", [1, 3])
def test_low_rank_regression_has_the_subspace_of_the_eigenproblem(n_components):
    X, y, _ = labelled()
    given = {"gamma": GAMMA, "n_components": n_components, "calibrate": False}
    lowrank = KernelCSDA(solver="lowrank", **given).fit(X, y)
    eigen = KernelCSDA(solver="eigen", **given).fit(X, y)
    assert_same_model(lowrank, eigen, X, X, rtol=1e-6)


def test_label_targets_are_seeded_and_span_the_solution_when_all_are_used():
    X, y, _ = labelled()
    given = {"gamma": GAMMA, "solver": "labels", "calibrate": False}
    first, again, other = (
        KernelCSDA(n_components=3, random_state=seed, **given).fit(X, y) for seed in (0, 0, 1)
    )
    assert_array_equal(first.transform(X), again.transform(X))
    assert np.abs(first.eigenvalues_ / other.eigenvalues_ - 1).max() > 1e-3
    whole = KernelCSDA(n_components=None, random_state=0, **given).fit(X, y)
    eigen = KernelCSDA(n_components=None, **{**given, "solver": "eigen"}).fit(X, y)
    assert whole.n_components_ == eigen.n_components_ == np.sum(y == 0)
    assert_allclose(whole.eigenvalues_, eigen.eigenvalues_, rtol=1e-6)
    assert np.all(first.eigenvalues_ <= eigen.eigenvalues_[:3] * (1 + 1e-9))


def test_the_trace_ratio_is_the_largest_of_orthonormal_directions():
    X, y, _ = labelled()
    matrix = rbf(X, X, GAMMA)
    features = ExactKernelMap("precomputed", tol=1e-13).fit_transform(matrix)
    away = features[y == 0] - features[y == 1].mean(axis=0)
    own = features[y == 1] - features[y == 1].mean(axis=0)
    ridge = 0.01 * np.mean(np.sum((features - features.mean(axis=0)) ** 2, axis=1))

    def ratio(directions):
        basis = np.linalg.qr(directions.T)[0]
        top, bottom = np.sum((away @ basis) ** 2), np.sum((own @ basis) ** 2)
        return top / (bottom + ridge * basis.shape[1])

    found = {}
    for solver in ("trace_ratio", "eigen"):
        model = KernelCSDA(gamma=GAMMA, solver=solver, n_components=3).fit(X, y)
        directions = model.dual_coef_.T @ features[model.support_]
        found[solver] = ratio(directions)
        if solver == "trace_ratio":
            assert_allclose(directions @ directions.T, np.eye(3), atol=1e-6)
    rng = np.random.default_rng(0)
    assert found["trace_ratio"] >= found["eigen"] * (1 - 1e-9)
    assert found["trace_ratio"] > max(
        ratio(directions + 0.05 * rng.standard_normal(directions.shape)) for _ in range(20)
    )


def test_kernel_csda_has_no_left_out_scores_and_one_negative_group():
    X, y, _ = labelled()
    model = KernelCSDA(gamma=GAMMA).fit(X, y)
    assert not hasattr(model, "loo_scores_")
    assert_array_equal(model.partition_, 1 - y)
    assert_array_equal(model.subclass_counts_, [np.sum(y == 0)])


# What the model keeps


def arrays_in(thing, seen=None):
    """Yield all arrays that an object holds, at any depth."""
    seen = set() if seen is None else seen
    if id(thing) in seen:
        return
    seen.add(id(thing))
    if isinstance(thing, np.ndarray):
        yield thing
    elif dataclasses.is_dataclass(thing) or hasattr(thing, "get_params"):
        yield from arrays_in(vars(thing), seen)
    elif isinstance(thing, dict):
        for value in thing.values():
            yield from arrays_in(value, seen)
    elif isinstance(thing, (list, tuple)):
        for value in thing:
            yield from arrays_in(value, seen)


@pytest.mark.parametrize(
    "model",
    [
        KernelPCSDA(gamma=GAMMA, n_subclasses=3),
        KernelPCSDA(gamma=GAMMA, n_subclasses=3, solver="eigen"),
        KernelPCSDA("precomputed", n_subclasses=3),
        KernelCSDA(gamma=GAMMA, n_components=2),
        KernelCSDA("precomputed", n_components=2),
    ],
    ids=lambda model: " ".join(str(model).split()),
)
def test_the_model_does_not_hold_the_kernel_matrix(model):
    X, y, _ = labelled(sizes=[100, 100, 100, 100])
    rows = rbf(X, X, GAMMA) if model.kernel == "precomputed" else X
    model.fit(rows, y).predict(rows)
    sizes = [array.size for array in arrays_in(model)]
    assert len(sizes) >= 5
    assert max(sizes) <= 400 * 5
    assert not any(
        array.base is not None and array.base.size >= 400**2 for array in arrays_in(model)
    )
    assert len(pickle.dumps(model)) < 8 * 400**2 / 20


@pytest.mark.parametrize(
    "covariance", [pytest.param("leave-one-out", marks=pytest.mark.more), "resubstitution"]
)
def test_fitting_needs_memory_for_little_more_than_one_kernel_matrix(covariance):
    X = np.random.default_rng(0).standard_normal((1500, 10))
    y = np.arange(1500) % 10 == 0
    model = KernelPCSDA(gamma=0.1, n_subclasses=5, covariance=covariance, random_state=0)
    model.set_params(calibrate=covariance == "leave-one-out").fit(X[:200], y[:200])
    tracemalloc.start()
    model.fit(X, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2.2 * 8 * 1500**2


@pytest.mark.parametrize("make", [KernelPCSDA, KernelCSDA])
def test_transform_equals_the_kernel_form_of_the_coordinates(make):
    X, y, _ = labelled()
    new = labelled(seed=1)[0]
    model = make(gamma=GAMMA, n_components=1).fit(X, y)
    cross = rbf(new, X[model.support_], GAMMA)
    expected = cross @ model.dual_coef_ - model.origin_
    assert_allclose(model.transform(new), expected, atol=1e-9 * np.abs(expected).max())
    assert_array_equal(model.X_fit_, X[model.support_])
    positive = model.transform(X[y == 1]).mean(axis=0)
    assert_allclose(positive, 0, atol=1e-8 * np.abs(expected).max())


@BOTH
def test_a_precomputed_kernel_equals_the_kernel(make):
    X, y, _ = labelled()
    new = labelled(seed=1)[0]
    matrix, cross = rbf(X, X, GAMMA), rbf(new, X, GAMMA)
    given = {"random_state": 0} if make is KernelCSDA else {"random_state": 0, "n_subclasses": 1}
    found = make("precomputed", **given).fit(matrix, y)
    expected = make(gamma=GAMMA, **given).fit(X, y)
    assert found.X_fit_ is None
    scores = expected.log_likelihood_ratio(new)
    assert_allclose(found.log_likelihood_ratio(cross), scores, rtol=1e-6, atol=1e-6)


# Blocks


@pytest.mark.parametrize(
    "model",
    [
        KernelPCSDA(gamma=GAMMA, n_subclasses=3, random_state=0),
        KernelPCSDA("precomputed", n_subclasses=3, random_state=0),
        KernelCSDA("laplacian", gamma=GAMMA, n_components=2, random_state=0),
    ],
    ids=lambda model: " ".join(str(model).split()),
)
def test_rows_are_scored_in_blocks_with_the_same_result(monkeypatch, model):
    X, y, _ = labelled(sizes=[80, 70, 60])
    rows = rbf(X, X, GAMMA) if model.kernel == "precomputed" else X
    expected = model.fit(rows, y).transform(rows)
    scores = model.log_likelihood_ratio(rows)
    scale = np.abs(scores).max()
    for room in ("kernels", "maps.base", "estimators.dual"):
        monkeypatch.setattr(f"pcsda.{room}.BLOCK_BYTES", 1)
    seen = []
    monkeypatch.setattr(
        "pcsda.estimators.dual.progress", lambda items, *a, **k: seen.extend(items) or items
    )
    assert_allclose(model.transform(rows), expected, atol=1e-9 * np.abs(expected).max())
    assert seen == [0, 64, 128, 192]
    refitted = model.fit(rows, y)
    assert_allclose(refitted.log_likelihood_ratio(rows), scores, atol=1e-7 * scale)


@pytest.mark.more
def test_prediction_never_holds_the_full_kernel_matrix():
    X, y, _ = labelled(sizes=[300, 300])
    model = KernelPCSDA(gamma=GAMMA, n_subclasses=1).fit(X, y)
    rows = np.random.default_rng(0).standard_normal((40_000, 5))
    tracemalloc.start()
    model.log_likelihood_ratio(rows)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * 600 * 40_000 / 4


# Weights


def fits_of_weights(make, **given):
    extra = {} if make is KernelCSDA else PLAIN
    extra = {"calibrate": False, **extra}
    return make(**given, **extra)


@pytest.mark.parametrize("kernel", ["rbf", "precomputed"])
@BOTH
def test_integer_weights_equal_repeated_rows(make, kernel):
    X, y, groups = labelled()
    weights = np.random.default_rng(0).integers(1, 4, len(X))
    again = np.repeat(np.arange(len(X)), weights)
    rows = rbf(X, X, GAMMA) if kernel == "precomputed" else X
    repeated = rows[np.ix_(again, again)] if kernel == "precomputed" else X[again]
    cross = rows[:, again] if kernel == "precomputed" else X
    given = {"kernel": kernel, "gamma": GAMMA, "n_components": 2}
    labels = [{"subclass_labels": g} for g in (groups, groups[again])]
    labels = [{}, {}] if make is KernelCSDA else labels
    found = fits_of_weights(make, **given).fit(rows, y, sample_weight=weights, **labels[0])
    expected = fits_of_weights(make, **given).fit(repeated, y[again], **labels[1])
    assert_allclose(found.eigenvalues_, expected.eigenvalues_, rtol=1e-6)
    scores = expected.log_likelihood_ratio(cross)
    scale = np.abs(scores).max()
    assert_allclose(found.log_likelihood_ratio(rows), scores, atol=1e-6 * scale)
    assert_allclose(found.class_prior_, expected.class_prior_)


@pytest.mark.each_value
@pytest.mark.parametrize("gamma", ["positive", "all", "scale", GAMMA])
@pytest.mark.parametrize("kernel", ["rbf", "laplacian", "precomputed"])
@BOTH
def test_zero_weight_rows_are_dropped(make, kernel, gamma):
    X, y, _ = labelled()
    weights = np.where(np.arange(len(X)) % 4 == 1, 0.0, weights_of(len(X)))
    kept = np.flatnonzero(weights)
    rows = rbf(X, X, GAMMA) if kernel == "precomputed" else X
    fewer = rows[np.ix_(kept, kept)] if kernel == "precomputed" else X[kept]
    cross = rows[:, kept] if kernel == "precomputed" else X
    model = make(kernel=kernel, gamma=gamma, random_state=0)
    found = clone(model).fit(rows, y, sample_weight=weights)
    expected = clone(model).fit(fewer, y[kept], sample_weight=weights[kept])
    assert found.kernel_ == expected.kernel_
    assert_array_equal(found.log_likelihood_ratio(rows), expected.log_likelihood_ratio(cross))
    assert np.all(found.partition_[weights == 0] == -1)
    assert_array_equal(found.partition_[kept], expected.partition_)
    assert set(found.support_) <= set(kept)
    if make is KernelPCSDA:
        assert_array_equal(found.loo_scores_[kept], expected.loo_scores_)
        rest = weights == 0
        scores = found.log_likelihood_ratio(rows)[rest]
        assert_allclose(found.loo_scores_[rest], scores, rtol=1e-9)


def test_a_subclass_of_weight_zero_vanishes():
    X, y, groups = labelled()
    weights = (groups != 2).astype(float)
    found = KernelPCSDA(gamma=GAMMA).fit(X, y, subclass_labels=groups, sample_weight=weights)
    kept = groups != 2
    expected = KernelPCSDA(gamma=GAMMA).fit(X[kept], y[kept], subclass_labels=groups[kept])
    assert found.n_components_ == 2
    assert_allclose(found.log_likelihood_ratio(X), expected.log_likelihood_ratio(X), rtol=1e-9)


def test_zero_weights_work_with_column_names():
    pd = pytest.importorskip("pandas")
    X, y, _ = labelled()
    weights = np.where(np.arange(len(X)) < 5, 0.0, 1.0)
    frame = pd.DataFrame(X, columns=list("abcde"))
    model = KernelPCSDA(gamma=GAMMA, random_state=0).fit(frame, y, sample_weight=weights)
    plain = KernelPCSDA(gamma=GAMMA, random_state=0).fit(X, y, sample_weight=weights)
    assert_array_equal(model.loo_scores_, plain.loo_scores_)
    assert model.feature_names_in_.tolist() == list("abcde")


@BOTH
def test_bad_weights_are_refused(make):
    X, y, _ = labelled()
    with refuses("sample_weight has 1 negative entry (smallest -1); weights must be at least 0"):
        make().fit(X, y, sample_weight=np.r_[-1.0, np.ones(51)])
    with refuses("sample_weight has shape (3,) but must have one weight for each of the 52 rows"):
        make().fit(X, y, sample_weight=[1.0, 2.0, 3.0])
    with refuses("sample_weight is zero for the whole positive class"):
        make().fit(X, y, sample_weight=1 - y)


# Types, sizes and labels


@pytest.mark.parametrize("kernel", ["rbf", "linear", "precomputed"])
@BOTH
def test_single_precision_is_kept_and_close(make, kernel):
    X, y, groups = labelled()
    rows = rbf(X, X, 0.5) if kernel == "precomputed" else X
    given = {"kernel": kernel, "gamma": 0.5, "n_components": 2, "calibrate": False}
    fitting = {"subclass_labels": groups} if make is KernelPCSDA else {}
    wide = make(**given).fit(rows, y, **fitting)
    narrow = make(**given).fit(rows.astype(np.float32), y, **fitting)
    for method in ("transform", "log_likelihood_ratio", "decision_function", "score_samples"):
        a, b = getattr(narrow, method)(rows.astype(np.float32)), getattr(wide, method)(rows)
        assert a.dtype == np.float32
        assert b.dtype == np.float64
        if method == "transform":  # the largest entry decides the sign of an axis
            a = a * np.sign(np.sum(a * b, axis=0))
        assert_allclose(a, b, atol=2e-3 * np.abs(b).max())
    assert narrow.predict_proba(rows.astype(np.float32)).dtype == np.float32
    assert narrow.transform(rows).dtype == np.float64


@pytest.mark.each_value
@pytest.mark.parametrize("dtype", [np.int64, np.float16, object])
@BOTH
def test_other_types_are_converted_to_doubles(make, dtype):
    X, y, _ = labelled()
    X = np.round(4 * X)
    found = make(gamma=0.01, random_state=0).fit(X.astype(dtype), y)
    expected = make(gamma=0.01, random_state=0).fit(X.astype(dtype).astype(float), y)
    assert_array_equal(found.transform(X.astype(dtype)), expected.transform(X))


@pytest.mark.each_value
@BOTH
@pytest.mark.parametrize("kernel", ["rbf", "linear", "laplacian"])
def test_there_may_be_far_more_columns_than_rows(make, kernel):
    X, y, _ = labelled(2000, spread=3.0)
    rows = np.arange(len(X)) % 4 > 0
    model = make(kernel, n_components=1, random_state=0).fit(X[rows], y[rows])
    assert np.all(np.isfinite(model.log_likelihood_ratio(X)))
    assert model.score(X[~rows], y[~rows]) > 0.8


def is_sound(model, X):
    """Check for finite scores, probabilities that sum to one, and a rank for every row."""
    assert np.all(np.isfinite(model.log_likelihood_ratio(X)))
    assert np.all(np.isfinite(model.transform(X)))
    assert_allclose(model.predict_proba(X).sum(axis=1), 1)
    assert_array_equal(np.sort(model.rank(X)), np.arange(len(X)))
    return True


@pytest.mark.parametrize("kernel", ["rbf", "linear", "laplacian", "cosine"])
@BOTH
def test_one_positive_gives_a_sound_model(make, kernel):
    X, _, _ = labelled()
    y = (np.arange(len(X)) == 3).astype(int)
    X[3] += 20
    model = make(kernel, gamma="all", random_state=0).fit(X, y)
    assert is_sound(model, X)
    assert model.rank(X)[0] == model.rank(X, by="likelihood")[0] == 3
    if make is KernelPCSDA:
        assert_array_equal(np.isnan(model.loo_scores_), y == 1)
    else:
        assert model.calibration_.slope == 1


@pytest.mark.parametrize("kernel", ["rbf", "linear", "laplacian"])
@BOTH
def test_one_negative_gives_a_sound_model(make, kernel):
    X, _, _ = labelled()
    y = (np.arange(len(X)) != 3).astype(int)
    X[3] += 20
    model = make(kernel, gamma="all", random_state=0).fit(X, y)
    assert is_sound(model, X)
    assert model.n_components_ == 1
    assert model.predict(X[[3]]) == 0
    assert model.score(X, y) > 0.95


@BOTH
@pytest.mark.parametrize("kernel", ["rbf", "linear", "laplacian"])
def test_two_points_give_a_sound_model(make, kernel):
    X, y = np.array([[0.0, 1.0], [2.0, 5.0]]), [0, 1]
    model = make(kernel, gamma="all").fit(X, y)
    assert is_sound(model, X)
    assert_array_equal(model.predict(X), y)


def test_one_positive_warns_about_the_bandwidth():
    X, _, _ = labelled()
    y = (np.arange(len(X)) == 3).astype(int)
    message = "gamma='positive' is undefined (1 positive); using gamma="
    with pytest.warns(UserWarning, match=re.escape(message)):
        model = KernelPCSDA(random_state=0).fit(X, y)
    assert model.kernel_.gamma == KernelPCSDA(gamma="all").fit(X, y).kernel_.gamma


@BOTH
def test_the_class_of_interest_may_be_named(make):
    X, y, groups = labelled()
    words = np.where(y == 1, "alpha", "omega")
    fitting = {"subclass_labels": groups} if make is KernelPCSDA else {}
    named = make(pos_label="alpha", random_state=0).fit(X, words, **fitting)
    usual = make(random_state=0).fit(X, y, **fitting)
    assert_array_equal(named.log_likelihood_ratio(X), usual.log_likelihood_ratio(X))
    assert_allclose(named.decision_function(X), -usual.decision_function(X))
    assert_array_equal(named.predict(X) == "alpha", usual.predict(X) == 1)
    assert_array_equal(named.rank(X), usual.rank(X))
    with refuses("pos_label='beta' is not a label of y, which has ['alpha', 'omega']"):
        make(pos_label="beta").fit(X, words)


@BOTH
def test_samples_of_a_trial_are_scored_together(make):
    X, y, _ = labelled(sizes=[40, 30, 30])
    model = make(gamma=GAMMA, n_components=1, random_state=0).fit(X, y)
    single = model.log_likelihood_ratio(X, trials=np.arange(len(X)))
    assert_allclose(single, model.log_likelihood_ratio(X), rtol=1e-9, atol=1e-9)
    pairs = model.log_likelihood_ratio(X[y == 1], trials=np.arange(40) // 4)
    assert pairs.shape == (10,)
    assert np.mean(pairs > 0) >= np.mean(single[y == 1] > 0)
    sets = model.density_.views_of_sets(model.transform(X[y == 1]), np.arange(40) // 4, 10)
    assert_allclose(pairs, model.calibration_(sets), rtol=1e-12)
    with refuses("trials has shape (3,) but must have one entry for each of the 100 rows of X"):
        model.log_likelihood_ratio(X, trials=[1, 2, 3])


@BOTH
def test_priors_move_the_decision_and_not_the_ratio(make):
    X, y, _ = labelled()
    models = [make(random_state=0, priors=p).fit(X, y) for p in ("equal", (0.9, 0.1))]
    assert_array_equal(*(m.log_likelihood_ratio(X) for m in models))
    moved = models[1].decision_function(X) - models[0].decision_function(X)
    assert_allclose(moved, np.log(1 / 9), rtol=1e-6)


def test_recalibration_uses_held_out_rows():
    X, y, _ = labelled(sizes=[60, 60, 60])
    model = KernelPCSDA(gamma=GAMMA, calibrate=False, random_state=0).fit(X[:90], y[:90])
    before = model.log_likelihood_ratio(X)
    model.recalibrate(X[90:], y[90:])
    slope, offset = model.calibration_.slope, model.calibration_.offset
    assert slope != 1
    assert_allclose(model.log_likelihood_ratio(X), slope * before + offset, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("subclasses", ["kmeans", "input"])
def test_the_same_seed_gives_the_same_model(subclasses):
    X, y, _ = labelled(sizes=[30, 60, 60], spread=0.0)
    given = {"gamma": GAMMA, "n_subclasses": 6, "subclasses": subclasses}
    first, again = (KernelPCSDA(random_state=4, **given).fit(X, y) for _ in range(2))
    assert_array_equal(first.partition_, again.partition_)
    assert_array_equal(first.decision_function(X), again.decision_function(X))
    others = [KernelPCSDA(random_state=seed, **given).fit(X, y).partition_ for seed in range(6)]
    assert any(np.any(first.partition_ != other) for other in others)


@BOTH
def test_the_order_of_the_rows_does_not_matter(make):
    X, y, groups = labelled()
    order = np.random.default_rng(1).permutation(len(X))
    given = {"gamma": GAMMA, "calibrate": False, "n_components": 2}
    labels = [{"subclass_labels": g} for g in (groups, groups[order])]
    labels = [{}, {}] if make is KernelCSDA else labels
    here = make(**given).fit(X, y, **labels[0])
    there = make(**given).fit(X[order], y[order], **labels[1])
    expected = here.log_likelihood_ratio(X)
    scale = np.abs(expected).max()
    assert_allclose(there.log_likelihood_ratio(X), expected, atol=1e-7 * scale)


@pytest.mark.parametrize("d", [1, 2])
def test_fewer_components_are_the_leading_ones(d):
    X, y, groups = labelled()
    whole = KernelPCSDA(gamma=GAMMA).fit(X, y, subclass_labels=groups)
    model = KernelPCSDA(gamma=GAMMA, n_components=d).fit(X, y, subclass_labels=groups)
    assert whole.n_components_ == 3
    assert_allclose(model.transform(X), whole.transform(X)[:, :d], rtol=1e-9, atol=1e-9)
    assert_allclose(model.eigenvalues_, whole.eigenvalues_[:d], rtol=1e-9)


@BOTH
@pytest.mark.parametrize("kernel", ["rbf", "precomputed"])
def test_inputs_are_not_written_to(make, kernel):
    X, y, groups = labelled()
    X = rbf(X, X, GAMMA) if kernel == "precomputed" else X
    weights = weights_of(len(X))
    kept = [part.copy() for part in (X, y, groups, weights)]
    for part in (X, y, groups, weights):
        part.setflags(write=False)
    fitting = {"subclass_labels": groups} if make is KernelPCSDA else {}
    model = make(kernel=kernel).fit(X, y, sample_weight=weights, **fitting)
    model.predict_proba(X)
    for now, then in zip((X, y, groups, weights), kept, strict=True):
        assert_array_equal(now, then)


def test_verbose_names_the_stages(capsys):
    X, y, _ = labelled()
    KernelPCSDA(gamma=GAMMA, verbose=True).fit(X, y)
    assert capsys.readouterr().out == (
        "[KernelPCSDA] kernel matrix of 52 rows\n"
        "[KernelPCSDA] dividing 36 negatives into subclasses\n"
        "[KernelPCSDA] factorising\n"
    )


# Refusals


SIGMOID = pytest.mark.parametrize(
    "given", [{"gamma": 0.1, "coef0": 1.0}, {"gamma": 0.1, "coef0": -1.0}], ids=str
)


@SIGMOID
def test_an_indefinite_kernel_is_refused(given):
    X, y, _ = labelled()
    matrix = np.tanh(given["gamma"] * X @ X.T + given["coef0"])
    assert eigh(matrix, eigvals_only=True)[0] < -0.1
    message = (
        "the kernel matrix is not positive definite at regularization=0.01; use a positive "
        "definite kernel such as 'rbf', other kernel parameters, or a larger regularization"
    )
    with refuses(message):
        KernelPCSDA("sigmoid", regularization=0.01, **given).fit(X, y)
    with refuses(message):
        KernelPCSDA("precomputed", regularization=0.01).fit(matrix, y)
    for model in (KernelCSDA("sigmoid", **given), KernelPCSDA("sigmoid", solver="eigen", **given)):
        with pytest.raises(ValueError, match=r"the kernel matrix is not positive (semi-)?definite"):
            model.fit(X, y)


@BOTH
def test_a_negative_definite_kernel_is_named(make):
    X, y, _ = labelled()
    with refuses("the kernel matrix is not positive definite at regularization=0.01"):
        make("precomputed", regularization=0.01).fit(-X @ X.T, y)


@BOTH
@pytest.mark.parametrize("kernel", ["rbf", "linear", "polynomial"])
def test_rows_that_are_all_equal_are_refused(make, kernel):
    y = labelled()[1]
    with refuses("all rows of X are equal (total variance 0); at least two different rows are ne"):
        make(kernel, gamma=1.0).fit(np.full((len(y), 3), 0.3), y)


@BOTH
@pytest.mark.parametrize("kernel", ["rbf", "polynomial"])
def test_rows_that_are_all_equal_to_the_kernel_are_refused(make, kernel):
    X, y, _ = labelled()
    message = "do not vary; centre X first, change the kernel's parameters or give rows that differ"
    with refuses(message):
        make(kernel, gamma=1e-20).fit(X, y)


@pytest.mark.parametrize("solver", ["cholesky", "eigen", "spectral"])
def test_classes_with_the_same_mean_are_refused(solver):
    X, _, _ = labelled()
    both, y = np.vstack([X, X[::-1]]), np.repeat([0, 1], len(X))
    message = (
        "every subclass mean equals the positive mean, so no direction tells them apart; raise "
        "n_subclasses or give subclass_labels"
    )
    with refuses(message):
        KernelPCSDA(gamma=GAMMA, n_subclasses=1, solver=solver).fit(both, y)


def test_too_many_components_are_refused():
    X, y, groups = labelled()
    message = (
        "n_components=4 must be at most 3 (= min(n_subclasses, n_features, rank)); lower it or "
        "raise n_subclasses"
    )
    for solver in ("auto", "eigen", "lsqr"):
        with refuses(message):
            KernelPCSDA(gamma=GAMMA, n_components=4, solver=solver).fit(
                X, y, subclass_labels=groups
            )
    with refuses("n_components=6 must be at most 5 (= min(n_negatives, n_features, rank)); lower"):
        KernelCSDA("linear", n_components=6).fit(X, y)
    with refuses("n_components=37 must be at most 36 (= min(n_negatives, n_features, rank))"):
        KernelCSDA(gamma=GAMMA, n_components=37).fit(X, y)


@BOTH
@pytest.mark.parametrize("regularization", [0, 0.0])
def test_a_ridge_of_zero_is_refused(make, regularization):
    X, y, _ = labelled()
    message = "regularization=0 leaves the scatter in feature space singular; it must be above 0, "
    message += "such as 0.01"
    with refuses(message):
        make(regularization=regularization).fit(X, y)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"regularization": -1.0}, "regularization=-1.0 must be a number of at least 0"),
        ({"n_components": 0}, "n_components=0 must be a whole number of at least 1, or None"),
        ({"shrinkage": "some"}, "shrinkage='some' must be a number of at least 0, or 'auto'"),
        ({"solver": "svd"}, "solver='svd' must be one of 'auto', "),
        ({"priors": (0.5, 0.6)}, "priors=(0.5, 0.6) must be 'empirical', 'equal' or two positive"),
    ],
    ids=lambda value: str(value)[:30],
)
@BOTH
def test_bad_parameters_are_refused(make, params, message):
    X, y, _ = labelled()
    with refuses(message):
        make(**params).fit(X, y)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"n_subclasses": 0}, "n_subclasses=0 must be a whole number of at least 1, or 'auto'"),
        ({"subclasses": "hdbscan"}, "subclasses='hdbscan' must be one of 'kmeans', 'input', 'sam"),
        ({"negatives": "both"}, "negatives='both' must be one of 'blend', 'mixture', 'marginal'"),
        ({"tails": 4.0}, "tails=4.0 must be one of 'fitted', 'gaussian'"),
        ({"covariance": "loo"}, "covariance='loo' must be one of 'leave-one-out', 'resubstitut"),
        ({"balance": "even"}, "balance='even' must be one of 'pooled', 'resampled'"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_bad_parameters_of_subclasses_are_refused(params, message):
    X, y, _ = labelled()
    with refuses(message):
        KernelPCSDA(**params).fit(X, y)


@BOTH
def test_bad_rows_are_refused(make):
    X, y, _ = labelled()
    model = make(gamma=GAMMA, random_state=0).fit(X, y)
    for bad in (np.nan, np.inf, -np.inf):
        rows = X.copy()
        rows[2, 1] = bad
        with pytest.raises(ValueError, match=r"Input X contains (NaN|infinity)"):
            make(gamma=GAMMA).fit(rows, y)
        for method in ("predict", "transform", "log_likelihood_ratio", "rank"):
            with pytest.raises(ValueError, match=r"Input X contains (NaN|infinity)"):
                getattr(model, method)(rows)
    with refuses(f"X has 4 features, but {make.__name__} is expecting 5 features as input"):
        model.predict(X[:, :4])
    with refuses("y has one class only, [1]; samples of the class of interest and of the rest"):
        make().fit(X, np.ones(len(X), dtype=int))
    with pytest.raises(NotFittedError):
        make().predict(X)


@BOTH
def test_nan_in_precomputed_values_is_refused_at_prediction(make):
    X, y, _ = labelled()
    matrix = rbf(X, X, GAMMA)
    model = make("precomputed").fit(matrix, y)
    values = matrix.copy()
    values[4, 6] = np.nan
    with refuses("Input X contains NaN"):
        model.predict(values)


@BOTH
def test_sparse_rows_are_refused(make):
    X, y, _ = labelled()
    message = "Sparse data was passed for X, but dense data is required. Use '.toarray()' to"
    with refuses(message, TypeError):
        make().fit(sparse.csr_array(X), y)
    model = make(gamma=GAMMA).fit(X, y)
    for method in ("predict", "transform"):
        with refuses(message, TypeError):
            getattr(model, method)(sparse.csr_array(X))


def test_rows_far_from_the_training_rows_are_scored():
    X, y, _ = labelled()
    model = KernelPCSDA(gamma=GAMMA, random_state=0).fit(X, y)
    far = np.full((1, 5), 1e200)
    assert_allclose(model.transform(far)[0], -model.origin_, rtol=1e-9)
    with refuses("row 0 of X is too large to project; bring X to the fitted scale"):
        KernelPCSDA("linear", random_state=0).fit(X, y).predict(np.full((1, 5), 1e308))


def test_a_failed_fold_of_the_calibration_is_named():
    X, y, _ = labelled()
    X[y == 0] = X[y == 0][0]
    X[y == 1] = np.where(np.arange(16)[:, None] == 0, X[y == 1], X[y == 0][0])
    with pytest.warns(UserWarning, match="a calibration fold could not be fitted: "):
        KernelCSDA(gamma=GAMMA).fit(X, y)


def shells(n_rows, rng):
    """Draw a ball inside a shell in six columns; most directions of the feature space are noise."""
    y = np.arange(n_rows) < n_rows // 8
    X = rng.standard_normal((n_rows, 6))
    X *= (np.where(y, 1.0, 1.8) / np.linalg.norm(X, axis=1))[:, None]
    return X + 0.2 * rng.standard_normal(X.shape), y


def moons(n_rows, rng):
    """Draw two thin arcs side by side, which only a small ridge resolves."""
    y, turn = np.arange(n_rows) < n_rows // 8, np.pi * rng.random(n_rows)
    first = np.column_stack([np.cos(turn), np.sin(turn)])
    X = np.where(y[:, None], first, [1, 0.5] - first) + 0.15 * rng.standard_normal((n_rows, 2))
    return np.hstack([X, 0.3 * rng.standard_normal((n_rows, 4))]), y


@pytest.mark.parametrize(("make", "ridge"), [(shells, 1.0), (moons, 0.01)])
@pytest.mark.more
def test_with_enough_positives_left_out_scores_choose_the_automatic_ridge(make, ridge):
    rng = np.random.default_rng(0)
    X, y = make(1200, rng)
    model = KernelPCSDA(random_state=0).fit(X, y)
    assert model.regularization_ == ridge
    new, truth = make(4000, rng)
    other = KernelPCSDA(regularization=0.1, random_state=0).fit(X, y)
    found, worse = (cllr(truth, one.log_likelihood_ratio(new)) for one in (model, other))
    assert found < worse
    few = slice(None, None, 9)  # 17 positives
    assert KernelPCSDA(random_state=0).fit(X[few], y[few]).regularization_ == 0.1


@pytest.mark.more
@pytest.mark.parametrize("digit", [1, 3])
def test_a_sample_chooses_no_ridge_that_all_left_out_rows_reject(digit):
    X, y = load_digits(return_X_y=True)
    rows = np.random.default_rng(0).permutation(len(X))[:1550]
    X, y = X[rows], y[rows] == digit

    def loss(ridge):
        return cllr(y, KernelPCSDA(regularization=ridge, random_state=0).fit(X, y).loo_scores_)

    assert loss("auto") <= loss(0.1) < loss(1.0)


@pytest.mark.more
def test_left_out_scores_choose_neither_given_ridges_nor_those_of_groups():
    X, y = shells(1200, np.random.default_rng(0))
    for params, along, ridge in (
        ({}, {}, 1.0),
        ({}, {"sample_weight": np.ones(len(X))}, 1.0),
        ({}, {"groups": np.arange(len(X)) // 2}, 0.1),
        ({"calibrate": False, "covariance": "resubstitution"}, {}, 0.1),
        ({"regularization": 0.01}, {}, 0.01),
        ({"kernel": "linear"}, {}, 0.3),
    ):
        model = KernelPCSDA(random_state=0, **params).fit(X, y, **along)
        assert model.regularization_ == ridge


@pytest.mark.parametrize(
    "estimator", [KernelPCSDA(), KernelCSDA(), ExactKernelMap(), NystroemMap(5)]
)
def test_parameters_that_a_named_kernel_would_not_get_are_refused(estimator):
    """They had no effect, not even a wrong one."""
    X, y = np.random.default_rng(0).standard_normal((30, 3)), np.arange(30) < 10
    words = (
        r"kernel_params=\{'gamma': 5\} is passed to a function given as kernel, and has no effect "
        "on kernel='rbf'; set gamma, degree or coef0 of the estimator instead"
    )
    with pytest.raises(ValueError, match=words):
        clone(estimator).set_params(kernel_params={"gamma": 5}).fit(X, y)
    with pytest.raises(ValueError, match="kernel_params=3 must be None or a dictionary"):
        clone(estimator).set_params(kernel_params=3).fit(X, y)
    clone(estimator).set_params(kernel_params={}).fit(X, y)
