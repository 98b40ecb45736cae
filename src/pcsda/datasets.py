"""Synthetic data with known ground truth, for examples, tests and benchmarks."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral, Real

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize
from scipy.special import logsumexp
from sklearn.utils import Bunch, check_array

from .core.linalg import Array
from .validation import random_source

__all__ = ["ClassSpecificLLR", "make_class_specific"]

_NOISE_VARIANCES = (0.2, 2.0)

_DESCRIPTION = """\
A class surrounded by others, in a planted subspace
---------------------------------------------------
{} samples of the class of interest (target 1) and {} of {} other subclasses (target 0) in {}
dimensions. The classes differ only in a subspace of dimension {}. There every group is a unit
Gaussian, with the class of interest in the middle and the subclasses around it at distance {:g};
the remaining dimensions hold correlated noise, with the same distribution in every group.
"""


@dataclass(frozen=True, eq=False)
class ClassSpecificLLR:
    """Exact log-likelihood ratio for the population that :func:`make_class_specific` samples.

    Parameters
    ----------
    subspace : ndarray of shape (n_features, n_informative)
        Orthonormal basis of the planted subspace.
    positive_mean : ndarray of shape (n_features,)
        Mean of the class of interest.
    centers : ndarray of shape (n_subclasses, n_informative)
        Subclass means in the subspace, relative to the mean of the class of interest.

    Examples
    --------
    >>> from pcsda.datasets import make_class_specific
    >>> data = make_class_specific(200, random_state=0)
    >>> llr = data.log_likelihood_ratio(data.data)
    >>> llr.shape, bool(llr[data.target == 1].mean() > llr[data.target == 0].mean())
    ((200,), True)
    """

    subspace: Array
    positive_mean: Array
    centers: Array

    def __call__(self, X: ArrayLike) -> Array:
        """Evaluate ln p(x | class of interest) - ln p(x | the rest).

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Any points, not only samples from the population.

        Returns
        -------
        ndarray of shape (n_samples,)
            Natural logarithms, without class priors.
        """
        rows: Array = check_array(X, dtype=np.float64)
        n_features = self.subspace.shape[0]
        if rows.shape[1] != n_features:
            raise ValueError(
                f"X has {rows.shape[1]} features but the generated data have {n_features}"
            )
        u = (rows - self.positive_mean) @ self.subspace
        # ln N(u; 0, I) - ln N(u; c, I): the quadratic terms of u cancel, so nothing can overflow.
        exponents = u @ self.centers.T - 0.5 * np.sum(self.centers**2, axis=1)
        return np.asarray(np.log(len(self.centers)) - logsumexp(exponents, axis=1))


def make_class_specific(
    n_samples: int = 1000,
    *,
    n_features: int = 50,
    n_informative: int = 4,
    n_subclasses: int = 6,
    positive_fraction: float = 0.1,
    separation: float = 4.0,
    random_state: int | np.random.RandomState | None = None,
    return_X_y: bool = False,
) -> Bunch | tuple[Array, NDArray[np.int64]]:
    """Generate a class of interest surrounded by several subclasses of other samples.

    Samples are ``x = P u + Q v + offset`` with ``[P Q]`` a random orthogonal matrix. In the
    planted subspace spanned by ``P`` the class of interest has ``u ~ N(0, I)`` and subclass k has
    ``u ~ N(c_k, I)``, with ``||c_k|| = separation`` in directions as far apart as possible. The
    noise ``v`` is Gaussian with variances between 0.2 and 2, the same for all samples. So the
    Bayes-optimal log-likelihood ratio is known exactly.

    Parameters
    ----------
    n_samples : int, default=1000
        Number of samples.
    n_features : int, default=50
        Dimension of the samples.
    n_informative : int, default=4
        Dimension of the planted subspace, at most `n_features`.
    n_subclasses : int, default=6
        Number of subclasses of the rest; at most 2 when `n_informative` is 1.
    positive_fraction : float, default=0.1
        Share of samples in the class of interest, between 0 and 1. The number of
        such samples is rounded to a whole number.
    separation : float, default=4.0
        Distance of the subclass means from the mean of the class of interest, in standard
        deviations. At 4, with the other defaults, the exact ratio has a log-likelihood-ratio cost
        of about 0.19 bit.
    random_state : int, RandomState instance or None, default=None
        Seed for the subspace, the noise and the samples. To get training and test data from one
        population, split one generated set.
    return_X_y : bool, default=False
        Return only ``(data, target)``.

    Returns
    -------
    bunch : :class:`~sklearn.utils.Bunch`
        Dictionary-like, with the attributes

        data : ndarray of shape (n_samples, n_features)
            The samples in random order.
        target : ndarray of shape (n_samples,)
            1 for the class of interest, 0 for the rest.
        subclass_labels : ndarray of shape (n_samples,)
            Subclass of each sample, 0 to n_subclasses-1; -1 for the class of interest.
        subspace : ndarray of shape (n_features, n_informative)
            ``P``, an orthonormal basis of the planted subspace.
        means : ndarray of shape (n_subclasses + 1, n_features)
            Means of the class of interest (row 0) and of the subclasses, so that
            ``means[subclass_labels + 1]`` holds the mean of each sample.
        covariance : ndarray of shape (n_features, n_features)
            Covariance within each group.
        log_likelihood_ratio : ClassSpecificLLR
            Function that returns the exact ln p(x | 1) - ln p(x | 0) for each row of X.
        DESCR : str
            A short description.

    (data, target) : tuple if `return_X_y` is True
        The attributes `data` and `target` only.

    Notes
    -----
    Subclasses are equally likely and their sizes differ by at most one. With fewer subclasses than
    `n_informative` their means span only `n_subclasses` of the planted dimensions, which are then
    the only ones that carry information.

    Examples
    --------
    >>> from pcsda.datasets import make_class_specific
    >>> toy = make_class_specific(200, n_features=2, n_informative=2, random_state=0)
    >>> toy.data.shape, int(toy.target.sum())
    ((200, 2), 20)
    """
    _check_sizes(n_samples, n_features, n_informative, n_subclasses)
    _check_real("positive_fraction", positive_fraction, upper=1.0)
    _check_real("separation", separation)
    n_positive = _count_positives(n_samples, positive_fraction, n_subclasses)
    rng = random_source(random_state)

    basis = _random_orthogonal(n_features, rng)
    subspace, rest = basis[:, :n_informative], basis[:, n_informative:]
    centers = separation * _spread_directions(n_subclasses, n_informative, rng)
    variances = rng.uniform(*_NOISE_VARIANCES, size=n_features - n_informative)
    offset = rng.standard_normal(n_features)

    labels = np.full(n_samples, -1, dtype=np.int64)
    labels[n_positive:] = np.arange(n_samples - n_positive) % n_subclasses
    labels = rng.permutation(labels)
    u_means = np.vstack([np.zeros(n_informative), centers])
    u = u_means[labels + 1] + rng.standard_normal((n_samples, n_informative))
    v = np.sqrt(variances) * rng.standard_normal((n_samples, n_features - n_informative))
    X = u @ subspace.T + v @ rest.T + offset
    y = (labels < 0).astype(np.int64)
    if return_X_y:
        return X, y
    sizes = (n_positive, n_samples - n_positive, n_subclasses, n_features, n_informative)
    return Bunch(
        data=X,
        target=y,
        subclass_labels=labels,
        subspace=subspace,
        means=u_means @ subspace.T + offset,
        covariance=subspace @ subspace.T + (rest * variances) @ rest.T,
        log_likelihood_ratio=ClassSpecificLLR(subspace, offset, centers),
        DESCR=_DESCRIPTION.format(*sizes, separation),
    )


def _check_sizes(n_samples: int, n_features: int, n_informative: int, n_subclasses: int) -> None:
    sizes = {"n_samples": n_samples, "n_features": n_features, "n_informative": n_informative}
    for name, value in {**sizes, "n_subclasses": n_subclasses}.items():
        if isinstance(value, bool) or not isinstance(value, Integral):
            raise TypeError(f"{name}={value!r} must be an integer; give a whole number")
        if value < 1:
            raise ValueError(f"{name}={value} must be at least 1; raise it")
    if n_informative > n_features:
        raise ValueError(
            f"n_informative={n_informative} must be at most {n_features} (= n_features); lower it"
            " or raise n_features"
        )
    if n_informative == 1 and n_subclasses > 2:
        raise ValueError(
            f"n_subclasses={n_subclasses} must be at most 2 (= directions on a line, as"
            " n_informative=1); lower it or raise n_informative"
        )


def _check_real(name: str, value: object, upper: float = np.inf) -> None:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name}={value!r} must be a real number; give a float")
    if not 0 < float(value) < upper:
        raise ValueError(f"{name}={value} must be above 0 and below {upper:g}; change it")


def _count_positives(n_samples: int, positive_fraction: float, n_subclasses: int) -> int:
    n_positive = round(n_samples * positive_fraction)
    if n_positive < 1:
        raise ValueError(
            f"positive_fraction={positive_fraction} of n_samples={n_samples} gives no positive"
            " sample, but at least 1 is needed; raise either"
        )
    if n_samples - n_positive < n_subclasses:
        raise ValueError(
            f"n_samples={n_samples} with positive_fraction={positive_fraction} leaves "
            f"{n_samples - n_positive} negatives, but at least {n_subclasses} (= n_subclasses) "
            "are needed; raise n_samples or lower n_subclasses"
        )
    return n_positive


def _random_orthogonal(n: int, rng: np.random.RandomState) -> Array:
    q, r = np.linalg.qr(rng.standard_normal((n, n)))
    # QR picks arbitrary signs; multiplying by the signs of R makes the matrix uniformly
    # distributed.
    return np.asarray(q * np.where(np.diag(r) < 0, -1.0, 1.0))


def _spread_directions(n_points: int, n_dims: int, rng: np.random.RandomState) -> Array:
    """Return unit vectors that lie far apart and span as many dimensions as they can."""
    if n_points <= n_dims:
        # So few directions cannot surround the origin; repulsion would make them a flat simplex and
        # waste a dimension.
        return _random_orthogonal(n_dims, rng)[:n_points]
    if n_dims == 1:
        return np.array([[-1.0], [1.0]])
    start = rng.standard_normal((n_points, n_dims))
    result = minimize(_repulsion, start.ravel(), args=(n_points,), jac=True, method="L-BFGS-B")
    return _unit_rows(result.x.reshape(n_points, n_dims))[0]


def _repulsion(flat: Array, n_points: int) -> tuple[float, Array]:
    """Return the sum of inverse squared distances between unit vectors, and its gradient."""
    points, norms = _unit_rows(flat.reshape(n_points, -1))
    differences = points[:, None] - points[None]
    # The identity avoids a division by zero for the distance of each point to itself. It only
    # adds a constant to the sum.
    squared = np.sum(differences**2, axis=2) + np.eye(n_points)
    gradient = -4.0 * np.sum(differences / squared[..., None] ** 2, axis=1)
    tangential = gradient - np.sum(gradient * points, axis=1, keepdims=True) * points
    return float(np.sum(1.0 / squared)), (tangential / norms).ravel()


def _unit_rows(points: Array) -> tuple[Array, Array]:
    norms = np.linalg.norm(points, axis=1, keepdims=True)
    return points / norms, norms
