"""The formulas of prediction as nodes of a graph: kernels, coordinates, densities, decisions.

All models of a bank are computed side by side, in arrays of shape (models, rows, axes). Models of
fewer axes or subclasses than others are filled up with what adds nothing; a model alone is a bank
of one.

Habits of ONNX Runtime shape the formulas. It joins a product of matrices and a number beside it
into one node that keeps the number in single precision, so numbers go into the matrix. It drops a
factor that is almost one, so factors are kept away from one. It joins a transposition and a product
into a node that ends the process where there are no rows, so arrays are transposed only after the
last product.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.preprocessing import normalize

from ..core.density import Blend, Density, Mixture
from ..core.student import log_volume
from ..estimators.verifier import FARTHEST
from ..kernels import Kernel
from .graph import Graph

Array = NDArray[np.float64]
TINY = float(np.finfo(np.float64).tiny)
# Stands for the logarithm of nothing where a model has fewer subclasses than others.
NOTHING = -1e300


def kernel_values(graph: Graph, kernel: Kernel, X: str, rows: Array) -> str:
    """Values of a kernel between the rows of X and those that a model keeps."""
    gamma = float(kernel.gamma or 0)
    metric = kernel.metric
    if metric == "rbf":
        # About a common origin: an offset would cost the digits of the distances.
        origin = rows.mean(axis=0)
        X, rows = graph("Sub", X, origin), rows - origin
        values = graph("MatMul", X, 2 * gamma * rows.T)
        sizes = graph("MatMul", graph("Mul", X, X), np.full((rows.shape[1], 1), gamma))
        values = graph("Sub", values, sizes)
        values = graph("Sub", values, gamma * np.einsum("ij,ij->i", rows, rows))
        return graph("Exp", graph("Min", values, 0.0))
    if metric in ("laplacian", "chi2"):
        return graph("Exp", graph("Mul", _distances(graph, str(metric), X, rows), -gamma))
    if metric == "cosine":
        largest = np.abs(rows).max(axis=1, keepdims=True)
        X, rows = _of_unit_length(graph, X), normalize(rows / np.maximum(largest, TINY))
    if metric == "linear" and kernel.origin is not None:
        X, rows = graph("Sub", X, kernel.origin), rows - kernel.origin
    if metric in ("linear", "cosine"):
        return graph("MatMul", X, rows.T)
    values = graph("Add", graph("MatMul", X, gamma * rows.T), float(kernel.coef0))
    if metric == "sigmoid":
        return graph("Tanh", values)
    return graph("Pow", values, float(kernel.degree))


def _of_unit_length(graph: Graph, X: str) -> str:
    """Rows of length one, or zero; they are made of one size first, so that no square overflows."""
    largest = graph.reduce("ReduceMax", graph("Abs", X), 1, keep=True)
    X = graph("Div", X, graph("Max", largest, TINY))
    length = graph("Sqrt", graph.reduce("ReduceSumSquare", X, 1, keep=True))
    return graph("Div", X, graph("Max", length, TINY))


def _distances(graph: Graph, metric: str, X: str, rows: Array) -> str:
    """Sums over features of |x - y| or (x - y)^2 / (x + y), one row of X after the other.

    All at once would take an array of rows times rows times features.
    """
    from onnx import TensorProto, helper

    kept, axes, tiny = graph.constant(rows), graph.constant(np.array([1])), graph.constant(TINY)
    part = helper.make_node
    body = [part("Sub", ["row", kept], ["difference"])]
    if metric == "laplacian":
        body += [part("Abs", ["difference"], ["terms"])]
    else:
        body += [
            part("Mul", ["difference", "difference"], ["square"]),
            part("Add", ["row", kept], ["sum"]),
            part("Max", ["sum", tiny], ["divisor"]),  # both zero: the square is zero too
            part("Div", ["square", "divisor"], ["terms"]),
        ]
    body += [part("ReduceSum", ["terms", axes], ["distances"], keepdims=0)]
    inside = helper.make_tensor_value_info("row", TensorProto.DOUBLE, [rows.shape[1]])
    outside = helper.make_tensor_value_info("distances", TensorProto.DOUBLE, [len(rows)])
    loop = helper.make_graph(body, "distances_of_a_row", [inside], [outside])
    # ONNX Runtime's Scan needs a row to begin with: one more is added and taken away.
    X = graph("Concat", X, np.zeros((1, rows.shape[1])), axis=0)
    distances = graph("Scan", X, body=loop, num_scan_inputs=1)
    return graph("Slice", distances, np.array([0]), np.array([-1]), np.array([0]))


def linear_coordinates(graph: Graph, X: str, models: Sequence[Any]) -> str:
    """Coordinates (models, rows, axes) of linear models."""
    means = np.array([model.positive_mean_ for model in models], dtype=np.float64)
    origin = means.mean(axis=0)
    size = (_widest(models), len(origin))
    directions = np.stack([_filled(model.components_, size).T for model in models])
    shifts = (means - origin)[:, None, :] @ directions
    return graph("Sub", graph("MatMul", graph("Sub", X, origin), directions), shifts)


def kernel_coordinates(graph: Graph, X: str, models: Sequence[Any]) -> str:
    """Coordinates (models, rows, axes) of kernel models; rows kept in common are used once."""
    wide = _widest(models)
    groups: dict[Any, list[int]] = {}
    for index, model in enumerate(models):
        common = index if model.X_fit_ is None else (id(model.X_fit_), id(model.kernel_))
        groups.setdefault(common, []).append(index)
    parts = []
    for chosen in groups.values():
        alike = [models[index] for index in chosen]
        first = alike[0]
        if first.X_fit_ is None:
            values = graph("Gather", X, np.asarray(first.support_), axis=1)
        else:
            rows = np.asarray(first.X_fit_, dtype=np.float64)
            values = kernel_values(graph, first.kernel_, X, rows)
        size = (len(first.dual_coef_), wide)
        coefficients = np.stack([_filled(model.dual_coef_, size) for model in alike])
        origins = np.stack([_filled(model.origin_, (wide,))[None] for model in alike])
        parts.append(graph("Sub", graph("MatMul", values, coefficients), origins))
    if len(parts) == 1:
        return parts[0]
    order = [index for chosen in groups.values() for index in chosen]
    return graph("Gather", graph("Concat", *parts, axis=0), np.argsort(order), axis=0)


def log_likelihood_ratios(graph: Graph, z: str, models: Sequence[Any]) -> str:
    """Calibrated log-likelihood ratios (rows, models) from coordinates."""
    z = _bounded(graph, z)
    densities = [model.density_ for model in models]
    weights = np.array([_filled(model.calibration_.weights, (2,)) for model in models])
    wide = _widest(models)
    mixtures = [density.base for density in densities]
    ratio = _scaled(graph, _log_ratios(graph, z, mixtures, wide), weights[:, :1])
    if weights[:, 1].any():
        # On an axis of a blend; a model without one gets zeros, and a weight of nothing.
        axes = [_on_axis(density) for density in densities]
        columns = np.stack([_filled(axis[:, None], (wide, 1)) for axis, _ in axes])
        clouds = _log_ratios(graph, graph("MatMul", z, columns), [cloud for _, cloud in axes], 1)
        ratio = graph("Add", ratio, _scaled(graph, clouds, weights[:, 1:]))
    ratio = graph("Add", ratio, np.array([[model.calibration_.offset] for model in models]))
    return graph("Transpose", ratio, perm=[1, 0])


def _on_axis(density: Density) -> tuple[Array, Mixture]:
    """Fisher's axis of a blend with the cloud on it; of others, an axis of no length."""
    if isinstance(density, Blend):
        return density.axis, density.cloud
    base = density.base
    one = replace(base.margin([0]), centres=np.zeros((1, 1)), log_weights=np.zeros(1))
    return np.zeros(len(base.positive)), one


def _log_ratios(graph: Graph, z: str, densities: Sequence[Mixture], wide: int) -> str:
    """Log ratios (models, rows) of one view of each density, not calibrated."""
    most = max(len(density.centres) for density in densities)
    positive, negative, pulls, sizes, levels, volumes = [], [], [], [], [], []
    for density in densities:
        inside, outside = density.white
        at_centres = density.centres @ outside.T
        positive.append(_filled(inside.T, (wide, wide)))
        negative.append(_filled(outside.T, (wide, wide)))
        pulls.append(_filled((at_centres @ outside).T, (wide, most)))
        sizes.append(_filled(np.einsum("ij,ij->i", at_centres, at_centres), (most,))[None])
        levels.append(_filled(density.log_weights, (most,), NOTHING)[None])
        volumes.append([log_volume(inside) - log_volume(outside)])
    tails = np.array([[density.tail] for density in densities])
    widths = np.array([[len(density.positive)] for density in densities], dtype=np.float64)
    near = graph.reduce("ReduceSumSquare", graph("MatMul", z, np.array(positive)), 2)
    far = graph.reduce("ReduceSumSquare", graph("MatMul", z, np.array(negative)), 2)
    heavy = bool(np.isfinite(tails).any())
    if not heavy:
        level = np.array(levels) - 0.5 * np.array(sizes)
        centres = graph("Add", graph("MatMul", z, np.array(pulls)), level)
        ratio = graph("Mul", graph("Sub", far, near), 0.5)
    else:
        apart = graph("MatMul", z, -2 * np.array(pulls))
        apart = graph("Add", graph("Add", apart, np.array(sizes)), _column(graph, far))
        energies = _energy(graph, apart, widths[..., None], tails[..., None])
        centres = graph("Sub", np.array(levels), energies)
        ratio = graph("Neg", _energy(graph, near, widths, tails))
    ratio = graph("Sub", ratio, graph.reduce("ReduceLogSumExp", centres, 2))
    return graph("Add", ratio, np.array(volumes))


def _column(graph: Graph, values: str) -> str:
    return graph("Unsqueeze", values, np.array([2]))


def _energy(graph: Graph, squares: str, widths: Array, tails: Array) -> str:
    """Half the squares, or what takes their place in densities with tails; see `core.student`."""
    gaussian = np.isinf(tails)
    spread = np.where(gaussian, 1.0, tails - 2)
    factors = np.where(gaussian, 0.0, 0.5 * (np.where(gaussian, 0.0, tails) + widths))
    squares = graph("Max", squares, 0.0)
    heavy = graph("Log", graph("Add", _scaled(graph, squares, 1 / spread), 1.0))
    heavy = graph("Mul", heavy, factors)
    if not gaussian.any():
        return heavy
    return graph("Add", heavy, graph("Mul", squares, np.where(gaussian, 0.5, 0.0)))


def _scaled(graph: Graph, values: str, factors: Array) -> str:
    """Values times factors; a power of two costs no digit, the rest lies between 1/4 and 1/2."""
    parts, powers = np.frexp(factors)
    return graph("Mul", graph("Mul", values, parts / 2), np.ldexp(2.0, powers))


def _bounded(graph: Graph, z: str) -> str:
    """Coordinates, shortened where their squares would overflow."""
    far = graph.reduce("ReduceMax", graph("Abs", z), 2, keep=True)
    share = graph("Div", FARTHEST, graph("Max", far, 1.0))
    return graph("Mul", z, graph("Min", share, 1.0))


def prior_odds(models: Sequence[Any]) -> Array:
    """Logarithms of the prior of the second class over that of the first."""
    priors = np.array([model.class_prior_ for model in models])
    logs: Array = np.log(priors[:, 1] / priors[:, 0])
    return logs


def chances(graph: Graph, odds: str) -> str:
    """Probabilities of log odds; ONNX Runtime's own Sigmoid has but half the digits."""
    return graph("Reciprocal", graph("Add", graph("Exp", graph("Neg", odds)), 1.0))


def log_chances(graph: Graph, odds: str) -> str:
    """Logarithms of the probabilities of log odds."""
    tail = graph("Exp", graph("Neg", graph("Abs", odds)))
    return graph("Sub", graph("Min", odds, 0.0), graph("Log", graph("Add", tail, 1.0)))


def _widest(models: Sequence[Any]) -> int:
    return max(model.n_components_ for model in models)


def _filled(values: Any, shape: tuple[int, ...], filling: float = 0.0) -> Array:
    """An array of this shape with `values` in its corner."""
    result = np.full(shape, filling)
    result[tuple(slice(size) for size in np.shape(values))] = values
    return result
