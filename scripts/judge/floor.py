"""The least that a full compaction can cost in Python: what `java_tables` measures, by bare pyarrow, numpy and fastavro.

    python -m scripts.judge.floor TABLE...

For each table: the newest snapshot, its schema and manifests are read, all data files of a bucket are read, sorted by key and
sequence number, the newest row of each key is kept and written in the same format and codec, and a manifest, two manifest lists
and a snapshot are written. Nothing is checked, locked, synced or published, no option and no merge engine is honoured, ORC is
decoded in this process, and there are neither statistics nor threads. Avro's rows are decoded and encoded by the package, because
fastavro takes fifteen times as long. What is written is no table: it goes into a folder `floor`.
"""

from __future__ import annotations

import json
import os
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from paimon_cli.jobs.process import keep_pandas_out

os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
keep_pandas_out()

import fastavro  # noqa: E402  # Arrow would import pandas
import numpy as np  # noqa: E402
import pyarrow as pa  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402
from pyarrow import orc  # noqa: E402

from paimon_cli.metadata.data_file_schema import FileLayout  # noqa: E402
from paimon_cli.metadata.table_schema import TableSchema  # noqa: E402

KEY, SEQUENCE = "_KEY_id", "_SEQUENCE_NUMBER"


def compact(table: Path) -> int:
    """Write the newest row of each key of the table. Returns the number of these rows."""
    snapshot = json.loads(max((table / "snapshot").glob("snapshot-*"), key=lambda p: int(p.name.rpartition("-")[2])).read_bytes())
    schema = (table / "schema" / f"schema-{snapshot['schemaId']}").read_bytes()
    json.loads(schema)
    folder, rows = table / "floor", 0
    folder.mkdir()
    lists = [_records(table / "manifest" / snapshot[name]) for name in ("baseManifestList", "deltaManifestList")]
    manifests = [_records(table / "manifest" / entry["_FILE_NAME"]) for entries, _ in lists for entry in entries]
    live: dict[Any, dict[str, Any]] = defaultdict(dict)
    for entries, _ in manifests:
        for entry in entries:
            live[entry["_BUCKET"]][entry["_FILE"]["_FILE_NAME"]] = entry
    changes = []
    for bucket, files in live.items():
        kept = _newest([_rows(table / f"bucket-{bucket}" / name, schema) for name in files])
        _write(kept, folder / f"data-{bucket}.{next(iter(files)).rpartition('.')[2]}", schema)
        rows += kept.num_rows
        changes += [{**entry, "_KIND": 1} for entry in files.values()] + [next(iter(files.values()))]
    _write_records(folder / "manifest", manifests[0][1], changes)
    for number, (entries, schema) in enumerate(lists):
        _write_records(folder / f"manifest-list-{number}", schema, entries)
    (folder / "snapshot").write_text(json.dumps(snapshot))
    return rows


def _rows(path: Path, schema: bytes) -> pa.Table:
    if path.suffix == ".parquet":
        with pq.ParquetFile(path) as file:
            return file.read(use_threads=False)
    if path.suffix == ".orc":
        return orc.ORCFile(path).read()
    from paimon_cli.bucket.avro_rows import avro_batches

    layout = FileLayout.of(TableSchema.from_json(schema))
    with path.open("rb") as source:
        return pa.Table.from_batches(avro_batches(source, layout.physical.names, layout.schema, 65_536))


def _newest(tables: list[pa.Table]) -> pa.Table:
    rows = pa.concat_tables(tables).combine_chunks()
    keys, numbers = (rows.column(name).to_numpy() for name in (KEY if KEY in rows.schema.names else "id", SEQUENCE))
    order = np.lexsort((numbers, keys))
    is_last = np.append(keys[order][1:] != keys[order][:-1], True)
    return rows.take(pa.array(order[is_last]))


def _write(rows: pa.Table, path: Path, schema: bytes) -> None:
    if path.suffix == ".parquet":
        pq.write_table(rows, path, compression="zstd")
    elif path.suffix == ".orc":
        orc.write_table(rows, path, compression="zstd")
    else:
        from paimon_cli.bucket.avro_rows import AvroRows

        with path.open("wb") as sink:
            encoder = AvroRows(sink, FileLayout.of(TableSchema.from_json(schema)).fields, "zstandard", 1)
            encoder.write(rows)
            encoder.close()


def _records(path: Path) -> tuple[list[Any], Any]:
    with path.open("rb") as source:
        reader = fastavro.reader(source)
        return list(reader), reader.writer_schema


def _write_records(path: Path, schema: Any, records: list[Any]) -> None:
    with path.open("wb") as sink:
        fastavro.writer(sink, schema, records, codec="zstandard")


if __name__ == "__main__":
    print(sum(compact(Path(table)) for table in sys.argv[1:]))
