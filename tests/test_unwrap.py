"""A wrapped model agrees with the model unwrapped by hand."""

import dask.array as da
import matplotlib
import numpy as np
import onnxruntime
import pandas as pd
import pytest
from factories import in_turn, make_rows
from matplotlib import pyplot as plt
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import BaseEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from pcsda import (
    PCSDA,
    PCSDACV,
    VerifierBank,
    distributed,
    export_onnx,
    fit_blocks,
    load,
    predict_blocks,
    save,
)
from pcsda.metrics import cllr, make_detection_scorer
from pcsda.persistence import describe
from pcsda.plots import (
    DetDisplay,
    ReliabilityDisplay,
    ScoreDisplay,
    SelectionDisplay,
    SpectrumDisplay,
    SubspaceDisplay,
)
from pcsda.report import evaluate
from pcsda.scoring import Scorer
from pcsda.unwrap import parts, steps, unwrap

matplotlib.use("Agg")

ROWS, GROUPS, _ = make_rows([40, 30, 30], 4)
X, NEW = ROWS[::2], ROWS[1::2]
GROUPS, NEW_GROUPS = GROUPS[::2], GROUPS[1::2]
Y, NEW_Y = (np.where(groups == 0, "a", "b") for groups in (GROUPS, NEW_GROUPS))


def model():
    return PCSDA(2, pos_label="a", random_state=0)


def scaled(final):
    return make_pipeline(StandardScaler(), final)


def grid(inner):
    name = "pcsda__n_subclasses" if isinstance(inner, Pipeline) else "n_subclasses"
    return GridSearchCV(inner, {name: [1, 2]}, cv=2, scoring="neg_log_loss")


def search(inner):
    return PCSDACV(inner, n_subclasses=[1, 2], regularization=1e-3)


def empty(*middle):
    """Return a pipeline with empty steps, including the last one."""
    around = [("first", "passthrough"), *middle, ("none", None), ("last", "passthrough")]
    return Pipeline(around)


# Each model, and how a reader would unwrap it by hand: transformers, then the model.
NESTED = {
    "plain": (model(), lambda m: ([], m)),
    "pipeline": (scaled(model()), lambda m: ([m[0]], m[1])),
    "search": (search(model()), lambda m: ([], m.best_estimator_)),
    "search of a pipeline": (
        search(scaled(model())),
        lambda m: ([m.best_estimator_[0]], m.best_estimator_[1]),
    ),
    "search in a pipeline": (scaled(search(model())), lambda m: ([m[0]], m[1].best_estimator_)),
    "grid": (grid(model()), lambda m: ([], m.best_estimator_)),
    "grid of a pipeline": (
        grid(scaled(model())),
        lambda m: ([m.best_estimator_[0]], m.best_estimator_[1]),
    ),
    "grid in a pipeline": (scaled(grid(model())), lambda m: ([m[0]], m[1].best_estimator_)),
    "pipeline in a search in a pipeline": (
        scaled(search(scaled(model()))),
        lambda m: ([m[0], m[1].best_estimator_[0]], m[1].best_estimator_[1]),
    ),
    "pipeline in a grid in a pipeline": (
        scaled(grid(scaled(model()))),
        lambda m: ([m[0], m[1].best_estimator_[0]], m[1].best_estimator_[1]),
    ),
    "pipelines in a pipeline": (
        make_pipeline(make_pipeline(StandardScaler(), None), scaled(model())),
        lambda m: ([m[0][0], m[1][0]], m[1][1]),
    ),
    "empty steps": (
        empty(("scale", StandardScaler()), ("model", model())),
        lambda m: ([m["scale"]], m["model"]),
    ),
    "bank": (VerifierBank(PCSDA(2, random_state=0)), lambda m: ([], m)),
    "bank in a pipeline": (
        scaled(VerifierBank(PCSDA(2, random_state=0))),
        lambda m: ([m[0]], m[1]),
    ),
    "bank of searches in a pipeline": (
        scaled(VerifierBank(search(scaled(PCSDA(random_state=0))))),
        lambda m: ([m[0]], m[1]),
    ),
}
SINGLE = [name for name in NESTED if "bank" not in name]


@pytest.fixture(scope="module")
def fitted():
    """Return a fitted wrapped model by name, the model inside, and new rows that reach it."""
    kept = {}

    def of(name):
        if name not in kept:
            wrapped, by_hand = NESTED[name]
            wrapped.fit(X, GROUPS if "bank" in name else Y)
            before, final = by_hand(wrapped)
            rows = NEW
            for step in before:
                rows = step.transform(rows)
            kept[name] = wrapped, final, rows
        return kept[name]

    return of


@pytest.fixture
def pictures():
    """Close the figures that a test has drawn."""
    yield
    plt.close("all")


every = in_turn("name", list(NESTED))
single = pytest.mark.parametrize("name", SINGLE)
# Pictures and reports take longer; each way to wrap a model once.
IN_SHORT = ["plain", "search of a pipeline", "grid in a pipeline", "bank in a pipeline"]


def in_short(names):
    marks = {name: () if name in IN_SHORT else pytest.mark.more for name in names}
    return pytest.mark.parametrize("name", [pytest.param(n, marks=m) for n, m in marks.items()])


@every
def test_the_model_inside_is_found(fitted, name):
    wrapped, final, rows = fitted(name)
    inside = unwrap(wrapped)
    assert inside.model is final
    assert_array_equal(inside.rows(NEW), rows)
    if name in SINGLE:
        assert inside.label == "a"
        assert inside.prior == final.class_prior_[0]


@every
def test_scores_equal_those_of_the_model_inside(fitted, name):
    wrapped, final, rows = fitted(name)
    scorer = Scorer(wrapped)
    ratios = final.log_likelihood_ratio(rows)
    found = scorer.log_likelihood_ratios(NEW)
    assert scorer.n_features == 4
    if name in SINGLE:
        assert scorer.labels == ["a"]
        assert scorer.verifier() is final
        assert scorer.prior() == final.class_prior_[0]
        assert_array_equal(found[:, 0], ratios)
        assert_array_equal(scorer.coordinates(NEW), final.transform(rows))
        assert_array_equal(scorer.closeness(NEW), final.score_samples(rows))
    else:
        assert scorer.labels == [0, 1, 2]
        assert_array_equal(found, ratios)
        assert_array_equal(scorer.coordinates(NEW, 1), final.models_[1].transform(rows))
        assert isinstance(scorer.verifier(1), PCSDA)


@single
def test_scorers_accept_wrapped_models(fitted, name):
    wrapped, final, rows = fitted(name)
    expected = -cllr(NEW_Y == "a", final.log_likelihood_ratio(rows))
    assert make_detection_scorer(cllr)(wrapped, NEW, NEW_Y) == expected


TITLES = {
    "search in a pipeline": "Pipeline(StandardScaler, PCSDACV(PCSDA))",
    "pipeline in a search in a pipeline": (
        "Pipeline(StandardScaler, PCSDACV(Pipeline(StandardScaler, PCSDA)))"
    ),
    "empty steps": "Pipeline(StandardScaler, PCSDA)",
    "bank in a pipeline": "Pipeline(StandardScaler, VerifierBank(PCSDA))",
}


@pytest.mark.in_turn
@pytest.mark.parametrize("name", [name for name in NESTED if "grid" not in name])
def test_wrapped_models_can_be_saved(fitted, name, tmp_path):
    wrapped, final, _ = fitted(name)
    save(final, tmp_path / "final")
    save(wrapped, tmp_path / "wrapped")
    expected, found = describe(tmp_path / "final"), describe(tmp_path / "wrapped")
    for fact in ("n_samples", "n_positive", "n_features", "classes", "pos_label", "n_subclasses"):
        assert found[fact] == expected[fact]
    assert found["n_components"] == expected["n_components"]
    assert found["model"] == TITLES.get(name, found["model"])
    again = Scorer(load(tmp_path / "wrapped")).log_likelihood_ratios(NEW)
    assert_array_equal(again, Scorer(wrapped).log_likelihood_ratios(NEW))


@pytest.mark.parametrize("name", [name for name in NESTED if "grid" in name])
def test_a_scikit_learn_search_is_refused_with_a_remedy(fitted, name, tmp_path):
    wrapped = fitted(name)[0]
    with pytest.raises(TypeError, match="replace the search with its best_estimator_"):
        save(wrapped, tmp_path / "m")
    if isinstance(wrapped, Pipeline):
        remedied = Pipeline([wrapped.steps[0], ("best", wrapped[-1].best_estimator_)])
    else:
        remedied = wrapped.best_estimator_
    save(remedied, tmp_path / "m")
    again = Scorer(load(tmp_path / "m")).log_likelihood_ratios(NEW)
    assert_array_equal(again, Scorer(wrapped).log_likelihood_ratios(NEW))


@in_short(SINGLE)
@pytest.mark.usefixtures("pictures")
@pytest.mark.more
def test_wrapped_models_can_be_drawn(fitted, name):
    wrapped, final, rows = fitted(name)
    ours, hand = map(SpectrumDisplay.from_estimator, (wrapped, final))
    assert_array_equal(ours.eigenvalues, hand.eigenvalues)
    ours = ScoreDisplay.from_estimator(wrapped, NEW, NEW_Y)
    hand = ScoreDisplay.from_estimator(final, rows, NEW_Y)
    assert_array_equal(ours.positive, hand.positive)
    assert ours.threshold == hand.threshold
    assert_allclose(ours.threshold, -np.log(final.class_prior_[0] / final.class_prior_[1]))
    ours = SubspaceDisplay.from_estimator(wrapped, NEW, NEW_Y)
    hand = SubspaceDisplay.from_estimator(final, rows, NEW_Y)
    assert_array_equal(ours.z, hand.z)
    assert_array_equal(ours.groups, hand.groups)
    assert_array_equal(ours.decision(ours.z), hand.decision(hand.z))
    ours = DetDisplay.from_estimator(wrapped, NEW, NEW_Y)
    hand = DetDisplay.from_estimator(final, rows, NEW_Y)
    assert_array_equal(ours.line_.get_xydata(), hand.line_.get_xydata())
    ours = ReliabilityDisplay.from_estimator(wrapped, NEW, NEW_Y)
    hand = ReliabilityDisplay.from_estimator(final, rows, NEW_Y)
    assert_array_equal(ours.curve, hand.curve)


@pytest.mark.parametrize("name", ["search in a pipeline", "pipeline in a search in a pipeline"])
@pytest.mark.usefixtures("pictures")
def test_a_search_in_a_pipeline_shows_its_selection(fitted, name):
    wrapped = fitted(name)[0]
    ours, hand = map(SelectionDisplay.from_estimator, (wrapped, wrapped[-1]))
    assert_array_equal(ours.scores, hand.scores)
    assert ours.chosen == hand.chosen


@in_short(NESTED)
@pytest.mark.more
def test_wrapped_models_have_reports(fitted, name):
    wrapped, final, rows = fitted(name)
    y = NEW_Y if name in SINGLE else NEW_GROUPS
    ours = evaluate(wrapped, NEW, y, n_resamples=10)
    hand = evaluate(final, rows, y, n_resamples=10)
    assert ours.figures == hand.figures
    # The report of the whole also names what rows pass through.
    assert ours.facts | {"Model": ""} == hand.facts | {"Model": ""}
    assert ours.facts["Model"].endswith(hand.facts["Model"])
    for own, other in zip(ours.subspaces, hand.subspaces, strict=True):
        assert (own is None) == (other is None)
        if own is not None:
            assert_array_equal(own["x"], other["x"])


@pytest.mark.each_value
@every
@pytest.mark.parametrize("method", ["log_likelihood_ratio", "predict_proba", "predict"])
def test_wrapped_models_predict_in_blocks(fitted, name, method, tmp_path):
    wrapped, final, rows = fitted(name)
    found = np.concatenate(list(predict_blocks(wrapped, NEW, method=method, block_rows=7)))
    expected = getattr(final, method)(rows)
    if method == "predict":
        assert_array_equal(found, expected)
    else:
        assert_allclose(found, expected, rtol=1e-12)
    path = predict_blocks(wrapped, NEW, tmp_path / "found.npy", method=method)
    assert_array_equal(np.load(path), expected)


def test_blocks_fit_a_pipeline_with_empty_steps():
    bare = fit_blocks(make_pipeline(StandardScaler(), model()), X, y=Y)
    around = fit_blocks(empty(("scale", StandardScaler()), ("model", model())), X, y=Y)
    ratios = (Scorer(one).log_likelihood_ratios(NEW) for one in (bare, around))
    assert_array_equal(*ratios)
    with pytest.raises(TypeError, match="PCSDACV cannot be fitted in blocks"):
        fit_blocks(search(model()).fit(X, Y), X, y=Y)


@pytest.mark.each_value
@single
@pytest.mark.parametrize("method", ["log_likelihood_ratio", "transform"])
def test_wrapped_models_predict_on_dask(fitted, name, method):
    wrapped, final, rows = fitted(name)
    found = distributed.predict(wrapped, da.from_array(NEW, chunks=(20, 4)), method)
    assert_allclose(found.compute(scheduler="sync"), getattr(final, method)(rows), rtol=1e-9)


@every
def test_wrapped_models_can_be_exported(fitted, name, tmp_path):
    wrapped, final, rows = fitted(name)
    export_onnx(wrapped, tmp_path / "m.onnx", dtype="float64")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    label, probabilities, ratios, *_ = session.run(None, {"X": NEW})
    assert_array_equal(label, final.predict(rows))
    assert_allclose(probabilities, final.predict_proba(rows), atol=1e-9)
    assert_allclose(ratios, final.log_likelihood_ratio(rows), atol=1e-9)


@pytest.mark.parametrize("name", ["grid of a pipeline", "search in a pipeline", "empty steps"])
def test_column_names_reach_the_model_inside(name, tmp_path):
    frame = pd.DataFrame(X, columns=list("pqrs"))
    wrapped = NESTED[name][0].fit(frame, Y)
    try:
        assert list(Scorer(wrapped).feature_names) == list("pqrs")
        (tmp_path / "new.csv").write_text(frame[list("srqp")].to_csv(index=False))
        found = np.concatenate(list(predict_blocks(wrapped, tmp_path / "new.csv")))
        assert_allclose(found, Scorer(wrapped).log_likelihood_ratios(frame)[:, 0], rtol=1e-9)
    finally:
        wrapped.fit(X, Y)


def test_a_model_in_the_middle_is_a_transformer(tmp_path):
    middle = make_pipeline(StandardScaler(), search(model()))
    wrapped = Pipeline([("map", middle), ("model", model())]).fit(X, Y)
    inside = unwrap(wrapped)
    assert_array_equal(inside.rows(NEW), middle.transform(NEW))
    export_onnx(wrapped, tmp_path / "m.onnx", dtype="float64")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    (ratios,) = session.run(["log_likelihood_ratio"], {"X": NEW})
    assert_allclose(ratios, Scorer(wrapped).log_likelihood_ratios(NEW)[:, 0], atol=1e-9)


class Sampler(BaseEstimator):
    """Draws rows only during the fit, as in imbalanced-learn."""

    def fit_resample(self, X, y):
        """Keep all rows."""
        return X, y


def test_samplers_do_not_touch_new_rows():
    final = model().fit(X, Y)
    inside = unwrap(Pipeline([("draw", Sampler()), ("model", final)]))
    assert (inside.before, inside.model) == ((), final)


def test_other_estimators_are_not_unwrapped():
    unfitted = search(scaled(model()))
    assert unwrap(unfitted).model is unfitted
    assert steps(unfitted) == (unfitted,)
    assert parts(unfitted) == ()
    nothing = empty()
    assert unwrap(nothing).model is nothing
    other = scaled(LogisticRegression()).fit(X, Y)
    assert unwrap(other).model is other[-1]
    assert unwrap(other).label == "b"


def test_steps_keep_searches_and_drop_empty_steps(fitted):
    wrapped = fitted("search in a pipeline")[0]
    assert steps(wrapped) == (wrapped[0], wrapped[1])
    assert isinstance(steps(wrapped)[-1], PCSDACV)
    double = FunctionTransformer()
    assert steps(Pipeline([("a", None), ("b", double), ("c", "passthrough")])) == (double,)
