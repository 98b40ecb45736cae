"""The commands `score` and `rank`: what a model says about new rows."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from ..calibration import bayes_threshold
from ..scoring import Scorer
from . import tables
from .models import label_of, open_model
from .printing import as_records, show_json, show_table, write_columns
from .problems import Problem, Usage, check_target


def score(arguments: Namespace) -> None:
    """Score rows or trials and decide on them."""
    a = arguments
    if sum(map(bool, (a.positive, a.claimed, a.all))) > 1:
        raise Usage("take one of --positive, --claimed and --all")
    if a.id and a.trial:
        raise Usage("--id names rows and --trial gives one result for several; take one of them")
    check_target(a.output, a.model, a.data)
    scorer = open_model(a.model)
    _refuse_bank_options(scorer, a)
    table, X = read_for(scorer, a, [a.id, a.trial, a.claimed])
    columns, trials, order = _keys(table, a)
    ratios = scorer.log_likelihood_ratios(X, trials)
    claims = _claims(table, a, scorer, trials) if a.claimed else None
    if scorer.is_bank and claims is None and not a.positive:
        prior, threshold = settle_threshold(a, 0.5)
        best = ratios.argmax(axis=1)
        names = np.array([tables.as_text(label) for label in scorer.labels])
        llr = ratios[np.arange(len(best)), best]
        columns["label"] = np.where(llr >= threshold, names[best], a.unknown)
        columns |= {"best": names[best], "llr": llr}
        if a.all:
            columns |= {f"llr:{name}": ratios[:, i] for i, name in enumerate(names)}
    else:
        chosen: Any = 0 if claims is None else claims
        if a.positive and scorer.is_bank:
            chosen = scorer.labels.index(label_of(scorer, a.positive))
        label = scorer.labels[chosen] if np.ndim(chosen) == 0 else None
        llr = ratios[np.arange(len(ratios)), chosen]
        prior, threshold = settle_threshold(a, 0.5 if scorer.is_bank else scorer.prior(label))
        columns |= {
            "llr": llr,
            "probability": expit(llr + logit(prior)),
            "accepted": llr >= threshold,
        }
    if order is not None:
        columns = {name: np.asarray(values)[order] for name, values in columns.items()}
    if a.json:
        show_json(
            {"model": a.model, "threshold": threshold, "prior": prior, "rows": as_records(columns)}
        )
    if a.output or not a.json:
        write_columns(columns, a.output)


def rank(arguments: Namespace) -> None:
    """List the best rows."""
    a = arguments
    check_target(a.output, a.model, a.data)
    scorer = open_model(a.model)
    if scorer.is_bank and not a.positive:
        raise Usage(
            "a bank has several labels; say which with --positive: "
            f"{tables.listed([tables.as_text(label) for label in scorer.labels])}"
        )
    label = label_of(scorer, a.positive) if a.positive else scorer.labels[0]
    table, X = read_for(scorer, a, [a.id])
    distance = -scorer.closeness(X, label)
    ratio = scorer.log_likelihood_ratios(X)[:, scorer.labels.index(label)]
    order = np.argsort(distance if a.by == "distance" else -ratio, kind="stable")[: a.top]
    columns: dict[str, Any] = {"rank": np.arange(1, len(order) + 1), "row": order}
    if a.id:
        columns["id"] = tables.labels(table, a.id, "--id")[order]
    columns |= {"distance": distance[order], "llr": ratio[order]}
    if a.json:
        show_json({"model": a.model, "label": label, "by": a.by, "rows": as_records(columns)})
    elif not a.output:
        show_table(list(zip(*columns.values(), strict=True)), list(columns))
    if a.output:
        write_columns(columns, a.output)


def read_for(
    scorer: Scorer, arguments: Namespace, used: list[str | None]
) -> tuple[tables.Table, Any]:
    """Table of new rows, and its feature columns as the model knows them."""
    table = tables.read(arguments.data, text=[name for name in used if name])
    names = tables.chosen(table, used, arguments.features, arguments.ignore)
    return table, tables.matched(table, names, scorer.feature_names, scorer.n_features)


def settle_threshold(arguments: Namespace, fitted_prior: float) -> tuple[float, float]:
    """Prior and threshold, from the options or from the fit."""
    a = arguments
    costs = {"cost_miss": a.cost_miss, "cost_false_alarm": a.cost_false_alarm}
    given = {name: cost for name, cost in costs.items() if cost is not None}
    if a.threshold is not None and given:
        raise Usage("--threshold decides by itself; leave out the costs")
    prior = fitted_prior if a.prior is None else a.prior
    if a.threshold is not None:
        if np.isnan(a.threshold):
            raise Usage("--threshold nan is not a number")
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
        columns: dict[str, Any] = {"row": np.arange(len(table))}
        if a.id:
            columns["id"] = tables.labels(table, a.id, "--id")
        return columns, None, None
    trials = tables.labels(table, a.trial, "--trial")
    names, first, counts = np.unique(trials, return_index=True, return_counts=True)
    return {"trial": names, "rows": counts}, trials, np.argsort(first)


def _claims(table: tables.Table, a: Namespace, scorer: Scorer, trials: Any) -> NDArray[np.intp]:
    """Index of the label that each row or trial claims."""
    claimed = tables.labels(table, a.claimed, "--claimed")
    known = [tables.as_text(label) for label in scorer.labels]
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
