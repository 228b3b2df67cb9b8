"""What a read, a write, the due compaction and an idle hour of a service cost: requests to an object store, and bytes.

Counted from the metadata, without sending any of them. Each operation is that of a process which has nothing cached. The figures
are exact for tables with fixed buckets and files of up to `PIECES.whole_file_bytes`. For larger files they are those of a scan of
all columns that merges nothing; dynamic buckets and lookups read their indexes and older rows in addition.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from paimon_cli.history.manifest_reader import SnapshotGone
from paimon_cli.history.table_context import TableContext
from paimon_cli.inspect.compaction_history import RewrittenFiles
from paimon_cli.inspect.compaction_report import decision_rows
from paimon_cli.inspect.daily_growth import Changes
from paimon_cli.inspect.findings.examined_table import ExaminedTable
from paimon_cli.metadata.data_file import DELETION_VECTORS
from paimon_cli.metadata.manifests import inlined_lists
from paimon_cli.metadata.snapshot import APPEND, Snapshot
from paimon_cli.storage.ranged_file import requests_of

READ, WRITE, COMPACTION, IDLE_HOUR = "read", "write", "compaction", "idle hour"
_OPENED = 5
"""Requests that open a table: its schema, a look for a newer one, the hint, the snapshot, and a look for a newer one."""
_FOR_COMMIT = 1
"""Files that a commit reads in addition."""
_COMMITTED = 6
"""Files that a commit writes beside those of data: manifests, their lists, the snapshot, and the hint."""
_LISTS = 2
"""Manifest lists, if the snapshot does not repeat them; small ones are repeated on object stores."""
ROUND_SECONDS, REPLAN_SECONDS, _HOUR = 10, 300, 3600
"""The default pause of a service between its rounds, each of which asks for the next snapshot of a table with one request, and
the time after which it plans an unchanged table again."""


@dataclass(frozen=True)
class OperationCost:
    """The requests of one operation by kind, and the bytes that it fetches and stores.

    `operation`: `read` (all rows), `write` (the mean of the retained commits of writers), `compaction` (what is due now), or
    `idle hour` (of a service with the default pause, while nothing is committed). Bytes are those of data files and manifests.
    `money`: in the currency of a price table, None without one.
    """

    table: str
    operation: str
    reads: int
    writes: int
    checks: int
    bytes_read: int
    bytes_written: int
    money: float | None = None

    @property
    def requests(self) -> int:
        return self.reads + self.writes + self.checks


def operation_costs(table: ExaminedTable, name: str, changes: Iterable[Changes]) -> list[OperationCost]:
    """The costs of the operations on the table called `name`; none if it has no snapshot, or the snapshot has just expired.

    `changes`: retained snapshots with what each changed.
    """
    try:
        plan = _Plan.of(table.context, table.latest)
    except SnapshotGone:
        return []
    if plan is None:
        return []
    costs = [plan.read(table, name)]
    appended = [change for snapshot, change in changes if change is not None and snapshot.commit_kind == APPEND]
    if appended:
        costs.append(plan.write(name, appended))
    compaction = plan.compaction(table, name)
    return [*costs, *([] if compaction is None else [compaction]), plan.idle_hour(name)]


def read_cost(table: ExaminedTable, name: str) -> OperationCost | None:
    """The cost of reading all rows; None if the table has no snapshot, or the snapshot has just expired."""
    try:
        plan = _Plan.of(table.context, table.latest)
    except SnapshotGone:
        return None
    return None if plan is None else plan.read(table, name)


@dataclass(frozen=True)
class _Plan:
    """What every operation fetches first: the metadata files of the latest snapshot."""

    requests: int
    size: int

    @classmethod
    def of(cls, context: TableContext, latest: Snapshot | None) -> _Plan | None:
        if latest is None:
            return None
        manifests = context.manifests.manifests_of(latest)
        repeated = inlined_lists(latest.properties)
        names = (latest.base_manifest_list, latest.delta_manifest_list)
        lists = sum(name not in repeated for name in names) if context.storage.is_remote else _LISTS
        has_index = latest.index_manifest is not None
        return cls(_OPENED + lists + len(manifests) + has_index, sum(manifest.file_size for manifest in manifests))

    def read(self, table: ExaminedTable, name: str) -> OperationCost:
        sizes = [file.file_size for bucket in table.all_buckets for file in bucket.files]
        vectors = [
            index.file_size
            for bucket in table.all_buckets
            for index in bucket.index_files
            if index.index_type == DELETION_VECTORS
        ]
        requests = self.requests + sum(map(requests_of, sizes)) + len(vectors)
        return OperationCost(name, READ, requests, 0, 0, self.size + sum(sizes) + sum(vectors), 0)

    def write(self, name: str, appended: Sequence[RewrittenFiles]) -> OperationCost:
        files = -(-sum(change.files_after for change in appended) // len(appended))
        written = sum(change.bytes_after for change in appended) // len(appended)
        return OperationCost(name, WRITE, self.requests + _FOR_COMMIT, _COMMITTED + files, 1, self.size, written)

    def compaction(self, table: ExaminedTable, name: str) -> OperationCost | None:
        rows = decision_rows(table.context, table.due.values())
        if not rows:
            return None
        rewritten = sum(row.files - row.upgraded for row in rows)
        read, written = sum(row.read_bytes for row in rows), sum(row.write_bytes for row in rows)
        fetched = rewritten if not rewritten else max(rewritten, requests_of(read // rewritten) * rewritten)
        new = sum(row.files_after - row.upgraded for row in rows)
        reads, writes = self.requests + _FOR_COMMIT + fetched, _COMMITTED + new
        return OperationCost(name, COMPACTION, reads, writes, 1, self.size + read, written)

    def idle_hour(self, name: str) -> OperationCost:
        plans = _HOUR // REPLAN_SECONDS
        checks = _HOUR // ROUND_SECONDS - plans
        return OperationCost(name, IDLE_HOUR, plans * self.requests, 0, checks, plans * self.size, 0)
