"""Reading documents: VARIANT as JSON lines, and MAPs that are stored shredded, against the same texts in a STRING column.

    python -m scripts.bench.documents [--rows 100000] [--rounds 5]

A document has numbers, texts, a fraction, a nested object and an array. The floor of VARIANT is also compared with the least work
that makes such texts: to join columns that are decoded already.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli import Catalog
from paimon_cli.api.table import Table
from paimon_cli.read.row_text import JsonRows
from scripts.bench.measure import MIN_ROUNDS, Comparison, report

CITIES = ("Berlin", "Paris", "Rome")
KEYS = tuple(f"key{number}" for number in range(12))


def documents(rows: int) -> list[str]:
    chance = random.Random(1)

    def document(number: int) -> dict[str, object]:
        return {
            "id": number,
            "name": f"user {chance.randrange(10**6)}",
            "address": {"city": chance.choice(CITIES), "zip": chance.randrange(99_999)},
            "tags": [chance.choice("abc") for _ in range(chance.randrange(4))],
            "score": chance.randrange(1000) / 100,
            "ok": chance.random() < 0.5,
        }

    return [json.dumps(document(number), separators=(",", ":")) for number in range(rows)]


def maps(rows: int) -> list[list[tuple[str, str]]]:
    chance = random.Random(2)
    return [[(key, f"value {chance.randrange(1000)}") for key in sorted(chance.sample(KEYS, 5))] for _ in range(rows)]


def printed(table: Table) -> Callable[[], int]:
    def read() -> int:
        scan = table.scan()
        writer = JsonRows(scan.rows.context.schema.fields)
        return sum(writer.rows(batch).size for batch in scan.to_batches())

    return read


def scanned(table: Table) -> Callable[[], int]:
    return lambda: sum(batch.num_rows for batch in table.scan().to_batches())


def joined(texts: list[str]) -> Callable[[], object]:
    """Puts the texts together from columns of what they hold, without their arrays."""
    parsed = [json.loads(text) for text in texts]
    plain = {name: pa.array([row[name] for row in parsed]) for name in ("id", "name", "score", "ok")}
    nested = {name: pa.array([row["address"][name] for row in parsed]) for name in ("city", "zip")}

    def join() -> object:
        text = {name: column.cast(pa.string()) for name, column in {**plain, **nested}.items()}
        return pc.binary_join_element_wise(
            '{"id":', text["id"], ',"name":"', text["name"], '","address":{"city":"', text["city"], '","zip":', text["zip"],
            '},"score":', text["score"], ',"ok":', text["ok"], "}", "",
        )  # fmt: skip

    return join


def comparisons(folder: Path, rows: int) -> Iterator[Comparison]:
    catalog, texts, entries = Catalog(str(folder)), documents(rows), maps(rows)
    shredded = {"fields.v.map.storage-layout": "shared-shredding"}
    tables = {
        "text": ("STRING", {}, pa.array(texts)),
        "variant": ("VARIANT", {}, pa.array(texts)),
        "map_text": ("STRING", {}, pa.array([json.dumps(row, separators=(",", ":")) for row in entries])),
        "map": ("MAP<STRING NOT NULL, STRING>", {}, pa.array(entries, pa.map_(pa.string(), pa.string()))),
        "shredded": ("MAP<STRING NOT NULL, STRING>", shredded, pa.array(entries, pa.map_(pa.string(), pa.string()))),
    }
    for name, (sql, options, column) in tables.items():
        catalog.create_table(f"d.{name}", columns=[f"v {sql}"], options=options).write(pa.table({"v": column}))
    read = {name: printed(catalog.table(f"d.{name}")) for name in tables}
    yield Comparison(f"VARIANT as JSON, {rows} rows, against the same texts", read["variant"], read["text"], 1.3)
    yield Comparison("joining decoded columns to such texts, against the same", joined(texts), read["text"])
    scan = {name: scanned(catalog.table(f"d.{name}")) for name in ("map_text", "map", "shredded")}
    yield Comparison(
        f"shredded MAPs, {rows} rows, against the same texts, both to Arrow", scan["shredded"], scan["map_text"], 1.3
    )
    yield Comparison("shredded MAPs, against plain MAPs, both to Arrow", scan["shredded"], scan["map"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=MIN_ROUNDS)
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="paimon-bench-"))
    try:
        return 0 if report(comparisons(folder, arguments.rows), arguments.rounds) else 1
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    sys.exit(main())
