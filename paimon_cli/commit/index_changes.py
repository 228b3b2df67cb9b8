"""Makes the next index manifest from the previous one and the changes of a commit (FORMAT.md, section 4.5)."""

from __future__ import annotations

from collections.abc import Sequence

from paimon_cli.commit.snapshot_changes import DELETION_VECTORS, SnapshotChanges
from paimon_cli.errors import FilesConflict
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import ADD, IndexManifestEntry


def apply_index_changes(
    context: TableContext, previous: Sequence[IndexManifestEntry], changes: SnapshotChanges
) -> list[IndexManifestEntry]:
    """Deletes first, then each new file replaces the current one of its key.

    The key is (partition, bucket, type), with the file where vectors of many files share a bucket. Raises `FilesConflict` if
    a file to delete is not the current one, because another commit changed the index since it was read.
    """
    current = {_index_key(context, entry): entry for entry in previous}
    for entry in changes.deleted_indexes:
        removed = current.pop(_index_key(context, entry), None)
        if removed is None or removed.index_file.file_name != entry.index_file.file_name:
            raise _changed_by_others(context, entry)
    for entry in changes.new_indexes:
        current[_index_key(context, entry)] = IndexManifestEntry(ADD, entry.partition, entry.bucket, entry.index_file)
    return list(current.values())


def _index_key(context: TableContext, entry: IndexManifestEntry) -> tuple[object, ...]:
    own = (entry.partition, entry.bucket, entry.index_file.index_type)
    unaware = not context.schema.primary_keys and context.options.bucket == -1
    if unaware and entry.index_file.index_type == DELETION_VECTORS:
        return (*own, entry.index_file.file_name)
    return own


def _changed_by_others(context: TableContext, entry: IndexManifestEntry) -> FilesConflict:
    file = entry.index_file
    directory = context.bucket_path(entry.partition, entry.bucket)
    return FilesConflict(
        f"index file {file.file_name} of {directory} is no longer current",
        f"another commit replaced the {file.index_type} index of this bucket since it was read",
        "run the job again",
        file=file.file_name,
        bucket=entry.bucket,
    )
