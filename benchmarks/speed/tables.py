"""A Markdown page made from the rows alone."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from .. import markdown as md
from .growth import Growth, growths
from .rows import Row

LEGEND = """\
Times are those of the best round. The ratio is to the first contestant of each job: the limit, or
the peer that the bound names. The range is that of the ratios within single rounds. `~` marks
noise: the first contestant varied by more than 20% in every run, or other programs used more than
10% of the machine. Verdicts from such runs are followed by `?`.
"""
GROWTH_LEGEND = """\
Growth: the exponent is the slope of log time (or memory) over log size, with its standard error.
Next to it is the same slope of the theoretical operation counts at the same sizes.
"""
WHERE_LEGEND = """\
Where the time goes, for our calls that take more than 1.5 times as long as the first contestant:
the largest shares, by function of the library or module of scikit-learn, including all that it
calls. For growth jobs, only the smallest and the largest case.
"""
# Above this ratio, the page says where the time goes.
SLOW = 1.5
GROWTH_COLUMNS = (
    *("job", "contestant", "sizes", "time or memory"),
    *("exponent", "theory", "operations", "bound", "holds"),
)
COLUMNS = {
    "seconds": ("job", "case", "contestant", "ms", "ratio", "in rounds", "bound", "holds"),
    "bytes": ("job", "case", "contestant", "MB", "ratio", "bound", "holds"),
}
SCALE = {"seconds": 1e3, "bytes": 1e-6}


def markdown(rows: list[Row]) -> str:
    """Write the page: where it was measured, then tables of times, of memory and of growth."""
    if not rows:
        return "# Speed\n\nNothing was measured.\n"
    parts = ["# Speed", headings(rows), LEGEND.rstrip()]
    single = [row for row in rows if "grows" not in row or row["bounds"]]
    parts += [table(part, unit) for unit in COLUMNS if (part := [r for r in single if unit in r])]
    if found := growths(rows):
        parts += [GROWTH_LEGEND.rstrip(), growth_table(found)]
    if slow := [row for row in ends_of_growth(rows) if "where" in row and row["ratio"] > SLOW]:
        parts += [WHERE_LEGEND.rstrip(), where_table(slow)]
    return "\n\n".join(parts) + "\n"


def headings(rows: list[Row]) -> str:
    """Describe the machine; if runs differ, say which jobs come from which."""
    found: dict[str, dict[str, None]] = {}
    for row in rows:
        found.setdefault(heading(row), {})[row["job"]] = None
    if len(found) == 1:
        return next(iter(found))
    return "\n".join(f"- {', '.join(jobs)}: {text}" for text, jobs in found.items())


def heading(row: Row) -> str:
    """Describe the machine and the versions."""
    versions = ", ".join(f"{name} {version}" for name, version in row["versions"].items())
    text = (
        f"{row['cpu']}, {row['cores']} cores, {row['threads']} threads; Python {row['python']}, "
        f"{versions}; {', '.join(row['blas'])}."
    )
    if row.get("clock") == "processor":
        text += " Processor time, because other programs kept the machine busy."
    if row["quick"]:
        text += " Quick look at small sizes: bounds are not judged."
    return text


def growth_table(found: list[Growth]) -> str:
    """Write the table of growth; each job is named once."""
    lines = []
    for name, contestants in groupby(found, key=lambda one: one.job):
        for place, one in enumerate(contestants):
            ends = [number(SCALE[one.unit] * one.amounts[end]) for end in (0, -1)]
            holds = None if one.quick or one.steepest is None else one.exponent <= one.steepest
            lines.append(
                (
                    "" if place else name + (" ~" if one.noisy else ""),
                    one.contestant,
                    f"{one.size} = {', '.join(f'{size:g}' for size in one.sizes)}",
                    f"{' to '.join(ends)} {COLUMNS[one.unit][3]}",
                    f"{one.exponent:.2f} ± {one.error:.2f}",
                    "" if one.theory is None else f"{one.theory:.2f}",
                    one.formula,
                    "" if one.steepest is None else f"at most {one.steepest:g}",
                    "" if one.steepest is None else verdict(holds, one.noisy),
                )
            )
    return md.table(GROWTH_COLUMNS, lines)


def ends_of_growth(rows: list[Row]) -> Iterator[Row]:
    """Yield all rows, but of each growth job only those of its first and last case."""
    for _, group in groupby(rows, key=lambda row: row["job"]):
        of_job = list(group)
        for row in of_job:
            if "grows" not in row or row["case"] in (of_job[0]["case"], of_job[-1]["case"]):
                yield row


def where_table(rows: list[Row]) -> str:
    """Write the table of where the time goes."""
    columns = ("job", "case", "contestant", "ratio", "where")
    lines = []
    for row in rows:
        fields = cells(row, "seconds")
        fields["where"] = "<br>".join(
            f"{share:.0%} `{name}`" for name, share in row["where"].items() if share >= 0.02
        )
        lines.append(tuple(fields[column] for column in columns))
    return md.table(columns, lines)


def table(rows: list[Row], unit: str) -> str:
    """Write one table; each job and case is named once."""
    columns = COLUMNS[unit]
    lines = []
    for _, contestants in groupby(rows, key=lambda row: (row["job"], row["case"])):
        for number, row in enumerate(contestants):
            fields = cells(row, unit)
            if number:
                fields |= {"job": "", "case": ""}
            lines.append(tuple(fields[column] for column in columns))
    return md.table(columns, lines)


def cells(row: Row, unit: str) -> dict[str, str]:
    """Return the text of one row by column."""
    amount = number(row[unit] * SCALE[unit])
    low, high = row["ratio_spread"]
    return {
        "job": row["job"] + (" ~" if row["noisy"] else ""),
        "case": ", ".join(f"{name} = {size}" for name, size in row["case"].items()),
        "contestant": row["contestant"],
        "ms": amount,
        "MB": amount,
        "ratio": factor(row["ratio"]),
        "in rounds": f"{factor(low)} to {factor(high)}",
        "bound": "<br>".join(bound_text(bound, unit) for bound in row["bounds"]),
        "holds": "<br>".join(verdict(bound["holds"], row["noisy"]) for bound in row["bounds"]),
    }


def number(value: float) -> str:
    """Write a number with three or more digits, without an exponent."""
    return f"{value:.0f}" if value >= 1000 else f"{value:.3g}"


def factor(ratio: float) -> str:
    """Write a ratio with two decimals, or two digits if these would be zeros."""
    return f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:.2g}"


def verdict(holds: bool | None, noisy: bool) -> str:
    """Say whether a bound holds; a noisy run only suggests it."""
    if holds is None:
        return "-"
    return ("yes" if holds else "**no**") + ("?" if noisy else "")


def bound_text(bound: Row, unit: str) -> str:
    """Put a bound into words, with the ratio or the amount found."""
    word, factor = "at most", bound["at_most"]
    if factor is None:
        word, factor = "at least", bound["at_least"]
    if bound["against"] is None:
        name = COLUMNS[unit][3]
        amounts = (number(value * SCALE[unit]) for value in (factor, bound["ratio"]))
        return f"{word} {f' {name}, is '.join(amounts)} {name}"
    return f"{word} {factor:g} x {bound['against']}, is {bound['ratio']:.2f} x"
