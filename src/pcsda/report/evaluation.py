"""A model measured on labelled rows: the content of a report."""

from __future__ import annotations

from collections.abc import Callable
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
LABEL_VIEWS = 30
PART = 5
POINTS_PART = 10


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
    model: Any, X: Any, y: ArrayLike, *, trials: ArrayLike | None = None, **options: Any
) -> Evaluation:
    """Measure a fitted model on labelled rows that took no part in fitting.

    Parameters
    ----------
    model : fitted estimator or VerifierBank, or a pipeline or search that holds one
    X : array-like of shape (n_samples, n_features)
    y : array-like of shape (n_samples,)
        Labels. All but the class of interest count as the rest; a bank is asked about every row
        for every one of its labels.
    trials : array-like of shape (n_samples,), default=None
        Rows of one value are of one origin, and give one score together.
    **options
        Class of interest, costs, threshold and intervals, as in :func:`evaluate_scores`.

    Returns
    -------
    Evaluation
    """
    rows = X if hasattr(X, "shape") else np.asarray(X)
    check_consistent_length(rows, y, trials)
    ratios = Scorer(model).log_likelihood_ratios(rows, trials)

    def take(chosen: NDArray[np.intp]) -> Any:
        return rows.iloc[chosen] if hasattr(rows, "iloc") else rows[chosen]

    return evaluate_scores(model, ratios, y, take, trials=trials, **options)


def evaluate_scores(
    model: Any,
    ratios: FloatArray,
    y: ArrayLike,
    take: Callable[[NDArray[np.intp]], Any],
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
    """Measure a model on rows whose scores are known, for rows that do not fit in memory.

    Parameters
    ----------
    model
        As in :func:`evaluate`.
    ratios : array of shape (n_samples, n_labels) or (n_trials, n_labels)
        What :meth:`pcsda.scoring.Scorer.log_likelihood_ratios` gives.
    y : array-like of shape (n_samples,)
    take : callable
        Returns the rows of X with the numbers it is given, a few thousand in rising order.
    pos_label : label, default=None
        The class of interest in y; None stands for that of the model. For a bank, the one label to
        look at; None looks at all.
    trials : array-like of shape (n_samples,), default=None
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
        Resamples for the intervals; fewer, but at least 50, where scores are many.
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
    ids = np.arange(len(labels)) if ids is None else column_or_1d(ids)
    check_consistent_length(labels, ids, trials, groups)
    if prior is None:
        prior = 0.5 if scorer.is_bank else scorer.prior()
    at_costs = metrics.bayes_threshold(
        prior, cost_miss=cost_miss, cost_false_alarm=cost_false_alarm
    )
    threshold = at_costs if threshold is None else float(threshold)
    if not np.isfinite(threshold):
        raise ValueError(f"threshold={threshold} must be a finite number")
    seed = check_random_state(random_state).randint(2**31 - 1)
    settings = Settings(
        prior, cost_miss, cost_false_alarm, threshold, level, n_resamples, seed, verbose
    )
    units = _gathered(labels, ids, groups, trials)
    if len(ratios) != len(units.labels):
        raise ValueError(
            f"ratios has {len(ratios)} rows but y has {len(units.labels)} to decide on"
        )
    of = _of_bank if scorer.is_bank and pos_label is None else _of_one
    parts = of(scorer, units, ratios, settings, pos_label)
    drawn = parts.pop("drawn")
    return Evaluation(
        **parts,
        subspaces=_subspaces(scorer, labels, ids, drawn, take, seed),
        truth=units.labels.astype(str),
        ids=units.ids.astype(str),
        settings=settings,
        unit="row" if trials is None else "trial",
        facts=_facts(scorer, labels, len(units.labels), trials is not None),
    )


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
    scorer: Scorer, units: _Units, ratios: FloatArray, s: Settings, pos_label: Any
) -> dict[str, Any]:
    """Parts of the evaluation of one label; `drawn` are the views whose subspace is shown."""
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
        "drawn": [(label, interest, 1)],
        "by_label": [],
        "strangers": [],
    }


def _of_bank(
    scorer: Scorer, units: _Units, ratios: FloatArray, s: Settings, _: None
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
    return {
        "names": [str(label) for label in scorer.labels],
        "figures": found,
        "views": views,
        # All labels together have no subspace.
        "drawn": [None, *((scorer.labels[i], scorer.labels[i], POINTS_PART) for i in shown)],
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


def _subspaces(
    scorer: Scorer, labels: Any, ids: Any, drawn: list[Any], take: Callable[..., Any], seed: int
) -> list[dict[str, Any] | None]:
    """First two axes of the subspaces of some labels, for some of the rows."""
    inside = [None if one is None else np.asarray(labels == one[1]) for one in drawn]
    chosen = [
        None if positive is None else subspace_sample(positive, seed, one[2])
        for positive, one in zip(inside, drawn, strict=True)
    ]
    wanted = np.unique(np.concatenate([rows for rows in chosen if rows is not None]))
    X = take(wanted)
    found: list[dict[str, Any] | None] = []
    for one, positive, rows in zip(drawn, inside, chosen, strict=True):
        if positive is None or rows is None:
            found.append(None)
            continue
        places = np.searchsorted(wanted, rows)
        points = X.iloc[places] if hasattr(X, "iloc") else X[places]
        x, y, axes = _two_axes(scorer, points, one[0])
        found.append(
            {
                "x": x,
                "y": y,
                "axes": axes,
                "truth": labels[rows].astype(str),
                "id": ids[rows].astype(str),
                "positive": positive[rows],
            }
        )
    return found


def _two_axes(scorer: Scorer, X: Any, label: Any) -> tuple[FloatArray, FloatArray, list[str]]:
    z = scorer.coordinates(X, label)
    if z.shape[1] > 1:
        return z[:, 0], z[:, 1], ["axis 1", "axis 2"]
    # One axis leaves room for the score beside it.
    ratio = scorer.log_likelihood_ratios(X)[:, scorer.labels.index(label)]
    return z[:, 0], ratio, ["axis 1", "log-likelihood ratio"]


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
