"""The `update` command, which adds labelled rows to a bank or to a model built by `partial_fit`."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import tables
from ..core.linalg import Ints
from ..core.warning import number_of
from ..estimators.changes import KnownRowError
from ..persistence import save
from ..report.views import join_rows, take_rows
from ..scoring import Scorer
from ..tables.seen import row_hashes, sketch
from ..unwrap import unwrap
from ..validation import MatrixLike
from .fitting import left_out_figures, rest_of, sentence
from .models import open_model
from .preparing import facts_of, of_model
from .printing import show_json
from .problems import Problem, check_target, note, visible
from .using import new_rows


def update(a: Namespace) -> None:
    """Add rows to a model and save it."""
    output = a.output or a.model
    check_target(output, a.data)
    scorer = open_model(a.model)
    if not (scorer.is_bank or hasattr(scorer.final, "scatter_")):
        raise Problem(
            f"{a.model} cannot be updated; fit a new model on all rows. Only banks "
            "(pcsda fit --positive all) and models made by partial_fit can be updated"
        )
    prepared = of_model(a)
    X, y, numbers = _labelled(scorer, a)
    hashes = row_hashes(X)
    before = scorer.threshold
    rows = unwrap(scorer.model).rows(X)
    if scorer.is_bank:
        _add_to_bank(scorer, rows, y, numbers, a.data)
    else:
        _add_batch(scorer, rows, y)
    if before is not None and scorer.threshold is None:
        note(f"the threshold ({before.rule}) was chosen before this update and has been dropped")
    known = np.array([int(value, 16) for value in prepared.rows], dtype=np.uint64)
    facts = asdict(replace(prepared, rows=tuple(sketch([known, hashes]))))
    save(scorer.model, output, metrics=left_out_figures(scorer.model), table=facts)
    names, counts = np.unique(y, return_counts=True)
    added = dict(zip(names.tolist(), counts.tolist(), strict=True))
    if a.json:
        show_json({"file": output, "added": added, **facts_of(output)})
        return
    print(visible(f"{output}: {sentence(facts_of(output))}"))
    rows = [f"{number_of(count, 'row')} of {name}" for name, count in added.items()]
    print(visible(f"Added: {tables.listed(rows)}."))


def _labelled(scorer: Scorer, a: Namespace) -> tuple[Any, NDArray[np.str_], Ints]:
    """Return the features of all rows, in the model's order, their labels as text, and numbers."""
    parts, labels, numbers = [], [], []
    for table, X in new_rows(scorer, a, [a.label]):
        parts.append(X)
        labels.append(tables.labels(table, a.label))
        numbers.append(table.numbers)
    return join_rows(parts), np.concatenate(labels), np.concatenate(numbers)


def _add_to_bank(
    scorer: Scorer, X: MatrixLike, y: NDArray[np.str_], numbers: Ints, source: str
) -> None:
    """Add rows to a bank's labels, enroll new labels, and refresh the bank.

    `numbers` are the row numbers in the table `source`, for messages.
    """
    bank = scorer.final
    written = {tables.as_text(label): label for label in scorer.labels}
    for name in np.unique(y).tolist():
        chosen = np.flatnonzero(y == name)
        rows = take_rows(X, chosen)
        try:
            if name in written:
                bank.update(rows, written[name])
            else:
                bank.enroll(rows, _like(name, scorer.labels[0]))
        except KnownRowError as error:
            # The bank counts from the first of the rows it was given, which have one label.
            number = numbers[chosen[error.row]]
            raise Problem(f"row {number} of {source} {error.fault}") from error
    bank.refresh()


def _like(name: str, known: Any) -> Any:
    """Convert a new label to the type of the bank's labels."""
    try:
        return type(known)(name)
    except (TypeError, ValueError):
        raise Problem(
            f"label {name} has a different type from the bank's labels, such as {known!r}"
        ) from None


def _add_batch(scorer: Scorer, X: MatrixLike, y: NDArray[np.str_]) -> None:
    """Merge rows into the statistics of a model made by partial_fit."""
    model = scorer.final
    written = {tables.as_text(label): label for label in model.classes_.tolist()}
    rest = rest_of(tables.as_text(scorer.labels[0]))
    strangers = [name for name in np.unique(y).tolist() if name not in written]
    if strangers and rest not in written:
        raise Problem(
            f"the model does not know {tables.listed(strangers)}; it has "
            f"{tables.listed(list(written))}"
        )
    model.partial_fit(X, np.array([written[name if name in written else rest] for name in y]))
