"""`manifests`, `files`, `partitions`, `buckets`, `indexes`, `dv`: where the rows of a snapshot are stored."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Literal

import typer

from paimon_cli.cli.columns import Column, columns_of
from paimon_cli.cli.command import Call, command, group
from paimon_cli.cli.output import Item, Listing
from paimon_cli.cli.parameters import Buckets, Given, Partitions, SnapshotId, TableName, addressable
from paimon_cli.cli.results import counted, human_size
from paimon_cli.errors import UsageError
from paimon_cli.options.option_text import did_you_mean, split_buckets
from paimon_cli.requests.selections import split_partitions
from paimon_cli.requests.versions import MarkOptions

manifests = group("Manifests of a snapshot: which files they add and delete.")
files = group("Data files of a snapshot, with levels, keys and sequence numbers.")
partitions = group("Partitions of a snapshot.")
buckets = group("Buckets of a snapshot.")


class ManifestList(str, enum.Enum):
    """Choices of `--list`."""

    BASE = "base"
    DELTA = "delta"
    CHANGELOG = "changelog"
    INDEX = "index"


@command(manifests, "ls")
def list_manifests(
    call: Call,
    table: TableName,
    snapshot: SnapshotId = None,
    lists: Annotated[list[ManifestList] | None, typer.Option("--list", help="Only this list; repeatable.")] = None,
) -> None:
    """List the manifests of a snapshot, list by list.

    paimon-cli manifests ls ./wh/shop.db/orders

    paimon-cli manifests ls ./wh/shop.db/orders --snapshot 3 --list delta
    """
    from paimon_cli.inspect.version_report import ManifestRow

    opened = call.open(table)
    rows = opened.manifests(snapshot=snapshot, lists=[item.value for item in lists or ()])
    footer = f"{counted(len(rows), 'manifest')}, {human_size(sum(row.size for row in rows))}"
    call.show(Listing("ManifestList", opened.name, ManifestRow, rows, footer=footer))


@command(manifests, "show")
def show_manifest(
    call: Call, table: TableName, name: Annotated[str, typer.Argument(metavar="NAME", help="File name of a manifest.")]
) -> None:
    """Show the entries of one manifest: files added and deleted.

    paimon-cli manifests show ./wh/shop.db/orders manifest-NAME

    paimon-cli manifests show ./wh/shop.db/orders manifest-NAME -o csv
    """
    from paimon_cli.inspect.file_report import EntryRow

    opened = call.open(table)
    rows = opened.manifest(name)
    call.show(Listing("ManifestEntryList", opened.name, EntryRow, rows, footer=counted(len(rows), "line")))


@command(files, "ls")
def list_files(
    call: Call,
    table: TableName,
    snapshot: SnapshotId = None,
    partition: Partitions = None,
    bucket: Buckets = None,
    level: Annotated[int | None, typer.Option("--level", metavar="N", min=0, help="Only this level.")] = None,
    kind: Annotated[
        Literal["data", "changelog"],
        typer.Option(
            "--kind", help="data: live data files; changelog: changelog files of --snapshot, by default of all snapshots."
        ),
    ] = "data",
    columns: Annotated[
        str | None, typer.Option("--columns", metavar="NAMES", help="Only these columns, such as file,size,rows.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option("-l", "--limit", metavar="N", callback=addressable, min=0, help="Only the first N.")
    ] = None,
) -> None:
    """List live data files, or changelog files, by partition, bucket and level.

    paimon-cli files ls ./wh/shop.db/orders --partition dt=2026-11-21 --bucket 0-3

    paimon-cli files ls ./wh/shop.db/orders --level 0 --fields file,rows,size
    """
    chosen = _chosen_columns(columns)
    opened = call.open(table)
    rows = opened.files(
        snapshot=snapshot, partition=split_partitions(partition), bucket=split_buckets(bucket), level=level, kind=kind
    )
    row_count, size = sum(row.rows for row in rows), sum(row.size for row in rows)
    footer = f"{counted(len(rows), 'file')}, {counted(row_count, 'stored record')}, {human_size(size)}"
    if limit is not None and limit < len(rows):
        rows, footer = rows[:limit], f"the first {limit} of {footer}"
    call.show(Listing("FileList", opened.name, chosen, rows, footer=footer))


@command(files, "show")
def show_file(
    call: Call,
    table: TableName,
    name: Annotated[str, typer.Argument(metavar="NAME", help="File name of a data file.")],
    snapshot: SnapshotId = None,
) -> None:
    """Show one data file with its column statistics.

    paimon-cli files show ./wh/shop.db/orders data-NAME.parquet

    paimon-cli files show ./wh/shop.db/orders data-NAME.parquet --snapshot 3 -o json
    """
    opened = call.open(table)
    call.show(Item("File", opened.name, opened.file(name, snapshot=snapshot)))


@command(partitions, "ls")
def list_partitions(
    call: Call,
    table: TableName,
    snapshot: SnapshotId = None,
    done: Annotated[
        bool, typer.Option("--done", help="Look for success files even if there are more than 1,000 partitions.")
    ] = False,
) -> None:
    """List partitions with their files, rows and bytes, and when they were marked as done.

    paimon-cli partitions ls ./wh/shop.db/orders

    paimon-cli partitions ls ./wh/shop.db/orders --snapshot 3 -o json
    """
    from paimon_cli.inspect.bucket_report import MAX_MARKS, PartitionRow

    opened = call.open(table)
    rows = opened.partitions(snapshot=snapshot, done=done)
    unread = "; --done looks for success files" if len(rows) > MAX_MARKS and not done else ""
    call.show(Listing("PartitionList", opened.name, PartitionRow, rows, footer=f"{counted(len(rows), 'partition')}{unread}"))


@command(partitions, "mark-done")
def mark_partitions_done(call: Call, table: TableName, *, options: Annotated[Given, MarkOptions]) -> None:
    """Mark partitions as done, for jobs that wait until a partition is complete.

    success-file writes _SUCCESS into the directory of each partition. http-report posts each partition to
    partition.mark-done-action.http.url. In a Hive metastore, done-partition adds a partition whose last value ends in
    .done. In a Hive metastore and on a REST server, mark-event sends an event for each partition. Marking a partition again
    updates its time.

    paimon-cli partitions mark-done ./wh/shop.db/orders --partition dt=2026-11-21

    paimon-cli partitions mark-done ./wh/shop.db/orders --partition dt=2026-11-20 --partition dt=2026-11-21
    """
    from paimon_cli.maintain.mark_done import MarkedPartition

    opened = call.open(table)
    rows = opened.mark_done(**options)
    footer = f"{counted(len(rows), 'partition')} marked as done"
    call.show(Listing("MarkedPartitionList", opened.name, MarkedPartition, rows, footer=footer))


@command(buckets, "ls")
def list_buckets(
    call: Call,
    table: TableName,
    snapshot: SnapshotId = None,
    partition: Partitions = None,
    index_stats: Annotated[
        bool, typer.Option("--index-stats", help="Also show keys in hash indexes, and rows marked by deletion vectors.")
    ] = False,
) -> None:
    """List buckets with their files, sorted runs, rows, bytes and skew; the footer names the command to run.

    Skew is the size of a bucket divided by the average bucket of its partition.

    paimon-cli buckets ls ./wh/shop.db/orders

    paimon-cli buckets ls ./wh/shop.db/orders --index-stats --partition dt=2026-11-21
    """
    from paimon_cli.inspect.bucket_report import BucketRow, IndexedBucketRow, reason_of

    opened = call.open(table)
    rows = opened.buckets(
        snapshot=snapshot, partition=split_partitions(partition), index_stats=index_stats, argument=call.pasted(table)
    )
    advised = Counter((reason_of(finding), finding.command) for row in rows for finding in row.findings if finding.command)
    advice = [f"{counted(number, 'bucket')}, {reason}: {command}" for (reason, command), number in advised.items()]
    footer = "\n".join([counted(len(rows), "bucket"), *advice])
    call.show(Listing("BucketList", opened.name, IndexedBucketRow if index_stats else BucketRow, rows, footer=footer))


@command(buckets, "plan")
def plan_buckets(call: Call, table: TableName, partition: Partitions = None) -> None:
    """Show which bucket count each partition should have, why, and the bytes and the time that the change would take.

    With postponed buckets each partition has its own count, and one in which a sorted run of a bucket is above twice the target
    (postpone.target-size-per-bucket, or postpone.target-row-num-per-bucket) is split, by powers of two, in the next round of
    maintain or compact --watch, while writers go on. With fixed buckets one count holds for all partitions, and only rescale
    changes it. This command changes nothing.

    paimon-cli buckets plan ./wh/shop.db/orders

    paimon-cli buckets plan ./wh/shop.db/orders --partition dt=2026-11-21 -o json
    """
    from paimon_cli.inspect.bucket_plan import KEEP, BucketPlanRow

    opened = call.open(table)
    rows = opened.bucket_plan(partition=split_partitions(partition), argument=call.pasted(table))
    changed = [row for row in rows if row.action != KEEP]
    commands = dict.fromkeys(row.command for row in rows if row.command)
    size, seconds = sum(row.rewritten_bytes for row in changed), sum(row.seconds for row in changed)
    total = f": {human_size(size)} to rewrite, about {seconds:,.0f} s on one core" if changed else ""
    mode = "" if rows else f"; the table has {opened.context.mode.bucket_mode.text}"
    footer = f"{counted(len(rows), 'partition')}, {len(changed):,} to change{total}{mode}"
    call.show(Listing("BucketPlanList", opened.name, BucketPlanRow, rows, footer="\n".join([footer, *map(str, commands)])))


def _chosen_columns(names: str | None) -> Sequence[Column]:
    from paimon_cli.inspect.file_report import FileRow

    known = {column.name: column for column in columns_of(FileRow)}
    if names is None:
        return list(known.values())
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    unknown = [name for name in wanted if name not in known]
    if unknown or not wanted:
        hint = did_you_mean(unknown[0], known).strip() if unknown else ""
        raise UsageError(f"--columns {names}: no column '{', '.join(unknown)}'", f"the columns are {', '.join(known)}", hint)
    return [known[name] for name in wanted]


indexes = group("Index files of a snapshot: hash indexes of dynamic buckets, deletion vectors.")
vectors = group("Deletion vectors of a snapshot: which rows of which data files are deleted.")


@command(indexes, "ls")
def list_indexes(
    call: Call, table: TableName, snapshot: SnapshotId = None, partition: Partitions = None, bucket: Buckets = None
) -> None:
    """List the index files of a snapshot by partition and bucket.

    paimon-cli indexes ls ./wh/shop.db/orders

    paimon-cli indexes ls ./wh/shop.db/orders --partition dt=2026-11-21 -o json
    """
    from paimon_cli.inspect.index_report import IndexRow

    opened = call.open(table)
    rows = opened.indexes(snapshot=snapshot, partition=split_partitions(partition), bucket=split_buckets(bucket))
    footer = f"{counted(len(rows), 'index file')}, {human_size(sum(row.size for row in rows))}"
    call.show(Listing("IndexList", opened.name, IndexRow, rows, footer=footer))


@command(vectors, "ls")
def list_vectors(
    call: Call,
    table: TableName,
    snapshot: SnapshotId = None,
    partition: Partitions = None,
    bucket: Buckets = None,
    dangling: Annotated[
        bool, typer.Option("--dangling", help="Only vectors whose data file is no longer live, so that they mark nothing.")
    ] = False,
) -> None:
    """List the deletion vectors of a snapshot: deleted rows per data file, and the index file that holds them.

    paimon-cli dv ls ./wh/shop.db/orders

    paimon-cli dv ls ./wh/shop.db/orders --dangling -o json
    """
    from paimon_cli.inspect.index_report import VectorRow

    opened = call.open(table)
    rows = opened.dv(snapshot=snapshot, partition=split_partitions(partition), bucket=split_buckets(bucket), dangling=dangling)
    footer = f"{counted(len(rows), 'deletion vector')}, {counted(sum(row.deleted for row in rows), 'deleted row')}"
    call.show(Listing("DeletionVectorList", opened.name, VectorRow, rows, footer=footer))
