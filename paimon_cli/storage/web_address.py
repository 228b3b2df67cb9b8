"""The parts of a web address, and the hosts that the user allows."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv6Address
from typing import NamedTuple
from urllib.parse import urlsplit

from paimon_cli.errors import UsageError

REPORT_HOSTS = "http-report.allowed-hosts"
"""Setting of the user: the hosts to which options of tables may send reports."""
_DEFAULT_PORTS = {"http": 80, "https": 443}
_HOST_AND_PORT = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[^][:]+)(?::[0-9]*)?", re.ASCII)
_NAME = re.compile(r"[a-z0-9_.-]{1,253}")
_HOST_ENTRY = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+)(?::([0-9]{1,5}))?")


class WebAddress(NamedTuple):
    """The parts of a URL of http or https, without user info.

    `host`: an address, or a name of ASCII characters (others as in DNS: `xn--...`); `port`: None for that of the scheme; `path`:
    with the query.
    """

    scheme: str
    host: str
    port: int | None
    path: str

    @staticmethod
    def parse(url: str) -> WebAddress | None:
        """None for anything else, without a host, or with one that no machine can have."""
        try:
            found = urlsplit(url)
            host, port = _real_host(found.hostname or ""), found.port
        except ValueError:
            return None
        is_plain = _HOST_AND_PORT.fullmatch(found.netloc.rpartition("@")[2]) is not None  # parsers differ about the rest
        if found.scheme not in _DEFAULT_PORTS or port == 0 or not is_plain or "\\" in url:  # which some take for a slash
            return None
        return WebAddress(found.scheme, host, port, (found.path or "/") + f"?{found.query}" * bool(found.query))

    @property
    def host_and_port(self) -> str:
        shown = f"[{self.host}]" if ":" in self.host else self.host
        return shown if self.port is None else f"{shown}:{self.port}"


@dataclass(frozen=True)
class AllowedHosts:
    """Hosts, each with a port or with the default port of the scheme: `reports.example.com, 10.0.0.7:8080`."""

    entries: frozenset[tuple[str, int | None]] = frozenset()

    @staticmethod
    def parse(text: str | None) -> AllowedHosts:
        """Raises `UsageError` for an entry that is not a host, with or without a port."""
        return AllowedHosts(frozenset(_host_entry(part.strip()) for part in (text or "").split(",") if part.strip()))

    def allow(self, address: WebAddress) -> bool:
        """Whether requests may be sent to this address."""
        standard = _DEFAULT_PORTS[address.scheme]
        asked = standard if address.port is None else address.port
        return (address.host, asked) in self.entries or (asked == standard and (address.host, None) in self.entries)


def plain_host(host: str) -> str:
    """A host in the form in which hosts are compared."""
    return host.strip("[]").rstrip(".").lower()


def _real_host(text: str) -> str:
    """Raises `ValueError` for a text that is neither an address nor a name that can be looked up."""
    if ":" in text:
        return str(IPv6Address(plain_host(text)))
    host = plain_host(text).encode("idna").decode("ascii")
    if _NAME.fullmatch(host) is None:
        raise ValueError(text)
    return host


def _host_entry(text: str) -> tuple[str, int | None]:
    found = _HOST_ENTRY.fullmatch(text)
    if found is None or int(found[2] or 1) > 65535:
        hint = f"such as {REPORT_HOSTS}: reports.example.com, 10.0.0.7:8080"
        raise UsageError(f"{REPORT_HOSTS} has an invalid entry", f"'{text}' is not HOST or HOST:PORT", hint)
    return plain_host(found[1]), int(found[2]) if found[2] else None
