"""Files that are either complete or absent."""

import errno
import os
import signal
import subprocess
import sys

import pytest

from pcsda.writing import remove_leftovers, whole_file

needs_locks = pytest.mark.skipif(sys.platform == "win32", reason="no file locks, no SIGKILL")


def test_a_file_appears_only_when_complete(tmp_path):
    with whole_file(tmp_path / "a.bin") as file:
        file.write(b"one")
        assert not (tmp_path / "a.bin").exists()
        file.write(b"two")
    assert (tmp_path / "a.bin").read_bytes() == b"onetwo"
    assert os.listdir(tmp_path) == ["a.bin"]


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "disk full"), KeyboardInterrupt()])
@pytest.mark.parametrize("before", [None, b"the one before"])
def test_a_failure_leaves_the_earlier_file(tmp_path, error, before):
    path = tmp_path / "a.bin"
    if before is not None:
        path.write_bytes(before)

    def interrupted():
        with whole_file(path) as file:
            file.write(b"half")
            raise error

    with pytest.raises(type(error)):
        interrupted()
    assert os.listdir(tmp_path) == ([] if before is None else ["a.bin"])
    if before is not None:
        assert path.read_bytes() == before


def test_a_disk_full_at_the_end_leaves_nothing(tmp_path, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"), whole_file(tmp_path / "a.bin") as file:
        file.write(b"all of it")
    assert os.listdir(tmp_path) == []


def test_files_follow_the_umask(tmp_path):
    before = os.umask(0o027)
    try:
        with whole_file(tmp_path / "a.bin") as file:
            file.write(b"x")
    finally:
        os.umask(before)
    assert (tmp_path / "a.bin").stat().st_mode & 0o777 == 0o640


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with whole_file(tmp_path / "link") as file:
        file.write(b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"


def test_a_long_name_fits(tmp_path):
    with whole_file(tmp_path / ("n" * 250)) as file:
        file.write(b"x")
    assert (tmp_path / ("n" * 250)).read_bytes() == b"x"


def test_a_folder_and_a_missing_folder_are_reported(tmp_path):
    with pytest.raises(IsADirectoryError, match="is a folder; give the name of a file"):
        whole_file(tmp_path).__enter__()
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*gone; create it first"):
        whole_file(tmp_path / "gone" / "a").__enter__()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes with names")
def test_a_device_or_a_pipe_is_refused_and_stays(tmp_path):
    """A model saved to /dev/null by an administrator replaced the device with a file."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    for name in ("pipe", "link"):
        with pytest.raises(OSError, match="is a device or a pipe; give the name of a file"):
            whole_file(tmp_path / name).__enter__()
    assert sorted(os.listdir(tmp_path)) == ["link", "pipe"]
    assert not (tmp_path / "pipe").is_file()


KILLED = """
import os, signal, sys
from pcsda.writing import whole_file

with whole_file(sys.argv[1]) as file:
    file.write(b"half")
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def unfinished(folder):
    return sorted(name for name in os.listdir(folder) if name.endswith(".part"))


@needs_locks
def test_leftovers_of_a_killed_save_are_removed_by_the_next(tmp_path):
    """Killed saves used to leave files behind: 21 after 51 kills."""
    path = tmp_path / "a.bin"
    killed = subprocess.run([sys.executable, "-c", KILLED, str(path)], timeout=60)
    assert killed.returncode == -signal.SIGKILL
    assert len(unfinished(tmp_path)) == 1
    with whole_file(tmp_path / "b.bin") as file:  # another file has leftovers of its own
        file.write(b"b")
    assert len(unfinished(tmp_path)) == 1
    with whole_file(path) as file:
        file.write(b"whole")
    assert sorted(os.listdir(tmp_path)) == ["a.bin", "b.bin"]


@needs_locks
def test_a_file_still_being_written_is_not_removed(tmp_path):
    path = tmp_path / "a.bin"
    with whole_file(path) as slow:
        slow.write(b"slow")
        with whole_file(path) as quick:
            quick.write(b"quick")
        assert path.read_bytes() == b"quick"
        remove_leftovers(path)
        assert len(unfinished(tmp_path)) == 1
    assert path.read_bytes() == b"slow"
    assert unfinished(tmp_path) == []


@needs_locks
def test_a_file_removed_before_it_is_locked_is_started_again(tmp_path, monkeypatch):
    import fcntl

    flock, path = fcntl.flock, tmp_path / "a.bin"

    def late(file, how):
        monkeypatch.undo()
        remove_leftovers(path)
        flock(file, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with whole_file(path) as file:
        file.write(b"x")
    assert os.listdir(tmp_path) == ["a.bin"]


def test_files_with_other_names_stay(tmp_path):
    others = [".a.bin.part", ".a.bin.0123.part", "a.bin.part", f".b.{'0' * 32}.part"]
    for name in others:
        (tmp_path / name).write_bytes(b"")
    remove_leftovers(tmp_path / "a.bin")
    assert sorted(os.listdir(tmp_path)) == sorted(others)


def test_without_file_locks_leftovers_stay(tmp_path, monkeypatch):
    monkeypatch.setattr("pcsda.writing.fcntl", None)
    left = tmp_path / f".a.bin.{'0' * 32}.part"
    left.write_bytes(b"")
    with whole_file(tmp_path / "a.bin") as file:
        file.write(b"x")
    assert sorted(os.listdir(tmp_path)) == [left.name, "a.bin"]


def test_a_full_disk_is_named_with_the_file(tmp_path):
    path = tmp_path / "model.pcsda"
    room = pytest.raises(OSError, match=r"No space left on device: '.*model.pcsda'")
    with room, whole_file(path):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert not list(tmp_path.iterdir())


def test_a_file_that_cannot_be_begun_is_named_as_the_user_wrote_it(tmp_path, monkeypatch):
    """The message named the unfinished file, such as .a.bin.f07382a05e5c.part."""

    def refuse(path, *_):
        raise PermissionError(errno.EACCES, "Permission denied", os.fspath(path))

    monkeypatch.setattr("pcsda.writing.open", refuse, raising=False)
    with pytest.raises(PermissionError) as found, whole_file(tmp_path / "a.bin"):
        pass
    assert found.value.filename == os.fspath(tmp_path / "a.bin")
