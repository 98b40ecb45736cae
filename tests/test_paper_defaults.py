"""The study of defaults: rows come from the estimators, tables from the rows alone."""

import numpy as np
import pytest
from benchmarks.paper import defaults
from benchmarks.paper.datasets import load
from benchmarks.paper.protocol import Unit, split_rows
from benchmarks.paper.rows import key
from sklearn.metrics import log_loss

from pcsda import PCSDA


def test_rows_are_those_of_the_estimator_with_one_change():
    dataset = load("digits")
    names = ("PCSDA: as it is", "PCSDA: ridge 1", "PCSDA: K = 5")
    unit = Unit("digits", dataset.classes[3], 1, names)
    rows = defaults.run_unit(dataset, unit)
    assert len({key(row) for row in rows}) == len(rows) == 9
    y = dataset.y == 3
    train, test = split_rows(y, unit.seed)
    model = PCSDA(regularization=1.0, random_state=unit.seed).fit(dataset.X[train], y[train])
    found = {row["kind"]: row["value"] for row in rows if row["method"] == "PCSDA: ridge 1"}
    expected = log_loss(y[test], model.predict_proba(dataset.X[test]))
    assert found["-log-loss"] == pytest.approx(-expected, rel=1e-6)


def test_every_variant_differs_from_the_default_by_what_it_says():
    y = np.arange(300) < 30
    made = {name: make(0, y) for name, make in defaults.variants().items()}
    for family in ("PCSDA", "KernelPCSDA"):
        usual = made[f"{family}: as it is"].get_params()
        changed = {
            name: {k for k, v in model.get_params().items() if v != usual[k]}
            for name, model in made.items()
            if name.startswith(f"{family}:")
        }
        assert changed.pop(f"{family}: as it is") == set()
        assert all(changed.values())
        assert changed[f"{family}: ridge 1"] == {"regularization"}
    before = made["KernelPCSDA: before this study"].get_params()
    assert (before["n_subclasses"], before["tails"]) == (5, "gaussian")


def rows_of(values):
    return [
        {
            "dataset": "ORL",
            "class": label,
            "split": 0,
            "method": f"PCSDA: {name}",
            "kind": kind,
            "value": None if value is None else value + 0.01 * number,
        }
        for name, value in values.items()
        for kind in defaults.KINDS
        for number, label in enumerate("abc")
    ]


def test_the_table_ranks_variants_and_shows_losses_and_failures():
    rows = rows_of({"as it is": 0.5, "worse": 0.4, "better": 0.6, "impossible": None})
    # The gaps to the default vary, else their standard error is zero.
    for number, row in enumerate(rows):
        if row["value"] is not None and row["method"] != "PCSDA: as it is":
            row["value"] += 1e-3 * (number % 3)
    heading, table = defaults.page(rows)
    assert heading == "## PCSDA"
    names = [line[0] for line in table.lines]
    assert names == ["better", "**as it is**", "worse", "impossible"]
    assert [line[1] for line in table.lines] == ["1.0", "**2.0**", "3.0", "-"]
    assert table.lines[0][-1].startswith("better on ORL: AP, F1")
    assert table.lines[2][-1].startswith("worse on ORL: AP, F1")
    assert table.lines[3][2] == "failed"


def test_test_sets_are_never_used():
    from benchmarks.paper.datasets import PAPER

    assert not set(defaults.SETS) & {source.name for source in PAPER}
    with pytest.raises(SystemExit):
        defaults.main(["--datasets", "YALE"])
