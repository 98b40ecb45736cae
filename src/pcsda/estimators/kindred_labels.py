"""Bank labels that share two covariances: fitting, scoring, changing and storing them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from sklearn.preprocessing import Normalizer

from ..core import linalg
from ..core.calibration import Calibration
from ..core.density import Posterior
from ..core.kernel_matrix import FEATURE_TOLERANCE
from ..core.kindred import Kindred, Places, Predictive
from ..core.labelled import LabelSums, spread_unknown
from ..core.linalg import Array, Floats, unit_rows
from ..core.many import SolvedLabel
from ..kernels import Kernel, check_memory
from .changes import BankRows, Change, Settings, alone
from .doors import Door
from .kindred_choice import Trial, prefers_unit, single_rows
from .labels import LabelModels, Source, estimator_of
from .parameters import check_priors
from .pipeline import make_pipeline
from .pooled import Prepared
from .pooled_labels import prepare, require_room, space_for
from .ratios import bounded, narrowed, too_large
from .side import FARTHEST_SINGLE, STEP_BYTES, LabelModel, Projection
from .spaces import PlainSpace, Space

# Kernels whose values are at most 1, and a share of the ridge that is negligible.
UNIT_KERNELS, NEGLIGIBLE = ("rbf", "laplacian", "chi2", "cosine"), 0.01
# Names in the stored state besides those of `Shared`. A change of rows carries over all of them
# except `counts` and `fresh`.
SETTLED = (
    *("tail", "ridge", "regularization", "slope", "offset", "counts", "fresh"),
    *(field.name for field in fields(Door)),
)


@dataclass(frozen=True)
class Shared:
    """The axes that all labels share, and the variances and label means along these axes.

    Attributes
    ----------
    axes : array of shape (q, D), or (q, N) for kernel values
    centre : array of shape (D,)
        Mean of the labels; zero for kernel values.
    origin : array of shape (q,)
        Offset to subtract from projected kernel values.
    values : array of shape (q,)
        Variances between labels.
    means : array of shape (C, q)
        Mean of each label's rows, projected onto the axes.
    scale : float
        Scale of the within-label covariance relative to its ridged scatter.
    """

    axes: Floats
    centre: Array
    origin: Array
    values: Array
    means: Array
    scale: float

    @classmethod
    def of(cls, kindred: Kindred, space: Space, rows: BankRows) -> Shared:
        """Express the axes so that they apply to rows or, with a kernel, to kernel values."""
        centre = space.mean(kindred.centre) if space.kernel is None else np.zeros(rows.shape[1])
        axes = np.ascontiguousarray(space.axes(kindred.axes), rows.dtype)
        origin = kindred.centre @ kindred.axes
        return cls(axes, centre, origin, kindred.values, kindred.means, kindred.scale)


class KindredLabels:
    """All labels of a bank, modelled on common axes.

    Parameters
    ----------
    settings : Settings
    state : mapping
        The stored numbers and arrays, as returned by the method `state`.
    kernel : Kernel or None
    support : array of shape (N, D) or None
        Rows to which a kernel bank was fitted, before any scaling.
    unit : bool
        Whether rows are scaled to unit length.
    solve : function, optional
        Computes what the labels share when it is first needed; by default, `state` has it.
    sums : LabelSums or None
        Statistics of the current rows in input space; None if they are not available.

    Attributes
    ----------
    counts : array of shape (C,)
    fresh : boolean array of shape (C,)
        Which labels can have left-out scores of the current rows. These are all labels, except in
        old files and in banks that assume the covariance within labels.
    built : LabelModels or None
        Estimators built for the current rows.
    """

    def __init__(
        self,
        settings: Settings,
        state: Mapping[str, Any],
        kernel: Kernel | None = None,
        support: Floats | None = None,
        *,
        unit: bool = False,
        solve: Callable[[], Shared] | None = None,
        sums: LabelSums | None = None,
    ) -> None:
        self.settings, self.kernel, self.support = settings, kernel, support
        self.unit = unit
        self._settled = {name: state[name] for name in SETTLED}
        self.tail = float(state["tail"])
        self.counts, self.fresh = state["counts"], state["fresh"]
        self.ridge, self.regularization = float(state["ridge"]), float(state["regularization"])
        self.calibration = Calibration((float(state["slope"]),), float(state["offset"]))
        self.door = Door.of(state)
        self._sums, self._solve = sums, solve
        self._prepared: Prepared | None = None
        self.built: LabelModels | None = None
        if solve is None:
            self.shared = Shared(**{field.name: state[field.name] for field in fields(Shared)})

    @cached_property
    def shared(self) -> Shared:
        """The axes and variances that all labels share."""
        assert self._solve is not None
        return self._solve()

    @property
    def law(self) -> Predictive:
        """The predictive distributions of labels and strangers."""
        return Predictive(self.shared.values, self.tail)

    def state(self) -> dict[str, Any]:
        """Return the numbers and arrays to store in files and pickles."""
        return vars(self.shared) | self._settled

    @classmethod
    def fit(
        cls,
        settings: Settings,
        rows: BankRows,
        ridge: float | None = None,
        kernel: Kernel | None = None,
        unit: bool | None = None,
    ) -> KindredLabels:
        """Fit all labels.

        `unit` says whether rows are scaled to unit length. A `ridge`, `kernel` or `unit` of None is
        chosen from the rows.

        Raises
        ------
        SingularMatrixError
            If the rows do not determine both covariances.
        """
        _check_room(rows)
        unit = prefers_unit(settings, rows) if unit is None else unit
        trial = Trial.of(settings, rows, unit, ridge, kernel)
        found, space = trial.found, trial.space
        counts, kernel = found.sums.counts, space.kernel
        state = {
            "tail": found.kindred.tail,
            "counts": counts,
            # With an assumed covariance, the axes differ from those used to leave rows out.
            "fresh": np.full(len(counts), not single_rows(rows)),
            "ridge": found.ridge,
            "regularization": found.ridge / trial.variance,
            "slope": found.calibration.slope,
            "offset": found.calibration.offset,
            "best": found.best,
            "identity": found.identity,
            "own": found.own,
            "n_met": found.n_met,
        }
        shared = Shared.of(found.kindred, space, rows)
        sums = found.sums if isinstance(space, PlainSpace) else None
        support = rows.X if kernel else None
        held = settings, state, kernel, support
        return cls(*held, unit=unit, solve=lambda: shared, sums=sums)

    def scaled(self, X: Floats) -> Floats:
        """Return the rows scaled to unit length if the bank does so, otherwise unchanged."""
        return unit_rows(X) if self.unit else X

    @cached_property
    def project(self) -> Projection:
        """The map from rows, as `scaled` returns them, to their coordinates."""
        shared = self.shared
        # Without a kernel, rows are centred instead.
        origin = np.zeros(len(shared.axes)) if self.kernel is None else shared.origin
        fixed = shared.axes, shared.centre, origin, 1 + shared.values
        return Projection(*fixed, self.kernel, self._held)

    @cached_property
    def _held(self) -> Floats | None:
        """The rows with which kernel values are computed; None without a kernel."""
        return None if self.support is None else self.scaled(self.support)

    @cached_property
    def _places(self) -> Places:
        return self.law.places(self.shared.means, self.counts)

    @cached_property
    def _single(self) -> Places:
        return self._places.single()

    def scores(self, X: Floats, place: int | None = None) -> Floats:
        """Return the log-likelihood ratios of rows, with the dtype of X.

        They are for all labels, or only for label number `place` if it is given.
        """
        n_labels = len(self.counts) if place is None else 1
        found = np.empty((len(X), n_labels), X.dtype)
        step = max(1, STEP_BYTES // (X.itemsize * max(n_labels, len(self.shared.axes))))
        slope, offset = self.calibration.slope, self.calibration.offset
        for start in range(0, len(X), step):
            with np.errstate(over="ignore", invalid="ignore"):  # checked below
                z = self.project(self.scaled(X[start : start + step]))
            if not np.isfinite(z).all():
                raise too_large(z, start)
            if float(np.abs(z).max(initial=0.0)) > FARTHEST_SINGLE:
                z = bounded(z)  # float32 would lose accuracy or overflow
            places = self._places if z.dtype == np.float64 else self._single
            places = places if place is None else places.one(place)
            ratios = self.law.ratios(z, places, slope, offset)
            if len(ratios) == len(X) and ratios.dtype == X.dtype:
                return ratios
            found[start : start + step] = narrowed(ratios, X.dtype)
        return found

    def priors(self) -> Array:
        """Return the prior probabilities of each label's negatives and positives, shape (C, 2)."""
        shares = self.counts / self.counts.sum()
        both = np.stack([1 - shares, shares], axis=1)
        priors = self.settings.template.priors
        return np.array([check_priors(priors, own) for own in both])

    def build(self, rows: BankRows, place: int) -> Any:
        """Build the estimator for the label at index `place`.

        If the bank scales rows to unit length, return a pipeline that scales rows and ends in the
        estimator.
        """
        label, shift = self._label(rows, place)

        def views(solved: SolvedLabel) -> Array:
            left, delta = solved.subspace.left_rows, solved.subspace.projected.delta
            # The axes of the solved label and of this model differ only in sign.
            signs = np.sign((delta * label.density.base.subclasses).sum(0))
            return label.density.views(left.coordinates * signs + shift)

        fixed = self.settings.template, label, self.calibration, views
        seen = rows.unit_fingerprints if self.unit else rows.fingerprints
        source = Source(*fixed, self.prepared(rows), self._held, self._current(rows), seen)
        model = estimator_of(source, place)
        return make_pipeline(Normalizer().fit(rows.X[:1]), model) if self.unit else model

    def _current(self, rows: BankRows) -> Floats:
        """Return the bank's current rows, scaled if a kernel bank scales rows.

        Rows of a linear bank are never scaled here, because only their shape and dtype are used.
        """
        if self.kernel is None:
            return rows.X
        known = self._held if self.support is rows.X else None
        return self.scaled(rows.X) if known is None else known

    def prepared(self, rows: BankRows) -> Prepared:
        """Return the rows, factorised with labels as subclasses. The first call factorises them."""
        if self._prepared is None:
            by_label = replace(rows.over(self.scaled(rows.X)), clusters=alone(rows.labels))
            self._prepared = prepare(self.settings, by_label, self.ridge, self.kernel)
        return self._prepared

    def _label(self, rows: BankRows, place: int) -> tuple[LabelModel, Array]:
        """Return the model of label number `place`, on the axes of the label's own criterion.

        Also return the mean of the label's rows minus its posterior mean, along these axes.
        """
        shared, means = self.shared, self.shared.means
        if np.any(rows.labels < 0):
            unknown = self.project(self.scaled(rows.X[rows.labels < 0])).astype(np.float64)
            means = np.concatenate([means, unknown])
        others = np.flatnonzero(np.arange(len(means)) != place)
        scale = np.sqrt(shared.scale)
        apart = scale * (means[others] - means[place])
        values, turn = linalg.eigh_descending(apart.T @ apart)
        turn = turn * linalg.row_signs((shared.axes.T @ turn).T)
        own, count = means[place : place + 1], self.counts[place : place + 1]
        expected = self.law.expected(own, count)[0]
        shift = own[0] - expected

        def turned(variances: Array) -> Array:
            return shared.scale * ((turn.T * variances) @ turn)

        within = shared.scale * np.eye(len(turn))
        # With one row per label, no row shows the spread of a label, and the covariance is a guess.
        strength = max(float(self.counts.sum()) - len(self.counts), 1.0)
        density = Posterior(
            turned(self.law.variances(count)[0]),
            turned(1 + shared.values),
            -scale * (expected @ turn)[None],
            np.zeros(1),
            within,
            strength,
            strength,
            apart @ turn + scale * (shift @ turn),
            self.tail,
        )
        axes = scale * (turn.T @ shared.axes.astype(np.float64))
        origin = scale * ((shared.origin + expected) @ turn)
        all_counts = np.append(self.counts, np.ones(len(means) - len(self.counts)))
        counts = np.append(count, all_counts[others])
        mean = self._posterior_mean(self.prepared(rows), place, shift)
        fresh = bool(self.fresh[place])
        fixed = axes, mean, origin, values, others, counts, density, np.zeros(2), fresh
        return LabelModel(*fixed), scale * (shift @ turn)

    def _posterior_mean(self, at_hand: Prepared, place: int, shift: Array) -> Array:
        """Return the point nearest to a label's mean that projects onto its posterior mean.

        `shift` is the mean of the label's rows minus its posterior mean, along the common axes. In
        a kernel bank, return the mean of the label's features instead.
        """
        shared = at_hand.shared
        mean = at_hand.space.mean(shared.about(shared.own(place)).mean(axis=0) + shared.origin)
        if self.kernel is not None:
            return mean
        axes = self.shared.axes.astype(np.float64)
        return mean - np.linalg.lstsq(axes, shift, rcond=None)[0]

    def changed(self, change: Change) -> KindredLabels:
        """Return the labels after a change of rows.

        The means of all labels and both covariances are updated. Tails and calibration stay the
        same until the bank is refreshed.

        Raises
        ------
        SingularMatrixError
            If the remaining rows do not determine both covariances.
        """
        rows, touched, linear = change.rows, change.touched, self.kernel is None
        later = rows.shape[1] <= rows.shape[0] and (linear or self._surely_solved(rows))
        sums = self._moved(change) if later else None

        def solve() -> Shared:
            if linear and sums is not None:
                space: Space = PlainSpace(sums.means)
                return self._solved(sums, space, rows, strict=False)
            space = space_for(self.settings, self.scaled(rows.X), self.kernel)
            features = LabelSums.of(space.features, rows.labels)
            return self._solved(features, space, rows, strict=not later)

        counts = np.bincount(rows.labels[rows.labels >= 0]).astype(np.float64)
        state = self._settled | {"counts": counts}
        state["fresh"] = np.full(len(counts), not spread_unknown(counts))
        fixed = self.settings, state, self.kernel, None if linear else rows.X
        found = KindredLabels(*fixed, unit=self.unit, solve=solve, sums=sums)
        if sums is None:
            _ = found.shared  # raises if the rows do not determine both covariances
        elif not sums.single:
            sums.require_spread()
        if touched is not None and counts[touched] == 1:
            at = change.threshold
            change.warn_of_one_row(None if at is None else float(np.mean(self.door.own < at)))
        return found

    def _surely_solved(self, rows: BankRows) -> bool:
        """Return whether the kernel matrix of a bank can be factorised later, without an error.

        The values of these kernels are at most 1, so the rounding errors of the features stay far
        below the ridge.
        """
        check_memory(len(rows.labels), 4)
        assert self.kernel is not None
        asked = float(self.settings.template.regularization) * self.ridge
        errors = len(rows.labels) * FEATURE_TOLERANCE * self.regularization
        return self.kernel.metric in UNIT_KERNELS and errors <= NEGLIGIBLE * asked

    def _solved(self, sums: LabelSums, space: Space, rows: BankRows, *, strict: bool) -> Shared:
        if sums.single:
            return Shared.of(Kindred.assumed(sums), space, rows)
        return Shared.of(Kindred.fit(sums, self.ridge, strict=strict), space, rows)

    def _moved(self, change: Change) -> LabelSums:
        """Return the statistics of the rows after a change, updated in closed form if possible."""
        sums, rows = self._sums, change.rows
        if sums is None:
            return LabelSums.of(self.scaled(rows.X), rows.labels)
        if change.kept is not None:
            (gone,) = set(range(len(sums.counts))) - set(change.places)
            return sums.without(gone, self.scaled(change.gone))
        fresh, owner = self.scaled(change.fresh), int(rows.labels[-1])
        sums = sums.placed(change.places)
        return sums.with_others(fresh) if owner < 0 else sums.with_rows(owner, fresh)


def _check_room(rows: BankRows) -> None:
    """Raise a MemoryError if the labels do not fit in memory, before allocating anything."""
    count, width = int(rows.labels.max()) + 1, rows.shape[1]
    axes = min(count - 1, *rows.shape)
    # Label means, for all rows and for a fold, on the axes and whitened.
    arrays = 8 * (6 * count + 12 * axes) * min(rows.shape)
    require_room(rows, f"{axes} axes in common over {width} features", arrays)
