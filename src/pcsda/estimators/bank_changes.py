"""Changing a fitted bank: labels and rows added or removed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted, validate_data

from ..core.linalg import Floats, Mask, SingularMatrixError
from ..core.many import BACKGROUND
from ..partition import nearest
from .bank_fit import BankFit
from .bank_scores import Labels
from .changes import BankRows, alone, check_kind
from .kindred_labels import KindredLabels
from .threads import updates


class BankChanges(BankFit):
    """Methods that change a bank's labels and rows."""

    @updates
    def enroll(self, X: Any, label: Any) -> Self:
        """Add a new label with its rows; the class notes say what happens to the other labels.

        The new model equals a separate fit to all rows with the bank's ridge and clusters; new rows
        join the cluster with the nearest centroid.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        label : object
            A label that is not yet in the bank.

        Returns
        -------
        self : VerifierBank

        Warns
        -----
        UserWarning
            If X has a single row; the message gives the label's expected error rate.

        Examples
        --------
        >>> from sklearn.datasets import load_digits
        >>> from pcsda import VerifierBank
        >>> X, y = load_digits(return_X_y=True)
        >>> bank = VerifierBank().fit(X[y < 8], y[y < 8])
        >>> bank.enroll(X[y == 8], 8).predict(X[y == 8][:3])
        array([8, 8, 8])
        """
        check_is_fitted(self)
        if label in self.models_:
            raise ValueError(
                f"the bank already has a label {label!r}; remove it first to enroll it again, or "
                "add rows to it with update"
            )
        X = validate_data(self, X, reset=False, dtype=self._rows.X.dtype)
        order = check_kind(self.classes_, label)
        self._refuse_known(X)
        classes = np.unique(order)
        numbers = np.searchsorted(classes, self.classes_)
        place = int(np.flatnonzero(classes == label)[0])
        places: list[int | None] = [None] * len(classes)
        for old, new in enumerate(numbers.tolist()):
            places[new] = old
        before = self._rows.numbered(numbers)
        self._add(X, before, classes, places, place, place, label)
        return self

    @updates
    def update(self, X: Any, label: Any) -> Self:
        """Add rows to a label and refit it; the class notes say what happens to the other labels.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        label : object
            One of `classes_`.

        Returns
        -------
        self : VerifierBank

        Examples
        --------
        >>> from sklearn.datasets import load_digits
        >>> from pcsda import VerifierBank
        >>> X, y = load_digits(return_X_y=True)
        >>> bank = VerifierBank().fit(X[:900], y[:900])
        >>> bank.update(X[900:][y[900:] == 3], 3).score(X, y) > 0.9
        True
        """
        check_is_fitted(self)
        self._known(label)
        X = validate_data(self, X, reset=False, dtype=self._rows.X.dtype)
        self._refuse_known(X)
        same: list[int | None] = list(range(len(self.classes_)))
        place = self._place(label)
        self._add(X, self._rows, self.classes_, same, place, place, label)
        return self

    @updates
    def reject(self, X: Any, label: Any) -> Self:
        """Add rows to the background because they do not belong to `label`.

        The label is refitted at once; the class notes say what happens to the other labels.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows that belong to no known label.
        label : object
            One of `classes_`.

        Returns
        -------
        self : VerifierBank

        Examples
        --------
        >>> from sklearn.datasets import load_digits
        >>> from pcsda import VerifierBank
        >>> X, y = load_digits(return_X_y=True)
        >>> bank = VerifierBank().fit(X[y < 8], y[y < 8])
        >>> before = bank.verify(X[y == 9], 3).mean()
        >>> bool(bank.reject(X[y == 9][:20], 3).verify(X[y == 9], 3).mean() < before)
        True
        """
        check_is_fitted(self)
        self._known(label)
        X = validate_data(self, X, reset=False, dtype=self._rows.X.dtype)
        self._refuse_known(X)
        same: list[int | None] = list(range(len(self.classes_)))
        self._add(X, self._rows, self.classes_, same, BACKGROUND, self._place(label), label)
        return self

    @updates
    def remove(self, label: object) -> Self:
        """Remove a label and its rows; the class notes say what happens to the other labels.

        Parameters
        ----------
        label : object
            One of `classes_`.

        Returns
        -------
        self : VerifierBank
        """
        check_is_fitted(self)
        self._known(label)
        if len(self.classes_) == 2:
            raise ValueError("a bank needs at least two labels; this would leave one")
        place = self._place(label)
        kept: Mask = self._rows.labels != place
        numbers = np.arange(len(self.classes_))
        numbers[place + 1 :] -= 1
        numbers[place] = len(self.classes_)  # an unused number
        before = self._rows.numbered(numbers)
        places: list[int | None] = [i for i in range(len(self.classes_)) if i != place]
        rows = before.kept(kept)
        self._change(before, rows, np.delete(self.classes_, place), places, kept=kept)
        return self

    @updates
    def refresh(self) -> Self:
        """Refit all models and their common calibration to the current rows.

        The rows are factorised from scratch, which also removes rounding errors accumulated over
        many updates. A threshold chosen from the bank's own labels is chosen again for the same
        rate.

        Returns
        -------
        self : VerifierBank
        """
        check_is_fitted(self)
        if getattr(self, "_kindred_", False):
            self._set_rows(replace(self._rows, clusters=alone(self._rows.labels)))
        self._fit_labels()
        return self

    def _add(
        self,
        X: Floats,
        before: BankRows,
        classes: NDArray[Any],
        places: list[int | None],
        owner: int,
        touched: int,
        name: Any,
    ) -> None:
        """Add rows and refit one label; if this fails, leave the bank unchanged."""
        kindred = isinstance(self._labels_, KindredLabels)
        # Labels that share covariances are their own clusters, see `_change`.
        clusters = np.zeros(len(X), dtype=np.intp) if kindred else nearest(X, self.centroids_)
        rows = before.appended(X, owner, clusters, self._seed)
        threshold = self.threshold_.value if hasattr(self, "threshold_") else None
        with_name = {"name": name, "threshold": threshold}
        self._change(before, rows, classes, places, touched=touched, **with_name)

    def _change(
        self,
        before: BankRows,
        rows: BankRows,
        classes: NDArray[Any],
        places: list[int | None],
        **how: Any,
    ) -> None:
        """Update the labels after rows were added or removed."""
        if not isinstance(self._labels_, KindredLabels):
            self._commit(self._labels_.changed(before, rows, places, **how), rows, classes)
            return
        rows = replace(rows, clusters=alone(rows.labels))
        try:
            self._commit(self._labels_.changed(before, rows, places, **how), rows, classes)
        except SingularMatrixError:  # the remaining rows do not determine both covariances
            self._rows, self.classes_ = rows, classes
            self._take_clusters()
            self._fit_labels()

    def _commit(self, found: Labels, rows: BankRows, classes: NDArray[Any]) -> None:
        moved = len(classes) != len(self.classes_)
        self._labels_, self._rows, self.classes_ = found, rows, classes
        self.clusters_ = rows.clusters
        self._name_separate()
        if moved:  # the threshold follows the number of labels
            self._set_door()
