"""Checks table options: invalid values, unknown keys, secrets, and changes that Paimon refuses."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from paimon_cli.catalog.metastore.configuration_files import user_file_of
from paimon_cli.errors import NotSupported, UsageError
from paimon_cli.options import option_text as read
from paimon_cli.options.changelog_producers import CHANGELOG_PRODUCERS
from paimon_cli.options.option_catalog import IN_PART, OF_CATALOG, find_option, nearest_key
from paimon_cli.options.option_text import read_option
from paimon_cli.options.table_options import NAMES_OF_PARTITIONS, VECTORS_ENABLED, TableOptions, is_of_files, names_of_partitions
from paimon_cli.storage.catalog_options import USER_PREFIXES, is_catalog_option
from paimon_cli.storage.redaction import names_secret

if TYPE_CHECKING:
    from paimon_cli.lsm.sorted_rows import MergeEngine
    from paimon_cli.metadata.table_schema import TableSchema

FILE_FORMATS = ("parquet", "orc", "avro", "csv", "json")
FORMAT_OPTIONS, FORMATS_OF_LEVELS = ("file.format", "changelog-file.format", "manifest.format"), "file.format.per.level"
CODECS_OF_LEVELS = "file.compression.per.level"
FORMATS_AND_CODECS = (*FORMAT_OPTIONS, FORMATS_OF_LEVELS, CODECS_OF_LEVELS, "file.compression", "changelog-file.compression")
"""The options that say in which format and with which codec files are written."""
MANIFEST_COMPRESSION = "manifest.compression"
MANIFEST_CODECS = ("zstd", "zstandard", "snappy", "deflate", "bzip2", "xz", "null", "none")
"""What Avro's Java library takes, and `none`, with which Java writes snappy; no list of Paimon's options names them."""
FREE_TEXTS = frozenset({"parquet.enable.dictionary"})
"""Options that Paimon documents as numbers, but passes to Parquet's writer, which expects true or false."""
_CODECS_OF_JAVA = {
    "parquet": {"null": "none", "brotli": "zstd"},
    "orc": {"null": "none", "uncompressed": "none", "gzip": "zlib", "deflate": "zlib"},
    "avro": {"none": "null", "uncompressed": "null", "gzip": "deflate", "zlib": "deflate"},
}
"""File format -> name of a codec that is known here -> its name for the library with which Java writes the format."""
NEARLY, FARTHER = 0.8, 0.6
"""Minimum similarity of a misspelled key to a known one: for warnings (engines store other keys in tables), and for errors."""

_LOOKING_UP = {name for name, producer in CHANGELOG_PRODUCERS.items() if producer.looks_up_old_rows}
_READER_OF_TYPE: dict[str, Callable[[str], Any]] = {
    "Boolean": read.boolean,
    "Integer": read.integer(-(2**31)),
    "Long": read.integer(-(2**63), 2**63 - 1),
    "MemorySize": read.parse_size,
    "Duration": read.parse_duration,
    "Double": read.number,
    "Float": read.number,
}


def check_option_values(options: Mapping[str, str]) -> None:
    """Raise `UsageError` with the key, the value and the allowed values for the first invalid option.

    What is allowed is what the engine itself reads: the type of an option is only asked where the engine does not use it.
    """
    TableOptions(options).check()
    for key, text in options.items():
        check_listed_value(key, text)


def check_listed_value(key: str, text: str) -> None:
    """Raise `UsageError` for a value that Paimon's own list of options rules out, whether or not this engine uses the option."""
    known = None if key in FREE_TEXTS else find_option(key)
    if key in FORMAT_OPTIONS:
        read_option(key, text, _file_format)
    elif key == FORMATS_OF_LEVELS:
        for file_format in read_option(key, text, read.per_level).values():
            read_option(key, file_format, _file_format)
    elif key == MANIFEST_COMPRESSION:
        read_option(key, text, read.one_of(*MANIFEST_CODECS))
    elif known is not None and known.choices:
        read_option(key, text, read.one_of(*(choice.lower() for choice in known.choices)))
    elif known is not None and known.type in _READER_OF_TYPE:
        read_option(key, text, _READER_OF_TYPE[known.type])


def _file_format(text: str) -> str:
    if text.lower() not in FILE_FORMATS:
        raise ValueError(", ".join(FILE_FORMATS))
    return text.lower()


def odd_options(options: Mapping[str, str]) -> list[str]:
    """A warning for each option that Paimon does not know, that paimon-cli only partly honours, or that is a catalog option."""
    return [sentence for key, value in options.items() if (sentence := _oddity(key, value)) is not None]


def _oddity(key: str, value: str) -> str | None:
    option = find_option(key)
    if option is None:
        nearest = nearest_key(key, NEARLY)
        return f"option '{key}' is unknown to Paimon" + (f"; did you mean '{nearest}'?" if nearest else " and has no effect here")
    if option.status == IN_PART and value.strip().lower() != (option.default or "").lower():
        return f"option '{key}' is only partly honoured: {option.reason}"
    return f"option '{key}' {option.reason}" if option.group == OF_CATALOG else None


def refuse_unknown(options: Mapping[str, str]) -> None:
    """Raise `UsageError` for the first key that Paimon does not know."""
    for key in options:
        if find_option(key) is None:
            nearest = nearest_key(key, FARTHER)
            hint = f"did you mean '{nearest}'?" if nearest else "paimon-cli options ls --all"
            raise UsageError(f"option '{key}' is unknown to Paimon", "it would have no effect", hint, option=key)


def is_secret(key: str) -> bool:
    """Whether an option with this key holds a secret; none of Paimon's table options does."""
    known = find_option(key)
    return (known is None or known.group == OF_CATALOG) and names_secret(key)


def refuse_secrets(options: Mapping[str, str]) -> None:
    """Raise `UsageError` for secrets and catalog options: in the schema, every reader of the table could see them."""
    for key in options:
        if key.startswith(USER_PREFIXES):
            why = "only a user permits something, and a table is read by others"
            hint = f"pass --option {key}=... with each call, or put it into {user_file_of(os.environ)}"
            raise UsageError(f"option '{key}' is not stored in a table", why, hint, option=key)
        if is_catalog_option(key) or is_secret(key):
            raise UsageError(
                f"option '{key}' is not stored in a table",
                "every reader of the table could see it",
                f"pass it with each call as --option {key}=..., or put it in ./paimon.yaml",
                option=key,
            )


def idle_levels(options: Mapping[str, str]) -> list[str]:
    """A warning for each level that has a setting but will never have files, which Paimon accepts."""
    parsed = TableOptions(options)
    settings = {
        "file.format.per.level": parsed.file_format_per_level,
        CODECS_OF_LEVELS: parsed.file_compression_per_level,
    }
    top = parsed.num_levels - 1
    return [
        f"option '{key}' names level {n}; the highest is {top}" for key, levels in settings.items() for n in levels if n > top
    ]


def formats_and_codecs(options: TableOptions) -> Iterator[tuple[str, str, str, str]]:
    """The formats and codecs of files at any level and of changelog files, each with the option that sets it."""
    formats, codecs = options.file_format_per_level, options.file_compression_per_level
    levels = {0, *formats, *codecs}
    for level in (*levels, max(levels) + 1):
        format_key = FORMATS_OF_LEVELS if level in formats else "file.format"
        codec_key = CODECS_OF_LEVELS if level in codecs else "file.compression"
        yield format_key, options.format_at(level), codec_key, options.compression_at(level)
    file_format, codec = options.changelog_file_format, options.changelog_file_compression
    format_key = "changelog-file.format" if file_format else "file.format"
    codec_key = "changelog-file.compression" if codec else "file.compression"
    yield format_key, file_format or options.file_format, codec_key, codec or options.file_compression


def codecs_unknown_to_java(options: TableOptions) -> dict[str, tuple[str, str]]:
    """Names of codecs that are read and written here, but that end the writes of Paimon's own writers: what to say about each
    option, and the value to set.
    """
    found: dict[str, tuple[str, str]] = {}
    for _, file_format, key, codec in formats_and_codecs(options):
        name = _CODECS_OF_JAVA.get(file_format, {}).get(codec)
        if name is None:
            continue
        value = name
        if key == CODECS_OF_LEVELS:
            levels = options.file_compression_per_level.items()
            names = {level: _CODECS_OF_JAVA.get(options.format_at(level), {}).get(one, one) for level, one in levels}
            value = ",".join(f"{level}:{one}" for level, one in names.items())
        found[key] = (
            f"Paimon's own writers of {file_format} files know no codec {codec}, and end with an error; use {name}",
            value,
        )
    return found


ONLY_UP = ("ignore-delete", "ignore-update-before")
_NEVER = {"type": "the type of a table never changes", "path": "to move a table, move its directory"}


def with_option(options: Mapping[str, str], key: str, value: str, has_snapshots: bool, has_keys: bool = True) -> dict[str, str]:
    """The options with one changed. Raises `UsageError` if it may not change; some rules apply only once there is data."""
    old = options.get(key)
    if old == value:
        return dict(options)
    _refuse_never(key)
    if has_snapshots:
        if old is None or is_valid(key, old):
            _refuse_immutable(key)
        if key == "bucket" and (old is None or is_valid(key, old)):
            _check_bucket(old or "-1", value, has_keys)
        if key == VECTORS_ENABLED:
            _check_vectors(options, _is_true(value))
        if not _is_true(value):
            _refuse_down(key, old)
    return {**options, key: value}


def check_options_of_call(
    schema: TableSchema,
    given: Mapping[str, str],
    has_snapshots: bool,
    counting: Collection[str] = (),
    *,
    merges: bool = True,
    changes: bool = True,
) -> None:
    """Raise `UsageError` if the options of one call (`given`) contradict how the files of a table with this schema were written.

    `counting`: the options that name directories of partitions for this call. A read that has a wrong value finds no file.
    `merges`: whether the call may merge rows of others for good; `changes`: whether it may commit.
    """
    options = schema.options
    if has_snapshots and counting and (key := changed_name_of_partitions(options, {**options, **given}, counting)) is not None:
        raise other_places(key)
    for key, value in given.items():
        known = find_option(key)
        if known is not None and options.get(key, known.default) != value:
            _refuse_never(key)
            if has_snapshots:
                _refuse_immutable(key)
            if has_snapshots and key == "changelog-producer":
                _check_producer(options.get(key) or "none", value, changes)
            if has_snapshots and key == VECTORS_ENABLED:
                _check_vectors({**options, "deletion-vectors.modifiable": "false"}, _is_true(value))
    if has_snapshots and merges and (key := _other_merge(schema, given)) is not None:
        raise UsageError(
            f"{key} cannot be {given[key]} for one call",
            "it would merge the rows of all calls like that, for good",
            "leave out the option, or change it for the table with `alter`",
            option=key,
        )


def _check_producer(own: str, value: str, changes: bool) -> None:
    """Raise `UsageError` for a changelog producer that one call cannot have in a table with another one."""
    own, value = own.strip().lower(), value.strip().lower()
    if own == value:
        return
    if not _LOOKING_UP.isdisjoint((value, own)):
        why = "compactions with and without lookups must not alternate"
    elif changes and own != "none":
        why = "streams read the changes of the table's own producer, and would miss those of this call"
    else:
        return
    key, hint = "changelog-producer", "leave out the option, or change it for the table with `alter`"
    raise UsageError(f"{key} cannot be {value} for one call", why, hint, option=key)


def _other_merge(schema: TableSchema, given: Mapping[str, str]) -> str | None:
    """The option with which a call would merge the versions of a key in another way than the table; None if there is none. Raises
    `UsageError` and `NotSupported` for options with which nothing can be merged.
    """
    from paimon_cli.lsm.merge_engine import merge_engine  # only calls with options need it

    def merge_of(*keys: str) -> tuple[MergeEngine, Sequence[str], bool]:
        options = schema.typed_options.with_overrides({key: given[key] for key in keys})
        return merge_engine(schema, options), options.sequence_fields, options.sequence_descending

    def differs(*keys: str) -> bool:
        with suppress(UsageError, NotSupported):  # some options need others
            return merge_of(*keys) != own
        return True

    try:
        own = merge_of()
    except (UsageError, NotSupported):
        return None  # nothing is merged before the table's own options are mended
    if merge_of(*given) == own:
        return None
    return next(filter(differs, given), next(iter(given)))


def without_option(options: Mapping[str, str], key: str, has_snapshots: bool) -> dict[str, str]:
    """The options without one. Raises `UsageError` if it is not set or cannot be removed."""
    if key not in options:
        raise UsageError(f"option {key} is not set", hint="`options ls` lists the options that are set", option=key)
    _refuse_never(key)
    if has_snapshots:
        if is_of_files(key) and not is_valid(key, options[key]):
            why = "its value cannot be read, and its default may be wrong for the files"
            hint = f"restore the value with which the table was written: {key}=VALUE, with `set`"
            raise UsageError(f"option {key} cannot be unset", why, hint, option=key)
        _refuse_immutable(key)
        _refuse_down(key, options[key])
        if key == "bucket":
            raise UsageError("option bucket cannot be unset", "existing files were written for this bucket count", option=key)
        if key == VECTORS_ENABLED:
            _check_vectors(options, False)
    return {other: value for other, value in options.items() if other != key}


def is_valid(key: str, value: str) -> bool:
    """Whether an option has a value that can be read. If not, no file was written with it, and the right one may be set."""
    try:
        TableOptions({key: value}).check()
    except UsageError:
        return False
    return True


def changed_name_of_partitions(options: Mapping[str, str], changed: Mapping[str, str], counting: Collection[str]) -> str | None:
    """The option, of those that count, because of which directories of partitions have other names; None if none."""
    before = {key: value for key, value in options.items() if key in NAMES_OF_PARTITIONS and is_valid(key, value)}
    names, changed_names = names_of_partitions(TableOptions(before)), names_of_partitions(TableOptions(changed))
    return next((key for key in NAMES_OF_PARTITIONS if key in counting and names[key] != changed_names[key]), None)


def other_places(key: str) -> UsageError:
    """The error about another value of an option that names the directories of partitions with files."""
    why = "it names the directories of partitions, and the files of the table would be searched for in others"
    return UsageError(f"option {key} cannot be changed", why, option=key)


def _refuse_never(key: str) -> None:
    if key in _NEVER:
        raise UsageError(f"option {key} cannot be changed", _NEVER[key], option=key)


def _refuse_immutable(key: str) -> None:
    known = find_option(key)
    if known is not None and known.immutable:
        raise UsageError(f"option {key} cannot be changed", "it cannot change once the table has data", option=key)


def _refuse_down(key: str, old: str | None) -> None:
    """Raise `UsageError` for an option that has been true, and would be false, be it set or removed."""
    if key in ONLY_UP and _is_true(old):
        raise UsageError(f"option {key} cannot be reset to false", "deletes that were ignored are already lost", option=key)


def _check_bucket(old: str, value: str, has_keys: bool) -> None:
    """Refuse a change to or from dynamic buckets. Texts that are not numbers are refused later, with all other values."""
    if "-1" not in (old.strip(), value.strip()):
        return
    why = "existing keys would be searched for in the wrong buckets"
    hint = "`paimon-cli rescale` gives a table with dynamic buckets a fixed bucket count; there is no way back"
    if not has_keys:
        why = "existing files do not have the new buckets or order of rows"
        hint = f"create a new table with --bucket {value}, and write to it what `paimon-cli read --output-path DIR` exports"
    raise UsageError(f"bucket cannot change from {old} to {value}", why, hint, option="bucket")


def _check_vectors(options: Mapping[str, str], enabled: bool) -> None:
    if _is_true(options.get(VECTORS_ENABLED)) != enabled and not _is_true(options.get("deletion-vectors.modifiable")):
        raise UsageError(
            f"{VECTORS_ENABLED} cannot change once the table has data",
            "other engines that are using the table may not notice the change",
            "stop them and set deletion-vectors.modifiable=true first",
            option=VECTORS_ENABLED,
        )


def _is_true(text: str | None) -> bool:
    return (text or "").strip().lower() == "true"
