"""The columns of an existing parquet, orc, csv or json file: what `create --from-file` starts from."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from paimon_cli.datatypes.arrow_types import type_from_arrow
from paimon_cli.datatypes.field_types import DataField
from paimon_cli.errors import BadInput, NotFound, UsageError

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT_OF_EXTENSION = {".parquet": "parquet", ".orc": "orc", ".csv": "csv", ".json": "json", ".ndjson": "json", ".jsonl": "json"}
INFERENCE_BYTES = 8 << 20
"""How much of a csv or json file is looked at: the types of its first block."""


def columns_of_file(path: str) -> tuple[DataField, ...]:
    """Columns with the file's own names and types; csv and json types are inferred from the first rows."""
    if not os.path.isfile(path):
        raise NotFound(f"no file {path}", hint="--from-file takes one local parquet, orc, csv or json file")
    extension = os.path.splitext(path)[1].lower()
    if extension not in FORMAT_OF_EXTENSION:
        raise UsageError(f"cannot tell the format of {path}", f"known endings: {', '.join(FORMAT_OF_EXTENSION)}")
    schema = _arrow_schema(path, FORMAT_OF_EXTENSION[extension])
    return tuple(_field(column) for column in schema)


def _field(column: pa.Field) -> DataField:
    import pyarrow as pa

    if pa.types.is_null(column.type):
        raise UsageError(f"column '{column.name}' holds only nulls", "its type cannot be inferred", "declare the columns with -C")
    return DataField(0, column.name, type_from_arrow(column.type, column.nullable))


def _arrow_schema(path: str, file_format: str) -> pa.Schema:
    import pyarrow as pa

    try:
        return _READERS[file_format](path)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        raise BadInput(f"cannot read {path} as {file_format}", str(error).split("\n")[0]) from error


def _parquet_schema(path: str) -> pa.Schema:
    from pyarrow import parquet

    return parquet.read_schema(path).remove_metadata()


def _orc_schema(path: str) -> pa.Schema:
    from paimon_cli.bucket.orc_file import OrcFile

    with open(path, "rb") as source:
        return OrcFile(source).schema


def _csv_schema(path: str) -> pa.Schema:
    from pyarrow import csv

    with csv.open_csv(path, read_options=csv.ReadOptions(block_size=INFERENCE_BYTES)) as reader:
        return reader.schema


def _json_schema(path: str) -> pa.Schema:
    from pyarrow import json

    with json.open_json(path, read_options=json.ReadOptions(block_size=INFERENCE_BYTES)) as reader:
        return reader.schema


_READERS = {"parquet": _parquet_schema, "orc": _orc_schema, "csv": _csv_schema, "json": _json_schema}
