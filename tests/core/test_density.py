"""Densities against SciPy, sets against joint Gaussians, left-out rows against refits."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from factor_factories import WEIGHTED
from factories import (
    assert_same_density,
    axis_ridge,
    cloud_of,
    cloud_without,
    leave_rows_out,
    log_density,
    make_rows,
    moves_of_centres,
    positives_without,
    tails_of,
    views_by_scipy,
)
from numpy.testing import assert_allclose, assert_array_equal
from scipy import linalg as scipy_linalg
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp
from scipy.stats import spearmanr
from threadpoolctl import threadpool_limits

from pcsda import PCSDA, KernelPCSDA
from pcsda.core import left_density, linalg, solvers
from pcsda.core.covariance import Moments
from pcsda.core.density import Blend, Marginal, Mixture, NoDensity, fit_density
from pcsda.core.linalg import SingularMatrixError, TooFewRowsError
from pcsda.core.loo import LeftOut
from pcsda.core.near import Near
from pcsda.core.scatter import GroupScatter
from pcsda.core.student import HEAVIEST, LIGHTEST
from pcsda.datasets import make_class_specific

KINDS = {"blend": Blend, "mixture": Mixture, "marginal": Marginal}
EVERY = pytest.mark.parametrize("negatives", KINDS)
NEGATIVES = pytest.mark.parametrize("negatives", ["mixture", "marginal"])
TAILS = pytest.mark.parametrize(
    "tails", [(np.inf, np.inf), (3.0, np.inf), (2.6, 40.0), (150.0, 5.0)], ids=str
)
SETS = np.repeat(np.arange(5), [1, 2, 3, 1, 6])[[4, 0, 9, 2, 12, 5, 1, 7, 3, 11, 6, 8, 10]]


def make_moments(d=3, sizes=(20, 9, 12, 15, 10), seed=0, spread=2.0):
    """Return resubstituted moments of rows in d dimensions, with the positive mean at zero."""
    X, groups, _ = make_rows(sizes, d, seed=seed, spread=spread)
    scatter = GroupScatter.from_samples(X - X[groups == 0].mean(axis=0), groups)
    target = scatter.intra / scatter.counts.sum()
    return Moments(scatter, target, scatter.n_positive, scatter.within_freedom)


def make_density(negatives, tails=(np.inf, np.inf), *, d=3, shrinkage=0.7, **changes):
    """Make a density with the given degrees of freedom, if its kind has any."""
    density = fit_density(make_moments(d, **changes), negatives=negatives, shrinkage=shrinkage)
    return with_given_tails(density, tails)


def with_given_tails(density, tails):
    if isinstance(density, Blend):
        return replace(density, base=replace(density.base, tail=tails[0]), tail=tails[1])
    return density if isinstance(density, Marginal) else replace(density, tail=tails[0])


def leading_of(moments, axes):
    scatter = moments.scatter.project(np.eye(moments.scatter.means.shape[1])[list(axes)])
    target = moments.target[np.ix_(axes, axes)]
    return Moments(scatter, target, moments.n_positive, moments.n_within)


def points(n, d, seed=1):
    return 3 * np.random.default_rng(seed).standard_normal((n, d))


def gaussian(z, mean, covariance):
    return log_density(z, mean, covariance)


# --- what every density can do -------------------------------------------------------------------


@EVERY
@TAILS
def test_views_keep_single_precision(negatives, tails):
    density, z = make_density(negatives, tails), points(40, 3)
    single = density.views(z.astype(np.float32))
    assert single.dtype == np.float32
    assert_allclose(single, density.views(z), rtol=1e-5, atol=1e-3)


@EVERY
@TAILS
@pytest.mark.parametrize("d", [1, 3])
def test_views_equal_scipy_densities_with_the_same_covariances(negatives, tails, d):
    density = make_density(negatives, tails, d=d)
    z = np.vstack([points(50, d), 1e3 * np.eye(d)])
    views = density.views(z)
    assert type(density) is KINDS[negatives]
    assert views.shape == (density.n_views, len(z))
    assert_allclose(views, views_by_scipy(density, z), rtol=1e-9, atol=1e-9)


@EVERY
@TAILS
def test_views_are_the_same_for_one_row_or_many(negatives, tails):
    density, z = make_density(negatives, tails), points(20, 3)
    expected = density.views(z)
    assert_array_equal(density.views_of_products(z @ density.products), expected)
    for row, view in zip(z[:4], expected.T, strict=False):
        found = density.views_of_products(row @ density.products)
        assert found.shape == (density.n_views,)
        assert_allclose(found, view, rtol=1e-10, atol=1e-12)


@EVERY
@TAILS
def test_the_path_over_d_equals_each_marginal(negatives, tails):
    density, z = make_density(negatives, tails, d=4), points(30, 4)
    path = density.path(z)
    assert path.shape == (density.n_views, 30, 4)
    assert_allclose(path[..., -1], density.views(z), rtol=1e-9, atol=1e-9)
    for d in range(1, 5):
        margin = density.margin(range(d))
        assert type(margin) is type(density)
        assert_allclose(margin.base.positive, density.base.positive[:d, :d])
        assert_allclose(margin.base.subclasses, density.base.subclasses[:, :d])
        expected = views_by_scipy(margin, z[:, :d])
        assert_allclose(margin.views(z[:, :d]), expected, rtol=1e-9, atol=1e-9)
        assert_allclose(path[..., d - 1], expected, rtol=1e-9, atol=1e-9)
        if isinstance(margin, Blend):  # only its direction counts
            assert np.abs(margin.axis).max() == 1.0


@EVERY
@TAILS
def test_the_marginal_on_all_axes_is_the_density_itself(negatives, tails):
    density = make_density(negatives, tails)
    assert_same_density(density.margin(range(3)), density, 1e-15)
    # In another order the coordinates come in that order too.
    z, order = points(20, 3), [2, 0, 1]
    found = density.margin(order).views(z[:, order])
    assert_allclose(found, density.views(z), rtol=1e-9, atol=1e-9)


@EVERY
@TAILS
def test_a_set_of_one_row_scores_like_the_row(negatives, tails):
    density, z = make_density(negatives, tails), points(12, 3)
    order = np.random.default_rng(0).permutation(12)
    of_sets = density.views_of_sets(z, order, 12)
    assert of_sets.shape == (density.n_views, 12)
    assert_allclose(of_sets[:, order], density.views(z), rtol=1e-9, atol=1e-12)


@EVERY
def test_the_base_keeps_subclass_means_on_all_axes(negatives):
    density = make_density(negatives)
    assert_allclose(density.base.subclasses, make_moments().scatter.delta)
    assert isinstance(density.base, Mixture)
    if negatives != "blend":
        assert density.base is density


@EVERY
def test_pickles_hold_only_what_was_fitted(negatives):
    density, z = make_density(negatives, (4.0, 5.0)), points(9, 3)
    expected = density.views(z)  # which caches intermediate results
    again = pickle.loads(pickle.dumps(density))
    assert not {"products", "white", "terms", "cloud"} & {*vars(again), *vars(again.base)}
    assert_same_density(again, density, 1e-15)
    assert_array_equal(again.views(z), expected)


# --- how densities are estimated -----------------------------------------------------------------


@NEGATIVES
@pytest.mark.parametrize("nu", [0.0, 1.5])
@pytest.mark.parametrize("d", [1, 3])
def test_log_ratio_equals_the_formulas_with_scipy_densities(negatives, nu, d):
    moments, z = make_moments(d), np.vstack([points(50, d), 1e6 * np.eye(d)])
    s = moments.scatter
    inside = gaussian(z, np.zeros(d), (s.positive + nu * moments.target) / (s.n_positive + nu))
    if negatives == "marginal":
        expected = inside - gaussian(z, np.zeros(d), s.phi_o)
    else:
        phi_w = (s.within + nu * moments.target) / (moments.n_within + nu)
        shares = s.counts[1:] / s.counts[1:].sum()
        parts = [np.log(p) + gaussian(z, c, phi_w) for p, c in zip(shares, s.delta, strict=True)]
        expected = inside - logsumexp(parts, axis=0)
    density = fit_density(moments, negatives=negatives, shrinkage=nu)
    assert_allclose(density.views(z), expected[None], rtol=1e-9)


def test_without_shrinkage_covariances_follow_the_paper():
    moments = make_moments()
    s = moments.scatter
    phi_p, phi_w = s.positive / s.n_positive, s.within / (s.n_negative - s.n_subclasses)
    mixture = fit_density(moments, negatives="mixture", shrinkage=0.0)
    marginal = fit_density(moments, negatives="marginal", shrinkage=0.0)
    assert_allclose(mixture.positive, phi_p)  # eq. (Phi_p)
    assert_allclose(mixture.negative, phi_w)  # eq. (Phi_w)
    assert_allclose(marginal.positive, phi_p)
    assert_allclose(marginal.negative, s.phi_o)  # eq. (Phi_o)
    assert_allclose(marginal.within, phi_w)
    phi_n = s.between / s.n_subclasses - phi_w / (s.n_negative / s.n_subclasses)
    assert_allclose(marginal.negative - marginal.within, phi_n)  # eq. (Phi_n2)


@pytest.mark.parametrize("nu", [0.5, 4.0])
def test_shrinkage_adds_a_prior_of_nu_samples(nu):
    moments = make_moments()
    s = moments.scatter
    density = fit_density(moments, negatives="mixture", shrinkage=nu)
    n_p = moments.n_positive
    assert_allclose(density.positive, (s.positive + nu * moments.target) / (n_p + nu))
    within = (s.within + nu * moments.target) / (moments.n_within + nu)
    assert_allclose(density.negative, within)
    assert_allclose(density.within, within)
    assert_allclose(density.positive_strength, n_p + nu)
    assert_allclose(density.negative_strength, moments.n_within + nu)


def test_with_one_positive_the_covariance_is_the_target():
    moments = replace(make_moments(sizes=(1, 20, 15)), n_positive=0.0)
    density = fit_density(moments, negatives="mixture", shrinkage=1.5)
    assert_allclose(density.positive, moments.target)


@NEGATIVES
def test_a_marginal_equals_a_refit_on_its_axes(negatives):
    moments, axes = make_moments(4), [2, 0]
    refit = fit_density(leading_of(moments, axes), negatives=negatives, shrinkage=0.8)
    margin = fit_density(moments, negatives=negatives, shrinkage=0.8).margin(axes)
    assert_same_density(margin, refit, 1e-12)
    z = points(len(SETS), 2)
    found, expected = (d.views_of_sets(z, SETS, 5) for d in (margin, refit))
    assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.parametrize(
    ("sizes", "negatives", "which"),
    [
        ((2, 20, 20), "marginal", "positive"),
        ((20, 1, 1), "marginal", "negative"),
        ((20, 2, 2), "mixture", "negative"),
    ],
)
def test_a_singular_covariance_is_refused_by_name(sizes, negatives, which):
    with pytest.raises(SingularMatrixError, match=f"of the {which} class is singular"):
        fit_density(make_moments(sizes=sizes), negatives=negatives, shrinkage=0.0)


@pytest.mark.parametrize(("sizes", "which"), [((1, 20), "positive"), ((20, 1, 1), "negative")])
def test_neither_samples_nor_prior_is_refused_by_name(sizes, which):
    moments = make_moments(sizes=sizes)
    n_positive = 0.0 if which == "positive" else moments.n_positive
    message = f"no sample shows the spread of the {which} class"
    with pytest.raises(SingularMatrixError, match=message):
        fit_density(replace(moments, n_positive=n_positive), negatives="mixture", shrinkage=0.0)


def test_positives_at_one_point_are_refused():
    moments = make_moments()
    tiny = replace(moments.scatter, positive=1e-20 * moments.scatter.positive)
    with pytest.raises(SingularMatrixError, match="the positive class is a point in the subspace"):
        fit_density(replace(moments, scatter=tiny), negatives="mixture", shrinkage=0.0)


# --- Fisher's axis -------------------------------------------------------------------------------


@pytest.mark.parametrize("n_positive", [6, 20])
@pytest.mark.parametrize("ridge", [0.0, 5.0])
@WEIGHTED
def test_fishers_axis_of_all_k_axes_is_the_ridged_solution_of_one_subclass(
    ridge, weighted, n_positive
):
    """Covariances times sample counts must be the scatter of the fit, ridge included.

    With few positives, the axis has another ridge: a multiple of the scatter within subclasses.
    """
    X, groups, weights = make_rows([n_positive, 9, 12, 15, 10], 8, weighted=weighted)
    scatter = GroupScatter.from_samples(X, groups, weights=weights)
    projection = solvers.cholesky(scatter, ridge)
    assert projection.rank == 4
    W = projection.components
    projected = scatter.project(W)
    # The ridge counts as scatter; here it belongs to the positives.
    projected = replace(projected, positive=projected.positive + ridge * W @ W.T)
    moments = Moments(projected, np.eye(4), projected.n_positive, projected.n_negative)
    axis = fit_density(moments, negatives="blend", shrinkage=0.0).axis
    one = GroupScatter.from_samples(X, np.minimum(groups, 1), weights=weights)
    within = scatter.intra + ridge * np.eye(8)
    more = axis_ridge(scatter.n_positive) * within
    expected = np.linalg.solve(one.intra + ridge * np.eye(8) + more, one.delta[0])
    found = axis @ W
    found *= np.linalg.norm(expected) / np.linalg.norm(found) * np.sign(found @ expected)
    assert_allclose(found, expected, atol=1e-10 * np.abs(expected).max())


@WEIGHTED
def test_without_a_left_out_positive_the_axis_uses_the_ridged_scatter(weighted):
    """In input space, it is (S_I + eps I)^-1 (m_n - m): m_n of all negatives, m of the positive."""
    X, groups, weights = make_rows([1, 9, 12, 15, 10], 8, weighted=weighted)
    scatter = GroupScatter.from_samples(X, groups, weights=weights)
    W = solvers.cholesky(scatter, 5.0).components
    ridged = scatter.intra + 5.0 * np.eye(8)
    moments = Moments(scatter.project(W), np.eye(4), 0.0, 46.0, W @ ridged @ W.T)
    axis = fit_density(moments, negatives="blend", shrinkage=1.0).axis
    negative = groups > 0
    mass = None if weights is None else weights[negative]
    toward = np.average(X[negative], axis=0, weights=mass) - X[groups == 0][0]
    expected, found = np.linalg.solve(ridged, toward), axis @ W
    found *= np.linalg.norm(expected) / np.linalg.norm(found)
    assert_allclose(found, expected, atol=1e-10 * np.abs(expected).max())


@pytest.mark.parametrize("scale", [1.0, 1e-30, 1e30])
def test_negatives_centred_on_the_positive_mean_have_no_fisher_axis(scale):
    half, groups, _ = make_rows([20, 9, 12], 3)
    half[groups == 0] -= half[groups == 0].mean(axis=0)
    rows, mirrored = half[groups > 0], np.where(groups > 0, groups + 2, 0)[groups > 0]
    X = scale * np.vstack([half[groups == 0], -half[groups == 0], rows, -rows])
    both = np.concatenate([np.zeros(40, dtype=np.intp), groups[groups > 0], mirrored])
    scatter = GroupScatter.from_samples(X, both)
    moments = Moments(scatter, scatter.intra / 82, 40.0, 42.0)
    assert type(fit_density(moments, negatives="blend", shrinkage=1.0)) is Mixture


def test_one_subclass_needs_no_second_view():
    assert type(make_density("blend", sizes=(20, 15))) is Mixture


def test_the_cloud_matches_all_negatives_moments_on_the_axis():
    density = make_density("blend", (4.0, 5.0))
    positive, negative, centre = cloud_of(density)
    cloud = density.cloud
    assert_allclose([cloud.positive[0, 0], cloud.negative[0, 0]], [positive, negative])
    assert_allclose(cloud.centres, [[centre]])
    assert cloud.tail == 5.0


def test_only_the_mixture_sees_axes_orthogonal_to_fishers():
    density, z = make_density("blend", (4.0, 5.0)), points(len(SETS), 3)
    turned = replace(density, axis=np.array([0.0, 1.0, 0.5]))
    margin = turned.margin([0])
    assert not margin.axis.any()
    views = margin.views(z[:, :1])
    assert_array_equal(views[0], views[1])
    assert_allclose(views, views_by_scipy(margin, z[:, :1]), rtol=1e-9)
    assert_allclose(turned.path(z)[..., 0], views, rtol=1e-9)
    assert_allclose(turned.path(z)[..., 2], turned.views(z), rtol=1e-9)
    of_sets = margin.views_of_sets(z[:, :1], SETS, 5)
    assert_array_equal(of_sets[0], of_sets[1])


# --- sets of rows --------------------------------------------------------------------------------


def joint_gaussian(z, between, within):
    """Compute the log density of samples that share an unknown mean from their joint covariance."""
    size, d = z.shape
    covariance = np.kron(np.eye(size), within) + np.kron(np.ones((size, size)), between)
    return gaussian(z.ravel(), np.zeros(size * d), covariance)


def clipped(between, within):
    """Return the positive part of `between` relative to `within`."""
    values, vectors = scipy_linalg.eigh(between, within)
    back = within @ vectors
    return back @ np.diag(np.maximum(values, 0)) @ back.T


@pytest.mark.parametrize("spread", [4.0, 0.05], ids=["regular", "clipped"])
def test_sets_with_marginal_negatives_equal_the_joint_gaussian(spread):
    density = make_density("marginal", shrinkage=0.0, spread=spread)
    between = density.negative - density.within
    assert (np.linalg.eigvalsh(between)[0] > 0) == (spread > 1)
    z = points(len(SETS), 3)
    (found,) = density.views_of_sets(z, SETS, 5)
    for s in range(5):
        own = z[s == SETS]
        inside = gaussian(own, np.zeros(3), density.positive).sum()
        if len(own) == 1:  # scored by the density itself, whatever was clipped from it
            outside = gaussian(own, np.zeros(3), density.negative)
        else:
            outside = joint_gaussian(own, clipped(between, density.within), density.within)
        assert_allclose(found[s], inside - outside, rtol=1e-9)


def test_sets_with_marginal_negatives_are_the_formula_of_the_paper():
    density = make_density("marginal", shrinkage=0.0, spread=4.0)
    phi_w, phi_n = density.within, density.negative - density.within
    z, M, d = points(4, 3), 4, 3
    mean = z.mean(axis=0)
    S = (z - mean).T @ (z - mean)
    # eq. (P_Sk_Prod) in the form of MATH 9
    outside = (
        gaussian(mean, np.zeros(d), phi_n + phi_w / M)
        - (M - 1) / 2 * (d * np.log(2 * np.pi) + np.linalg.slogdet(phi_w)[1])
        - np.trace(np.linalg.solve(phi_w, S)) / 2
        - d / 2 * np.log(M)
    )
    inside = gaussian(z, np.zeros(d), density.positive).sum()
    found = density.views_of_sets(z, np.zeros(4, dtype=int), 1)
    assert_allclose(found, [[inside - outside]], rtol=1e-10)


@TAILS
@pytest.mark.parametrize("negatives", ["blend", "mixture"])
def test_sets_share_a_subclass_and_are_independent_in_the_cloud(tails, negatives):
    density, z = make_density(negatives, tails), points(len(SETS), 3)
    expected = views_by_scipy(density, z, SETS)
    assert_allclose(density.views_of_sets(z, SETS, 5), expected, rtol=1e-9)


@pytest.mark.parametrize("rows_at_once", [1, 4])
def test_sets_may_span_blocks(monkeypatch, rows_at_once):
    density, z = make_density("mixture"), points(len(SETS), 3)
    whole = density.views_of_sets(z, SETS, 5)
    monkeypatch.setattr(linalg, "BLOCK_BYTES", 8 * density.centres.size * rows_at_once)
    assert_allclose(density.views_of_sets(z, SETS, 5), whole, rtol=1e-12)


@pytest.mark.parametrize("spread", [4.0, 0.05], ids=["regular", "clipped"])
def test_clipping_does_not_change_the_score_of_a_single_row(spread):
    density, z = make_density("marginal", spread=spread), points(12, 3)
    found = density.views_of_sets(z, np.arange(12), 12)
    assert_allclose(found, density.views(z), rtol=1e-9, atol=1e-12)


def test_singleton_negatives_in_a_set_are_independent():
    density = make_density("marginal", shrinkage=0.0, sizes=(20, *[1] * 12))
    assert density.within is None
    z = points(len(SETS), 3)
    found = density.views_of_sets(z, SETS, 5)
    assert_allclose(found[0], np.bincount(SETS, density.views(z)[0]), rtol=1e-9)


def test_widened_negatives_are_nowhere_narrower_than_positives():
    rng = np.random.default_rng(0)
    mixing = rng.standard_normal((4, 4))
    widths = np.array([0.01, 0.6, 1.0, 30.0])
    positive = mixing @ mixing.T
    narrow = replace(
        make_density("marginal", d=4), positive=positive, negative=mixing * widths @ mixing.T
    )
    found = narrow.widened()
    inside = np.linalg.solve(mixing, np.linalg.solve(mixing, found.negative).T)
    assert_allclose(inside, np.diag([1, 1, 1, 30.0]), atol=1e-12)
    assert_array_equal(found.positive, positive)
    z = 10 * rng.standard_normal((200, 4))
    assert narrow.views(z).max() > narrow.views(np.zeros((1, 4)))[0, 0]
    assert found.views(z).max() < found.views(np.zeros((1, 4)))[0, 0]
    # Where negatives are wider already, nothing changes.
    wide = replace(narrow, negative=3 * positive)
    assert wide.widened() is wide


# --- left-out rows -------------------------------------------------------------------------------


def left_out_case(negatives, sizes=(14, 9, 1, 8, 7, 10), *, weighted=False, nu=1.5, heavy=False):
    """Return a density, the left-out rows behind it, and the counts."""
    X, groups, weights = make_rows(sizes, 5, weighted=weighted)
    if heavy:
        X *= np.random.default_rng(0).chisquare(4, (len(X), 1)) ** -0.5
    projection, scatter, left = leave_rows_out(X, groups, weights, 0.5, d=3)
    (positive, n_positive), (within, n_within) = left.moments()
    projected = scatter.project(projection.components)
    seen = replace(projected, positive=positive, within=within)
    moments = Moments(seen, seen.intra / (n_positive + n_within), n_positive, n_within)
    return fit_density(moments, negatives=negatives, shrinkage=nu), left, scatter.counts


def rebuilt_views(density, left, counts):
    """View each row through a density rebuilt without it."""
    base, views = density.base, []
    moves = moves_of_centres(left, base.subclasses)
    parts = left.weight if left.stands_for is None else left.weight * left.stands_for
    rows = zip(left.coordinates, left.residuals, left.groups, left.alone, strict=True)
    for i, ((z, rho, group, alone), weight, part) in enumerate(
        zip(rows, left.weight, parts, strict=True)
    ):
        negative, shares = base.negative, np.exp(base.log_weights)
        positive, move = positives_without(base, left, np.arange(len(left.groups)) == i)
        centres = base.centres + (0 if isinstance(base, Marginal) else move + moves[i])
        about = centres.copy()
        if group > 0 and not isinstance(base, Marginal):
            strength = base.negative_strength
            if not alone:
                removed = strength * negative - part * np.outer(rho, rho)
                negative = removed / (strength - part)
            centres[group - 1] = z - rho
            remaining = counts[1:].copy()
            remaining[group - 1] = 0 if alone else remaining[group - 1] - weight
            shares = remaining / (counts[1:].sum() - weight)
        elif group > 0:
            negative = negative - part * np.outer(rho, rho) / base.negative_strength
        outside = [
            np.log(share) + log_density(z, centre, negative, base.tail)
            for share, centre in zip(shares, centres, strict=True)
            if share > 0
        ]
        inside = log_density(z, np.zeros(len(z)), positive, base.tail)
        views.append([inside - logsumexp(outside)])
        if isinstance(density, Blend):  # the cloud stays fixed
            views[-1].append(cloud_without(density, positive, about, counts, z))
    return np.array(views).T


@pytest.mark.each_pair
@WEIGHTED
@EVERY
@pytest.mark.parametrize("tails", [(np.inf, np.inf), (3.0, 8.0)], ids=["gaussian", "heavy"])
@pytest.mark.parametrize("nu", [0.0, 1.7])
def test_left_out_views_equal_densities_rebuilt_without_the_row(weighted, negatives, tails, nu):
    density, left, counts = left_out_case(negatives, weighted=weighted, nu=nu)
    density = with_given_tails(density, tails)
    views = density.left_out_views(left, counts)
    assert_allclose(views, rebuilt_views(density, left, counts), rtol=1e-9, atol=1e-9)
    positive = left.groups == 0
    views = density.left_out_views(replace(left, shifts=None), counts)
    resubstituted = density.views(left.coordinates)
    assert views[0, positive].mean() < resubstituted[0, positive].mean()  # lower when left out


@WEIGHTED
@EVERY
def test_a_row_leaves_a_covariance_with_its_full_weight(weighted, negatives):
    """In a sample's moments, each row has the weight that it represents."""
    density, left, counts = left_out_case(negatives, weighted=weighted)
    more = np.random.default_rng(0).uniform(0.3, 1, len(left.groups))
    sample = replace(left, stands_for=more)
    views = density.left_out_views(sample, counts)
    assert_allclose(views, rebuilt_views(density, sample, counts), rtol=1e-9, atol=1e-9)
    assert not np.allclose(views, density.left_out_views(left, counts), rtol=1e-9)


@EVERY
def test_many_positives_hardly_depend_on_one_of_them(monkeypatch, negatives):
    """Each of a hundred positives alone changes the others' residuals by little."""
    density, left, counts = left_out_case(negatives, [100, 40, 50])
    approximate = density.left_out_views(left, counts)
    monkeypatch.setattr(left_density, "FEW_POSITIVE_ROWS", 100)
    exact = density.left_out_views(left, counts)
    positive = left.groups == 0
    assert_allclose(approximate[:, ~positive], exact[:, ~positive])
    assert not np.allclose(approximate[:, positive], exact[:, positive])
    assert_allclose(approximate[:, positive], exact[:, positive], rtol=0.05, atol=0.1)


@EVERY
def test_singleton_negatives_have_finite_views(negatives):
    density, left, counts = left_out_case(negatives, [12, *[1] * 9])
    views = density.left_out_views(left, counts)
    assert np.all(np.isfinite(views))
    assert_allclose(views, rebuilt_views(density, left, counts), rtol=1e-9, atol=1e-9)
    assert np.all(np.isinf(tails_of(density.with_tails(left))))


@pytest.mark.parametrize("block", [1, 5])
@pytest.mark.parametrize("threads", [1, 2])
@EVERY
def test_blocks_and_threads_do_not_matter(monkeypatch, block, threads, negatives):
    density, left, counts = left_out_case(negatives, weighted=True)
    expected = density.left_out_views(left, counts)
    monkeypatch.setattr(linalg, "block_rows", lambda width: block)
    monkeypatch.setattr(linalg, "cache_rows", lambda width: block)
    with threadpool_limits(threads, user_api="blas"):
        assert_allclose(density.left_out_views(left, counts), expected, rtol=1e-12)


@WEIGHTED
@EVERY
def test_the_order_of_left_out_rows_does_not_matter(weighted, negatives):
    density, left, counts = left_out_case(negatives, weighted=weighted, heavy=True)
    density = density.with_tails(left)
    order = np.random.default_rng(0).permutation(len(left.groups))
    moved = left.take(order)
    found = density.left_out_views(moved, counts)
    assert_allclose(found, density.left_out_views(left, counts)[:, order], rtol=1e-10)
    assert_allclose(tails_of(density.with_tails(moved)), tails_of(density), rtol=1e-9)


def test_the_only_row_behind_a_covariance_has_a_finite_view():
    scatter = GroupScatter(
        np.array([1.0, 1.0]), np.array([[0.0], [3.0]]), np.array([[4.0]]), np.array([[4.0]])
    )
    density = fit_density(Moments(scatter, np.eye(1), 1.5, 1.5), negatives="mixture", shrinkage=0.0)
    z, no, yes = np.array([[2.0], [5.0]]), np.zeros(2, bool), np.ones(2, bool)
    left = LeftOut(z, np.array([[2.0], [2.0]]), np.array([0, 1]), no, yes)
    assert np.all(np.isfinite(density.left_out_views(left, np.array([2.0, 2.0]))))


# --- tails ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [True, pytest.param(False, marks=pytest.mark.more)])
def test_tails_are_fitted_to_left_out_negatives(weighted):
    """Each row is left out of the covariance of the mixture; the cloud stays fixed.

    A row that is alone in its subclass is compared with the nearest other centre.
    """
    sizes = [30, 19, 1, 28, 17, 1, 25]
    density, left, _ = left_out_case("blend", sizes, weighted=weighted, heavy=True)
    fitted = density.with_tails(left)
    base = density.base
    _, variance, centre = cloud_of(density)
    rows = np.flatnonzero(left.groups > 0)
    assert left.alone[rows].sum() == 2

    def apart(i):
        others = np.delete(base.centres, left.groups[i] - 1, axis=0)
        offsets = left.coordinates[i] - others
        return min(offsets, key=lambda off: off @ np.linalg.solve(base.negative, off))

    def loss(inverse, view):
        total, tail = 0.0, 1 / inverse
        for i in rows:
            rho, off = left.residuals[i], left.coordinates[i] @ density.axis - centre
            w = left.weight[i]
            if view == 0 and left.alone[i]:
                off = apart(i)
                total -= w * log_density(off, 0 * off, base.negative, tail)
            elif view == 0:
                strength = base.negative_strength
                without = (strength * base.negative - w * np.outer(rho, rho)) / (strength - w)
                total -= w * log_density(rho, 0 * rho, without, tail)
            else:
                total -= w * log_density(off, 0.0, variance, tail)
        return total

    for view, found in enumerate(tails_of(fitted)):
        bounds = 1 / LIGHTEST, 1 / HEAVIEST
        best = minimize_scalar(loss, bounds=bounds, args=(view,), options={"xatol": 1e-9})
        assert HEAVIEST < found < LIGHTEST
        assert_allclose(1 / found, best.x, rtol=1e-5)
    assert_same_density(with_given_tails(fitted, (np.inf, np.inf)), density, 1e-15)


def test_published_tails_are_gaussian():
    density, left, _ = left_out_case("marginal", heavy=True)
    assert density.with_tails(left) is density


def test_rows_that_cannot_be_left_out_do_not_shape_tails():
    density, left, _ = left_out_case("blend", [30, 19, 28, 17, 25], heavy=True)
    far = np.flatnonzero(left.groups > 0)[3]
    known = left.known.copy()
    known[far] = False
    moved = left.coordinates.copy()
    moved[far] *= 1e6
    odd = replace(left, known=known, coordinates=moved, residuals=left.residuals * 1.0)
    odd.residuals[far] *= 1e6
    expected = density.with_tails(replace(left, known=known))
    assert_allclose(tails_of(density.with_tails(odd)), tails_of(expected), rtol=1e-12)


def test_a_missing_density_gives_its_reason_in_every_method():
    none = NoDensity("too few rows")
    z, sets = points(3, 2), np.arange(3)
    calls = {
        "views": [z],
        "views_of_products": [z],
        "path": [z],
        "views_of_sets": [z, sets, 3],
        "left_out_views": [None, None],
        "with_tails": [None],
        "margin": [[0]],
    }
    for name, arguments in calls.items():
        with pytest.raises(TooFewRowsError, match=r"^too few rows$"):
            getattr(none, name)(*arguments)
    for name in ("base", "products"):
        with pytest.raises(TooFewRowsError, match=r"^too few rows$"):
            getattr(none, name)
    assert none.n_views == 1


def make_near(tails=(np.inf, np.inf), d=3):
    blend, z = make_density("blend", tails, d=d), points(200, d, seed=4)
    return Near.fit(blend, blend.views(z), z, points(9, d, seed=5))


@TAILS
def test_views_are_means_of_log_ratio_and_distance_that_vary_alike(tails):
    near, z = make_near(tails), points(200, 3, seed=4)
    expected = np.square(points(9, 3, seed=5)).sum(axis=1).mean()
    falling = -np.log1p(np.square(z).sum(axis=1) / expected)
    for view, inner in zip(near.views(z), near.inner.views(z), strict=True):
        assert_allclose(view, 0.5 * inner + 0.5 * inner.std() / falling.std() * falling)


@TAILS
def test_views_with_distance_are_the_same_for_rows_sets_paths_and_margins(tails):
    near, z = make_near(tails), points(len(SETS), 3)
    views = near.views(z)
    for row, view in zip(z, views.T, strict=True):
        assert_allclose(near.views_of_products(row @ near.products), view)
    assert_allclose(near.views_of_sets(z, np.arange(len(z)), len(z)), views)
    path = near.path(z)
    assert_allclose(path[..., -1], views)
    assert_allclose(path[..., 1], near.margin([0, 1]).views(z[:, :2]))
    single = near.views(z.astype(np.float32))
    assert single.dtype == np.float32
    assert_allclose(single, views, rtol=1e-4, atol=1e-4)


def test_a_set_is_as_far_as_its_mean():
    near, z = make_near(), points(len(SETS), 3)
    means = np.stack([z[number == SETS].mean(axis=0) for number in range(SETS.max() + 1)])
    found = near.views_of_sets(z, SETS, len(means))
    inner = near.inner.views_of_sets(z, SETS, len(means))
    assert_allclose(found, near.mean_of(inner, np.square(means).sum(axis=1)))


def test_pickles_with_distance_hold_only_what_was_fitted():
    near, z = make_near(), points(20, 3)
    before, size = near.views(z), len(pickle.dumps(make_near()))
    assert len(pickle.dumps(near)) == size
    assert_array_equal(pickle.loads(pickle.dumps(near)).views(z), before)


@pytest.mark.filterwarnings("ignore:(a single positive|gamma='positive')")
@pytest.mark.parametrize("make", [PCSDA, KernelPCSDA])
def test_only_a_single_positive_is_averaged_with_the_distance(make):
    X, y = make_class_specific(400, random_state=0, return_X_y=True)
    own, rest = np.flatnonzero(y == 1), np.flatnonzero(y == 0)[:150]
    for count, kind in ((1, Near), (2, Blend)):
        rows = np.append(own[:count], rest)
        model = make(random_state=0).fit(X[rows], y[rows])
        assert type(model.density_) is kind
    rows = np.append(own[:1], rest)
    for other in ({"negatives": "mixture"}, {"calibrate": False}):
        assert not isinstance(make(**other).fit(X[rows], y[rows]).density_, Near)
    one = make(random_state=0).fit(X[rows], y[rows])
    plain = make(random_state=0, calibrate=False).fit(X[rows], y[rows])
    closer = [
        spearmanr(model.log_likelihood_ratio(X), model.score_samples(X)).statistic
        for model in (one, plain)
    ]
    assert 1 - closer[0] < 0.7 * (1 - closer[1])
