"""The workload of all sides: a shuffled load, then smaller upserts with a twentieth of new keys, as Parquet and CSV."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from scripts.bench.peers.columns import COLUMNS

FIRST_MILLI = 1_700_000_000_000


def write_workload(folder: Path, rows: int, upserts: int, upsert_rows: int) -> None:
    """Write the files `in-0`, `in-1`, ... with the extensions parquet and csv. Each call writes the same rows."""
    random = np.random.default_rng(11)
    batches = [random.permutation(rows)]
    batches += [random.choice(rows + rows // 20, upsert_rows, replace=False) for _ in range(upserts)]
    for number, ids in enumerate(batches):
        table = _rows(random, ids, number)
        pq.write_table(table, folder / f"in-{number}.parquet", compression="zstd")
        plain = table.set_column(table.schema.get_field_index("ts"), "ts", table["ts"].cast(pa.int64()))
        pyarrow.csv.write_csv(plain, folder / f"in-{number}.csv", pyarrow.csv.WriteOptions(include_header=False))


def _rows(random: np.random.Generator, ids: np.ndarray, generation: int) -> pa.Table:
    count = len(ids)
    states = pa.array([f"status-{number:04d}" for number in range(1000)])
    serials = pa.array(random.integers(10**11, 10**12, count)).cast(pa.string())
    cents = pa.array(random.integers(0, 10**9, count)).cast(pa.decimal128(19, 0))
    columns = [
        pa.array(ids.astype(np.int64)),
        pa.array(random.integers(0, 1000, count).astype(np.int32)),
        pa.array(random.random(count)),
        pc.multiply(cents, pa.scalar("0.01").cast(pa.decimal128(3, 2))).cast(pa.decimal128(18, 2)),
        pa.array(FIRST_MILLI + random.integers(0, 10**9, count), pa.timestamp("ms")),
        states.take(pa.array(random.integers(0, 1000, count))),
        pc.binary_join_element_wise(f"note-{generation}", serials, "-"),
    ]
    return pa.table(columns, names=list(COLUMNS))
