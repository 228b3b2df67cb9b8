"""Plans reads of the changes between two snapshots (FORMAT.md, section 11.4; Java AbstractDataTableScan)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from paimon_cli.errors import NotFound, SnapshotNotFound, UsageError
from paimon_cli.history.live_files import BucketFiles
from paimon_cli.history.points_in_time import snapshot_or_tagged, version_point
from paimon_cli.history.table_context import TableContext
from paimon_cli.history.tags_and_branches import ChangelogHistory
from paimon_cli.metadata.data_file import BucketId, EntryKind, ManifestEntry
from paimon_cli.metadata.snapshot import APPEND, OVERWRITE, Snapshot, Tag
from paimon_cli.options import option_text as read
from paimon_cli.options.option_text import read_option
from paimon_cli.read.difference import plan_difference
from paimon_cli.read.pruning import Pruning, ScanCounts
from paimon_cli.read.scan_plan import ReadPlan, Split, plan_added
from paimon_cli.read.time_travel import (
    BETWEEN,
    BETWEEN_MODE,
    BETWEEN_TIMES,
    TAG_TO_SNAPSHOT,
    chosen_option,
)
from paimon_cli.sql.predicate import Predicate

AUTO, DELTA, CHANGELOG, DIFF = "auto", "delta", "changelog", "diff"
MODES = (AUTO, DELTA, CHANGELOG, DIFF)
CHANGES = "changes"
"""The changes that a stream of the table shows: CHANGELOG and changes by overwrites.

If the table writes no changelog, DELTA, to which the table's options can add the changes by overwrites.
"""
ARRIVALS = "arrivals"
"""DELTA including postponed rows, which a stream shows as soon as they are written."""


@dataclass(frozen=True)
class RangeEnd:
    """One end of a range: the id of a snapshot (0: the empty table), and the tag by which it was given, if any."""

    id: int
    tag: Tag | None = None

    def snapshot(self, context: TableContext) -> Snapshot | None:
        """The snapshot at this end, None for the empty table. Raises `NotFound` if it has expired."""
        if self.tag is not None:
            return self.tag.snapshot
        return None if self.id == 0 else snapshot_or_tagged(context, self.id)


@dataclass(frozen=True)
class IncrementRange:
    """The snapshots after `begin`, up to and including `end`."""

    begin: RangeEnd
    end: RangeEnd

    @staticmethod
    def of(context: TableContext, begin: str, end: str) -> IncrementRange:
        """The range between two ends, each an id, a tag or a time; an empty `end` means the latest snapshot.

        Raises `UsageError` if `end` is before `begin`, `NotFound` for a snapshot that does not exist yet.
        """
        latest = context.snapshots.latest_id() or 0
        first, last = _position(context, begin), _position(context, end) if end else RangeEnd(latest)
        if first.id > latest:
            hint = f"paimon-cli snapshots ls {context.layout.argument}"
            raise SnapshotNotFound(f"no snapshot after {begin} in {context.layout.root}", f"the latest one is {latest}", hint)
        if first.id > last.id:
            raise UsageError(f"{begin} is after {end or 'the latest snapshot'}", "the range goes from the older to the newer")
        if last.id > latest:
            raise context.snapshots.missing(last.id)
        return IncrementRange(first, last)

    def mode(self, context: TableContext, requested: str) -> str:
        """The mode to use. For `auto` it is chosen as in Java: diff between two tags, else the changelog if the table has one."""
        producer = context.options.changelog_producer
        if requested == CHANGES:
            if producer.writes_files or _streams_overwrites(context):
                return CHANGES
            return ARRIVALS if context.mode.bucket_mode.postpones else DELTA
        if requested not in MODES:
            raise UsageError(f"there is no increment in mode '{requested}'", f"the modes are {', '.join(MODES)}")
        if requested != AUTO:
            return requested
        if self.begin.tag is not None and self.end.tag is not None and not tags_mean_snapshots(context):
            return DIFF
        return CHANGELOG if producer.writes_files else DELTA

    def snapshots(self, context: TableContext, mode: str) -> list[Snapshot]:
        """The snapshots of the range, oldest first. Raises `NotFound` for an expired one, unless its changelog was kept."""
        changelogs = ChangelogHistory(context.storage, context.layout)
        may_be_expired = mode != DELTA or not context.options.changelog_producer.writes_files
        return [
            (may_be_expired and changelogs.find(number)) or _snapshot(context, number)
            for number in range(self.begin.id + 1, self.end.id + 1)
        ]


def _streams_overwrites(context: TableContext) -> bool:
    options = context.options
    return options.streaming_read_overwrite or (options.streaming_read_append_overwrite and not context.schema.primary_keys)


def increment_by_option(context: TableContext) -> tuple[str, str, str] | None:
    """Begin, end and mode in the table's `incremental-between*` options; None without them. Two tags imply the mode."""
    option = chosen_option(context.options.raw)
    if option is None or option.key not in (BETWEEN, BETWEEN_TIMES):
        return None
    begin, comma, end = (part.strip() for part in option.value.partition(","))
    if not comma:
        raise UsageError(f"{option.key}={option.value}", "it takes a begin and an end", "write them as A,B")
    mode = context.options.raw.get(BETWEEN_MODE, AUTO).strip().lower()
    if context.tags.find(begin) and context.tags.find(end) and not tags_mean_snapshots(context):
        mode = AUTO
    return begin, end, mode


def tags_mean_snapshots(context: TableContext) -> bool:
    """Option `incremental-between-tag-to-snapshot`: two tags are read like the ids of their snapshots, not as a diff."""
    return read_option(TAG_TO_SNAPSHOT, context.options.raw.get(TAG_TO_SNAPSHOT, "false"), read.boolean)


def _position(context: TableContext, text: str) -> RangeEnd:
    try:
        point = version_point(context, text.strip())
    except (NotFound, UsageError) as error:
        why = "snapshot ids start at 1; 0 is the empty table" if text.strip().startswith("-") else error.why
        raise UsageError(f"'{text}' is not an id, tag or time", why, error.hint) from error
    if point.millis is None:
        return RangeEnd(point.snapshot_id or 0) if point.tag is None else RangeEnd(point.tag.snapshot.id, point.tag)
    at = context.snapshots.at_time(point.millis)
    if at is not None:
        return RangeEnd(at.id)
    earliest = context.snapshots.earliest_id()
    if earliest is not None and earliest > 1:
        raise SnapshotNotFound(f"the state of the table at {text} has expired", f"the oldest existing snapshot is {earliest}")
    return RangeEnd(0)


def _snapshot(context: TableContext, number: int) -> Snapshot:
    snapshot = context.snapshots.in_history(number)
    if snapshot is None:
        raise context.snapshots.missing(number)
    return snapshot


def increment_context(context: TableContext, mode: str) -> TableContext:
    """The context to read an increment with.

    For DELTA it ignores deletion vectors, to show all rows that were added, including level 0. For CHANGES it shows the rows
    that a stream has shown, which includes level 0 unless the changelog is of compactions.
    """
    if mode in (DELTA, ARRIVALS):
        return replace(context, ignores_vectors=True)
    is_of_commits = not context.options.changelog_producer.reports_compactions
    return context.with_level_0() if mode == CHANGES and context.mode.deletion_vectors and is_of_commits else context


def plan_increment(context: TableContext, changes: IncrementRange, mode: str, predicate: Predicate | None) -> ReadPlan:
    """Plan a read of the changes in a range of snapshots.

    DELTA reads the files that APPEND snapshots added, CHANGELOG the changelog files. Both show every version of a key, snapshot
    by snapshot, as a stream does, without merging. DIFF compares both ends instead. COMPACT snapshots add no rows; OVERWRITE
    snapshots are ignored, as in Java, except by CHANGES. `mode`: from `IncrementRange.mode`; `context`: from `increment_context`.
    """
    if mode == DIFF:
        return plan_difference(context, changes.begin.snapshot(context), changes.end.snapshot(context), predicate)
    snapshots = changes.snapshots(context, mode)
    newest = snapshots[-1] if snapshots else None
    if mode == CHANGES and not context.options.changelog_producer.writes_files:
        each = (_added_or_overwritten(context, snapshot, predicate) for snapshot in snapshots)
        return ReadPlan(newest, tuple(split for splits in each for split in splits), ScanCounts())
    if mode in (CHANGELOG, CHANGES):
        by_snapshot = (_changelog_splits(context, snapshot, predicate, mode == CHANGES) for snapshot in snapshots)
        return ReadPlan(newest, tuple(split for splits in by_snapshot for split in splits), ScanCounts())
    added = [_added_entries(context, snapshot) for snapshot in snapshots if snapshot.commit_kind == APPEND]
    return plan_added(context, newest, added, predicate, shows_postponed=mode == ARRIVALS)


def waiting_changes(context: TableContext, changes: IncrementRange, mode: str, predicate: Predicate | None) -> int:
    """How many stored records have no changelog yet, because a compaction writes it; 0 if the range ends before the latest."""
    latest = context.snapshots.latest() if mode in (CHANGELOG, CHANGES) and changelog_level(context) else None
    if latest is None or latest.id != changes.end.id:
        return 0
    table = context.manifests.live_files(latest, Pruning(context, predicate, merges=False))
    return int(table.numbers("row_counts")[table.numbers("levels") < changelog_level(context)].sum())


def changelog_level(context: TableContext) -> int:
    """The lowest level whose rows are in a changelog, or in the delta of their commit."""
    options = context.options
    return options.changelog_producer.lowest_level(options.num_levels) if context.mode.has_keys else 0


def _added_entries(context: TableContext, snapshot: Snapshot) -> list[ManifestEntry]:
    return [entry for entry in context.manifests.delta_entries(snapshot) if entry.kind == EntryKind.ADD]


def _added_or_overwritten(context: TableContext, snapshot: Snapshot, predicate: Predicate | None) -> Iterable[Split]:
    """The changes by one snapshot of a table without changelog."""
    if snapshot.commit_kind == OVERWRITE:
        return _overwrite_splits(context, snapshot, predicate)
    added = [_added_entries(context, snapshot)] if snapshot.commit_kind == APPEND else []
    return plan_added(context, snapshot, added, predicate, shows_postponed=True).splits


def _added_files(entries: Iterable[ManifestEntry]) -> list[BucketFiles]:
    buckets: dict[BucketId, BucketFiles] = {}
    for entry in entries:
        if entry.kind == EntryKind.ADD:
            bucket_id = entry.bucket_id
            bucket = buckets.get(bucket_id) or BucketFiles(*bucket_id, entry.total_buckets, ())
            buckets[bucket_id] = replace(bucket, files=(*bucket.files, entry.file))
    return list(buckets.values())


def _changelog_splits(
    context: TableContext, snapshot: Snapshot, predicate: Predicate | None, with_overwrites: bool
) -> Iterator[Split]:
    """A split for each changelog file of a snapshot, which is read unmerged, so that every change of a key is shown."""
    if snapshot.commit_kind == OVERWRITE and not with_overwrites:
        return
    if snapshot.changelog_has_expired:
        raise NotFound(
            f"the changes of snapshot {snapshot.id} have expired",
            "it was restored from a tag, which keeps its rows, not its changelog",
            f"paimon-cli read {context.layout.argument} --snapshot {snapshot.id}",
        )
    if snapshot.changelog_manifest_list is None:
        if snapshot.commit_kind == OVERWRITE:
            yield from _overwrite_splits(context, snapshot, predicate)
        return
    manifests = context.manifests.manifest_list(snapshot.changelog_manifest_list)
    entries = [entry for batch in context.manifests.entries(manifests) for entry in batch]
    for bucket in sorted(_added_files(entries), key=lambda b: (context.partition_path_of(b.partition), b.bucket)):
        for file in bucket.files:
            yield Split(replace(bucket, files=(file,)), False, is_changelog=True)


def _overwrite_splits(context: TableContext, snapshot: Snapshot, predicate: Predicate | None) -> Iterable[Split]:
    """The changes by an OVERWRITE snapshot, among rows in levels that a stream has shown already."""
    before = None if snapshot.id == 1 else context.snapshots.in_history(snapshot.id - 1)
    if before is None and snapshot.id > 1:
        raise NotFound(
            f"the rows that snapshot {snapshot.id} overwrote have expired",
            f"its changes follow from snapshot {snapshot.id - 1}; those from snapshot {snapshot.id + 1} on can be read",
            f"paimon-cli read {context.layout.argument} --snapshot {snapshot.id}",
        )
    return plan_difference(context, before, snapshot, predicate, min_level=changelog_level(context), both_sides=True).splits
