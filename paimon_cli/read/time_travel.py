"""Time travel: chooses the snapshot to read, and its schema (FORMAT.md, section 11.4; Java TimeTravelUtil)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from paimon_cli.commit.deduplication import BATCH_IDENTIFIER
from paimon_cli.errors import NotSupported, SnapshotNotFound, UsageError
from paimon_cli.history.points_in_time import Point, named_snapshot, parse_moment, snapshot_or_tagged, time_point
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.snapshot import COMPACT, Snapshot
from paimon_cli.options.option_text import plain_number

_SNAPSHOT_ID, _TAG, _VERSION, _WATERMARK = "scan.snapshot-id", "scan.tag-name", "scan.version", "scan.watermark"
_MILLIS, _TIMESTAMP, _MODE = "scan.timestamp-millis", "scan.timestamp", "scan.mode"
BETWEEN, BETWEEN_TIMES = "incremental-between", "incremental-between-timestamp"
BETWEEN_MODE = "incremental-between-scan-mode"
TAG_TO_SNAPSHOT = "incremental-between-tag-to-snapshot"
_COMPACTED = "compacted-full"

_BY_CREATION = ("from-file-creation-time", "from-creation-timestamp")
_POSITIONS = (_SNAPSHOT_ID, _TAG, _VERSION, _WATERMARK, _MILLIS, _TIMESTAMP)
_BY_VERSION, _BY_TIME, _INCREMENTS = (_SNAPSHOT_ID, _TAG, _VERSION, _WATERMARK), (_MILLIS, _TIMESTAMP), (BETWEEN, BETWEEN_TIMES)
POSITION_OPTIONS = (_MODE, *_POSITIONS, *_INCREMENTS)
"""Options that say what a read of a table shows."""
_NEEDED: dict[str, tuple[str, ...]] = {
    "default": (),
    "latest-full": (),
    "full": (),
    "latest": (),
    _COMPACTED: (),
    "from-timestamp": _BY_TIME,
    "from-snapshot": _BY_VERSION,
    "from-snapshot-full": _BY_VERSION,
    "incremental": _INCREMENTS,
}


@dataclass(frozen=True)
class ScanOption:
    """The option that selects what to read, and its value."""

    key: str
    value: str

    @property
    def number(self) -> int:
        """The value as a whole number. Raises `UsageError` if it is none."""
        number = plain_number(self.value)
        if number is None:
            raise UsageError(f"{self.key}={self.value}", "the value must be a whole number")
        return number


def chosen_option(options: Mapping[str, str]) -> ScanOption | None:
    """The option that selects what to read; None for the latest snapshot.

    Raises `UsageError` if options contradict each other.
    """
    mode = options.get(_MODE, "default").strip().lower()
    if mode in _BY_CREATION:
        raise NotSupported(f"{_MODE}={mode}", "reads cannot start at the creation time of a file", f"leave {_MODE} out")
    if mode not in _NEEDED:
        raise UsageError(f"{_MODE}={mode}", f"the modes are {', '.join(_NEEDED)}")
    given = [key for key in (*_POSITIONS, *_INCREMENTS) if key in options]
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} exclude each other", "a read starts at one position", "set only one of them")
    needed = _NEEDED[mode]
    if needed and not given:
        raise UsageError(f"{_MODE}={mode} needs a starting position", hint=f"set one of {', '.join(needed)}")
    if given and mode != "default" and given[0] not in needed:
        raise UsageError(f"{_MODE}={mode} cannot be combined with {given[0]}", "the mode follows from it", f"leave {_MODE} out")
    if given:
        return ScanOption(given[0], options[given[0]])
    return ScanOption(_MODE, _COMPACTED) if mode == _COMPACTED else None


WATERMARK_VERSION = "watermark-"


def travel(
    context: TableContext, snapshot_id: int | str | None = None, tag: str | None = None, as_of: str | None = None
) -> tuple[TableContext, Snapshot | None]:
    """The snapshot to read, and the context to read it with: the newest schema for a plain read, otherwise the snapshot's schema.

    `snapshot_id`, `as_of`: points in time (`history/points_in_time`); a text of the first names a version. Without arguments the
    table's `scan.*` options decide. Raises `NotFound` for a missing snapshot, `UsageError` for more than one argument.
    """
    if sum(choice is not None for choice in (snapshot_id, tag, as_of)) > 1:
        raise UsageError("choose one of --snapshot, --tag and --as-of")
    if snapshot_id is not None:
        snapshot: Snapshot | None = (
            snapshot_or_tagged(context, snapshot_id) if isinstance(snapshot_id, int) else named_snapshot(context, snapshot_id)
        )
    elif tag is not None:
        snapshot = context.tags.get(tag).snapshot
    elif as_of is not None:
        snapshot = time_point(context, as_of).snapshot(context)
    else:
        option = chosen_option(context.options.raw)
        if option is None:
            return context, _latest(context)
        if option.key == _MODE:
            return context, newest_compacted(context)
        snapshot = _by_option(context, option)
    return (context if snapshot is None else context.at_schema(snapshot.schema_id)), snapshot


def _latest(context: TableContext) -> Snapshot | None:
    """The latest snapshot, None for an empty table. Raises `NotFound` if the table was dropped after it was opened."""
    latest = context.snapshots.latest()
    if latest is None:
        context.expect_existing()
    return latest


def newest_compacted(context: TableContext) -> Snapshot | None:
    """The newest COMPACT snapshot (with `full-compaction.delta-commits`, of a full compaction); else the latest snapshot."""
    every = context.options.full_compaction_delta_commits or 1
    compacted = (s for s in context.snapshots.newest_first() if s.commit_kind == COMPACT)
    full = (s for s in compacted if s.commit_identifier == BATCH_IDENTIFIER or s.commit_identifier % every == 0)
    return next(full, None) or context.snapshots.latest()


def _by_option(context: TableContext, option: ScanOption) -> Snapshot:
    if option.key == _SNAPSHOT_ID:
        return snapshot_or_tagged(context, option.number)
    if option.key == _TAG:
        return context.tags.get(option.value).snapshot
    if option.key == _MILLIS:
        return Point(option.value, millis=option.number).snapshot(context)
    if option.key == _TIMESTAMP:
        return Point(option.value, millis=parse_moment(option.value)).snapshot(context)
    if option.key == _WATERMARK:
        return _at_watermark(context, option.number)
    if option.key == _VERSION:
        return _version(context, option)
    what = "this version does not support incremental reads through an option"
    raise NotSupported(f"{option.key}={option.value}", what, "`compare T@A T@B` shows what changed between two snapshots")


def _version(context: TableContext, option: ScanOption) -> Snapshot:
    """The snapshot of `scan.version`: a tag, `watermark-N`, or the id of a snapshot."""
    tag = context.tags.find(option.value)
    if tag is not None:
        return tag.snapshot
    if option.value.startswith(WATERMARK_VERSION):
        return _at_watermark(context, ScanOption(option.key, option.value.removeprefix(WATERMARK_VERSION)).number)
    number = plain_number(option.value)
    if number is not None and number >= 0:
        return snapshot_or_tagged(context, number)
    return context.tags.get(option.value).snapshot


def _at_watermark(context: TableContext, watermark: int) -> Snapshot:
    """The earliest snapshot whose watermark is at least this."""
    earliest: Snapshot | None = None
    for snapshot in context.snapshots.newest_first():
        if snapshot.watermark is not None:
            if snapshot.watermark < watermark:
                break
            earliest = snapshot
    if earliest is None:
        raise SnapshotNotFound(
            f"no snapshot of {context.url} with a watermark of {watermark} or more", "no snapshot has reached it yet"
        )
    return earliest
