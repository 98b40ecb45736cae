"""Model files: a fitted model on disk that can be read back without trusting who wrote it.

A file has three parts: a line with the format and the SHA-256 sum of all that follows, a line of
facts as JSON, and the model as skops packs it. Nothing in it is code. Types are restored only if
they are on a list: those of this library below, and what skops trusts by itself (numbers, texts,
containers, NumPy arrays and random states, scikit-learn's own estimators).

The sum tells accidents, not forgery: whoever alters a file on purpose can write a new sum. Against
that stands the list of types.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import Any
from zipfile import ZipFile

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from .core.calibration import Calibration
from .core.density import Blend, Marginal, Mixture, NoDensity
from .core.scatter import GroupScatter
from .estimators import CSDA, PCSDA, PCSDACV, KernelCSDA, KernelPCSDA, Verifier, VerifierBank
from .kernels import Kernel
from .maps import ExactKernelMap, FourierMap, NystroemMap
from .normalization import AdaptiveSNorm, SNorm, TNorm, ZNorm
from .unwrap import parts, steps, unwrap
from .writing import whole_file

# To be raised when files change so that earlier versions of the library would misread them.
FORMAT = 2
OWN_TYPES: tuple[type, ...] = (
    CSDA,
    PCSDA,
    KernelCSDA,
    KernelPCSDA,
    PCSDACV,
    VerifierBank,
    ExactKernelMap,
    FourierMap,
    NystroemMap,
    ZNorm,
    TNorm,
    SNorm,
    AdaptiveSNorm,
    Calibration,
    Marginal,
    Mixture,
    Blend,
    NoDensity,
    GroupScatter,
    Kernel,
)


class OldDensity:
    """The density of a file of format 1, which :func:`_renewed` turns into one of today's."""


class OldCalibration:
    """The calibration of a file of format 1: slope and offset of one score."""


# Where format 1 had its types, and what reads them now.
OLD_NAMES = {
    "pcsda.bank.VerifierBank": VerifierBank,
    "pcsda.calibration.Calibration": OldCalibration,
    "pcsda.core.density.Density": OldDensity,
    "pcsda.estimators.CSDA": CSDA,
    "pcsda.estimators.PCSDA": PCSDA,
    "pcsda.kernel_estimators.KernelCSDA": KernelCSDA,
    "pcsda.kernel_estimators.KernelPCSDA": KernelPCSDA,
    "pcsda.maps.ExactKernelMap": ExactKernelMap,
    "pcsda.maps.FourierMap": FourierMap,
    "pcsda.maps.NystroemMap": NystroemMap,
    "pcsda.model_selection.PCSDACV": PCSDACV,
}
TRUSTED = [f"{kind.__module__}.{kind.__qualname__}" for kind in OWN_TYPES]
TRUSTED_OLD = [*TRUSTED, *(f"{__name__}.{kind.__name__}" for kind in (OldDensity, OldCalibration))]
# Keys of dictionaries become texts in JSON; these types come back from their text as they were.
KEYS = {"str", "int", "float", "str_", "int32", "int64", "float32", "float64"}
_MAGIC = re.compile(rb"pcsda-model ([1-9][0-9]{0,8}) ")
_HEAD = re.compile(rb"pcsda-model [0-9]+ ([0-9a-f]{64})\n([^\n]*)\n")


def save(
    model: BaseEstimator,
    path: str | os.PathLike[str],
    *,
    metrics: Mapping[str, Any] | None = None,
) -> None:
    """Write a fitted model to a file that :func:`load` reads back.

    Parameters
    ----------
    model : estimator
        Any fitted estimator of this library, or a scikit-learn estimator made of such: a Pipeline,
        a search. It may hold numbers, texts, arrays, random states, and scikit-learn's estimators.
    path : path
        Where to write. The file appears whole or, where writing fails, not at all.
    metrics : mapping of str to numbers, optional
        Figures to keep with the model, such as the error rates of a test.

    Raises
    ------
    TypeError
        If the model holds something that a model file may not, which the message names: a
        function as kernel or scoring, a clusterer of another library. No file is written.
    """
    if not isinstance(model, BaseEstimator) or isinstance(model, type):
        raise TypeError(f"save takes a fitted estimator, got {model!r:.100}")
    check_is_fitted(model)
    facts = _facts(model) | {"metrics": _plain_metrics(metrics)}
    body = json.dumps(facts, default=str).encode() + b"\n" + _packed(model)
    with whole_file(path) as file:
        file.write(b"pcsda-model %d %s\n" % (FORMAT, hashlib.sha256(body).hexdigest().encode()))
        file.write(body)


def load(path: str | os.PathLike[str]) -> Any:
    """Read a model that :func:`save` wrote.

    No code of the file is run: a file that holds any type but those of this library and those that
    skops trusts by itself is refused before anything is built from it.

    Parameters
    ----------
    path : path

    Returns
    -------
    estimator
        As it was when saved.

    Raises
    ------
    ValueError
        If the file is not a model file, is cut off or altered, was written in a newer format, or
        holds what it may not. The message says which.
    """
    facts, payload = _read(path)
    skops_io = _skops_io()
    trusted = TRUSTED
    try:
        _check_size(payload)
        if facts.get("format") == 1:
            payload, trusted = _with_new_names(payload), TRUSTED_OLD
        foreign = sorted({*skops_io.get_untrusted_types(data=payload)} - {*trusted})
    except Exception as error:
        raise _unreadable(path, error) from error
    if foreign:
        raise ValueError(
            f"{path} holds {', '.join(foreign)}, which a model file may not; nothing of it was "
            "run. Do not use the file unless you know who made it and why"
        )
    try:
        model = _unpacked(payload, trusted)
        _renew(model)
        return model
    except Exception as error:
        raise _unreadable(path, error) from error


def describe(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Facts about a model file, without building the model.

    Parameters
    ----------
    path : path

    Returns
    -------
    dict
        `format`, `pcsda` (the version that wrote it), `versions` (of Python and the libraries
        beneath), `saved` (time, UTC), `model`, `n_samples`, `n_positive`, `n_features`,
        `feature_names`, `classes`, `pos_label`, `n_subclasses`, `n_components` and `metrics`. What
        a model does not know is None.
    """
    facts, _ = _read(path)
    return facts


def _facts(model: Any) -> dict[str, Any]:
    inside = unwrap(model)
    final = inside.model
    names = getattr(inside.first, "feature_names_in_", None)
    classes = getattr(final, "classes_", None)
    rows, positives = _data_size(final)
    facts: dict[str, Any] = {
        "format": FORMAT,
        "pcsda": version("pcsda"),
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in ("numpy", "scikit-learn", "skops")},
        },
        "saved": datetime.now(UTC).isoformat(timespec="seconds"),
        "model": _title(model),
        "n_samples": rows,
        "n_positive": positives,
        "n_features": getattr(inside.first, "n_features_in_", None),
        "feature_names": None if names is None else names.tolist(),
        "classes": None if classes is None else classes.tolist(),
        "pos_label": None,
        "n_subclasses": None,
        "n_components": getattr(final, "n_components_", None),
    }
    if isinstance(final, Verifier):
        facts["pos_label"] = inside.label
        facts["n_subclasses"] = len(final.subclass_counts_)
    return facts


def _data_size(final: Any) -> tuple[float | None, float | None]:
    """Rows and positives that the model was fitted on, or their weights where it kept no rows."""
    if isinstance(final, VerifierBank):
        return len(final.clusters_), None
    if not isinstance(final, Verifier):
        return None, None
    if hasattr(final, "groups_"):
        return len(final.groups_), int(np.sum(final.groups_ == 0))
    positives = final.positive_count_
    total = positives + float(final.subclass_counts_.sum())
    rows, positives = (int(n) if n.is_integer() else n for n in (total, positives))
    return rows, positives


def _title(model: Any) -> str:
    """Name of a model with what it is made of, such as "Pipeline(StandardScaler, PCSDA)"."""
    name = type(model).__name__
    inside = parts(model)
    if isinstance(model, VerifierBank):
        inside = (next(iter(model.models_.values())),)
    return f"{name}({', '.join(map(_title, inside))})" if inside else name


def _plain_metrics(metrics: Mapping[str, Any] | None) -> dict[str, Any]:
    """Metrics as JSON has them."""

    def plain(value: Any) -> Any:
        if isinstance(value, np.generic | np.ndarray):
            return value.tolist()
        raise TypeError(
            f"metrics holds {value!r:.100} of type {type(value).__name__}; a model file keeps "
            "numbers, texts, and lists or dictionaries of those"
        )

    kept: dict[str, Any] = json.loads(json.dumps(dict(metrics or {}), default=plain))
    return kept


def _packed(model: Any) -> bytes:
    """The model in skops' form, after a look at whether it can be restored."""
    skops_io = _skops_io()
    try:
        payload: bytes = skops_io.dumps(model)
    except Exception as error:
        raise TypeError(f"{_title(model)} cannot be saved: {error}") from error
    with ZipFile(io.BytesIO(payload)) as archive:
        schema = json.loads(archive.read("schema.json"))
    foreign = {*skops_io.get_untrusted_types(data=payload)} - {*TRUSTED}
    searched = any(hasattr(step, "best_estimator_") for step in steps(model))
    remedy = "replace the search by its best_estimator_" if searched else "fit without that"
    for place, node in _nodes(schema, ""):
        name = f"{node.get('__module__')}.{node.get('__class__')}"
        if name in foreign:
            raise TypeError(
                f"{_title(model)} cannot be saved: its {place} is {name}, and a model file holds "
                "only types of pcsda and what skops trusts (numbers, texts, arrays, scikit-learn's "
                f"estimators); {remedy}"
            )
        keys = {key["__class__"] for key in node.get("key_types", {}).get("content", ())}
        if not keys <= KEYS:
            raise TypeError(
                f"{_title(model)} cannot be saved: the dictionary {place} has keys of type "
                f"{', '.join(sorted(keys - KEYS))}; only texts and numbers come back as they were"
            )
    if foreign:
        raise TypeError(f"{_title(model)} cannot be saved: it holds {', '.join(sorted(foreign))}")
    try:
        _unpacked(payload)  # a file that cannot be loaded must not be written
    except Exception as error:
        raise TypeError(f"{_title(model)} cannot be saved: {error}") from error
    return payload


def _nodes(node: Any, place: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """All nodes of a skops schema, inner ones first, with where in the model they are."""
    if isinstance(node, dict):
        for key, value in node.items():
            deeper = place if key in ("content", "attrs") else f"{place}.{key}".lstrip(".")
            yield from _nodes(value, deeper)
        if "__class__" in node:
            yield place, node
    elif isinstance(node, list):
        for value in node:
            yield from _nodes(value, place)


def _check_size(payload: bytes) -> None:
    """Refuse an archive that would grow when it is read; ours are not compressed."""
    with ZipFile(io.BytesIO(payload)) as archive:
        size = sum(entry.file_size for entry in archive.infolist())
    if size > len(payload):
        raise ValueError(
            f"its entries would take {size} bytes, more than the {len(payload)} it has"
        )


def _with_new_names(payload: bytes) -> bytes:
    """Rename the types of format 1 in the schema of a packed model."""
    packed = io.BytesIO()
    with ZipFile(io.BytesIO(payload)) as old, ZipFile(packed, "w") as new:
        for entry in old.infolist():
            data = old.read(entry)
            if entry.filename == "schema.json":
                schema = json.loads(data)
                for _, node in _nodes(schema, ""):
                    known = OLD_NAMES.get(f"{node.get('__module__')}.{node.get('__class__')}")
                    if known is not None:
                        node.update(__module__=known.__module__, __class__=known.__name__)
                data = json.dumps(schema).encode()
            new.writestr(entry, data)
    return packed.getvalue()


def _renew(value: Any) -> None:
    """Bring a model of an earlier version up to date: its density, and parameters it has not."""
    if isinstance(value, BaseEstimator):
        if type(value).__module__ == "pcsda":
            for name, parameter in signature(type(value).__init__).parameters.items():
                if name != "self" and not hasattr(value, name):
                    setattr(value, name, parameter.default)
        if isinstance(getattr(value, "density_", None), OldDensity):
            value.density_, value.calibration_ = _renewed(value.density_, value.calibration_)
        _renew(list(vars(value).values()))
    elif isinstance(value, list | tuple):
        for part in value:
            _renew(part)
    elif isinstance(value, dict):
        _renew(list(value.values()))


def _renewed(density: Any, calibration: Any) -> tuple[Any, Calibration]:
    """Density and calibration of today from those of format 1, which kept weights in the former."""
    kind = Mixture if np.any(density.centres) else Marginal
    base = kind(
        density.positive,
        density.negative,
        density.centres,
        density.log_weights,
        density.within,
        density.positive_strength,
        density.negative_strength,
        density.subclasses,
        float(density.tails[0]),
    )
    slope, offset = calibration.slope, calibration.offset
    if density.axis is None:
        return base, Calibration((1.0,)).then(slope, offset)
    weights = Calibration(tuple(density.shares), density.offset or 0.0)
    return Blend(base, density.axis, float(density.tails[1])), weights.then(slope, offset)


def _unpacked(payload: bytes, trusted: list[str] = TRUSTED) -> Any:
    """Build the model; its types were checked, and skops checks them once more."""
    model = _skops_io().loads(payload, trusted=trusted)
    if not isinstance(model, BaseEstimator):
        raise TypeError(f"it holds a {type(model).__name__}, not an estimator")
    return model


def _read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], bytes]:
    """Facts and packed model of a file, after a look at its format and its sum."""
    data = Path(path).read_bytes()
    magic = _MAGIC.match(data)
    if magic is None:
        raise ValueError(
            f"{path} is not a pcsda model file (it begins with {data[:16]!r}); give a file that "
            "pcsda.save wrote"
        )
    if (found := int(magic[1])) > FORMAT:
        raise ValueError(
            f"{path} has format {found}, and pcsda {version('pcsda')} reads up to {FORMAT}; "
            "install a newer pcsda"
        )
    head = _HEAD.match(data)
    if head is None or hashlib.sha256(memoryview(data)[head.start(2) :]).hexdigest() != (
        head[1].decode()
    ):
        raise ValueError(
            f"{path} is damaged: it was cut off or altered after it was written ({len(data)} "
            "bytes, whose sum is not the one it names); get it again from where it was saved"
        )
    try:
        facts = dict(json.loads(head[2]))
    except (TypeError, ValueError) as error:
        raise _unreadable(path, error) from error
    return facts, data[head.end() :]


def _unreadable(path: str | os.PathLike[str], error: Exception) -> ValueError:
    return ValueError(f"{path} cannot be read as a model: {error}")


def _skops_io() -> ModuleType:
    try:
        import skops.io
    except ImportError as error:
        raise ImportError(
            'model files need skops, which is not installed: pip install "pcsda[skops]"'
        ) from error
    module: ModuleType = skops.io
    return module
