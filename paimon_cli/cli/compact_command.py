"""`compact`: merges the sorted runs of buckets, once or as a service next to write-only writers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from paimon_cli.cli.command import Call, command, top_level
from paimon_cli.cli.output import Item, Listing
from paimon_cli.cli.parameters import AllowUnsafeCommit, Buckets, Partitions, split_partitions
from paimon_cli.cli.results import note_waiting, say
from paimon_cli.errors import PaimonError, UsageError
from paimon_cli.options.option_text import split_buckets

if TYPE_CHECKING:
    from paimon_cli.jobs.compaction_service import TableRound

commands = top_level()
_of_service = partial(typer.Option, rich_help_panel="Service")
_limit = partial(typer.Option, rich_help_panel="Limits")


@dataclass(frozen=True)
class Targets:
    """Options that choose the tables to compact."""

    tables: Annotated[
        list[str] | None, typer.Argument(metavar="[TABLE...]", help="Paths, URLs or db.table.", show_default=False)
    ] = None
    database: Annotated[
        list[str] | None,
        typer.Option("--database", metavar="DB", help="Compact all tables of this database instead; repeatable."),
    ] = None
    all_tables: Annotated[
        bool,
        typer.Option("--all-tables", help="Compact all tables of the warehouse; the default of --watch without TABLE."),
    ] = False
    include: Annotated[
        list[str] | None,
        typer.Option(
            "--include",
            metavar="RE",
            help="With --database or --all-tables: only tables whose full name matches this regular expression; repeatable.",
        ),
    ] = None
    exclude: Annotated[
        list[str] | None,
        typer.Option("--exclude", metavar="RE", help="Leave out tables whose full name matches; repeatable."),
    ] = None
    dedicated: Annotated[
        bool,
        typer.Option("--dedicated", help="This job should be the only compactor: warn if writers may compact too."),
    ] = False


@dataclass(frozen=True)
class StrategyOptions:
    """Options for how each table is compacted."""

    strategy: Annotated[
        Literal["full", "minor"] | None,
        typer.Option(
            "--strategy",
            help="full: merge everything into the top level (default); minor: what the triggers pick (default with --watch).",
        ),
    ] = None
    order_by: Annotated[
        str | None,
        typer.Option(
            "--order-by",
            metavar="COLUMNS",
            help="Sort all rows of an append table without buckets by these columns, partition by partition.",
        ),
    ] = None
    order_strategy: Annotated[
        Literal["order", "zorder", "hilbert"] | None,
        typer.Option(
            "--order-strategy",
            help="order: by one column after the other (default); zorder, hilbert: along a curve, so that filters on each of the "
            "columns skip files.",
        ),
    ] = None
    partition: Partitions = None
    bucket: Buckets = None
    idle_time: Annotated[
        str | None,
        typer.Option(
            "--idle-time",
            metavar="TIME",
            help="Fully compact partitions without new data for this long; compact the others by --strategy minor, or with full "
            "not at all.",
        ),
    ] = None
    on_conflict: Annotated[
        Literal["retry", "skip", "fail"],
        typer.Option(
            "--on-conflict",
            help="If another job has compacted a bucket in the meantime: plan it again, skip it (exit 9), or stop (exit 5). "
            "Other buckets are committed.",
        ),
    ] = "retry"


@dataclass(frozen=True)
class LimitOptions:
    """Options that limit memory and the size of a round."""

    memory: Annotated[str | None, _limit("--memory", metavar="SIZE", help="Memory for all concurrent merges of one process.")] = (
        None
    )
    max_bytes: Annotated[
        str | None, _limit("--max-bytes", metavar="SIZE", help="Read at most this much per table and round.")
    ] = None
    max_buckets: Annotated[
        int | None, _limit("--max-buckets", metavar="N", min=1, help="Compact at most N buckets per table and round.")
    ] = None


@dataclass(frozen=True)
class ServiceOptions:
    """Options of the compaction service: how long it runs, its other work, and its monitoring."""

    watch: Annotated[
        bool,
        _of_service(
            "--watch",
            help="Repeat in rounds until stopped. SIGTERM exits with 0, Ctrl-C with 130; a running compaction is cancelled, but "
            "small ones and a running commit are finished.",
        ),
    ] = False
    interval: Annotated[str | None, _of_service("--interval", metavar="TIME", help="Pause between rounds; default 10 s.")] = None
    max_rounds: Annotated[int | None, _of_service("--max-rounds", metavar="N", min=1, help="Stop after N rounds.")] = None
    lease: Annotated[
        str | None,
        _of_service(
            "--lease",
            metavar="TIME",
            help="Share the work with other services: each compacts a table only while it holds the table's lease, and takes "
            "over leases that were not renewed for this time; default 1 min. 0s: no leases.",
        ),
    ] = None
    expire: Annotated[
        bool,
        _of_service("--expire", help="Also expire the snapshots of changed tables, by the tables' own options."),
    ] = False
    orphans_every: Annotated[
        str | None,
        _of_service("--orphans-every", metavar="TIME", help="Also delete orphans older than a day, this often for each table."),
    ] = None
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

    def check(self) -> None:
        """Raise `UsageError` for invalid options, even if no service is started."""
        from paimon_cli.options.option_text import parse_duration

        for time in (self.interval, self.lease, self.orphans_every):
            if time is not None:
                parse_duration(time)
        if self.orphans_every is not None and not parse_duration(self.orphans_every):
            raise UsageError("--orphans-every 0", "the service would do nothing else", "use a longer time, such as 1d")
        if self.metrics_listen is not None:
            from paimon_cli.jobs.service_metrics import parse_address

            parse_address(self.metrics_listen)
        if self.watch:
            return
        given = {
            "--interval": self.interval,
            "--max-rounds": self.max_rounds,
            "--lease": self.lease,
            "--expire": self.expire,
            "--orphans-every": self.orphans_every,
            "--metrics-listen": self.metrics_listen,
        }
        for name in (name for name, value in given.items() if value):
            raise UsageError(f"{name} needs --watch", "only the service does this", "add --watch")

    @property
    def is_plain(self) -> bool:
        """Whether a run without --watch needs neither a log nor metrics."""
        return self.log_format == "text" and self.metrics_file is None

    @property
    def rounds(self) -> dict[str, Any]:
        """The given options of `Catalog.watch`."""
        names = ("interval", "max_rounds", "lease", "expire", "orphans_every")
        return {name: value for name in names if (value := getattr(self, name)) is not None}


@command(commands, "compact", runs_jobs=True)
def compact(
    call: Call,
    *,
    targets: Targets,
    compaction: StrategyOptions,
    dry_run: Annotated[bool, typer.Option("-n", "--dry-run", help="Only show what would be compacted, and why.")] = False,
    if_snapshot: Annotated[
        int | None,
        typer.Option(
            "--if-snapshot",
            metavar="ID",
            min=1,
            help="Carry out the plan that --dry-run showed at this snapshot; exit with 5 if its files were replaced since.",
        ),
    ] = None,
    service: ServiceOptions,
    limits: LimitOptions,
    parallelism: Annotated[
        int | None, _limit("--parallelism", metavar="N", min=1, help="Compact at most N buckets at the same time.")
    ] = None,
    allow_unsafe_commit: AllowUnsafeCommit = False,
) -> bool | None:
    """Compact tables: merge sorted runs and drop rows that newer ones replace.

    paimon-cli compact ./wh/shop.db/orders --dedicated --watch --interval 30s

    paimon-cli compact --database shop --warehouse s3://lake/wh --max-bytes 10gb

    paimon-cli compact --watch --warehouse s3://lake/wh --expire --orphans-every 1d --metrics-listen :9464 --log-format json
    """
    from paimon_cli.jobs.process import StopSignals

    service.check()
    watch = service.watch
    if watch and compaction.order_by is not None:
        raise UsageError("--watch cannot be combined with --order-by", "every round would sort all rows again")
    if watch and (dry_run or if_snapshot is not None):
        raise UsageError("--watch cannot be combined with --dry-run or --if-snapshot", "every round makes its own plan")
    tables: dict[str, Any] = {name: value for name, value in vars(targets).items() if value is not None}
    tables["all_tables"] = targets.all_tables or (watch and not targets.tables and not targets.database)
    settings: dict[str, Any] = {
        **vars(compaction),
        **vars(limits),
        "strategy": compaction.strategy or ("minor" if watch else "full"),
        "partition": split_partitions(compaction.partition),
        "bucket": split_buckets(compaction.bucket),
        "if_snapshot": if_snapshot,
    }
    catalog = call.catalog(allow_unsafe_commit)
    if dry_run:
        from paimon_cli.cli.compact_view import show_plan, show_plans_to_programs

        dedicated = tables.pop("dedicated")
        planned, has_work, failure = [], False, None
        try:
            for table, plan in catalog.plan_compaction(**tables, **settings):
                if call.is_for_people:
                    show_plan(call, table, plan, settings["strategy"], dedicated)
                else:
                    planned.append((table, plan))
                has_work |= plan.has_work
        except PaimonError as error:
            failure = error
        if not call.is_for_people and (planned or failure is None):
            show_plans_to_programs(call, planned, single=len(targets.tables or ()) == 1)
        if failure is not None:
            raise failure
        return has_work
    if not watch and service.is_plain:
        with StopSignals() as signals:
            once = partial(catalog.compact, **tables, **settings, parallelism=parallelism, shield=signals.shield)
            _compact_and_show(call, once, single=bool(targets.tables))
        return None
    from paimon_cli.cli.compact_watch import Outlook, run_once, run_service

    outlook = Outlook(service.log_format, service.metrics_listen, service.metrics_file)
    if watch:
        start = partial(catalog.watch, **tables, **settings, **service.rounds, parallelism=parallelism)
        run_service(call, outlook, catalog, start)
    else:
        once = partial(catalog.compact, **tables, **settings, parallelism=parallelism)
        run_once(outlook, catalog, once, partial(_compact_and_show, call, single=bool(targets.tables)))
    return None


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
    if rows and not call.is_for_people:
        if single and len(finished) == 1:
            call.show(Item("CompactSummary", rows[0].table, rows[0]))
        else:
            call.show(Listing("CompactSummaryList", None, CompactedTable, rows))
    if failure is not None:
        raise failure
