"""Leaving rows out: projecting training rows with models fitted without them (MATH 8).

The model without a row follows in closed form from the fit to all rows. The row is left out of the
means and the scatter. The ridge and the groups stay as in the full fit, and the axes found without
the row are aligned with the axes of the full fit. Since the model has not seen the row, covariances
and calibration can be estimated from left-out rows as if from new samples.

Notation: r_i is row i minus its group mean, ``A = (S_I + eps I)^-1``, and Delta holds the subclass
means minus the positive mean. ``h_i = r_i' A r_i`` is the leverage of row i, and ``1 - f_i h_i`` is
its gap, where f_i depends on the weights of the row and of its group; see :func:`inflation`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .alignment import Turn, turn_of, without_subclass
from .calibration import evidence_of
from .linalg import Array, Floats, Ints, Mask
from .scatter import Grouping

# A row is alone in its group if the other rows have at most this share of the group's weight.
ALONE = 1e-10
# With fewer positives than this, left-out rows also show where new positives may lie (MATH 16).
FEW_POSITIVES = 20
# A smaller gap is rounding error: without the row, the scatter would be singular.
SMALLEST_GAP = 1e-12


@dataclass(frozen=True)
class Leave:
    """Which rows to leave out, and which of them to leave out together.

    Attributes
    ----------
    rows : array of shape (n,) or None
        Row numbers, ascending; None means all rows.
    stands_for : array of shape (n,) or None
        If the rows are a sample, how many rows each sampled row represents.
    together : array of shape (N,) or None
        Number of each training row's block; a block is left out as a whole. None means that rows
        are left out one by one.
    """

    rows: Ints | None = None
    stands_for: Array | None = None
    together: Ints | None = None

    def of(self, n_rows: int) -> Ints:
        """Return the numbers of the rows to leave out of `n_rows` training rows."""
        return np.arange(n_rows) if self.rows is None else self.rows

    def take(self, values: NDArray[Any]) -> NDArray[Any]:
        """Select the values of the left-out rows from the values of all training rows."""
        return values if self.rows is None else values[self.rows]

    def of_groups(self, division: Grouping) -> Grouping:
        """Return the groups of the left-out rows; the counts are still those of all rows."""
        weights = None if division.weights is None else self.take(division.weights)
        return Grouping(self.take(division.groups), division.counts, weights)


EVERY = Leave()


def sample_rows(
    groups: Ints,
    most: int,
    rng: np.random.Generator,
    weights: Array | None = None,
    together: Ints | None = None,
) -> Leave:
    """Draw rows to leave out: about `most` positives and `most` negatives (MATH 11).

    Each subclass contributes rows in proportion to its size, but at least one. Each sampled row
    represents an equal share of its group. If blocks are given by `together`, whole blocks are
    drawn.
    """
    if max(np.sum(groups == 0), np.sum(groups > 0)) <= most:
        return Leave(together=together)
    weight = np.ones(len(groups)) if weights is None else weights
    chosen = np.zeros(len(groups), dtype=bool)
    if together is not None:
        chosen = _whole_blocks(groups, together, most, rng)
    else:
        for part in (groups == 0, groups > 0):
            share = min(1.0, most / max(int(part.sum()), 1))
            for group in np.unique(groups[part]):
                members = np.flatnonzero(groups == group)
                count = max(int(share * len(members)), 1)
                chosen[rng.choice(members, count, replace=False)] = True
    rows = np.flatnonzero(chosen)
    own = groups[rows]
    ratio = np.bincount(groups, weight) / np.maximum(
        np.bincount(own, weight[rows], minlength=int(groups.max()) + 1), 1e-300
    )
    return Leave(rows, ratio[own], together)


def _whole_blocks(groups: Ints, together: Ints, most: int, rng: np.random.Generator) -> Mask:
    """Draw blocks in random order until each class has enough rows; return a mask of the rows."""
    chosen = np.zeros(len(groups), dtype=bool)
    for part in (groups == 0, groups > 0):
        ids, codes = np.unique(together[part], return_inverse=True)
        order = rng.permutation(len(ids))
        sizes = np.bincount(codes)[order]
        count = int(np.searchsorted(np.cumsum(sizes), most)) + 1
        chosen |= np.isin(together, ids[order[:count]])
    return chosen


@dataclass(frozen=True)
class Shifts:
    """How far the subclass means move on the axes when positives are left out (MATH 8).

    The axes without a row differ from those of the full fit, and so do the coordinates of the
    subclass means. For each of P rows, the means move by the product ``steps' plane``.

    Attributes
    ----------
    rows : array of shape (P,)
        Numbers of these rows among the left-out rows, ascending: the positives, and the negatives
        that are left out together with them.
    steps : array of shape (P, r, K)
    plane : array of shape (P, r, d)
    """

    rows: Ints
    steps: Array
    plane: Array

    def of(self, part: slice) -> Array:
        """Return the moves of the subclass means, shape (n, K, d), for a slice of the P rows."""
        return self.steps[part].swapaxes(1, 2) @ self.plane[part]

    def of_mean(self, shares: Array) -> Array:
        """Return the moves (P, d) of the mean of the subclass means with the given weights."""
        return ((self.steps @ shares)[:, None] @ self.plane)[:, 0]

    def take(self, chosen: Ints) -> Shifts:
        """Return the shifts of a subset of the left-out rows, which get the numbers 0, 1, ..."""
        place = np.full(max(chosen.max(initial=-1), self.rows.max(initial=-1)) + 1, -1)
        place[self.rows] = np.arange(len(self.rows))
        found = place[chosen]
        kept = found[found >= 0]
        return Shifts(np.flatnonzero(found >= 0), self.steps[kept], self.plane[kept])

    @classmethod
    def joined(cls, parts: list[tuple[int, Shifts]]) -> Shifts:
        """Join the shifts of slices of the left-out rows, given with the first row of each."""
        parts = sorted(parts, key=lambda part: part[0])
        return cls(
            np.concatenate([first + part.rows for first, part in parts]),
            np.concatenate([part.steps for _, part in parts]),
            np.concatenate([part.plane for _, part in parts]),
        )


@dataclass(frozen=True)
class LeftOut:
    """Training rows, each projected by a model fitted without it.

    Attributes
    ----------
    coordinates : array of shape (n, d)
        Coordinates z of each row, relative to the positive mean without that row.
    residuals : array of shape (n, d)
        z minus the mean of the row's group, computed without that row; for a positive, z itself.
        Zero for a row that is alone in its group.
    groups : array of shape (n,)
    alone : boolean array of shape (n,)
        Mask of rows whose group has no other member, so that they have no residual.
    known : boolean array of shape (n,)
        Mask of rows that can be left out: rows that are not alone, and without which the scatter
        stays regular.
    weights : array of shape (n,) or None
    stands_for : array of shape (n,) or None
        If the rows are a sample, how many rows each sampled row represents.
    gap : float
        The smallest gap ``1 - f_i h_i`` of a row that is not alone. A small gap is imprecise,
        because it is the difference of two nearly equal numbers.
    rows : array of shape (n,) or None
        Indices of the left-out rows among the training rows; None means all rows.
    together : array of shape (n,) or None
        Block of each row, if whole blocks are left out.
    plain : array of shape (n, d) or None
        The coordinates of ``Delta A r`` on the axes, for the residual r, with all group means held
        fixed. `plain` and `height` show where new positives may lie (MATH 16), and are stored only
        if positives are few.
    height : array of shape (n,) or None
        ``r' A r`` for the residual r, with the row left out of A and of its group mean.
    shifts : Shifts or None
        How far the subclass means move when positives are left out; None means not at all.
    """

    coordinates: Array
    residuals: Array
    groups: Ints
    alone: Mask
    known: Mask
    weights: Array | None = None
    stands_for: Array | None = None
    gap: float = 1.0
    rows: Ints | None = None
    together: Ints | None = None
    plain: Array | None = None
    height: Array | None = None
    shifts: Shifts | None = None

    @classmethod
    def blank(cls, groups: Ints, weights: Array | None, counts: Array, width: int) -> LeftOut:
        """Create left-out rows with zeros as coordinates and residuals, to be filled in later."""
        shape = (len(groups), width)
        plain = height = None
        if counts[0] < FEW_POSITIVES:
            plain, height = np.zeros(shape), np.zeros(len(groups))
        return cls(
            np.zeros(shape, order="F"),
            np.zeros(shape, order="F"),
            groups,
            alone_rows(groups, counts, weights),
            np.zeros(len(groups), dtype=bool),
            weights,
            plain=plain,
            height=height,
        )

    @cached_property
    def weight(self) -> Array:
        """Weight of each row; one if no weights were given."""
        return np.ones(len(self.groups)) if self.weights is None else self.weights

    @cached_property
    def mass(self) -> Array:
        """Total weight of the rows that each row represents."""
        return self.weight if self.stands_for is None else self.weight * self.stands_for

    @property
    def moving(self) -> Shifts | None:
        """Same as `shifts`, or None if there are just two positives.

        The model without one of two positives knows a single example. Its scores are too low for
        the model to be calibrated, and subclass means on its axes make them even lower.
        """
        return self.shifts if np.count_nonzero(self.groups == 0) > 2 else None

    @property
    def unequal_mass(self) -> Array | None:
        """Same as `mass`, or None if each row represents only itself and no weights were given."""
        return None if self.weights is None and self.stands_for is None else self.mass

    @cached_property
    def scored(self) -> Mask:
        """Mask of rows with a usable score: known rows, and negatives alone in their subclass.

        A negative that is alone in its subclass is scored by the other subclasses. Such a row is
        often an outlier, and no other row shows how far outliers reach. If all negatives are alone,
        no row shows the spread around a centre, and their scores are not used.
        """
        negative = self.groups > 0
        if not np.any(self.known & negative):
            return self.known
        lonely = self.alone & negative & np.isfinite(self.coordinates).all(axis=1)
        return self.known | lonely

    @property
    def evidence(self) -> Array:
        """Weight of each row as evidence."""
        return evidence_of(self.mass, self.together)

    def spread(self, values: Array, n_rows: int) -> Array:
        """Expand values of the left-out rows to all `n_rows` training rows, with NaN elsewhere."""
        if self.rows is None:
            return values
        full = np.full(n_rows, np.nan)
        full[self.rows] = values
        return full

    def leading(self, d: int) -> LeftOut:
        """Return the left-out rows with only the first `d` axes."""
        return self._each(lambda rows: rows[:, :d])

    def turned(self, signs: Array) -> LeftOut:
        """Multiply each axis by its sign, 1 or -1."""
        return self._each(lambda rows: rows * signs)

    def _each(self, change: Callable[[Array], Array]) -> LeftOut:
        """Apply a function to each array whose columns are axes."""
        plain = None if self.plain is None else change(self.plain)
        coordinates, residuals = change(self.coordinates), change(self.residuals)
        changed = replace(self, coordinates=coordinates, residuals=residuals, plain=plain)
        if self.shifts is None:
            return changed
        count, rank, width = self.shifts.plane.shape
        plane = change(self.shifts.plane.reshape(-1, width))
        plane = plane.reshape(count, rank, plane.shape[1])
        return replace(changed, shifts=replace(self.shifts, plane=plane))

    def take(self, rows: slice | Ints) -> LeftOut:
        """Return a subset of the rows."""
        parts = {field.name: getattr(self, field.name) for field in fields(self)}
        own: dict[str, Any] = {
            name: part[rows] for name, part in parts.items() if isinstance(part, np.ndarray)
        }
        own["rows"] = None
        if self.shifts is not None:
            own["shifts"] = self.shifts.take(np.arange(len(self.groups))[rows])
        return LeftOut(**own)

    def moments(self) -> list[tuple[Array, float]]:
        """Return the scatter of the left-out residuals and their total weight, for each class.

        The first pair is for the positives, the second for the negatives.
        """
        weight, found = np.where(self.known, self.mass, 0.0), []
        for members in (self.groups == 0, self.groups > 0):
            share = np.where(members, weight, 0.0)  # cheaper than copying the members
            part = self.residuals * np.sqrt(share)[:, None]
            found.append((part.T @ part, float(share.sum())))
        return found


def alone_rows(groups: Ints, counts: Array, weights: Array | None) -> Mask:
    """Return a mask of rows whose group has no other member of noticeable weight."""
    total = counts[groups]
    rest: Array = total - (1.0 if weights is None else weights)
    return rest <= ALONE * total


def inflation(total: Array, weight: Array | None) -> Array:
    """Return ``f = w W_g / (W_g - w)`` of each row, or 0 for a row that is alone in its group.

    Here w is the weight of the row, and W_g the total weight of its group.
    """
    own = np.ones(len(total)) if weight is None else weight
    rest = total - own
    return np.divide(own * total, rest, out=np.zeros(len(total)), where=rest > 0)


def left_out(
    residuals: Floats,
    leverage: Array,
    gap: Array,
    gram: Array,
    rotation: Array,
    division: Grouping,
    out: tuple[Array, Array] | None = None,
) -> LeftOut:
    """Project each row onto the axes of the model fitted without that row.

    If the scatter is singular without a row, the row is not `known`, and its coordinates must not
    be used.

    Parameters
    ----------
    residuals : array of shape (n, K)
        ``a_i = Delta A r_i``.
    leverage, gap : arrays of shape (n,)
        ``h_i = r_i' A r_i`` and ``1 - f_i h_i``.
    gram : array of shape (K, K)
        ``G = Delta A Delta'``.
    rotation : array of shape (K, d)
        ``Q Lambda^(-1/2)`` for all axes, where Q and Lambda are the eigenvectors and eigenvalues of
        G.
    division : Grouping
        The groups and weights of the n rows; the counts are those of all training rows.
    out : two arrays of shape (n, d), optional
        Arrays in which coordinates and residuals are stored; fastest in Fortran order.
    """
    groups, counts, weights = division
    total, weight = counts[groups], 1.0 if weights is None else weights
    alone = alone_rows(*division)
    gaps, known = gap, ~alone & (gap > SMALLEST_GAP)
    rest = np.where(alone, 1.0, total - weight)  # unused for rows that are alone
    gap = np.where(known, gap, 1.0)
    scale, pull = total / rest, weight / rest  # W_g/(W_g - w) and c
    negative, stretch = groups > 0, scale / gap
    own = np.where(negative, residuals[np.arange(len(groups)), np.maximum(groups, 1) - 1], 0.0)
    shift = stretch * pull * leverage
    reach = pull * (leverage + own) / gap  # c s / gap, s = h + a_k
    lift = np.where(negative, 1 + total * reach, stretch)
    reach = np.where(negative, reach, shift)
    # One row per axis, so that operations on all samples run over contiguous memory.
    turn = rotation.T
    out = out or (np.empty((len(turn), len(groups))).T, np.empty((len(turn), len(groups))).T)
    coordinate, residual = out[0].T, out[1].T
    # Rotate everything first. A negative in group k needs G_k and e_k; a positive needs 0 and -1.
    solved = turn @ residuals.T
    centres = np.column_stack([np.zeros(len(turn)), turn @ gram]).take(groups, axis=1)
    axes = np.column_stack([-turn.sum(axis=1), turn]).take(groups, axis=1)
    lonely = np.flatnonzero(alone)
    without = np.where(negative[lonely], without_subclass(centres[:, lonely], axes[:, lonely]), 0.0)
    moves = np.where(known, weight, 0.0)
    closest = turn_of(solved, axes, moves * scale, moves / rest, leverage, gap)
    shifts = _shifts(closest, np.flatnonzero(~negative & known), turn @ gram, residuals)
    np.multiply(solved, stretch, out=residual)
    few = counts[0] < FEW_POSITIVES
    plain = residual.T.copy() if few else None
    residual -= shift * axes
    np.multiply(solved, lift, out=coordinate)
    axes *= reach
    coordinate -= axes
    coordinate += centres
    closest.apply(coordinate)
    closest.apply(residual)
    residual[:, lonely], coordinate[:, lonely] = 0.0, without
    least = float(np.where(alone, 1.0, gaps).min(initial=1.0))
    left = LeftOut(*out, groups, alone, known, weights, gap=least, shifts=shifts)
    return replace(left, plain=plain, height=scale * stretch * leverage if few else None)


def _shifts(turn: Turn, rows: Ints, centres: Array, along: Floats) -> Shifts:
    """Return how far the subclass means move on the axes when each of P positives is left out.

    Parameters
    ----------
    turn : Turn
        The rotation and scaling of the axes for each left-out row.
    rows : array of shape (P,)
        The numbers of the positives.
    centres : array of shape (d, K)
        The subclass means on the axes of the full fit.
    along : array of shape (n, K)
        ``r'A delta_k`` for each row.
    """
    width, count = centres.shape
    plane, steps, along = (
        np.empty((len(rows), 2, width)),
        np.empty((len(rows), 2, count)),
        along[rows],
    )
    plane[:, 0], plane[:, 1] = turn.first[:, rows].T, turn.second[:, rows].T
    (one, two), change = turn.step[:, rows], turn.change[:, :, rows, None]
    first, second = plane[:, 0] @ centres, plane[:, 1] @ centres
    for r, inside in enumerate((one, two)):
        turned = inside + change[r, 0, :, 0] * one + change[r, 1, :, 0] * two
        steps[:, r] = turned[:, None] * along + change[r, 0] * first + change[r, 1] * second
    return Shifts(rows, steps, plane)
