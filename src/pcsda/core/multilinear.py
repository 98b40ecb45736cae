"""CSDA for matrices and tensors: one small projection for each mode (MATH 14).

A mode is an axis of the tensors. A direction for the whole tensor is the outer product of one
direction per mode. The directions of a mode are found after the tensors are projected along all
other modes, so that no D x D matrix over all D entries is formed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from math import prod

import numpy as np

from . import csda_solvers, linalg
from .csda_solvers import Forms
from .linalg import Array, Floats, Ints, Mask, TooFewRowsError
from .loo import Leave
from .scatter import Grouping, GroupScatter
from .spread import centred, naming_the_ridge, ridge_of
from .subspace import Subspace

# The ratio has converged when a cycle over all modes raises it by at most the share SETTLED; there
# are at most CYCLES cycles.
SETTLED, CYCLES = 1e-8, 100


@dataclass(frozen=True)
class Factors:
    """Orthonormal directions for each mode, as columns, and the trace ratio after each cycle."""

    modes: list[Array]
    ratios: list[float]

    @property
    def directions(self) -> Array:
        """Outer products of the modes' directions, as columns over tensor entries in C order."""
        return reduce(lambda joined, mode: np.asarray(np.kron(joined, mode)), self.modes)


def project(tensors: Array, modes: list[Array], leave: int | None = None) -> Array:
    """Project tensors along all modes except mode `leave`.

    The first axis of `tensors` indexes the samples.
    """
    for number, mode in enumerate(modes):
        if number != leave:
            moved = np.tensordot(tensors, mode, axes=(number + 1, 0))
            tensors = np.moveaxis(moved, -1, number + 1)
    return tensors


def mode_scatters(tensors: Array, mode: int, positive: Mask) -> tuple[Array, Array]:
    """Return the scatter matrices S_n of the negatives and S_p of the positives along one mode.

    The tensors must be centred at the positive mean.
    """
    unfolded = np.moveaxis(tensors, mode + 1, -1)
    size = unfolded.shape[-1]
    both = (unfolded[part].reshape(-1, size) for part in (~positive, positive))
    numerator, denominator = (part.T @ part for part in both)
    return numerator, denominator


def mode_ranks(X: Floats, shape: tuple[int, ...]) -> list[int]:
    """Return the number of directions in which flattened tensors vary along each mode.

    If all rows are equal or overflow, the sizes of the modes are returned, because the fit later
    rejects such rows.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        rows = X - X.mean(axis=0, dtype=np.float64)
    largest = np.abs(rows).max()
    if not 0 < largest < np.inf:
        return list(shape)
    tensors = (rows / largest).reshape(len(X), *shape)
    everyone = np.ones(len(X), dtype=bool)
    scatters = (mode_scatters(tensors, mode, everyone)[1] for mode in range(len(shape)))
    return [csda_solvers.spread_basis(scatter, scatter).shape[1] for scatter in scatters]


def solve_modes(
    tensors: Array, positive: Mask, ridge: float, dims: tuple[int, ...], cycles: int = CYCLES
) -> Factors:
    """Maximise the trace ratio over orthonormal directions for each mode.

    Problem: ``tr(W' S_n W) / tr(W' (S_p + eps I) W)`` with ``W = W_1 (x) W_2 (x) ...``. `tensors`
    must be centred at the positive mean and scaled by the square roots of their weights. The modes
    are solved in turn. With the tensors projected along all other modes, the problem of one mode is
    the trace ratio of the unfolded tensors, with a ridge of eps times the product of the other
    modes' `dims`. The ratio never falls; its limit may be a local maximum. The first directions of
    each mode are found without any projection. Cost: about ``2 N D max(d)`` per mode and cycle.
    """
    whole = tensors.shape[1:]
    modes = []
    for mode, d in enumerate(dims):
        forms = mode_scatters(tensors, mode, positive)
        found, _ = _solve(*forms, ridge * prod(whole) / whole[mode], mode, d, 0.0)
        modes.append(found)
    ratios: list[float] = []
    ratio = 0.0
    for _ in range(cycles):
        before = ratio
        for mode, d in enumerate(dims):
            forms = mode_scatters(project(tensors, modes, mode), mode, positive)
            modes[mode], ratio = _solve(*forms, ridge * prod(dims) / d, mode, d, ratio)
        ratios.append(ratio)
        if ratio - before <= SETTLED * ratio or len(dims) == 1:
            break
    return Factors([linalg.fix_signs(mode.T).T for mode in modes], ratios)


def _solve(
    numerator: Array, denominator: Array, ridge: float, mode: int, d: int, ratio: float
) -> tuple[Array, float]:
    """Return the best `d` directions of one mode and their trace ratio, starting from `ratio`."""
    basis = csda_solvers.spread_basis(numerator, denominator)
    if basis.shape[1] < d:
        raise TooFewRowsError(
            f"n_components[{mode}]={d} must be at most {basis.shape[1]}: with the other modes "
            f"projected, the samples vary in no more directions along mode {mode}; lower "
            f"n_components[{mode}], raise n_components of the other modes or give more samples"
        )
    forms = Forms(basis.T @ numerator @ basis, basis.T @ denominator @ basis, None, np.ones(2))
    found = csda_solvers.settled(forms, ridge, d, ratio)
    return basis @ found.directions, found.ratio


@dataclass(frozen=True)
class MultilinearFactor:
    """A factor that solves multilinear CSDA for flattened tensors; it cannot leave rows out.

    Attributes
    ----------
    X : array of shape (N, D)
    shape : tuple of int
        Mode sizes; their product is D.
    dims : tuple of int
        Number of directions for each mode.
    regularization : float
    weights : array of shape (N,) or None
    report : function
        Called with the :class:`Factors` of each solution.
    """

    X: Floats
    shape: tuple[int, ...]
    dims: tuple[int, ...]
    regularization: float
    weights: Array | None
    report: Callable[[Factors], None]

    def solve(
        self, groups: Ints, n_components: int | None = None, *, leave_out: Leave | None = None
    ) -> Subspace:
        """Find the directions of each mode that separate positives from negatives.

        `groups` is 0 for positives and 1 for negatives. The axes of the subspace are the entries of
        the projected tensor in C order. `n_components` and `leave_out` are ignored.
        """
        rows, origin, variance = centred(self.X, self.weights)
        ridge = ridge_of(variance, self.regularization)
        means = Grouping.of(groups, self.weights).means(rows)
        rows -= means[0]
        if self.weights is not None:
            rows *= np.sqrt(self.weights)[:, None]
        with naming_the_ridge(self.X.shape[1], self.regularization):
            tensors = rows.reshape(len(rows), *self.shape)
            found = solve_modes(tensors, groups == 0, ridge, self.dims)
        self.report(found)
        W, means = found.directions, means + origin
        z = (self.X - means[0]) @ W
        projected = GroupScatter.from_samples(z, groups, 2, self.weights)
        # Remove the rounding error of the positive mean, so that it is exactly zero.
        projected = replace(projected, means=projected.means - projected.means[0])
        ridged = projected.positive + ridge * np.eye(W.shape[1])
        values = projected.out_of_class.diagonal() / ridged.diagonal()
        return Subspace(
            W, means[0] @ W, values, W.shape[1], projected, ridged, means, single_negatives=True
        )
