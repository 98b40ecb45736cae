"""Command-line messages: problems, wrong usage and notes."""

from __future__ import annotations

import importlib.util
import os
import sys
import unicodedata
from pathlib import Path


class Problem(Exception):
    """A problem with the data, the model or a file; the message suggests a remedy."""


class Usage(Exception):
    """Error raised if options are incompatible."""


said: set[str] = set()


def note(text: str) -> None:
    """Print a note on standard error, separate from the results; repeated notes are dropped."""
    if text not in said:
        said.add(text)
        print(visible(f"pcsda: note: {text}"), file=sys.stderr)


def visible(text: str) -> str:
    """Escape control characters and marks that change text direction."""
    return "".join(
        c if c in "\n\t" or unicodedata.category(c) not in ("Cc", "Cf") else ascii(c)[1:-1]
        for c in text
    )


def needs(package: str, extra: str, purpose: str) -> None:
    """Require an optional package; the error message names the extra to install."""
    if importlib.util.find_spec(package) is None:
        raise Problem(f'{package} is needed {purpose}: pip install "pcsda[{extra}]"')


def check_target(path: str | None, *inputs: str) -> None:
    """Reject an output file that cannot be written, before any work is done."""
    from ..tables import STDIN, refuse_overwrite  # late, so that help appears at once
    from ..writing import refuse_device

    if path is None:
        return
    if not path:
        raise Problem("the name of the output file is empty; give the name of a file")
    target = Path(path)
    if target.is_dir():
        raise Problem(f"{path} is a folder; give the name of a file")
    refuse_device(path)
    folder = target.resolve().parent
    if not folder.is_dir():
        raise Problem(f"{path}: there is no folder {folder}; create it first")
    if not os.access(folder, os.W_OK):
        raise Problem(f"{path}: no permission to write in {folder}")
    refuse_overwrite(path, *(source for source in inputs if source != STDIN))
