"""MultilinearCSDA as a scikit-learn estimator: CSDA for matrices and tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from .. import validation
from ..core.linalg import Array, Floats, Mask
from ..core.multilinear import Factors, MultilinearFactor, mode_ranks
from ..core.subspace import Factor
from ..core.warning import number_of
from ..partition import count_distinct
from ..validation import MatrixLike, Seed
from . import stream
from .callbacks import calls_back
from .parameters import check_verifier
from .rows import rows_of
from .steps import PUBLISHED_CSDA, check_training, refuse_unchecked
from .training import fit_rows, linear_coordinates, linear_map
from .verifier import Verifier

# Default number of directions per mode. For images, this gives 25, the paper's largest number.
DEFAULT_COMPONENTS = 5


class MultilinearCSDA(Verifier):
    """Class-specific discriminant analysis for samples that are matrices or tensors.

    Each mode of a tensor has a small projection. (The modes of an image are its rows and its
    columns.) Together, the projections maximise the spread of the negatives about the positive
    mean, relative to the spread of the positives. There are far fewer parameters than in CSDA on
    flattened samples: 350 instead of 30000 for images of 40 x 30 pixels with 5 directions per
    mode. This helps with few positives if the classes differ along rows and columns.

    Parameters
    ----------
    n_components : tuple of int, int or None, default=None
        Number of directions per mode; the dimension of the subspace is their product. None means 5
        per mode, or fewer if the samples vary in fewer directions along a mode, or if the product
        would exceed the number of distinct negatives.
    shape : tuple of int or None, default=None
        Size of each mode if X has one row per sample, with the entries of the tensor in C order.
        None takes the sizes (d1, d2, ...) from an X of shape (n_samples, d1, d2, ...), and treats
        the rows of a two-dimensional X as tensors with one mode.
    regularization, shrinkage, calibrate, priors, pos_label, random_state, verbose
        As in :class:`CSDA`.

    Attributes
    ----------
    factors_ : list of arrays of shape (n_components of the mode, size of the mode)
        Orthonormal directions for each mode.
    shape_ : tuple of int
        Mode sizes.
    core_shape_ : tuple of int
        Number of directions per mode; ``transform(X).reshape(-1, *core_shape_)`` are the projected
        tensors.
    ratios_ : array
        The trace ratio after each cycle over the modes; it never decreases.
    components_ : array of shape (n_components, n_features)
        Flattened outer products of the modes' directions.
    eigenvalues_ : array of shape (n_components,)
        Value of the criterion along each component, in the order of ``core_shape_``.
    positive_mean_, positive_count_, subclass_means_, subclass_counts_, classes_, class_prior_, \
n_components_, partition_, density_, calibration_
        As in :class:`CSDA`.

    See Also
    --------
    CSDA : A single projection of the flattened samples.

    Notes
    -----
    With one mode this is :class:`CSDA` with ``solver="trace_ratio"``. With more, the directions are
    restricted to outer products, so the ratio is at most CSDA's, and the solution may be a local
    maximum. No n_features x n_features matrix is formed.

    References
    ----------
    D. T. Tran, M. Gabbouj and A. Iosifidis, Multilinear class-specific discriminant analysis,
    Pattern Recognition Letters 100, 2017.

    Examples
    --------
    >>> from pcsda import MultilinearCSDA
    >>> from sklearn.datasets import load_digits
    >>> digits = load_digits()
    >>> model = MultilinearCSDA((3, 3), random_state=0).fit(digits.images, digits.target == 4)
    >>> model.transform(digits.images[:2]).shape, [factor.shape for factor in model.factors_]
    ((2, 9), [(3, 8), (3, 8)])
    >>> rows = MultilinearCSDA((3, 3), shape=(8, 8), random_state=0)
    >>> rows = rows.fit(digits.data, digits.target == 4)
    >>> bool(abs(rows.transform(digits.data) - model.transform(digits.images)).max() < 1e-9)
    True
    """

    n_components: Any
    factors_: list[Floats]
    shape_: tuple[int, ...]
    core_shape_: tuple[int, ...]
    ratios_: Array
    _sparse = False

    def __init__(
        self,
        n_components: Sequence[int] | None = None,
        shape: Sequence[int] | None = None,
        *,
        regularization: float = 1e-2,
        shrinkage: float | str = "auto",
        calibrate: bool = True,
        priors: str | Sequence[float] | None = "empirical",
        pos_label: object = None,
        random_state: Seed = None,
        verbose: bool = False,
    ) -> None:
        self.n_components = n_components
        self.shape = shape
        self.regularization = regularization
        self.shrinkage = shrinkage
        self.calibrate = calibrate
        self.priors = priors
        self.pos_label = pos_label
        self.random_state = random_state
        self.verbose = verbose

    _coordinates = linear_coordinates
    _map = linear_map

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags

    @classmethod
    def published(
        cls,
        n_components: Sequence[int] | None = None,
        shape: Sequence[int] | None = None,
        **params: Any,
    ) -> Self:
        """Make an estimator that follows the PCSDA paper: no shrinkage, no calibration.

        Parameters
        ----------
        n_components, shape
            As in the constructor.
        **params
            Further constructor parameters, which override the paper's settings.

        Returns
        -------
        MultilinearCSDA
        """
        return cls(n_components, shape, **(PUBLISHED_CSDA | params))

    @calls_back
    def fit(
        self,
        X: Any,
        y: ArrayLike,
        *,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        unchecked: ArrayLike | None = None,
    ) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or (n_samples, d1, d2, ...)
        y : array-like of shape (n_samples,)
            Two labels, or more if `pos_label` is set.
        sample_weight : array-like of shape (n_samples,), optional
            Weights, at least 0. A whole number w counts as w copies of the row.
        groups, unchecked
            As in :meth:`CSDA.fit`.

        Returns
        -------
        self : MultilinearCSDA
        """
        check_verifier(self)
        refuse_unchecked(self, unchecked)
        rows, given = flattened(X)
        X, y = stream.check_rows(self, rows, y)
        validation.refuse_sparse(X, "MultilinearCSDA", "use PCSDA with solver='lsqr'")
        if given is not None and self.shape is not None:
            _require_same(given, mode_sizes(self.shape, X.shape[1]))
        sizes = given or mode_sizes(self.shape, X.shape[1])
        asked = self.n_components is not None
        dims = mode_dims(self.n_components, sizes) if asked else ()
        positive, weights, together, seed = check_training(self, y, sample_weight, groups)
        if not asked:
            used = slice(None) if weights is None else weights > 0
            dims = usual_dims(X[used], positive[used], sizes)
        found: list[Factors] = []  # the factors for all rows come first, then those for folds

        def factorise(rows: Floats, weights: Array | None) -> Factor:
            settings = sizes, dims, self.regularization_, weights, found.append
            return MultilinearFactor(rows, *settings)

        fit_rows(self, factorise, rows_of(X, positive, weights, seed, together=together))
        self.shape_, self.core_shape_ = sizes, dims
        self.factors_ = [mode.T.astype(X.dtype) for mode in found[0].modes]
        self.ratios_ = np.array(found[0].ratios)
        return self

    def _project(self, X: MatrixLike) -> Floats:
        rows, given = flattened(X)
        self._require_model()
        if given is not None:
            _require_same(given, self.shape_)
        return super()._project(rows)

    def fast_scorer(self) -> Callable[[Floats], Any]:
        """Return a plain function that scores rows; see :meth:`PCSDA.fast_scorer`.

        Returns
        -------
        function
            Takes a float array that holds one sample or several, as tensors or as flat rows.
        """
        flat = super().fast_scorer()
        sizes, n_features = self.shape_, prod(self.shape_)

        def score(rows: Floats) -> Any:
            before = np.ndim(rows) - len(sizes)
            # An array of shape (1, n_features) is one row, also if a tensor has that shape.
            is_rows = np.ndim(rows) == 2 and rows.shape[1] == n_features
            if before >= 0 and rows.shape[before:] == sizes and not is_rows:
                rows = rows.reshape(*rows.shape[:before], n_features)
            return flat(rows)

        return score


def usual_dims(X: Floats, positive: Mask, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the default number of directions for each mode.

    The number is 5, or fewer if the samples vary in fewer directions along the mode. The product of
    the numbers is at most the number of distinct negatives.
    """
    ranks = mode_ranks(X, sizes)
    dims = [min(rank, DEFAULT_COMPONENTS) for rank in ranks]
    most = count_distinct(X, prod(dims), np.flatnonzero(~positive))
    while prod(dims) > most:
        dims[dims.index(max(dims))] -= 1
    return tuple(dims)


def flattened(X: Any) -> tuple[Any, tuple[int, ...] | None]:
    """Flatten tensors to rows.

    Return the rows and the mode sizes. If X is two-dimensional already, the mode sizes are None.
    """
    if validation.is_dask(X) or sparse.issparse(X) or hasattr(X, "columns"):
        return X, None
    array = X if hasattr(X, "ndim") else np.asarray(X)
    if array.ndim <= 2:
        return X, None
    return np.reshape(array, (len(array), -1)), tuple(map(int, array.shape[1:]))


def _require_same(given: tuple[int, ...], sizes: tuple[int, ...]) -> None:
    if given != sizes:
        raise ValueError(
            f"X has samples of shape {given}, but {sizes} is expected; reshape them, or leave "
            "shape=None when fitting to use the shape of X"
        )


def mode_sizes(shape: Sequence[int] | None, n_columns: int) -> tuple[int, ...]:
    """Return the size of each mode of a row; if `shape` is None, a row has a single mode."""
    if shape is None:
        return (n_columns,)
    sizes = tuple(int(size) for size in np.atleast_1d(shape))
    if np.prod(sizes) != n_columns:
        raise ValueError(
            f"shape={sizes} multiplies to {np.prod(sizes)}, but the rows of X have {n_columns} "
            "entries; give the sizes of the modes, in C order"
        )
    return sizes


def mode_dims(n_components: Any, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the number of directions in each mode, after checking it against the mode sizes."""
    dims = tuple(int(d) for d in np.atleast_1d(n_components))
    if len(dims) != len(sizes):
        # Rows of numbers are tensors with one mode, unless their shape is given.
        or_shape = ", or shape= if the rows of X are flat tensors" if len(sizes) == 1 else ""
        raise ValueError(
            f"n_components={n_components!r} has {number_of(len(dims), 'entry', 'entries')}, but "
            f"shape {sizes} has {number_of(len(sizes), 'mode', 'modes')}; give one number for each "
            f"mode, or None for up to {DEFAULT_COMPONENTS} each{or_shape}"
        )
    for mode, (d, size) in enumerate(zip(dims, sizes, strict=True)):
        if d > size:
            raise ValueError(
                f"n_components[{mode}]={d} must be at most {size}, the size of mode {mode} in "
                f"shape {sizes}; lower it"
            )
    return dims
