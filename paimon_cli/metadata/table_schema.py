"""Schema files: columns, keys and options of a table at one schema id (FORMAT.md, section 2.1)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from paimon_cli.datatypes.data_type import DataField, DataType, RowType, check_field_names
from paimon_cli.datatypes.field_types import field_from_json, field_to_json
from paimon_cli.errors import DamagedFile, UsageError
from paimon_cli.metadata.bucket_modes import bucket_mode_of
from paimon_cli.metadata.snapshot import dump_java_json
from paimon_cli.options.option_text import did_you_mean
from paimon_cli.options.table_options import TableOptions

CURRENT_VERSION = 3
_SHOWN = 100
"""Characters that a message shows of a wrong value."""
MAX_COLUMNS = 100_000
"""The most columns that a schema may have, those within ROW types included."""
_MAX_MARKS = 10 * MAX_COLUMNS
"""The most commas and opening brackets in a schema file: a column has about five. A text with more is not parsed, because its
values could take a hundred times its size in memory.
"""


@dataclass(frozen=True)
class TableSchema:
    """One version of a table's schema.

    `highest_field_id` includes nested fields and never decreases. `time_millis` is in milliseconds since the epoch.
    """

    id: int
    fields: tuple[DataField, ...]
    highest_field_id: int
    partition_keys: tuple[str, ...]
    primary_keys: tuple[str, ...]
    options: dict[str, str]
    comment: str | None
    time_millis: int
    version: int = CURRENT_VERSION

    @cached_property
    def typed_options(self) -> TableOptions:
        """The parsed options of the schema, without dynamic ones (see `TableContext.options`)."""
        return TableOptions(self.options)

    @cached_property
    def _by_name(self) -> dict[str, DataField]:
        return {field.name: field for field in self.fields}

    @property
    def field_names(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.fields)

    @property
    def trimmed_primary_keys(self) -> tuple[str, ...]:
        """Primary-key columns that are not partition columns, in primary-key order."""
        return tuple(name for name in self.primary_keys if name not in self.partition_keys)

    @property
    def fixed_columns(self) -> frozenset[str]:
        """Columns with the same value in all rows of a key: also partition columns, which a retraction must not clear."""
        return frozenset((*self.primary_keys, *self.partition_keys))

    @property
    def has_movable_rows(self) -> bool:
        """Whether rows may move to another partition (`BucketMode.moves_keys`). Raises `UsageError` for an invalid `bucket`."""
        return bucket_mode_of(self.primary_keys, self.partition_keys, self.typed_options.bucket).moves_keys

    @property
    def bucket_key_names(self) -> tuple[str, ...]:
        """Columns whose hash determines the bucket: option `bucket-key`, or else the trimmed primary key."""
        listed = [name.strip() for name in self.options.get("bucket-key", "").split(",")]
        return tuple(name for name in listed if name) or self.trimmed_primary_keys

    def field(self, name: str) -> DataField:
        """The column of that name. Raises `UsageError` if there is none."""
        found = self.find(name)
        if found is None:
            hint = f"{did_you_mean(name, self.field_names)}columns: {', '.join(self.field_names)}"
            raise UsageError(f"no column '{name}'", "the table does not have it", hint, column=name)
        return found

    def find(self, name: str) -> DataField | None:
        """The column of that name, or None."""
        return self._by_name.get(name)

    def fields_of(self, names: Iterable[str]) -> tuple[DataField, ...]:
        return tuple(map(self.field, names))

    def types_of(self, names: Iterable[str]) -> tuple[DataType, ...]:
        return tuple(self.field(name).type for name in names)

    def to_json(self) -> str:
        """The text of the schema file in Java's layout. A null comment is omitted, since Java would read it as a string."""
        content: dict[str, Any] = {
            "version": self.version,
            "id": self.id,
            "fields": [field_to_json(field) for field in self.fields],
            "highestFieldId": self.highest_field_id,
            "partitionKeys": self.partition_keys,
            "primaryKeys": self.primary_keys,
            "options": self.options,
        }
        if self.comment is not None:
            content["comment"] = self.comment
        content["timeMillis"] = self.time_millis
        return dump_java_json(content)

    @staticmethod
    def from_json(text: str | bytes, path: str = "") -> TableSchema:
        """Parse a schema file and add the defaults of old versions to its options. Raises a `DamagedFile` that names `path`."""
        try:
            return _SchemaReader(_parsed(text)).schema()
        except (ValueError, LookupError, TypeError, RecursionError, UsageError) as error:
            raise DamagedFile(f"cannot read schema file {path}".rstrip(), str(error), path=path) from error


def _parsed(text: str | bytes) -> Any:
    """The JSON of a schema file, unless it has too many values. Raises `ValueError`."""
    content = text.encode() if isinstance(text, str) else text
    marks = content.count(b",") + content.count(b"[") + content.count(b"{")
    if marks > _MAX_MARKS:
        raise ValueError(f"it has {marks:,} values, more than a schema of {MAX_COLUMNS:,} columns, the most that can be read")
    return json.loads(text)


@dataclass(frozen=True)
class _SchemaReader:
    """Reads the values of a parsed schema file. Methods raise a `ValueError` that names the invalid key."""

    content: Any

    def schema(self) -> TableSchema:
        if not isinstance(self.content, dict):
            raise ValueError("it does not hold a JSON object")
        version = self._integer("version", 1)
        listed = self._list("fields")
        if len(listed) > MAX_COLUMNS:
            raise ValueError(f"it has {len(listed):,} columns, but {MAX_COLUMNS:,} are the most that can be read")
        fields = tuple(map(field_from_json, listed))
        names = [field.name for field in fields]
        check_field_names(names)
        if not all(0 <= field.id < 2**31 for field in fields):
            raise ValueError("the ids of its fields must be numbers of 32 bits from 0 on")
        if len({field.id for field in fields}) < len(fields):
            raise ValueError("two of its fields have the same id, by which columns of data files are found")
        for field in fields:
            _check_nested_ids(field)
        return TableSchema(
            id=self._integer("id"),
            fields=fields,
            highest_field_id=self._integer("highestFieldId", least=-1),
            partition_keys=self._columns("partitionKeys", names),
            primary_keys=self._columns("primaryKeys", names),
            options=_with_old_defaults(self._options(), version),
            comment=self._comment(),
            time_millis=self._integer("timeMillis", 0),
            version=version,
        )

    def _integer(self, key: str, default: int | None = None, least: int = 0) -> int:
        """A number of 64 bits from `least` on. A schema without columns has -1 as its highest field id."""
        value = self.content.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value < 2**63:
            raise ValueError(f"'{key}' must be a whole number of 64 bits from {least} on, found {_brief(value)}")
        return value

    def _list(self, key: str) -> list[Any]:
        value = self.content.get(key)
        if not isinstance(value, list):
            raise ValueError(f"'{key}' must be a list, found {_brief(value)}")
        return value

    def _columns(self, key: str, names: list[str]) -> tuple[str, ...]:
        columns = self._list(key)
        known = set(names)
        unknown = [name for name in columns if not isinstance(name, str) or name not in known]
        if unknown:
            raise ValueError(f"'{key}' names unknown columns: {_brief(unknown)}")
        if len(set(columns)) < len(columns):
            raise ValueError(f"'{key}' names a column twice: {_brief(columns)}")
        return tuple(columns)

    def _options(self) -> dict[str, str]:
        options = self.content.get("options")
        if not isinstance(options, dict):
            raise ValueError(f"'options' must be an object, found {_brief(options)}")
        return {key: _option_text(key, value) for key, value in options.items()}

    def _comment(self) -> str | None:
        comment = self.content.get("comment")
        if comment is not None and not isinstance(comment, str):
            raise ValueError(f"'comment' must be text, found {_brief(comment)}")
        return comment


def _check_nested_ids(column: DataField) -> None:
    """Raise `ValueError` for a row, at any depth, of which two fields have the same id, or one has none that is possible."""
    for part in column.type.parts():
        if isinstance(part, RowType):
            ids = [field.id for field in part.fields]
            if len({*ids}) < len(ids) or not all(0 <= number < 2**31 for number in ids):
                raise ValueError(f"fields within '{column.name}' have the same id, or an impossible one, by which they are found")


def _option_text(key: str, value: object) -> str:
    """The option's text. Numbers and booleans become their JSON text, as in Java; other values raise `ValueError`."""
    if isinstance(value, str):
        return value
    if isinstance(value, (bool, int, float)):
        return json.dumps(value)
    raise ValueError(f"option '{key}' must be text, found {_brief(value)}")


def _brief(value: object) -> str:
    """A wrong value as a message shows it."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _with_old_defaults(options: dict[str, str], version: int) -> dict[str, str]:
    """The options with defaults that differed in old versions: `bucket` in version 1, `file.format` in versions 1 and 2."""
    old = {}
    if version <= 1:
        old["bucket"] = "1"
    if version <= 2:
        old["file.format"] = "orc"
    return {**options, **{key: value for key, value in old.items() if key not in options}}
