"""The spread of rows: their centre, and the ridge relative to it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from . import linalg
from .linalg import Array, TooFewRowsError

# Below this, inverses of variances overflow.
SMALLEST_VARIANCE = 1e-280
# Squares of numbers up to this do not overflow, nor do sums of many of them.
LARGEST_NUMBER = 1e150


class OverflowingSquares(ValueError):
    """The squares of the rows are not finite."""

    def __init__(self) -> None:
        super().__init__(
            "the squares of X overflow, its spread is beyond 1e150; divide X by its scale first"
        )


def require_squares(X: NDArray[np.floating]) -> None:
    """Refuse rows whose squares may overflow, before they enter statistics for good."""
    if max(float(X.max()), -float(X.min())) > LARGEST_NUMBER:
        raise OverflowingSquares


def no_spread() -> TooFewRowsError:
    """Make the error for rows that are all equal."""
    return TooFewRowsError(
        "all rows of X are equal (total variance 0); at least two different rows are needed"
    )


def ridge_of(total_variance: float, regularization: float) -> float:
    """Turn the relative ridge into an absolute one (MATH 1), refusing data without spread."""
    if not np.isfinite(total_variance):
        raise OverflowingSquares
    if total_variance <= 0:
        raise no_spread()
    if total_variance < SMALLEST_VARIANCE:
        raise ValueError(
            f"the squares of X vanish, its spread is {np.sqrt(total_variance):.1g} and must be at "
            "least 1e-140; divide X by its scale first"
        )
    return regularization * total_variance


def singular_scatter(width: int, regularization: float) -> TooFewRowsError:
    """Make the error for a denominator that cannot be factorised."""
    return TooFewRowsError(
        f"the within-class scatter of {width} dimensions is singular at "
        f"regularization={regularization:g}; raise regularization, to 0.1 for instance"
    )


def centred(X: NDArray[np.floating], weights: Array | None) -> tuple[Array, Array, float]:
    """Centred rows, the grand mean, and the mean squared distance from it."""
    total = len(X) if weights is None else weights.sum()
    share = np.full(len(X), 1 / total) if weights is None else weights / total
    exact = X.astype(np.float64, copy=False)
    # Two steps: the mean of what is left takes off what rounding put into the first.
    origin: Array = exact[0] + share @ (exact - exact[0])
    rows = exact - origin
    with np.errstate(over="ignore", invalid="ignore"):  # the variance shows it
        variance = float(share @ np.einsum("ij,ij->i", rows, rows))
    return rows, origin, known_variance(variance, origin)


def known_variance(variance: float, means: Array) -> float:
    """Total variance of rows about such means; 0 if it is rounding beside them."""
    rounding = linalg.SAME_NUMBER * np.abs(means).max()
    with np.errstate(invalid="ignore"):
        return 0.0 if np.sqrt(variance / means.shape[-1]) <= rounding else variance
