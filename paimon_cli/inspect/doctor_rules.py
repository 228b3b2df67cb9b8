"""The rules of `doctor`: problems that are not damage but will cause trouble, with evidence and the command that fixes them."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from paimon_cli.errors import PaimonError
from paimon_cli.history.live_files import BucketFiles, LazyBuckets, bucket_files
from paimon_cli.history.stale_buckets import mixed_partitions
from paimon_cli.history.table_context import TableContext
from paimon_cli.invariants.snapshot_checks import hints_are_not_ahead, ids_have_no_gap
from paimon_cli.lsm.sorted_runs import sorted_runs
from paimon_cli.maintain.orphans import DAY_MILLIS, find_orphans
from paimon_cli.metadata.snapshot import APPEND, COMPACT, Snapshot
from paimon_cli.metadata.table_layout import CONSUMER_PREFIX, POSTPONE_BUCKET
from paimon_cli.options.option_catalog import find_option
from paimon_cli.options.option_text import counted, human_size

ERROR, WARNING = "error", "warning"
RECENT = 20
"""The number of recent commits that are examined."""
MANY_SNAPSHOTS = 1000
MANY_SMALL_FILES = 10
STALE_CONSUMER_DAYS = 7
BIG_BUCKET = 5 << 30
SHORT_RETENTION_MILLIS = 600_000


@dataclass(frozen=True)
class Diagnosis:
    """One finding. `code`: stable, never reused; `command`: the command that fixes it, empty if it depends on the user."""

    code: str
    severity: str
    subject: str
    message: str
    command: str = ""

    @property
    def finding(self) -> str:
        return f"{self.subject}: {self.message}"


class ExaminedTable:
    """A table under examination, each part read once. `argument`: the name of the table in commands."""

    def __init__(self, context: TableContext, argument: str) -> None:
        self.context = context
        self.argument = argument

    @cached_property
    def ids(self) -> list[int]:
        return self.context.snapshots.ids()

    @cached_property
    def recent(self) -> list[Snapshot]:
        """The recent snapshots, newest first."""
        return list(self.context.snapshots.newest_first(RECENT))

    @cached_property
    def _state(self) -> LazyBuckets:
        return bucket_files(self.context, self.recent[0] if self.recent else None)

    @cached_property
    def _all_buckets(self) -> list[BucketFiles]:
        return list(self._state.values())

    @cached_property
    def mixed_partitions(self) -> dict[bytes, tuple[int, ...]]:
        """The partitions with files of several bucket counts, and these counts."""
        return mixed_partitions(self._state.table.bucket_counts())

    @property
    def buckets(self) -> list[BucketFiles]:
        return [bucket for bucket in self._all_buckets if bucket.bucket != POSTPONE_BUCKET]

    @property
    def postponed(self) -> list[BucketFiles]:
        """The postponed files of each partition."""
        return [bucket for bucket in self._all_buckets if bucket.bucket == POSTPONE_BUCKET]

    @cached_property
    def runs(self) -> list[int]:
        """The number of sorted runs of each bucket; empty for append tables."""
        if not self.context.schema.primary_keys:
            return []
        return [len(sorted_runs(bucket.files, self.context.key_of)) for bucket in self.buckets]


def snapshots_are_few(examined: ExaminedTable) -> Iterator[Diagnosis]:
    """PD015: more snapshots than the options keep, not counting those that expiry always keeps."""
    options = examined.context.options
    least = options.snapshot_num_retained_min
    most = max(least, min(MANY_SNAPSHOTS, options.snapshot_num_retained_max))
    count = len(examined.ids)
    if count > most:
        keep = min(most, max(least, 10))
        command = f"paimon-cli expire {examined.argument} --retain-max {keep}"
        yield Diagnosis("PD015", WARNING, "snapshots", f"{count} snapshots, each of which keeps old files", command)


def files_are_not_small(examined: ExaminedTable) -> Iterator[Diagnosis]:
    """PD011: buckets with many small files."""
    target = examined.context.mode.target_file_size
    small = [
        b
        for b in examined.buckets
        if len(b.files) > MANY_SMALL_FILES and sum(f.file_size for f in b.files) < target * len(b.files) // 10
    ]
    if small:
        files = sum(len(bucket.files) for bucket in small)
        command = f"paimon-cli compact {examined.argument} --strategy full"
        message = (
            f"{len(small)} of {len(examined.buckets)} buckets hold {counted(files, 'file')} far smaller than {target >> 20} MB"
        )
        yield Diagnosis("PD011", WARNING, "files", message, command)


def runs_are_few(examined: ExaminedTable) -> Iterator[Diagnosis]:
    """PD012: buckets whose sorted runs have reached the stop trigger, at which writers wait."""
    stop = examined.context.options.stop_trigger
    over = [runs for runs in examined.runs if runs >= stop]
    if over:
        message = f"{len(over)} of {len(examined.runs)} buckets have up to {max(over)} sorted runs; writers wait from {stop} on"
        yield Diagnosis("PD012", WARNING, "sorted runs", message, f"paimon-cli compact {examined.argument} --dedicated")


def compactions_run(examined: ExaminedTable) -> Iterator[Diagnosis]:
    """PD013: a write-only table without a compaction job."""
    options = examined.context.options
    if not options.write_only or len(examined.recent) < RECENT or _compacted(examined):
        return
    if any(runs >= options.compaction_trigger for runs in examined.runs):
        message = f"write-only=true, and none of the last {len(examined.recent)} commits was a compaction"
        yield Diagnosis("PD013", ERROR, "compaction", message, f"paimon-cli compact {examined.argument} --dedicated --watch")


def only_one_compacts(examined: ExaminedTable) -> Iterator[Diagnosis]:
    """PD014: several users compact concurrently, so that their compactions conflict.

    Users whose commits do not interleave ran one after the other.
    """
    spans: dict[str, tuple[int, int]] = {}
    for snapshot in examined.recent:
        first, last = spans.get(snapshot.commit_user, (snapshot.id, snapshot.id))
        spans[snapshot.commit_user] = min(first, snapshot.id), max(last, snapshot.id)
    compacting = {s.commit_user for s in examined.recent if s.commit_kind == COMPACT}
    writing = {s.commit_user for s in examined.recent if s.commit_kind == APPEND}

    def overlaps_another(user: str) -> bool:
        first, last = spans[user]
        return any(first < spans[other][1] and spans[other][0] < last for other in compacting & writing if other != user)

    users = sorted(filter(overlaps_another, compacting & writing))
    if not examined.context.options.write_only and users:
        message = f"{len(users)} users compact concurrently: {', '.join(users[:5])}"
        command = f"paimon-cli alter {examined.argument} set write-only=true"
        yield Diagnosis("PD014", WARNING, "compaction", f"{message}; their compactions may conflict", command)


def consumers_are_alive(examined: ExaminedTable) -> Iterator[Diagnosis]:
    """PD016: a consumer that stopped reading keeps all later snapshots."""
    context = examined.context
    for status in context.storage.list_directory(context.layout.consumer_directory):
        if status.name.startswith(CONSUMER_PREFIX) and not status.is_directory:
            days = (context.clock.now_millis() - status.modified_millis) // DAY_MILLIS
            if days >= STALE_CONSUMER_DAYS:
                name = status.name.removeprefix(CONSUMER_PREFIX)
                command = f"paimon-cli consumers rm {examined.argument} {shlex.quote(name)}"
                yield Diagnosis(
                    "PD016",
                    WARNING,
                    f"consumer {name}",
                    f"has not advanced for {days} days and keeps snapshots from expiring",
                    command,
                )


def options_agree(examined: ExaminedTable) -> Iterator[Diagnosis]:
    """PD018: options that contradict each other or have no effect."""
    options, raw = examined.context.options, examined.context.options.raw

    def conflict(subject: str, message: str, command: str = "") -> Diagnosis:
        return Diagnosis("PD018", WARNING, subject, message, command and f"paimon-cli alter {examined.argument} {command}")

    if options.snapshot_num_retained_min > options.snapshot_num_retained_max:
        least = options.snapshot_num_retained_min
        message = f"snapshot.num-retained.min={least} is above snapshot.num-retained.max={options.snapshot_num_retained_max}"
        yield conflict("options", message, f"set snapshot.num-retained.max={least}")
    if options.snapshot_time_retained < SHORT_RETENTION_MILLIS:
        message = f"snapshot.time-retained is {options.snapshot_time_retained // 1000} s; reads that take longer may fail"
        yield conflict("options", message, "set snapshot.time-retained='1 h'")
    if "num-sorted-run.stop-trigger" in raw and int(raw["num-sorted-run.stop-trigger"]) < options.compaction_trigger:
        message = (
            f"num-sorted-run.stop-trigger={raw['num-sorted-run.stop-trigger']} is below the compaction trigger and has no effect"
        )
        yield conflict("options", message, "unset num-sorted-run.stop-trigger")
    if options.deletion_vectors_enabled and options.merge_engine == "first-row":
        yield conflict(
            "options", "deletion vectors cannot be combined with merge-engine=first-row", "unset deletion-vectors.enabled"
        )
    if options.deletion_vectors_enabled and options.changelog_producer == "full-compaction":
        message = "deletion vectors need a changelog-producer of none, input or lookup"
        yield conflict("options", message, "set changelog-producer=lookup")
    if options.write_only and options.changelog_producer in ("lookup", "full-compaction") and not _compacted(examined):
        message = f"write-only=true with changelog-producer={options.changelog_producer}: only compactions write changelogs"
        yield Diagnosis("PD018", WARNING, "options", message, f"paimon-cli compact {examined.argument} --dedicated --watch")
    for key in raw:
        if find_option(key) is None and not key.startswith(("fields.", "file-index.", "parquet.", "orc.", "avro.")):
            yield conflict(f"option {key}", "Paimon has no option with this name", f"unset {shlex.quote(key)}")


def _compacted(examined: ExaminedTable) -> bool:
    return any(map(examined.context.manifests.compacted_files, examined.recent))


def buckets_have_a_good_size(examined: ExaminedTable) -> Iterator[Diagnosis]:
    """PD020: buckets that are too large for one task."""
    if examined.context.options.bucket < 1:
        return
    big = [size for bucket in examined.buckets if (size := sum(f.file_size for f in bucket.files)) > BIG_BUCKET]
    if big:
        total = examined.context.options.bucket
        message = f"{counted(len(big), 'bucket')} over 5 GB, the largest {max(big) >> 30} GB; each is compacted by one task"
        command = f"paimon-cli rescale {examined.argument} --buckets {2 * total}"
        yield Diagnosis("PD020", WARNING, "buckets", message, command)


def bucket_counts_agree(examined: ExaminedTable) -> Iterator[Diagnosis]:
    """PD024: partitions with another bucket count than the option, which writers refuse."""
    option = examined.context.options.bucket
    others = {bucket.partition for bucket in examined.buckets if bucket.total_buckets != option}
    others -= examined.mixed_partitions.keys()
    if option > 0 and others:
        total = len({bucket.partition for bucket in examined.buckets})
        message = f"another bucket count than bucket={option} in {len(others)} of {counted(total, 'partition')}"
        command = f"paimon-cli rescale {examined.argument} --buckets {option}"
        yield Diagnosis("PD024", ERROR, "buckets", f"{message}; writers refuse {'it' if len(others) == 1 else 'them'}", command)


def each_partition_has_one_count(examined: ExaminedTable) -> Iterator[Diagnosis]:
    """PD026: partitions with files of several bucket counts, so that a key may be in two buckets."""
    mixed = examined.mixed_partitions
    if mixed:
        counts = " and ".join(map(str, sorted({count for counts in mixed.values() for count in counts})))
        message = f"{counted(len(mixed), 'partition')} with files for {counts} buckets, left by writers that ran during a rescale"
        command = f"paimon-cli repair {examined.argument} --apply"
        yield Diagnosis("PD026", ERROR, "buckets", f"{message}; a key may be read twice", command)


def no_row_waits(examined: ExaminedTable) -> Iterator[Diagnosis]:
    """PD023: postponed rows, which plain reads do not show until a compaction."""
    waiting = [file for bucket in examined.postponed for file in bucket.files]
    if waiting:
        rows, files = sum(file.row_count for file in waiting), len(waiting)
        message = f"{counted(rows, 'row')} in {counted(files, 'file')} wait for their buckets; plain reads do not show them"
        yield Diagnosis("PD023", WARNING, "postponed rows", message, f"paimon-cli compact {examined.argument}")


def no_flushed_row_waits(examined: ExaminedTable) -> Iterator[Diagnosis]:
    """PD025: rows of level 0 that reads do not show until a compaction, in tables with deletion vectors or first-row."""
    mode = examined.context.mode
    waiting = [file for bucket in examined.buckets for file in bucket.files if mode.hides(bucket.bucket, file.level)]
    if waiting:
        rows, files = sum(file.row_count for file in waiting), len(waiting)
        message = f"{counted(rows, 'stored record')} in {counted(files, 'file')} of level 0 wait; reads do not show them"
        yield Diagnosis("PD025", WARNING, "level 0", message, f"paimon-cli compact {examined.argument}")


def hints_are_right(examined: ExaminedTable) -> Iterator[Diagnosis]:
    """PD021: hint files that name the wrong snapshot."""
    for violation in hints_are_not_ahead(examined.context):
        command = f"paimon-cli repair {examined.argument} --only hints --apply"
        yield Diagnosis("PD021", ERROR, violation.path.rpartition("/")[2], violation.message, command)


def numbers_are_unbroken(examined: ExaminedTable) -> Iterator[Diagnosis]:
    """PD022: a missing snapshot, or a snapshot file with a wrong number."""
    for violation in ids_have_no_gap(examined.context):
        name = violation.path.rpartition("/")[2]
        yield Diagnosis("PD022", ERROR, "snapshots", f"{name} {violation.message}", f"paimon-cli verify {examined.argument}")


def no_file_is_left_over(examined: ExaminedTable) -> Iterator[Diagnosis]:
    """PD017: files left by jobs that died."""
    context = examined.context
    if context.snapshots.latest() is None:
        return
    orphans = find_orphans(context, context.clock.now_millis() - DAY_MILLIS)
    if orphans.files:
        message = f"no version refers to {counted(len(orphans.files), 'file')} older than a day ({human_size(orphans.size)})"
        yield Diagnosis("PD017", WARNING, "orphans", message, f"paimon-cli orphans rm {examined.argument} --apply")


RULES: tuple[Callable[[ExaminedTable], Iterator[Diagnosis]], ...] = (
    hints_are_right,
    numbers_are_unbroken,
    runs_are_few,
    compactions_run,
    only_one_compacts,
    files_are_not_small,
    buckets_have_a_good_size,
    bucket_counts_agree,
    each_partition_has_one_count,
    no_row_waits,
    no_flushed_row_waits,
    snapshots_are_few,
    consumers_are_alive,
    no_file_is_left_over,
    options_agree,
)


def findings_of(examined: ExaminedTable) -> Iterator[Diagnosis]:
    """The findings of all rules. PD030 reports rules that could not run, because metadata cannot be read."""
    failed: Counter[str] = Counter()
    for rule in RULES:
        try:
            yield from rule(examined)
        except PaimonError as error:
            failed[error.message] += 1
    for message, checks in failed.items():
        what = f"{message}; {counted(checks, 'check')} could not run"
        yield Diagnosis("PD030", ERROR, "metadata", what, f"paimon-cli verify {examined.argument}")
