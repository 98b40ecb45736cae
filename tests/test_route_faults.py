"""Data on which routes to a model disagreed in version 0.1.0, each kept as a test."""

import warnings
from functools import partial

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score
from sklearn.pipeline import make_pipeline

from pcsda import PCSDA, PCSDACV, ExactKernelMap, KernelPCSDA, VerifierBank, fit_blocks

# Separate fits calibrate each label on its own.
per_label = partial(VerifierBank, calibration="per-label")


def refusal(model, X, y, subclasses):
    """Return the message with which a fit is refused, or None."""
    try:
        model.fit(X, y, subclass_labels=subclasses)
    except ValueError as error:
        return str(error)
    return None


def in_a_plane(seed, width=200):
    """Draw 120 rows of rank 2 with three labels and five subclasses independent of the rows."""
    rng = np.random.default_rng(seed)
    labels, subclasses = rng.integers(0, 3, 120), rng.integers(0, 5, 120)
    rows = rng.standard_normal((120, 2))
    return rows if width == 2 else rows @ rng.standard_normal((2, width)), labels, subclasses


SEEDS = range(4)
SMALL_RIDGES = pytest.mark.parametrize("ridge", [pytest.param(1e-4, marks=pytest.mark.more), 1e-6])


def assert_bank_equals_fits(bank, make, X, labels, subclasses, tolerance):
    for label, model in bank.models_.items():
        alone = make().fit(X, labels == label, subclass_labels=subclasses)
        assert model.n_components_ == alone.n_components_
        found, expected = model.predict_proba(X), alone.predict_proba(X)
        np.testing.assert_allclose(found, expected, atol=tolerance)


@SMALL_RIDGES
def test_a_bank_of_rows_in_a_plane_equals_separate_fits(ridge):
    for seed in SEEDS:
        X, labels, subclasses = in_a_plane(seed)
        bank = per_label(PCSDA(regularization=ridge)).fit(X, labels, subclass_labels=subclasses)
        assert_bank_equals_fits(
            bank, lambda: PCSDA(regularization=ridge), X, labels, subclasses, 1e-12 / ridge
        )


@SMALL_RIDGES
def test_a_bank_with_the_linear_kernel_on_two_columns_equals_separate_fits(ridge):
    def make():
        return KernelPCSDA("linear", regularization=ridge)

    for seed in SEEDS:
        X, labels, subclasses = in_a_plane(seed, 2)
        bank = per_label(make()).fit(X, labels, subclass_labels=subclasses)
        assert_bank_equals_fits(bank, make, X, labels, subclasses, 1e-12 / ridge)


@SMALL_RIDGES
def test_a_search_on_rows_in_a_plane_ends_with_a_model(ridge):
    for seed in SEEDS:
        X, labels, subclasses = in_a_plane(seed)
        search = PCSDACV(PCSDA(), regularization=[ridge], cv="leave-one-out", stay=0, slack=0).fit(
            X, labels == 0, subclass_labels=subclasses
        )
        scores = search.cv_results_["mean_test_score"]
        tried = np.asarray(search.cv_results_["param_n_components"], dtype=int)
        assert tried[np.isfinite(scores)].max() == 2


def with_a_sum(seed, n_groups=4):
    """Return columns a, b, a + b and a again, of separated groups, and rows off their span."""
    rng = np.random.default_rng(seed)
    groups = rng.integers(0, n_groups, 120)
    a, b = (rng.standard_normal((120, 2)) + 2.5 * rng.standard_normal((n_groups, 2))[groups]).T
    X = np.column_stack([a, b, a + b, a])
    return X, groups, X[:5] + rng.standard_normal((5, 4))


def solved(solver, X, groups, ridge=1e-6):
    return PCSDA(solver=solver, regularization=ridge).fit(X, groups == 0, subclass_labels=groups)


def test_the_eigen_solver_keeps_no_axis_of_rounding():
    for seed in range(6):
        X, groups, _ = with_a_sum(seed)
        found, expected = (solved(solver, X, groups) for solver in ("eigen", "cholesky"))
        assert found.n_components_ == expected.n_components_ == 2
        assert found.score(X, groups == 0) == expected.score(X, groups == 0)


def test_the_spectral_solver_ignores_what_lies_off_the_span_of_the_rows():
    for seed in range(20):
        X, groups, off = with_a_sum(seed, n_groups=7)
        found, expected = (
            solved(solver, X + 1e5, groups, 1e-8).log_likelihood_ratio(off + 1e5)
            for solver in ("spectral", "cholesky")
        )
        # The columns are known to 1e-11 far from zero; beside the ridge that is 1e-5 at most.
        assert np.abs(found - expected).max() <= 1e-2 * max(1, np.abs(expected).max())


def far_away(offset, dtype, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 4, 200)
    X = rng.standard_normal((200, 6)) + 1.5 * rng.standard_normal((4, 6))[labels]
    return (X + offset).astype(dtype), labels


@pytest.mark.parametrize("offset", [1e4, 1e5])
def test_a_bank_scores_float32_rows_far_from_zero_as_its_models_do(offset):
    X, labels = far_away(offset, np.float32)
    bank = per_label(PCSDA()).fit(X, labels, subclass_labels=labels)
    exact = per_label(PCSDA()).fit(X.astype(float), labels, subclass_labels=labels)
    expected = exact.log_likelihood_ratio(X.astype(float))
    alone = [model.log_likelihood_ratio(X) for model in bank.models_.values()]
    np.testing.assert_allclose(np.column_stack(alone), expected, atol=1e-4)
    np.testing.assert_allclose(bank.log_likelihood_ratio(X), expected, atol=1e-4)


def clusters_apart(offset=0.0, scale=1.0, dtype=np.float64):
    """Draw rows in four well-separated clusters, and labels that cut across them."""
    rng = np.random.default_rng(0)
    labels, clusters = rng.integers(0, 3, 200), rng.integers(0, 4, 200)
    centres = 6 * rng.standard_normal((4, 5))
    X = rng.standard_normal((200, 5)) + centres[clusters]
    return (scale * (X + offset)).astype(dtype), labels, clusters


def test_enrolled_rows_join_the_nearest_cluster_far_from_zero():
    X, labels, clusters = clusters_apart(1e9)
    old = slice(0, 140)
    bank = per_label(PCSDA()).fit(X[old], labels[old], subclass_labels=clusters[old])
    bank.enroll(X[140:], 9)
    np.testing.assert_array_equal(bank.clusters_[140:], clusters[140:])


@pytest.mark.parametrize("scale", [1e20, 1e-25])
def test_a_bank_finds_clusters_at_extreme_scales(scale):
    X, labels, clusters = clusters_apart(scale=scale, dtype=np.float32)
    bank = per_label(PCSDA(4, random_state=0)).fit(X, labels)
    assert adjusted_rand_score(clusters, bank.clusters_) == 1


@pytest.mark.parametrize("make", [PCSDA, lambda: KernelPCSDA("linear")], ids=["linear", "kernel"])
def test_a_bank_refuses_equal_means_as_a_single_fit_does(make):
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(4), 25)
    X = rng.standard_normal((100, 5))
    for group in range(4):
        X[groups == group] -= X[groups == group].mean(axis=0)
    with pytest.raises(ValueError, match=r"^every subclass mean equals the positive mean") as alone:
        make().fit(X, groups == 0, subclass_labels=groups)
    assert refusal(per_label(make()), X, groups, groups) == str(alone.value)


@pytest.mark.parametrize(("offset", "ridge"), [(1e7, 100.0), (10.0, 1e-10)])
def test_the_linear_kernel_far_from_zero_agrees_or_refuses(offset, ridge):
    for seed in range(5):
        rng = np.random.default_rng(seed)
        groups = rng.integers(0, 4, 100)
        X = rng.standard_normal((100, 5)) + 1.5 * rng.standard_normal((4, 5))[groups] + offset
        expected = PCSDA(regularization=ridge).fit(X, groups == 0, subclass_labels=groups)
        expected = expected.log_likelihood_ratio(X)
        found = KernelPCSDA("linear", regularization=ridge)
        refused = refusal(found, X, groups == 0, groups)
        if refused is not None:
            assert "centre X first" in refused
            continue
        # Rows about their mean agree to two roundings of the condition, 1e-3 at ridge 1e-10.
        spread = np.linalg.svd(X - X.mean(axis=0), compute_uv=False) ** 2
        condition = 1 + spread[0] / (ridge * spread.sum() / len(X))
        most = max(1e-7, 2 * np.finfo(float).eps * condition) * np.abs(expected).max()
        assert np.abs(found.log_likelihood_ratio(X) - expected).max() <= most


def test_lsqr_converges_or_warns():
    rng = np.random.default_rng(0)
    groups = rng.integers(0, 4, 150)
    scale = 10 ** rng.uniform(-4, 4, 100)
    X = scale * (rng.standard_normal((150, 100)) + 1.5 * rng.standard_normal((4, 100))[groups])
    given = {"regularization": 1e-10, "covariance": "resubstitution", "calibrate": False}
    expected = PCSDA(solver="cholesky", **given).fit(X, groups == 0, subclass_labels=groups)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = PCSDA(solver="lsqr", **given).fit(X, groups == 0, subclass_labels=groups)
    if not caught:
        expected = expected.log_likelihood_ratio(X)
        apart = np.abs(found.log_likelihood_ratio(X) - expected).max()
        assert apart <= 1e-2 * np.abs(expected).max()


@pytest.mark.filterwarnings("ignore:a calibration fold could not be fitted")
@pytest.mark.parametrize("tails", ["gaussian", "fitted"])
def test_a_row_that_keeps_the_scatter_regular_cannot_be_left_out(tails):
    X = np.array(
        [
            [-0.36, 1.34],
            [1.7, 0.76],
            [0.82, -0.59],
            [1.7, 0.76],
            [1.7, 0.76],
            [1.02, 0.19],
            [1.7, 0.76],
            [1.7, 0.76],
            [-1.01, -2.22],
        ]
    )
    y = np.array([0, 1, 0, 1, 1, 0, 0, 0, 1])
    subclasses = np.array([1, 0, 3, 0, 0, 3, 2, 2, 0])
    for scale in np.linspace(1, 2, 12):  # in which the last digits differ
        model = PCSDA(tails=tails, regularization=0)
        with np.errstate(all="ignore"):
            refused = refusal(model, scale * X, y, subclasses)
            if refused is not None:
                assert "regularization" in refused
                continue
            assert np.isfinite(model.log_likelihood_ratio(scale * X)).all()
            assert np.isfinite(model.loo_scores_).all()


@pytest.mark.more
@pytest.mark.filterwarnings("ignore:a calibration fold could not be fitted")
def test_calibration_does_not_collapse_where_folds_fail():
    collapsed = []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        y = (np.arange(60) < 6).astype(int)
        X = rng.standard_normal((60, 8)) + y[:, None]
        raw = PCSDA.published(5, random_state=seed).fit(X, y).log_likelihood_ratio(X)
        model = PCSDA.published(5, calibrate=True, random_state=seed).fit(X, y)
        if np.ptp(model.log_likelihood_ratio(X)) < 1e-6 * np.ptp(raw):
            collapsed.append(seed)
    assert collapsed == []


@pytest.mark.filterwarnings("ignore:each of the .* subclasses has one row")
def test_blocks_equal_a_fit_where_every_negative_is_a_subclass_of_its_own():
    for seed in range(4):
        rng = np.random.default_rng(seed)
        y = rng.permutation((np.arange(40) < 15).astype(int))
        X = rng.standard_normal((40, 4)) + 1.5 * y[:, None]
        given = {"subclass_labels": np.arange(40)}
        expected = PCSDA(random_state=0).fit(X, y, **given)
        found = fit_blocks(PCSDA(random_state=0), X, y=y, block_rows=13, **given)
        np.testing.assert_allclose(
            found.log_likelihood_ratio(X), expected.log_likelihood_ratio(X), rtol=1e-8, atol=1e-8
        )


def test_whatever_can_be_scored_can_be_explained():
    for seed in range(4):
        rng = np.random.default_rng(seed)
        y = (np.arange(9) < 3).astype(int)
        X = rng.standard_normal((9, 2)) + 1.5 * y[:, None]
        model = PCSDA.published(5, random_state=0).fit(X, y)
        expected = model.log_likelihood_ratio(X)
        np.testing.assert_allclose(model.explain(X).score, expected, rtol=1e-8, atol=1e-8)


@pytest.mark.more  # 120 problems; `test_routes.py` has the map on all kinds of data
def test_the_exact_map_equals_the_kernel_at_small_ridges():
    """The map lacks directions below the rounding of kernel values, which affect few rows."""
    apart = []
    for seed in range(120):
        rng = np.random.default_rng(seed)
        size, width, n_groups = rng.integers(18, 90), rng.integers(1, 6), rng.integers(2, 6)
        ridge, gamma = 10.0 ** -rng.integers(6, 10), 10 ** rng.uniform(-2, 1)
        groups = np.arange(size) % n_groups
        centres = rng.choice([0, 1, 3]) * rng.standard_normal((n_groups, width))
        X = rng.standard_normal((size, width)) + centres[groups]
        new = rng.standard_normal((20, width)) + centres[np.arange(20) % n_groups]
        pipe = make_pipeline(ExactKernelMap(gamma=gamma), PCSDA(regularization=ridge))
        model = KernelPCSDA(gamma=gamma, regularization=ridge)
        pipe.fit(X, groups == 0, pcsda__subclass_labels=groups)
        expected = model.fit(X, groups == 0, subclass_labels=groups).log_likelihood_ratio(new)
        found = pipe[-1].log_likelihood_ratio(pipe[:-1].transform(new))
        apart.append((ridge, np.abs(found - expected).max() / max(1, np.abs(expected).max())))
    ridges, shares = np.array(apart).T
    assert shares[ridges > 5e-8].max() < 2e-3
    assert np.median(shares) < 1e-6
    assert np.sum(shares > 2e-3) <= 3


def test_a_kernel_model_copies_its_rows():
    X, groups = far_away(0.0, np.float64)
    model = KernelPCSDA(gamma=0.05).fit(X, groups == 0, subclass_labels=groups)
    new = X[:7].copy()
    before = model.log_likelihood_ratio(new)
    X *= 2
    np.testing.assert_array_equal(model.log_likelihood_ratio(new), before)


@pytest.mark.parametrize("make", [PCSDA, lambda: KernelPCSDA(gamma=0.05)], ids=["linear", "kernel"])
def test_a_bank_copies_its_rows(make):
    scores = []
    for spoil in (False, True):
        X, groups = far_away(0.0, np.float64)
        new, more = X[:7].copy(), X[:20] + 3
        bank = per_label(make()).fit(X, groups, subclass_labels=groups)
        if spoil:
            X[50:90] = 1.0
        bank.enroll(more, 9).refresh()
        scores.append(bank.log_likelihood_ratio(new))
    np.testing.assert_allclose(scores[1], scores[0], rtol=1e-12)


@pytest.mark.parametrize("solver", ["cholesky", "eigen"])
def test_without_a_ridge_a_nearly_constant_feature_is_singular(solver):
    """Pivots are compared with their own column, which is pure rounding there."""
    X, groups = far_away(0.0, np.float64)
    X = np.column_stack([X, 28.1 + 4e-15 * np.sin(np.arange(len(X)))])
    for model in (PCSDA(regularization=0, solver=solver), PCSDACV(PCSDA(), regularization=[0])):
        with pytest.raises(ValueError, match="is singular at regularization=0"):
            model.fit(X, groups == 0, subclass_labels=groups)
