"""`pcsda identify` and `pcsda update`: a bank names rows, rejects strangers, learns labels."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import pcsda

FEATURES = [f"f{i}" for i in range(6)]
FIT = ("fit", "people.csv", "--label", "name", "--positive", "all", "-o", "bank.pcsda")
IDENTIFY = ("identify", "bank.pcsda", "door.csv")
UPDATE = ("update", "bank.pcsda", "more.csv", "--label", "name")


def make_people(names, n_rows, seed):
    rng = np.random.default_rng(seed)
    labels = np.repeat(names, n_rows)
    places = np.random.default_rng(5).normal(0, 3, (12, 6))
    X = rng.normal(size=(len(labels), 6)) + places[[ord(name) - ord("a") for name in labels]]
    return pd.DataFrame(X, columns=FEATURES).assign(name=labels)


@pytest.fixture(scope="module")
def fitted():
    """The file that the first test fits, for the others."""
    return {}


@pytest.fixture
def people(command, fitted):
    """Make a bank of eight people, and rows of four of them and of four strangers."""
    make_people(list("abcdefgh"), 30, 0).to_csv("people.csv", index=False)
    make_people(list("abijkl"), 20, 1).assign(visit="v").to_csv("door.csv", index=False)
    make_people(list("aai"), 15, 2).to_csv("more.csv", index=False)
    bank = Path("bank.pcsda")
    if not fitted:
        command(*FIT)
        fitted["bank"] = bank.read_bytes()
    bank.write_bytes(fitted["bank"])
    return pcsda.load(bank)


@pytest.mark.more
def test_rows_are_named_at_or_above_the_banks_threshold(command, people):
    door = pd.read_csv("door.csv")
    said = command(*IDENTIFY, "--id", "name")
    found = said.table()
    expected = people.identify(door[FEATURES], unknown="unknown")
    np.testing.assert_array_equal(found.label, expected)
    assert list(found.columns) == ["row", "id", "label", "best", "llr"]
    chosen = people.threshold_
    assert f"of at least {chosen.value:.4g} are accepted ({chosen.rule})" in said.err
    # Scores without a named label also name the best one, by the same rule.
    again = command("score", "bank.pcsda", "door.csv", "--ignore", "name").table()
    np.testing.assert_array_equal(again.label, expected)
    # Zero, the threshold of an even prior, would accept strangers.
    let_in = command("score", "bank.pcsda", "door.csv", "--prior", "0.5").table().label
    assert np.sum(let_in != "unknown") > np.sum(expected != "unknown")


def test_a_stranger_rate_or_a_threshold_decides(command, people):
    door = pd.read_csv("door.csv")
    limit = people.choose_threshold(max_false_alarms=0.1)
    found = command(*IDENTIFY, "--max-false-alarms", "0.1", "--unknown", "nobody").table()
    expected = people.identify(door[FEATURES], limit.value, unknown="nobody")
    np.testing.assert_array_equal(found.label, expected)
    found = command(*IDENTIFY, "--threshold", "99", "--json").json()
    assert {row["label"] for row in found["rows"]} == {"unknown"}
    command(*IDENTIFY, "--threshold", "1", "--max-false-alarms", "0.1", code=2)


def test_rows_of_one_trial_get_one_name(command, people):
    found = command(*IDENTIFY, "--trial", "visit").table()
    assert found.trial.tolist() == ["v"]
    said = command(*IDENTIFY, "--trial", "visit", "--id", "name", code=2).err
    assert "--id names single rows, --trial combines several; use only one" in said


def test_a_single_verifier_cannot_identify(command):
    said = command("identify", "{shop}/weld.pcsda", "{shop}/test.csv", code=2).err
    assert "weld.pcsda is not a bank; it verifies only weld. Use pcsda score, or fit a bank" in said


@pytest.mark.parametrize("scale", [pytest.param("none", marks=pytest.mark.more), "standard"])
def test_a_bank_learns_rows_and_labels(command, people, scale):
    command(*FIT, "--scale", scale)
    before = pcsda.load("bank.pcsda")
    more = pd.read_csv("more.csv")
    said = command(*UPDATE, "-o", "new.pcsda")
    assert "Added: 30 rows of a, 15 rows of i.\n" in said.out
    found = pcsda.load("new.pcsda")
    assert found.classes_.tolist() == list("abcdefghi")
    # The library's result, on rows scaled as in the earlier fit.
    bank, rows = before, more[FEATURES]
    if scale == "standard":
        bank, rows = before[-1], before[:-1].transform(rows)
    bank.update(rows[more.name == "a"], "a").enroll(rows[more.name == "i"], "i").refresh()
    door = pd.read_csv("door.csv")[FEATURES]
    expected = before.log_likelihood_ratio(door)
    np.testing.assert_allclose(found.log_likelihood_ratio(door), expected)
    np.testing.assert_allclose(command("identify", "new.pcsda", "door.csv").table().llr,
                               expected.max(axis=1))  # fmt: skip
    # New and earlier rows are both recognised as training rows.
    for name in ("more.csv", "people.csv"):
        note = command("evaluate", "new.pcsda", name, "--label", "name", "--resamples", "2").err
        assert "the model was trained on these rows" in note


def test_a_bank_is_updated_in_place(command, people):
    found = command(*UPDATE, "--json").json()
    assert found["file"] == "bank.pcsda"
    assert found["added"] == {"a": 30, "i": 15}
    assert "i" in pcsda.load("bank.pcsda").classes_
    # The same rows again are refused, and the file does not change.
    said = command(*UPDATE, code=1).err
    assert "row 0 of more.csv is already in the bank, as a row of label 'a'" in said
    # A row has the number of its line in the file, not among the rows of its label.
    kept = pd.concat([make_people(list("b"), 4, 7), pd.read_csv("more.csv")[:20]])
    kept.to_csv("more.csv", index=False)
    assert "row 4 of more.csv is already in the bank" in command(*UPDATE, code=1).err


def test_update_continues_a_stream(command, shop):
    X, kinds = shop.train[["width", "depth", "hue", "grain", "rim"]], shop.train.kind
    model = pcsda.PCSDA(random_state=0, pos_label="weld").partial_fit(X[:120], kinds[:120])
    model.choose_threshold(max_false_alarms=0.1)
    pcsda.save(model, "m.pcsda")
    shop.train[120:].to_csv("more.csv", index=False)
    said = command("update", "m.pcsda", "more.csv", "--label", "kind", "--ignore", "part")
    rule = "at most 10% false alarms, on left-out rows"
    assert f"the threshold ({rule}) was chosen before this update and has been dropped" in said.err
    model.partial_fit(X[120:], kinds[120:])
    found = pcsda.load("m.pcsda")
    np.testing.assert_allclose(
        found.log_likelihood_ratio(X), model.log_likelihood_ratio(X), rtol=1e-9
    )


def test_models_without_rows_and_labels_of_another_type_are_rejected(command, shop):
    words = ("update", "{shop}/weld.pcsda", "{shop}/test.csv", "--label", "kind", "-o", "n.pcsda")
    said = command(*words, code=1).err
    assert "weld.pcsda cannot be updated; fit a new model on all rows" in said
    X = shop.train[["width", "depth", "hue", "grain", "rim"]]
    bank = pcsda.VerifierBank().fit(X, shop.train.kind.map({"weld": 1, "pore": 2, "crack": 3}))
    pcsda.save(bank, "numbers.pcsda")
    said = command("update", "numbers.pcsda", "{shop}/test.csv", "--label", "kind", code=1).err
    assert "label crack has a different type from the bank's labels, such as 1" in said
    two = pcsda.PCSDA(random_state=0).partial_fit(X, np.where(shop.train.kind == "weld", "y", "n"))
    pcsda.save(two, "two.pcsda")
    said = command("update", "two.pcsda", "{shop}/test.csv", "--label", "kind", code=1).err
    assert "the model does not know crack, pore, weld; it has n, y" in said
