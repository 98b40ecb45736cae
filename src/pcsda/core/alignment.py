"""Align the axes of a model fitted without some rows with the axes fitted to all rows (MATH 8).

Leaving out a row changes the mean of its group and the scatter, and so it changes the axes. The
axes are combinations of subclass means, but it is not enough to use the same combinations without
the row. On a weak axis, the combination cancels the contributions of strong features, but only as
long as no mean moves. Once a mean has moved, the left-out coordinates would reveal the row's group,
especially if features have very different units. So the axes W_i without row i are scaled and
rotated. Let W be the axes for all rows, S the scatter of all rows, S_i the scatter without row i,
and eps the ridge. With

    C = W_i' (S_i + eps I) W_i,    B = W_i' (S + eps I) W,    T = (B' C^-1 B)^(-1/2) B' C^-1,

``W_i T'`` spans the same subspace as W_i, is orthonormal in the scatter without the row, and is as
close to W as such axes can be. One row changes B and C in only two directions, so T has a closed
form.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .linalg import Array, Mask

# Removing a one-row subclass loses no axis if the other means span at least this share of its mean.
SPANNED = 1e-6
# A smaller share of the leverage outside the axes is rounding error: the axes span the space.
ROUNDING = 1e-10
# After rows are left out, a direction smaller than this share of the largest one counts as lost.
LOST = 1e-10
# Blocks hardly change the axes if two matrices differ from the identity by less than this. The
# iteration ends with a step from a gap below the second number, which leaves rounding errors.
LITTLE, SETTLED = 0.5, 1e-8


@dataclass(frozen=True)
class Turn:
    """The rotation and scaling of the axes for each left-out row, ``T = I + E (T_2 - I) E'``.

    T changes only the plane spanned by the two columns of E; T_2 is the matrix of T in that plane.

    Attributes
    ----------
    first, second : arrays of shape (d, n)
        The two orthonormal columns of E for each row. A column is zero if the row changes fewer
        than two directions.
    change : array of shape (2, 2, n)
        ``T_2 - I`` for each row.
    step : array of shape (2, n)
        The vector p of each row, in the plane: without the row and before the turn, a vector v has
        the coordinates ``W'v + E p (r'Av)``.
    """

    first: Array
    second: Array
    change: Array
    step: Array

    def apply(self, coordinates: Array) -> None:
        """Rotate and scale the coordinates (d, n) of the left-out rows in place."""
        one = np.einsum("ji,ji->i", self.first, coordinates)
        two = np.einsum("ji,ji->i", self.second, coordinates)
        (a, b), (c, d) = self.change
        coordinates += self.first * (a * one + b * two)
        coordinates += self.second * (c * one + d * two)


def turn_of(
    solved: Array, axes: Array, inflation: Array, pull: Array, leverage: Array, gap: Array
) -> Turn:
    """Return the rotation and scaling of the axes for each row when only that row is left out.

    Parameters
    ----------
    solved : array of shape (d, n)
        ``W'r``, where r is the residual of the row.
    axes : array of shape (d, n)
        ``R'u``, the weight of the row's group mean in each axis. Leaving the row out moves this
        mean by ``-pull r``.
    inflation, pull, leverage, gap : arrays of shape (n,)
        ``f``, ``c``, ``h = r'Ar`` and ``1 - f h``. With ``f = c = 0``, the axes stay the same.
    """
    length = np.sqrt(np.einsum("ji,ji->i", axes, axes))
    first = axes / np.where(length > 0, length, 1.0)
    along = np.einsum("ji,ji->i", first, solved)
    second = solved - first * along
    across = np.sqrt(np.einsum("ji,ji->i", second, second))
    second /= np.where(across > 0, across, 1.0)
    # From here on all vectors are pairs: coordinates along `first` and `second`.
    a = np.stack([along, across])
    shift = np.stack([-pull * length, np.zeros_like(length)])
    p = (inflation * a + shift) / gap
    change = _in_two(a, shift, p, inflation, leverage, gap)
    left = np.abs(1 + np.sum(a * p, axis=0)) * gap  # rounding errors grow as 1/gap
    lost = left <= LOST * (1 + np.sqrt(np.sum(a * a, axis=0) * np.sum(p * p, axis=0)))
    if lost.any():
        change[:, :, lost] = _without_direction(a, p, leverage, gap, lost)
    return Turn(first, second, change, p)


def _in_two(a: Array, shift: Array, p: Array, f: Array, leverage: Array, gap: Array) -> Array:
    """Return ``T_2 - I``, given ``a = W'r``, ``s = -c R'u`` and ``p = (f a + s)/g`` in the plane.

    Here `shift` is s, and g is the gap. T_2 needs the inverse square root of a symmetric matrix.
    With ``B = I + p a'`` and ``beta = 1 + a'p``, that matrix is
    ``beta^2 B^-1 C B^-T = (beta I + m a')(beta I + a m') + e (m + p)(m + p)'``, where e is the
    leverage outside the axes, and the code defines m. In this form, no large numbers cancel on
    weak axes.
    """
    root = np.sqrt(gap)
    outside = leverage - np.sum(a * a, axis=0)
    outside = np.where(outside > ROUNDING * leverage, outside, 0.0)
    crossed = np.sum(a * shift, axis=0)
    beta = 1 + np.sum(a * p, axis=0)
    m = -f / ((1 + root) * gap) * ((1 + crossed) * a + outside * shift)
    kappa = f / ((1 + root) * root)
    q = kappa * a + shift / root
    determinant = (1 + np.sum(a * q, axis=0)) ** 2 + outside * np.sum(q * q, axis=0)
    identity = np.eye(2)[:, :, None]
    both = beta * identity + m[:, None] * a[None]
    form = np.einsum("ikn,jkn->ijn", both, both)
    form += outside * (m + p)[:, None] * (m + p)[None]
    trace = form[0, 0] + form[1, 1]
    volume = np.maximum(np.abs(beta) * np.sqrt(determinant), np.finfo(np.float64).eps * trace)
    # The inverse square root of a 2 x 2 matrix, from its adjugate, trace and determinant.
    adjugate = trace * identity - form
    half = (adjugate + volume * identity) / (volume * np.sqrt(trace + 2 * volume))
    inverse = beta * identity - p[:, None] * a[None]
    change: Array = np.where(beta < 0, -1.0, 1.0) * np.einsum("ikn,kjn->ijn", half, inverse)
    return change - identity


def _without_direction(a: Array, p: Array, leverage: Array, gap: Array, rows: Mask) -> Array:
    """Return ``T_2 - I`` for some rows, each the only one that varies in some direction of its own.

    Without the row, a feature may be constant. Then no subclass mean differs along it, and the axes
    lose a direction: B and C are singular, with ``C a = 0``. With the unit vector u orthogonal to
    a, ``b = B'u`` and ``c = u'Cu``, pseudo-inverses in the formula of T give
    ``T_2 = b u' / (|b| sqrt(c))``.
    """
    a, p, leverage, gap = a[:, rows], p[:, rows], leverage[rows], gap[rows]
    u = np.stack([-a[1], a[0]]) / np.sqrt(np.sum(a * a, axis=0))
    along = np.sum(p * u, axis=0)
    b = u + a * along
    c = 1 + leverage * gap * along**2
    turn: Array = b[:, None] * u[None] / np.sqrt(c * np.sum(b * b, axis=0))
    return turn - np.eye(2)[:, :, None]


def without_subclass(centres: Array, axes: Array) -> Array:
    """Return the coordinates (d, n) of rows that are alone in their subclass, when left out.

    Without its only row, a subclass has no mean. The axes then lose the direction that only this
    mean contributed. They lose nothing if the other means span this mean, too.
    """
    share = np.einsum("ji,ji->i", centres, axes)
    square = np.einsum("ji,ji->i", axes, axes)
    lost = share > 1 - SPANNED
    result: Array = centres - axes * (lost / np.where(square > 0, square, 1.0))
    return result


def turns_of_blocks(own: Array, across: Array) -> Array:
    """Return the transposed matrix ``T'`` for each of n left-out blocks of rows.

    `own` holds the matrices C and `across` the matrices B. Both arrays and the result have shape
    (n, d, d).
    """
    turns, found = _turned_little(own, across)
    if not found.all():
        turns[~found] = _turned(own[~found], across[~found])
    return turns


def _turned_little(own: Array, across: Array) -> tuple[Array, Mask]:
    """Return the same as :func:`turns_of_blocks` for blocks that hardly change the axes.

    Also return a mask of these blocks. With ``C = L L'``, T' is ``L^-T`` times the orthogonal
    matrix next to ``M = L^-1 B``. Newton and Schulz's iteration finds it, and squares its distance
    from orthogonality in each step. It takes a third of the time of the decompositions.
    """
    size = own.shape[1]
    identity = np.eye(size)
    near: Mask = np.square(own - identity).sum(axis=(1, 2)) < LITTLE**2
    if not near.any():
        return np.empty_like(own), near
    inverse = np.linalg.inv(np.linalg.cholesky(np.where(near[:, None, None], own, identity)))
    turns = inverse @ across
    gap = np.ascontiguousarray(turns.swapaxes(1, 2)) @ turns - identity
    near &= np.square(gap).sum(axis=(1, 2)) < LITTLE**2
    turns[~near], gap[~near] = identity, 0.0
    while True:
        turns -= 0.5 * (turns @ gap)
        if np.abs(gap).max() < SETTLED:
            return np.ascontiguousarray(inverse.swapaxes(1, 2)) @ turns, near
        gap = np.ascontiguousarray(turns.swapaxes(1, 2)) @ turns - identity


def _turned(own: Array, across: Array) -> Array:
    """Return the same as :func:`turns_of_blocks`, also if the axes lose directions."""
    values, vectors = np.linalg.eigh(own)
    kept: Mask = values > LOST * np.maximum(values[:, -1:], 1.0)
    roots = np.where(kept, 1 / np.sqrt(np.where(kept, values, 1.0)), 0.0)
    half = (vectors * roots[:, None, :]) @ vectors.swapaxes(1, 2)
    left, lengths, right = np.linalg.svd(half @ across)
    # A lost direction gets length zero; any other vector would be arbitrary.
    left = np.where(lengths[:, None, :] > LOST, left, 0.0)
    turns: Array = half @ left @ right
    return turns
