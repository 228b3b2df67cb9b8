"""`health`: figures, a verdict, and the command that fixes each finding, for one table or all tables of a warehouse.

Nothing is written, not even a probe of the storage.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

from paimon_cli.errors import PaimonError, TookTooLong
from paimon_cli.inspect.findings.examined_table import ExaminedTable
from paimon_cli.inspect.findings.finding import (
    ADVICE,
    ERROR,
    LISTING,
    METADATA,
    OK,
    REPLAY,
    TOPOLOGY,
    WARNING,
    Finding,
    is_at_least,
)
from paimon_cli.inspect.findings.runner import findings_of, of_damaged_entry, unopened
from paimon_cli.inspect.operation_cost import read_cost
from paimon_cli.read.html_text import ShownAsTable


class Health:
    """States of a table."""

    HEALTHY = "healthy"
    NEEDS_CARE = "needs care"
    CRITICAL = "critical"
    UNREADABLE = "unreadable"
    NO_ANSWER = "no answer"


@dataclass(frozen=True)
class HealthRow(ShownAsTable):
    """The state of a table. A figure is None if it cannot be read. `most_runs`: the most sorted runs of any bucket.

    `uncompacted_seconds`: age of the oldest recent commit that no compaction followed; None if there is none.
    `lag_seconds`: since the newest change was made in the database whose changes `ingest` applies; `events_behind`: those of its
    topics that it had not read at its last commit. None for other tables.
    `read_bytes`, `read_requests`: what a read of all rows fetches, and the requests that it takes on an object store.
    """

    table: str
    verdict: str
    files: int | None = None
    size: int | None = None
    buckets: int | None = None
    most_runs: int | None = None
    snapshots: int | None = None
    uncompacted_seconds: float | None = None
    lag_seconds: float | None = None
    events_behind: int | None = None
    read_bytes: int | None = None
    read_requests: int | None = None
    findings: tuple[Finding, ...] = ()

    @property
    def urgency(self) -> tuple[int, int, int]:
        """The sort key of a warehouse, most urgent first: errors, findings, sorted runs."""
        errors = sum(finding.severity == ERROR for finding in self.findings)
        return -errors, -len(self.problems), -(self.most_runs or 0)

    @property
    def place(self) -> tuple[tuple[int, int, int], str]:
        """The sort key of a list of tables: most urgent first, then by name."""
        return self.urgency, self.table

    @property
    def problems(self) -> tuple[Finding, ...]:
        """The findings about which something should be done: all but advice."""
        return tuple(finding for finding in self.findings if is_at_least(finding, WARNING))


def health_of(table: ExaminedTable, name: str, *, with_advice: bool = False, with_topology: bool = False) -> HealthRow:
    """Examine a table. `with_advice`: also what could be better, for which the commits of the history are replayed.
    `with_topology`: also how its writers are arranged, even if that is right.
    """
    costs: Collection[str] = (METADATA, LISTING, REPLAY) if with_advice else (METADATA, LISTING)
    findings = tuple(findings_of(table, ADVICE if with_advice else WARNING, costs=costs))
    if with_topology:
        findings = (*findings, *(found for found in findings_of(table, OK, costs=(TOPOLOGY,)) if found not in findings))
    has_keys = bool(table.context.schema.primary_keys)
    read = _known(lambda: read_cost(table, name))
    row = HealthRow(
        table=name,
        verdict=Health.HEALTHY,
        files=_known(lambda: sum(len(bucket.files) for bucket in table.all_buckets)),
        size=_known(lambda: sum(file.file_size for bucket in table.all_buckets for file in bucket.files)),
        buckets=_known(lambda: len(table.buckets)),
        most_runs=_known(lambda: max(table.runs, default=0)) if has_keys else None,
        snapshots=_known(lambda: len(table.ids)),
        uncompacted_seconds=_known(lambda: _uncompacted_seconds(table)),
        lag_seconds=_known(lambda: _lag_seconds(table)),
        events_behind=_known(lambda: None if (lag := table.lag) is None else lag.behind),
        read_bytes=None if read is None else read.bytes_read,
        read_requests=None if read is None else read.reads,
        findings=findings,
    )
    return with_findings(row, ())


def with_findings(row: HealthRow, more: Iterable[Finding]) -> HealthRow:
    """The row with more findings, and the verdict that follows from all."""
    row = replace(row, findings=(*row.findings, *more))
    is_critical = any(finding.severity == ERROR for finding in row.findings)
    return replace(row, verdict=Health.CRITICAL if is_critical else Health.NEEDS_CARE if row.problems else Health.HEALTHY)


def of_policy(path: str, findings: Iterable[Finding]) -> HealthRow:
    """The row of the policy of a warehouse, about which there are findings."""
    return with_findings(HealthRow(path, Health.HEALTHY), findings)


T = TypeVar("T")


def _known(figure: Callable[[], T]) -> T | None:
    """A figure; None if it cannot be read, which is a finding as well."""
    try:
        return figure()
    except PaimonError:
        return None


def unreadable(name: str, argument: str, error: PaimonError) -> HealthRow:
    """The row of a table that cannot be opened, or gives no answer in time."""
    verdict = Health.NO_ANSWER if isinstance(error, TookTooLong) else Health.UNREADABLE
    return HealthRow(name, verdict, findings=(unopened(argument, error),))


def damaged_entry(error: PaimonError) -> HealthRow:
    """The row of an entry of the catalog that is damaged, so that it names no table."""
    return HealthRow(error.what, Health.UNREADABLE, findings=(of_damaged_entry(error),))


def by_urgency(rows: Iterable[HealthRow]) -> list[HealthRow]:
    """The rows, most urgent first, then by name."""
    return sorted(rows, key=lambda row: row.place)


def _uncompacted_seconds(table: ExaminedTable) -> float | None:
    """The age of the oldest recent commit after the last compaction; older snapshots are not searched."""
    since = None
    for snapshot in table.recent:
        if table.context.manifests.compacted_files(snapshot):
            break
        since = snapshot.time_millis
    return None if since is None else max(0.0, (table.context.clock.now_millis() - since) / 1000)


def _lag_seconds(table: ExaminedTable) -> float | None:
    lag = table.lag
    return None if lag is None or lag.time is None else max(0.0, (table.context.clock.now_millis() - lag.time) / 1000)
