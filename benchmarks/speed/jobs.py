"""The jobs: data, contestants and the bounds that the library has set itself.

A job is a generator of cases, so that not all data are drawn at once. To add one, write such a
function and enter it in JOBS; its docstring is what ``--help`` says about it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from sklearn.discriminant_analysis import (
    LinearDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
)
from sklearn.kernel_approximation import Nystroem
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics import det_curve
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from pcsda import PCSDA, PCSDACV, KernelPCSDA, NystroemMap, VerifierBank
from pcsda.metrics import cllr, equal_error_rate, min_cllr

from . import memory
from .data import Sample, digits, make_labelled, make_sample, rbf_gamma
from .measure import Bound, Contestant, Job

LINEAR_SHAPES = ((50000, 200), (20000, 512), (5000, 1200))
KERNEL_WIDTH = 64
# Without leave-one-out and calibration, which together cost more than the subspace itself.
BARE = {"covariance": "resubstitution", "calibrate": False}
BARE_LABEL = "resubstitution, no calibration"
DOUBLE = 8
# --quick divides sizes by this: enough to see every job run, too little to judge its speed.
QUICK = 10


@dataclass(frozen=True)
class Setup:
    """How jobs are to be run."""

    quick: bool = False
    threads: int = 2

    def size(self, full: int) -> int:
        """A size as it is, or for a quick look."""
        return full // QUICK if self.quick else full


def linear_fit(setup: Setup) -> Iterator[Job]:
    """Fit PCSDA on tall data, K = 10 given; limit: one X'X and one Cholesky factor."""
    limit, bare, ours = "X'X + Cholesky", f"PCSDA({BARE_LABEL})", "PCSDA()"
    for n_rows, width in LINEAR_SHAPES:
        n_rows, width = setup.size(n_rows), setup.size(width)
        sample = make_sample(n_rows, width)
        yield Job(
            "linear-fit",
            {"N": n_rows, "D": width},
            (
                Contestant(limit, "limit", partial(gram_and_cholesky, sample.X)),
                fitting(bare, PCSDA(**BARE), sample, Bound(limit, at_most=2)),
                fitting(ours, PCSDA(), sample, Bound(limit, at_most=4)),
                *slower_peers(sample, (bare, ours)),
            ),
        )


def gram_and_cholesky(X: np.ndarray) -> np.ndarray:
    """What every fit from second moments has to do."""
    gram = X.T @ X
    gram.flat[:: len(gram) + 1] += 1
    return np.linalg.cholesky(gram)


def fit_grouped(estimator: PCSDA | KernelPCSDA, sample: Sample) -> object:
    """Fit with the subclasses given."""
    return estimator.fit(sample.X, sample.y, subclass_labels=sample.groups)


def fitting(label: str, estimator: object, sample: Sample, *bounds: Bound) -> Contestant:
    """One of our estimators, with the subclasses given."""
    return Contestant(label, "pcsda", partial(fit_grouped, estimator, sample), bounds)


def slower_peers(sample: Sample, ours: tuple[str, ...]) -> Iterator[Contestant]:
    """Peers that have to take longer than `ours`; none of them leaves out or calibrates."""
    peers = {
        f"LDA({solver})": LinearDiscriminantAnalysis(solver=solver)
        for solver in ("svd", "eigen", "lsqr")
    } | {
        f"QDA(eigen, shrinkage={strength})": QuadraticDiscriminantAnalysis(
            solver="eigen", shrinkage=strength
        )
        for strength in (0.1, "auto")
    }
    bounds = tuple(Bound(label, at_least=1) for label in ours)
    for label, peer in peers.items():
        yield Contestant(label, "peer", partial(peer.fit, sample.X, sample.y), bounds)


def linear_predict(setup: Setup) -> Iterator[Job]:
    """Score 100000 rows, D = 512, d = K = 10, mixture; limit: X @ W."""
    n_rows, width = setup.size(100000), setup.size(512)
    model = fit_grouped(PCSDA(), make_sample(setup.size(10000), width))
    X = make_sample(n_rows, width, seed=1).X
    W = np.ascontiguousarray(model.components_.T)
    limit = "X @ W"
    yield Job(
        "linear-predict",
        {"N": n_rows, "D": width},
        (
            Contestant(limit, "limit", lambda: X @ W),
            Contestant(
                "decision_function",
                "pcsda",
                lambda: model.decision_function(X),
                (Bound(limit, at_most=2),),
            ),
        ),
    )


def linear_memory(setup: Setup) -> Iterator[Job]:
    """Peak memory of PCSDA().fit beyond X; limit: another X and 4 D^2 doubles."""
    for n_rows, width in LINEAR_SHAPES:
        n_rows, width = setup.size(n_rows), setup.size(width)
        most = DOUBLE * (n_rows * width + 4 * width**2)
        fits = {"PCSDA()": ("PCSDA", {})}
        yield memory_job(
            "linear-memory", "X + 4 D^2 doubles", most, fits, n_rows, width, setup.threads
        )


def kernel_memory(setup: Setup) -> Iterator[Job]:
    """Peak memory of KernelPCSDA.fit at N = 5000; limit: 2.2 N^2 doubles."""
    n_rows = setup.size(5000)
    params = {"gamma": rbf_gamma(KERNEL_WIDTH)}
    fits = {
        f"KernelPCSDA({BARE_LABEL})": ("KernelPCSDA", params | BARE),
        "KernelPCSDA()": ("KernelPCSDA", params),
    }
    most = 2.2 * DOUBLE * n_rows**2
    yield memory_job(
        "kernel-memory", "2.2 N^2 doubles", most, fits, n_rows, KERNEL_WIDTH, setup.threads
    )


def memory_job(
    name: str,
    limit: str,
    most: float,
    fits: dict[str, tuple[str, dict]],
    n_rows: int,
    width: int,
    threads: int,
) -> Job:
    """Compare the peak memory of fits, each in a process of its own, with a given amount."""
    contestants = (
        Contestant(
            label,
            "pcsda",
            partial(memory.peak_of_fit, estimator, params, n_rows, width, threads),
            (Bound(limit, at_most=1),),
        )
        for label, (estimator, params) in fits.items()
    )
    given = Contestant(limit, "limit", lambda: most)
    return Job(name, {"N": n_rows, "D": width}, (given, *contestants), "bytes")


def kernel_fit(setup: Setup) -> Iterator[Job]:
    """Fit KernelPCSDA, K = 10 given; yardsticks: KernelRidge, and the published route."""
    gamma = rbf_gamma(KERNEL_WIDTH)
    label, bare = f"KernelPCSDA({BARE_LABEL})", KernelPCSDA(gamma=gamma, **BARE)
    sample = make_sample(setup.size(5000), KERNEL_WIDTH)
    ridge, peer = KernelRidge(kernel="rbf", gamma=gamma), "KernelRidge"
    yield Job(
        "kernel-fit",
        {"N": len(sample.X), "D": KERNEL_WIDTH},
        (
            Contestant(peer, "peer", partial(ridge.fit, sample.X, sample.y)),
            fitting(label, bare, sample, Bound(peer, at_most=1.5)),
            fitting("KernelPCSDA()", KernelPCSDA(gamma=gamma), sample, Bound(peer, at_most=3)),
        ),
    )
    sample = make_sample(setup.size(2500), KERNEL_WIDTH)
    yield Job(
        "kernel-fit",
        {"N": len(sample.X), "D": KERNEL_WIDTH},
        (
            fitting(label, bare, sample),
            Contestant(
                "published route (eigendecomposition)",
                "peer",
                partial(published_route, sample, gamma),
                (Bound(label, at_least=8),),
            ),
        ),
    )


def published_route(sample: Sample, gamma: float) -> object:
    """Explicit features from all positive eigenvalues of the kernel matrix, then linear PCSDA."""
    values, vectors = np.linalg.eigh(rbf_kernel(sample.X, gamma=gamma))
    kept = values > len(values) * np.finfo(float).eps * values[-1]
    features = vectors[:, kept] * np.sqrt(values[kept])
    model = PCSDA.published(solver="eigen")
    return model.fit(features, sample.y, subclass_labels=sample.groups)


def nystroem_fit(setup: Setup) -> Iterator[Job]:
    """Fit NystroemMap(1000) and PCSDA at N = 50000; yardstick: scikit-learn's Nystroem and LDA."""
    landmarks, gamma = setup.size(1000), rbf_gamma(KERNEL_WIDTH)
    sample = make_sample(setup.size(50000), KERNEL_WIDTH)
    theirs = make_pipeline(
        Nystroem(gamma=gamma, n_components=landmarks, random_state=0), LinearDiscriminantAnalysis()
    )
    ours = make_pipeline(NystroemMap(landmarks, gamma=gamma, random_state=0), PCSDA(random_state=0))
    peer = "Nystroem + LDA"
    given = {"pcsda__subclass_labels": sample.groups}
    yield Job(
        "nystroem-fit",
        {"N": len(sample.X), "D": KERNEL_WIDTH, "L": landmarks},
        (
            Contestant(peer, "peer", lambda: theirs.fit(sample.X, sample.y)),
            Contestant(
                "NystroemMap + PCSDA()",
                "pcsda",
                lambda: ours.fit(sample.X, sample.y),
                (Bound(peer, at_most=1),),
            ),
            Contestant(
                "NystroemMap + PCSDA(), subclasses given",
                "pcsda",
                lambda: ours.fit(sample.X, sample.y, **given),
                (Bound(peer, at_most=1),),
            ),
        ),
    )


def kernel_predict(setup: Setup) -> Iterator[Job]:
    """Score 10000 rows against N = 5000 training rows; limit: their kernel values alone."""
    gamma = rbf_gamma(KERNEL_WIDTH)
    sample = make_sample(setup.size(5000), KERNEL_WIDTH)
    X = make_sample(setup.size(10000), KERNEL_WIDTH, seed=1).X
    model = fit_grouped(KernelPCSDA(gamma=gamma), sample)
    limit = "rbf_kernel"
    yield Job(
        "kernel-predict",
        {"n": len(X), "N": len(sample.X), "D": KERNEL_WIDTH},
        (
            Contestant(limit, "limit", lambda: rbf_kernel(X, sample.X, gamma=gamma)),
            Contestant(
                "decision_function",
                "pcsda",
                lambda: model.decision_function(X),
                (Bound(limit, at_most=1.3),),
            ),
        ),
    )


def bank_fit(setup: Setup) -> Iterator[Job]:
    """Fit a verifier for each of 100 labels, K = 10; yardstick: one fit of LDA(svd)."""
    n_labels, width = setup.size(100), setup.size(1200)
    labels = np.arange(setup.size(1820)) % n_labels
    X = make_labelled(labels, width)
    clusters = np.random.default_rng(1).integers(0, 10, len(X))
    bank = VerifierBank(PCSDA(n_subclasses=10, random_state=0))
    lda, ours = "LDA(svd)", "VerifierBank(PCSDA(10))"
    some = max(n_labels // 10, 2)

    def one_versus_rest() -> None:
        for label in range(some):
            LinearDiscriminantAnalysis().fit(X, labels == label)

    yield Job(
        "bank-fit",
        {"N": len(X), "D": width, "C": n_labels},
        (
            Contestant(lda, "peer", lambda: LinearDiscriminantAnalysis().fit(X, labels)),
            Contestant(ours, "pcsda", lambda: bank.fit(X, labels), (Bound(lda, at_most=2),)),
            Contestant(
                f"{ours}, clusters given",
                "pcsda",
                lambda: bank.fit(X, labels, subclass_labels=clusters),
                (Bound(lda, at_most=2),),
            ),
            # All labels would take a tenfold of the tenth that is timed.
            Contestant(
                f"OneVsRest(LDA), {some} of {n_labels} labels",
                "peer",
                one_versus_rest,
                (Bound(ours, at_least=40 * some / n_labels),),
            ),
        ),
    )


def selection(setup: Setup) -> Iterator[Job]:
    """Choose K, d and ridge, 255 settings; yardstick: GridSearchCV on a tenth of them, 5 folds.

    On OptDigits where the folder PCSDA_DATA has it, else on scikit-learn's digits.
    """
    X, y = digits()
    X, y = X[: setup.size(len(X))], y[: setup.size(len(X))] == 8
    template = PCSDA(random_state=0)
    grid = [
        {"n_subclasses": k, "n_components": d, "regularization": ridge}
        for k in (1, 5, 10, 15, 20)
        for d in range(1, 26)
        for ridge in (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
        if d <= k
    ]
    chosen = np.random.default_rng(0).permutation(len(grid))[: len(grid) // 10 - 2]
    # The smallest and the largest K are always among them.
    tenth = [{name: [value] for name, value in grid[i].items()} for i in (0, -1, *chosen)]
    search = GridSearchCV(template, tenth, cv=5, scoring="neg_log_loss", refit=False)
    ours = "PCSDACV, all settings"
    yield Job(
        "selection",
        {"N": len(X), "D": X.shape[1]},
        (
            Contestant(ours, "pcsda", lambda: PCSDACV(template).fit(X, y)),
            Contestant(
                "GridSearchCV(PCSDA), a tenth of the settings",
                "peer",
                lambda: search.fit(X, y),
                (Bound(ours, at_least=5),),
            ),
        ),
    )


def metrics(setup: Setup) -> Iterator[Job]:
    """EER, Cllr and minCllr of 1000000 trials together; yardstick: one DET curve."""
    n_trials, peer = setup.size(1_000_000), "det_curve"
    rng = np.random.default_rng(0)
    for share in (0.5, 0.01):
        y = (rng.random(n_trials) < share).astype(int)
        llr = rng.normal(2.0 * (2 * y - 1), 2.0)
        yield Job(
            "metrics",
            {"N": n_trials, "positives": share},
            (
                Contestant(peer, "peer", partial(det_curve, y, llr)),
                Contestant(
                    "EER + Cllr + minCllr",
                    "pcsda",
                    partial(three_metrics, y, llr),
                    (Bound(peer, at_most=1.5),),
                ),
            ),
        )


def three_metrics(y: np.ndarray, llr: np.ndarray) -> tuple[float, float, float]:
    """What a report says about a verifier at the least."""
    return equal_error_rate(y, llr)[0], cllr(y, llr), min_cllr(y, llr)


JOBS: dict[str, Callable[[Setup], Iterator[Job]]] = {
    "linear-fit": linear_fit,
    "linear-predict": linear_predict,
    "linear-memory": linear_memory,
    "kernel-fit": kernel_fit,
    "kernel-memory": kernel_memory,
    "nystroem-fit": nystroem_fit,
    "kernel-predict": kernel_predict,
    "bank-fit": bank_fit,
    "selection": selection,
    "metrics": metrics,
}
