"""Densities against SciPy's, sets of samples against joint Gaussians built in full."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from factories import log_density, log_ratio_by_scipy, make_rows, paper_statistics
from numpy.testing import assert_allclose, assert_array_equal
from scipy import linalg as scipy_linalg
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp
from scipy.stats import multivariate_normal, multivariate_t
from sklearn.cluster import KMeans

from pcsda.core import density as densities
from pcsda.core import solvers
from pcsda.core.density import Moments, fit_density
from pcsda.core.linalg import SingularMatrixError
from pcsda.core.scatter import GroupScatter

NEGATIVES = pytest.mark.parametrize("negatives", ["mixture", "marginal"])


def make_moments(d=3, sizes=(20, 9, 12, 15, 10), seed=0, spread=2.0):
    """Resubstituted moments of rows in d dimensions, positive mean at zero."""
    X, groups, _ = make_rows(sizes, d, seed=seed, spread=spread)
    scatter = GroupScatter.from_samples(X - X[groups == 0].mean(axis=0), groups)
    target = scatter.intra / scatter.counts.sum()
    return Moments(scatter, target, scatter.n_positive, scatter.within_freedom)


def leading_of(moments, axes):
    scatter = moments.scatter.project(np.eye(moments.scatter.means.shape[1])[list(axes)])
    target = moments.target[np.ix_(axes, axes)]
    return Moments(scatter, target, moments.n_positive, moments.n_within)


def points(n, d, seed=1):
    return 3 * np.random.default_rng(seed).standard_normal((n, d))


def gaussian(z, mean, covariance):
    return multivariate_normal.logpdf(z, mean, covariance)


def expected_ratio(z, moments, negatives, nu):
    """Log ratio from the formulas of MATH 9, with SciPy's densities."""
    s, d = moments.scatter, z.shape[1]
    phi_p = (s.positive + nu * moments.target) / (moments.n_positive + nu)
    inside = gaussian(z, np.zeros(d), phi_p)
    if negatives == "marginal":
        return inside - gaussian(z, np.zeros(d), s.phi_o)
    phi_w = (s.within + nu * moments.target) / (moments.n_within + nu)
    shares = s.counts[1:] / s.counts[1:].sum()
    parts = [np.log(p) + gaussian(z, c, phi_w) for p, c in zip(shares, s.delta, strict=True)]
    return inside - logsumexp(parts, axis=0)


@NEGATIVES
@pytest.mark.parametrize("nu", [0.0, 1.5])
@pytest.mark.parametrize("d", [1, 3])
def test_log_ratio_equals_the_difference_of_scipy_log_densities(negatives, nu, d):
    moments, z = make_moments(d), points(50, d)
    density = fit_density(moments, negatives=negatives, shrinkage=nu)
    assert_allclose(density.log_ratio(z), expected_ratio(z, moments, negatives, nu), rtol=1e-9)


def test_without_shrinkage_the_covariances_are_those_of_the_paper():
    moments = make_moments()
    s = moments.scatter
    mixture = fit_density(moments, negatives="mixture", shrinkage=0.0)
    marginal = fit_density(moments, negatives="marginal", shrinkage=0.0)
    assert_allclose(mixture.positive, s.phi_p)  # eq. (Phi_p)
    assert_allclose(mixture.negative, s.phi_w)  # eq. (Phi_w)
    assert_allclose(marginal.positive, s.phi_p)
    assert_allclose(marginal.negative, s.phi_o)  # eq. (Phi_o)
    assert_allclose(marginal.within, s.phi_w)
    assert_allclose(marginal.negative - marginal.within, s.phi_n)  # eq. (Phi_n2)
    assert (mixture.is_mixture, marginal.is_mixture) == (True, False)


@pytest.mark.parametrize("nu", [0.5, 4.0])
def test_shrinkage_adds_a_prior_of_nu_samples(nu):
    moments = make_moments()
    s = moments.scatter
    density = fit_density(moments, negatives="mixture", shrinkage=nu)
    n_p = moments.n_positive
    assert_allclose(density.positive, (n_p * s.phi_p + nu * moments.target) / (n_p + nu))
    within = (moments.n_within * s.phi_w + nu * moments.target) / (moments.n_within + nu)
    assert_allclose(density.negative, within)
    assert_allclose(density.within, within)
    assert_allclose(density.positive_strength, n_p + nu)
    assert_allclose(density.negative_strength, moments.n_within + nu)


def test_with_one_positive_the_target_is_the_only_source():
    moments = make_moments(sizes=(1, 20, 15))
    moments = Moments(moments.scatter, moments.target, 0.0, moments.n_within)
    density = fit_density(moments, negatives="mixture", shrinkage=1.5)
    assert_allclose(density.positive, moments.target)


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
def test_no_sample_and_no_prior_is_refused_by_name(sizes, which):
    moments = make_moments(sizes=sizes)
    n_positive = 0.0 if which == "positive" else moments.n_positive
    moments = Moments(moments.scatter, moments.target, n_positive, moments.n_within)
    message = f"no sample shows the spread of the {which} class"
    with pytest.raises(SingularMatrixError, match=message):
        fit_density(moments, negatives="mixture", shrinkage=0.0)


@NEGATIVES
def test_path_over_d_equals_a_refit_at_each_d(negatives):
    moments, z = make_moments(4), points(30, 4)
    path = fit_density(moments, negatives=negatives, shrinkage=0.8).log_ratio_path(z)
    assert path.shape == (30, 4)
    for d in range(1, 5):
        refit = fit_density(leading_of(moments, range(d)), negatives=negatives, shrinkage=0.8)
        assert_allclose(path[:, d - 1], refit.log_ratio(z[:, :d]), rtol=1e-9, atol=1e-9)


def test_log_ratio_is_finite_far_away():
    moments = make_moments()
    z = 1e6 * np.eye(3)
    density = fit_density(moments, negatives="mixture", shrinkage=0.0)
    assert_allclose(density.log_ratio(z), expected_ratio(z, moments, "mixture", 0.0), rtol=1e-9)


def joint_gaussian(z, between, within):
    """Log density of samples that share an unknown mean, with their full joint covariance."""
    size, d = z.shape
    covariance = np.kron(np.eye(size), within) + np.kron(np.ones((size, size)), between)
    return gaussian(z.ravel(), np.zeros(size * d), covariance)


def clipped(between, within):
    """Positive part of `between` relative to `within`."""
    values, vectors = scipy_linalg.eigh(between, within)
    back = within @ vectors
    return back @ np.diag(np.maximum(values, 0)) @ back.T


SETS = np.repeat(np.arange(5), [1, 2, 3, 1, 6])[[4, 0, 9, 2, 12, 5, 1, 7, 3, 11, 6, 8, 10]]


@pytest.mark.parametrize("rank", [3, 1], ids=["regular", "singular"])
def test_marginal_likelihood_of_sets_equals_the_joint_gaussian(rank):
    rng = np.random.default_rng(0)
    within = np.cov(rng.standard_normal((3, 9)))
    spread = 2 * rng.standard_normal((3, rank))
    between = spread @ spread.T
    z = points(len(SETS), 3)
    found = densities.marginal_log_likelihood(z, SETS, 5, between, within)
    expected = [joint_gaussian(z[s == SETS], between, within) for s in range(5)]
    assert_allclose(found, expected, rtol=1e-9)


def test_marginal_likelihood_of_sets_is_the_formula_of_the_paper():
    rng = np.random.default_rng(0)
    phi_w, phi_n = np.cov(rng.standard_normal((2, 3, 9)).reshape(6, 9))[:3, :3], np.eye(3)
    z, M, d = points(4, 3), 4, 3
    mean = z.mean(axis=0)
    S = (z - mean).T @ (z - mean)
    # eq. (P_Sk_Prod) in the form of MATH 9
    expected = (
        gaussian(mean, np.zeros(d), phi_n + phi_w / M)
        - (M - 1) / 2 * (d * np.log(2 * np.pi) + np.linalg.slogdet(phi_w)[1])
        - np.trace(np.linalg.solve(phi_w, S)) / 2
        - d / 2 * np.log(M)
    )
    found = densities.marginal_log_likelihood(z, np.zeros(4, dtype=int), 1, phi_n, phi_w)
    assert_allclose(found, [expected], rtol=1e-10)


@pytest.mark.parametrize("spread", [4.0, 0.05], ids=["regular", "clipped"])
def test_ratio_of_sets_with_marginal_negatives_equals_the_joint_gaussian(spread):
    moments = make_moments(spread=spread)
    density = fit_density(moments, negatives="marginal", shrinkage=0.0)
    between = density.negative - density.within
    assert (np.linalg.eigvalsh(between)[0] > 0) == (spread > 1)
    z = points(len(SETS), 3)
    found = density.log_ratio_of_sets(z, SETS, 5)
    for s in range(5):
        own = z[s == SETS]
        inside = gaussian(own, np.zeros(3), density.positive).sum()
        if len(own) == 1:  # scored by the density itself, whatever was clipped from it
            outside = gaussian(own, np.zeros(3), density.negative)
        else:
            outside = joint_gaussian(own, clipped(between, density.within), density.within)
        assert_allclose(found[s], inside - outside, rtol=1e-9)


def test_ratio_of_sets_with_mixture_negatives_lets_a_set_share_its_subclass():
    moments = make_moments()
    density = fit_density(moments, negatives="mixture", shrinkage=0.7)
    z = points(len(SETS), 3)
    found = density.log_ratio_of_sets(z, SETS, 5)
    shares = moments.scatter.counts[1:] / moments.scatter.n_negative
    for s in range(5):
        own = z[s == SETS]
        inside = gaussian(own, np.zeros(3), density.positive).sum()
        outside = [
            np.log(share) + np.sum(gaussian(own, centre, density.negative))
            for share, centre in zip(shares, moments.scatter.delta, strict=True)
        ]
        assert_allclose(found[s], inside - logsumexp(outside), rtol=1e-9)


@pytest.mark.parametrize("rows_at_once", [1, 4])
def test_sets_may_lie_across_blocks(monkeypatch, rows_at_once):
    density = fit_density(make_moments(), negatives="mixture", shrinkage=0.7)
    z = points(len(SETS), 3)
    whole = density.log_ratio_of_sets(z, SETS, 5)
    monkeypatch.setattr(densities.linalg, "BLOCK_BYTES", 8 * density.centres.size * rows_at_once)
    assert_allclose(density.log_ratio_of_sets(z, SETS, 5), whole, rtol=1e-12)


@NEGATIVES
def test_the_subclass_means_are_kept_under_every_density(negatives):
    moments = make_moments()
    density = fit_density(moments, negatives=negatives, shrinkage=0.3)
    assert_allclose(density.subclasses, moments.scatter.delta)


@NEGATIVES
@pytest.mark.parametrize("spread", [4.0, 0.05], ids=["regular", "clipped"])
def test_sets_of_one_sample_equal_rows(negatives, spread):
    density = fit_density(make_moments(spread=spread), negatives=negatives, shrinkage=0.3)
    z = points(12, 3)
    order = np.random.default_rng(0).permutation(12)
    of_sets = density.log_ratio_of_sets(z, order, 12)
    assert_allclose(of_sets[order], density.log_ratio(z), rtol=1e-9, atol=1e-12)


def test_negatives_of_a_set_are_independent_where_each_is_its_own_subclass():
    moments = make_moments(sizes=(20, *[1] * 12))
    density = fit_density(moments, negatives="marginal", shrinkage=0.0)
    assert density.within is None
    z = points(len(SETS), 3)
    found = density.log_ratio_of_sets(z, SETS, 5)
    assert_allclose(found, np.bincount(SETS, density.log_ratio(z)), rtol=1e-9)


@pytest.mark.parametrize(
    ("sizes", "d"), [((9, 5, 7, 4, 6, 3), 2), ((9, 12, 10), 3)], ids=["regular", "clipped"]
)
@pytest.mark.parametrize("ridge", [0.0, 0.8])
def test_training_likelihood_equals_the_joint_gaussian_of_each_group(sizes, d, ridge):
    X, groups, _ = make_rows(sizes, d, spread=3.0)
    s = paper_statistics(X, groups)
    phi_p = (s.S_p + ridge * np.eye(d)) / s.n_p
    phi_w = (s.S_w + ridge * np.eye(d)) / (s.n_n - s.n_k)
    phi_n = s.S_n / s.n_k - phi_w / (s.n_n / s.n_k)
    assert (np.linalg.eigvalsh(phi_n)[0] > 0) == (len(sizes) > 4)
    expected = gaussian(X[groups == 0], s.m, phi_p).sum()
    for k in range(1, len(sizes)):
        expected += joint_gaussian(X[groups == k] - s.m, clipped(phi_n, phi_w), phi_w)
    scatter = GroupScatter.from_samples(X, groups)
    assert_allclose(densities.training_log_likelihood(scatter, ridge), expected, rtol=1e-10)


def test_bic_counts_a_mean_three_covariances_and_the_shares_and_pays_for_labels():
    X, groups, _ = make_rows([9, 5, 7, 4, 6, 3], 2)
    scatter = GroupScatter.from_samples(X, groups)
    likelihood = densities.training_log_likelihood(scatter)
    likelihood += sum(n * np.log(n / 25) for n in (5, 7, 4, 6, 3))
    parameters = 2 + 3 * 3 + 4
    assert_allclose(densities.bic(scatter), parameters * np.log(34) - 2 * likelihood)


@pytest.mark.parametrize(("planted", "d"), [(1, 2), (3, 2), (4, 3), (6, 8)])
def test_bic_finds_the_planted_number_of_well_separated_subclasses(planted, d):
    rng = np.random.default_rng(0)
    centres = 20 * rng.standard_normal((planted, d))
    negatives = np.vstack([c + rng.standard_normal((60, d)) for c in centres])
    X = np.vstack([rng.standard_normal((60, d)), negatives])
    found = {}
    for n_subclasses in range(1, 10):
        labels = KMeans(n_subclasses, n_init=5, random_state=0).fit(negatives).labels_
        groups = np.concatenate([np.zeros(60, dtype=np.intp), labels + 1])
        found[n_subclasses] = densities.bic(GroupScatter.from_samples(X, groups))
    assert np.all(np.isfinite(list(found.values())))
    assert min(found, key=found.get) == planted


def test_likelihood_needs_fewer_subclasses_than_negatives():
    X, groups, _ = make_rows([9, 1, 1, 1], 2)
    message = (
        "the likelihood needs fewer subclasses than negatives, got 3 subclasses of 3 negatives; "
        "lower n_subclasses"
    )
    with pytest.raises(ValueError, match=message):
        densities.training_log_likelihood(GroupScatter.from_samples(X, groups))


def heavy(tails, *, negatives="blend", d=3, shares=(0.7, 0.4), **changes):
    """Densities with the given degrees of freedom and shares."""
    density = fit_density(make_moments(d, **changes), negatives=negatives, shrinkage=0.7)
    if density.axis is None:
        return replace(density, tails=tails)
    return replace(density, tails=tails, shares=shares, offset=-1.3)


TAILS = pytest.mark.parametrize(
    "tails", [(np.inf, np.inf), (3.0, np.inf), (2.6, 40.0), (150.0, 5.0)], ids=str
)
BLENDS = pytest.mark.parametrize("negatives", ["blend", "mixture"])


@TAILS
@BLENDS
@pytest.mark.parametrize("d", [1, 3])
def test_tails_are_those_of_scipy_with_the_same_covariances(tails, negatives, d):
    density, z = heavy(tails, negatives=negatives, d=d), np.vstack([points(50, d), 1e3 * np.eye(d)])
    expected = log_ratio_by_scipy(density, z)
    assert_allclose(density.log_ratio(z), expected, rtol=1e-9, atol=1e-9)
    assert_allclose(density.log_ratio(z[0]), expected[0], rtol=1e-9)
    assert (density.axis is not None) == (negatives == "blend")


@pytest.mark.parametrize("width", [1, 2, 7])
@pytest.mark.parametrize("tail", [2.5, 4.0, 200.0, np.inf])
def test_log_density_is_that_of_scipy(width, tail):
    covariance = np.cov(np.random.default_rng(0).standard_normal((width, 20))).reshape(width, width)
    z, white = points(30, width), densities.whitening(covariance)
    found = densities.log_density(z @ white.T, white, tail)
    assert_allclose(found, log_density(z, np.zeros(width), covariance, tail), rtol=1e-10)


def test_the_limit_of_light_tails_is_a_gaussian():
    z = points(50, 3)
    light = heavy((1e12, 1e12)).log_ratio(z)
    assert_allclose(light, heavy((np.inf, np.inf)).log_ratio(z), rtol=1e-6, atol=1e-6)


@TAILS
@BLENDS
def test_path_over_d_equals_the_margin_at_each_d(tails, negatives):
    density, z = heavy(tails, negatives=negatives, d=4), points(30, 4)
    path = density.log_ratio_path(z) + (density.offset or 0.0)
    for d in range(1, 5):
        margin = density.margin(range(d))
        assert_allclose(margin.positive, density.positive[:d, :d])
        assert_allclose(margin.subclasses, density.subclasses[:, :d])
        expected = log_ratio_by_scipy(margin, z[:, :d])
        assert_allclose(path[:, d - 1], expected, rtol=1e-9, atol=1e-9)
        assert_allclose(margin.log_ratio(z[:, :d]), expected, rtol=1e-9, atol=1e-9)


def test_margins_without_fishers_axis_are_those_of_the_mixture():
    density, z = heavy((4.0, 5.0)), points(30, 3)
    turned = replace(density, axis=np.array([0.0, 1.0, 0.5]))
    path = turned.log_ratio_path(z)
    margin = turned.margin([0])
    assert margin.axis is None
    assert_allclose(path[:, 0], log_ratio_by_scipy(margin, z[:, :1]), rtol=1e-9)
    assert_allclose(margin.log_ratio(z[:, :1]), path[:, 0], rtol=1e-9)
    assert_allclose(path[:, 2] + turned.offset, turned.log_ratio(z), rtol=1e-9)


@NEGATIVES
def test_margins_take_sets_too(negatives):
    density = fit_density(make_moments(), negatives=negatives, shrinkage=0.7)
    z, axes = points(len(SETS), 3), [2, 0]
    whole = fit_density(
        leading_of(make_moments(), axes), negatives=negatives, shrinkage=0.7
    ).log_ratio_of_sets(z[:, axes], SETS, 5)
    found = density.margin(axes).log_ratio_of_sets(z[:, axes], SETS, 5)
    assert_allclose(found, whole, rtol=1e-9)


@TAILS
@BLENDS
def test_sets_of_blends_share_a_subclass_and_are_independent_in_the_cloud(tails, negatives):
    density, z = heavy(tails, negatives=negatives), points(len(SETS), 3)
    expected = log_ratio_by_scipy(density, z, SETS)
    assert_allclose(density.log_ratio_of_sets(z, SETS, 5), expected, rtol=1e-9)


def test_pickles_keep_tails_axis_and_shares_and_nothing_else():
    density, z = heavy((4.0, 5.0)), points(9, 3)
    expected = density.log_ratio(z)  # which keeps what it made on the way
    again = pickle.loads(pickle.dumps(density))
    assert "products" not in vars(again)
    assert (again.tails, again.shares) == (density.tails, density.shares)
    assert again.offset == density.offset == -1.3
    assert_array_equal(again.axis, density.axis)
    assert_array_equal(again.log_ratio(z), expected)


def test_only_a_blend_has_a_cloud():
    with pytest.raises(ValueError, match="only a blend sees the negatives as one cloud"):
        _ = heavy((4.0, np.inf), negatives="mixture").cloud


def test_one_subclass_is_a_cloud_already():
    blend, mixture = (heavy((4.0, 5.0), negatives=n, sizes=(20, 15)) for n in ("blend", "mixture"))
    assert blend.axis is None
    assert_array_equal(blend.log_ratio(points(9, 3)), mixture.log_ratio(points(9, 3)))


@pytest.mark.parametrize("ridge", [0.0, 5.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_fishers_axis_of_all_k_axes_is_the_solution_of_one_subclass(ridge, weighted):
    """Where covariances times numbers of samples are the scatter of the fit, ridge included."""
    X, groups, weights = make_rows([20, 9, 12, 15, 10], 8, weighted=weighted)
    scatter = GroupScatter.from_samples(X, groups, weights=weights)
    projection = solvers.cholesky(scatter, ridge)
    assert projection.rank == 4
    W = projection.components
    projected = scatter.project(W)
    # The ridge is scatter like any other: here the positives have it.
    projected = replace(projected, positive=projected.positive + ridge * W @ W.T)
    moments = Moments(projected, np.eye(4), projected.n_positive, projected.n_negative)
    axis = fit_density(moments, negatives="blend", shrinkage=0.0).axis
    one = GroupScatter.from_samples(X, np.minimum(groups, 1), weights=weights)
    expected = solvers.cholesky(one, ridge).components[0]
    found = axis @ W
    found *= np.linalg.norm(expected) / np.linalg.norm(found) * np.sign(found @ expected)
    assert_allclose(found, expected, atol=1e-10 * np.abs(expected).max())


@pytest.mark.parametrize("scale", [1.0, 1e-30, 1e30])
def test_negatives_about_the_positive_mean_have_no_axis(scale):
    half, groups, _ = make_rows([20, 9, 12], 3)
    half[groups == 0] -= half[groups == 0].mean(axis=0)
    rows, mirrored = half[groups > 0], np.where(groups > 0, groups + 2, 0)[groups > 0]
    X = scale * np.vstack([half[groups == 0], -half[groups == 0], rows, -rows])
    both = np.concatenate([np.zeros(40, dtype=np.intp), groups[groups > 0], mirrored])
    scatter = GroupScatter.from_samples(X, both)
    moments = Moments(scatter, scatter.intra / 82, 40.0, 42.0)
    density = fit_density(moments, negatives="blend", shrinkage=1.0)
    assert density.axis is None
    assert density.shares == (1.0, 0.0)


def squares_of(tail, d, n, seed=0):
    """Squared Mahalanobis distances of draws of unit covariance."""
    if np.isinf(tail):
        z = np.random.default_rng(seed).standard_normal((n, d))
    else:
        z = multivariate_t.rvs(np.zeros(d), np.eye(d) * (tail - 2) / tail, tail, n, seed)
    return np.sum(np.reshape(z, (n, d)) ** 2, axis=1)


def t_loss(tail, squares, d, weights):
    """Minus the log likelihood by SciPy, at points on one axis."""
    z = np.sqrt(squares)[:, None] * np.eye(d)[0]
    return -weights @ np.atleast_1d(log_density(z, np.zeros(d), np.eye(d), tail))


@pytest.mark.parametrize("d", [1, 4])
@pytest.mark.parametrize("planted", [4.0, 10.0])
def test_planted_tails_are_found(planted, d):
    n = 4000
    squares = squares_of(planted, d, n)
    found = densities.fit_tail(squares, d, np.ones(n))
    best = minimize_scalar(
        lambda inverse: t_loss(1 / inverse, squares, d, np.ones(n)), bounds=(0.005, 0.4)
    )
    assert_allclose(found, 1 / best.x, rtol=1e-3)
    assert t_loss(found, squares, d, np.ones(n)) <= best.fun * (1 + 1e-12)
    # Four standard errors, from the curvature of the likelihood.
    step = 1e-2 * found
    losses = [t_loss(found + k * step, squares, d, np.ones(n)) for k in (-1, 0, 1)]
    error = step / np.sqrt(losses[0] - 2 * losses[1] + losses[2])
    assert error < 0.2 * planted
    assert abs(found - planted) < 4 * error


@pytest.mark.parametrize(("n", "least"), [(1000, 10), (40_000, 20)], ids=["exact", "binned"])
def test_gaussian_data_have_gaussian_tails(n, least):
    found = [densities.fit_tail(squares_of(np.inf, 3, n, s), 3, np.ones(n)) for s in range(20)]
    # Of few, some spread more by chance: their tails are hardly heavier.
    assert np.isinf(found).sum() >= least
    assert min(found) > 30


def test_lighter_tails_than_a_gaussians_are_a_gaussians():
    assert densities.fit_tail(np.full(300, 3.0), 3, np.ones(300)) == np.inf


@pytest.mark.parametrize("n", [50, 4000], ids=["exact", "binned"])
def test_whole_weights_of_distances_equal_repetition(n):
    squares = squares_of(5.0, 2, n)
    weights = np.random.default_rng(1).integers(0, 5, n)
    repeated = np.repeat(squares, weights)
    found = densities.fit_tail(squares, 2, weights.astype(float))
    expected = densities.fit_tail(repeated, 2, np.ones(len(repeated)))
    assert np.isfinite(expected)
    # Where one of them is in bins and the other is not, the bins are the difference.
    assert_allclose(found, expected, rtol=1e-10 if n == 50 else 1e-4)


def test_many_distances_in_any_order_have_the_same_tail():
    squares = squares_of(5.0, 2, 20_000)
    weights = np.random.default_rng(1).uniform(0.2, 2, 20_000)
    order = np.random.default_rng(2).permutation(20_000)
    found = densities.fit_tail(squares, 2, weights)
    assert_allclose(densities.fit_tail(squares[order], 2, weights[order]), found, rtol=1e-10)
    exact = minimize_scalar(
        lambda inverse: t_loss(1 / inverse, squares, 2, weights), bounds=(0.05, 0.4)
    )
    assert_allclose(found, 1 / exact.x, rtol=1e-3)


def test_no_distance_or_no_weight_tells_no_tail():
    assert densities.fit_tail(np.zeros(0), 3, np.zeros(0)) == np.inf
    assert densities.fit_tail(np.array([1.0, 1e9]), 3, np.zeros(2)) == np.inf


def test_the_heaviest_tail_has_a_bound():
    squares = np.append(np.full(50, 1e-3), 1e6)
    assert densities.fit_tail(squares, 2, np.ones(51)) == densities.HEAVIEST


def test_log_sum_exp_takes_missing_entries_and_large_values():
    values = np.array([[0.0, -np.inf], [1e4, 1e4], [-1e4, -1e4 + np.log(3)]])
    assert_allclose(densities.log_sum_exp(values), logsumexp(values, axis=1))
    assert_array_equal(densities.log_sum_exp(np.array([[2.0], [-np.inf]])), [2.0, -np.inf])


def test_whitening_makes_the_covariance_the_identity():
    covariance = make_moments().scatter.phi_o
    white = densities.whitening(covariance)
    assert_allclose(white @ covariance @ white.T, np.eye(3), atol=1e-12)
    assert_array_equal(np.triu(white, 1), 0)
    assert_allclose(densities.log_volume(white), -np.linalg.slogdet(covariance)[1] / 2)
