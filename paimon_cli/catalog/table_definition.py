"""The definition of a new table (columns, keys, options), and the schema 0 that is made from it.

Field ids are assigned in the order of Java (Schema.Builder, ReassignFieldId).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from paimon_cli.datatypes.data_type import ArrayType, DataField, DataType, MapType, MultisetType, RowType, VariantType, VectorType
from paimon_cli.datatypes.field_types import field_from_json
from paimon_cli.errors import UsageError
from paimon_cli.metadata.table_layout import POSTPONE_BUCKET
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.options.table_options import BATCH_WRITE_FIXED_BUCKET, TableOptions

Fields = tuple[DataField, ...]


def numbered(fields: Fields) -> tuple[Fields, int]:
    """The fields with new ids from 0, and the highest id (-1 without fields)."""
    ids = count()
    columns = tuple(replace(column, id=next(ids), type=_numbered_type(column.type, ids)) for column in fields)
    return columns, next(ids) - 1


def numbered_field(field: DataField, highest_id: int) -> tuple[DataField, int]:
    """A column with ids above `highest_id`, and the new highest id."""
    ids = count(highest_id + 1)
    column = replace(field, id=next(ids), type=_numbered_type(field.type, ids))
    return column, next(ids) - 1


def _numbered_inside(field: DataField, ids: Iterator[int]) -> DataField:
    """Number a field of a ROW after the fields nested in it; columns of a table are numbered before theirs."""
    data_type = _numbered_type(field.type, ids)
    return replace(field, id=next(ids), type=data_type)


def _numbered_type(data_type: DataType, ids: Iterator[int]) -> DataType:
    match data_type:
        case VariantType():
            return data_type
        case RowType(fields):
            return replace(data_type, fields=tuple(_numbered_inside(field, ids) for field in fields))
        case MapType(key, value):
            return replace(data_type, key=_numbered_type(key, ids), value=_numbered_type(value, ids))
        case ArrayType(element) | MultisetType(element) | VectorType(element):
            return replace(data_type, element=_numbered_type(element, ids))
    return data_type


@dataclass(frozen=True)
class TableDefinition:
    """The definition of a table. The ids of its fields are not final. `declared_null`: columns declared as `NULL`."""

    fields: tuple[DataField, ...]
    primary_keys: tuple[str, ...] = ()
    partition_keys: tuple[str, ...] = ()
    options: dict[str, str] = field(default_factory=dict)
    comment: str | None = None
    declared_null: frozenset[str] = frozenset()
    if_not_exists: bool = False

    @property
    def field_names(self) -> tuple[str, ...]:
        return tuple(f.name for f in self.fields)

    def field(self, name: str) -> DataField:
        return next(f for f in self.fields if f.name == name)

    @property
    def bucket(self) -> int:
        return int(self.options.get("bucket", "-1"))

    @property
    def bucket_keys(self) -> tuple[str, ...]:
        return split_names(self.options.get("bucket-key", ""))


def split_names(text: str) -> tuple[str, ...]:
    """Split names at commas: `'a, b'` gives `('a', 'b')`, an empty text `()`."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def with_key_options(definition: TableDefinition) -> TableDefinition:
    """The definition with the options `primary-key` and `partition` moved to the keys.

    Raises `UsageError` if keys are given in both ways and differ.
    """
    options = dict(definition.options)
    primary_keys = _key_list(definition.primary_keys, options.pop("primary-key", None), "primary-key")
    partition_keys = _key_list(definition.partition_keys, options.pop("partition", None), "partition")
    return replace(definition, options=options, primary_keys=primary_keys, partition_keys=partition_keys)


def with_postponed_writes(definition: TableDefinition) -> TableDefinition:
    """With `bucket=-2`, the definition with the option that makes batch writes postpone their rows, unless it is set already."""
    if definition.bucket != POSTPONE_BUCKET or BATCH_WRITE_FIXED_BUCKET in definition.options:
        return definition
    return replace(definition, options={**definition.options, BATCH_WRITE_FIXED_BUCKET: "false"})


def _key_list(clause: tuple[str, ...], option: str | None, name: str) -> tuple[str, ...]:
    if option is None:
        return clause
    if clause not in ((), split_names(option)):
        raise UsageError(f"'{name}' is given twice", "as an option and as a separate clause", "give it once")
    return split_names(option)


def to_schema(definition: TableDefinition, now_millis: int) -> TableSchema:
    """Schema 0 of a new table, with new field ids and the nullability of key columns.

    `bucket` and `file.format` are written explicitly, because older readers assume other defaults (FORMAT.md, section 2.1).
    """
    fields, highest_id = numbered(with_key_nullability(definition.fields, definition.primary_keys, definition.options))
    return TableSchema(
        id=0,
        fields=fields,
        highest_field_id=highest_id,
        partition_keys=definition.partition_keys,
        primary_keys=definition.primary_keys,
        options={"bucket": "-1", "file.format": "parquet", **definition.options},
        comment=definition.comment,
        time_millis=now_millis,
    )


def with_key_nullability(fields: Fields, primary_keys: Sequence[str], options: Mapping[str, str]) -> Fields:
    """The columns, with key columns NOT NULL, or nullable with `primary-key.nullable` (Java Schema)."""
    nullable = TableOptions(options).primary_key_nullable
    return tuple(replace(f, type=f.type.with_nullable(nullable)) if f.name in primary_keys else f for f in fields)


def parse_schema_document(text: str, what: str) -> TableDefinition:
    """Parse Paimon's schema JSON; ids, time and version are optional. `what`: the source of the text, for messages.

    Raises `UsageError` if it is not a schema.
    """
    try:
        return _definition(json.loads(text), what)
    except json.JSONDecodeError as error:
        raise UsageError(f"{what} is not JSON", str(error)) from error
    except RecursionError:
        raise UsageError(f"cannot read {what}", "it is nested too deeply") from None


def _definition(document: Any, what: str) -> TableDefinition:
    fields = _member(document, "fields", list, what) if isinstance(document, dict) else None
    if not fields:
        raise UsageError(
            f"{what} has no fields",
            hint='a schema looks like {"fields": [{"name": "id", "type": "BIGINT"}], "primaryKeys": ["id"]}',
        )
    ids = count()
    comment = _member(document, "comment", str, what)
    return TableDefinition(
        fields=tuple(field_from_json(column, ids) for column in fields),
        primary_keys=_names(document, "primaryKeys", what),
        partition_keys=_names(document, "partitionKeys", what),
        options={str(key): _option_text(value) for key, value in (_member(document, "options", dict, what) or {}).items()},
        comment=comment or None,
    )


def _names(document: Mapping[str, Any], key: str, what: str) -> tuple[str, ...]:
    names = _member(document, key, list, what) or []
    if not all(isinstance(name, str) for name in names):
        raise UsageError(f"{key} of {what} must be a list of column names")
    return tuple(names)


def _member(document: Mapping[str, Any], key: str, expected: type, what: str) -> Any:
    value = document.get(key)
    if value is not None and not isinstance(value, expected):
        raise UsageError(f"{key} of {what} is not a {expected.__name__}", json.dumps(value))
    return value


def _option_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
