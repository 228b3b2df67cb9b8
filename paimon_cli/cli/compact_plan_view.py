"""`compact --dry-run`: what would be compacted, for which trigger and at what cost, and why the rest is not."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from paimon_cli.cli.command import Call
from paimon_cli.cli.results import ABSENT, COUNT, ID, SIZE, TEXT, Column, Listing, OutputFormat, counted, human_size
from paimon_cli.errors import Refused

if TYPE_CHECKING:
    from paimon_cli.api.table import Table
    from paimon_cli.catalog.table_location import TableLocation
    from paimon_cli.inspect.compaction_report import DecisionRow
    from paimon_cli.jobs.compact_job import CompactionPlan, CompactRequest

PLAN_COLUMNS = (
    Column("partition"),
    Column("bucket", None, ID),
    Column("reason"),
    Column("arithmetic"),
    Column("runs_before", None, COUNT),
    Column("runs_after", None, COUNT),
    Column("picked_runs", None, COUNT),
    Column("files", None, COUNT),
    Column("files_after", None, COUNT),
    Column("upgraded", None, COUNT),
    Column("size", None, SIZE),
    Column("read_bytes", None, SIZE),
    Column("write_bytes", None, SIZE),
    Column("write_amplification"),
    Column("space_amplification_before", None, COUNT),
    Column("space_amplification_after", None, COUNT),
    Column("output_level", None, ID),
)
LINE_COLUMNS = (
    Column("partition", "Partition"),
    Column("buckets", "Bucket", ID),
    Column("reason", "Reason"),
    Column("picked", "Runs in", hide=4),
    Column("level", "->"),
    Column("read", "Read", ID, hide=6),
    Column("write", "Write", ID, hide=5),
    Column("read_amplification", "Read amp"),
    Column("space_amplification", "Space amp", hide=3),
    Column("rewrite", "Rewrite/new", ID, hide=2),
    Column("figures", "Figures", TEXT, hide=1),
)


@dataclass(frozen=True)
class PlanLine:
    """One bucket to compact, or neighbouring buckets that are skipped for the same reason, as text."""

    partition: str
    buckets: str
    reason: str
    picked: str = ""
    level: str = ""
    read: str = ""
    write: str = ""
    read_amplification: str = ""
    space_amplification: str = ""
    rewrite: str = ""
    figures: str = ""


def show_plans(call: Call, locations: Sequence[TableLocation], request: CompactRequest, dedicated: bool) -> None:
    """Show one plan per table. Changes nothing, and refuses whatever a real run would refuse."""
    from paimon_cli.inspect.compaction_report import decision_rows

    for location in locations:
        table = call.open_at(location)
        plan = table.plan_compaction(request)
        rows = decision_rows(table.context, plan.decisions)
        if call.output is not OutputFormat.TABLE:
            call.show(Listing("CompactionPlan", table.name, PLAN_COLUMNS, rows))
            continue
        what = "Dedicated compaction plan" if dedicated else "Compaction plan"
        at = "without snapshots" if plan.snapshot_id is None else f"@ snapshot {plan.snapshot_id}"
        heading = f"{what} for {table.name} {at}   strategy {request.strategy}   engine {_engine(call, plan)}"
        footer = "\n".join((_work(rows), _guards(table), _what_next(plan)))
        call.show(Listing("CompactionPlan", table.name, LINE_COLUMNS, list(_lines(rows)), heading, footer))


def _engine(call: Call, plan: CompactionPlan) -> str:
    """The engine that a run would use, with the reason."""
    from paimon_cli.jobs.engine_choice import AutoEngine

    engine = call.runtime.open_engine()
    if not isinstance(engine, AutoEngine):
        return engine.name
    return f"{engine.choose(plan.work)} ({engine.reason})"


def _lines(rows: Sequence[DecisionRow]) -> Iterator[PlanLine]:
    def alike(row: DecisionRow) -> tuple[str, str | int]:
        return row.partition, row.reason if row.output_level is None else row.bucket

    for _, members in itertools.groupby(rows, alike):
        yield _line(list(members))


def _line(members: list[DecisionRow]) -> PlanLine:
    first, last = members[0], members[-1]
    partition = first.partition or ABSENT
    if first.output_level is None:
        buckets = str(first.bucket) if first is last else f"{first.bucket}..{last.bucket}"
        return PlanLine(partition, buckets, first.reason)
    return PlanLine(
        partition,
        str(first.bucket),
        first.reason,
        first.picked,
        f"L{first.output_level}",
        human_size(first.read_bytes),
        human_size(first.write_bytes),
        f"{first.runs_before} -> {first.runs_after}",
        f"{first.space_amplification_before}% -> {first.space_amplification_after}%",
        ABSENT if first.write_amplification is None else f"{first.write_amplification:.1f}x",
        first.arithmetic or "",
    )


def _work(rows: Sequence[DecisionRow]) -> str:
    tasks = [row for row in rows if row.output_level is not None]
    if not tasks:
        return "nothing to compact"
    files, after = sum(row.files for row in tasks), sum(row.files_after for row in tasks)
    read, written = sum(row.read_bytes for row in tasks), sum(row.write_bytes for row in tasks)
    upgraded = sum(row.upgraded for row in tasks)
    moved = f", {counted(upgraded, 'file')} of them only moved to another level" if upgraded else ""
    return (
        f"{counted(len(tasks), 'bucket')} to compact, {counted(files, 'file')} -> about {after}{moved}, "
        f"{human_size(read)} read, about {human_size(written)} written, one commit"
    )


def _guards(table: Table) -> str:
    from paimon_cli.inspect.compaction_report import LOOK_BACK, guards

    seen = guards(table.context)
    try:
        safe = "no, --allow-unsafe-commit" if table.catalog_table.check_commits() else "yes"
    except Refused as refusal:
        safe = f"no: {refusal.what}"
    compactors = ", ".join(seen.compactors) or "none"
    return (
        f"guards: table is write-only: {'yes' if seen.write_only else 'no'} · "
        f"compactors in the last {LOOK_BACK} snapshots: {compactors} · safe commits: {safe}"
    )


def _what_next(plan: CompactionPlan) -> str:
    if not plan.tasks:
        return "nothing was changed (dry run)"
    return f"nothing was changed (dry run); run without --dry-run, or pin this plan: --if-snapshot {plan.snapshot_id}"
