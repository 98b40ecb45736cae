"""Bank labels that share one calibration: fitting, scoring, changing and storing them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..core.linalg import Array, Floats, Ints, Mask, SingularMatrixError
from ..core.many import SolvedLabel
from ..core.spread import no_spread
from ..kernels import Kernel, check_memory, settled_kernel
from ..memory import available_memory
from ..partition import count_distinct
from .changes import BankRows, Change, Settings, missed_share
from .doors import Door
from .labels import LabelModels, Source, estimator_of
from .parameters import check_priors
from .pooled import Prepared, Training, fit_pooled
from .shared import cluster_rows, sharing_of
from .side import LabelModel, SideBySide, packed, unpacked
from .spaces import DualSpace, PlainSpace, Space, SpanSpace
from .steps import check_rank


def can_pool(settings: Settings, X: Floats, labels: Ints) -> bool:
    """Return whether labels can share a calibration.

    For this, it must be possible to leave rows out in closed form.
    """
    template = settings.template
    if sharing_of(template, X.shape) not in ("linear", "kernel") or settings.own_clusters:
        return False
    shrunk = template.shrinkage == "auto" or float(template.shrinkage) > 0
    known = template.covariance == "leave-one-out" and bool(template.calibrate)
    people = len(np.unique(labels))
    blend = template.negatives in ("blend", "mixture")
    return bool(shrunk and known and blend and people > 2 and template.regularization > 0)


@dataclass(eq=False)
class PooledLabels:
    """All labels of a bank, which share one calibration and are stacked in arrays.

    Attributes
    ----------
    settings : Settings
    side : SideBySide
    door : Door
    ridge : float
        The absolute ridge.
    index : array of shape (N,)
        Position of each training row among the rows that the kernel needs.
    factorised : Prepared or None
        The factorised rows; None if they must be factorised again.
    built : LabelModels or None
        Estimators built for the current rows.
    """

    settings: Settings
    side: SideBySide
    door: Door
    ridge: float
    index: Ints
    factorised: Prepared | None = None
    built: LabelModels | None = field(default=None, init=False)

    @classmethod
    def fit(
        cls,
        settings: Settings,
        rows: BankRows,
        ridge: float | None = None,
        kernel: Kernel | None = None,
    ) -> PooledLabels:
        """Fit all labels. A `ridge` or `kernel` of None is chosen from the rows.

        Raises
        ------
        SingularMatrixError
            If the shared rows do not determine the model of some label.
        """
        _check_room(settings, rows)
        prepared = prepare(settings, rows, ridge, kernel)
        solved, moved, door = fit_pooled(prepared.training, prepared.shared)
        models = []
        for label, density, own in zip(solved.labels, solved.densities, moved, strict=True):
            check_rank(settings.template, label.subspace.rank)
            models.append(LabelModel.of(label, density, own, prepared.space, rows.dtype))
        kernel = prepared.space.kernel
        side = SideBySide(models, solved.pool, kernel, rows.X if kernel else None)
        index = np.arange(len(rows.labels))
        return cls(settings, side, door, prepared.shared.ridge, index, prepared)

    @property
    def kernel(self) -> Kernel | None:
        """The bank's kernel; None for a linear bank."""
        return self.side.kernel

    def build(self, rows: BankRows, place: int) -> Any:
        """Build the estimator for the label at index `place`."""
        side, label = self.side, self.side.models[place]

        def views(solved: SolvedLabel) -> Array:
            # The same rows give the same density again, whatever the signs of the axes.
            density, subspace = side.pool.density(solved), solved.subspace
            return density.left_out_views(subspace.left_rows, subspace.projected.counts)

        fixed = self.settings.template, label, label.calibration(side.pool), views
        held = self.prepared(rows), side.rows, rows.X, rows.fingerprints
        return estimator_of(Source(*fixed, *held), place)

    def prepared(self, rows: BankRows) -> Prepared:
        """Return the factorised rows. If they are not stored, factorise them first."""
        if self.factorised is None:
            self.factorised = self._anew(rows, self.index, self.side.rows)
        return self.factorised

    def _anew(self, rows: BankRows, index: Ints, support: Floats | None) -> Prepared:
        """Factorise the rows; see :meth:`_supported` for `index` and `support`."""
        found = prepare(self.settings, rows, self.ridge, self.kernel)
        if support is None or not isinstance(found.space, DualSpace):
            return found
        return replace(found, space=found.space.within(index, len(support)))

    def scores(self, X: Floats) -> Array:
        """Return the log-likelihood ratios of rows for all labels."""
        return self.side.scores(X)

    def priors(self) -> Array:
        """Return the prior probabilities of each label's negatives and positives, shape (C, 2)."""
        found = []
        for model in self.side.models:
            shares = np.array([model.counts[1:].sum(), model.counts[0]]) / model.counts.sum()
            found.append(check_priors(self.settings.template.priors, shares))
        return np.array(found)

    def changed(self, change: Change) -> PooledLabels:
        """Return the labels after a change of rows. Only ``change.touched`` is fitted again."""
        rows, touched, pool = change.rows, change.touched, self.side.pool
        index, support = self._supported(rows, change.kept)
        prepared = self._moved(change, support) or self._anew(rows, index, support)
        models = [self.side.models[old or 0] for old in change.places]
        models = [replace(model, fresh=False) if model.fresh else model for model in models]
        if touched is not None:
            (solved,) = prepared.training.solve(prepared.shared, np.array([touched]))
            check_rank(self.settings.template, solved.subspace.rank)
            density, old = pool.density(solved), change.places[touched]
            moved = np.zeros(2) if old is None else self.side.models[old].moved
            model = LabelModel.of(solved, density, moved, prepared.space, rows.dtype)
            models[touched] = model
            if old is None and solved.n_own == 1:
                own = model.calibration(pool)  # without a blend, there are fewer views
                change.warn_of_one_row(missed_share(solved, density, own, change.threshold))
        old_places = np.array([-1 if old is None else old for old in change.places])
        if touched is not None:
            old_places[touched] = -1
        side = self.side.changed(models, old_places, support)
        return PooledLabels(self.settings, side, self.door, self.ridge, index, prepared)

    def _supported(self, rows: BankRows, kept: Mask | None) -> tuple[Ints, Floats | None]:
        """Return the positions of the training rows among the rows that the kernel needs.

        Also return the rows that the kernel needs; None for a linear bank.
        """
        old = self.side.rows
        if kept is not None:
            return self.index[kept], old
        fresh = len(rows.labels) - len(self.index)
        start = len(self.index) if old is None else len(old)
        index = np.append(self.index, np.arange(start, start + fresh))
        return index, None if old is None else np.concatenate([old, rows.X[-fresh:]])

    def _moved(self, change: Change, support: Floats | None) -> Prepared | None:
        """Return the factorised rows, updated after a change; None if they must be factorised."""
        held, rows, kept = self.factorised, change.rows, change.kept
        space = None if held is None else _updated(held.space, change, support)
        if held is None or space is None:
            return None
        training = _training(self.settings, rows, space, self.ridge)
        shared = replace(held.shared.owned(change.before.labels), most=training.most)
        data = space.features, rows.labels, rows.clusters, rows.keys, rows.together
        try:
            if kept is None:
                shared = shared.holding(*data).with_last(len(change.fresh))
            else:
                shared = shared.without(np.flatnonzero(~kept)).holding(*data, kept)
        except SingularMatrixError:
            return None
        return Prepared(space, shared, training)

    def state(self) -> dict[str, Any]:
        """Return the numbers and arrays to store in files and pickles."""
        same = self.side.rows is None or len(self.side.rows) == len(self.index)
        return {
            "side": packed(self.side),
            "ridge": self.ridge,
            **vars(self.door),
            "index": None if same else self.index,
            "support": None if same else self.side.rows,
        }

    @classmethod
    def of_state(
        cls, state: dict[str, Any], settings: Settings, rows: BankRows, kernel: Kernel | None
    ) -> PooledLabels:
        """Restore the labels from the numbers and arrays that :meth:`state` returned."""
        support = None
        if kernel is not None:
            support = rows.X if state["support"] is None else state["support"]
        index = np.arange(len(rows.labels)) if state["index"] is None else state["index"]
        side = unpacked(state["side"], kernel, support)
        return cls(settings, side, Door.of(state), float(state["ridge"]), index)


def _updated(space: Space, change: Change, support: Floats | None) -> Space | None:
    """Return the space of the rows after a change; None if it must be found anew.

    `support` holds the rows that the kernel needs after the change; None without a kernel.
    """
    rows, kept = change.rows, change.kept
    if isinstance(space, PlainSpace):
        return None if rows.shape[1] > rows.shape[0] else PlainSpace(rows.X)
    if not isinstance(space, DualSpace) or not space.kernel.is_definite:
        return None
    if kept is not None:
        return space.kept(kept)
    assert support is not None
    return space.appended(support, len(change.fresh))


def space_for(settings: Settings, X: Floats, kernel: Kernel | None) -> Space:
    """Return the space in which a bank's rows are factorised.

    If the bank needs a kernel and `kernel` is None, its bandwidth is chosen from the rows.
    """
    template = settings.template
    if sharing_of(template, X.shape) != "kernel":
        return SpanSpace.of(X) if X.shape[1] > X.shape[0] else PlainSpace(X)
    if count_distinct(X, 2) < 2:
        raise no_spread()
    check_memory(len(X), 4)
    kernel = settled_kernel(template, X, None, settings.seed) if kernel is None else kernel
    return DualSpace.of(kernel, X, template.regularization, settings.verbose)


def prepare(
    settings: Settings, rows: BankRows, ridge: float | None, kernel: Kernel | None
) -> Prepared:
    """Factorise the rows of a bank. A `ridge` or `kernel` of None is chosen from the rows."""
    space = space_for(settings, rows.X, kernel)
    training = _training(settings, rows, space, ridge)
    return Prepared(space, training.shared(), training)


def _training(settings: Settings, rows: BankRows, space: Space, ridge: float | None) -> Training:
    def cluster(kept: Mask) -> Ints:
        return cluster_rows(settings.template, rows.X[kept], None, settings.seed)

    known = settings, rows.over(space.features), ridge
    return Training(*known, None if settings.given else cluster)


def _check_room(settings: Settings, rows: BankRows) -> None:
    """Raise a MemoryError if the labels do not fit in memory, before allocating anything."""
    count, width = int(rows.labels.max()) + 1, rows.shape[1]
    axes = min(int(rows.clusters.max()) + 1, width, settings.template.n_components or width)
    arrays = 2 * count * (axes + 1) * width * rows.dtype.itemsize
    require_room(rows, f"{axes} axes each over {width} features", arrays)


def require_room(rows: BankRows, what: str, arrays: int) -> None:
    """Raise a MemoryError if the arrays of a bank and its factorised rows do not fit in memory.

    `arrays` is the size of the arrays in bytes. `what` describes them in the message.
    """
    n_rows, width = rows.shape
    needed, available = arrays + 24 * n_rows * min(width, n_rows), available_memory()
    if needed > available:
        raise MemoryError(
            f"a bank of {int(rows.labels.max()) + 1} labels with {what} needs about "
            f"{needed / 2**30:.1f} GiB and {available / 2**30:.1f} GiB are available; lower "
            "n_components or n_subclasses, give float32 rows, or divide the labels among banks"
        )
