"""The paper benchmark's tables: pure functions of rows, next to the paper's published values."""

import numpy as np
import pytest
from benchmarks.paper import published, summary, tables


def row(dataset, label, split, method, kind, value, **more):
    return {
        "dataset": dataset,
        "class": label,
        "split": split,
        "method": method,
        "kind": kind,
        "value": value,
        "seconds": 2.0,
        "n_settings": 7,
        "warnings": [],
        "profile": "full",
        "versions": {"pcsda": "0"},
    } | more


def made_rows():
    """Return rows of two sets, classes and splits; RR is better on OptDigits, PCSDACV on YALE."""
    values = {
        ("OptDigits", "RR"): {"a": (0.90, 1.00), "b": (0.80, 0.80)},
        ("OptDigits", "PCSDACV"): {"a": (0.85, 0.95), "b": (0.80, 0.78)},
        ("YALE", "RR"): {"a": (0.5, 0.5), "b": (0.6, 0.6)},
        ("YALE", "PCSDACV"): {"a": (0.9, 0.9), "b": (0.7, 0.7)},
    }
    return [
        row(dataset, label, split, method, "ranking", value)
        for (dataset, method), classes in values.items()
        for label, pair in classes.items()
        for split, value in enumerate(pair)
    ]


def test_means_average_problems_after_averaging_splits():
    found = summary.summarise(summary.cells(made_rows(), "ranking")["OptDigits"])
    assert found["RR"].mean == pytest.approx(0.875)
    assert found["RR"].deviation == pytest.approx(np.std([0.95, 0.8], ddof=1))
    assert (found["RR"].n_problems, found["RR"].n_missing) == (2, 0)


def test_an_incomplete_method_says_so_and_has_no_rank():
    part = [r for r in made_rows() if (r["method"], r["class"], r["split"]) != ("RR", "b", 1)]
    found = {d: summary.summarise(m) for d, m in summary.cells(part, "ranking").items()}
    assert found["YALE"]["RR"].n_missing == 1
    assert set(summary.mean_ranks(found)) == {"PCSDACV"}
    assert summary.lag(summary.cells(part, "ranking")["YALE"]) is None
    page = tables.to_markdown(tables.page(part))
    assert "1 missing" in page


def test_ranks_and_paired_differences():
    values = summary.cells(made_rows(), "ranking")
    ranks = summary.mean_ranks({d: summary.summarise(m) for d, m in values.items()})
    assert ranks == {"RR": 1.5, "PCSDACV": 1.5}
    behind = summary.lag(values["OptDigits"])
    assert behind.rival == "RR"
    gaps = np.array([-0.05, -0.01])
    assert behind.difference == pytest.approx(gaps.mean())
    assert behind.error == pytest.approx(gaps.std(ddof=1) / np.sqrt(2))
    assert not behind.holds
    assert summary.lag(values["YALE"]).holds


def test_the_page_sets_results_beside_the_published_values():
    lines = tables.to_markdown(tables.page(made_rows())).splitlines()
    place = next(i for i, line in enumerate(lines) if line.startswith("| OptDigits, here"))
    assert lines[place].startswith("| OptDigits, here | 0.8750 (0.1061) | - |")
    assert lines[place + 1].startswith("| OptDigits, published | 0.9968 (0.0036) |")
    assert lines[place + 2].startswith("| difference | -0.1218 | - |")
    assert "| Jaffe, absent |  |  |  |  |  |  |" in lines
    assert any(line.startswith("| Jaffe | research use by agreement") for line in lines)
    assert "| RR | paper | 0.5500 (0.0707) | **0.8750 (0.1061)** | 1.50 |" in lines
    assert "| OptDigits | RR | 0.8750 | 0.8450 | -0.0300 | 0.0200 | **behind** |" in lines
    assert "| YALE | RR | 0.5500 | 0.8000 | +0.2500 | 0.1500 | ahead |" in lines
    assert any(line.startswith("| RR | 7 | 2.0 |") for line in lines)


def test_ablations_take_part_in_no_rank_and_are_no_rival():
    best = [
        r | {"method": "PCSDA-1, ridge 0.01", "value": 1.0}
        for r in made_rows()
        if r["method"] == "RR"
    ]
    lines = tables.to_markdown(tables.page(made_rows() + best)).splitlines()
    assert "| RR | paper | 0.5500 (0.0707) | **0.8750 (0.1061)** | 1.50 |" in lines
    assert not any(line.startswith("| PCSDA-1, ridge 0.01 | ablation") for line in lines)


def test_open_choices_stand_beside_the_published_value_of_their_method():
    values = {"PCSDA-1": 0.9569, "PCSDA-1, ridge 0.01": 0.9711, "PCSDA-K, ridge 0.01": 0.9678}
    rows = [
        row(name, label, 0, method, "classification", value)
        for name in ("OptDigits", "YALE")
        for label in "ab"
        for method, value in values.items()
        if name == "OptDigits" or method == "PCSDA-1"  # no variant was run on YALE
    ]
    lines = tables.to_markdown(tables.page(rows)).splitlines()
    place = lines.index("### What the paper leaves open")
    assert lines[place + 6 : place + 10] == [
        "| OptDigits | PCSDA-1 | 0.9569 (0.0000) | 0.9569 (0.0141) | +0.00 |",
        "| OptDigits | PCSDA-1, ridge 0.01 | 0.9711 (0.0000) | 0.9569 (0.0141) | **+1.01** |",
        "| OptDigits | PCSDA-K, ridge 0.01 | 0.9678 (0.0000) | 0.9826 (0.0074) | **-2.00** |",
        "",
    ]
    assert lines.count("### What the paper leaves open") == 1  # nothing on ranking
    alone = [r for r in rows if r["method"] == "PCSDA-K, ridge 0.01"]
    assert "| OptDigits | PCSDA-K, ridge 0.01 |" in tables.to_markdown(tables.page(alone))


def test_extra_sets_have_a_table_of_their_own():
    blocks = tables.page([row("ORL", "s1", 0, "RR", "ranking", 0.5)])
    titles = [block for block in blocks if isinstance(block, str)]
    assert "### Sets not in the paper" in titles
    assert "### All methods" not in titles
    assert "Nothing was measured." in tables.page([])


def test_html_is_escaped_and_bold_is_strong():
    table = tables.Table(["<a>"], [["**1 & 2**"], ["x < y"]])
    text = tables.to_html(["## A & B", "plain", table])
    assert "<h2>A &amp; B</h2>" in text
    assert '<th scope="col">&lt;a&gt;</th>' in text
    assert "<td><strong>1 &amp; 2</strong></td>" in text
    assert "<td>x &lt; y</td>" in text


def test_the_csv_files_equal_the_tables_of_the_paper():
    source = published.find_source()
    if source is None:
        pytest.skip("the source of the paper is not here")
    parsed = published.parse(source.read_text(encoding="utf-8"))
    assert {name: published.read(name) for name in published.LABELS} == parsed
    assert [len(lines) for lines in parsed.values()] == [8, 48, 48]


SOURCE = r"""
\caption{Datasets.}\label{tbl:DataInfo}
\resizebox{0.8\linewidth}{!}{
\begin{tabular}{|l|c|c|c|} \cline{1-4}
Dataset & $D$ & $\#$Samples & $\#$Classes \\ \hline
Jaffe \cite{Lyons1998coding} & 1200 & 210 & 7 \\ \hline
\end{tabular}}
\caption{Ranking.}\label{tbl:Ranking}
\begin{tabular}{|l|c|c||c|} \cline{2-3}
\multicolumn{1}{c|}{ } & RR & PCA \\ \hline
 Jaffe & 0.9024 (0.0935) & 0.3010 (0.1383) \\ \hline
\end{tabular}
\caption{Classification.}\label{tbl:Classification}
\begin{tabular}{|l|c|c||c|} \cline{2-3}
\multicolumn{1}{c|}{ } & RR & PCA+SVM \\ \hline
 15 scenes & 0.1 (0.2) & %s \\ \hline
\end{tabular}
"""


def test_tables_are_parsed_from_latex():
    assert published.parse(SOURCE % "0.3 (0.4)") == {
        "datasets": [("Jaffe", "1200", "210", "7")],
        "ranking": [("Jaffe", "RR", "0.9024", "0.0935"), ("Jaffe", "PCA", "0.3010", "0.1383")],
        "classification": [
            ("15 scenes", "RR", "0.1", "0.2"),
            ("15 scenes", "PCA+SVM", "0.3", "0.4"),
        ],
    }
    with pytest.raises(ValueError, match=r"15 scenes, PCA\+SVM: '0.3' is not 'mean \(deviation\)'"):
        published.parse(SOURCE % "0.3")


def test_the_check_finds_a_wrong_entry(tmp_path, monkeypatch, capsys):
    (tmp_path / "paper.tex").write_text(SOURCE % "0.3 (0.4)")
    monkeypatch.setenv("PCSDA_PAPER", str(tmp_path))
    monkeypatch.setattr(published, "FOLDER", tmp_path)
    assert published.main(["--write"]) == 0
    assert "all 11 numbers agree" in capsys.readouterr().out
    path = tmp_path / "ranking.csv"
    path.write_text(path.read_text().replace("0.9024", "0.9025"))
    assert published.main([]) == 1
    assert "differ: ranking" in capsys.readouterr().out
    monkeypatch.setenv("PCSDA_PAPER", str(tmp_path / "nowhere"))
    assert published.main([]) == 1
    assert "name its folder in PCSDA_PAPER" in capsys.readouterr().out


def test_a_method_that_ran_on_few_problems_is_not_the_best_of_a_set():
    few = [r | {"method": "CSRDA", "value": 1.0} for r in made_rows() if r["method"] == "RR"][:1]
    lines = tables.to_markdown(tables.page(made_rows() + few)).splitlines()
    line = next(line for line in lines if line.startswith("| CSRDA | related |"))
    assert "1.0000" in line
    assert "missing" in line
    assert "**" not in line
    assert "| RR | paper | 0.5500 (0.0707) | **0.8750 (0.1061)** | 1.50 |" in lines


def test_estimators_of_ours_are_no_rivals_of_ours():
    best = [r | {"method": "KernelPCSDA", "value": 1.0} for r in made_rows() if r["method"] == "RR"]
    lines = tables.to_markdown(tables.page(made_rows() + best)).splitlines()
    assert "| YALE | RR | 0.5500 | 0.8000 | +0.2500 | 0.1500 | ahead |" in lines
    assert any(line.startswith("| KernelPCSDA | ours |") for line in lines)
