"""Which way a commit goes, and what becomes of writers that lose their lock."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from sqlalchemy import text

from paimon_cli.commit.committer import Committer
from paimon_cli.commit.deduplication import CommitIdentity
from paimon_cli.errors import CommitUnknown, Refused, StorageUnavailable
from paimon_cli.history.schema_history import SchemaHistory
from paimon_cli.history.table_context import TableContext
from paimon_cli.metadata.data_file import EMPTY_ROW, CommitMessage, FileChanges
from paimon_cli.metadata.table_layout import TableLayout
from paimon_cli.storage.catalog_options import LockSettings
from paimon_cli.storage.commit_lock import CommitLock
from paimon_cli.storage.guarded_storage import GuardedStorage, PublishMethod, check_commits
from paimon_cli.storage.local_storage import LocalStorage
from paimon_cli.storage.memory_storage import MemoryStorage
from paimon_cli.storage.sql_database import open_database
from paimon_cli.storage.storage import PutOutcome, Storage
from tests.commit.commit_tables import SteppingClock, data_file, live_names, make_table
from tests.storage.unsafe_stores import Broken, NoPrimitive

ROOT = "mem/wh/shop.db/orders"
PATH = f"{ROOT}/snapshot/snapshot-1"
CREATED, EXISTS, UNKNOWN = PutOutcome.CREATED, PutOutcome.EXISTS, PutOutcome.UNKNOWN


@pytest.fixture
def space() -> str:
    return str(uuid.uuid4())


@pytest.fixture
def settings(tmp_path: Path) -> LockSettings:
    return LockSettings(f"jdbc:sqlite:{tmp_path}/locks.db", acquire_timeout=3_600_000)


def lose_lock(settings: LockSettings, to_somebody: bool = True) -> None:
    """The lock expires unnoticed, and perhaps another writer takes it."""
    with open_database(settings).connect() as connection:
        connection.execute(text("DELETE FROM paimon_distributed_locks"))
        if to_somebody:
            connection.execute(text("INSERT INTO paimon_distributed_locks (lock_id, expire_time_seconds) VALUES ('x', 9)"))


def test_all_else_is_the_inner_storage_s() -> None:
    """Every operation reaches it with what it was given, and its answer comes back."""
    asked: list[tuple[str, tuple[object, ...]]] = []

    class Recording(MemoryStorage):
        def __getattribute__(self, name: str) -> object:
            if name.startswith("_"):
                return super().__getattribute__(name)

            def answer(*given: object) -> str:
                asked.append((name, given))
                return f"answer of {name}"

            return answer

        def first_entries(self, path: str, limit: int) -> object: ...

        def remove_empty_directory(self, path: str) -> object: ...

        def sync_directory(self, path: str) -> object: ...

    storage = GuardedStorage(Recording(), ROOT)
    with_answer: dict[str, tuple[object, ...]] = {
        "read_bytes": (PATH,),
        "open_input": (PATH,),
        "open_output": (PATH,),
        "exists": (PATH,),
        "file_size": (PATH,),
        "list_directory": (PATH,),
        "first_entries": (PATH, 3),
        "remove_empty_directory": (PATH,),
    }
    silent: dict[str, tuple[object, ...]] = {
        "write_new": (PATH, b"1"),
        "overwrite": (PATH, b"2"),
        "delete": (PATH,),
        "delete_directory": (PATH,),
        "sync_directory": (PATH,),
    }
    for name, given in (with_answer | silent).items():
        assert getattr(storage, name)(*given) == (f"answer of {name}" if name in with_answer else None)
        assert asked.pop() == (name, given) and not asked


class TestTheWay:
    def test_a_lock_comes_first(self, space: str, settings: LockSettings) -> None:
        for store in (MemoryStorage(space), NoPrimitive(space)):
            assert GuardedStorage(store, ROOT, CommitLock(settings, ROOT)).publish_method() is PublishMethod.LOCK
            assert GuardedStorage(store, ROOT, CommitLock(settings, ROOT), True).publish_method() is PublishMethod.LOCK

    def test_then_the_primitive(self, space: str) -> None:
        assert GuardedStorage(MemoryStorage(space), ROOT, allow_unsafe_commit=True).publish_method() is PublishMethod.PRIMITIVE

    def test_commits_without_a_safe_method_need_permission(self, space: str) -> None:
        storage = GuardedStorage(NoPrimitive(space), ROOT, allow_unsafe_commit=True)
        assert storage.publish_method() is PublishMethod.UNSAFE
        assert "two commits at once may lose one of them" in str(check_commits(storage))
        assert storage.put_if_absent(PATH, b"1") is CREATED
        assert storage.put_if_absent(PATH, b"2") is EXISTS
        assert storage.read_bytes(PATH) == b"1"

    def test_commits_are_refused_without_a_safe_method(self, space: str) -> None:
        storage = GuardedStorage(NoPrimitive(space), ROOT)
        for ask in (storage.publish_method, lambda: check_commits(storage), lambda: storage.put_if_absent(PATH, b"1")):
            with pytest.raises(Refused, match="no safe commit on mem/wh") as failure:
                ask()
        assert failure.value.exit_code == 7 and "--allow-unsafe-commit" in failure.value.hint
        assert storage.list_directory(ROOT) == []

    def test_safe_storages_need_no_warning(self, space: str, settings: LockSettings) -> None:
        assert check_commits(LocalStorage()) is None
        assert check_commits(GuardedStorage(MemoryStorage(space), ROOT)) is None
        assert check_commits(GuardedStorage(NoPrimitive(space), ROOT, CommitLock(settings, ROOT))) is None

    def test_a_lock_without_its_database_is_found_before_the_work(self, space: str) -> None:
        lock = CommitLock(LockSettings("jdbc:sqlite:/nowhere/at/all.db"), ROOT)
        with pytest.raises(StorageUnavailable, match="the commit lock does not answer"):
            check_commits(GuardedStorage(NoPrimitive(space), ROOT, lock))


class TestUnderTheLock:
    def test_first_and_second(self, space: str, settings: LockSettings) -> None:
        for store in (MemoryStorage(space), NoPrimitive(space + "2")):
            storage = GuardedStorage(store, ROOT, CommitLock(settings, ROOT))
            assert storage.put_if_absent(PATH, b"1") is CREATED
            assert storage.put_if_absent(PATH, b"2") is EXISTS
            assert storage.read_bytes(PATH) == b"1"

    def test_a_holder_that_was_stopped_too_long_writes_nothing(self, space: str, settings: LockSettings) -> None:
        store, clock = NoPrimitive(space), SteppingClock()
        storage = GuardedStorage(store, ROOT, CommitLock(settings, ROOT, clock))
        store.before_exists = lambda: clock.sleep(2700)
        with pytest.raises(StorageUnavailable, match="lost before the commit"):
            storage.put_if_absent(PATH, b"late")
        assert store.list_directory(ROOT) == []

    def test_a_holder_that_lost_its_lock_writes_nothing(self, space: str, settings: LockSettings) -> None:
        store = NoPrimitive(space)
        storage = GuardedStorage(store, ROOT, CommitLock(settings, ROOT))
        store.before_exists = lambda: lose_lock(settings)
        with pytest.raises(StorageUnavailable, match="lost before the commit"):
            storage.put_if_absent(PATH, b"late")
        assert store.list_directory(ROOT) == []

    def test_a_lock_lost_during_the_put_makes_the_outcome_unknown(self, space: str, settings: LockSettings) -> None:
        store = NoPrimitive(space)
        storage = GuardedStorage(store, ROOT, CommitLock(settings, ROOT))
        store.before_overwrite = lambda: lose_lock(settings)
        assert storage.put_if_absent(PATH, b"late") is UNKNOWN

    def test_a_proven_primitive_stops_even_the_latest_write(self, space: str, settings: LockSettings) -> None:
        store = MemoryStorage(space)

        class Slow(MemoryStorage):
            def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
                if path == PATH:  # the lock is lost on the way, its next holder commits
                    lose_lock(settings, to_somebody=False)
                    assert GuardedStorage(store, ROOT, CommitLock(settings, ROOT)).put_if_absent(path, b"theirs") is CREATED
                return super().put_if_absent(path, data)

        assert GuardedStorage(Slow(space), ROOT, CommitLock(settings, ROOT)).put_if_absent(PATH, b"mine") is EXISTS
        assert store.read_bytes(PATH) == b"theirs"

    def test_a_put_without_an_answer_is_unknown(self, space: str, settings: LockSettings) -> None:
        assert GuardedStorage(Broken(space), ROOT, CommitLock(settings, ROOT)).put_if_absent(PATH, b"1") is UNKNOWN
        assert GuardedStorage(Broken(space), ROOT, allow_unsafe_commit=True).put_if_absent(PATH, b"1") is UNKNOWN


def open_table(tmp_path: Path, storage: Storage) -> TableContext:
    """A table of `commit_tables` in a storage of its own."""
    schema = make_table(tmp_path / "elsewhere").schema
    SchemaHistory(storage, TableLayout(ROOT)).commit(schema)
    return TableContext.open(ROOT, storage=storage)


def message(name: str) -> CommitMessage:
    return CommitMessage(EMPTY_ROW, 0, 2, append=FileChanges(added=(data_file(name),)))


class TestCommits:
    """The commit does not see any of this: it calls put once."""

    def test_under_the_lock(self, tmp_path: Path, space: str, settings: LockSettings) -> None:
        context = open_table(tmp_path, GuardedStorage(NoPrimitive(space), ROOT, CommitLock(settings, ROOT)))
        for name in ("a", "b"):
            Committer(context).commit([message(name)], CommitIdentity("me"))
        assert live_names(context) == ["a@0", "b@0"] and context.snapshots.ids() == [1, 2]

    def test_a_lock_that_cannot_be_acquired_leaves_no_file(self, tmp_path: Path, space: str, settings: LockSettings) -> None:
        context = open_table(tmp_path, GuardedStorage(NoPrimitive(space), ROOT, CommitLock(settings, ROOT, SteppingClock())))
        with CommitLock(settings, ROOT).held(), pytest.raises(StorageUnavailable, match="could not acquire"):
            Committer(context).commit([message("a")], CommitIdentity("me"))
        assert {entry.name for entry in context.storage.list_directory(ROOT)} == {"schema"}

    def test_a_lock_that_is_lost_after_an_unclear_put_is_unknown(
        self, tmp_path: Path, space: str, settings: LockSettings
    ) -> None:
        class LosesItAll(NoPrimitive):
            """The first put is on its way for ever; meanwhile the lock's database goes away."""

            def overwrite(self, path: str, data: bytes) -> None:
                if not path.endswith("snapshot-1"):
                    return super().overwrite(path, data)
                (tmp_path / "locks.db").rename(tmp_path / "gone.db")
                (tmp_path / "locks.db").mkdir()
                raise StorageUnavailable("the answer got lost")

        context = open_table(tmp_path, GuardedStorage(LosesItAll(space), ROOT, CommitLock(settings, ROOT)))
        with pytest.raises(CommitUnknown) as failure:
            Committer(context).commit([message("a")], CommitIdentity("me"))
        assert failure.value.exit_code == 11
        assert len(context.storage.list_directory(f"{ROOT}/manifest")) == 3, "the first put may still arrive"
