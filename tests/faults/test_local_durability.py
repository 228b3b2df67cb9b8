"""A power cut at any system call of the local storage: what a call had promised when it returned still holds."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from paimon_cli.storage import local_storage
from paimon_cli.storage.local_storage import LocalStorage
from paimon_cli.storage.storage import PutOutcome


class Disk:
    """Follows the system calls. What survives: bytes of files that were synced, names in directories that were synced."""

    def __init__(self, root: Path) -> None:
        self.root = str(root)
        self.calls: list[str] = []
        self.before_sync: Callable[[], object] = lambda: None
        self._lock = threading.Lock()
        self._bytes: dict[int, bytes] = {}
        self._names: dict[str, dict[str, int | None]] = {}

    def synced(self, descriptor: int) -> None:
        """A file: its bytes are safe. A directory: so are the names in it."""
        with self._lock:
            self._synced(descriptor)

    def _synced(self, descriptor: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        self.calls.append(f"fsync {path.removeprefix(self.root)}")
        self.before_sync()
        if os.path.isdir(path):
            names = os.listdir(path)
            self._names[path] = {name: _inode(f"{path}/{name}") for name in names}
        else:
            with open(f"/proc/self/fd/{descriptor}", "rb") as source:
                self._bytes[os.fstat(descriptor).st_ino] = source.read()

    def survivors(self) -> dict[str, bytes]:
        """Path below the root -> content, as after the power has come back."""
        return dict(self._below(self.root))

    def _below(self, directory: str) -> Iterator[tuple[str, bytes]]:
        for name, inode in self._names.get(directory, {}).items():
            path = f"{directory}/{name}"
            if inode is None:
                yield from self._below(path)
            else:
                yield path.removeprefix(self.root), self._bytes.get(inode, b"lost")


def _inode(path: str) -> int | None:
    return None if os.path.isdir(path) else os.stat(path).st_ino


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    root = tmp_path / "disk"
    root.mkdir()
    found = Disk(root)
    fake = mock.MagicMock(wraps=os)
    for name in ("path", "O_RDONLY", "O_WRONLY", "O_CREAT", "O_EXCL", "O_DIRECTORY"):
        setattr(fake, name, getattr(os, name))
    fake.fsync = found.synced
    monkeypatch.setattr(local_storage, "os", fake)
    return found


def write_through_a_handle(storage: LocalStorage, path: str) -> None:
    with storage.open_output(path) as sink:
        sink.write(b"some ")
        sink.write(b"rows")


PROMISES: dict[str, Callable[[LocalStorage, str], Any]] = {
    "open_output": write_through_a_handle,
    "write_new": lambda storage, path: storage.write_new(path, b"some rows"),
    "put_if_absent": lambda storage, path: storage.put_if_absent(path, b"some rows"),
    "overwrite": lambda storage, path: storage.overwrite(path, b"some rows"),
}


@pytest.mark.parametrize("name", sorted(PROMISES))
def test_a_new_file_in_a_new_directory_is_on_disk_when_the_call_returns(name: str, disk: Disk) -> None:
    PROMISES[name](LocalStorage(), f"{disk.root}/t/p=1/bucket-0/file")
    survivors = disk.survivors()
    assert survivors["/t/p=1/bucket-0/file"] == b"some rows", disk.calls
    assert all(".tmp" in path or path.endswith("/file") for path in survivors)


@pytest.mark.parametrize("publish", ["put_if_absent", "overwrite"])
def test_what_is_published_in_a_block_has_all_its_files(publish: str, disk: Disk) -> None:
    """At no time is there a snapshot without one of the files that were written before it, in old and new directories."""
    storage, seen = LocalStorage(), list[dict[str, bytes]]()
    disk.before_sync = lambda: seen.append(disk.survivors())
    storage.write_new(f"{disk.root}/t/old/first", b"first")
    names = {f"/t/{folder}/data-{number}": b"some rows" for folder in ("old", "new", "p=1/new") for number in range(3)}
    with storage.overlapping_writes():
        for name in names:
            PROMISES["write_new" if "data-1" in name else "open_output"](storage, f"{disk.root}{name}")
        PROMISES[publish](storage, f"{disk.root}/snapshot/snapshot-1")
        seen.append(disk.survivors())
    published = [state for state in seen if "/snapshot/snapshot-1" in state]
    assert published and all({**names, "/t/old/first": b"first"}.items() <= state.items() for state in published), disk.calls


def test_what_a_block_leaves_unpublished_is_on_disk_at_its_end(disk: Disk) -> None:
    storage = LocalStorage()
    with storage.overlapping_writes():
        storage.write_new(f"{disk.root}/t/bucket-0/file", b"some rows")
    assert disk.survivors() == {"/t/bucket-0/file": b"some rows"}
    storage.write_new(f"{disk.root}/t/bucket-0/later", b"more")
    assert disk.survivors() == {"/t/bucket-0/file": b"some rows", "/t/bucket-0/later": b"more"}


def test_an_overwrite_makes_earlier_deletes_of_its_directory_durable(disk: Disk) -> None:
    """Expiry deletes snapshots, moves the hint, and only then deletes the files that those snapshots name."""
    storage = LocalStorage()
    for name in ("snapshot-1", "snapshot-2"):
        assert storage.put_if_absent(f"{disk.root}/snapshot/{name}", b"{}") is PutOutcome.CREATED
    storage.delete(f"{disk.root}/snapshot/snapshot-1")
    assert "/snapshot/snapshot-1" in disk.survivors(), "a delete alone promises nothing"
    storage.overwrite(f"{disk.root}/snapshot/EARLIEST", b"2")
    assert {path for path in disk.survivors() if ".tmp" not in path} == {"/snapshot/snapshot-2", "/snapshot/EARLIEST"}


def test_a_snapshot_never_survives_in_part(disk: Disk) -> None:
    """Its name appears by a link to bytes that are safe already."""
    seen: list[dict[str, bytes]] = []
    disk.before_sync = lambda: seen.append(disk.survivors())
    LocalStorage().put_if_absent(f"{disk.root}/snapshot/snapshot-1", b"whole")
    seen.append(disk.survivors())
    assert {state["/snapshot/snapshot-1"] for state in seen if "/snapshot/snapshot-1" in state} == {b"whole"}
