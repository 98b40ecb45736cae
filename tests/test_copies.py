"""Copies and groups of rows: warned about where copies spoil left-out scores, and only there."""

import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.preprocessing import OneHotEncoder

from pcsda import (
    PCSDA,
    PCSDACV,
    KernelPCSDA,
    MixtureVerifier,
    NystroemMap,
    VerifierBank,
    fit_blocks,
    make_pipeline,
)
from pcsda.core import copies
from pcsda.core.copies import Fingerprints

WORDS = (
    r"(120 of the 120|40 of the 40) different (positive )?rows of X occur more than once. .* "
    "remove the copies, or .* groups"
)


def count_copied(X):
    """Count the rows with copies among all rows, and the different rows; none if few or natural."""
    return copies.count_copied(X, {"rows": slice(None)}).get("rows")


def draw(n=120, width=6, seed=0):
    """Draw rows and labels; a third of the rows are positive."""
    rng = np.random.default_rng(seed)
    positive = np.arange(n) % 3 == 0
    return rng.standard_normal((n, width)) + 0.8 * positive[:, None], positive


def doubled(**settings):
    X, y = draw(**settings)
    return np.vstack([X, X]), np.append(y, y)


def in_blocks(X, y):
    return fit_blocks(PCSDA(random_state=0), lambda: [(X[:100], y[:100]), (X[100:], y[100:])])


FITS = {
    "PCSDA": lambda X, y, **given: PCSDA(random_state=0).fit(X, y, **given),
    "KernelPCSDA": lambda X, y, **given: KernelPCSDA(random_state=0).fit(X, y, **given),
    "PCSDACV": lambda X, y, **given: PCSDACV(n_subclasses=[1, 2], n_components=[1]).fit(
        X, y, **given
    ),
    "MixtureVerifier": lambda X, y, **given: MixtureVerifier(PCSDA(random_state=0), n_modes=2).fit(
        X, y, **given
    ),
    "VerifierBank": lambda X, y, **given: VerifierBank(PCSDA(random_state=0)).fit(X, y, **given),
    "a label each": lambda X, y, **given: VerifierBank(
        PCSDA(random_state=0), calibration="per-label", subclasses="per-class"
    ).fit(X, y, **given),
}


@pytest.mark.parametrize("name", FITS)
def test_doubled_rows_are_warned_about_once(name):
    with pytest.warns(UserWarning, match=WORDS) as caught:
        FITS[name](*doubled())
    assert sum("more than once" in str(one.message) for one in caught) == 1


@pytest.mark.parametrize("name", FITS)
def test_groups_answer_the_warning(name):
    X, y = doubled()
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*more than once")
        FITS[name](X, y, groups=np.tile(np.arange(120), 2))


def test_blocks_warn_of_doubled_rows():
    with pytest.warns(UserWarning, match=WORDS):
        in_blocks(*doubled())


@pytest.mark.parametrize("name", ["PCSDA", "KernelPCSDA", "MixtureVerifier"])
def test_oversampled_positives_are_warned_about(name):
    X, y = draw(300)
    rare = np.flatnonzero(y)[:8]
    rows = np.append(np.flatnonzero(~y), np.tile(rare, 25))
    with pytest.warns(UserWarning, match="8 of the 8 different positive rows of X occur more"):
        FITS[name](X[rows], y[rows])


@pytest.mark.parametrize("rare", [2, 4])
def test_copies_of_a_few_positives_are_warned_about(rare):
    X = np.random.default_rng(0).standard_normal((rare + 4, 5))
    y = np.arange(rare + 4) < rare
    with pytest.warns(UserWarning, match=f"{rare} of the {rare} different positive rows of X occ"):
        PCSDA(random_state=0).fit(np.tile(X, (20, 1)), np.tile(y, 20))


@pytest.mark.parametrize("kinds", [2, 3, 4, 6])
def test_few_categories_repeat_by_nature(kinds):
    coded = np.random.default_rng(0).integers(0, kinds, 300)
    X, y = np.eye(kinds)[coded], coded < kinds / 2
    assert "positive rows" not in copies.count_copied(X, {"positive rows": y})


def test_a_pair_of_equal_positives_is_no_reason_to_warn():
    X, y = draw(120)
    X[np.flatnonzero(y)[:2]] = X[0]
    assert copies.count_copied(X, {"positive rows": y, "negative rows": ~y}) == {}


def test_nothing_left_out_means_no_warning():
    PCSDA.published().fit(*doubled())


def test_groups_keep_the_promised_rate_where_copies_break_it():
    X, y = draw(1000, 60)
    train, new, clean = slice(150), X[150:], ~y[150:]
    rows, labels = np.vstack([X[train], X[train]]), np.append(y[train], y[train])
    with pytest.warns(UserWarning, match="more than once"):
        plain = KernelPCSDA(random_state=0).fit(rows, labels)
    grouped = KernelPCSDA(random_state=0).fit(rows, labels, groups=np.tile(np.arange(150), 2))
    for model in (plain, grouped):
        model.choose_threshold(max_false_alarms=0.05)
    assert plain.accepts(new)[clean].mean() > 0.4
    assert grouped.accepts(new)[clean].mean() < 0.1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("offset", [0, 1e5])
def test_copied_rows_are_counted(dtype, offset):
    X = np.random.default_rng(0).standard_normal((300, 8)).astype(dtype) + dtype(offset)
    assert count_copied(X) is None
    assert count_copied(np.vstack([X, X[:100], X[:100]])) == (100, 300)
    blank = np.zeros((200, 8), dtype)
    assert count_copied(np.vstack([X, blank])) is None


def test_small_columns_beside_large_ones_tell_rows_apart():
    rng = np.random.default_rng(0)
    X = np.column_stack([1e12 * rng.integers(0, 3, 300), 1e-12 * rng.standard_normal((300, 9))])
    assert count_copied(X) is None
    assert count_copied(np.vstack([X, X])) == (300, 300)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("offset", "scale"), [(0, 1), (1e5, 1), (0, 1e-30), (0, 1e30)])
def test_copies_of_known_rows_are_recognised(dtype, offset, scale):
    rng = np.random.default_rng(0)
    X = (scale * rng.standard_normal((500, 8)) + offset).astype(dtype)
    known, values = np.vstack([X[:300], X[:1]]), np.append(np.arange(300.0), 30.0)
    seen = Fingerprints.of(known)
    mixed = rng.permutation(500)
    expected = np.where(mixed < 300, np.where(mixed == 0, 15.0, mixed), np.nan)
    np.testing.assert_allclose(seen.of_copies(X[mixed], values), expected)
    np.testing.assert_allclose(seen.of_copies(np.asfortranarray(X[mixed]), values), expected)
    if not offset:
        np.testing.assert_allclose(seen.of_copies(sparse.csr_array(X[mixed]), values), expected)
        seen = Fingerprints.of(sparse.csr_array(known))
        np.testing.assert_allclose(seen.of_copies(X[mixed], values), expected)


def test_rows_that_an_earlier_step_computes_in_single_precision_are_recognised():
    """BLAS rounds the coordinates of a row differently in every batch."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((3000, 256)).astype(np.float32)
    pca = PCA(32, svd_solver="covariance_eigh")
    seen = Fingerprints.of(pca.fit_transform(X[:2000]))
    for batch in (slice(None), slice(None, None, 2), slice(10, 20), slice(7, 8)):
        numbers = np.arange(3000)[batch]
        found = seen.of_copies(pca.transform(X[batch]), np.arange(2000.0))
        np.testing.assert_array_equal(found, np.where(numbers < 2000, numbers, np.nan))


@pytest.mark.parametrize("kinds", [(np.float64, np.float32), (np.float32, np.float64)])
def test_copies_in_another_precision_are_recognised(kinds):
    X = np.random.default_rng(0).standard_normal((500, 8))
    found = Fingerprints.of(X[:300].astype(kinds[0])).of_copies(X.astype(kinds[1]), np.arange(300))
    np.testing.assert_array_equal(found, np.where(np.arange(500) < 300, np.arange(500), np.nan))


@pytest.mark.parametrize("large", [1e18, -np.inf])
def test_a_large_value_of_one_row_leaves_those_of_other_rows(large):
    X, values = np.random.default_rng(0).standard_normal((50, 3)), np.arange(50.0)
    values[7] = large
    np.testing.assert_array_equal(Fingerprints.of(X).of_copies(X, values), values)


def test_a_large_column_does_not_make_new_rows_look_known():
    rng = np.random.default_rng(0)
    X = np.column_stack([1e12 * rng.integers(0, 3, 900), 1e-12 * rng.standard_normal((900, 9))])
    found = Fingerprints.of(X[:600]).of_copies(X, np.arange(600.0))
    np.testing.assert_allclose(found[:600], np.arange(600.0))
    assert np.isnan(found[600:]).all()


@pytest.mark.parametrize("blank", [0, 60, 200, 400])
def test_rows_that_agree_in_the_middle_columns_are_still_compared(blank):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 3 * copies.A_FEW))
    X[:blank, copies.A_FEW : -copies.A_FEW] = 0.0
    assert count_copied(X) is None
    # All copies may be among the rows that the middle columns do not tell apart.
    assert count_copied(np.vstack([X, X[:60]])) == (60, 400)


def test_sparse_rows_and_pictures_are_compared():
    X = sparse.random(300, 500, 0.05, format="csr", random_state=0)
    assert count_copied(X) is None
    assert count_copied(sparse.vstack([X, X]).tocsr()) == (300, 300)
    digits = load_digits().data
    assert count_copied(digits) is None
    assert count_copied(np.vstack([digits, digits])) == (1797, 1797)


@pytest.mark.parametrize(
    ("values", "width"), [(2, 4), (2, 12), (5, 4), (10, 5), (50, 1), (1000, 2)]
)
def test_columns_of_few_values_repeat_by_nature(values, width):
    X = np.random.default_rng(0).integers(0, values, (3000, width)).astype(float)
    assert count_copied(X) is None


@pytest.mark.parametrize("n_constant", [1, 5])
def test_constant_columns_do_not_explain_copies_away_or_into_being(n_constant):
    constant = np.full((200, n_constant), 7.0)
    grades = np.random.default_rng(0).integers(0, 9, (200, 1)).astype(float)
    assert count_copied(np.hstack([grades, constant])) is None
    rows, _ = doubled()
    assert count_copied(np.hstack([rows, constant[:1].repeat(len(rows), axis=0)])) == (120, 120)


@pytest.mark.parametrize("name", FITS)
def test_masks_and_missing_groups_are_refused(name):
    X, y = draw()
    with pytest.raises(ValueError, match="X is masked in 3 places, and masks would be ignored"):
        FITS[name](np.ma.masked_array(X, np.arange(X.size).reshape(X.shape) < 3), y)
    groups = np.where(np.arange(len(y)) < 7, np.nan, np.arange(len(y)))
    with pytest.raises(ValueError, match="groups is NaN for 7 rows, which would form one group"):
        FITS[name](X, y, groups=groups)


def rare_marks(seed=0):
    """Draw columns that are rarely 1, so that many rows are equal by chance, and labels."""
    rng = np.random.default_rng(seed)
    X = rng.random((400, 30)) < rng.uniform(0.02, 0.07, 30)
    return X.astype(float), np.arange(400) < 80


MAPS = {"pca": PCA(20), "nystroem": NystroemMap(50, random_state=0)}
FORMS = {
    "numbers": np.asarray,
    "marks": lambda X: X.astype(bool),
    "sparse": sparse.csr_matrix,
    "float32": lambda X: X.astype(np.float32),
    "float16": lambda X: X.astype(np.float16),
}


@pytest.mark.filterwarnings("error:.*occur more than once")
@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("form", FORMS)
def test_columns_of_few_values_repeat_by_nature_behind_a_map(name, form):
    X, y = rare_marks()
    PCSDA(random_state=0).fit(X, y)
    if (name, form) != ("nystroem", "sparse"):
        make_pipeline(MAPS[name], PCSDA(random_state=0)).fit(FORMS[form](X), y)
    if name == "pca":
        frame = pytest.importorskip("pandas").DataFrame(X)
        make_pipeline(MAPS[name], PCSDA(random_state=0)).fit(frame, y)


@pytest.mark.parametrize("name", MAPS)
def test_copies_behind_a_map_are_warned_about(name):
    X, y = doubled(n=300, width=30)
    with pytest.warns(UserWarning, match="rows of X occur more than once"):
        make_pipeline(MAPS[name], PCSDA(random_state=0)).fit(X, y)
    texts = np.array(["a b", "c d", "e f g"] * 40)[:, None]
    make_pipeline(OneHotEncoder(), PCSDA(random_state=0)).fit(texts, np.arange(120) % 3 == 0)


def test_a_step_that_drops_what_tells_rows_apart_is_still_seen():
    X, y = doubled()
    numbered = np.column_stack([np.arange(len(X)), X])
    numbers = ColumnTransformer([("values", "passthrough", slice(1, None))])
    with pytest.warns(UserWarning, match="rows of X occur more than once"):
        make_pipeline(numbers, PCSDA(random_state=0)).fit(numbered, y)


@pytest.mark.parametrize("width", [1, 2, 12])
def test_few_values_explain_repeated_rows(width):
    X = np.random.default_rng(0).integers(0, 3, (300, width)).astype(float)
    assert copies.few_values_repeat(X) == (width < 12)
    rows, _ = doubled()
    assert not copies.few_values_repeat(rows)
    assert not copies.few_values_repeat(draw()[0])
