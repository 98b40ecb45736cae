"""The command `evaluate`: a model measured on labelled rows, in a table and in a report."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import asdict
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
from .using import new_rows, settle_threshold


def evaluate(arguments: Namespace) -> None:
    """Measure a model, print the figures and perhaps write the report."""
    a = arguments
    if a.title and not a.report:
        raise Usage("--title is for --report")
    if a.report:
        needs("plotly", "report", "to write a report")
    check_target(a.report, a.model, a.data)
    settle_threshold(a, 0.5)  # refuses what does not go together, before any work
    scorer = open_model(a.model)
    sides = {"ids": ("--id", a.id), "trials": ("--trial", a.trial), "groups": ("--group", a.group)}
    given: dict[str, list[Any]] = {name: [] for name, (_, column) in sides.items() if column}
    labels, ratios, sizes = [], [], []
    used = [a.label, *(column for _, column in sides.values())]
    X = None
    for table, X in new_rows(scorer, a, used):
        labels.append(tables.labels(table, a.label))
        for name, parts in given.items():
            option, column = sides[name]
            parts.append(tables.labels(table, column, option))
        trials = given["trials"][0] if a.trial else None
        ratios.append(scorer.log_likelihood_ratios(X, trials))
        sizes.append(len(table))

    def take(chosen: NDArray[np.intp]) -> Any:
        """Rows by their numbers, from a second reading where the first was in pieces."""
        if len(sizes) == 1:
            return rows_of(X, chosen)
        parts, start = [], 0
        for _, piece in new_rows(scorer, a, used):
            inside = (chosen >= start) & (chosen < start + len(piece))
            parts.append(rows_of(piece, chosen[inside] - start))
            start += len(piece)
        return stacked(parts)

    columns: dict[str, Any] = {name: np.concatenate(parts) for name, parts in given.items()}
    y, pos_label = known_labels(scorer, np.concatenate(labels), a)
    costs: dict[str, Any] = {"cost_miss": a.cost_miss, "cost_false_alarm": a.cost_false_alarm}
    found = evaluate_scores(
        scorer.model,
        np.concatenate(ratios),
        y,
        take,
        pos_label=pos_label,
        prior=a.prior,
        threshold=a.threshold,
        level=a.confidence,
        n_resamples=a.resamples,
        random_state=a.seed,
        verbose=True,
        **columns,
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


def rows_of(X: Any, chosen: NDArray[np.intp]) -> Any:
    """Rows of a DataFrame or of an array."""
    return X.iloc[chosen] if hasattr(X, "iloc") else X[chosen]


def stacked(parts: list[Any]) -> Any:
    """Pieces of a table as one."""
    if hasattr(parts[0], "iloc"):
        import pandas as pd

        return pd.concat(parts)
    return np.concatenate(parts)


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
