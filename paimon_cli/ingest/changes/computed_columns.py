"""Columns that are computed from another one: `dt = date_format(created, 'yyyy-MM-dd')`, with the functions of Java's CDC."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.datatypes.data_type import INT, INTEGER_ROOTS, STRING, STRING_ROOTS, TIMESTAMP_ROOTS, DataType, TimestampType
from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.errors import UsageError
from paimon_cli.ingest.changes.event_values import UNDECLARED, as_column

_FORM = re.compile(r"\s*([^=()\s][^=()]*?)\s*=\s*(\w+)\s*\((.*)\)\s*", re.DOTALL)
_ARGUMENT = re.compile(r"\s*(?:'((?:[^']|'')*)'|(-?\d{1,9})|([^,'()]+?))\s*(?:,|$)")
_MOMENT = TimestampType("TIMESTAMP", precision=6)
_MOMENT_ROOTS = STRING_ROOTS | TIMESTAMP_ROOTS | {"DATE"}
_PARTS: Mapping[str, Callable[[pa.Array], pa.Array]] = {
    "year": pc.year,
    "month": pc.month,
    "day": pc.day,
    "hour": pc.hour,
    "minute": pc.minute,
    "second": pc.second,
}
_TEXTS: Mapping[str, Callable[[pa.Array], pa.Array]] = {
    "upper": pc.utf8_upper,
    "lower": pc.utf8_lower,
    "trim": pc.utf8_trim_whitespace,
}
_ARGUMENTS = {"date_format": (str,), "truncate": (int,)}
_LETTERS = {"yyyy": "%Y", "yy": "%y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S", "DDD": "%j"}
"""Runs of letters of a pattern of Java, and what they are in C."""
_QUOTED = re.compile(r"'((?:[^']|'')*)'")
_FUNCTIONS = (*_PARTS, "date_format", "substring", "truncate", *_TEXTS)


@dataclass(frozen=True)
class ComputedColumn:
    """`name` is `function` of the column `source`, with further arguments."""

    name: str
    function: str
    source: str
    arguments: tuple[Any, ...] = ()

    @staticmethod
    def of(text: str) -> ComputedColumn:
        """What `--computed` says. Raises `UsageError`."""
        found = _FORM.fullmatch(text)
        hint = "such as --computed \"dt = date_format(created, 'yyyy-MM-dd')\""
        if found is None or found[2].lower() not in _FUNCTIONS:
            raise UsageError(f"cannot read --computed {text[:100]}", f"there are {', '.join(_FUNCTIONS)} of a column", hint)
        arguments, at = list[Any](), 0
        while at < len(found[3]):
            part = _ARGUMENT.match(found[3], at)
            if part is None:
                raise UsageError(f"cannot read --computed {text[:100]}", "an argument is a column, a number or a 'text'", hint)
            quoted, number, column = part.groups()
            arguments.append(quoted.replace("''", "'") if quoted is not None else int(number) if number else _Column(column))
            at = part.end()
        function = found[2].lower()
        if not arguments or not isinstance(arguments[0], _Column):
            raise UsageError(f"cannot read --computed {text[:100]}", "its first argument is a column", hint)
        kinds = tuple(type(one) for one in arguments[1:])
        wanted = {(int,), (int, int)} if function == "substring" else {_ARGUMENTS.get(function, ())}
        if kinds not in wanted or any(isinstance(one, int) and one < (function == "truncate") for one in arguments[1:]):
            raise UsageError(f"cannot read --computed {text[:100]}", f"{function} takes other arguments", hint)
        column = ComputedColumn(found[1], function, str(arguments[0]), tuple(arguments[1:]))
        if function == "date_format":
            _strftime(column.arguments[0])
        return column

    def refuses(self, source: DataType) -> str | None:
        """Why the function does not take values of this type; None if it does."""
        if (self.function in _PARTS or self.function == "date_format") and source.root not in _MOMENT_ROOTS:
            what = "dates, times of a day and texts that hold one"
            return f"{self.function} takes {what}, and {self.source} is {type_to_sql(source)}"
        if self.function == "truncate" and source.root not in INTEGER_ROOTS | STRING_ROOTS:
            return f"truncate takes whole numbers and texts, and {self.source} is {type_to_sql(source)}"
        return None

    def type(self, source: DataType) -> DataType:
        """The type of the column. Raises `UsageError` for a source that the function `refuses`."""
        if (why := self.refuses(source)) is not None:
            raise UsageError(f"--computed {self.name}", why)
        if self.function in _PARTS:
            return INT
        return source.with_nullable(True) if self.function == "truncate" and source.root in INTEGER_ROOTS else STRING

    def values(self, cells: pa.Array, source: DataType) -> tuple[pa.Array, list[int]]:
        """The values, and the rows whose value cannot be computed. `source`: the type of `cells`."""
        if pa.types.is_null(cells.type) or cells.null_count == len(cells):
            return pa.nulls(len(cells), pa.string()), []
        if self.function == "truncate" and source.root in INTEGER_ROOTS:
            whole = cells.cast(pa.int64())
            numbers = pc.fill_null(whole, 0).to_numpy()
            return pa.array(
                numbers - np.mod(numbers, self.arguments[0]), mask=~cells.is_valid().to_numpy(zero_copy_only=False)
            ), []
        if self.function in _PARTS or self.function == "date_format":
            return self._of_moments(cells)
        texts = as_column(cells, UNDECLARED, STRING)[0] if not pa.types.is_string(cells.type) else cells
        if self.function in _TEXTS:
            return _TEXTS[self.function](texts), []
        begin, end = (0, self.arguments[0]) if self.function == "truncate" else (*self.arguments, None)[:2]
        return pc.utf8_slice_codeunits(texts, begin, end), []

    def _of_moments(self, cells: pa.Array) -> tuple[pa.Array, list[int]]:
        if pa.types.is_string(cells.type):
            moments, misfits = as_column(cells, UNDECLARED, _MOMENT)
            rows = [cell.row for cell in misfits]
        else:
            moments, rows = cells.cast(pa.timestamp("us", getattr(cells.type, "tz", None)), safe=False), []
        if self.function in _PARTS:
            return _PARTS[self.function](moments), rows
        seconds = pc.floor_temporal(moments, unit="second").cast(pa.timestamp("s", getattr(moments.type, "tz", None)))
        return pc.strftime(seconds, _strftime(self.arguments[0])), rows


class _Column(str):
    """An argument that names a column."""

    __slots__ = ()


def _strftime(pattern: str) -> str:
    """A pattern of Java's DateTimeFormatter as one of C. Raises `UsageError` for letters that are not supported."""
    found = list[str]()
    for number, part in enumerate(_QUOTED.split(pattern)):
        if number % 2:
            found.append(part.replace("%", "%%").replace("''", "'") or "'")
            continue
        if "'" in part:
            raise UsageError(f"cannot read the pattern {pattern[:60]}", "a quote in it is never closed", "write '' for a quote")
        for letter, run in groupby(part):
            word = "".join(run)
            if letter.isalpha() and word not in _LETTERS:
                why = f"'{word}' is not among {', '.join(_LETTERS)}"
                raise UsageError(f"cannot read the pattern {pattern[:60]}", why, "other letters stand in '...'")
            found.append(_LETTERS.get(word, word.replace("%", "%%")))
    return "".join(found)
