"""Model files of earlier versions: each loads, scores as it did, and can be saved again.

`golden/make_models.py` wrote the files, with the version that they are named after.
"""

import gzip
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from factories import in_turn
from golden.make_models import results

import pcsda
from pcsda import persistence

FOLDER = Path(__file__).parent / "golden" / "models"
FILES = sorted(path.name.partition(".")[0] for path in FOLDER.glob("*.pcsda.gz"))
EVERY_FILE = in_turn("name", list(FILES))
# scikit-learn's warning when its part of a file is older than itself.
OLDER = pytest.mark.filterwarnings("ignore:Trying to unpickle estimator")


@pytest.fixture
def unpacked(tmp_path):
    """Return a function from a model's name to its file."""

    def unpack(name):
        path = tmp_path / f"{name}.pcsda"
        path.write_bytes(gzip.decompress((FOLDER / f"{name}.pcsda.gz").read_bytes()))
        return path

    return unpack


def expected(name):
    """Return rows and the results of the version that wrote the file."""
    with np.load(FOLDER / f"{name}.npz") as file:
        kept = dict(file)
    rows, columns = kept.pop("rows"), json.loads(str(kept.pop("columns")))
    return pd.DataFrame(rows, columns=columns) if columns else rows, kept


def assert_same(model, rows, kept):
    found = results(model, rows)
    assert found.keys() == kept.keys()
    for name, value in kept.items():
        assert found[name].dtype == value.dtype
        if value.dtype.kind != "f":
            np.testing.assert_array_equal(found[name], value)
            continue
        close = 1e-5 if value.dtype == np.float32 else 1e-10
        np.testing.assert_allclose(found[name], value, rtol=close, atol=close, err_msg=name)


def test_old_files_exist():
    assert len(FILES) >= 14
    assert all(path.stat().st_size < 60 * 1024 for path in FOLDER.iterdir())


@OLDER
@EVERY_FILE
def test_an_old_file_loads_and_scores_as_it_did(name, unpacked, tmp_path):
    rows, kept = expected(name)
    model = pcsda.load(unpacked(name))
    assert_same(model, rows, kept)
    pcsda.save(model, tmp_path / "again.pcsda")
    assert_same(pcsda.load(tmp_path / "again.pcsda"), rows, kept)


@OLDER
@EVERY_FILE
def test_an_old_file_reports_its_facts(name, unpacked, tmp_path):
    path = unpacked(name)
    facts = persistence.describe(path)
    assert facts["pcsda"] == "0.1.0"
    assert facts["format"] == 1
    assert facts["metrics"] == {"eer": 0.125}
    model = pcsda.load(path)
    pcsda.save(model, tmp_path / "again.pcsda")
    again = persistence.describe(tmp_path / "again.pcsda")
    # A newer version may know more of a model, but not something else.
    renewed = {"format", "pcsda", "versions", "saved", "metrics"}
    for fact in facts.keys() - renewed:
        assert again[fact] == facts[fact], fact


@OLDER
@pytest.mark.parametrize("name", ["pcsda", "csda"])
def test_an_old_files_groups_have_their_new_name(name, unpacked):
    model = pcsda.load(unpacked(name))
    assert np.sum(model.partition_ == 0) == model.positive_count_
    assert "groups_" not in vars(model)


@OLDER
def test_an_old_bank_can_be_updated(unpacked):
    bank = pcsda.load(unpacked("bank"))
    rng = np.random.default_rng(0)
    new = rng.standard_normal((8, 4)) + 5
    bank.enroll(new, 9)
    assert bank.predict(new).tolist() == [9] * 8
    bank.remove(0)
    bank.refresh()
    assert bank.classes_.tolist() == [1, 2, 3, 9]


@OLDER
def test_an_old_stream_can_be_continued(unpacked):
    model = pcsda.load(unpacked("stream"))
    before = model.positive_count_
    rng = np.random.default_rng(0)
    # It has no rows to leave out, and continues in the same way.
    with pytest.warns(UserWarning, match="the batches so far were merged without keeping rows"):
        model.partial_fit(rng.standard_normal((3, 4)), [1, 0, 1], subclass_labels=[0, 2, 0])
    assert model.positive_count_ == before + 2
