"""Jobs that score: many rows, a thousand, and the single row of a verification request."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics.pairwise import rbf_kernel

from pcsda import PCSDA, KernelPCSDA

from .data import make_sample, rbf_gamma
from .measure import Bound, Contestant, Job
from .setup import (
    KERNEL_WIDTH,
    PositivesOnly,
    Setup,
    fit_grouped,
    linear_peers,
    nystroem_peers,
    svc,
)

BARE_NUMPY = "bare NumPy"
# Bounds on scoring a single row, as in a verification request: relative to the bare expression, and
# in seconds.
REQUEST_RATIO = 15
REQUEST_SECONDS = 60e-6


def linear_predict(setup: Setup) -> Iterator[Job]:
    """Score 100000 rows, D = 512, d = K = 10; limit: X @ W."""
    n_rows, width = setup.size(100000), setup.size(512)
    sample = make_sample(setup.size(10000), width)
    model = fit_grouped(PCSDA(), sample)
    X = make_sample(n_rows, width, seed=1).X
    W = np.ascontiguousarray(model.components_.T)
    limit = "X @ W"
    yield Job(
        "linear-predict",
        {"N": n_rows, "D": width},
        (
            Contestant(limit, "limit", lambda: X @ W),
            scoring("decision_function", model.decision_function, X, Bound(limit, at_most=2)),
            *peers_scoring(linear_peers(), sample, X),
        ),
    )


def requests(setup: Setup) -> Iterator[Job]:
    """Score 1, 1000 and 1000000 rows; limit: the bare NumPy expression for the same numbers."""
    for n_rows, width in ((1, 512), (1000, 512), (1_000_000, 64)):
        width = setup.size(width)
        sample = make_sample(setup.size(10000), width)
        model = fit_grouped(PCSDA(), sample)
        X = make_sample(n_rows if n_rows == 1 else setup.size(n_rows), width, seed=1).X
        yield request_job("requests", {"n": len(X), "D": width}, model, sample, X, linear_peers())


def kernel_requests(setup: Setup) -> Iterator[Job]:
    """Score 1 and 1000 rows by 5000 training rows; limit: bare NumPy for the same numbers."""
    gamma = rbf_gamma(KERNEL_WIDTH)
    sample = make_sample(setup.size(5000), KERNEL_WIDTH)
    model = fit_grouped(KernelPCSDA(gamma=gamma), sample)
    for n_rows in (1, setup.size(1000)):
        X = make_sample(n_rows, KERNEL_WIDTH, seed=1).X
        case = {"n": n_rows, "N": len(sample.X), "D": KERNEL_WIDTH}
        yield request_job("kernel-requests", case, model, sample, X, {"SVC": svc(gamma)}, gamma)


def request_job(
    name: str,
    case: Mapping[str, float],
    model: Any,
    sample: Any,
    X: np.ndarray,
    peers: dict[str, Any],
    gamma: float | None = None,
) -> Job:
    """Compare our two ways of scoring with the expression that a user would write by hand."""
    expression = bare_expression(model, gamma)
    fast = model.fast_scorer()
    single = len(X) == 1
    rows = X[0] if single else X
    for values in (fast(rows), model.log_likelihood_ratio(X)):
        np.testing.assert_allclose(values, expression(X), rtol=1e-8, atol=1e-8)
    bounds: tuple[Bound, ...] = ()
    if single:
        bounds = (Bound(BARE_NUMPY, at_most=REQUEST_RATIO),)
        if gamma is None:  # the kernel values of thousands of rows alone may take longer
            bounds += (Bound(None, at_most=REQUEST_SECONDS),)
    W = np.ascontiguousarray(model.components_.T) if gamma is None else None
    product = () if single or W is None else (Contestant("X @ W", "limit", lambda: X @ W),)
    return Job(
        name,
        case,
        (
            Contestant(BARE_NUMPY, "limit", partial(expression, X)),
            *product,
            scoring("fast_scorer", fast, rows, *bounds),
            scoring("decision_function", model.decision_function, X),
            *peers_scoring(peers, sample, X),
        ),
    )


def bare_expression(model: Any, gamma: float | None = None) -> Callable[..., np.ndarray]:
    """Write out the log-likelihood ratio, with all constants computed beforehand."""
    density, calibration = model.density_, model.calibration_
    weights, bend = calibration.weights, calibration.bend
    top, highest = calibration.top, calibration.highest
    of_mixture, of_cloud = bare_ratio(density.base), None
    if density.n_views == 2:
        of_cloud, axis = bare_ratio(density.cloud), density.axis[:, None]
    if gamma is None:
        W, origin = model.components_.T, model.components_ @ model.positive_mean_
    else:
        W, origin, rows = model.dual_coef_, model.origin_, model.X_fit_
        norms = (rows**2).sum(axis=1)

    def expression(X: np.ndarray) -> np.ndarray:
        if gamma is not None:
            squares = (X**2).sum(axis=1)[:, None] + norms - 2 * (X @ rows.T)
            X = np.exp(-gamma * squares)
        z = X @ W - origin
        score = weights[0] * of_mixture(z) + calibration.offset
        if of_cloud is not None:
            score += weights[1] * of_cloud(z @ axis)
        inner = np.minimum(np.maximum(score, top), highest)
        apart = score - inner
        return inner + bend * np.copysign(np.log1p(np.abs(apart) / bend), apart)

    return expression


def bare_ratio(density: Any) -> Callable[[np.ndarray], np.ndarray]:
    """Write out the log ratio of one view, a mixture with tails."""
    inside, outside = np.linalg.inv(density.positive), np.linalg.inv(density.negative)
    volume = np.linalg.slogdet(density.negative)[1] - np.linalg.slogdet(density.positive)[1]
    centres, log_weights, tail = density.centres, density.log_weights, density.tail
    factor = 0.5 * (tail + len(inside))

    def energy(squares: np.ndarray) -> np.ndarray:
        return 0.5 * squares if np.isinf(tail) else factor * np.log1p(squares / (tail - 2))

    def ratio(z: np.ndarray) -> np.ndarray:
        away = z[:, None, :] - centres
        near = log_weights - energy(((away @ outside) * away).sum(axis=-1))
        top = near.max(axis=1)
        rest = top + np.log(np.exp(near - top[:, None]).sum(axis=1))
        return 0.5 * volume - energy(((z @ inside) * z).sum(axis=1)) - rest

    return ratio


def scoring(label: str, score: Callable[..., Any], X: np.ndarray, *bounds: Bound) -> Contestant:
    """Make a contestant from one of our ways to score."""
    return Contestant(label, "pcsda", partial(score, X), bounds)


def peers_scoring(peers: dict[str, Any], sample: Any, X: np.ndarray) -> Iterator[Contestant]:
    """Make contestants from fitted peers; KernelRidge has no decision_function."""
    for label, peer in peers.items():
        fitted = peer.fit(sample.X, sample.y)
        score = getattr(fitted, "decision_function", fitted.predict)
        yield Contestant(label, "peer", partial(score, X))


def kernel_predict(setup: Setup) -> Iterator[Job]:
    """Score 10000 rows against N = 5000 training rows; limit: their kernel values alone."""
    gamma = rbf_gamma(KERNEL_WIDTH)
    sample = make_sample(setup.size(5000), KERNEL_WIDTH)
    X = make_sample(setup.size(10000), KERNEL_WIDTH, seed=1).X
    model = fit_grouped(KernelPCSDA(gamma=gamma), sample)
    limit = "rbf_kernel"
    peers = {
        "KernelRidge": KernelRidge(kernel="rbf", gamma=gamma),
        "SVC": svc(gamma),
        "OneClassSVM": PositivesOnly(gamma=gamma),
    }
    yield Job(
        "kernel-predict",
        {"n": len(X), "N": len(sample.X), "D": KERNEL_WIDTH},
        (
            Contestant(limit, "limit", lambda: rbf_kernel(X, sample.X, gamma=gamma)),
            scoring("decision_function", model.decision_function, X, Bound(limit, at_most=1.3)),
            *peers_scoring(peers | nystroem_peers(gamma, setup.size(1000)), sample, X),
        ),
    )
