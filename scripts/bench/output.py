"""Printing rows: the program's own writers of CSV, JSON lines and text tables, against Arrow's CSV writer on the same rows.

    python -m scripts.bench.output [--rows 300000] [--rounds 5]

The first rows are like the flights of the demo: 14 integers, 5 strings and a time. The second ones have strings that need quotes,
floating-point numbers and decimals. They are in memory, so that only writing counts. `--order-by` is compared with Arrow's sort.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from paimon_cli.datatypes.data_type import DataField
from paimon_cli.datatypes.field_types import parse_sql_type
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.read.row_text import CsvRows, JsonRows
from paimon_cli.read.selection import parse_order, rows_in_order
from scripts.bench.measure import MIN_ROUNDS, Comparison, report

BATCH_ROWS = 1 << 16
WHOLE_NUMBERS, TEXTS = 14, 5


def like_flights(rows: int) -> dict[str, tuple[str, pa.Array]]:
    random = np.random.default_rng(3)
    numbers = {f"n{i}": ("INT", pa.array(random.integers(-60, 2400, rows), pa.int32())) for i in range(WHOLE_NUMBERS)}
    texts = {f"s{i}": ("STRING", pc.binary_join_element_wise("N", _digits(random, rows), "")) for i in range(TEXTS)}
    hours = pa.array(random.integers(377_000, 385_000, rows) * 3600_000).cast(pa.timestamp("ms"))
    return {**numbers, **texts, "hour": ("TIMESTAMP(0)", hours)}


def like_orders(rows: int) -> dict[str, tuple[str, pa.Array]]:
    random = np.random.default_rng(4)
    return {
        "id": ("BIGINT", pa.array(np.arange(rows))),
        "price": ("DOUBLE", pa.array(np.round(random.random(rows) * 1000, 2))),
        "amount": ("DECIMAL(12, 2)", pa.array(random.integers(0, 10**6, rows), pa.int32()).cast(pa.decimal128(12, 2))),
        "note": ("STRING", pc.binary_join_element_wise(_digits(random, rows), 'said "so", often', " ")),
        "city": ("STRING", pc.binary_join_element_wise("city", _digits(random, rows), "-")),
    }


def _digits(random: np.random.Generator, rows: int) -> pa.Array:
    return pa.array(random.integers(0, 4000, rows)).cast(pa.string())


def comparisons(rows: int) -> Iterator[Comparison]:
    for name, columns, goals in (
        ("flights", like_flights(rows), {"csv": 1.25, "ndjson": 2.5}),
        ("orders with quotes", like_orders(rows), {"csv": 3.0, "ndjson": 4.0}),
    ):
        fields = tuple(DataField(i, key, parse_sql_type(sql)) for i, (key, (sql, _)) in enumerate(columns.items()))
        table = pa.table([array for _, array in columns.values()], names=list(columns))
        batches = table.to_batches(max_chunksize=BATCH_ROWS)

        def arrow(table: pa.Table = table) -> None:
            pa.csv.write_csv(table, pa.BufferOutputStream())

        for form, make in (("csv", CsvRows), ("ndjson", JsonRows)):

            def ours(
                make: type[CsvRows] | type[JsonRows] = make,
                fields: tuple[DataField, ...] = fields,
                batches: list[pa.RecordBatch] = batches,
            ) -> int:
                writer = make(fields)
                return sum(writer.rows(batch).size for batch in batches)

            yield Comparison(f"{form} of {name}, {rows} rows, against Arrow's CSV", ours, arrow, goals[form])
    schema = TableSchema(0, fields, len(fields), (), ("id",), {}, None, 0)
    order = parse_order("city DESC, price", schema)

    def sort() -> int:
        return sum(batch.num_rows for batch in rows_in_order(batches, order))

    def arrow_sort() -> int:
        return table.take(pc.sort_indices(table, [("city", "descending"), ("price", "ascending")])).num_rows

    yield Comparison(f"order by two columns, {rows} rows, against Arrow's sort", sort, arrow_sort, 3.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=MIN_ROUNDS)
    arguments = parser.parse_args()
    sys.exit(0 if report(comparisons(arguments.rows), arguments.rounds) else 1)


if __name__ == "__main__":
    main()
