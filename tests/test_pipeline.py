"""Pipelines with their verifier's methods: each equals the last step on transformed rows."""

import pickle
import warnings

import numpy as np
import pytest
from factories import make_rows
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.exceptions import NotFittedError
from sklearn.feature_selection import SelectKBest, VarianceThreshold
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.pipeline import make_pipeline as plain_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler, TargetEncoder

from pcsda import (
    CSDA,
    PCSDA,
    PCSDACV,
    ExactKernelMap,
    FourierMap,
    KernelPCSDA,
    NystroemMap,
    VerifierBank,
    VerifierPipeline,
    export_onnx,
    fit_blocks,
    load,
    make_pipeline,
    save,
)
from pcsda.persistence import describe
from pcsda.unwrap import unwrap

pd = pytest.importorskip("pandas")

X, GROUPS, _ = make_rows((40, 50, 45, 35), 6, seed=0, spread=0.8)
X = 5 + X * [1, 10, 0.1, 2, 1, 3]
Y = (GROUPS == 0).astype(int)
NEW = 5 + make_rows((40, 50, 45, 35), 6, seed=1, spread=0.8)[0] * [1, 10, 0.1, 2, 1, 3]
TRIALS = np.arange(len(NEW)) // 4
CHAINS = {
    "scaler": (StandardScaler(),),
    "other scaler": (MinMaxScaler(),),
    "axes": (StandardScaler(), PCA(4, whiten=True)),
    "nystroem": (StandardScaler(), NystroemMap(30, random_state=0)),
    "fourier": (StandardScaler(), FourierMap(40, random_state=0)),
    "exact": (StandardScaler(), ExactKernelMap()),
    "nothing": (),
    "empty": ("passthrough", StandardScaler(), None),
}
MODELS = {
    "PCSDA": PCSDA(3, random_state=0),
    "published": PCSDA.published(3, random_state=0),
    "CSDA": CSDA(3, random_state=0),
    "kernel": KernelPCSDA(n_subclasses=2, random_state=0),
    "search": PCSDACV(PCSDA(random_state=0), n_subclasses=[1, 3], regularization=0.1),
}


def by_hand(model, rows):
    """Return the last step and the rows that reach it."""
    *before, (_, last) = model.steps
    for _, step in before:
        rows = rows if step in (None, "passthrough") else step.transform(rows)
    return last, rows


@pytest.mark.each_value
@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("name", MODELS)
def test_methods_equal_the_last_steps(chain, name):
    model = make_pipeline(*map(clone_step, CHAINS[chain]), clone(MODELS[name])).fit(X, Y)
    last, rows = by_hand(model, NEW)
    for method in ("log_likelihood_ratio", "decision_function", "predict_proba", "predict"):
        assert_array_equal(getattr(model, method)(NEW), getattr(last, method)(rows))
    for method in ("score_samples", "rank", "transform"):
        assert_array_equal(getattr(model, method)(NEW), getattr(last, method)(rows))
    assert_array_equal(model.rank(NEW, by="distance"), last.rank(rows, by="distance"))
    assert_array_equal(model.rank(NEW, "likelihood"), last.rank(rows, "likelihood"))
    expected = last.log_likelihood_ratio(rows, TRIALS)
    assert_array_equal(model.log_likelihood_ratio(NEW, trials=TRIALS), expected)
    assert_array_equal(model.explain(NEW).contributions, last.explain(rows).contributions)
    score = model.fast_scorer()
    assert_allclose(score(NEW), model.log_likelihood_ratio(NEW), rtol=1e-9, atol=1e-9)
    for row in range(3):
        assert np.ndim(score(NEW[row])) == 0
        assert_allclose(score(NEW[row]), score(NEW)[row], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("chain", ["scaler", "nothing"])
def test_a_search_has_all_methods_of_its_model(chain):
    template = plain_pipeline(*CHAINS[chain], PCSDA(random_state=0))
    search = PCSDACV(template, n_subclasses=[1, 3], regularization=0.1)
    with pytest.raises(NotFittedError):
        search.fast_scorer()
    search.fit(X, Y)
    last, rows = by_hand(search.best_estimator_, NEW)
    assert_allclose(search.fast_scorer()(NEW), last.log_likelihood_ratio(rows), rtol=1e-9)
    found = search.choose_threshold(None, 0.1, X=NEW, y=Y)
    assert search.threshold_ is last.threshold_ is found
    assert_array_equal(search.accepts(NEW), last.accepts(rows))
    assert search.count(NEW) == last.count(rows)
    assert search.name_rows(GROUPS) is search
    assert search.explain(NEW).subclass_names == last.subclass_names_
    before = search.log_likelihood_ratio(NEW)
    assert search.recalibrate(NEW, Y) is search
    assert_array_equal(search.log_likelihood_ratio(NEW), last.log_likelihood_ratio(rows))
    assert np.any(search.log_likelihood_ratio(NEW) != before)


def clone_step(step):
    return step if step is None or isinstance(step, str) else clone(step)


def test_a_bank_can_end_a_pipeline():
    model = make_pipeline(StandardScaler(), VerifierBank(PCSDA(2, random_state=0))).fit(X, GROUPS)
    bank, rows = by_hand(model, NEW)
    assert_array_equal(model.log_likelihood_ratio(NEW), bank.log_likelihood_ratio(rows))
    assert_array_equal(model.rank(NEW, 2), bank.rank(rows, 2))
    assert_array_equal(model.rank(NEW, label=2, by="distance"), bank.rank(rows, 2, "distance"))
    assert_array_equal(model.explain(NEW, 1).score, bank.explain(rows, 1).score)
    assert_array_equal(model.identify(NEW, 0.0, unknown=-1), bank.identify(rows, 0.0, unknown=-1))
    found = model.identify(NEW, 1.0, trials=TRIALS, unknown=-1)
    assert_array_equal(found, bank.identify(rows, 1.0, trials=TRIALS, unknown=-1))
    assert_array_equal(model.verify(NEW, 2), bank.verify(rows, 2))
    assert model.threshold_ == bank.threshold_
    assert not hasattr(model, "fast_scorer")


def test_a_pipeline_lacks_the_methods_its_last_step_lacks():
    other = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, Y)
    for method in ("log_likelihood_ratio", "rank", "explain", "fast_scorer", "count", "accepts"):
        assert not hasattr(other, method)
    verifier = make_pipeline(StandardScaler(), PCSDA(3, random_state=0)).fit(X, Y)
    assert hasattr(verifier, "rank")
    for method in ("identify", "verify", "threshold_"):
        assert not hasattr(verifier, method)
        assert not hasattr(PCSDACV(), method)
    assert verifier.choose_threshold(max_false_alarms=0.1) == verifier.threshold_
    # Strings have a method `count`, and an empty last step is a string.
    assert not hasattr(make_pipeline(StandardScaler(), "passthrough"), "count")
    with pytest.raises(AttributeError, match="no attribute 'rank'"):
        other.rank(X)


def test_without_a_fit_there_are_no_scores():
    for method in ("log_likelihood_ratio", "rank", "score_samples", "explain"):
        with pytest.raises(NotFittedError):
            getattr(make_pipeline(StandardScaler(), PCSDA()), method)(X)


def test_a_verifier_pipeline_is_a_scikit_learn_pipeline():
    model = make_pipeline(StandardScaler(), PCA(4), PCSDA(3, random_state=0))
    assert isinstance(model, Pipeline)
    assert type(model).__module__ == "pcsda"
    assert [name for name, _ in model.steps] == ["standardscaler", "pca", "pcsda"]
    copy = clone(model).set_params(pcsda__n_subclasses=2)
    assert (copy[-1].n_subclasses, model[-1].n_subclasses) == (2, 3)
    same = plain_pipeline(StandardScaler(), PCA(4), PCSDA(3, random_state=0)).fit(X, Y)
    assert_array_equal(model.fit(X, Y).predict_proba(NEW), same.predict_proba(NEW))
    assert isinstance(model[:-1], VerifierPipeline)
    assert cross_val_score(model, X, Y, cv=3).mean() > 0.8
    again = pickle.loads(pickle.dumps(model))
    assert_array_equal(again.log_likelihood_ratio(NEW), model.log_likelihood_ratio(NEW))


def test_searches_work_around_and_inside_a_pipeline():
    model = make_pipeline(StandardScaler(), PCA(), PCSDA(random_state=0))
    grid = {"pca__n_components": [2, 5], "pcsda__n_subclasses": [1, 3]}
    search = GridSearchCV(model, grid, cv=3, scoring="neg_log_loss").fit(X, Y)
    best = search.best_estimator_
    last, rows = by_hand(best, NEW)
    assert_array_equal(best.rank(NEW), last.rank(rows))
    inner = GridSearchCV(PCSDA(random_state=0), {"n_subclasses": [1, 3]}, cv=3)
    around = make_pipeline(StandardScaler(), inner)
    assert not hasattr(around, "rank")
    around.fit(X, Y)
    rows = around[0].transform(NEW)
    assert_array_equal(around.rank(NEW), around[-1].best_estimator_.rank(rows))
    nested = make_pipeline(StandardScaler(), plain_pipeline(PCA(4), PCSDA(3, random_state=0)))
    nested.fit(X, Y)
    rows = nested[1][0].transform(nested[0].transform(NEW))
    assert_array_equal(nested.log_likelihood_ratio(NEW), nested[1][1].log_likelihood_ratio(rows))


@pytest.mark.parametrize("chain", ["axes", "nystroem", "other scaler"])
def test_data_frames_pass_into_and_between_steps(chain):
    frame, new = (pd.DataFrame(rows, columns=list("abcdef")) for rows in (X, NEW))
    model = make_pipeline(*map(clone, CHAINS[chain]), PCSDA(3, random_state=0))
    expected = clone(model).fit(X, Y)
    model.set_output(transform="pandas").fit(frame, Y)
    assert list(model.feature_names_in_) == list("abcdef")
    assert list(model.transform(new).columns) == ["pcsda0", "pcsda1", "pcsda2"]
    assert_allclose(model.log_likelihood_ratio(new), expected.log_likelihood_ratio(NEW), rtol=1e-9)
    assert_array_equal(model.rank(new), expected.rank(NEW))
    assert_allclose(model.fast_scorer()(NEW), expected.log_likelihood_ratio(NEW), rtol=1e-9)
    with pytest.raises(ValueError, match="Feature names must be in the same order"):
        model.rank(new[list("fedcba")])


def test_a_later_fit_does_not_change_a_fast_scorer():
    model = make_pipeline(MinMaxScaler(), StandardScaler(with_mean=False), PCSDA(random_state=0))
    score = model.fit(X, Y).fast_scorer()
    before = score(NEW)
    assert_allclose(before, model.log_likelihood_ratio(NEW), rtol=1e-9, atol=1e-9)
    model.fit(X[::2] * 3, Y[::2])
    assert_array_equal(score(NEW), before)


@pytest.mark.in_turn
@pytest.mark.parametrize("chain", CHAINS)
def test_a_pipeline_can_be_saved_and_exported(chain, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    model = make_pipeline(*map(clone_step, CHAINS[chain]), PCSDA(3, random_state=0)).fit(X, Y)
    save(model, tmp_path / "m.pcsda")
    again = load(tmp_path / "m.pcsda")
    assert type(again) is VerifierPipeline
    assert_array_equal(again.log_likelihood_ratio(NEW), model.log_likelihood_ratio(NEW))
    assert_array_equal(again.rank(NEW), model.rank(NEW))
    assert describe(tmp_path / "m.pcsda")["model"].startswith("VerifierPipeline(")
    export_onnx(model, tmp_path / "m.onnx", dtype="float64")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    (ratios,) = session.run(["log_likelihood_ratio"], {"X": NEW})
    assert_allclose(ratios, model.log_likelihood_ratio(NEW), atol=1e-9)


def test_a_pipeline_can_be_fitted_in_blocks():
    model = fit_blocks(make_pipeline(StandardScaler(), PCSDA(3, random_state=0)), X, y=Y)
    expected = make_pipeline(StandardScaler(), PCSDA(3, random_state=0)).fit(X, Y)
    assert_allclose(model.log_likelihood_ratio(NEW), expected.log_likelihood_ratio(NEW), rtol=1e-6)


def test_recalibration_uses_transformed_rows():
    model = make_pipeline(StandardScaler(), PCSDA(3, random_state=0)).fit(X, Y)
    last = pickle.loads(pickle.dumps(model[-1])).recalibrate(model[0].transform(NEW), Y)
    assert model.recalibrate(NEW, Y) is model
    assert model[-1].calibration_ == last.calibration_


class Told(ClassifierMixin, BaseEstimator):
    """Records its calls."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def choose_threshold(self, *, max_false_alarms=None, X=None, y=None, strangers=None):
        return {"rate": max_false_alarms, "X": X, "y": y, "strangers": strangers}

    def accepts(self, X):
        return X[:, 0] > 0

    def count(self, X, interval=0.9):
        return X, interval


def test_thresholds_and_counts_are_asked_of_the_last_step_on_transformed_rows():
    model = make_pipeline(StandardScaler(), Told()).fit(X, Y)
    rows = model[0].transform(NEW)
    told = model.choose_threshold(max_false_alarms=0.01)
    assert told == {"rate": 0.01, "X": None, "y": None, "strangers": None}
    told = model.choose_threshold(max_false_alarms=0.01, X=NEW, y=Y, strangers=NEW[:3])
    assert_array_equal(told["X"], rows)
    assert_array_equal(told["strangers"], rows[:3])
    assert told["y"] is Y
    assert_array_equal(model.accepts(NEW), rows[:, 0] > 0)
    found, interval = model.count(NEW, interval=0.5)
    assert_array_equal(found, rows)
    assert interval == 0.5


def test_the_model_inside_is_found():
    model = make_pipeline(StandardScaler(), PCA(4), PCSDA(3, random_state=0)).fit(X, Y)
    inside = unwrap(model)
    assert inside.before == (model[0], model[1])
    assert inside.model is model[-1]


def test_names_reach_the_model_through_the_steps_before_it():
    X, digit = load_digits(return_X_y=True)
    chain = make_pipeline(StandardScaler(), PCSDA(n_subclasses=9, random_state=0))
    chain.fit(X, digit == 3)
    assert chain.name_rows(digit, X=X) is chain
    rows = chain[:-1].transform(X)
    alone = clone(chain[-1]).fit(rows, digit == 3).name_rows(digit, X=rows)
    assert chain[-1].subclass_examples_ == alone.subclass_examples_
    assert "examples" in str(chain.explain(X[:1]))


# --- steps that learn much from the rows ---------------------------------------------------------


def noisy(n_rows, n_columns, share=0.3, seed=0):
    """Draw labels that say nothing about the rows."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n_rows, n_columns)), rng.random(n_rows) < share


def test_columns_chosen_by_the_labels_keep_the_promised_rate():
    """Of 2000 columns of noise, 20 were chosen by the labels: 5% promised, 10 to 20% let in."""
    rates = []
    for seed in range(4):
        rows, y = noisy(1200, 2000, seed=seed)
        model = make_pipeline(SelectKBest(k=20), PCSDA(random_state=0)).fit(rows[:400], y[:400])
        model.choose_threshold(max_false_alarms=0.05)
        rates.append(model.accepts(rows[400:])[~y[400:]].mean())
    assert np.mean(rates) < 0.065


def documents(n_rows, words=3000, topics=12, length=40, seed=0):
    """Draw word counts of unit length; documents of one topic are positive."""
    rng = np.random.default_rng(seed)
    common = 1 / (np.arange(words) + 5.0)
    shares = np.tile(0.85 * common / common.sum(), (topics, 1))
    for topic in range(topics):
        shares[topic, 100 + 60 * topic : 160 + 60 * topic] += 0.15 / 60
    kinds = rng.integers(0, topics, n_rows)
    counts = np.array([rng.multinomial(length, shares[kind]) for kind in kinds], dtype=float)
    return counts / np.linalg.norm(counts, axis=1, keepdims=True), kinds == 3


def test_axes_of_wide_rows_keep_the_count():
    """Left-out rows had shaped their own axes, so the count was a quarter of the truth."""
    rows, y = documents(1600)
    model = make_pipeline(TruncatedSVD(100, random_state=0), PCSDA(random_state=0))
    found = model.fit(sparse.csr_array(rows[:600]), y[:600]).count(sparse.csr_array(rows[600:]))
    truth = np.sum(y[600:])
    assert found.count_low <= truth <= found.count_high
    assert 0.6 * truth < found.count < 1.6 * truth


def test_folds_of_the_whole_pipeline_replace_left_out_scores():
    rows, y = noisy(200, 300)
    weights, groups = np.where(np.arange(200) % 7, 1.0, 2.0), np.arange(200) // 2
    model = make_pipeline(SelectKBest(k=5), PCSDA(random_state=0))
    names = np.where(y, "weld", np.where(rows[:, 0] > 0, "bolt", "nut"))
    model.set_params(pcsda__pos_label="weld")
    model.fit(pd.DataFrame(rows), names, pcsda__sample_weight=weights, pcsda__groups=groups)
    last = model[-1]
    assert not hasattr(last, "loo_scores_")
    scores, positive, weight = last.held_out_
    assert_array_equal(positive, y)
    assert_array_equal(weight, weights)
    assert np.isfinite(scores).all()
    assert abs(np.corrcoef(scores, y)[0, 1]) < 0.2


@pytest.mark.parametrize(
    "steps",
    [
        (StandardScaler(), PCA(4)),
        (StandardScaler(), NystroemMap(60, random_state=0)),
        (TargetEncoder(),),
        (VarianceThreshold(),),
    ],
)
def test_steps_that_learn_little_leave_rows_out_one_by_one(steps):
    model = make_pipeline(*steps, PCSDA(random_state=0))
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*learned")
        assert hasattr(model.fit(np.round(X), Y)[-1], "loo_scores_")


@pytest.mark.parametrize(
    "last",
    [
        VerifierBank(PCSDA(random_state=0)),
        PCSDA(calibrate=False, random_state=0),
        PCSDA(contamination=0.1, random_state=0),
        PCSDACV(PCSDA(random_state=0), n_subclasses=[1, 2]),
    ],
    ids=lambda last: type(last).__name__,
)
def test_models_without_folds_warn_of_a_step_that_learned_much(last):
    rows, y = noisy(120, 200)
    says = (
        "PCA learned 10 axes of 200 columns from 120 rows, and .* thresholds and counts may be "
        r"wrong: (give recalibrate\(X_new, y_new\)|fit that step on other rows)"
    )
    with pytest.warns(UserWarning, match=says) as caught:
        make_pipeline(PCA(10), last).fit(rows, y)
    assert sum("learned" in str(one.message) for one in caught) == 1


def test_models_without_left_out_scores_have_nothing_to_warn_of():
    rows, y = noisy(120, 200)
    model = make_pipeline(PCA(10), PCSDA.published(random_state=0)).fit(rows, y)
    assert not hasattr(model[-1], "held_out_")


def test_a_single_positive_cannot_be_scored_in_folds():
    rows, _ = noisy(60, 10)
    with pytest.warns(UserWarning, match="SelectKBest learned from the labels of the 60 rows"):
        make_pipeline(SelectKBest(k=3), PCSDA(random_state=0)).fit(rows, np.arange(60) == 0)
