"""The study of searches: what it stores, and the page made from it."""

import sys

import pytest
from benchmarks import search


@pytest.mark.more
def test_a_run_writes_every_search_once_resumes_and_makes_a_page(tmp_path, monkeypatch):
    path = tmp_path / "rows.jsonl"
    words = ["--sets", "digits", "--reviews", "", "--classes", "1", "--starts", "3"]
    monkeypatch.setattr(sys, "argv", ["search", *words, "--rows", str(path)])
    monkeypatch.setattr(search, "LABELS", 50)
    monkeypatch.setattr(search, "MARKS", (25, 50))
    search.main()
    before = path.read_bytes()
    rows = search.read(path)
    assert [row["method"] for row in rows] == ["pcsda", *search.RIVALS]
    assert all(0 <= row["recall_25"] <= row["recall_50"] <= 1 for row in rows)
    search.main()
    assert path.read_bytes() == before
    monkeypatch.setattr(search, "SETS", ("digits",))
    assert "| digits | 3 | 1 |" in search.page(rows)


def test_the_page_follows_from_the_rows():
    assert search.PAGE.read_text() == search.page(search.read(search.ROWS))
