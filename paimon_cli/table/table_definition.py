"""What `create` was asked for, before it is a schema: columns, keys, options; and how it becomes schema 0."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from paimon_cli.datatypes.data_type import DataField
from paimon_cli.errors import UsageError
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.table.field_numbering import numbered


@dataclass(frozen=True)
class TableDefinition:
    """Columns in order, with ids that mean nothing yet; `declared_null`: columns declared explicitly as `NULL`."""

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
    """'a, b' -> ('a', 'b'); empty text -> ()."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def with_key_options(definition: TableDefinition) -> TableDefinition:
    """The options `primary-key` and `partition` moved into the key lists; UsageError when both forms are given."""
    options = dict(definition.options)
    primary_keys = _key_list(definition.primary_keys, options.pop("primary-key", None), "primary-key")
    partition_keys = _key_list(definition.partition_keys, options.pop("partition", None), "partition")
    return replace(definition, options=options, primary_keys=primary_keys, partition_keys=partition_keys)


def _key_list(clause: tuple[str, ...], option: str | None, name: str) -> tuple[str, ...]:
    if option is None:
        return clause
    if clause not in ((), split_names(option)):
        raise UsageError(f"'{name}' is given twice", "as an option and as a clause of its own", "give it once")
    return split_names(option)


def to_schema(definition: TableDefinition, now_millis: int) -> TableSchema:
    """Schema 0: ids numbered depth first from 0, key columns NOT NULL, `bucket` and `file.format` spelled out.

    Version-3 readers know the defaults, older ones assume others: hence the two explicit options (FORMAT.md, section 2.1).
    """
    fields, highest_id = numbered(tuple(_key_field(f) if f.name in definition.primary_keys else f for f in definition.fields))
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


def _key_field(column: DataField) -> DataField:
    return replace(column, type=column.type.with_nullable(False))
