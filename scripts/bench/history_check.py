"""How the time and memory of `history check` grow with the commits of a table.

    python -m scripts.bench.history_check [--commits 1000 10000]

Each size runs in a new process, on a table of two buckets with small upserts and their compactions. Rows are read.
Goal: 10,000 commits in 60 CPU seconds and 500 MB. Prints a table, and JSON lines on stdout.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa

from paimon_cli import Table
from scripts.bench.measure import MACHINE

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])
KEPT = {"snapshot.time-retained": "1000 d", "snapshot.num-retained.min": "1000000", "snapshot.num-retained.max": "2000000"}


def grown(path: Path, commits: int, keys: int = 5_000, rows: int = 20) -> Path:
    """A table whose commits each upsert a few of its keys."""
    table, dice = Table.create(str(path), schema=COLUMNS, primary_key=["id"], options={"bucket": "2", **KEPT}), random.Random(1)
    for number in range(commits):
        ids = sorted(dice.sample(range(keys), rows))
        table.write(pa.table({"id": ids, "v": [f"v{number}"] * rows}, schema=COLUMNS))
    return path


def measure(table: Path) -> dict[str, float]:
    """Seconds of wall and CPU, and peak MB, of the command, which must find nothing."""
    started = time.perf_counter()
    words = [sys.executable, "-m", "paimon_cli", "history", "check", str(table)]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"it ended with {os.waitstatus_to_exitcode(status)}")
    wall = time.perf_counter() - started
    return {"wall": wall, "cpu": usage.ru_utime + usage.ru_stime, "peak_mb": usage.ru_maxrss / 1024}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--commits", type=int, nargs="+", default=[1000, 10_000])
    with tempfile.TemporaryDirectory() as folder:
        for commits in parser.parse_args().commits:
            figures = measure(grown(Path(folder) / str(commits), commits))
            shown = ", ".join(f"{name} {value:.1f}" for name, value in figures.items())
            print(f"{commits:,} commits: {shown}", file=sys.stderr)
            print(json.dumps({"name": "history check", "commits": commits, **figures, "on": MACHINE}), flush=True)


if __name__ == "__main__":
    main()
