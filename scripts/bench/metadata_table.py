"""Creates a primary-key table of many snapshots and data files, to measure work on metadata. The data files are empty.

    python scripts/bench/metadata_table.py FOLDER --snapshots 10000 --files 10

Each commit adds FILES files, one per bucket, and deletes those of the commit LIVE commits earlier, as compactions would.
"""

from __future__ import annotations

import argparse
import sys
import time
import uuid
from collections import deque
from dataclasses import replace
from pathlib import Path

from paimon_cli.datatypes.binary_row import serialize_row
from paimon_cli.datatypes.data_type import DataField
from paimon_cli.datatypes.field_types import parse_type
from paimon_cli.metadata.data_file import EMPTY_ROW, DataFileMeta, EntryKind, ManifestEntry, ManifestFileMeta, SimpleStats
from paimon_cli.metadata.manifests import encode_manifest_list, encode_manifests
from paimon_cli.metadata.snapshot import APPEND, OVERWRITE, Snapshot
from paimon_cli.metadata.table_layout import TableLayout
from paimon_cli.metadata.table_schema import TableSchema

INT = parse_type("INT NOT NULL")
ROWS = 1000
MERGED_AT = 30
HOUR_MILLIS = 3_600_000


class MetadataTable:
    """Writes the files of a table, commit by commit, without waiting for the disk."""

    def __init__(self, folder: Path, files: int, live_commits: int, now_millis: int) -> None:
        self._layout = TableLayout(str(folder))
        self._files = files
        self._live_commits = live_commits
        self._now = now_millis
        self._commits: deque[list[ManifestEntry]] = deque()
        self._base: list[ManifestFileMeta] = []
        self._total = 0
        fields = (DataField(0, "k", INT), DataField(1, "v", parse_type("STRING")))
        options = {"bucket": str(files), "file.format": "parquet"}
        schema = TableSchema(0, fields, 1, (), ("k",), options, None, now_millis)
        for bucket in range(files):
            (folder / f"bucket-{bucket}").mkdir(parents=True)
        for name in ("schema", "snapshot", "manifest"):
            (folder / name).mkdir()
        self._write(self._layout.schema(0), schema.to_json().encode())

    def commit(self, number: int) -> None:
        """Write snapshot `number`, whose time is an hour after that of its predecessor."""
        stamp = uuid.UUID(int=number)
        added = [self._entry(bucket, f"data-{stamp}-{bucket}.parquet") for bucket in range(self._files)]
        self._commits.append(added)
        gone = self._commits.popleft() if len(self._commits) > self._live_commits else []
        delta = self._manifest(f"manifest-{stamp}-0", [replace(entry, kind=EntryKind.DELETE) for entry in gone] + added)
        if len(self._base) >= MERGED_AT:
            live = [entry for entries in list(self._commits)[:-1] for entry in entries] + gone
            self._base = [self._manifest(f"manifest-{stamp}-1", live)]
        base_name, delta_name = f"manifest-list-{stamp}-0", f"manifest-list-{stamp}-1"
        base_size, delta_size = self._list(base_name, self._base), self._list(delta_name, [delta])
        self._total += ROWS * (len(added) - len(gone))
        snapshot = Snapshot(
            number, 0, base_name, delta_name, "bench", number, OVERWRITE if gone else APPEND, self._now + number * HOUR_MILLIS,
            self._total, ROWS * (len(added) - len(gone)), base_size, delta_size,
        )  # fmt: skip
        self._write(self._layout.snapshot(number), snapshot.to_json().encode())
        self._base = [*self._base, delta]

    def finish(self, newest: int) -> None:
        self._write(self._layout.latest_hint, str(newest).encode())

    def _entry(self, bucket: int, name: str) -> ManifestEntry:
        low, high = serialize_row([0], [INT]), serialize_row([ROWS], [INT])
        stats = SimpleStats(low, high, (0,))
        file = DataFileMeta(name, 0, ROWS, low, high, stats, SimpleStats(), 0, ROWS - 1, 0, 0, (), self._now, 0, None, 0)
        self._write(self._layout.data_file("", bucket, name), b"")
        return ManifestEntry(EntryKind.ADD, EMPTY_ROW, bucket, self._files, file)

    def _manifest(self, name: str, entries: list[ManifestEntry]) -> ManifestFileMeta:
        ((content, _),) = encode_manifests(entries, sys.maxsize)
        self._write(self._layout.manifest(name), content)
        added = sum(entry.kind == EntryKind.ADD for entry in entries)
        return ManifestFileMeta(name, len(content), added, len(entries) - added, SimpleStats(), 0, 0, self._files - 1, 0, 0)

    def _list(self, name: str, manifests: list[ManifestFileMeta]) -> int:
        content = encode_manifest_list(manifests)
        self._write(self._layout.manifest(name), content)
        return len(content)

    @staticmethod
    def _write(path: str, content: bytes) -> None:
        Path(path).write_bytes(content)


def generate(folder: Path, snapshots: int, files: int = 10, live_commits: int = 100) -> None:
    """Create the table in `folder`, which must not exist. The time of its newest snapshot is now."""
    table = MetadataTable(folder, files, live_commits, time.time_ns() // 1_000_000 - snapshots * HOUR_MILLIS)
    for number in range(1, snapshots + 1):
        table.commit(number)
    table.finish(snapshots)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--snapshots", type=int, default=10_000)
    parser.add_argument("--files", type=int, default=10, help="files that each commit adds")
    parser.add_argument("--live", type=int, default=100, help="commits whose files are live")
    arguments = parser.parse_args()
    generate(arguments.folder, arguments.snapshots, arguments.files, arguments.live)


if __name__ == "__main__":
    main()
