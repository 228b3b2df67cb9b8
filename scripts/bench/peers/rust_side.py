"""paimon-rust's side (package pypaimon-rust). The table is in WAREHOUSE/bench.db/t."""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from columns import COLUMNS
from pypaimon_rust.datafusion import PaimonCatalog, SQLContext
from side import serve

BATCH_ROWS = 65536


def opened(table):
    return PaimonCatalog({"warehouse": str(Path(table).parent.parent)}).get_table("bench.t")


def create(table, buckets):
    warehouse = Path(table).parent.parent
    warehouse.mkdir(parents=True)
    context = SQLContext()
    context.register_catalog("peer", {"warehouse": str(warehouse)})
    context.sql("CREATE SCHEMA peer.bench")
    columns = ", ".join(f"{name} {text}" for name, text in COLUMNS.items())
    options = f"'bucket' = '{buckets}', 'write-only' = 'true'"
    context.sql(f"CREATE TABLE peer.bench.t ({columns}, PRIMARY KEY (id)) WITH ({options})")


def write(table, sources):
    for source in sources:
        rows = pq.read_table(source)
        rows = rows.cast(pa.schema([field.with_nullable(field.name != "id") for field in rows.schema]))
        builder = opened(table).new_batch_write_builder()
        writer = builder.new_write()
        for batch in rows.to_batches(max_chunksize=BATCH_ROWS):
            writer.write_arrow(batch)
        builder.new_commit().commit(writer.prepare_commit())


def scan(table):
    builder = opened(table).new_read_builder()
    rows = pa.Table.from_batches(builder.new_read().read(builder.new_scan().plan().splits()))
    return {"rows": rows.num_rows, "sum": pc.sum(rows["qty"]).as_py()}


serve({"create": create, "write": write, "scan": scan})
