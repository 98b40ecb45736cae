"""Calibration maps views to a ratio; test_logistic tests the regression that fits it."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm

from pcsda.core.calibration import Calibration, fit_calibration
from pcsda.core.logistic import fit_logistic


def overlapping(n_positive=40, n_negative=90, distance=1.5, seed=0):
    """Return one view of samples from both classes."""
    rng = np.random.default_rng(seed)
    positive = rng.permutation(np.arange(n_positive + n_negative) < n_positive)
    return (rng.standard_normal(len(positive)) + distance * positive)[None], positive


@pytest.mark.parametrize("shape", [(2, 7), (2, 7, 3), (2,)])
def test_views_are_weighted_along_their_first_axis(shape):
    views = np.random.default_rng(0).standard_normal(shape)
    found = Calibration((0.7, 0.2), -1.5)(views)
    assert_allclose(found, 0.7 * views[0] + 0.2 * views[1] - 1.5)
    assert found.shape == shape[1:]


def test_a_bent_ratio_grows_logarithmically_far_below_the_top():
    found = Calibration((2.0,), -1.0, bend=3.0, top=5.0)
    views = np.array([[7.0, 3.0, 3 - 1e-6, -1e6]])
    ratio = 2 * views[0] - 1
    assert_allclose(found(views)[:3], ratio[:3], atol=1e-9)
    assert_allclose(found(views)[3], 5 - 3 * np.log1p((5 - ratio[3]) / 3))
    line = np.linspace(-50, 10, 100)[None]
    assert np.all(np.diff(found(line)) > 0)
    assert_allclose(found(line[:, :1])[0], found(line)[0])
    # A calibration followed by another stays bent.
    assert_allclose(found.then(3.0, 0.25)(line), 3 * found(line) + 0.25)
    assert_allclose(found.of_unit_slope()(line), (found(line) + 1) / 2)
    plain = Calibration((2.0,), -1.0)
    assert found.straight() == plain
    assert_allclose(found.straightened(found(line)), plain(line))
    assert_array_equal(plain.straightened(line), line)


def test_a_calibration_is_bent_at_both_ends():
    found = Calibration((2.0,), -1.0, bend=3.0, top=-5.0, highest=4.0)
    views = np.array([[1e6, 2.5 + 1e-6, 2.5, 0.0, -2.0, -1e6]])
    ratio = 2 * views[0] - 1
    assert_allclose(found(views)[1:5], ratio[1:5], atol=1e-9)
    assert_allclose(found(views)[0], 4 + 3 * np.log1p((ratio[0] - 4) / 3))
    assert_allclose(found(views)[5], -5 - 3 * np.log1p((-5 - ratio[5]) / 3))
    line = np.linspace(-50, 50, 100)[None]
    assert np.all(np.diff(found(line)) > 0)
    assert_allclose(found.then(3.0, 0.25)(line), 3 * found(line) + 0.25)
    assert_allclose(found.of_unit_slope()(line), (found(line) + 1) / 2)
    plain = Calibration((2.0,), -1.0)
    assert found.straight() == plain
    assert_allclose(found.straightened(found(line)), plain(line))
    assert_allclose(found.since(plain)(plain(line)[None]), found(line))
    assert found(line.astype(np.float32)).dtype == np.float32


@pytest.mark.parametrize("n_positive", [1, 3, 700])
@pytest.mark.parametrize("n_negative", [1, 9, 3000])
def test_n_rows_of_a_class_support_odds_of_about_n_to_one(n_positive, n_negative):
    plain = Calibration((0.5, 0.25), 0.5)
    limited = plain.limited(n_positive, n_negative)
    lowest, highest = -np.log(2 * (n_positive + 1)), np.log(2 * (n_negative + 1))
    views = np.stack([np.linspace(-100, 100, 999)] * 2)
    below, above = plain(views) < lowest, plain(views) > highest
    between = ~(below | above)
    assert_allclose(limited(views)[between], plain(views)[between])
    assert np.all(limited(views)[below] > plain(views)[below])
    assert np.all(limited(views)[above] < plain(views)[above])
    assert np.all(np.diff(limited(views)) > 0), "the order changes"
    assert np.all(limited(views) > lowest - np.log(200))
    assert np.all(limited(views) < highest + np.log(200))
    assert limited.limited(5, 5) == limited, "a limit must not be replaced"


@pytest.mark.parametrize("n_views", [1, 2, 3])
def test_without_calibration_all_views_weigh_the_same(n_views):
    none = Calibration.none(n_views)
    views = np.random.default_rng(0).standard_normal((n_views, 9))
    assert_allclose(none(views), views.mean(axis=0))
    assert_allclose([none.slope, none.offset], [1.0, 0.0])
    assert Calibration() == Calibration.none(1)
    assert_array_equal(Calibration()(views[:1]), views[0])


@pytest.mark.parametrize("weights", [(2.0,), (0.7, 0.2)])
def test_then_composes_two_calibrations(weights):
    views = np.random.default_rng(0).standard_normal((len(weights), 9))
    first = Calibration(weights, -1.5)
    both = first.then(3.0, 0.25)
    assert_allclose(both(views), 3.0 * first(views) + 0.25)
    assert_allclose(both.slope, 3.0 * first.slope)
    assert first.then(1.0, 0.0) == first
    again = both.then(0.5, -1.0)
    assert_allclose(again(views), 0.5 * both(views) - 1.0)


@pytest.mark.parametrize("weights", [(2.0,), (0.7, 0.2), (1e-9, 3e-9)])
def test_unit_slope_gives_a_mean_of_the_views(weights):
    views = np.random.default_rng(0).standard_normal((len(weights), 9))
    found = Calibration(weights, -1.5).of_unit_slope()
    assert_allclose([found.slope, found.offset], [1.0, 0.0])
    assert_allclose(found(views), np.average(views, axis=0, weights=weights))
    assert found.of_unit_slope() == found
    # Restoring slope and offset gives the original.
    back = found.then(sum(weights), -1.5)
    assert_allclose([*back.weights, back.offset], [*weights, -1.5])


@pytest.mark.parametrize("n_views", [1, 2])
def test_the_fit_is_a_logistic_regression_on_the_views(n_views):
    views, positive = overlapping()
    noise = np.random.default_rng(1).standard_normal(views.shape)
    views = np.vstack([views, views + noise])[:n_views]
    weights = np.random.default_rng(1).uniform(0.2, 3, len(positive))
    found = fit_calibration(views, positive, weights)
    slopes, offset = fit_logistic(views, positive, weights)
    assert_array_equal(found.weights, slopes)
    assert found.offset == offset
    assert all(type(weight) is float for weight in found.weights)
    near = fit_calibration(views, positive, weights, Calibration((5.0,) * n_views, 3.0))
    assert_allclose([*near.weights, near.offset], [*found.weights, found.offset], rtol=1e-6)


def test_one_very_clear_negative_does_not_flatten_the_slope():
    views, positive = overlapping(distance=2.0)
    label = np.append(positive, False)
    far = fit_calibration(np.append(views, [[-1e7]], axis=1), label)
    near = fit_calibration(np.append(views, [[-10.0]], axis=1), label)
    assert_allclose(far.slope, near.slope, rtol=0.05)


def test_scores_that_contradict_the_labels_keep_only_their_order():
    views, positive = overlapping()
    found = fit_calibration(-views, positive)
    assert 0 < found.slope * views.std() < 0.1
    assert_allclose(found(-views), 0.0, atol=0.2)


def test_equal_scores_give_ratios_near_zero():
    views, positive = np.full((1, 300), 7.0), np.arange(300) < 100
    assert_allclose(fit_calibration(views, positive)(views), 0.0, atol=0.01)


@pytest.mark.parametrize("gap", [1e-9, 1.0, 1e6])
@pytest.mark.parametrize("sizes", [(1, 1), (1, 50), (50, 1), (20, 30)])
def test_separable_scores_get_a_finite_positive_slope(gap, sizes):
    positive = np.arange(sum(sizes)) < sizes[0]
    views = np.where(positive, gap, -gap)[None]
    found = fit_calibration(views, positive)
    # The prior costs one nat per unit of slope; each row can pay ln 2 at most.
    assert 0 < found.slope < 4 + 2 * sum(sizes) * np.log(2)
    assert found(views)[0] > found(views)[-1]


def test_rows_of_weight_zero_do_not_count():
    views, positive = overlapping()
    weights = (np.arange(len(positive)) % 3 > 0).astype(float)
    kept = weights > 0
    weighted = fit_calibration(views, positive, weights)
    fewer = fit_calibration(views[:, kept], positive[kept])
    assert_allclose([weighted.slope, weighted.offset], [fewer.slope, fewer.offset], rtol=1e-9)


@pytest.mark.parametrize(("scale", "origin"), [(0.1, 0.0), (1.0, 5.0), (30.0, -7.0)])
def test_with_many_rows_calibrated_scores_do_not_depend_on_scale_and_origin(scale, origin):
    views, positive = overlapping(3000, 7000)
    plain = fit_calibration(views, positive)(views)
    moved = scale * views + origin
    assert_allclose(fit_calibration(moved, positive)(moved), plain, rtol=0.05, atol=0.05)


def test_calibration_recovers_a_true_log_likelihood_ratio():
    views, positive = overlapping(20000, 60000, distance=2.0)
    found = fit_calibration(5 * views - 3, positive)
    truth = norm.logpdf(views[0], 2) - norm.logpdf(views[0], 0)
    assert np.abs(found(5 * views - 3) - truth).max() < 0.3
    assert_allclose(found.slope * 5, 2.0, rtol=0.03)
