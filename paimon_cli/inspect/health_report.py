"""`health`: figures, a verdict, and the command that fixes each finding, for one table or all tables of a warehouse.

The findings are those of `doctor` about the table itself. Nothing is written, not even a probe of the storage.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from paimon_cli.errors import PaimonError
from paimon_cli.history.table_context import TableContext
from paimon_cli.inspect.doctor_rules import ERROR, Diagnosis, ExaminedTable, findings_of

HEALTHY, NEEDS_CARE, CRITICAL, UNREADABLE = "healthy", "needs care", "critical", "unreadable"


@dataclass(frozen=True)
class HealthRow:
    """The state of a table; figures are None if it cannot be read. `most_runs`: the most sorted runs of any bucket.

    `uncompacted_seconds`: age of the oldest recent commit that no compaction followed; None if there is none.
    """

    table: str
    verdict: str
    files: int | None = None
    size: int | None = None
    buckets: int | None = None
    most_runs: int | None = None
    snapshots: int | None = None
    uncompacted_seconds: float | None = None
    findings: tuple[Diagnosis, ...] = ()

    @property
    def urgency(self) -> tuple[int, int, int]:
        """The sort key of a warehouse, most urgent first: errors, findings, sorted runs."""
        errors = sum(finding.severity == ERROR for finding in self.findings)
        return -errors, -len(self.findings), -(self.most_runs or 0)


def health_of(context: TableContext, name: str, argument: str) -> HealthRow:
    """Examine a table. `argument`: the name of the table in the commands of findings."""
    examined = ExaminedTable(context, argument)
    findings = tuple(findings_of(examined))
    verdict = CRITICAL if any(f.severity == ERROR for f in findings) else NEEDS_CARE if findings else HEALTHY
    try:
        files = [file for bucket in (*examined.buckets, *examined.postponed) for file in bucket.files]
        runs = max(examined.runs, default=0) if context.schema.primary_keys else None
        figures = (len(files), sum(file.file_size for file in files), len(examined.buckets), runs, len(examined.ids))
        return HealthRow(name, verdict, *figures, _uncompacted_seconds(examined), findings)
    except PaimonError:
        return HealthRow(name, verdict, findings=findings)


def unreadable(name: str, argument: str, error: PaimonError) -> HealthRow:
    """The row of a table that cannot be opened."""
    finding = Diagnosis("PD030", ERROR, "table", f"it cannot be opened: {error.message}", f"paimon-cli verify {argument}")
    return HealthRow(name, UNREADABLE, findings=(finding,))


def by_urgency(rows: Iterable[HealthRow]) -> list[HealthRow]:
    """The rows, most urgent first, then by name."""
    return sorted(rows, key=lambda row: (*row.urgency, row.table))


def _uncompacted_seconds(examined: ExaminedTable) -> float | None:
    """The age of the oldest recent commit after the last compaction; older snapshots are not searched."""
    since = None
    for snapshot in examined.recent:
        if examined.context.manifests.compacted_files(snapshot):
            break
        since = snapshot.time_millis
    return None if since is None else max(0.0, (examined.context.clock.now_millis() - since) / 1000)
