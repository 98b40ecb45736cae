"""Which columns are features, and what is reported about those that cannot be."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pcsda.cli import columns, problems
from pcsda.cli.problems import Problem
from pcsda.tables import Table, of_frame


@pytest.fixture
def odd():
    frame = pd.DataFrame(
        {
            "a": [1.0, np.nan, 3.0],
            "b": [1, 2, 3],
            "c": [1.0, 2.0, np.inf],
            "word": ["1", "two", "3"],
            "day": pd.to_datetime(["2020-01-01"] * 3),
            "z": [1j, 2j, 3j],
            "yes": [True, False, True],
        }
    )
    table = of_frame(frame)
    return Table("odd.csv", table.columns, 3, start=100)


def test_non_numeric_columns_are_listed(odd):
    message = r"not numeric: word \('two' in row 1\), day \(.*\), z \(complex128\); leave them out"
    with pytest.raises(Problem, match=message):
        columns.numbers(odd, odd.names)


def test_missing_values_are_listed_with_their_positions(odd):
    message = (
        r"odd.csv has 2 missing or infinite values, in columns a \(1\), c \(1\), first in row 101"
    )
    with pytest.raises(Problem, match=message):
        columns.numbers(odd, ["a", "b", "c"])


def test_booleans_and_integers_count_as_numbers(odd):
    found = columns.numbers(odd, ["b", "yes"])
    assert list(found.columns) == ["b", "yes"]
    np.testing.assert_array_equal(found, [[1, 1], [2, 0], [3, 1]])


def test_patterns_choose_columns(odd):
    assert columns.chosen(odd, ["a"], ["?"], ["z"]) == ["b", "c"]
    assert columns.chosen(odd, ["a", None], [], ["w*", "day", "z"]) == ["b", "c", "yes"]
    with pytest.raises(Problem, match=r"--features q\*: odd.csv has no column 'q\*'; it has a, b"):
        columns.chosen(odd, [], ["q*"], [])
    with pytest.raises(Problem, match=r"^no columns of odd.csv are left as features; it has a, b"):
        columns.chosen(odd, [], [], ["*"])


def test_named_columns_beside_a_matrix_can_be_ignored():
    """The labels of an NPZ file were no column to --ignore, though --label found them."""
    sides = {"kind": np.array(["weld", "crack"]), "part": np.array(["a", "b"])}
    table = Table("t.npz", sides, 2, np.zeros((2, 3)))
    assert columns.chosen(table, [], [], ["kind", "p*"]) == ["0", "1", "2"]
    assert columns.chosen(table, [], [], ["kind", "1"]) == ["0", "2"]
    with pytest.raises(Problem, match=r"no column 'sort'; it has kind, part, 0, 1, 2"):
        columns.chosen(table, [], [], ["sort"])
    with pytest.raises(Problem, match=r"--features kind: t.npz has no column 'kind'; it has 0, 1"):
        columns.chosen(table, [], ["kind"], [])


def test_large_numbers_are_not_taken_for_missing_values():
    huge = np.full((3, 2), 1e308)  # whose sum is infinite
    table = Table("t", {}, 3, huge)
    assert columns.numbers(table, table.names) is huge
    words = Table("t", {}, 2, np.array([["a"], ["b"]]))
    with pytest.raises(Problem, match=r"t has columns that are not numeric: 0 \(<U1\)"):
        columns.numbers(words, words.names)


class CountedName(str):
    """A column name that counts how often it is compared."""

    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other):
        CountedName.compared += 1
        return str.__eq__(self, other)


@pytest.mark.parametrize("extra", [pytest.param(0, marks=pytest.mark.more), 1])
def test_the_comparisons_per_column_do_not_grow_with_their_number(command, monkeypatch, extra):
    size = 1500
    rng = np.random.default_rng(0)
    names = [CountedName(f"f{i}") for i in range(size)]
    held = {name: rng.standard_normal(40) for name in names}
    held[CountedName("kind")] = np.array(["a", "b"] * 20)
    held |= {CountedName("note"): np.array(["x"] * 40)} if extra else {}
    monkeypatch.setattr("pcsda.cli.preparing.read", lambda *_: Table("t.csv", held, 40))
    Path("t.csv").touch()
    CountedName.compared = 0
    command("fit", "t.csv", "--label", "kind", "--positive", "a", "-o", "m.pcsda")
    assert CountedName.compared < 40 * size
    CountedName.compared = 0
    command("score", "m.pcsda", "t.csv")
    command("evaluate", "m.pcsda", "t.csv", "--label", "kind", "--resamples", "5")
    assert CountedName.compared < 40 * size  # each with each would be 500 times that many


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["2024-05-31", "2023-01-02"], "dates"),
        (["31.5.2024", "1.12.2023 "], "dates"),
        (["5/31/2024 12:30", "6/1/2024 1:00"], "dates"),
        (["2024-05-31T12:30:00Z", "x"], "dates"),
        (["20240531x", "a"], "text"),
    ],
)
def test_dates_stored_as_text_are_reported_as_dates(values, kind, capsys, monkeypatch):
    monkeypatch.setattr(problems, "said", set())  # a note is printed once
    table = of_frame(pd.DataFrame({"when": values, "size": [0.5, 1.5]}))
    assert columns.suitable(table, table.names, []) == ["size"]
    assert f"columns are left out: when ({kind})\n" in capsys.readouterr().err
