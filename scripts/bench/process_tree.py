"""The CPU time of this process and its descendants: Spark's JVM and the Python processes of its tasks."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
NAME, PARENT, USER, SYSTEM, STARTED = 0, 2, 12, 13, 20
"""Positions in /proc/PID/stat, counted after the process id."""

_spent: dict[tuple[int, str, str], int] = {}
"""The ticks of each process that was seen, by its id, start and name. Spark ends Python processes after an idle minute, and
no process waits for them: their CPU time would be lost, and the next difference would be negative."""


def tree_cpu_seconds() -> float:
    """The CPU seconds so far, including processes that have ended since an earlier call saw them. Linux only."""
    return sum(cpu_seconds_by_program().values())


def cpu_seconds_by_program() -> dict[str, float]:
    """The CPU seconds by program name, such as `java`."""
    for number, stat in _tree().items():
        _spent[number, stat[STARTED], stat[NAME]] = int(stat[USER]) + int(stat[SYSTEM])
    ticks: Counter[str] = Counter()
    for (_, _, name), spent in _spent.items():
        ticks[name] += spent
    return {name: spent / TICKS_PER_SECOND for name, spent in ticks.items()}


def descendants() -> set[int]:
    """The ids of the processes below this one."""
    return _tree().keys() - {os.getpid()}


def _tree() -> dict[int, list[str]]:
    """The fields of /proc/PID/stat of this process and its descendants."""
    fields = {int(entry.name): found for entry in Path("/proc").iterdir() if entry.name.isdigit() and (found := _stat(entry))}
    own = {os.getpid()}
    while children := {number for number, stat in fields.items() if int(stat[PARENT]) in own} - own:
        own |= children
    return {number: fields[number] for number in own}


def _stat(process: Path) -> list[str]:
    """The fields of /proc/PID/stat; empty for a process that has just ended."""
    try:
        name, _, rest = (process / "stat").read_text().partition("(")[2].rpartition(")")
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [name, *rest.split()]
