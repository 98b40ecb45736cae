"""The command that computes stored rows of the studies anew."""

import gzip
import json

import numpy as np
import pytest
from benchmarks import current, few_shot, open_set, search
from benchmarks.paper.datasets import load
from benchmarks.paper.rows import read


def few_shot_row():
    data = load("digits")
    facts = {"dataset": "digits", "class": 3, "n_positive": 5, "n_negative": 100, "how": "random"}
    cell = [facts[name] for name in ("class", "n_positive", "n_negative", "how")]
    problem = few_shot.draw(data.X, data.y, cell[0], 0, *cell[1:])
    return facts | {"draw": 0, "method": "PCSDA"} | few_shot.measured("PCSDA", problem)


@pytest.fixture
def stored(tmp_path, monkeypatch):
    """Return a function that stores rows of a study on the digits as its only rows."""

    def store(*rows):
        path = tmp_path / "rows.jsonl.gz"
        path.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))
        study = current.STUDIES["few_shot"]._replace(path=path)
        monkeypatch.setitem(current.STUDIES, "few_shot", study)

    return store


def test_a_row_of_this_version_does_not_differ(stored, capsys):
    stored(few_shot_row())
    assert current.main(["--studies", "few_shot"]) == 0
    assert "| few_shot | digits | PCSDA | 1 | 0 | 0 |" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["ap", "cllr"])
def test_a_row_of_another_version_differs(name, stored, capsys):
    row = few_shot_row()
    stored(row | {name: row[name] + 0.001})
    assert current.main(["--studies", "few_shot"]) == 1
    assert "| few_shot | digits | PCSDA | 1 | 1 | 0.001 |" in capsys.readouterr().out


def test_rows_of_ours_are_renewed_and_others_kept(stored, tmp_path, monkeypatch):
    row = few_shot_row()
    other = row | {"method": "logistic regression", "ap": 0.125}
    stored(row | {"ap": 0.25, "cllr": 9.0}, other)
    monkeypatch.setattr(current, "RENEWED", tmp_path)
    assert current.main(["--studies", "few_shot", "--renew"]) == 0
    found = read(current.STUDIES["few_shot"].path)
    assert current.change(found[0], row, few_shot.KEY) == 0
    assert found[1] == other
    assert current.main(["--studies", "few_shot"]) == 0


def test_other_methods_and_absent_data_are_left_out(stored, capsys, monkeypatch):
    row = few_shot_row()
    for change in ({"method": "logistic regression"}, {"dataset": "ISOLET"}):
        monkeypatch.delenv("PCSDA_DATA", raising=False)
        stored(row | change)
        assert current.main(["--studies", "few_shot"]) == 1
    found = capsys.readouterr()
    assert "PCSDA |" not in found.out
    assert "ISOLET is absent" in found.err


def test_seconds_do_not_count_and_other_facts_do():
    row = {"method": "PCSDA", "ap": 0.5, "seconds": 1.0, "n": 3}
    assert current.change(row, row | {"seconds": 9.0, "ap": 0.25}, ("method",)) == 0.25
    assert current.change(row, row | {"n": 4}, ("method",)) == np.inf
    assert current.change(row, row | {"ap": np.nan}, ("method",)) == np.inf
    assert current.change(row, {"method": "PCSDA", "n": 3}, ("method",)) == np.inf


def test_problems_of_the_other_studies_can_be_drawn_again():
    data = load("digits")
    found = search.of_class(data, 3, 2, 0)
    assert found.truth[found.yes].all()
    assert len(found.yes) == 2
    assert found.truth.sum() == np.sum(data.y == 3)
    known = open_set.problem_of("digits", data, 4, 0)
    expected = open_set.draw(data.X, data.y, 4, 0)
    np.testing.assert_array_equal(known.new, expected.new)
