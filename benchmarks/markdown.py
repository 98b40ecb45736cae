"""Markdown for the study pages: tables and collapsible sections."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Lay out cells as a Markdown table."""
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join(f"| {' | '.join(map(_cell, row))} |" for row in rows)


def details(title: str, *parts: str) -> str:
    """Put parts of a page into a collapsible section with a title."""
    inside = "\n\n".join(part for part in parts if part)
    return f"<details>\n<summary>{title}</summary>\n\n{inside}\n\n</details>"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
