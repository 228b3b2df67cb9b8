"""paimon-cli's side: its local engine, two threads."""

from pathlib import Path

import pyarrow.compute as pc
from columns import COLUMNS
from side import serve

from paimon_cli.datatypes.data_type import DataField
from paimon_cli.datatypes.field_types import parse_sql_type
from paimon_cli.history.table_context import TableContext
from paimon_cli.ingest.row_sources import FileRows
from paimon_cli.jobs.compact_job import run_compact
from paimon_cli.jobs.compact_request import CompactRequest
from paimon_cli.jobs.engine import NoProgress
from paimon_cli.jobs.engine_choice import LocalEngine
from paimon_cli.jobs.write_job import run_write
from paimon_cli.jobs.write_request import WriteRequest
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.read.scan_plan import plan_scan
from paimon_cli.read.split_reader import scan_to_arrow

THREADS = 2


def create(table, buckets):
    fields = tuple(DataField(i, name, parse_sql_type(text)) for i, (name, text) in enumerate(COLUMNS.items()))
    options = {"bucket": str(buckets), "file.format": "parquet", "write-only": "true"}
    schema = Path(table) / "schema" / "schema-0"
    schema.parent.mkdir(parents=True)
    schema.write_text(TableSchema(0, fields, len(fields) - 1, (), ("id",), options, None, 0).to_json())


def write(table, sources):
    for source in sources:
        run_write(TableContext.open(table), WriteRequest(FileRows((source,))), LocalEngine(THREADS), NoProgress())


def scan(table):
    context = TableContext.open(table)
    plan = plan_scan(context, context.snapshots.latest())
    rows = scan_to_arrow(context, plan.splits, tuple(COLUMNS), threads=THREADS)
    return {"rows": rows.num_rows, "sum": pc.sum(rows["qty"]).as_py()}


def compact(table):
    run_compact(TableContext.open(table), CompactRequest(), LocalEngine(THREADS), NoProgress())


serve({"create": create, "write": write, "scan": scan, "compact": compact})
