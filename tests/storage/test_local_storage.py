"""The local storage keeps what the protocol promises, also when several write at once or the disk fails."""

from __future__ import annotations

import contextlib
import errno
import os
import pickle
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from paimon_cli.errors import DamagedFile, Refused, StorageUnavailable, UsageError
from paimon_cli.storage.confined_storage import ConfinedStorage
from paimon_cli.storage.local_storage import LocalStorage
from paimon_cli.storage.storage import PutOutcome


class CountedRandom:
    def __init__(self) -> None:
        self.count = 0

    def uuid(self) -> str:
        self.count += 1
        return f"uuid-{self.count}"

    def jitter(self) -> float:
        return 0.0


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_file_is_written_with_its_directories_and_read_back(tmp_path: Path) -> None:
    storage, path = LocalStorage(), f"{tmp_path}/a/b/c.bin"
    with storage.open_output(path) as sink:
        sink.write(b"one")
        sink.write(b"two")
    assert storage.read_bytes(path) == b"onetwo"
    with storage.open_input(path) as source:
        source.seek(3)
        assert source.read() == b"two"
    assert storage.file_size(path) == 6
    assert storage.exists(path) and storage.exists(f"{tmp_path}/a") and not storage.exists(f"{path}/below")
    assert pickle.loads(pickle.dumps(storage)).read_bytes(path) == b"onetwo"


def test_an_existing_file_is_never_written_over(tmp_path: Path) -> None:
    storage, path = LocalStorage(), f"{tmp_path}/f"
    storage.write_new(path, b"first")
    with pytest.raises(StorageUnavailable):
        storage.write_new(path, b"second")
    assert storage.read_bytes(path) == b"first"


def test_put_if_absent_has_one_winner_and_leaves_no_other_file(tmp_path: Path) -> None:
    storage, path = LocalStorage(CountedRandom()), f"{tmp_path}/snapshot/snapshot-1"
    assert storage.put_if_absent(path, b"mine") is PutOutcome.CREATED
    assert storage.put_if_absent(path, b"theirs") is PutOutcome.EXISTS
    assert storage.read_bytes(path) == b"mine"
    assert names_in(tmp_path / "snapshot") == {"snapshot-1"}


def test_put_if_absent_under_contention(tmp_path: Path) -> None:
    storage = LocalStorage()
    with ThreadPoolExecutor(8) as pool:
        for number in range(50):
            path = f"{tmp_path}/snapshot-{number}"
            contents = [f"writer {writer}".encode() * 1000 for writer in range(8)]
            outcomes = list(pool.map(lambda content, path=path: storage.put_if_absent(path, content), contents))
            assert outcomes.count(PutOutcome.CREATED) == 1 and outcomes.count(PutOutcome.EXISTS) == 7
            assert storage.read_bytes(path) == contents[outcomes.index(PutOutcome.CREATED)]
    assert len(names_in(tmp_path)) == 50


def test_the_temporary_file_is_beside_the_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    linked = []
    monkeypatch.setattr(os, "link", lambda source, target: linked.append((source, target)))
    LocalStorage(CountedRandom()).put_if_absent(f"{tmp_path}/snapshot-1", b"x")
    assert linked == [(f"{tmp_path}/.snapshot-1.uuid-1.tmp", f"{tmp_path}/snapshot-1")]


@pytest.mark.parametrize(("number", "expected"), [(errno.EIO, PutOutcome.UNKNOWN), (errno.EEXIST, PutOutcome.EXISTS)])
def test_a_link_that_fails_reports_what_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, expected: PutOutcome
) -> None:
    monkeypatch.setattr(os, "link", lambda source, target: (_ for _ in ()).throw(OSError(number, os.strerror(number))))
    assert LocalStorage().put_if_absent(f"{tmp_path}/snapshot-1", b"x") is expected
    assert names_in(tmp_path) == set()


def test_a_file_system_without_hard_links_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_link(source: str, target: str) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_link)
    with pytest.raises(Refused) as failure:
        LocalStorage().put_if_absent(f"{tmp_path}/snapshot-1", b"x")
    assert failure.value.exit_code == 7 and "hard links" in failure.value.why
    assert names_in(tmp_path) == set()


def test_a_snapshot_whose_name_could_not_be_synced_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, synced = os.fsync, []

    def fsync(descriptor: int) -> None:
        synced.append(descriptor)
        if len(synced) == 2:  # the file first, then its directory
            raise OSError(errno.EIO, "Input/output error")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    assert LocalStorage().put_if_absent(f"{tmp_path}/snapshot-1", b"x") is PutOutcome.UNKNOWN


def test_content_and_names_are_synced_before_a_write_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, synced = os.fsync, []

    def fsync(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    LocalStorage().write_new(f"{tmp_path}/new/file", b"x")
    assert synced == [str(tmp_path), f"{tmp_path}/new/file", f"{tmp_path}/new"]


def test_a_full_disk_is_unavailable_and_leaves_no_temporary_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageUnavailable, match="No space left") as failure:
        LocalStorage().put_if_absent(f"{tmp_path}/snapshot-1", b"x")
    assert failure.value.exit_code == 6
    assert names_in(tmp_path) == set()


def test_overwrite_replaces_and_leaves_no_other_file(tmp_path: Path) -> None:
    storage, path = LocalStorage(), f"{tmp_path}/LATEST"
    for content in (b"1", b"2"):
        storage.overwrite(path, content)
        assert storage.read_bytes(path) == content
    assert names_in(tmp_path) == {"LATEST"}


def test_listing_distinguishes_files_directories_and_links(tmp_path: Path) -> None:
    storage = LocalStorage()
    storage.write_new(f"{tmp_path}/t/file", b"abc")
    (tmp_path / "t" / "directory").mkdir()
    (tmp_path / "t" / "link").symlink_to(tmp_path)
    found = {entry.name: entry for entry in storage.list_directory(f"{tmp_path}/t")}
    assert {name: entry.is_directory for name, entry in found.items()} == {"file": False, "directory": True, "link": False}
    file = found["file"]
    assert (file.path, file.size) == (f"{tmp_path}/t/file", 3)
    assert file.modified_millis == (tmp_path / "t" / "file").stat().st_mtime_ns // 1_000_000
    assert storage.list_directory(f"{tmp_path}/missing") == []
    assert storage.list_directory(f"{tmp_path}/t/file") == []


def test_missing_files(tmp_path: Path) -> None:
    storage = LocalStorage()
    storage.write_new(f"{tmp_path}/file", b"")
    for path in (f"{tmp_path}/missing", f"{tmp_path}/file/below"):
        for read in (storage.read_bytes, storage.open_input, storage.file_size):
            with pytest.raises(FileNotFoundError):
                read(path)
        storage.delete(path)
        storage.delete_directory(path)


def test_deleting_does_not_follow_links(tmp_path: Path) -> None:
    storage = LocalStorage()
    storage.write_new(f"{tmp_path}/outside/precious", b"x")
    storage.write_new(f"{tmp_path}/t/bucket-0/data", b"x")
    (tmp_path / "t" / "link").symlink_to(tmp_path / "outside")
    with pytest.raises(StorageUnavailable):
        storage.delete_directory(f"{tmp_path}/t/link")
    storage.delete_directory(f"{tmp_path}/t")
    assert not (tmp_path / "t").exists()
    assert (tmp_path / "outside" / "precious").exists()
    storage.delete(f"{tmp_path}/outside/precious")
    assert not storage.exists(f"{tmp_path}/outside/precious")


def test_a_directory_in_place_of_a_file_is_damage(tmp_path: Path) -> None:
    with pytest.raises(DamagedFile, match="it is a directory"):
        LocalStorage().read_bytes(str(tmp_path))


def test_a_table_never_waits_for_a_named_pipe(tmp_path: Path) -> None:
    pipe, plug = tmp_path / "t" / "snapshot-3", tmp_path / "t" / "snapshot-4"
    pipe.parent.mkdir()
    os.mkfifo(pipe)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(plug))
    (tmp_path / "t" / "snapshot-5").mkdir()
    (tmp_path / "t" / "snapshot-6").symlink_to(pipe)
    storage = ConfinedStorage(str(tmp_path / "t"))
    kinds = {"snapshot-3": "a named pipe", "snapshot-4": "a socket", "snapshot-5": "a directory", "snapshot-6": "a named pipe"}
    for name, kind in kinds.items():
        with pytest.raises(DamagedFile, match=kind):
            storage.read_bytes(str(tmp_path / "t" / name))


def test_a_name_that_is_too_long_is_the_callers_mistake(tmp_path: Path) -> None:
    """No repetition makes it shorter; and what is shown of it fits on a line."""
    storage, path = LocalStorage(), f"{tmp_path}/tag/tag-{'x' * 5000}"
    for use in (storage.read_bytes, storage.exists, lambda path: storage.put_if_absent(path, b"")):
        with pytest.raises(UsageError, match="characters is too long") as failure:
            use(path)
        assert len(str(failure.value)) < 250
    with pytest.raises(UsageError):
        storage.put_if_absent(f"{tmp_path}/tag-{'x' * 230}", b"")
    assert names_in(tmp_path) <= {"tag"}


@pytest.mark.parametrize(("removals", "succeeds"), [(3, True), (1000, False)])
def test_a_directory_that_others_remove_before_it_has_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, removals: int, succeeds: bool
) -> None:
    """Between the creation of the directory and that of the file, each time."""
    opened, others = os.open, LocalStorage()
    remaining = [removals]

    def after_removal(path: str, flags: int, *mode: int) -> int:
        if flags & os.O_CREAT and remaining[0]:
            remaining[0] -= 1
            assert others.remove_empty_directory(os.path.dirname(path))
        return opened(path, flags, *mode)

    monkeypatch.setattr(os, "open", after_removal)
    with contextlib.nullcontext() if succeeds else pytest.raises(FileNotFoundError, match="removed again and again"):
        LocalStorage().write_new(f"{tmp_path}/p=1/bucket-postpone/file", b"rows")
    assert [path.read_bytes() for path in tmp_path.glob("*/*/*")] == [b"rows"] * succeeds
