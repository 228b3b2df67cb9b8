"""Writes ORC files row by row with pyorc, for timestamps before 1970 with digits below the millisecond.

ORC stores whole seconds and nanoseconds. Arrow's writer truncates the seconds towards 1970, so that nanoseconds are negative,
which Java's reader understands only for whole milliseconds. Java's own writer rounds the seconds down, and so does this one.
pyorc needs a Python object for each cell, which is slow, so Arrow writes all files without such values.
"""

from __future__ import annotations

from typing import BinaryIO
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyorc

from paimon_cli.bucket.nanosecond_range import ticks, timestamp_leaves
from paimon_cli.bucket.orc_converters import LOST, MILLI, Days, Nanoseconds
from paimon_cli.errors import NotSupported
from paimon_cli.pieces import PIECES

_ZONE = ZoneInfo("GMT")
"""The time zone that Arrow's writer records in stripes."""
_CODECS = {
    "zstd": pyorc.CompressionKind.ZSTD,
    "snappy": pyorc.CompressionKind.SNAPPY,
    "lz4": pyorc.CompressionKind.LZ4,
    "zlib": pyorc.CompressionKind.ZLIB,
    "uncompressed": pyorc.CompressionKind.NONE,
}
_PLAIN: dict[pa.DataType, type[pyorc.TypeDescription]] = {
    pa.bool_(): pyorc.Boolean,
    pa.int8(): pyorc.TinyInt,
    pa.int16(): pyorc.SmallInt,
    pa.int32(): pyorc.Int,
    pa.int64(): pyorc.BigInt,
    pa.float32(): pyorc.Float,
    pa.float64(): pyorc.Double,
    pa.string(): pyorc.String,
    pa.binary(): pyorc.Binary,
    pa.date32(): pyorc.Date,
}


class OrcRows:
    """The interface of pyarrow's `ORCWriter`, with the same files except for timestamps.

    The sink stays open. It must never raise: pyorc flushes in a destructor, where an error ends the process. Tables have the
    columns of `schema`, as `orc_file.orc_column` returns them.
    """

    def __init__(self, sink: BinaryIO, schema: pa.Schema, codec: str, stripe_bytes: int, dictionary_threshold: float) -> None:
        self._in_nanos, self._as_integers = _schema_in(schema, False), _schema_in(schema, True)
        self._writer = pyorc.Writer(
            sink,
            _Row({field.name: _orc_type(field.type) for field in schema}),
            batch_size=PIECES.orc_batch_rows,
            stripe_size=stripe_bytes,
            compression=_CODECS[codec],
            timezone=_ZONE,
            struct_repr=pyorc.StructRepr.DICT,
            converters={pyorc.TypeKind.TIMESTAMP: Nanoseconds, pyorc.TypeKind.DATE: Days},
            dict_key_size_threshold=dictionary_threshold,
        )

    def write(self, rows: pa.Table) -> None:
        """Write the rows.

        Raises `NotSupported` for a timestamp in the last second before 1970 with digits below the millisecond.
        """
        times = rows.cast(self._in_nanos)
        _refuse_lost_times(times)
        for batch in times.cast(self._as_integers).to_batches(max_chunksize=PIECES.orc_batch_rows):
            self._writer.writerows(_records(batch))

    def close(self) -> None:
        self._writer.close()


class _Row(pyorc.TypeDescription):
    """A struct type. pyorc's own `Struct` takes the fields as keyword arguments, so none of them can be called `self`."""

    kind = pyorc.TypeKind.STRUCT

    def __init__(self, fields: dict[str, pyorc.TypeDescription]) -> None:
        super().__init__()
        self.fields = fields


def _orc_type(t: pa.DataType) -> pyorc.TypeDescription:
    if pa.types.is_timestamp(t):
        return pyorc.Timestamp() if t.tz is None else pyorc.TimestampInstant()
    if pa.types.is_decimal(t):
        return pyorc.Decimal(t.precision, t.scale)
    if pa.types.is_list(t):
        return pyorc.Array(_orc_type(t.value_type))
    if pa.types.is_map(t):
        return pyorc.Map(_orc_type(t.key_type), _orc_type(t.item_type))
    if pa.types.is_struct(t):
        return _Row({field.name: _orc_type(field.type) for field in t})
    return _PLAIN[t]()


def _schema_in(schema: pa.Schema, to_integers: bool) -> pa.Schema:
    return pa.schema([pa.field(field.name, _converted(field.type, to_integers)) for field in schema])


def _converted(t: pa.DataType, to_integers: bool) -> pa.DataType:
    """The type with all timestamps in nanoseconds, or with timestamps and dates as integers."""
    if pa.types.is_timestamp(t):
        return pa.int64() if to_integers else pa.timestamp("ns", t.tz)
    if pa.types.is_date(t):
        return pa.int32() if to_integers else t
    if pa.types.is_list(t):
        return pa.list_(_converted(t.value_type, to_integers))
    if pa.types.is_map(t):
        return pa.map_(_converted(t.key_type, to_integers), _converted(t.item_type, to_integers))
    if pa.types.is_struct(t):
        return pa.struct([pa.field(field.name, _converted(field.type, to_integers)) for field in t])
    return t


def _records(batch: pa.RecordBatch) -> list[dict[str, object]]:
    try:
        return batch.to_pylist(maps_as_pydicts="strict")
    except (KeyError, TypeError) as error:
        raise NotSupported(
            "a map has equal keys, or rows or lists as keys, and a timestamp before 1970 has digits below the millisecond",
            f"pyorc, which writes ORC files with such timestamps, takes maps as Python dictionaries ({error})",
            "add --option file.format=parquet, or set it with `paimon-cli alter`",
        ) from error


def _refuse_lost_times(rows: pa.Table) -> None:
    for name in rows.schema.names:
        for chunk in rows.column(name).chunks:
            for leaf in timestamp_leaves(chunk):
                nanos = ticks(leaf)
                if ((nanos > LOST[0]) & (nanos < LOST[1]) & (nanos % MILLI != 0)).any():
                    raise NotSupported(
                        f"column {name} holds a timestamp in the last second before 1970 with digits below the millisecond",
                        "Java's Paimon reads no ORC encoding of such values correctly",
                        "add --option file.format=parquet, or set it with `paimon-cli alter`",
                        column=name,
                    )
