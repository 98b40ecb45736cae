"""ONNX graphs: ONNX Runtime must agree with the model to the last digits of its type."""

import json
import os
import sys
from dataclasses import replace
from functools import lru_cache
from importlib.metadata import version

import numpy as np
import onnx
import onnxruntime
import pandas as pd
import pytest
import skl2onnx
from factories import in_turn, make_rows
from hypothesis import given
from hypothesis import strategies as st
from kernel_factories import SETTINGS, kernel_problem, labelled, rational
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer, make_column_transformer
from sklearn.exceptions import NotFittedError
from sklearn.impute import KNNImputer, SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline, make_union
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler

from pcsda import (
    CSDA,
    PCSDA,
    PCSDACV,
    ExactKernelMap,
    FourierMap,
    KernelCSDA,
    KernelPCSDA,
    MixtureVerifier,
    NystroemMap,
    VerifierBank,
    export_onnx,
    load,
    register_onnx,
    save,
)
from pcsda.core.calibration import Calibration
from pcsda.core.density import Blend
from pcsda.core.pair import Pair

X, Y, GROUPS = labelled(sizes=[30, 25, 28, 20])
NEW = labelled(sizes=[9, 8, 9, 8], seed=1)[0]
TYPES = pytest.mark.parametrize("dtype", ["float32", "float64"])
# float32 needs a relative tolerance too, for its rounding of large values.
CLOSE = {"float32": {"atol": 1e-4, "rtol": 1e-6}, "float64": {"atol": 1e-9, "rtol": 1e-10}}
NAMES = ["label", "probabilities", "log_likelihood_ratio", "z"]


@lru_cache(maxsize=1)  # a test may run the same graph several times
def session_of(content):
    onnx.checker.check_model(onnx.load_from_string(content), full_check=True)
    return onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])


def run(content, rows):
    session = session_of(content)
    (given_input,) = session.get_inputs()
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, {given_input.name: rows}), strict=True))


def exported(model, folder, rows, dtype="float64", **options):
    export_onnx(model, folder / "m.onnx", dtype=dtype, **options)
    assert os.listdir(folder) == ["m.onnx"]
    return run((folder / "m.onnx").read_bytes(), rows.astype(dtype))


def proper(model, rows):
    """Return the model at the end of a pipeline, and the rows that reach it."""
    if isinstance(model, Pipeline):
        return proper(model[-1], model[:-1].transform(rows))
    return model, rows


def assert_agrees(found, model, rows, dtype="float64"):
    """Compare with the model in double precision, on the rows that the graph received."""
    rows = rows.astype(dtype)
    final, inner = proper(model, rows.astype(np.float64))
    door = isinstance(final, VerifierBank) and hasattr(final, "threshold_")
    assert list(found) == [*NAMES, "accepted"] if door else list(found) == NAMES
    if door:
        best = found["log_likelihood_ratio"].max(axis=1)
        np.testing.assert_array_equal(found["accepted"], best >= final.threshold_.value)
    np.testing.assert_array_equal(found["label"], model.predict(rows))
    expected = {
        "probabilities": final.predict_proba(inner),
        "log_likelihood_ratio": final.log_likelihood_ratio(inner),
        "z": side_by_side(final, inner) if hasattr(final, "models_") else final.transform(inner),
    }
    for name, values in expected.items():
        assert found[name].dtype == dtype
        assert found[name].shape == values.shape
        np.testing.assert_allclose(found[name], values, **CLOSE[dtype], err_msg=name)


def assert_takes_no_row_and_one(folder, model, dtype="float64"):
    """Check that the exported graph gives exactly one answer per row, for no row and for one."""
    content = (folder / "m.onnx").read_bytes()
    found = run(content, NEW[:0].astype(dtype))
    assert {len(values) for values in found.values()} == {0}
    assert_agrees(run(content, NEW[:1].astype(dtype)), model, NEW[:1], dtype)


def side_by_side(bank, rows):
    """Return coordinates of all models of a bank, padded with zeros."""
    models = bank.models_ if isinstance(bank, MixtureVerifier) else bank.models_.values()
    parts = [model.transform(rows) for model in models]
    wide = max(part.shape[1] for part in parts)
    return np.stack([np.pad(part, [(0, 0), (0, wide - part.shape[1])]) for part in parts], axis=1)


MODELS = {
    "PCSDA": PCSDA(3, random_state=0),
    "PCSDA.published": PCSDA.published(2, pos_label=0),
    "PCSDA without much": PCSDA(3, n_components=1, calibrate=False, priors=(0.2, 0.8)),
    "CSDA": CSDA(2, random_state=0),
    "contamination": PCSDA(3, contamination=0.1, random_state=0),
    "contamination of a kernel": KernelPCSDA(n_subclasses=3, contamination=0.02, random_state=0),
    "MixtureVerifier": MixtureVerifier(PCSDA(3, random_state=0), n_modes=2),
    "KernelPCSDA": KernelPCSDA(n_subclasses=3, random_state=0),
    "KernelCSDA": KernelCSDA(n_components=2, random_state=0),
    "PCSDACV": PCSDACV(n_subclasses=[1, 3], regularization=[0.01, 0.1]),
    "PCSDACV of KernelPCSDA": PCSDACV(KernelPCSDA(), n_subclasses=2, regularization=0.1),
    "PCSDACV of a pipeline": PCSDACV(
        make_pipeline(StandardScaler(), NystroemMap(20, random_state=0), PCSDA(random_state=0)),
        n_subclasses=2,
        cv=2,
    ),
    "StandardScaler": make_pipeline(StandardScaler(), PCSDA(2, random_state=0)),
    "MinMaxScaler": make_pipeline(MinMaxScaler(), KernelPCSDA(n_subclasses=2, random_state=0)),
    "RobustScaler": make_pipeline(RobustScaler(), CSDA(2, random_state=0)),
    "MaxAbsScaler": make_pipeline(MaxAbsScaler(), PCSDA(2, random_state=0)),
    "NystroemMap": make_pipeline(
        StandardScaler(), NystroemMap(20, random_state=0), PCSDA(3, random_state=0)
    ),
    "FourierMap": make_pipeline(FourierMap(21, random_state=0), PCSDA(3, random_state=0)),
    "ExactKernelMap": make_pipeline(ExactKernelMap(method="eigen"), PCSDA(3, random_state=0)),
    "a model before a model": make_pipeline(
        StandardScaler(), PCSDA(4, random_state=0), CSDA(2, random_state=0)
    ),
    "pipelines in pipelines": make_pipeline(
        make_pipeline(StandardScaler(), FourierMap(30, random_state=0)),
        make_pipeline(CSDA(5, random_state=0), PCSDA(2, random_state=0)),
    ),
}


@pytest.mark.each_value
@TYPES
@in_turn("name", list(MODELS))
def test_a_graph_agrees_with_the_model(name, dtype, tmp_path):
    model = MODELS[name].fit(X, Y)
    assert_agrees(exported(model, tmp_path, NEW, dtype), model, NEW, dtype)
    assert_takes_no_row_and_one(tmp_path, model, dtype)


@given(data=st.data())
def test_a_graph_agrees_with_every_kind_of_model(data, tmp_path_factory):
    draw = data.draw
    width, count = draw(st.integers(1, 7)), draw(st.integers(1, 5))
    sizes = draw(st.lists(st.integers(3, 15), min_size=count + 1, max_size=count + 1))
    rows, groups, _ = make_rows(sizes, width, seed=draw(st.integers(0, 99)))
    rows = rows * draw(st.sampled_from([1.0, 1e-3, 1e4])) + draw(st.sampled_from([0.0, 50.0]))
    model = PCSDA(
        negatives=draw(st.sampled_from(["mixture", "marginal"])),
        covariance=draw(st.sampled_from(["leave-one-out", "resubstitution"])),
        priors=draw(st.sampled_from(["empirical", "equal", (0.9, 0.1)])),
        pos_label=draw(st.sampled_from([None, True, False])),
        n_components=draw(st.sampled_from([None, 1])),
        random_state=0,
    )
    labels = (groups == 0) != (model.pos_label is False)
    model.fit(rows, labels, subclass_labels=groups)
    folder = tmp_path_factory.mktemp("graph")
    assert_agrees(exported(model, folder, rows), model, rows)


@pytest.mark.each_value
@TYPES
@in_turn("kernel", [name for name in SETTINGS if name != "callable"])
@pytest.mark.parametrize("kind", ["estimator", "map"])
def test_every_kernel_can_be_exported(kernel, kind, dtype, tmp_path):
    rows, new, y, *_ = kernel_problem(kernel)
    if kind == "estimator":
        model = KernelPCSDA(**SETTINGS[kernel], n_subclasses=2, random_state=0)
    else:
        model = make_pipeline(ExactKernelMap(**SETTINGS[kernel], tol=1e-5), PCSDA(2))
    model.fit(rows, y)
    assert_agrees(exported(model, tmp_path, new, dtype), model, new, dtype)


def test_the_sigmoid_kernel_can_be_exported(tmp_path):
    model = NystroemMap(5, kernel="sigmoid", gamma=1e-3, tol=1e-8, random_state=0).fit(X)
    features = exported(model, tmp_path, NEW)["features"]
    np.testing.assert_allclose(features, model.transform(NEW), rtol=1e-9, atol=1e-9)


def test_a_zero_row_has_cosine_zero(tmp_path):
    rows = np.vstack([np.zeros(X.shape[1]), X])
    model = KernelPCSDA(kernel="cosine", n_subclasses=2, random_state=0)
    model.fit(rows, np.concatenate([[0], Y]))
    assert_agrees(exported(model, tmp_path, rows[:9]), model, rows[:9])


@pytest.mark.each_value
@in_turn("slope", [1 + 1e-9, 1 - 1e-9, 2 + 1e-9, 0.5 - 1e-10, 1.0, 1e-5, 300.0])
@pytest.mark.parametrize("negatives", ["blend", "mixture"])
def test_a_slope_of_almost_one_is_not_one(negatives, slope, tmp_path):
    model = PCSDA(2, negatives=negatives, random_state=0).fit(X, Y)
    model.calibration_ = Calibration((slope,) * model.density_.n_views, 1e-8)
    found = exported(model, tmp_path, 100 * NEW)["log_likelihood_ratio"]
    np.testing.assert_allclose(found, model.log_likelihood_ratio(100 * NEW), rtol=1e-12)


def test_a_bandwidth_of_almost_one_is_not_one(tmp_path):
    model = ExactKernelMap(gamma=1 + 1e-9).fit(X)
    found = exported(model, tmp_path, X)["features"]
    np.testing.assert_allclose(found, model.transform(X), atol=1e-10)


def test_a_function_as_kernel_is_refused(tmp_path):
    message = r"kernel=<function rational at .*> is a Python function, which an ONNX graph"
    for model in (
        KernelPCSDA(kernel=rational, n_subclasses=2),
        make_pipeline(NystroemMap(9, kernel=rational), PCSDA(2)),
    ):
        with pytest.raises(NotImplementedError, match=message):
            export_onnx(model.fit(X, Y), tmp_path / "m.onnx")
    assert os.listdir(tmp_path) == []


@pytest.mark.each_value
@TYPES
@pytest.mark.parametrize("kind", [ExactKernelMap, NystroemMap, FourierMap])
def test_maps_can_be_exported_alone(kind, dtype, tmp_path):
    model = kind(n_components=15, random_state=0).fit(X)
    found = exported(model, tmp_path, NEW, dtype)
    assert list(found) == ["features"]
    expected = model.transform(NEW.astype(dtype).astype(np.float64))
    assert found["features"].dtype == dtype
    tolerance = 1e-5 if dtype == "float32" else 1e-10
    np.testing.assert_allclose(found["features"], expected, atol=tolerance)


def test_a_single_fourier_feature_can_be_exported(tmp_path):
    model = FourierMap(1, random_state=0).fit(X)
    features = exported(model, tmp_path, NEW)["features"]
    np.testing.assert_allclose(features, model.transform(NEW), atol=1e-12)


BANKS = {
    "linear": VerifierBank(PCSDA(3, random_state=0)),
    "kernel": VerifierBank(KernelPCSDA(gamma="all", n_subclasses=3, random_state=0)),
    "search": VerifierBank(PCSDACV(n_subclasses=[1, 3], n_components=[1, 2], regularization=0.01)),
    "separate": VerifierBank(CSDA(2, random_state=0)),
    "separate kernels": VerifierBank(KernelPCSDA(n_subclasses=2, random_state=0)),
    "pipelines": VerifierBank(
        PCSDACV(
            make_pipeline(StandardScaler(), FourierMap(9, random_state=0), PCSDA(random_state=0)),
            n_subclasses=[1, 3],
            n_components=[1, 2],
            regularization=0.01,
            cv=2,
        )
    ),
}


def with_tails(density, tails):
    """Return the density with these tails for the mixture and, if there is one, the cloud."""
    base = replace(density.base, tail=tails[0])
    return base if density.n_views == 1 else replace(density, base=base, tail=tails[1])


@pytest.mark.each_value
@TYPES
@pytest.mark.parametrize("tails", [(3.0, 7.0), (3.0, np.inf), (np.inf, 7.0), (np.inf, np.inf)])
@pytest.mark.parametrize("negatives", ["blend", "mixture"])
def test_tails_and_weights_are_exported(negatives, tails, dtype, tmp_path):
    model = PCSDA(3, negatives=negatives, random_state=0).fit(X, Y)
    model.density_ = with_tails(model.density_, tails)
    if negatives == "blend":
        model.calibration_ = Calibration((0.7, 0.4), -1.3)
    assert model.density_.n_views == (2 if negatives == "blend" else 1)
    assert_agrees(exported(model, tmp_path, NEW, dtype), model, NEW, dtype)


@TYPES
@pytest.mark.more
def test_a_bank_may_mix_tails_and_views(dtype, tmp_path):
    bank = VerifierBank(PCSDA(3, random_state=0), calibration="per-label").fit(X, GROUPS)
    tails = [(np.inf, 4.0), (3.0, np.inf), (5.0, 6.0), (np.inf, np.inf)]
    for number, model in enumerate(bank.models_.values()):
        model.density_ = with_tails(model.density_, tails[number % 4])
        model.calibration_ = Calibration((0.3, 0.9), model.calibration_.offset)
        if number == 1:
            model.density_, model.calibration_ = model.density_.base, Calibration((0.3,))
    assert len(bank.models_) > 2
    assert_agrees(exported(bank, tmp_path, NEW, dtype), bank, NEW, dtype)


@TYPES
def test_a_bank_may_mix_plain_models_and_joined_ones(dtype, tmp_path):
    """Labels with hidden positives have the axes and densities of two models each."""
    rng = np.random.default_rng(0)
    centres = 3 * rng.standard_normal((6, 4))
    known, crowd = np.repeat([0, 1, 2], 12), np.repeat([0, 3, 4, 5], [12, 20, 20, 20])
    rows, background = (
        centres[kinds] + rng.standard_normal((len(kinds), 4)) for kinds in (known, crowd)
    )
    template = PCSDA(3, contamination="auto", random_state=0)
    bank = VerifierBank(template).fit(rows, known, background=background)
    kinds = [type(model.density_) for model in bank.models_.values()]
    assert kinds[0] is Pair
    assert Blend in kinds
    new = centres[rng.integers(0, 6, 40)] + rng.standard_normal((40, 4))
    alone = [model.log_likelihood_ratio(new) for model in bank.models_.values()]
    np.testing.assert_allclose(bank.log_likelihood_ratio(new), np.transpose(alone), rtol=1e-7)
    assert_agrees(exported(bank, tmp_path, new, dtype), bank, new, dtype)


@pytest.mark.each_value
@TYPES
@in_turn("name", list(BANKS))
def test_a_bank_can_be_exported(name, dtype, tmp_path):
    bank = BANKS[name].fit(X, GROUPS)
    assert_agrees(exported(bank, tmp_path, NEW, dtype), bank, NEW, dtype)
    assert_takes_no_row_and_one(tmp_path, bank, dtype)


@pytest.mark.more
def test_a_bank_may_mix_numbers_of_axes_and_subclasses(tmp_path):
    search = PCSDACV(n_subclasses=[2], n_components=[2], regularization=0.01, cv=2)
    rows, groups, _ = make_rows([30, 25, 40, 35, 28], 4, spread=1.2)
    bank = VerifierBank(search).fit(rows, groups)
    # A search may choose one size for all labels; here two labels have another.
    for label, count in ((1, 1), (3, 3)):
        other = clone(search).set_params(n_subclasses=[count], n_components=[count])
        bank._labels_.models[label] = other.fit(rows, groups == label)
    chosen = [model.best_estimator_.density_.base for model in bank.models_.values()]
    assert [base.centres.shape for base in chosen] == [(n, n) for n in (2, 1, 2, 3, 2)]
    assert_agrees(exported(bank, tmp_path, rows), bank, rows)


@pytest.mark.parametrize(
    "estimator",
    [PCSDA(2), pytest.param(KernelPCSDA(gamma="all", n_subclasses=2), marks=pytest.mark.more)],
)
def test_banks_of_two_labels_and_after_enrolment_can_be_exported(estimator, tmp_path):
    bank = VerifierBank(estimator).fit(X, np.where(Y, "me", "else"))
    assert_agrees(exported(bank, tmp_path, NEW), bank, NEW)
    bank.enroll(NEW[:12] + 3, "f").enroll(NEW[5:20] - 2, "g")  # the shared rows are not in order
    assert bank.classes_.tolist() == ["else", "f", "g", "me"]
    assert_agrees(exported(bank, tmp_path, NEW), bank, NEW)
    save(bank, tmp_path / "model")
    loaded = load(tmp_path / "model")
    os.remove(tmp_path / "model")
    assert_agrees(exported(loaded, tmp_path, NEW), bank, NEW)


def test_rows_shared_by_kernel_models_are_stored_once(tmp_path):
    def size(count):
        bank = VerifierBank(KernelPCSDA(gamma="all", n_subclasses=1)).fit(X, GROUPS % count)
        export_onnx(bank, tmp_path / "m.onnx")
        return os.path.getsize(tmp_path / "m.onnx")

    assert size(4) - size(3) < X.nbytes


LABELS = {
    "bool": [False, True],
    "int": [7, -2],
    "uint8": np.array([3, 200], dtype=np.uint8),
    "float": [0.0, 4.0],
    "str": ["weld", "ä ö"],
    "object": np.array(["yes", "no"], dtype=object),
}


@pytest.mark.each_value
@in_turn("kind", list(LABELS))
@pytest.mark.parametrize("model", [PCSDA(2, random_state=0), VerifierBank(PCSDA(2))], ids=str)
def test_labels_may_have_any_type_of_onnx(kind, model, tmp_path):
    model = clone(model).fit(X, np.asarray(LABELS[kind])[Y])
    found = exported(model, tmp_path, NEW)
    assert found["label"].dtype == (object if kind in ("str", "object") else np.int64)
    assert_agrees(found, model, NEW)


def test_labels_that_onnx_cannot_store_are_refused(tmp_path):
    model = PCSDA(2).fit(X, np.array([0.25, 0.75], dtype=object)[Y].astype(str).astype(object))
    model.classes_ = np.array([0.25, 0.75])
    message = (
        r"labels \[0.25, 0.75\] of type float64 cannot be stored in an ONNX graph; use integers"
    )
    with pytest.raises(ValueError, match=message):
        export_onnx(model, tmp_path / "m.onnx")


@in_turn("name", ["PCSDA", "CSDA", "KernelPCSDA", "NystroemMap", "StandardScaler"])
def test_a_large_offset_costs_no_digits_in_float32(name, tmp_path):
    offset = 1e4 * np.arange(1, X.shape[1] + 1)
    rows, new = (X + offset).astype(np.float32), (NEW + offset).astype(np.float32)
    model = MODELS[name].fit(rows.astype(np.float64), Y)
    found = exported(model, tmp_path, new, "float32")
    final, inner = proper(model, new.astype(np.float64))
    ratio = final.log_likelihood_ratio(inner)
    np.testing.assert_allclose(found["log_likelihood_ratio"], ratio, atol=1e-4, rtol=1e-6)


@pytest.mark.more
def test_an_offset_costs_no_digits(tmp_path):
    step, offset = 2.0**-10, 2.0**30  # so that rows can be moved and moved back without rounding
    rows, new = np.round(X / step) * step, np.round(NEW / step) * step
    for model in (PCSDA(3, random_state=0), KernelPCSDA(n_subclasses=3, random_state=0)):
        model.fit(rows, Y)
        before = exported(model, tmp_path, new)["log_likelihood_ratio"]
        if isinstance(model, PCSDA):
            model.positive_mean_ = np.round(model.positive_mean_ / step) * step
            before = exported(model, tmp_path, new)["log_likelihood_ratio"]
            model.positive_mean_ = model.positive_mean_ + offset
        else:
            model.X_fit_ = model.X_fit_ + offset
        after = exported(model, tmp_path, new + offset)["log_likelihood_ratio"]
        np.testing.assert_allclose(after, before, rtol=1e-7, atol=1e-7)


def test_a_model_fitted_in_float32_can_be_exported(tmp_path):
    model = PCSDA(3, random_state=0).fit(X.astype(np.float32), Y)
    found = exported(model, tmp_path, NEW, "float32")
    ratio = model.log_likelihood_ratio(NEW.astype(np.float32))
    np.testing.assert_allclose(found["log_likelihood_ratio"], ratio, atol=1e-4)


@TYPES
def test_far_rows_have_finite_logarithms(dtype, tmp_path):
    model = PCSDA(2, random_state=0).fit(X, Y)
    found = exported(model, tmp_path, NEW * 1e4, dtype)
    assert np.all(found["probabilities"] > 0)
    ratio = model.log_likelihood_ratio((NEW * 1e4).astype(dtype).astype(np.float64))
    np.testing.assert_allclose(found["log_likelihood_ratio"], ratio, rtol=1e-6)


@pytest.mark.parametrize(
    "scale", [1e200, *(pytest.param(s, marks=pytest.mark.more) for s in (1e-200, 1e-30, 1e120))]
)
def test_huge_rows_agree_with_the_model(scale, tmp_path):
    for model in (PCSDA(2, random_state=0), KernelPCSDA(kernel="cosine", n_subclasses=2)):
        model.fit(X, Y)
        assert_agrees(exported(model, tmp_path, scale * NEW), model, scale * NEW)
    bank = VerifierBank(PCSDA(2)).fit(X, GROUPS)
    found = exported(bank, tmp_path, scale * NEW)["log_likelihood_ratio"]
    np.testing.assert_allclose(found, bank.log_likelihood_ratio(scale * NEW), rtol=1e-9)


def test_small_probabilities_keep_their_digits(tmp_path):
    # Heavy tails, and limited ratios, never give such certainty.
    model = PCSDA(2, negatives="mixture", tails="gaussian", calibrate=False).fit(X, Y)
    found = np.log(exported(model, tmp_path, 6 * NEW)["probabilities"])
    logs = model.predict_log_proba(6 * NEW)
    assert logs.min() < -60
    np.testing.assert_allclose(found, np.maximum(logs, -700), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "model",
    [VerifierBank(PCSDA(2)), KernelPCSDA(kernel="laplacian", n_subclasses=2)],
    ids=["two labels", "laplacian"],
)
def test_a_graph_takes_zero_rows_and_one_row(model, tmp_path):
    model.fit(X, Y)
    assert_agrees(exported(model, tmp_path, NEW), model, NEW)
    assert_takes_no_row_and_one(tmp_path, model)


@pytest.mark.each_value
@pytest.mark.parametrize(
    "opset",
    [
        13,
        *(pytest.param(n, marks=pytest.mark.more) for n in (15, 17, 18)),
        skl2onnx.get_latest_tested_opset_version(),
    ],
)
@in_turn("kernel", ["rbf", "laplacian", "chi2"])
def test_earlier_operator_sets_work(opset, kernel, tmp_path):
    rows, new, _, groups, *_ = kernel_problem(kernel)
    bank = VerifierBank(KernelPCSDA(**SETTINGS[kernel], n_subclasses=2)).fit(rows, groups)
    assert_agrees(exported(bank, tmp_path, new, target_opset=opset), bank, new)
    graph = onnx.load(tmp_path / "m.onnx")
    assert max(entry.version for entry in graph.opset_import if not entry.domain) <= opset


THRESHOLDS = {
    "PCSDA": PCSDA(3, random_state=0),
    "kernel": KernelPCSDA(n_subclasses=3, random_state=0),
    "search": PCSDACV(n_subclasses=3, n_components=2, regularization=0.1),
    "pipeline": make_pipeline(StandardScaler(), PCSDA(3, random_state=0)),
}


@pytest.mark.each_value
@TYPES
@pytest.mark.parametrize("name", THRESHOLDS)
def test_a_threshold_becomes_a_boolean_output(name, dtype, tmp_path):
    model = clone(THRESHOLDS[name]).fit(X, Y)
    final, rows = proper(model, X)  # those of X lie on both sides
    final.choose_threshold(max_false_alarms=0.05)
    found = exported(model, tmp_path, X, dtype)
    assert list(found) == [*NAMES, "accepted"]
    assert found["accepted"].dtype == bool
    accepted = final.accepts(rows)
    assert 0 < accepted.mean() < 1
    np.testing.assert_array_equal(found.pop("accepted"), accepted)
    assert_agrees(found, model, X, dtype)


@pytest.mark.more
def test_thresholds_of_a_banks_models_are_not_exported(tmp_path):
    scaled = make_pipeline(StandardScaler(), PCSDA(random_state=0))
    search = PCSDACV(scaled, n_subclasses=3, n_components=2, regularization=0.1, cv=2)
    bank = VerifierBank(search).fit(X, GROUPS)
    for model in bank.models_.values():
        model.choose_threshold(prior=0.5)
    assert list(exported(bank, tmp_path, NEW)) == [*NAMES, "accepted"]  # at the bank's own


def test_facts_are_stored_with_the_graph(tmp_path):
    model = make_pipeline(StandardScaler(), PCSDA(2, pos_label="b")).fit(X, np.array(["c", "b"])[Y])
    export_onnx(model, tmp_path / "m.onnx")
    graph = onnx.load(tmp_path / "m.onnx")
    facts = {entry.key: entry.value for entry in graph.metadata_props}
    assert facts == {
        "pcsda": version("pcsda"),
        "model": "PCSDA",
        "classes": json.dumps(["b", "c"]),
        "class_of_interest": json.dumps("b"),
    }
    (given_input,) = onnxruntime.InferenceSession(tmp_path / "m.onnx").get_inputs()
    assert (given_input.name, given_input.shape) == ("X", [None, 5])


@pytest.mark.each_value
@TYPES
@in_turn("name", list(MODELS))
def test_verifier_pipelines_convert_with_skl2onnx(name, dtype):
    register_onnx()
    model = MODELS[name].fit(X, Y)
    graph = skl2onnx.to_onnx(model, X[:1].astype(dtype), options=transforming(model))
    found = run(graph.SerializeToString(), NEW.astype(dtype))
    if dtype == "float64":
        assert_agrees(found, model, NEW, dtype)
    else:  # steps of scikit-learn, and the borders between steps, are in single precision here
        final, inner = proper(model, NEW.astype(dtype).astype(np.float64))
        ratio = final.log_likelihood_ratio(inner)
        np.testing.assert_allclose(found["log_likelihood_ratio"], ratio, atol=1e-3, rtol=1e-4)
        np.testing.assert_array_equal(found["label"], model.predict(NEW.astype(dtype)))


def transforming(model):
    """Return the options that users must give for models inside pipelines."""
    if not isinstance(model, Pipeline):
        return {}
    inner = [step for _, step in model.steps[:-1] if isinstance(step, PCSDA | CSDA)]
    return {id(step): {"transform": True} for step in inner} | transforming(model[-1])


NARROW = ColumnTransformer([("some", NystroemMap(9, random_state=0), [0, 2])])
SEARCH = PCSDACV(
    make_pipeline(StandardScaler(), PCSDA(random_state=0)), n_subclasses=2, regularization=0.01
)
PARTS = {
    "in a search": GridSearchCV(PCSDA(random_state=0), {"n_subclasses": [1, 2]}, cv=2),
    "of some columns": make_pipeline(NARROW, PCSDA(2, random_state=0)),
    "side by side": make_pipeline(
        make_union(FourierMap(8, random_state=0), ExactKernelMap(n_components=9)), PCSDA(2)
    ),
    "before another": make_pipeline(NystroemMap(20, random_state=0), LogisticRegression()),
    "as a transformer": make_pipeline(KernelPCSDA(n_subclasses=3), LogisticRegression()),
    "calibrated": CalibratedClassifierCV(KernelPCSDA(n_subclasses=2, random_state=0), cv=2),
    "a search calibrated": CalibratedClassifierCV(SEARCH, cv=2),
    "a bank calibrated": CalibratedClassifierCV(VerifierBank(PCSDA(2, random_state=0)), cv=2),
}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.more] * n.startswith("a ")) for n in PARTS]
)
def test_our_models_convert_inside_other_estimators(name):
    register_onnx()
    model = PARTS[name].fit(X, GROUPS if "bank" in name else Y)
    options = {id(model): {"zipmap": False}} if name != "side by side" else {}
    if name == "as a transformer":
        options[KernelPCSDA] = {"transform": True}
    found = run(skl2onnx.to_onnx(model, X[:1], options=options).SerializeToString(), NEW)
    np.testing.assert_array_equal(found["label"], model.predict(NEW))
    # Not all of scikit-learn's own models are converted to double precision.
    np.testing.assert_allclose(found["probabilities"], model.predict_proba(NEW), atol=1e-6)


def test_integer_input_is_accepted():
    register_onnx()
    rows = np.round(X * 3).astype(np.int64)
    model = PCSDA(2, random_state=0).fit(rows, Y)
    found = run(skl2onnx.to_onnx(model, rows[:1]).SerializeToString(), rows)
    np.testing.assert_array_equal(found["label"], model.predict(rows))
    ratio = model.log_likelihood_ratio(rows)
    np.testing.assert_allclose(found["log_likelihood_ratio"], ratio, atol=1e-4, rtol=1e-6)


def test_models_that_cannot_be_exported_are_named(tmp_path):
    path = tmp_path / "m.onnx"
    fitted = PCSDA(2).fit(X, Y)
    with pytest.raises(NotFittedError, match="PCSDACV instance is not fitted yet"):
        export_onnx(PCSDACV(), path)
    with pytest.raises(TypeError, match="ends in one, got LogisticRegression; for others call"):
        export_onnx(make_pipeline(NystroemMap(), LogisticRegression()).fit(X, Y), path)
    with pytest.raises(ValueError, match="dtype='float16' must be one of 'float32', 'float64'"):
        export_onnx(fitted, path, dtype="float16")
    with pytest.raises(ValueError, match="target_opset=9 must be at least 13"):
        export_onnx(fitted, path, target_opset=9)
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        export_onnx(fitted, tmp_path / "gone" / "m.onnx")
    register_onnx()
    for model in (fitted, FourierMap(4).fit(X)):
        with pytest.raises(ValueError, match=r"the input has 3 columns, but \w+ was fitted on 5"):
            skl2onnx.to_onnx(model, X[:1, :3])
    assert os.listdir(tmp_path) == []


def with_gaps(rows, seed=0):
    rows = rows.copy()
    rows[np.random.default_rng(seed).random(rows.shape) < 0.2] = np.nan
    return rows


IMPUTERS = {
    **{name: SimpleImputer(strategy=name) for name in ("mean", "median", "most_frequent")},
    "constant": SimpleImputer(strategy="constant", fill_value=-2.5),
    "empty column left out": SimpleImputer(),
    "empty column kept": SimpleImputer(strategy="median", keep_empty_features=True),
}


@pytest.mark.each_value
@pytest.mark.filterwarnings("ignore:Skipping features without any observed values")
@TYPES
@in_turn("name", list(IMPUTERS))
def test_missing_values_are_filled_in(name, dtype, tmp_path):
    rows, new = with_gaps(X), with_gaps(NEW, 1)
    if "empty" in name:
        rows[:, 1] = np.nan
    model = make_pipeline(clone(IMPUTERS[name]), StandardScaler(), PCSDA(3, random_state=0))
    model.fit(rows, Y)
    if "out" in name:
        assert model[-1].n_features_in_ == X.shape[1] - 1
    export_onnx(model, tmp_path / "model.onnx", dtype=dtype)
    found = run((tmp_path / "model.onnx").read_bytes(), new.astype(dtype))
    filled = model[:-1].transform(new.astype(dtype).astype(np.float64))
    expected = model[-1].log_likelihood_ratio(filled)
    assert np.isfinite(expected).all()
    np.testing.assert_allclose(found["log_likelihood_ratio"], expected, **CLOSE[dtype])


def test_models_of_a_bank_may_fill_in_missing_values(tmp_path):
    rows, new = with_gaps(X), with_gaps(NEW, 1)
    bank = make_pipeline(SimpleImputer(), VerifierBank(PCSDA(random_state=0))).fit(rows, GROUPS)
    export_onnx(bank, tmp_path / "bank.onnx", dtype="float64")
    found = run((tmp_path / "bank.onnx").read_bytes(), new)
    expected = bank[-1].log_likelihood_ratio(bank[0].transform(new))
    np.testing.assert_allclose(found["log_likelihood_ratio"], expected, **CLOSE["float64"])


@pytest.mark.parametrize(
    ("imputer", "said"),
    [
        (SimpleImputer(add_indicator=True), "add_indicator=True of SimpleImputer cannot be "),
        (SimpleImputer(missing_values=-1), "missing_values=-1 of SimpleImputer cannot be exported"),
        (KNNImputer(), "KNNImputer cannot be exported; fill in the values before the graph"),
    ],
    ids=["indicator", "other value", "neighbours"],
)
def test_imputers_that_cannot_be_exported_are_refused(imputer, said, tmp_path):
    rows = X if imputer.missing_values == -1 else with_gaps(X)
    model = make_pipeline(imputer, PCSDA(random_state=0)).fit(rows, Y)
    with pytest.raises(ValueError, match=f"^{said}"):
        export_onnx(model, tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(
    version("skl2onnx").startswith("1.18"),
    reason="this skl2onnx itself refuses the operator Imputer in double precision",
)
def test_a_graph_that_onnxruntime_cannot_load_is_not_written(tmp_path, monkeypatch):
    # Without our own nodes, skl2onnx writes the operator Imputer, in double precision.
    monkeypatch.setattr("pcsda.onnx_export.imputing.functions", dict)
    model = make_pipeline(SimpleImputer(), PCSDA(random_state=0)).fit(with_gaps(X), Y)
    with pytest.raises(ValueError, match=r"cannot load the graph: .*Imputer"):
        export_onnx(model, tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    export_onnx(model, tmp_path / "model.onnx")
    assert (tmp_path / "model.onnx").exists()


def test_a_full_disk_leaves_no_graph(tmp_path, monkeypatch):
    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left on device"):
        export_onnx(PCSDA(2).fit(X, Y), tmp_path / "m.onnx")
    assert os.listdir(tmp_path) == []


def test_the_extra_is_named_where_skl2onnx_is_missing(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "skl2onnx", None)
    message = r'ONNX needs skl2onnx, which is not installed: pip install "pcsda\[onnx\]"'
    with pytest.raises(ImportError, match=message):
        export_onnx(PCSDA(2).fit(X, Y), tmp_path / "m.onnx")


@pytest.mark.parametrize("chosen", [["a", "b"], [0, 1]], ids=["names", "positions"])
def test_a_choice_of_columns_inside_the_pipeline_is_refused(chosen, tmp_path):
    table = pd.DataFrame(X[:, :2], columns=["a", "b"])
    model = make_pipeline(make_column_transformer((StandardScaler(), chosen)), PCSDA())
    model.fit(table, Y)
    with pytest.raises(ValueError, match=r"ColumnTransformer cannot be exported here .*; choose"):
        export_onnx(model, tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())
