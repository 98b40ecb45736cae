"""Wrappers for fit methods: scikit-learn's callbacks, and errors that leave the model unchanged."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike

from ..core.spread import ScaleError, scale_problem
from ..targets import plain_labels
from ..validation import MatrixLike
from .threads import updates

__all__ = ["CallbackSupportMixin", "calls_back"]

Fit = TypeVar("Fit", bound=Callable[..., Any])

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:  # before scikit-learn 1.9
    CallbackSupportMixin, with_callbacks = type("CallbackSupportMixin", (), {}), None


def calls_back(fit: Fit) -> Fit:
    """Wrap a fit method so that it reports to callbacks registered with ``set_callbacks``.

    A fit that fails or is interrupted leaves the estimator as it was, and names the value of X that
    is at fault.

    A fit is a single task, because closed-form solutions have no iterations to report. The last
    report passes the fitted estimator itself as `fitted_estimator`.
    """
    fit = cast(Fit, updates(_naming_the_number(fit)))
    if with_callbacks is None:
        return fit

    @wraps(fit)
    def reported(self: Any, X: MatrixLike, y: ArrayLike, **given: Any) -> Any:
        known = {name: value for name, value in given.items() if value is not None}
        task = {"estimator": self, "X": X, "y": y, "metadata": known or None}
        context = self._init_callback_context().call_on_fit_task_begin(**task)
        fit(self, X, y, **given)

        def fitted() -> dict[str, Any]:
            return {name: value for name, value in vars(self).items() if name.endswith("_")}

        context.call_on_fit_task_end(**task, reconstruction_attributes=fitted)
        return self

    return cast(Fit, with_callbacks(reported))


def _naming_the_number(fit: Fit) -> Fit:
    """Wrap a fit method so that an error about scale names the value of X that causes it.

    Finding this value takes a pass over X, but only if the fit fails. The wrapper also rejects
    masked values in X.
    """

    @wraps(fit)
    def named(self: Any, X: Any, *args: Any, **given: Any) -> Any:
        if np.ma.is_masked(X):
            raise ValueError(
                f"X is masked in {np.ma.getmaskarray(X).sum()} places, and masks would be "
                "ignored; fill them, with X.filled(0) or an imputer, or leave those rows out"
            )
        if args:
            args = plain_labels(args[0]), *args[1:]
        elif "y" in given:
            given["y"] = plain_labels(given["y"])
        try:
            return fit(self, X, *args, **given)
        except ScaleError as error:
            text = _scale_of(X)
            if text is None:
                raise
            raise ValueError(text) from error

    return cast(Fit, named)


def _scale_of(X: Any) -> str | None:
    try:
        return scale_problem(np.asarray(X, dtype=np.float64), getattr(X, "columns", None))
    except (TypeError, ValueError):  # sparse rows
        return None
