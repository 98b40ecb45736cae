"""Jobs that fit, score, change and save banks of up to 10,000 labels. They run only if named."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from sklearn.neighbors import NearestNeighbors

from pcsda import PCSDA, VerifierBank, load, save

from .measure import Bound, Contestant, Job
from .setup import Setup, gram_and_cholesky

LABELS, ROWS, WIDTH, AXES = 10_000, 10, 256, 20
# Number of labels in the bank that is changed.
SOME = 1000
MOST_SECONDS, CHANGE_SECONDS, SHARE_OF_ARRAYS, TIMES_PRODUCT = 60, 0.01, 3, 2
QUICK = 250


def planted(n_labels: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw rows of planted identities in single precision."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((n_labels, WIDTH), dtype=np.float32)
    y = np.repeat(np.arange(n_labels), ROWS)
    X = centres[y] + 0.5 * rng.standard_normal((len(y), WIDTH), dtype=np.float32)
    return X, y


def sized(setup: Setup, n_labels: int) -> int:
    return n_labels // QUICK if setup.quick else n_labels


def new_bank(n_subclasses: int | str = "auto") -> VerifierBank:
    """Make a bank whose labels share two covariances, or one with clusters."""
    return VerifierBank(PCSDA(n_subclasses=n_subclasses, random_state=0))


def bank_scale(setup: Setup) -> Iterator[Job]:
    """Fit 10,000 labels on 100,000 x 256 float32, score one row and 1000, save and load."""
    X, y = planted(sized(setup, LABELS))
    case = {"N": len(X), "D": WIDTH, "C": int(y[-1]) + 1}
    limit, ours = "X'X + Cholesky", "VerifierBank()"
    bank = new_bank()
    yield Job(
        "bank-scale-fit",
        case,
        (
            Contestant(limit, "limit", partial(gram_and_cholesky, X)),
            Contestant(ours, "pcsda", lambda: bank.fit(X, y), (Bound(None, at_most=MOST_SECONDS),)),
        ),
    )
    bank.fit(X, y)
    axes = np.random.default_rng(1).standard_normal((case["C"], WIDTH), dtype=np.float32)
    new = X[:1000] + np.float32(0.1)
    for n_rows in (1, len(new)):
        yield asking(bank, axes, X, new[:n_rows], case)
    yield from files(bank, axes, X, case)


def asking(bank: VerifierBank, axes: np.ndarray, X: np.ndarray, new: np.ndarray, case: dict) -> Job:
    """Score rows for all labels, compared with one product per row and nearest neighbours."""
    limit = "X W, an axis for each label"
    return Job(
        "bank-scale-ask",
        case | {"rows": len(new)},
        (
            Contestant(limit, "limit", lambda: new @ axes.T),
            Contestant(
                "log_likelihood_ratio",
                "pcsda",
                lambda: bank.log_likelihood_ratio(new),
                (Bound(limit, at_most=TIMES_PRODUCT),),
            ),
            *neighbours(X, new),
        ),
    )


def neighbours(X: np.ndarray, new: np.ndarray) -> Iterator[Contestant]:
    """Find the nearest row with scikit-learn and, if it is installed, with faiss."""
    nearest = NearestNeighbors(n_neighbors=1, algorithm="brute").fit(X)
    yield Contestant("NearestNeighbors(1)", "peer", lambda: nearest.kneighbors(new))
    try:
        import faiss
    except ImportError:
        return
    index = faiss.IndexFlatL2(X.shape[1])
    index.add(X)
    yield Contestant("faiss.IndexFlatL2", "peer", lambda: index.search(new, 1))


def files(bank: VerifierBank, axes: np.ndarray, X: np.ndarray, case: dict) -> Iterator[Job]:
    """Compare a bank's file with its rows and axes: bytes, and seconds to write and read."""
    with TemporaryDirectory(prefix="pcsda-bank-") as name:
        path, arrays = Path(name) / "bank.pcsda", Path(name) / "arrays.npz"
        limit = "np.savez of rows and axes"
        yield Job(
            "bank-scale-file",
            case,
            (
                Contestant(limit, "limit", lambda: np.savez(arrays, X=X, axes=axes)),
                Contestant("save", "pcsda", lambda: save(bank, path)),
                Contestant("load", "pcsda", lambda: load(path)),
            ),
        )
        save(bank, path)
        size, needed = path.stat().st_size, X.nbytes + axes.nbytes
        yield Job(
            "bank-scale-bytes",
            case,
            (
                Contestant("rows and axes", "limit", lambda: needed),
                Contestant(
                    "the file",
                    "pcsda",
                    lambda: size,
                    (Bound("rows and axes", at_most=SHARE_OF_ARRAYS),),
                ),
            ),
            "bytes",
        )


def bank_changes(setup: Setup) -> Iterator[Job]:
    """Update, reject, enroll and remove in a bank of 1000 labels; limit: project its sample."""
    X, y = planted(sized(setup, SOME))
    bank, of_clusters = new_bank().fit(X, y), new_bank(AXES).fit(X, y)
    sample = X[:5000].astype(np.float64)
    means = sample[: AXES + 1]
    rng, names = np.random.default_rng(2), count(len(X))
    last: list[int] = []

    def fresh(n_rows: int) -> np.ndarray:
        return rng.standard_normal((n_rows, WIDTH), dtype=np.float32)

    def enroll() -> None:
        last.append(next(names))
        bank.enroll(fresh(ROWS), last[-1])

    def update_and_ask() -> None:
        """Update and score, because the covariances are solved again at the next score."""
        bank.update(fresh(1), 3).log_likelihood_ratio(X[:1])

    def enroll_and_remove() -> None:
        enroll()
        bank.remove(last.pop())

    quick = (Bound(None, at_most=CHANGE_SECONDS),)
    yield Job(
        "bank-changes",
        {"N": len(X), "D": WIDTH, "C": int(y[-1]) + 1},
        (
            Contestant("sample times means", "limit", lambda: sample @ means.T),
            Contestant("update, one row", "pcsda", lambda: bank.update(fresh(1), 3), quick),
            Contestant("update and ask", "pcsda", update_and_ask),
            Contestant("reject, one row", "pcsda", lambda: bank.reject(fresh(1), 3), quick),
            Contestant(
                "reject, one row, with clusters",
                "pcsda",
                lambda: of_clusters.reject(fresh(1), 3),
                quick,
            ),
            Contestant(
                "enroll ten rows and remove",
                "pcsda",
                enroll_and_remove,
                (Bound(None, at_most=2 * CHANGE_SECONDS),),
            ),
        ),
    )


BANK_JOBS: dict[str, Callable[[Setup], Iterator[Job]]] = {
    "bank-scale": bank_scale,
    "bank-changes": bank_changes,
}
