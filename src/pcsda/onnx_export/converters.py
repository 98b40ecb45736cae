"""skl2onnx converters for our estimators; they declare outputs and shapes, and add nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.pipeline import make_pipeline

from ..estimators import (
    CSDA,
    PCSDA,
    PCSDACV,
    KernelCSDA,
    KernelPCSDA,
    MixtureVerifier,
    MultilinearCSDA,
    Verifier,
    VerifierBank,
)
from ..maps import ExactKernelMap, FourierMap, NystroemMap
from ..unwrap import Unwrapped, unwrap
from . import formulas
from .graph import Graph, asked, wanted

if TYPE_CHECKING:
    from skl2onnx.common._container import ModelComponentContainer as Container
    from skl2onnx.common._topology import Operator, Scope, Variable

    from ..kernels import Kernel

# Only a model with a threshold has the last output.
OUTPUTS = ("label", "probabilities", "log_likelihood_ratio", "z", "accepted")
MAPS = (ExactKernelMap, NystroemMap, FourierMap)
MODELS = (
    *(CSDA, PCSDA, KernelCSDA, KernelPCSDA, MultilinearCSDA),
    *(MixtureVerifier, PCSDACV, VerifierBank),
)
# skl2onnx passes zipmap to every classifier at the end of a pipeline; probabilities are always an
# array here. With `raw_scores`, skl2onnx requests decision values instead, as its converters for
# scikit-learn's meta-estimators do. With `transform`, a model returns only z, as it must in the
# middle of a pipeline. `single` keeps probabilities above the smallest float32 number.
OPTIONS: dict[str, list[Any]] = {"zipmap": [True, False, "columns"]}
OPTIONS |= {name: [True, False] for name in ("raw_scores", "transform", "single")}


def register() -> None:
    """Register the converters with skl2onnx; registering again is harmless."""
    from skl2onnx import update_registered_converter

    for transformer in MAPS:
        name = f"Pcsda{transformer.__name__}"
        update_registered_converter(transformer, name, _shape_map, _convert)
    more: dict[str, Any] = {"parser": _parse_model, "options": OPTIONS}
    for model in MODELS:
        update_registered_converter(model, f"Pcsda{model.__name__}", _shape_model, _convert, **more)


def _convert(scope: Scope, operator: Operator, container: Container) -> None:
    """Add the nodes for a map or model to the graph."""
    converters: dict[type, Callable[[Graph], None]] = {
        FourierMap: _convert_waves,
        MixtureVerifier: _convert_mixture,
        PCSDACV: _convert_search,
        VerifierBank: _convert_bank,
        **dict.fromkeys((ExactKernelMap, NystroemMap), _convert_pivots),
    }
    graph = Graph(scope, operator, container)
    converters.get(type(graph.model), _convert_verifier)(graph)


def output_types(model: BaseEstimator, kind: type, rows: int | None = None) -> list[Any]:
    """Return the types of a model's outputs, with their shapes, in the order of `OUTPUTS`.

    `kind` is the type of the numeric outputs. `rows` is the number of rows, or None if it may vary.
    """
    from skl2onnx.common.data_types import BooleanTensorType, Int64TensorType, StringTensorType

    final = unwrap(model).model
    is_text = _labels(final.classes_).dtype.kind == "U"
    label = (StringTensorType if is_text else Int64TensorType)([rows])
    count = len(final.classes_)
    if isinstance(final, VerifierBank):
        axes = _widest(final.models_.values())
        shapes = [[rows, count], [rows, count], [rows, count, axes]]
    elif isinstance(final, MixtureVerifier):
        shapes = [[rows, count], [rows], [rows, final.n_modes_, _widest(final.models_)]]
    else:
        shapes = [[rows, count], [rows], [rows, final.n_components_]]
    accepted = [BooleanTensorType([rows])] if hasattr(final, "threshold_") else []
    return [label, *map(kind, shapes), *accepted]


def _widest(models: Iterable[BaseEstimator]) -> int:
    """Return the largest number of axes that any of the models has."""
    inside = [unwrap(model).model for model in models]
    if isinstance(inside[0], MixtureVerifier):
        raise ValueError(
            "a bank of MixtureVerifier has no ONNX graph; export the models of its labels, in "
            "models_, one by one"
        )
    return max(int(model.n_components_) for model in inside)


def _labels(classes: NDArray[Any]) -> NDArray[Any]:
    """Convert labels to a type that ONNX supports: integers or strings."""
    whole = classes.dtype.kind == "f" and np.all(classes == np.round(classes))
    if whole or classes.dtype.kind in "biu":
        return classes.astype(np.int64)
    if all(isinstance(label, str) for label in classes.tolist()):
        return classes.astype(str)
    raise ValueError(
        f"labels {classes[:4].tolist()} of type {classes.dtype} cannot be stored in an ONNX graph; "
        "use integers or strings as labels"
    )


def _parse_model(
    scope: Scope, model: BaseEstimator, inputs: list[Variable], custom_parsers: object = None
) -> list[Variable]:
    """Declare a model's outputs: only `z` if the option `transform` is set, otherwise all."""
    from skl2onnx.common.data_types import guess_tensor_type

    kind = type(guess_tensor_type(inputs[0].type))
    chosen = slice(3, 4) if asked(scope, model, "transform") else slice(None)
    return _declared(scope, model, inputs, kind, chosen)


def _declared(
    scope: Scope, model: BaseEstimator, given: list[Variable], kind: type, only: slice = slice(None)
) -> list[Variable]:
    """Declare a model as a node with a subset of its outputs."""
    from skl2onnx import get_model_alias

    operator = scope.declare_local_operator(get_model_alias(type(model)), model)
    operator.inputs = given
    named = list(zip(OUTPUTS, output_types(model, kind), strict=False))
    for name, shape in named[only]:
        operator.outputs.append(scope.declare_local_variable(name, shape))
    outputs: list[Variable] = operator.outputs
    return outputs


def _shape_model(operator: Operator) -> None:
    rows = _checked_rows(operator)
    types = output_types(operator.raw_operator, _number_type(operator), rows)
    outputs = operator.outputs
    for variable, kind in zip(outputs, wanted(types, len(outputs)), strict=False):
        variable.set_type(kind)


def _number_type(operator: Operator) -> type:
    """Return the type of the numeric outputs.

    It is the type of the probabilities, or of `z` if that is the only output.
    """
    return type(operator.outputs[:2][-1].type)


def _shape_map(operator: Operator) -> None:
    rows = _checked_rows(operator)
    operator.outputs[0].type.shape = [rows, operator.raw_operator.n_components_]


def _checked_rows(operator: Operator) -> int | None:
    """Check the number of input columns, and return the number of rows, or None if it may vary."""
    from skl2onnx.common.utils import check_input_and_output_numbers

    check_input_and_output_numbers(operator, input_count_range=1)
    model, given = operator.raw_operator, operator.inputs[0]
    columns = given.get_second_dimension()
    if columns not in (None, model.n_features_in_):
        raise ValueError(
            f"the input has {columns} columns, but {type(model).__name__} was fitted on "
            f"{model.n_features_in_}; declare that many"
        )
    rows: int | None = given.get_first_dimension()
    return rows


def _coordinates(graph: Graph, X: str, models: list[Verifier]) -> str:
    if hasattr(models[0], "dual_coef_"):
        _refuse_functions(models[0].kernel_)
        return formulas.kernel_coordinates(graph, X, models)
    return formulas.linear_coordinates(graph, X, models)


def _refuse_functions(kernel: Kernel) -> None:
    if callable(kernel.metric):
        raise NotImplementedError(
            f"kernel={kernel.metric!r} is a Python function, which an ONNX graph cannot hold; "
            "use a kernel by name, or kernel='precomputed' and compute its values outside"
        )


def _label_of(graph: Graph, classes: NDArray[Any], index: str) -> str:
    from onnx import TensorProto

    whole = graph("Cast", index, to=TensorProto.INT64)
    return graph("Gather", _labels(classes), graph("Reshape", whole, np.array([-1])))


def _convert_verifier(graph: Graph) -> None:
    model = graph.model
    z = _coordinates(graph, graph.input(), [model])
    ratio = formulas.log_likelihood_ratios(graph, z, [model])
    _write_one(graph, ratio, graph("Reshape", z, np.array([-1, model.n_components_])))


def _convert_mixture(graph: Graph) -> None:
    """Convert a mixture: combine the ratios from the verifiers of its modes, and calibrate them."""
    model = graph.model
    ratios, z = _one_by_one(graph, [unwrap(one) for one in model.models_])
    shares = np.log(model.mode_counts_ / model.mode_counts_.sum())
    joined = graph.reduce("ReduceLogSumExp", graph("Add", ratios, shares), 1)
    calibration = model.calibration_
    ratio = graph("Add", graph("Mul", joined, calibration.slope), calibration.offset)
    _write_one(graph, graph("Reshape", ratio, np.array([-1, 1])), z)


def _write_one(graph: Graph, ratio: str, z: str) -> None:
    """Write the outputs of a verifier for one class, from `ratio` of shape (rows, 1) and `z`."""
    model = graph.model
    sign = 2.0 * unwrap(model).index - 1.0
    odds = graph("Add", graph("Mul", ratio, sign), formulas.prior_odds([model]))
    label = _label_of(graph, model.classes_, graph("GreaterOrEqual", odds, 0.0))
    both = graph("Mul", odds, np.array([[-1.0, 1.0]]))
    if not asked(graph.scope, graph.model, "raw_scores"):
        both = graph("Max", formulas.chances(graph, both), _smallest(graph))
    ratio = graph("Reshape", ratio, np.array([-1]))
    accepted = []
    if hasattr(model, "threshold_"):
        accepted = [graph("GreaterOrEqual", ratio, model.threshold_.value)]
    graph.write(label, both, ratio, z, *accepted)


def _smallest(graph: Graph) -> float:
    """Return the smallest probability that the output can have, as in `predict_proba`."""
    from skl2onnx.common.data_types import DoubleTensorType

    double = _number_type(graph.operator) is DoubleTensorType
    kind = np.float64 if double and not asked(graph.scope, graph.model, "single") else np.float32
    return float(np.finfo(kind).tiny)


def _convert_bank(graph: Graph) -> None:
    inside = [unwrap(model) for model in graph.model.models_.values()]
    models = [one.model for one in inside]
    shared = graph.model.unit_length_
    if any(one.before for one in inside) and not shared:
        ratios, z = _one_by_one(graph, inside)
    else:
        X = formulas.of_unit_length(graph, graph.input()) if shared else graph.input()
        z = _coordinates(graph, X, models)
        ratios = formulas.log_likelihood_ratios(graph, z, models)
        z = graph("Transpose", z, perm=[1, 0, 2])
    odds = graph("Add", ratios, formulas.prior_odds(models))
    label = _label_of(graph, graph.model.classes_, graph("ArgMax", odds, axis=1, keepdims=0))
    if len(models) == 2:  # the odds of each label against the other
        odds = graph("MatMul", odds, np.array([[1.0, -1.0], [-1.0, 1.0]]))
    if asked(graph.scope, graph.model, "raw_scores"):
        probabilities = odds
    elif len(models) == 2:
        probabilities = formulas.chances(graph, odds)
    else:
        probabilities = graph("Softmax", formulas.log_chances(graph, odds), axis=1)
    accepted = []
    if hasattr(graph.model, "threshold_"):  # whether identify names the row
        best = graph.reduce("ReduceMax", ratios, 1)
        accepted = [graph("GreaterOrEqual", best, graph.model.threshold_.value)]
    graph.write(label, probabilities, ratios, z, *accepted)


def _one_by_one(graph: Graph, inside: list[Unwrapped]) -> tuple[str, str]:
    """Convert models one by one, each with the steps before it.

    Return the log-likelihood ratios and the coordinates of all models.
    """
    from skl2onnx.common.data_types import DoubleTensorType

    wide = max(one.model.n_components_ for one in inside)
    ratios, z = [], []
    for one in inside:
        _, _, ratio, own, *_ = _inside(graph, one, DoubleTensorType)
        ratios.append(graph("Reshape", ratio, np.array([-1, 1])))
        filled = graph("MatMul", own, np.eye(one.model.n_components_, wide))
        z.append(graph("Reshape", filled, np.array([0, 1, wide])))
    return graph("Concat", *ratios, axis=1), graph("Concat", *z, axis=1)


def _inside(graph: Graph, inside: Unwrapped, kind: type) -> list[str]:
    """Add a nested model, using its own converter, and return the names of its outputs."""
    model = make_pipeline(*inside.before, inside.model) if inside.before else inside.model
    outputs = _declared(graph.scope, model, graph.operator.inputs, kind)
    return [variable.full_name for variable in outputs]


def _convert_search(graph: Graph) -> None:
    """Convert a search using the converter for its chosen model."""
    best = unwrap(graph.model)
    if asked(graph.scope, graph.model, "raw_scores"):
        for collector in (graph.scope, graph.container):
            collector.add_options(id(best.model), {"raw_scores": True})
    graph.write(*_inside(graph, best, _number_type(graph.operator)))


def _convert_pivots(graph: Graph) -> None:
    model, X = graph.model, graph.input()
    _refuse_functions(model.kernel_)
    if hasattr(model, "basis_"):  # a linear kernel: features come from the rows
        values = X
    elif model.kernel_.metric == "precomputed":
        values = graph("Gather", X, np.asarray(model.pivot_indices_), axis=1)
    else:
        rows = np.asarray(model.pivots_, dtype=np.float64)
        values = formulas.kernel_values(graph, model.kernel_, X, rows)
    graph.write(graph("MatMul", values, model.whitening_))


def _convert_waves(graph: Graph) -> None:
    model = graph.model
    X = graph("Sub", graph.input(), model.origin_.astype(np.float64))
    frequencies = model.frequencies_.astype(np.float64)
    count, rest = frequencies.shape[1], model.n_components_ - frequencies.shape[1]
    angles = graph("MatMul", X, np.hstack([frequencies, frequencies[:, :rest]]))
    # Cosines as shifted sines: many versions of onnxruntime have no Cos for float64.
    shifts = np.repeat([np.pi / 2, 0.0], [count, rest])
    waves = graph("Sin", graph("Add", angles, shifts))
    graph.write(graph("Mul", waves, float(np.sqrt(1 / count))))
