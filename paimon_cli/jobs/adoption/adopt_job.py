"""`adopt`: creates an append table from the files of a source, as links or copies with new names, in one commit.

Java: HiveMigrator, FileMetaUtils. Java moves the files of a source and keeps their names; here the source stays as it is unless
`move` is asked for, and then goes only after the commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from paimon_cli.bucket.column_statistics import simple_stats
from paimon_cli.bucket.stamped_files import DataFileNames, new_stamp
from paimon_cli.catalog.create_table import create_table
from paimon_cli.catalog.open_table import open_table
from paimon_cli.catalog.table_location import TableLocation
from paimon_cli.commit.commit_messages import removed_on_refusal
from paimon_cli.commit.committer import Committer
from paimon_cli.commit.deduplication import fresh_identity
from paimon_cli.commit.outcome import CommitOutcome, CommitResult
from paimon_cli.datatypes.binary_row import serialize_row
from paimon_cli.errors import (
    AlreadyExists,
    DamagedFile,
    PaimonError,
    PartialSuccess,
    StorageUnavailable,
    Unpublished,
    cleaning_up,
)
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.adoption.adoption_plan import Adopted, Adoption, say_what_is_there
from paimon_cli.jobs.adoption.footers import FileFooter, kept_statistics
from paimon_cli.jobs.adoption.source import Source
from paimon_cli.jobs.engine import Progress, phase
from paimon_cli.maintain.drop_table import drop_table
from paimon_cli.metadata.data_file import EMPTY_ROW, SOURCE_APPEND, CommitMessage, DataFileMeta, FileChanges
from paimon_cli.requests.adoption import FilePlacement
from paimon_cli.storage.capabilities import can_link, keep_deleted, link_file
from paimon_cli.storage.file_copy import FileCopy, FileToCopy
from paimon_cli.storage.injected import local_wall_clock
from paimon_cli.storage.threads import in_parallel


def adopt(adoption: Adoption, progress: Progress) -> Adopted:
    """Create the table, place the files, and commit them. After a failure the table and its files are deleted again, unless the
    outcome of the commit is unknown. If the source is to go, its files are deleted last; `PartialSuccess` if some are left,
    because they could not be deleted, or another writer has replaced them meanwhile.
    """
    messages: list[CommitMessage] = []
    with new_table(adoption) as context, removed_on_refusal(context, messages):
        with phase(progress, "Placing files", len(adoption.source.files)) as advance:
            _place(context, adoption, messages, advance)
        adoption.expect_unchanged(context.read_threads)
        result = Committer(context).commit(messages, fresh_identity(context)).or_raise()
    (snapshot,) = result.snapshots
    if snapshot.total_record_count != adoption.rows:
        why = f"it has {snapshot.total_record_count} rows, and the files of the source have {adoption.rows}"
        what = f"{adoption.location.name} is not what {adoption.source.root} is"
        raise DamagedFile(what, why, "drop it, and adopt the files again")
    delete_source(adoption, context.read_threads)
    return adoption.done(snapshot.id)


@contextmanager
def new_table(adoption: Adoption) -> Iterator[TableContext]:
    """Create the table. If the block fails, and surely has committed nothing, the table is deleted again, also in its catalog."""
    location = adoption.location
    try:
        schema = create_table(location, adoption.definition).schema
    except AlreadyExists as error:
        say_what_is_there(error, location)
        raise
    context = open_table(location)
    try:
        yield context
    except (PaimonError, Unpublished) as failure:
        ended = CommitResult.failed(failure)
        if ended.outcome is CommitOutcome.REFUSED and not ended.snapshots:
            _forget(location, lambda: drop_table(context.storage, context.layout, schema, context.clock, context.random))
        raise


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
            values = adoption.values[texts]
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
            raise adoption.changed(path) from None
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


def delete_source(adoption: Adoption, threads: int) -> None:
    """Delete the files of the source that are still those in the table, if they are to go."""
    if not adoption.deletes_source:
        return
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
