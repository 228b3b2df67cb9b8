"""Changes to columns and nested fields, with the rules of Paimon (Java SchemaChange, SchemaManager)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from paimon_cli.catalog.definition_check import check_default
from paimon_cli.catalog.table_definition import numbered_field
from paimon_cli.datatypes.column_cast import cast_of, keeps_buckets, may_cast, same_type
from paimon_cli.datatypes.data_type import ArrayType, DataField, DataType, MapType, MultisetType, NestedType, RowType, VariantType
from paimon_cli.datatypes.field_types import type_to_json, type_to_sql
from paimon_cli.errors import AlreadyExists, NotSupported, UsageError
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.options.option_text import boolean, did_you_mean, read_option

Path = tuple[str, ...]
"""The path of a column or nested field: names of ROW fields, `element` of ARRAY and MULTISET, `value` of MAP."""


@dataclass(frozen=True)
class ColumnPosition:
    """The position after the column `after`, or the first position if that is None."""

    after: str | None = None


@dataclass(frozen=True)
class SetOption:
    """Set an option. `fits_files`: the files have been rewritten for this value, so an otherwise immutable option may change."""

    key: str
    value: str
    fits_files: bool = False


@dataclass(frozen=True)
class UnsetOption:
    key: str


@dataclass(frozen=True)
class SetComment:
    """Set the comment of the table; None removes it."""

    comment: str | None


@dataclass(frozen=True)
class AddColumn:
    path: Path
    type: DataType
    comment: str | None = None
    default: str | None = None
    position: ColumnPosition | None = None


@dataclass(frozen=True)
class DropColumn:
    path: Path


@dataclass(frozen=True)
class RenameColumn:
    path: Path
    name: str


@dataclass(frozen=True)
class AlterColumn:
    """Change properties of one column; None leaves a property as it is.

    `type` does not affect nullability, which only `nullable` changes. An empty `comment` removes the comment.
    """

    path: Path
    type: DataType | None = None
    nullable: bool | None = None
    comment: str | None = None
    default: str | None = None
    drop_default: bool = False
    position: ColumnPosition | None = None


SchemaChange = SetOption | UnsetOption | SetComment | AddColumn | DropColumn | RenameColumn | AlterColumn


def request_steps(change: SchemaChange) -> Iterator[dict[str, Any]]:
    """The change as JSON objects of Paimon's REST API: one per changed property of a column."""
    if isinstance(change, SetOption):
        yield {"action": "setOption", "key": change.key, "value": change.value}
    elif isinstance(change, UnsetOption):
        yield {"action": "removeOption", "key": change.key}
    elif isinstance(change, SetComment):
        yield {"action": "updateComment", "comment": change.comment}
    else:
        for action, facts in _column_steps(change):
            yield {"action": action, **facts, **({} if action == _MOVE else {"fieldNames": list(change.path)})}


_MOVE = "updateColumnPosition"


def _column_steps(change: AddColumn | DropColumn | RenameColumn | AlterColumn) -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(change, DropColumn):
        yield "dropColumn", {}
    elif isinstance(change, RenameColumn):
        yield "renameColumn", {"newName": change.name}
    elif isinstance(change, AddColumn):
        facts = {"dataType": type_to_json(change.type), "comment": change.comment, "move": _move(change)}
        yield "addColumn", facts
        if change.default is not None:
            yield "updateColumnDefaultValue", {"newDefaultValue": change.default}
    else:
        if change.type is not None:
            yield "updateColumnType", {"newDataType": type_to_json(change.type), "keepNullability": True}
        if change.nullable is not None:
            yield "updateColumnNullability", {"newNullability": change.nullable}
        if change.comment is not None:
            yield "updateColumnComment", {"newComment": change.comment or None}
        if change.default is not None or change.drop_default:
            yield "updateColumnDefaultValue", {"newDefaultValue": change.default}
        if change.position is not None:
            yield _MOVE, {"move": _move(change)}


def _move(change: AddColumn | AlterColumn) -> dict[str, Any] | None:
    if change.position is None:
        return None
    after = change.position.after
    return {"fieldName": change.path[-1], "referenceFieldName": after, "type": "FIRST" if after is None else "AFTER"}


Fields = tuple[DataField, ...]
Edit = Callable[[Fields, str], Fields]
"""A function from the fields of a table or ROW and the last name of a path to the changed fields."""

_NO_ID = -1


def edited(fields: Fields, path: tuple[str, ...], edit: Edit) -> Fields:
    """The fields with `edit` applied at the path. Raises `UsageError` if the path does not exist."""
    return _edited_fields(fields, path, 0, edit)


def _edited_fields(fields: Fields, path: tuple[str, ...], depth: int, edit: Edit) -> Fields:
    if len(path) == depth + 1:
        return edit(fields, path[depth])
    position = position_of(fields, path[depth])
    inner = _edited_type(fields[position].type, path, depth + 1, edit)
    return (*fields[:position], replace(fields[position], type=inner), *fields[position + 1 :])


def position_of(fields: Fields, name: str) -> int:
    """The position of a field. Raises `UsageError` if there is no field with this name."""
    for position, candidate in enumerate(fields):
        if candidate.name == name:
            return position
    known = [field.name for field in fields]
    hint = did_you_mean(name, known).strip()
    raise UsageError(f"no column '{name}'", f"the columns are {', '.join(known)}", hint, column=name)


def _edited_type(t: DataType, path: tuple[str, ...], depth: int, edit: Edit) -> DataType:
    name = path[depth]
    if isinstance(t, RowType) and not isinstance(t, VariantType):
        return replace(t, fields=_edited_fields(t.fields, path, depth, edit))
    if not isinstance(t, (ArrayType, MultisetType, MapType)):
        raise UsageError(f"'{'.'.join(path[:depth])}' is {type_to_sql(t)}", f"it has no field '{name}'")
    part, inner = ("value", t.value) if isinstance(t, MapType) else ("element", t.element)
    if name != part:
        if isinstance(t, MapType) and name == "key":
            raise NotSupported(f"changing the key of '{'.'.join(path[:depth])}'", "Paimon can only change the values of a MAP")
        raise UsageError(f"'{'.'.join(path[:depth])}' has no field '{name}'", f"the field of {t.root} is called '{part}'")
    if depth + 1 < len(path):
        inner = _edited_type(inner, path, depth + 1, edit)
    else:
        (changed,) = edit((DataField(_NO_ID, part, inner),), part)
        inner = changed.type
    return replace(t, value=inner) if isinstance(t, MapType) else replace(t, element=inner)


def is_named(field: DataField) -> bool:
    """Whether the field has a name; elements of lists and values of maps have only a type."""
    return field.id != _NO_ID


KEEP_NULLABLE = "alter-column-null-to-not-null.disabled"
IMPLICIT_ONLY = "disable-explicit-type-casting"
BEFORE_PARTITION = "add-column-before-partition"


def _ids(fields: Fields) -> list[int]:
    """The ids of the fields and of those within their types."""
    inner = (row for field in fields for row in field.type.parts() if isinstance(row, RowType))
    return [field.id for field in (*fields, *(nested for row in inner for nested in row.fields))]


@dataclass
class ColumnChanges:
    """Applies column changes to a schema, one after the other. The methods raise `UsageError` for changes that are refused."""

    schema: TableSchema
    fields: Fields = ()
    primary_keys: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.fields, self.primary_keys = self.schema.fields, self.schema.primary_keys
        self.highest_field_id = max(self.schema.highest_field_id, *_ids(self.fields))  # a damaged schema may say less

    def add(self, change: AddColumn) -> None:
        if not change.type.nullable:
            what = f"new column '{'.'.join(change.path)}' cannot be NOT NULL"
            raise UsageError(what, "existing rows have null in it", "leave out NOT NULL")
        check_default(".".join(change.path), change.type, change.default)
        plain = DataField(0, change.path[-1], change.type, change.comment, change.default)
        new, self.highest_field_id = numbered_field(plain, self.highest_field_id)
        position = change.position or self._before_partition(change)

        def insert(fields: Fields, name: str) -> Fields:
            _refuse_taken(fields, name)
            _refuse_unnamed(fields, "add a column to")
            return _placed(fields, new, position)

        self.fields = edited(self.fields, change.path, insert)

    def _before_partition(self, change: AddColumn) -> ColumnPosition | None:
        if len(change.path) > 1 or not self._switch(BEFORE_PARTITION, False):
            return None
        first = next((i for i, f in enumerate(self.fields) if f.name in self.schema.partition_keys), None)
        return None if first is None else ColumnPosition(self.fields[first - 1].name if first else None)

    def drop(self, change: DropColumn) -> None:
        if len(change.path) == 1 and change.path[0] in (*self.schema.partition_keys, *self.primary_keys):
            raise UsageError(f"column '{change.path[0]}' cannot be dropped", "it is a primary key or partition column")

        def remove(fields: Fields, name: str) -> Fields:
            _refuse_unnamed(fields, "drop")
            position = position_of(fields, name)
            if len(fields) == 1:
                raise UsageError(f"column '{'.'.join(change.path)}' cannot be dropped", "it is the only one left")
            return (*fields[:position], *fields[position + 1 :])

        self.fields = edited(self.fields, change.path, remove)

    def rename(self, change: RenameColumn) -> None:
        self._refuse_partition_column(change.path, "renamed")

        def set_name(fields: Fields, name: str) -> Fields:
            _refuse_unnamed(fields, "rename")
            position = position_of(fields, name)
            _refuse_taken(fields, change.name)
            return _with(fields, position, replace(fields[position], name=change.name))

        self.fields = edited(self.fields, change.path, set_name)
        if len(change.path) == 1:
            self.primary_keys = tuple(change.name if key == change.path[0] else key for key in self.primary_keys)

    def alter(self, change: AlterColumn) -> None:
        top_level = change.path[0] if len(change.path) == 1 else None
        is_key = top_level in self.primary_keys
        if change.type is not None:
            self._refuse_partition_column(change.path, "given another type")
            if is_key:
                raise UsageError(f"column '{top_level}' cannot be given another type", "it is a primary key column")
            if top_level in self.schema.bucket_key_names:
                self._refuse_other_buckets(top_level, change.type)
        may_be_null = self.schema.typed_options.primary_key_nullable
        if is_key and change.nullable is not None and change.nullable != may_be_null:
            nullability = "nullable" if may_be_null else "NOT NULL"
            raise UsageError(f"column '{top_level}' must stay {nullability}", "it is a primary key column")
        self.fields = edited(self.fields, change.path, lambda fields, name: self._altered(fields, name, change))
        if change.position is not None:
            if top_level is None:
                raise NotSupported(f"moving '{'.'.join(change.path)}'", "Paimon can only move top-level columns")
            self.fields = _moved(self.fields, position_of(self.fields, top_level), change.position)

    def _altered(self, fields: Fields, name: str, change: AlterColumn) -> Fields:
        position = position_of(fields, name)
        old = fields[position]
        if change.comment is not None or change.default is not None or change.drop_default:
            _refuse_unnamed(fields, "set a comment or default of")
        t = old.type
        if change.type is not None:
            t = self._cast(".".join(change.path), t, change.type)
        if change.nullable is not None:
            t = self._nullability(".".join(change.path), t, change.nullable)
        default = None if change.drop_default else change.default if change.default is not None else old.default_value
        check_default(".".join(change.path), t, default)
        comment = old.description if change.comment is None else change.comment or None
        return _with(fields, position, replace(old, type=t, description=comment, default_value=default))

    def _cast(self, name: str, old: DataType, new: DataType) -> DataType:
        new = new.with_nullable(old.nullable)
        if same_type(old, new):
            return new
        explicit = not self._switch(IMPLICIT_ONLY, False)
        if not may_cast(old, new, explicit=explicit) or cast_of(old, new) is None:
            nested = (
                f"change a field inside: alter-column {name}.FIELD"
                if isinstance(old, NestedType) and isinstance(new, NestedType)
                else ""
            )
            why = f"{IMPLICIT_ONLY} is set" if may_cast(old, new, explicit=True) and not explicit else "Paimon has no such cast"
            what = f"column '{name}' cannot change from {type_to_sql(old)} to {type_to_sql(new)}"
            raise UsageError(what, why, nested, column=name)
        return new

    def _nullability(self, name: str, t: DataType, nullable: bool) -> DataType:
        if t.nullable and not nullable and self._switch(KEEP_NULLABLE, True):
            what, why = f"column '{name}' cannot become NOT NULL", "existing rows may have null in it"
            raise UsageError(what, why, f"set {KEEP_NULLABLE}=false first", column=name)
        return t.with_nullable(nullable)

    def _refuse_partition_column(self, path: tuple[str, ...], change: str) -> None:
        if len(path) == 1 and path[0] in self.schema.partition_keys:
            raise UsageError(f"column '{path[0]}' cannot be {change}", "it is a partition column")

    def _refuse_other_buckets(self, name: str, new: DataType) -> None:
        old = self.fields[position_of(self.fields, name)].type
        if not keeps_buckets(old, new):
            what = f"column '{name}' cannot change from {type_to_sql(old)} to {type_to_sql(new)}"
            why = "it is a bucket key, and the hashes of such values differ: rows would be in the wrong buckets"
            hint = "create a table with the new type, and write the rows into it with `write --from-table`"
            raise UsageError(what, why, hint, column=name)

    def _switch(self, key: str, default: bool) -> bool:
        text = self.schema.options.get(key)
        return default if text is None else read_option(key, text, boolean)


def _with(fields: Fields, position: int, changed: DataField) -> Fields:
    return (*fields[:position], changed, *fields[position + 1 :])


def _refuse_taken(fields: Fields, name: str) -> None:
    if any(f.name == name for f in fields):
        raise AlreadyExists(f"column '{name}' already exists", hint="choose another name")


def _refuse_unnamed(fields: Fields, verb: str) -> None:
    if not all(map(is_named, fields)):
        raise UsageError(f"cannot {verb} '{fields[0].name}'", "elements of lists and values of maps are not columns")


def _placed(fields: Fields, new: DataField, position: ColumnPosition | None) -> Fields:
    if position is None:
        return (*fields, new)
    at = 0 if position.after is None else position_of(fields, position.after) + 1
    return (*fields[:at], new, *fields[at:])


def _moved(fields: Fields, position: int, target: ColumnPosition) -> Fields:
    moved = fields[position]
    if target.after == moved.name or (target.after is None and position == 0):
        raise AlreadyExists(f"column '{moved.name}' already exists")
    return _placed((*fields[:position], *fields[position + 1 :]), moved, target)
