"""The types of annotations, also of those that only type checkers import: classes that load what is expensive."""

from __future__ import annotations

import builtins
import sys
import typing
from functools import cache
from types import SimpleNamespace
from typing import Any


class _Stand(type):
    """The metaclass of `_Other`, for names in a module (`pa.Schema`) and for parameters (`Planned[...]`)."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (_Other,), {})

    def __getitem__(cls, parameters: Any) -> Any:
        return cls


class _Other(metaclass=_Stand):
    """Stands for a class that only type checkers import; every value that is not plain has this type."""


class _Names(dict[str, Any]):
    """The names that annotations of a module can use."""

    def __init__(self, module: str) -> None:
        super().__init__({**vars(builtins), **vars(sys.modules[module])})

    def __missing__(self, name: str) -> type[_Other]:
        return type(name, (_Other,), {})


def hints_of(annotated: Any, *, include_extras: bool = False) -> dict[str, Any]:
    """The types of the parameters of a function, or of the fields of a class and its bases, each in its own module."""
    if not isinstance(annotated, type):
        return typing.get_type_hints(annotated, localns=_Names(annotated.__module__), include_extras=include_extras)
    hints: dict[str, Any] = {}
    for part in reversed(annotated.__mro__):
        hints |= _own_hints(part, include_extras)
    return hints


@cache
def _own_hints(part: type, include_extras: bool) -> dict[str, Any]:
    """The types of the fields that a class itself declares; requests have their bases in common."""
    if not (written := vars(part).get("__annotations__")):
        return {}
    return typing.get_type_hints(SimpleNamespace(__annotations__=written), {}, _Names(part.__module__), include_extras)


def is_other(hint: Any) -> bool:
    """Whether the type stands for a class that only type checkers import."""
    return isinstance(hint, _Stand)
