"""`update` and `delete`: change or delete the rows that match a condition, safe against concurrent writers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from paimon_cli.cli.command import Call, command
from paimon_cli.cli.parameters import (
    COMMIT_PANEL,
    AllowUnsafeCommit,
    AssumeNew,
    CommitId,
    CommitUser,
    ConflictGranularity,
    DataConflictCheck,
    TableName,
)
from paimon_cli.cli.results import COUNT, FLAG, SIZE, SNAPSHOT_IDS, TEXT, Column, Item, OutputFormat, counted, ran, say, warn
from paimon_cli.errors import UsageError

if TYPE_CHECKING:
    from paimon_cli.catalog.table_location import TableLocation
    from paimon_cli.jobs.update_job import UpdateRequest, UpdateSummary

SUMMARY_COLUMNS = (
    Column("rows", "Rows", COUNT),
    Column("files", "Files", COUNT),
    Column("size", "Size", SIZE),
    Column("buckets", "Buckets", COUNT),
    Column("snapshots", "Snapshots", SNAPSHOT_IDS),
    Column("attempts", "Attempts", COUNT),
    Column("conflicts", "Conflicts", COUNT),
    Column("already_committed", "Committed before", FLAG),
    Column("engine", "Engine"),
    Column("engine_reason", "Why"),
    Column("seconds", "Seconds", TEXT),
)

Where = Annotated[
    str,
    typer.Option(
        "-w",
        "--where",
        metavar="SQL",
        help='Condition that selects the rows, such as "id = 7"; true selects all.',
        show_default=False,
    ),
]
MaxAttempts = Annotated[
    int,
    typer.Option(
        "--max-attempts",
        metavar="N",
        min=1,
        help="Give up after N attempts if other commits keep winning.",
        rich_help_panel=COMMIT_PANEL,
    ),
]


def register(app: typer.Typer, panel: str) -> None:
    command(app, "update", runs_jobs=True, rich_help_panel=panel)(update)
    command(app, "delete", runs_jobs=True, rich_help_panel=panel)(delete)


def update(
    call: Call,
    table: TableName,
    assignments: Annotated[
        list[str],
        typer.Option(
            "--set",
            metavar="COLUMN=EXPRESSION",
            help='New value of a column, computed from the row\'s old values, such as "points = points + 1"; repeatable.',
            show_default=False,
        ),
    ],
    where: Where,
    max_attempts: MaxAttempts = 100,
    commit_user: CommitUser = None,
    commit_id: CommitId = None,
    assume_new: AssumeNew = False,
    data_conflict_check: DataConflictCheck = None,
    allow_unsafe_commit: AllowUnsafeCommit = False,
) -> None:
    """Update the rows that match a condition, in one commit. If another commit changes the same buckets, start again.

    --data-conflict-check, or the table's commit.data-conflict-check, selects another granularity than buckets; off is an error.

    Expressions: columns, fields (a.b), literals, NULL, + - * / %, ||, concat, upper, lower, length, coalesce, abs, round,
    floor, ceil; conditions accept the same.
    Dividing whole numbers gives a whole number, decimals are rounded half up, values that do not fit their column are errors.

    paimon-cli update ./wh/game.db/players --set "points = points + 1" -w "id = 7"
    """
    from paimon_cli.jobs.update_job import UpdateRequest

    request = UpdateRequest(where, tuple(assignments), commit_user, commit_id, assume_new, max_attempts)
    checked = _under_check(call, data_conflict_check)
    _run(checked, checked.locate(table, allow_unsafe_commit), request, "changed")


def delete(
    call: Call,
    table: TableName,
    where: Where,
    max_attempts: MaxAttempts = 100,
    commit_user: CommitUser = None,
    commit_id: CommitId = None,
    assume_new: AssumeNew = False,
    data_conflict_check: DataConflictCheck = None,
    allow_unsafe_commit: AllowUnsafeCommit = False,
) -> None:
    """Delete the rows that match a condition, in one commit. If another commit changes the same buckets, start again.

    --data-conflict-check, or the table's commit.data-conflict-check, selects another granularity than buckets; off is an error.

    paimon-cli delete ./wh/game.db/players -w "points < 0"
    """
    from paimon_cli.jobs.update_job import UpdateRequest

    request = UpdateRequest(where, (), commit_user, commit_id, assume_new, max_attempts)
    checked = _under_check(call, data_conflict_check)
    _run(checked, checked.locate(table, allow_unsafe_commit), request, "deleted")


def _under_check(call: Call, granularity: ConflictGranularity | None) -> Call:
    """The call with a data conflict check: a table's `off` applies to plain writes only, and `off` on the command line is an
    error.
    """
    from paimon_cli.options.table_options import DATA_CONFLICT_CHECK

    checked = call.with_check(granularity)
    if checked.options.get(DATA_CONFLICT_CHECK, "").lower() == ConflictGranularity.OFF.value:
        raise UsageError(
            "update and delete always run with the data conflict check",
            "without it they would undo commits made between their read and their own commit",
            "leave the option out, or use partition, bucket, range or key",
        )
    return checked


def _run(call: Call, location: TableLocation, request: UpdateRequest, done: str) -> None:
    from paimon_cli.cli.terminal import progress_on_stderr
    from paimon_cli.jobs.update_job import run_update
    from paimon_cli.sql.predicate import parse_predicate

    opened = call.open_to_commit(location)
    for warning in parse_predicate(request.where, opened.context.schema).warnings:
        warn(warning)
    with call.engine_running() as engine:
        summary = run_update(opened.context, request, engine, progress_on_stderr())
    if call.output is OutputFormat.TABLE:
        say(_summary_text(summary, done))
    else:
        call.show(Item("UpdateSummary" if request.assignments else "DeleteSummary", opened.name, SUMMARY_COLUMNS, summary))


def _summary_text(summary: UpdateSummary, done: str) -> str:
    if summary.already_committed:
        return "already committed under this user and identifier, nothing was done"
    if not summary.snapshots:
        return "no row matches, nothing was committed"
    ids = ", ".join(str(snapshot.id) for snapshot in summary.snapshots)
    effort = f"{counted(summary.attempts, 'attempt')}, {counted(summary.conflicts, 'conflict')}"
    return (
        f"snapshot {ids}: {counted(summary.rows, 'row')} {done} in {counted(summary.buckets, 'bucket')}, {effort}, {ran(summary)}"
    )
