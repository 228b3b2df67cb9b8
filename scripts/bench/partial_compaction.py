"""Full compactions that copy the row groups which no newer key touches, against the same compactions without copying.

    python -m scripts.bench.partial_compaction [--rows 2000000] [--rounds 5]

The base file has ROWS rows; four runs upsert a tenth of them together: the newest keys, or keys that are scattered over all. For
these the decision not to copy must cost next to nothing.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from unittest.mock import patch

import numpy as np
import pyarrow as pa

from paimon_cli import Runtime, Table
from paimon_cli.compact import bucket_compactor
from paimon_cli.compact.bucket_compactor import run_compaction
from scripts.bench.compaction import full_compaction
from scripts.bench.measure import MIN_ROUNDS, Comparison, report

COLUMNS = ["k BIGINT NOT NULL", "a BIGINT", "b DOUBLE", "c STRING", "d STRING", "e BIGINT"]
GOALS = {"newest": 0.45, "scattered": 1.02}
RUNS = 4


def rows(keys: np.ndarray) -> pa.Table:
    texts = pa.array(keys).cast(pa.string())
    numbers = np.random.default_rng(len(keys)).random(len(keys))
    columns = [pa.array(keys), pa.array((numbers * 1e9).astype(np.int64)), pa.array(numbers), texts, texts, pa.array(keys)]
    return pa.table(columns, names=[column.split()[0] for column in COLUMNS])


def upserted(folder: Path, which: str, count: int, options: Mapping[str, str] = MappingProxyType({})) -> Table:
    """A table whose base file is at the highest level, with `RUNS` files at level 0."""
    given = {"bucket": "1", "write-only": "true", **options}
    table = Table.create(folder, columns=COLUMNS, primary_key=["k"], options=given, runtime=Runtime(engine="local"))
    table.write(rows(np.arange(count)))
    table.compact(strategy="full")
    random = np.random.default_rng(1)
    least = count - count // 10 if which == "newest" else 0
    for _ in range(RUNS):
        table.write(rows(np.sort(random.choice(np.arange(least, count), count // 10 // RUNS, replace=False))))
    return table


def comparison(table: Table, which: str) -> Comparison:
    context = table.context
    task = full_compaction(context)
    made: list[Path] = []

    def compact() -> None:
        message = run_compaction(context, task)
        made.extend(Path(context.data_file_path(task.partition, task.bucket, file)) for file in message.compact.added)

    def without_copying() -> None:
        with patch.object(bucket_compactor, "can_copy", lambda *_: False):
            compact()

    def reset() -> None:
        while made:
            made.pop().unlink()

    return Comparison(
        f"compact upserts of {which} keys, against merging everything", compact, without_copying, GOALS[which], reset
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=MIN_ROUNDS)
    arguments = parser.parse_args()
    met = True
    for which in GOALS:
        with tempfile.TemporaryDirectory() as folder:
            table = upserted(Path(folder) / "t", which, arguments.rows)
            met &= report([comparison(table, which)], arguments.rounds)
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
