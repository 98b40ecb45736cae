"""The documentation is true: its code runs, its names exist, its tables follow from the rows."""

import doctest
import gzip
import inspect
import json
import pydoc
import re
import shlex
import tomllib
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from benchmarks import pages
from benchmarks.paper.methods import METHODS
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.svm import SVC

import pcsda
from pcsda.cli import main
from pcsda.datasets import make_class_specific

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
PAGES = [
    ROOT / "README.md",
    *sorted(p for p in DOCS.rglob("*.md") if not {"_build", "generated"} & set(p.parts)),
]
PUBLIC_MODULES = ("datasets", "distributed", "metrics", "normalization", "plots", "report")
NUMBER = r"\d+(?:\.\d+)?"
FENCE = re.compile(r"^(`{3,})([^\n`]*)\n(.*?)^\1\s*$", re.DOTALL | re.MULTILINE)


def by_path(path):
    return path.relative_to(ROOT).as_posix()


def blocks(text, *languages):
    """Return the code of fenced blocks in one of the languages, without directive options."""
    found = []
    for _, language, code in FENCE.findall(text):
        if language.strip() in languages:
            lines = code.splitlines()
            while lines and lines[0].startswith(":"):
                lines.pop(0)
            found.append("\n".join(lines).strip("\n"))
    return found


def python_of(path):
    return blocks(path.read_text(encoding="utf-8"), "python", "{run}")


def public_names():
    """Return the full names of everything that users may rely on."""
    names = [f"pcsda.{name}" for name in pcsda.__all__ if name not in PUBLIC_MODULES]
    for module in PUBLIC_MODULES:
        room = getattr(pcsda, module)
        own = getattr(room, "__all__", None) or [
            name
            for name, value in vars(room).items()
            if inspect.isfunction(value)
            and value.__module__ == room.__name__
            and not name.startswith("_")
        ]
        names += [f"pcsda.{module}.{name}" for name in own]
    return names


def documented_names():
    """Return the full names in the reference's autosummary tables."""
    module, names = "pcsda", []
    pages = sorted((DOCS / "api").glob("*.md"))
    for line in "\n".join(page.read_text(encoding="utf-8") for page in pages).splitlines():
        if line.startswith(".. currentmodule::"):
            module = line.split()[-1]
        elif found := re.fullmatch(r"   ([A-Za-z_][\w.]*)", line):
            names.append(f"{module}.{found[1]}")
    return names


def test_the_reference_lists_every_public_name_once():
    counts = Counter(documented_names())
    assert {name: counts[name] for name in public_names() if counts[name] != 1} == {}
    # The last part alone is unique too: nothing is documented under two addresses.
    assert [n for n, c in Counter(n.rpartition(".")[2] for n in counts).items() if c > 1] == []


@pytest.mark.parametrize("name", documented_names())
def test_everything_in_the_reference_has_a_docstring(name):
    assert inspect.getdoc(pydoc.locate(name))  # a room may not be open yet


def test_docstrings_are_checked(monkeypatch, tmp_path, capsys):
    monkeypatch.syspath_prepend(DOCS)
    import check_docstrings

    monkeypatch.setattr(check_docstrings, "documented_names", lambda: ["shelf.load"])
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "shelf.py").write_text('def load(path):\n    """Load."""\n    return 1\n')
    assert check_docstrings.main() == 1
    codes = re.findall(r"^shelf\.load (\w+): ", capsys.readouterr().out, re.M)
    assert sorted(codes) == ["EX01", "PR01", "RT01"]
    monkeypatch.setattr(check_docstrings, "documented_names", lambda: ["pcsda.metrics.cllr"])
    assert check_docstrings.main() == 0


@pytest.fixture
def no_pictures_left(monkeypatch):
    """Draw nothing on a screen, and close all figures afterwards."""
    monkeypatch.setenv("MPLBACKEND", "Agg")
    import matplotlib.pyplot as plt

    plt.switch_backend("Agg")
    yield plt
    plt.close("all")


@pytest.mark.more  # that of the README runs in the next test
@pytest.mark.parametrize("path", [page for page in PAGES if python_of(page)], ids=by_path)
def test_python_on_the_page_runs(path, tmp_path, monkeypatch, no_pictures_left):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    for number, block in enumerate(python_of(path), start=1):
        exec(compile(block, f"<{path.name}, block {number}>", "exec"), names)


def test_the_readme_shows_what_its_code_prints(tmp_path, monkeypatch, capsys, no_pictures_left):
    monkeypatch.chdir(tmp_path)
    """Words as printed; numbers within 2%, because libraries of linear algebra differ."""
    readme, names = (ROOT / "README.md").read_text(encoding="utf-8"), {"__name__": "__main__"}
    codes, outputs = blocks(readme, "python"), blocks(readme, "text")
    assert len(codes) == len(outputs) == 3
    for code, said in zip(codes, outputs, strict=True):
        exec(compile(code, "README.md", "exec"), names)
        printed = capsys.readouterr().out.strip()
        assert re.sub(NUMBER, "0", printed) == re.sub(NUMBER, "0", said)
        numbers = [
            [float(number) for number in re.findall(NUMBER, text)] for text in (printed, said)
        ]
        assert numbers[0] == pytest.approx(numbers[1], rel=0.02, abs=0.2)


def test_the_readme_is_short_and_has_one_picture():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 150
    assert len(re.findall(r"!\[", text)) == 1


def test_what_the_readme_advises_instead_works_with_more_features_than_samples():
    advice = (ROOT / "README.md").read_text(encoding="utf-8").partition("## When not to use it")[2]
    assert '`SVC`, or `LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")`' in advice
    data = make_class_specific(60, n_features=300, random_state=0)
    for model in (SVC(), LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")):
        model.fit(data.data[:40], data.target[:40])
        assert np.isfinite(model.decision_function(data.data[40:])).all()


@pytest.mark.parametrize("path", PAGES, ids=by_path)
def test_every_code_block_has_a_tested_language(path):
    known = {"python", "{run}", "sh", "text", "bibtex", "{math}", "{toctree}"}
    known |= {"{eval-rst}", "{include}", "{image}", "{note}"}
    for _, language, _ in FENCE.findall(path.read_text(encoding="utf-8")):
        assert language.split()[:1] != []
        assert language.split()[0] in known


def commands(path):
    """Return the lines of a page's shell blocks."""
    text = "\n".join(blocks(path.read_text(encoding="utf-8"), "sh"))
    return [line for line in text.replace("\\\n", "").splitlines() if line]


@pytest.mark.parametrize("path", [page for page in PAGES if commands(page)], ids=by_path)
def test_commands_exist(path):
    """Check the make targets, pip extras and Python modules that a page mentions."""
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for line in commands(path):
        assert re.match(r"(make|pip install|pcsda) |python -m benchmarks\.", line)
        for target in re.findall(r"^make ([a-z]+)", line):
            assert target in targets
        for extras in re.findall(r"^pip install \S*\[([a-z,]+)\]", line):
            for extra in extras.split(","):
                assert re.search(rf"^{extra} = ", project, re.M)
        for module in re.findall(r"^python -m (benchmarks[\w.]*)", line):
            assert (ROOT / Path(*module.split("."))).with_suffix(".py").exists() or (
                ROOT / Path(*module.split(".")) / "__main__.py"
            ).exists()


def pcsda_lines(path):
    return [line for line in commands(path) if line.startswith("pcsda ")]


@pytest.mark.more
@pytest.mark.parametrize("path", [page for page in PAGES if pcsda_lines(page)], ids=by_path)
def test_the_command_line_of_the_page_runs(path, tmp_path, monkeypatch, capsys):
    """Run the lines in order, on tables that the page's Python writes or on those below."""
    monkeypatch.chdir(tmp_path)
    data = make_class_specific(600, n_features=8, random_state=0)
    table = pd.DataFrame(data.data).add_prefix("f")
    table[400:].to_csv("new.csv", index=False)
    table["kind"] = np.where(data.target == 1, "weld", "other")
    table[:400].to_csv("train.csv", index=False)
    table[400:].to_csv("test.csv", index=False)
    if path.name != "README.md":
        for block in python_of(path):
            exec(compile(block, path.name, "exec"), {"__name__": "__main__"})
    for line in pcsda_lines(path):
        assert main(shlex.split(line, comments=True)[1:]) == 0, f"{line}\n{capsys.readouterr().err}"


@pytest.mark.more
@pytest.mark.parametrize("path", EXAMPLES, ids=by_path)
def test_the_example_is_short_and_ends_in_a_picture(path, tmp_path, monkeypatch, no_pictures_left):
    source = path.read_text(encoding="utf-8")
    assert len(source.splitlines()) < 60
    monkeypatch.chdir(tmp_path)
    # The gallery shows figures; without a screen, showing only warns.
    monkeypatch.setattr(no_pictures_left, "show", lambda: None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        exec(compile(source, path.name, "exec"), {"__name__": "__main__"})
    figures = [no_pictures_left.figure(n) for n in no_pictures_left.get_fignums()]
    assert figures
    assert all(axes.has_data() for axes in figures[-1].axes[:1])


def test_the_version_is_the_same_everywhere():
    """The installed version may lag behind an edit, so it is not compared."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    cited = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.M)
    assert pcsda.__version__ == project["version"] == cited[1]
    changes = re.search(r"^## \[(\S+)\]", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert pcsda.__version__.partition(".dev")[0] == changes[1]


def test_formulas_are_numbered_as_in_the_paper():
    text = (DOCS / "theory.md").read_text(encoding="utf-8")
    numbers = [int(number) for number in re.findall(r"\\tag\{(\d+)\}", text)]
    assert sorted(numbers) == list(range(1, 33))


def formulas():
    for path in PAGES[1:]:
        text = re.sub(r"`[^`\n]*`", "", FENCE.sub(keep_math, path.read_text(encoding="utf-8")))
        for display, inline in re.findall(r"\$\$(.+?)\$\$|\$([^$\n]+)\$", text, re.DOTALL):
            yield display or inline


def keep_math(fence):
    return f"$${fence[3]}$$" if fence[2].strip() == "{math}" else ""


def test_formulas_become_mathml(monkeypatch):
    monkeypatch.syspath_prepend(DOCS / "extensions")
    from mathml import TAG, to_mathml

    found = list(formulas())
    assert len(found) > 50
    for tex in found:
        assert to_mathml(TAG.sub("", tex), block=True).startswith("<math")


def test_accented_letters_keep_their_subscripts(monkeypatch):
    monkeypatch.syspath_prepend(DOCS / "extensions")
    from mathml import to_mathml

    text = to_mathml(r"\tilde{\mathbf{\Phi}}_p", block=True)
    assert re.sub(r"\s", "", text).count("<msub><moveraccent") == 1
    assert "munderover" not in text


@pytest.mark.parametrize("path", pages.KEPT, ids=lambda path: path.name)
def test_stored_tables_follow_from_the_rows(path):
    text = path.read_text(encoding="utf-8")
    assert pages.anew(text, pages.KEPT[path]) == text


def paper_rows(profile="full"):
    """Return two classes, one split; ours leads on A and trails on B, an ablation leads on both."""
    values = {
        "A": {"PCSDACV": 0.9, "SVC": 0.8, "PCSDA-K": 0.7, "PCSDA-K, ridge 0.01": 0.99},
        "B": {"PCSDACV": 0.5, "SVC": 0.6, "PCSDA-K": 0.4, "PCSDA-K, ridge 0.01": 0.99},
    }
    common = {"split": 0, "seconds": 1.0, "n_settings": 1, "warnings": [], "profile": profile}
    return [
        common
        | {"dataset": name, "class": label, "method": method, "kind": kind, "value": value}
        | {"versions": {"pcsda": "0"}}
        for name, methods in values.items()
        for method, value in methods.items()
        for label in "ab"
        for kind in ("ranking", "classification")
    ]


def speed_rows(**more):
    """Return two sizes of a job, with the limit at both and a peer at the first."""
    common = {"noisy": False, "cpu": "abacus", "cores": 2, "threads": 1, "python": "3", "blas": []}
    common |= {"versions": {"pcsda": "0"}, "bounds": [], "ratio": 1.0, "ratio_spread": [1.0, 1.0]}
    common |= {"quick": False, "job": "fit"} | more
    times = [
        (10, "limit", "limit", 0.001),
        (10, "PCSDA", "pcsda", 0.002),
        (10, "LDA", "peer", 0.006),
        (20, "limit", "limit", 0.01),
        (20, "PCSDA", "pcsda", 0.02),
    ]
    return [
        common | {"case": {"N": size}, "contestant": name, "role": role, "seconds": seconds}
        for size, name, role, seconds in times
    ]


def keep(monkeypatch, folder, **rows):
    """Replace the stored rows."""
    for name, found in rows.items():
        path = folder / f"{name}.jsonl.gz"
        path.write_bytes(gzip.compress("".join(json.dumps(r) + "\n" for r in found).encode()))
        monkeypatch.setitem(pages.ROWS, name, path)


@pytest.mark.parametrize(
    ("seconds", "words"), [(1.0, "as fast"), (1.04, "as fast"), (1.2, "1.2 x slower")]
)
def test_nearly_equal_times_are_called_equal(monkeypatch, seconds, words):
    monkeypatch.setattr(pages, "SHOWN", {"fit": ("fit", "PCSDA", "LDA")})
    times = {"limit": 0.5, "PCSDA": seconds, "LDA": 1.0}
    rows = [row | {"seconds": times[row["contestant"]]} for row in speed_rows()]
    _, table = pages.speed_table(rows)
    assert table.lines[0][-1] == words


def test_the_tables_of_the_readme_come_from_the_rows(monkeypatch, tmp_path):
    keep(monkeypatch, tmp_path, paper=paper_rows())
    shown = {"fit": ("fit {N} rows", "PCSDA", "LDA"), "lost": ("", "PCSDA", "limit")}
    slower = speed_rows(job="lost")
    keep(monkeypatch, tmp_path, speed=speed_rows() + slower + speed_rows(job="other"))
    monkeypatch.setattr(pages, "SHOWN", shown | {"other": ("other", "PCSDA", "LDA")})
    monkeypatch.setattr(pages, "UNTIL", {"other": "fit"})
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    made = pages.anew(text, ("quality", "speed"))
    assert "| set | SVC | logistic regression | LDA | QDA | cosine | PCSDACV |" in made
    for measure in ("mAP", "F1"):
        assert f"| A, {measure} | 0.800 | - | - | - | - | **0.900** |" in made
        assert f"| B, {measure} | **0.600** | - | - | - | - | 0.500 |" in made
        assert f"| mean rank, {measure} | **1.50** | - | - | - | - | **1.50** |" in made
    assert "No rows are kept of logistic regression, LDA, QDA, cosine." in made
    assert "| fit 10 rows | `PCSDA` 2 ms | `LDA` 6 ms | 3 x faster |" in made
    assert "|  | `PCSDA` 2 ms | `limit` 1 ms | 2 x slower |" in made
    assert made.count("`PCSDA` 2 ms") == 2
    assert "abacus, 1 thread; pcsda 0." in made
    assert "Not run yet" not in made
    assert pages.anew(made, ("quality", "speed")) == made
    with pytest.raises(ValueError, match="the marks of the table 'reproduction' once"):
        pages.anew(text, ("reproduction",))


def test_the_best_value_of_a_row_is_bold_whatever_the_method():
    values = {"SVC": 0.91234, "LDA": 0.9119, "PCSDACV": 0.91161}
    cells = pages._best_bold(values, 3, best=max)
    assert cells == ["**0.912**", "-", "**0.912**", "-", "-", "**0.912**"]
    assert pages._best_bold(values, 4, best=max)[0::5] == ["**0.9123**", "0.9116"]
    assert pages._best_bold({"QDA": 1.2, "PCSDACV": 2.0}, 2, best=min)[3::2] == ["**1.20**", "2.00"]


def test_the_readmes_rivals_are_other_peoples_methods():
    for sources in pages.RIVALS.values():
        for kind in pages.MEASURES:
            method = METHODS[sources[kind]]
            assert kind in method.kinds
            assert method.group in ("paper", "today")
            assert "PCSDA" not in method.name


def test_an_incomplete_rival_has_no_value_and_no_rank():
    rows = paper_rows()
    rows = [
        row for row in rows if (row["dataset"], row["method"], row["class"]) != ("B", "SVC", "b")
    ]
    table = pages.quality_table(rows)[0]
    found = {line[0]: line[1:] for line in table.lines}
    assert found["A, F1"][0] == "0.800"
    assert found["B, F1"] == ["-"] * 5 + ["**0.500**"]
    assert found["mean rank, F1"] == ["-"] * 5 + ["**1.00**"]


def test_pages_without_rows_say_that_nothing_was_run(monkeypatch, tmp_path):
    for name in ("paper", "speed"):
        monkeypatch.setitem(pages.ROWS, name, tmp_path / "absent.gz")
    speeds = (pages.speed, "speed"), (pages.speed_page, "speed")
    for make, name in ((pages.reproduction, "paper"), *speeds):
        assert make(pages.load(name)) == pages.NOT_RUN[name] + "\n"
        assert not re.search(r"\d", pages.NOT_RUN[name])


def test_a_quick_run_is_not_reported_as_a_study(monkeypatch, tmp_path):
    keep(monkeypatch, tmp_path, paper=paper_rows("quick"), speed=speed_rows(quick=True))
    assert pages.load("paper") == pages.load("speed") == []


def test_generated_pages_bring_no_second_title():
    speeds = pages.speed(speed_rows()), pages.speed_page(speed_rows())
    for text in (*speeds, pages.reproduction(paper_rows())):
        assert "|" in text
        assert not re.search(r"^# ", text, re.M)


@pytest.mark.more  # like the pages, in `make docs`
def test_docstring_examples_run_and_match(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    finder, runner = doctest.DocTestFinder(recurse=True), doctest.DocTestRunner()
    for name in documented_names():
        for test in finder.find(pydoc.locate(name), name, globs={}):
            runner.run(test)
    assert runner.tries > 5
    assert runner.failures == 0
