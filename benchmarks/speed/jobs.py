"""The jobs: data, contestants and the bounds that the library has set itself.

A job is a generator of cases, so that not all data are drawn at once. To add one, write such a
function and enter it in JOBS; its docstring is what ``--help`` says about it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics import det_curve
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC

from pcsda import PCSDA, PCSDACV, KernelPCSDA, NystroemMap, VerifierBank
from pcsda.metrics import cllr, equal_error_rate, min_cllr

from ..peers import shrunk_qda
from . import elsewhere, growth, memory, predictions, startup
from .data import Sample, digits, make_labelled, make_sample, rbf_gamma
from .headline import HEADLINES
from .measure import Bound, Contestant, Job
from .scale import SCALE_JOBS
from .setup import (
    BARE,
    BARE_LABEL,
    KERNEL_WIDTH,
    PUBLISHED,
    PositivesOnly,
    Setup,
    fit_grouped,
    fitting,
    gram_and_cholesky,
    linear_peers,
    nystroem_peers,
    peer_fitting,
    svc,
)

LINEAR_SHAPES = ((50000, 200), (20000, 512), (5000, 1200))
DOUBLE = 8


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
                # The peers neither leave rows out nor calibrate, but must still take longer.
                *peer_fitting(
                    linear_peers(), sample, Bound(bare, at_least=1), Bound(ours, at_least=1)
                ),
                published_fitting(sample),
            ),
        )


def published_fitting(sample: Sample) -> Contestant:
    """Fit as the paper does: the generalised eigenproblem, with subclasses given."""
    model = PCSDA.published(solver="eigen")
    return Contestant(PUBLISHED, "peer", partial(fit_grouped, model, sample))


def float32_fit(setup: Setup) -> Iterator[Job]:
    """Fit PCSDA on float32 rows; yardstick: the same rows in float64."""
    yardstick = "PCSDA(), float64"
    for n_rows, width in LINEAR_SHAPES:
        sample = make_sample(setup.size(n_rows), setup.size(width))
        short = replace(sample, X=sample.X.astype(np.float32))
        yield Job(
            "float32-fit",
            {"N": len(sample.X), "D": sample.X.shape[1]},
            (
                fitting(yardstick, PCSDA(), sample),
                fitting("PCSDA(), float32", PCSDA(), short, Bound(yardstick, at_most=0.6)),
                Contestant(
                    "X'X + Cholesky, float64", "limit", partial(gram_and_cholesky, sample.X)
                ),
                Contestant("X'X + Cholesky, float32", "limit", partial(gram_and_cholesky, short.X)),
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
    """Fit KernelPCSDA, K = 10 given; yardsticks: KernelRidge, and the published route.

    How long support vector machines take depends on how much the classes overlap.
    """
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
            *peer_fitting(
                {"SVC": svc(gamma), "OneClassSVM, positives only": PositivesOnly(gamma=gamma)},
                sample,
            ),
            *peer_fitting(nystroem_peers(gamma, setup.size(1000)), sample),
        ),
    )
    sample = make_sample(setup.size(2500), KERNEL_WIDTH)
    yield Job(
        "kernel-fit",
        {"N": len(sample.X), "D": KERNEL_WIDTH},
        (
            fitting(label, bare, sample),
            Contestant(
                PUBLISHED,
                "peer",
                partial(published_route, sample, gamma),
                (Bound(label, at_least=8),),
            ),
        ),
    )


def published_route(sample: Sample, gamma: float) -> object:
    """Compute explicit features from all positive eigenvalues of the kernel, then PCSDA."""
    values, vectors = np.linalg.eigh(rbf_kernel(sample.X, gamma=gamma))
    kept = values > len(values) * np.finfo(float).eps * values[-1]
    features = vectors[:, kept] * np.sqrt(values[kept])
    model = PCSDA.published(solver="eigen")
    return model.fit(features, sample.y, subclass_labels=sample.groups)


def nystroem_fit(setup: Setup) -> Iterator[Job]:
    """Fit NystroemMap(1000) and PCSDA at N = 50000; yardstick: scikit-learn's Nystroem and LDA."""
    landmarks, gamma = setup.size(1000), rbf_gamma(KERNEL_WIDTH)
    sample = make_sample(setup.size(50000), KERNEL_WIDTH)
    theirs = nystroem_peers(gamma, landmarks)
    ours = make_pipeline(NystroemMap(landmarks, gamma=gamma, random_state=0), PCSDA(random_state=0))
    peer = "Nystroem + LDA"
    given = {"pcsda__subclass_labels": sample.groups}
    yield Job(
        "nystroem-fit",
        {"N": len(sample.X), "D": KERNEL_WIDTH, "L": landmarks},
        (
            *peer_fitting(theirs, sample),
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


def bank_fit(setup: Setup) -> Iterator[Job]:
    """Fit a verifier for each of 100 labels, K = 10; yardstick: one fit of LDA(svd)."""
    n_labels, width = setup.size(100), setup.size(1200)
    labels = np.arange(setup.size(1820)) % n_labels
    X = make_labelled(labels, width)
    clusters = np.random.default_rng(1).integers(0, 10, len(X))
    bank = VerifierBank(PCSDA(n_subclasses=10, random_state=0))
    lda, ours = "LDA(svd)", "VerifierBank(PCSDA(10))"
    some, few = max(n_labels // 10, 2), max(n_labels // 50, 1)
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
            one_versus_rest(
                "LDA",
                LinearDiscriminantAnalysis(),
                X,
                labels,
                some,
                Bound(ours, at_least=40 * some / n_labels),
            ),
            one_versus_rest("QDA(eigen, shrinkage=0.1)", shrunk_qda(0.1), X, labels, few),
        ),
    )


def one_versus_rest(
    name: str, peer: Any, X: np.ndarray, labels: np.ndarray, count: int, *bounds: Bound
) -> Contestant:
    """Fit a peer on the first `count` labels in turn; all labels take proportionally longer."""

    def fit() -> None:
        for label in range(count):
            clone(peer).fit(X, (labels == label).astype(int))

    title = f"OneVsRest({name}), {count} of {labels.max() + 1} labels"
    return Contestant(title, "peer", fit, bounds)


def kernel_bank_fit(setup: Setup) -> Iterator[Job]:
    """Fit a kernel verifier for each of 50 labels; yardstick: KernelRidge on all labels at once."""
    n_labels, gamma = setup.size(50), rbf_gamma(KERNEL_WIDTH)
    labels = np.arange(setup.size(3000)) % n_labels
    X = make_labelled(labels, KERNEL_WIDTH)
    indicators = np.eye(n_labels)[labels]
    ridge = KernelRidge(kernel="rbf", gamma=gamma)
    bank = VerifierBank(KernelPCSDA(n_subclasses=10, gamma=gamma, random_state=0))
    peers = {"SVC": svc(gamma), **nystroem_peers(gamma, setup.size(1000))}
    some = max(n_labels // 10, 1)
    yield Job(
        "kernel-bank-fit",
        {"N": len(X), "D": KERNEL_WIDTH, "C": n_labels},
        (
            Contestant("KernelRidge", "peer", lambda: ridge.fit(X, indicators)),
            Contestant("VerifierBank(KernelPCSDA(10))", "pcsda", lambda: bank.fit(X, labels)),
            *(one_versus_rest(name, peer, X, labels, some) for name, peer in peers.items()),
        ),
    )


def metric_learn(setup: Setup) -> Iterator[Job]:
    """Fit PCSDA and metric-learn, classes given; only with --metric-learn."""
    if setup.metric_learn is None:
        raise SystemExit("the job metric-learn needs --metric-learn PYTHON")
    n_rows, width = setup.size(5000), setup.size(100)
    sample, ours = make_sample(n_rows, width), "PCSDA()"
    where = (n_rows, width, setup.threads)
    theirs = (
        Contestant(
            f"metric-learn {name}",
            "peer",
            partial(elsewhere.fit_seconds, setup.metric_learn, name, *where),
            reports=True,
        )
        for name in elsewhere.ALGORITHMS
    )
    case = {"N": n_rows, "D": width}
    yield Job("metric-learn", case, (fitting(ours, PCSDA(), sample), *theirs))


def selection(setup: Setup) -> Iterator[Job]:
    """Choose K, d and ridge, 255 settings; yardstick: GridSearchCV on a tenth of them, 5 folds.

    It uses OptDigits if the folder PCSDA_DATA has it, else scikit-learn's digits.
    """
    X, y = digits()
    X, y = X[: setup.size(len(X))], y[: setup.size(len(X))] == 8
    template = PCSDA(random_state=0)
    values = {
        "n_subclasses": [1, 5, 10, 15, 20],
        "n_components": [*range(1, 26)],
        "regularization": [1e-4, 1e-3, 1e-2, 1e-1, 1.0],
    }
    grid = [
        cell
        for setting in product(*values.values())
        if (cell := dict(zip(values, setting, strict=True)))["n_components"] <= cell["n_subclasses"]
    ]
    chosen = np.random.default_rng(0).permutation(len(grid))[: setup.size(len(grid) // 10 - 2)]
    # The smallest and the largest K are always among them.
    some = [{name: [value] for name, value in grid[i].items()} for i in (0, -1, *chosen)]
    search = GridSearchCV(template, some, cv=5, scoring="neg_log_loss", refit=False)
    scale = 1 / (X.shape[1] * X.var())
    machines = {"C": [0.1, 1, 10, 100], "gamma": [scale / 3, scale, scale * 3]}
    rival = GridSearchCV(SVC(), machines, cv=5, scoring="average_precision", refit=False)
    ours = "PCSDACV, all settings"
    yield Job(
        "selection",
        {"N": len(X), "D": X.shape[1]},
        (
            Contestant(ours, "pcsda", lambda: PCSDACV(template, **values).fit(X, y)),
            Contestant(
                f"GridSearchCV(PCSDA), {len(some)} of {len(grid)} settings",
                "peer",
                lambda: search.fit(X, y),
                (Bound(ours, at_least=5),),
            ),
            Contestant("GridSearchCV(SVC), 12 settings", "peer", lambda: rival.fit(X, y)),
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
    """Compute the three metrics together."""
    return equal_error_rate(y, llr)[0], cllr(y, llr), min_cllr(y, llr)


JOBS: dict[str, Callable[[Setup], Iterator[Job]]] = {
    **HEADLINES,
    "linear-fit": linear_fit,
    "float32-fit": float32_fit,
    "linear-predict": predictions.linear_predict,
    "requests": predictions.requests,
    "linear-memory": linear_memory,
    "kernel-fit": kernel_fit,
    "kernel-memory": kernel_memory,
    "nystroem-fit": nystroem_fit,
    "kernel-predict": predictions.kernel_predict,
    "kernel-requests": predictions.kernel_requests,
    "bank-fit": bank_fit,
    "kernel-bank-fit": kernel_bank_fit,
    "imports": startup.imports,
    "metric-learn": metric_learn,
    "growth-N": growth.growth_n,
    "growth-D": growth.growth_d,
    "growth-K": growth.growth_k,
    "growth-search-N": growth.growth_search,
    "growth-kernel-N": growth.growth_kernel_n,
    "growth-C": growth.growth_c,
    "growth-L": growth.growth_l,
    "selection": selection,
    "metrics": metrics,
    **SCALE_JOBS,
}
# Jobs that run only if requested.
ON_REQUEST = {"metric-learn", "intelex", *SCALE_JOBS}
