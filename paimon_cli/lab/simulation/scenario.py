"""What a simulation explores: the initial table, concurrent jobs and possible faults."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from paimon_cli.datatypes.data_type import DataField
from paimon_cli.datatypes.field_types import parse_type
from paimon_cli.history.table_context import Definition
from paimon_cli.lab.simulation.json_files import BucketRows
from paimon_cli.lab.simulation.schedule import CRASH, REQUEST_FAULTS
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.metadata.table_layout import TableLayout
from paimon_cli.metadata.table_schema import TableSchema

ROOT = "s3://warehouse/db.db/t"
PUT_IF_ABSENT, LOCK, UNSAFE = "put-if-absent", "lock", "unsafe"
"""What makes commits atomic: the store's put-if-absent, Paimon's lock in a database, or nothing but a check before the write."""

Rows = Mapping[int, str]
"""Key -> value of the live rows."""


@dataclass(frozen=True)
class Announcement:
    """The rows that a job announced to commit; an overwrite replaces all others with them."""

    rows: BucketRows
    overwrites: bool = False

    @cached_property
    def signature(self) -> tuple[object, ...]:
        """Equal for equal announcements."""
        return (self.overwrites, *((bucket, *rows) for bucket, rows in self.rows.items()))

    def without(self, buckets: Collection[int]) -> Announcement:
        return replace(self, rows={bucket: rows for bucket, rows in self.rows.items() if bucket not in buckets})

    def applied_to(self, before: Rows) -> Rows:
        after = {} if self.overwrites else dict(before)
        for key, kind, value in (row for rows in self.rows.values() for row in rows):
            if kind & 1:
                after.pop(key, None)
            else:
                after[key] = value
        return after


@dataclass(eq=False)
class Published:
    """A published snapshot and what was derived from it. Equal only to itself: it represents the history up to it."""

    before: Published | None
    snapshot: Snapshot
    announced: Announcement | None
    """What its commit was to add, if a job announced it."""
    rows: Rows = field(default_factory=dict)
    changes: Rows = field(default_factory=dict)
    """The rows that result from replaying the changelogs of all snapshots up to this one."""
    flushed: frozenset[tuple[int, str]] = frozenset()
    """The buckets and names of the files that it added to level 0."""
    version_files: frozenset[str] = frozenset()
    """The files that it references without its changelog, which a tag of it keeps."""
    names: frozenset[str] = frozenset()
    """`version_files` and the files of its changelog."""
    mark: int = 0
    """A digest of all files that it references."""
    violations: tuple[str, ...] = ()

    def history(self) -> list[Published]:
        """All snapshots up to this one, oldest first."""
        found = [self]
        while found[-1].before is not None:
            found.append(found[-1].before)
        return found[::-1]


@dataclass
class Memory:
    """The past of a run: published snapshots, announced commits and their outcomes."""

    published: dict[int, Published] = field(default_factory=dict)
    announced: dict[tuple[str, int], Announcement] = field(default_factory=dict)
    ends: dict[tuple[str, int], str] = field(default_factory=dict)
    tries: dict[tuple[str, int], int] = field(default_factory=dict)
    """How many times each commit was started, counting restarts of the actor."""
    gone: int = 0
    """Snapshots up to this one have expired."""
    names: dict[int, frozenset[str]] = field(default_factory=dict)
    """The files that each unexpired snapshot references."""
    increments: dict[int, int] = field(default_factory=dict)
    """The number of acknowledged increments of each counter, by key."""

    @property
    def newest(self) -> int:
        """The number of the newest snapshot, 0 if there is none."""
        return next(reversed(self.published), 0)

    def copy(self) -> Memory:
        return Memory(
            self.published.copy(),
            self.announced.copy(),
            self.ends.copy(),
            self.tries.copy(),
            self.gone,
            self.names.copy(),
            self.increments.copy(),
        )


@dataclass(frozen=True)
class Scenario:
    """A scenario. `jobs[i]` is the job of actor i. `files_vanish`: some job deletes files, so every read must be interleaved."""

    name: str
    jobs: tuple[Callable[[Any], None], ...]
    table_options: Mapping[str, str] = field(default_factory=dict)
    files_vanish: bool = False
    every_call_waits: bool = False
    """Whether to interleave all calls, even those that no other actor can observe."""
    faults: tuple[str, ...] = ()
    max_faults: int = 0
    max_restarts: int = 0
    tolerates: frozenset[str] = frozenset()
    """Codes of the violations that are expected in this scenario."""
    value_type: str = "STRING"
    has_key: bool = True
    """Whether `k` is the primary key; otherwise it is an append table, which keeps all rows that are not deleted."""
    partitioned: bool = False
    """Whether the table is partitioned by `p`, which is not part of the key; its value is the bucket in the job's rows."""
    real_files: bool = False
    """Whether data files are real Parquet files instead of JSON files."""
    beginning: Mapping[str, bytes] | None = None
    memory: Memory | None = None
    """What the oracle knows at the beginning."""
    store: str = PUT_IF_ABSENT
    is_remote: bool = False
    """Whether the storage is an object store: every request may fail, and concurrent ones overlap."""
    first_name: int = 0
    """The first actor number in UUIDs; set-up jobs use another, so that their file names differ."""

    @property
    def private_faults(self) -> tuple[str, ...]:
        """The faults of calls that no other actor can observe."""
        return tuple(fault for fault in self.faults if fault == CRASH or fault in REQUEST_FAULTS)

    @cached_property
    def layout(self) -> TableLayout:
        return TableLayout(ROOT)

    @cached_property
    def schema(self) -> TableSchema:
        columns = {"k": "INT NOT NULL", "v": self.value_type, **({"p": "INT NOT NULL"} if self.partitioned else {})}
        fields = tuple(DataField(number, name, parse_type(text)) for number, (name, text) in enumerate(columns.items()))
        options = {"bucket": "2", "file.format": "parquet", **self.table_options}
        return TableSchema(0, fields, len(fields) - 1, ("p",) * self.partitioned, ("k",) * self.has_key, options, None, 0)

    @cached_property
    def definition(self) -> Definition:
        return Definition(self.schema, self.schema.typed_options)

    @cached_property
    def files(self) -> Mapping[str, bytes]:
        if self.beginning is not None:
            return self.beginning
        return {self.layout.schema(0): self.schema.to_json().encode()}
