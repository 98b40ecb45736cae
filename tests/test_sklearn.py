"""CSDA and PCSDA with scikit-learn: its checks, and use with its other tools."""

import pickle
from inspect import signature

import numpy as np
import pytest
import sklearn
from factories import lean, make_rows
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import parametrize_with_checks

from pcsda import CSDA, PCSDA, PCSDACV, MixtureVerifier

pd = pytest.importorskip("pandas")

CHECKED = [PCSDA(), CSDA()]
CHECKED_TOO = [
    PCSDA.published(),
    PCSDA(solver="eigen"),
    PCSDA(solver="spectral"),
    PCSDA(solver="lsqr"),
    PCSDA(negatives="marginal"),
    PCSDA(balance="resampled"),
    PCSDA(subclasses="samples"),
    PCSDA(n_subclasses=2),
    PCSDA(covariance="resubstitution"),
    PCSDA(covariance="resubstitution", calibrate=False),
    PCSDA(pos_label=None, priors="equal", shrinkage=1.0),
    CSDA(n_components=1),
    CSDA(solver="labels"),
    CSDA(solver="lowrank"),
    CSDA(solver="trace_ratio"),
    CSDA(solver="spectral"),
    CSDA(solver="raw_labels"),
    CSDA(reference="optimal"),
    CSDA(calibrate=False),
]
BOTH = pytest.mark.parametrize("estimator", [PCSDA(random_state=0), CSDA(random_state=0)], ids=str)


def fail_by_nature(estimator):
    """Name the only checks that may fail, and why."""
    failing = {}
    if hasattr(estimator, "partial_fit"):
        failing["check_fit_score_takes_y"] = (
            "it calls partial_fit after fit, which would discard the fitted model"
        )
    if not estimator.calibrate:
        return failing
    reason = (
        "left-out and fold scores differ: copies of a repeated row stay in the model, but a row of "
        "weight two leaves as a whole; and k-means draws other starts"
    )
    if getattr(estimator, "n_subclasses", "auto") != "auto":
        reason = "the negatives in these checks are all equal and cannot form two subclasses"
    failing["check_sample_weight_equivalence_on_dense_data"] = reason
    if get_tags(estimator).input_tags.sparse:  # scikit-learn 1.6 checks others too, in vain
        failing["check_sample_weight_equivalence_on_sparse_data"] = reason
    return failing


@lean(parametrize_with_checks(CHECKED, expected_failed_checks=fail_by_nature))
def test_scikit_learn_checks_pass(estimator, check):
    check(estimator)


@pytest.mark.more
@parametrize_with_checks(CHECKED_TOO, expected_failed_checks=fail_by_nature)
def test_scikit_learn_checks_pass_with_other_parameters(estimator, check):
    check(estimator)


@pytest.mark.in_turn
@pytest.mark.parametrize("estimator", [*CHECKED, *CHECKED_TOO], ids=str)
def test_y_comes_second_in_every_method_that_takes_it(estimator):
    """Replaces check_fit_score_takes_y, with a fresh estimator for each method."""
    X, y, _ = problem()
    for name in ("fit", "partial_fit", "fit_transform", "score"):
        if hasattr(estimator, name):
            model = clone(estimator).fit(X, y) if name == "score" else clone(estimator)
            getattr(model, name)(X, y)
            assert list(signature(getattr(type(model), name)).parameters)[2] == "y"


def problem(seed=0):
    X, groups, _ = make_rows([40, 45, 35, 50], 6, seed=seed)
    return X, np.where(groups == 0, "this", "other"), groups


@BOTH
def test_a_pipeline_equals_its_steps_in_turn(estimator):
    X, y, _ = problem()
    pipe = make_pipeline(StandardScaler(), clone(estimator)).fit(X[:120], y[:120])
    scaler = StandardScaler().fit(X[:120])
    alone = clone(estimator).fit(scaler.transform(X[:120]), y[:120])
    rest = scaler.transform(X[120:])
    assert_array_equal(pipe.predict(X[120:]), alone.predict(rest))
    assert_array_equal(pipe.decision_function(X[120:]), alone.decision_function(rest))
    assert_array_equal(pipe.transform(X[120:]), alone.transform(rest))
    assert pipe.score(X[120:], y[120:]) > 0.9


def test_grid_search_takes_the_parameters_that_score_best():
    X, y, _ = problem()
    grid = {"n_components": [1, 3], "regularization": [1e-3, 1e3]}
    search = GridSearchCV(
        PCSDA(n_subclasses=3, random_state=0), grid, scoring="neg_log_loss", cv=3
    ).fit(X, y)
    scores = search.cv_results_["mean_test_score"]
    assert search.best_score_ == scores.max() > scores.min() + 0.02
    assert search.best_estimator_.n_components_ == search.best_params_["n_components"]
    assert_array_equal(search.predict(X), search.best_estimator_.predict(X))
    assert search.score(X, y) > -0.2


def test_grid_search_reaches_csda_inside_a_pipeline():
    X, y, _ = problem()
    pipe = make_pipeline(StandardScaler(), CSDA(random_state=0))
    search = GridSearchCV(pipe, {"csda__n_components": [1, 4]}, cv=3).fit(X, y)
    chosen = search.best_params_["csda__n_components"]
    assert search.best_estimator_[-1].n_components_ == chosen
    assert search.best_score_ > 0.9


@BOTH
def test_a_fitted_estimator_clones_to_an_unfitted_one_that_fits_to_the_same(estimator):
    X, y, _ = problem()
    fitted = clone(estimator).fit(X, y)
    again = clone(fitted)
    assert not hasattr(again, "components_")
    assert_array_equal(again.fit(X, y).decision_function(X), fitted.decision_function(X))


@BOTH
def test_set_output_gives_named_columns(estimator):
    X, y, _ = problem()
    model = clone(estimator).set_output(transform="pandas").fit(X, y)
    z = model.transform(X)
    assert isinstance(z, pd.DataFrame)
    name = type(estimator).__name__.lower()
    expected = [f"{name}{i}" for i in range(model.n_components_)]
    assert list(z.columns) == expected == model.get_feature_names_out().tolist()
    assert_array_equal(z.to_numpy(), clone(estimator).fit(X, y).transform(X))


@BOTH
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_pickle_gives_identical_scores(estimator, dtype):
    X, y, _ = problem()
    X = X.astype(dtype)
    model = clone(estimator).fit(X, y)
    copy = pickle.loads(pickle.dumps(model))
    for method in ("transform", "log_likelihood_ratio", "predict_proba", "score_samples"):
        before, after = getattr(model, method)(X), getattr(copy, method)(X)
        assert_array_equal(after, before)
        assert after.dtype == before.dtype


def test_a_pickled_stream_resumes_where_it_stopped():
    X, y, groups = problem()
    halves = np.array_split(np.arange(len(X)), 2)
    model = PCSDA().partial_fit(X[halves[0]], y[halves[0]], subclass_labels=groups[halves[0]])
    copy = pickle.loads(pickle.dumps(model))
    for stream in (model, copy):
        stream.partial_fit(X[halves[1]], y[halves[1]], subclass_labels=groups[halves[1]])
    assert_array_equal(copy.decision_function(X), model.decision_function(X))


def test_weights_and_subclasses_are_routed_through_a_pipeline():
    X, y, groups = problem()
    weights = np.random.default_rng(1).uniform(0.2, 3, len(X))
    with sklearn.config_context(enable_metadata_routing=True):
        model = PCSDA(random_state=0).set_fit_request(sample_weight=True, subclass_labels=True)
        pipe = make_pipeline(StandardScaler().set_fit_request(sample_weight=False), model)
        pipe.fit(X, y, sample_weight=weights, subclass_labels=groups)
    alone = PCSDA(random_state=0).fit(
        StandardScaler().fit_transform(X), y, sample_weight=weights, subclass_labels=groups
    )
    assert_array_equal(pipe[-1].partition_, alone.partition_)
    assert_array_equal(pipe.decision_function(X), alone.decision_function(pipe[0].transform(X)))
    plain = PCSDA(random_state=0).fit(pipe[0].transform(X), y)
    assert not np.array_equal(plain.partition_, alone.partition_)


@pytest.mark.parametrize(
    "wrapped", [PCSDACV, lambda model: MixtureVerifier(model, n_modes=2)], ids=["search", "modes"]
)
def test_wrapped_pipelines_take_weights_and_groups_with_and_without_routing(wrapped):
    X, y, _ = problem()
    weights = np.random.default_rng(1).uniform(0.2, 3, len(X))
    model = wrapped(make_pipeline(StandardScaler(), PCSDA(random_state=0)))
    given = {"sample_weight": weights, "groups": np.arange(len(X)) // 2}
    expected = clone(model).fit(X, y, **given).decision_function(X)
    with sklearn.config_context(enable_metadata_routing=True):
        found = clone(model).fit(X, y, **given).decision_function(X)
    assert_array_equal(found, expected)


def test_weights_are_routed_through_a_pipeline_to_csda():
    X, y, _ = problem()
    weights = np.random.default_rng(1).uniform(0.2, 3, len(X))
    with sklearn.config_context(enable_metadata_routing=True):
        model = CSDA(random_state=0).set_fit_request(sample_weight=True)
        pipe = make_pipeline(StandardScaler().set_fit_request(sample_weight=False), model)
        pipe.fit(X, y, sample_weight=weights)
    rows = pipe[0].transform(X)
    alone = CSDA(random_state=0).fit(rows, y, sample_weight=weights)
    assert_array_equal(pipe.decision_function(X), alone.decision_function(rows))
    plain = CSDA(random_state=0).fit(rows, y)
    assert np.abs(plain.decision_function(rows) - alone.decision_function(rows)).max() > 0.1


def test_cross_validation_splits_routed_weights_and_subclasses_with_the_rows():
    X, y, groups = problem()
    weights = np.random.default_rng(1).uniform(0.2, 3, len(X))
    with sklearn.config_context(enable_metadata_routing=True):
        model = PCSDA().set_fit_request(sample_weight=True, subclass_labels=True)
        model.set_score_request(sample_weight=False)
        params = {"sample_weight": weights, "subclass_labels": groups}
        folds = cross_validate(model, X, y, params=params, cv=3, return_estimator=True)
    for fitted in folds["estimator"]:
        assert_array_equal(fitted.subclass_counts_.shape, (3,))
        assert len(fitted.partition_) < len(X)
        assert 0 < fitted.subclass_counts_.sum() < weights[groups > 0].sum()
    assert np.all(folds["test_score"] > 0.9)


@pytest.mark.each_value
@BOTH
@pytest.mark.parametrize("method", ["predict_proba", "decision_function", "predict"])
def test_cross_val_predict_works_with_every_method(estimator, method):
    X, y, _ = problem()
    found = cross_val_predict(clone(estimator), X, y, cv=3, method=method)
    if method == "predict_proba":
        found = np.array(["other", "this"])[found.argmax(axis=1)]
    elif method == "decision_function":
        found = np.where(found >= 0, "this", "other")
    assert np.mean(found == y) > 0.9


@pytest.mark.each_value
@BOTH
@pytest.mark.parametrize("method", ["sigmoid", "isotonic"])
def test_calibrated_classifier_wraps_it(estimator, method):
    X, y, _ = problem()
    wrapped = CalibratedClassifierCV(clone(estimator), method=method, cv=3).fit(X, y)
    probability = wrapped.predict_proba(X)
    assert_allclose(probability.sum(axis=1), 1)
    assert wrapped.score(X, y) > 0.9
    assert wrapped.classes_.tolist() == ["other", "this"]


@BOTH
def test_data_frames_keep_their_names_and_give_the_scores_of_arrays(estimator):
    X, y, _ = problem()
    frame = pd.DataFrame(X, columns=list("abcdef"), index=np.arange(len(X))[::-1])
    model = clone(estimator).fit(frame, pd.Series(y))
    assert model.feature_names_in_.tolist() == list("abcdef")
    assert model.n_features_in_ == 6
    plain = clone(estimator).fit(X, y)
    assert_array_equal(model.decision_function(frame), plain.decision_function(X))
    assert not hasattr(plain, "feature_names_in_")


@BOTH
@pytest.mark.parametrize("method", ["predict", "transform", "log_likelihood_ratio", "rank"])
def test_columns_in_another_order_or_of_other_names_are_refused(estimator, method):
    X, y, _ = problem()
    frame = pd.DataFrame(X, columns=list("abcdef"))
    model = clone(estimator).fit(frame, y)
    with pytest.raises(ValueError, match="Feature names must be in the same order"):
        getattr(model, method)(frame[list("bacdef")])
    with pytest.raises(ValueError, match="Feature names unseen at fit time:\n- z"):
        getattr(model, method)(frame.rename(columns={"a": "z"}))
    with pytest.warns(UserWarning, match="X does not have valid feature names"):
        getattr(model, method)(X)


def test_partial_fit_refuses_renamed_columns():
    X, y, groups = problem()
    frame = pd.DataFrame(X, columns=list("abcdef"))
    model = PCSDA().partial_fit(frame, y, subclass_labels=groups)
    with pytest.raises(ValueError, match="Feature names must be in the same order"):
        model.partial_fit(frame[list("bacdef")], y, subclass_labels=groups)


def test_partial_fit_is_offered_only_where_statistics_suffice():
    assert hasattr(PCSDA(), "partial_fit")
    assert hasattr(CSDA(), "partial_fit")
    assert not hasattr(PCSDA(balance="resampled"), "partial_fit")
    assert not hasattr(CSDA(solver="labels"), "partial_fit")
