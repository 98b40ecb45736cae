"""Is the setting that PCSDACV chooses as good as that of a full search?

    python -m benchmarks.cheaper --minutes 4      compute rows; resumes
    python -m benchmarks.pages                    the table of docs/speed.md, from stored rows

By default, a search scores 9 to 22 settings in two steps, on a sample of the rows. A full search
scores every setting of a finer grid on all rows. Both use the same training rows.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

from pcsda import PCSDA, PCSDACV, KernelPCSDA

from .markdown import details, table
from .paper.datasets import load
from .paper.rows import Row, RowFile

HERE = Path(__file__).parent
STORED, RESULTS = HERE / "cheaper.jsonl.gz", HERE / "results" / "cheaper.jsonl"
SETS = ("ORL", "ISOLET", "USPS", "15 scenes", "Caltech101")
CLASSES = 5
MOST_ROWS = {"PCSDA": 4000, "KernelPCSDA": 1000}
KEY = ("dataset", "class", "estimator")
COUNTS, RIDGES = (1, 2, 5, 10), (1e-3, 1e-2, 0.1, 0.3, 1.0, 3.0)
WIDTHS = (0.3, 1.0, 3.0)


def problems() -> Iterator[tuple[str, int, str]]:
    """Yield data set, class and estimator, ordered so that a stopped study covers all sets."""
    for place, name, estimator in product(range(CLASSES), SETS, MOST_ROWS):
        yield name, place, estimator


def compare(name: str, place: int, estimator: str) -> Row:
    """Measure test log-loss and seconds of both searches, for one class against all others."""
    data = load(name)
    label = place * len(data.classes) // CLASSES
    truth = (data.y == label).astype(int)
    most = min(MOST_ROWS[estimator], len(truth) // 2)
    X, test, y, known = train_test_split(
        data.X, truth, train_size=most, stratify=data.y, random_state=place
    )
    model = {"PCSDA": PCSDA, "KernelPCSDA": KernelPCSDA}[estimator](random_state=0)
    start = time.process_time()
    model.fit(X, y)
    taken = time.process_time() - start
    row: Row = dict(zip(KEY, (name, data.classes[label], estimator), strict=True))
    row |= {"place": place, "rows": most, "positives": int(y.sum()), "default_seconds": taken}
    row["default_loss"] = log_loss(known, model.predict_proba(test)[:, 1])
    for way, given in (("cheap", {}), ("full", every_value(model, X))):
        start = time.process_time()
        search = PCSDACV(model, **given).fit(X, y)
        row[f"{way}_seconds"] = time.process_time() - start
        row[f"{way}_loss"] = log_loss(known, search.predict_proba(test)[:, 1])
        row[f"{way}_settings"] = len(search.cv_results_["params"])
    return row


def every_value(model: Any, X: np.ndarray) -> dict[str, list[Any]]:
    """Return the parameter values of a full search, including those of the fitted model."""
    values: dict[str, list[Any]] = {
        "n_subclasses": sorted({*COUNTS, len(model.subclass_counts_)}),
        "regularization": sorted({*RIDGES, model.regularization_}),
    }
    if isinstance(model, KernelPCSDA):
        values["n_subclasses"] = [1, 5, len(model.subclass_counts_)]
        values["gamma"] = ["positive", *(width / (X.shape[1] * X.var()) for width in WIDTHS)]
    return values


def page(rows: list[Row]) -> str:
    """Return a table with a line for each estimator and data set, and a total per estimator."""
    if not rows:
        return "No rows yet."
    lines = []
    for estimator in MOST_ROWS:
        of_all = [row for row in rows if row["estimator"] == estimator]
        groups = [(name, [row for row in of_all if row["dataset"] == name]) for name in SETS]
        lines += [line(estimator, *group) for group in (*groups, ("all", of_all)) if group[1]]
    head = ("search", "problems", "log-loss", "full search", "difference", "seconds, full")
    return details("The shorter search and a full one", table(head, lines))


def line(estimator: str, name: str, rows: list[Row]) -> list[str]:
    """Return means over problems, and the mean difference with its standard error."""
    cheap, full, seconds, longer = (
        np.array([row[field] for row in rows])
        for field in ("cheap_loss", "full_loss", "cheap_seconds", "full_seconds")
    )
    gap = cheap - full
    error = f" ± {gap.std(ddof=1) / np.sqrt(len(gap)):.4f}" if len(gap) > 1 else ""
    return [
        f"`PCSDACV({estimator}())`, {name}",
        str(len(rows)),
        f"{cheap.mean():.4f}",
        f"{full.mean():.4f}",
        f"{gap.mean():+.4f}{error}",
        f"{seconds.mean():.1f}, {longer.mean():.1f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    until = time.monotonic() + 60 * parser.parse_args().minutes
    warnings.simplefilter("ignore")
    file = RowFile(RESULTS)
    try:
        done = {(row["dataset"], row["place"], row["estimator"]) for row in file.rows}
        for problem in problems():
            if problem not in done and time.monotonic() < until:
                file.append([compare(*problem)])
                print(file.rows[-1], flush=True)
    finally:
        file.close()
    print(page(file.rows))


if __name__ == "__main__":
    main()
