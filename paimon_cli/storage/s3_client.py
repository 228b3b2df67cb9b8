"""How S3 is reached: settings from Paimon's catalog options, clients of boto3, and what their errors mean."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from paimon_cli.errors import PaimonError, StorageUnavailable, UsageError
from paimon_cli.storage.catalog_options import redact, without_user_info

try:
    import boto3
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError
    from botocore.parsers import ResponseParserError
except ImportError as error:
    raise UsageError("S3 needs the package boto3", str(error), "pip install 'paimon-cli[s3]'") from None

_PREFIXES = {"s3", "s3a", "fs.s3", "fs.s3a"}
_SETTINGS = {
    "endpoint": "endpoint",
    "access-key": "access_key",
    "access.key": "access_key",
    "accessKeyId": "access_key",
    "secret-key": "secret_key",
    "secret.key": "secret_key",
    "accessKeySecret": "secret_key",
    "session-token": "session_token",
    "session.token": "session_token",
    "securityToken": "session_token",
    "region": "region",
    "endpoint.region": "region",
    "path.style.access": "path_style",
    "path-style-access": "path_style",
}
"""Names of Paimon, of pypaimon and of Hadoop -> ours."""

_ATTEMPTS = 5
_CONNECT_SECONDS, _READ_SECONDS = 10, 60
_CONNECTIONS = 32
_MISSING = {"404", "NoSuchKey", "NotFound"}
_making_clients = threading.Lock()


@dataclass(frozen=True)
class S3Settings:
    """None: from the environment (`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT_URL`, profiles, instance roles)."""

    endpoint: str | None = None
    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    region: str | None = None
    path_style: bool | None = None

    @staticmethod
    def from_options(options: Mapping[str, Any]) -> S3Settings:
        """Other keys below `s3.` are left alone: a catalog file may hold options for other engines."""
        found: dict[str, Any] = {}
        for key, value in options.items():
            prefix = next((p for p in _PREFIXES if key.startswith(f"{p}.") and key[len(p) + 1 :] in _SETTINGS), None)
            if prefix is not None:
                found[_SETTINGS[key[len(prefix) + 1 :]]] = value
        if "path_style" in found:
            found["path_style"] = str(found["path_style"]).lower() == "true"
        if found.get("endpoint") and "://" not in found["endpoint"]:
            found["endpoint"] = f"https://{found['endpoint']}"
        return S3Settings(**found)

    @property
    def secrets(self) -> dict[str, str]:
        """What must never be printed."""
        known = {"access_key": self.access_key, "secret_key": self.secret_key, "session_token": self.session_token}
        return {name: value for name, value in known.items() if value}

    def client(self, attempts: int = _ATTEMPTS) -> Any:
        """A client of this process that sends a request at most `attempts` times; safe for threads."""
        with _making_clients:
            return _client(self, attempts, os.getpid())


@functools.lru_cache(maxsize=16)
def _client(settings: S3Settings, attempts: int, process: int) -> Any:
    """A client's connections must not cross a fork, hence one for each process."""
    style = {None: "auto", True: "path", False: "virtual"}[settings.path_style]
    config = Config(
        connect_timeout=_CONNECT_SECONDS,
        read_timeout=_READ_SECONDS,
        max_pool_connections=_CONNECTIONS,
        retries={"mode": "standard", "total_max_attempts": attempts},
        s3={"addressing_style": style},
    )
    return boto3.session.Session().client(
        "s3",
        endpoint_url=settings.endpoint,
        aws_access_key_id=settings.access_key,
        aws_secret_access_key=settings.secret_key,
        aws_session_token=settings.session_token,
        region_name=settings.region,
        config=config,
    )


def status_of(error: ClientError) -> int:
    """HTTP status of an answer that is an error."""
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def code_of(error: ClientError) -> str:
    """S3's name of the error, such as `NoSuchKey`."""
    return str(error.response.get("Error", {}).get("Code", ""))


class S3Errors(contextlib.AbstractContextManager[None]):
    """A missing object is a `FileNotFoundError`; whatever else boto3 raises becomes `StorageUnavailable`, without secrets."""

    def __init__(self, path: str, settings: S3Settings) -> None:
        self._path = without_user_info(path)
        self._settings = settings

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if isinstance(error, PaimonError):
            return
        if isinstance(error, ClientError) and code_of(error) in _MISSING:
            raise FileNotFoundError(self._path) from None
        if isinstance(error, (ClientError, BotoCoreError, ResponseParserError)):
            why = redact(str(error), self._settings.secrets)
            raise StorageUnavailable(f"S3 refused {self._path}", why, _hint(error), path=self._path) from None


def _hint(error: BaseException) -> str:
    if isinstance(error, ClientError) and status_of(error) not in (401, 403):
        return ""
    return "check s3.endpoint, s3.access-key, s3.secret-key and s3.region, or the environment (AWS_...)"
