"""Fit a model in several passes over blocks, in one process or on a cluster.

Once the statistics are merged, the code is the same as for an in-memory fit.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, clone

from .. import validation
from ..core.calibration import Scored
from ..core.copies import warn_of_copies
from ..core.csda_solvers import TARGETS
from ..core.density import NoDensity
from ..core.fit import Fitted, calibrated_on, within_limits
from ..core.linalg import Array, Mask, Result, narrow_fit
from ..core.scatter import GroupScatter
from ..core.spread import OverflowingSquares
from ..core.warning import warn
from ..estimators import CSDA, PCSDA
from ..estimators.hidden import keep_shares
from ..estimators.linear import held_out_scores, pcsda_factory
from ..estimators.naming import name_as_given
from ..estimators.operating import left_out
from ..estimators.parameters import check_priors, check_verifier, is_contaminated
from ..estimators.rows import TrainingRows
from ..estimators.steps import (
    OF_ONE_FIT,
    check_rank,
    keep_fingerprints,
    least_subclasses,
    say,
    settle_ridge,
    sign_of,
)
from ..estimators.stream import CALIBRATION_ROWS, fit_left_out, fit_scatter, forget_stream
from ..estimators.threads import twin_of
from ..estimators.training import keep_linear
from ..partition import find_centroids, settle_count, warn_of_empty
from ..targets import check_labels, names_rest, warn_of_common, warn_of_light
from ..unwrap import steps
from . import passes
from .data import Division, Intake
from .passes import Look, Pass, Sample, Statistics
from .sampling import Counts, Draw, Draws, Folds, Samples


class Runner(Protocol):
    """Interface for running passes over all blocks."""

    @property
    def once(self) -> bool:
        """Whether the blocks can be read only once."""

    @property
    def moves(self) -> bool:
        """Whether results are sent between processes, so that counting rows first saves traffic."""

    def seed(self, draw: Callable[[], int]) -> int:
        """Draw a seed for the fit, or restore the seed of an interrupted fit."""

    def look(self, task: passes.LookPass, first: bool) -> Look:
        """Read labels until both classes are seen or, if `first`, from the first block only."""

    def run(self, task: Pass[Result]) -> Result | None:
        """Run a pass and return the merged result, or None if no row has positive weight."""


def check_blockwise(
    estimator: BaseEstimator, sample_rows: int, calibration_rows: int | None
) -> Any:
    """Reject estimators and settings that need all rows at once; return the final model."""
    model = steps(estimator)[-1]
    if not isinstance(model, (PCSDA, CSDA)):
        kernel = type(model).__name__.startswith("Kernel")
        remedy = "; use make_pipeline(NystroemMap(), PCSDA()) for a kernel" if kernel else ""
        raise TypeError(
            f"{type(model).__name__} cannot be fitted in blocks, only PCSDA, CSDA or a pipeline "
            f"that ends in one of them{remedy}"
        )
    validation.check_count("sample_rows", sample_rows, None)
    validation.check_count("calibration_rows", calibration_rows, None)
    check_verifier(model)
    if isinstance(model, CSDA) and model.solver in TARGETS:
        raise ValueError(
            f"solver={model.solver!r} has targets that need all rows; use solver='eigen' or "
            "'lowrank'"
        )
    if isinstance(model, PCSDA):
        _check_pcsda(model)
    return model


def _check_pcsda(model: PCSDA) -> None:
    if model.balance == "resampled":
        raise ValueError(
            "balance='resampled' draws from each subclass as a whole; use balance='pooled'"
        )
    rule = model.subclasses
    if isinstance(rule, str) and rule == "samples":
        raise ValueError(
            "subclasses='samples' keeps a mean for every negative; use CSDA, which has the same "
            "criterion, or subclasses='kmeans'"
        )
    if not isinstance(rule, str) and not hasattr(rule, "predict"):
        raise ValueError(
            f"subclasses={type(rule).__name__} cannot assign rows that it was not fitted on; use a "
            "clusterer with predict, such as KMeans"
        )


def fit_over(
    estimator: BaseEstimator,
    runner: Runner,
    classes: ArrayLike | None,
    sample_rows: int,
    calibration_rows: int | None,
) -> Any:
    """Fit a checked estimator, leaving it unchanged until the last pass is done."""
    *chain, model = steps(estimator)
    look = runner.look(passes.LookPass(model.pos_label), classes is not None)
    if classes is None and look.labels.dtype.kind == "b":
        classes = [False, True]
    known, index, _ = check_labels(look.labels, model.pos_label, classes)
    if calibration_rows is None:
        calibration_rows = getattr(model, "calibration_rows", CALIBRATION_ROWS)
    most = sys.maxsize if calibration_rows is None else calibration_rows
    rest = names_rest(known, model.pos_label)
    intake = Intake(known, index, look.given, rest=rest)
    fit = _Fit(twin_of(model), runner, intake, sample_rows, most)
    if runner.once:
        fit.check_once(bool(chain))
    fit.run(tuple(chain))
    model.__dict__ = fit.model.__dict__
    return estimator


@dataclass
class _Fit:
    """A single fit in blocks, which runs the passes in order."""

    model: Any
    runner: Runner
    intake: Intake
    sample_rows: int
    calibration_rows: int
    seed: int = 0

    @property
    def leaves_out(self) -> bool:
        """Whether single rows are removed from the fit, in closed form, to get their scores."""
        return getattr(self.model, "covariance", None) == "leave-one-out"

    @property
    def clusters(self) -> bool:
        """Whether negatives have to be clustered."""
        if isinstance(self.model, CSDA) or self.intake.given:
            return False
        return not (isinstance(self.model.subclasses, str) and self.model.n_subclasses == 1)

    @property
    def takes_folds(self) -> bool:
        """Whether scores are calibrated using folds."""
        return self.model.calibrate and not self.leaves_out

    def check_once(self, transforms: bool) -> None:
        """Reject a fit that needs several passes if the blocks can be read only once."""
        reasons = {
            "a pipeline is fitted on a sample of rows first": transforms,
            "k-means is run on a sample of rows first (subclass_labels would avoid it)": (
                self.clusters and not transforms
            ),
            "calibration uses folds (calibrate=False would avoid them)": self.takes_folds,
        }
        found = [reason for reason, holds in reasons.items() if holds]
        if found:
            raise ValueError(
                f"this fit takes several passes, and an iterator can be read only once: "
                f"{' and '.join(found)}; pass a function that returns a new iterator"
            )

    def run(self, chain: tuple[Any, ...]) -> None:
        """Run the passes and store the fitted model."""
        model, sample = self.model, None
        rng = validation.random_source(model.random_state)
        self.seed = self.runner.seed(lambda: int(rng.randint(2**31 - 1)))
        if chain or self.clusters:
            say(model, "drawing a sample of rows")
            draw = self._draw(self.sample_rows)
            sample = self.runner.run(passes.SamplePass(self.intake, self.seed, draw))
        division = Division(given=self.intake.given and isinstance(model, PCSDA))
        if sample is not None:
            self._fit_chain(chain, sample)
            division = self._divide(sample) if self.clusters else division
        folds = Folds.of_counts(self._counts, self.seed) if self.takes_folds else None
        say(model, "collecting statistics")
        draws = self._draws if self.leaves_out else (Draw(0), Draw(0))
        task = passes.StatisticsPass(self.intake, division, self.seed, draws, folds)
        found = self.runner.run(task)
        if found is None:
            raise ValueError("sample_weight is zero for all rows; at least one sample must count")
        names, scatter = self._filled(found, division)
        if sample is not None:
            _refuse_other_rows(sample.rows.n_offered, int(found.n_rows.sum()))
        settle_ridge(model, scatter.n_positive)
        if is_contaminated(model):
            self._fit_hidden(found, scatter)
            return
        if model.pos_label is None:
            warn_of_common(self.intake.classes.tolist(), found.n_rows[0], found.n_rows.sum())
        samples = found.samples
        if self.leaves_out:
            fitted = self._leave_out(found, names, scatter)
        else:
            fitted = fit_scatter(model, scatter, for_folds=folds is not None)
            check_rank(model, fitted.subspace.rank)
            if self.takes_folds and not isinstance(fitted.density, NoDensity):
                fitted, samples = self._calibrate_folds(fitted, found, folds)
        self._keep(found, fitted, samples)
        if division.given:
            name_as_given(model, names.tolist())

    @cached_property
    def _counts(self) -> Counts:
        counts = self.runner.run(passes.CountPass(self.intake))
        assert counts is not None
        return counts

    def _draw(self, size: int, side: int | None = None) -> Draw:
        """Return how to draw `size` rows from one class or, if `side` is None, from all rows.

        On a cluster, the rows are counted first, so that fewer rows are sent.
        """
        if not self.runner.moves:
            return Draw(size)
        totals = self._counts.counts.sum(axis=0)
        return Draw.of_total(size, int(totals.sum() if side is None else totals[side]))

    @property
    def _draws(self) -> Draws:
        """How to draw the positives and the negatives on which scores are calibrated."""
        return self._draw(self.calibration_rows, 0), self._draw(self.calibration_rows, 1)

    @property
    def _labels(self) -> tuple[Any, Any]:
        """Labels of the class of interest and of the rest."""
        classes, index = self.intake.classes, self.intake.index
        return classes[index], classes[1 - index]

    def _fit_chain(self, chain: tuple[Any, ...], sample: Sample) -> None:
        """Fit the transformers on the sample, each on the output of the previous one."""
        X, positive, _ = sample.rows.columns
        y = np.where(positive, *self._labels)
        for number, step in enumerate(chain):
            with _seeded(step, self.seed + number):
                X = np.asarray(step.fit(X, y).transform(X))
        self.intake = replace(self.intake, chain=chain)

    def _divide(self, sample: Sample) -> Division:
        """Cluster the sampled negatives, and return how to divide all negatives."""
        rule = self.model.subclasses
        X, positive, weights = sample.rows.columns
        negative = np.flatnonzero(~positive)
        if len(negative) == 0:
            raise ValueError(
                f"the sample of {len(X)} rows has no negatives to cluster; raise sample_rows, or "
                "give subclass_labels"
            )
        rows = self.intake.map(X[negative])
        with np.errstate(over="ignore"):
            if not np.isfinite(np.square(rows, dtype=np.float64).sum()):
                raise OverflowingSquares
        if not isinstance(rule, str):
            clusterer = clone(rule)
            with _seeded(clusterer, self.seed):
                return Division(clusterer=clusterer.fit(rows))
        sampled = len(X) < sample.rows.n_offered
        total, wanted = sample.n_negative, self.model.n_subclasses
        n_positive = sample.rows.n_offered - total
        least = least_subclasses(self.model)
        count = settle_count(
            rows, wanted, total, sampled=sampled, n_positive=n_positive, least=least
        )
        if count == 1:
            return Division()
        weight = _unless_equal(weights[negative])
        with narrow_fit(rows.shape[1]):
            return Division(centres=find_centroids(rows, count, weight, self.seed))

    def _filled(self, found: Statistics, division: Division) -> tuple[NDArray[Any], GroupScatter]:
        """Return the names and statistics of the nonempty subclasses; reject an empty class."""
        names, scatter = found.whole()
        weights = scatter.n_positive, scatter.n_negative
        for label, weight in zip(self._labels, weights, strict=True):
            if weight == 0:
                raise ValueError(
                    f"no row of weight above 0 has the label {np.asarray(label).item()!r}; samples "
                    "of the class of interest and of the rest are both needed"
                )
            warn_of_light(float(weight), f"rows with the label {np.asarray(label).item()!r}")
        if division.centres is not None:
            warn_of_empty(len(division.centres), len(names))
        return names, scatter

    def _leave_out(self, found: Statistics, names: NDArray[Any], scatter: GroupScatter) -> Fitted:
        """Fit a model whose covariances and calibration come from left-out rows.

        Each sampled row is left out of the fit in turn, in closed form, and scored.
        """
        (X, groups, weights), _, stands_for = _joined(found.samples)
        rows, weight = X.astype(np.float64, copy=False), _unless_equal(weights)
        # Number the groups again, because `names` omits subclasses without rows.
        groups = np.append(0, 1 + np.searchsorted(names, found.names))[groups]
        represents = stands_for if len(rows) < found.n_rows.sum() else None
        data = TrainingRows(rows, groups, weight, self.seed)
        warn_of_copies(rows, groups == 0)
        held_out = partial(self._held_out, found, data)
        with narrow_fit(rows.shape[1]):
            return fit_left_out(self.model, scatter, data, represents, held_out)

    def _fit_hidden(self, found: Statistics, scatter: GroupScatter) -> None:
        """Fit a model that expects positives among the negatives, using only the sampled rows.

        The other rows cannot be used, because nobody knows which of them are hidden positives. Only
        the prior is computed from all rows.
        """
        model, own = self.model, clone(self.model)
        (X, _, weights), positive, _ = _joined(found.samples)
        own.fit(X, np.where(positive, *self._labels), sample_weight=_unless_equal(weights))
        known, seen = left_out(own), getattr(own, "fingerprints_", None)
        # Sampled rows have no row numbers, so no attribute may refer to rows, not even one from an
        # earlier fit.
        for name in (*OF_ONE_FIT, "responsibilities_"):
            own.__dict__.pop(name, None)
            model.__dict__.pop(name, None)
        own.held_out_ = None if known is None else known[:3]
        if seen is not None:
            own.fingerprints_ = seen
        self._keep_columns(found, own.n_features_in_)
        fitted = {name: value for name, value in vars(own).items() if name.endswith("_")}
        model.__dict__.update(fitted | {"classes_": self.intake.classes})
        drawn = weights[positive].sum() / weights[~positive].sum()
        odds = own.positive_count_ / own.subclass_counts_.sum()
        odds *= scatter.n_positive / scatter.n_negative / drawn
        shares = np.array([1.0, odds]) / (1 + odds)
        model.class_prior_ = check_priors(model.priors, shares[:: sign_of(model)])

    def _held_out(self, found: Statistics, data: TrainingRows) -> Scored:
        """Refit on folds, as an in-memory fit does, and return the scores of held-out rows.

        Return a single NaN if a class has fewer than two rows, or if `data` holds only a sample of
        the rows.
        """
        model = self.model
        whole = len(data.groups) == found.n_rows.sum()
        if found.n_rows.min() < 2 or not whole:
            if found.n_rows.min() >= 2:
                warn(
                    f"in one class, none of the calibration_rows={self.calibration_rows} sampled "
                    "rows can be left out: each is alone in its subclass, or the scatter is "
                    "singular without it. Scores are not calibrated; give larger subclasses or a "
                    f"ridge, or calibration_rows={found.n_rows.max()} to refit on folds of all rows"
                )
            return Scored(np.full(1, np.nan), np.ones(1, dtype=bool), None)
        # Rows of the class that the first row belongs to come first, because an in-memory fit
        # shuffles the folds in this order.
        order = np.argsort(data.positive != found.leads, kind="stable")
        scored = held_out_scores(model, pcsda_factory(model, self.seed), data.take(order))()
        return scored.with_rows(order)

    def _calibrate_folds(
        self, fitted: Fitted, found: Statistics, folds: Folds | None
    ) -> tuple[Fitted, Samples]:
        """Calibrate on sampled rows, each scored by a model fitted without the row's fold.

        Return the model and the sampled rows. Without folds, as with a single positive, ratios are
        only limited.
        """
        if folds is None:
            limited = within_limits(fitted.calibration, fitted.subspace)
            return replace(fitted, calibration=limited), found.samples
        models: list[Fitted | None] = [None] * folds.count
        for fold in range(folds.count):
            _, scatter = found.whole(without=fold)
            if scatter.n_positive and scatter.n_negative:
                try:
                    models[fold] = fit_scatter(self.model, scatter, for_folds=True)
                except ValueError as error:
                    warn(f"a calibration fold could not be fitted: {error}")
        say(self.model, "calibrating on folds")
        task = passes.FoldScorePass(self.intake, tuple(models), folds, self.seed, self._draws)
        samples = self.runner.run(task)
        assert samples is not None
        (_, scores, weights), positive, stands_for = _joined(samples)
        unseen = Scored(scores, positive, weights * stands_for, rows=np.arange(len(scores)))
        calibration, known = calibrated_on(fitted.calibration, unseen)
        calibration = within_limits(calibration, fitted.subspace)
        return replace(fitted, calibration=calibration, held_out=known), samples

    def _keep(self, found: Statistics, fitted: Fitted, samples: Samples) -> None:
        means = fitted.subspace.means
        assert means is not None
        self._keep_columns(found, means.shape[1])
        dtype = np.float32 if found.head.single else np.float64
        fitted = fitted.without_numbers()
        keep_linear(self.model, fitted, dtype)
        if fitted.held_out is not None and fitted.held_out.rows is not None:
            (X, _, _), _, _ = _joined(samples)
            keep_fingerprints(self.model, X, fitted.held_out.rows)

    def _keep_columns(self, found: Statistics, width: int) -> None:
        """Store the classes and column names, and delete attributes that an earlier fit left."""
        model = self.model
        forget_stream(model)
        keep_shares(model, None, slice(None), 0)
        model.classes_ = self.intake.classes
        model.n_features_in_ = width
        model.__dict__.pop("feature_names_in_", None)
        # A pipeline takes its column names from its first step.
        first = self.intake.chain[0] if self.intake.chain else model
        if found.head.columns is not None:
            first.feature_names_in_ = np.array(found.head.columns, dtype=object)


def _joined(samples: Samples) -> tuple[list[NDArray[Any]], Mask, Array]:
    """Join the samples of positives and negatives.

    Return the columns, a mask of the positive rows, and the number of rows that each sampled row
    represents.
    """
    columns = [np.concatenate(both) for both in zip(*(s.columns for s in samples), strict=True)]
    sizes = [len(sample.keys) for sample in samples]
    shares = [s.offered / s.columns[-1].sum() if len(s.keys) else 1.0 for s in samples]
    return columns, np.repeat([True, False], sizes), np.repeat(shares, sizes)


def _unless_equal(weights: Array) -> Array | None:
    """Return the weights, or None if all of them are one."""
    return None if np.all(weights == 1) else weights


@contextmanager
def _seeded(estimator: BaseEstimator, seed: int) -> Iterator[None]:
    """Use an integer seed during a fit, so that a resumed fit gives the same result."""
    before = getattr(estimator, "random_state", 0)
    if isinstance(before, (int, np.integer)):
        yield
        return
    estimator.random_state = seed % 2**31
    try:
        yield
    finally:
        estimator.random_state = before


def _refuse_other_rows(before: int, now: int) -> None:
    """Refuse blocks that had another number of rows in an earlier pass."""
    if before != now:
        raise ValueError(
            f"there were {before} rows when a sample was drawn and there are {now} now; blocks "
            "must be the same in every pass"
        )
