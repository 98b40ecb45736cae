"""Data as users have it: units, missing values, ids, text; scoring repeats the preparation."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import pcsda
from pcsda.cli.problems import Problem
from pcsda.cli.spooling import full_disk_named, spooled
from pcsda.persistence import describe
from pcsda.tables.seen import KEPT, row_hashes, share_seen, sketch

FEATURES = ["width", "depth", "hue", "grain", "rim"]
FIT = ("fit", "t.csv", "--label", "kind", "--positive", "weld", "-o", "m.pcsda")


@pytest.fixture
def messy(shop, command):
    """Make a table with units, missing values, an id, text and dates."""
    frame = shop.train.copy()
    frame["width"] *= 5000
    frame.loc[3, "hue"] = np.nan
    frame.loc[[5, 6], "rim"] = np.nan
    frame["id"] = np.arange(len(frame))[::-1] + 1000
    frame["day"] = pd.Timestamp("2020-05-01")
    frame.to_csv("t.csv", index=False)
    return frame


def test_decimal_commas_are_not_dropped_as_text(shop, command):
    frame = shop.train.assign(hue=shop.train.hue.map(str).str.replace(".", ",", regex=False))
    frame.to_csv("t.csv", index=False, sep=";")
    said = command(*FIT, code=1).err
    remedy = "read them with '--decimal ,' or leave the columns out with --ignore"
    assert f"t.csv has numbers with a decimal comma in hue; {remedy}" in said
    command(*FIT, "--ignore", "hue")
    # With a comma chosen, one wrong entry is a typing error, as it is with points.
    frame = shop.train.assign(part="p")
    text = frame.to_csv(index=False, sep=";", decimal=",").replace(
        str(frame.hue[0]).replace(".", ","), "?", 1
    )
    Path("t.csv").write_text(text, encoding="utf-8")
    assert "not numeric: hue" in command(*FIT, "--decimal", ",", code=1).err


def test_a_word_among_decimal_commas_is_named(shop, command):
    """The first number was named instead, with the advice to use the option that was given."""
    frame = shop.train.copy()
    text = frame.to_csv(index=False, sep=";", decimal=",").splitlines()
    text[4] = ";".join(["k.A.", *text[4].split(";")[1:]])
    Path("t.csv").write_text("\n".join(text), encoding="utf-8")
    said = command(*FIT, "--decimal", ",", code=1).err
    assert "not numeric: width ('k.A.' in row 3); leave them out" in said
    assert "(an empty cell is a missing value)" in said
    command("fit", "{shop}/train.csv", *FIT[2:])
    said = command("score", "m.pcsda", "t.csv", "--decimal", ",", code=1).err
    assert "not numeric: width ('k.A.' in row 3); leave them out" in said
    text[4] = text[4].replace("k.A.", "1.5")
    Path("t.csv").write_text("\n".join(text), encoding="utf-8")
    said = command(*FIT, "--decimal", ",", code=1).err
    assert "not numeric: width ('1.5' in row 3 with a decimal point); leave them out" in said


def test_a_table_with_the_other_decimal_mark_names_the_option(shop, command):
    frame = shop.train[[*FEATURES, "kind"]]
    frame.to_csv("t.csv", index=False, sep=";", decimal=",")
    frame.to_csv("points.csv", index=False)
    command(*FIT, "--decimal", ",")
    said = command("score", "m.pcsda", "points.csv", code=1).err
    assert "in row 0 with a decimal point), " in said
    assert "; read it with '--decimal .', leave them out" in said
    command("score", "m.pcsda", "points.csv", "--decimal", ".")
    command("fit", "points.csv", *FIT[2:])
    assert "read it with '--decimal ,'" in command("score", "m.pcsda", "t.csv", code=1).err


def test_a_number_too_large_to_scale_is_named(shop, command):
    frame = shop.train.copy()
    frame.loc[7, "hue"] = 1e300
    frame.to_csv("t.csv", index=False)
    said = command(*FIT, "--scale", "standard", code=1).err
    assert "or correct the largest number, 1e+300 in row 7, column 'hue'" in said


def test_columns_that_are_not_features_are_left_out_and_named(messy, command):
    said = command(*FIT, "--missing", "drop").err
    message = (
        "columns are left out: part (text), id (all different whole numbers, like ids), day (dates)"
    )
    assert f"{message}; to use id, list all features in --features\n" in said
    assert pcsda.load("m.pcsda").feature_names_in_.tolist() == FEATURES
    # Columns left out at the fit are not reported again.
    assert "does not know" not in command("score", "m.pcsda", "t.csv", "--ignore", "kind").err
    command(*FIT, "--missing", "drop", "--features", "id,width")
    assert pcsda.load("m.pcsda").feature_names_in_.tolist() == ["width", "id"]


def test_parquet_dates_are_left_out_and_text_only_tables_are_rejected(messy, command):
    messy.to_parquet("t.parquet")
    words = [word.replace("t.csv", "t.parquet") for word in FIT]
    assert "day (dates)" in command(*words, "--missing", "drop").err
    said = command(*words, "--ignore", "*[ehm]", "--ignore", "id,grain,width,hue", code=1).err
    assert "has no numeric columns: part (text), day (dates); name features with" in said


def test_integer_measurements_stay_features(command):
    rng = np.random.default_rng(0)
    X = rng.permutation(10_000)[:160].reshape(40, 4)
    frame = pd.DataFrame(X, columns=list("abcd")).assign(kind=["weld", "rest"] * 20)
    frame.to_csv("t.csv", index=False)
    assert "left out" not in command(*FIT).err
    frame[["a", "kind"]].assign(b=rng.normal(size=40)).to_csv("t.csv", index=False)
    assert "a (all different whole numbers, like ids)" in command(*FIT).err


def test_text_with_a_few_wrong_numbers_is_an_error(messy, command):
    messy["width"] = messy["width"].astype(object)
    messy.loc[7, "width"] = "1,5"
    messy.to_csv("t.csv", index=False)
    said = command(*FIT, code=1).err
    assert "not numeric: width ('1,5' in row 7 with a decimal comma); leave them out" in said


def test_missing_values_are_an_error_by_default(messy, command):
    said = command(*FIT, code=1).err
    assert "3 missing or infinite values, in columns hue (1), rim (2), first in row 3" in said
    assert "--missing drop leaves those rows out, and a model fitted with --missing imp" in said


def test_dropping_incomplete_rows_keeps_the_other_row_numbers(messy, command):
    said = command(*FIT, "--missing", "drop")
    assert "3 of 240 rows of t.csv have missing or infinite values and are left out" in said.err
    assert "fitted on 237 rows and 5 columns" in said.out
    found = command("score", "m.pcsda", "t.csv", "--ignore", "kind")
    assert "3 of 240 rows" in found.err
    assert found.table().row.tolist() == [i for i in range(240) if i not in (3, 5, 6)]
    pieces = command("score", "m.pcsda", "t.csv", "--ignore", "kind", "--block-rows", "50")
    pd.testing.assert_frame_equal(pieces.table(), found.table())
    said = command("score", "m.pcsda", "t.csv", "--ignore", "kind", "--missing", "fail", code=1)
    assert "missing or infinite values" in said.err
    said = command("score", "m.pcsda", "t.csv", "--ignore", "kind", "--missing", "impute", code=2)
    assert "--missing impute: the model was fitted without it and has no values" in said.err


def test_missing_values_are_filled_with_training_medians(messy, command):
    said = command(*FIT, "--missing", "impute").err
    filled = "values in 3 rows are filled in with the median of their column"
    assert f"3 missing or infinite {filled}" in said
    found = command("score", "m.pcsda", "t.csv", "--ignore", "kind").table()
    # From the file: before 3.0, pandas reads some numbers back with another last digit.
    read = pd.read_csv("t.csv")[FEATURES]
    X = read.fillna(read.median())
    model = pcsda.PCSDA(random_state=0, pos_label="weld")
    model.fit(X.to_numpy(), np.where(messy.kind == "weld", "weld", "not weld"))
    np.testing.assert_allclose(found.llr, model.log_likelihood_ratio(X.to_numpy()), rtol=1e-9)
    said = command(*FIT, "--missing", "impute", "--block-rows", "50", code=1).err
    assert "--missing impute: t.csv is read in blocks, but medians need the whole table" in said


def test_an_exported_model_fills_in_missing_numbers(messy, command):
    runtime = pytest.importorskip("onnxruntime")
    command(*FIT, "--missing", "impute", "--scale", "standard")
    command("export", "m.pcsda", "--onnx", "m.onnx", "--dtype", "float64")
    X = messy[FEATURES].to_numpy(np.float64)
    (llr,) = runtime.InferenceSession("m.onnx").run(["log_likelihood_ratio"], {"X": X})
    expected = command("score", "m.pcsda", "t.csv", "--ignore", "kind").table().llr
    np.testing.assert_allclose(llr.ravel(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("scale", ["standard", pytest.param("robust", marks=pytest.mark.more)])
def test_columns_are_scaled_on_request(messy, command, scale):
    messy = messy.dropna()
    messy.to_csv("t.csv", index=False)
    said = command(*FIT).err
    assert "columns have different units: width spans" in said
    assert "; --scale standard puts them on one scale. Without it, columns with small" in said
    assert "columns have different units: width spans" in command(*FIT, "--block-rows", "50").err
    assert "units" not in command(*FIT, "--scale", scale).err
    found = command("score", "m.pcsda", "t.csv", "--ignore", "kind").table().llr
    messy.assign(width=messy.width / 5000).to_csv("t.csv", index=False)
    command(*FIT, "--scale", scale)
    again = command("score", "m.pcsda", "t.csv", "--ignore", "kind").table().llr
    np.testing.assert_allclose(found, again, rtol=1e-6)
    said = command("score", "m.pcsda", "t.csv", "--scale", "none", code=2).err
    assert f"--scale none: the model was fitted with --scale {scale}" in said
    command(*FIT, "--scale", scale, "--block-rows", "60")
    command("export", "m.pcsda", "--onnx", "m.onnx")


def test_the_model_keeps_encoding_and_decimal(shop, command):
    frame = shop.train.rename(columns={"hue": "größe"}).drop(columns="part")
    frame.to_csv("t.csv", index=False, sep=";", decimal=",", encoding="cp1252")
    said = command(*FIT, code=1).err
    assert "t.csv is not text in UTF-8" in said
    assert "--encoding cp1252" in said
    command(*FIT, "--encoding", "cp1252", "--decimal", ",")
    assert "größe" in pcsda.load("m.pcsda").feature_names_in_
    assert describe("m.pcsda")["table"]["decimal"] == ","
    found = command("score", "m.pcsda", "t.csv", "--ignore", "kind").table()
    assert len(found) == 240
    said = command(*FIT, "--encoding", "klingon", code=2).err
    assert "--encoding klingon is not known; use utf-8, cp1252, latin-1, utf-16" in said
    for other in ("rot13", "base64", "undefined", ""):  # no text encodings
        said = command("score", "m.pcsda", "t.csv", "--encoding", other, code=2).err
        assert f"--encoding {other} is not known" in said


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "UTF_32", "utf32"])
def test_wide_characters_are_read_from_files_and_from_a_pipe(encoding, shop, command):
    frame = shop.train.rename(columns={"hue": "größe"}).drop(columns="part")
    text = frame.to_csv(index=False).encode(encoding)
    Path("t.csv").write_bytes(text)
    command(*FIT, "--encoding", encoding)
    found = command("score", "m.pcsda", "t.csv", "--ignore", "kind").table()
    piped = command("score", "m.pcsda", "-", "--ignore", "kind", stdin=text).table()
    assert piped.llr.tolist() == found.llr.tolist()
    assert len(piped) == 240


def test_an_embedding_is_fitted_and_scored(shop, command):
    frame = shop.train[["kind"]].assign(face=list(shop.train[FEATURES].to_numpy(np.float32)))
    frame.to_parquet("t.parquet")
    words = [word.replace("t.csv", "t.parquet") for word in FIT]
    command(*words)
    assert pcsda.load("m.pcsda").feature_names_in_[0] == "face[0]"
    found = command("score", "m.pcsda", "t.parquet", "--ignore", "kind").table()
    expected = shop.model.log_likelihood_ratio(shop.train[FEATURES])
    np.testing.assert_allclose(found.llr, expected, atol=1e-3)


@pytest.mark.more
def test_an_evaluation_on_training_rows_warns(shop, command):
    words = ("evaluate", "m.pcsda", "t.csv", "--label", "kind", "--resamples", "5")
    shop.train.to_csv("t.csv", index=False)
    command(*FIT)
    seen = "the model was trained on these rows, so the figures look better than they are; evaluate"
    assert seen in command(*words).err
    pd.concat([shop.train[:30], shop.test[:70]]).to_csv("t.csv", index=False)
    assert "the model was trained on about 30% of these rows" in command(*words).err
    shop.test.to_csv("t.csv", index=False)
    assert "was trained on" not in command(*words).err


def test_fingerprints_recognise_rows_in_any_format_and_order():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20 * KEPT, 3))
    known = sketch([row_hashes(part) for part in np.array_split(X, 7)])
    assert len(known) == KEPT
    assert share_seen(known, row_hashes(X[::-1].astype(np.float32))) == 1
    other = rng.normal(size=(20 * KEPT, 3))
    assert share_seen(known, row_hashes(other)) == 0
    both = np.concatenate([X, other])
    assert share_seen(known, row_hashes(both)) == pytest.approx(0.5, abs=0.05)
    assert share_seen([], row_hashes(X)) == 0
    few = sketch([row_hashes(X[:10])])
    assert share_seen(few, row_hashes(X[:20])) == 0.5
    assert row_hashes(np.array([[0.0, 1.0]])) == row_hashes(np.array([[-0.0, 1.0]]))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_named():
    message = r"no room for the rows of the table in out \(No space left on device\); a fit in bl"
    with (
        pytest.raises(Problem, match=message),
        full_disk_named(Path("out")),
        open("/dev/full", "wb") as file,
    ):
        file.write(b"rows")
    with pytest.raises(FileNotFoundError), full_disk_named(Path("out")):
        Path("none").read_bytes()


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs a list of mapped files")
def test_a_spooled_table_is_read_not_mapped(tmp_path):
    """Touched pages of a memory map count as memory, in the end the whole table."""
    X = np.arange(12, dtype=np.float32).reshape(6, 2)
    parts = [(X[:4], np.array(["a", "b", "a", "b"]), {}), (X[4:], np.array(["b", "b"]), {})]
    with spooled(parts, tmp_path / "m.pcsda") as blocks:
        for _ in range(2):
            found = []
            for part in blocks():
                found.append(part)
                assert ".pcsda-" not in Path("/proc/self/maps").read_text(encoding="utf-8")
            np.testing.assert_array_equal(np.concatenate([part[0] for part in found]), X)
            assert found[0][0].dtype == np.float32
            assert np.concatenate([part[1] for part in found]).tolist() == list("ababbb")


def test_records_are_named_as_what_they_are(shop, command):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = pa.Table.from_pandas(shop.train)
    records = pa.array([{"x": 1.5, "y": 2.5}] * len(table))
    pq.write_table(table.append_column("size", records), "records.parquet")
    words = "fit", "records.parquet", "-o", "m.pcsda", "--positive", "weld", "--label"
    said = command(*words, "kind", code=1).err
    assert "has columns that are not numeric: size (object); leave them out with --ignore" in said
    said = command(*words, "size", code=1).err
    assert "--label size: this column of records.parquet holds records, not labels" in said


def test_lines_must_end_with_line_feeds(shop, command):
    text = shop.train.to_csv(index=False)
    with open("old.csv", "w", newline="") as file:
        file.write(text.replace("\n", "\r"))
    said = command("fit", "old.csv", "--label", "kind", "--positive", "weld", "-o", "m", code=1).err
    assert "old.csv ends its lines with carriage returns alone; save it with line feeds" in said
    with open("quoted.csv", "w", newline="") as file:
        file.write(text.replace("kind", '"kind\rof row"', 1).replace("\n", "\r\n"))
    command("fit", "quoted.csv", "--label", "kind\rof row", "--positive", "weld", "-o", "m")


def test_labels_that_are_one_number_written_in_two_ways_are_pointed_out(shop, command):
    kinds = np.where(shop.train.kind == "weld", "1", "none").astype(object)
    kinds[np.flatnonzero(kinds == "1")[0]] = "1.0"
    shop.train.assign(kind=kinds).to_csv("t.csv", index=False)
    said = command("fit", "t.csv", "--label", "kind", "--positive", "1", "-o", "m").err
    assert "--label kind: t.csv has" in said
    assert "the same number written in two ways" in said


def test_long_ids_that_differ_in_their_last_digit_are_different_numbers(shop, command):
    kinds = np.where(shop.train.kind == "weld", "12345678901234567891", "12345678901234567890")
    shop.train.assign(kind=kinds).to_csv("t.csv", index=False)
    said = command("fit", "t.csv", "--label", "kind", "--positive", kinds[0], "-o", "m").err
    assert "two ways" not in said


@pytest.mark.parametrize("label", ["WELD", "weld "])
def test_labels_that_differ_only_in_spelling_are_pointed_out(shop, command, label):
    kinds = shop.train.kind.to_numpy(object, copy=True)
    kinds[np.flatnonzero(kinds == "weld")[0]] = label
    shop.train.assign(kind=kinds, part=np.where(kinds == "weld", "p", "P")).to_csv("t.csv")
    said = command(*FIT, "--group", "part").err
    assert said.count("which differ only in case or in spaces; they count as different labels") == 1
    assert repr(label) in said


@pytest.mark.parametrize("wrong", ["1e400", "1_000", "9" * 400, "\u0661\u0662"])
def test_a_number_that_cannot_be_read_is_named_with_its_row(shop, command, wrong):
    shop.train.assign(hue=[*shop.train.hue[:30], wrong, *shop.train.hue[31:]]).to_csv("t.csv")
    said = command(*FIT, code=1).err
    infinite = "hue (1), first in row 30; --missing"  # what some versions of pandas read
    assert infinite in said or f"not numeric: hue ({wrong[:30]!r} in row 30); leave" in said


def test_infinite_values_are_treated_as_missing(shop, command):
    frame = shop.train.copy()
    frame.loc[3, "hue"] = np.inf
    frame.to_csv("t.csv", index=False)
    assert "1 missing or infinite value, in columns hue (1)" in command(*FIT, code=1).err
    said = command(*FIT, "--missing", "drop")
    assert "1 of 240 rows of t.csv has missing or infinite values and is left out" in said.err
    assert "fitted on 239 rows" in said.out
    filled = "1 missing or infinite value in 1 row is filled in with the median of its column"
    assert filled in command(*FIT, "--missing", "impute").err
    scores = command("score", "m.pcsda", "t.csv", "--ignore", "kind").table()
    assert np.isfinite(scores.llr).all()


def test_a_label_that_is_an_equal_number_is_suggested(shop, command):
    frame = shop.train.assign(kind=(shop.train.kind == "weld").astype(float))
    frame.to_csv("t.csv", index=False)
    said = command(*FIT[:5], "1", *FIT[6:], code=1).err
    assert "--positive 1: no row of t.csv has this label, did you mean '1.0'? The" in said
    assert "has this label; the labels are" in command(*FIT[:5], "2", *FIT[6:], code=1).err


def test_a_note_on_rare_false_alarms_names_no_python(shop, command):
    shop.train.to_csv("t.csv", index=False)
    said = command(*FIT, "--max-false-alarms", "0.001").err
    assert "Ask for a higher rate, or give at least 1000 negatives\n" in said
