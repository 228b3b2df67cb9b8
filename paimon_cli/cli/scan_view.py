"""`read --explain` for people: one sentence about what the read costs, the command that helps, and the figures that are not 0."""

from __future__ import annotations

from typing import Any

from paimon_cli.cli.columns import columns_of
from paimon_cli.cli.command import Call
from paimon_cli.cli.output import Item
from paimon_cli.cli.results import counted, human_size, say
from paimon_cli.jobs.scan_analysis import ScanAnalysis, ScanPlan

LEAST_GAIN = 0.1
"""The share of a read's time from which a compaction is proposed by the measured parts."""
WORTH_REWRITING = 20
"""Manifests from which rewriting them is proposed, if planning takes most of the time."""


def show_scan(call: Call, table: str, plan: ScanPlan, argument: str, latest: int | None) -> None:
    """Show a plan or an analysis. `argument`: the table as the argument of a command, which helps reads of `latest` only."""
    kind = "ScanAnalysis" if isinstance(plan, ScanAnalysis) else "ScanPlan"
    if not call.is_for_people:
        call.show(Item(kind, table, plan))
        return
    sentence, command = headline(plan, argument)
    say(sentence)
    if command and plan.snapshot_id == latest:
        say(f"run: {command}")
    say("")
    call.show(
        Item(kind, table, plan, [column for column in columns_of(type(plan)) if _says_something(getattr(plan, column.name))])
    )


def _says_something(value: Any) -> bool:
    return value not in (None, "", ()) and not (isinstance(value, (int, float)) and not value)


def headline(plan: ScanPlan, argument: str) -> tuple[str, str]:
    """What matters most about the read, and the command that would make it cheaper, or an empty text."""
    if not plan.files_to_read:
        return _of_nothing(plan, argument)
    if isinstance(plan, ScanAnalysis):
        return _of_analysis(plan, argument)
    read = f"{counted(plan.files_to_read, 'file')} of {plan.files:,}, {human_size(plan.size)}"
    if plan.splits_to_combine:
        combined = f"{plan.splits_to_combine:,} of {counted(plan.splits, 'split')}"
        return f"reads {read}; columns of rows are in several files, which are put together in {combined}", ""
    if not plan.splits_to_merge:
        return f"reads {read}; nothing has to be merged", ""
    merged = f"of {counted(plan.splits, 'split')} {plan.splits_to_merge:,} {'is' if plan.splits_to_merge == 1 else 'are'} merged"
    runs = f"from up to {counted(plan.most_runs_merged, 'sorted run')} per bucket"
    return f"reads {read}; {merged} {runs} (--analyze measures the cost)", _compact(argument)


def _of_nothing(plan: ScanPlan, argument: str) -> tuple[str, str]:
    if plan.waiting_records:
        waiting = f"{counted(plan.waiting_records, 'stored record')} {'waits' if plan.waiting_records == 1 else 'wait'}"
        return f"reads nothing: {waiting} for a compaction", f"paimon-cli compact {argument}"
    return ("reads nothing: no file can hold a matching row" if plan.files else "reads nothing: the table has no rows"), ""


def _of_analysis(found: ScanAnalysis, argument: str) -> tuple[str, str]:
    if found.merge_seconds is not None and found.seconds_if_compacted is not None:
        saved = found.seconds - found.seconds_if_compacted
        if saved > LEAST_GAIN * found.seconds:
            part = f"{saved / found.seconds:.0%} of {_seconds(found.seconds)} goes into reading and merging old versions"
            runs = f"in up to {counted(found.most_runs_merged, 'sorted run')} per bucket"
            after = f"after a full compaction it would take about {_seconds(found.seconds_if_compacted)}"
            return f"{part}, {runs}; {after}", _compact(argument)
    stage = max(found.stages, key=lambda stage: stage.seconds)
    of_stage = {"plan": f"planning, with {counted(found.manifests, 'manifest')}", "fetch": f"fetching {human_size(found.bytes)}"}
    share = stage.seconds / found.seconds if found.seconds else 0.0
    what = of_stage.get(stage.stage, f"the stage '{stage.stage}', of {counted(found.rows, 'stored row')}")
    command = f"paimon-cli compact-manifests {argument}" if stage.stage == "plan" and found.manifests >= WORTH_REWRITING else ""
    return f"{share:.0%} of {_seconds(found.seconds)} goes into {what}", command


def _seconds(seconds: float) -> str:
    return f"{seconds:,.1f} s" if seconds >= 1 else f"{seconds * 1000:,.0f} ms"


def _compact(argument: str) -> str:
    return f"paimon-cli compact {argument} --strategy full"
