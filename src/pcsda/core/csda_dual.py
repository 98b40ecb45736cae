"""CSDA from inner products alone, for kernels and for rows with D > N (MATH 13).

All solvers start from the Gram matrix of the rows about the positive mean. If only a few axes are
wanted, a block Krylov method finds them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from . import csda_solvers, krylov, linalg
from .csda_solvers import Forms
from .direct import keep_leading
from .kernel_matrix import EPSILON, FEATURE_TOLERANCE
from .linalg import Array, Ints
from .loo import Leave
from .scatter import GroupScatter
from .solvers import Projection, no_direction
from .spread import centred, ridge_of
from .subspace import Subspace

# Largest acceptable rounding error of the inner products, as a share of the ridge.
COARSE = 1e-6


def is_coarse(trace: float, ridge: float) -> bool:
    """Return whether the rounding error of a Gram matrix is too large for a ridge.

    `trace` is the trace of the Gram matrix.
    """
    return EPSILON * trace > COARSE * ridge


@dataclass(frozen=True)
class Centred:
    """Inner products of rows about the positive mean, scaled by the square roots of the weights.

    Attributes
    ----------
    matrix : array of shape (N, N)
    groups : array of shape (N,)
        0 for positives, 1 for negatives.
    ridge : float
    root : array of shape (N,)
        Square roots of the weights.
    near : array of shape (N_n, d) or None
        Starting point of the search: the axes for a larger set that contains these rows, as
        coefficients of the negatives.
    """

    matrix: Array
    groups: Ints
    ridge: float
    root: Array
    near: Array | None = None

    @property
    def positive(self) -> Ints:
        """Row numbers of the positives."""
        return np.flatnonzero(self.groups == 0)

    @property
    def negative(self) -> Ints:
        """Row numbers of the negatives."""
        return np.flatnonzero(self.groups)

    @property
    def counts(self) -> Array:
        """Total weights of the positives and of the negatives; without weights, N_p and N_n."""
        return np.bincount(self.groups, self.root**2).astype(np.float64)


@dataclass(frozen=True)
class Solved:
    """Axes whose components are coefficients of the rows in :class:`Centred`.

    For the trace ratio, `features` holds one row of features per row of the data, and `directions`
    holds the axes as combinations of the features. Other solvers leave both None.
    """

    axes: Projection
    features: Array | None = None
    directions: Array | None = None


def eigen(rows: Centred, count: int) -> Solved:
    """Solve ``S_n w = lambda (S_p + eps I) w`` exactly for the `count` leading axes.

    Let ``H = (K_pp + eps I)^-1 K_pn`` and ``B = K_nn - K_np H``, where the indices p and n denote
    the blocks of the matrix K for positives and negatives. An eigenpair (beta, q) of B gives an
    axis with ``lambda = beta / eps``. Its coefficients are q on the negatives and ``-H q`` on the
    positives. Cost: ``N_p^3/3 + N_p^2 N_n``, plus about twenty products of the matrix with d + 6
    vectors, or an eigenproblem of size N_n if many axes are wanted.
    """
    matrix, positive, negative = rows.matrix, rows.positive, rows.negative
    factor = linalg.cholesky(matrix[np.ix_(positive, positive)], rows.ridge)
    half = linalg.lower_solve(factor, matrix[np.ix_(positive, negative)])
    H = linalg.lower_solve(factor, half, transposed=True)

    def on_rows(q: Array) -> Array:
        full = np.empty((len(matrix), q.shape[1]))
        full[negative], full[positive] = q, -(H @ q)
        return full

    vectors = None
    if krylov.pays(len(negative), count):
        vectors = krylov.top_eigenvectors(
            lambda q: (matrix @ on_rows(q))[negative], len(negative), count, rows.near
        )
    if vectors is None:
        inner = matrix[np.ix_(negative, negative)] - half.T @ half
        vectors = linalg.top_eigenvectors((inner + inner.T) / 2, count)
    image = matrix @ on_rows(vectors)
    values = np.einsum("ij,ij->j", vectors, image[negative])
    noise = FEATURE_TOLERANCE * float(matrix.diagonal().max())
    rank = int(np.sum(values > max(noise, EPSILON * len(matrix) * values[0])))
    if rank == 0:
        raise no_direction()
    scale = np.sqrt(rows.ridge * values[:rank])
    coefficients = on_rows(vectors[:, :rank]) / scale
    return Solved(Projection(coefficients.T, values[:rank] / rows.ridge, rank))


def trace_ratio(rows: Centred, count: int, learn_reference: bool) -> Solved:
    """Maximise the trace ratio of :func:`csda_solvers.trace_ratio`, given only inner products.

    The features of the rows come from a pivoted Cholesky factor, in ``N^3/3`` operations. All steps
    of the ascent share one growing basis, built by about twenty products with d + 6 vectors.
    """
    features, pivots, triangle, _ = linalg.feature_factor(rows.matrix.copy(), FEATURE_TOLERANCE)
    ratio = Ratio.of(features, rows.groups, rows.root, rows.ridge, learn_reference)
    found = ratio.solve(count)
    coefficients = np.zeros((len(features), len(found.eigenvalues)))
    coefficients[pivots] = linalg.lower_solve(triangle, found.components.T, transposed=True)
    return Solved(replace(found, components=coefficients.T), features, found.components.T)


@dataclass(frozen=True)
class Ratio:
    """The problem of maximising the trace ratio, with rows given by their features.

    Attributes
    ----------
    parts : list of two arrays
        Features of the negatives and of the positives about the positive mean, scaled by the square
        roots of the weights.
    gap : array of shape (r, 1) or None
        Mean of the negatives about the positive mean. None if the reference vector is not learned,
        or if both means are equal.
    counts : array of shape (2,)
        Total weights of the positives and of the negatives.
    ridge : float
    near : array of shape (r, d) or None
        Starting point of the search: the axes for a larger set that contains these rows.
    """

    parts: list[Array]
    gap: Array | None
    counts: Array
    ridge: float
    near: Array | None = None

    @classmethod
    def of(
        cls,
        features: Array,
        groups: Ints,
        root: Array,
        ridge: float,
        learn_reference: bool,
        near: Array | None = None,
    ) -> Ratio:
        """Set up the problem for features about the positive mean, scaled by `root`.

        `root` holds the square roots of the weights.
        """
        parts = [features[groups > 0], features[groups == 0]]
        counts = np.bincount(groups, root**2).astype(np.float64)
        gap = None
        if learn_reference:
            shift = (root[groups > 0] @ parts[0] / counts[1])[:, None]
            same = linalg.SAME_POINT**2 * float(np.einsum("ij,ij->", features, features))
            gap = shift if float(np.sum(shift**2)) > same else None
        return cls(parts, gap, counts, ridge, near)

    def solve(self, count: int) -> Projection:
        """Find the `count` best axes, as combinations of the features."""
        found = self._leading(count) or self._dense(count)
        return found if self.gap is not None else replace(found, step=0.0)

    def _dense(self, count: int) -> Projection:
        """Find the `count` best axes by dense algebra, from scatter matrices of the features."""
        numerator, denominator = (part.T @ part for part in self.parts)
        values: Array = np.linalg.eigvalsh(numerator)[::-1].astype(np.float64)
        rank = linalg.numerical_rank(values, len(numerator))
        if rank == 0:
            raise no_direction()
        squared = None if self.gap is None else self.gap @ self.gap.T
        forms = Forms(numerator, denominator, squared, self.counts)
        found = csda_solvers.settled(forms, self.ridge, min(count, rank))
        return Projection(found.directions.T, found.quotients, rank, step=found.step)

    def _images(self, block: Array) -> list[Array]:
        moved = [part.T @ (part @ block) for part in self.parts]
        return moved if self.gap is None else [*moved, self.gap @ (self.gap.T @ block)]

    def _forms(self, small: list[Array]) -> Forms:
        return Forms(small[0], small[1], None if self.gap is None else small[2], self.counts)

    def _leading(self, count: int) -> Projection | None:
        """Find the `count` best axes in a small basis, if there are many features.

        Returns None if dense algebra is faster or if a small basis is not accurate enough.
        """
        size = self.parts[0].shape[1]
        if not krylov.pays(size, count) or not _has_rank(self.parts[0], count):
            return None
        state = {"ratio": 0.0, "step": 0.0}

        def solve(small: list[Array]) -> tuple[Array, list[float]]:
            forms = self._forms(small)
            found = csda_solvers.settled(forms, self.ridge, count, state["ratio"])
            state.update(ratio=found.ratio, step=found.step)
            mixture = [1.0, -found.ratio]
            if self.gap is not None:
                mixture.append(forms.pull(found.ratio, found.step))
            form = forms.at(found.ratio, found.step)
            turn = linalg.top_eigenvectors(form, min(count + krylov.BESIDE, len(form)))
            return turn, mixture

        W = krylov.leading(self._images, solve, size, count, self.near)
        if W is None:
            return None
        forms = self._forms([W.T @ image for image in self._images(W)])
        top, bottom = forms.ratio(np.eye(count), self.ridge, state["step"])
        order = np.argsort(-top / bottom, kind="stable")
        return Projection(W[:, order].T, (top / bottom)[order], count, step=state["step"])


def _has_rank(part: Array, count: int) -> bool:
    """Return whether rows span at least `count` dimensions, judged by a random projection."""
    sketch = part @ np.random.default_rng(0).standard_normal((part.shape[1], count))
    values = np.square(np.linalg.svd(sketch, compute_uv=False), dtype=np.float64)
    return linalg.numerical_rank(values, len(part)) == count


def subspace_of(rows: Centred, solved: Solved, n_components: int | None, most: int) -> Subspace:
    """Return the subspace, given axes as coefficients of weighted rows about the positive mean.

    The coefficients of the result apply to the rows themselves, without weights or centring. The
    `origin` of the result is zero, and the caller must set it.
    """
    kept = keep_leading(solved.axes, n_components, most)
    a = kept.components.T
    image = rows.matrix @ a
    on_rows = rows.root[:, None] * a
    positive, share = rows.positive, rows.root[rows.positive] ** 2 / rows.counts[0]
    on_rows[positive] -= np.outer(share, on_rows.sum(axis=0))
    return _subspace(on_rows, image / rows.root[:, None], a.T @ image, rows, kept)


@dataclass(frozen=True)
class FeaturePart:
    """A factor that maximises the trace ratio for a subset of the rows of a kernel matrix.

    The features of the subset come from the factorised kernel matrix of all rows. The search starts
    from `near`, the axes for all rows. The coefficients of the result apply to features, so no
    second factorisation is needed.
    """

    features: Array
    regularization: float
    learn_reference: bool
    weights: Array | None
    near: Array

    def solve(
        self, groups: Ints, n_components: int | None = None, *, leave_out: Leave | None = None
    ) -> Subspace:
        """Maximise the trace ratio; `groups` holds 0 for positives and 1 for negatives."""
        _, _, variance = centred(self.features, self.weights)
        ridge = ridge_of(variance, self.regularization)
        root = np.ones(len(groups)) if self.weights is None else np.sqrt(self.weights)
        share = np.where(groups == 0, root**2, 0.0)
        mean: Array = share @ self.features / share.sum()
        scaled = (self.features - mean) * root[:, None]
        ratio = Ratio.of(scaled, groups, root, ridge, self.learn_reference, self.near)
        most = min(int(np.sum(groups > 0)), len(groups) - 1)
        kept = keep_leading(ratio.solve(min(n_components or most, most)), n_components, most)
        W = kept.components.T
        rows = Centred(np.empty((0, 0)), groups, ridge, root)  # no matrix is needed
        found = _subspace(W, scaled @ W / root[:, None], W.T @ W, rows, kept)
        return replace(found, origin=mean @ W)


def _subspace(
    coefficients: Array, z: Array, inside: Array, rows: Centred, kept: Projection
) -> Subspace:
    """Build a subspace from its axes.

    `coefficients` and `kept` describe the axes, `z` holds the coordinates of the rows on the axes,
    and `inside` holds the inner products of the axes with each other.
    """
    weights = None if np.all(rows.root == 1) else rows.root**2
    projected = GroupScatter.from_samples(z, rows.groups, 2, weights)
    return Subspace(
        coefficients,
        np.zeros(len(kept.eigenvalues)),
        kept.eigenvalues,
        kept.rank,
        projected,
        projected.positive + rows.ridge * (inside + inside.T) / 2,
        single_negatives=True,
        reference=-kept.step * projected.delta[0] if kept.step else None,
    )
