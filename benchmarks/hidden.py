"""Known shares of hidden positives: what do they cost, and how much does `contamination` regain?

    python -m benchmarks.hidden          the whole study, about an hour; resumes
    python -m benchmarks.hidden --page   write docs/hidden_positives.md from the stored rows

In each problem a given share of 200 negatives are positives. Three fits are compared: a plain one,
one with `contamination="auto"`, and a plain one without the hidden positives, which shows what
these cost. All of them score the same new rows.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
from sklearn.metrics import average_precision_score

from pcsda import PCSDA, KernelPCSDA
from pcsda.datasets import make_class_specific
from pcsda.metrics import cllr

from .markdown import details, table
from .paper.datasets import AbsentError, load
from .paper.rows import Row, RowFile, read

HERE = Path(__file__).parent
ROWS = HERE / "hidden.jsonl.gz"
PAGE = HERE.parent / "docs" / "hidden_positives.md"
KEY = ("dataset", "n_positive", "hidden", "seed", "method")
MODELS = {"PCSDA": PCSDA, "KernelPCSDA": KernelPCSDA}
SETS = ("ISOLET", "USPS", "ORL")
PLANTED = ("planted subspace", "clouds, apart", "clouds, overlapping")
HIDDEN = (0, 2, 5, 10, 20)
N_NEGATIVE, TEST, SEEDS = 200, 2000, 30
# A share of the cost is only meaningful if there is one.
COSTLY = 0.01
data_of = cache(load)


def planted(name: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw rows whose class 0 is the class of interest."""
    rng = np.random.default_rng([seed, 9])
    if name == "planted subspace":
        X, y = make_class_specific(2000, random_state=seed, return_X_y=True)
        return X, 1 - y
    y = np.repeat(np.arange(9), 150)
    centres = (1.2 if name == "clouds, apart" else 0.7) * rng.standard_normal((9, 12))
    return centres[y] + rng.standard_normal((len(y), 12)), y


def draw(name: str, n_positive: int, hidden: int, seed: int) -> dict[str, np.ndarray] | None:
    """Draw the rows of a problem, or return None if a class is too small."""
    if name in PLANTED:
        (X, y), label = planted(name, seed), 0
    else:
        data = data_of(name)
        X, y = data.X, data.y
        label = np.unique(y)[seed % len(np.unique(y))]
    rng = np.random.default_rng([seed, n_positive, hidden])
    own, others = (rng.permutation(np.flatnonzero(part)) for part in (y == label, y != label))
    n_hidden = N_NEGATIVE * hidden // 100
    n_known = n_positive + n_hidden
    if len(own) < n_known + 3:
        return None
    negatives = np.concatenate([own[n_positive:n_known], others[: N_NEGATIVE - n_hidden]])
    test = np.concatenate([own[n_known:], others[N_NEGATIVE:][:TEST]])
    train = np.concatenate([own[:n_positive], negatives])
    is_hidden = np.isin(np.arange(len(train)), np.arange(n_positive, n_known))
    facts = {"X": X[train], "y": np.arange(len(train)) < n_positive, "hidden": is_hidden}
    return facts | {"new": X[test], "truth": y[test] == label}


def measured(method: str, problem: dict[str, np.ndarray]) -> Row:
    """Return the figures of the three fits on a problem."""
    X, y, new, truth = (problem[name] for name in ("X", "y", "new", "truth"))
    make, clean = MODELS[method], ~problem["hidden"]
    fits = {
        "plain": make(random_state=0).fit(X, y),
        "auto": make(contamination="auto", random_state=0).fit(X, y),
        "clean": make(random_state=0).fit(X[clean], y[clean]),
    }
    row: Row = {}
    for name, model in fits.items():
        ratio = model.log_likelihood_ratio(new)
        row |= {f"ap_{name}": average_precision_score(truth, ratio)}
        row |= {f"cllr_{name}": cllr(truth, ratio)}
    low, high = fits["auto"].contamination_interval_
    factor = (fits["auto"].count(new).count + 0.5) / (truth.sum() + 0.5)
    row |= {"share": fits["auto"].contamination_, "count": max(factor, 1 / factor)}
    row = {name: round(float(value), 6) for name, value in row.items()}
    return row | {"covered": bool(low <= problem["hidden"].sum() / N_NEGATIVE <= high)}


def problems() -> Iterator[Row]:
    """Yield the facts of all problems, seed by seed, so that a stopped run covers all cases."""
    present = list(PLANTED)
    for name in SETS:
        try:
            data_of(name)
            present.append(name)
        except AbsentError as error:
            print(f"{name} is absent: {error}")
    cells = list(product(present, (3, 10), HIDDEN))
    for seed in range(SEEDS):
        for dataset, n_positive, hidden in cells:
            yield {"dataset": dataset, "n_positive": n_positive, "hidden": hidden, "seed": seed}


def run(rows: Path, minutes: float) -> None:
    """Measure the missing rows, and write each row as soon as it is computed."""
    file, end = RowFile(rows), time.monotonic() + 60 * minutes
    done = {tuple(row[name] for name in KEY) for row in file.rows}
    for facts in problems():
        missing = [name for name in MODELS if (*facts.values(), name) not in done]
        problem = draw(*facts.values()) if missing else None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for name in missing if problem else []:
                file.append([facts | {"method": name} | measured(name, problem)])
        if time.monotonic() > end:
            print("the time is up; the same command resumes from here")
            break
    file.close()


def cases(rows: list[Row]) -> dict[tuple, dict[str, np.ndarray]]:
    """Return the figures of each method, set, number of positives and hidden share as arrays."""
    order = (*SETS, *PLANTED)
    place = lambda row: (  # noqa: E731
        list(MODELS).index(row["method"]),
        order.index(row["dataset"]),
        row["n_positive"],
        row["hidden"],
    )
    found: dict[tuple, list[Row]] = {}
    for row in sorted(rows, key=place):
        case = tuple(row[name] for name in ("method", "dataset", "n_positive", "hidden"))
        found.setdefault(case, []).append(row)
    figures = [name for name in rows[0] if name not in KEY]
    return {
        case: {name: np.array([row[name] for row in members]) for name in figures}
        for case, members in found.items()
    }


def paired(gain: np.ndarray) -> tuple[float, float]:
    return float(gain.mean()), float(gain.std(ddof=1) / np.sqrt(len(gain)))


def summary(found: dict[tuple, dict[str, np.ndarray]]) -> str:
    """Return a table of the laws for each method and number of positives."""
    lines = []
    for method, n_positive in product(MODELS, (3, 10)):
        own = {case: f for case, f in found.items() if case[::2] == (method, n_positive)}
        gains = [paired(f["ap_auto"] - f["ap_plain"]) for f in own.values()]
        worse = [gain for gain in gains if gain[0] < -2 * gain[1]]
        costs, regained = [], []
        for case, f in own.items():
            cost = float(np.mean(f["ap_clean"] - f["ap_plain"]))
            if case[3] >= 5 and cost > COSTLY:
                costs.append(cost)
                regained.append(float(np.mean(f["ap_auto"] - f["ap_plain"])))
        goal = 0.25 if n_positive == 3 else 0.5
        enough = sum(gain >= goal * cost for gain, cost in zip(regained, costs, strict=True))
        worst = f", at most {-min(worse)[0]:.3f} ({min(worse)[1]:.3f})" if worse else ""
        covered = [f["covered"].mean() for f in own.values()]
        lines.append([
            method,
            str(n_positive),
            str(len(own)),
            f"{np.mean(covered):.0%}, {min(covered):.0%}",
            f"{len(worse)}{worst}",
            f"{sum(regained) / sum(costs):.0%}",
            f"{enough} of {len(costs)}",
            f"{np.median(np.concatenate([f['count'] for f in own.values()])):.2f}",
        ])  # fmt: skip
    head = ["method", "positives", "cases", "interval covers: mean, lowest", "cases with a loss"]
    head += ["cost regained", "a quarter or half regained", "factor of the count"]
    return table(head, lines)


def every_case(found: dict[tuple, dict[str, np.ndarray]], method: str) -> str:
    """Return a table of the gains of one method in every case."""
    lines = []
    for (name, dataset, n_positive, hidden), f in found.items():
        if name == method:
            gain, error = paired(f["ap_auto"] - f["ap_plain"])
            cost, _ = paired(f["ap_clean"] - f["ap_plain"])
            means = [f"{f[key].mean():.3f}" for key in ("ap_plain", "cllr_plain", "cllr_auto")]
            facts = [dataset, str(n_positive), f"{hidden}%", str(len(f["covered"]))]
            facts += [means[0], f"{gain:+.3f} ({error:.3f})", f"{cost:.3f}" if hidden else "–"]
            facts += [f"{np.median(f['share']):.1%}", f"{f['covered'].mean():.0%}", *means[1:]]
            lines.append([*facts, f"{np.median(f['count']):.2f}"])
    head = ["data", "positives", "hidden", "problems", "average precision, plain", "gain", "cost"]
    head += ["estimated share", "covered", "Cllr, plain", "Cllr, auto", "factor of the count"]
    return table(head, lines)


INTRODUCTION = f"""
# Hidden positives

Negatives that nobody has checked contain positives. What does that cost, and how much of it does
`contamination="auto"` regain? Here a known share of {N_NEGATIVE} negatives, 0 to 20%, are
positives; 3 or 10 others are known. A plain fit, a fit with `contamination="auto"` and a plain fit
without the hidden positives score the same new rows. A case is a set, a number of positives and a
share, with up to {SEEDS} problems of different classes and draws. ORL has too few rows of a person
for more than 2% hidden. "Clouds" are nine Gaussian clouds in 12 columns, "planted subspace" is
`make_class_specific`. `python -m benchmarks.hidden` computes the results, and `--page` writes this
page. [](defaults.md) says how the weight of the model without the suspects was chosen, on other
draws of these sets.

The interval is that of `contamination_`, meant to cover the truth in at least 85% of problems. A
case has a loss if the average precision is below that of the plain fit by more than two paired
standard errors. Of the cost in average precision, summed over the cases with 5% hidden or more in
which it exceeds {COSTLY}, at least a quarter should come back with 3 positives, and half with 10;
the table also has the number of single cases in which it does. The last column is the median factor
by which `count` is off on the new rows.
"""


def page(rows: list[Row]) -> str:
    found = cases(rows)
    parts = [INTRODUCTION.strip(), summary(found)]
    parts += [details(f"{name} in every case", every_case(found, name)) for name in MODELS]
    return "\n\n".join(parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--rows", type=Path, default=HERE / "results" / "hidden.jsonl")
    parser.add_argument("--page", action="store_true", help="write the page and run nothing")
    options = parser.parse_args()
    if options.page:
        PAGE.write_text(page(read(ROWS)), encoding="utf-8")
        return
    run(options.rows, options.minutes)


if __name__ == "__main__":
    main()
