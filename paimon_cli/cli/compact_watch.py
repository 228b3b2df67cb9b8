"""Runs the service of `compact --watch` and `maintain`, with its log, its metrics and its hooks."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from paimon_cli.cli.output import OutputFormat
from paimon_cli.cli.results import note
from paimon_cli.cli.service_log import JsonLog, RoundLines, ServiceLog, SilentLog, now_millis

if TYPE_CHECKING:
    from paimon_cli.api.catalog import Catalog
    from paimon_cli.cli.command import Call
    from paimon_cli.jobs.service.table_round import ServiceWatcher, TableRound
    from paimon_cli.jobs.table_change import Shield

_TEXT, _JSON = "text", "json"
"""Choices of `--log-format`."""


@dataclass(frozen=True)
class Outlook:
    """The log, the metrics and the hook of a service, besides the rounds on stdout."""

    log_format: str = _TEXT
    metrics_listen: str | None = None
    metrics_file: str | None = None
    hook: str | None = None

    @property
    def has_metrics(self) -> bool:
        return self.metrics_listen is not None or self.metrics_file is not None

    def log(self, lines: RoundLines) -> ServiceLog:
        if self.log_format == _JSON:
            return JsonLog(lines)
        if not sys.stderr.isatty():
            return ServiceLog(lines)
        from paimon_cli.cli.live_display import LiveDisplay

        return LiveDisplay(lines)


def run_service(
    call: Call,
    outlook: Outlook,
    catalog: Catalog,
    watch: Callable[..., None],
    *,
    is_maintenance: bool = False,
    says: Sequence[str] = (),
) -> None:
    """Call `Catalog.watch`, and show its rounds until it ends or is stopped.

    `is_maintenance`: count findings even without metrics, and tell the hooks of the user's policy. `says`: what the log says
    first.
    """
    from paimon_cli.jobs.process import StopSignals, Terminated

    log = outlook.log(RoundLines(call.output, call.fields))
    catalog.runtime = replace(catalog.runtime, warn=log.warn)
    for text in says:
        log.say(text)
    try:
        with (
            StopSignals() as signals,
            log,
            _hooked(call, outlook, log, is_maintenance) as passed,
            _measured(outlook, log, passed) as watcher,
        ):
            log.say("started, and looking at the tables")  # the first round of a large warehouse takes minutes
            watch(watcher=watcher, shield=signals.shield, examines=is_maintenance or outlook.has_metrics)
    except Terminated:
        if isinstance(log, JsonLog):
            log.say("stopped")
        else:
            note("stopped")


def run_once(
    outlook: Outlook,
    catalog: Catalog,
    compact: Callable[..., list[TableRound]],
    show: Callable[[Callable[..., list[TableRound]]], None],
) -> None:
    """Call `Catalog.compact` as a single round with log and metrics; `show` makes the call and prints the results."""
    from paimon_cli.jobs.service.table_round import ServiceRound

    began = now_millis()
    done: list[TableRound] = []

    with single_run(outlook, catalog) as (shield, watcher):

        def observed(on_compacted: Callable[[TableRound], None]) -> list[TableRound]:
            def observe(table: TableRound) -> None:
                done.append(table)
                watcher.table_done(table)
                on_compacted(table)

            try:
                return compact(shield=shield, on_compacted=observe)
            finally:
                watcher.round_done(ServiceRound(1, began, (now_millis() - began) / 1000, tuple(done)), None)

        show(observed)


@contextlib.contextmanager
def single_run(outlook: Outlook, catalog: Catalog) -> Iterator[tuple[Shield, ServiceWatcher]]:
    """While entered, signals wait for the shield, and the watcher logs and measures one run of the catalog."""
    from paimon_cli.jobs.process import StopSignals

    log = JsonLog(RoundLines(OutputFormat.TABLE)) if outlook.log_format == _JSON else SilentLog(RoundLines(OutputFormat.TABLE))
    catalog.runtime = replace(catalog.runtime, warn=log.warn)
    with StopSignals() as signals, _measured(outlook, log, log) as watcher:
        yield signals.shield, watcher


@contextlib.contextmanager
def _hooked(call: Call, outlook: Outlook, log: ServiceLog, has_policy: bool) -> Iterator[ServiceWatcher]:
    """A watcher that passes everything to the log, and commits to the hook of the call or of the user's own file, if any.

    `has_policy`: and to the hooks of the policy in that file.
    """
    from paimon_cli.catalog.metastore.configuration_files import PROFILE
    from paimon_cli.catalog.metastore.settings import read_settings
    from paimon_cli.catalog.warehouse_policy import own_rules
    from paimon_cli.jobs.service.commit_hook import HOOK_SETTING, CommitHook, HookedWatcher, HookTarget, close_all
    from paimon_cli.jobs.service.policy_hooks import targets_of
    from paimon_cli.storage.injected import SystemClock

    of_all = outlook.hook or read_settings(call.warehouse, call.catalog_options).values.get(HOOK_SETTING)
    own = own_rules(call.catalog_options.get(PROFILE)) if has_policy else None
    parsed = [] if own is None else targets_of(own, of_all, log.warn)
    if of_all is not None:
        parsed.append((HookTarget.parse(of_all), lambda table: True))
    watcher: ServiceWatcher = log
    hooks = list[CommitHook]()
    with contextlib.ExitStack() as stack:
        stack.callback(close_all, hooks)
        for target, about in parsed:
            hooks.append(CommitHook(target, log.warn))
            watcher = HookedWatcher(watcher, hooks[-1], SystemClock(), about)
        yield watcher


@contextlib.contextmanager
def _measured(outlook: Outlook, log: ServiceLog, passed: ServiceWatcher) -> Iterator[ServiceWatcher]:
    """A watcher that passes rounds on and, if configured, collects metrics for the HTTP endpoint and the file."""
    if not outlook.has_metrics:
        yield passed
        return
    from paimon_cli.jobs.service.commit_hook import CommitHook, HookedWatcher
    from paimon_cli.jobs.service.metrics_server import listening
    from paimon_cli.jobs.service.service_metrics import MetricsFile, ServiceMetrics
    from paimon_cli.storage.counted_storage import counting_requests
    from paimon_cli.storage.injected import SystemClock

    with counting_requests() as requests:
        hooks, inner = list[CommitHook](), passed
        while isinstance(inner, HookedWatcher):
            hooks, inner = [*hooks, inner.hook], inner.inner
        metrics = ServiceMetrics(passed, SystemClock(), requests, hooks)
        watcher = metrics if outlook.metrics_file is None else MetricsFile(metrics, outlook.metrics_file, log.warn)
        if outlook.metrics_listen is None:
            yield watcher
            return
        with listening(metrics, outlook.metrics_listen) as url:
            log.say(f"metrics at {url}")
            yield watcher
