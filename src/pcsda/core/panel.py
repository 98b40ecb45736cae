"""Densities of many labels, stacked in arrays and evaluated without a loop over labels.

In each label's subspace, the axes are rotated once more, so that the negatives have unit covariance
about their centres and the positives have a diagonal covariance. A density then needs only a
weighted sum of squares, a plain sum of squares and products with the centres, which takes little
time compared with the projection. Labels with fewer axes or subclasses are padded with zeros, which
do not change the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import isinf
from typing import Any, NamedTuple

import numpy as np

from . import linalg
from .density import Blend, Mixture
from .linalg import Array, Floats, Ints
from .student import energy, log_sum_exp

# Products with the centres are computed for as many labels at a time as fit in this many bytes.
STEP_BYTES = 1 << 20


class Tails(NamedTuple):
    """Degrees of freedom of the mixture and of the cloud; infinite for a Gaussian.

    The mixture has one component per negative subclass. The cloud is one density for all negatives.
    """

    mixture: float = np.inf
    cloud: float = np.inf


@dataclass(frozen=True)
class Panel:
    """Densities of L labels on at most d axes, with at most K subclasses.

    A view is a log density ratio of positives to negatives. The mixture view has one negative
    component per subclass. The cloud view treats all negatives as one cloud along Fisher's axis.

    Attributes
    ----------
    precision : array of shape (L, d)
        Inverse variances of the positives.
    centres : array of shape (L, K, d)
        Subclass means.
    log_weights : array of shape (L, K)
        Log subclass weights; minus infinity if a label has no such subclass.
    volume : array of shape (L,)
        Log volume ratio of the two covariances.
    width : array of shape (L,)
        Number of axes.
    axis : array of shape (L, d)
        Fisher's axis; zero for a label without a cloud, whose mixture view is repeated.
    cloud : array of shape (L, 3)
        Position of the cloud's centre on Fisher's axis, and the variances of the positives and of
        the cloud along that axis.
    turn : array of shape (L, d, d)
        Rotation from the criterion's axes to the panel's axes.
    n_views : int
        Two with a cloud, otherwise one.
    """

    precision: Array
    centres: Array
    log_weights: Array
    volume: Array
    width: Array
    axis: Array
    cloud: Array
    turn: Array
    n_views: int

    @classmethod
    def of(
        cls,
        densities: Sequence[Mixture | Blend],
        kept: Sequence[Ints],
        shape: tuple[int, ...],
        n_views: int,
    ) -> Panel:
        """Stack the densities of many labels.

        `kept` lists the clusters from which the subclasses of each label come. `shape` is (K, d).
        """
        count, (n_clusters, width) = len(densities), shape
        panel = cls(
            np.zeros((count, width)),
            np.zeros((count, n_clusters, width)),
            np.full((count, n_clusters), -np.inf),
            np.zeros(count),
            np.zeros(count),
            np.zeros((count, width)),
            np.tile([0.0, 1.0, 1.0], (count, 1)),
            np.zeros((count, width, width)),
            n_views,
        )
        for label, (density, clusters) in enumerate(zip(densities, kept, strict=True)):
            panel._fill(label, density, clusters)
        return panel

    def updated(
        self, places: Ints, densities: Sequence[Mixture | Blend], kept: Sequence[Ints]
    ) -> Panel:
        """Return a panel whose label i is this panel's label ``places[i]``.

        Labels with a negative place are new, and stacked from `densities` and `kept`.
        """
        found = self.take(np.maximum(places, 0))
        fresh = np.flatnonzero(places < 0).tolist()
        own = [densities[i] for i in fresh], [kept[i] for i in fresh]
        new = Panel.of(*own, self.centres.shape[1:], self.n_views)
        for name, array in vars(new).items():
            if isinstance(array, np.ndarray):
                getattr(found, name)[fresh] = array
        return found

    def _fill(self, label: int, density: Mixture | Blend, clusters: Ints) -> None:
        base, d = density.base, len(density.base.positive)
        white = base.white[1]
        values, vectors = linalg.eigh_descending(white @ base.positive @ white.T)
        turn = vectors.T @ white
        self.turn[label, :d, :d] = turn
        self.precision[label, :d] = 1 / values
        self.centres[label, clusters, :d] = base.centres @ turn.T
        self.log_weights[label, clusters] = base.log_weights
        self.volume[label] = -0.5 * np.log(values).sum()
        self.width[label] = d
        if isinstance(density, Blend) and density.has_axis:
            cloud = density.cloud
            # axis' z = (turn^-T axis)' (turn z)
            self.axis[label, :d] = np.linalg.solve(turn.T, density.axis)
            own = cloud.centres[0, 0], cloud.positive[0, 0], cloud.negative[0, 0]
            self.cloud[label] = own

    def take(self, labels: Any) -> Panel:
        """Return the densities for a subset of the labels."""
        return self._each(lambda array: array[labels])

    def _each(self, change: Callable[[Array], Any]) -> Panel:
        """Apply a function to each array of the panel."""
        arrays: dict[str, Any] = {
            name: change(part) for name, part in vars(self).items() if isinstance(part, np.ndarray)
        }
        return replace(self, **arrays)

    def with_centres(self, centres: Array, log_weights: Array) -> Panel:
        """Replace the subclass means and weights, and adapt the cloud's centre and variance."""
        shares = np.exp(log_weights)
        cloud = self.cloud.copy()
        on_axis = np.einsum("lkd,ld->lk", centres, self.axis)
        before = np.einsum("lkd,ld->lk", self.centres, self.axis)
        old = np.exp(self.log_weights)
        cloud[:, 0] = np.einsum("lk,lk->l", shares, on_axis)
        spread = np.einsum("lk,lk->l", old, (before - self.cloud[:, :1]) ** 2)
        moved = np.einsum("lk,lk->l", shares, (on_axis - cloud[:, :1]) ** 2)
        cloud[:, 2] += np.where(self.axis.any(axis=1), moved - spread, 0.0)
        return replace(self, centres=centres, log_weights=log_weights, cloud=cloud)

    def views(self, z: Floats, tails: Tails) -> Array:
        """Compute views (n_views, L, n) from coordinates (L, n, d) on the panel's axes.

        Views have the dtype of the coordinates. They are computed for a few labels at a time, so
        that intermediate results stay in the cache.
        """
        count, n_rows, _ = z.shape
        rows: Any = z
        found: Array = np.empty((self.n_views, count, n_rows), dtype=z.dtype)
        panel = self if z.dtype == np.float64 else self._single
        size = z.itemsize * max(n_rows, 1) * (panel.centres.shape[1] + 1)
        step = max(1, STEP_BYTES // size)
        for start in range(0, count, step):
            some = slice(start, start + step)
            part, products = panel, panel._products
            if step < count:
                part, products = panel.take(some), tuple(one[some] for one in products)
            found[:, some] = part._some_views(rows[some], products, tails)
        return found

    @cached_property
    def _products(self) -> tuple[Array, ...]:
        """Arrays that the views need and that do not depend on the rows.

        The first array multiplies the squared coordinates, and the second the coordinates. The
        third holds the squared lengths of the centres.
        """
        scales = np.stack([self.precision, np.ones_like(self.precision)], axis=1)
        aims = np.concatenate([self.centres, self.axis[:, None]], axis=1)
        sizes = np.einsum("lkd,lkd->lk", self.centres, self.centres)[:, :, None]
        return scales, aims, sizes

    @cached_property
    def _single(self) -> Panel:
        return self._each(lambda array: array.astype(np.float32))

    def _some_views(self, z: Array, products: tuple[Array, ...], tails: Tails) -> Array:
        scales, aims, sizes = products
        rows = z.swapaxes(1, 2)  # (L, d, n): the rows are contiguous in what follows
        inside, outside = (scales @ (rows * rows)).swapaxes(0, 1)
        both = aims @ rows
        near, on_axis = both[:, :-1], both[:, -1]
        near *= -2
        near += sizes
        ratio = self._mixture_view(inside, outside, near, tails.mixture)
        if self.n_views == 1:
            return ratio[None]
        return np.stack([ratio, self._cloud_view(on_axis, ratio, tails.cloud)])

    def _mixture_view(self, inside: Array, outside: Array, near: Array, tail: float) -> Array:
        """Return the mixture view, given squared Mahalanobis distances.

        `inside` and `outside` (L, n) are squared distances from zero under the positive and the
        negative covariance. `near` (L, K, n) holds squared distances from the centres minus
        `outside`, and is overwritten.
        """
        log_weights, volume = self.log_weights[:, :, None], self.volume[:, None]
        if isinf(tail):
            near *= -0.5
            near += log_weights
            return 0.5 * (outside - inside) - log_sum_exp(near, 1) + volume
        near += outside[:, None]
        energy(near, self.width[:, None, None], tail, out=near)
        np.subtract(log_weights, near, out=near)
        return volume - energy(inside, self.width[:, None], tail) - log_sum_exp(near, 1)

    def _cloud_view(self, on_axis: Array, mixture: Array, tail: float) -> Array:
        """Return the cloud view, or the mixture view for labels without a cloud."""
        centre, positive, negative = (self.cloud[:, i, None] for i in range(3))
        ratio = energy((on_axis - centre) ** 2 / negative, 1, tail)
        ratio -= energy(on_axis**2 / positive, 1, tail)
        ratio += 0.5 * np.log(negative / positive)
        none = ~self.axis.any(axis=1)
        if none.any():
            ratio[none] = mixture[none]
        return ratio
