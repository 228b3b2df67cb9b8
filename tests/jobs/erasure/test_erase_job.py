"""An erasure that dies between any two steps, and other jobs that commit beside it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from paimon_cli.api.table import Table
from paimon_cli.bucket.hash_index import read_key_hashes
from paimon_cli.bucket.merged_rows import read_bucket
from paimon_cli.catalog.alter_table import alter_table
from paimon_cli.catalog.column_changes import AddColumn, DropColumn
from paimon_cli.commit.prepared_snapshot import MetadataWriter
from paimon_cli.datatypes.field_types import parse_sql_type
from paimon_cli.errors import DamagedFile, FilesLeft, RequestRefused, StorageUnavailable, UsageError
from paimon_cli.history.live_files import bucket_files
from paimon_cli.history.table_context import TableContext
from paimon_cli.jobs.engine import LocalEngine, NoProgress
from paimon_cli.jobs.erasure import erase_job
from paimon_cli.jobs.erasure.erase_job import EraseRequest, Erasure
from paimon_cli.jobs.erasure.erase_table import EraseSummary, TableErasure
from paimon_cli.jobs.erasure.erased_rows import ErasedKeys
from paimon_cli.jobs.erasure.erasure_record import ErasureRecord, RecordedFile, RecordedIndex, unfinished_erasures
from paimon_cli.jobs.erasure.file_rewrite import Histories, RewriteTask, RewrittenFile
from paimon_cli.jobs.erasure.inventory import Inventory, paths_of
from paimon_cli.jobs.erasure.metadata_rewrite import MetadataRewrite
from paimon_cli.jobs.service.leases import Leases
from paimon_cli.jobs.verify_job import VerifyRequest, run_verify
from paimon_cli.maintain.tags import create_tag
from paimon_cli.metadata.data_file import IndexManifestEntry
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


class DiesAt(WrappedStorage):
    """Dies before the first call of a method on a path that contains a text."""

    def __init__(self, inner: Storage, call: str, part: str) -> None:
        super().__init__(inner)
        self.call, self.part = call, part

    def before(self, call: str, path: str) -> None:
        if call == self.call and self.part in path:
            raise Died


def stored_files(context: TableContext) -> set[str]:
    """The data, metadata and index files that exist, with the files beside them."""
    directories = ("manifest", "index", "statistics")
    found = (path for path in Path(context.url).rglob("*") if path.is_file())
    return {str(path) for path in found if path.parent.name in directories or path.parent.name.startswith("bucket-")}


def with_side_files(folder: Path) -> TableContext:
    """Each data file has a Bloom filter beside it."""
    options = {"file-index.bloom-filter.columns": "v", "file-index.in-manifest-threshold": "1 b"}
    context = make_table(folder, PLAIN, ["k"], (), 1, options)
    for n in range(2):
        write(context, [row(number, n) for number in range(40)], compact="none")
    return context


def with_hashes(folder: Path) -> TableContext:
    context = make_table(folder, PLAIN, ["k"], (), -1, {"dynamic-bucket.target-row-num": "15"})
    for n in range(2):
        write(context, [row(number, n) for number in range(n, 40 + 5 * n)], compact="none")
    return context


@pytest.mark.parametrize("make", [with_hashes, with_side_files])
def test_all_that_a_killed_erasure_has_written_is_named_or_recorded_and_goes_in_the_end(
    make: Callable[[Path], TableContext], tmp_path: Path
) -> None:
    context = make(tmp_path / "t")
    named = Inventory.take(context).paths(context)
    for path in stored_files(context) - named:
        Path(path).unlink()
    with pytest.raises(Died):
        erased(opened(context.url, DiesAt(context.storage, "overwrite", "/snapshot/snapshot-")))
    (record,) = unfinished_erasures(context)
    recorded = {f"{context.url}/{path}" for path in record.all_files(context)}
    assert stored_files(context) <= recorded | Inventory.take(context).paths(context)
    assert stored_files(context) > named, "there are new files"
    write(context, [row(60)], compact="none")
    assert erased(opened(context.url, context.storage)).found == ()
    assert stored_files(context) == Inventory.take(context).paths(context)
    assert not unfinished_erasures(context)


def test_only_what_is_there_of_a_killed_erasure_is_used(tmp_path: Path) -> None:
    """What it has not written, or somebody has deleted, is written again."""
    context = KEYED["dynamic buckets"](tmp_path / "t")
    inventory = Inventory.take(context)
    one, other, *_ = inventory.files.values()
    after = replace(one.entry.file, file_name="new.parquet", row_count=one.entry.file.row_count - 1)
    files = [
        RewrittenFile(one.entry, after, np.array([0])),
        RewrittenFile(other.entry, None, np.arange(other.entry.file.row_count)),
    ]
    index, *_ = (entry for entries in inventory.indexes.values() for entry in entries)
    new = replace(index.index_file, file_name="index-new")
    indexes = [RecordedIndex(index.partition, index.bucket, index.index_file, new)]
    record = ErasureRecord("", rewritten=tuple(map(RecordedFile.of, files)), index_files=tuple(indexes))

    def used() -> tuple[set[str], dict[str, str | None]]:
        job = Erasure(context, EraseRequest(CONDITION), LocalEngine(), NoProgress())
        job._continue(record)
        names = {key[1].file_name: None if file is None else file.file_name for key, file in job.index_files.items()}
        return {file.before.file.file_name for file in job.rewritten.values()}, names

    first, second = one.entry.file.file_name, other.entry.file.file_name
    assert used() == ({second}, {})
    Path(context.data_file_path_of(*one.key[:2], "new.parquet")).write_text("")
    Path(context.layout.index("index-new")).write_text("")
    assert used() == ({first, second}, {index.index_file.file_name: "index-new"})


def with_branch(folder: Path) -> TableContext:
    """A branch that has another schema 1 than the main branch."""
    context = make_table(folder, PLAIN, ["k"], (), 1)
    write(context, [row(number) for number in range(10)])
    table = Table.open(str(folder))
    table.tags.create("start")
    table.branches.create("b", tag="start")
    alter_table(context.at_branch("b"), [AddColumn(("more",), parse_sql_type("INT"))])
    alter_table(TableContext.open(str(folder)), [DropColumn(("v",)), DropColumn(("n",))])
    alter_table(TableContext.open(str(folder)), [AddColumn(("n",), parse_sql_type("INT"))])
    branch = TableContext.open(str(folder), branch="b")
    write(branch, [{**row(number, 20), "more": number} for number in (1, 7, 30)], compact="none")
    return TableContext.open(str(folder))


def test_what_a_branch_holds_is_found_by_the_schemas_of_the_branch(tmp_path: Path) -> None:
    context = with_branch(tmp_path / "t")
    branch = TableContext.open(context.url, branch="b")
    before, numbers = rows(branch), branch.snapshots.ids()
    done = erased(context, "n = 20 AND k <> 'user-0001'")
    assert done.found == () and done.keys == 2
    assert [one["k"] for one in rows(context)] == [f"user-{number:04}" for number in range(10) if number != 7]
    after = [one for one in before if one["k"] not in ("user-0007", "user-0030")]
    for at in (context, branch):
        newest = at.snapshots.latest_id()
        assert newest == {"main": 1, "b": max(numbers)}[at.branch] + 1, "no commit can build on what was replaced"
    assert rows(TableContext.open(context.url, branch="b")) == after and len(before) - len(after) == 2


def test_a_condition_that_a_branch_cannot_answer_names_the_branch(tmp_path: Path) -> None:
    context = with_branch(tmp_path / "t")
    for condition, names_branch in (("v = 'x'", False), ("more = 7", False)):
        with pytest.raises(UsageError) as failure:
            erased(context, condition)
        assert ("on branch 'b'" in failure.value.why) == names_branch
    alter_table(context, [AddColumn(("less",), parse_sql_type("INT"))])
    with pytest.raises(UsageError) as failure:
        erased(TableContext.open(context.url), "less = 1")
    assert "on branch 'b', whose files would keep the rows" in failure.value.why


@pytest.mark.parametrize("branch", ["main", "b"])
def test_a_missing_file_that_a_version_needs_is_damage(branch: str, tmp_path: Path) -> None:
    """On any branch. One of which only metadata is left is not, and its metadata is erased."""
    context = make_table(tmp_path / "t", PLAIN, ["k"], (), 1)
    write(context, [row(number) for number in range(10)])
    table = Table.open(context.url)
    table.tags.create("start")
    table.branches.create("b", tag="start")
    own = context.at_branch("b")
    write(own, [row(7, 20)], compact="none")
    write(context, [row(7, 30)], compact="none")
    (lost,) = {Path(path) for path in stored_files(context) if path.endswith(".parquet")} & {
        Path(path) for path in _newest_files(own if branch == "b" else context)
    }
    content = lost.read_bytes()
    lost.unlink()
    before = stored_files(context)
    with pytest.raises(DamagedFile, match=f"{lost.name} is missing"):
        erased(context, "k = 'user-0007'")
    assert stored_files(context) == before
    lost.write_bytes(content)
    assert erased(TableContext.open(context.url), "k = 'user-0007'").found == ()


def _newest_files(context: TableContext) -> list[str]:
    """The paths of the data files that the newest snapshot has added."""
    latest = context.snapshots.latest()
    assert latest is not None
    entries = context.manifests.delta_entries(latest)
    return [context.data_file_path_of(entry.partition, entry.bucket, entry.file.file_name) for entry in entries]


def test_hashes_are_erased_beside_files_of_which_only_metadata_is_left(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", PLAIN, ["k"], (), -1, {"dynamic-bucket.target-row-num": "50"})
    for n in range(2):
        write(context, [row(number, n) for number in range(40)], compact="none")
    compact(context, strategy="full")
    Table.open(context.url).expire(retain_max=1, retain_min=1, older_than="0s")
    inventory = Inventory.take(context)
    assert sorted(Path(path).exists() for file in inventory.files.values() for path in paths_of(context, file.entry)) == [
        False,
        False,
        True,
    ]
    assert erased(context, "k = 'user-0007'").found == ()
    assert [one["k"] for one in rows(context)] == [f"user-{number:04}" for number in range(40) if number != 7]
    hashes = [read_key_hashes(context, index.index_file) for index in indexes_of(context)]
    assert sum(map(len, hashes)) == 39


def indexes_of(context: TableContext) -> list[IndexManifestEntry]:
    latest = context.snapshots.latest()
    assert latest is not None
    return list(context.manifests.index_entries(latest))


def test_nothing_is_replaced_once_the_lease_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = make_table(tmp_path / "t", PLAIN, ["k"], (), 1)
    write(context, [row(number) for number in range(40)])
    before = rows(context)
    with monkeypatch.context() as patch:
        patch.setattr(Leases, "held", frozenset())
        with pytest.raises(StorageUnavailable, match="another job has begun to maintain"):
            erased(context, "k = 'user-0007'")
    assert context.snapshots.ids() == [1] and rows(context) == before
    job = Erasure(context, EraseRequest("k = 'user-0007'"), LocalEngine(), NoProgress())
    job.plan()
    write(context, [row(7, 5)], compact="none")
    there, lost = stored_files(context), Leases("compaction", "lost", 1, context.clock)
    rewrite = MetadataRewrite(context, job.inventory, {}, None, MetadataWriter(context), {})
    job._follow(ErasureRecord.new(context, ()), rewrite, lost)
    assert stored_files(context) == there, "a commit of another job is not followed any more"


class KeepsData(WrappedStorage):
    """A store that refuses to delete data files."""

    def delete(self, path: str) -> None:
        if path.endswith(".parquet"):
            raise RequestRefused(f"{path} cannot be deleted", "the store forbids it")
        super().delete(path)


def test_what_could_not_be_deleted_is_an_error_and_stays_on_record(tmp_path: Path) -> None:
    context = make_table(tmp_path / "t", PLAIN, ["k"], (), 1)
    write(context, [row(number) for number in range(40)])
    with pytest.raises(FilesLeft, match="refused"):
        erased(opened(context.url, KeepsData(context.storage)), "k = 'user-0007'")
    assert len(rows(context)) == 39 and len(unfinished_erasures(context)) == 1
    assert erased(opened(context.url, context.storage), "k = 'user-0007'").found == ()
    assert stored_files(context) == Inventory.take(context).paths(context) and not unfinished_erasures(context)
