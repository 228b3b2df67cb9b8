"""A table under examination: its parts, each read once, and the damage that was met on the way."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable

from paimon_cli.compact.bucket_counts import CountDecision, countable_partitions, decide_counts
from paimon_cli.compact.compaction_plan import FULL_STRATEGY, plan_bucket, why_not_compactable
from paimon_cli.compact.compaction_task import Decision, SkippedBucket
from paimon_cli.errors import DamagedFile, PaimonError, UsageError
from paimon_cli.history.live_files import BucketFiles, LazyBuckets, bucket_files
from paimon_cli.history.stale_buckets import mixed_partitions
from paimon_cli.history.table_context import TableContext
from paimon_cli.history.unfinished_rescale import UnfinishedRescale, unfinished_rescale
from paimon_cli.ingest.changes.read_lag import ReadLag
from paimon_cli.inspect.findings.finding import Code, Remedy
from paimon_cli.inspect.next_compaction import next_compactions
from paimon_cli.lsm.compaction_simulation import OnCommit
from paimon_cli.lsm.sorted_runs import count_runs
from paimon_cli.metadata.data_file import ALL_FILES, SOURCE_COMPACT, BucketId, FileFilter
from paimon_cli.metadata.snapshot import APPEND, OVERWRITE, Snapshot
from paimon_cli.metadata.table_layout import POSTPONE_BUCKET
from paimon_cli.requests.compaction import StrategyName
from paimon_cli.storage.threads import cached_property

RECENT = 20
"""The number of recent commits that are examined."""
MANY_SMALL_FILES = 10


class ExaminedTable:
    """A table under examination at its latest snapshot. `argument`: the name of the table in commands.

    `wanted`: only these files. `on_scenario`: receives the progress of the simulation. An older snapshot that cannot be read is
    left out of what depends on several; `damage` holds the reason. `failures`: errors of steps that `health --fix` has just
    tried. Damage that they met is a finding, although no rule reads data files (`met`), and no compaction is proposed again.
    """

    def __init__(
        self,
        context: TableContext,
        argument: str,
        wanted: FileFilter = ALL_FILES,
        on_scenario: Callable[[int, int], OnCommit] | None = None,
        failures: Iterable[PaimonError] = (),
    ) -> None:
        self.context = context
        self.argument = argument
        self.wanted = wanted
        self.on_scenario = on_scenario
        self.damage: dict[str, PaimonError] = {}
        self.met = {self.note_damage(error) for error in failures if isinstance(error, DamagedFile)}

    @classmethod
    def as_planned(cls, context: TableContext, argument: str, latest: Snapshot, state: LazyBuckets) -> ExaminedTable:
        """A table whose latest snapshot and all of whose live files have just been read, so that no rule reads them again."""
        table = cls(context, argument)
        table.latest, table.state = latest, state
        return table

    def altered(self, key: str, value: str = "") -> str:
        """The command that sets an option of the table, or removes it; empty if the call overrides it: nothing would change."""
        if key in self.context.options.given:
            return ""
        change = f"set {key}={shlex.quote(value)}" if value else f"unset {shlex.quote(key)}"
        return f"paimon-cli alter {self.argument} {change}"

    def setting(self, key: str, value: str) -> Remedy | None:
        """The setting of an option of the table; None if the call overrides it."""
        command = self.altered(key, value)
        return Remedy(command, options={key: value}) if command else None

    def compaction(self, strategy: StrategyName | None = None) -> Remedy | None:
        """A compaction of the table, by default in full; None if one has just met damage."""
        command = self.compacted(*(() if strategy is None else (f"--strategy {strategy}",)))
        drops_rows = self.context.options.record_level_expire_time is not None
        return Remedy(command, strategy=strategy or "full", discards=drops_rows) if command else None

    def compacted(self, *options: str) -> str:
        """The command that compacts the table. With `--watch` it is the dedicated job to which writers of a write-only table
        leave compaction; a single run needs no `--dedicated`, which only warns where writers compact, too. Empty if a compaction
        has just met damage: the next one would fail as well.
        """
        if self.met:
            return ""
        dedicated = ("--dedicated",) if "--watch" in options and self.context.options.write_only else ()
        return " ".join(("paimon-cli compact", self.argument, *dedicated, *options))

    def note_damage(self, error: PaimonError) -> str:
        """Keep the first error about a file, or of a kind without one; returns the key under which it is kept."""
        cause = error.path or error.message
        self.damage.setdefault(cause, error)
        return cause

    @property
    def is_whole(self) -> bool:
        """Whether all files are examined."""
        return self.wanted is ALL_FILES

    @cached_property
    def ids(self) -> list[int]:
        return self.context.snapshots.ids()

    @cached_property
    def latest(self) -> Snapshot | None:
        found = self.context.snapshots.latest()
        if found is None:
            self.context.expect_existing()
        return found

    @cached_property
    def recent(self) -> list[Snapshot]:
        """The recent snapshots that can be read, newest first."""
        if self.latest is None:
            return []
        return list(self.context.snapshots.newest_first(RECENT, on_damage=self.note_damage))

    @cached_property
    def lag(self) -> ReadLag | None:
        """What the newest recent commit of `ingest` says."""
        return next((lag for snapshot in self.recent if (lag := ReadLag.of(snapshot.properties)) is not None), None)

    @cached_property
    def writes(self) -> list[Snapshot]:
        """The recent commits that wrote rows, newest first."""
        return [snapshot for snapshot in self.recent if snapshot.commit_kind in (APPEND, OVERWRITE)]

    @cached_property
    def was_compacted(self) -> bool:
        """Whether a recent commit was a compaction. What one wrote shows that, too, if its snapshot has expired already."""
        if any(map(self.context.manifests.compacted_files, self.recent)):
            return True
        files = (file for bucket in self.all_buckets for file in bucket.files)
        return len(self.recent) < RECENT and any(file.level or file.file_source == SOURCE_COMPACT for file in files)

    @cached_property
    def state(self) -> LazyBuckets:
        return bucket_files(self.context, self.latest, self.wanted)

    @cached_property
    def all_buckets(self) -> list[BucketFiles]:
        return self.state.whole()

    @cached_property
    def buckets(self) -> list[BucketFiles]:
        return [bucket for bucket in self.all_buckets if bucket.bucket != POSTPONE_BUCKET]

    @cached_property
    def postponed(self) -> list[BucketFiles]:
        """The postponed files of each partition."""
        return [bucket for bucket in self.all_buckets if bucket.bucket == POSTPONE_BUCKET]

    @cached_property
    def mixed_partitions(self) -> dict[bytes, tuple[int, ...]]:
        """The partitions with files of several bucket counts, and these counts."""
        return mixed_partitions(self.state.table.bucket_counts())

    @cached_property
    def unfinished_rescale(self) -> UnfinishedRescale | None:
        """What is left of a rescale that was interrupted."""
        is_postponed = self.context.mode.bucket_mode.postpones
        return None if is_postponed else unfinished_rescale(self.context, self.state.table.bucket_counts())

    @cached_property
    def other_counts(self) -> list[BucketFiles]:
        """The buckets of partitions that all have another bucket count than the option, which writers refuse."""
        option, mixed = self.context.options.bucket, self.mixed_partitions
        others = [bucket for bucket in self.buckets if bucket.total_buckets != option] if option > 0 else []
        return [bucket for bucket in others if bucket.partition not in mixed]

    @cached_property
    def count_decisions(self) -> list[CountDecision]:
        """The bucket count that each partition should have; empty if its buckets are not postponed, or cannot be compacted."""
        if not self.context.mode.bucket_mode.postpones or self.why_not_compactable is not None:
            return []
        return decide_counts(self.context, countable_partitions(self.state))

    @cached_property
    def partition_sizes(self) -> dict[bytes, int]:
        sizes: dict[bytes, int] = {}
        for bucket in self.buckets:
            sizes[bucket.partition] = sizes.get(bucket.partition, 0) + sum(file.file_size for file in bucket.files)
        return sizes

    @cached_property
    def runs(self) -> list[int]:
        """The number of sorted runs of each bucket; empty for append tables."""
        return [count_runs(bucket.files) for bucket in self.buckets] if self.context.schema.primary_keys else []

    @cached_property
    def why_not_compactable(self) -> str | None:
        return why_not_compactable(self.context)

    @cached_property
    def decisions(self) -> dict[BucketId, Decision]:
        """What a minor compaction would do to each bucket now; empty if this version cannot compact the table."""
        if self.latest is None or self.why_not_compactable is not None:
            return {}
        return next_compactions(self.context, self.all_buckets, self.latest.id)

    @cached_property
    def due(self) -> dict[BucketId, Decision]:
        """The buckets that a minor compaction would change now."""
        return {number: decision for number, decision in self.decisions.items() if not isinstance(decision, SkippedBucket)}

    @cached_property
    def needs(self) -> dict[BucketId, str]:
        """The buckets that need a compaction, with the code of the one finding that counts each."""
        needs = ((bucket.bucket_id, self._need_of(bucket)) for bucket in self.all_buckets)
        return {number: code for number, code in needs if code is not None}

    def _need_of(self, bucket: BucketFiles) -> str | None:
        if bucket.bucket == POSTPONE_BUCKET:
            return Code.POSTPONED
        mode = self.context.mode
        if mode.hides_files and any(mode.hides(bucket.bucket, file.level) for file in bucket.files):
            return Code.HIDDEN
        decision = self.due.get(bucket.bucket_id)
        if decision is None:
            return None
        stop = self._stop_trigger
        return Code.STALLED if stop is not None and decision.runs_before >= stop else Code.DUE

    @cached_property
    def _stop_trigger(self) -> int | None:
        """The number of runs at which writers wait; None if they never do, or if the option cannot be read, which is PD018."""
        try:
            return None if self.context.leaves_compaction else self.context.options.stop_trigger
        except UsageError:
            return None

    def in_need(self, code: str) -> list[BucketFiles]:
        """The buckets that this finding counts."""
        return [bucket for bucket in self.all_buckets if self.needs.get(bucket.bucket_id) == code]

    @cached_property
    def crowded(self) -> list[BucketFiles]:
        """The buckets with many small files that a full compaction would change."""
        latest, target = self.latest, self.context.mode.target_file_size
        if latest is None or self.why_not_compactable is not None:
            return []

        def is_crowded(bucket: BucketFiles) -> bool:
            count = len(bucket.files)
            if count <= MANY_SMALL_FILES or sum(file.file_size for file in bucket.files) >= target * count // 10:
                return False
            return not isinstance(plan_bucket(self.context, bucket, FULL_STRATEGY, latest.id), SkippedBucket)

        return list(filter(is_crowded, self.buckets))

    def concerned_by(self, code: str) -> list[BucketFiles]:
        """The buckets that the finding with this code is about; none if it is about the table as a whole."""
        if code == Code.CROWDED:
            return self.crowded
        if code == Code.OTHER_COUNT:
            return self.other_counts
        if code == Code.MIXED_COUNTS:
            return [bucket for bucket in self.buckets if bucket.partition in self.mixed_partitions]
        if code == Code.TOO_FULL:
            full = {decision.partition for decision in self.count_decisions if decision.is_split}
            return [bucket for bucket in self.buckets if bucket.partition in full]
        return self.in_need(code)
