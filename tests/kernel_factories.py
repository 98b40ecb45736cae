"""Kernels with their matrices, and labelled rows to use them on."""

import factories
import numpy as np
import pytest
from sklearn.metrics.pairwise import pairwise_kernels

SIZES = [16, 12, 15, 9]


def rational(x, y, width=1.0):
    """Compute the rational quadratic kernel, a positive definite function of two rows."""
    difference = x - y
    return 1 / (1 + difference @ difference / width)


# Settings of positive definite kernels; chi2 gets non-negative rows.
SETTINGS = {
    "linear": {"kernel": "linear"},
    "rbf": {"kernel": "rbf", "gamma": 0.05},
    "laplacian": {"kernel": "laplacian", "gamma": 0.05},
    "polynomial": {"kernel": "polynomial", "gamma": 0.1, "degree": 2, "coef0": 1.5},
    "cosine": {"kernel": "cosine"},
    "chi2": {"kernel": "chi2", "gamma": 0.1},
    "callable": {"kernel": rational, "kernel_params": {"width": 20.0}},
    "precomputed": {"kernel": "precomputed"},
}
EVERY_KERNEL = factories.in_turn("name", list(SETTINGS))
WEIGHTED = pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])


def labelled(width=5, *, sizes=SIZES, seed=0, spread=1.0):
    """Return rows, binary labels (1 for group 0) and groups."""
    return factories.labelled(width, sizes, seed=seed, spread=spread)


def values(name, X, Y):
    """Compute kernel values between rows with scikit-learn."""
    given = dict(SETTINGS["rbf" if name == "precomputed" else name])
    metric = given.pop("kernel")
    return pairwise_kernels(X, Y, metric=metric, **given.pop("kernel_params", {}), **given)


def rbf(X, Y, gamma):
    """Compute the RBF kernel directly from its definition."""
    return np.exp(-gamma * np.sum((X[:, None] - Y[None]) ** 2, axis=-1))


def kernel_problem(name, *, duplicates=False, seed=0, spread=1.0):
    """Training and new rows as an estimator with ``SETTINGS[name]`` takes them, y and groups.

    Also returned are the kernel matrices of the training rows and of new with training rows.
    """
    X, y, groups = labelled(seed=seed, spread=spread)
    new = labelled(seed=seed + 1, sizes=[5, 4, 6, 5], spread=spread)[0]
    if name == "chi2":
        X, new = np.abs(X), np.abs(new)
    if duplicates:
        X, y, groups = (np.concatenate([part, part[::3]]) for part in (X, y, groups))
    matrix, cross = values(name, X, X), values(name, new, X)
    if name == "precomputed":
        X, new = matrix, cross
    return X, new, y, groups, matrix, cross


def assert_same_axes(found, expected, **tolerance):
    """Check that columns agree, each up to its sign."""
    signs = np.sign(np.einsum("ij,ij->j", found, expected))
    np.testing.assert_allclose(found * signs, expected, **tolerance)
