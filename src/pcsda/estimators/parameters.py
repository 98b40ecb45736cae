"""Check the parameters of a verifier before any work begins."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral, Real

import numpy as np
from sklearn.base import BaseEstimator

from ..core.linalg import Array
from ..validation import KERNELS, check_count, check_flag, check_kernel, check_number, check_option


def check_verifier(model: BaseEstimator) -> None:
    """Check an estimator's parameters before any work begins."""
    kernel = hasattr(model, "kernel")
    if kernel:
        check_kernel(model.kernel, model.gamma, (*KERNELS, "precomputed"), model.kernel_params)
    if hasattr(model, "shape"):
        _check_modes(model)
    else:
        words = () if hasattr(model, "n_subclasses") else ("auto",)
        check_count("n_components", model.n_components, None, *words)
    rule = "auto" if hasattr(model, "n_subclasses") else None
    check_number("regularization", model.regularization, rule)
    check_number("shrinkage", model.shrinkage, "auto")
    check_flag("calibrate", model.calibrate)
    if hasattr(model, "calibration_rows"):
        check_count("calibration_rows", model.calibration_rows, None)
    check_priors(model.priors, np.array([0.5, 0.5]))
    if kernel and not isinstance(model.regularization, str) and not model.regularization > 0:
        raise ValueError(
            "regularization=0 leaves the scatter in feature space singular; it must be above 0, "
            "such as 0.01"
        )
    if hasattr(model, "n_subclasses"):
        _check_pcsda(model, ("kmeans", "input", "samples") if kernel else ("kmeans", "samples"))
    elif hasattr(model, "solver"):
        _check_csda(model)


def _check_pcsda(model: BaseEstimator, subclasses: tuple[str, ...]) -> None:
    """Check the parameters that PCSDA and KernelPCSDA share."""
    check_count("n_subclasses", model.n_subclasses, "auto")
    solvers = ("auto", "cholesky", "eigen", "spectral", "lsqr")
    check_option("solver", model.solver, solvers)
    check_option("balance", model.balance, ("pooled", "resampled"))
    check_option("negatives", model.negatives, ("blend", "mixture", "marginal"))
    check_option("tails", model.tails, ("fitted", "gaussian"))
    check_option("covariance", model.covariance, ("leave-one-out", "resubstitution"))
    _check_contamination(model)
    if model.solver == "lsqr" and model.balance == "resampled":
        raise ValueError(
            "solver='lsqr' does not take the dense draws of balance='resampled'; use "
            "solver='auto' or balance='pooled'"
        )
    if not hasattr(model.subclasses, "fit_predict"):
        check_option("subclasses", model.subclasses, subclasses)


def _check_csda(model: BaseEstimator) -> None:
    """Check the parameters that CSDA and KernelCSDA share."""
    solvers = ("auto", "eigen", "labels", "lowrank", "raw_labels", "spectral", "trace_ratio")
    check_option("solver", model.solver, solvers)
    check_option("reference", model.reference, ("mean", "optimal"))
    if model.reference == "optimal" and model.solver not in ("auto", "trace_ratio"):
        raise ValueError(
            f"reference='optimal' maximises a trace ratio, which solver={model.solver!r} does not; "
            "use solver='auto' or 'trace_ratio', or reference='mean'"
        )


def _check_modes(model: BaseEstimator) -> None:
    """Check the parameters of a tensor estimator."""
    for name in ("n_components", "shape"):
        value = getattr(model, name)
        entries = value if isinstance(value, (tuple, list, np.ndarray)) else [value]
        if value is not None and not all(_is_count(entry) for entry in entries):
            raise ValueError(
                f"{name}={value!r} must be a whole number of at least 1 for each mode, such as "
                "(5, 5), or None"
            )


def _is_count(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 1


def check_priors(priors: str | Sequence[float] | None, shares: Array) -> Array:
    """Return prior probabilities in class order; `shares` are the class shares in the sample."""
    if isinstance(priors, str):
        check_option("priors", priors, ("empirical", "equal"), ", or two probabilities")
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


def _check_contamination(model: BaseEstimator) -> None:
    share = model.contamination
    known = isinstance(share, str) and share == "auto"
    number = isinstance(share, Real) and not isinstance(share, bool)
    if not known and not (number and 0 <= float(share) < 0.5):
        raise ValueError(
            f"contamination={share!r} must be at least 0 and below 0.5, or 'auto'; if half of "
            "the negatives or more are positives, the labels carry no information"
        )
    if not is_contaminated(model):
        return
    for name, wanted in (
        ("covariance", "leave-one-out"),
        ("calibrate", True),
        ("balance", "pooled"),
    ):
        if getattr(model, name) != wanted:
            raise ValueError(
                f"contamination={share!r} is estimated from left-out scores, but there are none "
                f"with {name}={getattr(model, name)!r}; set {name}={wanted!r} or contamination=0"
            )
    if isinstance(model.subclasses, str) and model.subclasses == "samples":
        raise ValueError(
            f"contamination={share!r} is estimated from left-out scores, but there are none of "
            "negatives alone in their subclasses; set subclasses='kmeans' or contamination=0"
        )
    if model.solver == "lsqr":
        raise ValueError(
            f"contamination={share!r} needs a factorisation, which solver='lsqr' avoids; "
            "set solver='auto' or contamination=0"
        )


def is_contaminated(model: BaseEstimator) -> bool:
    """Return whether an estimator looks for positives hidden among the negatives."""
    return bool(getattr(model, "contamination", 0.0) != 0)


def refuse_contamination(model: BaseEstimator, who: str, remedy: str) -> None:
    """Reject the `contamination` setting for a method that must trust the labels.

    `who` explains the reason and `remedy` the way out, for the error message.
    """
    if is_contaminated(model):
        raise ValueError(
            f"contamination={model.contamination!r}: {who}; {remedy}, or set contamination=0"
        )
