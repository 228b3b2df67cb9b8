"""Which addresses may be connected to. A host is looked up once, and connected to at the address that was checked."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any

from paimon_cli.storage.web_address import plain_host

_METADATA_SERVICES = tuple(
    map(ip_network, ("100.100.100.200/32", "168.63.129.16/32", "192.0.0.192/32", "fd00:ec2::/32", "fd20:ce::/32"))
)
"""Services of clouds that give credentials to any process of a machine, outside of the link-local addresses."""
_NAT64 = ip_network("64:ff9b::/96")


class ForbiddenAddress(Exception):
    """A host has an address that is never connected to."""


def is_loopback(host: str) -> bool:
    """Whether a host, by its name or address, is this machine. Names are not looked up."""
    name = plain_host(host)
    if name == "localhost":
        return True
    try:
        return _real(ip_address(name)).is_loopback
    except ValueError:
        return False


def checked_addresses(host: str, port: int) -> Iterator[tuple[int, Any]]:
    """The family and address of each address of a host.

    Raises `ForbiddenAddress` if any of them must not be connected to (`is_forbidden`), `OSError` if the host is unknown.
    """
    found = [(family, where) for family, _, _, _, where in socket.getaddrinfo(plain_host(host), port, type=socket.SOCK_STREAM)]
    for _, where in found:
        if is_forbidden(host, str(where[0])):
            raise ForbiddenAddress(f"its address {where[0]} is one to which nothing is sent")
    yield from found


def is_forbidden(host: str, address: str) -> bool:
    """Whether this address of a host must not be connected to.

    That is so for link-local addresses, where clouds have their metadata service, metadata services elsewhere, addresses that no
    machine has, and this machine under the name of another.
    """
    found = _real(ip_address(address))
    if found.is_loopback:
        return not is_loopback(host)
    is_no_machine = found.is_unspecified or found.is_multicast or found.is_reserved
    return found.is_link_local or is_no_machine or any(found in network for network in _METADATA_SERVICES)


def _real(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """The IPv4 address inside of an IPv6 one that leads to it."""
    if isinstance(address, IPv4Address):
        return address
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address
