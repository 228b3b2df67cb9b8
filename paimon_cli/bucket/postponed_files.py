"""Postponed files (`bucket-postpone`): their names, format and order, and how many buckets their rows get (FORMAT.md, 6.6).

Writers of a table with `bucket=-2` append rows to such files: nothing is sorted, merged or numbered. A compaction replays the
files in order and writes the rows into buckets. The first one fixes the number of buckets of a partition.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from paimon_cli.bucket.avro_rows import avro_record_field
from paimon_cli.bucket.file_encoders import codec_of
from paimon_cli.bucket.stamped_files import WRITER_MARK
from paimon_cli.errors import FilesConflict, NotSupported, UsageError
from paimon_cli.history.live_files import BucketFiles, LazyBuckets
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import BucketId, DataFileMeta
from paimon_cli.metadata.table_layout import POSTPONE_BUCKET
from paimon_cli.options.table_options import MAX_BUCKETS, TableOptions

AVRO = "avro"
_PLAIN_USER = re.compile(r"[A-Za-z0-9_.]+(-[A-Za-z0-9_.]+)*")
_MAX_USER_LENGTH = 64


def postponed_options(context: TableContext, commit_user: str, writer_id: int, temporary: bool = False) -> TableOptions:
    """The options with which a writer writes postponed files: Avro if it can hold the columns, else the table's format.

    `temporary` files are in the table's format, because Parquet takes a fraction of the time. File names contain the commit user
    and the writer, because the order of files counts within a writer.
    """
    options = context.options
    prefix = f"{options.data_file_prefix}-u-{_named(commit_user)}-s-{writer_id}{WRITER_MARK}"
    if temporary or not _fits_avro(context):
        return options.of_postponed_files(options.file_format, prefix)
    own = options.of_postponed_files(AVRO, prefix)
    try:
        codec_of(AVRO, own.file_compression)
    except UsageError:  # file.compression is a codec of the table's format that Avro does not have
        return own.with_overrides({"file.compression": "zstd"})
    return own


def _fits_avro(context: TableContext) -> bool:
    try:
        for field in context.schema.fields:
            avro_record_field(field.name, field.type, "record")
    except NotSupported:
        return False
    return True


def _named(commit_user: str) -> str:
    """The user as part of a file name; a hash if it is too long, or would make the name ambiguous."""
    plain = _PLAIN_USER.fullmatch(commit_user) and "-s-" not in commit_user and "-w-" not in commit_user
    if plain and len(commit_user) <= _MAX_USER_LENGTH:
        return commit_user
    return hashlib.sha256(commit_user.encode()).hexdigest()[:32]


def writer_of(file_name: str) -> str:
    """The prefix that the names of all files of a writer share; for a name of another form, the whole name."""
    prefix, mark, _ = file_name.rpartition(WRITER_MARK)
    return prefix if mark else file_name


def replay_order(files: Sequence[DataFileMeta]) -> list[DataFileMeta]:
    """The files in the order in which their rows are replayed: by commit, but the files of one writer by creation time.

    `files`: in the order of commits. The files of a writer are sorted among the positions that they occupy there.
    """
    positions: dict[str, list[int]] = {}
    for position, file in enumerate(files):
        positions.setdefault(writer_of(file.file_name), []).append(position)
    ordered = list(files)
    for of_writer in positions.values():
        by_age = sorted((files[position] for position in of_writer), key=lambda file: file.creation_time_millis or 0)
        for position, file in zip(of_writer, by_age, strict=True):
            ordered[position] = file
    return ordered


@dataclass(frozen=True)
class Waiting:
    """How many rows of a partition wait for buckets, and their size in bytes."""

    rows: int = 0
    size: int = 0

    @staticmethod
    def of(files: Iterable[DataFileMeta]) -> Waiting:
        all_files = tuple(files)
        return Waiting(sum(file.row_count for file in all_files), sum(file.file_size for file in all_files))


def partition_counts(context: TableContext, buckets: LazyBuckets) -> dict[bytes, int]:
    """The bucket count of each partition that has buckets. Raises `FilesConflict` for a partition with two of them."""
    counts: dict[bytes, int] = {}
    for (partition, bucket), total in buckets.table.newest_by_bucket("total_buckets").items():
        if bucket >= 0 and total > 0 and counts.setdefault(partition, total) != total:
            path = context.partition_path_of(partition).rstrip("/") or context.address
            raise FilesConflict(
                f"{path} has files for {counts[partition]} and for {total} buckets",
                "rows of one key could be in two of them",
                f"paimon-cli verify {context.layout.argument}",
            )
    return counts


def assigned_counts(options: TableOptions, known: Mapping[bytes, int], waiting: Mapping[bytes, Waiting]) -> dict[bytes, int]:
    """The bucket count of each partition with waiting rows: its own (`known`), or else one that fits its rows."""
    return {partition: known.get(partition) or bucket_count(options, rows) for partition, rows in waiting.items()}


def bucket_count(options: TableOptions, waiting: Waiting) -> int:
    """How many buckets a compaction gives to a new partition: `postpone.default-bucket-num`, else by rows, else by bytes."""
    if options.postpone_default_bucket_num is not None:
        return options.postpone_default_bucket_num
    by_rows = options.postpone_target_rows
    amount, target = (waiting.size, options.postpone_target_size) if by_rows is None else (waiting.rows, by_rows)
    count = max(1, -(-amount // target))
    if count > MAX_BUCKETS:
        key = "postpone.target-size-per-bucket" if by_rows is None else "postpone.target-row-num-per-bucket"
        raise UsageError(f"{key} would make {count:,} buckets in one partition", f"there can be {MAX_BUCKETS:,}", f"raise {key}")
    return count


def batch_bucket_count(options: TableOptions, batch: Waiting) -> int:
    """How many buckets a batch write gives to a new partition: as a compaction, but rounded up to a power of two, and limited."""
    count = bucket_count(options, batch)
    if options.postpone_default_bucket_num is not None:
        return count
    return min(1 << (count - 1).bit_length(), options.postpone_most_buckets)


class KnownCounts(dict[bytes, int]):
    """The bucket counts of existing partitions, and one `default` for all new ones. Picklable."""

    def __init__(self, known: Mapping[bytes, int], default: int) -> None:
        super().__init__(known)
        self._default = default

    def __missing__(self, partition: bytes) -> int:
        return self._default

    def __reduce__(self) -> tuple[type[KnownCounts], tuple[dict[bytes, int], int]]:
        return KnownCounts, (dict(self), self._default)


def counts_in_advance(context: TableContext, known: Mapping[bytes, int]) -> KnownCounts | None:
    """The bucket counts for a batch write if they do not depend on its number of rows; else None."""
    default = context.options.postpone_default_bucket_num
    if default is not None:
        return KnownCounts(known, default)
    has_only_partition = bool(known) and not context.schema.partition_keys
    return KnownCounts(known, max(known.values())) if has_only_partition else None


def waiting_files(buckets: Mapping[BucketId, BucketFiles]) -> dict[bytes, BucketFiles]:
    """Partition -> its postponed files, in the order of their replay."""
    postponed = (buckets[bucket_id] for bucket_id in buckets if bucket_id.bucket == POSTPONE_BUCKET)
    return {bucket.partition: replace(bucket, files=tuple(replay_order(bucket.files))) for bucket in postponed}
