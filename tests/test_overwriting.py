"""No function or command replaces a file that it reads."""

import os
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from pcsda import PCSDA, SearchSession, fit_blocks, predict_blocks


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty working folder that holds the file X.npy and the folder parts."""
    monkeypatch.chdir(tmp_path)
    y = np.arange(100) % 4 == 0
    X = np.random.default_rng(0).normal(size=(100, 3)) + y[:, None]
    os.mkdir("parts")
    for name, rows in (("X", X), ("parts/a", X[:50]), ("parts/b", X[50:]), ("y", y)):
        np.save(f"{name}.npy", rows)
    np.savez("both.npz", X=X, y=y)
    np.savetxt("X.csv", X, delimiter=",", header="a,b,c", comments="")
    os.symlink("X.npy", "link.npy")
    return tmp_path


@pytest.fixture
def model(here):
    return PCSDA(random_state=0).fit(np.load("X.npy"), np.load("y.npy"))


def mapped():
    return np.load("X.npy", mmap_mode="r")


def sparse_rows():
    rows = mapped()
    starts = np.arange(0, rows.size + 1, rows.shape[1])
    places = np.tile(np.arange(rows.shape[1]), len(rows))
    return sparse.csr_array((rows.reshape(-1), places, starts), shape=rows.shape)


@pytest.mark.parametrize(
    ("blocks", "output", "replaced"),
    [
        (lambda: "X.npy", "X.npy", "X.npy"),
        (lambda: "X.npy", "parts/../X.npy", "X.npy"),
        (lambda: "X.npy", "link.npy", "X.npy"),
        (lambda: "link.npy", "X.npy", "link.npy"),
        (lambda: "X.csv", "X.csv", "X.csv"),
        (lambda: "parts", "parts/a.npy", "parts/a.npy"),
        (lambda: ["parts/a.npy", "parts/b.npy"], "parts/b.npy", "parts/b.npy"),
        (mapped, "X.npy", "X.npy"),
        (lambda: mapped()[20:], "X.npy", "X.npy"),
        (lambda: np.asarray(mapped()), "X.npy", "X.npy"),
        (lambda: [mapped()], "X.npy", "X.npy"),
        (lambda: iter([mapped()]), "X.npy", "X.npy"),
        (lambda: lambda: ((mapped(), None) for _ in range(2)), "X.npy", "X.npy"),
        (sparse_rows, "X.npy", "X.npy"),
    ],
)
def test_results_in_blocks_do_not_replace_their_rows(model, blocks, output, replaced):
    before = Path(replaced).read_bytes()
    with pytest.raises(ValueError, match=rf"would overwrite .*{replaced}; give another name"):
        predict_blocks(model, blocks(), output)
    assert Path(replaced).read_bytes() == before


def test_another_file_in_the_folder_may_be_replaced(model):
    for _ in range(2):
        assert len(np.load(predict_blocks(model, mapped(), "parts/scores.npy"))) == 100
        assert len(np.load(predict_blocks(model, "X.npy", "parts/a.npy"))) == 100


@pytest.mark.parametrize(
    ("blocks", "given", "checkpoint"),
    [
        ("X.npy", {"y": "y.npy"}, "X.npy"),
        ("X.npy", {"y": "y.npy"}, "./y.npy"),
        ("both.npz", {}, "both.npz"),
    ],
)
def test_a_checkpoint_does_not_replace_the_data(here, blocks, given, checkpoint):
    with pytest.raises(ValueError, match=f"would overwrite {os.path.basename(checkpoint)}; give"):
        fit_blocks(PCSDA(random_state=0), blocks, checkpoint=checkpoint, **given)


def test_a_search_does_not_replace_its_gallery(here):
    with pytest.raises(ValueError, match=r"X\.npy would overwrite .*X\.npy; give another name"):
        SearchSession(mapped(), store="X.npy")
    session = SearchSession(mapped())
    with pytest.raises(ValueError, match=r"link\.npy would overwrite .*X\.npy; give another name"):
        session.save("link.npy")
    assert np.load("X.npy").shape == (100, 3)


def test_a_search_saved_to_its_own_store_goes_on(here):
    session = SearchSession(mapped(), store="labels.db")
    session.label([1], True)
    session.save("./labels.db")
    session.label([2], False)
    session.close()
    assert SearchSession.open("labels.db", mapped()).labels() == {1: True, 2: False}
