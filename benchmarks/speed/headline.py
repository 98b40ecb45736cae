"""The calls that users make: default estimators, clustering included, next to common choices.

The other jobs measure parts of the work, with given subclasses; these measure all of it.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC

from pcsda import PCSDA, PCSDACV, KernelPCSDA, NystroemMap, fit_blocks

from . import intelex
from .data import make_verification
from .measure import Bound, Contestant, Job
from .setup import Setup, factor_and_leverages, gram_and_cholesky, kernel_and_leverages
from .startup import with_bytecode

LIMIT, LOGISTIC, MACHINES = "X'X + Cholesky", "LogisticRegression", "GridSearchCV(SVC), 12 settings"
LEAVING = "bare BLAS and LAPACK"
# Smallest number of rows in a quick run, so that every fold has rows of both classes.
FEWEST = 60


def fits(X: np.ndarray, y: np.ndarray, **peers: Any) -> Iterator[Contestant]:
    """Make contestants from common choices on the same rows; keywords name further peers."""
    known = {LOGISTIC: LogisticRegression(), "RidgeClassifier": RidgeClassifier()}
    for label, peer in (known | peers).items():
        yield Contestant(label, "peer", partial(peer.fit, X, y))


def default_fit(setup: Setup) -> Iterator[Job]:
    """Fit PCSDA() with its defaults, k-means included; limit: one X'X and one Cholesky factor."""
    lda = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")
    for n_rows, width in ((5000, 128), (50000, 256), (50000, 512)):
        X, y = make_verification(setup.size(n_rows), setup.size(width))
        bounds = (Bound(LIMIT, at_most=3), Bound(LOGISTIC, at_most=1))
        ours = Contestant("PCSDA()", "pcsda", partial(PCSDA(random_state=0).fit, X, y), bounds)
        peers = fits(X, y, **{"LDA(lsqr, shrinkage=auto)": lda})
        limit = Contestant(LIMIT, "limit", partial(gram_and_cholesky, X))
        yield Job("default-fit", {"N": len(X), "D": X.shape[1]}, (limit, *peers, ours))


def few_positives(setup: Setup) -> Iterator[Job]:
    """Fit PCSDA() with its defaults on ten positives; yardstick: LogisticRegression.

    The limit is what BLAS and LAPACK need for the factor and for leaving every row out.
    """
    for n_rows, width, most in ((310, 512, 6e-3), (3010, 512, 60e-3)):
        X, y = make_verification(max(setup.size(n_rows), FEWEST), setup.size(width), 10)
        bound = Bound(None, at_most=most)
        ours = Contestant("PCSDA()", "pcsda", partial(PCSDA(random_state=0).fit, X, y), (bound,))
        logistic, *others = fits(X, y)
        limit = Contestant(LEAVING, "limit", partial(factor_and_leverages, X))
        contestants = (logistic, limit, *others, ours)
        yield Job("few-positives", {"N": len(X), "D": X.shape[1]}, contestants)


def default_kernel(setup: Setup) -> Iterator[Job]:
    """Fit KernelPCSDA() with its defaults, and the Nystroem route; yardstick: SVC()."""
    X, y = make_verification(setup.size(6500), setup.size(256))
    landmarks = setup.size(1000)
    route = make_pipeline(NystroemMap(landmarks, random_state=0), PCSDA(random_state=0))
    exact = partial(KernelPCSDA(random_state=0).fit, X, y)
    n_left = min(5000, int(np.sum(y == 0))) + int(np.sum(y))
    bare = partial(kernel_and_leverages, X, 1 / X.shape[1], n_left)
    yield Job(
        "default-kernel",
        {"N": len(X), "D": X.shape[1], "L": landmarks},
        (
            Contestant("SVC", "peer", partial(SVC().fit, X, y)),
            Contestant(LEAVING, "limit", bare),
            Contestant("KernelPCSDA()", "pcsda", exact, (Bound(None, at_most=2.0),)),
            Contestant("NystroemMap + PCSDA()", "pcsda", partial(route.fit, X, y)),
        ),
    )


def default_search(setup: Setup) -> Iterator[Job]:
    """Choose settings, with no grid given; yardstick: GridSearchCV(SVC) over 12 settings."""
    for n_rows, width, n_positive in (
        *((300, 512, 10), (1000, 256, 50)),
        *((2000, 512, 100), (6500, 256, 200)),
    ):
        rows = max(setup.size(n_rows), FEWEST)
        X, y = make_verification(rows, setup.size(width), max(setup.size(n_positive), 10))
        scale = 1 / (X.shape[1] * X.var())
        grid = {"C": [0.1, 1, 10, 100], "gamma": [scale / 3, scale, scale * 3]}
        bound = Bound(MACHINES, at_most=1)
        yield Job(
            "default-search",
            {"N": len(X), "D": X.shape[1]},
            (
                Contestant(MACHINES, "peer", partial(GridSearchCV(SVC(), grid).fit, X, y)),
                searching("PCSDACV(KernelPCSDA())", KernelPCSDA(random_state=0), X, y, bound),
                searching("PCSDACV()", PCSDA(random_state=0), X, y, bound),
            ),
        )


def searching(label: str, estimator: Any, X: np.ndarray, y: np.ndarray, bound: Bound) -> Contestant:
    """Make a contestant from one of our searches, with no grid given."""
    return Contestant(label, "pcsda", partial(PCSDACV(estimator).fit, X, y), (bound,))


def busy_machine(setup: Setup) -> Iterator[Job]:
    """Search alone and beside two busy processes; yardstick: GridSearchCV(SVC), alone."""
    X, y = make_verification(max(setup.size(300), FEWEST), setup.size(512), 10)
    scale = 1 / (X.shape[1] * X.var())
    grid = {"C": [0.1, 1, 10, 100], "gamma": [scale / 3, scale, scale * 3]}
    calls = {
        MACHINES: ("peer", partial(GridSearchCV(SVC(), grid).fit, X, y)),
        "PCSDACV()": ("pcsda", partial(PCSDACV(PCSDA(random_state=0)).fit, X, y)),
        "PCSDACV(KernelPCSDA())": (
            "pcsda",
            partial(PCSDACV(KernelPCSDA(random_state=0)).fit, X, y),
        ),
    }
    contestants = []
    for label, (role, call) in calls.items():
        bounds = (Bound(label, at_most=2),) if role == "pcsda" else ()
        beside = partial(seconds_beside, setup.clock.now, call)
        contestants += [
            Contestant(label, role, call),
            Contestant(f"{label}, beside two", role, beside, bounds, reports=True),
        ]
    yield Job("busy-machine", {"N": len(X), "D": X.shape[1]}, tuple(contestants))


def seconds_beside(now: Callable[[], float], call: Callable[[], object], others: int = 2) -> float:
    """Return the seconds of a call while `others` other processes each keep a processor busy."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(others)]
    try:
        time.sleep(0.3)  # until they have started
        start = now()
        call()
        return now() - start
    finally:
        for process in busy:
            process.kill()
            process.wait()


def array_in_blocks(setup: Setup) -> Iterator[Job]:
    """Fit in blocks an array that fits in memory; yardstick: PCSDA().fit."""
    X, y = make_verification(setup.size(6400), setup.size(512))
    model, whole = PCSDA(random_state=0), "PCSDA().fit"
    by_blocks = partial(fit_blocks, PCSDA(random_state=0), X, y=y)
    yield Job(
        "array-in-blocks",
        {"N": len(X), "D": X.shape[1]},
        (
            Contestant(whole, "pcsda", partial(model.fit, X, y)),
            Contestant("fit_blocks", "pcsda", by_blocks, (Bound(whole, at_most=2),)),
        ),
    )


def command_line(setup: Setup) -> Iterator[Job]:
    """Ask the command line for its version; yardstick: a Python that does nothing."""
    nothing, ours, now = "python -c pass", "pcsda --version", setup.clock.now
    yield Job(
        "command-line",
        {"runs": 1},
        (
            Contestant(nothing, "peer", partial(process_seconds, now, "-c", "pass"), reports=True),
            Contestant(
                ours,
                "pcsda",
                partial(process_seconds, now, "-m", "pcsda", "--version"),
                (Bound(None, at_most=0.3),),
                reports=True,
            ),
        ),
    )


def process_seconds(now: Callable[[], float], *arguments: str) -> float:
    """Return the seconds from start to end of a Python process, by the given clock."""
    command, env = [sys.executable, *arguments], with_bytecode()
    start = now()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True, env=env)
    return now() - start


def with_intelex(setup: Setup) -> Iterator[Job]:
    """Fit PCSDA() beside scikit-learn-intelex in a Python of its own; only with --intelex."""
    if setup.intelex is None:
        raise SystemExit("the job intelex needs --intelex PYTHON")
    linear, curved = (LogisticRegression(), PCSDA(random_state=0)), (SVC(), KernelPCSDA())
    for n_rows, width, n_positive, (peer, model) in (
        (3010, 512, 10, linear),
        (50000, 256, None, linear),
        (6500, 256, None, curved),
    ):
        size = max(setup.size(n_rows), FEWEST), setup.size(width), n_positive
        X, y = make_verification(*size)
        name = type(peer).__name__
        theirs = partial(intelex.fit_seconds, setup.intelex, name, size, setup)
        yield Job(
            "intelex",
            {"N": len(X), "D": X.shape[1]},
            (
                Contestant(name, "peer", partial(peer.fit, X, y)),
                Contestant(f"intelex {name}", "peer", theirs, reports=True),
                Contestant(f"{type(model).__name__}()", "pcsda", partial(model.fit, X, y)),
            ),
        )


HEADLINES = {
    "default-fit": default_fit,
    "few-positives": few_positives,
    "default-kernel": default_kernel,
    "default-search": default_search,
    "busy-machine": busy_machine,
    "array-in-blocks": array_in_blocks,
    "command-line": command_line,
    "intelex": with_intelex,
}
