"""Batch by batch: statistics that grow, and a model as soon as they make one."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import validate_data

from .. import validation
from ..core.csda import csda_subspace
from ..core.density import NoDensity
from ..core.direct import scatter_subspace
from ..core.fit import Fitted, complete
from ..core.linalg import TooFewRowsError
from ..core.scatter import GroupScatter
from ..core.spread import require_squares
from .verifier import check_rank, keep_decision, rule_of, sign_of

# What partial_fit keeps from one batch to the next.
_STREAM = ("scatter_", "_subclasses", "_labelled", "_waiting", "_lacks")


def check_rows(model: Any, X: Any, y: Any, *, reset: bool = True, finite: bool = True) -> Any:
    """Check rows and labels at fitting."""
    validation.refuse_dask(X, y)
    return validate_data(
        model,
        X,
        y,
        reset=reset,
        accept_sparse=["csr", "csc"],
        dtype=[np.float64, np.float32],
        ensure_all_finite=finite,
    )


def keep_linear(model: Any, fitted: Fitted, dtype: Any) -> None:
    """Store the fitted attributes of a linear model: the one place that does."""
    keep_decision(model, fitted)
    means = fitted.subspace.means
    assert means is not None
    model.components_ = fitted.subspace.coefficients.T.astype(dtype)
    # In float32 the mean of data far from zero would be off by more than it is known.
    model.positive_mean_ = means[0].copy()
    model.subclass_means_ = means[1:].astype(dtype)


def fit_scatter(model: Any, scatter: GroupScatter) -> Fitted:
    """Fit on statistics alone, with resubstituted covariances and no calibration."""
    if not hasattr(model, "n_subclasses"):
        subspace = csda_subspace(scatter, model.solver, model.regularization, model.n_components)
    else:
        subspace = scatter_subspace(
            scatter, scatter_solver(model), model.regularization, model.n_components
        )[0]
    return complete(subspace, replace(rule_of(model), calibrate=False))


def scatter_solver(model: Any) -> str:
    """Solver on statistics: an iterative one has nothing to iterate over."""
    return "cholesky" if model.solver in ("auto", "lsqr") else str(model.solver)


def forget_stream(model: Any) -> None:
    """Drop the statistics that `partial_fit` merges batches into."""
    for name in _STREAM:
        model.__dict__.pop(name, None)


class StreamMixin:
    """`partial_fit` of the linear estimators: what PCSDA and CSDA have in common."""

    scatter_: GroupScatter
    classes_: NDArray[Any]
    n_features_in_: int
    pos_label: Any

    def _forget_stream(self) -> None:
        forget_stream(self)

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """Leave the statistics as they were where a batch is refused."""
        before = {name: self.__dict__[name] for name in _STREAM if name in self.__dict__}
        try:
            yield
        except Exception:
            self._forget_stream()
            self.__dict__.update(before)
            raise

    def _start_stream(
        self, X: Any, y: Any, classes: Any, sample_weight: Any
    ) -> tuple[Any, NDArray[np.bool_], NDArray[np.float64] | None]:
        """Check a batch of `partial_fit` and settle the classes on the first call."""
        first = not hasattr(self, "scatter_")
        if first and hasattr(self, "density_"):
            raise ValueError(
                "partial_fit cannot go on from fit, which keeps no statistics that a batch could "
                "be merged into; call partial_fit from the first batch on, on a fresh estimator "
                "such as sklearn.base.clone(model), or call fit on all rows together"
            )
        validation.check_verifier(self)
        X, y = check_rows(self, X, y, reset=first)
        validation.refuse_sparse(X, "partial_fit", "make batches dense with toarray()")
        require_squares(X)
        if not first and classes is not None and set(classes) != set(self.classes_.tolist()):
            raise ValueError(
                f"classes={list(classes)} differs from the first call's {self.classes_.tolist()}"
            )
        known = classes if first else self.classes_
        self.classes_, _, positive = validation.check_labels(y, self.pos_label, known)
        weights = None
        if sample_weight is not None:  # a class without weight may get some in another batch
            weights = validation.weight_values(sample_weight, len(positive))
        return X, positive, weights

    def _merge(self, X: Any, groups: Any, weights: Any, n_groups: int) -> None:
        batch = GroupScatter.from_samples(X, groups, n_groups, weights)
        merged = self.scatter_.merge(batch) if hasattr(self, "scatter_") else batch
        self.scatter_ = merged

    def _refit(self, dtype: Any) -> None:
        """Learn from the merged statistics; where there is no model yet, keep what it lacks."""
        check_rank(self, self._most_axes())  # no batch will raise this bound
        try:
            self._require_classes()
            fitted = fit_scatter(self, self.scatter_)
            check_rank(self, fitted.subspace.rank)
            if isinstance(fitted.density, NoDensity):
                raise TooFewRowsError(fitted.density.why)
        except TooFewRowsError as error:
            if hasattr(self, "density_"):  # more axes came, for instance, and too few positives
                warnings.warn(
                    f"with this batch there is no model until more rows come: {error}", stacklevel=3
                )
                del self.density_
            self._lacks = str(error)
            return
        keep_linear(self, fitted, dtype)
        self.__dict__.pop("_lacks", None)

    def _most_axes(self) -> int:
        """Upper bound of the number of axes, whatever comes."""
        return self.n_features_in_

    def _require_classes(self) -> None:
        """Refuse to learn before both classes have come."""
        seen = (self.scatter_.n_negative > 0, self.scatter_.n_positive > 0)[:: sign_of(self)]
        for label, there in zip(self.classes_.tolist(), seen, strict=True):
            if not there:
                raise TooFewRowsError(f"no row of class {label!r} came, or none of any weight")
