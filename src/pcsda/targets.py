"""Check labels, and the weights and groups of rows.

Each error message gives the value, the bound and the remedy.
"""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_array, column_or_1d
from sklearn.utils.multiclass import check_classification_targets, type_of_target

from .core.linalg import Array, Ints, Mask
from .core.warning import number_of, warn

# Fourth powers of sums of weights up to this size do not overflow.
LARGEST_WEIGHT = 1e75
# A class weight of at least this size warns. With 5 positives and 295 negatives in six columns,
# weights of 3, 8 and 30 for the positives raised Cllr from 0.52 to 0.54, 0.63 and 1.07.
HEAVY = 4.0
# A class of interest that nobody named and that has at least this share of the rows warns.
COMMON = 0.8
NEGATIVE = "negative entry", "negative entries"
MIXED = "mixes labels of the types {kinds}, which have no order; use labels of one type"
MIXED_NAMES = MIXED.replace("labels", "names")
NAME_ALL = "name all classes in the first call of partial_fit"


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


def shown(label: object) -> str:
    """Write a label for a message: 9 rather than np.int64(9)."""
    return repr(label.item() if isinstance(label, np.generic) else label)


def shorten(labels: list[Any]) -> str:
    """Format labels as text, showing only the first ten if there are more."""
    shown = ", ".join(map(repr, labels[:10]))
    return f"[{shown}, ... {len(labels)} in all]" if len(labels) > 10 else f"[{shown}]"


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
    positive = y == known[index]
    if classes is None and pos_label is None:
        warn_of_common(known.tolist(), int(np.sum(positive)), len(positive))
    return known, index, positive


def warn_of_common(names: list[Any], n_positive: int, n_rows: int) -> None:
    """Warn if the second of two names, the class of interest by default, has nearly all rows."""
    if isinstance(names[-1], str) and n_positive >= COMMON * n_rows:
        warn(
            f"the class of interest is {names[1]!r}, the second name in sorted order, with "
            f"{n_positive} of {n_rows} rows; for the other, pass pos_label={names[0]!r}, and "
            f"pos_label={names[1]!r} if this one is meant"
        )


def refuse_label(name: str, value: object, classes: NDArray[Any]) -> None:
    """Reject a value that marks strangers if it is also a label of the bank."""
    if np.ndim(value) == 0 and value in classes.tolist():  # type: ignore[arg-type]
        raise ValueError(
            f"{name}={shown(value)} is a label of the bank, so strangers could not be told from "
            "it; use another value"
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
            f"pos_label={shown(pos_label)} is not a label of y, which has "
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
            _numbers(sample_weight), dtype=np.float64, ensure_2d=False, input_name="sample_weight"
        )
    check_length("sample_weight", weights, n_rows, "weight")
    if np.any(weights < 0):
        raise ValueError(
            f"sample_weight has {number_of((weights < 0).sum(), *NEGATIVE)} (smallest "
            f"{weights.min():g}); weights must be at least 0"
        )
    return weights


def _numbers(sample_weight: ArrayLike) -> ArrayLike:
    """Return the weights; refuse text, complex numbers and dates, which have no numeric value."""
    kind = np.asarray(sample_weight).dtype
    try:
        if kind.kind not in "cMm":
            np.asarray(sample_weight, dtype=np.float64)
            return sample_weight
    except (TypeError, ValueError):
        pass
    raise ValueError(
        f"sample_weight has entries of type {kind} that are not numbers; give one number for each "
        "row"
    )


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


def warn_of_class_weights(weights: Array, positive: Mask) -> None:
    """Warn if each class has a weight of its own, and one counts a row as several copies.

    Such weights come from habit. Other classifiers balance the classes by them; here they only make
    a few rows pass for many.
    """
    counted = weights > 0
    classes = [weights[rows & counted] for rows in (positive, ~positive)]
    if any(len(own) < 2 or np.ptp(own) > 1e-9 * own[0] for own in classes):
        return
    ours, theirs = (float(own[0]) for own in classes)
    if max(ours, theirs) < HEAVY or abs(ours - theirs) <= 1e-9 * max(ours, theirs):
        return
    which, heavy = ("positives", classes[0]) if ours > theirs else ("negatives", classes[1])
    warn(
        f"sample_weight is {ours:.3g} for all positives and {theirs:.3g} for all negatives, as "
        f"class weights are. A weight counts copies of a row, so {len(heavy)} {which} pass for "
        f"{heavy.sum():.3g}, and log-likelihood ratios and intervals look far surer than they are: "
        "leave sample_weight out, and give class frequencies as priors, for instance priors='equal'"
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


def check_groups(
    groups: ArrayLike | None, n_rows: int, *, keep_single: bool = False
) -> Ints | None:
    """Return the group number of each row, or None if `groups` is None.

    All rows of a group are left out of the fit together. If each row has a group of its own, the
    result is None too, so that such groups change nothing. With `keep_single`, it has the numbers
    even then: banks add further groups later, and some splitters require groups.
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
    together = distinct(ids, "groups " + MIXED_NAMES)[1]
    alone = len(together) == together.max(initial=-1) + 1
    return None if alone and not keep_single else together


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
