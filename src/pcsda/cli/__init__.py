"""The command line, which turns arguments into calls to public functions."""

from __future__ import annotations

import os
import signal
import sys
import warnings
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import version

from ..progress import bars_everywhere
from .parser import build
from .problems import Problem, Usage, note, said, visible

# Errors caused by the data, the model, a file or a missing package; anything else is a bug.
FAULTS = (Problem, ValueError, TypeError, OSError, ImportError, MemoryError)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments without the program name; by default, the process's arguments.

    Returns
    -------
    int
        0 for success, 1 if the data or the model is at fault, 2 for incompatible options, 130 if
        interrupted. Unknown options raise SystemExit with code 2, and the signal to terminate
        raises it with code 143.

    Examples
    --------
    >>> from pcsda.cli import main
    >>> main(["inspect", "none.pcsda"])
    1
    """
    arguments = build(version("pcsda")).parse_args(argv)
    said.clear()
    try:
        with _tidy_if_ended(), bars_everywhere(), warnings.catch_warnings(action="default"):
            # These warnings are for programmers, not for users of the command line.
            for category in (DeprecationWarning, FutureWarning, ResourceWarning):
                warnings.simplefilter("ignore", category)
            warnings.showwarning = lambda text, *_, **__: note(" ".join(str(text).split()))
            _run(arguments)
            sys.stdout.flush()
    except Usage as error:
        print(visible(f"pcsda {arguments.command}: {error}"), file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
        _drop_output()
        return 0
    except KeyboardInterrupt:
        print("pcsda: interrupted", file=sys.stderr)
        return 130
    except Exception as error:
        text = _message(error)
        if not isinstance(error, FAULTS):
            if os.environ.get("PCSDA_TRACEBACK"):
                raise
            text = (
                f"unexpected {type(error).__name__}: {text} (this is a bug in pcsda; set "
                "PCSDA_TRACEBACK=1 to see where, and report it)"
            )
        _drop_output()
        print(visible(f"pcsda: {text}"), file=sys.stderr)
        return 1
    return 0


@contextmanager
def _tidy_if_ended() -> Iterator[None]:
    """Turn signals that end the process into SystemExit, so that temporary files are removed."""

    def end(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    named = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    changed = []
    with suppress(ValueError):  # not the main thread
        for number in named:
            if signal.getsignal(number) == signal.SIG_DFL:  # nohup ignores SIGHUP
                signal.signal(number, end)
                changed.append(number)
    try:
        yield
    finally:
        for number in changed:
            signal.signal(number, signal.SIG_DFL)


def _run(arguments: Namespace) -> None:
    # Imported late, so that help and usage errors appear at once.
    from . import completion, demo, evaluating, fitting, models, search, updating, using

    # The module of each command, in which a function has the command's name.
    modules = dict.fromkeys(("score", "rank", "count", "identify"), using)
    modules |= {"fit": fitting, "update": updating, "evaluate": evaluating, "search": search}
    modules |= {"inspect": models, "export": models, "demo": demo, "completion": completion}
    getattr(modules[arguments.command], arguments.command)(arguments)


def _message(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        name = error.filename if error.filename is not None else "output"
        return f"{name}: {error.strerror}"
    if isinstance(error, MemoryError):
        return f"not enough memory. {error}".strip()
    return " ".join(str(error).split()) or type(error).__name__


def _drop_output() -> None:
    """Discard output that could not be written, so that Python does not fail on it at exit."""
    with suppress(OSError, ValueError):  # standard output may not be a file, as in tests
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
