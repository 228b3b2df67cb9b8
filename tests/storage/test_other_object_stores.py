"""Google Cloud Storage and Azure keep the promises of S3: each with its own conditional put, and the same rules around it.

`TEST_AZURITE` and `TEST_FAKE_GCS_SERVER` name programs that are tested, too (`python -m scripts.nightly.store_servers`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest

from paimon_cli.api.catalog import Catalog
from paimon_cli.api.runtime import Runtime
from paimon_cli.api.table import Table
from paimon_cli.commit.committer import Committer
from paimon_cli.commit.deduplication import CommitIdentity
from paimon_cli.errors import CommitUnknown, FilesLeft, NotFound, Refused, StorageUnavailable
from paimon_cli.history.table_context import TableContext
from paimon_cli.maintain.branches import create_branch
from paimon_cli.maintain.file_deletion import delete_portion
from paimon_cli.maintain.tags import create_tag
from paimon_cli.pieces import PIECES
from paimon_cli.storage import guarded_storage
from paimon_cli.storage.catalog_options import OBJECT_STORES
from paimon_cli.storage.counted_storage import DELETIONS, counting_requests
from paimon_cli.storage.deletions import delete_all
from paimon_cli.storage.injected import SystemRandom
from paimon_cli.storage.object_storage import ObjectStorage
from paimon_cli.storage.object_stores import StoreSettings
from paimon_cli.storage.storage import PutOutcome
from tests.commit.commit_tables import SteppingClock, live_names
from tests.jobs.backups import check_same
from tests.storage.blob_servers import AzureServer, BlobServer, GoogleServer
from tests.storage.s3_proxy import Answer, Fate, Request, Rule, S3Proxy
from tests.storage.store_servers import Azurite, FakeGcs, StoreProgram
from tests.storage.test_s3_tables import message, open_table, pairs, publishes, run
from tests.tables import make_table, rows, write

CREATED, EXISTS, UNKNOWN = PutOutcome.CREATED, PutOutcome.EXISTS, PutOutcome.UNKNOWN
SECRET = "c2VjcmV0LWFjY291bnQta2V5"


@dataclass
class Store:
    """A store of one service, accessed through a proxy: a server of the tests, or a third-party program."""

    scheme: str
    server: BlobServer | StoreProgram
    proxy: S3Proxy
    bucket: str = "box"

    @property
    def options(self) -> dict[str, str]:
        if isinstance(self.server, StoreProgram):
            return self.server.options(self.proxy.endpoint)
        if self.scheme == "gs":
            return {"gs.endpoint": self.proxy.endpoint, "gs.auth.access.token": SECRET}
        endpoint = f"{self.proxy.endpoint}/account"
        return {"azure.endpoint": endpoint, "azure.account.name": "account", "azure.account.key": SECRET}

    @property
    def secret(self) -> str:
        return self.options["gs.auth.access.token" if self.scheme == "gs" else "azure.account.key"]

    @property
    def root(self) -> str:
        name = f"{self.bucket}@account.dfs.core.windows.net" if self.scheme == "abfss" else self.bucket
        return f"{self.scheme}://{name}"

    @property
    def storage(self) -> ObjectStorage:
        return ObjectStorage(StoreSettings.from_options(OBJECT_STORES[self.scheme], self.options), SteppingClock())

    @property
    def blobs(self) -> dict[str, bytes]:
        """All that is stored in the bucket, past the proxy, by key."""
        found = self.server.blobs(self.bucket) if isinstance(self.server, StoreProgram) else self.server.blobs
        return {path.removeprefix(f"{self.bucket}/"): content for path, content in found.items()}

    def fill(self, keys: Iterable[str], content: bytes = b"") -> None:
        for key in keys:
            if isinstance(self.server, StoreProgram):
                self.server.put_blob(self.bucket, key, content)
            else:
                self.server.blobs[f"{self.bucket}/{key}"] = content


PROGRAMS: dict[str, tuple[type[StoreProgram], str, str]] = {
    "azurite": (Azurite, "TEST_AZURITE", "az"),
    "fake-gcs-server": (FakeGcs, "TEST_FAKE_GCS_SERVER", "gs"),
}
GIVEN = [name for name, (_, variable, _) in PROGRAMS.items() if variable in os.environ]


@pytest.fixture(scope="module")
def programs() -> Iterator[dict[str, StoreProgram]]:
    with ExitStack() as running:
        yield {name: running.enter_context(PROGRAMS[name][0](os.environ[PROGRAMS[name][1]])) for name in GIVEN}


@pytest.fixture(params=["gs", "az", "abfss", *GIVEN])
def store(request: pytest.FixtureRequest, programs: dict[str, StoreProgram]) -> Iterator[Store]:
    if request.param in PROGRAMS:
        program = programs[request.param]
        bucket = program.new_bucket().partition("://")[2]
        with S3Proxy(program.port) as proxy:
            yield Store(PROGRAMS[request.param][2], program, proxy, bucket)
        return
    kind = GoogleServer if request.param == "gs" else AzureServer
    with kind() as server, S3Proxy(server.port) as proxy:
        yield Store(request.param, server, proxy)


def once(fate: Fate | Answer, wanted: str = "PUT") -> Rule:
    left = [fate]
    return lambda request: left.pop() if left and request.method == wanted else Fate.PASS


def test_files_are_written_read_listed_and_deleted(store: Store) -> None:
    storage, root = store.storage, f"{store.root}/wh/t"
    for name in ("snapshot/snapshot-1", "snapshot/a b%20c=d", "bucket-1/a", "bucket-10/b"):
        storage.write_new(f"{root}/{name}", name.encode())
    assert storage.read_bytes(f"{root}/snapshot/a b%20c=d") == b"snapshot/a b%20c=d"
    assert "wh/t/snapshot/a b%20c=d" in store.blobs, "keys are taken as they are"
    with storage.open_input(f"{root}/bucket-1/a") as source:
        assert source.seek(-3, os.SEEK_END) == 7 and source.read() == b"1/a"
    assert {e.name: e.is_directory for e in storage.list_directory(root)} == {
        **dict.fromkeys(["snapshot", "bucket-1", "bucket-10"], True)
    }
    (file,) = storage.list_directory(f"{root}/bucket-1")
    assert (file.path, file.size, file.is_directory) == (f"{root}/bucket-1/a", 10, False)
    assert storage.exists(file.path) and not storage.exists(f"{root}/bucket-1/b")
    for ask in (storage.read_bytes, storage.open_input, storage.file_size):
        with pytest.raises(FileNotFoundError):
            ask(f"{root}/missing")
    storage.delete(f"{root}/missing")
    storage.delete(file.path)
    storage.delete_directory(f"{root}/missing")
    storage.delete_directory(f"{root}/bucket-1")
    assert [e.name for e in storage.list_directory(f"{root}/bucket-10")] == ["b"]
    storage.delete_directory(root)
    assert store.blobs == {}


@pytest.mark.nightly
def test_more_objects_than_a_page_holds(store: Store) -> None:
    store.fill(f"many/f{number}" for number in range(1203))
    storage = store.storage
    assert len(storage.list_directory(f"{store.root}/many")) == 1203
    assert len(storage.first_entries(f"{store.root}/many", 7)) == 7
    storage.delete_directory(f"{store.root}/many")
    assert store.blobs == {}


def test_large_files_go_in_parts_and_appear_whole(store: Store) -> None:
    storage, path = store.storage, f"{store.root}/large"
    content = os.urandom(PIECES.upload_part_bytes * 2 + 17)
    with storage.open_output(path) as sink:
        sink.write(content)
        assert not storage.exists(path)
    assert storage.read_bytes(path) == content

    def fail() -> None:
        with storage.open_output(f"{path}-2") as sink:
            sink.write(content)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert not storage.exists(f"{path}-2")


class TestPutIfAbsent:
    def put(self, store: Store, fate: Fate | Answer, data: bytes = b"mine") -> PutOutcome:
        store.proxy.rule = once(fate)
        return store.storage.put_if_absent(f"{store.root}/p", data)

    def puts(self, store: Store) -> int:
        assert all(request.is_put_if_absent for request in store.proxy.requests if request.method == "PUT")
        return sum(request.method == "PUT" for request in store.proxy.requests)

    def test_created_then_exists(self, store: Store) -> None:
        assert self.put(store, Fate.PASS) is CREATED
        assert self.put(store, Fate.PASS, b"theirs") is EXISTS
        assert store.blobs == {"p": b"mine"} and self.puts(store) == 2

    @pytest.mark.parametrize("fate", [Fate.LOSE_ANSWER, Answer(500, "InternalError"), Answer(503, "SlowDown"), Fate.LOSE_REQUEST])
    def test_no_clear_answer_is_unknown_and_is_not_repeated(self, store: Store, fate: Fate | Answer) -> None:
        assert self.put(store, fate) is UNKNOWN and self.puts(store) == 1
        assert store.blobs == ({"p": b"mine"} if fate is Fate.LOSE_ANSWER else {})

    @pytest.mark.parametrize("status", [409, 412])
    def test_a_file_that_reportedly_exists_and_is_missing_may_have_been_ours(self, store: Store, status: int) -> None:
        assert self.put(store, Answer(status, "Conflict")) is UNKNOWN and self.puts(store) == 1

    def test_a_poll_may_fail(self, store: Store) -> None:
        self.put(store, Fate.PASS)
        store.proxy.rule = lambda request: Answer(403, "No") if request.method == "HEAD" else Fate.PASS
        assert store.storage.put_if_absent(f"{store.root}/p", b"theirs") is UNKNOWN

    @pytest.mark.parametrize("status", [400, 401, 403, 404])
    def test_refusals_wrote_nothing(self, store: Store, status: int) -> None:
        with pytest.raises(StorageUnavailable) as refused:
            self.put(store, Answer(status, f"Denied {store.secret}"))
        assert "Denied ***" in str(refused.value) and store.secret not in f"{refused.value} {refused.value.hint}"
        assert store.blobs == {} and self.puts(store) == 1

    def test_a_store_without_conditional_puts(self, store: Store) -> None:
        with pytest.raises(Refused, match="no conditional put"):
            self.put(store, Answer(501, "NotImplemented"))

    def test_one_of_many_writers_wins(self, store: Store) -> None:
        storage = store.storage
        with ThreadPoolExecutor(8) as pool:
            for number in range(5):
                path = f"{store.root}/race-{number}"
                outcomes = list(pool.map(lambda n, path=path: storage.put_if_absent(path, b"%d" % n), range(8)))
                assert outcomes.count(CREATED) == 1 and outcomes.count(EXISTS) == 7
                assert storage.read_bytes(path) == b"%d" % outcomes.index(CREATED)


def test_the_conditional_put_is_proven_before_it_is_trusted(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarded_storage, "_proven", {})
    assert guarded_storage.has_primitive(store.storage, f"{store.root}/t", SystemRandom())
    monkeypatch.setattr(guarded_storage, "_proven", {})
    store.proxy.rule = lambda request: Fate.UNCONDITIONAL
    if isinstance(store.server, Azurite):  # it checks signatures, and they cover the condition
        with pytest.raises(StorageUnavailable, match="AuthorizationFailure"):
            guarded_storage.has_primitive(store.storage, f"{store.root}/t", SystemRandom())
    else:
        assert not guarded_storage.has_primitive(store.storage, f"{store.root}/t", SystemRandom())


def test_an_emulator_of_google_needs_no_account() -> None:
    with GoogleServer() as server:
        table = ("gs://box/t", "--option", f"gs.endpoint=http://127.0.0.1:{server.port}")
        run("create", *table, "-C", "k INT")
        assert run("read", *table, "--count").out == "0\n"


def test_a_body_that_is_cut_off_is_read_on(store: Store) -> None:
    content = os.urandom(100_000)
    store.fill(["long"], content)
    store.proxy.rule = once(Fate.CUT_ANSWER, "GET")
    assert store.storage.read_bytes(f"{store.root}/long") == content


class TestTables:
    def test_commands_end_to_end(self, store: Store) -> None:
        table, options = f"{store.root}/wh/shop.db/orders", pairs(store.options)
        run("create", table, "-C", "k INT NOT NULL", "-C", "v STRING", "--primary-key", "k", "--bucket", 2, *options)
        for row in ('{"k": 1, "v": "a"}', '{"k": 2, "v": "b"}', '{"k": 1, "v": "c"}'):
            out = run("write", table, "-", "--format", "json", "--engine", "local", *options, stdin=row)
            assert store.secret not in out.out + out.err
        run("compact", table, "--engine", "local", *options)
        rows = run("read", table, "-o", "ndjson", *options).lines
        assert sorted((row["k"], row["v"]) for row in rows) == [(1, "c"), (2, "b")]
        run("drop", table, "--purge", "-y", *options)
        assert store.blobs == {}

    @pytest.mark.parametrize(("fate", "times"), [(Fate.LOSE_ANSWER, 1), (Fate.LOSE_REQUEST, 3), (Answer(500, "Error"), 2)])
    def test_a_commit_whose_answers_get_lost_is_made_once(
        self, store: Store, tmp_path: Path, fate: Fate | Answer, times: int
    ) -> None:
        context = open_table(f"{store.root}/t", store.options, tmp_path)
        Committer(context).commit([message("before")], CommitIdentity("me"))
        left = [fate] * times
        store.proxy.rule = lambda request: left.pop() if left and publishes(2, request) else Fate.PASS
        result = Committer(context).commit([message("mine")], CommitIdentity("me", 7))
        again = Committer(context).commit([message("mine")], CommitIdentity("me", 7))
        assert (result.attempts, [snapshot.id for snapshot in result.snapshots]) == (1, [2])
        assert again.already_committed and live_names(context) == ["before@0", "mine@0"]

    def test_a_store_that_becomes_unavailable_leaves_the_outcome_open(self, store: Store, tmp_path: Path) -> None:
        context = open_table(f"{store.root}/t", store.options, tmp_path)

        def vanish(request: Request) -> Fate | Answer:
            if publishes(1, request):
                store.proxy.rule = lambda request: Answer(403, "AccessDenied")
                return Fate.LOSE_ANSWER
            return Fate.PASS

        store.proxy.rule = vanish
        with pytest.raises(CommitUnknown) as failure:
            Committer(context).commit([message("mine")], CommitIdentity("me"))
        store.proxy.rule = lambda request: Fate.PASS
        assert failure.value.exit_code == 11 and live_names(context) == ["mine@0"], "it was made, and nothing was deleted"


class TestDeletingMany:
    """Azure takes 256 files a request, Google one; several requests are sent at a time."""

    def test_as_few_requests_as_the_service_allows(self, store: Store) -> None:
        count = 20 if store.scheme == "gs" else 300
        paths = [f"{store.root}/gone/f{number}" for number in range(count)]
        store.fill(f"gone/f{number}" for number in range(count))
        with counting_requests() as counts:
            delete_all(store.storage, paths)
        sent = [request.method for request in store.proxy.requests if request.method in ("POST", "DELETE")]
        assert sent == (["DELETE"] * count if store.scheme == "gs" else ["POST"] * 2)
        assert counts[DELETIONS] == len(sent) and not any(key.startswith("gone/") for key in store.blobs)

    def test_what_is_left_is_named(self, store: Store) -> None:
        """After a refusal the files go one by one, so that the error names the one that cannot."""
        paths = [f"{store.root}/gone/f{number}" for number in range(9)]
        store.fill(f"gone/f{number}" for number in range(9))
        batches = count()

        def refuse(request: Request) -> Fate | Answer:
            """On Azure the batch of all files, and that of the eighth; on Google the eighth both times."""
            is_batch_refused = request.method == "POST" and next(batches) in (0, 8)
            is_one = request.method == "DELETE" and request.path.endswith("f7")
            return Answer(403, "AccessDenied") if is_batch_refused or is_one else Fate.PASS

        store.proxy.rule = refuse
        with pytest.raises(StorageUnavailable, match="/gone/f7"):
            delete_all(store.storage, paths)
        assert [key for key in store.blobs if key.startswith("gone/")] == ["gone/f7"]

    def test_a_locked_file_does_not_keep_the_others(self, store: Store) -> None:
        """Whether they are deleted together or with their directory; each is refused in the words of its service."""
        if isinstance(store.server, StoreProgram):
            pytest.skip("the program has no locks")
        paths = [f"{store.root}/gone/f{number}" for number in range(9)]
        store.server.locked.add(f"{store.bucket}/gone/f3")
        for delete in (
            lambda: delete_portion(store.storage, paths).check("later"),
            lambda: store.storage.delete_directory(f"{store.root}/gone"),
        ):
            store.fill(f"gone/f{number}" for number in range(9))
            with pytest.raises(FilesLeft, match=r"^8 files deleted, 1 refused: .* refused .*/gone/f3 ") as left:
                delete()
            assert (left.value.deleted, left.value.refused, left.value.hint) in ((8, 1, "later"), (8, 1, ""))
            assert [key for key in store.blobs if key.startswith("gone/")] == ["gone/f3"]
        store.server.locked.clear()

    def test_a_missing_file_is_no_error(self, store: Store) -> None:
        store.fill(f"gone/f{number}" for number in range(8))
        delete_all(store.storage, [f"{store.root}/gone/f{number}" for number in range(9)])
        assert not any(key.startswith("gone/") for key in store.blobs)


def test_a_killed_client_is_no_error_of_a_server(capsys: pytest.CaptureFixture[str]) -> None:
    """Else the kills of the nightly programs print a traceback for each connection."""
    for error, is_shown in ((ConnectionResetError(), False), (ValueError(), True)):
        with S3Proxy(upstream_port=1) as proxy:
            try:
                raise error
            except Exception:
                proxy.server.handle_error(None, ("127.0.0.1", 1))
        assert bool(capsys.readouterr().err) == is_shown


def test_a_backup_there_and_back(store: Store, tmp_path: Path) -> None:
    """From local disk to the store, to another place of the bucket, and back; what a drop leaves comes back."""
    table, backup = tmp_path / "wh/shop.db/orders", f"{store.root}/backup/shop.db/orders"
    run("create", table, "-C", "k INT NOT NULL", "--primary-key", "k", "--bucket", 1)
    for key in (1, 2):
        run("write", table, "-", "--format", "json", "--engine", "local", stdin=f'{{"k": {key}}}\n')
    flags = [*pairs(store.options), "--engine", "local"]
    run("backup", table, backup, *flags)
    run("backup", backup, f"{store.root}/second", *flags)
    assert "is whole: 2 snapshots" in run("backup", "verify", f"{store.root}/second", *flags).out
    run("restore", f"{store.root}/second", tmp_path / "back", "--history", *flags)
    assert run("read", tmp_path / "back", "--count").out.strip() == "2"
    assert run("read", tmp_path / "back", "--snapshot", 1, "--count").out.strip() == "1"
    run("drop", backup, "--yes", *pairs(store.options))
    run("read", backup, *pairs(store.options), code=3)
    run("undrop", backup, *pairs(store.options))
    assert run("read", backup, "--count", *pairs(store.options)).out.strip() == "2"


@pytest.mark.in_part(3)
def test_backup_and_restore_there_and_back(store: Store, tmp_path: Path) -> None:
    """From disk to the store, to another place of it, restored there, dropped, brought back, and restored on disk."""
    table = make_table(tmp_path / "t", {"k": "INT NOT NULL", "v": "STRING"}, ["k"])
    for number in range(3):
        write(table, [{"k": key, "v": f"{number}"} for key in range(number, number + 2)])
    create_tag(table, "first", 1)
    create_branch(table, "try", "first", None)
    local = Runtime(engine="local")
    Table.open(table.url, store.options, runtime=local).backup(f"{store.root}/one/t")
    write(table, [{"k": 9, "v": "later"}])
    assert Table.open(table.url, store.options, runtime=local).backup(f"{store.root}/one/t").snapshots == 1
    Table.open(f"{store.root}/one/t", store.options, runtime=local).backup(f"{store.root}/two/t")
    restored = f"{store.root}/wh/shop.db/t"
    catalog = Catalog(f"{store.root}/wh", store.options, runtime=local)
    catalog.restore(f"{store.root}/two/t", restored, history=True)
    catalog.drop_table("shop.t")
    with pytest.raises(NotFound):
        Table.open(restored, store.options)
    catalog.undrop("shop.t")
    back = TableContext.open(restored, storage_options=store.options)
    assert {n: rows(back, snapshot_id=n) for n in back.snapshots.ids()} == {
        n: rows(table, snapshot_id=n) for n in table.snapshots.ids()
    }
    assert catalog.verify_backup(f"{store.root}/two/t")[0].errors == 0
    catalog.restore(f"{store.root}/two/t", tmp_path / "back", history=True)
    check_same(table, TableContext.open(str(tmp_path / "back")))
    catalog.drop_table("shop.t")
    catalog.trash.empty()
    assert not [path for path in store.blobs if "shop.db" in path or ".paimon-cli" in path]
