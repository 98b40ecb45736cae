"""The grid of settings that a search tries."""

from __future__ import annotations

from itertools import product
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline

from .. import validation
from ..core.linalg import Ints
from ..kernels import SCALED_KERNELS, bandwidth
from ..partition import count_distinct, given_labels, settle_count
from .grid import Cell, Data, final_of
from .kernel import KernelPCSDA
from .linear import PCSDA
from .steps import auto_ridge, is_curved, least_subclasses

if TYPE_CHECKING:
    from .search import PCSDACV

# Values tried besides the estimator's own K, d and ridge. A finer grid gives no better choice,
# because the best of more settings owes more to chance.
N_SUBCLASSES = (1, 5)
N_COMPONENTS = (2, 5, 10)
REGULARIZATION = (1e-2, 1e-1, 1.0)
# Ridges of linear models reach further up, as their automatic ridge does.
LINEAR_REGULARIZATION = (*REGULARIZATION, 3.0)
# Bandwidths for kernels: the paper's rule, and these multiples of scikit-learn's "scale".
GAMMA = ("positive", 0.3, 1.0, 3.0)


def template_of(search: BaseEstimator) -> Any:
    """Return the estimator, or pipeline, that a search tunes, or a mixture or a bank copies."""
    return PCSDA() if search.estimator is None else search.estimator


def is_standard(search: PCSDACV) -> bool:
    """Return whether the user gave no values, so that the search uses its default grid."""
    given = search.n_subclasses, search.n_components, search.regularization, search.gamma
    return all(values is None for values in given)


def grid_of(search: PCSDACV, data: Data) -> list[Cell]:
    """Return all settings to try that the data allow.

    Settings that share a factorisation are adjacent.
    """
    template = template_of(search)
    counts = _counts(search, final_of(template), data)
    dims = _values("n_components", search.n_components, None, whole=True)
    standard = standard_ridges(template, float(data.positive.sum()))
    ridges = _values("regularization", search.regularization, standard)
    width = data.X.shape[1] if isinstance(template, PCSDA) else max(counts)
    own = final_of(template).n_components
    cells = [
        Cell(count, d, ridge, gamma)
        for gamma, ridge, count in product(_gammas(search, template, data), ridges, counts)
        for d in (_dims(min(count, width), own) if dims is None else dims)
        if d <= min(count, width)
    ]
    if not cells:
        raise ValueError(
            f"no n_components in {dims or [own]} is at most {min(max(counts), width)} "
            "(= min(n_subclasses, n_features)); lower n_components or raise n_subclasses"
        )
    return cells


def _counts(search: PCSDACV, final: BaseEstimator, data: Data) -> list[int]:
    """Return the values of K to try, without those above the number of distinct negatives."""
    if data.subclass_labels is not None:
        return [len(np.unique(given_labels(data.subclass_labels, data.positive)))]
    way = final.subclasses
    if not (isinstance(way, str) and way in ("kmeans", "input")):
        raise ValueError(
            f"subclasses={way!r} takes no number of subclasses to search; use 'kmeans', or "
            "give subclass_labels"
        )
    negatives = np.flatnonzero(~data.positive)
    standard = standard_counts(final, _auto_count(final, data, negatives))
    wanted = _values("n_subclasses", search.n_subclasses, standard, whole=True)
    distinct = count_distinct(data.X, max(wanted), negatives)
    counts = [count for count in wanted if count <= distinct]
    if not counts:
        raise ValueError(
            f"n_subclasses={wanted} must have a value of at most "
            f"{distinct} (= number of different negative samples)"
        )
    return counts


def standard_counts(final: BaseEstimator, auto: int) -> list[int]:
    """Return the values of K that a search tries by default.

    `auto` is the value that "auto" has for the data.
    """
    own = auto if final.n_subclasses == "auto" else final.n_subclasses
    return sorted({*(count for count in N_SUBCLASSES if count < auto), auto, own})


def _dims(most: int, own: int | None) -> list[int]:
    """Return the default values of d: a few small numbers, `most`, and the estimator's own d."""
    return sorted({*(d for d in N_COMPONENTS if d < most), most} | ({own} if own else set()))


def standard_ridges(template: BaseEstimator, n_positive: float) -> tuple[float, ...]:
    """Return the ridges that a search tries by default: a fixed list and the estimator's own."""
    final = final_of(template)
    fixed = REGULARIZATION if is_curved(final) else LINEAR_REGULARIZATION
    return tuple(sorted({*fixed, auto_ridge(final, n_positive)} - {0.0}))


def bandwidths(search: PCSDACV, template: KernelPCSDA) -> tuple[Any, ...]:
    """Return the bandwidths to try: names of rules, given numbers, or multiples of "scale"."""
    if template.kernel not in SCALED_KERNELS:
        return (None,)
    return GAMMA if search.gamma is None else _given_gammas(search)


def _given_gammas(search: PCSDACV) -> tuple[Any, ...]:
    return (search.gamma,) if isinstance(search.gamma, str | Real) else tuple(search.gamma)


def _gammas(search: PCSDACV, template: BaseEstimator, data: Data) -> tuple[Any, ...]:
    is_kernel = isinstance(template, KernelPCSDA)
    if search.gamma is not None:
        if not is_kernel and not isinstance(template, Pipeline):
            raise ValueError("gamma needs a kernel, and PCSDA has none; use KernelPCSDA")
        given = _given_gammas(search)
        if not given:
            raise ValueError("gamma=[] must be a list of bandwidths to try")
        for gamma in given:
            validation.check_kernel("rbf", gamma)
        return given
    if not is_kernel or template.kernel not in SCALED_KERNELS:
        return (None,)
    scale = bandwidth("scale", data.X, None)
    standard = (g if isinstance(g, str) else g * scale for g in GAMMA)
    return tuple(dict.fromkeys((template.gamma, *standard)))


def _auto_count(final: BaseEstimator, data: Data, negatives: Ints) -> int:
    """Return the number of subclasses that "auto" means for the estimator and the data."""
    n_positive, least = data.positive.sum(), least_subclasses(final)
    return settle_count(data.X, "auto", among=negatives, n_positive=n_positive, least=least)


def own_setting(template: BaseEstimator, grid: list[Cell], data: Data) -> Cell | None:
    """Return the estimator's own setting, or None if it is not in the grid.

    If the estimator's K is "auto", the largest K in the grid that does not exceed the value of
    "auto" counts as the estimator's K.
    """
    steps = template if isinstance(template, Pipeline) else [template]
    final, count = steps[-1], steps[-1].n_subclasses
    gammas = [step.gamma for step in steps if hasattr(step, "gamma")]
    if data.subclass_labels is not None:
        count = grid[0].n_subclasses
    elif count == "auto":
        most = _auto_count(final, data, np.flatnonzero(~data.positive))
        count = max((c.n_subclasses for c in grid if c.n_subclasses <= most), default=most)
    full = min(count, data.X.shape[1]) if isinstance(template, PCSDA) else count
    d = full if final.n_components is None else final.n_components
    ridge = auto_ridge(final, data.positive.sum())
    for cell in grid:
        same = cell.gamma is None or cell.gamma in gammas
        if same and (*cell.size, cell.regularization) == (count, d, ridge):
            return cell
    return None


def _values(name: str, given: object, default: object, whole: bool = False) -> Any:
    """Check the values to try for one parameter and return them, or `default` if none are given."""
    if given is None:
        return default
    values = [given] if isinstance(given, Real) or not np.iterable(given) else list(given)
    if isinstance(given, str) or not values:
        raise ValueError(f"{name}={given!r} must be a list of values to try")
    for value in values:
        if isinstance(value, str):
            raise ValueError(
                f"{name}={value!r} is no value to try; give numbers, or {name}=None, which also "
                "tries the estimator's own value"
            )
        validation.check_number(name, value)
        if whole:
            validation.check_count(name, value, None)
    return values
