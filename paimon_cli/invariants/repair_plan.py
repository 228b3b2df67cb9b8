"""Plans the repair of a damaged table (`repair`) without changing anything.

Nothing is repaired in place: existing snapshots and manifests are kept, and a new snapshot leaves out lost files. Files whose
content follows from others are written again: hints, a snapshot file missing between two others, and hash indexes. Unreadable
version files are moved aside. Wrong file indexes are no longer listed.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from paimon_cli.bucket.file_indexes import FileIndexes, without_index
from paimon_cli.errors import DamagedFile, NotFound, NotSupported, SnapshotExpired
from paimon_cli.history.snapshot_history import LONGEST_GAP, gaps
from paimon_cli.history.stale_buckets import StalePartition, stale_partitions
from paimon_cli.history.table_context import TableContext
from paimon_cli.invariants.hash_indexes import RebuiltIndex, rebuilt_partitions
from paimon_cli.invariants.index_checks import index_can_be_read, index_files_exist
from paimon_cli.invariants.lost_commits import DIRECTORY, DamagedVersion, LostCommit, damaged_versions, lost_commits
from paimon_cli.invariants.row_checks import file_holds_its_rows
from paimon_cli.invariants.snapshot_checks import branches_are_readable, consumers_stand_somewhere, no_snapshot_has_come_back
from paimon_cli.invariants.version import Version
from paimon_cli.metadata.data_file import HASH, BucketId, CommitMessage, DataFileMeta, FileChanges, IndexFileMeta, ManifestEntry
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.metadata.table_layout import CONSUMER_PREFIX, parse_hint
from paimon_cli.options.option_text import counted

VERSIONS, HINTS, CHAIN, VECTORS, LOST_COMMITS = "damaged-versions", "hints", "chain", "dv", "lost-commits"
DEAD_FILES, DAMAGED_FILES, HASH_INDEX, FILE_INDEX = "dead-files", "damaged-files", "hash-index", "file-index"
STALE_BUCKETS = "stale-buckets"
KINDS = (VERSIONS, CHAIN, HINTS, DEAD_FILES, DAMAGED_FILES, VECTORS, HASH_INDEX, FILE_INDEX, STALE_BUCKETS, LOST_COMMITS)
BY_HAND = "by-hand"


@dataclass(frozen=True)
class RepairStep:
    """One step of a repair. `loss`: what readers lose by it, empty for nothing; `command`: what the user has to run manually."""

    kind: str
    path: str
    action: str
    loss: str = ""
    command: str = ""


@dataclass
class RepairPlan:
    """The steps as shown to the user, and the data needed to carry them out."""

    snapshot_id: int | None
    steps: list[RepairStep] = field(default_factory=list)
    set_aside: list[DamagedVersion] = field(default_factory=list)
    hints: dict[str, int | None] = field(default_factory=dict)
    """What each hint should say; None if there is no snapshot that it could name."""
    missing_snapshots: list[int] = field(default_factory=list)
    messages: dict[BucketId, CommitMessage] = field(default_factory=dict)
    hash_indexes: list[RebuiltIndex] = field(default_factory=list)
    stale: list[StalePartition] = field(default_factory=list)
    lost: list[LostCommit] = field(default_factory=list)

    @property
    def changes(self) -> int:
        """Number of steps that `--apply` would carry out."""
        return sum(step.kind != BY_HAND for step in self.steps)


def plan_repair(context: TableContext, only: Sequence[str] = (), min_age_millis: int = 0) -> RepairPlan:
    """Look for damage that can be repaired; `only`: kinds of steps, empty for all.

    Lost commits younger than `min_age_millis` are left alone, because their writer may still be running. Raises
    `SnapshotExpired` if snapshots disappear meanwhile, since their files would look lost.
    """
    listed = context.snapshots.ids()
    if not listed:
        context.expect_existing()
    plan = _damage_found(context, listed, only, min_age_millis)
    for number in (*listed[:1], *listed[-1:]) if plan.steps else ():
        if not context.storage.exists(context.layout.snapshot(number)):
            what = f"snapshot {number} of {context.address} was deleted while the table was examined"
            raise SnapshotExpired(what, "files that were deleted with it would look lost", "run it again")
    return plan


def _damage_found(context: TableContext, listed: Sequence[int], only: Sequence[str], min_age_millis: int) -> RepairPlan:
    """The plan for a table with the `listed` snapshots."""
    wanted = set(only) or set(KINDS)
    newest = _newest_readable(context)
    plan = RepairPlan(None if newest is None else newest.id)
    damaged = damaged_versions(context, listed)
    if VERSIONS in wanted:
        _plan_set_aside(plan, damaged)
    unreadable = {version_file.snapshot_id for version_file in damaged}
    ids = [number for number in listed if number not in unreadable]
    if CHAIN in wanted:
        _plan_chain(context, plan, ids, set(listed) - set(ids))
    if HINTS in wanted and (ids or not listed):
        _plan_hints(context, plan, ids)
    if not only:
        plan.steps += [*_references_by_hand(context), *_resurrected_by_hand(context)]
    if newest is None:
        return plan
    version = Version(context, newest)
    try:
        _plan_newest(version, plan, wanted, only)
    except (DamagedFile, NotFound) as error:
        _plan_by_hand(context, plan, newest, error)
        return plan
    # The files of an unreadable tag or changelog would look like a lost commit.
    if LOST_COMMITS in wanted and all(version_file.snapshot_id for version_file in damaged):
        was_newest = any((version_file.snapshot_id or 0) > newest.id for version_file in damaged)
        _plan_lost_commits(context, plan, version, only, min_age_millis, was_newest)
    return plan


def _plan_newest(version: Version, plan: RepairPlan, wanted: set[str], only: Sequence[str]) -> None:
    """What the newest readable snapshot needs. A kind that is asked for by name may read all rows."""
    if not only:
        plan.steps += _indexes_by_hand(version)
    if wanted & {DEAD_FILES, DAMAGED_FILES, VECTORS}:
        _plan_files(version, plan, wanted, DAMAGED_FILES in only)
    if FILE_INDEX in wanted:
        _plan_file_indexes(version, plan, FILE_INDEX in only)
    if HASH_INDEX in wanted:
        _plan_hash_indexes(version, plan, HASH_INDEX in only)
    if STALE_BUCKETS in wanted:
        _plan_stale_buckets(version, plan)


def _plan_set_aside(plan: RepairPlan, damaged: Sequence[DamagedVersion]) -> None:
    for version_file in damaged:
        plan.set_aside.append(version_file)
        action = f"set it aside in {DIRECTORY}/: {version_file.why}"
        plan.steps.append(RepairStep(VERSIONS, version_file.path, action, version_file.loss))


def _newest_readable(context: TableContext) -> Snapshot | None:
    for number in reversed(context.snapshots.ids()):
        try:
            return context.snapshots.find(number)
        except DamagedFile:
            continue
    return None


def _resurrected_by_hand(context: TableContext) -> Iterator[RepairStep]:
    """Snapshots below a gap below EARLIEST. Nothing but the hint says that they had expired, so they are not deleted."""
    for found in no_snapshot_has_come_back(context):
        command = f"paimon-cli expire {context.layout.argument} --yes"
        loss = "the snapshots that have expired by the table's retention settings, for time travel"
        yield RepairStep(BY_HAND, found.path, found.message, loss, command)


def _plan_chain(context: TableContext, plan: RepairPlan, ids: Sequence[int], unreadable: set[int]) -> None:
    """Snapshot files missing between readable ones, whose changes can be derived from their neighbours."""
    waiting = unreadable - {version_file.snapshot_id for version_file in plan.set_aside}
    for gap in gaps(ids):
        if len(gap) > LONGEST_GAP:
            action = f"{len(gap):,} snapshots are missing below it: move it away if it is not a snapshot of this table"
            plan.steps.append(RepairStep(BY_HAND, context.layout.snapshot(gap.stop), action))
    for number in (number for gap in gaps(ids) if len(gap) <= LONGEST_GAP for number in gap):
        if number in waiting:  # damaged, and not to be set aside now
            continue
        action = f"write it again from what snapshots {number - 1} and above hold"
        loss = "its user, time and kind; rows of its files stay as the next snapshot has them"
        plan.missing_snapshots.append(number)
        plan.steps.append(RepairStep(CHAIN, context.layout.snapshot(number), action, loss))


def _plan_hints(context: TableContext, plan: RepairPlan, ids: Sequence[int]) -> None:
    newest, oldest = (ids[-1], ids[0]) if ids else (None, None)
    for path, right in ((context.layout.latest_hint, newest), (context.layout.earliest_hint, oldest)):
        try:
            text = context.storage.read_bytes(path)
        except FileNotFoundError:
            continue
        except DamagedFile as error:
            action = f"cannot be read: {error.why}; move it away, it is created again when needed"
            plan.steps.append(RepairStep(BY_HAND, path, action))
            continue
        hint = parse_hint(text)
        if hint is None or hint > (right or 0):
            is_latest = path == context.layout.latest_hint
            if is_latest and hint is not None and _is_newest(context, hint):
                continue
            recorded = text.strip()[:20].decode(errors="replace") or "nothing"
            plan.hints[path] = right
            action = f"set it to {right} instead of {recorded}"
            if right is None:
                action = f"delete it: it says {recorded}, and there is no snapshot"
            plan.steps.append(RepairStep(HINTS, path, action))


def _is_newest(context: TableContext, number: int) -> bool:
    """Whether a snapshot can be read and has no successor. Listings are not relied on, because on some stores they lag."""
    try:
        return context.snapshots.find(number) is not None and not context.storage.exists(context.layout.snapshot(number + 1))
    except DamagedFile:
        return False


def _plan_files(version: Version, plan: RepairPlan, wanted: set[str], leave_out_damaged: bool) -> None:
    """Live files that are missing or damaged, and deletion vectors of files that are not live.

    A damaged file may be restored from a backup, so it is left out on request only; every file is then read completely.
    """
    for bucket_id in sorted(version.changed_buckets):
        entries = list(version.at(bucket_id))
        dead = [e.file for e in entries if _is_missing(version, bucket_id, e.file)] if DEAD_FILES in wanted else []
        if DAMAGED_FILES in wanted:
            damaged = {e.file.file_name: why for e in entries if (why := _damage(version, e, leave_out_damaged))}
            _plan_damaged_files(version, bucket_id, plan, damaged, leave_out_damaged)
            dead += [e.file for e in entries if leave_out_damaged and e.file.file_name in damaged]
        for file in dead:
            loss = f"{counted(file.row_count, 'row')} of level {file.level}, sequence numbers {file.min_sequence_number} to "
            loss += f"{file.max_sequence_number}; older values of their keys may become visible again"
            path = version.context.data_file_path(*bucket_id, file)
            kind, state = (DEAD_FILES, "missing") if _is_missing(version, bucket_id, file) else (DAMAGED_FILES, "damaged")
            plan.steps.append(RepairStep(kind, path, f"leave the {state} file out of a new snapshot", loss))
        alive = {e.file.file_name for e in entries} - {file.file_name for file in dead}
        old, new = _without_dangling(version, plan, bucket_id, alive) if VECTORS in wanted or dead else ([], [])
        if dead or old:
            total = next((e.total_buckets for e in entries), version.context.options.bucket)
            plan.messages[bucket_id] = CommitMessage(
                *bucket_id,
                total,
                append=FileChanges(removed=tuple(dead), removed_indexes=tuple(old), added_indexes=tuple(new)),
                read_snapshot_id=version.snapshot.id,
            )


def _is_missing(version: Version, bucket_id: BucketId, file: DataFileMeta) -> bool:
    return file.external_path is None and not version.context.storage.exists(version.context.data_file_path(*bucket_id, file))


def _references_by_hand(context: TableContext) -> Iterator[RepairStep]:
    """Consumers and branches that refer to missing versions."""
    for found in consumers_stand_somewhere(context):
        name = found.path.rpartition(f"/{CONSUMER_PREFIX}")[2]
        command = f"paimon-cli consumers reset {context.layout.argument} {shlex.quote(name)}"
        loss = "the consumer skips the changes that have expired"
        yield RepairStep(BY_HAND, found.path, f"{found.message}: reset it to the next snapshot", loss, command)
    for found in branches_are_readable(context):
        name = found.message.removeprefix("branch ").partition(":")[0]
        command = f"paimon-cli branches rm {context.layout.argument} {shlex.quote(name)} --yes"
        action, loss = f"{found.message}: restore the file, or delete the branch", "the commits of the branch"
        yield RepairStep(BY_HAND, found.path, action, loss, command)


def _indexes_by_hand(version: Version) -> Iterator[RepairStep]:
    """Files of deletion vectors that are missing or incomplete: no other file records deleted rows."""
    found = {violation.path: violation for violation in index_files_exist(version) if violation.code != "PV043"}
    for entry in version.index_entries:
        if entry.index_file.external_path is None and entry.index_file.index_type != HASH:
            found.update((violation.path, violation) for violation in index_can_be_read(version, entry))
    for violation in found.values():
        action = f"{violation.message}: restore it from a backup, or roll back to a snapshot before it"
        yield RepairStep(BY_HAND, violation.path, action, "", f"paimon-cli snapshots ls {version.context.layout.argument}")


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
            plan.steps.append(RepairStep(FILE_INDEX, path, f"{why}: list it without its index in a new snapshot"))
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
            plan.steps.append(RepairStep(HASH_INDEX, version.bucket_directory(index.bucket_id), action))
            plan.hash_indexes.append(index)
        if partition.shared:
            action = f"{counted(partition.shared, 'key')} may have rows in two buckets, and readers see both: "
            action += "choose the right rows, and overwrite the partition with them"
            command = f"paimon-cli write {version.context.layout.argument} ROWS --overwrite"
            loss = "the rows that are not written again"
            plan.steps.append(RepairStep(BY_HAND, partition.directory, action, loss, command))


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
            plan.steps.append(RepairStep(STALE_BUCKETS, path, action))
            plan.stale.append(found)
        else:
            counts = " and ".join(map(str, found.counts))
            action = (
                f"it holds files of {counts} buckets, and the snapshots that show their order have expired: choose the right "
            )
            command = f"paimon-cli write {context.layout.argument} ROWS --overwrite"
            plan.steps.append(RepairStep(BY_HAND, path, f"{action}rows, and overwrite the partition with them", "", command))


def _damage(version: Version, entry: ManifestEntry, read: bool) -> str | None:
    """Why an existing file is damaged; None if it is intact or missing. `read`: check every row, not only the size."""
    bucket_id = entry.bucket_id
    if entry.file.external_path is not None:
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
    command = f"paimon-cli repair {version.context.layout.argument} --only {DAMAGED_FILES} --apply --yes"
    for entry in version.at(bucket_id):
        if entry.file.file_name in damaged:
            path = version.context.data_file_path(*bucket_id, entry.file)
            action = f"{damaged[entry.file.file_name]}: restore it from a backup, or leave it out of a new snapshot"
            plan.steps.append(RepairStep(BY_HAND, path, action, "", command))


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
            plan.steps.append(RepairStep(VECTORS, version.index_path(entry), action))
        left = entry.index_file.listing_vectors_of(alive.__contains__)
        if left.deletion_vector_ranges != ranges:
            old.append(entry.index_file)
            if left.deletion_vector_ranges:
                new.append(left)
    return old, new


def _plan_lost_commits(
    context: TableContext, plan: RepairPlan, version: Version, only: Sequence[str], min_age_millis: int, is_sure: bool
) -> None:
    """Lost commits, repaired if a snapshot is known to be lost; otherwise on request only, as the commit may have failed."""
    try:
        candidates = list(lost_commits(context, version))
    except DamagedFile as error:
        path = error.path or context.layout.root
        if all(step.path != path for step in plan.steps):
            action = f"commits of its branch would look lost, so lost ones are not searched for: {error}"
            plan.steps.append(RepairStep(BY_HAND, path, action))
        return
    for lost in candidates:
        rows = sum(entry.file.row_count for entry in lost.entries)
        age = context.clock.now_millis() - lost.modified_millis
        found = f"{counted(len(lost.entries), 'data file')} with {counted(rows, 'row')}, {age // 1000} s old"
        if is_sure or lost.is_sure or (LOST_COMMITS in only and age >= min_age_millis):
            plan.lost.append(lost)
            why = "a snapshot with this number existed" if is_sure or lost.is_sure else "no snapshot refers to it"
            plan.steps.append(RepairStep(LOST_COMMITS, lost.path, f"commit it again: {why}; {found}"))
        else:
            command = f"paimon-cli repair {context.layout.argument} --only {LOST_COMMITS} --apply --yes"
            action = f"looks like a commit that was lost, or one that failed: {found}"
            if age < min_age_millis:
                command += " --older-than '0 s'"
                action += "; it is young, so run this only if no job is writing"
            plan.steps.append(RepairStep(BY_HAND, lost.path, action, "", command))


def _plan_by_hand(context: TableContext, plan: RepairPlan, newest: Snapshot, error: DamagedFile | NotFound) -> None:
    path = error.path or context.layout.snapshot(newest.id)
    good = next(_readable_below(context, newest.id), None)
    action = f"cannot be repaired: {error}"
    if good is None:
        plan.steps.append(RepairStep(BY_HAND, path, action))
        return
    loss = f"the commits after snapshot {good}"
    command = f"paimon-cli rollback {context.layout.argument} --to {good} --yes"
    plan.steps.append(RepairStep(BY_HAND, path, action, loss, command))


def _readable_below(context: TableContext, number: int) -> Iterator[int]:
    for below in reversed([i for i in context.snapshots.ids() if i < number]):
        try:
            Version(context, context.snapshots.get(below)).live  # noqa: B018
        except (DamagedFile, NotFound, NotSupported):
            continue
        yield below
