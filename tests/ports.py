"""Ports for servers that are given theirs before they start, and ports on which nothing listens."""

from __future__ import annotations

import itertools
import os
import random
import socket

_PORTS = range(20_000, 32_000)
"""Below the ports that systems give to sockets that ask for any. A port that was given and freed again (`bind` to 0) may be given
to a server of another worker before ours has started: then ours cannot start, and whoever looks for it talks to the other."""

_NEXT = itertools.count(random.Random(os.getpid()).randrange(len(_PORTS)))


def free_port() -> int:
    """A port of loopback on which nothing listens; each call of a process returns another."""
    for number in itertools.islice(_NEXT, len(_PORTS)):
        port = _PORTS[number % len(_PORTS)]
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("no port of loopback is free")
