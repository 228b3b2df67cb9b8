"""Where keys are: questions about rows in buckets that are not theirs, and about keys that several buckets show (`past_rows`)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from paimon_cli.bucket.data_file_reader import read_data_file
from paimon_cli.bucket.key_locations import repeated_keys
from paimon_cli.datatypes.arrow_types import values_to_arrow
from paimon_cli.history.live_files import BucketFiles
from paimon_cli.history.table_context import TableContext
from paimon_cli.invariants.anomalies import LIKELY, TWO_PLACES, UNTOLD, Anomaly, Commit, anomaly
from paimon_cli.invariants.past_rows import KeyTally
from paimon_cli.invariants.row_checks import rows_of_other_buckets
from paimon_cli.invariants.version import Version
from paimon_cli.metadata.data_file import BucketId, DataFileMeta, IndexFileMeta, ManifestEntry
from paimon_cli.pieces import PIECES
from paimon_cli.sql.predicate import Predicate


@dataclass(frozen=True)
class RowsElsewhere:
    """Do the files of a bucket hold rows of other buckets? Only where the hash of a row decides its bucket."""

    commits: tuple[Commit, ...]
    entries: tuple[ManifestEntry, ...]
    rules: tuple[str, ...] = (TWO_PLACES,)

    @property
    def files(self) -> tuple[DataFileMeta, ...]:
        return tuple(entry.file for entry in self.entries)

    def answer(self, context: TableContext, where: Predicate | None) -> Iterator[Anomaly]:
        schema, found, names = context.schema, KeyTally(context.schema.primary_keys), []
        for entry in self.entries:
            before = found.counts.get(TWO_PLACES, 0)
            for batch in read_data_file(context, entry.bucket_id, entry.file, list(schema.primary_keys), PIECES.batch_rows):
                rows = batch if where is None else where.filtered(batch)
                found.add(TWO_PLACES, rows, rows_of_other_buckets(context, entry, rows))
            if found.counts.get(TWO_PLACES, 0) > before:
                names.append(entry.file.file_name)
        if text := found.text(TWO_PLACES):
            bucket = context.bucket_path(*self.entries[0].bucket_id)
            what = f"{bucket} holds {text} of other buckets, where no writer replaces them"
            yield anomaly(TWO_PLACES, what, self.commits, key=found.firsts[TWO_PLACES], files=names, certainty=LIKELY)

    def untold(self, context: TableContext, why: str) -> Iterator[Anomaly]:
        yield anomaly(TWO_PLACES, f"the rows of a bucket cannot be read: {why}", certainty=UNTOLD)


@dataclass(frozen=True)
class KeysOfBuckets:
    """Do several of these buckets show one key?"""

    commits: tuple[Commit, ...]
    buckets: tuple[BucketFiles, ...]
    rules: tuple[str, ...] = (TWO_PLACES,)

    @property
    def files(self) -> tuple[DataFileMeta, ...]:
        return tuple(file for bucket in self.buckets for file in bucket.files)

    def answer(self, context: TableContext, where: Predicate | None) -> Iterator[Anomaly]:
        found = repeated_keys(context, self.buckets, None if where is None else where.filtered)
        if found is not None:
            paths = " and ".join(context.bucket_path(*bucket_id) for bucket_id in found.bucket_ids)
            more = f", and {found.count - 1} other keys are in several buckets" if found.count > 1 else ""
            yield anomaly(TWO_PLACES, f"the key {found.key} is in {paths}{more}", self.commits, key=found.key)

    def untold(self, context: TableContext, why: str) -> Iterator[Anomaly]:
        yield anomaly(TWO_PLACES, f"the keys cannot be compared: {why}", certainty=UNTOLD)


def with_ends_elsewhere(context: TableContext, entries: Sequence[ManifestEntry]) -> tuple[ManifestEntry, ...]:
    """The files of a bucket whose least or greatest key belongs to another bucket, so that their rows are worth a look.

    All files, where their bounds are not keys.
    """
    if not context.mode.bounds_are_keys:
        return tuple(entries)
    groups: dict[int, list[ManifestEntry]] = {}
    for entry in entries:
        groups.setdefault(entry.total_buckets, []).append(entry)
    found: list[ManifestEntry] = []
    for group in groups.values():
        ends = [context.key_values(end) for entry in group for end in (entry.file.min_key, entry.file.max_key)]
        columns = [values_to_arrow(list(values), t) for values, t in zip(zip(*ends, strict=True), context.key_types, strict=True)]
        batch = pa.RecordBatch.from_arrays(columns, names=list(context.schema.trimmed_primary_keys))
        flags = rows_of_other_buckets(context, group[0], batch).reshape(-1, 2)
        found += [group[number] for number in np.flatnonzero(flags[:, 0] | flags[:, 1]).tolist()]
    return tuple(found)


def indexes_by_bucket(version: Version) -> dict[BucketId, tuple[IndexFileMeta, ...]]:
    """The index files of each bucket that has some."""
    grouped: dict[BucketId, tuple[IndexFileMeta, ...]] = {}
    for entry in version.index_entries:
        grouped[entry.bucket_id] = (*grouped.get(entry.bucket_id, ()), entry.index_file)
    return grouped


def several_buckets(
    version: Version, partitions: Collection[bytes], *, together: bool = False
) -> Iterator[tuple[BucketFiles, ...]]:
    """The buckets of each partition with several of them, or of all together."""
    indexes, groups = indexes_by_bucket(version), dict[bytes, list[BucketFiles]]()
    for bucket_id, entries in sorted(version.buckets.items()):
        if bucket_id.partition in partitions and not entries[0].is_postponed:
            files = tuple(entry.file for entry in entries)
            bucket = BucketFiles(*bucket_id, 0, files, indexes.get(bucket_id, ()))
            groups.setdefault(b"" if together else bucket_id.partition, []).append(bucket)
    yield from (tuple(group) for group in groups.values() if len(group) > 1)
