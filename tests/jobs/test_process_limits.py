"""Cores and memory of containers, by directories like those of control groups of both versions."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from paimon_cli.jobs import process
from paimon_cli.jobs.process import ARENAS, container_memory, usable_cores, usable_memory


def laid_out(folder: Path, files: dict[str, str], membership: str = "0::/\n") -> Path:
    for name, text in {**files, "cgroup": membership}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@pytest.fixture(autouse=True)
def eight_cores(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)))
    monkeypatch.setattr(process, "OWN_GROUPS", tmp_path / "cgroup")


@pytest.mark.parametrize(
    ("files", "membership", "memory", "cores"),
    [
        ({}, "", None, 8),
        ({"memory.max": "max\n", "cpu.max": "max 100000\n"}, "0::/\n", None, 8),
        ({"memory.max": "536870912\n", "cpu.max": "200000 100000\n"}, "0::/\n", 512 << 20, 2),
        ({"pod/box/memory.max": "max\n", "pod/memory.max": "1000000\n", "memory.max": "9000000\n"}, "0::/pod/box\n", 1000000, 8),
        ({"cpu.max": "50000 100000\n"}, "0::/\n", None, 1),
        (
            {
                "memory/docker/1/memory.limit_in_bytes": "2000000\n",
                "memory/memory.limit_in_bytes": "9223372036854771712\n",
                "cpu,cpuacct/docker/1/cpu.cfs_quota_us": "350000\n",
                "cpu,cpuacct/docker/1/cpu.cfs_period_us": "100000\n",
            },
            "4:memory:/docker/1\n3:cpu,cpuacct:/docker/1\n",
            2000000,
            3,
        ),
        ({"memory/memory.limit_in_bytes": "3000000\n"}, "4:memory:/outside/of/the/container\n", 3000000, 8),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, "1:cpu:/\n", None, 8),
    ],
)
def test_limits(tmp_path: Path, files: dict[str, str], membership: str, memory: int | None, cores: int) -> None:
    groups = laid_out(tmp_path, files, membership)
    assert container_memory(groups) == memory
    assert usable_cores(groups) == cores
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert usable_memory(groups) == (machine if memory is None else memory)


def test_threads_share_the_arenas_of_malloc(tmp_path: Path) -> None:
    program = """
import ctypes, sys, threading
from paimon_cli.jobs.process import share_arenas
if sys.argv[1] == "shared":
    share_arenas()
c, all_run = ctypes.CDLL(None), threading.Barrier(9)
c.fopen.restype, c.malloc.restype = ctypes.c_void_p, ctypes.c_void_p
def allocate():
    c.malloc(100_000)
    all_run.wait()
for _ in range(8):
    threading.Thread(target=allocate).start()
all_run.wait()
out = ctypes.c_void_p(c.fopen(sys.argv[2].encode(), b"w"))
c.malloc_info(0, out)
c.fclose(out)
"""
    environment = {key: value for key, value in os.environ.items() if key != "MALLOC_ARENA_MAX"}
    arenas = {}
    for how in ("shared", "alone"):
        report = tmp_path / how
        subprocess.run([sys.executable, "-c", program, how, str(report)], check=True, env=environment)
        arenas[how] = report.read_text().count("<heap nr=")
    assert arenas["shared"] <= ARENAS < arenas["alone"]
