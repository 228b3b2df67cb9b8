"""Partition expiry: one OVERWRITE commit drops the partitions that are older than the limit (FORMAT.md, section 13.6)."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from paimon_cli.commit.committer import Committer
from paimon_cli.commit.deduplication import fresh_identity
from paimon_cli.commit.outcome import CommitResult
from paimon_cli.datatypes.canonical_form import canonical_json
from paimon_cli.datatypes.data_type import DataType, TimestampType
from paimon_cli.datatypes.internal_values import MILLIS_OF_DAY, epoch_day
from paimon_cli.errors import DataConflict, UsageError
from paimon_cli.history.partition_spec import PartitionSpec
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.table_layout import natural_order
from paimon_cli.options.choices import ConflictCheck
from paimon_cli.storage.injected import local_wall_clock, moment_of_wall_clock

UPDATE_TIME = "update-time"
_TRIES = 5


@dataclass(frozen=True)
class ExpiredPartition:
    """A partition to drop. `time_millis`: the time in its values, or the creation of its newest file (`update-time`), as the
    epoch milliseconds of the local wall clock taken for UTC. `size`: bytes of its files.
    """

    partition: bytes
    time_millis: int
    files: int
    rows: int
    size: int


@dataclass(frozen=True)
class PartitionPlan:
    """The partitions to drop, as of this snapshot (None: the table is empty)."""

    expired: tuple[ExpiredPartition, ...]
    snapshot_id: int | None


def plan_partitions(context: TableContext, older_than: int | None = None, limit: int | None = None) -> PartitionPlan:
    """Select partitions older than `older_than` (epoch millis; default: now minus `partition.expiration-time`), by value.

    `limit`: the maximum number, by default `partition.expiration-max-num`. Raises `UsageError` without a time limit, and for an
    unpartitioned table.
    """
    options = context.options
    if not context.schema.partition_keys:
        raise UsageError(f"{context.address} is not partitioned", "no partition can expire")
    if older_than is None:
        if options.partition_expiration_time is None:
            what = f"no partition of {context.address} expires"
            raise UsageError(what, "the table has no partition.expiration-time", "set it, or pass --older-than")
        older_than = context.clock.now_millis() - options.partition_expiration_time
    snapshot = context.snapshots.latest()
    if snapshot is None:
        return PartitionPlan((), None)
    before = local_wall_clock(older_than)
    expired = [candidate for candidate in _partitions(context) if candidate.time_millis < before]
    expired.sort(key=lambda candidate: natural_order(",".join(map(str, _texts(context, candidate.partition)))))
    return PartitionPlan(tuple(expired[: options.partition_expiration_max_num if limit is None else limit]), snapshot.id)


def expiring_partitions(context: TableContext, partitions: Collection[bytes]) -> frozenset[bytes]:
    """The partitions that compaction skips because they are about to expire (`compaction.skip-expired-partitions`)."""
    if not context.options.compaction_skip_expired_partitions:
        return frozenset()
    now = context.clock.now_millis()
    return frozenset(partition for partition, end in partition_ends(context, partitions).items() if end < now)


def partition_ends(context: TableContext, partitions: Collection[bytes]) -> dict[bytes, int]:
    """When partitions expire by their values (epoch millis); those that do not, or only by their last update, are left out."""
    options, keys = context.options, context.schema.partition_keys
    lifetime = options.partition_expiration_time
    if not keys or lifetime is None or options.partition_expiration_strategy == UPDATE_TIME:
        return {}
    times = PartitionTime(options.partition_timestamp_pattern, options.partition_timestamp_formatter)
    by_partition = {partition: times.millis(keys, _texts(context, partition)) for partition in partitions}
    return {partition: moment_of_wall_clock(time) + lifetime for partition, time in by_partition.items() if time is not None}


def expire_partitions(
    context: TableContext, older_than: int | None = None, limit: int | None = None
) -> tuple[PartitionPlan, CommitResult]:
    """Plan and drop; start again if another commit wrote to one of the partitions in the meantime."""
    for attempt in range(_TRIES):
        plan = plan_partitions(context, older_than, limit)
        if not plan.expired:
            return plan, CommitResult()
        try:
            return plan, drop_partitions(context, [expired.partition for expired in plan.expired], plan.snapshot_id)
        except DataConflict:
            if attempt == _TRIES - 1:
                raise
    raise AssertionError("the last attempt returns or raises")


def drop_partitions(context: TableContext, partitions: Sequence[bytes], read_snapshot_id: int | None) -> CommitResult:
    """Drop these partitions. Raises `DataConflict` if another commit wrote to one of them after `read_snapshot_id`."""
    chosen = PartitionSpec.exactly(context, partitions)
    return Committer(context, ConflictCheck.PARTITION).overwrite(
        [], fresh_identity(context), replaced_partitions=chosen.matches, read_snapshot_id=read_snapshot_id
    )


def _partitions(context: TableContext) -> list[ExpiredPartition]:
    """All partitions whose time is known."""
    snapshot = context.snapshots.latest()
    if snapshot is None:
        return []
    options = context.options
    times = PartitionTime(options.partition_timestamp_pattern, options.partition_timestamp_formatter)
    by_update = options.partition_expiration_strategy == UPDATE_TIME
    partitions: dict[bytes, ExpiredPartition] = {}
    for entry in context.manifests.live_entries(snapshot):
        file, so_far = entry.file, partitions.get(entry.partition)
        created = file.creation_time_millis or 0
        if so_far is None:
            keys = context.schema.partition_keys
            time = created if by_update else times.millis(keys, _texts(context, entry.partition))
            if time is None:
                continue
            so_far = ExpiredPartition(entry.partition, time, 0, 0, 0)
        newest = max(so_far.time_millis, created) if by_update else so_far.time_millis
        partitions[entry.partition] = ExpiredPartition(
            entry.partition, newest, so_far.files + 1, so_far.rows + file.row_count, so_far.size + file.file_size
        )
    return list(partitions.values())


def _texts(context: TableContext, partition: bytes) -> list[str | None]:
    """Partition values as text. Java formats a DATE as its epoch day here, cannot parse that, and never expires it."""
    types = context.schema.types_of(context.schema.partition_keys)
    values = context.partition_values(partition)
    return [None if v is None else _value_text(v, t) for v, t in zip(values, types, strict=True)]


def _value_text(value: Any, t: DataType) -> str:
    text = str(canonical_json(value, t))
    return text.replace("T", " ").removesuffix("Z") if isinstance(t, TimestampType) else text


_DEFAULT = re.compile(r"([+-]?\d{1,10})-(\d{1,2})-(\d{1,2})(?: (\d{1,2}):(\d{1,2}):(\d{1,2})(?:\.(\d{1,9}))?)?", re.ASCII)
_LETTERS = {"y": "year", "u": "year", "M": "month", "d": "day", "H": "hour", "m": "minute", "s": "second", "S": "fraction"}
_PARTS = ("year", "month", "day", "hour", "minute", "second")
_YEARS = {1: r"(?P<year>\d{1,9})", 2: r"(?P<year_of_2000>\d{2})", 3: r"(?P<year>\d{3,9})"}
"""Number of letters in the pattern -> years as Java's `DateTimeFormatter` parses them; with more letters, exactly as many
digits.
"""
_TOKEN = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|(.)", re.DOTALL)


@dataclass(frozen=True)
class PartitionTime:
    """How to read the time of a partition from its values.

    `pattern`: text with `$key` for values (None: the first value). `formatter`: a Java date pattern (None: ISO-like texts).
    """

    pattern: str | None = None
    formatter: str | None = None

    def millis(self, keys: Sequence[str], values: Sequence[str | None]) -> int | None:
        """The wall clock time as epoch millis of UTC; None for nulls and for texts that are not times.

        Raises `UsageError` for a formatter that is not supported.
        """
        if any(value is None for value in values):
            return None
        texts = [str(value) for value in values]
        text = texts[0] if self.pattern is None else _replaced(self.pattern, keys, texts)
        return _default_time(text) if self.formatter is None else _formatted_time(text, self.formatter)


def _replaced(pattern: str, keys: Sequence[str], values: Sequence[str]) -> str:
    """Replace longer keys first, so that `$dt` does not match the beginning of `$dt1`."""
    by_name = dict(zip(keys, values, strict=True))
    names = "|".join(re.escape(key) for key in sorted(keys, key=len, reverse=True))
    return re.sub(rf"\$({names})", lambda match: by_name[match[1]], pattern)


def _default_time(text: str) -> int | None:
    match = _DEFAULT.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
    return _lenient(year, month, day, hour, minute, second, match[7])


def _formatted_time(text: str, formatter: str) -> int | None:
    match = _expression(formatter).fullmatch(text)
    if match is None:
        return None
    parts = match.groupdict()
    if "year_of_2000" in parts:
        parts["year"] = f"20{parts['year_of_2000']}"
    if not {"year", "month", "day"} <= parts.keys() or not (1 <= int(parts["month"]) <= 12 and 1 <= int(parts["day"]) <= 31):
        return None
    year, month, day, hour, minute, second = (int(parts.get(name) or 0) for name in _PARTS)
    return _lenient(year, month, day, hour, minute, second, parts.get("fraction"))


def _lenient(year: int, month: int, day: int, hour: int, minute: int, second: int, fraction: str | None) -> int:
    """Epoch millis of a time whose parts may be out of range and then count into the next unit, as in Java's lenient style."""
    more_years, month = divmod(month - 1, 12)
    first = epoch_day(year + more_years, month + 1, 1)
    seconds = (hour * 60 + minute) * 60 + second
    return (first + day - 1) * MILLIS_OF_DAY + seconds * 1000 + int((fraction or "").ljust(3, "0")[:3])


@cache
def _expression(formatter: str) -> re.Pattern[str]:
    """A Java pattern such as `yyyyMMdd HH` as a regular expression."""
    parts: list[str] = []
    for match in _TOKEN.finditer(formatter):
        letters = match[0]
        if match[2] is None:
            parts.append(re.escape(letters if match[1] is None else match[1].replace("''", "'") or "'"))
        elif match[2] not in _LETTERS or f"(?P<{_LETTERS[match[2]]}" in "".join(parts):
            raise UsageError(f"partition.timestamp-formatter '{formatter}' is not supported", f"'{letters}' is not understood")
        elif match[2] in "yu":
            parts.append(_YEARS.get(len(letters), rf"(?P<year>\d{{{len(letters)}}})"))
        else:
            digits = rf"\d{{{len(letters)}}}" if len(letters) > 1 or match[2] == "S" else r"\d{1,2}"
            parts.append(f"(?P<{_LETTERS[match[2]]}>{digits})")
    return re.compile("".join(parts), re.ASCII)
