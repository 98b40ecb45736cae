"""The mean and spread of the rows, and the ridge relative to the spread."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from . import linalg
from .linalg import Array, Floats, SingularMatrixError, TooFewRowsError

# Inverses of smaller variances may overflow.
SMALLEST_VARIANCE = 1e-280
# Squares of numbers up to this size do not overflow, nor do sums of many such squares.
LARGEST_NUMBER = 1e150
# If at least this share of the numbers is too large, the scale is to blame, not a wrong entry.
FEW = 0.1


class ScaleError(ValueError):
    """Error raised if numbers are so large or small that squares may overflow or underflow."""


class NoSpread(TooFewRowsError, ScaleError):
    """Error raised if all rows are equal, or look equal because their squares underflow."""


class OverflowingSquares(ScaleError):
    """Error raised if the squares of the rows are not finite."""

    def __init__(self) -> None:
        super().__init__(
            "the squares of X overflow because its spread is above 1e150; divide X by its scale "
            "first"
        )


def scale_problem(X: Floats, columns: Sequence[object] | None = None) -> str | None:
    """Describe why the squares of X overflow or underflow, or return None if no reason is found.

    If only a few numbers are too large, the message names the largest. `columns` holds the names of
    the columns.
    """
    if X.size == 0 or not np.isfinite(X).all():
        return None
    place = np.unravel_index(np.abs(X).argmax(), X.shape)
    row, column = int(place[0]), int(place[1])
    value = float(X[place])
    if abs(value) > LARGEST_NUMBER and np.mean(np.abs(X) > LARGEST_NUMBER) < FEW:
        name = column if columns is None else repr(columns[column])
        return (
            f"{OverflowingSquares()}, or correct the largest number, {value:.3g} in row {row}, "
            f"column {name}"
        )
    spread = float(np.ptp(X, axis=0).max())
    return _underflow(spread) if 0 < spread < np.sqrt(SMALLEST_VARIANCE) else None


def _underflow(spread: float) -> str:
    return (
        f"the squares of X underflow: its spread is {spread:.1g} but must be at least 1e-140; "
        "divide X by its scale first"
    )


def require_squares(X: Floats) -> None:
    """Raise OverflowingSquares if the squares of the rows may overflow.

    This must be checked before any statistics are computed from the rows.
    """
    if max(float(X.max()), -float(X.min())) > LARGEST_NUMBER:
        raise OverflowingSquares


def auto_regularization(n_positive: float, *, kernel: bool, contaminated: bool = False) -> float:
    """Return the relative ridge for ``regularization="auto"`` (MATH 16).

    Whitening amplifies the error in the positive mean, so the ridge is larger for few positives.
    Feature spaces have many directions, most of them weak, so kernels need a smaller ridge. If the
    negatives are `contaminated` by hidden positives, which may outnumber the known ones, the ridge
    must also keep the hidden positives from shaping the axes.
    """
    count = max(n_positive, 1.0)
    if contaminated:
        times, least = (10, 0.2) if kernel else (30, 0.9)
        return float(max(times / count, least))
    # A single positive serves as the class mean, so the error of that mean is as large as the
    # spread of the rows.
    if kernel:
        return float(max(2.5 / count**2, np.clip(1 / count, 0.1, 0.3)))
    return float(max(10 / count**2, np.clip(3 / count**0.5, 0.3, 2.0)))


def no_spread() -> NoSpread:
    """Create the error for rows that are all equal."""
    return NoSpread(
        "all rows of X are equal (total variance 0); at least two different rows are needed"
    )


@contextmanager
def naming_the_offset(X: Floats) -> Iterator[None]:
    """Replace NoSpread by an error that names the offset, for rows `X` known to differ."""
    try:
        yield
    except NoSpread as error:
        raise NoSpread(
            "the rows of X differ by too little for double precision next to numbers of up to "
            f"{max(X.max(), -X.min()):.3g}; subtract the mean of each column first"
        ) from error


def ridge_of(total_variance: float, regularization: float) -> float:
    """Convert a ridge relative to the total variance to an absolute ridge (MATH 1).

    Raises an error if all rows are equal, or if their squares overflow or underflow.
    """
    if not np.isfinite(total_variance):
        raise OverflowingSquares
    if total_variance <= 0:
        raise no_spread()
    if total_variance < SMALLEST_VARIANCE:
        raise ValueError(_underflow(float(np.sqrt(total_variance))))
    return regularization * total_variance


def ridges_of(
    total_variance: float, regularizations: list[float], ridges: list[float] | None
) -> list[float]:
    """Return `ridges` if given; otherwise convert `regularizations` to absolute ridges."""
    if ridges is not None:
        return ridges
    return [ridge_of(total_variance, value) for value in regularizations]


def singular_scatter(width: int, regularization: float) -> TooFewRowsError:
    """Create the error for a within-class scatter that is singular in spite of the ridge."""
    return TooFewRowsError(
        f"the within-class scatter of {width} dimensions is singular at "
        f"regularization={regularization:g}; raise regularization, to 0.1 for instance"
    )


@contextmanager
def naming_the_ridge(width: int, regularization: float) -> Iterator[None]:
    """Replace a SingularMatrixError by an error that advises a larger regularization."""
    try:
        yield
    except SingularMatrixError as error:
        raise singular_scatter(width, regularization) from error


def centred(X: Floats, weights: Array | None) -> tuple[Array, Array, float]:
    """Return the rows minus their mean, the mean, and the mean squared distance from the mean."""
    total = len(X) if weights is None else weights.sum()
    share = np.full(len(X), 1 / total) if weights is None else weights / total
    exact = X.astype(np.float64, copy=False)
    # The first row is subtracted first, so that a common offset of all rows costs no digits.
    rows = exact - exact[0]
    shift = share @ rows
    rows -= shift
    origin: Array = exact[0] + shift
    with np.errstate(over="ignore", invalid="ignore"):  # an overflow shows in the variance
        variance = np.vdot(rows, rows) / total
        if weights is not None:
            variance = share @ np.einsum("ij,ij->i", rows, rows)
    return rows, origin, known_variance(float(variance), origin)


def known_variance(variance: float, means: Array) -> float:
    """Return the total variance of rows, or 0 if rounding alone could cause a value of this size.

    `means` holds the mean of the rows or of their groups, and shows the size of the numbers.
    """
    rounding = linalg.SAME_NUMBER * np.abs(means).max()
    with np.errstate(invalid="ignore"):
        return 0.0 if np.sqrt(variance / means.shape[-1]) <= rounding else variance
