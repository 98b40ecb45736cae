"""Checks of what users pass in: each message gives the value, the bound and the remedy."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import check_array, column_or_1d
from sklearn.utils.multiclass import check_classification_targets, type_of_target

KERNELS = ("linear", "rbf", "laplacian", "poly", "polynomial", "sigmoid", "cosine", "chi2")
BANDWIDTHS = ("positive", "all", "scale")


def check_option(name: str, value: Any, options: tuple[str, ...]) -> None:
    """Refuse a string that is none of the options."""
    if not (isinstance(value, str) and value in options):
        listed = ", ".join(repr(option) for option in options)
        raise ValueError(f"{name}={value!r} must be one of {listed}")


def check_count(name: str, value: Any, instead: str | None) -> None:
    """Refuse anything but a whole number of at least 1, or the value `instead`."""
    if value is instead or (isinstance(value, str) and value == instead):
        return
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise ValueError(f"{name}={value!r} must be a whole number of at least 1, or {instead!r}")


def check_flag(name: str, value: Any) -> None:
    """Refuse anything but a truth value, so that a word like "no" does not count as yes."""
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name}={value!r} must be True or False")


def check_number(name: str, value: Any, instead: str | None = None) -> None:
    """Refuse anything but a finite number of at least 0, or the word `instead`."""
    if instead is not None and isinstance(value, str) and value == instead:
        return
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= float(value) < np.inf:
        other = f", or {instead!r}" if instead else ""
        raise ValueError(f"{name}={value!r} must be a number of at least 0{other}")


def distinct(labels: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """Different labels in order, and the number of each entry's label among them.

    As ``np.unique``, but small whole numbers, the usual labels, are counted instead of sorted.
    """
    if labels.size and labels.dtype.kind in "biu" and 0 <= labels.min() <= labels.max() < 2**15:
        places = labels.astype(np.intp)
        there = np.bincount(places) > 0
        return np.flatnonzero(there).astype(labels.dtype), (np.cumsum(there) - 1)[places]
    names, codes = np.unique(labels, return_inverse=True)
    return names, codes.ravel()


def different_labels(y: NDArray[Any]) -> NDArray[Any]:
    """Different labels of y in order, or a message where they have none."""
    try:
        return distinct(y)[0]
    except TypeError as error:
        kinds = sorted({type(label).__name__ for label in y.tolist()})
        raise ValueError(
            f"y mixes labels of the types {kinds}, which have no order; use labels of one type and "
            "leave out rows without a label"
        ) from error


def check_labels(y: Any, pos_label: Any, classes: Any = None) -> tuple[NDArray[Any], int, Any]:
    """Encode binary labels.

    Returns
    -------
    classes : array of shape (2,)
    index : int
        Which of the two is the class of interest.
    positive : boolean array of shape (n,)
    """
    y = column_or_1d(y, warn=True)
    found = different_labels(y)
    # Labels tell as much about their kind as all of y; of many, scikit-learn wants to see all.
    check_classification_targets(found if len(found) <= 20 else y)
    known = found if classes is None else np.unique(np.asarray(classes))
    if len(known) > 2:
        raise ValueError(
            "Only binary classification is supported. The type of the target is "
            f"{type_of_target(known)}: y has {len(known)} labels; fit on y == label for one "
            "class, or VerifierBank for all of them"
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
            "those rows out, or name all classes in the first call of partial_fit"
        )
    index = positive_index(known, pos_label)
    return known, index, y == known[index]


def positive_index(classes: NDArray[Any], pos_label: Any) -> int:
    """Index of the class of interest: the one `pos_label` names, or the last."""
    if pos_label is None:
        return 1
    labels = [] if np.ndim(pos_label) else classes.tolist()
    matches = [index for index, label in enumerate(labels) if label == pos_label]
    if not matches:
        raise ValueError(
            f"pos_label={pos_label!r} is not a label of y, which has {classes.tolist()}; name one "
            "of those"
        )
    return matches[0]


def weight_values(sample_weight: Any, n_rows: int) -> NDArray[np.float64]:
    """Check that there is one weight of at least 0 for each row."""
    if isinstance(sample_weight, Real):
        weights = np.full(n_rows, float(sample_weight))
    else:
        weights = check_array(
            sample_weight, dtype=np.float64, ensure_2d=False, input_name="sample_weight"
        )
    if weights.shape != (n_rows,):
        raise ValueError(
            f"sample_weight has shape {weights.shape} but must have one weight for each of the "
            f"{n_rows} rows of X"
        )
    if np.any(weights < 0):
        raise ValueError(
            f"sample_weight has {np.sum(weights < 0)} negative entries (smallest "
            f"{weights.min():g}); weights must be at least 0"
        )
    return weights


def check_weights(sample_weight: Any, positive: NDArray[np.bool_]) -> NDArray[np.float64] | None:
    """Check sample weights; returns None where all weights are one."""
    if sample_weight is None:
        return None
    weights = weight_values(sample_weight, len(positive))
    for which, rows in (("positive", positive), ("negative", ~positive)):
        if rows.any() and not weights[rows].any():
            raise ValueError(
                f"sample_weight is zero for the whole {which} class; at least one sample must count"
            )
    return None if np.all(weights == 1) else weights


def check_groups(groups: Any, n_rows: int) -> NDArray[np.intp] | None:
    """Number the groups of rows that are left out together; None where there are none."""
    if groups is None:
        return None
    ids = np.asarray(groups)
    if ids.shape != (n_rows,):
        raise ValueError(
            f"groups has shape {ids.shape} but must have one entry for each of the {n_rows} rows "
            "of X"
        )
    try:
        return distinct(ids)[1]
    except TypeError as error:
        kinds = sorted({type(name).__name__ for name in ids.tolist()})
        raise ValueError(
            f"groups mixes names of the types {kinds}, which have no order; use names of one type"
        ) from error


def check_priors(priors: Any, shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Prior probabilities in the order of the classes; `shares` are those of the sample."""
    if isinstance(priors, str):
        check_option("priors", priors, ("empirical", "equal"))
        return shares if priors == "empirical" else np.array([0.5, 0.5])
    try:
        given = np.asarray(priors, dtype=np.float64)
    except (TypeError, ValueError):
        given = np.empty(0)
    if given.shape != (2,) or not np.all(given > 0) or abs(given.sum() - 1) > 1e-8:
        raise ValueError(
            f"priors={priors!r} must be 'empirical', 'equal' or two positive numbers that sum to "
            "1, in the order of classes_"
        )
    return given


def refuse_sparse(X: Any, setting: str, remedy: str) -> None:
    """Refuse sparse input under a setting that would have to make it dense."""
    if sparse.issparse(X):
        size = X.shape[0] * X.shape[1] * 8 / 2**30
        raise TypeError(
            f"{setting} does not take sparse input: the dense matrix of shape {X.shape} "
            f"would need {size:.3g} GiB; {remedy}"
        )


def refuse_dask(*arrays: Any, predicts: bool = False) -> None:
    """Refuse a Dask collection, which would be gathered in memory without a word."""
    for array in arrays:
        kind = type(array)
        if kind.__module__.partition(".")[0] in ("dask", "dask_expr"):
            how = (
                "pcsda.distributed.predict(model, X), which stays lazy, or pcsda.predict_blocks"
                if predicts
                else "pcsda.distributed.fit(model, X, y), or pcsda.fit_blocks for data larger "
                "than memory"
            )
            raise TypeError(
                f"a Dask {kind.__name__} would be gathered in memory here; use {how}. If it fits, "
                "pass its .compute()"
            )


def check_kernel(kernel: Any, gamma: Any, kernels: tuple[str, ...] = KERNELS) -> None:
    """Refuse a kernel or a bandwidth that is not known."""
    if not callable(kernel):
        check_option("kernel", kernel, kernels)
    if isinstance(gamma, str):
        check_option("gamma", gamma, BANDWIDTHS)
    elif isinstance(gamma, bool) or not isinstance(gamma, Real) or not 0 < float(gamma) < np.inf:
        listed = ", ".join(repr(rule) for rule in BANDWIDTHS)
        raise ValueError(f"gamma={gamma!r} must be a number above 0, or one of {listed}")


def check_verifier(model: Any) -> None:
    """Check the parameters of an estimator, before any work begins."""
    kernel = hasattr(model, "kernel")
    if kernel:
        check_kernel(model.kernel, model.gamma, (*KERNELS, "precomputed"))
    check_count("n_components", model.n_components, None)
    check_number("regularization", model.regularization)
    check_number("shrinkage", model.shrinkage, "auto")
    check_flag("calibrate", model.calibrate)
    if hasattr(model, "calibration_rows"):
        check_count("calibration_rows", model.calibration_rows, None)
    check_priors(model.priors, np.array([0.5, 0.5]))
    if kernel and not model.regularization > 0:
        raise ValueError(
            "regularization=0 leaves the scatter in feature space singular; it must be above 0"
        )
    if hasattr(model, "n_subclasses"):
        _check_pcsda(model, ("kmeans", "input", "samples") if kernel else ("kmeans", "samples"))
    else:
        solvers = ("auto", "eigen", "labels", "lowrank", "trace_ratio")
        check_option("solver", model.solver, solvers)


def _check_pcsda(estimator: Any, subclasses: tuple[str, ...]) -> None:
    """Check the parameters that PCSDA has in input space and in feature space."""
    check_count("n_subclasses", estimator.n_subclasses, "auto")
    solvers = ("auto", "cholesky", "eigen", "spectral", "lsqr")
    check_option("solver", estimator.solver, solvers)
    check_option("balance", estimator.balance, ("pooled", "resampled"))
    check_option("negatives", estimator.negatives, ("blend", "mixture", "marginal"))
    check_option("tails", estimator.tails, ("fitted", "gaussian"))
    check_option("covariance", estimator.covariance, ("leave-one-out", "resubstitution"))
    if estimator.solver == "lsqr" and estimator.balance == "resampled":
        raise ValueError(
            "solver='lsqr' does not take the dense draws of balance='resampled'; use "
            "solver='auto' or balance='pooled'"
        )
    if not hasattr(estimator.subclasses, "fit_predict"):
        check_option("subclasses", estimator.subclasses, subclasses)
