"""Rows that leave together: a whole recording, session or identity, in closed form (MATH 17).

Leaving out one row while its twins stay is a leak. With a block B of rows out, and the ridge, the
rotation and the groups of all other rows held, everything is products with ``A_T = (T + eps I)^-1``
about a fixed origin. Rows of B and group means are the vectors V; their inner products ``V A_T V'``
are all that is needed, whether they come from whitened rows or from a kernel matrix.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from . import linalg
from .linalg import Array, SingularMatrixError
from .loo import ALONE, Leave, LeftOut

# Inner products of the rows of a block among themselves, and with the group means.
Block = Callable[[NDArray[np.intp]], tuple[Array, Array]]


def blocks_of(ids: NDArray[np.intp]) -> list[NDArray[np.intp]]:
    """Places of the rows of each block, in the order of the ids."""
    order = np.argsort(ids, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(ids[order])) + 1)


def leave_together(
    block: Block,
    overlap: Array,
    rotation: Array,
    groups: NDArray[np.intp],
    counts: Array,
    weights: Array | None,
    leave: Leave,
) -> LeftOut:
    """Project the rows of every block by the model without the block.

    Rows of a block without which there is no model have no coordinates: these are NaN.

    Parameters
    ----------
    block : function of row numbers
    overlap : array of shape (K + 1, K + 1)
        Inner products of the group means.
    rotation : array of shape (K, d)
        ``Q Lambda^(-1/2)``.
    groups : array of shape (N,)
    counts : array of shape (K + 1,)
    weights : array of shape (N,) or None
    leave : Leave
        Which rows; those of one block must all be among them.
    """
    assert leave.together is not None
    rows = leave.of(len(groups))
    shape = (len(rows), rotation.shape[1])
    coordinates, residuals = np.zeros(shape), np.zeros(shape)
    alone, known = np.zeros(len(rows), dtype=bool), np.zeros(len(rows), dtype=bool)
    weight = np.ones(len(groups)) if weights is None else weights
    for places in blocks_of(leave.together[rows]):
        members = rows[places]
        own, mass = groups[members], weight[members]
        remaining = counts - np.bincount(own, mass, len(counts))
        empty = remaining <= ALONE * counts
        alone[places] = empty[own]
        coordinates[places] = np.nan
        if empty[0] or empty[1:].all():  # no class is left to tell it from
            alone[places] = True
            continue
        try:
            inner, means = _without(block, overlap, members, own, mass, counts, remaining, empty)
        except SingularMatrixError:  # the block is all that keeps the scatter regular
            continue
        delta = np.where(empty[1:, None], 0.0, means[1:] - means[0])
        toward = inner @ delta.T @ rotation
        itself = np.eye(len(members), len(inner))
        coordinates[places] = (itself - means[0]) @ toward
        residuals[places] = np.where(empty[own, None], 0.0, (itself - means[own]) @ toward)
        known[places] = ~empty[own]
    return LeftOut(
        coordinates,
        residuals,
        groups[rows],
        alone,
        known,
        None if weights is None else weights[rows],
        leave.stands_for,
        rows=leave.rows,
        together=leave.together[rows],
    )


def _without(
    block: Block,
    overlap: Array,
    members: NDArray[np.intp],
    own: NDArray[np.intp],
    mass: Array,
    counts: Array,
    remaining: Array,
    empty: NDArray[np.bool_],
) -> tuple[Array, Array]:
    """Inner products ``V A V'`` without a block, and the group means without it as rows over V."""
    among, with_means = block(members)
    inner = np.block([[among, with_means], [with_means.T, overlap]])
    size = len(members)
    left = np.where(empty, 1.0, remaining)
    means = np.zeros((len(counts), size + len(counts)))
    means[own, np.arange(size)] = -mass / left[own]
    means[:, size:] = np.diag(counts / left)
    means[empty] = 0.0
    gone = np.zeros((size, len(inner)))
    gone[:, :size] = np.diag(np.sqrt(mass))
    update = np.vstack([gone, np.sqrt(left)[:, None] * means])
    product = update @ inner
    factor = linalg.cholesky(np.eye(len(update)) - product @ update.T)
    half = linalg.lower_solve(factor, product)
    return inner + half.T @ half, means
