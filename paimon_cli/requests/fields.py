"""How the options of a request are declared, checked and parsed.

A class derived from `Request` is a frozen dataclass. A field with an `Option` is an option of the command, a keyword of the
library's method and a value for the job, all at once:

    max_buckets: Annotated[int | None, Option("Compact at most N buckets per table and round.", metavar="N", min=1)] = None
    max_bytes: Annotated[Size, Option("Read at most this much per table and round.")] = Size()

`Size` is a `Parsed`: the field takes a text such as `512 mb`, and holds the bytes. Whatever is given is parsed and checked when
the request is built, and nowhere else. Fields without an `Option` are for the library alone. This room loads nothing that is
expensive: the help of a command reads it.
"""

from __future__ import annotations

import typing
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, FrozenInstanceError, dataclass, fields
from datetime import date, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar, overload

from paimon_cli.errors import UsageError
from paimon_cli.options.option_text import parse_duration, parse_size, plain_number, split_buckets
from paimon_cli.requests.hints import hints_of
from paimon_cli.requests.selections import bucket_list, partition_list, split_partitions, text_of

if TYPE_CHECKING:
    from typing_extensions import Self, dataclass_transform
else:

    def dataclass_transform():
        """Typing has it since Python 3.11; only type checkers need it."""
        return lambda described: described


Given = TypeVar("Given")
Value = TypeVar("Value")
SourceFormat = Literal["parquet", "csv", "json", "orc", "arrow"]


@dataclass(frozen=True)
class Option:
    """What an option means: its help, which names options as on the command line.

    `library`: what the keyword means, if the help is only about the command line. `min`, `max`: the limits of a number.
    `flags`: its names, if they are not `--` and the name of the field. `tells_default`: the help says what the default is, and
    the command line leaves it to the library. `is_argument`: it is written without a flag. `written`: its type on the command
    line, if that differs.
    """

    help: str
    metavar: str | None = None
    min: int | None = None
    max: int | None = None
    panel: str | None = None
    flags: tuple[str, ...] = ()
    library: str = ""
    tells_default: bool = False
    is_argument: bool = False
    written: Any = None


class Parsed(Generic[Given, Value]):
    """The type of a field that takes what is `Given`, a text for example, and holds the parsed `Value`.

    It takes parsed values as well, so that a request can be copied with other fields.
    """

    metavar: ClassVar[str | None] = None
    written: ClassVar[Any] = str | None
    """The type on the command line: one text, or a list of texts for an option that may be repeated."""
    unit: ClassVar[str] = ""
    """What the library takes, in words."""

    def __init__(self, default: Given | None = None, *, is_required: bool = False) -> None:
        self._default = default
        self._is_required = is_required
        self._name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, request: None, owner: type) -> Given: ...
    @overload
    def __get__(self, request: object, owner: type) -> Value: ...
    def __get__(self, request: object | None, owner: type) -> Any:
        if request is None:
            if self._is_required:
                raise AttributeError(f"{self._name} has no default")  # so that a dataclass does not see one
            return self._default
        return vars(request)[self._name]

    def __set__(self, request: object, given: Given) -> None:
        vars(request)[self._name] = None if given is None else self.parse(given)

    def parse(self, given: Given) -> Value:
        """The value of what was given. Raises `UsageError`."""
        raise NotImplementedError

    @classmethod
    def read(cls, written: Any) -> Any:
        """What was written on the command line as the library takes it. Raises `UsageError`."""
        return written

    @classmethod
    def given(cls) -> Any:
        """The type of what is given."""
        return typing.get_args(next(base for base in cls.__orig_bases__ if typing.get_origin(base) is Parsed))[0]  # type: ignore[attr-defined]


class Size(Parsed[str | int | None, int | None]):
    """A size in bytes."""

    metavar, unit = "SIZE", "a size such as `512 mb`, or bytes"

    def parse(self, given: str | int | None) -> int | None:
        return parse_size(given) if isinstance(given, str) else given


class Time(Parsed[str | int | None, int | None]):
    """A duration in milliseconds."""

    metavar, unit = "TIME", "a time such as `10 min`, or milliseconds"

    def parse(self, given: str | int | None) -> int | None:
        return parse_duration(given) if isinstance(given, str) else given


Point = int | str | date | timedelta
"""A point in time as the library takes it: a snapshot id, what the command line takes, a date or datetime, or an age."""


MIN_MILLIS = 10**11
"""Smaller numbers are ids of snapshots, others milliseconds since 1970."""


class PointInTime(Parsed[int | str | date | timedelta | None, str | None]):
    """A point in time as text, which `history/points_in_time` reads: a time, unless it only can be a snapshot or a tag."""

    metavar = "TIME"
    unit = "an age such as `1d` or a timedelta, a date or datetime (UTC if it has no zone), a snapshot id, or a tag"

    def parse(self, given: Point | None) -> str | None:
        return point_text(given)


class VersionName(Parsed[int | str | date | timedelta | None, int | str | None]):
    """The id of a snapshot, or a text that names one: `history/points_in_time` reads it."""

    metavar, unit = "ID|TAG|TIME", "an id, a tag, or a time, for the newest snapshot at that time"

    def parse(self, given: Point | None) -> int | str | None:
        version = version_of(given)
        if isinstance(version, int) and version < 1:
            raise UsageError(f"{flag(self._name)} {version}", "the minimum is 1")
        return version


_AGES = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))
"""Units of ages, in milliseconds."""


def point_text(given: Point | None) -> str | None:
    """A point in time as it is written on the command line. A timedelta is an age, with or without a sign."""
    if isinstance(given, timedelta):
        millis = abs(given) // timedelta(milliseconds=1)
        size, unit = next(((size, unit) for size, unit in _AGES if millis and millis % size == 0), (1, "ms"))
        return f"{millis // size} {unit} ago"
    if isinstance(given, date):
        return given.isoformat()
    return None if given is None else str(given)


def version_of(given: Point | None) -> int | str | None:
    """The id of a snapshot as a number, everything else as text."""
    text = point_text(given)
    number = None if text is None else plain_number(text)
    return text if number is None or number >= MIN_MILLIS else number


class Names(Parsed[str | Sequence[str] | None, tuple[str, ...] | None]):
    """Names of columns, separated by commas in a text."""

    metavar, unit = "COLUMNS", "names in a list, or in a text separated by commas"

    def parse(self, given: str | Sequence[str] | None) -> tuple[str, ...]:
        if isinstance(given, str):
            return tuple(name.strip() for name in given.split(",") if name.strip())
        return tuple(() if given is None else given)


class Texts(Parsed[str | Sequence[str] | None, tuple[str, ...] | None]):
    """One text or several."""

    written, unit = list[str] | None, "one, or a list"

    def parse(self, given: str | Sequence[str] | None) -> tuple[str, ...]:
        return (given,) if isinstance(given, str) else tuple(() if given is None else given)


class Partitions(
    Parsed[Mapping[str, Any] | Sequence[Mapping[str, Any]] | None, tuple[Mapping[str, str | None], ...] | None],
):
    """Chosen partitions with their values as texts; None for all."""

    metavar, written, unit = "KEY=VALUE[,...]", list[str] | None, 'such as `{"dt": "2026-11-20"}`, or a list of these'

    def parse(self, given: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None) -> tuple[Mapping[str, str | None], ...]:
        return tuple(partition_list(given))

    @classmethod
    def read(cls, written: Any) -> Any:
        return split_partitions(written)


class Key(Parsed[Mapping[str, Any] | None, Mapping[str, str | None] | None]):
    """A primary key, or a part of one, by column."""

    metavar, written, unit = "COLUMN=VALUE[,...]", list[str] | None, 'such as `{"id": 7}`'

    def parse(self, given: Mapping[str, Any] | None) -> Mapping[str, str | None] | None:
        return None if given is None else {name: text_of(value) for name, value in given.items()}

    @classmethod
    def read(cls, written: Any) -> Any:
        keys = split_partitions(written, "--key") or []
        if len(keys) > 1:
            raise UsageError("one key at a time", "a column is given twice")
        return keys[0] if keys else None


class Buckets(Parsed[int | range | Sequence[int | range] | None, tuple[int | range, ...] | None]):
    """Chosen buckets by number; None for all."""

    metavar, written, unit = "N[-M][,...]", list[str] | None, "a number, a `range`, or a list of these"

    def parse(self, given: int | range | Sequence[int | range] | None) -> tuple[int | range, ...]:
        return tuple(bucket_list(given))

    @classmethod
    def read(cls, written: Any) -> Any:
        return split_buckets(written)


@dataclass(frozen=True)
class Declared:
    """A field of a request. `type`: that of what is given. `option`: None for a field of the library alone."""

    name: str
    type: Any
    default: Any
    is_keyword: bool
    option: Option | None = None
    parsed: type[Parsed[Any, Any]] | None = None

    @property
    def is_required(self) -> bool:
        return self.default is MISSING

    def default_or(self, otherwise: Any) -> Any:
        return otherwise if self.is_required else self.default

    @property
    def flags(self) -> tuple[str, ...]:
        """The names of the option on the command line."""
        return self.option.flags if self.option is not None and self.option.flags else (flag(self.name),)

    @property
    def choices(self) -> tuple[str, ...]:
        """The texts of a `Literal`."""
        parts = (self.type, *typing.get_args(self.type))
        return next((typing.get_args(part) for part in parts if typing.get_origin(part) is Literal), ())

    @property
    def meaning(self) -> str:
        """What the keyword means, for readers of the library; options are named as on the command line."""
        if self.option is None:
            return ""
        text = (self.option.library or self.option.help).rstrip(".")
        return f"{text} ({self.parsed.unit})" if self.parsed is not None and self.parsed.unit else text


@cache
def declared(request: Any) -> tuple[Declared, ...]:
    """The fields of a request."""
    hints = hints_of(request, include_extras=True)
    return tuple(_declared(field, hints[field.name]) for field in fields(request))


def _declared(field: Any, hint: Any) -> Declared:
    notes: tuple[Any, ...] = ()
    if typing.get_origin(hint) is typing.Annotated:
        hint, *rest = typing.get_args(hint)
        notes = tuple(rest)
    option = next((note for note in notes if isinstance(note, Option)), None)
    parsed = hint if isinstance(hint, type) and issubclass(hint, Parsed) else None
    given = hint if parsed is None else parsed.given()
    if parsed is not None and field.default is MISSING:
        given = typing.Union[tuple(part for part in typing.get_args(given) if part is not type(None))]  # noqa: UP007
    return Declared(field.name, given, field.default, field.kw_only, option, parsed)


@cache
def _limited(request: Any) -> tuple[tuple[str, tuple[str, ...], int | None, int | None], ...]:
    """The fields with choices, or with a smallest or greatest number."""
    found = ((one.name, one.choices, one.option or Option("")) for one in declared(request))
    limited = ((name, choices, option.min, option.max) for name, choices, option in found)
    return tuple(one for one in limited if one[1:] != ((), None, None))


@dataclass_transform()
class Request:
    """The base of requests. Raises `UsageError` when it is built with a value that an option cannot have.

    Type checkers are not told that requests are frozen: mypy forgets what a `Parsed` holds in a class derived from a frozen one.
    """

    def __init_subclass__(cls) -> None:
        """Collect the fields. The methods are those below: code that is generated for each class would cost each start 15 ms."""
        dataclass(init=False, repr=False, eq=False, match_args=False)(cls)

    if not TYPE_CHECKING:

        def __init__(self, *positional, **named):
            own = fields(type(self))
            places = [field.name for field in own if not field.kw_only]
            given = dict(zip(places, positional, strict=False)) | named
            what = f"{type(self).__name__}()"
            if len(positional) > len(places) or given.keys() & named.keys() & set(places[: len(positional)]):
                raise TypeError(f"{what} takes {len(places)} positional arguments, each once")
            for field in own:
                if field.name not in given and field.default is MISSING:
                    raise TypeError(f"{what} missing the argument '{field.name}'")
                object.__setattr__(self, field.name, given.pop(field.name, field.default))
            for name in given:
                raise TypeError(f"{what} got an unexpected keyword argument '{name}'")
            self._check_values()

        def __setattr__(self, name, value):
            raise FrozenInstanceError(f"cannot assign to field '{name}'")

        def __delattr__(self, name):
            raise FrozenInstanceError(f"cannot delete field '{name}'")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(tuple(vars(self).values()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"

    def _check_values(self) -> None:
        described: Any = type(self)
        for name, choices, least, most in _limited(described):
            value = vars(self)[name]
            if value is not None and choices:
                check_choice(name, value, choices)
            elif value is not None and least is not None and value < least:
                raise UsageError(f"{flag(name)} {value}", f"the minimum is {least}")
            elif value is not None and most is not None and value > most:
                raise UsageError(f"{flag(name)} {value}", f"the maximum is {most}")
        self.check()

    def check(self) -> None:
        """Raise `UsageError` for options that contradict each other."""

    @classmethod
    def of(cls, other: Request, **more: Any) -> Self:
        """A request of this class with the fields of another one that it shares, and `more`."""
        given, described = vars(other), typing.cast(Any, cls)
        return cls(**{one.name: given[one.name] for one in declared(described) if one.name in given} | more)


def flag(name: str) -> str:
    """The option of a keyword on the command line, which errors name."""
    return f"--{name.replace('_', '-')}"


def check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    """Raise `UsageError` if the value is not among the choices of an option."""
    if value not in choices:
        raise UsageError(f"{flag(name)} {value}", f"choose one of {', '.join(choices)}")


def check_positive(**numbers: int | None) -> None:
    """Raise `UsageError` for an option below 1; the keywords are the options' names in Python, None means not given."""
    for name, number in numbers.items():
        if number is not None and number < 1:
            raise UsageError(f"{flag(name)} {number}", "the minimum is 1")


def check_limit(limit: int | None) -> None:
    """Raise `UsageError` if the limit is not a number of rows."""
    if limit is not None and not 0 <= limit < 1 << 63:
        raise UsageError(f"--limit {limit}", "the number of rows cannot be negative" if limit < 0 else "the maximum is 2^63 - 1")
