"""How many rows a data file holds by its own account: its footer or its blocks, no value is decoded."""

from __future__ import annotations

import fastavro
import pyarrow.parquet as pq

from paimon_cli.bucket.data_file_reader import file_format
from paimon_cli.bucket.decode_errors import DECODE_ERRORS, first_line
from paimon_cli.bucket.orc_file import OrcFile
from paimon_cli.errors import DamagedFile, NotSupported
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import DataFileMeta


def stored_row_count(context: TableContext, partition: bytes, bucket: int, file: DataFileMeta) -> int:
    """Rows of the file. `DamagedFile` if it is missing or cannot be opened."""
    path, form = context.data_file_path(partition, bucket, file), file_format(file.file_name)
    try:
        with context.storage.open_input(path) as source:
            if form == "parquet":
                return int(pq.read_metadata(source).num_rows)
            if form == "orc":
                return OrcFile(source).nrows
            if form == "avro":
                return sum(block.num_records for block in fastavro.block_reader(source))
    except FileNotFoundError as error:
        why = "a snapshot refers to it, but the storage has no such file"
        raise DamagedFile(f"cannot open data file {path}", why, path=path) from error
    except DECODE_ERRORS as error:
        raise DamagedFile(f"cannot open data file {path}", first_line(error), path=path) from error
    raise NotSupported(f"data file {path}", f"its format {form} is not parquet, orc or avro")
