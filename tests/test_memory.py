"""Available memory is the least that machine, container and process allow."""

import os
import sys

import pytest
from block_factories import make_data

from pcsda import memory
from pcsda.blocks.files import open_blocks
from pcsda.memory import available_memory, memory_limit

resource = pytest.importorskip("resource", reason="the system has no limits for processes")
GIB = 1 << 30


@pytest.fixture
def system(tmp_path, monkeypatch):
    """Return a function that writes a system file. The process has no limits of its own."""
    monkeypatch.setattr(memory, "PROC", tmp_path / "proc")
    monkeypatch.setattr(memory, "CGROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (resource.RLIM_INFINITY,) * 2)

    def write(name, content):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(str(content))

    kilobytes = (16 * GIB // 1024, 8 * GIB // 1024)
    write("proc/meminfo", "MemTotal: {} kB\nMemAvailable: {} kB\nHugePages: 0\n".format(*kilobytes))
    return write


def test_without_a_container_the_machine_decides(system):
    assert (memory_limit(), available_memory()) == (16 * GIB, 8 * GIB)


@pytest.mark.parametrize("place", ["/", "/a", "/a/b", "/not/there"])
def test_a_version_2_container_limits_memory(system, place):
    """A 1 GiB container on a 16 GiB machine was assumed to have all of it."""
    system("proc/self/cgroup", f"0::{place}\n")
    group = {"/not/there": "/"}.get(place, place).strip("/")
    system(f"cgroup/{group}/memory.max", GIB)
    system(f"cgroup/{group}/memory.current", 700 << 20)
    system(f"cgroup/{group}/memory.stat", f"anon 1\ninactive_file {200 << 20}\n")
    assert memory_limit() == GIB
    assert available_memory() == GIB - (500 << 20)


def test_the_tightest_nested_group_counts(system):
    system("proc/self/cgroup", "0::/a/b\n")
    system("cgroup/a/b/memory.max", "max")
    system("cgroup/a/memory.max", 2 * GIB)
    assert available_memory() == memory_limit() == 2 * GIB
    system("cgroup/a/b/memory.max", GIB)
    assert available_memory() == GIB


def test_a_version_1_container_limits_memory(system):
    system("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/x\n")
    system("cgroup/memory/memory.limit_in_bytes", 9223372036854771712)
    system("cgroup/memory/x/memory.limit_in_bytes", GIB)
    system("cgroup/memory/x/memory.usage_in_bytes", 3 * GIB)
    system("cgroup/memory/x/memory.stat", "total_inactive_file 0\n")
    assert (memory_limit(), available_memory()) == (GIB, 0)


@pytest.mark.parametrize("broken", ["", "x", "0::", "0:a", "1:name=systemd:/"])
def test_unreadable_limits_are_ignored(system, broken):
    system("proc/self/cgroup", broken)
    assert available_memory() == 8 * GIB


@pytest.mark.parametrize(("kind", "used"), [(resource.RLIMIT_AS, 100), (resource.RLIMIT_DATA, 40)])
def test_process_limits_count(system, monkeypatch, kind, used):
    system("proc/self/statm", "100 50 20 2 0 40 0")
    limits = {kind: GIB}
    monkeypatch.setattr(resource, "getrlimit", lambda k: (limits.get(k, resource.RLIM_INFINITY), 0))
    assert memory_limit() == GIB
    assert available_memory() == GIB - used * os.sysconf("SC_PAGE_SIZE")


def test_this_system_reports_its_memory():
    assert 1 << 20 < available_memory() <= memory_limit() < 1 << 60


def test_systems_without_proc_fall_back(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "PROC", tmp_path)
    monkeypatch.setattr(memory, "CGROUPS", tmp_path)
    sizes = {"SC_PHYS_PAGES": 1000, "SC_PAGE_SIZE": 4096}
    monkeypatch.setattr(os, "sysconf", sizes.__getitem__)
    assert available_memory() == 4_096_000
    monkeypatch.delattr(os, "sysconf")  # as on Windows
    assert available_memory() == memory_limit() == sys.maxsize


def test_little_memory_means_small_blocks(monkeypatch):
    X, y, _, _ = make_data()
    assert len(open_blocks(X, y=y)) == 1
    monkeypatch.setattr("pcsda.tables.arrays.memory_limit", lambda: 32 * 8 * X.shape[1] * 50)
    sizes = [len(block.X) for _, _, block in open_blocks(X, y=y).read()]
    assert sizes == [50, 50, 50, 50, 20]
