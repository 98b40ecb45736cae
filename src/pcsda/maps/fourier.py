"""Random Fourier features of shift-invariant kernels."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from .. import validation
from ..core.linalg import Array, Floats
from ..validation import Seed, random_source
from .base import KernelMap, Writer


class FourierMap(KernelMap):
    """Map rows to random Fourier features of a shift-invariant kernel.

    Parameters
    ----------
    n_components : int, default=1000
        Number of features; the error of the kernel values is inversely proportional to its square
        root.
    kernel : {"rbf", "laplacian"}, default="rbf"
        The kernel to approximate.
    gamma : {"all", "positive", "scale"} or float, default="all"
        As in :class:`ExactKernelMap`.
    orthogonal : bool, default=False
        Draw the frequencies of "rbf" along orthogonal directions, which lowers the error.
    pos_label
        As in :class:`ExactKernelMap`.
    random_state : int, RandomState instance or None, default=None
        Seed for drawing the frequencies.
    verbose
        As in :class:`ExactKernelMap`.

    Attributes
    ----------
    n_components_ : int
        Number of features.
    frequencies_ : array of shape (n_features, ceil(n_components / 2))
        The random frequencies; each gives a cosine and a sine.

    References
    ----------
    A. Rahimi and B. Recht, Random features for large-scale kernel machines, 2007. F. X. Yu and
    others, Orthogonal random features, 2016.

    Examples
    --------
    >>> from pcsda import FourierMap
    >>> from pcsda.datasets import make_class_specific
    >>> data = make_class_specific(500, random_state=0)
    >>> FourierMap(100, random_state=0).fit_transform(data.data).shape
    (500, 100)
    """

    def __init__(
        self,
        n_components: int = 1000,
        *,
        kernel: str = "rbf",
        gamma: str | float = "all",
        orthogonal: bool = False,
        pos_label: object = None,
        random_state: Seed = None,
        verbose: bool = False,
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.gamma = gamma
        self.orthogonal = orthogonal
        self.pos_label = pos_label
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: ArrayLike | None = None) -> Self:
        """Draw the frequencies.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,), optional
            Binary labels, for ``gamma="positive"`` only.

        Returns
        -------
        self : FourierMap
        """
        validation.check_count("n_components", self.n_components)
        validation.check_option("kernel", self.kernel, ("rbf", "laplacian"))
        if self.orthogonal and self.kernel != "rbf":
            raise ValueError(
                f"orthogonal=True needs kernel='rbf', got kernel={self.kernel!r}; set "
                "orthogonal=False"
            )
        X = self._check(X, reset=True)
        gamma = self._settled(X, y, ("rbf", "laplacian")).gamma or 1.0
        rng = random_source(self.random_state)
        self.n_components_ = self.n_components
        count = -(-self.n_components // 2)
        size = (X.shape[1], count)
        if self.kernel == "laplacian":
            frequencies = gamma * rng.standard_cauchy(size)
        else:
            drawn = _orthogonal(*size, rng) if self.orthogonal else rng.standard_normal(size)
            frequencies = np.sqrt(2 * gamma) * drawn
        self.frequencies_ = frequencies.astype(X.dtype, copy=False)
        # Inner products of the features are cosines of differences, so any origin works.
        self.origin_ = X.mean(axis=0)
        return self

    def _writer(self, dtype: np.dtype[np.floating]) -> tuple[int, Writer]:
        origin, frequencies = self.origin_.astype(dtype), self.frequencies_.astype(dtype)

        def write(rows: Floats, features: Floats) -> None:
            angle = (rows - origin) @ frequencies
            both = np.concatenate([np.cos(angle), np.sin(angle)], axis=1)
            both *= np.sqrt(1 / angle.shape[1]).astype(dtype)
            features[:] = both[:, : self.n_components_]

        return 2 * self.n_components_, write


def _orthogonal(width: int, count: int, rng: np.random.RandomState) -> Array:
    """Draw Gaussian frequencies whose directions are orthogonal within blocks of `width`."""
    n_blocks = -(-count // width)
    blocks = [np.linalg.qr(rng.standard_normal((width, width)))[0] for _ in range(n_blocks)]
    return np.hstack(blocks)[:, :count] * np.sqrt(rng.chisquare(width, size=count))
