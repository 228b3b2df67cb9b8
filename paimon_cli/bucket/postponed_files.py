"""Files that wait in `bucket-postpone`: their names, format and order, and the buckets that their rows get (FORMAT.md, 6.6).

Writers of a table with `bucket=-2` add rows as they come, in any number and at any time: nothing is sorted, merged or numbered.
A compaction reads the files in their order and writes the rows into buckets, whose number each partition gets once and keeps.
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
from paimon_cli.options.table_options import MOST_BUCKETS, TableOptions

AVRO = "avro"
_PLAIN_USER = re.compile(r"[A-Za-z0-9_.]+(-[A-Za-z0-9_.]+)*")
_LONGEST_USER = 64


def postponed_options(context: TableContext, commit_user: str, writer_id: int) -> TableOptions:
    """The options by which one writer of a commit user writes: Avro where it can hold the columns, else the table's format.

    The names tell the writer, because its files have an order among themselves.
    """
    options = context.options
    prefix = f"{options.data_file_prefix}-u-{_named(commit_user)}-s-{writer_id}{WRITER_MARK}"
    if not _fits_avro(context):
        return options.of_postponed_files(options.file_format, prefix)
    own = options.of_postponed_files(AVRO, prefix)
    try:
        codec_of(AVRO, own.file_compression)
    except UsageError:  # the codec of the table's own format
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
    """The user as part of a file name; the hash of one that does not fit there, or that would be taken apart elsewhere."""
    plain = _PLAIN_USER.fullmatch(commit_user) and "-s-" not in commit_user and "-w-" not in commit_user
    return commit_user if plain and len(commit_user) <= _LONGEST_USER else hashlib.sha256(commit_user.encode()).hexdigest()[:32]


def writer_of(file_name: str) -> str:
    """What the names of all files of one writer begin with; a name of another form is a writer of its own."""
    prefix, mark, _ = file_name.rpartition(WRITER_MARK)
    return prefix if mark else file_name


def replay_order(files: Sequence[DataFileMeta]) -> list[DataFileMeta]:
    """The files in the order in which their rows count: commits as they came, a writer's own files by the time of creation.

    `files`: in the order of commits. A writer keeps the places that its files have there, and fills them by age.
    """
    places: dict[str, list[int]] = {}
    for place, file in enumerate(files):
        places.setdefault(writer_of(file.file_name), []).append(place)
    ordered = list(files)
    for own in places.values():
        by_age = sorted((files[place] for place in own), key=lambda file: file.creation_time_millis or 0)
        for place, file in zip(own, by_age, strict=True):
            ordered[place] = file
    return ordered


@dataclass(frozen=True)
class Waiting:
    """What waits in one partition."""

    rows: int = 0
    size: int = 0

    @staticmethod
    def of(files: Iterable[DataFileMeta]) -> Waiting:
        held = tuple(files)
        return Waiting(sum(file.row_count for file in held), sum(file.file_size for file in held))


def partition_counts(context: TableContext, buckets: LazyBuckets) -> dict[bytes, int]:
    """The number of buckets of each partition that has any; no files are made objects for it."""
    counts: dict[bytes, int] = {}
    for (partition, bucket), total in buckets.table.newest_by_bucket("total_buckets").items():
        if bucket >= 0 and total > 0 and counts.setdefault(partition, total) != total:
            place = context.partition_path_of(partition).rstrip("/") or context.address
            raise FilesConflict(
                f"{place} has files for {counts[partition]} and for {total} buckets",
                "rows of one key could be in two of them",
                f"paimon-cli verify {context.layout.argument}",
            )
    return counts


def assigned_counts(options: TableOptions, known: Mapping[bytes, int], waiting: Mapping[bytes, Waiting]) -> dict[bytes, int]:
    """The number of buckets of each partition with rows to be distributed: the one that it has, else one that fits its rows."""
    return {partition: known.get(partition) or bucket_count(options, held) for partition, held in waiting.items()}


def bucket_count(options: TableOptions, waiting: Waiting) -> int:
    """How many buckets a compaction gives a partition without any: as configured, else by rows, else by bytes."""
    if options.postpone_default_bucket_num is not None:
        return options.postpone_default_bucket_num
    by_rows = options.postpone_target_rows
    needed, target = (waiting.size, options.postpone_target_size) if by_rows is None else (waiting.rows, by_rows)
    count = max(1, -(-needed // target))
    if count > MOST_BUCKETS:
        key = "postpone.target-size-per-bucket" if by_rows is None else "postpone.target-row-num-per-bucket"
        raise UsageError(f"{key} would make {count:,} buckets in one partition", f"there can be {MOST_BUCKETS:,}", f"raise {key}")
    return count


def batch_bucket_count(options: TableOptions, batch: Waiting) -> int:
    """How many buckets a batch gives a partition without any: its own number is a power of two, up to a limit."""
    count = bucket_count(options, batch)
    if options.postpone_default_bucket_num is not None:
        return count
    return min(1 << (count - 1).bit_length(), options.postpone_most_buckets)


class KnownCounts(dict[bytes, int]):
    """The number of buckets of each partition that has any; all others get the number that the table's options name."""

    def __init__(self, known: Mapping[bytes, int], others: int) -> None:
        super().__init__(known)
        self._others = others

    def __missing__(self, partition: bytes) -> int:
        return self._others

    def __reduce__(self) -> tuple[type[KnownCounts], tuple[dict[bytes, int], int]]:
        return KnownCounts, (dict(self), self._others)


def counts_in_advance(context: TableContext, known: Mapping[bytes, int]) -> KnownCounts | None:
    """The numbers of buckets for a batch whose rows need not be counted first; None if they must be."""
    others = context.options.postpone_default_bucket_num
    if others is not None:
        return KnownCounts(known, others)
    is_all = bool(known) and not context.schema.partition_keys
    return KnownCounts(known, max(known.values())) if is_all else None


def waiting_files(buckets: Mapping[BucketId, BucketFiles]) -> dict[bytes, BucketFiles]:
    """The postponed files of each partition, in the order of their replay."""
    postponed = (buckets[bucket_id] for bucket_id in buckets if bucket_id.bucket == POSTPONE_BUCKET)
    return {bucket.partition: replace(bucket, files=tuple(replay_order(bucket.files))) for bucket in postponed}
