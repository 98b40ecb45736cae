"""Why a sample has its score: the part of every axis, what lies next to it, how typical it is."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from .calibration import Calibration
from .density import Density
from .linalg import BLOCK_BYTES, Array
from .student import whitening

# Of samples like those seen, fewer than this share are called outside.
OUTSIDE = 1e-3


@dataclass(frozen=True)
class Explanation:
    """Explained scores of n samples.

    Attributes
    ----------
    score : array of shape (n,)
        Log-likelihood ratio; ``contributions.sum(axis=1) + offset``.
    contributions : array of shape (n, d)
        What every axis adds to what the axes before it have said: the log ratio of axes 1 to j
        less that of axes 1 to j - 1, times the slope of the calibration. They sum up to the score
        exactly. Below zero the axis speaks for the rest. Axes come in the order of their
        eigenvalues; in another order the same evidence would be divided otherwise.
    offset : float
        Part of the score that no axis has: the offset of the calibration.
    positive_distance : array of shape (n,)
        Distance from the mean of the class of interest, in its standard deviations (Mahalanobis).
    subclass : array of shape (n,)
        Nearest subclass of the rest, numbered from 1 as in `groups_`. Models without subclasses
        have one, all of the rest.
    subclass_size : array of shape (n,)
        Number, or total weight, of its training samples.
    subclass_distance : array of shape (n,)
        Distance from its mean, in standard deviations of a subclass.
    typicality : array of shape (n,)
        Share of samples of the class of interest that lie farther out than this one, or of the
        nearest part of the rest if that is larger: 1 in the middle, near 0 far from everything.
    outside : boolean array of shape (n,)
        Typicality below 0.001: like nothing seen in training, so do not trust the score.
    """

    score: Array
    contributions: Array
    offset: float
    positive_distance: Array
    subclass: NDArray[np.intp]
    subclass_size: Array
    subclass_distance: Array
    typicality: Array
    outside: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.score)

    def __getitem__(self, rows: Any) -> Explanation:
        """Explanation of some samples; of one number, a part of length one."""
        chosen = np.arange(len(self))[rows].reshape(-1)
        parts = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "offset"}
        return Explanation(offset=self.offset, **{n: part[chosen] for n, part in parts.items()})

    def __str__(self) -> str:
        return "\n".join(self._sentence(row) for row in range(len(self)))

    def _sentence(self, row: int) -> str:
        parts = self.contributions[row]
        order = np.argsort(-np.abs(parts), kind="stable")[:3]
        listed = ", ".join(f"axis {axis + 1} {parts[axis]:+.3g}" for axis in order)
        more = (
            ""
            if len(parts) <= 3
            else f", {len(parts) - 3} more {np.delete(parts, order).sum():+.3g}"
        )
        text = (
            f"log-likelihood ratio {self.score[row]:.3g}: {listed}{more}, offset "
            f"{self.offset:+.3g}; {self.positive_distance[row]:.3g} standard deviations from the "
            f"class of interest, {self.subclass_distance[row]:.3g} from subclass "
            f"{self.subclass[row]} (n = {self.subclass_size[row]:g}); typicality "
            f"{self.typicality[row]:.2g}"
        )
        return text + (", outside everything seen" if self.outside[row] else "")


def explain(
    z: Array,
    density: Density,
    calibration: Calibration,
    *,
    sizes: Array,
    unseen: NDArray[np.bool_],
) -> Explanation:
    """Explain the calibrated scores of rows in the subspace.

    `sizes` are those of the subclasses; rows that are `unseen` are outside wherever they lie.
    Distances are tested against the F distribution that the squared Mahalanobis distance has when
    its covariance is estimated from as many samples as stand behind it (Hotelling), or where tails
    are fitted and heavier, against that of Student's t.
    """
    # Every row meets every centre on every axis: many centres take few rows at a time.
    step = max(1, BLOCK_BYTES // (8 * density.base.centres.size))
    blocks = [
        _parts(z[start : start + step], density, calibration) for start in range(0, len(z), step)
    ]
    parts, positive, nearest, apart, typicality = map(np.concatenate, zip(*blocks, strict=True))
    typicality[unseen] = 0.0
    return Explanation(
        score=parts.sum(axis=1) + calibration.offset,
        contributions=parts,
        offset=calibration.offset,
        positive_distance=positive,
        subclass=nearest + 1,
        subclass_size=sizes[nearest],
        subclass_distance=apart,
        typicality=typicality,
        outside=typicality < OUTSIDE,
    )


def _parts(
    z: Array, density: Density, calibration: Calibration
) -> tuple[Array, Array, NDArray[np.intp], Array, Array]:
    """Contributions, positive distance, nearest subclass and its distance, typicality of rows."""
    width, base = z.shape[1], density.base
    path = calibration(density.path(z)) - calibration.offset
    contributions = np.diff(path, axis=1, prepend=0.0)
    positive = _distances(z, np.zeros((1, width)), base.positive)[:, 0]
    spread = base.negative if base.within is None else base.within
    apart = _distances(z, base.subclasses, spread)
    # The density that the score comes from, about its own centres.
    rest = _distances(z, base.centres, base.negative).min(axis=1)
    typicality = np.maximum(
        _farther(positive, width, base.positive_strength, base.tail),
        _farther(rest, width, base.negative_strength, base.tail),
    )
    return contributions, positive, apart.argmin(axis=1), apart.min(axis=1), typicality


def _distances(z: Array, centres: Array, covariance: Array) -> Array:
    """Mahalanobis distance of every row from every centre, shape (n, number of centres)."""
    white = whitening(covariance)
    rows, middles = z @ white.T, centres @ white.T
    return np.stack([np.linalg.norm(rows - middle, axis=1) for middle in middles], axis=1)


def _farther(distance: Array, width: int, strength: float, tail: float) -> Array:
    """Probability to lie farther out, where `strength` samples gave the covariance."""
    freedom = max(strength - width + 1, 1.0)
    scale = freedom / strength
    if tail < freedom:
        freedom, scale = tail, tail / (tail - 2)
    share: Array = stats.f.sf(distance**2 * scale / width, width, freedom)
    return share
