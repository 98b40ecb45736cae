"""Add double-precision ONNX nodes to the container that skl2onnx provides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

if TYPE_CHECKING:
    # The types that skl2onnx passes to converters; its documentation names no others.
    from skl2onnx.common._container import ModelComponentContainer as Container
    from skl2onnx.common._topology import Operator, Scope

Item = TypeVar("Item")


class Graph:
    """Adds nodes to the graph that skl2onnx builds, and names each node by its output.

    Everything is computed in double precision, whatever the input type: a log-likelihood ratio is a
    difference of squares, which would have too few correct digits in single precision.
    """

    def __init__(self, scope: Scope, operator: Operator, container: Container) -> None:
        self.scope = scope
        self.operator = operator
        self.container = container
        self.model: Any = operator.raw_operator

    def constant(self, values: ArrayLike) -> str:
        """Store an array in the graph as doubles, 64-bit integers or strings; return its name."""
        from onnx import TensorProto, numpy_helper

        name: str = self.scope.get_unique_variable_name("constant")
        array = np.asarray(values)
        if array.dtype.kind in "US":
            texts = [text.encode() for text in array.ravel().tolist()]
            self.container.add_initializer(name, TensorProto.STRING, array.shape, texts)
            return name
        wide = np.int64 if array.dtype.kind in "iu" else np.float64
        tensor = numpy_helper.from_array(np.ascontiguousarray(array, dtype=wide))
        self.container.add_initializer(name, tensor.data_type, array.shape, tensor)
        return name

    def __call__(
        self, operator: str, *inputs: ArrayLike, output: str | None = None, **options: Any
    ) -> str:
        """Add a node and return its name.

        The inputs are names of other nodes, or arrays to store in the graph.
        """
        name: str = output or self.scope.get_unique_variable_name(operator.lower())
        names = [part if isinstance(part, str) else self.constant(part) for part in inputs]
        unique = self.scope.get_unique_operator_name(operator)
        self.container.add_node(operator, names, [name], name=unique, **options)
        return name

    def reduce(self, operator: str, values: str, axis: int, *, keep: bool = False) -> str:
        """Add a node that reduces one axis, which newer operator sets take as an input."""
        since = 13 if operator == "ReduceSum" else 18
        if self.container.target_opset >= since:
            return self(operator, values, np.array([axis]), keepdims=int(keep))
        return self(operator, values, axes=[axis], keepdims=int(keep))

    def input(self) -> str:
        """Return the model's input in double precision."""
        from onnx import TensorProto

        return self("Cast", self.operator.inputs[0].full_name, to=TensorProto.DOUBLE)

    def write(self, *results: str) -> None:
        """Convert results to the types of the requested outputs, and give them their names."""
        outputs = self.operator.outputs
        for values, variable in zip(wanted(results, len(outputs)), outputs, strict=False):
            kind = variable.type.to_onnx_type().tensor_type.elem_type
            self("Cast", values, output=variable.full_name, to=kind)


def asked(scope: Scope, model: BaseEstimator, option: str) -> bool:
    """Return whether a skl2onnx option is set for a model."""
    return bool(scope.get_options(model, {option: False})[option])


def wanted(outputs: Sequence[Item], count: int) -> Sequence[Item]:
    """Return the outputs to write, in order, if `count` outputs were requested.

    A single requested output is `z` for a model and the features for a map. Otherwise all outputs
    are returned, and the caller uses the first `count`.
    """
    return (outputs[3:4] or outputs) if count == 1 else outputs
