"""Addresses to which nothing is sent, in each of the forms in which they may be written, and the hosts that a user allows."""

from __future__ import annotations

import pytest

from paimon_cli.errors import UsageError
from paimon_cli.storage.peers import ForbiddenAddress, checked_addresses, is_forbidden, is_loopback
from paimon_cli.storage.web_address import AllowedHosts, WebAddress


@pytest.mark.parametrize(
    "address",
    [
        *("169.254.169.254", "169.254.1.1", "fe80::1", "fe80::1%eth0", "100.100.100.200", "168.63.129.16", "192.0.0.192"),
        *(
            "::ffff:169.254.169.254",
            "::ffff:a9fe:a9fe",
            "64:ff9b::a9fe:a9fe",
            "2002:a9fe:a9fe::1",
            "fd00:ec2::254",
            "fd20:ce::254",
        ),
        *("0.0.0.0", "::", "224.0.0.1", "ff02::1", "255.255.255.255", "::ffff:0.0.0.0"),
        *("127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"),
    ],
)
def test_addresses_that_are_no_server_of_the_user(address: str) -> None:
    assert is_forbidden("reports.example.com", address)


@pytest.mark.parametrize(
    "address", ["10.0.0.7", "192.168.1.1", "8.8.8.8", "2001:4860:4860::8888", "fd12:3456::1", "::ffff:10.0.0.7"]
)
def test_addresses_of_machines(address: str) -> None:
    assert not is_forbidden("reports.example.com", address)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]", "::1", "LOCALHOST.", "127.1.2.3", "::ffff:127.0.0.1"])
def test_this_machine_by_its_own_name(host: str) -> None:
    assert is_loopback(host) and not is_forbidden(host, "127.0.0.1")


@pytest.mark.parametrize("host", ["localhost.example.com", "127.0.0.1.example.com", "10.0.0.1", "2130706433", ""])
def test_other_machines(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize("host", ["169.254.169.254", "2852039166", "0xa9fea9fe", "[::ffff:a9fe:a9fe]", "0251.0376.0251.0376"])
def test_numbers_are_looked_up_before_they_are_checked(host: str) -> None:
    with pytest.raises(ForbiddenAddress):
        list(checked_addresses(host, 80))


def test_one_forbidden_address_of_several_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [(2, 1, 6, "", ("10.0.0.7", 80)), (2, 1, 6, "", ("169.254.169.254", 80))]
    monkeypatch.setattr("socket.getaddrinfo", lambda *_, **__: found)
    with pytest.raises(ForbiddenAddress):
        list(checked_addresses("reports.example.com", 80))


ALLOWED = AllowedHosts.parse("Reports.Example.com, 10.0.0.7:8080,[::1]:9,,b:443 ")


@pytest.mark.parametrize(
    ("url", "is_allowed"),
    [
        ("https://reports.example.com/x?y", True),
        ("http://REPORTS.example.com./x", True),
        ("http://reports.example.com:80", True),
        ("http://10.0.0.7:8080", True),
        ("http://[::1]:9/", True),
        ("https://b/", True),
        ("http://b/", False),
        ("http://10.0.0.7/", False),
        ("https://reports.example.com:22/", False),
        ("http://reports.example.com@evil.example.com/", False),
        ("http://evil.example.com#@reports.example.com/", False),
        ("http://reports.example.com.evil.example.com/", False),
    ],
)
def test_which_urls_are_allowed(url: str, is_allowed: bool) -> None:
    address = WebAddress.parse(url)
    assert address is not None and ALLOWED.allow(address) == is_allowed


@pytest.mark.parametrize(
    "url",
    [
        *("", "ftp://h/", "http://", "http:///x", "//h/x", "http://a\\@h/", "http://?x", "http://.", "http://u:p@/"),
        *("http://h:99999/", "http://h:x/", "http://h:0/", "http://h:-1/", "http://h:\u0661/"),
        *("http://[::1", "http://::1]/", "http://[x]/", "http://[::1]x/", "http://[fe80::1%25eth0]/", "http://1:2:3/"),
        *("http://a b/", "http://a;b/", "http://$(id)/", "http://a..b/", f"http://{'x' * 64}/", f"http://{'x.' * 200}x/"),
        *("http://a\0b/", "http://\ud800/", "http://a%20b/", "http://\u2100.example.com/"),
    ],
)
def test_texts_that_are_no_web_address(url: str) -> None:
    assert WebAddress.parse(url) is None


def test_parts_of_an_address() -> None:
    assert WebAddress.parse("http://u:p@[::1]:80?q=1#f") == ("http", "::1", 80, "/?q=1")
    assert WebAddress.parse("http://b\u00fccher.example.:8/ä b") == ("http", "xn--bcher-kva.example", 8, "/ä b")
    assert WebAddress.parse("http://[0:0::1]/") == ("http", "::1", None, "/")


@pytest.mark.parametrize("text", ["*", "*.example.com", "http://h", "h/x", "h:99999", "h:x", "u@h", "::1", "h h"])
def test_entries_that_are_no_host(text: str) -> None:
    with pytest.raises(UsageError, match="invalid entry"):
        AllowedHosts.parse(text)
