"""Labels that share two covariances: Phi_w within labels, and Phi_b between labels.

The model draws each label's mean from N(c, Phi_b), and the label's rows from N(mean, Phi_w)
(MATH 18). The n known rows of a label determine a posterior distribution of the mean. A new row is
scored by the ratio of two predictive densities: that of the label, and that of a stranger (a row of
an unknown label), N(c, Phi_b + Phi_w). On axes where Phi_w is the identity and Phi_b is diagonal
with entries v, both densities factorise over the axes:

    stranger:                       mean 0,                 variance 1 + v
    label of n rows with mean z:    mean z n v / (1 + n v), variance 1 + v / (1 + n v)

The axes span the PCSDA subspace with the labels as subclasses. The subspace is the same for every
label, so each row is projected only once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from . import linalg
from .labelled import LabelSums
from .linalg import Array, Floats, SingularMatrixError
from .student import energy

# Scores are computed in parts of about this many bytes, which fit in the cache.
CACHE_BYTES = 1 << 20
# If too few labels have two rows, Phi_w is assumed: it has the share WITHIN of the total variance,
# and at most the share MOST_WITHIN on each axis.
WITHIN, MOST_WITHIN = 0.3, 0.95
# An assumed Phi_w may be far off, so the rows drawn for the calibration vary more. UNSURE is the
# standard deviation of the logarithm of their spread, FAR_OFF the share drawn as strangers.
UNSURE, FAR_OFF = 0.3, 0.15


def ledoit_wolf(scatter: Array, fourth: float, count: float) -> float:
    """Return the Ledoit-Wolf weight for shrinkage toward the identity, for rows with mean zero.

    Parameters
    ----------
    scatter : array of shape (r, r)
        Sum of the outer products of the rows.
    fourth : float
        Sum of the fourth powers of the rows' lengths.
    count : float
        Number of rows.
    """
    size = len(scatter)
    square = float(np.einsum("ij,ij->", scatter, scatter)) / count**2
    apart = (square - (scatter.trace() / count) ** 2 / size) / size
    noise = (fourth / count - square) / (size * count)
    return 1.0 if apart <= 0 else float(np.clip(noise / apart, 0.0, 1.0))


@dataclass(frozen=True)
class Kindred:
    """Labels that share two covariances, on axes where Phi_w is the identity.

    Phi_w is the covariance within labels.

    Attributes
    ----------
    centre : array of shape (r,)
        c, the mean of the label means.
    axes : array of shape (r, q)
        The axes, as columns.
    values : array of shape (q,)
        Variances v between labels, on the axes.
    scale : float
        ``Phi_w = scale (S_w + ridge I)``, where S_w is the scatter within labels. It is 1 if Phi_w
        is assumed.
    means : array of shape (C, q)
        Mean of each label's rows, on the axes.
    tail : float
        Degrees of freedom of both predictive distributions.
    """

    centre: Array
    axes: Array
    values: Array
    scale: float
    means: Array
    tail: float = np.inf

    @classmethod
    def assumed(cls, sums: LabelSums) -> Kindred:
        """Assume the covariance within labels, which cannot be estimated from one row per label.

        The assumed covariance is the scaled square root of the total covariance: rows of a label
        vary along the axes on which labels differ, but more evenly. The total covariance is shrunk
        by the Ledoit-Wolf rule.

        Raises
        ------
        SingularMatrixError
            If all rows are equal.
        """
        means, size = sums.everybody, sums.means.shape[1]
        centre = means.mean(axis=0)
        apart = means - centre
        variances, turn = principal(apart, np.eye(size))
        if len(variances) == 0:
            raise SingularMatrixError("all rows are equal")
        fourth = float((np.einsum("ij,ij->i", apart, apart) ** 2).sum())
        scatter = np.zeros(size)
        scatter[: len(variances)] = variances * (len(means) - 1)
        share = ledoit_wolf(np.diag(scatter), fourth, len(means))
        total = (1 - share) * variances + share * variances.sum() / size
        within = np.sqrt(total) * (WITHIN * total.sum() / np.sqrt(total).sum())
        within = np.minimum(within, MOST_WITHIN * total)
        axes = turn / np.sqrt(within)
        values = np.maximum(total / within - sums.noise, 0.0)
        return cls(centre, axes, values, 1.0, sums.means @ axes - centre @ axes)

    @classmethod
    def fit(cls, sums: LabelSums, ridge: float, *, strict: bool = True) -> Kindred:
        """Fit both covariances with one eigendecomposition.

        The covariance between labels is shrunk on the axes by the Ledoit-Wolf rule. If labels
        differ no more than their rows do, this covariance is zero; with `strict`, this is an error.

        Raises
        ------
        SingularMatrixError
            If no label has two rows, or, with `strict`, if labels differ no more than their rows.
        """
        sums.require_spread()
        means, size = sums.everybody, sums.means.shape[1]
        count = len(means)
        centre = means.mean(axis=0)
        apart = means - centre
        level = float(sums.scatter.trace()) / size
        scale = (level / (level + ridge)) / sums.free
        variances, axes = principal(apart, linalg.cholesky(sums.scatter, ridge))
        variances, axes = variances / scale, axes / np.sqrt(scale)
        z = apart @ axes
        fourth = float((np.einsum("ij,ij->i", z, z) ** 2).sum())
        share = ledoit_wolf(np.diag(variances * (count - 1)), fourth, count)
        values = (1 - share) * variances + share * variances.mean() - sums.noise
        if strict and values[0] <= 0:
            raise SingularMatrixError("labels differ no more than their rows do")
        return cls(centre, axes, np.maximum(values, 0.0), scale, z[: len(sums.means)])

    def project(self, rows: Array) -> Array:
        """Return the coordinates of rows on the axes."""
        return (rows - self.centre) @ self.axes

    @property
    def law(self) -> Predictive:
        """The predictive distributions by which rows are scored."""
        return Predictive(self.values, self.tail)


def principal(rows: Array, factor: Array) -> tuple[Array, Array]:
    """Return the variances of centred rows in descending order, and the corresponding axes.

    The axes are columns, orthonormal with respect to the matrix whose Cholesky factor is `factor`.
    """
    count, size = rows.shape
    wide = size > count
    if wide:
        white = linalg.lower_solve(factor, rows.T).T
        inner = white @ white.T
    else:
        half = linalg.lower_solve(factor, rows.T @ rows)
        inner = linalg.lower_solve(factor, half.T)
    values, vectors = linalg.eigh_descending(inner)
    rank = min(count - 1, size)
    rank = int(np.sum(values[:rank] > linalg.SAME_POINT * values[0]))
    values, vectors = values[:rank], vectors[:, :rank]
    turn = white.T @ (vectors / np.sqrt(values)) if wide else vectors
    return values / (count - 1), linalg.lower_solve(factor, turn, transposed=True)


@dataclass(frozen=True)
class Predictive:
    """Predictive distributions of a label and of a stranger, on the axes.

    Attributes
    ----------
    values : array of shape (q,)
        Variances v between labels.
    tail : float
        Degrees of freedom.
    """

    values: Array
    tail: float

    def expected(self, means: Array, counts: Array) -> Array:
        """Return the labels' posterior means (C, q), given the means of their rows."""
        shrunk = counts[:, None] * self.values
        return means * (shrunk / (1 + shrunk))

    def variances(self, counts: Array) -> Array:
        """Return the variances (C, q) of a new row about its label's posterior mean."""
        return 1 + self.values / (1 + counts[:, None] * self.values)

    def draw(self, means: Array, counts: Array, rng: np.random.Generator) -> Array:
        """Draw a new row for each label, with a random spread because Phi_w is only assumed.

        Some rows are drawn as if from strangers, so that the calibration treats no ratio as strong
        evidence against a label.
        """
        noise = rng.standard_normal(means.shape)
        strange = np.sqrt(1 + self.values) * noise
        noise *= np.exp(UNSURE * rng.standard_normal((len(means), 1)))
        near = self.expected(means, counts) + np.sqrt(self.variances(counts)) * noise
        return np.where(rng.random((len(means), 1)) < FAR_OFF, strange, near)

    def outside(self, z: Floats) -> Array:
        """Return the squared Mahalanobis distances of rows under a stranger's distribution."""
        return (z * z) @ (1 / (1 + self.values)).astype(z.dtype)

    def ratios(self, z: Floats, labels: Places, slope: float = 1.0, offset: float = 0.0) -> Array:
        """Return calibrated log ratios (n, C) of rows for all labels, in the dtype of the rows.

        The log ratio is multiplied by `slope`, and `offset` is added.
        """
        outside = slope * energy(self.outside(z), len(self.values), self.tail) + offset
        found: Array = labels.rows(z) @ labels.vectors.T
        part = max(1, CACHE_BYTES // max(found[:1].nbytes, 1))
        for start in range(0, len(z), part):
            here = found[start : start + part]
            if labels.power is None:
                here *= -slope
            else:
                np.maximum(here, labels.factors, out=here)  # rounding may make a square negative
                np.log(here, out=here)
                here *= -slope * labels.power
            here += outside[start : start + part, None]
        return found

    def places(self, means: Array, counts: Array) -> Places:
        """Prepare labels for :meth:`ratios`, given the means and counts of their rows."""
        sizes, which = np.unique(counts, return_inverse=True)
        variances, expected = self.variances(sizes), self.expected(means, counts)
        pulls = expected / variances[which]
        lengths = np.einsum("ij,ij->i", pulls, expected)
        volumes = (0.5 * (np.log1p(self.values) - np.log(variances)).sum(axis=1))[which]
        if np.isinf(self.tail):
            power, scale, factors = None, 0.5, np.ones(len(counts))
            last = scale * lengths - volumes
        else:
            power, scale = 0.5 * (self.tail + len(self.values)), 1 / (self.tail - 2)
            factors, last = np.exp(-volumes / power), 1 + scale * lengths
        # Squared coordinates are summed once for each label size, unless sizes outnumber axes.
        few = len(sizes) <= len(self.values)
        precisions = (scale / variances).T if few else np.eye(len(self.values))
        squares = np.eye(len(sizes))[which] if few else scale / variances[which]
        vectors = np.concatenate([-2 * scale * pulls, squares, last[:, None]], axis=1)
        return Places(vectors * factors[:, None], precisions, factors, volumes, power)


@dataclass(frozen=True)
class Places:
    """Labels prepared so that a single matrix product of rows and labels gives all scores.

    Let square be the squared Mahalanobis distance of a row from a label. With heavy tails, the
    product is ``1 + square / (tail - 2)`` times a factor for the volume of the label, so that the
    negative log density is a multiple of the product's logarithm. With Gaussian tails, the product
    is half of square minus the log ratio of the volumes.

    Attributes
    ----------
    vectors : array of shape (C, q + U + 1)
        For each label, the weights of a row's q coordinates and of the U combinations of their
        squares, and a constant.
    precisions : array of shape (q, U)
        Weights that combine a row's squared coordinates. There is one combination for each distinct
        number of rows per label, or one for each axis if there are fewer axes than such numbers.
    factors : array of shape (C,)
        Smallest value of the product for each label, reached at a square of zero.
    volumes : array of shape (C,)
        Log volume ratio of each label.
    power : float or None
        Factor that multiplies the product's logarithm; None with Gaussian tails.
    """

    vectors: Array
    precisions: Array
    factors: Array
    volumes: Array
    power: float | None

    def rows(self, z: Floats) -> Floats:
        """Append combined squares of the coordinates and a one to each row.

        The product of the result with `vectors` then gives the scores.
        """
        found: Floats = np.empty((len(z), self.vectors.shape[1]), z.dtype)
        found[:, : z.shape[1]], found[:, -1] = z, 1
        np.matmul(z * z, self.precisions, out=found[:, z.shape[1] : -1])
        return found

    def single(self) -> Places:
        """Return the same labels in single precision."""
        names = ("vectors", "precisions", "factors", "volumes")
        return replace(self, **{name: getattr(self, name).astype(np.float32) for name in names})

    def one(self, place: int) -> Places:
        """Return an object with only the label at index `place`."""
        here = slice(place, place + 1)
        names = ("vectors", "factors", "volumes")
        return replace(self, **{name: getattr(self, name)[here] for name in names})
