"""How the defaults of the library were chosen: one change at a time, on sets used for tuning only.

    python -m benchmarks.paper.defaults [--splits N] [--jobs N] [--datasets ORL ISOLET USPS]

Only ORL, ISOLET and USPS are used; none is a set of the paper. Each class of a set (10 seeded ones
if there are more than 15) is tested on the splits of the protocol. USPS contributes 3000 random
rows to each split, which keeps the study short. A variant changes one default of an estimator, or
a few that belong together, and is judged by average precision, F1 and log-loss on the test part.
Rows are written to a file, so that a stopped study can resume.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from scipy.stats import rankdata
from sklearn.metrics import average_precision_score, f1_score
from threadpoolctl import threadpool_limits

from pcsda import PCSDA, PCSDACV, KernelPCSDA

from .datasets import Dataset, load
from .protocol import VERSIONS, Unit, chosen_classes, split_rows
from .rows import Row, RowFile, key
from .run import duration
from .spaces import Array
from .summary import by_problem, cells
from .tables import Block, Table

SETS = ("ORL", "ISOLET", "USPS")
USPS_ROWS = 3000
ROWS = Path(__file__).parent / "results" / "defaults.jsonl"
AS_IT_IS = "as it is"
# Log-loss is negated, so that larger values are better.
KINDS = {"ranking": "AP", "classification": "F1", "-log-loss": "log-loss"}
Make = Callable[[int, Array], Any]


def before(y: Array) -> dict[str, Any]:
    """Return the defaults before this study, from the first design notes."""
    return {
        "negatives": "mixture",
        "tails": "gaussian",
        "regularization": 0.01,
        "n_subclasses": min(max(round(int((~y).sum()) / 50), 1), 10),
    }


CHANGES: dict[str, dict[str, Any]] = {
    AS_IT_IS: {},
    "ridge 0.001": {"regularization": 0.001},
    "ridge 0.01": {"regularization": 0.01},
    "ridge 1": {"regularization": 1.0},
    "mixture alone": {"negatives": "mixture"},
    "marginal": {"negatives": "marginal"},
    "Gaussian tails": {"tails": "gaussian"},
    "mixture, Gaussian tails": {"negatives": "mixture", "tails": "gaussian"},
    "resubstituted covariances": {"covariance": "resubstitution"},
    "not calibrated": {"calibrate": False},
    "no shrinkage": {"shrinkage": 0.0},
    "shrinkage of 2 samples": {"shrinkage": 2.0},
    "shrinkage of 20 samples": {"shrinkage": 20.0},
    "K = 1": {"n_subclasses": 1},
    "K = 5": {"n_subclasses": 5},
    "K = 10": {"n_subclasses": 10},
    "K = 20": {"n_subclasses": 20},
    "K = 40": {"n_subclasses": 40},
}
OF_KERNELS = {
    "gamma scale": {"gamma": "scale"},
    "gamma of all pairs": {"gamma": "all"},
    "gamma scale, ridge 0.01": {"gamma": "scale", "regularization": 0.01},
}
OF_SEARCH = {
    AS_IT_IS: {},
    "stay of 0": {"stay": 0.0},
    "stay of 1": {"stay": 1.0},
    "stay of 3": {"stay": 3.0},
    "stay of 0, no slack": {"stay": 0.0, "slack": 0.0},
    "stay of 0, slack of 1": {"stay": 0.0, "slack": 1.0},
}


def _fixed(kind: Any, changes: dict[str, Any]) -> Make:
    return lambda seed, y: kind(random_state=seed, **changes)


def _search(changes: dict[str, Any]) -> Make:
    return lambda seed, y: PCSDACV(KernelPCSDA(random_state=seed), **changes)


def variants() -> dict[str, Make]:
    """Return functions that make the estimators, by name ("family: change")."""
    found: dict[str, Make] = {}
    for family, kind, own in (("PCSDA", PCSDA, {}), ("KernelPCSDA", KernelPCSDA, OF_KERNELS)):
        for name, changes in (CHANGES | own).items():
            found[f"{family}: {name}"] = _fixed(kind, changes)
        found[f"{family}: before this study"] = lambda seed, y, kind=kind: kind(
            random_state=seed, **before(y)
        )
    for name, changes in OF_SEARCH.items():
        found[f"PCSDACV: {name}"] = _search(changes)
    found["PCSDACV: stay of 0, mixture, Gaussian tails"] = lambda seed, y: PCSDACV(
        KernelPCSDA(negatives="mixture", tails="gaussian", random_state=seed), stay=0.0
    )
    return found


def part_of(dataset: Dataset, split: int) -> Dataset:
    """Return the rows of a split: a sample of USPS, or all rows of another set."""
    if dataset.name != "USPS" or len(dataset.X) <= USPS_ROWS:
        return dataset
    kept = np.random.default_rng(split).choice(len(dataset.X), USPS_ROWS, replace=False)
    kept.sort()
    return replace(dataset, X=dataset.X[kept], y=dataset.y[kept])


def run_unit(dataset: Dataset, unit: Unit) -> list[Row]:
    """Return the rows of one class and split for the variants that the unit names."""
    part = part_of(dataset, unit.split)
    y = part.y == part.classes.index(unit.label)
    train, test = split_rows(y, unit.seed)
    X, X_test = part.X[train].astype(float), part.X[test].astype(float)
    rows: list[Row] = []
    makers = variants()
    for name in unit.methods:
        begin = time.process_time()
        with threadpool_limits(1):
            try:
                model = makers[name](unit.seed, y[train]).fit(X, y[train])
                values = model.decision_function(X_test)
            except ValueError as error:
                values, failure = None, str(error)
        common = {
            "dataset": unit.dataset,
            "class": unit.label,
            "split": unit.split,
            "method": name,
            "seconds": round(time.process_time() - begin, 3),
            "seed": unit.seed,
            "profile": "defaults",
            "versions": VERSIONS,
        }
        if values is None:
            rows += [common | {"kind": kind, "value": None, "failure": failure} for kind in KINDS]
            continue
        measured = {
            "ranking": average_precision_score(y[test], values),
            "classification": f1_score(y[test], values >= 0, zero_division=0.0),
            "-log-loss": -np.logaddexp(0, np.where(y[test], -values, values)).mean(),
        }
        rows += [common | {"kind": kind, "value": float(v)} for kind, v in measured.items()]
    return rows


def page(rows: list[Row]) -> list[Block]:
    """Return the tables of the study, one per family."""
    if not rows:
        return ["Nothing was measured."]
    blocks: list[Block] = []
    names = dict.fromkeys(row["method"] for row in rows)
    for family in dict.fromkeys(name.partition(":")[0] for name in names):
        own = [row for row in rows if row["method"].partition(":")[0] == family]
        blocks += [f"## {family}", _table(own)]
    return blocks


def _table(rows: list[Row]) -> Table:
    """List variants by mean rank over sets and measures, with significant differences."""
    failed = {row["method"] for row in rows if row["value"] is None}
    rows = [row for row in rows if row["method"] not in failed]
    found = {kind: cells(rows, kind) for kind in KINDS}
    sets = [name for name in SETS if name in found["ranking"]]
    names = list(dict.fromkeys(row["method"] for row in rows))
    values = np.array(
        [
            [[np.mean(list(by_problem(found[k][s][n]).values())) for k in KINDS] for s in sets]
            for n in names
        ]
    )  # (variants, sets, measures)
    ranks = rankdata(-values, axis=0).mean(axis=(1, 2))
    own = next(n for n in names if n.endswith(f": {AS_IT_IS}"))
    lines = []
    for place in np.argsort(ranks, kind="stable"):
        name = names[place]
        line = [name.partition(": ")[2], f"{ranks[place]:.1f}"]
        line += [f"{ap:.4f} / {f1:.4f} / {-loss:.4f}" for ap, f1, loss in values[place]]
        line.append(_significant(found, sets, name, own))
        lines.append([f"**{cell}**" if name == own else cell for cell in line])
    lines += [[name.partition(": ")[2], "-", *["failed"] * len(sets), "-"] for name in failed]
    head = ["variant", "mean rank", *(f"{name}: AP / F1 / log-loss" for name in sets)]
    return Table([*head, "differs from the default by more than two standard errors"], lines)


def _significant(found: Any, sets: list[str], name: str, own: str) -> str:
    """Say where a variant differs from the default by more than two paired standard errors."""
    if name == own:
        return "-"
    notes: dict[str, list[str]] = {}
    for dataset in sets:
        for kind, measure in KINDS.items():
            ours, other = (by_problem(found[kind][dataset][n]) for n in (own, name))
            gaps = np.array([other[label] - ours[label] for label in ours])
            error = gaps.std(ddof=1) / np.sqrt(len(gaps)) if len(gaps) > 1 else np.inf
            if abs(gaps.mean()) > 2 * error > 0:
                side = "better" if gaps.mean() > 0 else "worse"
                notes.setdefault(f"{side} on {dataset}", []).append(measure)
    return "; ".join(f"{where}: {', '.join(them)}" for where, them in notes.items()) or "nowhere"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.paper.defaults")
    parser.add_argument("--splits", type=int, default=2, metavar="N")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), metavar="N")
    parser.add_argument("--datasets", nargs="+", choices=SETS, default=SETS)
    parser.add_argument("--families", nargs="+", default=["PCSDA", "KernelPCSDA", "PCSDACV"])
    parser.add_argument("--rows", type=Path, default=ROWS)
    args = parser.parse_args(arguments)
    datasets = {name: load(name) for name in args.datasets}
    names = [name for name in variants() if name.partition(":")[0] in args.families]
    file = RowFile(args.rows)
    done = {key(row) for row in file.rows}
    units = []
    for split in range(args.splits):
        for dataset in datasets.values():
            for label in chosen_classes(dataset):
                place = ("defaults", dataset.name, label, split)
                missing = tuple(n for n in names if (*place, n, "ranking") not in done)
                if missing:
                    units.append(Unit(dataset.name, label, split, missing))
    begin = time.monotonic()
    jobs = (delayed(run_unit)(datasets[unit.dataset], unit) for unit in units)
    with Parallel(n_jobs=args.jobs, return_as="generator_unordered") as parallel:
        for number, rows in enumerate(parallel(jobs), start=1):
            file.append(rows)
            left = (time.monotonic() - begin) / number * (len(units) - number)
            print(f"{number}/{len(units)}, {duration(left)} left", file=sys.stderr, flush=True)
    file.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
