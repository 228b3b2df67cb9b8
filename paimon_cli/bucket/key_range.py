"""Reads only the rows of data files whose keys are in a range, so that several tasks can share the merge of one section."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from paimon_cli.bucket.column_statistics import footer_statistics, leaf_numbers
from paimon_cli.bucket.data_file_reader import FilePart, KeepsGroup, read_part
from paimon_cli.datatypes.arrow_types import values_from_arrow, values_to_arrow
from paimon_cli.datatypes.binary_row import deserialize_row, serialize_row
from paimon_cli.history.table_context import TableContext
from paimon_cli.lsm.key_search import SortedKeys
from paimon_cli.metadata.data_file import BucketId, DataFileMeta
from paimon_cli.metadata.data_file_schema import KEY_PREFIX
from paimon_cli.storage.threads import cached_property


@dataclass(frozen=True)
class KeyRange:
    """Keys from `low` (None: from the least) to below `high` (None: to the greatest), serialised. `size`: about as many bytes
    are stored of them.
    """

    low: bytes | None
    high: bytes | None
    size: int


def stored_keys(context: TableContext, keys: Iterable[bytes]) -> SortedKeys:
    """Serialised keys, in ascending order, as columns."""
    schema = context.schema
    rows = list(zip(*(deserialize_row(key, context.key_types) for key in keys), strict=True))
    columns = [values_to_arrow(list(values), t) for values, t in zip(rows, context.key_types, strict=True)]
    names = schema.trimmed_primary_keys
    return SortedKeys.of(pa.record_batch(columns, list(names)), names)


def first_key(context: TableContext, bucket_id: BucketId, file: DataFileMeta, group: int) -> bytes:
    """The first key of a row group, serialised. It is decoded: statistics may be cut short, and know single columns only."""
    schema = context.schema
    only = FilePart(keeps=lambda _, number: number == group)
    keys = schema.trimmed_primary_keys
    batch: pa.RecordBatch
    _, batch = next(iter(read_part(context, bucket_id, file, keys, 1, only)))
    values = [values_from_arrow(batch.column(name).slice(0, 1), schema.field(name).type)[0] for name in keys]
    return serialize_row(values, context.key_types)


@dataclass(frozen=True)
class RangeReader:
    """The parts of data files that hold keys of a range. Statistics of a footer decide which row groups may.

    `counts`: the rows of each file, by name, that were in the range. If all ranges together do not count every row of a file, its
    statistics are wrong.
    """

    context: TableContext
    range: KeyRange
    counts: Counter[str] = field(default_factory=Counter)

    def row_groups(self) -> FilePart:
        """The row groups of any file that may hold keys of the range, with all of their rows."""
        return FilePart(keeps=self._may_hold)

    def part_of(self, file: DataFileMeta, others: KeepsGroup = lambda *_: True) -> FilePart:
        """The part of a file; `others`: which of its row groups are wanted otherwise."""
        return FilePart(
            keeps=lambda reader, group: others(reader, group) and self._may_hold(reader, group),
            cut=partial(self._cut, file.file_name),
        )

    def _cut(self, file: str, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows in the range. They are sorted by key."""
        keys = SortedKeys.of(rows, self.context.schema.trimmed_primary_keys)
        begin, end = 0, rows.num_rows
        if self._low is not None:
            begin = int(keys.below(self._low)[0])
        if self._high is not None:
            end = int(keys.below(self._high)[0])
        found = rows.slice(begin, max(0, end - begin))
        self.counts[file] += found.num_rows
        return found

    def holds(self, lows: SortedKeys, highs: SortedKeys, ends_below: np.ndarray) -> np.ndarray:
        """For each pair of values of the first key column, or of whole keys, whether all keys from one to the other are in the
        range, whatever further columns are. `ends_below`: the greater one does not count, where this is true.
        """
        inside, width = np.ones(len(lows), bool), len(lows.columns)
        if self._low is not None:
            first = self._low.prefix(width)
            inside &= first.below(lows) == 1 if len(self._low.columns) > width else first.up_to(lows) == 1
        if self._high is not None:
            end = self._high.prefix(width)
            inside &= (end.up_to(highs) == 0) | (ends_below & (end.below(highs) == 0))
        return inside

    @cached_property
    def _low(self) -> SortedKeys | None:
        return None if self.range.low is None else stored_keys(self.context, [self.range.low])

    @cached_property
    def _high(self) -> SortedKeys | None:
        return None if self.range.high is None else stored_keys(self.context, [self.range.high])

    def _may_hold(self, reader: pq.ParquetFile, group: int) -> bool:
        """Whether a row group may hold keys of the range, by the statistics of the first key column."""
        name = self.context.schema.trimmed_primary_keys[0]
        t = self.context.schema.field(name).type
        found = footer_statistics(reader.metadata, leaf_numbers(reader.schema_arrow).get(KEY_PREFIX + name), t, False, [group])
        if found.minimum is None or found.maximum is None:
            return True
        least, greatest = (
            SortedKeys.of(pa.record_batch([values_to_arrow([end], t)], [name]), [name]) for end in (found.minimum, found.maximum)
        )
        if self._low is not None and not self._low.prefix(1).up_to(greatest)[0]:
            return False
        if self._high is None:
            return True
        is_whole_key = len(self._high.columns) == 1
        first = self._high.prefix(1)
        return not (first.up_to(least) if is_whole_key else first.below(least))[0]
