"""`compact`: merges the sorted runs of buckets, once or as a service next to write-only writers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from paimon_cli.cli.command import Call, command, top_level
from paimon_cli.cli.output import Item, Listing
from paimon_cli.cli.parameters import AllowUnsafeCommit, Given, part_of
from paimon_cli.cli.results import note_waiting, say
from paimon_cli.errors import PaimonError, UsageError
from paimon_cli.requests.compaction import SERVICE, CompactTables, PlanOfTables, ServiceOptions
from paimon_cli.requests.fields import flag

if TYPE_CHECKING:
    from paimon_cli.api.catalog import Catalog
    from paimon_cli.jobs.service.table_round import TableRound

commands = top_level()
NO_TABLES = "0 tables: nothing to do"
"""The answer for a database, or a warehouse, without tables."""
_of_service = partial(typer.Option, rich_help_panel=SERVICE)


@dataclass(frozen=True)
class Monitoring:
    """Options for how the compaction service, or a single run, is watched."""

    metrics_listen: Annotated[
        str | None,
        _of_service(
            "--metrics-listen",
            metavar="[HOST]:PORT",
            help="Serve /metrics (for Prometheus), /healthz and /readyz; without HOST only on this machine.",
        ),
    ] = None
    metrics_file: Annotated[
        str | None,
        _of_service("--metrics-file", metavar="FILE", help="Write the metrics to this file after each round, atomically."),
    ] = None
    log_format: Annotated[
        Literal["text", "json"],
        _of_service("--log-format", help="Lines of text on stderr, or one JSON object per line."),
    ] = "text"
    hook: Annotated[
        str | None,
        _of_service(
            "--hook",
            metavar="URL|COMMAND",
            help="After each commit, post JSON about it to this URL, or give it to this command on standard input, in a few "
            "attempts; what cannot be delivered is counted. Default: hook.commits of your own configuration file.",
        ),
    ] = None

    @property
    def is_wanted(self) -> bool:
        """Whether a run without --watch needs a log or metrics."""
        return self.log_format != "text" or self.metrics_file is not None

    def check(self, watch: bool, service: Given) -> None:
        """Raise `UsageError` for options that need a service, which is not started."""
        if self.metrics_listen is not None:
            from paimon_cli.jobs.service.metrics_server import parse_address

            parse_address(self.metrics_listen)
        if self.hook is not None:
            from paimon_cli.jobs.service.commit_hook import HookTarget

            HookTarget.parse(self.hook)
        of_service = [*service, *(name for name in ("metrics_listen", "hook") if getattr(self, name) is not None)]
        for name in () if watch else of_service:
            raise UsageError(f"{flag(name)} needs --watch", "only the service does this", "add --watch")


@command(commands, "compact", runs_jobs=True)
def compact(
    call: Call,
    *,
    options: Annotated[Given, CompactTables],
    dry_run: Annotated[bool, typer.Option("-n", "--dry-run", help="Only show what would be compacted, and why.")] = False,
    watch: Annotated[
        bool,
        _of_service(
            "--watch",
            help="Repeat in rounds until stopped. SIGTERM exits with 0, Ctrl-C with 130; a running compaction is cancelled, but "
            "small ones and a running commit are finished.",
        ),
    ] = False,
    service: Annotated[Given, ServiceOptions],
    monitoring: Monitoring,
    allow_unsafe_commit: AllowUnsafeCommit = False,
) -> bool | None:
    """Compact tables: merge sorted runs and drop rows that newer ones replace.

    paimon-cli compact ./wh/shop.db/orders --dedicated --watch --interval 30s

    paimon-cli compact --database shop --warehouse s3://lake/wh --max-bytes 10gb

    paimon-cli compact --watch --warehouse s3://lake/wh --expire --orphans-every 1d --metrics-listen :9464 --log-format json
    """
    from paimon_cli.jobs.process import StopSignals

    monitoring.check(watch, service)
    if watch and dry_run:
        raise UsageError("--watch cannot be combined with --dry-run or --if-snapshot", "every round makes its own plan")
    if watch and not options.get("tables") and not options.get("database"):
        options["all_tables"] = True
    catalog = call.catalog(allow_unsafe_commit)
    if dry_run:
        return _show_plans(call, catalog, options)
    is_single = bool(options.get("tables"))
    if not watch and not monitoring.is_wanted:
        with StopSignals() as signals:
            _compact_and_show(call, partial(catalog.compact, **options, shield=signals.shield), single=is_single)
        return None
    from paimon_cli.cli.compact_watch import Outlook, run_once, run_service

    outlook = Outlook(monitoring.log_format, monitoring.metrics_listen, monitoring.metrics_file, monitoring.hook)
    if watch:
        run_service(call, outlook, catalog, partial(catalog.watch, **options, **service))
    else:
        run_once(outlook, catalog, partial(catalog.compact, **options), partial(_compact_and_show, call, single=is_single))
    return None


def _show_plans(call: Call, catalog: Catalog, options: Given) -> bool:
    """Show the plan of each table; returns whether there is work. Raises the failures at the end."""
    from paimon_cli.cli.compact_view import show_plan, show_plans_to_programs

    planned, is_empty, has_work, failure = [], True, False, None
    try:
        for table, plan in catalog.plan_compaction(**part_of(PlanOfTables, options)):
            is_empty = False
            if call.is_for_people:
                show_plan(call, table, plan, options.get("strategy", "full"), options.get("dedicated", False))
            else:
                planned.append((table, plan))
            has_work |= plan.has_work
    except PaimonError as error:
        failure = error
    if not call.is_for_people and (planned or failure is None):
        show_plans_to_programs(call, planned, single=len(options.get("tables", ())) == 1)
    if failure is not None:
        raise failure
    if is_empty and call.is_for_people:
        say(NO_TABLES)
    return has_work


def _compact_and_show(call: Call, compact: Callable[..., list[TableRound]], *, single: bool) -> None:
    """Call `Catalog.compact`, print a line for each table when it is done, or all summaries at the end; raise the failures."""
    from paimon_cli.cli.compact_view import CompactedTable, summary_line

    finished: list[TableRound] = []

    def finish(done: TableRound) -> None:
        finished.append(done)
        if done.error is None and call.is_for_people:
            say(summary_line(done.table, done.summary))
        if done.error is None:
            note_waiting(call.pasted(done.table), done.summary.waiting_records)

    failure: PaimonError | None = None
    try:
        compact(on_compacted=finish)
    except PaimonError as error:
        failure = error
    rows = [CompactedTable(done.table, done.summary) for done in finished if done.error is None]
    if not finished and failure is None and call.is_for_people:
        say(NO_TABLES)
    if (rows or failure is None) and not call.is_for_people:
        if single and len(finished) == 1:
            call.show(Item("CompactSummary", rows[0].table, rows[0]))
        else:
            call.show(Listing("CompactSummaryList", None, CompactedTable, rows))
    if failure is not None:
        raise failure
