"""Decide when float32 products, which take half the time, are accurate enough.

The error of an entry of a scatter matrix, computed by a float32 product, is a few 1e-8 (at worst
some 1e-7) times the product of the standard deviations of the two features. A quadratic form of the
matrix sums such entries, and the entries may cancel. If the form is 1e-2 of the sum of the
variances, its relative error is about 1e-5.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .linalg import Array, Floats
from .scatter import GroupScatter
from .solvers import Projection

# From this many multiplications, N D^2, float32 pays off.
ENOUGH = 1e8
# A quadratic form must be at least this share of the sum of its variances. At this share, angles of
# the subspace differed from float64 results by less than 1e-4, and log-likelihood ratios by 5e-4.
STATISTICS_SHARE = 1e-2
# The same share for coordinates of rows, which are not squared: they differ by less than 1e-5 of
# the largest coordinate.
ROWS_SHARE = 1e-4
# Squared distances between means below this, in squared standard deviations, are rounding errors.
LEAST_APART = 1e-6
# Range of variances whose squares and inverses fit in float32, with room for block sums.
RANGE = 1e-24, 1e24


def pays(X: Floats) -> bool:
    """Return whether rows are float32 and numerous enough for float32 products to save time."""
    return X.dtype == np.float32 and X.size * X.shape[1] >= ENOUGH


def determines(scatter: GroupScatter, ridge: float, projection: Projection) -> bool:
    """Return whether statistics from float32 products are accurate enough for a solution.

    The projection must include its Cholesky factor. The pivots of this factor must not be small
    compared with the variances of their features. Along each component, neither scatter matrix may
    be small compared with the variances that it combines. The weakest component must exceed
    rounding error. All variances must be in the range of float32.
    """
    if projection.factor is None:
        return False
    variances = scatter.positive.diagonal() + scatter.within.diagonal() + ridge
    forms = [(projection.factor.diagonal() ** 2, variances)]
    components = projection.components
    for matrix in (scatter.positive, scatter.within):
        form = np.einsum("ij,ij->i", components @ matrix, components)
        forms.append((form, components**2 @ matrix.diagonal()))
    shares = all(np.all(form >= STATISTICS_SHARE * parts) for form, parts in forms)
    total = scatter.counts.sum()
    apart = projection.eigenvalues[-1] * total >= LEAST_APART
    return bool(shares and apart) and in_range(variances / total)


def whitens(inverse: Array, variances: Array, total: float) -> bool:
    """Return whether rows can be whitened in float32.

    `inverse` is ``L^-1``, which whitens the rows, `variances` is the diagonal of ``L L'``, and
    `total` is the total weight of the rows.
    """
    return bool(np.all(inverse**2 @ variances <= 1 / ROWS_SHARE)) and in_range(variances / total)


def in_range(variances: Array) -> bool:
    """Return whether the squares and the inverses of `variances` fit in float32."""
    return bool(np.all((variances > RANGE[0]) & (variances < RANGE[1])))


def in_parts(means: Array, variances: Array) -> tuple[NDArray[np.float32], ...]:
    """Split means into one or two float32 arrays, to be subtracted one after the other.

    Two arrays are exact. One array is enough if its rounding error is negligible compared with the
    standard deviations.
    """
    high = means.astype(np.float32)
    low = (means - high).astype(np.float32)
    rounding = np.finfo(np.float32).eps * np.sqrt(variances)
    return (high,) if np.all(np.abs(low) <= rounding) else (high, low)
