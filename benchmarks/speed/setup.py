"""Shared parts of the jobs: sizes, the settings of our models, and the peers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.linalg.blas import dtrmm
from scipy.linalg.lapack import dpotrf, dtrtri
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC, OneClassSVM

from pcsda import PCSDA, KernelPCSDA

from ..peers import shrunk_qda
from .data import Sample
from .measure import REAL, Bound, Clock, Contestant

KERNEL_WIDTH = 64
# Without leave-one-out and calibration, which together cost more than the subspace itself.
BARE = {"covariance": "resubstitution", "calibrate": False}
BARE_LABEL = "resubstitution, no calibration"
PUBLISHED = "published route (eigendecomposition)"
# --quick divides sizes by this: enough to see every job run, too little to judge its speed.
QUICK = 10


@dataclass(frozen=True)
class Setup:
    """How jobs are to be run.

    Attributes
    ----------
    quick : bool
    threads : int
        Number of threads of BLAS and OpenMP.
    metric_learn : str or None
        A Python with metric-learn, which requires an older scikit-learn.
    scratch : Path or None
        Where jobs put large files while they run; None is the temporary folder.
    intelex : str or None
        A Python with scikit-learn-intelex.
    clock : Clock
        Clock for processes that jobs start.
    """

    quick: bool = False
    threads: int = 2
    metric_learn: str | None = None
    scratch: Path | None = None
    intelex: str | None = None
    clock: Clock = REAL

    def size(self, full: int) -> int:
        """Return the full size, or a small one for a quick look."""
        return full // QUICK if self.quick else full


def gram_and_cholesky(X: np.ndarray) -> np.ndarray:
    """Do what every fit from second moments has to do."""
    gram = X.T @ X
    gram.flat[:: len(gram) + 1] += 1
    return np.linalg.cholesky(gram)


def factor_and_leverages(X: np.ndarray) -> np.ndarray:
    """Do what every exact fit that leaves rows out has to do, without k-means and densities.

    For tall X, multiply all rows by a triangular matrix; for wide X, invert a Cholesky factor.
    """
    if X.shape[1] > X.shape[0]:
        return factor_and_inverse(X @ X.T, len(X))
    inverse = dtrtri(gram_and_cholesky(X).T, lower=0)[0].T
    return dtrmm(1.0, inverse.T, X.T, trans_a=1)


def kernel_and_leverages(X: np.ndarray, gamma: float, n_left: int) -> np.ndarray:
    """Do the same for a kernel, leaving out `n_left` rows: the matrix, its factor, an inverse."""
    matrix = X @ X.T
    lengths = matrix.diagonal().copy()
    matrix *= 2
    matrix -= lengths
    matrix -= lengths[:, None]
    matrix *= gamma
    np.exp(matrix, out=matrix)
    return factor_and_inverse(matrix, n_left)


def factor_and_inverse(matrix: np.ndarray, n_left: int) -> np.ndarray:
    """Factor a matrix in place with LAPACK, and invert the factor's block of the last rows."""
    matrix.flat[:: len(matrix) + 1] += 1
    factor = dpotrf(matrix.T, lower=1, overwrite_a=1, clean=0)[0]
    last = len(factor) - n_left
    return dtrtri(np.asfortranarray(factor[last:, last:]), lower=1, overwrite_c=1)[0]


def fit_grouped(estimator: PCSDA | KernelPCSDA, sample: Sample) -> Any:
    """Fit with the subclasses given."""
    return estimator.fit(sample.X, sample.y, subclass_labels=sample.groups)


def fitting(label: str, estimator: Any, sample: Sample, *bounds: Bound) -> Contestant:
    """Make a contestant from one of our estimators, with the subclasses given."""
    return Contestant(label, "pcsda", partial(fit_grouped, estimator, sample), bounds)


def peer_fitting(peers: dict[str, Any], sample: Sample, *bounds: Bound) -> Iterator[Contestant]:
    """Make contestants from peers on the same rows."""
    for label, peer in peers.items():
        yield Contestant(label, "peer", partial(peer.fit, sample.X, sample.y), bounds)


def linear_peers() -> dict[str, Any]:
    """Return what a user might choose for the linear problem."""
    return {
        f"LDA({solver})": LinearDiscriminantAnalysis(solver=solver)
        for solver in ("svd", "eigen", "lsqr")
    } | {f"QDA(eigen, shrinkage={strength})": shrunk_qda(strength) for strength in (0.1, "auto")}


def nystroem_peers(gamma: float, landmarks: int) -> dict[str, Any]:
    """Return what a user might choose if the kernel matrix is too large."""
    return {
        f"Nystroem + {name}": make_pipeline(
            Nystroem(gamma=gamma, n_components=landmarks, random_state=0), last
        )
        for name, last in (
            ("LDA", LinearDiscriminantAnalysis()),
            ("LogisticRegression", LogisticRegression(max_iter=1000)),
        )
    }


def svc(gamma: float) -> SVC:
    """Make a support vector machine whose cache holds the whole kernel matrix."""
    return SVC(gamma=gamma, cache_size=500)


class PositivesOnly(OneClassSVM):
    """OneClassSVM as a verification user would train it: on the class of interest alone."""

    def fit(self, X: np.ndarray, y: np.ndarray) -> PositivesOnly:
        """Fit on the rows whose label is one."""
        return super().fit(X[y == 1])
