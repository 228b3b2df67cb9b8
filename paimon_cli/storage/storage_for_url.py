"""A path or URL, as the user wrote it -> the storage that reaches it and its normal form."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

from paimon_cli.storage.local_storage import LocalStorage
from paimon_cli.storage.redaction import without_user_info
from paimon_cli.storage.storage import Storage

_S3_OPTIONS = {
    "accessKeyId": "key",
    "access-key": "key",
    "accessKeySecret": "secret",
    "secret-key": "secret",
    "securityToken": "token",
    "session-token": "token",
    "endpoint": "endpoint_url",
}
"""Names in Paimon's catalog files (below `fs.s3.` or `s3.`) -> names of s3fs."""


def storage_for_url(url: str, options: Mapping[str, Any] | None = None) -> tuple[Storage, str]:
    """The storage and the root: an absolute path, or a URL without credentials; never with a trailing slash.

    `options`: what the fsspec file system takes, or Paimon's catalog keys (`fs.s3.endpoint`). Ignored by local paths.
    """
    scheme, separator, _ = url.partition("://")
    if not separator:
        return LocalStorage(), _absolute(url)
    if scheme in ("file", "local"):
        return LocalStorage(), _absolute(unquote(urlsplit(url).path))
    from paimon_cli.storage.fsspec_storage import FsspecStorage  # reading a local table needs no fsspec

    return FsspecStorage(url, _fsspec_options(scheme, options or {})), without_user_info(url).rstrip("/")


def _absolute(path: str) -> str:
    return os.path.abspath(os.path.expanduser(path))


def _fsspec_options(scheme: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that concern this file system: catalog keys carry a prefix with a dot, fsspec's own names have none."""
    own = {key: value for key, value in options.items() if "." not in key}
    if scheme in ("s3", "s3a"):
        for key, value in options.items():
            prefix, _, name = key.rpartition(".")
            if prefix not in ("fs.s3", "fs.s3a", "s3"):
                continue
            if name in _S3_OPTIONS:
                own[_S3_OPTIONS[name]] = value
            elif name == "region":
                own["client_kwargs"] = {**own.get("client_kwargs", {}), "region_name": value}
    return own
