"""Predictive residuals of new positives against refits, and calibration from one positive."""

import numpy as np
import pytest
from factor_factories import SHARED, TALL_AND_WIDE, WEIGHTED, close, make_factor, solve
from factories import make_rows, paper_statistics
from numpy.testing import assert_allclose

from pcsda import PCSDA, KernelPCSDA
from pcsda.core.fit import Rule, estimate
from pcsda.core.loo import FEW_POSITIVES, Leave
from pcsda.core.predictive import (
    PSEUDO_MASS,
    STRAY_MASS,
    pseudo_positives,
    with_pseudo_positives,
)
from pcsda.metrics import cllr

SIZES = [5, 9, 12, 7]


def refitted(X, groups, weights, ridge, rotation, blocks):
    """Compute ``Delta A r`` and ``r' A r``, with A and the row's mean without its block."""
    weight = np.ones(len(X)) if weights is None else weights
    means = np.array(
        [np.average(X[groups == g], axis=0, weights=weight[groups == g]) for g in range(4)]
    )
    delta = means[1:] - means[0]
    plain, height = np.zeros((len(X), rotation.shape[1])), np.zeros(len(X))
    for block in np.unique(blocks):
        out = np.flatnonzero(blocks == block)
        rest = np.flatnonzero(blocks != block)
        scatter, own = ridge * np.eye(X.shape[1]), {}
        for g in range(4):
            members = rest[groups[rest] == g]
            own[g] = np.average(X[members], axis=0, weights=weight[members])
            centred = (X[members] - own[g]) * np.sqrt(weight[members])[:, None]
            scatter += centred.T @ centred
        for i in out:
            r = X[i] - own[groups[i]]
            solved = np.linalg.solve(scatter, r)
            plain[i], height[i] = rotation.T @ (delta @ solved), r @ solved
    return plain, height


def rotation_of(found):
    means = found.projected.means
    return (means[1:] - means[0]) / found.eigenvalues


@pytest.mark.each_value
@SHARED
@WEIGHTED
@TALL_AND_WIDE
@pytest.mark.parametrize("together", [False, True], ids=["rows", "blocks"])
def test_residuals_equal_refits(name, weighted, width, together):
    X, groups, weights = make_rows(SIZES, width, weighted=weighted)
    blocks = np.arange(len(X)) // 2 if together else np.arange(len(X))
    leave = Leave(together=blocks if together else None)
    found = make_factor(name, X, 0.1, weights).solve(groups, leave_out=leave)
    ridge = 0.1 * paper_statistics(X, groups, weights).total_variance
    plain, height = refitted(X, groups, weights, ridge, rotation_of(found), blocks)
    close(found.left.plain, plain, 1e-7)
    close(found.left.height, height, 1e-7)


def test_the_direct_factor_gives_the_same_residuals():
    X, groups, _ = make_rows(SIZES, 6)
    one, other = (solve(name, X, groups, 0.1).left for name in ("direct", "white"))
    close(np.abs(one.plain), np.abs(other.plain), 1e-9)
    close(one.height, other.height, 1e-9)


def test_many_positives_need_no_pseudo_positives():
    X, groups, _ = make_rows([FEW_POSITIVES, 9, 12, 7], 6)
    found = solve("white", X, groups, 0.1)
    assert found.left.plain is None
    assert pseudo_positives(found) is None


def test_pseudo_positives_have_the_moments_of_a_new_positive():
    X, groups, _ = make_rows([1, 40, 50, 30], 6)
    found = solve("white", X, groups, 0.1)
    rows, mass = pseudo_positives(found)
    left = found.left
    own = groups > 0
    assert_allclose(mass.sum(), PSEUDO_MASS)
    lean = left.height[own].mean() * rotation_of(found).sum(axis=0)
    assert_allclose(rows.mean(axis=0), lean, atol=1e-12)
    spread = 2 * left.plain[own].T @ left.plain[own] / own.sum()
    moved = rows.mean(axis=0) - left.height[own, None] * rotation_of(found).sum(axis=0)
    assert_allclose(
        np.cov(rows.T, ddof=0), spread + moved.T @ moved / own.sum(), rtol=1e-9, atol=1e-9
    )


@pytest.mark.parametrize("n_positive", [1, 4, FEW_POSITIVES])
def test_negatives_carry_a_little_positive_weight(n_positive):
    X, groups, _ = make_rows([n_positive, 40, 50, 30], 6)
    found = solve("white", X, groups, 0.1)
    density, views = estimate(found, Rule())
    used = found.left.known
    positive, weight = groups[used] == 0, np.ones(used.sum())
    scored = with_pseudo_positives(found, density, views[:, used], positive, weight)
    more, marks, mass = scored
    assert_allclose(more[:, : len(positive)], views[:, used])
    assert marks[len(positive) :].all()
    if n_positive == FEW_POSITIVES:
        assert len(mass) == len(weight)
        return
    strays = (groups[used] > 0).sum()
    assert_allclose(more[:, -strays:], views[:, used][:, ~positive])
    assert_allclose(mass[-strays:].sum(), STRAY_MASS / n_positive)
    assert_allclose(mass[len(positive) : -strays].sum(), PSEUDO_MASS)


@pytest.mark.filterwarnings("ignore:gamma='positive' is undefined")
@pytest.mark.parametrize("make", [PCSDA, KernelPCSDA])
def test_a_class_wider_than_its_single_example_suggests_costs_little(make):
    """With pseudo-positives alone, new positives scored as certain negatives: Cllr 2 to 5."""
    costs = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        centres = 3 * rng.standard_normal((20, 30))
        y = rng.integers(0, 20, 400)
        X = rng.standard_normal((400, 30)) * np.where(y == 0, 3, 1)[:, None] + centres[y]
        train = np.append(np.flatnonzero(y == 0)[:1], np.flatnonzero(y)[:200])
        test = np.setdiff1d(np.arange(400), train)
        with pytest.warns(UserWarning, match="a single positive shows no spread"):
            model = make(random_state=0).fit(X[train], y[train] == 0)
        costs.append(cllr(y[test] == 0, model.log_likelihood_ratio(X[test])))
    assert np.mean(costs) < 1


@pytest.mark.filterwarnings("ignore:gamma='positive' is undefined")
@pytest.mark.parametrize("make", [PCSDA, KernelPCSDA])
def test_one_positive_gives_a_meaningful_ratio(make):
    """A new positive used to score 50 nats or more below its class mean."""
    costs, ratios = [], []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        centres = 2.5 * rng.standard_normal((20, 30))
        y = rng.integers(0, 20, 400)
        X = rng.standard_normal((400, 30)) + centres[y]
        train = np.append(np.flatnonzero(y == 0)[:1], np.flatnonzero(y)[:200])
        test = np.setdiff1d(np.arange(400), train)
        with pytest.warns(UserWarning, match="a single positive shows no spread"):
            model = make(random_state=0).fit(X[train], y[train] == 0)
        llr = model.log_likelihood_ratio(X[test])
        costs.append(cllr(y[test] == 0, llr))
        ratios.append(np.median(llr[y[test] == 0]))
    assert max(costs) < 1
    assert np.mean(costs) < 0.5
    assert min(ratios) > 0


@pytest.mark.parametrize(
    ("make", "width", "most"),
    [
        (PCSDA, 2, 0.9),
        (KernelPCSDA, 2, 0.95),
        pytest.param(PCSDA, 3, 0.7, marks=pytest.mark.more),
        pytest.param(KernelPCSDA, 1, 1.05, marks=pytest.mark.more),
    ],
)
def test_three_positives_in_few_columns_claim_little(make, width, most):
    """If classes are assumed to be as narrow as k-means cells, new positives seem surely negative.

    Mean Cllr was 1.03, 0.79, 1.55 and 1.02, and 4 in the worst draw.
    """
    costs = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        centres = 1.2 * rng.standard_normal((6, width))
        kinds = [np.zeros(3, int), rng.integers(1, 6, 150)]
        X = centres[np.concatenate(kinds)] + rng.standard_normal((153, width))
        test = np.append(np.zeros(200, int), rng.integers(1, 6, 800))
        new = centres[test] + rng.standard_normal((1000, width))
        model = make(random_state=0).fit(X, np.arange(153) < 3)
        costs.append(cllr(test == 0, model.log_likelihood_ratio(new)))
    assert np.mean(costs) < most
    assert np.max(costs) < 1.4


def test_pseudo_positives_are_wider_in_few_columns():
    X, groups, _ = make_rows(SIZES, 6)
    found = solve("white", X, groups, 0.1)
    plain, wide = (pseudo_positives(found, columns)[0] for columns in (np.inf, 1))
    half = len(plain) // 2
    assert_allclose(wide[:half] - wide[half:], 3 * (plain[:half] - plain[half:]))
    assert_allclose(wide[:half] + wide[half:], plain[:half] + plain[half:])
    # Three cells halve one column, but not two.
    assert_allclose(pseudo_positives(found, 2)[0], plain, rtol=0)
