"""Checks the arguments of the library's methods against their annotations, before a call does anything.

A method of a class with `@checks_arguments` raises `UsageError` for an argument of another type, such as `limit='x'`, instead
of an error from within. Checked are strings, numbers, booleans, times, mappings, sequences of these, functions, and classes of
this package; where a class is imported for type checkers only, plain values are refused. The fields of a request (`takes`) are
checked like parameters. Integers of numpy become plain ones, and paths become strings where a string is expected. An error of
the operating system becomes `StorageUnavailable`, a NUL character in a path `UsageError`.
"""

from __future__ import annotations

import os
import re
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from functools import cache, wraps
from inspect import Parameter, Signature, isfunction, signature
from numbers import Integral, Number, Real
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

from paimon_cli.command_texts import in_python
from paimon_cli.errors import UsageError, of_system
from paimon_cli.options.option_text import did_you_mean, is_utf8, printable
from paimon_cli.requests.fields import declared
from paimon_cli.requests.hints import hints_of, is_other

_MAX_SHOWN = 60
"""Characters of an argument that a message shows."""
_NUL_IN_PATH = "embedded null"
"""What all versions of Python say of a path with a NUL character."""
_DESCRIBED = {
    str: "a string",
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    date: "a date",
    datetime: "a datetime",
    timedelta: "a timedelta",
    os.PathLike: "a path",
    Sequence: "a list",
    Mapping: "a dict with strings as keys",
    Callable: "a function",
    type(None): "None",
}
Class = TypeVar("Class", bound=type)
Function = TypeVar("Function", bound=Callable[..., Any])
Fields = ParamSpec("Fields")
Self = TypeVar("Self")
Second = TypeVar("Second")
Asked = TypeVar("Asked", covariant=True)
Done = TypeVar("Done")


class Takes(Protocol[Fields, Asked]):
    """A decorator for a method, or a function with two parameters, before the request."""

    @overload
    def __call__(self, method: Callable[[Self, Asked], Done]) -> Callable[Concatenate[Self, Fields], Done]: ...
    @overload
    def __call__(self, method: Callable[[Self, Second, Asked], Done]) -> Callable[Concatenate[Self, Second, Fields], Done]: ...


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

    Raises `UsageError` for an argument of a wrong type, `TypeError` for a keyword that a request does not declare.
    """
    names, hints, takes_request = _parameters(function)
    if takes_request and (unknown := next((name for name in named if name not in hints), None)) is not None:
        meant = did_you_mean(unknown, [name for name in hints if name != "return"]).strip()
        raise TypeError(f"{_called(function, positional)} got an unexpected keyword argument '{unknown}'. {meant}".rstrip(". "))
    known = [_converted(name, value, hints.get(name, Any)) for name, value in zip(names, positional, strict=False)]
    by_name = {name: _converted(name, value, hints.get(name, Any)) for name, value in named.items()}
    return (*known, *positional[len(known) :]), by_name


def _called(function: Callable[..., Any], positional: Sequence[Any]) -> str:
    """The function as the caller knows it: methods of `Table` stand in parts of it."""
    parts = function.__qualname__.split(".")
    is_method = len(parts) > 1 and bool(positional) and hasattr(type(positional[0]), parts[-1])
    return f"{type(positional[0]).__name__}.{parts[-1]}()" if is_method else f"{function.__qualname__}()"


def _converted(name: str, value: Any, hint: Any) -> Any:
    """The value of a parameter in the declared type. Raises `UsageError` if it has another one."""
    types_of_hint = [typing.get_origin(part) or part for part in _parts(hint)]
    if int in types_of_hint and _fits(value, int):
        return int(value)
    if str in types_of_hint and os.PathLike not in types_of_hint and isinstance(value, os.PathLike):
        return os.fspath(value)
    if _fits(value, hint):
        _check_texts(name, value)
        return value
    shown = repr(value)
    if len(shown) > _MAX_SHOWN or "\n" in shown:
        shown = f"of type {type(value).__name__}"
    raise UsageError(f"--{name.replace('_', '-')} {shown}", f"it must be {_described(hint)}")


def _check_texts(name: str, value: Any) -> None:
    """Raise `UsageError` for a text that is not UTF-8, which no table can store, unless it is the path of what exists."""
    if isinstance(value, str) and not is_utf8(value) and not os.path.lexists(value):
        what = f"--{name.replace('_', '-')} {printable(value)}"
        raise UsageError(what, "it has half of a surrogate pair, which is no character")
    if isinstance(value, Mapping):
        for text in (*value.keys(), *value.values()):
            _check_texts(name, text)


def _parts(hint: Any) -> Sequence[Any]:
    """The alternatives of a union, or the type itself."""
    return typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)


@cache
def _parameters(function: Callable[..., Any]) -> tuple[list[str], dict[str, Any], bool]:
    """The names of positional parameters, the types of all parameters, and whether those are of a request."""
    parameters = signature(function).parameters.values()
    positional = [one.name for one in parameters if one.kind is Parameter.POSITIONAL_OR_KEYWORD]
    if (request := getattr(function, "takes", None)) is not None:
        return positional, {"self": Any, **hints_of(function), **{field.name: field.type for field in declared(request)}}, True
    return positional, {"self": Any, "cls": Any, **hints_of(function)}, False


def takes(request: Callable[Fields, Asked]) -> Takes[Fields, Asked]:
    """Decorator of a function whose last parameter is a request.

    Callers give the fields of the request as arguments, which type checkers and `help` know.
    """
    asked: Any = request

    def decorate(method: Callable[..., Any]) -> Any:
        leading = list(signature(method).parameters)[:-1]

        @wraps(method)
        def call(*positional: Any, **named: Any) -> Any:
            first = [*positional[: len(leading)], *(named.pop(name) for name in leading[len(positional) :] if name in named)]
            try:
                request = asked(*positional[len(leading) :], **named)
            except TypeError as error:  # of the caller, who knows the method and not its request
                told = str(error).replace(f"{asked.__name__}()", _called(method, positional), 1)
                raise TypeError(told) from None
            return method(*first, request)

        described: Any = call
        described.takes, described.__signature__ = asked, _signature_of(asked, method)
        described.__doc__ = _documented(method.__doc__ or "", asked)
        return call

    return decorate


def _signature_of(request: Any, method: Callable[..., Any]) -> Signature:
    kinds = {True: Parameter.KEYWORD_ONLY, False: Parameter.POSITIONAL_OR_KEYWORD}
    fields = [
        Parameter(one.name, kinds[one.is_keyword], default=one.default_or(Parameter.empty), annotation=one.type)
        for one in declared(request)
    ]
    in_order = sorted(fields, key=lambda field: field.kind)
    leading = list(signature(method).parameters.values())[:-1]
    return Signature([*leading, *in_order], return_annotation=method.__annotations__["return"])


def _documented(text: str, request: Any) -> str:
    """The docstring of a function with the meaning of each option of its request."""
    indent = re.findall(r"\n +", text)[-1] if "\n" in text else "\n        "
    lines = [f"- `{one.name}`: {in_python(one.meaning)}." for one in declared(request) if one.meaning]
    return f"{text.rstrip()}\n{indent}{indent.join(lines)}{indent}"


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
        is_seen = isinstance(value, (list, tuple)) or (element is str and isinstance(value, Collection))
        return is_list and (not is_seen or all(_fits(one, element) for one in value))
    if origin is Mapping:
        key, _ = typing.get_args(hint) or (Any, Any)
        return isinstance(value, Mapping) and all(_fits(one, key) for one in value)
    if origin is Callable:
        return callable(value)
    if is_other(origin):
        return not isinstance(value, (type(None), str, bytes, Number))
    if origin in (str, date, datetime, timedelta, os.PathLike) or _is_class_of_package(origin):
        return isinstance(value, origin)
    return True


def _is_class_of_package(hint: Any) -> bool:
    if not isinstance(hint, type) or is_other(hint) or getattr(hint, "_is_protocol", False):
        return False
    return hint.__module__.startswith("paimon_cli.")


def _described(hint: Any) -> str:
    named = [_description(typing.get_origin(part) or part) for part in _parts(hint)]
    return " or ".join(dict.fromkeys(filter(None, named)))


def _description(part: Any) -> str:
    if not _is_class_of_package(part) and not is_other(part):
        return _DESCRIBED.get(part, "")
    return f"{'an' if part.__name__[0] in 'AEIOU' else 'a'} {part.__name__}"


def option_texts(options: Mapping[str, Any] | None) -> dict[str, str]:
    """Options as Paimon stores them: `true` for True. Raises `UsageError` for None, which is no value of any option."""
    for key, value in (options or {}).items():
        if value is None:
            raise UsageError(f"option {key}: None", "it is not the value of an option", "leave the option out")
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in (options or {}).items()}
