"""The place of a run: the table, and beside it the logs, which survive whatever happens to the processes."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from paimon_cli.datatypes.data_type import DataField
from paimon_cli.datatypes.field_types import parse_type
from paimon_cli.history.schema_history import SchemaHistory
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.table_layout import TableLayout
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.storage.storage import Storage
from paimon_cli.storage.storage_for_url import storage_for_url

COLUMNS = {"w": "INT NOT NULL", "k": "INT NOT NULL", "v": "BIGINT"}
OPTIONS = {"bucket": "2", "file.format": "parquet", "num-sorted-run.compaction-trigger": "3", "commit.min-retry-wait": "2 ms"}
SHAPES: dict[str, dict[str, str]] = {
    "merged": {},
    "vectors": {"deletion-vectors.enabled": "true"},
    "lookup": {"changelog-producer": "lookup"},
    "lookup-vectors": {"changelog-producer": "lookup", "deletion-vectors.enabled": "true"},
    "input": {"changelog-producer": "input"},
    "full-compaction": {"changelog-producer": "full-compaction"},
    "dynamic": {"bucket": "-1", "dynamic-bucket.target-row-num": "10"},
    "postponed": {"bucket": "-2", "postpone.batch-write-fixed-bucket": "false", "postpone.default-bucket-num": "2"},
    "counted": {"bucket": "-2", "postpone.target-row-num-per-bucket": "20"},
    "moving": {"bucket": "-1", "dynamic-bucket.target-row-num": "10"},
    "append": {"bucket": "-1", "compaction.min.file-num": "3"},
    "bucketed-append": {"bucket-key": "k", "compaction.min.file-num": "3"},
}
"""Options of the table that is written, on top of OPTIONS. In `moving` each commit brings its rows to other partitions."""
MOST_KEPT, LEAST_KEPT = 40, 8
"""A few more snapshots than are made between two kills, each of which is followed by a look at all new ones."""
APPENDS = ("append", "bucketed-append")
"""Shapes without a key, whose rows say of which commit they are."""

_storages: dict[str, tuple[Storage, str]] = {}


@dataclass(frozen=True)
class Place:
    """Plain values, which can be sent to every process. `folder` is on local disk, wherever the table is.

    `snapshots_kept`: how many snapshots an expiry leaves.
    """

    url: str
    options: Mapping[str, str]
    folder: str
    seed: int
    shape: str = "merged"
    snapshots_kept: int = MOST_KEPT

    def for_kills(self, kills: int) -> Place:
        """This place for a run with this number of kills. Even in a short run snapshots expire."""
        return replace(self, snapshots_kept=min(MOST_KEPT, max(LEAST_KEPT, kills // 2)))

    @property
    def rows_wait(self) -> bool:
        """Whether acknowledged rows are shown only when a compaction has given them their buckets."""
        return self.shape == "postponed"

    @property
    def appends(self) -> bool:
        return self.shape in APPENDS

    def make_table(self) -> None:
        columns = {
            **COLUMNS,
            **({"p": "INT NOT NULL"} if self.shape == "moving" else {}),
            **({"n": "INT"} if self.appends else {}),
        }
        fields = tuple(DataField(i, name, parse_type(text)) for i, (name, text) in enumerate(columns.items()))
        partitions = ("p",) if self.shape == "moving" else ("w",)
        keys = () if self.appends else ("w", "k")
        storage, root = self._storage()
        schema = TableSchema(0, fields, len(fields) - 1, partitions, keys, {**OPTIONS, **SHAPES[self.shape]}, None, 0)
        if not SchemaHistory(storage, TableLayout(root)).commit(schema):
            raise AssertionError(f"there is a table at {root}")

    def open(self) -> TableContext:
        storage, root = self._storage()
        return TableContext.open(root, storage=storage)

    def _storage(self) -> tuple[Storage, str]:
        """Connects once in each process."""
        if self.url not in _storages:
            _storages[self.url] = storage_for_url(self.url, self.options)
        return _storages[self.url]

    # acknowledged commits

    def acknowledge(self, writer: int, number: int) -> None:
        """A reader of this line may rely on the commit; it is on disk when this returns."""
        self._append(self._acknowledged(writer), {"number": number, "at": time.time()})

    def acknowledged(self, writer: int) -> list[dict[str, Any]]:
        """Lines of `acknowledge`, oldest first."""
        return self._lines(self._acknowledged(writer))

    def last_acknowledged(self, writer: int) -> int:
        lines = self.acknowledged(writer)
        return int(lines[-1]["number"]) if lines else 0

    def _acknowledged(self, writer: int) -> Path:
        return Path(self.folder) / f"acknowledged-{writer}.jsonl"

    # everything else worth telling

    def note(self, actor: str, **facts: Any) -> None:
        self._append(Path(self.folder) / f"notes-{actor}.jsonl", facts)

    def notes(self) -> dict[str, list[dict[str, Any]]]:
        """By actor."""
        paths = sorted(Path(self.folder).glob("notes-*.jsonl"))
        return {path.stem.removeprefix("notes-"): self._lines(path) for path in paths}

    def source(self, actor: str) -> Path:
        """An input file of that actor."""
        return Path(self.folder) / f"rows-{actor}.jsonl"

    def _append(self, path: Path, facts: Mapping[str, Any]) -> None:
        """One system call for the line: a kill comes before or after it."""
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, json.dumps(facts).encode() + b"\n")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _lines(self, path: Path) -> list[dict[str, Any]]:
        return [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []
