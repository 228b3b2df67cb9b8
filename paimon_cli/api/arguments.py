"""Checks the arguments of the library's methods against their annotations, before a call does anything.

A method of a class with `@checks_arguments` raises `UsageError` for an argument of another type, such as `limit='x'`, instead of
an error from within. Checked are strings, numbers, booleans, times, mappings, sequences of these, functions, and classes of this
package; where a class is imported for type checkers only, plain values are refused. The keywords of a `TypedDict`
(`**options: Unpack[CompactOptions]`) are checked like parameters. Integers of numpy become plain ones, and paths become strings
where a string is expected. An error of the operating system becomes `StorageUnavailable`, a NUL character in a path `UsageError`.
"""

from __future__ import annotations

import builtins
import os
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cache, wraps
from inspect import Parameter, isfunction, signature
from numbers import Integral, Number, Real
from typing import Any, TypeVar

from paimon_cli.errors import UsageError, of_system

_MAX_SHOWN = 60
"""Characters of an argument that a message shows."""
_NUL_IN_PATH = "embedded null"
"""What all versions of Python say of a path with a NUL character."""
_DESCRIBED = {
    str: "a string",
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    datetime: "a datetime",
    os.PathLike: "a path",
    Sequence: "a list",
    Mapping: "a dict with strings as keys",
    Callable: "a function",
    type(None): "None",
}
Class = TypeVar("Class", bound=type)
Function = TypeVar("Function", bound=Callable[..., Any])


def checks_arguments(described: Class) -> Class:
    """Class decorator: check the arguments of the constructor and all public methods."""
    for name, member in list(vars(described).items()):
        if name.startswith("_") and name != "__init__":
            continue
        if isinstance(member, classmethod):
            setattr(described, name, classmethod(checks_call(member.__func__)))
        elif isfunction(member):
            setattr(described, name, checks_call(member))
    return described


def checks_call(function: Function) -> Function:
    """Decorator: check the arguments of a function."""

    @wraps(function)
    def checking(*positional: Any, **named: Any) -> Any:
        positional, named = _checked(function, positional, named)
        try:
            return function(*positional, **named)
        except ConnectionError:  # a closed pipe of the terminal, or a JVM that has ended
            raise
        except OSError as error:
            raise of_system(error) from error
        except ValueError as error:
            if _NUL_IN_PATH not in str(error):
                raise
            raise UsageError("a name or path holds a NUL character", "no file or directory can have such a name") from error

    return typing.cast(Function, checking)


def _checked(
    function: Callable[..., Any], positional: Sequence[Any], named: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments in the declared types. `positional` may have more than there are parameters, for Python to complain about.

    Raises `UsageError` for an argument of a wrong type, `TypeError` for a keyword that a `TypedDict` does not declare.
    """
    names, hints, takes_declared_keywords = _parameters(function)
    if takes_declared_keywords and (unknown := next((name for name in named if name not in hints), None)) is not None:
        raise TypeError(f"{function.__qualname__}() got an unexpected keyword argument '{unknown}'")
    known = [_converted(name, value, hints.get(name, Any)) for name, value in zip(names, positional, strict=False)]
    by_name = {name: _converted(name, value, hints.get(name, Any)) for name, value in named.items()}
    return (*known, *positional[len(known) :]), by_name


def _converted(name: str, value: Any, hint: Any) -> Any:
    """The value of a parameter in the declared type. Raises `UsageError` if it has another one."""
    types_of_hint = [typing.get_origin(part) or part for part in _parts(hint)]
    if int in types_of_hint and _fits(value, int):
        return int(value)
    if str in types_of_hint and os.PathLike not in types_of_hint and isinstance(value, os.PathLike):
        return os.fspath(value)
    if _fits(value, hint):
        return value
    shown = repr(value)
    if len(shown) > _MAX_SHOWN or "\n" in shown:
        shown = f"of type {type(value).__name__}"
    raise UsageError(f"--{name.replace('_', '-')} {shown}", f"it must be {_described(hint)}")


def _parts(hint: Any) -> Sequence[Any]:
    """The alternatives of a union, or the type itself."""
    return typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)


@cache
def _parameters(function: Callable[..., Any]) -> tuple[list[str], dict[str, Any], bool]:
    """The names of positional parameters, the types of all parameters, and whether a `TypedDict` declares further keywords."""
    parameters = signature(function).parameters.values()
    hints = typing.get_type_hints(function, localns=_Names(function.__module__))
    declared: dict[str, Any] = {}
    for keywords in (hints.pop(one.name, None) for one in parameters if one.kind is Parameter.VAR_KEYWORD):
        if typing.is_typeddict(keywords):
            declared = typing.get_type_hints(keywords, localns=_Names(keywords.__module__))
    positional = [one.name for one in parameters if one.kind is Parameter.POSITIONAL_OR_KEYWORD]
    return positional, {"self": Any, "cls": Any, **hints, **declared}, bool(declared)


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


class _Declared:
    """Stands for `Unpack`: the `TypedDict` itself."""

    def __class_getitem__(cls, keywords: Any) -> Any:
        return keywords


class _Names(dict[str, Any]):
    """The names that annotations of a module can use."""

    def __init__(self, module: str) -> None:
        super().__init__({**vars(builtins), **vars(sys.modules[module]), "Unpack": _Declared})

    def __missing__(self, name: str) -> type[_Other]:
        return type(name, (_Other,), {})


def _fits(value: Any, hint: Any) -> bool:
    """Whether the value has this type; True for types that are not plain."""
    origin = typing.get_origin(hint) or hint
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, part) for part in _parts(hint))
    if hint is None or hint is type(None):
        return value is None
    if origin is bool:
        return isinstance(value, bool) or type(value).__name__ in ("bool_", "bool")
    if origin in (int, float):
        return isinstance(value, Integral if origin is int else Real) and not isinstance(value, bool)
    if origin is Sequence:
        (element,) = typing.get_args(hint) or (Any,)
        is_list = isinstance(value, Iterable) and not isinstance(value, (str, bytes, Mapping))
        return is_list and (not isinstance(value, (list, tuple)) or all(_fits(one, element) for one in value))
    if origin is Mapping:
        key, _ = typing.get_args(hint) or (Any, Any)
        return isinstance(value, Mapping) and all(_fits(one, key) for one in value)
    if origin is Callable:
        return callable(value)
    if _is_other(origin):
        return not isinstance(value, (type(None), str, bytes, Number))
    if origin in (str, datetime, os.PathLike) or _is_class_of_package(origin):
        return isinstance(value, origin)
    return True


def _is_other(hint: Any) -> bool:
    return isinstance(hint, _Stand)


def _is_class_of_package(hint: Any) -> bool:
    if not isinstance(hint, type) or _is_other(hint) or getattr(hint, "_is_protocol", False):
        return False
    return hint.__module__.startswith("paimon_cli.")


def _described(hint: Any) -> str:
    named = [_description(typing.get_origin(part) or part) for part in _parts(hint)]
    return " or ".join(dict.fromkeys(filter(None, named)))


def _description(part: Any) -> str:
    if not _is_class_of_package(part) and not _is_other(part):
        return _DESCRIBED.get(part, "")
    return f"{'an' if part.__name__[0] in 'AEIOU' else 'a'} {part.__name__}"
