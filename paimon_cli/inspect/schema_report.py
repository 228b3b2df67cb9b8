"""`schemas` and `options`: the schemas of a table and their differences, and the values and meaning of options."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from paimon_cli.catalog.option_values import is_secret
from paimon_cli.datatypes.data_type import DataType
from paimon_cli.datatypes.field_types import type_to_json, type_to_sql
from paimon_cli.errors import NotFound
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.options.option_catalog import (
    HARMLESS,
    HONOURED,
    IN_PART,
    OF_CATALOG,
    OPTIONS,
    OWN_OPTIONS,
    REFUSED_ON_READ,
    REFUSED_ON_WRITE,
    Gate,
    TableOption,
    find_option,
    nearest_key,
)
from paimon_cli.options.table_options import NAMES_OF_PARTITIONS
from paimon_cli.read.html_text import ShownAsTable
from paimon_cli.storage.redaction import MASK, holds_secret, names_secret, shown_value

if TYPE_CHECKING:
    import pyarrow as pa

LIKENESS = 0.6
OF_TABLE, OF_CALL, OF_PAIMON, UNSET = "table", "call", "default", "unset"
"""Origins of the value of an option."""
_ADDED, _REMOVED, _CHANGED = "added", "removed", "changed"


@dataclass(frozen=True)
class SchemaRow:
    """One schema. `columns`: the number of top-level columns; `time`: epoch millis."""

    id: int
    time: int
    columns: int
    highest_field_id: int
    primary_keys: tuple[str, ...]
    partition_keys: tuple[str, ...]
    comment: str | None


@dataclass(frozen=True)
class FieldRow:
    """One column. `type`: as in the schema file, which `create --schema` accepts."""

    id: int
    name: str
    type: Any
    description: str | None
    default_value: str | None = None


@dataclass(frozen=True)
class SchemaDetails(ShownAsTable):
    """One schema in full."""

    id: int
    time: int
    primary_keys: tuple[str, ...]
    partition_keys: tuple[str, ...]
    options: Mapping[str, str]
    comment: str | None
    highest_field_id: int
    fields: tuple[FieldRow, ...]

    def to_arrow(self) -> pa.Schema:
        """The columns as an Arrow schema."""
        import pyarrow as pa

        from paimon_cli.datatypes.arrow_types import arrow_type
        from paimon_cli.datatypes.field_types import parse_type

        types = [(field.name, parse_type(field.type)) for field in self.fields]
        return pa.schema([pa.field(name, arrow_type(t), t.nullable) for name, t in types])


@dataclass(frozen=True)
class OptionRow:
    """One option. `value`: as set, else the default; the description is empty for keys unknown to Paimon.

    `origin`: where the value comes from (`table`, `call` for `--option`, `default`, `unset`). `status`: whether paimon-cli
    honours the option; `reason`: why.
    """

    key: str
    value: str | None
    default: str | None
    origin: str
    is_set: bool
    immutable: bool
    status: str
    description: str
    reason: str


def schema_rows(table: TableContext) -> list[SchemaRow]:
    """The schemas, newest first."""
    return [_schema_row(table.schemas.get(schema_id)) for schema_id in reversed(table.schemas.ids())]


def schema_details(schema: TableSchema) -> SchemaDetails:
    return SchemaDetails(
        id=schema.id,
        time=schema.time_millis,
        fields=tuple(FieldRow(f.id, f.name, type_to_json(f.type), f.description, f.default_value) for f in schema.fields),
        primary_keys=schema.primary_keys,
        partition_keys=schema.partition_keys,
        options=shown_options(schema.options),
        comment=schema.comment,
        highest_field_id=schema.highest_field_id,
    )


def shown_options(options: Mapping[str, str]) -> dict[str, str]:
    """The options of a table without the secrets that other writers may have stored among them."""
    return {key: _shown(key, value) for key, value in options.items()}


def option_rows(options: Mapping[str, str], given: Mapping[str, str], *, every: bool) -> list[OptionRow]:
    """The options of a table and those `given` for this call, by key; with `every`, also all options that are not set."""
    listed = {option.key for option in (*OPTIONS, *OWN_OPTIONS) if option.group != OF_CATALOG} if every else set()
    return [_option_row(key, options, given) for key in sorted(listed | set(options) | set(given))]


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


def _option_row(key: str, options: Mapping[str, str], given: Mapping[str, str]) -> OptionRow:
    known = find_option(key)
    default = known.documented_default if known else None
    value = given.get(key, options.get(key))
    return OptionRow(
        key=key,
        value=default if value is None else _shown(key, value),
        default=default,
        origin=_origin(key, default, options, given),
        is_set=value is not None,
        immutable=key in NAMES_OF_PARTITIONS or (known is not None and known.immutable),
        description=known.description if known else "",
        status=known.status if known else "unknown",
        reason=known.reason if known else "",
    )


def _origin(key: str, default: str | None, options: Mapping[str, str], given: Mapping[str, str]) -> str:
    if key in given:
        return OF_CALL
    return OF_TABLE if key in options else OF_PAIMON if default is not None else UNSET


def _shown(key: str, value: str) -> str:
    if is_secret(key):
        return MASK
    return shown_value(key, value) if not names_secret(key) and holds_secret(key, value) else value


@dataclass(frozen=True)
class OptionExplanation:
    """What an option means, whether paimon-cli honours it, and its value in a table (None without a table).

    `effect`: `status` as a sentence; `refused`: the kinds of work that are refused, and the values for which they are not.
    """

    key: str
    description: str
    type: str
    default: str | None
    choices: tuple[str, ...]
    since: str | None
    group: str
    immutable: bool
    older_keys: tuple[str, ...]
    status: str
    effect: str
    refused: tuple[str, ...]
    value: str | None
    origin: str | None


def _aggregate_functions() -> tuple[str, ...]:
    from paimon_cli.lsm.aggregators.catalog import aggregate_functions  # loads Arrow, which other options do not need

    return aggregate_functions()


OF_FUNCTIONS = ("fields.<column>.aggregate-function", "fields.default-aggregate-function")


def explain_option(
    key: str, options: Mapping[str, str] | None = None, given: Mapping[str, str] | None = None
) -> OptionExplanation:
    """Explain the option with this key, older key or family; with its value if the `options` of a table are given.

    Raises `NotFound` for an unknown key.
    """
    option = find_option(key)
    if option is None:
        nearest = nearest_key(key, LIKENESS)
        hint = f"paimon-cli options explain {nearest}" if nearest else "paimon-cli options ls --all"
        raise NotFound(f"there is no option '{key}'", "neither Paimon nor paimon-cli knows it", hint, option=key)
    known = key if key not in option.older_keys else option.key
    value = origin = None
    if options is not None:
        value, origin = _value_in_table(known, option, options, given or {})
    return OptionExplanation(
        key=known,
        description=option.description,
        type=option.type,
        default=option.documented_default,
        choices=option.choices or (_aggregate_functions() if option.key in OF_FUNCTIONS else ()),
        since=option.since,
        group=option.group,
        immutable=known in NAMES_OF_PARTITIONS or option.immutable,
        older_keys=option.older_keys,
        status=option.status,
        effect=_effect(option),
        refused=tuple(map(_refusal, option.gates)),
        value=value,
        origin=origin,
    )


def _value_in_table(
    key: str, option: TableOption, options: Mapping[str, str], given: Mapping[str, str]
) -> tuple[str | None, str]:
    """The value and its origin; for a family, all members that are set."""
    if key == option.key and option.is_family:
        members = {name: value for name, value in {**options, **given}.items() if find_option(name) == option}
        text = ", ".join(f"{name}={_shown(name, value)}" for name, value in sorted(members.items()))
        return text or None, (OF_CALL if members.keys() & given.keys() else OF_TABLE) if members else UNSET
    name = next((name for name in (key, *option.older_keys) if name in given or name in options), key)
    row = _option_row(name, options, given)
    return row.value, row.origin


_EFFECTS = {
    HONOURED: "honoured by paimon-cli",
    IN_PART: "partly honoured by paimon-cli",
    HARMLESS: "ignored by paimon-cli, without consequences",
    REFUSED_ON_READ: "tables with it are neither read nor written by paimon-cli",
    REFUSED_ON_WRITE: "tables with it are read, but not written by paimon-cli",
}


def _effect(option: TableOption) -> str:
    return _EFFECTS[option.status] + (f": {option.reason}" if option.reason else "")


def _refusal(gate: Gate) -> str:
    return gate.at + (f" unless {' or '.join(gate.unless)}" if gate.unless else "")


@dataclass(frozen=True)
class SchemaChange:
    """One difference between two schemas. `subject`: `column`, `table` or `option`.

    `change`: `added`, `removed` or `changed`, for columns also `renamed`, `moved`, `type`, `comment` or `default`.
    """

    subject: str
    name: str
    change: str
    before: str | None
    after: str | None


def schema_changes(before: TableSchema, after: TableSchema) -> list[SchemaChange]:
    """How `after` differs from `before`. Columns are matched by field id, so a renamed column is not a new one."""
    changes = list(_column_changes(before, after))
    for subject, old, new in (
        ("primary key", ", ".join(before.primary_keys) or None, ", ".join(after.primary_keys) or None),
        ("partition keys", ", ".join(before.partition_keys) or None, ", ".join(after.partition_keys) or None),
        ("comment", before.comment, after.comment),
    ):
        changes += _change("table", subject, old, new)
    for key in sorted(before.options.keys() | after.options.keys()):
        changes += _change("option", key, before.options.get(key), after.options.get(key))
    return changes


def _change(subject: str, name: str, before: str | None, after: str | None) -> list[SchemaChange]:
    if before == after:
        return []
    change = _ADDED if before is None else _REMOVED if after is None else _CHANGED
    shown = (None if value is None else _shown(name, value) for value in (before, after))
    return [SchemaChange(subject, name, change, *shown)]


def schema_below(table: TableContext, schema: TableSchema) -> TableSchema:
    """The schema that `schema` replaced; itself if it is the first."""
    older = [schema_id for schema_id in table.schemas.ids() if schema_id < schema.id]
    return table.schemas.get(older[-1]) if older else schema


def _column_changes(before: TableSchema, after: TableSchema) -> Iterator[SchemaChange]:
    old, new = ({field.id: field for field in schema.fields} for schema in (before, after))
    for removed in (field for field in before.fields if field.id not in new):
        yield SchemaChange("column", removed.name, _REMOVED, type_to_sql(removed.type), None)
    for field in after.fields:
        if field.id not in old:
            yield SchemaChange("column", field.name, _ADDED, None, type_to_sql(field.type))
            continue
        earlier = old[field.id]
        pairs = {
            "renamed": (earlier.name, field.name),
            "type": _types(earlier.type, field.type),
            "comment": (earlier.description, field.description),
            "default": (earlier.default_value, field.default_value),
        }
        yield from (SchemaChange("column", field.name, what, *pair) for what, pair in pairs.items() if pair[0] != pair[1])
    yield from _moves(before, after)


def _types(before: DataType, after: DataType) -> tuple[str, str]:
    """Both types as SQL, or as in schema files if they differ only in ids or comments of nested fields."""
    texts = type_to_sql(before), type_to_sql(after)
    if before == after or texts[0] != texts[1]:
        return texts
    return json.dumps(type_to_json(before)), json.dumps(type_to_json(after))


def _moves(before: TableSchema, after: TableSchema) -> Iterator[SchemaChange]:
    """Columns of both schemas that follow a different column than before."""
    shared = {field.id for field in before.fields} & {field.id for field in after.fields}
    orders = ([field.id for field in schema.fields if field.id in shared] for schema in (before, after))
    old, new = (dict(zip(order, [None, *order[:-1]], strict=True)) for order in orders)
    names = {field.id: field.name for field in after.fields}
    for field_id, predecessor in new.items():
        if old[field_id] != predecessor:
            texts = ("first" if other is None else f"after {names[other]}" for other in (old[field_id], predecessor))
            yield SchemaChange("column", names[field_id], "moved", *texts)
