"""Duplicate rows: warn about those in a fit, and recognise training rows among other rows.

Leaving out a row tests nothing if a copy of it stays in the fit. Rows are compared by a random
projection: equal rows have equal projections, and distinct rows almost never do.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from .linalg import Array, Ints, Mask, cache_rows
from .warning import warn

# If a larger share of a class's distinct rows has copies, left-out scores are not trusted.
MANY_COPIES = 0.1
# If fewer distinct rows than this have copies, they are taken for categories, not repeated samples,
# unless they are most of the positives and single columns tell all distinct rows apart.
KINDS = 5
POSITIVES = "positive rows"
# If columns take few values, some rows are equal by chance, and more are equal in half of the
# columns. If half of the columns still distinguish this share of the distinct rows, the copies are
# not due to chance.
AS_MANY = 0.9
# Rows are equal if their projections differ by at most this share of the largest projection. The
# keys are item sizes in bytes.
CLOSE = {4: 1e-6, 8: 1e-12}
# Projections of rows in single precision are equal if they differ by at most this share.
ROUNDED = 1e-5
# Number of columns in the middle of X that are compared first: a few cache lines of each row.
A_FEW = 16
SAID = "occur more than once"


@dataclass(frozen=True)
class Fingerprints:
    """Projections of rows, by which copies of them are recognised later.

    Attributes
    ----------
    origin : array of shape (n_features,)
        It is subtracted from rows, so that projections of rows far from zero stay exact.
    weights : array of shape (n_features, 2)
    keys : array of shape (n, 2)
        Two projections of each row. One would do for exact copies, but not for rows that an earlier
        step computed in single precision, because BLAS rounds them differently in every batch.
    close : float
        Relative distance at which projections are equal.
    """

    origin: Array
    weights: Array
    keys: Array
    close: float

    @classmethod
    def of(cls, X: Any) -> Fingerprints:
        """Take the fingerprints of rows."""
        weights = 2 * np.random.default_rng(0).random((X.shape[1], 2)) - 1
        if sparse.issparse(X):
            origin = np.zeros(X.shape[1])
        else:
            origin, scales = X.mean(axis=0, dtype=np.float64), _scales(X)
            weights /= np.where(scales > 0, scales, 1.0)[:, None]
        keys = _project(X, origin, weights)
        return cls(origin, weights, keys, _closeness(X))

    def take(self, rows: Ints) -> Fingerprints:
        """Return the fingerprints of a subset of the rows."""
        return replace(self, keys=self.keys[rows])

    @np.errstate(over="ignore", invalid="ignore")
    def of_copies(self, X: Any, values: Array) -> Array:
        """Return, for each row of X that copies one of these rows, the value of that row.

        `values` has one entry for each of these rows. Equal rows share their mean value. Rows of X
        that are no copies get NaN.
        """
        close = max(self.close, _closeness(X))
        cells, place = np.unique(self._cells(self.keys, close).round(), return_inverse=True)
        sizes, totals = np.bincount(place), np.bincount(place, values)
        own = self._cells(_project(X, self.origin, self.weights), close)
        corner = np.floor(own.real) + 1j * np.floor(own.imag)
        count, total = np.zeros(len(own)), np.zeros(len(own))
        for near in (corner, corner + 1, corner + 1j, corner + 1 + 1j):
            at = np.minimum(np.searchsorted(cells, near), len(cells) - 1)
            there = cells[at] == near
            count[there] += sizes[at[there]]
            total[there] += totals[at[there]]
        found: Array = np.full(len(own), np.nan)
        return np.divide(total, count, out=found, where=count > 0)

    def _cells(self, keys: Array, close: float) -> NDArray[np.complex128]:
        """Return the place of rows in a grid, whose cells grow with the distance from zero.

        The two coordinates are one complex number. A copy differs from its row by less than half a
        cell in each.
        """
        usual = np.median(np.abs(self.keys), axis=0)
        grid = np.arcsinh(keys / np.where(usual > 0, usual, 1.0)) / (4 * close)
        return grid[:, 0] + 1j * grid[:, 1]


def _closeness(X: Any) -> float:
    """Return the relative distance at which projections of rows of the same type are equal."""
    return ROUNDED if X.dtype == np.float32 else CLOSE[8]


def _project(X: Any, origin: Array, weights: Array) -> Array:
    """Project rows in float64, in parts that stay in the cache."""
    step = cache_rows(X.shape[1])
    parts = (X[start : start + step] for start in range(0, X.shape[0], step))
    with np.errstate(over="ignore", invalid="ignore"):
        if sparse.issparse(X):
            return np.concatenate([part @ weights - origin @ weights for part in parts])
        return np.concatenate([(part - origin) @ weights for part in parts])


def warn_of_copies(X: Any, positive: Mask | None = None) -> None:
    """Warn if so many rows are copies that left-out scores look far better than they are.

    If a mask of the positives is given, the two classes are judged separately.
    """
    parts: dict[str, Any] = {"rows": slice(None)}
    if positive is not None:
        parts = {POSITIVES: positive, "negative rows": ~positive}
    for name, (copied, different) in count_copied(X, parts).items():
        warn(
            f"{copied} of the {different} different {name} of X {SAID}. If a copy is the same "
            "sample taken twice, left-out scores and thresholds look far better than they are: "
            "remove the copies, or name the sample of each row in groups (--group on the command "
            "line), so that copies are left out together"
        )
        return


@contextmanager
def silent_on_copies() -> Iterator[None]:
    """Suppress the warning about copies in fits to part of the rows; the caller checks all."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", f".*{SAID}", UserWarning)
        yield


def count_copied(X: Any, parts: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """Find the parts of X with many copies, unless columns of few values explain the copies.

    `parts` maps the name of each part to its rows. For each part with many copies, the result holds
    two counts: distinct rows that have copies, and all distinct rows. Usually, a few columns show
    that copies are few. Otherwise X is read as a whole, and again if that shows many copies.
    """
    values = _projected(X, parts)
    if values is None or _by_chance(values):
        return {}
    different = _count(values[:, 0])[1]
    many, measured = _with_many(values[:, 0], parts), _tell_apart(X, different)
    return {
        name: (copied, own)
        for name, (copied, own) in many.items()
        if copied >= KINDS or (name == POSITIVES and 2 * copied > own > 1 and measured)
    }


def few_values_repeat(X: Any) -> bool:
    """Return whether many rows are copies, and columns of few values explain them.

    A map of such rows, like PCA, hides that the columns take few values, but not the copies.
    """
    values = _projected(X, {"rows": slice(None)})
    return values is not None and (X.shape[1] == 1 or _by_chance(values))


def _projected(X: Any, parts: dict[str, Any]) -> Array | None:
    """Return the projections of :func:`_in_halves`, or None if no part has many copies."""
    rng = np.random.default_rng(0)
    weights = 2 * rng.random(X.shape[1]) - 1
    with np.errstate(over="ignore", invalid="ignore"):
        if not sparse.issparse(X) and _differ_in_a_few(X, weights, parts):
            return None
        if not _with_many(X @ weights.astype(X.dtype), parts):
            return None
        return _in_halves(X, weights, rng)


def _in_halves(X: Any, weights: Array, rng: np.random.Generator) -> Array:
    """Return three projections of the scaled rows: on all columns, and on each of two halves."""
    width, scales = X.shape[1], _scales(X)
    varying = rng.permutation(width)
    varying = varying[scales[varying] > 0]
    half = np.zeros(width)
    half[varying[: len(varying) // 2]] = 1.0
    rest = 1 - half if len(varying) > 1 else half  # a single column cannot be halved
    each = np.stack([np.ones_like(half), half, rest], axis=1) * weights[:, None]
    values: Array = X @ (each / np.where(scales > 0, scales, 1.0)[:, None])
    return values


@np.errstate(over="ignore", invalid="ignore")
def _by_chance(values: Array) -> bool:
    """Return whether rows repeat by chance, given their projections by :func:`_in_halves`."""
    different, *halves = (_count(column)[1] for column in values.T)
    return max(halves) < AS_MANY * different


def _tell_apart(X: Any, different: int) -> bool:
    """Return whether a few single columns each tell all distinct rows apart, as measurements do."""
    if sparse.issparse(X) or different < KINDS:
        return False
    middle = max((X.shape[1] - A_FEW) // 2, 0)
    return all(_count(column)[1] == different for column in X[:, middle : middle + A_FEW].T)


def _differ_in_a_few(X: Any, weights: Array, parts: dict[str, Any]) -> bool:
    """Return whether a few columns already show that no part has many copies.

    Rows that differ in these columns differ, so each copied row is among the rows with an equal
    here, and every two such rows account for at most one distinct row with copies.
    """
    middle = max((X.shape[1] - A_FEW) // 2, 0)
    columns = slice(middle, middle + A_FEW)
    values = X[:, columns] @ weights[columns].astype(X.dtype)
    for part in parts.values():
        own = values[part]
        copied, different = _count(own)
        with_equals = len(own) - different + copied
        if with_equals / 2 > MANY_COPIES * different:
            return False
    return True


def _with_many(values: Array, parts: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """Return the counts, as from :func:`_count`, of each part with many copies.

    A part has many copies if more than the share `MANY_COPIES` of its distinct values occur more
    than once.
    """
    found = {name: _count(values[part]) for name, part in parts.items()}
    return {name: pair for name, pair in found.items() if pair[0] > MANY_COPIES * pair[1]}


def _scales(X: Any) -> Array:
    """Return the range of each column, or ones for sparse rows.

    Dividing columns by their ranges gives all columns the same influence.
    """
    if sparse.issparse(X):
        return np.ones(X.shape[1])
    scales: Array = np.ptp(X, axis=0).astype(np.float64)
    return scales


def _count(values: Array) -> tuple[int, int]:
    """Return the number of values that occur more than once, and the number of distinct values."""
    ordered = np.sort(values)
    near = CLOSE[values.dtype.itemsize] * np.abs(ordered[[0, -1]]).max()
    apart = np.append(True, ~(np.diff(ordered) <= near))  # NaN equals nothing
    copied = apart[:-1] & ~apart[1:]
    return int(copied.sum()), int(apart.sum())
