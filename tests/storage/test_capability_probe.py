"""Trust is earned by a trial on the very store."""

from __future__ import annotations

import uuid

import pytest

from paimon_cli.errors import StorageUnavailable
from paimon_cli.storage import guarded_storage
from paimon_cli.storage.guarded_storage import MARKER, has_primitive
from paimon_cli.storage.injected import SystemRandom
from paimon_cli.storage.local_storage import LocalStorage
from paimon_cli.storage.memory_storage import MemoryStorage
from paimon_cli.storage.object_storage import ObjectStorage
from paimon_cli.storage.storage import Storage
from tests.storage.s3_proxy import Answer, Fate, S3Proxy
from tests.storage.s3_server import S3Server
from tests.storage.unsafe_stores import AnswersAtTheSecondTry, CheckThenWrite, LastWins, NeverAnswers, NoPrimitive

pytestmark = pytest.mark.xdist_group("s3")

ROOT = "wh/t"


def probe(storage: Storage, root: str = ROOT) -> bool:
    return has_primitive(storage, root, SystemRandom())


@pytest.mark.parametrize(
    ("store", "proven"),
    [(MemoryStorage, True), (AnswersAtTheSecondTry, True), (NoPrimitive, False), (CheckThenWrite, False), (LastWins, False)],
)
def test_what_a_trial_shows(store: type[MemoryStorage], proven: bool) -> None:
    storage = store(str(uuid.uuid4()))
    assert probe(storage) is proven
    assert storage.list_directory(ROOT) == [], "nothing is left of it"


def test_a_store_without_clear_answers_is_not_judged() -> None:
    storage = NeverAnswers(str(uuid.uuid4()))
    with pytest.raises(StorageUnavailable, match="no clear answer"):
        probe(storage)
    with pytest.raises(StorageUnavailable):
        probe(storage)


def test_local_disk(tmp_path: object) -> None:
    assert probe(LocalStorage(), f"{tmp_path}/t")
    assert LocalStorage().list_directory(f"{tmp_path}/t") == []


class TestS3:
    """A trial once, which leaves a mark; one request later."""

    def storage(self, server: S3Server, proxy: S3Proxy) -> ObjectStorage:
        return server.storage(proxy.endpoint)

    def test_a_store_with_exclusive_creation(self, s3_server: S3Server) -> None:
        root = f"{s3_server.new_bucket()}/wh/t"
        with S3Proxy(s3_server.port) as proxy:
            assert probe(self.storage(s3_server, proxy), root)
            asked = len(proxy.requests)
            assert sum(request.is_put_if_absent for request in proxy.requests) == 4
            assert probe(self.storage(s3_server, proxy), root), "an equal storage needs no trial of its own"
            assert len(proxy.requests) == asked
            assert probe(self.storage(s3_server, proxy), f"{root}2") and len(proxy.requests) > asked
            assert [entry.name for entry in self.storage(s3_server, proxy).list_directory(root)] == [MARKER.partition("/")[0]]

    def test_later_processes_ask_what_the_first_one_left(self, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
        root = f"{s3_server.new_bucket()}/wh/t"
        with S3Proxy(s3_server.port) as proxy:
            assert probe(self.storage(s3_server, proxy), root)
            monkeypatch.setattr(guarded_storage, "_proven", {})
            proxy.forget()
            assert probe(self.storage(s3_server, proxy), root)
            assert [request.is_put_if_absent for request in proxy.requests] == [True]
            monkeypatch.setattr(guarded_storage, "_proven", {})
            proxy.rule = lambda request: Fate.UNCONDITIONAL
            assert not probe(self.storage(s3_server, proxy), root), "a store that has changed is tried out again, and fails"
            assert self.storage(s3_server, proxy).list_directory(root) == [], "and the mark goes"

    def test_a_store_that_ignores_the_condition(self, s3_server: S3Server) -> None:
        with S3Proxy(s3_server.port, lambda request: Fate.UNCONDITIONAL) as proxy:
            assert not probe(self.storage(s3_server, proxy), f"{s3_server.new_bucket()}/t")

    def test_a_store_that_does_not_know_the_condition(self, s3_server: S3Server) -> None:
        def refuse(request: object) -> Fate | Answer:
            return Answer(501, "NotImplemented") if getattr(request, "is_put_if_absent", False) else Fate.PASS

        with S3Proxy(s3_server.port, refuse) as proxy:
            assert not probe(self.storage(s3_server, proxy), f"{s3_server.new_bucket()}/t")
