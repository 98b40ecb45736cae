"""Settings, rows and changes that a bank passes to its labels, and checks of the bank's input."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import has_fit_parameter

from ..core.calibration import Calibration
from ..core.copies import Fingerprints
from ..core.density import Blend, Mixture
from ..core.linalg import Array, Floats, Ints, Mask, unit_rows
from ..core.many import SolvedLabel
from ..core.predictive import pseudo_positives
from ..core.warning import warn
from ..validation import MatrixLike
from .candidates import template_of
from .grid import final_of
from .kernel import KernelPCSDA
from .linear import PCSDA
from .mixture import MixtureVerifier
from .parameters import check_verifier, refuse_contamination
from .rows import some
from .search import PCSDACV
from .selection import check_search
from .verifier import Verifier

# Rows are copied without the removed ones once fewer than this share remain.
LEAST_KEPT = 0.5


@dataclass(frozen=True)
class Settings:
    """Settings for fitting a bank.

    Attributes
    ----------
    template : estimator
        The estimator that is copied for each label; its `regularization` is a number.
    seed : int
    given : bool
        Whether the user gave the clusters.
    own_clusters : bool
        Whether k-means is run separately for each label.
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


class Room:
    """Rows in an array with free space at the end, so that most additions copy only the new rows.

    Parameters
    ----------
    rows : array of shape (N, D)
        The rows so far; they are copied.
    more : int
        Number of further rows that must fit.
    chosen : array of integers, optional
        Numbers of the rows to keep; by default all.
    """

    def __init__(self, rows: Floats, more: int = 0, chosen: Ints | None = None) -> None:
        self.used = len(rows) if chosen is None else len(chosen)
        self._space = np.empty((self.used + more + self.used // 8, rows.shape[1]), rows.dtype)
        if chosen is None:
            self._space[: self.used] = rows
        else:  # without a temporary copy
            np.take(rows, chosen, axis=0, out=self._space[: self.used], mode="clip")

    @property
    def rows(self) -> Floats:
        """All rows. Adding rows does not change arrays returned earlier."""
        return self._space[: self.used]

    def add(self, more: Floats) -> Floats:
        """Add rows, and return all rows stored so far."""
        self._space[self.used : self.used + len(more)] = more
        self.used += len(more)
        return self.rows

    def fits(self, after: Floats, more: int) -> bool:
        """Return whether `more` rows fit, and nothing is stored yet after the rows `after`."""
        return self.used == len(after) and self.used + more <= len(self._space)


@dataclass(frozen=True)
class BankRows:
    """A bank's training rows.

    Removed rows stay in memory until their share is large or the remaining rows are needed in one
    array, because copying all rows would take longer than everything else in a change.

    Attributes
    ----------
    held : array of shape (H, D)
        The rows, possibly with others that were removed.
    labels : array of shape (N,)
        Index of each row's label, or `BACKGROUND` for unlabelled rows.
    clusters : array of shape (N,)
    keys : array of shape (N,)
        Random numbers that decide which rows are sampled.
    together : array of shape (N,) or None
        Rows with the same number are left out together.
    ids : array of shape (N,) or None
        Row names. A row added later is named after its number.
    places : array of shape (N,) or None
        Position of each row in `held`; None if no row was removed.
    room : Room or None
        The storage that `held` lies in once rows have been added.
    """

    held: Floats
    labels: Ints
    clusters: Ints
    keys: Array
    together: Ints | None
    ids: NDArray[np.str_] | None = None
    places: Ints | None = None
    room: Room | None = field(default=None, repr=False, compare=False)

    @property
    def X(self) -> Floats:
        """The rows in one array, of shape (N, D)."""
        return self.held if self.places is None else self._copied.rows

    @cached_property
    def fingerprints(self) -> Fingerprints:
        """Fingerprints of the rows, taken once for all labels."""
        return Fingerprints.of(self.X)

    @cached_property
    def unit_fingerprints(self) -> Fingerprints:
        """Fingerprints of the rows scaled to unit length."""
        return Fingerprints.of(unit_rows(self.X))

    @cached_property
    def _copied(self) -> Room:
        return Room(self.held, chosen=self.places)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and number of columns."""
        return len(self.labels), self.held.shape[1]

    @property
    def dtype(self) -> np.dtype[np.floating]:
        """Data type of the rows."""
        return self.held.dtype

    def take(self, chosen: Ints) -> Floats:
        """Return the rows with the given numbers, without copying the others."""
        return self.held[chosen if self.places is None else self.places[chosen]]

    def find(self, X: Floats) -> tuple[int, int] | None:
        """Find the first row of X that the bank has; see :func:`known_row`."""
        column = self.held[:, 0] if self.places is None else self.held[self.places, 0]
        near = np.flatnonzero(np.isin(column, X[:, 0]))
        found = known_row(self.take(near), X)
        return None if found is None else (found[0], int(near[found[1]]))

    def compact(self) -> BankRows:
        """Return the rows without those that were removed."""
        if self.places is None:
            return self
        return replace(self, held=self.X, places=None, room=self._copied)

    def over(self, X: Floats) -> BankRows:
        """Return the same rows with the values in X."""
        return replace(self, held=X, places=None, room=None)

    def appended(self, X: Floats, label: int, clusters: Ints, seed: int) -> BankRows:
        """Return the bank's rows followed by new rows of one label or of the background.

        If the bank has groups, the new rows form one group.
        """
        together = self.together
        if together is not None:
            together = np.append(together, np.full(len(X), together.max() + 1))
        keys = np.random.default_rng([seed, len(self.labels)]).random(len(X))
        ids = self.ids
        if ids is not None:
            ids = np.append(ids, np.arange(len(ids), len(ids) + len(X)).astype(str))
        known = self.compact() if "_copied" in vars(self) else self
        held, places, room = known.held, known.places, known.room
        if room is None or not room.fits(held, len(X)):
            room = Room(held, len(X), places)
            held, places = room.rows, None
        if places is not None:
            places = np.append(places, np.arange(len(held), len(held) + len(X)))
        return BankRows(
            room.add(X),
            np.append(self.labels, np.full(len(X), label)),
            np.append(self.clusters, clusters),
            np.append(self.keys, keys),
            together,
            ids,
            places,
            room,
        )

    def kept(self, rows: Mask) -> BankRows:
        """Return only the rows that the mask `rows` selects."""
        places = np.flatnonzero(rows) if self.places is None else self.places[rows]
        kept = replace(
            self,
            labels=self.labels[rows],
            clusters=self.clusters[rows],
            keys=self.keys[rows],
            together=some(self.together, rows),
            ids=some(self.ids, rows),
            places=places,
        )
        few = len(places) < len(self.held) * LEAST_KEPT
        return kept.over(self.held[places]) if few else kept

    def numbered(self, numbers: Ints) -> BankRows:
        """Return the rows with new label numbers: label i becomes ``numbers[i]``."""
        known = self.labels >= 0
        labels = self.labels.copy()
        labels[known] = numbers[self.labels[known]]
        return replace(self, labels=labels)


class KnownRowError(ValueError):
    """Error raised for a row that the bank already has.

    `row` is the number of the row, and `fault` says what is wrong with it.
    """

    def __init__(self, row: int, name: str, fault: str) -> None:
        super().__init__(row, name, fault)
        self.row, self.name, self.fault = row, name, fault

    def __str__(self) -> str:
        return f"row {self.row} of {self.name} {self.fault}"


@dataclass(frozen=True)
class Change:
    """Rows added to a bank, or a label removed from it.

    Attributes
    ----------
    before, rows : BankRows
        Rows before and after the change, both with the new label numbers.
    classes : array of shape (C,)
        The labels after the change.
    places : list
        The previous number of each label, None for a new label.
    kept : boolean array or None
        Which rows were kept; None if rows were added at the end.
    touched : int or None
        Number of the label to refit.
    threshold : float or None
        The bank's threshold, for the warning about a label with a single row.
    """

    before: BankRows
    rows: BankRows
    classes: NDArray[Any]
    places: list[int | None]
    kept: Mask | None = None
    touched: int | None = None
    threshold: float | None = None

    @property
    def fresh(self) -> Floats:
        """The rows that were added."""
        return self.rows.take(np.arange(len(self.before.labels), len(self.rows.labels)))

    @property
    def gone(self) -> Floats:
        """The rows that were removed."""
        assert self.kept is not None
        return self.before.take(np.flatnonzero(~self.kept))

    def warn_of_one_row(self, missed: float | None = None) -> None:
        """Warn that a new label has one row.

        If `missed` is given, the warning says that the threshold may miss this share of the label's
        rows.
        """
        assert self.touched is not None
        expected = ""
        if missed is not None:
            expected = (
                f"; if it spreads as the others do, expect about {missed:.0%} of its rows to be "
                f"missed at the threshold of {self.threshold:.3g}"
            )
        warn(
            f"label {self.classes.tolist()[self.touched]!r} has one row, which says nothing about "
            f"its spread: the ratios are based on the spread of the other labels{expected}. Add "
            "rows with update as soon as you have them",
        )


def alone(labels: Ints) -> Ints:
    """Return clusters in which each label, and each background row, is a cluster of its own."""
    clusters, unknown = labels.copy(), np.flatnonzero(labels < 0)
    clusters[unknown] = labels.max() + 1 + np.arange(len(unknown))
    return clusters


def known_row(known: Floats, X: Floats) -> tuple[int, int] | None:
    """Find the first row of X that equals a row of `known`, and return the numbers of both rows.

    Return None if there is no such row.
    """
    near = np.flatnonzero(np.isin(known[:, 0], X[:, 0]))
    if len(near) == 0:
        return None
    places = {row.tobytes(): int(i) for i, row in zip(near, known[near] + 0.0, strict=True)}
    for number, row in enumerate(X.astype(known.dtype, copy=False) + 0.0):
        if (found := places.get(row.tobytes())) is not None:
            return number, found
    return None


def check_background(X: Floats, background: Floats) -> None:
    """Reject a background that is empty or contains labelled rows."""
    if len(background) == 0:
        raise ValueError(
            "background has 0 rows and needs at least 1; leave it out if there is none"
        )
    found = known_row(X, background)
    if found is not None:
        raise ValueError(
            f"row {found[0]} of background is row {found[1]} of X, which has a label; background "
            "rows belong to no label, so leave it out of one of the two"
        )


def numbered_labels(y: NDArray[Any]) -> tuple[NDArray[Any], Ints]:
    """Return the sorted labels and the label number of each row.

    Labels of several types, which have no common order, are rejected.
    """
    try:
        classes, labels = np.unique(y, return_inverse=True)
    except TypeError as error:
        kinds = sorted({type(label).__name__ for label in y.tolist()})
        raise ValueError(
            f"y has labels of several types, {', '.join(kinds)}, which have no common order; use "
            "labels of one type, such as y.astype(str)"
        ) from error
    return classes, labels


def places_of(labels: NDArray[Any], among: NDArray[Any]) -> Ints:
    """Return the position of each label among other labels, or -1; both arrays are sorted."""
    near = np.minimum(np.searchsorted(among, labels), len(among) - 1)
    return np.where(among[near] == labels, near, -1)


def warn_of_shared_rows(X: Floats, labels: Ints, classes: NDArray[Any]) -> None:
    """Warn about equal rows with different labels, which no model can tell apart."""
    order = np.argsort(X[:, 0], kind="stable")
    first = X[order, 0]
    same = np.append(first[1:] == first[:-1], False)
    near = np.sort(order[same | np.append(False, same[:-1])])
    seen: dict[bytes, int] = {}
    for row in near.tolist():
        before = seen.setdefault((X[row] + 0.0).tobytes(), row)
        if labels[before] != labels[row]:
            names = classes[[labels[before], labels[row]]].tolist()
            warn(
                f"rows {before} and {row} of X are equal and have the labels {names[0]!r} and "
                f"{names[1]!r}; a row belongs to one label, so leave it out of the other, or out "
                "of both if its label is unknown",
            )
            return


def check_kind(classes: NDArray[Any], label: Any) -> NDArray[Any]:
    """Return the labels with a new label at the end; reject a label of a different type."""
    if classes.dtype.kind in "iu" and isinstance(label, (int, np.integer)):
        label = _integer(label, classes.dtype)
    order = np.append(classes, label)
    try:
        kinds = {order.dtype.kind, classes.dtype.kind}
        same = np.ndim(label) == 0 and (len(kinds) == 1 or kinds == {"i", "u"})
        same = same and len(np.unique(order)) > 0
        same = same and (order.dtype.kind != "U" or isinstance(label, str))
    except TypeError:  # objects of types that cannot be compared
        same = False
    if not same:
        raise ValueError(
            f"label {label!r} has a different type from the bank's labels, {listed(classes)}; use "
            "a label of the same type"
        )
    return order


def _integer(label: int | np.integer[Any], dtype: np.dtype[Any]) -> Any:
    """Return the label as an integer of the given type, or unchanged if it does not fit."""
    limits = np.iinfo(dtype)
    return dtype.type(label) if limits.min <= int(label) <= limits.max else label


def missed_share(
    solved: SolvedLabel,
    density: Mixture | Blend,
    calibration: Calibration,
    threshold: float | None,
) -> float | None:
    """Estimate the share of future rows that a threshold misses, for a label with one row.

    Return None if there is no threshold or no left-out negative that shows how labels spread.
    """
    few = pseudo_positives(solved.subspace)
    if few is None or threshold is None:
        return None
    scores = calibration(density.views(few[0]))
    return float(np.average(scores < threshold, weights=few[1]))


def check_template(
    template: BaseEstimator, groups: ArrayLike | None, background: MatrixLike | None
) -> None:
    """Check the estimator that the bank copies for each label."""
    inner: Any = template
    while isinstance(inner, (Pipeline, PCSDACV, MixtureVerifier, GridSearchCV, RandomizedSearchCV)):
        inner = final_of(inner) if isinstance(inner, Pipeline) else template_of(inner)
    if not isinstance(inner, Verifier):
        raise TypeError(
            "VerifierBank takes PCSDA, CSDA, their kernel forms, MixtureVerifier, or a search or "
            f"pipeline that ends in one of these, got {type(inner).__name__}; for example "
            "VerifierBank(PCSDA())"
        )
    if isinstance(template, PCSDACV):
        check_search(template)
    elif isinstance(template, (PCSDA, KernelPCSDA)):
        check_verifier(template)
    if inner.pos_label is not None:
        raise ValueError(
            f"pos_label={inner.pos_label!r} cannot be used in a bank, where each label in turn "
            "is the class of interest; leave it as None"
        )
    if background is None:
        refuse_contamination(
            inner,
            "in a bank, the rows of other labels are labelled, and only background rows may hide "
            "more rows of a label",
            "give unchecked rows as background",
        )
    elif inner is not template:
        refuse_contamination(
            inner,
            "in a bank, only PCSDA and KernelPCSDA themselves look for hidden rows",
            "take the model out of its pipeline",
        )
    last = final_of(template)
    if groups is not None and not has_fit_parameter(last, "groups"):
        raise ValueError(
            f"VerifierBank cannot pass groups on to {type(last).__name__}; use PCSDACV or a "
            "verifier itself, or leave groups out"
        )


def listed(classes: NDArray[Any]) -> str:
    """Return a list of the labels for a message, or of the first few if there are many."""
    shown = classes[:8].tolist()
    return str(shown) if len(classes) <= 8 else f"{str(shown)[:-1]}, ...] ({len(classes)} labels)"
