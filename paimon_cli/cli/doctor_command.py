"""`doctor`, `report`, `health`, `advise`, `locks`, `version`: the state of the installation and of tables."""

from __future__ import annotations

import enum
import os
import platform
from collections.abc import Callable, Sequence
from importlib import metadata
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from paimon_cli import __version__
from paimon_cli.cli.columns import Column, columns_of
from paimon_cli.cli.command import Call, command, group, top_level
from paimon_cli.cli.output import Item, Listing
from paimon_cli.cli.parameters import TableName, Yes
from paimon_cli.cli.results import confirm, counted, human_size, say
from paimon_cli.errors import FINDINGS_EXIT_CODE, PaimonError, PartialSuccess, UsageError

if TYPE_CHECKING:
    from paimon_cli.api.table import Table
    from paimon_cli.inspect.findings.finding import Finding

commands = top_level()


@command(commands, "doctor")
def doctor(
    call: Call,
    table: Annotated[
        str | None, typer.Argument(metavar="[TABLE]", help="Also check this table and its storage.", show_default=False)
    ] = None,
) -> None:
    """Check the installation and optionally a table: storage, options, compaction, files, retention. Exits with 4 on findings.

    Safe commits are tested on the storage itself: writers race for probe files in the table's directory, which are removed
    afterwards.

    paimon-cli doctor ./wh/shop.db/orders

    paimon-cli doctor
    """
    from paimon_cli.api.inspection import examine_installation
    from paimon_cli.cli.text_view import say_findings, wrapped
    from paimon_cli.inspect.findings.finding import Finding
    from paimon_cli.jobs.doctor_job import Fact

    results = examine_installation()
    if table is not None:
        results += _judged(call, table, lambda opened, argument: opened.doctor(argument=argument))
    passed = [item for item in results if isinstance(item, Fact)]
    findings = [item for item in results if not isinstance(item, Fact)]
    if not call.is_for_people:
        call.show(Listing("DiagnosisList", table, Finding, findings, summary={"passed": [vars(fact) for fact in passed]}))
    else:
        for fact in passed:
            say(wrapped(f"ok       {fact.subject}: {fact.message}", indent=9), "ok")
        say_findings(findings)
        say(counted(len(findings), "finding"))
    if findings:
        raise typer.Exit(FINDINGS_EXIT_CODE)


T = TypeVar("T")


def _judged(call: Call, table: str, judge: Callable[[Table, str], list[T]]) -> list[T | Finding]:
    """What `judge` says about a table, or the finding of `health` about a table that cannot be opened."""
    from paimon_cli.inspect.findings.runner import is_of_call, unopened

    argument = call.pasted(table)
    try:
        return [*judge(call.open(table), argument)]
    except PaimonError as error:
        if is_of_call(error):
            raise
        return [unopened(argument, error)]


@command(commands, "report")
def report(
    call: Call,
    table: TableName,
    html: Annotated[str, typer.Option("--html", metavar="FILE", help="File or URL to write the page to.", show_default=False)],
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
) -> None:
    """Write the state and history of a table to one HTML page with charts.

    It shows levels and key ranges of buckets, amplification and size over time, commits by user, compaction debt, and
    findings. The page has no external references, supports light and dark themes, and has a table with the figures of each
    chart.

    paimon-cli report ./wh/shop.db/orders --html orders.html

    paimon-cli report shop.orders --warehouse ./wh --html orders.html --force
    """
    written = call.open(table).report(html, force=force, argument=call.pasted(table))
    content = (
        f"{counted(written.buckets, 'bucket')}, {counted(written.snapshots, 'snapshot')}, {counted(written.findings, 'finding')}"
    )
    call.show(Item("Report", table, written), f"wrote {html}: {content}, {human_size(written.size)}")


@command(commands, "health")
def health(
    call: Call,
    tables: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TABLE]...", help="Tables; default all of the warehouse.", show_default=False),
    ] = None,
    database: Annotated[str | None, typer.Option("--database", metavar="DB", help="All tables of this database.")] = None,
    advice: Annotated[
        bool, typer.Option("--advice", help="Also show what could be better, as `advise` does; it does not change the exit code.")
    ] = False,
    topology: Annotated[
        bool,
        typer.Option(
            "--topology",
            help="Also tell from the history how the table is written: who writes which buckets at the same time, who commits "
            "and who compacts, whether that is right, and what to change.",
        ),
    ] = False,
) -> None:
    """Show the health of tables: figures, a verdict, and the command that fixes each finding. Exits with 4 on findings.

    The tables with the most urgent findings come first. Nothing is written; `doctor` also tests the storage. Exits with 9 if a
    table gave no answer in a minute (--option table-timeout=TIME).

    paimon-cli health ./wh/shop.db/orders

    paimon-cli health --database shop --warehouse ./wh
    """
    from paimon_cli.cli.text_view import say_findings
    from paimon_cli.inspect.health_report import Health, HealthRow

    rows = call.catalog().health(tables or (), database=database, advice=advice, topology=topology, argument=call.pasted)
    unhealthy = [row for row in rows if row.problems]
    columns = columns_of(HealthRow)
    if call.is_for_people:
        columns = columns[:-1]
    footer = f"{counted(len(rows), 'table')}, {len(unhealthy)} with findings"
    call.show(Listing("HealthList", tables[0] if tables and len(tables) == 1 else None, columns, rows, footer=footer))
    if call.is_for_people:
        for row in (row for row in rows if row.findings):
            say(f"{row.table}: {row.verdict}")
            say_findings(row.findings, margin="  ")
    if any(row.verdict == Health.NO_ANSWER for row in rows):
        raise typer.Exit(PartialSuccess.exit_code)
    if unhealthy:
        raise typer.Exit(FINDINGS_EXIT_CODE)


class TopicChoice(str, enum.Enum):
    """Choices of `--only`."""

    BUCKETS = "buckets"
    SMALL_FILES = "small-files"
    OPTIONS = "options"
    COMPACTION = "compaction"
    HISTORY = "history"


@command(commands, "advise")
def advise(
    call: Call,
    table: TableName,
    only: Annotated[
        list[TopicChoice] | None, typer.Option("--only", help="Only this topic; repeatable.", show_default=False)
    ] = None,
) -> None:
    """Suggest changes based on the table's own history: bucket count, small files, options, compaction triggers.

    Each suggestion shows its figures and the command that applies it; the findings of `health` are among them, on which it exits
    with 4, too. Nothing is changed. Triggers are compared by replaying the commits that are still in the history.

    paimon-cli advise ./wh/shop.db/orders --only buckets

    paimon-cli advise shop.orders --warehouse ./wh -o json
    """
    from paimon_cli.inspect.findings.finding import WARNING, Finding, is_at_least

    topics = [topic.value for topic in only or ()]
    found = _judged(call, table, lambda opened, argument: opened.advise(only=topics, argument=argument))
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
