"""What a simulation explores: the table at the beginning, concurrent jobs, and the possible faults."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from paimon_cli.datatypes.data_type import DataField
from paimon_cli.datatypes.field_types import parse_type
from paimon_cli.lab.simulation.paper_files import BucketRows
from paimon_cli.metadata.snapshot import Snapshot
from paimon_cli.metadata.table_layout import TableLayout
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.options.table_options import TableOptions

ROOT = "/warehouse/db.db/t"
PUT_IF_ABSENT, LOCK, UNSAFE = "put-if-absent", "lock", "unsafe"
"""What keeps two commits apart: the store's primitive, Paimon's lock in a database, or nothing but a check before the write."""

Rows = Mapping[int, str]
"""Key -> value of the live rows."""


@dataclass(frozen=True)
class Wanted:
    """The rows that a commit is to add; an overwrite replaces all others with them."""

    rows: BucketRows
    overwrites: bool = False

    @cached_property
    def signature(self) -> tuple[object, ...]:
        """Equal for equal wishes."""
        return (self.overwrites, *((bucket, *rows) for bucket, rows in self.rows.items()))

    def without(self, buckets: Collection[int]) -> Wanted:
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
    """A snapshot and what follows from its publication. Equal only to itself: it stands for the whole history up to it."""

    before: Published | None
    snapshot: Snapshot
    wanted: Wanted | None
    """What its commit was to add, if a job announced that."""
    rows: Rows = field(default_factory=dict)
    changes: Rows = field(default_factory=dict)
    """The rows that the changelogs of all snapshots up to this one replay to."""
    flushed: frozenset[tuple[int, str]] = frozenset()
    """Files that it added to level 0, with their buckets."""
    version_names: frozenset[str] = frozenset()
    """Files that a tag of it names."""
    names: frozenset[str] = frozenset()
    """These, and the files of its changelog."""
    mark: int = 0
    """A digest of all that it names."""
    violations: tuple[str, ...] = ()

    def history(self) -> list[Published]:
        """All snapshots up to this one, oldest first."""
        found = [self]
        while found[-1].before is not None:
            found.append(found[-1].before)
        return found[::-1]


@dataclass
class Memory:
    """The known past: snapshots, announced commits and how they ended."""

    published: dict[int, Published] = field(default_factory=dict)
    wanted: dict[tuple[str, int], Wanted] = field(default_factory=dict)
    ends: dict[tuple[str, int], str] = field(default_factory=dict)
    tries: dict[tuple[str, int], int] = field(default_factory=dict)
    """How many lives of actors tried each commit."""
    gone: int = 0
    """Snapshots up to this one have expired."""
    names: dict[int, frozenset[str]] = field(default_factory=dict)
    """Files that each snapshot names that has not expired."""
    increments: dict[int, int] = field(default_factory=dict)
    """How often a counter was raised, by key."""

    @property
    def newest(self) -> int:
        """The number of the newest snapshot, 0 if there is none."""
        return next(reversed(self.published), 0)

    def copy(self) -> Memory:
        return Memory(
            self.published.copy(),
            self.wanted.copy(),
            self.ends.copy(),
            self.tries.copy(),
            self.gone,
            self.names.copy(),
            self.increments.copy(),
        )


@dataclass(frozen=True)
class Scenario:
    """A scenario. `jobs[i]` is the job of actor i. `files_vanish`: there is an expiry, so reads of any file must be
    interleaved.
    """

    name: str
    jobs: tuple[Callable[[Any], None], ...]
    table_options: Mapping[str, str] = field(default_factory=dict)
    files_vanish: bool = False
    every_call_waits: bool = False
    """Without any reduction: what only the actor itself can notice is interleaved, too."""
    faults: tuple[str, ...] = ()
    most_faults: int = 0
    most_restarts: int = 0
    tolerates: frozenset[str] = frozenset()
    """Codes of violations that this scenario is known to have."""
    value_type: str = "STRING"
    has_key: bool = True
    """Whether `k` is the primary key; in an append table all rows stay that no one deletes."""
    partitioned: bool = False
    """Whether rows have a partition `p` that is no part of the key: the bucket that a job names."""
    real_files: bool = False
    """Data files are Parquet and not on paper."""
    beginning: Mapping[str, bytes] | None = None
    memory: Memory | None = None
    """What the oracle knows at the beginning."""
    store: str = PUT_IF_ABSENT
    first_name: int = 0
    """Makes the names of this scenario's actors different from those of the actors that set it up."""

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
    def options(self) -> TableOptions:
        return self.schema.typed_options

    @cached_property
    def files(self) -> Mapping[str, bytes]:
        if self.beginning is not None:
            return self.beginning
        return {self.layout.schema(0): self.schema.to_json().encode()}
