"""Covariances of the two classes, shrunk toward a common covariance (MATH 9)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from . import linalg
from .linalg import Array, SingularMatrixError
from .scatter import GroupScatter

# If the positives' variance is below this share of the negatives' variance, it is rounding error.
COLLAPSED = 1e-14
# Cholesky pivots of a covariance below this share of its diagonal are rounding errors.
COVARIANCE_TOLERANCE = 1e-13


@dataclass(frozen=True)
class Moments:
    """Statistics from which the densities are estimated.

    Attributes
    ----------
    scatter : GroupScatter
        Statistics of the groups in the subspace. The scatter matrices come from the training rows
        themselves or from left-out rows.
    target : array of shape (d, d)
        Pooled covariance within groups, toward which the covariances are shrunk.
    n_positive, n_within : float
        Effective numbers of positives and negatives behind the scatter matrices: their total weight
        minus the number of estimated means.
    ridged : array of shape (d, d) or None
        The criterion's denominator on the axes, ``W'(S_I + eps I)W``; None if it is not used.
    """

    scatter: GroupScatter
    target: Array
    n_positive: float
    n_within: float
    ridged: Array | None = None

    def positive_covariance(self, nu: float) -> Array:
        """Return the covariance of the positives, shrunk with prior strength `nu`.

        A singular covariance raises a `SingularMatrixError`.
        """
        rounding = COLLAPSED * self.scatter.phi_o.diagonal()
        return self._shrunk(self.scatter.positive, self.n_positive, nu, "positive", rounding)

    def within_covariance(self, nu: float, which: str = "negative") -> Array:
        """Return the covariance of the negatives about their subclass means, shrunk with `nu`.

        A singular covariance raises a `SingularMatrixError` that names the class `which`.
        """
        return self._shrunk(self.scatter.within, self.n_within, nu, which)

    def _shrunk(
        self, scatter: Array, count: float, nu: float, which: str, rounding: Array | float = 0.0
    ) -> Array:
        """Return the shrunk covariance, ``(scatter + nu target) / (count + nu)``.

        Raises an error that names the class `which` if the covariance is singular or if a variance
        does not exceed `rounding`.
        """
        if count + nu <= 0:
            raise SingularMatrixError(f"no sample shows the spread of the {which} class")
        covariance = (scatter + nu * self.target) / (count + nu)
        variances = covariance.diagonal()
        if np.any((variances != 0) & (variances <= rounding)):  # rounding errors may be negative
            raise SingularMatrixError(
                f"the {which} class is a point in the subspace, which can happen without "
                "regularization"
            )
        require_regular(covariance, which)
        return covariance


def require_regular(covariance: Array, which: str) -> None:
    """Raise an error that names the class `which` if its covariance is singular up to rounding.

    The check does not depend on the units of the axes.
    """
    try:
        variances = covariance.diagonal()
        if not (variances > 0).all():
            raise SingularMatrixError("an axis has no variance")
        pivots = linalg.cholesky(covariance).diagonal() ** 2 / variances
        if (pivots <= COVARIANCE_TOLERANCE * len(covariance)).any():
            raise SingularMatrixError("the covariance is singular to working precision")
    except SingularMatrixError as error:
        raise SingularMatrixError(
            f"the covariance of the {which} class is singular in the subspace"
        ) from error
