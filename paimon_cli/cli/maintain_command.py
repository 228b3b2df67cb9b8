"""`maintain`: compaction, expiry, orphans and a check in one command, once for cron or as a service."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from paimon_cli.cli.columns import columns_of
from paimon_cli.cli.command import Call, command, top_level
from paimon_cli.cli.compact_command import NO_TABLES, Monitoring
from paimon_cli.cli.output import Listing
from paimon_cli.cli.parameters import AllowUnsafeCommit, DryRun, Given, Yes
from paimon_cli.cli.results import asks, confirm, counted, human_size, note, printable, say
from paimon_cli.errors import FINDINGS_EXIT_CODE, NotSupported, PaimonError, UsageError
from paimon_cli.requests.compaction import SERVICE
from paimon_cli.requests.upkeep import Allowance, MaintainRounds, MaintainTables

if TYPE_CHECKING:
    from paimon_cli.api.catalog import Catalog
    from paimon_cli.api.trash import EmptiedTrash, TrashRow
    from paimon_cli.jobs.service.maintenance import MaintainedTable

commands = top_level()
_BUDGET = "budget"
_PLAN_NOTE, _OF_ITS_COMMITS = "; nothing was changed (dry run)", "; the commits of its compactions push out more snapshots"


@command(commands, "maintain", runs_jobs=True)
def maintain(
    call: Call,
    *,
    options: Annotated[Given, MaintainTables],
    dry_run: DryRun = False,
    yes: Yes = False,
    watch: Annotated[
        bool,
        typer.Option(
            "--watch",
            rich_help_panel=SERVICE,
            help="Repeat in rounds until stopped, as `compact --watch` does. SIGTERM exits with 0, Ctrl-C with 130.",
        ),
    ] = False,
    service: Annotated[Given, MaintainRounds],
    monitoring: Monitoring,
    allow_unsafe_commit: AllowUnsafeCommit = False,
) -> bool | None:
    """Keep tables in shape: compact what is due, expire what is past its retention, delete orphans, then check their health.

    Limits are the tables' own options: the triggers of compaction, as with `compact --strategy minor` (or else the --goal), and
    the retention of snapshots, changelogs, tags, partitions and consumers. Without options of its own, a table loses snapshots
    by the defaults of Paimon: those older than 1 h, except the latest 10. Orphans are deleted from an age of one day on. A table
    that another service is compacting is waited for as long as its lease lives. With --database, dropped tables whose time is
    over are deleted from the trash. The policy of the warehouse (`paimon-cli policy`) may set goals, budgets, windows and longer
    retention. Exits with 0 if all is well, with 4 if findings are left, or work or checks that did not fit into --budget or the
    caps of the policy, otherwise with the code of what failed; the other tables are maintained all the same.

    paimon-cli maintain ./wh/shop.db/orders --yes

    paimon-cli maintain --database shop --warehouse ./wh --budget 10m --yes

    paimon-cli maintain --database shop --warehouse s3://lake/wh --watch --goal balanced --budget 50GB/day --yes
    """
    monitoring.check(watch, service)
    catalog = call.catalog(allow_unsafe_commit)
    if watch:
        _serve(call, catalog, options, service, monitoring, is_sure=yes, is_dry=dry_run)
        return None
    if dry_run or not yes:
        planned = _collected(
            partial(catalog.plan_maintenance, **options),
            lambda rows: _show(call, rows, is_plan=True) if dry_run else None,
        )
        if dry_run:
            if overdue := _overdue(catalog, options):
                _say_of_trash(call, f"{_overdue_text(overdue)} to delete from the trash")
            return bool(overdue) or any(row.has_work or row.beyond_buckets for row in planned)
        if call.is_for_people and asks():
            for row in planned:
                _say_row(row, True, _BUDGET)
        confirm(f"{_consequence(planned, _overdue(catalog, options))} will be deleted", yes)
    _run(call, catalog, options, monitoring)
    return None


def _serve(
    call: Call, catalog: Catalog, options: Given, service: Given, monitoring: Monitoring, *, is_sure: bool, is_dry: bool
) -> None:
    """Maintain in rounds. The service asks once, when it starts."""
    from paimon_cli.cli.compact_watch import Outlook, run_service

    if is_dry:
        raise UsageError("--watch cannot be combined with --dry-run", "every round makes its own plan")
    if not options.get("tables") and not options.get("database"):
        options["all_tables"] = True
    confirm("from now on, what is past its retention, and orphans older than a day, will be deleted", is_sure, has_dry_run=False)
    given = {"orphans_every": "1 d", **service, **options}
    outlook = Outlook(monitoring.log_format, monitoring.metrics_listen, monitoring.metrics_file, monitoring.hook)
    watch = partial(catalog.watch, **given, expire=True, whole=True)
    run_service(call, outlook, catalog, watch, is_maintenance=True, says=_rates(options))


def _rates(options: Given) -> list[str]:
    """The exchange rates of the goal, and the budget, in words."""
    from paimon_cli.lsm.rent_or_buy import UNKNOWN_READS, Goal

    says = []
    if options.get("goal") is not None:
        unknown = f"where nothing is known about reads, a bucket counts {UNKNOWN_READS:g} in an hour"
        says.append(f"{Goal.of(options['goal'])}; {unknown}")
    if options.get("budget") is not None:
        says.append(f"budget {Allowance.parse(options['budget'])}")
    return says


def _scarce(options: Given) -> str:
    """What a run that leaves steps has had too little of. Without --budget, a window or a budget of a policy ended them."""
    if options.get("budget") is None:
        return f"time or {_BUDGET}"
    return "time" if Allowance.parse(options["budget"]).size is None else _BUDGET


def _run(call: Call, catalog: Catalog, options: Given, monitoring: Monitoring) -> None:
    """Maintain once, and show one summary. Raises the failures, or exits with 4 if findings, work or checks are left."""
    from paimon_cli.cli.compact_watch import Outlook, single_run

    def on_emptied(emptied: EmptiedTrash) -> None:
        what = f"{counted(emptied.tables, 'dropped table')} of {human_size(emptied.size)}"
        _say_of_trash(call, f"{what} deleted from the trash")

    outlook = Outlook(monitoring.log_format, None, monitoring.metrics_file)
    if call.is_for_people:
        for text in _rates(options):
            note(text)
    with single_run(outlook, catalog) as (shield, watcher):
        _warn_of_hooks(call, catalog)
        given = {**options, "shield": shield, "watcher": watcher if monitoring.is_wanted else None, "on_emptied": on_emptied}
        rows = _collected(
            partial(catalog.maintain, **given), lambda rows: _show(call, rows, is_plan=False, scarce=_scarce(options))
        )
    if any(row.findings or row.is_unfinished for row in rows):
        raise typer.Exit(FINDINGS_EXIT_CODE)


def _warn_of_hooks(call: Call, catalog: Catalog) -> None:
    """Say that a single run tells no hooks, if the user's policy has some."""
    from paimon_cli.catalog.metastore.configuration_files import PROFILE
    from paimon_cli.catalog.warehouse_policy import own_rules
    from paimon_cli.maintain.policy import PolicyKey

    own = own_rules(call.catalog_options.get(PROFILE))
    places = [line.place for line in own.settings if line.key == PolicyKey.HOOKS]
    if places:
        catalog.runtime.warn(f"only a service tells hooks, so those of {', '.join(places)} hear nothing of this run; add --watch")


def _overdue(catalog: Catalog, options: Given) -> Sequence[TrashRow]:
    """The dropped tables whose time is over, which a run over a database or a whole catalog deletes from the trash."""
    if options.get("tables"):
        return ()
    try:
        return catalog.trash.plan_empty(expired=True).plan
    except NotSupported:  # a catalog without a trash
        return ()


def _say_of_trash(call: Call, text: str) -> None:
    """Say something about the trash, on stderr if the rows on stdout are data."""
    (say if call.is_for_people else note)(text)


def _collected(
    method: Callable[..., list[MaintainedTable]], show: Callable[[list[MaintainedTable]], None]
) -> list[MaintainedTable]:
    """The results of all tables, which are shown even if some have failed; then the failures are raised."""
    rows: list[MaintainedTable] = []
    failure: PaimonError | None = None
    try:
        method(on_maintained=rows.append)
    except PaimonError as error:
        failure = error
    if rows or failure is None:
        show(rows)
    if failure is not None:
        raise failure
    return rows


def _show(call: Call, rows: Sequence[MaintainedTable], *, is_plan: bool, scarce: str = _BUDGET) -> None:
    from paimon_cli.cli.text_view import say_findings
    from paimon_cli.jobs.service.maintenance import MaintainedTable

    if not call.is_for_people:
        call.show(Listing("MaintenancePlan" if is_plan else "MaintenanceList", None, columns_of(MaintainedTable), rows))
        return
    if not rows:
        say(NO_TABLES)
        return
    for row in rows:
        _say_row(row, is_plan, scarce)
        if not is_plan:
            say_findings(row.findings or (), margin="  ")
    say(_total(rows, is_plan))


def _say_row(row: MaintainedTable, is_plan: bool, scarce: str) -> None:
    """One line about a table, and the orphans that a dry run names."""
    say(f"{row.table}: {'; '.join(_parts(row, is_plan, scarce)) or row.state}")
    for path in row.orphan_files:
        say(f"  orphan {printable(path)}")
    if row.orphan_files and row.orphans > len(row.orphan_files):
        say(f"  and {counted(row.orphans - len(row.orphan_files), 'other orphan')}; `paimon-cli orphans ls` lists them")


def _parts(row: MaintainedTable, is_plan: bool, scarce: str) -> list[str]:
    """What was done with a table, or would be, in words. `scarce`: for want of what steps are left."""
    from paimon_cli.cli.compact_view import dropped_rows_text
    from paimon_cli.cli.service_log import upkeep_texts

    parts = []
    if row.buckets and is_plan:
        parts.append(
            f"{counted(row.buckets, 'bucket')} to compact, {counted(row.files_before, 'file')} of {human_size(row.bytes_read)}"
        )
    elif row.buckets:
        files, read = f"{counted(row.files_before, 'file')} -> {row.files_after}", human_size(row.bytes_read)
        parts.append(f"{counted(row.buckets, 'bucket')} compacted, {files}, {read} read, {human_size(row.bytes_written)} written")
    if row.stale_files:
        parts.append(f"{counted(row.stale_files, 'file')} with an old bucket count {'to move' if is_plan else 'moved'}")
    if row.rescaled_to:
        becomes = "is to be" if is_plan else "was"
        parts.append(f"a rescale to {counted(row.rescaled_to, 'bucket')} that was interrupted {becomes} finished")
    if row.rows_dropped_after is not None:
        parts.append(dropped_rows_text(row.rows_dropped_after))
    parts += upkeep_texts(row.upkeep, *(("to expire", "to delete") if is_plan else ("expired", "deleted")))
    if row.default_retention is not None:
        parts.append(f"no retention of its own, so snapshots expire by {row.default_retention}")
    if later := row.left_buckets - row.beyond_buckets:
        parts.append(f"{counted(later, 'bucket')} of {human_size(row.left_bytes - row.beyond_bytes)} left for the next run")
    parts += [beyond for beyond in (row.beyond_budget, row.beyond_caps) if beyond]
    if row.uncompacted:
        parts.append(f"not compacted: {row.uncompacted}")
    if row.left:
        parts.append(f"no {scarce} for {', '.join(row.left)}")
    return [*parts, f"{row.state}: {row.error}"] if row.error else parts


def _total(rows: Sequence[MaintainedTable], is_plan: bool) -> str:
    """One line about all tables."""
    compacted, expired, deleted = ("to compact", "to expire", "to delete") if is_plan else ("compacted", "expired", "deleted")
    unchecked = sum(row.is_unchecked for row in rows)
    items = sum(sum(row.upkeep.expired.values()) for row in rows)
    parts = [
        f"{counted(sum(row.buckets for row in rows), 'bucket')} {compacted}",
        f"{counted(items, 'item')} {expired}",
        f"{counted(sum(row.orphans for row in rows), 'orphan')} {deleted}",
    ]
    if unchecked < len(rows):
        parts.append(f"{counted(sum(len(row.findings or ()) for row in rows), 'finding')} {'now' if is_plan else 'left'}")
    if unchecked:
        parts.append(f"{counted(unchecked, 'table')} not checked")
    if unfinished := sum(row.is_unfinished for row in rows):
        parts.append(f"{counted(unfinished, 'table')} not finished")
    note = (_OF_ITS_COMMITS if any(row.buckets for row in rows) else "") + _PLAN_NOTE if is_plan else ""
    return f"{counted(len(rows), 'table')}: {', '.join(parts)}{note}"


def _overdue_text(overdue: Sequence[TrashRow]) -> str:
    return f"{counted(len(overdue), 'dropped table')} of {human_size(sum(row.size or 0 for row in overdue))}"


def _consequence(rows: Sequence[MaintainedTable], overdue: Sequence[TrashRow]) -> str:
    """What the run would delete in all tables and in the trash, as far as it is known before."""
    from paimon_cli.cli.compact_view import old_rows_text
    from paimon_cli.cli.service_log import upkeep_texts
    from paimon_cli.jobs.service.upkeep_done import NOT_KEPT_UP

    total = sum((row.upkeep for row in rows), NOT_KEPT_UP)
    texts = [*upkeep_texts(total, "past their retention", "older than a day"), *([_overdue_text(overdue)] if overdue else [])]
    ages = sorted({row.rows_dropped_after for row in rows if row.rows_dropped_after is not None})
    texts += [old_rows_text(age) for age in ages]
    known, defaults = " and ".join(texts), sorted({row.default_retention for row in rows if row.default_retention is not None})
    due = f"what becomes due meanwhile{''.join(f' (snapshots by {default})' for default in defaults)}"
    return f"{known}, and {due}," if known else due
