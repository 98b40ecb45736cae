"""Writes the parts of pages that come from rows, before the pages are read."""

from __future__ import annotations

from pathlib import Path

from benchmarks import family, pages
from benchmarks.markdown import details
from benchmarks.speed import plot

PICTURE = "\n" + details(
    "A picture of all ratios",
    "![Ratios of all jobs to the first contestant of each, then time against size]"
    "(generated/speed.svg)",
)


def write_parts(app) -> None:
    folder = Path(app.srcdir) / "generated"
    folder.mkdir(exist_ok=True)
    rows = pages.load("speed")
    scale = [row for row in rows if row["job"].startswith("scale")]
    if rows:
        plot.draw(rows, folder / "speed.svg")
    parts = {
        "defaults.md": pages.defaults(pages.load("defaults")),
        "family.md": family.table(family.read(family.ROWS)),
        "family_members.md": family.members(family.read(family.ROWS)),
        "speed.md": pages.speed_page(rows) + (PICTURE if rows else ""),
        "scale.md": details("Times, memory and growth", pages.speed(scale).rstrip()) + "\n",
    }
    for name, text in parts.items():
        (folder / name).write_text(text, encoding="utf-8")


def setup(app):
    app.connect("builder-inited", write_parts)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
