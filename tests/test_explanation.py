"""Explanations: parts that add up, distances by definition, typicality as a share."""

import re

import numpy as np
import pandas as pd
import pytest
from factories import bent, in_turn, tails_of, views_by_scipy
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.spatial.distance import mahalanobis
from scipy.stats import kstest
from sklearn.datasets import load_digits, make_blobs
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import pcsda
from pcsda import CSDA, PCSDA, PCSDACV, KernelCSDA, KernelPCSDA, NystroemMap, VerifierBank
from pcsda.blocks import fit_blocks
from pcsda.core import explanation
from pcsda.datasets import make_class_specific
from pcsda.partition import mostly

MODELS = [
    PCSDA(4, random_state=0),
    PCSDA.published(4, random_state=0),
    PCSDA(4, pos_label=0, calibrate=False, random_state=0),
    CSDA(3, random_state=0),
    KernelPCSDA(n_subclasses=4, random_state=0),
    KernelPCSDA.published(n_subclasses=4, random_state=0),
    KernelCSDA(n_components=3, random_state=0),
]
NAMES = ["pcsda", "published", "first", "csda", "kernel", "kernel-published", "kernel-csda"]
EVERY = in_turn("model", MODELS, ids=NAMES)


@pytest.fixture(scope="module")
def data():
    return make_class_specific(300, n_features=5, n_informative=5, n_subclasses=4, random_state=0)


@pytest.mark.each_value
@EVERY
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_axes_and_offset_add_up_to_the_score(data, model, dtype):
    X = data.data.astype(dtype)
    model.fit(X, data.target)
    why = model.explain(X)
    assert why.contributions.shape == (300, model.n_components_)
    assert_allclose(why.contributions.sum(axis=1) + why.offset, why.score)
    tolerance = {"rtol": 1e-9, "atol": 1e-9} if dtype == np.float64 else {"rtol": 1e-4}
    assert_allclose(why.score, model.log_likelihood_ratio(X), **tolerance)
    assert why.offset == model.calibration_.offset


@EVERY
def test_leading_axes_contribute_their_marginal_score(data, model):
    model.fit(data.data, data.target)
    z, density = model.transform(data.data), model.density_
    why = model.explain(data.data)
    for d in range(1, model.n_components_ + 1):
        views = views_by_scipy(density.margin(range(d)), z[:, :d])
        calibration = model.calibration_
        straight = np.array(calibration.weights) @ views + calibration.offset
        expected = bent(calibration, straight) - calibration.offset
        assert_allclose(why.contributions[:, :d].sum(axis=1), expected, rtol=1e-7, atol=1e-7)


@EVERY
def test_the_nearest_subclass_follows_its_definition(data, model):
    model.fit(data.data, data.target)
    why, z, base = model.explain(data.data), model.transform(data.data), model.density_.base
    inverse = np.linalg.inv(base.negative if base.within is None else base.within)
    for row in range(0, 300, 23):
        distances = [mahalanobis(z[row], centre, inverse) for centre in base.subclasses]
        assert why.subclass[row] == 1 + np.argmin(distances)
        assert_allclose(why.subclass_distance[row], min(distances))
        size = np.sum(model.partition_ == why.subclass[row])
        assert why.subclass_size[row] == model.subclass_counts_[why.subclass[row] - 1] == size
        middle = np.zeros(len(z[row]))
        own = mahalanobis(z[row], middle, np.linalg.inv(base.positive))
        assert_allclose(why.positive_distance[row], own)


@pytest.mark.parametrize("negatives", ["mixture", "marginal"])
def test_subclass_means_are_at_distance_zero_from_themselves(data, negatives):
    model = PCSDA(4, negatives=negatives, random_state=0).fit(data.data, data.target)
    why = model.explain(model.subclass_means_)
    assert_array_equal(why.subclass, [1, 2, 3, 4])
    assert_allclose(why.subclass_distance, 0, atol=1e-9)
    assert_array_equal(why.subclass_size, model.subclass_counts_)


@pytest.mark.parametrize("negatives", ["mixture", "marginal"])
def test_kernel_subclasses_are_the_means_of_their_rows(data, negatives):
    model = KernelPCSDA(n_subclasses=4, negatives=negatives, random_state=0)
    z = model.fit(data.data, data.target).transform(data.data)
    means = [z[model.partition_ == group].mean(axis=0) for group in (1, 2, 3, 4)]
    assert_allclose(model.density_.base.subclasses, means, atol=1e-9)


def test_typicality_is_the_share_of_samples_farther_out():
    rng = np.random.default_rng(0)
    # Positives about zero, the rest so far away that it never explains one of them.
    train = np.vstack([rng.standard_normal((60, 4)), 40 + rng.standard_normal((60, 4))])
    model = PCSDA(1, shrinkage=0, regularization=1e-6, random_state=0)
    model.fit(train, np.repeat([1, 0], 60))
    why = model.explain(rng.standard_normal((4000, 4)))
    assert kstest(why.typicality, "uniform").statistic < 0.12
    assert_allclose(model.explain(model.positive_mean_[None]).typicality, 1)
    assert why.outside.mean() < 0.005
    assert_array_equal(why.outside, why.typicality < 0.001)


def test_typicality_accounts_for_heavy_tails():
    rng = np.random.default_rng(0)

    def draw(n):
        return rng.standard_normal((n, 4)) * np.sqrt(2 / rng.chisquare(4, (n, 1)))

    train = np.vstack([draw(3000), 40 + draw(3000)])
    model = PCSDA(1, shrinkage=0, regularization=1e-6, random_state=0)
    model.fit(train, np.repeat([1, 0], 3000))
    assert 3 < tails_of(model.density_)[0] < 6  # four were planted
    why = model.explain(draw(10_000))
    assert kstest(why.typicality, "uniform").statistic < 0.05
    assert why.outside.mean() < 0.003  # of Gaussians, one in a hundred


@EVERY
def test_distant_rows_are_outside_and_training_rows_are_not(data, model):
    model.fit(data.data, data.target)
    assert model.explain(data.data).outside.mean() < 0.03
    far = data.data[:20] + 1e4 * np.sign(data.data[:20])
    assert model.explain(far).outside.all()
    assert (model.explain(far).typicality < 0.001).all()


def test_a_kernel_with_no_similar_rows_says_so():
    data = make_class_specific(200, n_features=3, n_informative=3, random_state=1)
    model = KernelPCSDA(n_subclasses=2, gamma=0.5, random_state=0).fit(data.data, data.target)
    nowhere = np.full((1, 3), 1e3)
    assert_allclose(model.transform(nowhere)[0], -model.origin_)
    why = model.explain(nowhere)
    assert why.outside[0]
    assert why.typicality[0] == 0
    # A linear kernel has no such place.
    linear = KernelPCSDA("linear", n_subclasses=2, random_state=0).fit(data.data, data.target)
    start, *ends = linear.transform(np.vstack([np.zeros(3), np.eye(3)]))
    there = np.linalg.lstsq((ends - start).T, -linear.origin_ - start)[0][None]
    assert_allclose(linear.transform(there)[0], -linear.origin_)
    assert linear.explain(there).typicality[0] > 0


def test_precomputed_kernels_sparse_rows_and_frames_are_explained(data):
    matrix = rbf_kernel(data.data, gamma=0.1)
    given = KernelPCSDA("precomputed", n_subclasses=2, random_state=0).fit(matrix, data.target)
    assert_allclose(given.explain(matrix[:5]).score, given.log_likelihood_ratio(matrix[:5]))
    rows = sparse.csr_array(data.data)
    model = PCSDA(4, random_state=0).fit(rows, data.target)
    assert_allclose(model.explain(rows).score, model.log_likelihood_ratio(rows))
    frame = pd.DataFrame(data.data, columns=list("abcde"))
    model = PCSDA(4, random_state=0).fit(frame, data.target)
    assert_allclose(model.explain(frame).score, model.log_likelihood_ratio(frame))


def test_searches_and_banks_explain_with_their_models(data):
    grids = {"n_subclasses": [2], "n_components": [2], "regularization": [0.01]}
    pipeline = make_pipeline(NystroemMap(30, random_state=0), PCSDA(random_state=0))
    search = PCSDACV(pipeline, **grids).fit(data.data, data.target)
    assert_allclose(search.explain(data.data).score, search.log_likelihood_ratio(data.data))
    bank = VerifierBank(PCSDA(2, random_state=0)).fit(data.data, data.subclass_labels)
    why = bank.explain(data.data[:7], 2)
    assert_allclose(why.score, bank.verify(data.data[:7], 2))
    with pytest.raises(ValueError, match=r"^label 9 is not in the bank"):
        bank.explain(data.data, 9)


def test_explanations_can_be_sliced_and_printed(data):
    model = PCSDA(4, random_state=0).fit(data.data, data.target)
    why = model.explain(np.vstack([data.data[:3], data.data[:1] + 1e5]))
    assert len(why) == 4
    assert len(why[1]) == 1
    assert_array_equal(why[1:3].contributions, why.contributions[1:3])
    assert_array_equal(why[why.outside].score, why.score[3:])
    lines = str(why).splitlines()
    assert len(lines) == 4
    name, part = why.table()[0]
    side = "for" if part > 0 else "against"
    assert lines[0].startswith(f"log-likelihood ratio {why.score[0]:.3g}: ")
    assert f"{side} it {name} ({part:+.3g})" in lines[0]
    assert re.search(r"; axis \d [+-]", lines[0])
    assert f"subclass {why.subclass[0]} (n = {why.subclass_size[0]:g})" in lines[0]
    assert lines[3].endswith(", outside everything seen")
    assert "outside" not in lines[0]
    two = PCSDA(2, random_state=0).fit(data.data, data.target).explain(data.data[:1])
    assert "more" in lines[0]
    assert "more" not in str(two)


@pytest.mark.each_value
@pytest.mark.parametrize("model", MODELS[:4], ids=NAMES[:4])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_columns_and_baseline_add_up_to_the_score(data, model, dtype):
    X = data.data.astype(dtype)
    model.fit(X, data.target)
    why = model.explain(X[:40])
    assert why.columns.shape == (40, 5)
    assert_allclose(why.columns.sum(axis=1) + why.baseline, why.score)
    # The baseline is the score half-way between the means.
    means = model.subclass_means_[why.subclass - 1]
    halfway = ((model.positive_mean_ + means) / 2).astype(dtype)
    atol = 1e-3 if dtype == np.float64 else 2e-2
    assert_allclose(why.baseline, model.log_likelihood_ratio(halfway), atol=atol, rtol=1e-3)


def test_a_linear_score_is_split_by_its_weights():
    rng = np.random.default_rng(0)
    rows, references = rng.normal(size=(2, 6, 4))
    components, weights = rng.normal(size=(3, 4)), rng.normal(size=3)
    z = rows @ components.T
    found = explanation.column_parts(
        rows, references, components, z, lambda points: points @ weights, np.ones(3)
    )
    assert_allclose(found, (rows - references) * (weights @ components), atol=1e-8)


def test_a_quadratic_score_is_integrated_exactly():
    rng = np.random.default_rng(0)
    rows, references = rng.normal(size=(2, 6, 4))
    z = rows.copy()
    found = explanation.column_parts(
        rows, references, np.eye(4), z, lambda points: (points**2).sum(axis=1), np.ones(4)
    )
    assert_allclose(found, rows**2 - references**2, atol=1e-8)


def test_columns_keep_the_names_of_the_table(data):
    frame = pd.DataFrame(data.data, columns=[f"f{i}" for i in range(5)])
    alone = PCSDA(4, random_state=0).fit(frame, data.target).explain(frame[:2])
    assert alone.names == tuple(frame.columns)
    scaled = pcsda.make_pipeline(StandardScaler(), PCSDA(4, random_state=0))
    assert scaled.fit(frame, data.target).explain(frame[:2]).names == tuple(frame.columns)
    plain = scaled.fit(data.data, data.target).explain(data.data[:2])
    assert plain.names == ("x0", "x1", "x2", "x3", "x4")
    unnamed = PCSDA(4, random_state=0).fit(data.data, data.target).explain(data.data[:2])
    assert unnamed.names is None
    assert {name for name, _ in unnamed.table(1)} == {f"column {i}" for i in range(5)}
    reduced = pcsda.make_pipeline(PCA(3), PCSDA(2, random_state=0)).fit(frame, data.target)
    assert reduced.explain(frame[:1]).names == ("pca0", "pca1", "pca2")
    mapped = pcsda.make_pipeline(NystroemMap(20, random_state=0), PCSDA(2, random_state=0))
    assert len(mapped.fit(frame, data.target).explain(frame[:1]).table()) == 20


def test_kernels_name_the_nearest_training_rows(data):
    model = KernelPCSDA(n_subclasses=4, random_state=0).fit(data.data, data.target)
    why = model.explain(data.data[:20])
    z = model.transform(data.data)
    for kind, found in ((1, why.nearest_positive), (0, why.nearest_negative)):
        rows = np.flatnonzero(data.target == kind)
        apart = np.linalg.norm(z[:20, None] - z[rows], axis=2)
        assert_allclose(
            np.take_along_axis(np.sort(apart, axis=1), np.arange(3)[None], axis=1),
            np.linalg.norm(z[:20, None] - z[found], axis=2),
            atol=1e-9,
        )
    assert "nearest training rows of the class " in str(why[0])
    assert why.columns is None
    with pytest.raises(ValueError, match=r"exist for linear models \(PCSDA, CSDA\) and up to 200"):
        why.table()


def test_many_rows_sparse_rows_and_no_rows_are_explained_by_axes(data):
    model = PCSDA(4, random_state=0).fit(data.data, data.target)
    assert model.explain(data.data[:201]).columns is None
    assert model.explain(sparse.csr_array(data.data[:5])).columns is None


def test_explanations_are_short_and_have_a_table_in_notebooks(data):
    frame = pd.DataFrame(data.data, columns=["<b>", "b", "c", "d", "e"])
    why = PCSDA(4, random_state=0).fit(frame, data.target).explain(frame[:30])
    assert repr(why).startswith("<Explanation of 30 rows>\nlog-likelihood ratio ")
    assert repr(why).endswith("\n...")
    assert len(repr(why).splitlines()) == 7
    assert repr(why[0]).startswith("<Explanation of 1 row>\n")
    html = why._repr_html_()
    assert "<td>&lt;b&gt;</td>" in html
    assert "<b>" not in html
    assert html.count("<li>") == 5
    kernel = KernelPCSDA(n_subclasses=4, random_state=0).fit(data.data, data.target)
    assert "<table>" not in kernel.explain(data.data[:1])._repr_html_()


@pytest.mark.more
def test_rows_are_explained_in_blocks(data, monkeypatch):
    model = PCSDA(4, random_state=0).fit(data.data, data.target)
    whole = model.explain(data.data)
    monkeypatch.setattr(explanation, "BLOCK_BYTES", 1000)
    for name in ("contributions", "subclass", "subclass_distance", "typicality"):
        assert_allclose(getattr(model.explain(data.data), name), getattr(whole, name))


def test_bad_input_is_refused(data):
    with pytest.raises(NotFittedError):
        PCSDA().explain(data.data)
    model = PCSDA(2, random_state=0).fit(data.data, data.target)
    with pytest.raises(ValueError, match=r"X has 4 features, but PCSDA is expecting 5 features"):
        model.explain(data.data[:, 1:])
    with pytest.raises(ValueError, match=r"Input X contains NaN"):
        model.explain(np.full((1, 5), np.nan))
    before = data.data.copy()
    model.explain(data.data)
    assert_array_equal(data.data, before)


def test_explanations_name_subclasses_and_training_rows():
    X, digit = load_digits(return_X_y=True)
    X, digit = X[:600], digit[:600]
    ids = [f"photo {number}" for number in range(600)]
    model = KernelPCSDA(n_subclasses=12, random_state=0).fit(X, digit == 3)
    before = str(model.explain(X[:1]))
    assert "mostly" not in before
    assert model.name_rows(digit, X=X, ids=ids) is model
    why = model.explain(X[:1])
    number = int(why.subclass[0])
    members = np.flatnonzero(model.partition_ == number)
    labels, counts = np.unique(digit[members], return_counts=True)
    assert 2 * counts.max() > counts.sum()
    name = f"{'' if len(labels) == 1 else 'mostly '}{labels[counts.argmax()]}"
    examples = model.subclass_examples_[number - 1]
    assert {*examples} <= {ids[row] for row in members}
    assert why.subclass_of().startswith(f"subclass {number} ({name}, examples {examples[0]}, ")
    assert why.subclass_of() in str(why)
    assert f"of the class {ids[why.nearest_positive[0, 0]]}, " in str(why)
    # Examples are the members that lie nearest to the centre of their subclass.
    z, centre = model.transform(X), model.density_.base.subclasses[number - 1]
    order = members[np.argsort(np.linalg.norm(z[members] - centre, axis=1))]
    assert examples == [ids[row] for row in order[:3]]
    # A fit names subclasses if labels do, and forgets the names given to an earlier fit.
    model.set_params(pos_label=3).fit(X, digit)
    assert not hasattr(model, "subclass_examples_")
    assert "mostly 0" in model.subclass_names_ or "0" in model.subclass_names_
    given = PCSDA(random_state=0).fit(X, digit == 3, subclass_labels=digit)
    assert given.subclass_names_ == [str(d) for d in range(10) if d != 3]
    assert not hasattr(given.name_rows(ids=ids), "row_ids_")  # a linear model explains by columns


@pytest.mark.parametrize(
    ("groups", "labels", "expected"),
    [
        ([0, 1, 1, 1, 2], list("xaabb"), ["mostly a", "b"]),
        ([0, 1, 1, 3, 3], list("xabcc"), ["a and b among others", "empty", "c"]),
        ([0, -1, 1], list("xay"), ["y"]),
    ],
)
def test_subclasses_are_named_after_their_most_common_label(groups, labels, expected):
    assert mostly(np.array(groups), np.array(labels)) == expected


def test_rows_of_a_fit_in_blocks_cannot_be_named():
    X, y = make_class_specific(300, n_features=4, random_state=0, return_X_y=True)
    model = PCSDA(n_subclasses=2, random_state=0)
    fit_blocks(model, [(X, y)], classes=[0, 1])
    with pytest.raises(ValueError, match="does not know the subclasses of its training rows"):
        model.name_rows(y)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        PCSDA(random_state=0).fit(X, y).name_rows(y[:-1])


def test_an_explanation_needs_a_label():
    X, y = make_blobs(60, centers=3, random_state=0)
    bank = VerifierBank(PCSDA(1, random_state=0)).fit(X, y)
    with pytest.raises(ValueError, match=r"^explain needs label=, one of classes_: each label has"):
        bank.explain(X)
    row = X[[0]]
    best = bank.predict(row)[0]
    found = bank.explain(row, best).score
    assert_allclose(found, bank.log_likelihood_ratio(row).max(axis=1), rtol=1e-9)
