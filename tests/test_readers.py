"""Sources of blocks: every source gives the same rows."""

import os
import pickle
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from block_factories import assert_same_model, in_blocks, make_data
from pyarrow import feather, parquet
from scipy import sparse

from pcsda import PCSDA, fit_blocks, predict_blocks
from pcsda.blocks.checkpoint import Checkpoint
from pcsda.blocks.files import open_blocks

NAMES = [f"f{number}" for number in range(5)]


@pytest.fixture(scope="module")
def data():
    X, y, groups, weights = make_data(weighted=True)
    expected = PCSDA().fit(X, y, subclass_labels=groups, sample_weight=weights)
    return X, y, groups, weights, expected


def frame_of(X, y, groups, weights, labels=("no", "yes")):
    frame = pd.DataFrame(X, columns=NAMES)
    frame.insert(2, "label", np.array(labels)[y.astype(int)])
    return frame.assign(group=groups, weight=weights)


COLUMNS = {"y": "label", "subclass_labels": "group", "sample_weight": "weight"}


def of_npy(folder, X, y, groups, weights):
    parts = {"X": X, "y": y, "subclass_labels": groups, "sample_weight": weights}
    for name, part in parts.items():
        np.save(folder / f"{name}.npy", part)
    companions = {name: folder / f"{name}.npy" for name in list(parts)[1:]}
    return folder / "X.npy", companions | {"block_rows": 37}


def of_fortran(folder, X, y, groups, weights):
    np.save(folder / "X.npy", np.asfortranarray(X))
    return str(folder / "X.npy"), in_memory(y, groups, weights) | {"block_rows": 37}


def in_memory(y, groups, weights):
    return {"y": y, "subclass_labels": groups, "sample_weight": weights}


def of_mapped(folder, X, y, groups, weights):
    np.save(folder / "X.npy", X)
    mapped = np.load(folder / "X.npy", mmap_mode="r")
    return mapped, in_memory(y, groups, weights) | {"block_rows": 50}


def of_mapped_slice(folder, X, y, groups, weights):
    np.save(folder / "X.npy", np.vstack([X[:3] + 99, X]))
    mapped = np.load(folder / "X.npy", mmap_mode="r")[3:]
    return mapped, in_memory(y, groups, weights) | {"block_rows": 50}


def of_npy_folders(folder, X, y, groups, weights):
    edges = [0, 90, 91, len(X)]
    names = {"X": X, "y": y, "subclass_labels": groups}
    for name, part in names.items():
        (folder / name).mkdir()
        for number in range(3):
            np.save(folder / name / f"{number}.npy", part[edges[number] : edges[number + 1]])
    companions = {"y": folder / "y", "subclass_labels": folder / "subclass_labels"}
    return folder / "X", companions | {"sample_weight": weights, "block_rows": 40}


def of_npz_folder(folder, X, y, groups, weights):
    for number, rows in enumerate(np.array_split(np.arange(len(X)), 4)):
        parts = {"X": X[rows], "y": y[rows], "subclass_labels": groups[rows], "w": weights[rows]}
        np.savez(folder / f"part{number}.npz", **parts)
    return folder, {"sample_weight": "w"}


def of_parquet(folder, X, y, groups, weights):
    table = pa.Table.from_pandas(frame_of(X, y, groups, weights))
    parquet.write_table(table, folder / "rows.parquet", row_group_size=64)
    return folder / "rows.parquet", COLUMNS


def of_parquet_folder(folder, X, y, groups, weights):
    frame = frame_of(X, y, groups, weights)
    frame["label"] = frame["label"].astype("category")
    frame["name"] = "text that is no feature"
    for number, rows in enumerate(np.array_split(np.arange(len(X)), 3)):
        table = pa.Table.from_pandas(frame.iloc[rows])
        parquet.write_table(table, folder / f"{number}.pq", row_group_size=30)
    return folder, COLUMNS | {"columns": NAMES}


def of_csv(folder, X, y, groups, weights):
    frame_of(X, y, groups, weights).to_csv(folder / "rows.csv", index=False)
    return folder / "rows.csv", COLUMNS | {"block_rows": 23}


def of_csv_files(folder, X, y, groups, weights):
    frame = frame_of(X, y, groups, weights, labels=(0, 1))
    files = [folder / "b.csv", folder / "a.csv"]
    for file, rows in zip(files, np.array_split(np.arange(len(X)), 2), strict=True):
        frame.iloc[rows].to_csv(file, index=False, lineterminator="\r\n")
    return files, COLUMNS


def of_iterator(folder, X, y, groups, weights):
    return in_blocks([10, 100], X, y, groups, weights), {}


def of_frames(folder, X, y, groups, weights):
    frames = pd.DataFrame(X, columns=NAMES)
    return in_blocks([10, 100], frames, pd.Series(y), pd.Series(groups), weights), {}


def of_one_frame(folder, X, y, groups, weights):
    return frame_of(X, y, groups, weights), COLUMNS | {"block_rows": 50}


def of_arrow_table(folder, X, y, groups, weights):
    frame = frame_of(X, y, groups, weights).drop(columns="weight")
    return pa.Table.from_pandas(frame), COLUMNS | {"sample_weight": weights, "block_rows": 50}


def of_arrow_files(folder, X, y, groups, weights):
    frame = frame_of(X, y, groups, weights)
    feather.write_feather(frame.iloc[:99], folder / "a.feather")
    feather.write_feather(frame.iloc[99:], folder / "b.arrow")
    return folder, COLUMNS | {"block_rows": 50}


def of_sparse(folder, X, y, groups, weights):
    return sparse.coo_array(X), in_memory(y, groups, weights) | {"block_rows": 60}


SOURCES = [
    of_npy, of_fortran, of_mapped, of_mapped_slice, of_npy_folders, of_npz_folder, of_parquet,
    of_parquet_folder, of_csv, of_csv_files, of_iterator, of_frames, of_sparse, of_one_frame,
    of_arrow_table, of_arrow_files,
]  # fmt: skip


@pytest.mark.parametrize("source", SOURCES)
def test_every_source_gives_the_model_in_memory(tmp_path, data, source):
    *rows, expected = data
    blocks, options = source(tmp_path, *rows)
    found = fit_blocks(PCSDA(), blocks, **options)
    tables = (of_parquet, of_parquet_folder, of_csv, of_one_frame, of_arrow_table, of_arrow_files)
    assert set(found.classes_.tolist()) == ({"no", "yes"} if source in tables else {0, 1})
    named = source in (*tables, of_csv_files, of_frames)
    assert hasattr(found, "feature_names_in_") == named
    if named:
        assert found.feature_names_in_.tolist() == NAMES
        del found.feature_names_in_
    found.classes_ = expected.classes_
    assert_same_model(found, expected, rows[0])


def test_tables_are_read_by_the_names_of_their_columns(tmp_path, data):
    X, *_, expected = data
    blocks, options = of_parquet(tmp_path, *data[:4])
    model = fit_blocks(PCSDA(), blocks, **options)
    # Additional columns in another order, which the model sorts out.
    shuffled = pd.DataFrame(X, columns=NAMES)[NAMES[::-1]].assign(more=1.0)
    shuffled.to_csv(tmp_path / "new.csv", index=False)
    for file in (blocks, tmp_path / "new.csv"):
        scores = np.concatenate(list(predict_blocks(model, file)))
        np.testing.assert_allclose(scores, expected.log_likelihood_ratio(X), rtol=1e-9)
    with pytest.raises(
        ValueError, match=r"^block 0 .*: the columns \['f4', .* differ from the training"
    ):
        list(predict_blocks(model, [pd.DataFrame(X, columns=NAMES)[NAMES[::-1]]]))


def test_an_embedding_gives_as_many_features_as_its_length(tmp_path, data):
    X, y, groups, weights, expected = data
    frame = frame_of(X, y, groups, weights).drop(columns=NAMES).assign(face=list(X))
    frame.to_parquet(tmp_path / "faces.parquet", row_group_size=64)
    names = [f"face[{place}]" for place in range(5)]
    for blocks in (tmp_path / "faces.parquet", frame):
        model = fit_blocks(PCSDA(), blocks, **COLUMNS)
        assert model.feature_names_in_.tolist() == names
        scores = np.concatenate(list(predict_blocks(model, blocks)))
        np.testing.assert_allclose(scores, expected.log_likelihood_ratio(X), rtol=1e-9)


def test_blocks_have_the_requested_size(tmp_path, data):
    blocks, options = of_npy(tmp_path, *data[:4])
    found = open_blocks(blocks, **options).addresses
    assert [len(block.read().y) for block in found] == [37] * 5 + [35]
    assert found[1].name == "X.npy, rows 37 to 73"
    assert found[0].read(labels_only=True).X is None
    np.testing.assert_array_equal(found[2].read().X, data[0][74:111])
    blocks, options = of_parquet(tmp_path, *data[:4])
    found = open_blocks(blocks, **options).addresses
    assert [block.name for block in found][1:3] == [f"rows.parquet, row group {n}" for n in (1, 2)]
    assert [len(block.read().y) for block in found] == [64, 64, 64, 28]
    blocks, options = of_csv(tmp_path, *data[:4])
    found = open_blocks(blocks, **options).addresses
    sizes = [len(block.read().y) for block in found]
    assert sum(sizes) == len(data[0])
    assert all(15 < size < 32 for size in sizes[:-1])


def test_block_addresses_pickle_small(tmp_path, data):
    for source in (of_npy, of_npz_folder, of_parquet, of_csv):
        folder = tmp_path / source.__name__
        folder.mkdir()
        blocks, options = source(folder, *data[:4])
        for address in open_blocks(blocks, **options).addresses:
            sent = pickle.dumps(address)
            assert len(sent) < 2500
            np.testing.assert_array_equal(pickle.loads(sent).read().X, address.read().X)


def test_a_block_of_a_csv_file_begins_and_ends_with_a_line(tmp_path):
    path = tmp_path / "rows.csv"
    lines = [f"{number},{number % 2}" for number in range(1000)]
    path.write_text("x,y\n" + "\n".join(lines))  # no line break at the end
    for block_rows in (7, 100, 1000, 5000):
        found = open_blocks(path, y="y", block_rows=block_rows).addresses
        values = np.concatenate([block.read().X for block in found])
        np.testing.assert_array_equal(values[:, 0], np.arange(1000))


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_block_of_a_csv_file_does_not_end_within_quotes(tmp_path, end):
    path = tmp_path / "rows.csv"
    names = ["plain", f'"two{end}lines"', f'"with ""quotes"", {end}{end} and a comma"']
    rows = [f"{number},{names[number % 3]},{number % 2}{end}" for number in range(120)]
    path.write_bytes(f'x,"a{end}name",y{end}{"".join(rows)}'.encode())
    for block_rows in (1, 7, 100, 5000):
        found = open_blocks(path, y="y", columns=["x"], block_rows=block_rows).addresses
        assert len(found) > 100 or block_rows > 1
        values = np.concatenate([block.read().X for block in found])
        np.testing.assert_array_equal(values[:, 0], np.arange(120))


@pytest.mark.parametrize("where", [0, 150, 899])
def test_a_literal_quote_swallows_no_rows(tmp_path, where, monkeypatch):
    monkeypatch.setattr("pcsda.tables.text.QUOTED_BYTES", 200)
    path = tmp_path / "rows.csv"
    pipes = ["pipe"] * 900
    pipes[where] = '5" pipe'
    rows = [f"{number},{pipe},{number % 2}\n" for number, pipe in enumerate(pipes)]
    path.write_text("x,name,y\n" + "".join(rows))
    found = open_blocks(path, y="y", columns=["x"], block_rows=20).addresses
    assert len(found) > 40
    values = np.concatenate([block.read().X for block in found])
    np.testing.assert_array_equal(values[:, 0], np.arange(900))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "x,y\n1,a\nred,b\n",
            r"^block 0 \(rows.csv, bytes 4 to 13\): column 'x' is not numeric \('red' in row 1\)",
        ),
        (
            "x,y\n1,a\n2,b,3\n",
            r"^block 0 .rows.csv, bytes 4 to 13.: rows.csv could not be read as CSV: row 1 has 3 "
            r"fields but the header names 2 columns; was the file cut off, or is a separator mis",
        ),
        ("y,x\na,1\nb\n", r"^block 0 .*: row 1 has 1 field but the header names 2 columns; was"),
        (
            "x,y\n1,a\n2,\xe9\n",
            r"^rows.csv is not text in UTF-8 \(.*\); save it as UTF-8, or name its enc",
        ),
        ("x,\xe9\n1,a\n", r"^rows.csv is not text in UTF-8 .* save it as UTF-8, or name"),
    ],
)
def test_errors_in_a_csv_file_are_named(tmp_path, text, message):
    path = tmp_path / "rows.csv"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError, match=message):
        fit_blocks(PCSDA(), path, y="y")


def test_labels_of_a_csv_file_are_all_text_or_all_numbers(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("x,y\n" + "1,a\n" * 40 + "2,1\n" * 40)
    found = open_blocks(path, y="y", block_rows=10).addresses
    assert {label for block in found for label in block.read().y.tolist()} == {"a", "1"}


@pytest.mark.parametrize("source", [of_npy, of_npz_folder, of_parquet, of_csv, of_sparse])
def test_a_checkpoint_recognises_its_files(tmp_path, data, source, monkeypatch):
    blocks, options = source(tmp_path, *data[:4])
    state = tmp_path.parent / f"{tmp_path.name}.state"
    monkeypatch.setattr(Checkpoint, "remove", lambda self: None)
    first = fit_blocks(PCSDA(), blocks, checkpoint=state, **options)
    again = fit_blocks(PCSDA(), blocks, checkpoint=state, **options)
    np.testing.assert_array_equal(first.components_, again.components_)
    changed = [file for file in tmp_path.iterdir() if not file.name.startswith("y")]
    if changed:
        os.utime(changed[-1], ns=(1, 1))
    else:
        blocks = blocks * 2
    with pytest.raises(
        ValueError, match=r"the checkpoint of a fit with different data.*; delete it"
    ):
        fit_blocks(PCSDA(), blocks, checkpoint=state, **options)


def test_truncated_files_and_files_of_another_kind_are_refused(tmp_path, data):
    blocks, options = of_npy(tmp_path, *data[:4])
    whole = blocks.read_bytes()
    blocks.write_bytes(whole[:-8])
    with pytest.raises(ValueError, match=r"X.npy could not be read as NPY: "):
        fit_blocks(PCSDA(), blocks, **options)
    blocks.write_bytes(whole)
    found = open_blocks(blocks, **options)
    blocks.write_bytes(whole[:-8])
    with pytest.raises(
        ValueError,
        match=r"^block 5 \(X.npy, rows 185 to 219\): .*ends early: only 174 of 175 numbers could",
    ):
        fit_blocks(PCSDA(), found)
    np.save(tmp_path / "objects.npy", np.array([print, 1]), allow_pickle=True)
    with pytest.raises(ValueError, match=r"objects.npy could not be read as NPY: "):
        open_blocks(tmp_path / "objects.npy")
    (tmp_path / "archive.npy").write_bytes(b"")
    np.savez(tmp_path / "archive.npz", X=np.ones(3))
    (tmp_path / "archive.npz").rename(tmp_path / "archive.npy")
    with pytest.raises(
        ValueError, match=r"archive.npy could not be read as NPY: it is an archive of several arr"
    ):
        open_blocks(tmp_path / "archive.npy")
    np.save(tmp_path / "one.npy", np.array(3.0))
    with pytest.raises(ValueError, match=r"one.npy holds a single number; rows are needed"):
        open_blocks(tmp_path / "one.npy")
    np.savez(tmp_path / "other.npz", Z=np.ones(3))
    with pytest.raises(ValueError, match=r"^block 0 \(other.npz\): .* has no array 'X', only \['Z"):
        fit_blocks(PCSDA(), tmp_path / "other.npz")
    with pytest.raises(ValueError, match=r"^block 0 \(other.npz\): .* has no array 'q' for y"):
        fit_blocks(PCSDA(), tmp_path / "other.npz", y="q")


def test_invalid_sources_are_refused(tmp_path, data):
    X, y, *_ = data
    with pytest.raises(FileNotFoundError, match=r"nowhere.npy does not exist$"):
        open_blocks(tmp_path / "nowhere.npy")
    with pytest.raises(FileNotFoundError, match=r"nowhere.npy does not exist$"):
        open_blocks(X, y=tmp_path / "nowhere.npy")
    (tmp_path / "header.csv").write_text("x,y\n")
    with pytest.raises(ValueError, match=r"^there are no blocks; the data are empty$"):
        fit_blocks(PCSDA(), tmp_path / "header.csv", y="y")
    (tmp_path / "header.csv").unlink()
    with pytest.raises(
        ValueError, match=r"has no file whose name ends in one of .npy, .npz, .parquet, "
    ):
        open_blocks(tmp_path)
    (tmp_path / "x.xls").touch()
    with pytest.raises(
        ValueError, match=r"x.xls must end in one of .npy, .npz, .parquet, .pq, .ar"
    ):
        open_blocks(tmp_path / "x.xls")
    np.save(tmp_path / "x.npy", X)
    np.savez(tmp_path / "x.npz", X=X, y=y)
    with pytest.raises(ValueError, match=r"mixes npy and npz files; keep one kind in a folder, or"):
        open_blocks(tmp_path)
    with pytest.raises(ValueError, match=r"^y has 9 entries but the data have 220 rows$"):
        open_blocks(tmp_path / "x.npy", y=y[:9])
    with pytest.raises(ValueError, match=r"^y has 9 entries but the data have 220 rows$"):
        open_blocks(X, y=y[:9])
    with pytest.raises(
        ValueError, match=r"^y must be the name of a column or array in x.npz, got ndarr"
    ):
        open_blocks(tmp_path / "x.npz", y=y)
    with pytest.raises(
        ValueError, match=r"^y applies only to files and arrays; an iterator must yield"
    ):
        open_blocks([(X, y)], y=y)
    with pytest.raises(
        TypeError, match=r"^blocks of type int are not supported; pass a file, a folder,"
    ):
        open_blocks(3)
    # Also with labels beside: a lazy frame is no iterator that had to yield them.
    with pytest.raises(TypeError, match=r"a data frame \(a lazy one has to be collected first\)"):
        open_blocks(object(), y="kind")
    with pytest.raises(ValueError, match=r"a block must be X, .* got a tuple of 5"):
        fit_blocks(PCSDA(), [(X, y, y, y, y)])


def test_columns_that_are_missing_or_text_are_named(tmp_path, data):
    blocks, options = of_parquet(tmp_path, *data[:4])
    with pytest.raises(
        ValueError,
        match=r"^rows.parquet has no column 'lable', did you mean 'label'\? It has f0, f1",
    ):
        open_blocks(blocks, y="lable")
    with pytest.raises(
        ValueError, match=r"^block 0 .*: column 'label' is not numeric \('\w+' in row 0"
    ):
        fit_blocks(PCSDA(), blocks, y="label", columns=["f0", "label"])
    frame = frame_of(*data[:4])
    frame.loc[130, "f3"] = np.nan
    parquet.write_table(pa.Table.from_pandas(frame), blocks, row_group_size=64)
    with pytest.raises(
        ValueError, match=r"^block 2 \(rows.parquet, row group 2\): X has NaN or infinity in 1 row"
    ):
        fit_blocks(PCSDA(), blocks, **options)
    frame = frame_of(*data[:4])
    frame.loc[130, "label"] = None
    parquet.write_table(pa.Table.from_pandas(frame), blocks, row_group_size=64)
    with pytest.raises(ValueError, match=r"^block 2 .*: y has labels \[None\] that are not among"):
        fit_blocks(PCSDA(), blocks, **options)


def test_a_missing_column_is_reported_with_the_whole_name_of_the_file(tmp_path):
    path = tmp_path / "left, right.csv"
    path.write_text("x,y\n1,a\n2,b\n")
    with pytest.raises(ValueError, match=r"^left, right.csv has no column 'z'; it has x, y$"):
        open_blocks(path, y="y", columns=["z"])


def test_files_with_other_columns_are_refused(tmp_path, data):
    frame = frame_of(*data[:4])
    frame.iloc[:100].to_csv(tmp_path / "a.csv", index=False)
    renamed = frame.iloc[100:].rename(columns={"f1": "g1"})
    renamed.to_csv(tmp_path / "b.csv", index=False)
    with pytest.raises(
        ValueError,
        match=r"^the columns of block 1 \(b.csv, .* are 'f0', 'g1', .* but those of block 0 \(a.csv"
        r".*; all blocks need the same columns in the same order$",
    ):
        fit_blocks(PCSDA(), tmp_path, **COLUMNS)


@pytest.mark.parametrize(
    ("package", "source", "extra"),
    [("pyarrow", of_parquet, "parquet"), ("pandas", of_csv, "cli")],
)
def test_a_missing_package_is_named_with_its_extra(
    tmp_path, data, package, source, extra, monkeypatch
):
    blocks, options = source(tmp_path, *data[:4])
    for module in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(
        ImportError, match=rf'{package}; install it with pip install "pcsda\[{extra}'
    ):
        open_blocks(blocks, **options)
