"""What skl2onnx has to know about our estimators: outputs, shapes and nodes of each."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import make_pipeline

from ..estimators import CSDA, PCSDA, PCSDACV, KernelCSDA, KernelPCSDA, VerifierBank
from ..maps import ExactKernelMap, FourierMap, NystroemMap
from ..unwrap import Unwrapped, unwrap
from . import formulas
from .graph import Graph

OUTPUTS = ("label", "probabilities", "log_likelihood_ratio", "z")
MAPS = (ExactKernelMap, NystroemMap, FourierMap)
VERIFIERS = (CSDA, PCSDA, KernelCSDA, KernelPCSDA)
MODELS = (*VERIFIERS, PCSDACV, VerifierBank)
# skl2onnx asks every classifier at the end of a pipeline about zipmap; probabilities are always an
# array here. With `raw_scores` it asks for decision values in their place, as its converters of
# scikit-learn's meta-estimators do. `transform` gives z alone, for a model in the middle of a
# pipeline. `single` keeps probabilities above the least number of single precision.
OPTIONS = {
    "zipmap": [True, False, "columns"],
    "raw_scores": [True, False],
    "transform": [True, False],
    "single": [True, False],
}


def register() -> None:
    """Make the converters known to skl2onnx; again does no harm."""
    from skl2onnx import update_registered_converter

    maps: dict[type, Any] = {kind: _convert_pivots for kind in MAPS}
    maps[FourierMap] = _convert_waves
    for kind, convert in maps.items():
        update_registered_converter(kind, f"Pcsda{kind.__name__}", _shape_map, convert)
    models: dict[type, Any] = {kind: _convert_verifier for kind in VERIFIERS}
    models |= {PCSDACV: _convert_search, VerifierBank: _convert_bank}
    for kind, convert in models.items():
        update_registered_converter(
            kind,
            f"Pcsda{kind.__name__}",
            _shape_model,
            convert,
            parser=_parse_model,
            options=OPTIONS,
        )


def output_types(model: Any, kind: type, rows: Any = None) -> list[Any]:
    """Types with shapes of the four outputs; `kind` is that of the numbers."""
    final = unwrap(model).model
    label = _label_type()[_labels(final.classes_).dtype.kind == "U"]
    count = len(final.classes_)
    if isinstance(final, VerifierBank):
        axes = max(unwrap(one).model.n_components_ for one in final.models_.values())
        shapes = [[rows, count], [rows, count], [rows, count, axes]]
    else:
        shapes = [[rows, count], [rows], [rows, final.n_components_]]
    return [label([rows]), *(kind(shape) for shape in shapes)]


def _label_type() -> tuple[type, type]:
    from skl2onnx.common.data_types import Int64TensorType, StringTensorType

    return Int64TensorType, StringTensorType


def _labels(classes: NDArray[Any]) -> NDArray[Any]:
    """Labels as ONNX has them: whole numbers or texts."""
    if classes.dtype.kind in "biu":
        return classes.astype(np.int64)
    if classes.dtype.kind == "f" and np.all(classes == np.round(classes)):
        return classes.astype(np.int64)
    if all(isinstance(label, str) for label in classes.tolist()):
        return classes.astype(str)
    raise ValueError(
        f"labels {classes[:4].tolist()} of type {classes.dtype} have no place in an ONNX graph; "
        "use whole numbers or texts as labels"
    )


def _parse_model(scope: Any, model: Any, inputs: Any, custom_parsers: Any = None) -> Any:
    """Declare the outputs of a model: all four, or z alone."""
    from skl2onnx import get_model_alias
    from skl2onnx.common.data_types import guess_tensor_type

    operator = scope.declare_local_operator(get_model_alias(type(model)), model)
    operator.inputs = inputs
    types = output_types(model, type(guess_tensor_type(inputs[0].type)))
    alone = _asked(scope, model, "transform")
    for name, kind in list(zip(OUTPUTS, types, strict=True))[3 * alone :]:
        operator.outputs.append(scope.declare_local_variable(name, kind))
    return operator.outputs


def _asked(scope: Any, model: Any, option: str) -> bool:
    return bool(scope.get_options(model, {option: False})[option])


def _shape_model(operator: Any) -> None:
    rows = _checked_rows(operator)
    types = output_types(operator.raw_operator, type(operator.outputs[-1].type), rows)
    if len(operator.outputs) == 1:
        types = types[3:]
    for variable, kind in zip(operator.outputs, types, strict=False):
        variable.set_type(kind)


def _shape_map(operator: Any) -> None:
    rows = _checked_rows(operator)
    operator.outputs[0].type.shape = [rows, operator.raw_operator.n_components_]


def _checked_rows(operator: Any) -> Any:
    """Number of rows, where it is known, of an input that has the right number of columns."""
    from skl2onnx.common.utils import check_input_and_output_numbers

    check_input_and_output_numbers(operator, input_count_range=1)
    model, given = operator.raw_operator, operator.inputs[0]
    columns = given.get_second_dimension()
    if columns not in (None, model.n_features_in_):
        raise ValueError(
            f"the input has {columns} columns, but {type(model).__name__} was fitted on "
            f"{model.n_features_in_}; declare as many"
        )
    return given.get_first_dimension()


def _give(graph: Graph, operator: Any, results: list[str]) -> None:
    """Write the results asked for: all, the first few, or the coordinates alone."""
    if len(operator.outputs) == 1:
        results = results[3:]
    for values, variable in zip(results, operator.outputs, strict=False):
        graph.write(values, variable)


def _start(scope: Any, operator: Any, container: Any) -> tuple[Graph, str]:
    graph = Graph(scope, container)
    return graph, graph.double(operator.inputs[0].full_name)


def _coordinates(graph: Graph, X: str, models: list[Any]) -> str:
    if hasattr(models[0], "dual_coef_"):
        _refuse_functions(models[0].kernel_)
        return formulas.kernel_coordinates(graph, X, models)
    return formulas.linear_coordinates(graph, X, models)


def _refuse_functions(kernel: Any) -> None:
    if callable(kernel.metric):
        raise NotImplementedError(
            f"kernel={kernel.metric!r} is a function of Python, which an ONNX graph cannot hold; "
            "use a kernel by name, or kernel='precomputed' and compute its values outside"
        )


def _label_of(graph: Graph, classes: NDArray[Any], index: str) -> str:
    from onnx import TensorProto

    whole = graph("Cast", index, to=TensorProto.INT64)
    return graph("Gather", _labels(classes), graph("Reshape", whole, np.array([-1])))


def _convert_verifier(scope: Any, operator: Any, container: Any) -> None:
    model = operator.raw_operator
    graph, X = _start(scope, operator, container)
    z = _coordinates(graph, X, [model])
    ratio = formulas.log_likelihood_ratios(graph, z, [model])
    sign = 2.0 * unwrap(model).index - 1.0
    odds = graph("Add", graph("Mul", ratio, sign), formulas.prior_odds([model]))
    label = _label_of(graph, model.classes_, graph("GreaterOrEqual", odds, 0.0))
    both = graph("Mul", odds, np.array([[-1.0, 1.0]]))
    if not _asked(scope, model, "raw_scores"):
        both = graph("Max", formulas.chances(graph, both), _smallest(scope, operator))
    ratio = graph("Reshape", ratio, np.array([-1]))
    z = graph("Reshape", z, np.array([-1, model.n_components_]))
    _give(graph, operator, [label, both, ratio, z])


def _smallest(scope: Any, operator: Any) -> float:
    """Least probability that is given out, as in `predict_proba`."""
    from skl2onnx.common.data_types import DoubleTensorType

    double = isinstance(operator.outputs[-1].type, DoubleTensorType)
    single = not double or _asked(scope, operator.raw_operator, "single")
    return float(np.finfo(np.float32 if single else np.float64).tiny)


def _convert_bank(scope: Any, operator: Any, container: Any) -> None:
    bank = operator.raw_operator
    graph = Graph(scope, container)
    inside = [unwrap(model) for model in bank.models_.values()]
    models = [one.model for one in inside]
    if any(one.before for one in inside):
        ratios, z = _one_by_one(graph, operator.inputs, inside)
    else:
        z = _coordinates(graph, graph.double(operator.inputs[0].full_name), models)
        ratios = formulas.log_likelihood_ratios(graph, z, models)
        z = graph("Transpose", z, perm=[1, 0, 2])
    odds = graph("Add", ratios, formulas.prior_odds(models))
    label = _label_of(graph, bank.classes_, graph("ArgMax", odds, axis=1, keepdims=0))
    if len(models) == 2:  # the second against the first
        odds = graph("MatMul", odds, np.array([[1.0, -1.0], [-1.0, 1.0]]))
    if _asked(scope, bank, "raw_scores"):
        probabilities = odds
    elif len(models) == 2:
        probabilities = formulas.chances(graph, odds)
    else:
        probabilities = graph("Softmax", formulas.log_chances(graph, odds), axis=1)
    _give(graph, operator, [label, probabilities, ratios, z])


def _one_by_one(graph: Graph, inputs: Any, inside: list[Unwrapped]) -> tuple[str, str]:
    """Log-likelihood ratios and coordinates of models that each have steps of their own."""
    from skl2onnx.common.data_types import DoubleTensorType

    wide = max(one.model.n_components_ for one in inside)
    ratios, z = [], []
    for one in inside:
        _, _, ratio, own = _inside(graph.scope, one, inputs, DoubleTensorType)
        ratios.append(graph("Reshape", ratio, np.array([-1, 1])))
        filled = graph("MatMul", own, np.eye(one.model.n_components_, wide))
        z.append(graph("Reshape", filled, np.array([0, 1, wide])))
    return graph("Concat", *ratios, axis=1), graph("Concat", *z, axis=1)


def _inside(scope: Any, inside: Unwrapped, inputs: Any, kind: type) -> list[str]:
    """The four outputs of a model that is part of another, by its own converter."""
    from skl2onnx import get_model_alias

    model = make_pipeline(*inside.before, inside.model) if inside.before else inside.model
    inner = scope.declare_local_operator(get_model_alias(type(model)), model)
    inner.inputs = inputs
    for name, shape in zip(OUTPUTS, output_types(model, kind), strict=True):
        inner.outputs.append(scope.declare_local_variable(name, shape))
    return [variable.full_name for variable in inner.outputs]


def _convert_search(scope: Any, operator: Any, container: Any) -> None:
    """Hand over to the converter of the model that was chosen."""
    search, kind = operator.raw_operator, type(operator.outputs[-1].type)
    best = unwrap(search)
    if _asked(scope, search, "raw_scores"):
        for collector in (scope, container):
            collector.add_options(id(best.model), {"raw_scores": True})
    results = _inside(scope, best, operator.inputs, kind)
    _give(Graph(scope, container), operator, results)


def _convert_pivots(scope: Any, operator: Any, container: Any) -> None:
    model = operator.raw_operator
    _refuse_functions(model.kernel_)
    graph, X = _start(scope, operator, container)
    if model.kernel_.metric == "precomputed":
        values = graph("Gather", X, np.asarray(model.pivot_indices_), axis=1)
    else:
        rows = np.asarray(model.pivots_, dtype=np.float64)
        values = formulas.kernel_values(graph, model.kernel_, X, rows)
    graph.write(graph("MatMul", values, model.whitening_), operator.outputs[0])


def _convert_waves(scope: Any, operator: Any, container: Any) -> None:
    model = operator.raw_operator
    graph, X = _start(scope, operator, container)
    X = graph("Sub", X, model.origin_.astype(np.float64))
    frequencies = model.frequencies_.astype(np.float64)
    count = frequencies.shape[1]
    cosines = graph("Cos", graph("MatMul", X, frequencies))
    rest = model.n_components_ - count
    both = cosines
    if rest:
        sines = graph("Sin", graph("MatMul", X, frequencies[:, :rest]))
        both = graph("Concat", cosines, sines, axis=1)
    graph.write(graph("Mul", both, float(np.sqrt(1 / count))), operator.outputs[0])
