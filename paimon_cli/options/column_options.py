"""Options that name columns, in their key or in their value, and what becomes of them when a column is renamed or dropped.

`COLUMN_OPTIONS` is the one table of them. Java renames only some of these options, and reads a table that is left with an option
that names a missing column only in part (Java SchemaManager.applyRenameColumnsToOptions, FileIndexOptions).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from paimon_cli.options.option_text import names

FOLLOWS = "follows"
"""The option changes with the column: it names the column's new name, or loses the column that was dropped."""
REFUSES = "refuses"
"""The column cannot be renamed or dropped as long as the option names it."""
_LISTED, _WORDS, _NESTED, _NOTHING = "listed", "words", "nested", "nothing"
"""What the value of an option names: columns separated by commas; columns among other words; fields of the rows inside the column
that the key names; no columns."""

SEQUENCE_FIELD = "sequence.field"
SEQUENCE_GROUP = "fields.<columns>.sequence-group"
_WORD_BREAKS = re.compile(r"[\s,:;]+")


STORAGE_LAYOUT = "map.storage-layout"
"""How the names of options end that let files store a MAP as a struct."""


@dataclass(frozen=True)
class ColumnOption:
    """An option that names columns. Its key is written as in the catalog of options: `<column>` stands for a column."""

    key: str
    value: str = _LISTED
    renamed: str = FOLLOWS
    dropped: str = REFUSES

    @property
    def names_in_key(self) -> bool:
        return "<column" in self.key


COLUMN_OPTIONS = (
    ColumnOption("bucket-key"),
    ColumnOption(SEQUENCE_FIELD),
    ColumnOption("primary-key"),
    ColumnOption("partition"),
    ColumnOption("rowkind.field"),
    ColumnOption("record-level.time-field"),
    ColumnOption("partial-update.remove-record-on-sequence-group"),
    ColumnOption(SEQUENCE_GROUP),
    ColumnOption("changelog-producer.row-deduplicate-ignore-fields", dropped=FOLLOWS),
    ColumnOption("clustering.columns", dropped=FOLLOWS),
    ColumnOption("sink.clustering.by-columns", dropped=FOLLOWS),
    ColumnOption("manifest-sort.partition-field"),
    ColumnOption("chain-table.chain-partition-keys"),
    ColumnOption("orc.bloom.filter.columns", dropped=FOLLOWS),
    ColumnOption("orc.column.encoding.direct", dropped=FOLLOWS),
    ColumnOption("orc.encrypt", _WORDS, REFUSES),
    ColumnOption("orc.mask", _WORDS, REFUSES),
    *(
        ColumnOption(key, _LISTED, REFUSES)
        for key in (
            "blob-field",
            "video-frame-field",
            "blob-descriptor-field",
            "blob.stored-descriptor-fields",
            "blob-view-field",
            "vector-field",
            "pk-bitmap.index.columns",
            "pk-btree.index.columns",
            "pk-full-text.index.columns",
            "pk-multivalue.index.columns",
            "pk-vector.index.columns",
        )
    ),
    ColumnOption("file-index.<kind>.columns", dropped=FOLLOWS),
    ColumnOption("file-index.<kind>.<column>.<setting>", _NOTHING, dropped=FOLLOWS),
    *(
        ColumnOption(f"fields.<column>.{name}", _NESTED, dropped=FOLLOWS)
        for name in ("nested-key", "nested-sequence-field", "ts-field")
    ),
    *(
        ColumnOption(f"fields.<column>.{name}", _NOTHING, dropped=FOLLOWS)
        for name in (
            *("aggregate-function", "ignore-retract", "distinct", "list-agg-delimiter", "stats-mode", "map.storage-layout"),
            "map.shared-shredding.max-columns",
        )
    ),
    ColumnOption("fields.<column>.<setting>", _NOTHING, dropped=FOLLOWS),
    ColumnOption("parquet.<setting>#<column><path>", _NOTHING, dropped=FOLLOWS),
)
"""All of them; where two match a key, the first one counts."""

_COLUMNS, _DOTLESS = r"(?P<columns>.+)", r"(?P<columns>[^.]+)"
_PARTS = {"<column>": _COLUMNS, "<columns>": _COLUMNS, "<kind>": r"[^.]+", "<setting>": r".+", "<path>": r"(?:\..+)?"}


@cache
def _patterns() -> tuple[tuple[re.Pattern[str], ColumnOption], ...]:
    """The options with a pattern each. A column before a setting or path of any name has no dot: they could not be told apart."""

    def pattern(option: ColumnOption) -> str:
        parts = re.split(r"(<[a-z]+>)", option.key)
        dotless = "<column>.<setting>" in option.key or "<path>" in option.key
        exact = {**_PARTS, "<column>": _DOTLESS} if dotless else _PARTS
        return "".join(exact.get(part, re.escape(part)) for part in parts)

    return tuple((re.compile(pattern(option)), option) for option in COLUMN_OPTIONS)


def column_option(key: str) -> tuple[ColumnOption, slice] | None:
    """The row of `COLUMN_OPTIONS` for a key, and where columns stand in the key (an empty slice: nowhere); else None."""
    for pattern, option in _patterns():
        if found := pattern.fullmatch(key):
            return option, slice(*found.span("columns")) if option.names_in_key else slice(0, 0)
    return None


def named_columns(key: str, value: str) -> tuple[str, ...]:
    """The columns that an option names, in its key first; words of a value that may be columns are not among them."""
    if (found := column_option(key)) is None:
        return ()
    option, at = found
    return (*map(_column, names(key[at])), *(map(_column, names(value)) if option.value == _LISTED else ()))


def renamed_in_options(options: Mapping[str, str], renamed: Mapping[str, str]) -> dict[str, str]:
    """The options with the names of top-level columns replaced: `renamed` has the new names by old name."""
    return dict(_renamed(key, value, renamed) for key, value in options.items())


def _renamed(key: str, value: str, renamed: Mapping[str, str]) -> tuple[str, str]:
    if (found := column_option(key)) is None:
        return key, value
    option, at = found
    if any(_column(name) in renamed for name in names(key[at])):
        key = key[: at.start] + _list_renamed(key[at], renamed) + key[at.stop :]
    if option.value == _LISTED and any(_column(name) in renamed for name in names(value)):
        value = _list_renamed(value, renamed)
    return key, value


def _list_renamed(text: str, renamed: Mapping[str, str]) -> str:
    return ",".join(renamed.get(_column(name), _column(name)) + name[len(_column(name)) :] for name in names(text))


def _column(name: str) -> str:
    """The column of `map[key]` (an index on one key of a MAP), of `row.field` after `#`, or the name itself."""
    return name[: name.index("[")] if name.endswith("]") and "[" in name else name


def without_column(options: Mapping[str, str], column: str) -> dict[str, str]:
    """The options without a column that is dropped: taken out of lists, together with the options that concern only this column.

    Options that `REFUSES` are left as they are: `holders` names them.
    """
    kept = {}
    for key, value in options.items():
        found = column_option(key)
        if found is None or found[0].dropped == REFUSES:
            kept[key] = value
            continue
        option, at = found
        if column in map(_column, names(key[at])):
            continue
        if option.value == _LISTED and column in map(_column, names(value)):
            value = ",".join(name for name in names(value) if _column(name) != column)
            if not value:
                continue
        kept[key] = value
    return kept


def holders(options: Mapping[str, str], column: str, change: str) -> Iterator[str]:
    """The keys of the options that name the column and keep it from being renamed or dropped; `change`: either of these words."""
    for key, value in options.items():
        if (found := column_option(key)) is None or getattr(found[0], change) != REFUSES:
            continue
        if column in named_columns(key, value) or (found[0].value == _WORDS and column in _WORD_BREAKS.split(value)):
            yield key


def nested_holders(options: Mapping[str, str], path: tuple[str, ...]) -> Iterator[str]:
    """The keys of the options that name the field at this path, inside the rows of a column."""
    for key, value in options.items():
        found = column_option(key)
        if found is not None and found[0].value == _NESTED and path[0] == key[found[1]] and path[-1] in names(value):
            yield key


def without_sequence_fields(options: Mapping[str, str], unknown: Collection[str]) -> dict[str, str]:
    """The options for rows without some of the sequence fields, which are null in every row and so have no effect."""
    fields = options.get(SEQUENCE_FIELD, "").split(",")
    known = [name for name in fields if name.strip() not in unknown]
    if len(known) == len(fields):
        return dict(options)
    others = {key: value for key, value in options.items() if key != SEQUENCE_FIELD}
    return {**others, SEQUENCE_FIELD: ",".join(known)} if known else others
