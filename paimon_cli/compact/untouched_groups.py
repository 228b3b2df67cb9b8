"""Finds the row groups of the highest level that a compaction can copy, because no newer run has a key in their range.

The decision is made from footers and the keys of the newer runs, before anything is written: where too little can be copied, the
keys would be read twice for nothing. A group that is copied holds inserts only, in the form in which this version would write it.
Statistics of the footer only choose: the keys of a chosen group are decoded, must ascend, and must lie within them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from paimon_cli.bucket.column_statistics import footer_statistics, leaf_numbers
from paimon_cli.bucket.data_file_reader import WHOLE, FilePart, file_format, read_part
from paimon_cli.bucket.decoding import DECODE_ERRORS
from paimon_cli.bucket.file_encoders import codec_of
from paimon_cli.bucket.file_indexes import indexed_columns
from paimon_cli.bucket.key_range import RangeReader
from paimon_cli.bucket.map_shredding import shreds_maps
from paimon_cli.bucket.stitched_files import CODEC_NUMBERS, StoredGroups, own_frame
from paimon_cli.compact.compaction_task import CompactionTask
from paimon_cli.datatypes.arrow_types import values_to_arrow
from paimon_cli.datatypes.data_type import FLOATING_ROOTS, DataField, PlainType
from paimon_cli.history.table_context import TableContext
from paimon_cli.lsm.key_search import SortedKeys
from paimon_cli.lsm.sorted_runs import SortedRun
from paimon_cli.metadata.data_file import DataFileMeta
from paimon_cli.metadata.data_file_schema import KEY_PREFIX, SEQUENCE_NUMBER, VALUE_KIND
from paimon_cli.metadata.encoded_footer import FooterFrame
from paimon_cli.metadata.parquet_footer import closed
from paimon_cli.pieces import PIECES
from paimon_cli.storage.storage import open_sized
from paimon_cli.storage.threads import cached_property

PARQUET = "parquet"
_LEAST_SHARE = 0.3
"""The share of the bytes that must be copied, below which merging everything is faster."""

_MOST_COMPRESSED = 4
"""The bytes of a row group in memory, divided by those in a file, if it is well compressed."""


@dataclass(frozen=True)
class UntouchedGroup:
    """Row group `number` of a file. `bounds`: a batch with its first and its last key; `sequences`: its least and greatest."""

    file: DataFileMeta
    number: int
    size: int
    sequences: tuple[int, int]
    bounds: pa.RecordBatch


@dataclass(frozen=True)
class _Group:
    """A row group that may be copied if no newer key is between `low` and `high`, values of the first key column."""

    file: DataFileMeta
    number: int
    rows: int
    size: int
    sequences: tuple[int, int] | None
    low: object
    high: object


def can_copy(context: TableContext, task: CompactionTask) -> bool:
    """Whether the task writes files that may hold copied row groups."""
    options, level = context.options, task.output_level
    keys = context.schema.fields_of(context.schema.trimmed_primary_keys)
    return (
        level == task.max_level
        and task.drop_deletes
        and not task.rewrite_all
        and not task.index_files
        and not context.mode.deletion_vectors
        and options.record_level_expire_time is None
        and not options.sequence_snapshot_ordering
        and options.format_at(level) == PARQUET
        and not indexed_columns(context.schema, options)
        and not any(field.type.root in FLOATING_ROOTS for field in keys)
    )


@dataclass
class UntouchedGroups:
    """Chooses the groups to copy in the sections of one task."""

    context: TableContext
    task: CompactionTask
    range: RangeReader | None = None
    """Groups outside of it are another task's."""

    def __post_init__(self) -> None:
        schema = self.context.schema
        self.keys = schema.trimmed_primary_keys
        self._first = schema.field(self.keys[0])

    @cached_property
    def frame(self) -> FooterFrame:
        return own_frame(self.context.file_layout, self.context.options, self.task.output_level)

    def of(self, sections: Sequence[Sequence[SortedRun]]) -> dict[int, list[UntouchedGroup]]:
        """The groups to copy, by the number of the section, in ascending order of keys. Empty if too little can be copied."""
        if shreds_maps(self.context.schema.fields, self.context.options):  # a file has one dictionary for all of its rows
            return {}
        chosen: dict[int, list[_Group]] = {}
        total = sum(run.size for section in sections for run in section) if self.range is None else self.task.size
        for number, section in enumerate(sections):
            base, newer = self._divided(section)
            if not newer or sum(f.row_count for f in newer) * 2 > sum(f.row_count for f in base):
                continue
            if sum(f.file_size for f in base) < PIECES.row_group_bytes // _MOST_COMPRESSED:  # probably a single group
                continue
            groups = [group for file in base for group in self._groups(file)]
            if any(group.sequences for group in groups):
                chosen[number] = self._untouched(groups, newer)
        if sum(group.size for groups in chosen.values() for group in groups) < total * _LEAST_SHARE:
            return {}
        return {number: list(self._proven(groups)) for number, groups in chosen.items()}

    def _divided(self, section: Sequence[SortedRun]) -> tuple[list[DataFileMeta], list[DataFileMeta]]:
        """The files of the highest level, in order of keys, and the others."""
        files = [file for run in section for file in run.files]
        base = [file for file in files if file.level == self.task.max_level]
        base.sort(key=lambda file: self.context.key_of(file.min_key))
        return base, [file for file in files if file.level != self.task.max_level]

    def _groups(self, file: DataFileMeta) -> Iterator[_Group]:
        """The groups of a file of the highest level. One without `sequences` must be merged."""
        merged = _Group(file, 0, file.row_count, file.file_size, None, None, None)
        if file.schema_id != self.context.schema.id or file.write_cols is not None or file_format(file.file_name) != PARQUET:
            yield merged
            return
        try:
            with open_sized(
                self.context.storage, self.context.data_file_path(*self.task.bucket_id, file), file.file_size
            ) as source:
                stored = StoredGroups(source, self.frame)
            codec = codec_of(PARQUET, self.context.options.compression_at(self.task.output_level))
            if stored.frame != self.frame or stored.rows != file.row_count or not stored.codecs <= CODEC_NUMBERS[codec]:
                yield merged
                return
            groups = list(self._described(file, stored))
        except FileNotFoundError:
            groups = [merged]  # merging reports what is wrong with it
        except DECODE_ERRORS:
            groups = [merged]
        yield from groups

    def _described(self, file: DataFileMeta, stored: StoredGroups) -> Iterator[_Group]:
        if not stored.groups:
            return
        footer = pq.read_metadata(pa.BufferReader(closed([], stored.groups[0].footer)))
        leaves = leaf_numbers(self.context.file_layout.physical)
        small, big = PlainType("TINYINT", nullable=False), PlainType("BIGINT", nullable=False)
        key = DataField(0, KEY_PREFIX + self._first.name, self._first.type)
        wanted = (key.name, key.type), (SEQUENCE_NUMBER, big), (VALUE_KIND, small)
        room = self.context.mode.target_file_size, self.context.options.target_file_row_num
        for number, group in enumerate(stored.groups):
            keys, numbers, kinds = (footer_statistics(footer, leaves.get(name), t, False, [number]) for name, t in wanted)
            known = all(s.minimum is not None and s.maximum is not None and s.null_count == 0 for s in (keys, numbers, kinds))
            fits = 0 < group.rows <= room[1] and group.size <= room[0]
            sequences = None
            if known and fits and kinds.minimum == kinds.maximum == 0:
                least, greatest = numbers.minimum, numbers.maximum
                if file.min_sequence_number <= least <= greatest <= file.max_sequence_number:
                    sequences = least, greatest
            yield _Group(file, number, group.rows, group.size, sequences, keys.minimum, keys.maximum)

    def _untouched(self, groups: list[_Group], newer: Sequence[DataFileMeta]) -> list[_Group]:
        """The groups in whose range no newer run has a key, without small ones that are better merged with their neighbours."""
        known = [number for number, group in enumerate(groups) if group.sequences is not None]
        lows, highs = (self._keys([getattr(groups[n], side) for n in known]) for side in ("low", "high"))
        steps = np.arange(1, len(known))
        if (steps.size and (lows.up_to(lows)[1:] < steps + 1).any()) or (highs.below(lows) < np.arange(len(known))).any():
            return []
        is_ours = np.ones(len(known), bool) if self.range is None else self.range.holds(lows, highs)
        touched, between = np.zeros(len(known) + 1, np.int64), np.zeros(len(known) + 1, np.int64)
        for file in newer:
            part = WHOLE if self.range is None else self.range.row_groups()
            for _, batch in read_part(self.context, self.task.bucket_id, file, [self.keys[0]], PIECES.kind_batch_rows, part):
                keys = SortedKeys.of(batch, [self.keys[0]])
                first, end = highs.below(keys), lows.up_to(keys)
                np.add.at(touched, first[first < end], 1)
                np.add.at(touched, end[first < end], -1)
                np.add.at(between, first[first >= end], 1)
        is_copied = [False] * len(groups)
        for number, ours, count in zip(known, is_ours.tolist(), accumulate(touched[:-1].tolist()), strict=True):
            is_copied[number] = ours and count == 0
        for right in np.flatnonzero(between[1:-1]) + 1:  # a gap whose rows would become a small group of their own
            left, after = known[right - 1], known[right]
            if is_copied[left] and is_copied[after]:
                is_copied[min(left, after, key=lambda number: groups[number].size)] = False
        return _without_small_neighbours(groups, is_copied)

    def _keys(self, values: list[object]) -> SortedKeys:
        column = values_to_arrow(values, self._first.type)
        return SortedKeys.of(pa.record_batch([column], [self._first.name]), [self._first.name])

    def _proven(self, groups: list[_Group]) -> Iterator[UntouchedGroup]:
        """The groups whose rows are in ascending order, inside of the bounds of their statistics."""
        before: SortedKeys | None = None
        for group in groups:
            only = FilePart(keeps=lambda _, number, wanted=group.number: number == wanted)  # type: ignore[misc]
            read = read_part(self.context, self.task.bucket_id, group.file, self.keys, group.rows, only)
            rows = pa.Table.from_batches([batch for _, batch in read]).combine_chunks()
            keys = SortedKeys.of(rows, self.keys)
            ends = keys.take(np.array([0, len(keys) - 1]))
            lows, highs = self._keys([group.low]), self._keys([group.high])
            inside = lows.up_to(ends.prefix(1)).all() and not highs.below(ends.prefix(1)).any()
            follows = before is None or before.below(ends.slice(0, 1))[0] == 1
            if inside and follows and keys.ascends_at(np.arange(1, len(keys))).all():
                before = ends.slice(1, 2)
                bounds = pa.concat_tables([rows.slice(0, 1), rows.slice(len(keys) - 1, 1)]).combine_chunks().to_batches()[0]
                assert group.sequences is not None
                yield UntouchedGroup(group.file, group.number, group.size, group.sequences, bounds)


def _without_small_neighbours(groups: Sequence[_Group], is_copied: list[bool]) -> list[_Group]:
    """The groups to copy, without small ones (less than half a usual group) beside rows that are merged: else every compaction
    would leave more and smaller groups.
    """
    usual = max(group.size for group in groups)
    for order in (range(1, len(groups)), range(len(groups) - 2, -1, -1)):
        step = -order.step
        for number in order:
            if not is_copied[number + step] and groups[number].size * 2 < usual:
                is_copied[number] = False
    if groups[-1].size * 2 < usual:  # later keys become its neighbours
        is_copied[-1] = False
    return [group for group, copied in zip(groups, is_copied, strict=True) if copied]


@dataclass(frozen=True)
class SkippedGroups:
    """A `KeepsGroup`: leaves out the row groups with these numbers."""

    numbers: frozenset[int]

    def __call__(self, file: pq.ParquetFile, group: int) -> bool:
        return group not in self.numbers


def groups_without(groups: Sequence[UntouchedGroup]) -> dict[str, SkippedGroups]:
    """For each file, by name, the row groups that are left to merge."""
    names = {group.file.file_name for group in groups}
    return {name: SkippedGroups(frozenset(g.number for g in groups if g.file.file_name == name)) for name in names}
