"""The command `evaluate`: a model measured on labelled rows, in a table and in a report."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..report import Evaluation, write_page
from ..report import evaluate as measure
from ..report.words import summary, value_of
from ..scoring import Scorer
from . import tables
from .models import label_of, open_model
from .printing import show_json, show_table
from .problems import Problem, Usage, check_target, needs
from .using import read_for


def evaluate(arguments: Namespace) -> None:
    """Measure a model, print the figures and perhaps write the report."""
    a = arguments
    if a.title and not a.report:
        raise Usage("--title is for --report")
    if a.report:
        needs("plotly", "report", "to write a report")
    check_target(a.report, a.model, a.data)
    scorer = open_model(a.model)
    table, X = read_for(scorer, a, [a.label, a.id, a.trial, a.group])
    labels = tables.labels(table, a.label)
    y, pos_label = known_labels(scorer, labels, a)
    optional = {"trials": a.trial, "groups": a.group, "ids": a.id}
    options = {"trials": "--trial", "groups": "--group", "ids": "--id"}
    sides: dict[str, Any] = {
        name: tables.labels(table, column, options[name])
        for name, column in optional.items()
        if column
    }
    costs = {"cost_miss": a.cost_miss, "cost_false_alarm": a.cost_false_alarm}
    found = measure(
        scorer.model,
        X,
        y,
        pos_label=pos_label,
        prior=a.prior,
        threshold=a.threshold,
        level=a.confidence,
        n_resamples=a.resamples,
        random_state=a.seed,
        verbose=True,
        **sides,
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
