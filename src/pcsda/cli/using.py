"""The commands `score`, `identify`, `rank` and `count`, which apply a model to new rows."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from .. import tables
from ..core.linalg import Ints
from ..core.threshold import Threshold
from ..estimators.operating import count_positives
from ..metrics import bayes_threshold
from ..scoring import Scorer
from ..tables import is_large
from ..tables.table import bases
from ..targets import refuse_label
from .columns import chosen, matched, suitable
from .models import label_of, open_model
from .preparing import of_model, opened, say_gaps, without_gaps
from .printing import as_records, check_format, column_writer, show_json, show_table
from .problems import Problem, Usage, check_target, note, visible

if TYPE_CHECKING:
    from .columns import Features


def score(a: Namespace) -> None:
    """Score rows or trials and decide whether to accept them."""
    if sum(map(bool, (a.positive, a.claimed, a.all))) > 1:
        raise Usage("use only one of --positive, --claimed and --all")
    scorer = _opened(a)
    if not scorer.is_bank:
        for name in ("claimed", "all", "positive"):
            if getattr(a, name):
                raise Usage(f"--{name} needs a bank; {a.model} verifies only {scorer.labels[0]}")
    one = not scorer.is_bank or a.positive
    place = scorer.labels.index(label_of(scorer, a.positive)) if one else None
    limit = chosen_threshold(scorer, a, names_best=place is None and not a.claimed)
    _write_scores(scorer, a, place, limit)


def _opened(a: Namespace) -> Scorer:
    """Open the model after checking the options for row names and for the output file."""
    if a.id and getattr(a, "trial", None):
        raise Usage("--id names single rows, --trial combines several; use only one")
    check_target(a.output, a.model, a.data)
    check_format(a.output)
    return open_model(a.model)


def identify(a: Namespace) -> None:
    """Give each row the best-fitting label in a bank, or call it unknown."""
    scorer = _opened(a)
    if not scorer.is_bank:
        raise Usage(
            f"{a.model} is not a bank; it verifies only {tables.as_text(scorer.labels[0])}. Use "
            "pcsda score, or fit a bank with --positive all"
        )
    a.claimed = a.all = a.prior = a.cost_miss = a.cost_false_alarm = None
    _write_scores(scorer, a, None, chosen_threshold(scorer, a, names_best=True))


def _write_scores(scorer: Scorer, a: Namespace, place: int | None, limit: Threshold | None) -> None:
    """Score rows and write the results.

    Rows are scored for the label at index `place` or, if it is None, for their claimed or best
    label.
    """
    prior, threshold = settle_threshold(a, 0.5 if scorer.is_bank else scorer.prior(), limit)
    why = limit.rule if limit and threshold == limit.value else f"prior {prior:.4g}"
    note(f"rows with a log-likelihood ratio of at least {threshold:.4g} are accepted ({why})")
    records: list[dict[str, Any]] = []
    with column_writer(a.output, a.keep_formulas) as write:
        for table, X in new_rows(scorer, a, [a.id, a.trial, a.claimed]):
            columns = _scored(scorer, table, X, a, place, prior, threshold)
            if a.output or not a.json:
                write(columns)
            if a.json:
                records += as_records(columns)
    if a.json:
        show_json({"model": a.model, "threshold": threshold, "prior": prior, "rows": records})


def _scored(
    scorer: Scorer,
    table: tables.Table,
    X: Features,
    a: Namespace,
    place: int | None,
    prior: float,
    threshold: float,
) -> dict[str, NDArray[Any]]:
    """Return the columns of results for the label at index `place`.

    If `place` is None, the results are for each row's claimed or best label.
    """
    columns, trials, order = _keys(table, a)
    ratios = scorer.log_likelihood_ratios(X, trials)
    names = np.array([tables.as_text(label) for label in scorer.labels])
    every = np.arange(len(ratios))
    if place is None and not a.claimed:
        best = ratios.argmax(axis=1)
        llr = ratios[every, best]
        refuse_label("--unknown", a.unknown, names)
        columns["label"] = np.where(llr >= threshold, names[best], a.unknown)
        columns |= {"best": names[best], "llr": llr}
        if a.all:
            columns |= {f"llr:{name}": ratios[:, i] for i, name in enumerate(names)}
    else:
        places = np.full(len(ratios), place)
        if a.claimed:
            places = _claims(table, a, names.tolist(), trials)
            columns["claimed"] = names[places]
        llr = ratios[every, places]
        chance = expit(llr + logit(prior))
        columns |= {"llr": llr, "probability": chance, "accepted": llr >= threshold}
    return {name: values[order] for name, values in columns.items()}


def rank(a: Namespace) -> None:
    """List the rows that fit the class best."""
    scorer = _opened(a)
    label = _one_label(scorer, a.positive)
    by = a.by or scorer.ranking(label)
    parts: list[dict[str, NDArray[Any]]] = []
    for table, X in new_rows(scorer, a, [a.id]):
        llr = scorer.log_likelihood_ratios(X)[:, scorer.labels.index(label)]
        distance = -scorer.closeness(X, label)
        parts.append(_named_rows(table, a) | {"distance": distance, "llr": llr})
    whole = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    keys = whole["distance"] if by == "distance" else -whole["llr"]
    order = np.argsort(keys, kind="stable")[: a.top]
    columns = {"rank": np.arange(1, len(order) + 1)}
    columns |= {name: values[order] for name, values in whole.items()}
    if a.json:
        show_json({"model": a.model, "label": label, "by": by, "rows": as_records(columns)})
    elif not a.output:
        if by != "distance":  # a second, unsorted figure would look like a mistake
            del columns["distance"]
        show_table(list(zip(*columns.values(), strict=True)), list(columns))
    if a.output:
        with column_writer(a.output, a.keep_formulas) as write:
            write(columns)


def count(a: Namespace) -> None:
    """Estimate how many rows belong to a class."""
    scorer = open_model(a.model)
    label = _one_label(scorer, a.positive)
    parts = [scorer.fair_ratios(X, label) for _, X in new_rows(scorer, a, [])]
    found = count_positives(scorer.verifier(label), np.concatenate(parts))
    if a.json:
        show_json({"model": a.model, "label": label, **asdict(found)})
    else:
        print(visible(f"{tables.as_text(label)}: {found}"))


def _one_label(scorer: Scorer, named: str | None) -> Any:
    """Return the label to use; for a bank, the user must name one."""
    if scorer.is_bank and not named:
        known = tables.listed([tables.as_text(label) for label in scorer.labels])
        raise Usage(f"a bank has several labels; choose one with --positive: {known}")
    return label_of(scorer, named)


def new_rows(
    scorer: Scorer, a: Namespace, used: Sequence[str | None]
) -> Iterator[tuple[tables.Table, Features]]:
    """Yield the command's table, whole or in pieces, with the features in the model's order.

    `used` names the columns that are not features.
    """
    in_pieces = a.block_rows is not None or is_large(a.data)
    if in_pieces and getattr(a, "trial", None):
        raise Problem(
            f"--trial {a.trial}: the rows of a trial must be in memory together, but {a.data} "
            "is read in blocks; leave out --block-rows, or split the table between trials"
        )
    prepared = of_model(a)
    expected = scorer.feature_names
    names: list[str] = []
    for table in opened(a, prepared, used):
        present = set(table.names)
        if not names:
            ignored = [*a.ignore, *(n for n in prepared.left_out if n in present)]
            names = chosen(table, used, a.features, ignored)
            if expected is None:
                names = suitable(table, names, a.features, prepared.decimal)
        needed = names if expected is None else bases(list(expected), table.names)
        known = [n for n in needed if n in present]
        _refuse_text(table, [name for name in used if name in known])
        table = without_gaps(table, known, prepared)
        gaps, decimal = prepared.missing == "impute", prepared.decimal
        X = matched(table, names, expected, scorer.n_features, gaps, decimal)
        say_gaps(X, prepared)
        if len(table):
            yield table, X


def _refuse_text(table: tables.Table, names: Sequence[str | None]) -> None:
    """Reject features with another use, such as ids, if they were therefore read as text."""
    for name in names:
        if name is not None and table.column(name).dtype.kind not in "buif":
            raise Problem(
                f"column {name!r} of {table.source} is a feature of the model, so it cannot also "
                "hold labels, ids or trials; name another column, or give it a copy of this one"
            )


def given_costs(a: Namespace) -> dict[str, float]:
    """Return the costs that were given as options."""
    costs = {"cost_miss": a.cost_miss, "cost_false_alarm": a.cost_false_alarm}
    return {name: cost for name, cost in costs.items() if cost is not None}


def chosen_threshold(scorer: Scorer, a: Namespace, names_best: bool = False) -> Threshold | None:
    """Choose the threshold for a false alarm rate, or return the model's own threshold.

    A bank's own threshold is returned only if `names_best` is set, because it applies to the best
    label for each row. A stranger is more likely to reach it with some label than with one given
    label.
    """
    if a.max_false_alarms is None:
        return getattr(scorer.final, "threshold_", None) if names_best else scorer.threshold
    if a.threshold is not None or a.prior is not None or given_costs(a):
        raise Usage(
            "--max-false-alarms sets the threshold; leave out --threshold, --prior and the costs"
        )
    if scorer.is_bank and not hasattr(scorer.final, "choose_threshold"):
        raise Usage("--max-false-alarms needs a single class, not a bank")
    model: Any = scorer.final if scorer.is_bank else scorer.verifier()
    found: Threshold = model.choose_threshold(max_false_alarms=a.max_false_alarms)
    return found


def settle_threshold(
    a: Namespace, fitted_prior: float, chosen: Threshold | None = None
) -> tuple[float, float]:
    """Return the prior and threshold from the options or, without such options, from the model."""
    costs = given_costs(a)
    if a.threshold is not None and costs:
        raise Usage("--threshold sets the threshold; leave out the costs")
    prior = fitted_prior if a.prior is None else a.prior
    if a.threshold is not None:
        return prior, a.threshold
    if chosen is not None and a.prior is None and not costs:
        return prior, chosen.value
    return prior, bayes_threshold(prior, **costs)


def _keys(
    table: tables.Table, a: Namespace
) -> tuple[dict[str, NDArray[Any]], NDArray[np.str_] | None, slice | Ints]:
    """Return the columns that identify each result, the trial of each row, and a result order.

    Without --trial, each row has a result, and the trials are None. With it, each trial has a
    result, and the order is that in which trials first appear in the table.
    """
    if not a.trial:
        return _named_rows(table, a), None, slice(None)
    trials = tables.labels(table, a.trial, "--trial")
    names, first, counts = np.unique(trials, return_index=True, return_counts=True)
    return {"trial": names, "rows": counts}, trials, np.argsort(first)


def _named_rows(table: tables.Table, a: Namespace) -> dict[str, NDArray[Any]]:
    ids = {"id": tables.labels(table, a.id, "--id")} if a.id else {}
    return {"row": table.numbers, **ids}


def _claims(
    table: tables.Table, a: Namespace, known: list[str], trials: NDArray[np.str_] | None
) -> Ints:
    """Return the index of the label that each row or trial claims."""
    claimed = tables.labels(table, a.claimed, "--claimed")
    names, codes = np.unique(claimed, return_inverse=True)
    place = {name: number for number, name in enumerate(known)}
    strangers = [name for name in names.tolist() if name not in place]
    if strangers:
        raise Problem(
            f"--claimed {a.claimed}: the bank does not know {tables.listed(strangers)}; it has "
            f"{tables.listed(known)}"
        )
    places = np.array([place[name] for name in names.tolist()])[codes]
    if trials is None:
        return places
    found, first, which = np.unique(trials, return_index=True, return_inverse=True)
    mixed = np.unique(which[places != places[first][which]])
    if len(mixed):
        raise Problem(
            f"--claimed {a.claimed}: rows of one trial claim different labels, in trial "
            f"{tables.listed(found[mixed].tolist())}"
        )
    return places[first]
