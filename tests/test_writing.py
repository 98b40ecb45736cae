"""Files that are either whole or not there."""

import errno
import os

import pytest

from pcsda.writing import whole_file


def test_a_file_appears_whole(tmp_path):
    with whole_file(tmp_path / "a.bin") as file:
        file.write(b"one")
        assert not (tmp_path / "a.bin").exists()
        file.write(b"two")
    assert (tmp_path / "a.bin").read_bytes() == b"onetwo"
    assert os.listdir(tmp_path) == ["a.bin"]


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "disk full"), KeyboardInterrupt()])
@pytest.mark.parametrize("before", [None, b"the one before"])
def test_a_failure_leaves_what_was_there(tmp_path, error, before):
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


def test_a_disk_that_is_full_at_the_end_leaves_nothing(tmp_path, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"), whole_file(tmp_path / "a.bin") as file:
        file.write(b"all of it")
    assert os.listdir(tmp_path) == []


def test_files_are_as_readable_as_the_umask_says(tmp_path):
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


def test_a_folder_and_a_missing_folder_are_named(tmp_path):
    with pytest.raises(IsADirectoryError, match="is a folder; give the name of a file"):
        whole_file(tmp_path).__enter__()
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*gone; make it first"):
        whole_file(tmp_path / "gone" / "a").__enter__()
