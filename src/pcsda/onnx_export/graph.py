"""A pen for ONNX graphs: nodes in double precision, written where skl2onnx collects them."""

from __future__ import annotations

from typing import Any

import numpy as np


class Graph:
    """Adds nodes to what skl2onnx is building; a node is called by the name of its output.

    Everything is computed in double precision, whatever the type of the input: a log-likelihood
    ratio is a difference of squares, and single precision would leave too few digits of it.
    """

    def __init__(self, scope: Any, container: Any) -> None:
        self.scope = scope
        self.container = container

    def constant(self, values: Any) -> str:
        """Keep an array in the graph: numbers as double, whole numbers and texts as they are."""
        from onnx import TensorProto, numpy_helper

        name: str = self.scope.get_unique_variable_name("constant")
        values = np.asarray(values)
        if values.dtype.kind in "US":
            texts = [text.encode() for text in values.ravel().tolist()]
            self.container.add_initializer(name, TensorProto.STRING, values.shape, texts)
            return name
        wide = np.int64 if values.dtype.kind in "iu" else np.float64
        tensor = numpy_helper.from_array(np.ascontiguousarray(values, dtype=wide))
        self.container.add_initializer(name, tensor.data_type, values.shape, tensor)
        return name

    def __call__(
        self, operator: str, *inputs: Any, output: str | None = None, **options: Any
    ) -> str:
        """Add a node; inputs are names of other nodes, or arrays to keep in the graph."""
        name: str = output or self.scope.get_unique_variable_name(operator.lower())
        names = [part if isinstance(part, str) else self.constant(part) for part in inputs]
        unique = self.scope.get_unique_operator_name(operator)
        self.container.add_node(operator, names, [name], name=unique, **options)
        return name

    def reduce(self, operator: str, values: str, axis: int, *, keep: bool = False) -> str:
        """Add a node that goes over one axis; what was an option of it is now an input."""
        since = 13 if operator == "ReduceSum" else 18
        if self.container.target_opset >= since:
            return self(operator, values, np.array([axis]), keepdims=int(keep))
        return self(operator, values, axes=[axis], keepdims=int(keep))

    def double(self, values: str) -> str:
        """Turn an input into double precision."""
        from onnx import TensorProto

        return self("Cast", values, to=TensorProto.DOUBLE)

    def write(self, values: str, variable: Any) -> None:
        """Give out a result under the name and in the type of a variable of skl2onnx."""
        kind = variable.type.to_onnx_type().tensor_type.elem_type
        self("Cast", values, output=variable.full_name, to=kind)
