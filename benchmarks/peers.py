"""Peers that not every supported version of scikit-learn has."""

from __future__ import annotations

from inspect import signature

from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis

# Without shrinkage, QDA fails if the smaller class has fewer rows than columns.
QDA_SHRINKS = "shrinkage" in signature(QuadraticDiscriminantAnalysis).parameters
NO_SHRINKAGE = "QDA has no shrinkage before scikit-learn 1.8"


def shrunk_qda(shrinkage: float | str, *, tol: float = 1e-4) -> QuadraticDiscriminantAnalysis:
    """Return QDA with shrinkage, using the eigen solver."""
    if not QDA_SHRINKS:
        raise ValueError(f"{NO_SHRINKAGE}; install that or a newer version")
    return QuadraticDiscriminantAnalysis(solver="eigen", shrinkage=shrinkage, tol=tol)
