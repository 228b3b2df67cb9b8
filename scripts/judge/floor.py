"""The least that a full compaction can cost in Python: what `java_tables` measures, by bare pyarrow, numpy, fastavro and Typer.

    python -m scripts.judge.floor TABLE...

For each table: the newest snapshot, its schema and manifests are read, all data files of a bucket are read, sorted by key and
sequence number, the newest row of each key is kept and written in the same format and codec. Then the commit protocol in its
barest form: a manifest with the statistics of the new files, two manifest lists, the snapshot (only if it does not exist), and
the hint. So the table can be read afterwards, which `java_tables` does. Nothing is checked, locked, synced or tried again, no
option and no merge engine is honoured, ORC is decoded in this process, and there are no threads. The statistics are only for
types of columns that `java_tables` has. Avro's rows are decoded and encoded by the package, because fastavro takes fifteen times
as long.
"""

from __future__ import annotations

import json
import os
import struct
import time
import uuid
from collections import defaultdict
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from paimon_cli.jobs.process import keep_pandas_out

os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
keep_pandas_out()

import fastavro  # noqa: E402  # Arrow would import pandas
import numpy as np  # noqa: E402
import pyarrow as pa  # noqa: E402
import pyarrow.compute as pc  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402
import typer  # noqa: E402
from pyarrow import orc  # noqa: E402

KEY, SEQUENCE, KIND = "_KEY_id", "_SEQUENCE_NUMBER", "_VALUE_KIND"
TOP_LEVEL, OF_COMPACTION, ADD, DELETE = 5, 1, 0, 1
INLINE_BYTES = 7
"""The longest text that stands in its field of a binary row."""


def compact(table: Path) -> int:
    """Write and commit the newest row of each key of the table. Returns the number of these rows."""
    snapshot = json.loads(max((table / "snapshot").glob("snapshot-*"), key=lambda p: int(p.name.rpartition("-")[2])).read_bytes())
    schema = (table / "schema" / f"schema-{snapshot['schemaId']}").read_bytes()
    json.loads(schema)
    lists = [_records(table / "manifest" / snapshot[name]) for name in ("baseManifestList", "deltaManifestList")]
    manifests = [_records(table / "manifest" / entry["_FILE_NAME"]) for entries, _ in lists for entry in entries]
    live: dict[Any, dict[str, Any]] = defaultdict(dict)
    for entries, _ in manifests:
        for entry in entries:
            live[entry["_BUCKET"]][entry["_FILE"]["_FILE_NAME"]] = entry
    changes = []
    for bucket, files in live.items():
        folder, first = table / f"bucket-{bucket}", next(iter(files.values()))
        kept = _newest([_rows(folder / name, schema) for name in files])
        path = folder / f"data-{uuid.uuid4()}-0.{first['_FILE']['_FILE_NAME'].rpartition('.')[2]}"
        _write(kept, path, schema)
        changes += [{**entry, "_KIND": DELETE} for entry in files.values()] + [
            {**first, "_FILE": _entry(first["_FILE"], kept, path)}
        ]
    _commit(table, snapshot, lists, manifests[0][1], changes)
    return int(sum(change["_FILE"]["_ROW_COUNT"] for change in changes if change["_KIND"] == ADD))


def _rows(path: Path, schema: bytes) -> pa.Table:
    if path.suffix == ".parquet":
        with pq.ParquetFile(path) as file:
            return file.read(use_threads=False)
    if path.suffix == ".orc":
        return orc.ORCFile(path).read()
    from paimon_cli.bucket.avro_rows import avro_batches
    from paimon_cli.metadata.data_file_schema import FileLayout
    from paimon_cli.metadata.table_schema import TableSchema

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
        from paimon_cli.metadata.data_file_schema import FileLayout
        from paimon_cli.metadata.table_schema import TableSchema

        with path.open("wb") as sink:
            encoder = AvroRows(sink, FileLayout.of(TableSchema.from_json(schema)).fields, "zstandard", 1)
            encoder.write(rows)
            encoder.close()


def _entry(replaced: dict[str, Any], rows: pa.Table, path: Path) -> dict[str, Any]:
    """The metadata of the new file, like those of a replaced one."""
    values = [name for name in rows.schema.names if name not in (KEY, SEQUENCE, KIND)]
    least, greatest = zip(*(_bounds(rows.column(name)) for name in values), strict=True)
    types, key = [rows.schema.field(name).type for name in values], rows.schema.field("id").type
    numbers = rows.column(SEQUENCE).to_numpy()
    ends = [_binary_row([key], [end]) for end in (least[0], greatest[0])]
    return {
        **replaced,
        **{"_FILE_NAME": path.name, "_FILE_SIZE": path.stat().st_size, "_ROW_COUNT": rows.num_rows, "_LEVEL": TOP_LEVEL},
        **{"_MIN_KEY": ends[0], "_MAX_KEY": ends[1], "_EXTRA_FILES": [], "_FILE_SOURCE": OF_COMPACTION},
        "_KEY_STATS": {"_MIN_VALUES": ends[0], "_MAX_VALUES": ends[1], "_NULL_COUNTS": [0]},
        "_VALUE_STATS": {
            **{"_MIN_VALUES": _binary_row(types, least), "_MAX_VALUES": _binary_row(types, greatest)},
            "_NULL_COUNTS": [rows.column(name).null_count for name in values],
        },
        "_VALUE_STATS_COLS": None,
        **{"_MIN_SEQUENCE_NUMBER": int(numbers.min()), "_MAX_SEQUENCE_NUMBER": int(numbers.max())},
        "_CREATION_TIME": datetime.now(timezone.utc),
    }


def _bounds(column: pa.ChunkedArray) -> tuple[Any, Any]:
    found = pc.min_max(column)
    if pa.types.is_timestamp(column.type):
        found = found.cast(pa.struct([("min", pa.int64()), ("max", pa.int64())]))
    return found["min"].as_py(), found["max"].as_py()


def _binary_row(types: list[pa.DataType], values: Any) -> bytes:
    """Paimon's binary row, after the number of its fields: eight bytes each, and after them what does not fit."""
    fields, rest, after = bytearray(), bytearray(), 8 + 8 * len(types)
    for of_type, value in zip(types, values, strict=True):
        if pa.types.is_string(of_type):
            text = value.encode()
            if len(text) <= INLINE_BYTES:
                fields += text.ljust(INLINE_BYTES, b"\0") + bytes([0x80 | len(text)])
                continue
            fields += struct.pack("<II", len(text), after + len(rest))
            rest += text.ljust(-len(text) // 8 * -8, b"\0")
        elif pa.types.is_timestamp(of_type):
            millis, micros = divmod(value, 1000)
            fields += struct.pack("<II", micros * 1000, after + len(rest))
            rest += struct.pack("<q", millis)
        else:
            fields += struct.pack("<q", int(value.scaleb(of_type.scale)) if pa.types.is_decimal(of_type) else value)
    return struct.pack(">I", len(types)) + bytes(8) + fields + rest


def _commit(table: Path, snapshot: dict[str, Any], lists: list[tuple[list[Any], Any]], schema: Any, changes: list[Any]) -> None:
    folder, stamp = table / "manifest", uuid.uuid4()
    manifest = folder / f"manifest-{uuid.uuid4()}-0"
    _write_records(manifest, schema, changes)
    (base, _), (delta, list_schema) = lists
    added = {
        **{**delta[0], "_FILE_NAME": manifest.name, "_FILE_SIZE": manifest.stat().st_size},
        **{
            f"_NUM_{name}_FILES": sum(change["_KIND"] == kind for change in changes)
            for name, kind in (("ADDED", ADD), ("DELETED", DELETE))
        },
        "_MAX_LEVEL": TOP_LEVEL,
    }
    names = [f"manifest-list-{stamp}-{number}" for number in (0, 1)]
    for name, entries in zip(names, (base + delta, [added]), strict=True):
        _write_records(folder / name, list_schema, entries)
    gained = sum(change["_FILE"]["_ROW_COUNT"] * (1 if change["_KIND"] == ADD else -1) for change in changes)
    number = snapshot["id"] + 1
    content = {
        **{name: value for name, value in snapshot.items() if not name.startswith("changelog")},
        **{"id": number, "baseManifestList": names[0], "baseManifestListSize": (folder / names[0]).stat().st_size},
        **{"deltaManifestList": names[1], "deltaManifestListSize": (folder / names[1]).stat().st_size},
        **{"commitUser": str(stamp), "commitIdentifier": 1, "commitKind": "COMPACT", "timeMillis": int(time.time() * 1000)},
        **{"totalRecordCount": snapshot["totalRecordCount"] + gained, "deltaRecordCount": gained},
    }
    with (table / "snapshot" / f"snapshot-{number}").open("x") as file:
        json.dump(content, file)
    (table / "snapshot" / "LATEST").write_text(str(number))


def _records(path: Path) -> tuple[list[Any], Any]:
    with path.open("rb") as source:
        reader = fastavro.reader(source)
        return list(reader), reader.writer_schema


def _write_records(path: Path, schema: Any, records: list[Any]) -> None:
    with path.open("wb") as sink:
        fastavro.writer(sink, schema, records, codec="zstandard")


def main(tables: list[Path]) -> None:
    """Compact each table, and print how many rows are left."""
    print(sum(map(compact, tables)))


if __name__ == "__main__":
    typer.run(main)
