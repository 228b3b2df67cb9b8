"""Whether a plain Parquet reader, which concatenates all live files without merging, would read a snapshot correctly.

Some readers of Paimon tables work that way. If files have to be merged, or rows in them are deleted, their result is silently
wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyroaring import BitMap64

from paimon_cli.bucket.combined_columns import row_ranges
from paimon_cli.bucket.data_file_reader import file_format, read_data_file
from paimon_cli.bucket.decoding import decoding
from paimon_cli.bucket.deletion_vectors import load_vectors
from paimon_cli.bucket.orc_file import OrcFile
from paimon_cli.bucket.orc_times import misread_times, timestamp_columns
from paimon_cli.bucket.shredded_maps import SHREDDED
from paimon_cli.datatypes.column_cast import same_type
from paimon_cli.datatypes.data_type import MapType
from paimon_cli.errors import DamagedFile, NotSupported
from paimon_cli.history.live_files import BucketFiles, bucket_files
from paimon_cli.history.table_context import TableContext
from paimon_cli.lsm.sorted_runs import key_sections
from paimon_cli.metadata.data_file import DataFileMeta
from paimon_cli.metadata.data_file_schema import VALUE_KIND
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.options.column_options import STORAGE_LAYOUT
from paimon_cli.pieces import PIECES
from paimon_cli.storage.capabilities import open_sized
from paimon_cli.storage.threads import in_parallel


class Obstacle:
    """Why a reader that takes the files as they are gets wrong rows."""

    FORMAT = "not-parquet"
    OVERLAP = "needs-merge"
    DELETES = "deleted-rows"
    VECTORS = "deletion-vectors"
    VECTORS_64 = "deletion-vectors-of-64-bits"
    INVISIBLE = "not-visible-yet"
    WAITING = "waiting-for-buckets"
    COLUMNS = "older-columns"
    COMBINED = "columns-in-several-files"
    SHREDDED = "shredded-maps"
    ADDED = "added-columns"
    PARTITION = "partition-in-directories"
    EARLY_TIMES = "early-orc-times"


_MEANINGS = {
    Obstacle.FORMAT: "files are ORC or Avro",
    Obstacle.OVERLAP: "files hold several versions of a key, of which only the newest counts",
    Obstacle.DELETES: "files hold rows that delete their key, and look like any others",
    Obstacle.VECTORS: "rows that deletion vectors mark as deleted are still in the files",
    Obstacle.VECTORS_64: "deletion vectors are bitmaps of 64 bits (deletion-vectors.bitmap64)",
    Obstacle.INVISIBLE: "files of level 0, whose rows show only when they have been compacted",
    Obstacle.WAITING: "rows that wait for their buckets, and show only when they have been compacted",
    Obstacle.COMBINED: "files hold single columns of rows whose other columns are in other files",
    Obstacle.SHREDDED: "files hold maps as structs, whose keys are in the footer",
    Obstacle.PARTITION: "files lack columns of their partition, which only the metadata and the names of their directories have",
    Obstacle.EARLY_TIMES: "ORC files hold times before 1970 as Arrow writes them, on which Java's Paimon ends with an error: "
    "write the rows into a new table",
    Obstacle.ADDED: "files were written before columns were added, which they lack",
    Obstacle.COLUMNS: "files were written before columns were renamed, dropped or given another type",
}
FINE_WITH_A_SCHEMA = frozenset({Obstacle.ADDED})
"""What only readers that take the columns from the files themselves get wrong: others fill columns with nulls, which is right."""
ONLY_FOR_ENGINES = frozenset({Obstacle.VECTORS_64})
"""What matters only to readers that know deletion vectors; others are wrong about all of them."""
MENDED_BY_COMPACTION = {
    Obstacle.OVERLAP,
    Obstacle.DELETES,
    Obstacle.VECTORS,
    Obstacle.VECTORS_64,
    Obstacle.INVISIBLE,
    Obstacle.WAITING,
}


@dataclass
class ForeignFinding:
    """One reason for wrong results: the files and rows affected, an example file, and the command that fixes it, if any."""

    code: str
    message: str
    files: int
    rows: int
    example: str
    command: str | None


@dataclass(frozen=True)
class ReaderVerdict:
    """What a reader makes of a snapshot. `result`: right, refused, wrong or unknown; `because`: the codes of the obstacles;
    `report`: where that was described.
    """

    reader: str
    versions: str
    result: str
    because: tuple[str, ...]
    report: str
    advice: str


@dataclass
class ForeignReadReport:
    """The result for one snapshot. `files` and `rows`: what a plain Parquet reader would see, right or wrong.

    `readers`: of an engine, if one was asked for. Then the snapshot is safe if each is known to return right rows, or none.
    """

    snapshot_id: int | None
    is_safe: bool
    files: int = 0
    rows: int = 0
    findings: list[ForeignFinding] = field(default_factory=list)
    readers: tuple[ReaderVerdict, ...] = ()


def foreign_read_report(context: TableContext, snapshot: Snapshot | None, argument: str | None = None) -> ForeignReadReport:
    """Examine the metadata of all live files, and their footers if row kinds matter. `argument`: the table in hints."""
    report = ForeignReadReport(None if snapshot is None else snapshot.id, True)
    if snapshot is None:
        return report
    try:
        _examine(report, context, snapshot, argument)
    except DamagedFile as error:
        raise context.manifests.gone_or_damaged(snapshot, error) from error
    return report


def _examine(report: ForeignReadReport, context: TableContext, snapshot: Snapshot, argument: str | None) -> None:
    found: dict[str, ForeignFinding] = {}
    buckets = [*bucket_files(context, snapshot).values()]
    problems = in_parallel(lambda bucket: [*_problems(context, bucket)], buckets, context.read_threads)
    for bucket, found_in_bucket in zip(buckets, problems, strict=True):
        for file in bucket.files:
            report.files += 1
            report.rows += file.row_count
        for code, file, rows in found_in_bucket:
            path = context.data_file_path(*bucket.bucket_id, file)
            mends = f"paimon-cli compact {argument or context.layout.argument} --strategy full"
            new = ForeignFinding(code, _MEANINGS[code], 0, 0, path, mends if code in MENDED_BY_COMPACTION else None)
            known = found.setdefault(code, new)
            known.files += 1
            known.rows += rows
    report.findings = [found[code] for code in _MEANINGS if code in found]
    report.is_safe = not found.keys() - FINE_WITH_A_SCHEMA


def _problems(context: TableContext, bucket: BucketFiles) -> Iterator[tuple[str, DataFileMeta, int]]:
    """The problems in a bucket: code, file, and number of affected rows."""
    vectors = load_vectors(context, bucket)
    for file in bucket.files:
        if file_format(file.file_name) != "parquet":
            yield Obstacle.FORMAT, file, file.row_count
            if _has_misread_times(context, bucket, file):
                yield Obstacle.EARLY_TIMES, file, file.row_count
        yield from ((code, file, file.row_count) for code in _other_columns(context, file))
        yield from ((code, file, file.row_count) for code in _stored_otherwise(context, bucket, file))
        vector = vectors.of(file.file_name)
        if vector is not None and len(vector.positions):
            yield Obstacle.VECTORS, file, len(vector.positions)
            if isinstance(vector.positions, BitMap64):
                yield Obstacle.VECTORS_64, file, len(vector.positions)
    if context.mode.combines_columns:
        combined = (members for members in row_ranges(bucket.files) if len(members) > 1)
        yield from ((Obstacle.COMBINED, file, file.row_count) for members in combined for file in members)
    if bucket.bucket < 0:
        yield from ((Obstacle.WAITING, file, file.row_count) for file in bucket.files)
    elif context.schema.primary_keys:
        yield from _unmerged_rows(context, bucket)


def _unmerged_rows(context: TableContext, bucket: BucketFiles) -> Iterator[tuple[str, DataFileMeta, int]]:
    """Rows that only readers who merge by key read right."""
    mode = context.mode
    if mode.hides_level_0:
        yield from ((Obstacle.INVISIBLE, file, file.row_count) for file in bucket.files if file.level == 0)
    if mode.reads_merge:
        for section in key_sections(bucket.files, context.key_of):
            if len(section) > 1:
                yield from ((Obstacle.OVERLAP, file, file.row_count) for run in section for file in run.files)
    for file in bucket.files:
        if deleted := retractions(context, bucket, file):
            yield Obstacle.DELETES, file, deleted


def _other_columns(context: TableContext, file: DataFileMeta) -> Iterator[str]:
    """How the columns of a file differ by name or type from those of the table."""
    if file.schema_id == context.schema.id:
        return
    old: TableSchema = context.schemas.named(file.schema_id)
    now = {one.id: one for one in context.schema.fields}
    if any(one.id not in now or now[one.id].name != one.name or not same_type(now[one.id].type, one.type) for one in old.fields):
        yield Obstacle.COLUMNS
    if now.keys() - {one.id for one in old.fields}:
        yield Obstacle.ADDED


def _stored_otherwise(context: TableContext, bucket: BucketFiles, file: DataFileMeta) -> Iterator[str]:
    """What the footer of a file tells, where it may: a MAP that is a struct, or a partition that only directories name."""
    schema: TableSchema = context.schemas.named(file.schema_id)
    maps = [one.name for one in schema.fields if isinstance(one.type, MapType)]
    allowed = [name for name in maps if schema.options.get(f"fields.{name}.{STORAGE_LAYOUT}", "").lower() == SHREDDED.decode()]
    adopted = () if schema.primary_keys or context.mode.combines_columns else schema.partition_keys
    if not (allowed or adopted) or file_format(file.file_name) != "parquet":
        return
    path = context.data_file_path(*bucket.bucket_id, file)
    with decoding(path, schema.fields), open_sized(context.storage, path, file.file_size) as source:
        stored = pq.read_schema(source)
    if any(name in stored.names and pa.types.is_struct(stored.field(name).type) for name in allowed):
        yield Obstacle.SHREDDED
    if not set(adopted) <= set(stored.names):
        yield Obstacle.PARTITION


def _has_misread_times(context: TableContext, bucket: BucketFiles, file: DataFileMeta) -> bool:
    """Whether Java's Paimon cannot read a timestamp of an ORC file. Reads these columns of it, because no metadata tells."""
    fields = context.schemas.named(file.schema_id).fields
    columns = timestamp_columns(fields)
    if file_format(file.file_name) != "orc" or not columns:
        return False
    path = context.data_file_path(*bucket.bucket_id, file)
    with open_sized(context.storage, path, file.file_size) as source:
        with decoding(path, fields):
            orc = OrcFile(source)
        try:
            with decoding(path, fields):
                return any(True for _ in misread_times(orc, columns))
        except NotSupported:  # Arrow does not read times beyond 64-bit nanoseconds, which Java does
            held = [name for name in columns if name in orc.schema.names]
            with decoding(path, fields):
                return any(orc.has_negative_digits(stripe, name) for stripe in range(orc.nstripes) for name in held)


def retractions(context: TableContext, bucket: BucketFiles, file: DataFileMeta) -> int:
    """The number of rows of kind -U or -D. Counts in manifests are not trusted, because some writers always store 0."""
    if file_format(file.file_name) == "parquet" and _has_inserts_only(context, bucket, file):
        return 0
    batches = read_data_file(context, bucket.bucket_id, file, [VALUE_KIND], PIECES.batch_rows)
    return sum(int(pc.sum(pc.bit_wise_and(batch.column(VALUE_KIND), pa.scalar(1, pa.int8()))).as_py() or 0) for batch in batches)


def _has_inserts_only(context: TableContext, bucket: BucketFiles, file: DataFileMeta) -> bool:
    """Whether, by the footer, all rows of each row group have the same kind, which is not a retraction."""
    path = context.data_file_path(*bucket.bucket_id, file)
    columns = context.schemas.get(file.schema_id).fields
    with decoding(path, columns), open_sized(context.storage, path, file.file_size) as source:
        metadata = pq.ParquetFile(source).metadata
        for group in map(metadata.row_group, range(metadata.num_row_groups)):
            chunks = (group.column(leaf) for leaf in range(group.num_columns))
            kinds = next((chunk.statistics for chunk in chunks if chunk.path_in_schema == VALUE_KIND), None)
            if kinds is None or not kinds.has_min_max or kinds.min != kinds.max or kinds.min & 1:
                return False
    return True
