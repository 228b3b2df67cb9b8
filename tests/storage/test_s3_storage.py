"""What is S3's own: answers that get lost, errors and what they mean, unfinished uploads, secrets."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
import pytest

from paimon_cli.api.table import Table
from paimon_cli.errors import FilesLeft, Refused, StorageUnavailable, UsageError
from paimon_cli.installation import install_command
from paimon_cli.maintain.file_deletion import delete_portion
from paimon_cli.pieces import PIECES
from paimon_cli.storage.capabilities import WrappedStorage
from paimon_cli.storage.catalog_options import Service
from paimon_cli.storage.deletions import Deletions, delete_all
from paimon_cli.storage.guarded_storage import GuardedStorage
from paimon_cli.storage.object_storage import ObjectStorage
from paimon_cli.storage.object_stores import StoreSettings
from paimon_cli.storage.object_upload import ObjectUpload
from paimon_cli.storage.overlapped_storage import OverlappedStorage
from paimon_cli.storage.storage import PutOutcome, Storage
from tests.commit.commit_tables import SteppingClock
from tests.storage.s3_proxy import Answer, Fate, Request, Rule, S3Proxy
from tests.storage.s3_server import CREDENTIALS, S3Server

pytestmark = pytest.mark.xdist_group("s3")

CREATED, EXISTS, UNKNOWN = PutOutcome.CREATED, PutOutcome.EXISTS, PutOutcome.UNKNOWN


@pytest.fixture(scope="module")
def proxy(s3_server: S3Server) -> Iterator[S3Proxy]:
    with S3Proxy(s3_server.port) as proxy:
        yield proxy


@pytest.fixture
def storage(s3_server: S3Server, proxy: S3Proxy) -> ObjectStorage:
    proxy.rule, proxy.locked = lambda request: Fate.PASS, ()
    proxy.requests.clear()
    return s3_server.storage(proxy.endpoint, SteppingClock())


@pytest.fixture(scope="module")
def bucket(s3_server: S3Server) -> str:
    return s3_server.new_bucket()


def once(fate: Fate | Answer, wanted: str = "PUT") -> Rule:
    """A rule for the next such request only."""
    left = [fate]
    return lambda request: left.pop() if left and request.method == wanted else Fate.PASS


def puts(proxy: S3Proxy) -> int:
    return sum(request.method == "PUT" for request in proxy.requests)


class TestPutIfAbsent:
    """Each put is sent once: a client that repeats it by itself meets its own object and takes it for another writer's."""

    def test_created_then_exists(self, storage: ObjectStorage, proxy: S3Proxy, bucket: str) -> None:
        assert storage.put_if_absent(f"{bucket}/a", b"mine") is CREATED
        assert storage.put_if_absent(f"{bucket}/a", b"theirs") is EXISTS
        assert storage.read_bytes(f"{bucket}/a") == b"mine"
        assert all(request.is_put_if_absent for request in proxy.requests if request.method == "PUT")

    def test_the_answer_gets_lost(self, storage: ObjectStorage, proxy: S3Proxy, bucket: str) -> None:
        proxy.rule = once(Fate.LOSE_ANSWER)
        assert storage.put_if_absent(f"{bucket}/b", b"mine") is UNKNOWN
        assert puts(proxy) == 1 and storage.read_bytes(f"{bucket}/b") == b"mine"

    def test_the_request_gets_lost(self, storage: ObjectStorage, proxy: S3Proxy, bucket: str) -> None:
        proxy.rule = once(Fate.LOSE_REQUEST)
        assert storage.put_if_absent(f"{bucket}/c", b"mine") is UNKNOWN
        assert puts(proxy) == 1 and not storage.exists(f"{bucket}/c")

    @pytest.mark.parametrize(
        ("answer", "outcome"),
        [
            (Answer(500, "InternalError"), UNKNOWN),
            (Answer(503, "SlowDown"), UNKNOWN),
            (Answer(400, "RequestTimeout"), UNKNOWN),
            (Answer(502, "not xml <"), UNKNOWN),
        ],
    )
    def test_errors(self, storage: ObjectStorage, proxy: S3Proxy, bucket: str, answer: Answer, outcome: PutOutcome) -> None:
        proxy.rule = once(answer)
        assert storage.put_if_absent(f"{bucket}/{answer.code[0]}{answer.status}", b"x") is outcome
        assert puts(proxy) == 1

    @pytest.mark.parametrize("answer", [Answer(409, "ConditionalRequestConflict"), Answer(412, "PreconditionFailed")])
    def test_a_file_that_reportedly_exists_and_is_missing_may_have_been_ours(
        self, storage: ObjectStorage, proxy: S3Proxy, bucket: str, answer: Answer
    ) -> None:
        """A proxy may have repeated the put, and others may have deleted the file since."""
        proxy.rule = once(answer)
        assert storage.put_if_absent(f"{bucket}/d", b"x") is UNKNOWN
        assert puts(proxy) == 1 and not storage.exists(f"{bucket}/d")

    def test_a_concurrent_put_that_ends_later_is_waited_for(self, storage: ObjectStorage, proxy: S3Proxy, bucket: str) -> None:
        class TheirPut(SteppingClock):
            def sleep(self, seconds: float) -> None:
                storage.overwrite(f"{bucket}/late", b"theirs")

        proxy.rule = once(Answer(409, "ConditionalRequestConflict"))
        assert replace(storage, clock=TheirPut()).put_if_absent(f"{bucket}/late", b"x") is EXISTS

    def test_a_file_that_reportedly_exists_is_looked_for(self, storage: ObjectStorage, proxy: S3Proxy, bucket: str) -> None:
        """obstore reports 412 and 409 as one error: after 412 the object exists, after 409 it may not."""
        assert storage.put_if_absent(f"{bucket}/p", b"x") is CREATED
        proxy.rule = once(Answer(409, "ConditionalRequestConflict"))
        assert storage.put_if_absent(f"{bucket}/p", b"y") is EXISTS
        proxy.rule = lambda request: Answer(403, "AccessDenied") if request.method == "HEAD" else Fate.PASS
        assert storage.put_if_absent(f"{bucket}/p", b"y") is UNKNOWN

    def test_a_store_without_conditional_puts(self, storage: ObjectStorage, proxy: S3Proxy, bucket: str) -> None:
        proxy.rule = once(Answer(501, "NotImplemented"))
        with pytest.raises(Refused, match="no conditional put"):
            storage.put_if_absent(f"{bucket}/f", b"x")

    def test_a_put_that_was_never_made_is_not_unknown(self, storage: ObjectStorage, proxy: S3Proxy, bucket: str) -> None:
        proxy.rule = once(Answer(403, "AccessDenied"))
        with pytest.raises(StorageUnavailable, match="AccessDenied"):
            storage.put_if_absent(f"{bucket}/g", b"x")
        with pytest.raises(StorageUnavailable, match="NoSuchBucket"):
            storage.put_if_absent("s3://nowhere/g", b"x")
        nobody = replace(
            storage, settings=StoreSettings.from_options(Service.S3, {**CREDENTIALS, "s3.endpoint": "http://127.0.0.1:1"})
        )
        with pytest.raises(StorageUnavailable, match="could not connect"):
            nobody.put_if_absent(f"{bucket}/g", b"x")


class TestReading:
    def test_a_body_that_is_cut_off_is_requested_again(self, storage: ObjectStorage, proxy: S3Proxy, bucket: str) -> None:
        storage.write_new(f"{bucket}/long", b"0123456789" * 1000)
        proxy.rule = once(Fate.CUT_ANSWER, "GET")
        assert storage.read_bytes(f"{bucket}/long") == b"0123456789" * 1000
        proxy.rule = once(Fate.CUT_ANSWER, "GET")
        with storage.open_input(f"{bucket}/long") as source:
            source.seek(15)
            assert source.read(3) == b"567"

    def test_a_body_that_is_always_cut_off(self, storage: ObjectStorage, proxy: S3Proxy, bucket: str) -> None:
        storage.write_new(f"{bucket}/long", b"0123456789" * 1000)
        proxy.rule = lambda request: Fate.CUT_ANSWER if request.method == "GET" else Fate.PASS
        with pytest.raises(StorageUnavailable):
            storage.read_bytes(f"{bucket}/long")

    def test_failures_of_the_store_are_repeated(self, storage: ObjectStorage, proxy: S3Proxy, bucket: str) -> None:
        storage.write_new(f"{bucket}/f", b"x")
        proxy.rule = once(Answer(503, "SlowDown"), "GET")
        assert storage.read_bytes(f"{bucket}/f") == b"x"

    def test_refusals_are_not_missing_files(self, storage: ObjectStorage, proxy: S3Proxy, bucket: str) -> None:
        proxy.rule = lambda request: Answer(403, "AccessDenied")
        for ask in (storage.exists, storage.read_bytes, storage.list_directory, storage.delete, storage.open_input):
            with pytest.raises(StorageUnavailable) as failure:
                ask(f"{bucket}/f")
            assert "s3.access-key" in failure.value.hint


class TestUploads:
    def test_a_failed_upload_leaves_no_parts(
        self, s3_server: S3Server, storage: ObjectStorage, proxy: S3Proxy, bucket: str
    ) -> None:
        def lose_second_part(request: Request) -> Fate | Answer:
            return Answer(400, "InvalidPart") if "partNumber=2" in request.path else Fate.PASS

        proxy.rule = lose_second_part
        with pytest.raises(StorageUnavailable), storage.open_output(f"{bucket}/up/f") as sink:
            for _ in range(3):
                sink.write(b"x" * PIECES.upload_part_bytes)
        assert storage.list_directory(f"{bucket}/up") == []
        assert b"<Upload>" not in s3_server.request("GET", f"/{bucket.removeprefix('s3://')}?uploads")

    def test_a_failed_completion_leaves_no_parts(
        self, s3_server: S3Server, storage: ObjectStorage, proxy: S3Proxy, bucket: str
    ) -> None:
        proxy.rule = lambda request: (
            Answer(400, "InvalidPart") if request.method == "POST" and "uploadId=" in request.path else Fate.PASS
        )
        sink = storage.open_output(f"{bucket}/up/g")
        sink.write(b"x" * (PIECES.upload_part_bytes + 1))
        with pytest.raises(StorageUnavailable):
            sink.close()
        assert sink.closed and storage.list_directory(f"{bucket}/up") == []
        assert b"<Upload>" not in s3_server.request("GET", f"/{bucket.removeprefix('s3://')}?uploads")

    def test_one_part_is_held_in_memory(self, storage: ObjectStorage, bucket: str) -> None:
        sink = storage.open_output(f"{bucket}/up/h")
        assert isinstance(sink, ObjectUpload)
        for _ in range(5):
            sink.write(b"x" * (PIECES.upload_part_bytes // 2 + 1))
            assert len(sink._buffer) <= PIECES.upload_part_bytes
        sink.abort()


@pytest.mark.nightly
def test_more_objects_than_a_page_holds(s3_server: S3Server, storage: ObjectStorage, bucket: str) -> None:
    for number in range(1010):
        s3_server.request("PUT", f"/{bucket.removeprefix('s3://')}/many/f{number}")
    assert len(storage.list_directory(f"{bucket}/many")) == 1010
    assert len(storage.first_entries(f"{bucket}/many", 7)) == 7
    storage.delete_directory(f"{bucket}/many")
    assert storage.list_directory(f"{bucket}/many") == []


class TestDeletingMany:
    """A request for many files; what it leaves is deleted one by one, so that the error names a file."""

    FILES = 25

    def fill(self, storage: Storage, bucket: str) -> list[str]:
        paths = [f"{bucket}/gone/f{number}" for number in range(self.FILES)]
        for path in paths:
            storage.write_new(path, b"x")
        return paths

    def deletions(self, proxy: S3Proxy) -> list[str]:
        return [request.method for request in proxy.requests if request.method == "POST"]

    def test_one_request(self, storage: ObjectStorage, proxy: S3Proxy, bucket: str) -> None:
        paths = self.fill(storage, bucket)
        guarded = GuardedStorage(OverlappedStorage(storage), bucket)
        assert delete_portion(guarded, [*paths, f"{bucket}/gone/never-there"]) == Deletions(self.FILES + 1)
        assert self.deletions(proxy) == ["POST"]
        assert storage.list_directory(f"{bucket}/gone") == []

    def test_an_expiry(self, s3_server: S3Server, storage: Storage, proxy: S3Proxy) -> None:
        """One request for each snapshot, which must go one by one, and one for all data files, and for all metadata files."""
        options = {**s3_server.options(proxy.endpoint), "bucket": "1", "write-only": "true"}
        schema = pa.schema([pa.field("k", pa.int64(), nullable=False)])
        table = Table.create(f"{s3_server.new_bucket()}/t", schema=schema, primary_key=["k"], options=options)
        for number in range(9):
            table.write(pa.table({"k": [number]}), overwrite=True)
        proxy.requests.clear()
        expired = table.expire(retain_max=1, retain_min=1, older_than="0s")
        assert expired.removed == tuple(map(str, range(1, 9)))
        assert expired.files >= 8 + 8 + 16
        sent = [request for request in proxy.requests if request.method in ("POST", "DELETE")]
        assert len(sent) <= 8 + 5  # one for each snapshot, for data, manifests, their lists, and the probe of the clock
        assert expired.delete_requests == len(sent) and expired.requests == len(proxy.requests)
        assert table.verify(level="full").errors == 0

    def test_files_go_before_those_that_name_them(self, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
        """One list has the files of one rank only, and a snapshot goes with its own request, the oldest first."""
        options = {**s3_server.options(), "bucket": "1", "write-only": "true", "manifest.merge-min-count": "2"}
        table = Table.create(f"{s3_server.new_bucket()}/t", columns=["k INT NOT NULL"], primary_key="k", options=options)
        for number in range(4):
            table.write(pa.table({"k": pa.array([number], pa.int32())}), overwrite=True)
        sent: list[set[str]] = []

        def names(paths: Sequence[str]) -> set[str]:
            return {re.sub("[0-9a-f]{8}-.*", "", path.rpartition("/")[2]) for path in paths}

        def delete(storage: ObjectStorage, path: str) -> None:
            sent.append(names([path]))
            one(storage, path)

        def delete_many(storage: ObjectStorage, paths: Sequence[str]) -> None:
            sent.append(names(paths))
            many(storage, paths)

        one, many = ObjectStorage.delete, ObjectStorage.delete_many
        monkeypatch.setattr(ObjectStorage, "delete", delete)
        monkeypatch.setattr(ObjectStorage, "delete_many", delete_many)
        table.expire(retain_max=1, retain_min=1, older_than="0s")
        snapshots = [{f"snapshot-{number}"} for number in (1, 2, 3)]
        assert sent == [*snapshots, {"data-"}, {"manifest-"}, {"manifest-list-"}]

    def test_what_a_failed_job_leaves_goes_with_one_request(self, storage: ObjectStorage, proxy: S3Proxy, bucket: str) -> None:
        paths = self.fill(storage, bucket)
        delete_all(OverlappedStorage(storage), paths[:-5])
        assert self.deletions(proxy) == ["POST"]
        delete_all(OverlappedStorage(storage), paths[-5:], in_order=True)
        assert len([r for r in proxy.requests if r.method in ("POST", "DELETE")]) == 6

    def test_a_failed_request_is_followed_by_one_for_each_file(self, storage: ObjectStorage, proxy: S3Proxy, bucket: str) -> None:
        paths = self.fill(storage, bucket)
        proxy.rule = once(Answer(403, "AccessDenied"), "POST")
        assert delete_portion(storage, paths, threads=4) == Deletions(self.FILES)
        sent = [request.method for request in proxy.requests if request.method in ("POST", "DELETE")]
        assert sent == ["POST", *["DELETE"] * self.FILES]
        assert storage.list_directory(f"{bucket}/gone") == []

    @pytest.mark.parametrize("answer", [Answer(501, "NotImplemented"), Answer(405, "MethodNotAllowed")], ids=lambda a: a.code)
    def test_a_store_that_deletes_only_one_by_one(
        self, answer: Answer, storage: ObjectStorage, proxy: S3Proxy, bucket: str
    ) -> None:
        """Some stores and gateways implement no requests for many objects: then none is sent for a single one either."""
        paths = self.fill(storage, bucket)
        proxy.rule = lambda request: answer if request.method == "POST" else Fate.PASS
        storage.delete(paths[0])
        assert self.deletions(proxy) == []
        assert delete_portion(storage, paths[1:10]) == Deletions(9)
        storage.delete_directory(f"{bucket}/gone")
        assert storage.list_directory(f"{bucket}/gone") == []

    def test_a_file_that_is_left_is_named(self, storage: ObjectStorage, proxy: S3Proxy, bucket: str) -> None:
        paths = self.fill(storage, bucket)
        proxy.rule = lambda request: (
            Answer(403, "AccessDenied") if request.method == "POST" or request.path.endswith("/f7") else Fate.PASS
        )
        done = delete_portion(storage, paths, threads=4)
        assert (done.deleted, done.refused) == (self.FILES - 1, 1)
        with pytest.raises(FilesLeft, match=r"^24 files deleted, 1 refused: S3 refused .*/gone/f7 .403 AccessDenied: on purpose"):
            done.check()
        assert [status.name for status in storage.list_directory(f"{bucket}/gone")] == ["f7"]

    def test_locked_files_do_not_keep_the_others(
        self, storage: ObjectStorage, proxy: S3Proxy, bucket: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Of a directory, too, which is deleted page by page."""
        monkeypatch.setattr(PIECES, "listed_objects", 4)
        paths = self.fill(storage, bucket)
        proxy.locked = ("/f7", "/f24")
        for delete in (
            lambda: delete_all(storage, paths),
            lambda: delete_portion(storage, paths).check(),
            lambda: storage.delete_directory(f"{bucket}/gone"),
        ):
            self.fill(storage, bucket)
            with pytest.raises(FilesLeft, match=r"^23 files deleted, 2 refused: S3 refused .*/gone/f(7|24) .403 AccessDenied"):
                delete()
            assert {status.name for status in storage.list_directory(f"{bucket}/gone")} == {"f7", "f24"}
        proxy.locked = ()
        storage.delete_directory(f"{bucket}/gone")

    @pytest.mark.parametrize("answer", [Answer(403, "ExpiredToken"), Answer(401, "Unauthorized")], ids=lambda a: a.code)
    def test_a_user_whom_the_store_does_not_know_is_refused_once(
        self, answer: Answer, storage: ObjectStorage, proxy: S3Proxy, bucket: str
    ) -> None:
        paths = self.fill(storage, bucket)
        proxy.rule = lambda request: answer if request.method in ("POST", "DELETE") else Fate.PASS
        with pytest.raises(StorageUnavailable, match=r"refused .*/gone/f0") as refused:
            delete_portion(storage, paths)
        assert not isinstance(refused.value, FilesLeft) and "s3.secret-key" in refused.value.hint
        assert len(proxy.requests) == self.FILES + 2

    def test_what_a_wrapper_refuses_is_not_deleted(self, storage: ObjectStorage, proxy: S3Proxy, bucket: str) -> None:
        class Refusing(WrappedStorage):
            def before(self, call: str, path: str) -> None:
                if path.endswith("f7"):
                    raise Refused("not this one", call)

        class Counting(WrappedStorage):
            deleted = 0

            def delete(self, path: str) -> None:
                self.deleted += 1
                super().delete(path)

        paths = self.fill(storage, bucket)
        with pytest.raises(Refused):
            delete_portion(Refusing(storage), paths)
        assert len(storage.list_directory(f"{bucket}/gone")) == self.FILES
        counting = Counting(storage)
        delete_portion(counting, paths)
        assert counting.deleted == self.FILES


def test_directory_markers_are_not_files(s3_server: S3Server, storage: ObjectStorage, bucket: str) -> None:
    s3_server.request("PUT", f"/{bucket.removeprefix('s3://')}/marked/")
    assert storage.list_directory(f"{bucket}/marked") == []


def test_not_the_url_of_an_object(storage: ObjectStorage) -> None:
    for url in ("/local/path", "s3://", "gs://bucket/x"):
        with pytest.raises(UsageError):
            storage.read_bytes(url)


def test_secrets_are_in_no_message(storage: ObjectStorage, proxy: S3Proxy, bucket: str) -> None:
    proxy.rule = lambda request: Answer(403, f"Denied {CREDENTIALS['s3.secret-key']} {CREDENTIALS['s3.access-key']}")
    with pytest.raises(StorageUnavailable) as failure:
        storage.read_bytes(f"{bucket}/f")
    shown = f"{failure.value} {failure.value.hint} {failure.value.details} {storage!r}"
    assert "Denied *** ***" in shown
    assert CREDENTIALS["s3.secret-key"] not in shown and CREDENTIALS["s3.access-key"] not in shown
    assert failure.value.__cause__ is None and failure.value.__suppress_context__


def test_without_obstore_the_message_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['obstore'] = None\n"
        "from paimon_cli.errors import UsageError\n"
        "from paimon_cli.storage.storage_for_url import storage_for_url\n"
        "try: storage_for_url('s3://bucket/t')\n"
        "except UsageError as error: print(error.hint)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == install_command("s3")
