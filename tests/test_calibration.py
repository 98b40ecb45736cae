"""Calibration against a general optimiser, folds against refits by hand, costs against a grid."""

import re
from types import SimpleNamespace

import numpy as np
import pytest
from factories import make_rows
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize
from scipy.special import expit
from scipy.stats import norm
from sklearn.model_selection import StratifiedKFold

from pcsda.calibration import (
    FOLDS,
    Calibration,
    bayes_threshold,
    fit_calibration,
    fold_scores,
)
from pcsda.core import model
from pcsda.core.density import Rule
from pcsda.core.logistic import OFFSET_SPREAD

WEIGHTED = pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])


def overlapping(n_positive=40, n_negative=90, distance=1.5, seed=0):
    rng = np.random.default_rng(seed)
    positive = rng.permutation(np.arange(n_positive + n_negative) < n_positive)
    return rng.standard_normal(len(positive)) + distance * positive, positive


def penalised_loss(slope, offset, scores, positive, weights):
    """Cross-entropy of the posterior log odds, with the prior that nothing needs calibration."""
    odds = slope * scores + offset + log_odds(positive, weights)
    fit = weights @ np.logaddexp(0, np.where(positive, -odds, odds))
    return fit + slope - np.log(slope) + (offset / OFFSET_SPREAD) ** 2 / 2


def log_odds(positive, weights=None):
    weights = np.ones(len(positive)) if weights is None else weights
    return np.log(weights[positive].sum() / weights[~positive].sum())


@WEIGHTED
@pytest.mark.parametrize("distance", [0.3, 1.5, 4.0])
def test_calibration_minimises_the_penalised_cross_entropy(weighted, distance):
    scores, positive = overlapping(distance=distance)
    weights = np.random.default_rng(1).uniform(0.2, 3, len(scores)) if weighted else None
    w = np.ones(len(scores)) if weights is None else weights
    best = minimize(
        lambda point: penalised_loss(np.exp(point[0]), point[1], scores, positive, w),
        [0.0, 0.0],
        method="Nelder-Mead",
        options={"xatol": 1e-9, "fatol": 1e-13, "maxiter": 2000},
    )
    found = fit_calibration(scores, positive, weights)
    assert found.slope > 0
    assert_allclose([np.log(found.slope), found.offset], best.x, rtol=1e-6, atol=1e-6)
    assert_allclose(found(scores), found.slope * scores + found.offset)


@given(
    st.lists(st.floats(-30, 30) | st.floats(-1e5, 1e5), min_size=2, max_size=25),
    st.data(),
)
def test_the_gradient_vanishes(scores, data):
    scores = np.array(scores)
    size = len(scores)
    positive = np.array(data.draw(st.lists(st.booleans(), min_size=size, max_size=size)))
    assume(positive.any() and not positive.all())
    found = fit_calibration(scores, positive)
    assert np.isfinite([found.slope, found.offset]).all()
    assert found.slope > 0
    error = expit(found(scores) + log_odds(positive)) - positive
    pull = 1 - 1 / found.slope, found.offset / OFFSET_SPREAD**2
    assert abs(error.sum() + pull[1]) < 1e-5
    along = error @ (scores - scores.mean()) + pull[0] - pull[1] * scores.mean()
    assert abs(along) * found.slope < 1e-5


def test_one_very_clear_negative_does_not_flatten_the_slope():
    scores, positive = overlapping(distance=2.0)
    far = fit_calibration(np.append(scores, -1e7), np.append(positive, False))
    near = fit_calibration(np.append(scores, -10.0), np.append(positive, False))
    assert_allclose(far.slope, near.slope, rtol=0.05)


def test_scores_against_the_labels_keep_only_their_order():
    scores, positive = overlapping()
    found = fit_calibration(-scores, positive)
    assert 0 < found.slope * scores.std() < 0.1
    assert_allclose(found(-scores), 0.0, atol=0.2)


def test_equal_scores_say_little():
    positive = np.arange(300) < 100
    found = fit_calibration(np.full(300, 7.0), positive)
    assert_allclose(found(np.full(300, 7.0)), 0.0, atol=0.01)


@pytest.mark.parametrize("gap", [1e-9, 1.0, 1e6])
@pytest.mark.parametrize("sizes", [(1, 1), (1, 50), (50, 1), (20, 30)])
def test_separable_scores_keep_a_finite_slope_and_are_told_apart(gap, sizes):
    positive = np.arange(sum(sizes)) < sizes[0]
    scores = np.where(positive, gap, -gap)
    found = fit_calibration(scores, positive)
    # The prior asks for one nat a unit of slope; all rows together have ln 2 each to give.
    assert 0 < found.slope < 4 + 2 * sum(sizes) * np.log(2)
    assert found(scores)[0] > found(scores)[-1]


def test_whole_weights_equal_repetition():
    scores, positive = overlapping()
    weights = np.random.default_rng(1).integers(1, 5, len(scores))
    weighted = fit_calibration(scores, positive, weights.astype(float))
    repeated = fit_calibration(np.repeat(scores, weights), np.repeat(positive, weights))
    assert_allclose(weighted.slope, repeated.slope, rtol=1e-9)
    assert_allclose(weighted.offset, repeated.offset, rtol=1e-9)


def test_rows_of_weight_zero_do_not_count():
    scores, positive = overlapping()
    weights = (np.arange(len(scores)) % 3 > 0).astype(float)
    kept = weights > 0
    weighted = fit_calibration(scores, positive, weights)
    fewer = fit_calibration(scores[kept], positive[kept])
    assert_allclose(weighted.slope, fewer.slope, rtol=1e-9)
    assert_allclose(weighted.offset, fewer.offset, rtol=1e-9)


@pytest.mark.parametrize(("scale", "origin"), [(0.1, 0.0), (1.0, 5.0), (30.0, -7.0)])
def test_with_many_rows_calibrated_scores_do_not_depend_on_scale_and_origin(scale, origin):
    scores, positive = overlapping(3000, 7000)
    plain = fit_calibration(scores, positive)(scores)
    moved = scale * scores + origin
    assert_allclose(fit_calibration(moved, positive)(moved), plain, rtol=0.05, atol=0.05)


def test_calibration_recovers_a_true_log_likelihood_ratio():
    scores, positive = overlapping(20000, 60000, distance=2.0)
    found = fit_calibration(5 * scores - 3, positive)
    truth = norm.logpdf(scores, 2) - norm.logpdf(scores, 0)
    assert np.abs(found(5 * scores - 3) - truth).max() < 0.3
    assert_allclose(found.slope * 5, 2.0, rtol=0.03)


def test_the_default_map_changes_nothing():
    scores = np.array([-3.0, 0.0, 7.5])
    assert_array_equal(Calibration()(scores), scores)


@WEIGHTED
def test_fold_scores_equal_refits_by_hand_with_the_groups_held(weighted):
    X, groups, weights = make_rows([12, 9, 2, 10], 4, weighted=weighted)

    def learn(X, groups, weights):
        return model.fit_pcsda(
            X,
            groups,
            weights=weights,
            solver="cholesky",
            regularization=0.01,
            n_components=None,
            rule=Rule(),
            leave_one_out=False,
        )

    scores = fold_scores(learn, X, groups, weights, seed=4)
    folds = StratifiedKFold(5, shuffle=True, random_state=4).split(X, groups == 0)
    expected = np.empty(len(X))
    for train, test in folds:
        kept = sorted(set(groups[train]))
        renumbered = np.array([kept.index(g) for g in groups[train]])
        w = None if weights is None else weights[train]
        expected[test] = learn(X[train], renumbered, w).score(X[test])
    assert_allclose(scores, expected, rtol=1e-10)


class Recorder:
    """Learns nothing, and remembers what it was shown."""

    def __init__(self, fail=()):
        self.shown, self.fail = [], fail

    def __call__(self, X, groups, weights):
        self.shown.append((X, groups, weights))
        if len(self.shown) in self.fail:
            raise ValueError("too few rows")
        return SimpleNamespace(score=lambda rows: rows[:, 0])


def test_every_row_is_scored_once_by_a_model_that_has_not_seen_it():
    X = np.arange(40.0).reshape(-1, 1)
    groups = np.arange(40) % 4
    learn = Recorder()
    assert_array_equal(fold_scores(learn, X, groups, X.ravel() + 1, seed=0), X.ravel())
    assert len(learn.shown) == FOLDS
    held_back = [np.setdiff1d(X, shown) for shown, _, _ in learn.shown]
    assert_array_equal(np.sort(np.concatenate(held_back)), X.ravel())
    for shown, labels, weights in learn.shown:
        assert_array_equal(labels, groups[shown.ravel().astype(int)])
        assert_array_equal(weights, shown.ravel() + 1)
        assert np.sum(labels == 0) == 8  # both classes keep their share


def test_a_subclass_that_is_missing_from_a_fold_leaves_no_hole():
    X = np.arange(30.0).reshape(-1, 1)
    groups = np.where(np.arange(30) < 10, 0, np.where(np.arange(30) == 29, 1, 2))
    learn = Recorder()
    fold_scores(learn, X, groups, None, seed=0)
    assert sorted(labels.max() for _, labels, _ in learn.shown) == [1, 2, 2, 2, 2]


def test_folds_are_seeded():
    X = np.arange(40.0).reshape(-1, 1)
    first, again, other = Recorder(), Recorder(), Recorder()
    for learn, seed in ((first, 1), (again, 1), (other, 2)):
        fold_scores(learn, X, np.arange(40) % 4, None, seed=seed)
    assert_array_equal(first.shown[0][0], again.shown[0][0])
    assert np.any(first.shown[0][0] != other.shown[0][0])


def test_a_fold_that_cannot_be_fitted_warns_and_leaves_its_rows_without_a_score():
    X = np.arange(40.0).reshape(-1, 1)
    learn = Recorder(fail=(2,))
    message = "a calibration fold could not be fitted: too few rows"
    with pytest.warns(UserWarning, match=message):
        scores = fold_scores(learn, X, np.arange(40) % 4, None, seed=0)
    missing = np.setdiff1d(X, learn.shown[1][0])
    assert_array_equal(X.ravel()[np.isnan(scores)], missing)


@pytest.mark.parametrize(("n_positive", "n_negative", "folds"), [(1, 9, 0), (9, 1, 0), (2, 9, 2)])
def test_small_classes_have_fewer_folds_or_none(n_positive, n_negative, folds):
    groups = np.repeat([0, 1], [n_positive, n_negative])
    learn = Recorder()
    scores = fold_scores(learn, np.ones((len(groups), 1)), groups, None, seed=0)
    assert len(learn.shown) == folds
    assert np.all(np.isnan(scores)) == (folds == 0)


@pytest.mark.parametrize(
    ("prior", "cost_miss", "cost_false_alarm"),
    [(0.5, 1.0, 1.0), (0.01, 1.0, 10.0), (0.3, 7.0, 2.0), (0.9, 1.0, 1.0)],
)
def test_bayes_threshold_minimises_the_expected_cost(prior, cost_miss, cost_false_alarm):
    # Scores that are log-likelihood ratios of two unit Gaussians at distance 2: N(2, 4), N(-2, 4).
    grid = np.linspace(-12, 12, 24001)
    miss, false_alarm = norm.cdf(grid, 2, 2), norm.sf(grid, -2, 2)
    cost = prior * cost_miss * miss + (1 - prior) * cost_false_alarm * false_alarm
    threshold = bayes_threshold(prior, cost_miss=cost_miss, cost_false_alarm=cost_false_alarm)
    assert_allclose(threshold, grid[cost.argmin()], atol=2e-3)


@pytest.mark.parametrize("prior", [0.0, 1.0, -0.1, 2, np.nan])
def test_a_prior_outside_its_range_is_refused(prior):
    message = f"prior={prior} must lie between 0 and 1, both excluded"
    with pytest.raises(ValueError, match=re.escape(message)):
        bayes_threshold(prior)


@pytest.mark.parametrize("name", ["cost_miss", "cost_false_alarm"])
@pytest.mark.parametrize("cost", [0.0, -1.0, np.inf, np.nan])
def test_a_cost_that_is_no_positive_number_is_refused(name, cost):
    with pytest.raises(ValueError, match=re.escape(f"{name}={cost} must be a positive number")):
        bayes_threshold(0.5, **{name: cost})
