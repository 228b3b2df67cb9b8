"""Small tables, files that exist only in manifests, and storages that fail, for tests of commits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from paimon_cli.datatypes.binary_row import serialize_row
from paimon_cli.datatypes.data_type import DataField
from paimon_cli.datatypes.field_types import parse_type
from paimon_cli.errors import StorageUnavailable
from paimon_cli.history.schema_history import SchemaHistory
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import EMPTY_ROW, DataFileMeta, SimpleStats
from paimon_cli.metadata.table_layout import TableLayout
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.storage.local_storage import LocalStorage
from paimon_cli.storage.storage import FileStatus, PutOutcome, Storage

INT = parse_type("INT NOT NULL")
COLUMNS = {"dt": "STRING NOT NULL", "k": "INT NOT NULL", "v": "STRING"}


def make_table(
    folder: Path,
    options: Mapping[str, str] | None = None,
    partitioned: bool = False,
    storage: Storage | None = None,
    primary_key: bool = True,
) -> TableContext:
    """A table of dt, k, v with primary key k (and dt if partitioned by it) in `folder`; opened again if it exists."""
    fields = tuple(DataField(i, name, parse_type(text)) for i, (name, text) in enumerate(COLUMNS.items()))
    key = ("dt", "k") if partitioned else ("k",)
    all_options = {"bucket": "2", "file.format": "parquet", **(options or {})}
    schema = TableSchema(0, fields, 2, ("dt",) if partitioned else (), key if primary_key else (), all_options, None, 0)
    SchemaHistory(LocalStorage(), TableLayout(str(folder))).commit(schema)
    return TableContext.open(str(folder), storage=storage)


def partition(dt: str) -> bytes:
    return serialize_row([dt], [parse_type("STRING NOT NULL")])


def data_file(name: str, low: int = 0, high: int = 9, level: int = 0, rows: int = 10, **more: Any) -> DataFileMeta:
    """A file of keys `low` to `high`."""
    least, greatest = serialize_row([low], [INT]), serialize_row([high], [INT])
    return DataFileMeta(
        file_name=name,
        file_size=1000,
        row_count=rows,
        min_key=least,
        max_key=greatest,
        key_stats=SimpleStats(least, greatest, (0,)),
        value_stats=SimpleStats(EMPTY_ROW, EMPTY_ROW, ()),
        min_sequence_number=0,
        max_sequence_number=rows - 1,
        schema_id=0,
        level=level,
        creation_time_millis=1_700_000_000_000,
        delete_row_count=0,
        file_source=0,
        **more,
    )


def live_names(context: TableContext, snapshot_id: int | None = None) -> list[str]:
    """Names of live files with their level, sorted."""
    snapshot = context.snapshots.latest() if snapshot_id is None else context.snapshots.get(snapshot_id)
    entries = context.manifests.live_entries(snapshot) if snapshot else []
    return sorted(f"{entry.file.file_name}@{entry.file.level}" for entry in entries)


def manifest_files(context: TableContext) -> set[str]:
    return {path.name for path in (Path(context.url) / "manifest").glob("*")}


def named_manifest_files(context: TableContext) -> set[str]:
    """Manifest files that some snapshot names."""
    named: set[str] = set()
    for snapshot in context.snapshots.newest_first():
        named |= {snapshot.base_manifest_list, snapshot.delta_manifest_list}
        named |= {name for name in (snapshot.index_manifest, snapshot.changelog_manifest_list) if name}
        named |= {meta.file_name for meta in context.manifests.manifests_of(snapshot)}
    return named


class Crash(BaseException):
    """The process has died: nothing that it still does has an effect."""


@dataclass
class Fault:
    """Let call number `call` of a storage go wrong: `before` or `after` its effect; a crash ends all later calls too."""

    call: int
    after: bool
    crash: bool


class FaultyStorage:
    """A local storage that counts its calls and lets one of them fail."""

    is_remote = False

    def __init__(self, fault: Fault | None = None) -> None:
        self.inner = LocalStorage()
        self.calls: list[str] = []
        self.fault = fault
        self.dead = False

    def _do(self, name: str, *arguments: Any) -> Any:
        if self.dead:
            raise Crash
        self.calls.append(name)
        hit = self.fault is not None and len(self.calls) - 1 == self.fault.call
        if hit and self.fault is not None and not self.fault.after:
            self._fail(name)
        result = getattr(self.inner, name)(*arguments)
        if hit and self.fault is not None:
            if name == "put_if_absent" and not self.fault.crash:
                return PutOutcome.UNKNOWN  # how a storage says that the answer got lost
            self._fail(name)
        return result

    def _fail(self, name: str) -> None:
        if self.fault is not None and self.fault.crash:
            self.dead = True
            raise Crash
        raise StorageUnavailable(f"{name} failed", "on purpose")

    def read_bytes(self, path: str) -> bytes:
        return self._do("read_bytes", path)

    def open_input(self, path: str) -> BinaryIO:
        return self._do("open_input", path)

    def open_output(self, path: str) -> BinaryIO:
        return self._do("open_output", path)

    def write_new(self, path: str, data: bytes) -> None:
        self._do("write_new", path, data)

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        return self._do("put_if_absent", path, data)

    def overwrite(self, path: str, data: bytes) -> None:
        self._do("overwrite", path, data)

    def exists(self, path: str) -> bool:
        return self._do("exists", path)

    def file_size(self, path: str) -> int:
        return self._do("file_size", path)

    def list_directory(self, path: str) -> list[FileStatus]:
        return self._do("list_directory", path)

    def delete(self, path: str) -> None:
        self._do("delete", path)

    def delete_directory(self, path: str) -> None:
        self._do("delete_directory", path)


class RemoteStorage(LocalStorage):
    """A local storage that claims to be an object store, so that a commit builds on the snapshot that was read last."""

    is_remote = True


class LyingStorage(LocalStorage):
    """Gives scripted answers to puts of snapshots: each is (does it take effect?, what it says, does a read show it?)."""

    def __init__(self, script: Sequence[tuple[bool, PutOutcome]]) -> None:
        super().__init__()
        self.script = list(script)
        self.puts = 0

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        self.puts += 1
        if not self.script:
            return super().put_if_absent(path, data)
        effective, answer = self.script.pop(0)
        if effective:
            super().put_if_absent(path, data)
        return answer


class SteppingClock:
    """A clock whose time passes only in `sleep`; records the length of the sleeps."""

    def __init__(self, now: int = 1_700_000_000_000) -> None:
        self.now = now
        self.sleeps: list[float] = []

    def now_millis(self) -> int:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.now += int(seconds * 1000)
