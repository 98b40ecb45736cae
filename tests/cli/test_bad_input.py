"""Difficult data through every way of fitting: finite scores or a single message."""

import numpy as np
import pandas as pd
import pytest
from factories import in_turn

WAYS = {
    "plain": (),
    "kernel": ("--kernel", "rbf"),
    "search": ("--auto", "-K", "1,2", "-d", "1"),
    "map": ("--approx", "nystroem", "--map-components", "8"),
    "csda": ("--method", "csda"),
    "blocks": ("--block-rows", "17"),
}
COLUMNS = ["x", "y", "z"]


def rows(n_rows=60, width=3):
    rng = np.random.default_rng(0)
    kinds = np.where(rng.random(n_rows) < 0.4, "a", "b")
    X = rng.normal(size=(n_rows, width)) + 1.5 * (kinds == "a")[:, None]
    names = COLUMNS if width == 3 else [f"f{i}" for i in range(width)]
    return pd.DataFrame(X, columns=names).assign(kind=kinds)


def times(factor, offset=0.0):
    frame = rows()
    frame[COLUMNS] = frame[COLUMNS] * factor + offset
    return frame


def equal_positives():
    frame = rows()
    frame.loc[frame.kind == "a", COLUMNS] = 1.0
    return frame


GOOD = {
    "one column": rows(width=1),
    "constant column": rows().assign(x=1.0),
    "duplicate column": rows().assign(w=lambda frame: frame.x),
    "duplicate rows": pd.concat([rows(20)] * 3),
    "equal positives": equal_positives(),
    "few rows, many columns": rows(20, 200),
    "offset": times(1.0, 1e8),
    "tiny": times(1e-30),
    "huge": times(1e30),
    "whole numbers": times(10).round().astype({"x": int}),
    "labels of another alphabet": rows().replace({"b": 'ß<b>,"q"\n'}),
    "one negative": rows().assign(kind=["b"] + ["a"] * 59),
    "one positive": rows().assign(kind=["a"] + ["b"] * 59),
}  # fmt: skip
BAD = {
    "infinite": (
        rows().assign(y=np.inf),
        "missing or infinite values, in columns y (",
    ),
    "overflow": (times(1e200), "the squares of X overflow"),
    "one class": (rows().assign(kind="b"), "'a'|no row of"),
    "no label": (rows().assign(kind=lambda f: f.kind.where(f.x < 1)), "have no value, first row"),
    "one row": (rows(1).assign(kind="a"), "one.csv|all 1 rows|no negatives|'not a'|no row"),
}


@pytest.mark.each_value
@pytest.mark.parametrize("way", WAYS)
@in_turn("name", list(GOOD))
def test_difficult_data_give_finite_scores(command, name, way):
    GOOD[name].to_csv("t.csv", index=False)
    few = name in ("one negative", "one positive") and way == "search"
    fitted = command("fit", "t.csv", "--label", "kind", "--positive", "a", "-o", "m.pcsda",
                     *WAYS[way], code=int(few))  # fmt: skip
    if few:
        assert "the rarer class has 1 sample; selection needs at least 2 of each" in fitted.err
        return
    found = command("score", "m.pcsda", "t.csv", "--id", "kind").table()
    assert np.isfinite(found[["llr", "probability"]]).all(axis=None)


@pytest.mark.each_value
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", BAD)
def test_bad_data_give_one_message(command, name, way, tmp_path):
    frame, messages = BAD[name]
    frame.to_csv("t.csv", index=False)
    said = command("fit", "t.csv", "--label", "kind", "--positive", "a", "-o", "m.pcsda",
                   *WAYS[way], code=1).err  # fmt: skip
    assert any(message in said for message in messages.split("|")), said
    assert [file.name for file in tmp_path.iterdir()] == ["t.csv"]
