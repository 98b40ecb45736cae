"""How kernel estimators are fitted and project rows; banks use the same functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import validation
from ..core.factor import factor_once
from ..core.fit import Fitted, fit
from ..core.gram import of_kernel
from ..core.kernel_matrix import FeatureFactor, features_of
from ..core.kernel_once import KernelOnce
from ..core.kmeans import kernel_kmeans
from ..core.linalg import Array, Floats, Ints, Mask, is_light, one_thread
from ..core.loo import Leave
from ..core.spread import no_spread
from ..core.subspace import Factor
from ..kernels import (
    BLOCK_BYTES,
    Kernel,
    check_memory,
    check_square,
    naming_far_rows,
    settled_kernel,
    training_matrix,
)
from ..metrics import cllr
from ..partition import (
    KERNEL_RESTARTS,
    count_distinct,
    given_labels,
    kernel_start,
    make_groups,
    settle_count,
)
from ..progress import progress
from .hidden import fit_hidden, hidden_rows, keep_shares, regrouping, trusting
from .parameters import check_verifier, is_contaminated
from .rows import TrainingRows, rows_of, some
from .steps import (
    axes_of,
    by_cholesky,
    check_copies,
    check_rank,
    check_training,
    is_curved,
    is_precomputed,
    keep_decision,
    keep_training,
    least_subclasses,
    most_axes,
    rule_of,
    say,
)
from .training import Factorise, learn
from .verifier import FeatureMap

if TYPE_CHECKING:
    from .kernel import KernelCSDA, KernelPCSDA

# A function that divides rows into groups, given the rows and their kernel matrix.
Divide = Callable[[TrainingRows, Array], Ints]
# Kernels that decay to zero with distance, and the value below which they count as zero.
VANISHING = ("rbf", "laplacian", "chi2")
UNSEEN = 1e-6
# With at least this many positives, the rule's ridge is compared with a tenth and ten times its
# value on a sample. With fewer negatives, the sample would favour a larger ridge than all rows do.
ENOUGH_POSITIVES, SAMPLE_POSITIVES, SAMPLE_NEGATIVES = 20, 250, 750
# Another ridge must save this many bits of Cllr, summed over the positives of the sample.
LEAST_GAIN = 1.0


def check_kernel_rows(
    model: KernelPCSDA | KernelCSDA,
    X: Any,
    y: ArrayLike,
    sample_weight: ArrayLike | None,
    subclass_labels: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    unchecked: ArrayLike | None = None,
) -> tuple[TrainingRows, NDArray[Any] | None]:
    """Check the training data of a kernel estimator.

    Return the training rows. Also return the given subclass labels of the rows with positive
    weight, or None if no labels are given.
    """
    check_verifier(model)
    validation.refuse_dask(X, y)
    X, y = validation.validated(model, X, y, dtype=[np.float64, np.float32])
    if is_precomputed(model):
        check_square(X)
    positive, weights, together, seed = check_training(model, y, sample_weight, groups)
    hidden = hidden_rows(model, unchecked, positive, subclass_labels)
    kernel = Kernel(model.kernel)  # the bandwidth may depend on which rows have weight
    data = rows_of(X, positive, weights, seed, together=together, kernel=kernel, hidden=hidden)
    if subclass_labels is None:
        return data, None
    given_labels(subclass_labels, positive)  # rows of weight zero are checked too
    return data, np.asarray(subclass_labels)[counted(data)]


def counted(data: TrainingRows) -> Ints:
    """Return the indices of the rows with positive weight."""
    return np.arange(len(data.groups)) if data.weights is None else np.flatnonzero(data.weights)


def fit_kernel(
    model: KernelPCSDA | KernelCSDA,
    whole: TrainingRows,
    divide: Divide,
    factorise: Factorise,
    n_matrices: float,
) -> None:
    """Fit a kernel estimator and store its fitted attributes.

    `divide` forms the subclasses, and `factorise` factorises the kernel matrix. The fit holds
    `n_matrices` N x N matrices at once. Rows with zero weight are ignored.
    """
    kept = counted(whole)
    check_memory(len(kept), n_matrices)
    data = whole.take(kept)
    if count_distinct(data.X, 2) < 2:
        raise no_spread()
    with one_thread(is_light(len(kept), len(kept))):
        kernel = model.kernel_ = settled_kernel(model, data.X, data.positive, data.seed)
        say(model, f"kernel matrix of {len(kept)} rows")
        matrix = training_matrix(kernel, data.X, model.verbose)
        data = replace(data, kernel=kernel, groups=divide(data, matrix))
        check_rank(model, most_axes(model, data.groups))
        model.regularization_ = evident_ridge(model, data, matrix)
        say(model, "factorising")
        found, partition = None, data.groups
        with naming_far_rows(kernel, data.X):
            if data.hidden is None:
                fitted = learn(model, factorise, data, matrix)
                del matrix
            else:
                regroup, trust = _regrouping(model, data, matrix), _trusting(model, data, matrix)
                found = fit_hidden(
                    model, lambda w: factorise(matrix.copy(), w), data, regroup, trust
                )
                fitted, partition = found.fitted, found.groups
    used = np.flatnonzero(np.any(fitted.subspace.coefficients, axis=1))
    keep_kernel(model, fitted, None if is_precomputed(model) else data.X[used], used)
    model.support_ = kept[used]
    whole = replace(whole, kernel=kernel)
    keep_training(model, fitted, partition, kept, whole.X, lambda rest: whole.values(rest, kept))
    keep_shares(model, found, kept, len(whole.groups))
    check_copies(model, data)


def _trusting(
    model: KernelPCSDA | KernelCSDA, data: TrainingRows, matrix: Array
) -> Callable[[Leave], Fitted]:
    """Return a function that fits a kernel model which takes all labels as correct.

    `matrix` is the kernel matrix of all rows. All exact solvers give the same result, and "auto"
    needs the least memory.
    """
    plain, rows = trusting(model, data)
    plain.solver = "auto"
    plain.regularization_ = evident_ridge(plain, rows, matrix)
    factorise = kernel_factory(plain, data.seed)
    return lambda leave: learn(plain, factorise, rows, matrix.copy(), leave)


def _regrouping(
    model: KernelPCSDA | KernelCSDA, data: TrainingRows, matrix: Array
) -> Callable[[Mask], Ints]:
    """Return a function that forms a kernel model's subclasses without the likely positives.

    `matrix` is the kernel matrix of all rows.
    """

    def again(held: Any, kept: Ints) -> Ints:
        return divide_features(held, data.take(kept), matrix, places=kept)

    def join(others: Ints, found: Ints) -> Ints:
        seen = np.flatnonzero(found > 0)
        share = np.zeros((len(found), int(found.max())))
        share[seen, found[seen] - 1] = 1.0 if data.weights is None else data.weights[seen]
        share /= share.sum(axis=0)
        similar = matrix @ share
        lengths = np.einsum("ij,ij->j", share, similar)
        closest: Ints = np.argmin(lengths - 2 * similar[others], axis=1)
        return closest

    return regrouping(model, data, again, join)


def evident_ridge(model: KernelPCSDA | KernelCSDA, data: TrainingRows, matrix: Array) -> float:
    """Return the relative ridge for a fit: the usual value, or a better one found on a sample.

    With ``regularization="auto"`` and enough positives, a sample of the rows is fitted with the
    usual ridge, a tenth of it and ten times its value. The ridge changes if this clearly lowers the
    Cllr of the left-out scores.
    """
    settled = model.regularization_
    by_rule = isinstance(model.regularization, str) and is_curved(model)
    trusted = data.hidden is None and data.together is None and rule_of(model).leave_one_out
    if not (by_rule and trusted and np.sum(data.positive) >= ENOUGH_POSITIVES):
        return settled
    rows = _sample_for_evidence(data)
    # A subclass may have no row in the sample.
    groups = np.unique(data.groups[rows], return_inverse=True)[1]
    weights = some(data.weights, rows)
    ridges, losses = [settled, settled / 10, settled * 10], []
    try:
        for ridge in ridges:  # one at a time, as a factor overwrites its matrix
            factor = next(of_kernel(matrix[np.ix_(rows, rows)], [ridge], weights))
            scores = fit(factor, groups, rule_of(model), axes_of(model)).left_out
            if scores is None:
                return settled
            seen = np.isfinite(scores)
            losses.append(cllr(groups[seen] == 0, scores[seen], sample_weight=some(weights, seen)))
    except ValueError:  # not definite at some ridge; if this matters, the fit reports it
        return settled
    best = int(np.argmin(losses))
    gained = float(np.sum(groups == 0)) * (losses[0] - losses[best])
    return ridges[best] if gained >= LEAST_GAIN else settled


def _sample_for_evidence(data: TrainingRows) -> Ints:
    """Return the numbers of the rows on which ridges are compared.

    These are all rows of a class, or a random sample if the class is large.
    """
    rng = np.random.default_rng(data.seed)
    classes = (data.positive, SAMPLE_POSITIVES), (~data.positive, SAMPLE_NEGATIVES)
    drawn = [rng.permutation(np.flatnonzero(part))[:most] for part, most in classes]
    return np.sort(np.concatenate(drawn))


def kernel_factory(model: KernelPCSDA, seed: int) -> Factorise:
    """Return the function that factorises a kernel matrix in place for KernelPCSDA."""

    def factorise(matrix: Array, weights: Array | None) -> Factor:
        ridge = model.regularization_
        # A contaminated fit needs this factor. All exact solvers give the same result.
        if is_contaminated(model):
            return next(of_kernel(matrix, [ridge], weights))
        if by_cholesky(model):
            return KernelOnce(matrix, ridge, weights)
        features, pivots, triangle = features_of(matrix, weights, ridge)
        solver = "cholesky" if model.solver == "auto" else model.solver
        resample = np.random.default_rng(seed) if model.balance == "resampled" else None
        inner = factor_once(features, ridge, weights, solver, resample)
        return FeatureFactor(inner, pivots, triangle)

    return factorise


def keep_kernel(
    model: KernelPCSDA | KernelCSDA, fitted: Fitted, rows: Floats | None, used: Ints
) -> None:
    """Store the attributes of a fitted kernel model.

    `used` holds the numbers of the training rows that prediction needs. `rows` holds these rows; it
    is None for a precomputed kernel.
    """
    keep_decision(model, fitted)
    model.X_fit_ = rows
    model.dual_coef_ = fitted.subspace.coefficients[used]
    model.origin_ = fitted.subspace.origin


def kernel_coordinates(
    model: KernelPCSDA | KernelCSDA,
    X: Floats,
    coefficients: Array | None = None,
    origin: Array | None = None,
) -> Floats:
    """Return the coordinates of rows, computed in blocks to limit memory.

    By default, `coefficients` and `origin` are those of the model. They may also be those of
    several models that share the model's kernel and training rows.
    """
    if coefficients is None or origin is None:
        coefficients, origin = model.dual_coef_, model.origin_
    z = np.empty((len(X), len(origin)), dtype=X.dtype)
    step = max(64, BLOCK_BYTES // (8 * len(model.support_)))
    for start in progress(range(0, len(X), step), "kernel rows", enabled=model.verbose):
        rows = X[start : start + step]
        if is_precomputed(model):
            values: Array = rows[:, model.support_].astype(np.float64, copy=False)
        else:
            assert model.X_fit_ is not None
            values = model.kernel_(rows, model.X_fit_)
        z[start : start + step] = values @ coefficients - origin
    return z


def kernel_map(model: KernelPCSDA | KernelCSDA) -> FeatureMap:
    """Return a function from rows to kernel values.

    Also return the matrix and the origin that project the kernel values.
    """
    if is_precomputed(model):
        support = model.support_
        return lambda rows: rows[..., support], model.dual_coef_, model.origin_
    assert model.X_fit_ is not None
    return model.kernel_.against(model.X_fit_), model.dual_coef_, model.origin_


def like_nothing(model: KernelPCSDA | KernelCSDA, z: Array) -> Mask:
    """Return a mask of the rows that resemble no training row; `z` holds their coordinates.

    All kernel values of such a row are about zero, because distance-based kernels vanish far from
    the data. All rows that far away have the same coordinates, which may look ordinary.
    """
    if model.kernel_.metric not in VANISHING:
        return np.zeros(len(z), dtype=bool)
    most = UNSEEN * np.abs(model.dual_coef_).sum(axis=0)
    blank: Mask = np.all(np.abs(z + model.origin_) <= most, axis=1)
    return blank


def divide_inputs(
    model: KernelPCSDA,
    data: TrainingRows,
    labels: ArrayLike | None,
    products: Array | None = None,
) -> Ints:
    """Divide the rows into groups in input space, and return the group of each row.

    Subclass `labels` are used if they are given. The inner `products` of the rows, if given, save
    time.
    """
    known = labels is not None or in_features(model) or model.subclasses == "samples"
    if is_precomputed(model) and not known:
        raise ValueError(
            "a precomputed kernel has no input space to cluster in; use subclasses='kmeans', "
            "'samples' or give subclass_labels"
        )
    groups, _ = make_groups(
        data.X,
        data.positive,
        n_subclasses=1 if is_precomputed(model) and in_features(model) else model.n_subclasses,
        subclasses="kmeans" if model.subclasses == "input" else model.subclasses,
        subclass_labels=labels,
        weights=data.weights,
        random_state=data.seed,
        products=products,
        least=least_subclasses(model),
    )
    return groups


def in_features(model: KernelPCSDA) -> bool:
    """Return whether k-means in feature space finds the subclasses."""
    return bool(model.subclasses == "kmeans")


def divide_features(
    model: KernelPCSDA,
    data: TrainingRows,
    matrix: Array,
    labels: ArrayLike | None = None,
    inputs: Ints | None = None,
    places: Ints | None = None,
) -> Ints:
    """Divide the rows into groups, and return the group of each row.

    `inputs` are the groups found in input space; by default, they are computed here. K-means in
    feature space starts from them, except with a precomputed kernel. Subclass `labels` are used if
    they are given. `places` holds the numbers of the rows in the kernel `matrix`, if it has others
    too.
    """
    say(model, f"dividing {np.sum(~data.positive)} negatives into subclasses")
    groups = divide_inputs(model, data, labels) if inputs is None else inputs.copy()
    if labels is None and in_features(model):
        rows = np.flatnonzero(groups)
        starts, among = [groups[rows] - 1], rows if places is None else places[rows]
        if is_precomputed(model):
            count = settle_count(data.X[rows], model.n_subclasses, least=least_subclasses(model))
            rng = validation.random_source(data.seed)
            starts = [kernel_start(matrix, among, count, rng) for _ in range(KERNEL_RESTARTS)]
        weight = some(data.weights, rows)
        found = [kernel_kmeans(matrix, among, start, weight) for start in starts]
        best = min(found, key=lambda pair: pair[1])[0]
        groups[rows] = np.unique(best, return_inverse=True)[1] + 1
    return groups
