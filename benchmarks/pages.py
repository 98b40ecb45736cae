"""Tables of quality and speed for the documentation and the README, from stored rows only.

    python -m benchmarks.pages      rewrite the tables of the README, reproduction.md and speed.md

The rows are in `benchmarks/paper/rows.jsonl.gz` (the paper's study), `defaults.jsonl.gz` beside it
(the choice of defaults), `benchmarks/speed/rows.jsonl.gz` and `benchmarks/cheaper.jsonl.gz`. If a
file is absent, the page says that nothing was run yet.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path

from . import cheaper
from .markdown import details
from .paper import defaults as chosen
from .paper import tables as paper_tables
from .paper.datasets import EXTRA
from .paper.rows import Row, read
from .paper.summary import OURS, Cells, cells, mean_ranks, summarise
from .paper.tables import Block, Table
from .speed import folded
from .speed import tables as speed_tables
from .speed.measure import OTHERS

HERE = Path(__file__).parent
ROWS = {
    "paper": HERE / "paper" / "rows.jsonl.gz",
    "defaults": HERE / "paper" / "defaults.jsonl.gz",
    "speed": HERE / "speed" / "rows.jsonl.gz",
    "cheaper": cheaper.STORED,
}
# Tables embedded in a text, between marks with their names.
KEPT = {
    HERE.parent / "README.md": ("quality", "speed"),
    HERE.parent / "docs" / "reproduction.md": ("quality", "reproduction"),
    HERE.parent / "docs" / "speed.md": ("cheaper",),
}
# Jobs of the speed suite that the README shows, each at its first size: a description, our call,
# and the peer that users would choose instead.
SHOWN = {
    "default-fit": ("fit, {N} rows of {D} features", "PCSDA()", "LogisticRegression"),
    "few-positives": ("fit on 10 positives among {N} rows", "PCSDA()", "LogisticRegression"),
    "default-kernel": ("fit with a kernel, {N} rows", "KernelPCSDA()", "SVC"),
    "default-search": (
        "choose settings, {N} rows",
        "PCSDACV(KernelPCSDA())",
        "GridSearchCV(SVC), 12 settings",
    ),
    "requests": ("score one row with `model.fast_scorer()`", "fast_scorer", "LDA(lsqr)"),
    "linear-fit": ("fit {N} x {D}, subclasses given", "PCSDA()", "LDA(lsqr)"),
    "kernel-fit": ("fit with a kernel, {N} rows, subclasses given", "KernelPCSDA()", "SVC"),
    "selection": (
        "choose among 255 settings, {N} rows",
        "PCSDACV, all settings",
        "GridSearchCV(SVC), 12 settings",
    ),
}
# Tables with more lines than this are folded on pages.
LONG = 8
# Times that differ by no more than this share count as equal.
ALIKE = 0.05
# Jobs that are shown only if another job has no rows.
UNTIL = {"linear-fit": "default-fit", "kernel-fit": "default-kernel", "selection": "default-search"}
# Other methods in the table of the README, with their names in the rows of each kind.
RIVALS = {
    "SVC": {"ranking": "SVC", "classification": "SVC"},
    "logistic regression": {"ranking": "Nystroem+LR", "classification": "Nystroem+LR"},
    "LDA": {"ranking": "LDA", "classification": "LDA+NCC"},
    "QDA": {"ranking": "QDA", "classification": "QDA"},
    "cosine": {"ranking": "cosine", "classification": "cosine"},
}
MEASURES = {"ranking": "mAP", "classification": "F1"}
NOT_RUN = {
    "paper": "**Not run yet.** There are no rows of the whole study in this version, so there are "
    "no numbers here. `python -m benchmarks.paper` makes them.",
    "defaults": "**Not run yet.** There are no rows of the study in this version. "
    "`python -m benchmarks.paper.defaults` makes them.",
    "speed": "**Not run yet.** There are no rows of a quiet run in this version, so there are no "
    "numbers here. `make bench` makes them.",
}


def load(name: str) -> list[Row]:
    """Read the stored rows of a study, if there are any, without those of quick runs."""
    found = read(ROWS[name])
    return [row for row in found if row.get("profile") != "quick" and not row.get("quick")]


def reproduction(rows: list[Row]) -> str:
    """Return the tables of the paper's experiments, for a page that has its title already."""
    if not rows:
        return NOT_RUN["paper"] + "\n"
    return paper_tables.to_markdown(list(fold_long(paper_tables.page(rows)[1:])))


def defaults(rows: list[Row]) -> str:
    """Return the tables of the study behind the defaults."""
    if not rows:
        return NOT_RUN["defaults"] + "\n"
    return paper_tables.to_markdown(list(fold_long(chosen.page(rows))))


def fold_long(blocks: list[Block]) -> Iterator[Block]:
    """Yield the blocks, with tables of more than LONG lines folded under their heading."""
    title = "Table"
    for block in blocks:
        if isinstance(block, str):
            title = block.lstrip("# ") if block.startswith("#") else title
        elif len(block.lines) > LONG:
            block = details(
                f"{title}, {len(block.lines)} lines", paper_tables.to_markdown([block]).rstrip()
            )
        yield block


def speed(rows: list[Row]) -> str:
    """Return the tables of the speed suite, for a page that has its title already."""
    if not rows:
        return NOT_RUN["speed"] + "\n"
    return speed_tables.markdown(rows).partition("\n\n")[2]


def speed_page(rows: list[Row]) -> str:
    """Return the same tables, with the calls that users make first and the rest folded."""
    return folded.page(rows) if rows else NOT_RUN["speed"] + "\n"


def quality_table(rows: list[Row]) -> list[Block]:
    """Compare our method with others on the paper's sets, in ranking and classification."""
    extra = {source.name for source in EXTRA}
    rows = [row for row in rows if row["dataset"] not in extra]
    if not rows:
        return [NOT_RUN["paper"]]
    lines = []
    for kind, measure in MEASURES.items():
        sets = {name: _compared(methods, kind) for name, methods in cells(rows, kind).items()}
        for name, methods in sets.items():
            means = {m: s.mean for m, s in summarise(methods).items() if s.n_missing == 0}
            lines.append([f"{name}, {measure}", *_best_bold(means, 3, best=max)])
        ranks = mean_ranks({name: summarise(methods) for name, methods in sets.items()})
        lines.append([f"mean rank, {measure}", *_best_bold(ranks, 2, best=min)])
    table = Table(["set", *RIVALS, OURS], lines)
    absent = [name for at, name in enumerate(RIVALS, 1) if all(line[at] == "-" for line in lines)]
    return [table, f"No rows are kept of {', '.join(absent)}."] if absent else [table]


def _compared(methods: dict[str, Cells], kind: str) -> dict[str, Cells]:
    """Return the other methods and ours, under the names of the table."""
    sources = {name: source[kind] for name, source in RIVALS.items()} | {OURS: OURS}
    return {name: methods[source] for name, source in sources.items() if source in methods}


def _best_bold(values: dict[str, float], digits: int, best: Callable[..., float]) -> list[str]:
    """Return a cell for each column; the best, and any that looks equal to it, is bold."""
    shown = {name: round(value, digits) for name, value in values.items()}
    texts = {
        name: f"**{value:.{digits}f}**" if value == best(shown.values()) else f"{value:.{digits}f}"
        for name, value in shown.items()
    }
    return [texts.get(name, "-") for name in (*RIVALS, OURS)]


def speed_table(rows: list[Row]) -> list[Block]:
    """Compare our call with the one that users would choose, for each entry of SHOWN."""
    timed = [row for row in rows if "seconds" in row and row["job"] in SHOWN]
    if not timed:
        return [NOT_RUN["speed"]]
    lines, shown, there = [], [], {row["job"] for row in timed}
    timed = [row for row in timed if UNTIL.get(row["job"]) not in there]
    for job, of_job in groupby(timed, key=lambda row: row["job"]):
        case = {row["contestant"]: row for row in next(groupby(of_job, lambda row: row["case"]))[1]}
        words, ours, peer = SHOWN[job]
        if ours in case and peer in case:
            lines.append(_speed_line(words, case[ours], case[peer]))
            shown += [case[ours], case[peer]]
    head = ["job", "pcsda", "what you would use", "pcsda is"]
    return [_machine(shown), Table(head, lines)]


def _machine(rows: list[Row]) -> str:
    """Say briefly where and with what the shown times were measured."""
    notes: dict[str, str] = {}
    for row in rows:
        threads = f"{row['threads']} thread{'' if row['threads'] == 1 else 's'}"
        known = [name for name in ("pcsda", "sklearn") if name in row["versions"]]
        versions = ", ".join(f"{name} {row['versions'][name]}" for name in known)
        note, remark = f"{row['cpu']}, {threads}; {versions}.", ""
        if row.get("clock") == "processor":
            remark = " Processor time, because other programs kept the machine busy."
        elif row["noisy"] and row.get("others", 1.0) > OTHERS:
            remark = " Other programs used the machine too, so compare ratios, not times."
        elif row["noisy"]:
            remark = " Some times varied by more than 20 %, so compare ratios, not times."
        note = note.replace("sklearn", "scikit-learn")
        notes[note] = notes.get(note) or remark
    return " ".join(note + remark for note, remark in notes.items())


def _speed_line(words: str, own: Row, peer: Row) -> list[str]:
    times = [f"{speed_tables.number(1e3 * row['seconds'])} ms" for row in (own, peer)]
    ratio = peer["seconds"] / own["seconds"]
    faster = f"{ratio:.2g} x faster" if ratio >= 1 else f"{1 / ratio:.2g} x slower"
    if abs(ratio - 1) <= ALIKE:
        faster = "as fast"
    return [
        words.format(**own["case"]),
        f"`{own['contestant']}` {times[0]}",
        f"`{peer['contestant']}` {times[1]}",
        faster,
    ]


def anew(text: str, names: tuple[str, ...]) -> str:
    """Return the text with the named tables rewritten between their marks."""
    for name in names:
        pattern = re.compile(rf"(<!-- {name}: from rows -->\n).*?(<!-- end -->)", re.DOTALL)
        if len(pattern.findall(text)) != 1:
            raise ValueError(f"the text must have the marks of the table {name!r} once")
        inside = f"\n{_made(name)}\n"
        text = pattern.sub(lambda found, inside=inside: found[1] + inside + found[2], text)
    return text


def _made(name: str) -> str:
    if name == "reproduction":
        return reproduction(load("paper"))
    if name == "cheaper":
        return cheaper.page(load("cheaper")) + "\n"
    table = quality_table(load("paper")) if name == "quality" else speed_table(load("speed"))
    return paper_tables.to_markdown(table)


def main() -> int:
    for path, names in KEPT.items():
        path.write_text(anew(path.read_text(encoding="utf-8"), names), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
