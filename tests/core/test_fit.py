"""From rows to a scored model: the paper's equations, left-out scores, calibration, refusals."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from factor_factories import TALL_AND_WIDE, WEIGHTED, as_seen, close, make_factor
from factories import (
    assert_same_blend,
    bent,
    cloud_without,
    generalized_eigen,
    log_density,
    make_rows,
    paper_statistics,
    positives_without,
    refit_without_each_row,
    scores_by_scipy,
    tails_of,
    with_heavy_tails,
)
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize
from scipy.special import logsumexp

from pcsda import PCSDA
from pcsda.core.calibration import Calibration, Scored, fit_calibration
from pcsda.core.csda import Criterion, CSDAFactor
from pcsda.core.density import Blend, Marginal, Mixture, NoDensity
from pcsda.core.direct import DirectFactor
from pcsda.core.factor import factor_once
from pcsda.core.fit import Rule, calibrated_on, complete, fit
from pcsda.core.linalg import TooFewRowsError
from pcsda.core.logistic import OFFSET_SPREAD
from pcsda.core.loo import EVERY, Leave, sample_rows
from pcsda.core.predictive import with_strays

GAUSSIANS = [Rule(negatives, None, "gaussian") for negatives in ("mixture", "marginal")]
RULES = pytest.mark.parametrize(
    "rule",
    [*GAUSSIANS, Rule("mixture"), Rule("blend", None, "gaussian"), Rule()],
    ids=lambda rule: f"{rule.negatives}-{rule.tails}",
)
DEFAULT = Rule()
RESUBSTITUTED = Rule(leave_one_out=False, calibrate=False)


def fit_rows(X, groups, weights=None, rule=DEFAULT, *, name=None, regularization=0.01, d=None):
    """Fit with the factor that a single fit uses, or with a named one."""
    if name is None:
        factor = factor_once(X, regularization, weights)
    else:
        factor = make_factor(name, X, regularization, weights)
    return fit(factor, groups, rule, d)


# --- against the paper ---------------------------------------------------------------------------


def published_rule(X, groups, d, regularization, priors):
    """Run Algorithms 1 and 2 of the paper; return a function from rows to (z, g, distance)."""
    s = paper_statistics(X, groups)
    phi_p = s.S_p / s.n_p  # eq. (Phi_p)
    phi_o = s.S_n / s.n_k + s.S_w / s.n_n  # eq. (Phi_o)
    ridge = regularization * s.total_variance
    W = generalized_eigen(s.S_n, s.S_I + ridge * np.eye(X.shape[1]), d)[1].T
    tilde_p, tilde_o = W.T @ phi_p @ W, W.T @ phi_o @ W  # eq. (tilde_Phi_matrices)
    if priors == "equal":
        p_p = p_n = 0.5
    else:
        p_p, p_n = s.n_p / len(X), s.n_n / len(X)

    def score(rows):
        z = (rows - s.m) @ W
        inside = np.einsum("ij,ij->i", z, np.linalg.solve(tilde_p, z.T).T)
        outside = np.einsum("ij,ij->i", z, np.linalg.solve(tilde_o, z.T).T)
        g = np.log(p_p) - np.log(p_n)
        g += 0.5 * np.linalg.slogdet(tilde_o)[1] - 0.5 * np.linalg.slogdet(tilde_p)[1]
        return z, g - 0.5 * inside + 0.5 * outside, np.linalg.norm(z, axis=1)

    return score


@pytest.mark.each_value
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("priors", ["empirical", "equal"])
@pytest.mark.parametrize(
    ("width", "d", "regularization"),
    [(6, 4, 0.0), (6, 2, 0.01), (70, 4, 0.01), (300, 3, 0.1)],
    ids=["D<N no ridge", "D<N", "D>N", "D>>N"],
)
def test_the_published_rule_equals_the_papers_formulas(seed, priors, width, d, regularization):
    X, groups, _ = make_rows([14, 9, 12, 7, 11], width, seed=seed, spread=1.0)
    # Fresh rows at all distances from the positive mean, so that both answers occur.
    rng = np.random.default_rng(seed + 10)
    reach = np.geomspace(1e-3, 3, 40)[:, None]
    fresh = X[groups == 0].mean(axis=0) + reach * rng.standard_normal((40, width))
    estimator = PCSDA.published(4, d, regularization=regularization, priors=priors)
    estimator.fit(X, groups == 0, subclass_labels=groups)
    rule = published_rule(X, groups, d, regularization, priors)
    for rows in (X, fresh):
        z, g, distance = rule(rows)
        close(estimator.transform(rows), z, 1e-8)
        close(estimator.decision_function(rows), g, 1e-8)
        # eq. (Lambda): the ratio of the posteriors
        log_proba = estimator.predict_log_proba(rows)
        close(log_proba[:, 1] - log_proba[:, 0], g, 1e-8)
        assert_array_equal(estimator.predict(rows), g >= 0)
        assert_allclose(estimator.score_samples(rows), -distance, rtol=1e-8)
        assert_array_equal(estimator.rank(rows), np.argsort(distance, kind="stable"))
        assert_array_equal(estimator.rank(rows, by="likelihood"), np.argsort(-g, kind="stable"))
    near = np.abs(g) < 30
    proba = estimator.predict_proba(fresh)[near]
    assert {*estimator.predict(fresh)} == {False, True}
    assert_allclose(proba[:, 1] / proba[:, 0], np.exp(g[near]), rtol=1e-6)


# --- whatever the factor -------------------------------------------------------------------------


def limited(fitted):
    """Return an uncalibrated model whose ratios are limited by the numbers of its rows."""
    counts = fitted.subspace.projected.counts
    none = Calibration.none(fitted.density.n_views)
    return replace(fitted, calibration=none.limited(counts[0], counts[1:].sum()))


def assert_same_model(found, expected, X, name="direct", rtol=1e-7):
    """Check that eigenvalues, densities, calibration and scores agree; axes may differ in sign."""
    z, other = (
        f.subspace.project(rows) for f, rows in [(found, as_seen(name, X, X)), (expected, X)]
    )
    assert z.shape == other.shape
    close(found.subspace.eigenvalues, expected.subspace.eigenvalues, rtol)
    signs = np.sign(np.sum(z * other, axis=0))
    if np.all(signs == 1):
        assert_same_blend(found, expected, rtol)
    assert_allclose(tails_of(found.density), tails_of(expected.density), rtol=rtol)
    close(found.calibration.weights, expected.calibration.weights, rtol)
    assert_allclose(found.score(as_seen(name, X, X)), expected.score(X), rtol=rtol, atol=rtol)
    assert (found.left_out is None) == (expected.left_out is None)
    if expected.left_out is not None:
        assert_allclose(found.left_out, expected.left_out, rtol=rtol, atol=rtol)


@pytest.mark.each_value
@TALL_AND_WIDE
@RULES
@pytest.mark.parametrize("name", ["eigen", "spectral", "white", "gram", "kernel", "features"])
def test_every_factor_gives_the_same_model(name, width, rule):
    X, groups, weights = make_rows([14, 9, 1, 12, 7], width, weighted=True)
    X = with_heavy_tails(X, groups)
    expected = fit_rows(X, groups, weights, rule, name="direct", d=3)
    found = fit_rows(X, groups, weights, rule, name=name, d=3)
    assert np.all(np.isfinite(expected.left_out))
    assert isinstance(expected.density, Blend) == (rule.negatives == "blend")
    assert_same_model(found, expected, X, name, 1e-6)


@TALL_AND_WIDE
@WEIGHTED
def test_products_alone_give_the_resubstituted_model(width, weighted):
    X, groups, weights = make_rows([14, 9, 12, 7], width, weighted=weighted)
    expected = fit_rows(X, groups, weights, RESUBSTITUTED)
    found = fit_rows(X, groups, weights, RESUBSTITUTED, name="lsqr")
    assert_same_model(found, expected, X, rtol=1e-6)
    # No row can be left out here, so the rule may as well ask for it; but then ratios are limited.
    found = fit_rows(X, groups, weights, name="lsqr")
    assert_same_model(found, limited(expected), X, rtol=1e-6)


@RULES
def test_scores_do_not_change_under_invertible_affine_maps_without_ridge(rule):
    X, groups, weights = make_rows([24, 15, 18, 17], 5, weighted=True)
    X = with_heavy_tails(X, groups)
    rng = np.random.default_rng(0)
    moved = X @ (rng.standard_normal((5, 5)) + 2 * np.eye(5)) * 7 + rng.standard_normal(5) * 100
    first = fit_rows(X, groups, weights, rule, regularization=0.0)
    second = fit_rows(moved, groups, weights, rule, regularization=0.0)
    assert_allclose(second.score(moved), first.score(X), rtol=1e-7, atol=1e-7)
    assert_allclose(second.left_out, first.left_out, rtol=1e-7, atol=1e-7)


@TALL_AND_WIDE
@pytest.mark.parametrize("scale", [1e-30, 1e-3, 1e30])
def test_scores_do_not_depend_on_the_unit_of_measurement(width, scale):
    X, groups, _ = make_rows([14, 9, 12, 7], width)
    X = with_heavy_tails(X, groups)
    first, second = fit_rows(X, groups), fit_rows(X * scale, groups)
    assert_allclose(second.score(X * scale), first.score(X), rtol=1e-7, atol=1e-7)
    assert_allclose(second.left_out, first.left_out, rtol=1e-7, atol=1e-7)
    assert_same_blend(second, first)
    assert np.isfinite(first.density.base.tail) or width > len(X)


@TALL_AND_WIDE
@RULES
def test_integer_weights_equal_repeated_rows_with_resubstitution(width, rule):
    X, groups, _ = make_rows([14, 9, 12, 7], width)
    weights = np.random.default_rng(2).integers(1, 4, len(X))
    rule = replace(rule, leave_one_out=False, calibrate=False)
    weighted = fit_rows(X, groups, weights.astype(float), rule)
    repeated = fit_rows(np.repeat(X, weights, axis=0), np.repeat(groups, weights), None, rule)
    assert_same_model(weighted, repeated, X)


@TALL_AND_WIDE
@pytest.mark.parametrize("leave_one_out", [False, True])
@pytest.mark.parametrize("negatives", ["mixture", "marginal"])
def test_path_over_d_equals_a_fit_at_each_d(width, leave_one_out, negatives):
    X, groups, _ = make_rows([14, 9, 12, 7], width)
    rule = Rule(negatives, 1.5, "gaussian", leave_one_out, calibrate=False)
    every = fit_rows(X, groups, None, rule)
    (path,) = every.density.path(every.subspace.project(X))
    for d in (1, 2, 3):
        fitted = fit_rows(X, groups, None, rule, d=d)
        assert fitted.subspace.coefficients.shape == (width, d)
        assert_allclose(path[:, d - 1], fitted.score(X), rtol=1e-7, atol=1e-7)


@RULES
@TALL_AND_WIDE
def test_scores_are_the_densities_of_the_projections(width, rule):
    X, groups, _ = make_rows([14, 9, 12, 7], width, seed=3)
    fitted = fit_rows(X, groups, None, rule)
    expected = scores_by_scipy(fitted, fitted.subspace.project(X))
    assert_allclose(fitted.score(X), expected, rtol=1e-8, atol=1e-8)


# --- left-out scores -----------------------------------------------------------------------------


def brute_force_left_out(X, groups, weights, fitted, rule):
    """Compute left-out views by refitting the statistics, then the covariances (MATH 8 and 9).

    The tails and the cloud of all negatives stay as in the full fit.
    """
    negatives, density = rule.negatives, fitted.density
    tail = density.base.tail
    w = np.ones(len(X)) if weights is None else weights
    s = paper_statistics(X, groups, w)
    ridge = 0.01 * s.total_variance
    W = fitted.subspace.coefficients.T
    d = len(W)
    z, rho, moved = refit_without_each_row(X, groups, w, ridge, W)
    alone = np.bincount(groups)[groups] == 1
    rows = {"positive": groups == 0, "negative": (groups > 0) & ~alone}
    sums = {name: (rho[r] * w[r, None]).T @ rho[r] for name, r in rows.items()}
    n = {name: w[r].sum() for name, r in rows.items()}
    target = (
        sums["positive"] + sums["negative"] + 1e-8 * W @ (s.S_I + ridge * np.eye(len(W.T))) @ W.T
    )
    target /= n["positive"] + n["negative"]
    nu = d / 2
    phi = {name: (sums[name] + nu * target) / (n[name] + nu) for name in rows}
    marginal = W @ s.S_n @ W.T / s.n_k + sums["negative"] / s.n_n
    centres = s.delta @ W.T
    views, of_cloud = [], []
    left = SimpleNamespace(
        coordinates=z, groups=groups, weight=w, mass=w, known=~alone, together=None
    )
    base = SimpleNamespace(positive=phi["positive"], positive_strength=n["positive"] + nu)
    for i, group in enumerate(groups):
        phi_p, move = positives_without(base, left, np.arange(len(z)) == i)
        phi_n = marginal if negatives == "marginal" else phi["negative"]
        shares, own = s.counts[1:].copy(), (centres if group > 0 else moved[i]) + move
        if isinstance(density, Blend):
            of_cloud.append(cloud_without(density, phi_p, own, s.counts, z[i]))
        if group > 0:
            shares[group - 1] = 0 if alone[i] else shares[group - 1] - w[i]
            own[group - 1] = z[i] - rho[i]
            if negatives == "marginal":
                phi_n = phi_n - w[i] * np.outer(rho[i], rho[i]) / s.n_n
            elif not alone[i]:
                strength = n["negative"] + nu
                phi_n = (strength * phi_n - w[i] * np.outer(rho[i], rho[i])) / (strength - w[i])
        if negatives == "marginal":
            outside = log_density(z[i], np.zeros(d), phi_n)
        else:
            parts = [log_density(z[i], c, phi_n, tail) for c in own]
            outside = logsumexp(parts, b=shares / shares.sum())
        views.append(log_density(z[i], np.zeros(d), phi_p, tail) - outside)
    return np.array([views, of_cloud] if of_cloud else [views])


@pytest.mark.each_value
@TALL_AND_WIDE
@WEIGHTED
@RULES
def test_left_out_scores_equal_refits_from_the_rows_on(width, weighted, rule):
    X, groups, weights = make_rows([14, 9, 1, 12, 7], width, weighted=weighted)
    X = with_heavy_tails(X, np.minimum(groups, 1))
    fitted = fit_rows(X, groups, weights, rule, d=3)
    heavy = [np.isfinite(tail) for tail in tails_of(fitted.density)]
    assert any(heavy) == (rule.tails == "fitted")
    views = brute_force_left_out(X, groups, weights, fitted, rule)
    expected = np.array(fitted.calibration.weights) @ views + fitted.calibration.offset
    expected = bent(fitted.calibration, expected)
    assert_allclose(fitted.left_out, expected, rtol=1e-7, atol=1e-7)


@WEIGHTED
@RULES
def test_the_calibration_is_a_logistic_regression_on_left_out_views(weighted, rule):
    X, groups, weights = make_rows([30, 19, 1, 28, 17, 1, 25], 5, weighted=weighted)
    fitted = fit_rows(with_heavy_tails(X, groups), groups, weights, rule, d=3)
    left = fitted.subspace.left
    views = fitted.density.left_out_views(left, fitted.subspace.projected.counts)
    assert np.all(np.isfinite(views))  # also of negatives that are alone in their subclass
    w = left.weight
    sign = np.where(groups == 0, -1.0, 1.0)
    prior_odds = np.log(w[sign < 0].sum() / w[sign > 0].sum())
    n = len(views)

    def loss(point):
        slopes, offset = np.exp(point[:n]), point[n]
        wrong = sign * (slopes @ views + offset + prior_odds)
        prior = n * slopes.sum() - point[:n].sum() + (offset / OFFSET_SPREAD) ** 2 / 2
        return w @ np.logaddexp(0, wrong) + prior

    best = minimize(
        loss, np.zeros(n + 1), method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 0}
    )
    assert_allclose(np.log(fitted.calibration.weights), best.x[:n], atol=1e-5)
    assert_allclose(fitted.calibration.offset, best.x[n], atol=1e-5)
    assert_allclose(fitted.left_out, fitted.calibration(views))


@RULES
def test_without_calibration_views_count_alike(rule):
    X, groups, _ = make_rows([14, 9, 12, 7], 6)
    fitted = fit_rows(X, groups, None, replace(rule, calibrate=False))
    assert fitted.calibration == Calibration.none(fitted.density.n_views)
    views = fitted.density.left_out_views(fitted.subspace.left, fitted.subspace.projected.counts)
    assert_allclose(fitted.left_out, views.mean(axis=0))


def test_a_warm_start_changes_only_the_number_of_steps():
    X, groups, _ = make_rows([30, 19, 28, 25], 5)
    expected = fit_rows(X, groups)
    fitted = expected.calibration.weights
    for weights, offset in (((1e-9, 3.0), -5.0), ((0.2, 0.1), 0.0), (fitted, 1.0)):
        near = replace(expected, calibration=Calibration(weights, offset))
        found = complete(expected.subspace, Rule(), near=near)
        assert_allclose(found.calibration.weights, expected.calibration.weights, rtol=1e-7)
        assert_allclose(found.left_out, expected.left_out, rtol=1e-7, atol=1e-7)


def test_a_weighted_sample_of_duplicates_equals_the_full_fit():
    """One of two duplicate rows may be left out to represent both."""
    X, groups, _ = make_rows([30, 19, 28, 25], 5)
    X = with_heavy_tails(X, groups)
    twice = np.concatenate([np.arange(len(X)), np.flatnonzero(groups > 0)])
    X, groups = X[twice], groups[twice]
    expected = fit(DirectFactor(X, 0.1), groups, Rule())
    rows = np.arange(102)
    leave = Leave(rows, np.where(groups[rows] > 0, 2.0, 1.0))
    found = fit(DirectFactor(X, 0.1), groups, Rule(), leave=leave)
    assert_allclose(found.density.base.positive, expected.density.base.positive, rtol=1e-9)
    assert_allclose(found.density.base.negative, expected.density.base.negative, rtol=1e-9)
    np.testing.assert_array_equal(np.isnan(found.left_out_of(len(X))), np.arange(len(X)) >= 102)


def test_rows_that_cannot_be_left_out_neither_shape_nor_calibrate():
    """Without a ridge, the row that keeps the scatter regular keeps its fitted coordinates."""
    X, groups, _ = make_rows([24, 9, 12, 7], 5)
    X = np.column_stack([X, np.where(np.arange(len(X)) == 30, 3.0, 0.0)])
    fitted = fit_rows(X, groups, regularization=0.0)
    left = fitted.subspace.left
    assert_array_equal(np.flatnonzero(~left.known), [30])
    assert np.all(np.isfinite(fitted.left_out))
    views = fitted.density.left_out_views(left, fitted.subspace.projected.counts)
    expected = fit_calibration(views[:, left.known], groups[left.known] == 0)
    assert_allclose(fitted.calibration.weights, expected.weights, rtol=1e-6)


# --- rows held out where none can be left out ----------------------------------------------------


def held_out(scores, positive, weights=None):
    return lambda: Scored(np.asarray(scores), np.asarray(positive), weights)


def test_held_out_scores_calibrate_where_no_row_can_be_left_out():
    X, groups, _ = make_rows([14, 9, 12, 7], 6)
    rng = np.random.default_rng(0)
    positive = groups == 0
    scores = rng.standard_normal(len(X)) + 2 * positive
    scores[3] = np.nan  # no model was fitted without this row
    rule = Rule(leave_one_out=False)
    fitted = fit(factor_once(X, 0.01), groups, rule, held_out=held_out(scores, positive))
    plain = fit(factor_once(X, 0.01), groups, replace(rule, calibrate=False))
    seen = np.isfinite(scores)
    shown = with_strays(scores[None, seen], positive[seen], np.ones(seen.sum()))
    expected = fit_calibration(*shown)
    assert isinstance(fitted.density, Mixture)  # nothing determines the weights of a blend
    assert fitted.left_out is None
    ratios = expected.slope * plain.score(X) + expected.offset
    counts = positive[seen].sum(), (~positive[seen]).sum()
    assert_allclose(fitted.score(X), bent(Calibration().limited(*counts), ratios))


def test_held_out_scores_are_computed_only_when_needed():
    X, groups, _ = make_rows([14, 9, 12, 7], 6)

    def fail():
        raise AssertionError("asked for")

    for rule in (Rule(), Rule(calibrate=False), Rule(leave_one_out=False, calibrate=False)):
        fit(factor_once(X, 0.01), groups, rule, held_out=fail)


@WEIGHTED
def test_scores_of_both_classes_are_needed(weighted):
    scores = np.array([1.0, -1.0, np.nan, 0.3])
    weights = np.array([1.0, 2.0, 1.0, 0.5]) if weighted else None
    start = Calibration((0.4, 0.6), 0.1)
    none = Calibration.none(2), None
    one = Scored(scores, np.array([True, True, False, True]), weights)
    assert calibrated_on(start, one) == none
    both = np.array([True, False, True, False])
    assert calibrated_on(start, Scored(np.full(4, np.nan), both, weights)) == none
    found, known = calibrated_on(start, Scored(scores, both, weights))
    seen = np.isfinite(scores)
    weight = np.ones(3) if weights is None else weights[seen]
    fresh = fit_calibration(*with_strays(scores[None, seen], both[seen], weight))
    counts = weight[both[seen]].sum(), weight[~both[seen]].sum()
    assert found == start.then(fresh.slope, fresh.offset).limited(*counts)
    limited = Calibration((fresh.slope,), fresh.offset).limited(*counts)
    assert_allclose(known.scores, limited(scores[None, seen]), rtol=1e-12)
    assert_array_equal(known.positive, both[seen])


@WEIGHTED
def test_few_positives_are_calibrated_as_if_some_lay_among_the_negatives(weighted):
    rng = np.random.default_rng(0)
    positive = np.arange(40) < 4
    views, weights = rng.standard_normal((1, 40)), rng.uniform(0.5, 2, 40) if weighted else None
    weight = np.ones(40) if weights is None else weights
    more, labels, mass = with_strays(views, positive, weight)
    np.testing.assert_array_equal(more[:, 40:], views[:, 4:])
    assert labels[40:].all()
    assert_allclose(mass[40:].sum(), 1 / weight[:4].sum())
    assert_allclose(mass[40:] / mass[40:].sum(), weight[4:] / weight[4:].sum())
    enough = 20 / weight[:4].sum() * weight
    assert with_strays(views, positive, 1.01 * enough)[2].shape == (40,)


def test_calibrated_csda_ratios_are_bent():
    X, groups, _ = make_rows([14, 60], 6)
    criterion = Criterion("eigen", 0.01)
    rule = Rule("marginal", leave_one_out=False, calibrate=False)
    plain, bent = (
        fit(CSDAFactor(X, criterion), groups, replace(rule, bent=bent), 3) for bent in (False, True)
    )
    z = plain.subspace.project(X)
    gaussian = plain.score(X)
    top = plain.density.views(np.zeros((1, 3)))[0, 0]
    assert_allclose(bent.score(X), top - 1.5 * np.log1p((top - gaussian) / 1.5))
    np.testing.assert_array_equal(np.argsort(bent.score(X)), np.argsort(gaussian))
    assert_allclose(bent.subspace.project(X), z)
    # Without scores to calibrate on, the ratio is that of the densities, up to its limits.
    nothing = held_out(np.full(len(X), np.nan), groups == 0)
    told = replace(rule, calibrate=True, bent=True)
    found = fit(CSDAFactor(X, criterion), groups, told, 3, held_out=nothing)
    assert found.calibration == limited(plain).calibration


# --- few rows ------------------------------------------------------------------------------------


@TALL_AND_WIDE
def test_one_negative_gives_a_model_but_no_left_out_scores(width):
    X, groups, _ = make_rows([9, 1], width)
    fitted = fit_rows(X, groups)
    assert fitted.left_out is None
    assert np.all(np.isfinite(fitted.score(X)))
    assert np.all(np.isinf(tails_of(fitted.density)))
    assert fitted.calibration == limited(fitted).calibration
    far = fitted.score(X + 1e6 * (X[:1] - X[-1:]))
    assert np.abs(far).max() < 50, "nine rows are no evidence of a million to one"


@TALL_AND_WIDE
def test_one_positive_leaves_negatives_out_but_not_itself(width):
    X, groups, _ = make_rows([1, 9, 8], width)
    fitted = fit_rows(X, groups)
    assert_array_equal(np.isnan(fitted.left_out), groups == 0)
    assert np.all(np.isfinite(fitted.score(X)))


def test_singleton_negatives_give_finite_scores_and_equal_view_weights():
    X, groups, _ = make_rows([12, *[1] * 9], 5)
    fitted = fit_rows(X, groups, d=3)
    assert np.all(np.isinf(tails_of(fitted.density)))
    assert fitted.calibration == limited(fitted).calibration
    assert np.all(np.isfinite(fitted.left_out))


@TALL_AND_WIDE
def test_one_positive_and_singleton_negatives_give_a_model(width):
    X, groups, _ = make_rows([1, 1, 1], width)
    assert np.all(np.isfinite(fit_rows(X, groups).score(X)))


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e6])
@TALL_AND_WIDE
def test_with_one_row_per_class_the_ridge_sets_the_spread(width, scale):
    """Both variances are eps = r d^2 / 4 for rows d apart, so the log ratio is d^2 / (2 eps)."""
    X, groups, _ = make_rows([1, 1], width)
    for calibrate, ratio in ((False, 8.0), (True, np.log(4) + np.log1p(8 - np.log(4)))):
        fitted = fit_rows(scale * X, groups, rule=Rule(calibrate=calibrate), regularization=0.25)
        assert_allclose(fitted.score(scale * X), [ratio, -ratio])


def test_with_duplicates_only_the_ridge_sets_the_spread():
    """While its duplicate stays, a left-out row lies on its group mean and has no residual."""
    X, groups, _ = make_rows([3, 2, 4], 5)
    points = np.array([X[groups == g][0] for g in range(3)])
    fitted = fit_rows(points[groups], groups)
    assert_allclose(fitted.subspace.left.residuals, 0.0, atol=1e-12)
    scores = fitted.score(points[groups])
    assert np.all(np.isfinite(scores))
    assert np.all((scores > 0) == (groups == 0))


def test_resubstituted_densities_are_shrunk_toward_the_ridged_scatter():
    X, groups, _ = make_rows([5, 9, 8, 7], 6)
    for negatives, kind in (("blend", Mixture), ("mixture", Mixture), ("marginal", Marginal)):
        rule = Rule(negatives, 2.0, leave_one_out=False, calibrate=False)
        fitted = fit_rows(X, groups, None, rule)
        assert type(fitted.density) is kind
        found = fitted.subspace
        expected = (found.projected.positive + 2.0 * np.eye(3) / len(X)) / 7
        assert_allclose(fitted.density.positive, expected, rtol=1e-9)


def test_a_singular_covariance_keeps_the_subspace_and_names_the_remedy():
    X, groups, _ = make_rows([2, 9, 8, 7], 6)
    message = (
        "the covariance of the positive class is singular in the subspace: 2 positives and 24 "
        "negatives are too few for n_components=3 axes; lower n_components or set "
        "shrinkage='auto'. The subspace and the ranking by distance need no density"
    )
    for rule in (replace(RESUBSTITUTED, shrinkage=0.0), Rule(shrinkage=0.0)):
        fitted = fit_rows(X, groups, None, rule)
        assert isinstance(fitted.density, NoDensity)
        assert (fitted.density.why, fitted.left_out) == (message, None)
        assert fitted.calibration == Calibration()
        expected = fit_rows(X, groups).subspace
        close(fitted.subspace.project(X), expected.project(X))
        with pytest.raises(TooFewRowsError, match=message):
            fitted.score(X)


def test_groups_without_spread_have_no_density():
    X, groups, _ = make_rows([14, 9, 12, 7], 70)
    fitted = fit_rows(X, groups, regularization=0.0)
    assert isinstance(fitted.density, NoDensity)
    assert fitted.subspace.rank == 3


def test_left_out_scores_align_with_the_rows():
    X, groups, _ = make_rows([40, 30, 20], 6)
    whole = fit_rows(X, groups, None, Rule(calibrate=False, tails="gaussian"))
    assert_array_equal(whole.left_out_of(len(X)), whole.left_out)
    leave = sample_rows(groups, 15, np.random.default_rng(0))
    few = fit(factor_once(X, 0.01), groups, Rule(), leave=leave)
    spread = few.left_out_of(len(X))
    assert_array_equal(spread[leave.rows], few.left_out)
    assert np.isnan(np.delete(spread, leave.rows)).all()
    assert fit_rows(X, groups, None, RESUBSTITUTED).left_out_of(len(X)) is None


def test_any_object_with_solve_is_a_factor():
    """A factor needs only `solve`, and need not leave rows out."""
    X, groups, _ = make_rows([14, 9, 12, 7], 6)
    asked = []

    def solve(groups, n_components=None, *, leave_out=EVERY):
        asked.append((n_components, leave_out))
        return factor_once(X, 0.01).solve(groups, n_components, leave_out=leave_out)

    found = fit(SimpleNamespace(solve=solve), groups, Rule(leave_one_out=False), 2)
    assert asked == [(2, None)]
    assert_same_model(found, fit_rows(X, groups, None, Rule(leave_one_out=False), d=2), X)


@pytest.mark.parametrize(
    "n_positive", [3, *(pytest.param(n, marks=pytest.mark.more) for n in (5, 10))]
)
def test_left_out_positives_score_as_refits_without_them_do(n_positive):
    """The others' residuals, the target and Fisher's axis must not reveal a left-out positive."""
    left_out, refitted = [], []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        groups = np.repeat(np.arange(9), [n_positive, *[25] * 8])
        X = rng.standard_normal((9, 12))[groups] + rng.standard_normal((len(groups), 12))
        X[groups == 0] *= 1.5
        rule = Rule(calibrate=False)
        left_out.extend(fit_rows(X, groups, None, rule).left_out[:n_positive])
        for row in range(n_positive):
            kept = np.arange(len(X)) != row
            refit = fit_rows(X[kept], groups[kept], None, rule)
            refitted.extend(refit.score(X[row : row + 1]))
    differences = np.array(left_out) - refitted
    assert abs(differences.mean()) < 1.0
    assert np.median(np.abs(differences)) < 1.5
