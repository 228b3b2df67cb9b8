"""Shows compactions as text: plans with their reasons (`compact --dry-run`), and results."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from paimon_cli.cli.columns import Column, columns_of
from paimon_cli.cli.command import Call
from paimon_cli.cli.output import Listing
from paimon_cli.cli.results import NO_VALUE, counted, engine_text, human_size, ran
from paimon_cli.errors import Refused

if TYPE_CHECKING:
    from paimon_cli.api.table import Table
    from paimon_cli.inspect.compaction_report import DecisionRow
    from paimon_cli.jobs.compact_summary import CompactSummary
    from paimon_cli.jobs.round_plan import CompactionPlan


@dataclass(frozen=True)
class PlanLine:
    """One bucket to compact, or consecutive buckets that are skipped for the same reason, as text."""

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
    files: str = ""


COLUMNS_WITHOUT_KEYS = ("partition", "buckets", "reason", "files", "read", "write", "figures")
"""The columns for append tables, which have no runs and levels."""


def show_plan(call: Call, table: Table, plan: CompactionPlan, strategy: str, dedicated: bool) -> None:
    """Show the compaction plan of one table as text."""
    from paimon_cli.inspect.compaction_report import decision_rows
    from paimon_cli.jobs.round_plan import rows_dropped_after

    rows = decision_rows(table.context, plan.decisions)
    what = "Dedicated compaction plan" if dedicated else "Compaction plan"
    at = "without snapshots" if plan.snapshot_id is None else f"@ snapshot {plan.snapshot_id}"
    heading = f"{what} for {table.name} {at}   strategy {strategy}   engine {_engine(call, plan)}"
    age = rows_dropped_after(table.context, plan)
    dropped = () if age is None else (dropped_rows_text(age),)
    footer = "\n".join((_work(rows), *dropped, _guards(table), _closing_note(plan)))
    columns = columns_of(PlanLine)
    if not table.context.mode.has_keys:
        by_name = {column.name: column for column in columns}
        columns = [by_name[name] for name in COLUMNS_WITHOUT_KEYS]
    call.show(Listing("CompactionPlan", table.name, columns, list(_lines(rows)), heading, footer))


def dropped_rows_text(age: str) -> str:
    return f"{old_rows_text(age)} are dropped by the compaction"


def old_rows_text(age: str) -> str:
    """The rows that `rows_dropped_after` is about."""
    from paimon_cli.jobs.round_plan import RECORD_EXPIRY

    return f"rows older than {age} ({RECORD_EXPIRY})"


@dataclass(frozen=True)
class DecisionOfTable:
    """The decision about a bucket, with the name of its table."""

    table: str
    decision: DecisionRow

    def __getattr__(self, name: str) -> object:
        return getattr(self.decision, name)


def show_plans_to_programs(call: Call, planned: Sequence[tuple[Table, CompactionPlan]], *, single: bool) -> None:
    """Print one result for all plans; for a `single` table the result that `--if-snapshot` can refer to."""
    from paimon_cli.inspect.compaction_report import DecisionRow, decision_rows

    if single and len(planned) == 1:
        ((table, plan),) = planned
        rows = decision_rows(table.context, plan.decisions)
        call.show(Listing("CompactionPlan", table.name, DecisionRow, rows, summary={"snapshot_id": plan.snapshot_id}))
        return
    of_tables = [
        DecisionOfTable(table.name, row) for table, plan in planned for row in decision_rows(table.context, plan.decisions)
    ]
    call.show(Listing("CompactionPlanList", None, [Column("table", "Table"), *columns_of(DecisionRow)], of_tables))


def _engine(call: Call, plan: CompactionPlan) -> str:
    """The engine that a run would use, and the reason if it was chosen automatically."""
    from paimon_cli.jobs.engine_choice import AutoEngine

    engine = call.runtime.open_engine()
    if not isinstance(engine, AutoEngine):
        return engine.name
    return engine_text(engine.choose(plan.work), engine.reason)


def _lines(rows: Sequence[DecisionRow]) -> Iterator[PlanLine]:
    def alike(row: DecisionRow) -> tuple[str, str | int]:
        return row.partition, row.reason if row.output_level is None else row.bucket

    for _, members in itertools.groupby(rows, alike):
        yield _line(list(members))


def _line(members: list[DecisionRow]) -> PlanLine:
    first, last = members[0], members[-1]
    partition = first.partition or NO_VALUE
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
        _space(first),
        NO_VALUE if first.write_amplification is None else f"{first.write_amplification:.1f}x",
        first.arithmetic or "",
        f"{first.files} -> {first.files_after}",
    )


def _space(row: DecisionRow) -> str:
    before, after = row.space_amplification_before, row.space_amplification_after
    return NO_VALUE if before is None or after is None else f"{before}% -> {after}%"


def _work(rows: Sequence[DecisionRow]) -> str:
    tasks = [row for row in rows if row.output_level is not None]
    if not tasks:
        return "nothing to compact"
    files, after = sum(row.files for row in tasks), sum(row.files_after for row in tasks)
    read, written = sum(row.read_bytes for row in tasks), sum(row.write_bytes for row in tasks)
    upgraded = sum(row.upgraded for row in tasks)
    commits = sum(row.commits for row in tasks if row.commits > 1) + any(row.commits == 1 for row in tasks)
    moved = f", {counted(upgraded, 'file')} of them only moved to another level" if upgraded else ""
    return (
        f"{counted(len(tasks), 'bucket')} to compact, {counted(files, 'file')} -> about {after}{moved}, "
        f"{human_size(read)} read, about {human_size(written)} written, "
        f"{counted(commits, 'commit') if commits > 1 else 'one commit'}"
    )


def _guards(table: Table) -> str:
    from paimon_cli.inspect.compaction_report import LOOK_BACK, guards
    from paimon_cli.storage.guarded_storage import check_commits

    found = guards(table.context)
    try:
        safe = "no, --allow-unsafe-commit" if check_commits(table.context.storage) else "yes"
    except Refused as refusal:
        safe = f"no: {refusal.what}"
    compactors = ", ".join(found.compactors) or "none"
    return (
        f"guards: table is write-only: {'yes' if found.write_only else 'no'} · "
        f"compactors in the last {LOOK_BACK} snapshots: {compactors} · safe commits: {safe}"
    )


def _closing_note(plan: CompactionPlan) -> str:
    if not plan.has_work:
        return "nothing was changed (dry run)"
    return f"nothing was changed (dry run); --if-snapshot {plan.snapshot_id} pins this plan"


@dataclass(frozen=True)
class CompactedTable:
    """A summary with the name of its table."""

    table: str
    summary: CompactSummary

    def __getattr__(self, name: str) -> object:
        return getattr(self.summary, name)


def summary_line(table: str, summary: CompactSummary) -> str:
    return f"{table}: {summary_text(summary) if summary.has_changed else 'nothing to compact'}"


def summary_text(summary: CompactSummary) -> str:
    """What a compaction has changed."""
    buckets = counted(summary.rescaled_to or 0, "bucket")
    finished = f"an interrupted rescale to {buckets} finished" if summary.rescaled_to else ""
    if finished and not (summary.buckets or summary.stale_files):
        return f"{finished}, {ran(summary)}"
    ids = ", ".join(str(snapshot.id) for snapshot in summary.snapshots)
    files = f"{counted(summary.files_before, 'file')} -> {summary.files_after}"
    sizes = f"{human_size(summary.bytes_before)} -> {human_size(summary.bytes_after)}"
    conflicts = f", {counted(summary.conflicts, 'conflict')}" if summary.conflicts else ""
    changed = f", another bucket count in {counted(summary.regrouped, 'partition')}" if summary.regrouped else ""
    changed += f", {counted(summary.stale_files, 'file')} with an old bucket count moved" if summary.stale_files else ""
    changed += f", {finished}" if finished else ""
    done = f"{counted(summary.buckets, 'bucket')}{changed}, {files}, {sizes}{conflicts}"
    return f"snapshot {ids}, {done}, {ran(summary)}"
