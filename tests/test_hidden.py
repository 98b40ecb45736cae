"""The study of known shares of hidden positives."""

from pathlib import Path

import numpy as np
import pytest
from benchmarks import hidden
from benchmarks.paper.rows import read


@pytest.mark.parametrize("name", hidden.PLANTED)
def test_a_problem_hides_the_given_share(name):
    problem = hidden.draw(name, 3, 10, seed=1)
    X, y = hidden.planted(name, 1)
    place = {row.tobytes(): label for row, label in zip(X, y, strict=True)}
    labels = np.array([place[row.tobytes()] for row in problem["X"]])
    assert problem["y"].sum() == 3
    assert problem["hidden"].sum() == 20
    np.testing.assert_array_equal(labels == 0, problem["y"] | problem["hidden"])
    truth = np.array([place[row.tobytes()] == 0 for row in problem["new"]])
    np.testing.assert_array_equal(truth, problem["truth"])
    assert not {row.tobytes() for row in problem["X"]} & {row.tobytes() for row in problem["new"]}


def test_a_class_that_is_too_small_gives_no_problem():
    assert hidden.draw("clouds, apart", 140, 10, seed=0) is None


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """Return the rows of two seeds of one planted set, computed in two runs."""
    path = Path(tmp_path_factory.mktemp("hidden")) / "rows.jsonl"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hidden, "SETS", ())
        patch.setattr(hidden, "PLANTED", ("clouds, apart",))
        patch.setattr(hidden, "HIDDEN", (0, 10))
        for seeds in (1, 2):
            patch.setattr(hidden, "SEEDS", seeds)
            hidden.run(path, minutes=10)
    return read(path)


def test_a_resumed_run_measures_each_problem_once(rows):
    keys = [tuple(row[name] for name in hidden.KEY) for row in rows]
    assert len(keys) == len(set(keys)) == 16


def test_the_page_counts_losses_and_gains(rows):
    found = hidden.cases(rows)
    worse = {case: dict(figures) for case, figures in found.items()}
    case = ("PCSDA", "clouds, apart", 3, 10)
    plain = worse[case]["ap_plain"]
    worse[case]["ap_auto"], worse[case]["ap_clean"] = plain - [0.1, 0.11], plain + 0.2
    line = hidden.summary(worse).splitlines()[2]
    assert line.startswith("| PCSDA | 3 | 2 |")
    assert "1, at most 0.105 (0.005)" in line
    assert "| -52% | 0 of 1 |" in line
    assert "-0.105 (0.005)" in hidden.every_case(worse, "PCSDA")
