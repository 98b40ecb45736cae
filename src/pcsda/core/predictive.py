"""Where a new positive may lie, estimated from the spread of the negatives (MATH 16).

With up to about twenty positives, left-out positives are too few to calibrate a model; with a
single positive there are none. The positive mean m is off by its rows' mean residual r_m, and
the axes depend on that error. A new positive is m plus its own residual r minus r_m. On the axes it
lies at ``Delta A (r - r_m) + (r_m' A r_m) u``, where ``u`` is the image of all ones: its spread is
``1 + 1/N_p`` times the spread within groups, and its centre is shifted along u. The negatives'
residuals stand in for the positives' residuals: the rows from :func:`pseudo_positives` have that
spread and centre.

A class may be wider than its few rows suggest, and overlap the negatives. So the negatives also get
a small weight as positives: their scores limit the slope if all known positives lie far away.
"""

from __future__ import annotations

import numpy as np

from .density import Density
from .linalg import Array, Mask
from .loo import FEW_POSITIVES
from .subspace import Subspace

# Weight of all pseudo-positives together, in real positives.
PSEUDO_MASS = 3.0
# Weight of positives assumed among the negatives if one positive is known; with n positives it is
# divided by n.
STRAY_MASS = 1.0


def pseudo_positives(subspace: Subspace, columns: float = np.inf) -> tuple[Array, Array] | None:
    """Return weighted rows where new positives may lie, or None if there are enough positives.

    In few columns, k-means cells are narrow parts of the negatives, and a class may be as wide as
    all of them: K cells in D columns are ``K^(-1/D)`` as wide if there are enough to halve each.

    Each negative that can be left out contributes its residual and the negated residual, so that
    neither the row order nor the signs of the axes matter.
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
    moved = np.outer(left.height[own] / count, _all_ones(subspace))
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
    """Add pseudo-positives to the views, labels and weights of left-out rows.

    Pseudo-positives come last. If there are enough positives, none are added.
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
    """If positives are few, add the negatives to them with a small weight."""
    count = float(weight[positive].sum())
    if count >= FEW_POSITIVES:
        return views, positive, weight
    others = ~positive
    views = np.hstack([views, views[:, others]])
    weight = np.append(weight, _strays(weight[others], count))
    return views, np.append(positive, np.ones(int(others.sum()), dtype=bool)), weight


def _strays(weight: Array, count: float) -> Array:
    """Return the negatives' weights as positives, given `count` known positives."""
    strays: Array = weight * (STRAY_MASS / count / weight.sum())
    return strays


def _all_ones(subspace: Subspace) -> Array:
    """Return ``u = R'1``, a common shift of all subclass means expressed on the axes."""
    means = subspace.projected.means
    toward: Array = ((means[1:] - means[0]) / subspace.eigenvalues).sum(axis=0)
    return toward
