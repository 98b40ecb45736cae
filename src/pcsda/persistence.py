"""Save fitted models to files that can be loaded even from untrusted sources.

A file has three parts: a line with the format and the SHA-256 checksum of the rest, a line of
metadata as JSON, and the model in skops format. It contains no code. Only listed types are
restored: the types of this library listed below, and the types that skops trusts by default
(numbers, strings, containers, NumPy arrays and random states, scikit-learn's own estimators).

The checksum detects damage, not forgery: anyone who alters a file on purpose can write a new
checksum. The list of types protects against malicious files.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from datetime import UTC, datetime
from importlib.metadata import version
from inspect import signature
from types import MappingProxyType
from typing import Any
from zipfile import ZipFile

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.feature_selection import chi2, f_classif, mutual_info_classif
from sklearn.utils.validation import check_is_fitted

from .archive import check_entries, check_room, check_schema
from .core.calibration import Calibration
from .core.copies import Fingerprints
from .core.density import Blend, Density, Marginal, Mixture, NoDensity, Posterior
from .core.near import Near
from .core.pair import Pair
from .core.scatter import GroupScatter
from .core.threshold import Threshold
from .estimators import (
    CSDA,
    PCSDA,
    PCSDACV,
    KernelCSDA,
    KernelPCSDA,
    MixtureVerifier,
    MultilinearCSDA,
    Verifier,
    VerifierBank,
    VerifierPipeline,
)
from .estimators.sample import RowSample
from .kernels import Kernel
from .maps import ExactKernelMap, FourierMap, NystroemMap
from .normalization import AdaptiveSNorm, SNorm, TNorm, ZNorm
from .unwrap import parts, steps, unwrap
from .validation import NOT_INSTALLED, import_extra
from .writing import whole_file

# Increase this number when a change would make earlier versions misread new files.
FORMAT = 2
OWN_TYPES: tuple[type, ...] = (
    *(CSDA, PCSDA, KernelCSDA, KernelPCSDA, PCSDACV, VerifierBank),
    *(MixtureVerifier, MultilinearCSDA, VerifierPipeline),
    *(ExactKernelMap, FourierMap, NystroemMap, ZNorm, TNorm, SNorm, AdaptiveSNorm),
    *(Calibration, Marginal, Mixture, Posterior, Blend, Near, Pair, NoDensity, GroupScatter),
    *(RowSample, Fingerprints, Kernel, Threshold),
)


class OldDensity:
    """A density as stored in files of format 1."""


class OldCalibration:
    """A calibration as stored in files of format 1: slope and offset of one score."""


# Modules named in files of format 1, each with the current types that replace its types.
OLD_TYPES: dict[str, tuple[type, ...]] = {
    "bank": (VerifierBank,),
    "estimators": (CSDA, PCSDA),
    "kernel_estimators": (KernelCSDA, KernelPCSDA),
    "maps": (ExactKernelMap, FourierMap, NystroemMap),
    "model_selection": (PCSDACV,),
}
OLD_NAMES = {f"pcsda.{m}.{kind.__name__}": kind for m, kinds in OLD_TYPES.items() for kind in kinds}
OLD_NAMES["pcsda.calibration.Calibration"] = OldCalibration
OLD_NAMES["pcsda.core.density.Density"] = OldDensity
# Names in files of format 2 that were written before these types had modules of their own.
OLD_NAMES |= {
    f"pcsda.core.density.{kind.__name__}": kind
    for kind in (Blend, Marginal, Mixture, Near, Posterior)
}
# scikit-learn's selectors of columns, such as SelectKBest, hold one of these functions. They only
# compute numbers from arrays.
COLUMN_SCORES = (chi2, f_classif, mutual_info_classif)
# scikit-learn's imputers store a dtype, which is plain data.
TRUSTED = [
    *(f"{kind.__module__}.{kind.__qualname__}" for kind in (*OWN_TYPES, *COLUMN_SCORES)),
    "numpy.dtype",
]
TRUSTED_OLD = [*TRUSTED, *(f"{__name__}.{kind.__name__}" for kind in (OldDensity, OldCalibration))]
# JSON turns the keys of dictionaries into strings; keys of these types can be restored.
KEYS = {"str", "int", "float", "str_", "int32", "int64", "float32", "float64"}
_MAGIC = re.compile(rb"pcsda-model ([1-9][0-9]{0,8}) ")
_HEAD = re.compile(rb"pcsda-model [0-9]+ ([0-9a-f]{64})\n([^\n]*)\n")


def save(
    model: BaseEstimator,
    path: str | os.PathLike[str],
    *,
    metrics: Mapping[str, Any] | None = None,
    table: Mapping[str, Any] | None = None,
) -> None:
    """Write a fitted model to a file that :func:`load` reads back.

    Parameters
    ----------
    model : estimator
        Any fitted estimator from this library, or a scikit-learn pipeline or search around one. It
        may contain numbers, strings, arrays, random states and scikit-learn's estimators.
    path : path
        Where to write. If writing fails, no partial file remains.
    metrics : mapping of str to numbers, optional
        Numbers to store with the model, such as error rates on a test set.
    table : mapping of str to numbers and texts, optional
        How to read and prepare tables for this model; used by the command line.

    Raises
    ------
    TypeError
        If the model contains something that cannot be stored, such as a kernel or scoring function,
        or a clusterer from another library. The message names it, and no file is written.

    Notes
    -----
    Files of kernel models, banks, and models fitted with `partial_fit` (which can be fitted
    further) contain training rows. Consider who may see such a file.
    :func:`pcsda.persistence.describe` returns the number of rows as `rows_held`. Other models
    fitted with `fit` contain no rows, only fingerprints of them, by which :meth:`PCSDA.count`
    recognises training rows.

    Examples
    --------
    >>> from pcsda import PCSDA, load, save
    >>> from pcsda.datasets import make_class_specific
    >>> X, y = make_class_specific(200, n_features=5, random_state=0, return_X_y=True)
    >>> model = PCSDA(n_subclasses=3, random_state=0).fit(X, y)
    >>> save(model, "model.pcsda", metrics={"eer": 0.1})
    >>> load("model.pcsda")
    PCSDA(n_subclasses=3, random_state=0)
    """
    if not isinstance(model, BaseEstimator) or isinstance(model, type):
        raise TypeError(f"save takes a fitted estimator, got {model!r:.100}")
    check_is_fitted(model)
    _skops_io()  # before its version is looked up, which fails with an unclear message
    facts = _facts(model) | {"metrics": _plain_metrics(metrics)}
    if table is not None:
        facts["table"] = _plain_metrics(table)
    body = json.dumps(facts, default=str).encode() + b"\n" + _packed(model)
    with whole_file(path) as file:
        file.write(b"pcsda-model %d %s\n" % (FORMAT, _checksum(body)))
        file.write(body)


def load(path: str | os.PathLike[str]) -> Any:
    """Read a model that :func:`save` wrote.

    Loading never executes code from the file. A file is rejected before any object is built if it
    contains types other than this library's and those that skops trusts, or if it would take far
    more memory or time than its size suggests. The numbers are trusted: anyone who can write the
    file can replace the model.

    Parameters
    ----------
    path : path
        The model file.

    Returns
    -------
    estimator
        The model in the state in which it was saved.

    Raises
    ------
    ValueError
        If the file is not a model file, is truncated or damaged, has a newer format, or contains
        types that are not trusted. The message gives the reason.

    Examples
    --------
    >>> from pcsda import PCSDA, load, save
    >>> from pcsda.datasets import make_class_specific
    >>> X, y = make_class_specific(200, n_features=5, random_state=0, return_X_y=True)
    >>> model = PCSDA(n_subclasses=3, random_state=0).fit(X, y)
    >>> save(model, "model.pcsda")
    >>> bool((load("model.pcsda").predict(X) == model.predict(X)).all())
    True
    """
    facts, payload = _read(path)
    trusted = TRUSTED_OLD if facts.get("format") == 1 else TRUSTED
    _skops_io()  # if it is missing, the error is not about the file
    with _as_unreadable(path):
        _check_claims(payload)
        foreign = _foreign(payload, trusted)
        if foreign & OLD_NAMES.keys():
            payload = _with_new_names(payload)
            foreign = _foreign(payload, trusted)
    if foreign:
        raise ValueError(
            f"{path} contains {', '.join(sorted(foreign))}, which model files never do; nothing "
            "was executed. Do not use the file unless you know who made it and why"
        )
    with _as_unreadable(path):
        model = _unpacked(payload, trusted)
        _renew(model)
    return model


def describe(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return facts about a model file without building the model.

    The facts are stored as a line of JSON. The checksum covers them, but nothing else verifies
    them.

    Parameters
    ----------
    path : path
        The model file.

    Returns
    -------
    dict
        `format`, `pcsda` (the version that wrote the file), `versions` (of Python and the libraries
        used), `saved` (time, UTC), `model`, `n_samples`, `n_positive`, `n_features`,
        `feature_names`, `classes`, `pos_label`, `n_subclasses`, `n_components`, `rows_held` and
        `metrics`. Unknown values are None. `rows_held` counts the training rows that a single model
        contains: kernel models need them for scoring, and `partial_fit` needs them to score
        each of these rows with a model fitted without that row.

    Examples
    --------
    >>> from pcsda import PCSDA, save
    >>> from pcsda.datasets import make_class_specific
    >>> from pcsda.persistence import describe
    >>> X, y = make_class_specific(200, n_features=5, random_state=0, return_X_y=True)
    >>> save(PCSDA(n_subclasses=3, random_state=0).fit(X, y), "model.pcsda")
    >>> facts = describe("model.pcsda")
    >>> facts["model"], facts["n_samples"], facts["n_positive"]
    ('PCSDA', 200, 20)
    """
    return _read(path)[0]


def _facts(model: BaseEstimator) -> dict[str, Any]:
    inside = unwrap(model)
    final = inside.model
    names = getattr(inside.first, "feature_names_in_", None)
    classes = getattr(final, "classes_", None)
    rows, positives = _data_size(final)
    is_one = isinstance(final, Verifier)
    beneath = {name: version(name) for name in ("numpy", "scikit-learn", "skops")}
    return {
        "format": FORMAT,
        "pcsda": version("pcsda"),
        "versions": {"python": platform.python_version(), **beneath},
        "saved": datetime.now(UTC).isoformat(timespec="seconds"),
        "model": _title(model),
        "n_samples": rows,
        "n_positive": positives,
        "n_features": getattr(inside.first, "n_features_in_", None),
        "feature_names": None if names is None else names.tolist(),
        "classes": None if classes is None else classes.tolist(),
        "pos_label": inside.label if isinstance(final, (Verifier, MixtureVerifier)) else None,
        "n_subclasses": len(final.subclass_counts_) if is_one else None,
        "n_components": getattr(final, "n_components_", None),
        "rows_held": _rows_held(final),
    }


def _data_size(final: BaseEstimator) -> tuple[float | None, float | None]:
    """Return the numbers, or total weights, of rows and positives in the fit; None if unknown."""
    if isinstance(final, VerifierBank):
        return len(final.clusters_), None
    if isinstance(final, MixtureVerifier):
        return len(final.modes_), int(np.sum(final.modes_ >= 0))
    if not isinstance(final, Verifier):
        return None, None
    if hasattr(final, "partition_") and not hasattr(final, "scatter_"):
        return len(final.partition_), int(np.sum(final.partition_ == 0))
    positives = float(final.positive_count_)
    counts = (positives + float(final.subclass_counts_.sum()), positives)
    rows, positives = (int(n) if n.is_integer() else n for n in counts)
    return rows, positives


def _rows_held(final: BaseEstimator) -> int | None:
    """Count the training rows that a single model contains; return None for other models."""
    if not isinstance(final, Verifier):
        return None
    rows = final.sample_.X if hasattr(final, "sample_") else getattr(final, "X_fit_", None)
    return 0 if rows is None else len(rows)


def _title(model: BaseEstimator) -> str:
    """Return a model's name and contents, such as "Pipeline(StandardScaler, PCSDA)"."""
    name = type(model).__name__
    inside = parts(model)
    if isinstance(model, VerifierBank):
        alike = isinstance(model.estimator, (PCSDA, KernelPCSDA, type(None)))  # avoids building one
        one = model.estimator if alike else next(iter(model.models_.values()))
        inside = (PCSDA() if one is None else one,)
    elif isinstance(model, MixtureVerifier):
        inside = (model.models_[0],)
    return f"{name}({', '.join(map(_title, inside))})" if inside else name


def _plain_metrics(metrics: Mapping[str, Any] | None) -> dict[str, Any]:
    """Convert metrics to JSON types."""

    def plain(value: object) -> Any:
        if isinstance(value, np.generic | np.ndarray):
            return value.tolist()
        raise TypeError(
            f"metrics contains {value!r:.100} of type {type(value).__name__}; a model file can "
            "store numbers, strings, and lists or dictionaries of those"
        )

    return dict(json.loads(json.dumps(dict(metrics or {}), default=plain)))


def _packed(model: BaseEstimator) -> bytes:
    """Serialise a model with skops, and check that it can be restored."""
    skops_io = _skops_io()
    title = _title(model)
    try:
        payload: bytes = skops_io.dumps(model)
        _refuse_nodes(payload, _foreign(payload), model)
        _unpacked(payload)  # a file that cannot be loaded must not be written
    except Exception as error:
        raise TypeError(f"{title} cannot be saved: {error}") from error
    return payload


def _refuse_nodes(payload: bytes, foreign: set[str], model: BaseEstimator) -> None:
    """Raise TypeError for the first part that cannot be restored, naming its place in the model."""
    with ZipFile(io.BytesIO(payload)) as archive:
        schema = json.loads(archive.read("schema.json"))
    searched = any(hasattr(step, "best_estimator_") for step in steps(model))
    remedy = "replace the search with its best_estimator_" if searched else "fit without that"
    for place, node in _nodes(schema, ""):
        if (name := _type_name(node)) in foreign:
            raise TypeError(
                f"its {place} is {name}, but a model file can store only types of pcsda and those "
                f"that skops trusts (numbers, strings, arrays, scikit-learn's estimators); {remedy}"
            )
        keys = {key["__class__"] for key in node.get("key_types", {}).get("content", ())}
        if not keys <= KEYS:
            raise TypeError(
                f"the dictionary {place} has keys of type {', '.join(sorted(keys - KEYS))}; only "
                "strings and numbers can be restored"
            )
    if foreign:
        raise TypeError(f"it holds {', '.join(sorted(foreign))}")


def _type_name(node: dict[str, Any]) -> str:
    return f"{node.get('__module__')}.{node.get('__class__')}"


def _nodes(node: object, place: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield all nodes of a skops schema, innermost first, with their place in the model."""
    if isinstance(node, dict):
        for key, value in node.items():
            deeper = place if key in ("content", "attrs") else f"{place}.{key}".lstrip(".")
            yield from _nodes(value, deeper)
        if "__class__" in node:
            yield place, node
    elif isinstance(node, list):
        for value in node:
            yield from _nodes(value, place)


def _check_claims(payload: bytes) -> None:
    """Reject a packed model that would take far more memory or time than its size suggests."""
    with ZipFile(io.BytesIO(payload)) as archive:
        check_entries(archive, len(payload))
        check_schema(json.loads(archive.read("schema.json")), archive, len(payload))


def _with_new_names(payload: bytes) -> bytes:
    """Rename types in the schema of a packed model that had other names in earlier versions."""
    packed = io.BytesIO()
    with ZipFile(io.BytesIO(payload)) as old, ZipFile(packed, "w") as new:
        for entry in old.infolist():
            data = old.read(entry)
            if entry.filename == "schema.json":
                schema = json.loads(data)
                for _, node in _nodes(schema, ""):
                    if (known := OLD_NAMES.get(_type_name(node))) is not None:
                        node.update(__module__=known.__module__, __class__=known.__name__)
                data = json.dumps(schema).encode()
            new.writestr(entry, data)
    return packed.getvalue()


def _renew(value: object) -> None:
    """Upgrade a model from an earlier version in place: convert densities, add new parameters."""
    if isinstance(value, BaseEstimator):
        if type(value).__module__ == "pcsda":
            for name, parameter in signature(type(value).__init__).parameters.items():
                if name != "self" and not hasattr(value, name):
                    setattr(value, name, parameter.default)
        if isinstance(getattr(value, "density_", None), OldDensity):
            value.density_, value.calibration_ = _renewed(value.density_, value.calibration_)
        _renew(list(vars(value).values()))
        if isinstance(value, VerifierBank) and type(value.models_) is MappingProxyType:
            _renew(list(value.models_.values()))
    elif isinstance(value, list | tuple):
        for part in value:
            _renew(part)
    elif isinstance(value, dict):
        _renew(list(value.values()))


def _renewed(density: Any, calibration: Any) -> tuple[Density, Calibration]:
    """Convert a density and calibration from format 1, which stored the weights in the density."""
    kind = Mixture if np.any(density.centres) else Marginal
    names = [part.name for part in fields(kind) if part.name != "tail"]
    kept = {name: getattr(density, name) for name in names}
    base = kind(**kept, tail=float(density.tails[0]))
    slope, offset = calibration.slope, calibration.offset
    if density.axis is None:
        return base, Calibration((1.0,)).then(slope, offset)
    weights = Calibration(tuple(density.shares), density.offset or 0.0)
    return Blend(base, density.axis, float(density.tails[1])), weights.then(slope, offset)


def _foreign(payload: bytes, trusted: list[str] = TRUSTED) -> set[str]:
    """Return the types in a packed model that are not trusted."""
    return {*_skops_io().get_untrusted_types(data=payload)} - {*trusted}


def _unpacked(payload: bytes, trusted: list[str] = TRUSTED) -> Any:
    """Build the model from its packed form; skops checks all types again before it does so."""
    model = _skops_io().loads(payload, trusted=trusted)
    if not isinstance(model, BaseEstimator):
        raise TypeError(f"it holds a {type(model).__name__}, not an estimator")
    return model


def _read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], bytes]:
    """Return a file's facts and packed model, after checking its format and checksum."""
    if os.path.isdir(path):
        raise IsADirectoryError(f"{path} is a folder; give the path of a model file")
    with open(path, "rb") as file:
        check_room(os.fstat(file.fileno()).st_size, str(path))
        data = file.read()
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
    if head is None or _checksum(memoryview(data)[head.start(2) :]) != head[1]:
        raise ValueError(
            f"{path} is damaged: it was cut off or altered after it was written ({len(data)} "
            "bytes, whose checksum does not match); get it again from where it was saved"
        )
    with _as_unreadable(path):
        facts = dict(json.loads(head[2]))
    return facts, data[head.end() :]


def _checksum(data: bytes | memoryview) -> bytes:
    return hashlib.sha256(data).hexdigest().encode()


@contextmanager
def _as_unreadable(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn any error into a ValueError which says that the file cannot be read as a model."""
    try:
        yield
    except Exception as error:
        raise ValueError(f"{path} cannot be read as a model: {error}") from error


def _skops_io() -> Any:
    return import_extra("skops.io", "model files need", "skops", NOT_INSTALLED)
