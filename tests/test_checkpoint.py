"""A fit resumes from its checkpoint only with the same data and a complete state."""

import json
import os
import zipfile

import numpy as np
import pytest
from block_factories import in_blocks, make_data

from pcsda import PCSDA, fit_blocks
from pcsda.blocks.checkpoint import Checkpoint

CUTS = range(20, 220, 20)


class StoppedError(Exception):
    """The fit was interrupted."""


def stopping_at(number, pass_name, monkeypatch):
    """Stop the next fit after this many blocks of a pass."""
    advance = Checkpoint.advance

    def stop(self, name, taken, result):
        advance(self, name, taken, result)
        if (name, taken) == (pass_name, number):
            raise StoppedError

    monkeypatch.setattr(Checkpoint, "advance", stop)


def fit_stopped(blocks, path, monkeypatch, pass_name="statistics", number=7, **data):
    with monkeypatch.context() as patch:
        stopping_at(number, pass_name, patch)
        with pytest.raises(StoppedError):
            fit(blocks, path, **data)
    return path


def fit(blocks, path, **data):
    model = PCSDA(n_subclasses=3, random_state=0)
    return fit_blocks(model, blocks, checkpoint=path, checkpoint_seconds=0, **data)


def changed(array, row):
    """Return the array with one entry changed."""
    other = array.copy()
    if other.dtype == bool:
        other[row] = ~other[row]
    else:
        other[row] += 1
    return other


# What a fit reads, and the block in which the changed row is: merged, or still to come.
PARTS = ("X", "y", "weights")


@pytest.mark.each_value
@pytest.mark.parametrize("row", [65, 199], ids=["merged", "to come"])
@pytest.mark.parametrize("part", PARTS)
def test_changed_data_in_any_block_are_refused(tmp_path, monkeypatch, part, row):
    """Only the first block was compared: a fit resumed with other rows and was off by 5.8 nats."""
    X, y, _, weights = make_data(weighted=True)
    data = {"X": X, "y": y, "weights": weights}
    blocks = in_blocks(CUTS, X, y, None, weights)
    path = fit_stopped(blocks, tmp_path / "state.npz", monkeypatch)
    data[part] = changed(data[part], row)
    other = in_blocks(CUTS, data["X"], data["y"], None, data["weights"])
    what = "rows" if part == "X" else "labels or weights"
    message = (
        rf"state.npz is the checkpoint of a fit with different data: block {row // 20} \(item .* "
        rf"does not have the {what} that it had when it was read before; delete it to start again, "
        "or"
    )
    with pytest.raises(ValueError, match=message):
        fit(other, path)
    found = fit(blocks, path)
    expected = fit_blocks(PCSDA(n_subclasses=3, random_state=0), blocks)
    np.testing.assert_array_equal(found.components_, expected.components_)


def test_changed_subclasses_are_refused(tmp_path, monkeypatch):
    X, y, groups, _ = make_data()
    path = fit_stopped(in_blocks(CUTS, X, y, groups), tmp_path / "state.npz", monkeypatch)
    row = 60 + int(np.flatnonzero(~y[60:80])[0])
    with pytest.raises(
        ValueError, match=r"with different data: block 3 \(.* does not have the labels"
    ):
        fit(in_blocks(CUTS, X, y, changed(groups, row)), path)


def test_changed_arrays_and_files_are_refused(tmp_path, monkeypatch):
    X, y, _, _ = make_data()
    cut = {"y": y, "block_rows": 20}
    path = fit_stopped(X, tmp_path / "state.npz", monkeypatch, **cut)
    with pytest.raises(
        ValueError, match=r"different data: block 3 \(rows 60 to 79\) does not have"
    ):
        fit(changed(X, 65), path, **cut)
    fit(X, path, **cut)
    np.save(tmp_path / "X.npy", X)
    stamp = os.stat(tmp_path / "X.npy")
    path = fit_stopped(tmp_path / "X.npy", path, monkeypatch, **cut)
    np.save(tmp_path / "X.npy", changed(X, 65))
    os.utime(tmp_path / "X.npy", ns=(stamp.st_atime_ns, stamp.st_mtime_ns))  # as `cp -p` leaves it
    with pytest.raises(ValueError, match=r"X.npy, rows 60 to 79\) does not have the rows"):
        fit(tmp_path / "X.npy", path, **cut)


def test_fewer_blocks_are_refused(tmp_path, monkeypatch):
    X, y, _, _ = make_data()
    path = fit_stopped(in_blocks(CUTS, X, y), tmp_path / "state.npz", monkeypatch)
    with pytest.raises(ValueError, match="it has read 11 blocks, but there are 5; delete it"):
        fit(in_blocks(list(CUTS)[:4], X[:100], y[:100]), path)


def test_a_checkpoint_with_finished_passes_is_compared_too(tmp_path, monkeypatch):
    X, y, _, _ = make_data()
    blocks = in_blocks(CUTS, X, y)
    path = fit_stopped(blocks, tmp_path / "state.npz", monkeypatch, number=-1)
    with pytest.raises(ValueError, match="different data: block 3"):
        fit(in_blocks(CUTS, changed(X, 65), y), path)
    fit(blocks, path)


def test_blocks_that_change_between_passes_are_noticed(tmp_path):
    X, y, _, _ = make_data()
    runs = []

    def blocks():
        runs.append(0)
        return in_blocks(CUTS, X if len(runs) < 3 else changed(X, 65), y)()

    with pytest.raises(ValueError, match="different data: block 3"):
        fit(blocks, tmp_path / "state.npz")


# States that somebody has altered


def altered(path, change):
    """Rewrite the state of a checkpoint."""
    with np.load(path) as archive:
        arrays = dict(archive)
    state = json.loads(str(arrays["state"]))
    arrays["state"] = np.array(json.dumps(change(state)))
    np.savez(path, **arrays)


def statistics(state):
    return state["passes"]["statistics"][1]["fields"]


def alterations():
    def without(key):
        return lambda state: {name: value for name, value in state.items() if name != key}

    for key in ("arrays", "seed", "passes", "identity", "prints", "format"):
        yield f"no {key}", without(key)
    for key, value in {
        "passes": [1, 2], "identity": "x", "prints": 3, "seed": "x", "arrays": "x",
    }.items():  # fmt: skip
        yield f"{key} is {value}", lambda state, key=key, value=value: state | {key: value}
    yield "no state", lambda state: 3
    yield "too many blocks", lambda state: _with(state, "passes", "statistics", 0, 99)
    for name, part in {
        "a number": 3,
        "two keys": {"value": 1, "array": 2, "tuple": []},
        "no array": {"array": 99},
        "a list": {"value": [1]},
        "a kind": {"kind": "Popen", "fields": {}},
        "no fields": {"kind": "Head"},
        "a number in place of statistics": {"value": 1},
        "other statistics": {"kind": "Counts", "fields": {}},
        "deep": json.loads("[" * 50 + "]" * 50),
    }.items():
        yield name, lambda state, part=part: _with(state, "passes", "statistics", 1, part)
    for name in ("head", "names", "n_rows", "leads", "scatters", "samples"):
        yield (
            f"{name} is another type",
            lambda state, name=name: statistics(state).update({name: {"value": None}}) or state,
        )
    yield "a group that is not there", _with_groups_beyond
    yield (
        "scatters of another size",
        lambda state: (
            statistics(state)["scatters"]["tuple"][0]["fields"].update(
                counts=statistics(state)["scatters"]["tuple"][0]["fields"]["means"]
            )
            or state
        ),
    )


def _with_groups_beyond(state):
    columns = statistics(state)["samples"]["tuple"][1]["fields"]["columns"]["tuple"]
    columns[1] = columns[2]  # weights in the place of groups
    return state


def _with(state, *path_and_value):
    *path, last, value = path_and_value
    place = state
    for key in path:
        place = place[key]
    place[last] = value
    return state


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """Return the bytes of a stopped fit's checkpoint."""
    X, y, groups, _ = make_data()
    with pytest.MonkeyPatch.context() as patch:
        path = tmp_path_factory.mktemp("stopped") / "state.npz"
        fit_stopped(in_blocks(CUTS, X, y, groups), path, patch)
    return path.read_bytes()


@pytest.mark.parametrize("change", [pytest.param(way, id=name) for name, way in alterations()])
def test_a_malformed_state_is_refused_with_the_reason(tmp_path, stopped, change):
    path = tmp_path / "state.npz"
    path.write_bytes(stopped)
    altered(path, change)
    X, y, groups, _ = make_data()
    message = r"is not a complete checkpoint \(\w+: .*\); delete it, or name another file$"
    with pytest.raises(ValueError, match=message):
        fit(in_blocks(CUTS, X, y, groups), path)


def test_a_checkpoint_claiming_more_than_it_holds_is_refused(tmp_path, stopped):
    path = tmp_path / "state.npz"
    X, y, groups, _ = make_data()
    path.write_bytes(stopped)
    with zipfile.ZipFile(path) as archive:
        entries = {entry.filename: archive.read(entry) for entry in archive.infolist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
        archive.writestr("array99.npy", bytes(10**7))
    with pytest.raises(ValueError, match=r"its entries would take \d+ bytes, more than the \d+"):
        fit(in_blocks(CUTS, X, y, groups), path)
    huge = entries["array0.npy"].replace(b"'shape': (", b"'shape': (9999999, ")
    huge = huge.replace(b" " * 9, b"", 1)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in (entries | {"array0.npy": huge}).items():
            archive.writestr(name, content)
    with pytest.raises(ValueError, match=r"its array 'array0.npy' claims \d+ bytes but has \d+"):
        fit(in_blocks(CUTS, X, y, groups), path)


@pytest.mark.parametrize("header", [b"'shape': [(", b"'shape': {{"])
def test_malformed_headers_are_refused(tmp_path, stopped, header):
    """NumPy's header parser raised a TokenError."""
    path = tmp_path / "state.npz"
    X, y, groups, _ = make_data()
    path.write_bytes(stopped)
    with zipfile.ZipFile(path) as archive:
        entries = {entry.filename: archive.read(entry) for entry in archive.infolist()}
    entries["array0.npy"] = entries["array0.npy"].replace(b"'shape': (", header)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    with pytest.raises(ValueError, match=r"is not a complete checkpoint \(\w+: .*; delete it, or"):
        fit(in_blocks(CUTS, X, y, groups), path)


def test_an_archive_of_another_version_is_refused(tmp_path, stopped):
    """The error of zipfile, a NotImplementedError, reaches the user within our message."""
    path = tmp_path / "state.npz"
    content = bytearray(stopped)
    place = content.index(b"PK\x01\x02")
    content[place + 6] = 130  # the version that is needed to read the first entry
    path.write_bytes(content)
    X, y, groups, _ = make_data()
    with pytest.raises(
        ValueError, match=r"is not a complete checkpoint \(NotImplementedError: zip"
    ):
        fit(in_blocks(CUTS, X, y, groups), path)
