"""Base class of all kernel maps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from .. import validation
from ..core.linalg import Floats
from ..documented import documented
from ..kernels import BLOCK_BYTES, Kernel, settled_kernel
from ..progress import progress
from ..targets import check_labels
from ..validation import MatrixLike, validated

# Writes the features of rows into an array.
Writer = Callable[[Floats, Floats], None]


@documented
class KernelMap(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator, ABC):
    """Base class of kernel maps, which determines the kernel and maps rows in blocks."""

    kernel: Any
    gamma: Any
    pos_label: Any
    random_state: Any
    verbose: bool
    n_components_: int
    # Parameters that only some maps have.
    degree: float = 3
    coef0: float = 1
    kernel_params: dict[str, Any] | None = None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = isinstance(self.kernel, str) and self.kernel == "precomputed"
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    def _check(self, X: MatrixLike, *, reset: bool) -> Any:
        validation.refuse_dask(X, predicts=not reset)
        return validated(self, X, reset=reset, dtype=[np.float64, np.float32])

    def _settled(self, X: Floats, y: ArrayLike | None, kernels: tuple[str, ...]) -> Kernel:
        """Return the kernel with its bandwidth; `y` is used only for ``gamma="positive"``."""
        validation.check_kernel(self.kernel, self.gamma, kernels, self.kernel_params)
        positive = None
        if y is not None and isinstance(self.gamma, str) and self.gamma == "positive":
            positive = check_labels(y, self.pos_label)[2]
            if len(positive) != len(X):
                raise ValueError(f"X has {len(X)} rows but y has {len(positive)} labels")
        # Features have the inner products of the kernel itself, whose origin is zero.
        return replace(settled_kernel(self, X, positive, self.random_state), origin=None)

    @abstractmethod
    def _writer(self, dtype: np.dtype[np.floating]) -> tuple[int, Writer]:
        """Return a buffer size and a function ``write(rows, features)``.

        The function writes the features of `rows` into the array `features`. The size is how many
        numbers the function holds in memory for each row.
        """

    def transform(self, X: Any) -> Floats:
        """Map rows to features whose inner products equal or approximate the kernel values.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            With kernel="precomputed", the kernel values between these rows and the training rows.

        Returns
        -------
        array of shape (n_samples, n_components)
        """
        check_is_fitted(self)
        X = self._check(X, reset=False)
        result = np.empty((len(X), self.n_components_), dtype=X.dtype)
        width, write = self._writer(X.dtype)
        step = max(64, BLOCK_BYTES // (8 * max(width, 1)))
        for start in progress(range(0, len(X), step), "features", enabled=self.verbose):
            block = result[start : start + step]
            with np.errstate(over="ignore", invalid="ignore"):
                write(X[start : start + step], block)
            finite = np.isfinite(block).all(axis=1)
            if not finite.all():
                row = start + int(np.flatnonzero(~finite)[0])
                raise ValueError(f"row {row} of X is too large to map; bring X to the fitted scale")
        return result
