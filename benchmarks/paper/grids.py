"""Settings that cross-validation chooses from, for all methods except our own.

They were fixed before any of our methods was tuned, by two rules:

- A method of the paper's tables gets the full ranges that the paper states: regularisation
  10^-3..10^3, dimension 1..25, K in {5, 10, 15, 20}.
- Every other method gets exactly `N_SETTINGS` settings, except the cosine, which has none.

All are judged on the same folds. Ties go to the setting listed first: small and heavily regularised
settings come first.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

Setting = dict[str, Any]

N_SETTINGS = 28

# The paper's ranges, each from simple to complex: from large ridges, and from small costs C.
RIDGES = tuple(10.0**r for r in range(3, -4, -1))
COSTS = tuple(10.0**r for r in range(-3, 4))
DIMENSIONS = tuple(range(1, 26))
SUBCLASSES = (5, 10, 15, 20)

# The four bandwidths that PCSDACV tries too: the paper's rule and multiples of "scale".
BANDWIDTHS: tuple[str | float, ...] = ("positive", 0.3, 1.0, 3.0)
SHRINKAGES = tuple(float(f"{s:.4g}") for s in np.geomspace(1.0, 1e-4, N_SETTINGS))
FEW_DIMENSIONS = (1, 2, 3, 5, 10, 15, 25)
FEW_RIDGES = (1e3, 1e1, 1e-1, 1e-3)
FEW_COSTS = (1e-3, 1e-1, 1e1, 1e3)
# Numbers of directions for the rows and columns of pictures; lists, as in the stored results.
FEW_SHAPES = ([1, 1], [1, 2], [2, 1], [2, 2], [3, 3], [4, 4], [5, 5])


def settings(**ranges: Any) -> list[Setting]:
    """Return all combinations; the first range changes slowest."""
    return [dict(zip(ranges, values, strict=True)) for values in product(*ranges.values())]


PAPER: dict[str, list[Setting]] = {
    "RR": settings(ridge=RIDGES),
    "SVR": settings(C=COSTS),
    "SVM": settings(C=COSTS),
    "PCA": settings(d=DIMENSIONS),
    "PCA+SVM": settings(d=DIMENSIONS, C=COSTS),
    "LDA": settings(ridge=RIDGES),
    "LDA+NCC": settings(ridge=RIDGES),
    "PCSDA-1": settings(K=(1,), d=(1,), ridge=RIDGES),
    "PCSDA-K": [
        setting
        for setting in settings(d=DIMENSIONS, K=SUBCLASSES, ridge=RIDGES)
        if setting["d"] <= setting["K"]
    ],
}

RELATED: dict[str, list[Setting]] = {
    "CSDA": settings(d=FEW_DIMENSIONS, ridge=FEW_RIDGES),
    "SR-CSDA": settings(d=FEW_DIMENSIONS, ridge=FEW_RIDGES),
    "raw label-only": settings(d=FEW_DIMENSIONS, ridge=FEW_RIDGES),
    "label-only": settings(d=FEW_DIMENSIONS, ridge=FEW_RIDGES),
    "low-rank": settings(d=FEW_DIMENSIONS, ridge=FEW_RIDGES),
    "CSDA+SVM": settings(d=FEW_DIMENSIONS, C=FEW_COSTS),
    "trace-ratio": settings(d=FEW_DIMENSIONS, ridge=FEW_RIDGES),
    "CSRDA": settings(d=FEW_DIMENSIONS, ridge=FEW_RIDGES),
    "multilinear CSDA": settings(d=FEW_SHAPES, ridge=FEW_RIDGES),
}

TODAY: dict[str, list[Setting]] = {
    "SVC": settings(C=COSTS, gamma=BANDWIDTHS),
    "QDA": settings(shrinkage=SHRINKAGES),
    "Nystroem+LR": settings(C=COSTS, gamma=BANDWIDTHS),
}
