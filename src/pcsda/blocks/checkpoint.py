"""Checkpoints store the results of passes on disk, so that an interrupted fit can resume.

A checkpoint is a .npz file of plain arrays with a description of their structure. It contains no
code and is always replaced as a whole. It stores a hash of each merged block, so that a fit never
resumes with different data.
"""

from __future__ import annotations

import json
import time
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import joblib
import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from ..archive import UNREADABLE, check_arrays
from ..core.scatter import GroupScatter
from ..writing import remove_leftovers, whole_file
from .data import Block, Blocks, Head
from .passes import CountPass, FoldScorePass, Sample, SamplePass, Statistics, StatisticsPass
from .sampling import Counts, Reservoir

# Increase this number when the meaning of a checkpoint's content changes.
FORMAT = 4
DONE = -1
REMEDY = "delete it to start again, or name another file"
KINDS: dict[str, Any] = {
    kind.__name__: kind for kind in (Counts, GroupScatter, Head, Reservoir, Sample, Statistics)
}

# The type of each pass's result; a result is None if no row has positive weight.
RESULTS: dict[str, Any] = {
    CountPass.name: Counts | None,
    SamplePass.name: Sample | None,
    StatisticsPass.name: Statistics | None,
    FoldScorePass.name: tuple | None,
}


def pack(value: object, arrays: list[NDArray[Any]]) -> Any:
    """Describe the result of a pass using JSON types, and append its arrays to `arrays`."""
    if is_dataclass(value):
        parts = {field.name: pack(getattr(value, field.name), arrays) for field in fields(value)}
        return {"kind": type(value).__name__, "fields": parts}
    if isinstance(value, tuple):
        return {"tuple": [pack(item, arrays) for item in value]}
    if isinstance(value, np.ndarray):
        arrays.append(value)
        return {"array": len(arrays) - 1}
    return {"value": value.item() if isinstance(value, np.generic) else value}


def unpack(described: object, arrays: list[NDArray[Any]]) -> Any:
    """Rebuild a result from its description; raise ValueError if the description is invalid."""
    match described:
        case {"kind": str(name), "fields": dict(parts)} if name in KINDS:
            found = {part: unpack(value, arrays) for part, value in parts.items()}
            hints = get_type_hints(KINDS[name])
            if set(found) != set(hints):
                raise ValueError(f"{name!r:.100} is not the result of a pass, or lacks parts")
            for part, hint in hints.items():
                if not _fits(found[part], hint):
                    raise ValueError(f"{part} of a {name} is {found[part]!r:.100}")
            return KINDS[name](**found)
        case {"tuple": list(items)}:
            return tuple(unpack(item, arrays) for item in items)
        case {"array": int(number)} if 0 <= number < len(arrays):
            return arrays[number]
        case {"value": None | str() | int() | float() as value}:
            return value
    raise ValueError(f"{described!r:.100} describes no value")


def _fits(value: Any, hint: Any) -> bool:
    """Return whether a value has the declared type `hint`."""
    kind, parts = get_origin(hint) or hint, get_args(hint)
    if kind is UnionType:
        return any(_fits(value, part) for part in parts)
    if kind is tuple:
        if Ellipsis in parts:
            parts = parts[:1] * (len(value) if isinstance(value, tuple) else 0)
        same = isinstance(value, tuple) and len(value) == len(parts)
        return same and all(map(_fits, value, parts))
    if kind is float:
        kind = (int, float)
    return kind is Any or isinstance(value, kind)


def _check_shapes(value: object) -> None:
    """Reject a result whose arrays have inconsistent shapes."""
    if isinstance(value, Reservoir):
        lengths = {array.shape[:1] for array in (value.keys, *value.columns)}
        if len(lengths) != 1:
            raise ValueError(f"columns of a sample have lengths {sorted(lengths)}")
    elif isinstance(value, Statistics):
        size = len(value.names) + 1
        for scatter in value.scatters:
            width = scatter.means.shape[-1]
            found = [part.shape for part in vars(scatter).values()]
            if found != [(size,), (size, width), (width, width), (width, width)]:
                raise ValueError(
                    f"a scatter of {size} groups in {width} columns has shapes {found}"
                )
        for sample in value.samples:
            _check_shapes(sample)
            groups = sample.columns[1] if len(sample.columns) == 3 else np.array([-1])
            if groups.dtype.kind != "i" or not np.all((groups >= 0) & (groups < size)):
                raise ValueError(f"rows of a sample are in groups beyond the last of {size}")
    elif isinstance(value, Sample):
        _check_shapes(value.rows)
    elif isinstance(value, tuple):
        for part in value:
            _check_shapes(part)


def fingerprint(block: Block) -> tuple[str, str | None]:
    """Return a hash of a block's labels, subclasses and weights, and a hash of its rows.

    The second hash is None if the rows were not read.
    """
    labels = joblib.hash((block.y, block.subclass_labels, block.sample_weight), coerce_mmap=True)
    if block.X is None:
        return labels, None
    return labels, joblib.hash((block.X, block.columns), coerce_mmap=True)


class Checkpoint:
    """The seed of a fit and the results of its passes so far.

    Parameters
    ----------
    path : Path or None
        File for the checkpoint; None means that nothing is saved.
    identity : dict
        Texts that identify the ``settings`` and the ``data`` of the fit. A checkpoint with other
        texts is rejected.
    every : float
        Seconds between saves.
    """

    def __init__(self, path: Path | None, identity: dict[str, str], every: float) -> None:
        if path is not None and not path.parent.is_dir():
            raise FileNotFoundError(
                f"checkpoint={str(path)!r} lies in a folder that does not exist; create it first"
            )
        self.path, self.identity, self.every = path, identity, every
        self.seed: int | None = None
        # For each pass, the number of blocks processed (DONE means all) and the result so far.
        self.passes: dict[str, tuple[int, Any]] = {}
        # Hashes of the blocks that were read, in block order.
        self.prints: list[tuple[str, str | None]] = []
        self.saved_at = time.monotonic()
        if path is not None:
            remove_leftovers(path)
            if path.exists():
                self._load(path)

    def _load(self, path: Path) -> None:
        try:
            with open(path, "rb") as file:
                check_arrays(file)
                with np.load(file, allow_pickle=False) as archive:
                    state = json.loads(str(archive["state"]))
                    arrays = [archive[f"array{number}"] for number in range(state["arrays"])]
            known = state["format"] == FORMAT
            if known:
                self._restore(state, arrays)
        except (*UNREADABLE, AttributeError) as error:
            raise ValueError(
                f"{path} is not a complete checkpoint ({type(error).__name__}: {error}); delete "
                "it, or name another file"
            ) from error
        if not known:
            raise ValueError(
                f"{path} is a checkpoint of format {state['format']}, but this version reads "
                f"format {FORMAT}; delete it, or name another file"
            )
        for part, own in self.identity.items():
            if state["identity"].get(part) != own:
                raise ValueError(
                    f"{path} is the checkpoint of a fit with different {part}; {REMEDY}"
                )

    def _restore(self, state: dict[str, Any], arrays: list[NDArray[Any]]) -> None:
        """Restore the state from a file; raise an error if :meth:`save` cannot have written it."""
        seed, prints = state["seed"], [(str(y), X) for y, X in state["prints"]]
        if not isinstance(seed, int | None) or not isinstance(state["identity"], dict):
            raise ValueError(f"seed={seed!r:.100} is not an integer, or the identity not a dict")
        self.seed, self.prints = seed, prints
        for name, (taken, result) in state["passes"].items():
            if not isinstance(taken, int) or not DONE <= taken <= len(prints):
                raise ValueError(f"pass {name!r} has processed {taken!r} of {len(prints)} blocks")
            found = unpack(result, arrays)
            if not isinstance(found, RESULTS[name]):
                raise ValueError(f"pass {name!r} has the result {found!r:.100}")
            _check_shapes(found)
            self.passes[name] = (taken, found)

    def verify(self, blocks: Blocks) -> None:
        """Read all blocks in the checkpoint again, and refuse to resume if any has changed."""
        if not self.prints:
            return
        number = -1
        for number, name, block in blocks.read():
            if number == len(self.prints):
                return
            self.see(number, name, block)
        if number + 1 < len(self.prints):
            raise ValueError(
                f"{self.path} is the checkpoint of a fit with different data: it has read "
                f"{len(self.prints)} blocks, but there are {number + 1}; {REMEDY}"
            )

    def see(self, number: int, name: str, block: Block) -> None:
        """Record a block's hashes, or compare them with the hashes from an earlier pass."""
        if self.path is None:
            return
        labels, rows = fingerprint(block)
        if number == len(self.prints):
            self.prints.append((labels, rows))
            return
        seen = self.prints[number]
        for what, one, other in zip(
            ("labels or weights", "rows"), seen, (labels, rows), strict=True
        ):
            if one is not None and other is not None and one != other:
                raise ValueError(
                    f"{self.path} is the checkpoint of a fit with different data: block {number} "
                    f"({name}) does not have the {what} that it had when it was read before; "
                    f"{REMEDY}"
                )
        self.prints[number] = (labels, seen[1] or rows)

    def advance(self, name: str, taken: int, result: object) -> None:
        """Record a pass's progress; save if the pass is done or a save is due."""
        self.passes[name] = (taken, result)
        if taken == DONE or time.monotonic() - self.saved_at >= self.every:
            self.save()

    def save(self) -> None:
        """Replace the checkpoint file with one that holds the current state."""
        if self.path is None:
            return
        arrays: list[NDArray[Any]] = []
        passes = {name: [taken, pack(part, arrays)] for name, (taken, part) in self.passes.items()}
        state = {"format": FORMAT, "identity": self.identity, "seed": self.seed, "passes": passes}
        state["prints"] = self.prints
        parts: dict[str, Any] = {f"array{number}": array for number, array in enumerate(arrays)}
        with whole_file(self.path) as file:
            np.savez(file, state=np.array(json.dumps(state | {"arrays": len(arrays)})), **parts)
        self.saved_at = time.monotonic()

    def remove(self) -> None:
        """Delete the checkpoint file once the fit is done."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)


def describe(value: object) -> Any:
    """Describe a setting with texts and lists, to compare it with that of an earlier fit.

    An array is described by its hash, and an object such as a random state by its type.
    """
    if isinstance(value, BaseEstimator):
        params = value.get_params(deep=False)
        return [type(value).__name__, {name: describe(params[name]) for name in sorted(params)}]
    if isinstance(value, (list, tuple)):
        return [describe(item) for item in value]
    if isinstance(value, np.ndarray):
        return joblib.hash(value)
    if value is None or isinstance(value, (str, int, float, bool)):
        return repr(value)
    return type(value).__name__
