"""`repair`: plan repairs of a damaged table; with `--apply` carry them out in a new snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from paimon_cli.cli.command import Call, command
from paimon_cli.cli.messages import confirm, say
from paimon_cli.cli.parameters import AllowUnsafeCommit, TableName, Yes
from paimon_cli.cli.results import Column, Listing, OutputFormat
from paimon_cli.cli.value_kinds import counted
from paimon_cli.errors import UsageError

if TYPE_CHECKING:
    from paimon_cli.invariants.repair_plan import RepairPlan

STEP_COLUMNS = (
    Column("kind", "Repair"),
    Column("path", "Path"),
    Column("action", "What to do"),
    Column("loss", "What is lost"),
    Column("command", "Command"),
)


def register(app: typer.Typer, panel: str) -> None:
    command(app, "repair", rich_help_panel=panel)(repair)


def repair(
    call: Call,
    table: TableName,
    apply: Annotated[bool, typer.Option("--apply", help="Carry out the plan; without this nothing is changed.")] = False,
    dry_run: Annotated[bool, typer.Option("-n", "--dry-run", help="Only show the plan (default).")] = False,
    only: Annotated[
        str | None,
        typer.Option(
            "--only",
            metavar="KIND,...",
            help="Only these: damaged-versions, resurrected-snapshots, chain, hints, dead-files, damaged-files (all rows), dv, "
            "lost-commits.",
        ),
    ] = None,
    older_than: Annotated[
        str,
        typer.Option(
            "--older-than", metavar="DURATION", help="Ignore lost commits younger than this: their writers may still be running."
        ),
    ] = "1 h",
    yes: Yes = False,
    allow_unsafe_commit: AllowUnsafeCommit = False,
) -> None:
    """Plan repairs of a damaged table; --apply carries them out in a new snapshot.

    The plan lists data that is lost for good. No data file or manifest is changed or deleted; unreadable snapshot and tag files
    are moved to damaged/ in the table.

    paimon-cli repair ./wh/shop.db/orders
    """
    from paimon_cli.invariants.repair_plan import KINDS, plan_repair
    from paimon_cli.jobs.repair_job import apply_repair
    from paimon_cli.options.size_and_duration import parse_duration

    if apply and dry_run:
        raise UsageError("--apply and --dry-run exclude each other")
    kinds = tuple(name.strip() for name in (only or "").split(",") if name.strip())
    if unknown := [name for name in kinds if name not in KINDS]:
        raise UsageError(f"no repair '{unknown[0]}'", f"there are {', '.join(KINDS)}")
    try:
        age = parse_duration(older_than)
    except ValueError as error:
        raise UsageError(f"--older-than {older_than} is not a duration", str(error)) from error
    location = call.locate(table, allow_unsafe_commit)
    opened = call.open_to_commit(location) if apply else call.open_at(location)
    plan = plan_repair(opened.context, kinds, age)
    if call.output is not OutputFormat.TABLE:
        call.show(Listing("RepairPlan", opened.name, STEP_COLUMNS, plan.steps))
    else:
        _show_plan(plan, table)
    if apply:
        if plan.changes:
            confirm(f"{counted(plan.changes, 'repair')} of {opened.name} will be made", yes)
        summary = apply_repair(opened.context, plan)
        made = ", ".join(str(snapshot.id) for snapshot in summary.snapshots) or "none"
        if call.output is OutputFormat.TABLE:
            say(f"{counted(summary.steps, 'repair')} made; new snapshots: {made}")
    elif call.output is OutputFormat.TABLE and plan.changes:
        say(f"nothing was changed; paimon-cli repair {call.pasted(table)} --apply carries the plan out")


def _show_plan(plan: RepairPlan, table: str) -> None:
    from paimon_cli.cli.text_view import wrapped
    from paimon_cli.cli.value_kinds import printable

    at = "no snapshot" if plan.snapshot_id is None else f"snapshot {plan.snapshot_id}"
    say(wrapped(f"Repairs of {table} @ {at}: {plan.changes} to make, {len(plan.steps) - plan.changes} by hand"))
    for number, step in enumerate(plan.steps, 1):
        say(wrapped(f"{number:>3}. {step.kind:<12}  {printable(step.path)}: {printable(step.action)}", indent=5))
        if step.loss:
            say(wrapped(f"     lost: {printable(step.loss)}", indent=11))
        if step.command:
            say(f"     run: {printable(step.command)}")
