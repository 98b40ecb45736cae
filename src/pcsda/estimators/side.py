"""Fitted labels of a pooled bank, stacked in arrays for joint scoring and for storage."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ..core import linalg
from ..core.calibration import Calibration
from ..core.density import Blend, Mixture
from ..core.linalg import Array, Floats, Ints
from ..core.many import SolvedLabel
from ..core.panel import Panel, Tails
from ..core.pooling import Pool
from ..core.subspace import is_far, project_rows
from ..kernels import Kernel
from .ratios import FARTHEST, too_large
from .spaces import Space

# Rows are scored in batches whose coordinates under all labels take about this many bytes.
STEP_BYTES = 32 << 20
# Rows with larger coordinates are scored in float64.
FARTHEST_SINGLE = 1e3


@dataclass(frozen=True)
class LabelModel:
    """What a bank stores for one fitted label.

    Attributes
    ----------
    axes : array of shape (d, D), or (d, N) on kernel values
    mean : array of shape (D,)
        Mean of the label's rows; in a kernel bank, the mean of their features, which is unused.
    origin : array of shape (d,)
        Projection of the mean.
    eigenvalues : array of shape (d,)
    kept : array of shape (K',)
        Clusters that contain negatives for the label.
    counts : array of shape (K' + 1,)
        Number of the label's own rows, then of its negatives in each cluster of `kept`.
    density : Mixture or Blend
    moved : array of shape (2,)
        Log slope and offset of the label's calibration, relative to the common calibration.
    fresh : bool
        Whether the label was fitted to the bank's current rows.
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
        """Keep the parts of a label's solution that scoring and building its estimator need."""
        subspace = label.subspace
        assert subspace.means is not None
        axes = space.axes(subspace.coefficients)
        mean = space.mean(subspace.means[0]).copy()
        counts = subspace.projected.counts
        fixed = subspace.origin, subspace.eigenvalues, label.kept, counts
        return cls(np.ascontiguousarray(axes, dtype), mean, *fixed, density, moved)

    def calibration(self, pool: Pool) -> Calibration:
        """Return the common calibration, adjusted to the label's own rows."""
        common = pool.calibration
        if self.density.n_views == 1:  # its single view gets the sum of the common weights
            common = Calibration((common.slope,), common.offset)
        return common.then(float(np.exp(self.moved[0])), float(self.moved[1]))


@dataclass(frozen=True)
class Projection:
    """The map from rows to their coordinates on the axes of all labels.

    Attributes
    ----------
    axes : array of shape (q, D), or (q, N) on kernel values
    centre : array of shape (D,)
        A point near the rows; not used with a kernel.
    origin : array of shape (q,)
        Offset to subtract from projections of centred rows, or of kernel values.
    variances : array of shape (q,)
        Variance of a label along each axis. Rounding errors are compared with this variance.
    kernel : Kernel or None
    rows : array of shape (N, D) or None
        The rows with which kernel values are computed.
    """

    axes: Floats
    centre: Array
    origin: Array
    variances: Array
    kernel: Kernel | None
    rows: Floats | None

    @cached_property
    def _shift(self) -> Array:
        shift, step = self.origin.copy(), linalg.cache_rows(self.axes.shape[1])
        for start in range(0, len(self.axes), step):  # without temporary copies of all axes
            part = slice(start, start + step)
            shift[part] += self.axes[part].astype(np.float64, copy=False) @ self.centre
        return shift

    @cached_property
    def _far(self) -> bool:
        """Whether rows in single precision lose digits; see :func:`is_far`."""
        return is_far(self.axes, self.centre, self.variances, np.dtype(np.float32))

    @cached_property
    def _very_far(self) -> bool:
        """The same for rows in double precision."""
        return is_far(self.axes, self.centre, self.variances, np.dtype(np.float64))

    def __call__(self, X: Floats) -> Floats:
        """Return the coordinates of rows, shape (n, q)."""
        if self.kernel is not None:
            assert self.rows is not None
            values = self.kernel(X, self.rows[: self.axes.shape[1]])
            return (values @ self.axes.T - self.origin).astype(X.dtype, copy=False)
        if self._very_far if X.dtype == np.float64 else self._far:
            return project_rows(X, self.axes, self.origin, self.centre, far=True)
        # As in `project_rows`, but the shift is computed only once.
        z = X @ self.axes.astype(X.dtype, copy=False).T
        z -= self._shift.astype(X.dtype, copy=False)
        return z


@dataclass(frozen=True, eq=False)
class Earlier:
    """Stacked arrays before some labels changed, from which those of the others are taken.

    ``places[i]`` is the position of label i in these arrays, or negative if its model is new.
    """

    panel: Panel
    project: Projection
    places: Ints


@dataclass(frozen=True, eq=False)
class SideBySide:
    """Labels that are scored together.

    Attributes
    ----------
    models : list of LabelModel
    pool : Pool
    kernel : Kernel or None
    rows : array of shape (N, D) or None
        Training rows of a kernel bank.
    earlier : Earlier or None
        Arrays for the labels before the last changes.
    """

    models: list[LabelModel]
    pool: Pool
    kernel: Kernel | None = None
    rows: Floats | None = None
    earlier: Earlier | None = None

    def changed(self, models: list[LabelModel], places: Ints, rows: Floats | None) -> SideBySide:
        """Return the labels after a change.

        ``places[i]`` is the previous position of label i, or negative if its model is new.
        """
        earlier = self.earlier
        if "_project" in vars(self):
            earlier = Earlier(self.panel, self._project, places)
        elif earlier is not None:
            moved = np.where(places < 0, -1, earlier.places[places])
            earlier = replace(earlier, places=moved)
        return replace(self, models=models, rows=rows, earlier=earlier)

    @property
    def width(self) -> int:
        """Largest number of axes of any label."""
        return max(len(model.eigenvalues) for model in self.models)

    @property
    def n_clusters(self) -> int:
        """Number of clusters, up to the last one that contains negatives for some label."""
        return max(int(model.kept[-1]) for model in self.models) + 1

    @cached_property
    def panel(self) -> Panel:
        """The densities of all labels, stacked in arrays."""
        densities = [model.density for model in self.models]
        kept, shape = [model.kept for model in self.models], (self.n_clusters, self.width)
        if (earlier := self._usable) is not None:
            return earlier.panel.updated(earlier.places, densities, kept)
        return Panel.of(densities, kept, shape, self.pool.n_views)

    @cached_property
    def _usable(self) -> Earlier | None:
        """The arrays before the last changes, if they have room for the labels."""
        earlier, shape = self.earlier, (self.n_clusters, self.width)
        same = earlier is not None and earlier.panel.centres.shape[1:] == shape
        return earlier if same else None

    @cached_property
    def _project(self) -> Projection:
        """The projection onto the axes of all labels.

        The axes are rotated as in the panel and padded with zeros.
        """
        panel, (axes, origins, centre, fresh) = self.panel, self._stacks()
        for place in fresh:
            model, (d, own) = self.models[place], self.models[place].axes.shape
            turn = panel.turn[place, :, :d]
            axes[place, :, :own] = turn @ model.axes
            origin = model.origin
            if self.kernel is None:
                origin = model.axes.astype(np.float64) @ (model.mean - centre)
            origins[place] = turn @ origin
        vars(self).update(earlier=None, _usable=None)  # large, and no longer needed
        precision = panel.precision
        spread = np.where(precision > 0, 1 / np.maximum(precision, 1e-300), np.inf).ravel()
        flat = axes.reshape(-1, axes.shape[2]), centre, origins.ravel(), spread
        return Projection(*flat, self.kernel, self.rows)

    def _stacks(self) -> tuple[Floats, Array, Array, list[int]]:
        """Return axes (L, d, D) and their origins (L, d), the centre, and the labels to fill in."""
        models, earlier = self.models, self._usable
        shape = len(models), self.width, max(model.axes.shape[1] for model in models)
        if earlier is None:
            centre = np.zeros(0)
            if self.kernel is None:
                centre = np.mean([model.mean for model in models], axis=0)
            axes: Floats = np.zeros(shape, dtype=models[0].axes.dtype)
            return axes, np.zeros(shape[:2]), centre, list(range(len(models)))
        project, known = earlier.project, np.maximum(earlier.places, 0)
        old, size = earlier.panel.turn.shape[:2], project.axes.shape[1]
        axes, origins = project.axes.reshape(*old, size)[known], project.origin.reshape(old)[known]
        if size < shape[2]:
            axes = np.pad(axes, ((0, 0), (0, 0), (0, shape[2] - size)))
        fresh = np.flatnonzero(earlier.places < 0)
        axes[fresh], origins[fresh] = 0, 0
        return axes, origins, project.centre, fresh.tolist()

    def scores(self, X: Floats) -> Array:
        """Return log-likelihood ratios for all labels, shape (n, L)."""
        count = len(self.models)
        found = np.empty((len(X), count))
        step = max(1, STEP_BYTES // (X.dtype.itemsize * max(len(self._project.axes), 1)))
        slopes, offsets = self._moves
        with np.errstate(over="ignore", invalid="ignore"):  # checked below
            for start in range(0, len(X), step):
                z = self._project(X[start : start + step])
                limit = float(np.abs(z).max(initial=0.0))
                if not np.isfinite(limit):
                    raise too_large(z, start)
                views = self._views(z.reshape(len(z), count, -1).swapaxes(0, 1), limit)
                scores: Array = slopes * self.pool.calibration(views) + offsets
                found[start : start + step] = scores.T
        return found

    def _views(self, z: Floats, limit: float) -> Array:
        """Return the views of coordinates; `limit` is the largest absolute coordinate."""
        if limit > FARTHEST**0.5:
            # As for a single model, coordinates are limited along the criterion's own axes.
            back = np.linalg.pinv(self.panel.turn).swapaxes(1, 2)
            far = np.abs(z @ back).max(axis=-1, keepdims=True)
            z = z * np.minimum(1.0, FARTHEST / np.maximum(far, 1.0))
        if limit > FARTHEST_SINGLE:  # float32 would lose accuracy or overflow
            z = z.astype(np.float64, copy=False)
        return self.panel.views(z, self.pool.tails)

    @cached_property
    def _moves(self) -> tuple[Array, Array]:
        moved = np.array([model.moved for model in self.models])
        return np.exp(moved[:, :1]), moved[:, 1:]


def packed(side: SideBySide) -> dict[str, Any]:
    """Pack the labels into a few arrays, for files and pickles."""
    models, width, clusters = side.models, side.width, side.n_clusters
    count, size = len(models), max(model.axes.shape[1] for model in models)
    state: dict[str, Any] = {
        "axes": np.zeros((count, width, size), models[0].axes.dtype),
        # With a kernel, means are unused, and have as many entries as the kernel matrix has pivots.
        "means": np.stack([model.mean[: None if side.kernel is None else 0] for model in models]),
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
        "pool": {
            "negatives": side.pool.negatives,
            "shrinkage": side.pool.shrinkage,
            "tails": list(side.pool.tails),
            "weights": list(side.pool.calibration.weights),
            "offset": side.pool.calibration.offset,
            "spread": list(side.pool.spread),
        },
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
    return SideBySide(models, pool, kernel, rows)


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
