"""Which tables can be written: formats, codecs and column types of the data files to come, checked before any work."""

from __future__ import annotations

from paimon_cli.bucket.file_encoders import CODECS, NATIVE_TIMESTAMP_PRECISION, codec_of, timestamp_precisions, wants_differences
from paimon_cli.bucket.file_indexes import indexed_columns
from paimon_cli.datatypes.avro_types import avro_record_field
from paimon_cli.datatypes.data_type import NEWER_ROOTS, DataType
from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.datatypes.partition_path import check_partition_types
from paimon_cli.errors import NotSupported
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.options.table_options import TableOptions


def check_writable(schema: TableSchema, options: TableOptions) -> None:
    """NotSupported for what data files written here cannot hold; UsageError for a codec that a format does not have."""
    for field in schema.fields:
        _refuse_newer(field.name, field.type)
    check_partition_types(schema.types_of(schema.partition_keys))
    indexed_columns(schema, options)
    per_level = {options.format_at(level) for level in options.file_format_per_level}
    for file_format in sorted({options.file_format.lower(), *per_level}):
        if file_format not in CODECS:
            raise NotSupported(f"file.format={file_format}", f"data files are written as {', '.join(CODECS)}")
    levels = {0, *options.file_format_per_level, *options.file_compression_per_level}
    for level in levels | {max(levels) + 1}:
        codec_of(options.format_at(level), options.compression_at(level))
    formats = {options.format_at(level) for level in levels | {max(levels) + 1}}
    if "avro" in formats:
        for field in schema.fields:
            avro_record_field(field.name, field.type, "record")
    if "parquet" in formats:
        wants_differences(options)
        _refuse_mixed_timestamps(schema)


def _refuse_newer(column: str, t: DataType) -> None:
    if t.root in NEWER_ROOTS:
        raise NotSupported(f"cannot write column '{column}'", f"only the newest versions of Paimon can read {t.root}")
    for part in (t.element, t.key, t.value, *(field.type for field in t.fields or ())):
        if part is not None:
            _refuse_newer(column, part)


def _refuse_mixed_timestamps(schema: TableSchema) -> None:
    wide = [f for f in schema.fields if any(p > NATIVE_TIMESTAMP_PRECISION for p in timestamp_precisions(f.type))]
    narrow = [f for f in schema.fields if any(p <= NATIVE_TIMESTAMP_PRECISION for p in timestamp_precisions(f.type))]
    if wide and narrow:
        raise NotSupported(
            f"cannot write column '{wide[0].name}' of type {type_to_sql(wide[0].type)} beside '{narrow[0].name}'",
            "Parquet keeps TIMESTAMP(7..9) as INT96, and Arrow's writer then uses INT96 for every timestamp of the file",
            "declare all timestamps with the same kind of precision, or set file.format=orc",
        )
