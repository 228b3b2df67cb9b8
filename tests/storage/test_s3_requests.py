"""The requests to S3 one by one, and what becomes of each answer. No server: a client that answers from a list."""

from __future__ import annotations

import datetime
import io
import os
from collections.abc import Callable
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, IncompleteReadError, ReadTimeoutError

from paimon_cli.errors import Refused, StorageUnavailable, UsageError
from paimon_cli.storage import s3_client, whole_file
from paimon_cli.storage.clock_and_random import SystemRandom
from paimon_cli.storage.s3_client import S3Settings
from paimon_cli.storage.s3_storage import S3Storage
from paimon_cli.storage.storage import FileStatus, PutOutcome
from tests.commit.commit_tables import SteppingClock

CREATED, EXISTS, UNKNOWN = PutOutcome.CREATED, PutOutcome.EXISTS, PutOutcome.UNKNOWN


def failure(status: int, code: str) -> ClientError:
    return ClientError({"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}, "PutObject")


class Client:
    """Each request is noted, and answered by the next of `answers`; the last one goes on for ever."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def request(**given: Any) -> Any:
            self.asked.append((name, given))
            answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
            if isinstance(answer, BaseException):
                raise answer
            return answer

        return request


def test_a_failed_upload_leaves_the_file_that_it_was_to_replace(opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    storage, client, _ = opened(failure(503, "SlowDown"))
    monkeypatch.setattr(whole_file, "storage_for_url", lambda url, options: (storage, url))
    with (
        pytest.raises(StorageUnavailable),
        whole_file.whole_file("s3://bucket/o.csv", {}, SystemRandom(), replace=True) as sink,
    ):
        sink.write(b"new")
    assert "delete_object" not in [name for name, _ in client.asked]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[S3Storage, Client, list[int]]]:
    def make(*answers: Any) -> tuple[S3Storage, Client, list[int]]:
        client, attempts = Client(*answers), []

        def of(settings: S3Settings, allowed: int = 5) -> Client:
            attempts.append(allowed)
            return client

        monkeypatch.setattr(S3Settings, "client", lambda settings, attempts=5: of(settings, attempts))
        return S3Storage(S3Settings(secret_key="hunter2"), SteppingClock()), client, attempts

    return make


Opened = Callable[..., tuple[S3Storage, Client, list[int]]]


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        ({}, CREATED),
        (failure(412, ""), EXISTS),
        (failure(400, "PreconditionFailed"), EXISTS),
        (failure(500, "InternalError"), UNKNOWN),
        (failure(503, "SlowDown"), UNKNOWN),
        (failure(400, "RequestTimeout"), UNKNOWN),
        (ReadTimeoutError(endpoint_url="x"), UNKNOWN),
    ],
)
def test_one_conditional_put(opened: Opened, answer: Any, outcome: PutOutcome) -> None:
    storage, client, attempts = opened(answer)
    assert storage.put_if_absent("s3://b/t/snapshot-1", b"x") is outcome
    put = {"Bucket": "b", "Key": "t/snapshot-1", "Body": b"x", "IfNoneMatch": "*"}
    assert client.asked == [("put_object", put)] and attempts == [1]
    assert storage.clock.sleeps == []  # type: ignore[attr-defined]


@pytest.mark.parametrize("answer", [failure(501, ""), failure(400, "NotImplemented")])
def test_a_store_without_conditions_is_refused(opened: Opened, answer: Any) -> None:
    with pytest.raises(Refused, match="no conditional PUT"):
        opened(answer)[0].put_if_absent("s3://b/k", b"x")


@pytest.mark.parametrize("answer", [failure(403, "AccessDenied"), EndpointConnectionError(endpoint_url="x"), failure(499, "Odd")])
def test_what_surely_wrote_nothing_is_unavailable(opened: Opened, answer: Any) -> None:
    with pytest.raises(StorageUnavailable, match="S3 refused s3://b/k"):
        opened(answer)[0].put_if_absent("s3://b/k", b"x")


@pytest.mark.parametrize("conflict", [failure(409, ""), failure(400, "ConditionalRequestConflict")])
def test_a_conflict_is_asked_again_later_and_later(opened: Opened, conflict: ClientError) -> None:
    storage, client, _ = opened(conflict, conflict, conflict, failure(412, ""))
    assert storage.put_if_absent("s3://b/k", b"x") is EXISTS
    assert storage.clock.sleeps == [0.1, 0.2, 0.4] and len(client.asked) == 4  # type: ignore[attr-defined]
    storage, client, _ = opened(conflict)
    assert storage.put_if_absent("s3://b/k", b"x") is UNKNOWN
    assert storage.clock.sleeps == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4] and len(client.asked) == 8  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        (failure(403, "AccessDenied"), True),
        (failure(401, "Unauthorized"), True),
        (failure(400, "Odd"), False),
        (EndpointConnectionError(endpoint_url="http://hunter2"), True),
    ],
)
def test_hints_are_for_those_who_are_not_let_in(opened: Opened, answer: Any, hint: bool) -> None:
    with pytest.raises(StorageUnavailable) as found:
        opened(answer)[0].read_bytes("s3://me:pw@b/k?x=1")
    assert found.value.hint.startswith("check s3.endpoint") == hint and bool(found.value.hint) == hint
    assert "hunter2" not in str(found.value) and "pw" not in str(found.value)
    assert found.value.details == {"path": "s3://b/k"}


@pytest.mark.parametrize("code", ["404", "NoSuchKey", "NotFound"])
def test_missing_objects(opened: Opened, code: str) -> None:
    storage, client, _ = opened(failure(404, code))
    assert not storage.exists("s3a://b/k")
    for ask in (storage.read_bytes, storage.file_size, storage.open_input):
        with pytest.raises(FileNotFoundError, match="s3a://b/k"):
            ask("s3a://b/k")
    assert {name for name, _ in client.asked} == {"head_object", "get_object"}


@pytest.mark.parametrize("cut", [IncompleteReadError(actual_bytes=1, expected_bytes=2), ReadTimeoutError(endpoint_url="x")])
def test_bodies_that_end_early_are_asked_for_three_times(opened: Opened, cut: Exception) -> None:
    storage, client, _ = opened(cut, cut, {"Body": io.BytesIO(b"whole")})
    assert storage.read_bytes("s3://b/k") == b"whole" and len(client.asked) == 3
    storage, client, _ = opened(cut)
    with pytest.raises(StorageUnavailable):
        storage.read_bytes("s3://b/k")
    assert len(client.asked) == 3


def test_readers_ask_for_ranges(opened: Opened) -> None:
    storage, client, _ = opened({"ContentLength": "10"}, {"Body": io.BytesIO(b"456789")}, {"Body": io.BytesIO(b"01")})
    with storage.open_input("s3://b/k") as source:
        assert source.seekable() and source.readable() and source.seek(-6, os.SEEK_END) == 4 and source.tell() == 4
        assert source.read() == b"456789" and source.read() == b"" and source.tell() == 10
        assert source.seek(-10, os.SEEK_CUR) == 0
        with pytest.raises(StorageUnavailable, match="S3 gave 2 bytes of s3://b/k: 10 were asked for"):
            source.read()
    assert [given.get("Range") for _, given in client.asked] == [None, "bytes=4-9", "bytes=0-9"]


def test_listings(opened: Opened) -> None:
    moment = datetime.datetime(2024, 1, 2, 3, 4, 5, 600_000, tzinfo=datetime.timezone.utc)
    page = {
        "CommonPrefixes": [{"Prefix": "t/bucket-0/"}],
        "Contents": [
            {"Key": "t/", "Size": 0, "LastModified": moment},
            {"Key": "t/file", "Size": "7", "LastModified": moment},
        ],
    }
    storage, client, _ = opened(page)
    assert storage.first_entries("s3://b/t/", 9) == [
        FileStatus("s3://b/t/bucket-0", "bucket-0", 0, True, 0),
        FileStatus("s3://b/t/file", "file", 7, False, 1_704_164_645_600),
    ]
    assert client.asked == [("list_objects_v2", {"Bucket": "b", "Prefix": "t/", "Delimiter": "/", "MaxKeys": 9})]
    storage.first_entries("s3://b/", 1)
    assert client.asked[-1][1]["Prefix"] == "" and opened({})[0].first_entries("s3://b/t", 1) == []


def test_a_directory_is_deleted_a_thousand_keys_at_a_time(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    storage, client, _ = opened({})
    keys = [f"t/{number}" for number in range(1001)]

    class Pages:
        def paginate(self, **given: str) -> list[dict[str, list[dict[str, str]]]]:
            return [{"Contents": [{"Key": key} for key in keys]}, {}]

    monkeypatch.setattr(client, "get_paginator", lambda name: Pages())
    storage.delete_directory("s3://b/t")
    doomed = [given["Delete"] for _, given in client.asked]
    assert [[one["Key"] for one in part["Objects"]] for part in doomed] == [keys[:1000], keys[1000:]]
    assert all(part["Quiet"] is True for part in doomed)
    client.answers = [{"Errors": [{"Key": "t/5", "Code": "AccessDenied"}]}]
    with pytest.raises(StorageUnavailable, match="S3 did not delete t/5: AccessDenied"):
        storage.delete_directory("s3://b/t")


@pytest.mark.parametrize("url", ["gs://b/k", "s3://", "s3:///k", "b/k"])
def test_other_urls(opened: Opened, url: str) -> None:
    with pytest.raises(UsageError, match="is not the URL of an S3 object"):
        opened({})[0].delete(url)


def test_settings_reach_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[dict[str, Any]] = []

    class Session:
        def client(self, service: str, **given: Any) -> object:
            made.append({"service": service, **given})
            return object()

    monkeypatch.setattr(boto3.session, "Session", Session)
    s3_client._client.cache_clear()
    settings = S3Settings("http://h", "id", "secret", "session", "eu", True)
    first = settings.client()
    assert settings.client() is first and settings.client(attempts=1) is not first
    for style in (False, None):
        S3Settings(path_style=style).client()
    s3_client._client.cache_clear()
    configs = [one.pop("config") for one in made]
    assert (
        made[0]
        == made[1]
        == {
            "service": "s3",
            "endpoint_url": "http://h",
            "aws_access_key_id": "id",
            "aws_secret_access_key": "secret",
            "aws_session_token": "session",
            "region_name": "eu",
        }
    )
    assert [config.retries["total_max_attempts"] for config in configs] == [5, 1, 5, 5]
    assert [config.s3["addressing_style"] for config in configs] == ["path", "path", "virtual", "auto"]
    config = configs[0]
    assert (config.connect_timeout, config.read_timeout, config.max_pool_connections) == (10, 60, 32)
    assert config.retries["mode"] == "standard"
    assert settings.secrets == {"access_key": "id", "secret_key": "secret", "session_token": "session"}
    assert S3Settings("x", None, "").secrets == {}


@pytest.mark.parametrize(
    ("key", "setting"),
    [
        *((name, "access_key") for name in ("access-key", "access.key", "accessKeyId")),
        *((name, "secret_key") for name in ("secret-key", "secret.key", "accessKeySecret")),
        *((name, "session_token") for name in ("session-token", "session.token", "securityToken")),
        *((name, "region") for name in ("region", "endpoint.region")),
    ],
)
def test_names_of_settings(key: str, setting: str) -> None:
    for prefix in ("s3", "s3a", "fs.s3", "fs.s3a"):
        assert S3Settings.from_options({f"{prefix}.{key}": "x"}) == S3Settings(**{setting: "x"})  # type: ignore[arg-type]
    assert S3Settings.from_options({f"oss.{key}": "x", f"s3.x.{key}": "x", key: "x"}) == S3Settings()
