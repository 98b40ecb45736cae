"""Two densities in the subspace and their log ratio (MATH 9).

The positive class is a Gaussian about zero. The negative class is either one Gaussian about zero
(`marginal`, the published model with the subclass means integrated out) or a mixture that keeps the
subclass means. Both have one form here: a marginal is a mixture with a single centre at zero.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import linalg
from .linalg import Array, SingularMatrixError
from .scatter import GroupScatter

LOG_2PI = float(np.log(2 * np.pi))
# Where no residual at all was seen, the spread that remains, as a share of the ridged scatter.
RESIDUAL_FLOOR = 1e-8
# Below this share of the variance of the negatives, that of the positives is rounding.
COLLAPSED = 1e-14


@dataclass(frozen=True)
class Moments:
    """What the densities are estimated from.

    Attributes
    ----------
    scatter : GroupScatter
        Statistics in the subspace: resubstituted, or with left-out scatter matrices.
    target : array of shape (d, d)
        Pooled within covariance that small samples are shrunk toward.
    n_positive, n_within : float
        How many positives and negatives (total weight, less the means spent) stand behind the
        scatter matrices.
    """

    scatter: GroupScatter
    target: Array
    n_positive: float
    n_within: float


@dataclass(frozen=True)
class Density:
    """The fitted pair of densities.

    Attributes
    ----------
    positive : array of shape (d, d)
        Covariance of the positive class.
    negative : array of shape (d, d)
        Covariance of the negative class about its centres.
    centres : array of shape (C, d)
        The subclass means, or one row of zeros for the marginal density.
    log_weights : array of shape (C,)
    within : array of shape (d, d) or None
        Covariance of samples of one subclass, for trials of several samples. None where every
        negative is a subclass of its own, so that samples of a trial are independent.
    positive_strength, negative_strength : float
        Number of samples behind each covariance, prior strength included.
    subclasses : array of shape (K, d)
        The subclass means, also where the density of the negatives has no use for them.
    """

    positive: Array
    negative: Array
    centres: Array
    log_weights: Array
    within: Array | None
    positive_strength: float
    negative_strength: float
    subclasses: Array

    def __getstate__(self) -> dict[str, Any]:
        # Copies and files keep what was fitted, not what was made of it on the way.
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def is_mixture(self) -> bool:
        """Whether the subclass means are kept."""
        return bool(np.any(self.centres))

    @cached_property
    def white(self) -> tuple[Array, Array]:
        """Whitening matrices of the positive and of the negative covariance."""
        return whitening(self.positive), whitening(self.negative)

    @cached_property
    def products(self) -> tuple[Array, Array, float]:
        """Columns that :meth:`log_ratio` multiplies rows with, and what it adds; made once."""
        positive, negative = self.white
        at_centres = self.centres @ negative.T
        weights = self.log_weights - 0.5 * np.einsum("ij,ij->i", at_centres, at_centres)
        constant = log_volume(positive) - log_volume(negative)
        columns = np.hstack([positive.T, negative.T, (at_centres @ negative).T])
        return columns, weights, constant

    def log_ratio(self, z: Array) -> Array:
        """Log ratio ln p(z | positive) - ln p(z | negative) of every row."""
        return self.log_ratio_of_products(z @ self.products[0])

    def log_ratio_of_products(self, products: Array) -> Array:
        """Complete :meth:`log_ratio` of rows, or of a single row, from their `products`."""
        _, weights, constant = self.products
        size = len(self.positive)
        inside, outside = products[..., :size], products[..., size : 2 * size]
        ratio: Array = np.einsum("...j,...j->...", outside, outside)
        ratio -= np.einsum("...j,...j->...", inside, inside)
        ratio *= 0.5
        ratio += constant
        ratio -= log_sum_exp(products[..., 2 * size :] + weights)
        return ratio

    def log_ratio_path(self, z: Array) -> Array:
        """Log ratio of every leading d at once, shape (n, d): column j uses axes 0..j.

        A leading block of a covariance has the leading block of its Cholesky factor, so quadratic
        forms and log determinants of all d are running sums.
        """
        positive, negative = self.white
        inside = _running_log_density(z @ positive.T, positive)
        offsets = (z @ negative.T)[:, None, :] - (self.centres @ negative.T)[None, :, :]
        outside = _running_log_density(offsets, negative) + self.log_weights[None, :, None]
        return inside - log_sum_exp(np.swapaxes(outside, 1, 2))

    def log_ratio_of_sets(self, z: Array, sets: NDArray[np.intp], n_sets: int) -> Array:
        """Log ratio of each set of rows seen as samples of one origin, numbered by `sets`.

        Positives are independent given the class. Negatives of a set share one unknown subclass:
        its mean is integrated out, eq. (P_Sk_Prod), or runs over the mixture's centres.
        """
        positive, negative = self.white
        inside = _sum_by(log_density(z @ positive.T, positive), sets, n_sets)
        if self.is_mixture or self.within is None:
            rows, centres = z @ negative.T, self.centres @ negative.T
            of_centres = np.zeros((n_sets, len(centres)))
            step = max(1, linalg.BLOCK_BYTES // (8 * centres.size))
            for start in range(0, len(z), step):
                offsets = rows[start : start + step, None, :] - centres
                np.add.at(of_centres, sets[start : start + step], log_density(offsets, negative))
            return inside - log_sum_exp(of_centres + self.log_weights)
        outside = marginal_log_likelihood(z, sets, n_sets, self.negative - self.within, self.within)
        # One sample alone is scored by the density itself, whatever was clipped from it.
        single = np.bincount(sets, minlength=n_sets) == 1
        rows = single[sets]
        outside[sets[rows]] = inside[sets[rows]] - self.log_ratio(z[rows])
        return inside - outside


def fit_density(moments: Moments, *, negatives: str, shrinkage: float) -> Density:
    """Estimate both densities.

    `shrinkage` is the prior strength nu: ``(S + nu target) / (n + nu)`` for the covariance of the
    positives and for that of the subclasses. With nu = 0 these are eq. (Phi_p) and eq. (Phi_w).

    Raises
    ------
    SingularMatrixError
        When a covariance is singular, which names the class.
    """
    scatter, target = moments.scatter, moments.target
    positive_strength = moments.n_positive + shrinkage
    within_strength = moments.n_within + shrinkage
    positive = _shrunk(scatter.positive, target, shrinkage, positive_strength, "positive")
    if np.any(positive.diagonal() <= COLLAPSED * scatter.phi_o.diagonal()):
        raise SingularMatrixError(
            "the positive class is a point in the subspace, as without regularization it may be"
        )
    within = None
    if within_strength > 0 and (np.any(scatter.within) or shrinkage > 0):
        within = (scatter.within + shrinkage * target) / within_strength
    centres = scatter.means[1:] - scatter.means[0]
    if negatives == "mixture":
        within = _shrunk(scatter.within, target, shrinkage, within_strength, "negative")
        weights = scatter.counts[1:] / scatter.n_negative
        return Density(
            positive,
            within,
            centres,
            np.log(weights),
            within,
            positive_strength,
            within_strength,
            centres,
        )
    marginal = scatter.phi_o
    _require_regular(marginal, "negative")
    return Density(
        positive,
        marginal,
        np.zeros((1, len(marginal))),
        np.zeros(1),
        within,
        positive_strength,
        scatter.n_negative,
        centres,
    )


def _shrunk(scatter: Array, target: Array, nu: float, strength: float, which: str) -> Array:
    if strength <= 0:
        raise SingularMatrixError(f"no sample shows the spread of the {which} class")
    covariance = (scatter + nu * target) / strength
    _require_regular(covariance, which)
    return covariance


def _require_regular(covariance: Array, which: str) -> None:
    try:
        linalg.cholesky(covariance)
    except SingularMatrixError as error:
        raise SingularMatrixError(
            f"the covariance of the {which} class is singular in the subspace"
        ) from error


def whitening(covariance: Array) -> Array:
    """Inverse of the lower Cholesky factor: rows times its transpose have unit covariance."""
    return np.tril(linalg.triangular_inverse(linalg.cholesky(covariance)))


def log_volume(white: Array) -> float:
    """Minus half the log determinant of the covariance that `white` belongs to."""
    return float(np.log(white.diagonal()).sum())


def log_sum_exp(values: Array, axis: int = -1) -> Array:
    """Log of the summed exponentials over an axis; not all of them may be zero."""
    top: Array = values.max(axis=axis, keepdims=True)
    result = top.squeeze(axis)
    if values.shape[axis] > 1:
        shares = values - top
        result += np.log(np.exp(shares, out=shares).sum(axis=axis))
    return result


def log_density(whitened: Array, white: Array) -> Array:
    """Log density at whitened offsets, over the last axis."""
    square = np.einsum("...j,...j->...", whitened, whitened)
    result: Array = log_volume(white) - 0.5 * (square + white.shape[0] * LOG_2PI)
    return result


def _running_log_density(whitened: Array, white: Array) -> Array:
    """Log density of every leading dimension, along the last axis."""
    steps = np.log(white.diagonal()) - 0.5 * (whitened**2 + LOG_2PI)
    running: Array = np.cumsum(steps, axis=-1)
    return running


def _sum_by(values: Array, sets: NDArray[np.intp], n_sets: int) -> Array:
    total = np.zeros((n_sets, *values.shape[1:]))
    np.add.at(total, sets, values)
    return total


def marginal_log_likelihood(
    z: Array, sets: NDArray[np.intp], n_sets: int, between: Array, within: Array
) -> Array:
    """Log likelihood of sets of samples that share an unknown mean, eq. (P_Sk_Prod).

    The mean of a set is drawn from N(0, `between`), its samples from N(mean, `within`); `between`
    is clipped to be positive semi-definite relative to `within`. One eigendecomposition serves
    sets of every size.
    """
    sizes = np.bincount(sets, minlength=n_sets).astype(np.float64)
    white, spread = _between_spectrum(between, within)
    coordinates = z @ white.T
    means = _sum_by(coordinates, sets, n_sets) / np.maximum(sizes, 1)[:, None]
    inner = _sum_by(np.einsum("ij,ij->i", coordinates, coordinates), sets, n_sets)
    inner -= sizes * np.einsum("ij,ij->i", means, means)
    return _set_likelihood(means, inner, sizes, spread, _half_log_det(within))


def _between_spectrum(between: Array, within: Array) -> tuple[Array, Array]:
    """Basis in which `within` is the identity and `between` is diagonal, with that diagonal."""
    white = whitening(within)
    spread, rotation = linalg.eigh_descending(white @ between @ white.T)
    return rotation.T @ white, np.maximum(spread, 0.0)


def _half_log_det(covariance: Array) -> float:
    return -log_volume(whitening(covariance))


def _set_likelihood(means: Array, inner: Array, sizes: Array, spread: Array, half: float) -> Array:
    """Eq. (P_Sk_Prod) from means and inner scatter in the basis of :func:`_between_spectrum`."""
    variance = spread + 1 / sizes[:, None]
    of_means = -0.5 * (np.log(variance) + means**2 / variance).sum(axis=1)
    width = means.shape[1]
    result: Array = (
        of_means
        - 0.5 * inner
        - 0.5 * width * np.log(sizes)
        - sizes * (half + 0.5 * width * LOG_2PI)
    )
    return result


def training_log_likelihood(scatter: GroupScatter, ridge: float = 0.0) -> float:
    """Log likelihood of the training samples, eq. (LogProb), at the estimates of the model.

    `ridge` is added to S_p and S_w before they are divided, which a singular scatter needs.
    Cost: a few factorisations of size D.
    """
    size = scatter.means.shape[1]
    eye = ridge * np.eye(size)
    phi_p = (scatter.positive + eye) / scatter.n_positive
    freedom = scatter.within_freedom
    if freedom <= 0:
        raise ValueError(
            f"the likelihood needs fewer subclasses than negatives, got {scatter.n_subclasses} "
            f"subclasses of {scatter.n_negative:g} negatives; lower n_subclasses"
        )
    phi_w = (scatter.within + eye) / freedom
    white_p = whitening(phi_p)
    inside = scatter.n_positive * (log_volume(white_p) - 0.5 * size * LOG_2PI)
    inside -= 0.5 * np.sum(white_p * (white_p @ scatter.positive))
    mean_size = scatter.n_negative / scatter.n_subclasses
    white, spread = _between_spectrum(
        scatter.between / scatter.n_subclasses - phi_w / mean_size, phi_w
    )
    inner = np.sum(white * (white @ scatter.within))
    outside = _set_likelihood(
        scatter.delta @ white.T,
        np.zeros(scatter.n_subclasses),
        scatter.counts[1:],
        spread,
        _half_log_det(phi_w),
    )
    return float(inside + outside.sum() - 0.5 * inner)


def bic(scatter: GroupScatter, ridge: float = 0.0) -> float:
    """Bayesian information criterion of the model at this partition; lower is better.

    The model has one mean and three covariances whatever K is, because the subclass means are
    integrated out, and K - 1 shares of the subclasses. Eq. (LogProb) takes the partition as given;
    here each negative also pays for its label, ``ln(n_k / N_n)``, without which the criterion
    would go on falling as a found partition gets finer.
    """
    size = scatter.means.shape[1]
    sizes = scatter.counts[1:]
    labels = sizes @ np.log(sizes / scatter.n_negative)
    parameters = size + 3 * size * (size + 1) / 2 + scatter.n_subclasses - 1
    likelihood = training_log_likelihood(scatter, ridge) + labels
    return float(parameters * np.log(scatter.counts.sum()) - 2 * likelihood)
