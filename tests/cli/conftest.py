"""A small table of three kinds of joints in every format, and commands that use it."""

import io
import json
import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import pcsda
from pcsda.cli import main

FEATURES = ["width", "depth", "hue", "grain", "rim"]


def make_joints(n_rows, seed):
    rng = np.random.default_rng(seed)
    kinds = rng.choice(["weld", "crack", "pore"], n_rows, p=[0.3, 0.4, 0.3])
    centres = {"weld": [0, 0, 0, 0, 0], "crack": [2, 1, 0, 0, 1], "pore": [-1, 2, 0, 1, 0]}
    X = rng.normal(size=(n_rows, 5)) + np.array([centres[kind] for kind in kinds])
    frame = pd.DataFrame(X.round(6), columns=FEATURES)
    frame["kind"] = kinds
    # All rows of a part have the same kind.
    frame["part"] = [f"{kind}-{rng.integers(12)}" for kind in kinds]
    return frame


@pytest.fixture(scope="session")
def shop(tmp_path_factory):
    """Make a folder with train.csv, test.* in all formats, and model files."""
    folder = tmp_path_factory.mktemp("shop")
    train, test = make_joints(240, 0), make_joints(90, 1)
    train.to_csv(folder / "train.csv", index=False)
    test.to_csv(folder / "test.csv", index=False)
    test.to_csv(folder / "test.tsv", index=False, sep="\t")
    test.to_csv(folder / "test.csv.gz", index=False)
    test.to_csv(folder / "semicolons.csv", index=False, sep=";")
    test.to_parquet(folder / "test.parquet")
    np.save(folder / "matrix.npy", test[FEATURES].to_numpy())
    sides = {name: test[name].to_numpy(str) for name in ("kind", "part")}
    np.savez(folder / "test.npz", X=test[FEATURES].to_numpy(), **sides)
    kinds = [(name, "f8" if name in FEATURES else "U12") for name in test.columns]
    np.save(folder / "records.npy", np.array(list(test.itertuples(index=False)), dtype=kinds))
    X, y = train[FEATURES], np.where(train.kind == "weld", "weld", "not weld")
    model = pcsda.PCSDA(random_state=0, pos_label="weld").fit(X, y)
    # Three labels cannot tell strangers, and counting needs the other rows.
    bank = pcsda.VerifierBank(pcsda.PCSDA(random_state=0), calibration="per-label")
    bank.fit(X, train.kind.to_numpy(str))
    unnamed = pcsda.PCSDA(random_state=0).fit(X.to_numpy(), train.kind == "weld")
    for name, one in (("weld", model), ("bank", bank), ("unnamed", unnamed)):
        pcsda.save(one, folder / f"{name}.pcsda")
    return SimpleNamespace(
        folder=folder, train=train, test=test, model=model, bank=bank, unnamed=unnamed
    )


@pytest.fixture
def command(shop, tmp_path, monkeypatch, capsys):
    """Run a command in a fresh folder; {shop} in an argument stands for the data folder."""
    monkeypatch.chdir(tmp_path)

    def run(*argv, stdin=None, code=0):
        if stdin is not None:
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        argv = [str(word).replace("{shop}", str(shop.folder)) for word in argv]
        try:
            found = main(argv)
        except SystemExit as leaving:
            found = leaving.code
        out, err = capsys.readouterr()
        assert found == code, err
        assert "Traceback" not in err
        if code == 1:
            # A single message, after notes.
            lines = [line for line in err.splitlines() if not line.startswith("pcsda: note: ")]
            assert len(lines) == 1
            assert lines[0].startswith("pcsda: ")
        return SimpleNamespace(
            out=out,
            err=err,
            json=lambda: json.loads(out),
            table=lambda: pd.read_csv(io.StringIO(out)),
        )

    return run
