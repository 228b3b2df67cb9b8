"""CPU time of this process and of all below it: Spark's JVM and the Python processes of its tasks."""

from __future__ import annotations

import os
from pathlib import Path

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
PARENT, FIRST_TIME = 1, 11
"""Places in /proc/PID/stat behind the name: the parent, and user, system, children's user, children's system time."""


def tree_cpu_seconds() -> float:
    """Seconds so far; processes that have ended count with whoever waited for them. Linux only."""
    fields = {int(entry.name): found for entry in Path("/proc").iterdir() if entry.name.isdigit() and (found := _stat(entry))}
    own = {os.getpid()}
    while found := {number for number, stat in fields.items() if int(stat[PARENT]) in own} - own:
        own |= found
    return sum(int(text) for number in own for text in fields[number][FIRST_TIME : FIRST_TIME + 4]) / TICKS_PER_SECOND


def _stat(process: Path) -> list[str]:
    """Empty for a process that has just ended."""
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []
