"""`compact`: merge the sorted runs of buckets, once or as a service next to write-only writers."""

from __future__ import annotations

import typer

from paimon_cli.cli.command import Call, command
from paimon_cli.cli.compact_options import (
    Conflicts,
    Database,
    Dedicated,
    DryRun,
    Exclude,
    IdleTime,
    IfSnapshot,
    Include,
    Interval,
    MaxBuckets,
    MaxBytes,
    MaxRounds,
    Memory,
    OnConflict,
    Parallelism,
    Strategy,
    StrategyChoice,
    Tables,
    Targets,
    Watch,
)
from paimon_cli.cli.parameters import AllowUnsafeCommit, Buckets, Partitions, split_partitions
from paimon_cli.errors import UsageError


def register(app: typer.Typer, panel: str) -> None:
    command(app, "compact", runs_jobs=True, rich_help_panel=panel)(compact)


def compact(
    call: Call,
    tables: Tables = None,
    database: Database = None,
    include: Include = None,
    exclude: Exclude = None,
    dedicated: Dedicated = False,
    strategy: StrategyChoice = None,
    partition: Partitions = None,
    bucket: Buckets = None,
    idle_time: IdleTime = None,
    on_conflict: Conflicts = OnConflict.RETRY,
    dry_run: DryRun = False,
    if_snapshot: IfSnapshot = None,
    watch: Watch = False,
    interval: Interval = "10 s",
    max_rounds: MaxRounds = None,
    memory: Memory = None,
    max_bytes: MaxBytes = None,
    max_buckets: MaxBuckets = None,
    parallelism: Parallelism = None,
    allow_unsafe_commit: AllowUnsafeCommit = False,
) -> None:
    """Compact tables: merge sorted runs and drop rows that newer ones replace.

    paimon-cli compact ./wh/shop.db/orders --dedicated --watch --interval 30s
    """
    from paimon_cli.api.maintenance import compact_request
    from paimon_cli.cli import compact_once, compact_plan_view, compact_watch
    from paimon_cli.options.option_text import parse_duration

    pause = parse_duration(interval) / 1000
    if watch and (dry_run or if_snapshot is not None):
        raise UsageError("--watch cannot be combined with --dry-run or --if-snapshot", "every round makes its own plan")
    targets = Targets(call, tables or (), database, include or (), exclude or (), allow_unsafe_commit)
    targets.check()
    if if_snapshot is not None and (database is not None or len(targets.tables) > 1):
        raise UsageError("--if-snapshot pins the plan of one table", "snapshot ids of different tables are unrelated")
    request = compact_request(
        strategy=(strategy or (Strategy.MINOR if watch else Strategy.FULL)).value,
        partition=split_partitions(partition),
        bucket=bucket,
        on_conflict=on_conflict.value,
        idle_time=idle_time,
        if_snapshot=if_snapshot,
        memory=memory,
        max_bytes=max_bytes,
        max_buckets=max_buckets,
        unknown_buckets_allowed=database is not None,
    )
    if dry_run:
        compact_plan_view.show_plans(call, targets.locations(), request, dedicated)
    elif watch:
        compact_watch.watch(call, targets, request, dedicated, pause, max_rounds, parallelism)
    else:
        compact_once.compact_once(call, targets.locations(), request, dedicated, parallelism, single=database is None)
