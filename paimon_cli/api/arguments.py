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
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

from paimon_cli.errors import UsageError, of_system

if TYPE_CHECKING:
    from paimon_cli.history.partition_spec import PartitionValues

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


Partitions = Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""One partition as a mapping of keys to values (None is null), or several; some of the keys select all matching partitions."""
Buckets = int | range | Sequence[int | range]
"""A bucket by its number, a range of them, or several of these."""


class Identity(TypedDict, total=False):
    """The identity of a commit. A commit with the same `commit_user` and `commit_id` is made only once, even if it is repeated.

    The identifiers of a user must increase: a commit is taken for repeated if a later one of its user was made.
    `assume_new`: commit even if it can no longer be determined whether the commit was already made.
    """

    commit_user: str | None
    commit_id: int | None
    assume_new: bool


def partition_list(partitions: Partitions | None) -> list[PartitionValues]:
    """Partitions with their values as texts; empty for None, which means all partitions.

    Raises `UsageError` for an empty selection, so that it is never mistaken for all partitions.
    """
    if partitions is None:
        return []
    several = [partitions] if isinstance(partitions, Mapping) else partitions
    if not several or not all(several):
        why = "an empty selection does not mean all partitions"
        raise UsageError("no partition is named", why, "name the keys and values of a partition, or omit the selection")
    for partition in several:
        if not isinstance(partition, Mapping):
            raise UsageError(f"--partition {partition!r}", "it must be a dict of keys and values, or a list of these")
    return [{key: None if value is None else str(value) for key, value in partition.items()} for partition in several]


def bucket_list(buckets: Buckets | None) -> list[int | range]:
    """Buckets by number; empty for None, which means all buckets.

    Raises `UsageError` for an empty selection, so that it is never mistaken for all buckets.
    """
    if buckets is None:
        return []
    several = list(buckets) if isinstance(buckets, Iterable) and not isinstance(buckets, (str, range)) else [buckets]
    if not several:
        why = "an empty selection does not mean all buckets"
        raise UsageError("no bucket is named", why, "name buckets by their numbers, or omit the selection")
    for bucket in several:
        if type(bucket) is bool or not isinstance(bucket, (Integral, range)):
            raise UsageError(f"--bucket {bucket!r}", "it must be a whole number, a range, or a list of these")
    return [bucket if isinstance(bucket, range) else int(bucket) for bucket in several]


def option_texts(options: Mapping[str, Any] | None) -> dict[str, str]:
    """Options as Paimon stores them: `true` for True. Raises `UsageError` for None, which is no value of any option."""
    for key, value in (options or {}).items():
        if value is None:
            raise UsageError(f"option {key}: None", "it is not the value of an option", "leave the option out")
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in (options or {}).items()}


def check_choice(option: str, value: str, choices: Sequence[str]) -> None:
    """Raise `UsageError` if the value is not among the choices of an option."""
    if value not in choices:
        raise UsageError(f"--{option} {value}", f"choose one of {', '.join(choices)}")


def check_names(given: Mapping[str, object], options: type) -> None:
    """Raise `TypeError` for a keyword that is not declared in the `TypedDict` of options."""
    for name in given.keys() - options.__annotations__.keys():
        raise TypeError(f"there is no option '{name}'; the options are {', '.join(options.__annotations__)}")


def check_positive(**numbers: int | None) -> None:
    """Raise `UsageError` for an option below 1; the keywords are the options' names in Python, None means not given."""
    for name, number in numbers.items():
        if number is not None and number < 1:
            raise UsageError(f"--{name.replace('_', '-')} {number}", "the minimum is 1")


def check_limit(limit: int | None) -> None:
    """Raise `UsageError` if the limit is not a number of rows."""
    if limit is not None and not 0 <= limit < 1 << 63:
        raise UsageError(f"--limit {limit}", "the number of rows cannot be negative" if limit < 0 else "the maximum is 2^63 - 1")
