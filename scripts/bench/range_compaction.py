"""A full compaction of one bucket in two ranges of keys, on all cores, against the same compaction as a whole.

    python -m scripts.bench.range_compaction [--rows 4000000] [--rounds 5]

The base has ROWS rows in four files; four runs upsert a tenth of them together, scattered over all keys, so that they have to be
cut first. All commits count. The goal is about CPU time; by wall time two quiet cores should take at most 0.65 of one.
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
from paimon_cli.pieces import PIECES
from scripts.bench.measure import MIN_ROUNDS, Comparison, report
from scripts.bench.partial_compaction import upserted

GOAL = 1.10
BASE_FILES = 4


def comparison(folder: Path, rows: int) -> Comparison:
    upserted(folder / "whole", "scattered", rows)
    base = max(file.stat().st_size for file in (folder / "whole").rglob("data-*"))
    table = upserted(folder / "t", "scattered", rows, {"target-file-size": f"{base // BASE_FILES} b"})
    PIECES.key_range_bytes = base // 2
    copy = folder / "copy"

    def reset() -> None:
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(folder / "t", copy)

    def compacting(ranges_over: int | None) -> Callable[[], object]:
        def compact() -> None:
            context = TableContext.open(str(copy))
            done = run_compact(context, CompactRequest(ranges_over=ranges_over), LocalEngine(usable_cores()), NoProgress())
            commits = len(done.snapshots)
            assert commits == 1 if ranges_over is None else commits == 3, f"{commits} commits of {table.context.url}"

        return compact

    return Comparison("compact two ranges of keys, against the whole bucket", compacting(1), compacting(None), GOAL, reset)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--rounds", type=int, default=MIN_ROUNDS)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(0 if report([comparison(Path(folder), arguments.rows)], arguments.rounds) else 1)


if __name__ == "__main__":
    main()
