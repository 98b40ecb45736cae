"""The search session: what it finds, what it promises, and what it does with bad input."""

import copy
import pickle
import re
import threading
import time

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy import sparse
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import pcsda
from pcsda import PCSDA, KernelPCSDA, SearchSession
from pcsda.estimators.ratios import quick_scores_of, scores_of
from pcsda.retrieval.gallery import Gallery
from pcsda.retrieval.store import StoreError

X, y = load_digits(return_X_y=True)
X, y = X[:900], y[:900]
NOT_FINITE = "2 of 900 rows have missing or infinite values and are never shown"


def search(session, truth, rounds, n=20, how="likely"):
    for _ in range(rounds):
        rows = session.suggest(n, how=how)
        if not rows:
            break
        session.label(rows, [bool(truth[row]) for row in rows])
    return sum(value is True for value in session.labels().values())


@pytest.fixture(scope="module")
def searched():
    session = SearchSession(X)
    session.label(np.flatnonzero(y == 3)[:3], True)
    search(session, y == 3, 6)
    return session


def test_what_is_no_estimator_is_refused_at_once():
    with pytest.raises(TypeError, match=r"^estimator=3 must be a verifier, such as PCSDA\(\)"):
        SearchSession(np.eye(4), estimator=3)
    for other in (LogisticRegression(), make_pipeline(StandardScaler(), LogisticRegression())):
        with pytest.raises(TypeError, match=r"must be a verifier, such as PCSDA\(\)"):
            SearchSession(np.eye(4), estimator=other)
    with pytest.raises(TypeError, match=r"pipeline of pcsda.make_pipeline that ends in one$"):
        SearchSession(np.eye(4), estimator=make_pipeline(StandardScaler(), PCSDA()))
    SearchSession(np.eye(4), estimator=pcsda.make_pipeline(StandardScaler(), PCSDA()))
    with pytest.raises(TypeError, match=r"estimator=VerifierBank\(\) must be a verifier"):
        SearchSession(np.eye(4), estimator=pcsda.VerifierBank())


@pytest.mark.parametrize(
    "estimator",
    [
        pcsda.make_pipeline(StandardScaler(with_std=False), PCSDA(random_state=0)),
        pcsda.PCSDACV(PCSDA(random_state=0), regularization=[0.5], n_subclasses=[20]),
    ],
    ids=["pipeline", "search"],
)
def test_wrapped_verifiers_have_left_out_ratios_weights_and_thresholds(estimator):
    session = SearchSession(X, estimator=estimator)
    session.label(np.flatnonzero(y == 3)[:3], True)
    search(session, y == 3, 4)
    left = np.sum(y == 3) - sum(value is True for value in session.labels().values())
    found = session.remaining()
    assert found.count_low <= left <= found.count_high
    assert found.count < 3 * left
    assert session.stop(recall=0.95).basis == "model"
    threshold = session.choose_threshold(max_false_alarms=0.01)
    assert session.model_.threshold_ == threshold
    assert session.model_.accepts(X)[y != 3].mean() < 0.03


def test_a_session_finds_the_class_and_gives_a_verifier(searched, tmp_path):
    found = [row for row, value in searched.labels().items() if value]
    assert len(found) >= 0.9 * np.sum(y == 3)
    assert (y[found] == 3).all()
    model = searched.model_
    assert isinstance(model, PCSDA)
    others = load_digits(return_X_y=True)
    fresh, truth = others[0][900:], others[1][900:] == 3
    accepted = model.accepts(fresh)
    assert accepted[truth].mean() > 0.7
    assert accepted[~truth].mean() < 0.1
    pcsda.save(model, tmp_path / "three.pcsda")
    again = pcsda.load(tmp_path / "three.pcsda")
    np.testing.assert_allclose(again.log_likelihood_ratio(fresh), model.log_likelihood_ratio(fresh))
    assert again.threshold_ == model.threshold_


def test_known_rows_come_first_and_last_in_the_ranking(searched):
    ranking, values = searched.ranking(), searched.labels()
    assert sorted(ranking) == list(range(len(X)))
    yes = sum(value is True for value in values.values())
    no = sum(value is False for value in values.values())
    assert all(values[row] is True for row in ranking[:yes])
    assert all(values[row] is False for row in ranking[-no:])
    free = [row for row in ranking if row not in values]
    assert free[:10] == searched.suggest(10)


@pytest.mark.parametrize("how", ["likely", "uncertain", "diverse", "mixed", "random"])
def test_suggestions_are_distinct_and_unanswered(searched, how):
    rows = searched.suggest(17, how=how)
    assert len(rows) == len(set(rows)) == 17
    assert not set(rows) & set(searched.labels())


def test_diverse_rows_are_farther_apart_than_likely_ones(searched):
    def spread(rows):
        return np.linalg.norm(X[rows][:, None] - X[rows], axis=2).mean()

    assert spread(searched.suggest(10, how="diverse")) > spread(searched.suggest(10))


def test_one_example_ranks_no_worse_than_cosine():
    """On average over classes; with few examples, similarity is part of the order."""
    gain = []
    for label in range(10):
        session = SearchSession(X)
        example = int(np.flatnonzero(y == label)[1])
        session.label(example, True)
        order = [row for row in session.ranking() if row != example]
        place = np.empty(len(X))
        place[order] = -np.arange(len(order))
        rest = np.delete(np.arange(len(X)), example)
        lengths = np.linalg.norm(X, axis=1) * np.linalg.norm(X[example])
        cosine = X @ X[example] / lengths
        truth = y[rest] == label
        gain.append(
            average_precision_score(truth, place[rest])
            - average_precision_score(truth, cosine[rest])
        )
    assert np.mean(gain) > 0


def test_blocks_memory_maps_sparse_and_named_galleries_agree(tmp_path):
    np.save(tmp_path / "rows.npy", X)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    galleries = [X, mapped, [X[:100], X[100:650], X[650:]], sparse.csr_matrix(X), X.tolist()]
    orders = []
    for gallery in galleries:
        session = SearchSession(gallery)
        session.label([3, 13], True)
        session.label([0, 1], False)
        orders.append(session.ranking()[:50])
    assert all(order == orders[0] for order in orders)
    named = SearchSession(X, ids=[f"img{row}" for row in range(len(X))])
    named.label(["img3", "img13"], "yes")
    named.label(["img0", "img1"], "no")
    assert named.ranking()[:50] == [f"img{row}" for row in orders[0]]


def test_small_blocks_score_like_one_block(monkeypatch):
    whole = SearchSession(X.astype(np.float32))
    monkeypatch.setattr("pcsda.retrieval.gallery.BLOCK_BYTES", 10_000)
    parts = SearchSession(X.astype(np.float32))
    for session in (whole, parts):
        session.label([3, 13, 23], True)
    np.testing.assert_allclose(whole.scores(), parts.scores(), rtol=1e-5, atol=1e-5)


def test_labels_are_yes_no_or_skip_and_the_latest_counts():
    session = SearchSession(X)
    session.label(5, "yes")
    session.label([6, 7], [np.False_, None])
    session.label(5, False)
    assert session.labels() == {6: False, 7: None, 5: False}
    assert session.undo() == [5]
    assert session.labels() == {5: True, 6: False, 7: None}
    assert [(e.id, e.value) for e in session.history()] == [(5, True), (6, False), (7, None)]
    assert len(session.store.entries()) == 4
    assert session.undo() == [6, 7]
    assert session.undo() == [5]
    assert session.undo() == []
    assert session.labels() == {}


def test_undo_by_one_person_keeps_the_others_answers():
    session = SearchSession(X)
    session.label(1, True, who="ann")
    session.label(2, True, who="ben")
    assert session.undo(who="ann") == [1]
    assert session.labels() == {2: True}


def test_a_session_works_without_examples():
    session = SearchSession(X)
    assert len(set(session.suggest(20))) == 20
    session.label(session.suggest(20), False)
    ranking = session.ranking()
    assert set(ranking[-20:]) == set(session.labels())
    assert len(session.suggest(5, how="uncertain")) == 5
    assert not session.stop()
    assert session.stop().basis == "none"
    with pytest.raises(ValueError, match="no row has been answered yes yet; label at least one"):
        session.remaining()
    with pytest.raises(ValueError, match="no row has been answered yes yet"):
        session.model_  # noqa: B018


def test_when_every_row_has_an_answer_nothing_remains():
    session = SearchSession(X[:60])
    search(session, y[:60] == 3, 100, n=13)
    session.label([], True)
    assert session.suggest(5) == session.suggest(5, how="random") == []
    left = session.remaining()
    assert (left.count, left.count_low, left.count_high, left.n_rows) == (0, 0, 0, 0)
    assert session.recall() == 1
    assert session.stop(recall=1.0)
    assert str(session.stop()) == "Stop: 5 found, and every row has an answer."
    assert "(90% interval 0 to 0), based on an answer to every row" in str(left)


def test_one_row_with_two_answers_in_one_call_keeps_both():
    session = SearchSession(X)
    session.label([5, 5, 6], [True, False, True])
    assert session.labels() == {5: False, 6: True}
    kept = [(entry.id, entry.value) for entry in session.history()]
    assert kept == [(5, True), (5, False), (6, True)]
    assert session.undo() == [5, 6]
    assert session.labels() == {}


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix, lambda rows: [rows[:7], rows[7:]]])
def test_a_non_finite_row_does_not_cost_the_verifier(form):
    """A single such row used to leave the session with similarity alone."""
    rows = X.copy()
    rows[5, 2], rows[400] = np.nan, np.inf
    with pytest.warns(UserWarning, match=NOT_FINITE):
        session = SearchSession(form(rows))
    session.label([3, 13, 23, 5], True)
    session.label([0, 1, 2], False)
    scores = session.scores()
    bad = np.isin(np.arange(len(X)), [5, 400])
    assert np.isneginf(scores[bad]).all()
    expected = session.model_.log_likelihood_ratio(X[~bad])
    np.testing.assert_allclose(scores[~bad], expected, rtol=1e-6)
    assert session.remaining().n_rows == len(X) - 8  # seven have an answer, one more is bad


def test_when_every_row_is_a_member_nothing_remains():
    session = SearchSession(X[:20])
    session.label(range(20), True)
    assert session.remaining().count_high == 0
    assert session.recall() == 1
    assert session.stop()


def test_non_finite_rows_are_set_aside_but_can_be_labelled():
    broken = X.copy()
    broken[10, 3], broken[20] = np.nan, np.inf
    with pytest.warns(UserWarning, match=NOT_FINITE):
        session = SearchSession(broken)
    session.label([3, 13, 20], True)
    assert set(session.ranking()[-2:]) == {10, 20}
    assert session.labels()[20] is True
    shown = session.suggest(len(X))
    assert len(shown) == len(X) - 4
    assert not {10, 20} & set(shown)


@pytest.fixture
def gaps():
    """A session whose rows 10, 20 and 23 are not finite; rows 3, 13 and 23 show a three."""
    broken = X.copy()
    broken[[10, 20, 23], 3] = np.nan
    with pytest.warns(UserWarning, match="never shown") as said:
        session = SearchSession(broken)
    assert [str(warning.message) for warning in said] == [
        "3 of 900 rows have missing or infinite values and are never shown; the first is 10. "
        "Nothing is learned from them; fill them in to search them"
    ]
    return session


@pytest.mark.parametrize("basis", ["model", "audit", "every"])
def test_bounds_say_how_many_rows_they_do_not_cover(gaps, basis):
    gaps.label([3, 13, 45], True)
    gaps.label(gaps.suggest(60), False)
    if basis != "model":
        gaps.label(gaps.suggest(40 if basis == "audit" else 900, how="random"), False)
    unseen = "Rows with missing or infinite values can never be shown and are not counted: "
    assert gaps.remaining().note.endswith(f"{unseen}3 of 900.")
    assert str(gaps.stop()).endswith(f"{unseen}3 of 900.")
    assert ("and every finite row has an answer" in str(gaps.stop())) == (basis == "every")
    gaps.label([10, 20], False)  # known from elsewhere
    assert str(gaps.stop()).endswith(f"{unseen}1 of 900.")
    gaps.label(23, False)
    assert "missing" not in gaps.remaining().note + str(gaps.stop())


def test_an_answer_for_a_row_that_is_not_finite_leaves_an_audit_as_it_was(gaps):
    """Such a row is not among those from which the audit was drawn."""
    gaps.label([3, 13, 45], True)
    gaps.label(gaps.suggest(100, how="random"), False)
    before = gaps.remaining()
    gaps.label([20, 23], True)
    after = gaps.remaining()
    assert (after.count_high, after.n_rows) == (before.count_high, before.n_rows)


def test_an_example_that_is_not_finite_is_named(gaps):
    message = (
        "nothing can be learned from row 23, which was answered yes but has missing or infinite "
        "values; label an example that is finite"
    )
    gaps.label(23, True)
    for ask in (gaps.scores, gaps.remaining, lambda: gaps.model_):
        with pytest.raises(ValueError, match=message):
            ask()
    assert message in str(gaps.stop())
    gaps.label([3, 13], True)
    assert len(gaps.scores()) == 900


@pytest.mark.parametrize(
    ("gallery", "ids", "message"),
    [
        (np.empty((0, 4)), None, r"the gallery is empty with shape \(0, 4\); give at least one"),
        (np.empty((4, 0)), None, r"the gallery is empty with shape \(4, 0\)"),
        (np.full((3, 2), np.nan), None, "none of the 3 rows of the gallery is finite; fill in"),
        (np.ones(5), None, r"shape \(5,\) and must have two dimensions"),
        (pd.Series([[1.0, 2.0], [3.0, 4.0]]), None, r"shape \(2,\) and must have two dimensions"),
        (np.array([["a", "b"]]), None, "has the type <U1; it must hold numbers"),
        ([X[:5], X[:5, :7]], None, r"blocks of the gallery have \[7, 64\] columns"),
        (X[:3], ["a", "b", "a"], "ids must be distinct, but 'a' names the rows 0 and 2; leave"),
        (X[:3], ["a", "b"], "ids has 2 entries but the gallery has 3 rows"),
        (X[:2], [(1, 2), (3, 4)], r"the id of row 0 is \(1, 2\); ids must be text or numbers"),
        (X[:2], [True, False], "the id of row 0 is True; ids must be text or numbers"),
        (Gallery(X[:2]), ["a", "b"], "this gallery already has ids; leave ids out"),
        (np.ma.masked_greater(X, 15), None, "has masked values, and masks would be ignored; fill"),
        (
            pd.DataFrame({"size": [1.0, 2.0], "name": ["x", "y"]}),
            None,
            "the column 'name' of the gallery has the type .* and must hold numbers; leave it out",
        ),
    ],
)
def test_a_gallery_that_cannot_be_searched_is_refused(gallery, ids, message):
    with pytest.raises(ValueError, match=message):
        SearchSession(gallery, ids)


def test_nullable_numbers_and_booleans_of_a_data_frame_are_numbers():
    """pandas makes an array of objects of such a frame, which was refused."""
    frame = pd.DataFrame(X).astype("Float64")
    frame[0] = X[:, 0] > 0
    frame.iloc[5, 2] = pd.NA
    rows = X.copy()
    rows[:, 0], rows[5, 2] = X[:, 0] > 0, np.nan
    orders = []
    for gallery in (frame, rows):
        with pytest.warns(UserWarning, match="1 of 900 rows have missing"):
            session = SearchSession(gallery)
        session.label([3, 13], True)
        orders.append(session.ranking())
    assert orders[0] == orders[1]


def test_a_column_of_lists_is_an_embedding():
    columns = {"size": X[:, 0], "picture": list(X[:, 1:])}
    table = pa.table({"size": X[:, 0], "picture": pa.array(X[:, 1:].tolist())})
    orders = []
    for gallery in (X, pd.DataFrame(columns), table):
        session = SearchSession(gallery)
        session.label([3, 13], True)
        orders.append(session.ranking())
    assert orders[1] == orders[2] == orders[0]
    columns["picture"][5] = X[5, :7]
    with pytest.raises(ValueError, match="'picture' has a list of 7 numbers in row 5"):
        SearchSession(pd.DataFrame(columns))


def test_numpy_scalars_in_a_list_are_ids():
    session = SearchSession(X[:3], [np.int64(7), np.str_("a"), np.float64(0.5)])
    assert [type(name) for name in session.gallery.ids] == [int, str, float]
    session.label([np.int64(7)], True)
    assert session.labels() == {7: True}


def test_an_unknown_id_is_named_and_the_other_labels_are_kept():
    session = SearchSession(X)
    with pytest.raises(
        ValueError,
        match="the id 'x' is not in the gallery, whose ids are the row numbers 0 to 899; 2 "
        "other labels were stored",
    ):
        session.label([1, "x", 2], [True, True, False])
    assert session.labels() == {1: True, 2: False}
    with pytest.raises(ValueError, match=r"the id \[1\] is not in the gallery"):
        session.label([[1]], True)
    named = SearchSession(X[:2], ["a", "b"])
    match = "2 ids are not in the gallery, the first of them 'x'; its ids look like 'a'"
    with pytest.raises(ValueError, match=match):
        named.label(["x", "y"], True)


def test_weights_that_the_session_chose_are_no_reason_to_warn():
    session = SearchSession(X[:2])
    session.label([0], True)
    session.refit()
    assert session.labels() == {0: True}


@pytest.mark.parametrize("form", [np.asarray, list, lambda mask: True, lambda mask: [5, mask[0]]])
def test_a_mask_is_no_list_of_ids(form):
    """True and False are equal to 1 and 0, so a mask used to label the rows 0 and 1."""
    session = SearchSession(X)
    with pytest.raises(ValueError, match=r"are not ids; give np.flatnonzero\(mask\)"):
        session.label(form(y == 3), True)
    assert session.labels() == {}
    named = SearchSession(X, ids=[f"img{row}" for row in range(len(X))])
    with pytest.raises(ValueError, match=r"give np.asarray\(ids\)\[mask\]"):
        named.label(form(y == 3), True)


def test_a_mask_converted_as_the_message_says_labels_its_rows():
    session = SearchSession(X)
    session.label(np.flatnonzero(y == 3), True)
    assert list(session.labels()) == np.flatnonzero(y == 3).tolist()
    ids = [f"img{row}" for row in range(len(X))]
    named = SearchSession(X, ids)
    named.label(np.asarray(ids)[y == 3], True)
    assert list(named.labels()) == [f"img{row}" for row in np.flatnonzero(y == 3)]


@pytest.mark.parametrize("who", [50, b"ann", ["ann"]])
def test_a_person_is_named_by_text(who):
    session = SearchSession(X)
    session.label(1, True)
    message = re.escape(f"who={who!r} must be text, the name of a person")
    with pytest.raises(ValueError, match=message + "; leave it out to undo the last call"):
        session.undo(who)
    with pytest.raises(ValueError, match=message):
        session.label(2, True, who=who)
    assert session.labels() == {1: True}


def test_one_example_gives_a_model_without_a_threshold():
    session = SearchSession(X)
    session.label(3, True)
    assert isinstance(session.model_, PCSDA)
    assert not hasattr(session.model_, "threshold_")
    message = "no left-out examples to choose a threshold from; label at least two examples"
    with pytest.raises(ValueError, match=message):
        session.choose_threshold(max_false_alarms=0.01)
    session.label([13, 23], True)
    assert hasattr(session.model_, "threshold_")


def test_a_threshold_needs_no_random_negatives():
    """Asking for a rate of false alarms used to end in an AssertionError, later in a refusal."""
    session = SearchSession(X[:340])
    session.label(np.setdiff1d(np.arange(340), session._drawn), False)
    session.label(session._drawn, True)
    with pytest.warns(UserWarning, match="the smallest rate that 40 negatives can show"):
        assert session.choose_threshold(max_false_alarms=0.01).n_negatives == 40
    assert session.choose_threshold(max_misses=0.1).misses <= 0.1


def test_a_single_negative_gives_no_threshold():
    session = SearchSession(X[:40])
    session.label(np.arange(39), True)
    session.label(39, False)
    assert not hasattr(session.model_, "threshold_")
    with pytest.raises(ValueError, match="choose a threshold from; add rows to the gallery"):
        session.choose_threshold(max_false_alarms=0.01)


def test_a_session_is_shown_with_its_size_and_progress():
    session = SearchSession(X)
    assert repr(session) == "<SearchSession: 900 rows, 64 columns; 0 answered, 0 found>"
    session.label([3, 13, 1, 2], [True, True, False, None])
    assert repr(session) == "<SearchSession: 900 rows, 64 columns; 4 answered, 2 found>"
    session.close()
    assert repr(session) == "<SearchSession: 900 rows, 64 columns; its store cannot be read>"


@pytest.mark.parametrize("value", ["maybe", 2, 0.5, pd.NA, float("nan")])
def test_invalid_answers_are_refused(value):
    with pytest.raises(ValueError, match="is not an answer; use True, False or None, or 'yes'"):
        SearchSession(X).label(1, value)


@pytest.mark.parametrize("n", [0, 1.5, "5", None, np.nan, np.inf, [3], True])
def test_the_number_of_suggestions_is_a_whole_number(n):
    with pytest.raises(ValueError, match=re.escape(f"n={n!r} must be a whole number of at least")):
        SearchSession(X).suggest(n)


@pytest.mark.parametrize("seed", [-1, 1.5, None, "0", True])
def test_a_wrong_seed_is_refused_before_the_store_keeps_it(tmp_path, seed):
    """A negative seed stayed in the store, which no session could open after that."""
    path = tmp_path / "labels.db"
    message = re.escape(f"random_state={seed!r} must be a whole number of at least 0")
    with pytest.raises(ValueError, match=message):
        SearchSession(X, store=path, random_state=seed)
    assert not path.exists()
    SearchSession(X, store=path, random_state=np.int64(3)).label(3, True)


def test_a_session_cannot_be_copied():
    session = SearchSession(X)
    for duplicate in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match=r"cannot be copied or pickled; save\(path\) writes"):
            duplicate(session)


def test_a_closed_session_says_so():
    session = SearchSession(X)
    session.close()
    with pytest.raises(StoreError, match=r"the session is closed .* open it again\."):
        session.label(1, True)


def test_a_verifier_without_left_out_ratios_is_named():
    """Both messages asked for a second example, although three had been given."""
    session = SearchSession(X, estimator=pcsda.CSDA())
    session.label([3, 13, 23], True)
    message = "CSDA keeps no left-out ratio for each row"
    assert session.remaining().note.startswith(message)
    with pytest.raises(ValueError, match="choose a threshold from; use an estimator that does"):
        session.choose_threshold(max_false_alarms=0.01)
    with pytest.raises(TypeError, match=r"must be a verifier, such as PCSDA\(\), or a pipeline"):
        SearchSession(X, estimator=PCSDA)
    with pytest.raises(ValueError, match="carry_over='no' must be True or False"):
        SearchSession(X, carry_over="no")


def test_a_tiny_gallery_does_not_warn_of_weights_the_user_did_not_give(recwarn):
    session = SearchSession(X[:2])
    session.label(0, True)
    assert session.suggest(3) == [1]
    assert not list(recwarn)


def test_bad_arguments_are_named():
    session = SearchSession(X)
    with pytest.raises(ValueError, match="2 values were given for 1 ids; give one for each"):
        session.label([1], [True, False])
    with pytest.raises(ValueError, match="how='best'"):
        session.suggest(how="best")
    with pytest.raises(ValueError, match="n=0 must be a whole number of at least 1"):
        session.suggest(0)
    with pytest.raises(ValueError, match=r"recall=1.5 must be above 0 and at most 1"):
        session.stop(recall=1.5)
    with pytest.raises(ValueError, match=r"recall='all' must be above 0 and at most 1"):
        session.stop(recall="all")
    with pytest.raises(ValueError, match="exactly one"):
        session.choose_threshold()


@pytest.mark.filterwarnings("ignore:Number of distinct clusters")
@pytest.mark.parametrize("gallery", [np.ones((6, 3)), np.repeat([[0.0, 1], [1, 0]], 3, axis=0)])
def test_equal_rows_do_not_end_a_session(gallery):
    session = SearchSession(gallery)
    session.label(0, True)
    session.label(5, False)
    assert len(session.suggest(10)) == 4
    assert set(session.ranking()) == set(range(6))
    assert not session.stop()


def test_a_gallery_may_have_one_row():
    session = SearchSession([[1.0, 2.0]])
    assert session.suggest() == [0]
    session.label(0, True)
    assert session.ranking() == [0]
    assert session.suggest() == []


@pytest.mark.parametrize("scale", [1e-30, 1e20])
def test_the_scale_of_the_gallery_does_not_matter(scale):
    session = SearchSession(X * scale)
    session.label([3, 13, 23], True)
    assert np.mean(y[session.suggest(20)] == 3) > 0.7


@pytest.mark.parametrize("estimator", [None, KernelPCSDA(gamma="scale", random_state=0)])
def test_single_precision_scores_match_the_model(estimator):
    session = SearchSession(X.astype(np.float32), estimator=estimator)
    session.label(np.flatnonzero(y == 3)[:40], True)
    exact = session.model_.log_likelihood_ratio(X)
    np.testing.assert_allclose(session.scores(), exact, atol=2e-3)


def test_rows_whose_squares_overflow_get_the_models_scores():
    session = SearchSession(X.astype(np.float32))
    session.label(np.flatnonzero(y == 3)[:40], True)
    far = session.model_.transform(X[:9] * np.float32(1e22)).astype(np.float32)
    np.testing.assert_allclose(quick_scores_of(session.model_, far), scores_of(session.model_, far))


@pytest.mark.parametrize("answered", [False, True])
def test_an_extreme_row_spoils_nothing(answered):
    """Such a row put all others into one cluster; after a "no" to it, few members were found."""
    rows = X.astype(np.float32)
    rows[100] *= 1e21
    with pytest.warns(UserWarning, match="1 of 900 rows have entries .* the first is 100 with"):
        session = SearchSession(rows)
    assert len(np.unique(session._clusters.of(rows))) == 20
    session.label([3, 13, 23], True)
    if answered:
        session.label(100, False)
    assert search(session, y == 3, 8) > 0.9 * np.sum(y == 3)
    assert session.remaining().count_high < 60


def test_an_extreme_example_is_better_than_none():
    rows = X.astype(np.float32)
    rows[3] *= 1e21
    with pytest.warns(UserWarning, match="the first is 3 with"):
        session = SearchSession(rows)
    session.label(3, True)
    assert len(session.suggest(5)) == 5


def test_users_may_bring_their_own_estimator():
    session = SearchSession(X, estimator=KernelPCSDA(gamma="scale", random_state=0))
    session.label(np.flatnonzero(y == 3)[:3], True)
    assert search(session, y == 3, 2) > 30
    assert isinstance(session.model_, KernelPCSDA)
    assert session.remaining().n_rows == len(X) - 43


def test_the_threshold_of_the_model_holds_for_random_rows(searched):
    threshold = searched.choose_threshold(max_false_alarms=0.05)
    assert searched.model_.threshold_ == threshold
    unseen = np.setdiff1d(np.flatnonzero(y != 3), list(searched.labels()))
    assert searched.model_.accepts(X[unseen]).mean() < 0.1
    assert "on the whole gallery; about 2 members left according to the model" in threshold.rule


@pytest.mark.more  # six searches
def test_random_rows_answered_no_stay_in_the_sample():
    """Without them, only easy negatives would be left for choosing the threshold."""
    rates = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        truth = rng.random(4000) < 0.1
        rows = rng.normal(size=(4000, 8))
        rows[truth, 0] += 2.5
        session = SearchSession(rows[:1000], random_state=seed)
        session.label(np.flatnonzero(truth[:1000])[:3], True)
        search(session, truth, 25)
        session.choose_threshold(max_false_alarms=0.05)
        rates.append(session.model_.accepts(rows[1000:][~truth[1000:]]).mean())
    assert 0.025 < np.mean(rates) < 0.075


@pytest.fixture(scope="module")
def partly_searched():
    """Search for each of four digits with 40 answers, all of them finds, and choose a threshold."""
    rows, digits = load_digits(return_X_y=True)
    seen = []
    for digit in (0, 4, 6, 7):
        session = SearchSession(rows)
        session.label(np.flatnonzero(digits == digit)[:3], True)
        search(session, digits == digit, 2)
        threshold = session.choose_threshold(max_false_alarms=0.01)
        seen.append((threshold, digits == digit, session._verified().unseen(np.arange(len(rows)))))
    return seen


def test_false_alarms_are_as_promised_while_most_of_the_class_is_hidden(partly_searched):
    """Hidden members were taken for negatives: the rates were 0 to 0.001 instead of 0.01."""
    rates = [np.mean(scores[~truth] >= chosen.value) for chosen, truth, scores in partly_searched]
    assert 0.005 < np.exp(np.mean(np.log(np.maximum(rates, 1e-4)))) < 0.02
    assert max(rates) < 0.03


def test_misses_include_hidden_members(partly_searched):
    """Measured on finds alone they were 2 to 4%, when 47 to 65% were missed."""
    for chosen, truth, scores in partly_searched:
        missed = np.mean(scores[truth] < chosen.value)
        assert chosen.misses_interval[0] <= missed <= chosen.misses_interval[1]
        assert abs(chosen.misses - missed) < 0.15
        assert "the answers hardly tell how many it misses" in chosen.rule


def test_a_session_resumes_where_it_stopped(tmp_path):
    first = SearchSession(X, store=tmp_path / "labels.db")
    first.label([3, 13, 23], True)
    search(first, y == 3, 1)
    order = first.ranking()
    other = SearchSession.open(tmp_path / "labels.db", X)
    assert other.labels() == first.labels()
    assert other.ranking() == order
    first.label(other.suggest(5), False)  # both see what either writes
    assert other.labels() == first.labels()
    assert other.ranking() == first.ranking()
    first.save(tmp_path / "copy.db")
    first.undo()
    assert len(SearchSession.open(tmp_path / "copy.db", X).labels()) == 28
    with pytest.raises(FileNotFoundError, match=r"none\.db does not exist"):
        SearchSession.open(tmp_path / "none.db", X)
    first.close()


def test_another_gallery_is_refused_or_carried_over(tmp_path):
    path = tmp_path / "labels.db"
    session = SearchSession(X, store=path)
    session.label([3, 899], True)
    with pytest.raises(StoreError, match=r"another gallery \(shape \(900, 64\); this one has \(8"):
        SearchSession(X[:800], store=path)
    with pytest.raises(StoreError, match="the same shape, but other rows, ids or type"):
        SearchSession(X + 1, store=path)
    smaller = SearchSession(X[:800], store=path, carry_over=True)
    assert smaller.labels() == {3: True}
    assert smaller.suggest(3)
    back = SearchSession(X, store=path, carry_over=True)
    assert back.labels() == {3: True, 899: True}


def test_a_store_without_labels_takes_any_gallery(tmp_path):
    path = tmp_path / "labels.db"
    SearchSession(X, store=path).close()
    session = SearchSession(X[:800], store=path)
    session.label([3], True)
    session.close()
    with pytest.raises(StoreError, match=r"another gallery \(shape \(800, 64\)"):
        SearchSession(X, store=path)


def test_an_audit_of_another_gallery_bounds_nothing(tmp_path):
    """Its rows came from the other gallery; the bound was for 400 rows instead of 897."""
    path = tmp_path / "labels.db"
    session = SearchSession(X[:400], store=path)
    session.label(np.flatnonzero(y == 3)[:3], True)
    for n in (100, 20):
        rows = session.suggest(n, how="random")
        session.label(rows, y[rows] == 3)
    assert session.remaining().basis == "audit"
    session.close()
    larger = SearchSession(X, store=path, carry_over=True)
    left = larger.remaining()
    assert left.basis == "model"
    assert left.n_rows == len(X) - 123
    rows = larger.suggest(50, how="random")
    assert len(larger.store.audits()) == 1
    larger.label(rows, y[rows] == 3)
    assert larger.remaining().basis == "audit"
    assert larger.remaining().n_rows == len(X) - 173
    larger.close()
    assert SearchSession(X, store=path).remaining().basis == "audit"


def test_labels_read_in_pieces_equal_labels_read_at_once(tmp_path):
    """This holds whoever gives or withdraws them."""
    path = tmp_path / "labels.db"
    one, two = SearchSession(X, store=path), SearchSession(X, store=path)
    rng = np.random.default_rng(0)
    for step in range(30):
        session = (one, two)[step % 2]
        rows = rng.choice(len(X), 5, replace=False)
        session.label(rows, rng.choice([True, False, None], 5).tolist(), who=f"{step % 3}")
        if step % 7 == 5:
            (two, one)[step % 2].undo(f"{step % 3}")
        if step % 3:
            fresh = SearchSession(X, store=path)
            for other in (one, two):
                assert list(other.labels().items()) == list(fresh.labels().items())
                assert other.history() == fresh.history()
            fresh.close()


def test_threads_share_a_session(tmp_path):
    session = SearchSession(X, store=tmp_path / "labels.db")
    session.label([3, 13, 23], True)

    def work(start):
        for row in range(start, start + 20, 4):
            session.label(row, bool(y[row] == 3))
            session.suggest(3)

    threads = [threading.Thread(target=work, args=(100 + part,)) for part in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(session.labels()) == 23
    assert set(session.labels()) == {3, 13, 23, *range(100, 120)}


def test_answers_are_read_once_by_threads_that_read_at_the_same_time(monkeypatch):
    session = SearchSession(X)
    session.label([0, 1], False)
    read = session.store.entries

    def slowly(after):
        found = read(after)
        time.sleep(0.1)
        return found

    monkeypatch.setattr(session.store, "entries", slowly)
    threads = [threading.Thread(target=session.stop) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [entry.id for entry in session.history()] == [0, 1]


def test_a_verifier_can_be_pickled(searched):
    model = pickle.loads(pickle.dumps(searched.model_))
    np.testing.assert_array_equal(model.rank(X), searched.model_.rank(X))


def rare():
    """A session in which many answers are "no", so that the count rests on the answers."""
    keep = np.flatnonzero((y != 8) | (np.cumsum(y == 8) <= 30))
    session, truth = SearchSession(X[keep]), y[keep] == 8
    session.label(np.flatnonzero(truth)[:3], True)
    search(session, truth, 3)
    assert np.mean([value is False for value in session.labels().values()]) > 0.4
    return session, truth


def test_an_answer_keeps_the_score_that_the_row_had_before_it():
    session, truth = rare()
    assert all(entry.score is None for entry in session.history()[:3])
    rows, before = session.suggest(20), session.scores()
    session.label(rows, truth[rows])
    known = [entry.score for entry in session.history()[-20:]]
    drawn = np.isin(rows, session._drawn)  # the model has learned from these, so they are left out
    np.testing.assert_allclose(np.array(known)[~drawn], before[rows][~drawn])
    if drawn.any():
        assert (np.array(known)[drawn] != before[rows][drawn]).all()
    session.refit()
    session.label(rows[0], not truth[rows[0]])
    assert session.history()[-1].score is None  # the model had seen an answer for this row
    session.undo()
    assert session.history()[-1].score == known[-1]


def test_the_count_survives_saving_undo_and_skips(tmp_path):
    session, truth = rare()
    before = session.remaining()
    session.save(tmp_path / "labels.db")
    rows = np.flatnonzero((y != 8) | (np.cumsum(y == 8) <= 30))
    assert SearchSession.open(tmp_path / "labels.db", X[rows]).remaining() == before
    shown = session.suggest(20)
    session.label(shown, truth[shown])
    assert session.remaining() != before
    session.undo()
    assert session.remaining() == before
    session.label(shown[0], None)
    assert session.remaining().count == pytest.approx(before.count, rel=0.2)


def test_the_count_does_not_need_rows_that_were_suggested():
    """Answers given by id have a score as well, and labels of an earlier version have none."""
    session, truth = rare()
    unknown = [row for row in range(len(truth)) if row not in session.labels()][:10]
    session.label(unknown, truth[unknown])
    assert 0 <= session.remaining().count_low <= session.remaining().count_high
    with session.store._writing():
        session.store._base.execute("UPDATE labels SET score = NULL")
    again = SearchSession(session.gallery)
    again.store = again._book.store = session.store
    left = int(truth.sum()) - sum(value is True for value in session.labels().values())
    assert again.remaining().count_low <= left <= again.remaining().count_high
