"""`doctor`, `report`, `locks`, `version`: the state of the installation and of stores, and that of a table as a page."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from types import SimpleNamespace
from typing import Annotated

import typer

from paimon_cli import __version__
from paimon_cli.cli.columns import Column
from paimon_cli.cli.command import Call, command, group, top_level
from paimon_cli.cli.output import Item, Listing
from paimon_cli.cli.parameters import SnapshotId, TableName, Yes
from paimon_cli.cli.results import confirm, counted, human_size, say
from paimon_cli.errors import FINDINGS_EXIT_CODE, UsageError

commands = top_level()


@command(commands, "doctor")
def doctor(
    call: Call,
    table: Annotated[
        str | None, typer.Argument(metavar="[TABLE]", help="Also test the store of this table.", show_default=False)
    ] = None,
) -> None:
    """Test whether this machine, and the store of a table, are fit for work. Exits with 4 on findings.

    Safe commits, listing and the clock are tested on the store itself: writers race for probe files in the table's directory,
    which are removed afterwards. `health` says what there is to do about the table; its findings count here, too.

    paimon-cli doctor ./wh/shop.db/orders

    paimon-cli doctor
    """
    from paimon_cli.api.health import examine_installation
    from paimon_cli.cli.health_command import judged
    from paimon_cli.cli.text_view import say_findings, wrapped
    from paimon_cli.inspect.findings.finding import Finding
    from paimon_cli.jobs.doctor_job import OF_MACHINE_AND_STORE, Fact

    results = examine_installation()
    if table is not None:
        results += judged(call, table, lambda opened, argument: opened.doctor(argument=argument))
    passed = [item for item in results if isinstance(item, Fact)]
    findings = [item for item in results if not isinstance(item, Fact)]
    if not call.is_for_people:
        call.show(Listing("DiagnosisList", table, Finding, findings, summary={"passed": [vars(fact) for fact in passed]}))
    else:
        for fact in passed:
            say(wrapped(f"ok       {fact.subject}: {fact.message}", indent=9), "ok")
        say_findings(finding for finding in findings if finding.code in OF_MACHINE_AND_STORE)
        if table is not None:
            of_table = sum(finding.code not in OF_MACHINE_AND_STORE for finding in findings)
            say(f"the table itself: {counted(of_table, 'finding')}; see: paimon-cli health {call.pasted(table)}")
        say(counted(len(findings), "finding"))
    if findings:
        raise typer.Exit(FINDINGS_EXIT_CODE)


@command(commands, "report")
def report(
    call: Call,
    table: TableName,
    html: Annotated[str, typer.Option("--html", metavar="FILE", help="File or URL to write the page to.", show_default=False)],
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
    snapshot: SnapshotId = None,
) -> None:
    """Write the state and history of a table to one HTML page with charts.

    It says what a read costs and why, and shows levels and key ranges of buckets, amplification and size over time, bytes and
    records of each commit, compaction debt, findings, the bytes by what keeps them, and what services did in the last week, if
    the warehouse has a ledger. The page has no external references, fits telephones and paper,
    supports light and dark themes, and has a table with the figures of each chart.

    paimon-cli report ./wh/shop.db/orders --html orders.html

    paimon-cli report ./wh/shop.db/orders --html before.html --snapshot 3

    paimon-cli report shop.orders --warehouse ./wh --html orders.html --force
    """
    written = call.open(table).report(html, force=force, snapshot=snapshot, argument=call.pasted(table))
    content = (
        f"{counted(written.buckets, 'bucket')}, {counted(written.snapshots, 'snapshot')}, {counted(written.findings, 'finding')}"
    )
    call.show(Item("Report", table, written), f"wrote {html}: {content}, {human_size(written.size)}")


locks = group("Commit locks: how concurrent commits exclude each other, and who holds a lock.")


@command(locks, "ls")
def list_locks(
    call: Call,
    table: Annotated[
        str | None, typer.Argument(metavar="[TABLE]", help="Only this table; default every lock held.", show_default=False)
    ] = None,
) -> None:
    """Show how concurrent commits to a table or warehouse exclude each other, and which commit locks are held.

    The mechanism is put-if-absent, lock, server or unsafe. If only a test can tell, as on S3, two writers race for a probe
    file in the table's directory, which is removed afterwards.

    paimon-cli locks ls ./wh/shop.db/orders

    paimon-cli locks ls --warehouse ./wh
    """
    from paimon_cli.inspect.lock_report import LOCK, MECHANISM_MEANING, LockRow

    report = call.catalog().locks(table)
    held = sum(row.is_held for row in report.rows)
    footer = "" if report.mechanism != LOCK or held else "no lock is held"
    if report.has_lock_table is False:
        footer = "no lock is held: the database has no table paimon_distributed_locks yet, the first commit creates it"
    heading = f"{report.mechanism}: {MECHANISM_MEANING[report.mechanism]}"
    call.show(Listing("LockList", table, LockRow, report.rows, heading, footer))


@command(locks, "break")
def break_lock(
    call: Call,
    table: TableName,
    even_if_valid: Annotated[
        bool,
        typer.Option("--even-if-valid", help="Also break a lock that has not expired; only if its holder is certainly dead."),
    ] = False,
    yes: Yes = False,
) -> None:
    """Break the commit lock of a table whose holder died. Writers take over expired locks by themselves.

    A live holder that loses its lock notices this before it publishes, and abandons its commit (exit 6). But if it is
    publishing at this moment on a store without put-if-absent, its snapshot may overwrite another one.

    paimon-cli locks break ./wh/shop.db/orders

    paimon-cli locks break ./wh/shop.db/orders --yes
    """
    planned = call.catalog().plan_break_lock(table, even_if_valid=even_if_valid)
    lock = planned.plan
    what = f"lock {lock.lock_id}, which {lock.owner or 'an unknown owner'} took {lock.age_seconds:.0f} s ago, will be broken"
    confirm(what, yes, has_dry_run=False)
    call.show(Item("Lock", table, planned.run()))


LIBRARIES = ("pyarrow", "numpy", "pandas", "pyspark", "fastavro", "fsspec", "typer")
_COLUMNS = [Column(name, name) for name in ("paimon_cli", "python", *LIBRARIES, "java")]


@command(commands, "version")
def version(call: Call) -> None:
    """Print the versions of paimon-cli and its dependencies.

    paimon-cli version

    paimon-cli version -o json
    """
    libraries = {name: _installed(name) for name in LIBRARIES}
    versions = {"paimon_cli": __version__, "python": platform.python_version(), **libraries, "java": _java()}
    call.show(Item("Version", None, SimpleNamespace(**versions), _COLUMNS))


def _java() -> str | None:
    """The version and home of the Java that Spark would use."""
    from paimon_cli.jobs.spark.java_runtime import find_java

    try:
        java = find_java(os.environ)
    except UsageError:
        return None
    return f"{java.version} at {java.home}"


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
