"""The demonstration prints its results, and its page shows the same."""

import re

import pytest
from benchmarks import demo
from benchmarks.demo import Digits, main, search_with

pytest.importorskip("matplotlib")


@pytest.mark.more  # runs the whole demonstration
def test_the_last_line_is_the_path_of_the_page(tmp_path, capsys):
    output = tmp_path / "demo.html"
    assert main(["--digit", "6", "--output", str(output)]) == 0
    lines = capsys.readouterr().out.strip().splitlines()
    assert lines[-1] == str(output)
    page = output.read_text(encoding="utf-8")
    # Three jobs, three comparisons, three pictures, and the same numbers as on the screen.
    assert [len(re.findall(tag, page)) for tag in ("<h2>", "<table>", "<img ")] == [3, 3, 3]
    found = next(re.search(r"\d+ of \d+", line) for line in lines if "pcsda  " in line)[0]
    assert f"<td>{found}</td>" in page
    assert 'src="http' not in page


def test_an_unwritable_page_is_reported(tmp_path, capsys, monkeypatch):
    for chapter in ("find", "verify", "know_strangers"):
        monkeypatch.setattr(demo, chapter, lambda *_: None)
    assert main(["--digit", "6", "--output", str(tmp_path / "none" / "demo.html")]) == 1
    assert "was not saved" in capsys.readouterr().err


def test_a_rival_sees_no_more_pictures_than_its_budget():
    data, seen = Digits.load(), []
    truth = data.y == 6

    class Recorder:
        def fit(self, X, y):
            seen.append(int(y.sum()))
            return self

        def decision_function(self, X):
            return truth.astype(float)

    assert search_with(Recorder, data, truth, truth.nonzero()[0][:3], 43) == 43
    assert seen == [3, 23]
