"""Scoring the identities in a bank as if they were strangers (MATH 17).

To score an identity under the labels of other identities, all rows of the identity are removed from
the negatives of these labels. This is done in closed form: the rows are removed from the total
scatter, the group means and the group weights. The axes without these rows are aligned with the
axes of the full fit. The covariances stay fixed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .alignment import turns_of_blocks
from .linalg import Array, Ints, Mask
from .shared_rows import SharedRows

# Smaller eigenvalues are rounding errors: the block has nearly all the scatter in some direction.
SMALLEST = 1e-10


@dataclass(frozen=True)
class Away:
    """A block of rows to remove: its whitened scatter, and the sum of its rows in each cluster.

    Attributes
    ----------
    rows : array of shape (n, r)
        Whitened rows to score.
    span : array of shape (s, r)
        Rows with the same scatter as the whitened block: the block itself, or r other rows if the
        block has more than r.
    inner : array of shape (s, s)
        ``(I - U U')^-1``, where U is `span`.
    sums : array of shape (K, r)
        Whitened sum of the block's rows in each cluster.
    counts : array of shape (K,)
        Number of the block's rows in each cluster.
    """

    rows: Array
    span: Array
    inner: Array
    sums: Array
    counts: Array

    @classmethod
    def of(cls, shared: SharedRows, block: Ints, scored: Ints) -> Away:
        """Prepare to remove the rows numbered `block`, and to score the rows numbered `scored`."""
        white = shared.white_rows[block]
        span: Array = white
        if len(white) > white.shape[1]:
            span = np.asarray(np.linalg.qr(white, mode="r"), dtype=np.float64)
        gap = np.eye(len(span)) - span @ span.T
        values, vectors = np.linalg.eigh(gap)
        inner = (vectors / np.maximum(values, SMALLEST)) @ vectors.T
        sums = np.zeros_like(shared.totals)
        np.add.at(sums, shared.clusters[block], white)
        counts = np.bincount(shared.clusters[block], minlength=len(sums)).astype(np.float64)
        return cls(shared.white_rows[scored], span, inner, sums, counts)


def as_strangers(
    shared: SharedRows, away: Away, labels: Ints, turns: Array
) -> tuple[Array, Array, Array]:
    """Project the scored rows of a removed block onto the axes of labels fitted without the block.

    Parameters
    ----------
    shared : SharedRows
    away : Away
        The removed block.
    labels : array of shape (L,)
        Label numbers; none of these labels may own a row in the block.
    turns : array of shape (L, K, d)
        Rotation from one coordinate per cluster to the axes, for each label.

    Returns
    -------
    z : array of shape (L, n, d)
        The scored rows on the axes of each label.
    centres : array of shape (L, K, d)
        Subclass means on the axes.
    log_weights : array of shape (L, K)
        Log shares of the subclasses among the negatives.
    """
    own, sizes = shared.own_sums(labels)
    remaining = shared.white_totals - away.sums, shared.counts - away.counts
    counts, means = _groups(own, sizes, *remaining)
    filled = counts > 0
    beside = means @ away.span.T  # U m for each mean m
    overlap = means @ means.swapaxes(1, 2) + beside @ away.inner @ beside.swapaxes(1, 2)
    mix = _mixed(overlap, counts, filled) @ turns
    before = _contrast(_groups(own, sizes, shared.white_totals, shared.counts)[1])
    across = means @ before.swapaxes(1, 2)
    across += beside @ away.inner @ (before @ away.span.T).swapaxes(1, 2)
    toward = _contrast(overlap) * filled[:, 1:, None]
    bent = turns_of_blocks(turns.swapaxes(1, 2) @ toward @ mix, mix.swapaxes(1, 2) @ across @ turns)
    mix = mix @ bent
    rows = away.rows @ means.swapaxes(1, 2)
    rows += (away.rows @ away.span.T) @ away.inner @ beside.swapaxes(1, 2)
    z = (rows - overlap[:, :1]) @ mix
    centres = toward @ mix
    rest = counts[:, 1:]
    with np.errstate(divide="ignore"):
        log_weights = np.log(rest / np.maximum(rest.sum(axis=1, keepdims=True), 1.0))
    return z, centres, log_weights


def _contrast(values: Array) -> Array:
    """Subtract the value of group 0 from the values of groups 1..K, for each label.

    Group 0 holds the label's own rows; the other groups are the subclasses of its negatives.
    """
    return values[:, 1:] - values[:, :1]


def _groups(own: Array, sizes: Array, totals: Array, counts: Array) -> tuple[Array, Array]:
    """Return the sizes and whitened means of each label's groups; both are 0 for empty groups.

    `own` and `sizes` are the sums and numbers of each label's whitened rows in each cluster.
    `totals` and `counts` are the sums and numbers of all whitened rows in each cluster.
    """
    counts = np.concatenate([sizes.sum(axis=1, keepdims=True), counts - sizes], axis=1)
    sums = np.concatenate([own.sum(axis=1, keepdims=True), totals - own], axis=1)
    filled = counts > 0.5
    means = np.where(filled[..., None], sums / np.maximum(counts, 1.0)[..., None], 0.0)
    return np.where(filled, counts, 0.0), means


def _mixed(overlap: Array, counts: Array, filled: Mask) -> Array:
    """Return ``A Delta'`` for each label, as coefficients on the label's group means.

    The formula is that of `white.solution_of`, for many labels at once. `overlap` holds the inner
    products of the group means, and `filled` marks the groups that are not empty.
    """
    size = counts.shape[1]
    root = np.sqrt(counts)
    remainder = np.eye(size) - overlap * (root[:, :, None] * root[:, None, :])
    contrast = np.vstack([np.full(size - 1, -1.0), np.eye(size - 1)])
    inverse_root = np.where(filled, 1 / np.maximum(root, 1e-300), 0.0)
    half = inverse_root[:, :, None] * contrast * filled[:, None, 1:]
    return root[:, :, None] * np.linalg.solve(remainder, half)
