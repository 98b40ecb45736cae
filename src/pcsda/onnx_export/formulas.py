"""Prediction formulas as graph nodes: kernels, coordinates, densities and decisions.

All models of a bank are computed together, in arrays of shape (models, rows, axes). Models with
fewer axes or subclasses are padded with values that have no effect; a single model is treated as a
bank with one label.

Quirks of ONNX Runtime shape the formulas. It fuses a matrix product and an adjacent scalar into one
node that stores the scalar in single precision, so scalars are multiplied into the matrix. It drops
factors close to one, so factors are kept away from one. It fuses a transposition and a product into
a node that crashes the process if there are no rows, so arrays are transposed only after the last
product.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike
from sklearn.preprocessing import normalize

from ..core.density import Blend, Density, Mixture
from ..core.linalg import Array
from ..core.near import Near
from ..core.pair import Pair
from ..estimators import Verifier
from ..estimators.ratios import FARTHEST
from ..kernels import Kernel
from .graph import Graph

TINY = float(np.finfo(np.float64).tiny)
# The logarithm of a zero weight, for models with fewer subclasses; no ratio is below it.
NOTHING = -1e300


def kernel_values(graph: Graph, kernel: Kernel, X: str, rows: Array) -> str:
    """Compute kernel values between the rows of X and a model's stored rows."""
    gamma = float(kernel.gamma or 0)
    metric = kernel.metric
    if metric == "rbf":
        # Use a common origin, because an offset would cost precision in the distances.
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
        X, rows = of_unit_length(graph, X), normalize(rows / np.maximum(largest, TINY))
    if metric == "linear" and kernel.origin is not None:
        X, rows = graph("Sub", X, kernel.origin), rows - kernel.origin
    if metric in ("linear", "cosine"):
        return graph("MatMul", X, rows.T)
    values = graph("Add", graph("MatMul", X, gamma * rows.T), float(kernel.coef0))
    if metric == "sigmoid":
        return graph("Tanh", values)
    return graph("Pow", values, float(kernel.degree))


def of_unit_length(graph: Graph, X: str) -> str:
    """Scale nonzero rows to length one, dividing by the largest entry first to avoid overflow."""
    largest = graph.reduce("ReduceMax", graph("Abs", X), 1, keep=True)
    X = graph("Div", X, graph("Max", largest, TINY))
    length = graph("Sqrt", graph.reduce("ReduceSumSquare", X, 1, keep=True))
    return graph("Div", X, graph("Max", length, TINY))


def _distances(graph: Graph, metric: str, X: str, rows: Array) -> str:
    """Compute distances between rows x of X and `rows` y.

    A distance is the sum of |x - y| or (x - y)^2 / (x + y) over the features. The graph takes the
    rows of X one at a time; all at once would need an array of size rows x rows x features.
    """
    from onnx import TensorProto, helper

    kept, axes, tiny = graph.constant(rows), graph.constant(np.array([1])), graph.constant(TINY)
    nodes = [("Sub", ["row", kept], "difference")]
    if metric == "laplacian":
        nodes += [("Abs", ["difference"], "terms")]
    else:
        nodes += [
            ("Mul", ["difference", "difference"], "square"),
            ("Add", ["row", kept], "sum"),
            ("Max", ["sum", tiny], "divisor"),  # if both are zero, so is the square
            ("Div", ["square", "divisor"], "terms"),
        ]
    body = [helper.make_node(operator, given, [name]) for operator, given, name in nodes]
    body += [helper.make_node("ReduceSum", ["terms", axes], ["distances"], keepdims=0)]
    inside = helper.make_tensor_value_info("row", TensorProto.DOUBLE, [rows.shape[1]])
    outside = helper.make_tensor_value_info("distances", TensorProto.DOUBLE, [len(rows)])
    loop = helper.make_graph(body, "distances_of_a_row", [inside], [outside])
    # ONNX Runtime's Scan needs at least one row: one is added, and removed afterwards.
    X = graph("Concat", X, np.zeros((1, rows.shape[1])), axis=0)
    distances = graph("Scan", X, body=loop, num_scan_inputs=1)
    return graph("Slice", distances, np.array([0]), np.array([-1]), np.array([0]))


def linear_coordinates(graph: Graph, X: str, models: Sequence[Verifier]) -> str:
    """Compute coordinates for linear models, of shape (models, rows, axes)."""
    means = np.array([model.positive_mean_ for model in models], dtype=np.float64)
    origin = means.mean(axis=0)
    size = (_widest(models), len(origin))
    directions = np.stack([_filled(model.components_, size).T for model in models])
    shifts = (means - origin)[:, None, :] @ directions
    return graph("Sub", graph("MatMul", graph("Sub", X, origin), directions), shifts)


def kernel_coordinates(graph: Graph, X: str, models: Sequence[Verifier]) -> str:
    """Compute coordinates for kernel models, of shape (models, rows, axes).

    For models that share training rows and kernel, the kernel values are computed only once.
    """
    wide = _widest(models)
    groups: dict[object, list[int]] = {}
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


def log_likelihood_ratios(graph: Graph, z: str, models: Sequence[Verifier]) -> str:
    """Compute calibrated log-likelihood ratios, of shape (rows, models), from coordinates."""
    z, wide = _bounded(graph, z), _widest(models)
    halves = [_halves(model) for model in models]
    ratio = _weighted(graph, z, [first for first, _ in halves], wide)
    if any(second is not None for _, second in halves):
        # Models without a second density get zeros with zero weight.
        others = [second or replace(first, weights=(0.0,)) for first, second in halves]
        ratio = graph("Add", ratio, _weighted(graph, z, others, wide))
    ratio = graph("Add", ratio, np.array([[model.calibration_.offset] for model in models]))
    return graph("Transpose", _bent(graph, ratio, models), perm=[1, 0])


@dataclass(frozen=True)
class _Half:
    """A density, the axes on which it is defined, and the weights of its views."""

    density: Density
    axes: slice
    weights: tuple[float, ...]


def _halves(model: Verifier) -> tuple[_Half, _Half | None]:
    """Return the density of a model or, if it has a pair of densities, both of them."""
    density, weights = model.density_, model.calibration_.weights
    if not isinstance(density, Pair):
        return _Half(density, slice(None), weights), None
    views, width = density.first.n_views, len(density.base.positive)
    first = _Half(density.first, slice(width), weights[:views])
    return first, _Half(density.second, slice(width, None), weights[views:])


def _weighted(graph: Graph, z: str, halves: Sequence[_Half], wide: int) -> str:
    """Compute the weighted sums of the views of a density of each model, of shape (models, rows).

    `z` holds coordinates on all axes of the models, at most `wide`.
    """
    nears, halves = [half.density for half in halves], [_inner(half) for half in halves]
    densities = [half.density for half in halves]
    chosen = [np.eye(wide)[:, half.axes][:, : len(half.density.base.positive)] for half in halves]
    if any(half.axes != slice(None) for half in halves):
        wide = max(part.shape[1] for part in chosen)
        z = graph("MatMul", z, np.stack([_filled(part, (len(part), wide)) for part in chosen]))
    weights = np.array([_filled(half.weights, (2,)) for half in halves])
    mixtures = [density.base for density in densities]
    ratio = _scaled(graph, _log_ratios(graph, z, mixtures, wide), weights[:, :1])
    if weights[:, 1].any():
        # A blend has a second density, on its Fisher axis. Other models get zeros with zero weight.
        axes = [_on_axis(density) for density in densities]
        columns = np.stack([_filled(axis[:, None], (wide, 1)) for axis, _ in axes])
        clouds = _log_ratios(graph, graph("MatMul", z, columns), [cloud for _, cloud in axes], 1)
        ratio = graph("Add", ratio, _scaled(graph, clouds, weights[:, 1:]))
    if any(isinstance(near, Near) for near in nears):
        ratio = graph("Sub", ratio, _distance(graph, z, nears, weights))
    return ratio


def _inner(half: _Half) -> _Half:
    """Return the half without the distance, which is half of each view."""
    if not isinstance(half.density, Near):
        return half
    weights = tuple(0.5 * weight for weight in half.weights)
    return replace(half, density=half.density.inner, weights=weights)


def _distance(graph: Graph, z: str, nears: Sequence[Density], weights: Array) -> str:
    """Compute what the distance takes from the ratio, of shape (models, rows).

    `weights` holds those of the other half of each view.
    """
    reach, scale = np.ones((len(nears), 1)), np.zeros((len(nears), 1))
    for place, near in enumerate(nears):
        if isinstance(near, Near):
            reach[place] = near.reach
            scale[place] = 2 * weights[place, : near.n_views] @ near.scales
    squares = graph.reduce("ReduceSumSquare", z, 2)
    falling = graph("Log", graph("Add", graph("Div", squares, reach), 1.0))
    return graph("Mul", falling, scale)


def _bent(graph: Graph, ratios: str, models: Sequence[Verifier]) -> str:
    """Bend ratios, of shape (models, rows), by each model's calibration; see `core.calibration`."""
    calibrations = [model.calibration_ for model in models]
    bent = np.array([[part.is_bent] for part in calibrations])
    if not bent.any():
        return ratios
    bends = np.where(bent, [[part.bend] for part in calibrations], 1.0)
    tops = np.where(bent, [[max(part.top, NOTHING)] for part in calibrations], NOTHING)
    highest = np.array([[min(part.highest, -NOTHING)] for part in calibrations])
    inner = graph("Min", graph("Max", ratios, tops), highest)
    apart = graph("Sub", ratios, inner)
    distance = graph("Div", graph("Abs", apart), bends)
    logarithm = graph("Mul", graph("Log", graph("Add", distance, 1.0)), graph("Sign", apart))
    return graph("Add", inner, graph("Mul", logarithm, bends))


def _on_axis(density: Density) -> tuple[Array, Mixture]:
    """Return the Fisher axis of a blend, and the density on that axis.

    For a density that is not a blend, return an axis of zeros and a placeholder density.
    """
    if isinstance(density, Blend):
        return density.axis, density.cloud
    base = density.base
    one = replace(base.margin([0]), centres=np.zeros((1, 1)), log_weights=np.zeros(1))
    return np.zeros(len(base.positive)), one


def _log_ratios(graph: Graph, z: str, densities: Sequence[Mixture], wide: int) -> str:
    """Compute uncalibrated log-likelihood ratios, of shape (models, rows).

    `densities` holds one mixture for each model.
    """
    most = max(len(density.centres) for density in densities)
    positive, negative, pulls, sizes, levels, volumes = [], [], [], [], [], []
    for density in densities:
        inside, outside = density.white
        at_centres, lengths, volume = density.terms
        positive.append(_filled(inside.T, (wide, wide)))
        negative.append(_filled(outside.T, (wide, wide)))
        pulls.append(_filled((at_centres @ outside).T, (wide, most)))
        sizes.append(_filled(lengths, (most,))[None])
        levels.append(_filled(density.log_weights, (most,), NOTHING)[None])
        volumes.append([volume])
    tails = np.array([[density.tail] for density in densities])
    widths = np.array([[len(density.positive)] for density in densities], dtype=np.float64)
    near = graph.reduce("ReduceSumSquare", graph("MatMul", z, np.array(positive)), 2)
    far = graph.reduce("ReduceSumSquare", graph("MatMul", z, np.array(negative)), 2)
    if np.isinf(tails).all():
        level = np.array(levels) - 0.5 * np.array(sizes)
        centres = graph("Add", graph("MatMul", z, np.array(pulls)), level)
        ratio = graph("Mul", graph("Sub", far, near), 0.5)
    else:
        apart = graph("MatMul", z, -2 * np.array(pulls))
        column = graph("Unsqueeze", far, np.array([2]))
        apart = graph("Add", graph("Add", apart, np.array(sizes)), column)
        energies = _energy(graph, apart, widths[..., None], tails[..., None])
        centres = graph("Sub", np.array(levels), energies)
        ratio = graph("Neg", _energy(graph, near, widths, tails))
    ratio = graph("Sub", ratio, graph.reduce("ReduceLogSumExp", centres, 2))
    return graph("Add", ratio, np.array(volumes))


def _energy(graph: Graph, squares: str, widths: Array, tails: Array) -> str:
    """Compute half of each square or, for heavy tails, its logarithmic form; see `core.student`."""
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
    """Multiply `values` by `factors` in two steps, so that ONNX Runtime drops no factor near one.

    The first step multiplies by a number between 1/4 and 1/2, and the second by a power of two,
    which is exact.
    """
    parts, powers = np.frexp(factors)
    return graph("Mul", graph("Mul", values, parts / 2), np.ldexp(2.0, powers))


def _bounded(graph: Graph, z: str) -> str:
    """Scale down coordinates whose squares would overflow."""
    far = graph.reduce("ReduceMax", graph("Abs", z), 2, keep=True)
    share = graph("Div", FARTHEST, graph("Max", far, 1.0))
    return graph("Mul", z, graph("Min", share, 1.0))


def prior_odds(models: Sequence[Verifier]) -> Array:
    """Return each model's prior log odds of its second class against its first."""
    priors = np.array([model.class_prior_ for model in models])
    return np.asarray(np.log(priors[:, 1] / priors[:, 0]))


def chances(graph: Graph, odds: str) -> str:
    """Convert log odds to probabilities; ONNX Runtime's Sigmoid has only half the precision."""
    return graph("Reciprocal", graph("Add", graph("Exp", graph("Neg", odds)), 1.0))


def log_chances(graph: Graph, odds: str) -> str:
    """Convert log odds to log probabilities."""
    tail = graph("Exp", graph("Neg", graph("Abs", odds)))
    return graph("Sub", graph("Min", odds, 0.0), graph("Log", graph("Add", tail, 1.0)))


def _widest(models: Sequence[Verifier]) -> int:
    return max(int(model.n_components_) for model in models)


def _filled(values: ArrayLike, shape: tuple[int, ...], filling: float = 0.0) -> Array:
    """Return an array with `values` in its first corner and `filling` elsewhere."""
    result = np.full(shape, filling)
    result[tuple(slice(size) for size in np.shape(values))] = values
    return result
