"""Estimators for the labels of a bank that share a calibration, built when first needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.pipeline import Pipeline

from ..core.calibration import Calibration
from ..core.copies import Fingerprints
from ..core.fit import Fitted
from ..core.linalg import Array, Floats, Ints
from ..core.many import SolvedLabel, solve_labels
from ..core.scatter import GroupScatter
from ..core.subspace import Subspace
from .changes import BankRows
from .dual import keep_kernel
from .linear import PCSDA
from .naming import name_in_bank
from .pooled import Prepared
from .side import LabelModel
from .steps import keep_fingerprints, settle_ridge
from .threads import twin_of
from .training import keep_linear

# Each estimator stores a score for every training row, so only the most recently used are kept.
MOST_BUILT = 64


class LabelModels(Mapping[Any, Any]):
    """Read-only mapping from labels to fitted estimators, each built when it is first needed.

    Every look-up returns a new estimator that shares its arrays with the others. The bank does not
    score with these estimators. So if one of them is calibrated again, for instance, neither the
    bank nor the next look-up changes.

    Parameters
    ----------
    names : list of labels
    rows : BankRows
    build : function that takes the rows and a label number
    """

    def __init__(
        self, names: list[Any], rows: BankRows, build: Callable[[BankRows, int], Any]
    ) -> None:
        self.rows = rows
        self._places = {name: place for place, name in enumerate(names)}

        @lru_cache(MOST_BUILT)
        def named(place: int) -> Any:
            model = build(rows, place)
            name_in_bank(model, rows.labels, names)
            return model

        self._named = named

    def __getitem__(self, label: object) -> Any:
        return _twin(self._named(self._places[label]))

    def __contains__(self, label: object) -> bool:
        try:
            return label in self._places
        except TypeError:  # an unhashable object is not a label
            return False

    def __iter__(self) -> Iterator[Any]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


def _twin(model: Any) -> Any:
    """Return an estimator that shares the model's arrays but has its own attributes."""
    twin = twin_of(model)
    if isinstance(twin, Pipeline):
        twin.steps = [(name, _twin(step)) for name, step in twin.steps]
    return twin


@dataclass(frozen=True)
class Source:
    """Everything needed to build the estimator for one label.

    Attributes
    ----------
    template : estimator
    label : LabelModel
    calibration : Calibration
    left_out_views : function that takes a SolvedLabel
        Returns the views of the left-out rows: the log ratios that the calibration combines.
    prepared : Prepared
        The factorised rows.
    support : array or None
        Rows that a kernel bank needs: the rows it was fitted on and any rows added later.
    training : array of shape (N, D)
        The bank's current rows.
    seen : Fingerprints
        Fingerprints of the current rows.
    """

    template: Any
    label: LabelModel
    calibration: Calibration
    left_out_views: Callable[[SolvedLabel], Array]
    prepared: Prepared
    support: Floats | None
    training: Floats
    seen: Fingerprints


def estimator_of(source: Source, place: int) -> Any:
    """Build the estimator for label number `place`, with all attributes that a fit would set."""
    label, shared = source.label, source.prepared.shared
    model = clone(source.template)
    model.classes_ = np.array([False, True])
    model.n_features_in_ = source.training.shape[1]
    settle_ridge(model, float(label.counts[0]))
    fitted = Fitted(_subspace(source, place), label.density, source.calibration)
    if isinstance(model, PCSDA):
        keep_linear(model, fitted, source.training.dtype)
    else:
        assert source.support is not None
        # All labels share the rows, so that kernel values are computed once for many labels.
        held = source.support[: len(fitted.subspace.coefficients)]
        keep_kernel(model, fitted, held, np.arange(len(held)))
        model.kernel_ = source.prepared.space.kernel
        model.support_ = _numbers(held, source.training)
    model.against_strangers_ = True
    model.partition_ = shared.groups(place, np.arange(len(shared.owner)), label.kept)
    if label.fresh:
        model.loo_scores_, mass = left_out_scores(source, place)
        if mass is not None:
            model.loo_weights_ = mass
        if shared.together is not None:
            model.loo_groups_ = shared.together[~np.isnan(model.loo_scores_)]
        scored = (model.partition_ >= 0) & ~np.isnan(model.loo_scores_)
        keep_fingerprints(model, source.training, np.flatnonzero(scored), source.seen)
    return model


def _numbers(held: Floats, training: Floats) -> Ints:
    """Return the number of each row of `held` among the training rows; -1 for a removed row."""
    if held.base is training and len(held) == len(training):
        return np.arange(len(held))
    known = {row.tobytes(): number for number, row in enumerate(training)}
    return np.array([known.get(row.tobytes(), -1) for row in held], dtype=np.intp)


def _subspace(source: Source, place: int) -> Subspace:
    shared, space, label = source.prepared.shared, source.prepared.space, source.label
    base = label.density.base
    d = len(label.eigenvalues)
    centres = np.vstack([np.zeros(d), base.subclasses])
    scatter = GroupScatter(label.counts, centres, base.positive, base.negative)
    means: Array | None = None
    if space.kernel is None:
        kept, _, found = shared.division(shared.own(place))
        rows = {int(one): row for one, row in zip(kept, found[1:], strict=True)}
        rest = [rows.get(int(one), found[0]) + shared.origin for one in label.kept]
        means = np.vstack([label.mean, *(space.mean(row) for row in rest)])
    coefficients = label.axes.T.astype(np.float64)
    return Subspace(coefficients, label.origin, label.eigenvalues, d, scatter, np.eye(d), means)


def left_out_scores(source: Source, place: int) -> tuple[Array, Array | None]:
    """Return left-out log-likelihood ratios of the training rows; NaN if a row was not left out.

    If the left-out rows are a sample, also return how many rows each of them represents.
    """
    shared, n_components = source.prepared.shared, len(source.label.eigenvalues)
    (solved,) = solve_labels(shared, np.array([place]), n_components)
    left = solved.subspace.left_rows
    scores = source.calibration(source.left_out_views(solved))
    scores[(left.groups == 0) & left.alone] = np.nan
    full = np.full(len(shared.owner), np.nan)
    full[solved.rows] = scores
    if left.stands_for is None:
        return full, None
    mass = np.zeros(len(full))
    mass[solved.rows] = left.mass
    return full, mass[~np.isnan(full)]
