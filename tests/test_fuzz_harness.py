"""`make fuzz` itself: a seed repeats an attack, and the page follows from the rows."""

import json
import os

import numpy as np
import pytest
from fuzz import __main__ as command
from fuzz import attacks, mutations, page
from fuzz.attacks import ATTACKS, BreachError

QUICK = ("mutated model files", "mutated checkpoints", "mutated data files")


@pytest.fixture
def rows(tmp_path, monkeypatch):
    """Return a function that runs attacks of one kind and returns their rows."""
    monkeypatch.chdir(tmp_path)

    def run(name, count, seed=0):
        path = tmp_path / "build" / f"{name}-{seed}.jsonl"
        status = command.main(
            ["--only", name, "--count", str(count), "--seed", str(seed), "--rows", str(path)]
        )
        found = [json.loads(line) for line in path.read_text().splitlines()]
        assert status == any(row["outcome"] == "breach" for row in found)
        return found

    return run


@pytest.mark.parametrize("name", QUICK)
def test_altered_files_are_refused_or_read(rows, name):
    found = rows(name, 15)
    assert [row["note"] for row in found if row["outcome"] == "breach"] == []
    assert [row["seed"] for row in found] == list(range(15))


@pytest.mark.more
@pytest.mark.skipif(os.name == "nt", reason="no SIGKILL")
@pytest.mark.parametrize("name", sorted(set(ATTACKS) - set(QUICK)))
def test_every_attack_runs(rows, name):
    assert [row["outcome"] for row in rows(name, 1)] == ["agrees"]
    command.clusters.stop()


def test_an_attack_is_its_seed():
    data = bytes(range(256)) * 4
    for seed in range(20):
        one, other = (mutations.spoiled(data, np.random.default_rng(seed)) for _ in range(2))
        assert one == other
    assert mutations.spoiled(b"", np.random.default_rng(0)) == b""


def test_a_breach_is_counted_and_fails_the_run(rows, monkeypatch, capsys):
    def breaks(seed, folder):
        if seed == 7:
            raise BreachError("it broke")
        return "agrees"

    monkeypatch.setitem(ATTACKS, QUICK[0], (breaks, 1))
    found = rows(QUICK[0], 3, seed=6)
    assert [row["outcome"] for row in found] == ["agrees", "breach", "agrees"]
    said = capsys.readouterr().out
    assert "BREACH mutated model files, seed 7: it broke" in said
    assert "2 agrees, 0 refuses, 1 breach" in said


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (lambda: 1 / 0, "ZeroDivisionError: division"),
        (lambda: (_ for _ in ()).throw(ValueError("")), "ValueError without a word"),
    ],
)
def test_what_counts_as_a_breach(action, message):
    def run():
        found = action()
        return next(found) if hasattr(found, "__next__") else found

    with pytest.raises(BreachError, match=message):
        attacks.refusing(run, ValueError)
    assert attacks.refusing(lambda: 3) == 3


def test_an_endless_attack_is_a_breach(monkeypatch):
    monkeypatch.setattr(attacks, "PATIENCE", -1.0)
    with pytest.raises(BreachError, match="took 0 s"):
        attacks.refusing(lambda: 3)


def test_rounds_try_every_attack():
    order = command.planned(None, 5)
    seen = [next(order) for _ in range(sum(often for _, often in ATTACKS.values()))]
    assert {name for name, _ in seen} == set(ATTACKS)
    assert {seed for _, seed in seen} == set(range(5, 25))


def test_the_page_follows_from_its_rows():
    text = page.PAGE.read_text(encoding="utf-8")
    assert page.with_table(text, page.read()) == text
    assert all(name in text for name in ATTACKS)
