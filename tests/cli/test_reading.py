"""Tables of all formats are one table, and what cannot be read is told."""

import gzip

import numpy as np
import pandas as pd
import pytest

from pcsda.cli import reading, tables
from pcsda.cli.problems import Problem, said

FEATURES = ["width", "depth", "hue", "grain", "rim"]
NAMED = ["test.csv", "test.tsv", "semicolons.csv", "test.csv.gz", "test.parquet", "records.npy"]


@pytest.mark.parametrize("name", NAMED)
def test_named_formats_give_the_same_columns(shop, name):
    table = reading.read(str(shop.folder / name), text=["kind", "part"])
    assert table.names == list(shop.test.columns)
    np.testing.assert_array_equal(tables.labels(table, "kind"), shop.test.kind)
    found = tables.numbers(table, FEATURES)
    assert list(found.columns) == FEATURES
    np.testing.assert_allclose(found, shop.test[FEATURES], rtol=1e-12)


def test_npz_has_a_matrix_and_columns_by_name(shop):
    table = reading.read(str(shop.folder / "test.npz"))
    assert table.names == ["0", "1", "2", "3", "4"]
    np.testing.assert_array_equal(tables.labels(table, "part"), shop.test.part)
    np.testing.assert_array_equal(tables.numbers(table, table.names), shop.test[FEATURES])


def test_npy_columns_go_by_number(shop):
    table = reading.read(str(shop.folder / "matrix.npy"))
    names = tables.chosen(table, ["1"], [], [])
    assert names == ["0", "2", "3", "4"]
    np.testing.assert_array_equal(table.column("1", "--label"), shop.test.depth)
    np.testing.assert_array_equal(
        tables.numbers(table, names), shop.test[FEATURES].drop(columns="depth")
    )


@pytest.mark.parametrize("rows", [1, 7, 90, 1000])
@pytest.mark.parametrize("name", [*NAMED, "test.npz", "matrix.npy"])
def test_pieces_make_up_the_whole(shop, name, rows):
    path = str(shop.folder / name)
    whole = reading.read(path, text=["kind"])
    parts = list(reading.pieces(path, ["kind"], rows))
    assert [len(part) for part in parts[:-1]] == [rows] * (len(parts) - 1)
    assert [part.start for part in parts] == list(range(0, 90, rows))
    names = whole.names if whole.matrix is not None else FEATURES
    joined = np.concatenate([np.asarray(tables.numbers(part, names)) for part in parts])
    np.testing.assert_array_equal(joined, tables.numbers(whole, names))
    if name != "matrix.npy":
        labels = np.concatenate([tables.labels(part, "kind") for part in parts])
        np.testing.assert_array_equal(labels, tables.labels(whole, "kind"))


@pytest.mark.parametrize(
    ("value", "text"), [(3, "3"), (3.0, "3"), (2.5, "2.5"), (True, "True"), (b"x", "x"), ("7", "7")]
)
def test_labels_as_they_are_written(value, text):
    assert tables.as_text(value) == text


def test_labels_of_csv_stay_as_written(tmp_path):
    (tmp_path / "a.csv").write_text("x,kind\n1,007\n2,NA\n3,nan\n")
    table = reading.read(str(tmp_path / "a.csv"), text=["kind"])
    assert tables.labels(table, "kind").tolist() == ["007", "NA", "nan"]


def test_spaces_and_marks_before_names_are_no_part_of_them(tmp_path):
    (tmp_path / "a.csv").write_bytes("\ufeffx, y\r\n1, 2\r\n".encode())
    assert reading.read(str(tmp_path / "a.csv")).names == ["x", "y"]


@pytest.mark.parametrize("rows", [None, 20])
def test_row_numbers_without_a_name_are_left_out(shop, tmp_path, capsys, rows):
    """As DataFrame.to_csv writes them."""
    shop.test.to_csv(tmp_path / "a.csv")
    said.clear()
    if rows is None:
        table = reading.read(str(tmp_path / "a.csv"))
    else:
        table = next(reading.pieces(str(tmp_path / "a.csv"), (), rows))
    assert table.names == list(shop.test.columns)
    assert "the first column of" in capsys.readouterr().err
    np.testing.assert_array_equal(table.frame.hue, shop.test.hue[:rows])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"", r"a.csv is empty; the first line must name the columns"),
        ("a.csv", b"x,y\n", r"a.csv has no rows, only columns: x, y"),
        ("a.csv", b"x,x\n1,2\n", r"a.csv has columns of the same name: x; rename them"),
        ("a.csv", b",\n1,2\n", r"without a name, at place 1; the first line must"),
        ("a.csv", b"x,,z\n1,2,3\n", r"without a name, at place 2; the first line must"),
        ("a.csv", b"1.5,2.5\n1,2\n", r"starts with a line of numbers, 1.5, 2.5; the first line"),
        ("a.csv", b"x,y\n1,2\n1,2,3\n", r"a.csv could not be read as CSV: "),
        ("a.csv", b"x,y\n\xff\xfe,2\n", r"a.csv is not text in UTF-8 "),
        (
            "a.csv.gz",
            gzip.compress(b"x,y\n" + b"1,2\n" * 999, mtime=0)[:40],
            r"could not be read as CSV: ",
        ),
        ("a.csv.gz", b"no gzip", r"a.csv.gz could not be read as CSV: "),
        ("a.parquet", b"PAR1 cut", r"a.parquet could not be read as Parquet: "),
        ("a.npy", b"\x93NUMPY", r"a.npy could not be read as NPY or NPZ: "),
        ("a.npz", b"PK\x03\x04 cut", r"a.npz could not be read as NPY or NPZ: "),
        ("a.xlsx", b"", r"a.xlsx: the format is not known by this extension; use .csv, .tsv"),
    ],
)
def test_what_cannot_be_read_is_told(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(Problem, match=message):
        reading.read(str(tmp_path / name))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"X": np.ones((2, 2)), "y": np.ones(3)}, r"as many entries as rows; it has X \(2, 2\), y"),
        ({"a": np.ones((2, 2)), "b": np.ones((2, 2))}, r"one array of two dimensions, or one call"),
        ({"X": np.ones((2, 2, 2))}, r"it has X \(2, 2, 2\)"),
        ({}, r"it has none"),
    ],
)
def test_npz_of_odd_shapes_is_refused(tmp_path, arrays, message):
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(Problem, match=message):
        reading.read(str(tmp_path / "a.npz"))


def test_npy_must_have_two_dimensions(tmp_path):
    np.save(tmp_path / "a.npy", np.ones(4))
    with pytest.raises(Problem, match=r"shape \(4,\); it must have two dimensions, rows and col"):
        reading.read(str(tmp_path / "a.npy"))


def test_pickled_objects_are_not_loaded(tmp_path):
    np.savez(tmp_path / "a.npz", X=np.ones((2, 2)), y=np.array(["a", 1], dtype=object))
    with pytest.raises(Problem, match=r"holds Python objects, which are not loaded.*y.astype\(str"):
        reading.read(str(tmp_path / "a.npz"))


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(Problem, match=r"none.csv does not exist"):
        reading.read(str(tmp_path / "none.csv"))
    with pytest.raises(Problem, match=r"is a folder; name a CSV, Parquet, NPY or NPZ file"):
        reading.read(str(tmp_path))


def test_without_pandas_the_extra_is_named(monkeypatch, shop):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(
        Problem, match=r'pandas is needed to read tables: pip install "pcsda\[cli\]'
    ):
        reading.read(str(shop.folder / "test.csv"))


@pytest.mark.parametrize("name", ["test.csv", "test.csv.gz", "test.parquet", "matrix.npy"])
def test_a_table_is_large_beside_little_memory(shop, monkeypatch, name):
    path = str(shop.folder / name)
    assert not reading.is_large(path)
    monkeypatch.setattr(reading, "available_memory", lambda: 1000)
    assert reading.is_large(path)
    assert not reading.is_large("-")


@pytest.fixture
def odd():
    frame = pd.DataFrame(
        {
            "a": [1.0, np.nan, 3.0],
            "b": [1, 2, 3],
            "c": [1.0, 2.0, np.inf],
            "word": ["1", "two", "3"],
            "day": pd.to_datetime(["2020-01-01"] * 3),
            "z": [1j, 2j, 3j],
            "yes": [True, False, True],
        }
    )
    return tables.Table("odd.csv", frame, start=100)


def test_columns_that_are_not_numeric_are_listed(odd):
    message = r"not numeric: word \('two' in row 1\), day \(.*\), z \(complex128\); leave them out"
    with pytest.raises(Problem, match=message):
        tables.numbers(odd, odd.names)


def test_gaps_are_listed_with_their_place(odd):
    message = (
        r"odd.csv has 2 missing or infinite values, in columns a \(1\), c \(1\), first in row 101"
    )
    with pytest.raises(Problem, match=message):
        tables.numbers(odd, ["a", "b", "c"])


def test_truth_values_and_nullable_numbers_are_numbers(odd):
    assert tables.numbers(odd, ["b", "yes"]).shape == (3, 2)
    frame = pd.DataFrame({"n": pd.array([1, None], dtype="Int64")})
    with pytest.raises(Problem, match=r"has 1 missing or infinite values, in columns n \(1\)"):
        tables.numbers(tables.Table("t", frame), ["n"])


def test_labels_without_a_value_are_told(tmp_path):
    (tmp_path / "a.csv").write_text("x,kind\n1,a\n2,\n3,b\n4,\n")
    table = reading.read(str(tmp_path / "a.csv"), text=["kind"])
    with pytest.raises(
        Problem, match=r"--label kind: 2 rows of .* have no value, first row 1; fill"
    ):
        tables.labels(table, "kind")


def test_patterns_choose_columns(odd):
    assert tables.chosen(odd, ["a"], ["?"], ["z"]) == ["b", "c"]
    assert tables.chosen(odd, ["a", None], [], ["w*", "day", "z"]) == ["b", "c", "yes"]
    with pytest.raises(
        Problem, match=r"--features q\*: odd.csv has no such column; it has a, b, c"
    ):
        tables.chosen(odd, [], ["q*"], [])
    with pytest.raises(Problem, match=r"odd.csv has no feature columns left of a, b"):
        tables.chosen(odd, [], [], ["*"])
    with pytest.raises(Problem, match=r"--label kind: odd.csv has no such column; it has a, b, c"):
        odd.column("kind", "--label")


def test_large_numbers_are_no_gaps():
    huge = np.full((3, 2), 1e308)  # whose sum is infinite
    table = tables.Table("t", pd.DataFrame(index=range(3)), huge)
    assert tables.numbers(table, table.names) is huge
    words = tables.Table("t", pd.DataFrame(index=range(2)), np.array([["a"], ["b"]]))
    with pytest.raises(Problem, match=r"t has columns that are not numeric: 0 \(<U1\)"):
        tables.numbers(words, words.names)


def test_rows_are_counted_on_a_terminal(shop, monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    list(reading.pieces(str(shop.folder / "matrix.npy"), (), 60))
    assert capsys.readouterr().err == "\r60 rows \r90 rows \n"


def test_lists_are_cut():
    assert tables.listed("abc") == "a, b, c"
    assert tables.listed(range(20), 3) == "0, 1, 2, ... (20 in all)"
