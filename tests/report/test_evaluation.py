"""The numbers in a report: exact counts, thinned curves, and the right rows listed."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit, logit
from sklearn.datasets import make_blobs
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import pcsda
from pcsda import CSDA, PCSDA, PCSDACV, KernelPCSDA, NystroemMap, VerifierBank, metrics
from pcsda.datasets import make_class_specific
from pcsda.report import evaluate, evaluate_scores, page
from pcsda.report.figures import Settings, percent
from pcsda.report.reasons import EXPLAINED
from pcsda.report.subspaces import subspace_sample
from pcsda.report.views import CURVE_POINTS, make_view
from pcsda.report.words import answer, summary
from pcsda.scoring import Scorer

SETTINGS = Settings(0.5, 1.0, 1.0, 0.3, 0.95, 10, 0, False)


@pytest.fixture(scope="module")
def blobs():
    X, y = make_blobs(400, 6, centers=4, cluster_std=3.0, random_state=0)
    names = np.array(["ash", "birch", "cedar", "<b>&"])[y]
    return X[:250], names[:250], X[250:], names[250:]


def one(blobs, label="birch"):
    X, y, *_ = blobs
    return PCSDA(n_subclasses=3, random_state=0, pos_label=label).fit(
        X, np.where(y == label, label, "rest")
    )


trials = st.lists(
    st.tuples(st.booleans(), st.floats(-20, 20, width=32)), min_size=2, max_size=60
).filter(lambda rows: len({positive for positive, _ in rows}) == 2)


@given(trials, st.floats(-5, 5))
def test_counts_at_every_threshold_are_exact(rows, threshold):
    positive = np.array([p for p, _ in rows])
    llr = np.array([s for _, s in rows])
    chosen = Settings(0.5, 1.0, 1.0, threshold, 0.95, 10, 0, False)
    view = make_view("x", positive, llr, chosen)
    for place, at in enumerate(view.thresholds):
        assert view.misses[place] == (llr[positive] < at).sum()
        assert view.false_alarms[place] == (llr[~positive] >= at).sum()
    # From all accepted to all rejected, including every mark.
    assert (view.misses[0], view.false_alarms[-1]) == (0, 0)
    assert view.misses[-1] == view.n_positive
    assert set(view.marks.values()) <= set(view.thresholds.tolist())
    if threshold <= llr.max():
        assert view.counts() == (
            (llr[positive] < threshold).sum(),
            (llr[~positive] >= threshold).sum(),
        )


def test_a_thinned_curve_stays_close():
    rng = np.random.default_rng(0)
    positive = np.repeat([True, False], [3000, 30_000])
    llr = rng.normal(np.where(positive, 2.0, 0.0))
    view = make_view("x", positive, llr, SETTINGS)
    assert len(view.thresholds) <= CURVE_POINTS + 10
    miss, alarm = view.misses / 3000, view.false_alarms / 30_000
    # Every step of the curve is small on both axes.
    assert np.diff(miss).max() < 0.02
    assert -np.diff(alarm).min() < 0.02
    # The tails are there: the smallest rates are those of single trials.
    assert np.min(alarm[alarm > 0]) == 1 / 30_000
    eer = metrics.equal_error_rate(positive, llr)[0]
    at_equal = view.counts("equal errors")
    assert at_equal[0] / 3000 == pytest.approx(eer, abs=1e-3)


def test_one_of_several_views_gets_a_share_of_the_space():
    positive = np.arange(4000) % 4 == 0
    llr = np.random.default_rng(1).normal(size=4000)
    whole, part = (make_view("x", positive, llr, SETTINGS, share) for share in (1, 5))
    assert len(part.thresholds) < len(whole.thresholds) / 4
    assert len(part.listed["place"]) == len(whole.listed["place"]) / 5


def test_the_worst_errors_are_listed(blobs):
    *_, X, y = blobs
    found = evaluate(one(blobs), X, y, n_resamples=5)
    view = found.views[0]
    llr = one(blobs).log_likelihood_ratio(X)
    positive = y == "birch"
    listed = view.listed
    lowest = listed["place"][listed["positive"]]
    np.testing.assert_array_equal(lowest, np.flatnonzero(positive)[np.argsort(llr[positive])][:100])
    np.testing.assert_allclose(listed["llr"], llr[listed["place"]])
    highest = listed["llr"][~listed["positive"]]
    assert highest[0] == llr[~positive].max()
    assert (np.diff(highest) <= 0).all()


def test_histogram_counts_everything(blobs):
    *_, X, y = blobs
    view = evaluate(one(blobs), X, y, n_resamples=5).views[0]
    assert view.histogram["positive"].sum() == view.n_positive
    assert view.histogram["negative"].sum() == view.n_negative
    flat = make_view("x", np.array([True, False]), np.zeros(2), SETTINGS)
    assert flat.histogram["positive"].sum() == 1


@pytest.mark.parametrize("n_positive", [0, 3, 900, 5000])
def test_a_subspace_sample_keeps_small_groups(n_positive):
    positive = np.arange(5000) < n_positive
    rows = subspace_sample(positive, 0)
    assert len(rows) <= 1200
    assert (np.diff(rows) > 0).all()
    assert positive[rows].sum() == min(n_positive, 600)


@pytest.mark.parametrize(
    "model",
    [
        PCSDA(n_subclasses=3, random_state=0),
        CSDA(n_components=1, random_state=0),
        KernelPCSDA(n_subclasses=2, random_state=0),
        PCSDACV(PCSDA(random_state=0), n_subclasses=[2], n_components=[1, 2], regularization=0.1),
        PCSDACV(make_pipeline(StandardScaler(), PCSDA()), n_subclasses=2, n_components=1, cv=2),
        make_pipeline(NystroemMap(30, random_state=0), PCSDA(random_state=0)),
    ],
    ids=["PCSDA", "CSDA", "kernel", "search", "search of pipelines", "pipeline"],
)
def test_every_model_is_measured(blobs, model):
    X, y, X_test, y_test = blobs
    model.fit(X, y == "cedar")
    found = evaluate(model, X_test, y_test, pos_label="cedar", n_resamples=5)
    scorer = Scorer(model)
    final = scorer.verifier()
    assert scorer.labels == [True]
    assert scorer.n_features == 6
    assert found.names == ["cedar"]
    llr = scorer.log_likelihood_ratios(X_test)[:, 0]
    eer = metrics.equal_error_rate(y_test == "cedar", llr)[0]
    assert found.figures[0].value == found.views[0].eer == pytest.approx(eer)
    (points,) = found.subspaces
    z = scorer.coordinates(X_test)
    assert z.shape == (150, final.n_components_)
    np.testing.assert_allclose(points["x"], z[:, 0])
    np.testing.assert_allclose(points["y"], z[:, 1] if z.shape[1] > 1 else llr)
    np.testing.assert_array_equal(points["positive"], y_test == "cedar")
    np.testing.assert_allclose(scorer.closeness(X_test), -np.linalg.norm(z, axis=1))
    assert found.settings.prior == pytest.approx(final.class_prior_[1])


@pytest.mark.parametrize("before", [False, True])
def test_a_bank_is_measured_label_by_label(blobs, before):
    X, y, X_test, y_test = blobs
    bank = VerifierBank(PCSDA(n_subclasses=3, random_state=0))
    model = make_pipeline(StandardScaler(), bank) if before else bank
    model.fit(X, y)
    found = evaluate(model, X_test, y_test, n_resamples=5)
    assert [view.name for view in found.views] == ["all labels", *bank.classes_]
    ratios = Scorer(model).log_likelihood_ratios(X_test)
    whole, *views = found.views
    assert (whole.n_positive, whole.n_negative) == (150, 450)
    for column, view in enumerate(views):
        eer = metrics.equal_error_rate(y_test == view.name, ratios[:, column])[0]
        assert view.eer == pytest.approx(eer)
    assert found.subspaces[0] is None
    assert len(found.subspaces) == 5
    # Places of the first view count through the labels one after the other.
    place = whole.listed["place"]
    np.testing.assert_allclose(whole.listed["llr"], ratios[place % 150, place // 150])
    rank_1 = found.figures[0]
    assert rank_1.key == "rank_1"
    best = bank.classes_[ratios.argmax(axis=1)]
    assert rank_1.value == pytest.approx((best == y_test).mean())
    assert "The right label comes first for " in " ".join(summary(found))


@pytest.mark.filterwarnings("ignore:at the threshold of")  # three labels alone know few strangers
def test_the_evaluation_of_a_bank_says_what_identify_does(blobs):
    X, y, X_test, y_test = blobs
    inside = y != "cedar"
    bank = VerifierBank(PCSDA(n_subclasses=3, random_state=0)).fit(X[inside], y[inside])
    found = evaluate(bank, X_test, y_test, n_resamples=10)
    names = bank.identify(X_test, unknown="nobody")
    known, named = y_test != "cedar", names != "nobody"
    assert named[known].any()
    assert found.facts["Names by identify"] == (
        f"at its threshold {bank.threshold_.value:.4g} it names {(names == y_test).sum()} of "
        f"{known.sum()} rows of its labels correctly, {(known & named & (names != y_test)).sum()} "
        f"wrongly, and calls {(known & ~named).sum()} unknown; of {(~known).sum()} strangers it "
        f"names {(~known & named).sum()}"
    )
    first, second, *_ = summary(found)
    assert first == f"A{found.facts['Names by identify'][1:]}."
    assert second.startswith("Verifying each label on its own, at the threshold 0.00 it finds ")
    html = page.render(found)
    assert html.index("At its threshold ") < html.index("pcsda identify MODEL NEW.csv")
    assert "pcsda score MODEL" not in html


def test_a_name_that_many_subclasses_share_is_drawn_once(blobs):
    X, y, X_test, y_test = blobs
    model = PCSDA(n_subclasses=12, random_state=0).fit(X, y == "ash")
    names = np.array(["oak", "oak", "fir"])[np.arange(12) % 3]
    model.name_rows(np.where(y == "ash", "ash", names[np.maximum(model.partition_, 1) - 1]))
    found = evaluate(model, X_test, y_test == "ash", n_resamples=10)
    (drawn,) = found.subspaces
    (oak,) = (centre for centre in drawn["centres"] if centre[0].startswith("oak"))
    assert oak[0] == "oak (largest of 8)"
    largest = max(np.flatnonzero(names == "oak"), key=lambda i: model.subclass_counts_[i])
    np.testing.assert_allclose(oak[1:], model.density_.base.subclasses[largest, :2])
    assert found.facts["Subclasses"] == "12: 8 oak, 4 fir"


def test_centres_without_a_second_coordinate_are_not_drawn(blobs):
    """The second axis of a contaminated fit may belong to another model than its subclasses."""
    X, y, X_test, y_test = blobs
    model = PCSDA(n_components=1, pos_label="ash", contamination=0.05, random_state=0)
    model.fit(X, y, subclass_labels=y)
    assert model.n_components_ == 2
    found = evaluate(model, X_test, y_test, n_resamples=2)
    assert found.subspaces[0]["centres"] == []
    assert page.render(found)


@pytest.mark.parametrize("groups", [None, np.repeat(np.arange(15), 3)])
def test_zero_errors_in_few_rows_leave_a_wide_interval(blobs, groups):
    _, _, X_test, y_test = blobs
    positive = y_test == "birch"
    rows = np.r_[np.flatnonzero(positive)[:15], np.flatnonzero(~positive)[:30]]
    ratios = np.where(positive[rows], 9.0, -9.0)[:, None]
    found = evaluate_scores(
        one(blobs),
        ratios,
        y_test[rows],
        lambda chosen: X_test[rows[chosen]],
        pos_label="birch",
        n_resamples=10,
        groups=groups,
        level=0.9,
    )
    by_key = {figure.key: figure for figure in found.figures}
    positives, negatives = (15, 30) if groups is None else (5, 10)
    for key, n in (("misses", positives), ("false_alarms", negatives), ("eer", positives)):
        assert (by_key[key].value, by_key[key].low) == (0, 0)
        # At this rate, one test in twenty shows so many rows without an error.
        assert (1 - by_key[key].high) ** n == pytest.approx(0.05)
    best = by_key["precision_at_k"]
    assert (best.value, best.high) == (1, 1)
    assert best.low ** min(10, positives) == pytest.approx(0.05)


def test_intervals_of_a_bank_resample_rows(blobs):
    """Scores of one row for several labels are not independent trials."""
    X, y, X_test, y_test = blobs
    bank = VerifierBank(PCSDA(n_subclasses=3, random_state=0)).fit(X, y)
    found = evaluate(bank, X_test, y_test, n_resamples=10)
    ratios = bank.log_likelihood_ratio(X_test)
    truth = y_test[:, None] == bank.classes_
    expected = metrics.bootstrap_interval(
        metrics.equal_error_rate,
        truth.ravel(order="F"),
        ratios.ravel(order="F"),
        groups=np.tile(np.arange(150), 4),
        n_resamples=10,
        random_state=found.settings.seed,
    )
    eer = next(figure for figure in found.figures if figure.key == "eer")
    assert (eer.low, eer.high) == (expected.low, expected.high)


@pytest.mark.more
def test_with_many_labels_the_hardest_are_shown(monkeypatch):
    monkeypatch.setattr("pcsda.report.evaluation.LABEL_VIEWS", 3)
    X, y = make_blobs(300, 5, centers=6, cluster_std=3.0, random_state=1)
    bank = VerifierBank(PCSDA(n_subclasses=2, random_state=0)).fit(X[:200], y[:200])
    found = evaluate(bank, X[200:], y[200:], n_resamples=5)
    assert len(found.by_label) == 6
    shown = {view.name for view in found.views[1:]}
    ordered = sorted(found.by_label, key=lambda row: -row["eer"])
    assert shown == {row["label"] for row in ordered[:3]}


def test_a_bank_is_measured_on_rows_of_a_single_label(blobs):
    """Such rows include no negatives for their label, so no label has its own view."""
    X, y, X_test, y_test = blobs
    bank = VerifierBank(PCSDA(n_subclasses=3, random_state=0)).fit(X, y)
    found = evaluate(bank, X_test[y_test == "ash"], y_test[y_test == "ash"], n_resamples=5)
    n_rows = int((y_test == "ash").sum())
    assert [view.name for view in found.views] == ["all labels"]
    assert (found.views[0].n_positive, found.views[0].n_negative) == (n_rows, 3 * n_rows)
    assert found.subspaces == [None]
    assert [row["eer"] for row in found.by_label] == [None] * 4


def test_trials_have_one_label_each(blobs):
    *_, X, y = blobs
    model = one(blobs)
    ids = np.array([f"{label}{i % 3}" for i, label in enumerate(y)])
    found = evaluate(model, X, y, trials=ids, n_resamples=5)
    assert found.unit == "trial"
    assert found.ids.tolist() == np.unique(ids).tolist()
    assert found.views[0].n_positive == len(np.unique(ids[y == "birch"]))
    with pytest.raises(
        ValueError, match=r"\d+ trials have rows of different labels, such as trial"
    ):
        evaluate(model, X, y, trials=np.arange(150) % 4, n_resamples=5)


def test_many_scores_get_fewer_resamples():
    assert SETTINGS.resamples(10) == 10
    many = Settings(0.5, 1.0, 1.0, 0.0, 0.95, 1000, 0, False)
    assert many.resamples(1000) == 1000
    assert many.resamples(100_000) == 500
    assert many.resamples(10**8) == 50


def test_bad_input_is_refused(blobs):
    *_, X, y = blobs
    model = one(blobs)
    with pytest.raises(ValueError, match=r"y has no rows of the class of interest, 'birch'; an ev"):
        evaluate(model, X[y != "birch"], y[y != "birch"])
    with pytest.raises(ValueError, match=r"y has only rows of the class of interest, 'birch'"):
        evaluate(model, X[y == "birch"], y[y == "birch"])
    with pytest.raises(ValueError, match=r"inconsistent numbers of samples"):
        evaluate(model, X, y[:-1])
    with pytest.raises(ValueError, match=r"prior=2 must lie between 0 and 1"):
        evaluate(model, X, y, prior=2)
    with pytest.raises(ValueError, match=r"threshold=inf must be a finite number"):
        evaluate(model, X, y, threshold=np.inf)
    with pytest.raises(ValueError, match=r"ratios has 3 rows but must have 150, one for"):
        evaluate_scores(model, np.ones((3, 1)), y, lambda rows: X[rows])
    bank = VerifierBank(PCSDA(n_subclasses=2)).fit(*blobs[:2])
    with pytest.raises(ValueError, match=r"pos_label='oak' is not in the bank, which has \['<b>&'"):
        evaluate(bank, X, y, pos_label="oak")
    with pytest.raises(ValueError, match=r"y needs rows of the bank's labels, which are \['<b>&'"):
        evaluate(bank, X, np.repeat("oak", 150))
    with pytest.raises(
        ValueError, match=r"StandardScaler gives no log-likelihood ratio; use a mod"
    ):
        Scorer(StandardScaler().fit(X))


@pytest.mark.parametrize(
    ("share", "text"), [(0, "0%"), (1, "100%"), (0.1234, "12.3%"), (0.00123, "0.12%")]
)
def test_shares_are_written_in_percent(share, text):
    assert percent(share) == text


def test_notes_mention_calibration_and_few_positives(blobs):
    *_, X, y = blobs
    model = one(blobs)

    def told(factor):
        ratios = factor * Scorer(model).log_likelihood_ratios(X)
        found = evaluate_scores(model, ratios, y, lambda rows: X[rows], n_resamples=5)
        return " ".join(summary(found))

    costs = r"\(Cllr [\d.]+ bits, [\d.]+ at best\)"
    misleading = (
        rf"Its log-likelihood ratios mislead {costs}: recalibrate before using a threshold\."
    )
    assert re.search(misleading, told(-1))
    lossy = (
        rf"Its log-likelihood ratios lose [\d.]+ bits to poor calibration {costs}, so a threshold "
        r"from costs and prior is not the best one here; recalibrate on rows like these, or choose "
    )
    assert re.search(lossy, told(4))
    # Gaussian scores with a variance of twice their mean are true log-likelihood ratios.
    rng = np.random.default_rng(0)
    many = np.repeat(["birch", "ash"], 2000)
    ratios = rng.normal(np.where(many == "birch", 2.0, -2.0), 2.0)[:, None]
    good = evaluate_scores(model, ratios, many, lambda rows: X[rows % 150], n_resamples=5)
    assert "Its log-likelihood ratios are well calibrated (Cllr 0." in " ".join(summary(good))
    kept = np.flatnonzero((y != "birch") | (np.cumsum(y == "birch") <= 6))
    few = evaluate(model, X[kept], y[kept], n_resamples=5)
    assert "There are only 6 positives: look at the intervals" in summary(few)[-1]


@pytest.mark.more
def test_the_models_threshold_decides_unless_costs_are_given():
    data = make_class_specific(800, n_features=8, random_state=0)
    model = PCSDA(random_state=0).fit(data.data[:500], data.target[:500])
    rows = data.data[500:], data.target[500:]
    plain = evaluate(model, *rows, n_resamples=5)
    assert "Threshold of the model" not in plain.facts
    chosen = model.choose_threshold(max_false_alarms=0.05)
    found = evaluate(model, *rows, n_resamples=5)
    assert found.settings.threshold == chosen.value
    assert found.facts["Threshold of the model"] == str(chosen)
    assert str(chosen) in page.render(found)
    alarms = next(figure for figure in found.figures if figure.key == "false_alarms")
    assert alarms.value == pytest.approx(model.accepts(rows[0][rows[1] == 0]).mean())
    for options in ({"prior": 0.2}, {"cost_miss": 3.0}, {"threshold": -1.0}):
        other = evaluate(model, *rows, n_resamples=5, **options)
        assert other.settings.threshold != chosen.value
    assert plain.settings.threshold != chosen.value


def test_evaluations_and_figures_are_short_to_read(blobs):
    model = one(blobs)
    found = evaluate(model, blobs[2], blobs[3], n_resamples=5)
    lines = repr(found).splitlines()
    assert lines[0] == "<Evaluation of birch on 150 rows>"
    assert len(lines) == 1 + len(found.figures)
    html = found._repr_html_()
    assert "<caption>Evaluation of birch on 150 rows</caption>" in html
    assert html.count("<tr>") == 1 + len(found.figures)
    threshold = model.choose_threshold(max_false_alarms=0.1)
    assert "(at most 10% false alarms, on left-out rows)</caption>" in threshold._repr_html_()
    interval = metrics.Interval(0.05, 0.03, 0.08, level=0.95, resamples=np.zeros(999))
    assert repr(interval) == "<Interval: 0.05 (95% interval 0.03 to 0.08)>"
    assert interval._repr_html_() == "<b>0.05</b> (95% interval 0.03 to 0.08)"


def test_a_threshold_is_called_stricter_only_where_it_is(blobs):
    for threshold, word in ((-50.0, "stricter"), (50.0, "laxer")):
        found = evaluate(one(blobs), blobs[2], blobs[3], threshold=threshold, n_resamples=2)
        figure = next(figure for figure in found.figures if figure.key == "fnmr")
        assert figure.meaning == f"at a {word} threshold"
        assert (figure.threshold > threshold) == (word == "stricter")


def test_the_page_leads_with_the_answer_and_the_command_for_it(blobs):
    found = evaluate(one(blobs), blobs[2], blobs[3], threshold=1.25, n_resamples=5)
    html = page.render(found)
    lead = html.index("At the threshold 1.25 it finds ")
    assert lead < html.index("pcsda score MODEL NEW.csv --threshold 1.25") < html.index("Figures")
    assert html.count("At the threshold 1.25 it finds ") == 1


def test_listed_rows_have_their_reasons(blobs):
    """The model gives the sentence, and the neighbours are the nearest rows in its subspace."""
    model, (_, _, X, y) = one(blobs), blobs
    names = np.array([f"row-{i}" for i in range(len(X))])
    found = evaluate(model, X, y, ids=names, n_resamples=10)
    listed, z = found.views[0].listed, model.transform(X)
    assert len(found.reasons) == len(listed["place"])
    explained = [place for place, why in enumerate(found.reasons) if why]
    kind = listed["positive"]
    assert np.sum(kind[explained]) == min(EXPLAINED, kind.sum())
    assert np.sum(~kind[explained]) == min(EXPLAINED, (~kind).sum())
    for place in explained[::7]:
        row = listed["place"][place]
        away = np.linalg.norm(z - z[row], axis=1)
        away[row] = np.inf
        near = [np.where(y == "birch", away, np.inf).argmin()]
        near.append(np.where(y != "birch", away, np.inf).argmin())
        words = " and ".join(f"row-{i} ({y[i]})" for i in near)
        assert (
            found.reasons[place]
            == f"{model.explain(X[row : row + 1])}. Nearest in this test: {words}."
        )


def test_long_reasons_lose_whole_parts(blobs, monkeypatch):
    """The text was cut within a word or a number: "typicality 0..... Nearest in this test"."""
    model, (_, _, X_test, y_test) = one(blobs), blobs
    whole = evaluate(model, X_test, y_test, n_resamples=10).reasons[0].partition(". Nearest")[0]
    monkeypatch.setattr("pcsda.report.reasons.LONGEST", len(whole) - 3)
    found = evaluate(model, X_test, y_test, n_resamples=10).reasons[0]
    assert found.startswith(f"{whole.rpartition('; ')[0]}. Nearest in this test: ")
    monkeypatch.setattr("pcsda.report.reasons.LONGEST", 9)
    found = evaluate(model, X_test, y_test, n_resamples=10).reasons[0]
    assert found.startswith(f"{whole[:8]}… Nearest in this test: ")


@pytest.mark.more
def test_reasons_name_columns_behind_a_scaler_and_banks_and_trials_have_none(blobs):
    X, y, X_test, y_test = blobs
    for make in (make_pipeline, pcsda.make_pipeline):
        model = make(StandardScaler(), PCSDA(n_subclasses=3, random_state=0, pos_label="birch"))
        found = evaluate(model.fit(X, y), X_test, y_test, n_resamples=10)
        assert "for it " in found.reasons[0] or "against it " in found.reasons[0]
        assert found.facts["Model"] == "StandardScaler, PCSDA"
    trials = [f"{label}-{i % 20}" for i, label in enumerate(y_test)]
    assert evaluate(model, X_test, y_test, trials=trials, n_resamples=10).reasons == []
    assert evaluate(VerifierBank().fit(X, y), X_test, y_test, n_resamples=10).reasons == []


@given(trials)
def test_calibration_groups_contain_all_rows(rows):
    positive = np.array([p for p, _ in rows])
    llr = np.array([s for _, s in rows])
    found = make_view("x", positive, llr, SETTINGS).calibration
    assert found["count"].sum() == len(rows)
    np.testing.assert_allclose(found["count"] @ found["observed"], positive.sum())
    chance = expit(llr + logit(positive.mean()))
    np.testing.assert_allclose(found["count"] @ found["expected"], chance.sum())
    assert np.all(np.diff(found["expected"]) >= -1e-12)
    # The interval of Wilson: all shares p with |observed - p| within z standard deviations of p.
    columns = [found[name] for name in ("count", "observed", "low", "high")]
    for n, share, low, high in zip(*columns, strict=True):
        for p in (low, high):
            if 0 < p < 1:
                z = abs(share - p) / np.sqrt(p * (1 - p) / n)
                assert z == pytest.approx(1.959964, abs=1e-4) or p == share


@pytest.mark.more
def test_an_error_free_test_of_few_rows_gets_an_exact_interval():
    """A bootstrap of error-free rows gives 0 to 0; the exact interval shows what they can prove."""
    y = np.repeat([True, False], [20, 60])
    model = PCSDA(n_subclasses=2, random_state=0).fit(np.c_[y + np.arange(80) / 80, y], y)
    ratios = np.where(y, 5.0, -5.0)[:, None]
    rows = np.c_[y, y].astype(float)
    for groups, n in ((None, 60), (np.arange(80) // 2, 30)):
        found = evaluate_scores(
            model, ratios, y, lambda chosen: rows[chosen], groups=groups, threshold=0, n_resamples=5
        )
        by_key = {figure.key: figure for figure in found.figures}
        alarms = by_key["false_alarms"]
        # None of n: the share p with (1 - p)^n = 0.025.
        assert (alarms.value, alarms.low) == (0, 0)
        assert alarms.high == pytest.approx(1 - 0.025 ** (1 / n))
    assert "and raises 0.0 false alarms per 1000 negatives (0.0 to 115.7)" in answer(found)
    # One identity with errors among several: those are resampled.
    ratios[-2:] = 5.0
    found = evaluate_scores(
        model, ratios, y, lambda chosen: rows[chosen], groups=groups, threshold=0, n_resamples=40
    )
    alarms = next(figure for figure in found.figures if figure.key == "false_alarms")
    assert alarms.low < alarms.value < alarms.high


@pytest.mark.parametrize("missed", [1, 3])
def test_a_rate_of_one_identity_gets_the_interval_of_one_row(missed):
    """Its only identity is in every resample, so a bootstrap interval has no width."""
    y = np.repeat([True, False], [20, 60])
    model = PCSDA(n_subclasses=2, random_state=0).fit(np.c_[y + np.arange(80) / 80, y], y)
    ratios, rows = np.where(y, 5.0, -5.0)[:, None], np.c_[y, y].astype(float)
    ratios[:missed] = -5.0
    groups = np.where(y, "ann", np.arange(80).astype(str))
    found = evaluate_scores(
        model, ratios, y, lambda chosen: rows[chosen], groups=groups, threshold=0, n_resamples=5
    )
    misses = next(figure for figure in found.figures if figure.key == "misses")
    assert misses.value == missed / 20
    assert misses.low < 0.001
    assert misses.high > 0.97
