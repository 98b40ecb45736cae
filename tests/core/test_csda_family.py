"""The relatives of CSDA (dual form, learned reference, raw targets) against their formulas."""

import numpy as np
import pytest
from factor_factories import WEIGHTED, close
from factories import make_rows
from numpy.testing import assert_allclose
from scipy import linalg
from scipy.linalg import subspace_angles
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.svm import LinearSVC

from pcsda import CSDA, KernelCSDA
from pcsda.core import csda_solvers, krylov
from pcsda.core.csda import Criterion, CSDAFactor, KernelCSDAFactor
from pcsda.core.scatter import GroupScatter


@pytest.fixture
def grown(monkeypatch):
    """Solve small problems in a growing basis too."""
    monkeypatch.setattr(krylov, "SMALL", 0)
    monkeypatch.setattr(krylov, "FEW", 1)


def scatters(X, groups, step, weights=None):
    """Compute S_n and S_p about the reference ``m + s (m - m_n)``, row by row."""
    w = np.ones(len(X)) if weights is None else weights
    m, m_n = (np.average(X[groups == g], axis=0, weights=w[groups == g]) for g in (0, 1))
    rows = X - (m + step * (m - m_n))
    return [(rows[part] * w[part, None]).T @ rows[part] for part in (groups == 1, groups == 0)]


def best_at(X, groups, step, eps, d, weights=None):
    """Find the largest trace ratio at a given reference, by iteration from below."""
    S_n, S_p = scatters(X, groups, step, weights)
    S_p = S_p + eps * np.eye(len(S_p))
    rho, before = 0.0, -1.0
    while rho > before * (1 + 1e-13):
        W = np.linalg.eigh(S_n - rho * S_p)[1][:, -d:]
        rho, before = np.trace(W.T @ S_n @ W) / np.trace(W.T @ S_p @ W), rho
    return rho


def ratio_of(model, X, groups, eps, weights=None):
    S_n, S_p = scatters(X, groups, model.step, weights)
    W = np.linalg.qr(model.components.T)[0]
    return np.trace(W.T @ S_n @ W) / np.trace(W.T @ (S_p + eps * np.eye(len(S_p))) @ W)


@pytest.mark.each_value
@pytest.mark.parametrize("d", [1, 3])
@pytest.mark.parametrize(("sizes", "eps"), [([25, 60], 0.5), ([3, 90], 60.0), ([40, 20], 300.0)])
@WEIGHTED
def test_no_scanned_reference_beats_the_learned_one(sizes, eps, d, weighted):
    X, groups, weights = make_rows(sizes, 5, weighted=weighted)
    scatter = GroupScatter.from_samples(X, groups, weights=weights)
    found = csda_solvers.trace_ratio(scatter, eps, d, learn_reference=True)
    assert_allclose(found.components @ found.components.T, np.eye(d), atol=1e-10)
    reached = ratio_of(found, X, groups, eps, weights)
    steps = np.append(-np.geomspace(1e-3, 30, 12), np.geomspace(1e-4, 1e4, 60))
    scanned = max(best_at(X, groups, s, eps, d, weights) for s in steps)
    assert scanned * (1 - 1e-9) <= reached <= best_at(X, groups, found.step, eps, d, weights) + 1e-9
    near = found.step * (1 + np.array([-1e-2, 1e-2]))
    assert reached >= max(best_at(X, groups, s, eps, d, weights) for s in near)
    # It is never worse than the mean, and better where the mean is not optimal.
    assert reached > best_at(X, groups, 0.0, eps, d, weights)


@pytest.mark.parametrize(("sizes", "eps"), [([25, 60], 0.5), ([3, 90], 60.0), ([40, 20], 300.0)])
@WEIGHTED
def test_a_reference_at_the_mean_gives_the_trace_ratio(sizes, eps, weighted):
    X, groups, weights = make_rows(sizes, 5, weighted=weighted)
    scatter = GroupScatter.from_samples(X, groups, weights=weights)
    found = csda_solvers.trace_ratio(scatter, eps, 2)
    assert found.step == 0
    reached = ratio_of(found, X, groups, eps, weights)
    assert_allclose(reached, best_at(X, groups, 0.0, eps, 2, weights), rtol=1e-9)


def test_few_positives_and_a_large_ridge_need_a_reference_far_away():
    X, groups, _ = make_rows([3, 90], 5)
    scatter = GroupScatter.from_samples(X, groups)
    plain = csda_solvers.trace_ratio(scatter, 60.0, 2)
    assert ratio_of(plain, X, groups, 60.0) < 90 / 3  # where the formula for s turns negative
    found = csda_solvers.trace_ratio(scatter, 60.0, 2, learn_reference=True)
    assert found.step > 0
    assert ratio_of(found, X, groups, 60.0) > 90 / 3


@pytest.mark.parametrize(("sizes", "eps"), [([25, 60], 0.5), ([3, 90], 60.0)])
def test_the_ratio_never_falls_while_the_reference_is_learned(sizes, eps):
    X, groups, _ = make_rows(sizes, 5)
    scatter = GroupScatter.from_samples(X, groups)
    ratios = [
        ratio_of(
            csda_solvers.trace_ratio(scatter, eps, 2, learn_reference=True, max_iter=n),
            X,
            groups,
            eps,
        )
        for n in range(1, 8)
    ]
    assert np.all(np.diff(ratios) >= -1e-10 * ratios[-1])
    assert ratios[-1] > 1.001 * ratios[0]


def test_equal_class_means_leave_the_reference_at_the_mean():
    X, groups, _ = make_rows([20, 30], 4)
    for g in (0, 1):
        X[groups == g] -= X[groups == g].mean(axis=0)
    scatter = GroupScatter.from_samples(X, groups)
    found = csda_solvers.trace_ratio(scatter, 0.5, 2, learn_reference=True)
    plain = csda_solvers.trace_ratio(scatter, 0.5, 2)
    assert abs(found.step) * np.linalg.norm(scatter.delta) < 1e-9
    close(found.components, plain.components, 1e-9)


@pytest.mark.parametrize("ridge", [1e-2, 1e2])
def test_the_density_about_a_reference_uses_the_scatters_about_it(ridge):
    X, groups, _ = make_rows([20, 50], 6)
    y = (groups == 0).astype(int)
    model = CSDA.published(3, reference="optimal", regularization=ridge).fit(X, y)
    S_n = scatters(X, groups, model.reference_step_)[0]
    m, m_n = X[y == 1].mean(axis=0), X[y == 0].mean(axis=0)
    mu = m + model.reference_step_ * (m - m_n)
    W = model.components_
    assert_allclose(model.reference_, W @ (mu - m), rtol=1e-7)
    z = (X - mu) @ W.T  # the positives sit at W'(m - mu)
    within = (X[y == 1] - m).T @ (X[y == 1] - m)
    at = W @ (m - mu)

    def log_density(rows, covariance):
        solved = np.linalg.solve(covariance, rows.T)
        return -0.5 * (np.einsum("ij,ji->i", rows, solved) + np.linalg.slogdet(covariance)[1])

    expected = log_density(z - at, W @ within @ W.T / 20) - log_density(z, W @ S_n @ W.T / 50)
    assert_allclose(model.log_likelihood_ratio(X), expected, rtol=1e-6, atol=1e-6)
    assert_allclose(-model.score_samples(X), np.linalg.norm(z, axis=1), rtol=1e-7)
    assert_allclose(model.transform(X), (X - m) @ W.T, atol=1e-9)


def test_the_mean_is_the_reference_unless_it_is_learned():
    X, groups, _ = make_rows([20, 50], 6)
    model = CSDA(3).fit(X, groups == 0)
    assert (model.reference_step_, model.reference_.tolist()) == (0.0, [0.0, 0.0, 0.0])


@pytest.mark.parametrize("solver", ["eigen", "labels", "raw_labels", "spectral", "lowrank"])
@pytest.mark.parametrize("make", [CSDA, KernelCSDA])
def test_a_reference_needs_the_trace_ratio(make, solver):
    X, groups, _ = make_rows([20, 50], 6)
    with pytest.raises(ValueError, match=f"trace ratio, which solver='{solver}' does not; use"):
        make(solver=solver, reference="optimal").fit(X, groups == 0)
    with pytest.raises(ValueError, match="reference='median' must be one of 'mean', 'optimal'"):
        make(reference="median").fit(X, groups == 0)


CRITERIA = {
    "eigen": {"solver": "eigen"},
    "lowrank": {"solver": "lowrank"},
    "trace ratio": {"solver": "trace_ratio"},
    "reference": {"solver": "auto", "learn_reference": True},
}


@pytest.mark.each_pair
@pytest.mark.parametrize("given", CRITERIA.values(), ids=CRITERIA)
@pytest.mark.parametrize("width", [6, 90], ids=["D<N", "D>N"])
@pytest.mark.parametrize("d", [2, None])
@WEIGHTED
def test_inner_products_give_the_axes_of_the_scatters(grown, given, width, d, weighted):
    X, groups, weights = make_rows([20, 50], width, weighted=weighted)
    criterion = Criterion(regularization=0.05, **given)
    w = np.ones(70) if weights is None else weights
    X = X - w @ X / w.sum()  # so that inner products lose no digits
    kernel = KernelCSDAFactor(X @ X.T, criterion, weights, definite=True).solve(groups, d)
    # The primal form: rows turned into their span, then scatter matrices.
    rows = X if width == 6 else linalg.qr(X.T, mode="economic")[1].T
    plain = CSDAFactor(rows, criterion, weights).solve(groups, d)
    count = len(plain.eigenvalues)
    assert kernel.rank >= count or d is None
    assert len(kernel.eigenvalues) == count
    assert_allclose(kernel.eigenvalues, plain.eigenvalues, rtol=1e-7)
    z, expected = X @ X.T @ kernel.coefficients - kernel.origin, plain.project(rows)
    signs = np.sign(np.sum(z * expected, axis=0))
    close(z * signs, expected, 1e-6)
    close(kernel.ridged, plain.ridged * np.outer(signs, signs), 1e-6)
    if plain.reference is not None:
        close(kernel.reference * signs, plain.reference, 1e-6)


@pytest.mark.parametrize("ridge", [1e-2, 1e-6, 1e-9])
def test_wide_rows_are_solved_by_inner_products_unless_the_ridge_is_tiny(ridge):
    X, groups, _ = make_rows([20, 30], 120)
    found = CSDAFactor(X, Criterion("eigen", ridge)).solve(groups, 3)
    rows = linalg.qr((X - X.mean(axis=0)).T, mode="economic")[1].T
    scatter = GroupScatter.from_samples(rows, groups)
    eps = ridge * scatter.total_variance
    values, W = linalg.eigh(scatter.out_of_class, scatter.positive + eps * np.eye(len(rows)))
    assert_allclose(found.eigenvalues, values[::-1][:3], rtol=1e-5)
    z = (rows - scatter.means[0]) @ W[:, ::-1][:, :3]
    assert subspace_angles(found.project(X), z).max() < 1e-5


def test_the_wide_form_has_no_more_axes_than_negatives():
    X, groups, _ = make_rows([20, 7], 120)
    assert CSDA().fit(X, groups == 0).n_components_ == 7
    X[groups == 1] = np.repeat(X[groups == 1][:3], [3, 2, 2], axis=0)
    assert CSDA().fit(X, groups == 0).n_components_ == 3
    with pytest.raises(ValueError, match=r"n_components=4 must be at most 3 \(= min\(n_negatives"):
        CSDA(4).fit(X, groups == 0)


def test_a_growing_basis_finds_the_leading_eigenvectors():
    rng = np.random.default_rng(0)
    turn = np.linalg.qr(rng.standard_normal((500, 500)))[0]
    values = np.append([9.0, 9.0, 7.0, 5.0], np.geomspace(3, 1e-6, 496))
    matrix = (turn * values) @ turn.T
    found = krylov.top_eigenvectors(lambda block: matrix @ block, 500, 5)
    assert subspace_angles(found, turn[:, :5]).max() < 1e-8
    assert_allclose(np.diag(found.T @ matrix @ found), values[:5], rtol=1e-10)


@pytest.mark.more  # 3000 nearly equal values
def test_a_basis_that_does_not_converge_is_abandoned():
    values = np.linspace(1, 1.001, 3000)[:, None]  # a diagonal matrix of nearly equal entries
    assert krylov.top_eigenvectors(lambda block: values * block, 3000, 2) is None


def test_axes_the_basis_misses_come_from_the_full_matrix(grown, monkeypatch):
    monkeypatch.setattr(krylov, "leading", lambda *args: None)
    X, groups, _ = make_rows([20, 50], 90)
    for given in ({"solver": "eigen"}, {"reference": "optimal"}):
        found = CSDA(2, calibrate=False, **given).fit(X, groups == 0)
        monkeypatch.undo()
        expected = CSDA(2, calibrate=False, **given).fit(X, groups == 0)
        assert_allclose(found.eigenvalues_, expected.eigenvalues_, rtol=1e-8)


def test_low_rank_negatives_skip_the_growing_basis(grown):
    X, groups, _ = make_rows([40, 30], 90)
    X[groups == 1] = X[groups == 1][0]
    assert CSDA(solver="trace_ratio").fit(X, groups == 0).n_components_ == 1


@pytest.mark.parametrize("solver", ["auto", "trace_ratio", "lowrank"])
def test_indefinite_kernels_are_refused(solver):
    rng = np.random.default_rng(0)
    matrix = rng.standard_normal((60, 60))
    matrix = matrix + matrix.T
    with pytest.raises(ValueError, match="the kernel matrix is not positive"):
        KernelCSDA("precomputed", solver=solver, n_components=2).fit(matrix, np.arange(60) % 3 == 0)


@WEIGHTED
def test_targets_solve_the_graph_problem(weighted):
    _, groups, weights = make_rows([12, 48], 6, weighted=weighted)
    w = np.ones(60) if weights is None else weights
    counts = np.bincount(groups, w)
    targets = csda_solvers.label_targets(groups, 6, np.random.default_rng(0), weights)
    full = np.zeros((60, 6))
    full[groups == 1] = targets * csda_solvers.target_lengths("spectral", counts, 6)
    # The first eigenvector's part on the positives, which a regression about their mean misses.
    root = np.sqrt(w)
    full[groups == 0, 0] = -root[groups == 0] * np.sqrt(counts[1] / counts[0] / counts.sum())
    full[:, 0] *= np.sign(full[groups == 1, 0].sum())
    full[groups == 0, 0] = -np.abs(full[groups == 0, 0])
    assert_allclose(full.T @ full, np.eye(6), atol=1e-10)
    centre = np.where(groups == 0, w, 0) / counts[0]
    U = (np.eye(60) - np.outer(np.ones(60), centre))[groups == 1] * root[groups == 1, None] / root
    about = (np.eye(60) - np.outer(np.ones(60), centre))[groups == 0]
    P_n = U.T @ U
    about = about * root[groups == 0, None] / root
    assert_allclose(about @ full, 0, atol=1e-10)  # P_p v = 0: all eigenvalues are infinite
    assert_allclose(P_n @ full[:, 0], (counts.sum() / counts[0]) * full[:, 0], atol=1e-9)
    assert_allclose(P_n @ full[:, 1:], full[:, 1:], atol=1e-9)


@pytest.mark.parametrize("width", [7, 90], ids=["D<N", "D>N"])
def test_raw_targets_are_the_regression_itself(width):
    X, groups, _ = make_rows([20, 50], width)
    y = groups == 0
    raw, spectral, ordered = (
        CSDA(4, solver=solver, calibrate=False, random_state=3).fit(X, y)
        for solver in ("raw_labels", "spectral", "labels")
    )
    m = X[y].mean(axis=0)
    eps = 0.01 * np.sum((X - X.mean(axis=0)) ** 2) / len(X)
    first = np.linalg.solve((X - m).T @ (X - m) + eps * np.eye(width), (X - m).T @ groups)
    first /= np.sqrt(50)
    close(np.abs(raw.components_[0]), np.abs(first), 1e-7)
    close(raw.components_[1:], spectral.components_[1:], 1e-9)
    ratio = spectral.components_[0] @ raw.components_[0] / np.sum(raw.components_[0] ** 2)
    assert_allclose(ratio, np.sqrt(20 / 70))
    # Rayleigh-Ritz stays in the span, orders it and loses nothing.
    assert subspace_angles(raw.components_.T, ordered.components_.T).max() < 1e-6
    assert ordered.eigenvalues_[0] > raw.eigenvalues_.max()
    S_n, S_p = scatters(X, groups, 0.0)
    quotients = [(w @ S_n @ w) / (w @ S_p @ w + eps * w @ w) for w in np.asarray(raw.components_)]
    assert_allclose(raw.eigenvalues_, quotients, rtol=1e-6)


@pytest.mark.parametrize("solver", ["raw_labels", "spectral"])
def test_the_first_targets_do_not_depend_on_how_many_follow(solver):
    X, groups, _ = make_rows([20, 50], 7)
    few, many = (
        CSDA(d, solver=solver, calibrate=False, random_state=3).fit(X, groups == 0) for d in (2, 5)
    )
    close(few.components_, many.components_[:2], 1e-9)


def test_more_targets_than_directions_are_refused():
    X, groups, _ = make_rows([20, 50], 6)
    X[:, 3:] = X[:, :3]
    for solver in ("raw_labels", "spectral"):
        with pytest.raises(ValueError, match="n_components=5 must be at most 3"):
            CSDA(5, solver=solver).fit(X, groups == 0)


def test_the_published_classifier_is_a_pipeline():
    X, groups, _ = make_rows([20, 50], 6)
    y = groups == 0
    svm = LinearSVC(dual=False)
    model = make_pipeline(CSDA(3), FunctionTransformer(np.abs), clone(svm)).fit(X, y)
    W, m = model[0].components_, X[y].mean(axis=0)
    distances = np.abs((X - m) @ W.T)  # |z - mu|, where mu is the projected positive mean
    by_hand = svm.fit(distances, y)
    assert_allclose(model.decision_function(X), by_hand.decision_function(distances), rtol=1e-6)
    assert model.score(X, y) > 0.8


@pytest.mark.each_value
@pytest.mark.parametrize(
    "given", [{"solver": "eigen"}, {"solver": "trace_ratio"}, {"reference": "optimal"}], ids=str
)
@pytest.mark.parametrize("kernel", ["rbf", "linear"])
@WEIGHTED
def test_folds_on_the_shared_matrix_calibrate_like_separate_fits(
    grown, monkeypatch, given, kernel, weighted
):
    X, groups, weights = make_rows([60, 240], 8, weighted=weighted)
    model = KernelCSDA(kernel, n_components=3, random_state=0, **given)
    shared = clone(model).fit(X, groups == 0, sample_weight=weights).calibration_
    monkeypatch.setattr(KernelCSDAFactor, "part", lambda self, train: None)
    alone = model.fit(X, groups == 0, sample_weight=weights).calibration_
    # Folds stop growing their basis at four digits.
    assert_allclose([shared.slope, shared.offset], [alone.slope, alone.offset], rtol=2e-3)


def test_folds_compute_no_kernel_values():
    calls = []

    def kernel(A, B):
        calls.append(len(A))
        return A @ B.T

    X, groups, _ = make_rows([20, 50], 8)
    KernelCSDA(kernel, n_components=2, random_state=0).fit(X, groups == 0)
    with_folds = len(calls)
    KernelCSDA(kernel, n_components=2, calibrate=False, random_state=0).fit(X, groups == 0)
    assert len(calls) == 2 * with_folds


@pytest.mark.parametrize("kind", [CSDA, KernelCSDA])
def test_there_are_at_most_25_axes_by_default(kind):
    X, groups, _ = make_rows([40, 60], 90)
    assert kind(calibrate=False).fit(X, groups == 0).n_components_ == 25
    assert kind(n_components=None, calibrate=False).fit(X, groups == 0).n_components_ == 60
    few = kind(calibrate=False).fit(X[groups == 0].repeat(2, 0)[:50], np.arange(50) < 40)
    assert few.n_components_ <= 10
    with pytest.raises(ValueError, match="n_components='most' must be a whole number of at least"):
        kind(n_components="most").fit(X, groups == 0)
