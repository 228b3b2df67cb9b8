"""What the footers of foreign files say: format, columns, rows and statistics, and whether readers of Paimon understand them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from paimon_cli.bucket.column_statistics import (
    GROUP_BOUNDS,
    NO_STATISTICS,
    ColumnStatistics,
    footer_statistics,
    leaf_numbers,
    truncated,
)
from paimon_cli.bucket.decoding import DECODE_ERRORS, first_line
from paimon_cli.bucket.orc_file import OrcFile
from paimon_cli.datatypes.arrow_types import type_from_arrow
from paimon_cli.datatypes.data_type import DataField, DataType, TimestampType
from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.errors import BadInput, Conflict, NotSupported
from paimon_cli.jobs.adoption.far_times import refuse_far_int96, refuse_unreadable_orc_times
from paimon_cli.jobs.adoption.source import CHANGED_HINT, AdoptedFile, Source
from paimon_cli.options.table_options import TableOptions
from paimon_cli.storage.capabilities import link_target, open_sized
from paimon_cli.storage.threads import in_parallel

_MAGIC = {b"PAR1": "parquet", b"ORC": "orc"}
_PHYSICAL = {
    "BOOLEAN": {"BOOLEAN"},
    **{root: {"INT32"} for root in ("TINYINT", "SMALLINT", "INT", "DATE", "TIME")},
    "BIGINT": {"INT64"},
    "FLOAT": {"FLOAT"},
    "DOUBLE": {"DOUBLE"},
    "VARCHAR": {"BYTE_ARRAY"},
    "VARBINARY": {"BYTE_ARRAY"},
    "BINARY": {"FIXED_LEN_BYTE_ARRAY"},
    "DECIMAL": {"INT32", "INT64", "FIXED_LEN_BYTE_ARRAY"},
}
"""Type -> the physical types of Parquet in which readers of Paimon expect its values."""


@dataclass(frozen=True)
class FileFooter:
    """The footer of a file. `statistics`: of its columns, in their order; none are known of ORC files."""

    file: AdoptedFile
    format: str
    fields: tuple[DataField, ...]
    rows: int
    statistics: tuple[ColumnStatistics, ...] | None


class Footers:
    """Reads the footers of a source. All files must have the same columns, in whatever order.

    `in_place`: whether other readers of Paimon will read the files as they are, so that they must understand them.
    """

    def __init__(self, source: Source, threads: int, *, in_place: bool = True) -> None:
        self._source = source
        self._in_place = in_place
        self._threads = threads
        self._fields: tuple[DataField, ...] | None = None
        self._schema: pa.Schema | None = None
        self._leaves: dict[str, int] = {}
        self._first = ""

    def read(self) -> list[FileFooter]:
        """The footers in the order of the files. Raises `BadInput` for links, and files that are neither Parquet nor ORC or
        cannot be read; `NotSupported` for columns that differ, or that readers of Paimon would not understand; `Conflict` if
        another writer deletes or replaces a file.
        """
        first, rest = self._source.files[0], self._source.files[1:]
        return [self._read(first), *in_parallel(self._read, rest, self._threads)]

    def _read(self, file: AdoptedFile) -> FileFooter:
        source = self._source
        path = f"{source.root}/{file.path}"
        if link_target(source.storage, path) is not None:
            raise BadInput(f"{path} is a symbolic link", "a link may lead out of the source", "put the file itself there")
        try:
            with open_sized(source.storage, path, file.size) as stream:
                footer = self._footer(file, path, stream)
        except FileNotFoundError as error:
            raise Conflict(f"{path} is missing", "it was there when the directory was listed", CHANGED_HINT) from error
        except DECODE_ERRORS as error:
            if source.storage.exists(path) and (size := source.storage.file_size(path)) != file.size:
                why = f"it has {size} bytes, and had {file.size} when the directory was listed"
                raise Conflict(f"{path} has changed", why, CHANGED_HINT) from error
            raise BadInput(f"{path} cannot be read", first_line(error), "move it away, or repair it") from error
        if file.rows is not None and file.rows != footer.rows:
            why = f"it has {footer.rows} rows, and the metadata of the source says {file.rows}"
            raise BadInput(f"{path} is not the file that its table means", why)
        return footer

    def _footer(self, file: AdoptedFile, path: str, stream: BinaryIO) -> FileFooter:
        form = _format(stream.read(4))
        stream.seek(0)
        if form == "orc":
            orc = OrcFile(stream)
            fields = self._checked(path, orc.schema, None)
            if self._in_place:
                refuse_unreadable_orc_times(path, orc, fields)
            return FileFooter(file, form, fields, orc.nrows, None)
        if form != "parquet":
            raise BadInput(f"{path} is neither Parquet nor ORC", "its first bytes are of neither format", "move it away")
        metadata = pq.read_metadata(stream)
        schema = metadata.schema.to_arrow_schema().remove_metadata()
        fields = self._checked(path, schema, metadata)
        if self._in_place:
            refuse_far_int96(self._source.storage, path, file, stream, metadata.schema)
        leaves = self._leaves if self._is_usual(schema) else leaf_numbers(schema)
        statistics = tuple(_known(metadata, leaves.get(field.name), field.type) for field in fields)
        return FileFooter(file, form, fields, metadata.num_rows, statistics)

    def _is_usual(self, schema: pa.Schema) -> bool:
        """Whether the schema is that of the first file, so that the same facts are not found again and again."""
        return self._schema is not None and bool(schema.equals(self._schema))

    def _checked(self, path: str, schema: pa.Schema, metadata: pq.FileMetaData | None) -> tuple[DataField, ...]:
        """The columns of a file, which must be the same as in the first one."""
        if self._fields is not None and metadata is not None and self._is_usual(schema):
            self._expect_physical(path, self._fields, metadata)
            return self._fields
        fields = tuple(DataField(0, each.name, _type_of(path, each)) for each in schema)
        if metadata is not None:
            self._expect_physical(path, fields, metadata)
        self._expect_same(path, fields)
        if self._fields is None:
            self._fields, self._first = fields, path
            if metadata is not None:
                self._schema, self._leaves = schema, leaf_numbers(schema)
        return fields

    def _expect_physical(self, path: str, fields: Sequence[DataField], metadata: pq.FileMetaData) -> None:
        if self._in_place:
            _expect_physical(path, fields, metadata)

    def _expect_same(self, path: str, fields: tuple[DataField, ...]) -> None:
        expected = self._fields if self._fields is not None else fields
        mine, first = ({field.name: type_to_sql(field.type) for field in some} for some in (fields, expected))
        if len(mine) != len(fields):
            raise NotSupported(f"{path} has two columns of one name", "a table cannot have them", "write the rows into a table")
        for name in [*first, *mine]:
            if mine.get(name) != first.get(name):
                why = f"column {name} is {first.get(name, 'missing')} there, and {mine.get(name, 'missing')} here"
                hint = "adopt files with the same columns, and write the others"
                raise NotSupported(f"{path} has other columns than {self._first}", why, hint, column=name)


def _type_of(path: str, column: pa.Field) -> DataType:
    try:
        return type_from_arrow(column.type, nullable=True)
    except NotSupported as unknown:
        what, why = f"column {column.name} of {path} cannot be adopted", f"{unknown.what}: {unknown.why}"
        hint = "write the file again with another type, or move it away"
        raise NotSupported(what, why, hint, column=column.name, path=path) from unknown


def _format(head: bytes) -> str | None:
    return next((form for magic, form in _MAGIC.items() if head.startswith(magic)), None)


def _leaf_types(t: DataType) -> Iterator[DataType]:
    if not t.children:
        yield t
    for child in t.children:
        yield from _leaf_types(child)


def _expect_physical(path: str, fields: Sequence[DataField], metadata: pq.FileMetaData) -> None:
    """Raise `NotSupported` for values that are stored otherwise than engines of Paimon read them."""
    leaves = [(field.name, leaf) for field in fields for leaf in _leaf_types(field.type)]
    if len(leaves) != metadata.num_columns:
        raise NotSupported(
            f"the columns of {path} are nested in an unusual way", "they could not be told apart", "write the rows"
        )
    for number, (name, leaf) in enumerate(leaves):
        column = metadata.schema.column(number)
        expected = _PHYSICAL.get(leaf.root, set())
        if isinstance(leaf, TimestampType):
            expected = {"INT96"} if leaf.precision > 6 else {"INT64"}
        if column.physical_type not in expected or _is_unsigned(column):
            what = f"column {name} of {path} is stored as {column.physical_type}"
            what += f" ({column.logical_type})" if str(column.logical_type) != "None" else ""
            why = f"engines of Paimon read {type_to_sql(leaf)} in another form"
            raise NotSupported(what, why, "write the rows into a table of Paimon", column=name)


def _is_unsigned(column: pq.ColumnSchema) -> bool:
    return column.converted_type.startswith("UINT")


def _known(metadata: pq.FileMetaData, leaf: int | None, t: DataType) -> ColumnStatistics:
    """Bounds of types that all writers order alike, and the number of nulls."""
    try:
        found = footer_statistics(metadata, leaf, t, t.root not in GROUP_BOUNDS)
    except (ValueError, ArithmeticError):  # a text that was cut within a character, for example
        return NO_STATISTICS
    return found


def kept_statistics(footer: FileFooter, options: TableOptions) -> list[ColumnStatistics]:
    """The statistics of a file as the table keeps them."""
    found = footer.statistics or ()
    return [truncated(one, options.stats_mode(field.name, 0)) for one, field in zip(found, footer.fields, strict=False)]
