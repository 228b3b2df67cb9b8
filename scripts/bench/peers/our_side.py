"""paimon-cli's side: the library in one process, two threads."""

import pyarrow.compute as pc
import pyarrow.parquet as pq
from columns import COLUMNS
from side import serve

from paimon_cli import Runtime, Table

THREADS = 2


def opened(table):
    return Table.open(table, runtime=Runtime(engine="local"))


def create(table, buckets):
    columns = [f"{name} {text}" for name, text in COLUMNS.items()]
    options = {"bucket": str(buckets), "file.format": "parquet", "write-only": "true"}
    Table.create(table, columns=columns, primary_key=["id"], options=options)


def write(table, sources):
    for source in sources:
        opened(table).write(pq.read_table(source))


def scan(table):
    rows = opened(table).scan().to_arrow()
    return {"rows": rows.num_rows, "sum": pc.sum(rows["qty"]).as_py()}


def compact(table):
    opened(table).compact(parallelism=THREADS)


serve({"create": create, "write": write, "scan": scan, "compact": compact})
