"""Fisher's axis in the subspace, which best separates the positives from all negatives (MATH 9).

The negatives count as one cloud. With few positives, a ridge keeps the error of their mean from
turning the axis, and left-out rows need an axis found without them.
"""

from __future__ import annotations

import numpy as np

from . import linalg
from .covariance import Moments
from .left_density import Remaining
from .linalg import Array
from .loo import FEW_POSITIVES, SMALLEST_GAP, LeftOut
from .student import energy

# Ridge on the covariance behind Fisher's axis, relative to the criterion's denominator: for n
# positives, this number times 1/sqrt(n) - 1/sqrt(FEW_POSITIVES), or 0 if that is negative.
AXIS_RIDGE = 5.0


def fisher_axis(positive: Array, cloud: Array, centre: Array, moments: Moments) -> Array | None:
    """Return the axis that best separates positives from the cloud of all negatives, or None.

    `positive` and `cloud` are the covariances of the two classes, and `centre` is the mean of the
    negatives.

    Fisher's axis amplifies the error of the positive mean along directions in which rows vary
    little, and positives hidden among the negatives turn the axis away from the positive class. So
    if positives are few, a ridge is added: a multiple of the criterion's denominator, which is the
    identity on the axes. With a single positive, the error of the mean is as large as the spread of
    the rows. So if no positive can be left out, only the criterion's ridged scatter determines the
    axis. Returns None if the class means are equal up to rounding.
    """
    counts = moments.scatter.counts
    if moments.n_positive > 0 or moments.ridged is None:
        # With all K axes, Fisher's axis for the pooled covariance is the solution for K = 1.
        share = counts[0] / counts.sum()
        covariance = share * positive + (1 - share) * cloud
        covariance += _ridge(counts) * np.eye(len(centre))
    else:
        covariance = moments.ridged / counts.sum()
    axis = np.asarray(np.linalg.solve(covariance, centre), dtype=np.float64)
    if centre @ axis <= linalg.SAME_POINT**2:  # the means differ only by rounding
        return None
    axis = scaled(axis)
    return axis if axis.any() else None


def cloud_ratio_without(
    factors: tuple[Array, Array],
    middle: tuple[Array, Array],
    shares: Array,
    tail: float,
    rest: Remaining,
    left: LeftOut,
    counts: Array,
) -> Array:
    """Return the cloud's log ratios of left-out rows, on a Fisher axis found without them.

    Few positives pull Fisher's axis toward themselves, so the axis is found again for each block of
    rows that includes positives. All vectors are in coordinates that whiten the cloud, because the
    cloud may be far wider than the positives.

    Parameters
    ----------
    factors : two arrays of shape (d, d)
        Lower Cholesky factors of the covariances of positives and of negatives about their centres.
    middle : arrays of shape (d,) and (C, d)
        Mean of the negatives' centres, and their deviations from it, each times the square root of
        the centre's weight.
    shares : array of shape (C,)
        Weights of the centres.
    tail : float
        Degrees of freedom of the cloud.
    rest : Remaining
        The positives without each block of rows.
    left : LeftOut
    counts : array of shape (K + 1,)
        Group sizes.
    """
    (positive, negative), (centre, spread) = factors, middle
    share = counts[0] / counts.sum()
    cloud = np.asarray(np.linalg.qr(np.vstack([negative.T, spread]), mode="r")).T
    back = linalg.triangular_inverse(cloud)
    turn = back @ positive
    inner = turn @ rest.covariances @ turn.T
    toward = np.tile(centre, (len(rest.moves), 1))
    if left.moving is not None:
        block = np.full(len(left.groups), -1)
        block[rest.rows] = rest.block
        own = block[left.moving.rows]
        toward[own[own >= 0]] += left.moving.of_mean(shares)[own >= 0]
    toward = toward @ back.T + rest.moves @ turn.T
    pooled = share * inner + (1 - share) * np.eye(len(centre))
    pooled += _ridge(counts) * back @ back.T
    axis = np.linalg.solve(pooled, toward[:, :, None])[:, :, 0]
    outside = np.einsum("bi,bi->b", axis, axis)
    inside = np.einsum("bi,bij,bj->b", axis, inner, axis)
    inside = np.maximum(inside, SMALLEST_GAP * outside)
    z = left.coordinates[rest.rows] @ back.T
    along = np.einsum("ij,ij->i", z, axis[rest.block])
    apart = along - np.einsum("bi,bi->b", toward, axis)[rest.block]
    far = energy(apart**2 / outside[rest.block], 1, tail)
    near = energy(along**2 / inside[rest.block], 1, tail)
    volume = 0.5 * (np.log(outside) - np.log(inside))
    ratio: Array = volume[rest.block] + far - near
    return ratio


def _ridge(counts: Array) -> float:
    """Return the ridge for Fisher's axis, given the group sizes with the positives first."""
    few = 1 / np.sqrt(max(counts[0], 1.0)) - 1 / np.sqrt(FEW_POSITIVES)
    return max(AXIS_RIDGE * float(few), 0.0) / float(counts.sum())


def scaled(axis: Array) -> Array:
    """Scale an axis so that its largest entry has magnitude one; an axis of zeros stays zero."""
    largest = float(np.abs(axis).max(initial=0.0))
    return axis / largest if np.isfinite(largest) and largest > 0 else np.zeros_like(axis)
