"""Model files on the command line: open one, say what is in it, write it in another format."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

from ..onnx_export import export_onnx
from ..persistence import describe, load
from ..scoring import Scorer
from . import tables
from .printing import show_json, show_table
from .problems import Problem, check_target, needs


def open_model(path: str) -> Scorer:
    """Load a model file."""
    needs("skops", "skops", "to read model files")
    if not Path(path).is_file():
        raise Problem(f"{path} is not a file; give a model file that 'pcsda fit' wrote")
    return Scorer(load(path))


def label_of(scorer: Scorer, text: str) -> Any:
    """The label of a model that is written like this."""
    for label in scorer.labels:
        if tables.as_text(label) == text:
            return label
    known = [tables.as_text(label) for label in scorer.labels]
    raise Problem(f"--positive {text}: the model has no such label; it has {tables.listed(known)}")


def inspect(arguments: Namespace) -> None:
    """Say what a model file holds."""
    path = arguments.model
    scorer = open_model(path)
    facts = {"file": path, "bytes": Path(path).stat().st_size, **describe(path)}
    facts["parameters"] = _parameters(scorer)
    facts["models"] = [{"label": label, **_details(scorer, label)} for label in scorer.labels]
    if arguments.json:
        show_json(facts)
        return
    models = facts.pop("models")
    names = facts.pop("feature_names")
    facts["columns"] = "without names" if names is None else tables.listed(names)
    facts["classes"] = tables.listed(facts["classes"])
    rows = []
    for name, value in facts.items():
        if isinstance(value, dict):
            value = ", ".join(f"{key}={entry}" for key, entry in value.items())
        if value not in (None, ""):
            rows.append((name.replace("_", " "), str(value)))
    show_table(rows, ("fact", "value"))
    print()
    show_table([tuple(model.values()) for model in models], tuple(models[0]))


def _parameters(scorer: Scorer) -> dict[str, Any]:
    """Parameters that differ from the defaults of the library."""
    model = scorer.verifier(scorer.labels[0])
    defaults = type(model)().get_params()
    given = model.get_params()
    return {n: v for n, v in given.items() if repr(v) != repr(defaults[n]) and n != "pos_label"}


def _details(scorer: Scorer, label: Any) -> dict[str, Any]:
    model = scorer.verifier(label)
    return {
        "subclasses": len(model.subclass_counts_),
        "dimensions": model.n_components_,
        "prior": scorer.prior(label),
        "largest eigenvalue": float(model.eigenvalues_[0]),
        "calibration slope": float(model.calibration_.slope),
        "calibration offset": float(model.calibration_.offset),
    }


def export(arguments: Namespace) -> None:
    """Write a model as ONNX."""
    check_target(arguments.onnx, arguments.model)
    for package in ("onnx", "skl2onnx"):
        needs(package, "onnx", "to export models")
    export_onnx(open_model(arguments.model).model, arguments.onnx, dtype=arguments.dtype)
    size = Path(arguments.onnx).stat().st_size
    if arguments.json:
        show_json({"file": arguments.onnx, "bytes": size})
    else:
        print(f"{arguments.onnx}: {size} bytes.")
