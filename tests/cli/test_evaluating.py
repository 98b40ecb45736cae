"""`pcsda evaluate`, `inspect`, `export` and `demo`."""

import html
import json
import re

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.metrics import average_precision_score

import pcsda
from pcsda import metrics
from pcsda.report.figures import percent

FEATURES = ["width", "depth", "hue", "grain", "rim"]
WELD = ("evaluate", "{shop}/weld.pcsda", "{shop}/test.csv", "--label", "kind", "--resamples", "5")
BANK = ("evaluate", "{shop}/bank.pcsda", "{shop}/test.csv", "--label", "kind", "--resamples", "5")


def test_reported_figures_match_the_metrics(command, shop):
    found = command(*WELD, "--json").json()
    llr = shop.model.log_likelihood_ratio(shop.test[FEATURES])
    positive = (shop.test.kind == "weld").to_numpy()
    values = {key: figure["value"] for key, figure in found["figures"].items()}
    assert values["eer"] == pytest.approx(metrics.equal_error_rate(positive, llr)[0])
    assert values["cllr"] == pytest.approx(metrics.cllr(positive, llr))
    assert values["min_cllr"] == pytest.approx(metrics.min_cllr(positive, llr))
    assert values["average_precision"] == pytest.approx(average_precision_score(positive, llr))
    prior = shop.model.class_prior_[1]
    assert found["prior"] == pytest.approx(prior)
    assert values["cost"] == pytest.approx(metrics.detection_cost(positive, llr, prior=prior))
    least = metrics.min_detection_cost(positive, llr, prior=prior)[0]
    assert values["min_cost"] == pytest.approx(least)
    threshold = metrics.bayes_threshold(prior)
    assert found["threshold"] == pytest.approx(threshold)
    assert found["misses"] == (llr[positive] < threshold).sum()
    assert found["false_alarms"] == (llr[~positive] >= threshold).sum()
    assert values["misses"] == pytest.approx(found["misses"] / positive.sum())
    for figure in found["figures"].values():
        assert figure["low"] <= figure["value"] + 1e-9
        assert figure["value"] <= figure["high"] + 1e-9


def test_people_get_sentences_and_a_table(command, shop):
    out = command(*WELD, "--prior", "0.5").out
    assert re.match(
        r"At the threshold 0.00 it finds [\d.]+ of 100 positives \(95% interval [\d.]+ to [\d.]+\) "
        r"and raises [\d.]+ false alarms per 1000 negatives \([\d.]+ to [\d.]+\): in this test it "
        r"missed \d+ of \d+ and accepted \d+ of \d+\. The model tells “weld” from the rest with an "
        r"equal error rate of ",
        out,
    )
    header, *lines = [line for line in out.splitlines() if line][1:]
    assert header.split() == ["figure", "value", "95%", "interval", "at", "threshold"]
    figures = command(*WELD, "--prior", "0.5", "--json").json()["figures"]
    at = {line[:26].strip(): line.split()[-1] for line in lines}
    assert at["Misses"] == at["False alarms"] == "0"
    assert float(at["Equal error rate"]) == pytest.approx(figures["eer"]["threshold"], rel=1e-3)
    assert at["Cllr (bits)"] == "-"


def test_a_false_alarm_rate_sets_the_threshold(command, shop):
    expected = shop.model.choose_threshold(max_false_alarms=0.05).value
    del shop.model.threshold_
    found = command(*WELD, "--max-false-alarms", "0.05", "--json").json()
    assert found["threshold"] == pytest.approx(expected)
    said = command("score", "{shop}/weld.pcsda", "{shop}/test.csv", "--max-false-alarms", "0.05")
    rule = "(at most 5% false alarms, on left-out rows)"
    assert f"a log-likelihood ratio of at least {expected:.4g} are accepted {rule}" in said.err
    table = said.table()
    np.testing.assert_array_equal(table.accepted, table.llr >= expected)
    said = command(*WELD, "--max-false-alarms", "0.05", "--prior", "0.1", code=2).err
    assert (
        "--max-false-alarms sets the threshold; leave out --threshold, --prior and the costs"
        in said
    )


def test_a_label_that_contradicts_the_model_is_an_error(command):
    said = command(*WELD, "--positive", "crack", code=1).err
    assert "--positive crack: the model verifies weld, and weld is among the labels; leave" in said


def test_a_bank_reports_figures_for_every_label(command, shop):
    found = command(*BANK, "--json").json()
    ratios = shop.bank.log_likelihood_ratio(shop.test[FEATURES])
    best = shop.bank.classes_[ratios.argmax(axis=1)]
    rank_1 = found["figures"]["rank_1"]["value"]
    assert rank_1 == pytest.approx((best == shop.test.kind).mean())
    assert [row["label"] for row in found["by_label"]] == ["crack", "pore", "weld"]
    for column, row in enumerate(found["by_label"]):
        positive = (shop.test.kind == row["label"]).to_numpy()
        assert row["positives"] == positive.sum()
        eer = metrics.equal_error_rate(positive, ratios[:, column])[0]
        assert row["eer"] == pytest.approx(eer)
    assert found["positives"] == 90
    assert found["negatives"] == 180
    one = command(*BANK, "--positive", "pore", "--json").json()
    assert one["figures"]["eer"]["value"] == pytest.approx(found["by_label"][1]["eer"])
    assert command(*BANK).out.count("\n") > 15


def test_labels_unknown_to_a_bank_count_as_negatives(command, shop):
    shop.test.replace({"kind": {"pore": "paint"}}).to_csv("t.csv", index=False)
    words = [word.replace("{shop}/test.csv", "t.csv") for word in BANK]
    found = command(*words, "--json").json()
    assert found["unknown_labels"] == ["paint"]
    assert found["positives"] == (shop.test.kind != "pore").sum()
    assert found["positives"] + found["negatives"] == 270
    pore = next(row for row in found["by_label"] if row["label"] == "pore")
    assert (pore["positives"], pore["eer"]) == (0, None)
    told = command(*words).out
    unknown = "1 label in the test is unknown to the bank; such rows count as negatives for all its"
    assert unknown in told


def test_trials_and_groups_are_honoured(command, shop):
    found = command(*WELD, "--trial", "part", "--json").json()
    llr = shop.model.log_likelihood_ratio(shop.test[FEATURES], trials=shop.test.part)
    positive = np.array([name.startswith("weld") for name in np.unique(shop.test.part)])
    assert found["positives"] == positive.sum()
    eer = metrics.equal_error_rate(positive, llr)[0]
    assert found["figures"]["eer"]["value"] == pytest.approx(eer)
    alone = command(*WELD, "--json").json()["figures"]["eer"]
    grouped = command(*WELD, "--group", "part", "--json").json()["figures"]["eer"]
    assert grouped["value"] == alone["value"]
    assert (grouped["low"], grouped["high"]) != (alone["low"], alone["high"])


@pytest.mark.parametrize("words", [WELD, pytest.param(BANK, marks=pytest.mark.more)])
def test_blocks_give_the_same_report(command, words):
    command(*words, "--report", "whole.html", "--id", "part")
    command(*words, "--report", "blocks.html", "--id", "part", "--block-rows", "23")
    with open("whole.html") as whole, open("blocks.html") as blocks:
        assert whole.read() == blocks.read()


def test_blocks_without_names_give_the_same_report(command):
    words = ("evaluate", "{shop}/unnamed.pcsda", "{shop}/test.npz", "--label", "kind",
             "--positive", "weld", "--resamples", "5")  # fmt: skip
    command(*words, "--report", "whole.html")
    command(*words, "--report", "blocks.html", "--block-rows", "23")
    with open("whole.html") as whole, open("blocks.html") as blocks:
        assert whole.read() == blocks.read()


def test_the_class_of_interest_may_have_another_name_in_the_test_table(command, shop):
    words = ("evaluate", "{shop}/unnamed.pcsda", "{shop}/test.csv", "--label", "kind", "--ignore",
             "part", "--resamples", "5")  # fmt: skip
    said = command(*words, code=1).err
    assert "--label kind: no row has the label True, which the model verifies; there are" in said
    found = command(*words, "--positive", "weld", "--json").json()
    assert found["labels"] == ["weld"]


def test_evaluation_rejects_bad_input(command, shop):
    shop.test[shop.test.kind == "weld"].to_csv("only.csv", index=False)
    words = [word.replace("{shop}/test.csv", "only.csv") for word in WELD]
    assert "y has only rows of the class of interest, 'weld'" in command(*words, code=1).err
    assert "--title needs --report" in command(*WELD, "--title", "x", code=2).err
    said = command(*WELD, "--threshold", "1", "--cost-miss", "2", code=2).err
    assert "--threshold sets the threshold; leave out the costs" in said
    words = [word.replace("{shop}/test.csv", "-") for word in WELD]
    said = command(*words, "--block-rows", "9", code=2).err
    assert (
        "an evaluation in blocks reads the table twice, and standard input can be read only once"
        in said
    )
    said = command(*BANK[:4], "part", "--resamples", "5", code=1).err
    assert "--label part: the bank knows none of crack-" in said
    said = command(*WELD, "--trial", "kind", "--group", "part", code=1).err
    assert "trials have rows of different groups, such as trial crack" in said
    said = command(*WELD, "--report", "no/r.html", code=1).err
    assert "no/r.html: there is no folder" in said


def test_inspect_describes_a_model_file(command, shop):
    facts = command("inspect", "{shop}/weld.pcsda", "--json").json()
    assert facts["feature_names"] == FEATURES
    assert facts["parameters"] == {"random_state": 0}
    (one,) = facts["models"]
    assert one["label"] == "weld"
    assert one["dimensions"] == shop.model.n_components_
    assert one["prior"] == pytest.approx(shop.model.class_prior_[1])
    out = command("inspect", "{shop}/bank.pcsda").out
    assert "VerifierBank(PCSDA)" in out
    assert "width, depth, hue, grain, rim" in out
    assert [line.split()[0] for line in out.splitlines()[-3:]] == ["crack", "pore", "weld"]
    assert "is not a file; give a model file" in command("inspect", "none", code=1).err


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_an_exported_model_runs_in_onnx_runtime(command, shop, dtype):
    runtime = pytest.importorskip("onnxruntime")
    found = command("export", "{shop}/weld.pcsda", "--onnx", "m.onnx", "--dtype", dtype, "--json")
    assert found.json()["file"] == "m.onnx"
    session = runtime.InferenceSession("m.onnx")
    X = shop.test[FEATURES].to_numpy(dtype)
    (llr,) = session.run(["log_likelihood_ratio"], {"X": X})
    expected = shop.model.log_likelihood_ratio(shop.test[FEATURES])
    np.testing.assert_allclose(llr.ravel(), expected, atol=1e-4 if dtype == "float32" else 1e-9)
    said = command("export", "{shop}/weld.pcsda", "--onnx", "{shop}/weld.pcsda", code=1).err
    assert "would overwrite" in said


@pytest.fixture
def few_digits(monkeypatch):
    X, y = load_digits(return_X_y=True)
    monkeypatch.setattr("pcsda.cli.demo.load_digits", lambda return_X_y: (X[:300], y[:300]))
    monkeypatch.setattr("pcsda.cli.demo.RESAMPLES", 20)


@pytest.mark.more
def test_the_demo_needs_no_data_and_agrees_with_its_report(command, tmp_path, few_digits):
    out = command("demo", "--digit", "8", "--report", "r.html").out
    lines = out.splitlines()
    assert lines[0].split()[:5] == ["label", "positives", "eer", "misses", "false"]
    assert [line.split()[0] for line in lines[1:11]] == [*"0123456789"]
    assert "The subspace of digit 8 is drawn in demo_subspace.png." in out
    assert (tmp_path / "demo_subspace.png").read_bytes().startswith(b"\x89PNG")
    assert "Each model saw 210 images and was tested on 90 new ones." in out
    page = html.unescape((tmp_path / "r.html").read_text(encoding="utf-8"))
    rate = re.search(r"The model tells 10 labels .* one threshold for all\.", out)[0]
    hardest = re.search(r"The hardest label is “(\d)”: .* equal error rate of (.*)\.", out)
    assert f"<p>{rate}</p><p>" in page
    assert f"<p>{hardest[0]}</p>" in page
    assert "The report on all ten digits is r.html." in out
    # The table of the commands shows the hardest label with the same rate.
    cells = next(line for line in out.splitlines() if line.split()[:1] == [hardest[1]])
    assert hardest[2] in cells


@pytest.mark.more  # the words and the report are tested above
def test_the_demo_writes_json(command, tmp_path, few_digits):
    found = json.loads(command("demo", "--json", "-o", "a.svg", "--report", "r.html").out)
    assert [row["label"] for row in found["digits"]] == [*"0123456789"]
    assert (tmp_path / "a.svg").exists()
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "Ten handwritten digits" in page[:2000]
    assert f"an equal error rate of {percent(found['all']['eer'])} (95% interval" in page
    said = command("demo", "-o", "a.gif", code=1).err
    assert "a.gif: pictures are written as .png, .pdf, .svg; use one of these" in said


def test_inspect_shows_the_figures_saved_with_a_model(command, shop):
    pcsda.save(shop.model, "m.pcsda", metrics={"eer": 0.25, "cllr": 0.0076473309847})
    assert "eer=0.25, cllr=0.007647\n" in command("inspect", "m.pcsda").out
