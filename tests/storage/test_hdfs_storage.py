"""Commits on HDFS with stand-ins for the name node: a rename in memory, a fake libhdfs, a REST server on loopback."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from paimon_cli.errors import StorageUnavailable
from paimon_cli.storage.fsspec_storage import HdfsStorage, LibhdfsRename
from paimon_cli.storage.storage import PutOutcome

CREATED, EXISTS, UNKNOWN = PutOutcome.CREATED, PutOutcome.EXISTS, PutOutcome.UNKNOWN


class NameNode:
    """Renames files of fsspec's memory, one at a time and never over a file. `fails`: before or after its effect."""

    def __init__(self) -> None:
        self.fails: str | None = None
        self._lock = threading.Lock()
        self._files = MemoryFileSystem()

    def rename(self, source: str, target: str) -> bool:
        with self._lock:
            if self.fails == "before":
                raise OSError(255, "the name node is away")
            if self._files.exists(target):
                return False
            self._files.mv(source, target)
            if self.fails == "after":
                raise OSError(255, "the answer got lost")
            return True


@pytest.fixture
def node() -> NameNode:
    return NameNode()


@pytest.fixture
def root() -> str:
    return f"memory://{uuid.uuid4()}/t/snapshot"


def names(storage: HdfsStorage, root: str) -> list[str]:
    return [entry.name for entry in storage.list_directory(root)]


def test_one_of_many_writers_wins(node: NameNode, root: str) -> None:
    storage = HdfsStorage(root, rename=node.rename)
    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(lambda n: storage.put_if_absent(f"{root}/snapshot-1", b"%d" % n), range(8)))
    assert outcomes.count(CREATED) == 1 and outcomes.count(EXISTS) == 7
    assert storage.read_bytes(f"{root}/snapshot-1") == b"%d" % outcomes.index(CREATED)
    assert names(storage, root) == ["snapshot-1"], "no temporary file is left"


@pytest.mark.parametrize(("fails", "left"), [("before", []), ("after", ["snapshot-1"])])
def test_an_exception_is_unknown(node: NameNode, root: str, fails: str, left: list[str]) -> None:
    storage = HdfsStorage(root, rename=node.rename)
    node.fails = fails
    assert storage.put_if_absent(f"{root}/snapshot-1", b"mine") is UNKNOWN
    assert names(storage, root) == left


class FakeLibhdfs:
    """The functions of libhdfs that are called, on a `NameNode`."""

    def __init__(self, node: NameNode, connects: bool = True) -> None:
        self._node = node
        self._connects = connects
        self.settings: dict[str, Any] = {}

    def hdfsNewBuilder(self) -> int:
        return 1

    def hdfsBuilderSetNameNode(self, builder: int, name: bytes) -> None:
        self.settings["host"] = name

    def hdfsBuilderSetNameNodePort(self, builder: int, port: int) -> None:
        self.settings["port"] = port

    def hdfsBuilderSetUserName(self, builder: int, name: bytes) -> None:
        self.settings["user"] = name

    def hdfsBuilderSetKerbTicketCachePath(self, builder: int, path: bytes) -> None:
        self.settings["ticket"] = path

    def hdfsBuilderConnect(self, builder: int) -> int | None:
        ctypes.set_errno(errno.ECONNREFUSED)
        return 7 if self._connects else None

    def hdfsRename(self, connection: int, source: bytes, target: bytes) -> int:
        assert connection == 7
        try:
            done = self._node.rename(source.decode(), target.decode())
        except OSError as error:
            ctypes.set_errno(error.errno or 0)
            return -1
        ctypes.set_errno(errno.EIO)  # how libhdfs hands on Java's `false`
        return 0 if done else -1


def test_libhdfs(node: NameNode, root: str) -> None:
    library = FakeLibhdfs(node)
    rename = LibhdfsRename("hdfs://NameService1:8020/wh", {"kerb_ticket": "/tmp/ticket", "user": "me"}, library)
    assert library.settings == {"host": b"NameService1", "port": 8020, "user": b"me", "ticket": b"/tmp/ticket"}
    storage = HdfsStorage(root, rename=rename)
    assert storage.put_if_absent(f"{root}/snapshot-1", b"mine") is CREATED
    assert storage.put_if_absent(f"{root}/snapshot-1", b"theirs") is EXISTS
    node.fails = "after"
    assert storage.put_if_absent(f"{root}/snapshot-2", b"mine") is UNKNOWN


def test_libhdfs_without_a_host_takes_the_configured_one(node: NameNode) -> None:
    library = FakeLibhdfs(node)
    LibhdfsRename("hdfs:///wh", {}, library)
    assert library.settings == {"host": b"default", "port": 0}


def test_libhdfs_that_does_not_connect(node: NameNode) -> None:
    with pytest.raises(StorageUnavailable, match="no connection to the name node nn:1"):
        LibhdfsRename("hdfs://nn:1/wh", {}, FakeLibhdfs(node, connects=False))


def test_without_libhdfs_the_message_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HADOOP_HOME", "/nowhere")
    with pytest.raises(StorageUnavailable, match="cannot find Hadoop's libhdfs"):
        LibhdfsRename("hdfs://nn/wh", {})


def test_a_command_reaches_for_libhdfs(tmp_path: Path) -> None:
    """A process of the command imports less of Arrow, but its client of HDFS, which is the only one."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "HADOOP_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "paimon_cli", "describe", "hdfs://localhost:9/wh/d.db/t"]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert (done.returncode, "libhdfs" in done.stderr) == (6, True), done.stderr


class WebHdfs(BaseHTTPRequestHandler):
    """As much of Hadoop's REST interface as a commit needs."""

    files: dict[str, bytes]
    is_gateway = False
    """Whether this is HttpFS, which does not know `renameoptions`."""

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        path = url.path.removeprefix("/webhdfs/v1")
        if path.endswith("-13"):
            return self._answer(403, {"RemoteException": {"exception": "StandbyException", "message": "not active"}})
        status = {"type": "FILE", "modificationTime": 1_700_000_000_123}
        if "LISTSTATUS" in url.query:
            found = [(name, data) for name, data in self.files.items() if name.startswith(f"{path}/")]
            entries = [{**status, "pathSuffix": name.removeprefix(f"{path}/"), "length": len(data)} for name, data in found]
            return self._answer(200, {"FileStatuses": {"FileStatus": entries}})
        if path not in self.files:
            return self._answer(404, {"RemoteException": {"exception": "FileNotFoundException", "message": path}})
        return self._answer(200, {"FileStatus": {**status, "pathSuffix": "", "length": len(self.files[path])}})

    def do_PUT(self) -> None:
        url = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        path, body = url.path.removeprefix("/webhdfs/v1"), self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if query["op"] == "MKDIRS":
            return self._answer(200, {"boolean": True})
        if query["op"] == "CREATE" and "data" not in query:
            return self._answer(307, {}, Location=f"http://{self.headers['Host']}{self.path}&data=true")
        if query["op"] == "CREATE":
            self.files[path] = body
            return self._answer(201, {})
        if query["destination"].endswith("-13"):
            return self._answer(500, {"RemoteException": {"exception": "StandbyException", "message": "not active"}})
        if query.get("renameoptions") == "OVERWRITE" and not self.is_gateway:
            self.files[query["destination"]] = self.files.pop(path)
            return self._answer(200, None)
        free = query["destination"] not in self.files
        if free:
            self.files[query["destination"]] = self.files.pop(path)
        return self._answer(200, {"boolean": free})

    def do_POST(self) -> None:
        path = urlsplit(self.path).path.removeprefix("/webhdfs/v1")
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if "data" not in self.path:
            return self._answer(307, {}, Location=f"http://{self.headers['Host']}{self.path}&data=true")
        self.files[path] += body
        return self._answer(200, {})

    def do_DELETE(self) -> None:
        self.files.pop(urlsplit(self.path).path.removeprefix("/webhdfs/v1"), None)
        self._answer(200, {"boolean": True})

    def _answer(self, status: int, content: dict[str, Any] | None, **headers: str) -> None:
        self.send_response(status)
        body = b"" if content is None else json.dumps(content).encode()
        for name, value in {**headers, "Content-Length": str(len(body)), "Content-Type": "application/json"}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None: ...


@pytest.fixture
def web_hdfs(request: pytest.FixtureRequest) -> Iterator[tuple[str, dict[str, bytes]]]:
    files: dict[str, bytes] = {}
    settings = {"files": files, "is_gateway": getattr(request, "param", False)}
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (WebHdfs,), settings))
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"webhdfs://127.0.0.1:{server.server_port}/wh/t", files
    server.shutdown()
    server.server_close()


def test_rename_by_rest(web_hdfs: tuple[str, dict[str, bytes]]) -> None:
    root, files = web_hdfs
    storage = HdfsStorage(root)
    assert storage.put_if_absent(f"{root}/snapshot-1", b"mine") is CREATED
    assert storage.put_if_absent(f"{root}/snapshot-1", b"theirs") is EXISTS
    assert storage.put_if_absent(f"{root}/snapshot-13", b"theirs") is UNKNOWN
    assert files == {"/wh/t/snapshot-1": b"mine"}


@pytest.mark.parametrize("web_hdfs", [False, True], indirect=True, ids=["name node", "gateway"])
def test_a_file_is_replaced_by_rest(web_hdfs: tuple[str, dict[str, bytes]]) -> None:
    """A plain rename would not replace a file that exists, nor say so: a moved tag would stay where it was."""
    root, files = web_hdfs
    storage = HdfsStorage(root)
    for content in (b"1", b"2", b"3"):
        storage.overwrite(f"{root}/tag-x", content)
        assert files == {"/wh/t/tag-x": content}
    with pytest.raises(StorageUnavailable, match="not active"):
        storage.overwrite(f"{root}/tag-13", b"4")
    assert files == {"/wh/t/tag-x": b"3"}, "no temporary file is left"


def test_files_have_their_times_by_rest(web_hdfs: tuple[str, dict[str, bytes]]) -> None:
    """A consumer that seems to be of 1970 would expire at once."""
    root, files = web_hdfs
    files["/wh/t/consumer/consumer-a"] = b"{}"
    (entry,) = HdfsStorage(root).list_directory(f"{root}/consumer")
    assert (entry.path, entry.size, entry.modified_millis) == (f"{root}/consumer/consumer-a", 2, 1_700_000_000_123)


def test_a_name_node_that_does_not_answer_does_not_mean_that_a_file_is_missing(web_hdfs: tuple[str, dict[str, bytes]]) -> None:
    root, files = web_hdfs
    files["/wh/t/tag-1"] = b"x"
    storage = HdfsStorage(root)
    assert storage.exists(f"{root}/tag-1") and not storage.exists(f"{root}/tag-2")
    for call in (storage.exists, storage.file_size, storage.list_directory, storage.open_input):
        with pytest.raises(StorageUnavailable, match="not active"):
            call(f"{root}/tag-13")


@pytest.mark.parametrize("answer", [{}, [], {"bool": True}])
def test_an_answer_that_is_none_of_a_name_node_is_unclear(
    web_hdfs: tuple[str, dict[str, bytes]], monkeypatch: pytest.MonkeyPatch, answer: Any
) -> None:
    class Odd:
        def json(self) -> Any:
            return answer

    storage = HdfsStorage(web_hdfs[0])
    monkeypatch.setattr(storage._fs, "_call", lambda *_, **__: Odd())
    with pytest.raises(OSError):
        storage._rename("/a", "/b")


def test_directories_are_moved_to_a_free_place(tmp_path: Path) -> None:
    def rename(source: str, target: str) -> bool:
        if not os.path.exists(source) or os.path.exists(target):
            return False
        os.rename(source, target)
        return True

    url = f"local://{tmp_path}"
    storage = HdfsStorage(url, rename=rename)
    for name in ("a", "b"):
        storage.write_new(f"{url}/{name}/f", b"")
    with pytest.raises(StorageUnavailable, match="FileExistsError"):
        storage.move_directory(f"{url}/a", f"{url}/b")
    with pytest.raises(FileNotFoundError):
        storage.move_directory(f"{url}/gone", f"{url}/c")
    storage.move_directory(f"{url}/a", f"{url}/new/trash/a")
    assert (tmp_path / "new/trash/a/f").exists() and (tmp_path / "b/f").exists() and not (tmp_path / "a").exists()


def test_without_a_connection_no_file_is_written(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HADOOP_HOME", "/nowhere")
    storage = HdfsStorage(root)
    with pytest.raises(StorageUnavailable, match="libhdfs"):
        storage.put_if_absent(f"{root}/snapshot-1", b"mine")
    assert storage.list_directory(root) == []


def test_texts_of_the_builder_live_until_it_has_connected(node: NameNode) -> None:
    """The builder keeps pointers to them."""
    gone: list[bytes] = []

    class Bytes(bytes):
        def __del__(self) -> None:
            gone.append(bytes(self))

    class Text(str):
        def encode(self, *_: Any) -> bytes:
            return Bytes(str.encode(self))

    class Value:
        def __init__(self, text: str) -> None:
            self._text = text

        def __str__(self) -> str:
            return Text(self._text)

    class Pointers(FakeLibhdfs):
        def hdfsBuilderSetUserName(self, builder: int, name: bytes) -> None: ...
        def hdfsBuilderSetKerbTicketCachePath(self, builder: int, path: bytes) -> None: ...
        def hdfsBuilderConnect(self, builder: int) -> int:
            assert gone == []
            return 7

    LibhdfsRename("hdfs://nn/wh", {"user": Value("me"), "kerb_ticket": Value("/t")}, Pointers(node))
    assert sorted(gone) == [b"/t", b"me"]


def test_the_name_node_is_asked_with_the_options_of_the_storage(node: NameNode, monkeypatch: pytest.MonkeyPatch) -> None:
    from paimon_cli.storage import fsspec_storage

    library = FakeLibhdfs(node)
    loaded: list[FakeLibhdfs] = []

    def load() -> FakeLibhdfs:
        loaded.append(library)
        return library

    monkeypatch.setattr(fsspec_storage, "_libhdfs", load)
    root = f"memory://{uuid.uuid4()}:9000/t/snapshot"
    storage = HdfsStorage(root, {"user": "me", "kerb_ticket": "/tmp/ticket"})
    assert loaded == [], "nothing is connected before the first commit"
    for number in (1, 2):
        assert storage.put_if_absent(f"{root}/snapshot-{number}", b"mine") is CREATED
    assert library.settings["user"] == b"me" and library.settings["ticket"] == b"/tmp/ticket"
    assert library.settings["port"] == 9000 and loaded == [library], "one connection for all"


@pytest.mark.parametrize(
    ("url", "options", "settings"),
    [
        ("hdfs://you:pw@nn:1/wh", {}, {"host": b"nn", "port": 1, "user": b"you"}),
        ("hdfs://you@nn/wh", {"user": "me"}, {"host": b"nn", "port": 0, "user": b"me"}),
        ("hdfs://nn:8020/wh", {"kerb_ticket": "/t"}, {"host": b"nn", "port": 8020, "ticket": b"/t"}),
    ],
)
def test_settings_of_the_name_node(node: NameNode, url: str, options: dict[str, str], settings: dict[str, Any]) -> None:
    library = FakeLibhdfs(node)
    LibhdfsRename(url, options, library)
    assert library.settings == settings


@pytest.mark.parametrize("code", [errno.EIO, errno.EEXIST])
def test_a_target_that_exists_is_not_an_error(node: NameNode, code: int) -> None:
    class Taken(FakeLibhdfs):
        def hdfsRename(self, connection: int, source: bytes, target: bytes) -> int:
            ctypes.set_errno(code)
            return -1

    assert LibhdfsRename("hdfs://nn/wh", {}, Taken(node))("a", "b") is False


def test_any_other_error_of_a_rename_is_unclear(node: NameNode) -> None:
    class Broken(FakeLibhdfs):
        def hdfsRename(self, connection: int, source: bytes, target: bytes) -> int:
            ctypes.set_errno(errno.EACCES)
            return -1

    with pytest.raises(OSError, match="Permission denied") as failure:
        LibhdfsRename("hdfs://nn/wh", {}, Broken(node))("a", "b")
    assert (failure.value.errno, failure.value.filename) == (errno.EACCES, "b")


def test_a_temporary_file_that_stays_does_not_change_the_outcome(node: NameNode, root: str) -> None:
    class Sticky(HdfsStorage):
        def delete(self, path: str) -> None:
            raise StorageUnavailable("it stays")

    storage = Sticky(root, rename=node.rename)
    assert storage.put_if_absent(f"{root}/snapshot-1", b"mine") is CREATED
    assert storage.put_if_absent(f"{root}/snapshot-1", b"theirs") is EXISTS
    node.fails = "before"
    assert storage.put_if_absent(f"{root}/snapshot-2", b"theirs") is UNKNOWN
