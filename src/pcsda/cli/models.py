"""The commands `inspect` and `export`, and functions that open model files for all commands."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .. import tables
from ..estimators import MixtureVerifier
from ..onnx_export import export_onnx
from ..partition import counted
from ..persistence import load
from ..report.facts import changed_parameters
from ..scoring import Scorer
from ..unwrap import unwrap
from .preparing import facts_of
from .printing import show_json, show_table
from .problems import Problem, check_target, needs

# Number of subclass names listed on the line of each label in a bank.
MOST_TOLD = 4


def open_model(path: str) -> Scorer:
    """Load a model file."""
    needs("skops", "skops", "to read model files")
    if not Path(path).is_file():
        raise Problem(f"{path} is not a file; give a model file that 'pcsda fit' wrote")
    return Scorer(load(path))


def label_of(scorer: Scorer, text: str | None) -> Any:
    """Return the label named by --positive or, without that option, the first label."""
    if not text:
        return scorer.labels[0]
    known = {tables.as_text(label): label for label in scorer.labels}
    if text not in known:
        ending = tables.did_you_mean(text, list(known), "it has")
        raise Problem(f"--positive {text}: the model has no such label{ending}")
    return known[text]


def inspect(a: Namespace) -> None:
    """Print what a model file contains."""
    scorer = open_model(a.model)
    facts = {"file": a.model, "bytes": Path(a.model).stat().st_size, **facts_of(a.model)}
    facts["parameters"] = changed_parameters(scorer.verifier(scorer.labels[0]))
    facts["models"] = [{"label": label, **_details(scorer, label)} for label in scorer.labels]
    threshold = getattr(scorer.final, "threshold_", None) if scorer.is_bank else scorer.threshold
    if a.json:
        facts["subclasses"] = subclasses_of(scorer)
        show_json(facts if threshold is None else facts | {"threshold": asdict(threshold)})
        return
    facts["threshold"] = threshold
    models = facts.pop("models")
    names = facts.pop("feature_names")
    facts["columns"] = "without names" if names is None else tables.listed(names)
    facts["classes"] = tables.listed(facts["classes"])
    rows = []
    for name, value in facts.items():
        if isinstance(value, dict):
            shown = {k: f"{v:.4g}" if isinstance(v, float) else v for k, v in value.items()}
            value = ", ".join(f"{key}={entry}" for key, entry in shown.items())
        if value not in (None, ""):
            rows.append((name.replace("_", " "), str(value)))
    show_table(rows, ("fact", "value"))
    print()
    show_table([tuple(model.values()) for model in models], tuple(models[0]))
    named = [] if scorer.is_bank else subclasses_of(scorer)
    if named:
        print()
        show_table([tuple(one.values()) for one in named], tuple(named[0]))


def subclasses_of(scorer: Scorer) -> list[dict[str, Any]]:
    """List the subclasses of each model, with names and examples; skip models without either."""
    found = []
    for label in scorer.labels:
        model = scorer.verifier(label)
        if scorer.is_bank:
            model = unwrap(scorer.final.named_model(label)).model
        parts = {"rows are": "subclass_names_", "examples": "subclass_examples_"}
        known = {title: getattr(model, n) for title, n in parts.items() if hasattr(model, n)}
        if not known:
            continue
        known = {"weight": model.subclass_counts_.tolist(), **known}
        of_bank = {"label": label} if scorer.is_bank else {}
        found += [
            {**of_bank, "subclass": number, **dict(zip(known, line, strict=True))}
            for number, line in enumerate(zip(*known.values(), strict=True), 1)
        ]
    return found


def _details(scorer: Scorer, label: object) -> dict[str, Any]:
    model = scorer.verifier(label)
    found: dict[str, Any] = {"prior": scorer.prior(label)}
    if isinstance(model, MixtureVerifier):
        found = {"modes": model.n_modes_} | found
    else:
        sizes = {"subclasses": len(model.subclass_counts_), "dimensions": model.n_components_}
        found = sizes | found | {"largest eigenvalue": float(model.eigenvalues_[0])}
    for part in ("slope", "offset"):
        found[f"calibration {part}"] = float(getattr(model.calibration_, part))
    if scorer.is_bank and hasattr(model, "subclass_names_"):
        # With --json, each subclass is listed.
        found["subclasses are"] = tables.listed(counted(model.subclass_names_), MOST_TOLD)
    return found


def export(a: Namespace) -> None:
    """Write a model to an ONNX file."""
    check_target(a.onnx, a.model)
    for package in ("onnx", "skl2onnx"):
        needs(package, "onnx", "to export models")
    export_onnx(open_model(a.model).model, a.onnx, dtype=a.dtype)
    size = Path(a.onnx).stat().st_size
    if a.json:
        show_json({"file": a.onnx, "bytes": size})
    else:
        print(f"{a.onnx}: {size} bytes.")
