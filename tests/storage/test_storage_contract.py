"""The same promises on every storage."""

from __future__ import annotations

import gc
import os
import pickle
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from paimon_cli.errors import NotSupported
from paimon_cli.pieces import PIECES
from paimon_cli.storage.capabilities import swap
from paimon_cli.storage.fsspec_storage import FsspecStorage
from paimon_cli.storage.guarded_storage import GuardedStorage
from paimon_cli.storage.local_storage import LocalStorage
from paimon_cli.storage.memory_storage import MemoryStorage
from paimon_cli.storage.storage import PutOutcome, Storage

pytestmark = pytest.mark.xdist_group("s3")


@dataclass(frozen=True)
class Place:
    """A storage and an empty directory of it."""

    storage: Storage
    root: str


STORES = ["local", "memory", "s3", "guarded s3", "fsspec"]
EXCLUSIVE = pytest.mark.parametrize("place", ["local", "memory", "s3", "guarded s3"], indirect=True)
"""Stores with a `put_if_absent`."""
WHOLE = pytest.mark.parametrize("place", ["memory", "s3", "guarded s3"], indirect=True)
"""Stores where a file appears when its writer closes it, not before and not otherwise."""


@pytest.fixture(params=STORES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "local":
        return Place(LocalStorage(), f"{tmp_path}/wh/t")
    if request.param == "memory":
        return Place(MemoryStorage(), f"memory://{uuid.uuid4()}/t")
    if request.param == "fsspec":
        root = f"memory://{uuid.uuid4()}/t"
        return Place(FsspecStorage(root), root)
    server = request.getfixturevalue("s3_server")
    storage, root = server.storage(), f"{server.new_bucket()}/wh/t"
    return Place(storage if request.param == "s3" else GuardedStorage(storage, root), root)


def test_files_are_written_read_listed_and_deleted(place: Place) -> None:
    storage, root = place.storage, place.root
    with storage.open_output(f"{root}/bucket-0/data") as sink:
        sink.write(b"ab")
        sink.write(memoryview(b"c"))
        assert sink.tell() == 3
    storage.write_new(f"{root}/snapshot/snapshot-1", b"{}")
    storage.write_new(f"{root}/snapshot/a b%20c=d", b"odd")
    assert storage.read_bytes(f"{root}/snapshot/a b%20c=d") == b"odd"
    with storage.open_input(f"{root}/bucket-0/data") as source:
        assert source.seek(-2, os.SEEK_END) == 1
        assert source.read() == b"bc" and source.read() == b""
        source.seek(0)
        assert source.read(1) == b"a" and source.tell() == 1
    assert storage.exists(f"{root}/bucket-0/data") and storage.file_size(f"{root}/bucket-0/data") == 3
    assert {e.name: e.is_directory for e in storage.list_directory(root)} == {"bucket-0": True, "snapshot": True}
    (file,) = storage.list_directory(f"{root}/bucket-0")
    assert (file.path, file.size, file.is_directory) == (f"{root}/bucket-0/data", 3, False)
    assert file.modified_millis > 1_700_000_000_000
    storage.delete(f"{root}/bucket-0/data")
    assert not storage.exists(f"{root}/bucket-0/data")
    storage.delete_directory(root)
    assert storage.list_directory(root) == [] and not storage.exists(f"{root}/snapshot/snapshot-1")


def test_missing_files(place: Place) -> None:
    storage, missing = place.storage, f"{place.root}/missing"
    for read in (storage.read_bytes, storage.open_input, storage.file_size):
        with pytest.raises(FileNotFoundError):
            read(missing)
    storage.delete(missing)
    storage.delete_directory(missing)
    assert not storage.exists(missing) and storage.list_directory(missing) == []


def test_a_directory_is_not_its_neighbour(place: Place) -> None:
    storage, root = place.storage, place.root
    storage.write_new(f"{root}/bucket-1/a", b"1")
    storage.write_new(f"{root}/bucket-10/b", b"2")
    storage.delete_directory(f"{root}/bucket-1")
    assert [entry.path for entry in storage.list_directory(f"{root}/bucket-10")] == [f"{root}/bucket-10/b"]


@EXCLUSIVE
def test_one_of_many_writers_wins(place: Place) -> None:
    with ThreadPoolExecutor(8) as pool:
        for number in range(10):
            path = f"{place.root}/snapshot/snapshot-{number}"
            outcomes = list(pool.map(lambda n, path=path: place.storage.put_if_absent(path, b"%d" % n), range(8)))
            assert outcomes.count(PutOutcome.CREATED) == 1 and outcomes.count(PutOutcome.EXISTS) == 7
            assert place.storage.read_bytes(path) == b"%d" % outcomes.index(PutOutcome.CREATED)


def test_hints_are_replaced(place: Place) -> None:
    for content in (b"1", b"22", b"3"):
        place.storage.overwrite(f"{place.root}/snapshot/LATEST", content)
        assert place.storage.read_bytes(f"{place.root}/snapshot/LATEST") == content


def test_a_storage_travels(place: Place) -> None:
    place.storage.write_new(f"{place.root}/f", b"x")
    assert pickle.loads(pickle.dumps(place.storage)).read_bytes(f"{place.root}/f") == b"x"


class TestLargeFiles:
    """More than one part of an upload, more than one buffer of a reader."""

    def test_round_trip(self, place: Place) -> None:
        content = os.urandom(PIECES.upload_part_bytes) + b"end of the first part" + os.urandom(PIECES.upload_part_bytes // 2)
        with place.storage.open_output(f"{place.root}/large") as sink:
            for start in range(0, len(content), 3_000_000):
                sink.write(content[start : start + 3_000_000])
        assert place.storage.file_size(f"{place.root}/large") == len(content)
        assert place.storage.read_bytes(f"{place.root}/large") == content
        with place.storage.open_input(f"{place.root}/large") as source:
            source.seek(PIECES.upload_part_bytes)
            assert source.read(21) == b"end of the first part"
            source.seek(PIECES.upload_part_bytes - 100)
            assert source.read(PIECES.upload_part_bytes) == content[PIECES.upload_part_bytes - 100 :][: PIECES.upload_part_bytes]


@WHOLE
@pytest.mark.parametrize("size", [10, PIECES.upload_part_bytes + 10])
class TestUnfinishedFiles:
    """One part of an upload, and more."""

    def test_not_before_it_is_closed(self, place: Place, size: int) -> None:
        sink = place.storage.open_output(f"{place.root}/f")
        sink.write(b"x" * size)
        assert not place.storage.exists(f"{place.root}/f")
        sink.close()
        assert place.storage.file_size(f"{place.root}/f") == size

    def test_not_after_a_failure(self, place: Place, size: int) -> None:
        def fail() -> None:
            with place.storage.open_output(f"{place.root}/f") as sink:
                sink.write(b"x" * size)
                raise KeyError("bug")

        with pytest.raises(KeyError):
            fail()
        assert place.storage.list_directory(place.root) == []

    def test_not_if_it_is_forgotten(self, place: Place, size: int) -> None:
        sink = place.storage.open_output(f"{place.root}/f")
        sink.write(b"x" * size)
        del sink
        gc.collect()
        assert place.storage.list_directory(place.root) == []


@EXCLUSIVE
def test_of_several_swaps_one_succeeds(place: Place) -> None:
    storage, path = place.storage, f"{place.root}/policy.yaml"
    assert swap(storage, path, None, b"first") and not swap(storage, path, None, b"other")
    assert not swap(storage, path, b"what it was", b"other") and storage.read_bytes(path) == b"first"
    contents = [f"by {number}".encode() for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda content: swap(storage, path, b"first", content), contents))
    assert won.count(True) == 1 and storage.read_bytes(path) == contents[won.index(True)]
    storage.delete(path)
    assert not swap(storage, path, b"first", b"other") and not storage.exists(path)


def test_a_store_that_cannot_swap_says_so() -> None:
    root = f"memory://{uuid.uuid4()}/t"
    storage = FsspecStorage(root)
    storage.write_new(f"{root}/policy.yaml", b"first")
    with pytest.raises(NotSupported, match="conditional replacement"):
        swap(storage, f"{root}/policy.yaml", b"first", b"other")
