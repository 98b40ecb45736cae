"""Names of the subclasses and training rows of a fitted model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_consistent_length, column_or_1d

from ..core.linalg import Array, Floats, Ints
from ..partition import EMPTY, mostly, mostly_of
from ..unwrap import unwrap
from ..validation import MatrixLike
from .attribution import NEAREST, nearest_rows

if TYPE_CHECKING:
    from .verifier import Verifier

# More subclasses than this, such as one per sample, are not named.
MOST_NAMED = 100
# Name of a subclass whose rows were removed from the bank.
REMOVED = "removed since"


def name_by_labels(model: Verifier, y: ArrayLike, subclass_labels: ArrayLike | None) -> None:
    """After a fit, name the subclasses if the negatives have more than one label."""
    labels = np.asarray(y if subclass_labels is None else subclass_labels).ravel()
    rest = np.unique(labels[model.partition_ > 0]) if labels.dtype != object else labels
    if len(rest) > 1 and len(model.subclass_counts_) <= MOST_NAMED:
        model.subclass_names_ = mostly(model.partition_, labels.astype(str))


def name_as_given(model: Verifier, labels: list[Any]) -> None:
    """Name the subclasses of a model after the labels that define them, in the same order."""
    if 1 < len(labels) <= MOST_NAMED:
        model.subclass_names_ = [str(label) for label in labels]


def name_in_bank(model: BaseEstimator, owners: Ints, labels: list[Any]) -> None:
    """Name the subclasses of a bank's model after the labels of their rows.

    A model that was fitted before the latest rows were added keeps its names.

    Parameters
    ----------
    model : the estimator of one label, or a search or pipeline that contains it
    owners : array of shape (N,)
        Label number of each row, -1 for rows without a label.
    labels : list
    """
    inside: Any = unwrap(model).model
    groups = getattr(inside, "partition_", None)
    if groups is None or len(groups) != len(owners) or not hasattr(inside, "subclass_counts_"):
        return
    # If labels share two covariances, the labels themselves are the subclasses.
    count = len(inside.subclass_counts_)
    if count <= max(MOST_NAMED, len(labels)):
        kinds, codes = np.unique([*map(str, labels), "background"], return_inverse=True)
        found = mostly_of(groups, kinds, codes[owners])
        found += [EMPTY] * (count - len(found))
        inside.subclass_names_ = [REMOVED if name == EMPTY else name for name in found]


def add_examples(model: BaseEstimator, X: Floats, ids: NDArray[np.str_] | None) -> None:
    """Add examples of each subclass to a bank's model, if the bank's rows have names."""
    inside: Any = unwrap(model).model
    if ids is not None and len(getattr(inside, "partition_", ())) == len(ids):
        name_rows(inside, X=unwrap(model).rows(X), ids=ids)


def name_rows(
    self: Verifier,
    labels: ArrayLike | None = None,
    *,
    X: MatrixLike | None = None,
    ids: ArrayLike | None = None,
) -> Verifier:
    """Name the subclasses and the training rows, for explanations, plots, reports and files.

    `fit` names the subclasses if y has more than two labels or `subclass_labels` are given.

    Parameters
    ----------
    labels : array-like of shape (n_samples,), default=None
        Labels of the training rows, finer than those given to `fit`. A subclass is named after its
        majority label, for instance "mostly 8", or "8" if all its rows have that label.
    X : array-like or sparse matrix of shape (n_samples, n_features), default=None
        The training rows. The rows nearest to the centre of a subclass become its examples.
    ids : array-like of shape (n_samples,), default=None
        Names of the training rows; None means their numbers. A kernel model keeps all names,
        because it explains rows by their neighbours. A linear model keeps only those of examples.

    Returns
    -------
    self : estimator
        It now has `subclass_names_` if labels were given, `subclass_examples_` if X was given, and
        `row_ids_` if it is a kernel model and ids were given. The next fit removes them.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from pcsda import PCSDA
    >>> X, digit = load_digits(return_X_y=True)
    >>> model = PCSDA(n_subclasses=9, random_state=0).fit(X, digit == 3)
    >>> model.name_rows(digit, X=X).subclass_names_[:2]
    ['mostly 9', 'mostly 4']
    >>> len(model.subclass_examples_[0])
    3
    """
    groups = getattr(self, "partition_", None)
    if groups is None:
        raise ValueError(
            f"this {type(self).__name__} does not know the subclasses of its training rows; "
            "name rows after fit, as a fit in blocks does not record them"
        )
    check_consistent_length(groups, labels, X, ids)
    if labels is not None:
        self.subclass_names_ = mostly(groups, column_or_1d(labels).astype(str))
    names = np.arange(len(groups)) if ids is None else column_or_1d(ids)
    if ids is not None and getattr(self, "X_fit_", None) is not None:
        self.row_ids_ = names.astype(str).tolist()
    if X is not None:
        self.subclass_examples_ = [
            names[near].astype(str).tolist() for near in _nearest_members(self, X, groups)
        ]
    return self


def _nearest_members(model: Verifier, X: MatrixLike, groups: Ints) -> list[Ints]:
    """Return, for each subclass, the numbers of its rows nearest to its centre in the subspace."""
    centres: Array = model.density_.base.subclasses
    # A second density may have axes of its own, on which there are no centres.
    z = np.asarray(model.transform(X), dtype=np.float64)[:, : centres.shape[1]]
    found = []
    for number, centre in enumerate(centres, 1):
        members = np.flatnonzero(groups == number)
        found.append(nearest_rows(centre[None], z[members], members)[0][:NEAREST])
    return found
