"""Export fitted models as ONNX graphs, which run without Python."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import make_pipeline
from sklearn.utils.validation import check_is_fitted

from .. import validation
from ..estimators import Verifier
from ..unwrap import Unwrapped, unwrap
from ..writing import whole_file
from . import imputing
from .converters import MAPS, MODELS, OUTPUTS, output_types, register

if TYPE_CHECKING:
    from onnx import ModelProto

__all__ = ["export_onnx", "register_onnx"]


def export_onnx(
    model: BaseEstimator,
    path: str | os.PathLike[str],
    *,
    dtype: str = "float32",
    target_opset: int | None = None,
) -> None:
    """Write a fitted model to a file as an ONNX graph.

    Parameters
    ----------
    model : estimator
        CSDA, PCSDA, their kernel versions, VerifierBank or a kernel map, or a pipeline or search
        with one of these after steps that skl2onnx supports, such as scikit-learn's scalers and
        SimpleImputer for NaN without `add_indicator`.
    path : path
        File to write. If writing fails, no partial file remains.
    dtype : {"float32", "float64"}, default="float32"
        Type of the input and outputs. The graph itself computes in double precision.
    target_opset : int or None, default=None
        Version of the ONNX operators, at least 13; None means the latest that skl2onnx supports.

    Notes
    -----
    The graph has one input, `X` of shape (rows, features), and four outputs: `label`,
    `probabilities` (rows, classes), `log_likelihood_ratio` and `z`. For a bank the log-likelihood
    ratio has a column for each label, and `z` has the shape (rows, labels, axes), with zeros beyond
    the axes of a label's model. A model with a `threshold_` has a fifth output, the boolean
    `accepted`. A map has a single output, `features`. Boolean labels become 0 and 1. The metadata
    contain the classes, the class of interest and the version of pcsda.

    Examples
    --------
    >>> import onnxruntime
    >>> from pcsda import PCSDA, export_onnx
    >>> from pcsda.datasets import make_class_specific
    >>> X, y = make_class_specific(200, n_features=5, random_state=0, return_X_y=True)
    >>> model = PCSDA(n_subclasses=3, random_state=0).fit(X, y)
    >>> export_onnx(model, "model.onnx", dtype="float64")
    >>> session = onnxruntime.InferenceSession("model.onnx")
    >>> (llr,) = session.run(["log_likelihood_ratio"], {"X": X})
    >>> bool(abs(llr - model.log_likelihood_ratio(X)).max() < 1e-9)
    True
    """
    validation.check_option("dtype", dtype, ("float32", "float64"))
    check_is_fitted(model)
    inside = unwrap(model)
    final = inside.model
    if not isinstance(final, MAPS + MODELS):
        raise TypeError(
            "export_onnx takes a model of pcsda, or a pipeline or search that ends in one, got "
            f"{type(final).__name__}; for others call register_onnx() and then skl2onnx.to_onnx"
        )
    register_onnx()
    from skl2onnx import convert_sklearn
    from skl2onnx.common.data_types import DoubleTensorType, FloatTensorType
    from skl2onnx.sklapi import CastTransformer

    if target_opset is not None and target_opset < 13:
        raise ValueError(f"target_opset={target_opset} must be at least 13")
    kind = FloatTensorType if dtype == "float32" else DoubleTensorType
    if isinstance(final, MAPS):
        outputs = [("features", kind([None, final.n_components_]))]
    else:
        outputs = list(zip(OUTPUTS, output_types(final, kind), strict=False))
    # All steps, including scikit-learn's, compute in double precision, so that nothing is rounded
    # between them.
    steps = make_pipeline(CastTransformer(dtype=np.float64), *inside.before, final)
    with _naming_columns(inside):
        graph = convert_sklearn(
            steps,
            name=type(final).__name__,
            initial_types=[("X", kind([None, getattr(inside.first, "n_features_in_", None)]))],
            final_types=outputs,
            target_opset=target_opset,
            options=_options(inside, dtype == "float32"),
            **imputing.functions(),
        )
    _describe(graph, inside)
    content = graph.SerializeToString()
    _check_runs(content)
    with whole_file(path) as file:
        file.write(content)


def register_onnx() -> None:
    """Register our estimators with skl2onnx, so that it can convert pipelines containing them.

    :func:`export_onnx` does this automatically; call this function before ``skl2onnx.to_onnx`` or
    ``skl2onnx.convert_sklearn``. A model at the end of a pipeline has the outputs described in
    :func:`export_onnx`. For a model inside a pipeline, where it is a transformer, give skl2onnx the
    option ``{PCSDA: {"transform": True}}``.

    Examples
    --------
    >>> import skl2onnx
    >>> from pcsda import PCSDA, register_onnx
    >>> from pcsda.datasets import make_class_specific
    >>> X, y = make_class_specific(200, n_features=5, random_state=0, return_X_y=True)
    >>> register_onnx()
    >>> graph = skl2onnx.to_onnx(PCSDA(n_subclasses=3, random_state=0).fit(X, y), X[:1])
    >>> [output.name for output in graph.graph.output]
    ['label', 'probabilities', 'log_likelihood_ratio', 'z']
    """
    validation.import_extra("skl2onnx", "ONNX needs", "onnx", validation.NOT_INSTALLED)
    register()


@contextmanager
def _naming_columns(inside: Unwrapped) -> Iterator[None]:
    """Explain that skl2onnx knows neither names nor places of the columns of our pipelines."""
    try:
        yield
    except (RuntimeError, AssertionError, TypeError, LookupError) as error:
        if not any(isinstance(step, ColumnTransformer) for step in inside.before):
            raise
        raise ValueError(
            "ColumnTransformer cannot be exported here if it takes several columns, or columns by "
            "name; choose the columns before the pipeline, or use steps that take them all"
        ) from error


def _options(inside: Unwrapped, single: bool) -> dict[int, dict[str, bool]]:
    """Return the skl2onnx options for our models, which depend on their place in a pipeline."""
    options = {id(step): {"transform": True} for step in inside.before if isinstance(step, MODELS)}
    if isinstance(inside.model, MODELS):
        options[id(inside.model)] = {"single": single}
    return options


def _check_runs(content: bytes) -> None:
    """Reject a graph that ONNX Runtime cannot load; check nothing if it is not installed."""
    try:
        import onnxruntime
    except ImportError:
        return
    try:
        onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    except Exception as error:  # its exceptions share no base class
        raise ValueError(
            f"ONNX Runtime {onnxruntime.__version__} cannot load the graph: {error}. Steps before "
            "the model need operators in double precision: do them outside the graph, or give an "
            "earlier target_opset if the message is about the opset"
        ) from error


def _describe(graph: ModelProto, inside: Unwrapped) -> None:
    from onnx import helper

    final = inside.model
    facts: dict[str, Any] = {"pcsda": version("pcsda"), "model": type(final).__name__}
    if hasattr(final, "classes_"):
        facts["classes"] = json.dumps(final.classes_.tolist())
    if isinstance(final, Verifier):
        facts["class_of_interest"] = json.dumps(inside.label)
    helper.set_model_props(graph, facts)
