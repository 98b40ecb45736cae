"""Groups left out together, and samples of left-out rows, against brute-force refits."""

import numpy as np
import pytest
from factories import make_rows, moves_of_centres, refit_without_each_row
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.metrics import log_loss

from pcsda import PCSDA, PCSDACV, KernelPCSDA, VerifierBank
from pcsda.core.factor import factor_shared
from pcsda.core.gram import of_kernel, wide
from pcsda.core.loo import Leave, sample_rows

WEIGHTED = pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])


def factors(X, weights, regularization):
    """Yield every factor that leaves blocks out, with its coefficients as directions in X."""
    yield next(factor_shared(X, [regularization], weights)), np.eye(X.shape[1])
    yield next(wide(X, [regularization], weights)), np.eye(X.shape[1])
    yield next(of_kernel(X @ X.T, [regularization], weights)), X.T


@pytest.mark.each_value
@WEIGHTED
@pytest.mark.parametrize("width", [5, 60], ids=["tall", "wide"])
@pytest.mark.parametrize("seed", range(3))
def test_left_out_blocks_equal_refits_without_them(width, weighted, seed):
    X, groups, weights = make_rows([11, 9, 12, 3], width, seed=seed, weighted=weighted)
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, 9, len(X))
    ids[groups == 3] = 9  # a block that empties a subclass
    for factor, columns in factors(X, weights, 0.05):
        found = factor.solve(groups, leave_out=Leave(together=ids))
        components = (columns @ found.coefficients).T
        expected = refit_without_each_row(X, groups, weights, factor.ridge, components, ids)
        scale = np.abs(expected[0]).max()
        assert_allclose(found.left.coordinates, expected[0], rtol=1e-8, atol=1e-8 * scale)
        assert_allclose(found.left.residuals, expected[1], rtol=1e-8, atol=1e-8 * scale)
        own = groups == 0
        centres = found.projected.delta + moves_of_centres(found.left, found.projected.delta)
        assert_allclose(centres[own], expected[2][own], rtol=1e-8, atol=1e-8 * scale)
        np.testing.assert_array_equal(found.left.alone, groups == 3)


@WEIGHTED
def test_a_block_of_one_row_acts_like_a_row(weighted):
    X, groups, weights = make_rows([11, 9, 12, 1], 5, weighted=weighted)
    for factor, _ in factors(X, weights, 0.05):
        one_by_one = factor.solve(groups)
        found = factor.solve(groups, leave_out=Leave(together=np.arange(len(X))))
        for name in ("coordinates", "residuals"):
            close = getattr(one_by_one.left, name)
            assert_allclose(getattr(found.left, name), close, rtol=1e-8, atol=1e-8)
        np.testing.assert_array_equal(found.left.known, one_by_one.left.known)


@pytest.mark.each_value
@pytest.mark.parametrize("negatives", ["blend", "mixture", "marginal"])
@pytest.mark.parametrize("make", [PCSDA, KernelPCSDA])
@WEIGHTED
def test_groups_of_one_row_change_nothing(make, negatives, weighted):
    X, groups, weights = make_rows([15, 20, 18], 4, weighted=weighted)
    model = make(negatives=negatives)
    given = {"subclass_labels": groups, "sample_weight": weights}
    alone = clone(model).fit(X, groups == 0, **given)
    found = clone(model).fit(X, groups == 0, **given, groups=[f"row {i}" for i in range(len(X))])
    assert_allclose(found.loo_scores_, alone.loo_scores_, rtol=1e-7, atol=1e-7)
    assert_allclose(
        found.log_likelihood_ratio(X), alone.log_likelihood_ratio(X), rtol=1e-7, atol=1e-7
    )


def twins(n_recordings=60, copies=6, seed=0):
    """Draw recordings of nearly equal rows, where leaving out a single row proves nothing."""
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(n_recordings) % 4 == 0, copies)
    places = rng.standard_normal((n_recordings, 12)) + 1.2 * (np.arange(n_recordings)[:, None] % 4)
    ids = np.repeat(np.arange(n_recordings), copies)
    return places[ids] + 0.05 * rng.standard_normal((len(ids), 12)), y, ids


@pytest.mark.parametrize(
    "make", [PCSDA, lambda: KernelPCSDA(gamma="all")], ids=["linear", "kernel"]
)
@pytest.mark.parametrize("n_draws", [5, pytest.param(16, marks=pytest.mark.more)])
def test_leaving_duplicates_out_together_makes_honest_scores(make, n_draws):
    losses = np.zeros(3)
    for seed in range(n_draws):
        X, y, ids = twins(120, seed=seed)
        new, labels, _ = twins(120, seed=seed + 100)
        sub = np.arange(len(X)) // 6 % 3
        one_by_one = make().fit(X, y, subclass_labels=sub)
        together = make().fit(X, y, subclass_labels=sub, groups=ids)
        odds = np.log(y.mean() / (1 - y.mean()))
        losses += [
            log_loss(y, 1 / (1 + np.exp(-one_by_one.loo_scores_ - odds))),
            log_loss(y, 1 / (1 + np.exp(-together.loo_scores_ - odds))),
            log_loss(labels, together.predict_proba(new)[:, 1]),
        ]
    flattered, left_out, fresh = losses
    assert flattered < 0.5 * left_out
    assert abs(np.log(left_out / fresh)) < np.log(1.6)


def test_banks_and_searches_leave_groups_out_like_separate_fits():
    X, y, ids = twins()
    labels = np.where(y, 0, 1 + np.arange(len(y)) // 6 % 2)
    sub = np.arange(len(X)) // 6 % 5
    bank = VerifierBank(PCSDA(regularization=0.1), calibration="per-label")
    bank.fit(X, labels, subclass_labels=sub, groups=ids)
    alone = PCSDA(regularization=0.1).fit(X, labels == 0, subclass_labels=sub, groups=ids)
    assert_allclose(bank.models_[0].loo_scores_, alone.loo_scores_, rtol=1e-7, atol=1e-7)
    search = PCSDACV(PCSDA(), n_components=[2], regularization=[0.1], cv="leave-one-out")
    search.fit(X, labels == 0, subclass_labels=sub, groups=ids)
    odds = np.log(np.mean(labels == 0) / np.mean(labels != 0))
    alone = PCSDA(n_components=2, regularization=0.1).fit(
        X, labels == 0, subclass_labels=sub, groups=ids
    )
    assert_allclose(search.cv_scores_[0] - odds, alone.loo_scores_, rtol=1e-7, atol=1e-7)
    assert_allclose(search.best_estimator_.loo_scores_, alone.loo_scores_, rtol=1e-7, atol=1e-7)


@pytest.mark.filterwarnings("ignore:groups puts all")
def test_a_group_that_holds_a_whole_class_leaves_its_rows_without_scores():
    X, groups, _ = make_rows([8, 20, 18], 4)
    ids = np.where(groups == 0, 0, 1 + np.arange(len(X)))
    model = PCSDA().fit(X, groups == 0, subclass_labels=groups, groups=ids)
    np.testing.assert_array_equal(np.isnan(model.loo_scores_), groups == 0)
    assert np.isfinite(model.log_likelihood_ratio(X)).all()
    ids = np.where(groups == 0, np.arange(len(X)), -1)
    model = PCSDA().fit(X, groups == 0, subclass_labels=groups, groups=ids)
    np.testing.assert_array_equal(np.isnan(model.loo_scores_), groups > 0)
    with pytest.raises(ValueError, match=r"groups has shape \(3,\) but must have one entry for"):
        PCSDA().fit(X, groups == 0, groups=[1, 2, 3])


def test_a_sample_is_proportional_and_represents_all_rows():
    rng = np.random.default_rng(0)
    groups = np.repeat([0, 1, 2, 3], [50, 4000, 1000, 3])
    leave = sample_rows(groups, 500, rng)
    own = groups[leave.rows]
    np.testing.assert_array_equal(np.bincount(own), [50, 399, 99, 1])
    assert_allclose(np.bincount(own, leave.stands_for), [50, 4000, 1000, 3])
    assert sample_rows(groups, 6000, rng).rows is None
    ids = np.arange(len(groups)) // 10
    leave = sample_rows(groups, 500, rng, together=ids)
    inside = np.isin(np.arange(len(groups)), leave.rows)
    for block in np.unique(ids):
        assert len(np.unique(inside[ids == block])) == 1


@pytest.mark.parametrize("make", [PCSDA, lambda **p: KernelPCSDA(gamma=0.05, **p)])
def test_axes_come_from_all_rows_and_left_out_scores_from_the_sample(make):
    X, groups, _ = make_rows([60, 300, 250, 200], 4, spread=1.0)
    every = make(calibration_rows=None).fit(X, groups == 0, subclass_labels=groups)
    part = make(calibration_rows=200, random_state=0).fit(X, groups == 0, subclass_labels=groups)
    assert_allclose(part.transform(X), every.transform(X), rtol=1e-10, atol=1e-10)
    seen = np.isfinite(part.loo_scores_)
    assert seen[groups == 0].all()
    assert 190 <= seen[groups > 0].sum() <= 200
    spread = np.std(every.log_likelihood_ratio(X))
    apart = part.log_likelihood_ratio(X) - every.log_likelihood_ratio(X)
    assert np.sqrt(np.mean(apart**2)) < 0.2 * spread
    np.testing.assert_array_equal(
        make(calibration_rows=200, random_state=0)
        .fit(X, groups == 0, subclass_labels=groups)
        .log_likelihood_ratio(X),
        part.log_likelihood_ratio(X),
    )
