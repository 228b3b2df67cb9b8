"""`compact --watch`: the service, with a live display on a terminal and log lines elsewhere."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from paimon_cli.cli.command import Call
from paimon_cli.cli.compact_once import opened
from paimon_cli.cli.compact_options import Targets
from paimon_cli.cli.messages import note
from paimon_cli.cli.results import OutputFormat
from paimon_cli.cli.service_log import RoundLines, ServiceLog

if TYPE_CHECKING:
    from paimon_cli.history.table_context import TableContext
    from paimon_cli.jobs.compact_job import CompactRequest
    from paimon_cli.jobs.compaction_service import ServedTable
    from paimon_cli.table.table_location import TableLocation


def watch(
    call: Call,
    targets: Targets,
    request: CompactRequest,
    dedicated: bool,
    seconds: float,
    max_rounds: int | None,
    parallelism: int | None,
) -> None:
    """Serve until told to stop, with a pause of `seconds` between rounds.

    Tables of a database come and go; named ones must exist now and may vanish later.
    """
    from paimon_cli.jobs.compaction_service import CompactionService
    from paimon_cli.jobs.stop_signals import StopSignals, Terminated
    from paimon_cli.storage.clock_and_names import SystemClock

    for location in targets.locations():
        opened(call, location, dedicated)
    watcher = _watcher(call.output)
    try:
        with StopSignals() as signals, call.engine_running(parallelism, parallelism) as engine, watcher:
            service = CompactionService(lambda: _served(call, targets), request, engine, SystemClock(), watcher, signals.shield)
            service.run(seconds, max_rounds)
    except Terminated:
        note("stopped")


def _served(call: Call, targets: Targets) -> list[ServedTable]:
    from paimon_cli.errors import NotFound
    from paimon_cli.jobs.compaction_service import ServedTable

    def at(location: TableLocation) -> ServedTable:
        def open_now() -> TableContext:
            return call.open_at(location).context

        return ServedTable(location.name, open_now)

    try:
        return [at(location) for location in targets.locations()]
    except NotFound:
        return []  # all tables of the database are gone; new ones may come


def _watcher(output: OutputFormat) -> ServiceLog:
    lines = RoundLines(output)
    if not sys.stderr.isatty():
        return ServiceLog(lines)
    from paimon_cli.cli.service_display import LiveDisplay

    return LiveDisplay(lines)
