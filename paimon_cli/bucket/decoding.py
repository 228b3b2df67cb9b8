"""What decoders of data files may raise, and what is checked of their results."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
from fastavro.schema import SchemaParseException, UnknownType

from paimon_cli.datatypes.arrow_types import is_ascii
from paimon_cli.datatypes.data_type import MAX_NESTING, DataField
from paimon_cli.errors import DamagedFile, NotSupported
from paimon_cli.history.moved_partitions import moved_file
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.avro_writer import zstd_module
from paimon_cli.options.option_text import shortened

DECODE_ERRORS: tuple[type[Exception], ...] = (
    *(pa.ArrowException, OSError, EOFError, ValueError, LookupError, TypeError, ArithmeticError, AttributeError),
    *(RecursionError, MemoryError, zlib.error, zstd_module().ZstdError, SchemaParseException, UnknownType),
)


_ALWAYS_VALID = {pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()}
"""Types of which full validation checks nothing more."""


def first_line(error: Exception) -> str:
    """The first line of the error message."""
    return next(iter(str(error).splitlines()), "") or type(error).__name__


def check_decoded(batch: pa.RecordBatch) -> None:
    """Raise `ArrowInvalid` for text that is not UTF-8, decimals with too many digits, and offsets that point nowhere."""
    for column in batch.columns:
        column.validate()
        if column.type not in _ALWAYS_VALID and not _is_plainly_valid(column):
            column.validate(full=True)


def _is_plainly_valid(column: pa.Array) -> bool:
    """Whether a cheap check already shows that full validation would pass: ASCII text, plain or in a dictionary."""
    if pa.types.is_dictionary(column.type):
        column.dictionary.validate()
        return (
            not column.null_count
            and _are_in_range(column.indices.to_numpy(), column.dictionary)
            and _is_plainly_valid(column.dictionary)
        )
    return pa.types.is_string(column.type) and is_ascii(column)


def _are_in_range(indices: np.ndarray, dictionary: pa.Array) -> bool:
    return len(indices) == 0 or 0 <= int(indices.min()) <= int(indices.max()) < len(dictionary)


FAR_TIME = "out of range for nanosecond resolution"
"""Part of Arrow's message for ORC timestamps that it cannot hold."""


@contextmanager
def decoding(path: str, columns: Sequence[DataField] = (), context: TableContext | None = None) -> Iterator[None]:
    """A context that turns errors of decoders into `DamagedFile` (or `NotSupported`) with the path of the data file.

    `columns`: those of the file. If one is nested deeper than decoders go, the file is not called damaged. `context`: the table,
    so that the error about a missing file can say where it is.
    """
    try:
        yield
    except FileNotFoundError as error:
        raise missing_file(path, context) from error
    except DECODE_ERRORS as error:
        if FAR_TIME in str(error):
            raise NotSupported(f"data file {path} holds a timestamp before 1677 or after 2262", str(error), path=path) from error
        deep = next((column for column in columns if column.type.depth > MAX_NESTING), None)
        if deep is not None:
            why = f"column '{deep.name}' is nested {deep.type.depth} levels deep; up to {MAX_NESTING} are supported"
            raise NotSupported(f"cannot read data file {path}", f"{why} ({first_line(error)})", path=path) from error
        raise DamagedFile(f"cannot read data file {path}", first_line(error), path=path) from error


def outside_of_range(path: str, what: str, found: tuple[object, object], recorded: tuple[object, object]) -> DamagedFile:
    """The error about rows whose keys or sequence numbers the metadata of their file does not cover."""
    least, greatest, low, high = (shortened(str(end)) for end in (*found, *recorded))
    why = f"its {what} are {least} to {greatest}, but its manifest says {low} to {high}"
    return DamagedFile(f"data file {path} is damaged", why, path=path)


def sequences_outside_of_range(
    context: TableContext, path: str, found: tuple[int, int], recorded: tuple[int, int]
) -> DamagedFile | NotSupported:
    """The error about sequence numbers that the metadata of their file does not cover, in a merge."""
    if not context.mode.tracks_keyed_rows:
        return outside_of_range(path, "sequence numbers", found, recorded)
    why = "its manifests record numbers of snapshots, and writers number new rows from these on, so that older rows may win"
    hint = "copy its rows, with the engine that made it, into a table without row-tracking.enabled"
    return NotSupported(f"cannot merge files of {context.address} with row-tracking.enabled and a primary key", why, hint)


def missing_file(path: str, context: TableContext | None) -> DamagedFile:
    """The error about a data file that the storage does not have at this path."""
    if context is not None and (found := moved_file(context, path)) is not None:
        return DamagedFile(f"data file {path} is missing", found.why, found.hint, path=path)
    hint = "if its snapshot expired during the read, read the table again"
    return DamagedFile(
        f"data file {path} is missing", "a snapshot refers to it, but the storage has no such file", hint, path=path
    )
