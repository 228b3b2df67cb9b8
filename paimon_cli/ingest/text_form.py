"""The syntax of text input: separators, null values, encoding, and timestamp formats."""

from __future__ import annotations

import codecs
import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from zoneinfo import ZoneInfo

from paimon_cli.errors import UsageError
from paimon_cli.ingest.number_form import PLAIN_NUMBERS, NumberForm

UTF_8 = "utf-8"
NAMED_CHARACTERS = {r"\t": "\t", "tab": "\t", "comma": ",", "semicolon": ";", "pipe": "|", "space": " ", "none": ""}
SPACES = " \xa0\u202f\u2009"
FIXED_OFFSET = re.compile(r"[+-]([01][0-9]|2[0-3]):[0-5][0-9]")
DELIMITER_OF_EXTENSION = {".tsv": "\t", ".tab": "\t"}

TEXT_FORMATS = ("csv", "json")
FORMATS_OF = {
    "delimiter": ("csv",),
    "quote": ("csv",),
    "escape": ("csv",),
    "header": ("csv",),
    "columns": ("csv",),
    "decimal": ("csv",),
    "thousands": ("csv",),
    "null_values": TEXT_FORMATS,
    "timestamp_formats": TEXT_FORMATS,
    "encoding": TEXT_FORMATS,
    "timezone": (*TEXT_FORMATS, "parquet", "orc", "arrow", "table"),
}
"""The formats to which each setting of `TextForm` applies."""
EXAMPLE_OF = {
    "--delimiter": "';', or --delimiter tab",
    "--quote": '"\'", or --quote none',
    "--escape": "'\\'",
    "--decimal": "','",
}
FLAG_OF = {"header": "--no-header", "null_values": "--null-value", "timestamp_formats": "--timestamp-format"}


@dataclass(frozen=True)
class TextForm:
    """The syntax of text input, such as `TextForm(delimiter=";", null_values=["NA"])`.

    `delimiter`: None for tab or comma, by the file's extension. `quote`, `escape`: '' for none. `header`: whether CSV files begin
    with the names of their columns. `columns`: names that replace those of the header. `null_values`: texts that mean null,
    besides the empty CSV cell. `decimal`, `thousands`: the signs in numbers of CSV cells, "," and "." for 1.234,50;
    `thousands`: '' for none. `timestamp_formats`: strptime formats, tried in order before the ISO format. `timezone`: converts
    texts without an offset to instants, and texts with one to the wall clock of columns without time zone; None: such texts are
    refused. Raises `UsageError` for values that cannot be used.
    """

    delimiter: str | None = None
    quote: str = '"'
    escape: str = ""
    header: bool = True
    columns: Sequence[str] = ()
    null_values: Sequence[str] = ()
    timestamp_formats: Sequence[str] = ()
    timezone: str | None = None
    encoding: str = UTF_8
    decimal: str = "."
    thousands: str = ""

    def __post_init__(self) -> None:
        checked = {
            "delimiter": None if self.delimiter is None else _character("--delimiter", self.delimiter),
            "quote": _character("--quote", self.quote, allow_empty=True),
            "escape": _character("--escape", self.escape, allow_empty=True),
            "columns": _column_names(_texts("--columns", self.columns)),
            "null_values": tuple(dict.fromkeys(_texts("--null-value", self.null_values))),
            "timestamp_formats": tuple(map(_checked_format, _texts("--timestamp-format", self.timestamp_formats))),
            "timezone": None if self.timezone is None else _timezone(self.timezone),
            "encoding": _encoding(self.encoding),
            "decimal": _number_sign("--decimal", _character("--decimal", self.decimal)),
            "thousands": _thousands(self.thousands),
        }
        if not isinstance(self.header, bool):
            raise UsageError(f"header {self.header!r}", "it must be True or False")
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        special = [c for c in (self.delimiter or ",", self.quote, self.escape) if c]
        if len(set(special)) < len(special):
            raise UsageError("--delimiter, --quote and --escape must differ", f"{special[0]!r} cannot mean two things")
        if self.decimal == self.thousands:
            why = f"{self.decimal!r} cannot mean both"
            raise UsageError("--decimal and --thousands must differ", why, "for 1.234,50: --decimal , --thousands .")

    @property
    def numbers(self) -> NumberForm:
        """How numbers in CSV cells are written."""
        return NumberForm(self.decimal, self.thousands)

    def with_plain_numbers(self) -> TextForm:
        """The form for the texts of JSON, whose numbers have a form of their own."""
        return self if self.numbers == PLAIN_NUMBERS else replace(self, decimal=".", thousands="")

    def check_used_by(self, formats: set[str]) -> None:
        """Raise `UsageError` for a setting that applies to none of these formats, rather than ignore it."""
        for setting in fields(self):
            applicable = FORMATS_OF[setting.name]
            if getattr(self, setting.name) != setting.default and formats.isdisjoint(applicable):
                flag = FLAG_OF.get(setting.name, f"--{setting.name}")
                raise UsageError(
                    f"{flag} has no effect on {' and '.join(sorted(formats))} input", f"it applies to {', '.join(applicable)}"
                )


def given_form(form: TextForm | None) -> TextForm:
    """The form that a caller passed, or `PLAIN`. Raises `UsageError` for a value of another type."""
    if isinstance(form, TextForm | None):
        return form or PLAIN
    raise UsageError(f"form of type {type(form).__name__}", "it must be a paimon_cli.TextForm")


def text_form(
    *,
    delimiter: str | None = None,
    quote: str | None = None,
    escape: str | None = None,
    header: bool = True,
    column_names: str | None = None,
    null_values: Sequence[str] | None = None,
    timestamp_formats: Sequence[str] | None = None,
    timezone: str | None = None,
    encoding: str | None = None,
    decimal: str | None = None,
    thousands: str | None = None,
) -> TextForm:
    """The form from the options of a command. Raises `UsageError`."""
    return TextForm(
        delimiter=delimiter,
        quote='"' if quote is None else quote,
        escape="" if escape is None else escape,
        header=header,
        columns=() if column_names is None else column_names.split(","),
        null_values=null_values or (),
        timestamp_formats=timestamp_formats or (),
        timezone=timezone,
        encoding=UTF_8 if encoding is None else encoding,
        decimal="." if decimal is None else decimal,
        thousands="" if thousands is None else thousands,
    )


def _character(flag: str, text: str, *, allow_empty: bool = False) -> str:
    if not isinstance(text, str):
        raise UsageError(f"{flag} {text!r}", "it must be a string")
    character = NAMED_CHARACTERS.get(text.lower(), text)
    if (not character and allow_empty) or (len(character) == 1 and character.isascii() and character not in "\r\n\0"):
        return character
    raise UsageError(f"{flag} {text!r} is not one ASCII character", hint=f"such as {flag} {EXAMPLE_OF[flag]}")


def _number_sign(flag: str, sign: str) -> str:
    if sign.isalnum() or sign in '+-"\r\n\t\0' or (not sign.isprintable() and sign not in SPACES):
        raise UsageError(f"{flag} {sign!r}", "it cannot be told from the digits and signs of a number, or from quotes")
    return sign


def _thousands(text: str) -> str:
    """The sign between groups of digits, which may be a space of another alphabet; '' for none."""
    if not isinstance(text, str):
        raise UsageError(f"--thousands {text!r}", "it must be a string")
    sign = NAMED_CHARACTERS.get(text.lower(), text)
    if len(sign) > 1:
        raise UsageError(f"--thousands {text!r} is not one character", hint="such as --thousands . or --thousands space")
    return _number_sign("--thousands", sign) if sign else ""


def null_value_flag(text: str) -> str:
    """The option that makes this text null, ready to be pasted."""
    return f"--null-value {shlex.quote(text)}" if "'" in text else f"--null-value '{text}'"


def _texts(flag: str, texts: Sequence[str]) -> tuple[str, ...]:
    """The texts. A single one is not taken for the list of its characters."""
    if isinstance(texts, str) or not isinstance(texts, Iterable) or not all(isinstance(text, str) for text in texts):
        raise UsageError(f"{flag} {texts!r}", "it must be a list of strings")
    if not all(map(_is_unicode, texts)):  # bytes of the command line that are not UTF-8
        raise UsageError(f"{flag} {list(texts)!r}", "it is not valid Unicode text")
    return tuple(texts)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _column_names(given: tuple[str, ...]) -> tuple[str, ...]:
    names = tuple(name.strip() for name in given)
    repeated = [name for name in names if names.count(name) > 1]
    if "" in names or repeated:
        shown = f"--columns {','.join(given)}"
        raise UsageError(shown, f"'{repeated[0]}' appears twice" if repeated and repeated[0] else "a name is empty")
    return names


def _timezone(text: str) -> str:
    """An offset such as +02:00, or a name of the time zone database."""
    if not isinstance(text, str):
        raise UsageError(f"--timezone {text!r}", "it must be a string")
    if FIXED_OFFSET.fullmatch(text):
        return text
    try:
        return ZoneInfo("UTC" if text.upper() in ("Z", "UTC") else text).key
    except (ValueError, OSError, KeyError) as problem:
        raise UsageError(
            f"no time zone {text!r}", "use a name such as Europe/Berlin, an offset such as +02:00, or UTC"
        ) from problem


def _checked_format(text: str) -> str:
    pattern_of(text)
    return text


def _encoding(text: str) -> str:
    if not isinstance(text, str):
        raise UsageError(f"--encoding {text!r}", "it must be a string")
    try:
        found = codecs.lookup(text)
    except (LookupError, ValueError) as problem:
        raise UsageError(
            f"no encoding {text!r}", hint="use a name that Python knows, such as latin1, cp1252 or utf-16"
        ) from problem
    if not found._is_text_encoding:
        raise UsageError(f"{text!r} does not encode text", hint="such as latin1, cp1252 or utf-16")
    return UTF_8 if found.name in ("utf-8", "utf-8-sig", "ascii") else found.name


PLAIN = TextForm()

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
FULL_MONTHS = "january|february|march|april|may|june|july|august|september|october|november|december"
WEEKDAYS = "monday|tuesday|wednesday|thursday|friday|saturday|sunday|mon|tue|wed|thu|fri|sat|sun"
PATTERNS = {
    "Y": r"(?P<Y>[0-9]{4})",
    "y": r"(?P<y>[0-9]{2})",
    "m": r"(?P<m>[0-9]{1,2})",
    "d": r"(?P<d>[0-9]{1,2})",
    "e": r" ?(?P<d>[0-9]{1,2})",
    "b": rf"(?i:(?P<b>{FULL_MONTHS}|{'|'.join(MONTHS)}))",
    "H": r"(?P<H>[0-9]{1,2})",
    "I": r"(?P<I>[0-9]{1,2})",
    "M": r"(?P<M>[0-9]{1,2})",
    "S": r"(?P<S>[0-9]{1,2})",
    "f": r"(?P<f>[0-9]{1,9})",
    "p": r"(?i:(?P<p>am|pm|a\.m\.|p\.m\.))",
    "z": r"(?P<z>Z|[+-][0-9]{2}(?::?[0-9]{2})?)",
    "Z": r"(?P<z>UTC|GMT|Z)",
    "a": rf"(?i:{WEEKDAYS})",
    "%": "%",
}
SAME_AS = {"B": "b", "h": "b", "A": "a"}
COMPOSED = {"T": "%H:%M:%S", "R": "%H:%M", "F": "%Y-%m-%d", "D": "%m/%d/%y"}


def pattern_of(format: str) -> tuple[str, frozenset[str]]:
    """The regular expression of a strptime format, and its groups, which are named by directives. Raises `UsageError`."""
    for letter, expansion in COMPOSED.items():
        format = re.sub(rf"(?<!%)((?:%%)*)%{letter}", rf"\1{expansion}", format)
    pattern, names, position = "^", [], 0
    for found in re.finditer(r"%(.?)", format):
        letter = SAME_AS.get(found[1], found[1])
        if letter not in PATTERNS:
            known = " ".join(f"%{letter}" for letter in [*PATTERNS, *SAME_AS, *COMPOSED])
            raise UsageError(f"--timestamp-format {format}: unknown directive %{found[1]}", f"known directives are {known}")
        pattern += re.escape(format[position : found.start()]) + PATTERNS[letter]
        names += re.findall(r"P<(.)>", PATTERNS[letter])
        position = found.end()
    problem = next((f"%{name} appears twice" for name in names if names.count(name) > 1), "") or _unusable_directives(set(names))
    if problem:
        raise UsageError(f"--timestamp-format {format}", problem)
    return pattern + re.escape(format[position:]) + "$", frozenset(names)


def _unusable_directives(names: set[str]) -> str:
    if not (names & {"Y", "y"} and names & {"m", "b"} and "d" in names):
        return "it needs a year (%Y), a month (%m, %b) and a day (%d)"
    if twice := next((f"%{one} and %{other}" for one, other in ("Yy", "mb", "HI") if {one, other} <= names), ""):
        return f"{twice} say the same, and may differ"
    return "%I and %p need each other" if ("I" in names) != ("p" in names) else ""
