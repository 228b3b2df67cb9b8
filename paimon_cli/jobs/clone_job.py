"""`tables clone`: a new table with the latest snapshot of another one, file by file. No row is decoded."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field

from paimon_cli.catalog.table_location import TableLocation
from paimon_cli.catalog.table_site import check_site
from paimon_cli.errors import NotFound, NotSupported, StorageUnavailable, UsageError, undone_on_failure
from paimon_cli.history.table_context import TableContext
from paimon_cli.maintain.needed_files import SharedManifests, changelog_entries, data_files_to_delete, metadata_files
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.metadata.table_layout import MAIN_BRANCH, TableLayout
from paimon_cli.storage.storage import PutOutcome, Storage, delete_all
from paimon_cli.storage.threads import in_parallel

_CHUNK = 8 << 20
"""Bytes that each thread holds while it copies."""


@dataclass(frozen=True)
class ClonedTable:
    """What was copied. `snapshot_id` is that of the source, and of the new table; None if nothing was ever committed."""

    source: str
    table: str
    path: str
    snapshot_id: int | None
    files: int
    size: int


def clone_table(context: TableContext, name: str, target: TableLocation) -> ClonedTable:
    """Copy the latest snapshot into a table that does not exist yet, and enter it into its catalog.

    The schema files come last, so that a table is seen only when it is whole. A failure removes what was copied.
    """
    if target.branch != MAIN_BRANCH or target.read_optimized:
        raise UsageError(f"{target.name} is not a whole table", "a clone cannot be a branch or a view", "name a table")
    if target.metastore is not None and target.identifier is not None and not target.metastore.takes_files:
        raise target.metastore.unsupported("cloning into a table", "create it, then write the rows of the other table to it")
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
            raise UsageError(f"table {target.name} already exists", hint="choose another name")
    return ClonedTable(name, target.name, root, clone.snapshot_id, len(clone.written), clone.size)


@dataclass
class _Clone:
    """The copy of a table; `written` are its files so far."""

    source: TableContext
    storage: Storage
    layout: TableLayout
    snapshot_id: int | None = None
    written: list[str] = field(default_factory=list)
    size: int = 0

    def copy(self) -> None:
        """Data first, then what names it, then the schemas, the newest at the very end."""
        latest = self.source.snapshots.latest()
        if latest is not None:
            with _vanishing(self.source):
                paths = list(dict.fromkeys(self._files_of(latest)))
                for size in in_parallel(self._copy_file, paths, self.source.read_threads):
                    self.size += size
            self._put(self.layout.snapshot(latest.id), latest.to_json().encode())
            for hint in (self.layout.earliest_hint, self.layout.latest_hint):
                self.written.append(hint)
                self.storage.overwrite(hint, str(latest.id).encode())
            self.snapshot_id = latest.id
        for schema_id in self.source.schemas.ids():
            self._put(self.layout.schema(schema_id), self.source.storage.read_bytes(self.source.layout.schema(schema_id)))

    def undo(self) -> None:
        """Delete what was copied, the schemas first, so that half a table is never taken for one."""
        delete_all(self.storage, reversed(self.written))

    def _files_of(self, snapshot: Snapshot) -> Iterator[str]:
        live = SharedManifests(self.source).live(snapshot)
        for entry in [*live, *changelog_entries(self.source, snapshot)]:
            if entry.file.external_path is not None:
                raise NotSupported(
                    f"data file {entry.file.file_name} lies outside of {self.source.address}", "external paths are not supported"
                )
            yield from (file.path for file in data_files_to_delete(self.source, entry, "data"))
        yield from (file.path for file in metadata_files(self.source, snapshot))

    def _copy_file(self, path: str) -> int:
        """Copy a file to the same place of the new table; its size."""
        target = self.layout.root + path.removeprefix(self.source.layout.root)
        self.written.append(target)
        with self.source.storage.open_input(path) as reader, self.storage.open_output(target) as writer:
            shutil.copyfileobj(reader, writer, _CHUNK)
            return reader.tell()

    def _put(self, path: str, content: bytes) -> None:
        outcome = self.storage.put_if_absent(path, content)
        if outcome is PutOutcome.EXISTS:
            raise UsageError(f"{self.layout.root} is not empty", "another job writes there", "choose another name")
        self.written.append(path)
        self.size += len(content)
        if outcome is PutOutcome.UNKNOWN and not self.storage.exists(path):
            raise StorageUnavailable(f"{path} could not be written", "the storage gave no clear answer", "try again")


@contextlib.contextmanager
def _vanishing(source: TableContext) -> Iterator[None]:
    """Files that expire while they are copied."""
    try:
        yield
    except FileNotFoundError as error:
        raise NotFound(
            f"{error.filename or error} has vanished while {source.address} was copied",
            "another job has expired the snapshot, or the table is damaged",
            f"try again; if it happens again: paimon-cli verify {source.layout.argument}",
        ) from error
