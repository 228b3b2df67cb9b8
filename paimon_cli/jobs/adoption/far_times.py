"""Refuses foreign files with timestamps that cannot be read back: beyond 64-bit nanoseconds in INT96 of Parquet and in ORC, and
values of ORC before 1970 in a form that Java's Paimon does not read.

Years such as 1 and 9999, which stand for no time at all, are usual there. Footers do not say it, so these columns are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import BinaryIO

import pyarrow.parquet as pq

from paimon_cli.bucket.decoding import decoding
from paimon_cli.bucket.nanosecond_range import checked_int96, int96_columns
from paimon_cli.bucket.orc_file import OrcFile
from paimon_cli.bucket.orc_times import misread_times, timestamp_columns
from paimon_cli.datatypes.data_type import DataField
from paimon_cli.errors import NotSupported
from paimon_cli.jobs.adoption.source import AdoptedFile
from paimon_cli.pieces import PIECES
from paimon_cli.storage.capabilities import open_sized
from paimon_cli.storage.storage import Storage

_HINT = "write the rows into a table whose column is TIMESTAMP(6)"


def refuse_far_int96(storage: Storage, path: str, file: AdoptedFile, stream: BinaryIO, schema: pq.ParquetSchema) -> None:
    """Raise `NotSupported` for a Parquet file with a value of INT96 before 1677 or after 2262."""
    columns = int96_columns(schema, [schema.column(number).path.split(".")[0] for number in range(len(schema.names))])
    if not columns:
        return
    columns = list(dict.fromkeys(columns))
    reader = pq.ParquetFile(stream)
    groups = range(reader.metadata.num_row_groups)
    batches = reader.iter_batches(PIECES.batch_rows, groups, columns=columns, use_threads=False)
    with open_sized(storage, path, file.size) as again:
        try:
            for _ in checked_int96(batches, again, columns, PIECES.batch_rows, groups):
                pass
        except NotSupported as far:
            raise NotSupported(f"{path}: {far.what}", far.why, _HINT, path=path) from far


def refuse_unreadable_orc_times(path: str, orc: OrcFile, fields: Sequence[DataField]) -> None:
    """Raise `NotSupported` for an ORC file with such a timestamp, or with one that Java's Paimon does not read."""
    columns = timestamp_columns(fields)
    if not columns:
        return
    try:
        with decoding(path, fields):
            misread = next(misread_times(orc, columns), None)
    except NotSupported as far:
        far.set_hint(_HINT)
        raise
    if misread is not None:
        what = f"column {misread} of {path} holds a timestamp before 1970 with digits below the millisecond"
        why = "it is stored with negative nanoseconds, as Arrow's ORC writer does, and Java's Paimon cannot read such a file"
        hint = "write the rows into a table of Paimon, or write the file again as Parquet"
        raise NotSupported(what, why, hint, column=misread, path=path)
