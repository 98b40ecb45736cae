"""Measure a model on labelled rows, and collect the results for a report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from html import escape
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.metrics import average_precision_score
from sklearn.utils import check_consistent_length, column_or_1d

from .. import metrics
from ..core.linalg import Array, Ints, Mask
from ..scoring import Scorer
from ..validation import MatrixLike, Seed, random_source
from .facts import NAMES, facts_about, naming_fact
from .figures import Figure, Settings, figures, identification, settle_threshold, value_of
from .reasons import reasons
from .subspaces import Drawn, subspaces_of
from .views import View, make_view, take_rows

# A bank also has a view for each of up to LABEL_VIEWS labels, those with the highest error rates.
# The curves of these views have PART times fewer points than usual, and the subspace plots have
# POINTS_PART times fewer.
LABEL_VIEWS = 30
PART = 5
POINTS_PART = 10
# What an evaluation consists of besides facts and subspaces, and the labels to draw.
Parts = tuple[dict[str, Any], list[Drawn]]


@dataclass(frozen=True)
class Evaluation:
    """Metrics, curves and subspaces from testing a model; :func:`write_page` displays them.

    Attributes
    ----------
    names : list of str
        Labels for which the model was tested.
    figures : list of Figure
        Error rates, costs and other metrics, with their intervals.
    views : list of View
        Plot data. The `figures` come from the first view; a bank has another view for each label.
    subspaces : list of dict or None
        For each view, `x`, `y`, `truth`, `id` and `positive` for a sample of rows, the names of the
        `axes`, and the named subclass `centres`. None if the view has no subspace.
    by_label : list of dict
        For a bank, the figures for each label.
    truth, ids : arrays of shape (n_trials,)
        Label and name of each row or trial, as text. In a bank's first view, all trials for the
        first label come first, then all trials for the second, and so on.
    settings : Settings
        Prior, costs, threshold and the settings of the intervals.
    unit : {"row", "trial"}
        Whether decisions are made for single rows or for trials of several rows.
    strangers : list of str
        Labels in the test data that a bank does not know.
    facts : dict of str to str
        Descriptions of the model and the data.
    reasons : list of str
        For a single model, an explanation for each row listed in the view: the evidence that the
        row is positive or negative, and its neighbours. Empty for banks and trials.

    Examples
    --------
    >>> from pcsda import PCSDA
    >>> from pcsda.datasets import make_class_specific
    >>> from pcsda.report import evaluate
    >>> data = make_class_specific(600, n_features=5, random_state=0)
    >>> model = PCSDA(n_subclasses=4, random_state=0).fit(data.data[:300], data.target[:300])
    >>> found = evaluate(model, data.data[300:], data.target[300:], n_resamples=20)
    >>> found.figures[0].name, found.views[0].n_positive
    ('Equal error rate', 29)
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
    reasons: list[str] = field(default_factory=list)

    @property
    def is_bank(self) -> bool:
        """Whether several labels were verified."""
        return len(self.names) > 1

    def __repr__(self) -> str:
        lines = [f"<{self._title()}>"]
        lines += [f"{name:<26} {value:>8}  {span}" for name, value, span in self._rows()]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """Return an HTML table of the figures and their intervals, for notebooks."""
        rows = "".join(
            f"<tr><td>{escape(name)}</td><td>{value}</td><td>{span}</td></tr>"
            for name, value, span in self._rows()
        )
        level = f"{self.settings.level:.0%} interval"
        head = f"<tr><th>figure</th><th>value</th><th>{level}</th></tr>"
        caption = escape(self._title())
        return f"<table><caption>{caption}</caption>{head}{rows}</table>"

    def _title(self) -> str:
        what = f"{len(self.names)} labels" if self.is_bank else self.names[0]
        return f"Evaluation of {what} on {len(self.truth)} {self.unit}s"

    def _rows(self) -> list[tuple[str, str, str]]:
        return [(figure.name, *value_of(figure)) for figure in self.figures]


def evaluate(
    model: BaseEstimator,
    X: MatrixLike,
    y: ArrayLike,
    *,
    trials: ArrayLike | None = None,
    **options: Any,
) -> Evaluation:
    """Measure a fitted model on labelled rows that were not used for fitting.

    Parameters
    ----------
    model : fitted estimator or VerifierBank, or a pipeline or search that holds one
        The model to measure.
    X : array-like of shape (n_samples, n_features)
        Test rows.
    y : array-like of shape (n_samples,)
        Labels. All labels except the class of interest count as the rest; a bank scores each row
        for all its labels.
    trials : array-like of shape (n_samples,), default=None
        Rows with the same value belong to the same trial and are scored together.
    **options
        Class of interest, costs, threshold and intervals, as in :func:`evaluate_scores`.

    Returns
    -------
    Evaluation

    Examples
    --------
    >>> from pcsda import PCSDA
    >>> from pcsda.datasets import make_class_specific
    >>> from pcsda.report import evaluate
    >>> data = make_class_specific(600, n_features=5, random_state=0)
    >>> model = PCSDA(n_subclasses=4, random_state=0).fit(data.data[:300], data.target[:300])
    >>> found = evaluate(model, data.data[300:], data.target[300:], prior=0.5, n_resamples=20)
    >>> found.views[0].counts()  # misses and false alarms at the threshold
    (2, 59)
    """
    rows = X if hasattr(X, "shape") else np.asarray(X)
    check_consistent_length(rows, y, trials)
    ratios = Scorer(model).log_likelihood_ratios(rows, trials)
    return evaluate_scores(model, ratios, y, partial(take_rows, rows), trials=trials, **options)


def evaluate_scores(
    model: BaseEstimator,
    ratios: Array,
    y: ArrayLike,
    take: Callable[[Ints], Any],
    *,
    pos_label: object = None,
    trials: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    ids: ArrayLike | None = None,
    prior: float | None = None,
    cost_miss: float = 1.0,
    cost_false_alarm: float = 1.0,
    threshold: float | None = None,
    level: float = 0.95,
    n_resamples: int = 1000,
    random_state: Seed = 0,
    verbose: bool = False,
) -> Evaluation:
    """Measure a model using precomputed scores, for data that does not fit in memory.

    Parameters
    ----------
    model
        As in :func:`evaluate`.
    ratios : array of shape (n_samples, n_labels) or (n_trials, n_labels)
        As returned by :meth:`pcsda.scoring.Scorer.log_likelihood_ratios`.
    y : array-like of shape (n_samples,)
        Labels, as in :func:`evaluate`.
    take : callable
        Function that takes row numbers (a few thousand, ascending) and returns those rows of X.
    pos_label : label, default=None
        The class of interest in y; None means the model's own. For a bank, the only label to
        evaluate; None evaluates all labels.
    trials : array-like of shape (n_samples,), default=None
        Trial of each row, as in :func:`evaluate`.
    groups : array-like of shape (n_samples,), default=None
        Identities, each resampled as a whole for the intervals. None resamples rows or trials.
    ids : array-like of shape (n_samples,), default=None
        Row names; None means row numbers.
    prior, cost_miss, cost_false_alarm : float
        Probability of the class of interest in actual use, and the error costs. A prior of None
        means the fitted prior, or 0.5 for a bank.
    threshold : float, default=None
        Smallest log-likelihood ratio that is accepted. None means the model's `threshold_` if it
        has one and neither prior nor costs are given; otherwise, the threshold that follows from
        prior and costs.
    level : float, default=0.95
        Confidence level of the intervals.
    n_resamples : int, default=1000
        Number of resamples for the intervals; fewer, but at least 50, if there are many scores.
    random_state : int, RandomState instance or None, default=0
        Seed for the resampling and for choosing the rows to plot.
    verbose : bool, default=False
        Draw progress bars on a terminal.

    Returns
    -------
    Evaluation

    Examples
    --------
    >>> from pcsda import PCSDA
    >>> from pcsda.datasets import make_class_specific
    >>> from pcsda.report import evaluate_scores
    >>> X, y = make_class_specific(600, n_features=5, random_state=0, return_X_y=True)
    >>> model = PCSDA(n_subclasses=4, random_state=0).fit(X[:300], y[:300])
    >>> ratios = model.log_likelihood_ratio(X[300:])[:, None]
    >>> found = evaluate_scores(
    ...     model, ratios, y[300:], lambda rows: X[300:][rows], prior=0.5, n_resamples=20
    ... )
    >>> found.views[0].counts()  # misses and false alarms at the threshold
    (2, 59)
    """
    scorer = Scorer(model)
    labels = column_or_1d(y)
    ids = np.arange(len(labels)) if ids is None else column_or_1d(ids)
    check_consistent_length(labels, ids, trials, groups)
    costs = cost_miss, cost_false_alarm
    prior, threshold = settle_threshold(scorer, prior, *costs, threshold)
    seed = random_source(random_state).randint(2**31 - 1)
    settings = Settings(prior, *costs, threshold, level, n_resamples, seed, verbose)
    units = _gathered(labels, ids, groups, trials)
    n_units = len(units.labels)
    if len(ratios) != n_units:
        raise ValueError(
            f"ratios has {len(ratios)} rows but must have {n_units}, one for each row or trial"
        )
    if scorer.is_bank and pos_label is None:
        parts, drawn = _of_bank(scorer, units, ratios, settings)
    else:
        parts, drawn = _of_one(scorer, units, ratios, settings, pos_label)
    facts = facts_about(scorer, labels)
    if trials is not None:
        facts["Trials"] = str(n_units)
    if hasattr(scorer.final, "threshold_") and scorer.is_bank and pos_label is None:
        facts[NAMES] = naming_fact(scorer, units.labels, ratios)
    why: list[str] = []
    if trials is None and not scorer.is_bank:
        one, own = parts["views"][0], np.asarray(labels == drawn[0][1])
        why = reasons(scorer, one, labels.astype(str), ids.astype(str), own, take, seed)
    # The view of all labels in a bank together has no subspace.
    together = len(parts["views"]) - len(drawn)
    return Evaluation(
        **parts,
        subspaces=[*[None] * together, *subspaces_of(scorer, labels, ids, drawn, take, seed)],
        truth=units.labels.astype(str),
        ids=units.ids.astype(str),
        settings=settings,
        unit="row" if trials is None else "trial",
        facts=facts,
        reasons=why,
    )


class _Units(NamedTuple):
    """The units for which decisions are made: single rows, or trials of several rows."""

    labels: NDArray[Any]
    ids: NDArray[Any]
    groups: NDArray[Any] | None


def _gathered(
    labels: NDArray[Any], ids: NDArray[Any], groups: ArrayLike | None, trials: ArrayLike | None
) -> _Units:
    """Return the label, name and identity of each row or, if `trials` is given, of each trial.

    Trials are sorted by name.
    """
    identities = None if groups is None else column_or_1d(groups)
    if trials is None:
        return _Units(labels, ids, identities)
    names, first, which = np.unique(column_or_1d(trials), return_index=True, return_inverse=True)
    for what, values in (("labels", labels), ("groups", identities)):
        if values is not None:
            mixed = np.unique(which[values != values[first][which]])
            if len(mixed):
                raise ValueError(
                    f"{len(mixed)} trials have rows of different {what}, such as trial "
                    f"{names[mixed[0]]}; the rows of a trial must come from one origin"
                )
    return _Units(labels[first], names, None if identities is None else identities[first])


def _of_one(
    scorer: Scorer, units: _Units, ratios: Array, settings: Settings, pos_label: object
) -> Parts:
    """Evaluate a single model, or one label of a bank."""
    label = scorer.labels[0]
    if scorer.is_bank:
        label = pos_label
        if label not in scorer.labels:
            raise ValueError(f"pos_label={label!r} is not in the bank, which has {scorer.labels}")
    interest = label if pos_label is None else pos_label
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
        "figures": figures(positive, llr, units.groups, settings),
        "views": [make_view(name, positive, llr, settings)],
        "by_label": [],
        "strangers": [],
    }, [(label, interest, 1)]


def _of_bank(scorer: Scorer, units: _Units, ratios: Array, settings: Settings) -> Parts:
    """Evaluate a bank, first for all labels together, then for each label separately."""
    labels, _, groups = units
    truth = np.column_stack([labels == label for label in scorer.labels])
    known = truth.any(axis=1)
    if not known.any() or truth.all():
        raise ValueError(
            f"y needs rows of the bank's labels, which are {scorer.labels[:10]}, and others; "
            "it has only one kind"
        )
    # The scores of one row for several labels are not independent.
    identities = np.tile(np.arange(len(truth)) if groups is None else groups, truth.shape[1])
    positive, llr = truth.ravel(order="F"), ratios.ravel(order="F")
    inside = None if groups is None else groups[known]
    by_label = [
        _label_figures(str(label), truth[:, i], ratios[:, i], settings)
        for i, label in enumerate(scorer.labels)
    ]
    shown = [i for i, row in enumerate(by_label) if row["eer"] is not None]
    shown = sorted(sorted(shown, key=lambda i: -by_label[i]["eer"])[:LABEL_VIEWS])
    views = [make_view("all labels", positive, llr, settings)]
    views += [
        make_view(by_label[i]["label"], truth[:, i], ratios[:, i], settings, PART) for i in shown
    ]
    found = identification(truth[known].argmax(axis=1), ratios[known], inside, settings)
    return {
        "names": [row["label"] for row in by_label],
        "figures": found + figures(positive, llr, identities, settings),
        "views": views,
        "by_label": by_label,
        "strangers": np.unique(labels[~known].astype(str)).tolist(),
    }, [(scorer.labels[i], scorer.labels[i], POINTS_PART) for i in shown]


def _label_figures(name: str, positive: Mask, llr: Array, s: Settings) -> dict[str, Any]:
    """Measure one label of a bank; figures that need both positives and negatives may be None."""
    both = positive.any() and not positive.all()
    return {
        "label": name,
        "positives": int(positive.sum()),
        "eer": metrics.equal_error_rate(positive, llr)[0] if both else None,
        "misses": int((llr[positive] < s.threshold).sum()),
        "false_alarms": int((llr[~positive] >= s.threshold).sum()),
        "average_precision": float(average_precision_score(positive, llr)) if both else None,
        "cllr": metrics.cllr(positive, llr) if both else None,
    }
