"""`pcsda search`: the session it opens, and what it refuses."""

import re
import subprocess
import sys
import threading
import urllib.request

import numpy as np
import pytest
from sklearn.datasets import load_digits

from pcsda.cli import main
from pcsda.cli.parser import build
from pcsda.cli.search import open_session

X, y = load_digits(return_X_y=True)


@pytest.fixture
def gallery(tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X[:80], columns=[f"x{i}" for i in range(64)])
    frame["file"] = [f"{row}.png" for row in range(80)]
    frame["name"] = [f"n{row}" for row in range(80)]
    frame["words"] = [f"digit {label}" for label in y[:80]]
    path = tmp_path / "rows.csv"
    frame.to_csv(path, index=False)
    (tmp_path / "pictures").mkdir()
    return path


def opened(*words):
    return open_session(build("0").parse_args(["search", *map(str, words)]))


def test_a_folder_of_pictures_opens(gallery):
    folder = gallery.parent / "pictures"
    words = (gallery, "--id", "file", "--media", folder, "--examples", "3.png,13.png")
    session, media = opened(*words)
    assert session.labels() == {"3.png": True, "13.png": True}
    assert session.gallery.shape == (80, 64)
    assert (media.kind, media.folder) == ("image", folder)
    assert media.card(4)["facts"] == {"name": "n4", "words": "digit 4"}
    session.close()
    again, _ = opened(*words)
    assert len(again.history()) == 2  # examples are labelled once
    again.close()
    assert (gallery.parent / "rows.csv.labels.db").exists()


def test_rows_that_cannot_be_shown_are_noted_once(tmp_path, monkeypatch, capsys):
    rows = X[:80].copy()
    rows[5, 2] = np.nan
    np.save(tmp_path / "rows.npy", rows)
    monkeypatch.setattr("pcsda.retrieval.server.serve", lambda *_: None)
    assert main(["search", str(tmp_path / "rows.npy"), "--no-browser"]) == 0
    said = capsys.readouterr().err
    assert said.count("missing or infinite values") == 1
    assert "note: 1 of 80 rows have missing or infinite values and are never shown" in said


def test_texts_file_names_and_plain_rows_open(gallery, tmp_path):
    _, media = opened(gallery, "--media", "words", "--store", tmp_path / "1.db")
    assert (media.kind, media.card(4)["text"]) == ("text", "digit 4")
    session, media = opened(gallery, "--media", "file", "--store", tmp_path / "2.db")
    assert (media.kind, media.folder, session.gallery.ids[3]) == ("image", tmp_path, 3)
    _, media = opened(gallery, "--features", "x*", "--store", tmp_path / "3.db")
    assert (media.kind, set(media.card(0)["facts"])) == ("row", {"file", "name", "words"})
    np.save(tmp_path / "rows.npy", X[:50])
    _, media = opened(tmp_path / "rows.npy", "--examples", "3")
    assert media.card(0)["facts"]["0"] == "0.0"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--media", "{folder}"), "--media with a folder needs --id"),
        (("--id", "words"), "ids must be distinct"),
        (
            ("--examples", "none.png", "--id", "file"),
            "--examples: the id 'none.png' is not in",
        ),
        (("--media", "picture"), "--media picture: there is no such folder, and "),
        (("--features", "words"), "not numeric"),
        (("--ignore", "x*"), "has no numeric columns, only file, name, words"),
        (
            ("--id", "name", "--media", "{folder}"),
            "--id name has no names of files that a browser can show: .",
        ),
    ],
)
def test_galleries_that_cannot_be_opened_are_rejected(gallery, capsys, words, message):
    words = [word.format(folder=gallery.parent / "pictures") for word in words]
    assert main(["search", str(gallery), *words, "--no-browser"]) == 1
    assert message in capsys.readouterr().err


def test_earlier_answers_are_counted(gallery, tmp_path, capsys):
    """Nothing on the screen told whether a second start went on from the first."""
    words = ("--id", "name", "--examples", "n3,n13", "--store", tmp_path / "1.db")
    opened(gallery, *words)[0].close()
    assert "1.db has" not in capsys.readouterr().err
    opened(gallery, *words)[0].close()
    assert "note: 1.db has 2 earlier answers" in capsys.readouterr().err


def test_a_mistyped_option_leaves_no_store_that_blocks_the_next_try(gallery, capsys):
    store = gallery.parent / "rows.csv.labels.db"
    assert main(["search", str(gallery), "--media", "wrods", "--no-browser"]) == 1
    assert "has no column 'wrods', did you mean 'words'?" in capsys.readouterr().err
    assert not store.exists()
    assert main(["search", str(gallery), "--id", "file", "--examples", "no", "--no-browser"]) == 1
    session, _ = opened(gallery, "--id", "name")
    session.label(["n3"], True)
    session.close()
    assert main(["search", str(gallery), "--id", "file", "--no-browser"]) == 1
    assert "another store, or --carry-over to keep the labels" in capsys.readouterr().err


def test_a_folder_as_gallery_and_a_used_port_are_rejected(gallery, capsys):
    assert main(["search", str(gallery.parent / "pictures")]) == 1
    assert "is a folder; give a table" in capsys.readouterr().err
    assert main(["search", str(gallery), "--host", "203.0.113.9", "--no-browser"]) == 1
    err = capsys.readouterr().err
    assert "anyone who can reach 203.0.113.9 and knows the address can open the page" in err
    assert "port 0 of 203.0.113.9 cannot be used" in err


def test_the_command_serves_the_page(gallery, monkeypatch, capsys):
    uvicorn = pytest.importorskip("uvicorn")
    run, pages = uvicorn.Server.run, []

    def visited(server, sockets):
        thread = threading.Thread(target=run, args=(server, sockets))
        thread.start()
        said = capsys.readouterr()
        steps = said.err.splitlines()
        assert steps[0] == f"pcsda: note: reading {gallery}"
        assert steps[1] == "pcsda: note: dividing 80 rows of 64 features into clusters"
        lines = said.out.splitlines()
        assert re.fullmatch(r"Find more like these: http://\S+", lines[0])
        assert lines[1] == f"Labels go to {gallery}.labels.db. End with Ctrl+C; nothing is lost."
        address = lines[0].rsplit(" ", 1)[1]
        with urllib.request.urlopen(address, timeout=30) as answer:
            pages.append(answer.read())
        server.should_exit = True
        thread.join(30)

    monkeypatch.setattr(uvicorn.Server, "run", visited)
    assert main(["search", str(gallery), "--id", "file", "--no-browser"]) == 0
    assert b"Find more like these" in pages[0]


@pytest.mark.more  # the same in a process of its own
def test_the_command_serves_until_it_is_stopped(gallery):
    command = [sys.executable, "-m", "pcsda", "search", str(gallery), "--id", "file"]
    child = subprocess.Popen(
        [*command, "--no-browser"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        address = child.stdout.readline().rsplit(" ", 1)[1].strip()
        assert address.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(address, timeout=30) as answer:
            assert b"Find more like these" in answer.read()
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


def test_the_store_of_labels_is_not_the_gallery(gallery):
    before = gallery.read_bytes()
    with pytest.raises(ValueError, match=r"rows\.csv would overwrite .*rows\.csv; give another na"):
        opened(gallery, "--store", gallery)
    assert gallery.read_bytes() == before
