"""The label store: nothing is lost however the program ends, and nothing is overwritten."""

import os
import signal
import sqlite3
import subprocess
import sys
import textwrap

import pytest

from pcsda.retrieval.store import Store, StoreError


def test_a_label_records_person_time_answer_and_model(tmp_path):
    store = Store(tmp_path / "s.db")
    store.add(["a", 3], [True, None], "ann", 7)
    store.add(["3"], [False], "ben", 9)
    one, two, three = Store(tmp_path / "s.db").entries()
    assert (one.id, one.value, one.who, one.model, one.act) == ("a", True, "ann", 7, 1)
    assert (two.id, two.value, two.act) == (3, None, 1)
    assert (three.id, three.value, three.model, three.act) == ("3", False, 9, 2)
    assert one.at <= three.at
    assert one.at.endswith("+00:00")


def test_a_killed_program_loses_no_label(tmp_path):
    """The child prints each label after the call returns, and is then killed without warning."""
    path = tmp_path / "s.db"
    code = """
        import sys, itertools
        from pcsda.retrieval.store import Store
        store = Store(sys.argv[1])
        for number in itertools.count():
            store.add([number], [True], "child", 0)
            print(number, flush=True)
    """
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), str(path)], stdout=subprocess.PIPE, text=True
    )
    for line in child.stdout:
        if int(line) == 10:
            break
    os.kill(child.pid, signal.SIGKILL)
    seen = [10, *map(int, child.stdout.read().split())]
    child.stdout.close()
    child.wait()
    ids = [entry.id for entry in Store(path).entries()]
    assert ids[: seen[-1] + 1] == list(range(seen[-1] + 1))
    assert len(ids) <= seen[-1] + 2  # one may have been written and not printed


@pytest.mark.more  # starts a process
def test_concurrent_writers_wait_for_each_other(tmp_path):
    path = tmp_path / "s.db"
    Store(path).close()
    code = """
        import sys
        from pcsda.retrieval.store import Store
        store = Store(sys.argv[1])
        print("ready", flush=True)
        for number in range(8):
            store.add([f"a-{number}"], [True], "a", 0)
    """
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), str(path)], stdout=subprocess.PIPE, text=True
    )
    store = Store(path)
    assert child.stdout.readline() == "ready\n"
    for number in range(8):  # while the child writes, too
        store.add([f"b-{number}"], [True], "b", 0)
    child.stdout.close()
    assert child.wait() == 0
    entries = Store(path).entries()
    assert {entry.id for entry in entries} == {f"{name}-{n}" for name in "ab" for n in range(8)}
    assert len({entry.act for entry in entries}) == 16


def test_a_store_of_another_version_is_refused_and_unchanged(tmp_path):
    path = tmp_path / "s.db"
    Store(path).close()
    base = sqlite3.connect(path)
    base.execute("PRAGMA user_version = 99")
    base.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match="has format 99, and this version of pcsda knows format 1"):
        Store(path)
    assert path.read_bytes() == before


def test_another_database_is_refused(tmp_path):
    base = sqlite3.connect(tmp_path / "other.db")
    base.execute("CREATE TABLE photos (name TEXT)")
    base.commit()
    base.close()
    with pytest.raises(StoreError, match="is a database, not a store of labels; give another name"):
        Store(tmp_path / "other.db")


@pytest.mark.parametrize("part", ["text", "half", "middle"])
def test_a_damaged_store_is_refused_and_unchanged(tmp_path, part):
    path = tmp_path / "s.db"
    store = Store(path)
    store.add(list(range(500)), [True] * 500, "ann", 0)
    store.close()
    whole = path.read_bytes()
    path.write_bytes(
        {
            "text": b"this is no database at all, but some text that someone wrote" * 20,
            "half": whole[: len(whole) // 2],
            "middle": whole[:4096] + b"\xff" * 4096 + whole[8192:],
        }[part]
    )
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"is damaged or not a store of labels .*\.recover"):
        Store(path).entries()
    assert path.read_bytes() == before


ALTERED = {
    "id": (Store.entries, b'"anton"', b'"anton '),
    "id in an audit": (Store.audits, b'"anton"', b'"anton '),
    "name": (Store.entries, b"no2026", b"n\xd02026"),
    "schema": (Store.entries, b"CREATE TABLE labels", b"CREATE TABL\xd0 labels"),
}


@pytest.mark.parametrize(("read", "old", "new"), ALTERED.values(), ids=ALTERED)
def test_a_store_with_altered_text_is_refused(tmp_path, read, old, new):
    path = tmp_path / "s.db"
    store = Store(path)
    store.add(["anton"], [True], "nono", 0)
    store.draw(["anton"], 5, 1, extend=False)
    store.close()
    whole = path.read_bytes()
    assert old in whole
    path.write_bytes(whole.replace(old, new))
    with pytest.raises(StoreError, match=r"is damaged or not a store of labels .*\.recover"):
        read(Store(path))


@pytest.mark.parametrize("how", ["removed", "renamed", "replaced"])
def test_a_store_that_has_gone_is_named_and_can_still_be_saved(tmp_path, how):
    path = tmp_path / "s.db"
    store = Store(path)
    store.add([1, 2], [True, False], "ann", 0)
    if how == "removed":
        path.unlink()
    else:
        path.rename(tmp_path / "old.db")
    if how == "replaced":
        Store(path).close()
    with pytest.raises(StoreError, match=r"s.db was removed, renamed or replaced .* save the"):
        store.add([3], [True], "ann", 0)
    store.copy_to(tmp_path / "saved.db")
    assert [entry.id for entry in Store(tmp_path / "saved.db").entries()] == [1, 2]


def test_a_missing_folder_and_a_folder_as_store_are_refused(tmp_path):
    with pytest.raises(StoreError, match=r"there is no folder .*none; create it first"):
        Store(tmp_path / "none" / "s.db")
    with pytest.raises(StoreError, match="is a folder; give the name of a file for the labels"):
        Store(tmp_path)


def test_a_failed_copy_leaves_nothing(tmp_path):
    store = Store()
    store.add([1], [True], "ann", 0)
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match=r".+"):
        store.copy_to(tmp_path / "folder")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder"]
    store.copy_to(tmp_path / "copy.db")
    assert [entry.id for entry in Store(tmp_path / "copy.db").entries()] == [1]


def test_a_call_stores_all_of_its_labels_or_none():
    store = Store()
    with pytest.raises(KeyError):
        store.add([1, 2], [True, "perhaps"], "ann", 0)
    assert store.entries() == []
    store.add([1], [True], "ann", 0)
    assert len(store.entries()) == 1


def test_names_that_are_not_text_are_kept(tmp_path):
    odd = os.fsdecode(b"caf\xe9.png")
    store = Store(tmp_path / "labels.db")
    store.add([odd, "\u00e9"], [True, False], odd, 0)
    assert [entry.id for entry in store.entries()] == [odd, "\u00e9"]
    assert store.undo("somebody else") == []
    assert store.undo(odd) == [odd, "\u00e9"]


def test_a_store_of_an_earlier_version_without_scores_still_serves(tmp_path):
    path = tmp_path / "s.db"
    store = Store(path)
    store.add([1], [True], "ann", 3, [0.5])
    store.close()
    with sqlite3.connect(path) as base:
        base.execute("ALTER TABLE labels DROP COLUMN score")
    store = Store(path)
    store.add([2], [False], "ann", 4, [-1.5])
    # The earlier version still writes to it.
    with sqlite3.connect(path) as base:
        base.execute(
            "INSERT INTO labels (act, id, value, who, at, model) VALUES (3, '5', 'no', 'a', '', 4)"
        )
    assert [entry.score for entry in store.entries()] == [None, -1.5, None]
