"""One factorisation for every class, every K and every clustering of one data set (MATH 4).

The within-class scatter of any partition is the total scatter less a term of rank K + 1. Rows are
whitened once by the ridged total scatter, ``T + eps I``; each partition then needs the means of its
groups and systems of size K + 1 only:
``A = A_T + A_T M' (diag(1/n) - M A_T M')^-1 M A_T``, and A_T is the identity for whitened rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from . import linalg
from .dual import Solution
from .linalg import Array, SingularMatrixError
from .loo import inflation

# Share of the total scatter that must remain within groups, in every direction, for the update to
# keep half the digits. Below it a partition has to be factorised on its own.
SMALLEST_REMAINDER = 1e-8


@dataclass(frozen=True)
class White:
    """Rows whitened by the ridged total scatter.

    Attributes
    ----------
    rows : array of shape (N, D)
        ``B' (x - c)``, c the grand mean.
    back : array of shape (D, D)
        B, with ``B B' = (T + eps I)^-1``.
    norms : array of shape (N,)
        Squared lengths of the rows.
    """

    rows: Array
    back: Array
    norms: Array


@dataclass(frozen=True)
class SharedSolution(Solution):
    """One partition solved on whitened rows.

    Attributes
    ----------
    directions : array of shape (D, K)
        ``A Delta'`` in the space of the rows before whitening.
    apart : pair of arrays of shape (N,)
        Leverages and gaps, as in MATH 8.
    """

    directions: Array
    apart: tuple[Array, Array]


def centre(X: NDArray[np.floating], weights: Array | None) -> tuple[Array, Array, float]:
    """Centred rows, the grand mean, and the mean squared distance from it."""
    total = len(X) if weights is None else weights.sum()
    share = np.full(len(X), 1 / total) if weights is None else weights / total
    exact = X.astype(np.float64, copy=False)
    # Two steps: the mean of what is left takes off what rounding put into the first.
    origin: Array = exact[0] + share @ (exact - exact[0])
    centred = exact - origin
    return centred, origin, float(share @ np.einsum("ij,ij->i", centred, centred))


def whiten(centred: Array, ridge: float, weights: Array | None = None) -> White:
    """Whiten centred rows by one Cholesky factor, ``N D^2 + D^3/3``."""
    scaled = centred if weights is None else centred * np.sqrt(weights)[:, None]
    factor = linalg.cholesky(scaled.T @ scaled, ridge)
    back = linalg.triangular_inverse(factor).T
    rows = centred @ back
    return White(rows, back, np.einsum("ij,ij->i", rows, rows))


def whiten_path(
    centred: Array, ridges: list[float], weights: Array | None = None
) -> Iterator[White]:
    """Whiten centred rows at each ridge from one eigendecomposition of the total scatter.

    About ``9 D^3`` and ``2 N D^2`` once, then ``N D`` a ridge: cheaper than a factor for each
    of several ridges when N is well above D.
    """
    scaled = centred if weights is None else centred * np.sqrt(weights)[:, None]
    values, vectors = linalg.eigh_descending(scaled.T @ scaled)
    turned = centred @ vectors
    for ridge in ridges:
        shrunk = 1 / np.sqrt(np.maximum(values, 0.0) + ridge)
        rows = turned * shrunk
        yield White(rows, vectors * shrunk, np.einsum("ij,ij->i", rows, rows))


def solve(
    white: White,
    means: Array,
    groups: NDArray[np.intp],
    counts: Array,
    weights: Array | None = None,
) -> SharedSolution:
    """Solve one partition, given the group means of the whitened rows: ``2 N D K + O(N K^2)``.

    Raises
    ------
    SingularMatrixError
        When the groups take nearly all of the scatter in some direction, so that the remainder is
        rounding.
    """
    root = np.sqrt(counts)
    overlap = means @ means.T  # H = M A_T M'
    remainder = np.eye(len(counts)) - overlap * np.outer(root, root)
    if np.linalg.eigvalsh(remainder)[0] < SMALLEST_REMAINDER:
        raise SingularMatrixError("the groups leave too little of the total scatter")
    factor = linalg.cholesky(remainder)
    contrast = np.vstack([np.full(len(counts) - 1, -1.0), np.eye(len(counts) - 1)])
    half = linalg.lower_solve(factor, contrast / root[:, None])
    mix = root[:, None] * linalg.lower_solve(factor, half, transposed=True)
    gram = contrast.T @ overlap @ mix
    projected = white.rows @ means.T  # F = M A_T (x - c)
    own = projected[np.arange(len(groups)), groups]
    residuals = projected - overlap[groups]
    within = linalg.lower_solve(factor, (residuals * root).T)
    leverage = white.norms - 2 * own + np.diag(overlap)[groups]
    leverage += np.einsum("ji,ji->i", within, within)
    gap = 1 - inflation(counts[groups], weights) * leverage
    return SharedSolution(
        gram=(gram + gram.T) / 2,
        coordinates=(projected - overlap[0]) @ mix,
        residuals=residuals @ mix,
        origin=overlap[0] @ mix,
        directions=white.back @ (means.T @ mix),
        apart=(leverage, gap),
    )
