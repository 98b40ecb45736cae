"""Input that cannot be used is refused with the value, the bound and the remedy."""

import re
import warnings
from functools import partial

import numpy as np
import pandas as pd
import pytest
from factories import labelled
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import DataConversionWarning, NotFittedError

from pcsda import (
    CSDA,
    PCSDA,
    PCSDACV,
    KernelCSDA,
    KernelPCSDA,
    MixtureVerifier,
    VerifierBank,
    fit_blocks,
)

ESTIMATORS = [PCSDA(random_state=0), CSDA(random_state=0)]
BOTH = pytest.mark.parametrize("estimator", ESTIMATORS, ids=["PCSDA", "CSDA"])
WAYS_IN = pytest.mark.parametrize("way", ["fit", "partial_fit"])
WAYS_OUT = pytest.mark.parametrize(
    "way",
    [
        "transform",
        "log_likelihood_ratio",
        "decision_function",
        "predict",
        "predict_proba",
        "predict_log_proba",
        "score_samples",
        "rank",
    ],
)


def refused(message, error=ValueError, *, begins=False):
    """Expect exactly this message, or one that starts with it."""
    end = "" if begins else "$"
    return pytest.raises(error, match=f"^{re.escape(message)}{end}")


def problem(width=4, sizes=(20, 15, 25), seed=0):
    return labelled(width, sizes, seed=seed)


def enter(estimator, way, X, y, **params):
    return getattr(clone(estimator), way)(X, y, **params)


# --- rows ----------------------------------------------------------------------------------------


@BOTH
@WAYS_IN
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_missing_values_are_refused(estimator, way, dtype):
    X, y, _ = problem()
    X[3, 1] = np.nan
    with refused("Input X contains NaN.\n", begins=True):
        enter(estimator, way, X.astype(dtype), y)


@BOTH
@WAYS_IN
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("value", [np.inf, -np.inf])
def test_infinite_values_are_refused(estimator, way, dtype, value):
    X, y, _ = problem()
    X[3, 1] = value
    name = np.dtype(dtype)
    with refused(f"Input X contains infinity or a value too large for {name!r}."):
        enter(estimator, way, X.astype(dtype), y)


@pytest.mark.parametrize("shape", ["tall", "wide"])
@pytest.mark.parametrize("balance", ["pooled", "resampled"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("row", ["a positive", "a negative", "alone in its subclass"])
def test_non_finite_values_are_refused_with_given_subclasses(shape, balance, dtype, row):
    X, y, groups = problem()
    groups = groups.copy()
    alone = np.flatnonzero(groups)[-1]
    groups[alone] = 99
    at = {"a positive": np.flatnonzero(y)[0], "a negative": np.flatnonzero(groups)[0]}.get(
        row, alone
    )
    if shape == "wide":
        X = np.hstack([X] * 40)
    for value, message in ((np.nan, "NaN."), (np.inf, "infinity"), (-np.inf, "infinity")):
        X[at, 1] = value
        with refused(f"Input X contains {message}", begins=True):
            PCSDA(balance=balance).fit(X.astype(dtype), y, subclass_labels=groups)


@pytest.mark.each_value
@BOTH
@WAYS_OUT
def test_non_finite_values_are_refused_at_prediction(estimator, way):
    X, y, _ = problem()
    model = clone(estimator).fit(X, y)
    missing, infinite = X.copy(), X.copy()
    missing[5, 0], infinite[5, 0] = np.nan, -np.inf
    with refused("Input X contains NaN.\n", begins=True):
        getattr(model, way)(missing)
    with refused("Input X contains infinity or a value too large for dtype('float64')."):
        getattr(model, way)(infinite)


def test_non_finite_values_are_refused_in_sparse_rows():
    X, y, groups = problem()
    model = PCSDA().fit(sparse.csr_array(X), y, subclass_labels=groups)
    X[5, 0] = np.nan
    with refused("Input X contains NaN.", begins=True):
        PCSDA().fit(sparse.csr_array(X), y)
    with refused("Input X contains NaN.", begins=True):
        model.predict(sparse.csr_array(X))


@BOTH
@WAYS_IN
def test_arrays_without_rows_or_columns_are_refused(estimator, way):
    name = type(estimator).__name__
    with refused(
        f"Found array with 0 sample(s) (shape=(0, 3)) while a minimum of 1 is required by {name}."
    ):
        enter(estimator, way, np.empty((0, 3)), np.empty(0))
    with refused(
        f"Found array with 0 feature(s) (shape=(3, 0)) while a minimum of 1 is required by {name}."
    ):
        enter(estimator, way, np.empty((3, 0)), [0, 1, 0])


@BOTH
def test_no_rows_are_refused_at_prediction(estimator):
    X, y, _ = problem()
    name = type(estimator).__name__
    with refused(
        f"Found array with 0 sample(s) (shape=(0, 4)) while a minimum of 1 is required by {name}."
    ):
        clone(estimator).fit(X, y).predict(X[:0])


@BOTH
@WAYS_IN
def test_arrays_that_are_not_two_dimensional_are_refused(estimator, way):
    X, y, _ = problem()
    with refused("Expected 2D array, got 1D array instead", begins=True):
        enter(estimator, way, X[:, 0], y)
    name = type(estimator).__name__
    words = f", while dim <= 2 is required by {name}", f". {name} expected <= 2"  # newer and older
    either = "|".join(re.escape(word) for word in words)
    with pytest.raises(ValueError, match=f"^Found array with dim 3({either})\\.$"):
        enter(estimator, way, X[:, :, None], y)


@BOTH
@WAYS_IN
def test_one_row_is_refused_as_a_single_class(estimator, way):
    X, _, _ = problem()
    with refused(
        "y has one class only, [1]; samples of the class of interest and of the rest are both "
        "needed"
    ):
        enter(estimator, way, X[:1], [1])


@BOTH
@WAYS_IN
def test_one_column_works(estimator, way):
    X, y, _ = problem()
    X[y == 1] += 4
    model = enter(estimator, way, X[:, :1], y)
    assert model.n_components_ == 1
    assert model.score(X[:, :1], y) > 0.85


@BOTH
@WAYS_IN
@pytest.mark.parametrize("value", ["text", "nan-like"])
def test_text_in_the_rows_is_refused(estimator, way, value):
    X, y, _ = problem()
    X = X.astype(object)
    X[0, 0] = value
    with refused(f"could not convert string to float: '{value}'"):
        enter(estimator, way, X, y)


@BOTH
@WAYS_IN
def test_non_numeric_objects_are_refused(estimator, way):
    X, y, _ = problem()
    X = X.astype(object)
    X[0, 0] = None
    with refused("Input X contains NaN.\n", begins=True):
        enter(estimator, way, X, y)
    X[0, 0] = {}
    with pytest.raises(TypeError, match=r"float\(\) argument must be a string or a real number"):
        enter(estimator, way, X, y)


def frame_of(X, way="pandas"):
    names = list("abcdefgh"[: X.shape[1]])
    if way == "pandas":
        return pd.DataFrame(X, columns=names)
    if way == "nullable":
        return pd.DataFrame(X, columns=names).convert_dtypes()
    if way == "arrow":
        return pytest.importorskip("pyarrow").table(dict(zip(names, X.T, strict=True)))
    return pytest.importorskip("polars").DataFrame(X, schema=names, nan_to_null=True)


@pytest.mark.parametrize("estimator", [PCSDA(), KernelPCSDA(), VerifierBank()])
@pytest.mark.parametrize("way", ["pandas", "nullable", "arrow", "polars"])
def test_columns_with_missing_values_are_named(estimator, way):
    X, y, _ = problem()
    model = clone(estimator).fit(frame_of(X), y)
    X[2, 0], X[4:7, 3] = np.nan, np.nan
    words = (
        "Input X contains NaN in 2 columns: 'a' (1 row), 'd' (3 rows); leave those rows out, or "
        "fill them in, for instance with sklearn.impute.SimpleImputer"
    )
    for method in (model.predict, partial(clone(estimator).fit, y=y)):
        with refused(words):
            method(frame_of(X, way))


@pytest.mark.parametrize("estimator", [PCSDA(), KernelPCSDA(), VerifierBank()])
def test_columns_that_are_not_numeric_are_named(estimator):
    X, y, _ = problem()
    frame = frame_of(X).assign(
        kind=pd.Categorical(["x", "y"] * (len(X) // 2)), note=[None] * len(X)
    )
    words = (
        "X has a column that is not numeric: 'kind' (such as 'x'); leave it out, or encode it as "
        "numbers, for instance with sklearn.preprocessing.OneHotEncoder"
    )
    with refused(words):
        clone(estimator).fit(frame, y)
    mixed = frame_of(X).assign(kind=["1.5", 2, None, "x", "y"] + [0] * (len(X) - 5))
    with refused(words):
        clone(estimator).fit(mixed, y)
    many = frame_of(X).assign(**{f"c{i}": "text" for i in range(7)}, day=pd.Timestamp("2020-02-03"))
    with refused("X has columns that are not numeric: 'c0' (such as 'text'), 'c1'", begins=True):
        clone(estimator).fit(many, y)
    with pytest.raises(ValueError, match=r"'c4' \(such as 'text'\) and 3 more; leave them out"):
        clone(estimator).fit(many, y)
    vectors = pd.Series([np.ones(2)] * len(X))
    for odd in (
        vectors,
        pd.Series([1j] * len(X)),
        pd.Series([pd.NaT] * len(X)),
        pd.Series([{}] * len(X)),
    ):
        with pytest.raises(ValueError, match=r"^X has a column that is not numeric: 'odd'"):
            clone(estimator).fit(frame_of(X).assign(odd=odd), y)
    stack = (
        "leave it out, or pass the lists of a column as a matrix, np.stack(np.asarray(X['odd']))"
    )
    for lists in (vectors, [[1, 2]] * len(X)):
        embedded = frame_of(X).assign(odd=lists)
        assert np.stack(np.asarray(embedded["odd"])).shape == (len(X), 2)
        with refuses(stack):
            clone(estimator).fit(embedded, y)
    with pytest.raises(ValueError, match=r"unseen at fit time:\n- kind"):
        clone(estimator).fit(frame_of(X), y).predict(frame)


def test_messages_write_labels_of_numpy_as_plain_numbers():
    """Labels of an array appeared as np.int64(9)."""
    X, y, _ = problem()
    bank = VerifierBank(PCSDA(random_state=0)).fit(X, np.arange(len(X)) % 3)
    for action in (bank.remove, lambda label: bank.verify(X, label)):
        with refused("label 9 is not in the bank; enroll", begins=True):
            action(np.int64(9))
    with refused("unknown=2 is a label of the bank", begins=True):
        bank.identify(X, threshold=0, unknown=np.int64(2))
    with refused("pos_label=9 is not a label of y", begins=True):
        PCSDA(pos_label=np.int64(9)).fit(X, y)


@pytest.mark.parametrize("estimator", [PCSDA(), KernelPCSDA(), VerifierBank()])
def test_a_single_column_of_embeddings_is_refused_with_the_remedy(estimator):
    """The error was "setting an array element with a sequence"."""
    X, y, _ = problem()
    whole, remedy = clone(estimator).fit(X, y), "one column with a list in each entry; pass a mat"
    for column in (pd.Series(list(X)), pd.Series(X.tolist()), pd.Series(list(X)).to_numpy()):
        with refuses(remedy):
            clone(estimator).fit(column, y)
        with refuses(remedy):
            whole.predict(column)
        clone(estimator).fit(np.stack(column), y)
    for other in ([X[0], X[1, :2]] * (len(X) // 2), [X[0], None] * (len(X) // 2)):
        with pytest.raises(ValueError, match="setting an array element with a sequence"):
            clone(estimator).fit(pd.Series(other), y)


@BOTH
@WAYS_IN
def test_complex_rows_are_refused(estimator, way):
    X, y, _ = problem()
    with refused("Complex data not supported\n", begins=True):
        enter(estimator, way, X + 1j, y)


@BOTH
@pytest.mark.parametrize("value", [0.0, 0.1, -3e7])
def test_equal_rows_are_refused(estimator, value):
    with refused(
        "all rows of X are equal (total variance 0); at least two different rows are needed"
    ):
        clone(estimator).fit(np.full((12, 3), value), np.arange(12) % 2)


@BOTH
def test_any_number_of_equal_rows_is_refused(estimator):
    # The mean of so many has an error that looks like spread.
    with refused(
        "all rows of X are equal (total variance 0); at least two different rows are needed"
    ):
        clone(estimator).fit(np.full((200_000, 3), 0.1), np.arange(200_000) % 2)


@BOTH
@WAYS_IN
@pytest.mark.parametrize("width", [4, 90], ids=["tall", "wide"])
@pytest.mark.parametrize("scale", [1e160, 1e200, 1e300])
def test_rows_whose_squares_overflow_are_refused(estimator, way, width, scale):
    X, y, _ = problem(width)
    with refused(
        "the squares of X overflow because its spread is above 1e150; divide X by its scale first"
    ):
        enter(estimator, way, X * scale, y)


def test_rows_whose_squares_overflow_are_refused_before_and_after_clustering():
    X, y, groups = problem()
    message = (
        "the squares of X overflow because its spread is above 1e150; divide X by its scale first"
    )
    for model in (PCSDA(3), PCSDA(3, solver="lsqr"), PCSDA(3, balance="resampled")):
        with refused(message):
            model.fit(X * 1e200, y)
    with refused(message):
        PCSDA().fit(sparse.csr_array(X * 1e200), y, subclass_labels=groups)


@BOTH
@pytest.mark.parametrize("width", [4, 90], ids=["tall", "wide"])
def test_rows_whose_squares_vanish_are_refused(estimator, width):
    X, y, _ = problem(width)
    X *= 1e-155 / np.sqrt(np.mean(np.sum((X - X.mean(axis=0)) ** 2, axis=1)))
    with refused(
        "the squares of X underflow: its spread is 1e-155 but must be at least 1e-140; divide X by "
        "its scale first"
    ):
        clone(estimator).fit(X, y)


@pytest.mark.each_value
@BOTH
@WAYS_OUT
@pytest.mark.parametrize("value", [1e20, 1e160, 1e300, -1e308])
def test_huge_rows_have_finite_scores_of_the_right_sign(estimator, way, value):
    X, y, _ = problem()
    model = clone(estimator).fit(X, y)
    far = np.vstack([np.full(4, value), X[:2]])
    found = getattr(model, way)(far)
    if way == "rank":
        assert found[-1] == 0
    elif way == "predict":
        assert found[0] == 0
    else:
        assert np.isfinite(found).all()
    if way in ("log_likelihood_ratio", "decision_function", "score_samples"):
        # So far out a bent ratio falls logarithmically, but is still below any other.
        bent = model.calibration_.is_bent and way != "score_samples"
        assert found[0] < (getattr(model, way)(X).min() - 50 if bent else -1e10)
        assert_array_equal(found[1:], getattr(model, way)(X[:2]))


@pytest.mark.parametrize("contamination", [0.0, 0.1])
def test_a_row_far_from_all_others_is_no_strong_evidence_for_a_wider_class(contamination):
    """Its ratio grew with the square of the distance, to 490,000; n negatives show odds of 2n."""
    rng = np.random.default_rng(0)
    positive = np.arange(40) < 20
    X = np.where(positive[:, None], 3.0, 1.0) * rng.standard_normal((40, 4))
    model = PCSDA(contamination=contamination, random_state=0).fit(X, positive)
    far = np.outer([100.0, 1000.0], X[0] / np.linalg.norm(X[0]))
    near, farther = model.log_likelihood_ratio(far)
    assert np.log(2 * 20) < near < farther < 20


@pytest.mark.each_value
@BOTH
@WAYS_OUT
def test_huge_rows_have_finite_scores_in_single_precision(estimator, way):
    X, y, _ = problem()
    X = X.astype(np.float32)
    model = clone(estimator).fit(X, y)
    found = getattr(model, way)(np.vstack([np.full(4, 3e38, dtype=np.float32), X[:2]]))
    assert np.isfinite(found).all()
    if way == "log_likelihood_ratio":
        if model.calibration_.is_bent:
            assert found[0] < model.log_likelihood_ratio(X).min() - 50
        else:
            assert found[0] == np.finfo(np.float32).min


@pytest.mark.each_value
@BOTH
@WAYS_OUT
def test_rows_too_large_to_project_are_named(estimator, way):
    X, y, _ = problem()
    model = clone(estimator).fit(X * 1e-30, y)
    far = np.vstack([X[:2] * 1e-30, np.full(4, 1e300)])
    with refused("row 2 of X is too large to project; bring X to the fitted scale"):
        getattr(model, way)(far)


@pytest.mark.each_value
@BOTH
@WAYS_OUT
@pytest.mark.parametrize("width", [3, 8])
def test_a_different_number_of_columns_is_refused_at_prediction(estimator, way, width):
    X, y, _ = problem()
    model = clone(estimator).fit(X, y)
    name = type(estimator).__name__
    with refused(f"X has {width} features, but {name} is expecting 4 features as input."):
        getattr(model, way)(np.ones((2, width)))


@BOTH
def test_a_different_number_of_columns_is_refused_in_a_later_batch(estimator):
    X, y, _ = problem()
    model = clone(estimator).partial_fit(X, y)
    name = type(estimator).__name__
    with refused(f"X has 3 features, but {name} is expecting 4 features as input."):
        model.partial_fit(X[:, :3], y)


@BOTH
@WAYS_OUT
def test_an_unfitted_estimator_says_so(estimator, way):
    name = type(estimator).__name__
    with refused(
        f"This {name} instance is not fitted yet. Call 'fit' with appropriate arguments before "
        "using this estimator.",
        NotFittedError,
    ):
        getattr(clone(estimator), way)(np.ones((2, 4)))


# --- labels --------------------------------------------------------------------------------------


@BOTH
@WAYS_IN
@pytest.mark.parametrize("label", [0, "a", True, 2.0])
def test_a_single_class_is_refused(estimator, way, label):
    X, _, _ = problem()
    with refused(
        f"y has one class only, [{label!r}]; samples of the class of interest and of the rest are "
        "both needed"
    ):
        enter(estimator, way, X, np.full(len(X), label))


@BOTH
@WAYS_IN
@pytest.mark.parametrize(
    ("pos_label", "labels"), [(7, [0, 1]), ("c", ["a", "b"]), ("1", [0, 1]), ([1], [0, 1])]
)
def test_an_unknown_class_of_interest_is_refused(estimator, way, pos_label, labels):
    X, y, _ = problem()
    with refused(
        f"pos_label={pos_label!r} is not a label of y, which has {labels!r}; name one of those"
    ):
        enter(clone(estimator).set_params(pos_label=pos_label), way, X, np.array(labels)[y])


def test_several_classes_of_interest_are_refused():
    X, y, _ = problem()
    with refused(
        "pos_label=array([0, 1]) is not a label of y, which has [0, 1]; name one of those"
    ):
        PCSDA(pos_label=np.array([0, 1])).fit(X, y)


@BOTH
@WAYS_IN
def test_more_than_two_labels_are_refused_with_remedies(estimator, way):
    X, _, groups = problem()
    with refused(
        "Only binary classification is supported. The type of the target is multiclass: y has 3 "
        "labels; fit on y == label for one class or name it with pos_label, or use VerifierBank "
        "for all of them"
    ):
        enter(estimator, way, X, groups)
    model = enter(estimator, way, X, groups == 2)
    assert_array_equal(model.classes_, [False, True])


@BOTH
@WAYS_IN
def test_missing_labels_are_refused(estimator, way):
    X, y, _ = problem()
    missing = y.astype(float)
    missing[4] = np.nan
    with refused("Input y contains NaN."):
        enter(estimator, way, X, missing)
    texts = np.array(["a", "b"], dtype=object)[y]
    for nothing in (np.nan, None, pd.NA):
        texts[4] = nothing
        with refused(f"y is missing for 1 of {len(y)} rows; leave those rows out"):
            enter(estimator, way, X, texts)


@BOTH
@WAYS_IN
@pytest.mark.parametrize(("other", "kind"), [(b"c", "bytes"), (1, "int")])
def test_labels_of_mixed_types_are_refused(estimator, way, other, kind):
    X, y, _ = problem()
    mixed = np.array(["a", "b"], dtype=object)[y]
    mixed[4] = other
    with refused(
        f"y mixes labels of the types ['{kind}', 'str'], which have no order; use labels of one "
        "type and leave out rows without a label"
    ):
        enter(estimator, way, X, mixed)


@BOTH
@WAYS_IN
def test_continuous_targets_are_refused(estimator, way):
    X, y, _ = problem()
    with refused("Unknown label type: continuous.", begins=True):
        enter(estimator, way, X, y + 0.5)


@BOTH
@WAYS_IN
def test_labels_are_required(estimator, way):
    X, _, _ = problem()
    name = type(estimator).__name__
    with refused(f"This {name} estimator requires y to be passed, but the target y is None."):
        enter(estimator, way, X, None)


@BOTH
@WAYS_IN
def test_two_dimensional_labels_are_refused_and_a_column_warns(estimator, way):
    X, y, _ = problem()
    with refused("y should be a 1d array, got an array of shape (60, 2) instead."):
        enter(estimator, way, X, np.column_stack([y, y]))
    with pytest.warns(DataConversionWarning, match="A column-vector y was passed"):
        model = enter(estimator, way, X, y[:, None])
    plain = enter(estimator, way, X, y)
    assert_array_equal(model.decision_function(X), plain.decision_function(X))


@BOTH
@WAYS_IN
def test_each_row_needs_a_label(estimator, way):
    X, y, _ = problem()
    with refused("Found input variables with inconsistent numbers of samples: [60, 59]"):
        enter(estimator, way, X, y[:-1])


# --- parameters ----------------------------------------------------------------------------------

COUNT = "must be a whole number of at least 1, or"
NUMBER = "must be a number of at least 0"
PRIORS = "must be 'empirical', 'equal' or two positive numbers that sum to 1, in the order of"

SHARED = [
    *[("n_components", value, f"{COUNT} None") for value in (0, -1, 2.5, "all", True)],
    *[("regularization", value, NUMBER) for value in (-1, np.nan, np.inf, "none", None, True)],
    *[("shrinkage", value, f"{NUMBER}, or 'auto'") for value in (-0.5, np.nan, np.inf, "a", None)],
    *[("calibrate", value, "must be True or False") for value in ("no", None, 1, 0.5)],
    *[
        ("priors", value, f"{PRIORS} classes_")
        for value in [
            (0.5, 0.6),
            (0.0, 1.0),
            (1.5, -0.5),
            (0.2, 0.3, 0.5),
            (np.nan, 0.5),
            ("a", "b"),
            {"a": 1},
            0.5,
            None,
        ]
    ],
    ("priors", "same", "must be one of 'empirical', 'equal', or two probabilities"),
]


@BOTH
@WAYS_IN
@pytest.mark.parametrize(("name", "value", "rest"), SHARED)
def test_bad_parameters_are_refused(estimator, way, name, value, rest):
    X, y, _ = problem()
    if name == "regularization" and isinstance(estimator, PCSDA):
        rest = f"{rest}, or 'auto'"
    if name == "n_components" and isinstance(estimator, CSDA):
        rest = f"{rest}, or 'auto'"
    with refused(f"{name}={value!r} {rest}"):
        enter(clone(estimator).set_params(**{name: value}), way, X, y)


SOLVERS = "must be one of 'auto', 'cholesky', 'eigen', 'spectral', 'lsqr'"


@WAYS_IN
@pytest.mark.parametrize(
    ("name", "value", "rest"),
    [
        *[("n_subclasses", value, f"{COUNT} 'auto'") for value in (0, -3, 2.0, "many", None)],
        ("n_subclasses", np.array([1, 2]), f"{COUNT} 'auto'"),
        *[("solver", value, SOLVERS) for value in ("svd", "labels", None, ["eigen"])],
        ("balance", "equal", "must be one of 'pooled', 'resampled'"),
        ("negatives", "gaussian", "must be one of 'blend', 'mixture', 'marginal'"),
        ("tails", "heavy", "must be one of 'fitted', 'gaussian'"),
        ("covariance", "loo", "must be one of 'leave-one-out', 'resubstitution'"),
        ("subclasses", "dbscan", "must be one of 'kmeans', 'samples'"),
        ("subclasses", None, "must be one of 'kmeans', 'samples'"),
    ],
)
def test_bad_parameters_of_pcsda_are_refused(way, name, value, rest):
    X, y, _ = problem()
    with refused(f"{name}={value!r} {rest}"):
        enter(PCSDA(**{name: value}), way, X, y)


@WAYS_IN
@pytest.mark.parametrize("value", ["svd", "cholesky", None])
def test_bad_solvers_of_csda_are_refused(way, value):
    X, y, _ = problem()
    with refused(
        f"solver={value!r} must be one of 'auto', 'eigen', 'labels', 'lowrank', 'raw_labels', "
        "'spectral', 'trace_ratio'"
    ):
        enter(CSDA(solver=value), way, X, y)


@BOTH
def test_a_bad_seed_is_refused(estimator):
    X, y, _ = problem()
    with refused(
        "random_state='a' must be None, a numpy.random.RandomState or a whole number from 0 to "
        "4294967295"
    ):
        clone(estimator).set_params(random_state="a").fit(X, y)


def test_resampling_is_refused_with_lsqr():
    X, y, _ = problem()
    with refused(
        "solver='lsqr' does not take the dense draws of balance='resampled'; use solver='auto' or "
        "balance='pooled'"
    ):
        PCSDA(solver="lsqr", balance="resampled").fit(X, y)


@pytest.mark.parametrize(
    ("estimator", "reason"),
    [
        (
            PCSDA(balance="resampled"),
            "partial_fit does not support balance='resampled', which draws from each subclass as "
            "a whole; use balance='pooled'",
        ),
        (
            CSDA(solver="labels"),
            "partial_fit does not support solver='labels', whose targets need all samples; use "
            "solver='eigen' or 'lowrank'",
        ),
    ],
    ids=["resampled", "labels"],
)
def test_partial_fit_is_refused_where_statistics_do_not_suffice(estimator, reason):
    X, y, _ = problem()
    with pytest.raises(AttributeError, match="has no attribute 'partial_fit'") as caught:
        estimator.partial_fit(X, y)
    assert str(caught.value.__cause__) == reason


def test_too_many_components_are_refused():
    X, y, _ = problem(12, sizes=(30, 200, 150))
    with refused(
        "n_components=30 must be at most 10 (= min(n_subclasses, n_features, rank)); lower it or "
        "raise n_subclasses"
    ):
        PCSDA(n_subclasses=10, n_components=30, random_state=0).fit(X, y)


@pytest.mark.parametrize("solver", ["cholesky", "eigen", "spectral", "lsqr"])
@pytest.mark.parametrize(
    ("width", "sizes", "wanted", "bound"),
    [(4, (20, 15, 25), 3, 2), (90, (20, 15, 25), 3, 2), (2, (20, 15, 25, 10, 9), 3, 2)],
    ids=["subclasses, tall", "subclasses, wide", "features"],
)
def test_the_component_bound_is_right_for_every_solver(solver, width, sizes, wanted, bound):
    X, y, groups = problem(width, sizes)
    remedy = "lower it" if width == bound else "lower it or raise n_subclasses"
    with refused(
        f"n_components={wanted} must be at most {bound} (= min(n_subclasses, n_features, rank)); "
        f"{remedy}"
    ):
        PCSDA(n_components=wanted, solver=solver).fit(X, y, subclass_labels=groups)
    fitted = PCSDA(n_components=bound, solver=solver).fit(X, y, subclass_labels=groups)
    assert fitted.n_components_ == bound


@pytest.mark.parametrize("solver", ["cholesky", "eigen", "spectral"])
def test_the_component_bound_is_the_rank_of_collinear_means(solver):
    X, y, groups = problem(4, (20, 15, 25, 10))
    for group in (1, 2, 3):
        X[groups == group] += group * np.ones(4) - X[groups == group].mean(axis=0)
    X[groups == 0] -= X[groups == 0].mean(axis=0)
    with refused(
        "n_components=2 must be at most 1 (= min(n_subclasses, n_features, rank)); lower it or "
        "raise n_subclasses"
    ):
        PCSDA(n_components=2, solver=solver).fit(X, y, subclass_labels=groups)


@pytest.mark.parametrize(
    "solver", ["eigen", "labels", "lowrank", "raw_labels", "spectral", "trace_ratio"]
)
@pytest.mark.parametrize(
    ("width", "sizes", "bound"),
    [(4, (20, 25), 4), (90, (20, 25), 25), (9, (20, 3), 3)],
    ids=["features", "negatives, wide", "negatives, tall"],
)
def test_the_component_bound_is_right_for_csda(solver, width, sizes, bound):
    X, y, _ = problem(width, sizes)
    with refused(
        f"n_components={bound + 1} must be at most {bound} (= min(n_negatives, n_features, rank)); "
        "lower it"
    ):
        CSDA(bound + 1, solver=solver, calibrate=False).fit(X, y)
    assert CSDA(bound, solver=solver, calibrate=False).fit(X, y).n_components_ == bound


EVERY_CSDA = [{"reference": "optimal"}] + [
    {"solver": solver}
    for solver in ("eigen", "labels", "lowrank", "raw_labels", "spectral", "trace_ratio")
]


@pytest.mark.parametrize("given", EVERY_CSDA, ids=str)
@pytest.mark.parametrize("make", [CSDA, partial(KernelCSDA, "linear")], ids=["linear", "kernel"])
def test_every_form_of_csda_names_the_problem_with_the_rows(make, given):
    X, y, _ = problem()
    with refused(
        "all rows of X are equal (total variance 0); at least two different rows are needed"
    ):
        make(n_components=2, **given).fit(np.ones_like(X), y)
    flat = X.copy()
    flat[:, 2:] = 1.0
    with refused(
        "n_components=3 must be at most 2 (= min(n_negatives, n_features, rank)); lower it"
    ):
        make(n_components=3, **given).fit(flat, y)
    with pytest.warns(UserWarning, match="a single positive shows no spread"):
        alone = make(n_components=1, **given).fit(X, np.arange(len(X)) == 0)
    assert np.isfinite(alone.score_samples(X)).all()


@pytest.mark.parametrize(
    ("estimator", "bound"),
    [
        (PCSDA(4, 5), "4 (= min(n_subclasses, n_features, rank)); lower it"),
        (PCSDA(9, 5), "4 (= min(n_subclasses, n_features, rank)); lower it"),
        (PCSDA(2, 3), "2 (= min(n_subclasses, n_features, rank)); lower it or raise n_subclasses"),
        (CSDA(5), "4 (= min(n_negatives, n_features, rank)); lower it"),
    ],
    ids=str,
)
@pytest.mark.parametrize("size", [2, 60], ids=["few rows", "many rows"])
def test_components_no_batch_can_provide_are_refused_at_once(estimator, bound, size):
    X, y, _ = problem()
    few = np.concatenate([np.flatnonzero(y == label)[:size] for label in (0, 1)])
    model = clone(estimator)
    with refused(f"n_components={estimator.n_components} must be at most {bound}"):
        model.partial_fit(X[few], y[few])
    assert not hasattr(model, "scatter_")


def test_more_subclasses_than_distinct_negatives_are_refused():
    X, y, _ = problem()
    message = (
        "n_subclasses={} must be at most {} (= number of different negative samples); lower it or "
        "use n_subclasses='auto'"
    )
    with refused(message.format(41, 40)):
        PCSDA(41).fit(X, y)
    X[y == 0] = np.arange(40)[:, None] % 3
    with refused(message.format(4, 3)):
        PCSDA(4).fit(X, y)
    X[y == 0] *= np.where(X[y == 0] == 0, -1.0, 1.0)  # minus zero is zero
    with refused(message.format(4, 3)):
        PCSDA(4).fit(X, y)
    assert len(PCSDA(3, random_state=0).fit(X, y).subclass_counts_) == 3


@pytest.mark.parametrize("labels", [np.zeros(59), np.zeros((60, 1)), "abc"])
@WAYS_IN
def test_each_row_needs_a_subclass(way, labels):
    X, y, _ = problem()
    with refused(
        f"subclass_labels has shape {np.shape(labels)} but must have one entry for each of the 60 "
        "rows of X; entries of positive rows are ignored"
    ):
        enter(PCSDA(), way, X, y, subclass_labels=labels)


@pytest.mark.parametrize("missing", [np.nan, None])
@WAYS_IN
def test_missing_subclasses_of_negatives_are_refused(way, missing):
    X, y, groups = problem()
    labels = groups.astype(object)
    labels[np.flatnonzero(y == 0)[:3]] = missing
    with refused(
        "subclass_labels is missing (NaN or None) for 3 negative rows; give each negative a label, "
        "or leave subclass_labels out to cluster them"
    ):
        enter(PCSDA(), way, X, y, subclass_labels=labels)


def test_subclasses_all_at_the_positive_mean_are_refused():
    X = np.array([[1.0, 0], [-1, 0], [0, 1], [0, -1]])
    with refused(
        "every subclass mean equals the positive mean, so no direction tells them apart; raise "
        "n_subclasses or give subclass_labels"
    ):
        PCSDA(1).fit(X, [0, 0, 1, 1])
    assert_array_equal(PCSDA(2, calibrate=False).fit(X, [0, 0, 1, 1]).predict(X), [0, 0, 1, 1])


# --- scatter that cannot be inverted -------------------------------------------------------------


def with_a_copy(X):
    return np.column_stack([X, X[:, 0]])


def with_a_constant(X):
    return np.column_stack([X, np.ones(len(X))])


def with_a_sum(X):
    return np.column_stack([X, X.sum(axis=1)])


@pytest.mark.each_value
@pytest.mark.parametrize("widen", [with_a_copy, with_a_constant, with_a_sum])
@pytest.mark.parametrize(
    "estimator",
    [
        PCSDA(regularization=0),
        PCSDA(regularization=0, solver="eigen"),
        CSDA(regularization=0),
        CSDA(regularization=0, solver="lowrank"),
        CSDA(regularization=0, solver="labels"),
    ],
    ids=str,
)
@pytest.mark.parametrize("seed", range(5))
def test_a_singular_scatter_without_a_ridge_is_refused(estimator, widen, seed):
    X, y, _ = problem(seed=seed)
    model = clone(estimator)
    with refused(
        "the within-class scatter of 5 dimensions is singular at regularization=0; raise "
        "regularization, to 0.1 for instance"
    ):
        model.fit(widen(X), y)
    model.set_params(regularization=1e-6).fit(widen(X), y)
    assert np.isfinite(model.decision_function(widen(X))).all()
    assert model.n_components_ <= 4


NO_DENSITY = (
    "lower n_components or set shrinkage='auto'. The subspace and the ranking by distance need no "
    "density"
)


@pytest.mark.parametrize("solver", ["auto", "eigen", "spectral"])
def test_more_features_than_samples_without_a_ridge_leave_no_density(solver):
    X, y, groups = problem(90)
    model = PCSDA.published(solver=solver, regularization=0).fit(X, y, subclass_labels=groups)
    with refused(
        "the positive class is a point in the subspace, which can happen without regularization: "
        f"20 positives and 40 negatives are too few for n_components=2 axes; {NO_DENSITY}"
    ):
        model.predict(X)


def test_too_few_positives_leave_no_published_covariance():
    X, y, _ = problem(9, sizes=(3, 30, 30))
    for model, axes in ((PCSDA.published(5, random_state=0), 5), (CSDA.published(), 9)):
        model.fit(X, y)
        with refused(
            "the covariance of the positive class is singular in the subspace: 3 positives and 60 "
            f"negatives are too few for n_components={axes} axes; {NO_DENSITY}"
        ):
            model.decision_function(X)


def test_one_positive_has_no_published_covariance():
    X, y, _ = problem(4, sizes=(1, 30))
    for model, fault in (
        (PCSDA.published(), "the covariance of the positive class is singular in the subspace"),
        (PCSDA(1, shrinkage=0), "no sample shows the spread of the positive class"),
    ):
        model.fit(X, y)
        with refused(
            f"{fault}: 1 positives and 30 negatives are too few for n_components=1 axes; "
            f"{NO_DENSITY}"
        ):
            model.log_likelihood_ratio(X)


# --- weights -------------------------------------------------------------------------------------


@BOTH
@WAYS_IN
def test_negative_weights_are_refused(estimator, way):
    X, y, _ = problem()
    weights = np.ones(len(X))
    weights[[3, 8]] = -0.5, -2
    with refused("sample_weight has 2 negative entries (smallest -2); weights must be at least 0"):
        enter(estimator, way, X, y, sample_weight=weights)
    with refused("sample_weight has 60 negative entries (smallest -1); weights must be at least 0"):
        enter(estimator, way, X, y, sample_weight=-1)


@BOTH
@WAYS_IN
@pytest.mark.parametrize(
    ("weights", "kind"),
    [
        (["one"] * 60, "<U3"),
        (np.ones(60) + 1j, "complex128"),
        (np.full(60, "2020-01-01", "M8[D]"), "datetime64[D]"),
        ([object()] * 60, "object"),
    ],
)
def test_weights_that_are_not_numbers_are_refused(estimator, way, weights, kind):
    X, y, _ = problem()
    with refused(
        f"sample_weight has entries of type {kind} that are not numbers; give one number for each "
        "row"
    ):
        enter(estimator, way, X, y, sample_weight=weights)


@BOTH
@WAYS_IN
@pytest.mark.parametrize("weights", [np.ones(59), np.ones((60, 1)), np.ones((60, 2))])
def test_each_row_needs_a_weight(estimator, way, weights):
    X, y, _ = problem()
    with refused(
        f"sample_weight has shape {weights.shape} but must have one weight for each of the 60 rows "
        "of X"
    ):
        enter(estimator, way, X, y, sample_weight=weights)


@BOTH
@WAYS_IN
def test_missing_and_infinite_weights_are_refused(estimator, way):
    X, y, _ = problem()
    weights = np.ones(len(X))
    weights[3] = np.nan
    with refused("Input sample_weight contains NaN."):
        enter(estimator, way, X, y, sample_weight=weights)
    weights[3] = np.inf
    with refused(
        "Input sample_weight contains infinity or a value too large for dtype('float64')."
    ):
        enter(estimator, way, X, y, sample_weight=weights)


@BOTH
@pytest.mark.parametrize(("label", "which"), [(1, "positive"), (0, "negative")])
def test_a_class_without_weight_is_refused(estimator, label, which):
    X, y, _ = problem()
    with refused(
        f"sample_weight is zero for the whole {which} class; at least one sample must count"
    ):
        clone(estimator).fit(X, y, sample_weight=(y != label).astype(float))


# --- sparse rows ---------------------------------------------------------------------------------


def empty_rows(n_rows, n_features):
    X = sparse.lil_array((n_rows, n_features))
    X[: n_rows // 2, 0] = 1
    return sparse.csr_array(X), np.repeat([1, 0], [n_rows // 2, n_rows - n_rows // 2])


@pytest.mark.parametrize("form", [sparse.csr_array, sparse.csc_array, sparse.coo_array])
@pytest.mark.parametrize("solver", ["cholesky", "eigen", "spectral"])
def test_solvers_report_the_dense_size_of_sparse_rows(form, solver):
    X, y = empty_rows(1000, 400_000)
    with refused(
        f"solver='{solver}' does not take sparse input: the dense matrix of shape (1000, 400000) "
        "would need 2.98 GiB; use solver='lsqr'",
        TypeError,
    ):
        PCSDA(solver=solver).fit(form(X), y)


def test_resampling_csda_and_batches_report_the_dense_size_of_sparse_rows():
    X, y = empty_rows(1000, 400_000)
    size = (
        "does not take sparse input: the dense matrix of shape (1000, 400000) would need 2.98 GiB"
    )
    with refused(f"balance='resampled' {size}; use balance='pooled'", TypeError):
        PCSDA(balance="resampled").fit(X, y)
    with refused(f"CSDA {size}; use PCSDA with solver='lsqr'", TypeError):
        CSDA().fit(X, y)
    with refused(f"partial_fit {size}; make batches dense with toarray()", TypeError):
        PCSDA().partial_fit(X, y)
    with refused(f"partial_fit {size}; make batches dense with toarray()", TypeError):
        CSDA().partial_fit(X, y)


@pytest.mark.parametrize("model", [PCSDA(2), CSDA(2)], ids=lambda model: type(model).__name__)
def test_batches_too_wide_for_memory_are_refused_before_their_statistics(model, monkeypatch):
    X, y = np.random.default_rng(0).standard_normal((5, 20_000)), np.array([0, 1, 0, 1, 0])
    monkeypatch.setattr("pcsda.estimators.stream.available_memory", lambda: 2**30)
    says = (
        "partial_fit with 20000 columns needs 23.8 GiB for matrices of 20000 x 20000 numbers, but "
        "1.0 GiB are available; call fit on all rows together, or reduce the columns first"
    )
    with refused(says, MemoryError):
        model.partial_fit(X, y)


def test_the_first_wide_batch_warns_of_its_cost(monkeypatch):
    X, y = np.random.default_rng(0).standard_normal((5, 60)), np.array([0, 1, 0, 1, 0])
    monkeypatch.setattr("pcsda.estimators.stream.WIDE", 50)
    says = "time of a batch grows with the cube of the columns; above 50 columns, call fit on all"
    model = PCSDA(2, random_state=0)
    with pytest.warns(UserWarning, match=says):
        model.partial_fit(X, y)
    model.partial_fit(X, y)  # said once


# --- batches, trials, ranks, recalibration -------------------------------------------------------


@BOTH
def test_a_first_batch_of_one_class_needs_the_classes(estimator):
    X, y, _ = problem()
    with refused(
        "y has one class only, [0]; samples of the class of interest and of the rest are both "
        "needed"
    ):
        clone(estimator).partial_fit(X[y == 0], y[y == 0])
    model = clone(estimator).partial_fit(X[y == 0], y[y == 0], classes=[0, 1])
    assert_array_equal(model.classes_, [0, 1])


@BOTH
def test_changing_classes_between_batches_are_refused(estimator):
    X, y, _ = problem()
    model = clone(estimator).partial_fit(X, y, classes=[0, 1])
    with refused("classes=[0, 2] differs from the first call's [0, 1]"):
        model.partial_fit(X, y, classes=[0, 2])
    model.partial_fit(X, y, classes=[1, 0])
    assert model.scatter_.n_positive == 2 * y.sum()


@BOTH
def test_labels_outside_the_classes_are_refused(estimator):
    X, y, _ = problem()
    message = (
        "y has labels [2] that are not among classes [0, 1]; leave those rows out, or {}"
    ).format
    with refused(message("name all classes in the first call of partial_fit")):
        clone(estimator).partial_fit(X, 2 * y, classes=[0, 1])
    model = clone(estimator).partial_fit(X, y)
    with refused(message("name all classes in the first call of partial_fit")):
        model.partial_fit(X, 2 * y)
    with refused(message("label them as in fit")):
        model.recalibrate(X, 2 * y)


@BOTH
def test_more_than_two_classes_are_refused_in_a_stream(estimator):
    X, y, _ = problem()
    with refused("Only binary classification is supported.", begins=True):
        clone(estimator).partial_fit(X, y, classes=[0, 1, 2])


def test_mixing_batches_with_and_without_subclasses_is_refused():
    X, y, groups = problem()
    message = "subclass_labels must be given in every call of partial_fit or in none"
    model = PCSDA().partial_fit(X, y, subclass_labels=groups)
    with refused(message):
        model.partial_fit(X, y)
    model = PCSDA().partial_fit(X, y)
    with refused(message):
        model.partial_fit(X, y, subclass_labels=groups)


@BOTH
@pytest.mark.parametrize("trials", [[0, 1], np.zeros((60, 1)), "a"])
def test_each_row_needs_a_trial(estimator, trials):
    X, y, _ = problem()
    model = clone(estimator).fit(X, y)
    with refused(
        f"trials has shape {np.shape(trials)} but must have one entry for each of the 60 rows of X"
    ):
        model.log_likelihood_ratio(X, trials=trials)


@BOTH
def test_rows_without_a_trial_are_counted(estimator):
    X, y, _ = problem()
    model = clone(estimator).fit(X, y)
    trials = np.arange(len(X)) // 2.0
    trials[:3] = np.nan
    with refused("trials is NaN for 3 rows, which would form one trial; give each row a trial"):
        model.log_likelihood_ratio(X, trials=trials)


@BOTH
@pytest.mark.parametrize("by", ["score", 3])
def test_ranks_by_anything_else_are_refused(estimator, by):
    X, y, _ = problem()
    with refused(f"by={by!r} must be one of 'distance', 'likelihood'"):
        clone(estimator).fit(X, y).rank(X, by=by)


@BOTH
def test_recalibration_needs_both_classes_and_a_label_for_each_row(estimator):
    X, y, _ = problem()
    model = clone(estimator).fit(X, np.array(["no", "yes"])[y])
    with refused("recalibrate needs both classes, but y has only 'yes'; hold out rows of both"):
        model.recalibrate(X[y == 1], ["yes"] * 20)
    with refused("recalibrate needs both classes, but y has no 'yes'; hold out rows of both"):
        model.recalibrate(X[y == 0], ["no"] * 40)
    with refused("X has 60 rows but y has 40 labels"):
        model.recalibrate(X, np.array(["no", "yes"])[y][:40])
    with refused("sample_weight has 60 negative entries (smallest -1); weights must be at least 0"):
        model.recalibrate(X, np.array(["no", "yes"])[y], sample_weight=-1)


SCALED = [PCSDA(), CSDA(), KernelPCSDA(), PCSDACV(), VerifierBank(), MixtureVerifier()]


@pytest.mark.filterwarnings("ignore")  # of clusters and bandwidths on the way to the error
@pytest.mark.parametrize("model", SCALED, ids=lambda model: type(model).__name__)
def test_numbers_whose_squares_are_lost_are_named(model):
    rng = np.random.default_rng(0)
    y = np.arange(80) % 4 == 0
    X = rng.standard_normal((80, 5)) + y[:, None]
    with pytest.raises(ValueError, match=r"underflow: its spread is \de-300 .* divide X by its"):
        clone(model).fit(X * 1e-300, y)
    X[7, 3] = 1e300
    with pytest.raises(ValueError, match=r"above 1e150; .* 1e\+300 in row 7, column 3$"):
        clone(model).fit(X, y)


@pytest.mark.parametrize("estimator", [PCSDA(), KernelPCSDA(), CSDA()], ids=str)
@pytest.mark.parametrize(("weight", "warned"), [(1 / 90, True), (0.02, True), (0.5, False)])
def test_weights_that_make_a_class_count_as_next_to_nothing_warn(estimator, weight, warned):
    X, y, _ = problem()
    model = clone(estimator).set_params(random_state=0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, y, sample_weight=np.full(len(X), weight))
    text = "multiply all weights so that their mean is 1"
    assert any(text in str(each.message) for each in caught) == warned


def test_weights_of_blocks_that_sum_to_less_than_one_row_warn():
    X, y, _ = problem()
    with pytest.warns(UserWarning, match="multiply all weights so that their mean is 1"):
        fit_blocks(PCSDA(random_state=0), X, y=y, sample_weight=np.full(len(X), 1e-4))


@pytest.mark.parametrize("groups", ["label", "constant", "negatives"])
def test_groups_that_hold_a_whole_class_warn(groups):
    X, y, _ = problem()
    each = np.arange(len(X))
    given = {"label": y, "constant": 0 * y, "negatives": np.where(y == y.max(), each, -1)}
    which = "positives|negatives" if groups != "negatives" else "negatives"
    with pytest.warns(UserWarning, match=f"groups puts all .* ({which}) into one group"):
        PCSDA(random_state=0).fit(X, y, groups=given[groups])


EVERY_FIT = [PCSDA(), KernelPCSDA(), CSDA(), PCSDACV(), MixtureVerifier(), VerifierBank()]


@pytest.mark.parametrize("estimator", EVERY_FIT, ids=lambda model: type(model).__name__)
@pytest.mark.parametrize("nothing", [None, np.nan, pd.NA, pd.NaT], ids=["None", "NaN", "NA", "NaT"])
def test_rows_without_a_label_are_counted(estimator, nothing):
    X = np.random.default_rng(0).standard_normal((60, 3))
    known = pd.date_range("2020", periods=2) if nothing is pd.NaT else ["a", "b"]
    given = [[*known, nothing][k % 3] for k in range(60)]
    for y in (np.array(given, dtype=object), pd.Series(given)):
        with refused("y is missing for 20 of 60 rows; leave those rows out"):
            clone(estimator).fit(X, y)


@pytest.mark.each_value
@pytest.mark.parametrize("estimator", EVERY_FIT, ids=lambda model: type(model).__name__)
@pytest.mark.parametrize("kind", [int, bool])
def test_numbers_stored_as_objects_are_numbers(estimator, kind):
    X = np.random.default_rng(0).standard_normal((60, 3))
    y = (np.arange(60) % 2).astype(kind)
    model = clone(estimator).fit(X, y.astype(object))
    assert model.classes_.dtype == y.dtype
    clone(estimator).fit(X, y=pd.Series(y, dtype=object))


# --- messages name the cause, not a neighbour of it ----------------------------------------------


def spread_rows(n_rows=120, seed=0):
    X = 3 * np.random.default_rng(seed).standard_normal((n_rows, 4))
    return X, X[:, 0] > 2


def refuses(words, error=ValueError):
    """Expect a message that contains these words."""
    return pytest.raises(error, match=re.escape(words))


@pytest.mark.parametrize(
    "estimator", [PCSDA(), CSDA(), VerifierBank(PCSDA())], ids=lambda m: type(m).__name__
)
def test_rows_that_differ_by_too_little_are_not_called_equal(estimator):
    X, y = spread_rows()
    words = (
        "the rows of X differ by too little for double precision next to numbers of up to 1e+15; "
        "subtract the mean of each column first"
    )
    with refused(words):
        clone(estimator).fit(X + 1e15, y)


WITH_KERNELS = [
    KernelPCSDA(),
    KernelPCSDA(solver="eigen"),
    KernelPCSDA(contamination="auto"),
    KernelCSDA(),
    PCSDACV(KernelPCSDA(), n_subclasses=[1]),
    VerifierBank(KernelPCSDA(n_subclasses=1)),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("estimator", WITH_KERNELS, ids=str)
def test_a_kernel_names_the_row_that_is_far_from_all_others(estimator):
    X, y = spread_rows()
    with pytest.raises(ValueError, match=r"row 120 of X is 1e\+12 away from the median") as told:
        clone(estimator).fit(np.r_[X, [[1e12] * 4]], np.r_[y, False])
    assert "rbf" not in str(told.value)


@pytest.mark.filterwarnings("ignore")
def test_a_kernel_of_rows_on_two_scales_names_no_row():
    X, y = spread_rows()
    with refuses("rounding spoils the kernel matrix; raise regularization, or give X one scale"):
        KernelPCSDA().fit(np.r_[X, 1e12 * X[~y], 1e12 * X[~y]], np.r_[y, np.zeros(180, bool)])


def test_an_indefinite_kernel_is_still_told_of_rbf():
    X, y = spread_rows()
    with pytest.raises(ValueError, match="use a positive definite kernel such as 'rbf'"):
        KernelPCSDA(kernel="sigmoid", gamma=1.0, coef0=1.0).fit(X, y)


@pytest.mark.filterwarnings("ignore")
def test_many_rows_are_not_called_too_few_for_one_axis():
    X, y = spread_rows()
    Z, labels = np.r_[X, [[1e12] * 4]], np.r_[~y, False]
    with pytest.raises(ValueError, match="a few rows of X are far from all others") as told:
        PCSDA(n_subclasses=2).fit(Z, labels).predict(Z[:2])
    assert "too few" not in str(told.value)


def test_hidden_positives_and_one_group_of_positives_do_not_go_together():
    X, y = spread_rows()
    match = "none can be left out: groups puts all 30 positives and all 90 negatives into one group"
    with (
        pytest.warns(UserWarning, match="groups puts all"),
        pytest.raises(ValueError, match=match),
    ):
        PCSDA(contamination="auto").fit(X, y, groups=y)


def test_a_search_with_few_groups_names_the_remedy():
    X, y = spread_rows()
    words = "groups has 3 different values, but 5 folds need at least 5; give more groups, or cv=3"
    with refuses(words):
        PCSDACV(PCSDA()).fit(X, y, groups=np.arange(120) // 40)
    PCSDACV(PCSDA(), n_subclasses=[2], n_components=[1], cv=3).fit(
        X, y, groups=np.arange(120) // 40
    )


def test_labels_of_given_rows_must_be_those_of_the_fit():
    X, y = spread_rows()
    model, other = PCSDA().fit(X, y), np.where(y, "a", "b")
    words = (
        "y has labels ['a', 'b'] that are not among classes [False, True]; leave those rows out, "
        "or label them as in fit"
    )
    with refused(words):
        model.choose_threshold(max_false_alarms=0.1, X=X, y=other)
    with refused(words):
        model.recalibrate(X, other)


@pytest.mark.parametrize("estimator", [PCSDA(), CSDA()], ids=["PCSDA", "CSDA"])
def test_axes_that_overflow_float32_are_refused_at_fit(estimator):
    X, y = spread_rows()
    with pytest.raises(
        ValueError, match=r"entries of up to .*e\+\d+, which overflow float32, because"
    ):
        estimator.fit((X * 1e-40).astype(np.float32), y)


@pytest.mark.parametrize(
    "estimator", [PCSDA(), KernelPCSDA(), VerifierBank(PCSDA())], ids=lambda m: type(m).__name__
)
def test_the_sum_of_large_float32_rows_causes_no_warning(estimator):
    X, y = spread_rows()
    X = (X * 1e37).astype(np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        estimator.fit(X, y).predict(X)


@pytest.mark.parametrize("estimator", [PCSDA(), KernelPCSDA(), CSDA(), MixtureVerifier()])
def test_weights_whose_products_overflow_are_refused(estimator):
    X, y = spread_rows()
    words = (
        "sample_weight sums to 1.2e+302, above 1e+75, so its products overflow; divide all "
        "weights by their mean"
    )
    with refused(words):
        clone(estimator).fit(X, y, sample_weight=np.full(120, 1e300))


def test_a_kernel_names_weights_that_are_too_small():
    X, y = spread_rows()
    with (
        pytest.warns(UserWarning, match="say little"),
        refuses("tells the classes apart next to the ridge, because the weights sum to 1.2e-68"),
    ):
        KernelPCSDA().fit(X, y, sample_weight=np.full(120, 1e-70))


@pytest.mark.parametrize("estimator", [PCSDA(), KernelPCSDA(), CSDA(), MixtureVerifier()])
@pytest.mark.parametrize("weight", [5e-324, 1e-200])
def test_weights_whose_products_underflow_are_refused(estimator, weight):
    X, y = spread_rows()
    with refused("sample_weight sums to ", begins=True), np.errstate(all="raise"):
        clone(estimator).fit(X, y, sample_weight=np.full(120, weight))
    words = "in one class, below 1e-75, so its products underflow; divide all weights by their mean"
    with pytest.raises(ValueError, match=words):
        clone(estimator).fit(X, y, sample_weight=np.where(y == y[0], 1.0, weight))


def test_light_weights_count_as_rows_in_all():
    X, y = spread_rows()
    weights = np.where(y, 1 / y.sum(), 1.0)
    with pytest.warns(UserWarning, match="they count as 1 row in all and say little"):
        PCSDA().fit(X, y, sample_weight=weights)


CLASS_WEIGHTED = [PCSDA(), KernelPCSDA(), CSDA(), MixtureVerifier(), PCSDACV(n_subclasses=1)]


@pytest.mark.parametrize("estimator", CLASS_WEIGHTED)
def test_class_weights_are_named(estimator):
    X, y = spread_rows()
    positive = y == y.max()
    weights = np.where(positive, 4.0, 0.5)
    total = 4 * positive.sum()
    words = (
        "sample_weight is 4 for all positives and 0.5 for all negatives, as class weights are. A "
        f"weight counts copies of a row, so {positive.sum()} positives pass for {total}, and .* "
        "leave sample_weight out, and give class frequencies as priors"
    )
    with pytest.warns(UserWarning, match=words):
        clone(estimator).fit(X, y, sample_weight=weights)
    with pytest.warns(UserWarning, match="so .* negatives pass for"):
        clone(estimator).fit(X, y, sample_weight=np.where(positive, 1.0, 5.0))


@pytest.mark.parametrize("estimator", CLASS_WEIGHTED)
def test_counts_of_rows_are_not_taken_for_class_weights(estimator):
    X, y = spread_rows()
    positive = y == y.max()
    for weights in (
        np.where(positive, 1.0, 0.4),  # rows of a class that count less are no claim
        np.where(positive, 2.0, 1.0),
        np.full(len(y), 3.0),
        np.where(np.arange(len(y)) % 3, 5.0, 2.0),
    ):
        clone(estimator).fit(X, y, sample_weight=weights)  # a warning would be an error


@pytest.mark.parametrize("value", [-1, 2**32, "no", 1.5])
@pytest.mark.parametrize("estimator", [PCSDA(), KernelPCSDA(), VerifierBank(PCSDA())])
def test_a_seed_out_of_bounds_is_named(estimator, value):
    X, y = spread_rows()
    words = (
        f"random_state={value!r} must be None, a numpy.random.RandomState or a whole number from "
        "0 to 4294967295"
    )
    model = clone(estimator)
    name = "estimator__random_state" if isinstance(model, VerifierBank) else "random_state"
    with refused(words):
        model.set_params(**{name: value}).fit(X, y)


def test_more_axes_than_columns_need_no_more_subclasses():
    X, y = spread_rows()
    words = "n_components=7 must be at most 4 (= min(n_subclasses, n_features, rank)); lower it"
    with refused(words):
        PCSDA(n_components=7).fit(X, y)
    with refused(words.replace("most 4", "most 2") + " or raise n_subclasses"):
        PCSDA(n_components=7, n_subclasses=2).fit(X, y)
    with refused(words.replace("most 4", "most 5") + " or raise n_subclasses"):
        KernelPCSDA(n_components=7, n_subclasses=5).fit(X, y)


def test_unknown_priors_are_told_of_two_probabilities():
    X, y = spread_rows()
    with refused("priors='balanced' must be one of 'empirical', 'equal', or two probabilities"):
        PCSDA(priors="balanced").fit(X, y)
