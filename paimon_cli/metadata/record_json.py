"""Frozen dataclasses as JSON values and back, exactly, by the types of their fields: bytes as hex, tuples as lists."""

from __future__ import annotations

import dataclasses
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")


def record_to_json(value: Any) -> Any:
    """What `json.dumps` takes, for dataclasses of bool, int, str, bytes, None, tuples and dataclasses."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: record_to_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, tuple):
        return [record_to_json(item) for item in value]
    if isinstance(value, bytes):
        return value.hex()
    if value is None or isinstance(value, (bool, int, str)):
        return value
    raise TypeError(f"a {type(value).__name__} cannot be part of a record")


def record_from_json(kind: type[T], content: Any) -> T:
    """The record again. `ValueError` names the field that is missing, unknown or of another type."""
    return _record(kind, content, kind.__name__)


def _record(kind: type[T], content: Any, place: str) -> T:
    if not isinstance(content, dict):
        raise ValueError(f"{place} must be an object, found {_brief(content)}")
    types = get_type_hints(kind)
    names = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    for name in (*names, *content):
        if name not in content or name not in names:
            raise ValueError(f"{place} {'lacks' if name in names else 'has an unknown'} '{name}'")
    return kind(**{name: _value(types[name], content[name], f"{place}.{name}") for name in names})


def _value(kind: Any, content: Any, place: str) -> Any:
    if isinstance(kind, UnionType):
        known = next(part for part in get_args(kind) if part is not type(None))
        return None if content is None else _value(known, content, place)
    if get_origin(kind) is tuple:
        if not isinstance(content, list):
            raise ValueError(f"{place} must be a list, found {_brief(content)}")
        return tuple(_value(get_args(kind)[0], item, f"{place}[{number}]") for number, item in enumerate(content))
    if dataclasses.is_dataclass(kind):
        return _record(kind, content, place)  # type: ignore[arg-type]
    if kind is bytes:
        return _bytes(content, place)
    if type(content) is not kind:
        raise ValueError(f"{place} must be of type {kind.__name__}, found {_brief(content)}")
    return content


def _bytes(content: Any, place: str) -> bytes:
    try:
        found = bytes.fromhex(content)
    except (TypeError, ValueError):
        found = b""
    if found.hex() != content:
        raise ValueError(f"{place} must be bytes as hex digits, found {_brief(content)}")
    return found


def _brief(content: Any) -> str:
    text = repr(content)
    return text if len(text) <= 40 else text[:39] + "…"
