"""Blocks: any way to cut the rows gives the model of all rows, and what goes wrong has a name."""

import os
import signal
import subprocess
import sys
import textwrap
from functools import reduce

import numpy as np
import pytest
from block_factories import assert_same_model, in_blocks, make_data
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
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
from pcsda.blocks.passes import Draw, Reservoir
from pcsda.calibration import FOLDS, fit_calibration

N_ROWS = len(make_data()[0])
cuts = st.sets(st.integers(1, N_ROWS - 1), max_size=12)


class Counted:
    """Blocks that count how often they are run over."""

    def __init__(self, blocks):
        self.blocks, self.runs = blocks, 0

    def __call__(self):
        self.runs += 1
        return self.blocks()


@settings(max_examples=25, deadline=None)
@given(
    cuts=cuts,
    order=st.randoms(use_true_random=False),
    weighted=st.booleans(),
    negatives=st.sampled_from(["blend", "mixture", "marginal"]),
    tails=st.sampled_from(["fitted", "gaussian"]),
    calibrate=st.booleans(),
    solver=st.sampled_from(["auto", "eigen", "spectral", "lsqr"]),
)
def test_any_chunking_and_any_order_is_the_fit_in_memory(
    cuts, order, weighted, negatives, tails, calibrate, solver
):
    X, y, groups, weights = make_data(weighted=weighted, heavy=True)
    # "lsqr" has nothing to iterate over in statistics: it is the exact solution.
    exact = "cholesky" if solver == "lsqr" else solver
    given = {"negatives": negatives, "tails": tails, "calibrate": calibrate}
    expected = PCSDA(solver=exact, **given).fit(X, y, subclass_labels=groups, sample_weight=weights)
    heavy = tails == "fitted" and negatives != "marginal"
    assert np.isfinite(expected.density_.tails[0]) == heavy
    turn = list(range(N_ROWS))
    order.shuffle(turn)
    arrays = [None if part is None else part[turn] for part in (X, y, groups, weights)]
    found = fit_blocks(PCSDA(solver=solver, **given), in_blocks(cuts, *arrays))
    assert_same_model(found, expected, X)


@settings(max_examples=15, deadline=None)
@given(cuts=cuts, weighted=st.booleans())
def test_k_means_over_blocks_is_that_of_scikit_learn_from_the_same_centroids(cuts, weighted):
    X, y, _, weights = make_data(3, weighted=weighted)
    start = X[~y][[0, 40, 80, 120, 150]]
    clusters = KMeans(5, init=start, n_init=1, tol=0, max_iter=300)
    expected = PCSDA(subclasses=clusters).fit(X, y)
    if weights is not None:  # in memory, clusterers other than "kmeans" take no weights
        labels = np.zeros(len(y), dtype=int)
        labels[~y] = clusters.fit(X[~y], sample_weight=weights[~y]).labels_
        expected = PCSDA().fit(X, y, subclass_labels=labels, sample_weight=weights)
    found = fit_blocks(PCSDA(subclasses=clusters), in_blocks(cuts, X, y, None, weights))
    assert_same_model(found, expected, X)


def test_k_means_stops_by_the_tolerance_and_the_number_of_steps():
    X, y, _, _ = make_data(3)
    start = X[~y][:4]
    runs = {}
    for tol, steps in ((0, 300), (1.0, 300), (0, 2)):
        clusters = KMeans(4, init=start, n_init=1, tol=tol, max_iter=steps)
        blocks = Counted(in_blocks([50, 100], X, y))
        found = fit_blocks(PCSDA(subclasses=clusters), blocks)
        assert_same_model(found, PCSDA(subclasses=clusters).fit(X, y), X)
        runs[tol, steps] = blocks.runs
    # A look at the labels, the sample, the steps, statistics and left-out rows.
    assert runs[0, 2] == 4 + 2
    assert runs[1.0, 300] < runs[0, 300]
    assert runs[0, 300] > 6


def test_k_means_of_its_own_finds_separate_clouds():
    X, y, groups, _ = make_data(5, sizes=(80, 90, 100, 110))
    X = X + 30 * np.eye(4, 5)[groups]
    found = fit_blocks(PCSDA(n_subclasses=3, random_state=0), in_blocks([70, 200], X, y))
    expected = PCSDA().fit(X, y, subclass_labels=groups)
    order = np.argsort(found.subclass_counts_)
    np.testing.assert_allclose(found.subclass_means_[order], expected.subclass_means_, rtol=1e-10)
    assert fit_blocks(PCSDA(), in_blocks([70], X, y)).subclass_counts_.shape == (6,)  # 300 / 50


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


def test_a_clusterer_with_predict_divides_what_it_has_not_seen():
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


@settings(max_examples=10, deadline=None)
@given(cuts=cuts, weighted=st.booleans())
def test_csda_in_blocks_is_csda_in_memory(cuts, weighted):
    X, y, _, weights = make_data(weighted=weighted)
    if weighted:
        weights[::7] = 0
    expected = CSDA(random_state=0).fit(X, y, sample_weight=weights)
    found = fit_blocks(CSDA(random_state=0), in_blocks(cuts, X, y, None, weights))
    assert_same_model(found, expected, X)


@pytest.mark.parametrize("positives", [2, 3, 60])
@pytest.mark.parametrize("lead", [True, False])
def test_calibration_on_folds_is_that_in_memory(monkeypatch, positives, lead):
    X, y, groups, _ = make_data()
    kept = np.concatenate([np.flatnonzero(y)[:positives], np.flatnonzero(~y)])
    kept = kept if lead else kept[::-1]
    X, y, groups = X[kept], y[kept], groups[kept]
    model = PCSDA(covariance="resubstitution", random_state=4)
    expected = clone(model).fit(X, y, subclass_labels=groups)
    monkeypatch.setattr(
        pcsda.blocks.intake, "PIECE_BYTES", 8 * 5 * 11
    )  # some blocks have several pieces
    found = fit_blocks(model, in_blocks([1, 9, 60], X, y, groups))
    assert_same_model(found, expected, X)


def test_calibration_on_drawn_folds_is_that_of_models_without_the_fold(monkeypatch):
    X, y, groups, _ = make_data()
    monkeypatch.setattr(pcsda.blocks.folds, "MOST_FOLDED", 100)
    drawn, real = {}, pcsda.blocks.folds.Folds.of

    def remembered(self, piece):
        folds = real(self, piece)
        drawn.update({row.tobytes(): fold for row, fold in zip(piece.X, folds, strict=True)})
        return folds

    monkeypatch.setattr(pcsda.blocks.folds.Folds, "of", remembered)
    model = PCSDA(covariance="resubstitution", random_state=0)
    found = fit_blocks(model, in_blocks([33, 150], X, y, groups))
    folds = np.array([drawn[row.tobytes()] for row in X])
    scores = np.empty(len(X))
    for fold in range(FOLDS):
        rest = folds != fold
        without = clone(model).set_params(calibrate=False)
        without.fit(X[rest], y[rest], subclass_labels=groups[rest])
        scores[~rest] = without.log_likelihood_ratio(X[~rest])
    expected = fit_calibration(scores, y)
    assert found.calibration_.slope == pytest.approx(expected.slope, rel=1e-8)
    assert found.calibration_.offset == pytest.approx(expected.offset, rel=1e-8)


def test_drawn_folds_hold_equal_shares_of_both_classes():
    X, y, _, _ = make_data()
    intake = pcsda.blocks.intake.Intake(np.array([False, True]), 1, False)
    pieces = [
        piece
        for number, block in enumerate(in_blocks([100, 101], X, y)())
        for piece in intake.pieces(number, "", pcsda.blocks.addresses.Block(*block))
    ]
    folds = [pcsda.blocks.folds.Folds(FOLDS, 7).of(piece) for piece in pieces]
    for rows, piece in zip(folds, pieces, strict=True):
        for members in (piece.positive, ~piece.positive):
            counts = np.bincount(rows[members], minlength=FOLDS)
            assert counts.max() - counts.min() <= 1
    assert not np.array_equal(folds[0], pcsda.blocks.folds.Folds(FOLDS, 8).of(pieces[0]))


def test_float32_blocks_accumulate_in_float64():
    X, y, groups, _ = make_data(sizes=(900, 800, 700))
    X = (X + 1000).astype(np.float32)
    found = fit_blocks(PCSDA(), in_blocks(range(100, 2400, 100), X, y, groups))
    expected = PCSDA().fit(X.astype(np.float64), y, subclass_labels=groups)
    assert found.components_.dtype == np.float32
    assert found.transform(X).dtype == np.float32
    for name in ("positive", "negative", "centres"):
        np.testing.assert_allclose(
            getattr(found.density_, name), getattr(expected.density_, name), rtol=1e-8, atol=1e-12
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
        (PCSDA(), 2),
        (PCSDA(covariance="resubstitution"), 1 + 2),  # an iterator has no labels without rows
        (PCSDA.published(n_subclasses="auto"), 1),
        (CSDA(), 1 + 2),
        (CSDA.published(), 1),
    ],
)
def test_given_subclasses_take_two_passes_at_most(model, passes):
    X, y, groups, _ = make_data()
    blocks = Counted(in_blocks([90], X, y, groups))
    fit_blocks(model, blocks, classes=[False, True])
    assert blocks.runs == 1 + passes  # and a look at the first block


def test_an_iterator_that_can_be_read_once_does_for_one_pass():
    X, y, groups, _ = make_data()
    published = PCSDA.published(n_subclasses="auto")
    blocks = in_blocks([50, 90], X, y, groups)
    found = fit_blocks(published, blocks())
    assert_same_model(found, PCSDA.published().fit(X, y, subclass_labels=groups), X)
    with pytest.raises(
        ValueError,
        match="this fit takes 2 passes and an iterator can be read once; pass a function that",
    ):
        fit_blocks(PCSDA(), blocks())
    with pytest.raises(ValueError, match="takes at least 4 passes"):
        fit_blocks(PCSDA(), in_blocks([50], X, y)())
    order = np.argsort(y, kind="stable")
    apart = in_blocks([50], X[order], y[order].astype(int), groups[order])
    with pytest.raises(
        ValueError,
        match=r"^block 0 \(item 0 of the iterator\) has one class only, \[0\], and an iterator "
        r"that can be read once shows no other before it is used; give classes=\[...\]$",
    ):
        fit_blocks(published, apart())
    assert_same_model(
        fit_blocks(published, apart(), classes=[0, 1]), fit_blocks(published, apart), X
    )


def test_blocks_of_one_class_only_are_no_trouble():
    X, y, groups, _ = make_data()
    order = np.argsort(y, kind="stable")
    names = np.array(["rest", "class"])[y.astype(int)]
    found = fit_blocks(
        PCSDA(pos_label="class"), in_blocks([100, 160], X[order], names[order], groups[order])
    )
    assert_same_model(found, PCSDA(pos_label="class").fit(X, names, subclass_labels=groups), X)


def test_subclass_names_are_matched_whatever_block_they_first_come_in():
    X, y, groups, _ = make_data()
    names = np.array(["-", "wren", "ant", "a very long name"], dtype=object)[groups]
    order = np.argsort(groups, kind="stable")[::-1]
    found = fit_blocks(PCSDA(), in_blocks([20, 75, 150], X[order], y[order], names[order]))
    assert_same_model(found, PCSDA().fit(X, y, subclass_labels=names), X)


def test_rows_of_weight_zero_take_no_part():
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
    with pytest.raises(ValueError, match=r"^no row that counts has the label True; samples of the"):
        fit_blocks(PCSDA(), in_blocks([60, 100], X, y, groups, weights))


@pytest.mark.parametrize("positives", [1, 2])
def test_few_positives_as_in_memory(positives):
    X, y, groups, _ = make_data()
    kept = np.concatenate([np.flatnonzero(y)[:positives], np.flatnonzero(~y)])
    X, y, groups = X[kept], y[kept], groups[kept]
    for model in (PCSDA(random_state=0), CSDA(random_state=0)):
        labels = {"subclass_labels": groups} if isinstance(model, PCSDA) else {}
        expected = type(model)(**model.get_params()).fit(X, y, **labels)
        assert_same_model(fit_blocks(model, in_blocks([1, 50], X, y, groups)), expected, X)


def test_single_members_of_subclasses_as_in_memory():
    X, y, groups, _ = make_data()
    groups[np.flatnonzero(groups == 3)[0]] = 17
    found = fit_blocks(PCSDA(), in_blocks([50], X, y, groups))
    assert_same_model(found, PCSDA().fit(X, y, subclass_labels=groups), X)


@pytest.mark.parametrize("negatives", [1, 20])
def test_subclasses_of_one_negative_each_as_in_memory(negatives):
    X, y, groups, _ = make_data(sizes=(20, 20), width=3)
    kept = np.concatenate([np.flatnonzero(y), np.flatnonzero(~y)[:negatives]])
    X, y, groups = X[kept], y[kept], np.arange(len(kept))
    model = PCSDA(n_components=1, random_state=0)
    expected = clone(model).fit(X, y, subclass_labels=groups)
    blocks = in_blocks([7, 25][:negatives], X, y, groups)
    if negatives == 1:
        assert_same_model(fit_blocks(model, blocks), expected, X)
        return
    # In memory there are folds for this; several passes more are not worth it.
    with pytest.warns(UserWarning, match="each of the 20 subclasses has one row, which leaves not"):
        assert_same_model(fit_blocks(model, blocks), expected, X, calibrated=False)


def test_without_calibration_as_in_memory():
    X, y, groups, _ = make_data()
    expected = PCSDA(calibrate=False).fit(X, y, subclass_labels=groups)
    found = fit_blocks(PCSDA(calibrate=False), in_blocks([50], X, y, groups))
    assert_same_model(found, expected, X)


def test_a_fold_without_one_of_the_subspaces_is_left_out_with_a_word(monkeypatch):
    X, y, groups, _ = make_data()
    real, calls = PCSDA._learn_scatter, []

    def failing(self, scatter):
        calls.append(1)
        if len(calls) == 3:
            raise ValueError("no luck")
        return real(self, scatter)

    monkeypatch.setattr(PCSDA, "_learn_scatter", failing)
    with pytest.warns(UserWarning, match="a calibration fold could not be fitted: no luck"):
        fit_blocks(PCSDA(covariance="resubstitution"), in_blocks([50], X, y, groups))


def test_whole_numbers_are_rows_too():
    X, y, groups, _ = make_data()
    X = np.round(10 * X).astype(np.int32)
    expected = PCSDA().fit(X, y, subclass_labels=groups)
    assert_same_model(fit_blocks(PCSDA(), in_blocks([50], X, y, groups)), expected, X)


def test_centroids_of_another_space_are_refused():
    X, y, _, _ = make_data()
    model = PCSDA(subclasses=KMeans(2, init=np.eye(2, 3), n_init=1))
    with pytest.raises(
        ValueError,
        match=r"^subclasses=KMeans has init of shape \(2, 3\) but rows have 5 features; give one "
        r"row for each centroid$",
    ):
        fit_blocks(model, in_blocks([30], X, y))


def test_k_means_passes_over_blocks_without_negatives():
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


def test_the_calibration_of_a_sample_is_close_to_that_of_all_rows():
    rng = np.random.default_rng(0)
    groups = rng.permutation(np.repeat([0, 1, 2], [400, 1500, 1500]))
    X = rng.standard_normal((3400, 2)) + np.array([[0, 0], [1.5, 0], [0, 1.5]])[groups]
    y = groups == 0
    blocks = in_blocks(range(200, 3400, 200), X, y, groups)

    def fitted(seed, **settings):
        density = fit_blocks(PCSDA(random_state=seed), blocks, **settings).density_
        return np.array([*density.shares, density.offset])

    whole, part = fitted(0), fitted(0, calibration_rows=250)
    np.testing.assert_array_equal(part, fitted(0, calibration_rows=250))
    assert np.all(part != whole)
    assert np.all(part != fitted(1, calibration_rows=250))
    # Classes are sampled alike but count with their full weight, else the offset would be 2 off.
    np.testing.assert_allclose(part, whole, atol=0.4)


def test_rows_without_a_chance_are_not_kept_and_the_sample_is_the_same():
    keys, rows = np.random.default_rng(0).random((2, 5000))
    blocks = [slice(start, start + 500) for start in range(0, 5000, 500)]

    def sample(draw):
        parts = [
            Reservoir.of(keys[part], rows[part], lambda kept, part=part: rows[part][kept], draw)
            for part in blocks
        ]
        return parts, reduce(lambda one, other: one.merge(other, draw.size), parts)

    _, whole = sample(Draw(200))
    parts, spare = sample(Draw.of_total(200, 5000))
    np.testing.assert_array_equal(spare.table, rows[np.sort(np.argsort(keys)[:200])])
    np.testing.assert_array_equal(spare.table, whole.table)
    assert (spare.offered, spare.n_offered) == (pytest.approx(rows.sum()), 5000)
    assert sum(len(part.keys) for part in parts) < 400
    assert Draw.of_total(200, 150) == Draw(200)
    assert len(sample(Draw(0))[1].keys) == 0


def test_a_sparse_block_is_its_dense_form(monkeypatch):
    X, y, groups, _ = make_data()
    X[X < 0.5] = 0
    expected = PCSDA().fit(X, y, subclass_labels=groups)
    monkeypatch.setattr(pcsda.blocks.intake, "PIECE_BYTES", 8 * 5 * 32)  # pieces of 32 rows
    for form in (sparse.csr_array, sparse.csc_matrix, sparse.coo_array):
        blocks = [(form(part[0]), *part[1:]) for part in in_blocks([99], X, y, groups)()]
        assert_same_model(fit_blocks(PCSDA(), blocks), expected, X)
    found = fit_blocks(PCSDA(), sparse.csr_array(X), y=y, subclass_labels=groups, block_rows=50)
    assert_same_model(found, expected, X)
    scores = np.concatenate(list(predict_blocks(found, [sparse.csr_array(X)])))
    np.testing.assert_allclose(scores, expected.log_likelihood_ratio(X), rtol=1e-9)


def test_pieces_of_a_block_are_joined(monkeypatch):
    X, y, groups, weights = make_data(weighted=True)
    monkeypatch.setattr(pcsda.blocks.intake, "PIECE_BYTES", 8 * 5 * 7)
    found = fit_blocks(PCSDA(), in_blocks([100], X, y, groups, weights))
    expected = PCSDA().fit(X, y, subclass_labels=groups, sample_weight=weights)
    assert_same_model(found, expected, X)


def broken(part, value):
    """Four blocks, the third of which has something else in place of one part."""
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
        (0, put(np.nan), f"{HERE}: X has NaN or infinity in 1 rows, the first is row 7; leave "
         "those rows out or fill them in$"),
        (0, put(-np.inf), f"{HERE}: X has NaN or infinity in 1 rows"),
        (0, lambda X: X[:0], rf"{HERE}: the block has no rows; leave it out, or cut the data anew "
         r"\(repartition in Dask\)$"),
        (0, lambda X: X[0], f"{HERE}: Expected 2D array"),
        (0, lambda X: X + 1j, f"{HERE}: Complex data not supported"),
        (0, lambda X: X.astype(str)[:, :1] + "x", f"{HERE}: could not convert string to float"),
        (0, lambda X: X[:20], f"{HERE}: X has 20 rows but y has 50 labels$"),
        (1, put(2), rf"{HERE}: y has labels \[2\] that are not among classes \[0, 1\]; leave those "
         r"rows out, or use y == label for one class$"),
        (1, lambda y: None, f"{HERE}: the block has no labels; give y, or let"),
        (1, lambda y: y[:, None][:, [0, 0]], f"{HERE}: y should be a 1d array"),
        (2, lambda g: None, f"{HERE}: subclass_labels must come with every block or with none"),
        (2, lambda g: g[:9], rf"{HERE}: subclass_labels has shape \(9,\) but must have one entry"),
        (2, lambda g: g.astype(str), r"^subclass_labels is text in some blocks \('\d'\) and "
         "numbers in others; make it one or the other$"),
        (2, lambda g: np.where(np.arange(50) % 2, g, None), f"{HERE}: subclass_labels is missing"),
        (3, put(-1.0), f"{HERE}: sample_weight has 1 negative entries"),
        (3, put(np.nan), f"{HERE}: Input sample_weight contains NaN"),
        (3, lambda w: w[1:], rf"{HERE}: sample_weight has shape \(49,\)"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_block_is_said_with_its_name(part, value, message):
    with pytest.raises(ValueError, match=message):
        fit_blocks(PCSDA(), broken(part, value))


def test_errors_of_the_user_stay_what_they_are():
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
    X, y, groups, _ = make_data()
    whole = in_blocks([100], X, y, groups)
    same = whole()
    with pytest.raises(
        ValueError,
        match=r"^the pass for left-out found no blocks, and the one before did; the function must "
        r"return a new iterator each time$",
    ):
        fit_blocks(PCSDA(), Changing(whole, whole, lambda: iter([])))
    with pytest.raises(
        ValueError, match=r"^the rows weigh 100 in this pass and weighed 220 in the"
    ):
        fit_blocks(PCSDA(), Changing(whole, whole, lambda: [next(same)]))
    with pytest.raises(
        ValueError, match=r"^block 0 .*: subclass 5 was not there in the pass befor"
    ):
        fit_blocks(PCSDA(), Changing(whole, whole, in_blocks([], X, y, groups + 4)))
    fewer = in_blocks([100], X, y)
    twice = in_blocks([100], *(np.concatenate([part, part]) for part in (X, y)))
    with pytest.raises(
        ValueError, match=r"^block 1 .*: there are more rows than when labels were c"
    ):
        fit_blocks(CSDA(), Changing(fewer, fewer, twice))


class Changing:
    """Blocks that are others in each run; the last stay."""

    def __init__(self, *runs):
        self.runs = list(runs)

    def __call__(self):
        return iter(self.runs.pop(0)() if len(self.runs) > 1 else self.runs[0]())


def test_rows_that_are_wider_than_many_as_in_memory():
    X, y, groups, _ = make_data(sizes=(14, 12, 10), width=60)
    expected = PCSDA(regularization=0.1).fit(X, y, subclass_labels=groups)
    found = fit_blocks(PCSDA(regularization=0.1), in_blocks([5, 20], X, y, groups))
    assert_same_model(found, expected, X)


def test_labels_that_cannot_be_a_binary_problem():
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
         "^subclasses=AgglomerativeClustering cannot divide rows that it was not fitted on"),
        (PCSDA(n_components=9), ValueError, r"^n_components=9 must be at most 3 \(= min\(n_subcl"),
        (PCSDA(regularization=-1), ValueError, "^regularization=-1 must be"),
    ],
)  # fmt: skip
def test_settings_that_blocks_cannot_have(model, error, message):
    X, y, groups, _ = make_data()
    with pytest.raises(error, match=message):
        fit_blocks(model, in_blocks([100], X, y, groups))
    assert not hasattr(model, "density_")


@pytest.mark.parametrize(
    "setting",
    [{"sample_rows": 0}, {"calibration_rows": 1.5}, {"block_rows": -1}, {"checkpoint_seconds": -1}],
)
def test_numbers_are_checked(setting):
    (name,) = setting
    with pytest.raises(ValueError, match=f"^{name}="):
        fit_blocks(PCSDA(), in_blocks([], *make_data()[:2]), **setting)


def test_an_empty_source_is_refused():
    with pytest.raises(ValueError, match=r"^there are no blocks; the data are empty$"):
        fit_blocks(PCSDA(), [])


def test_a_fit_that_fails_leaves_the_old_model():
    X, y, groups, _ = make_data()
    model = PCSDA().fit(X, y, subclass_labels=groups)
    before = model.log_likelihood_ratio(X)
    with pytest.raises(ValueError, match="NaN"):
        fit_blocks(model, broken(0, put(np.nan)))
    np.testing.assert_array_equal(model.log_likelihood_ratio(X), before)


def test_without_spread_as_in_memory():
    X, y, groups, _ = make_data()
    with pytest.raises(ValueError, match=r"^all rows of X are equal"):
        fit_blocks(PCSDA(), in_blocks([100], np.ones_like(X), y, groups))
    with pytest.raises(ValueError, match=r"^the squares of X overflow"):
        fit_blocks(PCSDA(n_subclasses=2), in_blocks([100], X * 1e200, y))


def test_an_empty_cluster_is_dropped_with_a_word():
    X, y, _, _ = make_data()
    start = np.vstack([X[~y][:2], np.full(5, 1e3)])
    model = PCSDA(subclasses=KMeans(3, init=start, n_init=1))
    with pytest.warns(UserWarning, match="k-means left 1 of 3 subclasses empty; they are dropped"):
        fit_blocks(model, in_blocks([100], X, y))
    assert model.subclass_counts_.shape == (2,)


# Checkpoints


def stopping(blocks, run, number):
    """Blocks that fail in one run before the given block, and count what they hand out."""
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
    ("kind", "run"),  # the first run is to know the data again, the second looks at the labels
    [*((kind, run) for kind in ("pcsda", "map") for run in range(3, 8)), ("csda", 4), ("csda", 5)],
)
def test_an_interrupted_fit_goes_on_where_it_was(tmp_path, kind, run):
    X, y, _, _ = make_data()
    few = {"n_init": 1, "max_iter": 2, "tol": 0}
    plain, mapped = KMeans(3, init=X[:3], **few), KMeans(3, init=np.eye(3, 9), **few)

    def make():
        state = check_random_state(3)  # not a whole number: the checkpoint has to keep what it gave
        return {
            "pcsda": PCSDA(subclasses=plain, random_state=state),
            "map": make_pipeline(FourierMap(9), PCSDA(subclasses=mapped, random_state=state)),
            "csda": CSDA(random_state=state),
        }[kind]

    blocks = in_blocks(range(20, 220, 20), X, y)
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
    np.testing.assert_array_equal(final.density_.positive, other.density_.positive)
    assert final.calibration_ == other.calibration_
    assert len(handed) == len(total) + 1 - (run - 3)  # passes that were done are not repeated


KILLED = """
import os, signal, sys
import numpy as np
from pcsda import PCSDA, fit_blocks
from block_factories import in_blocks, make_data

X, y, groups, _ = make_data()
run = 0

def blocks():
    global run
    run += 1
    for number, block in enumerate(in_blocks(range(20, 220, 20), X, y, groups)()):
        if (run, number) == (int(sys.argv[2]), 7):
            os.kill(os.getpid(), signal.SIGKILL)
        yield block

model = fit_blocks(PCSDA(), blocks, checkpoint=sys.argv[1], checkpoint_seconds=0)
np.savez(sys.argv[3], components=model.components_, scores=model.log_likelihood_ratio(X))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
def test_kill_9_in_the_middle_of_a_pass(tmp_path):
    state, result = tmp_path / "state.npz", tmp_path / "result.npz"
    script = tmp_path / "fit.py"
    script.write_text(textwrap.dedent(KILLED))
    tests = os.path.dirname(__file__)
    path = os.pathsep.join([tests, os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, str(script), str(state)]
    environment = os.environ | {"PYTHONPATH": path}
    killed = subprocess.run([*command, "4", str(result)], env=environment, timeout=60)
    assert killed.returncode == -signal.SIGKILL
    assert state.exists()
    assert not result.exists()
    subprocess.run([*command, "99", str(result)], env=environment, timeout=60, check=True)
    assert not state.exists()
    X, y, groups, _ = make_data()
    whole = fit_blocks(PCSDA(), in_blocks(range(20, 220, 20), X, y, groups))
    with np.load(result) as found:
        np.testing.assert_array_equal(found["components"], whole.components_)
        np.testing.assert_array_equal(found["scores"], whole.log_likelihood_ratio(X))


@pytest.fixture
def stopped(tmp_path):
    """A checkpoint of a fit that was stopped in its second pass."""
    X, y, groups, _ = make_data()
    path = tmp_path / "state.npz"
    start, _ = stopping(in_blocks([50, 100], X, y, groups), 4, 1)
    with pytest.raises(KeyboardInterrupt):
        fit_blocks(PCSDA(), start, checkpoint=path, checkpoint_seconds=0)
    return path


def test_a_checkpoint_of_something_else_is_refused(stopped):
    X, y, groups, _ = make_data()
    same = in_blocks([50, 100], X, y, groups)
    content = stopped.read_bytes()
    with pytest.raises(
        ValueError,
        match=r"state.npz is the checkpoint of a fit with other settings; delete it to start anew, "
        r"or name another file$",
    ):
        fit_blocks(PCSDA(regularization=0.5), same, checkpoint=stopped)
    with pytest.raises(ValueError, match="other settings"):
        fit_blocks(PCSDA(), same, checkpoint=stopped, calibration_rows=9)
    with pytest.raises(ValueError, match=r"state.npz is the checkpoint of a fit with other data"):
        fit_blocks(PCSDA(), in_blocks([50, 100], X + 1, y, groups), checkpoint=stopped)
    assert stopped.read_bytes() == content
    assert_same_model(fit_blocks(PCSDA(), same, checkpoint=stopped), fit_blocks(PCSDA(), same), X)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda content: content[: len(content) // 2], "is not a whole checkpoint"),
        (lambda content: b"", "is not a whole checkpoint"),
        (lambda content: b"PK" + b"\0" * 100, "is not a whole checkpoint"),
    ],
)
def test_a_checkpoint_that_was_cut_or_altered_is_refused(stopped, spoil, message):
    stopped.write_bytes(spoil(stopped.read_bytes()))
    with pytest.raises(ValueError, match=message + ".*; delete it, or name another file$"):
        fit_blocks(PCSDA(), in_blocks([50], *make_data()[:3]), checkpoint=stopped)


def test_a_checkpoint_of_another_format_is_refused(stopped, monkeypatch):
    monkeypatch.setattr(pcsda.blocks.checkpoint, "FORMAT", 99)
    with pytest.raises(ValueError, match="is a checkpoint of format 1 and this version reads fo"):
        fit_blocks(PCSDA(), in_blocks([50], *make_data()[:3]), checkpoint=stopped)


def test_a_checkpoint_runs_no_code(tmp_path):
    path = tmp_path / "state.npz"
    np.savez(path, state=np.array([print], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match=r"is not a whole checkpoint .*allow_pickle"):
        fit_blocks(PCSDA(), in_blocks([50], *make_data()[:3]), checkpoint=path)


def test_a_checkpoint_needs_a_folder_and_blocks_to_read_again(tmp_path):
    blocks = in_blocks([50], *make_data()[:3])
    with pytest.raises(FileNotFoundError, match="lies in a folder that does not exist; create it"):
        fit_blocks(PCSDA(), blocks, checkpoint=tmp_path / "no" / "state.npz")
    with pytest.raises(
        ValueError, match="a checkpoint needs blocks that can be read again; pass a"
    ):
        fit_blocks(PCSDA(), blocks(), checkpoint=tmp_path / "state.npz")


def test_a_disk_that_is_full_leaves_the_last_checkpoint(stopped, monkeypatch):
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


def test_progress_and_stages_are_shown_when_asked_for(capsys):
    X, y, _, _ = make_data()
    fit_blocks(PCSDA(n_subclasses=2, random_state=0, verbose=True), X, y=y, block_rows=50)
    shown = capsys.readouterr().out
    assert "[PCSDA] drawing a sample of rows" in shown
    assert "[PCSDA] k-means step 1: inertia" in shown
    assert "[PCSDA] leaving rows out" in shown
