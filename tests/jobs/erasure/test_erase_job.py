"""An erasure that dies between any two steps, and other jobs that commit beside it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from paimon_cli.api.table import Table
from paimon_cli.bucket.merged_rows import read_bucket
from paimon_cli.history.live_files import bucket_files
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.engine import LocalEngine, NoProgress
from paimon_cli.jobs.erasure import erase_job
from paimon_cli.jobs.erasure.erase_job import EraseRequest, Erasure
from paimon_cli.jobs.erasure.erase_table import EraseSummary, TableErasure
from paimon_cli.jobs.erasure.erased_rows import ErasedKeys
from paimon_cli.jobs.erasure.file_rewrite import Histories, RewriteTask, RewrittenFile
from paimon_cli.jobs.erasure.inventory import Inventory
from paimon_cli.jobs.service.leases import Leases
from paimon_cli.jobs.verify_job import VerifyRequest, run_verify
from paimon_cli.maintain.tags import create_tag
from paimon_cli.pieces import PIECES
from paimon_cli.storage.capabilities import WrappedStorage
from paimon_cli.storage.injected import SystemClock
from paimon_cli.storage.memory_storage import MemoryStorage
from paimon_cli.storage.storage import Storage
from tests.jobs.erasure.plain_scan import texts_in
from tests.jobs.erasure.test_erase_table import CONDITION, GONE, KEYED, PLAIN, States, check, is_kept, row
from tests.jobs.test_spark_backup import Twice
from tests.nightly import at_night
from tests.rivals import Meddler
from tests.tables import Row, compact, make_table, rows, write

CHANGES = {"open_output", "write_new", "put_if_absent", "overwrite", "delete", "delete_directory"}


class Died(BaseException):
    """The process is gone."""


class Mortal(WrappedStorage):
    """Dies before one of the calls that change something, counted from 0, and before all later ones."""

    def __init__(self, inner: Storage, at: int = 10**9) -> None:
        super().__init__(inner)
        self.at, self.changes = at, 0

    def before(self, call: str, path: str) -> None:
        if call in CHANGES:
            if self.changes >= self.at:
                raise Died
            self.changes += 1


@dataclass(frozen=True)
class FastClock(SystemClock):
    """A clock on which a wait takes no time."""

    waited: list[float] = field(default_factory=list)

    def now_millis(self) -> int:
        return super().now_millis() + int(1000 * sum(self.waited))

    def sleep(self, seconds: float) -> None:
        self.waited.append(seconds)


@dataclass
class Copies:
    """Copies of a table in memory."""

    root: str
    files: dict[str, bytes]

    @staticmethod
    def of(context: TableContext) -> Copies:
        root = context.url
        return Copies(root, {str(path): path.read_bytes() for path in Path(root).rglob("*") if path.is_file()})

    def new(self, space: str) -> MemoryStorage:
        storage = MemoryStorage(space)
        storage.delete_directory(self.root)
        for path, content in self.files.items():
            storage.overwrite(path, content)
        return storage

    def stored(self, storage: MemoryStorage) -> Iterator[tuple[str, bytes]]:
        waiting = [self.root]
        while waiting:
            for status in storage.list_directory(waiting.pop()):
                if status.is_directory:
                    waiting.append(status.path)
                else:
                    yield status.path.removeprefix(self.root), storage.read_bytes(status.path)


def opened(root: str, storage: Storage) -> TableContext:
    return replace(TableContext.open(root, storage=storage, clock=FastClock()), read_threads=1)


def erased(context: TableContext, where: str = CONDITION) -> EraseSummary:
    job = TableErasure(Erasure(context, EraseRequest(where), LocalEngine(), NoProgress()), False, context.clock.now_millis() + 1)
    job.plan()
    return job.run()


def states(root: str, storage: Storage) -> dict[str, list[Row]]:
    """The rows of every snapshot and tag of every branch."""
    found, main = {}, opened(root, storage)
    for name in ("main", *main.branches.names()):
        branch = TableContext.open(root, storage=storage, branch=name)
        for number in branch.snapshots.ids():
            found[f"{name} {number}"] = rows(branch, snapshot_id=number)
        for tag, of in branch.tags.all().items():
            buckets = bucket_files(branch, of.snapshot).values()
            names = branch.schema.field_names
            batches = [batch for bucket in buckets for batch in read_bucket(branch, bucket, names)]
            found[f"{name} {tag}"] = sorted((one for batch in batches for one in batch.to_pylist()), key=json.dumps)
    return found


def is_between(now: dict[str, list[Row]], before: dict[str, list[Row]]) -> bool:
    """Whether each version has its rows, or those of them that are kept."""
    return all(now[name] in (found, [one for one in found if is_kept(one)]) for name, found in before.items())


@pytest.mark.in_part(2)
@pytest.mark.parametrize("every", [97, at_night(1)])
@pytest.mark.parametrize("kind", ["partitions, a tag and a branch", "vectors and Bloom filters", "dynamic buckets", "changelogs"])
def test_it_may_die_at_any_step(kind: str, every: int, tmp_path: Path) -> None:
    context = KEYED[kind](tmp_path / "t")
    copies = Copies.of(context)
    storage = copies.new(str(tmp_path))
    before = states(context.url, storage)
    whole = Mortal(storage)
    assert erased(opened(context.url, whole)).found == () and whole.changes > 20
    expected = {name: [one for one in found if is_kept(one)] for name, found in before.items()}
    for at in range(0, whole.changes, every):
        storage = copies.new(str(tmp_path))
        with pytest.raises(Died):
            erased(opened(context.url, Mortal(storage, at)))
        assert is_between(states(context.url, storage), before), at
        done = erased(opened(context.url, storage))
        assert done.found == (), (at, done.found)
        after = states(context.url, storage)
        assert {name: after[name] for name in before} == expected, at
        assert texts_in(copies.stored(storage), *GONE) == {}, at
        if at % 2 == 0:
            request = VerifyRequest(level="full", all_snapshots=True)
            found = run_verify(opened(context.url, storage), request, LocalEngine(), NoProgress()).violations
            assert not found, (at, [(v.code, v.path, v.message) for v in found])


def test_tasks_may_be_repeated(tmp_path: Path) -> None:
    context = KEYED["changelogs"](tmp_path / "t")
    before = States.of(context.url)
    job = TableErasure(Erasure(context, EraseRequest(CONDITION), Twice(), NoProgress()), False, context.clock.now_millis())
    job.plan()
    assert job.run().found == ()
    check(context.url, before, is_kept, *GONE)
    stored = {str(path) for path in Path(context.url).rglob("*.parquet")}
    assert stored <= Inventory.take(context).paths(context), "attempts leave nothing"


def test_what_was_written_again_before_a_kill_is_not_written_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PIECES, "erased_bytes", 1)
    context = KEYED["partitions, a tag and a branch"](tmp_path / "t")
    before, rewrite, calls = States.of(context.url), Histories.rewrite, list[str]()

    def dies_at_the_fourth(histories: Histories, task: RewriteTask) -> RewrittenFile:
        if len(calls) == 3:
            raise Died
        calls.append(task.file.entry.file.file_name)
        return rewrite(histories, task)

    monkeypatch.setattr(Histories, "rewrite", dies_at_the_fourth)
    with pytest.raises(Died):
        erased(context)
    first = calls.copy()
    calls.clear()

    def goes_on(histories: Histories, task: RewriteTask) -> RewrittenFile:
        calls.append(task.file.entry.file.file_name)
        return rewrite(histories, task)

    monkeypatch.setattr(Histories, "rewrite", goes_on)
    assert erased(opened(context.url, context.storage)).found == ()
    assert len(first) == 3 and calls and not {*first} & {*calls}
    check(context.url, before, is_kept, *GONE)


def beside(context: TableContext, meddler: Meddler) -> EraseSummary:
    return erased(opened(context.url, meddler))


def test_a_commit_that_takes_the_number_first_is_erased_too(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", PLAIN, ["k"], (), 1)
    write(context, [row(number) for number in range(40)])
    rival = Meddler("put_if_absent", "snapshot-2", lambda: write(context, [row(7, 5), row(50, 5)]) and None)
    done = beside(context, rival)
    assert [snapshot.id for snapshot in done.snapshots] == [3] and done.found == () and done.rows >= 2
    assert context.snapshots.ids() == [1, 2, 3] and [one["k"] for one in rows(context) if one["n"] == 5] == ["user-0050"]
    assert not Table.open(context.url).verify("full", all_snapshots=True).violations


class Busy(WrappedStorage):
    """Lets another job commit after each so many calls that follow the first attempt to publish over it."""

    def __init__(self, inner: Storage, commit: Callable[[int], object], every: int) -> None:
        super().__init__(inner)
        self.commit, self.every, self.calls, self.commits, self.has_begun = commit, every, 0, 0, False

    def before(self, call: str, path: str) -> None:
        self.has_begun = self.has_begun or (call == "put_if_absent" and "/snapshot/snapshot-" in path)
        self.calls += self.has_begun
        if self.has_begun and self.calls % self.every == 1 and self.commits < 2_000:
            self.commits += 1
            self.commit(self.commits)


@pytest.mark.parametrize("kind", ["dynamic buckets", "changelogs", at_night("partitions, a tag and a branch")])
def test_it_follows_jobs_that_commit_all_the_time(kind: str, tmp_path: Path) -> None:
    """A whole round makes more calls than there are between two commits: only the short tries are fast enough."""
    context = KEYED[kind](tmp_path / "t")
    before = States.of(context.url)
    more = {"dt": "a"} if context.schema.partition_keys else {}
    busy = Busy(context.storage, lambda n: write(context, [row(50, n, **more)], compact="none"), 20)
    done = erased(opened(context.url, busy))
    assert done.found == () and busy.commits < 100
    check(context.url, before, is_kept, *GONE)


def test_a_commit_that_was_built_on_the_old_files_loses_the_race(tmp_path: Path) -> None:
    """A writer reads snapshot 1, is suspended, and publishes after the erasure."""
    context = make_table(tmp_path / "t", PLAIN, ["k"], (), 1)
    write(context, [row(number) for number in range(40)])
    suspended = Meddler("put_if_absent", "snapshot-2", lambda: erased(TableContext.open(context.url)) and None)
    write(TableContext.open(context.url, storage=suspended), [row(50, 5)])
    assert context.snapshots.ids() == [1, 2, 3] and len(rows(context)) == 40
    assert not Table.open(context.url).verify("full", all_snapshots=True).violations


def test_a_compaction_of_old_files_is_planned_again(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", PLAIN, ["k"], (), 1)
    for n in range(3):
        write(context, [row(number, n) for number in range(40)], compact="none")
    before = States.of(context.url)
    suspended = Meddler("put_if_absent", "snapshot-4", lambda: erased(TableContext.open(context.url)) and None)
    compact(TableContext.open(context.url, storage=suspended), strategy="full")
    assert [one for one in rows(context) if not is_kept(one)] == []
    check(context.url, before, is_kept, *GONE)


def test_a_tag_that_is_made_meanwhile_is_replaced(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", PLAIN, ["k"], (), 1)
    write(context, [row(number) for number in range(40)])
    before = States.of(context.url)
    late = Meddler("overwrite", "snapshot-1", lambda: create_tag(TableContext.open(context.url), "late", 1) and None)
    assert beside(context, late).found == ()
    assert TableContext.open(context.url).tags.names() == ["late"]
    check(context.url, before, lambda one: one["k"] != "user-0007", "user-0007", "mail-0007")
    assert len(Table.open(context.url).scan(tag="late").to_arrow()) == 39


def test_a_tag_that_is_moved_meanwhile_stays_where_it_is(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", PLAIN, ["k"], (), 1)
    write(context, [row(number) for number in range(40)])
    create_tag(context, "moved", 1)
    write(context, [row(60)])

    def move() -> None:
        (tmp_path / "t/tag/tag-moved").unlink()
        create_tag(TableContext.open(context.url), "moved", 2)

    before = States.of(context.url)
    del before.rows["main moved"]
    assert beside(context, Meddler("overwrite", "snapshot-1", move)).found == ()
    check(context.url, before, lambda one: one["k"] != "user-0007", "user-0007", "mail-0007")
    assert len(Table.open(context.url).scan(tag="moved").to_arrow()) == 40


def test_keys_of_several_erasures_that_were_killed_are_all_erased(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = make_table(tmp_path / "t", PLAIN, ["k"], (), 1)
    write(context, [row(number) for number in range(40)])
    before, gone = States.of(context.url), ("user-0007", "user-0008", "user-0009")
    with monkeypatch.context() as patch:
        patch.setattr(Erasure, "finish", lambda erasure: None)
        patch.setattr(erase_job, "unfinished_erasures", lambda context: [])
        for key in gone[:2]:
            erased(context, f"k = '{key}'")
    job = TableErasure(Erasure(context, EraseRequest(f"k = '{gone[2]}'"), LocalEngine(), NoProgress()), False, 1 << 60)
    job.plan()
    assert isinstance(job.erasure.rows, ErasedKeys) and len(job.erasure.rows) == 3
    job.run()
    check(context.url, before, lambda one: one["k"] not in gone, *gone)
    assert not list((tmp_path / "t").glob("removal/*"))


def test_rows_that_are_written_afterwards_are_found(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", PLAIN, ["k"], (), 1)
    write(context, [row(number) for number in range(40)])
    act: Callable[[], object] = lambda: write(context, [row(7, 6)]) and None  # noqa: E731
    done = beside(context, Meddler("overwrite", "snapshot-1", act))
    assert done.found == () and done.rows == 2, "it came before the last look"


def test_the_lease_of_a_service_is_respected_and_its_own_is_given_back(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", PLAIN, ["k"], (), 1)
    write(context, [row(number) for number in range(40)])
    clock = FastClock()
    service = Leases("compaction", "a service that died", 50_000, clock)
    assert service.acquire(context.storage, context.layout.lease_directory)
    assert erased(replace(context, clock=clock)).found == ()
    assert sum(clock.waited) >= 50 and not list((tmp_path / "t").glob("lease/*"))
