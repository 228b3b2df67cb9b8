"""What rows say about a suspected anomaly: which keys two commits both wrote, and what a compaction changed.

Rows are merged as a compaction merges them, within its memory.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_cli.bucket.data_file_reader import read_data_file
from paimon_cli.bucket.key_locations import key_text
from paimon_cli.bucket.merged_rows import batch_rows, max_merged_runs, rows_by_key
from paimon_cli.bucket.spilled_runs import merge_in_passes
from paimon_cli.history.live_files import BucketFiles
from paimon_cli.history.table_context import TableContext
from paimon_cli.invariants.anomalies import (
    CAME_BACK,
    DISORDER,
    LIKELY,
    LOST_UPDATE,
    REWRITTEN,
    UNTOLD,
    Anomaly,
    Commit,
    anomaly,
)
from paimon_cli.lsm.row_difference import AFTER, BEFORE, Difference
from paimon_cli.lsm.sorted_rows import SortedRows, WholeRowEngine
from paimon_cli.lsm.sorted_runs import SortedRun, key_sections
from paimon_cli.metadata.data_file import BucketId, DataFileMeta
from paimon_cli.metadata.data_file_schema import SEQUENCE_NUMBER, VALUE_KIND, RowKind
from paimon_cli.pieces import PIECES
from paimon_cli.sql.predicate import Predicate

Rows = Iterator[pa.RecordBatch]
OWN_NUMBER, SHARED_AS = "_OWN_NUMBER", "_SHARED_AS"
"""Columns of a merge of two sides: the sequence number of a row, and in which ways (a sum of these) its key is shared."""
BOTH_WROTE, OVERTAKEN, PUT_BACK = 1, 2, 4


@dataclass(frozen=True)
class SharedKeys:
    """Do the files of newer commits hold keys that `older` ones hold, too? `rules`: the findings that this would be."""

    rules: tuple[str, ...]
    commits: tuple[Commit, ...]
    bucket_id: BucketId
    older: tuple[DataFileMeta, ...]
    newer: tuple[DataFileMeta, ...]

    @property
    def files(self) -> tuple[DataFileMeta, ...]:
        return (*self.older, *self.newer)

    def answer(self, context: TableContext, where: Predicate | None) -> Iterator[Anomaly]:
        schema, names = context.schema, [file.file_name for file in self.files]
        columns = [*dict.fromkeys((*schema.trimmed_primary_keys, *schema.primary_keys)), SEQUENCE_NUMBER, VALUE_KIND]
        rows = batch_rows([SortedRun(file.level, (file,)) for file in self.files], PIECES.merge_bytes, len(columns))
        sides = [(BEFORE, file) for file in self.older] + [(AFTER, file) for file in self.newer]
        runs = [functools.partial(_of_side, context, self.bucket_id, file, side, columns, rows, where) for side, file in sides]
        found = KeyTally(schema.primary_keys)
        merged = merge_in_passes(
            runs, schema.trimmed_primary_keys, _KeysOfBoth(), max_merged_runs(context, PIECES.merge_bytes), keys_repeat=True
        )
        for batch in merged:
            ways = batch.column(SHARED_AS).to_numpy()
            for way in (BOTH_WROTE, OVERTAKEN, PUT_BACK):
                found.add(way, batch, (ways & way) > 0)
        for rule, way, said in (
            (LOST_UPDATE, BOTH_WROTE, "both wrote"),
            (DISORDER, OVERTAKEN, "the newer commit's rows are older by their sequence numbers, for"),
            (CAME_BACK, PUT_BACK, "one had deleted, and the other, which had not read that, wrote again"),
        ):
            if rule in self.rules and (text := found.text(way)):
                certainty = LIKELY if rule == CAME_BACK else None
                yield anomaly(rule, f"{said} {text}", self.commits, key=found.firsts[way], files=names, certainty=certainty)

    def untold(self, context: TableContext, why: str) -> Iterator[Anomaly]:
        """What the metadata alone says, where the rows cannot be read."""
        if not context.mode.bounds_are_keys:
            for rule in self.rules:
                yield anomaly(rule, f"whether both wrote the same keys cannot be told: {why}", self.commits, certainty=UNTOLD)
            return
        overlap = overlap_of_keys(context, self.older, self.newer)
        if overlap is not None:
            for rule in self.rules:
                if rule != CAME_BACK:
                    names = [file.file_name for file in self.files]
                    what = f"both hold keys of {overlap}, but their rows were not compared: {why}"
                    yield anomaly(rule, what, self.commits, key=overlap, files=names, certainty=LIKELY)


@dataclass(frozen=True)
class RewrittenBucket:
    """Do readers of the bucket see the same rows before and after a compaction? `rules`: the findings that it may have."""

    rules: tuple[str, ...]
    commits: tuple[Commit, ...]
    schema_id: int
    before: BucketFiles
    after: BucketFiles

    @property
    def files(self) -> tuple[DataFileMeta, ...]:
        return (*self.before.files, *self.after.files)

    def answer(self, context: TableContext, where: Predicate | None) -> Iterator[Anomaly]:
        opened = context.defined_by(context.schemas.named(self.schema_id)).with_level_0()
        keys, found = opened.schema.primary_keys, KeyTally(opened.schema.primary_keys)
        for names in self._changed_sections(opened):
            sides = ((BEFORE, self.before), (AFTER, self.after))
            runs = [functools.partial(_of_state, opened, _only(files, names), side, where) for side, files in sides]
            merged = merge_in_passes(runs, opened.schema.trimmed_primary_keys, Difference(both_sides=True), 2, keys_repeat=True)
            for batch in merged:
                kinds = batch.column(VALUE_KIND).to_numpy()
                for kind in (RowKind.INSERT, RowKind.UPDATE_BEFORE, RowKind.DELETE):
                    found.add(kind, batch.select(list(keys)), kinds == kind)
        where_it_is, before = context.bucket_path(*self.before.bucket_id), {file.file_name for file in self.before.files}
        files = [file.file_name for file in self.after.files if file.file_name not in before]
        if CAME_BACK in self.rules and (text := found.text(RowKind.INSERT)):
            what = f"the compaction of {where_it_is} made {text} visible, which no reader saw before"
            yield anomaly(CAME_BACK, what, self.commits, key=found.firsts[RowKind.INSERT], files=files)
        if REWRITTEN in self.rules:
            for kind, said in ((RowKind.UPDATE_BEFORE, "changed what readers see of"), (RowKind.DELETE, "hid")):
                if text := found.text(kind):
                    what = f"the compaction of {where_it_is} {said} {text}"
                    yield anomaly(REWRITTEN, what, self.commits, key=found.firsts[kind], files=files)

    def untold(self, context: TableContext, why: str) -> Iterator[Anomaly]:
        for rule in self.rules:
            yield anomaly(rule, f"what the compaction did cannot be told: {why}", self.commits, certainty=UNTOLD)

    def added_since(self, earlier: RewrittenBucket) -> tuple[DataFileMeta, ...] | None:
        """The files of level 0 that were added since an earlier compaction; None if something else has changed."""
        if self.schema_id != earlier.schema_id or self.before.index_files or self.after.index_files or earlier.before.index_files:
            return None
        known = {(file.file_name, file.level) for file in earlier.after.files}
        added = tuple(file for file in self.before.files if (file.file_name, file.level) not in known)
        is_whole = len(self.before.files) - len(added) == len(known)
        return added if is_whole and all(file.level == 0 for file in added) else None

    def _changed_sections(self, context: TableContext) -> Iterator[set[str]]:
        """The files, by name, of key ranges in which the compaction changed files, levels or vectors."""
        before, after = ({(file.file_name, file.level) for file in side.files} for side in (self.before, self.after))
        same_vectors = self.before.index_files == self.after.index_files
        distinct = {file.file_name: file for file in self.files}
        for section in key_sections(distinct.values(), context.key_of):
            names = {file.file_name for run in section for file in run.files}
            held = [{pair for pair in side if pair[0] in names} for side in (before, after)]
            only_moved = len(names) == 1 and all(held)
            if not (same_vectors and (held[0] == held[1] or only_moved)):
                yield names


def overlap_of_keys(context: TableContext, older: Iterable[DataFileMeta], newer: Collection[DataFileMeta]) -> str | None:
    """The keys that both sides may hold, as text, by the ranges of two of their files; None if they share none."""
    key, names = functools.cache(context.key_of), context.schema.trimmed_primary_keys

    def text(end: bytes) -> str:
        return ", ".join(f"{n} = {'NULL' if v is None else v}" for n, v in zip(names, context.key_values(end), strict=True))

    for one in older:
        for other in newer:
            low, high = max(one.min_key, other.min_key, key=key), min(one.max_key, other.max_key, key=key)
            if key(low) <= key(high):
                return text(low) if key(low) == key(high) else f"{text(low)} to {text(high)}"
    return None


def may_share_keys(context: TableContext, older: Iterable[DataFileMeta], newer: Collection[DataFileMeta]) -> bool:
    """Whether both sides may hold one key: by the ranges of their files, or always where these are not ranges of keys."""
    return not context.mode.bounds_are_keys or overlap_of_keys(context, older, newer) is not None


class KeyTally:
    """How many keys are concerned in each way, and the first of them."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._keys = list(keys)
        self.counts: dict[int | str, int] = {}
        self.firsts: dict[int | str, str] = {}

    def add(self, way: int | str, rows: pa.RecordBatch, chosen: np.ndarray) -> None:
        numbers = np.flatnonzero(chosen)
        if len(numbers):
            self.counts[way] = self.counts.get(way, 0) + len(numbers)
            self.firsts.setdefault(way, key_text(rows.select(self._keys), int(numbers[0])))

    def text(self, way: int | str) -> str:
        """`the key id = 7`, or `3 keys, such as id = 7`; empty if there is none."""
        count = self.counts.get(way, 0)
        return "" if not count else f"the key {self.firsts[way]}" if count == 1 else f"{count} keys, such as {self.firsts[way]}"


def _of_side(
    context: TableContext,
    bucket_id: BucketId,
    file: DataFileMeta,
    side: int,
    columns: Sequence[str],
    rows: int,
    where: Predicate | None,
) -> Rows:
    """The rows of a file with their side as sequence number, and their own number in another column."""
    for batch in read_data_file(context, bucket_id, file, columns, rows):
        kept = batch if where is None else where.filtered(batch)
        at = kept.schema.get_field_index(SEQUENCE_NUMBER)
        numbers, sides = kept.column(at), pa.array(np.full(kept.num_rows, side), pa.int64())
        yield kept.set_column(at, pa.field(SEQUENCE_NUMBER, pa.int64()), sides).append_column(
            pa.field(OWN_NUMBER, pa.int64()), numbers
        )


def _of_state(context: TableContext, bucket: BucketFiles, side: int, where: Predicate | None) -> Rows:
    """What readers of a bucket see. Of lists that a merge engine collects, whose order is open, only the lengths."""
    schema, collects = context.schema, context.mode.merge_engine.combines_versions
    columns = [*dict.fromkeys((*schema.trimmed_primary_keys, VALUE_KIND, *schema.field_names))]
    for batch in rows_by_key(context, bucket, columns, PIECES.merge_bytes // 2):
        kept = batch if where is None else where.filtered(batch)
        for at, column in enumerate(kept.columns if collects else ()):
            if pa.types.is_list(column.type):
                kept = kept.set_column(at, pa.field(kept.schema.names[at], pa.int32()), pc.list_value_length(column))
        numbers = pa.array(np.full(kept.num_rows, side), pa.int64())
        yield kept.append_column(pa.field(SEQUENCE_NUMBER, pa.int64()), numbers)


def _only(bucket: BucketFiles, names: Collection[str]) -> BucketFiles:
    return replace(bucket, files=tuple(file for file in bucket.files if file.file_name in names))


class _KeysOfBoth(WholeRowEngine):
    """A `MergeEngine` that returns a row of each key of both sides, with a column SHARED_AS."""

    def merge(self, rows: SortedRows) -> pa.RecordBatch:
        batch, order, starts = rows.rows, rows.order, rows.starts
        if not len(starts):
            return _shared(batch, order, np.zeros(0, np.int8))
        is_new = batch.column(SEQUENCE_NUMBER).to_numpy()[order] == AFTER
        # the kind goes with the number, so that the greatest number of a side tells the kind of its row, too
        numbers = (batch.column(OWN_NUMBER).to_numpy()[order] << 2) + batch.column(VALUE_KIND).to_numpy()[order]
        older, newer = (np.maximum.reduceat(np.where(is_new == side, numbers, -1), starts) for side in (False, True))
        both = (older >= 0) & (newer >= 0)
        ways = np.where(both, BOTH_WROTE, 0)
        ways += np.where(both & ((newer >> 2) <= (older >> 2)), OVERTAKEN, 0)
        ways += np.where(both & ((older & 1) == 1) & ((newer & 1) == 0), PUT_BACK, 0)
        return _shared(batch, order[starts], ways.astype(np.int8))


def _shared(batch: pa.RecordBatch, firsts: np.ndarray, ways: np.ndarray) -> pa.RecordBatch:
    kept = np.flatnonzero(ways)
    return batch.take(pa.array(firsts[kept])).append_column(pa.field(SHARED_AS, pa.int8()), pa.array(ways[kept], pa.int8()))
