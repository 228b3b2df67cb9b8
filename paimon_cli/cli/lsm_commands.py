"""`lsm` and `simulate`: the sorted runs of each bucket, the next compaction, and the cost of other options."""

from __future__ import annotations

import json
import textwrap
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paimon_cli.cli.command import Call, command, group, top_level
from paimon_cli.cli.output import Item, Listing
from paimon_cli.cli.parameters import Buckets, Partitions, SnapshotId, TableName
from paimon_cli.cli.results import TIME, counted, human_size, printable, say
from paimon_cli.cli.terminal import paged
from paimon_cli.errors import NotFound, UsageError
from paimon_cli.metadata.table_layout import POSTPONE_BUCKET
from paimon_cli.options.option_text import split_buckets
from paimon_cli.requests.selections import split_pairs, split_partitions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from paimon_cli.inspect.compaction_scenarios import LsmExplanation
    from paimon_cli.inspect.lsm_report import LsmRow

commands = top_level()
lsm = group("The LSM tree of each bucket: sorted runs, amplification, next compaction.")

PARAGRAPH_WIDTH = 78


@command(lsm, "show")
def show_lsm(
    call: Call, table: TableName, partition: Partitions = None, bucket: Buckets = None, snapshot: SnapshotId = None
) -> None:
    """Show the sorted runs of each bucket, newest first.

    paimon-cli lsm show ./wh/shop.db/orders --bucket 0

    paimon-cli lsm show ./wh/shop.db/orders --partition dt=2026-11-21 -o json
    """
    from paimon_cli.inspect.lsm_report import LsmRow, RunRow

    opened = call.open(table)
    rows = opened.lsm(snapshot=snapshot, partition=split_partitions(partition), bucket=split_buckets(bucket))
    if not call.is_for_people:
        call.show(Listing("LsmBucketList", opened.name, LsmRow, rows))
        return
    with paged(sum(len(row.runs) + 6 for row in rows)):
        for row in rows:
            call.show(Listing("LsmBucket", opened.name, RunRow, row.runs, _heading(row), _footer(row)))
    if not rows:
        say("no buckets with files")


@command(lsm, "explain")
def explain(call: Call, table: TableName, snapshot: SnapshotId = None) -> None:
    """Compare universal and leveled compaction with the table's own figures, and explain the cost of finding one key.

    Both are simulated with the commits that are still in the history, without reading data: universal by the rules of
    `compact`, leveled by a model of LSM trees such as RocksDB's.

    paimon-cli lsm explain ./wh/shop.db/orders

    paimon-cli lsm explain ./wh/shop.db/orders --snapshot 3
    """
    from paimon_cli.inspect.compaction_scenarios import StrategyRow

    opened = call.open(table)
    explained = opened.explain_lsm(snapshot=snapshot)
    if not call.is_for_people:
        call.show(Item("LsmExplanation", opened.name, explained))
        return
    heading, footer = "\n".join(_lesson_before(explained)), "\n".join(_lesson_after(explained)).rstrip()
    call.show(Listing("LsmExplanation", opened.name, StrategyRow, explained.strategies, heading, footer))


def _lesson_before(explained: LsmExplanation) -> Iterator[str]:
    """The text before the table: what it shows and how the two strategies work."""
    source = "the commits in the history" if explained.replayed == "history" else "the current runs, as if each were a commit"
    yield from _paragraph(
        f"Simulated with {source}: {counted(explained.commits, 'commit')}, {counted(explained.buckets, 'bucket')}, "
        f"{human_size(explained.average_flush_bytes)} per flush, largest bucket {human_size(explained.biggest_bucket_bytes)}."
    )
    yield from _paragraph(
        f"Universal compaction waits for {explained.trigger} runs, then merges the newest runs of similar size and leaves older "
        "runs alone. A byte is rewritten about once each time the tree doubles."
    )
    yield from _paragraph(
        f"Leveled compaction merges level 0 into level 1 ({human_size(explained.level_1_bytes)}) at {explained.trigger} runs. "
        f"Each level is {explained.fanout} times as large as the previous one, and overflows into the next. A byte is rewritten "
        f"up to {explained.fanout} times per level, and the largest bucket needs {counted(explained.levels, 'level')}."
    )


def _lesson_after(explained: LsmExplanation) -> Iterator[str]:
    """The text after the table: what the figures mean, and the next compaction."""
    lookup, universal, leveled = explained.lookup, *explained.strategies
    bucket = f"{lookup.partition} / bucket {lookup.bucket}" if lookup.partition else f"bucket {lookup.bucket}"
    yield ""
    yield "write amp  bytes written by flushes and compactions for each byte flushed"
    yield "read amp   sorted runs that a reader merges, on average between two flushes"
    yield "space amp  bytes stored for each byte that a full merge would store"
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
        f"Next in {bucket}: universal {explained.next_compaction}{rewrites}; leveled would rewrite "
        f"{human_size(explained.next_rewrites_leveled)}."
    )
    yield from _paragraph(
        f"Finding one key in {bucket}: the manifest stores the first and last key of each file, a sparse index of every run. A "
        f"binary search takes {counted(lookup.comparisons, 'comparison')} for {counted(lookup.files, 'file')} in "
        f"{counted(lookup.runs, 'run')}, and leaves at most {counted(lookup.files_read, 'file')} to read, one per run. Within a "
        f"file, the key ranges of row groups narrow the search further, so most of {counted(lookup.keys, 'row')} are never read."
    )


def _paragraph(text: str) -> Iterator[str]:
    yield from textwrap.wrap(text, PARAGRAPH_WIDTH, break_long_words=False, break_on_hyphens=False)
    yield ""


def _heading(row: LsmRow) -> str:
    bucket = f"{printable(row.partition)} / bucket {row.bucket}" if row.partition else f"bucket {row.bucket}"
    return (
        f"{bucket}   snapshot {row.snapshot_id}   {counted(row.read_amplification, 'sorted run')}   "
        f"trigger {_limit(row.compaction_trigger)}   stop {_limit(row.stop_trigger)}   levels 0..{row.levels - 1}"
    )


def _limit(value: int | None) -> str:
    """A limit; `-` if its option cannot be read."""
    return "-" if value is None else str(value)


def _last_full(row: LsmRow) -> str:
    if row.last_full is None:
        return "none: there is no run above level 0"
    if row.last_full_snapshot is None:
        return f"{TIME.text(row.last_full)} UTC, by the newest file of the top run; its snapshot has expired"
    return f"{TIME.text(row.last_full)} UTC, snapshot {row.last_full_snapshot}"


def _footer(row: LsmRow) -> str:
    rows = sum(run.rows for run in row.runs)
    deletes = [run.delete_rows for run in row.runs if run.delete_rows is not None]
    is_known = rows > 0 and len(deletes) == len(row.runs)  # not every writer records them
    share = f"   tombstones {100 * sum(deletes) / rows:.1f}%" if is_known else ""
    space = f"space amplification {row.space_amplification_percent}% (limit {_limit(row.space_limit_percent)}%)"
    amplification = f"read amplification {row.read_amplification}   {space}{share}   DV rows {row.deletion_vector_rows}"
    amplification += f"\nlast full compaction: {_last_full(row)}"
    if row.waiting_records:
        wait = "waits" if row.waiting_records == 1 else "wait"
        amplification += f"\nnot visible yet: {counted(row.waiting_records, 'stored record')} that {wait} for a compaction"
    if row.bucket == POSTPONE_BUCKET:
        return f"{amplification}\nnext compaction: {row.would_compact}\n"
    if row.output_level is None:
        return f"{amplification}\nnext compaction: none: {row.would_compact}\n"
    picked = sum(run.picked for run in row.runs)
    return f"{amplification}\nnext compaction: WOULD PICK runs 1-{picked} by {row.would_compact} -> L{row.output_level}\n"


_of_workload = partial(typer.Option, rich_help_panel="Workload instead of a history", show_default=False)


@dataclass(frozen=True)
class Workload:
    """Options that describe a synthetic workload, named as in the JSON document."""

    commits: Annotated[int | None, _of_workload("--commits", help="Number of commits.")] = None
    rows: Annotated[int | None, _of_workload("--rows", help="Rows per commit.")] = None
    row_bytes: Annotated[int | None, _of_workload("--row-bytes", help="Bytes of a stored row.")] = None
    update_ratio: Annotated[
        float | None, _of_workload("--update-ratio", help="Share of a commit's rows whose keys exist already.")
    ] = None
    skew: Annotated[
        float | None, _of_workload("--skew", help="0: updates are spread evenly; larger values concentrate them on fewer keys.")
    ] = None
    buckets: Annotated[int | None, _of_workload("--buckets", help="Number of buckets for the keys.")] = None


@command(commands, "simulate")
def simulate(
    call: Call,
    table: Annotated[
        str | None,
        typer.Argument(metavar="[TABLE]", help="Table whose snapshots are replayed and whose options are the baseline."),
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Table option to try; repeatable for several options in one scenario."),
    ] = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="Also try other triggers, size ratios and amplification limits.")
    ] = False,
    compact_every: Annotated[
        int,
        typer.Option("--compact-every", metavar="N", min=1, help="Run a compaction round after every N commits."),
    ] = 1,
    file: Annotated[
        Path | None,
        typer.Option(
            "--workload",
            metavar="FILE",
            help="JSON object with commits, rows, row_bytes, update_ratio, skew, buckets, commit_interval (ms), seed; all "
            "optional.",
            rich_help_panel="Workload instead of a history",
        ),
    ] = None,
    *,
    workload: Workload,
) -> None:
    """Compare compaction options by simulation: write, read and space amplification, stalls.

    paimon-cli simulate ./wh/shop.db/orders --set num-sorted-run.compaction-trigger=10 --compare

    paimon-cli simulate --commits 100 --rows 1000 --update-ratio 0.5
    """
    from paimon_cli.api.inspection import simulate as run_simulation
    from paimon_cli.inspect.compaction_scenarios import ScenarioRow

    opened = None if table is None else call.open(table)
    given = {name: value for name, value in vars(workload).items() if value is not None}
    done = run_simulation(
        {**({} if file is None else _document(file)), **given},
        split_pairs(changes, "--set"),
        compare=compare,
        compact_every=compact_every,
        table=opened,
        options=call.options,
        runtime=call.runtime,
    )
    after = "a round after each commit" if compact_every == 1 else f"a round every {compact_every} commits"
    heading = f"Simulated compaction of {done.workload}, {after}; nothing was changed"
    call.show(Listing("CompactionSimulation", table, ScenarioRow, done.scenarios, heading))


def _document(file: Path) -> dict[str, Any]:
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise NotFound(f"no file {file}") from error
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"cannot read the workload {file}", getattr(error, "strerror", None) or str(error)) from error
    if not isinstance(document, dict):
        raise UsageError(f"{file} is not a workload", "it must be a JSON object")
    return document
