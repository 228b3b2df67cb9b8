"""Which table gets the events of a table of the source: names, prefixes, mappings, and what is left out."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from paimon_cli.catalog.metastore.metastore import is_name, refuse_nul
from paimon_cli.errors import UsageError
from paimon_cli.ingest.changes.table_events import SourceTable
from paimon_cli.options.option_text import printable
from paimon_cli.requests.ingesting import IngestOptions

_DATABASE_SUFFIX = ".db"
_ANY = ""
MAX_NAME = 1000
"""Characters of the name of a table of a source, which no database allows."""


@dataclass(frozen=True)
class IngestPlace:
    """Where events go: `table` for all of them, else tables of `database`, else of the database that has the name of the
    source's. `warehouse`: the one that a path names.
    """

    database: str | None = None
    table: str | None = None
    warehouse: str | None = None

    @staticmethod
    def of(into: str | None) -> IngestPlace:
        """What `--into` names: a database, its directory, or a table."""
        if into is None:
            return IngestPlace()
        refuse_nul(into)
        above, _, last = into.rstrip("/").rpartition("/")
        name = last.removesuffix(_DATABASE_SUFFIX)
        if "/" in into and last.endswith(_DATABASE_SUFFIX) and is_name(name):
            return IngestPlace(name, warehouse=above or ("/" if into.startswith("/") else "."))
        if any(sign in into for sign in "/.@"):
            return IngestPlace(table=into)
        if not is_name(into):
            raise UsageError(
                f"--into {into}", "it is no name of a database or table", "such as --into shop, or --into shop.orders"
            )
        return IngestPlace(into)


@dataclass(frozen=True)
class TableNames:
    """Table names by source name, as the options of a call say."""

    place: IngestPlace
    options: IngestOptions

    def is_wanted(self, table: SourceTable) -> bool:
        """Whether its events are applied at all."""
        include, exclude = self.options.include or (), self.options.exclude or ()
        return (not include or _matches(table, include)) and not _matches(table, exclude)

    def unmatched(self, tables: Collection[SourceTable]) -> list[str]:
        """The options that mean none of these tables."""
        globs = [f"--include {glob}" for glob in self.options.include or () if not any(_matches(one, [glob]) for one in tables)]
        names = {name for table in tables for name in _names(table)}
        mapped = (text for text in self.options.table_mapping or () if text.partition("=")[0] not in names)
        return [*globs, *(f"--table-mapping {text}" for text in mapped)]

    def target(self, table: SourceTable) -> str:
        """The name of the table, `db.table` or as the user named it. Raises `UsageError` for names that no table can have."""
        if (length := sum(map(len, table))) > MAX_NAME:
            what = f"'{printable(table.name[:60])}…' is no name of a table"
            raise UsageError(what, f"it has {length:,} characters, and comes from the events", "leave it out with --exclude")
        if self.place.table is not None:
            return self.place.table
        database = table.database if self.place.database is None else self.place.database
        name = self._mapped(table) or f"{self.options.table_prefix}{table.table}"
        for one, what in ((database, "database"), (name, "table")):
            if not is_name(one):
                shown = printable(one[:60])
                why = "it comes from the events" if one in (table.database, table.table) else "it comes from the options"
                raise UsageError(f"'{shown}' is no name of a {what}", why, "give the table another name with --table-mapping")
        return f"{database}.{name}"

    def key(self, table: SourceTable) -> tuple[str, ...]:
        """The primary key that the options name for a new table; none if they do not."""
        of_table = {name: columns for name, _, columns in (self._parts(text) for text in self.options.primary_key or ())}
        for name in (*_names(table), _ANY):
            if name in of_table:
                return tuple(column.strip() for column in of_table[name].split(",") if column.strip())
        return ()

    def _mapped(self, table: SourceTable) -> str | None:
        mapping = dict(text.partition("=")[::2] for text in self.options.table_mapping or ())
        return next((mapping[name] for name in _names(table) if name in mapping), None)

    @staticmethod
    def _parts(text: str) -> tuple[str, str, str]:
        """`db.t=a,b` in its parts; `a,b` is the key of all tables."""
        name, sign, columns = text.partition("=")
        return (name, sign, columns) if sign else (_ANY, sign, text)


def _names(table: SourceTable) -> tuple[str, ...]:
    """The names by which options may mean a table, the most exact first."""
    with_schema = (f"{table.database}.{table.schema}.{table.table}", f"{table.schema}.{table.table}") if table.schema else ()
    return (*with_schema, table.name, table.table)


def _matches(table: SourceTable, globs: Sequence[str]) -> bool:
    return any(fnmatchcase(name, glob) for glob in globs for name in _names(table))
