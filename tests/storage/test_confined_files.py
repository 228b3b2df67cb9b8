"""Links out of a table, in each place of a path, against each operation; and files of the user's that appear whole."""

from __future__ import annotations

import os
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paimon_cli.errors import DamagedFile, PaimonError, StorageUnavailable, UsageError
from paimon_cli.storage.confined_storage import ConfinedStorage
from paimon_cli.storage.injected import SystemRandom
from paimon_cli.storage.memory_storage import MemoryStorage
from paimon_cli.storage.whole_file import whole_file


def write_out(storage: ConfinedStorage, path: str) -> None:
    with storage.open_output(path) as sink:
        sink.write(b"new")


READING: dict[str, Callable[[ConfinedStorage, str], Any]] = {
    "read_bytes": lambda storage, path: storage.read_bytes(path),
    "open_input": lambda storage, path: storage.open_input(path).close(),
    "file_size": lambda storage, path: storage.file_size(path),
}
WRITING: dict[str, Callable[[ConfinedStorage, str], Any]] = {
    "open_output": write_out,
    "write_new": lambda storage, path: storage.write_new(path, b"new"),
    "put_if_absent": lambda storage, path: storage.put_if_absent(path, b"new"),
    "overwrite": lambda storage, path: storage.overwrite(path, b"new"),
    "delete": lambda storage, path: storage.delete(path),
    "delete_directory": lambda storage, path: storage.delete_directory(path),
}
LISTING: dict[str, Callable[[ConfinedStorage, str], Any]] = {"list_directory": lambda storage, path: storage.list_directory(path)}
ALL = READING | WRITING | LISTING


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A table `t`, files beside it in `t2`, and links in the table that lead there."""
    (tmp_path / "t" / "inside").mkdir(parents=True)
    (tmp_path / "t2" / "directory").mkdir(parents=True)
    (tmp_path / "t2" / "file").write_bytes(b"precious")
    (tmp_path / "t" / "inside" / "file").write_bytes(b"ours")
    (tmp_path / "t" / "out").symlink_to(tmp_path / "t2")
    (tmp_path / "t" / "out_file").symlink_to(tmp_path / "t2" / "file")
    (tmp_path / "t" / "in").symlink_to(tmp_path / "t" / "inside")
    (tmp_path / "t" / "in_file").symlink_to(tmp_path / "t" / "inside" / "file")
    return tmp_path


def contents(folder: Path) -> dict[str, bytes | None]:
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


@pytest.mark.parametrize("operation", ALL)
@pytest.mark.parametrize("below", ["file", "directory", "missing"])
def test_nothing_is_done_through_a_link_that_leads_out(place: Path, operation: str, below: str) -> None:
    storage, before = ConfinedStorage(f"{place}/t"), contents(place / "t2")
    for _ in range(2):  # what was refused once is not taken for checked
        with pytest.raises(DamagedFile, match="lies outside of the table") as failure:
            ALL[operation](storage, f"{place}/t/out/{below}")
        assert f"leads to {place}/t2" in failure.value.why and failure.value.details["path"] == f"{place}/t/out/{below}"
    assert contents(place / "t2") == before


@pytest.mark.parametrize("operation", READING | LISTING)
def test_calls_that_follow_links_check_the_last_name(place: Path, operation: str) -> None:
    storage = ConfinedStorage(f"{place}/t")
    name = "out" if operation == "list_directory" else "out_file"
    assert not storage.exists(f"{place}/t/nothing")
    with pytest.raises(DamagedFile, match="lies outside of the table") as failure:
        ALL[operation](storage, f"{place}/t/{name}")
    assert failure.value.details["path"] == f"{place}/t/{name}"
    ALL[operation](storage, f"{place}/t/{'in' if operation == 'list_directory' else 'in_file'}")


def test_calls_that_do_not_follow_links_use_the_link_itself(place: Path) -> None:
    storage = ConfinedStorage(f"{place}/t")
    storage.overwrite(f"{place}/t/out_file", b"new")
    assert not (place / "t" / "out_file").is_symlink() and (place / "t2" / "file").read_bytes() == b"precious"
    storage.delete(f"{place}/t/out")
    assert not (place / "t" / "out").exists() and (place / "t2" / "directory").is_dir()


@pytest.mark.parametrize("operation", ALL)
def test_all_is_allowed_within_and_elsewhere(place: Path, operation: str) -> None:
    """A neighbour whose name begins as the table's does is elsewhere; a table may itself be reached through a link."""
    (place / "alias").symlink_to(place / "t")
    for root, directory in (("t", "t/inside"), ("t", "t2"), ("t", "t/in"), ("alias", "alias/inside"), ("alias", "alias/in")):
        storage = ConfinedStorage(f"{place}/{root}")
        name = f"new {root} {directory}".replace("/", "-") if operation in ("open_output", "write_new") else "file"
        if operation in ("delete", "delete_directory"):
            target = f"{place}/{directory}/doomed"
            os.makedirs(target) if operation == "delete_directory" else Path(target).write_bytes(b"x")
            ALL[operation](storage, target)
            assert not os.path.exists(target)
        else:
            ALL[operation](storage, f"{place}/{directory}" if operation == "list_directory" else f"{place}/{directory}/{name}")


def test_files_directly_in_the_root(place: Path) -> None:
    storage = pickle.loads(pickle.dumps(ConfinedStorage(f"{place}/t")))
    storage.write_new(f"{place}/t/plain", b"12345")
    assert (storage.read_bytes(f"{place}/t/plain"), storage.file_size(f"{place}/t/plain")) == (b"12345", 5)
    with pytest.raises(DamagedFile, match="lies outside"):
        storage.read_bytes(f"{place}/t/out/file")
    with pytest.raises(DamagedFile, match="is not a file: it is a device"):
        (place / "t" / "null").symlink_to("/dev/null")
        ConfinedStorage("/").read_bytes("/dev/null")


class TestWholeFiles:
    """On a disk, and in a store."""

    @pytest.fixture(params=["disk", "store"])
    def url(self, request: pytest.FixtureRequest, tmp_path: Path) -> str:
        return f"{tmp_path}/out.csv" if request.param == "disk" else f"memory://{tmp_path.name}{id(request)}/out.csv"

    @staticmethod
    def content(url: str) -> bytes | None:
        storage = MemoryStorage()
        if "://" in url:
            return storage.read_bytes(url) if storage.exists(url) else None
        return Path(url).read_bytes() if Path(url).exists() else None

    @staticmethod
    def write(url: str, *parts: bytes, error: BaseException | None = None, **options: bool) -> None:
        with whole_file(url, {}, SystemRandom(), **options) as sink:
            for part in parts:
                sink.write(part)
            assert TestWholeFiles.content(url) in (None, b"old"), "nothing shows before the end"
            if error is not None:
                raise error

    def test_new_ones(self, url: str) -> None:
        self.write(url, b"a", b"b")
        assert self.content(url) == b"ab"
        with pytest.raises(UsageError, match=f"{re.escape(url)} exists: nothing was written") as failure:
            self.write(url, b"c")
        assert failure.value.hint == "--force replaces it" and self.content(url) == b"ab"

    def test_replaced_ones(self, url: str) -> None:
        self.write(url, b"old")
        self.write(url, b"new", replace=True)
        assert self.content(url) == b"new"

    @pytest.mark.parametrize("replace", [False, True])
    def test_failures_leave_what_was(self, url: str, replace: bool) -> None:
        if replace:
            self.write(url, b"old")
        with pytest.raises(KeyError):
            self.write(url, b"half", error=KeyError("bug"), replace=replace)
        assert self.content(url) == (b"old" if replace else None)
        if "://" not in url:
            assert len(list(Path(url).parent.iterdir())) == int(replace)

    def test_where_no_file_may_be(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        for name, what in ((".", "a directory"), ("pipe", "not a regular file")):
            for replace in (False, True):
                with pytest.raises(UsageError, match=f"it is {what}"):
                    self.write(f"{tmp_path}/{name}", replace=replace)
        with pytest.raises(UsageError, match="cannot write"):
            self.write(f"{tmp_path}/none/out.csv")
        for name in ("out.csv", "beside.csv"):
            self.write(f"{tmp_path}/none/at/all/{name}", b"x", make_parents=True)
            assert self.content(f"{tmp_path}/none/at/all/{name}") == b"x"

    def test_links_stay_links(self, tmp_path: Path) -> None:
        (tmp_path / "real").mkdir()
        (tmp_path / "link").symlink_to(tmp_path / "real" / "file")
        self.write(f"{tmp_path}/link", b"old")
        self.write(f"{tmp_path}/link", b"2", replace=True)
        assert (tmp_path / "link").is_symlink() and (tmp_path / "real" / "file").read_bytes() == b"2"

    def test_a_name_taken_meanwhile_is_kept(self, tmp_path: Path) -> None:
        path = tmp_path / "out"
        with pytest.raises(UsageError, match=f"{path} exists"), whole_file(str(path), {}, SystemRandom()) as sink:
            sink.write(b"mine")
            path.write_bytes(b"theirs")
        assert path.read_bytes() == b"theirs" and len(list(tmp_path.iterdir())) == 1

    def test_a_disk_that_fails(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def full(descriptor: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(StorageUnavailable, match="No space left"):
            self.write(f"{tmp_path}/out", b"x")
        assert list(tmp_path.iterdir()) == []

    def test_a_store_that_fails_leaves_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        url = "memory://whole-files-that-fail/out"
        deleted: list[str] = []
        monkeypatch.setattr(MemoryStorage, "delete", lambda self, path: deleted.append(path))

        def refuse(self: MemoryStorage, path: str) -> Any:
            raise StorageUnavailable("it is off")

        monkeypatch.setattr(MemoryStorage, "open_output", refuse)
        for replace, times in ((False, 1), (True, 2)):
            deleted.clear()
            with pytest.raises(PaimonError, match="it is off"):
                self.write(url, b"x", replace=replace)
            assert deleted == [url] * times

    def test_the_temporary_file_is_beside_the_real_one(self, tmp_path: Path) -> None:
        (tmp_path / "real").mkdir()
        (tmp_path / "link").symlink_to(tmp_path / "real" / "file")
        with whole_file(f"{tmp_path}/link", {}, SystemRandom()) as sink:
            sink.write(b"x")
            (temporary,) = (tmp_path / "real").iterdir()
            assert temporary.name.startswith(".file.") and temporary.name.endswith(".tmp") and len(temporary.name) == 46

    def test_a_store_is_asked_before_anything_is_sent(self) -> None:
        url = "memory://whole-files-taken/out"
        MemoryStorage().write_new(url, b"old")
        with pytest.raises(UsageError, match="exists"), whole_file(url, {}, SystemRandom()):
            raise AssertionError("the block does not begin")
        assert MemoryStorage().read_bytes(url) == b"old"


def test_directories_of_many_partitions_are_looked_at_one_by_one(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bucket of a new partition costs a look at its two names, not at the whole path; a link in between is still refused."""
    storage = ConfinedStorage(f"{place}/t")
    write_out(storage, f"{place}/t/p=0/bucket-0/f")
    resolved: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr(os.path, "realpath", lambda path: resolved.append(path) or path)  # type: ignore[func-returns-value]
        for number in range(1, 4):
            write_out(storage, f"{place}/t/p={number}/bucket-0/f")
    assert resolved == []
    (place / "t" / "p=4").symlink_to(place)
    for _ in range(2):
        with pytest.raises(DamagedFile, match="lies outside"):
            write_out(storage, f"{place}/t/p=4/bucket-0/f")
        with pytest.raises(DamagedFile, match="lies outside"):
            write_out(storage, f"{place}/t/p=4/bucket-0/deeper/f")
    assert not (place / "bucket-0").exists()
