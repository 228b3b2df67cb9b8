"""`lsm`: the sorted runs of each bucket over its key range, and what compaction would do."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from paimon_cli.cli.command import Call, command, group
from paimon_cli.cli.parameters import Buckets, Partitions, SnapshotId, TableName, split_partitions
from paimon_cli.cli.results import (
    COUNT,
    FLAG,
    ID,
    KEY,
    LEVEL,
    SIZE,
    SPAN,
    TIME,
    Column,
    Item,
    Listing,
    OutputFormat,
    counted,
    human_size,
    printable,
    record,
    records,
    say,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from paimon_cli.inspect.compaction_scenarios import LsmExplanation
    from paimon_cli.inspect.lsm_report import LsmRow

lsm = group("The LSM tree of each bucket: sorted runs, amplification, next compaction.")

PARAGRAPH_WIDTH = 78
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
    Column("not_supported"),
    Column("runs", None, records(*RUN_NAMES)),
)
RUN_COLUMNS = (
    Column("run", "Run", ID),
    Column("level", "Level", LEVEL),
    Column("files", "Files", COUNT, hide=5),
    Column("size", "Size", SIZE),
    Column("rows", "Records", COUNT),
    Column("delete_rows", "Deletes", COUNT, hide=2),
    Column("min_key", "Min key", KEY, hide=4),
    Column("max_key", "Max key", KEY, hide=3),
    Column("span", "Key range", SPAN),
    Column("overlap", "Overlap", COUNT, hide=1),
    Column("picked", "Picked", FLAG),
)


@command(lsm, "show")
def show_lsm(
    call: Call, table: TableName, partition: Partitions = None, bucket: Buckets = None, snapshot: SnapshotId = None
) -> None:
    """Show the sorted runs of each bucket, the newest first."""
    opened = call.open(table)
    rows = opened.lsm(snapshot=snapshot, partition=split_partitions(partition), bucket=bucket)
    if call.output is not OutputFormat.TABLE:
        call.show(Listing("LsmBucketList", opened.name, LSM_COLUMNS, rows))
        return
    for row in rows:
        call.show(Listing("LsmBucket", opened.name, RUN_COLUMNS, row.runs, _heading(row), _footer(row)))
    if not rows:
        say("no buckets with files")


STRATEGY_NAMES = (
    "strategy",
    "write_amplification",
    "read_amplification",
    "most_runs",
    "space_amplification",
    "compactions",
    "rewritten_bytes",
)
STRATEGY_COLUMNS = (
    Column("strategy", "Compaction"),
    Column("write_amplification", "Write amp", ID),
    Column("read_amplification", "Read amp", ID),
    Column("most_runs", "Most runs", COUNT),
    Column("space_amplification", "Space amp", ID),
    Column("compactions", "Compactions", COUNT),
    Column("rewritten_bytes", "Rewritten", SIZE),
)
LOOKUP_NAMES = ("partition", "bucket", "runs", "files", "keys", "files_read", "comparisons")
EXPLANATION_COLUMNS = (
    Column("snapshot_id", None, ID),
    Column("replayed"),
    Column("commits", None, COUNT),
    Column("buckets", None, COUNT),
    Column("average_flush_bytes", None, SIZE),
    Column("biggest_bucket_bytes", None, SIZE),
    Column("trigger", None, COUNT),
    Column("fanout", None, COUNT),
    Column("level_1_bytes", None, SIZE),
    Column("levels", None, COUNT),
    Column("strategies", None, records(*STRATEGY_NAMES)),
    Column("next_compaction"),
    Column("next_rewrites", None, SIZE),
    Column("next_rewrites_leveled", None, SIZE),
    Column("lookup", None, record(*LOOKUP_NAMES)),
)


@command(lsm, "explain")
def explain(call: Call, table: TableName, snapshot: SnapshotId = None) -> None:
    """Compare universal and leveled compaction on the table's own figures, and explain what finding one key costs.

    Both are simulated on the commits still in the history, without touching data: universal by the same rules that
    `compact` follows, leveled by a model of trees such as RocksDB's.

    paimon-cli lsm explain ./wh/shop.db/orders
    """
    opened = call.open(table)
    explained = opened.explain_lsm(snapshot=snapshot)
    if call.output is not OutputFormat.TABLE:
        call.show(Item("LsmExplanation", opened.name, EXPLANATION_COLUMNS, explained))
        return
    heading, footer = "\n".join(_lesson_before(explained)), "\n".join(_lesson_after(explained)).rstrip()
    call.show(Listing("LsmExplanation", opened.name, STRATEGY_COLUMNS, explained.strategies, heading, footer))


def _lesson_before(explained: LsmExplanation) -> Iterator[str]:
    """The text before the table: what it shows and how the two strategies work."""
    source = "the commits still in the history" if explained.replayed == "history" else "today's runs, as if each were a commit"
    yield from _paragraph(
        f"Simulated on {source}: {counted(explained.commits, 'commit')}, {counted(explained.buckets, 'bucket')}, "
        f"{human_size(explained.average_flush_bytes)} per flush, biggest bucket {human_size(explained.biggest_bucket_bytes)}."
    )
    yield from _paragraph(
        f"Universal compaction waits for {explained.trigger} runs, then merges the newest of them that are of similar size; "
        "older runs stay. A byte is rewritten about once each time the tree doubles."
    )
    yield from _paragraph(
        f"Leveled compaction merges level 0 into level 1 ({human_size(explained.level_1_bytes)}) at {explained.trigger} runs. "
        f"Each level holds {explained.fanout} times the one above it, and what overflows is merged into the next: a byte is "
        f"rewritten up to {explained.fanout} times a level, and the biggest bucket needs {counted(explained.levels, 'level')}."
    )


def _lesson_after(explained: LsmExplanation) -> Iterator[str]:
    """The text after the table: what the figures mean, and the next compaction."""
    lookup, universal, leveled = explained.lookup, *explained.strategies
    place = f"{lookup.partition} / bucket {lookup.bucket}" if lookup.partition else f"bucket {lookup.bucket}"
    yield ""
    yield "write amp  bytes written by flushes and compactions for each byte flushed"
    yield "read amp   sorted runs that a reader merges, on average after a flush"
    yield "space amp  bytes kept for each byte that a full merge would keep"
    yield ""
    writes = sorted((universal, leveled), key=lambda row: row.write_amplification)
    less, more = writes[0].write_amplification, writes[1].write_amplification
    verdict = (
        "Both write the same amount" if less == more else f"{writes[0].strategy.capitalize()} writes less, {less} versus {more}"
    )
    yield from _paragraph(
        f"{verdict}; readers merge {universal.read_amplification} runs with universal, {leveled.read_amplification} with leveled."
    )
    rewrites = f"; {human_size(explained.next_rewrites)} would be rewritten" if explained.next_rewrites else ""
    yield from _paragraph(
        f"Next in {place}: universal {explained.next_compaction}{rewrites}; leveled would rewrite "
        f"{human_size(explained.next_rewrites_leveled)}."
    )
    yield from _paragraph(
        f"Finding one key in {place}: the manifest knows the first and last key of each file, which is a sparse index of every "
        f"run. A binary search takes {counted(lookup.comparisons, 'comparison')} for {counted(lookup.files, 'file')} in "
        f"{counted(lookup.runs, 'run')} and leaves {counted(lookup.files_read, 'file')} to read at most, one a run; in a file, "
        f"the first and last keys of its row groups are the next such index. Not all of {counted(lookup.keys, 'row')} are read."
    )


def _paragraph(text: str) -> Iterator[str]:
    yield from textwrap.wrap(text, PARAGRAPH_WIDTH, break_long_words=False, break_on_hyphens=False)
    yield ""


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
