"""Finds the row groups of the highest level that a compaction can copy, because no newer run has a key in their range.

The decision is made from footers and the keys of the newer runs, before anything is written: where too little can be copied, the
keys would be read twice for nothing. A group that is copied holds inserts only, none of them marked deleted or expired, in the
form in which this version would write it. Statistics of the footer only choose: the keys of a chosen group are decoded, must
ascend, and must lie within them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from paimon_cli.bucket.column_statistics import footer_statistics, leaf_numbers
from paimon_cli.bucket.data_file_reader import WHOLE, FilePart, file_format, read_part
from paimon_cli.bucket.data_file_writer import group_bytes
from paimon_cli.bucket.decoding import DECODE_ERRORS
from paimon_cli.bucket.deletion_vectors import NO_VECTORS, BucketVectors
from paimon_cli.bucket.file_encoders import codec_of
from paimon_cli.bucket.key_range import RangeReader, first_key, stored_keys
from paimon_cli.bucket.map_shredding import shreds_maps
from paimon_cli.bucket.merged_rows import RecordExpiry
from paimon_cli.bucket.stitched_files import CODEC_NUMBERS, StoredGroups, own_frame
from paimon_cli.compact.compaction_task import CompactionTask
from paimon_cli.datatypes.arrow_types import values_to_arrow
from paimon_cli.datatypes.data_type import FLOATING_ROOTS, DataField, PlainType
from paimon_cli.errors import DamagedFile
from paimon_cli.history.table_context import TableContext
from paimon_cli.lsm.key_search import SortedKeys
from paimon_cli.lsm.sorted_runs import SortedRun
from paimon_cli.metadata.data_file import SOURCE_COMPACT, DataFileMeta
from paimon_cli.metadata.data_file_schema import KEY_PREFIX, SEQUENCE_NUMBER, VALUE_KIND
from paimon_cli.metadata.encoded_footer import FooterFrame
from paimon_cli.metadata.parquet_footer import closed
from paimon_cli.pieces import PIECES
from paimon_cli.storage.capabilities import open_sized
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
    """A row group that may be copied if no newer key is between `low` and `high`: values of the first key column, or one whole
    key each. `ends_below`: its own keys are below `high`, the first of the next group. One without `sequences` must be merged.
    """

    file: DataFileMeta
    number: int
    rows: int
    size: int
    sequences: tuple[int, int] | None = None
    low: SortedKeys | None = None
    high: SortedKeys | None = None
    ends_below: bool = False


def can_copy(context: TableContext, task: CompactionTask) -> bool:
    """Whether the task writes files that may hold copied row groups."""
    options, level = context.options, task.output_level
    keys = context.schema.fields_of(context.schema.trimmed_primary_keys)
    return (
        level == task.max_level
        and task.drop_deletes
        and not options.force_rewrite_all_files
        and not task.cuts
        and not context.mode.changelog_producer.compares_top_levels
        and options.format_at(level) == PARQUET
        and not any(field.type.root in FLOATING_ROOTS for field in keys)
    )


@dataclass
class UntouchedGroups:
    """Chooses the groups to copy in the sections of one task. `range`: groups outside of it are another task's. `expiry`,
    `vectors`: groups with rows that these leave out are merged.
    """

    context: TableContext
    task: CompactionTask
    range: RangeReader | None = None
    expiry: RecordExpiry | None = None
    vectors: BucketVectors = NO_VECTORS

    def __post_init__(self) -> None:
        schema = self.context.schema
        self.keys = schema.trimmed_primary_keys
        self._first = schema.field(self.keys[0])
        self._firsts: dict[tuple[str, int], bytes] = {}

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
            if sum(f.row_count for f in newer) * 2 > sum(f.row_count for f in base):
                continue
            if sum(f.file_size for f in base) < group_bytes(self.context.options) // _MOST_COMPRESSED:  # probably a single group
                continue
            groups = [group for file in base for group in self._groups(file)]
            if groups := self._ascending(groups):
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
        """The groups of a file of the highest level."""
        merged = _Group(file, 0, file.row_count, file.file_size)
        is_current = file.schema_id == self.context.schema.id and file.write_cols is None
        has_numbers = file.file_source == SOURCE_COMPACT or not self.context.options.sequence_snapshot_ordering
        if not is_current or not has_numbers or file_format(file.file_name) != PARQUET:
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
        vector, start = self.vectors.of(file.file_name), 0
        for number, group in enumerate(stored.groups):
            keys, numbers, kinds = (footer_statistics(footer, leaves.get(name), t, False, [number]) for name, t in wanted)
            known = all(s.minimum is not None and s.maximum is not None and s.null_count == 0 for s in (keys, numbers, kinds))
            fits = 0 < group.rows <= room[1] and group.size <= room[0]
            keeps_all = vector is None or bool(vector.live_rows(group.rows, start).all())
            found = _Group(file, number, group.rows, group.size)
            start += group.rows
            if known and fits and keeps_all and kinds.minimum == kinds.maximum == 0 and not self._may_expire(footer, number):
                least, greatest = numbers.minimum, numbers.maximum
                if file.min_sequence_number <= least <= greatest <= file.max_sequence_number:
                    low, high = self._key(keys.minimum), self._key(keys.maximum)
                    found = replace(found, sequences=(least, greatest), low=low, high=high)
            yield found

    def _may_expire(self, footer: pq.FileMetaData, number: int) -> bool:
        """Whether the statistics show rows of the group that expire now. Its rows are looked at later."""
        if self.expiry is None:
            return False
        time = self.context.schema.field(self.expiry.column)
        leaf = leaf_numbers(self.context.file_layout.physical).get(time.name)
        known = footer_statistics(footer, leaf, time.type, False, [number])
        ends = pa.record_batch([values_to_arrow([known.minimum, known.maximum], time.type)], [time.name])
        return self.expiry.kept(ends).num_rows < 2

    def _key(self, value: object) -> SortedKeys:
        column = values_to_arrow([value], self._first.type)
        return SortedKeys.of(pa.record_batch([column], [self._first.name]), [self._first.name])

    def _ascending(self, groups: list[_Group]) -> list[_Group]:
        """The groups, if the bounds of those that may be copied ascend; empty if there are none.

        Where values of the first key column are in several groups, the bounds become whole keys: a group begins with its first
        key, and ends before that of the next one, or with the greatest key of its file.
        """
        if len(self.keys) == 1 or _bounds_ascend(groups):
            return groups if _bounds_ascend(groups) else []
        whole = self._with_whole_keys(groups)
        return whole if _bounds_ascend(whole) else []

    def _with_whole_keys(self, groups: list[_Group]) -> list[_Group]:
        result: list[_Group] = []
        for group, after in pairwise((*groups, None)):
            assert group is not None
            if group.sequences is None:
                result.append(group)
                continue
            try:
                low, high = (self._first_of(group), self._first_of(after) if after is not None and after.number else None)
            except (DamagedFile, FileNotFoundError):
                return []  # merging reports what is wrong with it
            bounds = stored_keys(self.context, [low, group.file.max_key if high is None else high])
            result.append(replace(group, low=bounds.slice(0, 1), high=bounds.slice(1, 2), ends_below=high is not None))
        return result

    def _first_of(self, group: _Group) -> bytes:
        if group.number == 0:
            return group.file.min_key
        key = group.file.file_name, group.number
        if key not in self._firsts:
            self._firsts[key] = first_key(self.context, self.task.bucket_id, group.file, group.number)
        return self._firsts[key]

    def _untouched(self, groups: list[_Group], newer: Sequence[DataFileMeta]) -> list[_Group]:
        """The groups in whose range no newer run has a key, without small ones that are better merged with their neighbours."""
        known = [number for number, group in enumerate(groups) if group.sequences is not None]
        lows, highs = _bounds(groups)
        names = self.keys[: len(lows.columns)]
        is_ours = np.ones(len(known), bool)
        if self.range is not None:
            is_ours = self.range.holds(lows, highs, np.array([groups[number].ends_below for number in known]))
        touched, between = np.zeros(len(known) + 1, np.int64), np.zeros(len(known) + 1, np.int64)
        for file in newer:
            part = WHOLE if self.range is None else self.range.row_groups()
            for _, batch in read_part(self.context, self.task.bucket_id, file, names, PIECES.kind_batch_rows, part):
                keys = SortedKeys.of(batch, names)
                first, end = highs.below(keys), lows.up_to(keys)
                np.add.at(touched, first[first < end], 1)
                np.add.at(touched, end[first < end], -1)
                np.add.at(between, first[first >= end], 1)
        is_copied = [False] * len(groups)
        for number, ours, count in zip(known, is_ours.tolist(), accumulate(touched[:-1].tolist()), strict=True):
            is_copied[number] = ours and count == 0
        for right in np.flatnonzero(between[1:-1]) + 1:  # a gap whose rows would become a small group of their own
            left, after = known[right - 1], known[right]
            if left + 1 == after and is_copied[left] and is_copied[after]:
                is_copied[min(left, after, key=lambda number: groups[number].size)] = False
        return _without_small_neighbours(groups, is_copied)

    def _proven(self, groups: list[_Group]) -> Iterator[UntouchedGroup]:
        """The groups whose rows are in ascending order, inside of their bounds, and do not expire."""
        columns = [*self.keys, *([self.expiry.column] if self.expiry is not None and self.expiry.column not in self.keys else [])]
        before: SortedKeys | None = None
        for group in groups:
            only = FilePart(keeps=lambda _, number, wanted=group.number: number == wanted)  # type: ignore[misc]
            read = read_part(self.context, self.task.bucket_id, group.file, columns, group.rows, only)
            (rows,) = pa.Table.from_batches([batch for _, batch in read]).combine_chunks().to_batches()
            keys = SortedKeys.of(rows, self.keys)
            ends = keys.take(np.array([0, len(keys) - 1]))
            assert group.low is not None and group.high is not None and group.sequences is not None
            known = ends.prefix(len(group.low.columns))
            above = group.high.up_to(known) if group.ends_below else group.high.below(known)
            inside = group.low.up_to(known).all() and not above.any()
            follows = before is None or before.below(ends.slice(0, 1))[0] == 1
            keeps_all = self.expiry is None or self.expiry.kept(rows).num_rows == len(keys)
            if inside and follows and keeps_all and keys.ascends_at(np.arange(1, len(keys))).all():
                before = ends.slice(1, 2)
                bounds = rows.select(list(self.keys)).take(pa.array([0, len(keys) - 1]))
                yield UntouchedGroup(group.file, group.number, group.size, group.sequences, bounds)


def _bounds(groups: Sequence[_Group]) -> tuple[SortedKeys, SortedKeys]:
    """The lows and the highs of the groups that may be copied, of which there is one at least."""
    return (
        SortedKeys.joined([group.low for group in groups if group.low is not None]),
        SortedKeys.joined([group.high for group in groups if group.high is not None]),
    )


def _bounds_ascend(groups: Sequence[_Group]) -> bool:
    """Whether some group may be copied, and the bounds of those that may be do not overlap."""
    known = [group for group in groups if group.sequences is not None]
    if not known:
        return False
    lows, highs = _bounds(known)
    numbers, follows = np.arange(len(known)), np.array([False, *(group.ends_below for group in known[:-1])])
    follows = (highs.below(lows) >= numbers) | (follows & (highs.up_to(lows) >= numbers))
    return bool((lows.up_to(lows) > numbers).all() and follows.all())


def _without_small_neighbours(groups: Sequence[_Group], is_copied: list[bool]) -> list[_Group]:
    """The groups to copy, without small ones (less than half a usual group) beside rows that are merged, or at an end, where rows
    of other sections may be: else every compaction would leave more and smaller groups.
    """
    usual = max(group.size for group in groups)
    for end in (0, -1):
        if groups[end].size * 2 < usual:
            is_copied[end] = False
    for order in (range(1, len(groups)), range(len(groups) - 2, -1, -1)):
        step = -order.step
        for number in order:
            if not is_copied[number + step] and groups[number].size * 2 < usual:
                is_copied[number] = False
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
