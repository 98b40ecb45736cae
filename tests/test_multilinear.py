"""MultilinearCSDA: its laws, its place among scikit-learn's estimators, and its refusals."""

import itertools
import pickle

import numpy as np
import pytest
from factories import lean
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from pcsda import CSDA, MultilinearCSDA, export_onnx, load, save
from pcsda.core import multilinear

SHAPE = (6, 5)


def planted(n_positive=20, n_negative=60, shape=SHAPE, seed=0):
    """Draw tensors whose classes differ by an outer product, and labels (1 for positives)."""
    rng = np.random.default_rng(seed)
    y = np.repeat([1, 0], [n_positive, n_negative])
    X = rng.standard_normal((len(y), *shape))
    sides = [np.linalg.qr(rng.standard_normal((size, 1)))[0][:, 0] for size in shape]
    outer = sides[0]
    for side in sides[1:]:
        outer = np.multiply.outer(outer, side)
    return X + np.multiply.outer(np.where(y == 1, 0.0, rng.uniform(3, 9, len(y))), outer), y, outer


def scatters(X, y, weights=None):
    rows = X.reshape(len(X), -1)
    w = np.ones(len(X)) if weights is None else weights
    rows = rows - np.average(rows[y == 1], axis=0, weights=w[y == 1])
    S_n, S_p = ((rows[y == c] * w[y == c, None]).T @ rows[y == c] for c in (0, 1))
    eps = 0.01 * np.sum(
        w @ (X.reshape(len(X), -1) - np.average(X.reshape(len(X), -1), axis=0, weights=w)) ** 2
    )
    return S_n, S_p + eps / w.sum() * np.eye(len(S_p))


def ratio(W, S_n, S_p):
    return np.trace(W @ S_n @ W.T) / np.trace(W @ S_p @ W.T)


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize(("shape", "dims"), [((6, 5), (2, 3)), ((4, 3, 3), (2, 1, 2))])
def test_the_ratio_equals_the_outer_products_on_flat_rows(shape, dims, weighted):
    X, y, _ = planted(shape=shape)
    weights = np.random.default_rng(1).uniform(0.5, 2, len(y)) if weighted else None
    model = MultilinearCSDA(dims, calibrate=False).fit(X, y, sample_weight=weights)
    S_n, S_p = scatters(X, y, weights)
    W = model.components_
    expected = np.array(
        [
            np.prod(np.ix_(*sides), axis=0).ravel()
            if len(sides) == 1
            else np.einsum(
                ",".join("ijk"[: len(sides)]) + "->" + "ijk"[: len(sides)], *sides
            ).ravel()
            for sides in itertools.product(*model.factors_)
        ]
    )
    assert_allclose(W, expected, atol=1e-12)
    assert_allclose(W @ W.T, np.eye(len(W)), atol=1e-10)
    assert_allclose(model.ratios_[-1], ratio(W, S_n, S_p), rtol=1e-9)
    assert np.all(np.diff(model.ratios_) >= -1e-10 * model.ratios_[-1])
    # Outer products are among the directions that CSDA chooses from.
    flat = CSDA(len(W), solver="trace_ratio", calibrate=False)
    flat.fit(X.reshape(len(X), -1), y, sample_weight=weights)
    assert ratio(flat.components_, S_n, S_p) >= model.ratios_[-1] * (1 - 1e-10)
    core = model.transform(X).reshape(-1, *model.core_shape_)
    m = np.average(X[y == 1], axis=0, weights=None if weights is None else weights[y == 1])
    moved = X - m
    for axis, sides in enumerate(model.factors_, 1):
        moved = np.moveaxis(np.tensordot(moved, sides, axes=(axis, 1)), -1, axis)
    assert_allclose(core, moved, atol=1e-9)


@pytest.mark.parametrize("d", [1, 4, (4,), None])
def test_one_mode_equals_csdas_trace_ratio(d):
    X, y, _ = planted()
    rows = X.reshape(len(X), -1)
    model = MultilinearCSDA(d, random_state=0).fit(rows, y)
    count = 5 if d is None else int(np.ravel(d)[0])
    flat = CSDA(count, solver="trace_ratio", random_state=0).fit(rows, y)
    order = np.argsort(-model.eigenvalues_, kind="stable")
    assert_allclose(model.eigenvalues_[order], flat.eigenvalues_, rtol=1e-8)
    cosines = np.abs(np.sum(model.components_[order] * flat.components_, axis=1))
    assert_allclose(cosines, 1, atol=1e-8)
    assert_allclose(
        model.log_likelihood_ratio(rows), flat.log_likelihood_ratio(rows), rtol=1e-6, atol=1e-6
    )


def test_more_cycles_never_lower_the_ratio_and_none_stops_early():
    X, y, _ = planted(shape=(6, 5))
    rows = X - X[y == 1].mean(axis=0)
    found = [
        multilinear.solve_modes(rows, y == 1, 0.3, (2, 2), cycles=n).ratios[-1] for n in (1, 2, 30)
    ]
    assert found[0] <= found[1] * (1 + 1e-12) <= found[2] * (1 + 1e-10)
    # At the end no single mode can be improved.
    modes = multilinear.solve_modes(rows, y == 1, 0.3, (2, 2)).modes
    for mode in (0, 1):
        S_n, S_p = multilinear.mode_scatters(multilinear.project(rows, modes, mode), mode, y == 1)
        rho = found[2]
        top = np.linalg.eigvalsh(S_n - rho * (S_p + 0.6 * np.eye(len(S_p))))[-2:].sum()
        assert abs(top) < 1e-5 * np.trace(S_n)


@pytest.mark.more
def test_with_two_positives_planted_outer_products_are_found_better():
    cosines = []
    for seed in range(6):
        X, y, outer = planted(2, 40, shape=(12, 10), seed=seed)
        flat = CSDA(1, calibrate=False, solver="trace_ratio").fit(X.reshape(len(X), -1), y)
        model = MultilinearCSDA((1, 1), calibrate=False).fit(X, y)
        cosines.append([abs(m.components_[0] @ outer.ravel()) for m in (model, flat)])
    ours, others = np.mean(cosines, axis=0)
    assert ours > others + 0.1


def test_negatives_that_differ_where_no_other_row_does_are_not_taken_for_positives():
    X, y, _ = planted(40, 200)
    X[:, :, 0] = 0  # a margin, in which only two negatives have ink
    X[-2:, 2, 0] = 0.3, 0.4
    odd = X[100:110].copy()
    odd[:, 2, 0] = 1.0
    model = MultilinearCSDA((3, 3), random_state=0).fit(X, y)
    at_mean = model.log_likelihood_ratio(X[y == 1].mean(axis=0, keepdims=True))
    assert model.log_likelihood_ratio(odd).max() < 0 < at_mean
    assert model.calibration_.slope > 0.1
    assert model.predict(X[y == 1]).mean() > 0.5


@pytest.mark.more
def test_flat_rows_with_a_shape_equal_tensors_also_in_pipelines_and_searches():
    X, y, _ = planted()
    rows = X.reshape(len(X), -1)
    model = MultilinearCSDA((2, 2), random_state=0).fit(X, y)
    flat = MultilinearCSDA((2, 2), shape=SHAPE, random_state=0).fit(rows, y)
    for method in ("transform", "log_likelihood_ratio", "score_samples", "predict", "rank"):
        assert_array_equal(getattr(model, method)(X), getattr(flat, method)(rows))
        assert_array_equal(getattr(model, method)(rows), getattr(flat, method)(X))
    assert_allclose(model.fast_scorer()(rows), model.log_likelihood_ratio(X), rtol=1e-9)
    assert len(model.explain(X[:3])) == 3
    piped = make_pipeline(StandardScaler(), clone(flat)).fit(rows, y)
    assert piped.score(rows, y) > 0.9
    plain = clone(flat).set_params(calibrate=False)
    search = GridSearchCV(plain, {"n_components": [(1, 1), (2, 2)]}, cv=3).fit(rows, y)
    assert search.best_params_["n_components"] in [(1, 1), (2, 2)]
    assert model.shape_ == flat.shape_ == SHAPE
    threshold = model.choose_threshold(max_false_alarms=0.2, X=X, y=y)
    assert_array_equal(model.accepts(X), model.log_likelihood_ratio(X) >= threshold.value)


@pytest.mark.parametrize("shape", [(3, 4), (5, 1), (1, 5), (2, 2, 3)])
def test_the_fast_scorer_takes_tensors_and_flat_rows(shape):
    X, y, _ = planted(shape=shape)
    model = MultilinearCSDA(random_state=0).fit(X, y)
    score, expected = model.fast_scorer(), model.log_likelihood_ratio(X)
    assert_allclose(score(X), expected, rtol=1e-9)
    assert_allclose(score(X.reshape(len(X), -1)), expected, rtol=1e-9)
    assert_allclose(np.ravel(score(X[0])), expected[:1], rtol=1e-9)
    assert_allclose(score(X[0].ravel()), expected[0], rtol=1e-9)


def test_ranking_and_ratios_equal_the_cores():
    X, y, _ = planted()
    model = MultilinearCSDA.published((2, 2)).fit(X, y)
    z = model.transform(X)
    assert_allclose(-model.score_samples(X), np.linalg.norm(z, axis=1))
    phi_p, phi_o = z[y == 1].T @ z[y == 1] / 20, z[y == 0].T @ z[y == 0] / 60

    def log_density(covariance):
        solved = np.linalg.solve(covariance, z.T)
        return -0.5 * (np.einsum("ij,ji->i", z, solved) + np.linalg.slogdet(covariance)[1])

    expected = log_density(phi_p) - log_density(phi_o)
    assert_allclose(model.log_likelihood_ratio(X), expected, rtol=1e-7, atol=1e-7)
    assert MultilinearCSDA().fit(X, y).calibration_.slope > 0


def test_files_pickles_and_onnx_hold_the_model(tmp_path):
    X, y, _ = planted()
    rows = X.reshape(len(X), -1)
    model = MultilinearCSDA((2, 2), random_state=0).fit(X, y)
    save(model, tmp_path / "model")
    for again in (load(tmp_path / "model"), pickle.loads(pickle.dumps(model))):
        assert_array_equal(again.log_likelihood_ratio(X), model.log_likelihood_ratio(X))
        assert again.shape_ == SHAPE
    runtime = pytest.importorskip("onnxruntime")
    export_onnx(model, tmp_path / "model.onnx", dtype="float64")
    session = runtime.InferenceSession(
        str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"]
    )
    names = [output.name for output in session.get_outputs()]
    outputs = session.run(None, {session.get_inputs()[0].name: rows})
    found = dict(zip(names, outputs, strict=True))
    ours = model.log_likelihood_ratio(X)
    assert_allclose(found["log_likelihood_ratio"].ravel(), ours, rtol=1e-9, atol=1e-9)
    assert_allclose(found["z"], model.transform(X), rtol=1e-9, atol=1e-9)


def test_single_precision_far_from_zero_keeps_its_digits():
    X, y, _ = planted()
    exact = MultilinearCSDA((2, 2), calibrate=False).fit(X, y)
    far = (X + 1e3).astype(np.float32)
    single = MultilinearCSDA((2, 2), calibrate=False).fit(far, y)
    assert single.transform(far).dtype == np.float32
    assert_allclose(single.transform(far), exact.transform(X), atol=2e-2)


def test_one_positive_warns_and_ranks():
    X, y, _ = planted(1, 30)
    with pytest.warns(UserWarning, match="a single positive shows no spread"):
        model = MultilinearCSDA((1, 1)).fit(X, y)
    assert model.rank(X)[0] in range(31)


def refusals():
    X, y, _ = planted()
    rows = X.reshape(len(X), -1)
    flat_mode = X.copy()
    flat_mode[:, 2:] = 1.0
    few = [0, 20]
    return {
        "product": ({"shape": (6, 6)}, rows, y, r"shape=\(6, 6\) multiplies to 36, but the rows"),
        "other shape": ({"shape": (5, 6)}, X, y, r"samples of shape \(6, 5\), but \(5, 6\) is"),
        "too few entries": (
            {"n_components": 3},
            X,
            y,
            r"n_components=3 has 1 entry, but shape \(6, 5\) has 2 modes; give one number for each "
            "mode, or None for up to 5 each$",
        ),
        "one mode": (
            {"n_components": (2, 2)},
            rows,
            y,
            r"has 2 entries, but shape \(30,\) has 1 mode; give one number for each mode, or None "
            "for up to 5 each, or shape= if the rows of X are flat tensors",
        ),
        "above a mode": ({"n_components": (2, 6)}, X, y, r"n_components\[1\]=6 must be at most 5"),
        "zero": ({"n_components": (0, 2)}, X, y, r"n_components=\(0, 2\) must be a whole number"),
        "words": ({"shape": "auto"}, X, y, "shape='auto' must be a whole number of at least 1"),
        "constant mode": (
            {"n_components": (3, 1)},
            flat_mode,
            y,
            r"n_components\[0\]=3 must be at most 2: with the other modes projected",
        ),
        "above the rank": (
            {"n_components": (3, 1), "calibrate": False},
            X[few],
            y[few],
            r"n_components\[0\]=3 must be at most 1: with the other modes projected",
        ),
        "no ridge": (
            {"n_components": (1, 1), "regularization": 0, "calibrate": False},
            X[[0, 30, 31]],
            y[[0, 30, 31]],
            "is singular at regularization=0; raise regularization",
        ),
        "NaN": ({}, np.where(X > 2, np.nan, X), y, "contains NaN"),
        "equal": ({}, np.ones_like(X), y, "all rows of X are equal"),
    }


def test_unless_told_otherwise_a_mode_has_no_more_directions_than_samples_vary_in():
    X, y, _ = planted()
    alike = np.repeat(X[:, :, :1], 5, axis=2)  # the columns of each sample are equal
    assert MultilinearCSDA(random_state=0).fit(alike, y).core_shape_ == (5, 1)
    X[:, 2:] = 1.0
    assert MultilinearCSDA(random_state=0).fit(X, y).core_shape_ == (2, 5)
    weights = np.ones(len(y))
    X[3, 2:] = 7.0  # a row of weight zero counts for nothing
    weights[3] = 0
    assert MultilinearCSDA(random_state=0).fit(X, y, sample_weight=weights).core_shape_ == (2, 5)


@pytest.mark.parametrize("case", refusals())
@pytest.mark.filterwarnings("ignore:a single positive shows no spread")
def test_bad_input_is_refused_with_value_bound_and_remedy(case):
    given, X, y, message = refusals()[case]
    with pytest.raises(ValueError, match=message):
        MultilinearCSDA(**given).fit(X, y)


def test_a_different_shape_at_prediction_is_refused():
    X, y, _ = planted()
    model = MultilinearCSDA((2, 2)).fit(X, y)
    with pytest.raises(ValueError, match=r"samples of shape \(5, 6\), but \(6, 5\) is expected"):
        model.predict(X.transpose(0, 2, 1))
    with pytest.raises(ValueError, match="X has 29 features, but MultilinearCSDA is expecting 30"):
        model.predict(X.reshape(len(X), -1)[:, 1:])
    scattered = sparse.csr_array(X.reshape(len(X), -1))
    with pytest.raises(TypeError, match="does not take sparse input"):
        MultilinearCSDA().fit(scattered, y)


WEIGHTS = (
    "fold scores differ: copies of a repeated row stay in the model, but a row of weight two "
    "leaves as a whole"
)


def fail_by_nature(estimator):
    """Name the only checks that may fail, and why."""
    if not estimator.calibrate:
        return {}
    return {
        "check_sample_weight_equivalence_on_dense_data": WEIGHTS,
        "check_sample_weights_invariance": WEIGHTS,
    }


@lean(parametrize_with_checks([MultilinearCSDA()], expected_failed_checks=fail_by_nature))
def test_scikit_learn_checks_hold(estimator, check):
    check(estimator)


@pytest.mark.more
@parametrize_with_checks([MultilinearCSDA(calibrate=False)], expected_failed_checks=fail_by_nature)
def test_scikit_learn_checks_hold_without_calibration(estimator, check):
    check(estimator)
