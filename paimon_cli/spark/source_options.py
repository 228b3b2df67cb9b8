"""Options of the data source: parameters of `Table.scan` and `Table.write`, and options of the catalog and the table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from paimon_cli.api.table import Table
from paimon_cli.errors import NotSupported, UsageError
from paimon_cli.ingest.text_form import TextForm
from paimon_cli.options.choices import OnError
from paimon_cli.options.option_text import nearest, plain_number, split_buckets
from paimon_cli.read.time_travel import POSITION_OPTIONS
from paimon_cli.requests.fields import check_choice
from paimon_cli.storage.catalog_options import is_catalog_option

TABLE_OPTIONS = ("path", "branch", "warehouse")
AT_VERSION, AT_TIME = "versionasof", "timestampasof"
"""How Spark's users name a version in other formats: a snapshot or a tag; a point in time."""
_FIRST_MILLIS = 10**11
"""Numbers below are seconds since 1970 in `timestampAsOf`, as in Paimon's own connector; `as_of` takes them for snapshots."""
TRAVEL_OPTIONS = ("snapshot", "tag", "as_of", "incremental")
SCAN_OPTIONS = ("columns", "where", *TRAVEL_OPTIONS, "incremental_mode", "row_kind")
WRITE_OPTIONS = (
    *("op", "op_column", "on_error", "missing_columns", "timezone", "commit_user", "commit_id", "assume_new"),
    *("bucket", "other_buckets"),
)
STREAM_OPTIONS = ("start", "consumer", "maxrowspertrigger")
OPTIONS_OF_SPARK = ("checkpointlocation",)
OF_CREATE_TABLE = "owner"
"""Option that Spark passes for a table created in Spark's own catalog, which has no path."""
OF_JAVAS_CONNECTOR = {
    "read.changelog": "the option row_kind shows the kind of each row",
    "read.stream.": "the option maxRowsPerTrigger limits a batch",
    "write.merge-schema": "Table.alter.add_column adds columns",
}
"""What to use instead of options that only Java's connector has, by prefix of the key."""
OF_OTHER_FORMATS = {
    "readchangefeed": "the options incremental and row_kind",
    "startingversion": "the option start",
    "startingtimestamp": "the option start",
    "startingoffsets": "the option start",
    "maxfilespertrigger": "the option maxRowsPerTrigger",
    "paths": "one path; DataFrames of several tables are combined by union()",
    "limit": "limit() of the DataFrame",
    "mergeschema": "Table.alter.add_column",
    "overwriteschema": "Table.alter",
    "replacewhere": "Table.delete(where=...), then mode('append')",
    "partitionoverwritemode": "no option: mode('overwrite') replaces the partitions that get rows",
    "txnappid": "the options commit_user and commit_id",
    "txnversion": "the options commit_user and commit_id",
}
"""What to use instead of options of other table formats and sources, by key in lower case."""
_KNOWN = {*TABLE_OPTIONS, *SCAN_OPTIONS, *WRITE_OPTIONS, *STREAM_OPTIONS, AT_VERSION, AT_TIME}
_SHOWN = {"maxrowspertrigger": "maxRowsPerTrigger", AT_VERSION: "versionAsOf", AT_TIME: "timestampAsOf"}
"""Spelling of the options that are not in snake case."""
_WHOLE_NUMBERS = {"commit_id", "maxrowspertrigger"}


@dataclass(frozen=True)
class SourceOptions:
    """The options from `option` and `load`; the names of the data source's own options are in lower case. Picklable."""

    values: Mapping[str, str]

    @staticmethod
    def of(options: Mapping[str, str]) -> SourceOptions:
        """Raises `UsageError` for an unknown name, or if there is no `path`; `NotSupported` for a table in Spark's catalog."""
        values = {key if _is_option_of_table(key) else key.lower(): value for key, value in options.items()}
        if OF_CREATE_TABLE in values:
            hint = "CREATE TEMPORARY VIEW name USING paimon OPTIONS (path 'db.table')"
            raise NotSupported("CREATE TABLE ... USING paimon", "Spark's catalog does not pass on which table is meant", hint)
        unknown = [key for key in options if not _is_option_of_table(key) and key.lower() not in (*_KNOWN, *OPTIONS_OF_SPARK)]
        if unknown:
            known = ", ".join(_SHOWN.get(name, name) for name in sorted(_KNOWN))
            why = f"the data source knows {known}, and options of the table"
            raise UsageError(f"unknown option {unknown[0]}", why, _instead(unknown[0]))
        for prefix, hint in OF_JAVAS_CONNECTOR.items():
            if key := next((name for name in values if name.lower().startswith(prefix)), None):
                raise UsageError(f"unknown option {key}", "it belongs to Paimon's own Spark connector", hint)
        if "path" not in values:
            why = "the data source needs its name or path, which Spark's own catalog does not pass on"
            hint = ".load('db.table'), or in SQL: CREATE TEMPORARY VIEW name USING paimon OPTIONS (path 'db.table')"
            raise UsageError("no table is named", why, hint)
        return SourceOptions(_with_our_names(values))

    def get(self, name: str) -> Any:
        """The value of an option, an int where a whole number is expected; None if the option is not set."""
        text = self.values.get(name)
        if text is None or name not in _WHOLE_NUMBERS:
            return text
        try:
            return int(text)
        except ValueError:
            raise UsageError(f"option {_SHOWN.get(name, name)} is {text}", "a whole number is expected") from None

    def table(self) -> Table:
        """The table, opened with the catalog and table options."""
        options = {key: value for key, value in self.values.items() if _is_option_of_table(key)}
        warehouse, branch = self.get("warehouse"), self.get("branch")
        return Table.open(self.values["path"], options, warehouse=warehouse, branch=branch, strict_options=True)

    def scan_arguments(self) -> dict[str, Any]:
        """Arguments for `Table.scan`. Raises `UsageError` if an option of writes or streams is set."""
        self.refuse((*WRITE_OPTIONS, *STREAM_OPTIONS), "reading")
        found = {name: self.get(name) for name in SCAN_OPTIONS if self.get(name) is not None}
        return {**found, "row_kind": self.shows_kinds}

    def column_arguments(self) -> dict[str, Any]:
        """The arguments for `Table.scan` that decide which columns there are, without `row_kind`."""
        return {name: self.get(name) for name in SCAN_OPTIONS if name not in ("where", "row_kind") and self.get(name) is not None}

    @property
    def shows_kinds(self) -> bool:
        """Whether the first column is `rowkind`."""
        return self.is_true("row_kind")

    @property
    def shows_other_columns(self) -> bool:
        """Whether the columns may differ from the table's latest schema."""
        return self.shows_kinds or bool(self.column_arguments()) or any(name in self.values for name in POSITION_OPTIONS)

    def write_arguments(self) -> dict[str, Any]:
        """Arguments for `WriteRequest`. Raises `UsageError` if an option of reads or streams is set."""
        self.refuse((*SCAN_OPTIONS, *STREAM_OPTIONS, *POSITION_OPTIONS), "writing")
        found = {name: self.get(name) for name in WRITE_OPTIONS if name != "timezone" and self.get(name) is not None}
        check_choice("on-error", found.get("on_error", OnError.FAIL), (OnError.FAIL, OnError.SKIP))
        if "bucket" in found:
            found["bucket"] = split_buckets([found["bucket"]])
        return {**found, "assume_new": self.is_true("assume_new")}

    @property
    def timezone(self) -> str | None:
        """The zone for times without an offset, and for instants in columns without time zone. Raises `UsageError` if unknown."""
        return TextForm(timezone=self.get("timezone")).timezone

    def is_true(self, name: str) -> bool:
        """The value of a boolean option, by default false. Raises `UsageError` for other values than `true` and `false`."""
        text = self.values.get(name, "false").lower()
        check_choice(name.replace("_", "-"), text, ("true", "false"))
        return text == "true"

    def refuse(self, names: Iterable[str], operation: str, hint: str = "leave it out") -> None:
        """Raise `UsageError` if one of these options is set."""
        for name in names:
            if name in self.values:
                shown = _SHOWN.get(name, name)
                raise UsageError(f"option {shown} has no meaning for {operation}", "it would be ignored", hint)


def _with_our_names(values: dict[str, str]) -> dict[str, str]:
    """The options, with `versionAsOf` and `timestampAsOf` as `snapshot`, `tag` or `as_of`. Raises `UsageError` for both forms."""
    for theirs in (AT_VERSION, AT_TIME):
        if theirs not in values:
            continue
        value = values.pop(theirs)
        is_number = value.isdecimal() and value.isascii()
        ours = "as_of" if theirs == AT_TIME else "snapshot" if is_number else "tag"
        seconds = plain_number(value) if theirs == AT_TIME and is_number else None
        if seconds is not None and seconds < _FIRST_MILLIS:
            value = datetime.fromtimestamp(seconds, timezone.utc).isoformat()
        if ours in values:
            raise UsageError(f"options {_SHOWN[theirs]} and {ours} are given", "they mean the same", "give one of them")
        values[ours] = value
    return values


def _instead(key: str) -> str:
    """The hint for an unknown option."""
    if key.lower() in OF_OTHER_FORMATS:
        return f"use {OF_OTHER_FORMATS[key.lower()]}"
    spellings = {name.replace("_", ""): _SHOWN.get(name, name) for name in _KNOWN}
    found = nearest(key.lower().replace("_", ""), spellings)
    return "" if found is None else f"did you mean {spellings[found]}?"


def _is_option_of_table(key: str) -> bool:
    return "." in key or "-" in key or (key not in TABLE_OPTIONS and is_catalog_option(key))
