"""What the command line prints: help, usage, user errors and internal errors."""

import os
import re
import shutil
import subprocess

import numpy as np
import pytest

from pcsda.cli import main, printing
from pcsda.cli.fitting import sentence
from pcsda.cli.parser import build

COMMANDS = (
    "fit",
    "score",
    "rank",
    "count",
    "identify",
    "evaluate",
    "update",
    "inspect",
    "export",
    "demo",
    "completion",
    "search",
)


def test_help_gets_a_beginner_started(command):
    words = command("--help").out
    assert "start here:" in words
    for name in COMMANDS:
        assert re.search(rf"^    {name}\b", words, re.MULTILINE)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_examples(command, name):
    words = command(name, "--help").out
    assert re.search(r"^examples?:$", words, re.MULTILINE)
    assert "--json" in words


def test_help_states_the_defaults_of_the_command(command):
    """Only `fit` chooses features and scaling; other commands do as the model file says."""
    for name in ("score", "rank", "count", "identify", "evaluate", "update"):
        words = " ".join(command(name, "--help").out.split())
        assert "all numeric columns" not in words
        assert "(default: none)" not in words
        assert "(default: those of the model)" in words
        assert "reading (by default, as the model file says)" in words
    words = " ".join(command("fit", "--help").out.split())
    assert "scale the columns (default: none)" in words
    assert "all numeric columns that do not look like ids" in words


def test_the_examples_in_the_help_parse(command):
    """Parse every example, up to a pipe or jq."""
    parser = build("0")
    found = 0
    for name in ("", *COMMANDS):
        words = re.sub(r"\\\n +", "", command(*[name] * bool(name), "--help").out)
        for line in words.splitlines():
            match = re.search(r"(?:^ {2,4}|\| )pcsda (\w+ .*)", line)
            if match and "usage" not in line:
                text = re.split(r" {3,}| \| ", match[1])[0]
                parser.parse_args(text.split())
                found += 1
    assert found >= 25


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "the following arguments are required: command; pcsda --help lists the commands"),
        (("weigh",), "invalid choice: 'weigh'"),
        (("rank", "m", "d", "--top", "0"), "'0' must be a whole number of at least 1"),
        (("evaluate", "m", "d"), "the following arguments are required: --label"),
        (("export", "m"), "the following arguments are required: --onnx"),
        (("demo", "--digit", "10"), "invalid choice: 10"),
    ],
)
def test_wrong_usage_is_rejected(command, words, message):
    assert message in command(*words, code=2).err


def test_an_unwritable_folder_is_reported(command):
    said = command("fit", "{shop}/train.csv", "--label", "kind", "--positive", "weld", "--ignore",
                   "part", "-o", "/proc/weld.pcsda", code=1).err  # fmt: skip
    assert said.startswith("pcsda: /proc/")


def test_an_internal_error_is_a_single_message(command, monkeypatch):
    def broken(arguments):
        raise RuntimeError("wheels\ncame off")

    monkeypatch.setattr("pcsda.cli.models.inspect", broken)
    said = command("inspect", "{shop}/weld.pcsda", code=1).err
    assert "unexpected RuntimeError: wheels came off (this is a bug in pcsda; set" in said
    monkeypatch.setenv("PCSDA_TRACEBACK", "1")
    with pytest.raises(RuntimeError, match="wheels"):
        main(["inspect", "x"])


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (MemoryError("an exact kernel fit needs 9 GiB"), "not enough memory. an exact kernel fit"),
        (MemoryError(), "not enough memory."),
        (PermissionError(13, "Permission denied", "a.csv"), "a.csv: Permission denied"),
        (ImportError("the report needs plotly"), "the report needs plotly"),
        (ValueError(), "ValueError"),
    ],
)
def test_errors_become_messages(command, monkeypatch, error, message):
    def broken(arguments):
        raise error

    monkeypatch.setattr("pcsda.cli.models.inspect", broken)
    assert command("inspect", "x", code=1).err.startswith(f"pcsda: {message}")


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        (["pcsda", "ev"], {"evaluate"}),
        (["pcsda", "rank", "--to"], {"--top"}),
        (["pcsda", "fit", "--approx", ""], {"nystroem", "fourier"}),
        (["pcsda", "rank", "--by", "l"], {"likelihood"}),
        (["pcsda", "score", "wel"], {"weld.pcsda"}),
        (["pcsda", "completion", "f"], {"fish"}),
        (["pcsda", "inspect", "--approx", ""], {"weld.pcsda"}),
    ],
)
def test_completion_works_in_a_real_bash(command, typed, found, tmp_path):
    (tmp_path / "weld.pcsda").touch()
    script = command("completion", "bash").out
    words = " ".join(f"'{word}'" for word in typed)
    script += f"COMP_WORDS=({words}); COMP_CWORD={len(typed) - 1}; _pcsda; echo ${{COMPREPLY[@]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == found
    assert done.stderr == ""


def test_completion_for_fish(command):
    lines = command("completion", "fish").out.splitlines()
    shells = "complete -c pcsda -n '__fish_seen_subcommand_from completion' -f -a 'bash zsh fish'"
    assert shells in lines
    about = "complete -c pcsda -n __fish_use_subcommand -a rank -d"
    assert f"{about} 'List the rows that fit a class best'" in lines
    rank = "complete -c pcsda -n '__fish_seen_subcommand_from rank'"
    assert f"{rank} -l by -x -a 'likelihood distance' -d 'what to order the rows by'" in lines
    assert f"{rank} -s o -l output -r -d 'file for the list, .csv or .parquet'" in lines
    assert any(r"patterns such as \'f*\'" in line for line in lines)


ESCAPE = "\x1b]0;owned\x07\u202e"


def test_control_characters_are_shown_not_obeyed(command, shop):
    frame = shop.train.rename(columns={"hue": f"hue{ESCAPE}"}).assign(kind="a" + ESCAPE)
    frame.loc[::2, "kind"] = "b" + ESCAPE
    frame.to_csv("t.csv", index=False)
    fit = ("fit", "t.csv", "--label", "kind", "--positive", "b" + ESCAPE, "-o", "m.pcsda")
    use = ("m.pcsda", "t.csv", "--ignore", "kind,part")
    said = [
        command(*fit, "--ignore", "part"),
        command("inspect", "m.pcsda"),
        command("rank", *use, "--id", "kind"),
        command("count", *use),
        command("evaluate", "m.pcsda", "t.csv", "--label", "kind", "--resamples", "5"),
        command("fit", "t.csv", "--label", "kind" + ESCAPE, *fit[4:], code=1),
    ]
    for one in said:
        assert not set("\x1b\x07\u202e") & set(one.out + one.err)
    assert r"b\x1b]0;owned\x07\u202e" in said[2].out
    # A file or a pipe gets the label unchanged.
    assert ESCAPE in command("score", *use, "--id", "kind").out


def test_scores_send_no_control_characters_to_a_terminal(command, shop, monkeypatch):
    shop.test.assign(part="p" + ESCAPE).to_csv("t.csv", index=False)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    said = command("score", "{shop}/weld.pcsda", "t.csv", "--id", "part").out
    assert r"p\x1b]0" in said
    assert "\x1b" not in said


def test_cells_that_a_spreadsheet_would_run_are_quoted(command, shop):
    names = ["=1+1", "+cmd", "-2+3", "@SUM(A1)", "-5", "plain"]
    shop.test[:6].assign(part=names).to_csv("t.csv", index=False)
    words = ("score", "{shop}/weld.pcsda", "t.csv", "--id", "part")
    found = command(*words).table()
    assert found.id.tolist() == ["'=1+1", "'+cmd", "'-2+3", "'@SUM(A1)", "-5", "plain"]
    assert command(*words, "--keep-formulas").table().id.tolist() == names
    rows = command(*words, "--json").json()["rows"]
    assert [row["id"] for row in rows] == names


TYPED = [
    (["pcsda", "ev"], {"evaluate"}),
    (["pcsda", "rank", "--to"], {"--top"}),
    (["pcsda", "rank", "--by", ""], {"likelihood", "distance"}),
    (["pcsda", "completion", ""], {"bash", "zsh", "fish"}),
    (["pcsda", "score", "wel"], {"weld.pcsda"}),
]


@pytest.mark.skipif(not shutil.which("fish"), reason="fish is not installed")
@pytest.mark.parametrize(("typed", "found"), TYPED)
def test_completion_works_in_fish(command, typed, found, tmp_path):
    (tmp_path / "weld.pcsda").touch()
    (tmp_path / "pcsda.fish").write_text(command("completion", "fish").out)
    line = f"source {tmp_path}/pcsda.fish; cd {tmp_path}; complete -C '{' '.join(typed)}'"
    done = subprocess.run(
        ["fish", "--no-config", "-c", line], capture_output=True, text=True, check=True
    )
    assert {entry.split("\t")[0] for entry in done.stdout.splitlines()} == found
    assert done.stderr == ""


@pytest.mark.skipif(not shutil.which("zsh"), reason="zsh is not installed")
@pytest.mark.parametrize(("typed", "found"), TYPED)
def test_completion_works_in_a_bare_zsh(command, typed, found, tmp_path):
    (tmp_path / "weld.pcsda").touch()
    words = " ".join(f"'{word}'" for word in typed)
    script = command("completion", "zsh").out + (
        f"cd {tmp_path}; [[ -n $_comps[pcsda] ]] || exit 9; emulate ksh\n"
        f"COMP_WORDS=({words}); COMP_CWORD={len(typed) - 1}; _pcsda; echo ${{COMPREPLY[@]}}"
    )
    done = subprocess.run(["zsh", "-f", "-c", script], capture_output=True, text=True, check=True)
    # The shell itself leaves out what does not begin with the word.
    assert {word for word in done.stdout.split() if word.startswith(typed[-1])} == found
    assert done.stderr == ""


def test_completion_for_an_unknown_shell_is_rejected(command):
    script = command("completion", "zsh").out
    assert "autoload -U +X bashcompinit && bashcompinit\n_pcsda() {" in script
    assert command("completion", "zsh", "--json").json()["script"] == script


def test_json_output_is_strict_json():
    odd = {1: np.float32(1.5), "a": [np.nan, np.inf, None, True], "b": (np.arange(2), object)}
    found = printing.plain(odd)
    assert found["1"] == 1.5
    assert found["a"] == [None, None, None, True]
    assert found["b"][0] == [0, 1]


def test_tables_are_aligned_in_files_and_ruled_on_a_terminal(monkeypatch, capsys):
    rows = [("a", 1, None), ("long name", 22.123456, 3)]
    printing.show_table(rows, ("name", "value", "more"))
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["name       value  more", "a              1     -", "long name  22.12     3"]
    pytest.importorskip("rich")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    printing.show_table([("[red]", 1)], ("name", "value"))
    out = capsys.readouterr().out
    assert "[red]" in out
    assert "┃" in out


LABELLED = ("--label", "kind", "--positive", "weld", "-o", "m.pcsda")
FIT = ("fit", "{shop}/train.csv", *LABELLED)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("fit", "{shop}/train.csv", "--label", "kind", "--positive", "wled", "-o", "m.pcsda"),
            "--positive wled: no row of {shop}/train.csv has this label, did you mean 'weld'? "
            "The labels are crack, pore, weld",
        ),
        (
            (*FIT[:-1], "none/m.pcsda"),
            "none/m.pcsda: there is no folder {here}/none; create it first",
        ),
        ((*FIT[:-1], "."), ". is a folder; give the name of a file"),
    ],
)
def test_one_line_names_the_problem_and_the_remedy(command, shop, tmp_path, words, message):
    said = command(*words, code=1).err
    assert message.format(shop=shop.folder, here=tmp_path) in said


def test_an_unwritable_folder_is_reported_before_any_work(command, tmp_path, monkeypatch):
    monkeypatch.setattr("os.access", lambda *_: False)
    said = command(*FIT, code=1).err
    assert f"m.pcsda: no permission to write in {tmp_path}" in said


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes with names")
def test_an_empty_name_of_the_output_is_refused(command):
    assert "the name of the output file is empty" in command(*FIT, "-o", "", code=1).err


def test_a_pipe_as_output_is_refused_before_any_work(command, tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "m.pcsda")
    monkeypatch.setattr("pcsda.cli.fitting._fit_whole", None)
    assert "m.pcsda is a device or a pipe; give the name of" in command(*FIT, code=1).err


def test_a_missing_package_is_named_with_its_extra(command, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    said = command("inspect", "{shop}/weld.pcsda", code=1).err
    assert 'skops is needed to read model files: pip install "pcsda[skops]"' in said
    monkeypatch.setattr("pcsda.cli.fitting._fit_whole", None)  # refused before any work
    said = command(*FIT, code=1).err
    assert 'skops is needed to write model files: pip install "pcsda[skops]"' in said


def test_fit_and_report_name_the_files_they_wrote(command):
    said = command(*FIT, "-K", "3", "--max-false-alarms", "0.1").out
    assert "m.pcsda: PCSDA, verifies weld; fitted on 240 rows and 5 columns, " in said
    assert " rows of the class; 3 subclasses, 3 dimensions.\n" in said
    assert "\nThreshold: " in said
    test = ("{shop}/test.csv", "--label", "kind", "--resamples", "5", "--report", "r.html")
    assert command("evaluate", "m.pcsda", *test).out.endswith("\nReport: r.html\n")


@pytest.mark.parametrize(("name", "there"), [("fit", True), ("score", False), ("rank", False)])
def test_only_the_help_of_fit_names_its_temporary_file(command, name, there):
    words = " ".join(command(name, "--help").out.split())
    assert ("Fitting in blocks writes the table to a temporary file" in words) == there


def test_one_of_a_kind_is_singular():
    facts = {"model": "PCSDA", "n_features": 1, "n_samples": 1, "pos_label": "a", "n_positive": 1}
    said = sentence({**facts, "n_subclasses": 1, "n_components": 1})
    assert said == (
        "PCSDA, verifies a; fitted on 1 row and 1 column, 1 row of the class; 1 subclass, "
        "1 dimension."
    )
