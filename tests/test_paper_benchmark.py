"""The paper benchmark: its protocol, stored rows, tables and commands."""

import gzip
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from benchmarks.paper import __main__ as command
from benchmarks.paper import check, datasets, demo, protocol, rows, run, tables
from benchmarks.paper.methods import KINDS, METHODS
from benchmarks.paper.protocol import FULL, QUICK, Unit
from sklearn.metrics import average_precision_score, f1_score

ROOT = Path(__file__).parents[1]
FUZZ = "PCSDA_FUZZ" in os.environ
DEFAULT = [name for name, method in METHODS.items() if method.group != "ablation"]
# The slow ones take longer than all others together; `make every` runs them too, and each method
# by itself is tested in `test_paper_methods.py`.
SLOW = {"PCSDACV", "SVC", "SVR", "PCA+SVM", "CSDA+SVM", "Nystroem+LR", "trace-ratio", "CSRDA"}
RUN = [name for name in DEFAULT if FUZZ or name not in SLOW]
# Classes, and how many digits there are of each; `make every` takes both.
POSITIVES = {"8": 122, "1": 127} if FUZZ else {"8": 122}
EXPECTED = {(name, kind) for name in RUN for kind in METHODS[name].kinds}


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    """Run the whole protocol with one split and all methods."""
    folder = tmp_path_factory.mktemp("smoke")
    arguments = ["--quick", "--classes", *POSITIVES, "--jobs", "1", "--tables", str(folder)]
    arguments += [] if FUZZ else ["--methods", *RUN]
    arguments += ["--rows", str(folder / "rows.jsonl")]
    assert command.main(arguments) == 0
    return folder, arguments


@pytest.mark.more  # runs a part of the study
def test_smoke_every_method_gives_one_row_for_each_class_and_kind(smoke):
    found = rows.read(smoke[0] / "rows.jsonl")
    assert len({rows.key(row) for row in found}) == len(found) == len(POSITIVES) * len(EXPECTED)
    for label in POSITIVES:
        assert {(r["method"], r["kind"]) for r in found if r["class"] == label} == EXPECTED
    assert all(0 <= row["value"] <= 1 for row in found)
    assert all(row["n_train"] + row["n_test"] == 1797 for row in found)
    assert {(r["class"], r["n_positive"]) for r in found} == set(POSITIVES.items())
    assert {row["profile"] for row in found} == {"quick"}
    # A verifier of digits that is fitted at all gets this far; chance is 0.1.
    values = {(r["method"], r["kind"], r["class"]): r["value"] for r in found}
    for name in {"RR", "PCSDA-K", "CSDA", "SVC", "PCSDA", "KernelPCSDA", "PCSDACV"} & set(RUN):
        assert values[name, "ranking", "8"] > 0.8
    for chosen in (row for row in found if row["method"] == "PCSDACV"):
        assert set(chosen["params"]) == {"n_subclasses", "n_components", "regularization", "gamma"}
        assert chosen["n_settings"] == 1020


@pytest.mark.more  # runs a part of the study
def test_smoke_starting_again_adds_nothing(smoke, monkeypatch):
    folder, arguments = smoke
    before = (folder / "rows.jsonl").read_bytes()
    monkeypatch.setattr(run, "run_unit", lambda *_: pytest.fail("nothing is left to run"))
    assert command.main(arguments) == 0
    assert (folder / "rows.jsonl").read_bytes() == before


@pytest.mark.more  # runs a part of the study
def test_smoke_tables_are_made_of_the_rows(smoke, tmp_path):
    folder, _ = smoke
    blocks = tables.page(rows.read(folder / "rows.jsonl"))
    assert (folder / "tables-quick.md").read_text() == tables.to_markdown(blocks)
    assert (folder / "tables-quick.html").read_text() == tables.to_html(blocks)
    packed = tmp_path / "rows.jsonl.gz"
    packed.write_bytes(gzip.compress((folder / "rows.jsonl").read_bytes()))
    arguments = ["--tables-only", "--quick", "--rows", str(packed), "--tables", str(tmp_path)]
    assert command.main(arguments) == 0
    assert (tmp_path / "tables-quick.md").read_text() == tables.to_markdown(blocks)


@pytest.mark.more  # runs a part of the study
def test_demo_shows_the_published_row_beside_ours_and_draws(smoke, tmp_path, monkeypatch, capsys):
    found = rows.read(smoke[0] / "rows.jsonl")
    monkeypatch.setattr(demo, "measure", lambda *_: (found, []))
    assert demo.main(["--output", str(tmp_path / "picture.png")]) == 0
    lines = {line[:16].strip(): line for line in capsys.readouterr().out.splitlines()}
    assert "0.9945 (0.0064)" in lines["PCSDA-K"]  # Table of the paper, OptDigits
    assert "0.9826 (0.0074)" in lines["PCSDA-K"]
    own = np.mean([r["value"] for r in found if (r["method"], r["kind"]) == ("RR", "ranking")])
    assert f"{own:.4f}" in lines["RR"]
    assert set(RUN) <= set(lines)
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in tmp_path.iterdir()] == ["picture.png"]


def test_demo_runs_the_quick_protocol(monkeypatch):
    monkeypatch.setattr(demo, "chosen_methods", lambda _: ["RR", "PCA"])
    found, failures = demo.measure(datasets.load("digits"), ["4"], 1)
    assert [(r["method"], r["kind"]) for r in found] == [
        ("RR", "ranking"),
        ("RR", "classification"),
        ("PCA", "ranking"),
    ]
    assert failures == []


@pytest.mark.more  # runs a part of the study
def test_demo_says_when_the_picture_cannot_be_saved(smoke, tmp_path, monkeypatch, capsys):
    found = rows.read(smoke[0] / "rows.jsonl")
    monkeypatch.setattr(demo, "measure", lambda *_: (found, []))
    assert demo.main(["--output", str(tmp_path / "nowhere" / "picture.png")]) == 1
    assert "picture.png was not saved" in capsys.readouterr().err


@pytest.mark.more
def test_rows_survive_kill_9_and_the_restart_completes_them(tmp_path):
    path = tmp_path / "rows.jsonl"
    line = [sys.executable, "-m", "benchmarks.paper", "--quick", "--methods", "RR", "PCA", "LDA"]
    line += ["--rows", str(path), "--tables", str(tmp_path), "--jobs"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    first = subprocess.Popen([*line, "2"], cwd=ROOT, start_new_session=True, **quiet)
    try:
        limit = time.monotonic() + 60
        while not (path.exists() and path.read_bytes().count(b"\n") >= 4):
            assert first.poll() is None, "it ended before it could be killed"
            assert time.monotonic() < limit, "no row within a minute"
            time.sleep(0.01)
    finally:
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()
    kept = path.read_bytes()
    assert kept.count(b"\n") < 40, "it was not in the middle"
    cut = kept[: kept.rfind(b"\n") + 1] + b'{"dataset": "digits", "class": "9", "spl'
    path.write_bytes(cut)  # the worst that a kill in the middle of a line can leave
    subprocess.run([*line, "1"], cwd=ROOT, check=True, capture_output=True)
    found = rows.read(path)
    assert path.read_bytes().startswith(kept[: kept.rfind(b"\n") + 1])
    assert len(found) == 10 * 4
    assert len({rows.key(row) for row in found}) == 10 * 4


def test_a_method_that_fails_leaves_the_others_and_is_tried_again(tmp_path, monkeypatch, capsys):
    def broken(space, grid):
        raise FloatingPointError("out of chalk")

    path = tmp_path / "rows.jsonl"
    arguments = ["--quick", "--methods", "RR", "PCA", "--classes", "2", "--jobs", "1"]
    arguments += ["--rows", str(path), "--tables", str(tmp_path)]
    whole = METHODS["RR"]
    monkeypatch.setitem(METHODS, "RR", replace(whole, choose=broken))
    assert command.main(arguments) == 1
    shown = capsys.readouterr().err
    assert "RR on digits, class 2, split 0 failed; the next run tries it again" in shown
    assert "FloatingPointError: out of chalk" in shown
    assert [row["method"] for row in rows.read(path)] == ["PCA"]
    monkeypatch.setitem(METHODS, "RR", whole)
    assert command.main(arguments) == 0
    assert sorted(row["method"] for row in rows.read(path)) == ["PCA", "RR", "RR"]


def test_warnings_are_noted_in_the_row(monkeypatch):
    import warnings

    def loud(space, setting):
        warnings.warn("not so fast", UserWarning, stacklevel=1)
        return whole.report(space, setting)

    whole = METHODS["PCA"]
    monkeypatch.setitem(METHODS, "PCA", replace(whole, report=loud))
    unit = Unit("digits", "5", 0, ("PCA", "RR"))
    outcome = protocol.run_unit(datasets.load("digits"), unit, QUICK)
    assert [r["warnings"] for r in outcome.rows] == [["UserWarning"], [], []]


def test_two_runs_do_not_write_to_one_file(tmp_path):
    pytest.importorskip("fcntl")
    file = rows.RowFile(tmp_path / "rows.jsonl")
    with pytest.raises(RuntimeError, match=r"is being written by another run; wait for it"):
        rows.RowFile(tmp_path / "rows.jsonl")
    file.close()
    rows.RowFile(tmp_path / "rows.jsonl").close()


def test_a_malformed_line_is_named(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"a": 1}\nnonsense\n{"a": 2}\n')
    with pytest.raises(ValueError, match=r"rows.jsonl, line 2 is no row: .*; remove it"):
        rows.read(path)
    assert rows.read(tmp_path / "none.jsonl") == []


def test_a_truncated_last_line_is_ignored_and_removed(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"a": 1}\n{"a": 2}')  # complete, but without its line end
    assert rows.read(path) == [{"a": 1}]
    file = rows.RowFile(path)
    file.append([{"a": 3}])
    file.close()
    assert path.read_text() == '{"a": 1}\n{"a": 3}\n'


def test_splits_take_70_percent_of_each_class():
    y = np.arange(1000) % 10 == 0
    train, test = protocol.split_rows(y, seed=1)
    assert y[train].sum() == 70
    assert len(train) == 700
    assert sorted([*train, *test]) == list(range(1000))
    assert not np.array_equal(train, protocol.split_rows(y, seed=2)[0])
    assert np.array_equal(train, protocol.split_rows(y, seed=1)[0])


def test_units_differ_in_their_seeds_and_repeat_them():
    seeds = {Unit("digits", str(c), s, ()).seed for c in range(10) for s in range(5)}
    assert len(seeds) == 50
    assert Unit("digits", "3", 0, ("RR",)).seed == Unit("digits", "3", 0, ()).seed == 3409863359


def test_all_of_up_to_15_classes_and_10_of_more_are_used():
    def of(n):
        names = tuple(f"c{i}" for i in range(n))
        return datasets.Dataset("set", np.zeros((n, 1)), np.arange(n), names)

    assert protocol.chosen_classes(of(15)) == [f"c{i}" for i in range(15)]
    some = protocol.chosen_classes(of(16))
    assert len(set(some)) == 10
    assert some == protocol.chosen_classes(of(16))


@pytest.mark.parametrize("ties", [False, True])
def test_metrics_of_many_settings_equal_scikit_learns(ties):
    rng = np.random.default_rng(0)
    y = rng.random(60) < 0.3
    scores = rng.standard_normal((20, 60)) + y
    if ties:
        scores = scores.round()
    scores[3] = -1.0
    expected = [average_precision_score(y, row) for row in scores]
    np.testing.assert_allclose(protocol.average_precisions(y, scores), expected)
    expected = [f1_score(y, row >= 0, zero_division=0.0) for row in scores]
    np.testing.assert_allclose(protocol.f1_scores(y, scores), expected)


def test_the_first_of_equal_settings_is_taken_and_unfitted_ones_never():
    first, second = np.array([0.1, 0.7, 0.7, np.nan]), np.array([0.3, 0.5, 0.5, 0.9])
    assert protocol.best_setting([first, second]) == 1
    assert protocol.best_setting([first + 1e-14 * np.arange(4), second]) == 1
    with pytest.raises(ValueError, match="no setting could be fitted in every fold"):
        protocol.best_setting([np.full(2, np.nan), np.ones(2)])
    values = protocol.fold_values(
        "ranking", np.array([True, False]), np.array([[1, 0], [np.nan, 0]])
    )
    np.testing.assert_array_equal(values, [1, np.nan])


def test_a_quick_run_spreads_its_settings():
    grid = METHODS["SVC"].grid
    few = QUICK.grid(METHODS["SVC"])
    assert len(few) == 7
    assert (few[0], few[-1]) == (grid[0], grid[-1])
    assert len({setting["gamma"] for setting in few}) > 1
    assert FULL.grid(METHODS["SVC"]) is grid


@pytest.mark.more  # runs a part of the study
def test_methods_share_folds_and_splits_whatever_else_runs():
    digits = datasets.load("digits")
    alone = protocol.run_unit(digits, Unit("digits", "3", 0, ("PCSDA-K",)), QUICK).rows
    among = protocol.run_unit(digits, Unit("digits", "3", 0, ("CSDA", "PCSDA-K")), QUICK).rows[2:]
    assert [r["value"] for r in alone] == [r["value"] for r in among]
    assert [r["params"] for r in alone] == [r["params"] for r in among]


def test_plan_skips_what_is_done_and_advances_all_sets_together():
    digits = datasets.load("digits")
    done = {("full", "digits", "0", 0, "RR", kind) for kind in KINDS}
    done.add(("full", "digits", "1", 0, "RR", "ranking"))
    units = run.plan([digits], ["RR", "PCA"], ["0", "1"], 2, "full", done)
    assert [(u.label, u.split, u.methods) for u in units] == [
        ("0", 0, ("PCA",)),
        ("1", 0, ("RR", "PCA")),
        ("0", 1, ("RR", "PCA")),
        ("1", 1, ("RR", "PCA")),
    ]


def test_methods_of_pictures_are_left_out_where_rows_are_none():
    digits, both = datasets.load("digits"), ["RR", "multilinear CSDA"]
    found = run.plan([digits, replace(digits, shape=None)], both, ["0"], 1, "full", set())
    assert [unit.methods for unit in found] == [("RR", "multilinear CSDA"), ("RR",)]


@pytest.mark.parametrize(
    ("seconds", "text"), [(3.4, "3 s"), (75, "1 min 15 s"), (7260, "2 h 1 min")]
)
def test_time_left_is_readable(seconds, text):
    assert run.duration(seconds) == text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--datasets", "MNIST"], "argument --datasets: invalid choice: 'MNIST'"),
        (["--methods", "magic"], "argument --methods: magic unknown; choose from paper"),
        (["--splits", "0"], "argument --splits: invalid positive value: '0'"),
        (["--rows", "rows.jsonl.gz"], "a compressed file cannot be added to; unpack it first"),
    ],
)
def test_wrong_usage_is_refused(arguments, message, capsys):
    with pytest.raises(SystemExit) as refused:
        command.parse_arguments(arguments)
    assert refused.value.code == 2
    assert message in capsys.readouterr().err


def test_an_unknown_class_is_named(tmp_path):
    arguments = ["--quick", "--classes", "11", "--rows", str(tmp_path / "rows.jsonl")]
    with pytest.raises(SystemExit, match="digits has no class 11; it has 0, 1, 2"):
        command.main(arguments)


def test_tables_of_no_rows_are_refused(tmp_path, capsys):
    missing = tmp_path / "rows.jsonl"
    assert command.main(["--tables-only", "--rows", str(missing)]) == 1
    assert "is not there; run python -m benchmarks.paper first" in capsys.readouterr().err


def test_groups_stand_for_their_methods():
    assert command.chosen_methods(None) == DEFAULT
    assert command.chosen_methods(["today", "RR"]) == ["RR", "SVC", "QDA", "Nystroem+LR", "cosine"]
    assert len(command.chosen_methods(["ablation"])) == 6


@pytest.mark.more  # runs a part of the study
def test_checking_names_rows_that_are_no_longer_reproduced(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(check, "SAMPLE", {"digits": ("8",)})
    monkeypatch.setattr(check, "FULL", QUICK)
    units = [Unit("digits", "8", 0, ("LDA", "LDA+NCC"))]
    kept = protocol.run_unit(datasets.load("digits"), units[0], QUICK).rows
    monkeypatch.setattr(check.rows, "read", lambda path: kept)
    assert check.main(["--methods", "LDA", "LDA+NCC"]) == 0
    assert f"{len(kept)} rows computed anew, 0 differ" in capsys.readouterr().out
    kept[0] = kept[0] | {"value": kept[0]["value"] - 1e-3}
    kept[1] = kept[1] | {"params": {"ridge": -1.0}}
    assert check.main(["--methods", "LDA", "LDA+NCC"]) == 1
    assert f"{len(kept)} rows computed anew, 2 differ" in capsys.readouterr().out
    del kept[0]
    assert "no row is kept" in "".join(check.apart([row | {"split": 9} for row in kept], kept))


def test_checking_needs_the_data(monkeypatch, capsys):
    monkeypatch.delenv("PCSDA_DATA", raising=False)
    assert check.main([]) == 1
    assert "OptDigits" in capsys.readouterr().err
