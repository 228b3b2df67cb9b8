"""What would be adopted, and how: the footers of a source, the definition of the new table, and where its rows go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paimon_cli.catalog.create_table import check_new_table
from paimon_cli.catalog.ddl import definition_of
from paimon_cli.catalog.open_table import open_table
from paimon_cli.catalog.table_definition import TableDefinition
from paimon_cli.catalog.table_location import TableLocation
from paimon_cli.datatypes.data_type import DataField
from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.errors import AlreadyExists, Conflict, NotSupported, PaimonError, UsageError
from paimon_cli.history.partition_spec import value_of_text
from paimon_cli.jobs.adoption.footers import FileFooter, Footers
from paimon_cli.jobs.adoption.hive import hive_fields
from paimon_cli.jobs.adoption.source import CHANGED_HINT, HIVE_NULL, Source, Stamp
from paimon_cli.jobs.engine import Progress, phase
from paimon_cli.options.table_options import TableOptions
from paimon_cli.requests.adoption import AdoptOptions, FilePlacement
from paimon_cli.sql.column_definitions import parse_column
from paimon_cli.storage.capabilities import can_link


@dataclass(frozen=True)
class AdoptionPlan:
    """What would be adopted. `rows`: by the footers of all files; `columns` in SQL.

    `placement`: link, copy or move; rewrite if there are `primary_keys`. `deletes_source`: whether the source's files go at the
    end.
    """

    source: str
    kind: str
    table: str
    placement: str
    files: int
    size: int
    rows: int
    partitions: int
    partition_keys: tuple[str, ...]
    primary_keys: tuple[str, ...]
    columns: tuple[str, ...]
    deletes_source: bool


@dataclass(frozen=True)
class Adopted:
    """What was adopted. `rows`: what the files of the source have. The new table has as many, less the `duplicates`: rows that
    were merged into others with the same primary key; None if these cannot be told before a compaction.
    """

    source: str
    table: str
    snapshot_id: int
    placement: str
    files: int
    size: int
    rows: int
    partitions: int
    duplicates: int | None = 0


@dataclass(frozen=True)
class Adoption:
    """A source with its footers, and the definition of its table. `stamps`: see `Source.stamps`, from before the footers.

    `values`: of the partition columns, by their texts in the source.
    """

    source: Source
    stamps: Mapping[str, Stamp]
    footers: list[FileFooter]
    location: TableLocation
    definition: TableDefinition
    placement: str
    deletes_source: bool
    values: Mapping[tuple[str | None, ...], tuple[Any, ...]]

    @property
    def shared(self) -> list[str]:
        """Partitions that several directories hold, such as `p=01 and p=1`, which the table has once."""
        by_values: dict[tuple[Any, ...], list[str]] = {}
        for texts, values in self.values.items():
            pairs = [f"{key}={HIVE_NULL if text is None else text}" for key, text in zip(self.source.keys, texts, strict=True)]
            by_values.setdefault(values, []).append("/".join(pairs))
        return [" and ".join(names) for names in by_values.values() if len(names) > 1]

    @property
    def rows(self) -> int:
        """How many rows the files of the source have, by their footers."""
        return sum(footer.rows for footer in self.footers)

    def plan(self) -> AdoptionPlan:
        source, definition = self.source, self.definition
        return AdoptionPlan(
            source=source.label,
            kind=source.kind,
            table=self.location.name,
            placement=self.placement,
            files=len(source.files),
            size=source.size,
            rows=self.rows,
            partitions=len(set(self.values.values())) if source.keys else 0,
            partition_keys=definition.partition_keys,
            primary_keys=definition.primary_keys,
            columns=tuple(f"{field.name} {_sql(field)}" for field in definition.fields),
            deletes_source=self.deletes_source,
        )

    def done(self, snapshot_id: int, duplicates: int | None = 0) -> Adopted:
        plan = self.plan()
        counts = (plan.files, plan.size, plan.rows, plan.partitions)
        return Adopted(plan.source, plan.table, snapshot_id, plan.placement, *counts, duplicates)

    def expect_unchanged(self, threads: int) -> None:
        """Raise `Conflict` if a file is not the one whose footer was read, so that its rows or statistics may be others."""
        now = self.source.stamps(threads)
        for file in self.source.files:
            if file.path not in now or now[file.path] != self.stamps.get(file.path):
                raise self.changed(file.path)

    def changed(self, path: str) -> Conflict:
        why = "another writer has replaced or deleted it since its footer was read"
        return Conflict(f"{path} of {self.source.root} has changed", why, CHANGED_HINT, path=path)


def plan_adoption(
    source: Source,
    location: TableLocation,
    asked: AdoptOptions,
    options: Mapping[str, str],
    progress: Progress,
    threads: int,
) -> Adoption:
    """Read the footers, and define the table with these table options. Raises `UsageError` if the partition columns are not those
    of the source, or links are asked for where there can be none; and what `Footers.read` raises.
    """
    primary_key = tuple(asked.primary_key or ())
    if location.metastore is not None and location.identifier is not None and not location.metastore.takes_files:
        raise location.metastore.unsupported("adopting files", "create the table, then write the rows to it")
    target = location.open_storage()[1]
    if f"{target}/".startswith(f"{source.root}/"):
        why = "its own engine would take the files of the new table for its own, or for orphans"
        raise UsageError(f"{target} lies in {source.root}", why, "give the table a place outside of the source")
    with phase(progress, "Reading footers", None):
        stamps = source.stamps(threads)
        footers = Footers(source, threads, in_place=not primary_key).read()
    keys = _partition_fields(source, asked.partition_columns or ())
    stored = footers[0].fields
    places = {name: place for place, name in enumerate(source.order)}
    stored = tuple(sorted(stored, key=lambda field: places.get(field.name, len(places))))
    if source.columns:
        stored = hive_fields(source, stored, in_place=not primary_key)
    held = {field.name: field for field in stored}
    both = [key.name for key in keys if key.name in held]
    if both and source.kind != "iceberg":
        why = "its values in the files might differ from the directories' values"
        raise NotSupported(f"column {both[0]} is in the files and in the names of directories", why, "write the rows")
    for key in keys:
        if key.name in held and _sql(held[key.name]) != _sql(key):
            raise NotSupported(f"partition column {key.name} is {_sql(held[key.name])} in the files, not {_sql(key)}")
    fields = (*stored, *(key for key in keys if key.name not in held))
    chosen = dict(options) if primary_key else _in_place_options(bool(keys), options)
    definition = TableDefinition(fields, primary_key, tuple(key.name for key in keys), chosen)
    _expect_new(location, definition)
    values = _values_of(source, keys, TableOptions(chosen).partition_default_name)
    how = FilePlacement.REWRITE if primary_key else _placement(source, location, asked.files)
    return Adoption(source, stamps, footers, location, definition, how, asked.files == FilePlacement.MOVE, values)


def _values_of(source: Source, keys: Sequence[DataField], null: str) -> dict[tuple[str | None, ...], tuple[Any, ...]]:
    """The values of partitions by their texts. Raises `UsageError` for a text that is no value of its type."""
    different = dict.fromkeys(file.partition for file in source.files)
    try:
        return {
            texts: tuple(value_of_text(key, None if text == null else text) for key, text in zip(keys, texts, strict=True))
            for texts in different
        }
    except UsageError as error:
        error.set_hint("choose another type with --partition-column, such as 'p STRING', or rename the directory")
        raise


def _expect_new(location: TableLocation, definition: TableDefinition) -> None:
    """Raise what creating the table would raise, before anything is changed."""
    try:
        check_new_table(location, definition)
    except AlreadyExists as error:
        say_what_is_there(error, location)
        raise


def say_what_is_there(error: AlreadyExists, location: TableLocation) -> None:
    """A killed run leaves its table, with all of the rows or without a snapshot."""
    try:
        is_empty = open_table(location).snapshots.latest() is None
    except PaimonError:
        is_empty = False
    error.set_hint(
        "choose another name; it has no snapshot, as after a killed run: then drop it, and adopt again"
        if is_empty
        else "choose another name; after a killed run the table may be complete"
    )


def _in_place_options(is_partitioned: bool, options: Mapping[str, str]) -> dict[str, str]:
    """The options of an append table for files as they are. Raises `UsageError` for buckets."""
    own = {"bucket": "-1", "partition.default-name": HIVE_NULL} if is_partitioned else {"bucket": "-1"}
    chosen = {**own, **options}
    if chosen["bucket"] != "-1":
        hint = "leave the option out, or name a primary key (--primary-key)"
        raise UsageError(f"bucket={chosen['bucket']}", "adopted files have no buckets", hint)
    return chosen


def _sql(field: DataField) -> str:
    return type_to_sql(field.type)


def _partition_fields(source: Source, declared: Sequence[str]) -> list[DataField]:
    named = {field.name: field for field in definition_of([parse_column(text) for text in declared], "partition columns").fields}
    unknown = [name for name in named if name not in source.keys]
    if unknown:
        known = ", ".join(source.keys) or "none"
        raise UsageError(f"{unknown[0]} is no partition column of the source", f"its directories have {known}")
    plain = definition_of(
        [parse_column(f"`{key}` {source.types.get(key, 'STRING')}") for key in source.keys if key not in named], "directories"
    )
    found = {field.name: field for field in plain.fields} | named
    return [found[key] for key in source.keys]


def _placement(source: Source, location: TableLocation, asked: str | None) -> str:
    storage, root = location.open_storage()
    links = can_link(source.storage, source.root, storage, root)
    if asked == FilePlacement.LINK and not links:
        raise UsageError("the files cannot be linked", "the source and the table are not on one local disk", "--files copy")
    return asked or (FilePlacement.LINK if links else FilePlacement.COPY)
