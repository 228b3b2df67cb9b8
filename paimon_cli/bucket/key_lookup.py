"""Where keys live in the files of a bucket above level 0, and the rows at given positions of a file.

No index of the table is kept. Files are sorted by key, so a lookup is a merge join of the keys asked for, which are sorted too,
with the key columns of the files, row groups and pages whose bounds admit one of them.
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

from paimon_cli.bucket.data_file_reader import FilePart, check_decoded, decoding, file_format, read_data_file, read_part
from paimon_cli.bucket.deletion_vectors import BucketVectors
from paimon_cli.bucket.key_copy import KeyCopy
from paimon_cli.bucket.parquet_chunks import read_footer
from paimon_cli.bucket.parquet_pages import MEMORY_PER_FOOTER_BYTE, PagedColumns, one_batch
from paimon_cli.bucket.schema_evolution import ReadColumns
from paimon_cli.datatypes.arrow_types import values_to_arrow
from paimon_cli.datatypes.data_type import FLOATING_ROOTS
from paimon_cli.datatypes.key_order import NULL_PART, comparable
from paimon_cli.errors import DamagedFile
from paimon_cli.history.table_context import TableContext
from paimon_cli.lsm.key_search import ABSENT, KeyBounds, Places, SortedKeys
from paimon_cli.metadata.data_file import BucketId, DataFileMeta
from paimon_cli.metadata.data_file_schema import VALUE_KIND, read_schema
from paimon_cli.metadata.parquet_footer import Footer
from paimon_cli.storage.storage import open_sized

BATCH_ROWS = 65536
FEWEST_DENSE_KEYS, ROWS_PER_KEY, MOST_BLOCKS = 1000, 2048, 0.9
"""The whole file is read for this many keys or more, if this share of its blocks has a key for this many rows or fewer."""
UNSORTED = "its rows are not sorted by key, or its page index is damaged"


@dataclass(frozen=True)
class FoundRows:
    """Where keys live: parallel arrays, one element for each key looked up.

    `file`: its index in the files given, `ABSENT` for a key that none of them holds. `position`: the row's ordinal in that file.
    """

    file: NDArray[np.int32]
    position: NDArray[np.int64]


def find_keys(
    context: TableContext, bucket_id: BucketId, files: Sequence[DataFileMeta], keys: pa.Table, vectors: BucketVectors
) -> FoundRows:
    """Where each of the keys lives. `keys`: the trimmed primary key, in key order, each key once.

    `files`: any of one bucket above level 0. Files of one level are disjoint, and a row of a lower level shadows those of higher
    ones; a row that a vector marks as deleted does not count. A row found may be a retraction, where files hold any.
    """
    wanted = SortedKeys.of(keys, context.schema.trimmed_primary_keys)
    found = FoundRows(np.full(len(wanted), ABSENT, np.int32), np.zeros(len(wanted), np.int64))
    if len(wanted) == 0 or not files:
        return found
    lows, highs = (key_bounds(context, [getattr(file, bound) for file in files]) for bound in ("min_key", "max_key"))
    begins, ends = wanted.below(lows), wanted.up_to(highs)
    for number in sorted(range(len(files)), key=lambda number: files[number].level):
        begin, end = int(begins[number]), int(ends[number])
        asked = begin + np.flatnonzero(found.file[begin:end] == ABSENT)
        if len(asked) == 0:
            continue
        file = files[number]
        keys_here = wanted.slice(begin, end) if len(asked) == end - begin else wanted.take(asked)
        positions = positions_in_file(context, bucket_id, file, keys_here)
        deleted = vectors.of(file.file_name)
        if deleted is not None:
            positions[deleted.marks(positions)] = ABSENT
        is_here = positions != ABSENT
        found.file[asked[is_here]] = number
        found.position[asked[is_here]] = positions[is_here]
    return found


def key_bounds(context: TableContext, serialised: list[bytes]) -> SortedKeys:
    """Keys of manifest entries, in the entries' order, as columns that compare with those of rows."""
    keys = ((None if part == NULL_PART else part for part in context.key_of(key)) for key in serialised)
    cells = zip(*keys, strict=True)
    columns = [
        # `key_of` gives floats as the integers that `comparable` makes of them
        pa.array(values, pa.int64()) if t.root in FLOATING_ROOTS else comparable(values_to_arrow(values, t))
        for values, t in zip(cells, context.key_types, strict=True)
    ]
    return SortedKeys(tuple(columns))


def positions_in_file(context: TableContext, bucket_id: BucketId, file: DataFileMeta, keys: SortedKeys) -> Places:
    """The row of each key in the file, `ABSENT` where it has none.

    A service that has decoded as many keys of a file as it holds copies them for the next time.
    """
    path = context.data_file_path(*bucket_id, file)
    kept, name = context.kept, (path, context.schema.id)
    known = kept.facts.get(name) or _KnownFile()
    if kept.keeps_copies and (kept.copies.get(name) or known.rows_read >= file.row_count):
        copy = kept.copies.get(name) or _copied(context, bucket_id, file)
        kept.copies.put(name, copy)
        return copy.positions(keys)
    found: Places | None = None
    if file_format(file.file_name) == "parquet":
        with decoding(path), open_sized(context.storage, path, file.file_size) as source:
            found = _positions_by_bounds(context, file, source, keys, known)
    if found is None:
        known.rows_read += file.row_count
        found = _streamed_positions(context, bucket_id, file, keys)
    kept.facts.put(name, known)
    return found


def _positions_by_bounds(
    context: TableContext, file: DataFileMeta, source: BinaryIO, keys: SortedKeys, known: _KnownFile
) -> Places | None:
    """As `positions_in_file`; None where bounds save nothing, or are not known.

    Many keys are first compared with the bounds of row groups, which pyarrow decodes: to decode page indexes takes as long as to
    read the keys of half a million rows.
    """
    if known.blocks is None:
        if len(keys) >= FEWEST_DENSE_KEYS and _are_all_over(context, file, source, keys):
            return None
        known.footer = known.footer or checked_footer(source, file)
        known.blocks = _KeyBlocks.of(context, file, source, known.footer)
    if known.blocks is None or known.blocks.are_dense(keys):
        return None
    found, rows = known.blocks.positions(source, keys)
    known.rows_read += rows
    return found


def _are_all_over(context: TableContext, file: DataFileMeta, source: BinaryIO, keys: SortedKeys) -> bool:
    """Whether the keys are dense in the row groups; False where the first key column is neither an integer nor a text."""
    metadata = pq.read_metadata(source)
    (name,) = ReadColumns(context, file, context.schema.trimmed_primary_keys[:1]).physical
    leaf = [metadata.schema.column(leaf).path for leaf in range(metadata.num_columns)].index(name)
    groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
    known = [group.column(leaf).statistics for group in groups]
    lows = [one.min if one is not None and one.has_min_max else None for one in known]
    if not lows or type(lows[0]) not in (int, str) or len({type(low) for low in lows}) > 1:
        return False
    return _are_dense(keys, SortedKeys((comparable(pa.array(lows)),)), np.array([group.num_rows for group in groups]))


def _are_dense(keys: SortedKeys, lows: SortedKeys, rows: Places) -> bool:
    """Whether there are keys all over consecutive blocks of this many rows, which begin with the keys `lows`."""
    if len(keys) < FEWEST_DENSE_KEYS:
        return False
    edges = keys.prefix(len(lows.columns)).below(lows)
    enough = np.diff(edges, append=len(keys)) >= np.maximum(1, rows // ROWS_PER_KEY)
    return bool(np.count_nonzero(enough) >= len(lows) * MOST_BLOCKS)


def _copied(context: TableContext, bucket_id: BucketId, file: DataFileMeta) -> KeyCopy:
    return KeyCopy.write(context.kept.new_copy(file.file_name), _all_keys(context, bucket_id, file))


def _all_keys(context: TableContext, bucket_id: BucketId, file: DataFileMeta) -> Iterator[SortedKeys]:
    """The keys of all rows in large batches, whose ends are looked at to see whether they ascend."""
    names = context.schema.trimmed_primary_keys
    last: SortedKeys | None = None
    for _, batch in read_part(context, bucket_id, file, names, 4 * BATCH_ROWS, FilePart(is_alone=True)):
        keys = SortedKeys.of(batch, names)
        first, end = keys.slice(0, 1), keys.slice(len(keys) - 1, len(keys))
        if end.below(first)[0] or (last is not None and last.below(first)[0] == 0):
            path = context.data_file_path(*bucket_id, file)
            raise DamagedFile(f"cannot read data file {path}", "its rows are not sorted by key", path=path)
        last = end
        yield keys


@dataclass
class _KnownFile:
    """What a process remembers of a file in which it has looked up keys or rows."""

    footer: Footer | None = None
    blocks: _KeyBlocks | None = None
    rows_read: int = 0
    only_adds: bool | None = None

    @property
    def size(self) -> int:
        """Bytes, roughly."""
        footer = 0 if self.footer is None else MEMORY_PER_FOOTER_BYTE * self.footer.size
        return footer + (0 if self.blocks is None else self.blocks.pages.size + self.blocks.bounds.size)


def holds_only_adds(context: TableContext, bucket_id: BucketId, file: DataFileMeta) -> bool:
    """Whether the statistics that a Parquet file keeps of its own rows rule out that one of them is a retraction."""
    if file_format(file.file_name) != "parquet":
        return False
    path = context.data_file_path(*bucket_id, file)
    known = context.kept.facts.get((path, context.schema.id)) or _KnownFile()
    if known.only_adds is None:
        with decoding(path), open_sized(context.storage, path, file.file_size) as source:
            known.footer = known.footer or checked_footer(source, file)
            pages = PagedColumns.of(source, known.footer, [VALUE_KIND])
            ends = None if pages is None else pages.bounds(source, 0)
        known.only_adds = ends is not None and all(pc.equal(ends[0], ends[1]).to_pylist()) and not _any_odd(ends[0])
        context.kept.facts.put((path, context.schema.id), known)
    return known.only_adds


def _any_odd(kinds: pa.Array) -> bool:
    return bool((kinds.to_numpy(zero_copy_only=False).astype(np.int64) & 1).any())


def _streamed_positions(context: TableContext, bucket_id: BucketId, file: DataFileMeta, keys: SortedKeys) -> Places:
    """All rows are read: a key is absent only if none of them was out of order."""
    positions = np.full(len(keys), ABSENT, np.int64)
    first_row = done = 0
    for rows in _all_keys(context, bucket_id, file):
        end = max(done, int(keys.up_to(rows.slice(len(rows) - 1, len(rows)))[0]))
        asked = keys.slice(done, end)
        places = rows.below(asked)
        positions[done:end] = np.where(rows.equal_at(places, asked), first_row + places, ABSENT)
        first_row, done = first_row + len(rows), end
    return positions


@dataclass(frozen=True)
class _KeyBlocks:
    """The key columns of a Parquet file in blocks (pages, or else row groups), and what is known of the keys in each.

    Bounds only say where to look. A key is absent if two neighbouring rows were read between which it would stand; bounds that
    lead elsewhere are damaged.
    """

    read: ReadColumns
    names: Sequence[str]
    pages: PagedColumns
    bounds: KeyBounds
    row_count: int

    @staticmethod
    def of(context: TableContext, file: DataFileMeta, source: BinaryIO, footer: Footer) -> _KeyBlocks | None:
        """None for a file without bounds of its first key column."""
        names = context.schema.trimmed_primary_keys
        read = ReadColumns(context, file, names)
        pages = PagedColumns.of(source, footer, read.physical)
        if pages is None:
            return None
        ends: list[tuple[pa.Array, pa.Array]] = []
        for place, t in enumerate(context.key_types):
            # bounds of floats leave out NaN, the greatest key
            known = None if t.root in FLOATING_ROOTS else pages.bounds(source, place)
            if known is None:
                break
            ends.append(known)
        if not ends:
            return None
        known_columns = ReadColumns(context, file, names[: len(ends)])
        sides = []
        for side in zip(*ends, strict=True):
            batch = known_columns.of(pa.RecordBatch.from_arrays(list(side), names=known_columns.physical))
            sides.append(SortedKeys.of(batch, names[: len(ends)]))
        return _KeyBlocks(read, names, pages, KeyBounds.of(*sides), file.row_count)

    def are_dense(self, keys: SortedKeys) -> bool:
        """Whether hardly any block lies between two of the keys."""
        return _are_dense(keys, self.bounds.lows, self.pages.ends - self.pages.begins)

    def positions(self, source: BinaryIO, keys: SortedKeys) -> tuple[Places | None, int]:
        """The row of each key, from the blocks whose bounds admit it, and how many rows were decoded for that.

        None where one key is within the bounds of more blocks than memory has room for.
        """
        first, last = self.bounds.blocks(keys)
        decoded = 0
        found = np.full(len(keys), ABSENT, np.int64)
        for begin, end, blocks in self.pages.portions(first, last):
            if self.pages.exceeds(blocks):
                return None, decoded
            decoded += self.pages.row_count(blocks)
            asked = keys.slice(begin, end)
            rows, before, after = self._among(source, asked, blocks)
            lost = np.flatnonzero((rows == ABSENT) & (after - before != 1))
            if len(lost):
                around = np.stack([before[lost], before[lost] + 1, after[lost] - 1, after[lost]])
                neighbours = np.unique(self.pages.of_rows(np.clip(around, 0, self.row_count - 1)))
                rows[lost], before, after = self._among(source, asked.take(lost), neighbours)
                if ((rows[lost] == ABSENT) & (after - before != 1)).any():
                    raise ValueError("the bounds in its page index or footer are not those of its rows")
            found[begin:end] = rows
        return found, decoded

    def _among(self, source: BinaryIO, keys: SortedKeys, blocks: Places) -> tuple[Places, Places, Places]:
        """The row of each key in these blocks, and the rows read before and after the place where it would stand."""
        stored, run = self._keys_of(source, blocks), self.pages.run(blocks)
        places = stored.below(keys)
        before = np.where(places > 0, run.rows_of(np.maximum(places - 1, 0)), -1)
        after = np.where(places < len(stored), run.rows_of(np.minimum(places, len(stored) - 1)), self.row_count)
        return np.where(stored.equal_at(places, keys), after, ABSENT), before, after

    def _keys_of(self, source: BinaryIO, blocks: Places) -> SortedKeys:
        batch = self.read.of(one_batch(self.pages.read(source, blocks)))
        check_decoded(batch)
        stored = SortedKeys.of(batch, self.names)
        if not stored.ascends_at(self.pages.run(blocks).starts[1:]):
            raise ValueError(UNSORTED)
        return stored


def rows_at(
    context: TableContext, bucket_id: BucketId, file: DataFileMeta, positions: Places, columns: Sequence[str]
) -> pa.Table:
    """The rows at these ascending positions of the file, with `columns` as in `read_data_file`."""
    if len(positions) and not 0 <= positions[0] <= positions[-1] < file.row_count:
        why = f"row {positions[-1]} was asked for, it holds {file.row_count}"
        raise DamagedFile(f"no such row in data file {file.file_name}", why, path=file.file_name)
    schema = read_schema(context.schema, columns)
    chosen: list[pa.RecordBatch] = []
    if len(positions):
        paged = _paged_rows(context, bucket_id, file, positions, columns)
        chosen = list(_streamed_rows(context, bucket_id, file, positions, columns)) if paged is None else [paged]
    return pa.Table.from_batches([pa.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in chosen], schema)


def _paged_rows(
    context: TableContext, bucket_id: BucketId, file: DataFileMeta, positions: Places, columns: Sequence[str]
) -> pa.RecordBatch | None:
    """Each column from those of its pages that hold one of the rows; None where a file is not read by pages."""
    read = ReadColumns(context, file, columns)
    if file_format(file.file_name) != "parquet" or not read.physical:
        return None
    path = context.data_file_path(*bucket_id, file)
    name = (path, context.schema.id)
    known = context.kept.facts.get(name) or _KnownFile()
    with decoding(path), open_sized(context.storage, path, file.file_size) as source:
        footer = known.footer = known.footer or checked_footer(source, file)
        context.kept.facts.put(name, known)
        stored = []
        for column in read.physical:
            pages = PagedColumns.of(source, footer, [column], positions)
            if pages is None:
                return None
            stored.append(pages.rows_at(source, positions))
        batch = read.of(pa.RecordBatch.from_arrays(stored, names=read.physical))
        check_decoded(batch)
    return batch


def checked_footer(source: BinaryIO, file: DataFileMeta) -> Footer:
    """Raises `ValueError` where the data file does not hold as many rows as its metadata says."""
    footer = read_footer(source)
    if footer.row_count != file.row_count:
        raise ValueError(f"it holds {footer.row_count} rows, its manifest says {file.row_count}")
    return footer


def _streamed_rows(
    context: TableContext, bucket_id: BucketId, file: DataFileMeta, positions: Places, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    first_row = done = 0
    for batch in read_data_file(context, bucket_id, file, columns, BATCH_ROWS):
        end = int(np.searchsorted(positions, first_row + batch.num_rows))
        if end > done:
            yield batch.take(pa.array(positions[done:end] - first_row))
        first_row, done = first_row + batch.num_rows, end
        if done == len(positions):
            return
