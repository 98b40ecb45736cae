"""The paper's tables: read from CSV files, and checked against the source of the paper.

``python -m benchmarks.paper.published`` compares every entry; ``--write`` writes the files again.
The source is expected in the folder that PCSDA_PAPER names, or else in ``../shared/paper``.
"""

from __future__ import annotations

import argparse
import csv
import io
import os
import re
import sys
from pathlib import Path

from .rows import write

FOLDER = Path(__file__).parent / "published"
ROOT = Path(__file__).parents[2]
LABELS = {
    "datasets": "tbl:DataInfo",
    "ranking": "tbl:Ranking",
    "classification": "tbl:Classification",
}
HEADINGS = {
    "datasets": ["dataset", "dimension", "samples", "classes"],
    "ranking": ["dataset", "method", "mean", "deviation"],
    "classification": ["dataset", "method", "mean", "deviation"],
}
Line = tuple[str, ...]


def find_source() -> Path | None:
    """Find the LaTeX source of the paper, if it is available."""
    folder = Path(os.environ.get("PCSDA_PAPER", ROOT.parent / "shared" / "paper"))
    return next(iter(sorted(folder.glob("*.tex"))), None) if folder.is_dir() else None


def parse(source: str) -> dict[str, list[Line]]:
    """Parse all entries of the paper's three tables, as text."""
    return {name: _parse_table(name, _table(source, label)) for name, label in LABELS.items()}


def _table(source: str, label: str) -> list[list[str]]:
    """Return the cells of the table with this label."""
    body = source.split(f"\\label{{{label}}}", 1)[1].split("\\end{tabular}", 1)[0]
    body = re.sub(r"\\(cline|multicolumn)(\{[^{}]*\})+", "", body)
    body = re.sub(r"\\(hline|cite\{[^}]*\})|\\begin\{tabular\}\{[^}]*\}|[$]", "", body)
    lines = [line for line in body.split("\\\\") if "&" in line]
    return [[cell.replace("\\#", "").strip() for cell in line.split("&")] for line in lines]


def _parse_table(name: str, cells: list[list[str]]) -> list[Line]:
    head, *rows = cells
    if name == "datasets":
        return [tuple(row) for row in rows]
    lines = []
    for dataset, *entries in rows:
        for method, entry in zip(head[1:], entries, strict=True):
            found = re.fullmatch(r"(\d\.\d+) \((\d\.\d+)\)", entry)
            if found is None:
                raise ValueError(f"{dataset}, {method}: {entry!r} is not 'mean (deviation)'")
            lines.append((dataset, method, *found.groups()))
    return lines


def read(name: str) -> list[Line]:
    """Read the entries of one of the CSV files, as text."""
    with open(FOLDER / f"{name}.csv", encoding="utf-8", newline="") as file:
        head, *lines = csv.reader(file)
    if head != HEADINGS[name]:
        raise ValueError(f"{name}.csv has columns {head}, expected {HEADINGS[name]}")
    return [tuple(line) for line in lines]


def values(kind: str) -> dict[tuple[str, str], tuple[float, float]]:
    """Return the published mean and standard deviation by data set and method."""
    return {(d, m): (float(mean), float(sd)) for d, m, mean, sd in read(kind)}


def to_csv(name: str, lines: list[Line]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([HEADINGS[name], *lines])
    return text.getvalue()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.paper.published")
    parser.add_argument("--write", action="store_true", help="make the CSV files from the source")
    args = parser.parse_args(arguments)
    source = find_source()
    if source is None:
        print("the source of the paper is not here; name its folder in PCSDA_PAPER")
        return 1
    tables = parse(source.read_text(encoding="utf-8"))
    if args.write:
        for name, lines in tables.items():
            write(FOLDER / f"{name}.csv", to_csv(name, lines))
    wrong = [name for name, lines in tables.items() if read(name) != lines]
    numbers = sum(re.match(r"[\d.]+$", text) is not None for lines in tables.values()
                  for line in lines for text in line)  # fmt: skip
    print(f"differ: {', '.join(wrong)}" if wrong else f"all {numbers} numbers agree")
    return len(wrong) > 0


if __name__ == "__main__":
    sys.exit(main())
