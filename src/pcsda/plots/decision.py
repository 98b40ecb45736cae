"""Where a decision changes on one or two axes of a subspace."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit

from ..core.density import NoDensity
from ..unwrap import unwrap
from .style import POSITIVE_COLOR, rimmed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FloatArray = NDArray[np.float64]
Decision = Callable[[FloatArray], FloatArray]
DECISION_STYLE: dict[str, Any] = {"color": POSITIVE_COLOR, "linestyle": "--", "linewidth": 1.6}
# Points along each side of the grid that is searched for the change.
_IN_PLANE, _ON_LINE = 401, 4001


def has_density(model: Any) -> bool:
    """Whether a model can decide, and not only rank."""
    return not isinstance(getattr(model, "density_", NoDensity("")), NoDensity)


def margin_decision(model: Any, axes: tuple[int, ...]) -> Decision:
    """Decision of a model that knows some axes only: the margins of its two densities."""
    margin = model.density_.margin(axes)
    odds = logit(unwrap(model).prior)

    def decision(points: FloatArray) -> FloatArray:
        values: FloatArray = model.calibration_(margin.views(points)) + odds
        return values

    return decision


def draw_decision(ax: Axes, decision: Decision, points: FloatArray) -> Any:
    """Draw where the decision changes over the range of the points, without changing the view.

    Returns a contour in the plane, a list of lines on a single axis, None where all of the range
    is decided alike.
    """
    lows, highs = points.min(axis=0), points.max(axis=0)
    # Axes of equal scale may show much more than the points need.
    room = 0.15 if len(lows) == 1 else 1.0
    room *= float(np.max(highs - lows)) or 1.0
    count = _IN_PLANE if len(lows) == 2 else _ON_LINE
    sides = [
        np.linspace(low, high, count) for low, high in zip(lows - room, highs + room, strict=True)
    ]
    grid = np.stack(np.meshgrid(*sides), axis=-1)
    values = decision(grid.reshape(-1, len(sides))).reshape(grid.shape[:-1])
    if not values.min() < 0 <= values.max():
        return None
    if len(sides) == 1:
        changes = np.flatnonzero(np.diff(values >= 0))
        # Half way between the two points of the grid.
        places = (sides[0][changes] + sides[0][changes + 1]) / 2
        return [ax.axvline(float(place), zorder=5.5, **DECISION_STYLE) for place in places]
    view = ax.dataLim.frozen()
    contour = ax.contour(
        *sides,
        values,
        levels=[0.0],
        colors=DECISION_STYLE["color"],
        linestyles=DECISION_STYLE["linestyle"],
        linewidths=DECISION_STYLE["linewidth"],
        zorder=5.5,
    )
    contour.set_path_effects(rimmed(3.6, 0.8))
    # Fixed limits would fight with axes of equal scale; the data limits do not.
    ax.dataLim.set(view)
    ax.autoscale_view(tight=False)
    return contour
