"""`doctor`: health checks of the installation, a storage and a table, with a command to fix each finding."""

from __future__ import annotations

from typing import Annotated

import typer

from paimon_cli.cli.command import Call, command
from paimon_cli.cli.messages import say
from paimon_cli.cli.results import Column, Listing, OutputFormat
from paimon_cli.cli.value_kinds import counted, printable

FINDINGS_EXIT_CODE = 4
DIAGNOSIS_COLUMNS = (
    Column("code", "Code"),
    Column("severity", "Severity"),
    Column("subject", "Subject"),
    Column("message", "Finding"),
    Column("command", "Command"),
)


def register(app: typer.Typer, panel: str) -> None:
    command(app, "doctor", rich_help_panel=panel)(doctor)


def doctor(
    call: Call,
    table: Annotated[
        str | None, typer.Argument(metavar="[TABLE]", help="Also check this table and its storage.", show_default=False)
    ] = None,
) -> None:
    """Check the installation and optionally a table: storage, options, compaction, files, retention. Exits with 4 on findings.

    Safe commits are tested on the storage itself: writers race for probe files in the table's directory, which are then
    removed.

    paimon-cli doctor ./wh/shop.db/orders
    """
    from paimon_cli.cli.text_view import wrapped
    from paimon_cli.jobs.doctor_job import Fact, examine_machine, examine_table

    told = list(examine_machine())
    if table is not None:
        told += examine_table(call.open(table).context, call.pasted(table))
    findings = [item for item in told if not isinstance(item, Fact)]
    if call.output is not OutputFormat.TABLE:
        call.show(Listing("DiagnosisList", table, DIAGNOSIS_COLUMNS, findings))
    else:
        for item in told:
            if isinstance(item, Fact):
                say(wrapped(f"ok       {item.subject}: {item.message}", indent=9))
        for item in findings:
            say(wrapped(f"{item.severity.upper():<7}  {item.code}  {item.subject}: {printable(item.message)}", indent=9))
            if item.command:
                say(f"         run: {printable(item.command)}")
        say(counted(len(findings), "finding"))
    if findings:
        raise typer.Exit(FINDINGS_EXIT_CODE)
