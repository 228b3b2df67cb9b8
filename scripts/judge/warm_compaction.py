"""Full compaction of tables in a process of the command that has compacted copies of them before, as a service has.

    python -m scripts.judge.warm_compaction COPIES TABLES

Both are folders with the same tables. The last line is the CPU seconds for the second ones, with the processes that decode ORC.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from paimon_cli.cli.app import app, prepare_process
from paimon_cli.processor import fast_sort, set_for_this_process
from scripts.judge.peers import cpu_seconds


def _used() -> float:
    """The CPU seconds of this process and of all its children until now."""
    own, running = os.times(), Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return own.user + own.system + own.children_user + own.children_system + sum(map(cpu_seconds, running))


def _compact(folder: str) -> None:
    try:
        app(["compact", *map(str, sorted(Path(folder).iterdir())), "--strategy", "full", "--engine", "local"])
    except SystemExit as end:
        if end.code:
            raise


def main(copies: str, tables: str) -> None:
    """Compact all of the copies, and then the tables."""
    set_for_this_process(fast_sort(os.environ))
    prepare_process()
    _compact(copies)
    before = _used()
    _compact(tables)
    print(round(_used() - before, 2))


if __name__ == "__main__":
    main(*sys.argv[1:])
