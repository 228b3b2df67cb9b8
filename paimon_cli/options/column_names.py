"""Options that name columns, when the columns have other names (Java SchemaManager.applyRenameColumnsToOptions)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

OF_COLUMNS = "fields"
SEQUENCE_FIELD = "sequence.field"
LISTS_OF_COLUMNS = ("bucket-key", SEQUENCE_FIELD)
NAMED_BY_COLUMN = ("aggregate-function", "ignore-retract", "distinct", "list-agg-delimiter", "stats-mode")
NAMED_AND_LISTING = ("sequence-group", "nested-key")


def renamed_in_options(options: Mapping[str, str], renamed: Mapping[str, str]) -> dict[str, str]:
    """The options with column names replaced, in values that list columns and in keys `fields.<column>.<what>`."""

    def names(text: str) -> str:
        return ",".join(renamed.get(name.strip(), name.strip()) for name in text.split(","))

    return dict(_renamed_option(key, value, names) for key, value in options.items())


def without_sequence_fields(options: Mapping[str, str], unknown: Collection[str]) -> dict[str, str]:
    """The options for columns that lack some of the sequence fields: null in every row, those decide nothing."""
    names = options.get(SEQUENCE_FIELD, "").split(",")
    known = [name for name in names if name.strip() not in unknown]
    if len(known) == len(names):
        return dict(options)
    others = {key: value for key, value in options.items() if key != SEQUENCE_FIELD}
    return {**others, SEQUENCE_FIELD: ",".join(known)} if known else others


def _renamed_option(key: str, value: str, names: Callable[[str], str]) -> tuple[str, str]:
    if key in LISTS_OF_COLUMNS:
        return key, names(value)
    prefix, _, rest = key.partition(".")
    columns, _, what = rest.rpartition(".")
    if prefix != OF_COLUMNS or what not in (*NAMED_BY_COLUMN, *NAMED_AND_LISTING):
        return key, value
    return f"{prefix}.{names(columns)}.{what}", names(value) if what in NAMED_AND_LISTING else value
