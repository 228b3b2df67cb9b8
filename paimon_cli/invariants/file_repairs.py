"""Plans the repair of what the newest readable snapshot names: data files, deletion vectors, indexes, buckets.

Lost files, vectors without a file and wrong indexes are left out of a new snapshot. Hash indexes are rebuilt from the keys, and
rows in buckets that a rescale has given up are moved. What only a backup can restore is left to the user.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from paimon_cli.bucket.file_indexes import FileIndexes, without_index
from paimon_cli.errors import DamagedFile
from paimon_cli.history.moved_partitions import FileElsewhere, has_other_names, moved_file
from paimon_cli.history.stale_buckets import stale_partitions
from paimon_cli.invariants.hash_indexes import rebuilt_partitions
from paimon_cli.invariants.index_checks import index_can_be_read, index_files_exist
from paimon_cli.invariants.repair_steps import RepairKind, RepairPlan, RepairStep
from paimon_cli.invariants.row_checks import file_holds_its_rows
from paimon_cli.invariants.version import Version
from paimon_cli.metadata.data_file import HASH, BucketId, CommitMessage, DataFileMeta, FileChanges, IndexFileMeta, ManifestEntry
from paimon_cli.options.option_text import counted


def plan_file_repairs(version: Version, plan: RepairPlan, wanted: set[str], only: Sequence[str]) -> None:
    """What the newest readable snapshot needs. A kind that is asked for by name may read all rows."""
    if not only:
        plan.steps += _indexes_by_hand(version)
    moved = _moved_by_hand(version, plan)
    if wanted & {RepairKind.DEAD_FILES, RepairKind.DAMAGED_FILES, RepairKind.VECTORS}:
        _plan_files(version, plan, wanted, RepairKind.DAMAGED_FILES in only, moved)
    if moved:
        return  # indexes would be judged without these files
    if RepairKind.FILE_INDEX in wanted:
        _plan_file_indexes(version, plan, RepairKind.FILE_INDEX in only)
    if RepairKind.HASH_INDEX in wanted:
        _plan_hash_indexes(version, plan, RepairKind.HASH_INDEX in only)
    if RepairKind.STALE_BUCKETS in wanted:
        _plan_stale_buckets(version, plan)


def _moved_by_hand(version: Version, plan: RepairPlan) -> set[str]:
    """The paths of live files that are in a directory of another name. They are not lost, so no step takes them out."""
    moved: set[str] = set()
    for bucket_id in sorted(version.changed_buckets) if has_other_names(version.context) else ():
        found: dict[FileElsewhere, list[str]] = {}
        for entry in version.at(bucket_id):
            if _is_missing(version, bucket_id, entry.file):
                path = version.context.data_file_path(*bucket_id, entry.file)
                if (elsewhere := moved_file(version.context, path, entry.partition)) is not None:
                    found.setdefault(elsewhere, []).append(path)
        for elsewhere, paths in found.items():
            moved.update(paths)
            action = f"{counted(len(paths), 'file')} not lost, but in another directory: {elsewhere.why}; {elsewhere.hint}"
            plan.steps.append(RepairStep(RepairKind.BY_HAND, version.bucket_directory(bucket_id), action, "", elsewhere.command))
    return moved


def _plan_files(version: Version, plan: RepairPlan, wanted: set[str], leave_out_damaged: bool, moved: set[str]) -> None:
    """Live files that are missing or damaged, and deletion vectors of files that are not live; none of those that were `moved`.

    A damaged file may be restored from a backup, so it is left out on request only; every file is then read completely.
    """
    for bucket_id in sorted(version.changed_buckets):
        entries = list(version.at(bucket_id))
        there = [e for e in entries if version.file_path(e) not in moved]
        dead = [e.file for e in there if _is_missing(version, bucket_id, e.file)] if RepairKind.DEAD_FILES in wanted else []
        if RepairKind.DAMAGED_FILES in wanted:
            damaged = {e.file.file_name: why for e in there if (why := _damage(version, e, leave_out_damaged))}
            _plan_damaged_files(version, bucket_id, plan, damaged, leave_out_damaged)
            dead += [e.file for e in entries if leave_out_damaged and e.file.file_name in damaged]
        for file in dead:
            loss = f"{counted(file.row_count, 'row')} of level {file.level}, sequence numbers {file.min_sequence_number} to "
            loss += f"{file.max_sequence_number}; older values of their keys may become visible again"
            path = version.context.data_file_path(*bucket_id, file)
            kind, state = (
                (RepairKind.DEAD_FILES, "missing")
                if _is_missing(version, bucket_id, file)
                else (RepairKind.DAMAGED_FILES, "damaged")
            )
            plan.steps.append(RepairStep(kind, path, f"leave the {state} file out of a new snapshot", loss))
        alive = {e.file.file_name for e in entries} - {file.file_name for file in dead}
        old, new = _without_dangling(version, plan, bucket_id, alive) if RepairKind.VECTORS in wanted or dead else ([], [])
        if dead or old:
            total = next((e.total_buckets for e in entries), version.context.options.bucket)
            plan.messages[bucket_id] = CommitMessage(
                *bucket_id,
                total,
                append=FileChanges(removed=tuple(dead), removed_indexes=tuple(old), added_indexes=tuple(new)),
                read_snapshot_id=version.snapshot.id,
            )


def _is_missing(version: Version, bucket_id: BucketId, file: DataFileMeta) -> bool:
    return version.context.can_open(file) and not version.context.storage.exists(version.context.data_file_path(*bucket_id, file))


def _damage(version: Version, entry: ManifestEntry, read: bool) -> str | None:
    """Why an existing file is damaged; None if it is intact or missing. `read`: check every row, not only the size."""
    bucket_id = entry.bucket_id
    if not version.context.can_open(entry.file):
        return None
    try:
        size = version.context.storage.file_size(version.context.data_file_path(*bucket_id, entry.file))
    except FileNotFoundError:
        return None
    if size != entry.file.file_size:
        return f"it has {size} bytes, but its metadata says {entry.file.file_size}"
    found = file_holds_its_rows(version, entry) if read else ()
    return next((violation.message for violation in found if violation.code == "PV031"), None)


def _plan_damaged_files(
    version: Version, bucket_id: BucketId, plan: RepairPlan, damaged: dict[str, str], leave_out: bool
) -> None:
    if leave_out:
        return
    command = f"paimon-cli repair {version.context.layout.argument} --only {RepairKind.DAMAGED_FILES} --apply --yes"
    for entry in version.at(bucket_id):
        if entry.file.file_name in damaged:
            path = version.context.data_file_path(*bucket_id, entry.file)
            action = f"{damaged[entry.file.file_name]}: restore it from a backup, or leave it out of a new snapshot"
            plan.steps.append(RepairStep(RepairKind.BY_HAND, path, action, "", command))


def _without_dangling(
    version: Version, plan: RepairPlan, bucket_id: BucketId, alive: set[str]
) -> tuple[list[IndexFileMeta], list[IndexFileMeta]]:
    """Index file metadata to remove and to add, so that dangling vectors are no longer listed. The files do not change."""
    old, new = [], []
    for entry in version.index_entries:
        ranges = entry.index_file.deletion_vector_ranges
        if entry.bucket_id != bucket_id or ranges is None:
            continue
        for gone in (r for r in ranges if r.data_file_name not in alive):
            action = f"list no vector for {gone.data_file_name}, which is no longer live, in a new snapshot"
            plan.steps.append(RepairStep(RepairKind.VECTORS, version.index_path(entry), action))
        left = entry.index_file.listing_vectors_of(alive.__contains__)
        if left.deletion_vector_ranges != ranges:
            old.append(entry.index_file)
            if left.deletion_vector_ranges:
                new.append(left)
    return old, new


def _plan_file_indexes(version: Version, plan: RepairPlan, read_rows: bool) -> None:
    """Drop file indexes that cannot be read; with `read_rows`, those that deny values of their file, too.

    A wrong index hides rows, and a file without one is only read more often.
    """
    for bucket_id in sorted(version.changed_buckets):
        known = plan.messages.get(bucket_id)
        left_out = set() if known is None else {file.file_name for file in known.append.removed}
        wrong: dict[DataFileMeta, str] = {}
        for entry in version.at(bucket_id):
            if entry.file.file_name in left_out or not FileIndexes.has_any(entry.file):
                continue
            if why := _wrong_index(version, entry, read_rows):
                wrong[entry.file] = why
        for file, why in wrong.items():
            path = version.context.data_file_path(*bucket_id, file)
            plan.steps.append(RepairStep(RepairKind.FILE_INDEX, path, f"{why}: list it without its index in a new snapshot"))
        if wrong:
            total = next(e.total_buckets for e in version.at(bucket_id))
            message = known or CommitMessage(*bucket_id, total, read_snapshot_id=version.snapshot.id)
            without = tuple(map(without_index, wrong))
            plan.messages[bucket_id] = replace(message, compact=replace(message.compact, removed=tuple(wrong), added=without))


def _wrong_index(version: Version, entry: ManifestEntry, read_rows: bool) -> str | None:
    """Why the file index of a file cannot be relied on; None if it can."""
    context = version.context.at_schema(entry.file.schema_id)
    try:
        FileIndexes(context, entry.partition, entry.bucket, entry.file).known(context.schema.fields)
    except DamagedFile as error:
        return str(error)
    found = file_holds_its_rows(version, entry) if read_rows else ()
    return next((violation.message for violation in found if violation.code == "PV062"), None)


def _plan_hash_indexes(version: Version, plan: RepairPlan, read_rows: bool) -> None:
    """Hash indexes of dynamic buckets, rebuilt from the keys; with `read_rows` indexes that look intact are compared too."""
    if plan.messages:
        return  # the files to rebuild them from are damaged themselves
    for partition in rebuilt_partitions(version, read_rows):
        for index in partition.indexes:
            name = "its index" if index.old is None else index.old.file_name
            action = f"{index.why}: write {name} again with the {len(index.hashes)} hashes of the keys of the bucket"
            plan.steps.append(RepairStep(RepairKind.HASH_INDEX, version.bucket_directory(index.bucket_id), action))
            plan.hash_indexes.append(index)
        if partition.shared:
            action = f"{counted(partition.shared, 'key')} may have rows in two buckets, and readers see both: "
            action += "choose the right rows, and overwrite the partition with them"
            command = f"paimon-cli write {version.context.layout.argument} ROWS --overwrite"
            loss = "the rows that are not written again"
            plan.steps.append(RepairStep(RepairKind.BY_HAND, partition.directory, action, loss, command))


def _indexes_by_hand(version: Version) -> Iterator[RepairStep]:
    """Files of deletion vectors that are missing or incomplete: no other file records deleted rows."""
    found = {violation.path: violation for violation in index_files_exist(version) if violation.code != "PV043"}
    for entry in version.index_entries:
        if entry.index_file.external_path is None and entry.index_file.index_type != HASH:
            found.update((violation.path, violation) for violation in index_can_be_read(version, entry))
    for violation in found.values():
        action = f"{violation.message}: restore it from a backup, or roll back to a snapshot before it"
        yield RepairStep(
            RepairKind.BY_HAND, violation.path, action, "", f"paimon-cli snapshots ls {version.context.layout.argument}"
        )


def _plan_stale_buckets(version: Version, plan: RepairPlan) -> None:
    """Files that a writer has committed with the bucket count that its partition had before a rescale."""
    if plan.messages:
        return  # the files to move are damaged themselves
    context = version.context
    for found in stale_partitions(context, version.snapshot):
        path = f"{context.layout.root}/{context.partition_path_of(found.partition)}".rstrip("/")
        if found.can_be_mended:
            rows = sum(file.entry.file.row_count for file in found.stale)
            what = f"{counted(rows, 'row')} of {counted(len(found.stale), 'file')} that were written for another bucket count"
            action = f"move {what} into its {counted(found.buckets or 0, 'bucket')}"
            plan.steps.append(RepairStep(RepairKind.STALE_BUCKETS, path, action))
            plan.stale.append(found)
        else:
            counts = " and ".join(map(str, found.counts))
            action = (
                f"it holds files of {counts} buckets, and the snapshots that show their order have expired: choose the right "
            )
            command = f"paimon-cli write {context.layout.argument} ROWS --overwrite"
            plan.steps.append(
                RepairStep(RepairKind.BY_HAND, path, f"{action}rows, and overwrite the partition with them", "", command)
            )
