"""Parses values of options: numbers, sizes, durations, choices and lists (Java MemorySize, TimeUtils).

Also formats sizes and counts for people, `14.2 MB`, `1 file`, and values for programs: JSON.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Generic, TypeVar

from paimon_cli.errors import BadOption, UsageError

_AMOUNT = re.compile(r"\s*([0-9]+)\s*([^\s0-9]*)\s*")
_DECIMAL = re.compile(r"\s*[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?\s*", re.ASCII)
_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,19}", re.ASCII)
_MAX_LONG = 2**63 - 1
_BUCKETS = re.compile(r"(-?\d{1,9})(?:-(\d{1,9}))?", re.ASCII)
_MOST_BUCKETS = 1 << 20

_BYTES = {
    1: ("", "b", "bytes"),
    2**10: ("k", "kb", "kibibytes"),
    2**20: ("m", "mb", "mebibytes"),
    2**30: ("g", "gb", "gibibytes"),
    2**40: ("t", "tb", "tebibytes"),
}
_SHOWN_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")
_NANOS = {
    1: ("ns", "nano", "nanos", "nanosecond", "nanoseconds"),
    10**3: ("µs", "us", "micro", "micros", "microsecond", "microseconds"),
    10**6: ("", "ms", "milli", "millis", "millisecond", "milliseconds"),
    10**9: ("s", "sec", "secs", "second", "seconds"),
    60 * 10**9: ("m", "min", "minute", "minutes"),
    3600 * 10**9: ("h", "hour", "hours"),
    86400 * 10**9: ("d", "day", "days"),
}
_SIZE_UNITS = {unit: factor for factor, units in _BYTES.items() for unit in units}
_SHOWN_DURATIONS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"))
_DURATION_UNITS = {unit: factor for factor, units in _NANOS.items() for unit in units}


def plain_number(text: str) -> int | None:
    """A 64-bit integer in ASCII digits, without regard to surrounding whitespace; None for any other text.

    `str.isdigit` and `isdecimal` do not guard `int`, which fails for `²`, and for thousands of digits.
    """
    found = _WHOLE_NUMBER.fullmatch(text.strip())
    number = int(found[0]) if found else None
    return number if number is not None and -_MAX_LONG - 1 <= number <= _MAX_LONG else None


def parse_size(text: str) -> int:
    """A size in bytes. Units are powers of 1024; a number without unit is bytes. Raises `UsageError`."""
    number = _scaled(text, _SIZE_UNITS)
    if number is None or number > _MAX_LONG:
        hint = "write sizes like 128 mb, 1 gb or 500 b"
        raise UsageError(f"cannot parse the size '{text}'", "a size is a whole number and a unit", hint)
    return number


def parse_duration(text: str) -> int:
    """A duration in whole milliseconds, rounded down; a number without unit is milliseconds. Raises `UsageError`."""
    nanos = _scaled(text, _DURATION_UNITS)
    if nanos is None or nanos // 10**6 > _MAX_LONG:
        hint = "write durations like 1 h, 10 s or 500 ms"
        raise UsageError(f"cannot parse the duration '{text}'", "a duration is a whole number and a unit", hint)
    return nanos // 10**6


def duration_text(millis: int) -> str:
    """The duration in the largest unit in which it is a whole number, as `parse_duration` reads it: 5 d, 90 s."""
    factor, unit = next((each for each in _SHOWN_DURATIONS if millis and not millis % each[0]), (1, "ms"))
    return f"{millis // factor} {unit}"


def _scaled(text: str, units: dict[str, int]) -> int | None:
    amount = _AMOUNT.fullmatch(text)
    number, factor = (plain_number(amount[1]), units.get(amount[2].lower())) if amount else (None, None)
    return None if number is None or factor is None else number * factor


def human_size(size_bytes: int) -> str:
    """14.2 MB, 410 kB: units are powers of 1024, as in `parse_size`, so that an option of 100 gb is shown as 100 GB."""
    size, unit = float(size_bytes), 0
    while size >= 1023.5 and unit < len(_SHOWN_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    digits = 1 if unit and size < 99.95 else 0
    return f"{size:.{digits}f} {_SHOWN_UNITS[unit]}"


def counted(number: int, noun: str) -> str:
    """The number with its noun, as in `1 file` and `1,200 files`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


TERMINAL_CONTROLS = "\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
"""Characters, as ranges of a regular expression, that JSON need not escape: DEL, the C1 controls, those that end a line for
some readers of JSON lines, and those that change the direction of text, so that a terminal shows other words than there are."""
_TERMINAL_CONTROL = re.compile(f"[{TERMINAL_CONTROLS}]")


def json_text(value: Any, indent: int | None = None, separators: tuple[str, str] | None = None) -> str:
    """The value as JSON, with characters that control a terminal escaped."""
    return without_controls(json.dumps(value, ensure_ascii=False, indent=indent, separators=separators))


def without_controls(json_text: str) -> str:
    r"""JSON with the same content, in which characters that control a terminal are escaped: `\u009b`."""
    return _TERMINAL_CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", json_text)


_LOCATION = re.compile(r"file:/+[^/].*|[A-Za-z][A-Za-z0-9+.-]*://[^/].*", re.DOTALL)

T = TypeVar("T")


def read_option(key: str, text: str, read: Callable[[str], T]) -> T:
    """`read(text)`. Raises `UsageError`, naming the option, if the text is not a valid value."""
    try:
        return read(text)
    except ValueError as error:
        raise _invalid(key, text, str(error)) from None
    except UsageError as error:
        raise _invalid(key, text, error.hint or error.why) from None


def _invalid(key: str, text: str, allowed: str) -> BadOption:
    return BadOption(
        f"option '{key}' cannot be '{text}'", f"allowed: {allowed}", f"set {key} to an allowed value", key=key, value=text
    )


@dataclass(frozen=True, eq=False)
class TypedOption(Generic[T]):
    """Declares one option: its value is set under `key` or an older key, else it is `default`, possibly computed from others.

    `TableOptions` stores valid values as plain attributes, which take precedence. For an invalid value it stores none, so that
    reading the attribute calls this descriptor, which raises `UsageError` with the key, the value and what is allowed.
    """

    key: str
    default: T | Callable[[Any], T]
    read: Callable[[str], T]
    older_keys: tuple[str, ...] = ()

    def __get__(self, options: Any, owner: type[object] | None = None) -> T:
        for key in (self.key, *self.older_keys):
            if key in options.raw:
                try:
                    return read_option(key, options.raw[key], self.read)
                except BadOption as error:
                    options.explain(error)
                    raise
        return self.default(options) if callable(self.default) else self.default


def text(value: str) -> str:
    """Any text."""
    return value


def part_of_file_name(value: str) -> str:
    """A text without a slash: with one, the files of a table could lie outside of it."""
    if "/" in value or "\0" in value or not is_utf8(value):
        raise ValueError("part of a file name, without /")
    return value


def inner_directory(value: str) -> str:
    """A relative directory that does not lead upwards."""
    if "://" in value or "\0" in value or ".." in value.split("/"):
        raise ValueError("a directory below the table, without ..")
    return value.strip("/")


def locations(value: str) -> tuple[str, ...]:
    """URLs with a scheme, separated by commas, without trailing slashes. `file:///a` becomes `file:/a`, as Java writes it."""
    found = tuple(entry.strip().rstrip("/") for entry in value.split(",") if entry.strip())
    if any(not _LOCATION.fullmatch(entry) or ".." in entry.split("/") or "\\" in entry or "\0" in entry for entry in found):
        raise ValueError("URLs with a scheme, such as s3://bucket/data or file:/data, separated by commas")
    return tuple(re.sub("^file:/+", "file:/", entry) for entry in found)


def weights(value: str) -> tuple[int, ...]:
    """Whole numbers from 1, separated by commas."""
    return tuple(integer(1)(entry) for entry in value.split(",") if entry.strip())


def boolean(value: str) -> bool:
    """`true` or `false` in any case."""
    lowered = value.strip().lower()
    if lowered not in ("true", "false"):
        raise ValueError("true or false")
    return lowered == "true"


def integer(low: int, high: int = 2**31 - 1) -> Callable[[str], int]:
    """A parser of whole numbers from `low` to `high`, both included."""

    def read(value: str) -> int:
        text = value.strip()
        number = plain_number(text[1:] if re.match(r"\+[0-9]", text) else text)
        if number is None or not low <= number <= high:
            raise ValueError(f"a whole number from {low} to {high}")
        return number

    return read


def number(value: str) -> float:
    """A decimal number, as `Double.parseDouble` of Java reads it, except for `Infinity` and `NaN`."""
    if not _DECIMAL.fullmatch(value):
        raise ValueError("a number such as 0.5")
    return float(value)


def share(value: str) -> float:
    """A fraction, from 0 to 1."""
    if not _DECIMAL.fullmatch(value) or not 0.0 <= float(value) <= 1.0:
        raise ValueError("a number from 0 to 1")
    return float(value)


def one_of(*choices: str) -> Callable[[str], str]:
    """A parser of one of the lower-case `choices`, without regard to case."""

    def read(value: str) -> str:
        if value.strip().lower() not in choices:
            raise ValueError(", ".join(choices))
        return value.strip().lower()

    return read


def one_in(named: Mapping[str, T]) -> Callable[[str], T]:
    """A parser of the lower-case names of these values, without regard to case."""
    read_name = one_of(*named)
    return lambda value: named[read_name(value)]


LONGEST_NAME = 256
"""Longer texts are no names that somebody mistyped; the time of a comparison grows with their product."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that was probably meant: the same letters in another case, or else a similar name; None without one."""
    candidates = [candidate for candidate in known if len(candidate) <= LONGEST_NAME]
    if len(name) > LONGEST_NAME:
        return None
    same_letters = [candidate for candidate in candidates if candidate.lower() == name.lower()]
    return next(iter(same_letters or get_close_matches(name, candidates, 1)), None)


def did_you_mean(name: str, known: Iterable[str], before: str = "", after: str = "") -> str:
    """The question that begins a hint, `did you mean 'item'? `; empty if no known name is similar.

    `name` is never the answer, even if it is known: something else was wrong with it. `before`, `after`: what the answer needs
    around it, such as the database of a table.
    """
    found = nearest(name, (candidate for candidate in known if candidate != name))
    return "" if found is None else f"did you mean {in_quotes(f'{before}{found}{after}')}? "


def in_quotes(name: str) -> str:
    """The name as an argument that can be pasted, always in quotes."""
    return f"'{name}'" if "'" not in name else shlex.quote(name)


def names(value: str) -> tuple[str, ...]:
    """Column names separated by commas."""
    return tuple(name.strip() for name in value.split(",") if name.strip())


def split_buckets(texts: Iterable[str] | None) -> list[int | range] | None:
    """Parse `['3', '0-999,5']` as a number, a range and a number; nothing as None, which selects all. Raises `UsageError`."""
    found: list[int | range] = []
    for text in (part.strip() for given in texts or () for part in given.split(",")):
        match = _BUCKETS.fullmatch(text)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, -1)
        if match is None or last < first:
            raise UsageError(f"--bucket {text} is neither a bucket nor a range", hint="write --bucket 7, or --bucket 0-999")
        if last >= _MOST_BUCKETS:
            raise UsageError(f"--bucket {text} is too high", f"no table has more than {_MOST_BUCKETS:,} buckets")
        found.append(range(first, last + 1) if match[2] else first)
    return found or None


def per_level(value: str) -> dict[int, str]:
    """`0:avro,3:orc` as a mapping from level to text."""
    pairs = [item.split(":", 1) for item in value.split(",") if item.strip()]
    numbered = [(plain_number(pair[0]), pair[-1].strip()) for pair in pairs if len(pair) == 2]
    found = {level: item for level, item in numbered if level is not None and level >= 0}
    if len(numbered) < len(pairs) or len(found) < len({pair[0].strip() for pair in pairs}):
        raise ValueError("pairs of level and value, such as 0:avro,3:orc")
    return found


MAX_QUOTED = 200
"""The most characters of a text of the user that a message quotes."""


def shortened(text: str) -> str:
    """The text, or its beginning and an ellipsis if it is too long to be quoted whole."""
    return text if len(text) <= MAX_QUOTED else f"{text[: MAX_QUOTED - 3]}..."


def is_utf8(text: str) -> bool:
    """Whether a text has no half of a surrogate pair. JSON can have an escape of one, and Python makes halves of bytes in names
    of files and arguments that are not UTF-8.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def printable(text: str) -> str:
    """Text with control characters and line breaks escaped, so that values cannot control a terminal or add lines."""
    return text if text.isprintable() else "".join(c if c.isprintable() else _spelled(c) for c in text)


def _spelled(character: str) -> str:
    return " " if character.isspace() and ord(character) > 127 else repr(character)[1:-1]
