"""The guarded page: what it serves, and the attacks it must withstand."""

import csv
import io
import json
import os
import re
from http.client import HTTPConnection
from pathlib import Path

import numpy as np
import pytest
from retrieval_factories import TOKEN, Served
from sklearn.datasets import load_digits

import pcsda
from pcsda import SearchSession, Threshold
from pcsda.retrieval import guard, media
from pcsda.retrieval.media import Media, media_of
from pcsda.retrieval.store import StoreError
from pcsda.retrieval.summary import curve_svg, labels_csv, render, state_of

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20
NASTY = "</script><script>alert(1)</script>\"'&.png"
X, y = load_digits(return_X_y=True)
X, y = X[:200], y[:200]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("media")
    (root / "secret.png").write_bytes(PNG)
    pictures = root / "pictures"
    pictures.mkdir()
    (pictures / "good.png").write_bytes(PNG)
    (pictures / "text.png").write_text("<script>alert(1)</script>")
    (pictures / "drawing.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    (pictures / "sound.png").write_bytes(b"RIFF\0\0\0\0WAVEfmt ")
    (pictures / "link.png").symlink_to(root / "secret.png")
    (pictures / "inside.png").symlink_to(pictures / "good.png")
    (pictures / "folder.png").mkdir()
    return pictures


NAMES = [
    *("good.png", "inside.png", "../secret.png", "link.png", "missing.png", "text.png"),
    *("sound.png", "folder.png", "bad\0name.png", "x" * 5000, NASTY, "drawing.svg"),
]


@pytest.fixture(scope="module")
def served(folder, tmp_path_factory):
    names = [*NAMES, *(f"{row}.png" for row in range(len(NAMES), len(X)))]
    names[11] = str(folder.parent / "secret.png")
    session = SearchSession(X, names, store=tmp_path_factory.mktemp("store") / "s.db")
    session.label([names[row] for row in np.flatnonzero(y == 3)[:3]], True)
    served = Served(session, Media("image", names, folder, {"note": [NASTY] * len(X)}))
    yield served
    served.stop()


def test_a_person_can_search(served):
    status, page, headers = served.ask("")
    assert status == 200
    assert b"Find more like these" in page
    assert headers["content-security-policy"] == guard.POLICY
    assert "unsafe" not in guard.POLICY
    for name, kind in (("page.js", "text/javascript"), ("page.css", "text/css")):
        status, _, headers = served.ask(name)
        assert status == 200
        assert headers["content-type"].startswith(kind)
    before = len(served.session.labels())
    status, body, _ = served.ask("next?n=5&how=diverse")
    cards = json.loads(body)["cards"]
    assert len(cards) == 5
    answer = json.dumps({"place": cards[0]["place"], "value": "no", "who": "me"})
    status, body, _ = served.ask("label", "POST", answer)
    assert status == 200
    assert json.loads(body) == {"stored": True, "found": 3, "shown": before + 1}
    assert served.session.labels()[cards[0]["id"]] is False
    status, body, _ = served.ask("undo", "POST", '{"who": "me"}')
    assert status == 200
    assert len(served.session.labels()) == before
    status, body, _ = served.ask("state?alarms=0.05")
    state = json.loads(body)
    assert state["found"] == 3
    assert state["rows"] == len(X)


def test_an_unwritable_store_is_reported(served, monkeypatch):
    def full(*_):
        raise StoreError("the disk is full")

    monkeypatch.setattr(served.session.store, "add", full)
    status, words, _ = served.ask("label", "POST", '{"place": 0, "value": "yes"}')
    assert (status, words) == (500, b"the disk is full")


def test_a_failed_undo_is_reported_and_foreign_rows_are_left_out(tmp_path, monkeypatch):
    path = tmp_path / "s.db"
    larger = SearchSession(X, store=path)
    larger.label([3], True, who="me")
    larger.label([199], True, who="me")
    larger.close()
    served = Served(SearchSession(X[:150], store=path, carry_over=True), Media())
    try:
        words = json.dumps({"who": "me"})
        status, body, _ = served.ask("undo", "POST", words)
        assert (status, json.loads(body)) == (200, {"places": [], "values": []})
        status, body, _ = served.ask("undo", "POST", words)
        assert (status, json.loads(body)) == (200, {"places": [3], "values": [None]})

        def fail(who):
            raise StoreError("the disk is full")

        monkeypatch.setattr(served.session.store, "undo", fail)
        status, body, _ = served.ask("undo", "POST", words)
        assert (status, body) == (500, b"the disk is full")
    finally:
        served.stop()


def test_labels_model_and_report_can_be_exported(served, tmp_path):
    status, text, headers = served.ask("export/labels.csv")
    assert status == 200
    assert "attachment" in headers["content-disposition"]
    rows = list(csv.DictReader(io.StringIO(text.decode())))
    assert {row["label"] for row in rows} == {"yes"}
    parquet = pytest.importorskip("pyarrow.parquet")
    table = parquet.read_table(io.BytesIO(served.ask("export/labels.parquet")[1]))
    assert table.column("id").to_pylist() == [row["id"] for row in rows]
    (tmp_path / "m.pcsda").write_bytes(served.ask("export/model.pcsda")[1])
    model = pcsda.load(tmp_path / "m.pcsda")
    np.testing.assert_allclose(
        model.log_likelihood_ratio(X), served.session.model_.log_likelihood_ratio(X)
    )
    report = served.ask("export/report.html")[1].decode()
    assert "3 found" in report
    assert "<script" not in report
    assert served.ask("export/passwords")[0] == 404


@pytest.mark.parametrize("token", ["", "secret-toke", "secret-token2", "x", "%00", "sécret"])
def test_without_the_token_nothing_is_served(served, token):
    for path in ("", "state", "media/0", "export/labels.csv"):
        assert served.ask(path, token=token.encode("ascii", "replace").decode())[0] == 403


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1", "", "localhost"])
def test_another_host_is_refused(served, host):
    """An attacker's name that points to this machine (DNS rebinding) shows in the Host header."""
    assert served.ask("state", headers={"Host": host})[0] in (400, 421)
    assert served.ask("state", headers={"Host": f"localhost:{served.port}"})[0] == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://127.0.0.1", "file://"])
def test_posts_from_other_sites_are_refused(served, origin):
    body, before = '{"place": 0, "value": "yes"}', served.session.labels()
    assert served.ask("label", "POST", body, {"Origin": origin})[0] == 403
    assert served.session.labels() == before
    own = {"Origin": f"http://127.0.0.1:{served.port}"}
    assert served.ask("label", "POST", "{}", own)[0] == 400  # past the guard, no answer


def test_forms_and_large_requests_are_refused(served):
    form = {"content-type": "application/x-www-form-urlencoded"}
    assert served.ask("label", "POST", "place=0&value=yes", form)[0] == 415
    assert served.ask("label", "POST", "x" * (guard.LARGEST_REQUEST + 1))[0] == 413
    chunked = {"content-type": "application/json", "Transfer-Encoding": "chunked"}
    for sent in (chunked, chunked | {"Content-Length": "2"}):  # pieces may be longer
        link = HTTPConnection("127.0.0.1", served.port, timeout=30)
        link.request("POST", f"/{TOKEN}/label", iter([b"{}"]), sent, encode_chunked=True)
        assert link.getresponse().status == 413
        link.close()


@pytest.mark.parametrize(
    "body",
    [
        *("", "[]", "3", "{", "null", '{"place": 0}', '{"place": -1, "value": "yes"}'),
        *('{"place": 9999, "value": "yes"}', '{"place": "0", "value": "yes"}'),
        *('{"place": 0, "value": "perhaps"}', '{"place": true, "value": "no"}', "[" * 5000),
        *('{"place": 0.0, "value": "yes"}', '{"place": [], "value": "yes"}'),
        *('{"place": [1, "2"], "value": "no"}', '{"place": [1, 9999], "value": "no"}'),
        json.dumps({"place": [1] * 201, "value": "no"}),
    ],
)
def test_invalid_answers_are_refused_and_not_stored(served, body):
    before = served.session.labels()
    assert served.ask("label", "POST", body)[0] == 400
    assert served.ask("undo", "POST", body)[0] == 400
    assert served.session.labels() == before


def test_the_answering_person_may_have_any_name(served):
    body = json.dumps({"place": 5, "value": "yes", "who": "\ud800"})
    assert served.ask("label", "POST", body)[0] == 200
    expected = {"places": [5], "values": [None]}
    assert json.loads(served.ask("undo", "POST", body)[1]) == expected


def test_an_undo_tells_which_earlier_answers_count_again(served):
    answers = ([50, 51], "yes"), ([51, 52, 53], "no"), ([53, 51], "skip")
    for place, value in answers:
        body = json.dumps({"place": place, "value": value, "who": "fickle"})
        assert served.ask("label", "POST", body)[0] == 200
    for expected in (
        {"places": [53, 51], "values": ["no", "no"]},
        {"places": [51, 52, 53], "values": ["yes", None, None]},
        {"places": [50, 51], "values": [None, None]},
    ):
        found = json.loads(served.ask("undo", "POST", '{"who": "fickle"}')[1])
        assert found == expected


@pytest.mark.parametrize(
    "query", ["n=0", "n=201", "n=x", "n=-5", "how=best", "n=1e3", "n=%C2%B2", "n=" + 5000 * "9"]
)
def test_bad_queries_are_refused(served, query):
    assert served.ask(f"next?{query}")[0] == 400


@pytest.mark.parametrize("rate", ["0", "1", "x", "nan", "-1", "inf"])
def test_bad_rates_are_refused(served, rate):
    assert served.ask(f"state?alarms={rate}")[0] == 400


@pytest.mark.parametrize(
    ("place", "status", "words"),
    [
        (0, 200, ""),
        (1, 200, ""),  # a link that stays inside
        (2, 404, "outside"),
        (3, 404, "outside"),  # a link that leads out
        (4, 404, "missing"),
        (5, 404, "not a picture"),
        (6, 404, "not a picture"),
        (7, 404, "missing"),
        (8, 404, "not the name of a file"),
        (9, 404, ""),
        (10, 404, "missing"),
        (11, 404, "outside"),  # a whole path
    ],
)
def test_only_pictures_under_the_folder_are_served(served, place, status, words):
    found = served.ask(f"media/{place}")
    assert found[0] == status
    assert found[2]["x-content-type-options"] == "nosniff"
    if status == 200:
        assert found[1] == PNG
        assert found[2]["content-type"] == "image/png"
    else:
        assert words in found[1].decode()
        assert str(Path.home()).encode() not in found[1]


@pytest.mark.parametrize(
    "path",
    [
        "media/-1",
        "media/9999",
        "media/" + 5000 * "9",
        "media/%C2%B2",
        "media/../../secret",
        "page.html",
        "../page.js",
        "server.py",
    ],
)
def test_unknown_paths_are_not_found(served, path):
    assert served.ask(path)[0] in (400, 403, 404)


def test_oversized_files_are_named(folder, monkeypatch):
    monkeypatch.setattr(media, "LARGEST", 10)
    with pytest.raises(media.MediaError, match="more than the limit of 0 MB"):
        Media("image", ["good.png"], folder).file(0)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root reads all files")
def test_an_unreadable_file_is_reported(folder):
    (folder / "closed.png").write_bytes(PNG)
    (folder / "closed.png").chmod(0)
    with pytest.raises(media.MediaError, match="cannot be read"):
        Media("image", ["closed.png"], folder).file(0)


def test_media_kinds_are_recognised_from_values(tmp_path):
    assert media_of(["a.PNG", "b.jpg"], tmp_path, {}).kind == "image"
    assert media_of(["a.wav", "b.flac"], tmp_path, {}).kind == "audio"
    assert media_of(["a.wav", "b.jpg"], tmp_path, {}).kind == "text"
    assert media_of(["a.wav", "b.wav", "notes"], tmp_path, {}).kind == "audio"
    assert media_of(["some words"], tmp_path, {}).card(0)["text"] == "some words"
    assert len(media_of(["w" * 5000], tmp_path, {}).card(0)["text"]) == media.LONGEST + 1
    with pytest.raises(media.MediaError, match="no files"):
        media_of(["some words"], tmp_path, {}).file(0)


def test_a_summary_is_escaped_and_complete(folder):
    names = ["good.png", NASTY, "text.png", *map(str, range(3, 60))]
    session = SearchSession(X[:60], names)
    session.label(names[:3], True)
    shown = Media("image", names, folder, {"words": [NASTY] * 60})
    text = render(session, shown)
    assert "<script" not in text
    assert "data:image/png;base64," in text
    assert "the file is missing" in text
    assert "is not a picture" in text
    assert "0 found" in render(SearchSession(X[:60]), Media())


def test_a_summary_gives_the_interval_of_the_misses():
    """After two examples it said that 100% are missed, as if that were known."""
    session = SearchSession(X)
    session.label(np.flatnonzero(y == 3)[:2], True)
    words = r"misses [\d.]+% of the class \([\d.]+ to [\d.]+%\)"
    assert re.search(words, render(session, Media()))


def test_error_rates_are_written_without_exponents(monkeypatch):
    """The report said that 1e+02% of the class are missed."""
    session = SearchSession(X)
    session.label(np.flatnonzero(y == 3)[:2], True)
    whole = Threshold(9.0, 0.0, (0.0, 0.01), 1.0, (0.22, 1.0), 800, 90, "by hand")
    monkeypatch.setattr(session, "choose_threshold", lambda **_: whole)
    assert "misses 100% of the class (22 to 100%)" in render(session, Media())


def test_a_note_on_the_page_is_a_sentence():
    session = SearchSession(X)
    session.label(3, True)
    note = state_of(session)["note"]
    assert note.startswith("There are no left-out examples")
    assert note.endswith(".")


def test_the_curve_of_finds_starts_at_zero():
    """After one answer it had one point and was not drawn."""
    assert 'points="0.0,200.0 600.0,0.0"' in curve_svg([1], 1)


def test_fractions_on_a_card_have_six_digits():
    columns = {"size": [0.1 + 0.2], "day": [20240101.0], "low": np.float32([1 / 3]), "n": [7]}
    facts = Media("row", columns=columns).card(0)["facts"]
    assert facts == {"size": "0.3", "day": "20240101.0", "low": "0.333333", "n": "7"}


def test_cells_that_a_spreadsheet_would_run_are_quoted():
    session = SearchSession(X[:5], ["=1+1", " =2", "-3", "d", "e"])
    session.label(["=1+1", " =2", "-3"], True, who="@who")
    for name in ("'=1+1", "' =2", "\n-3"):  # the last is a number
        assert f"{name},yes,True,'@who" in labels_csv(session)
