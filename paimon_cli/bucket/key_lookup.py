"""Finds keys in the files of a bucket above level 0, and reads the rows at given positions of a file.

No index is needed: files are sorted by key, so that a lookup is a merge join of the requested keys, which are sorted, too, with
the key columns of the files, row groups and pages whose bounds admit one of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from paimon_cli.bucket.column_statistics import chunk_statistics, leaf_numbers
from paimon_cli.bucket.data_file_reader import FilePart, file_format, read_part
from paimon_cli.bucket.decoding import check_decoded, decoding
from paimon_cli.bucket.deletion_vectors import BucketVectors
from paimon_cli.bucket.key_blocks import KeyBlocks, KnownFile, Portion, RunBlocks, RunSearch, checked_footer
from paimon_cli.bucket.key_copy import KeyCopy
from paimon_cli.bucket.parquet_pages import PagedColumns
from paimon_cli.bucket.schema_evolution import ReadColumns
from paimon_cli.datatypes.key_order import comparable
from paimon_cli.errors import DamagedFile
from paimon_cli.history.table_context import TableContext
from paimon_cli.lsm.key_search import ABSENT, Indices, SortedKeys
from paimon_cli.metadata.data_file import BucketId, DataFileMeta
from paimon_cli.metadata.data_file_schema import VALUE_KIND, read_schema
from paimon_cli.pieces import PIECES
from paimon_cli.storage.capabilities import open_sized

DENSE_BLOCK_SHARE = 0.9
"""The whole file is read for at least this many keys or positions, if this share of its blocks has one per this many rows."""


@dataclass(frozen=True)
class FoundRows:
    """Where keys live: parallel arrays with one element per requested key.

    `file`: index of the file among those given, `ABSENT` if none of them holds the key. `position`: number of the row in that
    file, from 0.
    """

    file: NDArray[np.int32]
    position: NDArray[np.int64]


def find_keys(
    context: TableContext, bucket_id: BucketId, files: Sequence[DataFileMeta], keys: pa.Table, vectors: BucketVectors
) -> FoundRows:
    """Find the row of each key. `keys`: the trimmed primary key, in key order, each key once.

    `files`: files of the bucket above level 0. Files of one level are disjoint, and a row hides rows of its key in higher levels.
    Rows that a vector marks as deleted do not count. A row that is found may be a retraction.
    """
    wanted = SortedKeys.of(keys, context.schema.trimmed_primary_keys)
    found = FoundRows(np.full(len(wanted), ABSENT, np.int32), np.zeros(len(wanted), np.int64))
    for level in sorted({file.level for file in files}):
        numbers = [number for number, file in enumerate(files) if file.level == level]
        missing = np.flatnonzero(found.file == ABSENT)
        if len(missing) == 0:
            break
        run = [files[number] for number in numbers]
        in_file, positions = _find_in_run(
            context, bucket_id, run, wanted if len(missing) == len(wanted) else wanted.take(missing)
        )
        for number in np.unique(in_file[positions != ABSENT]).tolist():
            deleted = vectors.of(run[number].file_name)
            if deleted is not None:
                here = np.flatnonzero((in_file == number) & (positions != ABSENT))
                positions[here[deleted.marks(positions[here])]] = ABSENT
        is_here = positions != ABSENT
        found.file[missing[is_here]] = np.array(numbers)[in_file[is_here]]
        found.position[missing[is_here]] = positions[is_here]
    return found


def positions_in_file(context: TableContext, bucket_id: BucketId, file: DataFileMeta, keys: SortedKeys) -> Indices:
    """The row of each key in the file, `ABSENT` for keys that it does not hold."""
    return _find_in_run(context, bucket_id, [file], keys)[1]


def _find_in_run(
    context: TableContext, bucket_id: BucketId, files: Sequence[DataFileMeta], keys: SortedKeys
) -> tuple[Indices, Indices]:
    """For each key the one of the disjoint files that may hold it, and its row there; `ABSENT` if there is none."""
    name = (tuple(file.file_name for file in files), context.schema.id)
    run = context.cache.kept.facts.get(name)
    if run is None:
        run = RunBlocks.of(context, files)
        context.cache.kept.facts.put(name, run)
    return _RunLookup(context, bucket_id, name, run).find(keys)


@dataclass
class _RunLookup:
    """One lookup in a sorted run. Each file is read in the cheapest way: by pages, as a whole, or from a copy of its keys.

    A service copies the keys of a file once it has decoded as many of them as the file has rows.
    """

    context: TableContext
    bucket_id: BucketId
    name: tuple[object, ...]
    run: RunBlocks

    def find(self, keys: SortedKeys) -> tuple[Indices, Indices]:
        in_file, positions = np.full(len(keys), ABSENT, np.int64), np.full(len(keys), ABSENT, np.int64)
        known, paged = list(self.run.known), list[Portion]()
        for portion in self.run.portions(keys):
            number, begin, end = portion
            in_file[begin:end] = self.run.numbers[number]
            if known[number] is None or self.context.cache.kept.keeps_copies or end - begin >= PIECES.dense_keys:
                blocks = self._blocks_or_positions(number, keys.slice(begin, end))
                if not isinstance(blocks, KeyBlocks):
                    positions[begin:end] = blocks
                    continue
                known[number] = blocks
            paged.append(portion)
        if any(now is not before for now, before in zip(known, self.run.known, strict=True)):
            self.run = self.run.with_known(known)
            self.context.cache.kept.facts.put(self.name, self.run)
        if paged:
            self._search_pages(keys, paged, positions)
        return in_file, positions

    def _search_pages(self, keys: SortedKeys, portions: Sequence[Portion], positions: Indices) -> None:
        """Fill in `positions` for these portions. Files with pages too large for the memory of a lookup are read as a whole."""
        rows = np.concatenate([np.arange(begin, end) for _, begin, end in portions])
        numbers = np.repeat([portion.number for portion in portions], [end - begin for _, begin, end in portions])
        paged_keys = keys if len(rows) == len(keys) else keys.take(rows)
        first, last = self.run.blocks_of(paged_keys, numbers)
        too_large = set(numbers[self.run.blocks.exceeds(first, last)].tolist())
        if too_large:
            for number, begin, end in portions:
                if number in too_large:
                    file, wanted = self.run.files[number], keys.slice(begin, end)
                    positions[begin:end] = _streamed_positions(self.context, self.bucket_id, file, wanted)
            rest = [portion for portion in portions if portion.number not in too_large]
            if rest:
                self._search_pages(keys, rest, positions)
            return
        found = RunSearch(self.context, self.bucket_id, self.run).rows(paged_keys, numbers, first, last)
        positions[rows] = np.where(found == ABSENT, ABSENT, found - self.run.first_rows[numbers])

    def _blocks_or_positions(self, number: int, keys: SortedKeys) -> KeyBlocks | Indices:
        """The blocks of a file to search for the keys, or the row of each key if pages save nothing or are not known.

        Many keys are first compared with the bounds of row groups, which pyarrow decodes: decoding page indexes takes as long as
        reading the keys of half a million rows.
        """
        context, bucket_id, file = self.context, self.bucket_id, self.run.files[number]
        path, kept = context.data_file_path(*bucket_id, file), context.cache.kept
        name = (path, context.schema.id)
        known = kept.facts.get(name) or KnownFile()
        copy: KeyCopy | None = kept.copies.get(name) if kept.keeps_copies else None
        if copy is None and kept.keeps_copies and known.rows_read >= file.row_count:
            copy = _copied(context, bucket_id, file)
            kept.copies.put(name, copy)
        if copy is not None:
            return copy.positions(keys)
        blocks = known.blocks
        if blocks is None and file_format(file.file_name) == "parquet":
            with decoding(path, context=context), open_sized(context.storage, path, file.file_size) as source:
                if len(keys) < PIECES.dense_keys or not _are_dense_in_groups(context, file, source, keys):
                    known.footer = known.footer or checked_footer(source, file)
                    known.blocks = blocks = KeyBlocks.of(context, file, source, known.footer)
        if blocks is None or _are_dense(keys, blocks.bounds.lows, blocks.row_counts):
            known.rows_read += file.row_count
            kept.facts.put(name, known)
            return _streamed_positions(context, bucket_id, file, keys)
        known.rows_read += blocks.rows_for(keys) if kept.keeps_copies else 0
        kept.facts.put(name, known)
        return blocks


def _are_dense_in_groups(context: TableContext, file: DataFileMeta, source: BinaryIO, keys: SortedKeys) -> bool:
    """Whether the keys are dense in the row groups; False unless the first key column is an integer or a text."""
    metadata = pq.read_metadata(source)
    (name,) = ReadColumns(context, file, context.schema.trimmed_primary_keys[:1]).physical
    leaf = leaf_numbers(metadata.schema.to_arrow_schema())[name]
    groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
    statistics = [chunk_statistics(metadata, group, leaf) for group in range(metadata.num_row_groups)]
    lows = [chunk.min if chunk is not None and chunk.has_min_max else None for chunk in statistics]
    if not lows or type(lows[0]) not in (int, str) or len({type(low) for low in lows}) > 1:
        return False
    return _are_dense(keys, SortedKeys((comparable(pa.array(lows)),)), np.array([group.num_rows for group in groups]))


def _are_dense(keys: SortedKeys, lows: SortedKeys, rows: Indices) -> bool:
    """Whether most of some consecutive blocks hold many of the keys.

    `lows`: the first key of each; `rows`: its number of rows.
    """
    if len(keys) < PIECES.dense_keys:
        return False
    edges = keys.prefix(len(lows.columns)).below(lows)
    is_dense = np.diff(edges, append=len(keys)) >= np.maximum(1, rows // PIECES.rows_per_key)
    return bool(np.count_nonzero(is_dense) >= len(lows) * DENSE_BLOCK_SHARE)


def _copied(context: TableContext, bucket_id: BucketId, file: DataFileMeta) -> KeyCopy:
    return KeyCopy.write(context.cache.kept.new_copy(file.file_name), _all_keys(context, bucket_id, file))


def _all_keys(context: TableContext, bucket_id: BucketId, file: DataFileMeta) -> Iterator[SortedKeys]:
    """The keys of all rows in large batches. Raises `DamagedFile` if the ends of the batches do not ascend."""
    names = context.schema.trimmed_primary_keys
    last: SortedKeys | None = None
    for _, batch in read_part(context, bucket_id, file, names, 4 * PIECES.batch_rows, FilePart(is_alone=True)):
        keys = SortedKeys.of(batch, names)
        first, end = keys.slice(0, 1), keys.slice(len(keys) - 1, len(keys))
        if end.below(first)[0] or (last is not None and last.below(first)[0] == 0):
            path = context.data_file_path(*bucket_id, file)
            raise DamagedFile(f"cannot read data file {path}", "its rows are not sorted by key", path=path)
        last = end
        yield keys


def holds_only_adds(context: TableContext, bucket_id: BucketId, file: DataFileMeta) -> bool:
    """Whether the statistics in a Parquet file rule out that one of its rows is a retraction; False for other formats."""
    if file_format(file.file_name) != "parquet":
        return False
    path = context.data_file_path(*bucket_id, file)
    known = context.cache.kept.facts.get((path, context.schema.id)) or KnownFile()
    if known.only_adds is None:
        with decoding(path, context=context), open_sized(context.storage, path, file.file_size) as source:
            known.footer = known.footer or checked_footer(source, file)
            pages = PagedColumns.of(source, known.footer, [VALUE_KIND])
            ends = None if pages is None else pages.bounds(source, 0)
        known.only_adds = ends is not None and all(pc.equal(ends[0], ends[1]).to_pylist()) and not _any_odd(ends[0])
        context.cache.kept.facts.put((path, context.schema.id), known)
    return known.only_adds


def _any_odd(kinds: pa.Array) -> bool:
    return bool((kinds.to_numpy(zero_copy_only=False).astype(np.int64) & 1).any())


def _streamed_positions(context: TableContext, bucket_id: BucketId, file: DataFileMeta, keys: SortedKeys) -> Indices:
    """The row of each key, found by reading the keys of the whole file."""
    positions = np.full(len(keys), ABSENT, np.int64)
    first_row = done = 0
    for rows in _all_keys(context, bucket_id, file):
        end = max(done, int(keys.up_to(rows.slice(len(rows) - 1, len(rows)))[0]))
        wanted = keys.slice(done, end)
        at = rows.below(wanted)
        positions[done:end] = np.where(rows.equal_at(at, wanted), first_row + at, ABSENT)
        first_row, done = first_row + len(rows), end
    return positions


def rows_at(
    context: TableContext, bucket_id: BucketId, file: DataFileMeta, positions: Indices, columns: Sequence[str]
) -> pa.Table:
    """The rows at these positions of the file, which ascend. `columns`: as in `read_data_file`."""
    if len(positions) and not 0 <= positions[0] <= positions[-1] < file.row_count:
        why = f"row {positions[-1]} is requested, it holds {file.row_count} rows"
        raise DamagedFile(f"no such row in data file {file.file_name}", why, path=file.file_name)
    schema = read_schema(context.schema, columns)
    batches: list[pa.RecordBatch] = []
    if len(positions):
        is_streamed = _are_everywhere(positions, file)
        paged = None if is_streamed else _paged_rows(context, bucket_id, file, positions, columns)
        batches = list(_streamed_rows(context, bucket_id, file, positions, columns)) if paged is None else [paged]
    return pa.Table.from_batches([pa.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in batches], schema)


def _are_everywhere(positions: Indices, file: DataFileMeta) -> bool:
    """Whether the positions, which ascend, hit most of the intervals of `rows_per_key` rows: pages would save next to nothing.

    A whole file is decoded with larger buffers, and takes less time than all of its pages.
    """
    if len(positions) < PIECES.dense_keys:
        return False
    intervals = 1 + np.count_nonzero(np.diff(positions // PIECES.rows_per_key))
    return bool(intervals >= file.row_count / PIECES.rows_per_key * DENSE_BLOCK_SHARE)


def _paged_rows(
    context: TableContext, bucket_id: BucketId, file: DataFileMeta, positions: Indices, columns: Sequence[str]
) -> pa.RecordBatch | None:
    """The rows, decoded from the pages of each column that hold one of them; None for files that are not read by pages."""
    read = ReadColumns(context, file, columns)
    if file_format(file.file_name) != "parquet" or not read.physical:
        return None
    path = context.data_file_path(*bucket_id, file)
    name = (path, context.schema.id)
    known = context.cache.kept.facts.get(name) or KnownFile()
    with decoding(path, context=context), open_sized(context.storage, path, file.file_size) as source:
        footer = known.footer = known.footer or checked_footer(source, file)
        context.cache.kept.facts.put(name, known)
        stored = []
        for column in read.physical:
            pages = PagedColumns.of(source, footer, [column], positions)
            if pages is None:
                return None
            stored.append(pages.rows_at(source, positions))
        batch = read.of(pa.RecordBatch.from_arrays(stored, names=read.physical))
        check_decoded(batch)
    return batch


def _streamed_rows(
    context: TableContext, bucket_id: BucketId, file: DataFileMeta, positions: Indices, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    done = 0
    for first_row, batch in read_part(context, bucket_id, file, columns, PIECES.batch_rows, FilePart(is_alone=True)):
        end = int(np.searchsorted(positions, first_row + batch.num_rows))
        if end > done:
            yield batch.take(pa.array(positions[done:end] - first_row))
        done = end
        if done == len(positions):
            return
