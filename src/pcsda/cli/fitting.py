"""The command `fit`, which makes an estimator from options, fits it on a table and saves it."""

from __future__ import annotations

import contextlib
import sys
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import asdict, replace
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline, make_pipeline

from .. import metrics, tables
from ..blocks import fit_blocks
from ..core.linalg import Array
from ..core.threshold import Threshold
from ..core.warning import number_of
from ..estimators import CSDA, PCSDA, PCSDACV, KernelCSDA, KernelPCSDA, VerifierBank
from ..estimators.doors import warn_of_misses
from ..estimators.naming import MOST_NAMED
from ..estimators.operating import left_out
from ..maps import FourierMap, NystroemMap
from ..persistence import save
from ..scoring import Scorer
from ..tables import is_large
from ..tables.seen import row_hashes, sketch
from ..unwrap import steps, unwrap
from ..validation import MatrixLike
from . import columns, preparing
from .preparing import Preparation
from .printing import show_json
from .problems import Problem, Usage, check_target, needs, visible
from .spooling import spooled

if TYPE_CHECKING:
    from .spooling import Part

ALL = "all"
OF_KERNELS = ("kernel", "gamma", "degree", "coef0")
# Estimator parameters that have an option.
PARAMETERS = (
    *("n_subclasses", "n_components", "subclasses", "balance", "solver", "regularization"),
    *("negatives", "tails", "covariance", "shrinkage", "calibrate", "priors", "contamination"),
    *OF_KERNELS,
)
SEARCHED = ("n_subclasses", "n_components", "regularization", "gamma")
# For each method, the estimator without a kernel and the one with an exact kernel.
KINDS = {"pcsda": (PCSDA, KernelPCSDA), "csda": (CSDA, KernelCSDA)}


def fit(a: Namespace) -> None:
    """Fit a model on a table and save it."""
    prepared = preparing.of_options(a)
    estimator = preparing.prepared_estimator(make_estimator(a), prepared)
    needs("skops", "skops", "to write model files")
    check_target(a.output, a.data)
    keep_priors_in_order(estimator, a)
    in_blocks = a.block_rows is not None or is_large(a.data)
    # The output of --verbose must not mix with results.
    with contextlib.redirect_stdout(sys.stderr):
        prepared = (_fit_in_blocks if in_blocks else _fit_whole)(estimator, a, prepared)
    threshold = _threshold(Scorer(estimator), a.max_false_alarms)
    figures = left_out_figures(estimator)
    save(estimator, a.output, metrics=figures, table=asdict(prepared))
    facts = preparing.facts_of(a.output)
    if a.json:
        chosen = {} if threshold is None else {"threshold": asdict(threshold)}
        show_json({"file": a.output, **facts, **chosen})
        return
    print(visible(f"{a.output}: {sentence(facts)}"))
    if figures:
        print(
            f"Left-out scores of the training rows: equal error rate {figures['eer']:.2%}, Cllr "
            f"{figures['cllr']:.3f} bits."
        )
    if threshold is not None:
        print(f"Threshold: {threshold}.")


def _threshold(scorer: Scorer, max_false_alarms: float | None) -> Threshold | None:
    """Return the threshold for the requested rate of false alarms, or None without a request.

    For a bank, return the threshold that it chose from its own labels, if any.
    """
    if scorer.is_bank:
        found: Threshold | None = getattr(scorer.final, "threshold_", None)
        if found is not None:
            warn_of_misses(found)
        return found
    if max_false_alarms is None:
        return None
    chosen: Threshold = scorer.verifier().choose_threshold(max_false_alarms=max_false_alarms)
    return chosen


def _fit_whole(estimator: BaseEstimator, a: Namespace, prepared: Preparation) -> Preparation:
    (table,) = preparing.opened(a, prepared, _labels(a))
    y = tables.labels(table, a.label)
    if a.positive != ALL:
        _refuse_one_class(y, a.positive, table.source)
    names, prepared = _features(table, a, prepared)
    X, y, given = _parts(table, names, a, prepared)
    preparing.say_units(X, prepared)
    preparing.say_gaps(X, prepared)
    if isinstance(estimator, Pipeline):
        given = {f"{estimator.steps[-1][0]}__{name}": value for name, value in given.items()}
    hashes = row_hashes(X)
    preparing.refuse_scale(X)
    estimator.fit(X, y, **given)
    name_rows(estimator, X, preparing.without_gaps(table, names, prepared), a)
    return replace(prepared, rows=tuple(sketch([hashes])))


def name_rows(estimator: BaseEstimator, X: MatrixLike, table: tables.Table, a: Namespace) -> None:
    """Name subclasses after the labels of their rows, if there are several labels.

    Examples of each subclass are stored as well.
    """
    scorer = Scorer(estimator)
    if scorer.is_bank:  # a bank already knows the labels and the rows
        if a.id:
            scorer.final.name_rows(tables.labels(table, a.id, "--id"))
        return
    verifier = scorer.verifier()
    groups = getattr(verifier, "partition_", None)
    if groups is None or not 1 < groups.max() <= MOST_NAMED:
        return
    kinds = tables.labels(table, a.subclass or a.label)
    several = len(np.unique(kinds[groups > 0])) > 1
    ids = tables.labels(table, a.id, "--id") if a.id else table.numbers
    verifier.name_rows(kinds if several else None, X=unwrap(estimator).rows(X), ids=ids)


def _fit_in_blocks(estimator: BaseEstimator, a: Namespace, prepared: Preparation) -> Preparation:
    if prepared.missing == "impute":
        raise Problem(
            f"--missing impute: {a.data} is read in blocks, but medians need the whole table; "
            "use --missing drop, or fill the gaps first"
        )
    if a.group:
        raise Problem(
            f"--group {a.group}: {a.data} is read in blocks, where rows are left out one by one; "
            "omit --group, or fit on a subset of the rows"
        )
    if a.auto or a.positive == ALL or (a.kernel and not a.approx):
        raise Problem(
            f"{a.data} is read in blocks, but a bank, a search or an exact kernel needs the "
            "whole table; fit one class, use --approx nystroem for a kernel, or fit on a "
            "subset of the rows"
        )
    names: list[str] = []
    hashes: list[NDArray[np.uint64]] = []

    def parts() -> Iterator[Part]:
        nonlocal names, prepared
        for table in preparing.opened(a, prepared, _labels(a)):
            if not names:
                names, prepared = _features(table, a, prepared)
            part = _parts(table, names, a, prepared)
            if len(part[1]):
                if not hashes:  # the first block is enough to tell the units
                    preparing.say_units(part[0], prepared)
                hashes.append(row_hashes(part[0]))
                yield part

    # Clustering passes over the rows about a hundred times and would parse the text each time.
    with spooled(parts(), Path(a.output)) as blocks:
        fit_blocks(estimator, blocks, classes=[a.positive, rest_of(a.positive)])
    return replace(prepared, rows=tuple(sketch(hashes)))


def _labels(a: Namespace) -> list[str | None]:
    """Return the names of the columns to read as text: labels, subclasses, groups and ids."""
    return [a.label, a.subclass, a.group, a.id]


def _features(
    table: tables.Table, a: Namespace, prepared: Preparation
) -> tuple[list[str], Preparation]:
    """Choose the feature columns, and record which were left out because of their content."""
    wanted = columns.chosen(table, [*_labels(a), a.weight], a.features, a.ignore)
    names = columns.suitable(table, wanted, a.features, prepared.decimal)
    taken = set(names)
    return names, replace(prepared, left_out=tuple(n for n in wanted if n not in taken))


def _parts(table: tables.Table, names: list[str], a: Namespace, prepared: Preparation) -> Part:
    """Return the features, the labels, and a dict of the rows' weights, subclasses and groups."""
    table = preparing.without_gaps(table, names, prepared)
    y = tables.labels(table, a.label)
    if a.positive != ALL:
        y = np.where(y == a.positive, a.positive, rest_of(a.positive))
    X = columns.numbers(table, names, prepared.missing == "impute", prepared.decimal)
    given: dict[str, NDArray[Any]] = {}
    if a.weight:
        given["sample_weight"] = _weights(table, a.weight)
    if a.subclass:
        given["subclass_labels"] = tables.labels(table, a.subclass, "--subclass")
    if a.group:
        given["groups"] = tables.labels(table, a.group, "--group")
    return X, y, given


def rest_of(positive: str) -> str:
    """Return the label for all rows outside the class of interest."""
    return f"not {positive}"


def _refuse_one_class(labels: NDArray[np.str_], positive: str, source: str) -> None:
    there = labels == positive
    if not there.any():
        raise Problem(
            f"--positive {positive}: no row of {source} has this label"
            f"{tables.did_you_mean(positive, np.unique(labels).tolist(), 'the labels are')}"
        )
    if there.all():
        raise Problem(
            f"--positive {positive}: all {len(labels)} rows of {source} have this label; rows of "
            "the rest are needed as well"
        )


def make_estimator(a: Namespace) -> BaseEstimator:
    """Make the estimator from the options, rejecting incompatible options."""
    bank = a.positive == ALL
    if bank and (a.weight or a.group):
        raise Usage("--weight and --group cannot be used with a bank (--positive all)")
    if bank and a.max_false_alarms is not None:
        raise Usage("--max-false-alarms needs a single class, not a bank (--positive all)")
    if not a.auto and (a.scoring or a.cv):
        raise Usage("--scoring and --cv need --auto")
    if a.jobs is not None and not (bank or a.auto):
        raise Usage("--jobs needs a bank (--positive all) or --auto")
    given = {name: getattr(a, name) for name in PARAMETERS if getattr(a, name) is not None}
    searched = _searched(a, given) if a.auto else {}
    for name, value in given.items():
        if isinstance(value, list):
            raise Usage(f"{option(name)} takes several values only with --auto")
    before = None
    if a.approx is not None:
        before = _map(a, {name: given.pop(name) for name in OF_KERNELS if name in given})
    estimator = _verifier(a, given)
    if a.auto:
        # The search tunes the map of a single model, but not the map that a bank's models share.
        inner = estimator if bank or before is None else make_pipeline(before, estimator)
        before = before if bank else None
        estimator = PCSDACV(inner, n_jobs=None if bank else a.jobs, verbose=not bank, **searched)
    if bank:
        estimator = VerifierBank(estimator, n_jobs=a.jobs, verbose=True)
    return estimator if before is None else make_pipeline(before, estimator)


def _searched(a: Namespace, given: dict[str, Any]) -> dict[str, Any]:
    """Remove from `given` the parameters that the search chooses, and return them."""
    if a.gamma is not None and a.kernel is None and a.approx is None:
        raise Usage("--gamma needs --kernel or --approx")
    common_map = a.positive == ALL and a.approx is not None
    names = [name for name in SEARCHED if not (common_map and name == "gamma")]
    found = {name: given.pop(name) for name in names if name in given}
    if found.get("n_subclasses") == "auto":  # use the grid of the search
        del found["n_subclasses"]
    return found | {n: getattr(a, n) for n in ("scoring", "cv") if getattr(a, n) is not None}


def _verifier(a: Namespace, given: dict[str, Any]) -> BaseEstimator:
    if a.subclass and a.method == "csda":
        raise Usage("--subclass cannot be used with csda, which has no subclasses")
    if a.method == "csda" and a.auto:
        raise Usage("--auto needs --method pcsda; csda has only -d to choose")
    kind: Any = KINDS[a.method][a.kernel is not None and a.approx is None]
    for name in given:
        if name not in signature(kind).parameters:
            why = f"cannot be used with {a.method}"
            if name in OF_KERNELS:
                why = "needs --kernel or --approx"
            raise Usage(f"{option(name)} {why}")
    given.pop("priors", None)  # set later, because their order depends on the labels
    if a.positive != ALL:
        given["pos_label"] = a.positive
    make = kind.published if a.published else kind
    return make(**given, random_state=a.seed, verbose=a.verbose)


def _map(a: Namespace, given: dict[str, Any]) -> BaseEstimator:
    more = {"n_components": a.map_components, "landmarks": a.landmarks}
    given |= {name: value for name, value in more.items() if value is not None}
    kind: Any = NystroemMap if a.approx == "nystroem" else FourierMap
    for name in given:
        if name not in signature(kind).parameters:
            raise Usage(f"{option(name)} cannot be used with --approx {a.approx}")
    label = None if a.positive == ALL else a.positive
    return kind(**given, pos_label=label, random_state=a.seed, verbose=a.verbose)


def option(name: str) -> str:
    """Return the command-line option for a parameter."""
    return "--" + name.replace("_", "-")


def keep_priors_in_order(estimator: BaseEstimator, a: Namespace) -> None:
    """Set the priors from --priors, in the order of the classes.

    If the option is a number, it is the probability of the class of interest.
    """
    priors = a.priors
    if priors is None:
        return
    final = steps(estimator)[-1]
    while not hasattr(final, "priors"):
        final = steps(final.estimator)[-1]
    if not isinstance(priors, str):
        if not 0 < priors < 1:
            raise Usage(f"--priors {priors} must be empirical, equal or between 0 and 1")
        priors = (1 - priors, priors)
        # Classes are sorted. The classes in a bank's models are False and True.
        if a.positive != ALL and a.positive < rest_of(a.positive):
            priors = priors[::-1]
    final.set_params(priors=priors)


def _weights(table: tables.Table, name: str) -> Array:
    column = table.column(name, "--weight")
    if column.dtype.kind not in "buif" or column.ndim > 1 or tables.missing(column).any():
        raise Problem(
            f"--weight {name}: this column of {table.source} must have a number in each row"
        )
    return column.astype(np.float64)


def left_out_figures(estimator: BaseEstimator) -> dict[str, float] | None:
    """Return the EER and Cllr of a model's left-out scores, or None if it has none.

    Left-out scores are scores of training rows, each from a fit without the row. A bank has none.
    """
    scorer = Scorer(estimator)
    rows = None if scorer.is_bank else left_out(scorer.verifier())
    if rows is None or not rows.has_both:
        return None
    return {
        "eer": metrics.equal_error_rate(rows.positive, rows.scores)[0],
        "cllr": metrics.cllr(rows.positive, rows.scores),
    }


def sentence(facts: dict[str, Any]) -> str:
    """Describe a model file in one sentence."""
    kind = facts["model"]
    size = number_of(facts["n_features"], "column")
    if facts["n_samples"] is not None:
        # A sum of weights may be a fraction.
        size = f"{number_of(facts['n_samples'], 'row', digits=7)} and {size}"
    if facts["pos_label"] is None:
        return f"{kind}, verifies {len(facts['classes'])} labels; fitted on {size}."
    if facts["n_positive"] is not None:
        size += f", {number_of(facts['n_positive'], 'row', digits=7)} of the class"
    parts = number_of(facts["n_subclasses"], "subclass", "subclasses")
    return (
        f"{kind}, verifies {facts['pos_label']}; fitted on {size}; {parts}, "
        f"{number_of(facts['n_components'], 'dimension')}."
    )
