"""Checks options against what Paimon and this version know: values that no reader could take, keys that nobody knows, secrets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from paimon_cli.errors import UsageError
from paimon_cli.options import option_text as read
from paimon_cli.options.option_catalog import IN_PART, OF_CATALOG, find_option, nearest_key
from paimon_cli.options.option_text import TypedOption, read_option
from paimon_cli.options.table_options import TableOptions
from paimon_cli.storage.catalog_options import is_catalog_option
from paimon_cli.storage.redaction import names_secret

FILE_FORMATS = ("parquet", "orc", "avro", "csv", "json")
FREE_TEXTS = frozenset({"parquet.enable.dictionary"})
"""Paimon calls it a number, and hands it to Parquet's writer, which takes true or false."""
NEARLY, FARTHER = 0.85, 0.6
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


def odd_options(options: Mapping[str, str]) -> list[str]:
    """One sentence for each option that Paimon does not know, that this version honours in part, or that is none of a table."""
    return [sentence for key, value in options.items() if (sentence := _oddity(key, value)) is not None]


def _oddity(key: str, value: str) -> str | None:
    option = find_option(key)
    if option is None:
        near = nearest_key(key, NEARLY)
        return f"option '{key}' is unknown to Paimon" + (f"; did you mean '{near}'?" if near else " and has no effect here")
    if option.status == IN_PART and value.strip().lower() != (option.default or "").lower():
        return f"option '{key}' is honoured in part: {option.reason}"
    return f"option '{key}' {option.reason}" if option.group == OF_CATALOG else None


def refuse_unknown(options: Mapping[str, str]) -> None:
    """UsageError for the first key that Paimon does not know."""
    for key in options:
        if find_option(key) is None:
            near = nearest_key(key, FARTHER)
            hint = f"did you mean '{near}'?" if near else "`paimon-cli options ls TABLE --all` lists the known options"
            raise UsageError(f"option '{key}' is unknown to Paimon", "it would change nothing", hint, option=key)


def is_secret(key: str) -> bool:
    """Whether an option of this name holds a secret; of those that Paimon keeps in tables none does."""
    known = find_option(key)
    return (known is None or known.group == OF_CATALOG) and names_secret(key)


def refuse_secrets(options: Mapping[str, str]) -> None:
    """UsageError for what would be stored in the schema, and shown to everyone who may read the table."""
    for key in options:
        if is_catalog_option(key) or is_secret(key):
            raise UsageError(
                f"option '{key}' is not stored in a table",
                "every reader of the table could see it there",
                f"pass it with each call, as --option {key}=..., or write it into ./paimon.yaml",
                option=key,
            )


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
