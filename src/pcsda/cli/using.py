"""The commands `score` and `rank`: what a model says about new rows."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from ..metrics import bayes_threshold
from ..scoring import Scorer
from . import tables
from .models import label_of, open_model
from .printing import as_records, check_format, column_writer, show_json, show_table
from .problems import Problem, Usage, check_target, note
from .reading import is_large, pieces, read


def score(arguments: Namespace) -> None:
    """Score rows or trials and decide on them."""
    a = arguments
    if sum(map(bool, (a.positive, a.claimed, a.all))) > 1:
        raise Usage("take one of --positive, --claimed and --all")
    if a.id and a.trial:
        raise Usage("--id names rows and --trial gives one result for several; take one of them")
    check_target(a.output, a.model, a.data)
    check_format(a.output)
    scorer = open_model(a.model)
    _refuse_bank_options(scorer, a)
    label = None
    if not scorer.is_bank or a.positive:
        label = label_of(scorer, a.positive) if a.positive else scorer.labels[0]
    prior, threshold = settle_threshold(a, 0.5 if scorer.is_bank else scorer.prior())
    note(f"accepted from a log-likelihood ratio of {threshold:.4g} on (prior {prior:.4g})")
    records: list[dict[str, Any]] = []
    found = (
        _scored(scorer, table, X, a, label, prior, threshold)
        for table, X in new_rows(scorer, a, [a.id, a.trial, a.claimed])
    )
    if a.json and not a.output:
        for columns in found:
            records += as_records(columns)
    else:
        with column_writer(a.output) as write:
            for columns in found:
                write(columns)
                if a.json:
                    records += as_records(columns)
    if a.json:
        show_json({"model": a.model, "threshold": threshold, "prior": prior, "rows": records})


def _scored(
    scorer: Scorer,
    table: tables.Table,
    X: Any,
    a: Namespace,
    label: Any,
    prior: float,
    threshold: float,
) -> dict[str, Any]:
    """Columns of results; without a label, those of a bank for the best or the claimed one."""
    columns, trials, order = _keys(table, a)
    ratios = scorer.log_likelihood_ratios(X, trials)
    names = np.array([tables.as_text(one) for one in scorer.labels])
    if label is None and not a.claimed:
        best = ratios.argmax(axis=1)
        llr = ratios[np.arange(len(best)), best]
        columns["label"] = np.where(llr >= threshold, names[best], a.unknown)
        columns |= {"best": names[best], "llr": llr}
        if a.all:
            columns |= {f"llr:{name}": ratios[:, place] for place, name in enumerate(names)}
    else:
        if a.claimed:
            places = _claims(table, a, names.tolist(), trials)
            columns["claimed"] = names[places]
        else:
            places = np.full(len(ratios), scorer.labels.index(label))
        llr = ratios[np.arange(len(ratios)), places]
        chance = expit(llr + logit(prior))
        columns |= {"llr": llr, "probability": chance, "accepted": llr >= threshold}
    if order is None:
        return columns
    return {name: values[order] for name, values in columns.items()}


def rank(arguments: Namespace) -> None:
    """List the best rows."""
    a = arguments
    check_target(a.output, a.model, a.data)
    check_format(a.output)
    scorer = open_model(a.model)
    if scorer.is_bank and not a.positive:
        raise Usage(
            "a bank has several labels; say which with --positive: "
            f"{tables.listed([tables.as_text(label) for label in scorer.labels])}"
        )
    label = label_of(scorer, a.positive) if a.positive else scorer.labels[0]
    found: dict[str, list[Any]] = {"row": [], "id": [], "distance": [], "llr": []}
    for table, X in new_rows(scorer, a, [a.id]):
        found["row"].append(table.start + np.arange(len(table)))
        found["id"].append(tables.labels(table, a.id, "--id") if a.id else [])
        found["distance"].append(-scorer.closeness(X, label))
        ratios = scorer.log_likelihood_ratios(X)
        found["llr"].append(ratios[:, scorer.labels.index(label)])
    whole = {name: np.concatenate(parts) for name, parts in found.items() if name != "id" or a.id}
    by = whole["distance"] if a.by == "distance" else -whole["llr"]
    order = np.argsort(by, kind="stable")[: a.top]
    columns = {"rank": np.arange(1, len(order) + 1)}
    columns |= {name: values[order] for name, values in whole.items()}
    if a.json:
        show_json({"model": a.model, "label": label, "by": a.by, "rows": as_records(columns)})
    elif not a.output:
        show_table(list(zip(*columns.values(), strict=True)), list(columns))
    if a.output:
        with column_writer(a.output) as write:
            write(columns)


def new_rows(
    scorer: Scorer, arguments: Namespace, used: Sequence[str | None]
) -> Iterator[tuple[tables.Table, Any]]:
    """Yield tables with their feature columns as the model knows them: one, or piece by piece."""
    a = arguments
    text = [name for name in used if name]
    in_pieces = a.block_rows is not None or is_large(a.data)
    if in_pieces and getattr(a, "trial", None):
        raise Problem(
            f"--trial {a.trial}: rows of one trial must be in memory together, and {a.data} is "
            "read in blocks; leave out --block-rows, or cut the table between trials"
        )
    for table in pieces(a.data, text, a.block_rows) if in_pieces else [read(a.data, text)]:
        names = tables.chosen(table, used, a.features, a.ignore)
        yield table, tables.matched(table, names, scorer.feature_names, scorer.n_features)


def settle_threshold(arguments: Namespace, fitted_prior: float) -> tuple[float, float]:
    """Prior and threshold, from the options or from the fit."""
    a = arguments
    costs = {"cost_miss": a.cost_miss, "cost_false_alarm": a.cost_false_alarm}
    given = {name: cost for name, cost in costs.items() if cost is not None}
    if a.threshold is not None and given:
        raise Usage("--threshold decides by itself; leave out the costs")
    prior = fitted_prior if a.prior is None else a.prior
    if a.threshold is not None:
        return prior, a.threshold
    return prior, bayes_threshold(prior, **given)


def _refuse_bank_options(scorer: Scorer, a: Namespace) -> None:
    if scorer.is_bank:
        return
    for name in ("claimed", "all", "positive"):
        if getattr(a, name):
            raise Usage(f"--{name} is for a bank; {a.model} verifies {scorer.labels[0]} alone")


def _keys(table: tables.Table, a: Namespace) -> tuple[dict[str, Any], Any, Any]:
    """Columns that say what each result belongs to, the trials, and the order of the results.

    Trials are listed in the order in which the table has them, not in that of their names.
    """
    if not a.trial:
        columns: dict[str, Any] = {"row": table.start + np.arange(len(table))}
        if a.id:
            columns["id"] = tables.labels(table, a.id, "--id")
        return columns, None, None
    trials = tables.labels(table, a.trial, "--trial")
    names, first, counts = np.unique(trials, return_index=True, return_counts=True)
    return {"trial": names, "rows": counts}, trials, np.argsort(first)


def _claims(table: tables.Table, a: Namespace, known: list[str], trials: Any) -> NDArray[np.intp]:
    """Place of the label that each row or trial claims."""
    claimed = tables.labels(table, a.claimed, "--claimed")
    names, codes = np.unique(claimed, return_inverse=True)
    strangers = [name for name in names.tolist() if name not in known]
    if strangers:
        raise Problem(
            f"--claimed {a.claimed}: the bank does not know {tables.listed(strangers)}; it has "
            f"{tables.listed(known)}"
        )
    places = np.array([known.index(name) for name in names.tolist()])[codes]
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
