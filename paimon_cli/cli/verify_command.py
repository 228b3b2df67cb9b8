"""`verify` and `repair`: check the integrity of a table, and repair damage. Exit code 4 on findings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast, get_args

import typer

from paimon_cli.cli.command import Call, command, top_level
from paimon_cli.cli.findings_file import ReportFile, check_form
from paimon_cli.cli.output import Item, Listing
from paimon_cli.cli.parameters import AllowUnsafeCommit, EngineName, Given, TableName, Yes
from paimon_cli.cli.results import confirm, counted, human_size, printable, ran, say, warn
from paimon_cli.errors import FINDINGS_EXIT_CODE, NotSupported, Refused, UsageError
from paimon_cli.requests.integrity import RepairOptions, VerifyOptions

if TYPE_CHECKING:
    from paimon_cli.invariants.repair_steps import RepairPlan
    from paimon_cli.jobs.verify_job import VerifyReport

SHOWN_PER_CODE = 20
"""The most findings shown for one code in text output; -o json shows up to a thousand."""

commands = top_level()


@command(commands, "verify", runs_jobs=True)
def verify(
    call: Call,
    table: Annotated[
        str | None, typer.Argument(metavar="TABLE", help="Path or URL of a table, or db.table.", show_default=False)
    ] = None,
    *,
    options: Annotated[Given, VerifyOptions],
    fail_on: Annotated[
        Literal["error", "warn"], typer.Option("--fail-on", help="The least severe finding that exits with 4.")
    ] = "error",
    report: ReportFile = None,
    foreign_read_safe: Annotated[
        bool,
        typer.Option(
            "--foreign-read-safe",
            help="Only check whether a reader of plain Parquet files, which does not merge, would see the correct rows.",
        ),
    ] = False,
    engine: Annotated[
        Literal["auto", "spark", "local", "clickhouse", "starrocks", "trino", "duckdb", "polars", "pypaimon"],
        typer.Option(
            "--engine",
            help="Where the work runs: on Spark, in this process (local), or on Spark only for large amounts of data (auto). "
            "With --foreign-read-safe: the engine whose readers are judged, with their versions.",
            rich_help_panel="Engine",
        ),
    ] = "auto",
    list_codes: Annotated[bool, typer.Option("--list", help="List all checks and exit.")] = False,
) -> None:
    """Check the integrity of a table: metadata, files, rows. Changes nothing; exits with 4 on findings, with 7 if only
    files outside of the table could not be checked, because your configuration does not allow it.

    paimon-cli verify ./wh/shop.db/orders --level full

    paimon-cli verify ./wh/shop.db/orders --foreign-read-safe --engine clickhouse

    paimon-cli verify ./wh/shop.db/orders --all-snapshots --report junit checks.xml
    """
    if list_codes:
        from paimon_cli.api.integrity import invariants
        from paimon_cli.invariants.violation import Invariant

        call.show(Listing("InvariantList", None, Invariant, invariants()))
        return
    if table is None:
        raise UsageError("no table was named", "verify needs a TABLE, or --list", "paimon-cli verify --help")
    check_form(report)
    from paimon_cli.invariants.violation import Violation

    judged = None if engine in get_args(EngineName) else engine
    if judged is None:
        call = replace(call, engine=cast(EngineName, engine))
    elif not foreign_read_safe:
        raise UsageError(f"--engine {engine} does not run commands", f"{engine} is judged as a reader", "add --foreign-read-safe")
    if foreign_read_safe:
        if options.keys() - {"snapshot"} or report is not None or fail_on != "error":  # its findings have no severity
            raise UsageError("--foreign-read-safe is a separate check", "it can be combined only with --snapshot")
        _show_foreign_reads(call, table, options.get("snapshot"), judged)
        return
    found = call.open_damaged(table).verify(**options)
    if report is not None:
        _write_report(found, table, report)
    if call.is_for_people:
        _show_text(found, table, call.pasted(table))
    else:
        results = [{"check": r.check, "result": r.result, "findings": r.findings} for r in found.checks]
        call.show(
            Listing(
                "VerifyFindingList",
                table,
                Violation,
                found.violations,
                summary={"checks": results, "expired_files": found.expired_files, "not_checked": found.not_checked},
            )
        )
    if found.errors or (found.warnings and fail_on == "warn"):
        raise typer.Exit(_exit_code(found, fail_on))


def _exit_code(found: VerifyReport, fail_on: str) -> int:
    """That of findings if something is wrong with the table, else that of a read: what may not be opened, or is not
    supported, may be sound.
    """
    from paimon_cli.invariants.violation import ERROR

    failing = [v.invariant for v in found.violations if v.severity == ERROR or fail_on == "warn"]
    if not all(invariant.of_permission or invariant.of_support for invariant in failing):
        return FINDINGS_EXIT_CODE
    return Refused.exit_code if any(invariant.of_permission for invariant in failing) else NotSupported.exit_code


_READER_WORDS = {
    "right": "is right about {}",
    "refused": "refuses {}",
    "wrong": "is wrong about {}",
    "unknown": "may be wrong about {}: nothing is known of it",
}


def _show_foreign_reads(call: Call, table: str, snapshot: int | None, engine: str | None) -> None:
    opened = call.open(table)
    found = opened.foreign_reads(snapshot=snapshot, argument=call.pasted(table), engine=engine)
    of_snapshot = f"snapshot {found.snapshot_id or '-'} of {opened.name}"
    lines = [
        f"{reader.reader} ({reader.versions}) "
        + _READER_WORDS[reader.result].format(of_snapshot)
        + (f": {', '.join(reader.because)}" if reader.because else "")
        + "".join(f"\n    {text}" for text in (reader.advice, reader.report) if text)
        for reader in found.readers
    ]
    if engine is None:
        lines = [f"a reader of plain Parquet files is {'right' if found.is_safe else 'wrong'} about {of_snapshot}"]
    obstacles = [f for f in found.findings if engine is None or any(f.code in reader.because for reader in found.readers)]
    for finding in obstacles:
        lines.append(f"  {finding.code}: {finding.message} ({counted(finding.files, 'file')}, {counted(finding.rows, 'row')})")
        lines += [f"    such as {finding.example}", *([f"    run: {finding.command}"] if finding.command else [])]
    call.show(Item("ForeignReadReport", opened.name, found), "\n".join(lines))
    if not found.is_safe:
        raise typer.Exit(FINDINGS_EXIT_CODE)


def _write_report(found: VerifyReport, table: str, report: tuple[str, Path]) -> None:
    from paimon_cli.cli.findings_file import ReportedFinding, write_report
    from paimon_cli.invariants.check import INVARIANTS

    checked = {result.check for result in found.checks}
    rules = {i.code: i.meaning for i in INVARIANTS if i.check in checked and found.request.wants(i.code)}
    findings = [ReportedFinding(table, v.code, v.severity, v.path, v.message, path=v.path) for v in found.violations]
    not_run = {(table, code): why for code, why in found.not_checked.items()}
    write_report(report, "verify", [table], rules, findings, not_run=not_run)


def _show_text(found: VerifyReport, table: str, pasted: str) -> None:
    from paimon_cli.cli.text_view import print_table, wrapped
    from paimon_cli.invariants.violation import LOST_SNAPSHOTS, CheckGroup

    none = "no readable snapshot" if found.errors else "no snapshot yet"
    at = none if found.snapshot_id is None else f"snapshot {found.snapshot_id}"
    extent = f"{counted(found.snapshots, 'snapshot')}, {counted(found.manifests, 'manifest')}"
    if found.data_files:
        extent += f", {counted(found.data_files, 'data file')}, {human_size(found.size)}"
    say(wrapped(f"Verifying {table} @ {at} (level {found.level}: {extent})"))
    print_table(
        [("Check", False), ("Result", False), ("Findings", True)], ([r.check, r.result, str(r.findings)] for r in found.checks)
    )
    shown: dict[str, int] = {}
    for violation in found.violations:
        shown[violation.code] = shown.get(violation.code, 0) + 1
        if shown[violation.code] <= SHOWN_PER_CODE:
            where = f"{printable(violation.path)}: {printable(violation.message)}"
            severity = violation.severity.upper()
            say(wrapped(f"{severity:<7}  {violation.code}  {where}", indent=9), severity)
    for code, count in shown.items():
        more = count - SHOWN_PER_CODE + found.omitted.get(code, 0)
        if more > 0:
            say(f"         {code}  and {more:,} more{'' if code in found.omitted else ', see -o json'}")
    if found.expired_files:
        say(f"{counted(found.expired_files, 'file')} expired during the verification and could not be checked")
    for why in dict.fromkeys(found.limits[code] for code in found.not_checked if code in found.limits):
        codes = [code for code, reason in found.not_checked.items() if reason == why]
        say(wrapped(f"not checked: {', '.join(codes)}, because {why}"))
    took = ran(found) if found.engine else f"{found.seconds:.1f} s"
    say(f"{counted(found.errors, 'error')}, {counted(found.warnings, 'warning')} in {took}")
    if any(violation.check == CheckGroup.SCHEMAS for violation in found.violations):
        say("hint: restore the schema file from a backup; nothing else describes the columns of its data files")
    elif LOST_SNAPSHOTS in {violation.code for violation in found.violations}:
        say("hint: restore the snapshot files from a backup; nothing else names the live files of the table")
    elif found.errors:
        _say_repairs(found, pasted)


def _say_repairs(found: VerifyReport, pasted: str) -> None:
    """The commands that plan repairs: what was found by reading all rows is only repaired if it is asked for by name."""
    from paimon_cli.invariants.violation import ERROR, FULL

    hints = {v.path: v.hint for v in found.violations if v.hint}  # no repair, and what else is said of the file follows from it
    for hint in dict.fromkeys(hints.values()):
        say(f"hint: {printable(hint)}")
    errors = [v for v in found.violations if v.severity == ERROR and v.path not in hints]
    broken = {v.invariant for v in errors if not (v.invariant.of_permission or v.invariant.of_support)}
    by_reading = sorted({invariant.repair for invariant in broken if invariant.repair} if found.level == FULL else ())
    if by_reading:
        say(
            f"hint: paimon-cli repair {pasted} --only {','.join(by_reading)}    # reads all rows; changes nothing without --apply"
        )
    if any(invariant.of_bounds for invariant in broken):
        say(f"hint: reads without a condition return all rows, so copy them: paimon-cli write NEW_TABLE --from-table {pasted}")
    if any(not invariant.of_bounds and not (by_reading and invariant.repair) for invariant in broken):
        say(f"hint: paimon-cli repair {pasted}    # plans repairs; changes nothing without --apply")


@command(commands, "repair")
def repair(
    call: Call,
    table: TableName,
    apply: Annotated[bool, typer.Option("--apply", help="Carry out the plan; by default it is only shown.")] = False,
    dry_run: Annotated[bool, typer.Option("-n", "--dry-run", help="Only show the plan (default), also with --apply.")] = False,
    *,
    options: Annotated[Given, RepairOptions],
    yes: Yes = False,
    allow_unsafe_commit: AllowUnsafeCommit = False,
) -> bool:
    """Plan repairs of a damaged table; --apply carries them out in a new snapshot.

    The plan lists data that is permanently lost. No data file or manifest is changed or deleted; unreadable snapshot and
    tag files are moved to damaged/ in the table. With --apply it exits with 4 if manual steps are left.

    paimon-cli repair ./wh/shop.db/orders

    paimon-cli repair ./wh/shop.db/orders --apply --yes
    """
    from paimon_cli.invariants.repair_steps import RepairStep

    apply = apply and not dry_run
    opened = call.open_to_commit(table, allow_unsafe_commit) if apply else call.open(table)
    planned = opened.plan_repair(**options)
    plan = planned.plan
    if call.is_for_people:
        _show_plan(plan, table)
        if not plan.steps and "only" not in options:
            from paimon_cli.invariants.check import INVARIANTS

            by_name = ",".join(sorted({invariant.repair for invariant in INVARIANTS if invariant.repair}))
            say(f"rows were not read; this plans what only they show: paimon-cli repair {call.pasted(table)} --only {by_name}")
    if apply:
        if plan.changes:
            confirm(f"{counted(plan.changes, 'repair')} of {opened.name} will be made", yes)
        done = planned.run()
        ids = [snapshot.id for snapshot in done.snapshots]
        text = f"{counted(done.steps, 'repair')} made; new snapshots: {', '.join(map(str, ids)) or 'none'}"
        summary = {"made": done.steps, "snapshots": ids}
        call.show(Listing("RepairSummary", opened.name, RepairStep, plan.steps, summary=summary), text)
        if left := len(plan.steps) - plan.changes:
            warn(f"{counted(left, 'step')} of the plan {'is' if left == 1 else 'are'} manual, and left to do")
            raise typer.Exit(FINDINGS_EXIT_CODE)
    elif not call.is_for_people:
        call.show(Listing("RepairPlan", opened.name, RepairStep, plan.steps))
    elif plan.changes:
        say("nothing was changed (dry run)")
    return bool(plan.changes)


def _show_plan(plan: RepairPlan, table: str) -> None:
    from paimon_cli.cli.text_view import wrapped

    at = "no snapshot" if plan.snapshot_id is None else f"snapshot {plan.snapshot_id}"
    say(wrapped(f"Repairs of {table} @ {at}: {plan.changes} to make, {len(plan.steps) - plan.changes} manual"))
    for number, step in enumerate(plan.steps, 1):
        say(wrapped(f"{number:>3}. {step.kind:<12}  {printable(step.path)}: {printable(step.action)}", indent=5))
        if step.loss:
            say(wrapped(f"     lost: {printable(step.loss)}", indent=11))
        if step.command:
            say(f"     run: {printable(step.command)}")
