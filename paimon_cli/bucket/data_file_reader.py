"""A data file -> Arrow batches in the read schema, checked against its metadata (FORMAT.md, sections 2.3 and 7)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from paimon_cli.bucket.avro_rows import avro_batches
from paimon_cli.bucket.decode_errors import DECODE_ERRORS, first_line
from paimon_cli.bucket.decoded_columns import check_decoded
from paimon_cli.bucket.nanosecond_range import checked_int96, int96_columns
from paimon_cli.bucket.orc_file import OrcFile
from paimon_cli.bucket.orc_padding import holds_chars, unpadded
from paimon_cli.bucket.schema_evolution import as_declared, column_sources
from paimon_cli.datatypes.arrow_types import arrow_type
from paimon_cli.datatypes.row_kind import INSERT
from paimon_cli.errors import DamagedFile, NotSupported
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import DataFileMeta
from paimon_cli.metadata.data_file_schema import KEY_PREFIX, SEQUENCE_NUMBER, VALUE_KIND, data_file_fields

READ_BUFFER_BYTES = 256 << 10
"""Without a read buffer each open parquet file keeps whole compressed column chunks in memory."""

SYSTEM_COLUMNS = {SEQUENCE_NUMBER: pa.int64(), VALUE_KIND: pa.int8()}
FAR_TIME = "out of range for nanosecond resolution"
"""What Arrow says of ORC timestamps that it cannot hold."""
COMPRESSION_SUFFIXES = frozenset({"gz", "zst", "snappy", "lz4", "bz2"})


def file_format(file_name: str) -> str:
    """The format by which a file must be read, whatever the table's option says: the end of its name."""
    parts = file_name.split(".")
    return parts[-2] if parts[-1] in COMPRESSION_SUFFIXES and len(parts) > 2 else parts[-1]


def read_data_file(
    context: TableContext, partition: bytes, bucket: int, file: DataFileMeta, columns: Sequence[str], batch_rows: int
) -> Iterator[pa.RecordBatch]:
    """Batches of at most `batch_rows` rows with `columns` (table columns, `_SEQUENCE_NUMBER`, `_VALUE_KIND`), file order.

    Files of append tables have no row kinds: every row was inserted. A `_KEY_*` column may be read too, together with its
    table column, with which it agrees by nature in files that have none.
    Raises `DamagedFile` when the file is missing, unreadable or holds another number of rows than its metadata says.
    """
    path = context.data_file_path(partition, bucket, file)
    rows = 0
    try:
        for batch in _batches(context, path, file, columns, batch_rows):
            rows += batch.num_rows
            check_decoded(batch)
            yield batch
    except FileNotFoundError as error:
        raise _missing(path) from error
    except DECODE_ERRORS as error:
        if FAR_TIME in str(error):
            raise NotSupported(f"data file {path} holds a timestamp before 1677 or after 2262", str(error), path=path) from error
        raise DamagedFile(f"cannot read data file {path}", first_line(error), path=path) from error
    if rows != file.row_count:
        raise DamagedFile(f"data file {path} is damaged", f"it holds {rows} rows, its manifest says {file.row_count}", path=path)


def _missing(path: str) -> DamagedFile:
    hint = "if its snapshot expired during the read, run the command again"
    return DamagedFile(
        f"data file {path} is missing", "a snapshot refers to it, but the storage has no such file", hint, path=path
    )


def _batches(
    context: TableContext, path: str, file: DataFileMeta, columns: Sequence[str], batch_rows: int
) -> Iterator[pa.RecordBatch]:
    file_schema = context.schema if file.schema_id == context.schema.id else context.schemas.get(file.schema_id)
    system = [name for name in columns if name in SYSTEM_COLUMNS and context.schema.primary_keys]
    keys = [name for name in columns if name.startswith(KEY_PREFIX)]
    read_fields = context.schema.fields_of([name for name in columns if name not in SYSTEM_COLUMNS and name not in keys])
    sources = column_sources(read_fields, file_schema.fields)
    physical = [*system, *keys, *(s.file_field.name for s in sources if s.file_field is not None)]
    for stored in _stored_batches(context, path, file, physical, batch_rows):
        arrays = {name: as_declared(stored.column(name), SYSTEM_COLUMNS[name]) for name in system}
        if not context.schema.primary_keys:
            arrays[VALUE_KIND] = pa.array(np.full(stored.num_rows, INSERT, np.int8))
        for name in keys:
            own, field = name.removeprefix(KEY_PREFIX), file_schema.field(name.removeprefix(KEY_PREFIX))
            arrays[name] = as_declared(stored.column(name if name in stored.schema.names else own), arrow_type(field.type))
        for source in sources:
            raw = None if source.file_field is None else stored.column(source.file_field.name)
            arrays[source.field.name] = source.column(raw, stored.num_rows)
        yield pa.RecordBatch.from_arrays([arrays[name] for name in columns], names=list(columns))


def _stored_batches(
    context: TableContext, path: str, file: DataFileMeta, physical: list[str], batch_rows: int
) -> Iterator[pa.RecordBatch]:
    """The file's own columns in its own types; a reader always asks for one column at least, else rows are lost."""
    form = file_format(file.file_name)
    with context.storage.open_input(path) as source:
        if form == "parquet":
            reader = pq.ParquetFile(source, buffer_size=READ_BUFFER_BYTES, pre_buffer=False, page_checksum_verification=True)
            batches = reader.iter_batches(batch_rows, columns=physical, use_threads=False)
            wide = int96_columns(reader.schema, physical)
            if wide:
                with context.storage.open_input(path) as again:
                    yield from checked_int96(batches, again, wide, batch_rows)
            else:
                yield from batches
        elif form == "orc":
            for number in range((stripes := OrcFile(source)).nstripes):
                found = [name for name in physical if not name.startswith(KEY_PREFIX) or name in stripes.schema.names]
                stripe = stripes.read_stripe(number, columns=found)
                rows = pa.Table.from_batches([stripe]).select(found)
                yield from _without_padding(context, file, rows).to_batches(max_chunksize=batch_rows)
        elif form == "avro":
            yield from avro_batches(source, physical, context.schemas.get(file.schema_id), batch_rows)
        else:
            raise NotSupported(f"data file {path}", f"its format {form} is not parquet, orc or avro")


def _without_padding(context: TableContext, file: DataFileMeta, rows: pa.Table) -> pa.Table:
    """ORC stores CHAR(n) padded with blanks; like Java's reader take them off, inside of nested values too."""
    for field in data_file_fields(context.schemas.get(file.schema_id)):
        position = rows.schema.get_field_index(field.name)
        if position >= 0 and holds_chars(field.type):
            chunks = [unpadded(chunk, field.type) for chunk in rows.column(position).chunks]
            rows = rows.set_column(position, field.name, pa.chunked_array(chunks, rows.schema.field(position).type))
    return rows
