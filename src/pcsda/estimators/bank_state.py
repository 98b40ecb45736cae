"""The state of a bank in files and pickles, and how to read that of earlier versions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .bank_scores import Labels
from .changes import BankRows, Settings
from .doors import Door
from .kindred_labels import KindredLabels
from .pooled_labels import PooledLabels
from .separate import SeparateLabels


def stored(state: dict[str, Any]) -> dict[str, Any]:
    """Return the state of a fitted bank with arrays in place of its rows and labels.

    The factorisation is not stored, because it is large and can be recomputed. Models are stored as
    a list, because JSON would turn the keys of a dict into strings.
    """
    state = dict(state)
    rows, fitted = state.pop("_rows"), state.pop("_labels_")
    state |= {"_X": rows.X, "_labels": rows.labels, "_keys": rows.keys}
    state |= {"_together": rows.together, "_ids": rows.ids}
    if isinstance(fitted, PooledLabels):
        state["_pooled"] = fitted.state()
    elif isinstance(fitted, KindredLabels):
        state["_kindred"] = fitted.state()
        support = fitted.support
        same = support is None or np.array_equal(support, rows.X)
        state["_support"] = None if same else support
    else:
        state |= {"models_": list(fitted.models), "_door": dict(vars(fitted.door))}
    return state


def restored(state: dict[str, Any]) -> tuple[dict[str, Any], Callable[[Settings], Labels] | None]:
    """Return the state of a bank from what is stored, and a function that makes its labels.

    The function takes the bank's settings; it is None if the bank is not fitted.
    """
    state = dict(state)
    state.setdefault("calibration", "per-label")  # the only choice in version 0.1.0
    pooled, models = state.pop("_pooled", None), state.pop("models_", None)
    kindred, support = state.pop("_kindred", None), state.pop("_support", None)
    door = state.pop("_door", None)  # absent in earlier versions
    if pooled is None and models is None and kindred is None:
        return state, None
    for name in ("_source", "_factor", "_matrix"):  # stored by earlier versions
        state.pop(name, None)
    rows, kernel = _rows_of(state), state.get("kernel_")
    state["_rows"] = rows
    unit: bool = state.setdefault("unit_length_", False)  # absent in earlier versions

    def labels(settings: Settings) -> Labels:
        if pooled is not None:
            return PooledLabels.of_state(pooled, settings, rows, kernel)
        if kindred is not None:
            held = rows.X if kernel is not None and support is None else support
            return KindredLabels(settings, kindred, kernel, held, unit=unit)
        found = SeparateLabels(settings, rows, state.get("ridge_"), kernel, models)
        found.door = Door.empty() if door is None else Door.of(door)
        return found

    return state, labels


def _rows_of(state: dict[str, Any]) -> BankRows:
    """Take a bank's rows from its state."""
    X, labels, keys = state.pop("_X"), state.pop("_labels"), state.pop("_keys", None)
    together, ids = state.pop("_together", None), state.pop("_ids", None)
    if keys is None:  # absent in earlier versions
        keys = np.random.default_rng(state["_seed"]).random(len(X))
    return BankRows(X, labels, state["clusters_"], keys, together, ids)
