"""The installed command itself: what people type, how it ends, what it leaves behind."""

import json
import resource
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pandas as pd
import pytest

import pcsda
from pcsda.cli import main

COMMAND = Path(sys.executable).with_name("pcsda")
AS_MODULE = (sys.executable, "-m", "pcsda")
FIT = ("fit", "train.csv", "--label", "kind", "--positive", "weld", "--ignore", "part")


@pytest.fixture(autouse=True)
def in_shop(shop, monkeypatch):
    monkeypatch.chdir(shop.folder)


def run(*argv, code=0, program=(COMMAND,), **options):
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True} | options
    done = subprocess.run([*map(str, program), *map(str, argv)], timeout=120, **options)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in (done.stderr or "")
    return done


def test_the_command_is_installed():
    assert COMMAND.exists(), f"{COMMAND} is missing; install the package: make does, or pip -e ."
    for program in ((COMMAND,), AS_MODULE):
        assert run("--version", program=program).stdout == f"pcsda {version('pcsda')}\n"


@pytest.mark.more  # each command is tested without a process
def test_from_a_table_to_a_decision_by_the_command_and_as_a_module(tmp_path):
    run(*FIT, "-o", tmp_path / "weld.pcsda")
    done = run("score", tmp_path / "weld.pcsda", "test.parquet", "--json", program=AS_MODULE)
    rows = json.loads(done.stdout)["rows"]
    model = pcsda.load(tmp_path / "weld.pcsda")
    X = pd.read_parquet("test.parquet")[list(model.feature_names_in_)]
    expected = model.log_likelihood_ratio(X)
    assert [row["llr"] for row in rows] == pytest.approx(expected.tolist())


@pytest.mark.more  # the codes themselves are tested without a process
@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (
            ("fit",),
            2,
            "the following arguments are required: data, --label, --positive, -o/--outpu",
        ),
        (("score", "weld.pcsda", "none.csv"), 1, "pcsda: none.csv does not exist\n"),
    ],
)
def test_exit_codes_tell_whose_fault_it_is(words, code, message):
    assert message in run(*words, code=code).stderr


SCORE = ("score", "weld.pcsda", "test.csv", "--ignore", "part")


def test_a_full_disk_on_standard_output(monkeypatch, capsys):
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert main(list(SCORE)) == 1
    assert "No space left on device" in capsys.readouterr().err


@pytest.mark.more  # a program also flushes when it ends
def test_a_program_on_a_full_disk():
    with open("/dev/full", "w") as full:
        done = run(*SCORE, code=1, stdout=full)
    assert "No space left on device" in done.stderr


@pytest.fixture
def little_room():
    """No file may grow beyond 2000 bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (FIT, "m.pcsda"),
        pytest.param(
            ("score", "bank.pcsda", "test.csv", "--all"), "s.parquet", marks=pytest.mark.more
        ),
    ],
)
def test_a_full_disk_leaves_no_half_file(words, name, tmp_path, little_room, capsys):
    assert main([*words, "-o", str(tmp_path / name)]) == 1
    assert "File too large" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.more  # starts a process
def test_a_reader_that_has_seen_enough(tmp_path):
    many = tmp_path / "many.csv"
    text = Path("test.csv").read_text().splitlines()
    many.write_text("\n".join(text + text[1:] * 150))
    program = subprocess.Popen(
        [COMMAND, "score", "weld.pcsda", many], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert program.stdout.readline() == b"row,llr,probability,accepted\n"
    program.stdout.close()
    error = program.stderr.read().decode()
    program.stderr.close()
    assert program.wait(120) == 0
    assert "Traceback" not in error
    assert "Broken pipe" not in error
