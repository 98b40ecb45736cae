"""Banks that divide rows by their length: the choice, and the same scores on every route."""

import pickle

import numpy as np
import onnxruntime
import pytest
from bank_factories import exposed, people
from factories import close, in_turn
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.preprocessing import Normalizer, normalize

from pcsda import PCSDA, KernelPCSDA, VerifierBank, VerifierPipeline, export_onnx, load, save
from pcsda.core.kindred_fit import fit_kindred
from pcsda.core.linalg import unit_rows
from pcsda.estimators import kindred_choice

PLAIN = PCSDA(random_state=0)
KERNEL = KernelPCSDA(gamma="all", random_state=0)
WIDTHS = pytest.mark.parametrize("width", [20, 130], ids=["tall", "wide"])
CASES = in_turn(
    ("template", "width"),
    [(PLAIN, 20), (PLAIN, 130), (KERNEL, 20)],
    ids=["tall", "wide", "kernel"],
)


def rows_of(n_people=14, n_rows=4, width=20, seed=0):
    """Return exposed rows of planted people; rows from other seeds are of other people."""
    X, y = people(n_people, n_rows, width, seed)
    return exposed(X, seed), y


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_get_unit_length_whatever_their_scale(dtype):
    X = people(5, 3)[0].astype(dtype)
    X[4] = 0
    found = unit_rows(X)
    assert found.dtype == dtype
    close(found, normalize(X), 1e-6 if dtype == "float32" else 1e-14)
    assert_array_equal(found[4], 0)
    largest = float(np.finfo(dtype).max) / 8  # its square overflows, and that of the next is zero
    close(unit_rows(X * np.array(largest, dtype)), found, 1e-6)
    close(unit_rows(X * np.array(1 / np.sqrt(largest) / 1e4, dtype)), found, 1e-3)


@CASES
def test_a_bank_divides_rows_by_length_where_only_direction_matters(template, width):
    X, y = rows_of(width=width)
    bank = VerifierBank(template).fit(X, y)
    assert bank.unit_length_
    plain = VerifierBank(template).fit(normalize(X), y)
    new = rows_of(width=width, seed=1)[0]
    ratios = bank.log_likelihood_ratio(new)
    close(ratios, plain.log_likelihood_ratio(normalize(new)), 1e-7)
    close(bank.log_likelihood_ratio(new * np.linspace(0.01, 100, len(new))[:, None]), ratios, 1e-7)
    assert bank.threshold_.value == pytest.approx(plain.threshold_.value, rel=1e-6)
    assert bank.ridge_ == pytest.approx(plain.ridge_)
    assert bank.regularization_ == pytest.approx(plain.regularization_)


def test_a_given_ridge_is_relative_to_the_rows_used():
    X, y = rows_of()
    given = PCSDA(regularization=0.1, random_state=0)
    bank, plain = VerifierBank(given).fit(X, y), VerifierBank(given).fit(normalize(X), y)
    assert bank.unit_length_
    assert bank.ridge_ == pytest.approx(plain.ridge_)
    close(bank.log_likelihood_ratio(X), plain.log_likelihood_ratio(normalize(X)), 1e-7)


@pytest.mark.each_value
@WIDTHS
@pytest.mark.parametrize("background", [False, True], ids=["alone", "background"])
@pytest.mark.more
def test_rows_stay_as_they_are_where_length_matters(width, background, monkeypatch):
    """The result is the same to the last bit as without the choice."""
    X, y = people(14, 4, width)
    others = people(6, 1, width, seed=9)[0] if background else None
    bank = VerifierBank(PLAIN).fit(X, y, background=others)
    monkeypatch.setattr(kindred_choice, "LEAST_GAIN", np.inf)
    plain = VerifierBank(PLAIN).fit(X, y, background=others)
    assert bank.unit_length_ is plain.unit_length_ is False
    new = people(14, 2, width, seed=1)[0]
    assert_array_equal(bank.log_likelihood_ratio(new), plain.log_likelihood_ratio(new))
    assert bank.threshold_ == plain.threshold_
    assert type(bank.models_[3]) is PCSDA


@pytest.mark.more
def test_only_banks_with_common_covariances_choose(monkeypatch):
    monkeypatch.setattr(kindred_choice, "LEAST_GAIN", -np.inf)  # all that choose take unit length
    X, y = rows_of()
    assert VerifierBank(PLAIN).fit(X, y).unit_length_
    assert not VerifierBank(PCSDA(3, random_state=0)).fit(X, y).unit_length_
    assert not VerifierBank(PLAIN, calibration="per-label").fit(X, y).unit_length_


@pytest.mark.more
def test_kernels_choose_unless_they_were_given_for_rows_as_they_are(monkeypatch):
    monkeypatch.setattr(kindred_choice, "LEAST_GAIN", -np.inf)
    X, y = rows_of()

    def chooses(**given):
        return VerifierBank(KernelPCSDA(random_state=0, **given)).fit(X, y).unit_length_

    assert chooses()
    assert chooses(gamma="scale")
    assert chooses(kernel="linear")
    assert not chooses(gamma=0.01)
    assert not chooses(kernel=lambda one, other: float(one @ other))


def test_a_linear_kernel_chooses_as_linear_rows_do():
    X, y = rows_of()
    linear = VerifierBank(PLAIN).fit(X, y)
    kernel = VerifierBank(KernelPCSDA(kernel="linear", random_state=0)).fit(X, y)
    assert kernel.unit_length_
    new = rows_of(seed=1)[0]
    close(kernel.log_likelihood_ratio(new), linear.log_likelihood_ratio(new), 1e-6)


def test_pairs_decide_where_strangers_hide_the_known(monkeypatch):
    """The best scores of strangers say little if labels are crowded, and those of pairs do."""
    X, y = people(60, 3, width=20, within=1.5)
    X = exposed(X)
    trials = [
        fit_kindred(rows, y, np.random.default_rng(0), ridges=(1.0,)) for rows in (X, unit_rows(X))
    ]
    best, pairs = ([getattr(one, name) for one in trials] for name in ("loss", "pair_loss"))
    assert best[0] - best[1] < kindred_choice.LEAST_GAIN
    assert pairs[0] - pairs[1] > kindred_choice.LEAST_GAIN
    bank = VerifierBank(PLAIN).fit(X, y)
    assert bank.unit_length_
    new, names = exposed(people(60, 9, width=20, within=1.5)[0], 1), np.repeat(np.arange(60), 9)
    monkeypatch.setattr(kindred_choice, "LEAST_GAIN", np.inf)
    assert bank.score(new, names) > VerifierBank(PLAIN).fit(X, y).score(new, names) + 0.05


@CASES
@pytest.mark.more
def test_single_rows_are_divided_where_lengths_have_heavy_tails(template, width, monkeypatch):
    X, y = rows_of(40, 1, width)
    bank = VerifierBank(template).fit(X, y)
    assert bank.unit_length_
    plain = VerifierBank(template).fit(normalize(X), y)
    assert not plain.unit_length_
    again, names = people(40, 3, width)
    new = exposed(again, 1)
    ratios = bank.log_likelihood_ratio(new)
    close(ratios, plain.log_likelihood_ratio(normalize(new)), 1e-7)
    assert bank.threshold_.value == pytest.approx(plain.threshold_.value, rel=1e-6)
    for one, given in ((bank, lambda rows: rows), (plain, normalize)):
        one.update(given(new[:2]), 0).enroll(given(new[-2:]), 40).remove(3)
    close(bank.log_likelihood_ratio(X), plain.log_likelihood_ratio(normalize(X)), 1e-6)
    refreshed = plain.refresh().log_likelihood_ratio(normalize(X))
    close(bank.refresh().log_likelihood_ratio(X), refreshed, 1e-6)
    monkeypatch.setattr(kindred_choice, "LIGHTER_TAILS", np.inf)
    raw = VerifierBank(template).fit(X, y)
    assert not raw.unit_length_
    assert np.mean(ratios.argmax(axis=1) == names) > raw.score(new, names) + 0.1


@pytest.mark.parametrize("template", [PLAIN, KERNEL], ids=["linear", "kernel"])
@pytest.mark.more
def test_single_rows_without_heavy_tails_stay_as_they_are(template):
    X, y = people(40, 1)
    assert not VerifierBank(template).fit(X + 3, y).unit_length_
    gaussian = clone(template).set_params(tails="gaussian")  # without tails, nothing shows it
    assert not VerifierBank(gaussian).fit(exposed(X), y).unit_length_


def test_some_single_rows_decide_for_many(monkeypatch):
    X, y = rows_of(60, 1)
    monkeypatch.setattr(kindred_choice, "CHOICE_LABELS", 30)
    assert VerifierBank(PLAIN).fit(X, y).unit_length_


def test_rows_that_differ_only_in_length_are_left_alone():
    y = np.repeat(np.arange(12), 4)
    length = 1 + y + 0.1 * np.random.default_rng(0).standard_normal(len(y))
    bank = VerifierBank(PLAIN).fit(np.outer(length, [1.0, 2.0, -1.0]), y)
    assert not bank.unit_length_


@pytest.mark.each_value
@CASES
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_route_scores_rows_alike(template, width, dtype, tmp_path):
    X, y = rows_of(width=width)
    X, new = X.astype(dtype), rows_of(width=width, seed=1)[0].astype(dtype)
    new[5] = 0
    bank = VerifierBank(template).fit(X, y)
    assert bank.unit_length_
    tolerance = 1e-9 if dtype == "float64" else 2e-3
    ratios = bank.log_likelihood_ratio(new)
    assert ratios.dtype == dtype
    for column, model in enumerate(bank.models_.values()):
        assert isinstance(model, VerifierPipeline)
        assert isinstance(model[0], Normalizer)
        close(ratios[:, column], model.log_likelihood_ratio(new), tolerance)
    close(bank.decision_function(new)[:, 5], bank.models_[5].decision_function(new), tolerance)
    close(bank.verify(new, 5), ratios[:, 5], tolerance)
    close(bank.explain(new, 5).score, ratios[:, 5], tolerance)
    close(bank.log_likelihood_ratio(new, np.arange(len(new))), ratios, tolerance)
    assert_array_equal(bank.rank(new, 5), bank.models_[5].rank(new))
    save(bank, tmp_path / "bank.pcsda")
    for copy in (load(tmp_path / "bank.pcsda"), pickle.loads(pickle.dumps(bank))):
        assert copy.unit_length_
        assert_array_equal(copy.log_likelihood_ratio(new), ratios)
        assert copy.threshold_ == bank.threshold_
    export_onnx(bank, tmp_path / "bank.onnx", dtype=dtype)
    session = onnxruntime.InferenceSession(tmp_path / "bank.onnx")
    (found,) = session.run(["log_likelihood_ratio"], {session.get_inputs()[0].name: new})
    close(found, ratios, tolerance)


@pytest.mark.parametrize("template", [PLAIN, KERNEL], ids=["linear", "kernel"])
def test_models_know_their_left_out_rows_and_examples(template):
    X, y = rows_of()
    names = [f"row {i}" for i in range(len(X))]
    bank = VerifierBank(template).fit(X, y).name_rows(names)
    plain = VerifierBank(template).fit(normalize(X), y).name_rows(names)
    for label in (0, 9):
        found, expected = bank.named_model(label)[-1], plain.named_model(label)
        close(found.loo_scores_, expected.loo_scores_, 1e-7)
        assert found.subclass_names_ == expected.subclass_names_
        assert found.subclass_examples_ == expected.subclass_examples_


@pytest.mark.each_value
@CASES
@pytest.mark.parametrize(
    "change",
    [
        "all",
        *(
            pytest.param(c, marks=pytest.mark.more)
            for c in ("enroll", "update", "reject", "remove", "loaded")
        ),
    ],
)
def test_after_a_change_labels_equal_those_of_normalised_rows(template, width, change, monkeypatch):
    """A bank of normalised rows, which other tests compare with fresh fits, changes alike."""
    X, y = rows_of(width=width)
    rows = {"X": X, "extra": exposed(people(1, 3, width, 4)[0], 4)}
    rows |= {"away": rows_of(3, 2, width, 5)[0], "new": rows_of(width=width, seed=1)[0]}
    banks = []
    for given in (rows, {name: normalize(part) for name, part in rows.items()}):
        late = y == 13 if change in ("enroll", "all", "loaded") else y < 0
        bank = VerifierBank(template).fit(given["X"][~late], y[~late])
        bank = pickle.loads(pickle.dumps(bank)) if change == "loaded" else bank
        if late.any():
            bank.enroll(given["X"][late][:2], 13).update(given["X"][late][2:], 13)
        if change in ("update", "all", "loaded"):
            bank.update(given["extra"], 4)
        if change in ("reject", "all", "loaded"):
            bank.reject(given["away"], 3)
        if change in ("remove", "all", "loaded"):
            bank.remove(2)
        banks.append(bank)
    bank, plain = banks
    assert bank.unit_length_
    assert not plain.unit_length_
    ratios = bank.log_likelihood_ratio(rows["new"])
    close(ratios, plain.log_likelihood_ratio(normalize(rows["new"])), 1e-6)
    column = bank.classes_.tolist().index(4)
    close(bank.models_[4].log_likelihood_ratio(rows["new"]), ratios[:, column], 1e-6)
    close(bank.models_[4][-1].eigenvalues_, plain.models_[4].eigenvalues_, 1e-6)
    monkeypatch.setattr(kindred_choice, "LEAST_GAIN", np.inf)  # a refresh does not choose again
    bank.refresh()
    assert bank.unit_length_
    again = plain.refresh().log_likelihood_ratio(normalize(rows["new"]))
    close(bank.log_likelihood_ratio(rows["new"]), again, 1e-6)


def test_a_fit_forgets_the_choice_of_the_last():
    X, y = rows_of()
    bank = VerifierBank(PLAIN).fit(X, y)
    assert bank.unit_length_
    X, y = people(14, 4)
    assert not bank.fit(X, y).unit_length_
    again = VerifierBank(PLAIN).fit(X, y)
    assert_array_equal(bank.log_likelihood_ratio(X), again.log_likelihood_ratio(X))


def test_some_labels_decide_for_many(monkeypatch):
    X, y = rows_of(40, 3)
    X, y = np.concatenate([X, rows_of(30, 1, seed=2)[0]]), np.append(y, 40 + np.arange(30))
    whole = VerifierBank(PLAIN).fit(X, y)
    fitted = []
    fit = kindred_choice.fit_kindred

    def counted(rows, owner, *args, **more):
        fitted.append(np.bincount(owner))
        return fit(rows, owner, *args, **more)

    monkeypatch.setattr(kindred_choice, "fit_kindred", counted)
    monkeypatch.setattr(kindred_choice, "CHOICE_LABELS", 20)
    bank = VerifierBank(PLAIN).fit(X, y)
    assert bank.unit_length_
    assert whole.unit_length_
    assert [len(counts) for counts in fitted] == [20, 20, 70]
    assert all(np.all(counts == 3) for counts in fitted[:2])
    assert_array_equal(bank.log_likelihood_ratio(X), whole.log_likelihood_ratio(X))


def test_files_from_before_the_choice_keep_rows_as_they_are():
    X, y = people(14, 4)
    bank = VerifierBank(PLAIN).fit(X, y)
    state = bank.__getstate__()
    del state["unit_length_"]
    old = VerifierBank.__new__(VerifierBank)
    old.__setstate__(state)
    assert_array_equal(old.log_likelihood_ratio(X), bank.log_likelihood_ratio(X))
    assert_array_equal(
        old.refresh().log_likelihood_ratio(X), bank.refresh().log_likelihood_ratio(X)
    )


@pytest.mark.more  # as in test_kindred_bank.py
@pytest.mark.parametrize("template", [PLAIN, KERNEL], ids=["linear", "kernel"])
def test_strangers_are_accepted_as_often_as_promised(template):
    rates, came = (0.1, 0.05), []
    for seed in range(6):
        X, y = people(130, 4, width=30, within=1.2, seed=seed)
        X, known = exposed(X, seed), y < 30
        bank = VerifierBank(template).fit(X[known], y[known])
        assert bank.unit_length_
        best = bank.log_likelihood_ratio(X[~known]).max(axis=1)
        came.append([np.mean(best >= bank.choose_threshold(rate).value) for rate in rates])
    for rate, share in zip(rates, np.mean(came, axis=0), strict=True):
        assert rate / 2 < share < rate * 2
