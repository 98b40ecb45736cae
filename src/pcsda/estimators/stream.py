"""The steps of `partial_fit`: merge statistics, sample rows, and fit a model if rows suffice."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, DTypeLike
from sklearn.utils.metaestimators import available_if

from .. import validation
from ..core.calibration import Scored
from ..core.csda import csda_subspace
from ..core.density import NoDensity
from ..core.direct import scatter_subspace, with_digits
from ..core.fit import Fitted, HeldOut, complete
from ..core.leaver import Leaver
from ..core.linalg import Array, Floats, Ints, Mask, TooFewRowsError, narrow_fit
from ..core.loo import EVERY
from ..core.scatter import GroupScatter
from ..core.spread import require_squares
from ..core.warning import warn
from ..folds import fold_scores
from ..memory import available_memory
from ..targets import check_labels, names_rest, plain_labels, shown, weight_values
from ..validation import MatrixLike, validated
from .parameters import check_verifier, refuse_contamination
from .rows import TrainingRows
from .sample import RowSample
from .steps import (
    axes_of,
    check_rank,
    draw_seed,
    forget,
    keep_fingerprints,
    needs_rows,
    rule_of,
    say,
    settle_ridge,
    sign_of,
)
from .training import Factorise, criterion_of, held_out_scores, keep_linear, learn_rows
from .verifier import Verifier

# Attributes that partial_fit keeps between batches.
_STREAM = (
    *("scatter_", "sample_", "seed_", "n_samples_seen_"),
    *("_subclasses", "_labelled", "_waiting", "_lacks"),
)
# Number of rows of each class kept for folds, if the model has no `calibration_rows`.
CALIBRATION_ROWS = 5000
# Above this number of columns, a warning says what the statistics of a batch cost. Merging two
# batches holds this many D x D matrices at once.
WIDE, MATRICES = 5000, 8
Method = TypeVar("Method", bound=Callable[..., Any])


def available_where(check: Callable[[Any], bool]) -> Callable[[Method], Method]:
    """Return a decorator that hides a method if `check` raises an AttributeError.

    The decorator is scikit-learn's `available_if`, with type annotations.
    """
    decorator: Callable[[Method], Method] = available_if(check)
    return decorator


def check_rows(
    model: Verifier, X: MatrixLike, y: ArrayLike, *, reset: bool = True, finite: bool = True
) -> Any:
    """Check the rows and labels of a fit, and return them as arrays.

    With ``finite=False``, there is no check for NaN and infinity.
    """
    validation.refuse_dask(X, y)
    y = plain_labels(y)
    if reset and validation.takes_plain(model, X, y, finite):
        return X, y
    return validated(
        model,
        X,
        y,
        reset=reset,
        accept_sparse=["csr", "csc"],
        dtype=[np.float64, np.float32],
        ensure_all_finite=finite,
    )


def fit_scatter(
    model: Verifier,
    scatter: GroupScatter,
    held_out: HeldOut | None = None,
    *,
    for_folds: bool = False,
) -> Fitted:
    """Fit a model from the statistics of its groups, with resubstituted covariances.

    `held_out` returns the scores that calibrate the model; without it, there is no calibration. Set
    `for_folds` for the model of a fold, whose scores calibrate another model.
    """
    if hasattr(model, "n_subclasses"):
        settings = model.regularization_, axes_of(model)
        subspace = scatter_subspace(scatter, scatter_solver(model), *settings)[0]
    else:
        subspace = csda_subspace(scatter, criterion_of(model), axes_of(model))
    calibrate = held_out is not None
    rule = replace(rule_of(model), calibrate=calibrate, bent=calibrate or for_folds)
    return complete(subspace, rule, held_out=held_out)


def fit_left_out(
    model: Verifier,
    scatter: GroupScatter,
    data: TrainingRows,
    stands_for: Array | None,
    held_out: HeldOut,
) -> Fitted:
    """Fit a model from the statistics of all rows, and leave out each row in `data`.

    `stands_for` is the number of rows that each left-out row represents; None means that `data` has
    all rows. `held_out` returns scores for the calibration if no row can be left out.
    """
    subspace, projection, ridge = scatter_subspace(
        scatter, scatter_solver(model), model.regularization_, axes_of(model)
    )
    check_rank(model, subspace.rank)
    say(model, "leaving rows out")
    rows = data.X, data.groups, data.weights
    left = Leaver.of(scatter, projection, ridge).leave_out(*rows)
    left = left.leading(len(subspace.eigenvalues))
    subspace = replace(subspace, left=replace(left, stands_for=stands_for))
    if stands_for is None:  # all rows are available
        settings = model.regularization_, ridge, axes_of(model)
        subspace = with_digits(subspace, *rows, *settings, EVERY)
    rule = replace(rule_of(model), columns=float(scatter.means.shape[1]))
    return complete(subspace, rule, held_out=held_out)


def scatter_solver(model: Verifier) -> str:
    """Return a solver that needs only statistics; the iterative solver would need the rows."""
    return "cholesky" if model.solver in ("auto", "lsqr") else str(model.solver)


def forget_stream(model: Verifier) -> None:
    """Delete the statistics of earlier batches."""
    forget(model, *_STREAM)


def check_batch(
    model: Verifier,
    X: Any,
    y: ArrayLike,
    classes: Any,
    sample_weight: ArrayLike | None,
    groups: ArrayLike | None,
) -> tuple[Floats, Mask, Array | None]:
    """Check a batch given to `partial_fit`; the first call also stores the classes.

    Return the rows, the mask of positives and the weights.
    """
    first = not hasattr(model, "scatter_")
    if first and hasattr(model, "density_"):
        raise ValueError(
            "partial_fit cannot continue from fit, which keeps no statistics to merge a batch "
            "into; call partial_fit from the first batch on, on a fresh estimator "
            "such as sklearn.base.clone(model), or call fit on all rows together"
        )
    if groups is not None:
        raise ValueError(
            "partial_fit takes no groups, because it keeps, leaves out and drops rows one by one; "
            "call fit(groups=) on all rows together"
        )
    check_verifier(model)
    refuse_contamination(model, "batches trust all labels", "call fit on all rows")
    X, y = check_rows(model, X, y, reset=first)
    X = validation.dense_if_small(X)
    validation.refuse_sparse(X, "partial_fit", "make batches dense with toarray()")
    _require_room(X.shape[1], first)
    require_squares(X)
    settled = classes is None or set(classes) == set(getattr(model, "classes_", ()))
    if not (first or settled or names_rest(model.classes_, model.pos_label)):
        raise ValueError(
            f"classes={list(classes)} differs from the first call's {model.classes_.tolist()}"
        )
    known = classes if first else model.classes_
    model.classes_, _, positive = check_labels(y, model.pos_label, known)
    weights = None
    if sample_weight is not None:  # a class without weight may get some in another batch
        weights = weight_values(sample_weight, len(positive))
    return X, positive, weights


def _require_room(width: int, first: bool) -> None:
    """Raise MemoryError if the statistics of a batch do not fit; warn once if they are large."""
    needed, available = MATRICES * 8 * width**2, available_memory()
    costs = (
        f"partial_fit with {width} columns needs {needed / 2**30:.1f} GiB for matrices of "
        f"{width} x {width} numbers"
    )
    remedy = "call fit on all rows together, or reduce the columns first"
    if needed > available:
        raise MemoryError(f"{costs}, but {available / 2**30:.1f} GiB are available; {remedy}")
    if first and width > WIDE:
        warn(
            f"{costs}, and the time of a batch grows with the cube of the columns; above {WIDE} "
            f"columns, {remedy}"
        )


def begin_batch(model: Verifier, n_rows: int) -> Ints:
    """Return the position of each row of a batch among all rows so far.

    The first batch also draws the seed.
    """
    if "seed_" not in model.__dict__:
        model.seed_, model.n_samples_seen_ = draw_seed(model.random_state), 0
    start, model.n_samples_seen_ = model.n_samples_seen_, model.n_samples_seen_ + n_rows
    return np.arange(start, model.n_samples_seen_)


def merge_batch(
    model: Verifier,
    X: Floats,
    groups: Ints,
    weights: Array | None,
    numbers: Ints,
    n_groups: int,
) -> None:
    """Merge the statistics of a batch into those of the model, and its rows into the sample."""
    batch = GroupScatter.from_samples(X, groups, n_groups, weights)
    first = not hasattr(model, "scatter_")
    model.scatter_ = batch if first else model.scatter_.merge(batch)
    if first and not needs_rows(model):
        return
    if first or hasattr(model, "sample_"):
        rng = np.random.default_rng([model.seed_, model.n_samples_seen_, 0])
        rows = RowSample.of_batch(X, groups, weights, numbers, n_groups, rng)
        model.sample_ = rows if first else model.sample_.merge(rows)


def renumber(model: Verifier, places: Ints, n_groups: int) -> None:
    """Renumber the groups of all batches so far: group g becomes ``places[g]`` of `n_groups`."""
    model.scatter_ = model.scatter_.renumbered(places, n_groups)
    if hasattr(model, "sample_"):
        model.sample_ = model.sample_.renumbered(places, n_groups)


def refit(
    model: Verifier,
    factorise: Factorise,
    dtype: DTypeLike,
    most: int | None = None,
    lacks: str | None = None,
) -> None:
    """Fit the model to the collected batches; if they are not enough, store what is missing.

    `most` is the largest number of axes that any number of batches could give, by default one per
    feature. If `lacks` is given, it says what is missing, and no fit is tried.
    """
    check_rank(model, model.n_features_in_ if most is None else most)
    sample: RowSample | None = getattr(model, "sample_", None)
    kept: Ints | slice = slice(None)
    if sample is not None:
        sample, kept = _bounded(model, sample)
    try:
        if lacks is not None:
            raise TooFewRowsError(lacks)
        _require_classes(model)
        with narrow_fit(model.n_features_in_):
            fitted = _fit_collected(model, factorise, sample)
        check_rank(model, fitted.subspace.rank)
        if isinstance(fitted.density, NoDensity):
            raise TooFewRowsError(fitted.density.why)
    except TooFewRowsError as error:
        if hasattr(model, "density_"):  # for instance, more axes but too few positives
            warn(
                f"with this batch, there is no model until more rows arrive: {error}",
            )
            del model.density_
        model.__dict__["_lacks"] = str(error)
        return
    forget(model, "_lacks")
    keep_linear(model, fitted, dtype if sample is None else sample.X.dtype)
    if sample is None:
        return
    model.partition_ = model.sample_.groups
    left_out = fitted.left_out_of(len(sample.groups))
    if left_out is not None:
        model.loo_scores_ = left_out[kept]
        keep_fingerprints(model, model.sample_.X, np.flatnonzero(~np.isnan(model.loo_scores_)))
    elif fitted.held_out is not None and fitted.held_out.rows is not None:
        keep_fingerprints(model, sample.X, fitted.held_out.rows)


def _bounded(model: Verifier, sample: RowSample) -> tuple[RowSample, Ints | slice]:
    """Reduce the model's sample to `calibration_rows` rows per class.

    Return the sample to fit on, and which of its rows the model keeps.
    """
    most = getattr(model, "calibration_rows", CALIBRATION_ROWS) or sys.maxsize
    if not sample.whole:
        model.sample_ = sample.thinned(most)
        return model.sample_, slice(None)
    # This fit is the last that has all rows; it leaves out the rows that stay in the sample.
    rows = sample.first_draw(most, model.seed_)
    if rows is None:
        return sample, slice(None)
    model.sample_ = sample.drawn(
        rows, np.random.default_rng([model.seed_, model.n_samples_seen_, 1])
    )
    return sample, rows


def _fit_collected(model: Verifier, factorise: Factorise, sample: RowSample | None) -> Fitted:
    """Fit like `fit` if all rows are stored, otherwise from the statistics and the sample."""
    scatter, rule = model.scatter_, rule_of(model)
    settle_ridge(model, scatter.n_positive)
    if sample is None:
        if needs_rows(model):
            warn(
                "the batches so far were merged without keeping rows, so covariances are "
                "resubstituted and scores are not calibrated; start again on "
                "sklearn.base.clone(model), or recalibrate on held-out rows",
            )
        return fit_scatter(model, scatter)
    data = TrainingRows(sample.X, sample.groups, sample.given_weights, model.seed_)
    if sample.whole:
        return learn_rows(model, factorise, data)
    stands_for = sample.stands_for(scatter.counts)
    rows = sample.X.astype(np.float64, copy=False)
    mass = sample.weights * stands_for
    if rule.leave_one_out:
        held_out = held_out_scores(model, factorise, replace(data, X=rows, weights=mass))
        return fit_left_out(model, scatter, replace(data, X=rows), stands_for, held_out)

    def score_folds() -> Scored:
        scores = _scores_without(model, sample, rows)
        return Scored(scores, data.positive, mass, rows=np.arange(len(scores)))

    return fit_scatter(model, scatter, score_folds if rule.calibrate else None)


def _scores_without(model: Verifier, sample: RowSample, rows: Array) -> Array:
    """Score each fold of the kept rows with a model from the statistics of all other rows."""
    weights, groups = sample.weights, sample.groups

    def learn(train: Ints, _: Ints) -> Callable[[Ints], Array]:
        fold = np.setdiff1d(np.arange(len(rows)), train)
        own = GroupScatter.from_samples(
            rows[fold], groups[fold], len(model.scatter_.counts), weights[fold]
        )
        part = fit_scatter(model, model.scatter_.without(own), for_folds=True)
        return lambda test: part.score(rows[test])

    say(model, "calibrating on folds")
    return fold_scores(learn, groups, model.seed_)


def _require_classes(model: Verifier) -> None:
    """Raise TooFewRowsError unless both classes have rows."""
    seen = (model.scatter_.n_negative > 0, model.scatter_.n_positive > 0)[:: sign_of(model)]
    for label, there in zip(model.classes_.tolist(), seen, strict=True):
        if not there:
            raise TooFewRowsError(
                f"no row of class {shown(label)} with positive weight has arrived"
            )
