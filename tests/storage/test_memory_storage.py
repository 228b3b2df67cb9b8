"""What is special about files in memory; what they share with all storages is in `test_storage_contract`."""

from __future__ import annotations

import pickle
import uuid
from typing import cast

import pytest

from paimon_cli.errors import StorageUnavailable
from paimon_cli.storage.memory_storage import MemoryStorage
from tests.commit.commit_tables import SteppingClock


def test_spaces_are_apart_and_names_bring_them_together() -> None:
    name = str(uuid.uuid4())
    MemoryStorage(name).write_new("t/f", b"x")
    assert MemoryStorage(name).read_bytes("t/f") == b"x"
    assert pickle.loads(pickle.dumps(MemoryStorage(name))).read_bytes("t/f") == b"x"
    assert not MemoryStorage(f"{name} of somebody else").exists("t/f")


def test_the_name_of_a_new_file_must_be_free() -> None:
    storage = MemoryStorage(str(uuid.uuid4()))
    storage.write_new("t/f", b"first")
    early = storage.open_output("t/g")
    storage.write_new("t/g", b"faster")
    for attempt in (lambda: storage.write_new("t/f", b"second"), lambda: storage.open_output("t/f"), early.close):
        with pytest.raises(StorageUnavailable, match="a file of that name exists"):
            attempt()
    assert storage.read_bytes("t/f") == b"first" and storage.read_bytes("t/g") == b"faster"


def test_times_are_those_of_the_clock() -> None:
    clock = SteppingClock(now=1000)
    storage = MemoryStorage(str(uuid.uuid4()), clock)
    storage.write_new("t/f", b"1")
    clock.sleep(5)
    storage.overwrite("t/g", b"2")
    assert {entry.name: entry.modified_millis for entry in storage.list_directory("t")} == {"f": 1000, "g": 6000}


def test_a_file_of_changing_bytes_does_not_change() -> None:
    storage, data = MemoryStorage(str(uuid.uuid4())), bytearray(b"before")
    storage.write_new("t/f", cast(bytes, data))
    data[:] = b"after "
    assert storage.read_bytes("t/f") == b"before"


@pytest.mark.parametrize("end", ["", "/"])
def test_directories_are_distinguished_by_their_whole_names(end: str) -> None:
    storage = MemoryStorage(str(uuid.uuid4()))
    for directory in ("t/X", "t/XX", "t/x", "t/X=/X", "t"):
        storage.write_new(f"{directory}/f", b"1")
    assert {entry.name for entry in storage.list_directory(f"t/X{end}")} == {"f"}
    assert [entry.path for entry in storage.list_directory(f"t/X=/X{end}")] == ["t/X=/X/f"]
    storage.delete_directory(f"t/X{end}")
    assert not storage.exists(f"t/X{end}")
    assert all(
        storage.exists(f"{directory}/f") and storage.exists(f"{directory}{end}") for directory in ("t/XX", "t/x", "t/X=/X", "t")
    )


def test_a_missing_file_is_named() -> None:
    with pytest.raises(FileNotFoundError, match="t/none"):
        MemoryStorage(str(uuid.uuid4())).file_size("t/none")


def test_a_writer_closed_twice_makes_its_file_once() -> None:
    storage = MemoryStorage(str(uuid.uuid4()))
    sink = storage.open_output("t/f")
    sink.write(b"abc")
    sink.close()
    sink.close()
    assert storage.read_bytes("t/f") == b"abc" and storage.file_size("t/f") == 3
