"""Typed options: key, default, and a reader of the text whose error names the allowed values."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from paimon_cli.errors import UsageError
from paimon_cli.options.size_and_duration import parse_duration, parse_size, plain_number

T = TypeVar("T")


class HasOptions(Protocol):
    """What a `TypedOption` reads from."""

    @property
    def raw(self) -> Mapping[str, str]: ...


@dataclass(frozen=True)
class TypedOption(Generic[T]):
    """Descriptor of one option: the value set under `key` or an older key, else `default`.

    Reading a text that does not fit raises `UsageError` with key, value and what is allowed.
    """

    key: str
    default: T
    read: Callable[[str], T]
    older_keys: tuple[str, ...] = ()

    def __get__(self, instance: HasOptions, owner: type[object] | None = None) -> T:
        for key in (self.key, *self.older_keys):
            if key in instance.raw:
                return read_option(key, instance.raw[key], self.read)
        return self.default


def read_option(key: str, text: str, read: Callable[[str], T]) -> T:
    """`read(text)`; a failure names the option."""
    try:
        return read(text)
    except ValueError as error:
        raise _invalid(key, text, str(error)) from None
    except UsageError as error:
        raise _invalid(key, text, error.hint or error.why) from None


def _invalid(key: str, text: str, allowed: str) -> UsageError:
    return UsageError(
        f"option '{key}' cannot be '{text}'", f"allowed: {allowed}", f"set {key} to an allowed value", key=key, value=text
    )


def text(value: str) -> str:
    """Any text."""
    return value


def boolean(value: str) -> bool:
    """`true` or `false` in any case."""
    lowered = value.strip().lower()
    if lowered not in ("true", "false"):
        raise ValueError("true or false")
    return lowered == "true"


def whole_number(low: int, high: int = 2**31 - 1) -> Callable[[str], int]:
    """Reader of whole numbers from `low` to `high`."""

    def read(value: str) -> int:
        text = value.strip()
        number = plain_number(text[1:] if re.match(r"\+[0-9]", text) else text)
        if number is None or not low <= number <= high:
            raise ValueError(f"a whole number from {low} to {high}")
        return number

    return read


def share(value: str) -> float:
    """A number from 0 to 1."""
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not 0.0 <= number <= 1.0:
        raise ValueError("a number from 0 to 1")
    return number


def one_of(*choices: str) -> Callable[[str], str]:
    """Reader of one of `choices`, given in any case."""

    def read(value: str) -> str:
        if value.strip().lower() not in choices:
            raise ValueError(", ".join(choices))
        return value.strip().lower()

    return read


def names(value: str) -> tuple[str, ...]:
    """Column names separated by commas."""
    return tuple(name.strip() for name in value.split(",") if name.strip())


def per_level(value: str) -> dict[int, str]:
    """`0:avro,3:orc` as a mapping from level to text."""
    pairs = [item.split(":", 1) for item in value.split(",") if item.strip()]
    numbered = [(plain_number(pair[0]), pair[-1].strip()) for pair in pairs if len(pair) == 2]
    found = {level: item for level, item in numbered if level is not None and level >= 0}
    if len(numbered) < len(pairs) or len(found) < len({pair[0].strip() for pair in pairs}):
        raise ValueError("pairs of level and value, such as 0:avro,3:orc")
    return found


def optional(read: Callable[[str], T]) -> Callable[[str], T | None]:
    """A reader for an option without a default."""
    return read


size = parse_size
duration = parse_duration
