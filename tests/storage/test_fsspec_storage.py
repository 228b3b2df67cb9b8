"""Storages of fsspec: whole files, a refusal of exclusive creation, never a secret in a message."""

from __future__ import annotations

import os
import pickle
import uuid
from pathlib import Path

import pytest
from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem

from paimon_cli.errors import DamagedFile, Refused, RequestRefused, StorageUnavailable, UsageError
from paimon_cli.storage import fsspec_storage, read_bounds
from paimon_cli.storage.fsspec_storage import FsspecStorage
from paimon_cli.storage.redaction import redact, without_user_info
from tests.ports import free_port


@pytest.fixture
def root() -> str:
    return f"memory://{uuid.uuid4()}/t"


def test_files_are_written_listed_and_deleted(root: str) -> None:
    storage = FsspecStorage(root)
    with storage.open_output(f"{root}/bucket-0/data") as sink:
        sink.write(b"abc")
    storage.write_new(f"{root}/snapshot/snapshot-1", b"{}")
    storage.overwrite(f"{root}/snapshot/LATEST", b"1")
    storage.overwrite(f"{root}/snapshot/LATEST", b"2")
    assert storage.read_bytes(f"{root}/snapshot/LATEST") == b"2"
    with storage.open_input(f"{root}/bucket-0/data") as source:
        source.seek(1)
        assert source.read() == b"bc"
    assert storage.exists(f"{root}/bucket-0/data") and storage.file_size(f"{root}/bucket-0/data") == 3
    listed = {entry.name: entry for entry in storage.list_directory(root)}
    assert {name: entry.is_directory for name, entry in listed.items()} == {"bucket-0": True, "snapshot": True}
    (file,) = storage.list_directory(f"{root}/bucket-0")
    assert (file.path, file.size, file.is_directory) == (f"{root}/bucket-0/data", 3, False)
    assert file.modified_millis > 1_700_000_000_000
    storage.delete(f"{root}/bucket-0/data")
    assert not storage.exists(f"{root}/bucket-0/data")
    storage.delete_directory(root)
    assert storage.list_directory(root) == []


def test_missing_files(root: str) -> None:
    storage = FsspecStorage(root)
    for read in (storage.read_bytes, storage.open_input, storage.file_size):
        with pytest.raises(FileNotFoundError):
            read(f"{root}/missing")
    storage.delete(f"{root}/missing")
    storage.delete_directory(f"{root}/missing")


def test_exclusive_creation_is_refused(tmp_path: Path) -> None:
    url = f"local://{tmp_path}"
    storage = FsspecStorage(url)
    storage.write_new(f"{url}/a/b", b"x")
    assert storage.read_bytes(f"{url}/a/b") == b"x"
    with pytest.raises(Refused, match="no safe commit on local://"):
        storage.put_if_absent(f"{url}/snapshot-1", b"x")


def test_a_file_is_replaced_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"local://{tmp_path}"
    storage = FsspecStorage(url)
    storage.overwrite(f"{url}/hints/LATEST", b"1")
    storage.overwrite(f"{url}/hints/LATEST", b"2")
    assert storage.read_bytes(f"{url}/hints/LATEST") == b"2"

    def fail(self: object, *paths: str, **options: object) -> None:
        raise OSError("no rename today")

    monkeypatch.setattr(LocalFileSystem, "mv", fail)
    with pytest.raises(StorageUnavailable):
        storage.overwrite(f"{url}/hints/LATEST", b"3")
    assert [path.name for path in (tmp_path / "hints").iterdir()] == ["LATEST"]
    assert storage.read_bytes(f"{url}/hints/LATEST") == b"2"


def test_a_storage_travels_and_opens_again(root: str) -> None:
    storage = FsspecStorage(root, {"skip_instance_cache": True})
    storage.write_new(f"{root}/f", b"x")
    assert pickle.loads(pickle.dumps(storage)).read_bytes(f"{root}/f") == b"x"


def test_failures_are_unavailable_without_secrets(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = FsspecStorage(root, {"client_kwargs": {"secret_key": "s3cr3t-value"}})

    def fail(self: object, path: str, *args: object, **options: object) -> bytes:
        raise PermissionError("denied for s3cr3t-value at https://user:pw@host/x?sig=abc")

    monkeypatch.setattr(MemoryFileSystem, "cat_file", fail)
    with pytest.raises(StorageUnavailable) as failure:
        storage.read_bytes(f"{root}/f")
    assert failure.value.why == "PermissionError: denied for *** at https://host/x"
    assert "s3cr3t" not in str(failure.value) and failure.value.__cause__ is None


def test_bugs_are_not_taken_for_failures_of_the_store(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def bug(self: object, path: str, *args: object, **options: object) -> bytes:
        raise KeyError("bug")

    monkeypatch.setattr(MemoryFileSystem, "cat_file", bug)
    with pytest.raises(KeyError):
        FsspecStorage(root).read_bytes(f"{root}/f")


def test_an_unknown_or_uninstalled_store_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="cannot open nosuch://bucket/t"):
        FsspecStorage("nosuch://user:pw@bucket/t")


def test_redaction() -> None:
    assert without_user_info("sftp://me:pw@host/t") == "sftp://host/t"
    assert without_user_info("https://host/t?token=abc") == "https://host/t"
    assert redact("key AKIA1 secret xyz", {"key": "AKIA1", "secret": "xyz", "endpoint_url": "key"}) == "key *** secret ***"
    assert redact("x does not exist", {"s3.secret-key": "x"}) == "*** does not exist"
    assert redact("no jdbc in catalog-key", {"catalog-key": "jdbc"}) == "no jdbc in catalog-key"
    assert redact("GET /aS3c/RET+b", {"account_key": "S3c/RET+"}) == "GET /a***b"
    assert redact("pw=hunter2", {"jdbc.password": "hunter2"}) == "pw=***"


@pytest.mark.parametrize(
    "library", ["aiohttp", "gcsfs.retry", "adlfs", "azure.core.exceptions", "google.auth", "paramiko", "pyarrow", "requests"]
)
def test_errors_of_a_stores_library_are_failures_of_the_store(root: str, monkeypatch: pytest.MonkeyPatch, library: str) -> None:
    error = type("HttpError", (Exception,), {"__module__": library})

    def fail(self: object, path: str, *args: object, **options: object) -> bytes:
        raise error("502")

    monkeypatch.setattr(MemoryFileSystem, "cat_file", fail)
    with pytest.raises(StorageUnavailable, match=r"the storage refused .*: HttpError: 502") as failure:
        FsspecStorage(root).read_bytes(f"{root}/f")
    assert failure.value.details == {"path": f"{root}/f"}


def test_messages_of_the_engine_are_not_reworded(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: object, path: str, *args: object, **options: object) -> bytes:
        raise Refused("as it is")

    monkeypatch.setattr(MemoryFileSystem, "cat_file", fail)
    with pytest.raises(Refused, match="as it is"):
        FsspecStorage(root).read_bytes(f"{root}/f")


def test_missing_files_are_named_without_user_info(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FileNotFoundError) as missing:
        FsspecStorage(root).read_bytes(root.replace("memory://", "memory://me:pw@") + "/f")
    assert str(missing.value) == f"{root}/f"


def test_a_flat_store_gets_no_directories_and_no_temporary_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[str] = []
    for name in ("makedirs", "mv", "pipe_file"):
        monkeypatch.setattr(MemoryFileSystem, name, lambda self, *given, name=name, **named: asked.append(name))
        monkeypatch.setattr(LocalFileSystem, name, lambda self, *given, name=name, **named: asked.append(name))
    root = f"memory://{uuid.uuid4()}/t"
    FsspecStorage(root).overwrite(f"{root}/LATEST", b"1")
    assert asked == ["pipe_file"]
    asked.clear()
    FsspecStorage(f"local://{tmp_path}").overwrite(f"local://{tmp_path}/LATEST", b"1")
    assert asked == ["makedirs", "pipe_file", "mv"]


@pytest.mark.parametrize("protocol", ["memory", "gs", "gcs", "abfs", "abfss", "az", "adl", "oss", "cos", "obs"])
def test_flat_stores_are_known_by_their_scheme(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    root = f"memory://{uuid.uuid4()}/t"
    storage = FsspecStorage(root)
    storage._protocol = protocol

    def fail(self: object, *given: object, **named: object) -> None:
        raise AssertionError("no directory is made there")

    monkeypatch.setattr(MemoryFileSystem, "makedirs", fail)
    storage.write_new(f"{root}/d/f", b"1")
    storage.overwrite(f"{root}/d/f", b"2")
    assert storage.read_bytes(f"{root}/d/f") == b"2"


def test_a_temporary_file_is_beside_its_target_with_a_name_of_its_own(tmp_path: Path) -> None:
    class KnownRandom:
        def uuid(self) -> str:
            return "0815"

        def jitter(self) -> float:
            return 0.0

    storage = FsspecStorage(f"local://{tmp_path}", random=KnownRandom())
    assert storage._temporary("local:///t/snapshot/LATEST") == "local:///t/snapshot/.LATEST.0815.tmp"
    assert pickle.loads(pickle.dumps(FsspecStorage(f"local://{tmp_path}", {"auto_mkdir": True})))._options == {"auto_mkdir": True}


def test_listings_are_never_taken_from_a_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import paimon_cli.storage.fsspec_storage as module

    given: dict[str, object] = {}

    def opened(url: str, **options: object) -> object:
        given.update(options)
        return url_to_fs(url, **options)

    monkeypatch.setattr(module, "url_to_fs", opened)
    FsspecStorage(f"local://{tmp_path}", {"auto_mkdir": True})
    assert given == {"use_listings_cache": False, "auto_mkdir": True}


def test_a_store_that_cannot_be_reached() -> None:
    address = f"ftp://127.0.0.1:{free_port()}/t"
    with pytest.raises(StorageUnavailable, match=f"cannot reach {address}: .*refused"):
        FsspecStorage(address)


def test_hdfs_without_java_says_so_in_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match="Java virtual machine, and none was found") as raised:
        FsspecStorage("hdfs://127.0.0.1:1/t")
    assert "JAVA_HOME" in raised.value.hint and "\n" not in str(raised.value)


def test_hdfs_uses_the_java_on_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = tmp_path / "jdk"
    for name in ("bin/java", "lib/server/libjvm.so"):
        (home / name).parent.mkdir(parents=True)
        (home / name).touch(mode=0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    monkeypatch.setenv("PATH", str(home / "bin"))
    monkeypatch.setattr("paimon_cli.storage.fsspec_storage.url_to_fs", lambda url, **options: (LocalFileSystem(), url))
    FsspecStorage("hdfs://127.0.0.1:1/t")
    assert os.environ["JAVA_HOME"] == str(home)


def test_a_java_home_with_a_java_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """And a directory without one is not taken: another Java may be found."""
    for home in ("chosen", "on_path"):
        for name in ("bin/java", "lib/server/libjvm.so"):
            (tmp_path / home / name).parent.mkdir(parents=True)
            (tmp_path / home / name).touch(mode=0o755)
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "on_path/bin"))
    for home, found in (("chosen", "chosen"), ("empty", "on_path")):
        monkeypatch.setenv("JAVA_HOME", str(tmp_path / home))
        fsspec_storage._find_libjvm("hdfs://nn/t")
        assert os.environ["JAVA_HOME"] == str(tmp_path / found)


def test_a_file_beyond_its_bound_is_refused_before_it_is_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(read_bounds.BOUNDS, "snapshot-", 10)
    url = f"local://{tmp_path}"
    storage = FsspecStorage(url)
    storage.write_new(f"{url}/snapshot-1", b"x" * 10)
    assert storage.read_bytes(f"{url}/snapshot-1") == b"x" * 10
    storage.write_new(f"{url}/snapshot-2", b"x" * 100)
    read: list[int] = []
    whole = storage._fs.cat_file

    def cat_file(*args: object, **kwargs: object) -> bytes:
        read.append(len(content := whole(*args, **kwargs)))
        return content

    monkeypatch.setattr(storage._fs, "cat_file", cat_file)
    with pytest.raises(DamagedFile):
        storage.read_bytes(f"{url}/snapshot-2")
    assert read == [11]


def test_directories_of_new_files_are_made(tmp_path: Path) -> None:
    url = f"local://{tmp_path}"
    storage = FsspecStorage(url)
    with storage.open_output(f"{url}/a/b/f") as sink:
        sink.write(b"x")
    storage.write_new(f"{url}/c/d/f", b"y")
    storage.overwrite(f"{url}/e/f/g", b"z")
    assert [storage.read_bytes(f"{url}/{name}") for name in ("a/b/f", "c/d/f", "e/f/g")] == [b"x", b"y", b"z"]


def test_a_store_that_does_not_answer_has_not_lost_its_files(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """fsspec's `exists` takes any error for no: files that a tag needs would be deleted as those of none."""
    storage = FsspecStorage(root)
    storage.write_new(f"{root}/tag/tag-1", b"x")
    assert storage.exists(f"{root}/tag/tag-1") and storage.exists(f"{root}/tag") and not storage.exists(f"{root}/tag/tag-2")

    def fail(*_: object, **__: object) -> None:
        raise ConnectionResetError("away")

    def deny(*_: object, **__: object) -> None:
        raise PermissionError("not yours")

    for failure, expected in ((fail, StorageUnavailable), (deny, RequestRefused)):
        for name in ("info", "ls"):
            monkeypatch.setattr(storage._fs, name, failure)
        for call in (storage.exists, storage.list_directory, storage.file_size):
            with pytest.raises(StorageUnavailable) as raised:
                call(f"{root}/tag/tag-1")
            assert type(raised.value) is expected


def test_a_look_that_was_given_up_lists_nothing(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class GivenUp(BaseException): ...

    def give_up() -> None:
        raise GivenUp

    monkeypatch.setattr(fsspec_storage, "check_time", give_up)
    with pytest.raises(GivenUp):
        FsspecStorage(root).list_directory(root)


@pytest.mark.parametrize("error", [ValueError, TypeError, ImportError, ConnectionError])
def test_errors_while_a_store_is_opened_show_no_secrets(monkeypatch: pytest.MonkeyPatch, error: type[Exception]) -> None:
    """Neither those of options nor of the URL, which the library quotes."""
    url = "sftp://me:pa55word@h/t"

    def fail(*_: object, **options: object) -> None:
        raise error(f"{url} with {options} failed")

    monkeypatch.setattr(fsspec_storage, "url_to_fs", fail)
    with pytest.raises((UsageError, StorageUnavailable)) as raised:
        FsspecStorage(url, {"key": "53cr3t"})
    assert not {word for word in ("pa55word", "53cr3t") if word in f"{raised.value} {raised.value.details} {raised.value.hint}"}
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(UsageError) as raised:
        FsspecStorage("hdfs://me:pa55word@h/t")
    assert "pa55word" not in str(raised.value)


def test_an_entry_for_the_directory_itself_is_none_of_its_files(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = FsspecStorage(root)
    own = storage._inner(f"{root}/d").rstrip("/")
    entries = [
        {"name": f"{own}/", "type": "file", "size": 0},
        {"name": f"{own}/x/", "type": "directory", "size": None},
        {"name": f"{own}/f", "type": "file", "size": 3, "LastModified": 1.5},
    ]
    monkeypatch.setattr(storage._fs, "ls", lambda *_, **__: entries)
    found = [(entry.path, entry.is_directory, entry.size, entry.modified_millis) for entry in storage.list_directory(f"{root}/d")]
    assert found == [(f"{root}/d/x", True, 0, 0), (f"{root}/d/f", False, 3, 1500)]
