"""Density models of the two classes in the subspace, and their log ratio (MATH 9).

The positive class is a distribution about zero. The densities differ in their model of the
negatives:

- `Marginal`: one Gaussian about zero, the published model with the subclass means integrated out;
- `Mixture`: a distribution about each subclass mean;
- `Posterior`: one Gaussian or t distribution about the centre of all labels in a bank;
- `Blend`: the mixture, and a second model that treats all negatives as one cloud along Fisher's
  discriminant axis of the subspace (the model for K = 1). The mixture resolves more detail; the
  cloud has fewer parameters.

A log ratio is ln p(z | positive) - ln p(z | negative). Each density provides one or more log
ratios, called *views* and stacked along the first axis. The calibration weights the views and adds
an offset. To add a density, write a class in a module of its own and enter it in `DENSITIES`.
Other modules import all densities from here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn, Protocol

from .blend import Blend
from .covariance import Moments
from .linalg import Array, Floats, Ints, TooFewRowsError
from .mixture import Marginal, Mixture, Posterior, fitted_fields

__all__ = [
    "DENSITIES",
    "Blend",
    "Density",
    "Estimate",
    "Marginal",
    "Mixture",
    "NoDensity",
    "Posterior",
    "fit_density",
    "fitted_fields",
]


class Density(Protocol):
    """The interface of all densities."""

    @property
    def base(self) -> Mixture:
        """The model of both classes: covariances, centres and their weights.

        It covers all axes; if densities have axes of their own, only the leading ones.
        """

    @property
    def bases(self) -> tuple[Mixture, ...]:
        """Models of both classes which together cover all axes, in the order of the axes."""

    @property
    def n_views(self) -> int:
        """Number of views, that is, log ratios."""

    @property
    def products(self) -> Array:
        """Matrix by which rows are multiplied to score them; this product is most of the work."""

    def views_of_products(self, products: Array) -> Array:
        """Return views (n_views, n) of rows, or (n_views,) of one row.

        The argument holds the rows times the matrix :attr:`products`.
        """

    def views(self, z: Floats) -> Array:
        """Return views of rows, shape (n_views, n)."""

    def path(self, z: Array) -> Array:
        """Return views based on the first 1, 2, ..., d axes, shape (n_views, n, d)."""

    def views_of_sets(self, z: Array, sets: Ints, n_sets: int) -> Array:
        """Return views (n_views, n_sets) of sets of rows.

        `sets` holds the number of each row's set. All rows of a set come from the same source, such
        as one person.
        """

    def margin(self, axes: Sequence[int]) -> Density:
        """Return the marginal density on a subset of the axes."""


@dataclass(frozen=True)
class NoDensity:
    """Placeholder used when there are too few samples to determine a density (MATH 12).

    The axes and the ranking need no density. Any use of a density raises a `TooFewRowsError` with
    the reason `why`.
    """

    why: str

    n_views: ClassVar[int] = 1

    def _refuse(self, *_: Any) -> NoReturn:
        raise TooFewRowsError(self.why)

    @property
    def base(self) -> Mixture:
        """Raise a `TooFewRowsError`, because there is no density."""
        self._refuse()

    @property
    def bases(self) -> tuple[Mixture, ...]:
        """Raise a `TooFewRowsError`, because there is no density."""
        self._refuse()

    @property
    def products(self) -> Array:
        """Raise a `TooFewRowsError`, because there is no density."""
        self._refuse()

    views = views_of_products = path = views_of_sets = _refuse
    left_out_views = with_tails = margin = _refuse


# Densities that can be estimated; `left_out_views` and `with_tails` belong to the estimation.
Estimate = Mixture | Blend | NoDensity
DENSITIES: dict[str, type[Mixture] | type[Blend]] = {
    "blend": Blend,
    "mixture": Mixture,
    "marginal": Marginal,
}


def fit_density(moments: Moments, *, negatives: str, shrinkage: float) -> Mixture | Blend:
    """Estimate the densities of both classes, with Gaussian tails.

    `negatives` is a key of `DENSITIES`, and `shrinkage` is the prior strength nu. The covariances
    of the positives and of the subclasses are both ``(S + nu target) / (n + nu)``.

    Raises
    ------
    SingularMatrixError
        If a covariance is singular; the message names the class.
    """
    return DENSITIES[negatives].fit(moments, shrinkage)
