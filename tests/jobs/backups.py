"""Backups for tests: how one is made, stores that die or count, and whether a copy has what its table has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, BinaryIO

from paimon_cli.history.table_context import TableContext
from paimon_cli.invariants.check import check_table
from paimon_cli.jobs.backup_job import BackupSummary, Destination, run_backup
from paimon_cli.jobs.engine import Engine, LocalEngine, NoProgress
from paimon_cli.metadata.table_layout import MAIN_BRANCH
from paimon_cli.requests.backup import BackupOptions
from paimon_cli.storage.capabilities import WrappedStorage
from paimon_cli.storage.confined_storage import ConfinedStorage
from paimon_cli.storage.storage import Storage
from tests.tables import rows


class Killed(BaseException):
    """The process is gone."""


class Recording(WrappedStorage):
    """Counts calls, and the bytes that are written; `at` is called before each."""

    def __init__(self, inner: Storage, at: Callable[[str, str], None] = lambda call, path: None) -> None:
        super().__init__(inner)
        self.calls: Counter[tuple[str, str]] = Counter()
        self.at = at

    def before(self, call: str, path: str) -> None:
        self.calls[call, path] += 1
        self.at(call, path)

    def overlapping_writes(self) -> AbstractContextManager[None]:
        return nullcontext()

    def settle(self) -> None:
        """Nothing is written in the background."""

    def lists(self) -> Counter[str]:
        return Counter({path: count for (call, path), count in self.calls.items() if call == "list_directory"})


WRITES = ("open_output", "put_if_absent", "overwrite", "delete")


class Dying(Recording):
    """Dies at its n-th change; a file that is written then is there in part."""

    def __init__(self, inner: Storage, at_change: int) -> None:
        super().__init__(inner, self._count)
        self.left = at_change

    def _count(self, call: str, path: str) -> None:
        self.left -= call in WRITES
        if self.left < 0 and call in WRITES:
            raise Killed

    def open_output(self, path: str) -> BinaryIO:
        if self.left == 0:
            with self.inner.open_output(path) as beginning:
                beginning.write(b"PAR1")
        return super().open_output(path)


def backup(
    table: TableContext, copy: Path, storage: Storage | None = None, engine: Engine | None = None, **options: Any
) -> BackupSummary:
    there = Destination(storage or ConfinedStorage(str(copy)), str(copy), str(copy))
    return run_backup(table, there, BackupOptions(**options), engine or LocalEngine(), NoProgress())


def opened(copy: Path) -> TableContext:
    return TableContext.open(str(copy))


def branches_of(table: TableContext) -> list[TableContext]:
    return [table.at_branch(name) for name in (MAIN_BRANCH, *table.branches.names())]


def check_same(table: TableContext, copy: TableContext, *, is_whole: bool = True) -> None:
    """All snapshots and tags of all branches have the same rows, and the copy has no fault. `is_whole`: nothing else is there."""
    assert not is_whole or {b.branch for b in branches_of(table)} == {b.branch for b in branches_of(copy)}
    for branch in branches_of(table):
        other = copy.at_branch(branch.branch)
        numbers = branch.snapshots.ids()
        assert other.snapshots.ids() == numbers if is_whole else set(numbers) <= set(other.snapshots.ids())
        for number in numbers:
            assert rows(other, snapshot_id=number) == rows(branch, snapshot_id=number)
        tags = branch.tags.all()
        assert {name: tag for name, tag in other.tags.all().items() if is_whole or name in tags} == tags
        assert other.schemas.ids() == branch.schemas.ids()
        check_whole(other)


def check_whole(copy: TableContext) -> None:
    assert not list(check_table(copy, rows=True))
    for name in copy.tags.names():
        copy.manifests.live_entries(copy.tags.get(name).snapshot)
