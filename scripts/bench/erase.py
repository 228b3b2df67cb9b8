"""What `erase` writes and takes, against writing the files that hold the keys again with pyarrow alone.

    python -m scripts.bench.erase [--rows 400000] [--commits 4]

Each commit upserts all keys, so each file holds the erased keys. Goal: at most 1.3 times the CPU time of reading and writing
these files, the search at the end included. Prints a line, and a JSON line on stdout.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from paimon_cli import Runtime, Table
from scripts.bench.measure import MACHINE

GOAL = 1.3
ERASED = [7, 4711]


def filled(path: Path, rows: int, commits: int) -> Table:
    columns = pa.schema(
        [pa.field("id", pa.int64(), nullable=False), ("text", pa.string()), ("x", pa.float64()), ("n", pa.int32())]
    )
    options = {"bucket": "1", "write-only": "true", "snapshot.time-retained": "100 d"}
    table = Table.create(str(path), schema=columns, primary_key=["id"], options=options)
    dice = np.random.default_rng(1)
    for number in range(commits):
        texts = pa.array(dice.integers(0, 10**9, rows)).cast(pa.string())
        data = {"id": np.arange(rows), "text": texts, "x": dice.random(rows), "n": np.full(rows, number, np.int32)}
        table.write(pa.table(data, schema=columns))
    return table


def rewritten(path: Path) -> None:
    """Write every data file again without the rows, beside it."""
    for file in path.glob("bucket-*/*.parquet"):
        rows = pq.read_table(file)
        left = rows.filter(pc.invert(pc.is_in(rows.column("id"), pa.array(ERASED))))
        pq.write_table(left, file.with_suffix(".again"), compression="zstd")


def cpu_of(work: Callable[[], object]) -> float:
    before = time.process_time()
    work()
    return time.process_time() - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--commits", type=int, default=4)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t"
        filled(path, arguments.rows, arguments.commits)
        plain = min(cpu_of(lambda: rewritten(path)) for _ in range(2))
        for file in path.glob("bucket-*/*.again"):
            file.unlink()
        table = Table.open(str(path), runtime=Runtime(engine="local"))
        planned = table.plan_erase(keys=[{"id": key} for key in ERASED])
        looked = cpu_of(lambda: table.plan_erase(keys=[{"id": key} for key in ERASED]))
        before = time.process_time()
        done = planned.run()
        whole = time.process_time() - before + looked
        if done.found or (done.files, done.rows) != (arguments.commits, len(ERASED) * arguments.commits):
            raise SystemExit(f"{done.rows} rows were erased, {len(done.found)} files still hold some")
    shown = f"{done.files} files: {whole:.2f} s CPU, {looked:.2f} to look; the files alone {plain:.2f}: {whole / plain:.2f} x"
    print(f"erase of {shown} (goal {GOAL}, {'met' if whole / plain <= GOAL else 'MISSED'})", file=sys.stderr)
    figures = {"cpu": whole, "looking": looked, "files_alone": plain, "ratio": whole / plain, "goal": GOAL}
    print(json.dumps({"name": "erase", "rows": arguments.rows, **figures, "on": MACHINE}))


if __name__ == "__main__":
    main()
