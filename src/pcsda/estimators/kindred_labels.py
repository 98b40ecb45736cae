"""Labels of a bank that share two covariances: fitted, scored, changed and stored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from .. import validation
from ..core import linalg
from ..core.calibration import Calibration
from ..core.density import Posterior
from ..core.kindred import Fold, Places, Predictive, fit_kindred
from ..core.linalg import Array, Floats, Ints, Mask
from ..core.many import SolvedLabel
from ..core.spread import known_variance, ridge_of
from ..core.subspace import is_far, project_rows
from ..kernels import Kernel
from ..progress import progress
from .changes import BankRows, warn_of_one_row
from .doors import Door
from .labels import LabelModels, Source, estimator_of
from .pooled_labels import Prepared, Settings, can_pool, prepare, require_room, space_for
from .ratios import bounded, too_large
from .side import LabelModel

# Fewer labels show too little about the differences between labels.
LEAST_LABELS = 10
# From this many rows per label on, clusters separate labels better, unless labels are many.
MANY_ROWS, MANY_LABELS = 50, 100
# Rows are scored for all labels in batches of about this many bytes.
STEP_BYTES = 32 << 20
# Coordinates up to this are scored in their own precision.
FARTHEST_SINGLE = 1e3


def are_kindred(settings: Settings, X: Floats, labels: Ints) -> bool:
    """Whether labels share two covariances rather than clusters of all rows (MATH 18).

    With few rows of many labels, the labels themselves show how one differs from another, and
    k-means would mix them. With many rows of few labels, clusters describe the rest better.
    """
    template, sizes = settings.template, np.bincount(labels)
    none = BankRows(X, labels, labels, np.zeros(len(X)), None)
    if not can_pool(settings, none) or len(sizes) < LEAST_LABELS:
        return False
    by_means = isinstance(template.subclasses, str) and template.subclasses == "kmeans"
    as_usual = template.n_subclasses == "auto" and template.n_components is None
    usual = template.negatives == "blend" and template.shrinkage == "auto"
    few = np.median(sizes) < MANY_ROWS or len(sizes) > MANY_LABELS
    return bool(by_means and as_usual and usual and np.median(sizes) >= 2 and few)


class KindredLabels:
    """All labels of a bank on common axes.

    Parameters
    ----------
    settings : Settings
    state : mapping
        Arrays: see `state`.
    kernel : Kernel or None
    support : array of shape (N, D) or None
        Rows that a kernel bank was fitted on.
    prepared : Prepared or None
        The factorisation, if available.

    Attributes
    ----------
    axes : array of shape (q, D), or (q, N) on kernel values
    centre : array of shape (D,)
        Mean of the labels, zero on kernel values.
    origin : array of shape (q,)
        Offset of the projections of kernel values.
    means : array of shape (C, q)
        Mean of the rows of each label on the axes.
    counts : array of shape (C,)
    scale : float
        Scale of the within covariance relative to its ridged scatter.
    fresh : boolean array of shape (C,)
        Which labels were fitted on the current rows of the bank.
    """

    def __init__(
        self,
        settings: Settings,
        state: Mapping[str, Any],
        kernel: Kernel | None = None,
        support: Floats | None = None,
        prepared: Prepared | None = None,
    ) -> None:
        self.settings, self.kernel, self.support = settings, kernel, support
        self.law = Predictive(state["values"], float(state["tail"]))
        self.axes, self.centre, self.origin = state["axes"], state["centre"], state["origin"]
        self.means, self.counts, self.fresh = state["means"], state["counts"], state["fresh"]
        self.ridge, self.scale = float(state["ridge"]), float(state["scale"])
        self.regularization = float(state["regularization"])
        self.calibration = Calibration((float(state["slope"]),), float(state["offset"]))
        self.door = Door(state["best"], state["identity"], state["own"], float(state["n_met"]))
        self._prepared = prepared

    def state(self) -> dict[str, Any]:
        """The state that files store."""
        door = self.door
        return {
            "values": self.law.values,
            "tail": self.law.tail,
            "axes": self.axes,
            "centre": self.centre,
            "origin": self.origin,
            "means": self.means,
            "counts": self.counts,
            "fresh": self.fresh,
            "ridge": self.ridge,
            "regularization": self.regularization,
            "scale": self.scale,
            "slope": self.calibration.slope,
            "offset": self.calibration.offset,
            "best": door.best,
            "identity": door.identity,
            "own": door.own,
            "n_met": door.n_met,
        }

    @classmethod
    def fit(
        cls,
        settings: Settings,
        rows: BankRows,
        ridge: float | None = None,
        kernel: Kernel | None = None,
    ) -> KindredLabels:
        """Fit all labels; the ridge and the kernel may be given.

        Raises
        ------
        SingularMatrixError
            If the rows do not determine both covariances.
        """
        count, width = int(rows.labels.max()) + 1, rows.X.shape[1]
        axes = min(count - 1, *rows.X.shape)
        # Means of labels, of all and of a fold, on the axes and whitened.
        arrays = 8 * (6 * count + 12 * axes) * min(rows.X.shape)
        require_room(rows, f"{axes} axes in common over {width} features", arrays)
        space = space_for(settings, rows.X, kernel)
        variance = _variance(space.features)
        if ridge is None and not settings.auto_ridge:
            ridge = ridge_of(variance, float(settings.template.regularization))

        def steps(folds: Iterator[Fold], count: int) -> Iterator[Fold]:
            return iter(progress(folds, "folds", enabled=settings.verbose, total=count))

        rng = np.random.default_rng(settings.seed)
        tails = settings.template.tails == "fitted"
        found = fit_kindred(space.features, rows.labels, rng, ridge=ridge, tails=tails, steps=steps)
        kindred, kernel = found.kindred, getattr(space, "kernel", None)
        centre = space.mean(kindred.centre) if kernel is None else np.zeros(rows.X.shape[1])
        state = {
            "values": kindred.values,
            "tail": kindred.tail,
            "axes": np.ascontiguousarray(space.axes(kindred.axes), rows.X.dtype),
            "centre": centre,
            "origin": kindred.centre @ kindred.axes,
            "means": found.means,
            "counts": found.counts,
            "fresh": np.ones(len(found.counts), dtype=bool),
            "ridge": found.ridge,
            "regularization": found.ridge / variance,
            "scale": kindred.scale,
            "slope": found.calibration.slope,
            "offset": found.calibration.offset,
            "best": found.best,
            "identity": found.identity,
            "own": found.own,
            "n_met": found.n_met,
        }
        return cls(settings, state, kernel, rows.X if kernel else None)

    def project(self, X: Floats) -> Floats:
        """Coordinates of rows, (n, q)."""
        if self.kernel is not None:
            assert self.support is not None
            z: Floats = (self.kernel(X, self.support) @ self.axes.T - self.origin).astype(X.dtype)
            return z
        far = is_far(self.axes, self.centre, 1 + self.law.values, X.dtype)
        return project_rows(X, self.axes, np.zeros(len(self.axes)), self.centre, far=far)

    @cached_property
    def _places(self) -> Places:
        return self.law.places(self.means, self.counts)

    @cached_property
    def _single(self) -> Places:
        return self._places.single()

    def scores(self, X: Floats) -> Array:
        """Log-likelihood ratios of rows for all labels."""
        found = np.empty((len(X), len(self.counts)))
        step = max(1, STEP_BYTES // (8 * max(len(self.counts), len(self.axes))))
        for start in range(0, len(X), step):
            with np.errstate(over="ignore", invalid="ignore"):  # checked below
                z = self.project(X[start : start + step])
            if not np.isfinite(z).all():
                raise too_large(np.vstack([np.zeros((start, z.shape[1])), z]))
            limit = float(np.abs(z).max(initial=0.0))
            if limit > FARTHEST_SINGLE:  # single precision would lose distances, if not overflow
                z = bounded(z)
            places = self._places if z.dtype == np.float64 else self._single
            found[start : start + step] = self.calibration(self.law.ratios(z, places)[None])
        return found

    def priors(self) -> Array:
        """Prior probabilities (C, 2) of the rest and of each label."""
        shares = self.counts / self.counts.sum()
        both = np.stack([1 - shares, shares], axis=1)
        priors = self.settings.template.priors
        return np.array([validation.check_priors(priors, own) for own in both])

    def models(self, names: list[Any], rows: BankRows) -> Mapping[Any, Any]:
        """Estimators of the labels, built on request."""

        def build(place: int) -> Any:
            at_hand = self.prepared(rows)
            label, shift = self._label(at_hand, place)

            def views(solved: SolvedLabel) -> Array:
                left, subspace = solved.subspace.left, solved.subspace
                assert left is not None
                # Axes of the same subclasses, up to sign.
                signs = np.sign((subspace.projected.delta * label.density.base.subclasses).sum(0))
                return label.density.views(left.coordinates * signs + shift)

            fixed = self.settings.template, label, self.calibration, views
            spaces = at_hand.shared, at_hand.space, self.kernel, self.support
            source = Source(*fixed, *spaces, rows.X)
            return estimator_of(source, place)

        return LabelModels(names, rows.labels, build)

    def prepared(self, rows: BankRows) -> Prepared:
        """The factorisation of the rows with labels as subclasses, computed on first use."""
        if self._prepared is None:
            by_label = replace(rows, clusters=rows.labels)
            self._prepared = prepare(self.settings, by_label, self.ridge, self.kernel)
        return self._prepared

    def _label(self, at_hand: Prepared, place: int) -> tuple[LabelModel, Array]:
        """One label on the axes of its own criterion, and the shift of its mean on these."""
        others = np.flatnonzero(np.arange(len(self.means)) != place)
        scale = np.sqrt(self.scale)
        apart = scale * (self.means[others] - self.means[place])
        values, turn = linalg.eigh_descending(apart.T @ apart)
        turn = turn * linalg.row_signs((self.axes.T @ turn).T)
        own, count = self.means[place : place + 1], self.counts[place : place + 1]
        expected = self.law.expected(own, count)[0]
        shift = own[0] - expected

        def turned(variances: Array) -> Array:
            return self.scale * ((turn.T * variances) @ turn)

        within = self.scale * np.eye(len(turn))
        strength = float(self.counts.sum()) - len(self.counts)
        density = Posterior(
            turned(self.law.variances(count)[0]),
            turned(1 + self.law.values),
            -scale * (expected @ turn)[None],
            np.zeros(1),
            within,
            strength,
            strength,
            apart @ turn + scale * (shift @ turn),
            self.law.tail,
        )
        axes = scale * (turn.T @ self.axes.astype(np.float64))
        origin = scale * ((self.origin + expected) @ turn)
        counts = np.append(count, self.counts[others])
        mean = self._posterior_mean(at_hand, place, shift)
        fresh = bool(self.fresh[place])
        fixed = axes, mean, origin, values, others, counts, density, np.zeros(2), fresh
        return LabelModel(*fixed), scale * (shift @ turn)

    def _posterior_mean(self, at_hand: Prepared, place: int, shift: Array) -> Array:
        """The point nearest to the label's mean that projects to the posterior mean."""
        shared = at_hand.shared
        mean = at_hand.space.mean(shared.about(shared.own(place)).mean(axis=0) + shared.origin)
        if self.kernel is not None:
            return mean
        axes = self.axes.astype(np.float64)
        moved: Array = mean - np.linalg.lstsq(axes, shift, rcond=None)[0]
        return moved

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
    ) -> KindredLabels:
        """The labels after a change of rows; see `PooledLabels.changed`.

        The mean of a label follows its rows at once; what all labels share stays until a refresh.
        """
        state = self.state()
        old = np.array([-1 if place is None else place for place in places])
        state["means"] = np.where(old[:, None] < 0, 0.0, self.means[old])
        state["counts"] = np.where(old < 0, 0.0, self.counts[old])
        state["fresh"] = np.zeros(len(old), dtype=bool)
        if touched is not None:
            fresh = rows.X[len(before.X) :]
            z = self.project(fresh).astype(np.float64)
            count = state["counts"][touched]
            total = count + len(fresh)
            state["means"][touched] = (count * state["means"][touched] + z.sum(axis=0)) / total
            state["counts"][touched] = total
            if total == 1:
                missed = None if threshold is None else float(np.mean(self.door.own < threshold))
                warn_of_one_row(name, missed, threshold)
        return KindredLabels(self.settings, state, self.kernel, self.support)


def _variance(features: Floats) -> float:
    """Mean squared distance of rows from their mean."""
    exact = features.astype(np.float64, copy=False)
    origin = exact.mean(axis=0)
    variance = sum(
        float(np.einsum("ij,ij->", part, part))
        for part in (exact[i : i + 4096] - origin for i in range(0, len(exact), 4096))
    )
    return known_variance(variance / len(exact), origin)
