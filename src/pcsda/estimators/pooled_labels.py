"""Bank labels that share one calibration: fitting, scoring, changing and storing them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import validation
from ..core.linalg import Array, Floats, Ints, Mask, SingularMatrixError
from ..core.many import SharedRows, SolvedLabel
from ..core.spread import no_spread
from ..kernels import Kernel, check_memory, settled_kernel
from ..memory import available_memory
from ..partition import count_distinct
from .changes import BankRows, missed_share, warn_of_one_row
from .doors import Door
from .labels import LabelModels, Source, estimator_of, on_support, stale
from .pooled import PooledFit, Training, fit_pooled, solve_one
from .ratios import too_large
from .shared import cluster_rows, sharing_of
from .side import LabelModel, SideBySide, packed, unpacked
from .spaces import PlainSpace, Space, space_of
from .steps import check_rank


@dataclass(frozen=True)
class Settings:
    """Settings for fitting a bank.

    Attributes
    ----------
    template : estimator
        Its `regularization` is a number.
    seed : int
    given : bool
        Whether the clusters were given.
    own_clusters : bool
        Whether each label has its own k-means.
    n_jobs : int or None
    verbose : bool
    auto_ridge : bool
        Whether the bank chose the ridge.
    """

    template: Any
    seed: int
    given: bool
    own_clusters: bool
    n_jobs: int | None
    verbose: bool
    auto_ridge: bool = False


def can_pool(settings: Settings, rows: BankRows) -> bool:
    """Return whether all labels can share a calibration, which needs closed-form left-out rows."""
    template = settings.template
    if sharing_of(template, rows.X.shape) not in ("linear", "kernel") or settings.own_clusters:
        return False
    shrunk = template.shrinkage == "auto" or float(template.shrinkage) > 0
    known = template.covariance == "leave-one-out" and bool(template.calibrate)
    people = len(np.unique(rows.labels))
    blend = template.negatives in ("blend", "mixture")
    return bool(shrunk and known and blend and people > 2 and template.regularization > 0)


@dataclass(frozen=True)
class Prepared:
    """Rows in the space where they are factorised, together with the factorisation."""

    space: Space
    shared: SharedRows
    training: Training


class PooledLabels:
    """All labels of a bank, stacked in arrays.

    Parameters
    ----------
    settings : Settings
    side : SideBySide
    door : Door
    ridge : float
        The absolute ridge.
    index : array of shape (N,)
        Position of each training row among the rows that the kernel needs.
    prepared : Prepared or None
        The factorisation, if available.
    """

    def __init__(
        self,
        settings: Settings,
        side: SideBySide,
        door: Door,
        ridge: float,
        index: Ints,
        prepared: Prepared | None = None,
    ) -> None:
        self.settings, self.side, self.door, self.ridge = settings, side, door, ridge
        self.index, self._prepared = index, prepared

    @classmethod
    def fit(
        cls,
        settings: Settings,
        rows: BankRows,
        ridge: float | None = None,
        kernel: Kernel | None = None,
    ) -> PooledLabels:
        """Fit all labels, optionally with a given ridge and kernel.

        Raises
        ------
        SingularMatrixError
            If a label cannot be solved on the shared rows.
        """
        _check_room(settings, rows)
        prepared = prepare(settings, rows, ridge, kernel)
        found = fit_pooled(prepared.training, prepared.shared)
        models = _models(settings, found, prepared.space, rows.X.dtype)
        kernel = getattr(prepared.space, "kernel", None)
        side = SideBySide(
            models, found.pool, len(found.shared.counts), kernel, rows.X if kernel else None
        )
        index = np.arange(len(rows.X))
        return cls(settings, side, found.door, found.shared.ridge, index, prepared)

    @property
    def kernel(self) -> Kernel | None:
        """The bank's kernel, if any."""
        return self.side.kernel

    def models(self, names: list[Any], rows: BankRows) -> Mapping[Any, Any]:
        """Return estimators for the labels, built on demand."""

        def build(place: int) -> Any:
            at_hand, side = self.prepared(rows), self.side
            label = side.models[place]

            def views(solved: SolvedLabel) -> Array:
                # The same rows give the same density again, whatever the signs of the axes.
                density, left = side.pool.density(solved), solved.subspace.left
                assert left is not None
                return density.left_out_views(left, solved.subspace.projected.counts)

            fixed = self.settings.template, label, label.calibration(side.pool), views
            spaces = at_hand.shared, at_hand.space, side.kernel, side.rows
            source = Source(*fixed, *spaces, rows.X)
            return estimator_of(source, place)

        return LabelModels(names, rows.labels, build)

    def prepared(self, rows: BankRows) -> Prepared:
        """Return the factorisation of the rows, recomputing it if necessary."""
        if self._prepared is None:
            self._prepared = prepare(self.settings, rows, self.ridge, self.kernel)
        return self._prepared

    def scores(self, X: Floats) -> Array:
        """Return the log-likelihood ratios of rows for all labels."""
        with np.errstate(over="ignore", invalid="ignore"):  # checked below
            found = self.side.scores(X)
        if np.isnan(found).any():
            with np.errstate(over="ignore", invalid="ignore"):
                for start in range(len(X)):
                    z = self.side.project(X[start : start + 1])
                    if not np.isfinite(z).all():
                        raise too_large(np.vstack([np.zeros((start, z.shape[1])), z]))
        return found

    def some(self, places: Ints) -> SideBySide:
        """Return a subset of the labels."""
        models = [self.side.models[place] for place in places]
        return self.side.with_models(models, self.side.rows)

    def priors(self) -> Array:
        """Return the prior probabilities of the rest and of each label, shape (C, 2)."""
        found = []
        for model in self.side.models:
            shares = np.array([model.counts[1:].sum(), model.counts[0]]) / model.counts.sum()
            found.append(validation.check_priors(self.settings.template.priors, shares))
        return np.array(found)

    def changed(
        self,
        before: BankRows,
        rows: BankRows,
        places: list[int | None],
        *,
        kept: Mask | None = None,
        touched: int | None = None,
        name: object = None,
        threshold: float | None = None,
    ) -> PooledLabels:
        """Return the updated labels after the rows changed.

        Parameters
        ----------
        before, rows : BankRows
            Rows before and after the change, both with the new label numbers.
        places : list
            The previous number of each label, None for a new one.
        kept : boolean array, optional
            Which rows were kept; None if rows were added at the end.
        touched : int, optional
            The label to refit.
        name, threshold
            Used in the warning about a label with a single row.
        """
        prepared = self._moved(before, rows, kept)
        index, support = self._supported(rows, kept)
        models = stale([self.side.models[old or 0] for old in places])
        if touched is not None:
            solved = solve_one(prepared.training, prepared.shared, touched)
            check_rank(self.settings.template, solved.subspace.rank)
            density = self.side.pool.density(solved)
            old = places[touched]
            moved = np.zeros(2) if old is None else self.side.models[old].moved
            model = LabelModel.of(solved, density, moved, prepared.space, rows.X.dtype)
            if self.kernel is not None:
                assert support is not None
                model = on_support(model, index, len(support))
            models[touched] = model
            if old is None and solved.n_own == 1:
                missed = missed_share(solved, density, self.side.pool, threshold)
                warn_of_one_row(name, missed, threshold)
        side = self.side.with_models(models, support)
        return PooledLabels(self.settings, side, self.door, self.ridge, index, prepared)

    def _supported(self, rows: BankRows, kept: Mask | None) -> tuple[Ints, Floats | None]:
        """Return the training rows' positions among the rows the kernel needs, and those rows."""
        old = self.side.rows
        if kept is not None:
            return self.index[kept], old
        fresh = len(rows.X) - len(self.index)
        start = len(self.index) if old is None else len(old)
        index = np.append(self.index, np.arange(start, start + fresh))
        return index, None if old is None else np.concatenate([old, rows.X[-fresh:]])

    def _moved(self, before: BankRows, rows: BankRows, kept: Mask | None) -> Prepared:
        """Update the factorisation for changed rows, or recompute it."""
        held = self._prepared
        wide = rows.X.shape[1] > rows.X.shape[0]
        if held is None or not isinstance(held.space, PlainSpace) or wide:
            return prepare(self.settings, rows, self.ridge, self.kernel)
        shared = held.shared.owned(before.labels)
        data = rows.X, rows.labels, rows.clusters, rows.keys, rows.together
        try:
            if kept is None:
                shared = shared.holding(*data).with_last(len(rows.X) - len(before.X))
            else:
                shared = shared.without(np.flatnonzero(~kept)).holding(*data, kept)
        except SingularMatrixError:
            return prepare(self.settings, rows, self.ridge, self.kernel)
        training = _training(self.settings, rows, rows.X, self.ridge)
        return Prepared(PlainSpace(rows.X), shared, training)

    def state(self) -> dict[str, Any]:
        """Return the state to store in files."""
        door = self.door
        same = self.side.rows is None or len(self.side.rows) == len(self.index)
        return {
            "side": packed(self.side),
            "ridge": self.ridge,
            "best": door.best,
            "identity": door.identity,
            "own": door.own,
            "n_met": door.n_met,
            "index": None if same else self.index,
            "support": None if same else self.side.rows,
        }

    @classmethod
    def of_state(
        cls, state: dict[str, Any], settings: Settings, rows: BankRows, kernel: Kernel | None
    ) -> PooledLabels:
        """Restore the labels from :meth:`state`."""
        support = None
        if kernel is not None:
            support = rows.X if state["support"] is None else state["support"]
        index = np.arange(len(rows.X)) if state["index"] is None else state["index"]
        side = unpacked(state["side"], kernel, support)
        door = Door(state["best"], state["identity"], state["own"], float(state["n_met"]))
        return cls(settings, side, door, float(state["ridge"]), index)


def _models(
    settings: Settings, found: PooledFit, space: Space, dtype: np.dtype[np.floating]
) -> list[LabelModel]:
    models = []
    for solved, density, moved in zip(found.labels, found.densities, found.moved, strict=True):
        check_rank(settings.template, solved.subspace.rank)
        models.append(LabelModel.of(solved, density, moved, space, dtype))
    return models


def space_for(settings: Settings, X: Floats, kernel: Kernel | None) -> Space:
    """Return the space in which a bank's rows are factorised; the kernel may be given."""
    template = settings.template
    if sharing_of(template, X.shape) == "kernel":
        if count_distinct(X, 2) < 2:
            raise no_spread()
        check_memory(len(X), 4)
        kernel = settled_kernel(template, X, None, settings.seed) if kernel is None else kernel
    return space_of(X, kernel, template.regularization, verbose=settings.verbose)


def prepare(
    settings: Settings, rows: BankRows, ridge: float | None, kernel: Kernel | None
) -> Prepared:
    """Factorise the rows of a bank."""
    space = space_for(settings, rows.X, kernel)
    training = _training(settings, rows, space.features, ridge)
    return Prepared(space, training.shared(), training)


def _training(
    settings: Settings, rows: BankRows, features: Floats, ridge: float | None
) -> Training:
    template = settings.template

    def cluster(kept: Ints) -> Ints:
        return cluster_rows(template, rows.X[kept], None, settings.seed)

    return Training(
        features,
        rows.labels,
        rows.clusters,
        rows.keys,
        rows.together,
        float(template.regularization),
        ridge,
        template.negatives,
        template.tails,
        None if template.shrinkage == "auto" else float(template.shrinkage),
        template.n_components,
        template.calibration_rows or len(rows.X),
        settings.seed,
        None if settings.given else cluster,
        settings.verbose,
    )


def _check_room(settings: Settings, rows: BankRows) -> None:
    """Reject more labels than fit in memory, before allocating any."""
    count, width = int(rows.labels.max()) + 1, rows.X.shape[1]
    axes = min(int(rows.clusters.max()) + 1, width, settings.template.n_components or width)
    arrays = 2 * count * (axes + 1) * width * rows.X.dtype.itemsize
    require_room(rows, f"{axes} axes each over {width} features", arrays)


def require_room(rows: BankRows, what: str, arrays: int) -> None:
    """Reject a bank whose arrays do not fit in memory alongside the factorised rows."""
    n_rows, width = rows.X.shape
    needed, available = arrays + 24 * n_rows * min(width, n_rows), available_memory()
    if needed > available:
        raise MemoryError(
            f"a bank of {int(rows.labels.max()) + 1} labels with {what} needs about "
            f"{needed / 2**30:.1f} GiB and {available / 2**30:.1f} GiB are available; lower "
            "n_components or n_subclasses, give float32 rows, or divide the labels among banks"
        )
