"""Where a new positive may lie, as far as the spread of the negatives tells (MATH 16).

With one to some twenty positives, left-out positives are too few to calibrate a model, and with one
there is none. The positive mean m is off by the mean residual of its rows, and the axes lean on
that error. A new positive is m plus a residual r of its own minus that of the mean, so that on the
axes it lies at ``Delta A (r - r_m) + (r_m' A r_m) u``, ``u`` the image of all ones: its spread is
``1 + 1/N_p`` times that within groups, and its centre is moved along u. Residuals of the negatives
stand for those of the class: the rows of :func:`pseudo_positives` have that spread and that centre.

A class may be wider than the few rows of it tell, and reach to where negatives lie. So a little of
the weight of positives also goes to the negatives: their scores keep the slope from growing without
end where all that is known of the class lies far from them.
"""

from __future__ import annotations

import numpy as np

from .density import Density
from .linalg import Array, Mask
from .subspace import Subspace

# How many positives the pseudo-positives count for beside real ones.
PSEUDO_MASS = 3.0
# How many positives are taken to lie where negatives do, when one is known; n squared times fewer
# when n are known.
STRAY_MASS = 1.0


def pseudo_positives(subspace: Subspace) -> tuple[Array, Array] | None:
    """Rows where new positives may lie, and their weights; None where positives are not few.

    Every negative that can be left out gives two of them, its residual and the opposite one, so
    that neither the order of rows nor the signs of axes matter.
    """
    left = subspace.left
    if left is None or left.plain is None or left.height is None:
        return None
    own = np.flatnonzero((left.groups > 0) & left.known)
    if len(own) == 0:
        return None
    count = max(float(subspace.projected.counts[0]), 1.0)
    spread = np.sqrt(1 + 1 / count) * left.plain[own]
    moved = np.outer(left.height[own] / count, _all_ones(subspace))
    mass = np.tile(left.mass[own], 2)
    return np.concatenate([moved + spread, moved - spread]), mass * (PSEUDO_MASS / mass.sum())


def with_pseudo_positives(
    subspace: Subspace, density: Density, views: Array, positive: Mask, weight: Array
) -> tuple[Array, Mask, Array]:
    """Views of left-out rows, which are positives and what they weigh; pseudo-positives added.

    What is added comes last. Where positives are not few, nothing is.
    """
    few = pseudo_positives(subspace)
    if few is None:
        return views, positive, weight
    rows, mass = few
    others = ~positive
    count = max(float(subspace.projected.counts[0]), 1.0)
    stray = weight[others] * (STRAY_MASS / count**2 / weight[others].sum())
    views = np.hstack([views, density.views(rows), views[:, others]])
    weight = np.concatenate([weight, mass, stray])
    more = np.ones(len(weight) - len(positive), dtype=bool)
    return views, np.append(positive, more), weight


def _all_ones(subspace: Subspace) -> Array:
    """``u = R'1``: how far the axes see a change of all subclass means at once."""
    means = subspace.projected.means
    toward: Array = ((means[1:] - means[0]) / subspace.eigenvalues).sum(axis=0)
    return toward
