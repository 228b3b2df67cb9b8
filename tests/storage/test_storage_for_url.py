"""What the user writes as the place of a table, and what becomes of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from paimon_cli.storage.fsspec_storage import FsspecStorage
from paimon_cli.storage.local_storage import LocalStorage
from paimon_cli.storage.storage_for_url import _fsspec_options, storage_for_url


@pytest.mark.parametrize(
    ("url", "root"),
    [
        ("/wh/t", "/wh/t"),
        ("/wh/t/", "/wh/t"),
        ("/wh/./x/../t", "/wh/t"),
        ("file:///wh/t/", "/wh/t"),
        ("file:///wh/a%20b", "/wh/a b"),
        ("/wh/a%20b", "/wh/a%20b"),
    ],
)
def test_local_places(url: str, root: str) -> None:
    storage, found = storage_for_url(url)
    assert isinstance(storage, LocalStorage) and found == root


def test_relative_and_home_paths_become_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/me")
    assert storage_for_url("wh/t")[1] == f"{tmp_path}/wh/t"
    assert storage_for_url("~/wh/t")[1] == "/home/me/wh/t"


def test_urls_go_to_fsspec_without_credentials_in_the_root() -> None:
    storage, root = storage_for_url("memory://user:pw@wh/t/")
    assert isinstance(storage, FsspecStorage) and root == "memory://wh/t"


def test_catalog_keys_become_options_of_the_s3_client() -> None:
    catalog = {
        "fs.s3.endpoint": "http://localhost:9000",
        "fs.s3.accessKeyId": "id",
        "s3.secret-key": "secret",
        "fs.s3.region": "eu",
        "fs.oss.endpoint": "elsewhere",
        "anon": False,
    }
    expected = {
        "endpoint_url": "http://localhost:9000",
        "key": "id",
        "secret": "secret",
        "client_kwargs": {"region_name": "eu"},
        "anon": False,
    }
    assert _fsspec_options("s3", catalog) == expected
    assert _fsspec_options("memory", catalog) == {"anon": False}
