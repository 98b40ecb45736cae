"""The command line: a translator from words to public functions."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from .parser import build
from .problems import Problem, Usage, note, said

# The data, the model, a file or a missing package is at fault; anything else is ours.
FAULTS = (Problem, ValueError, TypeError, OSError, ImportError, MemoryError)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments without the program's name; those of the process by default.

    Returns
    -------
    int
        0 done, 1 the data or the model is at fault. Wrong usage leaves with 2 through SystemExit.
    """
    parser = build(_version())
    arguments = parser.parse_args(argv)
    said.clear()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            # What concerns programmers is no note for people.
            for category in (DeprecationWarning, FutureWarning, ResourceWarning):
                warnings.simplefilter("ignore", category)
            warnings.showwarning = _as_note
            _run(arguments)
            sys.stdout.flush()
    except Usage as error:
        print(f"pcsda {arguments.command}: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader has seen enough, as `head` does
        _drop_output()
        return 0
    except KeyboardInterrupt:
        print("pcsda: interrupted", file=sys.stderr)
        return 130
    except FAULTS as error:
        _drop_output()
        print(f"pcsda: {_message(error)}", file=sys.stderr)
        return 1
    except Exception as error:
        if os.environ.get("PCSDA_TRACEBACK"):
            raise
        _drop_output()
        print(
            f"pcsda: unexpected {type(error).__name__}: {_message(error)} (this is a fault of "
            "pcsda; set PCSDA_TRACEBACK=1 to see where, and report it)",
            file=sys.stderr,
        )
        return 1
    return 0


def _run(arguments: Any) -> None:
    # Imported late, so that help and usage errors come at once.
    from . import completion, demo, evaluating, fitting, models, using

    commands = {
        "fit": fitting.fit,
        "score": using.score,
        "rank": using.rank,
        "evaluate": evaluating.evaluate,
        "inspect": models.inspect,
        "export": models.export,
        "demo": demo.demo,
        "completion": completion.completion,
    }
    commands[arguments.command](arguments)


def _version() -> str:
    from importlib.metadata import version

    return version("pcsda")


def _as_note(message: Any, *_: Any, **__: Any) -> None:
    note(" ".join(str(message).split()))


def _message(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        name = error.filename if error.filename is not None else "output"
        return f"{name}: {error.strerror}"
    if isinstance(error, MemoryError):
        return f"not enough memory. {error}".strip()
    return " ".join(str(error).split()) or type(error).__name__


def _drop_output() -> None:
    """Forget what could not be written, so that leaving does not try and fail again."""
    with suppress(OSError, ValueError):  # standard output may not be a file, as under a test
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
