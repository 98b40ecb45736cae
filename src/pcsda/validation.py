"""Check user input; each error message gives the value, the bound and the remedy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from numbers import Integral, Real
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils import check_array, check_random_state, column_or_1d
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import validate_data

from .core.linalg import Array, Floats, Ints, Mask
from .core.warning import number_of, warn
from .memory import available_memory


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

# Fourth powers of sums of weights up to this size do not overflow.
LARGEST_WEIGHT = 1e75
NEGATIVE = "negative entry", "negative entries"
KERNELS = ("linear", "rbf", "laplacian", "poly", "polynomial", "sigmoid", "cosine", "chi2")
MIXED = "mixes labels of the types {kinds}, which have no order; use labels of one type"
MIXED_NAMES = MIXED.replace("labels", "names")
NAME_ALL = "name all classes in the first call of partial_fit"
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


def distinct(labels: NDArray[Any], mixed: str = "the data " + MIXED) -> tuple[NDArray[Any], Ints]:
    """Return the sorted distinct labels and, for each entry, the index of its label.

    This works like ``np.unique``, but counts small integers, the usual labels, instead of sorting
    them. `mixed` is the error message for labels that cannot be sorted.
    """
    if labels.size and labels.dtype.kind in "biu" and 0 <= labels.min() <= labels.max() < 2**15:
        places = labels.astype(np.intp)
        there = np.bincount(places) > 0
        return np.flatnonzero(there).astype(labels.dtype), (np.cumsum(there) - 1)[places]
    try:
        names, codes = np.unique(labels, return_inverse=True)
    except TypeError as error:
        kinds = sorted({type(label).__name__ for label in labels.ravel().tolist()})
        text = mixed.format(kinds=kinds, joined=" and ".join(kinds))
        raise ValueError(text) from error
    return names, codes.ravel()


def plain_labels(y: Any) -> Any:
    """Require a label for every row, and turn numbers that are stored as objects into numbers.

    Only one-dimensional arrays and columns of objects or dates are checked. Other input is returned
    unchanged.
    """
    kind = getattr(getattr(y, "dtype", None), "kind", "")
    if kind not in ("O", "M") or np.ndim(y) != 1:
        return y
    entries = np.asarray(y, dtype=object if kind == "O" else None)
    missing = np.isnat(entries) if kind == "M" else [is_missing(label) for label in entries]
    if np.any(missing):
        raise ValueError(
            f"y is missing for {np.sum(missing)} of {len(entries)} rows; leave those rows out"
        )
    kinds = {type(label) for label in entries} if kind == "O" else set()
    return np.array(entries.tolist()) if kinds in ({int}, {bool}, {np.int64}) else y


def is_missing(label: object) -> bool:
    """Return whether a label is None, NaN, NaT or pandas.NA."""
    try:
        return label is None or bool(label != label)
    except TypeError:  # pandas.NA is neither equal nor unequal to itself
        return True


def different_labels(y: NDArray[Any]) -> NDArray[Any]:
    """Return the distinct labels in y, sorted."""
    return distinct(y, f"y {MIXED} and leave out rows without a label")[0]


def shorten(labels: list[Any], limit: int = 10) -> str:
    """Format labels as text, showing only the first few if there are many."""
    shown = ", ".join(repr(label) for label in labels[:limit])
    return f"[{shown}, ... {len(labels)} in all]" if len(labels) > limit else f"[{shown}]"


def check_labels(
    y: Any, pos_label: object, classes: ArrayLike | None = None, remedy: str = NAME_ALL
) -> tuple[NDArray[Any], int, Any]:
    """Encode labels as the class of interest against the rest.

    There must be two labels, or more if `pos_label` is given. If there are more, all labels other
    than `pos_label` form the rest, and the returned `classes` are a name for the rest and
    `pos_label`. The argument `classes` may be the result of an earlier call; `remedy` ends the
    message about labels outside it.

    Returns
    -------
    classes : array of shape (2,)
    index : int
        Index of the class of interest in `classes`.
    positive : boolean array of shape (n,)
    """
    if not (isinstance(y, np.ndarray) and y.ndim == 1):
        y = column_or_1d(y, warn=True)
    found = different_labels(y)
    # Whole numbers are always classes. For other types, the distinct labels show what kind of
    # target y is; if there are many, scikit-learn needs all of y.
    if found.dtype.kind not in "biu":
        check_classification_targets(found if len(found) <= 20 else y)
    if names_rest(classes, pos_label):
        return np.asarray(classes), 1, y == np.asarray(classes)[1]
    known = found if classes is None else np.unique(np.asarray(classes))
    if len(known) > 2 and pos_label is not None:
        label = known.tolist()[positive_index(known, pos_label)]
        return with_rest(known, label), 1, y == label
    if len(known) > 2:
        raise ValueError(
            "Only binary classification is supported. The type of the target is "
            f"{type_of_target(known)}: y has {len(known)} labels; fit on y == label for one "
            "class or name it with pos_label, or use VerifierBank for all of them"
        )
    if len(known) < 2:
        raise ValueError(
            f"y has one class only, {known.tolist()}; samples of the class of interest and of the "
            "rest are both needed"
        )
    unseen = found[~np.isin(found, known)]
    if len(unseen):
        raise ValueError(
            f"y has labels {unseen.tolist()} that are not among classes {known.tolist()}; leave "
            f"those rows out, or {remedy}"
        )
    index = positive_index(known, pos_label)
    return known, index, y == known[index]


def refuse_label(name: str, value: object, classes: NDArray[Any]) -> None:
    """Reject a value that marks strangers if it is also a label of the bank."""
    if np.ndim(value) == 0 and value in classes.tolist():  # type: ignore[arg-type]
        raise ValueError(
            f"{name}={value!r} is a label of the bank, so strangers could not be told from it; "
            "use another value"
        )


def with_rest(labels: NDArray[Any], label: object) -> NDArray[Any]:
    """Return a name for the rest and the label itself: "not weld" and "weld", or -1 and 7."""
    if isinstance(label, str):
        rest: Any = f"not {label}"
        while rest in labels:
            rest = f"not {rest}"
        return np.array([rest, label], dtype=object if labels.dtype == object else None)
    return np.array([min(-1, int(np.floor(labels.min())) - 1), label])


def names_rest(classes: Any, pos_label: Any) -> bool:
    """Return whether the first of two classes is a name made by :func:`with_rest`."""
    if pos_label is None or classes is None or len(classes) != 2:
        return False
    rest, label = np.asarray(classes).tolist()
    if np.ndim(pos_label) or label != pos_label:
        return False
    if isinstance(rest, str):
        return rest.startswith("not ") and rest.endswith(f"not {label}")
    return bool(rest <= -1)


def positive_index(classes: NDArray[Any], pos_label: Any) -> int:
    """Return the index of the class of interest: `pos_label` or, if None, the second class."""
    if pos_label is None:
        return 1
    labels = [] if np.ndim(pos_label) else classes.tolist()
    matches = [index for index, label in enumerate(labels) if label == pos_label]
    if not matches:
        raise ValueError(
            f"pos_label={pos_label!r} is not a label of y, which has "
            f"{shorten(classes.tolist())}; name one of those"
        )
    return matches[0]


def check_length(
    name: str, values: NDArray[Any], n_rows: int, entry: str = "entry", note: str = ""
) -> None:
    """Raise ValueError unless there is one value for each row; `note` ends the message."""
    if values.shape != (n_rows,):
        raise ValueError(
            f"{name} has shape {values.shape} but must have one {entry} for each of the {n_rows} "
            f"rows of X{note}"
        )


def weight_values(sample_weight: ArrayLike, n_rows: int) -> Array:
    """Return the weights as an array, after checking that each row has a non-negative weight.

    A single number is the weight of every row.
    """
    weights: Array
    if isinstance(sample_weight, Real):
        weights = np.full(n_rows, float(sample_weight))
    else:
        weights = check_array(
            sample_weight, dtype=np.float64, ensure_2d=False, input_name="sample_weight"
        )
    check_length("sample_weight", weights, n_rows, "weight")
    if np.any(weights < 0):
        raise ValueError(
            f"sample_weight has {number_of((weights < 0).sum(), *NEGATIVE)} (smallest "
            f"{weights.min():g}); weights must be at least 0"
        )
    return weights


def check_weights(sample_weight: ArrayLike | None, positive: Mask) -> Array | None:
    """Check sample weights and return them as an array, or None if all weights are one."""
    if sample_weight is None:
        return None
    weights = weight_values(sample_weight, len(positive))
    for which, rows in (("positive", positive), ("negative", ~positive)):
        if rows.any() and not weights[rows].any():
            raise ValueError(
                f"sample_weight is zero for the whole {which} class; at least one sample must count"
            )
    with np.errstate(over="ignore"):
        total = weights.sum()
    if total > LARGEST_WEIGHT:
        raise ValueError(
            f"sample_weight sums to {total:.3g}, above {LARGEST_WEIGHT:g}, so its products "
            "overflow; divide all weights by their mean"
        )
    for rows in (positive, ~positive):
        if rows.any() and weights[rows].sum() < 1 / LARGEST_WEIGHT:
            raise ValueError(
                f"sample_weight sums to {weights[rows].sum():.3g} in one class, below "
                f"{1 / LARGEST_WEIGHT:g}, so its products underflow; divide all weights by their "
                "mean"
            )
    return None if np.all(weights == 1) else weights


def warn_of_light(total: float, which: str, n_rows: int = 0) -> None:
    """Warn if the weights of a class are so small that many rows count as a few, or as none."""
    if total < max(1.0, min(n_rows / 10, 10.0)):
        rows = number_of(total, "row", digits=3)
        warn(
            f"the weights of the {which} sum to {total:.3g}, and a weight of 1 means one row, so "
            f"they count as {rows} in all and say little; multiply all weights so that their "
            "mean is 1"
        )


def warn_of_one_group(together: Ints, positive: Mask) -> None:
    """Warn if all rows of a class are in one group, so that none can be left out of the fit."""
    for which, rows in (("positives", positive), ("negatives", ~positive)):
        count = int(np.sum(rows))
        if count > 1 and np.ptp(together[rows]) == 0:
            warn(
                f"groups puts all {count} {which} into one group, so none of them can be left "
                "out, and the log-likelihood ratios are not calibrated; give each recording, "
                "person or day its own group"
            )


def check_groups(groups: ArrayLike | None, n_rows: int) -> Ints | None:
    """Return the group number of each row, or None if `groups` is None.

    All rows of a group are left out of the fit together.
    """
    if groups is None:
        return None
    ids = np.asarray(groups)
    check_length("groups", ids, n_rows)
    if ids.dtype.kind == "f" and np.isnan(ids).any():
        raise ValueError(
            f"groups is NaN for {np.isnan(ids).sum()} rows, which would form one group; give each "
            "row a group, and a row without relatives its own group"
        )
    return distinct(ids, "groups " + MIXED_NAMES)[1]


def check_unchecked(unchecked: ArrayLike | None, positive: Mask) -> Mask | None:
    """Check and return the mask of negatives whose labels nobody has verified."""
    if unchecked is None:
        return None
    mask = np.asarray(unchecked)
    check_length("unchecked", mask, len(positive))
    if mask.dtype != bool:
        if mask.dtype.kind not in "iuf" or not np.isin(mask, (0, 1)).all():
            raise ValueError(
                f"unchecked has entries of type {mask.dtype} other than True and False; give a "
                "boolean mask of the negatives that were not checked"
            )
        mask = mask.astype(bool)
    if np.any(mask & positive):
        raise ValueError(
            f"unchecked marks {np.sum(mask & positive)} positive rows; only negatives may be "
            "unchecked, so set those entries to False"
        )
    return mask


def validated(model: BaseEstimator, *given: Any, **rules: Any) -> Any:
    """Check rows as scikit-learn does, silently if the sum of large float32 numbers overflows.

    If a data frame is refused because of some of its columns, the error names them.
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
        if fault is None:
            raise
        raise ValueError(fault) from error


def column_names(X: Any) -> list[Any]:
    """Return the column names of a data frame or an Arrow table; none for any other input."""
    if not hasattr(X, "shape") or not hasattr(X, "columns"):
        return []
    return list(getattr(X, "column_names", X.columns))


def _fault_of_columns(X: Any, names: list[Any]) -> str | None:
    """Say which columns of a data frame are not numeric, or else which have missing values."""
    others, gaps = [], []
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
            first = [f" (such as {str(value)[:20]!r})" for value in odd[:1]]
            others.append(f"{name!r}{''.join(first)}")
    if others:
        what, them = ("columns that are", "them") if len(others) > 1 else ("a column that is", "it")
        return (
            f"X has {what} not numeric: {_some(others)}; leave {them} out, or encode {them} as "
            "numbers, for instance with sklearn.preprocessing.OneHotEncoder"
        )
    if gaps:
        return (
            f"Input X contains NaN in {number_of(len(gaps), 'column')}: {_some(gaps)}; leave those "
            "rows out, or fill them in, for instance with sklearn.impute.SimpleImputer"
        )
    return None


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
