"""Steps of every fit: check input, settle the ridge, choose rows to leave out, store results."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from ..core.calibration import Scored
from ..core.copies import Fingerprints, warn_of_copies
from ..core.fit import Fitted, Rule
from ..core.linalg import Array, Ints, Mask, TooFewRowsError
from ..core.loo import Leave, sample_rows
from ..core.spread import auto_regularization
from ..core.subspace import Subspace
from ..core.warning import warn
from ..targets import (
    check_groups,
    check_labels,
    check_weights,
    positive_index,
    warn_of_class_weights,
    warn_of_light,
    warn_of_one_group,
)
from ..validation import Seed, random_source
from .parameters import check_priors, is_contaminated
from .rows import Kept, TrainingRows

if TYPE_CHECKING:
    from .verifier import Verifier


# The paper's rule, as parameters of PCSDA and KernelPCSDA.
PUBLISHED: dict[str, Any] = {
    "negatives": "marginal",
    "tails": "gaussian",
    "regularization": 0.01,
    "covariance": "resubstitution",
    "shrinkage": 0,
    "calibrate": False,
}
# The paper's rule for CSDA, in which the other settings are fixed.
PUBLISHED_CSDA: dict[str, Any] = {"shrinkage": 0, "calibrate": False}


# Attributes that only some fits set; each fit removes them first.
OF_ONE_FIT = (
    *("partition_", "loo_scores_", "loo_weights_", "loo_groups_", "held_out_", "fingerprints_"),
    *("threshold_", "against_strangers_", "subclass_names_", "subclass_examples_", "row_ids_"),
)
# Default number of axes for CSDA. There may be as many axes as negatives or columns, but samples
# determine a density along only a few dozen of them.
MOST_AXES = 25


def forget(model: BaseEstimator, *names: str) -> None:
    """Delete attributes that an earlier fit may have set."""
    for name in names:
        model.__dict__.pop(name, None)


def axes_of(model: BaseEstimator) -> int | None:
    """Return the number of axes that a model's `n_components` requests; None means all axes."""
    asked: Any = model.n_components
    return MOST_AXES if isinstance(asked, str) else asked


def draw_seed(random_state: Seed) -> int:
    """Draw the seed for all random choices in a fit."""
    if isinstance(random_state, Integral):
        return _seed_of(int(random_state))
    return int(random_source(random_state).randint(2**31 - 1))


@lru_cache
def _seed_of(number: int) -> int:
    """Return the seed for a whole number as `random_state`.

    Results are cached, because making a generator takes time.
    """
    return int(random_source(number).randint(2**31 - 1))


def by_cholesky(model: BaseEstimator) -> bool:
    """Return whether a model uses the default solver.

    A factorisation for this solver can be used with any division of the rows into groups.
    """
    pooled = getattr(model, "balance", None) == "pooled"
    return pooled and model.solver in ("auto", "cholesky")


def is_precomputed(model: BaseEstimator) -> bool:
    """Return whether the estimator takes a kernel matrix as X."""
    kernel = getattr(model, "kernel", None)
    return isinstance(kernel, str) and kernel == "precomputed"


def is_curved(model: BaseEstimator) -> bool:
    """Return whether an estimator works in the feature space of a nonlinear kernel."""
    kernel = getattr(model, "kernel", "linear")
    return not (isinstance(kernel, str) and kernel == "linear")


def rule_of(model: Verifier) -> Rule:
    """Return the rule that determines an estimator's densities and calibration."""
    return Rule(
        getattr(model, "negatives", "marginal"),
        None if model.shrinkage == "auto" else float(model.shrinkage),
        getattr(model, "tails", "gaussian"),
        getattr(model, "covariance", "resubstitution") == "leave-one-out",
        bool(model.calibrate),
        bool(model.calibrate),
        # A feature space has no fixed number of columns.
        np.inf if is_curved(model) else float(getattr(model, "n_features_in_", np.inf)),
    )


def check_training(
    model: Verifier, y: ArrayLike, sample_weight: ArrayLike | None, groups: ArrayLike | None
) -> tuple[Mask, Array | None, Ints | None, int]:
    """Check labels, weights and groups for a fit, and store the classes and the ridge.

    Returns
    -------
    positive : boolean array of shape (n,)
    weights : array of shape (n,) or None
    together : array of shape (n,) or None
        A number for each row; rows with the same number are left out together.
    seed : int
    """
    model.classes_, _, positive = check_labels(y, model.pos_label)
    weights = check_weights(sample_weight, positive)
    together = check_groups(groups, len(positive))
    if weights is not None:
        for which, rows in (("positives", positive), ("negatives", ~positive)):
            warn_of_light(float(weights[rows].sum()), which, int(rows.sum()))
        warn_of_class_weights(weights, positive)
    if together is not None:
        warn_of_one_group(together, positive)
    settle_ridge(model, positive.sum() if weights is None else weights[positive].sum())
    if np.sum(positive) == 1 and model.calibrate:
        warn(
            "a single positive shows no spread of the class, so the log-likelihood ratio is based "
            "on the spread of the negatives; give more positives as soon as you have them",
        )
    return positive, weights, together, draw_seed(model.random_state)


def refuse_unchecked(model: BaseEstimator, unchecked: ArrayLike | None) -> None:
    """Reject unchecked negatives for a model that cannot look for positives among them."""
    if unchecked is not None:
        name = type(model).__name__
        instead = "KernelPCSDA" if name == "KernelCSDA" else "PCSDA"
        raise ValueError(
            f"unchecked is given, but {name} trusts its negatives; leave it out, or use "
            f"{instead}(contamination='auto'), which looks for positives among them"
        )


def auto_ridge(model: BaseEstimator, n_positive: float) -> float:
    """Return a model's relative ridge: the given number, or the value of "auto"."""
    if not isinstance(model.regularization, str):
        return float(model.regularization)
    contaminated = is_contaminated(model)
    return auto_regularization(n_positive, kernel=is_curved(model), contaminated=contaminated)


def settle_ridge(model: Verifier, n_positive: float) -> None:
    """Store the relative ridge of a fit: the given number, or the value of "auto"."""
    model.regularization_ = auto_ridge(model, n_positive)


def leave_sample(model: Verifier, data: TrainingRows) -> Leave:
    """Return the rows that an estimator leaves out: all, or a sample of `calibration_rows`."""
    most = getattr(model, "calibration_rows", None) or len(data.groups)
    rng = np.random.default_rng(data.seed)
    return sample_rows(data.groups, most, rng, data.weights, data.together)


def say(model: Verifier, text: str) -> None:
    """Print the stage of a fit if the estimator is verbose."""
    if model.verbose:
        print(f"[{type(model).__name__}] {text}")


def most_axes(model: Verifier, groups: Ints) -> int:
    """Return the largest possible number of axes: the number of subclasses, or of negatives."""
    return int(groups.max() if hasattr(model, "n_subclasses") else np.sum(groups > 0))


def least_subclasses(model: BaseEstimator) -> int:
    """Return the smallest number of subclasses that allows `n_components` axes."""
    wanted = getattr(model, "n_components", None)
    return int(wanted) if isinstance(wanted, Integral) else 1


def check_rank(model: Verifier, most: int) -> None:
    """Reject `n_components` if it exceeds the largest possible number of axes."""
    if isinstance(model.n_components, Integral) and model.n_components > most:
        bound = "min(n_negatives, n_features, rank)); lower it"
        if hasattr(model, "n_subclasses"):
            bound = "min(n_subclasses, n_features, rank)); lower it"
            if most < rule_of(model).columns:
                bound += " or raise n_subclasses"
        raise TooFewRowsError(
            f"n_components={model.n_components} must be at most {most} (= {bound}"
        )


def sign_of(model: Verifier) -> int:
    """Return 1 if a model's class of interest is ``classes_[1]``, otherwise -1."""
    return 2 * positive_index(model.classes_, model.pos_label) - 1


def needs_rows(model: Verifier) -> bool:
    """Return whether a fit leaves rows out, in closed form or in folds."""
    rule = rule_of(model)
    return rule.leave_one_out or rule.calibrate


def check_copies(model: Verifier, data: TrainingRows) -> None:
    """Warn of equal rows if rows are left out one by one, because copies stay in the model."""
    if data.together is None and needs_rows(model):
        warn_of_copies(data.X, data.positive)


def keep_decision(model: Verifier, fitted: Fitted) -> None:
    """Store the fitted attributes that decisions need, and delete those of an earlier fit."""
    subspace = fitted.subspace
    check_rank(model, subspace.rank)
    forget(model, *OF_ONE_FIT)
    left, scores = subspace.left, fitted.left_out
    if fitted.held_out is not None:
        keep_held_out(model, fitted.held_out)
    if left is not None and scores is not None:
        if left.unequal_mass is not None:
            model.loo_weights_ = left.unequal_mass[~np.isnan(scores)]
        if left.together is not None:
            model.loo_groups_ = left.together[~np.isnan(scores)]
    counts = subspace.projected.counts
    shares = np.array([counts[1:].sum(), counts[0]]) / counts.sum()
    model.class_prior_ = check_priors(model.priors, shares[:: sign_of(model)])
    model.eigenvalues_ = subspace.eigenvalues
    model.n_components_ = len(subspace.eigenvalues)
    model.positive_count_ = float(counts[0])
    model.subclass_counts_ = counts[1:]
    model.density_ = fitted.density
    model.calibration_ = fitted.calibration
    if subspace.single_negatives:
        _keep_reference(model, subspace)


def keep_held_out(model: Verifier, known: Scored) -> None:
    """Store scores of held-out rows, and their groups if there are any."""
    model.held_out_ = known.scores, known.positive, known.weights
    if known.together is not None:
        model.loo_groups_ = known.together


def _keep_reference(model: Verifier, subspace: Subspace) -> None:
    """Store the reference vector of CSDA and its step from the positive mean."""
    model.reference_, model.reference_step_ = np.zeros(model.n_components_), 0.0
    if subspace.reference is not None:
        delta = subspace.projected.delta[0]
        model.reference_ = subspace.reference
        model.reference_step_ = float(-(subspace.reference @ delta) / (delta @ delta))


def keep_training(
    model: Verifier,
    fitted: Fitted,
    groups: Ints,
    kept: Kept,
    X: Any,
    rows_of: Callable[[Ints], Any],
    seen: Fingerprints | None = None,
) -> None:
    """Store the groups and left-out scores of the training rows X, and how to recognise them.

    `groups` covers only the `kept` rows. All other rows have weight zero. They belong to no group,
    and the model scores them like new rows. `rows_of` takes the numbers of these rows and returns
    the rows, or their kernel values for a kernel model. `seen` holds the fingerprints of all rows,
    if they were taken already.
    """
    n_rows = X.shape[0]
    model.partition_ = np.full(n_rows, -1, dtype=np.intp)
    model.partition_[kept] = groups
    scored = fitted.without_numbers().held_out
    if scored is not None and scored.rows is not None:
        keep_fingerprints(model, X, np.arange(n_rows)[kept][scored.rows], seen)
    left_out = fitted.left_out_of(len(groups))
    if left_out is None:
        return
    model.loo_scores_ = np.empty(n_rows)
    model.loo_scores_[kept] = left_out
    if len(groups) < n_rows:
        rest = np.flatnonzero(model.partition_ < 0)
        model.loo_scores_[rest] = fitted.score(rows_of(rest))


def keep_fingerprints(
    model: BaseEstimator, X: Any, rows: Ints, seen: Fingerprints | None = None
) -> None:
    """Store fingerprints of the left-out rows of X, whose numbers are in the order of their scores.

    By these, `count` recognises copies of training rows. `seen` holds those of all rows of X, if
    they were taken already.
    """
    if len(rows):
        if seen is None and 2 * len(rows) > X.shape[0]:
            seen = Fingerprints.of(X)  # copying most of the rows would take longer
        model.fingerprints_ = Fingerprints.of(X[rows]) if seen is None else seen.take(rows)
