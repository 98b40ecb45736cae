"""The command `fit`: from options to an estimator, from a table to a model file."""

from __future__ import annotations

import contextlib
import sys
from argparse import Namespace
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline, make_pipeline

from .. import metrics
from ..blocks import fit_blocks
from ..estimators import CSDA, PCSDA, PCSDACV, KernelCSDA, KernelPCSDA, VerifierBank
from ..maps import FourierMap, NystroemMap
from ..persistence import describe, save
from ..scoring import Scorer
from ..unwrap import steps
from . import tables
from .printing import show_json
from .problems import Problem, Usage, check_target
from .reading import is_large, pieces, read
from .spooling import spooled

ALL = "all"
# Options of the estimators, by the names of their parameters.
PARAMETERS = (
    "n_subclasses",
    "n_components",
    "subclasses",
    "balance",
    "solver",
    "regularization",
    "negatives",
    "tails",
    "covariance",
    "shrinkage",
    "calibrate",
    "priors",
    "kernel",
    "gamma",
    "degree",
    "coef0",
)
SEARCHED = ("n_subclasses", "n_components", "regularization", "gamma")
OF_KERNELS = ("kernel", "gamma", "degree", "coef0")


def fit(arguments: Namespace) -> None:
    """Fit on a table and save the model."""
    a = arguments
    estimator = make_estimator(a)
    check_target(a.output, a.data)
    in_blocks = a.block_rows is not None or is_large(a.data)
    # Stages that --verbose prints must not mix with results.
    with contextlib.redirect_stdout(sys.stderr):
        (_fit_in_blocks if in_blocks else _fit_whole)(estimator, a)
    figures = left_out_figures(estimator)
    save(estimator, a.output, metrics=figures)
    facts = describe(a.output)
    if a.json:
        show_json({"file": a.output, **facts})
        return
    print(f"{a.output}: {sentence(facts)}")
    if figures:
        print(
            f"Left-out scores of the training rows: equal error rate {figures['eer']:.2%}, Cllr "
            f"{figures['cllr']:.3f} bits."
        )


def _fit_whole(estimator: Any, a: Namespace) -> None:
    table = read(a.data, _text(a))
    labels = tables.labels(table, a.label)
    if a.positive != ALL:
        _refuse_one_class(labels, a.positive, table.source)
    X, y, given = _parts(table, a, labels)
    keep_priors_in_order(estimator, a)
    if a.group:
        given["groups"] = tables.labels(table, a.group, "--group")
    estimator.fit(X, y, **_to_last_step(estimator, given))


def _fit_in_blocks(estimator: Any, a: Namespace) -> None:
    if a.auto or a.positive == ALL or (a.kernel and not a.approx):
        raise Problem(
            f"{a.data} is read in blocks, and a bank, a search or an exact kernel needs it whole; "
            "fit one class, take --approx nystroem for a kernel, or fit on a part of the rows"
        )
    keep_priors_in_order(estimator, a)
    parts = (
        _parts(table, a, tables.labels(table, a.label))
        for table in pieces(a.data, _text(a), a.block_rows)
    )
    # Clustering goes over the rows some hundred times; text would be read anew each time.
    with spooled(parts, Path(a.output)) as spool:
        fit_blocks(estimator, spool.blocks, classes=[a.positive, rest_of(a.positive)])


def _text(a: Namespace) -> list[str]:
    """Columns that are labels, not numbers."""
    return [name for name in (a.label, a.subclass, a.group) if name]


def _parts(
    table: tables.Table, a: Namespace, labels: NDArray[np.str_]
) -> tuple[Any, NDArray[np.str_], dict[str, Any]]:
    """Features, labels and what else belongs to the rows."""
    used = [a.label, a.weight, a.subclass, a.group]
    X = tables.numbers(table, tables.chosen(table, used, a.features, a.ignore))
    y = labels
    if a.positive != ALL:
        y = np.where(labels == a.positive, a.positive, rest_of(a.positive))
    given: dict[str, Any] = {}
    if a.weight:
        given["sample_weight"] = _weights(table, a.weight)
    if a.subclass:
        given["subclass_labels"] = tables.labels(table, a.subclass, "--subclass")
    return X, y, given


def rest_of(positive: str) -> str:
    """Name of all that is not the class of interest."""
    return f"not {positive}"


def _refuse_one_class(labels: NDArray[np.str_], positive: str, source: str) -> None:
    of_interest = labels == positive
    if not of_interest.any():
        raise Problem(
            f"--positive {positive}: no row of {source} has this label; the labels are "
            f"{tables.listed(np.unique(labels).tolist())}"
        )
    if of_interest.all():
        raise Problem(
            f"--positive {positive}: all {len(labels)} rows of {source} have this label; rows of "
            "the rest are needed as well"
        )


def make_estimator(arguments: Namespace) -> Any:
    """Estimator from the options; refuses those that do not go together."""
    a = arguments
    bank = a.positive == ALL
    if bank and (a.weight or a.group):
        raise Usage("--weight and --group are not for a bank (--positive all)")
    if not a.auto and (a.scoring or a.cv or a.group):
        raise Usage("--scoring, --cv and --group are for --auto")
    if a.jobs is not None and not (bank or a.auto):
        raise Usage("--jobs is for a bank (--positive all) and for --auto")
    given = {name: getattr(a, name) for name in PARAMETERS if getattr(a, name) is not None}
    searched = _searched(a, given) if a.auto else {}
    for name, value in given.items():
        if isinstance(value, list):
            raise Usage(f"{option(name)} takes several values only where --auto chooses it")
    before = None
    if a.approx is not None:
        before = _map(a, {name: given.pop(name) for name in OF_KERNELS if name in given})
    estimator = _verifier(a, given)
    if a.auto:
        # The map before a bank is common to its models; that of a single model is searched too.
        inner = estimator if bank or before is None else make_pipeline(before, estimator)
        before = before if bank else None
        estimator = PCSDACV(inner, n_jobs=None if bank else a.jobs, verbose=not bank, **searched)
    if bank:
        estimator = VerifierBank(estimator, n_jobs=a.jobs, verbose=True)
    return estimator if before is None else make_pipeline(before, estimator)


def _searched(a: Namespace, given: dict[str, Any]) -> dict[str, Any]:
    """Take what a search chooses out of the parameters."""
    if a.gamma is not None and a.kernel is None and a.approx is None:
        raise Usage("--gamma needs --kernel or --approx")
    common_map = a.positive == ALL and a.approx is not None
    names = [name for name in SEARCHED if not (common_map and name == "gamma")]
    found = {name: given.pop(name) for name in names if name in given}
    if found.get("n_subclasses") == "auto":  # the grid of the search
        del found["n_subclasses"]
    return found | {n: getattr(a, n) for n in ("scoring", "cv") if getattr(a, n) is not None}


def _verifier(a: Namespace, given: dict[str, Any]) -> Any:
    exact_kernel = a.kernel is not None and a.approx is None
    kind: Any = {
        ("pcsda", False): PCSDA,
        ("csda", False): CSDA,
        ("pcsda", True): KernelPCSDA,
        ("csda", True): KernelCSDA,
    }[a.method, exact_kernel]
    if a.subclass and a.method == "csda":
        raise Usage("--subclass is not for csda, which has no subclasses")
    if a.method == "csda" and a.auto:
        raise Usage("--auto is for pcsda; csda has nothing to choose but -d")
    known = signature(kind.__init__).parameters
    for name in given:
        if name not in known:
            why = "needs --kernel or --approx" if name in OF_KERNELS else f"is not for {a.method}"
            raise Usage(f"{option(name)} {why}")
    fixed = {"random_state": a.seed, "verbose": a.verbose}
    if a.positive != ALL:
        fixed["pos_label"] = a.positive
    given = {name: value for name, value in given.items() if name != "priors"}
    make = kind.published if a.published else kind
    return make(**given, **fixed)


def _map(a: Namespace, given: dict[str, Any]) -> Any:
    if a.map_components is not None:
        given["n_components"] = a.map_components
    if a.landmarks is not None:
        given["landmarks"] = a.landmarks
    kind: Any = NystroemMap if a.approx == "nystroem" else FourierMap
    for name in given:
        if name not in signature(kind.__init__).parameters:
            raise Usage(f"{option(name)} is not for --approx {a.approx}")
    label = None if a.positive == ALL else a.positive
    return kind(**given, pos_label=label, random_state=a.seed, verbose=a.verbose)


def option(name: str) -> str:
    """Name of a parameter as an option."""
    return "--" + name.replace("_", "-")


def keep_priors_in_order(estimator: Any, a: Namespace) -> None:
    """Set the priors; a number is the probability of the class of interest."""
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
        # In the order of the classes, which are sorted; those of a bank's models are truth values.
        if a.positive != ALL and a.positive < rest_of(a.positive):
            priors = priors[::-1]
    final.set_params(priors=priors)


def _weights(table: tables.Table, name: str) -> NDArray[np.float64]:
    import pandas as pd

    column = table.column(name, "--weight")
    if not pd.api.types.is_numeric_dtype(column.dtype) or column.hasnans:
        raise Problem(
            f"--weight {name}: this column of {table.source} must have a number in each row"
        )
    return column.to_numpy(dtype=np.float64)


def _to_last_step(estimator: Any, given: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(estimator, Pipeline):
        return given
    return {f"{estimator.steps[-1][0]}__{name}": value for name, value in given.items()}


def left_out_figures(estimator: Any) -> dict[str, float] | None:
    """Error rate and cost of the left-out scores, where a single model has them."""
    scorer = Scorer(estimator)
    if scorer.is_bank:
        return None
    model = scorer.verifier()
    if not hasattr(model, "loo_scores_"):
        return None
    counted = model.groups_ >= 0
    positive, scores = model.groups_[counted] == 0, model.loo_scores_[counted]
    return {
        "eer": metrics.equal_error_rate(positive, scores)[0],
        "cllr": metrics.cllr(positive, scores),
    }


def sentence(facts: dict[str, Any]) -> str:
    """What a model file holds, in one sentence."""
    kind = facts["model"]
    size = f"{facts['n_features']} columns"
    if facts["n_samples"] is not None:
        size = f"{facts['n_samples']} rows and {size}"
    if facts["pos_label"] is None:
        return f"{kind}, verifies {len(facts['classes'])} labels; fitted on {size}."
    if facts["n_positive"] is not None:
        size += f", {facts['n_positive']} rows of the class"
    return (
        f"{kind}, verifies {facts['pos_label']}; fitted on {size}; {facts['n_subclasses']} "
        f"subclasses, {facts['n_components']} dimensions."
    )
