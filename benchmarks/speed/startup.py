"""How long imports take, each in a fresh interpreter: what nobody sees in a running process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from functools import partial

from .measure import Bound, Contestant, Job
from .setup import Setup

# Timed inside, so that the start of the interpreter itself does not water the ratio down.
IMPORT = """\
import sys, time
from importlib import import_module
start = time.perf_counter()
for name in sys.argv[1:]:
    module = import_module(name)
    for public in getattr(module, "__all__", ()) if name == "pcsda" else ():
        getattr(module, public)
print(time.perf_counter() - start)
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
    yardstick = "sklearn and the submodules needed"
    contestants = (
        Contestant(yardstick, "peer", partial(import_seconds, *needed), reports=True),
        Contestant(
            "pcsda",
            "pcsda",
            partial(import_seconds, "pcsda"),
            (Bound(yardstick, at_most=1.15),),
            reports=True,
        ),
        Contestant(
            "sklearn.discriminant_analysis",
            "peer",
            partial(import_seconds, "sklearn.discriminant_analysis"),
            reports=True,
        ),
    )
    yield Job("imports", {"submodules": len(needed)}, contestants)


def import_seconds(*names: str) -> float:
    """Seconds that the imports take one after the other."""
    return float(in_fresh_process(IMPORT, *names))


def in_fresh_process(code: str, *arguments: str) -> str:
    """What a Python program prints."""
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
