"""`ingest`: applies the events of change streams to tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from paimon_cli.cli.command import Call, command, top_level
from paimon_cli.cli.output import Listing
from paimon_cli.cli.parameters import AllowUnsafeCommit, DryRun, Given
from paimon_cli.cli.results import counted, note, printable, say
from paimon_cli.errors import PaimonError
from paimon_cli.requests.ingesting import IngestOptions

if TYPE_CHECKING:
    from paimon_cli.api.ingested_table import IngestedTable

commands = top_level()


@command(commands, "ingest", keeps_options=True)
def ingest(
    call: Call,
    sources: Annotated[
        list[str], typer.Argument(metavar="SOURCE...", help="Files, globs or URLs, kafka://broker/topic, or - for stdin.")
    ],
    into: Annotated[
        str | None,
        typer.Option(
            "--into", metavar="DB|TABLE", help="A database, whose tables are created as needed, or one table.", show_default=False
        ),
    ] = None,
    *,
    options: Annotated[Given, IngestOptions],
    dry_run: DryRun = False,
    allow_unsafe_commit: AllowUnsafeCommit = False,
) -> bool | None:
    """Apply the events of change streams (Debezium, Canal, Maxwell, plain JSON) to tables, each event once.

    Tables are created with dynamic buckets, so that no number of buckets need be chosen and every row can be read at once;
    --option sets other options of new tables. They follow their sources: new columns are added, types are widened. Each
    snapshot remembers how far each source was read, so that the same command applies only what is new, also after a crash.
    A table that cannot go on stops alone (exit 9). With --follow it goes on as files grow and new ones come, and messages.
    Topics of Kafka need the extra `kafka`; ?group= and ?offsets= of their URL say where to begin.

    paimon-cli ingest 'events/*.json' --format debezium --into shop --warehouse ./wh --primary-key sales=id

    paimon-cli ingest sales.json --format maxwell --into ./wh/shop.db/sales --dry-run
    """
    catalog = call.catalog(allow_unsafe_commit)
    method = catalog.plan_ingest if dry_run else catalog.ingest
    on_commit = _note_commit if call.is_for_people and options.get("follow") else None
    try:
        tables = method(sources, into=into, on_commit=on_commit, **options)
    except PaimonError as error:
        if (found := error.details.pop("tables", None)) is not None:
            _show(call, found, dry_run)
        raise
    _show(call, tables, dry_run)
    if not dry_run:
        return None
    return any(table.created or table.inserts or table.updates or table.deletes or table.truncations for table in tables)


def _note_commit(table: IngestedTable) -> None:
    """Say what a run that goes on has done so far."""
    note(f"{printable(table.table)}: {'; '.join(_parts(table, is_plan=False))}")


def _show(call: Call, tables: list[IngestedTable], is_plan: bool) -> None:
    if not call.is_for_people:
        from paimon_cli.api.ingested_table import IngestedTable

        call.show(Listing("IngestPlan" if is_plan else "IngestList", None, IngestedTable, tables))
        return
    for table in tables:
        say(f"{printable(table.table)}: {'; '.join(_parts(table, is_plan))}")
        if is_plan:
            for column in table.columns:
                say(f"  {printable(column)}")
    rows = sum(table.inserts + table.updates + table.deletes for table in tables)
    stopped = sum(table.error is not None for table in tables)
    text = f"{counted(len(tables), 'table')}, {counted(rows, 'row')}"
    (note if not tables else say)(f"{text}{f', {stopped} stopped' if stopped else ''}{' (dry run)' if is_plan else ''}")


def _parts(table: IngestedTable, is_plan: bool) -> list[str]:
    """What was done with a table, or would be, in words."""
    parts = []
    if table.created:
        key = f" with key {', '.join(table.primary_key)}" if table.primary_key else " without a key"
        parts.append(f"{'to create' if is_plan else 'created'}{key}")
    kinds = (("inserted", table.inserts), ("updated", table.updates), ("deleted", table.deletes))
    parts.append(", ".join(f"{count:,} {what}" for what, count in kinds if count) or "nothing new")
    if table.truncations:
        parts.append(f"emptied {counted(table.truncations, 'time')}")
    if table.columns_added:
        parts.append(f"new columns: {', '.join(map(printable, table.columns_added))}")
    if table.types_changed:
        parts.append(f"wider types: {', '.join(map(printable, table.types_changed))}")
    if table.bad_events:
        parts.append(f"{counted(table.bad_events, 'bad event')}")
    if table.snapshots:
        parts.append(f"snapshot {table.snapshots[-1]}")
    if table.error is not None:
        parts.append(f"stopped: {printable(table.error)}")
    return parts
