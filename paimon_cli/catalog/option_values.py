"""Checks of options: invalid values, unknown keys, secrets, and changes that Paimon refuses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from paimon_cli.errors import UsageError
from paimon_cli.metadata.table_mode import LOOKUP
from paimon_cli.options import option_text as read
from paimon_cli.options.option_catalog import IN_PART, OF_CATALOG, find_option, nearest_key
from paimon_cli.options.option_text import read_option
from paimon_cli.options.table_options import VECTORS_ENABLED, TableOptions
from paimon_cli.storage.catalog_options import is_catalog_option, names_secret

FILE_FORMATS = ("parquet", "orc", "avro", "csv", "json")
FREE_TEXTS = frozenset({"parquet.enable.dictionary"})
"""Paimon calls it a number, but passes it to Parquet's writer, which takes true or false."""
NEARLY, FARTHER = 0.85, 0.6
"""Similarity of a misspelled key to the key that was meant. Engines store keys of their own in tables; these are ignored."""

_READER_OF_TYPE: dict[str, Callable[[str], Any]] = {
    "Boolean": read.boolean,
    "Integer": read.whole_number(-(2**31)),
    "Long": read.whole_number(-(2**63), 2**63 - 1),
    "MemorySize": read.parse_size,
    "Duration": read.parse_duration,
    "Double": read.number,
    "Float": read.number,
}


def check_option_values(options: Mapping[str, str]) -> None:
    """`UsageError` with key, value and the values allowed."""
    for key, text in options.items():
        known = None if key in FREE_TEXTS else find_option(key)
        if known is not None and known.choices:
            read_option(key, text, read.one_of(*(choice.lower() for choice in known.choices)))
        elif known is not None and known.type in _READER_OF_TYPE:
            read_option(key, text, _READER_OF_TYPE[known.type])
    parsed = TableOptions(options)
    parsed.check()
    of_levels = parsed.file_format_per_level.values()
    formats = [("file.format", options.get("file.format", "parquet")), *(("file.format.per.level", text) for text in of_levels)]
    for key, file_format in formats:
        if file_format.lower() not in FILE_FORMATS:
            raise UsageError(f"option '{key}' cannot be '{file_format}'", f"allowed: {', '.join(FILE_FORMATS)}")


def odd_options(options: Mapping[str, str]) -> list[str]:
    """One sentence for each option that Paimon does not know, that paimon-cli honours in part, or that does not belong to a
    table.
    """
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
    """`UsageError` for the first key that Paimon does not know."""
    for key in options:
        if find_option(key) is None:
            near = nearest_key(key, FARTHER)
            hint = f"did you mean '{near}'?" if near else "`paimon-cli options ls TABLE --all` lists the known options"
            raise UsageError(f"option '{key}' is unknown to Paimon", "it would change nothing", hint, option=key)


def is_secret(key: str) -> bool:
    """Whether an option of this name holds a secret. None of the options that Paimon stores in tables does."""
    known = find_option(key)
    return (known is None or known.group == OF_CATALOG) and names_secret(key)


def refuse_secrets(options: Mapping[str, str]) -> None:
    """`UsageError` for secrets, because they would be stored in the schema and shown to every reader of the table."""
    for key in options:
        if is_catalog_option(key) or is_secret(key):
            raise UsageError(
                f"option '{key}' is not stored in a table",
                "every reader of the table could see it there",
                f"pass it with each call, as --option {key}=..., or write it into ./paimon.yaml",
                option=key,
            )


def idle_levels(options: Mapping[str, str]) -> list[str]:
    """One sentence for each level that has a setting but never a file: Paimon accepts any number."""
    parsed = TableOptions(options)
    settings = {
        "file.format.per.level": parsed.file_format_per_level,
        "file.compression.per.level": parsed.file_compression_per_level,
    }
    top = parsed.num_levels - 1
    return [
        f"option '{key}' names level {n}, the highest is {top}" for key, levels in settings.items() for n in levels if n > top
    ]


ONLY_UP = ("ignore-delete", "ignore-update-before")
NEVER = {"type": "the kind of a table never changes", "path": "to move a table, move its directory"}


def with_option(options: Mapping[str, str], key: str, value: str, has_snapshots: bool, has_keys: bool = True) -> dict[str, str]:
    """The options with one changed. `UsageError` for an option that may not change; some rules apply only once there is data."""
    old = options.get(key)
    if old == value:
        return dict(options)
    _refuse_never(key)
    if has_snapshots:
        _refuse_immutable(key)
        if key == "bucket":
            _check_bucket(old or "-1", value, has_keys)
        if key == VECTORS_ENABLED:
            _check_vectors(options, _is_true(value))
        if key in ONLY_UP and _is_true(old) and not _is_true(value):
            raise UsageError(f"option {key} cannot go back to false", "deletes that were ignored are already lost", option=key)
    return {**options, key: value}


def check_options_of_call(options: Mapping[str, str], given: Mapping[str, str], has_snapshots: bool) -> None:
    """`UsageError` if `given`, the options of one call that commits, would contradict how the files of the table were written."""
    for key, value in given.items():
        known = find_option(key)
        if known is not None and options.get(key, known.default) != value:
            _refuse_never(key)
            if has_snapshots:
                _refuse_immutable(key)
            if has_snapshots and key == "changelog-producer" and LOOKUP in (value, options.get(key)):
                raise UsageError(
                    f"{key} cannot be {value} for one call",
                    "compactions that look up older rows, and those that do not, must not take turns",
                    "leave the option out, or change it for the table with `alter`",
                    option=key,
                )
            if has_snapshots and key == VECTORS_ENABLED:
                _check_vectors({**options, "deletion-vectors.modifiable": "false"}, _is_true(value))


def without_option(options: Mapping[str, str], key: str, has_snapshots: bool) -> dict[str, str]:
    """The options without one. `UsageError` for a key that is not set, or that cannot be removed."""
    if key not in options:
        raise UsageError(f"option {key} is not set", hint="`options ls` lists the options that are set", option=key)
    _refuse_never(key)
    if has_snapshots:
        _refuse_immutable(key)
        if key == "bucket":
            raise UsageError("option bucket cannot be unset", "existing files are written for this number of buckets", option=key)
        if key == VECTORS_ENABLED:
            _check_vectors(options, False)
    return {other: value for other, value in options.items() if other != key}


def _refuse_never(key: str) -> None:
    if key in NEVER:
        raise UsageError(f"option {key} cannot be changed", NEVER[key], option=key)


def _refuse_immutable(key: str) -> None:
    known = find_option(key)
    if known is not None and known.immutable:
        raise UsageError(f"option {key} cannot be changed", "it cannot change once the table has data", option=key)


def _check_bucket(old: str, value: str, has_keys: bool) -> None:
    """Check the new bucket number. Texts that are no numbers are refused with all other values later."""
    if "-1" not in (old.strip(), value.strip()):
        return
    why = "its keys would be looked for in other buckets than they are in"
    hint = "`paimon-cli rescale` moves a table from dynamic buckets to a fixed number; there is no way back"
    if not has_keys:
        why = "its rows would be looked for in buckets, or in an order, that its files do not have"
        hint = f"create another table with --bucket {value}, and write there what `paimon-cli read --output-path DIR` gives"
    raise UsageError(f"bucket cannot change from {old} to {value}", why, hint, option="bucket")


def _check_vectors(options: Mapping[str, str], enabled: bool) -> None:
    if _is_true(options.get(VECTORS_ENABLED)) != enabled and not _is_true(options.get("deletion-vectors.modifiable")):
        raise UsageError(
            f"{VECTORS_ENABLED} cannot change once there is data",
            "other engines that are at work on the table may not notice the change",
            "stop them, and set deletion-vectors.modifiable=true first",
            option=VECTORS_ENABLED,
        )


def _is_true(text: str | None) -> bool:
    return (text or "").strip().lower() == "true"
