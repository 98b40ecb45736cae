"""The study of known people and strangers: what it draws and stores, and its page."""

import sys

import numpy as np
import pytest
from benchmarks import open_set
from benchmarks.open_set import METHODS, Problem, Scores, draw, figures, planted


@pytest.fixture
def rows(tmp_path, monkeypatch):
    path = tmp_path / "rows.jsonl"
    command = ["open_set", "--sets", "digits", "--rows-per-label", "1,6", "--draws", "2"]
    command += ["--methods", "VerifierBank;cosine, nearest;PLDA", "--rows", str(path)]
    monkeypatch.setattr(sys, "argv", command)
    open_set.main()
    return path


@pytest.mark.more  # runs a part of the study
def test_a_run_writes_every_cell_once_resumes_and_has_a_page(rows):
    before = rows.read_bytes()
    found = open_set.read(rows)
    assert len(found) == 2 * 2 * 3  # draws, rows a label, methods
    alone = [row for row in found if row["n_rows"] == 1 and row["method"] == "PLDA"]
    assert all("one row per label" in row["error"] for row in alone)
    open_set.main()
    assert rows.read_bytes() == before
    page = open_set.page(found)
    assert "| digits | 1 | 2 |" in page
    assert "| digits | 6 | VerifierBank | 2 |" in page
    assert "**" in page


def test_strangers_are_never_enrolled_and_new_rows_are_new():
    y = np.repeat(np.arange(8), 10)
    X = np.arange(80.0)[:, None]
    problem = draw(X, y, 4, 0)
    assert len(problem.X) == 6 * 4
    assert not np.isin(problem.new, problem.X).any()
    strangers = np.unique(problem.new[problem.truth < 0] // 10)
    assert len(strangers) == 2
    assert not np.isin(strangers, problem.X // 10).any()
    # The numbers of the labels mean the same people in both.
    for label in range(6):
        people = np.append(problem.X[problem.y == label], problem.new[problem.truth == label])
        assert len(np.unique(people // 10)) == 1


def test_planted_identities_are_known_or_strangers():
    problem = planted(30, 5, 0)
    assert problem.X.shape == (150, 40)
    assert len(problem.new) == len(problem.truth) == 30 * 4 + 30 * 20
    assert len(np.unique(problem.truth[problem.truth >= 0])) == 30
    assert len(np.unique(problem.truth[problem.truth < 0])) == 30
    means = open_set.means_of(problem.X, problem.y)
    known = problem.truth >= 0
    near = ((problem.new[known, None] - means) ** 2).sum(axis=2).argmin(axis=1)
    assert np.mean(near == problem.truth[known]) > 0.6


def test_known_scores_give_known_figures():
    truth = np.array([0, 1, 1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1])
    values = np.full((13, 2), -5.0)
    values[0, 0], values[1, 1], values[2, 0] = 3.0, 1.0, 4.0  # right, right, wrong
    values[3:, 0] = np.linspace(2.0, -2.0, 10)
    found = figures(Scores(values, True, {0.1: 1.9}), truth)
    assert found["rank1"] == pytest.approx(2 / 3)
    assert found["named_0.1"] == pytest.approx(1 / 3)  # one stranger may come in: the bar is 1.56
    assert found["named_0.01"] == pytest.approx(1 / 3)
    assert found["accepted_0.1"] == pytest.approx(0.1)
    assert found["named_promised_0.1"] == pytest.approx(1 / 3)
    assert "named_others_0.1" not in found  # the set has no doubles
    found = figures(Scores(values, True, {0.1: 1.9}), truth, np.isin(np.arange(13), [3, 4, 5]))
    assert found["named_0.1"] == pytest.approx(1 / 3)
    assert found["named_others_0.1"] == pytest.approx(2 / 3)  # the bar is 0.67
    assert found["accepted_0.1"] == pytest.approx(0.1)
    assert found["accepted_others_0.1"] == 0


def test_only_a_stranger_whose_double_is_known_is_marked():
    y = np.repeat(np.arange(8), 10)
    X = np.arange(80.0)[:, None]
    assert draw(X, y, 4, 0).double is None
    marked = set()
    for seed in range(40):
        problem = draw(X, y, 4, seed, (1, 2))
        strange = [label in problem.new[problem.truth < 0] // 10 for label in (1, 2)]
        expected = (problem.truth < 0) & np.isin(problem.new[:, 0] // 10, [1, 2])
        np.testing.assert_array_equal(problem.double, expected & (sum(strange) == 1))
        marked.add(sum(strange))
    assert marked == {0, 1, 2}


def test_plda_is_the_ratio_of_two_gaussians_where_covariances_are_known():
    rng = np.random.default_rng(0)
    people = rng.standard_normal((4000, 2)) * [2.0, 1.0]
    y = np.repeat(np.arange(4000), 4)
    X = people[y] + rng.standard_normal((len(y), 2)) * [0.5, 1.0]
    new = np.array([[1.0, 0.5], [-3.0, 2.0]])
    found = METHODS["PLDA"](Problem(X, y, new, np.array([0, -1]))).values[:, :3]
    between, within = np.array([4.0, 1.0]), np.array([0.25, 1.0])
    for label in range(3):
        mean = X[y == label].mean(axis=0)
        weight = between / (between + within / 4)
        variance = within + between * (1 - weight)
        ratio = new**2 / (between + within) - (new - weight * mean) ** 2 / variance
        expected = 0.5 * (ratio + np.log((between + within) / variance)).sum(axis=1)
        np.testing.assert_allclose(found[:, label], expected, rtol=0.15, atol=0.3)


def test_the_page_follows_from_the_rows():
    found = open_set.page(open_set.read(open_set.ROWS))
    assert open_set.PAGE.read_text(encoding="utf-8") == found
