"""Options of the data source: parameters of `Table.scan` and `Table.write`, and options of the catalog and the table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from paimon_cli.api.opened_table import check_choice
from paimon_cli.api.table import Table
from paimon_cli.errors import NotSupported, UsageError
from paimon_cli.ingest.faults import FAIL, SKIP
from paimon_cli.storage.catalog_options import is_catalog_option

TABLE_OPTIONS = ("path", "branch", "warehouse")
SCAN_OPTIONS = ("columns", "where", "snapshot", "tag", "as_of", "incremental", "incremental_mode", "row_kind")
WRITE_OPTIONS = ("op", "op_column", "on_error", "missing_columns", "commit_user", "commit_id", "assume_new")
STREAM_OPTIONS = ("start", "consumer", "maxrowspertrigger")
SPARKS_OWN = ("checkpointlocation",)
OF_CREATE_TABLE = "owner"
"""What Spark passes on when a table is made in its own catalog, where it keeps no path."""
OF_JAVAS_CONNECTOR = {
    "read.changelog": "the option row_kind shows the kind of each row",
    "read.stream.": "the option maxRowsPerTrigger limits a batch",
    "write.merge-schema": "`paimon-cli alter TABLE add-column` adds columns",
}
"""What takes the place of options that Java's source has beside those of the table."""
_KNOWN = {*TABLE_OPTIONS, *SCAN_OPTIONS, *WRITE_OPTIONS, *STREAM_OPTIONS}
_WHOLE_NUMBERS = {"snapshot", "commit_id", "maxrowspertrigger"}


@dataclass(frozen=True)
class SourceOptions:
    """What was given by `option` and `load`; names of the source's own options are in lower case. Picklable."""

    given: Mapping[str, str]

    @staticmethod
    def of(options: Mapping[str, str]) -> SourceOptions:
        """Raises `UsageError` for an unknown name, and where no table is named; `NotSupported` for a table of Spark's catalog."""
        given = {key if _is_option_of_table(key) else key.lower(): value for key, value in options.items()}
        if OF_CREATE_TABLE in given:
            hint = "CREATE TEMPORARY VIEW name USING paimon OPTIONS (path 'db.table')"
            raise NotSupported("CREATE TABLE ... USING paimon", "Spark's catalog does not pass on which table is meant", hint)
        unknown = [key for key in given if not _is_option_of_table(key) and key not in _KNOWN and key not in SPARKS_OWN]
        if unknown:
            known = ", ".join(sorted(_KNOWN))
            raise UsageError(f"unknown option {unknown[0]}", f"the data source knows {known}, and options of the table")
        for key, hint in OF_JAVAS_CONNECTOR.items():
            if given_key := next((name for name in given if name.lower().startswith(key)), None):
                raise UsageError(f"unknown option {given_key}", "it is one of Paimon's own Spark connector", hint)
        if "path" not in given:
            raise UsageError("no table is named", "the data source needs its name or path", 'such as .load("db.table")')
        return SourceOptions(given)

    def get(self, name: str) -> Any:
        """The value of an option, None if it is not given."""
        text = self.given.get(name)
        if text is None or name not in _WHOLE_NUMBERS:
            return text
        try:
            return int(text)
        except ValueError:
            raise UsageError(f"option {name} is {text}", "a whole number is expected") from None

    def table(self) -> Table:
        """The table, opened with the options that are its own."""
        options = {key: value for key, value in self.given.items() if _is_option_of_table(key)}
        warehouse, branch = self.get("warehouse"), self.get("branch")
        return Table.open(self.given["path"], options, warehouse=warehouse, branch=branch, strict_options=True)

    def scan_arguments(self) -> dict[str, Any]:
        """Arguments for `Table.scan`. Raises `UsageError` for options of a write."""
        self.refuse((*WRITE_OPTIONS, *STREAM_OPTIONS), "reading")
        found = {name: self.get(name) for name in SCAN_OPTIONS if self.get(name) is not None}
        return {**found, "row_kind": self.shows_kinds}

    @property
    def shows_kinds(self) -> bool:
        """Whether rows begin with a column `rowkind`."""
        return self.is_true("row_kind")

    def write_arguments(self) -> dict[str, Any]:
        """Arguments for a `WriteRequest`. Raises `UsageError` for options of a read."""
        self.refuse((*SCAN_OPTIONS, *STREAM_OPTIONS), "writing")
        found = {name: self.get(name) for name in WRITE_OPTIONS if self.get(name) is not None}
        missing = found.pop("missing_columns", "null")
        check_choice("missing-columns", missing, ("null", "error"))
        check_choice("on-error", found.get("on_error", FAIL), (FAIL, SKIP))
        return {**found, "missing_are_null": missing == "null", "assume_new": self.is_true("assume_new")}

    def is_true(self, name: str) -> bool:
        """The value of an option that is true or false, by default false. Raises `UsageError` for other values."""
        text = self.given.get(name, "false").lower()
        check_choice(name.replace("_", "-"), text, ("true", "false"))
        return text == "true"

    def refuse(self, names: Iterable[str], work: str, hint: str = "leave it out") -> None:
        """`UsageError` if one of these options is given."""
        for name in names:
            if name in self.given:
                raise UsageError(f"option {name} has no meaning for {work}", "it would be ignored", hint)


def _is_option_of_table(key: str) -> bool:
    return "." in key or "-" in key or (key not in TABLE_OPTIONS and is_catalog_option(key))
