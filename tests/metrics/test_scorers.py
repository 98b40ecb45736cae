"""Scorers in scikit-learn's searches and in PCSDACV."""

import pickle
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from pcsda import PCSDA, PCSDACV, NystroemMap
from pcsda.datasets import make_class_specific
from pcsda.metrics import (
    cllr,
    detection_cost,
    equal_error_rate,
    fnmr_at_fmr,
    make_detection_scorer,
    min_cllr,
    min_detection_cost,
    precision_at_k,
)


@pytest.fixture(scope="module")
def data():
    return make_class_specific(400, n_features=6, n_informative=3, random_state=0)


@pytest.mark.parametrize(
    ("metric", "options"),
    [
        (equal_error_rate, {}),
        (equal_error_rate, {"convex_hull": True}),
        (cllr, {}),
        (min_cllr, {}),
        (detection_cost, {"prior": 0.01}),
        (min_detection_cost, {"prior": 0.01, "cost_miss": 10}),
        (fnmr_at_fmr, {"fmr": 0.1}),
    ],
)
def test_a_scorer_is_minus_the_metric_of_log_likelihood_ratios(data, metric, options):
    model = PCSDA(2, random_state=0).fit(data.data, data.target)
    found = metric(data.target, model.log_likelihood_ratio(data.data), **options)
    expected = -(found[0] if isinstance(found, tuple) else found)
    scorer = make_detection_scorer(metric, **options)
    assert scorer(model, data.data, data.target) == expected
    assert pickle.loads(pickle.dumps(scorer)) == scorer


@pytest.mark.parametrize("named", [None, "a", "b"])
@pytest.mark.parametrize("own", [None, "a", "b"])
def test_scorer_or_estimator_names_the_class_of_interest(data, named, own):
    y = np.where(data.target == 1, "b", "a")
    model = make_pipeline(StandardScaler(), PCSDA(2, pos_label=own, random_state=0))
    model.fit(data.data, y)
    ratio = model[-1].log_likelihood_ratio(model[:-1].transform(data.data))
    interest = named or own or "b"
    ratio = ratio if interest == (own or "b") else -ratio
    scorer = make_detection_scorer(cllr, pos_label=named)
    assert scorer(model, data.data, y) == -cllr(y, ratio, pos_label=interest)


def test_models_inside_searches_are_found(data):
    y = np.where(data.target == 1, "a", "b")
    grids = {"n_subclasses": [2], "n_components": [1], "regularization": [0.01]}
    ours = PCSDACV(PCSDA(pos_label="a", random_state=0), **grids).fit(data.data, y)
    expected = -cllr(y, ours.log_likelihood_ratio(data.data), pos_label="a")
    assert make_detection_scorer(cllr)(ours, data.data, y) == expected
    theirs = GridSearchCV(
        make_pipeline(StandardScaler(), PCSDA(pos_label="a", random_state=0)),
        {"pcsda__n_subclasses": [2]},
    ).fit(data.data, y)
    best = theirs.best_estimator_
    ratio = best[-1].log_likelihood_ratio(best[:-1].transform(data.data))
    expected = -cllr(y, ratio, pos_label="a")
    assert make_detection_scorer(cllr)(theirs, data.data, y) == expected


def test_weights_reach_the_metric(data):
    model = PCSDA(2, random_state=0).fit(data.data, data.target)
    weights = np.arange(400) % 3
    found = make_detection_scorer(cllr)(model, data.data, data.target, sample_weight=weights)
    ratio = model.log_likelihood_ratio(data.data)
    assert found == -cllr(data.target, ratio, sample_weight=weights)


def test_other_classifiers_are_scored_by_their_decision(data):
    model = LogisticRegression().fit(data.data, data.target)
    odds = model.decision_function(data.data)
    scorer = make_detection_scorer(precision_at_k, greater_is_better=True, k=20)
    assert scorer(model, data.data, data.target) == precision_at_k(data.target, odds, 20)
    scorer = make_detection_scorer(min_cllr, pos_label=0)
    assert_allclose(scorer(model, data.data, data.target), -min_cllr(1 - data.target, -odds))
    with pytest.raises(
        TypeError, match=r"^cllr evaluates log-likelihood ratios, which LogisticRegr"
    ):
        make_detection_scorer(cllr)(model, data.data, data.target)


MORE = [pytest.param(metric, marks=pytest.mark.more) for metric in (min_cllr, equal_error_rate)]


@pytest.mark.parametrize("metric", [cllr, *MORE])
def test_a_grid_search_chooses_by_a_scorer(data, metric):
    grid = {"pcsda__n_subclasses": [1, 4]}
    pipeline = make_pipeline(NystroemMap(40, gamma=0.1, random_state=0), PCSDA(random_state=0))
    folds = StratifiedKFold(3)
    scorer = make_detection_scorer(metric)
    search = GridSearchCV(pipeline, grid, scoring=scorer, cv=folds).fit(data.data, data.target)
    for count, score in zip((1, 4), search.cv_results_["mean_test_score"], strict=True):
        pipeline.set_params(pcsda__n_subclasses=count)
        expected = cross_val_score(pipeline, data.data, data.target, scoring=scorer, cv=folds)
        assert_allclose(score, expected.mean())
    assert search.best_score_ == search.cv_results_["mean_test_score"].max()


@pytest.mark.parametrize(
    ("scorer", "expected"),
    [
        (make_detection_scorer(min_cllr), lambda y, s: -min_cllr(y, s)),
        (
            make_detection_scorer(min_detection_cost, prior=0.1),
            lambda y, s: -min_detection_cost(y, s, prior=0.1)[0],
        ),
        (
            make_detection_scorer(average_precision_score, greater_is_better=True),
            average_precision_score,
        ),
    ],
)
def test_pcsdacv_chooses_by_a_scorer(data, scorer, expected):
    grids = {"n_subclasses": [1, 4], "n_components": [1, 2], "regularization": [0.01]}
    search = PCSDACV(PCSDA(random_state=0), **grids, scoring=scorer, cv="leave-one-out")
    search.fit(data.data, data.target)
    found = [expected(data.target, scores) for scores in search.cv_scores_]
    assert_allclose(search.cv_results_["mean_test_score"], found)


def test_left_out_posterior_ratios_are_not_taken_for_likelihood_ratios(data):
    scorer = make_detection_scorer(partial(cllr, pos_label=1))
    search = PCSDACV(PCSDA(random_state=0), n_subclasses=[1], scoring=scorer)
    with pytest.raises(
        ValueError, match=r"^cllr evaluates .* posterior ratios; use scoring='neg_log"
    ):
        search.fit(data.data, data.target)


def test_partial_metrics_work_too(data):
    model = PCSDA(2, random_state=0).fit(data.data, data.target)
    scorer = make_detection_scorer(partial(fnmr_at_fmr, fmr=0.1))
    expected = make_detection_scorer(fnmr_at_fmr, fmr=0.1)
    assert scorer(model, data.data, data.target) == expected(model, data.data, data.target)
