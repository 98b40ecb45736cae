"""Rows to a Markdown page; nothing but the rows is looked at."""

from __future__ import annotations

from itertools import groupby

from .rows import Row

LEGEND = """\
Times are the best of the rounds. The ratio is to the first contestant of each job: the limit, or
the peer that the bound names; behind it the smallest and the largest ratio within one round. `~`
marks noise: the first contestant varied by more than 20 % in every run tried, or other programs
took more than 10 % of the machine. What such a job says about a bound is followed by `?`.
"""
COLUMNS = {
    "seconds": ("job", "case", "contestant", "ms", "ratio", "in rounds", "bound", "holds"),
    "bytes": ("job", "case", "contestant", "MB", "ratio", "bound", "holds"),
}
SCALE = {"seconds": 1e3, "bytes": 1e-6}


def markdown(rows: list[Row]) -> str:
    """Write the page: where it was measured, then a table of times and one of memory."""
    if not rows:
        return "# Speed\n\nNothing was measured.\n"
    parts = ["# Speed", heading(rows[0]), LEGEND.rstrip()]
    parts += [table(part, unit) for unit in COLUMNS if (part := [r for r in rows if unit in r])]
    return "\n\n".join(parts) + "\n"


def heading(row: Row) -> str:
    """Say where the numbers come from."""
    versions = ", ".join(f"{name} {version}" for name, version in row["versions"].items())
    text = (
        f"{row['cpu']}, {row['cores']} cores, {row['threads']} threads; Python {row['python']}, "
        f"{versions}; {', '.join(row['blas'])}."
    )
    if row["quick"]:
        text += " Quick look at small sizes: bounds are not judged."
    return text


def table(rows: list[Row], unit: str) -> str:
    """Lines of one table; the job and its case are named once."""
    columns = COLUMNS[unit]
    lines = [columns, tuple("---" for _ in columns)]
    for _, contestants in groupby(rows, key=lambda row: (row["job"], row["case"])):
        for number, row in enumerate(contestants):
            fields = cells(row, unit)
            if number:
                fields |= {"job": "", "case": ""}
            lines.append(tuple(fields[column] for column in columns))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def cells(row: Row, unit: str) -> dict[str, str]:
    """Text of one row by column."""
    amount = number(row[unit] * SCALE[unit])
    low, high = row["ratio_spread"]
    return {
        "job": row["job"] + (" ~" if row["noisy"] else ""),
        "case": ", ".join(f"{name} = {size}" for name, size in row["case"].items()),
        "contestant": row["contestant"],
        "ms": amount,
        "MB": amount,
        "ratio": f"{row['ratio']:.2f}",
        "in rounds": f"{low:.2f} to {high:.2f}",
        "bound": "<br>".join(map(bound_text, row["bounds"])),
        "holds": "<br>".join(verdict(bound, row["noisy"]) for bound in row["bounds"]),
    }


def number(value: float) -> str:
    """Three or more digits, never with an exponent."""
    return f"{value:.0f}" if value >= 1000 else f"{value:.3g}"


def verdict(bound: Row, noisy: bool) -> str:
    """Say whether a bound holds; a noisy run only suggests it."""
    if bound["holds"] is None:
        return "-"
    return ("yes" if bound["holds"] else "**no**") + ("?" if noisy else "")


def bound_text(bound: Row) -> str:
    """Put a bound into words, with the ratio found."""
    word, factor = "at most", bound["at_most"]
    if factor is None:
        word, factor = "at least", bound["at_least"]
    return f"{word} {factor:g} x {bound['against']}, is {bound['ratio']:.2f} x"
