"""Where a new positive may lie, estimated from the spread of the negatives (MATH 16).

With up to about twenty positives, left-out positives are too few to calibrate a model; with a
single positive there are none. The error of the positive mean m is the mean residual r_m of the
positives, and the axes depend on that error. A new positive is m plus its own residual r minus r_m.
On the axes, the new positive lies at ``Delta A (r - r_m) + (r_m' A r_m) u``, where u is the image
of a vector of ones. So its covariance is ``1 + 1/N_p`` times the covariance within groups, and its
centre is shifted along u. :func:`pseudo_positives` makes rows with this covariance and centre from
the residuals of negatives.

A class may be wider than its few rows suggest, and may overlap with the negatives. So the negatives
also get a small weight as positives, and are then called strays. Their scores limit the slope if
all known positives lie far away.
"""

from __future__ import annotations

import numpy as np

from .density import Density
from .linalg import Array, Mask
from .loo import FEW_POSITIVES
from .subspace import Subspace

# Total weight of the pseudo-positives; a real positive has weight one.
PSEUDO_MASS = 3.0
# Total weight of the strays if one positive is known; with n positives it is divided by n.
STRAY_MASS = 1.0


def pseudo_positives(subspace: Subspace, columns: float = np.inf) -> tuple[Array, Array] | None:
    """Return rows where new positives may lie, and their weights, or None if positives are not few.

    Each negative that can be left out contributes its residual and the negated residual, so that
    neither the row order nor the signs of the axes matter.

    `columns` is the number of columns of X. If it is small, k-means cells are narrow parts of the
    negatives, while a class may be as wide as all negatives together. If there are enough cells to
    halve each column, K cells in D columns are ``K^(-1/D)`` times as wide as all negatives, and the
    residuals are widened accordingly.
    """
    left = subspace.left
    if left is None or left.plain is None or left.height is None:
        return None
    own = np.flatnonzero((left.groups > 0) & left.known)
    if len(own) == 0:
        return None
    count = max(float(subspace.projected.counts[0]), 1.0)
    cells = subspace.projected.n_subclasses
    wider = cells ** (1 / columns) if columns <= np.log2(cells) else 1.0
    spread = wider * np.sqrt(1 + 1 / count) * left.plain[own]
    # u = R'1 shows how a common shift of all subclass means appears on the axes.
    toward = (subspace.projected.delta / subspace.eigenvalues).sum(axis=0)
    moved = np.outer(left.height[own] / count, toward)
    mass = np.tile(left.mass[own], 2)
    return np.concatenate([moved + spread, moved - spread]), mass * (PSEUDO_MASS / mass.sum())


def with_pseudo_positives(
    subspace: Subspace,
    density: Density,
    views: Array,
    positive: Mask,
    weight: Array,
    columns: float = np.inf,
) -> tuple[Array, Mask, Array]:
    """Add pseudo-positives and strays to the views, class labels and weights of left-out rows.

    Both count as positives and are appended after the left-out rows. If there are enough positives,
    nothing is added.
    """
    few = pseudo_positives(subspace, columns)
    if few is None:
        return views, positive, weight
    rows, mass = few
    others = views[:, ~positive]
    count = max(float(subspace.projected.counts[0]), 1.0)
    stray = _strays(weight[~positive], count)
    views = np.hstack([views, density.views(rows), others])
    weight = np.concatenate([weight, mass, stray])
    more = np.ones(len(weight) - len(positive), dtype=bool)
    return views, np.append(positive, more), weight


def with_strays(views: Array, positive: Mask, weight: Array) -> tuple[Array, Mask, Array]:
    """Add the negatives again, as positives with a small weight, if there are few positives."""
    count = float(weight[positive].sum())
    if count >= FEW_POSITIVES:
        return views, positive, weight
    others = ~positive
    views = np.hstack([views, views[:, others]])
    weight = np.append(weight, _strays(weight[others], count))
    return views, np.append(positive, np.ones(int(others.sum()), dtype=bool)), weight


def _strays(weight: Array, count: float) -> Array:
    """Return the weight of each negative as a stray, given the number `count` of positives."""
    strays: Array = weight * (STRAY_MASS / count / weight.sum())
    return strays
