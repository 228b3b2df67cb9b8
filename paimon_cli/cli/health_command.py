"""`health`, `advise`: is a table all right, and what should be done? Exit code 4 on findings."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from paimon_cli.cli.columns import columns_of
from paimon_cli.cli.command import Call, command, top_level
from paimon_cli.cli.findings_file import ReportFile, check_form
from paimon_cli.cli.output import Listing
from paimon_cli.cli.parameters import AllowUnsafeCommit, Given, TableName
from paimon_cli.cli.results import carried_out, confirm, counted, human_size, say
from paimon_cli.errors import FINDINGS_EXIT_CODE, PaimonError, PartialSuccess, UsageError
from paimon_cli.requests.integrity import HealthOfTables

if TYPE_CHECKING:
    from pathlib import Path

    from paimon_cli.api.health import Fixed
    from paimon_cli.api.table import Table
    from paimon_cli.inspect.findings.finding import Finding
    from paimon_cli.inspect.findings.remedies import FixStep
    from paimon_cli.inspect.health_report import HealthRow

SHOWN_STEPS = 3
"""The most steps that the question names."""

commands = top_level()


@command(commands, "health")
def health(
    call: Call,
    *,
    options: Annotated[Given, HealthOfTables],
    dry_run: Annotated[bool, typer.Option("-n", "--dry-run", help="With --fix: only show what would be done.")] = False,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="With --fix: do not ask; required without a terminal.")] = False,
    report: ReportFile = None,
    allow_unsafe_commit: AllowUnsafeCommit = False,
) -> bool:
    """Tell whether tables are all right, and what to do: figures, a verdict, the command for each finding. Exits with 4 if any.

    The tables with the most urgent findings come first. Nothing is written without --fix; with it, the exit code is about what is
    left. Exits with 9 if a table gave no answer in a minute (--option table-timeout=TIME).

    paimon-cli health ./wh/shop.db/orders --advice

    paimon-cli health --database shop --warehouse ./wh --report junit health.xml

    paimon-cli health ./wh/shop.db/orders --fix --dry-run
    """
    check_form(report)
    is_fixed = options.pop("fix", False)
    for flag, is_given in (("--dry-run", dry_run), ("--yes", yes)):
        if is_given and not is_fixed:
            raise UsageError(f"{flag} needs --fix", "without it, nothing is changed anyway", f"leave out {flag}, or add --fix")
    catalog = call.catalog(allow_unsafe_commit)
    if not is_fixed:
        call = replace(call, changes_tables=False)
        rows = catalog.health(**options, argument=call.pasted)
        _show(call, options, rows)
        _end(options, rows, report)
        return False
    planned = catalog.plan_fixes(**options, argument=call.pasted)
    rows, steps = planned.plan.rows, planned.plan.steps
    if dry_run or not steps or call.is_for_people:
        _show(call, options, rows, steps)
    if dry_run or not steps:
        if call.is_for_people and any(row.problems for row in rows) and steps:
            say(f"run: {carried_out('--yes')}")
        _end(options, rows, report)
        return bool(steps)
    told = "; ".join(step.command for step in steps[:SHOWN_STEPS]) + ("; ..." if len(steps) > SHOWN_STEPS else "")
    confirm(f"{counted(len(steps), 'step')} will be carried out ({told}), which discards nothing", yes)
    fixed = planned.run()
    if call.is_for_people:
        _say_done(fixed)
    _show(call, options, fixed.rows, None if call.is_for_people else fixed.steps)
    if fixed.errors and report is not None:
        _write(options, fixed.rows, report)
    fixed.raise_failures()
    _end(options, fixed.rows, report)
    return False


def _show(call: Call, asked: Given, rows: Sequence[HealthRow], steps: Sequence[FixStep] | None = None) -> None:
    """The tables with their findings, and the steps that mend them. `steps`: None without --fix."""
    from paimon_cli.cli.output import records
    from paimon_cli.cli.text_view import say_findings
    from paimon_cli.inspect.health_report import HealthRow

    columns, tables = columns_of(HealthRow), asked.get("tables", ())
    if call.is_for_people:
        columns = [column for column in columns if column.name not in ("findings", "read_bytes", "read_requests")]
        if all(row.lag_seconds is None and row.events_behind is None for row in rows):
            columns = [column for column in columns if column.name not in ("lag_seconds", "events_behind")]
    footer = f"{counted(len(rows), 'table')}, {sum(bool(row.problems) for row in rows)} with findings"
    summary = {} if steps is None else {"fixes": records(steps)}
    name = tables[0] if len(tables) == 1 else None
    call.show(Listing("HealthList", name, columns, rows, footer=footer, summary=summary))
    if not call.is_for_people:
        return
    if len(rows) == 1 and rows[0].read_requests is not None:
        requests = counted(rows[0].read_requests, "request")
        read = f"a read of all rows: {human_size(rows[0].read_bytes or 0)}, {requests} on an object store"
        say(f"{read}; more: paimon-cli cost {call.pasted(rows[0].table if not tables else tables[0])}")
    for row in (row for row in rows if row.findings):
        say(f"{row.table}: {row.verdict}")
        say_findings(row.findings, margin="  ")
    if steps:
        say("--fix runs these commands, which discard nothing:")
        for step in steps:
            say(f"  {step.command}    # {', '.join(step.codes)}")
        left = sum(bool(f.command) and (f.remedy is None or f.remedy.discards) for row in rows for f in row.findings)
        if left:
            one = left == 1
            needs = "discards something, or needs a decision" if one else "discard something, or need a decision"
            say(f"left to you: {counted(left, 'other command')} above, which {needs}")
    elif steps is not None and any(row.problems for row in rows):
        say("--fix has nothing to do: what the findings propose discards something, or needs a decision")


def _say_done(fixed: Fixed) -> None:
    for step in fixed.steps:
        say(f"{step.state}: {step.command}" + (f": {step.message}" if step.message else ""))


def _end(asked: Given, rows: Sequence[HealthRow], report: tuple[str, Path] | None) -> None:
    """Write the report, and end with the exit code of the findings, if there are any."""
    from paimon_cli.inspect.health_report import Health

    if report is not None:
        _write(asked, rows, report)
    if any(row.verdict == Health.NO_ANSWER for row in rows):
        raise typer.Exit(PartialSuccess.exit_code)
    if any(row.problems for row in rows):
        raise typer.Exit(FINDINGS_EXIT_CODE)


def _write(asked: Given, rows: Sequence[HealthRow], report: tuple[str, Path]) -> None:
    from paimon_cli.cli.findings_file import ReportedFinding, write_report
    from paimon_cli.inspect.findings.finding import ADVICE, ERROR, LISTING, METADATA, REPLAY, TOPOLOGY, WARNING
    from paimon_cli.inspect.findings.runner import meanings

    with_advice = asked.get("advice", False)
    costs = [METADATA, LISTING, *([REPLAY] if with_advice else []), *([TOPOLOGY] if asked.get("topology") else [])]
    rules = meanings(costs, ADVICE if with_advice else WARNING)
    findings = [
        ReportedFinding(row.table, found.code, found.severity, found.subject, found.message, path=row.table)
        for row in rows
        for found in row.findings
        if found.code
    ]
    not_run = {(row.table, code): found.finding for row in rows for found in row.findings for code in found.prevents}
    write_report(report, "health", [row.table for row in rows], rules, findings, failing=(ERROR, WARNING), not_run=not_run)


class TopicChoice(str, enum.Enum):
    """Choices of `--only`."""

    BUCKETS = "buckets"
    SMALL_FILES = "small-files"
    OPTIONS = "options"
    COMPACTION = "compaction"
    HISTORY = "history"


T = TypeVar("T")


def judged(call: Call, table: str, judge: Callable[[Table, str], list[T]]) -> list[T | Finding]:
    """What `judge` says about a table, or the finding of `health` about a table that cannot be opened."""
    from paimon_cli.inspect.findings.runner import is_of_call, unopened

    argument = call.pasted(table)
    try:
        return [*judge(call.open(table), argument)]
    except PaimonError as error:
        if is_of_call(error):
            raise
        return [unopened(argument, error)]


@command(commands, "advise")
def advise(
    call: Call,
    table: TableName,
    only: Annotated[
        list[TopicChoice] | None, typer.Option("--only", help="Only this topic; repeatable.", show_default=False)
    ] = None,
) -> None:
    """Suggest changes based on the table's own history, as `health --advice` does, and show what is well, by topic.

    Each suggestion shows its figures and the command that applies it; the findings of `health` are among them, on which it exits
    with 4, too. Nothing is changed. Triggers are compared by replaying the commits that are still in the history.

    paimon-cli advise ./wh/shop.db/orders --only buckets

    paimon-cli advise shop.orders --warehouse ./wh -o json
    """
    from paimon_cli.inspect.findings.finding import WARNING, Finding, is_at_least

    topics = [topic.value for topic in only or ()]
    found = judged(call, table, lambda opened, argument: opened.advise(only=topics, argument=argument))
    if call.is_for_people:
        _say_advice(found)
    else:
        call.show(Listing("AdviceList", table, Finding, found))
    if any(is_at_least(finding, WARNING) for finding in found):
        raise typer.Exit(FINDINGS_EXIT_CODE)


def _say_advice(found: Sequence[Any]) -> None:
    from paimon_cli.cli.text_view import wrapped

    topic = ""
    for advice in found:
        if advice.topic != topic:
            topic = advice.topic
            say(topic)
        say(wrapped(f"  {advice.severity:<7}  {advice.subject}: {advice.message}", indent=11), advice.severity)
        if advice.command:
            say(f"           run: {advice.command}")
    todo = sum(bool(advice.command) for advice in found)
    say(f"{counted(todo, 'suggestion')}; nothing was changed" if todo else "no suggestions")
