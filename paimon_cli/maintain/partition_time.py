"""The time that the values of a partition stand for (FORMAT.md, section 13.6; Java PartitionTimeExtractor)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from paimon_cli.datatypes.internal_values import MILLIS_OF_DAY, epoch_day
from paimon_cli.errors import UsageError

_DEFAULT = re.compile(r"([+-]?\d{1,10})-(\d{1,2})-(\d{1,2})(?: (\d{1,2}):(\d{1,2}):(\d{1,2})(?:\.(\d{1,9}))?)?", re.ASCII)
_LETTERS = {"y": "year", "u": "year", "M": "month", "d": "day", "H": "hour", "m": "minute", "s": "second", "S": "fraction"}
_PARTS = ("year", "month", "day", "hour", "minute", "second")
_YEARS = {1: r"(?P<year>\d{1,9})", 2: r"(?P<year_of_2000>\d{2})", 3: r"(?P<year>\d{3,9})"}
"""Years by the number of their letters, as Java's `DateTimeFormatter` reads them; longer ones have that many digits."""
_TOKEN = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|(.)", re.DOTALL)


@dataclass(frozen=True)
class PartitionTime:
    """`pattern`: text with `$key` for values, else the first value; `formatter`: a Java date pattern, else ISO-like texts."""

    pattern: str | None = None
    formatter: str | None = None

    def millis(self, keys: Sequence[str], values: Sequence[str | None]) -> int | None:
        """Wall clock in millis as if it were UTC; None for nulls and what is no time. `UsageError` for an unknown formatter."""
        if any(value is None for value in values):
            return None
        texts = [str(value) for value in values]
        text = texts[0] if self.pattern is None else _replaced(self.pattern, keys, texts)
        return _default_time(text) if self.formatter is None else _formatted_time(text, self.formatter)


def _replaced(pattern: str, keys: Sequence[str], values: Sequence[str]) -> str:
    """Longer keys first, so that `$dt` does not take the beginning of `$dt1`."""
    by_name = dict(zip(keys, values, strict=True))
    names = "|".join(re.escape(key) for key in sorted(keys, key=len, reverse=True))
    return re.sub(rf"\$({names})", lambda match: by_name[match[1]], pattern)


def _default_time(text: str) -> int | None:
    match = _DEFAULT.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
    return _lenient(year, month, day, hour, minute, second, match[7])


def _formatted_time(text: str, formatter: str) -> int | None:
    match = _expression(formatter).fullmatch(text)
    if match is None:
        return None
    parts = match.groupdict()
    if "year_of_2000" in parts:
        parts["year"] = f"20{parts['year_of_2000']}"
    if not {"year", "month", "day"} <= parts.keys() or not (1 <= int(parts["month"]) <= 12 and 1 <= int(parts["day"]) <= 31):
        return None
    year, month, day, hour, minute, second = (int(parts.get(name) or 0) for name in _PARTS)
    return _lenient(year, month, day, hour, minute, second, parts.get("fraction"))


def _lenient(year: int, month: int, day: int, hour: int, minute: int, second: int, fraction: str | None) -> int:
    """Days and hours beyond their ends run over into the next, as Java's lenient style has it."""
    carried, month = divmod(month - 1, 12)
    first = epoch_day(year + carried, month + 1, 1)
    seconds = (hour * 60 + minute) * 60 + second
    return (first + day - 1) * MILLIS_OF_DAY + seconds * 1000 + int((fraction or "").ljust(3, "0")[:3])


@cache
def _expression(formatter: str) -> re.Pattern[str]:
    """The regular expression of a Java pattern such as `yyyyMMdd HH`."""
    found: list[str] = []
    for match in _TOKEN.finditer(formatter):
        letters = match[0]
        if match[2] is None:
            found.append(re.escape(letters if match[1] is None else match[1].replace("''", "'") or "'"))
        elif match[2] not in _LETTERS or f"(?P<{_LETTERS[match[2]]}" in "".join(found):
            raise UsageError(f"partition.timestamp-formatter '{formatter}' is not supported", f"'{letters}' is not understood")
        elif match[2] in "yu":
            found.append(_YEARS.get(len(letters), rf"(?P<year>\d{{{len(letters)}}})"))
        else:
            digits = rf"\d{{{len(letters)}}}" if len(letters) > 1 or match[2] == "S" else r"\d{1,2}"
            found.append(f"(?P<{_LETTERS[match[2]]}>{digits})")
    return re.compile("".join(found), re.ASCII)
