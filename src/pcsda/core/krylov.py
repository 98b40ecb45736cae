"""Find the leading directions of large symmetric problems by products with blocks of vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from scipy import linalg as scipy_linalg

from . import linalg
from .linalg import Array

# A solution has converged if its residual is at most this share of its image. Models of folds serve
# only to fit a slope and an offset, which need fewer digits.
SETTLED, SETTLED_FOLD = 1e-10, 1e-3
# Number of extra directions, which speed up the convergence of the last ones. If the basis has more
# than BLOCKS blocks and fills more than the share SHARE of the space, dense algebra is faster.
BESIDE, BLOCKS, SHARE = 6, 30, 0.25
# Number of blocks added between two solutions in the basis; a fold is nearly solved at the start.
TURN, TURN_FOLD = 3, 2
# Problems of up to SMALL rows, or of up to FEW rows per direction, are solved densely.
SMALL, FEW = 400, 12

# Function of a block of vectors: returns its image under each quadratic form of a problem.
Images = Callable[[Array], Sequence[Array]]
# Function of the forms in a basis: returns directions, best first, and the weights of the forms in
# the problem that these directions solve.
Solve = Callable[[list[Array]], tuple[Array, Sequence[float]]]


def pays(size: int, count: int) -> bool:
    """Return whether :func:`leading` is faster than dense algebra.

    `size` is the dimension of the problem, and `count` the number of directions to find.
    """
    return size > SMALL and size > FEW * (count + BESIDE)


def leading(
    images: Images, solve: Solve, size: int, count: int, near: Array | None = None
) -> Array | None:
    """Find the `count` leading orthonormal directions of a problem, as columns.

    The problem combines symmetric forms that are available only as products with blocks of vectors.
    `images` computes these products, and `solve` solves the problem in a small basis. The basis is
    orthonormal and grows block by block from the residual (block Krylov with full
    reorthogonalisation). Cost: ten to thirty products with ``count + 6`` vectors, or more if many
    directions are nearly as good as the last one. Returns None if the basis becomes too large
    before the solution is found.

    The search may start from `near`, the axes of a similar problem, which saves most of the steps.
    A fold starts from the axes for all rows, and the search then stops at the looser tolerance
    `SETTLED_FOLD`.
    """
    rng = np.random.default_rng(0)  # any start works; a fixed one is reproducible
    start = rng.standard_normal((size, count + BESIDE))
    if near is not None:
        start[:, : near.shape[1]] = near[:, : start.shape[1]]
    settled, turn_after = (SETTLED, TURN) if near is None else (SETTLED_FOLD, TURN_FOLD)
    fresh = np.linalg.qr(start)[0]
    most = min(max(BLOCKS * fresh.shape[1], int(SHARE * size)), size)
    basis, used = np.empty((size, most), order="F"), 0
    moved: list[Array] = []
    forms: list[Array] = []
    mixture: Sequence[float] = [1.0]  # until there is a solution, use the first form
    number = 0
    while 0 < fresh.shape[1] <= most - used:
        number, added = number + 1, images(fresh)
        moved = moved or [np.empty((size, most), order="F") for _ in added]
        forms = forms or [np.empty((0, 0)) for _ in added]
        block = slice(used, used + fresh.shape[1])
        used, basis[:, block] = block.stop, fresh
        for part, new in zip(moved, added, strict=True):
            part[:, block] = new
        known = basis[:, :used]
        forms = [_extended(form, known.T @ new) for form, new in zip(forms, added, strict=True)]
        if number % turn_after:  # the last image extends the basis as well as the residual would
            fresh = _outside(known, _mixed(mixture, added))
            continue
        turn, mixture = solve(forms)
        solution = known @ turn
        image = _mixed(mixture, [part[:, :used] @ turn for part in moved])
        left = image - solution @ (solution.T @ image)
        if np.linalg.norm(left[:, :count]) <= settled * np.linalg.norm(image):
            return solution[:, :count]
        fresh = _outside(known, left)
    return None


def _mixed(mixture: Sequence[float], parts: Sequence[Array]) -> Array:
    """Return the sum of the parts, one for each quadratic form, weighted by `mixture`."""
    total = mixture[0] * parts[0]
    for weight, part in zip(mixture[1:], parts[1:], strict=False):
        total += weight * part
    return total


def _extended(form: Array, columns: Array) -> Array:
    """Extend a symmetric form with new columns and, by symmetry, the matching rows."""
    size = len(form)
    corner = columns[size:]
    return np.block([[form, columns[:size]], [columns[:size].T, (corner + corner.T) / 2]])


def _outside(basis: Array, block: Array) -> Array:
    """Return orthonormal columns that span the part of `block` orthogonal to `basis`."""
    lengths = np.linalg.norm(block, axis=0)
    block = block / np.where(lengths > 0, lengths, 1.0)
    for _ in range(2):  # a single pass would leave rounding errors
        block = block - basis @ (basis.T @ block)
    outside, sizes, _ = scipy_linalg.qr(
        block, mode="economic", pivoting=True, overwrite_a=True, check_finite=False
    )
    kept: Array = outside[:, np.abs(sizes.diagonal()) > 1e-10]
    return kept


def top_eigenvectors(
    product: Callable[[Array], Array], size: int, count: int, near: Array | None = None
) -> Array | None:
    """Find the `count` leading eigenvectors of a symmetric matrix, as :func:`leading` does.

    `product` returns the product of the matrix with a block of vectors.
    """

    def solve(forms: list[Array]) -> tuple[Array, Sequence[float]]:
        return linalg.top_eigenvectors(forms[0], min(count + BESIDE, len(forms[0]))), [1.0]

    return leading(lambda block: [product(block)], solve, size, count, near)
