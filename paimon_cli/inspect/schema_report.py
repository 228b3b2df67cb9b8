"""Schemas and options of a table, as commands show them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paimon_cli.catalog.option_values import is_secret
from paimon_cli.catalog.table import CatalogTable
from paimon_cli.datatypes.field_types import type_to_json
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.options.option_catalog import OF_CATALOG, OPTIONS, OWN_OPTIONS, find_option

HIDDEN = "***"


@dataclass(frozen=True)
class SchemaRow:
    """One schema; `columns` counts the top-level ones, `time` in epoch millis."""

    id: int
    time: int
    columns: int
    highest_field_id: int
    primary_keys: tuple[str, ...]
    partition_keys: tuple[str, ...]
    comment: str | None


@dataclass(frozen=True)
class FieldRow:
    """One column; `type` as the schema file spells it, which `create --schema` accepts."""

    id: int
    name: str
    type: Any
    description: str | None
    default_value: str | None = None


@dataclass(frozen=True)
class SchemaDetails:
    """One schema in full."""

    id: int
    time: int
    primary_keys: tuple[str, ...]
    partition_keys: tuple[str, ...]
    options: Mapping[str, str]
    comment: str | None
    highest_field_id: int
    fields: tuple[FieldRow, ...]


@dataclass(frozen=True)
class OptionRow:
    """One option: `value` is what the table sets, else the default; keys unknown to Paimon have no description.

    `status`: whether paimon-cli honours it, `reason`: why.
    """

    key: str
    value: str | None
    default: str | None
    is_set: bool
    immutable: bool
    status: str
    description: str
    reason: str


def schema_rows(table: CatalogTable) -> list[SchemaRow]:
    """The schemas, newest first."""
    return [_schema_row(table.schemas.get(schema_id)) for schema_id in reversed(table.schemas.ids())]


def schema_details(schema: TableSchema) -> SchemaDetails:
    return SchemaDetails(
        id=schema.id,
        time=schema.time_millis,
        fields=tuple(FieldRow(f.id, f.name, type_to_json(f.type), f.description, f.default_value) for f in schema.fields),
        primary_keys=schema.primary_keys,
        partition_keys=schema.partition_keys,
        options={key: HIDDEN if is_secret(key) else value for key, value in schema.options.items()},
        comment=schema.comment,
        highest_field_id=schema.highest_field_id,
    )


def option_rows(options: Mapping[str, str], *, every: bool) -> list[OptionRow]:
    """The options that a table sets, by key; with `every` also those that it does not set."""
    listed = {option.key for option in (*OPTIONS, *OWN_OPTIONS) if option.group != OF_CATALOG} if every else set()
    return [_option_row(key, options.get(key)) for key in sorted(listed | set(options))]


def _schema_row(schema: TableSchema) -> SchemaRow:
    return SchemaRow(
        schema.id,
        schema.time_millis,
        len(schema.fields),
        schema.highest_field_id,
        schema.primary_keys,
        schema.partition_keys,
        schema.comment,
    )


def _option_row(key: str, value: str | None) -> OptionRow:
    known = find_option(key)
    default = known.default if known else None
    return OptionRow(
        key=key,
        value=default if value is None else HIDDEN if is_secret(key) else value,
        default=default,
        is_set=value is not None,
        immutable=known.immutable if known else False,
        description=known.description if known else "",
        status=known.status if known else "unknown",
        reason=known.reason if known else "",
    )
