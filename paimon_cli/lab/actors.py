"""Writers and compactors of a case: the shipped jobs, cut where another actor may come in between."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from string import ascii_uppercase
from typing import Any

from paimon_cli.commit.abort import removed_on_refusal
from paimon_cli.commit.committer import Committer
from paimon_cli.commit.identity import CommitIdentity
from paimon_cli.compact.bucket_compactor import run_compaction
from paimon_cli.errors import Conflict
from paimon_cli.jobs.compact_job import CompactRequest, plan_compaction
from paimon_cli.jobs.local_engine import LocalEngine
from paimon_cli.jobs.progress import NoProgress
from paimon_cli.jobs.write_job import WriteRequest, plan_write, write_files
from paimon_cli.lab.lab_table import LabTable, Row, row_texts
from paimon_cli.metadata.commit_message import CommitMessage
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.storage.memory_storage import MemoryStorage


class Actor:
    """One process at the table: prepares, then commits what it prepared."""

    def __init__(self, table: LabTable, name: str) -> None:
        self.name = name
        self._table = table
        self.context, self.storage = table.enter(name)
        self.messages: list[CommitMessage] = []
        self.attempts = 0

    def tell(self, what: str, outcome: str = "") -> None:
        self._table.story.tell(self.name, what, outcome)

    def commit(self) -> bool:
        """Commit as the jobs do; False after a conflict, which is told, and which leaves no file of ours. If only the compaction
        behind the rows contradicts another one, the rows are committed all the same."""
        try:
            with removed_on_refusal(self.context, self.messages):
                result = Committer(self.context).commit(self.messages, CommitIdentity(self.name))
        except Conflict as conflict:
            if conflict.details.get("published_snapshots"):
                self.tell("committed its rows; the compaction behind them is lost", str(conflict))
                return True
            self.tell(f"aborts, exit {conflict.exit_code} {conflict.code}", str(conflict))
            return False
        self.attempts += result.attempts
        if result.attempts > len(result.snapshots):
            self.tell("had to try again", f"{result.attempts} attempts; data files untouched, metadata written anew")
        return True


class Writer(Actor):
    """Writes rows to level 0."""

    def __init__(self, table: LabTable, name: str) -> None:
        super().__init__(table, name)
        self._read: Snapshot | None = None
        self._rows: list[dict[str, Any]] = []

    def read(self) -> None:
        """Read the latest snapshot; what `change` writes is made from it."""
        self.storage.is_quiet = True
        self._read = self.context.snapshots.latest()
        self._rows = self._table.rows(self._read, self.context)
        self.storage.is_quiet = False
        self.tell(f"reads snapshot {self._read.id if self._read else 0}", row_texts(self._rows))

    def prepare(self, rows: Sequence[Row], read_snapshot: int | None = None) -> None:
        """The write phase: data files that no snapshot names yet."""
        source = f"memory://lab-input/{self.context.names.uuid()}.jsonl"
        inputs = MemoryStorage()
        inputs.overwrite(source, "".join(json.dumps(dict(row)) + "\n" for row in rows).encode())
        try:
            request = WriteRequest((source,), "json", read_snapshot=read_snapshot)
            self.messages = write_files(plan_write(self.context, request), LocalEngine(), NoProgress()).messages
        finally:
            inputs.delete(source)
        files = [file for message in self.messages for file in message.new_files]
        numbers = ", ".join(f"{file.min_sequence_number} to {file.max_sequence_number}" for file in files)
        self.tell(f"wrote {row_texts(rows)}", f"numbered {numbers}; nobody can see it yet")

    def change(self, key: str, value: Any, column: str, new_value: Callable[[Any], Any]) -> None:
        """The write phase of a read-modify-write: the row as it was read, with one column changed; partial-update needs no more
        than that column."""
        row = next(row for row in self._rows if row[key] == value)
        kept = {key: value} if self.context.options.merge_engine == "partial-update" else row
        self.prepare([{**kept, column: new_value(row[column])}], self.read_id)

    @property
    def read_id(self) -> int:
        """The snapshot that was read, 0 for the empty table."""
        return self._read.id if self._read else 0

    @property
    def rows(self) -> list[dict[str, Any]]:
        """What was read."""
        return self._rows

    def write(self, rows: Sequence[Row]) -> bool:
        self.prepare(rows)
        return self.commit()


def writers_of(table: LabTable, count: int) -> list[Writer]:
    """Writer A, writer B and so on."""
    return [Writer(table, f"writer {letter}") for letter in ascii_uppercase[:count]]


class Compactor(Actor):
    """Merges every bucket to the top level."""

    def prepare(self) -> int:
        """Plan at the latest snapshot and write the merged files; how many buckets there were to compact."""
        stamp = self.context.names.uuid().replace("-", "")[:16]
        plan = plan_compaction(self.context, CompactRequest("full"), stamp)
        files = [file.file_name for task in plan.tasks for file in task.files]
        self.tell(f"plans at snapshot {plan.snapshot_id}", f"merge {', '.join(files)}" if files else "nothing to compact")
        self.messages = LocalEngine().run_tasks(functools.partial(run_compaction, self.context), plan.tasks)
        return len(plan.tasks)

    def compact(self) -> bool:
        return self.prepare() == 0 or self.commit()
