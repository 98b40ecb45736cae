"""The choice of K, d, ridge and bandwidth: unbiased left-out scores, the rule, refusals."""

import pickle
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from factories import (
    close,
    lean,
    make_rows,
    paper_statistics,
    positives_without,
    refit_without_each_row,
)
from joblib import Parallel
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import logsumexp
from scipy.stats import multivariate_normal, rankdata
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.metrics import average_precision_score, f1_score
from sklearn.model_selection import (
    KFold,
    ShuffleSplit,
    StratifiedGroupKFold,
    StratifiedKFold,
    cross_val_score,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.utils import check_random_state
from sklearn.utils.estimator_checks import parametrize_with_checks
from threadpoolctl import threadpool_info, threadpool_limits

from pcsda import CSDA, PCSDA, PCSDACV, KernelPCSDA, NystroemMap, partition
from pcsda.core.spread import auto_regularization
from pcsda.datasets import make_class_specific
from pcsda.estimators import selection
from pcsda.estimators.grid import Cell, Data, left_out_scores
from pcsda.metrics import equal_error_rate

GRID = {"n_subclasses": (1, 3, 6), "n_components": (1, 2, 3, 5), "regularization": (1e-3, 0.1, 1.0)}
SMALL = {"n_subclasses": (1, 3), "n_components": (1, 2), "regularization": (0.01, 1.0)}
LINEAR = PCSDA(random_state=0)
KERNEL = KernelPCSDA(gamma="all", random_state=0)
WEIGHTED = pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Use one thread: on small data, k-means threads wait for each other longer than they work."""
    with threadpool_limits(1):
        yield


def problem(width=6, seed=0, sizes=(30, 30, 25, 35), weighted=False):
    X, groups, weights = make_rows(sizes, width, seed=seed, weighted=weighted, spread=0.6)
    return X, groups == 0, weights


def setting(template, params):
    """Return the estimator at one setting."""
    model, params = clone(template), dict(params)
    if not hasattr(model, "steps"):
        return model.set_params(**params)
    if "gamma" in params:
        model.set_params(nystroemmap__gamma=params.pop("gamma"))
    return model.set_params(**{f"pcsda__{name}": value for name, value in params.items()})


def log_loss_of(positive, scores):
    return np.logaddexp(0, np.where(positive, -scores, scores))


@pytest.mark.each_value
@WEIGHTED
@pytest.mark.parametrize("width", [6, 150], ids=["D<N", "D>N"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"calibrate": False},
        {"negatives": "marginal", "shrinkage": 2.0, "priors": "equal"},
        {"negatives": "mixture"},
        {"tails": "gaussian"},
    ],
    ids=["default", "not calibrated", "marginal", "mixture", "gaussian"],
)
def test_left_out_scores_equal_those_of_separate_fits(width, weighted, changes):
    X, y, weights = problem(width, weighted=weighted)
    template = clone(LINEAR).set_params(**changes)
    grid = GRID | {"n_components": (1, 3)}
    search = PCSDACV(template, cv="leave-one-out", **grid).fit(X, y, sample_weight=weights)
    assert search.cv_method_ == "leave-one-out"
    assert search.cv_scores_.shape == (len(search.cv_results_["params"]), len(X))
    for params, scores in zip(search.cv_results_["params"], search.cv_scores_, strict=True):
        alone = setting(template, params).fit(X, y, sample_weight=weights)
        prior = alone.class_prior_
        close(scores, alone.loo_scores_ + np.log(prior[1] / prior[0]))


@pytest.mark.each_value
@WEIGHTED
@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_left_out_scores_of_kernels_equal_those_of_separate_fits(kernel, weighted):
    X, y, weights = problem(weighted=weighted)
    template = KernelPCSDA(kernel, random_state=0)
    gammas = {"gamma": ("positive", "scale", 0.02)} if kernel == "rbf" else {}
    search = PCSDACV(template, cv="leave-one-out", **SMALL, **gammas)
    X = X + (1e3 if kernel == "linear" else 0)
    search.fit(X, y, sample_weight=weights)
    assert len(search.cv_scores_) == (18 if kernel == "rbf" else 6)
    for params, scores in zip(search.cv_results_["params"], search.cv_scores_, strict=True):
        alone = setting(template, params).fit(X, y, sample_weight=weights)
        prior = alone.class_prior_
        close(scores, alone.loo_scores_ + np.log(prior[1] / prior[0]), 1e-7)


def test_singleton_subclasses_take_no_part_in_the_calibration():
    X, y, _ = problem(sizes=(20, 12, 12))
    X[np.flatnonzero(~y)[:3]] += 40 * np.eye(6)[:3]  # three negatives far off, each on its own
    search = PCSDACV(LINEAR, n_subclasses=[6], regularization=[0.1], cv="leave-one-out").fit(X, y)
    assert np.sum(search.best_estimator_.subclass_counts_ == 1) == 3
    for params, scores in zip(search.cv_results_["params"], search.cv_scores_, strict=True):
        alone = setting(LINEAR, params).fit(X, y)
        close(scores, alone.loo_scores_ + np.log(y.sum() / (~y).sum()))


def left_out_by_refits(X, groups, ridge, components):
    """Compute the scores of MATH 8 and 9 with N refits of the statistics: mixture, nu = d/2."""
    s, d = paper_statistics(X, groups), len(components)
    z, rho, moved = refit_without_each_row(X, groups, None, ridge, components)
    positive, negative = groups == 0, groups > 0
    inside, outside = rho[positive].T @ rho[positive], rho[negative].T @ rho[negative]
    floor = 1e-8 * components @ (s.S_I + ridge * np.eye(X.shape[1])) @ components.T
    target = d / 2 * (inside + outside + floor) / len(X)
    centres, scores, each = s.delta @ components.T, [], np.ones(len(X))
    left = SimpleNamespace(
        coordinates=z, groups=groups, weight=each, mass=each, known=each > 0, together=None
    )
    base = SimpleNamespace(
        positive=(inside + target) / (s.n_p + d / 2), positive_strength=s.n_p + d / 2
    )
    for i, group in enumerate(groups):
        own = np.outer(rho[i], rho[i])
        phi_p, move = positives_without(base, left, np.arange(len(X)) == i)
        phi_n = (outside - (group > 0) * own + target) / (s.n_n + d / 2 - (group > 0))
        counts, means = s.counts[1:].copy(), (centres if group > 0 else moved[i]) + move
        if group > 0:
            counts[group - 1] -= 1
            means[group - 1] = z[i] - rho[i]
        parts = [multivariate_normal.logpdf(z[i], mean, phi_n) for mean in means]
        rest = logsumexp(parts, b=counts / counts.sum())
        scores.append(multivariate_normal.logpdf(z[i], np.zeros(d), phi_p) - rest)
    return np.array(scores)


def test_left_out_scores_equal_refits_of_the_statistics():
    X, y, _ = problem(width=4, sizes=(12, 11, 14))
    template = PCSDA(negatives="mixture", tails="gaussian", calibrate=False, random_state=0)
    grid = {"n_subclasses": (1, 3), "n_components": (1, 2, 3), "regularization": (1e-3, 1.0)}
    search = PCSDACV(template, cv="leave-one-out", **grid).fit(X, y)
    assert len(search.cv_scores_) == 8
    for params, scores in zip(search.cv_results_["params"], search.cv_scores_, strict=True):
        alone = setting(template, params).fit(X, y)
        ridge = params["regularization"] * paper_statistics(X, alone.partition_).total_variance
        expected = left_out_by_refits(X, alone.partition_, ridge, alone.components_)
        close(scores, expected + np.log(y.sum() / (~y).sum()), 1e-7)


def by_hand(template, params, X, y, folds, weights=None, labels=None, together=None):
    """Compute each row's decision value with an estimator fitted without its fold."""
    scores = np.empty(len(X))
    for train, test in folds:
        model = setting(template, params)
        last = "pcsda__" if hasattr(model, "steps") else ""
        given = {}
        if weights is not None:
            given[f"{last}sample_weight"] = weights[train]
        if labels is not None:
            given[f"{last}subclass_labels"] = labels[train]
        if together is not None:
            given[f"{last}groups"] = together[train]
        scores[test] = model.fit(X[train], y[train], **given).decision_function(X[test])
    return scores


def folds_of(template, X, y, n_folds=5):
    final = template[-1] if hasattr(template, "steps") else template
    seed = check_random_state(final.random_state).randint(2**31 - 1)
    return list(StratifiedKFold(n_folds, shuffle=True, random_state=seed).split(X, y))


@pytest.mark.each_value
@WEIGHTED
@pytest.mark.parametrize(
    ("template", "gammas", "width"),
    [
        (LINEAR, None, 6),
        (LINEAR, None, 150),
        (KERNEL, ("positive", 0.05), 6),
        pytest.param(
            make_pipeline(NystroemMap(25, random_state=0), LINEAR), None, 6, marks=pytest.mark.more
        ),
        pytest.param(
            make_pipeline(NystroemMap(25, random_state=0), LINEAR),
            (0.02, 0.2),
            6,
            marks=pytest.mark.more,
        ),
        pytest.param(make_pipeline(StandardScaler(), LINEAR), None, 6, marks=pytest.mark.more),
    ],
    ids=["D<N", "D>N", "kernel", "Nystroem", "Nystroem gammas", "scaler"],
)
def test_folds_equal_refits_of_everything_in_each_fold(template, gammas, width, weighted):
    X, y, weights = problem(width, weighted=weighted)
    search = PCSDACV(template, gamma=gammas, cv=3, **SMALL)
    last = {} if weights is None else {"sample_weight": weights}
    search.fit(X, y, **last)
    assert search.cv_method_ == "k-fold"
    folds = folds_of(template, X, y, 3)
    for params, scores in zip(search.cv_results_["params"], search.cv_scores_, strict=True):
        close(scores, by_hand(template, params, X, y, folds, weights), 1e-7)


@pytest.mark.more
def test_folds_of_a_precomputed_kernel_equal_those_of_the_kernel():
    X, y, _ = problem()
    matrix = np.exp(-0.05 * ((X[:, None] - X) ** 2).sum(axis=2))
    labels = np.arange(len(X)) % 3
    rows = PCSDACV(KERNEL, gamma=[0.05], n_components=(1, 2), cv=3)
    values = PCSDACV(KernelPCSDA("precomputed", random_state=0), n_components=(1, 2), cv=3)
    rows.fit(X, y, subclass_labels=labels)
    values.fit(matrix, y, subclass_labels=labels)
    close(values.cv_scores_, rows.cv_scores_, 1e-7)
    close(values.decision_function(matrix), rows.decision_function(X), 1e-7)
    scores = cross_val_score(PCSDACV(values.estimator, cv=2, **SMALL), matrix, y, cv=2)
    assert scores.min() > 0.6


@pytest.mark.more
def test_no_group_is_split():
    X, y, _ = problem()
    groups = np.random.default_rng(0).integers(30, size=len(X))
    search = PCSDACV(LINEAR, **SMALL | {"regularization": [0.1]}).fit(X, y, groups=groups)
    assert search.cv_method_ == "k-fold"
    seed = check_random_state(0).randint(2**31 - 1)
    splitter = StratifiedGroupKFold(5, shuffle=True, random_state=seed)
    folds = list(splitter.split(X, y, groups))
    assert all(not {*groups[train]} & {*groups[test]} for train, test in folds)
    for params, scores in zip(search.cv_results_["params"], search.cv_scores_, strict=True):
        close(scores, by_hand(LINEAR, params, X, y, folds, together=groups), 1e-7)


def test_groups_keep_near_duplicates_from_flattering_the_scores():
    X, y, _ = problem(width=40, sizes=(12, 20, 20))
    rng = np.random.default_rng(1)
    copies = np.repeat(np.arange(len(X)), 4)
    rows = X[copies] + 1e-3 * rng.standard_normal((len(copies), 40))
    grid = {"n_subclasses": [2], "n_components": [2], "regularization": [1e-3]}
    split = PCSDACV(LINEAR, cv=5, **grid).fit(rows, y[copies])
    kept = PCSDACV(LINEAR, cv=5, **grid).fit(rows, y[copies], groups=copies)
    assert kept.best_score_ < split.best_score_ - 0.1


@pytest.mark.more
def test_groups_work_with_zero_weights():
    X, y, weights = problem(weighted=True)
    weights[::7] = 0
    groups = np.random.default_rng(0).integers(30, size=len(X))
    search = PCSDACV(LINEAR, cv=3, **SMALL).fit(X, y, groups=groups, sample_weight=weights)
    kept = weights > 0
    rest = PCSDACV(LINEAR, cv=3, **SMALL)
    rest.fit(X[kept], y[kept], groups=groups[kept], sample_weight=weights[kept])
    assert_array_equal(search.cv_scores_, rest.cv_scores_)


@pytest.mark.parametrize("cv", ["leave-one-out", 5])
def test_zero_weight_rows_are_ignored(cv):
    X, y, weights = problem(weighted=True)
    weights[::7] = 0
    kept = weights > 0
    labels = np.arange(len(X)) % 4
    search = PCSDACV(LINEAR, cv=cv, **SMALL)
    search.fit(X, y, sample_weight=weights, subclass_labels=labels)
    rest = PCSDACV(LINEAR, cv=cv, **SMALL)
    rest.fit(X[kept], y[kept], sample_weight=weights[kept], subclass_labels=labels[kept])
    assert search.cv_scores_.shape[1] == kept.sum()
    assert_array_equal(search.cv_scores_, rest.cv_scores_)
    assert search.best_params_ == rest.best_params_
    close(search.decision_function(X), rest.decision_function(X), 1e-10)


NYSTROEM = make_pipeline(NystroemMap(30, random_state=0), LINEAR)


@pytest.mark.parametrize(
    ("template", "sizes", "counts", "expected"),
    [
        (LINEAR, (30, 150), (1, 3), "leave-one-out"),
        (LINEAR, (29, 150), (1, 3), "k-fold"),
        (LINEAR, (30, 149), (1, 3), "k-fold"),
        (LINEAR, (30, 149), (1, 2), "leave-one-out"),
        (KERNEL, (30, 100), (1, 2), "leave-one-out"),
        (KERNEL, (30, 99), (1, 2), "k-fold"),
        (NYSTROEM, (199, 100), (1, 2), "k-fold"),
        (NYSTROEM, (200, 100), (1, 2), "leave-one-out"),
        (make_pipeline(StandardScaler(), LINEAR), (30, 100), (1, 2), "leave-one-out"),
    ],
)
def test_auto_leaves_one_out_where_that_is_unbiased(template, sizes, counts, expected):
    X, y, _ = problem(sizes=sizes)
    search = PCSDACV(template, n_subclasses=counts, n_components=[1], regularization=[0.1])
    assert search.fit(X, y).cv_method_ == expected


@pytest.mark.more
def test_few_positives_select_as_in_five_folds():
    data = make_class_specific(6000, random_state=3)
    few = np.flatnonzero(data.target == 1)[:20]
    rows = np.concatenate([few, np.flatnonzero(data.target == 0)[:300]])
    grid = {"n_subclasses": (1, 5), "n_components": (1, 3), "regularization": (0.01, 1.0)}
    searches = [
        PCSDACV(LINEAR, cv=cv, **grid).fit(data.data[rows], data.target[rows])
        for cv in ("auto", 5, "leave-one-out")
    ]
    assert searches[0].best_params_ == searches[1].best_params_
    assert_array_equal(searches[0].cv_scores_, searches[1].cv_scores_)
    assert np.abs(searches[0].cv_scores_ - searches[2].cv_scores_).max() > 0.1


def test_either_method_can_be_requested():
    X, y, _ = problem(sizes=(20, 20))
    asked = PCSDACV(LINEAR, cv="leave-one-out", **SMALL).fit(X, y)
    assert asked.cv_method_ == "leave-one-out"
    X, y, _ = problem(sizes=(30, 200))
    assert PCSDACV(LINEAR, cv=3, **SMALL).fit(X, y).cv_method_ == "k-fold"


@pytest.mark.parametrize("as_list", [False, pytest.param(True, marks=pytest.mark.more)])
def test_a_splitter_or_its_splits_give_the_folds(as_list):
    X, y, _ = problem()
    splitter = KFold(3, shuffle=True, random_state=3)
    folds = list(splitter.split(X, y))
    search = PCSDACV(LINEAR, cv=folds if as_list else splitter, **SMALL).fit(X, y)
    for params, scores in zip(search.cv_results_["params"], search.cv_scores_, strict=True):
        close(scores, by_hand(LINEAR, params, X, y, folds), 1e-7)
    assert "split2_test_score" in search.cv_results_


def test_given_splits_number_all_rows_also_those_of_weight_zero():
    X, y, _ = problem()
    weights = (np.arange(len(y)) % 7 != 0).astype(float)
    counted = np.flatnonzero(weights)
    folds = list(KFold(4, shuffle=True, random_state=3).split(X, y))
    left = [tuple(np.flatnonzero(np.isin(counted, rows)) for rows in fold) for fold in folds]
    weighted = PCSDACV(LINEAR, cv=folds, **SMALL).fit(X, y, sample_weight=weights)
    without = PCSDACV(LINEAR, cv=left, **SMALL).fit(X[counted], y[counted])
    close(weighted.cv_scores_, without.cv_scores_)


METRICS = {
    "neg_log_loss": lambda y, s: -log_loss_of(y, s).mean(),
    "average_precision": average_precision_score,
    "f1": lambda y, s: f1_score(y, s >= 0),
    "eer": lambda y, s: -equal_error_rate(y, s)[0],
}


def one_minus_brier(y, s):
    return 1 - np.mean((y - 1 / (1 + np.exp(-s))) ** 2)


@pytest.mark.each_value
@pytest.mark.parametrize("scoring", [*METRICS, one_minus_brier], ids=[*METRICS, "callable"])
@pytest.mark.parametrize("cv", ["leave-one-out", 5])
def test_settings_are_scored_on_their_left_out_rows(scoring, cv):
    X, y, _ = problem()
    search = PCSDACV(LINEAR, cv=cv, scoring=scoring, **SMALL).fit(X, y)
    metric = METRICS.get(scoring, scoring)
    results = search.cv_results_
    assert search.best_score_ == results["mean_test_score"][search.best_index_]
    folds = folds_of(LINEAR, X, y)
    for i, scores in enumerate(search.cv_scores_):
        parts = [metric(y[test], scores[test]) for _, test in folds]
        if cv == 5:
            found = [results[f"split{k}_test_score"][i] for k in range(5)]
            close(found, parts)
        whole = cv == "leave-one-out" or scoring == "neg_log_loss"
        close(results["mean_test_score"][i], metric(y, scores) if whole else np.mean(parts))


@pytest.mark.each_value
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("slack", [0, 0.5, 3.0])
@pytest.mark.more
def test_the_best_at_the_largest_ridge_within_the_slack_is_taken(slack, seed):
    X, y, weights = problem(seed=seed, weighted=seed == 3)
    search = PCSDACV(LINEAR, cv="leave-one-out", slack=slack, stay=0, **GRID)
    search.fit(X, y, sample_weight=weights)
    losses = log_loss_of(y, search.cv_scores_)
    mean = np.average(losses, axis=1, weights=weights)
    close(search.cv_results_["mean_test_score"], -mean)
    lag = losses - losses[mean.argmin()]
    error = lag.std(axis=1, ddof=1) / np.sqrt(len(X))
    params = search.cv_results_["params"]
    alike = [
        i for i in range(len(params)) if np.average(lag[i], weights=weights) <= slack * error[i]
    ]
    steadiest = max(alike, key=lambda i: (params[i]["regularization"], -mean[i]))
    assert search.best_index_ == (mean.argmin() if slack == 0 else steadiest)
    assert search.best_params_ == params[search.best_index_]


@pytest.mark.more
def test_slack_makes_a_difference():
    X, y, _ = problem(sizes=(15, 30, 30, 30))
    found = [
        PCSDACV(LINEAR, cv="leave-one-out", stay=0, slack=slack, **GRID).fit(X, y)
        for slack in (0, 0.5, 100.0)
    ]
    ridges = [search.best_params_["regularization"] for search in found]
    assert ridges[0] < ridges[2] == 1.0
    # With unlimited slack, the best setting at the largest ridge.
    results = found[2].cv_results_
    of_largest = results["param_regularization"].astype(float) == 1.0
    assert found[2].best_score_ == results["mean_test_score"][of_largest].max()


@pytest.mark.parametrize(
    "scoring", ["neg_log_loss", pytest.param("average_precision", marks=pytest.mark.more)]
)
@pytest.mark.parametrize("seed", [3, *(pytest.param(s, marks=pytest.mark.more) for s in (0, 1, 2))])
def test_the_surest_gain_over_the_estimators_setting_wins(seed, scoring):
    X, y, weights = problem(seed=seed, weighted=seed == 3)
    grid = {"n_subclasses": [1, 2], "regularization": [0.001, 10.0]}
    own = {"n_subclasses": 2, "n_components": 2, "regularization": 10.0}
    model = PCSDA(n_subclasses=2, regularization=10.0, random_state=0)
    fit = partial(PCSDACV, model, cv=5, scoring=scoring, **grid)
    found = {stay: fit(stay=stay).fit(X, y, sample_weight=weights) for stay in (1e-9, 1, 2, 1e6)}
    results = found[1].cv_results_
    units, shares = -log_loss_of(y, found[1].cv_scores_), weights
    if scoring != "neg_log_loss":
        units, shares = np.array([results[f"split{k}_test_score"] for k in range(5)]).T, None
    number = results["params"].index(own)
    gain = units - units[number]
    error = gain.std(axis=1, ddof=1) / np.sqrt(units.shape[1])
    for stay, search in found.items():
        sure = np.average(gain, axis=1, weights=shares) - stay * error
        sure[number] = 0
        assert search.best_index_ == sure.argmax()
    assert found[1e6].best_params_ == own
    assert found[1e-9].best_index_ == results["mean_test_score"].argmax()


@pytest.mark.more
def test_the_baseline_is_the_estimators_setting():
    X, y, _ = problem(sizes=(100, 20, 20, 20))  # K = 4 by the number of negatives
    fit = partial(PCSDACV, cv="leave-one-out", slack=0, stay=1e9)
    chosen = fit(PCSDA(random_state=0)).fit(X, y).best_params_
    assert chosen == {"n_subclasses": 4, "n_components": 4, "regularization": 0.3}
    chosen = fit(PCSDA(random_state=0), n_subclasses=[2, 3, 6]).fit(X, y).best_params_
    assert chosen == {"n_subclasses": 3, "n_components": 3, "regularization": 0.3}
    model = PCSDA(2, 1, regularization=0.02, random_state=0)
    chosen = fit(model).fit(X, y).best_params_
    assert chosen == {"n_subclasses": 2, "n_components": 1, "regularization": 0.02}
    chosen = fit(PCSDA(random_state=0), n_subclasses=[2, 4, 6]).fit(X, y).best_params_
    assert chosen == {"n_subclasses": 4, "n_components": 4, "regularization": 0.3}
    model = KernelPCSDA(n_subclasses=5, n_components=2, gamma="scale", random_state=0)
    search = fit(model, gamma=["positive", "scale"]).fit(X, y)
    own = {"n_subclasses": 5, "n_components": 2, "regularization": 0.1, "gamma": "scale"}
    assert search.best_params_ == own


@pytest.mark.parametrize(
    "grid",
    [{"n_subclasses": [3]}, {"n_components": [1]}, {"regularization": [0.02]}],
    ids=["K", "d", "ridge"],
)
def test_without_a_baseline_in_the_grid_the_best_setting_is_taken(grid):
    X, y, _ = problem()
    model = PCSDA(n_subclasses=5, random_state=0)
    found = [
        PCSDACV(model, cv="leave-one-out", stay=stay, **grid).fit(X, y).best_index_
        for stay in (0, 1e9)
    ]
    assert found[0] == found[1]


def test_settings_beyond_their_bound_are_skipped():
    X, y, _ = problem(width=3)
    search = PCSDACV(
        LINEAR, n_subclasses=(1, 2, 6), n_components=(1, 2, 3, 4), regularization=[1.0]
    )
    cells = [(p["n_subclasses"], p["n_components"]) for p in search.fit(X, y).cv_results_["params"]]
    assert cells == [(1, 1), (2, 1), (2, 2), (6, 1), (6, 2), (6, 3)]
    assert np.isfinite(search.cv_scores_).all()


@pytest.mark.parametrize("d", [None, 4], ids=["from the grid", "own"])
def test_settings_above_the_rank_are_never_chosen(d):
    X, y, _ = problem(width=3)
    X = np.column_stack([X, X[:, 0] + X[:, 1]])  # four columns, rank three
    model = PCSDA(n_subclasses=6, n_components=d, regularization=1.0, random_state=0)
    search = PCSDACV(
        model, n_subclasses=[6], n_components=(2, 4), regularization=[1.0], scoring=one_minus_brier
    ).fit(X, y)
    assert search.best_params_["n_components"] == 2
    assert np.isnan(search.cv_scores_[1]).all()
    assert search.cv_results_["mean_test_score"][1] == -np.inf
    assert_array_equal(search.cv_results_["rank_test_score"], [1, 2])


def test_more_subclasses_than_distinct_negatives_are_skipped():
    X, y, _ = problem(sizes=(20, 40))
    X[~y] = X[~y][np.arange(40) % 4]
    search = PCSDACV(LINEAR, n_subclasses=(1, 4, 5), n_components=[1], regularization=[0.1])
    search.fit(X, y)
    assert {*search.cv_results_["param_n_subclasses"].tolist()} == {1, 4}
    with pytest.raises(ValueError, match=r"n_subclasses=\[5, 9\] must have a value of at most 4 "):
        clone(search).set_params(n_subclasses=[5, 9]).fit(X, y)


@pytest.mark.each_value
@pytest.mark.parametrize("template", [LINEAR, KERNEL], ids=["linear", "kernel"])
@pytest.mark.parametrize(
    ("sizes", "counts"),
    [
        ((2, 2), {1}),
        pytest.param((6, 6), {1}, marks=pytest.mark.more),
        ((6, 7), {1, 5}),
        pytest.param((2, 20), {1, 5, 10}, marks=pytest.mark.more),
        ((20, 13), {1, 5, 10}),
    ],
)
@pytest.mark.filterwarnings("ignore:gamma='positive' is undefined")
def test_folds_of_few_negatives_have_fewer_subclasses(template, sizes, counts):
    X, y, _ = problem(sizes=sizes)
    search = PCSDACV(template, n_subclasses=[1, 5, 10, 15, 20], regularization=[0.1]).fit(X, y)
    assert search.cv_method_ == "k-fold"
    assert {*search.cv_results_["param_n_subclasses"].tolist()} == counts
    assert np.isfinite(search.decision_function(X)).all()
    search.set_params(n_subclasses=[sizes[1]], n_components=[1])
    with pytest.raises(ValueError, match="different negative samples in a fold"):
        search.fit(X, y)


@pytest.mark.parametrize("cv", ["leave-one-out", 5])
def test_given_subclasses_fix_their_number(cv):
    X, y, _ = problem()
    labels = np.random.default_rng(0).choice(["a", "b", "c", "d"], len(X))
    labels[y] = "ignored"
    search = PCSDACV(LINEAR, cv=cv, n_components=(1, 2, 4)).fit(X, y, subclass_labels=labels)
    assert {*search.cv_results_["param_n_subclasses"].tolist()} == {4}
    alone = setting(LINEAR, search.best_params_).fit(X, y, subclass_labels=labels)
    assert_array_equal(search.best_estimator_.partition_, alone.partition_)
    if cv == 5:
        folds = folds_of(LINEAR, X, y)
        expected = by_hand(LINEAR, search.best_params_, X, y, folds, labels=labels)
    else:
        expected = alone.loo_scores_ + np.log(y.sum() / (~y).sum())
    close(search.cv_scores_[search.best_index_], expected, 1e-7)


@pytest.mark.parametrize(
    ("template", "cv"),
    [
        (LINEAR, 3),
        *(
            pytest.param(*case, marks=pytest.mark.more)
            for case in ((LINEAR, "leave-one-out"), (KERNEL, "leave-one-out"), (KERNEL, 3))
        ),
    ],
)
def test_the_number_of_jobs_does_not_matter(template, cv):
    X, y, _ = problem()
    one, two = (PCSDACV(template, cv=cv, n_jobs=n, **SMALL).fit(X, y) for n in (1, 2))
    assert_array_equal(one.cv_scores_, two.cv_scores_)
    assert one.best_params_ == two.best_params_


@pytest.mark.parametrize("template", [None, LINEAR, KERNEL, NYSTROEM], ids=str)
def test_a_search_behaves_like_the_estimator_at_the_chosen_setting(template):
    X, y, weights = problem(weighted=True)
    names = np.where(y, "this", "other")
    search = PCSDACV(template, n_subclasses=[1], regularization=(0.01, 0.1))
    search.fit(X, names, sample_weight=weights)
    best = search.best_estimator_
    final = best[-1] if hasattr(best, "steps") else best
    rows = best[:-1].transform(X) if hasattr(best, "steps") else X
    for method in ("transform", "decision_function", "predict", "predict_proba", "score_samples"):
        assert_array_equal(getattr(search, method)(X), getattr(best, method)(X))
    assert_array_equal(search.predict_log_proba(X), best.predict_log_proba(X))
    assert_array_equal(search.log_likelihood_ratio(X), final.log_likelihood_ratio(rows))
    trials = np.arange(len(X)) // 4
    expected = final.log_likelihood_ratio(rows, trials)
    assert_array_equal(search.log_likelihood_ratio(X, trials), expected)
    assert_array_equal(search.rank(X, "likelihood"), final.rank(rows, "likelihood"))
    assert_array_equal(search.classes_, ["other", "this"])
    name = "pcsda__sample_weight" if template is NYSTROEM else "sample_weight"
    alone = setting(template or PCSDA(), search.best_params_).fit(X, names, **{name: weights})
    close(search.decision_function(X), alone.decision_function(X), 1e-10)
    if template is not None:
        assert not hasattr(template[-1] if template is NYSTROEM else template, "classes_")


def test_the_class_of_interest_may_be_the_first():
    X, y, _ = problem()
    first = PCSDACV(PCSDA(pos_label="a", random_state=0), **SMALL).fit(X, np.where(y, "a", "b"))
    last = PCSDACV(LINEAR, **SMALL).fit(X, y)
    assert_array_equal(first.cv_scores_, last.cv_scores_)
    close(first.decision_function(X), -last.decision_function(X), 1e-12)


@pytest.mark.each_value
@pytest.mark.parametrize("cv", ["leave-one-out", 3])
@pytest.mark.parametrize("wrapped", [False, True])
def test_all_labels_but_pos_label_are_negatives(cv, wrapped):
    X, y, _ = problem()
    many = np.where(y, "oak", np.array(["ash", "elm", "box"])[np.arange(len(y)) % 3])
    found, expected = (
        PCSDACV(make_pipeline(StandardScaler(), model) if wrapped else model, cv=cv, **SMALL)
        for model in (PCSDA(pos_label="oak", random_state=0), PCSDA(random_state=0))
    )
    found.fit(X, many)
    expected.fit(X, y)
    assert found.classes_.tolist() == ["not oak", "oak"]
    assert_array_equal(found.cv_scores_, expected.cv_scores_)
    assert_array_equal(found.predict_proba(X), expected.predict_proba(X))
    assert found.score(X, many) == expected.score(X, y)


@pytest.mark.parametrize("cv", ["leave-one-out", pytest.param(4, marks=pytest.mark.more)])
def test_results_have_the_form_of_scikit_learns_searches(cv):
    X, y, _ = problem()
    gammas = ("all", "positive", 0.1)
    search = PCSDACV(KERNEL, cv=cv, gamma=gammas, scoring="f1", **SMALL).fit(X, y)
    results, size = search.cv_results_, 3 * 2 * 3
    names = ["n_subclasses", "n_components", "regularization", "gamma"]
    keys = {"params", "mean_test_score", "std_test_score", "rank_test_score"}
    keys |= {f"param_{name}" for name in names}
    keys |= {f"split{k}_test_score" for k in range(4)} if cv == 4 else set()
    assert results.keys() == keys
    assert {len(column) for column in results.values()} == {size}
    for name in names:
        assert isinstance(results[f"param_{name}"], np.ma.MaskedArray)
        assert results[f"param_{name}"].tolist() == [p[name] for p in results["params"]]
    assert {*map(type, results["param_gamma"])} == {str, float}
    expected = rankdata(-results["mean_test_score"], method="min")
    assert_array_equal(results["rank_test_score"], expected)
    assert len({*expected.tolist()}) < size  # there are ties to be ranked
    assert search.best_params_ == results["params"][search.best_index_]


def settings_of(search):
    return {tuple(params.values()) for params in search.cv_results_["params"]}


def test_the_documented_grid_is_the_default():
    X, y, _ = problem(width=30, sizes=(30, 60, 60))  # K = 8 by the number of negatives
    sizes = {(1, 1), (5, 2), (5, 5), (8, 2), (8, 5), (8, 8)}
    ridges = {0.01, 0.1, auto_regularization(30, kernel=False), 1.0, 3.0}
    search = PCSDACV(LINEAR, cv="leave-one-out", gamma=None).fit(X, y)
    first = PCSDACV(LINEAR, cv="leave-one-out", n_subclasses=[8], n_components=[8]).fit(X, y)
    assert settings_of(first) == {(8, 8, ridge) for ridge in ridges}
    best = first.cv_results_["params"][first.cv_results_["mean_test_score"].argmax()]
    rest = {(*size, best["regularization"]) for size in sizes}
    assert settings_of(search) == settings_of(first) | rest
    assert len(search.cv_results_["params"]) == len(ridges) + len(sizes) - 1
    whole = PCSDACV(LINEAR, cv="leave-one-out", regularization=sorted(ridges)).fit(X, y)
    assert settings_of(whole) == {(*size, ridge) for size in sizes for ridge in ridges}
    kernel = PCSDACV(KERNEL, cv="leave-one-out", n_subclasses=[1], regularization=[0.1]).fit(X, y)
    scale = 1 / (30 * X.var())
    found = kernel.cv_results_["param_gamma"].tolist()
    assert found[:2] == ["all", "positive"]  # that of the estimator comes first
    assert_allclose(found[2:], [0.3 * scale, scale, 3 * scale])
    kernel = PCSDACV(KERNEL, cv="leave-one-out", n_subclasses=[1], gamma="all").fit(X, y)
    assert kernel.cv_results_["param_regularization"].tolist() == [0.01, 0.1, 1.0]


def test_bandwidths_share_the_clusters_of_input_space(monkeypatch):
    X, y, _ = problem(sizes=(40, 60, 60))
    counts, real = [], partition.run_kmeans

    def counted(rows, count, *rest, **options):
        counts.append(count)
        return real(rows, count, *rest, **options)

    monkeypatch.setattr(partition, "run_kmeans", counted)
    grid = {"n_subclasses": [2, 3], "gamma": [0.01, 0.1, "all"], "regularization": [0.1, 1]}
    PCSDACV(KERNEL, cv=2, **grid).fit(X, y)
    assert counts[:-1] == [2, 3, 2, 3]  # once in each fold, and at last the model


@pytest.mark.parametrize("cv", ["leave-one-out", pytest.param(3, marks=pytest.mark.more)])
def test_settings_of_both_steps_score_as_in_a_grid_of_all(cv):
    X, y, _ = problem(sizes=(40, 60, 60))
    steps = PCSDACV(LINEAR, cv=cv).fit(X, y)
    ridges = sorted({*steps.cv_results_["param_regularization"].tolist()})
    whole = PCSDACV(LINEAR, cv=cv, regularization=ridges).fit(X, y)
    places = [whole.cv_results_["params"].index(p) for p in steps.cv_results_["params"]]
    assert_allclose(steps.cv_scores_, whole.cv_scores_[places])
    assert_allclose(
        steps.cv_results_["mean_test_score"], whole.cv_results_["mean_test_score"][places]
    )


@pytest.mark.parametrize(
    ("constant", "sizes", "method"),
    [
        ("ROWS_LEFT_OUT", (60, 500, 700), "leave-one-out"),
        pytest.param("ROWS_IN_FOLDS", (25, 200, 300), "k-fold", marks=pytest.mark.more),
    ],
)
def test_a_default_search_selects_on_a_sample_and_fits_all_rows(
    monkeypatch, constant, sizes, method
):
    X, y, _ = problem(sizes=sizes)
    monkeypatch.setattr(selection, constant, (20, 400))  # fewer than there are
    search = PCSDACV(PCSDA(3, random_state=0)).fit(X, y)
    assert search.cv_method_ == method
    seen = np.isfinite(search.cv_scores_).all(axis=0)
    assert_array_equal(np.isnan(search.cv_scores_).all(axis=0), ~seen)
    assert (np.sum(seen & y), np.sum(seen & ~y)) == (20, 400)
    assert len(search.best_estimator_.partition_) == len(X)
    # The sample gives the same result on its own.
    grid = {name: [*dict.fromkeys(search.cv_results_[f"param_{name}"].tolist())] for name in GRID}
    cv = "leave-one-out" if method == "leave-one-out" else 5
    alone = PCSDACV(PCSDA(3, random_state=0), cv=cv, **grid).fit(X[seen], y[seen])
    places = [alone.cv_results_["params"].index(p) for p in search.cv_results_["params"]]
    assert_allclose(search.cv_scores_[:, seen], alone.cv_scores_[places])
    asked = PCSDACV(PCSDA(3, random_state=0), regularization=[0.1], n_components=[2]).fit(X, y)
    assert np.isfinite(asked.cv_scores_).all()


def test_a_single_value_equals_a_list_of_one():
    X, y, _ = problem()
    found = PCSDACV(KERNEL, n_subclasses=2, n_components=1, regularization=0.1, gamma="scale")
    assert found.fit(X, y).cv_results_["params"] == [
        {"n_subclasses": 2, "n_components": 1, "regularization": 0.1, "gamma": "scale"}
    ]


def test_one_ridge_and_several_at_once_score_alike():
    X, y, _ = problem()
    together = PCSDACV(LINEAR, cv="leave-one-out", **GRID).fit(X, y)
    for ridge in GRID["regularization"]:
        alone = PCSDACV(LINEAR, cv="leave-one-out", **(GRID | {"regularization": [ridge]}))
        rows = together.cv_results_["param_regularization"] == ridge
        close(alone.fit(X, y).cv_scores_, together.cv_scores_[rows])


def test_nearly_separable_groups_are_scored_at_a_tiny_ridge():
    rng = np.random.default_rng(0)
    groups = rng.permutation(np.repeat(np.arange(3), [12, 14, 13]))
    X = rng.standard_normal((3, 4))[groups] + 1e-6 * rng.standard_normal((len(groups), 4))
    template = PCSDA(calibrate=False, random_state=0)
    search = PCSDACV(template, n_subclasses=[2], regularization=[1e-12], cv="leave-one-out")
    search.fit(X, groups == 0)
    for params, scores in zip(search.cv_results_["params"], search.cv_scores_, strict=True):
        alone = setting(template, params).fit(X, groups == 0)
        close(scores, alone.loo_scores_ + np.log(12 / 27), 1e-6)


def test_single_precision_agrees():
    X, y, _ = problem()
    narrow = X.astype(np.float32)
    found = PCSDACV(LINEAR, **SMALL).fit(narrow, y)
    expected = PCSDACV(LINEAR, **SMALL).fit(narrow.astype(np.float64), y)
    assert_allclose(found.cv_scores_, expected.cv_scores_, rtol=1e-3, atol=1e-3)
    assert found.decision_function(narrow).dtype == np.float32


def test_inputs_are_not_modified_and_may_be_read_only():
    X, y, weights = problem(weighted=True)
    for array in (X, y, weights):
        array.setflags(write=False)
    for cv in ("leave-one-out", 2):
        PCSDACV(LINEAR, cv=cv, **SMALL).fit(X, y, sample_weight=weights)
        PCSDACV(KERNEL, cv=cv, gamma="all", **SMALL).fit(X, y, sample_weight=weights)


def test_a_clone_and_a_pickle_choose_and_answer_alike():
    X, y, _ = problem()
    search = PCSDACV(LINEAR, slack=0.3, scoring="eer", **SMALL).fit(X, y)
    copy = clone(search)
    assert not hasattr(copy, "best_params_")
    assert copy.fit(X, y).best_params_ == search.best_params_
    again = pickle.loads(pickle.dumps(search))
    assert_array_equal(again.decision_function(X), search.decision_function(X))
    assert_array_equal(again.cv_scores_, search.cv_scores_)


BAD = [
    (PCSDACV(SVC()), {}, "estimator=SVC cannot be tuned; use PCSDA, KernelPCSDA or a Pipeline"),
    (PCSDACV(CSDA()), {}, "estimator=CSDA cannot be tuned"),
    (
        PCSDACV(make_pipeline(StandardScaler(), KernelPCSDA())),
        {},
        "Pipeline ends in KernelPCSDA, which PCSDACV tunes only without steps before it; transform",
    ),
    (
        PCSDACV(PCSDA(covariance="resubstitution")),
        {},
        "selects by left-out scores; set covariance='leave-one-out' and balance='pooled', or use",
    ),
    (PCSDACV(PCSDA(balance="resampled")), {}, "selects by left-out scores"),
    (PCSDACV(PCSDA(shrinkage=-1)), {}, "shrinkage=-1 must be a number of at least 0"),
    (
        PCSDACV(PCSDA(subclasses="samples")),
        {},
        "subclasses='samples' takes no number of subclasses to search; use 'kmeans', or give",
    ),
    (PCSDACV(PCSDA(subclasses=KMeans(2))), {}, "takes no number of subclasses to search"),
    (PCSDACV(gamma=[0.1]), {}, "gamma needs a kernel, and PCSDA has none; use KernelPCSDA"),
    (
        PCSDACV(make_pipeline(StandardScaler(), PCSDA()), gamma=[0.1]),
        {},
        "gamma is given, but no step of the pipeline has a gamma",
    ),
    (PCSDACV(KERNEL, gamma=[]), {}, r"gamma=\[\] must be a list of bandwidths to try"),
    (PCSDACV(KERNEL, gamma=["wide"]), {}, "gamma='wide' must be one of 'positive', 'all', 'scale'"),
    (PCSDACV(KERNEL, gamma=[-1]), {}, "gamma=-1 must be a number above 0"),
    (PCSDACV(cv="loo"), {}, "cv='loo' must be one of 'auto', 'leave-one-out'"),
    (
        PCSDACV(cv=1),
        {},
        "cv=1 must be 'auto', 'leave-one-out', a whole number of at least 2, a splitter or a list",
    ),
    (PCSDACV(cv=[]), {}, r"cv=\[\] must be 'auto'"),
    (PCSDACV(cv=[1, 2]), {}, r"cv=\[1, 2\] must be 'auto'"),
    (
        PCSDACV(cv=[(np.arange(60), np.arange(60, 120)), (np.arange(60, 121), np.arange(60))]),
        {},
        "split 1 of cv does not fit 120 rows: index 120 is out of bounds .*; give row numbers",
    ),
    (
        PCSDACV(cv=[(np.arange(20, 120), np.arange(20)), (np.arange(60), np.arange(60, 120))]),
        {},
        r"cv=\[2 splits\] never leaves out 40 rows, and leaves out 0 rows more than once",
    ),
    (PCSDACV(cv=None), {}, "cv=None must be 'auto'"),
    (
        PCSDACV(cv=ShuffleSplit(2, test_size=0.5, random_state=0)),
        {},
        "never leaves out .* rows, and leaves out .* rows more than once; each row must be left "
        "out exactly once, as StratifiedKFold does",
    ),
    (PCSDACV(scoring="best"), {}, "scoring='best' must be one of 'neg_log_loss', 'average_precis"),
    (PCSDACV(slack=-0.5), {}, "slack=-0.5 must be a number of at least 0"),
    (PCSDACV(stay=-1), {}, "stay=-1 must be a number of at least 0"),
    (PCSDACV(n_subclasses=121), {}, r"n_subclasses=\[121\] must have a value of at most 90 "),
    (
        PCSDACV(n_subclasses=["auto", 2]),
        {},
        "n_subclasses='auto' is no value to try; give numbers, or n_subclasses=None, which also "
        "tries the estimator's own value",
    ),
    (
        PCSDACV(regularization=["auto"]),
        {},
        "regularization='auto' is no value to try; give numbers, or regularization=None, which",
    ),
    (PCSDACV(n_subclasses=[]), {}, r"n_subclasses=\[\] must be a list of values to try"),
    (PCSDACV(n_subclasses=[2, 0]), {}, "n_subclasses=0 must be a whole number of at least 1"),
    (PCSDACV(n_components=[1.5]), {}, "n_components=1.5 must be a whole number of at least 1"),
    (PCSDACV(n_components="all"), {}, "n_components='all' must be a list of values to try"),
    (
        PCSDACV(n_components=[9], n_subclasses=[2]),
        {},
        r"no n_components in \[9\] is at most 2 \(= min\(n_subclasses, n_features\)\); lower",
    ),
    (PCSDACV(n_components=[7]), {}, r"no n_components in \[7\] is at most 6 "),
    (PCSDACV(regularization=[-1]), {}, "regularization=-1 must be a number of at least 0"),
    (PCSDACV(KERNEL, regularization=[0.0]), {}, "too coarse for regularization=0; .* or raise reg"),
    (
        PCSDACV(),
        {"y": np.arange(120) == 7},
        "the rarer class has 1 sample; selection needs at least 2 of each, so use the estimator",
    ),
    (PCSDACV(), {"y": np.arange(120) % 3}, "y has 3 labels; fit on y == label"),
    (PCSDACV(), {"y": np.zeros(120)}, "y has one class only"),
    (PCSDACV(), {"groups": [1, 2]}, r"groups has shape \(2,\) but must have one entry for each of"),
    (
        PCSDACV(),
        {"groups": np.where(np.arange(120) < 30, 0, np.arange(120)), "y": np.arange(120) < 30},
        "leaves only one class to train on; use fewer folds, or several groups for each",
    ),
    (
        PCSDACV(scoring="eer"),
        {
            "groups": np.where(np.arange(120) < 30, np.arange(120) % 2, np.arange(120)),
            "y": np.arange(120) < 30,
        },
        "leaves out samples of one class only, and scoring='eer' compares both in every fold; use",
    ),
    (PCSDACV(), {"subclass_labels": [1]}, r"subclass_labels has shape \(1,\) but must have one"),
    (PCSDACV(), {"sample_weight": -np.ones(120)}, "weights must be at least 0"),
    (PCSDACV(), {"X": np.full((120, 6), np.nan)}, "Input X contains NaN"),
]


@pytest.mark.parametrize(("search", "changes", "message"), BAD, ids=[case[2][:40] for case in BAD])
def test_bad_input_is_refused_with_a_remedy(search, changes, message):
    X, y, _ = problem()
    with pytest.raises(ValueError, match=message):
        search.fit(**({"X": X, "y": y} | changes))


@pytest.mark.parametrize("ridges", [[0.0], [0.0, 0.1, 1.0]], ids=["one", "several"])
@pytest.mark.parametrize("width", [6, 150], ids=["D<N", "D>N"])
def test_a_singular_scatter_names_the_ridge(width, ridges):
    X, y, _ = problem(width)
    X = np.column_stack([X, X[:, 0]])
    search = PCSDACV(LINEAR, n_subclasses=[2], regularization=ridges, cv="leave-one-out")
    with pytest.raises(
        ValueError, match=f"scatter of {width + 1} dimensions is singular at regula"
    ):
        search.fit(X, y)


def test_an_unfitted_search_says_so():
    with pytest.raises(ValueError, match="is not fitted yet"):
        PCSDACV().predict([[1.0]])


def repeated_rows_differ_by_nature(estimator):
    reason = (
        "left-out scores differ: copies of a repeated row stay in the model, but a row of weight "
        "two leaves as a whole; and k-means draws other starts"
    )
    return {"check_sample_weight_equivalence_on_dense_data": reason}


@lean(
    parametrize_with_checks(
        [PCSDACV(LINEAR, n_subclasses=1, n_components=[1], regularization=(0.01, 0.1), cv=2)],
        expected_failed_checks=repeated_rows_differ_by_nature,
    )
)
def test_scikit_learn_checks_pass(estimator, check):
    check(estimator)


@pytest.mark.more
@parametrize_with_checks(
    [
        PCSDACV(
            PCSDA(random_state=0), n_subclasses=(1, 2), n_components=[1], regularization=(0.01, 0.1)
        )
    ],
    expected_failed_checks=repeated_rows_differ_by_nature,
)
def test_scikit_learn_checks_pass_with_other_parameters(estimator, check):
    check(estimator)


def losses_of_all_settings(search, X, y, n_train):
    """Return the test log-loss of every setting of a search that was fitted on the first rows."""
    cells = [Cell(**params) for params in search.cv_results_["params"]]
    data = Data(X, y, y == 1, None, None, 1)
    split = [(np.arange(n_train), np.arange(n_train, len(X)))]
    scores = np.empty((len(cells), len(X) - n_train))
    with Parallel(1) as parallel:
        work = left_out_scores(search.estimator, data, cells, split, parallel)
        for chosen, _, values in work:
            scores[chosen] = values
    return log_loss_of(y[n_train:] == 1, scores).mean(axis=1)


@pytest.mark.more  # a matter of quality, on large samples
@pytest.mark.parametrize("n_seeds", [10])
def test_the_choice_is_close_to_the_best_of_the_grid_on_planted_data(n_seeds):
    # The documented grid without K = 20, two ridges and d above 8, for time.
    grid = {
        "n_subclasses": (1, 5, 10, 15),
        "n_components": range(1, 9),
        "regularization": (0.01, 0.1, 1.0),
    }
    ratios = []
    for seed in range(n_seeds):
        data = make_class_specific(9000, random_state=seed)
        search = PCSDACV(LINEAR, **grid).fit(data.data[:5000], data.target[:5000])
        assert search.cv_method_ == "leave-one-out"
        losses = losses_of_all_settings(search, data.data, data.target, 5000)
        own = log_loss_of(data.target[5000:] == 1, search.decision_function(data.data[5000:]))
        assert_allclose(losses[search.best_index_], own.mean(), rtol=1e-7)
        ratios.append(losses[search.best_index_] / losses.min())
    assert np.mean(np.array(ratios) <= 1.1) >= 0.9, ratios


@pytest.mark.parametrize("estimator", [LINEAR, make_pipeline(StandardScaler(), LINEAR)])
def test_column_names_reach_the_chosen_model(estimator):
    pd = pytest.importorskip("pandas")
    X, groups, _ = make_rows([30, 40, 50], 4)
    frame = pd.DataFrame(X, columns=list("abcd"))
    params = {"n_subclasses": 2, "n_components": 1, "regularization": 0.1}
    search = PCSDACV(estimator, **params).fit(frame, groups == 0)
    assert list(search.best_estimator_.feature_names_in_) == list("abcd")
    bare = PCSDACV(estimator, **params).fit(X, groups == 0)
    # Warnings are errors: names are neither missed nor unexpected.
    assert_allclose(search.decision_function(frame), bare.decision_function(X))
    assert_allclose(search.log_likelihood_ratio(frame), bare.log_likelihood_ratio(X))
    with pytest.raises(ValueError, match="in the same order as they were in fit"):
        search.predict(frame[list("badc")])


class Watched(PCSDA):
    """PCSDA that records the number of BLAS threads during its fit."""

    def fit(self, X, y, **rest):
        pools = threadpool_info()
        self.threads_ = {one["num_threads"] for one in pools if one["user_api"] == "blas"}
        return super().fit(X, y, **rest)


@pytest.mark.parametrize(("light", "threads"), [(120, {1}), (119, {2})])
@pytest.mark.more
def test_a_light_final_fit_uses_one_thread_like_the_search(monkeypatch, light, threads):
    X, y, _ = problem()
    assert X.shape == (120, 6)
    monkeypatch.setattr(selection, "LIGHT_LAST", light)
    with threadpool_limits(2, user_api="blas"):
        found = PCSDACV(Watched(n_subclasses=2, random_state=0), regularization=0.1).fit(X, y)
    assert found.best_estimator_.threads_ == threads
