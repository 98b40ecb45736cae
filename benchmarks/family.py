"""Compare the class-specific family on digits, ORL pictures and planted outer products.

    python -m benchmarks.family       run what is missing, some minutes on one core; it resumes
    gzip -9 -n -c results/family.jsonl > family.jsonl.gz      in this folder, to publish the rows

Every method uses its defaults, ten axes if it needs a number, and the same training rows: half of
the negatives, and either half or three of the positives. All other rows are used for evaluation.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics import average_precision_score, f1_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.svm import LinearSVC

from pcsda import CSDA, PCSDA, KernelCSDA, KernelPCSDA, MultilinearCSDA

from . import markdown
from .paper.datasets import SOURCES, AbsentError, load
from .paper.rows import Row, RowFile, read

HERE = Path(__file__).parent
ROWS = HERE / "family.jsonl.gz"
D, DRAWS, CLASSES = 10, 2, 10
KEY = ("dataset", "class", "draw", "n_positive", "method")
SHAPES = {name: SOURCES[name].shape for name in ("digits", "ORL")} | {"planted": (20, 15)}


class Member(NamedTuple):
    """A line of the guide's table; `method` is the name under which its results are stored."""

    method: str
    name: str
    maximises: str
    use: str
    cost: str


def svm(shape: tuple[int, ...]) -> Any:
    return make_pipeline(CSDA(D), FunctionTransformer(np.abs), LinearSVC(dual=False))


METHODS: dict[str, Callable[[tuple[int, ...]], Any]] = {
    "PCSDA": lambda shape: PCSDA(random_state=0),
    "CSDA": lambda shape: CSDA(D, random_state=0),
    "CSDA, trace ratio": lambda shape: CSDA(D, solver="trace_ratio", random_state=0),
    "CSDA, optimal reference": lambda shape: CSDA(D, reference="optimal", random_state=0),
    "CSDA, labels": lambda shape: CSDA(D, solver="labels", random_state=0),
    "CSDA, raw labels": lambda shape: CSDA(D, solver="raw_labels", random_state=0),
    "CSDA, spectral": lambda shape: CSDA(D, solver="spectral", random_state=0),
    "CSDA + linear SVM": svm,
    "MultilinearCSDA": lambda shape: MultilinearCSDA((3, 3), shape, random_state=0),
    "KernelPCSDA": lambda shape: KernelPCSDA(random_state=0),
    "KernelCSDA": lambda shape: KernelCSDA(n_components=D, random_state=0),
    "KernelCSDA, optimal reference": lambda shape: KernelCSDA(
        n_components=D, reference="optimal", random_state=0
    ),
}
# The lines of the guide's table: what each estimator maximises, when to use it, and its cost.
MEMBERS = [
    Member(
        "PCSDA",
        "{class}`~pcsda.PCSDA`",
        "scatter of subclass means against scatter within groups, (20)",
        "always try it first: it has left-out covariances and calibration in closed form",
        "$N D^2 + D^3/3$",
    ),
    Member(
        "CSDA",
        "{class}`~pcsda.CSDA`",
        "scatter of all negatives against that of the positives, (2) and (3), as an eigenproblem",
        "negatives have no groups, and there are enough positives to estimate their scatter",
        "$N D^2$ and an eigenproblem of size $D$; for $D > N$ of size $N$, only the leading axes",
    ),
    Member(
        "",
        '`CSDA(solver="lowrank")`',
        "the same, as a regression of rank $d$",
        "you want to check the other solver: the subspace is the same",
        "about the same",
    ),
    Member(
        "CSDA, trace ratio",
        '`CSDA(solver="trace_ratio")`',
        "the trace ratio (1) itself, over orthonormal directions",
        "distances in the subspace should be distances in the data",
        "five to ten eigenproblems of size $D$",
    ),
    Member(
        "CSDA, optimal reference",
        '`CSDA(reference="optimal")`',
        "the same ratio over directions and the reference vector of the negatives",
        "the mean of few positives is a poor centre",
        "as the trace ratio",
    ),
    Member(
        "CSDA, labels",
        '`CSDA(solver="labels")`',
        "a regression on targets known from the labels, then the best directions in its span",
        "$D$ is large and time is short",
        "$D^3/3$, no eigenproblem",
    ),
    Member(
        "CSDA, raw labels",
        '`CSDA(solver="raw_labels")`, `"spectral"`',
        "that regression directly",
        "you compare with the publications",
        "the same",
    ),
    Member(
        "MultilinearCSDA",
        "{class}`~pcsda.MultilinearCSDA`",
        "the trace ratio over outer products of directions, one for each mode",
        "samples are pictures or tensors and positives are few",
        r"$N D d$ per cycle; no $D \times D$ matrix",
    ),
    Member(
        "KernelPCSDA",
        "{class}`~pcsda.KernelPCSDA`",
        "PCSDA in feature space",
        "a linear subspace is not enough",
        "$N^3/3$, and $m^3/3$ for $m$ rows left out",
    ),
    Member(
        "KernelCSDA",
        "{class}`~pcsda.KernelCSDA`",
        "CSDA in feature space, with all its solvers",
        "as CSDA, with a kernel",
        "$N_p^3/3$ and some twenty products of the kernel matrix with $d$ vectors",
    ),
]
PLANTED = ("PCSDA", "CSDA", "CSDA, trace ratio", "MultilinearCSDA")


def plant(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw noise, and add random multiples of one outer product to the negatives."""
    y = np.arange(2200) < 1100
    sides = [rng.standard_normal(size) for size in SHAPES["planted"]]
    outer = np.outer(*(side / np.linalg.norm(side) for side in sides)).ravel()
    X = rng.standard_normal((len(y), len(outer)))
    return X + np.outer(np.where(y, 0.0, rng.uniform(2, 6, len(y))), outer), y


def problems() -> Iterator[tuple[str, str, int, int, np.ndarray, np.ndarray]]:
    """Yield set, class, draw and number of positives (0 means half), with rows and labels."""
    sets = {"digits": load_digits(return_X_y=True)}
    try:
        pictures = load("ORL")
        sets["ORL"] = pictures.X, pictures.y
    except AbsentError as error:
        print(error)
    for name, (X, y) in sets.items():
        labels = np.unique(y)[:CLASSES]
        for draw, label, count in product(range(DRAWS), labels, (0, 3)):
            yield name, str(label), draw, count, X, y == label
    for draw, count in product(range(4 * DRAWS), (2, 5, 20, 100)):
        yield "planted", "0", draw, count, *plant(np.random.default_rng(draw))


def split(y: np.ndarray, count: int, n_negative: int, rng: np.random.Generator) -> np.ndarray:
    """Return the indices of the training rows."""
    positives, negatives = (rng.permutation(np.flatnonzero(part)) for part in (y, ~y))
    return np.append(positives[: count or len(positives) // 2], negatives[:n_negative])


def run(file: RowFile) -> None:
    done = {tuple(row[name] for name in KEY) for row in file.rows}
    for dataset, label, draw, count, X, y in problems():
        planted = dataset == "planted"
        rng = np.random.default_rng([draw, int(float(label)), count])
        train = split(y, count, 100 if planted else int(np.sum(~y)) // 2, rng)
        rest = np.setdiff1d(np.arange(len(y)), train)
        for name in PLANTED if planted else METHODS:
            key = (dataset, label, draw, count, name)
            if key in done:
                continue
            model, begin = METHODS[name](SHAPES[dataset]), time.process_time()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model.fit(X[train], y[train])
                seconds = time.process_time() - begin
                scores = model.decision_function(X[rest])
            row = dict(zip(KEY, key, strict=True)) | {
                "ap": float(average_precision_score(y[rest], scores)),
                "f1": float(f1_score(y[rest], scores >= 0, zero_division=0.0)),
                "seconds": round(seconds, 4),
                "n_train": len(train),
            }
            if hasattr(model, "score_samples"):
                near = model.score_samples(X[rest])
                row["ap_distance"] = float(average_precision_score(y[rest], near))
            file.append([row])


def members(rows: list[Row]) -> str:
    """Return the guide's table of the family, with average precision on the digits and on ORL."""
    head = ["estimator", "what it maximises", "use it if", "cost", "digits", "ORL"]
    lines = []
    for member in MEMBERS:
        figures = [
            f"{_cell(rows, member.method, name, 0, ('ap',))} / "
            f"{_cell(rows, member.method, name, 3, ('ap',))}"
            for name in ("digits", "ORL")
        ]
        lines.append([*member[1:], *(figures if member.method else ["as CSDA"] * 2)])
    return markdown.table(head, lines) + "\n"


def table(rows: list[Row]) -> str:
    """Return means over classes and draws as Markdown, or a note if nothing was run."""
    if not rows:
        return "**Not run yet.** `python -m benchmarks.family` makes the rows.\n"
    cells = [
        (f"{name}, {'half' if count == 0 else count} of the positives", name, count)
        for name in ("digits", "ORL")
        for count in (0, 3)
    ]
    lines = [
        [method, *(_cell(rows, method, dataset, count) for _, dataset, count in cells)]
        for method in METHODS
    ]
    head = ["average precision / F1 / seconds to fit", *(cell[0] for cell in cells)]
    counts = sorted({row["n_positive"] for row in rows if row["dataset"] == "planted"})
    planted = [
        [method, *(_cell(rows, method, "planted", count, ("ap",)) for count in counts)]
        for method in PLANTED
    ]
    titles = ["average precision, planted outer product", *(f"{n} positives" for n in counts)]
    tables = markdown.table(head, lines), markdown.table(titles, planted)
    return markdown.details("Results of every estimator", *tables) + "\n"


def _cell(
    rows: list[Row],
    method: str,
    dataset: str,
    count: int,
    names: tuple[str, ...] = ("ap", "f1", "seconds"),
) -> str:
    wanted = (method, dataset, count)
    own = [row for row in rows if (row["method"], row["dataset"], row["n_positive"]) == wanted]
    if not own:
        return "not run"
    digits = {"ap": 3, "f1": 3, "seconds": 2}
    means = (np.mean([row[name] for row in own]) for name in names)
    return " / ".join(f"{mean:.{digits[name]}f}" for name, mean in zip(names, means, strict=True))


def main() -> None:
    file = RowFile(HERE / "results" / "family.jsonl")
    try:
        run(file)
    finally:
        file.close()
    print(table(read(HERE / "results" / "family.jsonl")))


if __name__ == "__main__":
    main()
