"""Points in time as they are written: the only parser of ages, days, times, snapshots and tags.

| written | what it is |
|---|---|
| `1d`, `-1d`, `1d 12h`, `2 hours ago` | an age: that long before now; w, d, h, m, s and ms, or their words |
| `now`, `today`, `yesterday`, `yesterday 14:30` | now; the beginning of a day, or a time of it |
| `2026-11-21` | the beginning of a day |
| `2026-11-21 14:30`, `2026-11-21T14:30:00+01:00`, `2026-11-21 14:30 Europe/Berlin` | a time |
| a number below 10^11 | the id of a snapshot |
| another number | milliseconds since 1970 |
| any other text | a tag |

Days and times are in UTC, as all listings show them, unless they name an offset or a zone. A text can be several of these,
such as a tag called `1d`. What names a version (`--to`, `--snapshot`, `T@...`) takes it for a tag first; what names a time
(`--as-of`, `--older-than`) takes it for a time first, so that a new tag never changes what a command of a scheduler discards.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from paimon_cli.datatypes.internal_values import MILLIS_OF_DAY, epoch_nanos
from paimon_cli.errors import SnapshotNotFound, UsageError
from paimon_cli.history.table_context import LATEST
from paimon_cli.metadata.snapshot import Snapshot, Tag
from paimon_cli.metadata.table_layout import is_plain_name
from paimon_cli.options.option_text import did_you_mean, parse_duration, plain_number, shortened
from paimon_cli.requests.fields import MIN_MILLIS

if TYPE_CHECKING:
    from paimon_cli.history.table_context import TableContext

EARLIEST = "earliest"
_FORMS = "write an age such as 1d or '2 hours ago', a day or time such as 2026-11-21T14:30:00Z, a snapshot id, or a tag"
_AGE = re.compile(r"(-?)((?:\d+\s*[a-zµ]+[\s,]*?)+)(\s+ago)?", re.IGNORECASE | re.ASCII)
_STEP = re.compile(r"(\d+)\s*([a-zµ]+)", re.IGNORECASE | re.ASCII)
_WEEKS = frozenset({"w", "week", "weeks"})
_DAYS_BEFORE = {"today": 0, "yesterday": 1}
_OF_A_DAY = re.compile(r"(today|yesterday)(?:[ T]+(.+))?", re.IGNORECASE)
_NAMED_ZONE = re.compile(r"(.*\d)\s+([A-Za-z][A-Za-z_+-]*(?:/[A-Za-z0-9_+-]+)*)")
_LONGEST = 100
"""Longer texts are no times."""
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True)
class Point:
    """A point in time: a time in epoch millis, a snapshot, or a tag."""

    text: str
    millis: int | None = None
    snapshot_id: int | None = None
    tag: Tag | None = None

    def snapshot(self, context: TableContext) -> Snapshot:
        """The snapshot, that of the tag, or the newest one at the time. Raises `NotFound`."""
        if self.tag is not None:
            return self.tag.snapshot
        if self.snapshot_id is not None:
            return snapshot_or_tagged(context, self.snapshot_id)
        assert self.millis is not None
        return _newest_at(context, self.millis, self.text)

    def time(self, context: TableContext) -> int:
        """The time in epoch millis: for a snapshot or tag, when the snapshot was committed. Raises `NotFound`."""
        return self.snapshot(context).time_millis if self.millis is None else self.millis


def version_point(context: TableContext, text: str) -> Point:
    """What an option that names a version means: a snapshot, a tag, or else a time.

    Raises `NotFound` for a text that is none of these, but could be the name of a tag, and `UsageError` for others.
    """
    found = _numbered(text) or _tagged(context, text) or _timed(context, text)
    if found is None and is_plain_name(text) and not re.match(r"[-\d]", text):
        why = "it is no snapshot id, no tag and no time"
        hint = f"{did_you_mean(text, context.tags.names())}paimon-cli tags ls {context.layout.argument}"
        raise SnapshotNotFound(f"no snapshot, tag or time '{text}' of {context.address}", why, hint)
    return found or _refuse(text)


def time_point(context: TableContext, text: str) -> Point:
    """What an option that names a time means: a time, a snapshot, or else a tag. Raises `UsageError` for other texts."""
    return _timed(context, text) or _numbered(text) or _tagged(context, text) or _refuse(text)


def past_millis(context: TableContext, text: str) -> int:
    """The time, in epoch millis, before which an option discards. Raises `UsageError` also for one in the future."""
    millis = time_point(context, text).time(context)
    now = context.clock.now_millis()  # later, or an age of 0 would lie in the future
    if millis > now:
        why = f"it is {time_text(millis)}, and the clock says {time_text(now)}"
        raise UsageError(f"'{text}' is in the future", f"{why}: everything would be older", _FORMS)
    return millis


def named_snapshot(context: TableContext, text: str) -> Snapshot:
    """The snapshot called `latest` or `earliest`, or the one that a version names. Raises `NotFound`, `UsageError`."""
    if text not in (LATEST, EARLIEST):
        return version_point(context, text).snapshot(context)
    number = context.snapshots.latest_id() if text == LATEST else context.snapshots.earliest_id()
    if number is None:
        raise SnapshotNotFound(f"no snapshot '{text}' of {context.name}", "the table has no snapshots yet", "write to it first")
    return context.snapshots.get(number)


def first_after(context: TableContext, text: str) -> int:
    """The id of the first snapshot of a range: a snapshot or that of a tag itself, or the first one made after a time."""
    point = version_point(context, text)
    if point.millis is None:
        return point.snapshot_id if point.snapshot_id is not None else point.snapshot(context).id
    before = context.snapshots.at_time(point.millis)
    return (context.snapshots.earliest_id() or 1) if before is None else before.id + 1


def snapshot_or_tagged(context: TableContext, snapshot_id: int) -> Snapshot:
    """The snapshot of this id, from a tag if it has expired. Raises `NotFound`."""
    snapshot = context.snapshots.in_history(snapshot_id)
    return context.tags.get(tag_holding(context, snapshot_id)).snapshot if snapshot is None else snapshot


def tag_holding(context: TableContext, snapshot_id: int) -> str:
    """The tag that stands for a snapshot that has expired: one of its number (not ours), or one that holds it.

    Raises `NotFound`, for the snapshot.
    """
    tags = context.tags.all()
    holding = (name for name, tag in tags.items() if tag.snapshot.id == snapshot_id)
    found = str(snapshot_id) if str(snapshot_id) in tags else next(holding, None)
    if found is None:
        raise context.snapshots.missing(snapshot_id)
    return found


def time_of(text: str, now_millis: int) -> int | None:
    """Epoch millis of an age, a day, a time, or a number that is no snapshot id; None for any other text."""
    text = text.strip()
    number = plain_number(text)
    if number is not None or len(text) > _LONGEST:
        return number if number is not None and number >= MIN_MILLIS else None
    if text.lower() == "now":
        return now_millis
    age = _age(text)
    if age is not None:
        return now_millis - age
    day = _OF_A_DAY.fullmatch(text)
    if day is not None:
        midnight = (now_millis // MILLIS_OF_DAY - _DAYS_BEFORE[day[1].lower()]) * MILLIS_OF_DAY
        text = time_text(midnight)[:10] + (f" {day[2]}" if day[2] else "")
    return _absolute(text)


def parse_moment(text: str) -> int:
    """Epoch millis of RFC 3339 text (UTC without a zone), or of a whole number of millis, as Paimon's options have it.

    Raises `UsageError`.
    """
    number = plain_number(text)
    found = number if number is not None else _absolute(text.strip()) if len(text) <= _LONGEST else None
    if found is None:
        what = f"cannot read the time '{shortened(text)}'"
        raise UsageError(what, "it is no time of the calendar", "write 2024-01-31T12:00:00Z or epoch millis")
    return found


def time_text(millis: int) -> str:
    """Epoch millis as `2026-11-21T00:20:11.402Z`; years after 9999 or before 1 stay in millis."""
    try:
        shown = _EPOCH + timedelta(milliseconds=millis)
    except OverflowError:
        return str(millis)
    return shown.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _numbered(text: str) -> Point | None:
    number = plain_number(text)
    return Point(text, snapshot_id=number) if number is not None and 0 <= number < MIN_MILLIS else None


def _timed(context: TableContext, text: str) -> Point | None:
    millis = time_of(text, context.clock.now_millis())
    return None if millis is None else Point(text, millis=millis)


def _tagged(context: TableContext, text: str) -> Point | None:
    tag = context.tags.find(text) if is_plain_name(text) else None
    return None if tag is None else Point(text, tag=tag)


def _refuse(text: str) -> Point:
    what = "it is no age, no time, no snapshot id and no tag"
    raise UsageError(f"cannot read the time '{shortened(text)}'", what, _FORMS)


def _newest_at(context: TableContext, millis: int, text: str) -> Snapshot:
    snapshot = context.snapshots.at_time(millis)
    if snapshot is not None:
        return snapshot
    earliest = context.snapshots.earliest_id()
    first = context.snapshots.find(earliest) if earliest is not None else None
    why = (
        "the table has no snapshots yet"
        if first is None
        else f"the oldest, {first.id}, was committed at {time_text(first.time_millis)}"
    )
    hint = f"paimon-cli snapshots ls {context.layout.argument}"
    raise SnapshotNotFound(f"no snapshot of {context.address} as old as {text}", why, hint)


def _age(text: str) -> int | None:
    """The milliseconds of an age; None for any other text."""
    written = _AGE.fullmatch(text)
    if written is None or (written[1] and written[3]):
        return None
    try:
        return sum(_step_millis(number, unit) for number, unit in _STEP.findall(written[2]))
    except UsageError:
        return None


def _step_millis(number: str, unit: str) -> int:
    """Weeks are no unit of Paimon's options, whose parser does not know them."""
    return 7 * parse_duration(f"{number} d") if unit.lower() in _WEEKS else parse_duration(f"{number} {unit}")


def _absolute(text: str) -> int | None:
    """Epoch millis of a day or a time of the calendar; None for any other text."""
    zone = _NAMED_ZONE.fullmatch(text)
    try:
        if zone is None or zone[2] in ("Z", "z"):
            return epoch_nanos(text) // 1_000_000
        return _at_zone(epoch_nanos(zone[1]) // 1_000_000, zone[2])
    except (ValueError, OverflowError):
        return None


def _at_zone(wall_clock: int, name: str) -> int | None:
    """Epoch millis of a time that the clocks of a zone show; None for an unknown zone."""
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        shown = (_EPOCH + timedelta(milliseconds=wall_clock)).replace(tzinfo=ZoneInfo(name))
    except (ZoneInfoNotFoundError, OSError):
        return None
    return (shown - _EPOCH) // timedelta(milliseconds=1)
