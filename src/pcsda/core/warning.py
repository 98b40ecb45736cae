"""Warnings that point to a line of the user's code, and numbers of things in words."""

from __future__ import annotations

import inspect
import warnings

# Packages whose code is not the user's: a pipeline or a search calls `fit` on the user's behalf.
PASSED_OVER = ("pcsda", "sklearn", "joblib", "contextlib")


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Issue a warning that points to the nearest caller outside the packages in `PASSED_OVER`."""
    level, frame = 1, inspect.currentframe()
    while frame and str(frame.f_globals.get("__name__", "")).split(".")[0] in PASSED_OVER:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def number_of(count: float, one: str, more: str = "", *, digits: int = 15) -> str:
    """Return a number with its noun: ``1 row``, ``2 rows``; `more` is an irregular plural."""
    text = f"{count:.{digits}g}"
    return f"{text} {one if text == '1' else more or one + 's'}"
