"""A fit as a sequence of passes over blocks, whoever runs them: one process or a cluster.

What follows the merged statistics is the code that fits in memory.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.utils import check_random_state

from .. import validation
from ..calibration import Calibration, fit_calibration
from ..core import loo, loo_scores
from ..core import model as models
from ..core.density import Rule
from ..core.model import Model
from ..core.scatter import GroupScatter
from ..estimators import CSDA, PCSDA
from ..partition import count_distinct, fit_kmeans, settle_count
from ..unwrap import steps
from .folds import CountPass, Folds
from .intake import Division, Intake
from .passes import Draw, LloydPass, Look, LookPass, Pass, Sample, SamplePass
from .summaries import (
    FoldScorePass,
    LeftOutPass,
    LeftOutSums,
    Scored,
    Statistics,
    StatisticsPass,
)

# Starts of k-means on the sample, at least.
STARTS = 10
# Centres that move by less than this share of the spread stand still.
STILL = 1e-24


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
    """How many rows are kept: for maps and k-means, and of each class for the calibration."""

    sample: int = 20_000
    calibration: int = 50_000


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
    model._check_parameters()
    _check_blockwise(model)
    look = runner.look(LookPass(), classes is not None)
    if classes is None and look.labels.dtype.kind == "b":
        classes = [False, True]
    known, index, _ = validation.check_labels(look.labels, model.pos_label, classes)
    needed = _passes(model, chain, look.given)
    if runner.once and needed > 1:
        raise ValueError(
            f"this fit takes {'at least ' if needed > 2 else ''}{needed} passes and an iterator "
            "can be read once; pass a function that returns a new iterator, or give "
            "subclass_labels with covariance='resubstitution' and calibrate=False"
        )
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


def _passes(model: Any, chain: tuple[Any, ...], given: bool) -> int:
    """How many passes a fit takes at least."""
    clusters = _clusters(model, given)
    leaves_out = getattr(model, "covariance", None) == "leave-one-out"
    return 1 + bool(chain or clusters) + clusters + (leaves_out or model.calibrate)


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
            model._say("drawing a sample of rows")
            sample = self.runner.run(SamplePass(self.intake, self.seed, self._sample_draw()))
        if chain and sample is not None:
            fitted = self._fit_chain(chain, sample)
            self.intake = replace(self.intake, chain=fitted)
        division = Division(given=self.intake.given and isinstance(model, PCSDA))
        if clusters and sample is not None:
            division = self._divide(sample)
        leaves_out = isinstance(model, PCSDA) and model.covariance == "leave-one-out"
        folds = self._folds() if model.calibrate and not leaves_out else None
        model._say("collecting statistics")
        found = self.runner.run(StatisticsPass(self.intake, division, folds))
        names, scatter = self._filled(found, division)
        if leaves_out:
            learned, calibration = self._leave_out(found, names, scatter, division)
        else:
            learned = model._learn_scatter(scatter)
            model._check_rank(learned.projection.rank)
            calibration = self._calibrate_folds(found, folds)
        return self._keep(estimator, found, learned, calibration)

    def _sample_draw(self) -> Draw:
        if not self.runner.moves:
            return Draw(self.sizes.sample)
        counts = self.runner.run(CountPass(self.intake)).counts
        return Draw.of_total(self.sizes.sample, int(counts.sum()))

    def _draws(self, found: Statistics) -> tuple[Draw, Draw]:
        positive, negative = map(int, found.n_rows)
        size = self.sizes.calibration if self._scores_rows else 0
        return Draw.of_total(size, positive), Draw.of_total(size, negative)

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
        """Divide the negatives by a clusterer that starts on the sample."""
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
                models.ridge_of(np.inf, 1.0)  # says that the squares overflow
        if not isinstance(rule, (str, KMeans)):
            clusterer = clone(rule)
            with _seeded(clusterer, self.seed):
                return Division(clusterer=clusterer.fit(rows))
        if isinstance(rule, KMeans):
            means = clone(rule)
            if isinstance(rule.init, str):
                means.set_params(n_init=max(STARTS, rule.n_init if rule.n_init != "auto" else 0))
        else:
            count = self._count(rows, total, sample.complete)
            if count == 1:
                return Division()
            means = KMeans(count, n_init=STARTS)
        start = means.init
        if isinstance(start, str) or callable(start):
            weights = sample.marks.table[negative, 1]
            with _seeded(means, self.seed):
                start = fit_kmeans(means, rows, weights).cluster_centers_
        start = np.asarray(start, dtype=np.float64)
        if start.ndim != 2 or start.shape[1] != rows.shape[1]:
            raise ValueError(
                f"subclasses={type(rule).__name__} has init of shape {start.shape} but rows have "
                f"{rows.shape[1]} features; give one row for each centroid"
            )
        return Division(centres=self._lloyd(start, means.max_iter, means.tol))

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

    def _lloyd(self, centres: Any, max_iter: int, tol: float) -> Any:
        """Lloyd steps over all negatives, with scikit-learn's rule to stop."""
        for step in range(1, max_iter + 1):
            task = LloydPass(self.intake, centres, f"k-means {step}")
            found = self.runner.run(task)
            moved = task.moved(found)
            shift = float(np.square(moved - centres).sum())
            centres = moved
            self.model._say(f"k-means step {step}: inertia {found.inertia:.6g}")
            if shift <= max(tol, STILL) * found.variance:
                break
        return centres

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
        self,
        statistics: Statistics,
        names: NDArray[Any],
        scatter: GroupScatter,
        division: Division,
    ) -> tuple[Model, Calibration]:
        model = self.model
        subspace = models.scatter_subspace(
            scatter, model._scatter_solver, model.regularization, model.n_components
        )
        model._check_rank(subspace.projection.rank)
        leaver = loo.Leaver.of(scatter, subspace.projection, subspace.ridge)
        model._say("leaving rows out")
        draws = self._draws(statistics)
        found: LeftOutSums = self.runner.run(
            LeftOutPass(self.intake, division, names, leaver, self.seed, draws)
        )
        if not np.isclose(found.total, scatter.counts.sum(), rtol=1e-9):
            raise ValueError(
                f"the rows weigh {found.total:g} in this pass and weighed {scatter.counts.sum():g} "
                "in the one before; blocks must be the same in every pass"
            )
        seen = replace(subspace.projected, positive=found.positive, within=found.within)
        learned = models.with_left_out(
            subspace, seen, found.n_positive, found.n_within, model._rule
        )
        both = models.both_left(subspace.projected, found.n_positive, found.n_within)
        if not (self._scores_rows and both):
            return learned, Calibration()
        if len(found.scored.negative.keys) == 0 and model.calibrate:
            warnings.warn(
                f"each of the {scatter.n_subclasses} subclasses has one row, which leaves nothing "
                "to calibrate on; scores are not calibrated. Give larger subclasses",
                stacklevel=2,
            )
        learned, calibration = _completed(found.scored, learned, model._rule)
        return learned, calibration if model.calibrate else Calibration()

    @property
    def _scores_rows(self) -> bool:
        """Whether left-out rows have to be scored, for the density or for the calibration."""
        return bool(self.model.calibrate or self.model._rule.asks_left_out)

    def _folds(self) -> Folds | None:
        return Folds.of_counts(self.runner.run(CountPass(self.intake)), self.seed)

    def _calibrate_folds(self, found: Statistics, folds: Folds | None) -> Calibration:
        """Calibrate on the scores of models that were fitted without the fold of each row."""
        if folds is None:
            return Calibration()
        learned: list[Model | None] = []
        for fold in range(folds.count):
            scatter = present(found.names, found.whole(without=fold))[1]
            learned.append(None)
            if scatter.n_positive and scatter.n_negative:
                try:
                    learned[-1] = self.model._learn_scatter(scatter)
                except ValueError as error:
                    warnings.warn(f"a calibration fold could not be fitted: {error}", stacklevel=2)
        self.model._say("calibrating on folds")
        scored: Scored = self.runner.run(
            FoldScorePass(self.intake, tuple(learned), folds, self.seed, self._draws(found))
        )
        return _calibration(scored, lambda table: table[:, 0])

    def _keep(
        self, estimator: Any, found: Statistics, learned: Model, calibration: Calibration
    ) -> Any:
        model = self.model
        model._forget_stream()
        model.classes_ = self.intake.classes
        model.n_features_in_ = learned.means.shape[1]
        model.__dict__.pop("feature_names_in_", None)
        # A pipeline has the names that its first step knows.
        first = self.intake.chain[0] if self.intake.chain else model
        if found.head.columns is not None:
            first.feature_names_in_ = np.array(found.head.columns, dtype=object)
        model._keep(learned, calibration, np.float32 if found.head.single else np.float64)
        return estimator


def present(names: NDArray[Any], scatter: GroupScatter) -> tuple[NDArray[Any], GroupScatter]:
    """Leave out subclasses without rows."""
    kept = np.flatnonzero(scatter.counts[1:] > 0)
    groups = np.append(0, 1 + kept)
    return names[kept], replace(scatter, counts=scatter.counts[groups], means=scatter.means[groups])


def _completed(scored: Scored, learned: Model, rule: Rule) -> tuple[Model, Calibration]:
    """Fit what left-out rows tell of the density, and calibrate, on the sample of each class."""
    parts = scored.positive, scored.negative
    if min(len(part.keys) for part in parts) == 0:
        return learned, Calibration()
    table = np.concatenate([part.table for part in parts])
    stands_for = np.concatenate(
        [np.full(len(part.keys), part.offered / part.table[:, -1].sum()) for part in parts]
    )
    width = learned.projection.components.shape[0]
    nobody = np.zeros(len(table), dtype=bool)
    left = loo.LeftOut(table[:, :width], table[:, width : 2 * width], nobody)
    groups, weights = table[:, -2].astype(np.intp), table[:, -1]
    density, scores = loo_scores.complete(
        learned.density, left, groups, learned.counts, weights, rule, stands_for
    )
    learned = replace(learned, density=density)
    if density.offset is not None:
        return learned, Calibration()
    seen = np.isfinite(scores)
    calibration = fit_calibration(scores[seen], groups[seen] == 0, (weights * stands_for)[seen])
    return learned, calibration


def _calibration(scored: Scored, score: Callable[[Any], Any]) -> Calibration:
    """Calibrate on a sample of each class, weighted up to the size of the class."""
    scores, weights, labels = [], [], []
    for label, part in ((True, scored.positive), (False, scored.negative)):
        if len(part.keys) == 0:
            return Calibration()
        weight = part.table[:, -1]
        scores.append(score(part.table))
        weights.append(weight * (part.offered / weight.sum()))
        labels.append(np.full(len(weight), label))
    values, positive = np.concatenate(scores), np.concatenate(labels)
    seen = np.isfinite(values)
    if positive[seen].all() or not positive[seen].any():
        return Calibration()
    return fit_calibration(values[seen], positive[seen], np.concatenate(weights)[seen])


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
