"""Support for callbacks in scikit-learn versions that have them: report a fit's start and end."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from numpy.typing import ArrayLike

from ..validation import MatrixLike

__all__ = ["CallbackSupportMixin", "calls_back"]

Fit = TypeVar("Fit", bound=Callable[..., Any])

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:  # before scikit-learn 1.9
    CallbackSupportMixin, with_callbacks = type("CallbackSupportMixin", (), {}), None


def calls_back(fit: Fit) -> Fit:
    """Wrap a fit method so that it reports to callbacks registered with ``set_callbacks``.

    A fit is a single task, because closed-form solutions have no iterations to report. In the last
    call, `fitted_estimator` is the fitted estimator itself.
    """
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
