"""The files conflict check: do the live files of the latest snapshot allow these changes? (FORMAT.md, section 10.3)

Files to delete must still be live, levels must stay disjoint, and all files of a partition must have the same bucket count.
Otherwise `FilesConflict` is raised: the job must start again from the latest snapshot, since repeating the commit cannot help.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from paimon_cli.commit.commit_messages import SnapshotChanges, apply_index_changes
from paimon_cli.errors import BucketsConflict, CountConflict, DamagedFile, FilesConflict, NotFound, NotSupported
from paimon_cli.history.live_files import BucketCounts, LiveBuckets, live_files_of_buckets
from paimon_cli.history.manifest_reader import KeepManifest
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import (
    DELETION_VECTORS,
    BucketId,
    EntryKind,
    FileFilter,
    FileIdentity,
    IndexFileMeta,
    IndexManifestEntry,
    ManifestEntry,
    hash_index_state,
)
from paimon_cli.metadata.partition_ranges import may_hold_any
from paimon_cli.metadata.snapshot import COMPACT, Snapshot
from paimon_cli.metadata.table_layout import POSTPONE_BUCKET
from paimon_cli.options.table_options import VECTORS_ENABLED
from paimon_cli.storage.redaction import shown_name

PartitionCount = tuple[bytes, int]
"""A partition, and the bucket count recorded in one of its files."""


def check_bucket_counts(context: TableContext, counts: Iterable[PartitionCount]) -> None:
    """Raise `CountConflict` if two files of a partition have different bucket counts. Dynamic buckets (-1) are skipped."""

    first: dict[bytes, int] = {}
    for partition, count in counts:
        if count > 0 and first.setdefault(partition, count) != count:
            path = context.partition_path_of(partition).rstrip("/")
            raise CountConflict(
                f"the bucket count of {path or context.url} has changed",
                f"files for {first[partition]} and for {count} buckets cannot be in one partition",
                "run the job again with the table's current bucket count",
                partition=path,
            )


def check_remaining_bucket_counts(
    context: TableContext, latest: Snapshot | None, live: BucketCounts, changes: Sequence[ManifestEntry]
) -> None:
    """Check that all files of a partition still have one bucket count. `live`: the counts at `latest`, by changed partition.

    Live files are read only if counts disagree: a commit that removes all files of a partition may add some with another count.
    """
    added = [entry for entry in changes if entry.kind == EntryKind.ADD]
    counts: dict[bytes, set[int]] = {}
    for partition, count in [*_pairs(live), *_counts_of(added)]:
        if count > 0:
            counts.setdefault(partition, set()).add(count)
    doubtful = {partition for partition, found in counts.items() if len(found) > 1}
    if doubtful:
        removed = {entry.identity for entry in changes if entry.kind != EntryKind.ADD}
        entries = [] if latest is None else context.manifests.live_entries(latest, FileFilter(doubtful.__contains__))
        check_bucket_counts(context, _counts_of([*(entry for entry in entries if entry.identity not in removed), *added]))


def check_newest_bucket_counts(context: TableContext, latest: Snapshot, added: Sequence[ManifestEntry]) -> None:
    """Check the bucket counts of new files, which is the only possible files conflict of an append.

    From the newest manifest backwards, the first entry of a partition determines its count, so that few manifests are read. All
    live files of a partition are read only if that count differs from the one of the new files. For a partition without files
    the newest option tells, if a rescale has changed it since the writer began.
    """
    check_bucket_counts(context, _counts_of(added))
    counts = {entry.partition: entry.total_buckets for entry in added if entry.total_buckets > 0}
    values = {partition: context.partition_values(partition) for partition in counts}
    for meta in reversed(context.manifests.manifests_of(latest)):
        if not values:
            return
        for cached in context.manifest_cache.get([meta], values, _holds_any(context, values.values())):
            parts = {partition: cached.entries(partition) for partition in values}
            newest = {partition: part.newest_bucket_count if part else 0 for partition, part in parts.items()}
            doubtful = {p for p in values if newest[p] > 0 and newest[p] != counts[p]}
            if doubtful:
                live = context.manifests.live_files(latest, FileFilter(doubtful.__contains__)).bucket_counts()
                check_bucket_counts(context, [*sorted(_pairs(live)), *_counts_of(added)])
            values = {p: values[p] for p in values if newest[p] <= 0}
    if values and (option := newest_bucket_option(context)) != context.schema.typed_options.bucket:
        check_bucket_counts(context, [(partition, count) for partition in values for count in (option, counts[partition])])


def check_null_partitions(context: TableContext, latest: Snapshot | None, changes: Sequence[ManifestEntry]) -> None:
    """Raise `NotSupported` if a partition of new files has live files under another serialisation of its values, in a table with
    keys: readers would not merge the one with the other.

    Writers serialise the null of a long DECIMAL or precise TIMESTAMP differently: Java reserves its bytes, pypaimon does not.
    """
    if latest is None or not context.schema.primary_keys or all(t.is_compact for t in context.partition_types):
        return
    added = {entry.partition for entry in changes if entry.kind == EntryKind.ADD}
    nulls = {values: partition for partition in added if None in (values := context.partition_values(partition))}
    if not nulls:
        return
    in_other_form = FileFilter(lambda partition: nulls.get(context.partition_values(partition), partition) != partition)
    removed = {entry.identity for entry in changes if entry.kind != EntryKind.ADD}
    for entry in context.manifests.live_entries(latest, in_other_form):
        if entry.identity not in removed:
            path = context.partition_path_of(entry.partition).rstrip("/")
            raise NotSupported(
                f"cannot write to partition {path} of {context.url}",
                "another writer wrote its null in a form of its own, and readers would not merge new rows with those it has",
                "write to this partition with that writer only, or copy the rows into a table without it; "
                "`paimon-cli drop-partition` deletes its rows",
            )


def newest_bucket_option(context: TableContext) -> int:
    """The option `bucket` of the newest schema."""
    return context.schemas.get(context.schemas.newest_id(context.schema.id)).typed_options.bucket


def _holds_any(context: TableContext, values: Collection[tuple[Any, ...]]) -> KeepManifest:
    return lambda meta: may_hold_any(meta.partition_stats, context.partition_types, values)


def _pairs(counts: BucketCounts) -> list[PartitionCount]:
    return [(partition, count) for partition, found in counts.items() for count in found]


def _counts_of(entries: Iterable[ManifestEntry]) -> list[PartitionCount]:
    return [(entry.partition, entry.total_buckets) for entry in entries]


def removing_snapshot(
    context: TableContext, latest: Snapshot | None, entry: ManifestEntry, read_snapshot_id: int | None
) -> Snapshot | None:
    """The newest snapshot after `read_snapshot_id` that removed the file; None if there is none, or if it has expired."""
    if latest is None:
        return None
    for snapshot in context.snapshots.newest_first():
        if read_snapshot_id is not None and snapshot.id <= read_snapshot_id:
            return None
        try:
            manifests = [m for m in context.manifests.manifest_list(snapshot.delta_manifest_list) if m.num_deleted_files]
            for entries in context.manifests.entries(manifests):
                if any(e.kind == EntryKind.DELETE and e.identity == entry.identity for e in entries):
                    return snapshot
        except (NotFound, DamagedFile):
            return None  # the snapshot has expired; the conflict remains
    return None


def check_files(context: TableContext, latest: Snapshot | None, changes: SnapshotChanges) -> None:
    """Raise `FilesConflict` if the changes do not fit on top of `latest`."""
    base, after = check_data_files(context, latest, changes)
    names: dict[BucketId, set[str]] = {bucket_id: set() for bucket_id in _changed_buckets(changes)}
    for entry in after:
        names[entry.bucket_id].add(entry.file.file_name)
    _check_vectors(context, latest, changes, names)
    _check_upper_files(context, changes, base)


def check_data_files(
    context: TableContext, latest: Snapshot | None, changes: SnapshotChanges
) -> tuple[Sequence[ManifestEntry], Sequence[ManifestEntry]]:
    """The part of `check_files` that concerns data files. Returns the files of the changed buckets, before and after."""
    changed = _changed_files(context, latest, changes)
    base = changed.entries
    if not changes.replaces_partitions:
        check_remaining_bucket_counts(context, latest, changed.bucket_counts, changes.entries)
    added, deleted = _folded(context, changes.entries)
    survivors = {entry.identity: entry for entry in base}
    for identity, entry in deleted.items():
        if survivors.pop(identity, None) is None:
            raise _file_is_gone(context, latest, entry, changes.read_snapshot_id)
    for identity, entry in added.items():
        if identity in survivors:
            raise _conflict(context, entry, "is already in the table", "the same commit was probably already made")
    after = [*survivors.values(), *added.values()]
    _check_levels(context, changes.entries, after)
    return base, after


def check_vectors_switch(context: TableContext, changes: SnapshotChanges, schema_id: int) -> None:
    """Raise `FilesConflict` for a compaction that was planned before `deletion-vectors.enabled` changed.

    `schema_id`: the schema of the snapshot to commit, which is the newest one.
    """
    if changes.kind != COMPACT or not changes.check_files:
        return
    newest = context.schemas.get(schema_id)
    if newest.options.get(VECTORS_ENABLED) != context.schema.options.get(VECTORS_ENABLED):
        raise FilesConflict(
            f"{VECTORS_ENABLED} of {context.address} was changed",
            "this compaction was planned before that",
            "run the job again: it will start from the latest schema",
        )


def check_postponed(context: TableContext) -> None:
    """Raise `FilesConflict` if the buckets of the table are not postponed any more. For changes that postpone rows."""
    newest = context.schemas.get(context.schemas.newest_id(context.schema.id))
    if newest.typed_options.bucket != POSTPONE_BUCKET:
        raise FilesConflict(
            f"the option bucket of {context.address} was changed to {newest.options.get('bucket')}",
            "no compaction would move these rows into buckets any more",
            "run the job again: it will start from the latest schema",
        )


def _changed_files(context: TableContext, latest: Snapshot | None, changes: SnapshotChanges) -> LiveBuckets:
    """The live files of the buckets that change."""
    if changes.replaces_partitions:  # all live files were read from `latest` already
        return LiveBuckets([entry for entry in changes.entries if entry.kind == EntryKind.DELETE])
    bucket_ids = _changed_buckets(changes)
    return live_files_of_buckets(context, latest, bucket_ids) if latest is not None and bucket_ids else LiveBuckets()


def _changed_buckets(changes: SnapshotChanges) -> set[BucketId]:
    return {entry.bucket_id for entry in changes.entries} | {entry.bucket_id for entry in changes.new_indexes}


def _folded(
    context: TableContext, entries: Iterable[ManifestEntry]
) -> tuple[dict[FileIdentity, ManifestEntry], dict[FileIdentity, ManifestEntry]]:
    """The files that the changes add, and those that they delete. Raises `FilesConflict` if a file occurs twice."""
    added: dict[FileIdentity, ManifestEntry] = {}
    deleted: dict[FileIdentity, ManifestEntry] = {}
    for entry in entries:
        if entry.identity in added or entry.identity in deleted:
            raise _conflict(context, entry, "occurs twice in this commit", "two tasks worked on the same bucket")
        (added if entry.kind == EntryKind.ADD else deleted)[entry.identity] = entry
    return added, deleted


def _check_levels(context: TableContext, delta: Sequence[ManifestEntry], survivors: Iterable[ManifestEntry]) -> None:
    """Raise `FilesConflict` if new files above level 0 overlap with other files of their level in the same bucket."""
    if not context.schema.primary_keys:
        return
    cached_key, key_of = context.manifest_cache.key, context.key_of
    filled = {_run(entry) for entry in delta if entry.kind == EntryKind.ADD and entry.file.level > 0}
    runs: dict[tuple[bytes, int, int], list[tuple[Any, Any, ManifestEntry]]] = {}
    for entry in survivors:
        if _run(entry) in filled:
            item = (cached_key(entry.file.min_key, key_of), cached_key(entry.file.max_key, key_of), entry)
            runs.setdefault(_run(entry), []).append(item)
    for run in runs.values():
        run.sort(key=lambda item: item[:2])
        for (_, high, left), (low, _, right) in pairwise(run):
            if low <= high:
                why = f"its keys overlap the keys of {left.file.file_name}, which another job put at the same level"
                raise _conflict(context, right, f"does not fit into level {right.file.level}", why)


def _check_upper_files(context: TableContext, changes: SnapshotChanges, live: Iterable[ManifestEntry]) -> None:
    """Raise `FilesConflict` if files have been added above level 0 since a compaction looked up older rows there.

    It has not seen their rows, so it has neither marked them nor shown them in its changelog.
    """
    read = {bucket_id: set(names) for bucket_id, names in changes.read_upper_files}
    for entry in live:
        if entry.file.level > 0 and entry.file.file_name not in read.get(entry.bucket_id, {entry.file.file_name}):
            why = "another job put it there after this compaction had looked for older rows"
            raise _conflict(context, entry, f"is new at level {entry.file.level}", why)


def _run(entry: ManifestEntry) -> tuple[bytes, int, int]:
    return (entry.partition, entry.bucket, entry.file.level)


def _file_is_gone(
    context: TableContext, latest: Snapshot | None, entry: ManifestEntry, read_snapshot_id: int | None
) -> FilesConflict:
    remover = removing_snapshot(context, latest, entry, read_snapshot_id)
    if remover is None:
        return _conflict(context, entry, "is no longer in the table", "a snapshot that has expired removed it")
    user = shown_name(remover.commit_user)
    why = f"snapshot {remover.id} ({remover.commit_kind}, user {user}) removed it"
    return _conflict(context, entry, "is no longer in the table", why, snapshot_id=remover.id, commit_user=user)


def _conflict(context: TableContext, entry: ManifestEntry, what: str, why: str, **details: Any) -> FilesConflict:
    return FilesConflict(
        f"data file {entry.file.file_name} of {context.bucket_path(entry.partition, entry.bucket)} {what}",
        why,
        "run the job again: it will start from the latest snapshot",
        partition=context.partition_path_of(entry.partition).rstrip("/"),
        bucket=entry.bucket,
        file=entry.file.file_name,
        **details,
    )


def check_hash_indexes(context: TableContext, latest: Snapshot | None, changes: SnapshotChanges) -> None:
    """Raise `BucketsConflict` if another commit has changed a hash index that assigned rows to buckets.

    It may have assigned the same keys to other buckets. Java does not check this, so that a key can be in two buckets.
    """
    current: dict[bytes, list[IndexFileMeta]] = {}
    for entry in [] if latest is None else context.manifests.index_entries(latest):
        current.setdefault(entry.partition, []).append(entry.index_file)
    for partition, read in sorted(changes.read_hash_indexes):
        if hash_index_state(current.get(partition, ())) != read:
            path = context.partition_path_of(partition).rstrip("/")
            raise BucketsConflict(
                f"keys of {path or context.url} were assigned to buckets since this job read their hash index",
                "the same key could end up in two buckets",
                "run the job again: it will start from the latest snapshot",
                partition=path,
                read_snapshot_id=changes.read_snapshot_id,
            )


def _check_vectors(
    context: TableContext, latest: Snapshot | None, changes: SnapshotChanges, live: Mapping[BucketId, Collection[str]]
) -> None:
    """Raise `FilesConflict` if the changes would lose a deletion vector, or keep one without its data file (FORMAT.md, 8).

    The vectors of a bucket must still be those that a compaction has read, even if it does not change them: another commit may
    have marked rows that it has copied. `live`: the names of the data files of each changed bucket, after the changes.

    Example: `dv-1` marks rows of the files `a` and `b`. A compaction has read it, copies the other rows of `a` to `c`, and

    | it | vectors at the commit | data files after it | outcome |
    |---|---|---|---|
    | writes dv-2 (b) for dv-1 | dv-1 (a, b) | b, c | fits |
    | writes dv-2 (b) for dv-1 | dv-3 (a, b), with more rows of `a` | b, c | refused: these rows would be back in `c` |
    | keeps dv-1 | dv-1 (a, b) | b, c | refused: the marks of `a` have no file |
    | writes dv-2 (b) for dv-1 | dv-1 (a, b) | c | refused: another commit has removed `b` |
    """
    previous = [] if latest is None else context.manifests.index_entries(latest)
    current: dict[BucketId, list[IndexManifestEntry]] = {}
    for entry in previous:
        if entry.index_file.index_type == DELETION_VECTORS:
            current.setdefault(entry.bucket_id, []).append(entry)
    for bucket_id, read in changes.read_vectors:
        now = {entry.index_file.file_name: entry for entry in current.get(bucket_id, [])}
        if now.keys() != set(read):
            raise _vectors_replaced(context, bucket_id, now.keys() - set(read) or set(read) - now.keys())
    new = {entry.index_file.file_name for entry in changes.new_indexes}
    marked: dict[tuple[BucketId, str], IndexManifestEntry] = {}
    deleted = {(entry.bucket_id, entry.file.file_name) for entry in changes.entries if entry.kind == EntryKind.DELETE}
    for index in apply_index_changes(context, previous, changes):
        for vector in index.index_file.deletion_vector_ranges or ():
            name = vector.data_file_name
            is_ours = index.index_file.file_name in new or (index.bucket_id, name) in deleted
            if is_ours and name not in live[index.bucket_id]:
                raise _dangling(context, index, name)
            other = marked.setdefault((index.bucket_id, name), index)
            if other is not index and index.bucket_id in live:
                theirs = other if index.index_file.file_name in new else index
                raise _vectors_replaced(context, index.bucket_id, [theirs.index_file.file_name])


def _vectors_replaced(context: TableContext, bucket_id: BucketId, files: Collection[str]) -> FilesConflict:
    return FilesConflict(
        f"the deletion vectors of {context.bucket_path(*bucket_id)} have changed",
        f"another commit wrote or removed {min(files)} since this job read the bucket",
        "run the job again: it will start from the latest snapshot",
        partition=context.partition_path_of(bucket_id.partition).rstrip("/"),
        bucket=bucket_id.bucket,
        file=min(files),
    )


def _dangling(context: TableContext, entry: IndexManifestEntry, data_file: str) -> FilesConflict:
    return FilesConflict(
        f"index file {entry.index_file.file_name} of {context.bucket_path(*entry.bucket_id)} would mark rows of a missing file",
        f"data file {data_file} would not be in the table after this commit",
        "run the job again: it will start from the latest snapshot",
        partition=context.partition_path_of(entry.partition).rstrip("/"),
        bucket=entry.bucket,
        file=data_file,
    )
