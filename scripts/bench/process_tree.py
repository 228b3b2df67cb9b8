"""CPU time of this process and of all below it: Spark's JVM and the Python processes of its tasks."""

from __future__ import annotations

import os
from pathlib import Path

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
PARENT, USER, SYSTEM, STARTED = 1, 11, 12, 19
"""Places in /proc/PID/stat behind the name."""

_spent: dict[tuple[int, str], int] = {}
"""Ticks of each process that was ever seen, by its number and its start. Spark ends Python processes after an idle minute, and
nobody waits for them: what they spent would be gone, and the next difference negative."""


def tree_cpu_seconds() -> float:
    """Seconds so far, also of processes that have ended since an earlier call saw them. Linux only."""
    fields = {int(entry.name): found for entry in Path("/proc").iterdir() if entry.name.isdigit() and (found := _stat(entry))}
    own = {os.getpid()}
    while children := {number for number, stat in fields.items() if int(stat[PARENT]) in own} - own:
        own |= children
    for number in own:
        _spent[number, fields[number][STARTED]] = int(fields[number][USER]) + int(fields[number][SYSTEM])
    return sum(_spent.values()) / TICKS_PER_SECOND


def _stat(process: Path) -> list[str]:
    """Empty for a process that has just ended."""
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []
