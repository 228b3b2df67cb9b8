"""A full compaction of one bucket in ranges of keys, in a process for each core, against the same compaction as a whole.

    python -m scripts.bench.range_compaction [--rows 16000000] [--rounds 5]

The base has ROWS rows; four runs upsert a tenth of them together, scattered over all keys. The base is many files, at which these
runs are cut first, or a single file. All commits, and the start of the processes, count. The goal is about CPU time; by wall time
two quiet cores should take at most 0.65 of one.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.compact_job import run_compact
from paimon_cli.jobs.compact_request import CompactRequest
from paimon_cli.jobs.engine import LocalEngine, NoProgress
from paimon_cli.jobs.process import usable_cores
from scripts.bench.measure import MIN_ROUNDS, Comparison, cpu_with_children, report
from scripts.bench.partial_compaction import upserted

GOAL = 1.10
BASE_FILES = 8


def comparison(folder: Path, rows: int, is_cut: bool) -> Comparison:
    upserted(folder / "one", "scattered", rows, {"target-file-size": "1 tb"})
    base = max(file.stat().st_size for file in (folder / "one").rglob("data-*"))
    if is_cut:
        upserted(folder / "many", "scattered", rows, {"target-file-size": f"{base // BASE_FILES} b"})
    table, copy = folder / ("many" if is_cut else "one"), folder / "copy"

    def reset() -> None:
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(table, copy)

    def compacting(ranges_over: int | None) -> Callable[[], object]:
        def compact() -> None:
            context = TableContext.open(str(copy))
            done = run_compact(context, CompactRequest(ranges_over=ranges_over), LocalEngine(usable_cores()), NoProgress())
            (task,) = done.plan.tasks
            assert len(done.snapshots) == task.commits and (task.ranges > 1) == (ranges_over is not None), task.arithmetic

        return compact

    name = f"compact ranges of keys {'that are cut first' if is_cut else 'in one file'}, against the whole bucket"
    return Comparison(name, compacting(1), compacting(None), GOAL, reset, cpu_with_children)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=16_000_000)
    parser.add_argument("--rounds", type=int, default=MIN_ROUNDS)
    arguments = parser.parse_args()
    met = True
    for is_cut in (True, False):
        with tempfile.TemporaryDirectory() as folder:
            met &= report([comparison(Path(folder), arguments.rows, is_cut)], arguments.rounds)
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
