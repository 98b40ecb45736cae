"""What the command line tells people when something is wrong."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path


class Problem(Exception):
    """The data, the model or a file is at fault; the message says what to do about it."""


class Usage(Exception):
    """Options that do not go together."""


said: set[str] = set()


def note(text: str) -> None:
    """Say something on standard error, out of the way of results, and only once."""
    if text in said:
        return
    said.add(text)
    print(f"pcsda: note: {text}", file=sys.stderr)


def needs(package: str, extra: str, purpose: str) -> None:
    """Refuse where an optional package is missing, naming the extra that has it."""
    if importlib.util.find_spec(package) is None:
        raise Problem(f'{package} is needed {purpose}: pip install "pcsda[{extra}]"')


def check_target(path: str | None, *inputs: str) -> None:
    """Refuse a file that could not be written in the end, before any work is done."""
    if path is None:
        return
    target = Path(path)
    if target.is_dir():
        raise Problem(f"{path} is a folder; give the name of a file")
    folder = target.resolve().parent
    if not folder.is_dir():
        raise Problem(f"{path}: there is no folder {folder}; make it first")
    if not os.access(folder, os.W_OK):
        raise Problem(f"{path}: no permission to write in {folder}")
    for source in inputs:
        if source != "-" and target.exists() and Path(source).exists() and target.samefile(source):
            raise Problem(f"{path} would overwrite {source}; give another name")
