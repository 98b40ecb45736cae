"""The speed page of the documentation: the calls that users make, then all tables folded."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from ..markdown import details, table
from . import tables
from .growth import growths
from .rows import Row

# The calls that users make; `headline.py` has their jobs.
FIRST = (
    *("default-fit", "few-positives", "default-kernel", "default-search"),
    *("array-in-blocks", "command-line"),
)
# Number of other contestants in each line of the short table.
FEW = 2
GLANCE = """\
Milliseconds, best round, for the given rows x features. For each other method: its time, and how
many times as long ours takes. `~` marks noise.
"""


def page(rows: list[Row]) -> str:
    """Write a short table of the calls that users make, and the full tables, folded."""
    first = [row for row in rows if row["job"] in FIRST and "seconds" in row]
    parts = [tables.headings(first), GLANCE.rstrip(), glance(first)] if first else []
    single = [row for row in rows if "grows" not in row or row["bounds"]]
    timed, sized = ([row for row in single if unit in row] for unit in ("seconds", "bytes"))
    parts += fold("All times, with their bounds", tables.LEGEND, timed, "seconds")
    parts += fold("All peaks of memory", "", sized, "bytes")
    if found := growths(rows):
        grown = [row for row in rows if "grows" in row]
        text = tables.headings(grown), tables.GROWTH_LEGEND.rstrip(), tables.growth_table(found)
        parts.append(details("Growth with the size of the data", *text))
    slow = [r for r in tables.ends_of_growth(rows) if "where" in r and r["ratio"] > tables.SLOW]
    if slow:
        text = tables.WHERE_LEGEND.rstrip(), tables.where_table(slow)
        parts.append(details("Where the time goes", *text))
    return "\n\n".join(parts) + "\n"


def glance(rows: list[Row]) -> str:
    """Write a line for each of our calls, with up to FEW others; two columns fit on a phone."""
    lines = []
    for _, contestants in groupby(rows, key=lambda row: (row["job"], row["case"])):
        of_case = list(contestants)
        others = [row for row in of_case if row["role"] != "pcsda"] or of_case[:1]
        for row in of_case:
            if row["role"] == "pcsda" and row not in others:
                times = [f"**{tables.cells(row, 'seconds')['ms']}**", *beside(row, others[:FEW])]
                lines.append((call(row), "<br>".join(times)))
    return table(["call", "ms, and those of others"], lines)


def call(row: Row) -> str:
    """Name a contestant of ours and the size of its data."""
    size = " x ".join(f"{row['case'][name]:g}" for name in ("N", "D") if name in row["case"])
    noise = " ~" if row["noisy"] else ""
    return "<br>".join(part for part in (f"`{row['contestant']}`", size) if part) + noise


def beside(own: Row, others: list[Row]) -> Iterator[str]:
    """Describe the times of the others."""
    for row in others:
        time, ratio = tables.cells(row, "seconds")["ms"], own["seconds"] / row["seconds"]
        yield f"{row['contestant']} {time} ({ratio:.2g} x)"


def fold(title: str, legend: str, rows: list[Row], unit: str) -> list[str]:
    """Fold one full table; return nothing if there are no rows."""
    if not rows:
        return []
    return [details(title, tables.headings(rows), legend.rstrip(), tables.table(rows, unit))]
