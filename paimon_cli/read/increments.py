"""The changes between two snapshots as splits (FORMAT.md, section 11.4; Java AbstractDataTableScan)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from paimon_cli.errors import NotFound, UsageError
from paimon_cli.history.live_files import BucketFiles
from paimon_cli.history.table_context import TableContext
from paimon_cli.history.tags_and_branches import ChangelogHistory
from paimon_cli.metadata.data_file import ADD, BucketId, ManifestEntry
from paimon_cli.metadata.snapshot import APPEND, OVERWRITE, Snapshot, Tag
from paimon_cli.metadata.table_mode import FULL_COMPACTION, INPUT, LOOKUP, BucketMode
from paimon_cli.options import option_text as read
from paimon_cli.options.option_text import plain_number, read_option
from paimon_cli.read.difference import plan_difference
from paimon_cli.read.pruning import ScanCounts
from paimon_cli.read.scan_plan import ScanPlan, Split, plan_added
from paimon_cli.read.time_travel import (
    BETWEEN,
    BETWEEN_MODE,
    BETWEEN_TIMES,
    TAG_TO_SNAPSHOT,
    chosen_option,
    parse_moment,
    snapshot_or_tagged,
)
from paimon_cli.sql.predicate import Predicate

AUTO, DELTA, CHANGELOG, DIFF = "auto", "delta", "changelog", "diff"
MODES = (AUTO, DELTA, CHANGELOG, DIFF)
CHANGES = "changes"
"""All changes that a stream of the table is to see: CHANGELOG, and what overwrites have changed; DELTA without a producer."""
ARRIVALS = "arrivals"
"""DELTA with the rows that wait for their buckets, as a stream of such a table sees them when they are written."""
LEAST_MILLIS = 10**11
"""Smaller numbers are snapshot ids, greater ones epoch millis."""


@dataclass(frozen=True)
class Position:
    """One end of a range: the id of a snapshot, 0 for the empty table, and its tag if that is how it was named."""

    id: int
    tag: Tag | None = None

    def snapshot(self, context: TableContext) -> Snapshot | None:
        """What the table was there; NotFound when it has expired, None for the empty table."""
        if self.tag is not None:
            return self.tag.snapshot
        return None if self.id == 0 else snapshot_or_tagged(context, self.id)


@dataclass(frozen=True)
class IncrementRange:
    """The snapshots after `begin` up to `end`."""

    begin: Position
    end: Position

    @staticmethod
    def of(context: TableContext, begin: str, end: str) -> IncrementRange:
        """Each is an id, a tag or a time; an empty end is the latest.

        UsageError when the two are the wrong way round, NotFound for one that is not there yet.
        """
        latest = context.snapshots.latest_id() or 0
        first, last = _position(context, begin), _position(context, end) if end else Position(latest)
        if first.id > latest:
            listed = f"paimon-cli snapshots ls {context.layout.argument}"
            raise NotFound(f"no snapshot after {begin} in {context.layout.root}", f"the latest one is {latest}", listed)
        if first.id > last.id:
            raise UsageError(f"{begin} is after {end or 'the latest snapshot'}", "the range goes from the older to the newer")
        if last.id > latest:
            raise context.snapshots.missing(last.id)
        return IncrementRange(first, last)

    def mode(self, context: TableContext, asked: str) -> str:
        """`asked`, or for auto what Java does: diff between two tags, else the changelog if the table's producer writes one."""
        producer = context.options.changelog_producer
        if asked == CHANGES:
            without = ARRIVALS if context.mode.bucket_mode is BucketMode.POSTPONED else DELTA
            return without if producer == "none" else CHANGES
        if asked not in MODES:
            raise UsageError(f"there is no increment in mode '{asked}'", f"the modes are {', '.join(MODES)}")
        if asked != AUTO:
            return asked
        if self.begin.tag is not None and self.end.tag is not None and not tags_stand_for_snapshots(context):
            return DIFF
        return DELTA if producer == "none" else CHANGELOG

    def snapshots(self, context: TableContext, mode: str) -> list[Snapshot]:
        """All of the range, oldest first. NotFound when one has expired; its changes may have outlived it."""
        changelogs = ChangelogHistory(context.storage, context.layout)
        may_be_expired = mode != DELTA or context.options.changelog_producer == "none"
        return [
            (may_be_expired and changelogs.find(number)) or _there(context, number)
            for number in range(self.begin.id + 1, self.end.id + 1)
        ]


def increment_by_option(context: TableContext) -> tuple[str, str, str] | None:
    """Begin, end and mode that the table's `incremental-between*` options ask for; between two tags the mode does not count."""
    option = chosen_option(context.options.raw)
    if option is None or option.key not in (BETWEEN, BETWEEN_TIMES):
        return None
    begin, comma, end = (part.strip() for part in option.value.partition(","))
    if not comma:
        raise UsageError(f"{option.key}={option.value}", "it takes a begin and an end", "write them as A,B")
    mode = context.options.raw.get(BETWEEN_MODE, AUTO).strip().lower()
    if context.tags.find(begin) and context.tags.find(end) and not tags_stand_for_snapshots(context):
        mode = AUTO
    return begin, end, mode


def tags_stand_for_snapshots(context: TableContext) -> bool:
    """Option `incremental-between-tag-to-snapshot`: two tags mean the ids of their snapshots, and nothing more."""
    return read_option(TAG_TO_SNAPSHOT, context.options.raw.get(TAG_TO_SNAPSHOT, "false"), read.boolean)


def _position(context: TableContext, text: str) -> Position:
    number = plain_number(text)
    if number is not None and 0 <= number < LEAST_MILLIS:
        return Position(number)
    tag = context.tags.find(text)
    if tag is not None:
        return Position(tag.snapshot.id, tag)
    at = context.snapshots.at_time(_moment(text))
    if at is not None:
        return Position(at.id)
    earliest = context.snapshots.earliest_id()
    if earliest is not None and earliest > 1:
        raise NotFound(f"the state of the table at {text} has expired", f"the oldest snapshot still there is {earliest}")
    return Position(0)


def _moment(text: str) -> int:
    if text.strip().startswith("-"):
        raise UsageError(f"'{text}' is not an id, tag or time", "snapshot ids start at 1; 0 is the empty table")
    try:
        return parse_moment(text)
    except UsageError as error:
        raise UsageError(
            f"'{text}' is not an id, tag or time", error.why, "list them with `snapshots ls` and `tags ls`"
        ) from error


def _there(context: TableContext, number: int) -> Snapshot:
    found = context.snapshots.in_history(number)
    if found is None:
        raise context.snapshots.missing(number)
    return found


def increment_context(context: TableContext, mode: str) -> TableContext:
    """For DELTA one that sees level 0 and no deletion vectors: what came in, not what is left of it. For CHANGES one that sees
    what changelogs have shown, which is level 0, too, if they record the input.
    """
    if mode in (DELTA, ARRIVALS):
        return replace(context, options=context.options.with_overrides({"deletion-vectors.enabled": "false"}))
    if mode == CHANGES and context.options.changelog_producer == INPUT:
        return replace(context, options=context.options.with_overrides({"deletion-vectors.merge-on-read": "true"}))
    return context


def plan_increment(context: TableContext, chosen: IncrementRange, mode: str, predicate: Predicate | None) -> ScanPlan:
    """Rows that the range brought: DELTA reads the files that its APPENDs added, CHANGELOG its changelog files.

    Both show every version of a key, snapshot by snapshot, as a stream sees them; nothing is merged. DIFF compares both ends
    instead. COMPACT snapshots bring no rows of their own, OVERWRITEs are left out as Paimon does; CHANGES shows what they have
    changed. `mode` comes from `IncrementRange.mode`, `context` from `increment_context`.
    """
    if mode == DIFF:
        return plan_difference(context, chosen.begin.snapshot(context), chosen.end.snapshot(context), predicate)
    snapshots = chosen.snapshots(context, mode)
    newest = snapshots[-1] if snapshots else None
    if mode in (CHANGELOG, CHANGES):
        shown = (_changes_of(context, snapshot, predicate, mode == CHANGES) for snapshot in snapshots)
        return ScanPlan(newest, tuple(split for splits in shown for split in splits), ScanCounts())
    appends = (context.manifests.delta_entries(snapshot) for snapshot in snapshots if snapshot.commit_kind == APPEND)
    added = [[entry for entry in entries if entry.kind == ADD] for entries in appends]
    return plan_added(context, newest, added, predicate, shows_postponed=mode == ARRIVALS)


def _grouped(entries: Iterable[ManifestEntry]) -> list[BucketFiles]:
    buckets: dict[BucketId, BucketFiles] = {}
    for entry in entries:
        if entry.kind == ADD:
            bucket_id = entry.bucket_id
            bucket = buckets.get(bucket_id) or BucketFiles(*bucket_id, entry.total_buckets, ())
            buckets[bucket_id] = replace(bucket, files=(*bucket.files, entry.file))
    return list(buckets.values())


def _changes_of(context: TableContext, snapshot: Snapshot, predicate: Predicate | None, with_overwrites: bool) -> Iterator[Split]:
    """A split per changelog file, which is read as it is, so that every change of a key is seen."""
    if snapshot.commit_kind == OVERWRITE and not with_overwrites:
        return
    if snapshot.changelog_manifest_list is None:
        if snapshot.commit_kind == OVERWRITE:
            yield from _overwritten(context, snapshot, predicate)
        return
    manifests = context.manifests.manifest_list(snapshot.changelog_manifest_list)
    entries = [entry for batch in context.manifests.entries(manifests) for entry in batch]
    for bucket in sorted(_grouped(entries), key=lambda b: (context.partition_path_of(b.partition), b.bucket)):
        for file in bucket.files:
            yield Split(replace(bucket, files=(file,)), False, is_changelog=True)


def _overwritten(context: TableContext, snapshot: Snapshot, predicate: Predicate | None) -> Iterable[Split]:
    """What an OVERWRITE changed among the rows that changelogs have shown; what the producer is still to show is left to it."""
    before = None if snapshot.id == 1 else context.snapshots.in_history(snapshot.id - 1)
    if before is None and snapshot.id > 1:
        raise NotFound(
            f"what snapshot {snapshot.id} overwrote has expired",
            f"its changes follow from snapshot {snapshot.id - 1}; those from snapshot {snapshot.id + 1} on can be read",
            f"paimon-cli read {context.layout.argument} --snapshot {snapshot.id}",
        )
    options = context.options
    least_level = {INPUT: 0, LOOKUP: 1, FULL_COMPACTION: options.num_levels - 1}[options.changelog_producer]
    return plan_difference(context, before, snapshot, predicate, least_level=least_level, both_sides=True).splits
