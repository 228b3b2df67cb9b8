"""`tables clone`: copies the latest snapshot of a table into a new table, file by file, without decoding rows."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field

from paimon_cli.catalog.table_location import TableLocation
from paimon_cli.catalog.table_site import check_site
from paimon_cli.commit.commit_records import records_up_to
from paimon_cli.commit.snapshot_publish import put_snapshot
from paimon_cli.errors import AlreadyExists, NotFound, NotSupported, StorageUnavailable, UsageError, undone_on_failure
from paimon_cli.history.table_context import TableContext
from paimon_cli.maintain.needed_files import SharedManifests, changelog_entries, data_files_to_delete, metadata_files
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.metadata.table_layout import MAIN_BRANCH, TableLayout
from paimon_cli.pieces import PIECES
from paimon_cli.storage.storage import PutOutcome, Storage, delete_all
from paimon_cli.storage.threads import in_parallel


@dataclass(frozen=True)
class ClonedTable:
    """What was copied. `snapshot_id`: the same in both tables; None if the source has no snapshot."""

    source: str
    table: str
    path: str
    snapshot_id: int | None
    files: int
    size: int


def clone_table(context: TableContext, name: str, target: TableLocation) -> ClonedTable:
    """Copy the latest snapshot into a table that does not exist yet, and register it in its catalog.

    Schema files are copied last, so that the table becomes visible only when it is complete. After a failure the copies are
    deleted.
    """
    if target.branch != MAIN_BRANCH or target.read_optimized:
        raise UsageError(f"cannot clone into {target.name}", "the target must be a table, not a branch or $ro", "name a table")
    if target.metastore is not None and target.identifier is not None and not target.metastore.takes_files:
        raise target.metastore.unsupported("cloning into a table", "create the table, then write the rows to it")
    storage, root = target.open_storage()
    clone = _Clone(context, storage, TableLayout(root))

    def publish() -> bool:
        check_site(storage, root)
        clone.copy()
        return True

    with undone_on_failure(clone.undo):
        if target.metastore is None or target.identifier is None:
            publish()
        elif not target.metastore.create_table(target.identifier, context.schemas.latest(), publish):
            raise AlreadyExists(f"table {target.name} already exists", hint="choose another name")
    return ClonedTable(name, target.name, root, clone.snapshot_id, len(clone.written), clone.size)


@dataclass
class _Clone:
    """A copy in progress; `written` lists its files so far."""

    source: TableContext
    storage: Storage
    layout: TableLayout
    snapshot_id: int | None = None
    written: list[str] = field(default_factory=list)
    size: int = 0

    def copy(self) -> None:
        """Copy data files, manifests and records of commits, then the snapshot, then the schemas, oldest first."""
        latest = self.source.snapshots.latest()
        if latest is not None:
            with _reporting_expired_files(self.source):
                paths = list(dict.fromkeys(self._files_of(latest)))
                for size in in_parallel(self._copy_file, paths, self.source.read_threads):
                    self.size += size
            for record in records_up_to(self.source, latest.id):
                for path in record.paths(self.layout):
                    self._put(path, b"")
            content = latest.to_json().encode()
            outcome = put_snapshot(self.storage, self.layout, latest.id, content)
            self._note(outcome, self.layout.snapshot(latest.id), content)
            for hint in (self.layout.earliest_hint, self.layout.latest_hint):
                self.written.append(hint)
                self.storage.overwrite(hint, str(latest.id).encode())
            self.snapshot_id = latest.id
        for schema_id in self.source.schemas.ids():
            self._put(self.layout.schema(schema_id), self.source.storage.read_bytes(self.source.layout.schema(schema_id)))

    def undo(self) -> None:
        """Delete the copies, schemas first, so that an incomplete copy is never taken for a table."""
        delete_all(self.storage, reversed(self.written))

    def _files_of(self, snapshot: Snapshot) -> Iterator[str]:
        live = SharedManifests(self.source).live(snapshot)
        for entry in [*live, *changelog_entries(self.source, snapshot)]:
            if entry.file.external_path is not None:
                raise NotSupported(
                    f"data file {entry.file.file_name} is outside {self.source.address}", "external paths are not supported"
                )
            yield from (file.path for file in data_files_to_delete(self.source, entry, "data"))
        yield from (file.path for file in metadata_files(self.source, snapshot))

    def _copy_file(self, path: str) -> int:
        """Copy a file to the same relative path in the new table; returns its size in bytes."""
        target = self.layout.root + path.removeprefix(self.source.layout.root)
        self.written.append(target)
        with self.source.storage.open_input(path) as reader, self.storage.open_output(target) as writer:
            shutil.copyfileobj(reader, writer, PIECES.copied_bytes)
            return reader.tell()

    def _put(self, path: str, content: bytes) -> None:
        self._note(self.storage.put_if_absent(path, content), path, content)

    def _note(self, outcome: PutOutcome, path: str, content: bytes) -> None:
        """Note a file of the copy. One that exists is never taken for ours: another copy of the same table holds the same."""
        if outcome is PutOutcome.EXISTS:
            raise UsageError(f"{self.layout.root} is not empty", "another job is writing to it", "choose another name")
        self.written.append(path)
        self.size += len(content)
        if outcome is PutOutcome.UNKNOWN and not self.storage.exists(path):
            raise StorageUnavailable(f"{path} could not be written", "the storage gave no clear answer", "try again")


@contextlib.contextmanager
def _reporting_expired_files(source: TableContext) -> Iterator[None]:
    """Report a file that disappears while it is copied as `NotFound`."""
    try:
        yield
    except FileNotFoundError as error:
        raise NotFound(
            f"{error.filename or error} was deleted while {source.address} was being copied",
            "another job has expired the snapshot, or the table is damaged",
            f"try again; if it happens again: paimon-cli verify {source.layout.argument}",
        ) from error
