"""Two models of the same rows as one: a weighted mean of their log-likelihood ratios (MATH 16).

The axes of the second model are appended to those of the first, and each half of the axes keeps its
own density.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from .calibration import Calibration
from .density import Blend, Mixture
from .fit import Fitted
from .linalg import Array, Floats, Ints, Mask
from .near import Near
from .subspace import Subspace

# Densities that can be one of a pair.
Part = Mixture | Blend | Near
Number = TypeVar("Number", np.float64, np.floating)


@dataclass(frozen=True)
class Pair:
    """Two densities, each on its own axes; its views are those of the first, then of the second.

    Attributes
    ----------
    first, second : Mixture, Blend or Near
    leading : boolean array of shape (d,)
        Mask of the axes that belong to the first density. In a fitted model, they come first.
    """

    first: Part
    second: Part
    leading: Mask

    @property
    def base(self) -> Mixture:
        """The model of both classes on the axes of the first density."""
        return self.first.base

    @property
    def bases(self) -> tuple[Mixture, ...]:
        """The models of both classes on the axes of the first and of the second density."""
        return self.first.bases + self.second.bases

    @property
    def n_views(self) -> int:
        """Number of views of both densities."""
        return self.first.n_views + self.second.n_views

    @property
    def products(self) -> Array:
        """Matrix by which rows are multiplied; each density has its own rows and columns."""
        first, second = self.first.products, self.second.products
        joined = np.zeros((len(self.leading), first.shape[1] + second.shape[1]))
        joined[self.leading, : first.shape[1]] = first
        joined[~self.leading, first.shape[1] :] = second
        return joined

    def views_of_products(self, products: Array) -> Array:
        """Return views (n_views, n) of rows, or (n_views,) of one row."""
        width = self.first.products.shape[1]
        first = self.first.views_of_products(products[..., :width])
        return np.concatenate([first, self.second.views_of_products(products[..., width:])])

    def views(self, z: Floats) -> Array:
        """Return views of rows, shape (n_views, n)."""
        return np.concatenate([part.views(own) for part, own in self._parts(z)])

    def path(self, z: Array) -> Array:
        """Return views based on the first 1, 2, ..., d axes, shape (n_views, n, d).

        Before the first axis of a density, its views are zero.
        """
        counts = np.cumsum([self.leading, ~self.leading], axis=1)
        paths = [
            np.pad(part.path(own), [(0, 0), (0, 0), (1, 0)])[..., count]
            for (part, own), count in zip(self._parts(z), counts, strict=True)
        ]
        return np.concatenate(paths)

    def views_of_sets(self, z: Array, sets: Ints, n_sets: int) -> Array:
        """Return views (n_views, n_sets) of sets of rows."""
        parts = [part.views_of_sets(own, sets, n_sets) for part, own in self._parts(z)]
        return np.concatenate(parts)

    def margin(self, axes: Sequence[int]) -> Pair:
        """Return the marginal density on a subset of the axes; on no axis, a log ratio is zero."""
        leading = self.leading[list(axes)]
        place = np.where(self.leading, np.cumsum(self.leading), np.cumsum(~self.leading)) - 1
        own = place[list(axes)]
        first, second = own[leading].tolist(), own[~leading].tolist()
        return Pair(self.first.margin(first), self.second.margin(second), leading)

    def _parts(self, z: NDArray[Number]) -> Iterator[tuple[Part, NDArray[Number]]]:
        """Yield each density with the coordinates on its axes."""
        yield self.first, z[:, self.leading]
        yield self.second, z[:, ~self.leading]


def weighted_mean(first: Fitted, second: Fitted, share: float) -> Fitted:
    """Join two models of the same rows, whose ratios get the weights ``1 - share`` and `share`.

    Both must have left-out scores of the same rows. The bend of a calibration applies to a whole
    ratio and not to a part of a sum, so the joined calibration has none.
    """
    assert isinstance(first.density, Part)
    assert isinstance(second.density, Part)
    widths = len(first.subspace.eigenvalues), len(second.subspace.eigenvalues)
    density = Pair(first.density, second.density, np.repeat([True, False], widths))
    one, other = first.calibration, second.calibration
    weights = (*((1 - share) * own for own in one.weights), *(share * own for own in other.weights))
    offset = (1 - share) * one.offset + share * other.offset
    assert first.left_out is not None
    assert second.left_out is not None
    left_out = (1 - share) * one.straightened(first.left_out)
    left_out += share * other.straightened(second.left_out)
    subspace = _beside(first.subspace, second.subspace)
    return Fitted(subspace, density, Calibration(weights, offset), left_out)


def _beside(first: Subspace, second: Subspace) -> Subspace:
    """Append the axes of the second subspace to those of the first.

    The statistics of the rows, and the rows left out, stay those of the first subspace.
    """
    return replace(
        first,
        coefficients=np.hstack([first.coefficients, second.coefficients]),
        origin=np.append(first.origin, second.origin),
        eigenvalues=np.append(first.eigenvalues, second.eigenvalues),
        rank=min(first.rank, second.rank),
    )
