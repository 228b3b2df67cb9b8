"""pypaimon's side. The table is in WAREHOUSE/bench.db/t."""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pypaimon import CatalogFactory, Schema
from side import serve


def catalog(table):
    return CatalogFactory.create({"warehouse": str(Path(table).parent.parent)})


def create(table, buckets, sample):
    fields = [field.with_nullable(field.name != "id") for field in pq.read_schema(sample)]
    options = {"bucket": str(buckets), "write-only": "true"}
    warehouse = catalog(table)
    warehouse.create_database("bench", True)
    schema = Schema.from_pyarrow_schema(pa.schema(fields), primary_keys=["id"], options=options)
    warehouse.create_table("bench.t", schema, False)


def write(table, sources):
    for source in sources:
        rows = pq.read_table(source)
        rows = rows.cast(pa.schema([field.with_nullable(field.name != "id") for field in rows.schema]))
        builder = catalog(table).get_table("bench.t").new_batch_write_builder()
        writer, commit = builder.new_write(), builder.new_commit()
        writer.write_arrow(rows)
        commit.commit(writer.prepare_commit())
        writer.close()
        commit.close()


def scan(table):
    builder = catalog(table).get_table("bench.t").new_read_builder()
    rows = builder.new_read().to_arrow(builder.new_scan().plan().splits())
    return {"rows": rows.num_rows, "sum": pc.sum(rows["qty"]).as_py()}


serve({"create": create, "write": write, "scan": scan})
