"""What Arrow, ORC, fastavro and the codecs raise for bytes of a data file that are not what they should be."""

from __future__ import annotations

import zlib

import pyarrow as pa
from fastavro.schema import SchemaParseException, UnknownType

from paimon_cli.metadata.avro_container import zstd_module

DECODE_ERRORS: tuple[type[Exception], ...] = (
    *(pa.ArrowException, OSError, EOFError, ValueError, LookupError, TypeError, ArithmeticError, AttributeError),
    *(RecursionError, MemoryError, zlib.error, zstd_module().ZstdError, SchemaParseException, UnknownType),
)


def first_line(error: Exception) -> str:
    """One line that says why."""
    return next(iter(str(error).splitlines()), "") or type(error).__name__
