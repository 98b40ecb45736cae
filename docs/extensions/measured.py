"""Writes the parts of pages that come from rows, before the pages are read."""

from __future__ import annotations

from pathlib import Path

from benchmarks import pages


def write_parts(app) -> None:
    folder = Path(app.srcdir) / "generated"
    folder.mkdir(exist_ok=True)
    parts = {
        "reproduction.md": pages.reproduction(pages.load("paper")),
        "defaults.md": pages.defaults(pages.load("defaults")),
        "speed.md": pages.speed(pages.load("speed")),
        "scale.md": pages.speed([r for r in pages.load("speed") if r["job"].startswith("scale")]),
    }
    for name, text in parts.items():
        (folder / name).write_text(text, encoding="utf-8")


def setup(app):
    app.connect("builder-inited", write_parts)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
