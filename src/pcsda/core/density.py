"""Two densities in the subspace and their log ratio (MATH 9).

The positive class is a Gaussian about zero. The negative class is either one Gaussian about zero
(`marginal`, the published model with the subclass means integrated out) or a mixture that keeps the
subclass means. Both have one form here: a marginal is a mixture with a single centre at zero.

Beyond the paper, tails may be heavier than a Gaussian's (Student's t with the same covariances),
and a `blend` looks at the negatives twice: as a mixture, and as one cloud along Fisher's axis of
the subspace, the view of K = 1. Many subclasses see more, one cloud errs less; the log ratio is a
weighted sum of the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import gammaln, psi

from . import linalg
from .linalg import Array, SingularMatrixError
from .scatter import GroupScatter

LOG_2PI = float(np.log(2 * np.pi))
# Where no residual at all was seen, the spread that remains, as a share of the ridged scatter.
RESIDUAL_FLOOR = 1e-8
# Below this share of the variance of the negatives, that of the positives is rounding.
COLLAPSED = 1e-14
# Degrees of freedom that are looked at. Beyond the lightest, tails are a Gaussian's.
HEAVIEST, LIGHTEST = 2.5, 200.0
# More distances than this are put into bins, so many to the unit of their logarithm.
TAIL_ROWS, BINS = 5000, 200


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
class Rule:
    """How densities are made of statistics.

    Attributes
    ----------
    negatives : {"blend", "mixture", "marginal"}
    shrinkage : float or None
        Prior strength of the pooled covariance; None stands for half the number of axes.
    tails : {"fitted", "gaussian"}
    weighed : bool
        Whether the views of a blend are weighed by left-out rows; else they count alike.
    """

    negatives: str = "blend"
    shrinkage: float | None = None
    tails: str = "fitted"
    weighed: bool = True

    @property
    def asks_left_out(self) -> bool:
        """Whether some of the density is fitted to left-out rows."""
        return self.negatives != "marginal" and (
            self.tails == "fitted" or (self.negatives == "blend" and self.weighed)
        )


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
    tails : tuple of float
        Degrees of freedom of both classes, as mixture and as one cloud; infinite for Gaussians.
    axis : array of shape (d,) or None
        Fisher's axis, on which a blend sees the negatives as one cloud.
    shares : tuple of float
        What the log ratios of the mixture and of the cloud count in a blend.
    offset : float or None
        What is added to a blend. With the shares it comes from a regression on left-out rows, so
        that the sum is calibrated; None where there was none.
    """

    positive: Array
    negative: Array
    centres: Array
    log_weights: Array
    within: Array | None
    positive_strength: float
    negative_strength: float
    subclasses: Array
    tails: tuple[float, float] = (np.inf, np.inf)
    axis: Array | None = None
    shares: tuple[float, float] = (1.0, 0.0)
    offset: float | None = None

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
    def cloud(self) -> Density:
        """The classes on Fisher's axis alone, with the negatives as one cloud."""
        if self.axis is None:
            raise ValueError("only a blend sees the negatives as one cloud")
        axis, shares = self.axis[:, None], np.exp(self.log_weights)
        centre = shares @ self.centres
        spread = (self.centres - centre) @ axis
        negative = axis.T @ self.negative @ axis + (shares * spread.T) @ spread
        return Density(
            axis.T @ self.positive @ axis,
            negative,
            (centre @ axis)[None],
            np.zeros(1),
            negative,
            self.positive_strength,
            self.negative_strength,
            (centre @ axis)[None],
            (self.tails[1], np.inf),
        )

    def alone(self) -> Density:
        """Return the mixture of a blend without the cloud."""
        return replace(self, axis=None, shares=(1.0, 0.0), offset=None)

    def margin(self, axes: Sequence[int]) -> Density:
        """Return the densities of some of the axes."""
        chosen, block = list(axes), np.ix_(axes, axes)
        axis = None if self.axis is None else _of_unit_size(self.axis[chosen])
        return replace(
            self if axis is not None else self.alone(),
            positive=self.positive[block],
            negative=self.negative[block],
            centres=self.centres[:, chosen],
            within=None if self.within is None else self.within[block],
            subclasses=self.subclasses[:, chosen],
            axis=axis,
        )

    @cached_property
    def _terms(self) -> tuple[Array, Array, float]:
        """Whitened centres, their squared lengths and the log ratio of the volumes."""
        positive, negative = self.white
        at_centres: Array = self.centres @ negative.T
        sizes = np.einsum("ij,ij->i", at_centres, at_centres)
        return at_centres, sizes, log_volume(positive) - log_volume(negative)

    @cached_property
    def products(self) -> Array:
        """Columns that :meth:`log_ratio` multiplies rows with; made once."""
        positive, negative = self.white
        columns = [positive.T, negative.T, (self._terms[0] @ negative).T]
        if self.axis is not None:
            columns.append(self.axis[:, None] @ self.cloud.products)
        return np.hstack(columns)

    def log_ratio(self, z: Array) -> Array:
        """Log ratio ln p(z | positive) - ln p(z | negative) of every row."""
        return self.log_ratio_of_products(z @ self.products)

    def log_ratio_of_products(self, products: Array) -> Array:
        """Complete :meth:`log_ratio` of rows, or of a single row, from their `products`."""
        size = len(self.positive)
        inside, outside = products[..., :size], products[..., size : 2 * size]
        near = products[..., 2 * size : 2 * size + len(self.centres)]
        _, sizes, volume = self._terms
        square = np.einsum("...j,...j->...", outside, outside)
        ratio: Array = np.einsum("...j,...j->...", inside, inside)
        tail = self.tails[0]
        if np.isinf(tail):
            ratio -= square
            ratio *= -0.5
            ratio -= log_sum_exp(near + (self.log_weights - 0.5 * sizes))
        else:
            distance = square[..., None] - 2 * near + sizes
            ratio = -energy(ratio, size, tail)
            ratio -= log_sum_exp(self.log_weights - energy(distance, size, tail))
        ratio += volume
        if self.axis is not None:
            ratio *= self.shares[0]
            rest = products[..., 2 * size + len(self.centres) :]
            ratio += self.shares[1] * self.cloud.log_ratio_of_products(rest)
            ratio += self.offset or 0.0
        return ratio

    def log_ratio_path(self, z: Array) -> Array:
        """Log ratio of every leading d at once, shape (n, d): column j uses axes 0..j.

        A leading block of a covariance has the leading block of its Cholesky factor, so quadratic
        forms and log determinants of all d are running sums. The offset of a blend is left out.
        """
        positive, negative = self.white
        offsets = (z @ negative.T)[:, None, :] - self._terms[0][None, :, :]
        inside, outside = np.cumsum((z @ positive.T) ** 2, axis=-1), np.cumsum(offsets**2, axis=-1)
        widths, tail = np.arange(1, len(positive) + 1), self.tails[0]
        outside = self.log_weights[None, :, None] - energy(outside, widths, tail)
        path: Array = -energy(inside, widths, tail) - log_sum_exp(outside, axis=1)
        path += np.cumsum(np.log(positive.diagonal()) - np.log(negative.diagonal()))
        if self.axis is not None:
            for width in widths:
                part = self.margin(range(width))
                if part.axis is not None:
                    on_axis = part.cloud.log_ratio(z[:, :width] @ part.axis[:, None])
                    both = np.stack([path[:, width - 1], on_axis])
                    path[:, width - 1] = np.array(part.shares) @ both
        return path

    def log_ratio_of_sets(self, z: Array, sets: NDArray[np.intp], n_sets: int) -> Array:
        """Log ratio of each set of rows seen as samples of one origin, numbered by `sets`.

        Positives are independent given the class. Negatives of a set share one unknown subclass:
        its mean is integrated out, eq. (P_Sk_Prod), or runs over the mixture's centres.
        """
        if self.axis is not None:
            views = (self.alone(), z), (self.cloud, z @ self.axis[:, None])
            both = [view.log_ratio_of_sets(rows, sets, n_sets) for view, rows in views]
            return self.shares[0] * both[0] + self.shares[1] * both[1] + (self.offset or 0.0)
        positive, negative = self.white
        tail = self.tails[0]
        inside = _sum_by(log_density(z @ positive.T, positive, tail), sets, n_sets)
        if self.is_mixture or self.within is None:
            rows, centres = z @ negative.T, self._terms[0]
            of_centres = np.zeros((n_sets, len(centres)))
            step = max(1, linalg.BLOCK_BYTES // (8 * centres.size))
            for start in range(0, len(z), step):
                offsets = rows[start : start + step, None, :] - centres
                part = log_density(offsets, negative, tail)
                np.add.at(of_centres, sets[start : start + step], part)
            return inside - log_sum_exp(of_centres + self.log_weights)
        outside = marginal_log_likelihood(z, sets, n_sets, self.negative - self.within, self.within)
        # One sample alone is scored by the density itself, whatever was clipped from it.
        single = np.bincount(sets, minlength=n_sets) == 1
        rows = single[sets]
        outside[sets[rows]] = inside[sets[rows]] - self.log_ratio(z[rows])
        return inside - outside


def fit_density(moments: Moments, *, negatives: str, shrinkage: float) -> Density:
    """Estimate both densities, as Gaussians; the views of a blend count alike.

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
    if negatives != "marginal":
        within = _shrunk(scatter.within, target, shrinkage, within_strength, "negative")
        weights = scatter.counts[1:] / scatter.n_negative
        mixture = Density(
            positive,
            within,
            centres,
            np.log(weights),
            within,
            positive_strength,
            within_strength,
            centres,
        )
        axis = None
        if negatives == "blend" and len(centres) > 1:  # a single subclass is a cloud already
            axis = _fisher_axis(mixture, scatter.n_positive, scatter.n_negative)
        return mixture if axis is None else replace(mixture, axis=axis, shares=(0.5, 0.5))
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


def _fisher_axis(mixture: Density, n_positive: float, n_negative: float) -> Array | None:
    """Axis that tells the positives best from the negatives as one cloud, None if there is none.

    With all K axes of a subspace this is the solution of K = 1, which lies in it.
    """
    shares = np.exp(mixture.log_weights)
    centre = shares @ mixture.centres
    spread = mixture.centres - centre
    cloud = mixture.negative + (spread.T * shares) @ spread
    pooled = (n_positive * mixture.positive + n_negative * cloud) / (n_positive + n_negative)
    axis = np.asarray(np.linalg.solve(pooled, centre), dtype=np.float64)
    if centre @ axis <= linalg.SAME_POINT**2:  # the means differ by rounding
        return None
    return _of_unit_size(axis)


def _of_unit_size(axis: Array) -> Array | None:
    """Scale an axis, of which only the direction counts; None if it has no direction."""
    largest = float(np.abs(axis).max())
    return axis / largest if np.isfinite(largest) and largest > 0 else None


def _require_regular(covariance: Array, which: str) -> None:
    try:
        linalg.cholesky(covariance)
    except SingularMatrixError as error:
        raise SingularMatrixError(
            f"the covariance of the {which} class is singular in the subspace"
        ) from error


def whitening(covariance: Array) -> Array:
    """Inverse of the lower Cholesky factor: rows times its transpose have unit covariance."""
    return linalg.triangular_inverse(linalg.cholesky(covariance))


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


def energy(square: Array, width: Any, tail: float) -> Array:
    """Minus the log density at a squared Mahalanobis distance, up to what `tail` and `width` add.

    That of a Gaussian is half the square, that of Student's t with `tail` degrees of freedom and
    the same covariance grows like its logarithm. The part left out is the same for both classes.
    """
    if np.isinf(tail):
        return 0.5 * square
    # Rounding may leave a distance below zero.
    heavy: Array = 0.5 * (tail + width) * np.log1p(np.maximum(square, 0) / (tail - 2))
    return heavy


def log_density(whitened: Array, white: Array, tail: float = np.inf) -> Array:
    """Log density at whitened offsets, over the last axis."""
    square, width = np.einsum("...j,...j->...", whitened, whitened), white.shape[0]
    result: Array = log_volume(white) + _log_normaliser(width, tail) - energy(square, width, tail)
    return result


def _log_normaliser(width: int, tail: float) -> float:
    """Log density at the centre for a covariance of volume one."""
    if np.isinf(tail):
        return -0.5 * width * LOG_2PI
    half = 0.5 * (tail + width)
    return float(gammaln(half) - gammaln(0.5 * tail) - 0.5 * width * np.log(np.pi * (tail - 2)))


def fit_tail(squares: Array, width: int, weights: Array) -> float:
    """Degrees of freedom under which squared Mahalanobis distances are most likely.

    Infinite where no heavier tail than the Gaussian's is more likely. Found as a root of the
    slope of the likelihood, so that it has all digits the distances have. Cost: some dozen passes
    over a few thousand bins.
    """
    if len(squares) > TAIL_ROWS:
        squares, weights = _binned(squares, weights)
    total = weights.sum()

    def loss(tail: float) -> float:
        return float(weights @ energy(squares, width, tail) - total * _log_normaliser(width, tail))

    def slope(inverse: float) -> float:
        tail = 1 / inverse
        half, spread = 0.5 * (tail + width), tail - 2
        share = squares / (spread + squares)
        of_rows = weights @ (0.5 * np.log1p(squares / spread) - half / spread * share)
        of_centre = psi(half) - psi(0.5 * tail) - width / spread
        return float(0.5 * total * of_centre - of_rows)

    lightest, heaviest = 1 / LIGHTEST, 1 / HEAVIEST
    if slope(lightest) >= 0:
        return np.inf
    beyond = slope(heaviest) <= 0
    tail = HEAVIEST if beyond else float(1 / brentq(slope, lightest, heaviest, xtol=1e-15))
    return tail if loss(tail) < loss(np.inf) else np.inf


def _binned(squares: Array, weights: Array) -> tuple[Array, Array]:
    """Means and total weights of squares in narrow bins: the order of the rows has no say."""
    bins = (BINS * np.log1p(squares)).astype(np.intp)
    totals = np.bincount(bins, weights).astype(np.float64)
    filled = totals > 0
    return np.bincount(bins, weights * squares)[filled] / totals[filled], totals[filled]


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
