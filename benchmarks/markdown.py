"""Markdown that all study pages share: tables, and parts that a reader unfolds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Lay out cells as a Markdown table."""
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join(f"| {' | '.join(map(_cell, row))} |" for row in rows)


def details(title: str, *parts: str) -> str:
    """Fold parts of a page under a title; the reader unfolds them."""
    inside = "\n\n".join(part for part in parts if part)
    return f"<details>\n<summary>{title}</summary>\n\n{inside}\n\n</details>"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
