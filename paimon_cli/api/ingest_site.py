"""Where the tables of an ingest are: they are opened, and created as they are needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from paimon_cli.api.definition import create_defined
from paimon_cli.api.runtime import Runtime
from paimon_cli.api.writing import Writing
from paimon_cli.catalog.definition_check import check_definition
from paimon_cli.catalog.metastore.settings import find_metastore
from paimon_cli.catalog.open_table import open_table
from paimon_cli.catalog.table_definition import TableDefinition, to_schema, with_key_options, with_postponed_writes
from paimon_cli.catalog.table_location import locate_table
from paimon_cli.datatypes.data_type import DataField
from paimon_cli.errors import NotFound
from paimon_cli.metadata.table_schema import TableSchema


@dataclass(frozen=True)
class IngestSite:
    """Where the tables are. `options`: of the catalog; `table_options`: of new tables; `table`: the only one, if it is open."""

    runtime: Runtime
    warehouse: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    table_options: Mapping[str, str] = field(default_factory=dict)
    branch: str | None = None
    allow_unsafe_commit: bool = False
    table: Writing | None = None

    @cached_property
    def writing(self) -> Runtime:
        """How rows are written: in this process, by one engine for all commits."""
        runtime = replace(self.runtime, engine="local")
        return replace(runtime, given_engine=runtime.open_engine())

    def opened(self, name: str) -> Writing | None:
        """The table, with its own options; None if it does not exist."""
        if self.table is not None:
            return Writing(self.table.context, self.writing)
        try:
            location = locate_table(name, self.warehouse, self.options, self.branch)
            location = replace(location, allow_unsafe_commit=self.allow_unsafe_commit)
            return Writing(open_table(location, {}, self.runtime.trace), self.writing)
        except NotFound:
            return None

    def created(self, name: str, fields: Sequence[DataField], keys: tuple[str, ...]) -> Writing:
        """A new table, and its database if there is none."""
        location = locate_table(name, self.warehouse, self.options, is_new=True)
        if location.identifier is not None:
            self._expect_database(location.identifier.database)
        location = replace(location, allow_unsafe_commit=self.allow_unsafe_commit)
        for warning in create_defined(location, self._definition(fields, keys)).warnings:
            self.runtime.warn(warning)
        opened = self.opened(name)
        assert opened is not None
        return opened

    def defined(self, fields: Sequence[DataField], keys: tuple[str, ...]) -> TableSchema:
        """The schema that a new table would have."""
        definition = with_key_options(self._definition(fields, keys))
        check_definition(definition)
        return to_schema(with_postponed_writes(definition), 0)

    def _definition(self, fields: Sequence[DataField], keys: tuple[str, ...]) -> TableDefinition:
        return TableDefinition(tuple(fields), keys, (), dict(self.table_options), if_not_exists=True)

    def _expect_database(self, name: str) -> None:
        metastore = find_metastore(self.warehouse, self.options)
        try:
            metastore.database(name)
        except NotFound:
            metastore.create_database(name)
