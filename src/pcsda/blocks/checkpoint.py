"""Results of passes on disk, so that a fit that was stopped goes on where it was.

A checkpoint is a .npz file of plain arrays with a description of how they belong together: nothing
in it is code, and it is replaced as a whole.
"""

from __future__ import annotations

import hashlib
import json
import time
import zipfile
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from ..core.scatter import GroupScatter
from ..writing import whole_file
from .addresses import Block
from .folds import Counts
from .intake import Head
from .passes import Look, Reservoir, Sample
from .summaries import Scored, Statistics

# Raised whenever what a checkpoint holds changes its meaning.
FORMAT = 2
KINDS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        Counts,
        GroupScatter,
        Head,
        Look,
        Reservoir,
        Sample,
        Scored,
        Statistics,
    )
}


def pack(value: Any, arrays: list[Any]) -> Any:
    """Describe a result by what JSON knows; arrays are appended to `arrays`."""
    if is_dataclass(value):
        parts = {field.name: pack(getattr(value, field.name), arrays) for field in fields(value)}
        return {"kind": type(value).__name__, "fields": parts}
    if isinstance(value, tuple):
        return {"tuple": [pack(item, arrays) for item in value]}
    if isinstance(value, np.ndarray):
        arrays.append(value)
        return {"array": len(arrays) - 1}
    return {"value": value.item() if isinstance(value, np.generic) else value}


def unpack(described: Any, arrays: list[Any]) -> Any:
    """Undo :func:`pack`."""
    if "kind" in described:
        parts = {name: unpack(part, arrays) for name, part in described["fields"].items()}
        return KINDS[described["kind"]](**parts)
    if "tuple" in described:
        return tuple(unpack(item, arrays) for item in described["tuple"])
    return arrays[described["array"]] if "array" in described else described["value"]


class Checkpoint:
    """The finished passes of a fit and the one that is under way.

    Parameters
    ----------
    path : Path
    identity : dict
        What the fit is of: ``settings`` and ``data``, as text.
    every : float
        Seconds between two savings.
    """

    def __init__(self, path: Path, identity: dict[str, str], every: float) -> None:
        if not path.parent.is_dir():
            raise FileNotFoundError(
                f"checkpoint={str(path)!r} lies in a folder that does not exist; create it first"
            )
        self.path, self.identity, self.every = path, identity, every
        self.seed: int | None = None
        self.finished: dict[str, Any] = {}
        # Name of the pass under way, blocks it has taken, and their result.
        self.current: tuple[str, int, Any] = ("", 0, None)
        self.saved_at = time.monotonic()
        if path.exists():
            self._load()

    def _load(self) -> None:
        try:
            with open(self.path, "rb") as file, np.load(file, allow_pickle=False) as archive:
                state = json.loads(str(archive["state"]))
                arrays = [archive[f"array{number}"] for number in range(state["arrays"])]
            known = state["format"] == FORMAT
        except (KeyError, ValueError, EOFError, OSError, zipfile.BadZipFile) as error:
            raise ValueError(
                f"{self.path} is not a whole checkpoint ({type(error).__name__}: {error}); delete "
                "it, or name another file"
            ) from error
        if not known:
            raise ValueError(
                f"{self.path} is a checkpoint of format {state['format']} and this version reads "
                f"format {FORMAT}; delete it, or name another file"
            )
        for part, own in self.identity.items():
            if state["identity"].get(part) != own:
                raise ValueError(
                    f"{self.path} is the checkpoint of a fit with other {part}; delete it to start "
                    "anew, or name another file"
                )
        self.seed = state["seed"]
        self.finished = {name: unpack(part, arrays) for name, part in state["finished"].items()}
        name, taken, result = state["current"]
        self.current = (name, taken, unpack(result, arrays))

    def save(self) -> None:
        """Replace the file by the present state."""
        arrays: list[Any] = []
        name, taken, result = self.current
        state = {
            "format": FORMAT,
            "identity": self.identity,
            "seed": self.seed,
            "finished": {key: pack(value, arrays) for key, value in self.finished.items()},
            "current": [name, taken, pack(result, arrays)],
            "arrays": len(arrays),
        }
        named = {f"array{number}": array for number, array in enumerate(arrays)}
        text = np.array(json.dumps(state))
        with whole_file(self.path) as file:
            np.savez(file, state=text, **named)
        self.saved_at = time.monotonic()

    def begin(self, name: str) -> tuple[int, Any]:
        """Blocks that the pass has taken already, and their result."""
        if self.current[0] != name:
            self.current = (name, 0, None)
        return self.current[1], self.current[2]

    def advance(self, taken: int, result: Any) -> None:
        """Note how far the pass is, and save when it is time to."""
        self.current = (self.current[0], taken, result)
        if time.monotonic() - self.saved_at >= self.every:
            self.save()

    def finish(self, result: Any) -> None:
        """End the pass."""
        self.finished[self.current[0]] = result
        self.current = ("", 0, None)
        self.save()

    def remove(self) -> None:
        """Delete the file: the fit is done."""
        self.path.unlink(missing_ok=True)


def describe(value: Any) -> Any:
    """Describe settings by text; arrays by their digest, random states by their type."""
    if isinstance(value, BaseEstimator):
        params = value.get_params(deep=False)
        return [type(value).__name__, {name: describe(params[name]) for name in sorted(params)}]
    if isinstance(value, (list, tuple)):
        return [describe(item) for item in value]
    if isinstance(value, np.ndarray):
        return digest(value)
    if value is None or isinstance(value, (str, int, float, bool)):
        return repr(value)
    return type(value).__name__


def digest(*values: Any) -> str:
    """Digest of arrays, text and numbers."""
    total = hashlib.sha256()
    for value in values:
        if isinstance(value, Block):
            total.update(digest(value.X, value.y).encode())
        elif hasattr(value, "tocsr"):
            csr = value.tocsr()
            total.update(digest(csr.data, csr.indices, csr.indptr).encode())
        elif isinstance(value, np.ndarray) and value.dtype.kind != "O":
            total.update(f"{value.shape}{value.dtype}".encode())
            total.update(np.ascontiguousarray(value).tobytes())
        else:
            total.update(repr(value).encode())
    return total.hexdigest()
