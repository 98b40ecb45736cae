"""Draw the decision boundary on one or two axes of a subspace."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import logit

from ..core.density import NoDensity
from ..core.linalg import Array
from ..unwrap import unwrap
from .style import DECISION_STYLE, rimmed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.contour import QuadContourSet
    from matplotlib.lines import Line2D

    from ..estimators import Verifier

Decision = Callable[[Array], Array]
# Points along each side of the grid that is searched for the boundary.
_IN_PLANE, _ON_LINE = 401, 4001


def has_density(model: Verifier) -> bool:
    """Return whether a model can make decisions, rather than only rank rows."""
    return not isinstance(getattr(model, "density_", NoDensity("")), NoDensity)


def margin_decision(model: Verifier, axes: tuple[int, ...]) -> Decision:
    """Make a decision function for some axes only, from the marginals of the model's densities."""
    margin = model.density_.margin(axes)
    odds = logit(unwrap(model).prior)
    return lambda points: model.calibration_(margin.views(points)) + odds


def draw_decision(
    ax: Axes, decision: Decision, points: Array
) -> QuadContourSet | list[Line2D] | None:
    """Draw the decision boundary within the range of the points, keeping the axis limits.

    Returns a contour in the plane, a list of lines on a single axis, or None if the decision is
    the same everywhere.
    """
    lows, highs = points.min(axis=0), points.max(axis=0)
    # Axes of equal scale may show much more than the points need.
    room, count = (0.15, _ON_LINE) if len(lows) == 1 else (1.0, _IN_PLANE)
    room *= float(np.max(highs - lows)) or 1.0
    sides = list(np.linspace(lows - room, highs + room, count, axis=-1))
    grid = np.stack(np.meshgrid(*sides), axis=-1)
    values = decision(grid.reshape(-1, len(sides))).reshape(grid.shape[:-1])
    if not values.min() < 0 <= values.max():
        return None
    if len(sides) == 1:
        changes = np.flatnonzero(np.diff(values >= 0))
        places = (sides[0][changes] + sides[0][changes + 1]) / 2
        return [ax.axvline(float(place), zorder=5.5, **DECISION_STYLE) for place in places]
    view = ax.dataLim.frozen()
    style = {f"{name}s": value for name, value in DECISION_STYLE.items()}
    contour = ax.contour(*sides, values, levels=[0.0], zorder=5.5, **style)
    contour.set_path_effects(rimmed(3.6, 0.8))
    # Fixed limits would conflict with axes of equal scale; the data limits do not.
    ax.dataLim.set(view)
    ax.autoscale_view(tight=False)
    return contour
