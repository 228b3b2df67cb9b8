"""What the user writes as the place of a table, and what becomes of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from paimon_cli.errors import PaimonError, UsageError
from paimon_cli.options.option_catalog import OF_CATALOG, OPTIONS
from paimon_cli.storage.catalog_options import Service, file_system_options, is_catalog_option, split_options, store_options
from paimon_cli.storage.external_storage import AllowedPlaces
from paimon_cli.storage.fsspec_storage import HdfsStorage
from paimon_cli.storage.guarded_storage import GuardedStorage, PublishMethod
from paimon_cli.storage.local_storage import LocalStorage
from paimon_cli.storage.memory_storage import MemoryStorage
from paimon_cli.storage.object_stores import StoreSettings
from paimon_cli.storage.overlapped_storage import OverlappedStorage
from paimon_cli.storage.storage_for_url import storage_for_url


@pytest.mark.parametrize(
    ("url", "root"),
    [
        ("/wh/t", "/wh/t"),
        ("/wh/t/", "/wh/t"),
        ("/wh/./x/../t", "/wh/t"),
        ("file:///wh/t/", "/wh/t"),
        ("file:/wh/t/", "/wh/t"),
        ("file:///wh/a%20b", "/wh/a b"),
        ("/wh/a%20b", "/wh/a%20b"),
        ("file:///wh/a#b/t", "/wh/a#b/t"),
        ("file:/wh/a?b/t", "/wh/a?b/t"),
        ("local:///wh/a;b#c", "/wh/a;b#c"),
        ("file:///wh/a\tb", "/wh/a\tb"),
        ("file://localhost/wh/t", "/wh/t"),
        ("file://me:p#w@LOCALHOST/wh/t", "/wh/t"),
    ],
)
def test_local_places(url: str, root: str) -> None:
    storage, found = storage_for_url(url)
    assert isinstance(storage, LocalStorage) and found == root


@pytest.mark.parametrize("url", ["file://wh/t", "file://wh", "file://me:pw@host/wh/t", "file://[x/wh/t", "local://host/wh/t"])
def test_files_of_another_machine_are_no_local_ones(url: str) -> None:
    with pytest.raises(UsageError, match="names a host") as failure:
        storage_for_url(url)
    assert "pw" not in str(failure.value)


@pytest.mark.parametrize("scheme", ["memory", "s3", "s3a", "gs", "abfss", "hdfs"])
@pytest.mark.parametrize("end", ["?", "?x", "?sig=pw/t", "/?/t"])
def test_a_url_of_a_store_is_not_cut_to_that_of_another_table(scheme: str, end: str) -> None:
    with pytest.raises(UsageError, match=f"{scheme}://wh/t/? is followed by") as failure:
        storage_for_url(f"{scheme}://me:no@wh/t{end}")
    assert "pw" not in str(failure.value) and "no@" not in str(failure.value)


def test_relative_and_home_paths_become_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/me")
    assert storage_for_url("wh/t")[1] == f"{tmp_path}/wh/t"
    assert storage_for_url("~/wh/t")[1] == "/home/me/wh/t"


def test_each_scheme_has_its_storage() -> None:
    def kind_of(url: str) -> tuple[type, str]:
        storage, root = storage_for_url(url)
        return type(storage.inner) if isinstance(storage, GuardedStorage) else type(storage), root

    assert kind_of("memory://user:pw@wh/t/") == (MemoryStorage, "memory://wh/t")
    assert kind_of("s3://bucket/wh/t/") == (OverlappedStorage, "s3://bucket/wh/t")
    assert kind_of("s3a://bucket/wh/t") == (OverlappedStorage, "s3a://bucket/wh/t")
    assert kind_of("gs://bucket/wh/t") == (OverlappedStorage, "gs://bucket/wh/t")
    azure = "abfss://box@account.dfs.core.windows.net/wh/t"
    assert kind_of(azure) == (OverlappedStorage, azure), "the container is no user"
    assert kind_of("webhdfs://node:9870/wh/t") == (HdfsStorage, "webhdfs://node:9870/wh/t")


def test_local_storage_is_guarded_only_on_request(tmp_path: Path) -> None:
    lock = {"lock.enabled": "true", "uri": f"jdbc:sqlite:{tmp_path}/locks"}
    assert isinstance(storage_for_url("/wh/t", {"metastore": "filesystem", "uri": "x"})[0], LocalStorage)
    assert isinstance(storage_for_url("/wh/t", {**lock, "lock.enabled": "false"})[0], LocalStorage)
    assert isinstance(storage_for_url("/wh/t", lock)[0], GuardedStorage)
    assert isinstance(storage_for_url("/wh/t", allow_unsafe_commit=True)[0], GuardedStorage)


def test_the_lock_of_the_catalog_guards_local_files(tmp_path: Path) -> None:
    """Of a JDBC catalog also where its options do not name it."""
    uri = {"uri": f"jdbc:sqlite:{tmp_path}/locks"}
    for options in ({**uri, "metastore": "jdbc"}, {**uri, "lock.enabled": "true"}):
        storage, root = storage_for_url(f"{tmp_path}/t", options)
        assert isinstance(storage, GuardedStorage) and (storage.publish_method(), root) == (PublishMethod.LOCK, f"{tmp_path}/t")


def test_a_place_outside_of_a_table_keeps_its_links_within(tmp_path: Path) -> None:
    for name in ("cold", "secret"):
        (tmp_path / name).mkdir()
    (tmp_path / "secret/f").write_text("x")
    (tmp_path / "cold/link").symlink_to(tmp_path / "secret")
    storage, _ = storage_for_url(str(tmp_path / "t"), confined=True, external=AllowedPlaces.parse(f"{tmp_path}/cold"))
    with pytest.raises(PaimonError):
        storage.read_bytes(f"{tmp_path}/cold/link/f")


@pytest.mark.parametrize(
    "options",
    [
        {"s3.endpoint": "http://here:9000", "s3.access-key": "id", "s3.secret-key": "pw", "s3.path.style.access": "true"},
        {
            "fs.s3.endpoint": "http://here:9000",
            "fs.s3.accessKeyId": "id",
            "fs.s3.accessKeySecret": "pw",
            "fs.s3.path-style-access": "TRUE",
        },
        {
            "fs.s3a.endpoint": "http://here:9000",
            "fs.s3a.access.key": "id",
            "fs.s3a.secret.key": "pw",
            "fs.s3a.path.style.access": "true",
        },
    ],
    ids=["paimon", "pypaimon", "hadoop"],
)
def test_s3_settings_in_three_dialects(options: dict[str, str]) -> None:
    settings = StoreSettings.from_options(Service.S3, {**options, "fs.oss.endpoint": "elsewhere", "s3.multipart.size": "1"})
    found = {name: value.lower() for name, value in settings.given}
    keys = {"access_key_id": "id", "secret_access_key": "pw"}
    assert found == {**keys, "endpoint": "http://here:9000", "path_style": "true"}
    assert "id" not in repr(settings) and "pw" not in repr(settings)


def test_an_endpoint_without_a_scheme_is_https() -> None:
    given = StoreSettings.from_options(Service.S3, {"s3.endpoint": "s3.example.com"}).given
    assert given == (("endpoint", "https://s3.example.com"),)
    assert StoreSettings.from_options(Service.S3, {}) == StoreSettings(Service.S3)


def test_catalog_options_are_distinguished_from_table_options() -> None:
    catalog = {"s3.secret-key": "x", "fs.gs.token": "y", "uri": "z", "lock.enabled": "true", "lock-acquire-timeout": "1 s"}
    table = {"bucket": "2", "metastore.partitioned-table": "true", "file.format": "parquet"}
    assert split_options({**catalog, **table}) == (catalog, table)
    assert {option.group for option in OPTIONS if is_catalog_option(option.key)} == {OF_CATALOG}


def test_tasks_do_not_get_the_password_of_the_lock() -> None:
    lock = {"metastore": "jdbc", "uri": "x", "jdbc.password": "p", "lock.enabled": "true", "catalog-key": "k"}
    assert store_options({**lock, "s3.region": "eu", "project": "p"}) == {"s3.region": "eu", "project": "p"}


def test_options_of_a_file_system_of_fsspec() -> None:
    options = {"fs.gs.token": "t", "fs.s3.region": "eu", "project": "p", "uri": "jdbc:x", "lock-acquire-timeout": "1 s"}
    assert file_system_options("gs", options) == {"token": "t", "project": "p"}
    assert file_system_options("gs", {"fs.gs.project": "own", "project": "of all"}) == {"project": "own"}
    assert file_system_options("s3", {"fs.s3a.key": "a", "key": "b"}) == {"key": "b"}
