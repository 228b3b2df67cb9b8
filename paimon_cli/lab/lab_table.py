"""A small table in memory whose clock and names are the same in every run, and its writers and compactors."""

from __future__ import annotations

import functools
import json
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from string import ascii_uppercase
from typing import Any, TypeVar

import pyarrow as pa

from paimon_cli.bucket.merged_rows import read_bucket
from paimon_cli.bucket.stamped_files import new_stamp
from paimon_cli.catalog.definition_check import check_definition
from paimon_cli.catalog.option_values import check_option_values
from paimon_cli.catalog.table_definition import TableDefinition
from paimon_cli.commit.commit_messages import settle_files
from paimon_cli.commit.committer import Committer
from paimon_cli.commit.deduplication import CommitIdentity
from paimon_cli.commit.outcome import CommitResult
from paimon_cli.compact.bucket_compactor import run_compaction
from paimon_cli.datatypes.bucket_functions import bucket_of
from paimon_cli.datatypes.bucket_hash import hash_rows
from paimon_cli.datatypes.canonical_form import canonical_rows
from paimon_cli.datatypes.data_type import DataField
from paimon_cli.datatypes.field_types import parse_type
from paimon_cli.errors import Conflict, UsageError
from paimon_cli.history.live_files import bucket_files
from paimon_cli.history.table_context import Definition, TableContext
from paimon_cli.history.table_place import TablePlace
from paimon_cli.ingest.row_sources import FileRows
from paimon_cli.invariants.check import check_table
from paimon_cli.invariants.violation import Violation
from paimon_cli.jobs.compact_request import CompactRequest
from paimon_cli.jobs.engine import LocalEngine, NoProgress
from paimon_cli.jobs.round_plan import plan_compaction
from paimon_cli.jobs.table_change import write_files
from paimon_cli.jobs.write_request import WriteRequest, plan_write
from paimon_cli.lab.story import NarratedStorage, Story
from paimon_cli.maintain.named_files import changelog_entries, file_paths, metadata_paths
from paimon_cli.metadata.data_file import CommitMessage
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.metadata.table_layout import TableLayout
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.options.choices import ConflictCheck
from paimon_cli.options.merge_engines import MERGE_ENGINES
from paimon_cli.options.option_catalog import Operation
from paimon_cli.options.own_options import DATA_CONFLICT_CHECK
from paimon_cli.options.table_options import TYPED_OPTIONS
from paimon_cli.storage.memory_storage import MemoryStorage

A = TypeVar("A")
Row = Mapping[str, Any]
"""A row in canonical form."""

_BEGIN_MILLIS = 1_700_000_000_000


class LabClock:
    """A clock on which time passes only when an actor sleeps."""

    def __init__(self) -> None:
        self._now = _BEGIN_MILLIS

    def now_millis(self) -> int:
        return self._now

    def sleep(self, seconds: float) -> None:
        self._now += int(seconds * 1000)


class LabRandom:
    """UUIDs made from a counter; `number` distinguishes the actors."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._count = 0

    def uuid(self) -> str:
        self._count += 1
        return f"{self._number:04x}{self._count:04x}-0000-4000-8000-00000000{self._count:04x}"

    def jitter(self) -> float:
        return 0.5


@dataclass(frozen=True)
class LabSetting:
    """The user's choices for a case. `options` are table options, which override those of the case."""

    check: str = ConflictCheck.OFF
    seed: int | None = None
    writers: int = 2
    rounds: int = 1
    options: Mapping[str, str] = field(default_factory=dict)

    def ordered(self, actors: Sequence[A]) -> list[A]:
        """The actors in the order that the seed decides, or unchanged without a seed."""
        return list(actors) if self.seed is None else random.Random(self.seed).sample(actors, len(actors))


_IDLE = ("snapshot.", "tag.", "consumer.", "changelog.", "partition.expiration", "source.", "bucket", DATA_CONFLICT_CHECK)
"""Options without effect, as nothing expires or streams in a case, and options that the case itself sets."""
_READ_KEYS = {option.key for option in TYPED_OPTIONS.values()}


_LAST_WINS = {name for name, rules in MERGE_ENGINES.items() if rules.newest_wins or rules.missing_columns_stay}
"""Merge engines with which the values of the last commit win."""
_OTHER_ROWS_WIN = ("fields.", "sequence.field", "rowkind.", "record-level.", "ignore-")
"""Prefixes of options with which another row than that of the last commit may be right."""


def check_options(options: Mapping[str, str], wanted: Collection[str] = ()) -> None:
    """Raise `UsageError` for options that no write, merge, compaction or commit of a case reads, and for those with which its
    verdict would be wrong, because another row than that of the last commit may be right. `wanted`: the latter that fit the case.
    """
    for key, value in options.items():
        is_read = key in _READ_KEYS or key.startswith("fields.")
        if key.startswith(_IDLE) or not is_read:
            why = "a case uses only options that writes, merges, compactions and commits read, and sets its buckets itself"
            hint = "--data-conflict-check sets it" if key == DATA_CONFLICT_CHECK else "remove the option"
            raise UsageError(f"--option {key} is not supported here", why, hint)
        is_other_engine = key == "merge-engine" and value not in _LAST_WINS
        if (is_other_engine or key.startswith(_OTHER_ROWS_WIN)) and key not in wanted:
            why = "the verdict is that the last committed row must win, and with this option another row may be the right one"
            raise UsageError(f"--option {key}={value} is not supported here", why, "remove the option")
    check_option_values(options)


class LabTable:
    """A table of a case. `key` is its primary key, `partition` its partition key. The shipped router assigns rows to buckets.

    Raises the errors of a table that cannot be created or used, and `UsageError` for options with which no case can be judged.
    """

    def __init__(
        self,
        story: Story,
        setting: LabSetting,
        columns: Mapping[str, str],
        key: str,
        options: Mapping[str, str] | None = None,
        partition: str | None = None,
    ) -> None:
        self.story = story
        self._memory = MemoryStorage(f"lab/{story.case}/{id(story)}")
        self.clock = LabClock()
        self._actors = 0
        fields = tuple(DataField(i, name, parse_type(text)) for i, (name, text) in enumerate(columns.items()))
        own = {"bucket": "1", "file.format": "parquet", **(options or {})}
        settings = {**own, **setting.options, DATA_CONFLICT_CHECK: setting.check}
        partitions = () if partition is None else (partition,)
        self._schema = TableSchema(0, fields, len(fields) - 1, partitions, (*partitions, key), settings, None, _BEGIN_MILLIS)
        self._layout = TableLayout("memory://lab/table")
        self._memory.delete_directory(self._layout.root)  # a table of an earlier case that failed, and whose story had this id
        self._memory.put_if_absent(self._layout.schema(0), self._schema.to_json().encode())
        self._check(TableDefinition(fields, (*partitions, key), partitions, settings))

    def _check(self, definition: TableDefinition) -> None:
        check_definition(definition)
        for operation in (Operation.WRITE, Operation.COMPACT):
            self.context.check(operation)
        if self.context.mode.hides_level_0:
            why = "the verdict is about the rows that readers see after each commit, and here they wait for a compaction"
            hint = "add --option deletion-vectors.merge-on-read=true, or remove deletion-vectors.enabled"
            raise UsageError("these options are not supported here", why, hint)

    def enter(self, actor: str) -> tuple[TableContext, NarratedStorage]:
        """The table as a new actor sees it."""
        self._actors += 1
        storage = NarratedStorage(self._memory, self.story, actor, self.story.store)
        return replace(self.context, storage=storage, random=LabRandom(self._actors)), storage

    @functools.cached_property
    def context(self) -> TableContext:
        """The table as an observer sees it."""
        place, definition = TablePlace(self._layout.root, self._layout.root), Definition(self._schema, self._schema.typed_options)
        return TableContext(place, self._memory, definition, clock=self.clock, random=LabRandom(0), read_threads=1)

    def rows(self, snapshot: Snapshot | None = None, context: TableContext | None = None) -> list[dict[str, Any]]:
        """The rows that readers see at a snapshot, by default the latest, sorted by key."""
        reader = context or self.context
        names = reader.schema.field_names
        found: list[dict[str, Any]] = []
        if (shown := snapshot or reader.snapshots.latest()) is None:
            return found
        for bucket in bucket_files(reader, shown).values():
            for batch in read_bucket(reader, bucket, names):
                found += canonical_rows(batch, reader.schema.fields)
        return sorted(found, key=lambda row: json.dumps([row[name] for name in self._schema.primary_keys]))

    def keys_of_buckets(self) -> list[int]:
        """One key per bucket, for a table whose key is a single INT."""
        count = self.context.options.bucket
        hashes = hash_rows([pa.array(range(100 * count), pa.int32())], list(self.context.key_types))
        buckets = bucket_of(hashes, count).tolist()
        return [buckets.index(bucket) for bucket in range(count)]

    def orphans(self) -> set[str]:
        """Paths of data files and manifests that no snapshot references."""
        layout, named = self._layout, set[str]()
        for snapshot in self.context.snapshots.newest_first():
            named.update(metadata_paths(self.context, snapshot))
            for entry in (*self.context.manifests.live_entries(snapshot), *changelog_entries(self.context, snapshot)):
                named.update(file_paths(self.context, entry))
        directories = [s.path for s in self._memory.list_directory(layout.root) if s.name.startswith("bucket-")]
        found = {s.path for d in (*directories, layout.manifest_directory) for s in self._memory.list_directory(d)}
        return found - named

    def end(self) -> list[Violation]:
        """Record the rows that readers see and the violations found in the table; then drop the table."""
        found = list(check_table(self.context, rows=True))
        self.story.rows = [row_text(row) for row in self.rows()]
        self.story.violations = [self.story.named(f"{v.code} {v.severity}: {v.message}") for v in found]
        self._memory.delete_directory(self._layout.root)
        return found


def row_text(row: Row) -> str:
    return ", ".join(f"{name}={value}" for name, value in row.items())


def row_texts(rows: Sequence[Row]) -> str:
    return "; ".join(map(row_text, rows)) or "no rows"


class LabProcess:
    """One process that works on the table: it prepares files, then commits them."""

    def __init__(self, table: LabTable, name: str) -> None:
        self.name = name
        self._table = table
        self.context, self.storage = table.enter(name)
        self.messages: list[CommitMessage] = []
        self.attempts = 0

    def record(self, what: str, outcome: str = "", *, is_conflict: bool = False) -> None:
        self._table.story.record(self.name, what, outcome, is_conflict=is_conflict)

    def commit(self, kind: type[Committer] = Committer) -> bool:
        """Commit as the jobs do. Returns False after a conflict, which is recorded, and removes the files.

        If only the compaction conflicts, the rows are committed nevertheless, and it returns True.
        """
        committer = kind(self.context)
        result = CommitResult.of(lambda: committer.commit(self.messages, CommitIdentity(self.name)))
        settle_files(self.context, self.messages, result)
        if isinstance(conflict := result.failure, Conflict):
            if result.lost_compactions:
                self.record("committed its rows; the compaction that followed is lost", str(conflict), is_conflict=True)
                return True
            self.record(f"aborts, exit {conflict.exit_code} {conflict.code}", str(conflict), is_conflict=True)
            return False
        result.or_raise()
        self.attempts += result.attempts
        if result.attempts > len(result.snapshots):
            self.record("had to try again", f"{result.attempts} attempts; data files untouched, metadata rewritten")
        return True


class Writer(LabProcess):
    """Writes rows to level 0. `options`: replace those of the table for this writer."""

    def __init__(self, table: LabTable, name: str, options: Mapping[str, str] | None = None) -> None:
        super().__init__(table, name)
        if options:
            self.context = self.context.with_options(options)
        self.stalls = 0
        """How often its last write had to wait for a compaction before a bucket could take more rows."""
        self._read: Snapshot | None = None
        self._rows: list[dict[str, Any]] = []

    def read(self) -> None:
        """Read the latest snapshot, on which `change` is based."""
        self.storage.is_quiet = True
        self._read = self.context.snapshots.latest()
        self._rows = self._table.rows(self._read, self.context)
        self.storage.is_quiet = False
        self.record(f"reads snapshot {self._read.id if self._read else 0}", row_texts(self._rows))

    def prepare(self, rows: Sequence[Row], read_snapshot: int | None = None) -> None:
        """The write phase: write data files that no snapshot references yet."""
        source = f"memory://lab-input/{self.context.random.uuid()}.jsonl"
        inputs = MemoryStorage()
        inputs.overwrite(source, "".join(json.dumps(dict(row)) + "\n" for row in rows).encode())
        try:
            request = WriteRequest(FileRows((source,), "json"), read_snapshot=read_snapshot)
            written = write_files(plan_write(self.context, request), LocalEngine(), NoProgress())
        finally:
            inputs.delete(source)
        self.messages, self.stalls = written.messages, sum(bucket.stalls for bucket in written.buckets)
        files = [file for message in self.messages for file in message.append.added]
        numbers = ", ".join(f"{file.min_sequence_number} to {file.max_sequence_number}" for file in files)
        self.record(f"wrote {row_texts(rows)}", f"numbered {numbers}; no reader sees it yet")

    def change(self, key: str, value: Any, column: str, new_value: Callable[[Any], Any]) -> None:
        """The write phase of a read-modify-write: write the row as read, with one column changed; where missing columns stay,
        write only the key and that column.
        """
        row = next(row for row in self._rows if row[key] == value)
        kept = {key: value} if self.context.options.merge_engine.missing_columns_stay else row
        self.prepare([{**kept, column: new_value(row[column])}], self.read_id)

    @property
    def read_id(self) -> int:
        """The id of the snapshot that was read, 0 for an empty table."""
        return self._read.id if self._read else 0

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows that were read."""
        return self._rows

    def write(self, rows: Sequence[Row]) -> bool:
        self.prepare(rows)
        return self.commit()


def writers_of(table: LabTable, count: int) -> list[Writer]:
    """Writer A, writer B and so on."""
    return [Writer(table, f"writer {letter}") for letter in ascii_uppercase[:count]]


class Compactor(LabProcess):
    """Compacts every bucket to the top level."""

    def prepare(self) -> int:
        """Plan on the latest snapshot and write the merged files; returns the number of buckets to compact."""
        stamp = new_stamp(self.context)
        plan = plan_compaction(self.context, CompactRequest("full"), stamp)
        files = [file.file_name for task in plan.tasks for file in task.files]
        self.record(f"plans at snapshot {plan.snapshot_id}", f"merge {', '.join(files)}" if files else "nothing to compact")
        self.messages = LocalEngine().run_tasks(functools.partial(run_compaction, self.context), plan.tasks)
        return len(plan.tasks)

    def compact(self) -> bool:
        return self.prepare() == 0 or self.commit()
