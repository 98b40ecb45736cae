"""Rows to measure on: Gaussian groups around separated means."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

N_SUBCLASSES = 10
# Norm of a group mean in units of the noise: two groups then lie about 3.5 apart, whatever the
# dimension, so a few rows in a hundred fall on the wrong side.
SEPARATION = 2.5
BLOCK = 4096
# Number of labels; contestants are not told those of the rest.
N_LABELS = 50


@dataclass(frozen=True)
class Sample:
    """Rows with binary labels and group numbers; the positives are group 0."""

    X: np.ndarray
    y: np.ndarray
    groups: np.ndarray


def make_sample(n_rows: int, width: int, seed: int = 0, n_subclasses: int = N_SUBCLASSES) -> Sample:
    """Draw one positive group and `n_subclasses` negative ones, equally large, in random order.

    X is filled in place, block by block, so that no other large array is needed.
    """
    rng = np.random.default_rng(seed)
    groups = rng.permutation(np.arange(n_rows) % (n_subclasses + 1))
    centres = rng.standard_normal((n_subclasses + 1, width))
    centres *= SEPARATION / np.linalg.norm(centres, axis=1, keepdims=True)
    X = np.empty((n_rows, width))
    rng.standard_normal(out=X)
    for start in range(0, n_rows, BLOCK):
        X[start : start + BLOCK] += centres[groups[start : start + BLOCK]]
    return Sample(X, (groups == 0).astype(int), groups)


def make_labelled(labels: np.ndarray, width: int, seed: int = 0) -> np.ndarray:
    """Draw rows around one mean for each label."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((labels.max() + 1, width))
    centres *= SEPARATION / np.linalg.norm(centres, axis=1, keepdims=True)
    return centres[labels] + rng.standard_normal((len(labels), width))


def make_verification(
    n_rows: int, width: int, n_positive: int | None = None, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Draw rows of one class of interest and of many others; by default 50 classes of like size."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(1, N_LABELS, n_rows)
    labels[: n_rows // N_LABELS + 2 if n_positive is None else n_positive] = 0
    return make_labelled(labels, width, seed), (labels == 0).astype(int)


def digits() -> tuple[np.ndarray, np.ndarray]:
    """Load OptDigits from the folder PCSDA_DATA, or the part that scikit-learn ships."""
    path = Path(os.environ.get("PCSDA_DATA", "")) / "optdigits.npz"
    if "PCSDA_DATA" in os.environ and path.exists():
        with np.load(path, allow_pickle=False) as archive:
            return archive["X"].astype(float), archive["y"]
    return load_digits(return_X_y=True)


def rbf_gamma(width: int) -> float:
    """Return 1 / (2 s^2), with s the typical distance of two rows of a group in `width` columns."""
    return 1 / (4 * width)
