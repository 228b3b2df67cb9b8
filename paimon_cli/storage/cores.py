"""How many cores this process may use, which is the default parallelism."""

from __future__ import annotations

import os

MOST_CORES = 8
"""Each core at work holds batches in memory; who has more cores and memory asks for more."""


def usable_cores() -> int:
    """At least 1. Respects the process's affinity, as containers and `taskset` set it."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(MOST_CORES, cores)
