"""Cohort normalisation against its definition, entry by entry, and the rows it refuses."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks

from pcsda import PCSDA, VerifierBank, load, save
from pcsda.metrics import equal_error_rate
from pcsda.normalization import AdaptiveSNorm, SNorm, TNorm, ZNorm

NORMS = [ZNorm(), TNorm(), SNorm(), AdaptiveSNorm(3)]
EVERY = pytest.mark.parametrize("norm", NORMS, ids=lambda norm: type(norm).__name__)


def tables(n_labels=6, n_cohort=30, n_rows=12, seed=0):
    rng = np.random.default_rng(seed)
    return (
        rng.normal(-5, 3, (n_cohort, n_labels)),
        rng.integers(0, n_labels + 2, n_cohort),
        rng.normal(-4, 4, (n_rows, n_labels)),
    )


def z_part(cohort, y, scores, n_top=None):
    result = np.empty(scores.shape)
    for row, column in np.ndindex(scores.shape):
        found = sorted(cohort[y != column, column])[-(n_top or 0) :]
        result[row, column] = (scores[row, column] - np.mean(found)) / np.std(found)
    return result


def t_part(scores, models, n_top=None):
    result = np.empty(scores.shape)
    for row, column in np.ndindex(scores.shape):
        found = sorted(scores[row, m] for m in models if m != column)[-(n_top or 0) :]
        result[row, column] = (scores[row, column] - np.mean(found)) / np.std(found)
    return result


@pytest.mark.parametrize("models", ["others", [0, 2, 3, 5]])
def test_all_four_norms_equal_their_definitions(models):
    cohort, y, scores = tables()
    columns = range(6) if models == "others" else models
    z, t = z_part(cohort, y, scores), t_part(scores, columns)
    assert_allclose(ZNorm().fit(cohort, y).transform(scores), z)
    assert_allclose(TNorm(models).fit(cohort, y).transform(scores), t)
    assert_allclose(SNorm(models).fit(cohort, y).transform(scores), (z + t) / 2)
    for n_top in (2, 3, 5, 6, 100):
        expected = z_part(cohort, y, scores, n_top) + t_part(scores, columns, n_top)
        found = AdaptiveSNorm(n_top, models).fit(cohort, y).transform(scores)
        assert_allclose(found, expected / 2)


@given(st.integers(0, 2**32 - 1), st.integers(3, 6))
def test_ties_among_the_nearest_do_not_matter(seed, n_top):
    cohort, y, _ = tables(5, seed=seed)
    rng = np.random.default_rng(seed)
    # Two values, each at least twice: any three of the others have a spread or none at all.
    scores = np.array([rng.permutation([0.0, 0.0, 1.0, 1.0, 1.0]) for _ in range(9)])
    scores += 1e-3 * rng.permutation([0.0, 0.0, 1.0, 1.0, 2.0])
    norm = AdaptiveSNorm(n_top).fit(cohort, y)
    t = 2 * norm.transform(scores) - (scores - norm.mean_) / norm.scale_
    assert_allclose(t, t_part(scores, range(5), n_top), rtol=1e-6, atol=1e-6)


def test_without_labels_all_rows_are_strangers():
    cohort, _, scores = tables()
    expected = (scores - cohort.mean(axis=0)) / cohort.std(axis=0)
    assert_allclose(ZNorm().fit(cohort).transform(scores), expected)


def test_labels_name_the_columns():
    cohort, y, scores = tables()
    names = np.array(list("abcdefxy"))
    named = SNorm(["a", "c", "f"]).fit(cohort, names[y], labels=names[:6]).transform(scores)
    assert_allclose(named, SNorm([0, 2, 5]).fit(cohort, y).transform(scores))


@EVERY
def test_affine_changes_of_rows_and_models_are_undone(norm):
    cohort, y, scores = tables()
    expected = norm.fit(cohort, y).transform(scores)
    assert_allclose(norm.fit(3 * cohort - 7, y).transform(3 * scores - 7), expected)
    if isinstance(norm, ZNorm):
        scale, shift = np.arange(1, 7.0), np.linspace(-9, 9, 6)
        moved = norm.fit(cohort * scale + shift, y).transform(scores * scale + shift)
        assert_allclose(moved, expected)
    if type(norm) is TNorm:
        scale, shift = np.arange(1, 13.0)[:, None], np.linspace(-9, 9, 12)[:, None]
        assert_allclose(norm.transform(scores * scale + shift), expected)


@EVERY
def test_a_model_far_from_the_others_costs_no_digits(norm):
    cohort, y, scores = tables()
    scores[:, 1] = 1e9
    far = norm.fit(cohort, y).transform(scores)[:, 1]
    if type(norm) is TNorm:
        rest = np.delete(scores, 1, axis=1)
        assert_allclose(far, (1e9 - rest.mean(axis=1)) / rest.std(axis=1))
    assert np.isfinite(far).all()


@EVERY
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_rows_of_the_cohort_are_refused(norm, dtype):
    cohort, y, scores = (part.astype(dtype) for part in tables())
    norm.fit(cohort, y.astype(int))
    assert norm.transform(scores).dtype == dtype
    mixed = scores.copy()
    mixed[3] = cohort[17] * (1 + np.finfo(dtype).eps)
    with pytest.raises(
        ValueError,
        match=r"^1 rows have exactly the scores of a cohort row, such as row 3; the cohort",
    ):
        norm.transform(mixed)
    with pytest.raises(ValueError, match=r"^30 rows have exactly the scores of a cohort row"):
        norm.fit_transform(cohort, y.astype(int))


@EVERY
def test_named_rows_are_refused_by_name_alone(norm):
    cohort, y, scores = tables()
    norm.fit(cohort, y, ids=[f"train-{i}" for i in range(30)])
    free = [f"test-{i}" for i in range(12)]
    expected = clone(norm).fit(cohort, y).transform(scores)
    assert_allclose(norm.transform(scores, ids=free), expected)
    assert np.isfinite(norm.transform(cohort[:12], ids=free)).all()
    with pytest.raises(
        ValueError, match=r"^1 ids are in the cohort too, such as 'train-5'; the cohort"
    ):
        norm.transform(scores, ids=[*free[:-1], "train-5"])
    with pytest.raises(
        ValueError, match=r"^the cohort was given ids, but the rows to normalise have n"
    ):
        norm.transform(scores)
    with pytest.raises(ValueError, match=r"^ids has 2 entries but there are 12 rows of scores$"):
        norm.transform(scores, ids=["a", "b"])
    norm.fit(cohort, y)
    with pytest.raises(
        ValueError, match=r"^the cohort was given no ids, but the rows to normalise hav"
    ):
        norm.transform(scores, ids=free)


@EVERY
@pytest.mark.parametrize("names", [None, [f"train-{i}" for i in range(30)]])
def test_saved_norms_recognise_their_cohort(norm, names, tmp_path):
    cohort, y, scores = tables()
    norm.fit(cohort, y, ids=names)
    save(norm, tmp_path / "norm.pcsda")
    again = load(tmp_path / "norm.pcsda")
    free = None if names is None else [f"test-{i}" for i in range(12)]
    assert_allclose(again.transform(scores, ids=free), norm.transform(scores, ids=free))
    with pytest.raises(ValueError, match=r"the cohort must not contain rows that are scored"):
        again.transform(cohort[:12], ids=None if names is None else names[:12])


def test_rows_of_a_label_in_the_cohort_of_models_are_refused():
    cohort, y, scores = tables()
    norm = TNorm([0, 1, 2]).fit(cohort, y)
    others = np.array([3, 4, 5] * 4)
    assert_allclose(norm.transform(scores, y=others), norm.transform(scores))
    others[4] = 1
    with pytest.raises(ValueError, match=r"^1 rows have labels whose models are in the cohort, s"):
        norm.transform(scores, y=others)
    # Every model of the bank is in the cohort of all others.
    assert TNorm().fit(cohort, y).transform(scores, y=others).shape == (12, 6)


@EVERY
def test_huge_and_equal_scores_are_refused(norm):
    cohort, y, scores = tables()
    if type(norm) is not TNorm:
        with pytest.raises(
            ValueError, match=r"scores for label 0 have a spread of 0 about -7, which"
        ):
            clone(norm).fit(np.where(np.arange(6) == 0, -7.0, cohort), y)
        with pytest.raises(
            ValueError, match=r"scores for label 0 have a spread of (inf|nan) about"
        ):
            clone(norm).fit(cohort * 1e307, y)
    if type(norm) is not ZNorm:
        scores[2] = -3.0
        with pytest.raises(
            ValueError, match=r"^the scores of row 2 for the cohort's models have a "
        ):
            norm.fit(cohort, y).transform(scores)
        scores[2] = [1e308, -1e308, 1e308, 0, 1, 2]
        with pytest.raises(
            ValueError, match=r"^the scores of row 2 .* spread of (inf|nan), which cannot"
        ):
            norm.transform(scores)


def test_overflowing_scores_are_refused():
    cohort, y, scores = tables()
    scores[2, 1] = 1e308
    with pytest.raises(ValueError, match=r"^the scores of row 2 are too large to normalise; leave"):
        ZNorm().fit(1e-3 * cohort, y).transform(scores)


@pytest.mark.parametrize(
    ("norm", "shape", "fit", "message"),
    [
        (
            ZNorm(),
            (1, 3),
            {},
            r"^the cohort has 1 rows that are strangers to label 0, but at least 2",
        ),
        (
            ZNorm(),
            (3, 3),
            {"y": [0, 0, 1]},
            r"^the cohort has 1 rows that are strangers to label 0",
        ),
        (ZNorm(), (5, 1), {}, r"^rows cannot be distinguished by 1 column of scores; give ids"),
        (ZNorm(), (5, 3), {"y": [1, 2]}, r"^y has 2 entries but there are 5 rows of scores$"),
        (ZNorm(), (5, 3), {"ids": [1, 2]}, r"^ids has 2 entries but there are 5 rows of scores$"),
        (ZNorm(), (5, 3), {"labels": [1, 1, 2]}, r"^labels must name each of the 3 columns once"),
        (TNorm(), (5, 2), {}, r"^the cohort has 2 models, but at least 3 are needed, because one"),
        (TNorm([0, 9]), (5, 3), {}, r"^cohort=\[0, 9\] must be 'others' or a list of labels among"),
        (TNorm("all"), (5, 3), {}, r"^cohort='all' must be 'others' or a list of labels"),
        (AdaptiveSNorm(1), (5, 3), {}, r"^n_top=1 must be at least 2: one score has no spread$"),
        (AdaptiveSNorm(2.5), (5, 3), {}, r"^n_top=2.5 must be a whole number of at least 1"),
    ],
)
def test_bad_cohorts_are_refused(norm, shape, fit, message):
    scores = np.random.default_rng(0).standard_normal(shape)
    with pytest.raises(ValueError, match=message):
        norm.fit(scores, **fit)


@EVERY
def test_bad_scores_are_refused(norm):
    cohort, y, scores = tables()
    with pytest.raises(NotFittedError):
        clone(norm).transform(scores)
    with pytest.raises(ValueError, match=r"Input X contains NaN"):
        norm.fit(np.where(cohort > 0, np.nan, cohort), y)
    with pytest.raises(ValueError, match=r"X has 5 features, but .* is expecting 6 features"):
        norm.fit(cohort, y).transform(scores[:, 1:])


def test_frames_keep_their_columns():
    cohort, y, scores = tables()
    names = [f"person {i}" for i in range(6)]
    norm = SNorm().fit(pd.DataFrame(cohort, columns=names), y).set_output(transform="pandas")
    assert norm.transform(pd.DataFrame(scores, columns=names)).columns.tolist() == names


def test_models_of_different_levels_share_a_threshold_after_z_norm():
    X, y = load_digits(return_X_y=True)
    bank = VerifierBank(PCSDA(random_state=0)).fit(X[:300], y[:300])
    spoilt = np.arange(1, 11.0), np.linspace(-200, 200, 10)
    dev, test = (
        bank.log_likelihood_ratio(part) * spoilt[0] + spoilt[1] for part in (X[600:1200], X[1200:])
    )
    own = (y[1200:, None] == bank.classes_).ravel()
    before = equal_error_rate(own, test.ravel())[0]
    for norm in (ZNorm(), SNorm(), AdaptiveSNorm(50)):
        norm.fit(dev, y[600:1200], labels=bank.classes_)
        after = equal_error_rate(own, norm.transform(test).ravel())[0]
        assert after < 0.7 * before


class Lenient(ZNorm):
    """Scores its own cohort, which scikit-learn's checks require but users must not do."""

    def _refuse_cohort(self, scores, ids, precision):
        pass


@parametrize_with_checks(
    [Lenient()],
    expected_failed_checks=lambda _: {
        "check_fit2d_1sample": "one row has no spread, and the message names rows",
        "check_fit2d_1feature": "one column cannot distinguish rows, and the message names columns",
    },
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)
