"""Ids of a new table's columns and of the fields inside them, in Java's order (Java Schema.Builder, ReassignFieldId)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count

from paimon_cli.datatypes.data_type import DataField, DataType

Fields = tuple[DataField, ...]


def numbered(fields: Fields) -> tuple[Fields, int]:
    """The fields with ids of their own, whatever ids they came with, and the highest id (-1 without fields)."""
    ids = count()
    columns = tuple(replace(column, id=next(ids), type=_numbered_type(column.type, ids)) for column in fields)
    return columns, next(ids) - 1


def numbered_field(field: DataField, highest_id: int) -> tuple[DataField, int]:
    """A new column with ids behind the highest one so far, and the highest then."""
    ids = count(highest_id + 1)
    numbered_one = replace(field, id=next(ids), type=_numbered_type(field.type, ids))
    return numbered_one, next(ids) - 1


def _numbered_inside(field: DataField, ids: Iterator[int]) -> DataField:
    """Fields of a ROW get their id behind the fields inside them; columns of the table before."""
    data_type = _numbered_type(field.type, ids)
    return replace(field, id=next(ids), type=data_type)


def _numbered_type(data_type: DataType, ids: Iterator[int]) -> DataType:
    if data_type.fields is not None:
        return replace(data_type, fields=tuple(_numbered_inside(field, ids) for field in data_type.fields))
    element, key, value = (child and _numbered_type(child, ids) for child in (data_type.element, data_type.key, data_type.value))
    return replace(data_type, element=element, key=key, value=value)
