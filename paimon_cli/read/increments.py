"""What changed between two snapshots, as splits that a reader reads like any others (format section 11.4)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from paimon_cli.errors import NotFound, NotSupported, UsageError
from paimon_cli.history.table_context import TableContext
from paimon_cli.history.table_state import BucketFiles
from paimon_cli.metadata.data_file import ADD, ManifestEntry
from paimon_cli.metadata.snapshot import APPEND, OVERWRITE, Snapshot
from paimon_cli.read.predicate import Predicate
from paimon_cli.read.scan_options import BETWEEN, BETWEEN_MODE, BETWEEN_TIMES, chosen_option
from paimon_cli.read.scan_plan import ScanCounts, ScanPlan, Split, plan_buckets
from paimon_cli.read.time_travel import parse_moment

AUTO, DELTA, CHANGELOG = "auto", "delta", "changelog"
MODES = (AUTO, DELTA, CHANGELOG)
FEWEST_DIGITS_OF_MILLIS = 12
"""A shorter number is an id."""


def snapshots_between(context: TableContext, begin: str, end: str) -> list[Snapshot]:
    """The snapshots behind `begin` up to `end`, oldest first. Each is an id, a tag or a time; an empty end is the latest.

    NotFound when one of them has expired; UsageError when the two are the wrong way round.
    """
    latest = context.snapshots.latest_id()
    if latest is None:
        return []
    first, last = _position(context, begin), latest if not end else _position(context, end)
    if first > last:
        raise UsageError(f"{begin} lies behind {end}", "the range goes from the older to the newer")
    if last > latest:
        raise context.snapshots.missing(last)
    return [_there(context, number) for number in range(first + 1, last + 1)]


def _position(context: TableContext, text: str) -> int:
    if text.strip().isdecimal() and len(text.strip()) < FEWEST_DIGITS_OF_MILLIS:
        return int(text)
    tag = context.tags.find(text)
    if tag is not None:
        return tag.snapshot.id
    at = context.snapshots.at_time(parse_moment(text))
    return 0 if at is None else at.id


def _there(context: TableContext, number: int) -> Snapshot:
    found = context.snapshots.find(number)
    if found is None:
        earliest = context.snapshots.earliest_id()
        raise NotFound(f"snapshot {number} has expired", f"the oldest that is left is {earliest}", f"begin with {earliest}")
    return found


def increment_context(context: TableContext) -> TableContext:
    """Sees level 0 and no deletion vectors: what came in, not what is left of it."""
    return replace(context, options=context.options.with_overrides({"deletion-vectors.enabled": "false"}))


def asked_increment(context: TableContext) -> tuple[str, str, str] | None:
    """Begin, end and mode that the table's `incremental-between*` options ask for."""
    option = chosen_option(context.options.raw)
    if option is None or option.key not in (BETWEEN, BETWEEN_TIMES):
        return None
    begin, comma, end = option.value.partition(",")
    if not comma:
        raise UsageError(f"{option.key}={option.value}", "it takes a begin and an end", "write them as A,B")
    return begin.strip(), end.strip(), context.options.raw.get(BETWEEN_MODE, AUTO).strip().lower()


def plan_increment(
    context: TableContext, snapshots: list[Snapshot], mode: str, predicate: Predicate | None, *, one_by_one: bool = False
) -> ScanPlan:
    """Rows that the snapshots brought: `delta` merges what their APPENDs added, `changelog` reads their changelog files as is.

    `auto`: the changelog where the table's producer writes one. COMPACT snapshots bring no rows of their own, OVERWRITEs are left
    out as Paimon does. `one_by_one`: no merging over snapshots, as a stream sees them.
    """
    if mode not in MODES:
        raise NotSupported(
            f"increments in mode '{mode}'", f"the modes are {', '.join(MODES)}", "see `paimon-cli snapshots diff --rows`"
        )
    if mode == AUTO:
        mode = DELTA if context.options.changelog_producer == "none" else CHANGELOG
    newest = snapshots[-1] if snapshots else None
    if mode == CHANGELOG:
        return ScanPlan(newest, tuple(_changelog_splits(context, snapshots)), ScanCounts())
    appends = [snapshot for snapshot in snapshots if snapshot.commit_kind == APPEND]
    groups = [[snapshot] for snapshot in appends] if one_by_one else [appends]
    plans = [plan_buckets(context, newest, _added(context, group), predicate, shows_level_0=True) for group in groups]
    counts = plans[0].counts if len(plans) == 1 else ScanCounts()
    return ScanPlan(newest, tuple(split for plan in plans for split in plan.splits), counts)


def _added(context: TableContext, snapshots: Iterable[Snapshot]) -> list[BucketFiles]:
    entries = [entry for snapshot in snapshots for entry in context.manifests.delta_entries(snapshot)]
    return _grouped(entries)


def _grouped(entries: Iterable[ManifestEntry]) -> list[BucketFiles]:
    buckets: dict[tuple[bytes, int], BucketFiles] = {}
    for entry in entries:
        if entry.kind == ADD:
            place = (entry.partition, entry.bucket)
            bucket = buckets.get(place) or BucketFiles(*place, entry.total_buckets, ())
            buckets[place] = replace(bucket, files=(*bucket.files, entry.file))
    return list(buckets.values())


def _changelog_splits(context: TableContext, snapshots: Iterable[Snapshot]) -> Iterator[Split]:
    """A split per changelog file: a lone file passes unmerged, so that every change of a key is seen."""
    for snapshot in snapshots:
        if snapshot.changelog_manifest_list is None or snapshot.commit_kind == OVERWRITE:
            continue
        manifests = context.manifests.manifest_list(snapshot.changelog_manifest_list)
        entries = [entry for batch in context.manifests.entries(manifests) for entry in batch]
        for bucket in sorted(_grouped(entries), key=lambda b: (context.partition_path_of(b.partition), b.bucket)):
            for file in bucket.files:
                yield Split(replace(bucket, files=(file,)), False)
