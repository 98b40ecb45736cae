"""The command `evaluate`, which measures a model on labelled rows and reports the figures."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import tables
from ..core.linalg import Array, Ints
from ..report import Evaluation, evaluate_scores, write_page
from ..report.figures import value_of, written
from ..report.views import join_rows, take_rows
from ..report.words import summary
from ..scoring import Scorer
from ..tables import STDIN
from ..tables.seen import row_hashes, share_seen
from .models import label_of, open_model
from .preparing import Preparation, of_model
from .printing import show_json, show_table
from .problems import Problem, Usage, check_target, needs, note, visible
from .using import chosen_threshold, given_costs, new_rows, settle_threshold

# If more than the first share of the test rows are training rows, the user is warned; above the
# second, the warning says that all of them are.
MANY_SEEN, ALL_SEEN = 0.05, 0.95
# Maps evaluation parameters to the options that name their columns.
SIDES = {"ids": "id", "trials": "trial", "groups": "group"}


def evaluate(a: Namespace) -> None:
    """Measure a model, print the figures and, if requested, write the report."""
    if a.title and not a.report:
        raise Usage("--title needs --report")
    if a.block_rows is not None and a.data == STDIN:
        raise Usage(
            "an evaluation in blocks reads the table twice, and standard input can be read "
            "only once; use a file"
        )
    if a.report:
        needs("plotly", "report", "to write a report")
    check_target(a.report, a.model, a.data)
    settle_threshold(a, 0.5)  # rejects incompatible options before any work is done
    scorer = open_model(a.model)
    limit = chosen_threshold(scorer, a)
    labels, ratios, sides, take = _scored(scorer, a)
    y, pos_label = known_labels(scorer, labels, a)
    threshold = limit.value if limit and a.max_false_alarms is not None else a.threshold
    options = {"pos_label": pos_label, "prior": a.prior, "threshold": threshold, **given_costs(a)}
    options |= {"level": a.confidence, "n_resamples": a.resamples, "random_state": a.seed}
    found = evaluate_scores(scorer.model, ratios, y, take, verbose=True, **options, **sides)
    if a.report:
        write_page(found, a.report, title=a.title)
    if a.json:
        show_json(as_facts(found) | {"report": a.report})
        return
    show(found)
    if a.report:
        print(f"\nReport: {a.report}")


def _scored(
    scorer: Scorer, a: Namespace
) -> tuple[NDArray[np.str_], Array, dict[str, Any], Callable[[Ints], Any]]:
    """Score a table, as a whole or in pieces.

    Return the labels, the log-likelihood ratios, a dict of the columns in `SIDES`, and a function
    that returns the features of the rows at given positions.
    """
    wanted = {name: option for name, option in SIDES.items() if getattr(a, option)}
    used = [a.label, *(getattr(a, option) for option in wanted.values())]
    sides: dict[str, list[Any]] = {name: [] for name in wanted}
    labels, ratios = [], []
    X: Any = None
    hashes = []
    for table, X in new_rows(scorer, a, used):
        hashes.append(row_hashes(X))
        labels.append(tables.labels(table, a.label))
        for name, option in wanted.items():
            sides[name].append(tables.labels(table, getattr(a, option), f"--{option}"))
        trials = sides["trials"][0] if a.trial else None
        ratios.append(scorer.log_likelihood_ratios(X, trials))

    say_seen(of_model(a), np.concatenate(hashes))

    def take(chosen: Ints) -> Any:
        """Return the rows at the given positions. A table that is read in pieces is read again."""
        if len(labels) == 1:
            return take_rows(X, chosen)
        parts: list[Any] = []
        start = 0
        for _, piece in new_rows(scorer, a, used):
            inside = (chosen >= start) & (chosen < start + len(piece))
            parts.append(take_rows(piece, chosen[inside] - start))
            start += len(piece)
        return join_rows(parts)

    joined = {name: np.concatenate(parts) for name, parts in sides.items()}
    return np.concatenate(labels), np.concatenate(ratios), joined, take


def say_seen(prepared: Preparation, hashes: NDArray[np.uint64]) -> None:
    """Warn if many of the evaluated rows are training rows, because figures then look too good."""
    share = share_seen(list(prepared.rows), hashes)
    if share > MANY_SEEN:
        part = "these rows" if share > ALL_SEEN else f"about {share:.0%} of these rows"
        note(
            f"the model was trained on {part}, so the figures look better than they are; "
            "evaluate on other rows"
        )


def known_labels(
    scorer: Scorer, labels: NDArray[np.str_], a: Namespace
) -> tuple[NDArray[Any], Any]:
    """Return the table's labels, with the types of the model's labels, and the label to evaluate.

    The latter is None for a bank if all labels are evaluated.
    """
    written = {tables.as_text(label): label for label in scorer.labels}
    if not scorer.is_bank:
        own = next(iter(written))
        interest = a.positive or own
        if interest != own and own in labels:
            raise Problem(
                f"--positive {interest}: the model verifies {own}, and {own} is among the labels; "
                "leave --positive out, or fit a model for the other label"
            )
        if interest not in labels:
            raise Problem(
                f"--label {a.label}: no row has the label {interest}, which the model verifies; "
                f"there are {tables.listed(np.unique(labels).tolist())}; name the class of "
                "interest with --positive if it has another name here"
            )
        return labels, interest
    names, codes = np.unique(labels, return_inverse=True)
    values = np.array([written.get(name, name) for name in names.tolist()], dtype=object)
    if not written.keys() & set(names.tolist()):
        raise Problem(
            f"--label {a.label}: the bank knows none of {tables.listed(names.tolist())}; it has "
            f"{tables.listed(list(written))}"
        )
    return values[codes], label_of(scorer, a.positive) if a.positive else None


def show(evaluation: Evaluation) -> None:
    """Print the summary and the figures."""
    print(visible(" ".join(summary(evaluation))), end="\n\n")
    level = f"{evaluation.settings.level:.0%} interval"
    rows = [(figure.name, *value_of(figure), figure.threshold) for figure in evaluation.figures]
    show_table(rows, ("figure", "value", level, "at threshold"))
    if evaluation.by_label:
        print()
        show_labels(evaluation.by_label)


def show_labels(rows: Sequence[dict[str, Any]]) -> None:
    """Print a table with the figures of each label."""
    header = [name.replace("_", " ") for name in rows[0]]
    show_table([[written(*cell) for cell in row.items()] for row in rows], header)


def as_facts(evaluation: Evaluation) -> dict[str, Any]:
    """Return the evaluation as a dict, for use by other programs."""
    view, s = evaluation.views[0], evaluation.settings
    misses, false_alarms = view.counts()
    return {
        "labels": evaluation.names,
        "figures": {figure.key: asdict(figure) for figure in evaluation.figures},
        "by_label": evaluation.by_label,
        "threshold": s.threshold,
        **s.application,
        "thresholds": view.marks,
        "positives": view.n_positive,
        "negatives": view.n_negative,
        "misses": misses,
        "false_alarms": false_alarms,
        "unknown_labels": evaluation.strangers,
        "facts": evaluation.facts,
    }
