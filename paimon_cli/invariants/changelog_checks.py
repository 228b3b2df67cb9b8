"""Checks that changelogs lead from the rows of each snapshot to the rows of the next (FORMAT.md, section 9).

With the producers `lookup` and `full-compaction`, the compacted rows of a snapshot (above level 0, or on the top level) plus the
changelogs up to a later snapshot must give the compacted rows of that snapshot. With `input`, a changelog must repeat what its
commit wrote. Old rows, changes and new rows are merged in key order by a merge engine that checks each key, so memory is bounded
like that of a merge. An OVERWRITE or an expired changelog interrupts the chain.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa

from paimon_cli.bucket.data_file_reader import read_data_file
from paimon_cli.bucket.merged_rows import batch_rows, max_merged_runs, read_bucket, rows_by_key
from paimon_cli.bucket.spilled_runs import OpenRun, merge_in_passes
from paimon_cli.datatypes.key_order import group_starts, order_words
from paimon_cli.errors import DamagedFile, NotFound
from paimon_cli.history.lineage import follows
from paimon_cli.history.live_files import BucketFiles, bucket_files
from paimon_cli.history.table_context import TableContext
from paimon_cli.history.tags_and_branches import ChangelogHistory
from paimon_cli.invariants.changelog_comparison import (
    MEANINGS,
    NUMBER_AFTER,
    NUMBER_BEFORE,
    WRONG,
    ChangelogComparison,
    LastRow,
    Replayed,
)
from paimon_cli.invariants.violation import FULL, CheckGroup, Invariant, Violation, declare
from paimon_cli.lsm.changelog import ChangedKeys
from paimon_cli.lsm.merge_engine import merge_engine
from paimon_cli.lsm.sorted_runs import SortedRun, key_sections
from paimon_cli.metadata.data_file import BucketId, DataFileMeta, EntryKind, ManifestEntry
from paimon_cli.metadata.data_file_schema import SEQUENCE_NUMBER, VALUE_KIND
from paimon_cli.metadata.snapshot import APPEND, OVERWRITE, Snapshot
from paimon_cli.options.changelog_producers import ChangelogProducer
from paimon_cli.options.option_text import shortened
from paimon_cli.pieces import PIECES

declare(
    Invariant(
        "PV058",
        CheckGroup.CHANGELOGS,
        FULL,
        "changelogs lead from the rows of each snapshot to the rows of the next",
        of_unreadable_file=True,
        of_key_order=True,
    ),
)

Rows = Iterator[pa.RecordBatch]

FILE_BITS = 40


@dataclass(frozen=True)
class Replay:
    """The changelog files of one bucket between two snapshots, and its files before and after them. Picklable.

    If the bucket count of its partition has changed in between, these are all buckets of the partition. With the producer
    `input`, `before` is None and `after` holds the files that the commit added.
    """

    first: int
    last: int
    schema_id: int
    before: tuple[BucketFiles, ...] | None
    after: tuple[BucketFiles, ...]
    changes: tuple[BucketFiles, ...]

    @property
    def files(self) -> tuple[DataFileMeta, ...]:
        return tuple(file for bucket in (*(self.before or ()), *self.changes, *self.after) for file in bucket.files)


def replays(context: TableContext, last: int | None = None) -> Iterator[Replay]:
    """All changelogs that can be replayed, oldest first; with `last` only those that end at that snapshot.

    Unreadable metadata interrupts the chain without an error, because other checks report it.
    """
    if not context.mode.bounds_are_keys or context.options.record_level_expire_time is not None:
        return  # expired rows disappear without a changelog
    commits = _readable_snapshots(context)
    known = _tagged_snapshots(context) | commits
    steps: list[tuple[int, Snapshot | None]] = [(number, known[number]) for number in sorted(known)]
    if steps and steps[0][0] == 1:
        steps.insert(0, (0, None))
    for (_, before), (number, after) in pairwise(steps):
        if after is not None and last in (None, number):
            with suppress(DamagedFile, NotFound):
                yield from _between(context, before, after, commits)


def _readable_snapshots(context: TableContext) -> dict[int, Snapshot]:
    found: dict[int, Snapshot] = {}
    for number in context.snapshots.ids():
        with suppress(DamagedFile, NotFound):
            found[number] = context.snapshots.get(number)
    return found


def _tagged_snapshots(context: TableContext) -> dict[int, Snapshot]:
    """Snapshots with a tag, by id. A tag keeps data files, but not changelog files, beyond the expiry of its snapshot."""
    return {tag.snapshot.id: tag.snapshot for tag in context.tags.all(lambda damage: None).values()}


def _between(
    context: TableContext, before: Snapshot | None, after: Snapshot, readable: Mapping[int, Snapshot]
) -> Iterator[Replay]:
    first = before.id + 1 if before else 1
    outlived = ChangelogHistory(context.storage, context.layout)
    commits = list[Snapshot]()
    for number in range(first, after.id + 1):
        if (found := readable.get(number) or outlived.find(number)) is None:
            return  # before the rest is searched for: a tag may be a million commits older than the next version
        commits.append(found)
    begin = readable.get(first)
    if before is not None and before.id not in readable and begin is not None and not follows(context, before, context, begin):
        return  # a tag of another history, which main has had before a fast-forward
    there = [c for c in commits if c.commit_kind != OVERWRITE and not c.changelog_has_expired]
    producers = {_producer(context, snapshot) for snapshot in (*there, *([before] if before else []))}
    if len(there) < len(commits) or len(producers) != 1:
        return
    producer = producers.pop()
    if not producer.writes_files:
        return
    changes = _changes(context, there)
    old: dict[BucketId, BucketFiles] = {}
    if producer.records_input:
        if len(there) > 1 or after.commit_kind != APPEND:
            return
        added = (e for e in context.manifests.delta_entries(after) if e.file.level == 0 and not e.is_postponed)
        new = _grouped(added)
    else:
        least = producer.lowest_level(context.options.num_levels)
        old, new = _at_least(context, before, least), _at_least(context, after, least)
    for together in _compared_together(old, new, changes):
        begun, ended, shown = (tuple(map(found.get, together)) for found in (old, new, changes))
        if any(shown) or _contents(begun) != _contents(ended):
            yield Replay(
                first, after.id, after.schema_id, None if producer.records_input else _found(begun), _found(ended), _found(shown)
            )


def _contents(buckets: Iterable[BucketFiles | None]) -> list[tuple[object, ...]]:
    return [() if bucket is None else (bucket.files, bucket.index_files) for bucket in buckets]


def _found(buckets: Iterable[BucketFiles | None]) -> tuple[BucketFiles, ...]:
    return tuple(bucket for bucket in buckets if bucket is not None)


def _compared_together(
    old: Mapping[BucketId, BucketFiles], new: Mapping[BucketId, BucketFiles], changes: Mapping[BucketId, BucketFiles]
) -> Iterator[list[BucketId]]:
    """The buckets, each by itself, or all of a partition together if its bucket count has changed."""
    counts: dict[bytes, set[int]] = {}
    for bucket_id, bucket in (*old.items(), *new.items()):
        counts.setdefault(bucket_id.partition, set()).add(bucket.total_buckets)
    together: dict[BucketId, list[BucketId]] = {}
    for bucket_id in sorted(old.keys() | new.keys() | changes.keys()):
        has_changed = len(counts.get(bucket_id.partition, ())) > 1
        together.setdefault(BucketId(bucket_id.partition, 0) if has_changed else bucket_id, []).append(bucket_id)
    yield from together.values()


def _producer(context: TableContext, snapshot: Snapshot) -> ChangelogProducer:
    return context.schemas.named(snapshot.schema_id).typed_options.changelog_producer


def _changes(context: TableContext, commits: Sequence[Snapshot]) -> dict[BucketId, BucketFiles]:
    lists = [commit.changelog_manifest_list for commit in commits if commit.changelog_manifest_list is not None]
    manifests = [meta for name in lists for meta in context.manifests.manifest_list(name)]
    return _grouped(entry for entries in context.manifests.entries(manifests) for entry in entries)


def _grouped(entries: Iterator[ManifestEntry]) -> dict[BucketId, BucketFiles]:
    files: dict[BucketId, list[DataFileMeta]] = {}
    for entry in entries:
        if entry.kind == EntryKind.ADD:
            files.setdefault(entry.bucket_id, []).append(entry.file)
    return {bucket_id: BucketFiles(*bucket_id, 1, tuple(found)) for bucket_id, found in files.items()}


def _at_least(context: TableContext, snapshot: Snapshot | None, level: int) -> dict[BucketId, BucketFiles]:
    """The files of each bucket at `level` or above, whose rows changelogs have reported."""
    found = bucket_files(context, snapshot)
    kept = {bucket_id: tuple(file for file in bucket.files if file.level >= level) for bucket_id, bucket in found.items()}
    return {bucket_id: replace(found[bucket_id], files=files) for bucket_id, files in kept.items() if files}


def check_replay(context: TableContext, replay: Replay) -> Iterator[Violation]:
    """PV058, once for each kind of mismatch; PV031 for a file that cannot be read."""
    buckets = (*replay.after, *replay.changes, *(replay.before or ()))
    where = context.bucket_directory(*buckets[0].bucket_id)
    if not all(context.can_open(file) for bucket in buckets for file in bucket.files):
        return  # PV028 says so
    try:
        found = _wrong(context.at_schema(replay.schema_id), replay)
    except (DamagedFile, NotFound) as error:
        yield Violation("PV031", error.path or where, str(error))
        return
    span = f"of snapshot {replay.last}" if replay.first == replay.last else f"of snapshots {replay.first} to {replay.last}"
    for reason, (count, key) in sorted(found.items()):
        yield Violation("PV058", where, f"the changelog {span} has {MEANINGS[reason]}: {count}, the first with {key}")


def _wrong(context: TableContext, replay: Replay) -> dict[int, tuple[int, str]]:
    """The number of mismatches of each kind, and the first key with it."""
    counts: Counter[int] = Counter()
    firsts: dict[int, str] = {}
    for names in _sections(context, replay):
        for batch in _compared(context, replay, names):
            reasons = batch.column(WRONG).to_numpy()
            for reason in np.unique(reasons).tolist():
                rows = np.flatnonzero(reasons == reason)
                counts[reason] += len(rows)
                keys = context.schema.trimmed_primary_keys
                firsts.setdefault(
                    reason, ", ".join(f"{name}={shortened(str(batch.column(name)[int(rows[0])].as_py()))}" for name in keys)
                )
    return {reason: (count, firsts[reason]) for reason, count in counts.items()}


def _sections(context: TableContext, replay: Replay) -> Iterator[set[str]]:
    """Groups of files, by name, that may share keys; without groups that are the same in both snapshots and have no changes."""
    before, after, changes = (
        {file.file_name for bucket in buckets for file in bucket.files}
        for buckets in (replay.before or (), replay.after, replay.changes)
    )
    vectors = [{bucket.bucket_id: bucket.index_files for bucket in buckets} for buckets in (replay.before or (), replay.after)]
    same_vectors = replay.before is not None and vectors[0] == vectors[1]
    for section in key_sections({file.file_name: file for file in replay.files}.values(), context.key_of):
        names = {file.file_name for run in section for file in run.files}
        if names & changes or not (same_vectors and names <= before and names <= after):
            yield names


def _compared(context: TableContext, replay: Replay, names: Collection[str]) -> Rows:
    keys, columns = context.schema.trimmed_primary_keys, context.schema.field_names
    after, changes = _among(replay.after, names), _among(replay.changes, names)
    memory = PIECES.merge_bytes // 3
    if replay.before is None:
        whole = replace(context, shows_level_0=True)
        written = functools.partial(_written, whole, after, memory)
        shown = functools.partial(_shown_at_once, whole, changes, memory)
        yield from merge_in_passes(
            [written, shown], keys, ChangelogComparison(columns=columns, all_values=_keeps_last_row(context)), 2, keys_repeat=True
        )
        return
    runs: list[OpenRun] = [
        *(functools.partial(_numbered, context, bucket, NUMBER_BEFORE, memory) for bucket in _among(replay.before, names)),
        *_opened(context, changes, memory),
        *(functools.partial(_numbered, context, bucket, NUMBER_AFTER, memory) for bucket in after),
    ]
    compared = ChangedKeys.of(context.schema, context.options).compared or tuple(columns)
    replayed = Replayed(compared=compared, adds_only=context.mode.merge_engine.oldest_wins)
    yield from merge_in_passes(runs, keys, replayed, max_merged_runs(context, PIECES.merge_bytes), keys_repeat=True)


def _among(buckets: Iterable[BucketFiles], names: Collection[str]) -> list[BucketFiles]:
    """The buckets, each with only the files that have one of these names."""
    return [replace(bucket, files=tuple(file for file in bucket.files if file.file_name in names)) for bucket in buckets]


def _keeps_last_row(context: TableContext) -> bool:
    """Whether a commit keeps exactly its last row of each key; other merge engines may drop rows or combine them."""
    return context.mode.merge_engine.newest_wins and not context.options.ignore_delete


def _numbered(context: TableContext, bucket: BucketFiles, number: int, memory: int) -> Rows:
    for batch in rows_by_key(context, bucket, [VALUE_KIND, *context.schema.field_names], memory):
        yield _with_number(batch, np.full(batch.num_rows, number))


def _with_number(batch: pa.RecordBatch, numbers: np.ndarray) -> pa.RecordBatch:
    return batch.add_column(0, pa.field(SEQUENCE_NUMBER, pa.int64()), pa.array(numbers, pa.int64()))


def _opened(context: TableContext, buckets: Sequence[BucketFiles], memory: int) -> Iterator[OpenRun]:
    files = [(bucket.bucket_id, file) for bucket in buckets for file in bucket.files]
    rows = batch_rows([SortedRun(file.level, (file,)) for _, file in files], memory) if files else PIECES.smallest_batch_rows
    for index, (bucket_id, file) in enumerate(files):
        yield functools.partial(_file_of_changes, context, bucket_id, file, index, rows)


def _file_of_changes(context: TableContext, bucket_id: BucketId, file: DataFileMeta, index: int, rows: int) -> Rows:
    """The rows of a changelog file in their order; all rows of a key are in the same batch."""
    keys, waiting, number = context.schema.trimmed_primary_keys, list[pa.RecordBatch](), (index << FILE_BITS) + 1
    for batch in read_data_file(context, bucket_id, file, [VALUE_KIND, *context.schema.field_names], rows):
        numbered = _with_number(batch, np.arange(number, number + batch.num_rows))
        number += batch.num_rows
        together = pa.concat_batches([*waiting, numbered])
        starts = group_starts(order_words([together.column(name) for name in keys]))
        last = int(starts[-1]) if len(starts) else 0
        waiting = [together.slice(last)]
        if last:
            yield together.slice(0, last)
    yield from waiting


def _written(context: TableContext, buckets: Sequence[BucketFiles], memory: int) -> Rows:
    """The rows that a commit wrote to a bucket, merged to one row per key."""
    for bucket in buckets:
        for batch in read_bucket(context, bucket, [VALUE_KIND, *context.schema.field_names], keep_kinds=True, memory=memory):
            yield _with_number(batch, np.full(batch.num_rows, NUMBER_BEFORE))


def _shown_at_once(context: TableContext, buckets: Sequence[BucketFiles], memory: int) -> Rows:
    """The rows of changelog files, merged to one row per key as the commit does."""
    engine = merge_engine(context.schema, context.options) if _keeps_last_row(context) else LastRow()
    runs = [*_opened(context, buckets, memory)]
    keys = context.schema.trimmed_primary_keys
    for batch in merge_in_passes(runs, keys, engine, max_merged_runs(context, memory), keys_repeat=True):
        at = batch.schema.get_field_index(SEQUENCE_NUMBER)
        yield batch.set_column(at, batch.schema.field(at), pa.array(np.full(batch.num_rows, NUMBER_AFTER), pa.int64()))
