"""Estimators for the labels of a pooled bank, each built on request."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import clone

from ..core.calibration import Calibration
from ..core.fit import Fitted
from ..core.linalg import Array, Floats, Ints
from ..core.many import SharedRows, SolvedLabel, solve_labels
from ..core.scatter import GroupScatter
from ..core.subspace import Subspace
from ..kernels import Kernel
from .dual import keep_kernel
from .linear import PCSDA
from .naming import name_in_bank
from .side import LabelModel
from .spaces import Space
from .steps import keep_decision, settle_ridge
from .training import keep_linear


class LabelModels(Mapping[Any, Any]):
    """Read-only mapping from labels to fitted estimators, each built on request.

    Parameters
    ----------
    names : list of labels
    owners : array of shape (N,)
        Label number of each training row, used to name subclasses.
    build : function that takes a label number
    """

    def __init__(self, names: list[Any], owners: Ints, build: Callable[[int], Any]) -> None:
        self._places = {name: place for place, name in enumerate(names)}
        self._owners, self._build = owners, build

    def __getitem__(self, label: object) -> Any:
        model = self._build(self._places[label])
        name_in_bank(model, self._owners, list(self._places))
        return model

    def __contains__(self, label: object) -> bool:
        try:
            return label in self._places
        except TypeError:  # an unhashable object is not a label
            return False

    def __iter__(self) -> Iterator[Any]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


@dataclass(frozen=True)
class Source:
    """Everything needed to build the estimator for one label.

    Attributes
    ----------
    template : estimator
    label : LabelModel
    calibration : Calibration
    left_out_views : function that takes a solved label
        Views of the left-out rows.
    shared : SharedRows
    space : Space
    kernel : Kernel or None
    rows : array or None
        Rows that a kernel bank needs: the rows it was fitted on and any rows added later.
    training : array of shape (N, D)
        The bank's current rows.
    """

    template: Any
    label: LabelModel
    calibration: Calibration
    left_out_views: Callable[[SolvedLabel], Array]
    shared: SharedRows
    space: Space
    kernel: Kernel | None
    rows: Floats | None
    training: Floats


def estimator_of(source: Source, place: int) -> Any:
    """Build the estimator for one label, as if it had been fitted separately."""
    label = source.label
    model = clone(source.template)
    model.classes_ = np.array([False, True])
    model.n_features_in_ = source.training.shape[1]
    settle_ridge(model, float(label.counts[0]))
    fitted = Fitted(_subspace(source, place), label.density, source.calibration)
    keep_decision(model, fitted)
    if isinstance(model, PCSDA):
        keep_linear(model, fitted, source.training.dtype)
    else:
        assert source.rows is not None
        # All labels share the rows, so that kernel values are computed once for many labels.
        held = source.rows[: len(fitted.subspace.coefficients)]
        keep_kernel(model, fitted, held, np.arange(len(held)))
        model.kernel_, model.support_ = source.kernel, _numbers(held, source.training)
    model.partition_ = source.shared.groups(place, np.arange(len(source.shared.owner)), label.kept)
    if label.fresh:
        model.loo_scores_, mass = left_out_scores(source, place)
        if mass is not None:
            model.loo_weights_ = mass
    return model


def _numbers(held: Floats, training: Floats) -> Ints:
    """Return the training-row index of each row that a kernel needs; -1 for removed rows."""
    if held.base is training and len(held) == len(training):
        return np.arange(len(held))
    known = {row.tobytes(): number for number, row in enumerate(training)}
    return np.array([known.get(row.tobytes(), -1) for row in held], dtype=np.intp)


def _subspace(source: Source, place: int) -> Subspace:
    shared, label = source.shared, source.label
    base = label.density.base
    d = len(label.eigenvalues)
    centres = np.vstack([np.zeros(d), base.subclasses])
    scatter = GroupScatter(label.counts, centres, base.positive, base.negative)
    means: Array | None = None
    if source.kernel is None:
        kept, _, found = shared.division(shared.own(place))
        rows = {int(one): row for one, row in zip(kept, found[1:], strict=True)}
        rest = [rows.get(int(one), found[0]) + shared.origin for one in label.kept]
        means = np.vstack([label.mean, *(source.space.mean(row) for row in rest)])
    coefficients = label.axes.T.astype(np.float64)
    return Subspace(coefficients, label.origin, label.eigenvalues, d, scatter, np.eye(d), means)


def left_out_scores(source: Source, place: int) -> tuple[Array, Array | None]:
    """Return left-out log-likelihood ratios of the training rows; NaN if a row was not left out.

    If the left-out rows are a sample, also return how many rows each one represents.
    """
    n_components = len(source.label.eigenvalues)
    (solved,) = solve_labels(source.shared, np.array([place]), n_components)
    left = solved.subspace.left
    assert left is not None
    scores = source.calibration(source.left_out_views(solved))
    scores[(left.groups == 0) & left.alone] = np.nan
    full = np.full(len(source.shared.owner), np.nan)
    full[solved.rows] = scores
    if left.stands_for is None:
        return full, None
    mass = np.zeros(len(full))
    mass[solved.rows] = left.mass
    return full, mass[~np.isnan(full)]


def stale(models: list[LabelModel]) -> list[LabelModel]:
    """Mark the labels as out of date: they were fitted before the rows changed."""
    return [replace(model, fresh=False) if model.fresh else model for model in models]


def on_support(model: LabelModel, index: Ints, size: int) -> LabelModel:
    """Expand training-row coefficients to cover all rows that the kernel needs."""
    axes: Floats = np.zeros((len(model.axes), size), model.axes.dtype)
    axes[:, index] = model.axes
    return replace(model, axes=axes)
