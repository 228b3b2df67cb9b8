"""Clocks, directories, redaction, listings and the like: exact answers, at their limits."""

from __future__ import annotations

import ctypes
import datetime
import importlib.util
import os
import re
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from paimon_cli.errors import Refused, StorageUnavailable, UsageError
from paimon_cli.jobs.process import usable_cores
from paimon_cli.storage import fsspec_storage, sql_database
from paimon_cli.storage.capabilities import first_entries, keep_deleted, remove_empty_directory
from paimon_cli.storage.catalog_options import (
    DatabaseAddress,
    file_system_options,
    is_catalog_option,
    split_options,
    store_options,
)
from paimon_cli.storage.deletions import delete_all
from paimon_cli.storage.directories import ancestors
from paimon_cli.storage.fsspec_storage import FsspecStorage
from paimon_cli.storage.injected import (
    BelatedClock,
    SystemClock,
    SystemRandom,
    local_hour,
    local_wall_clock,
    moment_of_wall_clock,
)
from paimon_cli.storage.local_storage import LocalStorage
from paimon_cli.storage.lock_table import HeldLock
from paimon_cli.storage.memory_storage import MemoryStorage
from paimon_cli.storage.redaction import names_secret, redact, without_user_info
from tests.commit.commit_tables import SteppingClock


@pytest.fixture
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Five and a half hours east, without summer time."""
    monkeypatch.setenv("TZ", "XST-5:30")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_local_times(zone: None) -> None:
    noon = 1_700_049_600_123  # 12:00:00.123 UTC
    assert local_wall_clock(noon) == noon + 19_800_000
    assert moment_of_wall_clock(noon + 19_800_000) == noon
    assert (local_hour(noon), local_hour(noon + 1_799_000), local_hour(noon + 1_800_000)) == (17, 17, 18)
    for far in (10**20, 10**22):  # the C library has an error for each
        assert moment_of_wall_clock(far) == far and moment_of_wall_clock(-far) == -far
    assert moment_of_wall_clock(-1) == -19_800_001


def test_clocks_and_randomness() -> None:
    clock = SteppingClock(5_000)
    behind = BelatedClock(clock, 1_500)
    behind.sleep(0.25)
    assert (behind.now_millis(), clock.sleeps) == (3_750, [0.25])
    earlier = time.time_ns() // 1_000_000
    assert earlier <= SystemClock().now_millis() <= time.time_ns() // 1_000_000
    begun = time.monotonic()
    SystemClock().sleep(0.01)
    assert time.monotonic() - begun >= 0.01
    source = SystemRandom()
    assert str(uuid.UUID(source.uuid())) == (found := source.uuid()) or len(found) == 36
    assert re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}", found)
    jitters = [source.jitter() for _ in range(20)]
    assert all(0 <= jitter < 1 for jitter in jitters) and len(set(jitters)) > 1


@pytest.mark.parametrize(("mask", "cores"), [({3}, 1), (set(range(7)), 7), (set(range(8)), 8), (set(range(9)), 8)])
def test_cores(monkeypatch: pytest.MonkeyPatch, mask: set[int], cores: int) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: mask)
    assert usable_cores() == cores
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: len(mask))
    assert usable_cores() == cores
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert usable_cores() == 1


def test_directories_above(tmp_path: Path) -> None:
    assert list(ancestors("s3://bucket/a/b")) == ["s3://bucket/a", "s3://bucket"]
    assert list(ancestors("/nowhere/a/b")) == ["/nowhere/a", "/nowhere"]
    (tmp_path / "real" / "deep").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    found = list(ancestors(f"{tmp_path}/link/deep"))
    assert found[:2] == [f"{tmp_path}/link", str(tmp_path)] and f"{tmp_path}/real" in found
    assert list(ancestors("/")) == []


def test_first_entries_and_empty_directories(tmp_path: Path) -> None:
    storage = LocalStorage()
    for name in "abc":
        storage.write_new(f"{tmp_path}/d/{name}", b"")
    assert [len(first_entries(storage, f"{tmp_path}/d", limit)) for limit in (1, 3, 9)] == [1, 3, 3]
    assert remove_empty_directory(storage, f"{tmp_path}/d") is False and (tmp_path / "d" / "a").exists()
    delete_all(storage, [f"{tmp_path}/d/{name}" for name in "abc"])
    keep_deleted(storage, f"{tmp_path}/d")
    keep_deleted(storage, f"{tmp_path}/none")
    assert remove_empty_directory(storage, f"{tmp_path}/d") and not (tmp_path / "d").exists()
    assert remove_empty_directory(storage, f"{tmp_path}/d"), "it is gone, whichever process removed it"
    memory = MemoryStorage(str(uuid.uuid4()))
    keep_deleted(memory, "t")
    assert remove_empty_directory(memory, "t") is False


def test_one_file_that_cannot_be_deleted_does_not_stop_the_others() -> None:
    deleted: list[str] = []

    class Sticky(MemoryStorage):
        def delete(self, path: str) -> None:
            if path.startswith("stuck"):
                raise StorageUnavailable(f"{path} stays")
            deleted.append(path)

    with pytest.raises(StorageUnavailable, match="stuck-1 stays"):
        delete_all(Sticky(), ["a", "stuck-1", "b", "stuck-2", "c"])
    assert deleted == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("key", "is_secret"),
    [
        *((key, True) for key in ("Access-Key", "jdbc.password", "passphrase", "fs.gs.token", "credentials", "sas", "key")),
        *(
            (key, True)
            for key in (
                "connection_string",
                "account_key",
                "api-key",
                "private.key",
                "pwd",
                "user.auth",
                "Access-Key",
                "header.Authorization",
            )
        ),
        *((key, False) for key in ("catalog-key", "primary-key", "author", "sassy", "forward", "keys", "monkey", "s3.region")),
    ],
)
def test_names_of_secrets(key: str, is_secret: bool) -> None:
    assert names_secret(key) is is_secret


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("abc is wrong, abcd is not", "*** is wrong, abcd is not"),
        ("x+y/z=1", "***1"),
        ("s3://me:pw@host/t?sig=1 failed", "s3://host/t failed"),
        ("12 of 123", "*** of 123"),
    ],
)
def test_redacted_texts(text: str, expected: str) -> None:
    options = {"password": "abc", "deep": {"token": "x+y/z=", "plain": "failed"}, "secret": "12", "user": "wrong", "auth": ""}
    assert redact(text, options) == expected


def test_the_longest_secret_goes_first() -> None:
    assert redact("a-b-c", {"password": "a-b", "token": "a-b-c"}) == "***"
    assert without_user_info("jdbc:x://u:p@h/d?user=u&password=p") == "jdbc:x://h/d"


def test_whose_options_they_are() -> None:
    lock = (
        "lock.enabled",
        "lock-acquire-timeout",
        "jdbc.user",
        "metastore",
        "uri",
        "catalog-key",
        "warehouse",
        "token",
        "profile",
    )
    store = ("s3.region", "s3a.region", "fs.gs.token")
    table = ("bucket", "metastore.partitioned-table", "uri.x", "locks", "s3", "project")
    assert all(map(is_catalog_option, (*lock, *store))) and not any(map(is_catalog_option, table))
    given = dict.fromkeys((*lock, *store, *table), "x")
    assert list(store_options(given)) == [*store, *table]
    assert split_options(given) == (dict.fromkeys((*lock, *store), "x"), dict.fromkeys(table, "x"))
    assert file_system_options("gs", given) == {"token": "x", "bucket": "x", "locks": "x", "s3": "x", "project": "x"}


@pytest.mark.parametrize("key", ["mtime", "LastModified", "last_modified", "updated", "modified", "created"])
def test_times_as_other_file_systems_report_them(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = FsspecStorage(f"memory://{uuid.uuid4()}")
    moment = datetime.datetime(2024, 1, 2, tzinfo=datetime.timezone.utc)
    entries: list[dict[str, Any]] = [
        {"name": "/d/dated", "size": 3, "type": "file", key: moment},
        {"name": "/d/ticking/", "size": None, "type": "directory", key: 1.5},
        {"name": "/d/silent", "size": 4, "type": "file", key: None},
        {"name": "/d/", "size": 0, "type": "directory"},
    ]
    monkeypatch.setattr(storage._fs, "ls", lambda path, detail: entries, raising=False)
    found = [(s.path, s.name, s.size, s.is_directory, s.modified_millis) for s in storage.list_directory("memory://d")]
    assert found == [
        ("memory://d/dated", "dated", 3, False, 1_704_153_600_000),
        ("memory://d/ticking", "ticking", 0, True, 1_500),
        ("memory://d/silent", "silent", 4, False, 0),
    ]


def test_listings_in_memory() -> None:
    storage = MemoryStorage(str(uuid.uuid4()), SteppingClock(7))
    for path in ("t/a", "t/d/b", "t/d/c", "t2/e"):
        storage.write_new(path, b"123")
    found = {(s.path, s.name, s.size, s.is_directory, s.modified_millis) for s in storage.list_directory("t/")}
    assert found == {("t/a", "a", 3, False, 7), ("t/d", "d", 0, True, 7)}
    assert storage.exists("t/d") and storage.exists("t/d/") and not storage.exists("t/x") and not storage.exists("t/dd")
    storage.delete_directory("t/d")
    assert not storage.exists("t/d") and storage.exists("t/a") and storage.exists("t2/e")
    storage.delete("t/a")
    storage.delete("t/a")
    assert not storage.exists("t") and storage.read_bytes("t2/e") == b"123"


def test_a_lock_expires_after_its_life() -> None:
    assert [HeldLock("x", None, age, 5.0).is_expired for age in (4.9, 5.0, 5.1)] == [False, False, True]


class Native:
    """Stands for libhdfs: each function remembers how it is declared."""

    def __init__(self) -> None:
        self.opened: list[tuple[str, bool]] = []

    def __getattr__(self, name: str) -> Any:
        function = type("Function", (), {"argtypes": None, "restype": None})()
        setattr(self, name, function)
        return function


@pytest.mark.parametrize(
    ("variable", "below"), [("ARROW_LIBHDFS_DIR", "libhdfs.so"), ("HADOOP_HOME", "lib/native/libhdfs.so"), ("", "")]
)
def test_libhdfs_is_found_and_declared(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str, below: str) -> None:
    """Without declarations ctypes would cut pointers to 32 bits."""
    native = Native()

    def opened(path: str, use_errno: bool = False) -> Native:
        native.opened.append((path, use_errno))
        return native

    for name in ("ARROW_LIBHDFS_DIR", "HADOOP_HOME"):
        monkeypatch.delenv(name, raising=False)
    path = "libhdfs.so"
    if variable:
        monkeypatch.setenv(variable, str(tmp_path))
        path = f"{tmp_path}/{below}"
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).touch()
    monkeypatch.setattr(ctypes, "CDLL", opened)
    assert fsspec_storage._libhdfs() is native and native.opened == [(path, True)]
    handle, text = ctypes.c_void_p, ctypes.c_char_p
    declared = {name: (function.argtypes, function.restype) for name, function in vars(native).items() if name != "opened"}
    assert declared == {
        "hdfsNewBuilder": (None, handle),
        "hdfsBuilderSetNameNode": ([handle, text], None),
        "hdfsBuilderSetNameNodePort": ([handle, ctypes.c_uint16], None),
        "hdfsBuilderSetUserName": ([handle, text], None),
        "hdfsBuilderSetKerbTicketCachePath": ([handle, text], None),
        "hdfsBuilderConnect": ([handle], handle),
        "hdfsRename": ([handle, text, text], None),
    }


@pytest.mark.parametrize(
    ("module", "package"),
    [
        ("commit_lock", "sqlalchemy"),
        ("guarded_storage", "sqlalchemy"),
        ("catalog_options", "sqlalchemy"),
        ("storage_for_url", "obstore"),
    ],
)
def test_optional_packages_are_not_needed_to_import(module: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    for name in [name for name in sys.modules if name.startswith(("paimon_cli.storage.lock_", "paimon_cli.storage.object_"))]:
        if name != "paimon_cli.storage.catalog_options":
            monkeypatch.delitem(sys.modules, name)
    source = Path(fsspec_storage.__file__).with_name(f"{module}.py")
    spec = importlib.util.spec_from_file_location(f"fresh_{module}", source)
    assert spec is not None and spec.loader is not None
    fresh = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, fresh)
    spec.loader.exec_module(fresh)


def test_local_files_refuse_as_the_disk_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import errno

    storage = LocalStorage()
    for number in (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV):

        def no_link(source: str, target: str, number: int = number) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(os, "link", no_link)
        with pytest.raises(Refused):
            storage.put_if_absent(f"{tmp_path}/f", b"x")
    monkeypatch.undo()
    for operation in (os.stat, os.unlink, os.scandir):

        def fail(path: Any, *rest: Any, **named: Any) -> Any:
            raise OSError(errno.EIO, "Input/output error", str(path))

        monkeypatch.setattr(os, operation.__name__, fail)
        with pytest.raises(StorageUnavailable, match=r"the file system refused .*: Input/output error") as failure:
            {"stat": storage.exists, "unlink": storage.delete, "scandir": storage.list_directory}[operation.__name__](
                f"{tmp_path}/f"
            )
        assert failure.value.details == {"path": f"{tmp_path}/f"}
        monkeypatch.undo()


def test_urls_that_fsspec_does_not_know() -> None:
    with pytest.raises(UsageError, match="cannot open nosuch://h/t"):
        FsspecStorage("nosuch://me:hunter2@h/t?x=1")


@pytest.mark.parametrize("login", ["", "v:x@y@"])
def test_a_password_among_the_parameters_is_no_host(login: str) -> None:
    """A name server must not be asked for the end of a password."""
    address = DatabaseAddress(f"jdbc:postgresql://{login}127.0.0.1:1/db?user=u&password=HUN@TER2", None, None)
    url = sql_database._url(address)
    assert (url.host, url.port, url.database, url.username, url.password) == ("127.0.0.1", 1, "db", "u", "HUN@TER2")
