"""Leaving out blocks of rows, such as a recording or an identity, in closed form (MATH 17).

If one row were left out while near-copies of it stayed, the model would in effect have seen the
row. So a whole block B of rows is left out. The ridge and the groups of the other rows stay fixed,
and the axes without the block are aligned with the axes for all rows. The result depends only on
products with ``A_T = (T + eps I)^-1``, where T is the total scatter about a fixed origin. If V
holds the rows of B and the group means, the inner products ``V A_T V'`` are enough, whether they
come from whitened rows or a kernel matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from . import linalg
from .alignment import turns_of_blocks
from .linalg import Array, Ints, Mask, SingularMatrixError
from .loo import ALONE, Leave, LeftOut, Shifts
from .scatter import Grouping

# Function of row numbers (n, size) of n blocks: returns the inner products of each block's rows
# with each other, and with the group means.
Block = Callable[[Ints], tuple[Array, Array]]
# Approximate number of rows, in blocks of equal size, that are processed at once.
STACK = 256


def stacks_of(ids: Ints) -> Iterator[Ints]:
    """Yield the row positions of n blocks of equal size at a time, as an array (n, size).

    `ids` holds the block of each row.
    """
    order = np.argsort(ids, kind="stable")
    starts = np.flatnonzero(np.diff(ids[order], prepend=ids[order[:1]] - 1))
    sizes = np.diff(starts, append=len(ids))
    for size in np.unique(sizes):
        blocks = starts[sizes == size][:, None] + np.arange(size)
        step = max(1, STACK // int(size))
        for first in range(0, len(blocks), step):
            yield order[blocks[first : first + step]]


def leave_together(
    block: Block,
    overlap: Array,
    gram: Array,
    rotation: Array,
    division: Grouping,
    leave: Leave,
) -> LeftOut:
    """Project the rows of each block by the model fitted without that block.

    If no model can be fitted without a block, the coordinates of the block's rows are NaN.

    Parameters
    ----------
    block : function of row numbers
        Returns inner products; see `Block`.
    overlap : array of shape (K + 1, K + 1)
        Inner products of the group means.
    gram : array of shape (K, K)
        ``Delta A Delta'`` of the full fit.
    rotation : array of shape (K, d)
        ``Q Lambda^(-1/2)``, where Q and Lambda are the eigenvectors and eigenvalues of `gram`.
    division : Grouping
        The groups of the N rows.
    leave : Leave
        Which rows to leave out: all rows of a block, or none of them.
    """
    assert leave.together is not None
    groups, counts, weights = division
    rows, weight = leave.of(len(groups)), division.weight
    own_weights = None if weights is None else weights[rows]
    result = LeftOut.blank(groups[rows], own_weights, counts, rotation.shape[1])
    result.alone[:] = False
    ids = leave.together[rows]
    moving = np.flatnonzero(np.isin(ids, ids[groups[rows] == 0]))
    moves, centres = np.zeros((len(moving), *rotation.shape)), gram @ rotation
    stacks = list(stacks_of(ids))
    while stacks:
        places = stacks.pop()
        stack = _Stack.of(rows[places], groups, weight, counts)
        result.alone[places] = stack.emptied | stack.lost[:, None]
        result.coordinates[places] = np.nan
        if stack.lost.any():
            stacks.extend([places[~stack.lost]] if not stack.lost.all() else [])
            continue
        try:
            inner, means = stack.without(block, overlap, counts)
        except SingularMatrixError:  # the scatter is singular without one of the blocks
            stacks.extend(np.split(places, len(places)) if len(places) > 1 else [])
            continue
        seen = _project(result, places, stack, inner, means, rotation)
        positive = np.flatnonzero((stack.own == 0).any(axis=1))
        moves[np.searchsorted(moving, places[positive])] = (seen - centres)[positive, None]
    steps = np.broadcast_to(np.eye(len(rotation)), (len(moving), len(rotation), len(rotation)))
    result = replace(result, stands_for=leave.stands_for, rows=leave.rows, together=ids)
    return replace(result, shifts=Shifts(moving, steps, moves))


def _project(
    result: LeftOut, places: Ints, stack: _Stack, inner: Array, means: Array, rotation: Array
) -> Array:
    """Store the rows of blocks as projected without their block.

    Returns the full fit's subclass means, relative to its positive mean, on the axes without each
    block.
    """
    delta = np.where(stack.empty[:, 1:, None], 0.0, means[:, 1:] - means[:, :1])
    size, n_groups = places.shape[1], means.shape[1]
    whole = np.eye(n_groups)[1:] - np.eye(n_groups)[0]  # Delta on the means of all rows
    moved = delta.swapaxes(1, 2) @ rotation
    toward = inner @ moved
    before = toward[:, size:].swapaxes(1, 2) @ (whole.T @ rotation)
    turns = turns_of_blocks(moved.swapaxes(1, 2) @ toward, before)
    toward = toward @ turns
    itself = np.eye(size, inner.shape[1])
    result.coordinates[places] = (itself - means[:, :1]) @ toward
    apart = itself - np.take_along_axis(means, stack.own[:, :, None], axis=1)
    result.residuals[places] = np.where(stack.emptied[:, :, None], 0.0, apart @ toward)
    if result.plain is not None and result.height is not None:
        result.plain[places] = apart @ inner[:, :, size:] @ (whole.T @ rotation)
        result.height[places] = np.einsum("bij,bij->bi", apart @ inner, apart)
    result.known[places] = ~stack.emptied
    seen: Array = whole @ toward[:, size:]
    return seen


@dataclass(frozen=True)
class _Stack:
    """Blocks of equal size: the numbers, groups and weights of their rows.

    `remaining` is the weight of each group without each block. `empty` marks the groups that have
    no rows left without a block.
    """

    members: Ints
    own: Ints
    mass: Array
    remaining: Array
    empty: Mask

    @classmethod
    def of(cls, members: Ints, groups: Ints, weight: Array, counts: Array) -> _Stack:
        own, mass = groups[members], weight[members]
        flat = own + len(counts) * np.arange(len(own))[:, None]
        leaving = np.bincount(flat.ravel(), mass.ravel(), len(counts) * len(own))
        remaining = counts - leaving.reshape(len(own), len(counts))
        return cls(members, own, mass, remaining, remaining <= ALONE * counts)

    @cached_property
    def emptied(self) -> Mask:
        """Mask of rows whose group has no member outside the row's block."""
        return np.take_along_axis(self.empty, self.own, axis=1)

    @cached_property
    def lost(self) -> Mask:
        """Mask of blocks whose removal empties a class."""
        return self.empty[:, 0] | self.empty[:, 1:].all(axis=1)

    def without(self, block: Block, overlap: Array, counts: Array) -> tuple[Array, Array]:
        """Return ``V A V'`` and the group means, for the model without each block.

        V holds the rows of the block and the group means of all rows, and A is the inverse of the
        criterion's denominator without the block. The new group means are given as combinations of
        the rows of V.
        """
        among, with_means = block(self.members)
        (n_blocks, size), n_groups = self.own.shape, len(counts)
        inner = np.empty((n_blocks, size + n_groups, size + n_groups))
        inner[:, :size, :size], inner[:, :size, size:] = among, with_means
        inner[:, size:, :size], inner[:, size:, size:] = with_means.swapaxes(1, 2), overlap
        left = np.where(self.empty, 1.0, self.remaining)
        means = np.zeros((n_blocks, n_groups, size + n_groups))
        each, place = np.indices(self.own.shape)
        means[each, self.own, place] = -self.mass / np.take_along_axis(left, self.own, axis=1)
        groups = np.arange(n_groups)
        means[:, groups, size + groups] = counts / left
        means[self.empty] = 0.0
        gone = np.zeros((n_blocks, size, size + n_groups))
        gone[:, np.arange(size), np.arange(size)] = np.sqrt(self.mass)
        update = np.concatenate([gone, np.sqrt(left)[:, :, None] * means], axis=1)
        product = update @ inner
        factor = _cholesky(np.eye(size + n_groups) - product @ update.swapaxes(1, 2))
        half = np.linalg.solve(factor, product)
        return inner + half.swapaxes(1, 2) @ half, means


def _cholesky(matrices: Array) -> Array:
    """Return the lower Cholesky factors of stacked matrices, or raise SingularMatrixError."""
    try:
        factor = np.asarray(np.linalg.cholesky(matrices), dtype=np.float64)
    except np.linalg.LinAlgError as error:
        raise SingularMatrixError("a matrix is not positive definite") from error
    pivots = np.diagonal(factor, axis1=1, axis2=2) ** 2
    scale = np.diagonal(matrices, axis1=1, axis2=2)
    if np.any(pivots <= linalg.PIVOT_TOLERANCE * matrices.shape[1] * scale):
        raise SingularMatrixError("a matrix is singular to working precision")
    return factor
