"""Ids of a new table's columns, nested fields included: depth first from 0, a field before those in it (Java ReassignFieldId)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count, repeat

from paimon_cli.datatypes.field_types import DataField, DataType
from paimon_cli.errors import UsageError

UNNUMBERED = -1
"""Id of a field that has none yet."""

Fields = tuple[DataField, ...]


def unnumbered(fields: Fields) -> Fields:
    """The fields without their ids."""
    return _renumber(fields, repeat(UNNUMBERED))


def numbered(fields: Fields) -> Fields:
    """Fields with ids of their own keep them, others get theirs. UsageError when some have ids and others none, or ids repeat."""
    ids = list(all_ids(fields))
    if all(i == UNNUMBERED for i in ids):
        return _renumber(fields, count())
    if UNNUMBERED in ids:
        raise UsageError("some fields have an id and others none", hint="give every field an id, nested ones too, or none")
    if len(set(ids)) < len(ids) or min(ids) < 0:
        raise UsageError("field ids are not unique numbers from 0", hint="leave all ids out to have the fields numbered")
    return fields


def all_ids(fields: Fields) -> Iterator[int]:
    for column in fields:
        yield column.id
        yield from _ids_of_type(column.type)


def _ids_of_type(data_type: DataType) -> Iterator[int]:
    yield from all_ids(data_type.fields or ())
    for child in (data_type.element, data_type.key, data_type.value):
        if child is not None:
            yield from _ids_of_type(child)


def _renumber(fields: Fields, ids: Iterator[int]) -> Fields:
    return tuple(replace(column, id=next(ids), type=_renumber_type(column.type, ids)) for column in fields)


def _renumber_type(data_type: DataType, ids: Iterator[int]) -> DataType:
    if data_type.fields is not None:
        return replace(data_type, fields=_renumber(data_type.fields, ids))
    element, key, value = (child and _renumber_type(child, ids) for child in (data_type.element, data_type.key, data_type.value))
    return replace(data_type, element=element, key=key, value=value)
