"""Pairs of densities against their parts, and joined models against a mean of two ratios."""

import pickle

import numpy as np
import pytest
from factories import make_rows
from numpy.testing import assert_allclose, assert_array_equal

from pcsda.core.density import Blend, Mixture
from pcsda.core.fit import Rule, estimate, fit
from pcsda.core.pair import weighted_mean
from pcsda.core.white import whiten

KINDS = pytest.mark.parametrize(
    "negatives", [("blend", "blend"), ("mixture", "blend"), ("blend", "mixture")], ids=str
)
POINTS = 3 * np.random.default_rng(1).standard_normal((25, 7))


def make_models(negatives=("blend", "blend"), n_features=6):
    """Fit two models to the same rows, with three and with four axes."""
    X, groups, _ = make_rows((20, 9, 12, 15, 10), n_features)
    models = []
    for kind, ridge, d in zip(negatives, (0.1, 3.0), (3, 4), strict=True):
        factor = next(whiten(X, [ridge]))
        models.append(fit(factor, groups, Rule(negatives=kind), d))
    return X, models


def make_pair(negatives=("blend", "blend")):
    _, (first, second) = make_models(negatives)
    return first.density, second.density, weighted_mean(first, second, 0.3).density


@KINDS
def test_views_are_those_of_both_densities(negatives):
    first, second, pair = make_pair(negatives)
    kinds = {"blend": Blend, "mixture": Mixture}
    assert [type(part) for part in (first, second)] == [kinds[name] for name in negatives]
    expected = np.vstack([first.views(POINTS[:, :3]), second.views(POINTS[:, 3:])])
    assert pair.n_views == len(expected)
    assert_array_equal(pair.views(POINTS), expected)
    of_products = pair.views_of_products(POINTS @ pair.products)
    assert_allclose(of_products, expected, rtol=1e-9, atol=1e-9)
    assert_allclose(
        pair.views_of_products(POINTS[0] @ pair.products), expected[:, 0], rtol=1e-9, atol=1e-9
    )
    single = pair.views(POINTS.astype(np.float32))
    assert single.dtype == np.float32
    assert_allclose(single, expected, rtol=1e-4, atol=1e-3)


@KINDS
def test_the_path_over_d_equals_each_marginal(negatives):
    _, _, pair = make_pair(negatives)
    path = pair.path(POINTS)
    assert_allclose(path[..., -1], pair.views(POINTS), rtol=1e-9, atol=1e-9)
    for d in range(1, 8):
        found = pair.margin(range(d)).views(POINTS[:, :d])
        assert_allclose(path[..., d - 1], found, rtol=1e-9, atol=1e-9)


@KINDS
def test_marginals_take_axes_in_any_order(negatives):
    first, second, pair = make_pair(negatives)
    axes = [5, 0, 2, 3]
    found = pair.margin(axes).views(POINTS[:, axes])
    of_first = first.margin([0, 2]).views(POINTS[:, [0, 2]])
    of_second = second.margin([2, 0]).views(POINTS[:, [5, 3]])
    assert_allclose(found, np.vstack([of_first, of_second]), rtol=1e-9, atol=1e-9)
    again = pair.margin(axes).margin([1, 0]).views(POINTS[:, [0, 5]])
    assert_allclose(again, pair.margin([0, 5]).views(POINTS[:, [0, 5]]), rtol=1e-9, atol=1e-9)
    # Axes of one density say nothing about the other.
    assert_allclose(pair.margin([1]).views(POINTS[:, [1]])[first.n_views :], 0, atol=1e-12)


@KINDS
def test_sets_of_rows_are_scored_by_both_densities(negatives):
    first, second, pair = make_pair(negatives)
    sets = np.arange(25) % 6
    expected = [first.views_of_sets(POINTS[:, :3], sets, 6)]
    expected.append(second.views_of_sets(POINTS[:, 3:], sets, 6))
    assert_allclose(pair.views_of_sets(POINTS, sets, 6), np.vstack(expected), rtol=1e-12)


def test_pickles_of_pairs_hold_only_what_was_fitted():
    _, _, pair = make_pair()
    expected = pair.views(POINTS)
    again = pickle.loads(pickle.dumps(pair))
    assert_array_equal(again.views(POINTS), expected)
    assert [len(base.positive) for base in again.bases] == [3, 4]
    assert again.base is again.first.base


@KINDS
@pytest.mark.parametrize("share", [0.1, 0.5])
def test_a_joined_model_is_the_mean_of_both(negatives, share):
    """Each model bends its low ratios; the mean is that of the ratios before they are bent."""
    X, models = make_models(negatives)
    assert all(one.calibration.is_bent for one in models)
    scores, left_out = [], []
    for one, kind in zip(models, negatives, strict=True):
        straight = one.calibration.straight()
        scores.append(straight(one.density.views(one.subspace.project(X))))
        left_out.append(straight(estimate(one.subspace, Rule(negatives=kind))[1]))
    joined = weighted_mean(*models, share)
    weights = 1 - share, share
    assert_allclose(joined.score(X), np.average(scores, axis=0, weights=weights), rtol=1e-9)
    assert_allclose(joined.left_out, np.average(left_out, axis=0, weights=weights), rtol=1e-7)
    first, second = (one.subspace for one in models)
    expected = np.hstack([first.project(X), second.project(X)])
    assert_allclose(joined.subspace.project(X), expected, rtol=1e-9, atol=1e-9)
    assert joined.subspace.rank == min(first.rank, second.rank)
