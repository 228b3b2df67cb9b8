"""`adopt`: creates an append table from the files of a source, as links or copies with new names, in one commit.

Java: HiveMigrator, FileMetaUtils. Java moves the files of a source and keeps their names; here the source stays as it is unless
`move` is asked for, and then goes only after the commit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from paimon_cli.bucket.column_statistics import simple_stats
from paimon_cli.bucket.stamped_files import DataFileNames, new_stamp
from paimon_cli.catalog.create_table import create_table
from paimon_cli.catalog.ddl import definition_of
from paimon_cli.catalog.open_table import open_table
from paimon_cli.catalog.table_definition import TableDefinition
from paimon_cli.catalog.table_location import TableLocation
from paimon_cli.commit.commit_messages import removed_on_refusal
from paimon_cli.commit.committer import Committer
from paimon_cli.commit.deduplication import fresh_identity
from paimon_cli.commit.outcome import CommitOutcome, CommitResult
from paimon_cli.datatypes.binary_row import serialize_row
from paimon_cli.datatypes.data_type import DataField
from paimon_cli.datatypes.field_types import type_to_sql
from paimon_cli.errors import (
    AlreadyExists,
    Conflict,
    DamagedFile,
    NotSupported,
    PaimonError,
    PartialSuccess,
    StorageUnavailable,
    Unpublished,
    UsageError,
    cleaning_up,
)
from paimon_cli.history.partition_spec import partition_value
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.adoption.footers import FileFooter, Footers, kept_statistics
from paimon_cli.jobs.adoption.source import CHANGED_HINT, HIVE_NULL, Source, Stamp
from paimon_cli.jobs.engine import Progress, phase
from paimon_cli.maintain.drop_table import drop_table
from paimon_cli.metadata.data_file import EMPTY_ROW, SOURCE_APPEND, CommitMessage, DataFileMeta, FileChanges
from paimon_cli.requests.adoption import FilePlacement
from paimon_cli.sql.column_definitions import parse_column
from paimon_cli.storage.file_copy import FileCopy, FileToCopy
from paimon_cli.storage.injected import local_wall_clock
from paimon_cli.storage.storage import can_link, keep_deleted, link_file
from paimon_cli.storage.threads import in_parallel


@dataclass(frozen=True)
class AdoptionPlan:
    """What would be adopted. `rows`: by the footers of all files; `columns` in SQL; `placement`: link, copy or move."""

    source: str
    kind: str
    table: str
    placement: str
    files: int
    size: int
    rows: int
    partitions: int
    partition_keys: tuple[str, ...]
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Adopted:
    """What was adopted: `rows` is what the new table has, which is what the files of the source have."""

    source: str
    table: str
    snapshot_id: int
    placement: str
    files: int
    size: int
    rows: int
    partitions: int


@dataclass(frozen=True)
class Adoption:
    """A source with its footers, and the definition of its table. `stamps`: see `Source.stamps`, from before the footers."""

    source: Source
    stamps: Mapping[str, Stamp]
    footers: list[FileFooter]
    location: TableLocation
    definition: TableDefinition
    placement: str

    def plan(self) -> AdoptionPlan:
        source, definition = self.source, self.definition
        return AdoptionPlan(
            source=source.root,
            kind=source.kind,
            table=self.location.name,
            placement=self.placement,
            files=len(source.files),
            size=source.size,
            rows=sum(footer.rows for footer in self.footers),
            partitions=len({file.partition for file in source.files}) if source.keys else 0,
            partition_keys=definition.partition_keys,
            columns=tuple(f"{field.name} {_sql(field)}" for field in definition.fields),
        )


def plan_adoption(
    source: Source,
    location: TableLocation,
    partition_columns: Sequence[str],
    options: Mapping[str, str],
    placement: str | None,
    progress: Progress,
    threads: int,
) -> Adoption:
    """Read the footers, and define the table. `partition_columns`: declarations in SQL. Raises `UsageError` if they are not those
    of the source, or links are asked for where there can be none; and what `Footers.read` raises.
    """
    if location.metastore is not None and location.identifier is not None and not location.metastore.takes_files:
        raise location.metastore.unsupported("adopting files", "create the table, then write the rows to it")
    with phase(progress, "Reading footers", None):
        stamps = source.stamps(threads)
        footers = Footers(source, threads).read()
    keys = _partition_fields(source, partition_columns)
    stored = footers[0].fields
    held = {field.name: field for field in stored}
    both = [key.name for key in keys if key.name in held]
    if both and source.kind == "files":
        why = "its values in the files might differ from the directories' values"
        raise NotSupported(f"column {both[0]} is in the files and in the names of directories", why, "write the rows")
    for key in keys:
        if key.name in held and _sql(held[key.name]) != _sql(key):
            raise NotSupported(f"partition column {key.name} is {_sql(held[key.name])} in the files, not {_sql(key)}")
    fields = (*stored, *(key for key in keys if key.name not in held))
    own = {"bucket": "-1", "partition.default-name": HIVE_NULL} if keys else {"bucket": "-1"}
    chosen = {**own, **options}
    if chosen["bucket"] != "-1":
        raise UsageError(f"bucket={chosen['bucket']}", "adopted files have no buckets", "leave the option out")
    definition = TableDefinition(fields, (), tuple(key.name for key in keys), chosen)
    return Adoption(source, stamps, footers, location, definition, _placement(source, location, placement))


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


def adopt(adoption: Adoption, progress: Progress) -> Adopted:
    """Create the table, place the files, and commit them. After a failure the table and its files are deleted again, unless the
    outcome of the commit is unknown. With `move` the files of the source are deleted last; `PartialSuccess` if some are left,
    because they could not be deleted, or another writer has replaced them meanwhile.
    """
    location, source = adoption.location, adoption.source
    try:
        schema = create_table(location, adoption.definition).schema
    except AlreadyExists as error:
        error.set_hint("choose another name; after a killed run the table may be complete")
        raise
    context = open_table(location)
    messages: list[CommitMessage] = []
    try:
        with removed_on_refusal(context, messages):
            with phase(progress, "Placing files", len(source.files)) as advance:
                _place(context, adoption, messages, advance)
            _expect_unchanged(adoption, context.read_threads)
            result = Committer(context).commit(messages, fresh_identity(context)).or_raise()
    except (PaimonError, Unpublished) as failure:
        ended = CommitResult.failed(failure)
        if ended.outcome is CommitOutcome.REFUSED and not ended.snapshots:
            _forget(location, lambda: drop_table(context.storage, context.layout, schema, context.clock, context.random))
        raise
    (snapshot,) = result.snapshots
    rows = sum(footer.rows for footer in adoption.footers)
    if snapshot.total_record_count != rows:
        why = f"it has {snapshot.total_record_count} rows, and the files of the source have {rows}"
        raise DamagedFile(f"{location.name} is not what {source.root} is", why, "drop it, and adopt the files again")
    if adoption.placement == FilePlacement.MOVE:
        _delete_sources(adoption, context.read_threads)
    plan = adoption.plan()
    return Adopted(source.root, location.name, snapshot.id, adoption.placement, plan.files, plan.size, plan.rows, plan.partitions)


def _place(
    context: TableContext, adoption: Adoption, messages: list[CommitMessage], advance: Callable[[Any], None] | None
) -> None:
    """Give each file a new name in the table. The messages are complete before the first file is there, so that what was placed
    can be deleted by its name after a failure.
    """
    source, names = adoption.source, DataFileNames(context, new_stamp(context))
    added: dict[bytes, list[DataFileMeta]] = {}
    to_place: list[tuple[str, str, int]] = []
    partitions: dict[tuple[str | None, ...], bytes] = {}
    for footer in adoption.footers:
        texts = footer.file.partition
        if texts not in partitions:
            keys = zip(context.schema.partition_keys, texts, strict=True)
            values = [partition_value(context, key, text) for key, text in keys]
            partitions[texts] = serialize_row(values, context.partition_types) if values else EMPTY_ROW
        partition = partitions[texts]
        meta = _meta(context, footer, names.next(footer.format))
        added.setdefault(partition, []).append(meta)
        to_place.append((footer.file.path, context.data_file_path(partition, 0, meta), footer.file.size))
    total = context.options.bucket
    messages += [CommitMessage(partition, 0, total, append=FileChanges(added=tuple(files))) for partition, files in added.items()]
    linked = adoption.placement != FilePlacement.COPY and can_link(source.storage, source.root, context.storage, context.url)
    copy = FileCopy(source.storage, source.root, context.storage, context.url)

    def place(file: tuple[str, str, int]) -> int:
        path, target, size = file
        try:
            if linked:
                link_file(context.storage, f"{source.root}/{path}", target)
            else:
                copy.copy(FileToCopy(path, size, target.removeprefix(f"{context.url}/")))
        except FileNotFoundError:
            raise _changed(source, path) from None
        return 1

    for done in in_parallel(place, to_place, context.read_threads):
        if advance is not None:
            advance(done)
    if linked:
        for directory in {target.rpartition("/")[0] for _, target, _ in to_place}:
            keep_deleted(context.storage, directory)  # the names of the links are on disk before the snapshot names them


def _meta(context: TableContext, footer: FileFooter, name: str) -> DataFileMeta:
    """The entry of a file, as FileMetaUtils of Java makes it: level 0, sequence numbers 0."""
    kept = kept_statistics(footer, context.options)
    types = [field.type for field in footer.fields[: len(kept)]]
    return DataFileMeta(
        file_name=name,
        file_size=footer.file.size,
        row_count=footer.rows,
        min_key=EMPTY_ROW,
        max_key=EMPTY_ROW,
        key_stats=simple_stats([], []),
        value_stats=simple_stats(kept, types),
        min_sequence_number=0,
        max_sequence_number=0,
        schema_id=context.schema.id,
        level=0,
        creation_time_millis=local_wall_clock(context.clock.now_millis()),
        delete_row_count=0,
        file_source=SOURCE_APPEND,
        value_stats_cols=tuple(field.name for field in footer.fields[: len(kept)]),
    )


def _forget(location: TableLocation, delete_files: Callable[[], None]) -> None:
    """Delete the table that was created, also in its catalog; a failure leaves an empty table."""
    with cleaning_up():
        if location.metastore is None or location.identifier is None:
            delete_files()
        else:
            location.metastore.drop_table(location.identifier, delete_files)


def _expect_unchanged(adoption: Adoption, threads: int) -> None:
    """Raise `Conflict` if a file is not the one whose footer was read, so that its rows or statistics may be others."""
    source, now = adoption.source, adoption.source.stamps(threads)
    for file in source.files:
        if file.path not in now or now[file.path] != adoption.stamps.get(file.path):
            raise _changed(source, file.path)


def _changed(source: Source, path: str) -> Conflict:
    why = "another writer has replaced or deleted it since its footer was read"
    return Conflict(f"{path} of {source.root} has changed", why, CHANGED_HINT, path=path)


def _delete_sources(adoption: Adoption, threads: int) -> None:
    """Delete the files of the source that are still those in the table."""
    source, now = adoption.source, adoption.source.stamps(threads)
    there = [file.path for file in source.files if file.path in now]
    left = [path for path in there if now[path] != adoption.stamps[path]]
    replaced, ours = len(left), [path for path in there if now[path] == adoption.stamps[path]]
    for path, is_deleted in zip(ours, in_parallel(partial(_is_deleted, source), ours, threads), strict=True):
        if not is_deleted:
            left.append(path)
    if left:
        what = f"{len(left)} of {len(source.files)} files of {source.root} were not deleted"
        why = f"{replaced} were replaced by another writer meanwhile, {len(left) - replaced} could not be deleted"
        why += f"; {adoption.location.name} is complete, and needs none of them"
        raise PartialSuccess(what, why, "adopt or write replaced files apart, and delete the others", left=left)


def _is_deleted(source: Source, path: str) -> bool:
    try:
        source.storage.delete(f"{source.root}/{path}")
    except StorageUnavailable:
        return False
    return True
