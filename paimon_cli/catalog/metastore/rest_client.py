"""The HTTP client of a REST catalog: paths, bearer token, pages, and the meaning of status codes (OpenAPI of Paimon, `/v1`).

The server is not trusted with time or memory: its answers and listings are bounded. Redirects are not followed, as they would
carry the token elsewhere.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlencode

from paimon_cli.errors import NotFound, NotSupported, Refused, StorageUnavailable, UsageError, importing
from paimon_cli.options.option_text import printable
from paimon_cli.storage.catalog_options import PLAIN_HTTP
from paimon_cli.storage.peers import is_loopback
from paimon_cli.storage.redaction import redact, shown_address
from paimon_cli.storage.threads import cached_property
from paimon_cli.storage.web_address import WebAddress

if TYPE_CHECKING:
    from paimon_cli.storage.web_client import WebClient

T = TypeVar("T")

_REQUEST_SECONDS, _MOST_BYTES = 60, 64 * 2**20
"""The total time of a request and its answer, and the most bytes of an answer."""
LISTING_SECONDS, MOST_PAGES, MOST_ITEMS = 600, 10_000, 1_000_000
"""The total time of a listing, and how long it may be."""
_PAGE_TOKEN = "pageToken"
_HEADER_PREFIX = "header."
_HEADER_NAME, _HEADER_VALUE = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+"), re.compile(r"[\t\x20-\x7e]*")
"""What HTTP has as a token (RFC 9110, section 5.6.2), and field values without obsolete bytes."""
_PREFIX, _PREFIX_FORM = "prefix", re.compile(r"[^\x00-\x1f\x7f-\x9f]{1,255}")
UNCLEAR = frozenset({408, 429, 500, 502, 503, 504})
"""Status codes after which it is unknown whether the request was carried out."""


class NoClearAnswer(StorageUnavailable):
    """The request was sent, and may have been carried out."""


class RequestConflict(UsageError):
    """The request conflicts with the state on the server; nothing was done."""


@dataclass(frozen=True)
class RestClient:
    """A client that connects when it is first used. Picklable.

    `options`: those of the user; what the server adds, `configuration` says.
    """

    uri: str = field(repr=False)
    warehouse: str | None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @staticmethod
    def of(warehouse: str | None, options: Mapping[str, str]) -> RestClient:
        """A client configured by catalog options.

        Raises `UsageError` without a server or a token, `NotSupported` for authentication other than a bearer token.
        """
        if not options.get("uri"):
            raise UsageError("the rest catalog has no server", "metastore=rest is set, but not uri", "add uri=https://HOST:PORT")
        provider = options.get("token.provider", "bear")
        if provider != "bear":
            raise NotSupported(f"token.provider={provider}", "only bearer tokens are supported", "token.provider=bear")
        if "token.provider" in options and not options.get("token"):
            raise UsageError("there is no token", "token.provider=bear is set, but not token", "add token=... to a profile")
        uri = options["uri"].rstrip("/")
        client = RestClient(uri if "://" in uri else f"https://{uri}", warehouse, dict(options))
        client.check_secrecy(options)
        _check_headers(options)
        return client

    def check_secrecy(self, options: Mapping[str, str]) -> None:
        """Raise `Refused` if credentials in these options would be sent in clear to another machine."""
        has_credentials = bool(options.get("token")) or any(key.startswith(_HEADER_PREFIX) for key in options)
        allowed = self.options.get(PLAIN_HTTP, "false").strip().lower() == "true"
        if self._server.scheme == "http" and has_credentials and not allowed and not is_loopback(self._server.host):
            raise Refused(
                f"credentials are not sent to {self._shown}",
                "http would show the token, or headers of your own, to everybody on the way",
                f"use https, or add {PLAIN_HTTP}=true if the network is yours alone",
            )

    def __getstate__(self) -> dict[str, Any]:
        return {"uri": self.uri, "warehouse": self.warehouse, "options": self.options}

    @cached_property
    def configuration(self) -> Mapping[str, str]:
        """What the server says in `/v1/config` (its overrides, then its defaults): of this, only the prefix of paths is followed.

        To where requests go, and with which credentials, the user alone decides.
        """
        query = {"warehouse": self.warehouse} if self.warehouse else {}
        answer = self._send("GET", f"/v1/config?{urlencode(query)}" if query else "/v1/config", None, {})
        defaults, overrides = (part(answer, name, dict) or {} for name in ("defaults", "overrides"))
        said = {key: str(value) for key, value in {**defaults, **self.options, **overrides}.items() if value is not None}
        if said.get("data-token.enabled", "false").lower() == "true":
            raise NotSupported("data-token.enabled=true", "temporary credentials from the server are not supported")
        prefix = said.get(_PREFIX, "")
        if prefix and (_PREFIX_FORM.fullmatch(prefix) is None or prefix in (".", "..")):
            why = "it begins every path, and is one name of at most 255 characters"
            raise NoClearAnswer(f"the REST catalog at {self._shown} has an invalid prefix", why, "check the server")
        return {key: str(value) for key, value in {**defaults, **overrides}.items()} | {_PREFIX: prefix}

    def get(self, *path: str) -> dict[str, Any]:
        return self._request("GET", path)

    def post(self, *path: str, content: Mapping[str, Any]) -> dict[str, Any]:
        return self._request("POST", path, content)

    def delete(self, *path: str) -> None:
        self._request("DELETE", path)

    def pages(self, *path: str, items: str, kind: type[T]) -> Iterator[T]:
        """The items of a listing, page by page. Raises `StorageUnavailable` if it does not end, or for another item."""
        token: str | None = None
        begin, count = time.monotonic(), 0
        for _ in range(MOST_PAGES):
            answer = self._request("GET", path, query={} if token is None else {_PAGE_TOKEN: token})
            found, last = checked(answer.get(items), items, list), token
            count += len(found)
            yield from (checked(item, f"item of {items}", kind) for item in found)
            token = part(answer, "nextPageToken", str)
            if not token:
                return
            if token == last or count > MOST_ITEMS or time.monotonic() - begin > LISTING_SECONDS:
                break
        why = f"it has more than {MOST_ITEMS:,} items or {MOST_PAGES:,} pages, took {LISTING_SECONDS} s, or repeats a page"
        raise StorageUnavailable(f"a listing of the REST catalog at {self._shown} does not end", why, "check the server")

    def first_page(self, *path: str, items: str, kind: type[T]) -> list[T]:
        """The items of the first page of a listing."""
        found = checked(self._request("GET", path).get(items), items, list)
        return [checked(item, f"item of {items}", kind) for item in found]

    def _request(
        self, method: str, path: tuple[str, ...], content: Mapping[str, Any] | None = None, query: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        handed_out = self.configuration
        parts = [handed_out[_PREFIX]] if handed_out[_PREFIX] else []
        if any(name in ("", ".", "..") for name in path):
            what = f"the REST catalog at {self._shown} names something {' and '.join(map(repr, path))}"
            raise NoClearAnswer(what, "such a name leads to another path of the server", "check the server")
        address = "/".join(["/v1", *(quote(part, safe="") for part in (*parts, *path))])
        return self._send(method, f"{address}?{urlencode(query)}" if query else address, content, handed_out)

    def _send(self, method: str, path: str, content: Mapping[str, Any] | None, handed_out: Mapping[str, str]) -> dict[str, Any]:
        """Send one request, without retries: a POST that is sent twice may be carried out twice.

        `handed_out`: what the server has said about itself, whose secrets are not shown either.
        """
        pool, options = self._web, self.options
        from paimon_cli.storage.web_client import NoAnswer, NotSent

        self.check_secrecy(options)
        headers = {key.removeprefix(_HEADER_PREFIX): value for key, value in options.items() if key.startswith(_HEADER_PREFIX)}
        if options.get("token"):
            headers["Authorization"] = f"Bearer {options['token']}"
        body = None if content is None else json.dumps(content).encode()
        if body is not None:
            headers["Content-Type"] = "application/json"
        try:
            status, text = pool.send(method, f"{self._server.path.rstrip('/')}{path}", body, headers)
        except NotSent as error:
            why = redact(redact(str(error), options), handed_out)
            raise StorageUnavailable(f"the REST catalog at {self._shown} does not answer", why, "check uri") from None
        except NoAnswer as error:
            what = f"the REST catalog at {self._shown} gave no complete answer"
            hint = "check whether it was carried out before trying again"
            raise NoClearAnswer(what, redact(redact(str(error), options), handed_out), hint) from None
        return self._content(status, text, handed_out)

    def _content(self, status: int, body: bytes, handed_out: Mapping[str, str]) -> dict[str, Any]:
        if 300 <= status < 400:
            what = f"the REST catalog at {self._shown} answered {status}"
            raise StorageUnavailable(what, "it redirects to another address, which is not followed", "check uri")
        try:
            content = json.loads(body) if body else {}
        except (ValueError, RecursionError):
            content = None
        if status < 300:
            return checked(content, "form", dict)
        if not isinstance(content, dict):
            content = {"message": "its answer is not a JSON object"}
        said = str(content.get("message") or "no reason was given").split("\n")[0]
        message = redact(redact(said, self.options), handed_out)
        raise _error_of(status, f"the REST catalog at {self._shown} answered {status}", message)

    @property
    def _shown(self) -> str:
        return shown_address(self.uri)

    @cached_property
    def _server(self) -> WebAddress:
        address = WebAddress.parse(self.uri)
        if address is None:
            raise UsageError("uri of the rest catalog is not a URL of http or https", hint="such as uri=https://HOST:PORT")
        return address

    @cached_property
    def _web(self) -> WebClient:
        with importing("a rest catalog needs urllib3", "rest"):
            from paimon_cli.storage.web_client import Bounds, WebClient

        return WebClient(self._server, Bounds(_REQUEST_SECONDS, _MOST_BYTES))


def part(content: Mapping[str, Any], name: str, kind: type[T]) -> T | None:
    """A part of a server's answer; None if it is absent or null. Raises `NoClearAnswer` if it has another type."""
    value = content.get(name)
    return None if value is None else checked(value, name, kind)


def checked(value: Any, name: str, kind: type[T]) -> T:
    """The value. Raises `NoClearAnswer`, with its `name`, if it has another type."""
    if not isinstance(value, kind):
        what = f"the answer of the REST catalog has a wrong {name}: {_TYPES[kind]} was expected"
        raise NoClearAnswer(what, "it does not follow Paimon's REST API", "check uri, and the version of the server")
    return value


def _check_headers(options: Mapping[str, str]) -> None:
    """Raise `UsageError` for a header, or a token, that HTTP cannot carry; its value is not shown."""
    for key in options:
        name = key.removeprefix(_HEADER_PREFIX)
        if key != "token" and name == key:
            continue
        if not _HEADER_NAME.fullmatch(name):
            raise UsageError(f"{printable(key)} does not name a header", "a name has letters, digits and hyphens only")
        if not _HEADER_VALUE.fullmatch(options[key]):
            raise UsageError(
                f"{key} cannot be sent", "headers and tokens are plain ASCII, in one line", "encode it, as the server does"
            )


_TYPES: dict[type, str] = {str: "a text", dict: "a JSON object", list: "a list"}


def _error_of(status: int, what: str, why: str) -> Exception:
    if status in UNCLEAR:
        return NoClearAnswer(what, why, "check whether it was carried out before trying again")
    if status == 404:
        return NotFound(what, why)
    if status in (409, 412):
        return RequestConflict(what, why)
    if status == 400:
        return UsageError(what, why)
    if status == 501:
        return NotSupported(what, why)
    hint = "check token" if status in (401, 403) else "check uri"
    return StorageUnavailable(what, why, hint)
