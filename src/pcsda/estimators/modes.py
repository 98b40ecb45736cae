"""Modes of a class of interest: dividing the positives, fitting verifiers, left-out scores."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp
from sklearn.base import clone
from sklearn.pipeline import Pipeline

from ..core.calibration import Calibration, evidence_of, fit_calibration
from ..core.copies import silent_on_copies
from ..core.linalg import Array, Floats, Ints, Mask
from ..core.warning import number_of, warn
from ..folds import fold_scores
from ..partition import count_distinct, run_kmeans
from ..unwrap import asked, unwrap
from ..validation import MatrixLike
from .grid import fit_last
from .rows import some

# Losses within this many standard errors of their paired difference count as equal.
SLACK = 0.5
# Number of k-means starts. A missed mode costs more than a missed subclass, and positives are few.
STARTS = 10


@dataclass(frozen=True)
class Modes:
    """A division of the positives into modes, with a fitted verifier for each.

    Attributes
    ----------
    modes : array of shape (n,)
        Mode of each row, -1 for negatives.
    models : list of estimators
    counts : array of shape (n_modes,)
        Total weight of the positives in each mode.
    said : list of (type of warning, str)
        Warnings of the fits. Divisions that are only tried, and fits to folds, are not the user's
        model, so only the chosen division repeats them.
    """

    modes: Ints
    models: list[Any]
    counts: Array
    said: list[tuple[type[Warning], str]]

    def repeat_warnings(self) -> None:
        """Issue the warnings of the fits."""
        for category, text in self.said:
            warn(text, category)

    def scores(self, X: MatrixLike) -> Array:
        """Return the log-likelihood ratios of rows for each mode, shape (n_modes, n)."""
        ratios = [asked(model, "log_likelihood_ratio", X) for model in self.models]
        return np.array(ratios, dtype=np.float64)


@dataclass(frozen=True)
class Rows:
    """Checked training rows with labels, weights and groups.

    All methods except `take` require that every row has positive weight.
    """

    template: Any
    X: Any
    y: NDArray[Any]
    positive: Mask
    weights: Array
    together: Ints | None
    given: dict[str, NDArray[Any]]
    seed: int

    def take(self, kept: Ints) -> Rows:
        """Return a subset of the rows."""
        if len(kept) == len(self.y):
            return self
        given = {name: values[kept] for name, values in self.given.items()}
        parts = (self.X[kept], self.y[kept], self.positive[kept], self.weights[kept])
        return Rows(self.template, *parts, some(self.together, kept), given, self.seed)

    @cached_property
    def evidence(self) -> Array:
        """Weight of each row as evidence; a group counts as one row."""
        return evidence_of(self.weights, self.together)

    @cached_property
    def features(self) -> Any:
        """The rows as the last step of a pipeline receives them. Modes are found in this form."""
        if not isinstance(self.template, Pipeline) or len(self.template) == 1:
            return self.X
        return clone(self.template[:-1]).fit(self.X, self.y).transform(self.X)

    def divide(self, count: int) -> Ints:
        """Return the mode of each row, -1 for negatives; positives of one group share a mode."""
        modes = np.where(self.positive, 0, -1)
        if count == 1:
            return modes
        inside = np.flatnonzero(self.positive)
        there = count_distinct(self.features, count, inside)
        if there < count:
            raise ValueError(
                f"n_modes={count} must be at most {there} (= number of different positive samples)"
            )
        rows = self.features[inside]
        found = run_kmeans(rows, count, self.weights[inside], self.seed, starts=STARTS)
        if self.together is not None:
            groups = np.unique(self.together[inside], return_inverse=True)[1]
            votes = np.zeros((groups.max() + 1, count))
            np.add.at(votes, (groups, found), self.weights[inside])
            found = votes.argmax(axis=1)[groups]
        modes[inside] = np.unique(found, return_inverse=True)[1]
        return modes

    def fit(self, modes: Ints, among: Ints | None = None) -> Modes:
        """Fit a verifier for each mode that has rows, using all rows or only those in `among`."""
        chosen = np.zeros(len(modes), dtype=bool)
        chosen[slice(None) if among is None else among] = True
        models, counts, said = [], [], []
        n_modes = modes.max() + 1
        for mode in range(n_modes):
            own = chosen & (modes == mode)
            if not own.any():
                continue
            rows = np.flatnonzero(own | (chosen & ~self.positive))
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                with silent_on_copies():
                    models.append(self._fit_one(rows, several=n_modes > 1))
            counts.append(self.weights[own].sum())
            # A verifier calls the positives of its mode "the positives".
            which = f"mode {mode + 1} of {n_modes}, with {number_of(own.sum(), 'positive')}: "
            about = which if n_modes > 1 else ""
            said += [(each.category, f"{about}{each.message}") for each in caught]
        return Modes(modes, models, np.array(counts), said)

    def _fit_one(self, rows: Ints, several: bool) -> Any:
        model = clone(self.template)
        if several:  # all modes must leave out the same negatives
            names = [n for n in model.get_params() if n.endswith("calibration_rows")]
            model.set_params(**dict.fromkeys(names))
        given = {name: values[rows] for name, values in self.given.items()}
        return fit_last(model, self.X[rows], self.y[rows], given)

    def left_out(self, fitted: Modes) -> Array:
        """Return the combined ratio of each row as a left-out row; NaN if it was not left out.

        Rows are left out in closed form if all verifiers can do so, otherwise in folds.
        """
        verifiers = [unwrap(model).model for model in fitted.models]
        if all(hasattr(verifier, "loo_scores_") for verifier in verifiers):
            scores = np.empty((len(verifiers), len(self.y)))
            for mode, verifier in enumerate(verifiers):
                rows = ~self.positive | (fitted.modes == mode)
                scores[mode, rows] = verifier.loo_scores_
                if not rows.all():  # this verifier has not seen the positives of other modes
                    new = self.X[~rows]
                    scores[mode, ~rows] = asked(fitted.models[mode], "log_likelihood_ratio", new)
            return join(scores, fitted.counts)
        return self._in_folds(lambda train: self.fit(fitted.modes, train))

    def anew(self, count: int) -> Array:
        """Return cross-validated combined ratios; each fold finds its own `count` modes.

        With fixed modes, each positive would have shaped its own mode, and the scores would favour
        many small modes.
        """

        def fit(train: Ints) -> Modes:
            rows = self.take(train)
            return rows.fit(rows.divide(count))

        return self._in_folds(fit)

    def _in_folds(self, fit: Callable[[Ints], Modes]) -> Array:
        """Return cross-validated combined ratios; `fit` takes the numbers of the rows to fit on."""

        def learn(train: Ints, _: Ints) -> Callable[[Ints], Array]:
            part = fit(train)
            return lambda test: join(part.scores(self.X[test]), part.counts)

        return fold_scores(learn, (~self.positive).astype(np.intp), self.seed, self.together)

    def calibration(self, scores: Array) -> Calibration:
        """Fit the slope and offset that turn left-out scores into log-likelihood ratios."""
        kept = ~np.isnan(scores)
        positive = self.positive[kept]
        if positive.all() or not positive.any():
            return Calibration()
        return fit_calibration(scores[None, kept], positive, self.evidence[kept])

    def compare(self, held_out: dict[int, Array]) -> tuple[int, dict[int, float]]:
        """Return the smallest number of modes whose loss is close to the minimum, and all losses.

        The losses are log-losses in nats, at the prior of the training rows, with a
        group as one row. They are computed on
        the rows that have a score for every number of modes.
        """
        kept = ~np.isnan(list(held_out.values())).any(axis=0)
        positive, weights = self.positive[kept], self.evidence[kept]
        for own, all_own in ((positive, self.positive), (~positive, ~self.positive)):
            weights[own] *= self.evidence[all_own].sum() / weights[own].sum()
        together = np.arange(len(self.positive)) if self.together is None else self.together
        n_apart = len(np.unique(together[kept]))
        odds = np.log(weights[positive].sum() / weights[~positive].sum())
        losses = {}
        for count, scores in held_out.items():
            ratios = self.calibration(scores)(scores[None, kept]) + odds
            losses[count] = np.logaddexp(0, np.where(positive, -ratios, ratios))
        means = {count: float(np.average(loss, weights=weights)) for count, loss in losses.items()}
        best = min(means, key=lambda count: means[count])
        for count in sorted(means):
            worse = losses[count] - losses[best]
            spread = np.average((worse - worse.mean()) ** 2, weights=weights)
            if means[count] - means[best] <= SLACK * np.sqrt(spread / n_apart):
                return count, means
        return best, means


def join(ratios: Floats, counts: Array) -> Array:
    """Combine the log-likelihood ratios of the modes, shape (n_modes, n), as in a mixture."""
    shares = np.log(counts / counts.sum())
    joined: Array = logsumexp(ratios.astype(np.float64) + shares[:, None], axis=0)
    return joined
