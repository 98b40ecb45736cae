"""Choose the factor, which holds the rows and finds the axes for any division into groups.

Every fit starts here. Three factors solve PCSDA exactly and agree up to rounding:

- `DirectFactor` collects the statistics of a division and factorises its within-class scatter. It
  is best for a single division, and works with all solvers.
- `WhiteFactor` whitens the rows once, so that each further division takes little time.
- `GramFactor` factorises the N x N matrix of inner products, for D > N and for kernels.

`IterativeFactor` uses only products with X, for sparse rows. `CSDAFactor` solves the criterion of
CSDA. `FeatureFactor` applies any solver to exact features of a kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from .direct import DirectFactor, IterativeFactor
from .gram import GramFactor, WideRows, wide
from .linalg import Array, Floats
from .subspace import Factor
from .white import WhiteFactor, whiten

# Factors for many divisions. Rows can be added and removed, and `over` prepares a factor to solve
# each class of a data set against all others.
SharedFactor = WhiteFactor | GramFactor


def factor_once(
    X: Any,
    regularization: float,
    weights: Array | None = None,
    solver: str = "cholesky",
    resample: np.random.Generator | None = None,
    *,
    together: bool = False,
) -> Factor:
    """Choose a factor for a single division of the rows into groups.

    With `together`, the factor can leave out blocks of rows.
    """
    if solver == "lsqr":
        return IterativeFactor(X, regularization, weights)
    is_wide = isinstance(X, WideRows) or X.shape[1] > X.shape[0]
    unbounded = is_wide and regularization == 0
    if together and not unbounded and resample is None:
        return next(factor_shared(X, [regularization], weights))  # all exact solvers agree
    if is_wide and not unbounded and solver == "cholesky" and resample is None:
        return replace(next(wide(X, [regularization], weights)), spend=True)
    return DirectFactor(X, regularization, weights, solver, resample)


def factor_shared(
    X: Floats | WideRows,
    regularizations: list[float],
    weights: Array | None = None,
    ridges: list[float] | None = None,
) -> Iterator[SharedFactor]:
    """Factorise the rows once per ridge, so that many divisions into groups can share the result.

    If `ridges` is given, its values are used as they are, not scaled to the data.
    """
    if isinstance(X, WideRows) or X.shape[1] > X.shape[0]:
        return wide(X, regularizations, weights, ridges)
    return whiten(X, regularizations, weights, ridges)
