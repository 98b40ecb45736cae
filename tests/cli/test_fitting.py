"""`pcsda fit` equals the library's fit: every option reaches the estimator and the file."""

import os
import signal
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.pipeline import Pipeline

import pcsda
from pcsda import CSDA, PCSDA, PCSDACV, KernelPCSDA, NystroemMap, VerifierBank

FEATURES = ["width", "depth", "hue", "grain", "rim"]
FIT = ("fit", "{shop}/train.csv", "--label", "kind", "--ignore", "part", "-o", "m.pcsda")
WELD = (*FIT, "--positive", "weld")


def binary(shop):
    return np.where(shop.train.kind == "weld", "weld", "not weld")


def test_a_fitted_verifier_equals_the_librarys(command, shop):
    said = command(*WELD)
    model = pcsda.load("m.pcsda")
    expected = shop.model.log_likelihood_ratio(shop.test[FEATURES])
    np.testing.assert_array_equal(model.log_likelihood_ratio(shop.test[FEATURES]), expected)
    assert model.pos_label == "weld"
    assert list(model.feature_names_in_) == FEATURES
    n = int((shop.train.kind == "weld").sum())
    assert f"PCSDA, verifies weld; fitted on 240 rows and 5 columns, {n} rows of" in said.out
    assert "Left-out scores of the training rows: equal error rate " in said.out


def test_a_fitted_bank_equals_the_librarys(command, shop):
    said = command(*FIT, "--positive", "all")
    bank = pcsda.load("m.pcsda")
    expected = VerifierBank(PCSDA(random_state=0)).fit(shop.train[FEATURES], shop.train.kind)
    expected = expected.log_likelihood_ratio(shop.test[FEATURES])
    np.testing.assert_array_equal(bank.log_likelihood_ratio(shop.test[FEATURES]), expected)
    assert "VerifierBank(PCSDA), verifies 3 labels; fitted on 240 rows and 5 columns" in said.out
    # What to expect of it, from labels and rows that were left out.
    assert f"Threshold: {bank.threshold_}." in said.out
    assert "% of strangers accepted, on 3 identities of the bank left out" in said.out
    facts = command(*FIT, "--positive", "all", "--json").json()
    assert facts["threshold"]["value"] == bank.threshold_.value


def test_facts_are_available_as_json(command):
    facts = command(*WELD, "--json").json()
    assert facts["file"] == "m.pcsda"
    assert facts["feature_names"] == FEATURES
    assert facts["pos_label"] == "weld"
    assert 0 < facts["metrics"]["eer"] < 0.5


def test_data_may_come_from_standard_input(command, shop):
    words = [word.replace("{shop}/train.csv", "-") for word in WELD]
    command(*words, stdin=(shop.folder / "train.csv").read_bytes())
    expected = shop.model.log_likelihood_ratio(shop.test[FEATURES])
    model = pcsda.load("m.pcsda")
    np.testing.assert_array_equal(model.log_likelihood_ratio(shop.test[FEATURES]), expected)


@pytest.mark.parametrize(
    ("words", "kind", "params"),
    [
        ("-K 3 -d 2", PCSDA, {"n_subclasses": 3, "n_components": 2}),
        ("-K auto --solver eigen", PCSDA, {"n_subclasses": "auto", "solver": "eigen"}),
        ("--regularization 0.1 --shrinkage 2", PCSDA, {"regularization": 0.1, "shrinkage": 2}),
        ("--negatives marginal --covariance resubstitution --no-calibrate", PCSDA,
         {"negatives": "marginal", "covariance": "resubstitution", "calibrate": False}),
        ("--negatives blend --tails gaussian", PCSDA, {"negatives": "blend", "tails": "gaussian"}),
        ("--negatives mixture --tails fitted", PCSDA, {"negatives": "mixture", "tails": "fitted"}),
        ("--kernel rbf --tails gaussian", KernelPCSDA, {"negatives": "blend", "tails": "gaussian"}),
        ("--balance resampled --subclasses samples --seed 7", PCSDA,
         {"balance": "resampled", "subclasses": "samples", "random_state": 7}),
        ("--published", PCSDA, {"calibrate": False, "shrinkage": 0, "negatives": "marginal"}),
        ("--priors equal", PCSDA, {"priors": "equal"}),
        ("--priors 0.2", PCSDA, {"priors": (0.8, 0.2)}),
        ("--method csda --solver lowrank", CSDA, {"solver": "lowrank"}),
        ("--kernel rbf --gamma 0.3", KernelPCSDA, {"kernel": "rbf", "gamma": 0.3}),
        ("--kernel polynomial --degree 2 --coef0 0.5", KernelPCSDA, {"degree": 2, "coef0": 0.5}),
    ],
)  # fmt: skip
def test_options_reach_the_estimators_parameters(command, words, kind, params):
    command(*WELD, *words.split())
    model = pcsda.load("m.pcsda")
    assert type(model) is kind
    found = model.get_params()
    assert {name: found[name] for name in params} == params


def test_priors_follow_the_order_of_the_classes(command):
    # "crack" sorts before "not crack", so its prior comes first.
    command(*FIT, "--positive", "crack", "--priors", "0.1")
    model = pcsda.load("m.pcsda")
    assert model.classes_.tolist() == ["crack", "not crack"]
    np.testing.assert_allclose(model.class_prior_, [0.1, 0.9])


def test_maps_come_before_the_model(command, shop):
    command(*WELD, "--approx", "nystroem", "--map-components", "20", "--landmarks", "kmeans",
            "--gamma", "scale", "-K", "2")  # fmt: skip
    model = pcsda.load("m.pcsda")
    assert isinstance(model, Pipeline)
    assert isinstance(model[0], NystroemMap)
    assert (model[0].n_components, model[0].landmarks, model[0].gamma) == (20, "kmeans", "scale")
    again = clone(model).fit(shop.train[FEATURES], binary(shop))
    X = shop.test[FEATURES]
    np.testing.assert_array_equal(model.decision_function(X), again.decision_function(X))


def test_a_bank_may_follow_a_map(command):
    command(*FIT, "--positive", "all", "--approx", "fourier", "--map-components", "30")
    model = pcsda.load("m.pcsda")
    assert isinstance(model[-1], VerifierBank)
    assert model[0].n_components == 30


def test_auto_runs_a_search(command, shop):
    command(*WELD, "--auto", "-K", "1,2", "-d", "1", "--regularization", "0.01,1", "--cv", "3")
    model = pcsda.load("m.pcsda")
    assert isinstance(model, PCSDACV)
    search = PCSDACV(
        PCSDA(random_state=0, pos_label="weld"),
        n_subclasses=[1, 2], n_components=[1], regularization=[0.01, 1], cv=3,
    ).fit(shop.train[FEATURES], binary(shop))  # fmt: skip
    assert model.best_params_ == search.best_params_
    X = shop.test[FEATURES]
    np.testing.assert_array_equal(model.decision_function(X), search.decision_function(X))


ALL_COLUMNS = tuple(word for word in WELD if word not in ("--ignore", "part"))


def test_groups_work_without_a_search(command, shop):
    command(*ALL_COLUMNS, "--group", "part", "-K", "2")
    model = pcsda.load("m.pcsda")
    alone = clone(model).fit(shop.train[FEATURES], binary(shop), groups=shop.train.part)
    np.testing.assert_allclose(model.loo_scores_, alone.loo_scores_)


def test_csda_takes_groups(command, shop):
    command(*ALL_COLUMNS, "--group", "part", "--method", "csda")
    model = pcsda.load("m.pcsda")
    alone = clone(model).fit(shop.train[FEATURES], binary(shop), groups=shop.train.part)
    np.testing.assert_allclose(model.held_out_[0], alone.held_out_[0])


def test_duplicate_rows_are_reported_unless_groups_are_given(command, shop):
    shop.train.loc[shop.train.index.repeat(2)].to_csv("twice.csv", index=False)
    words = "rows of X occur more than once. If a copy is the same sample taken twice"
    twice = tuple(word.replace("{shop}/train.csv", "twice.csv") for word in ALL_COLUMNS)
    assert words in command(*twice, "--ignore", "part").err
    assert words not in command(*twice, "--group", "part").err
    assert words not in command(*WELD).err


@pytest.mark.more
def test_auto_takes_groups_and_a_scorer(command, shop):
    command(*ALL_COLUMNS, "--auto", "-K", "1", "-d", "1", "--scoring", "eer", "--group", "part")
    model = pcsda.load("m.pcsda")
    assert (model.cv_method_, model.scoring) == ("leave-one-out", "eer")
    alone = clone(model).fit(shop.train[FEATURES], binary(shop), groups=shop.train.part)
    np.testing.assert_array_equal(model.cv_scores_, alone.cv_scores_)
    assert list(model.feature_names_in_) == FEATURES


def test_auto_builds_a_bank_of_searches(command):
    command(*FIT, "--positive", "all", "--auto", "-K", "1,2", "-d", "1", "--jobs", "1")
    bank = pcsda.load("m.pcsda")
    assert isinstance(bank.estimator, PCSDACV)
    assert bank.estimator.n_subclasses == [1, 2]


def test_auto_searches_the_bandwidth_of_a_map(command):
    command(*WELD, "--auto", "--approx", "nystroem", "--map-components", "10", "-K", "1", "-d", "1",
            "--gamma", "0.1,0.5", "--regularization", "0.01", "--cv", "2")  # fmt: skip
    assert pcsda.load("m.pcsda").gamma == [0.1, 0.5]


def test_weights_and_subclasses_come_from_columns(command, shop, tmp_path):
    data = shop.train.assign(weight=np.arange(240) % 3 + 0.5)
    data.to_parquet("w.parquet")
    command("fit", "w.parquet", "--label", "kind", "--positive", "weld", "--weight", "weight",
            "--subclass", "kind", "--ignore", "part", "-o", "m.pcsda")  # fmt: skip
    expected = PCSDA(random_state=0, pos_label="weld").fit(
        shop.train[FEATURES], binary(shop), subclass_labels=shop.train.kind,
        sample_weight=data.weight,
    )  # fmt: skip
    X = shop.test[FEATURES]
    model = pcsda.load("m.pcsda")
    np.testing.assert_array_equal(model.decision_function(X), expected.decision_function(X))


def test_labels_are_text_in_every_format(command, shop):
    numbers = shop.train.assign(kind=shop.train.kind.map({"weld": 1, "crack": 2, "pore": 3}))
    numbers.to_csv("n.csv", index=False)
    numbers.assign(kind=numbers.kind.astype(float)).to_parquet("n.parquet")
    scores = []
    for name in ("n.csv", "n.parquet"):
        command(
            "fit", name, "--label", "kind", "--positive", "1", "--ignore", "part", "-o", "m.pcsda"
        )
        assert pcsda.load("m.pcsda").classes_.tolist() == ["1", "not 1"]
        scores.append(pcsda.load("m.pcsda").decision_function(shop.test[FEATURES]))
    np.testing.assert_array_equal(*scores)


@pytest.mark.parametrize("approx", [(), ("--approx", "nystroem", "--map-components", "9")])
def test_a_fit_in_blocks_equals_the_librarys(command, shop, approx):
    command(*WELD, *approx, "--block-rows", "50", "--subclass", "part")
    model = pcsda.load("m.pcsda")
    assert list(model.feature_names_in_) == FEATURES
    again = clone(model)
    X, y = shop.train[FEATURES], binary(shop)
    parts = [slice(start, start + 50) for start in range(0, 240, 50)]
    pcsda.fit_blocks(again, [(X[rows], y[rows], shop.train.part[rows]) for rows in parts])
    X = shop.test[FEATURES]
    np.testing.assert_array_equal(model.decision_function(X), again.decision_function(X))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "--positive all",
            "a bank, a search or an exact kernel needs the whole table; fit one class",
        ),
        (
            "--auto",
            "is read in blocks, but a bank, a search or an exact kernel needs the whole table",
        ),
        ("--kernel rbf", "use --approx nystroem for a kernel, or fit on a subset of the rows"),
        ("--positive wled", "wled"),
    ],
)
def test_options_that_blocks_cannot_honour_are_rejected(command, words, message, tmp_path):
    assert message in command(*WELD, *words.split(), "--block-rows", "50", code=1).err
    assert list(tmp_path.iterdir()) == []


def test_standard_input_can_be_fitted_in_blocks(command, shop, tmp_path):
    """A stream can be read once and a fit needs many passes, so a temporary file holds it."""
    data = shop.train.assign(weight=np.arange(240) % 3 + 0.5)
    command("fit", "-", "--label", "kind", "--positive", "weld", "--weight", "weight", "-o",
            "m.pcsda", "--subclass", "part", "--block-rows", "50",
            stdin=data.to_csv(index=False).encode())  # fmt: skip
    assert [file.name for file in tmp_path.iterdir()] == ["m.pcsda"]
    model = pcsda.load("m.pcsda")
    again = clone(model)
    X, y = data[FEATURES], binary(shop)
    parts = [slice(start, start + 50) for start in range(0, 240, 50)]
    blocks = [(X[rows], y[rows], data.part[rows], data.weight[rows]) for rows in parts]
    pcsda.fit_blocks(again, blocks)
    X = shop.test[FEATURES]
    np.testing.assert_array_equal(model.decision_function(X), again.decision_function(X))


def test_blocks_keep_single_precision(command, shop):
    X = shop.train[FEATURES].to_numpy(np.float32)
    np.savez("t.npz", X=X, kind=shop.train.kind.to_numpy(str))
    for words in ((), ("--block-rows", "50")):
        command("fit", "t.npz", "--label", "kind", "--positive", "weld", "-o", "m.pcsda", *words)
        assert pcsda.load("m.pcsda").components_.dtype == np.float32


def test_a_large_table_is_fitted_in_blocks(command, monkeypatch):
    seen = []
    monkeypatch.setattr("pcsda.tables.available_memory", lambda: 1000)
    monkeypatch.setattr("pcsda.cli.fitting.fit_blocks", lambda *args, **_: seen.append(args))
    command(*WELD, code=1)  # the estimator is left unfitted
    assert len(seen) == 1


def test_verbose_messages_stay_out_of_the_results(command):
    said = command(*WELD, "--verbose", "--json")
    assert said.json()["model"] == "PCSDA"
    assert "[PCSDA] learning from 240 rows" in said.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("-K 1,2", "--n-subclasses takes several values only with --auto"),
        ("--gamma 2", "--gamma needs --kernel or --approx"),
        ("--auto --gamma 2", "--gamma needs --kernel or --approx"),
        ("--cv 3", "--scoring and --cv need --auto"),
        ("--jobs 2", "--jobs needs a bank (--positive all) or --auto"),
        ("--method csda -K 2", "--n-subclasses cannot be used with csda"),
        ("--method csda --auto", "--auto needs --method pcsda; csda has only -d to choose"),
        ("--method csda --subclass kind", "--subclass cannot be used with csda, which has no"),
        ("--approx fourier --landmarks kmeans", "--landmarks cannot be used with --approx fourier"),
        ("--approx fourier --degree 2", "--degree cannot be used with --approx fourier"),
        ("--priors 2", "--priors 2 must be empirical, equal or between 0 and 1"),
        ("--positive all --weight hue", "--weight and --group cannot be used with a bank"),
        (
            "--positive all --auto --approx nystroem --gamma 1,2",
            "--gamma takes several values only",
        ),
        ("--seed -1", "'-1' must be a whole number from 0 to 4294967295"),
        ("--balance some", "invalid choice: 'some'"),
        ("--negatives both", "invalid choice: 'both'"),
        ("--tails heavy", "invalid choice: 'heavy'"),
        ("--shrinkage much", "'much' must be a number or auto"),
        ("--map-components 0", "'0' must be a whole number of at least 1"),
        ("--ignore ,", "names no column"),
        ("--no-such-option", "unrecognized arguments: --no-such-option"),
    ],
)
def test_wrong_usage_exits_with_2(command, words, message, tmp_path):
    assert message in command(*WELD, *words.split(), code=2).err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--positive wled", "has this label, did you mean 'weld'? The labels are crack, po"),
        ("--label sort", "--label sort: {shop}/train.csv has no column 'sort'; it has width, dep"),
        ("--label part", "train.csv has this label, did you mean 'weld-9'? The labels are crack-0"),
        ("--weight kind", "--weight kind: this column of {shop}/train.csv must have a number"),
        ("-d 9", "n_components=9 must be at most "),
        ("-K 999", "n_subclasses=999"),
        ("--solver magic", "solver='magic' must be one of 'auto', 'cholesky'"),
        ("--kernel magic", "kernel='magic' must be one of "),
        ("--regularization -1", "regularization=-1 must be a number of at least 0"),
        ("-o none/m.pcsda", "none/m.pcsda: there is no folder "),
        ("-o .", ". is a folder; give the name of a file"),
        ("-o {shop}/train.csv", "{shop}/train.csv would overwrite {shop}/train.csv; give another"),
    ],
)  # fmt: skip
def test_data_errors_exit_with_1(command, shop, words, message, tmp_path):
    said = command(*WELD, *words.split(), code=1).err
    assert message.replace("{shop}", str(shop.folder)) in said
    assert list(tmp_path.iterdir()) == []


def test_non_numeric_columns_are_named(command):
    words = [word for word in WELD if word not in ("--ignore", "part")]
    said = command(*words, "--features", "part,hue", code=1).err
    assert "train.csv has columns that are not numeric: part ('" in said
    assert "' in row 0); leave them out with --ignore" in said


def test_a_table_of_one_class_is_rejected(command, shop):
    shop.train[shop.train.kind == "weld"].to_csv("one.csv", index=False)
    said = command("fit", "one.csv", "--label", "kind", "--positive", "weld", "--ignore", "part",
                   "-o", "m.pcsda", code=1).err  # fmt: skip
    assert "rows of one.csv have this label; rows of the rest are needed as well" in said


def test_duplicate_rows_cause_a_single_message(command):
    rows = "x,y,kind\n" + "1,2,a\n" * 5 + "1,2,b\n" * 5
    said = command("fit", "-", "--label", "kind", "--positive", "a", "-o", "m.pcsda",
                   stdin=rows.encode(), code=1).err  # fmt: skip
    assert "rows" in said


def test_an_interruption_leaves_no_file(command, monkeypatch, tmp_path):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("os.fsync", stop)
    assert command(*WELD, code=130).err == "pcsda: interrupted\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform == "win32", reason="no such signals")
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_an_end_from_outside_leaves_no_temporary_rows(command, monkeypatch, tmp_path, name):
    number = getattr(signal, name)
    before = signal.signal(number, signal.SIG_DFL)  # nohup ignores SIGHUP
    seen = []

    def ended(*_, **__):
        seen.extend(path.name for path in tmp_path.glob(".pcsda-*"))
        os.kill(os.getpid(), number)

    monkeypatch.setattr("pcsda.cli.fitting.fit_blocks", ended)
    command(*WELD, "--block-rows", "60", code=128 + number)
    assert len(seen) == 1
    assert os.listdir(tmp_path) == []
    assert signal.signal(number, before) == signal.SIG_DFL


def test_a_failed_write_keeps_the_old_file(command, monkeypatch, tmp_path):
    (tmp_path / "m.pcsda").write_text("old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    assert "No space left on device" in command(*WELD, code=1).err
    assert [file.read_text() for file in tmp_path.iterdir()] == ["old"]


def test_a_threshold_is_chosen_and_kept(command, shop):
    said = command(*WELD, "--max-false-alarms", "0.02")
    expected = clone(shop.model).fit(shop.train[FEATURES], binary(shop))
    threshold = expected.choose_threshold(max_false_alarms=0.02)
    assert pcsda.load("m.pcsda").threshold_ == threshold
    assert f"Threshold: {threshold}." in said.out
    facts = command(*WELD, "--auto", "-K", "2,3", "--max-false-alarms", "0.02", "--json").json()
    assert facts["threshold"]["n_negatives"] == threshold.n_negatives
    assert pcsda.load("m.pcsda").threshold_.value == facts["threshold"]["value"]
    assert "the smallest rate that" in command(*WELD, "--max-false-alarms", "0.0001").err


def test_a_threshold_is_chosen_in_blocks_too(command, shop):
    words = ("--max-false-alarms", "0.05", "--block-rows", "50", "--json")
    facts = command(*WELD, *words).json()
    assert facts["threshold"]["n_negatives"] == np.sum(shop.train.kind != "weld")
    assert pcsda.load("m.pcsda").threshold_.value == facts["threshold"]["value"]


def test_impossible_thresholds_are_rejected(command):
    words = ("--max-false-alarms", "0.02")
    assert (
        "needs a single class, not a bank" in command(*FIT, "--positive", "all", *words, code=2).err
    )
    said = command(*ALL_COLUMNS, "--group", "part", "--block-rows", "50", code=1).err
    assert "is read in blocks, where rows are left out one by one; omit --group" in said
    assert "this model has no left-out scores" in command(*WELD, *words, "--published", code=1).err
    assert (
        "must be a number between 0 and 1" in command(*WELD, "--max-false-alarms", "2", code=2).err
    )


def test_a_threshold_works_with_more_rows_than_are_left_out(command):
    rng = np.random.default_rng(0)
    y = np.where(np.arange(6000) < 300, "weld", "rest")
    np.savez("many.npz", X=rng.normal(size=(6000, 2)) + 2 * (y == "weld")[:, None], y=y)
    words = ("fit", "many.npz", "--label", "y", "--positive", "weld", "-o", "m.pcsda")
    facts = command(*words, "--max-false-alarms", "0.01", "--json").json()
    assert 0 < facts["metrics"]["eer"] < 0.5
    assert (
        facts["threshold"]["n_negatives"]
        == np.isfinite(pcsda.load("m.pcsda").loo_scores_[300:]).sum()
    )
    assert facts["threshold"]["n_negatives"] < 5700


def test_one_positive_has_a_threshold_and_no_error_rate(command, shop):
    one = shop.train[(shop.train.kind != "weld") | ~shop.train.kind.duplicated()]
    one.to_csv("one.csv", index=False)
    words = ("fit", "one.csv", *WELD[2:], "--max-false-alarms", "0.02")
    said = command(*words)
    assert "a single positive shows no spread" in said.err
    assert "an unknown share of misses (0 positives)" in said.out
    assert "equal error rate" not in said.out
    facts = command(*words, "--json").json()
    assert facts["threshold"]["misses"] is None
    assert facts["threshold"]["n_negatives"] == (one.kind != "weld").sum()
    counted = command("count", "m.pcsda", "{shop}/test.csv").out
    assert "The intervals take the log-likelihood ratios as exact" in counted


def test_contamination_reaches_the_estimator(command):
    command(*WELD, "--contamination", "auto")
    model = pcsda.load("m.pcsda")
    assert model.contamination == "auto"
    assert 0 <= model.contamination_ < 0.5
    command(*WELD, "--contamination", "0.05")
    assert pcsda.load("m.pcsda").contamination_ == 0.05


def test_a_contamination_out_of_range_is_refused(command):
    said = command(*WELD, "--contamination", "0.7", code=1)
    assert "contamination=0.7 must be at least 0 and below 0.5, or 'auto'" in said.err


def test_subclasses_are_named_after_the_other_labels(command, shop):
    command("fit", "{shop}/train.csv", "--label", "kind", "--positive", "weld", "-K", "3",
            "--id", "part", "-o", "m.pcsda")  # fmt: skip
    model = pcsda.load("m.pcsda")
    groups, kinds = model.partition_, shop.train.kind.to_numpy(str)
    said = command("inspect", "m.pcsda").out
    named = command("inspect", "m.pcsda", "--json").json()["subclasses"]
    assert [one["subclass"] for one in named] == [1, 2, 3]
    for group, one in enumerate(named, 1):
        inside = kinds[groups == group].tolist()
        most = max(sorted(set(inside)), key=inside.count)
        alone = inside.count(most) == len(inside)
        assert one["rows are"] == (most if alone else f"mostly {most}")
        parts = shop.train.part.astype(str)[groups == group].tolist()
        assert len(one["examples"]) == 3
        assert {*one["examples"]} <= {*parts}
        assert f"{one['rows are']}  " in said
        assert ", ".join(one["examples"]) in said
    assert "part" not in command("inspect", "m.pcsda", "--json").json()["feature_names"]
    # The report says it too, beside the rows that it explains and in the facts.
    command("evaluate", "m.pcsda", "{shop}/test.csv", "--label", "kind", "--resamples", "5",
            "--report", "r.html")  # fmt: skip
    page = Path("r.html").read_text()
    assert model.subclass_names_ == ["mostly crack", "mostly pore", "mostly crack"]
    assert "<dt>Subclasses</dt><dd>3: 2 mostly crack, mostly pore</dd>" in page
    assert f"({model.subclass_names_[0]}, examples {model.subclass_examples_[0][0]}" in page
    # With one label for all negatives there are only examples.
    shop.train.assign(kind=np.where(shop.train.kind == "weld", "weld", "no")).to_csv("two.csv")
    command("fit", "two.csv", "--label", "kind", "--positive", "weld", "-o", "m.pcsda")
    for one in command("inspect", "m.pcsda", "--json").json()["subclasses"]:
        assert {*one} == {"subclass", "weight", "examples"}


@pytest.mark.more
def test_inspect_and_the_report_name_a_banks_subclasses(command, shop):
    command("fit", "{shop}/train.csv", "--label", "kind", "--positive", "all", "-K", "3",
            "--id", "part", "-o", "b.pcsda")  # fmt: skip
    bank = pcsda.load("b.pcsda")
    said = command("inspect", "b.pcsda").out
    assert f"accept a log-likelihood ratio of at least {bank.threshold_.value:.4g}" in said
    named = command("inspect", "b.pcsda", "--json").json()["subclasses"]
    parts = {*shop.train.part.astype(str)}
    for label, model in bank.models_.items():
        own = [one for one in named if one["label"] == label]
        assert [one["rows are"] for one in own] == model.subclass_names_
        assert all({*one["examples"]} <= parts and one["examples"] for one in own)
        line = next(line for line in said.splitlines() if line.startswith(f"{label} "))
        for name in model.subclass_names_:
            count = model.subclass_names_.count(name)
            assert (name if count == 1 else f"{count} {name}") in line
    command("evaluate", "b.pcsda", "{shop}/test.csv", "--label", "kind", "--resamples", "5",
            "--report", "r.html")  # fmt: skip
    page = Path("r.html").read_text()
    assert "<dt>Subclasses</dt><dd>3</dd>" in page  # names are those of each label's picture
    assert f'"centres":[{{"name":"{bank.models_["weld"].subclass_names_[0]}"' in page


def test_a_bank_that_names_hardly_anybody_comes_with_a_remedy(command):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.standard_normal((120, 3)), columns=["a", "b", "c"])
    frame["kind"] = np.arange(120) % 4  # the columns say nothing about the labels
    frame.to_csv("noise.csv", index=False)
    said = command("fit", "noise.csv", "--label", "kind", "--positive", "all", "-o", "n.pcsda")
    assert pcsda.load("n.pcsda").threshold_.misses >= 0.9
    assert "so hardly any row is named" in said.err
    assert "Ask for a higher rate (choose_threshold, or pcsda identify --max-fal" in said.err
