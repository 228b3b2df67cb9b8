"""Checks the options of a new table against what Paimon knows: values that no reader could take, keys that look misspelled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any

from paimon_cli.errors import UsageError
from paimon_cli.options import option_text as read
from paimon_cli.options.option_catalog import OPTIONS, find_option
from paimon_cli.options.option_text import TypedOption, read_option
from paimon_cli.options.table_options import TableOptions

FILE_FORMATS = ("parquet", "orc", "avro", "csv", "json")
FREE_TEXTS = frozenset({"parquet.enable.dictionary"})
"""Paimon calls it a number, and hands it to Parquet's writer, which takes true or false."""
OF_COLUMNS = "fields."
NEARLY = 0.85
"""Likeness of a misspelled key to the one that was meant; engines keep keys of their own in tables, which are none of ours."""

_READER_OF_TYPE: dict[str, Callable[[str], Any]] = {
    "Boolean": read.boolean,
    "Integer": read.whole_number(-(2**31)),
    "Long": read.whole_number(-(2**63), 2**63 - 1),
    "MemorySize": read.size,
    "Duration": read.duration,
    "Double": float,
    "Float": float,
}


def check_option_values(options: Mapping[str, str]) -> None:
    """UsageError with key, value and what is allowed."""
    for key, text in options.items():
        known = None if key in FREE_TEXTS else find_option(key)
        if known is not None and known.choices:
            read_option(key, text, read.one_of(*(choice.lower() for choice in known.choices)))
        elif known is not None and known.type in _READER_OF_TYPE:
            read_option(key, text, _READER_OF_TYPE[known.type])
    _read_typed_values(TableOptions(options))
    of_levels = TableOptions(options).file_format_per_level.values()
    formats = [("file.format", options.get("file.format", "parquet")), *(("file.format.per.level", text) for text in of_levels)]
    for key, file_format in formats:
        if file_format.lower() not in FILE_FORMATS:
            raise UsageError(f"option '{key}' cannot be '{file_format}'", f"allowed: {', '.join(FILE_FORMATS)}")


def misspelled_keys(options: Mapping[str, str]) -> list[str]:
    """One sentence for each key that Paimon does not know but nearly does."""
    keys = [option.key for option in OPTIONS]
    unknown = [key for key in options if find_option(key) is None and not key.startswith(OF_COLUMNS)]
    nearest = {key: get_close_matches(key, keys, 1, NEARLY) for key in unknown}
    return [f"option '{key}' is unknown to Paimon; did you mean '{found[0]}'?" for key, found in nearest.items() if found]


def idle_levels(options: Mapping[str, str]) -> list[str]:
    """One sentence for each level that has a setting and no file ever: Paimon takes any number."""
    typed = TableOptions(options)
    settings = {
        "file.format.per.level": typed.file_format_per_level,
        "file.compression.per.level": typed.file_compression_per_level,
    }
    top = typed.num_levels - 1
    return [
        f"option '{key}' names level {n}, the highest is {top}" for key, levels in settings.items() for n in levels if n > top
    ]


def _read_typed_values(options: TableOptions) -> None:
    """Every typed property once: each raises on a value that it cannot take."""
    for name, attribute in vars(TableOptions).items():
        if isinstance(attribute, (TypedOption, property)):
            getattr(options, name)
