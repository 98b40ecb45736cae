"""Fitted labels of a pooled bank, stacked in arrays for joint scoring and for storage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..core.calibration import Calibration
from ..core.density import Blend, Mixture
from ..core.linalg import Array, Floats, Ints
from ..core.many import SolvedLabel
from ..core.panel import Panel, Tails
from ..core.pooling import Pool
from ..core.subspace import is_far, project_rows
from ..kernels import Kernel
from .ratios import FARTHEST
from .spaces import Space

# Coordinates of rows under all labels are computed in batches of about this many bytes.
STEP_BYTES = 32 << 20
# Coordinates up to this size are scored in their own precision.
FARTHEST_SINGLE = 1e3


@dataclass(frozen=True)
class LabelModel:
    """The stored results of one fitted label.

    Attributes
    ----------
    axes : array of shape (d, D), or (d, N) on kernel values
    mean : array of shape (D,)
        Mean of the label's rows; in a kernel bank, the mean of their features, which is not used.
    origin : array of shape (d,)
        Projection of the mean.
    eigenvalues : array of shape (d,)
    kept : array of shape (K',)
        Clusters that contain negatives for the label.
    counts : array of shape (K' + 1,)
    density : Mixture or Blend
    moved : array of shape (2,)
        Log slope and offset, relative to the common values.
    fresh : bool
        Whether the label was fitted on the current rows of the bank.
    """

    axes: Floats
    mean: Array
    origin: Array
    eigenvalues: Array
    kept: Ints
    counts: Array
    density: Mixture | Blend
    moved: Array
    fresh: bool = True

    @classmethod
    def of(
        cls,
        label: SolvedLabel,
        density: Mixture | Blend,
        moved: Array,
        space: Space,
        dtype: np.dtype[np.floating],
    ) -> LabelModel:
        """Store the parts of a solved label that scoring and later estimators need."""
        subspace = label.subspace
        assert subspace.means is not None
        axes = space.axes(subspace.coefficients)
        mean = space.mean(subspace.means[0]).copy()
        counts = subspace.projected.counts
        fixed = subspace.origin, subspace.eigenvalues, label.kept, counts
        return cls(np.ascontiguousarray(axes, dtype), mean, *fixed, density, moved)

    def calibration(self, pool: Pool) -> Calibration:
        """Return the common calibration, adjusted by the label's own rows."""
        common = pool.calibration
        if self.density.n_views == 1:  # the sum of the common weights applies to its one view
            common = Calibration((common.slope,), common.offset)
        return common.then(float(np.exp(self.moved[0])), float(self.moved[1]))


class SideBySide:
    """Labels that are scored together.

    Parameters
    ----------
    models : sequence of LabelModel
    pool : Pool
    n_clusters : int
    kernel : Kernel or None
    rows : array of shape (N, D) or None
        Training rows of a kernel bank.
    """

    def __init__(
        self,
        models: Sequence[LabelModel],
        pool: Pool,
        n_clusters: int,
        kernel: Kernel | None = None,
        rows: Floats | None = None,
    ) -> None:
        self.models, self.pool, self.n_clusters = list(models), pool, n_clusters
        self.kernel, self.rows = kernel, rows

    @property
    def width(self) -> int:
        """Largest number of axes that any label has."""
        return max(len(model.eigenvalues) for model in self.models)

    @cached_property
    def panel(self) -> Panel:
        """The densities of all labels, stacked."""
        densities = [model.density for model in self.models]
        kept = [model.kept for model in self.models]
        return Panel.of(densities, kept, (self.n_clusters, self.width), self.pool.n_views)

    @cached_property
    def axes(self) -> Floats:
        """Axes of all labels, rotated as in the panel and padded with zeros, shape (L d, D)."""
        size = max(model.axes.shape[1] for model in self.models)
        dtype = self.models[0].axes.dtype
        axes = np.zeros((len(self.models), self.width, size), dtype=dtype)
        for place, model in enumerate(self.models):
            d, own = model.axes.shape
            axes[place, :, :own] = self.panel.turn[place, :, :d] @ model.axes
        return axes.reshape(-1, size)

    @cached_property
    def centre(self) -> Array:
        """Mean of the label means; rows are projected relative to it."""
        centre: Array = np.mean([model.mean for model in self.models], axis=0)
        return centre

    @cached_property
    def origins(self) -> Array:
        """Offsets to subtract from projections of centred rows, or of kernel values."""
        origins = np.zeros((len(self.models), self.width))
        for place, model in enumerate(self.models):
            d = len(model.eigenvalues)
            own = model.origin
            if self.kernel is None:
                own = model.axes.astype(np.float64) @ (model.mean - self.centre)
            origins[place] = self.panel.turn[place, :, :d] @ own
        return origins.ravel()

    @cached_property
    def _spread(self) -> Array:
        precision = self.panel.precision
        variances: Array = np.where(precision > 0, 1 / np.maximum(precision, 1e-300), np.inf)
        return variances.ravel()

    @cached_property
    def _shift(self) -> Array:
        shift: Array = self.origins + self.axes.astype(np.float64, copy=False) @ self.centre
        return shift

    @cached_property
    def _far(self) -> dict[Any, bool]:
        return {
            kind: is_far(self.axes, self.centre, self._spread, np.dtype(kind))
            for kind in (np.float32, np.float64)
        }

    def project(self, X: Floats) -> Floats:
        """Compute the coordinates of rows under all labels, shape (n, L d)."""
        if self.kernel is not None:
            assert self.rows is not None
            values = self.kernel(X, self.rows[: self.axes.shape[1]])
            z: Floats = (values @ self.axes.T - self.origins).astype(X.dtype, copy=False)
            return z
        if self._far[X.dtype.type]:
            return project_rows(X, self.axes, self.origins, self.centre, far=True)
        z = X @ self.axes.astype(X.dtype, copy=False).T
        z -= self._shift.astype(X.dtype, copy=False)
        return z

    def scores(self, X: Floats) -> Array:
        """Return log-likelihood ratios for all labels, shape (n, L); NaN if a row overflows."""
        count = len(self.models)
        found = np.empty((len(X), count))
        step = max(1, STEP_BYTES // (X.dtype.itemsize * max(len(self.axes), 1)))
        slopes, offsets = self._moves
        for start in range(0, len(X), step):
            z = self.project(X[start : start + step])
            views = self._views(z.reshape(len(z), count, -1).swapaxes(0, 1))
            scores: Array = slopes * self.pool.calibration(views) + offsets
            found[start : start + step] = scores.T
        return found

    def _views(self, z: Floats) -> Array:
        limit = float(np.abs(z).max(initial=0.0))
        if not np.isfinite(limit):
            return np.full((self.panel.n_views, *z.shape[:2]), np.nan)
        if limit > FARTHEST**0.5:
            # As for a single model, the axes of the criterion determine what is far.
            back = np.linalg.pinv(self.panel.turn).swapaxes(1, 2)
            far = np.abs(z @ back).max(axis=-1, keepdims=True)
            z = z * np.minimum(1.0, FARTHEST / np.maximum(far, 1.0))
        if limit > FARTHEST_SINGLE:  # single precision would lose distances, if not overflow
            z = z.astype(np.float64, copy=False)
        return self.panel.views(z, self.pool.tails)

    @cached_property
    def _moves(self) -> tuple[Array, Array]:
        moved = np.array([model.moved for model in self.models])
        return np.exp(moved[:, :1]), moved[:, 1:]

    def with_models(self, models: Sequence[LabelModel], rows: Floats | None) -> SideBySide:
        """Return a copy with other labels and the same calibration."""
        return SideBySide(models, self.pool, self.n_clusters, self.kernel, rows)


def packed(side: SideBySide) -> dict[str, Any]:
    """Pack the labels into a few arrays, for files and pickles."""
    models, width, clusters = side.models, side.width, side.n_clusters
    count, size = len(models), max(model.axes.shape[1] for model in models)
    state: dict[str, Any] = {
        "axes": np.zeros((count, width, size), models[0].axes.dtype),
        "means": np.stack([model.mean for model in models]),
        "sizes": np.array([model.axes.shape for model in models]),
        "origins": np.zeros((count, width)),
        "eigenvalues": np.zeros((count, width)),
        "counts": np.zeros((count, clusters + 1)),
        "covariances": np.zeros((count, 2, width, width)),
        "centres": np.zeros((count, clusters, width)),
        "fisher": np.full((count, width), np.nan),
        "strengths": np.array(
            [[m.density.base.positive_strength, m.density.base.negative_strength] for m in models]
        ),
        "moved": np.stack([model.moved for model in models]),
        "fresh": np.array([model.fresh for model in models]),
        "n_clusters": clusters,
        "pool": _packed_pool(side.pool),
    }
    for place, model in enumerate(models):
        (d, own), base = model.axes.shape, model.density.base
        state["axes"][place, :d, :own] = model.axes
        state["origins"][place, :d] = model.origin
        state["eigenvalues"][place, :d] = model.eigenvalues
        state["counts"][place, 0] = model.counts[0]
        state["counts"][place, model.kept + 1] = model.counts[1:]
        state["covariances"][place, :, :d, :d] = base.positive, base.negative
        state["centres"][place, model.kept, :d] = base.centres
        if isinstance(model.density, Blend):
            state["fisher"][place, :d] = model.density.axis
    return state


def _packed_pool(pool: Pool) -> dict[str, Any]:
    return {
        "negatives": pool.negatives,
        "shrinkage": pool.shrinkage,
        "tails": list(pool.tails),
        "weights": list(pool.calibration.weights),
        "offset": pool.calibration.offset,
        "spread": list(pool.spread),
    }


def unpacked(state: dict[str, Any], kernel: Kernel | None, rows: Floats | None) -> SideBySide:
    """Restore the labels from the arrays that :func:`packed` returned."""
    held = state["pool"]
    calibration = Calibration(tuple(map(float, held["weights"])), float(held["offset"]))
    pool = Pool(
        str(held["negatives"]),
        float(held["shrinkage"]),
        Tails(*map(float, held["tails"])),
        calibration,
        (float(held["spread"][0]), float(held["spread"][1])),
    )
    models = [_unpacked(state, place, pool.tails) for place in range(len(state["axes"]))]
    return SideBySide(models, pool, int(state["n_clusters"]), kernel, rows)


def _unpacked(state: dict[str, Any], place: int, tails: Tails) -> LabelModel:
    d, own = state["sizes"][place]
    kept = np.flatnonzero(state["counts"][place, 1:])
    counts = state["counts"][place][np.append(0, kept + 1)]
    positive, negative = (part.copy() for part in state["covariances"][place, :, :d, :d])
    centres = state["centres"][place][kept, :d].copy()
    log_weights = np.log(counts[1:] / counts[1:].sum())
    inside, outside = (float(one) for one in state["strengths"][place])
    fixed = positive, negative, centres, log_weights, negative, inside, outside
    base = Mixture(*fixed, centres, tails.mixture)
    axis = state["fisher"][place, :d]
    density = base if np.isnan(axis[0]) else Blend(base, axis, tails.cloud)
    return LabelModel(
        np.ascontiguousarray(state["axes"][place, :d, :own]),
        state["means"][place],
        state["origins"][place, :d],
        state["eigenvalues"][place, :d],
        kept,
        counts,
        density,
        state["moved"][place],
        bool(state["fresh"][place]),
    )
