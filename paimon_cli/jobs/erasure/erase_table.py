"""`erase` of one table: the plan that a dry run shows, and the run with its certificate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from paimon_cli.errors import Refused
from paimon_cli.history.table_context import TableContext
from paimon_cli.ingest.faults import Tally
from paimon_cli.ingest.json_rows import Needed
from paimon_cli.ingest.row_sources import RowSource
from paimon_cli.ingest.rows import IncomingRows
from paimon_cli.jobs.erasure.certificate import Certificate, as_record
from paimon_cli.jobs.erasure.erase_job import Erasure
from paimon_cli.jobs.erasure.erased_rows import ErasedKeys
from paimon_cli.jobs.erasure.erasure_record import unfinished_erasures
from paimon_cli.jobs.erasure.inventory import CHANGELOG, SNAPSHOT, TAG, Inventory
from paimon_cli.jobs.erasure.proof import Proof, search
from paimon_cli.jobs.erasure.unnamed_files import holding, lasting, unnamed_files
from paimon_cli.jobs.table_change import Summary, ran_on
from paimon_cli.maintain.expire_changelogs import expire_changelogs, plan_changelogs
from paimon_cli.maintain.expire_snapshots import expire_snapshots
from paimon_cli.maintain.file_deletion import delete_files
from paimon_cli.maintain.orphans import Candidate
from paimon_cli.maintain.retention import Retention, consumers, expiring_range
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.metadata.table_layout import BACKUP_CONSUMER, MAIN_BRANCH
from paimon_cli.metadata.table_schema import TableSchema

_OF_TABLES = "snapshot schema manifest index statistics tag branch changelog consumer lease removal commit-user backup damaged"
_ALL = Retention(at_least=1, at_most=1, millis=0, limit=None)
_SHOWN = 5


@dataclass(frozen=True)
class ErasePlan:
    """What would be erased. `keys`: None in an append table; `rows`: stored rows, in all versions; `files`: data files that are
    written again, of `size` bytes; `unnamed`: files that no version names, and that are deleted; `snapshots`, `tags` and
    `changelogs` are replaced, on all `branches`; `expiring`: snapshots that expire first. `consumers`: readers that may hold the
    names of old files; `outside`: where copies may be that this job does not reach; `unfinished`: erasures that were killed.
    `earlier_tables`: those at this place that are in the trash, and from which is erased, too. All numbers include
    theirs.
    """

    table: str
    keys: int | None
    rows: int
    files: int
    size: int
    unnamed: int
    snapshots: int
    tags: int
    changelogs: int
    branches: int
    expiring: int
    consumers: tuple[str, ...]
    outside: tuple[str, ...]
    unfinished: int
    earlier_tables: int = 0


@dataclass(frozen=True, repr=False)
class EraseSummary(Summary):
    """What was erased. `snapshots`: those that were published over the new files, so that no commit builds on the old ones;
    `versions`: how many were replaced; `found`: files that still hold erased rows, which is a finding. See `ErasePlan`.
    """

    table: str
    keys: int | None
    rows: int
    files: int
    size: int
    bytes_written: int
    unnamed: int
    versions: int
    snapshots: tuple[Snapshot, ...]
    files_searched: int
    rows_read: int
    found: tuple[str, ...]
    outside: tuple[str, ...]
    certificate: str | None
    engine: str
    engine_reason: str
    seconds: float
    earlier_tables: int = 0


@dataclass
class TableErasure:
    """The erasure of a table: `plan` looks, `run` does it. `before`: files that no version names are deleted if they are older
    than this, in epoch millis. `earlier`: the same for earlier tables at its place that are in the trash.
    """

    erasure: Erasure
    drops_history: bool
    before: int
    certificate: str | None = None
    unnamed: list[Candidate] = field(default_factory=list)
    earlier: list[TableErasure] = field(default_factory=list)

    @property
    def _context(self) -> TableContext:
        return self.erasure.context

    def plan(self) -> ErasePlan:
        """Find what holds the rows. Raises `NotSupported` for what cannot be erased, and `Refused` for files of jobs that may be
        writing; nothing is changed.
        """
        erasure, context = self.erasure, self._context
        if self.certificate is not None:
            Certificate.check_new(self.certificate, context.name, may_exist=bool(unfinished_erasures(context)))
        erasure.plan()
        self._look_at_unnamed()
        inventory, held = erasure.inventory, erasure.held
        touched = set(held) | set(erasure.gone)
        manifests = {name for name, files in inventory.manifests.items() if not touched.isdisjoint(files)}
        lists = {name for name, metas in inventory.lists.items() if any(meta.file_name in manifests for meta in metas)}
        kinds = [v.kind for v in inventory.versions if not lists.isdisjoint(v.lists.values())]
        own = ErasePlan(
            table=context.name,
            keys=len(erasure.rows) if isinstance(erasure.rows, ErasedKeys) else None,
            rows=sum(erasure.counts.values()),
            files=len(held),
            size=sum(file.entry.file.file_size for file in held.values()),
            unnamed=len(self.unnamed),
            snapshots=kinds.count(SNAPSHOT),
            tags=kinds.count(TAG),
            changelogs=kinds.count(CHANGELOG),
            branches=len(inventory.branches),
            expiring=sum(len(expiring_range(b, _ALL)) for b in inventory.branches.values()) if self.drops_history else 0,
            consumers=_consumers(inventory),
            outside=outside_of(context, inventory),
            unfinished=len(erasure.unfinished),
        )
        others = [other.plan() for other in self.earlier]
        return replace(own, **_sums(own, others, _PLANNED), earlier_tables=len(others))

    def _look_at_unnamed(self) -> None:
        erasure, context = self.erasure, self._context
        assert erasure.rows is not None
        ours = {f"{context.layout.root}/{path}" for record in erasure.unfinished for path in record.all_files(context)}
        others = [file for file in unnamed_files(context, erasure.inventory) if file.path not in ours]
        found = holding(context, erasure.rows, others, erasure.engine, erasure.progress)
        young = [file for file in found if file.modified_millis >= self.before]
        if young := lasting(context, erasure.inventory, young):
            names = ", ".join(file.path.removeprefix(f"{context.layout.root}/") for file in young[:_SHOWN])
            more = f" and {len(young) - _SHOWN} more" if len(young) > _SHOWN else ""
            raise Refused(
                f"{len(young)} files that no version names hold such rows, and are too young to be deleted",
                f"they may be staged, or belong to a job that is writing: {names}{more}",
                "commit or abort what is staged, or wait for the job; only if none writes: the same command with --older-than 0s",
                files=[file.path for file in young[:_SHOWN]],
            )
        self.unnamed = [file for file in found if file.modified_millis < self.before]

    def run(self) -> EraseSummary:
        """Erase, and prove it. Raises what `Erasure.run` does; a repeated call continues what was killed."""
        erasure, context = self.erasure, self._context
        started = context.clock.now_millis()
        certificate = None if self.certificate is None else Certificate.begin(self.certificate)
        if self.drops_history:
            self._drop_history()
        erasure.run([file.path for file in self.unnamed])
        assert erasure.rows is not None
        others = [other.run() for other in self.earlier]
        hashes = erasure.erased_hashes
        proof = search(context, erasure.inventory, erasure.rows, hashes, erasure.engine, erasure.progress)
        outside = outside_of(context, erasure.inventory)
        rewritten = list(erasure.rewritten.values())
        if certificate is not None:
            condition = None if isinstance(erasure.rows, ErasedKeys) else erasure.request.where
            in_trash = [self._as_record(other, done) for other, done in self._with(others)]
            certificate.write(erasure.rows, condition, {**self._content(proof, outside), "trash": in_trash})
        erasure.finish()
        own = EraseSummary(
            table=context.name,
            keys=len(erasure.rows) if isinstance(erasure.rows, ErasedKeys) else None,
            rows=sum(file.rows for file in rewritten),
            files=len(rewritten),
            size=sum(file.before.file.file_size for file in rewritten),
            bytes_written=sum(file.after.file_size for file in rewritten if file.after is not None),
            unnamed=len(self.unnamed),
            versions=len(erasure.replaced),
            snapshots=tuple(erasure.snapshots),
            files_searched=proof.data_files + proof.manifests + proof.index_files + proof.unnamed_files,
            rows_read=proof.rows,
            found=proof.found,
            outside=outside,
            certificate=self.certificate,
            **ran_on(erasure.engine, context, started),
        )
        found = (f"{other._context.layout.root}/{path}" for other, done in self._with(others) for path in done.found)
        return replace(own, **_sums(own, others, _DONE), found=(*own.found, *found), earlier_tables=len(others))

    @staticmethod
    def _as_record(other: TableErasure, done: EraseSummary) -> dict[str, object]:
        facts = {"files": done.files, "searched": done.files_searched, "found": list(done.found)}
        return {"path": other._context.layout.root, **facts}

    def _with(self, others: Sequence[EraseSummary]) -> list[tuple[TableErasure, EraseSummary]]:
        return list(zip(self.earlier, others, strict=True))

    def _drop_history(self) -> None:
        for branch in self.erasure.inventory.branches.values():
            expire_snapshots(branch, replace(_ALL, heeds_consumers=True))
            plan = plan_changelogs(branch, _ALL)
            if plan is not None:
                expire_changelogs(branch, plan, delete_files(branch))

    def _content(self, proof: Proof, outside: Sequence[str]) -> dict[str, object]:
        erasure, context = self.erasure, self._context
        root = f"{context.layout.root}/"

        def path(file_key: tuple[bytes, int, str], name: str) -> str:
            return context.data_file_path_of(file_key[0], file_key[1], name).removeprefix(root)

        files = [
            {
                "old": path(key, file.before.file.file_name),
                "new": None if file.after is None else path(key, file.after.file_name),
                "rows": file.rows,
            }
            for key, file in erasure.rewritten.items()
        ]
        return {
            "table": context.name,
            "time": pa.scalar(context.clock.now_millis(), pa.timestamp("ms", "UTC")).as_py().isoformat(),
            "rows": sum(file.rows for file in erasure.rewritten.values()),
            "files": files,
            "versions": sorted(erasure.replaced),
            "snapshots": [snapshot.id for snapshot in erasure.snapshots],
            "proof": as_record(proof),
            "outside": list(outside),
        }


_PLANNED = ("rows", "files", "size", "unnamed", "snapshots", "tags", "changelogs", "branches", "expiring", "unfinished")
_DONE = ("rows", "files", "size", "bytes_written", "unnamed", "versions", "files_searched", "rows_read")
"""The numbers of a plan and of a result that include tables in the trash."""


def _sums(own: object, others: Sequence[object], names: Sequence[str]) -> dict[str, Any]:
    return {name: sum(getattr(each, name) for each in (own, *others)) for name in names}


def read_keys(context: TableContext, source: RowSource) -> list[pa.RecordBatch]:
    """The keys in a source, which may have other columns, too. Raises `BadInput` for a key that the table cannot have."""
    schema, names = context.schema, context.schema.primary_keys
    keyed = TableSchema(0, schema.fields_of(names), 0, (), names, {}, None, 0)
    rows, tally = IncomingRows(keyed, source=source), Tally()
    found = []
    for split in source.plan():
        for raw in source.raw_rows(split, keyed.fields, Needed()):
            kept = raw.batch.select([name for name in raw.batch.schema.names if name in names])
            found.append(rows.conform(raw._replace(batch=kept), split, tally).select(list(names)))
    return found


def _consumers(inventory: Inventory) -> tuple[str, ...]:
    """The streaming readers, which may hold names of old files: they start again from their snapshot if one is gone."""
    found = []
    for name, branch in inventory.branches.items():
        at = "" if name == MAIN_BRANCH else f" of branch {name}"
        found += [f"{consumer.name}{at} (next snapshot {consumer.next_snapshot})" for consumer in consumers(branch)]
    return tuple(found)


def outside_of(context: TableContext, inventory: Inventory) -> tuple[str, ...]:
    """Where copies of the rows may be that are no part of the table."""
    found = ["exports, clones and other tables that were written from this one", "caches and checkpoints of jobs that read it"]
    found.append("other tables in the trash of the warehouse: paimon-cli trash ls")
    backups = [consumer.name for consumer in consumers(context) if consumer.name.startswith(BACKUP_CONSUMER)]
    found.append("backups: erase from each copy, which is a table" + (f" (known: {', '.join(backups)})" if backups else ""))
    if context.storage.is_remote:
        found.append("older versions and deleted objects that the store keeps, if versioning or soft delete is on")
    listed = context.storage.list_directory(context.layout.root)
    first = f"{context.schema.partition_keys[0]}=" if context.schema.partition_keys else "bucket-"
    known = {*_OF_TABLES.split(), context.data_root.removeprefix(context.layout.root).strip("/").partition("/")[0]}
    names = [status.name for status in listed if status.is_directory]
    foreign = [name for name in names if name not in known and not name.startswith(first)]
    if foreign:
        found.append(f"directories in the table that are no part of it: {', '.join(sorted(foreign)[:_SHOWN])}")
    return tuple(found)
