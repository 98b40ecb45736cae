"""Filling in missing values with plain ONNX operators.

skl2onnx writes the operator Imputer, for which ONNX Runtime has no double-precision version.
"""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.impute import KNNImputer, SimpleImputer

from ..core.linalg import Array
from .graph import Graph

if TYPE_CHECKING:
    from skl2onnx.common._container import ModelComponentContainer as Container
    from skl2onnx.common._topology import Operator, Scope


def functions() -> dict[str, dict[type, Any]]:
    """Return the arguments that make ``skl2onnx.convert_sklearn`` use this module."""
    return {
        "custom_shape_calculators": {SimpleImputer: _shape, KNNImputer: _refuse_neighbours},
        "custom_conversion_functions": {SimpleImputer: _convert},
    }


def _shape(operator: Operator) -> None:
    kept, _ = _kept_and_fillings(operator.raw_operator)
    operator.outputs[0].type.shape = [operator.inputs[0].get_first_dimension(), len(kept)]


def _convert(scope: Scope, operator: Operator, container: Container) -> None:
    graph = Graph(scope, operator, container)
    kept, fillings = _kept_and_fillings(graph.model)
    X = graph("Gather", graph.input(), kept, axis=1)
    graph.write(graph("Where", graph("IsNaN", X), fillings, X))


def _kept_and_fillings(imputer: SimpleImputer) -> tuple[NDArray[np.int64], Array]:
    """Return the columns that an imputer keeps, and the value that it fills in for each.

    For any strategy, both are found by letting the imputer transform two rows: one of column
    numbers and one of missing values. An imputer may leave out a column that had no values in the
    fit.
    """
    _refuse(imputer)
    numbers = np.arange(imputer.n_features_in_, dtype=np.float64)
    with warnings.catch_warnings(action="ignore"):  # columns left out, or without names
        shown = imputer.transform(np.stack([numbers, np.full_like(numbers, np.nan)]))
    kept, fillings = np.asarray(shown, dtype=np.float64)
    return kept.astype(np.int64), fillings


def _refuse(imputer: SimpleImputer) -> None:
    remedy = "fill in the values before the graph, or fit SimpleImputer without this setting"
    missing = imputer.missing_values
    if imputer.add_indicator:
        raise ValueError(f"add_indicator=True of SimpleImputer cannot be exported; {remedy}")
    if not (isinstance(missing, float) and math.isnan(missing)):
        raise ValueError(
            f"missing_values={missing!r} of SimpleImputer cannot be exported, only NaN; {remedy}"
        )


def _refuse_neighbours(operator: Operator) -> None:
    raise ValueError(
        "KNNImputer cannot be exported; fill in the values before the graph, or use SimpleImputer"
    )
