"""A table whose storage can be reset to a saved state, and the actors that work on it: all runs are repeatable."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from paimon_cli.datatypes.data_type import DataField
from paimon_cli.datatypes.field_types import parse_type
from paimon_cli.history.table_context import TableContext
from paimon_cli.ingest.row_sources import FileRows
from paimon_cli.jobs.compact_job import run_compact
from paimon_cli.jobs.compact_request import CompactRequest
from paimon_cli.jobs.compact_summary import CompactSummary
from paimon_cli.jobs.engine import LocalEngine, NoProgress
from paimon_cli.jobs.write_job import WriteSummary, run_write
from paimon_cli.jobs.write_request import WriteRequest
from paimon_cli.metadata.table_layout import MAIN_BRANCH, TableLayout
from paimon_cli.metadata.table_schema import TableSchema
from paimon_cli.storage.storage import Storage
from tests.commit.commit_tables import SteppingClock
from tests.tables import rows as read_rows

Rows = dict[int, str]
"""What a table holds: `v` by `k`."""

Image = dict[str, bytes]
"""All files by path."""

HEALTHY = 90
"""Lives from this number on belong to actors that meet no faults."""


def table_schema(partitioned: bool, options: Mapping[str, str], keyed: bool = True, moving: bool = False) -> TableSchema:
    """(k, v), or (p, k, v) with p = k % 2 as the partition; two buckets. `keyed`: k is the primary key, with p unless the table
    is `moving`, where p depends on v.
    """
    columns = {"p": "INT NOT NULL"} if partitioned else {}
    columns |= {"k": "INT NOT NULL", "v": "STRING"}
    fields = tuple(DataField(i, name, parse_type(text)) for i, (name, text) in enumerate(columns.items()))
    keys = ("p",) if partitioned else ()
    primary = ("k",) if moving else (*keys, "k")
    options = {"bucket": "2", "file.format": "parquet", "commit.min-retry-wait": "1 ms", **options}
    return TableSchema(0, fields, len(fields) - 1, keys, primary if keyed else (), options, None, 0)


class Bench:
    """One table on `inner`, at `root` below `base`; input files are kept in `folder`."""

    def __init__(self, inner: Storage, base: str, folder: Path) -> None:
        self.inner = inner
        self.base = base
        self.root = f"{base}/t"
        self._folder = folder
        self.lives = HEALTHY

    @property
    def layout(self) -> TableLayout:
        return TableLayout(self.root)

    def healthy(self) -> Actor:
        self.lives += 1
        return Actor(self, self.inner, self.lives)

    def make_table(
        self, partitioned: bool = False, options: Mapping[str, str] | None = None, keyed: bool = True, moving: bool = False
    ) -> None:
        path = self.layout.schema(0)
        self.inner.write_new(path, table_schema(partitioned, options or {}, keyed, moving).to_json().encode())

    def source(self, rows: Mapping[int, str | None], partitioned: bool, moving: bool = False) -> str:
        """A file with an upsert of each row, a delete where the value is None."""
        found = [
            {"p": len(v or "") % 2 if moving else k % 2, "k": k, "v": v, "_op": "-D" if v is None else "+I"}
            for k, v in rows.items()
        ]
        text = "".join(json.dumps({name: row[name] for name in row if partitioned or name != "p"}) + "\n" for row in found)
        path = self._folder / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.jsonl"
        if not path.exists():
            path.write_text(text)
        return str(path)

    def save(self) -> Image:
        return {path: self.inner.read_bytes(path) for path in self._paths(self.base)}

    def load(self, image: Image, lives: int = HEALTHY) -> None:
        """Reset everything. `lives`: the number of healthy actors that the image has seen."""
        self.lives = lives
        self.inner.delete_directory(self.base)
        for path, data in image.items():
            self.inner.write_new(path, data)

    def paths(self) -> set[str]:
        """All files of the table."""
        return set(self._paths(self.root))

    def _paths(self, directory: str) -> Iterator[str]:
        for entry in self.inner.list_directory(directory):
            if entry.is_directory:
                yield from self._paths(entry.path)
            else:
                yield entry.path


@dataclass
class Actor:
    """A process: its own storage, a clock that only its own sleeps move, and names that contain its number (`life`)."""

    bench: Bench
    storage: Storage
    life: int

    def __post_init__(self) -> None:
        self.clock = SteppingClock(1_700_000_000_000 + self.life)
        self.random = CountedRandom(self.life)

    def context(self, options: Mapping[str, str] | None = None, branch: str = MAIN_BRANCH) -> TableContext:
        """One thread, so that calls come in the same order each time."""
        opened = TableContext.open(
            self.bench.root, options, storage=self.storage, clock=self.clock, random=self.random, branch=branch
        )
        return replace(opened, read_threads=1)

    def write(
        self,
        rows: Mapping[int, str | None],
        options: Mapping[str, str] | None = None,
        branch: str = MAIN_BRANCH,
        **request: Any,
    ) -> WriteSummary:
        context = self.context(options, branch)
        source = self.bench.source(rows, bool(context.schema.partition_keys), context.schema.has_movable_rows)
        asked = WriteRequest(FileRows((source,), "json"), op_column="_op", **request)
        return run_write(context, asked, LocalEngine(), NoProgress())

    def compact(self, branch: str = MAIN_BRANCH, **request: Any) -> CompactSummary:
        return run_compact(self.context(branch=branch), CompactRequest(**request), LocalEngine(), NoProgress())

    def rows(self, snapshot_id: int | None = None, *, level_0: bool = False) -> Rows:
        """The rows that readers see; with `level_0`, also those that they see only after a compaction.

        A repeated key is in it twice.
        """
        context = self.context().with_level_0() if level_0 else self.context()
        found: Rows = {}
        for row in read_rows(context, ("k", "v"), snapshot_id):
            found[row["k"]] = f"{found[row['k']]} and {row['v']}" if row["k"] in found else row["v"]
        return found


class CountedRandom:
    """UUIDs that show which actor made them, and when."""

    def __init__(self, life: int) -> None:
        self._life = life
        self._count = 0

    def uuid(self) -> str:
        self._count += 1
        return f"{self._life:08x}-{self._count:04x}-4000-8000-{self._life:06x}{self._count:06x}"

    def jitter(self) -> float:
        return 0.5


def digest(image: Image) -> str:
    """A digest that is equal for equal images."""
    whole = hashlib.blake2b(digest_size=16)
    for path, data in sorted(image.items()):
        whole.update(f"{path}\0{len(data)}\0".encode() + data)
    return whole.hexdigest()
