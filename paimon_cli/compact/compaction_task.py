"""The decisions about the buckets of a table as plain data: a task for a bucket to compact, or why it is left as it is."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from paimon_cli.bucket.key_range import KeyRange
from paimon_cli.history.live_files import BucketFiles
from paimon_cli.history.table_context import TableContext
from paimon_cli.lsm.append_compaction import Pack
from paimon_cli.lsm.compaction_picker import NEVER_PICKED, PickState, Rewrite, Step, compaction_steps, steps_one_by_one
from paimon_cli.lsm.sorted_runs import SortedRun, count_runs, key_sections
from paimon_cli.metadata.data_file import BucketId, DataFileMeta, IndexFileMeta


@dataclass(frozen=True)
class CompactionTask:
    """The compaction of one bucket as plain data, for this process or a Spark executor.

    `files`: the files to compact, oldest first. `others`: the remaining files of the bucket, if old rows are looked up or marked
    in them; `index_files`: the index files of the bucket. `memory`: bytes that the merge may use, None for the default. `state`:
    what to remember of the bucket after the compaction.

    `rewrite_all`: files are rewritten even if they need not be merged; `rewrite_marked`: only those with a deletion vector are.
    `one_by_one`: files are rewritten without being combined. `packs`: in append tables, groups of files that become one file;
    each file counts as a run there. `cuts`: serialised keys, in ascending order, with which new files begin. `within`: only keys
    of this range are merged, in one of several tasks that together replace the files, which are a single section.

    For reports: `reason` and its `arithmetic`, the number of runs before and after, `bucket_size` and `oldest_size`: bytes of the
    bucket and of its oldest run; `ranges`, `commits`: into how many ranges of keys it is divided, and how many commits it takes.
    `score`: how urgent a goal finds it, infinite if it must be made; None without a goal. `cost`: bytes of the files that it
    rewrites, if that was asked.

    `level_0_size`: under a goal, the bytes that must be read at least, because readers wait for level 0; 0 if they do not. If the
    task goes deeper, `level_0_alone` is the one that does not, and `deeper_score` says how urgent the rest is.
    """

    partition: bytes
    bucket: int
    total_buckets: int
    files: tuple[DataFileMeta, ...]
    output_level: int
    max_level: int
    drop_deletes: bool
    reason: str
    arithmetic: str
    runs_before: int
    runs_after: int
    read_snapshot_id: int
    file_stamp: str = ""
    rewrite_all: bool = False
    others: tuple[DataFileMeta, ...] = ()
    index_files: tuple[IndexFileMeta, ...] = ()
    rewrite_marked: bool = False
    one_by_one: bool = False
    state: PickState = NEVER_PICKED
    memory: int | None = None
    bucket_size: int = 0
    oldest_size: int = 0
    packs: tuple[Pack, ...] = ()
    cuts: tuple[bytes, ...] = ()
    within: KeyRange | None = None
    ranges: int = 1
    commits: int = 1
    score: float | None = None
    cost: int | None = None
    level_0_size: int = 0
    level_0_alone: CompactionTask | None = None
    deeper_score: float = 0.0

    @property
    def bucket_id(self) -> BucketId:
        return BucketId(self.partition, self.bucket)

    @property
    def picked(self) -> BucketFiles:
        """The bucket with the files that the task reads."""
        return BucketFiles(self.partition, self.bucket, self.total_buckets, self.files, self.index_files)

    @property
    def marked(self) -> frozenset[str]:
        """Names of the data files that have a deletion vector."""
        return marked_files(self.index_files)

    @property
    def parts(self) -> list[CompactionTask]:
        """Tasks that can run in parallel: one for each pack of an append table."""
        return [
            replace(self, files=pack, packs=(pack,), others=(), index_files=_marking(self.index_files, pack))
            for pack in self.packs
        ] or [self]

    def with_memory(self, memory: int | None) -> CompactionTask:
        return self if memory is None else replace(self, memory=memory)

    @property
    def size(self) -> int:
        """The size of `files` in bytes, or of what is `within` a range of them."""
        return self.within.size if self.within is not None else sum(file.file_size for file in self.files)

    def stamped(self, file_stamp: str) -> CompactionTask:
        """The task with this stamp in the names of its files."""
        alone = None if self.level_0_alone is None else self.level_0_alone.stamped(file_stamp)
        return replace(self, file_stamp=file_stamp, level_0_alone=alone)

    @property
    def read_size(self) -> int:
        """Bytes that it reads, as far as they are known before: of all files."""
        return self.size if self.cost is None else self.cost


@dataclass(frozen=True)
class SkippedBucket:
    """A bucket that is not compacted, and why. `runs`, `files`, `size` (bytes): of the whole bucket. `waits_for_turn`: it needs a
    compaction, but other tables come first. `is_over_budget`: it needs one, for which the budget of the run is too small;
    `is_over_cap`: for which the limits of a round are too small. `is_beyond`: no later round or run takes it either, unless what
    limits them grows. `score`: that of its best merge, under a goal.
    """

    partition: bytes
    bucket: int
    runs: int
    reason: str
    state: PickState = NEVER_PICKED
    files: int = 0
    size: int = 0
    waits_for_turn: bool = False
    is_over_budget: bool = False
    is_over_cap: bool = False
    is_beyond: bool = False
    score: float | None = None

    @property
    def is_left(self) -> bool:
        """Whether its compaction is left to a later turn or run."""
        return self.waits_for_turn or self.is_over_budget or self.is_over_cap

    @property
    def bucket_id(self) -> BucketId:
        return BucketId(self.partition, self.bucket)

    @property
    def runs_before(self) -> int:
        return self.runs


def left_to_expiry(bucket: BucketFiles) -> SkippedBucket:
    """The decision about a bucket whose partition is about to expire."""
    return SkippedBucket(*bucket.bucket_id, count_runs(bucket.files), "its partition is past partition.expiration-time")


@dataclass(frozen=True)
class _WholePartition:
    """Work on a partition that comes before any merge in it: readers wait for it, or it replaces what a merge would write.

    `bucket`: the first one with files; `files`: all that are read.
    """

    partition: bytes
    bucket: int
    files: tuple[DataFileMeta, ...]

    @property
    def bucket_id(self) -> BucketId:
        return BucketId(self.partition, self.bucket)

    @property
    def size(self) -> int:
        """Bytes to read."""
        return sum(file.file_size for file in self.files)

    @property
    def read_size(self) -> int:
        return self.size

    @property
    def score(self) -> float:
        """No goal can find anything more urgent."""
        return math.inf


@dataclass(frozen=True)
class PostponedRows(_WholePartition):
    """The rows that wait in `bucket-postpone` of one partition, to be written into its buckets."""

    state: PickState = NEVER_PICKED
    reason: str = "postponed rows get their buckets"

    @property
    def runs_before(self) -> int:
        return len(self.files)


@dataclass(frozen=True)
class RegroupedPartition(_WholePartition):
    """A partition whose buckets are split or merged, in the place of the decisions about each of them.

    `runs_before`: the most of one bucket.
    """

    buckets: int
    new_buckets: int
    runs_before: int
    reason: str
    state: PickState = NEVER_PICKED

    @classmethod
    def of(cls, buckets: Sequence[BucketFiles], new_buckets: int, why: str) -> RegroupedPartition:
        first = min(buckets, key=lambda bucket: bucket.bucket)
        return cls(
            *first.bucket_id,
            tuple(file for bucket in buckets for file in bucket.files),
            first.total_buckets,
            new_buckets,
            max(count_runs(bucket.files) for bucket in buckets),
            f"{first.total_buckets} -> {new_buckets} buckets: {why}",
        )


Decision = CompactionTask | PostponedRows | RegroupedPartition | SkippedBucket


def task_steps(context: TableContext, task: CompactionTask) -> list[Step]:
    """The steps of the task, for carrying it out and for estimates: files to rewrite, and files that only change their level."""
    if task.packs:
        return [Rewrite(((SortedRun(0, pack),),)) for pack in task.packs]
    small_file_size = int(context.mode.target_file_size * context.options.small_file_ratio)
    if task.one_by_one:
        return steps_one_by_one(task.files)
    sections, marked = key_sections(task.files, context.key_of), task.marked if task.rewrite_marked else ()
    return compaction_steps(
        sections, task.output_level, task.max_level, small_file_size, rewrite_all=task.rewrite_all, marked=marked
    )


def _marking(index_files: Iterable[IndexFileMeta], files: Iterable[DataFileMeta]) -> tuple[IndexFileMeta, ...]:
    """The index files with a deletion vector of one of the files."""
    names = {file.file_name for file in files}
    return tuple(index for index in index_files if not names.isdisjoint(marked_files([index])))


def marked_files(index_files: Iterable[IndexFileMeta]) -> frozenset[str]:
    """Names of the data files whose deletion vectors these index files hold."""
    return frozenset(vector.data_file_name for index in index_files for vector in index.deletion_vector_ranges or ())
