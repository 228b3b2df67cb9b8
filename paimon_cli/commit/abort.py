"""Deletes the files of a failed commit: its metadata, and data files that no snapshot names (FORMAT.md, section 10.2)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence

from paimon_cli.commit.prepared_snapshot import MetadataWriter
from paimon_cli.errors import CommitUnknown, PaimonError, StorageUnavailable, Unpublished, cleaning_up
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import ADD, CommitMessage
from paimon_cli.storage.storage import delete_all


def discard(context: TableContext, paths: Iterable[str]) -> None:
    """Delete metadata files; whatever the storage does not let go is found as an orphan later."""

    for path in paths:
        with contextlib.suppress(StorageUnavailable), context.trace.timed("discard", file=path.rpartition("/")[2]):
            context.storage.delete(path)


@contextlib.contextmanager
def discarded_on(context: TableContext, writer: MetadataWriter, *failures: type[BaseException]) -> Iterator[None]:
    """Delete all files of `writer` if the block raises one of these errors, which mean that no snapshot was published."""
    try:
        yield
    except failures:
        discard(context, writer.written)
        raise


def delete_created_files(context: TableContext, messages: Sequence[CommitMessage]) -> int:
    """Delete the data, changelog and index files of messages whose commit failed; how many were deleted.

    A commit of two halves may have published the first: files that a snapshot names stay. Not to be called after
    `CommitUnknown`: a snapshot might still appear.
    """
    named = files_named_since(context, messages)
    files = [path for name, path in created_files(context, messages) if name not in named]
    delete_all(context.storage, files)
    return len(files)


@contextlib.contextmanager
def removed_on_refusal(
    context: TableContext, messages: Sequence[CommitMessage], keep_on: type[PaimonError] | None = None
) -> Iterator[None]:
    """Around a commit of `messages`: if it is refused or interrupted before it is published, their files are deleted.

    If its outcome is unknown, nothing is deleted. After an error of the kind `keep_on` the caller decides.
    """
    try:
        yield
    except (PaimonError, Unpublished) as refusal:
        if not isinstance(refusal, (CommitUnknown, keep_on or CommitUnknown)):
            with cleaning_up(refusal):
                delete_created_files(context, messages)
        raise


def created_files(context: TableContext, messages: Sequence[CommitMessage]) -> list[tuple[str, str]]:
    """Name and path of every file that exists for these messages only; extra files go with their data file's name."""
    files = []
    for message in messages:
        for file in message.created_files():
            for name in (file.file_name, *file.extra_files):
                files.append((file.file_name, context.data_file_path_of(message.partition, message.bucket, name)))
        for index in message.new_index_files + message.compact_new_index_files:
            files.append((index.file_name, context.layout.index(index.file_name)))
    return files


def files_named_since(context: TableContext, messages: Sequence[CommitMessage]) -> set[str]:
    """Names of all files that were added to the table after the oldest snapshot that a writer of the messages read.

    If that snapshot has expired, the live files of the oldest remaining snapshot count too.
    """
    seen = [message.read_snapshot_id for message in messages]
    begin = min((number for number in seen if number is not None), default=0) if None not in seen else 0
    named: set[str] = set()
    oldest = None
    for snapshot in context.snapshots.newest_first():
        if snapshot.id <= begin:
            return named
        named |= {entry.file.file_name for entry in context.manifests.delta_entries(snapshot) if entry.kind == ADD}
        named |= {entry.index_file.file_name for entry in context.manifests.index_entries(snapshot)}
        if snapshot.changelog_manifest_list is not None:
            changelogs = context.manifests.manifest_list(snapshot.changelog_manifest_list)
            named |= {entry.file.file_name for entries in context.manifests.entries(changelogs) for entry in entries}
        oldest = snapshot
    if oldest is not None and oldest.id != 1:
        named |= {entry.file.file_name for entry in context.manifests.live_entries(oldest)}
    return named
