"""How time grows with N, D, K, C and L: sizes for the jobs, and exponents from their rows.

Each exponent is compared with a theoretical one, fitted in the same way to the operation counts of
the contestant's formula at the same sizes. Lower-order terms affect both alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.pipeline import make_pipeline

from pcsda import PCSDA, PCSDACV, KernelPCSDA, NystroemMap, VerifierBank

from .data import make_labelled, make_sample, rbf_gamma
from .measure import Contestant, Cost, Job
from .setup import KERNEL_WIDTH, Setup, fit_grouped, gram_and_cholesky

LIMIT = "X'X + Cholesky"
LIMIT_COST = Cost("N D^2 + D^3/3", lambda N, D, **_: N * D**2 + D**3 / 3)
# Statistics; the leverages of the left-out rows, by a triangular product; the factor and its
# inverse; the nearest centroid and the coordinates of every row.
FIT_COST = Cost(
    "N D^2 + n D^2 + 2/3 D^3 + 2 N D K, n left out",
    lambda N, D, K=10, **_: (N + left_out(N, K)) * D**2 + 2 * D**3 / 3 + 2 * N * D * K,
)
# The factor and the diagonal of its inverse; solving for the groups.
KERNEL_COST = Cost(
    "2/3 N^3 + 2 N^2 (D + K)",
    lambda N, D, K=10, **_: 2 * N**3 / 3 + 2 * N**2 * (D + K),
)
# Settings are chosen on at most 1500 rows: an eigendecomposition of their scatter, whitened rows at
# four ridges and coordinates at nine settings. One of them is then fitted on all rows.
SEARCH_COST = Cost(
    "9 M D^2 + N D^2, M rows searched",
    lambda N, D, **_: (9 * min(N, 1500) + N + left_out(N, 10)) * D**2,
)
# Scatter and whitened rows; the factor and its inverse; then one solution for each label.
BANK_COST = Cost(
    "3 N D^2 + 2/3 D^3 + 2 C N D K",
    lambda N, D, C, K=10, **_: 3 * N * D**2 + 2 * D**3 / 3 + 2 * C * N * D * K,
)
NYSTROEM_LIMIT_COST = Cost(
    "2 N L D + N L^2 + L^3/3", lambda N, D, L, **_: 2 * N * L * D + N * L**2 + L**3 / 3
)
# Kernel values, features by a triangle, then a fit in L dimensions.
NYSTROEM_COST = Cost(
    "2 N L D + 4 N L^2 + L^3", lambda N, D, L, **_: 2 * N * L * D + 4 * N * L**2 + L**3
)


def left_out(n_rows: float, n_subclasses: int) -> float:
    """Count the rows that a fit on equal groups leaves out: at most 5000 of each class."""
    positives = n_rows / (n_subclasses + 1)
    return min(positives, 5000) + min(n_rows - positives, 5000)


def limit(X: np.ndarray) -> Contestant:
    """Make a contestant from the calls that no fit from second moments can avoid."""
    return Contestant(LIMIT, "limit", partial(gram_and_cholesky, X), cost=LIMIT_COST)


def ours(label: str, fit: Any, cost: Cost) -> Contestant:
    """Make a contestant from one of our fits."""
    return Contestant(label, "pcsda", fit, cost=cost)


def growth_n(setup: Setup) -> Iterator[Job]:
    """Growth of PCSDA() with the number N of rows, D = 100, K = 10."""
    for n_rows in (10000, 20000, 40000, 80000, 160000):
        yield linear_growth("growth-N", "N", setup.size(n_rows), 100, 10)


def growth_d(setup: Setup) -> Iterator[Job]:
    """Growth of PCSDA() with the width D, N = 10000, K = 10."""
    for width in (100, 200, 400, 800, 1600):
        yield linear_growth("growth-D", "D", setup.size(10000), setup.size(width), 10)


def growth_k(setup: Setup) -> Iterator[Job]:
    """Growth of PCSDA() with the number K of subclasses, N = 20000, D = 200."""
    for count in (5, 10, 20, 40, 80):
        yield linear_growth("growth-K", "K", setup.size(20000), setup.size(200), count)


def linear_growth(name: str, grows: str, n_rows: int, width: int, count: int) -> Job:
    """Make one case of the linear model, k-means included."""
    sample = make_sample(n_rows, width, n_subclasses=count)
    fit = partial(PCSDA(n_subclasses=count, random_state=0).fit, sample.X, sample.y)
    contestants = (limit(sample.X), ours("PCSDA()", fit, FIT_COST))
    return Job(name, {"N": n_rows, "D": width, "K": count}, contestants, grows=grows)


def growth_search(setup: Setup) -> Iterator[Job]:
    """Growth of PCSDACV(), without given values, with the number N of rows, D = 100."""
    for n_rows in (2000, 4000, 8000, 16000, 32000):
        sample = make_sample(setup.size(n_rows), 100)
        search = partial(PCSDACV(PCSDA(random_state=0)).fit, sample.X, sample.y)
        contestants = (limit(sample.X), ours("PCSDACV()", search, SEARCH_COST))
        yield Job("growth-search-N", {"N": len(sample.X), "D": 100}, contestants, grows="N")


def growth_kernel_n(setup: Setup) -> Iterator[Job]:
    """Growth of KernelPCSDA() with the number N of rows, D = 64, K = 10."""
    gamma = rbf_gamma(KERNEL_WIDTH)
    for n_rows in (1000, 1500, 2000, 3000, 4000):
        sample = make_sample(setup.size(n_rows), KERNEL_WIDTH)
        fit = partial(fit_grouped, KernelPCSDA(gamma=gamma), sample)
        yield Job(
            "growth-kernel-N",
            {"N": len(sample.X), "D": KERNEL_WIDTH, "K": 10},
            (
                Contestant(
                    "kernel + Cholesky",
                    "limit",
                    partial(kernel_and_cholesky, sample.X, gamma),
                    cost=Cost("N^3/3 + 2 N^2 D", lambda N, D, **_: N**3 / 3 + 2 * N**2 * D),
                ),
                ours("KernelPCSDA()", fit, KERNEL_COST),
            ),
            grows="N",
        )


def kernel_and_cholesky(X: np.ndarray, gamma: float) -> np.ndarray:
    """Do what every exact kernel fit has to do."""
    values = rbf_kernel(X, gamma=gamma)
    values.flat[:: len(values) + 1] += 1
    return np.linalg.cholesky(values)


def growth_c(setup: Setup) -> Iterator[Job]:
    """Growth of a VerifierBank with the number C of labels, N = 4000, D = 400, K = 10."""
    n_rows, width = setup.size(4000), setup.size(400)
    clusters = np.random.default_rng(1).integers(0, 10, n_rows)
    for n_labels in (20, 40, 80, 160, 320):
        labels = np.arange(n_rows) % setup.size(n_labels)
        X = make_labelled(labels, width)
        fit = partial(VerifierBank(PCSDA()).fit, X, labels, subclass_labels=clusters)
        case = {"N": n_rows, "D": width, "C": int(labels.max()) + 1}
        contestants = (limit(X), ours("VerifierBank(PCSDA())", fit, BANK_COST))
        yield Job("growth-C", case, contestants, grows="C")


def growth_l(setup: Setup) -> Iterator[Job]:
    """Growth of NystroemMap(L) + PCSDA() with the number L of landmarks, N = 20000, D = 64."""
    sample = make_sample(setup.size(20000), KERNEL_WIDTH)
    gamma = rbf_gamma(KERNEL_WIDTH)
    for full in (100, 200, 400, 800):
        landmarks = setup.size(full)
        pipeline = make_pipeline(NystroemMap(landmarks, gamma=gamma, random_state=0), PCSDA())
        fit = partial(pipeline.fit, sample.X, sample.y, pcsda__subclass_labels=sample.groups)
        yield Job(
            "growth-L",
            {"N": len(sample.X), "D": KERNEL_WIDTH, "L": landmarks},
            (
                Contestant(
                    "kernel + Z'Z + Cholesky",
                    "limit",
                    partial(landmark_work, sample.X, landmarks, gamma),
                    cost=NYSTROEM_LIMIT_COST,
                ),
                ours("NystroemMap(L) + PCSDA()", fit, NYSTROEM_COST),
            ),
            grows="L",
        )


def landmark_work(X: np.ndarray, landmarks: int, gamma: float) -> np.ndarray:
    """Do what every fit on landmarks has to do, however they are chosen."""
    return gram_and_cholesky(rbf_kernel(X, X[:landmarks], gamma=gamma))


@dataclass(frozen=True)
class Growth:
    """Times (or bytes) of one contestant over the sizes, and the exponents fitted to them.

    Attributes
    ----------
    job, contestant, role, size, unit, formula : str
        `size` is the letter of the size that grows.
    sizes, amounts : list
    exponent, error : float
        Slope of log amount over log size, with its standard error.
    theory : float or None
        The slope of the operations at the same sizes.
    steepest : float or None
        Bound on the exponent.
    noisy, quick : bool
        Whether any of the measurements was.
    """

    job: str
    contestant: str
    role: str
    size: str
    unit: str
    formula: str
    sizes: list[float]
    amounts: list[float]
    exponent: float
    error: float
    theory: float | None
    steepest: float | None
    noisy: bool
    quick: bool


def growths(rows: list[dict[str, Any]]) -> list[Growth]:
    """Fit the growth of every contestant that was measured at two sizes or more."""
    series: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        if "grows" in row:
            series.setdefault((row["job"], row["contestant"]), []).append(row)
    return [growth(part) for part in series.values() if len({_size(row) for row in part}) > 1]


def growth(rows: list[dict[str, Any]]) -> Growth:
    """Fit the growth of one contestant."""
    rows = sorted(rows, key=_size)
    first, sizes = rows[0], [_size(row) for row in rows]
    unit = "seconds" if "seconds" in first else "bytes"
    amounts = [row[unit] for row in rows]
    exponent, error = fit_exponent(sizes, amounts)
    theory = None
    if "operations" in first:
        theory = fit_exponent(sizes, [row["operations"] for row in rows])[0]
    return Growth(
        first["job"],
        first["contestant"],
        first["role"],
        first["grows"],
        unit,
        first.get("formula", ""),
        sizes,
        amounts,
        exponent,
        error,
        theory,
        first.get("steepest"),
        any(row["noisy"] for row in rows),
        any(row["quick"] for row in rows),
    )


def _size(row: dict[str, Any]) -> float:
    return row["case"][row["grows"]]


def fit_exponent(sizes: list[float], values: list[float]) -> tuple[float, float]:
    """Return the least-squares slope of log value over log size, and its standard error.

    With only two points, the error is zero.
    """
    x, y = np.log(sizes), np.log(values)
    x, y = x - x.mean(), y - y.mean()
    slope = x @ y / (x @ x)
    residuals = y - slope * x
    variance = residuals @ residuals / max(len(x) - 2, 1)
    return float(slope), float(np.sqrt(variance / (x @ x)))
