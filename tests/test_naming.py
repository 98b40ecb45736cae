"""Names of subclasses and rows inside a bank, from the labels of their rows and from examples."""

import pickle

import numpy as np
import pandas as pd
import pytest
from factories import in_turn
from sklearn.base import clone
from sklearn.datasets import load_digits

import pcsda
from pcsda import PCSDA, PCSDACV, KernelPCSDA, VerifierBank, fit_blocks
from pcsda.unwrap import unwrap

KERNEL = KernelPCSDA(n_subclasses=12, gamma="scale", random_state=0)
BANKS = {
    "pooled": VerifierBank(PCSDA(n_subclasses=12, random_state=0)),
    "per-label": VerifierBank(PCSDA(n_subclasses=12, random_state=0), calibration="per-label"),
    "own-clusters": VerifierBank(PCSDA(n_subclasses=9, random_state=0), subclasses="per-class"),
    "kernel": VerifierBank(KERNEL),
    "bandwidths": VerifierBank(clone(KERNEL).set_params(gamma="positive")),
    "search": VerifierBank(
        PCSDACV(
            PCSDA(random_state=0), n_subclasses=[5], n_components=[2], regularization=[0.01], cv=2
        )
    ),
}
EVERY = in_turn("bank", list(BANKS.values()), ids=list(BANKS))
IDS = np.array([f"scan {number}" for number in range(400)])


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X[:400], y[:400]


@pytest.fixture(scope="module")
def five():
    """Rows of five digits: a search for each of ten takes long."""
    X, y = load_digits(return_X_y=True)
    chosen = np.flatnonzero(np.isin(y, [0, 1, 3, 4, 8]))[:200]
    return X[chosen], y[chosen]


def test_batches_and_blocks_name_subclasses_like_fit(digits):
    X, y = digits
    kinds = np.array(list("abcdefghij"))[y]
    whole = PCSDA(random_state=0).fit(X, y == 3, subclass_labels=kinds)
    streamed = PCSDA(random_state=0)
    for part in (slice(0, 30), slice(30, 400)):  # later batches bring further subclasses
        streamed.partial_fit(X[part], y[part] == 3, subclass_labels=kinds[part])
    blocks = fit_blocks(PCSDA(random_state=0), X, y=y == 3, subclass_labels=kinds)
    assert whole.subclass_names_ == list("abcefghij")
    assert streamed.subclass_names_ == blocks.subclass_names_ == whole.subclass_names_
    assert not hasattr(PCSDA(random_state=0).partial_fit(X, y == 3), "subclass_names_")
    assert not hasattr(fit_blocks(PCSDA(random_state=0), X, y=y == 3), "subclass_names_")


def check_names(model, y):
    """Check that subclasses are named after the labels of their rows."""
    for number, name in enumerate(model.subclass_names_, 1):
        inside = y[model.partition_ == number]
        labels, counts = np.unique(inside, return_counts=True)
        top = labels[counts.argmax()]
        if len(labels) == 1:
            assert name == str(top)
        elif 2 * counts.max() > len(inside):
            assert name == f"mostly {top}"
        else:
            assert name.startswith(f"{top} and ")


@EVERY
def test_subclasses_are_named_after_their_most_common_label(bank, five, tmp_path):
    X, y = five
    bank = clone(bank).fit(X, y)
    for label in (3, 8):
        model = unwrap(bank.models_[label]).model
        assert len(model.subclass_names_) == len(model.subclass_counts_)
        assert str(label) not in {name.removeprefix("mostly ") for name in model.subclass_names_}
        check_names(model, y)
        why = bank.explain(X[:1], label)
        assert f"({model.subclass_names_[why.subclass[0] - 1]}, n = " in str(why)
    # Examples come with names of the rows, and stay in files.
    assert bank.name_rows(IDS[:200]) is bank
    pcsda.save(bank, tmp_path / "bank.pcsda")
    for same in (bank, pickle.loads(pickle.dumps(bank)), pcsda.load(tmp_path / "bank.pcsda")):
        model = unwrap(same.named_model(8)).model
        inside = IDS[:200][model.partition_ == 1].tolist()
        assert set(model.subclass_examples_[0]) <= set(inside)
        assert f"examples {model.subclass_examples_[0][0]}" in str(same.explain(X, 8))


@EVERY
@pytest.mark.more
def test_names_follow_added_and_removed_rows(bank, five):
    X, y = five
    bank = clone(bank).fit(X[y != 0], y[y != 0]).name_rows(IDS[:200][y != 0])
    bank.update(X[y == 3][:1] + 0.5, touched := 3)
    labels = np.append(y[y != 0], touched)
    check_names(unwrap(bank.named_model(touched)).model, labels)
    bank.remove(4)
    labels = labels[labels != 4]
    for label in (1, touched):
        model, why = unwrap(bank.named_model(label)).model, bank.explain(X[:5], label)
        assert len(model.subclass_names_) == len(model.subclass_counts_)
        assert "examples ," not in str(why)
        if why.nearest_negative is not None and len(model.partition_) == len(labels):
            # Rows of a removed label are not neighbours.
            assert (labels[why.nearest_positive] == label).all()
            assert (labels[why.nearest_negative] != label).all()
    check_names(unwrap(bank.refresh().models_[1]).model, labels)


def test_labels_that_share_covariances_are_their_own_subclasses(digits):
    X, y = digits
    people = np.array([f"p{label}" for label in y])
    bank = VerifierBank().fit(X, people)
    expected = [f"p{label}" for label in range(10) if label != 3]
    assert unwrap(bank.models_["p3"]).model.subclass_names_ == expected


def test_background_rows_are_named_background(digits):
    X, y = digits
    bank = VerifierBank(PCSDA(n_subclasses=12, random_state=0))
    bank.fit(X[y < 5], y[y < 5], background=X[y == 6])
    assert "background" in bank.models_[3].subclass_names_


def test_a_bank_explains_by_the_names_of_columns(digits):
    X, y = digits
    frame = pd.DataFrame(X, columns=[f"pixel {place}" for place in range(64)])
    bank = VerifierBank().fit(frame, y)
    assert bank.explain(frame[:1], 3).table()[0][0].startswith("pixel ")


def test_a_wrong_number_of_names_is_refused(digits):
    X, y = digits
    bank = VerifierBank().fit(X, y)
    with pytest.raises(ValueError, match="ids has 3 names but the bank has 400 rows; give one for"):
        bank.name_rows(IDS[:3])
