"""Monitoring of the compaction service: metrics for Prometheus, over HTTP or in a file, and health endpoints.

A metric that Paimon has keeps Paimon's name and unit (`paimon_compaction_maxLevel0FileCount`, times in milliseconds). Other names
start with `paimon_cli_` and follow Prometheus' conventions. Figures about a table are as of its last plan.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from paimon_cli.errors import UsageError
from paimon_cli.ingest.changes.read_lag import NO_LAG, ReadLag
from paimon_cli.jobs.engine import Progress
from paimon_cli.jobs.round_plan import NO_BUCKETS, BucketFigures
from paimon_cli.jobs.service.ledger_watcher import best_score
from paimon_cli.jobs.service.service_turn import Findings
from paimon_cli.jobs.service.table_round import RoundState, ServiceRound, ServiceWatcher, TableRound
from paimon_cli.jobs.service.upkeep_done import NOT_KEPT_UP, UpkeepDone
from paimon_cli.storage.injected import Clock
from paimon_cli.storage.redaction import shown_name

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric

    from paimon_cli.jobs.service.commit_hook import CommitHook

STALE_SECONDS = 900
"""The service is not ready after this time without activity."""


@dataclass
class _TableFigures:
    """The figures of a table. Sizes (bytes) and counts are totals since the service started; `last_*`: the last compaction."""

    state: str = RoundState.NOTHING
    figures: BucketFigures = NO_BUCKETS
    findings: Findings = field(default_factory=dict)
    lag: ReadLag = NO_LAG
    compactions: int = 0
    buckets: int = 0
    input_bytes: int = 0
    output_bytes: int = 0
    greatest_input: int = 0
    greatest_output: int = 0
    millis: float = 0
    conflicts: int = 0
    failures: int = 0
    upkeep: UpkeepDone = NOT_KEPT_UP
    left_bytes: int = 0
    budget_left: int | None = None
    score: float | None = None
    stored: Mapping[str, int] = field(default_factory=dict)
    last_files: tuple[int, int] = (0, 0)
    last_bytes: tuple[int, int] = (0, 0)
    last_buckets: int = 0
    last_snapshots: int = 0
    last_attempts: int = 0
    last_commit_millis: int = 0

    def add(self, done: TableRound) -> None:
        summary, self.state, self.figures = done.summary, done.state, done.figures
        self.findings = done.findings or {}
        self.lag = done.lag or NO_LAG
        self.conflicts += summary.conflicts
        self.failures += done.error is not None and done.state != RoundState.GONE
        self.upkeep += done.upkeep
        self.left_bytes = done.left.size
        self.budget_left = self.budget_left if done.budget_left is None else done.budget_left
        self.score = best_score(summary.plan.decisions) if done.is_new else self.score
        self.stored = self.stored if done.stored is None else done.stored
        if not summary.has_changed:  # a turn that ended with an error may have committed most of its buckets
            return
        self.compactions += 1
        self.buckets += summary.buckets
        self.input_bytes += summary.bytes_read
        self.output_bytes += summary.bytes_written
        self.greatest_input = max(self.greatest_input, summary.bytes_read)
        self.greatest_output = max(self.greatest_output, summary.bytes_written)
        self.millis += summary.seconds * 1000
        self.last_files = summary.files_before, summary.files_after
        self.last_bytes = summary.bytes_read, summary.bytes_written
        self.last_buckets, self.last_snapshots = summary.buckets, len(summary.snapshots)
        if summary.snapshots:
            self.last_attempts = summary.snapshots[-1].commit_attempts or 0
            self.last_commit_millis = summary.snapshots[-1].commit_duration_millis or 0


@dataclass(eq=False)
class ServiceMetrics:
    """A service watcher that collects metrics and passes each event on to `inner`. Other threads may read it.

    `requests`: to storages, by kind, counted elsewhere; `hooks`: what hears of commits.
    """

    inner: ServiceWatcher
    clock: Clock
    requests: Mapping[str, int] = field(default_factory=dict)
    hooks: Sequence[CommitHook] = ()
    _tables: dict[str, _TableFigures] = field(default_factory=dict)
    _rounds: int = 0
    _round_seconds: float = 0.0
    _waiting: int = 0
    _alive_millis: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._note_activity()

    def table_begins(self, number: int, table: str) -> Progress:
        self._note_activity()
        return _ActivityProgress(self.inner.table_begins(number, table), self._note_activity)

    def table_done(self, done: TableRound) -> None:
        with self._lock:
            self._tables.setdefault(_label(done.table), _TableFigures()).add(done)
        self._note_activity()
        self.inner.table_done(done)

    def round_done(self, done: ServiceRound, pause_seconds: float | None) -> None:
        names = {_label(table.table) for table in done.tables}
        with self._lock:
            for name in self._tables.keys() - names:
                del self._tables[name]
            self._rounds, self._round_seconds, self._waiting = done.number, done.seconds, done.waiting
        self._note_activity()
        self.inner.round_done(done, pause_seconds)

    def _note_activity(self) -> None:
        self._alive_millis = self.clock.now_millis()

    @property
    def registry(self) -> CollectorRegistry:
        """The collectors that a scrape reads: this one and that of the process."""
        from prometheus_client import CollectorRegistry, ProcessCollector

        registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        registry.register(self)
        return registry

    def status(self) -> dict[str, Any]:
        """The answer of `/readyz`. The service is ready once it has completed a round, and while it is active."""
        quiet = (self.clock.now_millis() - self._alive_millis) / 1000
        is_ready = self._rounds > 0 and quiet < STALE_SECONDS
        return {"ready": is_ready, "rounds": self._rounds, "tables": len(self._tables), "seconds_since_activity": round(quiet, 3)}

    def collect(self) -> Iterator[Metric]:
        """All metrics; called by the Prometheus client for each scrape."""
        from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

        now = self.clock.now_millis()
        with self._lock:
            tables = [(name, [value for _, _, value in _table_metrics(table, now)]) for name, table in self._tables.items()]
            states = [(name, table.state) for name, table in self._tables.items()]
            findings = [(name, table.findings) for name, table in self._tables.items()]
            stored = [(name, table.stored) for name, table in self._tables.items()]
            service = (self._rounds, self._round_seconds, self._waiting)
        for number, (name, meaning, _) in enumerate(_table_metrics(_TableFigures(), now)):
            family_class = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            family = family_class(name, meaning, labels=["table"])
            for table_name, values in tables:
                if (value := values[number]) is not None:
                    family.add_metric([table_name], value)
            yield family
        family = GaugeMetricFamily("paimon_cli_table_state", "1 for the state that the table is in.", labels=["table", "state"])
        for table_name, state in states:
            family.add_metric([table_name, state], 1)
        yield family
        meaning, labels = "Findings of the last examination, as `health` names them.", ["table", "severity", "code"]
        family = GaugeMetricFamily("paimon_cli_findings", meaning, labels=labels)
        for table_name, counts in findings:
            for kind, count in counts.items():
                family.add_metric([table_name, *kind], count)
        yield family
        meaning = "Bytes below the table's directory by what keeps them, as `cost` counts, at the last search for orphans."
        family = GaugeMetricFamily("paimon_cli_stored_bytes", meaning, labels=["table", "owner"])
        for table_name, sizes in stored:
            for owner, size in sizes.items():
                family.add_metric([table_name, owner], size)
        yield family
        meaning = "Requests to storages by this process; those of object stores as they are sent."
        asked = CounterMetricFamily("paimon_cli_storage_requests_total", meaning, labels=["kind"])
        for request, count in self.requests.items():
            asked.add_metric([request], count)
        yield asked
        if self.hooks:
            meaning = "Commits that hooks heard of, and commits that they missed."
            told = CounterMetricFamily("paimon_cli_hook_events_total", meaning, labels=["outcome"])
            told.add_metric(["delivered"], sum(hook.delivered for hook in self.hooks))
            told.add_metric(["dropped"], sum(hook.dropped for hook in self.hooks))
            yield told
        yield CounterMetricFamily("paimon_cli_rounds_total", "Rounds of the service.", value=service[0])
        yield GaugeMetricFamily("paimon_cli_round_seconds", "Duration of the last round.", value=service[1])
        yield GaugeMetricFamily("paimon_cli_tables", "Tables of the last round.", value=len(tables))
        yield GaugeMetricFamily(
            "paimon_cli_tables_waiting", "Tables that were only partly compacted in the last round.", value=service[2]
        )


def _label(table: str) -> str:
    """A table as labels show it: without secrets, since anybody may reach the port, and as UTF-8, which names of directories need
    not be.
    """
    return shown_name(table).encode(errors="backslashreplace").decode()


def _seconds_since(millis: int | None, now_millis: int) -> float | None:
    return None if millis is None else max(0, now_millis - millis) / 1000


def _table_metrics(table: _TableFigures, now_millis: int) -> list[tuple[str, str, float | None]]:
    """The name, help text and value of each metric of a table."""
    figures, done = table.figures, table.compactions
    age, lag = _seconds_since(figures.uncompacted_since, now_millis), table.lag

    def average(total: float) -> float:
        return total / done if done else 0

    return [
        (
            "paimon_compaction_maxLevel0FileCount",
            "Most files at level 0 in one bucket.",
            figures.max_level_0_files,
        ),
        ("paimon_compaction_avgLevel0FileCount", "Average files at level 0 per bucket.", figures.average_level_0_files),
        ("paimon_compaction_totalFileCount", "Data files.", figures.files),
        ("paimon_compaction_minAvgFileSize", "Smallest average file size of a bucket in bytes.", figures.min_average_size),
        ("paimon_compaction_avgTotalFileSize", "Average size of a bucket in bytes.", figures.size // max(1, figures.buckets)),
        ("paimon_compaction_maxTotalFileSize", "Size of the largest bucket in bytes.", figures.max_bucket_size),
        ("paimon_compaction_compactionCompletedCount", "Bucket compactions that were committed.", table.buckets),
        ("paimon_compaction_compactionQueuedCount", "Buckets with a planned compaction.", figures.picked),
        ("paimon_compaction_avgCompactionTime", "Average duration of a turn in milliseconds.", average(table.millis)),
        ("paimon_compaction_avgCompactionInputSize", "Average bytes read in a turn.", average(table.input_bytes)),
        ("paimon_compaction_maxCompactionInputSize", "Most bytes read in a turn.", table.greatest_input),
        ("paimon_compaction_avgCompactionOutputSize", "Average bytes written in a turn.", average(table.output_bytes)),
        ("paimon_compaction_maxCompactionOutputSize", "Most bytes written in a turn.", table.greatest_output),
        ("paimon_commit_lastCommitDuration", "Duration of the last commit in milliseconds.", table.last_commit_millis),
        ("paimon_commit_lastCommitAttempts", "Attempts of the last commit.", table.last_attempts),
        ("paimon_commit_lastTableFilesAdded", "Files that the last commit added.", table.last_files[1]),
        ("paimon_commit_lastTableFilesDeleted", "Files that the last commit deleted.", table.last_files[0]),
        ("paimon_commit_lastTableFilesCommitCompacted", "Files before and after the last compaction.", sum(table.last_files)),
        ("paimon_commit_lastGeneratedSnapshots", "Snapshots of the last turn.", table.last_snapshots),
        ("paimon_commit_lastBucketsWritten", "Buckets that the last commit compacted.", table.last_buckets),
        ("paimon_commit_lastCompactionInputFileSize", "Bytes that the last compaction read.", table.last_bytes[0]),
        ("paimon_commit_lastCompactionOutputFileSize", "Bytes that the last compaction wrote.", table.last_bytes[1]),
        ("paimon_cli_read_bytes", "Bytes of all data files, which a read of all rows fetches.", figures.size),
        ("paimon_cli_read_requests", "Requests to an object store that fetch all data files.", figures.read_requests),
        ("paimon_cli_sorted_runs_max", "Most sorted runs in one bucket.", figures.most_runs),
        ("paimon_cli_oldest_uncompacted_seconds", "Age of the oldest file waiting for a compaction.", age),
        (
            "paimon_cli_ingest_lag_seconds",
            "Age of the newest change that ingest committed.",
            _seconds_since(lag.time, now_millis),
        ),
        ("paimon_cli_ingest_events_behind", "Events of topics not yet read when ingest last committed.", lag.behind),
        ("paimon_cli_compaction_read_bytes_total", "Bytes read by compactions that were committed.", table.input_bytes),
        ("paimon_cli_compaction_written_bytes_total", "Bytes written by compactions that were committed.", table.output_bytes),
        ("paimon_cli_conflicts_total", "Buckets that another job changed in the meantime.", table.conflicts),
        ("paimon_cli_failures_total", "Plans or turns that failed.", table.failures),
        ("paimon_cli_expired_snapshots_total", "Snapshots that the service expired.", table.upkeep.snapshots_expired),
        ("paimon_cli_expired_partitions_total", "Partitions that the service expired.", table.upkeep.partitions_expired),
        ("paimon_cli_expired_changelogs_total", "Changelogs that the service expired.", table.upkeep.changelogs_expired),
        ("paimon_cli_expired_tags_total", "Tags that the service expired.", table.upkeep.tags_expired),
        ("paimon_cli_expired_consumers_total", "Consumers that the service expired.", table.upkeep.consumers_expired),
        ("paimon_cli_expired_files_total", "Files that were deleted with what expired.", table.upkeep.files_expired),
        ("paimon_cli_orphans_deleted_total", "Orphans that the service deleted.", table.upkeep.orphans),
        (
            "paimon_cli_left_bytes",
            "Bytes of buckets that need a compaction and were left to a later turn or run.",
            table.left_bytes,
        ),
        (
            "paimon_cli_budget_left_bytes",
            "Bytes of the budget of the table that were not taken after its last turn; tables may share one.",
            table.budget_left,
        ),
        ("paimon_cli_best_score", "The highest score that a goal gave to a merge of the table at its last plan.", table.score),
    ]


class _ActivityProgress:
    """Passes the progress of a job on, and reports each step as activity of the service."""

    def __init__(self, inner: Progress, note_activity: Callable[[], None]) -> None:
        self._inner, self._note_activity = inner, note_activity

    def start(self, description: str, total: int | None) -> None:
        self._note_activity()
        self._inner.start(description, total)

    def advance(self, n: int = 1) -> None:
        self._note_activity()
        self._inner.advance(n)

    def finish(self) -> None:
        self._note_activity()
        self._inner.finish()


class MetricsFile:
    """A service watcher that atomically rewrites a metrics file after each round, for node-exporter's textfile collector."""

    def __init__(self, metrics: ServiceMetrics, path: str, warn: Callable[[str], None]) -> None:
        """Raises `UsageError` if the file cannot be created."""
        directory = os.path.dirname(os.path.abspath(path))
        names_no_file = os.path.isdir(path) or not os.path.basename(path)
        if names_no_file or not os.access(directory, os.W_OK | os.X_OK):
            why = "it names a directory" if names_no_file else f"{directory} does not exist, or cannot be written to"
            raise UsageError(f"cannot write the metrics file {path}", why, "give the path of a file")
        self._metrics, self._path, self._warn = metrics, path, warn
        self._registry = metrics.registry
        self.table_begins, self.table_done = metrics.table_begins, metrics.table_done

    def round_done(self, done: ServiceRound, pause_seconds: float | None) -> None:
        from prometheus_client import write_to_textfile

        self._metrics.round_done(done, pause_seconds)
        try:
            write_to_textfile(self._path, self._registry)
        except OSError as error:  # such as a full disk, which must not stop the service
            self._warn(f"the metrics file {self._path} was not written: {error}")
