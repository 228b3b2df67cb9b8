"""Tables in whose past pypaimon does what `history check` tells. Run by pypaimon's own Python: `pypaimon_side.py FOLDER`.

It makes FOLDER/KIND for each kind, with pypaimon's own writers and commits, and prints a line per table. What needs a compaction
or an expiry, which pypaimon does not have, is not among the kinds.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pypaimon import CatalogFactory, Schema
from pypaimon.filesystem.local_file_io import LocalFileIO
from pypaimon.schema.schema_change import SchemaChange
from pypaimon.table.file_store_table import FileStoreTable

HOUR = 3600
COLUMNS = pa.schema([pa.field("id", pa.int32(), nullable=False), ("v", pa.string())])
Rows = list[tuple[Any, ...]]
SCENARIOS: dict[str, Callable[[Path], None]] = {}


def plants(name: str) -> Callable[[Callable[[Path], None]], Callable[[Path], None]]:
    def register(scenario: Callable[[Path], None]) -> Callable[[Path], None]:
        SCENARIOS[name] = scenario
        return scenario

    return register


def create(path: Path, options: dict[str, str]) -> FileStoreTable:
    home = path.with_name(path.name + ".warehouse")
    catalog = CatalogFactory.create({"warehouse": str(home)})
    catalog.create_database("db", True)
    schema = Schema.from_pyarrow_schema(COLUMNS, primary_keys=["id"], options=options)
    catalog.create_table("db.t", schema, False)
    shutil.move(home / "db.db" / "t", path)
    shutil.rmtree(home)
    return FileStoreTable.from_path(str(path))


def opened(table: FileStoreTable) -> FileStoreTable:
    return FileStoreTable.from_path(str(table.table_path))


class Job:
    """A job: a writer that reads the newest version when it writes its first row, and commits when it is told to."""

    def __init__(self, table: FileStoreTable, user: str) -> None:
        self.table = opened(table)
        builder = self.table.new_stream_write_builder()
        builder.commit_user = user
        self.writer, self.committer = builder.new_write(), builder.new_commit()

    def prepare(self, rows: Rows, identifier: int) -> list[Any]:
        cells = [pa.array(list(values), field.type) for values, field in zip(zip(*rows, strict=True), COLUMNS, strict=True)]
        self.writer.write_arrow(pa.Table.from_arrays(cells, schema=COLUMNS))
        messages: list[Any] = self.writer.prepare_commit(identifier)
        return messages

    def commit(self, messages: list[Any], identifier: int) -> None:
        self.committer.commit(messages, identifier)


def write(table: FileStoreTable, user: str, identifier: int, rows: Rows) -> None:
    job = Job(table, user)
    job.commit(job.prepare(rows, identifier), identifier)


def many(start: int, end: int, value: str) -> Rows:
    return [(number, value) for number in range(start, end)]


def beside(table: FileStoreTable, first: Rows, second: Rows) -> None:
    """Two jobs that begin from one version: `first` is committed before `second`."""
    one, other = Job(table, "job-a"), Job(table, "job-b")
    late = other.prepare(second, 1)
    one.commit(one.prepare(first, 1), 1)
    other.commit(late, 1)


def filled(path: Path) -> FileStoreTable:
    table = create(path, {"bucket": "1"})
    write(table, "job-a", 0, many(0, 10, "old"))
    return table


@plants("none")
def nothing(path: Path) -> None:
    table = create(path, {"bucket": "2"})
    for number in range(4):
        write(table, "job-a", number, many(number, 10, f"v{number}"))
        write(table, "job-b", number, many(0, 3, f"w{number}"))


@plants("lost-update")
def lost_update(path: Path) -> None:
    beside(filled(path), [(7, "a")], [(7, "b")])


@plants("writers-beside-each-other")
def writers_beside(path: Path) -> None:
    beside(filled(path), [(2, "a")], [(7, "b")])


@plants("merge-disorder")
def merge_disorder(path: Path) -> None:
    beside(filled(path), many(0, 9, "a"), [(7, "b")])


@plants("row-came-back")
def row_came_back(path: Path) -> None:
    table = create(path, {"bucket": "1", "rowkind.field": "v"})
    write(table, "job-a", 0, many(0, 10, "+I"))
    beside(table, [(7, "-D")], many(5, 9, "+I"))


@plants("repeated-commit")
def repeated_commit(path: Path) -> None:
    table = filled(path)
    for _ in range(2):
        write(table, "job-b", 7, many(3, 6, "again"))


@plants("key-in-two-places")
def key_in_two_places(path: Path) -> None:
    """Two assigners that do not know of each other's keys."""
    table = create(path, {"bucket": "-1", "dynamic-bucket.target-row-num": "2"})
    one, other = Job(table, "job-a"), Job(table, "job-b")
    messages = [one.prepare([(1, "a"), (2, "a"), (3, "a")], 1), other.prepare([(3, "b"), (4, "b")], 1)]
    one.commit(messages[0], 1)
    other.commit(messages[1], 1)


@plants("bucket-counts-mixed")
def bucket_counts_mixed(path: Path) -> None:
    table = create(path, {"bucket": "1"})
    write(table, "job-a", 0, many(0, 10, "old"))
    table.schema_manager.commit_changes([SchemaChange.set_option("bucket", "2")])
    write(table, "job-b", 1, many(0, 10, "new"))


@plants("shared-file")
def shared_file(path: Path) -> None:
    """A batch of files is committed twice."""
    table = filled(path)
    job = Job(table, "job-b")
    messages = job.prepare(many(3, 6, "v"), 1)
    job.commit(messages, 1)
    job.commit(messages, 2)


@plants("snapshot-overwritten")
def snapshot_overwritten(path: Path) -> None:
    """A rename replaces what is there, and another job publishes between the look and the rename."""
    table = filled(path)
    late, publish = Job(table, "job-b"), LocalFileIO.try_to_write_atomic
    messages = late.prepare([(4, "b")], 1)

    def replacing(self: LocalFileIO, at: str, content: str) -> bool:
        if not at.endswith("snapshot-2"):
            return bool(publish(self, at, content))
        LocalFileIO.try_to_write_atomic = publish
        write(table, "job-a", 1, [(3, "a")])
        Path(at.removeprefix("file:")).write_text(content)
        return True

    LocalFileIO.try_to_write_atomic = replacing
    try:
        late.commit(messages, 1)
    finally:
        LocalFileIO.try_to_write_atomic = publish


@plants("clock-ran-back")
def clock_ran_back(path: Path) -> None:
    table, now = filled(path), time.time
    time.time = lambda: now() - HOUR
    try:
        write(table, "job-b", 1, [(4, "b")])
    finally:
        time.time = now


def main() -> None:
    folder = Path(sys.argv[1]).resolve()
    for name, scenario in SCENARIOS.items():
        try:
            scenario(folder / name)
            result = "planted"
        except Exception as refusal:
            result = f"refused: {type(refusal).__name__}: {refusal}".replace("\n", " ")
        print(f"{name}\t{result}", flush=True)


if __name__ == "__main__":
    main()
