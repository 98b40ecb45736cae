"""`pcsda score` and `pcsda rank` agree with the library."""

import os
import pickle

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, logit

import pcsda
from pcsda.metrics import bayes_threshold, estimate_prior

FEATURES = ["width", "depth", "hue", "grain", "rim"]
TABLES = ["test.csv", "test.tsv", "test.csv.gz", "test.parquet", "test.npz", "records.npy"]
SCORE = ("score", "{shop}/weld.pcsda")
BANK = ("score", "{shop}/bank.pcsda", "{shop}/test.csv")


@pytest.mark.each_value
@pytest.mark.parametrize("rows", [None, 13])
@pytest.mark.parametrize("name", TABLES)
def test_every_table_format_gives_the_librarys_scores(command, shop, name, rows):
    in_blocks = () if rows is None else ("--block-rows", rows)
    found = command(*SCORE, f"{{shop}}/{name}", *in_blocks).table()
    llr = shop.model.log_likelihood_ratio(shop.test[FEATURES])
    np.testing.assert_allclose(found.llr, llr, rtol=1e-9)
    np.testing.assert_array_equal(found.row, np.arange(90))
    chances = shop.model.predict_proba(shop.test[FEATURES])[:, 1]
    np.testing.assert_allclose(found.probability, chances, rtol=1e-9)
    decided = shop.model.predict(shop.test[FEATURES]) == "weld"
    np.testing.assert_array_equal(found.accepted, decided)


def test_standard_input_is_scored_with_row_names(command, shop):
    found = command(*SCORE, "-", "--id", "part", stdin=(shop.folder / "test.csv").read_bytes())
    assert list(found.table().columns) == ["row", "id", "llr", "probability", "accepted"]
    np.testing.assert_array_equal(found.table().id, shop.test.part)


@pytest.mark.parametrize("name", ["scores.csv", "scores.tsv", "scores.parquet"])
@pytest.mark.parametrize("rows", [None, 40])
def test_results_can_be_written_to_files(command, shop, name, rows):
    in_blocks = () if rows is None else ("--block-rows", rows)
    assert command(*SCORE, "{shop}/test.parquet", "-o", name, *in_blocks).out == ""
    reader = {"csv": pd.read_csv, "tsv": pd.read_table, "parquet": pd.read_parquet}
    found = reader[name.split(".")[1]](name)
    llr = shop.model.log_likelihood_ratio(shop.test[FEATURES])
    np.testing.assert_allclose(found.llr, llr, rtol=1e-12)


def test_a_table_file_and_json_output_go_together(command):
    said = command(*SCORE, "{shop}/test.csv", "-o", "s.csv", "--json").json()
    found = pd.read_csv("s.csv")
    np.testing.assert_allclose([row["llr"] for row in said["rows"]], found.llr)


def test_prior_and_costs_set_the_threshold(command, shop):
    found = command(*SCORE, "{shop}/test.csv", "--prior", "0.05", "--cost-miss", "4",
                    "--cost-false-alarm", "3", "--json").json()  # fmt: skip
    threshold = bayes_threshold(0.05, cost_miss=4, cost_false_alarm=3)
    assert found["threshold"] == pytest.approx(threshold)
    assert found["prior"] == 0.05
    llr = shop.model.log_likelihood_ratio(shop.test[FEATURES])
    rows = pd.DataFrame(found["rows"])
    np.testing.assert_array_equal(rows.accepted, llr >= threshold)
    np.testing.assert_allclose(rows.probability, expit(llr + logit(0.05)))


def test_a_given_threshold_decides(command, shop):
    said = command(*SCORE, "{shop}/test.csv", "--threshold", "-1.5")
    assert "note: rows with a log-likelihood ratio of at least -1.5 are accepted (prior" in said.err
    found = said.table()
    np.testing.assert_array_equal(found.accepted, found.llr >= -1.5)


def test_rows_of_a_trial_score_together(command, shop):
    found = command(*SCORE, "{shop}/test.csv", "--trial", "part").table()
    names = shop.test.part.drop_duplicates().tolist()
    assert found.trial.tolist() == names  # in the order of the table
    llr = shop.model.log_likelihood_ratio(shop.test[FEATURES], trials=shop.test.part)
    expected = dict(zip(np.unique(shop.test.part), llr, strict=True))
    np.testing.assert_allclose(found.llr, [expected[name] for name in names])
    assert found.rows.tolist() == shop.test.part.value_counts()[names].tolist()


def test_a_bank_identifies(command, shop):
    found = command(*BANK, "--threshold", "1").table()
    X = shop.test[FEATURES]
    expected = shop.bank.identify(X, threshold=1.0, unknown="unknown")
    np.testing.assert_array_equal(found.label, expected)
    assert (found.label == "unknown").any()
    ratios = shop.bank.log_likelihood_ratio(X)
    np.testing.assert_allclose(found.llr, ratios.max(axis=1))
    wide = command(*BANK, "--all", "--unknown", "nobody").table()
    names = [f"llr:{label}" for label in shop.bank.classes_]
    np.testing.assert_allclose(wide[names], ratios)


def test_a_bank_verifies_claims(command, shop):
    found = command(*BANK, "--claimed", "kind").table()
    np.testing.assert_allclose(found.llr, shop.bank.verify(shop.test[FEATURES], shop.test.kind))
    np.testing.assert_array_equal(found.claimed, shop.test.kind)
    trials = command(*BANK, "--claimed", "kind", "--trial", "part").table()
    ratios = shop.bank.log_likelihood_ratio(shop.test[FEATURES], trials=shop.test.part)
    ratios = pd.DataFrame(ratios, index=np.unique(shop.test.part), columns=shop.bank.classes_)
    expected = [ratios.loc[row.trial, row.claimed] for row in trials.itertuples()]
    np.testing.assert_allclose(trials.llr, expected)


def test_a_bank_scores_one_label(command, shop):
    found = command(*BANK, "--positive", "pore").table()
    ratios = shop.bank.log_likelihood_ratio(shop.test[FEATURES])
    np.testing.assert_allclose(found.llr, ratios[:, shop.bank.classes_.tolist().index("pore")])


@pytest.mark.parametrize("by", ["distance", "likelihood", None])
@pytest.mark.parametrize("rows", [None, 17])
def test_the_best_rows_come_first(command, shop, by, rows):
    options = () if rows is None else ("--block-rows", rows)
    options += () if by is None else ("--by", by)
    found = command("rank", "{shop}/weld.pcsda", "{shop}/test.csv", "--top", "7", "--id", "part",
                    "--json", *options).json()  # fmt: skip
    assert found["by"] == (by or "likelihood")
    order = shop.model.rank(shop.test[FEATURES], by=by)[:7]
    listed = pd.DataFrame(found["rows"])
    assert listed.row.tolist() == order.tolist()
    assert listed["rank"].tolist() == list(range(1, 8))
    assert listed.id.tolist() == shop.test.part[order].tolist()
    distance = -shop.model.score_samples(shop.test[FEATURES])[order]
    np.testing.assert_allclose(listed.distance, distance)


def test_a_banks_ranks_form_a_table(command, shop):
    words = ("rank", "{shop}/bank.pcsda", "{shop}/test.parquet", "--positive", "crack")
    lines = command(*words, "--top", "3").out.splitlines()
    assert lines[0].split() == ["rank", "row", "llr"]
    by_distance = command(*words, "--top", "3", "--by", "distance").out.splitlines()
    assert by_distance[0].split() == ["rank", "row", "distance", "llr"]
    order = shop.bank.rank(shop.test[FEATURES], "crack")[:3]
    assert [int(line.split()[1]) for line in lines[1:]] == order.tolist()
    assert command(*words, "--top", "3", "-o", "r.csv").out == ""
    assert pd.read_csv("r.csv").row.tolist() == order.tolist()
    said = command("rank", "{shop}/bank.pcsda", "{shop}/test.csv", code=2).err
    assert "a bank has several labels; choose one with --positive: crack, pore, weld" in said


def test_columns_are_matched_by_name(command, shop):
    shop.test[["part", *FEATURES[::-1]]].to_csv("turned.csv", index=False)
    said = command(*SCORE, "turned.csv")
    llr = shop.model.log_likelihood_ratio(shop.test[FEATURES])
    np.testing.assert_allclose(said.table().llr, llr)
    assert "note: columns that the model does not know are left out: part\n" in said.err
    assert (
        "note: columns are in a different order from the training table; they are matched by name"
        in said.err
    )


def test_missing_and_unknown_columns_are_listed_together(command, shop):
    shop.test.rename(columns={"hue": "colour"}).drop(columns="rim").to_csv("lacks.csv", index=False)
    said = command(*SCORE, "lacks.csv", code=1).err
    assert "lacks.csv lacks 2 of the model's 5 columns: hue, rim; columns that the model" in said
    assert "does not know: colour, kind, part" in said
    shop.test[["part", "kind"]].to_csv("other.csv", index=False)
    said = command(*SCORE, "other.csv", code=1).err
    assert "other.csv has none of the model's 5 columns: width, depth, hue, grain, rim" in said


def test_unnamed_columns_are_taken_in_order(command, shop):
    said = command(*SCORE, "{shop}/matrix.npy")
    llr = shop.model.log_likelihood_ratio(shop.test[FEATURES])
    np.testing.assert_allclose(said.table().llr, llr)
    assert (
        "matrix.npy has no column names; columns are assumed to be in the model's order" in said.err
    )


def test_a_model_without_column_names_checks_their_number(command, shop):
    words = ("score", "{shop}/unnamed.pcsda")
    llr = shop.unnamed.log_likelihood_ratio(shop.test[FEATURES].to_numpy())
    np.testing.assert_allclose(command(*words, "{shop}/matrix.npy").table().llr, llr)
    found = command(*words, "{shop}/test.csv", "--ignore", "kind,part").table()
    np.testing.assert_allclose(found.llr, llr)
    said = command(*words, "{shop}/test.csv", "--features", "width,depth", code=1).err
    assert "has 2 feature columns but the model was fitted on 5; leave columns out with" in said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((*SCORE, "{shop}/test.csv", "--all"), "--all needs a bank; "),
        ((*SCORE, "{shop}/test.csv", "--claimed", "kind"), "--claimed needs a bank; "),
        ((*BANK, "--all", "--claimed", "kind"), "use only one of --positive, --claimed and --all"),
        ((*BANK, "--id", "part", "--trial", "part"), "--id names single rows, --trial combines"),
        ((*BANK, "--threshold", "1", "--cost-miss", "2"), "--threshold sets the threshold"),
        ((*BANK, "--threshold", "nan"), "'nan' must be a number"),
        ((*BANK, "--prior", "1"), "'1' must be a number between 0 and 1"),
        ((*BANK, "--cost-miss", "0"), "'0' must be a number above 0"),
        ((*BANK, "--block-rows", "none"), "'none' must be a whole number of at least 1"),
    ],
)
def test_wrong_usage_is_rejected(command, words, message):
    assert message in command(*words, code=2).err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            (*BANK, "--positive", "paint"),
            "--positive paint: the model has no such label; it has cr",
        ),
        ((*BANK, "--claimed", "part"), "--claimed part: the bank does not know crack-"),
        ((*BANK, "--claimed", "who"), "--claimed who: {shop}/test.csv has no column"),
        ((*BANK, "--trial", "part", "--block-rows", "5"), "must be in memory together"),
        ((*BANK, "--trial", "kind", "--claimed", "part"), "the bank does not know"),
        ((*BANK, "-o", "x.xls"), "x.xls: results are written as .csv, .tsv or .parquet"),
        (
            (*BANK, "-o", "{shop}/bank.pcsda"),
            "would overwrite {shop}/bank.pcsda; give another name",
        ),
        (("score", "{shop}/none.pcsda", "x.csv"), "none.pcsda is not a file; give a model file"),
        (("score", "{shop}/test.csv", "x.csv"), "is not a pcsda model file"),
        ((*SCORE, "x.csv"), "x.csv does not exist"),
    ],
)
def test_data_errors_are_reported(command, shop, words, message):
    assert message.replace("{shop}", str(shop.folder)) in command(*words, code=1).err


def test_rows_of_a_trial_must_claim_one_label(command, shop):
    shop.test.assign(room="same").to_csv("t.csv", index=False)
    said = command("score", "{shop}/bank.pcsda", "t.csv", "--trial", "room", "--claimed", "kind",
                   code=1).err  # fmt: skip
    assert "rows of one trial claim different labels, in trial same" in said


def test_an_error_in_a_later_block_leaves_no_file(command, shop, tmp_path):
    bad = shop.test.copy()
    bad.loc[80, "hue"] = np.nan
    bad.to_csv("bad.csv", index=False)
    said = command(*SCORE, "bad.csv", "-o", "s.csv", "--block-rows", "30", code=1).err
    assert "1 missing or infinite value, in columns hue (1), first in row 80" in said
    assert [file.name for file in tmp_path.iterdir()] == ["bad.csv"]


def test_a_truncated_model_file_is_rejected(command, shop):
    whole = (shop.folder / "weld.pcsda").read_bytes()
    with open("cut.pcsda", "wb") as file:
        file.write(whole[: len(whole) // 2])
    assert "cut.pcsda is damaged" in command("score", "cut.pcsda", "{shop}/test.csv", code=1).err


@pytest.fixture(scope="module")
def with_threshold(shop, tmp_path_factory):
    """Save a model that has a threshold."""
    model = pickle.loads(pickle.dumps(shop.model))
    model.choose_threshold(max_false_alarms=0.02)
    path = tmp_path_factory.mktemp("models") / "strict.pcsda"
    pcsda.save(model, path)
    return model, path


def test_the_models_threshold_decides(command, shop, with_threshold):
    model, path = with_threshold
    said = command("score", path, "{shop}/test.csv")
    assert "(at most 2% false alarms, on left-out rows)" in said.err
    np.testing.assert_array_equal(said.table().accepted, model.accepts(shop.test[FEATURES]))
    assert command("score", path, "{shop}/test.csv", "--json").json()["threshold"] == (
        model.threshold_.value
    )


@pytest.mark.parametrize("words", [("--prior", "0.3"), ("--cost-miss", "2"), ("--threshold", "1")])
def test_options_override_the_models_threshold(command, with_threshold, words):
    model, path = with_threshold
    said = command("score", path, "{shop}/test.csv", *words, "--json")
    assert said.json()["threshold"] != model.threshold_.value
    assert "(prior 0." in said.err
    assert "false alarms" not in said.err


def test_inspect_shows_the_threshold(command, with_threshold):
    model, path = with_threshold
    facts = command("inspect", path, "--json").json()["threshold"]
    assert facts["value"] == model.threshold_.value
    assert facts["n_negatives"] == model.threshold_.n_negatives
    assert "at most 2% false alarms" in command("inspect", path).out
    assert "threshold" not in command("inspect", "{shop}/weld.pcsda", "--json").json()


@pytest.mark.parametrize("rows", [None, 13])
def test_the_count_equals_the_librarys(command, shop, rows):
    in_blocks = () if rows is None else ("--block-rows", rows)
    expected = shop.model.count(shop.test[FEATURES])
    words = ("count", "{shop}/weld.pcsda", "{shop}/test.csv", *in_blocks)
    found = command(*words, "--json").json()
    assert found["label"] == "weld"
    assert found["count"] == pytest.approx(expected.count)
    assert [found["count_low"], found["count_high"]] == [expected.count_low, expected.count_high]
    assert command(*words).out.startswith(f"weld: {expected.count:.4g} of 90 rows (90% interval ")


def test_rows_of_the_fit_are_counted_as_the_library_counts_them(command, shop):
    expected = shop.model.count(shop.train[FEATURES])
    found = command("count", "{shop}/weld.pcsda", "{shop}/train.csv", "--json").json()
    assert found["count"] == pytest.approx(expected.count)
    plain = estimate_prior(shop.model.log_likelihood_ratio(shop.train[FEATURES]))
    assert found["prior"] != pytest.approx(plain.prior)


def test_a_bank_counts_one_label(command, shop):
    words = ("count", "{shop}/bank.pcsda", "{shop}/test.csv")
    assert "choose one with --positive: crack, pore, weld" in command(*words, code=2).err
    found = command(*words, "--positive", "pore", "--json").json()
    assert found["count_low"] <= (shop.test.kind == "pore").sum() <= found["count_high"]


LABELLED = ("--label", "kind", "--ignore", "part")


@pytest.mark.parametrize(
    "words",
    [
        ("score", "{shop}/weld.pcsda", "parts"),
        ("rank", "{shop}/weld.pcsda", "parts"),
        ("identify", "{shop}/bank.pcsda", "parts"),
        ("update", "{shop}/bank.pcsda", "parts", "--label", "kind"),
        ("fit", "parts", *LABELLED, "--positive", "weld"),
        ("fit", "parts", *LABELLED, "--positive", "weld", "--block-rows", "20"),
    ],
)
@pytest.mark.parametrize("output", ["parts/a.csv", "parts/../link.csv"])
def test_no_command_replaces_a_file_of_the_folder_that_it_reads(command, shop, words, output):
    os.mkdir("parts")
    shop.test[:50].to_csv("parts/a.csv", index=False)
    shop.test[50:].to_csv("parts/b.csv", index=False)
    os.symlink("parts/a.csv", "link.csv")
    said = command(*words, "-o", output, code=1).err
    assert f"{output} would overwrite parts/a.csv; give another name" in said
    pd.testing.assert_frame_equal(pd.read_csv("parts/a.csv"), shop.test[:50])


def test_a_model_in_the_folder_of_its_rows_may_be_replaced(command, shop):
    os.mkdir("parts")
    shop.test.to_csv("parts/a.csv", index=False)
    for _ in range(2):
        command("fit", "parts", *LABELLED, "--positive", "weld", "-o", "parts/m.pcsda")


@pytest.mark.parametrize("option", ["--id", "--trial"])
def test_a_feature_that_also_names_the_rows_is_refused_as_such(command, option):
    """It was called not numeric, with the advice to read it with '--decimal .'."""
    said = command(*SCORE, "{shop}/test.csv", option, "width", code=1).err
    assert "column 'width' of" in said
    assert "is a feature of the model, so it cannot also hold labels, ids or trials" in said
    command(*SCORE, "{shop}/test.parquet", option, "width")


def test_the_advice_on_gaps_works_in_scoring(command, shop):
    frame = shop.test.copy()
    frame.loc[3, "hue"] = np.nan
    frame.to_csv("gaps.csv", index=False)
    said = command(*SCORE, "gaps.csv", code=1).err
    assert "--missing drop leaves those rows out" in said
    assert "when fitting" not in said
    assert len(command(*SCORE, "gaps.csv", "--missing", "drop").table()) == len(frame) - 1
