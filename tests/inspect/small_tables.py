"""A table whose writer compacts at nearly each commit, with files of a few kilobytes."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa

from paimon_cli import Table

SCHEMA = pa.schema([pa.field("id", pa.int32(), nullable=False), ("v", pa.string())])


def small_table(folder: Path, commits: int = 30) -> Table:
    options = {"bucket": "1", "num-sorted-run.compaction-trigger": "2", "snapshot.num-retained.max": "1000"}
    table = Table.create(str(folder), schema=SCHEMA, primary_key=["id"], options=options)
    drawn = random.Random(7)
    for _ in range(commits):
        ids = drawn.sample(range(5_000), 100)
        table.write(pa.table({"id": pa.array(ids, pa.int32()), "v": [f"{drawn.getrandbits(200):x}" for _ in ids]}, schema=SCHEMA))
    return table
