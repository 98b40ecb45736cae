"""A model measured on labelled rows: the content of a report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_consistent_length, check_random_state, column_or_1d

from .. import metrics
from ..scoring import Scorer
from .figures import BoolArray, Figure, FloatArray, Settings, figures, identification, precision
from .views import View, make_view, subspace_sample

# A bank is shown label by label too, each with a part of the room; beyond this many labels, those
# with the highest error rates.
LABEL_VIEWS = 40
PART = 5


@dataclass(frozen=True)
class Evaluation:
    """A model measured on labelled rows.

    Attributes
    ----------
    names : list of str
        Labels that were verified.
    figures : list of Figure
    views : list of View
        The first is what the figures are about; a bank has one for each label after it.
    subspaces : list of dict or None
        For every view, `x`, `y`, `truth`, `id` and `positive` of some rows, and the `axes`' names.
    by_label : list of dict
        For a bank: figures of every label.
    truth, ids : arrays of shape (n_trials,)
        Label and name of each row or trial, as text. The trials of a bank's first view are those
        of the first label, then those of the second, and so on.
    settings : Settings
    unit : {"row", "trial"}
    strangers : list of str
        Labels of rows that a bank does not know.
    facts : dict of str to str
        The model and the data.
    """

    names: list[str]
    figures: list[Figure]
    views: list[View]
    subspaces: list[dict[str, Any] | None]
    by_label: list[dict[str, Any]]
    truth: NDArray[np.str_]
    ids: NDArray[np.str_]
    settings: Settings
    unit: str
    strangers: list[str]
    facts: dict[str, str]

    @property
    def is_bank(self) -> bool:
        """Whether several labels were verified."""
        return len(self.names) > 1


def evaluate(
    model: Any,
    X: Any,
    y: ArrayLike,
    *,
    pos_label: Any = None,
    trials: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    ids: ArrayLike | None = None,
    prior: float | None = None,
    cost_miss: float = 1.0,
    cost_false_alarm: float = 1.0,
    threshold: float | None = None,
    level: float = 0.95,
    n_resamples: int = 1000,
    random_state: Any = 0,
    verbose: bool = False,
) -> Evaluation:
    """Measure a fitted model on labelled rows that took no part in fitting.

    Parameters
    ----------
    model : fitted estimator, PCSDACV, VerifierBank, or Pipeline that ends in one of these
    X : array-like of shape (n_samples, n_features)
    y : array-like of shape (n_samples,)
        Labels. All but the class of interest count as the rest; a bank is asked about every row
        for every one of its labels.
    pos_label : label, default=None
        The class of interest in y; None stands for that of the model. For a bank, the one label to
        look at; None looks at all.
    trials : array-like of shape (n_samples,), default=None
        Rows of one value are of one origin, and give one score together.
    groups : array-like of shape (n_samples,), default=None
        Identities, which the intervals resample as a whole. None resamples rows or trials.
    ids : array-like of shape (n_samples,), default=None
        Names of the rows; None stands for their numbers.
    prior, cost_miss, cost_false_alarm : float
        Probability of the class of interest in use, and costs of errors. None stands for the
        fitted prior, 0.5 for a bank.
    threshold : float, default=None
        Least log-likelihood ratio that is accepted; None stands for that of prior and costs.
    level : float, default=0.95
        Confidence level of the intervals.
    n_resamples : int, default=1000
        Resamples for the intervals; fewer, but at least 100, where scores are many.
    random_state : int, RandomState instance or None, default=0
        Seeds the resampling and the choice of rows that are drawn.
    verbose : bool, default=False
        Draw progress bars on a terminal.

    Returns
    -------
    Evaluation
    """
    scorer = Scorer(model)
    labels = column_or_1d(y)
    check_consistent_length(X, labels, trials, groups, ids)
    if prior is None:
        prior = 0.5 if scorer.is_bank else scorer.prior()
    at_costs = metrics.bayes_threshold(
        prior, cost_miss=cost_miss, cost_false_alarm=cost_false_alarm
    )
    settings = Settings(
        prior,
        cost_miss,
        cost_false_alarm,
        at_costs if threshold is None else float(threshold),
        level,
        n_resamples,
        check_random_state(random_state).randint(2**31 - 1),
        verbose,
    )
    ids = np.arange(len(labels)) if ids is None else column_or_1d(ids)
    rows = _Rows(X, labels, ids)
    units = _gathered(labels, ids, groups, trials)
    ratios = scorer.log_likelihood_ratios(X, trials)
    if scorer.is_bank and pos_label is None:
        parts = _of_bank(scorer, rows, units, ratios, settings)
    else:
        parts = _of_one(scorer, rows, units, ratios, settings, pos_label)
    return Evaluation(
        **parts,
        truth=units.labels.astype(str),
        ids=units.ids.astype(str),
        settings=settings,
        unit="row" if trials is None else "trial",
        facts=_facts(scorer, labels, len(units.labels), trials is not None),
    )


@dataclass(frozen=True)
class _Rows:
    X: Any
    labels: NDArray[Any]
    ids: NDArray[Any]


@dataclass(frozen=True)
class _Units:
    """What is decided on: rows, or trials of several rows."""

    labels: NDArray[Any]
    ids: NDArray[Any]
    groups: NDArray[Any] | None


def _gathered(labels: Any, ids: Any, groups: Any, trials: Any) -> _Units:
    """Labels, names and identities of rows, or of trials in the order of their sorted names."""
    groups = None if groups is None else column_or_1d(groups)
    if trials is None:
        return _Units(labels, ids, groups)
    names, first, which = np.unique(column_or_1d(trials), return_index=True, return_inverse=True)
    for what, values in (("labels", labels), ("groups", groups)):
        if values is not None:
            mixed = np.unique(which[values != values[first][which]])
            if len(mixed):
                raise ValueError(
                    f"{len(mixed)} trials have rows of different {what}, such as trial "
                    f"{names[mixed[0]]}; the rows of a trial must come from one origin"
                )
    return _Units(labels[first], names, None if groups is None else groups[first])


def _of_one(
    scorer: Scorer, rows: _Rows, units: _Units, ratios: FloatArray, s: Settings, pos_label: Any
) -> dict[str, Any]:
    """Parts of the evaluation of one label."""
    label = scorer.labels[0]
    interest = label if pos_label is None else pos_label
    if scorer.is_bank:
        if pos_label not in scorer.labels:
            raise ValueError(
                f"pos_label={pos_label!r} is not in the bank, which has {scorer.labels}"
            )
        label = pos_label
    positive = np.asarray(units.labels == interest)
    if positive.all() or not positive.any():
        raise ValueError(
            f"y has {'only' if positive.all() else 'no'} rows of the class of interest, "
            f"{interest!r}; an evaluation needs rows of it and of the rest"
        )
    llr = ratios[:, scorer.labels.index(label)]
    name = str(interest)
    return {
        "names": [name],
        "figures": figures(positive, llr, units.groups, s),
        "views": [make_view(name, positive, llr, s)],
        "subspaces": [_subspace(scorer, rows, label, np.asarray(rows.labels == interest), s)],
        "by_label": [],
        "strangers": [],
    }


def _of_bank(
    scorer: Scorer, rows: _Rows, units: _Units, ratios: FloatArray, s: Settings
) -> dict[str, Any]:
    """Parts of the evaluation of a bank: all labels together, then one by one."""
    truth = np.column_stack([units.labels == label for label in scorer.labels])
    known = truth.any(axis=1)
    if not known.any() or truth.all():
        raise ValueError(
            f"y has no rows of the bank's labels, which are {scorer.labels[:10]}; an evaluation "
            "needs rows of at least two of them"
        )
    # The trials of one row stand or fall together.
    identities = np.arange(len(truth)) if units.groups is None else units.groups
    positive, llr = truth.ravel(order="F"), ratios.ravel(order="F")
    found = figures(positive, llr, np.tile(identities, truth.shape[1]), s)
    places = [scorer.labels.index(label) for label in units.labels[known].tolist()]
    groups = None if units.groups is None else units.groups[known]
    columns = list(range(len(scorer.labels)))
    found = identification(np.array(places), ratios[known], columns, groups, s) + found
    by_label = [
        _label_figures(str(label), truth[:, i], ratios[:, i], s)
        for i, label in enumerate(scorer.labels)
    ]
    shown = [i for i, row in enumerate(by_label) if row["eer"] is not None]
    if len(shown) > LABEL_VIEWS:
        worst = sorted(shown, key=lambda i: -by_label[i]["eer"])[:LABEL_VIEWS]
        shown = sorted(worst)
    views = [make_view("all labels", positive, llr, s)]
    views += [make_view(by_label[i]["label"], truth[:, i], ratios[:, i], s, PART) for i in shown]
    subspaces: list[Any] = [None]
    for i in shown:
        label = scorer.labels[i]
        inside = np.asarray(rows.labels == label)
        subspaces.append(_subspace(scorer, rows, label, inside, s, PART))
    return {
        "names": [str(label) for label in scorer.labels],
        "figures": found,
        "views": views,
        "subspaces": subspaces,
        "by_label": by_label,
        "strangers": np.unique(units.labels[~known].astype(str)).tolist(),
    }


def _label_figures(name: str, positive: BoolArray, llr: FloatArray, s: Settings) -> dict[str, Any]:
    """Figures of one label of a bank, None where the rows are all of one kind."""
    row: dict[str, Any] = {"label": name, "positives": int(positive.sum())}
    both = positive.any() and not positive.all()
    row["eer"] = metrics.equal_error_rate(positive, llr)[0] if both else None
    row["misses"] = int((llr[positive] < s.threshold).sum())
    row["false_alarms"] = int((llr[~positive] >= s.threshold).sum())
    row["average_precision"] = precision(positive, llr) if both else None
    row["cllr"] = metrics.cllr(positive, llr) if both else None
    return row


def _subspace(
    scorer: Scorer, rows: _Rows, label: Any, positive: BoolArray, s: Settings, share: int = 1
) -> dict[str, Any]:
    """First two axes of the subspace of a label, for some of the rows."""
    chosen = subspace_sample(positive, s.seed, share)
    X = rows.X.iloc[chosen] if hasattr(rows.X, "iloc") else rows.X[chosen]
    z = scorer.coordinates(X, label)
    axes = ["axis 1", "axis 2"]
    if z.shape[1] == 1:
        # One axis leaves room for the score beside it.
        ratio = scorer.log_likelihood_ratios(X)[:, scorer.labels.index(label)]
        z, axes = np.column_stack([z, ratio]), ["axis 1", "log-likelihood ratio"]
    return {
        "x": z[:, 0],
        "y": z[:, 1],
        "truth": rows.labels[chosen].astype(str),
        "id": rows.ids[chosen].astype(str),
        "positive": positive[chosen],
        "axes": axes,
    }


def _facts(scorer: Scorer, labels: Any, n_units: int, in_trials: bool) -> dict[str, str]:
    """The model and the data, for people."""
    model = scorer.verifier(scorer.labels[0])
    kind = type(model).__name__
    if scorer.is_bank:
        kind = f"bank of {len(scorer.labels)} {kind} models"
    defaults = type(model)().get_params()
    hidden = {"pos_label", "verbose", "n_jobs"}
    given = [
        f"{name}={value!r:.60}"
        for name, value in model.get_params().items()
        if name not in hidden and repr(value) != repr(defaults[name])
    ]
    dims = [scorer.verifier(label).n_components_ for label in scorer.labels]
    subclasses = [len(scorer.verifier(label).subclass_counts_) for label in scorer.labels]
    facts = {
        "Model": kind,
        "Parameters": ", ".join(given) or "defaults",
        "Subclasses": _span(subclasses),
        "Dimensions of the subspace": _span(dims),
        "Features": str(scorer.n_features),
        "Test rows": str(len(labels)),
    }
    if in_trials:
        facts["Trials"] = str(n_units)
    facts["Labels in the test"] = str(len(np.unique(labels.astype(str))))
    return facts


def _span(values: list[int]) -> str:
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low} to {high}"
