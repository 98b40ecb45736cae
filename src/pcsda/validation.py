"""Check options, numbers and rows from users; `targets` checks labels, weights and groups.

Each error message gives the value, the bound and the remedy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from numbers import Integral, Real
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import validate_data

from .core.linalg import Floats, Mask
from .core.warning import number_of, warn
from .memory import available_memory
from .targets import is_missing


class SparseLike(Protocol):
    """A sparse matrix or array from SciPy, which has no type annotations."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of rows and the number of columns."""

    def tocsr(self) -> Any:
        """Convert to compressed sparse rows."""


# Sparse rows are made dense within these bounds, because a fit can leave single rows out only if
# they are dense. The first is the size of the dense array in bytes, the second the number of
# multiplications for its inner products or its scatter, whichever is smaller: up to about a minute
# on one core. A fit takes DENSE_PEAK times the memory of the array in float64.
LARGE_DENSE, DENSE_WORK, DENSE_PEAK = 2**31, 10**12, 4
# Rows as users pass them: arrays, lists, data frames and sparse matrices.
MatrixLike: TypeAlias = ArrayLike | SparseLike
# What scikit-learn accepts as random_state.
Seed: TypeAlias = int | np.random.RandomState | None
KERNELS = ("linear", "rbf", "laplacian", "poly", "polynomial", "sigmoid", "cosine", "chi2")
BANDWIDTHS = ("positive", "all", "scale")
NOT_INSTALLED = ", which is not installed:"


def import_extra(module: str, who_needs: str, extra: str, how: str = "; install it with") -> Any:
    """Import an optional module, or raise ImportError naming the extra that provides it."""
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise ImportError(f'{who_needs} {package}{how} pip install "pcsda[{extra}]"') from error


def check_option(name: str, value: object, options: tuple[str, ...], instead: str = "") -> None:
    """Reject a value that is not one of the options; `instead` ends the message."""
    if not (isinstance(value, str) and value in options):
        listed = ", ".join(repr(option) for option in options)
        raise ValueError(f"{name}={value!r} must be one of {listed}{instead}")


def check_count(name: str, value: object, *instead: str | None) -> None:
    """Reject anything except a whole number of at least 1, or one of the values in `instead`."""
    if any(value is other or (isinstance(value, str) and value == other) for other in instead):
        return
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        others = "".join(f", or {other!r}" for other in instead)
        raise ValueError(f"{name}={value!r} must be a whole number of at least 1{others}")


def check_flag(name: str, value: object) -> None:
    """Reject anything except True and False: a string such as "no" would count as true."""
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name}={value!r} must be True or False")


def random_source(random_state: Seed) -> np.random.RandomState:
    """Return scikit-learn's generator for a `random_state`, after checking it."""
    try:
        source: np.random.RandomState = check_random_state(random_state)
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"random_state={random_state!r} must be None, a numpy.random.RandomState or a whole "
            "number from 0 to 4294967295"
        ) from error
    return source


def check_number(name: str, value: object, instead: str | None = None) -> None:
    """Reject anything except a finite number of at least 0, or the word `instead`."""
    if instead is not None and isinstance(value, str) and value == instead:
        return
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= float(value) < np.inf:
        other = f", or {instead!r}" if instead else ""
        raise ValueError(f"{name}={value!r} must be a number of at least 0{other}")


def validated(model: BaseEstimator, *given: Any, **rules: Any) -> Any:
    """Check rows as scikit-learn does, silently if the sum of large float32 numbers overflows.

    If a data frame is refused because of some of its columns, the error names them. If a single
    column of embeddings is refused, the error says how to make a matrix of it.
    """
    names = column_names(given[0])
    if names:
        rules = {**rules, "ensure_all_finite": True}
    try:
        with np.errstate(invalid="ignore"):
            return validate_data(model, *given, **rules)
    except (TypeError, ValueError) as error:
        known = list(getattr(model, "feature_names_in_", names))
        fault = (
            _fault_of_columns(given[0], names)
            if rules.get("reset", True) or names == known
            else None
        )
        if fault is None and _is_column_of_lists(given[0]):
            fault = "X is one column with a list in each entry; pass a matrix, np.stack(X)"
        if fault is None:
            raise
        raise ValueError(fault) from error


@contextmanager
def named(argument: str) -> Iterator[None]:
    """Begin errors about rows with the name of their argument, which scikit-learn's call X."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{argument}: {error}") from error


def column_names(X: Any) -> list[Any]:
    """Return the column names of a data frame or an Arrow table; none for any other input."""
    if not hasattr(X, "shape") or not hasattr(X, "columns"):
        return []
    return list(getattr(X, "column_names", X.columns))


def _fault_of_columns(X: Any, names: list[Any]) -> str | None:
    """Say which columns of a data frame are not numeric, or else which have missing values."""
    others, gaps, lists = [], [], []
    for name in names if len({*map(repr, names)}) == len(names) else []:
        values = np.asarray(X[name])
        there = _present(values)
        if not there.all():
            gaps.append(f"{name!r} ({number_of(int(np.sum(~there)), 'row')})")
        try:
            if values.dtype.kind in "mMc":
                raise TypeError
            values[there].astype(np.float64)
        except (TypeError, ValueError):
            odd = [value for value in values[there] if not _is_number(value)]
            if odd and all(np.ndim(value) == 1 for value in odd):
                lists.append(name)
            first = [f" (such as {str(value)[:20]!r})" for value in odd[:1]]
            others.append(f"{name!r}{''.join(first)}")
    if others:
        what, them = ("columns that are", "them") if len(others) > 1 else ("a column that is", "it")
        remedy = f"encode {them} as numbers, for instance with sklearn.preprocessing.OneHotEncoder"
        if lists:  # an embedding, which tables of the command line and of blocks may hold
            remedy = (
                f"pass the lists of a column as a matrix, np.stack(np.asarray(X[{lists[0]!r}]))"
            )
        return f"X has {what} not numeric: {_some(others)}; leave {them} out, or {remedy}"
    if gaps:
        return (
            f"Input X contains NaN in {number_of(len(gaps), 'column')}: {_some(gaps)}; leave those "
            "rows out, or fill them in, for instance with sklearn.impute.SimpleImputer"
        )
    return None


def _is_column_of_lists(X: Any) -> bool:
    """Return whether X is a series or array of lists, such as embeddings, all of one length."""
    if getattr(getattr(X, "dtype", None), "kind", "") != "O" or np.ndim(X) != 1:
        return False
    lists = [v for v in X if isinstance(v, list | tuple) or (isinstance(v, np.ndarray) and v.ndim)]
    return len(lists) == len(X) and len({len(v) for v in lists}) == 1


def _is_number(value: Any) -> bool:
    """Return whether a value of a column is a real number, or text for one."""
    if np.ndim(value) > 0 or isinstance(value, np.datetime64 | np.timedelta64 | complex):
        return False
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def _present(values: NDArray[Any]) -> Mask:
    """Return a mask of the values of a column that are not missing."""
    if values.dtype.kind in "biufc":
        return np.asarray(~np.isnan(values))
    each = values.tolist()
    return np.array([np.ndim(value) > 0 or not is_missing(value) for value in each], dtype=bool)


def _some(texts: list[str], limit: int = 5) -> str:
    """Join texts by commas; leave out all but the first few if there are many."""
    rest = len(texts) - limit
    return ", ".join(texts[:limit]) + (f" and {rest} more" if rest > 0 else "")


def takes_plain(model: BaseEstimator, X: Any, y: Any, finite: bool = True) -> bool:
    """Return whether X and y are plain arrays that pass all of scikit-learn's checks for a fit.

    If so, the model stores the number of columns, as it would with these checks, which take a
    fifteenth of a small fit. With ``finite=False``, X may have NaN and infinity.
    """
    if type(X) is not np.ndarray or type(y) is not np.ndarray or y.dtype.kind not in "biu":
        return False
    if X.dtype not in (np.float32, np.float64) or X.ndim != 2 or y.shape != X.shape[:1]:
        return False
    with np.errstate(over="ignore", invalid="ignore"):
        if X.size == 0 or (finite and not np.isfinite(X.sum())):
            return False
    model.n_features_in_ = X.shape[1]
    model.__dict__.pop("feature_names_in_", None)
    return True


def ready_rows(model: BaseEstimator, X: object) -> Floats | None:
    """Return X if it is already valid and can skip scikit-learn's checks; otherwise None.

    The checks are slow if there is only one row.
    """
    if type(X) is not np.ndarray or X.dtype not in (np.float32, np.float64):
        return None
    fits = X.ndim == 2 and len(X) > 0 and X.shape[1] == model.n_features_in_
    if not fits or hasattr(model, "feature_names_in_") or not np.isfinite(X).all():
        return None
    return X


def as_rows(X: Any) -> Any:
    """Return rows that a model has accepted as an array or CSR matrix of floats; tensors flat."""
    X = check_array(
        X,
        accept_sparse="csr",
        dtype=[np.float64, np.float32],
        ensure_all_finite=False,
        allow_nd=True,
        ensure_min_samples=0,
    )
    return X if X.ndim == 2 else X.reshape(len(X), -1)


def dense_if_small(X: Any) -> Any:
    """Return sparse rows as a dense array, unless that takes too much memory or too long to fit."""
    return X.toarray() if sparse.issparse(X) and _why_sparse(X) is None else X


def _why_sparse(X: Any) -> str | None:
    """Return why sparse rows stay sparse, naming value and bound, or None if they may be dense."""
    n_rows, width = X.shape
    size = n_rows * width * X.dtype.itemsize
    if size > LARGE_DENSE:
        return f"{size / 2**30:.3g} GiB as a dense array exceed {LARGE_DENSE / 2**30:.3g} GiB"
    if (work := n_rows * width * min(n_rows, width)) > DENSE_WORK:
        return f"{work:.2g} multiplications for a dense array exceed {DENSE_WORK:.0e}"
    peak = DENSE_PEAK * 8 * n_rows * width
    if peak > (available := available_memory()):
        return (
            f"a dense fit takes {peak / 2**30:.3g} GiB, but {available / 2**30:.3g} GiB are "
            "available"
        )
    return None


def warn_of_sparse(X: Any) -> None:
    """Warn that rows which stay sparse are fitted without leaving rows out."""
    if sparse.issparse(X):
        warn(
            f"X of shape {X.shape} stays sparse, because {_why_sparse(X)}; solver='lsqr' leaves no "
            "rows out, so covariances come from the training rows, and the model ranks and counts "
            "less well than a dense fit. Use X.toarray() if it fits in memory, float32 or fewer "
            "columns, or set solver='lsqr' if this is what you want"
        )


def refuse_sparse(X: Any, setting: str, remedy: str) -> None:
    """Reject sparse input for a setting that would need a dense copy.

    The error message contains `setting` and `remedy`.
    """
    if sparse.issparse(X):
        size = X.shape[0] * X.shape[1] * 8 / 2**30
        raise TypeError(
            f"{setting} does not take sparse input: the dense matrix of shape {X.shape} "
            f"would need {size:.3g} GiB; {remedy}"
        )


def is_dask(value: object) -> bool:
    """Return whether a value is a Dask collection, without importing Dask."""
    return type(value).__module__.partition(".")[0] in ("dask", "dask_expr")


def refuse_dask(*arrays: Any, predicts: bool = False) -> None:
    """Reject a Dask collection, which would otherwise be loaded into memory as a whole."""
    how = "pcsda.distributed.fit(model, X, y), or pcsda.fit_blocks for data larger than memory"
    if predicts:
        how = "pcsda.distributed.predict(model, X), which stays lazy, or pcsda.predict_blocks"
    for array in filter(is_dask, arrays):
        raise TypeError(
            f"a Dask {type(array).__name__} would be loaded into memory here; use {how}. If it "
            "fits, pass its .compute()"
        )


def check_kernel(
    kernel: str | Callable[..., float],
    gamma: object,
    kernels: tuple[str, ...] = KERNELS,
    params: object = None,
) -> None:
    """Reject unknown kernels and bandwidths, and `params` that the kernel would not get."""
    if not callable(kernel):
        check_option("kernel", kernel, kernels)
    if params is not None and not isinstance(params, Mapping):
        raise ValueError(f"kernel_params={params!r} must be None or a dictionary")
    if params and not callable(kernel):
        raise ValueError(
            f"kernel_params={params!r} is passed to a function given as kernel, and has no effect "
            f"on kernel={kernel!r}; set gamma, degree or coef0 of the estimator instead"
        )
    if isinstance(gamma, str):
        check_option("gamma", gamma, BANDWIDTHS)
    elif isinstance(gamma, bool) or not isinstance(gamma, Real) or not 0 < float(gamma) < np.inf:
        listed = ", ".join(repr(rule) for rule in BANDWIDTHS)
        raise ValueError(f"gamma={gamma!r} must be a number above 0, or one of {listed}")
