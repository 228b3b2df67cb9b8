"""The storage of the fault tests does what its kinds of faults promise."""

from __future__ import annotations

import pytest

from paimon_cli.errors import StorageUnavailable
from paimon_cli.storage.memory_storage import MemoryStorage
from paimon_cli.storage.storage import PutOutcome
from tests.faults.fault_kinds import Fault, Kind, cut, forms
from tests.faults.fault_storage import Crash, FaultStorage, planned

DATA = b"0123456789"


@pytest.fixture
def disk(request: pytest.FixtureRequest) -> MemoryStorage:
    return MemoryStorage(request.node.nodeid)


def faulty(disk: MemoryStorage, kind: Kind, detail: str = "", call: int = 0) -> FaultStorage:
    return FaultStorage(disk, planned([Fault(call, kind, detail)]))


def test_failing_before_and_after(disk: MemoryStorage) -> None:
    for kind, there in ((Kind.FAIL_BEFORE, False), (Kind.FAIL_AFTER, True)):
        storage = faulty(disk, kind)
        with pytest.raises(StorageUnavailable):
            storage.write_new(f"/{kind.value}", DATA)
        assert disk.exists(f"/{kind.value}") is there
        storage.write_new(f"/{kind.value}-next", DATA)
        assert storage.hit and storage.calls == ["write_new", "write_new"]


def test_nothing_that_a_dead_actor_does_has_an_effect(disk: MemoryStorage) -> None:
    for kind, there in ((Kind.CRASH_BEFORE, False), (Kind.CRASH_AFTER, True)):
        storage = faulty(disk, kind)
        with pytest.raises(Crash):
            storage.write_new(f"/{kind.value}", DATA)
        with pytest.raises(Crash):
            storage.delete(f"/{kind.value}")
        assert disk.exists(f"/{kind.value}") is there


def test_an_outage_does_not_end(disk: MemoryStorage) -> None:
    storage = faulty(disk, Kind.OUTAGE)
    for _ in range(2):
        with pytest.raises(StorageUnavailable):
            storage.exists("/a")
    assert storage.put_if_absent("/a", DATA) is PutOutcome.UNKNOWN
    assert not disk.exists("/a")


@pytest.mark.parametrize(
    ("detail", "answer", "there"),
    [("exists", PutOutcome.EXISTS, True), ("unknown", PutOutcome.UNKNOWN, True), ("nothing", PutOutcome.UNKNOWN, False)],
)
def test_lost_answers(disk: MemoryStorage, detail: str, answer: PutOutcome, there: bool) -> None:
    assert faulty(disk, Kind.LOST_ANSWER, detail).put_if_absent("/a", DATA) is answer
    assert disk.exists("/a") is there


@pytest.mark.parametrize(("length", "left"), [("none", b""), ("one", b"0"), ("half", b"01234"), ("most", b"012345678")])
def test_torn_writes_and_short_reads(disk: MemoryStorage, length: str, left: bytes) -> None:
    with pytest.raises(Crash):
        faulty(disk, Kind.TORN_WRITE, length).write_new("/a", DATA)
    assert disk.read_bytes("/a") == left == cut(DATA, length)
    disk.write_new("/whole", DATA)
    assert faulty(disk, Kind.SHORT_READ, length).read_bytes("/whole") == left


def test_a_torn_put_or_overwrite_leaves_a_temporary_file_alone(disk: MemoryStorage) -> None:
    with pytest.raises(Crash):
        faulty(disk, Kind.TORN_WRITE, "temporary").put_if_absent("/d/a", DATA)
    assert [entry.name for entry in disk.list_directory("/d")] == [".a.1.tmp"]


def test_a_full_disk_is_an_error_and_half_a_file(disk: MemoryStorage) -> None:
    storage = faulty(disk, Kind.TORN_WRITE, "half error", call=2)
    sink = storage.open_output("/a")
    sink.write(DATA)
    assert disk.read_bytes("/a") == b"", "it is there from the beginning"
    with pytest.raises(StorageUnavailable):
        sink.close()
    assert disk.read_bytes("/a") == b"01234" and storage.calls == ["open_output", "output.write", "output.close"]


def test_stale_lists(disk: MemoryStorage) -> None:
    for number in (1, 9, 10):
        disk.write_new(f"/d/snapshot-{number}", DATA)
    seen = faulty(disk, Kind.STALE_LIST, "newest").list_directory("/d")
    assert [entry.name for entry in seen] == ["snapshot-1", "snapshot-9"]
    assert faulty(disk, Kind.STALE_LIST, "all").list_directory("/d") == []


def test_ignored_deletes(disk: MemoryStorage) -> None:
    disk.write_new("/a", DATA)
    storage = faulty(disk, Kind.IGNORED_DELETE)
    storage.delete("/a")
    assert disk.exists("/a") and not storage.deleted


class TestPowerCut:
    """Each time in the directory of files that were durable before."""

    @pytest.fixture(autouse=True)
    def files(self, disk: MemoryStorage) -> None:
        for path in ("/d/a", "/d/b", "/e/c"):
            disk.write_new(path, DATA)

    def test_takes_back_deletes_and_unfinished_files(self, disk: MemoryStorage) -> None:
        storage = faulty(disk, Kind.POWER_CUT, "all", call=3)
        storage.delete("/d/a")
        storage.delete("/e/c")
        storage.open_output("/d/new")
        with pytest.raises(Crash):
            storage.delete("/d/b")
        assert [disk.exists(path) for path in ("/d/a", "/d/b", "/e/c", "/d/new")] == [True, True, True, False]

    def test_not_what_a_durable_write_followed(self, disk: MemoryStorage) -> None:
        storage = faulty(disk, Kind.POWER_CUT, "all", call=3)
        storage.delete("/d/a")
        storage.delete("/e/c")
        storage.overwrite("/d/hint", DATA)
        with pytest.raises(Crash):
            storage.put_if_absent("/f/snapshot", DATA)
        assert not disk.exists("/d/a") and disk.exists("/e/c")
        assert disk.read_bytes("/d/hint") == disk.read_bytes("/f/snapshot") == DATA

    def test_or_some_of_it(self, disk: MemoryStorage) -> None:
        storage = faulty(disk, Kind.POWER_CUT, "some", call=2)
        for path in ("/d/a", "/d/b"):
            storage.delete(path)
        with pytest.raises(Crash):
            storage.delete("/e/c")
        assert 0 < sum(disk.exists(path) for path in ("/d/a", "/d/b", "/e/c")) < 3


def test_every_kind_can_happen_to_some_call() -> None:
    calls = ("read_bytes", "list_directory", "write_new", "put_if_absent", "delete")
    assert {kind for call in calls for kind, _ in forms(call)} == set(Kind)


def test_a_fault_can_be_read_back() -> None:
    fault = Fault(17, Kind.TORN_WRITE, "half error")
    assert Fault.parse(str(fault)) == fault and str(fault) == "17 torn-write half error"
