"""Blocks: however the rows are cut, the model is that of all rows, and errors name their block."""

import os
import signal
import subprocess
import sys
import textwrap
from functools import reduce

import numpy as np
import pytest
from block_factories import assert_same_model, in_blocks, make_data
from factories import tails_of
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.base import clone
from sklearn.cluster import AgglomerativeClustering, KMeans
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state

import pcsda
from pcsda import (
    CSDA,
    PCSDA,
    FourierMap,
    KernelPCSDA,
    NystroemMap,
    VerifierBank,
    fit_blocks,
    predict_blocks,
)
from pcsda.blocks.data import Block, Division, Intake
from pcsda.blocks.passes import StatisticsPass
from pcsda.blocks.sampling import Draw, Reservoir
from pcsda.core.calibration import Calibration, fit_calibration
from pcsda.folds import FOLDS

N_ROWS = len(make_data()[0])
cuts = st.sets(st.integers(1, N_ROWS - 1), max_size=12)


class Counted:
    """Blocks that count the passes over them."""

    def __init__(self, blocks):
        self.blocks, self.runs = blocks, 0

    def __call__(self):
        self.runs += 1
        return self.blocks()


@given(
    cuts=cuts,
    order=st.randoms(use_true_random=False),
    weighted=st.booleans(),
    negatives=st.sampled_from(["blend", "mixture", "marginal"]),
    tails=st.sampled_from(["fitted", "gaussian"]),
    calibrate=st.booleans(),
    solver=st.sampled_from(["auto", "eigen", "spectral", "lsqr"]),
)
def test_any_chunks_in_any_order_equal_the_fit_in_memory(
    cuts, order, weighted, negatives, tails, calibrate, solver
):
    X, y, groups, weights = make_data(weighted=weighted, heavy=True)
    # "lsqr" has nothing to iterate over in statistics: it is the exact solution.
    exact = "cholesky" if solver == "lsqr" else solver
    given = {"negatives": negatives, "tails": tails, "calibrate": calibrate}
    expected = PCSDA(solver=exact, **given).fit(X, y, subclass_labels=groups, sample_weight=weights)
    heavy = tails == "fitted" and negatives != "marginal"
    assert np.isfinite(tails_of(expected.density_)[0]) == heavy
    turn = list(range(N_ROWS))
    order.shuffle(turn)
    arrays = [None if part is None else part[turn] for part in (X, y, groups, weights)]
    found = fit_blocks(PCSDA(solver=solver, **given), in_blocks(cuts, *arrays))
    assert_same_model(found, expected, X)


@given(cuts=cuts, weighted=st.booleans(), own=st.booleans())
def test_k_means_over_blocks_equals_k_means_in_memory(cuts, weighted, own):
    X, y, _, weights = make_data(3, weighted=weighted)
    model = PCSDA(n_subclasses=5, random_state=0)
    if own:
        start = X[~y][[0, 40, 80, 120, 150]]
        model = PCSDA(subclasses=KMeans(5, init=start, n_init=1, tol=0, max_iter=300))
    expected = clone(model).fit(X, y, sample_weight=weights)
    blocks = Counted(in_blocks(cuts, X, y, None, weights))
    found = fit_blocks(model, blocks, classes=[False, True])
    assert_same_model(found, expected, X)
    assert blocks.runs == 1 + 2  # a look at the first block, the sample, and the statistics


@pytest.mark.parametrize("weighted", [False, True])
def test_rows_join_the_nearest_centroid_of_a_sample(monkeypatch, weighted):
    X, y, _, weights = make_data(3, sizes=(300, 500, 400), weighted=weighted)
    real, seen = pcsda.blocks.fit.find_centroids, {}

    def watched(rows, count, weight, seed):
        seen.update(rows=rows, weight=weight, seed=seed, centroids=real(rows, count, weight, seed))
        return seen["centroids"]

    monkeypatch.setattr(pcsda.blocks.fit, "find_centroids", watched)
    blocks = in_blocks(range(70, 1200, 70), X, y, None, weights)
    found = fit_blocks(PCSDA(n_subclasses=6, random_state=0), blocks, sample_rows=200)
    # About three quarters of a sample of 200 rows are negatives, and they are those of X.
    assert 120 < len(seen["rows"]) < 180
    share = np.ones(len(X)) if weights is None else weights
    known = {row.tobytes(): weight for row, weight in zip(X[~y], share[~y], strict=True)}
    sampled = [known[row.tobytes()] for row in seen["rows"]]
    means = KMeans(6, n_init=1, random_state=np.random.RandomState(seen["seed"]))
    means.fit(seen["rows"], sample_weight=sampled)
    np.testing.assert_allclose(seen["centroids"], means.cluster_centers_, rtol=1e-10)
    labels = cdist(X, means.cluster_centers_).argmin(axis=1)
    expected = PCSDA().fit(X, y, subclass_labels=labels, sample_weight=weights)
    assert_same_model(found, expected, X)


def test_k_means_finds_separate_clouds_across_blocks():
    X, y, groups, _ = make_data(5, sizes=(80, 90, 100, 110))
    X = X + 30 * np.eye(4, 5)[groups]
    found = fit_blocks(PCSDA(n_subclasses=3, random_state=0), in_blocks([70, 200], X, y))
    expected = PCSDA().fit(X, y, subclass_labels=groups)
    order = np.argsort(found.subclass_counts_)
    np.testing.assert_allclose(found.subclass_means_[order], expected.subclass_means_, rtol=1e-10)
    assert fit_blocks(PCSDA(), in_blocks([70], X, y)).subclass_counts_.shape == (20,)  # 300 / 15


def test_k_means_starts_on_a_sample_of_the_rows():
    X, y, groups, _ = make_data(5, sizes=(400, 400, 400, 400))
    X = X + 30 * np.eye(4, 5)[groups]
    blocks = in_blocks(range(100, 1600, 100), X, y)
    model = PCSDA(n_subclasses=3, random_state=0)
    found = fit_blocks(model, blocks, sample_rows=60)
    np.testing.assert_array_equal(found.subclass_counts_, [400, 400, 400])
    with pytest.raises(
        ValueError,
        match=r"^n_subclasses=30 must be at most \d+ \(= number of different negatives in the "
        r"sample\); lower it or raise sample_rows$",
    ):
        fit_blocks(PCSDA(n_subclasses=30), blocks, sample_rows=20)
    with pytest.raises(ValueError, match=r"^n_subclasses=500 must be at most 160 \(= number of"):
        fit_blocks(PCSDA(n_subclasses=500), in_blocks([], *make_data()[:2]))


def test_a_clusterer_with_predict_assigns_unseen_rows():
    X, y, _, _ = make_data(2)
    mixture = GaussianMixture(3, random_state=0)
    found = fit_blocks(PCSDA(subclasses=mixture), in_blocks([30, 90], X, y))
    assert_same_model(found, PCSDA(subclasses=mixture).fit(X, y), X)


@pytest.mark.parametrize("chain", [NystroemMap(40, random_state=1), FourierMap(30, random_state=1)])
@pytest.mark.parametrize("given_groups", [True, False])
def test_a_map_pipeline_goes_block_by_block(chain, given_groups):
    X, y, groups, _ = make_data()
    clusters = KMeans(3, init="k-means++", n_init=10, random_state=0, tol=0)
    model = PCSDA(subclasses=clusters, random_state=0)
    expected = make_pipeline(StandardScaler(), chain, model)
    labels = {"pcsda__subclass_labels": groups} if given_groups else {}
    expected.fit(X, y, **labels)
    features = expected[:-1].transform(X)
    wanted = expected[-1].log_likelihood_ratio(features)
    found = fit_blocks(
        make_pipeline(StandardScaler(), chain, model),
        in_blocks([30, 31, 200], X, y, groups if given_groups else None),
    )
    scores = np.concatenate(list(predict_blocks(found, in_blocks([100], X))))
    np.testing.assert_allclose(scores, wanted, rtol=1e-8, atol=1e-8)
    np.testing.assert_array_equal(found.predict(X), expected.predict(X))


def test_maps_are_fitted_on_a_seeded_sample():
    X, y, groups, _ = make_data()

    def fitted(seed):
        pipeline = make_pipeline(NystroemMap(20, random_state=0), PCSDA(random_state=seed))
        return fit_blocks(pipeline, in_blocks([90], X, y, groups), sample_rows=50)[0].pivots_

    assert np.array_equal(fitted(0), fitted(0))
    assert not np.array_equal(fitted(0), fitted(1))
    # Unlike random landmarks of all rows, those of the sample come from 50 of them.
    everywhere = {row.tobytes() for row in X}
    assert all(row.tobytes() in everywhere for row in fitted(0))


@given(cuts=cuts, weighted=st.booleans())
def test_csda_in_blocks_equals_csda_in_memory(cuts, weighted):
    X, y, _, weights = make_data(weighted=weighted)
    if weighted:
        weights[::7] = 0
    expected = CSDA(random_state=0).fit(X, y, sample_weight=weights)
    found = fit_blocks(CSDA(random_state=0), in_blocks(cuts, X, y, None, weights))
    assert_same_model(found, expected, X)


@pytest.mark.each_value
@pytest.mark.parametrize("positives", [2, 3, 60])
@pytest.mark.parametrize("lead", [True, False])
def test_calibration_on_folds_equals_calibration_in_memory(monkeypatch, positives, lead):
    X, y, groups, _ = make_data()
    kept = np.concatenate([np.flatnonzero(y)[:positives], np.flatnonzero(~y)])
    kept = kept if lead else kept[::-1]
    X, y, groups = X[kept], y[kept], groups[kept]
    model = PCSDA(covariance="resubstitution", random_state=4)
    expected = clone(model).fit(X, y, subclass_labels=groups)
    monkeypatch.setattr(
        pcsda.blocks.data, "PIECE_BYTES", 8 * 5 * 11
    )  # some blocks have several pieces
    found = fit_blocks(model, in_blocks([1, 9, 60], X, y, groups))
    assert_same_model(found, expected, X)


def test_drawn_folds_calibrate_on_models_fitted_without_them(monkeypatch):
    X, y, groups, _ = make_data()
    monkeypatch.setattr(pcsda.blocks.sampling, "MOST_FOLDED", 100)
    drawn, real = {}, pcsda.blocks.sampling.Folds.of

    def remembered(self, piece):
        folds = real(self, piece)
        drawn.update({row.tobytes(): fold for row, fold in zip(piece.X, folds, strict=True)})
        return folds

    monkeypatch.setattr(pcsda.blocks.sampling.Folds, "of", remembered)
    model = PCSDA(covariance="resubstitution", random_state=0)
    found = fit_blocks(model, in_blocks([33, 150], X, y, groups))
    folds = np.array([drawn[row.tobytes()] for row in X])
    scores = np.empty(len(X))
    for fold in range(FOLDS):
        rest = folds != fold
        # Folds are fitted at the ridge of the whole fit, as in memory.
        ridge = 3 / np.sqrt(y.sum())
        without = clone(model).set_params(calibrate=False, regularization=ridge)
        without.fit(X[rest], y[rest], subclass_labels=groups[rest])
        scores[~rest] = without.log_likelihood_ratio(X[~rest])
    expected = fit_calibration(scores[None], y)
    assert found.calibration_.slope == pytest.approx(expected.slope, rel=1e-8)
    assert found.calibration_.offset == pytest.approx(expected.offset, rel=1e-8)


def test_drawn_folds_are_stratified():
    X, y, _, _ = make_data()
    intake = pcsda.blocks.data.Intake(np.array([False, True]), 1, False)
    pieces = [
        piece
        for number, block in enumerate(in_blocks([100, 101], X, y)())
        for piece in intake.pieces(number, "", pcsda.blocks.data.Block(*block))
    ]
    folds = [pcsda.blocks.sampling.Folds(FOLDS, 7).of(piece) for piece in pieces]
    for rows, piece in zip(folds, pieces, strict=True):
        for members in (piece.positive, ~piece.positive):
            counts = np.bincount(rows[members], minlength=FOLDS)
            assert counts.max() - counts.min() <= 1
    assert not np.array_equal(folds[0], pcsda.blocks.sampling.Folds(FOLDS, 8).of(pieces[0]))


def test_float32_blocks_accumulate_in_float64():
    X, y, groups, _ = make_data(sizes=(900, 800, 700))
    X = (X + 1000).astype(np.float32)
    found = fit_blocks(PCSDA(), in_blocks(range(100, 2400, 100), X, y, groups))
    expected = PCSDA().fit(X.astype(np.float64), y, subclass_labels=groups)
    assert found.components_.dtype == np.float32
    assert found.transform(X).dtype == np.float32
    for name in ("positive", "negative", "centres"):
        np.testing.assert_allclose(
            getattr(found.density_.base, name),
            getattr(expected.density_.base, name),
            rtol=1e-8,
            atol=1e-12,
        )
    # One block of float64 makes the whole float64.
    mixed = [(X[:900], y[:900], groups[:900]), (X[900:].astype(float), y[900:], groups[900:])]
    assert_same_model(fit_blocks(PCSDA(), mixed), expected, X.astype(np.float64))


def test_an_offset_of_1e8_costs_no_digits():
    X, y, groups, _ = make_data()
    expected = PCSDA().fit(X, y, subclass_labels=groups)
    X = np.round(X * 1024) / 1024  # so that adding the offset is exact
    expected = PCSDA().fit(X, y, subclass_labels=groups)
    found = fit_blocks(PCSDA(), in_blocks([3, 77, 140], X + 2.0**27, y, groups))
    np.testing.assert_allclose(found.components_, expected.components_, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(
    ("model", "passes"),
    [
        (PCSDA(), 1),
        (PCSDA(calibration_rows=10), 1),
        (PCSDA(covariance="resubstitution"), 1 + 2),  # an iterator has no labels without rows
        (PCSDA.published(n_subclasses="auto"), 1),
        (CSDA(), 1 + 2),
        (CSDA.published(), 1),
    ],
)
def test_given_subclasses_take_one_pass_except_with_folds(model, passes):
    X, y, groups, _ = make_data()
    blocks = Counted(in_blocks([90], X, y, groups))
    fit_blocks(model, blocks, classes=[False, True])
    assert blocks.runs == 1 + passes  # and a look at the first block


def test_a_one_shot_iterator_suffices_for_one_pass():
    X, y, groups, _ = make_data()
    published = PCSDA.published(n_subclasses="auto")
    blocks = in_blocks([50, 90], X, y, groups)
    for model in (PCSDA(), published):
        found = fit_blocks(model, blocks())
        assert_same_model(found, clone(model).fit(X, y, subclass_labels=groups), X)
    one = PCSDA(n_subclasses=1)
    assert_same_model(fit_blocks(one, in_blocks([50], X, y)()), clone(one).fit(X, y), X)
    why = "^this fit takes several passes, and an iterator can be read only once: "
    remedy = "; pass a function that returns a new iterator$"
    clusters = r"k-means is run on a sample of rows first \(subclass_labels would avoid it\)"
    folds = r"calibration uses folds \(calibrate=False would avoid them\)"
    with pytest.raises(ValueError, match=why + clusters + remedy):
        fit_blocks(PCSDA(), in_blocks([50], X, y)())
    with pytest.raises(ValueError, match=why + folds + remedy):
        fit_blocks(CSDA(), blocks())
    with pytest.raises(ValueError, match=why + f"{clusters} and {folds}" + remedy):
        fit_blocks(PCSDA(covariance="resubstitution"), in_blocks([50], X, y)())
    with pytest.raises(ValueError, match=why + "a pipeline is fitted on a sample of rows first"):
        fit_blocks(make_pipeline(StandardScaler(), PCSDA()), blocks())
    order = np.argsort(y, kind="stable")
    apart = in_blocks([50], X[order], y[order].astype(int), groups[order])
    with pytest.raises(
        ValueError,
        match=r"^block 0 \(item 0 of the iterator\) has one class only, \[0\], and an iterator "
        r"that can be read only once cannot be searched for others; give classes=\[...\]$",
    ):
        fit_blocks(published, apart())
    assert_same_model(
        fit_blocks(published, apart(), classes=[0, 1]), fit_blocks(published, apart), X
    )


def test_blocks_may_contain_a_single_class():
    X, y, groups, _ = make_data()
    order = np.argsort(y, kind="stable")
    names = np.array(["rest", "class"])[y.astype(int)]
    found = fit_blocks(
        PCSDA(pos_label="class"), in_blocks([100, 160], X[order], names[order], groups[order])
    )
    assert_same_model(found, PCSDA(pos_label="class").fit(X, names, subclass_labels=groups), X)


def test_subclass_names_match_across_blocks():
    X, y, groups, _ = make_data()
    names = np.array(["-", "wren", "ant", "a very long name"], dtype=object)[groups]
    order = np.argsort(groups, kind="stable")[::-1]
    found = fit_blocks(PCSDA(), in_blocks([20, 75, 150], X[order], y[order], names[order]))
    assert_same_model(found, PCSDA().fit(X, y, subclass_labels=names), X)


def test_zero_weight_rows_are_ignored():
    X, y, groups, weights = make_data(weighted=True)
    weights[:60] = 0
    found = fit_blocks(PCSDA(), in_blocks([60, 100], X, y, groups, weights))
    expected = PCSDA().fit(X[60:], y[60:], subclass_labels=groups[60:], sample_weight=weights[60:])
    assert_same_model(found, expected, X)
    with pytest.raises(
        ValueError, match=r"^sample_weight is zero for all rows; at least one sampl"
    ):
        fit_blocks(PCSDA(), in_blocks([60, 100], X, y, groups, np.zeros(len(X))))
    weights[y] = 0
    with pytest.raises(ValueError, match=r"^no row of weight above 0 has the label True; samples "):
        fit_blocks(PCSDA(), in_blocks([60, 100], X, y, groups, weights))


@pytest.mark.parametrize("positives", [1, 2])
def test_few_positives_fit_as_in_memory(positives):
    X, y, groups, _ = make_data()
    kept = np.concatenate([np.flatnonzero(y)[:positives], np.flatnonzero(~y)])
    X, y, groups = X[kept], y[kept], groups[kept]
    for model in (PCSDA(random_state=0), CSDA(random_state=0)):
        labels = {"subclass_labels": groups} if isinstance(model, PCSDA) else {}
        expected = type(model)(**model.get_params()).fit(X, y, **labels)
        assert_same_model(fit_blocks(model, in_blocks([1, 50], X, y, groups)), expected, X)


def test_singleton_subclass_members_fit_as_in_memory():
    X, y, groups, _ = make_data()
    groups[np.flatnonzero(groups == 3)[0]] = 17
    found = fit_blocks(PCSDA(), in_blocks([50], X, y, groups))
    assert_same_model(found, PCSDA().fit(X, y, subclass_labels=groups), X)


@pytest.mark.parametrize("negatives", [1, 20])
def test_singleton_subclasses_fit_as_in_memory(negatives):
    X, y, groups, _ = make_data(sizes=(20, 20), width=3)
    kept = np.concatenate([np.flatnonzero(y), np.flatnonzero(~y)[:negatives]])
    X, y, groups = X[kept], y[kept], np.arange(len(kept))
    model = PCSDA(n_components=1, random_state=0)
    expected = clone(model).fit(X, y, subclass_labels=groups)
    blocks = in_blocks([7, 25][:negatives], X, y, groups)
    # An iterator that can be read once is enough: the folds come from the sample.
    for found in (fit_blocks(model, blocks), fit_blocks(model, blocks(), calibration_rows=20)):
        assert_same_model(found, expected, X)
    # Negatives may come first, which changes the folds.
    turned = [part[::-1] for part in (X, y, groups)]
    assert_same_model(
        fit_blocks(model, in_blocks([7], *turned)),
        clone(model).fit(*turned[:2], subclass_labels=turned[2]),
        X,
    )
    if negatives == 1:  # nothing to calibrate on, and no warning, as in memory
        found = fit_blocks(model, blocks, calibration_rows=5)
    else:
        message = (
            "^in one class, none of the calibration_rows=19 sampled rows can be left out: each is "
            "alone in its subclass, or the scatter is singular without it. Scores are not "
            "calibrated; give larger subclasses or a ridge, or calibration_rows=20 to refit on "
            "folds of all rows$"
        )
        with pytest.warns(UserWarning, match=message):
            found = fit_blocks(model, blocks, calibration_rows=19)
    np.testing.assert_allclose(found.components_, expected.components_, rtol=1e-8)
    none = Calibration.none(found.density_.n_views)
    assert found.calibration_ == none.limited(20, negatives)


def test_without_a_ridge_folds_keep_the_rows_subclasses():
    X, y, groups, _ = make_data(sizes=(14, 12, 10), width=33)
    model = PCSDA(regularization=0, random_state=0)  # too few rows to leave one out
    message = "a calibration fold could not be fitted: the positive class is a point"
    with pytest.warns(UserWarning, match=message) as told:
        expected = clone(model).fit(X, y, subclass_labels=groups)
    with pytest.warns(UserWarning, match=message) as again:
        found = fit_blocks(model, in_blocks([5, 20], X, y, groups))
    assert [str(one.message) for one in again] == [str(one.message) for one in told]
    assert_same_model(found, expected, X)


def test_one_positive_fits_as_in_memory():
    X, y, groups, _ = make_data()
    kept = np.append(np.flatnonzero(~y), np.flatnonzero(y)[0])
    X, y, groups = X[kept], y[kept], groups[kept]
    expected = PCSDA().fit(X, y, subclass_labels=groups)
    blocks = in_blocks([50], X, y, groups)
    assert_same_model(fit_blocks(PCSDA(), blocks), expected, X)
    found = fit_blocks(PCSDA(), blocks, calibration_rows=5)
    np.testing.assert_allclose(found.components_, expected.components_, rtol=1e-8)
    assert 0 < found.calibration_.slope < 2  # of the few negatives that were left out


@pytest.mark.parametrize("model", [PCSDA, CSDA])
@pytest.mark.parametrize("calibrate", [False, True])
def test_a_projection_without_a_density_fits_as_in_memory(model, calibrate):
    X, y, groups, _ = make_data(sizes=(4, *[30] * 6), width=8)
    given = {"subclass_labels": groups} if model is PCSDA else {}
    rule = {"n_components": 5, "calibrate": calibrate, "random_state": 0}
    expected = model.published(**rule).fit(X, y, **given)
    found = fit_blocks(model.published(**rule), in_blocks([50], X, y, groups))
    np.testing.assert_allclose(found.transform(X), expected.transform(X), rtol=1e-8, atol=1e-10)
    with pytest.raises(
        ValueError, match="4 positives and 180 negatives are too few for n_components"
    ):
        found.predict(X)


def test_an_uncalibrated_fit_equals_the_one_in_memory():
    X, y, groups, _ = make_data()
    expected = PCSDA(calibrate=False).fit(X, y, subclass_labels=groups)
    found = fit_blocks(PCSDA(calibrate=False), in_blocks([50], X, y, groups))
    assert_same_model(found, expected, X)


def test_a_fold_without_a_subspace_is_skipped_with_a_warning(monkeypatch):
    X, y, groups, _ = make_data()
    real, calls = pcsda.blocks.fit.fit_scatter, []

    def failing(model, scatter, **given):
        calls.append(1)
        if len(calls) == 3:
            raise ValueError("no luck")
        return real(model, scatter, **given)

    monkeypatch.setattr(pcsda.blocks.fit, "fit_scatter", failing)
    with pytest.warns(UserWarning, match="a calibration fold could not be fitted: no luck"):
        fit_blocks(PCSDA(covariance="resubstitution"), in_blocks([50], X, y, groups))


def test_integer_rows_are_accepted():
    X, y, groups, _ = make_data()
    X = np.round(10 * X).astype(np.int32)
    expected = PCSDA().fit(X, y, subclass_labels=groups)
    assert_same_model(fit_blocks(PCSDA(), in_blocks([50], X, y, groups)), expected, X)


def test_centroids_of_another_width_are_refused():
    X, y, _, _ = make_data()
    model = PCSDA(subclasses=KMeans(2, init=np.eye(2, 3), n_init=1))
    message = r"^The shape of the initial centers \(2, 3\) does not match the number of features"
    with pytest.raises(ValueError, match=message):  # scikit-learn's message, as in memory
        fit_blocks(model, in_blocks([30], X, y))


def test_k_means_skips_blocks_without_negatives():
    X, y, _, _ = make_data(3)
    order = np.argsort(~y, kind="stable")
    clusters = KMeans(4, init=X[~y][:4], n_init=1, tol=0)
    found = fit_blocks(PCSDA(subclasses=clusters), in_blocks([30, 80], X[order], y[order]))
    assert_same_model(found, PCSDA(subclasses=clusters).fit(X, y), X)


def test_a_sample_without_negatives_is_refused():
    X, y, _, _ = make_data()
    rows = np.concatenate([np.flatnonzero(y), np.flatnonzero(~y)[:1]])
    with pytest.raises(
        ValueError,
        match=r"^the sample of 1 rows has no negatives to cluster; raise sample_rows, or give "
        r"subclass_labels$",
    ):
        fit_blocks(PCSDA(random_state=0), in_blocks([30], X[rows], y[rows]), sample_rows=1)
    # With one negative, "auto" is one subclass.
    found = fit_blocks(PCSDA(), in_blocks([30], X[rows], y[rows]))
    np.testing.assert_array_equal(found.subclass_counts_, [1])


def planted():
    """Return many rows of three clouds, and blocks of them."""
    rng = np.random.default_rng(0)
    groups = rng.permutation(np.repeat([0, 1, 2], [400, 1500, 1500]))
    X = rng.standard_normal((3400, 2)) + np.array([[0, 0], [1.5, 0], [0, 1.5]])[groups]
    return X, groups, in_blocks(range(200, 3400, 200), X, groups == 0, groups)


def test_a_sampled_model_is_close_to_the_full_one():
    X, _, blocks = planted()

    def fitted(seed, **settings):
        return fit_blocks(PCSDA(random_state=seed), blocks, **settings)

    def numbers(model):
        return np.array([*model.calibration_.weights, model.calibration_.offset])

    whole, part = fitted(0), fitted(0, calibration_rows=250)
    np.testing.assert_array_equal(numbers(part), numbers(fitted(0, calibration_rows=250)))
    assert np.all(numbers(part) != numbers(whole))
    assert np.all(numbers(part) != numbers(fitted(1, calibration_rows=250)))
    # Classes are sampled alike but count with their full weight, else the offset would be 2 off.
    np.testing.assert_allclose(numbers(part), numbers(whole), atol=0.4)
    # Means, axes and counts are those of all rows, and scores are close.
    np.testing.assert_array_equal(part.components_, whole.components_)
    np.testing.assert_array_equal(part.subclass_counts_, [1500, 1500])
    expected = whole.log_likelihood_ratio(X)
    scores = [fitted(seed, calibration_rows=250).log_likelihood_ratio(X) for seed in range(6)]
    apart = [np.sqrt(np.mean((score - expected) ** 2)) for score in scores]
    assert np.mean(apart) < 0.2 * np.std(expected)  # it is 0.17, and 0.18 for samples in memory


def test_the_calls_calibration_rows_override_the_estimators():
    X, groups, blocks = planted()
    every = PCSDA(calibration_rows=None).fit(X, groups == 0, subclass_labels=groups)
    for most in (5000, None):
        assert_same_model(fit_blocks(PCSDA(calibration_rows=most), blocks), every, X)
    model = PCSDA(calibration_rows=40, random_state=0)
    assert_same_model(fit_blocks(clone(model), blocks, calibration_rows=5000), every, X)
    part = fit_blocks(model, blocks)
    same = fit_blocks(PCSDA(random_state=0), blocks, calibration_rows=40)
    np.testing.assert_array_equal(part.log_likelihood_ratio(X), same.log_likelihood_ratio(X))
    assert np.abs(part.log_likelihood_ratio(X) - every.log_likelihood_ratio(X)).max() > 0.01


@pytest.mark.parametrize("size", [1, 7, 500])
@pytest.mark.parametrize("kind", [int, str])
def test_sampled_rows_keep_their_subclass_in_any_merge_order(size, kind):
    X, y, groups, weights = make_data(weighted=True)
    weights[groups == 2] = 0
    names = np.array([70, 30, 10, 20]).astype(kind)[groups]
    order = np.argsort(groups, kind="stable")  # later blocks bring names that sort before
    blocks = list(in_blocks([30, 90, 140, 190], *(p[order] for p in (X, y, names, weights)))())
    task = StatisticsPass(
        Intake(np.array([False, True]), 1, given=True),
        Division(given=True),
        seed=5,
        draws=(Draw(size), Draw(size)),
    )
    parts = [task.of_block(n, "", Block(*block)) for n, block in enumerate(blocks)]
    one_by_one = reduce(task.join, parts)
    tree = task.join(reduce(task.join, parts[:2]), reduce(task.join, parts[2:]))
    truth = {x.tobytes(): (n, w) for x, n, w in zip(X, names, weights, strict=True)}
    for found in (one_by_one, tree):
        assert found.names.tolist() == sorted({kind(30), kind(20)})
        sizes = [60, 90]
        for part, total in zip(found.samples, sizes, strict=True):
            assert {len(column) for column in part.columns} == {min(size, total)}
            assert part.n_offered == total
        positive, negative = found.samples
        for row, group, own in zip(*negative.columns, strict=True):
            assert (found.names[group - 1], own) == truth[row.tobytes()]
        assert np.all(positive.columns[1] == 0)
    for one, other in zip(one_by_one.samples, tree.samples, strict=True):
        for column, same in zip(one.columns, other.columns, strict=True):
            np.testing.assert_array_equal(column, same)


def test_discarding_hopeless_rows_early_keeps_the_same_sample():
    keys, rows = np.random.default_rng(0).random((2, 5000))
    blocks = [slice(start, start + 500) for start in range(0, 5000, 500)]

    def sample(draw):
        parts = [
            Reservoir.of(keys[part], (rows[part],), draw, np.ones(500, dtype=bool))
            for part in blocks
        ]
        return parts, reduce(lambda one, other: one.merge(other, draw.size), parts)

    _, whole = sample(Draw(200))
    parts, spare = sample(Draw.of_total(200, 5000))
    np.testing.assert_array_equal(spare.columns[0], rows[np.sort(np.argsort(keys)[:200])])
    np.testing.assert_array_equal(spare.columns[0], whole.columns[0])
    assert (spare.offered, spare.n_offered) == (pytest.approx(rows.sum()), 5000)
    assert sum(len(part.keys) for part in parts) < 400
    assert Draw.of_total(200, 150) == Draw(200)
    assert len(sample(Draw(0))[1].keys) == 0


def test_a_sparse_block_equals_its_dense_form(monkeypatch):
    X, y, groups, _ = make_data()
    X[X < 0.5] = 0
    expected = PCSDA().fit(X, y, subclass_labels=groups)
    monkeypatch.setattr(pcsda.blocks.data, "PIECE_BYTES", 8 * 5 * 32)  # pieces of 32 rows
    for form in (sparse.csr_array, sparse.csc_matrix, sparse.coo_array):
        blocks = [(form(part[0]), *part[1:]) for part in in_blocks([99], X, y, groups)()]
        assert_same_model(fit_blocks(PCSDA(), blocks), expected, X)
    found = fit_blocks(PCSDA(), sparse.csr_array(X), y=y, subclass_labels=groups, block_rows=50)
    assert_same_model(found, expected, X)
    scores = np.concatenate(list(predict_blocks(found, [sparse.csr_array(X)])))
    np.testing.assert_allclose(scores, expected.log_likelihood_ratio(X), rtol=1e-9)


def test_pieces_of_a_block_are_joined(monkeypatch):
    X, y, groups, weights = make_data(weighted=True)
    monkeypatch.setattr(pcsda.blocks.data, "PIECE_BYTES", 8 * 5 * 7)
    found = fit_blocks(PCSDA(), in_blocks([100], X, y, groups, weights))
    expected = PCSDA().fit(X, y, subclass_labels=groups, sample_weight=weights)
    assert_same_model(found, expected, X)


def broken(part, value):
    """Return four blocks; in the third, one part is replaced."""
    X, y, groups, weights = make_data(weighted=True)
    blocks = list(in_blocks([50, 100, 150], X, y.astype(int), groups, weights)())
    blocks[2] = (*blocks[2][:part], value(blocks[2][part].copy()), *blocks[2][part + 1 :])
    return blocks


def put(value):
    def change(array):
        array[7] = value
        return array

    return change


HERE = r"^block 2 \(item 2 of the iterator\)"


@pytest.mark.parametrize(
    ("part", "value", "message"),
    [
        (0, lambda X: X[:, :4], rf"{HERE} has 4 columns but block 0 \(item 0 of the iterator\) has "
         r"5; all blocks need the same columns$"),
        (0, put(np.nan), f"{HERE}: X has NaN or infinity in 1 row, the first is row 7; leave "
         "those rows out or fill them in$"),
        (0, put(-np.inf), f"{HERE}: X has NaN or infinity in 1 row"),
        (0, lambda X: X[:0], rf"{HERE}: the block has no rows; leave it out, or divide the data "
         r"differently \(repartition in Dask\)$"),
        (0, lambda X: X[0], f"{HERE}: Expected 2D array"),
        (0, lambda X: X + 1j, f"{HERE}: Complex data not supported"),
        (0, lambda X: X.astype(str)[:, :1] + "x", f"{HERE}: could not convert string to float"),
        (0, lambda X: X[:20], f"{HERE}: X has 20 rows but y has 50 labels$"),
        (1, put(2), rf"{HERE}: y has labels \[2\] that are not among classes \[0, 1\]; leave those "
         r"rows out, name all labels in classes=\[...\] if pos_label is one of many, or use "
         r"y == label for one class$"),
        (1, lambda y: None, f"{HERE}: the block has no labels; give y, or let"),
        (1, lambda y: y[:, None][:, [0, 0]], f"{HERE}: y should be a 1d array"),
        (2, lambda g: None, f"{HERE}: subclass_labels must come with every block or with none"),
        (2, lambda g: g[:9], rf"{HERE}: subclass_labels has shape \(9,\) but must have one entry"),
        (2, lambda g: g.astype(str), r"^subclass_labels is text in some blocks \('\d'\) and "
         "numbers in others; make it one or the other$"),
        (2, lambda g: np.where(np.arange(50) % 2, g, None), f"{HERE}: subclass_labels is missing"),
        (3, put(-1.0), f"{HERE}: sample_weight has 1 negative entry"),
        (3, put(np.nan), f"{HERE}: Input sample_weight contains NaN"),
        (3, lambda w: w[1:], rf"{HERE}: sample_weight has shape \(49,\)"),
    ],
)  # fmt: skip
def test_errors_in_a_block_name_the_block(part, value, message):
    with pytest.raises(ValueError, match=message):
        fit_blocks(PCSDA(), broken(part, value))


def test_blocks_with_other_columns_are_named_before_they_are_sampled():
    X, y, _, _ = make_data()
    with pytest.raises(ValueError, match=r"has 4 columns but block 0 .* has 5; all blocks need"):
        fit_blocks(PCSDA(), [(X[:100], y[:100]), (X[100:, :4], y[100:])])


def test_user_errors_are_passed_on_unchanged():
    X, y, groups, _ = make_data()

    class Lost(Exception):
        pass

    def blocks():
        yield X[:100], y[:100], groups[:100]
        raise Lost("the tape is torn")

    with pytest.raises(Lost, match="the tape is torn") as caught:
        fit_blocks(PCSDA(), blocks)
    assert caught.value.__notes__ == ["while the iterator made block 1"]


def test_blocks_that_change_between_passes_are_noticed():
    X, y, _, _ = make_data()
    whole = in_blocks([100], X, y)
    with pytest.raises(
        ValueError,
        match=r"^the pass for statistics found no blocks, but an earlier one did; the function "
        r"must return a new iterator each time$",
    ):
        fit_blocks(PCSDA(), Changing(whole, whole, lambda: iter([])))
    with pytest.raises(
        ValueError,
        match=r"^there were 220 rows when a sample was drawn and there are 100 now; blocks must be "
        r"the same in every pass$",
    ):
        fit_blocks(PCSDA(n_subclasses=2), Changing(whole, whole, in_blocks([50], X[:100], y[:100])))
    twice = in_blocks([100], *(np.concatenate([part, part]) for part in (X, y)))
    with pytest.raises(
        ValueError, match=r"^block 1 .*: there are more rows than when labels were c"
    ):
        fit_blocks(CSDA(), Changing(whole, whole, twice))


class Changing:
    """Blocks that differ in each pass; the last version stays."""

    def __init__(self, *runs):
        self.runs = list(runs)

    def __call__(self):
        return iter(self.runs.pop(0)() if len(self.runs) > 1 else self.runs[0]())


def test_wide_rows_fit_as_in_memory():
    X, y, groups, _ = make_data(sizes=(14, 12, 10), width=60)
    expected = PCSDA(regularization=0.1).fit(X, y, subclass_labels=groups)
    found = fit_blocks(PCSDA(regularization=0.1), in_blocks([5, 20], X, y, groups))
    assert_same_model(found, expected, X)


@pytest.mark.parametrize("classes", [None, [0, 1, 2, 3, 4]])
def test_all_labels_but_pos_label_are_negatives(classes):
    X, _, groups, _ = make_data()
    model = fit_blocks(PCSDA(pos_label=0), in_blocks([100], X, groups, groups), classes=classes)
    assert_same_model(model, PCSDA(pos_label=0).fit(X, groups, subclass_labels=groups), X)
    assert model.classes_.tolist() == [-1, 0]
    expected = PCSDA().fit(X, groups == 0, subclass_labels=groups)
    np.testing.assert_allclose(model.decision_function(X), expected.decision_function(X), rtol=1e-9)


def test_a_late_third_label_is_refused_without_pos_label():
    X, _, groups, _ = make_data()
    order = np.argsort(groups, kind="stable")
    X, groups = X[order], groups[order]
    first = int(np.flatnonzero(groups == 1)[-1]) + 1
    blocks = in_blocks([first], X, groups, groups)
    with pytest.raises(
        ValueError, match=r"not among classes \[0, 1\]; .* name all labels in class"
    ):
        fit_blocks(PCSDA(pos_label=0), blocks)
    # The search for labels skips blocks without the class of interest.
    last = int(groups.max())
    model = fit_blocks(PCSDA(pos_label=last), in_blocks([first], X, groups, groups))
    assert model.classes_.tolist() == [-1, last]
    with pytest.raises(
        ValueError, match=rf"block 0 .* has no {last} but \[0, 1\], and an iterator"
    ):
        fit_blocks(PCSDA(pos_label=last), iter(in_blocks([first], X, groups, groups)()))


def test_labels_that_form_no_binary_problem_are_refused():
    X, y, groups, _ = make_data()
    with pytest.raises(ValueError, match="Only binary classification is supported"):
        fit_blocks(PCSDA(), in_blocks([100], X, groups))
    with pytest.raises(ValueError, match=r"y has one class only, \[1\]"):
        fit_blocks(PCSDA(), in_blocks([100], X, np.ones(len(X), dtype=int)))
    with pytest.raises(ValueError, match="pos_label='x' is not a label of y"):
        fit_blocks(PCSDA(pos_label="x"), in_blocks([100], X, y))
    mixed = np.array(["a" if label else 1 for label in y], dtype=object)
    with pytest.raises(
        ValueError, match=r"block 0 .* y mixes labels of the types \['int', 'str'\]"
    ):
        fit_blocks(PCSDA(), in_blocks([100], X, mixed))
    with pytest.raises(ValueError, match=r"^y is text in some blocks \('a'\) and numbers in"):
        fit_blocks(PCSDA(), [(X[:5], np.full(5, "a")), (X[5:], np.ones(len(X) - 5))])


@pytest.mark.parametrize(
    ("model", "error", "message"),
    [
        (KernelPCSDA(), TypeError, r"^KernelPCSDA cannot be fitted in blocks, only PCSDA, CSDA or "
         r"a pipeline that ends in one of them; use make_pipeline\(NystroemMap\(\), PCSDA\(\)\)"),
        (VerifierBank(), TypeError, "^VerifierBank cannot be fitted in blocks"),
        (CSDA(solver="labels"), ValueError, "^solver='labels' has targets that need all rows; use"),
        (PCSDA(balance="resampled"), ValueError, "^balance='resampled' draws from each subclass"),
        (PCSDA(subclasses="samples"), ValueError, "^subclasses='samples' keeps a mean for every"),
        (PCSDA(subclasses=AgglomerativeClustering(3)), ValueError,
         "^subclasses=AgglomerativeClustering cannot assign rows that it was not fitted on"),
        (PCSDA(n_components=9), ValueError, r"^n_components=9 must be at most 3 \(= min\(n_subcl"),
        (PCSDA(regularization=-1), ValueError, "^regularization=-1 must be"),
    ],
)  # fmt: skip
def test_settings_unavailable_in_blocks_are_refused(model, error, message):
    X, y, groups, _ = make_data()
    with pytest.raises(error, match=message):
        fit_blocks(model, in_blocks([100], X, y, groups))
    assert not hasattr(model, "density_")


@pytest.mark.parametrize(
    "setting",
    [{"sample_rows": 0}, {"calibration_rows": 1.5}, {"block_rows": -1}, {"checkpoint_seconds": -1}],
)
def test_numeric_arguments_are_checked(setting):
    (name,) = setting
    with pytest.raises(ValueError, match=f"^{name}="):
        fit_blocks(PCSDA(), in_blocks([], *make_data()[:2]), **setting)


def test_an_empty_source_is_refused():
    with pytest.raises(ValueError, match=r"^there are no blocks; the data are empty$"):
        fit_blocks(PCSDA(), [])


def test_a_failed_fit_leaves_the_old_model():
    X, y, groups, _ = make_data()
    model = PCSDA().fit(X, y, subclass_labels=groups)
    before = model.log_likelihood_ratio(X)
    with pytest.raises(ValueError, match="NaN"):
        fit_blocks(model, broken(0, put(np.nan)))
    np.testing.assert_array_equal(model.log_likelihood_ratio(X), before)


def test_rows_without_spread_are_refused_as_in_memory():
    X, y, groups, _ = make_data()
    with pytest.raises(ValueError, match=r"^all rows of X are equal"):
        fit_blocks(PCSDA(), in_blocks([100], np.ones_like(X), y, groups))
    with pytest.raises(ValueError, match=r"^the squares of X overflow"):
        fit_blocks(PCSDA(n_subclasses=2), in_blocks([100], X * 1e200, y))


def test_a_common_class_of_interest_that_nobody_named_is_reported():
    X = np.random.default_rng(0).standard_normal((100, 4))
    y = np.where(np.arange(100) % 10 == 0, "anna", "other")
    blocks = [(X[:50], y[:50]), (X[50:], y[50:])]
    with pytest.warns(UserWarning, match=r"is 'other', .* 90 of 100 rows; .* pos_label='anna'"):
        fit_blocks(PCSDA(random_state=0), blocks)
    fit_blocks(PCSDA(random_state=0, pos_label="other"), blocks)  # any warning is an error


def test_an_empty_cluster_is_dropped_with_a_warning(monkeypatch):
    X, y, _, _ = make_data()
    far = np.vstack([X[~y][:2], np.full(5, 1e3)])
    monkeypatch.setattr(pcsda.blocks.fit, "find_centroids", lambda *_: far)
    model = PCSDA(n_subclasses=3)
    with pytest.warns(UserWarning, match="k-means left 1 of 3 subclasses empty; they are dropped"):
        fit_blocks(model, in_blocks([100], X, y))
    assert model.subclass_counts_.shape == (2,)


# Checkpoints


def stopping(blocks, run, number):
    """Return blocks that fail in one pass before the given block, and count what they hand out."""
    given_out = []

    def start():
        given_out.append(0)
        for index, block in enumerate(blocks()):
            if (len(given_out), index) == (run, number):
                raise KeyboardInterrupt
            given_out[-1] += 1
            yield block

    return start, given_out


@pytest.mark.parametrize(
    ("kind", "run"),  # the first run looks at the labels
    [
        ("given", 2),
        ("k-means", 3),
        ("clusterer", 2),
        ("map", 3),
        *(("csda", run) for run in (2, 4)),
        *(
            pytest.param(kind, run, marks=pytest.mark.more)
            for kind, run in (("k-means", 2), ("clusterer", 3), ("map", 2), ("csda", 3))
        ),
    ],
)
def test_an_interrupted_fit_resumes(tmp_path, kind, run):
    X, y, groups, _ = make_data()

    def make():
        state = check_random_state(3)  # not a whole number: the checkpoint has to keep what it gave
        model = PCSDA(n_subclasses=3, random_state=state)
        return {
            "given": PCSDA(random_state=state, calibration_rows=30),
            "k-means": model,
            "clusterer": PCSDA(subclasses=GaussianMixture(3), random_state=state),
            "map": make_pipeline(FourierMap(9), model),
            "csda": CSDA(random_state=state),
        }[kind]

    blocks = in_blocks(range(20, 220, 20), X, y, groups if kind == "given" else None)
    path = tmp_path / "state.npz"
    keep = {"checkpoint": path, "checkpoint_seconds": 0}
    start, _ = stopping(blocks, run, 6)
    model = make()
    with pytest.raises(KeyboardInterrupt):
        fit_blocks(model, start, **keep)
    assert path.exists()
    assert [file.name for file in tmp_path.iterdir()] == ["state.npz"]
    resumed, handed = stopping(blocks, 99, 0)
    fit_blocks(model, resumed, **keep)
    assert not path.exists()
    whole, total = stopping(blocks, 99, 0)
    expected = fit_blocks(make(), whole)
    final, other = (m[-1] if kind == "map" else m for m in (model, expected))
    np.testing.assert_array_equal(final.components_, other.components_)
    np.testing.assert_array_equal(final.density_.base.positive, other.density_.base.positive)
    assert final.calibration_ == other.calibration_
    assert len(handed) == len(total) + 1 - (run - 2)  # passes that were done are not repeated


KILLED = """
import os, signal, sys
from pcsda import PCSDA, fit_blocks
from block_factories import in_blocks, make_data

X, y, _, _ = make_data()
run = 0

def blocks():
    global run
    run += 1
    for number, block in enumerate(in_blocks(range(20, 220, 20), X, y)()):
        if (run, number) == (3, 7):
            os.kill(os.getpid(), signal.SIGKILL)
        yield block

model = PCSDA(n_subclasses=3, random_state=0)
fit_blocks(model, blocks, checkpoint=sys.argv[1], checkpoint_seconds=0)
"""


@pytest.mark.more  # `make fuzz` kills a fit in every round; interruptions are tested above
@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
def test_a_fit_killed_in_the_middle_of_a_pass_resumes(tmp_path):
    state = tmp_path / "state.npz"
    script = tmp_path / "fit.py"
    script.write_text(textwrap.dedent(KILLED))
    tests = os.path.dirname(__file__)
    path = os.pathsep.join([tests, os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, str(script), str(state)]
    environment = os.environ | {"PYTHONPATH": path}
    killed = subprocess.run(command, env=environment, timeout=60)
    assert killed.returncode == -signal.SIGKILL
    assert state.exists()
    X, y, _, _ = make_data()
    blocks = in_blocks(range(20, 220, 20), X, y)
    found = fit_blocks(PCSDA(n_subclasses=3, random_state=0), blocks, checkpoint=state)
    assert not state.exists()
    whole = fit_blocks(PCSDA(n_subclasses=3, random_state=0), blocks)
    np.testing.assert_array_equal(found.components_, whole.components_)
    np.testing.assert_array_equal(found.log_likelihood_ratio(X), whole.log_likelihood_ratio(X))


@pytest.fixture
def stopped(tmp_path):
    """Return the checkpoint of a fit that was stopped during its pass."""
    X, y, groups, _ = make_data()
    path = tmp_path / "state.npz"
    start, _ = stopping(in_blocks([50, 100], X, y, groups), 2, 1)
    with pytest.raises(KeyboardInterrupt):
        fit_blocks(PCSDA(), start, checkpoint=path, checkpoint_seconds=0)
    return path


def test_a_checkpoint_of_another_fit_is_refused(stopped):
    X, y, groups, _ = make_data()
    same = in_blocks([50, 100], X, y, groups)
    content = stopped.read_bytes()
    with pytest.raises(
        ValueError,
        match=r"state.npz is the checkpoint of a fit with different settings; delete it to start "
        r"again, or name another file$",
    ):
        fit_blocks(PCSDA(regularization=0.5), same, checkpoint=stopped)
    with pytest.raises(ValueError, match="different settings"):
        fit_blocks(PCSDA(), same, checkpoint=stopped, calibration_rows=9)
    with pytest.raises(
        ValueError, match=r"state.npz is the checkpoint of a fit with different data"
    ):
        fit_blocks(PCSDA(), in_blocks([50, 100], X + 1, y, groups), checkpoint=stopped)
    assert stopped.read_bytes() == content
    assert_same_model(fit_blocks(PCSDA(), same, checkpoint=stopped), fit_blocks(PCSDA(), same), X)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda content: content[: len(content) // 2], "is not a complete checkpoint"),
        (lambda content: b"", "is not a complete checkpoint"),
        (lambda content: b"PK" + b"\0" * 100, "is not a complete checkpoint"),
    ],
)
def test_a_truncated_or_altered_checkpoint_is_refused(stopped, spoil, message):
    stopped.write_bytes(spoil(stopped.read_bytes()))
    with pytest.raises(ValueError, match=message + ".*; delete it, or name another file$"):
        fit_blocks(PCSDA(), in_blocks([50], *make_data()[:3]), checkpoint=stopped)


def test_a_checkpoint_of_another_format_is_refused(stopped, monkeypatch):
    monkeypatch.setattr(pcsda.blocks.checkpoint, "FORMAT", 99)
    with pytest.raises(ValueError, match="is a checkpoint of format 4, but this version reads f"):
        fit_blocks(PCSDA(), in_blocks([50], *make_data()[:3]), checkpoint=stopped)


def test_a_checkpoint_runs_no_code(tmp_path):
    path = tmp_path / "state.npz"
    np.savez(path, state=np.array([print], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match=r"is not a complete checkpoint .*allow_pickle"):
        fit_blocks(PCSDA(), in_blocks([50], *make_data()[:3]), checkpoint=path)


def test_a_checkpoint_needs_a_folder_and_rereadable_blocks(tmp_path):
    blocks = in_blocks([50], *make_data()[:3])
    with pytest.raises(FileNotFoundError, match="lies in a folder that does not exist; create it"):
        fit_blocks(PCSDA(), blocks, checkpoint=tmp_path / "no" / "state.npz")
    with pytest.raises(
        ValueError, match="a checkpoint needs blocks that can be read again; pass a"
    ):
        fit_blocks(PCSDA(), blocks(), checkpoint=tmp_path / "state.npz")


def test_a_full_disk_leaves_the_last_checkpoint(stopped, monkeypatch):
    before = stopped.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pcsda.writing.os, "fsync", full)
    blocks = in_blocks([50, 100], *make_data()[:3])
    with pytest.raises(OSError, match="No space left"):
        fit_blocks(PCSDA(), blocks, checkpoint=stopped, checkpoint_seconds=0)
    assert stopped.read_bytes() == before
    assert [file.name for file in stopped.parent.iterdir()] == ["state.npz"]


# Prediction

METHODS = [
    "log_likelihood_ratio", "decision_function", "predict_proba", "predict_log_proba", "predict",
    "transform", "score_samples",
]  # fmt: skip


@pytest.mark.parametrize("method", METHODS)
def test_results_are_written_block_by_block(tmp_path, method):
    X, y, groups, _ = make_data()
    names = np.array(["no", "certainly"], dtype=object)[y.astype(int)]
    model = PCSDA(pos_label="certainly").fit(X, names, subclass_labels=groups)
    expected = getattr(model, method)(X)
    path = predict_blocks(model, in_blocks([1, 100], X), tmp_path / "z.npy", method=method)
    found = np.load(path, allow_pickle=False)
    if method == "predict":
        assert found.tolist() == expected.tolist()
    else:
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)
    parts = list(predict_blocks(model, in_blocks([1, 100], X), method=method))
    assert [len(part) for part in parts] == [1, 99, 120]
    path = predict_blocks(model, in_blocks([1, 100], X), tmp_path / "z.csv", method=method)
    header, *lines = path.read_text().splitlines()
    assert len(lines) == len(X)
    assert lines[3].split(",") == [str(value) for value in np.atleast_1d(found[3]).tolist()]
    expected_header = {"predict_proba": "certainly,no", "predict_log_proba": "certainly,no"}
    assert header.startswith(expected_header.get(method, "" if method == "transform" else method))


def test_a_failed_prediction_leaves_no_file(tmp_path):
    X, y, groups, _ = make_data()
    model = PCSDA().fit(X, y, subclass_labels=groups)
    bad = X.copy()
    bad[120, 2] = np.nan
    for name in ("z.npy", "z.csv"):
        with pytest.raises(ValueError, match=r"^block 1 \(item 1 of the iterator\): X has NaN or"):
            predict_blocks(model, in_blocks([100], bad), tmp_path / name)
        assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match=r"^output='z.txt' must end in .npy or .csv$"):
        predict_blocks(model, [X], "z.txt")
    with pytest.raises(ValueError, match=r"^method='fly' must be one of 'log_likelihood_ratio', "):
        predict_blocks(model, [X], method="fly")
    with pytest.raises(ValueError, match=r"^there are no blocks; the data are empty$"):
        predict_blocks(model, [], tmp_path / "z.npy")
    with pytest.raises(ValueError, match=r"block 0 .*: X has 4 features, but PCSDA is expecting 5"):
        predict_blocks(model, [X[:, :4]], tmp_path / "z.npy")


def test_progress_and_stages_are_shown_on_request(capsys):
    X, y, _, _ = make_data()
    fit_blocks(PCSDA(n_subclasses=2, random_state=0, verbose=True), X, y=y, block_rows=50)
    shown = capsys.readouterr().out
    assert "[PCSDA] drawing a sample of rows" in shown
    assert "[PCSDA] collecting statistics" in shown
    assert "[PCSDA] leaving rows out" in shown
