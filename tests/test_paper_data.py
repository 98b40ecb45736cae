"""The paper benchmark's data sets: read if present, reported if missing."""

import numpy as np
import pytest
from benchmarks.paper import __main__ as command
from benchmarks.paper import datasets, published, rows


def test_a_missing_data_set_is_reported_and_not_replaced(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PCSDA_DATA", str(tmp_path))
    with pytest.raises(datasets.AbsentError, match=r"no jaffe_40x30.npz or the folder jaffe in"):
        datasets.load("Jaffe")
    monkeypatch.delenv("PCSDA_DATA")
    with pytest.raises(datasets.AbsentError, match=r"PCSDA_DATA names, which is not set"):
        datasets.load("OptDigits")
    place = ["--rows", str(tmp_path / "rows.jsonl"), "--tables", str(tmp_path)]
    assert command.main(["--datasets", "AR", *place]) == 0
    assert "AR is absent" in capsys.readouterr().err
    assert rows.read(tmp_path / "rows.jsonl") == []


def test_a_set_is_read_from_an_archive(tmp_path, monkeypatch):
    monkeypatch.setenv("PCSDA_DATA", str(tmp_path))
    X, y = np.arange(12, dtype=np.uint8).reshape(4, 3), np.array([1, 0, 1, 0], dtype=np.int16)
    np.savez(tmp_path / "usps.npz", X=X, y=y, label_names=np.array(["p", "q"]))
    found = datasets.load("USPS")
    assert found.classes == ("p", "q")
    assert found.X.dtype == np.float64
    np.testing.assert_array_equal(found.X, X)
    np.testing.assert_array_equal(found.y, y)
    assert found.shape is None  # three columns are no picture of 16 x 16


def test_faces_are_read_from_folders_of_pictures(tmp_path, monkeypatch):
    image = pytest.importorskip("PIL.Image")
    monkeypatch.setenv("PCSDA_DATA", str(tmp_path))
    grey = np.kron(np.arange(1200, dtype=np.uint8).reshape(40, 30) // 8, np.ones((3, 3), np.uint8))
    for name in ("anna", "berta"):
        (tmp_path / "jaffe" / name).mkdir(parents=True)
        image.fromarray(grey).save(tmp_path / "jaffe" / name / "1.png")
    (tmp_path / "jaffe" / "anna" / "notes.txt").write_text("no picture")
    image.fromarray(np.stack([grey] * 3, axis=-1)).save(tmp_path / "jaffe" / "berta" / "2.png")
    found = datasets.load("Jaffe")
    assert found.classes == ("anna", "berta")
    assert found.y.tolist() == [0, 1, 1]
    np.testing.assert_allclose(found.X, np.tile(grey[::3, ::3].ravel(), (3, 1)), atol=1)
    assert found.shape == (40, 30)
    (tmp_path / "orl").mkdir()
    with pytest.raises(datasets.AbsentError, match="has no pictures; put those of each class into"):
        datasets.load("ORL")


def test_openml_is_asked_only_on_request(monkeypatch):
    asked = []

    def fetch(*, data_id, **_):
        asked.append(data_id)
        return np.arange(6.0).reshape(3, 2), np.array(["5", "7", "5"], dtype=object)

    monkeypatch.delenv("PCSDA_DATA", raising=False)
    monkeypatch.setattr("sklearn.datasets.fetch_openml", fetch)
    with pytest.raises(datasets.AbsentError):
        datasets.load("OptDigits")
    found = datasets.load("OptDigits", openml=True)
    assert asked == [28]
    assert found.classes == ("5", "7")
    assert found.y.tolist() == [0, 1, 0]


def test_every_set_of_the_paper_has_its_citation_and_its_row():
    known = {line[0] for line in published.read("datasets")}
    assert {source.published for source in datasets.PAPER} == known
    for source in datasets.SOURCES.values():
        assert source.citation
        assert source.terms
        assert source.obtain
        assert source.published in known | {None}
