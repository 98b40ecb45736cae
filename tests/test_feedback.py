"""Laws of `partial_fit`: batches give the model of `fit`, left-out rows included."""

import pickle
import re

import numpy as np
import pytest
from factories import labelled as problem
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from pcsda import CSDA, PCSDA, load, save
from pcsda.datasets import make_class_specific
from pcsda.metrics import cllr
from pcsda.persistence import describe

SIZES = [30, 25, 40, 20]
TALL_AND_WIDE = pytest.mark.parametrize("width", [6, 150], ids=["tall", "wide"])
LEFT_OUT = [
    PCSDA(random_state=0),
    PCSDA(n_components=2, negatives="mixture", random_state=0),
    PCSDA(negatives="marginal", tails="gaussian", pos_label=0, random_state=0),
    PCSDA(calibrate=False, solver="eigen", regularization=0.1, random_state=0),
]
FOLDED = [
    PCSDA(covariance="resubstitution", random_state=0),
    PCSDA(solver="lsqr", random_state=0),
    CSDA(2, random_state=0),
    CSDA(2, solver="trace_ratio", random_state=0),
]


def over(estimators):
    return pytest.mark.parametrize("estimator", estimators, ids=str)


def known(model, groups):
    """Return subclass labels, which CSDA does not take."""
    return {"subclass_labels": groups} if isinstance(model, PCSDA) else {}


def stream(estimator, X, y, groups, parts, weights=None):
    model = clone(estimator)
    for part in parts:
        own = {} if groups is None else known(model, groups[part])
        weight = None if weights is None else weights[part]
        model.partial_fit(X[part], y[part], classes=[0, 1], sample_weight=weight, **own)
    return model


def cuts(n_rows, n_batches, seed=0):
    """Return uneven batches that keep the row order."""
    rng = np.random.default_rng(seed)
    edges = np.sort(rng.choice(np.arange(1, n_rows), n_batches - 1, replace=False))
    return np.split(np.arange(n_rows), edges)


def assert_same(found, expected, X, tolerance=1e-8):
    """Check that two models agree in all results, including left-out scores."""
    close = {"rtol": tolerance, "atol": tolerance}
    assert_array_equal(found.partition_, expected.partition_)
    assert hasattr(found, "loo_scores_") == hasattr(expected, "loo_scores_")
    if hasattr(expected, "loo_scores_"):
        assert_allclose(found.loo_scores_, expected.loo_scores_, **close)
    assert_allclose(found.regularization_, expected.regularization_, rtol=1e-12)
    assert_allclose(found.subclass_means_, expected.subclass_means_, **close)
    assert_allclose(found.calibration_.offset, expected.calibration_.offset, **close)
    for method in ("transform", "log_likelihood_ratio", "decision_function"):
        assert_allclose(getattr(found, method)(X), getattr(expected, method)(X), **close)


# --- the law -------------------------------------------------------------------------------------


@pytest.mark.in_turn
@TALL_AND_WIDE
@over([*LEFT_OUT, *FOLDED])
def test_a_first_batch_equals_fit(estimator, width):
    X, y, groups = problem(width)
    for given in ({}, known(estimator, groups)):
        whole = clone(estimator).fit(X, y, **given)
        assert_same(clone(estimator).partial_fit(X, y, **given), whole, X, 1e-12)


@pytest.mark.parametrize("seed", [3, np.random.RandomState(3)], ids=["number", "state"])
def test_a_first_batch_samples_like_fit(seed):
    X, y, _ = problem()
    model = PCSDA(3, calibration_rows=20, random_state=seed)
    whole = pickle.loads(pickle.dumps(model)).fit(X, y)
    model.partial_fit(X, y)
    kept = model.sample_.numbers
    assert_array_equal(kept, np.flatnonzero(np.isfinite(whole.loo_scores_)))
    assert_array_equal(model.partition_, whole.partition_[kept])
    assert_allclose(model.loo_scores_, whole.loo_scores_[kept], rtol=1e-12)
    assert_allclose(model.decision_function(X), whole.decision_function(X), rtol=1e-12)


@pytest.mark.each_value
@TALL_AND_WIDE
@over([*LEFT_OUT, *FOLDED])
@pytest.mark.parametrize("n_batches", [2, 7, pytest.param(40, marks=pytest.mark.more)])
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_any_split_into_batches_equals_fit(estimator, width, n_batches, weighted):
    X, y, groups = problem(width)
    order = np.random.default_rng(1).permutation(len(X))
    X, y, groups = X[order], y[order], groups[order]
    weights = np.random.default_rng(1).uniform(0.5, 2, len(X)) if weighted else None
    found = stream(estimator, X, y, groups, cuts(len(X), n_batches), weights)
    whole = clone(estimator).fit(X, y, sample_weight=weights, **known(estimator, groups))
    assert_same(found, whole, X)
    assert_allclose(found.scatter_.counts[1:], whole.subclass_counts_)


@pytest.mark.parametrize("names", [[7, 3, 5], ["c", "a", "b"]], ids=["numbers", "texts"])
def test_subclasses_are_numbered_as_in_fit_in_any_order_of_arrival(names):
    X, y, groups = problem()
    labels = np.array([names[0], *names])[groups]
    parts = [np.flatnonzero(groups <= 1), *(np.flatnonzero(groups == g) for g in (3, 2))]
    order = np.concatenate(parts)
    found = stream(PCSDA(random_state=0), X, y, labels, parts)
    whole = PCSDA(random_state=0).fit(X[order], y[order], subclass_labels=labels[order])
    assert_same(found, whole, X)
    assert_allclose(found.scatter_.means[1:], whole.subclass_means_, rtol=1e-8, atol=1e-8)


@TALL_AND_WIDE
def test_float32_batches_equal_fit_to_their_precision(width):
    X, y, groups = problem(width)
    X = X.astype(np.float32)
    found = stream(PCSDA(random_state=0), X, y, groups, cuts(len(X), 5))
    whole = PCSDA(random_state=0).fit(X, y, subclass_labels=groups)
    assert found.components_.dtype == np.float32
    assert found.sample_.X.dtype == np.float32
    assert_same(found, whole, X, 1e-4)


def test_later_negatives_join_the_nearest_subclass_and_the_law_holds():
    X, y, _ = problem(sizes=[30, 60, 60, 60], spread=3.0)
    order = np.random.default_rng(1).permutation(len(X))
    X, y = X[order], y[order]
    first, *later = cuts(len(X), 6, seed=3)
    model = PCSDA(3, random_state=0).partial_fit(X[first], y[first], classes=[0, 1])
    centroids = model.subclass_means_.copy()
    for part in later:
        model.partial_fit(X[part], y[part])
    assert_same(model, PCSDA(random_state=0).fit(X, y, subclass_labels=model.partition_), X)
    joined = np.flatnonzero((y == 0) & (np.arange(len(X)) > first[-1]))
    nearest = np.linalg.norm(X[joined, None] - centroids, axis=2).argmin(axis=1)
    assert_array_equal(model.partition_[joined], nearest + 1)


def test_negatives_waiting_for_k_means_keep_their_order():
    X, y, _ = problem()
    order = np.concatenate([np.flatnonzero(y == 0)[:4], np.flatnonzero(y == 1)[:3]])
    order = np.append(order, np.setdiff1d(np.arange(len(X)), order))
    X, y = X[order], y[order]
    parts = [np.arange(2), np.arange(2, 7), np.arange(7, len(X))]
    model = stream(PCSDA(6, random_state=0), X, y, None, parts)
    assert_array_equal(model.sample_.numbers, np.arange(len(X)))
    assert_array_equal(model.partition_ == 0, y == 1)
    assert_same(model, PCSDA(random_state=0).fit(X, y, subclass_labels=model.partition_), X)


def test_early_batches_are_collected_with_their_rows():
    X, y, groups = problem()
    parts = [np.flatnonzero(groups == g) for g in (2, 0, 1, 3)]
    order = np.concatenate(parts)
    model = stream(PCSDA(n_components=3, random_state=0), X, y, groups, parts[:3])
    assert not hasattr(model, "density_")
    model.partial_fit(X[parts[3]], y[parts[3]], subclass_labels=groups[parts[3]])
    whole = PCSDA(n_components=3, random_state=0)
    assert_same(model, whole.fit(X[order], y[order], subclass_labels=groups[order]), X)


def test_zero_weight_rows_are_not_kept():
    X, y, groups = problem()
    weights = np.random.default_rng(0).integers(0, 3, len(X)).astype(float)
    seen = weights > 0
    model = stream(PCSDA(random_state=0), X, y, groups, cuts(len(X), 4), weights)
    whole = PCSDA(random_state=0).fit(
        X[seen], y[seen], subclass_labels=groups[seen], sample_weight=weights[seen]
    )
    assert_same(model, whole, X)
    assert_array_equal(model.sample_.numbers, np.flatnonzero(seen))
    assert model.n_samples_seen_ == len(X)


def test_the_automatic_ridge_follows_the_number_of_positives():
    X, y, groups = problem()
    model, ridges = PCSDA(random_state=0), []
    few = np.flatnonzero(groups == 0)[10:]
    for part in (np.setdiff1d(np.arange(len(X)), few), few):
        model.partial_fit(X[part], y[part], subclass_labels=groups[part])
        ridges.append(model.regularization_)
    assert ridges == [3 / np.sqrt(10), 3 / np.sqrt(30)]


# --- fewer rows than came ------------------------------------------------------------------------


def big(n_rows=6000, seed=0):
    data = make_class_specific(n_rows + 4000, positive_fraction=0.3, random_state=seed)
    return data.data, data.target, data.subclass_labels, slice(n_rows, None)


@over(
    [
        PCSDA(calibration_rows=300, random_state=0),
        PCSDA(calibration_rows=300, covariance="resubstitution", random_state=0),
        CSDA(2, random_state=0),
    ]
)
def test_beyond_the_sample_axes_are_exact_and_the_calibration_is_close(estimator, monkeypatch):
    monkeypatch.setattr("pcsda.estimators.stream.CALIBRATION_ROWS", 300)
    X, y, groups, fresh = big()
    n_rows = fresh.start
    found = stream(estimator, X, y, groups, np.split(np.arange(n_rows), 8))
    whole = clone(estimator)
    if isinstance(whole, PCSDA):
        whole.set_params(calibration_rows=None)
    whole.fit(X[:n_rows], y[:n_rows], **known(whole, groups[:n_rows]))
    assert_allclose(found.components_, whole.components_, rtol=1e-7, atol=1e-9)
    assert_allclose(found.transform(X), whole.transform(X), rtol=1e-7, atol=1e-7)
    assert_allclose(found.subclass_counts_, whole.subclass_counts_)
    assert_array_equal(found.class_prior_, whole.class_prior_)
    costs = [cllr(y[fresh], model.log_likelihood_ratio(X[fresh])) for model in (found, whole)]
    assert costs[0] < costs[1] + 0.01
    assert_array_equal(found.regularization_, whole.regularization_)


@pytest.mark.more
def test_a_streams_sample_is_as_good_as_a_fits():
    X, y, groups, fresh = big()
    rows = np.arange(fresh.start)
    costs = []
    for seed in range(5):
        model = PCSDA(calibration_rows=300, random_state=seed)
        found = stream(model, X, y, groups, np.split(rows, 8))
        whole = clone(model).fit(X[rows], y[rows], subclass_labels=groups[rows])
        both = (each.log_likelihood_ratio(X[fresh]) for each in (found, whole))
        costs.append([cllr(y[fresh], ratios) for ratios in both])
    found, whole = np.mean(costs, axis=0)
    assert abs(found - whole) < 0.005


def test_the_sample_is_bounded_and_its_rows_are_weighted():
    X, y, groups, fresh = big()
    n_rows = fresh.start
    model = PCSDA(calibration_rows=200, random_state=0)
    sizes = []
    for part in np.split(np.arange(n_rows), 12):
        model.partial_fit(X[part], y[part], classes=[0, 1], subclass_labels=groups[part])
        sizes.append([np.sum(model.partition_ == 0), np.sum(model.partition_ > 0)])
        assert len(model.partition_) == len(model.loo_scores_) == len(model.sample_.X)
        assert_array_equal(model.sample_.X, X[model.sample_.numbers])
        assert_array_equal(model.partition_, model.sample_.groups)
        assert np.isfinite(model.loo_scores_).all()
    n_subclasses = len(model.subclass_counts_)
    assert np.max(sizes) <= 200 + n_subclasses
    assert np.min(sizes[2:]) >= 200 - n_subclasses
    counts = model.scatter_.counts
    shares = np.bincount(model.partition_, model.sample_.stands_for(counts))
    assert_allclose(shares, counts)
    kept = np.bincount(model.partition_)[1:] / counts[1:]
    assert kept.max() < 1.2 * kept.min()


@pytest.mark.more  # many draws
def test_every_row_has_the_same_chance_to_stay():
    X, y, groups = problem(sizes=[60, 90, 90])
    parts = np.array_split(np.random.default_rng(0).permutation(len(X)), 3)
    order = np.concatenate(parts)
    times = np.zeros(len(X))
    rounds = 100
    for seed in range(rounds):
        model = PCSDA(calibration_rows=20, calibrate=False, random_state=seed)
        times[stream(model, X, y, groups, parts).sample_.numbers] += 1
    for group in range(3):
        own = times[groups[order] == group]
        chance = own.mean() / rounds
        spread = np.sqrt(rounds * chance * (1 - chance))
        assert np.abs(own - own.mean()).max() < 4.5 * spread
        halves = own[: len(own) // 2].mean(), own[len(own) // 2 :].mean()
        assert abs(halves[0] - halves[1]) < 5 * spread / np.sqrt(len(own) / 4)


def test_the_sample_may_shrink_and_grow_during_the_stream():
    X, y, groups, fresh = big(3000)
    model = PCSDA(calibration_rows=100, random_state=0)
    sizes = []
    for size, part in zip((100, 50, 400), np.split(np.arange(3000), 3), strict=True):
        model.set_params(calibration_rows=size)
        model.partial_fit(X[part], y[part], subclass_labels=groups[part])
        sizes.append(int(np.sum(model.partition_ > 0)))
    assert sizes[1] < 60
    assert sizes[1] < sizes[2] < 400  # what was dropped does not come back
    assert np.isfinite(model.decision_function(X[fresh])).all()


# --- what is kept --------------------------------------------------------------------------------


@pytest.mark.parametrize("n_positive", [40, 400])
@pytest.mark.more
def test_many_rows_of_one_class_are_bounded_before_the_other_comes(n_positive):
    X, y, groups, _ = big(2000)
    own, others = np.flatnonzero(y == 1)[:n_positive], np.flatnonzero(y == 0)[:300]
    order, costs = np.append(own, others), []
    for seed in range(6):
        model = PCSDA(calibration_rows=50, random_state=seed)
        model.partial_fit(X[own], y[own], classes=[0, 1])
        assert len(model.sample_.X) == min(n_positive, 50)
        model.partial_fit(X[others], y[others], subclass_labels=groups[others])
        whole = clone(model).fit(X[order], y[order], subclass_labels=groups[order])
        assert_allclose(model.transform(X), whole.transform(X), rtol=1e-7, atol=1e-7)
        costs.append([cllr(y, each.log_likelihood_ratio(X)) for each in (model, whole)])
    found, whole = np.mean(costs, axis=0)
    assert found < whole + 0.02


@over([PCSDA.published(), PCSDA(covariance="resubstitution", calibrate=False), CSDA.published(2)])
def test_a_rule_that_leaves_nothing_out_keeps_no_rows(estimator):
    X, y, groups = problem()
    model = stream(estimator, X, y, groups, cuts(len(X), 3))
    assert not hasattr(model, "sample_")
    assert not hasattr(model, "partition_")
    assert not hasattr(model, "loo_scores_")
    message = (
        "the batches so far were merged without keeping rows, so covariances are resubstituted and "
        "scores are not calibrated; start again on sklearn.base.clone(model), or recalibrate on "
        "held-out rows"
    )
    model.set_params(calibrate=True)
    with pytest.warns(UserWarning, match=f"^{re.escape(message)}$"):
        model.partial_fit(X, y, **known(model, groups))
    assert model.calibration_.offset == 0


def test_a_refused_batch_changes_nothing():
    X, y, groups = problem()
    model = PCSDA(random_state=0).partial_fit(X[:60], y[:60], subclass_labels=groups[:60])
    before = dict(vars(model))
    with pytest.raises(ValueError, match="the squares of X overflow"):
        model.partial_fit(X[:3] * 1e200, y[:3], subclass_labels=["new"] * 3)
    with pytest.raises(ValueError, match="subclass_labels must be given in every call"):
        model.partial_fit(X[60:], y[60:])
    with pytest.raises(ValueError, match="n_components=9 must be at most 6"):
        model.set_params(n_components=9).partial_fit(X[60:], y[60:], subclass_labels=groups[60:])
    model.set_params(n_components=None)
    assert vars(model).keys() == before.keys()
    assert all(value is before[name] for name, value in vars(model).items())


def test_the_model_owns_its_rows():
    X, y, groups = problem()
    model = PCSDA(random_state=0).partial_fit(X, y, subclass_labels=groups)
    expected = clone(model).partial_fit(X.copy(), y, subclass_labels=groups)
    more = X.copy()
    X[:] = 0
    for each in (model, expected):
        each.partial_fit(more[:20], y[:20], subclass_labels=groups[:20])
    assert_array_equal(model.decision_function(more), expected.decision_function(more))


@pytest.mark.parametrize("calibration_rows", [5000, 15])
def test_a_saved_stream_resumes_and_its_file_declares_its_rows(tmp_path, calibration_rows):
    X, y, groups = problem()
    estimator = PCSDA(calibration_rows=calibration_rows, random_state=0)
    parts = cuts(len(X), 4, seed=2)
    whole = stream(estimator, X, y, groups, parts)
    half = stream(estimator, X, y, groups, parts[:2])
    save(half, tmp_path / "m")
    assert describe(tmp_path / "m")["rows_held"] == len(half.sample_.X)
    for copy in (load(tmp_path / "m"), pickle.loads(pickle.dumps(half))):
        for part in parts[2:]:
            copy.partial_fit(X[part], y[part], subclass_labels=groups[part])
        assert_same(copy, whole, X, 1e-12)
        assert_array_equal(copy.sample_.X, whole.sample_.X)
    save(clone(estimator).fit(X, y), tmp_path / "m")
    assert describe(tmp_path / "m")["rows_held"] == 0
