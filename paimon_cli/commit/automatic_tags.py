"""Tags that commits create by themselves: `tag.automatic-creation` (FORMAT.md, section 13.2; Java TagAutoCreation).

After a commit, the first snapshot after the end of a period gets a tag with the name of that period, and so on for all periods
since the newest such tag. So a tag that could not be created is created after a later commit. Commits delete no tags: those above
`tag.num-retained-max` expire with those whose time is over.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

from paimon_cli.errors import BadOption, CommitUnknown, NotFound, PaimonError
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.snapshot import COMPACT, Snapshot, tag_text
from paimon_cli.metadata.table_layout import is_plain_name
from paimon_cli.options.choices import TagCreation, TagPeriod, TagPeriodFormat
from paimon_cli.options.table_options import TableOptions
from paimon_cli.storage.capabilities import ServesVersions
from paimon_cli.storage.injected import local_wall_clock
from paimon_cli.storage.storage import PutOutcome
from paimon_cli.storage.threads import in_parallel

BATCH_PREFIX = "batch-write-"
_HOUR_MILLIS = 3_600_000
_PERIODS = {TagPeriod.DAILY: 24 * _HOUR_MILLIS, TagPeriod.HOURLY: _HOUR_MILLIS, TagPeriod.TWO_HOURS: 2 * _HOUR_MILLIS}
_DAY_FORMATS = {TagPeriodFormat.WITH_DASHES: "%Y-%m-%d"}
_HOUR_FORMATS = {TagPeriodFormat.WITH_DASHES: "%Y-%m-%d %H", TagPeriodFormat.WITHOUT_DASHES: "%Y%m%d %H"}
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?(?P<sign>[+-])(?:(?P<hour>\d{1,2})|(?P<hours>\d{2}):?(?P<minutes>[0-5]\d))", re.ASCII)
_LARGEST_OFFSET = timedelta(hours=18)
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_LAST_MILLIS = 253_402_300_800_000
"""The end of the year 9999: later times have no name."""
_LONGEST_MILLIS = 30_610_224_000_000
"""Up to the year 1000: the period before 1970 has a name, whose year has four digits."""


@dataclass(frozen=True)
class AutomaticTags:
    """The automatic tags of a table. Times are wall clock times, in milliseconds as if they were UTC."""

    context: TableContext
    period: int
    form: str

    @staticmethod
    def of(context: TableContext) -> AutomaticTags | None:
        """The rules of the table; None if it has no automatic tags. Raises `UsageError` for a wrong delay, name or time zone."""
        rules = checked_rules(context.options, f" of {context.address}")
        return None if rules is None else AutomaticTags(context, *rules)

    def wall_clock(self, millis: int) -> int:
        """The wall clock at a moment (epoch millis) in the zone that names the tags."""
        return _wall_clock(self.context.options, millis, f" of {self.context.address}")

    def names(self, names: Sequence[str]) -> list[str]:
        """The tags that these rules created, the oldest period first."""
        return sorted((name for name in names if self._time_of(name) is not None), key=lambda name: self._time_of(name) or 0)

    def create(self, made: Sequence[Snapshot]) -> list[str]:
        """Create the tags that are due after a commit of these snapshots; returns their names.

        Jobs that only write to a write-only table leave that to the one that compacts it, as in Java.
        """
        options = self.context.options
        if options.write_only and not any(snapshot.commit_kind == COMPACT for snapshot in made):
            return []
        checked_rules(options, f" of {self.context.address}", makes_tags=True)
        if options.tag_automatic_creation == TagCreation.BATCH:
            return self._create_of_batch(made)
        last_id, last_begin = self._newest()
        due = None if last_begin is None else last_begin + self.period
        newest = self._time(made[-1])
        if newest is None or not self._is_due(newest, due):
            return []
        ids = [number for number in self.context.snapshots.ids() if number > last_id]
        created: list[str] = []
        # All of them, one after the other: their times need not rise, because clocks are set back and differ between machines.
        for snapshot in in_parallel(self.context.snapshots.find, ids, self.context.read_threads):
            time = None if snapshot is None else self._time(snapshot)
            if snapshot is None or time is None or not self._is_due(time, due):
                continue
            begin = time // self.period * self.period - self.period
            if options.tag_automatic_completion and due is not None:
                begin = due
            due = begin + self.period
            self._put(self._name_of(begin), snapshot)
            created.append(self._name_of(begin))
        return created

    def _create_of_batch(self, made: Sequence[Snapshot]) -> list[str]:
        """Point the tag of the day at the newest of these snapshots, if they have new rows (Java BatchWriteGeneratorTagOperator).

        It may be that of a compaction, before which reads of some tables do not show the rows.
        """
        if all(snapshot.commit_kind == COMPACT for snapshot in made):
            return []
        customized = self.context.options.tag_batch_customized_name
        name = customized or self._name_of(local_wall_clock(made[-1].time_millis))
        self._put(name, made[-1], replaces=True)
        return [name]

    def _is_due(self, time: int, due: int | None) -> bool:
        return due is None or time - self.context.options.tag_creation_delay >= due + self.period

    def _newest(self) -> tuple[int, int | None]:
        """The id of the latest snapshot with an automatic tag, and the begin of its period; 0 and None without one.

        It is the tag of the latest period. A tag with the name of a period that had not begun was made by a user, or in another
        time zone: its snapshot is not tagged again, but the next one may be.
        """
        newest, begin, ahead = 0, None, 0
        for name in reversed(self.names(self.context.tags.names())):
            tag, named = self.context.tags.find(name), self._time_of(name)
            if tag is None or named is None:
                continue
            time = self._time(tag.snapshot)
            if time is not None and named > time:
                ahead = max(ahead, tag.snapshot.id)
                continue
            if tag.snapshot.id > newest:
                newest, begin = tag.snapshot.id, named
            if time is not None:
                break
        return max(newest, ahead), begin

    def _time(self, snapshot: Snapshot) -> int | None:
        """The time of a snapshot that decides about its tag; None if it has no usable one."""
        by_watermark = self.context.options.tag_automatic_creation == TagCreation.WATERMARK
        millis = snapshot.watermark if by_watermark else snapshot.time_millis
        return self.wall_clock(millis) if millis is not None and 0 <= millis < _LAST_MILLIS - 2 * self.period else None

    def _name_of(self, time: int) -> str:
        return f"{_EPOCH + timedelta(milliseconds=time):{self.form}}"

    def _time_of(self, name: str) -> int | None:
        """The begin of the period that a tag is named after; None for other tags."""
        try:
            time = datetime.strptime(name, self.form).replace(tzinfo=timezone.utc)
        except ValueError:
            return None
        millis = (time - _EPOCH) // timedelta(milliseconds=1)
        return millis if self._name_of(millis) == name else None

    def _put(self, name: str, snapshot: Snapshot, *, replaces: bool = False) -> None:
        """Create a tag; an existing one stays, or is replaced."""
        context = self.context
        if isinstance(context.storage, ServesVersions):
            exists = name in context.tags.names()
            if replaces and exists:
                context.storage.delete_tag(name)
            if replaces or not exists:
                context.storage.create_tag(name, snapshot.id, context.options.tag_default_time_retained)
            return
        holder, path = context.layout.snapshot(snapshot.id), context.layout.tag(name)
        content, before = tag_content(context, context.storage.read_bytes(holder)), None
        if replaces:
            before = context.tags.content(name)
            context.storage.overwrite(path, content)
        else:
            outcome = context.storage.put_if_absent(path, content)
            if outcome is PutOutcome.UNKNOWN and context.tags.content(name) != content:
                why = "the storage gave no clear answer"
                raise CommitUnknown(f"tag '{name}' may or may not have been created", why, path=path)
            if outcome is PutOutcome.EXISTS:
                return
        # Expiry reads the tags after deleting the snapshot file: either it sees this tag, or we see that the file is gone.
        if not context.storage.exists(holder):
            if before is None:
                context.storage.delete(path)
            else:
                context.storage.overwrite(path, before)
            raise NotFound(f"snapshot {snapshot.id} was deleted before it was tagged", "another job expired it")


def checked_rules(options: TableOptions, of_table: str = "", makes_tags: bool = False) -> tuple[int, str] | None:
    """The period in millis and the form of the names of automatic tags; None if there are none.

    `of_table`: for messages; `makes_tags`: also where writers leave tags to compactions. Raises
    `UsageError` for a wrong delay, name or time zone, with which Java and we do not commit. Tags of batches have no delay, and
    writers that never compact make no tags.
    """
    if options.tag_automatic_creation == TagCreation.NONE:
        return None
    period, form = _PERIODS[options.tag_creation_period], "%Y%m%d%H%M"
    if options.tag_automatic_creation == TagCreation.BATCH:
        form = f"{BATCH_PREFIX}%Y-%m-%d"
    elif options.tag_creation_period_duration is not None:
        period = options.tag_creation_period_duration
    elif options.tag_creation_period == TagPeriod.DAILY:
        form = _DAY_FORMATS.get(options.tag_period_formatter, "%Y%m%d")
    elif options.tag_creation_period == TagPeriod.HOURLY:
        form = _HOUR_FORMATS.get(options.tag_period_formatter, "%Y%m%d%H")
    else:
        form = _HOUR_FORMATS[TagPeriodFormat.WITH_DASHES]
    is_timed = options.tag_automatic_creation != TagCreation.BATCH and (makes_tags or not options.write_only)
    if is_timed and not 0 <= options.tag_creation_delay < period:
        what = f"tag.creation-delay{of_table} is not shorter than the period of its tags"
        why = f"the delay is {options.tag_creation_delay} ms, the period {period} ms"
        raise _bad_option(options, what, why, "set a shorter one, or a longer tag.creation-period", "tag.creation-delay")
    if is_timed and period > _LONGEST_MILLIS:
        what, why = f"tag.creation-period-duration{of_table} is too long", "the last period that ended has no name"
        hint = f"choose at most {_LONGEST_MILLIS // _PERIODS[TagPeriod.DAILY]} d"
        raise _bad_option(options, what, why, hint, "tag.creation-period-duration")
    name = options.tag_batch_customized_name
    if name is not None and not (is_plain_name(name) and name.strip()):
        what = f"tag.batch.customized-name{of_table} cannot be the name of a tag"
        raise _bad_option(options, what, f"'{name}' is no file name", "choose another one", "tag.batch.customized-name")
    if is_timed:
        _wall_clock(options, 0, of_table)
    return period, form


def _bad_option(options: TableOptions, what: str, why: str, hint: str, key: str) -> BadOption:
    error = BadOption(what, why, hint, key=key, value=options.raw.get(key, ""))
    options.explain(error)
    return error


def _wall_clock(options: TableOptions, millis: int, of_table: str) -> int:
    by_watermark = options.tag_automatic_creation == TagCreation.WATERMARK
    zone = options.sink_watermark_time_zone if by_watermark else options.sink_process_time_zone
    if zone is None:
        return local_wall_clock(millis)
    try:
        offset = (_EPOCH + timedelta(milliseconds=millis)).astimezone(_java_zone(zone)).utcoffset()
    except (KeyError, ValueError, OSError) as error:
        key = "sink.watermark-time-zone" if by_watermark else "sink.process-time-zone"
        what, hint = f"{key}{of_table} is no time zone", "such as Europe/Berlin or +05:30"
        raise _bad_option(options, what, f"'{zone}' is unknown here", hint, key) from error
    return millis + round((offset or timedelta()).total_seconds() * 1000)


def _java_zone(name: str) -> tzinfo:
    """A zone as Java's `ZoneId.of` takes it: a name such as Asia/Kolkata, or an offset such as +05:30, UTC+8 or Z. Raises as
    `ZoneInfo`, and `ValueError` for an offset of more than 18 hours.
    """
    offset = _OFFSET.fullmatch(name)
    if offset is None:
        return ZoneInfo("UTC" if name in ("Z", "UT") else name)
    found = timedelta(hours=int(offset["hour"] or offset["hours"]), minutes=int(offset["minutes"] or 0))
    if found > _LARGEST_OFFSET:
        raise ValueError(name)
    return timezone(-found if offset["sign"] == "-" else found)


def tag_content(context: TableContext, text: bytes, retained_millis: int | None = None) -> bytes:
    """The content of a tag file for the snapshot in `text`; the default time limit is `tag.default-time-retained`."""
    retained = context.options.tag_default_time_retained if retained_millis is None else retained_millis
    return text if retained is None else tag_text(text, local_wall_clock(context.clock.now_millis()), retained)


def create_tags_after(tags: AutomaticTags | None, made: Sequence[Snapshot]) -> None:
    """Create the tags that are due. A failure does not undo the commit that was made; the tags follow after the next one."""
    if tags is None or not made:
        return
    try:
        created = tags.create(made)
    except (PaimonError, FileNotFoundError) as failure:
        tags.context.trace.step("tags_not_created", error=str(failure))
        what = failure.message if isinstance(failure, PaimonError) else str(failure)
        tags.context.cache.warn(f"automatic tags of {tags.context.name} were not created: {what}; the next commit tries it again")
        return
    if created:
        tags.context.trace.step("tags_created", names=created)
