"""A fit as a sequence of passes over blocks, whoever runs them: one process or a cluster.

What follows the merged statistics is the code that fits in memory.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils import check_random_state

from .. import validation
from ..core.density import NoDensity
from ..core.direct import scatter_subspace
from ..core.fit import Fitted, calibrated_on, complete
from ..core.loo import Leaver
from ..core.scatter import GroupScatter
from ..core.spread import ridge_of
from ..estimators import CSDA, PCSDA
from ..estimators.linear import held_out_scores, pcsda_factory
from ..estimators.stream import fit_scatter, forget_stream, keep_linear, scatter_solver
from ..estimators.verifier import check_rank, rule_of, say
from ..partition import count_distinct, find_centroids, settle_count
from ..unwrap import steps
from .folds import CountPass, Counts, Folds
from .intake import Division, Intake
from .passes import Draw, Look, LookPass, Pass, Sample, SamplePass
from .summaries import (
    FoldScorePass,
    Scored,
    Statistics,
    StatisticsPass,
)

# Rows of each class that are scored by folds, for a model that does not say how many.
CALIBRATION_ROWS = 5000


class Runner(Protocol):
    """Who takes a pass over all blocks."""

    @property
    def once(self) -> bool:
        """Whether the blocks can be read only once."""

    @property
    def moves(self) -> bool:
        """Whether results move between processes, so that counting rows first is worth it."""

    def seed(self, draw: Callable[[], int]) -> int:
        """Draw the seed of the fit, or remember that of the fit that is resumed."""

    def look(self, task: LookPass, first: bool) -> Look:
        """Look at the labels of blocks until both classes were seen, or at the first block only."""

    def run(self, task: Pass) -> Any:
        """Take a pass and return the merged result."""


@dataclass(frozen=True)
class Sizes:
    """How many rows are kept: for maps and k-means, and of each class to be left out."""

    sample: int
    calibration: int

    @classmethod
    def of(cls, model: Any, sample_rows: int, calibration_rows: int | None) -> Sizes:
        """Sizes as asked for; where they are not, the model says how many rows it leaves out."""
        for name, value in (("sample_rows", sample_rows), ("calibration_rows", calibration_rows)):
            validation.check_count(name, value, None)
        if calibration_rows is None:
            calibration_rows = getattr(model, "calibration_rows", CALIBRATION_ROWS)
        return cls(sample_rows, sys.maxsize if calibration_rows is None else calibration_rows)


def split(estimator: Any) -> tuple[tuple[Any, ...], Any]:
    """Transformers and final model of an estimator that can be fitted over blocks."""
    *chain, model = steps(estimator)
    if not isinstance(model, (PCSDA, CSDA)):
        kernel = type(model).__name__.startswith("Kernel")
        remedy = "; use make_pipeline(NystroemMap(), PCSDA()) for a kernel" if kernel else ""
        raise TypeError(
            f"{type(model).__name__} cannot be fitted in blocks, only PCSDA, CSDA or a pipeline "
            f"that ends in one of them{remedy}"
        )
    return tuple(chain), model


def fit_over(estimator: Any, runner: Runner, classes: Any, sizes: Sizes) -> Any:
    """Fit an estimator by passes over blocks; a model is not changed before the last is done."""
    chain, model = split(estimator)
    validation.check_verifier(model)
    _check_blockwise(model)
    look = runner.look(LookPass(), classes is not None)
    if classes is None and look.labels.dtype.kind == "b":
        classes = [False, True]
    known, index, _ = validation.check_labels(look.labels, model.pos_label, classes)
    if runner.once:
        _check_once(model, chain, look.given)
    seed = runner.seed(lambda: int(check_random_state(model.random_state).randint(2**31 - 1)))
    fit = _Fit(model, runner, Intake(known, index, look.given), seed, sizes)
    return fit.run(estimator, chain)


def _check_blockwise(model: Any) -> None:
    """Refuse settings that need all rows at once."""
    if isinstance(model, CSDA):
        if model.solver == "labels":
            raise ValueError(
                "solver='labels' has targets that need all rows; use solver='eigen' or 'lowrank'"
            )
        return
    if model.balance == "resampled":
        raise ValueError(
            "balance='resampled' draws from each subclass as a whole; use balance='pooled'"
        )
    rule = model.subclasses
    if isinstance(rule, str) and rule == "samples":
        raise ValueError(
            "subclasses='samples' keeps a mean for every negative; use CSDA, which is the same "
            "criterion, or subclasses='kmeans'"
        )
    if not isinstance(rule, str) and not hasattr(rule, "predict"):
        raise ValueError(
            f"subclasses={type(rule).__name__} cannot divide rows that it was not fitted on; use a "
            "clusterer with predict, such as KMeans"
        )


def _check_once(model: Any, chain: tuple[Any, ...], given: bool) -> None:
    """Refuse fits that read the blocks again."""
    reasons = {
        "a pipeline is fitted on a sample of rows first": bool(chain),
        "k-means is run on a sample of rows first (subclass_labels would spare it)": (
            not chain and _clusters(model, given)
        ),
        "calibration takes folds (calibrate=False would spare them)": (
            model.calibrate and not _leaves_out(model)
        ),
    }
    found = [reason for reason, holds in reasons.items() if holds]
    if found:
        raise ValueError(
            f"this fit takes several passes, and an iterator can be read once: "
            f"{' and '.join(found)}; pass a function that returns a new iterator"
        )


def _leaves_out(model: Any) -> bool:
    """Whether rows are left out in closed form."""
    return getattr(model, "covariance", None) == "leave-one-out"


def _clusters(model: Any, given: bool) -> bool:
    """Whether negatives have to be clustered."""
    if isinstance(model, CSDA) or given:
        return False
    return not (isinstance(model.subclasses, str) and model.n_subclasses == 1)


@dataclass
class _Fit:
    """One fit: the passes in their order."""

    model: Any
    runner: Runner
    intake: Intake
    seed: int
    sizes: Sizes

    def run(self, estimator: Any, chain: tuple[Any, ...]) -> Any:
        model = self.model
        clusters = _clusters(model, self.intake.given)
        sample = None
        if chain or clusters:
            say(model, "drawing a sample of rows")
            sample = self.runner.run(SamplePass(self.intake, self.seed, self._sample_draw()))
        if chain and sample is not None:
            self.intake = replace(self.intake, chain=self._fit_chain(chain, sample))
        division = Division(given=self.intake.given and isinstance(model, PCSDA))
        if clusters and sample is not None:
            division = self._divide(sample)
        leaves_out = _leaves_out(model)
        folds = self._folds() if model.calibrate and not leaves_out else None
        say(model, "collecting statistics")
        draws = self._draws() if leaves_out else (Draw(0), Draw(0))
        found = self.runner.run(StatisticsPass(self.intake, division, self.seed, draws, folds))
        names, scatter = self._filled(found, division)
        if sample is not None and sample.rows.n_offered != found.n_rows.sum():
            raise ValueError(
                f"there were {sample.rows.n_offered} rows when a sample was drawn and are "
                f"{found.n_rows.sum()} now; blocks must be the same in every pass"
            )
        if leaves_out:
            fitted = self._leave_out(found, names, scatter)
        else:
            fitted = fit_scatter(model, scatter)
            check_rank(model, fitted.subspace.rank)
            fitted = self._calibrate_folds(fitted, found, folds)
        return self._keep(estimator, found, fitted)

    def _sample_draw(self) -> Draw:
        if not self.runner.moves:
            return Draw(self.sizes.sample)
        return Draw.of_total(self.sizes.sample, int(self._counts.counts.sum()))

    def _draws(self) -> tuple[Draw, Draw]:
        """How positives and negatives are drawn to be left out."""
        size = self.sizes.calibration
        if not self.runner.moves:
            return Draw(size), Draw(size)
        positive, negative = self._counts.counts.sum(axis=0)
        return Draw.of_total(size, int(positive)), Draw.of_total(size, int(negative))

    def _fit_chain(self, chain: tuple[Any, ...], sample: Sample) -> tuple[Any, ...]:
        """Fit the transformers on the sample, one after the other."""
        X = sample.rows.table
        y = np.where(sample.marks.table[:, 0] > 0, *self._labels)
        for number, step in enumerate(chain):
            with _seeded(step, self.seed + number):
                X = np.asarray(step.fit(X, y).transform(X))
        return chain

    @property
    def _labels(self) -> tuple[Any, Any]:
        """Label of the class of interest, and that of the rest."""
        classes, index = self.intake.classes, self.intake.index
        return classes[index], classes[1 - index]

    def _divide(self, sample: Sample) -> Division:
        """Divide the negatives by a clusterer that was fitted on those of the sample."""
        rule, total = self.model.subclasses, sample.n_negative
        negative = np.flatnonzero(sample.marks.table[:, 0] == 0)
        if total == 0 or len(negative) == 0:
            raise ValueError(
                f"the sample of {len(sample.rows.keys)} rows has no negatives to cluster; raise "
                "sample_rows, or give subclass_labels"
            )
        rows = self.intake.map(sample.rows.table[negative])
        with np.errstate(over="ignore"):
            if not np.isfinite(np.square(rows, dtype=np.float64).sum()):
                ridge_of(np.inf, 1.0)  # says that the squares overflow
        if not isinstance(rule, str):
            clusterer = clone(rule)
            with _seeded(clusterer, self.seed):
                return Division(clusterer=clusterer.fit(rows))
        count = self._count(rows, total, sample.complete)
        if count == 1:
            return Division()
        weights = sample.marks.table[negative, 1]
        weight = None if np.all(weights == 1) else weights
        return Division(centres=find_centroids(rows, count, weight, self.seed))

    def _count(self, rows: Any, total: int, complete: bool) -> int:
        wanted = self.model.n_subclasses
        if wanted != "auto" and not complete:
            distinct = count_distinct(rows, wanted)
            if wanted > distinct:
                raise ValueError(
                    f"n_subclasses={wanted} must be at most {distinct} (= number of different "
                    f"negatives in the sample); lower it or raise sample_rows"
                )
        return settle_count(rows, wanted, total)

    def _filled(self, found: Statistics, division: Division) -> tuple[NDArray[Any], GroupScatter]:
        """Names and statistics of the groups that have rows; both classes must."""
        if found is None:
            raise ValueError("sample_weight is zero for all rows; at least one sample must count")
        names, scatter = present(found.names, found.whole())
        positive, rest = self._labels
        for label, weight in ((positive, scatter.n_positive), (rest, scatter.n_negative)):
            if weight == 0:
                raise ValueError(
                    f"no row that counts has the label {np.asarray(label).item()!r}; samples of "
                    "the class of interest and of the rest are both needed"
                )
        wanted = len(names) if division.centres is None else len(division.centres)
        if wanted > len(names):
            warnings.warn(
                f"k-means left {wanted - len(names)} of {wanted} subclasses empty; they are "
                "dropped",
                stacklevel=2,
            )
        return names, scatter

    def _leave_out(
        self, statistics: Statistics, names: NDArray[Any], scatter: GroupScatter
    ) -> Fitted:
        model, rule = self.model, rule_of(self.model)
        subspace, projection, ridge = scatter_subspace(
            scatter, scatter_solver(model), model.regularization, model.n_components
        )
        check_rank(model, subspace.rank)
        say(model, "leaving rows out")
        table, _, stands_for = _joined(statistics.sample)
        rows, weights = np.ascontiguousarray(table[:, :-2]), table[:, -1]
        # Subclasses without rows were left out of the statistics.
        place = np.append(0, 1 + np.searchsorted(names, statistics.names))
        groups = place[table[:, -2].astype(np.intp)]
        whole = len(table) == statistics.n_rows.sum()
        weight = None if np.all(weights == 1) else weights
        left = Leaver.of(scatter, projection, ridge).leave_out(rows, groups, weight)
        left = replace(left, stands_for=None if whole else stands_for)

        def held_out() -> Any:
            """Scores of folds, as in memory, where no row of a class can be left out."""
            nothing = np.full(1, np.nan), np.ones(1, dtype=bool), None
            if statistics.n_rows.min() < 2:  # no fold has rows of both classes
                return nothing
            if not whole:
                warnings.warn(
                    f"of calibration_rows={self.sizes.calibration} rows of each class none of one "
                    "class can be left out, because they are alone in their subclasses or the "
                    "scatter is singular without them; scores are not calibrated. Give larger "
                    f"subclasses or a ridge, or calibration_rows={statistics.n_rows.max()} to "
                    "refit on folds of all rows",
                    stacklevel=2,
                )
                return nothing
            # The class of the first row comes first: in that order folds are shuffled.
            order = np.argsort((groups == 0) != statistics.leads, kind="stable")
            factorise = pcsda_factory(model, self.seed)
            share = None if weight is None else weight[order]
            return held_out_scores(model, factorise, rows[order], groups[order], share, self.seed)()

        return complete(replace(subspace, left=left), rule, held_out=held_out)

    @cached_property
    def _counts(self) -> Counts:
        counts: Counts = self.runner.run(CountPass(self.intake))
        return counts

    def _folds(self) -> Folds | None:
        return Folds.of_counts(self._counts, self.seed)

    def _calibrate_folds(self, fitted: Fitted, found: Statistics, folds: Folds | None) -> Fitted:
        """Calibrate on the scores of models that were fitted without the fold of each row."""
        if folds is None or isinstance(fitted.density, NoDensity):
            return fitted
        parts: list[Fitted | None] = []
        for fold in range(folds.count):
            scatter = present(found.names, found.whole(without=fold))[1]
            parts.append(None)
            if scatter.n_positive and scatter.n_negative:
                try:
                    parts[-1] = fit_scatter(self.model, scatter)
                except ValueError as error:
                    warnings.warn(f"a calibration fold could not be fitted: {error}", stacklevel=2)
        say(self.model, "calibrating on folds")
        scored: Scored = self.runner.run(
            FoldScorePass(self.intake, tuple(parts), folds, self.seed, self._draws())
        )
        table, positive, stands_for = _joined(scored)
        weights = table[:, -1] * stands_for
        calibration = calibrated_on(fitted.calibration, table[:, 0], positive, weights)
        return replace(fitted, calibration=calibration)

    def _keep(self, estimator: Any, found: Statistics, fitted: Fitted) -> Any:
        model, means = self.model, fitted.subspace.means
        assert means is not None
        forget_stream(model)
        model.classes_ = self.intake.classes
        model.n_features_in_ = means.shape[1]
        model.__dict__.pop("feature_names_in_", None)
        # A pipeline has the names that its first step knows.
        first = self.intake.chain[0] if self.intake.chain else model
        if found.head.columns is not None:
            first.feature_names_in_ = np.array(found.head.columns, dtype=object)
        keep_linear(model, fitted, np.float32 if found.head.single else np.float64)
        return estimator


def present(names: NDArray[Any], scatter: GroupScatter) -> tuple[NDArray[Any], GroupScatter]:
    """Leave out subclasses without rows."""
    kept = np.flatnonzero(scatter.counts[1:] > 0)
    groups = np.append(0, 1 + kept)
    return names[kept], replace(scatter, counts=scatter.counts[groups], means=scatter.means[groups])


def _joined(scored: Scored) -> tuple[Any, NDArray[np.bool_], Any]:
    """Samples of both classes as one table, which rows are positive, and what each stands for."""
    parts = scored.positive, scored.negative
    table = np.concatenate([part.table for part in parts])
    positive = np.repeat([True, False], [len(part.keys) for part in parts])
    stands_for = np.concatenate(
        [
            np.full(len(part.keys), part.offered / part.table[:, -1].sum() if len(part.keys) else 1)
            for part in parts
        ]
    )
    return table, positive, stands_for


@contextmanager
def _seeded(estimator: Any, seed: int) -> Iterator[None]:
    """Seed an estimator that has no whole number as seed, for a while: resuming must repeat it."""
    before = getattr(estimator, "random_state", 0)
    if isinstance(before, (int, np.integer)):
        yield
        return
    estimator.random_state = seed % 2**31
    try:
        yield
    finally:
        estimator.random_state = before
