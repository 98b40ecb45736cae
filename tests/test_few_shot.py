"""The study of few positives: what it draws and stores, and the page made from it."""

import sys

import numpy as np
import pytest
from benchmarks import few_shot


def run(path):
    """Run a small part of the study, and keep its rows in a file."""
    command = (
        f"few_shot --sets digits --classes 2 --draws 1 --positives 3 --negatives 100 --rows {path}"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [*command.split(), "--methods", "PCSDA,logistic regression"])
        few_shot.main()


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    path = tmp_path_factory.mktemp("few") / "rows.jsonl"
    run(path)
    return path


@pytest.mark.more
def test_a_run_writes_every_cell_once_and_resumes(rows):
    before = rows.read_bytes()
    found = few_shot.read(rows)
    assert len(found) == 2 * 2 * 2  # classes, ways to draw negatives, methods
    assert all(0 <= row["ap"] <= 1 and row["seconds"] >= 0 for row in found)
    run(rows)
    assert rows.read_bytes() == before


@pytest.mark.more
def test_the_page_shows_means_and_marks_the_best(rows, monkeypatch):
    monkeypatch.setattr(few_shot, "LEAST", 2)
    found = few_shot.read(rows)
    page = few_shot.page(found)
    assert "| digits | 100 clean | 3 | 2 |" in page
    for method in ("PCSDA", "logistic regression"):
        for how in ("clean", "random"):
            own = [r["ap"] for r in found if (r["method"], r["how"]) == (method, how)]
            assert f"{np.mean(own):.3f}" in page
    assert "**" in page


def test_cells_of_few_problems_are_not_quoted(rows):
    assert "| digits |" not in few_shot.page(few_shot.read(rows))


def test_clean_negatives_hold_no_positive_and_random_ones_may():
    X, y = np.arange(200.0)[:, None], np.repeat([0, 1], 100)
    clean = few_shot.draw(X, y, 1, 0, 5, 60, "clean")
    assert np.all(clean.X[~clean.y] < 100)
    random = few_shot.draw(X, y, 1, 0, 5, 60, "random")
    assert np.any(random.X[~random.y] >= 100)
    for problem in (clean, random):
        assert not np.isin(problem.new, problem.X).any()
        assert np.array_equal(problem.truth, problem.new[:, 0] >= 100)


def test_a_set_that_is_too_small_has_no_problem():
    assert few_shot.draw(np.zeros((20, 1)), np.repeat([0, 1], 10), 1, 0, 8, 5, "clean") is None
    assert few_shot.draw(np.zeros((20, 1)), np.repeat([0, 1], 10), 1, 0, 3, 50, "clean") is None


def test_the_page_follows_from_the_rows():
    assert few_shot.PAGE.read_text(encoding="utf-8") == few_shot.page(few_shot.read(few_shot.ROWS))
