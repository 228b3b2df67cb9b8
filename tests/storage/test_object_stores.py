"""Settings of the object stores: which options and which parts of the environment reach a client, and what never gets out."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paimon_cli.errors import StorageUnavailable, UsageError
from paimon_cli.installation import install_command
from paimon_cli.storage import object_stores
from paimon_cli.storage.catalog_options import Service
from paimon_cli.storage.object_stores import StoreError, StoreErrors, StoreSettings
from tests.storage.s3_server import S3Server

pytestmark = pytest.mark.xdist_group("s3")

KEYS = {"access_key_id": "id", "secret_access_key": "hunter2"}


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith(("AWS_", "AZURE_", "GOOGLE_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    object_stores._client.cache_clear()


def opened(service: Service, options: dict[str, str], bucket: str = "box", *, once: bool = False) -> Any:
    return StoreSettings.from_options(service, options).client(bucket, once=once)


@pytest.mark.parametrize(
    ("key", "setting"),
    [
        *((name, "access_key_id") for name in ("access-key", "access.key", "accessKeyId")),
        *((name, "secret_access_key") for name in ("secret-key", "secret.key", "accessKeySecret")),
        *((name, "session_token") for name in ("session-token", "session.token", "securityToken")),
        *((name, "region") for name in ("region", "endpoint.region")),
    ],
)
def test_names_of_s3_settings(key: str, setting: str) -> None:
    def given(options: dict[str, str]) -> tuple[tuple[str, str], ...]:
        return StoreSettings.from_options(Service.S3, options).given

    for prefix in ("s3", "s3a", "fs.s3", "fs.s3a"):
        assert given({f"{prefix}.{key}": "x"}) == ((setting, "x"),)
    assert given({f"oss.{key}": "x", f"s3.x.{key}": "x", key: "x"}) == ()


@pytest.mark.parametrize(
    ("options", "endpoint", "by_host"),
    [
        ({}, None, True),
        ({"s3.path.style.access": "true"}, None, False),
        ({"s3.endpoint": "http://h:9000"}, "http://h:9000", False),
        ({"s3.endpoint": "https://h", "s3.path.style.access": "false"}, "https://box.h", True),
    ],
)
def test_where_the_bucket_is_in_the_address(options: dict[str, str], endpoint: str | None, by_host: bool) -> None:
    client = opened(Service.S3, options)
    assert client.config.get("endpoint") == endpoint
    assert str(client.config["virtual_hosted_style_request"]).lower() == str(by_host).lower()
    assert client.config["region"] == "us-east-1"


def test_the_client_of_commits_sends_a_request_once() -> None:
    assert opened(Service.S3, {}, once=True).retry_config["max_retries"] == 0
    assert opened(Service.S3, {}).retry_config["max_retries"] == 4
    assert opened(Service.S3, {}) is opened(Service.S3, {}) is not opened(Service.S3, {}, "other")


class TestProfiles:
    """The shared files of AWS, in the order of AWS's own tools: options, then variables, then the profile."""

    @pytest.fixture
    def write(self, tmp_path: Path) -> Callable[[str, str], None]:
        def write(name: str, text: str) -> None:
            (tmp_path / name).write_text(text)

        return write

    def test_the_default_profile(self, write: Callable[[str, str], None]) -> None:
        write("credentials", "[default]\naws_access_key_id = id\naws_secret_access_key = hunter2\n[other]\nregion=us\n")
        write("config", "[default]\nregion = eu-west-1\nendpoint_url = http://h\n[profile other]\nregion = ap\n")
        found = opened(Service.S3, {}).config
        assert {**KEYS, "region": "eu-west-1", "endpoint": "http://h"}.items() <= found.items()

    def test_a_named_profile(self, write: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch) -> None:
        write("config", "[profile work]\naws_access_key_id=id\naws_secret_access_key=hunter2\n[work]\nregion=wrong\n")
        monkeypatch.setenv("AWS_PROFILE", "work")
        found = opened(Service.S3, {}).config
        assert KEYS.items() <= found.items() and found["region"] == "us-east-1"

    def test_options_and_variables_come_first(self, write: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch) -> None:
        write("credentials", "[default]\naws_access_key_id=profile\naws_secret_access_key=x\n")
        assert opened(Service.S3, {"s3.access-key": "option", "s3.secret-key": "y"}).config["access_key_id"] == "option"
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "variable")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "z")
        assert opened(Service.S3, {}).config.get("access_key_id") != "profile"

    def test_a_profile_that_is_not_there(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AWS_PROFILE", "nowhere")
        with pytest.raises(UsageError, match="no profile nowhere"):
            opened(Service.S3, {})
        opened(Service.S3, {"s3.access-key": "id", "s3.secret-key": "x"})

    def test_a_file_that_is_none(self, write: Callable[[str, str], None]) -> None:
        write("credentials", "aws_secret_access_key = hunter2\n")
        with pytest.raises(UsageError) as failure:
            opened(Service.S3, {})
        assert "hunter2" not in str(failure.value)

    def test_credentials_that_must_be_fetched(self, write: Callable[[str, str], None], tmp_path: Path) -> None:
        program = tmp_path / "program"
        program.write_text('#!/bin/sh\necho \'{"Version": 1, "AccessKeyId": "fetched", "SecretAccessKey": "x"}\'\n')
        program.chmod(0o700)
        write("config", f"[default]\ncredential_process = {program}\nregion = eu-west-1\n")
        client = opened(Service.S3, {})
        assert client.credential_provider()["access_key_id"] == "fetched" and client.config["region"] == "eu-west-1"

    def test_without_boto3_they_are_refused(self, write: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch) -> None:
        write("config", "[default]\nsso_session = x\n")
        monkeypatch.setitem(__import__("sys").modules, "boto3", None)
        with pytest.raises(UsageError) as failure:
            opened(Service.S3, {})
        assert failure.value.hint == install_command("aws-profiles")


def test_settings_of_azure() -> None:
    hadoop = {"fs.azure.account.key.shop.dfs.core.windows.net": "c2VjcmV0"}
    client = opened(Service.AZURE, hadoop)
    assert {"account_name": "shop", "account_key": "c2VjcmV0", "container_name": "box"}.items() <= client.config.items()
    assert opened(Service.AZURE, hadoop, "box@other.dfs.core.windows.net").config["account_name"] == "other"
    oauth = {
        "azure.account.name": "shop",
        "azure.account.oauth2.client.id": "me",
        "azure.account.oauth2.client.secret": "hunter2",
        "azure.account.oauth2.client.endpoint": "https://login.example.com/tenant-7/oauth2/token",
    }
    found = opened(Service.AZURE, oauth).config
    assert {"tenant_id": "tenant-7", "client_id": "me", "authority_host": "https://login.example.com"}.items() <= found.items()
    with pytest.raises(UsageError, match=r"oauth2\.client\.endpoint"):
        opened(Service.AZURE, {**oauth, "azure.account.oauth2.client.endpoint": "nonsense"})


def test_a_key_of_one_azure_account_is_not_used_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    keys = {"one": "b25l", "two": "dHdv"}
    hadoop = {f"fs.azure.account.key.{name}.dfs.core.windows.net": key for name, key in keys.items()}
    for name, key in keys.items():
        assert opened(Service.AZURE, hadoop, f"box@{name}.dfs.core.windows.net").config["account_key"] == key
    assert "account_key" not in opened(Service.AZURE, hadoop, "box@three.dfs.core.windows.net").config
    assert opened(Service.AZURE, hadoop, "box@ONE.dfs.core.windows.net").config["account_key"] == "b25l", "hosts have no case"
    of_other = {"fs.azure.account.auth.type.one.dfs.core.windows.net": "SharedKey", "azure.account.key": "b25l"}
    assert opened(Service.AZURE, of_other).config["account_name"] == "one", "whatever setting names it"
    assert opened(Service.AZURE, {**hadoop, "azure.account.name": "one"}).config["account_key"] == "b25l"
    with pytest.raises(UsageError, match=r"azure\.account\.name must choose one of the accounts one, two"):
        opened(Service.AZURE, hadoop)


def test_settings_of_google() -> None:
    client = opened(Service.GOOGLE, {"gs.endpoint": "http://h:4443", "gs.auth.access.token": "hunter2"})
    assert client.config["base_url"] == "http://h:4443" and client.client_options["allow_http"]
    with pytest.raises(UsageError) as failure:
        opened(Service.GOOGLE, {"fs.gs.auth.service.account.json.keyfile": "/no/such/file"})
    assert "GOOGLE_APPLICATION_CREDENTIALS" in failure.value.hint


@pytest.mark.parametrize(
    ("service", "options"),
    [
        (Service.S3, {"s3.access-key": "hunter2", "s3.secret-key": "hunter3", "s3.session-token": "hunter4"}),
        (Service.GOOGLE, {"gs.auth.access.token": "hunter2"}),
        (Service.AZURE, {"azure.account.key": "hunter2", "azure.sas.token": "hunter3"}),
        (Service.AZURE, {"azure.account.oauth2.client.secret": "hunter2"}),
    ],
)
def test_secrets_of_options_are_redacted(service: Service, options: dict[str, str]) -> None:
    errors = StoreErrors("s3://me:pw@box/k?x=1", StoreSettings.from_options(service, options))
    shown = errors.refusal(ValueError(" ".join(["said", *options.values()])))
    assert "hunter" not in f"{shown} {shown.hint} {shown.details}" and "pw" not in str(shown)


def test_secrets_of_the_environment_are_redacted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    (tmp_path / "credentials").write_text("[default]\naws_access_key_id=hunter3\naws_secret_access_key=hunter4\n")
    shown = StoreErrors("s3://box/k", StoreSettings(Service.S3)).refusal(ValueError("hunter2 hunter3 hunter4"))
    assert "hunter" not in str(shown)


@pytest.mark.parametrize(
    ("text", "status", "why"),
    [
        ("x: Server returned non-2xx status code: 403 Forbidden: <Code>No</Code><Message>never</Message>", 403, "403 No: never"),
        (
            "x: Error performing PUT http://h/k?sig=1 in 2ms - HTTP error: error sending request",
            0,
            "the connection broke for PUT http://h/k",
        ),
        ("odd: status code: 501 is part of a name", 0, "odd: status code: 501 is part of a name"),
    ],
)
def test_the_text_of_an_error(text: str, status: int, why: str) -> None:
    """Only what precedes the debug text counts, which holds what the store answered."""
    found = StoreError(ValueError(f'{text}\n\nDebug source:\n"non-2xx status code: 501"'))
    assert (found.status, found.why) == (status, why)


def _ask(settings: StoreSettings, sink: Any) -> None:
    try:
        settings.client("box")
    except StorageUnavailable as error:
        sink.send(f"{error} {error.hint}")
    else:
        sink.send("a client")


def test_a_fork_of_a_process_with_clients_is_refused_and_does_not_hang(s3_server: S3Server) -> None:
    s3_server.storage().exists(f"{s3_server.new_bucket()}/x")
    source, sink = multiprocessing.Pipe(duplex=False)
    settings = StoreSettings.from_options(Service.S3, s3_server.options())
    child = multiprocessing.get_context("fork").Process(target=_ask, args=(settings, sink))
    child.start()
    assert source.poll(20) and "forked" in (said := source.recv()) and "spawn" in said
    child.join()
