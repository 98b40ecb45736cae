"""Tables of our rows next to the published values, as Markdown and as HTML.

They use only the rows, the published values and the names of sets and methods.
"""

from __future__ import annotations

import html
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from ..markdown import table
from . import published
from .datasets import EXTRA, PAPER, SOURCES
from .methods import KINDS, METHODS
from .rows import Row
from .summary import OURS, Summary, cells, lag, mean_ranks, summarise

TITLES = {
    "ranking": "Ranking: mean average precision",
    "classification": "Classification: F1",
}
NOTE = (
    "Mean and, in parentheses, standard deviation over the class-specific problems of a set, each "
    "the mean of its splits. The best mean of a set is bold, among methods that were run on all "
    "of it."
)


@dataclass(frozen=True)
class Table:
    head: list[str]
    lines: list[list[str]]


Block = str | Table  # text that begins with "#" is a heading


def page(rows: list[Row]) -> list[Block]:
    """Return all blocks of the page, from rows of one profile."""
    if not rows:
        return ["# The paper's tables", "Nothing was measured."]
    blocks: list[Block] = ["# The paper's tables", heading(rows)]
    seen = {row["dataset"] for row in rows}
    paper = [source.name for source in PAPER if source.name in seen]
    extra = [source.name for source in EXTRA if source.name in seen]
    for kind in KINDS:
        found = {name: summarise(methods) for name, methods in cells(rows, kind).items()}
        blocks += [f"## {TITLES[kind]}", NOTE]
        blocks += ["### Compared with the published values", beside(found, kind)]
        blocks += open_choices(found, kind)
        if paper:
            blocks += ["### All methods", all_methods(found, paper), *against(rows, kind, paper)]
        if extra:
            blocks += ["### Sets not in the paper", all_methods(found, extra)]
            blocks += against(rows, kind, extra)
    blocks += ["## Absent sets", *absent(seen), "## The methods", about(rows)]
    return blocks


def heading(rows: list[Row]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in rows[0]["versions"].items())
    several = len({str(row["versions"]) for row in rows}) > 1
    problems = {(row["dataset"], row["class"], row["split"]) for row in rows}
    text = f"{len(rows)} rows from {len(problems)} problems with a split; {versions}"
    text += " and other versions." if several else "."
    if any(row["profile"] == "quick" for row in rows):
        text += (
            " A quick look: one split, three folds, few settings and landmarks; the numbers are"
            " not comparable."
        )
    return text


def _best(found: Iterable[Summary]) -> list[Summary]:
    """Return the methods with the best mean, among those with the fewest missing problems."""
    found = list(found)
    least = min(one.n_missing for one in found)
    whole = [one for one in found if one.n_missing == least]
    return [one for one in whole if one.mean == max(other.mean for other in whole)]


def entry(one: Summary | tuple[float, float] | None, best: bool = False) -> str:
    """Write mean and deviation as the paper does."""
    if one is None:
        return "-"
    mean, deviation = (one.mean, one.deviation) if isinstance(one, Summary) else one
    text = f"{mean:.4f}" + ("" if math.isnan(deviation) else f" ({deviation:.4f})")
    if isinstance(one, Summary) and one.n_missing:
        text += f", {one.n_missing} missing"
    return f"**{text}**" if best else text


def beside(found: dict[str, dict[str, Summary]], kind: str) -> Table:
    """Compare the paper's methods: here, published, and the difference in mean."""
    known = published.values(kind)
    methods = list(dict.fromkeys(method for _, method in known))
    places = [(source.name, source.published) for source in PAPER]
    if "digits" in found:
        places.append(("digits", SOURCES["digits"].published))
    lines = []
    for name, row in places:
        here = found.get(name, {})
        theirs = [known[row, method] for method in methods] if row else []
        own = [here.get(method) for method in methods]
        gaps = [
            f"{one.mean - mean:+.4f}" if one else "-"
            for one, (mean, _) in zip(own, theirs, strict=True)
        ]
        lines.append([f"{name}, here", *map(entry, own)] if here else [f"{name}, absent"])
        lines.append([f"{row}, published", *map(entry, theirs)])
        if here:
            lines.append(["difference", *gaps])
    width = len(methods) + 1
    return Table(["", *methods], [line + [""] * (width - len(line)) for line in lines])


def open_choices(found: dict[str, dict[str, Summary]], kind: str) -> list[Block]:
    """List PCSDA as published and with other readings of the paper, if they were run."""
    known = published.values(kind)
    variants = [m.name for m in METHODS.values() if m.group == "ablation"]
    bases = dict.fromkeys(map(_base, variants))
    lines = []
    for source in PAPER:
        here = found.get(source.name, {})
        if not any(name in here for name in variants):
            continue
        for base in bases:
            mean, deviation = known[source.published, base]
            for name in [base, *(variant for variant in variants if _base(variant) == base)]:
                if name in here:
                    away = (here[name].mean - mean) / deviation
                    cell = f"{away:+.2f}" if abs(away) <= 1 else f"**{away:+.2f}**"
                    theirs = entry((mean, deviation))
                    lines.append([source.name, name, entry(here[name]), theirs, cell])
    if not lines:
        return []
    text = (
        "PCSDA as published, and with other readings of what the paper leaves open, each of which "
        "changes one choice. Means more than one published standard deviation away are bold. If "
        "pairs of class and split are missing, not all splits were run."
    )
    head = ["set", "method", "here", "published", "difference in published deviations"]
    return ["### What the paper leaves open", text, Table(head, lines)]


def _base(variant: str) -> str:
    return variant.partition(", ")[0]


def all_methods(found: dict[str, dict[str, Summary]], sets: list[str]) -> Table:
    """List every method on every set, and its mean rank over them.

    Variants of one method are in another table: they would lower the ranks of the others.
    """
    shown = {
        name: {m: one for m, one in found[name].items() if METHODS[m].group != "ablation"}
        for name in sets
        if name in found
    }
    shown = {name: of_set for name, of_set in shown.items() if of_set}
    methods = [m for m in METHODS.values() if any(m.name in of_set for of_set in shown.values())]
    ranks = mean_ranks(shown)
    best = {name: _best(of_set.values()) for name, of_set in shown.items()}
    lines = []
    for method in methods:
        line = [method.name, method.group]
        for name, of_set in shown.items():
            one = of_set.get(method.name)
            line.append(entry(one, best=one in best[name]))
        rank = ranks.get(method.name)
        lines.append([*line, "-" if rank is None else f"{rank:.2f}"])
    return Table(["method", "group", *shown, "mean rank"], lines)


def against(rows: list[Row], kind: str, sets: list[str]) -> list[Block]:
    """Compare our method with the best method of others on each set.

    Variants of published methods, and our other estimators, are left out.
    """
    lines = []
    values = cells(rows, kind)
    for name in sets:
        known = values.get(name, {})
        methods = {m: known[m] for m in known if _is_rival(m) or m == OURS}
        found = lag(methods) if methods else None
        if found:
            error = "-" if math.isnan(found.error) else f"{found.error:.4f}"
            verdict = "ahead" if found.difference > 0 else "within" if found.holds else "**behind**"
            means = f"{found.rival_mean:.4f}", f"{found.our_mean:.4f}"
            lines.append([name, found.rival, *means, f"{found.difference:+.4f}", error, verdict])
    if not lines:
        return []
    head = [
        "set",
        "best method of others",
        "its mean",
        OURS,
        "difference",
        "paired error",
        "verdict",
    ]
    text = (
        f"{OURS} compared with the best method of others on each set: the mean difference over"
        " class-specific problems and its standard error. Within: behind by no more than that."
    )
    return [text, Table(head, lines)]


def _is_rival(method: str) -> bool:
    return METHODS[method].group not in ("ablation", "ours")


def absent(seen: set[str]) -> list[Block]:
    """List the sets of the paper that have no results."""
    missing = [source for source in PAPER if source.name not in seen]
    if not missing:
        return ["None."]
    lines = [[source.name, source.terms, source.obtain] for source in missing]
    text = "There are no results for these sets of the paper, and nothing replaces them."
    return [text, Table(["set", "terms", "how to obtain it"], lines)]


def about(rows: list[Row]) -> Table:
    """Describe each method, with the number of settings tried and the cost."""
    lines = []
    for method in METHODS.values():
        own = [row for row in rows if row["method"] == method.name]
        if own:
            noted = Counter(name for row in own for name in row["warnings"])
            warned = ", ".join(f"{name} in {count} rows" for name, count in noted.items())
            seconds = sum(row["seconds"] for row in own) / len(own)
            settings = str(max(row["n_settings"] for row in own))
            lines.append([method.name, settings, f"{seconds:.1f}", warned, method.about])
    return Table(["method", "settings", "seconds", "warnings", "description"], lines)


def to_markdown(blocks: list[Block]) -> str:
    return "\n\n".join(map(_markdown, blocks)) + "\n"


def _markdown(block: Block) -> str:
    return block if isinstance(block, str) else table(block.head, block.lines)


def to_html(blocks: list[Block]) -> str:
    """Write one self-contained file, in which tables wider than the window scroll."""
    body = "\n".join(map(_html, blocks))
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>The paper's tables</title>
<style>
body {{ font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 80rem; }}
body {{ padding: 0 1rem; }}
div {{ overflow-x: auto; }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; }}
th, td {{ border-bottom: 1px solid #8884; padding: .3rem .6rem; text-align: left; }}
td {{ vertical-align: top; }}
@media (prefers-color-scheme: dark) {{ body {{ background: #151515; color: #ddd; }} }}
</style></head><body>
{body}
</body></html>
"""


def _html(block: Block) -> str:
    if isinstance(block, str):
        level = len(block) - len(block.lstrip("#"))
        tag = f"h{level}" if level else "p"
        return f"<{tag}>{html.escape(block.lstrip('# '))}</{tag}>"
    head = "".join(f'<th scope="col">{html.escape(cell)}</th>' for cell in block.head)
    lines = "\n".join(
        "<tr>" + "".join(f"<td>{_html_cell(cell)}</td>" for cell in line) + "</tr>"
        for line in block.lines
    )
    return f"<div><table><thead><tr>{head}</tr></thead><tbody>\n{lines}\n</tbody></table></div>"


def _html_cell(cell: str) -> str:
    if cell.startswith("**") and cell.endswith("**"):
        return f"<strong>{html.escape(cell[2:-2])}</strong>"
    return html.escape(cell)
