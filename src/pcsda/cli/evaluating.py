"""The command `evaluate`: a model measured on labelled rows, in a table and in a report."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..report import Evaluation, evaluate_scores, write_page
from ..report.words import summary, value_of
from ..scoring import Scorer
from . import tables
from .models import label_of, open_model
from .printing import show_json, show_table
from .problems import Problem, Usage, check_target, needs
from .reading import STDIN
from .using import new_rows, settle_threshold

SIDES = {"ids": ("--id", "id"), "trials": ("--trial", "trial"), "groups": ("--group", "group")}


def evaluate(arguments: Namespace) -> None:
    """Measure a model, print the figures and perhaps write the report."""
    a = arguments
    if a.title and not a.report:
        raise Usage("--title is for --report")
    if a.block_rows is not None and a.data == STDIN:
        raise Usage("an evaluation in blocks reads twice, standard input only once; use a file")
    if a.report:
        needs("plotly", "report", "to write a report")
    check_target(a.report, a.model, a.data)
    settle_threshold(a, 0.5)  # refuses what does not go together, before any work
    scorer = open_model(a.model)
    rows = _scored(scorer, a)
    y, pos_label = known_labels(scorer, rows.labels, a)
    costs: dict[str, Any] = {"cost_miss": a.cost_miss, "cost_false_alarm": a.cost_false_alarm}
    found = evaluate_scores(
        scorer.model,
        rows.ratios,
        y,
        rows.take,
        pos_label=pos_label,
        prior=a.prior,
        threshold=a.threshold,
        level=a.confidence,
        n_resamples=a.resamples,
        random_state=a.seed,
        verbose=True,
        **rows.sides,
        **{name: cost for name, cost in costs.items() if cost is not None},
    )
    if a.report:
        write_page(found, a.report, title=a.title)
    if a.json:
        show_json(as_facts(found) | {"report": a.report})
    else:
        show(found)
        if a.report:
            print(f"\nReport: {a.report}")


@dataclass(frozen=True)
class _Scored:
    """Rows with their scores; `take` returns the features of some of them."""

    labels: NDArray[np.str_]
    ratios: NDArray[np.float64]
    sides: dict[str, Any]
    take: Callable[[NDArray[np.intp]], Any]


def _scored(scorer: Scorer, a: Namespace) -> _Scored:
    """Score a table, whole or in pieces."""
    wanted = {name: column for name, (_, option) in SIDES.items() if (column := getattr(a, option))}
    sides: dict[str, list[Any]] = {name: [] for name in wanted}
    used = [a.label, *wanted.values()]
    labels, ratios, last = [], [], None
    for table, last in new_rows(scorer, a, used):
        labels.append(tables.labels(table, a.label))
        for name, column in wanted.items():
            sides[name].append(tables.labels(table, column, SIDES[name][0]))
        trials = sides["trials"][0] if a.trial else None
        ratios.append(scorer.log_likelihood_ratios(last, trials))

    def take(chosen: NDArray[np.intp]) -> Any:
        """Rows by their numbers, from a second reading where the first was in pieces."""
        if len(labels) == 1:
            return _rows(last, chosen)
        parts, start = [], 0
        for _, piece in new_rows(scorer, a, used):
            inside = (chosen >= start) & (chosen < start + len(piece))
            parts.append(_rows(piece, chosen[inside] - start))
            start += len(piece)
        if hasattr(parts[0], "iloc"):
            import pandas as pd

            return pd.concat(parts)
        return np.concatenate(parts)

    joined = {name: np.concatenate(parts) for name, parts in sides.items()}
    return _Scored(np.concatenate(labels), np.concatenate(ratios), joined, take)


def _rows(X: Any, chosen: NDArray[np.intp]) -> Any:
    return X.iloc[chosen] if hasattr(X, "iloc") else X[chosen]


def known_labels(
    scorer: Scorer, labels: NDArray[np.str_], arguments: Namespace
) -> tuple[NDArray[Any], Any]:
    """Labels of the table as the model has them, and the one to look at."""
    a = arguments
    written = {tables.as_text(label): label for label in scorer.labels}
    if not scorer.is_bank:
        interest = a.positive or next(iter(written))
        if interest not in labels:
            raise Problem(
                f"--label {a.label}: no row has the label {interest}, which the model verifies; "
                f"there are {tables.listed(np.unique(labels).tolist())}; name the class of "
                "interest with --positive if it has another name here"
            )
        return labels, interest
    names, codes = np.unique(labels, return_inverse=True)
    strangers = [name for name in names.tolist() if name not in written]
    values = np.array([written.get(name, name) for name in names.tolist()], dtype=object)
    if len(strangers) == len(names):
        raise Problem(
            f"--label {a.label}: the bank knows none of {tables.listed(strangers)}; it has "
            f"{tables.listed(list(written))}"
        )
    return values[codes], label_of(scorer, a.positive) if a.positive else None


def show(evaluation: Evaluation) -> None:
    """Print the summary and the figures."""
    print(" ".join(summary(evaluation)), end="\n\n")
    level = f"{evaluation.settings.level:.0%} interval"
    rows = [(figure.name, *value_of(figure)) for figure in evaluation.figures]
    show_table(rows, ("figure", "value", level))
    if evaluation.by_label:
        print()
        header = [name.replace("_", " ") for name in evaluation.by_label[0]]
        show_table([list(row.values()) for row in evaluation.by_label], header)


def as_facts(evaluation: Evaluation) -> dict[str, Any]:
    """The evaluation for programs."""
    view, s = evaluation.views[0], evaluation.settings
    misses, false_alarms = view.counts()
    return {
        "labels": evaluation.names,
        "figures": {figure.key: asdict(figure) for figure in evaluation.figures},
        "by_label": evaluation.by_label,
        "threshold": s.threshold,
        "prior": s.prior,
        "cost_miss": s.cost_miss,
        "cost_false_alarm": s.cost_false_alarm,
        "thresholds": view.marks,
        "positives": view.n_positive,
        "negatives": view.n_negative,
        "misses": misses,
        "false_alarms": false_alarms,
        "unknown_labels": evaluation.strangers,
        "facts": evaluation.facts,
    }
