"""What this process may use of the machine: cores and memory, within the limits of its container (control groups 1 and 2)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

MOST_CORES = 8
"""The default limit, because each core at work holds batches in memory."""
CONTROL_GROUPS, OWN_GROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
_UNLIMITED = 1 << 60
"""Version 1 of control groups writes "no limit" as a number close to 2**63."""


def usable_cores(groups: Path = CONTROL_GROUPS) -> int:
    """At least 1. Respects the affinity of the process, as `taskset` sets it, and the quota of the container."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for directory in _directories(groups, "cpu"):
        quota, period = _quota(directory)
        if quota is not None:
            cores = min(cores, max(1, quota // period))
    return min(MOST_CORES, cores)


def container_memory(groups: Path = CONTROL_GROUPS) -> int | None:
    """The bytes that the container leaves to this process; None without a limit."""
    limits = [
        limit
        for directory in _directories(groups, "memory")
        for name in ("memory.max", "memory.limit_in_bytes")
        if (limit := _number(directory / name)) is not None and limit < _UNLIMITED
    ]
    return min(limits, default=None)


def usable_memory(groups: Path = CONTROL_GROUPS) -> int:
    """The machine's memory, or what the container leaves of it."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(machine, container_memory(groups) or machine)


def _directories(groups: Path, controller: str) -> Iterator[Path]:
    """The directories whose limits hold: of the process's own group, and of those above it, as far as they can be seen."""
    yield from (groups, groups / controller)
    for line in _text(OWN_GROUPS).splitlines():
        _, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        root = groups / controllers if controllers else groups
        if controllers and controller not in controllers.split(","):
            continue
        path = Path(group.lstrip("/"))
        yield from (root / above for above in (path, *path.parents) if above != Path())


def _quota(directory: Path) -> tuple[int | None, int]:
    """Microseconds of processor time in each period; None without a limit."""
    quota, _, period = _text(directory / "cpu.max").strip().partition(" ")
    if quota.isdigit() and period.isdigit() and int(period):
        return int(quota), int(period)
    return _number(directory / "cpu.cfs_quota_us"), _number(directory / "cpu.cfs_period_us") or 100_000


def _number(file: Path) -> int | None:
    text = _text(file).strip()
    return int(text) if text.isdigit() else None


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""
