"""Import times, each measured in a fresh interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial

from .measure import Bound, Contestant, Job
from .setup import Setup

# Timed inside, so that the ratio excludes the start of the interpreter.
IMPORT = """\
import sys, time
from importlib import import_module
now = getattr(time, sys.argv[1])
start = now()
for name in sys.argv[2:]:
    module = import_module(name)
    for public in getattr(module, "__all__", ()) if name == "pcsda" else ():
        getattr(module, public)
print(now() - start)
"""
LIST = """\
import sys
import pcsda
for public in pcsda.__all__:
    getattr(pcsda, public)
print(*(name for name in sys.modules if name.split(".")[0] == "sklearn" and "._" not in name))
"""


def imports(setup: Setup) -> Iterator[Job]:
    """Import pcsda in a fresh process; yardstick: scikit-learn and the submodules it needs."""
    needed = tuple(sorted(in_fresh_process(LIST).split()))
    yardstick, now = "sklearn and the submodules needed", setup.clock.elsewhere
    contestants = (
        Contestant(yardstick, "peer", partial(import_seconds, now, *needed), reports=True),
        Contestant(
            "pcsda",
            "pcsda",
            partial(import_seconds, now, "pcsda"),
            (Bound(yardstick, at_most=1.15),),
            reports=True,
        ),
        Contestant(
            "sklearn.discriminant_analysis",
            "peer",
            partial(import_seconds, now, "sklearn.discriminant_analysis"),
            reports=True,
        ),
    )
    yield Job("imports", {"submodules": len(needed)}, contestants)


def import_seconds(now: str, *names: str) -> float:
    """Return the seconds that imports take in sequence, by a clock of the module `time`."""
    return float(in_fresh_process(IMPORT, now, *names))


def in_fresh_process(code: str, *arguments: str) -> str:
    """Return what a Python program prints."""
    command = [sys.executable, "-c", code, *arguments]
    env = with_bytecode()
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=env).stdout


def with_bytecode() -> dict[str, str]:
    """Return the environment for processes that keep compiled modules, as installed packages do.

    Otherwise, only our modules would be compiled again in each process.
    """
    return {name: of for name, of in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
