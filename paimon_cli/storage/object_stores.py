"""Clients of object stores, configured by Paimon's catalog options and the environment; and the errors of obstore.

Each bucket has several clients. One retries failed requests and resumes interrupted downloads. Another (`once`) never retries: a
repeated put-if-absent would find the object of its first attempt and mistake it for another writer's. On S3 a third (`together`)
deletes many objects with one request, which some stores do not implement; the others delete each with a request of its own.
"""

from __future__ import annotations

import configparser
import contextlib
import functools
import os
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from types import TracebackType
from typing import Any

from obstore.exceptions import BaseError, GenericError
from obstore.store import AzureStore, GCSStore, S3Store

from paimon_cli.errors import PaimonError, RequestRefused, StorageUnavailable, UsageError, importing
from paimon_cli.storage.catalog_options import OBJECT_STORES, STORE_PREFIXES, Service
from paimon_cli.storage.redaction import holds_secret, redact, secrets_of_environment, shown_address, shown_value, without_login
from paimon_cli.storage.web_address import WebAddress

_NAMES = {
    Service.S3: {
        "endpoint": "endpoint",
        **dict.fromkeys(("access-key", "access.key", "accessKeyId"), "access_key_id"),
        **dict.fromkeys(("secret-key", "secret.key", "accessKeySecret"), "secret_access_key"),
        **dict.fromkeys(("session-token", "session.token", "securityToken"), "session_token"),
        **dict.fromkeys(("region", "endpoint.region"), "region"),
        **dict.fromkeys(("path.style.access", "path-style-access"), "path_style"),
    },
    Service.GOOGLE: {
        "endpoint": "base_url",
        "storage.root.url": "base_url",
        "auth.service.account.json.keyfile": "application_credentials",
        "auth.access.token": "bearer_token",
    },
    Service.AZURE: {
        "endpoint": "endpoint",
        "account.name": "account_name",
        "account.key": "account_key",
        **dict.fromkeys(("sas.token", "sas.fixed.token"), "sas_token"),
        "account.oauth2.client.id": "client_id",
        "account.oauth2.client.secret": "client_secret",
        "account.oauth2.client.endpoint": "token_endpoint",
    },
}
"""Option names of Paimon, pypaimon and Hadoop, mapped to those of obstore, or of this module (`endpoint`, `path_style`, ...)."""
_HINTS = {
    Service.S3: "check s3.endpoint, s3.access-key, s3.secret-key and s3.region, or the environment (AWS_...)",
    Service.GOOGLE: "check gs.auth.service.account.json.keyfile, or the environment (GOOGLE_APPLICATION_CREDENTIALS)",
    Service.AZURE: "check azure.account.name and azure.account.key or azure.sas.token, or the environment (AZURE_...)",
}
_HADOOP_ACCOUNT = re.compile(r"\.([a-z0-9]+)\.(dfs|blob)\.core\.windows\.net$")
_OF_ACCOUNT = "@"
"""Between the name of a setting and the account of Azure to which alone it belongs: a key must not be used for another one."""
_TENANT = re.compile(r"^(https?://[^/]+)/([^/]+)/oauth2/")

_RETRIES = 4
_ALL_TRIES = timedelta(seconds=60)
_CLIENT = {"connect_timeout": "10s", "timeout": "60s", "pool_idle_timeout": "60s"}


@dataclass(frozen=True)
class StoreSettings:
    """The catalog options of one service. Settings that they lack are read from the environment of each process."""

    service: Service
    given: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @staticmethod
    def from_options(service: Service, options: Mapping[str, Any]) -> StoreSettings:
        """Take the options of a service. Unknown keys are ignored, because a catalog file may hold options of other engines."""
        found: dict[str, str] = {}
        for key, value in options.items():
            prefix = next((p for p in STORE_PREFIXES[service] if key.startswith(f"{p}.")), None)
            if prefix is None:
                continue
            name = key[len(prefix) + 1 :]
            if service is Service.AZURE and (account := _HADOOP_ACCOUNT.search(name)):
                name = name[: account.start()]
                found[f"account_name{_OF_ACCOUNT}{account[1]}"] = account[1]
                if name in _NAMES[service]:
                    found[f"{_NAMES[service][name]}{_OF_ACCOUNT}{account[1]}"] = str(value)
            elif name in _NAMES[service]:
                found[_NAMES[service][name]] = str(value)
        for name in ("endpoint", "base_url"):
            if found.get(name) and "://" not in found[name]:
                found[name] = f"https://{found[name]}"
        return StoreSettings(service, tuple(sorted(found.items())))

    @property
    def secrets(self) -> dict[str, str]:
        """The secret settings by name, whose values must never be printed."""
        profile = _profile()[0] if _wants_profile(self.service, dict(self.given)) else {}
        settings = secrets_of_environment() | profile | dict(self.given)
        return {name: value for name, value in settings.items() if holds_secret(name, value)}

    def client(self, bucket: str, *, once: bool = False, together: bool = False) -> Any:
        """The client of this process for a bucket (on Azure `container` or `container@host`); thread-safe.

        Raises `StorageUnavailable` in a forked process: obstore's threads exist in the parent only, so requests would hang.
        """
        if _process.is_fork:
            raise StorageUnavailable(
                f"{self.service.value} cannot be reached from this process",
                "it was forked from one that had used an object store already",
                "start processes with multiprocessing.get_context('spawn') or 'forkserver'",
            )
        with _making_clients:
            _process.has_clients = True
            return _client(self, bucket, once, together and self.service is Service.S3)


class _Process:
    """Whether this process has created clients, or was forked from one that had."""

    has_clients = False
    is_fork = False

    def forked(self) -> None:
        self.is_fork = self.is_fork or self.has_clients


_process = _Process()
os.register_at_fork(after_in_child=_process.forked)
_making_clients = threading.Lock()


@functools.lru_cache(maxsize=64)
def _client(settings: StoreSettings, bucket: str, once: bool, together: bool) -> Any:
    make: Any
    configure: Callable[[str, dict[str, Any]], Configured]
    make, configure = {
        Service.S3: (S3Store, _s3),
        Service.GOOGLE: (GCSStore, _google),
        Service.AZURE: (AzureStore, _azure),
    }[settings.service]
    retries = {"max_retries": 0 if once else _RETRIES, "retry_timeout": _ALL_TRIES}
    try:
        name, config, is_plain_http, provider = configure(bucket, dict(settings.given))
        _check_addresses(bucket, config)
        if settings.service is Service.S3:
            config["disable_bulk_delete"] = not together
        client = {**_CLIENT, "allow_http": is_plain_http}
        return make(name, config=config, client_options=client, retry_config=retries, credential_provider=provider)
    except (BaseError, ValueError, OSError) as error:
        why = redact(StoreError(error).text, settings.secrets)
        raise UsageError(f"cannot open {settings.service.value}", why, _HINTS[settings.service]) from None


_BUCKET = re.compile(r"[\w$][\w.$-]*(?:@[\w.-]+)?", re.ASCII)
_ENDPOINT = re.compile(r"[\w.:/~\[\]-]+", re.ASCII)


def _check_addresses(bucket: str, config: Mapping[str, Any]) -> None:
    """Raise `ValueError` where obstore would panic, which is no exception that could be handled and prints what it likes."""
    if _BUCKET.fullmatch(bucket) is None:
        raise ValueError("the name of the bucket has characters that none may have")
    for endpoint in (config[name] for name in ("endpoint", "base_url") if config.get(name)):
        if WebAddress.parse(endpoint) is None or _ENDPOINT.fullmatch(endpoint) is None:
            raise ValueError(f"the endpoint {shown_address(endpoint)} does not have the form https://HOST:PORT, without a login")


Configured = tuple[str, dict[str, Any], bool, Any]
"""Bucket, configuration for obstore, whether the endpoint is plain HTTP, and the credential provider (None: obstore's own)."""


def _s3(bucket: str, config: dict[str, Any]) -> Configured:
    """Custom endpoints use path-style requests unless `path_style` is false; Amazon's use virtual-hosted style."""
    profile, profile_name = _profile() if _wants_profile(Service.S3, config) else ({}, None)
    named = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or profile.pop("endpoint", None)
    endpoint = config.pop("endpoint", named)
    style = config.pop("path_style", None)
    by_path = style.lower() == "true" if style is not None else endpoint is not None or "." in bucket
    if endpoint is not None:
        scheme, _, host = endpoint.rstrip("/").partition("://")
        config["endpoint"] = endpoint if by_path else f"{scheme}://{bucket}.{host}"
    in_environment = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    region = in_environment or profile.get("region") or "us-east-1"
    config = {**profile, "region": region, **config, "virtual_hosted_style_request": not by_path}
    provider = None if profile_name is None else _boto3_provider(profile_name)
    return bucket, config, endpoint is not None and endpoint.startswith("http:"), provider


def _google(bucket: str, config: dict[str, Any]) -> Configured:
    is_plain_http = config.get("base_url", "").startswith("http:")
    if is_plain_http and not {"bearer_token", "application_credentials"} & config.keys():
        config["bearer_token"] = "anonymous"  # for emulators without accounts; otherwise obstore requests a token from Google
    return bucket, config, is_plain_http, None


def _azure(bucket: str, config: dict[str, Any]) -> Configured:
    """A setting that names its account is for this account only, and precedes one for all."""
    container, _, host = bucket.partition("@")
    if host:
        config["account_name"] = host.partition(".")[0].lower()  # as host names have no case
    own = {name: config.pop(name) for name in tuple(config) if _OF_ACCOUNT in name}
    accounts = sorted({name.partition(_OF_ACCOUNT)[2] for name in own})
    if accounts and "account_name" not in config:
        chosen = accounts[0] if len(accounts) == 1 else os.environ.get("AZURE_STORAGE_ACCOUNT_NAME")
        if not chosen:
            raise ValueError(f"azure.account.name must choose one of the accounts {', '.join(accounts)}: the URL names none")
        config["account_name"] = chosen
    for name, value in own.items():
        setting, _, account = name.partition(_OF_ACCOUNT)
        if account == config["account_name"].lower():
            config[setting] = value
    if "token_endpoint" in config:
        found = _TENANT.match(config.pop("token_endpoint"))
        if found is None:
            raise ValueError("azure.account.oauth2.client.endpoint does not have the form https://HOST/TENANT/oauth2/token")
        config |= {"authority_host": found[1], "tenant_id": found[2]}
    return container, config, config.get("endpoint", "").startswith("http:"), None


_PROFILE_NAMES = {
    "aws_access_key_id": "access_key_id",
    "aws_secret_access_key": "secret_access_key",
    "aws_session_token": "session_token",
    "region": "region",
    "endpoint_url": "endpoint",
}
_NEEDS_BOTO3 = ("role_arn", "credential_process", "sso_session", "sso_start_url", "web_identity_token_file", "login_session")


def _wants_profile(service: Service, config: Mapping[str, str]) -> bool:
    return service is Service.S3 and "access_key_id" not in config and "AWS_ACCESS_KEY_ID" not in os.environ


def _profile() -> tuple[dict[str, str], str | None]:
    """The settings in the selected AWS profile, and the profile's name if boto3 has to fetch its credentials, otherwise None.

    Raises `UsageError` if the AWS files cannot be parsed, or lack a profile that the environment names.
    """
    name = os.environ.get("AWS_PROFILE") or os.environ.get("AWS_DEFAULT_PROFILE")
    paths = {
        "credentials": os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or "~/.aws/credentials",
        "config": os.environ.get("AWS_CONFIG_FILE") or "~/.aws/config",
    }
    wanted = name or "default"
    found: dict[str, str] = {}
    exists = False
    for kind, section in (("config", f"profile {wanted}"), ("config", wanted), ("credentials", wanted)):
        parser = configparser.RawConfigParser(strict=False)
        path = os.path.expanduser(paths[kind])
        try:
            parser.read(path, encoding="utf-8")
        except (configparser.Error, UnicodeDecodeError, OSError):
            raise UsageError(f"cannot read {path}", "it does not have the format of AWS profiles") from None
        if parser.has_section(section) and not (kind == "config" and section == wanted != "default"):
            exists = True
            found |= dict(parser.items(section))
    if name is not None and not exists:
        raise UsageError(f"no profile {name} in the AWS files", f"searched {paths['credentials']} and {paths['config']}")
    own = {_PROFILE_NAMES[key]: value for key, value in found.items() if key in _PROFILE_NAMES}
    fetched = "access_key_id" not in own and any(key in found for key in _NEEDS_BOTO3)
    return own, wanted if fetched else None


def _boto3_provider(profile: str) -> Any:
    with importing(f"the AWS profile {profile} needs the package boto3", "aws-profiles"):
        import boto3
        from obstore.auth.boto3 import Boto3CredentialProvider

    return Boto3CredentialProvider(boto3.session.Session(profile_name=profile))


_STATUS = re.compile(r"non-2xx status code: (\d{3})\b")
_STATUS_OF_PART = re.compile(r"request failed for key .*\(code: (\d{3})\)$", re.DOTALL)
_NOT_CONNECTED = re.compile(r"inner: Http\(\s*HttpError \{\s*kind: Connect,")
_REQUEST = re.compile(r"(GET|PUT|HEAD|POST|DELETE) https?://[^\s?]+")
_RESPONSE = re.compile(r"<Code>([^<]*)</Code>\s*<Message>([^<\n]*)")
_OF_THE_USER = (
    *("AuthenticationFailed", "ExpiredToken", "InvalidAccessKeyId", "InvalidToken", "NoSuchBucket", "RequestTimeTooSkewed"),
    *("SignatureDoesNotMatch", "TokenRefreshRequired"),
)
"""Codes of refusals that all requests meet, whatever object they are about."""
_CAUSE = re.compile(r'(?:message: |error: |\w+Error\(\s*)"([^"\n]{1,200})"')


@dataclass(frozen=True)
class StoreError:
    """An error of obstore, whose text is parsed because it alone contains the HTTP status and the cause."""

    error: Exception

    @property
    def status(self) -> int:
        """HTTP status of the response, or of the part of it that is about one of several objects; 0 if there was none."""
        found = _STATUS.search(self.text) or _STATUS_OF_PART.search(self.text)
        return int(found[1]) if found else 0

    @property
    def is_refusal(self) -> bool:
        """Whether the store rejected the request. After a timeout (408, or 400 on S3) the request may still take effect."""
        return 400 <= self.status < 500 and self.status != 408 and "RequestTimeout" not in self.text

    @property
    def is_about_the_object(self) -> bool:
        """Whether the store may grant other requests of this user; not if it does not know the user, or is overloaded."""
        return self.is_refusal and self.status not in (401, 429) and not any(code in self.text for code in _OF_THE_USER)

    @property
    def text(self) -> str:
        return str(self.error).partition("\n\nDebug source")[0]

    @property
    def was_not_sent(self) -> bool:
        """Whether no connection could be established, so that the store never received the request."""
        return _NOT_CONNECTED.search(str(self.error)) is not None

    @property
    def why(self) -> str:
        """The reason in one line: code and message of the store's response, otherwise the innermost cause."""
        if response := _RESPONSE.search(self.text):
            return f"{self.status} {response[1]}: {response[2]}"
        if "sending request" not in self.text:
            return " ".join(self.text.split())
        causes = _CAUSE.findall(str(self.error).partition("\n\nDebug source")[2])
        request = _REQUEST.search(self.text)
        what = "could not connect" if self.was_not_sent else "the connection broke"
        return what + (f" for {request[0]}" if request else "") + (f" ({causes[-1]})" if causes else "")


class StoreErrors(contextlib.AbstractContextManager[None]):
    """Translates errors: a missing object is `FileNotFoundError`, any other error `StorageUnavailable` without secrets."""

    def __init__(self, path: str, settings: StoreSettings) -> None:
        self._path = without_login(path)
        self._settings = settings

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None or isinstance(error, PaimonError) or not isinstance(error, (BaseError, OSError, ValueError)):
            return
        found = StoreError(error)
        if isinstance(error, FileNotFoundError) and "NoSuchBucket" not in found.text:
            raise FileNotFoundError(self._path) from None
        raise self.refusal(error) from None

    def refusal(self, error: Exception) -> StorageUnavailable:
        found, service = StoreError(error), self._settings.service
        is_denied = found.status in (401, 403) or (found.status == 0 and isinstance(error, GenericError))
        hint = _HINTS[service] if is_denied else ""
        why = redact(found.why, self._settings.secrets)
        error_class = RequestRefused if found.is_about_the_object else StorageUnavailable
        return error_class(f"{service.value} refused {self._path}", why, hint, path=self._path)


_FORMS = {
    Service.S3: "s3://BUCKET/KEY",
    Service.GOOGLE: "gs://BUCKET/KEY",
    Service.AZURE: "abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/KEY or az://CONTAINER/KEY",
}


def bucket_and_key(service: Service, path: str) -> tuple[str, str]:
    """Bucket and key of a URL; keys are not percent-decoded. Raises `UsageError` for URLs of another service."""
    scheme, _, rest = path.partition("://")
    bucket, _, key = rest.partition("/")
    if OBJECT_STORES.get(scheme) is not service or not bucket.partition("@")[0]:
        shown = shown_value("", path)
        raise UsageError(f"'{shown}' is not the URL of an object on {service.value}", f"the form is {_FORMS[service]}")
    return bucket, key
