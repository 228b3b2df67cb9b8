"""Files on their way: nothing that could name them is published before they have arrived, or without them."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from paimon_cli.commit.committer import Committer
from paimon_cli.commit.deduplication import CommitIdentity
from paimon_cli.errors import StorageUnavailable
from paimon_cli.pieces import PIECES
from paimon_cli.storage.capabilities import open_sized, overlapping_writes, will_open
from paimon_cli.storage.guarded_storage import GuardedStorage
from paimon_cli.storage.object_storage import ObjectStorage
from paimon_cli.storage.overlapped_storage import OverlappedStorage
from paimon_cli.storage.storage import PutOutcome
from paimon_cli.storage.threads import JobThreads
from tests.commit.commit_tables import live_names
from tests.storage.s3_proxy import Answer, Fate, Request, Rule, S3Proxy
from tests.storage.s3_server import S3Server
from tests.storage.test_s3_tables import message, open_table

pytestmark = pytest.mark.xdist_group("s3")


@pytest.fixture(scope="module")
def proxy(s3_server: S3Server) -> Iterator[S3Proxy]:
    with S3Proxy(s3_server.port) as proxy:
        yield proxy


@pytest.fixture
def storage(s3_server: S3Server, proxy: S3Proxy) -> Iterator[OverlappedStorage]:
    proxy.rule, proxy.delay = (lambda request: Fate.PASS), 0
    proxy.forget()
    yield OverlappedStorage(s3_server.storage(proxy.endpoint))
    proxy.delay = 0


@pytest.fixture(scope="module")
def bucket(s3_server: S3Server) -> str:
    return s3_server.new_bucket()


def together(number: int, name: str) -> Rule:
    """Requests for what has this name are answered as soon as that number of them is there, however long each took to come."""
    all_there = threading.Barrier(number, timeout=120)

    def wait(request: Request) -> Fate | Answer:
        if name in request.path:
            try:
                all_there.wait()
            except threading.BrokenBarrierError:
                return Answer(403, "NotTogether")
        return Fate.PASS

    return wait


def failing(name: str) -> Rule:
    return lambda request: Answer(403, "AccessDenied") if name in request.path else Fate.PASS


def test_files_that_do_not_depend_on_each_other_take_one_trip(storage: OverlappedStorage, proxy: S3Proxy, bucket: str) -> None:
    proxy.rule = together(6, "/a/files/")
    with storage.overlapping_writes():
        for number in range(5):
            storage.write_new(f"{bucket}/a/files/{number}", b"x")
        with storage.open_output(f"{bucket}/a/files/data") as sink:
            sink.write(b"rows")
        assert storage.put_if_absent(f"{bucket}/a/snapshot", b"{}") is PutOutcome.CREATED
    *files, snapshot = proxy.served
    assert len(files) == 6 and snapshot.request.path.endswith("/snapshot")
    assert snapshot.begun >= max(file.ended for file in files)
    proxy.rule = lambda request: Fate.PASS
    assert storage.read_bytes(f"{bucket}/a/files/data") == b"rows"


def test_outside_of_a_block_a_file_is_stored_when_the_call_returns(
    storage: OverlappedStorage, proxy: S3Proxy, bucket: str
) -> None:
    storage.write_new(f"{bucket}/b/1", b"x")
    assert len(proxy.served) == 1
    proxy.rule = failing("/b/2")
    with pytest.raises(StorageUnavailable):
        storage.write_new(f"{bucket}/b/2", b"x")


def test_a_copy_in_another_process_waits_for_each_file(storage: OverlappedStorage, proxy: S3Proxy, bucket: str) -> None:
    with storage.overlapping_writes():
        copy = pickle.loads(pickle.dumps(storage))
        assert copy == storage
        proxy.rule = failing("/c/1")
        with pytest.raises(StorageUnavailable):
            copy.write_new(f"{bucket}/c/1", b"x")


@pytest.mark.parametrize("publish", ["put_if_absent", "overwrite"])
def test_nothing_is_published_without_a_file_that_failed(
    storage: OverlappedStorage, proxy: S3Proxy, bucket: str, publish: str
) -> None:
    proxy.rule = failing("/d/lost")
    target = f"{bucket}/d/{publish}"
    with storage.overlapping_writes():
        storage.write_new(f"{bucket}/d/lost", b"x")
        for _ in range(2):
            with pytest.raises(StorageUnavailable, match="AccessDenied"):
                getattr(storage, publish)(target, b"{}")
    assert not storage.exists(target)
    assert storage.put_if_absent(target, b"{}") is PutOutcome.CREATED, "the next job has nothing to do with it"


def test_the_end_of_a_block_raises_what_no_publication_has_raised(
    storage: OverlappedStorage, proxy: S3Proxy, bucket: str
) -> None:
    proxy.rule = failing("/d/lost")
    with pytest.raises(StorageUnavailable, match="AccessDenied"), storage.overlapping_writes():
        storage.write_new(f"{bucket}/d/lost", b"x")
        storage.write_new(f"{bucket}/d/stored", b"x")
    assert storage.put_if_absent(f"{bucket}/d/next", b"{}") is PutOutcome.CREATED
    with pytest.raises(KeyError), storage.overlapping_writes():
        storage.write_new(f"{bucket}/d/lost", b"x")
        raise KeyError
    with storage.overlapping_writes():
        storage.write_new(f"{bucket}/d/other", b"x")


def test_blocks_that_overlap_share_their_failures(storage: OverlappedStorage, proxy: S3Proxy, bucket: str) -> None:
    """Whose file it was is not known, so neither job may publish."""
    proxy.rule = failing("/e/lost")
    with storage.overlapping_writes():
        storage.write_new(f"{bucket}/e/lost", b"x")
        with storage.overlapping_writes(), pytest.raises(StorageUnavailable):
            storage.put_if_absent(f"{bucket}/e/theirs", b"{}")
        with pytest.raises(StorageUnavailable):
            storage.put_if_absent(f"{bucket}/e/ours", b"{}")


def test_a_file_that_is_being_uploaded_is_visible_to_every_operation(
    storage: OverlappedStorage, proxy: S3Proxy, bucket: str
) -> None:
    proxy.delay = 0.05
    with storage.overlapping_writes():
        path = f"{bucket}/f/1"
        storage.write_new(path, b"x")
        assert storage.read_bytes(path) == b"x"
        storage.write_new(f"{bucket}/f/2", b"yy")
        assert storage.file_size(f"{bucket}/f/2") == 2
        storage.write_new(f"{bucket}/f/3", b"z")
        assert len(storage.list_directory(f"{bucket}/f")) == 3 == len(storage.first_entries(f"{bucket}/f", 9))
        storage.write_new(f"{bucket}/f/4", b"z")
        storage.delete(f"{bucket}/f/4")
        assert not storage.exists(f"{bucket}/f/4")
        storage.write_new(f"{bucket}/f/5", b"z")
        storage.delete_directory(f"{bucket}/f")
        assert storage.list_directory(f"{bucket}/f") == []
        several = [f"{bucket}/f/{number}" for number in (6, 7, 8)]
        for path in several:
            storage.write_new(path, b"z")
        storage.delete_many(several)
        assert storage.list_directory(f"{bucket}/f") == []


def test_the_end_of_a_block_waits_also_after_an_error(storage: OverlappedStorage, proxy: S3Proxy, bucket: str) -> None:
    proxy.delay = 0.1
    with pytest.raises(KeyError), storage.overlapping_writes():
        storage.write_new(f"{bucket}/g/1", b"x")
        raise KeyError
    assert storage.inner.exists(f"{bucket}/g/1"), "so that a clean-up finds it"


def test_files_that_will_be_opened_are_fetched_side_by_side(storage: OverlappedStorage, proxy: S3Proxy, bucket: str) -> None:
    sizes = {f"{bucket}/h/{number}": 1000 + number for number in range(4)}
    for path, size in sizes.items():
        storage.write_new(path, bytes(size))
    storage.write_new(f"{bucket}/h/big", bytes(PIECES.whole_file_bytes + 1))
    proxy.forget()
    proxy.rule = together(4, "/h/")
    guarded = GuardedStorage(storage, bucket)
    will_open(guarded, lambda: [*sizes.items(), (f"{bucket}/h/big", PIECES.whole_file_bytes + 1)])
    for path, size in sizes.items():
        with open_sized(guarded, path, size) as source:
            assert source.read() == bytes(size)
    assert len(proxy.requests) == 4
    proxy.rule = lambda request: Fate.PASS
    with open_sized(guarded, next(iter(sizes)), 1000) as source:
        assert source.read(10) == bytes(10) and len(proxy.requests) == 5, "what was fetched is used once"


def test_a_file_on_its_way_is_not_fetched_before_it_is_there(
    storage: OverlappedStorage, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was fetched too early would be missing for whoever opens it."""
    write, was_announced = type(storage.inner).write_new, threading.Event()

    def late(self: ObjectStorage, path: str, data: bytes) -> None:
        was_announced.wait(60)
        time.sleep(0.1)
        write(self, path, data)

    monkeypatch.setattr(type(storage.inner), "write_new", late)
    with storage.overlapping_writes():
        storage.write_new(f"{bucket}/k/1", b"rows")
        storage.will_open([(f"{bucket}/k/1", 4)])
        was_announced.set()
        with open_sized(storage, f"{bucket}/k/1", 4) as source:
            assert source.read() == b"rows"


def test_what_is_fetched_and_never_opened_is_bounded(storage: OverlappedStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PIECES, "prefetched_bytes", 3000)
    monkeypatch.setattr(type(storage.inner), "fetch_range", lambda self, path, start, end: memoryview(bytes(end)))
    storage.will_open([(f"s3://b/{number}", 1000) for number in range(5)])
    assert list(storage._fetched) == [f"s3://b/{number}" for number in range(3)]
    storage.will_open([("s3://b/2", 1000), ("s3://b/9", 1000)])
    assert list(storage._fetched) == ["s3://b/2", "s3://b/9"]


class TestCommits:
    @pytest.mark.parametrize("name", ["/manifest-list-", "/manifest/manifest-"])
    def test_metadata_that_cannot_be_stored_fails_the_commit_and_leaves_nothing(
        self, s3_server: S3Server, proxy: S3Proxy, tmp_path: Path, name: str
    ) -> None:
        proxy.rule = lambda request: Fate.PASS
        context = open_table(f"{s3_server.new_bucket()}/t", s3_server.options(proxy.endpoint), tmp_path)
        Committer(context).commit([message("before")], CommitIdentity("me"))
        kept = {entry.name for entry in context.storage.list_directory(f"{context.url}/manifest")}

        def refuse(request: Request) -> Fate | Answer:
            return Answer(403, "AccessDenied") if request.method == "PUT" and name in request.path else Fate.PASS

        proxy.rule = refuse
        with pytest.raises(StorageUnavailable, match="AccessDenied"):
            Committer(context).commit([message("mine")], CommitIdentity("me"))
        proxy.rule = lambda request: Fate.PASS
        assert live_names(context) == ["before@0"] and context.snapshots.ids() == [1]
        assert {entry.name for entry in context.storage.list_directory(f"{context.url}/manifest")} == kept
        Committer(context).commit([message("mine")], CommitIdentity("me"))
        assert live_names(context) == ["before@0", "mine@0"]

    def test_a_commit_on_a_planned_snapshot_conflicts_with_the_commits_since(self, s3_server: S3Server, tmp_path: Path) -> None:
        """The plan's snapshot is not read again: the put shows that it is old, and the second attempt looks."""
        url = f"{s3_server.new_bucket()}/t"
        rival = open_table(url, s3_server.options(), tmp_path)
        context = open_table(url, s3_server.options(), tmp_path)
        assert context.snapshots.latest() is None
        Committer(rival).commit([message("theirs")], CommitIdentity("rival"))
        assert context.snapshots.latest() is not None
        Committer(rival).commit([message("again")], CommitIdentity("rival"))
        result = Committer(context).commit([message("mine")], CommitIdentity("me"))
        assert (result.attempts, result.snapshots[0].id) == (2, 3)
        assert live_names(rival) == ["again@0", "mine@0", "theirs@0"]

    def test_a_commit_on_a_snapshot_that_was_rolled_back_is_withdrawn(self, s3_server: S3Server, tmp_path: Path) -> None:
        url = f"{s3_server.new_bucket()}/t"
        context = open_table(url, s3_server.options(), tmp_path)
        for name in ("one", "two"):
            Committer(context).commit([message(name)], CommitIdentity("me"))
        seen = context.snapshots.latest()
        assert seen is not None and seen.id == 2
        context.storage.overwrite(context.layout.latest_hint, b"1")
        context.storage.delete(context.layout.snapshot(2))
        result = Committer(context).commit([message("mine")], CommitIdentity("me"))
        assert result.snapshots[0].id == 2 and live_names(context) == ["mine@0", "one@0"]


def test_many_threads_hand_over_within_one_block(storage: OverlappedStorage, bucket: str) -> None:
    def write(number: int) -> None:
        for file in range(5):
            storage.write_new(f"{bucket}/i/{number}-{file}", b"x")

    with overlapping_writes(storage):
        with JobThreads(4) as threads:
            list(threads.map(write, range(4)))
        assert storage.put_if_absent(f"{bucket}/i/done", b"") is PutOutcome.CREATED
        assert len(storage.inner.list_directory(f"{bucket}/i")) == 21


def test_reading_a_file_whose_upload_failed_raises_the_error_of_the_upload(
    storage: OverlappedStorage, proxy: S3Proxy, bucket: str
) -> None:
    """The file is missing in the store, but that is not what went wrong."""
    proxy.rule = failing("/g/lost")
    path = f"{bucket}/g/lost"
    with pytest.raises(StorageUnavailable, match="AccessDenied"), storage.overlapping_writes():
        storage.write_new(path, b"x")
        storage.read_bytes(path)
    proxy.rule = lambda request: Fate.PASS
    with storage.overlapping_writes():
        storage.write_new(path, b"x")
        storage.delete(path)
    assert not storage.exists(path)
