"""Editing a column, or a field at any depth inside of one, by its path (Java SchemaManager.NestedColumnModifier)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from paimon_cli.datatypes.data_type import DataField, DataType
from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.errors import NotSupported, UsageError

Fields = tuple[DataField, ...]
Edit = Callable[[Fields, str], Fields]
"""Gives the columns of a table, or the fields of a ROW, anew; the text names the one that the path ends with."""

_NO_ID = -1


def edited(fields: Fields, path: tuple[str, ...], edit: Edit) -> Fields:
    """The fields with `edit` applied where the path leads. UsageError for a path that leads nowhere."""
    return _edited_fields(fields, path, 0, edit)


def _edited_fields(fields: Fields, path: tuple[str, ...], depth: int, edit: Edit) -> Fields:
    if len(path) == depth + 1:
        return edit(fields, path[depth])
    position = position_of(fields, path[depth])
    inner = _edited_type(fields[position].type, path, depth + 1, edit)
    return (*fields[:position], replace(fields[position], type=inner), *fields[position + 1 :])


def position_of(fields: Fields, name: str) -> int:
    """UsageError when there is no such field."""
    for position, field in enumerate(fields):
        if field.name == name:
            return position
    raise UsageError(f"no column '{name}'", f"there are {', '.join(field.name for field in fields)}", column=name)


def _edited_type(t: DataType, path: tuple[str, ...], depth: int, edit: Edit) -> DataType:
    name = path[depth]
    if t.root == "ROW":
        return replace(t, fields=_edited_fields(t.row_fields(), path, depth, edit))
    part = {"ARRAY": "element", "MULTISET": "element", "MAP": "value"}.get(t.root)
    if part is None:
        raise UsageError(f"'{'.'.join(path[:depth])}' is {type_to_sql(t)}", f"it has no field '{name}'")
    if name != part:
        if t.root == "MAP" and name == "key":
            raise NotSupported(f"changing the key of '{'.'.join(path[:depth])}'", "Paimon changes the values of a MAP only")
        raise UsageError(f"'{'.'.join(path[:depth])}' has no field '{name}'", f"inside {t.root} it is called '{part}'")
    inner = t.value if t.root == "MAP" else t.element
    if inner is None:
        raise ValueError(f"{t.root} without {part}")
    if depth + 1 < len(path):
        return _with_part(t, _edited_type(inner, path, depth + 1, edit))
    (changed,) = edit((DataField(_NO_ID, part, inner),), part)
    return _with_part(t, changed.type)


def _with_part(t: DataType, inner: DataType) -> DataType:
    return replace(t, value=inner) if t.root == "MAP" else replace(t, element=inner)


def is_named(field: DataField) -> bool:
    """False for what stands in for the elements of a list or the values of a map, which have a type and nothing else."""
    return field.id != _NO_ID
