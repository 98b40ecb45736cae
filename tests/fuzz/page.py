"""The page "How we tried to break it", from the rows of a run.

python -m fuzz.page         in the folder tests: write the table of docs/tried.md anew
"""

import gzip
import json
import sys
from pathlib import Path

ROWS = Path(__file__).parent / "rows.jsonl.gz"
PAGE = Path(__file__).parents[2] / "docs" / "tried.md"
BEGIN, END = "<!-- counts: begin -->\n", "<!-- counts: end -->\n"
OUTCOMES = ("agrees", "refuses", "breach")


def read():
    with gzip.open(ROWS, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def counts(rows):
    """Count attacks of each kind by outcome, with the minutes they took."""
    found = {}
    for row in rows:
        kind = found.setdefault(row["attack"], dict.fromkeys((*OUTCOMES, "minutes"), 0))
        kind[row["outcome"]] += 1
        kind["minutes"] += row["seconds"] / 60
    return found


def to_text(found):
    width = max(map(len, found), default=0)
    lines = [
        f"{name:{width}}  " + ", ".join(f"{kind[each]} {each}" for each in OUTCOMES)
        for name, kind in found.items()
    ]
    return "\n".join(lines)


def table(rows):
    """Return the counts as a Markdown table."""
    lines = ["| attack | tried | right answer | refused with the reason | broken | minutes |"]
    lines.append("|---|---|---|---|---|---|")
    for name, kind in counts(rows).items():
        tried = sum(kind[each] for each in OUTCOMES)
        cells = [tried, *(kind[each] for each in OUTCOMES), f"{kind['minutes']:.0f}"]
        lines.append(f"| {name} | " + " | ".join(map(str, cells)) + " |")
    total = sum(row["seconds"] for row in rows) / 60
    lines.append(f"\n{len(rows)} attacks, {total:.0f} minutes of work.")
    return "\n".join(lines) + "\n"


def with_table(page, rows):
    """Return the page with a new table."""
    before, rest = page.split(BEGIN)
    return before + BEGIN + table(rows) + END + rest.split(END)[1]


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), read()), encoding="utf-8")
    sys.exit(0)
