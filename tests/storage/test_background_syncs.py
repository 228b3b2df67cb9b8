"""Files that a block writes are synced in the background: what a failure stops, and what stays as it is outside of a block."""

from __future__ import annotations

import contextlib
import errno
import os
import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pytest

from paimon_cli.errors import StorageUnavailable
from paimon_cli.pieces import PIECES
from paimon_cli.storage.capabilities import overlapping_writes
from paimon_cli.storage.confined_storage import ConfinedStorage
from paimon_cli.storage.local_storage import LocalStorage
from paimon_cli.storage.storage import PutOutcome
from paimon_cli.storage.threads import JobThreads

Fails = Callable[[str], bool]


def fail_syncs(monkeypatch: pytest.MonkeyPatch, fails: Fails) -> list[str]:
    """Let syncs of some paths fail. Returns the paths of all syncs."""
    real, synced = os.fsync, list[str]()

    def fsync(descriptor: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        synced.append(path)
        if fails(path):
            raise OSError(errno.EIO, "Input/output error")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    return synced


def open_files(folder: Path) -> set[str]:
    """The files below a folder that this process has open."""
    found = set()
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # closed since they were listed
            found.add(os.readlink(f"/proc/self/fd/{descriptor}"))
    return {path for path in found if path.startswith(f"{folder}/")}


@pytest.mark.parametrize("publish", ["put_if_absent", "overwrite"])
@pytest.mark.parametrize("lost", ["d/lost", "d"])
def test_nothing_is_published_without_a_file_or_a_name_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, publish: str, lost: str
) -> None:
    storage, target = LocalStorage(), f"{tmp_path}/{publish}"
    fail_syncs(monkeypatch, lambda path: path == f"{tmp_path}/{lost}")
    with storage.overlapping_writes():
        storage.write_new(f"{tmp_path}/d/lost", b"x")
        for _ in range(2):
            with pytest.raises(StorageUnavailable, match="Input/output error") as failure:
                getattr(storage, publish)(target, b"{}")
            assert failure.value.details["path"] == f"{tmp_path}/{lost}"
    assert not storage.exists(target)
    assert storage.put_if_absent(target, b"{}") is PutOutcome.CREATED, "the next job has nothing to do with it"


@pytest.mark.parametrize("lost", ["d/lost", "d"])
def test_the_end_of_a_block_raises_what_no_publication_has_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    storage = LocalStorage()
    fail_syncs(monkeypatch, lambda path: path == f"{tmp_path}/{lost}")
    with pytest.raises(StorageUnavailable), storage.overlapping_writes():
        storage.write_new(f"{tmp_path}/d/lost", b"x")
    with pytest.raises(ValueError, match="mine"), storage.overlapping_writes():
        storage.write_new(f"{tmp_path}/d/again", b"x")
        raise ValueError("mine")
    with storage.overlapping_writes():
        pass


def test_the_end_of_a_block_raises_a_failure_after_one_that_was_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = LocalStorage()
    fail_syncs(monkeypatch, lambda path: path.endswith(("/first", "/second")))
    with pytest.raises(StorageUnavailable), storage.overlapping_writes():
        storage.write_new(f"{tmp_path}/first", b"x")
        with contextlib.suppress(StorageUnavailable):
            storage.put_if_absent(f"{tmp_path}/snapshot", b"x")
        storage.write_new(f"{tmp_path}/second", b"x")


def test_outside_of_a_block_a_failure_belongs_to_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_syncs(monkeypatch, lambda path: path.endswith("/lost"))
    with pytest.raises(StorageUnavailable):
        LocalStorage().write_new(f"{tmp_path}/lost", b"x")


def test_a_copy_in_another_process_syncs_each_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for storage in (LocalStorage(), ConfinedStorage(str(tmp_path))):
        with storage.overlapping_writes():
            copy = pickle.loads(pickle.dumps(storage))
            with monkeypatch.context() as patch:
                fail_syncs(patch, lambda path: path.endswith("/lost"))
                with pytest.raises(StorageUnavailable):
                    copy.write_new(f"{tmp_path}/{type(storage).__name__}/lost", b"x")


def test_a_directory_is_synced_once_for_all_of_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage, synced = LocalStorage(), fail_syncs(monkeypatch, lambda path: False)
    with overlapping_writes(storage):
        for number in range(5):
            storage.write_new(f"{tmp_path}/d/{number}", b"x")
    assert sorted(synced) == sorted([str(tmp_path), f"{tmp_path}/d", *(f"{tmp_path}/d/{number}" for number in range(5))])


def test_a_file_that_was_deleted_again_is_no_failure(tmp_path: Path) -> None:
    storage = LocalStorage()
    with storage.overlapping_writes():
        storage.write_new(f"{tmp_path}/bucket-0/file", b"x")
        storage.delete(f"{tmp_path}/bucket-0/file")
        assert storage.remove_empty_directory(f"{tmp_path}/bucket-0")
        assert storage.put_if_absent(f"{tmp_path}/snapshot-1", b"{}") is PutOutcome.CREATED


def test_a_slow_disk_holds_up_a_writer_of_many_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PIECES, "max_unsynced_files", 10)
    released = threading.Event()
    monkeypatch.setattr(os, "fsync", lambda descriptor: released.wait(120))
    storage, written = LocalStorage(), list[int]()

    def write() -> None:
        for number in range(40):
            storage.write_new(f"{tmp_path}/d/{number}", b"x")
            written.append(number)

    with storage.overlapping_writes(), JobThreads(1) as threads:
        writing = threads.submit(write)
        while len(written) < 10 and not writing.done():
            wait([writing], 0.01)
        wait([writing], 0.5)
        assert len(written) == 10 and open_files(tmp_path)
        released.set()
    assert len(written) == 40 and not open_files(tmp_path)


@pytest.mark.parametrize("lost", ["d/lost", "d"])
def test_a_thread_outside_of_the_block_meets_the_failure_of_its_own_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    """The block belongs to another job, and may end before the thread publishes."""
    storage = LocalStorage()
    fail_syncs(monkeypatch, lambda path: path == f"{tmp_path}/{lost}")
    with storage.overlapping_writes():
        with ThreadPoolExecutor(1) as other_job:
            failure = other_job.submit(storage.write_new, f"{tmp_path}/d/lost", b"x").exception()
        assert isinstance(failure, StorageUnavailable) and "Input/output error" in str(failure)
        assert storage.put_if_absent(f"{tmp_path}/snapshot", b"{}") is PutOutcome.CREATED


def test_a_block_remembers_only_the_files_that_are_not_stored_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of ten thousand files then costs as little as the first."""
    monkeypatch.setattr(PIECES, "max_unsynced_files", 10)
    storage, paths = LocalStorage(), [f"{tmp_path}/d/{number}" for number in range(200)]
    with storage.overlapping_writes():
        for path in paths:
            storage.write_new(path, b"x")
        assert sum(storage._syncs.unfinished(path) is not None for path in paths) <= 11


def test_many_threads_write_within_one_block(tmp_path: Path) -> None:
    storage = LocalStorage()

    def write(number: int) -> None:
        with storage.overlapping_writes():
            for file in range(20):
                storage.write_new(f"{tmp_path}/{number}/{file}", b"x")
            assert storage.put_if_absent(f"{tmp_path}/snapshot-{number}", b"") is PutOutcome.CREATED

    with storage.overlapping_writes():
        writers = [threading.Thread(target=write, args=(number,)) for number in range(4)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 84


@pytest.mark.parametrize("lost", [None, 0, 57, 99])
def test_each_of_many_directories_is_synced_before_a_publication(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: int | None
) -> None:
    """Several of them by one call."""
    storage = LocalStorage()
    synced = fail_syncs(monkeypatch, lambda path: path == f"{tmp_path}/{lost}")
    with contextlib.nullcontext() if lost is None else pytest.raises(StorageUnavailable), storage.overlapping_writes():
        for number in range(100):
            storage.write_new(f"{tmp_path}/{number}/file", b"x")
        storage.put_if_absent(f"{tmp_path}/published", b"{}")
    assert (tmp_path / "published").exists() is (lost is None)
    if lost is None:
        assert all(synced.count(f"{tmp_path}/{number}") == 1 for number in range(100))
