"""`lsm`: the sorted runs of each bucket, drawn over its key range, and what compaction would do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from paimon_cli.cli.command import Call, command, group
from paimon_cli.cli.file_commands import partition_filter
from paimon_cli.cli.messages import say
from paimon_cli.cli.parameters import Buckets, Partitions, SnapshotId, TableName
from paimon_cli.cli.results import Column, Listing, OutputFormat
from paimon_cli.cli.value_kinds import COUNT, FLAG, ID, KEY, LEVEL, SIZE, SPAN, TIME, counted, printable, records

if TYPE_CHECKING:
    from paimon_cli.table.lsm_report import LsmRow

lsm = group("The LSM tree of each bucket: sorted runs, amplification, next compaction.")

RUN_NAMES = ("run", "level", "files", "size", "rows", "delete_rows", "min_key", "max_key", "overlap", "span", "picked")
LSM_COLUMNS = (
    Column("partition"),
    Column("bucket", None, ID),
    Column("snapshot_id", None, ID),
    Column("levels", None, COUNT),
    Column("compaction_trigger", None, COUNT),
    Column("stop_trigger", None, COUNT),
    Column("read_amplification", None, COUNT),
    Column("space_amplification_percent", None, COUNT),
    Column("space_limit_percent", None, COUNT),
    Column("deletion_vector_rows", None, COUNT),
    Column("last_full", None, TIME),
    Column("last_full_snapshot", None, ID),
    Column("would_compact"),
    Column("output_level", None, ID),
    Column("runs", None, records(*RUN_NAMES)),
)
RUN_COLUMNS = (
    Column("run", "Run", ID),
    Column("level", "Level", LEVEL),
    Column("files", "Files", COUNT),
    Column("size", "Size", SIZE),
    Column("rows", "Rows", COUNT),
    Column("delete_rows", "Deletes", COUNT),
    Column("min_key", "Min key", KEY),
    Column("max_key", "Max key", KEY),
    Column("span", "Key range", SPAN),
    Column("overlap", "Overlap", COUNT),
    Column("picked", "Picked", FLAG),
)


@command(lsm, "show")
def show_lsm(
    call: Call, table: TableName, partition: Partitions = None, bucket: Buckets = None, snapshot: SnapshotId = None
) -> None:
    """Show the sorted runs of each bucket, the newest first."""
    from paimon_cli.table.lsm_report import lsm_rows

    opened = call.open(table)
    rows = lsm_rows(opened.context, opened.snapshot(snapshot), partition_filter(opened, partition), bucket)
    if call.output is not OutputFormat.TABLE:
        call.show(Listing("LsmBucketList", opened.name, LSM_COLUMNS, rows))
        return
    for row in rows:
        call.show(Listing("LsmBucket", opened.name, RUN_COLUMNS, row.runs, _heading(row), _footer(row)))
    if not rows:
        say("no buckets with files")


def _heading(row: LsmRow) -> str:
    place = f"{printable(row.partition)} / bucket {row.bucket}" if row.partition else f"bucket {row.bucket}"
    return (
        f"{place}   snapshot {row.snapshot_id}   {counted(row.read_amplification, 'sorted run')}   "
        f"trigger {row.compaction_trigger}   stop {row.stop_trigger}   levels 0..{row.levels - 1}"
    )


def _last_full(row: LsmRow) -> str:
    if row.last_full is None:
        return "none known: there is no run above level 0"
    if row.last_full_snapshot is None:
        return f"{TIME.text(row.last_full)} UTC, by the newest file of the top run: its snapshot has expired"
    return f"{TIME.text(row.last_full)} UTC, snapshot {row.last_full_snapshot}"


def _footer(row: LsmRow) -> str:
    rows = sum(run.rows for run in row.runs)
    deletes = sum(run.delete_rows or 0 for run in row.runs)
    share = f"   tombstones {100 * deletes / rows:.1f}%" if rows else ""
    space = f"space amplification {row.space_amplification_percent}% (limit {row.space_limit_percent}%)"
    amplification = f"read amplification {row.read_amplification}   {space}{share}   DV rows {row.deletion_vector_rows}"
    amplification += f"\nlast full compaction: {_last_full(row)}"
    if row.output_level is None:
        return f"{amplification}\nnext compaction: none: {row.would_compact}\n"
    picked = sum(run.picked for run in row.runs)
    return f"{amplification}\nnext compaction: WOULD PICK runs 1-{picked} by {row.would_compact} -> L{row.output_level}\n"
