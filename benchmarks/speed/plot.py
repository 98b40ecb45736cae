"""A picture from the rows alone: the ratios of all jobs, then growth."""

from __future__ import annotations

import io
from itertools import groupby
from pathlib import Path
from typing import Any

from .growth import Growth, growths
from .rows import Row, write

COLOURS = {"pcsda": "#c8102e", "peer": "#7d8597", "limit": "#1d3557"}
ROLES = {"pcsda": "pcsda", "peer": "a peer", "limit": "the limit"}
# Number of growth plots side by side.
ACROSS = 3
LINE_INCHES = 0.17
GROWTH_INCHES = 3.0


def draw(rows: list[Row], path: Path) -> None:
    """Write the picture as SVG; the same rows give the same file."""
    import matplotlib

    with matplotlib.rc_context({"svg.hashsalt": "pcsda", "svg.fonttype": "none"}):
        text = io.StringIO()
        figure(rows).savefig(text, format="svg", metadata={"Date": None})
    write(path, text.getvalue())


def figure(rows: list[Row]) -> Any:
    """Draw the picture."""
    from matplotlib.figure import Figure

    columns = halves([row for row in rows if "grows" not in row])
    grown = [list(part) for _, part in groupby(growths(rows), key=lambda one: one.job)]
    longest, down = max(map(len, columns)), -(-len(grown) // ACROSS)
    heights = [LINE_INCHES * longest + 1, GROWTH_INCHES * down + 0.1]
    page = Figure(figsize=(14, sum(heights)), layout="constrained")
    top, bottom = page.subfigures(2, 1, height_ratios=heights)
    filled = [lines for lines in columns if lines]
    for number, lines in enumerate(filled, start=1):
        draw_ratios(top.add_subplot(1, len(filled), number), lines, longest)
    for number, part in enumerate(grown, start=1):
        draw_growth(bottom.add_subplot(down, ACROSS, number), part)
    return page


def halves(rows: list[Row]) -> tuple[list[Row | str], list[Row | str]]:
    """Arrange rows, each case below its title, in two columns of about equal length."""
    first: list[Row | str] = []
    second: list[Row | str] = []
    n_cases = len(list(groupby(rows, key=_case)))
    half = (len(rows) + n_cases) / 2
    for (job, case), part in groupby(rows, key=_case):
        sizes = ", ".join(f"{name} = {size}" for name, size in case.items())
        lines = [f"{job}: {sizes}", *part]
        column = second if second or len(first) + len(lines) / 2 > half else first
        column += lines
    return first, second


def _case(row: Row) -> tuple[str, dict[str, float]]:
    return row["job"], row["case"]


def draw_ratios(axes: Any, lines: list[Row | str], longest: int) -> None:
    """Draw dots at the ratios to each case's first contestant, with their range over rounds."""
    axes.axvline(1, color=COLOURS["limit"], linewidth=0.8)
    for role, colour in COLOURS.items():
        own = [(at, row) for at, row in enumerate(lines) if _role(row) == role]
        for noisy in (False, True):
            chosen = [(at, row) for at, row in own if row["noisy"] is noisy]
            spread = [row["ratio_spread"] for _, row in chosen]
            places, alpha = [at for at, _ in chosen], 0.4 if noisy else 1.0
            axes.hlines(
                places,
                [low for low, _ in spread],
                [high for _, high in spread],
                color=colour,
                linewidth=1,
                alpha=alpha,
            )
            ratios = [row["ratio"] for _, row in chosen]
            axes.plot(ratios, places, "o", color=colour, markersize=4.5, alpha=alpha)
        axes.plot([], [], "o", color=colour, label=ROLES[role], markersize=4.5)
    labels = [row if isinstance(row, str) else row["contestant"] for row in lines]
    axes.set_yticks(range(len(lines)), labels, fontsize=7)
    for label, row in zip(axes.get_yticklabels(), lines, strict=True):
        label.set_color(COLOURS.get(_role(row), "black"))
        label.set_fontweight("bold" if isinstance(row, str) else "normal")
    axes.set_ylim(longest - 0.5, -0.5)
    axes.set_xscale("log")
    axes.grid(axis="x", alpha=0.3)
    axes.tick_params(axis="y", length=0)
    axes.legend(loc="lower right", fontsize=8)
    axes.set_xlabel(
        "times the first of each job; lines: range over the rounds; pale: noise", fontsize=8
    )


def _role(row: Row | str) -> str:
    return "" if isinstance(row, str) else row["role"]


def draw_growth(axes: Any, part: list[Growth]) -> None:
    """Draw times over sizes on logarithmic axes, with both exponents in the legend."""
    for one in part:
        theory = "" if one.theory is None else f", theory {one.theory:.2f}"
        label = f"{one.contestant}: {one.exponent:.2f}{theory}"
        style = {"color": COLOURS[one.role], "alpha": 0.4 if one.noisy else 1.0}
        axes.loglog(one.sizes, one.amounts, "o-", markersize=4, label=label, **style)
    axes.set_title(part[0].job, loc="left", fontsize=9)
    axes.set_xlabel(part[0].size, fontsize=8)
    axes.set_xticks(part[0].sizes, [f"{size:g}" for size in part[0].sizes], fontsize=7)
    axes.set_xticks([], minor=True)
    axes.set_ylabel(part[0].unit, fontsize=8)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7)
