"""How linear estimators are fitted and project rows; banks use the same functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray
from scipy import sparse
from sklearn.utils import assert_all_finite

from ..core.calibration import Scored
from ..core.csda import Criterion, KernelCSDAFactor
from ..core.factor import factor_once
from ..core.fit import Fitted, HeldOut, fit
from ..core.gram import WideRows
from ..core.linalg import Array, Floats, Ints, Mask, is_light, narrow_fit, one_thread
from ..core.loo import Leave
from ..core.scatter import Grouping
from ..core.spread import OverflowingSquares, ScaleError, naming_the_offset, no_spread
from ..core.subspace import Factor, is_far, project_rows
from ..folds import count_folds, fold_scores
from ..partition import count_distinct, make_groups, nearest
from ..validation import MatrixLike
from .hidden import fit_hidden, keep_shares, regrouping, trusting
from .ratios import variances_of
from .rows import Kept, TrainingRows, some
from .steps import (
    axes_of,
    by_cholesky,
    check_copies,
    check_rank,
    keep_decision,
    keep_training,
    least_subclasses,
    leave_sample,
    most_axes,
    rule_of,
    say,
)
from .verifier import FeatureMap, Verifier

if TYPE_CHECKING:
    from .linear import PCSDA

# Number of rows or groups of each class whose scores suffice for a slope and an offset.
ENOUGH = 100

# A function that makes a factor from rows, or from a kernel matrix, and their weights.
Factorise = Callable[[Any, Array | None], Factor]


def linear_coordinates(model: Verifier, X: Any) -> Floats:
    """Project checked rows, dense or sparse; the result has the floating-point type of X."""
    components, mean = model.components_, model.positive_mean_
    if sparse.issparse(X):
        z: Floats = X @ components.astype(X.dtype, copy=False).T
        z -= (components @ mean).astype(X.dtype, copy=False)
        return z
    far = is_far(components, mean, variances_of(model), X.dtype)
    return project_rows(X, components, np.zeros(len(components)), mean, far=far)


def linear_map(model: Verifier) -> FeatureMap:
    """Return a function that subtracts the positive mean from rows.

    Also return the matrix and the origin that project the centred rows.
    """
    mean = model.positive_mean_.astype(np.float64)
    matrix = np.ascontiguousarray(model.components_.T, dtype=np.float64)
    return lambda rows: rows - mean, matrix, np.zeros(model.n_components_)


def keep_linear(model: Verifier, fitted: Fitted, dtype: DTypeLike) -> None:
    """Store the attributes of a fitted linear model; `dtype` is that of the axes."""
    keep_decision(model, fitted)
    means = fitted.subspace.means
    assert means is not None
    model.components_ = _of_type(fitted.subspace.coefficients.T, dtype)
    # Rounding a large mean to float32 could add more error than its standard error.
    model.positive_mean_ = means[0].copy()
    model.subclass_means_ = means[1:].astype(dtype)


def _of_type(components: Array, dtype: DTypeLike) -> Floats:
    """Convert the axes to the floating-point type of the rows, which must hold their entries."""
    with np.errstate(over="ignore"):
        found: Floats = components.astype(dtype)
    if not np.isfinite(found).all():
        raise ScaleError(
            f"the axes have entries of up to {np.abs(components).max():.3g}, which overflow "
            f"{np.dtype(dtype)}, because X varies so little; divide X by its scale first, or give "
            "float64 rows"
        )
    return found


def fit_rows(model: Verifier, factorise: Factorise, data: TrainingRows) -> None:
    """Fit a linear model to rows with known groups, and store the fitted attributes.

    `factorise` factorises rows with weights. Rows of weight zero are ignored.
    """
    kept: Kept = slice(None)
    used = data
    if data.weights is not None and not data.weights.all():
        kept = np.flatnonzero(data.weights)
        used = data.take(kept)
    found = None
    if used.hidden is None:
        fitted, groups = learn_rows(model, factorise, used), used.groups
    else:
        with _checked(model, used):
            regroup, trust = _regrouping(model, used), _trusting(model, used)
            found = fit_hidden(model, lambda w: factorise(used.X, w), used, regroup, trust)
        fitted, groups = found.fitted, found.groups
    keep_linear(model, fitted, data.X.dtype)
    keep_training(model, fitted, groups, kept, data.X, data.values)
    keep_shares(model, found, kept, len(data.groups))
    check_copies(model, used)


def _trusting(model: Verifier, data: TrainingRows) -> Callable[[Leave], Fitted]:
    """Return a function that fits a linear model which takes all labels as correct."""
    plain, rows = trusting(model, data)
    factorise = pcsda_factory(plain, data.seed, together=True)
    return lambda leave: learn(plain, factorise, rows, rows.X, leave)


def learn_rows(model: Verifier, factorise: Factorise, data: TrainingRows) -> Fitted:
    """Check rows with positive weight and fit a model to them, without changing the estimator."""
    with _checked(model, data):
        return learn(model, factorise, data, data.X if data.wide is None else data.wide)


def learn(
    model: Verifier,
    factorise: Factorise,
    data: TrainingRows,
    matrix: Any,
    leave: Leave | None = None,
) -> Fitted:
    """Fit a model to `matrix`, which holds rows or their kernel matrix.

    All labels are taken as correct. A kernel matrix is overwritten. By default, the rows to
    `leave` out are drawn by the settings of the model.
    """
    rule = rule_of(model)
    if leave is None:
        leave = leave_sample(model, data)
    factor = factorise(matrix, data.weights)
    held_out = held_out_scores(model, factorise, data, factor)
    return fit(factor, data.groups, rule, axes_of(model), held_out, leave)


@contextmanager
def _checked(model: Verifier, data: TrainingRows) -> Iterator[None]:
    """Check rows before a fit, and let a light fit use one BLAS thread.

    If the fit fails because X has NaN or infinity, raise the error that says so.
    """
    X, groups = data.X, data.groups
    if count_distinct(X, 2) < 2:
        raise no_spread()
    check_rank(model, min(most_axes(model, groups), X.shape[1]))
    say(model, f"learning from {len(groups)} rows in {groups.max() + 1} groups")
    light = one_thread(is_light(*X.shape))
    with narrow_fit(X.shape[1]), light, naming_the_offset(X):
        try:
            yield
        except OverflowingSquares:
            # If the cause is NaN or infinity, scikit-learn's message says so.
            assert_all_finite(X, estimator_name=type(model).__name__, input_name="X")
            raise


def _regrouping(model: Verifier, data: TrainingRows) -> Callable[[Mask], Ints]:
    """Return a function that forms a linear model's subclasses without the likely positives."""

    def join(others: Ints, found: Ints) -> Ints:
        seen = np.flatnonzero(found > 0)
        known = Grouping.of(found[seen] - 1, some(data.weights, seen))
        return nearest(data.X[others], known.means(data.X[seen]))

    return regrouping(model, data, lambda held, kept: divide(held, data.take(kept))[0], join)


def held_out_scores(
    model: Verifier, factorise: Factorise, data: TrainingRows, whole: Factor | None = None
) -> HeldOut:
    """Return a function that scores rows in folds, for models that leave no rows out.

    `whole` is the factorisation of all rows, from which some solvers derive that of each fold.
    """

    def learn(train: Ints, labels: Ints) -> Callable[[Ints], Array]:
        plain = replace(rule_of(model), calibrate=False)
        shared = whole.part(train) if isinstance(whole, KernelCSDAFactor) else None
        if shared is None:
            factor = factorise(data.matrix(train), some(data.weights, train))
            shared = factor, lambda test: data.values(test, train)
        factor, values = shared
        part = fit(factor, labels, plain, axes_of(model))
        return lambda test: part.score(values(test))

    def held_out() -> Scored:
        if count_folds(data.positive, data.together):
            say(model, "calibrating on folds")
        scores = fold_scores(learn, data.groups, data.seed, data.together, ENOUGH)
        rows = np.arange(len(scores))
        return Scored(scores, data.positive, data.weights, data.together, rows)

    return held_out


def criterion_of(model: Verifier, seed: int = 0) -> Criterion:
    """Return the criterion for CSDA or KernelCSDA; `seed` is used to draw regression targets."""
    learn = getattr(model, "reference", "mean") == "optimal"
    return Criterion(model.solver, model.regularization_, seed, learn)


def with_products(model: PCSDA, data: TrainingRows) -> TrainingRows:
    """Add the inner products of wide rows, which k-means and the factorisation then share."""
    X, every = data.X, data.weights is None or bool(data.weights.all())
    dense_and_wide = not sparse.issparse(X) and X.shape[1] > X.shape[0]
    if not (dense_and_wide and by_cholesky(model) and every and model.regularization_ > 0):
        return data
    wide = WideRows.of(X, data.weights)
    return replace(data, wide=wide) if np.isfinite(wide.variance) else data


def pcsda_factory(model: PCSDA, seed: int, *, together: bool = False) -> Factorise:
    """Return a function that factorises rows for PCSDA.

    Set `together` if the rows of a group are to be left out together.
    """

    def factorise(rows: MatrixLike, weights: Array | None) -> Factor:
        solver = model.solver
        if solver == "auto":
            solver = "lsqr" if sparse.issparse(rows) else "cholesky"
        resample = np.random.default_rng(seed) if model.balance == "resampled" else None
        return factor_once(
            rows, model.regularization_, weights, solver, resample, together=together
        )

    return factorise


def divide(
    model: PCSDA, data: TrainingRows, subclass_labels: ArrayLike | None = None
) -> tuple[Ints, NDArray[Any]]:
    """Divide the rows into groups for a linear estimator; return the groups and subclass names."""
    positive, weights = data.positive, data.weights
    say(model, f"dividing {np.sum(~positive)} negatives into subclasses")
    counted: Kept = slice(None)
    if subclass_labels is None and weights is not None and not weights.all():
        counted = np.flatnonzero(weights)  # rows of weight zero do not shape subclasses
    groups = np.zeros(len(positive), dtype=np.intp)
    groups[counted], names = make_groups(
        data.X[counted],
        positive[counted],
        n_subclasses=model.n_subclasses,
        subclasses=model.subclasses,
        subclass_labels=subclass_labels,
        weights=some(weights, counted),
        random_state=data.seed,
        products=data.wide.products if data.wide and isinstance(counted, slice) else None,
        least=least_subclasses(model),
    )
    return groups, names
