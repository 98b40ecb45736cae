"""Facts about a model and the test data, in words."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from ..core.linalg import Array
from ..estimators import MixtureVerifier
from ..partition import counted
from ..scoring import Scorer
from ..unwrap import unwrap

# Name of the fact that says how many rows a bank with a threshold names correctly.
NAMES = "Names by identify"


def naming_fact(scorer: Scorer, labels: NDArray[Any], ratios: Array) -> str:
    """Describe the results of `identify`, which applies its threshold to the best label only."""
    best, value = ratios.argmax(axis=1), scorer.final.threshold_.value
    at_threshold = ratios.max(axis=1) >= value
    truth = np.column_stack([labels == label for label in scorer.labels])
    known, right = truth.any(axis=1), truth[np.arange(len(labels)), best]
    text = (
        f"at its threshold {value:.4g} it names {(right & at_threshold).sum():,} of "
        f"{known.sum():,} rows of its labels correctly, "
        f"{(known & ~right & at_threshold).sum():,} wrongly, and calls "
        f"{(known & ~at_threshold).sum():,} unknown"
    )
    if known.all():
        return text
    return f"{text}; of {(~known).sum():,} strangers it names {(~known & at_threshold).sum():,}"


def changed_parameters(model: BaseEstimator) -> dict[str, Any]:
    """Return the parameters that differ from the library defaults."""
    defaults = type(model)().get_params()
    given = model.get_params(deep=False).items()
    return {n: v for n, v in given if n != "pos_label" and repr(v) != repr(defaults[n])}


def facts_about(scorer: Scorer, labels: NDArray[Any]) -> dict[str, str]:
    """Return short descriptions of the model and the test data, by name."""
    models = [scorer.verifier(label) for label in scorer.labels]
    kind = type(models[0]).__name__
    kind = f"bank of {len(models)} {kind} models" if scorer.is_bank else kind
    before = [type(step).__name__ for step in unwrap(scorer.model).before]
    given = [
        f"{name}={value!r:.60}"
        for name, value in changed_parameters(models[0]).items()
        if name not in ("verbose", "n_jobs")
    ]
    if isinstance(models[0], MixtureVerifier):
        sizes = {"Modes": str(models[0].n_modes_)}
    else:
        sizes = {
            "Subclasses": _span([len(model.subclass_counts_) for model in models]),
            "Dimensions of the subspace": _span([model.n_components_ for model in models]),
        }
        # Each label of a bank has its own subclasses, named in its plot.
        if not scorer.is_bank and (names := getattr(models[0], "subclass_names_", None)):
            sizes["Subclasses"] += ": " + ", ".join(counted(names))
    chosen = {} if scorer.threshold is None else {"Threshold of the model": str(scorer.threshold)}
    return {
        "Model": ", ".join([*before, kind]),
        "Parameters": ", ".join(given) or "defaults",
        **sizes,
        "Features": str(scorer.n_features),
        "Test rows": str(len(labels)),
        "Labels in the test": str(len(np.unique(labels.astype(str)))),
        **chosen,
    }


def _span(values: list[int]) -> str:
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low} to {high}"
