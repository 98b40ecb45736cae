"""Tables of all formats are one table, and what cannot be read gets a message of its own."""

import bz2
import gzip
import io
import lzma
import pickle
import zipfile
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from factories import in_turn
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import feather, ipc, parquet

from pcsda import tables
from pcsda.tables import Table, Wording, arrow

FEATURES = ["width", "depth", "hue"]
TEXT = Wording(text=("kind", "part"))


def make_joints(n_rows=90):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(n_rows, 3)).round(6), columns=FEATURES)
    frame["kind"] = rng.choice(["weld", "crack", "NA"], n_rows)
    return frame.assign(part=[f"part {i % 7}" for i in range(n_rows)])


JOINTS = make_joints()
EMBEDDED = JOINTS[["kind", "part"]].assign(face=list(JOINTS[FEATURES].to_numpy(np.float32)))


def packed(opener):
    def write(frame, path):
        with opener(path, "wt", encoding="utf-8", newline="") as file:
            frame.to_csv(file, index=False)

    return write


def records(frame, path):
    kinds = [(name, "f8" if name in FEATURES else "U12") for name in frame.columns]
    np.save(path, np.array(list(frame.itertuples(index=False)), dtype=kinds))


def arrow_stream(frame, path):
    table = pa.Table.from_pandas(frame)
    with ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=25)


def arrow_file(frame, path):
    with ipc.new_file(path, pa.Schema.from_pandas(frame)) as writer:
        writer.write_table(pa.Table.from_pandas(frame), max_chunksize=40)


def parquet_parts(frame, path):
    path.mkdir()
    for number, rows in enumerate(np.array_split(np.arange(len(frame)), 3)):
        frame.iloc[rows].to_parquet(path / f"{number}.parquet", row_group_size=20)
    (path / "_SUCCESS").touch()
    (path / ".part.parquet").write_bytes(b"of another program")


WRITERS = {
    "t.csv": lambda f, p: f.to_csv(p, index=False),
    "t.tsv": lambda f, p: f.to_csv(p, index=False, sep="\t"),
    "semicolons.csv": lambda f, p: f.to_csv(p, index=False, sep=";"),
    "comma.csv": lambda f, p: f.to_csv(p, index=False, sep=";", decimal=","),
    "latin.csv": lambda f, p: f.to_csv(p, index=False, encoding="cp1252"),
    "wide.csv": lambda f, p: f.to_csv(p, index=False, encoding="utf-16"),
    "t.csv.gz": packed(gzip.open),
    "t.csv.bz2": packed(bz2.open),
    "t.csv.xz": packed(lzma.open),
    "t.parquet": lambda f, p: f.to_parquet(p),
    "groups.pq": lambda f, p: f.to_parquet(p, row_group_size=17),
    "index.parquet": lambda f, p: f.set_index(np.arange(len(f)) + 5).to_parquet(p),
    "parts": parquet_parts,
    "t.arrow": arrow_file,
    "stream.arrow": arrow_stream,
    "t.feather": lambda f, p: feather.write_feather(f, p),
    "records.npy": records,
}
WORDINGS = {
    "comma.csv": Wording(decimal=",", text=TEXT.text),
    "latin.csv": Wording(encoding="cp1252", text=TEXT.text),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    for name, write in WRITERS.items():
        write(JOINTS, folder / name)
    np.save(folder / "matrix.npy", JOINTS[FEATURES].to_numpy())
    sides = {name: JOINTS[name].to_numpy(str) for name in ("kind", "part")}
    np.savez(folder / "t.npz", X=JOINTS[FEATURES].to_numpy(), **sides)
    return folder


def assert_joints(table, frame=JOINTS):
    assert table.names == list(frame.columns)
    assert len(table) == len(frame)
    for name in ("kind", "part"):
        np.testing.assert_array_equal(tables.labels(table, name), frame[name])
    found = table.features(FEATURES)
    assert found.shape == (len(frame), 3)
    np.testing.assert_allclose(found, frame[FEATURES], rtol=1e-12)


@pytest.mark.parametrize("name", WRITERS)
def test_all_formats_give_the_same_table(folder, name):
    assert_joints(tables.read(str(folder / name), WORDINGS.get(name, TEXT)))


@pytest.mark.each_value
@pytest.mark.parametrize("rows", [1, 7, 90, 1000, None])
@in_turn("name", [*WRITERS, "t.npz", "matrix.npy"])
def test_pieces_add_up_to_the_whole_table(folder, name, rows):
    path, wording = str(folder / name), WORDINGS.get(name, TEXT)
    parts = list(tables.pieces(path, wording, rows))
    if rows:
        assert [len(part) for part in parts[:-1]] == [rows] * (len(parts) - 1)
    assert [part.start for part in parts] == np.cumsum([0, *map(len, parts[:-1])]).tolist()
    whole, joined = tables.read(path, wording), tables.joined(parts)
    assert joined.names == whole.names
    names = whole.names if whole.matrix is not None else FEATURES
    np.testing.assert_array_equal(joined.features(names), whole.features(names))
    if name != "matrix.npy":
        np.testing.assert_array_equal(tables.labels(joined, "kind"), JOINTS.kind)


def test_npz_has_a_matrix_and_columns_by_name(folder):
    table = tables.read(str(folder / "t.npz"))
    assert table.names == ["0", "1", "2"]
    np.testing.assert_array_equal(tables.labels(table, "part"), JOINTS.part)
    np.testing.assert_array_equal(table.features(table.names), JOINTS[FEATURES])
    np.testing.assert_array_equal(table.column("1"), JOINTS.depth)
    np.testing.assert_array_equal(table.features(["2", "0"]), JOINTS[["hue", "width"]])


def test_named_npz_matrices_are_embeddings(tmp_path):
    face, voice = np.arange(6.0).reshape(3, 2), np.arange(3.0)[:, None]
    np.savez(tmp_path / "a.npz", face=face, voice=voice, who=np.array(["a", "b", "c"]))
    table = tables.read(str(tmp_path / "a.npz"))
    assert table.names == ["face", "voice", "who"]
    assert table.feature_names(["voice", "face"]) == ["voice[0]", "face[0]", "face[1]"]
    np.testing.assert_array_equal(table.features(["voice", "face"]), np.hstack([voice, face]))
    np.testing.assert_array_equal(table.chosen(["face[1]", "voice[0]"]), [[1, 0], [3, 1], [5, 2]])


def fixed(values):
    return pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), values.shape[1])


LISTS = {
    "fixed": fixed,
    "lists": lambda values: pa.array(list(values)),
    "large lists": lambda values: pa.array(list(values), pa.large_list(pa.float32())),
    "tensor": lambda values: pa.FixedShapeTensorArray.from_numpy_ndarray(values),
}


@pytest.mark.parametrize("rows", [None, 4])
@pytest.mark.parametrize("format", ["parquet", "arrow"])
@pytest.mark.parametrize("kind", LISTS)
def test_equal_length_lists_are_embeddings(tmp_path, kind, format, rows):
    values = np.arange(60, dtype=np.float32).reshape(20, 3)
    table = pa.table({"kind": ["a", "b"] * 10, "face": LISTS[kind](values)})
    path = tmp_path / f"a.{format}"
    if format == "parquet":
        parquet.write_table(table, path, row_group_size=13)
    else:
        with ipc.new_file(path, table.schema) as writer:
            writer.write_table(table, max_chunksize=13)
    found = tables.joined(list(tables.pieces(str(path), block_rows=rows)))
    assert found.names == ["kind", "face"]
    assert found.feature_names(["face"]) == ["face[0]", "face[1]", "face[2]"]
    rows = found.features(["face"])
    assert rows.dtype == np.float32
    np.testing.assert_array_equal(rows, values)


class SpeaksArrow:
    """Exports Arrow data, as data frames of other libraries do."""

    def __init__(self, table):
        self.table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)


class Interchanges:
    def __init__(self, table):
        self.table = table

    def __dataframe__(self, **options):
        return self.table.__dataframe__(**options)


FRAMES = {
    "pandas": lambda frame: frame,
    "nullable": lambda frame: frame.convert_dtypes(),
    "categories": lambda frame: frame.astype({"kind": "category"}),
    "arrow": pa.Table.from_pandas,
    "another library": lambda frame: SpeaksArrow(pa.Table.from_pandas(frame)),
    "interchange": lambda frame: Interchanges(pa.Table.from_pandas(frame)),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_all_data_frames_give_the_same_table(kind):
    frame = FRAMES[kind](JOINTS)
    assert tables.is_frame(frame)
    assert_joints(tables.of_frame(frame))


@pytest.mark.parametrize("kind", ["pandas", "arrow", "another library"])
def test_data_frames_have_embeddings_too(kind):
    table = tables.of_frame(FRAMES[kind](EMBEDDED))
    np.testing.assert_array_equal(table.features(["face"]), JOINTS[FEATURES].astype(np.float32))


def test_arrays_are_not_data_frames():
    assert not tables.is_frame(np.ones((2, 2)))
    assert not tables.is_frame("a.csv")


@pytest.mark.parametrize("whole", [True, False])
def test_folder_names_become_partition_columns(tmp_path, whole):
    for kind, year in (("weld", 2020), ("weld", 2021), ("pore", 2020)):
        place = tmp_path / "t" / f"kind={kind}" / f"year={year}"
        place.mkdir(parents=True)
        pd.DataFrame({"x": [1.0, 2.0]}).to_parquet(place / "0.parquet")
    path = str(tmp_path / "t")
    table = tables.read(path) if whole else tables.joined(list(tables.pieces(path, block_rows=1)))
    assert table.names == ["x", "kind", "year"]
    assert tables.labels(table, "kind").tolist() == ["pore"] * 2 + ["weld"] * 4
    assert table.column("year").tolist() == [2020, 2020, 2020, 2020, 2021, 2021]


def test_parts_of_a_row_group_are_read_in_any_order(tmp_path):
    values = np.arange(1000.0)
    parquet.write_table(pa.table({"x": values}), tmp_path / "a.parquet", data_page_size=64)
    chunks = tables.open_chunks(tmp_path / "a.parquet", block_rows=70)
    assert chunks[1].name == "a.parquet, row group 0, rows 70 to 139"
    order = np.random.default_rng(0).permutation(len(chunks)).tolist()
    for place in [*order, *range(len(chunks)), 3, 4, 4, 14]:
        sent = pickle.loads(pickle.dumps(chunks[place]))
        expected = values[70 * place : 70 * (place + 1)]
        np.testing.assert_array_equal(sent.read(["x"]).column("x"), expected)


def test_a_large_row_group_is_split_automatically(tmp_path, monkeypatch):
    monkeypatch.setattr("pcsda.tables.arrays.BLOCK_BYTES", 80_000)
    values = np.random.default_rng(0).normal(size=(5000, 16)).astype(np.float32)
    parquet.write_table(pa.table({"face": fixed(values)}), tmp_path / "a.parquet")
    chunks = tables.open_chunks(tmp_path / "a.parquet")
    assert len(chunks) >= 4
    parts = [chunk.read(None).features(["face"]) for chunk in chunks]
    np.testing.assert_array_equal(np.concatenate(parts), values)


@pytest.mark.parametrize(
    ("value", "text"), [(3, "3"), (3.0, "3"), (2.5, "2.5"), (True, "True"), (b"x", "x"), ("7", "7")]
)
def test_numbers_become_labels_as_written(value, text):
    assert tables.as_text(value) == text


def test_labels_of_csv_stay_as_written(tmp_path):
    (tmp_path / "a.csv").write_text("x,kind\n1,007\n2,NA\n3,nan\n4,None\n")
    table = tables.read(str(tmp_path / "a.csv"), Wording(text=("kind",)))
    assert tables.labels(table, "kind").tolist() == ["007", "NA", "nan", "None"]
    numbers = tables.read(str(tmp_path / "a.csv"), Wording(labels=("kind",)))
    assert numbers.column("kind").tolist() == ["007", "NA", "nan", "None"]


def test_missing_numbers_and_labels_are_marked_missing(tmp_path):
    (tmp_path / "a.csv").write_text("x,n,kind\n1,NA,a\n,2,b\nnull,3,\n")
    table = tables.read(str(tmp_path / "a.csv"), Wording(text=("kind",)))
    for name, gaps in (("x", [0, 1, 1]), ("n", [1, 0, 0]), ("kind", [0, 0, 1])):
        np.testing.assert_array_equal(tables.missing(table.column(name)), np.array(gaps, bool))
    with pytest.raises(ValueError, match=r"--label kind: 1 row of .* has no value, first row 2;"):
        tables.labels(table, "kind")


def test_leading_spaces_and_byte_order_marks_are_not_part_of_names(tmp_path):
    (tmp_path / "a.csv").write_bytes("\ufeffx, y\r\n1, 2\r\n".encode())
    assert tables.read(str(tmp_path / "a.csv")).names == ["x", "y"]


@pytest.mark.parametrize("rows", [None, 20])
def test_unnamed_row_numbers_are_left_out(tmp_path, rows):
    """DataFrame.to_csv writes such numbers."""
    JOINTS.to_csv(tmp_path / "a.csv")
    path = str(tmp_path / "a.csv")
    with pytest.warns(UserWarning, match="the first column of .* has no name and is left out"):
        table = tables.read(path) if rows is None else next(tables.pieces(path, block_rows=rows))
    assert table.names == list(JOINTS.columns)
    np.testing.assert_array_equal(table.column("hue"), JOINTS.hue[:rows])


@given(
    words=st.lists(st.text('a"\n,; é', max_size=6), min_size=1, max_size=30),
    rows=st.integers(1, 40),
)
def test_quoted_text_is_split_only_between_rows(tmp_path_factory, words, rows):
    """Pieces are whole rows whatever is quoted; pandas writes the file and is the oracle."""
    path = tmp_path_factory.mktemp("quoted") / "a.csv"
    frame = pd.DataFrame({"n": range(len(words)), "word": words, "m": 1})
    frame.to_csv(path, index=False, quoting=1)
    expected = pd.read_csv(path, keep_default_na=False, skipinitialspace=True)
    parts = list(tables.pieces(str(path), Wording(labels=("word",)), rows))
    found = tables.joined(parts)
    assert found.column("n").tolist() == expected.n.tolist()
    word = found.column("word")
    gaps = tables.missing(word)
    assert ["" if gap else str(v) for v, gap in zip(word, gaps, strict=True)] == [
        str(v) for v in expected.word
    ]
    chunks = tables.open_chunks(path, block_rows=rows)
    numbers = np.concatenate([chunk.read(["n"]).column("n") for chunk in chunks])
    assert numbers.tolist() == expected.n.tolist()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"", r"a.csv is empty; the first line must name the columns"),
        ("a.csv", b"\nx,y\n1,2\n", r"a.csv begins with an empty line; the first line must name"),
        ("a.csv", b"\xef\xbb\xbf\nx,y\n1,2\n", r"a.csv begins with an empty line; the first line"),
        ("a.csv", b"\xef\xbb\xbf", r"a.csv is empty; the first line must name the columns"),
        ("a.csv", b"x,y\n1,2\n1,\0\n", r"a.csv has NUL bytes, so it is damaged, or not text in"),
        ("a.csv", "x,y\n1,2\n".encode("utf-16-le"), r"has NUL bytes, .* --encoding utf-16-le"),
        ("a.csv", b"x,y\n", r"a.csv has no rows, only columns: x, y"),
        ("a.csv", b"x,x\n1,2\n", r"a.csv has several columns named x; rename them"),
        ("a.csv", b",\n1,2\n", r"without a name, at position 1; the first line must"),
        ("a.csv", b"x,,z\n1,2,3\n", r"without a name, at position 2; the first line must"),
        ("a.csv", b"1.5,2.5\n1,2\n", r"starts with a line of numbers, 1.5, 2.5; the first line"),
        (
            "a.csv",
            b"x,y\n1,2\n1,2,3\n",
            r"a.csv could not be read as CSV: row 1 has 3 fields but the header names 2 columns",
        ),
        (
            "a.csv",
            b"x,y\n1,2\n\n3",
            r"CSV: row 1 has 1 field but the header names 2 columns; was the file cut off, or is",
        ),
        ("a.csv", b"x,y\n\xff\xfe,2\n", r"a.csv is not text in UTF-8 .*--encoding cp1252"),
        ("a.csv", b"\xff\xfex", r"a.csv is not text in UTF-16 .*--encoding cp1252"),
        ("a.csv", b"x" * 200_000, r"a.csv could not be read as CSV: field larger than field limit"),
        (
            "a.csv.gz",
            gzip.compress(b"x,y\n" + b"1,2\n" * 999, mtime=0)[:40],
            r"could not be read as CSV: ",
        ),
        ("a.csv.gz", b"no gzip", r"a.csv.gz could not be read as CSV: "),
        ("a.parquet", b"PAR1 cut", r"a.parquet could not be read as Parquet: "),
        ("a.parquet", b"", r"a.parquet could not be read as Parquet: "),
        ("a.arrow", b"ARROW1 cut", r"a.arrow could not be read as Arrow: "),
        ("a.npy", b"\x93NUMPY", r"a.npy could not be read as NPY: "),
        ("a.npy", b"x", r"a.npy could not be read as NPY: it has 1 bytes and begins with b'x'"),
        ("a.npz", b"PK\x03\x04 cut", r"a.npz could not be read as NPZ: "),
        ("a.npz", b"x", r"a.npz could not be read as NPZ: "),
        ("a.xlsx", b"", r"a.xlsx must end in one of .npy, .npz, .parquet, .pq, .arrow, .feather,"),
    ],
)
def test_unreadable_tables_are_reported(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        tables.read(str(tmp_path / name))


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow"])
def test_a_table_without_rows_is_refused(tmp_path, name):
    """Such a file may have no row groups or batches at all."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"x": [1.0], "kind": ["a"]})[:0]
    write = frame.to_parquet if name.endswith("parquet") else frame.to_feather
    write(tmp_path / name)
    with pytest.raises(ValueError, match=f"{name} has no rows"):
        tables.read(str(tmp_path / name))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"X": np.ones((2, 2)), "y": np.ones(3)}, r"one entry per row; it has X \(2, 2\), y"),
        ({"a": np.ones((2, 2)), "b": np.ones((3, 2))}, r"one entry per row; it has a \(2, 2"),
        ({"X": np.ones((2, 2, 2))}, r"one or two dimensions; it has X \(2, 2, 2\)"),
        ({}, r"it has none"),
    ],
)
def test_npz_of_odd_shapes_is_refused(tmp_path, arrays, message):
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(ValueError, match=message):
        tables.read(str(tmp_path / "a.npz"))


def test_mismatched_npz_arrays_are_refused_before_unpacking(tmp_path, monkeypatch):
    """A 7.7 MB file with mismatched arrays was first unpacked to 8 GB, for three minutes."""
    np.savez_compressed(tmp_path / "a.npz", X=np.zeros((1000, 10)), y=np.zeros(7))
    monkeypatch.setattr(np.lib.format, "read_array", lambda *_, **__: pytest.fail("unpacked"))
    with pytest.raises(ValueError, match=r"one entry per row; it has X \(1000, 10\), y \(7,"):
        tables.read(str(tmp_path / "a.npz"))


def test_npz_that_exceeds_memory_is_refused_before_unpacking(tmp_path, monkeypatch):
    np.savez_compressed(tmp_path / "a.npz", X=np.zeros((1000, 1000)), y=np.zeros(1000))
    assert (tmp_path / "a.npz").stat().st_size < 50_000
    monkeypatch.setattr("pcsda.archive.available_memory", lambda: 7 << 20)
    with pytest.raises(
        ValueError, match=r"a.npz could .*array 'X' claims 8000128 bytes, but only 7340032"
    ):
        tables.read(str(tmp_path / "a.npz"))


def test_npz_with_a_false_header_is_refused(tmp_path):
    held = io.BytesIO()
    about = {"descr": "<f8", "fortran_order": False, "shape": (10**12, 4)}
    np.lib.format.write_array_header_1_0(held, about)
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("X.npy", held.getvalue() + b"\0" * 64)
    with pytest.raises(ValueError, match=r"array 'X' claims 32000000000000 bytes but has"):
        tables.read(str(tmp_path / "a.npz"))


def test_an_array_with_the_wrong_extension_is_named(tmp_path):
    np.save(tmp_path / "a.npy", np.ones((2, 2)))
    (tmp_path / "a.npy").rename(tmp_path / "a.npz")
    with pytest.raises(ValueError, match=r"a.npz could not be read as NPZ: it holds one array; na"):
        tables.read(str(tmp_path / "a.npz"))


def test_npy_must_have_two_dimensions(tmp_path):
    np.save(tmp_path / "a.npy", np.ones(4))
    with pytest.raises(
        ValueError, match=r"shape \(4,\); it must have two dimensions, rows and col"
    ):
        tables.read(str(tmp_path / "a.npy"))


@pytest.mark.parametrize("name", ["a.npy", "a.npz"])
def test_pickled_objects_are_not_loaded(tmp_path, name):
    rows = np.array([["a", 1]], dtype=object)
    if name == "a.npy":
        np.save(tmp_path / name, rows)
    else:
        np.savez(tmp_path / name, X=np.ones((2, 2)), y=rows[0])
    with pytest.raises(ValueError, match=r"holds Python objects, which are not .*y.astype\(str\)"):
        tables.read(str(tmp_path / name))


def test_missing_files_and_empty_folders_are_reported(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none.csv does not exist"):
        tables.read(str(tmp_path / "none.csv"))
    with pytest.raises(
        ValueError, match=r"has no file whose name ends in one of .npy, .npz, .parquet, "
    ):
        tables.read(str(tmp_path))
    (tmp_path / "a.csv").write_text("x\n1\n")
    np.save(tmp_path / "b.npy", np.ones((2, 2)))
    with pytest.raises(ValueError, match=r"mixes csv and npy files; keep one kind in a folder"):
        tables.read(str(tmp_path))
    (tmp_path / "b.npy").unlink()
    (tmp_path / "b.csv").write_text("y\n1\n")
    with pytest.raises(
        ValueError, match=r"columns of .*b.csv are y but those of .*a.csv are x; all"
    ):
        tables.read(str(tmp_path))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            [[1.0, 2.0], [3.0]],
            r"'face' has a list of 1 numbers in row 1, but lists of 2 before it; all lists",
        ),
        (
            [None, [1.0, 2.0], [3.0, 4.0, 5.0]],
            r"'face' has a list of 3 numbers in row 2, but lists of 2 before it; all lists",
        ),
        ([[], None, []], r"'face' holds .*lists.*; an embedding is a list of numbers in each row"),
        ([["a"], ["b"]], r"'face' holds lists .*an embedding is a list of numbers in each row"),
        ([[[1.0]], [[2.0]]], r"'face' holds lists .*an embedding is a list of numbers in each row"),
    ],
)
@pytest.mark.parametrize("kind", ["pandas", "arrow"])
def test_lists_that_are_not_embeddings_are_refused(values, message, kind):
    make = pd.DataFrame if kind == "pandas" else pa.table
    with pytest.raises(ValueError, match=message):
        tables.of_frame(make({"face": values}))


def test_empty_lists_of_numbers_are_no_embedding():
    lists = pa.array([[], []], pa.list_(pa.float64()))
    message = r"'face' holds empty lists; an embedding is a list of numbers in each row"
    with pytest.raises(ValueError, match=message):
        tables.of_frame(pa.table({"face": lists}))


def test_embeddings_cannot_be_labels():
    table = tables.of_frame(pa.table({"face": [[1.0, 2.0], [3.0, 4.0]]}))
    with pytest.raises(
        ValueError, match=r"^--label face: this column of .* holds lists, not labels$"
    ):
        tables.labels(table, "face")


@pytest.mark.parametrize("kind", ["pandas", "arrow"])
def test_a_missing_list_is_a_row_of_missing_numbers(kind):
    make = pd.DataFrame if kind == "pandas" else pa.table
    table = tables.of_frame(make({"face": [[1.0, 2.0], None, [3.0, 4.0]]}))
    expected = [[1, 2], [np.nan, np.nan], [3, 4]]
    np.testing.assert_array_equal(table.features(["face"]), expected)
    np.testing.assert_array_equal(tables.missing(table.column("face")), [False, True, False])
    empty = tables.of_frame(pa.table({"face": pa.array([None], pa.list_(pa.float32()))}))
    assert tables.missing(empty.column("face")).all()


def test_unusual_numeric_types_become_numbers():
    decimals = pa.array([Decimal(1), None], pa.decimal128(9, 2))
    table = arrow.of_arrow("t", pa.table({"d": decimals, "none": pa.nulls(2)}))
    np.testing.assert_array_equal(table.features(["d", "none"]), [[1, np.nan], [np.nan, np.nan]])
    nullable = tables.of_frame(pd.DataFrame({"n": pd.array([1, None], dtype="Int64")}))
    np.testing.assert_array_equal(nullable.column("n"), [1, np.nan])


def test_near_misses_are_suggested():
    table = Table("t.csv", {"diagnosis": np.ones(1), "area": np.ones(1)}, 1)
    with pytest.raises(ValueError, match=r"^--label Diagnose: t.csv has no column 'Diagnose', did "
                       r"you mean 'diagnosis'\? It has diagnosis, area$"):  # fmt: skip
        table.column("Diagnose", "--label")
    with pytest.raises(ValueError, match=r"^t.csv has no column 'q'; it has diagnosis, area$"):
        table.column("q")
    with pytest.raises(ValueError, match=r"has no column 'area\[1\]'"):
        table.chosen(["area[1]"])


@pytest.mark.more
def test_many_columns_keep_their_names_in_order(tmp_path):
    names = [f"f{i}" for i in range(5_000)]
    (tmp_path / "a.csv").write_text(",".join(names) + "\n" + ",".join("1" * len(names)) + "\n")
    assert tables.read(str(tmp_path / "a.csv")).names == names


@pytest.mark.parametrize("package", ["pandas", "pyarrow"])
def test_a_missing_package_is_named_with_its_extra(monkeypatch, folder, package):
    import sys

    for module in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.setitem(sys.modules, module, None)
    name, extra = {"pandas": ("t.csv", "cli"), "pyarrow": ("t.parquet", "parquet")}[package]
    with pytest.raises(
        ImportError, match=rf'{package}; install it with pip install "pcsda\[{extra}'
    ):
        tables.read(str(folder / name))


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.parquet", "parts", "matrix.npy"])
def test_a_table_is_large_relative_to_memory(folder, monkeypatch, name):
    path = str(folder / name)
    assert not tables.is_large(path)
    monkeypatch.setattr(tables, "available_memory", lambda: 1000)
    assert tables.is_large(path)
    assert not tables.is_large("-")


@pytest.mark.parametrize("content", [b"", b"PAR1 cut"])
def test_a_damaged_file_is_named_when_its_size_is_estimated(tmp_path, content):
    path = tmp_path / "a.parquet"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"a.parquet could not be read as Parquet: "):
        tables.is_large(str(path))


def test_long_lists_are_shortened():
    assert tables.listed("abc") == "a, b, c"
    assert tables.listed(range(20), 3) == "0, 1, 2, ... (20 in all)"


def test_columns_missing_from_an_archive_are_reported_before_unpacking(tmp_path, monkeypatch):
    path = tmp_path / "a.npz"
    np.savez_compressed(path, X=np.zeros((9, 2)), size=np.arange(9))
    monkeypatch.setattr("pcsda.tables.arrays.load_npz", lambda *_: pytest.fail("unpacked"))
    with pytest.raises(ValueError, match=r"a.npz has no column 'sise', did you mean 'size'\? It"):
        tables.read(str(path), tables.Wording(text=("sise",)))
